"""Whole Responses answers, read and written: the items of `output`, the status as finish reason, and the usage."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from msgspec import Raw, Struct

from toolwire.core.codec import ResponsePeek, WriteContext
from toolwire.core.envelopes import EMPTY_ENVELOPE
from toolwire.core.errors import NOTHING_SAID, expect_answer
from toolwire.core.ids import derive_id, is_legal_id
from toolwire.core.ir import (
    EMPTY_MAPPING,
    Call,
    Choice,
    Failure,
    Finish,
    Logprobs,
    Media,
    Opaque,
    Origin,
    Part,
    ProviderCall,
    ProviderResult,
    Reasoning,
    Refusal,
    Request,
    Response,
    Text,
    Usage,
    read_service_tier,
    says_something,
    source_path,
)
from toolwire.core.json_values import (
    Json,
    Malformed,
    Object,
    Path,
    expect_list,
    expect_object,
    get_list,
    get_object,
    get_text,
    get_timestamp,
)
from toolwire.core.logprobs import write_openai_logprobs
from toolwire.core.losses import Ledger
from toolwire.core.provenance import ReadContext, is_verbatim, items_with_paths, partial_decoder
from toolwire.core.provider_tools import carry_call_id
from toolwire.protocols.openai_responses import names
from toolwire.protocols.openai_responses.content import (
    list_answer_losses,
    read_item_origin,
    read_part,
    split_logprobs,
    write_part,
)
from toolwire.protocols.openai_responses.errors import read_error_body, write_stream_error
from toolwire.protocols.openai_responses.items import (
    is_run_by_provider,
    read_model_item,
    write_call,
    write_provider_item,
    write_reasoning,
)
from toolwire.protocols.openai_responses.names import NAME, intact_wire, is_own

MESSAGE_ITEM_KEYS = names.RESPONSE_MESSAGE_KEYS | {"id", "status"}
USAGE_KEYS = frozenset("input_tokens input_tokens_details output_tokens output_tokens_details total_tokens".split())


def read_response(body: Object) -> Response:
    reading = ReadContext(NAME)
    if body.get("output") is None:
        if body.get("error"):
            return Response(failure=read_error_body(body, 0, None), origin=Origin(NAME, None, body))
        raise Malformed(None, "this is not a Responses answer: `output` is missing")
    parts: list[Part] = []
    for number, item in enumerate(expect_list(body["output"], (None, "output"))):
        at = ((None, "output"), number)
        parts += read_output_item(expect_object(item, at), at, reading)
    failure = read_failure(body, None)
    finish = None if failure else read_finish(body, Call in map(type, parts), None)
    choices = (Choice(0, tuple(parts), finish),) if parts or finish else ()
    note_service_tier(body, None, reading)
    response = Response(
        get_text(body, "id", None) or "",
        get_text(body, "model", None) or "",
        get_timestamp(body, "created_at", None),
        choices,
        read_usage(body, None, reading),
        failure,
        reading.read_origin(body, None, names.RESPONSE_KEYS),
        tuple(list_answer_losses(reading)),
    )
    if failure is None and not any(map(says_something, parts)) and not is_ended(body):
        raise Malformed(None, f"this is not an answer: {NOTHING_SAID}, and its status is {body['status']!r}")
    return expect_answer(response)


def note_service_tier(body: Object, path: Path, reading: ReadContext) -> None:
    """Note the tier that served an answer, unless it is the usual one: no other protocol has a field for it."""
    if body.get("service_tier") not in (None, "auto", "default"):
        reading.note_unknown_field(path, "service_tier")


def is_ended(body: Object) -> bool:
    """False for an answer that is not yet made. OpenAI gives one only to a request for a background response, and says
    so in it."""
    return body.get("status") not in names.UNFINISHED_STATUSES or body.get("background") is True


def read_output_item(node: Object, path: Path, reading: ReadContext) -> tuple[Part, ...]:
    """The parts of an item. Those of a message have the item as their origin, so that it can be given back whole. An
    item without a type is a message, as in a stream."""
    if (node.get("type") or "message") != "message":
        return read_model_item(node, path, reading)
    origin = read_item_origin(reading, node, path, names.RESPONSE_MESSAGE_KEYS, "id")
    parts: list[Part] = []
    for value, at in items_with_paths(get_list(node, "content", path) or [], (path, "content")):
        logprobs: Logprobs = ()
        if isinstance(value, dict) and value.get("logprobs"):
            value, logprobs = split_logprobs(value, at, reading)
        part = read_part(value, at, reading)
        if isinstance(part, Text):
            item = Origin(NAME, at, origin.wire, origin.extra)
            part = Text(part.text, part.citations, origin=item, logprobs=logprobs)
        elif isinstance(part, Refusal):
            part = Refusal(part.text, Origin(NAME, at, origin.wire, origin.extra))
        parts.append(part)
    return tuple(parts)


def read_finish(body: Object, has_calls: bool, path: Path) -> Finish:
    status = get_text(body, "status", path) or ""
    if status == "incomplete":
        details = get_object(body, "incomplete_details", path) or {}
        reason = get_text(details, "reason", (path, "incomplete_details")) or ""
        if reason in names.INCOMPLETE_REASONS:
            return Finish(names.INCOMPLETE_REASONS[reason], reason)
        # For other protocols the answer is cut, whatever the reason: it must not look like the end of a turn.
        return Finish("length", reason or status, detail=reason)
    if status in names.UNFINISHED_STATUSES:
        return Finish("other", status)
    return Finish("calls" if has_calls else "stop", status)


def read_failure(body: Object, path: Path) -> Failure | None:
    status = get_text(body, "status", path)
    if status == "cancelled":
        return Failure("cancelled", "the answer was cancelled", 499, "cancelled", origin=Origin(NAME, path, body))
    error = body.get("error")
    if status != "failed" and not (error and status not in names.COMPLETED_STATUSES):
        return None
    body = error if isinstance(error, dict) else {"message": str(error or "the answer failed")}
    return read_error_body(body, 0, (path, "error"))


_COUNT_KEYS = ("input_tokens", "output_tokens", "total_tokens")
_CACHE_COUNT_KEYS = ("cached_tokens", "cache_write_tokens")


def read_usage(body: Object, path: Path, reading: ReadContext) -> Usage | None:
    node = reading.get_counted(body, "usage", path)
    if node is None:
        return None
    at = (path, "usage")
    taken = reading.get_counted(node, "input_tokens_details", at) or {}
    given = reading.get_counted(node, "output_tokens_details", at) or {}
    input, output, total = reading.read_counts(node, _COUNT_KEYS, at)
    cached, cache_written = reading.read_counts(taken, _CACHE_COUNT_KEYS, (at, "input_tokens_details"))
    (reasoning,) = reading.read_counts(given, ("reasoning_tokens",), (at, "output_tokens_details"))
    origin = reading.read_origin(node, at, USAGE_KEYS)
    searches, tier = _count_searches(body.get("output")), read_service_tier(body.get("service_tier"))
    return Usage(
        input or 0, output or 0, cached, cache_written, reasoning, total, origin, searches=searches, service_tier=tier
    )


def _count_searches(items: Json) -> int | None:
    """OpenAI counts searches as calls, and not in the usage. Opening a page of the results is not a search."""
    if not isinstance(items, list):
        return None
    calls = (item for item in items if isinstance(item, dict) and item.get("type") == "web_search_call")
    actions = (action if isinstance(action := call.get("action"), dict) else {} for call in calls)
    return sum(action.get("type", "search") == "search" for action in actions) or None


class _ResponsePeek(Struct, gc=False):
    output: Raw
    status: str
    model: str = ""
    usage: Object | None = None
    error: Json = None
    service_tier: Json = None


_decode_peek, _decode_items = partial_decoder(_ResponsePeek), partial_decoder(list[Object])


def peek_response(data: bytes) -> ResponsePeek | None:
    found = _decode_peek(data)
    if found is None or found.error is not None or found.status != names.FINISH_STATUSES["stop"][0]:
        return None
    has_calls = data.find(b'"call_id"') >= 0 or data.find(b'"web_search_call"') >= 0
    items = _decode_items(found.output) if has_calls else None
    body = {"usage": found.usage, "output": items, "service_tier": found.service_tier}
    usage = read_usage(body, None, ReadContext(NAME))
    return ResponsePeek(found.model, usage, tuple(_find_called_tools(items or [])))


def _find_called_tools(items: list[Object]) -> Iterator[str]:
    for item in items:
        kind = item.get("type")
        shape = names.SHAPE_BY_CALL_TYPE.get(kind) if isinstance(kind, str) else None
        if shape is not None and not is_run_by_provider(item):
            yield shape.name or str(item.get("name") or "")


def write_response(response: Response, ledger: Ledger, context: WriteContext) -> Object:
    if (wire := intact_wire(response.origin)) is not None:
        return wire
    out = new_response(response.id, response.model, response.created, context, ledger.source == NAME)
    if is_own(response.origin):
        out.update(response.origin.extra)
    choice = response.choices[0] if response.choices else Choice(0, ())
    for other in response.choices[1:]:
        ledger.note("no-counterpart", source_path(other), f"choice {other.index} was left out")
    finish, parts = choice.finish, choice.parts
    out["output"] = _write_output(parts, finish, out["id"], needs_reasoning_item(context.request, ledger), ledger)
    if response.usage is not None:
        out["usage"] = write_usage(response.usage)
    if response.failure is not None:
        out["status"], out["error"] = "failed", write_stream_error(response.failure)
    else:
        refused = finish is not None and finish.kind == "refusal" and Refusal in map(type, parts)
        write_end_fields(out, finish, refused, ledger, context)
    return out


def new_response(id: str, model: str, created: int | None, context: WriteContext, is_own_id: bool = False) -> Object:
    """An answer in progress with every key that clients insist on. `is_own_id`: the id is one of OpenAI's."""
    out = {**names.RESPONSE_DEFAULTS, "output": [], "tools": []}
    write_start_fields(out, id, model, created, context, is_own_id)
    return out


def write_start_fields(
    out: Object, id: str, model: str, created: int | None, context: WriteContext, is_own_id: bool
) -> None:
    """Write what is known at the start of an answer: id, model, time, and what repeats the request."""
    request = context.request
    origin = None if request is None else request.origin
    if is_own(origin):
        for key in filter(names.ECHOED_KEYS.__contains__, origin.wire):
            if (value := origin.wire[key]) is not None:
                out[key] = value
        if tools := out.get("tools"):
            # With the `strict` that was used; most clients send it themselves.
            out["tools"] = [
                {**tool, "strict": False}
                if isinstance(tool, dict) and tool.get("strict") is None and tool.get("type") == "function"
                else tool
                for tool in tools
            ]
    out["id"] = response_id(id, "" if is_own_id and id else context.seed)
    out["created_at"] = context.now if created is None else created
    out["model"] = model or (request.model if request is not None else "")


def response_id(id: str, seed: str) -> str:
    """OpenAI's own id is kept. Another provider may give one id to many answers, so a new one is made with the seed."""
    if seed and seed != id:
        return derive_id("resp_", f"{id}|{seed}" if id else seed)
    return id if id.startswith("resp_") and is_legal_id(id, limit=64) else derive_id("resp_", id)


def write_end_fields(
    out: Object, finish: Finish | None, has_refusal: bool, ledger: Ledger, context: WriteContext
) -> None:
    """Write the status of a finished answer, with its reason, and usage if there is none."""
    status, reason = write_finish(finish, has_refusal, ledger)
    out["status"] = status
    if status == "completed":
        out["completed_at"] = max(context.now, out.get("created_at") or 0)
    elif status in names.UNFINISHED_STATUSES:
        out["background"] = True
    elif status == "incomplete":
        out["incomplete_details"] = {"reason": reason}
    elif status == "failed":
        out["error"] = {"code": reason, "message": f"the model's answer was malformed ({finish.raw if finish else ''})"}
    if out.get("usage") is None and ledger.source != NAME:
        out["usage"] = write_usage(Usage())
        why = "some agents ask again for ever when an answer has no usage"
        ledger.note("default-added", (None, "usage"), "the provider sent no usage: zeros were written", why)


def write_finish(finish: Finish | None, has_refusal: bool, ledger: Ledger) -> tuple[str, str]:
    """The status of an answer, and the reason or error code that goes with it."""
    if finish is None:
        return names.FINISH_STATUSES["stop"]
    if finish.kind == "length" and finish.detail and ledger.source == NAME:
        return names.FINISH_STATUSES["length"][0], finish.detail
    ledger.note_finish_detail(finish)
    ledger.note_stop_sequence(finish)
    if finish.kind == "refusal" and has_refusal:
        return names.FINISH_STATUSES["stop"]
    status, reason = names.FINISH_STATUSES[finish.kind]
    if finish.kind in names.EXACT_FINISH_KINDS:
        return status, reason
    if finish.kind == "other" and finish.raw in names.UNFINISHED_STATUSES:
        return finish.raw, ""
    if finish.kind == "other" and ledger.source == NAME and finish.raw:
        return status, finish.raw
    word = finish.raw or finish.kind
    ledger.note("finish-mapped", source_path(finish), f"the finish reason {word!r} became {reason or status!r}")
    return status, reason


def write_usage(usage: Usage) -> Object:
    if (wire := intact_wire(usage.origin)) is not None:
        return wire
    return {
        "input_tokens": usage.input,
        "input_tokens_details": {"cached_tokens": usage.cache_read or 0, "cache_write_tokens": usage.cache_write or 0},
        "output_tokens": usage.output,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning or 0},
        "total_tokens": usage.input + usage.output if usage.total is None else usage.total,
    }


def needs_reasoning_item(request: Request | None, ledger: Ledger) -> bool:
    """Does the client wait for a reasoning item? Some hang when they asked for reasoning and none comes."""
    if request is None or ledger.source == NAME:
        return False
    thinking, origin = request.settings.thinking, request.origin
    if thinking is not None and (thinking.effort or thinking.summary):
        return thinking.effort != "none"
    include = origin.wire.get("include") if is_own(origin) else None
    return isinstance(include, list) and names.INCLUDE_ENCRYPTED_REASONING in include


class ItemIds(Struct, eq=False):
    """The ids of the items of one answer. A legal id is kept once, otherwise one is made from the position."""

    response_id: str = ""
    used: set[str] = set()

    def assign_id(self, prefix: str, given: str, number: int) -> str:
        if not given or not given.startswith(prefix) or given in self.used:
            stem = self.response_id[5:] if len(self.response_id) <= 50 else ""  # otherwise it would become too long
            given = f"{prefix}{stem}_{number}" if stem else derive_id(prefix, self.response_id, number)
        self.used.add(given)
        return given

    def assign_provider_id(self, tool: str, given: str, number: int) -> str:
        """The id of a call that the provider ran: with the provider's own id in it."""
        prefix = names.PROVIDER_ITEM_BY_TOOL[tool][1]
        return self.assign_id(prefix, carry_call_id(given, prefix), number)


# --- writing items --------------------------------------------------------------------------------------------------


def _write_output(
    parts: tuple[Part, ...], finish: Finish | None, response_id: str, needs_reasoning: bool, ledger: Ledger
) -> list[Object]:
    items: list[Object] = []
    ids = ItemIds(response_id)
    if needs_reasoning and Reasoning not in map(type, parts):
        items.append(empty_reasoning_item(ids.assign_id("rs_", "", 0)))
        ledger.note("reasoning-added", None, "an empty reasoning item was put first")
    start = 0
    for end in range(1, len(parts) + 1):
        if end < len(parts) and shares_item(parts[end - 1], parts[end]):
            continue
        item = _write_item(parts[start:end], ids, len(items), ledger)
        start = end
        if item is not None:
            items.append(item)
    cut = finish is not None and finish.kind in names.INCOMPLETE_FINISH_KINDS
    if cut and parts and not is_verbatim(parts[-1].origin, NAME) and items and items[-1].get("type") == "message":
        items[-1]["status"] = "incomplete"
    return items


def is_message_part(part: Part) -> bool:
    kind = type(part)
    return kind is Text or kind is Refusal or (type(part) is Opaque and part.kind.startswith(names.CONTENT_KIND_PREFIX))


def shares_item(before: Part, part: Part) -> bool:
    if part.__class__ is ProviderResult:
        return isinstance(before, ProviderCall) and before.id == part.id
    if not is_message_part(part) or not is_message_part(before):
        return False
    if is_own(before.origin) and is_own(part.origin) and Opaque not in (type(before), type(part)):
        return before.origin.wire is part.origin.wire
    return True


def empty_reasoning_item(id: str) -> Object:
    """An item for clients that wait for one. It holds an empty envelope, so it never goes to a provider."""
    return {"type": "reasoning", "id": id, "summary": [], "encrypted_content": EMPTY_ENVELOPE}


def _write_item(run: Sequence[Part], ids: ItemIds, number: int, ledger: Ledger) -> Object | None:
    part = run[0]
    if is_message_part(part):
        return _write_message(run, ids, number, ledger)
    if (wire := intact_wire(part.origin)) is not None:
        return wire
    match part:
        case Call():
            shape = names.SHAPE_BY_KIND.get(part.kind, names.SHAPE_BY_KIND["function"])
            status = "incomplete" if part.incomplete else "completed"
            return write_call(part, ledger, ids.assign_id(shape.id_prefix, part.item_id, number), status)
        case Reasoning():
            return write_reasoning(part, ledger, ids.assign_id("rs_", part.id, number))
        case ProviderCall(tool=tool) if tool in names.PROVIDER_ITEM_BY_TOOL:
            result = run[1] if len(run) > 1 and isinstance(run[1], ProviderResult) else None
            return write_provider_item(part, result, ledger, ids.assign_provider_id(tool, part.id, number))
        case Media(kind="image") if part.data:
            return write_image_item(part, ids.assign_id("ig_", "", number), ledger)
        case _:
            note_dropped_part(part, ledger)
    return None


def write_image_item(part: Media, id: str, ledger: Ledger) -> Object:
    ledger.note_media_name(part)
    form = part.mime.partition("/")[2] or "png"
    item = {"type": "image_generation_call", "id": id, "status": "completed", "output_format": form}
    return {**item, "result": part.data}


def note_dropped_part(part: Part, ledger: Ledger) -> None:
    if isinstance(part, Opaque):
        ledger.note_opaque(part)
    elif isinstance(part, (ProviderCall, ProviderResult)):
        ledger.note_provider_part(part)
    elif isinstance(part, Media):
        ledger.note("media-dropped", source_path(part), f"{part.kind} was left out")
    else:
        ledger.note("part-dropped", source_path(part), f"a part of type {type(part).__name__} was left out")


def _write_message(run: Sequence[Part], ids: ItemIds, number: int, ledger: Ledger) -> Object:
    wire = source_message(run[0])
    if wire is not None and is_whole_message(run, wire):
        return wire
    content = [one for part in run if (one := write_content_part(part, ledger)) is not None]
    id = ids.assign_id("msg_", "" if wire is None else str(wire.get("id") or ""), number)
    out: Object = {"id": id, "type": "message", "status": "completed", "role": "assistant", "content": content}
    return out if wire is None else {**out, **unknown_message_keys(run[0])}


def is_whole_message(run: Sequence[Part], message: Object) -> bool:
    """Are these all the parts of the message, unchanged?"""
    return len(run) == len(message.get("content") or ()) and all(is_verbatim(part.origin, NAME) for part in run)


def source_message(part: Part) -> Object | None:
    """The message item that a part was read from, if it was read from this protocol."""
    wire = part.origin.wire if is_own(part.origin) else None
    return wire if isinstance(wire, dict) and wire.get("type") == "message" else None


def write_content_part(part: Part, ledger: Ledger) -> Object | None:
    """A part of an answer's message. OpenAI's SDKs demand `logprobs` beside every text of an answer."""
    out = write_part(part, "output", ledger)
    if out is not None and isinstance(part, Text):
        out["logprobs"] = write_openai_logprobs(part.logprobs, derives_bytes=True) if part.logprobs else []
    elif isinstance(part, Refusal):
        ledger.note_logprobs(part.logprobs)
    return out


def unknown_message_keys(first: Part) -> Mapping[str, Json]:
    """The unknown keys (`phase`) of the message item that a part was read from."""
    if not is_own(first.origin) or source_message(first) is None:
        return EMPTY_MAPPING
    return {key: value for key, value in first.origin.extra.items() if key not in MESSAGE_ITEM_KEYS}
