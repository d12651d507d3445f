"""A whole answer: its items as parts, its status as an ending, and back with every key that clients insist on."""

from __future__ import annotations

from msgspec import Raw, Struct

from toolwire.ids import legal, made
from toolwire.ir import Call, Choice, Failure, Finish, Origin, Part, Refusal, Request, Response, Text, Usage, place
from toolwire.loss import Ledger
from toolwire.protocols.openai_responses.details.items import read_model_item
from toolwire.protocols.openai_responses.details.output import write_output
from toolwire.protocols.openai_responses.errors import failure_of, stream_error
from toolwire.protocols.openai_responses.names import (
    ANSWER_MESSAGE,
    COARSE,
    COMPLETE,
    ECHOED,
    ENDINGS,
    NAME,
    REASONS,
    RESPONSE,
    UNFINISHED,
    USAGE,
    blank,
)
from toolwire.protocols.openai_responses.parts import read_part, stamped
from toolwire.reading import Reading, glancing, numbered, verbatim
from toolwire.room import Context, Glance
from toolwire.wire import (
    Json,
    Malformed,
    Object,
    Path,
    as_list,
    as_object,
    take_int,
    take_list,
    take_object,
    take_text,
)

# --- reading --------------------------------------------------------------------------------------------------------


def read_response(body: Object) -> Response:
    reading = Reading(NAME)
    if body.get("output") is None:
        if body.get("error"):
            return Response(failure=failure_of(body, 0, None), origin=Origin(NAME, None, body))
        raise Malformed(None, "`output` is missing")
    parts: list[Part] = []
    for number, item in enumerate(as_list(body["output"], (None, "output"))):
        at = ((None, "output"), number)
        parts += read_output_item(as_object(item, at), at, reading)
    failure = read_failure(body, None)
    finish = None if failure else read_finish(body, Call in map(type, parts), None)
    choices = (Choice(0, tuple(parts), finish),) if parts or finish else ()
    return Response(
        take_text(body, "id", None) or "",
        take_text(body, "model", None) or "",
        take_int(body, "created_at", None),
        choices,
        read_usage(body, None, reading),
        failure,
        reading.origin(body, None, RESPONSE),
        tuple(reading.strays),
    )


def read_output_item(node: Object, path: Path, reading: Reading) -> tuple[Part, ...]:
    """The parts of an item. Those of a message share the item as their origin, so that it can be put together again."""
    if node.get("type") != "message":
        return read_model_item(node, path, reading)
    origin = stamped(reading, node, path, ANSWER_MESSAGE, "id")
    content = take_list(node, "content", path) or []
    parts = []
    for value, at in numbered(content, (path, "content")):
        parts.append(in_message(read_part(as_object(value, at), at, reading), origin, at))
    return tuple(parts)


def in_message(part: Part, item: Origin, path: Path) -> Part:
    origin = Origin(NAME, path, item.wire, item.extra)
    if isinstance(part, Text):
        return Text(part.text, part.citations, origin=origin)
    if isinstance(part, Refusal):
        return Refusal(part.text, origin)
    return part


def read_finish(body: Object, called: bool, path: Path) -> Finish:
    status = take_text(body, "status", path) or "completed"
    if status == "incomplete":
        details = take_object(body, "incomplete_details", path) or {}
        reason = take_text(details, "reason", (path, "incomplete_details")) or ""
        return Finish(REASONS.get(reason, "other"), reason or status)
    if status in UNFINISHED:
        return Finish("other", status)
    return Finish("calls" if called else "stop", status)


def read_failure(body: Object, path: Path) -> Failure | None:
    status = take_text(body, "status", path)
    if status == "cancelled":
        return Failure("cancelled", "the answer was cancelled", 499, "cancelled", origin=Origin(NAME, path, body))
    error = body.get("error")
    if status != "failed" and not (error and status not in COMPLETE):
        return None
    return failure_of(
        error if isinstance(error, dict) else {"message": str(error or "the answer failed")}, 0, (path, "error")
    )


def read_usage(body: Object, path: Path, reading: Reading) -> Usage | None:
    node = take_object(body, "usage", path)
    if node is None:
        return None
    at = (path, "usage")
    taken = take_object(node, "input_tokens_details", at) or {}
    given = take_object(node, "output_tokens_details", at) or {}
    return Usage(
        take_int(node, "input_tokens", at) or 0,
        take_int(node, "output_tokens", at) or 0,
        take_int(taken, "cached_tokens", (at, "input_tokens_details")),
        take_int(taken, "cache_write_tokens", (at, "input_tokens_details")),
        take_int(given, "reasoning_tokens", (at, "output_tokens_details")),
        take_int(node, "total_tokens", at),
        reading.origin(node, at, USAGE),
    )


# --- writing --------------------------------------------------------------------------------------------------------


def write_response(response: Response, ledger: Ledger, context: Context) -> Object:
    origin = response.origin
    if origin is not None and origin.protocol != NAME:
        origin = None
    if origin is not None and origin.intact:
        wire: Object = origin.wire
        return wire
    out = opened(response.id, response.model, response.created, context, ledger.source == NAME)
    if origin is not None:
        out.update(origin.extra)
    choices = response.choices
    choice = choices[0] if choices else Choice(0, ())
    if len(choices) > 1:
        for other in choices[1:]:
            ledger.note("no-counterpart", place(other), f"choice {other.index} was left out")
    failed, finish, parts = response.failure, choice.finish, choice.parts
    think = waits_for_thought(context.request, ledger)
    out["output"] = write_output(parts, finish, out["id"], think, ledger)
    if response.usage is not None:
        out["usage"] = write_usage(response.usage)
    if failed is not None:
        out["status"], out["error"] = "failed", stream_error(failed)
    else:
        refused = finish is not None and finish.kind == "refusal" and Refusal in map(type, parts)
        close(out, finish, refused, ledger, context)
    return out


def opened(id: str, model: str, created: int | None, context: Context, given: bool = False) -> Object:
    """An answer in progress: every key that clients insist on, and what the request said. `given`: its id is one that
    a provider of this protocol gave."""
    out = blank()
    begin(out, id, model, created, context, given)
    return out


def begin(out: Object, id: str, model: str, created: int | None, context: Context, given: bool) -> None:
    """Put in what is known of an answer at its beginning: its names, and what the request said."""
    request = context.request
    origin = None if request is None else request.origin
    if origin is not None and origin.protocol == NAME:
        wire: Object = origin.wire
        for key, said in wire.items():
            if said is not None and key in ECHOED:
                out[key] = said
        if tools := out.get("tools"):
            out["tools"] = _effective(tools)
    out["id"] = answer_id(id, "" if given and id else context.seed)
    out["created_at"] = context.now if created is None else created
    out["model"] = model or (request.model if request is not None else "")


def answer_id(id: str, seed: str) -> str:
    """An id that is one of this protocol's is kept. Some providers give one id to many answers, so the seed of this
    answer goes into what is made of theirs."""
    if seed and seed != id:
        return made("resp_", f"{id}|{seed}" if id else seed)
    return id if id.startswith("resp_") and legal(id, limit=64) else made("resp_", id)


def _effective(tools: list[Json]) -> list[Json]:
    """Functions are told back with the strictness they really have; most clients say it themselves."""
    for tool in tools:
        if tool.__class__ is dict and tool.get("strict") is None:
            return [_strictly(tool) for tool in tools]
    return tools


def _strictly(tool: Json) -> Json:
    if tool.__class__ is dict and tool.get("strict") is None and tool.get("type") == "function":
        return {**tool, "strict": False}
    return tool


def close(out: Object, finish: Finish | None, refused: bool, ledger: Ledger, context: Context) -> None:
    """Set how the answer ended."""
    status, reason = write_finish(finish, refused, ledger)
    out["status"] = status
    if status == "completed":
        out["completed_at"] = max(context.now, out.get("created_at") or 0)
    elif status == "incomplete":
        out["incomplete_details"] = {"reason": reason}
    elif status == "failed":
        out["error"] = {"code": reason, "message": f"the model's answer was malformed ({finish.raw if finish else ''})"}
    if out.get("usage") is None and ledger.source != NAME:
        out["usage"] = write_usage(Usage())
        why = "some agents ask again for ever when the end of an answer tells no counts"
        ledger.note("default-added", (None, "usage"), "counts of zero stand for counts that nobody gave", why)


PLAIN = frozenset(kind for kind, ending in ENDINGS.items() if ending == ("completed", "")) - COARSE
"""Endings that need no word."""


def write_finish(finish: Finish | None, refused: bool, ledger: Ledger) -> tuple[str, str]:
    """The status of an answer, and the reason or error code that goes with it."""
    if finish is None or finish.kind in PLAIN:
        return "completed", ""
    if finish.kind == "refusal" and refused:
        return "completed", ""
    if finish.kind == "other" and finish.raw in UNFINISHED:
        return finish.raw, ""
    status, reason = ENDINGS[finish.kind]
    if finish.kind == "other" and ledger.source == NAME and finish.raw:
        return status, finish.raw
    if finish.kind in COARSE:
        ledger.note(
            "finish-mapped", place(finish), f"the ending {finish.raw or finish.kind!r} became {reason or status!r}"
        )
    return status, reason


def write_usage(usage: Usage) -> Object:
    origin = usage.origin
    if origin is not None and verbatim(origin, NAME):
        wire: Object = origin.wire
        return wire
    return {
        "input_tokens": usage.input,
        "input_tokens_details": {"cached_tokens": usage.cache_read or 0, "cache_write_tokens": usage.cache_write or 0},
        "output_tokens": usage.output,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning or 0},
        "total_tokens": usage.input + usage.output if usage.total is None else usage.total,
    }


def waits_for_thought(request: Request | None, ledger: Ledger) -> bool:
    """Does the client wait for reasoning? Some hang when they asked another's model for it and no such item comes."""
    return request is not None and ledger.source != NAME and asks_for_thought(request)


def asks_for_thought(request: Request) -> bool:
    thinking, origin = request.settings.thinking, request.origin
    if thinking is not None and thinking.effort == "none":
        return False
    if thinking is not None and (thinking.effort or thinking.show):
        return True
    if origin is None or origin.protocol != NAME or "include" not in origin.wire:
        return False
    wanted = origin.wire["include"]
    return isinstance(wanted, list) and "reasoning.encrypted_content" in wanted


# --- at a glance ------------------------------------------------------------------------------------------------------


class _Glance(Struct, gc=False):
    output: Raw
    status: str
    model: str = ""
    usage: Object | None = None
    error: Json = None


_glance = glancing(_Glance)


def glance(data: bytes) -> Glance | None:
    found = _glance(data)
    if found is None or found.error is not None or found.status != "completed":
        return None
    return Glance(found.model, read_usage({"usage": found.usage}, None, Reading(NAME)))
