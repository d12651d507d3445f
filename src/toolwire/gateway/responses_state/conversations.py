"""The endpoints for conversations and their items, `/v1/conversations/…`."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Mapping

from toolwire.core.ids import derive_id
from toolwire.core.ir import Failure
from toolwire.core.json_values import Json, Object, encode
from toolwire.gateway.pipeline.call import Reply
from toolwire.gateway.pipeline.headers import JSON_HEADERS
from toolwire.gateway.responses_state.context import OperationContext, OperationName, OperationResult, write_page
from toolwire.gateway.responses_state.history import load_history, resolve_references
from toolwire.gateway.responses_state.items import replace_ids, write_listed_item
from toolwire.gateway.responses_state.recorder import (
    StoredConversation,
    item_entries,
    read_stored_conversation,
    read_stored_item,
)
from toolwire.gateway.responses_state.response_objects import not_found_failure, write_deleted
from toolwire.gateway.responses_state.state_options import StateOptions, find_references
from toolwire.gateway.store.repository import CONVERSATION, ITEM
from toolwire.gateway.store.store import Entry, StoreDown
from toolwire.protocols.openai_responses.errors import invalid_request_failure, wrong_type_failure

# --- request and response bodies --------------------------------------------------------------------------------------

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


async def _load_conversation(context: OperationContext) -> Entry | OperationResult:
    entry = await context.repository.get_one(context.owner, CONVERSATION, context.operation.id)
    if isinstance(entry, StoreDown):
        return context.refuse_unavailable(entry)
    return context.refuse_missing("conversation", context.operation.id) if entry is None else entry


async def _resolve_items(context: OperationContext, items: list[Object]) -> list[Object] | Reply:
    """The items with references replaced by the items they refer to."""
    ids = find_references(items)
    if isinstance(ids, Failure):
        return context.refuse(ids)
    if not ids:
        return items
    history = await load_history(context.repository, context.owner, StateOptions(references=ids))
    if isinstance(history, Failure):
        return context.refuse(history)
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
    body = context.read_body()
    if isinstance(body, Reply):
        return body
    conversation = read_conversation(body)
    if isinstance(conversation, Failure):
        return context.refuse(conversation)
    given_items, metadata = conversation
    items = await _resolve_items(context, given_items)
    if isinstance(items, Reply):
        return items
    seed, now = secrets.token_hex(12), context.repository.clock()
    entry = _conversation_entry(context, derive_id("conv_", seed), now, metadata)
    appended = item_entries(context.owner, entry.id, replace_ids(items, seed), now)
    result = await context.repository.put(entry, appended=appended)
    return context.refuse_unavailable(result) if isinstance(result, StoreDown) else _conversation_reply(entry)


async def _get_conversation(context: OperationContext) -> OperationResult:
    entry = await _load_conversation(context)
    return _conversation_reply(entry) if isinstance(entry, Entry) else entry


async def _update_conversation(context: OperationContext) -> OperationResult:
    entry, body = await _load_conversation(context), context.read_body()
    if not isinstance(entry, Entry):
        return entry
    if isinstance(body, Reply):
        return body
    metadata = read_metadata(body)
    if isinstance(metadata, Failure):
        return context.refuse(metadata)
    # It keeps its time of expiry: it must not outlive its items.
    changed = _conversation_entry(context, entry.id, entry.created, metadata, entry.expires)
    result = await context.repository.put(changed, required_marks=EXISTING_MARKS)
    if result is False:
        return context.refuse_missing("conversation", entry.id)
    return context.refuse_unavailable(result) if isinstance(result, StoreDown) else _conversation_reply(changed)


async def _delete_conversation(context: OperationContext) -> OperationResult:
    entry = await _load_conversation(context)
    if not isinstance(entry, Entry):
        return entry
    result = await context.repository.delete(context.owner, CONVERSATION, entry.id)
    if isinstance(result, StoreDown):
        return context.refuse_unavailable(result)
    return Reply(200, JSON_HEADERS, encode(write_deleted("conversation.deleted", entry.id)))


# --- items ------------------------------------------------------------------------------------------------------------


async def _list_conversation_items(context: OperationContext) -> OperationResult:
    page = context.read_page()
    if isinstance(page, Reply):
        return page
    entry = await _load_conversation(context)
    if not isinstance(entry, Entry):
        return entry
    entries = await context.repository.get_children(context.owner, ITEM, entry.id)
    return (
        context.refuse_unavailable(entries)
        if isinstance(entries, StoreDown)
        else context.list_items(list(map(read_stored_item, entries)), page)
    )


async def _add_items(context: OperationContext) -> OperationResult:
    entry, body = await _load_conversation(context), context.read_body()
    if not isinstance(entry, Entry):
        return entry
    if isinstance(body, Reply):
        return body
    added = read_added_items(body)
    if isinstance(added, Failure):
        return context.refuse(added)
    resolved = await _resolve_items(context, added)
    if isinstance(resolved, Reply):
        return resolved
    items = replace_ids(resolved, secrets.token_hex(12))
    appended = item_entries(context.owner, entry.id, items, context.repository.clock())
    result = await context.repository.put(entry, required_marks=EXISTING_MARKS, appended=appended)
    if result is False:
        return context.refuse_missing("conversation", entry.id)
    if isinstance(result, StoreDown):
        return context.refuse_unavailable(result)
    return Reply(200, JSON_HEADERS, encode(write_page(items, False)))


async def _load_item(context: OperationContext, conversation: Entry) -> Entry | Reply:
    item = await context.repository.get_one(context.owner, ITEM, context.operation.item_id)
    if isinstance(item, StoreDown):
        return context.refuse_unavailable(item)
    if item is None or item.parent != conversation.id:
        return context.refuse(not_found_failure("item", context.operation.item_id))
    return item


async def _get_item(context: OperationContext) -> OperationResult:
    conversation = await _load_conversation(context)
    item = await _load_item(context, conversation) if isinstance(conversation, Entry) else conversation
    if not isinstance(item, Entry):
        return item
    return Reply(200, JSON_HEADERS, encode(write_listed_item(read_stored_item(item))))


async def _delete_item(context: OperationContext) -> OperationResult:
    conversation = await _load_conversation(context)
    if not isinstance(conversation, Entry):
        return conversation
    item = await _load_item(context, conversation)
    if isinstance(item, Reply):
        return item
    result = await context.repository.delete(context.owner, ITEM, item.id)
    return context.refuse_unavailable(result) if isinstance(result, StoreDown) else _conversation_reply(conversation)


CONVERSATION_OPERATIONS: Mapping[OperationName, Callable[[OperationContext], Awaitable[OperationResult]]] = {
    "conversation-create": _create_conversation,
    "conversation": _get_conversation,
    "conversation-update": _update_conversation,
    "conversation-delete": _delete_conversation,
    "items": _list_conversation_items,
    "items-add": _add_items,
    "item": _get_item,
    "item-delete": _delete_item,
}
