"""Whole answers: candidates, the reasons they ended for, and what they cost."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from msgspec import Raw, Struct, ValidationError, convert
from msgspec.structs import replace

from toolwire.core import ids
from toolwire.core.codec import ResponsePeek, WriteContext
from toolwire.core.ir import (
    EMPTY_MAPPING,
    Call,
    Choice,
    Failure,
    Finish,
    Origin,
    Part,
    ProviderCall,
    ProviderResult,
    Response,
    Text,
    Usage,
    source_path,
)
from toolwire.core.json_values import (
    Json,
    Object,
    Path,
    expect_object,
    get_int,
    get_list,
    get_object,
    get_text,
    raise_wrong_type,
)
from toolwire.core.losses import Ledger
from toolwire.core.provenance import is_nonempty, is_verbatim, partial_decoder, restore_original_keys
from toolwire.protocols.gemini.content import PartReadContext, read_parts
from toolwire.protocols.gemini.content_writer import PartWriteContext, write_part
from toolwire.protocols.gemini.errors import read_error, write_error_body
from toolwire.protocols.gemini.grounding import (
    GROUNDING_METADATA_KEYS,
    is_grounding,
    read_grounding,
    unknown_grounding_keys,
    write_grounding,
)
from toolwire.protocols.gemini.models import Family
from toolwire.protocols.gemini.names import (
    CANDIDATE_KEYS,
    CONTENT_KEYS,
    EXACT_FINISH_KINDS,
    FAILED_FINISH_REASONS,
    FINISH_REASON_BY_KIND,
    FINISH_REASON_NUMBERS,
    KIND_BY_FINISH_REASON,
    NAME,
    PROMPT_FEEDBACK_KEYS,
    RESPONSE_KEYS,
    USAGE_KEYS,
)

# --- reading --------------------------------------------------------------------------------------------------------


class _PlainContent(Struct, forbid_unknown_fields=True, gc=False):
    parts: Json
    role: Json = None


class _PlainCandidate(Struct, forbid_unknown_fields=True, gc=False):
    content: _PlainContent
    finishReason: str
    index: int = 0


class _PlainResponse(Struct, forbid_unknown_fields=True, gc=False):
    """The usual answer: one candidate that has ended, and no key that we do not know."""

    candidates: tuple[_PlainCandidate]
    usageMetadata: Json = None
    modelVersion: str = ""
    responseId: str = ""
    createTime: Json = None


_FINISH_BY_REASON = {word: Finish(kind, word) for word, kind in KIND_BY_FINISH_REASON.items()}


def _read_plain_response(body: Object) -> Response | None:
    """The short way for the usual answer; None for any other, and for one that ends within a call."""
    try:
        usual = convert(body, _PlainResponse)
    except ValidationError:
        return None
    (node,) = usual.candidates
    items, usage, time = node.content.parts, usual.usageMetadata, usual.createTime
    if items.__class__ is not list or (usage is not None and usage.__class__ is not dict):
        return None
    reading = PartReadContext()
    path = ((None, "candidates"), 0)
    parts = read_parts(items, ((path, "content"), "parts"), reading, True)
    if reading.open_call is not None:
        return None
    finish = _FINISH_BY_REASON.get(node.finishReason)
    if finish is None:
        word = node.finishReason.upper()
        finish = Finish(KIND_BY_FINISH_REASON.get(word, "other"), word)
    return Response(
        usual.responseId,
        usual.modelVersion,
        None if time is None else read_create_time(time, reading),
        (Choice(node.index, tuple(parts), finish, Origin(NAME, path, body["candidates"][0])),),
        None if usage is None else read_usage(usage, (None, "usageMetadata"), reading),
        None if finish.raw == "STOP" else finish_failure(finish),
        Origin(NAME, None, body),
        tuple(reading.unknown_fields),
    )


def read_response(body: Object) -> Response:
    usual = _read_plain_response(body)
    if usual is not None:
        return usual
    reading = PartReadContext()
    if isinstance(expect_object(body, None).get("error"), dict):
        return Response(failure=read_error(body, 0, {}), origin=reading.whole_origin(body, None))
    node, origin = reading.read_node(body, None, RESPONSE_KEYS)
    choices = []
    for number, item in enumerate(get_list(node, "candidates", None) or []):
        choices.append(_read_candidate(item, ((None, "candidates"), number), number, reading))
    if not choices:
        blocked = read_block_reason(node, None, reading)
        if blocked is not None:
            choices.append(Choice(0, (), blocked))
    elif node.get("promptFeedback") is not None:
        reading.note_unknown_field(None, "promptFeedback")
    usage = get_object(node, "usageMetadata", None)
    failure = None
    for choice in choices:
        failure = failure or finish_failure(choice.finish)
    return Response(
        get_text(node, "responseId", None) or "",
        get_text(node, "modelVersion", None) or "",
        read_create_time(node.get("createTime"), reading),
        tuple(choices),
        read_usage(usage, (None, "usageMetadata"), reading) if usage is not None else None,
        failure,
        origin,
        tuple(reading.unknown_fields),
    )


def _read_candidate(item: Json, path: Path, number: int, reading: PartReadContext) -> Choice:
    node, origin = reading.read_node(expect_object(item, path), path, CANDIDATE_KEYS)
    parts: list[Part] = []
    content = get_object(node, "content", path)
    if content is not None:
        here = (path, "content")
        items = get_list(reading.read_inner_node(content, here, CONTENT_KEYS), "parts", here)
        parts = read_parts(items, (here, "parts"), reading, True) if items else []
    said = len(parts)
    if reading.open_call is not None:
        parts.append(reading.open_call.make_call(incomplete=True))
        reading.open_call = None
    if not node.keys().isdisjoint(GROUNDING_METADATA_KEYS) and any(
        is_nonempty(node.get(key)) for key in GROUNDING_METADATA_KEYS
    ):
        texts = [part.text if isinstance(part, Text) else None for part in parts[:said]]
        parts = _add_grounding(node, parts, texts, path, reading)
    index = get_int(node, "index", path)
    return Choice(number if index is None else index, tuple(parts), read_finish(node, path), origin)


def _add_grounding(
    candidate: Object, parts: list[Part], texts: list[str | None], path: Path, reading: PartReadContext
) -> list[Part]:
    found = read_grounding(candidate, texts, path, reading)
    cited: dict[int, list[Any]] = {}
    for number, citation in found.citations:
        cited.setdefault(number, []).append(citation)
    for number, citations in cited.items():
        parts[number] = replace(parts[number], citations=tuple(citations))
    return [*parts, *found.provider_parts]


def read_finish(candidate: Object, path: Path) -> Finish | None:
    """Why a candidate (in camelCase) ended: a word, in any case, or the number of it."""
    reason = candidate.get("finishReason")
    if reason is None:
        return None
    if isinstance(reason, str):
        if reason in _FINISH_BY_REASON and "finishMessage" not in candidate:
            return _FINISH_BY_REASON[reason]
        word = reason.upper()
    elif isinstance(reason, int) and not isinstance(reason, bool):
        word = FINISH_REASON_NUMBERS[reason] if 0 <= reason < len(FINISH_REASON_NUMBERS) else str(reason)
    else:
        raise_wrong_type((path, "finishReason"), "a string", reason)
    return Finish(
        KIND_BY_FINISH_REASON.get(word, "other"), word, detail=get_text(candidate, "finishMessage", path) or ""
    )


def read_block_reason(answer: Object, path: Path, reading: PartReadContext) -> Finish | None:
    """The ending of an answer (in camelCase) whose prompt was refused."""
    raw = get_object(answer, "promptFeedback", path)
    if raw is None:
        return None
    here = (path, "promptFeedback")
    feedback = reading.read_inner_node(raw, here, PROMPT_FEEDBACK_KEYS)
    reason = feedback.get("blockReason")
    if reason is None:
        return None
    return Finish("filter", str(reason).upper(), detail=get_text(feedback, "blockReasonMessage", here) or "")


def finish_failure(finish: Finish | None) -> Failure | None:
    """The failure that an ending stands for, if it is one: such an answer must not pass for a success."""
    if finish is None or finish.raw not in FAILED_FINISH_REASONS:
        return None
    message = f"the model's answer cannot be used ({finish.raw})"
    return Failure("upstream", f"{message}: {finish.detail}" if finish.detail else message, 502, finish.raw.lower())


class _UsageCounts(Struct, gc=False):
    thoughtsTokenCount: int | None = None
    promptTokenCount: int | None = None
    toolUsePromptTokenCount: int | None = None
    candidatesTokenCount: int | None = None
    cachedContentTokenCount: int | None = None
    totalTokenCount: int | None = None


def read_usage(raw: Object, path: Path, reading: PartReadContext) -> Usage:
    node, extra = (raw, EMPTY_MAPPING) if USAGE_KEYS.camel_keys.issuperset(raw) else _split_usage(raw)
    try:
        counts = convert(node, _UsageCounts)
    except ValidationError:
        counts = _UsageCounts(*[get_int(node, key, path) for key in _UsageCounts.__struct_fields__])
    if extra is not EMPTY_MAPPING:
        for key, value in extra.items():
            if value or is_nonempty(value):
                reading.note_unknown_field(path, key, "usage-mapped")
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


def _split_usage(raw: Object) -> tuple[Object, Mapping[str, Json]]:
    """The counts that everybody has, in camelCase, and finer ones (by modality, by traffic), which those sum up."""
    counts: Object = {}
    finer: Object = {}
    keys, spellings = USAGE_KEYS.camel_keys, USAGE_KEYS.camel_by_snake
    for key, value in raw.items():
        if key in keys:
            counts[key] = value
        elif key in spellings:
            counts[spellings[key]] = value
        else:
            finer[key] = value
    return counts, finer


def read_create_time(value: Json, reading: PartReadContext, path: Path = None) -> int | None:
    if value is None:
        return None
    try:
        return int(datetime.fromisoformat(value).timestamp())
    except (ValueError, TypeError, OverflowError):
        reading.note_unknown_field(path, "createTime")
        return None


# --- writing --------------------------------------------------------------------------------------------------------


def write_response(response: Response, ledger: Ledger, context: WriteContext) -> Object:
    if is_verbatim(response.origin, NAME):
        wire: Object = response.origin.wire  # type: ignore[union-attr]
        return wire
    failure = response.failure
    if failure is not None and (failure.code.upper() not in FAILED_FINISH_REASONS or not response.choices):
        return write_error_body(failure)
    out: Object = {"candidates": [write_candidate(choice, ledger) for choice in response.choices]}
    if response.usage is not None:
        out["usageMetadata"] = write_usage(response.usage, ledger)
    out |= write_response_head(response.id, response.model, response.created, context)
    return restore_original_keys(out, response.origin, NAME)


MAX_CREATE_TIME = 253_402_300_799
"""The last second that the wire's form of a time can spell."""


def write_response_head(id: str, model: str, created: int | None, context: WriteContext) -> Object:
    """What repeats on every chunk: the model, the time and the id."""
    out: Object = {"modelVersion": model} if model else {}
    if created is not None and 0 <= created <= MAX_CREATE_TIME:
        out["createTime"] = datetime.fromtimestamp(created, UTC).isoformat().replace("+00:00", "Z")
    identity = id or (ids.derive_id("", context.seed) if context.seed else "")
    if identity:
        out["responseId"] = identity
    return out


def write_candidate(choice: Choice, ledger: Ledger) -> Object:
    if is_verbatim(choice.origin, NAME):
        wire: Object = choice.origin.wire  # type: ignore[union-attr]
        return wire
    writing = PartWriteContext(ledger, Family(), in_response=True)
    parts: list[Object] = []
    telling: list[tuple[int, Part]] = []
    cut = False
    for part in choice.parts:
        if isinstance(part, Call):
            cut = cut or part.incomplete
        elif isinstance(part, (ProviderCall, ProviderResult)) or (isinstance(part, Text) and part.citations):
            telling.append((len(parts), part))
        written = None if is_grounding(part) else write_part(part, writing)
        if written is not None:
            parts.append(written)
    out: Object = {"content": {"parts": parts or [{"text": ""}], "role": "model"}}
    if choice.finish is not None:
        out |= write_finish(choice.finish, cut, ledger)
    out["index"] = choice.index
    if telling:
        out |= write_grounding(telling, ledger)
    carried = unknown_grounding_keys(choice.origin)
    if carried:
        out["groundingMetadata"] = out.get("groundingMetadata", {}) | carried
    return restore_original_keys(out, choice.origin, NAME)


def write_finish(finish: Finish, has_cut_call: bool, ledger: Ledger) -> Object:
    """The reason's own word where it is one of ours and means the same, else the word for its kind."""
    word = finish.raw
    if KIND_BY_FINISH_REASON.get(word) != finish.kind or word not in _WRITTEN_FINISH_REASONS:
        word = FINISH_REASON_BY_KIND[finish.kind]
        if finish.kind not in EXACT_FINISH_KINDS:
            ledger.note("finish-mapped", source_path(finish), f"the ending `{finish.raw or finish.kind}` became {word}")
    if has_cut_call and finish.kind in ("stop", "calls"):
        word = "MAX_TOKENS"
    out: Object = {"finishReason": word}
    if finish.detail:
        out["finishMessage"] = finish.detail
    return out


_WRITTEN_FINISH_REASONS = frozenset(KIND_BY_FINISH_REASON) - {"FUNCTION_CALL"}


def write_usage(usage: Usage, ledger: Ledger) -> Object:
    if is_verbatim(usage.origin, NAME):
        wire: Object = usage.origin.wire  # type: ignore[union-attr]
        return wire
    if usage.cache_write:
        ledger.note(
            "usage-mapped", source_path(usage), f"{usage.cache_write} tokens written to a cache are not told apart"
        )
    out: Object = {"promptTokenCount": usage.input, "candidatesTokenCount": usage.output - (usage.reasoning or 0)}
    out["totalTokenCount"] = usage.total if usage.total is not None else usage.input + usage.output
    if usage.cache_read is not None:
        out["cachedContentTokenCount"] = usage.cache_read
    if usage.reasoning is not None:
        out["thoughtsTokenCount"] = usage.reasoning
    return restore_original_keys(out, usage.origin, NAME)


# --- at a glance ------------------------------------------------------------------------------------------------------


class _ResponsePeek(Struct, gc=False, rename="camel"):
    candidates: list[Raw]
    model_version: str = ""
    usage_metadata: Object | None = None


_decode_peek = partial_decoder(_ResponsePeek)


def peek_response(data: bytes) -> ResponsePeek | None:
    found = _decode_peek(data)
    if found is None or not found.candidates:
        return None
    usage = found.usage_metadata
    return ResponsePeek(found.model_version, read_usage(usage, None, PartReadContext()) if usage is not None else None)
