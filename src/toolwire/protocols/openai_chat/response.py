"""Whole answers: the assistant's message, why it ended, and what it cost."""

from __future__ import annotations

from operator import attrgetter

from msgspec import Raw, Struct

from toolwire import ids
from toolwire.ir import (
    Call,
    Choice,
    Finish,
    FinishKind,
    Opaque,
    Origin,
    Reasoning,
    Response,
    Text,
    Usage,
    place,
    plain_text,
)
from toolwire.loss import Ledger
from toolwire.protocols.openai_chat import names
from toolwire.protocols.openai_chat.details.calls import write_call
from toolwire.protocols.openai_chat.details.message import Spoken, read_message
from toolwire.protocols.openai_chat.details.plain import read_plain_answer
from toolwire.protocols.openai_chat.errors import failure_body, read_failure
from toolwire.protocols.openai_chat.models import Family
from toolwire.protocols.openai_chat.names import NAME, kept, own
from toolwire.protocols.openai_chat.parts import (
    cut,
    write_citation,
    write_media,
)
from toolwire.protocols.openai_chat.tools import is_legacy
from toolwire.reading import Reading, finished, glancing
from toolwire.room import Context, Glance
from toolwire.wire import (
    Json,
    Malformed,
    Object,
    Path,
    as_float,
    as_object,
    take_int,
    take_list,
    take_number,
    take_object,
    take_text,
    wrong,
)

# --- endings --------------------------------------------------------------------------------------------------------


FINISH_KINDS: dict[str, FinishKind] = {**names.VENDOR_FINISHES, **names.FINISHES}


def finish_of(raw: str, calls: bool, sequence: Json, path: Path) -> Finish:
    """An ending from its word; where the wire gave none, the content tells it."""
    kind: FinishKind = FINISH_KINDS.get(raw, "other") if raw else "calls" if calls else "stop"
    origin = Origin(NAME, path, raw)
    if kind == "stop" and isinstance(sequence, str) and sequence:
        return Finish("sequence", raw, sequence, "", origin)
    return Finish(kind, raw, "", "", origin)


class Ending:
    """What a finish reason must agree with."""

    __slots__ = ("calls", "incomplete", "legacy", "refused")

    def __init__(self, legacy: bool) -> None:
        self.legacy = legacy
        self.calls = False
        self.incomplete = False
        self.refused = False

    def word(self, finish: Finish | None, where: Path, ledger: Ledger) -> str:
        if finish is None:
            finish = Finish("stop")
        kind = finish.kind
        if self.incomplete and kind in ("stop", "calls", "other", "pause"):
            kind = "length"
        elif self.calls and kind in ("stop", "other", "pause"):
            kind = "calls"
        if kind == "calls" and self.calls:
            return "function_call" if self.legacy else "tool_calls"
        if kind == "calls":
            kind = "stop"
        if finish.kind == kind and (names.FINISHES.get(finish.raw) == kind or (finish.raw and own(finish.origin))):
            self._note(finish, where, kind != "sequence", ledger)
            return finish.raw
        word, exact = names.SPOKEN_FINISHES[kind]
        if kind == "refusal" and self.refused:
            word, exact = "stop", True
        self._note(finish, where, exact and kind == finish.kind, ledger)
        return word

    @staticmethod
    def _note(finish: Finish, where: Path, exact: bool, ledger: Ledger) -> None:
        if not exact:
            met = f" at {finish.sequence!r}" if finish.sequence else ""
            ledger.note("finish-mapped", where, f"the ending `{finish.raw or finish.kind}`{met} has a coarser word")
        if finish.detail:
            ledger.note("finish-mapped", where, "what was said about the ending was left out")


# --- usage ----------------------------------------------------------------------------------------------------------

_DETAILS: tuple[tuple[str, str, str], ...] = (
    ("cache_read", "prompt_tokens_details", "cached_tokens"),
    ("cache_write", "prompt_tokens_details", "cache_write_tokens"),
    ("reasoning", "completion_tokens_details", "reasoning_tokens"),
)
_COUNTS = ("prompt_tokens", "completion_tokens", "total_tokens")
_KNOWN_DETAILS = frozenset((group, key) for _, group, key in _DETAILS)
_VENDOR_CACHED = ("prompt_cache_hit_tokens", "cached_tokens", "num_cached_tokens")
_ANY_CACHED = frozenset(_VENDOR_CACHED)
_details = attrgetter(*(field for field, _, _ in _DETAILS))
_NOT_COUNTED = (None, None, None)


def read_usage(node: Object, path: Path, reading: Reading) -> Usage:
    """Counts. A vendor that leaves thinking out of `completion_tokens` is known by its total."""
    into: Json
    out: Json
    into, out, total = node.get("prompt_tokens"), node.get("completion_tokens"), node.get("total_tokens")
    usual = type(into) is type(out) is type(total) is int
    if usual and len(node) == 3:
        return Usage(into, out, None, None, None, total, Origin(NAME, path, node))
    _note_counts(node, path, reading)
    read = written = thought = None
    if isinstance(details := node.get("prompt_tokens_details"), dict):
        at = (path, "prompt_tokens_details")
        read, written = take_int(details, "cached_tokens", at), take_int(details, "cache_write_tokens", at)
    if isinstance(details := node.get("completion_tokens_details"), dict):
        thought = take_int(details, "reasoning_tokens", (path, "completion_tokens_details"))
    if read is None and not _ANY_CACHED.isdisjoint(node):
        read = next(take_int(node, key, path) for key in _VENDOR_CACHED if key in node)
    if not usual:
        into, out, total = [take_int(node, key, path) for key in _COUNTS]
    into, out = into or 0, out or 0
    if thought and total == into + out + thought:
        out += thought
    return Usage(into, out, read, written, thought, total, Origin(NAME, path, node))


def _note_counts(node: Object, path: Path, reading: Reading) -> None:
    """Counts that only this protocol, or one vendor, knows; zero says nothing."""
    for key, value in node.items():
        if isinstance(value, dict):
            for name, count in value.items():
                if count and (key, name) not in _KNOWN_DETAILS:
                    reading.stray((path, key), name)
        elif value and key not in names.KNOWN_USAGE and key not in _VENDOR_CACHED:
            reading.stray(path, key)


def write_usage(usage: Usage) -> Object:
    wire = kept(usage.origin)
    if wire is not None:
        return wire
    total = usage.total if usage.total is not None else usage.input + usage.output
    out: Object = {"prompt_tokens": usage.input, "completion_tokens": usage.output, "total_tokens": total}
    counts = _details(usage)
    if counts != _NOT_COUNTED:
        for (_, group, key), count in zip(_DETAILS, counts, strict=True):
            if count is not None:
                out.setdefault(group, {})[key] = count
    return out


# --- answers --------------------------------------------------------------------------------------------------------

_CHOICES: Path = (None, "choices")
_USAGE: Path = (None, "usage")
BEYOND = 10**15


def made_at(node: Object, path: Path) -> int | None:
    """When it was made; some servers give fractions of a second, and a number beyond all time tells nothing."""
    value = node.get("created")
    if type(value) is int and 0 <= value < BEYOND:
        return value
    value = take_number(node, "created", path)
    if value is None:
        return None
    seconds = as_float(value)
    return int(seconds) if abs(seconds) < BEYOND else None


def read_response(body: Object) -> Response:
    reading = Reading(NAME)
    choices: list[Choice] = []
    failure = None
    if body.get("error") or body.get("object") == "error":
        failure = read_failure(body, 0)
    elif body.get("choices") is None:
        raise Malformed(None, "`choices` is missing")
    for number, item in enumerate(take_list(body, "choices", None) or ()):
        path = (_CHOICES, number)
        node = as_object(item, path)
        choices.append(_read_choice(node, path, reading, number))
        if "error" in node and failure is None and isinstance(node["error"], dict):
            failure = read_failure(node, 0)
    usage = take_object(body, "usage", None)
    return Response(
        take_text(body, "id", None) or "",
        take_text(body, "model", None) or "",
        made_at(body, None),
        tuple(choices),
        read_usage(usage, _USAGE, reading) if usage else None,
        failure,
        reading.origin(body, None, names.KNOWN_ANSWER),
        tuple(reading.strays),
    )


def _read_choice(node: Object, path: Path, reading: Reading, position: int) -> Choice:
    message = take_object(node, "message", path) or {}
    at = (path, "message")
    parts = read_plain_answer(message, at, reading)
    if parts is None:
        reading.origin(message, at, names.KNOWN_ASSISTANT)
        parts = read_message(message, at, reading, answer=True)
    raw = node.get("finish_reason")
    if raw is not None and not isinstance(raw, str):
        wrong((path, "finish_reason"), "a string", raw)
    calls = not raw and any(isinstance(part, Call) for part in parts)
    finish = finish_of(raw or "", calls, node.get("stop_reason"), (path, "finish_reason"))
    if finish.kind == "length" or finish.kind == "filter":
        parts = cut(parts)
    index = take_int(node, "index", path)
    known = names.KNOWN_CHOICE | {"stop_reason"} if finish.sequence else names.KNOWN_CHOICE
    return Choice(position if index is None else index, parts, finish, reading.origin(node, path, known))


def write_response(response: Response, ledger: Ledger, context: Context) -> Object:
    origin = response.origin
    ours = origin is not None and origin.protocol == NAME
    if ours and origin.intact:  # type: ignore[union-attr]
        wire: Object = origin.wire  # type: ignore[union-attr]
        return wire
    if response.failure is not None:
        return failure_body(response.failure)
    request = context.request
    legacy = is_legacy(request)
    out: Object = {
        "id": response.id or ids.made("chatcmpl-", context.seed),
        "object": "chat.completion",
        "created": response.created if response.created is not None else context.now,
        "model": response.model or (request.model if request is not None else ""),
        "choices": [_write_choice(choice, ledger, legacy) for choice in response.choices],
    }
    if response.usage is not None:
        out["usage"] = write_usage(response.usage)
    return finished(out, origin, NAME) if ours else out


def _write_choice(choice: Choice, ledger: Ledger, legacy: bool) -> Object:
    origin, finish = choice.origin, choice.finish
    wire = kept(origin)
    if wire is not None:
        return wire
    legacy = legacy or (finish is not None and finish.raw == "function_call")
    spoken = Spoken(choice.parts, place(choice), ledger)
    ending = Ending(legacy)
    ending.calls, ending.refused = bool(spoken.calls), bool(spoken.refusals)
    ending.incomplete = any(call.incomplete for call in spoken.calls)
    message = _write_message(spoken, ledger, legacy)
    word = ending.word(finish, place(choice), ledger)
    out: Object = {"index": choice.index, "message": message, "logprobs": None, "finish_reason": word}
    return finished(out, origin, NAME)


def _write_message(spoken: Spoken, ledger: Ledger, legacy: bool) -> Object:
    text = plain_text(spoken.content)
    for part in spoken.content:
        if isinstance(part, Opaque):
            ledger.opaque(part)
        elif isinstance(part, Reasoning):
            spoken.reasoning.append(part)
        elif part.seal is not None:
            ledger.note("seal-dropped", place(part), "the seal of a text was left out")
    out: Object = {
        "role": "assistant",
        "content": text if text or not (spoken.calls or spoken.refusals) else None,
        "refusal": "".join(spoken.refusals) or None,
        "annotations": _write_citations(spoken),
    }
    spoken.write_reasoning(out, ledger)
    images = [image for part in spoken.media if (image := write_media(part, _ANY, ledger)) is not None]
    if images:
        out["images"] = images
    if spoken.calls and legacy:
        _write_legacy(spoken.calls, out, ledger)
    elif spoken.calls:
        out["tool_calls"] = [write_call(call, ledger) for call in spoken.calls]
    return out


def _write_legacy(calls: list[Call], out: Object, ledger: Ledger) -> None:
    out["function_call"] = write_call(calls[0], ledger, legacy=True)
    for call in calls[1:]:
        ledger.note("part-dropped", place(call), f"`function_call` holds one call: `{call.name}` was left out")


_ANY = Family()


def _write_citations(spoken: Spoken) -> list[Object]:
    """Citations of every text; on the wire they count characters of the whole content."""
    found: list[Object] = []
    shift = 0
    for part in spoken.content:
        if isinstance(part, Text):
            found += [write_citation(citation, shift, len(part.text)) for citation in part.citations]
            shift += len(part.text)
    return found


# --- at a glance ------------------------------------------------------------------------------------------------------


class _Glance(Struct, gc=False):
    choices: list[Raw]
    model: str = ""
    usage: Object | None = None
    error: Json = None


_glance = glancing(_Glance)


def glance(data: bytes) -> Glance | None:
    found = _glance(data)
    if found is None or found.error is not None or not found.choices:
        return None
    return Glance(found.model, read_usage(found.usage, None, Reading(NAME)) if found.usage else None)
