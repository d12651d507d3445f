"""Whole Chat answers (`chat.completion`): the message, the finish reason and the usage, read and written."""

from __future__ import annotations

import re
from collections.abc import Collection

from msgspec import Raw, Struct
from msgspec.structs import replace

from toolwire.core import ids
from toolwire.core.codec import MAX_HOLLOW_BYTES, ResponsePeek, WriteContext
from toolwire.core.errors import expect_answer
from toolwire.core.ir import (
    Call,
    Choice,
    Failure,
    Finish,
    FinishKind,
    Logprobs,
    Opaque,
    Origin,
    Part,
    Refusal,
    Response,
    Text,
    Usage,
    read_service_tier,
    source_path,
)
from toolwire.core.json_values import (
    Json,
    Malformed,
    Object,
    Path,
    expect_object,
    find_count,
    get_int,
    get_list,
    get_object,
    get_text,
    get_timestamp,
    raise_wrong_type,
)
from toolwire.core.logprobs import LogprobsReadContext, read_openai_logprobs, write_openai_logprobs
from toolwire.core.losses import Ledger
from toolwire.core.provenance import ReadContext, is_nonempty, partial_decoder, restore_original_keys
from toolwire.protocols.openai_chat import names
from toolwire.protocols.openai_chat.content import mark_incomplete_calls, write_citation, write_media
from toolwire.protocols.openai_chat.errors import read_failure, write_error_body
from toolwire.protocols.openai_chat.models import DEFAULT_FAMILY
from toolwire.protocols.openai_chat.names import NAME, intact_wire, is_own
from toolwire.protocols.openai_chat.request import MessageSlots, read_message
from toolwire.protocols.openai_chat.tools import uses_legacy_functions, write_call

# --- finish reasons -------------------------------------------------------------------------------------------------


def read_finish(raw: str, has_calls: bool, sequence: Json, path: Path) -> Finish:
    """The finish from its reason; without one it follows from the content."""
    kind: FinishKind = names.KIND_BY_FINISH_REASON.get(raw, "other") if raw else "calls" if has_calls else "stop"
    origin = Origin(NAME, path, raw)
    if kind == "stop" and isinstance(sequence, str) and sequence:
        return Finish("sequence", raw, sequence, "", origin)
    return Finish(kind, raw, "", "", origin)


def finish_failure(finish: Finish | None) -> Failure | None:
    """The failure that a finish reason stands for, if any: half an answer must not look like a whole one."""
    if finish is None or finish.raw not in names.FAILED_FINISH_REASONS:
        return None
    return Failure("upstream", f"the model's answer broke off ({finish.raw})", 502, finish.raw)


KINDS_BEFORE_CALLS: Collection[FinishKind] = ("stop", "other", "pause")
"""Kinds of finishes that are written as `tool_calls` where there are calls."""


class FinishReasonWriter(Struct, eq=False):
    """Writes a finish reason that agrees with the content: clients look for calls only after `tool_calls`."""

    legacy: bool
    has_calls: bool = False
    is_incomplete: bool = False
    has_refusal: bool = False

    def write(self, finish: Finish | None, where: Path, ledger: Ledger) -> str:
        finish = finish or Finish("stop")
        ledger.note_finish_detail(finish)
        kind = finish.kind
        if self.is_incomplete and kind in ("stop", "calls", "other", "pause"):
            kind = "length"
        elif self.has_calls and kind in KINDS_BEFORE_CALLS:
            kind = "calls"
        if kind == "calls" and self.has_calls:
            return names.LEGACY_CALLS_REASON if self.legacy else names.FINISH_REASON_BY_KIND["calls"]
        if kind == "calls":
            kind = "stop"
        known = names.FINISH_REASONS.get(finish.raw) == kind or (finish.raw and is_own(finish.origin))
        if finish.kind == kind and known:
            self._note_losses(finish, where, kind != "sequence", ledger)
            return finish.raw
        exact = kind == finish.kind and kind not in names.COARSER_FINISH_KINDS
        if kind == "refusal" and self.has_refusal:
            kind, exact = "stop", True
        self._note_losses(finish, where, exact, ledger)
        return names.FINISH_REASON_BY_KIND[kind]

    @staticmethod
    def _note_losses(finish: Finish, where: Path, exact: bool, ledger: Ledger) -> None:
        if not exact:
            met = f" at {finish.sequence!r}" if finish.sequence else ""
            word = finish.raw or finish.kind
            ledger.note("finish-mapped", where, f"the finish reason `{word}`{met} was written as a coarser one")


# --- usage ----------------------------------------------------------------------------------------------------------

_USAGE_KEYS = frozenset(names.USAGE_KEYS)
_USAGE_DETAILS: tuple[tuple[str, str, str], ...] = (
    ("cache_read", "prompt_tokens_details", "cached_tokens"),
    ("cache_write", "prompt_tokens_details", "cache_write_tokens"),
    ("reasoning", "completion_tokens_details", "reasoning_tokens"),
)
_USAGE_DETAIL_KEYS = frozenset((group, key) for _, group, key in _USAGE_DETAILS)
_PRICED_DETAILS = {
    "input_audio": ("prompt_tokens_details", "audio_tokens"),
    "input_image": ("prompt_tokens_details", "image_tokens"),
    "output_audio": ("completion_tokens_details", "audio_tokens"),
    "output_image": ("completion_tokens_details", "image_tokens"),
    "searches": ("server_tool_use", "web_search_requests"),
}
"""Counts that have prices of their own, but no counterpart in most protocols."""
_VENDOR_CACHED_KEYS = ("prompt_cache_hit_tokens", "cached_tokens", "num_cached_tokens")
"""Cached tokens at DeepSeek, Moonshot and others."""


def read_usage(node: Object, path: Path, reading: ReadContext, tier: Json = None) -> Usage:
    """Token counts. Some servers (xAI) leave reasoning out of `completion_tokens`; their total shows it. `tier` is the
    `service_tier` beside the usage."""
    counts: dict[str, int | None] = {}
    if not _USAGE_KEYS.issuperset(node):
        _note_unknown_counts(node, path, reading)
        for field, group, key in _USAGE_DETAILS:
            if isinstance(details := node.get(group), dict):
                (counts[field],) = reading.read_counts(details, (key,), (path, group))
        if counts.get("cache_read") is None:
            keys = [key for key in _VENDOR_CACHED_KEYS if key in node][:1]
            counts["cache_read"] = next(iter(reading.read_counts(node, keys, path)), None)
    prompt, completion, total = reading.read_counts(node, names.USAGE_KEYS, path)
    prompt, completion, reasoning = prompt or 0, completion or 0, counts.get("reasoning")
    if reasoning and total == prompt + completion + reasoning:
        completion += reasoning
    # OpenRouter counts the searches of all models as Anthropic does.
    details = {field: find_count(node, *keys) for field, keys in _PRICED_DETAILS.items()} if counts else {}
    origin, priced_tier = Origin(NAME, path, node), read_service_tier(tier) if tier is not None else ""
    return Usage(prompt, completion, **counts, total=total, origin=origin, service_tier=priced_tier, **details)


def _note_unknown_counts(node: Object, path: Path, reading: ReadContext) -> None:
    """Note counts that have no field in `Usage`, unless they are zero."""
    for key, value in node.items():
        if isinstance(value, dict):
            for name, count in value.items():
                if count and (key, name) not in _USAGE_DETAIL_KEYS:
                    reading.note_unknown_field((path, key), name)
        elif value and key not in names.USAGE_KEYS and key not in _VENDOR_CACHED_KEYS:
            reading.note_unknown_field(path, key)


def write_usage(usage: Usage) -> Object:
    if (wire := intact_wire(usage.origin)) is not None:
        return wire
    total = usage.total if usage.total is not None else usage.input + usage.output
    out: Object = {"prompt_tokens": usage.input, "completion_tokens": usage.output, "total_tokens": total}
    for field, group, key in _USAGE_DETAILS:
        count = getattr(usage, field)
        if count is not None:
            out.setdefault(group, {})[key] = count
    for field, (group, key) in _PRICED_DETAILS.items():
        if count := getattr(usage, field):
            out.setdefault(group, {})[key] = count
    return out


# --- log probabilities ----------------------------------------------------------------------------------------------


def read_logprobs(value: Json, path: Path, reading: ReadContext) -> tuple[Logprobs, Logprobs]:
    """The tokens of the content and those of the refusal. What cannot be read is noted."""
    at = (path, "logprobs")
    if not isinstance(value, dict):
        reading.note_unknown_field(path, "logprobs")
        return (), ()
    inner = LogprobsReadContext(NAME)
    content = read_openai_logprobs(value.get("content"), (at, "content"), inner)
    refusal = read_openai_logprobs(value.get("refusal"), (at, "refusal"), inner)
    if content is None or refusal is None:
        reading.note_unknown_field(path, "logprobs")
        return (), ()
    for key, other in value.items():
        if key not in names.LOGPROBS_KEYS and is_nonempty(other):
            reading.note_unknown_field(at, key)
    reading.unknown_fields += inner.unknown_fields
    return content, refusal


def _add_logprobs(parts: tuple[Part, ...], value: Json, path: Path, reading: ReadContext) -> tuple[Part, ...]:
    """The parts with the tokens of the content at the first text, and those of the refusal at the first refusal."""
    content, refusal = read_logprobs(value, path, reading)
    out = list(parts)
    for kind, logprobs in ((Text, content), (Refusal, refusal)):
        number = next((number for number, part in enumerate(parts) if type(part) is kind), -1)
        if logprobs and number >= 0:
            out[number] = replace(parts[number], logprobs=logprobs)
        elif logprobs:
            reading.note_unknown_field(path, "logprobs")
    return tuple(out)


def write_parts_logprobs(parts: tuple[Part, ...]) -> Object | None:
    content = [token for part in parts if type(part) is Text for token in part.logprobs]
    refusal = [token for part in parts if type(part) is Refusal for token in part.logprobs]
    return write_logprobs(tuple(content), tuple(refusal)) if content or refusal else None


def write_logprobs(content: Logprobs, refusal: Logprobs) -> Object:
    return {"content": write_openai_logprobs(content) or None, "refusal": write_openai_logprobs(refusal) or None}


# --- answers --------------------------------------------------------------------------------------------------------


def read_response(body: Object) -> Response:
    reading = ReadContext(NAME)
    choices: list[Choice] = []
    failure = None
    if body.get("error") or body.get("object") == "error":
        failure = read_failure(body, 0)
    elif not body.get("choices"):
        raise Malformed(None, "this is not a Chat answer: `choices` is missing or empty")
    for number, item in enumerate(get_list(body, "choices", None) or ()):
        path = ((None, "choices"), number)
        node = expect_object(item, path)
        choices.append(_read_choice(node, path, reading, number))
        if "error" in node and failure is None and isinstance(node["error"], dict):
            failure = read_failure(node, 0)
        failure = failure or finish_failure(choices[-1].finish)
    counts = reading.get_counted(body, "usage", None)
    id, model = get_text(body, "id", None) or "", get_text(body, "model", None) or ""
    created = get_timestamp(body, "created", None)
    usage = read_usage(counts, (None, "usage"), reading, body.get("service_tier")) if counts else None
    origin = reading.read_origin(body, None, names.RESPONSE_KEYS)
    read = Response(id, model, created, tuple(choices), usage, failure, origin, tuple(reading.unknown_fields))
    return expect_answer(read)


def _read_choice(node: Object, path: Path, reading: ReadContext, position: int) -> Choice:
    message = get_object(node, "message", path) or {}
    at = (path, "message")
    reading.read_origin(message, at, names.ASSISTANT_KEYS)
    parts = read_message(message, at, reading, in_response=True)
    raw = node.get("finish_reason")
    if raw is not None and not isinstance(raw, str):
        raise_wrong_type((path, "finish_reason"), "a string", raw)
    calls = not raw and any(isinstance(part, Call) for part in parts)
    finish = read_finish(raw or "", calls, node.get("stop_reason"), (path, "finish_reason"))
    if finish.kind in names.CUT_FINISH_KINDS:
        parts = mark_incomplete_calls(parts)
    if node.get("logprobs"):
        parts = _add_logprobs(parts, node["logprobs"], path, reading)
    index = get_int(node, "index", path)
    known = names.CHOICE_KEYS | {"stop_reason"} if finish.sequence else names.CHOICE_KEYS
    return Choice(position if index is None else index, parts, finish, reading.read_origin(node, path, known))


def write_response(response: Response, ledger: Ledger, context: WriteContext) -> Object:
    if (wire := intact_wire(response.origin)) is not None:
        return wire
    if response.failure is not None:
        return write_error_body(response.failure)
    request = context.request
    legacy = uses_legacy_functions(request)
    out: Object = {
        "id": response.id or ids.derive_id("chatcmpl-", context.seed),
        "object": "chat.completion",
        "created": response.created if response.created is not None else context.now,
        "model": response.model or (request.model if request is not None else ""),
        "choices": [_write_choice(choice, ledger, legacy) for choice in response.choices],
    }
    if response.usage is not None:
        out["usage"] = write_usage(response.usage)
    return restore_original_keys(out, response.origin, NAME)


def _write_choice(choice: Choice, ledger: Ledger, legacy: bool) -> Object:
    origin, finish = choice.origin, choice.finish
    if (wire := intact_wire(origin)) is not None:
        return wire
    legacy = legacy or (finish is not None and finish.raw == names.LEGACY_CALLS_REASON)
    where = source_path(choice)
    slots = MessageSlots(choice.parts, where, ledger)
    is_incomplete = True in [call.incomplete for call in slots.calls]
    reason = FinishReasonWriter(legacy, bool(slots.calls), is_incomplete, bool(slots.refusals))
    out: Object = {
        "index": choice.index,
        "message": _write_message(slots, ledger, legacy),
        "logprobs": write_parts_logprobs(choice.parts),
        "finish_reason": reason.write(finish, where, ledger),
    }
    if is_own(origin) and "logprobs" in origin.wire:
        out["logprobs"] = origin.wire["logprobs"]
    return restore_original_keys(out, origin, NAME)


def _write_message(slots: MessageSlots, ledger: Ledger, legacy: bool) -> Object:
    text = ""
    citations: list[Object] = []
    for part in slots.content:
        if isinstance(part, Text):
            # In Chat they count characters of the whole content.
            citations += [write_citation(citation, len(text), len(part.text)) for citation in part.citations]
            if part.seal is not None:
                ledger.note("seal-dropped", source_path(part), "the seal of a text was left out")
            text += part.text
        elif isinstance(part, Opaque):
            ledger.note_opaque(part)
        else:
            slots.reasoning.append(part)
    out: Object = {
        "role": "assistant",
        "content": text if text or not (slots.calls or slots.refusals) else None,
        "refusal": "".join(slots.refusals) or None,
        "annotations": citations,
    }
    if slots.reasoning:
        slots.write_reasoning(out, ledger)
    images = [image for part in slots.media if (image := write_media(part, DEFAULT_FAMILY, ledger)) is not None]
    if images:
        out["images"] = images
    if slots.calls and not legacy:
        out["tool_calls"] = [write_call(call, ledger) for call in slots.calls]
    elif slots.calls:
        out["function_call"] = write_call(slots.calls[0], ledger, legacy=True)
        for call in slots.calls[1:]:
            what = f"`function_call` holds one call: `{call.name}` was left out"
            ledger.note("part-dropped", source_path(call), what)
    return out


class _NamePeek(Struct, gc=False):
    name: str
    arguments: str | None = None
    input: str | None = None


class _CallPeek(Struct, gc=False):
    function: _NamePeek | None = None
    custom: _NamePeek | None = None


class _MessagePeek(Struct, gc=False):
    tool_calls: list[_CallPeek] | None = None
    function_call: _NamePeek | None = None


class _ChoicePeek(Struct, gc=False):
    message: _MessagePeek


class _OddMessagePeek(Struct, gc=False):
    tool_calls: list[dict[str, str | Object | None]] | None = None


class _OddChoicePeek(Struct, gc=False):
    message: _OddMessagePeek


class _ResponsePeek(Struct, gc=False):
    choices: list[Raw]
    model: str = ""
    usage: Object | None = None
    error: Json = None
    service_tier: Json = None


_decode_peek, _decode_choice_peek = partial_decoder(_ResponsePeek), partial_decoder(_ChoicePeek)
_decode_odd_choice_peek = partial_decoder(_OddChoicePeek)


def peek_response(data: bytes) -> ResponsePeek | None:
    found = _decode_peek(data)
    if found is None or found.error is not None or max(map(len, found.choices), default=0) <= MAX_HOLLOW_BYTES:
        return None
    usage = read_usage(found.usage, None, ReadContext(NAME), found.service_tier) if found.usage else None
    called = _peek_called_tools(found.choices) if data.find(b"_call") >= 0 else ()
    return None if called is None or _has_odd_content(data) else ResponsePeek(found.model, usage, called)


_has_odd_content = re.compile(rb'"content"\s*:\s*[\[{]').search


def _peek_called_tools(choices: list[Raw]) -> tuple[str, ...] | None:
    """None if calls have another shape than OpenAI's, and may be mended. What cannot be read passes as it is."""
    names: list[str] = []
    for choice in choices:
        found = _decode_choice_peek(choice)
        if found is None:
            if _may_be_mended(choice):
                return None
            continue
        message = found.message
        for call in message.tool_calls or ():
            if (named := call.function or call.custom) is not None:
                names.append(named.name)
        if message.function_call is not None:
            names.append(message.function_call.name)
    return tuple(filter(None, names))


def _may_be_mended(choice: Raw) -> bool:
    found = _decode_odd_choice_peek(choice)
    calls = found.message.tool_calls if found is not None else None
    return bool(calls) and all(isinstance(call.get("function", call.get("custom")), dict) for call in calls or ())
