"""The endpoints for stored responses and conversations, `/v1/responses/…` and `/v1/conversations/…`."""

from __future__ import annotations

import re
import secrets
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from functools import partial
from typing import Literal, TypeAlias, TypeVar
from urllib.parse import unquote

from msgspec import Struct
from msgspec.structs import replace

from toolwire.core.ids import derive_id
from toolwire.core.ir import Failure
from toolwire.core.json_values import Json, Malformed, Object, decode, encode, parse_object
from toolwire.gateway.exchange import error_replies
from toolwire.gateway.exchange.client_body import refuse_names
from toolwire.gateway.exchange.gateway_request import AttemptFailed, GatewayRequest, StreamReplay
from toolwire.gateway.exchange.stages import RequestRunner
from toolwire.gateway.features.responses.background import (
    BackgroundJobs,
    fail_if_abandoned,
    follow_remote_job,
    store_ending,
)
from toolwire.gateway.features.responses.history import (
    COMPACT_PATH,
    allows_upstream_state,
    compacts_upstream,
    expand_request,
    is_native_target,
    is_not_stored_here,
    load_history,
    load_input_items,
    replace_body,
    request_summary,
    resolve_references,
    write_compact_response,
)
from toolwire.gateway.features.responses.idempotency import (
    HEADER,
    FinishedRequest,
    IdempotencyClaim,
    claim_key,
    replay_answer,
)
from toolwire.gateway.features.responses.recorder import (
    StoredConversation,
    item_entries,
    number_frames,
    read_stored_item,
    read_stored_response,
)
from toolwire.gateway.features.responses.response_objects import (
    StateOptions,
    add_missing_ids,
    not_found_failure,
    read_items_to_store,
    read_state_options,
    replace_ids,
    write_deleted,
    write_listed_item,
    write_response_stream,
)
from toolwire.gateway.http.headers import JSON_HEADERS
from toolwire.gateway.http.large_work import run_by_size, run_in_thread
from toolwire.gateway.http.messages import Reply
from toolwire.gateway.store.repository import (
    CONVERSATION,
    ITEM,
    RESPONSE,
    StateRepository,
    no_store_failure,
    store_unavailable_failure,
)
from toolwire.gateway.store.store import Entry, StoreDown
from toolwire.protocols.openai_responses.errors import invalid_request_failure, wrong_type_failure
from toolwire.protocols.openai_responses.http import PATH
from toolwire.protocols.openai_responses.names import UNFINISHED_STATUSES

OperationName: TypeAlias = Literal[
    "response", "response-delete", "response-cancel", "response-items", "compact",
    "conversation-create", "conversation", "conversation-update", "conversation-delete",
    "items", "items-add", "item", "item-delete",
]  # fmt: skip


class StateOperation(Struct, frozen=True, kw_only=True):
    """What a request to an endpoint for stored things asks for."""

    name: OperationName
    id: str = ""
    """The id of the response or conversation."""
    item_id: str = ""


class NotStoredHere(Struct, frozen=True):
    """The gateway does not have it, but the provider may: the request is passed on."""


OperationResult: TypeAlias = Reply | StreamReplay | NotStoredHere
Value = TypeVar("Value")


class OperationRefused(Exception):
    """An operation cannot be done; the request gets this result instead."""

    def __init__(self, result: Reply | NotStoredHere) -> None:
        self.result = result


class Page(Struct, frozen=True, kw_only=True):
    """Which part of a list a client asks for."""

    after: str = ""
    limit: int = 20
    descending: bool = True


class OperationContext(Struct, eq=False):
    """One request to an endpoint for stored things."""

    repository: StateRepository
    jobs: BackgroundJobs
    pipeline: RequestRunner
    request: GatewayRequest
    operation: StateOperation
    owner: str
    query: Mapping[str, str]
    claim: IdempotencyClaim | None = None
    """The idempotency key of a request that creates or adds something."""

    def finished_entries(self, answer: Object) -> list[Entry]:
        """The note that the request with this answer is done, if it has an idempotency key."""
        return [] if self.claim is None else [self.claim.finished_entry(answer=answer)]

    @property
    def max_bytes(self) -> int:
        """The largest request that is sent to a provider, with the history in it."""
        return self.request.runtime.config.server.max_body

    def set_body(self, body: bytes) -> None:
        """Set the body of the request; raises if it is not valid."""
        read = self.request.with_body(body) if body else self.request
        if isinstance(read, Failure):
            raise self.refusal(read)
        self.request = replace(read, id_seed=secrets.token_hex(12))
        request = self.request
        has_rules = bool(request.runtime.policy.rules)
        refused = refuse_names(request.client_codec, request.body.names, request.caller.key, has_rules)
        if refused is not None:
            raise self.refusal(refused)

    def read_body(self) -> Object:
        body = self.request.body.data or b"{}"
        try:
            return parse_object(body, len(body))
        except Malformed as bad:
            raise self.refusal(Failure("invalid", str(bad), 400, param=bad.path)) from None

    def refusal(self, failure: Failure) -> OperationRefused:
        return OperationRefused(error_replies.error_reply(self.request.client_codec, failure))

    def missing_object(self, kind: Literal["response", "conversation"], id: str) -> OperationRefused:
        provider = self.request.runtime.router.find_speaker(self.request.client_codec.name, self.request.caller.key)
        if provider is not None and allows_upstream_state(self.request):
            return OperationRefused(NotStoredHere())
        return self.refusal(not_found_failure(kind, id))

    def unwrap(self, result: Value | Failure | StoreDown) -> Value:
        """The result of a check or of the store; raises if it is a failure."""
        if isinstance(result, StoreDown):
            result = store_unavailable_failure(result) if self.repository.is_enabled else no_store_failure(404)
        if isinstance(result, Failure):
            raise self.refusal(result)
        return result

    def list_items(self, items: list[Object], page: Page) -> Reply:
        """The part of a list that the client asks for."""
        ordered = items[::-1] if page.descending else items
        if page.after:
            place = next((number for number, item in enumerate(ordered) if item.get("id") == page.after), None)
            if place is None:
                raise self.refusal(not_found_failure("item", page.after))
            ordered = ordered[place + 1 :]
        shown = ordered[: page.limit]
        return Reply(200, JSON_HEADERS, encode(write_page(shown, len(ordered) > len(shown))))


_ORDERS: Mapping[str, bool] = {"desc": True, "asc": False}
_MAX_PAGE_SIZE = 100


def read_page(query: Mapping[str, str]) -> Page | Failure:
    text = query.get("limit", str(Page().limit))
    try:
        limit = int(text)
    except ValueError:
        return wrong_type_failure("limit", "an integer", text)
    if limit > _MAX_PAGE_SIZE:
        expected = f"Expected a value <= {_MAX_PAGE_SIZE}, but got {limit} instead."
        message = f"Invalid 'limit': integer above maximum value. {expected}"
        return invalid_request_failure(message, "limit", "integer_above_max_value")
    if limit < 1:
        message = f"Invalid 'limit': integer below minimum value. Expected a value >= 1, but got {limit} instead."
        return invalid_request_failure(message, "limit", "integer_below_min_value")
    order = query.get("order", "desc")
    if order not in _ORDERS:
        message = f"Invalid value: '{order}'. Supported values are: 'asc' and 'desc'."
        return invalid_request_failure(message, "order", "invalid_value")
    return Page(after=query.get("after", ""), limit=limit, descending=_ORDERS[order])


def write_page(items: list[Object], has_more: bool) -> Object:
    first, last = (items[0], items[-1]) if items else ({}, {})
    return {
        "object": "list",
        "data": [write_listed_item(item) for item in items],
        "first_id": first.get("id") or "",
        "last_id": last.get("id") or "",
        "has_more": has_more,
    }


# --- paths ------------------------------------------------------------------------------------------------------------

_CONVERSATIONS_PATH = "/v1/conversations"
_RESERVED_SEGMENTS = frozenset({"compact", "input_tokens"})
"""Segments after `/v1/responses/` that are not ids."""
_OPERATION_NAMES: Mapping[tuple[str, str, str], OperationName] = {
    (PATH, "GET", ""): "response",
    (PATH, "DELETE", ""): "response-delete",
    (PATH, "POST", "cancel"): "response-cancel",
    (PATH, "GET", "input_items"): "response-items",
    (_CONVERSATIONS_PATH, "GET", ""): "conversation",
    (_CONVERSATIONS_PATH, "POST", ""): "conversation-update",
    (_CONVERSATIONS_PATH, "DELETE", ""): "conversation-delete",
    (_CONVERSATIONS_PATH, "GET", "items"): "items",
    (_CONVERSATIONS_PATH, "POST", "items"): "items-add",
    (_CONVERSATIONS_PATH, "GET", "items/*"): "item",
    (_CONVERSATIONS_PATH, "DELETE", "items/*"): "item-delete",
}
"""Operations by collection, method, and the path after the id; `*` is the id of an item."""


def match_operation(method: str, path: str) -> StateOperation | None:
    """What a request with this method and path asks for; None if it is not an endpoint for stored things."""
    if method == "POST" and path in (COMPACT_PATH, _CONVERSATIONS_PATH):
        return StateOperation(name="compact" if path == COMPACT_PATH else "conversation-create")
    collection = next((root for root in (PATH, _CONVERSATIONS_PATH) if path.startswith(f"{root}/")), "")
    id, _, rest = path[len(collection) + 1 :].partition("/")
    segment, _, item_id = rest.partition("/")
    name = _OPERATION_NAMES.get((collection, method, f"{segment}/*" if item_id and "/" not in item_id else rest))
    if name is None or not id or (collection == PATH and id in _RESERVED_SEGMENTS):
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
            return await _claim_key(context) or await _OPERATIONS[context.operation.name](context)
        if allows_upstream_state(context.request):
            return NotStoredHere()
        raise context.refusal(no_store_failure(404))
    except OperationRefused as refused:
        return refused.result
    finally:
        if context.claim is not None:
            context.claim.release()


async def _claim_key(context: OperationContext) -> Reply | None:
    """Claim the idempotency key of a request that creates or adds something; its answer if it was done already."""
    key = context.request.headers.get(HEADER, "")
    if not key or context.operation.name not in ("conversation-create", "items-add"):
        return None
    place = f"{context.operation.name} {context.operation.id}"
    claim = await claim_key(context.repository, context.owner, key, place, context.read_body())
    if isinstance(claim, FinishedRequest):
        return replay_answer(claim.answer or {})
    if not isinstance(claim, IdempotencyClaim):
        raise context.refusal(store_unavailable_failure(claim) if isinstance(claim, StoreDown) else claim)
    context.claim = claim
    return None


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
        async for frame in follow_remote_job(context.repository, entry, after):
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
    items = context.unwrap(await load_input_items(context.repository, entry, context.max_bytes))
    return context.list_items(add_missing_ids(items, entry.id), page)


async def _compact_conversation(context: OperationContext) -> OperationResult:
    """`POST /v1/responses/compact`."""
    request, pipeline, size = context.request, context.pipeline, len(context.request.body.data)
    body = await run_by_size(size, context.read_body)
    targets = pipeline.route_request(request)
    if isinstance(targets, AttemptFailed):
        return targets.reply
    admitted = await pipeline.admit(request, targets)
    if isinstance(admitted, AttemptFailed):
        return admitted.reply
    request = admitted
    options = context.unwrap(await run_by_size(size, partial(read_state_options, body)))
    history = await load_history(context.repository, context.owner, options, context.max_bytes)
    if isinstance(history, Failure):
        is_upstream = (
            is_not_stored_here(history) and is_native_target(request, targets) and allows_upstream_state(request)
        )
        if not is_upstream:
            raise context.refusal(history)
    elif options.refers_to_stored:
        body = await run_in_thread(partial(expand_request, body, history.items, history.referenced))
        request = context.unwrap(await run_in_thread(partial(replace_body, request, body)))
        size = len(request.body.data)
    if compacts_upstream(request, targets):
        reply = await pipeline.forward_native(request, targets[0], COMPACT_PATH)
        if reply is not None:
            return reply
    items = await run_by_size(size, partial(read_items_to_store, body, request.id_seed))
    answer = await request_summary(request, targets, pipeline, body, size)
    if isinstance(answer, AttemptFailed):
        return answer.reply
    summary, provider_headers = answer
    keys = request.runtime.envelope_keys_of(request.caller.key)
    write = partial(write_compact_response, summary, items, request.id_seed, int(request.now), keys)
    response = context.unwrap(await run_by_size(size, write))
    return Reply(200, provider_headers, await run_by_size(size, partial(encode, response)))


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
    references = context.unwrap(read_state_options({"input": items})).references
    if not references:
        return items
    options = StateOptions(references=references)
    history = context.unwrap(await load_history(context.repository, context.owner, options, context.max_bytes))
    return resolve_references(items, history.referenced)


def _conversation_reply(entry: Entry) -> Reply:
    stored = StoredConversation(**decode(entry.body))
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
    reply = _conversation_reply(entry)
    done = context.finished_entries(parse_object(reply.body))
    context.unwrap(await context.repository.put(entry, *done, appended=appended))
    return reply


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


async def _list_conversation_items(context: OperationContext) -> OperationResult:
    page = context.unwrap(read_page(context.query))
    entry = await _load_conversation(context)
    shown: deque[Entry] = deque(maxlen=page.limit + 1)  # one more, to tell whether there are more
    is_found = not page.after
    async for stored in context.repository.iterate_children(context.owner, ITEM, entry.id):
        item = context.unwrap(stored)
        is_start = item.id == page.after
        is_found = is_found or is_start
        if (page.descending and is_start) or (not page.descending and len(shown) > page.limit):
            break
        if page.descending or (is_found and not is_start):
            shown.append(item)
    if not is_found:
        raise context.refusal(not_found_failure("item", page.after))
    items = [*map(read_stored_item, reversed(shown) if page.descending else shown)]
    return Reply(200, JSON_HEADERS, encode(write_page(items[: page.limit], len(items) > page.limit)))


async def _add_items(context: OperationContext) -> OperationResult:
    entry = await _load_conversation(context)
    added = context.unwrap(read_added_items(context.read_body()))
    items = replace_ids(await _resolve_items(context, added), secrets.token_hex(12))
    appended = item_entries(context.owner, entry.id, items, context.repository.clock())
    page = write_page(items, False)
    entries = [entry, *context.finished_entries(page)]
    if not context.unwrap(await context.repository.put(*entries, required_marks=EXISTING_MARKS, appended=appended)):
        raise context.missing_object("conversation", entry.id)
    return Reply(200, JSON_HEADERS, encode(page))


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
    "compact": _compact_conversation,
    "conversation-create": _create_conversation,
    "conversation": _get_conversation,
    "conversation-update": _update_conversation,
    "conversation-delete": _delete_conversation,
    "items": _list_conversation_items,
    "items-add": _add_items,
    "item": _get_item,
    "item-delete": _delete_item,
}
