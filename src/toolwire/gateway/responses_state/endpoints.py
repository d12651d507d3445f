"""The endpoints for stored responses and conversations, `/v1/responses/…` and `/v1/conversations/…`."""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from types import MappingProxyType
from urllib.parse import unquote

from toolwire.core.ids import derive_id
from toolwire.core.ir import Failure
from toolwire.core.json_values import Json, Object, encode
from toolwire.gateway.pipeline.gateway_request import Reply, StreamReplay
from toolwire.gateway.pipeline.headers import JSON_HEADERS
from toolwire.gateway.responses_state.background import fail_if_abandoned, follow_remote_job, store_ending
from toolwire.gateway.responses_state.compaction import COMPACT_PATH, compact_conversation
from toolwire.gateway.responses_state.context import (
    NotStoredHere,
    OperationContext,
    OperationName,
    OperationRefused,
    OperationResult,
    StateOperation,
    allows_upstream_state,
    read_page,
    write_page,
)
from toolwire.gateway.responses_state.history import load_history, load_input_items, resolve_references
from toolwire.gateway.responses_state.recorder import (
    StoredConversation,
    item_entries,
    number_frames,
    read_stored_conversation,
    read_stored_item,
    read_stored_response,
)
from toolwire.gateway.responses_state.response_objects import (
    add_missing_ids,
    not_found_failure,
    replace_ids,
    write_deleted,
    write_listed_item,
    write_response_stream,
)
from toolwire.gateway.responses_state.state_options import StateOptions, find_references
from toolwire.gateway.store.repository import CONVERSATION, ITEM, RESPONSE, no_store_failure
from toolwire.gateway.store.store import Entry
from toolwire.protocols.openai_responses.errors import invalid_request_failure, wrong_type_failure
from toolwire.protocols.openai_responses.http import PATH
from toolwire.protocols.openai_responses.names import UNFINISHED_STATUSES

# --- paths ------------------------------------------------------------------------------------------------------------

_CONVERSATIONS_PATH = "/v1/conversations"
_RESERVED_SEGMENTS = frozenset({"compact", "input_tokens"})
"""Segments after `/v1/responses/` that are not ids."""
_RESPONSE_OPERATIONS: Mapping[tuple[str, str], OperationName] = MappingProxyType(
    {
        ("GET", ""): "response",
        ("DELETE", ""): "response-delete",
        ("POST", "cancel"): "response-cancel",
        ("GET", "input_items"): "response-items",
    }
)
_CONVERSATION_OPERATIONS: Mapping[tuple[str, str], OperationName] = MappingProxyType(
    {
        ("GET", ""): "conversation",
        ("POST", ""): "conversation-update",
        ("DELETE", ""): "conversation-delete",
        ("GET", "items"): "items",
        ("POST", "items"): "items-add",
    }
)
_ITEM_OPERATIONS: Mapping[str, OperationName] = MappingProxyType({"GET": "item", "DELETE": "item-delete"})


def match_operation(method: str, path: str) -> StateOperation | None:
    """What a request with this method and path asks for; None if it is not an endpoint for stored things."""
    if method == "POST" and path == COMPACT_PATH:
        return StateOperation(name="compact")
    if method == "POST" and path == _CONVERSATIONS_PATH:
        return StateOperation(name="conversation-create")
    if path.startswith(f"{PATH}/"):
        id, _, rest = path[len(PATH) + 1 :].partition("/")
        return None if id in _RESERVED_SEGMENTS else _build_operation(_RESPONSE_OPERATIONS.get((method, rest)), id)
    if path.startswith(f"{_CONVERSATIONS_PATH}/"):
        id, _, rest = path[len(_CONVERSATIONS_PATH) + 1 :].partition("/")
        segment, _, item_id = rest.partition("/")
        if segment == "items" and item_id and "/" not in item_id:
            return _build_operation(_ITEM_OPERATIONS.get(method), id, item_id)
        return _build_operation(_CONVERSATION_OPERATIONS.get((method, rest)), id)
    return None


def _build_operation(name: OperationName | None, id: str, item_id: str = "") -> StateOperation | None:
    if name is None or not id:
        return None
    return StateOperation(name=name, id=_decode_segment(id), item_id=_decode_segment(item_id))


def _decode_segment(segment: str) -> str:
    """A path segment without percent escapes, and without surrogates, which the store cannot encode."""
    return unquote(segment).encode("utf-8", "replace").decode()


# --- responses --------------------------------------------------------------------------------------------------------


async def run_operation(context: OperationContext, body: bytes) -> OperationResult:
    try:
        context.set_body(body)
        if context.repository.is_enabled or context.operation.name == "compact":
            return await _OPERATIONS[context.operation.name](context)
        if allows_upstream_state(context.call):
            return NotStoredHere()
        raise context.refusal(no_store_failure(404))
    except OperationRefused as refused:
        return refused.result


async def _load_response(context: OperationContext) -> Entry:
    entry = context.unwrap(await context.repository.get_one(context.owner, RESPONSE, context.operation.id))
    if entry is None:
        raise context.missing_object("response", context.operation.id)
    return context.unwrap(await fail_if_abandoned(context.repository, entry))


_INTEGER = re.compile(r"-?[0-9]{1,18}")


async def _get_response(context: OperationContext) -> OperationResult:
    entry = await _load_response(context)
    if context.query.get("stream", "").lower() not in ("true", "1"):
        return Reply(200, JSON_HEADERS, encode(read_stored_response(entry).response))
    after = context.query.get("starting_after", "-1")
    if _INTEGER.fullmatch(after) is None:
        raise context.refusal(Failure("invalid", "starting_after must be an integer", 400, param="starting_after"))
    return StreamReplay(_replay_stream(context, entry, int(after)))


async def _replay_stream(context: OperationContext, entry: Entry, after: int) -> AsyncIterator[bytes]:
    """The events of a response after this sequence number; those of a running background response as they come."""
    stored = read_stored_response(entry)
    job = context.jobs.get(context.owner, entry.id)
    if job is not None:
        async for frame in job.follow_stream(after):
            yield frame
    elif stored.background:
        async for frame in follow_remote_job(context.repository, entry, after, asyncio.sleep):
            yield frame
    else:
        for number, frame in number_frames(write_response_stream(stored.response)):
            if number > after:
                yield frame


async def _delete_response(context: OperationContext) -> OperationResult:
    entry = await _load_response(context)
    job = context.jobs.get(context.owner, entry.id)
    context.unwrap(await context.repository.delete(context.owner, RESPONSE, entry.id))
    if job is not None:
        job.cancel()
    return Reply(200, JSON_HEADERS, encode(write_deleted("response", entry.id)))


async def _cancel_response(context: OperationContext) -> OperationResult:
    entry = await _load_response(context)
    stored = read_stored_response(entry)
    if not stored.background:
        raise context.refusal(Failure("invalid", "only a background response can be cancelled", 400))
    if entry.mark in UNFINISHED_STATUSES:
        ended = context.unwrap(await store_ending(context.repository, entry, "cancelled", None))
        stored = read_stored_response(ended)
        job = context.jobs.get(context.owner, entry.id)
        if job is not None and ended.mark == "cancelled":
            job.cancel()
    return Reply(200, JSON_HEADERS, encode(stored.response))


async def _list_input_items(context: OperationContext) -> OperationResult:
    entry = await _load_response(context)
    page = context.unwrap(read_page(context.query))
    items = context.unwrap(await load_input_items(context.repository, entry))
    return context.list_items(add_missing_ids(items, entry.id), page)


# --- bodies of requests to conversations ------------------------------------------------------------------------------

_MAX_ITEMS = 20
_MAX_METADATA_PAIRS = 16
_MAX_METADATA_KEY_LENGTH = 64
_MAX_METADATA_VALUE_LENGTH = 512


def read_conversation(body: Object) -> tuple[list[Object], Json] | Failure:
    """The items and the metadata of a request that creates a conversation."""
    items = _read_items(body.get("items"))
    if isinstance(items, Failure):
        return items
    metadata = _check_metadata(body.get("metadata"))
    return metadata if isinstance(metadata, Failure) else (items, metadata)


def read_metadata(body: Object) -> Json | Failure:
    return _check_metadata(body["metadata"]) if "metadata" in body else _missing_parameter_failure("metadata")


def read_added_items(body: Object) -> list[Object] | Failure:
    return _read_items(body["items"]) if body.get("items") is not None else _missing_parameter_failure("items")


def _missing_parameter_failure(key: str) -> Failure:
    return invalid_request_failure(f"Missing required parameter: '{key}'.", key, "missing_required_parameter")


def _read_items(value: Json) -> list[Object] | Failure:
    if value is None:
        return []
    if not isinstance(value, list):
        return wrong_type_failure("items", "an array of objects", value)
    if len(value) > _MAX_ITEMS:
        expected = f"Expected an array with maximum length {_MAX_ITEMS}, but got one with length {len(value)} instead."
        return invalid_request_failure(
            f"Invalid 'items': array too long. {expected}", "items", "array_above_max_length"
        )
    for number, item in enumerate(value):
        if not isinstance(item, dict):
            return wrong_type_failure(f"items[{number}]", "an object", item)
    return value


def _check_metadata(value: Json) -> Json | Failure:
    if value is None:
        return {}
    if not isinstance(value, dict):
        return wrong_type_failure("metadata", "an object", value)
    if len(value) > _MAX_METADATA_PAIRS:
        expected = f"Expected an object with at most {_MAX_METADATA_PAIRS} properties, but got {len(value)} instead."
        return invalid_request_failure(
            f"Invalid 'metadata': too many properties. {expected}", "metadata", "object_above_max_properties"
        )
    for key, text in value.items():
        failure = _check_metadata_pair(key, text)
        if failure is not None:
            return failure
    return value


def _check_metadata_pair(key: str, text: Json) -> Failure | None:
    path = f"metadata.{key}"
    if len(key) > _MAX_METADATA_KEY_LENGTH:
        return _too_long_failure("Invalid property name in 'metadata'", "metadata", _MAX_METADATA_KEY_LENGTH, len(key))
    if not isinstance(text, str):
        return wrong_type_failure(path, "a string", text)
    if len(text) > _MAX_METADATA_VALUE_LENGTH:
        return _too_long_failure(f"Invalid '{path}'", path, _MAX_METADATA_VALUE_LENGTH, len(text))
    return None


def _too_long_failure(message: str, path: str, limit: int, length: int) -> Failure:
    expected = f"Expected a string with maximum length {limit}, but got a string with length {length} instead."
    return invalid_request_failure(f"{message}: string too long. {expected}", path, "string_above_max_length")


def write_conversation(id: str, created: int, metadata: Json) -> Object:
    return {"id": id, "object": "conversation", "created_at": created, "metadata": metadata}


# --- conversations ----------------------------------------------------------------------------------------------------

EXISTING_MARKS = ("",)
"""The mark of a conversation's entry. With `required_marks` something is written only if the conversation exists."""


async def _load_conversation(context: OperationContext) -> Entry:
    entry = context.unwrap(await context.repository.get_one(context.owner, CONVERSATION, context.operation.id))
    if entry is None:
        raise context.missing_object("conversation", context.operation.id)
    return entry


async def _resolve_items(context: OperationContext, items: list[Object]) -> list[Object]:
    """The items with references replaced by the items they refer to."""
    ids = context.unwrap(find_references(items))
    if not ids:
        return items
    options = StateOptions(references=ids)
    history = context.unwrap(await load_history(context.repository, context.owner, options))
    return resolve_references(items, history.referenced)


def _conversation_reply(entry: Entry) -> Reply:
    stored = read_stored_conversation(entry)
    return Reply(200, JSON_HEADERS, encode(write_conversation(entry.id, stored.created, stored.metadata)))


def _conversation_entry(
    context: OperationContext, id: str, created: float, metadata: Json, expires: float = 0.0
) -> Entry:
    body = encode(StoredConversation(created=int(created), metadata=metadata))
    return Entry(owner=context.owner, kind=CONVERSATION, id=id, body=body, created=created, expires=expires)


async def _create_conversation(context: OperationContext) -> OperationResult:
    given_items, metadata = context.unwrap(read_conversation(context.read_body()))
    items = await _resolve_items(context, given_items)
    seed, now = secrets.token_hex(12), context.repository.clock()
    entry = _conversation_entry(context, derive_id("conv_", seed), now, metadata)
    appended = item_entries(context.owner, entry.id, replace_ids(items, seed), now)
    context.unwrap(await context.repository.put(entry, appended=appended))
    return _conversation_reply(entry)


async def _get_conversation(context: OperationContext) -> OperationResult:
    return _conversation_reply(await _load_conversation(context))


async def _update_conversation(context: OperationContext) -> OperationResult:
    entry = await _load_conversation(context)
    metadata = context.unwrap(read_metadata(context.read_body()))
    # It keeps its time of expiry: it must not outlive its items.
    changed = _conversation_entry(context, entry.id, entry.created, metadata, entry.expires)
    if not context.unwrap(await context.repository.put(changed, required_marks=EXISTING_MARKS)):
        raise context.missing_object("conversation", entry.id)
    return _conversation_reply(changed)


async def _delete_conversation(context: OperationContext) -> OperationResult:
    entry = await _load_conversation(context)
    context.unwrap(await context.repository.delete(context.owner, CONVERSATION, entry.id))
    return Reply(200, JSON_HEADERS, encode(write_deleted("conversation.deleted", entry.id)))


# --- items of conversations -------------------------------------------------------------------------------------------


async def _list_conversation_items(context: OperationContext) -> OperationResult:
    page = context.unwrap(read_page(context.query))
    entry = await _load_conversation(context)
    entries = context.unwrap(await context.repository.get_children(context.owner, ITEM, entry.id))
    return context.list_items(list(map(read_stored_item, entries)), page)


async def _add_items(context: OperationContext) -> OperationResult:
    entry = await _load_conversation(context)
    added = context.unwrap(read_added_items(context.read_body()))
    items = replace_ids(await _resolve_items(context, added), secrets.token_hex(12))
    appended = item_entries(context.owner, entry.id, items, context.repository.clock())
    if not context.unwrap(await context.repository.put(entry, required_marks=EXISTING_MARKS, appended=appended)):
        raise context.missing_object("conversation", entry.id)
    return Reply(200, JSON_HEADERS, encode(write_page(items, False)))


async def _load_item(context: OperationContext, conversation: Entry) -> Entry:
    item = context.unwrap(await context.repository.get_one(context.owner, ITEM, context.operation.item_id))
    if item is None or item.parent != conversation.id:
        raise context.refusal(not_found_failure("item", context.operation.item_id))
    return item


async def _get_item(context: OperationContext) -> OperationResult:
    item = await _load_item(context, await _load_conversation(context))
    return Reply(200, JSON_HEADERS, encode(write_listed_item(read_stored_item(item))))


async def _delete_item(context: OperationContext) -> OperationResult:
    conversation = await _load_conversation(context)
    item = await _load_item(context, conversation)
    context.unwrap(await context.repository.delete(context.owner, ITEM, item.id))
    return _conversation_reply(conversation)


_OPERATIONS: Mapping[OperationName, Callable[[OperationContext], Awaitable[OperationResult]]] = {
    "response": _get_response,
    "response-delete": _delete_response,
    "response-cancel": _cancel_response,
    "response-items": _list_input_items,
    "compact": compact_conversation,
    "conversation-create": _create_conversation,
    "conversation": _get_conversation,
    "conversation-update": _update_conversation,
    "conversation-delete": _delete_conversation,
    "items": _list_conversation_items,
    "items-add": _add_items,
    "item": _get_item,
    "item-delete": _delete_item,
}
