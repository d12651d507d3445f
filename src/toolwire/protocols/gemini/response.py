"""Whole answers: candidates, the reasons they ended for, and what they cost."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from msgspec import Raw, Struct, ValidationError, convert
from msgspec.structs import replace

from toolwire import ids
from toolwire.ir import (
    NOTHING,
    Call,
    Choice,
    Failure,
    Finish,
    HostedCall,
    HostedResult,
    Origin,
    Part,
    Response,
    Text,
    Usage,
    place,
)
from toolwire.loss import Ledger
from toolwire.protocols.gemini.details.grounding import (
    TOLD,
    carried_grounding,
    grounds,
    read_grounding,
    write_grounding,
)
from toolwire.protocols.gemini.details.parts_write import Writing, write_part
from toolwire.protocols.gemini.errors import error_body, read_error
from toolwire.protocols.gemini.models import Family
from toolwire.protocols.gemini.names import (
    ANSWER,
    BROKEN,
    CANDIDATE,
    CONTENT,
    EXACT_FINISHES,
    FEEDBACK,
    FINISH_NUMBERS,
    FINISH_WORDS,
    FINISHES,
    NAME,
    USAGE,
)
from toolwire.protocols.gemini.parts import PartReading, read_parts
from toolwire.reading import finished, glancing, says_something, verbatim
from toolwire.room import Context, Glance
from toolwire.wire import (
    Json,
    Object,
    Path,
    as_object,
    take_int,
    take_list,
    take_object,
    take_text,
    wrong,
)

# --- reading --------------------------------------------------------------------------------------------------------


class _Content(Struct, forbid_unknown_fields=True, gc=False):
    parts: Json
    role: Json = None


class _Candidate(Struct, forbid_unknown_fields=True, gc=False):
    content: _Content
    finishReason: str
    index: int = 0


class _Usual(Struct, forbid_unknown_fields=True, gc=False):
    """The usual answer: one candidate that has ended, and no key that we do not know."""

    candidates: tuple[_Candidate]
    usageMetadata: Json = None
    modelVersion: str = ""
    responseId: str = ""
    createTime: Json = None


_ENDINGS = {word: Finish(kind, word) for word, kind in FINISHES.items()}


def _read_usual(body: Object) -> Response | None:
    """The short way for the usual answer; None for any other, and for one that ends within a call."""
    try:
        usual = convert(body, _Usual)
    except ValidationError:
        return None
    (node,) = usual.candidates
    items, usage, time = node.content.parts, usual.usageMetadata, usual.createTime
    if items.__class__ is not list or (usage is not None and usage.__class__ is not dict):
        return None
    reading = PartReading()
    path = ((None, "candidates"), 0)
    parts = read_parts(items, ((path, "content"), "parts"), reading, True)
    if reading.open is not None:
        return None
    finish = _ENDINGS.get(node.finishReason)
    if finish is None:
        word = node.finishReason.upper()
        finish = Finish(FINISHES.get(word, "other"), word)
    return Response(
        usual.responseId,
        usual.modelVersion,
        None if time is None else read_time(time, reading),
        (Choice(node.index, tuple(parts), finish, Origin(NAME, path, body["candidates"][0])),),
        None if usage is None else read_usage(usage, (None, "usageMetadata"), reading),
        None if finish.raw == "STOP" else broken(finish),
        Origin(NAME, None, body),
        tuple(reading.strays),
    )


def read_response(body: Object) -> Response:
    usual = _read_usual(body)
    if usual is not None:
        return usual
    reading = PartReading()
    if isinstance(as_object(body, None).get("error"), dict):
        return Response(failure=read_error(body, 0, {}), origin=reading.whole(body, None))
    node, origin = reading.spelled(body, None, ANSWER)
    choices = []
    for number, item in enumerate(take_list(node, "candidates", None) or []):
        choices.append(_read_candidate(item, ((None, "candidates"), number), number, reading))
    if not choices:
        blocked = read_block(node, None, reading)
        if blocked is not None:
            choices.append(Choice(0, (), blocked))
    elif node.get("promptFeedback") is not None:
        reading.stray(None, "promptFeedback")
    usage = take_object(node, "usageMetadata", None)
    failure = None
    for choice in choices:
        failure = failure or broken(choice.finish)
    return Response(
        take_text(node, "responseId", None) or "",
        take_text(node, "modelVersion", None) or "",
        read_time(node.get("createTime"), reading),
        tuple(choices),
        read_usage(usage, (None, "usageMetadata"), reading) if usage is not None else None,
        failure,
        origin,
        tuple(reading.strays),
    )


def _read_candidate(item: Json, path: Path, number: int, reading: PartReading) -> Choice:
    node, origin = reading.spelled(as_object(item, path), path, CANDIDATE)
    parts: list[Part] = []
    content = take_object(node, "content", path)
    if content is not None:
        here = (path, "content")
        items = take_list(reading.inner(content, here, CONTENT), "parts", here)
        parts = read_parts(items, (here, "parts"), reading, True) if items else []
    said = len(parts)
    if reading.open is not None:
        parts.append(reading.open.closed(incomplete=True))
        reading.open = None
    if not node.keys().isdisjoint(TOLD) and any(says_something(node.get(key)) for key in TOLD):
        texts = [part.text if isinstance(part, Text) else None for part in parts[:said]]
        parts = _grounded(node, parts, texts, path, reading)
    index = take_int(node, "index", path)
    return Choice(number if index is None else index, tuple(parts), read_finish(node, path), origin)


def _grounded(
    candidate: Object, parts: list[Part], texts: list[str | None], path: Path, reading: PartReading
) -> list[Part]:
    found = read_grounding(candidate, texts, path, reading)
    cited: dict[int, list[Any]] = {}
    for number, citation in found.citations:
        cited.setdefault(number, []).append(citation)
    for number, citations in cited.items():
        parts[number] = replace(parts[number], citations=tuple(citations))
    return [*parts, *found.hosted]


def read_finish(candidate: Object, path: Path) -> Finish | None:
    """Why a candidate (in camelCase) ended: a word, in any case, or the number of it."""
    reason = candidate.get("finishReason")
    if reason is None:
        return None
    if isinstance(reason, str):
        if reason in _ENDINGS and "finishMessage" not in candidate:
            return _ENDINGS[reason]
        word = reason.upper()
    elif isinstance(reason, int) and not isinstance(reason, bool):
        word = FINISH_NUMBERS[reason] if 0 <= reason < len(FINISH_NUMBERS) else str(reason)
    else:
        wrong((path, "finishReason"), "a string", reason)
    return Finish(FINISHES.get(word, "other"), word, detail=take_text(candidate, "finishMessage", path) or "")


def read_block(answer: Object, path: Path, reading: PartReading) -> Finish | None:
    """The ending of an answer (in camelCase) whose prompt was refused."""
    raw = take_object(answer, "promptFeedback", path)
    if raw is None:
        return None
    here = (path, "promptFeedback")
    feedback = reading.inner(raw, here, FEEDBACK)
    reason = feedback.get("blockReason")
    if reason is None:
        return None
    return Finish("filter", str(reason).upper(), detail=take_text(feedback, "blockReasonMessage", here) or "")


def broken(finish: Finish | None) -> Failure | None:
    """The failure that an ending stands for, if it is one: such an answer must not pass for a success."""
    if finish is None or finish.raw not in BROKEN:
        return None
    message = f"the model's answer cannot be used ({finish.raw})"
    return Failure("upstream", f"{message}: {finish.detail}" if finish.detail else message, 502, finish.raw.lower())


class _Counts(Struct, gc=False):
    thoughtsTokenCount: int | None = None
    promptTokenCount: int | None = None
    toolUsePromptTokenCount: int | None = None
    candidatesTokenCount: int | None = None
    cachedContentTokenCount: int | None = None
    totalTokenCount: int | None = None


def read_usage(raw: Object, path: Path, reading: PartReading) -> Usage:
    node, extra = (raw, NOTHING) if USAGE.keys.issuperset(raw) else _without_finer(raw)
    try:
        counts = convert(node, _Counts)
    except ValidationError:
        counts = _Counts(*[take_int(node, key, path) for key in _Counts.__struct_fields__])
    if extra is not NOTHING:
        for key, value in extra.items():
            if value or says_something(value):
                reading.stray(path, key, "usage-mapped")
    reasoning = counts.thoughtsTokenCount
    return Usage(
        (counts.promptTokenCount or 0) + (counts.toolUsePromptTokenCount or 0),
        (counts.candidatesTokenCount or 0) + (reasoning or 0),
        counts.cachedContentTokenCount,
        None,
        reasoning,
        counts.totalTokenCount,
        Origin(NAME, path, raw, extra),
    )


def _without_finer(raw: Object) -> tuple[Object, Mapping[str, Json]]:
    """The counts that everybody has, in camelCase, and finer ones (by modality, by traffic), which those sum up."""
    counts: Object = {}
    finer: Object = {}
    keys, spellings = USAGE.keys, USAGE.spellings
    for key, value in raw.items():
        if key in keys:
            counts[key] = value
        elif key in spellings:
            counts[spellings[key]] = value
        else:
            finer[key] = value
    return counts, finer


def read_time(value: Json, reading: PartReading, path: Path = None) -> int | None:
    if value is None:
        return None
    try:
        return int(datetime.fromisoformat(value).timestamp())
    except (ValueError, TypeError, OverflowError):
        reading.stray(path, "createTime")
        return None


# --- writing --------------------------------------------------------------------------------------------------------


def write_response(response: Response, ledger: Ledger, context: Context) -> Object:
    if verbatim(response.origin, NAME):
        wire: Object = response.origin.wire  # type: ignore[union-attr]
        return wire
    failure = response.failure
    if failure is not None and (failure.code.upper() not in BROKEN or not response.choices):
        return error_body(failure)
    out: Object = {"candidates": [write_choice(choice, ledger) for choice in response.choices]}
    if response.usage is not None:
        out["usageMetadata"] = write_usage(response.usage, ledger)
    out |= write_heading(response.id, response.model, response.created, context)
    return finished(out, response.origin, NAME)


LATEST = 253_402_300_799
"""The last second that the wire's form of a time can spell."""


def write_heading(id: str, model: str, created: int | None, context: Context) -> Object:
    """What repeats on every chunk: the model, the time and the id."""
    out: Object = {"modelVersion": model} if model else {}
    if created is not None and 0 <= created <= LATEST:
        out["createTime"] = datetime.fromtimestamp(created, UTC).isoformat().replace("+00:00", "Z")
    identity = id or (ids.made("", context.seed) if context.seed else "")
    if identity:
        out["responseId"] = identity
    return out


def write_choice(choice: Choice, ledger: Ledger) -> Object:
    if verbatim(choice.origin, NAME):
        wire: Object = choice.origin.wire  # type: ignore[union-attr]
        return wire
    writing = Writing(ledger, Family(), answer=True)
    parts: list[Object] = []
    telling: list[tuple[int, Part]] = []
    cut = False
    for part in choice.parts:
        if isinstance(part, Call):
            cut = cut or part.incomplete
        elif isinstance(part, (HostedCall, HostedResult)) or (isinstance(part, Text) and part.citations):
            telling.append((len(parts), part))
        written = None if grounds(part) else write_part(part, writing)
        if written is not None:
            parts.append(written)
    out: Object = {"content": {"parts": parts or [{"text": ""}], "role": "model"}}
    if choice.finish is not None:
        out |= write_finish(choice.finish, cut, ledger)
    out["index"] = choice.index
    if telling:
        out |= write_grounding(telling, ledger)
    carried = carried_grounding(choice.origin)
    if carried:
        out["groundingMetadata"] = out.get("groundingMetadata", {}) | carried
    return finished(out, choice.origin, NAME)


def write_finish(finish: Finish, cut: bool, ledger: Ledger) -> Object:
    """The reason's own word where it is one of ours and means the same, else the word for its kind."""
    word = finish.raw
    if FINISHES.get(word) != finish.kind or word not in _SENT:
        word = FINISH_WORDS[finish.kind]
        if finish.kind not in EXACT_FINISHES:
            ledger.note("finish-mapped", place(finish), f"the ending `{finish.raw or finish.kind}` became {word}")
    if cut and finish.kind in ("stop", "calls"):
        word = "MAX_TOKENS"
    out: Object = {"finishReason": word}
    if finish.detail:
        out["finishMessage"] = finish.detail
    return out


_SENT = frozenset(FINISHES) - {"FUNCTION_CALL"}


def write_usage(usage: Usage, ledger: Ledger) -> Object:
    if verbatim(usage.origin, NAME):
        wire: Object = usage.origin.wire  # type: ignore[union-attr]
        return wire
    if usage.cache_write:
        ledger.note("usage-mapped", place(usage), f"{usage.cache_write} tokens written to a cache are not told apart")
    out: Object = {"promptTokenCount": usage.input, "candidatesTokenCount": usage.output - (usage.reasoning or 0)}
    out["totalTokenCount"] = usage.total if usage.total is not None else usage.input + usage.output
    if usage.cache_read is not None:
        out["cachedContentTokenCount"] = usage.cache_read
    if usage.reasoning is not None:
        out["thoughtsTokenCount"] = usage.reasoning
    return finished(out, usage.origin, NAME)


# --- at a glance ------------------------------------------------------------------------------------------------------


class _Glance(Struct, gc=False, rename="camel"):
    candidates: list[Raw]
    model_version: str = ""
    usage_metadata: Object | None = None


_glance = glancing(_Glance)


def glance(data: bytes) -> Glance | None:
    found = _glance(data)
    if found is None or not found.candidates:
        return None
    usage = found.usage_metadata
    return Glance(found.model_version, read_usage(usage, None, PartReading()) if usage is not None else None)
