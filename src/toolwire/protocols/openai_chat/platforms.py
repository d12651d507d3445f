"""Chat Completions at clouds: other paths, and which models they offer in it.

docs.aws.amazon.com/bedrock/latest/userguide/inference-chat-completions.html, Azure's reference of its inference API
(the deployment is in the path where an `api-version` is), cloud.google.com/vertex-ai/generative-ai/docs/start/openai.
Captured from openai 3.51.0 (`AzureOpenAI`, `BedrockOpenAI`). November 2026."""

from __future__ import annotations

import re
from collections.abc import Mapping

from toolwire.core.codec import Platform
from toolwire.core.model_lists import percent_encode
from toolwire.protocols.openai_chat.http import OF_DEPLOYMENTS

_is_openai_id = re.compile(r"(?:^|[./])openai\.|^gpt-").search


def _name_deployment(path: str, model: str) -> str:
    rest = path.removeprefix("/v1/")
    return f"/deployments/{model}/{rest}" if model and rest in OF_DEPLOYMENTS else path


def _takes_no_claude(model: str, tools: bool) -> bool:
    return "claude" not in model.lower()


PLATFORMS: Mapping[str, Platform] = {
    "bedrock": Platform(
        http={
            "provider_models_path": "",
            "request_path": lambda model, stream: "/openai/v1/chat/completions",
            "passthrough_endpoints": (),
        },
        supports_model=lambda model, tools: _is_openai_id(model) is not None,
    ),
    "vertex": Platform(http={"provider_models_path": ""}, supports_model=lambda model, tools: "/" in model),
    "azure": Platform(supports_model=_takes_no_claude),
    "azure-deployments": Platform(
        http={
            "request_path": lambda model, stream: f"/deployments/{percent_encode(model)}/chat/completions",
            "forwarded_path": _name_deployment,
        },
        supports_model=_takes_no_claude,
    ),
}
