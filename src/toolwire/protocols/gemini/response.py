"""Whole answers: candidates, finish reasons and usage."""

from __future__ import annotations

from datetime import UTC, datetime

from msgspec import Raw, Struct
from msgspec.structs import replace

from toolwire.core import ids
from toolwire.core.codec import ResponsePeek, WriteContext
from toolwire.core.ir import (
    EMPTY_MAPPING,
    Call,
    Choice,
    Citation,
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
    get_ints,
    get_list,
    get_object,
    get_text,
    raise_wrong_type,
)
from toolwire.core.losses import Ledger
from toolwire.core.provenance import is_nonempty, partial_decoder, restore_original_keys
from toolwire.protocols.gemini import names
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
from toolwire.protocols.gemini.names import NAME, intact_wire

# --- reading --------------------------------------------------------------------------------------------------------


_FINISH_BY_REASON = {word: Finish(kind, word) for word, kind in names.KIND_BY_FINISH_REASON.items()}


def read_response(body: Object) -> Response:
    reading = PartReadContext()
    if isinstance(expect_object(body, None).get("error"), dict):
        return Response(failure=read_error(body, 0, {}), origin=reading.whole_origin(body, None))
    node, origin = reading.read_node(body, None, names.RESPONSE_KEYS)
    candidates = enumerate(get_list(node, "candidates", None) or ())
    choices = [_read_candidate(item, ((None, "candidates"), number), number, reading) for number, item in candidates]
    if not choices:
        blocked = read_block_reason(node, None, reading)
        if blocked is not None:
            choices.append(Choice(0, (), blocked))
    elif node.get("promptFeedback") is not None:
        reading.note_unknown_field(None, "promptFeedback")
    usage = get_object(node, "usageMetadata", None)
    failures = [finish_failure(choice.finish) for choice in choices]
    return Response(
        get_text(node, "responseId", None) or "",
        get_text(node, "modelVersion", None) or "",
        read_create_time(node.get("createTime"), reading),
        tuple(choices),
        read_usage(usage, (None, "usageMetadata"), reading) if usage is not None else None,
        next(filter(None, failures), None),
        origin,
        tuple(reading.unknown_fields),
    )


def _read_candidate(item: Json, path: Path, number: int, reading: PartReadContext) -> Choice:
    node, origin = reading.read_node(expect_object(item, path), path, names.CANDIDATE_KEYS)
    parts: list[Part] = []
    content = get_object(node, "content", path)
    if content is not None:
        here = (path, "content")
        items = get_list(reading.read_inner_node(content, here, names.CONTENT_KEYS), "parts", here)
        parts = read_parts(items, (here, "parts"), reading, True) if items else []
    whole_parts = len(parts)
    if reading.open_call is not None:
        parts.append(reading.open_call.make_call(incomplete=True))
        reading.open_call = None
    if any(map(is_nonempty, map(node.get, GROUNDING_METADATA_KEYS))):
        texts = [part.text if isinstance(part, Text) else None for part in parts[:whole_parts]]
        parts = _add_grounding(node, parts, texts, path, reading)
    index = get_int(node, "index", path)
    return Choice(number if index is None else index, tuple(parts), read_finish(node, path), origin)


def _add_grounding(
    candidate: Object, parts: list[Part], texts: list[str | None], path: Path, reading: PartReadContext
) -> list[Part]:
    grounding = read_grounding(candidate, texts, path, reading)
    citations: dict[int, list[Citation]] = {}
    for number, citation in grounding.citations:
        citations.setdefault(number, []).append(citation)
    for number, cited in citations.items():
        parts[number] = replace(parts[number], citations=tuple(cited))
    return [*parts, *grounding.provider_parts]


def read_finish(candidate: Object, path: Path) -> Finish | None:
    """The finish reason of a candidate (in camelCase): a word in any case, or its number."""
    reason = candidate.get("finishReason")
    if reason is None:
        return None
    if isinstance(reason, str):
        if reason in _FINISH_BY_REASON and "finishMessage" not in candidate:
            return _FINISH_BY_REASON[reason]
        word = reason.upper()
    elif isinstance(reason, int) and not isinstance(reason, bool):
        word = names.FINISH_REASON_NUMBERS[reason] if 0 <= reason < len(names.FINISH_REASON_NUMBERS) else str(reason)
    else:
        raise_wrong_type((path, "finishReason"), "a string", reason)
    detail = get_text(candidate, "finishMessage", path) or ""
    return Finish(names.KIND_BY_FINISH_REASON.get(word, "other"), word, detail=detail)


def read_block_reason(answer: Object, path: Path, reading: PartReadContext) -> Finish | None:
    """The finish of an answer (in camelCase) whose prompt was blocked."""
    raw = get_object(answer, "promptFeedback", path)
    if raw is None:
        return None
    here = (path, "promptFeedback")
    feedback = reading.read_inner_node(raw, here, names.PROMPT_FEEDBACK_KEYS)
    reason = feedback.get("blockReason")
    if reason is None:
        return None
    return Finish("filter", str(reason).upper(), detail=get_text(feedback, "blockReasonMessage", here) or "")


def finish_failure(finish: Finish | None) -> Failure | None:
    """The failure that a finish reason stands for, if any: such an answer must not look like a success."""
    if finish is None or finish.raw not in names.FAILED_FINISH_REASONS:
        return None
    message = f"the model's answer cannot be used ({finish.raw})"
    return Failure("upstream", f"{message}: {finish.detail}" if finish.detail else message, 502, finish.raw.lower())


def read_usage(raw: Object, path: Path, reading: PartReadContext) -> Usage:
    """Token counts. Google counts thinking apart from the other output tokens."""
    node, extra = names.USAGE_KEYS(raw), EMPTY_MAPPING
    if not names.USAGE_KEYS.all_keys.issuperset(raw):
        # Finer counts, by modality or by traffic: the others are their sums.
        extra = names.USAGE_KEYS.select_unknown(raw)
        for key, value in extra.items():
            if is_nonempty(value):
                reading.note_unknown_field(path, key, "usage-mapped")
    prompt, tool_prompt, answer, reasoning, cached, total = get_ints(node, names.COUNT_KEYS, path)
    return Usage(
        (prompt or 0) + (tool_prompt or 0),
        (answer or 0) + (reasoning or 0),
        cached,
        None,
        reasoning,
        total,
        Origin(NAME, path, raw, extra),
    )


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
    if (wire := intact_wire(response.origin)) is not None:
        return wire
    failure = response.failure
    if failure is not None and (failure.code.upper() not in names.FAILED_FINISH_REASONS or not response.choices):
        return write_error_body(failure)
    out: Object = {"candidates": [write_candidate(choice, ledger) for choice in response.choices]}
    if response.usage is not None:
        out["usageMetadata"] = write_usage(response.usage, ledger)
    out |= write_response_head(response.id, response.model, response.created, context)
    return restore_original_keys(out, response.origin, NAME)


MAX_CREATE_TIME = 253_402_300_799
"""The end of the year 9999: `createTime` has four digits for the year."""


def write_response_head(id: str, model: str, created: int | None, context: WriteContext) -> Object:
    """The model, the time and the id, which are in every chunk of a stream."""
    out: Object = {"modelVersion": model} if model else {}
    if created is not None and 0 <= created <= MAX_CREATE_TIME:
        out["createTime"] = datetime.fromtimestamp(created, UTC).isoformat().replace("+00:00", "Z")
    identity = id or (ids.derive_id("", context.seed) if context.seed else "")
    if identity:
        out["responseId"] = identity
    return out


def write_candidate(choice: Choice, ledger: Ledger) -> Object:
    if (wire := intact_wire(choice.origin)) is not None:
        return wire
    writing = PartWriteContext(ledger, Family(), in_response=True)
    parts: list[Object] = []
    grounded: list[tuple[int, Part]] = []
    cut = False
    for part in choice.parts:
        if isinstance(part, Call):
            cut = cut or part.incomplete
        elif isinstance(part, (ProviderCall, ProviderResult)) or (isinstance(part, Text) and part.citations):
            grounded.append((len(parts), part))
        written = None if is_grounding(part) else write_part(part, writing)
        if written is not None:
            parts.append(written)
    out: Object = {"content": {"parts": parts or [{"text": ""}], "role": "model"}}
    if choice.finish is not None:
        out |= write_finish(choice.finish, cut, ledger)
    out["index"] = choice.index
    out |= write_grounding(grounded, ledger)
    if extra := unknown_grounding_keys(choice.origin):
        out["groundingMetadata"] = out.get("groundingMetadata", {}) | extra
    return restore_original_keys(out, choice.origin, NAME)


def write_finish(finish: Finish, has_cut_call: bool, ledger: Ledger) -> Object:
    """The finish reason that was read, if it is one of Gemini's, or else the one for its kind."""
    reason = finish.raw
    if names.KIND_BY_FINISH_REASON.get(reason) != finish.kind or reason not in names.WRITTEN_FINISH_REASONS:
        reason = names.FINISH_REASON_BY_KIND[finish.kind]
        if finish.kind in names.COARSER_FINISH_KINDS:
            what = f"the finish reason `{finish.raw or finish.kind}` became `{reason}`"
            ledger.note("finish-mapped", source_path(finish), what)
    if has_cut_call and finish.kind in ("stop", "calls"):
        reason = names.FINISH_REASON_BY_KIND["length"]
    out: Object = {"finishReason": reason}
    if finish.detail:
        out["finishMessage"] = finish.detail
    return out


def write_usage(usage: Usage, ledger: Ledger) -> Object:
    if (wire := intact_wire(usage.origin)) is not None:
        return wire
    if usage.cache_write:
        what = f"the count of {usage.cache_write} tokens written to a cache was left out"
        ledger.note("usage-mapped", source_path(usage), what)
    out: Object = {"promptTokenCount": usage.input, "candidatesTokenCount": usage.output - (usage.reasoning or 0)}
    out["totalTokenCount"] = usage.total if usage.total is not None else usage.input + usage.output
    if usage.cache_read is not None:
        out["cachedContentTokenCount"] = usage.cache_read
    if usage.reasoning is not None:
        out["thoughtsTokenCount"] = usage.reasoning
    return restore_original_keys(out, usage.origin, NAME)


# --- peeking --------------------------------------------------------------------------------------------------------


class _ResponsePeek(Struct, gc=False, rename="camel"):
    candidates: list[Raw]
    model_version: str = ""
    usage_metadata: Object | None = None


_decode_peek = partial_decoder(_ResponsePeek)


def peek_response(data: bytes) -> ResponsePeek | None:
    peek = _decode_peek(data)
    if peek is None or not peek.candidates:
        return None
    usage = peek.usage_metadata
    return ResponsePeek(peek.model_version, read_usage(usage, None, PartReadContext()) if usage is not None else None)
