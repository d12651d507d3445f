"""Response objects that the gateway writes itself: queued, failed or cancelled ones, and stored ones as a stream."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import count
from types import MappingProxyType
from typing import Literal

from toolwire.core.codec import WriteContext
from toolwire.core.ids import derive_id
from toolwire.core.ir import Failure, Origin, Request
from toolwire.core.json_values import Json, Object
from toolwire.gateway.responses_state.state_options import StateOptions
from toolwire.protocols.openai_responses.errors import write_stream_error
from toolwire.protocols.openai_responses.names import NAME, SHAPE_BY_CALL_TYPE, UNFINISHED_STATUSES
from toolwire.protocols.openai_responses.response import new_response
from toolwire.protocols.openai_responses.stream_items import EventSequence

NOT_STORED_FIELDS: Mapping[str, Json] = MappingProxyType({"store": False, "conversation": None})
"""Fields of a response that could not be stored."""

# --- reading ----------------------------------------------------------------------------------------------------------


def read_response_id(response: Object) -> str:
    return _read_text(response, "id")


def read_status(response: Object) -> str:
    return _read_text(response, "status")


def _read_text(response: Object, key: str) -> str:
    value = response.get(key)
    return value if isinstance(value, str) else ""


def read_output(response: Object) -> list[Object]:
    return _read_objects(response, "output")


def _read_objects(node: Object, key: str) -> list[Object]:
    values = node.get(key)
    return [value for value in values if isinstance(value, dict)] if isinstance(values, list) else []


# --- writing ----------------------------------------------------------------------------------------------------------


def make_response_id(seed: str) -> str:
    return derive_id("resp_", seed)


def write_pending_response(body: Object, now: int, status: str) -> Object:
    """The response to a request before the model has answered. `write_state_fields` gives it its id."""
    model = body.get("model")
    request_body = {**body, "tools": body.get("tools") if isinstance(body.get("tools"), list) else []}
    request = Request(model if isinstance(model, str) else "", origin=Origin(NAME, None, request_body))
    out = new_response("", "", now, WriteContext(request, now))
    out["id"], out["status"] = "", status
    conversation = body.get("conversation")
    if conversation:
        out["conversation"] = conversation if isinstance(conversation, dict) else {"id": conversation}
    return out


def write_ended_response(response: Object, status: str, failure: Failure | None) -> Object:
    """A pending response that has failed or was cancelled."""
    error = None if failure is None else write_stream_error(failure)
    return {**response, "status": status, "error": error, "completed_at": None}


def write_state_fields(options: StateOptions, id: str = "", now: int = 0) -> dict[str, Json]:
    """Fields of a response that the gateway sets: what the request referred to; and the id and the time of one that is
    made in the background, because the client was told them before the provider answered."""
    fields: dict[str, Json] = {
        "id": id,
        "created_at": now if id else None,
        "previous_response_id": options.previous_response_id,
        "background": options.background,
        "conversation": {"id": options.conversation} if options.conversation else None,
    }
    return {key: value for key, value in fields.items() if value}


def write_deleted(object_type: Literal["response", "conversation.deleted"], id: str) -> Object:
    return {"id": id, "object": object_type, "deleted": True}


_NAMES = MappingProxyType({"response": "Response", "conversation": "Conversation", "item": "Item"})


def not_found_failure(kind: Literal["response", "previous", "conversation", "item"], id: str) -> Failure:
    """In OpenAI's words."""
    if kind == "previous":
        message = f"Previous response with id '{id}' not found."
        return Failure("not_found", message, 400, "previous_response_not_found", "previous_response_id")
    return Failure("not_found", f"{_NAMES[kind]} with id '{id}' not found.", 404)


# --- a stored response as a stream ------------------------------------------------------------------------------------

_EMPTY_END_FIELDS = MappingProxyType({"completed_at": None, "error": None, "incomplete_details": None, "usage": None})
_TERMINAL_EVENT_BY_STATUS: Mapping[str, str] = MappingProxyType(
    {"incomplete": "incomplete", "failed": "failed", "cancelled": "failed"}
)
"""The last event by the response's status. OpenAI has no event for a cancelled one."""


def write_response_stream(response: Object) -> bytes:
    """All events of a response; without the last one if it is not finished."""
    out = EventSequence()
    status = read_status(response)
    first_status = "queued" if status == "queued" else "in_progress"
    before = {**response, **_EMPTY_END_FIELDS, "status": first_status, "output": []}
    events = [out.write_event("response.created", {"response": before})]
    events.append(out.write_event(f"response.{first_status}", {"response": before}))
    for number, item in enumerate(read_output(response)):
        events += _write_item_events(item, number, out)
    if status not in UNFINISHED_STATUSES:
        events.append(write_terminal_event(response, next(out.numbers)))
    return b"".join(events)


def write_terminal_event(response: Object, number: int) -> bytes:
    """The last event of a response's stream, with this sequence number."""
    return EventSequence(count(number)).write_event(
        f"response.{_TERMINAL_EVENT_BY_STATUS.get(read_status(response), 'completed')}", {"response": response}
    )


def _write_item_events(item: Object, number: int, out: EventSequence) -> Iterator[bytes]:
    """The events of an item. One of a type without delta events is complete from the start."""
    empty_item, write_content = _ITEM_WRITERS.get(str(item.get("type")), (_same_item, _write_no_events))
    yield out.write_event("response.output_item.added", {"output_index": number, "item": empty_item(item)})
    yield from write_content(item, {"item_id": item.get("id") or "", "output_index": number}, out)
    yield out.write_event("response.output_item.done", {"output_index": number, "item": item})


def _same_item(item: Object) -> Object:
    return item


def _write_no_events(item: Object, location: Object, out: EventSequence) -> Iterator[bytes]:
    return iter(())


def _empty_message(item: Object) -> Object:
    return {**item, "status": "in_progress", "content": []}


def _write_message_events(item: Object, location: Object, out: EventSequence) -> Iterator[bytes]:
    for number, part in enumerate(_read_objects(item, "content")):
        yield from _write_part_events(part, {**location, "content_index": number}, out)


_PART_EVENTS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "output_text": ("response.output_text", "text"),
        "refusal": ("response.refusal", "refusal"),
        "reasoning_text": ("response.reasoning_text", "text"),
    }
)
"""The name of a part's events before `.delta` and `.done`, and the key of its text."""


def _write_part_events(part: Object, location: Object, out: EventSequence) -> Iterator[bytes]:
    stem, key = _PART_EVENTS.get(str(part.get("type")), ("", ""))
    empty = {**part, key: ""} if stem else part
    if "annotations" in empty:
        empty = {**empty, "annotations": []}
    yield out.write_event("response.content_part.added", {**location, "part": empty})
    if stem:
        logprobs: Object = {"logprobs": part.get("logprobs") or []} if key == "text" and "output" in stem else {}
        if part.get(key):
            yield out.write_event(f"{stem}.delta", {**location, "delta": part[key], **logprobs})
        for number, annotation in enumerate(_read_objects(part, "annotations")):
            fields = {**location, "annotation_index": number, "annotation": annotation}
            yield out.write_event("response.output_text.annotation.added", fields)
        yield out.write_event(f"{stem}.done", {**location, key: part.get(key) or "", **logprobs})
    yield out.write_event("response.content_part.done", {**location, "part": part})


def _empty_call(item: Object) -> Object:
    return {**item, SHAPE_BY_CALL_TYPE[item["type"]].payload_key: "", "status": "in_progress"}


def _write_call_events(item: Object, location: Object, out: EventSequence) -> Iterator[bytes]:
    shape = SHAPE_BY_CALL_TYPE[item["type"]]
    text = item.get(shape.payload_key) or ""
    if text:
        yield out.write_event(f"{shape.event}.delta", {**location, "delta": text})
    name: Object = {"name": item.get("name") or ""} if shape.kind == "function" else {}
    yield out.write_event(f"{shape.event}.done", {**location, **name, shape.payload_key: text})


def _empty_reasoning(item: Object) -> Object:
    return {key: value for key, value in item.items() if key not in ("content", "encrypted_content")} | {"summary": []}


def _write_reasoning_events(item: Object, location: Object, out: EventSequence) -> Iterator[bytes]:
    for number, part in enumerate(_read_objects(item, "summary")):
        part_location = {**location, "summary_index": number}
        text = part.get("text") or ""
        yield out.write_event("response.reasoning_summary_part.added", {**part_location, "part": {**part, "text": ""}})
        if text:
            yield out.write_event("response.reasoning_summary_text.delta", {**part_location, "delta": text})
        yield out.write_event("response.reasoning_summary_text.done", {**part_location, "text": text})
        yield out.write_event("response.reasoning_summary_part.done", {**part_location, "part": part})
    yield from _write_message_events(item, location, out)


_ItemEmptier = Callable[[Object], Object]
_ItemEventWriter = Callable[[Object, Object, EventSequence], Iterator[bytes]]

_ITEM_WRITERS: Mapping[str, tuple[_ItemEmptier, _ItemEventWriter]] = MappingProxyType(
    {
        "message": (_empty_message, _write_message_events),
        "reasoning": (_empty_reasoning, _write_reasoning_events),
        **{kind: (_empty_call, _write_call_events) for kind, shape in SHAPE_BY_CALL_TYPE.items() if shape.event},
    }
)
