"""Whole answers, and what they share with streams: usage and the reason of the end."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import NoneType
from typing import Any

from msgspec import Raw, Struct

from toolwire.core.codec import ResponsePeek, WriteContext
from toolwire.core.ids import derive_id
from toolwire.core.ir import EMPTY_MAPPING, Choice, Finish, Origin, ProviderCall, Refusal, Response, Usage, source_path
from toolwire.core.json_values import Json, Object, Path, expect_text, get_int, get_list, get_object, get_text
from toolwire.core.losses import Ledger
from toolwire.core.provenance import ReadContext, is_verbatim, partial_decoder, restore_original_keys
from toolwire.protocols.anthropic.content import ResponseReadContext, read_content, write_parts
from toolwire.protocols.anthropic.errors import read_error, write_error
from toolwire.protocols.anthropic.names import (
    KIND_BY_STOP_REASON,
    LOSSY_FINISH_KINDS,
    MESSAGE_KEYS,
    NAME,
    REFUSAL_CATEGORIES,
    STOP_DETAILS_KEYS,
    STOP_REASON_BY_KIND,
    UNKNOWN_MODEL,
    USAGE_DETAILS_KEYS,
    USAGE_KEYS,
)
from toolwire.protocols.anthropic.provider_tools import (
    ProviderToolUse,
    add_missing_results,
    offers_provider_tools,
    write_tool_use_counts,
)

# --- reading ----------------------------------------------------------------------------------------------------------


_CONTENT_PATH: Path = (None, "content")
_USAGE_PATH: Path = (None, "usage")
_KIND_BY_STOP_REASON = dict(KIND_BY_STOP_REASON)


def read_response(body: Object) -> Response:
    reading = ResponseReadContext(NAME)
    if body.get("type") == "error":
        return Response(failure=read_error(body, 0, EMPTY_MAPPING), origin=reading.whole_origin(body, None))
    content = get_list(body, "content", None) or []
    parts = read_content(content, _CONTENT_PATH, reading)
    finish = read_finish(body, None, reading)
    usage = get_object(body, "usage", None)
    return Response(
        get_text(body, "id", None) or "",
        get_text(body, "model", None) or "",
        None,
        (Choice(0, parts, finish, Origin(NAME, _CONTENT_PATH, content)),),
        None if usage is None else read_usage(usage, _USAGE_PATH, reading),
        None,
        reading.read_origin(body, None, MESSAGE_KEYS),
        tuple(reading.unknown_fields),
    )


def read_finish(node: Object, path: Path, reading: ReadContext) -> Finish | None:
    """The end of a message, or of a stream's `delta`; None while it has none."""
    reason = get_text(node, "stop_reason", path)
    if reason is None:
        return None
    wire: Object = {"stop_reason": reason}
    details = sequence = None
    if "stop_sequence" in node:
        sequence = wire["stop_sequence"] = node["stop_sequence"]
    if "stop_details" in node:
        details = wire["stop_details"] = get_object(node, "stop_details", path)
    return Finish(
        _KIND_BY_STOP_REASON.get(reason, "other"),
        reason,
        "" if sequence is None else expect_text(sequence, (path, "stop_sequence")),
        _read_stop_details(details, (path, "stop_details"), reading) if details else "",
        Origin(NAME, (path, "stop_reason"), wire),
    )


def _read_stop_details(details: Object, path: Path, reading: ReadContext) -> str:
    reading.read_origin(details, path, STOP_DETAILS_KEYS)
    told = (get_text(details, "category", path), get_text(details, "explanation", path))
    return ": ".join(text for text in told if text)


_COUNT_READERS: Mapping[str, Callable[[Object, str, Path], Any]] = {
    "cache_read_input_tokens": get_int,
    "cache_creation_input_tokens": get_int,
    "output_tokens_details": get_object,
    "input_tokens": get_int,
    "output_tokens": get_int,
}
_COUNT_TYPES = frozenset({int, NoneType})
"""Of these types a count needs no other look."""


def read_usage(usage: Object, path: Path, reading: ReadContext) -> Usage:
    """The wire counts what was cached apart from the rest of the prompt."""
    fresh, output = usage.get("input_tokens"), usage.get("output_tokens")
    if type(fresh) is type(output) is int and len(usage) == 2:
        return Usage(fresh, output, origin=Origin(NAME, path, usage))
    read, written, details, fresh, output = map(usage.get, _COUNT_READERS)
    if details is not None or not _COUNT_TYPES.issuperset(map(type, (read, written, fresh, output))):
        read, written, details, fresh, output = [take(usage, key, path) for key, take in _COUNT_READERS.items()]
    known = USAGE_KEYS
    if details:
        reading.read_origin(details, (path, "output_tokens_details"), USAGE_DETAILS_KEYS)
    if not known.issuperset(usage):
        known = known.union([key for key, value in usage.items() if key not in USAGE_KEYS and is_all_zero(value)])
    return Usage(
        (fresh or 0) + (read or 0) + (written or 0),
        output or 0,
        read,
        written,
        get_int(details, "thinking_tokens", (path, "output_tokens_details")) if details else None,
        origin=reading.read_origin(usage, path, known),
    )


def is_all_zero(value: Json) -> bool:
    """A record of noughts, such as `{"web_search_requests": 0}`."""
    return isinstance(value, dict) and not any(value.values())


# --- writing ----------------------------------------------------------------------------------------------------------


def write_response(response: Response, ledger: Ledger, context: WriteContext) -> Object:
    origin = response.origin
    if origin is not None and is_verbatim(origin, NAME):
        wire: Object = origin.wire
        return wire
    if response.failure is not None:
        body: Object = write_error(response.failure).body
        return body
    choice = response.choices[0] if response.choices else Choice(0, ())
    for other in response.choices[1:]:
        ledger.note(
            "no-counterpart", source_path(other), f"answer {other.index} was left out", "there is one answer only"
        )
    id, refused = message_id(response.id, context), Refusal in map(type, choice.parts)
    content, used = _write_content(choice, id, ledger, context)
    out: Object = {
        "id": id,
        "type": "message",
        "role": "assistant",
        "model": model_name(response.model, ledger, context),
        "content": content,
        **write_finish(choice.finish, refused, ledger),
        "usage": write_usage(response.usage, ledger, used),
    }
    return restore_original_keys(out, origin, NAME)


def _write_content(
    choice: Choice, id: str, ledger: Ledger, context: WriteContext
) -> tuple[list[Object], Sequence[str]]:
    """The blocks of any answer, and which of the provider's own tools were used in it."""
    parts = choice.parts
    if ProviderCall not in map(type, parts) and not offers_provider_tools(context.request):
        return write_parts(parts, ledger, True), ()
    searches = ProviderToolUse(context.request)
    parts = add_missing_results(parts, searches, choice.finish, id)
    return write_parts(parts, ledger, True), searches.used


def message_id(id: str, context: WriteContext) -> str:
    """An id that is one of this protocol's is kept. Some providers give one id to many answers, which an agent would
    take for pieces of one: so the seed of this answer goes into what is made of theirs."""
    if id.startswith("msg"):
        return id
    return derive_id("msg_", id, context.seed) if context.seed not in ("", id) else derive_id("msg_", id)


def model_name(answered_model: str, ledger: Ledger, context: WriteContext) -> str:
    """The name that was asked for, where the answer comes from elsewhere: an agent that goes on with a session takes
    the thoughts, and with them the seals, out of answers that bear another model's name."""
    asked = context.request.model if context.request is not None else ""
    return (answered_model or asked if ledger.source == NAME else asked or answered_model) or UNKNOWN_MODEL


def write_finish(finish: Finish | None, refused: bool, ledger: Ledger) -> Object:
    """The three keys that tell the end; agents read them to decide whether to go on."""
    if finish is None:
        return {"stop_reason": None, "stop_sequence": None, "stop_details": None}
    origin: Origin | None = finish.origin
    if origin is not None and is_verbatim(origin, NAME):
        wire: Object = origin.wire
        return {"stop_reason": None, "stop_sequence": None, "stop_details": None} | wire
    kind = "refusal" if refused and finish.kind == "stop" else finish.kind
    reason = (
        finish.raw
        if finish.raw in KIND_BY_STOP_REASON and KIND_BY_STOP_REASON[finish.raw] == kind
        else STOP_REASON_BY_KIND[kind]
    )
    if kind in LOSSY_FINISH_KINDS and reason != finish.raw:
        ledger.note("finish-mapped", source_path(finish), f"the ending `{finish.raw or finish.kind}` became `{reason}`")
    return {
        "stop_reason": reason,
        "stop_sequence": finish.sequence or None,
        "stop_details": _write_stop_details(finish) if reason == "refusal" else None,
    }


def _write_stop_details(finish: Finish) -> Object:
    """Category and explanation; for an ending that another wire named, its own word explains it."""
    told = finish.detail or (finish.raw if finish.raw not in KIND_BY_STOP_REASON else "")
    category, _, explanation = told.partition(": ")
    if category not in REFUSAL_CATEGORIES:
        category, explanation = "", told
    return {"type": "refusal", "category": category or None, "explanation": explanation or None}


def write_usage(usage: Usage | None, ledger: Ledger, tools_used: Sequence[str] = ()) -> Object:
    if usage is None:
        ledger.note("default-added", None, "the tokens are told as 0, because nobody counted them")
        usage = Usage()
    origin = usage.origin
    if origin is not None and is_verbatim(origin, NAME):
        wire: Object = origin.wire
        return wire
    fresh, read, written = usage.input, usage.cache_read, usage.cache_write
    if read or written or fresh < 0:
        fresh = max(0, fresh - (read or 0) - (written or 0))
    out: Object = {"input_tokens": fresh}
    if written is not None:
        out["cache_creation_input_tokens"] = written
    if read is not None:
        out["cache_read_input_tokens"] = read
    out["output_tokens"] = usage.output
    if usage.reasoning is not None:
        out["output_tokens_details"] = {"thinking_tokens": usage.reasoning}
    if tools_used:
        out |= write_tool_use_counts(tools_used)
    return restore_original_keys(out, origin, NAME)


# --- at a glance ------------------------------------------------------------------------------------------------------


class _ResponsePeek(Struct, gc=False):
    content: Raw
    stop_reason: str
    model: str = ""
    usage: Object | None = None


_decode_peek = partial_decoder(_ResponsePeek)


def peek_response(data: bytes) -> ResponsePeek | None:
    found = _decode_peek(data)
    if found is None:
        return None
    return ResponsePeek(found.model, read_usage(found.usage, None, ReadContext(NAME)) if found.usage else None)
