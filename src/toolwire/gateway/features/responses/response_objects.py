"""Responses and their items: reading them, ids for items, the responses that the gateway writes itself (queued, failed
and cancelled ones, stored ones as a stream), and the state options of a request (`store`, `previous_response_id` …)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Set
from itertools import count
from operator import attrgetter
from typing import Literal, TypeAlias

import msgspec
from msgspec import Raw, Struct

from toolwire.core.codec import Members, WriteContext
from toolwire.core.ids import hex_digest
from toolwire.core.ir import Failure, Origin, Request
from toolwire.core.json_values import Json, Object
from toolwire.protocols.openai_responses.errors import invalid_request_failure, write_stream_error, wrong_type_failure
from toolwire.protocols.openai_responses.names import (
    NAME,
    PROVIDER_ITEMS,
    SHAPE_BY_CALL_TYPE,
    SHAPE_BY_OUTPUT_TYPE,
    UNFINISHED_STATUSES,
    CallShape,
)
from toolwire.protocols.openai_responses.response import new_response
from toolwire.protocols.openai_responses.stream_items import EventSequence

ITEM_REFERENCE = "item_reference"
COMPACTION_TRIGGER = "compaction_trigger"
COMPACTION = "compaction"

_ID_PREFIXES: Mapping[str, str] = (
    {shape.item_type: shape.id_prefix for shape in SHAPE_BY_CALL_TYPE.values()}
    | {shape.output_type: f"{shape.id_prefix[:-1]}o_" for shape in SHAPE_BY_CALL_TYPE.values()}
    | {kind: prefix for kind, (_, prefix) in PROVIDER_ITEMS.items()}
    | {
        "message": "msg_",
        "reasoning": "rs_",
        "image_generation_call": "ig_",
        "mcp_call": "mcp_",
        "mcp_list_tools": "mcpl_",
        "mcp_approval_request": "mcpr_",
        COMPACTION: "cmp_",
    }
)
_TYPES_WITH_STATUS = frozenset({"message", *SHAPE_BY_CALL_TYPE, *SHAPE_BY_OUTPUT_TYPE})
"""Types of items that have a `status` in every list."""
_TYPES_PAIRED_BY_ID = frozenset({"local_shell_call_output"})
"""Results that have the id of their call as their own `id`."""
_GENERATED_ID = re.compile(r"[a-z]+_tw[0-9a-f]{24}")
"""Ids that the gateway made. OpenAI's ids look different. They are never sent to a provider."""

# --- reading items ----------------------------------------------------------------------------------------------------


def item_type(item: Object) -> str:
    """The type of an item; OpenAI lets clients leave it out for messages and references."""
    kind = item.get("type")
    return kind if isinstance(kind, str) else "message" if "role" in item else ITEM_REFERENCE


def has_reference_type(item: Object) -> bool:
    return item.get("type") == ITEM_REFERENCE or (item.get("type") is None and "role" not in item)


def is_reference(item: Object) -> bool:
    """Is it only the id of another item?"""
    return has_reference_type(item) and isinstance(item.get("id"), str)


def read_input_items(body: Object) -> list[Object]:
    """The `input` of a request as items; a string is one message of the user."""
    value = body.get("input")
    if isinstance(value, str):
        return [write_user_message(value)]
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def read_items_to_store(body: Object, seed: str) -> list[Object]:
    """The `input` of a request as items with an id each; missing ids are made from the seed."""
    return add_missing_ids([item for item in read_input_items(body) if item.get("type") != COMPACTION_TRIGGER], seed)


def add_missing_ids(items: list[Object], seed: str) -> list[Object]:
    """The items with an id each; missing ids are made from the seed."""
    return [
        item
        if item.get("id") and isinstance(item["id"], str)
        else {**item, "id": _make_item_id(item_type(item), seed, number)}
        for number, item in enumerate(items)
    ]


def replace_ids(items: list[Object], seed: str) -> list[Object]:
    """The items with new ids, as a conversation stores them. References are left out: they have no content."""
    return [
        item if item_type(item) in _TYPES_PAIRED_BY_ID else {**item, "id": _make_item_id(item_type(item), seed, number)}
        for number, item in enumerate(items)
        if not is_reference(item)
    ]


def _make_item_id(kind: str, *seed: object) -> str:
    return f"{_ID_PREFIXES.get(kind, 'item_')}tw{hex_digest('|'.join(map(str, seed)), 24)}"


# --- writing items ----------------------------------------------------------------------------------------------------

_NULLABLE_KEYS = frozenset({"id", "status", "phase", "encrypted_content", "namespace", "caller", "created_by", "async"})
"""Clients send these keys as null when they send an answer back. OpenAI refuses null for some of them."""
_RESPONSE_ONLY_KEYS = frozenset({"created_by", "async_", "parsed_arguments", "parsed"})


def write_user_message(text: str) -> Object:
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}


def write_listed_item(item: Object) -> Object:
    """An item as a list shows it: with its status, and the content of a message as parts."""
    kind = item_type(item)
    if kind not in _TYPES_WITH_STATUS:
        return item
    out = {"id": item.get("id"), "type": kind, "status": "completed", **_drop_nulls(item)}
    content = item.get("content")
    if kind == "message" and isinstance(content, str):
        from_model = item.get("role") == "assistant"
        part = {"type": "output_text" if from_model else "input_text", "text": content}
        out["content"] = [{**part, "annotations": []} if from_model else part]
    return out


def clean_item(item: Object) -> Object:
    """An item as a provider accepts it: without keys that only answers have, nulls, and ids that the gateway made."""
    item = _drop_nulls(item)
    if not _RESPONSE_ONLY_KEYS.isdisjoint(item):
        item = _drop_keys(item, _RESPONSE_ONLY_KEYS)
    id = item.get("id")
    if isinstance(id, str) and _GENERATED_ID.fullmatch(id) and not is_reference(item):
        item = _drop_keys(item, {"id"})
    content = item.get("content")
    if content is None and "content" in item and item_type(item) != "message":
        return _drop_keys(item, {"content"})
    if isinstance(content, list) and any(isinstance(part, dict) and "parsed" in part for part in content):
        cleaned = [_drop_keys(part, {"parsed"}) if isinstance(part, dict) else part for part in content]
        return {**item, "content": cleaned}
    return item


def _drop_keys(node: Object, keys: Set[str]) -> Object:
    return {key: value for key, value in node.items() if key not in keys}


def _drop_nulls(item: Object) -> Object:
    if all(value is not None or key not in _NULLABLE_KEYS for key, value in item.items()):
        return item
    return {key: value for key, value in item.items() if value is not None or key not in _NULLABLE_KEYS}


NOT_STORED_FIELDS: Mapping[str, Json] = {"store": False, "conversation": None}
"""Fields of a response that could not be stored."""


def read_text(response: Object, key: str) -> str:
    value = response.get(key)
    return value if isinstance(value, str) else ""


def read_output(response: Object) -> list[Object]:
    return _read_objects(response, "output")


def _read_objects(node: Object, key: str) -> list[Object]:
    values = node.get(key)
    return [value for value in values if isinstance(value, dict)] if isinstance(values, list) else []


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


def write_deleted(object_type: Literal["response", "conversation.deleted"], id: str) -> Object:
    return {"id": id, "object": object_type, "deleted": True}


def not_found_failure(kind: Literal["response", "previous", "conversation", "item"], id: str) -> Failure:
    """In OpenAI's words."""
    if kind == "previous":
        message = f"Previous response with id '{id}' not found."
        return Failure("not_found", message, 400, "previous_response_not_found", "previous_response_id")
    return Failure("not_found", f"{kind.capitalize()} with id '{id}' not found.", 404)


# --- a stored response as a stream ------------------------------------------------------------------------------------

_EMPTY_END_FIELDS = {"completed_at": None, "error": None, "incomplete_details": None, "usage": None}
_TERMINAL_EVENT_BY_STATUS: Mapping[str, str] = {"incomplete": "incomplete", "failed": "failed", "cancelled": "failed"}
"""The last event by the response's status. OpenAI has no event for a cancelled one."""


def write_response_stream(response: Object) -> bytes:
    """All events of a response; without the last one if it is not finished."""
    out = EventSequence()
    status = read_text(response, "status")
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
        f"response.{_TERMINAL_EVENT_BY_STATUS.get(read_text(response, 'status'), 'completed')}", {"response": response}
    )


def _write_item_events(item: Object, number: int, out: EventSequence) -> Iterator[bytes]:
    """The events of an item. One of a type without delta events is complete from the start."""
    location = {"item_id": item.get("id") or "", "output_index": number}
    shape = SHAPE_BY_CALL_TYPE.get(str(item.get("type")))
    first = item
    content_events: Iterable[bytes] = ()
    if item.get("type") == "message":
        first = {**item, "status": "in_progress", "content": []}
        content_events = _write_message_events(item, location, out)
    elif item.get("type") == "reasoning":
        first = _drop_keys(item, {"content", "encrypted_content"}) | {"summary": []}
        content_events = _write_reasoning_events(item, location, out)
    elif shape is not None and shape.event:
        first = {**item, shape.payload_key: "", "status": "in_progress"}
        content_events = _write_call_events(item, shape, location, out)
    yield out.write_event("response.output_item.added", {"output_index": number, "item": first})
    yield from content_events
    yield out.write_event("response.output_item.done", {"output_index": number, "item": item})


def _write_message_events(item: Object, location: Object, out: EventSequence) -> Iterator[bytes]:
    for number, part in enumerate(_read_objects(item, "content")):
        stem, key = _PART_EVENTS.get(str(part.get("type")), ("", ""))
        yield from _write_part_events(part, {**location, "content_index": number}, stem, key, "content_part", out)


_PART_EVENTS: Mapping[str, tuple[str, str]] = {
    "output_text": ("response.output_text", "text"),
    "refusal": ("response.refusal", "refusal"),
    "reasoning_text": ("response.reasoning_text", "text"),
}
"""The name of a part's events before `.delta` and `.done`, and the key of its text."""


def _write_part_events(
    part: Object, location: Object, stem: str, key: str, around: str, out: EventSequence
) -> Iterator[bytes]:
    empty = {**part, key: ""} if stem else part
    if "annotations" in empty:
        empty = {**empty, "annotations": []}
    yield out.write_event(f"response.{around}.added", {**location, "part": empty})
    if stem:
        logprobs: Object = {"logprobs": part.get("logprobs") or []} if key == "text" and "output" in stem else {}
        if part.get(key):
            yield out.write_event(f"{stem}.delta", {**location, "delta": part[key], **logprobs})
        for number, annotation in enumerate(_read_objects(part, "annotations")):
            fields = {**location, "annotation_index": number, "annotation": annotation}
            yield out.write_event("response.output_text.annotation.added", fields)
        yield out.write_event(f"{stem}.done", {**location, key: part.get(key) or "", **logprobs})
    yield out.write_event(f"response.{around}.done", {**location, "part": part})


def _write_call_events(item: Object, shape: CallShape, location: Object, out: EventSequence) -> Iterator[bytes]:
    text = item.get(shape.payload_key) or ""
    if text:
        yield out.write_event(f"{shape.event}.delta", {**location, "delta": text})
    name: Object = {"name": item.get("name") or ""} if shape.kind == "function" else {}
    yield out.write_event(f"{shape.event}.done", {**location, **name, shape.payload_key: text})


def _write_reasoning_events(item: Object, location: Object, out: EventSequence) -> Iterator[bytes]:
    stem, around = "response.reasoning_summary_text", "reasoning_summary_part"
    for number, part in enumerate(_read_objects(item, "summary")):
        yield from _write_part_events(part, {**location, "summary_index": number}, stem, "text", around, out)
    yield from _write_message_events(item, location, out)


# --- the state options of a request -----------------------------------------------------------------------------------


class StateOptions(Struct, frozen=True, kw_only=True):
    """What a request asks the gateway to store, and which stored things it refers to."""

    store: bool = False
    previous_response_id: str = ""
    conversation: str = ""
    """The id of the conversation that the request belongs to."""
    references: tuple[str, ...] = ()
    """Ids of stored items that the input refers to."""
    background: bool = False
    compaction: bool = False
    """Does the input end with a `compaction_trigger`?"""

    @property
    def refers_to_stored(self) -> bool:
        return bool(self.previous_response_id or self.conversation or self.references)


class _ItemPeek(Struct, gc=False):
    type: Json = None
    role: Json = False
    """False if there is none."""


_Scalar: TypeAlias = str | int | float | bool | None
_decode_input = msgspec.json.Decoder(list[_ItemPeek | _Scalar] | _Scalar).decode
_ABSENT = Raw(b"null")
_FALSY = frozenset({b"null", b"false", b'""'})
_peek_item_type = attrgetter("type")


def is_stateless(members: Members) -> bool:
    """Is it certain that the request stores nothing and refers to nothing? False where this is not certain. Agents send
    long bodies with every turn, so nothing else of them is decoded."""
    if bytes(members.get("store", _ABSENT)) != b"false":
        return False
    if not _FALSY.issuperset(map(bytes, filter(None, map(members.get, _STATE_KEYS)))):
        return False
    try:
        items = _decode_input(members.get("input", _ABSENT))
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return False
    if not isinstance(items, list):
        return True
    if not {_ItemPeek}.issuperset(map(type, items)):
        return False
    types = list(map(_peek_item_type, items))
    if ITEM_REFERENCE in types or COMPACTION_TRIGGER in types:
        return False
    return None not in types or not any(item.type is None and item.role is False for item in items)


_STATE_KEYS = ("previous_response_id", "conversation", "background")


def read_state_options(body: Object) -> StateOptions | Failure:
    """The options of a request; a failure, in OpenAI's words, if they are wrong. Null is the same as absent."""
    options = {key: body.get(key) for key in _OPTION_TYPES}
    if isinstance(options["conversation"], dict):
        options["conversation"] = options["conversation"].get("id", options["conversation"])
    for key, (kind, phrase) in _OPTION_TYPES.items():
        if options[key] is not None and not isinstance(options[key], kind):
            return wrong_type_failure(key, phrase, options[key])
    previous, conversation, store, background = options.values()
    if previous and conversation:
        both = "'previous_response_id' or 'conversation'"
        message = f"Mutually exclusive parameters. Ensure you are only providing one of: {both}."
        return invalid_request_failure(message, "previous_response_id", "mutually_exclusive_parameters")
    if background is True and store is False:
        return invalid_request_failure("Background mode requires 'store' to be true.", "background", "invalid_value")
    failure = _check_input(body.get("input"))
    if failure is not None:
        return failure
    items = read_input_items(body)
    return StateOptions(
        store=store is not False,
        previous_response_id=previous or "",
        conversation=conversation or "",
        references=tuple(dict.fromkeys(item["id"] for item in items if is_reference(item))),
        background=background is True,
        compaction=bool(items) and items[-1].get("type") == COMPACTION_TRIGGER,
    )


_OPTION_TYPES: Mapping[str, tuple[type, str]] = {
    "previous_response_id": (str, "a string"),
    "conversation": (str, "a string"),
    "store": (bool, "a boolean"),
    "background": (bool, "a boolean"),
}


def _check_input(value: Json) -> Failure | None:
    if value is None or isinstance(value, str):
        return None
    if not isinstance(value, list):
        return wrong_type_failure("input", "one of an array of objects or a string", value)
    for number, item in enumerate(value):
        if not isinstance(item, dict):
            return wrong_type_failure(f"input[{number}]", "an object", item)
        if has_reference_type(item) and not (isinstance(item.get("id"), str) and item["id"]):
            return wrong_type_failure(f"input[{number}].id", "a string", item.get("id"))
        if item.get("type") == COMPACTION_TRIGGER and number < len(value) - 1:
            return invalid_request_failure(
                "A 'compaction_trigger' must be the last item of 'input'.", f"input[{number}]"
            )
    return None
