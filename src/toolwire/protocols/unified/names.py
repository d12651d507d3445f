"""The name of the protocol, the fields of its objects, the tables that reader and writer share, and call ids."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from difflib import get_close_matches
from functools import partial
from typing import Any, Final, TypeAlias

from msgspec import Struct

from toolwire.core.ir import STATUS_BY_FAILURE_KIND, FinishKind, Opaque, Origin
from toolwire.core.json_values import (
    Json,
    Malformed,
    Object,
    Path,
    expect_text,
    get_bool,
    get_int,
    get_list,
    get_number,
    get_object,
    get_text,
    get_timestamp,
)
from toolwire.core.provenance import OriginChecks, ReadContext, items_with_paths
from toolwire.core.tokens import EFFORTS

NAME: Final = "unified"
intact_wire = OriginChecks(NAME).intact_wire

NAME_LIMIT = 64
ID_LIMIT = 1024

RAW_ARGUMENTS_KEY: Final = "_raw"
"""The key under which arguments are written that are not a JSON object, because `arguments` must be one."""

# --- unknown keys and values ----------------------------------------------------------------------------------------

KEYS_ELSEWHERE: Mapping[str, str] = {
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
"""Keys of other protocols, and what they are called here."""


def suggest_word(word: str, known: Collection[str]) -> str:
    translated = KEYS_ELSEWHERE.get(word)
    near = [translated] if translated in known else get_close_matches(word, known, 1)
    return f"did you mean `{near[0]}`?" if near else f"known: {', '.join(sorted(known)) or 'none'}"


class LenientReadContext(ReadContext):
    """For answers: unknown parts are carried, because the other gateway may be newer."""

    def read_unknown(self, value: Json, path: Path, word: str, known: Collection[str]) -> Opaque:
        """A part of an unknown type."""
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

    def read_unknown(self, value: Json, path: Path, word: str, known: Collection[str]) -> Opaque:
        raise Malformed((path, "type"), f"unknown type of part `{word}`; {suggest_word(word, known)}")


# --- the fields of objects ------------------------------------------------------------------------------------------

Fields: TypeAlias = Mapping[str, tuple[str, Callable[[Object, str, Path], Any]]]
"""Keys of an object, each with its field of the internal form and its reader."""


def read_fields(node: Object, path: Path, fields: Fields) -> dict[str, Any]:
    """The fields that are given; the others keep their defaults."""
    return {
        field: value
        for key, (field, read) in fields.items()
        if key in node and (value := read(node, key, path)) is not None
    }


_KEPT_IF_EMPTY = (int, dict)
"""The types of values that say something even if they are 0 or empty."""


def write_fields(node: Struct, fields: Fields) -> Object:
    """The fields that say something, in their order."""
    values = [(key, getattr(node, field)) for key, (field, _) in fields.items()]
    return {key: value for key, value in values if value or value.__class__ in _KEPT_IF_EMPTY}


def read_word(node: Object, key: str, path: Path, words: tuple[str, ...]) -> str | None:
    """A text that must be one of some words."""
    word = get_text(node, key, path)
    if word is not None and word not in words:
        raise Malformed((path, key), f"unknown `{key}`: `{word}`; {suggest_word(word, words)}")
    return word


def get_texts(node: Object, key: str, path: Path) -> tuple[str, ...] | None:
    values = items_with_paths(get_list(node, key, path) or [], (path, key))
    return tuple(expect_text(value, where) for value, where in values) or None


def _text_fields(names: str) -> Fields:
    """Texts whose fields are called like their keys."""
    return {name: (name, get_text) for name in names.split()}


SETTING_FIELDS: Fields = {
    "parallel_tool_calls": ("parallel", get_bool),
    "max_output_tokens": ("max_tokens", get_int),
    "temperature": ("temperature", get_number),
    "top_p": ("top_p", get_number),
    "top_k": ("top_k", get_number),
    "seed": ("seed", get_int),
    "presence_penalty": ("presence_penalty", get_number),
    "frequency_penalty": ("frequency_penalty", get_number),
    "verbosity": ("verbosity", get_text),
    "user": ("user", get_text),
    "metadata": ("metadata", get_object),
    "service_tier": ("tier", get_text),
    "store": ("store", get_bool),
    "cache_key": ("cache_key", get_text),
}
"""The settings with one key each; `stop`, `reasoning`, `response_format` and `cache` have readers of their own."""
THINKING_FIELDS: Fields = {
    "mode": ("mode", partial(read_word, words=("off", "on", "auto"))),
    "effort": ("effort", partial(read_word, words=EFFORTS)),
    "show": ("summary", get_text),
    "budget": ("budget", get_int),
}
FORMAT_FIELDS = _text_fields("name description")
PROVIDER_TOOL_FIELDS: Fields = {
    "name": ("name", get_text),
    "max_uses": ("max_uses", get_int),
    "allowed_domains": ("allowed_domains", get_texts),
    "blocked_domains": ("blocked_domains", get_texts),
    "location": ("location", get_object),
    "context_size": ("context_size", get_text),
}
TURN_FIELDS = _text_fields("name phase")
CALL_FIELDS: Fields = {"item_id": ("item_id", get_text), "later": ("is_async", get_bool)}
CITATION_FIELDS = {**_text_fields("url title quote"), "start": ("start", get_int), "end": ("end", get_int)}
MEDIA_FIELDS = _text_fields("mime data url file_id name detail")
REASONING_FIELDS: Fields = {
    "form": ("form", partial(read_word, words=("summary", "raw"))),
    "hidden": ("hidden", get_bool),
    "id": ("id", get_text),
}
FINISH_FIELDS: Fields = {
    "stop_reason_raw": ("raw", get_text),
    "stop_sequence": ("sequence", get_text),
    "stop_detail": ("detail", get_text),
}
USAGE_FIELDS: Mapping[str, str] = {
    "input_tokens": "input",
    "output_tokens": "output",
    "cached_tokens": "cache_read",
    "cache_write_tokens": "cache_write",
    "reasoning_tokens": "reasoning",
    "total_tokens": "total",
}
RESPONSE_FIELDS: Fields = {**_text_fields("id model"), "created": ("created", get_timestamp)}

# --- known keys -----------------------------------------------------------------------------------------------------


def _key_set(names: str, fields: Collection[str] = ()) -> frozenset[str]:
    return frozenset({*names.split(), *fields})


REQUEST_KEYS = _key_set(
    "model system messages tools tool_choice stop reasoning response_format cache stream", SETTING_FIELDS
)
REASONING_KEYS = frozenset(THINKING_FIELDS)
FORMAT_KEYS = _key_set("type schema", FORMAT_FIELDS)
TOOL_KEYS = _key_set("name description parameters output defer cache")
PROVIDER_TOOL_KEYS = _key_set("hosted cache", PROVIDER_TOOL_FIELDS)
TOOL_CHOICE_KEYS = _key_set("name hosted allowed mode")

TURN_KEYS = _key_set("role content", TURN_FIELDS)
ASSISTANT_KEYS = TURN_KEYS | {"tool_calls", "seals"}
RESULTS_TURN_KEYS = _key_set("role results")
CALL_KEYS = _key_set("id name arguments cache incomplete", CALL_FIELDS)
RESULT_KEYS = _key_set("tool_call_id content is_error name cache")
SEAL_KEYS = _key_set("at maker value")

PART_KEYS: Mapping[str, frozenset[str]] = {
    "text": _key_set("type text citations cache"),
    **dict.fromkeys(("image", "file", "audio", "video"), _key_set("type cache", MEDIA_FIELDS)),
    "reasoning": _key_set("type text", REASONING_FIELDS),
    "refusal": _key_set("type text"),
    "hosted_call": _key_set("type id tool arguments"),
    "hosted_result": _key_set("type id tool sources text error"),
}
"""Types of content parts with their keys."""
ASSISTANT_PART_TYPES = tuple(PART_KEYS)
INPUT_PART_TYPES = ("text", "image", "file", "audio", "video")
"""Types that every message may have; the others are for the assistant only."""
PLACEHOLDER_KEYS = _key_set("type index")
JSON_PART_KEYS = _key_set("type value")
CITATION_KEYS = frozenset(CITATION_FIELDS)
USAGE_KEYS = frozenset(USAGE_FIELDS)

RESPONSE_KEYS = _key_set("message usage error stop_reason", (*RESPONSE_FIELDS, *FINISH_FIELDS))
"""Without `losses`: the internal form has no place for the losses of another gateway."""

EVENT_KEYS: Mapping[str, frozenset[str]] = {
    "start": _key_set("type usage", RESPONSE_FIELDS),
    "text": _key_set("type part delta"),
    "reasoning": _key_set("type part delta", REASONING_FIELDS),
    "refusal": _key_set("type part delta"),
    "tool_call": _key_set("type part index id name arguments", CALL_FIELDS),
    "part": _key_set("type part content"),
    "citation": _key_set("type part citation"),
    "seal": _key_set("type part maker value"),
    "usage": _key_set("type usage"),
    "end": _key_set("type response"),
    "error": RESPONSE_KEYS | {"type"},
    "ping": _key_set("type"),
}
"""Events of a stream with their keys."""

# --- values ---------------------------------------------------------------------------------------------------------

STOP_REASON_BY_KIND: Mapping[FinishKind, str] = {
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
KIND_BY_STOP_REASON: Mapping[str, FinishKind] = {reason: kind for kind, reason in STOP_REASON_BY_KIND.items()}

ERROR_TYPE_BY_KIND: Mapping[str, str] = {kind: kind for kind in STATUS_BY_FAILURE_KIND} | {
    "invalid": "invalid_request",
    "context": "context_window",
    "rate": "rate_limit",
    "server": "server_error",
    "upstream": "upstream_error",
}
KIND_BY_ERROR_TYPE: Mapping[str, str] = {word: kind for kind, word in ERROR_TYPE_BY_KIND.items()}

# --- call ids -------------------------------------------------------------------------------------------------------

CALL_ID_PREFIX: Final = "tw_"
_UNESCAPED_ID = re.compile(r"[A-Za-z0-9_-]*")
"""Ids that need no escape, unless they contain `__`."""
_ESCAPE_RUN = re.compile(r"(?:__[0-9a-f]{2})+")
_PLAIN_CHARACTERS = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-")


def write_call_id(id: str) -> str:
    """The id of a call with our prefix. It is escaped reversibly, so that no table of ids is needed."""
    return CALL_ID_PREFIX + (id if _is_plain_id(id) else _escape_id(id))


def _is_plain_id(id: str) -> bool:
    """Does the id need no escape? Nearly all are like this, and no pattern is needed to see it."""
    return id.isidentifier() and id.isascii() and "__" not in id


def read_call_id(id: str) -> str:
    """The provider's id from one of ours; any other id is returned as it is."""
    if not id.startswith(CALL_ID_PREFIX):
        return id
    inner = id[len(CALL_ID_PREFIX) :]
    if _is_plain_id(inner):
        return inner
    if "__" not in inner:
        return inner if inner and _UNESCAPED_ID.fullmatch(inner) else id
    try:
        unescaped = _ESCAPE_RUN.sub(lambda run: bytes.fromhex(run[0].replace("__", "")).decode(), inner)
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
