"""Whole answers, and what streams share with them: the stop reason and the usage."""

from __future__ import annotations

from msgspec import Raw, Struct

from toolwire.core.codec import ResponsePeek, WriteContext
from toolwire.core.errors import expect_answer
from toolwire.core.ir import (
    EMPTY_MAPPING,
    Call,
    Choice,
    Finish,
    Origin,
    Part,
    Refusal,
    Request,
    Response,
    Text,
    Usage,
    read_service_tier,
    source_path,
)
from toolwire.core.json_values import (
    Malformed,
    Object,
    Path,
    find_count,
    get_object,
    get_text,
)
from toolwire.core.losses import Ledger
from toolwire.core.provenance import ReadContext, partial_decoder, restore_original_keys
from toolwire.protocols.bedrock_converse import names
from toolwire.protocols.bedrock_converse.content import ResponseReadContext, Writing, read_content, write_content
from toolwire.protocols.bedrock_converse.errors import read_error, write_error
from toolwire.protocols.bedrock_converse.names import NAME, intact_wire, is_own

_CONTENT_PATH: Path = (((None, "output"), "message"), "content")
_USAGE_PATH: Path = (None, "usage")

# --- reading --------------------------------------------------------------------------------------------------------


def read_response(body: Object) -> Response:
    reading = ResponseReadContext(NAME)
    output = get_object(body, "output", None)
    message = get_object(output, "message", (None, "output")) if output is not None else None
    if message is None:
        if "message" in body or "Message" in body or "__type" in body:
            return Response(failure=read_error(body, 0, EMPTY_MAPPING), origin=reading.whole_origin(body, None))
        raise Malformed(None, "this is not an answer of Converse: `output.message` is missing")
    content = message.get("content")
    parts = () if content is None else read_content(content, _CONTENT_PATH, reading)
    reading.read_origin(message, ((None, "output"), "message"), names.TURN_KEYS)
    usage = reading.get_counted(body, "usage", None)
    response = Response(
        "",
        read_invoked_model(body),
        None,
        (Choice(0, parts, read_finish(body, None, has_calls(parts), reading), Origin(NAME, _CONTENT_PATH, content)),),
        None if usage is None else read_usage(usage, _USAGE_PATH, reading, body),
        None,
        read_metadata_origin(body, None, reading),
        tuple(reading.unknown_fields),
    )
    return expect_answer(response)


def has_calls(parts: tuple[Part, ...]) -> bool:
    return any(type(part) is Call for part in parts)


def read_invoked_model(body: Object) -> str:
    """The model that a prompt router has chosen. Converse names no other."""
    trace = body.get("trace")
    router = trace.get("promptRouter") if isinstance(trace, dict) else None
    model = router.get("invokedModelId") if isinstance(router, dict) else None
    return model if isinstance(model, str) else ""


def read_metadata_origin(body: Object, path: Path, reading: ReadContext) -> Origin:
    """The origin of an answer or of its last event, with the traces of guardrails noted."""
    trace, tier = body.get("trace"), body.get("serviceTier")
    for key in trace if isinstance(trace, dict) else ():
        if key != "promptRouter":
            reading.note_unknown_field((path, "trace"), key)
    metrics = body.get("metrics")
    for key, value in metrics.items() if isinstance(metrics, dict) else ():
        if value:
            reading.note_unknown_field((path, "metrics"), key)
    if isinstance(tier, dict) and not read_service_tier(tier.get("type")):
        reading.note_unknown_field((path, "serviceTier"), "type")
    return reading.read_origin(body, path, names.RESPONSE_KEYS)


def read_finish(node: Object, path: Path, called: bool, reading: ReadContext) -> Finish | None:
    """The stop reason. Whether there are calls is told by the blocks: Claude was seen to stop with `end_turn` behind
    calls (strands#1827), and other models with `tool_use` behind none."""
    reason = get_text(node, "stopReason", path)
    if reason is None:
        return None
    kind = names.KIND_BY_STOP_REASON.get(reason, "other")
    if kind in ("stop", "calls"):
        kind = "calls" if called else "stop"
    more = get_object(node, "additionalModelResponseFields", path) or {}
    sequence = more.get("stop_sequence")
    for key in more:
        if key != "stop_sequence" or not isinstance(sequence, str | None):
            reading.note_unknown_field((path, "additionalModelResponseFields"), key)
    wire = {key: node[key] for key in ("stopReason", "additionalModelResponseFields") if key in node}
    origin = Origin(NAME, (path, "stopReason"), wire)
    return Finish(kind, reason, sequence if isinstance(sequence, str) else "", origin=origin)


_COUNT_KEYS = ("inputTokens", "outputTokens", "totalTokens", "cacheReadInputTokens", "cacheWriteInputTokens")


def read_usage(usage: Object, path: Path, reading: ReadContext, body: Object) -> Usage:
    """Token counts. `inputTokens` are those that were neither read from a cache nor written to one."""
    fresh, output, total, read, written = reading.read_counts(usage, _COUNT_KEYS, path)
    long_lived = 0
    details = usage.get("cacheDetails")
    for detail in details if isinstance(details, list) else ():
        if isinstance(detail, dict) and detail.get("ttl") == "1h":
            long_lived += find_count(detail, "inputTokens") or 0
    tier = body.get("serviceTier")
    return Usage(
        (fresh or 0) + (read or 0) + (written or 0),
        output or 0,
        read,
        written,
        total=total,
        origin=reading.read_origin(usage, path, names.USAGE_KEYS),
        cache_write_1h=long_lived or None,
        service_tier=read_service_tier(tier.get("type")) if isinstance(tier, dict) else "",
    )


# --- writing --------------------------------------------------------------------------------------------------------


def write_response(response: Response, ledger: Ledger, context: WriteContext) -> Object:
    if (wire := intact_wire(response.origin)) is not None:
        return wire
    if response.failure is not None:
        body: Object = write_error(response.failure).body
        return body
    choice = response.choices[0] if response.choices else Choice(0, ())
    if len(response.choices) > 1:
        ledger.note_other_choices(response, "Converse gives one answer only")
    for part in choice.parts:
        if type(part) is Text or type(part) is Refusal:
            ledger.note_logprobs(part.logprobs)
    note_names(response.id, response.model, response.origin, ledger)
    content = write_content(choice.parts, Writing(ledger, in_response=True))
    refused = any(type(part) is Refusal for part in choice.parts)
    out: Object = {
        "output": {"message": {"role": "assistant", "content": content}},
        **write_finish(choice.finish, has_calls(choice.parts), refused, ledger, context.request),
        **write_metadata(response.usage, ledger),
    }
    return restore_original_keys(out, response.origin, NAME)


_NAME_KEYS = ("id", "responseId", "model", "modelVersion")


def note_names(id: str, model: str, origin: Origin | None, ledger: Ledger) -> None:
    """An answer has no id, and the client has named the model in the path."""
    where, wire = (None, None) if origin is None else (origin.path, origin.wire)
    for what, text, keys in (("id", id, _NAME_KEYS[:2]), ("model", model, _NAME_KEYS[2:])):
        if text:
            found = [key for key in keys if isinstance(wire, dict) and wire.get(key) == text]
            ledger.note(
                "no-counterpart", (where, (found or keys)[0]), f"the {what} of the answer was left out: `{text}`"
            )


def write_finish(finish: Finish | None, called: bool, refused: bool, ledger: Ledger, request: Request | None) -> Object:
    """`stopReason`, and the stop sequence where the client asked for it."""
    if finish is not None and (wire := intact_wire(finish.origin)) is not None:
        return wire
    finish = finish or Finish("stop")
    kind = finish.kind
    if kind in ("stop", "calls"):
        kind = "calls" if called else "filter" if refused else "stop"
    reason = finish.raw if names.KIND_BY_STOP_REASON.get(finish.raw) == kind else names.STOP_REASON_BY_KIND[kind]
    if kind in names.REPORTED_FINISH_KINDS and reason != finish.raw:
        what = f"the finish reason `{finish.raw or finish.kind}` became `{reason}`"
        ledger.note("finish-mapped", source_path(finish), what)
    ledger.note_finish_detail(finish)
    if not finish.sequence:
        return {"stopReason": reason}
    if not _asks_for_sequence(request):
        ledger.note_stop_sequence(finish)
        return {"stopReason": reason}
    return {"stopReason": reason, "additionalModelResponseFields": {"stop_sequence": finish.sequence}}


def _asks_for_sequence(request: Request | None) -> bool:
    wire = request.origin.wire if request is not None and is_own(request.origin) else None
    paths = wire.get("additionalModelResponseFieldPaths") if isinstance(wire, dict) else None
    return isinstance(paths, list) and "/stop_sequence" in paths


def write_metadata(usage: Usage | None, ledger: Ledger) -> Object:
    """The token counts, and what else clients find at this place."""
    if usage is None:
        ledger.note("default-added", None, "the token counts are 0", "the provider sent none")
        usage = Usage()
    uncounted = ("reasoning", "input_audio", "input_image", "output_audio", "output_image", "searches")
    if any(getattr(usage, field) for field in uncounted) and not is_own(usage.origin):
        ledger.note("usage-mapped", source_path(usage), "the counts of parts of the tokens were left out")
    out: Object = {"usage": intact_wire(usage.origin) or _write_counts(usage), "metrics": {"latencyMs": 0}}
    if usage.service_tier in names.SERVICE_TIERS:
        out["serviceTier"] = {"type": usage.service_tier}
    return out


def _write_counts(usage: Usage) -> Object:
    read, written = usage.cache_read or 0, usage.cache_write or 0
    fresh = max(0, usage.input - read - written) if read or written or usage.input < 0 else usage.input
    out: Object = {"inputTokens": fresh, "outputTokens": usage.output}
    out["totalTokens"] = usage.input + usage.output if usage.total is None else usage.total
    if usage.cache_read is not None or usage.cache_write is not None:
        out |= {"cacheReadInputTokens": read, "cacheWriteInputTokens": written}
    if usage.cache_write_1h:
        lifetimes = {"1h": usage.cache_write_1h, "5m": max(0, written - usage.cache_write_1h)}
        out["cacheDetails"] = [{"ttl": ttl, "inputTokens": count} for ttl, count in lifetimes.items() if count]
    return restore_original_keys(out, usage.origin, NAME)


# --- peeking --------------------------------------------------------------------------------------------------------


class _MessagePeek(Struct, gc=False):
    content: Raw


class _OutputPeek(Struct, gc=False):
    message: _MessagePeek


class _ResponsePeek(Struct, gc=False):
    output: _OutputPeek
    stopReason: str
    usage: Object | None = None
    serviceTier: Object | None = None


class _CallPeek(Struct, gc=False):
    name: str = ""
    type: str = ""


class _BlockPeek(Struct, gc=False):
    toolUse: _CallPeek | None = None


_decode_peek, _decode_blocks_peek = partial_decoder(_ResponsePeek), partial_decoder(list[_BlockPeek])


def peek_response(data: bytes) -> ResponsePeek | None:
    peek = _decode_peek(data)
    if peek is None:
        return None
    body: Object = {} if peek.serviceTier is None else {"serviceTier": peek.serviceTier}
    usage = read_usage(peek.usage, None, ReadContext(NAME), body) if peek.usage else None
    blocks = _decode_blocks_peek(peek.output.message.content) if data.find(b'"toolUse"') >= 0 else None
    calls = [block.toolUse for block in blocks or () if block.toolUse is not None and not block.toolUse.type]
    return ResponsePeek("", usage, tuple([call.name for call in calls]))
