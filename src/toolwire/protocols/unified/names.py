"""The name of the protocol, the keys it knows, the tables that reader and writer share, and call ids."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from difflib import get_close_matches
from types import MappingProxyType
from typing import Final

from toolwire.core.ir import FinishKind, Opaque, Origin
from toolwire.core.json_values import Json, Malformed, Object, Path, get_bool, get_int, get_number, get_object, get_text
from toolwire.core.provenance import ReadContext

NAME: Final = "unified"

NAME_LIMIT = 64
ID_LIMIT = 1024

RAW_ARGUMENTS_KEY: Final = "_raw"
"""The key under which arguments are written that are not a JSON object, because `arguments` must be one."""

# --- known keys -----------------------------------------------------------------------------------------------------

SETTING_FIELDS: tuple[tuple[str, str, Callable[[Object, str, Path], Json]], ...] = (
    ("parallel_tool_calls", "parallel", get_bool),
    ("max_output_tokens", "max_tokens", get_int),
    ("temperature", "temperature", get_number),
    ("top_p", "top_p", get_number),
    ("top_k", "top_k", get_number),
    ("seed", "seed", get_int),
    ("presence_penalty", "presence_penalty", get_number),
    ("frequency_penalty", "frequency_penalty", get_number),
    ("verbosity", "verbosity", get_text),
    ("user", "user", get_text),
    ("metadata", "metadata", get_object),
    ("service_tier", "tier", get_text),
    ("store", "store", get_bool),
    ("cache_key", "cache_key", get_text),
)
"""Settings with one key each: the key, the field of `Settings`, and its reader."""

SUPPORTED_SETTINGS = frozenset(
    {field for _, field, _ in SETTING_FIELDS} | {"stop", "thinking", "format", "cache", "stream_usage"}
)
"""The settings that unified has. Its streams always report the usage."""

REQUEST_KEYS = frozenset({key for key, _, _ in SETTING_FIELDS}).union(
    "model system messages tools tool_choice stop reasoning response_format cache stream".split()
)
REASONING_KEYS = frozenset({"mode", "effort", "budget", "show"})
FORMAT_KEYS = frozenset({"type", "name", "description", "schema"})
TOOL_KEYS = frozenset({"name", "description", "parameters", "output", "defer", "cache"})
PROVIDER_TOOL_KEYS = frozenset(
    {"hosted", "name", "max_uses", "allowed_domains", "blocked_domains", "location", "context_size", "cache"}
)
TOOL_CHOICE_KEYS = frozenset({"name", "hosted", "allowed", "mode"})

TURN_KEYS = frozenset({"role", "content", "name", "phase"})
ASSISTANT_KEYS = TURN_KEYS | {"tool_calls", "seals"}
RESULTS_TURN_KEYS = frozenset({"role", "results"})
CALL_KEYS = frozenset({"id", "name", "arguments", "item_id", "later", "cache", "incomplete"})
RESULT_KEYS = frozenset({"tool_call_id", "content", "is_error", "name", "cache"})
SEAL_KEYS = frozenset({"at", "maker", "value"})

MEDIA_KEYS = frozenset({"type", "mime", "data", "url", "file_id", "name", "detail", "cache"})
PART_KEYS: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        "text": frozenset({"type", "text", "citations", "cache"}),
        "image": MEDIA_KEYS,
        "file": MEDIA_KEYS,
        "audio": MEDIA_KEYS,
        "video": MEDIA_KEYS,
        "reasoning": frozenset({"type", "text", "form", "hidden", "id"}),
        "refusal": frozenset({"type", "text"}),
        "hosted_call": frozenset({"type", "id", "tool", "arguments"}),
        "hosted_result": frozenset({"type", "id", "tool", "sources", "text", "error"}),
    }
)
"""Types of content parts with their keys."""
PLACEHOLDER_KEYS = frozenset({"type", "index"})
JSON_PART_KEYS = frozenset({"type", "value"})
CITATION_KEYS = frozenset({"url", "title", "quote", "start", "end"})

INPUT_PART_TYPES = ("text", "image", "file", "audio", "video")
"""Types that every message may have; the others are for the assistant only."""

RESPONSE_KEYS = frozenset(
    {"id", "model", "created", "message", "usage", "error"}
    | {"stop_reason", "stop_reason_raw", "stop_sequence", "stop_detail"}
)
"""Without `losses`: the internal form has no place for the losses of another gateway."""

USAGE_FIELDS: Mapping[str, str] = MappingProxyType(
    {
        "input_tokens": "input",
        "output_tokens": "output",
        "cached_tokens": "cache_read",
        "cache_write_tokens": "cache_write",
        "reasoning_tokens": "reasoning",
        "total_tokens": "total",
    }
)

EVENT_KEYS: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        "start": frozenset({"type", "id", "model", "created", "usage"}),
        "text": frozenset({"type", "part", "delta"}),
        "reasoning": frozenset({"type", "part", "delta", "form", "hidden", "id"}),
        "refusal": frozenset({"type", "part", "delta"}),
        "tool_call": frozenset({"type", "part", "index", "id", "name", "item_id", "later", "arguments"}),
        "part": frozenset({"type", "part", "content"}),
        "citation": frozenset({"type", "part", "citation"}),
        "seal": frozenset({"type", "part", "maker", "value"}),
        "usage": frozenset({"type", "usage"}),
        "end": frozenset({"type", "response"}),
        "error": RESPONSE_KEYS | {"type"},
        "ping": frozenset({"type"}),
    }
)
"""Events of a stream with their keys."""

# --- values ---------------------------------------------------------------------------------------------------------

STOP_REASON_BY_KIND: Mapping[FinishKind, str] = MappingProxyType(
    {
        "stop": "stop",
        "length": "length",
        "calls": "tool_calls",
        "filter": "content_filter",
        "refusal": "refusal",
        "sequence": "stop_sequence",
        "pause": "pause",
        "context": "context_window",
        "malformed": "malformed_call",
        "other": "other",
    }
)
KIND_BY_STOP_REASON: Mapping[str, FinishKind] = MappingProxyType(
    {reason: kind for kind, reason in STOP_REASON_BY_KIND.items()}
)

ERROR_TYPE_BY_KIND: Mapping[str, str] = MappingProxyType(
    {
        "invalid": "invalid_request",
        "context": "context_window",
        "authentication": "authentication",
        "billing": "billing",
        "permission": "permission",
        "not_found": "not_found",
        "timeout": "timeout",
        "conflict": "conflict",
        "too_large": "too_large",
        "unprocessable": "unprocessable",
        "rate": "rate_limit",
        "quota": "quota",
        "cancelled": "cancelled",
        "server": "server_error",
        "upstream": "upstream_error",
        "overloaded": "overloaded",
        "deadline": "deadline",
    }
)
KIND_BY_ERROR_TYPE: Mapping[str, str] = MappingProxyType({word: kind for kind, word in ERROR_TYPE_BY_KIND.items()})

# --- call ids -------------------------------------------------------------------------------------------------------

CALL_ID_PREFIX: Final = "tw_"
_UNESCAPED_ID = re.compile(r"[A-Za-z0-9_-]*")
"""Ids that need no escape, unless they contain `__`."""
_ESCAPE_RUN = re.compile(r"(?:__[0-9a-f]{2})+")
_PLAIN_CHARACTERS = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-")


def write_call_id(id: str) -> str:
    """The id of a call with our prefix. It is escaped reversibly, so that no table of ids is needed."""
    return CALL_ID_PREFIX + (id if is_plain_id(id) else _escape_id(id))


def is_plain_id(id: str) -> bool:
    """Does the id need no escape? Nearly all are like this, and no pattern is needed to see it."""
    return id.isidentifier() and id.isascii() and "__" not in id


def read_call_id(id: str) -> str:
    """The provider's id from one of ours; any other id is returned as it is."""
    if not id.startswith(CALL_ID_PREFIX):
        return id
    inner = id[len(CALL_ID_PREFIX) :]
    if is_plain_id(inner):
        return inner
    if "__" not in inner:
        return inner if inner and _UNESCAPED_ID.fullmatch(inner) else id
    try:
        unescaped = _ESCAPE_RUN.sub(_unescape_match, inner)
    except UnicodeDecodeError:
        return id
    return unescaped if _escape_id(unescaped) == inner else id


def _escape_id(id: str) -> str:
    """Keep letters, digits, `-` and single `_`, and write each byte of everything else as `__xx`."""
    if "__" not in id and _UNESCAPED_ID.fullmatch(id):
        return id
    out: list[str] = []
    for at, character in enumerate(id):
        following = id[at + 1 : at + 2]
        if character in _PLAIN_CHARACTERS or (character == "_" and (not following or following in _PLAIN_CHARACTERS)):
            out.append(character)
        else:
            out.extend(f"__{byte:02x}" for byte in character.encode())
    return "".join(out)


def _unescape_match(match: re.Match[str]) -> str:
    return bytes.fromhex(match[0].replace("__", "")).decode()


# --- unknown keys and values ----------------------------------------------------------------------------------------

KEYS_ELSEWHERE: Mapping[str, str] = MappingProxyType(
    {
        "content_block": "content",
        "contents": "messages",
        "function": "name",
        "functions": "tools",
        "function_call": "tool_choice",
        "generationConfig": "temperature",
        "input": "messages",
        "inputSchema": "parameters",
        "input_schema": "parameters",
        "instructions": "system",
        "max_completion_tokens": "max_output_tokens",
        "parallel": "parallel_tool_calls",
        "stop_sequences": "stop",
        "systemInstruction": "system",
        "thinking": "reasoning",
        "tool_use_id": "tool_call_id",
        "call_id": "tool_call_id",
    }
)
"""Keys of other protocols, and what they are called here."""


class LenientReadContext(ReadContext):
    """For answers: unknown parts are carried, because the other gateway may be newer."""

    def read_unknown(self, value: Json, path: Path, what: str, word: str, known: Collection[str]) -> Opaque:
        return Opaque(word, self.whole_origin(value, path))


class StrictReadContext(LenientReadContext):
    """For requests: an unknown key or type is an error of the client, and is refused with a suggestion."""

    def read_origin(self, node: Object, path: Path, known: frozenset[str]) -> Origin:
        if known.issuperset(node):
            return Origin(self.protocol, path, node)
        key = next(key for key in node if key not in known)
        if key == "strict":
            raise Malformed((path, key), "unified has no strict mode: remove `strict`")
        raise Malformed((path, key), f"unknown key `{key}`; {suggest_word(key, known)}")

    def read_unknown(self, value: Json, path: Path, what: str, word: str, known: Collection[str]) -> Opaque:
        raise Malformed((path, "type"), f"unknown {what} `{word}`; {suggest_word(word, known)}")


def suggest_word(word: str, known: Collection[str]) -> str:
    translated = KEYS_ELSEWHERE.get(word)
    near = [translated] if translated in known else get_close_matches(word, known, 1)
    return f"did you mean `{near[0]}`?" if near else f"known: {', '.join(sorted(known)) or 'none'}"


# --- origins --------------------------------------------------------------------------------------------------------


def intact_wire(origin: Origin | None) -> Object | None:
    """The JSON object of a node that was read from this protocol and has not been changed since."""
    if origin is None or origin.protocol != NAME or not origin.intact:
        return None
    return origin.wire if isinstance(origin.wire, dict) else None
