"""Whole answers, and what they share with streams: usage and the reason of the end."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import NoneType
from typing import Any

from msgspec import Raw, Struct

from toolwire.ids import made
from toolwire.ir import Choice, Finish, HostedCall, Origin, Refusal, Response, Usage, place
from toolwire.loss import Ledger
from toolwire.protocols.anthropic.details.hosted import Searches, all_told, counted, runs_tools
from toolwire.protocols.anthropic.details.summary import AnswerReading
from toolwire.protocols.anthropic.errors import read_error, write_error
from toolwire.protocols.anthropic.names import (
    COARSE,
    FINISHES,
    MESSAGE,
    NAME,
    REFUSAL_CATEGORIES,
    STOP_DETAILS,
    STOP_REASONS,
    UNKNOWN_MODEL,
    USAGE,
    USAGE_DETAILS,
)
from toolwire.protocols.anthropic.parts import read_content, write_parts
from toolwire.reading import NOTHING, Reading, finished, glancing, verbatim
from toolwire.room import Context, Glance
from toolwire.wire import Json, Object, Path, as_text, take_int, take_list, take_object, take_text

# --- reading ----------------------------------------------------------------------------------------------------------


_CONTENT: Path = (None, "content")
_USAGE: Path = (None, "usage")
_KINDS = dict(STOP_REASONS)


def read_response(body: Object) -> Response:
    reading = AnswerReading(NAME)
    if body.get("type") == "error":
        return Response(failure=read_error(body, 0, NOTHING), origin=reading.whole(body, None))
    content = take_list(body, "content", None) or []
    parts = read_content(content, _CONTENT, reading)
    finish = read_finish(body, None, reading)
    usage = take_object(body, "usage", None)
    return Response(
        take_text(body, "id", None) or "",
        take_text(body, "model", None) or "",
        None,
        (Choice(0, parts, finish, Origin(NAME, _CONTENT, content)),),
        None if usage is None else read_usage(usage, _USAGE, reading),
        None,
        reading.origin(body, None, MESSAGE),
        tuple(reading.strays),
    )


def read_finish(node: Object, path: Path, reading: Reading) -> Finish | None:
    """The end of a message, or of a stream's `delta`; None while it has none."""
    reason = take_text(node, "stop_reason", path)
    if reason is None:
        return None
    wire: Object = {"stop_reason": reason}
    details = sequence = None
    if "stop_sequence" in node:
        sequence = wire["stop_sequence"] = node["stop_sequence"]
    if "stop_details" in node:
        details = wire["stop_details"] = take_object(node, "stop_details", path)
    return Finish(
        _KINDS.get(reason, "other"),
        reason,
        "" if sequence is None else as_text(sequence, (path, "stop_sequence")),
        _read_details(details, (path, "stop_details"), reading) if details else "",
        Origin(NAME, (path, "stop_reason"), wire),
    )


def _read_details(details: Object, path: Path, reading: Reading) -> str:
    reading.origin(details, path, STOP_DETAILS)
    told = (take_text(details, "category", path), take_text(details, "explanation", path))
    return ": ".join(text for text in told if text)


_COUNTS: Mapping[str, Callable[[Object, str, Path], Any]] = {
    "cache_read_input_tokens": take_int,
    "cache_creation_input_tokens": take_int,
    "output_tokens_details": take_object,
    "input_tokens": take_int,
    "output_tokens": take_int,
}
_USUAL = frozenset({int, NoneType})
"""Of these types a count needs no other look."""


def read_usage(usage: Object, path: Path, reading: Reading) -> Usage:
    """The wire counts what was cached apart from the rest of the prompt."""
    fresh, output = usage.get("input_tokens"), usage.get("output_tokens")
    if type(fresh) is type(output) is int and len(usage) == 2:
        return Usage(fresh, output, origin=Origin(NAME, path, usage))
    read, written, details, fresh, output = map(usage.get, _COUNTS)
    if details is not None or not _USUAL.issuperset(map(type, (read, written, fresh, output))):
        read, written, details, fresh, output = [take(usage, key, path) for key, take in _COUNTS.items()]
    known = USAGE
    if details:
        reading.origin(details, (path, "output_tokens_details"), USAGE_DETAILS)
    if not known.issuperset(usage):
        known = known.union([key for key, value in usage.items() if key not in USAGE and counts_nothing(value)])
    return Usage(
        (fresh or 0) + (read or 0) + (written or 0),
        output or 0,
        read,
        written,
        take_int(details, "thinking_tokens", (path, "output_tokens_details")) if details else None,
        origin=reading.origin(usage, path, known),
    )


def counts_nothing(value: Json) -> bool:
    """A record of noughts, such as `{"web_search_requests": 0}`."""
    return isinstance(value, dict) and not any(value.values())


# --- writing ----------------------------------------------------------------------------------------------------------


def write_response(response: Response, ledger: Ledger, context: Context) -> Object:
    origin = response.origin
    if origin is not None and verbatim(origin, NAME):
        wire: Object = origin.wire
        return wire
    if response.failure is not None:
        body: Object = write_error(response.failure).body
        return body
    choice = response.choices[0] if response.choices else Choice(0, ())
    for other in response.choices[1:]:
        ledger.note("no-counterpart", place(other), f"answer {other.index} was left out", "there is one answer only")
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
    return finished(out, origin, NAME)


def _write_content(choice: Choice, id: str, ledger: Ledger, context: Context) -> tuple[list[Object], Sequence[str]]:
    """The blocks of any answer, and which of the provider's own tools were used in it."""
    parts = choice.parts
    if HostedCall not in map(type, parts) and not runs_tools(context.request):
        return write_parts(parts, ledger, True), ()
    searches = Searches(context.request)
    parts = all_told(parts, searches, choice.finish, id)
    return write_parts(parts, ledger, True), searches.used


def message_id(id: str, context: Context) -> str:
    """An id that is one of this protocol's is kept. Some providers give one id to many answers, which an agent would
    take for pieces of one: so the seed of this answer goes into what is made of theirs."""
    if id.startswith("msg"):
        return id
    return made("msg_", id, context.seed) if context.seed not in ("", id) else made("msg_", id)


def model_name(said: str, ledger: Ledger, context: Context) -> str:
    """The name that was asked for, where the answer comes from elsewhere: an agent that goes on with a session takes
    the thoughts, and with them the seals, out of answers that bear another model's name."""
    asked = context.request.model if context.request is not None else ""
    return (said or asked if ledger.source == NAME else asked or said) or UNKNOWN_MODEL


def write_finish(finish: Finish | None, refused: bool, ledger: Ledger) -> Object:
    """The three keys that tell the end; agents read them to decide whether to go on."""
    if finish is None:
        return {"stop_reason": None, "stop_sequence": None, "stop_details": None}
    origin: Origin | None = finish.origin
    if origin is not None and verbatim(origin, NAME):
        wire: Object = origin.wire
        return {"stop_reason": None, "stop_sequence": None, "stop_details": None} | wire
    kind = "refusal" if refused and finish.kind == "stop" else finish.kind
    reason = finish.raw if finish.raw in STOP_REASONS and STOP_REASONS[finish.raw] == kind else FINISHES[kind]
    if kind in COARSE and reason != finish.raw:
        ledger.note("finish-mapped", place(finish), f"the ending `{finish.raw or finish.kind}` became `{reason}`")
    return {
        "stop_reason": reason,
        "stop_sequence": finish.sequence or None,
        "stop_details": _write_details(finish) if reason == "refusal" else None,
    }


def _write_details(finish: Finish) -> Object:
    """Category and explanation; for an ending that another wire named, its own word explains it."""
    told = finish.detail or (finish.raw if finish.raw not in STOP_REASONS else "")
    category, _, explanation = told.partition(": ")
    if category not in REFUSAL_CATEGORIES:
        category, explanation = "", told
    return {"type": "refusal", "category": category or None, "explanation": explanation or None}


def write_usage(usage: Usage | None, ledger: Ledger, used: Sequence[str] = ()) -> Object:
    if usage is None:
        ledger.note("default-added", None, "the tokens are told as 0, because nobody counted them")
        usage = Usage()
    origin = usage.origin
    if origin is not None and verbatim(origin, NAME):
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
    if used:
        out |= counted(used)
    return finished(out, origin, NAME)


# --- at a glance ------------------------------------------------------------------------------------------------------


class _Glance(Struct, gc=False):
    content: Raw
    stop_reason: str
    model: str = ""
    usage: Object | None = None


_glance = glancing(_Glance)


def glance(data: bytes) -> Glance | None:
    found = _glance(data)
    if found is None:
        return None
    return Glance(found.model, read_usage(found.usage, None, Reading(NAME)) if found.usage else None)
