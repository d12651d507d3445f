"""Lists of models as OpenAI, Anthropic and compatible servers send them: `{"data": [{"id": …}, …]}`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, get_args

from msgspec.structs import replace

from toolwire.core.codec import Modality, ModelFacts, ModelInfo, ModelPage, make_facts
from toolwire.core.ir import EMPTY_MAPPING
from toolwire.core.json_values import Json, Object
from toolwire.core.rate_limits import read_timestamp
from toolwire.core.tokens import EFFORTS, openai_efforts

WINDOW_KEYS = (
    "max_input_tokens",  # Anthropic
    "context_length",  # OpenRouter, Together
    "max_model_len",  # vLLM
    "context_window",  # Groq
    "loaded_context_length",  # LM Studio, while the model is loaded
    "max_context_length",  # Mistral, LM Studio
    "meta.n_ctx",  # llama.cpp
)
"""Keys for the context window of a model, in dots where they are nested. The first with a number counts."""
OUTPUT_KEYS = (
    "max_tokens",  # Anthropic
    "top_provider.max_completion_tokens",  # OpenRouter
    "max_completion_tokens",  # Groq
    "max_output_tokens",
)
"""Keys for the most output tokens."""
MODALITIES: tuple[Modality, ...] = get_args(Modality)
URL_UNSAFE = re.compile(r"[^A-Za-z0-9._~-]+")


def percent_encode(text: str, unsafe: re.Pattern[str] = URL_UNSAFE) -> str:
    """The text as a segment of a URL's path, or as a value in its query."""
    return unsafe.sub(lambda found: "".join(f"%{byte:02X}" for byte in found[0].encode("utf-8", "replace")), text)


def read_data_list(body: Json, path: str, cursor_key: str) -> ModelPage | None:
    """A page of a list. Where it says that there are more, the next page is at `path` with its last id as
    `cursor_key`. Together sends the list without an object around it."""
    entries = body.get("data") if isinstance(body, dict) else body
    if not isinstance(entries, list):
        return None
    read = (_read_entry(entry) for entry in entries)
    models = tuple(model for model in read if model is not None)
    last = body.get("last_id") if isinstance(body, dict) and body.get("has_more") is True else None
    if not isinstance(last, str) or not last:
        return ModelPage(models)
    joined = "&" if "?" in path else "?"
    return ModelPage(models, f"{path}{joined}{cursor_key}={percent_encode(last)}")


def _read_entry(entry: Json) -> ModelInfo | None:
    if not isinstance(entry, dict) or entry.get("lifecycle") == "retired":
        return None
    name, shown = entry.get("id"), entry.get("display_name", entry.get("name"))
    if not isinstance(name, str) or not name:
        return None
    facts = make_facts(_first_number(entry, WINDOW_KEYS), _first_number(entry, OUTPUT_KEYS))
    abilities = {**_read_openrouter_abilities(entry), **_read_mistral_abilities(entry), **_read_claude_abilities(entry)}
    if abilities:
        facts = replace(facts, **abilities)
    title = shown if isinstance(shown, str) and shown != name else ""
    return ModelInfo(name, "", _read_created(entry), facts, title, _find_claude_capabilities(entry))


def _read_openrouter_abilities(entry: Object) -> dict[str, Any]:
    """OpenRouter lists modalities, and the parameters that a model takes."""
    architecture, parameters = entry.get("architecture"), entry.get("supported_parameters")
    found: dict[str, Any] = {}
    for key in ("input_modalities", "output_modalities"):
        given = architecture.get(key) if isinstance(architecture, dict) else None
        if isinstance(given, list):
            found[key] = tuple(word for word in MODALITIES if word in given)
    if isinstance(parameters, list) and parameters:
        found["tools"] = "tools" in parameters
        if "parallel_tool_calls" in parameters:
            found["parallel_tools"] = True
        if "reasoning" not in parameters:
            found["reasoning_efforts"] = ()
    return found


def _read_mistral_abilities(entry: Object) -> dict[str, Any]:
    given = entry.get("capabilities")
    given = given if isinstance(given, dict) else {}
    found: dict[str, Any] = {}
    if isinstance(sees := given.get("vision"), bool):
        found["input_modalities"] = ("text", "image") if sees else ("text",)
    if isinstance(calls := given.get("function_calling"), bool):
        found["tools"] = calls
    return found


def _find_claude_capabilities(entry: Object) -> Mapping[str, Json]:
    given = entry.get("capabilities")
    return given if isinstance(given, dict) and "image_input" in given and "effort" in given else EMPTY_MAPPING


def _read_claude_abilities(entry: Object) -> dict[str, Any]:
    given = _find_claude_capabilities(entry)
    if not given:
        return {}
    inputs = {"image": given.get("image_input"), "file": given.get("pdf_input")}
    found: dict[str, Any] = {"input_modalities": ("text", *(word for word in inputs if _is_supported(inputs[word])))}
    effort = given["effort"]
    if _is_supported(effort):
        found["reasoning_efforts"] = tuple(word for word in EFFORTS if _is_supported(effort.get(word)))
    return found


def _is_supported(node: Json) -> bool:
    return isinstance(node, dict) and node.get("supported") is True


def _first_number(entry: Object, keys: tuple[str, ...]) -> Json:
    for key in keys:
        outer, _, inner = key.partition(".")
        value = entry.get(outer)
        if inner:
            value = value.get(inner) if isinstance(value, dict) else None
        if type(value) is int and value > 0:
            return value
    return None


def _read_created(entry: Object) -> int:
    created, text = entry.get("created"), entry.get("created_at")
    if isinstance(text, str):
        created = read_timestamp(text)
    if not isinstance(created, int | float) or isinstance(created, bool):
        return 0
    return int(created) if 0 < created < 2**53 else 0


# --- OpenAI, in Chat and in Responses ---

OPENAI_MODELS_PATH = "/v1/models"


def read_openai_list(body: Json) -> ModelPage | None:
    """OpenAI sends all models on one page. Some compatible servers have several."""
    return read_data_list(body, OPENAI_MODELS_PATH, "after")


def find_openai_facts(model: str) -> ModelFacts:
    """What the table of OpenAI's models says."""
    return ModelFacts(reasoning_efforts=openai_efforts(model))


def write_openai_entry(card: ModelInfo) -> Object:
    return {"id": card.id, "object": "model", "created": card.created, "owned_by": card.owner or "toolwire"}


def write_openai_list(cards: tuple[ModelInfo, ...], _query: Mapping[str, str]) -> Object:
    """All models on one page. Codex also looks for its catalogue under `models`: without the key it logs an error at
    every start, and a model with an entry would lose Codex's own prompt and tools. So the catalogue is empty."""
    return {"object": "list", "data": [write_openai_entry(card) for card in cards], "models": []}
