"""Lists of models, as providers send them and as the gateway writes them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from toolwire.core.codec import ModelFacts, ModelInfo, ModelPage
from toolwire.protocols import find_codec

CHAT, ANTHROPIC, GEMINI = "openai-chat", "anthropic", "gemini"


def facts(window: int | None = None, output: int | None = None) -> ModelFacts:
    return ModelFacts(context_window=window, max_output_tokens=output)


OPENAI = {"id": "gpt-5.5", "object": "model", "created": 1767225600, "owned_by": "openai"}
OPENROUTER = {
    "id": "z-ai/glm-5",
    "name": "GLM 5",
    "created": 1767225600,
    "context_length": 202752,
    "top_provider": {"context_length": 131072, "max_completion_tokens": 65536, "is_moderated": False},
}
CLAUDE = {
    "type": "model",
    "id": "claude-opus-5-5",
    "display_name": "Claude Opus 5.5",
    "created_at": "2026-01-01T00:00:00Z",
    "lifecycle": "active",
    "max_input_tokens": 1000000,
    "max_tokens": 128000,
}
FLASH = {
    "name": "models/gemini-3.8-flash",
    "displayName": "Gemini 3.8 Flash",
    "inputTokenLimit": 1048576,
    "outputTokenLimit": 65536,
    "supportedGenerationMethods": ["generateContent", "countTokens"],
}
EMBEDDING = {"name": "models/gemini-embedding-001", "supportedGenerationMethods": ["embedContent"]}

CAPABILITIES = {
    "image_input": {"supported": True},
    "pdf_input": {"supported": False},
    "effort": {"supported": True, "low": {"supported": True}, "max": {"supported": True}, "high": {"supported": False}},
}

ENTRIES: dict[str, tuple[str, Any, ModelInfo | None]] = {
    "openai": (CHAT, OPENAI, ModelInfo("gpt-5.5", created=1767225600)),
    "openai, in responses": ("openai-responses", OPENAI, ModelInfo("gpt-5.5", created=1767225600)),
    "openrouter": (CHAT, OPENROUTER, ModelInfo("z-ai/glm-5", "", 1767225600, facts(202752, 65536), "GLM 5")),
    "vllm": (CHAT, {"id": "qwen", "max_model_len": 32768}, ModelInfo("qwen", facts=facts(32768))),
    "groq": (
        CHAT,
        {"id": "q", "context_window": 131072, "max_completion_tokens": 40960},
        ModelInfo("q", facts=facts(131072, 40960)),
    ),
    "mistral": (CHAT, {"id": "m", "max_context_length": 131072}, ModelInfo("m", facts=facts(131072))),
    "lm studio, loaded": (
        CHAT,
        {"id": "m", "max_context_length": 131072, "loaded_context_length": 4096},
        ModelInfo("m", facts=facts(4096)),
    ),
    "llama.cpp": (CHAT, {"id": "m", "meta": {"n_ctx": 8192, "n_ctx_train": 131072}}, ModelInfo("m", facts=facts(8192))),
    "anthropic": (
        ANTHROPIC,
        CLAUDE,
        ModelInfo("claude-opus-5-5", "", 1767225600, facts(1000000, 128000), "Claude Opus 5.5"),
    ),
    "openrouter, with abilities": (
        CHAT,
        {
            "id": "o",
            "architecture": {"input_modalities": ["file", "image", "text", "smell"], "output_modalities": ["text"]},
            "supported_parameters": ["tools", "max_tokens"],
        },
        ModelInfo(
            "o",
            facts=ModelFacts(
                input_modalities=("text", "image", "file"),
                output_modalities=("text",),
                tools=True,
                reasoning_efforts=(),
            ),
        ),
    ),
    "mistral, with abilities": (
        CHAT,
        {"id": "m", "capabilities": {"vision": False, "function_calling": True, "completion_chat": True}},
        ModelInfo("m", facts=ModelFacts(input_modalities=("text",), tools=True)),
    ),
    "anthropic, with abilities": (
        ANTHROPIC,
        {"id": "claude-x", "capabilities": CAPABILITIES},
        ModelInfo(
            "claude-x",
            facts=ModelFacts(input_modalities=("text", "image"), reasoning_efforts=("low", "max")),
            capabilities=CAPABILITIES,
        ),
    ),
    "abilities in no known form": (
        CHAT,
        {"id": "m", "capabilities": ["vision"], "architecture": "moe", "supported_parameters": {}},
        ModelInfo("m"),
    ),
    "gemini, without thinking": (
        GEMINI,
        {"name": "models/g", "thinking": False},
        ModelInfo("g", facts=ModelFacts(reasoning_efforts=())),
    ),
    "anthropic, retired": (ANTHROPIC, {**CLAUDE, "lifecycle": "retired"}, None),
    "openai's form from a server that speaks anthropic": (ANTHROPIC, OPENAI, ModelInfo("gpt-5.5", created=1767225600)),
    "gemini": (
        GEMINI,
        FLASH,
        ModelInfo("gemini-3.8-flash", facts=facts(1048576, 65536), display_name="Gemini 3.8 Flash"),
    ),
    "gemini, for embeddings": (GEMINI, EMBEDDING, None),
    "a window that is not a number": (CHAT, {"id": "m", "context_length": "128k"}, ModelInfo("m")),
    "a window of no tokens": (CHAT, {"id": "m", "context_length": 0, "max_tokens": -1}, ModelInfo("m")),
    "a window that is true": (CHAT, {"id": "m", "context_length": True, "created": True}, ModelInfo("m")),
    "no name": (CHAT, {"object": "model"}, None),
    "an empty name": (GEMINI, {"name": "models/"}, None),
    "a name that is a number": (ANTHROPIC, {"id": 7}, None),
    "not an object": (CHAT, "gpt-5.5", None),
    "not an object, gemini": (GEMINI, "gemini", None),
}


@pytest.mark.parametrize(("protocol", "entry", "expected"), ENTRIES.values(), ids=list(ENTRIES))
def test_an_entry_is_read(protocol: str, entry: Any, expected: ModelInfo | None) -> None:
    key = "models" if protocol == GEMINI else "data"
    page = find_codec(protocol).http.read_model_list({key: [entry]})
    assert page == ModelPage((expected,) if expected is not None else ())


PAGES: dict[str, tuple[str, Any, str]] = {
    "anthropic": (ANTHROPIC, {"data": [], "has_more": True, "last_id": "a&b"}, "/v1/models?limit=1000&after_id=a%26b"),
    "anthropic, the last": (ANTHROPIC, {"data": [], "has_more": False, "last_id": "a"}, ""),
    "anthropic, more but from where": (ANTHROPIC, {"data": [], "has_more": True, "last_id": None}, ""),
    "openai-compatible": (CHAT, {"data": [], "has_more": True, "last_id": "m"}, "/v1/models?after=m"),
    "openai": (CHAT, {"object": "list", "data": []}, ""),
    "a bare list": (CHAT, [], ""),
    "gemini": (GEMINI, {"models": [], "nextPageToken": "x/y="}, "/v1beta/models?pageSize=1000&pageToken=x%2Fy%3D"),
    "gemini, the last": (GEMINI, {"models": [], "nextPageToken": ""}, ""),
    "gemini, without models": (GEMINI, {}, ""),
}


@pytest.mark.parametrize(("protocol", "body", "next_path"), PAGES.values(), ids=list(PAGES))
def test_the_next_page_is_found(protocol: str, body: Any, next_path: str) -> None:
    page = find_codec(protocol).http.read_model_list(body)
    assert page is not None
    assert page.next_path == next_path


@pytest.mark.parametrize("protocol", [CHAT, "openai-responses", ANTHROPIC, GEMINI])
@pytest.mark.parametrize("body", [None, 1, "models", {"status": "ok"}, {"data": {}, "models": {}}], ids=repr)
def test_what_is_not_a_list_is_not_read(protocol: str, body: Any) -> None:
    assert find_codec(protocol).http.read_model_list(body) is None


@pytest.mark.parametrize("protocol", [ANTHROPIC, GEMINI])
def test_the_recorded_list_is_written_as_it_was_read(protocol: str) -> None:
    """All facts that the dialect has members for survive."""
    http = find_codec(protocol).http
    recorded = json.loads((Path(__file__).parents[1] / "samples" / protocol / "models_list.json").read_text())
    page = http.read_model_list(recorded)
    assert page is not None
    written = http.write_model_list(page.models, {})
    assert http.read_model_list(written) == page


@pytest.mark.parametrize("protocol", [ANTHROPIC, GEMINI, "unified"])
def test_an_entry_tells_the_facts(protocol: str) -> None:
    entry = find_codec(protocol).http.write_model_entry(ModelInfo("m", "lab", 0, facts(1000, 100)))
    assert {1000, 100} <= {value for value in entry.values() if isinstance(value, int)}
