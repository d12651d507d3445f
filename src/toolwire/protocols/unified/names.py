"""The words of the protocol: keys, tables in both directions, call ids, and how strictly unknown words are taken."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from difflib import get_close_matches
from types import MappingProxyType
from typing import Final

from toolwire.ir import Opaque, Origin
from toolwire.reading import Reading
from toolwire.wire import Json, Malformed, Object, Path, take_bool, take_int, take_number, take_object, take_text

NAME: Final = "unified"

NAME_LIMIT = 64
ID_LIMIT = 1024

RAW_KEY: Final = "_raw"
"""Where arguments go that are no object and have to stand in one."""

# --- keys -------------------------------------------------------------------------------------------------------------

SETTINGS: tuple[tuple[str, str, Callable[[Object, str, Path], Json]], ...] = (
    ("parallel_tool_calls", "parallel", take_bool),
    ("max_output_tokens", "max_tokens", take_int),
    ("temperature", "temperature", take_number),
    ("top_p", "top_p", take_number),
    ("top_k", "top_k", take_number),
    ("seed", "seed", take_int),
    ("presence_penalty", "presence_penalty", take_number),
    ("frequency_penalty", "frequency_penalty", take_number),
    ("verbosity", "verbosity", take_text),
    ("user", "user", take_text),
    ("metadata", "metadata", take_object),
    ("service_tier", "tier", take_text),
    ("store", "store", take_bool),
    ("cache_key", "cache_key", take_text),
)
"""Settings of one value: the key, the field of `Settings`, and what it must be."""

SAID = frozenset({field for _, field, _ in SETTINGS} | {"stop", "thinking", "format", "cache", "stream_usage"})
"""Fields of `Settings` that this protocol can say; usage stands in every stream, so asking for it is said too."""

REQUEST = frozenset({key for key, _, _ in SETTINGS}) | {
    "model", "system", "messages", "tools", "tool_choice", "stop", "reasoning", "response_format", "cache", "stream",
}  # fmt: skip
REASONING = frozenset({"mode", "effort", "budget", "show"})
FORMAT = frozenset({"type", "name", "description", "schema"})
TOOL = frozenset({"name", "description", "parameters", "output", "defer", "cache"})
HOSTED_TOOL = frozenset(
    {"hosted", "name", "max_uses", "allowed_domains", "blocked_domains", "location", "context_size", "cache"}
)
CHOICE = frozenset({"name", "hosted", "allowed", "mode"})

TURN = frozenset({"role", "content", "name", "phase"})
ASSISTANT = TURN | {"tool_calls", "seals"}
RESULTS = frozenset({"role", "results"})
CALL = frozenset({"id", "name", "arguments", "item_id", "later", "cache", "incomplete"})
RESULT = frozenset({"tool_call_id", "content", "is_error", "name", "cache"})
SEAL = frozenset({"at", "maker", "value"})

MEDIA = frozenset({"type", "mime", "data", "url", "file_id", "name", "detail", "cache"})
PARTS: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        "text": frozenset({"type", "text", "citations", "cache"}),
        "image": MEDIA,
        "file": MEDIA,
        "audio": MEDIA,
        "video": MEDIA,
        "reasoning": frozenset({"type", "text", "form", "hidden", "id"}),
        "refusal": frozenset({"type", "text"}),
        "hosted_call": frozenset({"type", "id", "tool", "arguments"}),
        "hosted_result": frozenset({"type", "id", "tool", "sources", "text", "error"}),
    }
)
"""Types of content parts with their keys."""
PLACEHOLDER = frozenset({"type", "index"})
JSON_PART = frozenset({"type", "value"})
CITATION = frozenset({"url", "title", "quote", "start", "end"})

GIVEN = ("text", "image", "file", "audio", "video")
"""Types that stand in every message; the others are the assistant's own."""

ANSWER = frozenset(
    {"id", "model", "created", "message", "usage", "error"}
    | {"stop_reason", "stop_reason_raw", "stop_sequence", "stop_detail"}
)
"""`losses` is left out on purpose: those of a gateway further up have no place in the internal form."""
ERROR = frozenset({"type", "message", "path", "hint", "code", "status", "retry_after"})

USAGE: Mapping[str, str] = MappingProxyType(
    {
        "input_tokens": "input",
        "output_tokens": "output",
        "cached_tokens": "cache_read",
        "cache_write_tokens": "cache_write",
        "reasoning_tokens": "reasoning",
        "total_tokens": "total",
    }
)

EVENTS: Mapping[str, frozenset[str]] = MappingProxyType(
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
        "error": ANSWER | {"type"},
        "ping": frozenset({"type"}),
    }
)
"""Events of a stream with their keys."""

# --- words, both ways -------------------------------------------------------------------------------------------------

STOP_REASONS: Mapping[str, str] = MappingProxyType(
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
FINISHES: Mapping[str, str] = MappingProxyType({word: kind for kind, word in STOP_REASONS.items()})

ERROR_TYPES: Mapping[str, str] = MappingProxyType(
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
FAILURE_KINDS: Mapping[str, str] = MappingProxyType({word: kind for kind, word in ERROR_TYPES.items()})

# --- call ids ---------------------------------------------------------------------------------------------------------

PREFIX: Final = "tw_"
_FREE = re.compile(r"[A-Za-z0-9_-]*")
"""What stands for itself, unless `__` is in it."""
_ESCAPED = re.compile(r"(?:__[0-9a-f]{2})+")
_PLAIN = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-")


def write_id(id: str) -> str:
    """Our own id for a call: the provider's, readable and reversible, so that no table of ids has to be kept."""
    return PREFIX + (id if is_word(id) else _escaped(id))


def is_word(id: str) -> bool:
    """Is this a plain word, as nearly all ids are? Such an id stands for itself, and needs no pattern to be told."""
    return id.isidentifier() and id.isascii() and "__" not in id


def read_id(id: str) -> str:
    """The provider's id behind one of ours; an id that we did not write stands for itself."""
    if not id.startswith(PREFIX):
        return id
    inner = id[len(PREFIX) :]
    if is_word(inner):
        return inner
    if "__" not in inner:
        return inner if inner and _FREE.fullmatch(inner) else id
    try:
        own = _ESCAPED.sub(_unescaped, inner)
    except UnicodeDecodeError:
        return id
    return own if _escaped(own) == inner else id


def _escaped(id: str) -> str:
    """Letters, digits, `-` and single `_` stay, all else becomes `__xx` for each byte: so `__` is always an escape."""
    if "__" not in id and _FREE.fullmatch(id):
        return id
    out: list[str] = []
    for at, character in enumerate(id):
        following = id[at + 1 : at + 2]
        if character in _PLAIN or (character == "_" and (not following or following in _PLAIN)):
            out.append(character)
        else:
            out.extend(f"__{byte:02x}" for byte in character.encode())
    return "".join(out)


def _unescaped(match: re.Match[str]) -> str:
    return bytes.fromhex(match[0].replace("__", "")).decode()


# --- unknown words ----------------------------------------------------------------------------------------------------

FAMILIAR: Mapping[str, str] = MappingProxyType(
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
"""What people write who come from another protocol."""


class Loose(Reading):
    """How answers are read: a gateway further up may be newer than we are, so what is unknown is carried."""

    def unknown(self, value: Json, path: Path, what: str, word: str, known: Collection[str]) -> Opaque:
        return Opaque(word, self.whole(value, path))


class Strict(Loose):
    """How requests are read: an unknown key or word is a mistake of the client's, and it is told at once."""

    def origin(self, node: Object, path: Path, known: frozenset[str]) -> Origin:
        if known.issuperset(node):
            return Origin(self.protocol, path, node)
        key = next(key for key in node if key not in known)
        if key == "strict":
            raise Malformed((path, key), "unified has no strict mode: remove `strict`")
        raise Malformed((path, key), f"`{key}` is no key of this object; {suggestion(key, known)}")

    def unknown(self, value: Json, path: Path, what: str, word: str, known: Collection[str]) -> Opaque:
        raise Malformed((path, "type"), f"`{word}` is no {what}; {suggestion(word, known)}")


def suggestion(word: str, known: Collection[str]) -> str:
    familiar = FAMILIAR.get(word)
    near = [familiar] if familiar in known else get_close_matches(word, known, 1)
    return f"did you mean `{near[0]}`?" if near else f"known: {', '.join(sorted(known)) or 'none'}"
