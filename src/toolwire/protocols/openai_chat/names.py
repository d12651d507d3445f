"""The words of this protocol: its name, the keys it knows, and the tables that both directions share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from toolwire.ir import FinishKind, Origin, Role, Seal
from toolwire.wire import Json, Object, Path, take_bool, take_int, take_number, take_object, take_text

NAME = "openai-chat"
DONE = b"[DONE]"

# --- known keys -----------------------------------------------------------------------------------------------------

KNOWN_REQUEST = frozenset(
    """model messages tools tool_choice parallel_tool_calls functions function_call response_format stream
    stream_options max_completion_tokens max_tokens reasoning_effort verbosity temperature top_p n stop seed
    frequency_penalty presence_penalty logprobs top_logprobs web_search_options prompt_cache_key safety_identifier user
    service_tier store metadata""".split()
)
KNOWN_STREAM_OPTIONS = frozenset({"include_usage"})
KNOWN_MESSAGE = frozenset({"role", "content", "name"})
KNOWN_ASSISTANT = frozenset(
    """role content name refusal tool_calls function_call annotations images reasoning_content reasoning
    reasoning_details""".split()
)
REASONED = ("reasoning_content", "reasoning", "reasoning_details")
KNOWN_TOOL_MESSAGE = frozenset({"role", "content", "tool_call_id", "name"})
CACHE_KEYS = ("prompt_cache_breakpoint", "cache_control")
KNOWN_TEXT = frozenset({"type", "text", *CACHE_KEYS})
KNOWN_REFUSAL = frozenset({"type", "refusal"})
KNOWN_MEDIA: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        "image_url": frozenset({"url", "detail"}),
        "video_url": frozenset({"url"}),
        "input_audio": frozenset({"data", "format"}),
        "file": frozenset({"file_id", "file_data", "filename"}),
    }
)
KNOWN_CALL = frozenset({"id", "type", "function", "custom", "index", "extra_content"})
KNOWN_FUNCTION = frozenset({"name", "arguments"})
KNOWN_CUSTOM = frozenset({"name", "input"})
KNOWN_TOOL = frozenset({"type", "function", "custom", "cache_control"})
KNOWN_FUNCTION_TOOL = frozenset({"name", "description", "parameters", "strict"})
KNOWN_CUSTOM_TOOL = frozenset({"name", "description", "format"})
KNOWN_SEARCH = frozenset({"search_context_size", "user_location"})
KNOWN_JSON_SCHEMA = frozenset({"name", "description", "schema", "strict"})
KNOWN_ANNOTATION = frozenset({"start_index", "end_index", "url", "title", "content"})
KNOWN_ANSWER = frozenset({"id", "object", "created", "model", "choices", "usage", "error"})
KNOWN_CHUNK = KNOWN_ANSWER | {"obfuscation"}
KNOWN_CHOICE = frozenset({"index", "message", "finish_reason"})
KNOWN_CHUNK_CHOICE = frozenset({"index", "delta", "finish_reason"})
PLAIN_CHUNK_CHOICE = KNOWN_CHUNK_CHOICE | {"stop_reason", "logprobs"}
"""Keys of a choice that say nothing more while it grows, if its `logprobs` are null."""
KNOWN_DELTA = KNOWN_ASSISTANT - {"name"}
KNOWN_USAGE = frozenset({"prompt_tokens", "completion_tokens", "total_tokens"})

# --- words both ways ------------------------------------------------------------------------------------------------

ROLES: Mapping[str, Role] = MappingProxyType(
    {
        "system": "system",
        "developer": "developer",
        "user": "user",
        "assistant": "assistant",
        "tool": "tool",
        "function": "tool",
    }
)

FINISHES: Mapping[str, FinishKind] = MappingProxyType(
    {
        "stop": "stop",
        "length": "length",
        "tool_calls": "calls",
        "function_call": "calls",
        "content_filter": "filter",
    }
)
"""The protocol's own endings. A raw word of these is written back as it was."""

VENDOR_FINISHES: Mapping[str, FinishKind] = MappingProxyType(
    {
        "eos": "stop",
        "end_turn": "stop",
        "max_tokens": "length",
        "model_length": "length",
        "tool_use": "calls",
        "sensitive": "filter",
        "safety": "filter",
    }
)
"""Words of compatible servers: read, never written."""

SPOKEN_FINISHES: Mapping[FinishKind, tuple[str, bool]] = MappingProxyType(
    {
        "stop": ("stop", True),
        "length": ("length", True),
        "calls": ("tool_calls", True),
        "filter": ("content_filter", True),
        "refusal": ("content_filter", False),
        "sequence": ("stop", False),
        "pause": ("stop", False),
        "context": ("length", False),
        "malformed": ("stop", False),
        "other": ("stop", False),
    }
)
"""Every ending with its word, and whether that word says all of it."""

MODES = MappingProxyType({"none": "none", "auto": "auto", "required": "required", "any": "required"})

AUDIO_FORMATS: Mapping[str, str] = MappingProxyType(
    {
        "audio/wav": "wav",
        "audio/x-wav": "wav",
        "audio/wave": "wav",
        "audio/mpeg": "mp3",
        "audio/mp3": "mp3",
    }
)
AUDIO_MIMES: Mapping[str, str] = MappingProxyType({"wav": "audio/wav", "mp3": "audio/mpeg"})

SEAL_BOXES: Mapping[str, str] = MappingProxyType({"google": "thought_signature"})
"""Vendors that put a seal into a call's `extra_content`: the vendor's key and the seal's."""

Taker = Callable[[Object, str, Path], Json]

PLAIN_SETTINGS: tuple[tuple[str, str, Taker], ...] = (
    ("temperature", "temperature", take_number),
    ("top_p", "top_p", take_number),
    ("seed", "seed", take_int),
    ("count", "n", take_int),
    ("presence_penalty", "presence_penalty", take_number),
    ("frequency_penalty", "frequency_penalty", take_number),
    ("logprobs", "logprobs", take_bool),
    ("top_logprobs", "top_logprobs", take_int),
    ("parallel", "parallel_tool_calls", take_bool),
    ("verbosity", "verbosity", take_text),
    ("metadata", "metadata", take_object),
    ("tier", "service_tier", take_text),
    ("store", "store", take_bool),
    ("cache_key", "prompt_cache_key", take_text),
)
"""Settings that stand alone under one key: the internal field, the key, how it is taken."""

SAID: frozenset[str] = frozenset(field for field, _, _ in PLAIN_SETTINGS) | {
    "max_tokens",
    "stop",
    "thinking",
    "format",
    "user",
    "stream_usage",
}

LIMIT_KEYS = ("max_completion_tokens", "max_tokens")
USER_KEYS = ("safety_identifier", "user")
MAX_STOPS = 4
MAX_USER = 64


def sub_keys(origin_wire: Any, key: str, known: frozenset[str]) -> Object:
    """The keys of a nested object that nobody here knows: they go back with it when it is rewritten."""
    nested = origin_wire.get(key) if isinstance(origin_wire, dict) else None
    return {name: value for name, value in nested.items() if name not in known} if isinstance(nested, dict) else {}


# --- stamps ---------------------------------------------------------------------------------------------------------


def kept(origin: Origin | None) -> Object | None:
    """The JSON object that a node was read from here, while it still says what the node means."""
    if origin is None or origin.protocol != NAME or not origin.intact:
        return None
    return origin.wire if isinstance(origin.wire, dict) else None


def own(origin: Origin | None) -> bool:
    return origin is not None and origin.protocol == NAME


def own_seal(seal: Seal | None) -> bool:
    return seal is not None and (seal.maker == NAME or seal.maker.startswith((NAME + "/", NAME + "@")))
