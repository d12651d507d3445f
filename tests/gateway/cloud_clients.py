"""The SDK classes for the clouds, pointed at the gateway. Each holds the same conversations as the SDK's own class."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anthropic
import openai
from google import genai
from google.oauth2.credentials import Credentials

from gateway.clients import KEY, Chat, Conversation, Generate, Messages, Responses, make_http_client, make_once
from waits import PATIENCE

API_VERSION = "2025-04-01-preview"
REGION = "eu-west-1"
PROJECT, LOCATION = "our-project", "europe-west4"


def _make(sdk: Callable[..., Any], **given: Any) -> Callable[[str], Any]:
    """Opens this SDK; texts have the gateway's address for `{base}`."""

    def open_sdk(base: str) -> Any:
        listening, url = make_http_client(base)
        filled = {name: value.format(base=url) if isinstance(value, str) else value for name, value in given.items()}
        return sdk(max_retries=0, timeout=PATIENCE, http_client=listening, **filled)

    return make_once(open_sdk)


def _subclass(kind: type[Conversation], open_sdk: Callable[[str], Any]) -> type[Conversation]:
    return type(f"Cloud{kind.__name__}", (kind,), {"open_sdk": staticmethod(open_sdk)})


def _open_vertex_genai(base: str) -> genai.Client:
    listening, url = make_http_client(base)
    options: Any = {"base_url": url, "timeout": int(PATIENCE * 1000), "httpx_client": listening}
    credentials = Credentials(token=KEY)  # type: ignore[no-untyped-call]
    return genai.Client(
        vertexai=True, project=PROJECT, location=LOCATION, credentials=credentials, http_options=options
    )


def _open_express_genai(base: str) -> genai.Client:
    listening, url = make_http_client(base)
    options: Any = {"base_url": url, "timeout": int(PATIENCE * 1000), "httpx_client": listening}
    return genai.Client(vertexai=True, api_key=KEY, http_options=options)


AZURE = {"api_key": KEY, "api_version": API_VERSION, "azure_endpoint": "{base}"}
AWS = {"aws_access_key": KEY, "aws_secret_key": KEY, "aws_region": REGION}
BEDROCK = _make(anthropic.AnthropicBedrock, base_url="{base}", **AWS)

CLOUD_CLIENTS: dict[str, tuple[type[Conversation], str]] = {
    "AzureOpenAI chat": (_subclass(Chat, _make(openai.AzureOpenAI, **AZURE)), "openai-chat"),
    "AzureOpenAI responses": (_subclass(Responses, _make(openai.AzureOpenAI, **AZURE)), "openai-responses"),
    "AzureOpenAI with a token": (
        _subclass(
            Chat,
            _make(openai.AzureOpenAI, azure_ad_token=KEY, api_version=API_VERSION, azure_endpoint="{base}"),
        ),
        "openai-chat",
    ),
    "AzureOpenAI at /openai/v1": (
        _subclass(Chat, _make(openai.AzureOpenAI, api_key=KEY, api_version="preview", base_url="{base}/openai/v1")),
        "openai-chat",
    ),
    "OpenAI at /openai/v1": (
        _subclass(Responses, _make(openai.OpenAI, api_key=KEY, base_url="{base}/openai/v1")),
        "openai-responses",
    ),
    "BedrockOpenAI": (
        _subclass(Chat, _make(openai.BedrockOpenAI, api_key=KEY, aws_region=REGION, base_url="{base}/openai/v1")),
        "openai-chat",
    ),
    "BedrockOpenAI signed": (
        _subclass(
            Responses,
            _make(
                openai.BedrockOpenAI,
                aws_access_key_id=KEY,
                aws_secret_access_key=KEY,
                aws_region=REGION,
                base_url="{base}/openai/v1",
            ),
        ),
        "openai-responses",
    ),
    "AnthropicBedrock": (_subclass(Messages, BEDROCK), "anthropic"),
    "AnthropicBedrock with a token": (
        _subclass(Messages, _make(anthropic.AnthropicBedrock, api_key=KEY, aws_region=REGION, base_url="{base}")),
        "anthropic",
    ),
    "AnthropicBedrockMantle": (
        _subclass(Messages, _make(anthropic.AnthropicBedrockMantle, base_url="{base}/anthropic", **AWS)),
        "anthropic",
    ),
    "AnthropicAWS": (
        _subclass(Messages, _make(anthropic.AnthropicAWS, base_url="{base}", workspace_id="wrkspc_1", **AWS)),
        "anthropic",
    ),
    "AnthropicVertex": (
        _subclass(
            Messages,
            _make(
                anthropic.AnthropicVertex,
                access_token=KEY,
                project_id=PROJECT,
                region=LOCATION,
                base_url="{base}/v1",
            ),
        ),
        "anthropic",
    ),
    "AnthropicGoogleCloud": (
        _subclass(
            Messages,
            _make(
                anthropic.AnthropicGoogleCloud,
                token_provider=lambda: KEY,
                project=PROJECT,
                location=LOCATION,
                workspace_id="w",
                base_url="{base}",
            ),
        ),
        "anthropic",
    ),
    "AnthropicFoundry": (
        _subclass(Messages, _make(anthropic.AnthropicFoundry, api_key=KEY, base_url="{base}/anthropic")),
        "anthropic",
    ),
    "genai in Vertex mode": (_subclass(Generate, make_once(_open_vertex_genai)), "gemini"),
    "genai in express mode": (_subclass(Generate, make_once(_open_express_genai)), "gemini"),
}
"""Each with the protocol that it speaks."""
