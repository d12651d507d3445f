"""Responses at clouds: other paths, and which models they offer in it.

docs.aws.amazon.com/bedrock/latest/userguide/inference-responses.html; captured from openai 3.51.0 (`AzureOpenAI`,
`BedrockOpenAI`, `OpenAI(provider=vertex(…))`). November 2026."""

from __future__ import annotations

import re
from collections.abc import Mapping

from toolwire.core.codec import Platform

_find_openai = re.compile(r"(?:^|[./])openai\.|^gpt-").search


def _is_openai_id(model: str, tools: bool) -> bool:
    return _find_openai(model) is not None


def _takes_no_claude(model: str, tools: bool) -> bool:
    return "claude" not in model.lower()


PLATFORMS: Mapping[str, Platform] = {
    "bedrock": Platform(
        http={
            "provider_models_path": "",
            "request_path": lambda model, stream: "/openai/v1/responses",
            "passthrough_endpoints": (),
        },
        supports_model=_is_openai_id,
    ),
    "vertex": Platform(http={"provider_models_path": ""}, supports_model=_is_openai_id),
    "azure": Platform(supports_model=_takes_no_claude),
    "azure-deployments": Platform(supports_model=_takes_no_claude),
}
