"""The endpoints for stored responses, `/v1/responses/…`; and which endpoint a path belongs to."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from types import MappingProxyType
from urllib.parse import unquote

from toolwire.core.ir import Failure
from toolwire.core.json_values import encode
from toolwire.gateway.pipeline.call import Reply, StreamReplay
from toolwire.gateway.pipeline.headers import JSON_HEADERS
from toolwire.gateway.responses_state.background import fail_if_abandoned, follow_remote_job, store_ending
from toolwire.gateway.responses_state.compaction import COMPACT_PATH, compact_conversation
from toolwire.gateway.responses_state.context import (
    NotStoredHere,
    OperationContext,
    OperationName,
    OperationResult,
    StateOperation,
    allows_upstream_state,
)
from toolwire.gateway.responses_state.conversations import CONVERSATION_OPERATIONS
from toolwire.gateway.responses_state.history import load_input_items
from toolwire.gateway.responses_state.items import add_missing_ids
from toolwire.gateway.responses_state.recorder import UNFINISHED_STATUSES, read_stored_response
from toolwire.gateway.responses_state.response_objects import write_deleted, write_response_stream
from toolwire.gateway.responses_state.stream_tap import number_frames
from toolwire.gateway.store.repository import RESPONSE, no_store_failure
from toolwire.gateway.store.store import Entry, StoreDown
from toolwire.protocols.openai_responses.http import PATH

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


# --- operations -------------------------------------------------------------------------------------------------------


async def run_operation(context: OperationContext) -> OperationResult:
    if not context.repository.is_enabled and context.operation.name != "compact":
        return NotStoredHere() if allows_upstream_state(context.call) else context.refuse(no_store_failure(404))
    return await _OPERATIONS[context.operation.name](context)


async def _load_response(context: OperationContext) -> Entry | Reply | NotStoredHere:
    entry = await context.repository.get_one(context.owner, RESPONSE, context.operation.id)
    if entry is not None and not isinstance(entry, StoreDown):
        entry = await fail_if_abandoned(context.repository, entry)
    if isinstance(entry, StoreDown):
        return context.refuse_unavailable(entry)
    return context.refuse_missing("response", context.operation.id) if entry is None else entry


_INTEGER = re.compile(r"-?[0-9]{1,18}")


async def _get_response(context: OperationContext) -> OperationResult:
    entry = await _load_response(context)
    if not isinstance(entry, Entry):
        return entry
    if context.query.get("stream", "").lower() not in ("true", "1"):
        return Reply(200, JSON_HEADERS, encode(read_stored_response(entry).response))
    after = context.query.get("starting_after", "-1")
    if _INTEGER.fullmatch(after) is None:
        return context.refuse(Failure("invalid", "starting_after must be an integer", 400, param="starting_after"))
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
    if not isinstance(entry, Entry):
        return entry
    job = context.jobs.get(context.owner, entry.id)
    result = await context.repository.delete(context.owner, RESPONSE, entry.id)
    if isinstance(result, StoreDown):
        return context.refuse_unavailable(result)
    if job is not None:
        job.cancel()
    return Reply(200, JSON_HEADERS, encode(write_deleted("response", entry.id)))


async def _cancel_response(context: OperationContext) -> OperationResult:
    entry = await _load_response(context)
    if not isinstance(entry, Entry):
        return entry
    stored = read_stored_response(entry)
    if not stored.background:
        return context.refuse(Failure("invalid", "only a background response can be cancelled", 400))
    if entry.mark in UNFINISHED_STATUSES:
        ended = await store_ending(context.repository, entry, "cancelled", None)
        if isinstance(ended, StoreDown):
            return context.refuse_unavailable(ended)
        stored = read_stored_response(ended)
        job = context.jobs.get(context.owner, entry.id)
        if job is not None and ended.mark == "cancelled":
            job.cancel()
    return Reply(200, JSON_HEADERS, encode(stored.response))


async def _list_input_items(context: OperationContext) -> OperationResult:
    entry = await _load_response(context)
    if not isinstance(entry, Entry):
        return entry
    page = context.read_page()
    if isinstance(page, Reply):
        return page
    items = await load_input_items(context.repository, entry)
    if isinstance(items, Failure):
        return context.refuse(items)
    return context.list_items(add_missing_ids(items, entry.id), page)


_OPERATIONS: Mapping[OperationName, Callable[[OperationContext], Awaitable[OperationResult]]] = {
    "response": _get_response,
    "response-delete": _delete_response,
    "response-cancel": _cancel_response,
    "response-items": _list_input_items,
    "compact": compact_conversation,
    **CONVERSATION_OPERATIONS,
}
