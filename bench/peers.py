"""Other translators, asked to do the same: parsed body to parsed body, for each pair that they support."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

Body = dict[str, Any]
Peer = Callable[[Body], Any]

ROSETTA = {
    "openai-chat": "openai_chat",
    "openai-responses": "openai_responses",
    "anthropic": "anthropic",
    "gemini": "google",
}


def rosetta(source: str, target: str) -> Peer | None:
    """llm-rosetta's own `convert`, given a parsed body as its gateway gives it."""
    try:
        from llm_rosetta import convert
    except ImportError:
        return None
    if source not in ROSETTA or target not in ROSETTA or source == target:
        return None
    return lambda body: convert(body, ROSETTA[target], ROSETTA[source])


def litellm(source: str, target: str) -> Peer | None:
    """litellm's translation functions, where it has them for the pair."""
    makers = {
        ("openai-chat", "anthropic"): _litellm_chat_to_anthropic,
        ("openai-chat", "gemini"): _litellm_chat_to_gemini,
        ("anthropic", "openai-chat"): _litellm_anthropic_to_chat,
        ("openai-responses", "openai-chat"): _litellm_responses_to_chat,
    }
    maker = makers.get((source, target))
    try:
        return maker() if maker else None
    except ImportError:
        return None


def _settings(body: Body) -> Body:
    return {key: value for key, value in body.items() if key not in ("model", "messages", "stream")}


def _litellm_chat_to_anthropic() -> Peer:
    from litellm.llms.anthropic.chat.transformation import AnthropicConfig

    config = AnthropicConfig()

    def run(body: Body) -> Any:
        model = "claude-sonnet-4-5"
        mapped = config.map_openai_params(_settings(body), {}, model, False)
        # It changes the messages it is given, so it gets its own, as in its proxy.
        return config.transform_request(model, copy.deepcopy(body["messages"]), mapped, {}, {})

    return run


def _litellm_chat_to_gemini() -> Peer:
    from litellm.llms.vertex_ai.gemini.transformation import _transform_request_body
    from litellm.llms.vertex_ai.gemini.vertex_and_google_ai_studio_gemini import VertexGeminiConfig

    config = VertexGeminiConfig()

    def run(body: Body) -> Any:
        model = "gemini-2.5-pro"
        mapped = config.map_openai_params(_settings(copy.deepcopy(body)), {}, model, False)
        return _transform_request_body(
            messages=copy.deepcopy(body["messages"]),
            model=model,
            optional_params=mapped,
            custom_llm_provider="gemini",
            litellm_params={},
            cached_content=None,
        )

    return run


def _litellm_anthropic_to_chat() -> Peer:
    from litellm.llms.anthropic.pass_through.adapters.transformation import LiteLLMAnthropicMessagesAdapter

    adapter = LiteLLMAnthropicMessagesAdapter()
    return lambda body: adapter.translate_anthropic_to_openai(copy.deepcopy(body))


def _litellm_responses_to_chat() -> Peer:
    from litellm.responses.litellm_completion_transformation.transformation import LiteLLMCompletionResponsesConfig

    def run(body: Body) -> Any:
        rest = {key: value for key, value in body.items() if key not in ("model", "input")}
        return LiteLLMCompletionResponsesConfig.transform_responses_api_request_to_chat_completion_request(
            model=body["model"], input=copy.deepcopy(body["input"]), responses_api_request=rest
        )

    return run
