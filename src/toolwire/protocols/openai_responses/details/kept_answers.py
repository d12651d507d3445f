"""Answers that are not the model's own making: begun and not there yet, ended badly, or told again as a stream."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import count
from types import MappingProxyType

from toolwire.core.codec import WriteContext
from toolwire.core.ids import derive_id
from toolwire.core.ir import Failure, Origin, Request
from toolwire.core.json_values import Json, Object
from toolwire.keeping import Wants
from toolwire.protocols.openai_responses.errors import write_stream_error
from toolwire.protocols.openai_responses.names import NAME, SHAPE_BY_CALL_TYPE, UNFINISHED_STATUSES
from toolwire.protocols.openai_responses.response import new_response
from toolwire.protocols.openai_responses.stream_state import EventSequence

NOT_STORED_FIELDS: Mapping[str, Json] = MappingProxyType({"store": False, "conversation": None})
"""What an answer says that could not be kept."""

_ID_PREFIXES: Mapping[str, str] = MappingProxyType({"response": "resp_", "conversation": "conv_"})


def make_id(kind: str, seed: str) -> str:
    return derive_id(_ID_PREFIXES[kind], seed)


def write_pending_response(body: Object, now: int, status: str) -> Object:
    model = body.get("model")
    asked = {**body, "tools": body.get("tools") if isinstance(body.get("tools"), list) else []}
    request = Request(model if isinstance(model, str) else "", origin=Origin(NAME, None, asked))
    out = new_response("", "", now, WriteContext(request, now))
    out["id"], out["status"] = "", status
    talk = body.get("conversation")
    if talk:
        out["conversation"] = talk if isinstance(talk, dict) else {"id": talk}
    return out


def write_ended_response(response: Object, status: str, failure: Failure | None) -> Object:
    error = None if failure is None else write_stream_error(failure)
    return {**response, "status": status, "error": error, "completed_at": None}


def write_state_fields(options: Wants, id: str, now: int) -> dict[str, Json]:
    said: dict[str, Json] = {"id": id, "created_at": now if id else None, "previous_response_id": options.previous}
    said["background"] = options.background
    said["conversation"] = {"id": options.conversation} if options.conversation else None
    return {key: value for key, value in said.items() if value}


def read_response_id(response: Object) -> str:
    return _text_field(response, "id")


def read_status(response: Object) -> str:
    return _text_field(response, "status")


def _text_field(response: Object, key: str) -> str:
    value = response.get(key)
    return value if isinstance(value, str) else ""


def read_output(response: Object) -> list[Object]:
    items = response.get("output")
    return [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []


# --- a whole answer as a stream ---------------------------------------------------------------------------------------

_EMPTY_END_FIELDS = MappingProxyType({"completed_at": None, "error": None, "incomplete_details": None, "usage": None})
_TERMINAL_EVENT_BY_STATUS: Mapping[str, str] = MappingProxyType(
    {"incomplete": "incomplete", "failed": "failed", "cancelled": "failed"}
)
"""The last event by the answer's status; there is none of its own for an answer that was cancelled."""


def write_response_stream(response: Object) -> bytes:
    out = EventSequence()
    word = read_status(response)
    waits = word == "queued"
    before = {**response, **_EMPTY_END_FIELDS, "status": "queued" if waits else "in_progress", "output": []}
    events = [out.write_event("response.created", {"response": before})]
    events.append(out.write_event("response.queued" if waits else "response.in_progress", {"response": before}))
    for number, item in enumerate(read_output(response)):
        events += _write_item_events(item, number, out)
    if word not in UNFINISHED_STATUSES:
        events.append(write_terminal_event(response, next(out.numbers)))
    return b"".join(events)


def write_terminal_event(response: Object, number: int) -> bytes:
    return EventSequence(count(number)).write_event(
        f"response.{_TERMINAL_EVENT_BY_STATUS.get(read_status(response), 'completed')}", {"response": response}
    )


def _write_item_events(item: Object, number: int, out: EventSequence) -> Iterator[bytes]:
    """An item opened, told and closed; one whose growth has no events is told whole."""
    bare, tell = _ITEM_WRITERS.get(str(item.get("type")), (_same_item, _write_no_events))
    yield out.write_event("response.output_item.added", {"output_index": number, "item": bare(item)})
    yield from tell(item, {"item_id": item.get("id") or "", "output_index": number}, out)
    yield out.write_event("response.output_item.done", {"output_index": number, "item": item})


def _same_item(item: Object) -> Object:
    return item


def _write_no_events(item: Object, at: Object, out: EventSequence) -> Iterator[bytes]:
    return iter(())


def _empty_message(item: Object) -> Object:
    return {**item, "status": "in_progress", "content": []}


def _write_message_events(item: Object, at: Object, out: EventSequence) -> Iterator[bytes]:
    for number, part in enumerate(_read_parts(item, "content")):
        yield from _write_part_events(part, {**at, "content_index": number}, out)


def _read_parts(item: Object, key: str) -> list[Object]:
    parts = item.get(key)
    return [part for part in parts if isinstance(part, dict)] if isinstance(parts, list) else []


_PART_EVENTS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "output_text": ("response.output_text", "text"),
        "refusal": ("response.refusal", "refusal"),
        "reasoning_text": ("response.reasoning_text", "text"),
    }
)
"""The events of a part that grows, and the key of its text."""


def _write_part_events(part: Object, at: Object, out: EventSequence) -> Iterator[bytes]:
    stem, key = _PART_EVENTS.get(str(part.get("type")), ("", ""))
    bare = {**part, key: ""} if stem else part
    if "annotations" in bare:
        bare = {**bare, "annotations": []}
    yield out.write_event("response.content_part.added", {**at, "part": bare})
    if stem:
        more: Object = {"logprobs": part.get("logprobs") or []} if key == "text" and "output" in stem else {}
        if part.get(key):
            yield out.write_event(f"{stem}.delta", {**at, "delta": part[key], **more})
        for number, annotation in enumerate(_read_parts(part, "annotations")):
            about = {**at, "annotation_index": number, "annotation": annotation}
            yield out.write_event("response.output_text.annotation.added", about)
        yield out.write_event(f"{stem}.done", {**at, key: part.get(key) or "", **more})
    yield out.write_event("response.content_part.done", {**at, "part": part})


def _empty_call(item: Object) -> Object:
    return {**item, SHAPE_BY_CALL_TYPE[item["type"]].payload_key: "", "status": "in_progress"}


def _write_call_events(item: Object, at: Object, out: EventSequence) -> Iterator[bytes]:
    shape = SHAPE_BY_CALL_TYPE[item["type"]]
    text = item.get(shape.payload_key) or ""
    if text:
        yield out.write_event(f"{shape.event}.delta", {**at, "delta": text})
    name: Object = {"name": item.get("name") or ""} if shape.kind == "function" else {}
    yield out.write_event(f"{shape.event}.done", {**at, **name, shape.payload_key: text})


def _empty_reasoning(item: Object) -> Object:
    return {key: value for key, value in item.items() if key not in ("content", "encrypted_content")} | {"summary": []}


def _write_reasoning_events(item: Object, at: Object, out: EventSequence) -> Iterator[bytes]:
    for number, part in enumerate(_read_parts(item, "summary")):
        here = {**at, "summary_index": number}
        text = part.get("text") or ""
        yield out.write_event("response.reasoning_summary_part.added", {**here, "part": {**part, "text": ""}})
        if text:
            yield out.write_event("response.reasoning_summary_text.delta", {**here, "delta": text})
        yield out.write_event("response.reasoning_summary_text.done", {**here, "text": text})
        yield out.write_event("response.reasoning_summary_part.done", {**here, "part": part})
    yield from _write_message_events(item, at, out)


_ItemEmptier = Callable[[Object], Object]
_ItemEventWriter = Callable[[Object, Object, EventSequence], Iterator[bytes]]

_ITEM_WRITERS: Mapping[str, tuple[_ItemEmptier, _ItemEventWriter]] = MappingProxyType(
    {
        "message": (_empty_message, _write_message_events),
        "reasoning": (_empty_reasoning, _write_reasoning_events),
        **{kind: (_empty_call, _write_call_events) for kind, shape in SHAPE_BY_CALL_TYPE.items() if shape.event},
    }
)
