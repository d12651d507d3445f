"""One request about what is kept, and how it can turn out."""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import TypeAlias
from urllib.parse import parse_qsl

from msgspec import Struct

from toolwire.core.ir import Failure
from toolwire.core.json_values import Json, Malformed, Object, decode, encode, expect_object
from toolwire.gateway.pipeline import error_replies
from toolwire.gateway.pipeline.call import AttemptFailed, GatewayCall, Reply
from toolwire.gateway.pipeline.headers import JSON_HEADERS
from toolwire.gateway.responses_state.background import fail_if_abandoned, follow_remote_job, store_ending
from toolwire.gateway.responses_state.history import load_history, load_response_chain
from toolwire.gateway.responses_state.pipeline_interface import Pipeline
from toolwire.gateway.responses_state.recorder import conversation_item_entries, no_store_failure
from toolwire.gateway.responses_state.repository import (
    CONVERSATION,
    ITEM,
    RESPONSE,
    UNFINISHED_STATUSES,
    StoredConversation,
    StoredResponse,
    encode_record,
    owner_of,
    read_stored_conversation,
    read_stored_response,
    store_unavailable_failure,
)
from toolwire.gateway.responses_state.service import (
    ENVELOPE_PREFIX,
    ResponsesService,
    allows_upstream_state,
    is_native_target,
    replace_body,
)
from toolwire.gateway.store.store import Entry, StoreDown
from toolwire.keeping import Errand, Keeping, Page, Wants


class StreamReplay(Struct, frozen=True):
    """An answer that is told as a stream."""

    frames: AsyncIterator[bytes]


class NotOurs(Struct, frozen=True):
    """Not ours: the provider may know it."""


OperationOutcome: TypeAlias = Reply | StreamReplay | NotOurs


class OperationContext:
    """One such request."""

    def __init__(
        self,
        service: ResponsesService,
        pipeline: Pipeline,
        call: GatewayCall,
        keeping: Keeping,
        operation: Errand,
        query: str,
    ) -> None:
        self.service = service
        self.repository = service.repository
        self.pipeline = pipeline
        self.call = call
        self.keeping = keeping
        self.operation = operation
        self.owner = owner_of(call.caller)
        self.query: Mapping[str, str] = dict(parse_qsl(query, keep_blank_values=True))

    def set_body(self, body: bytes) -> Reply | None:
        """The body of the request; a reply where it is none."""
        self.call.id_seed = secrets.token_hex(12)
        if not body or self.pipeline.load_body(self.call, body):
            return None
        try:
            expect_object(decode(body, max_bytes=len(body)), None)
        except Malformed as bad:
            return self.refuse(Failure("invalid", str(bad), 400, param=bad.path))
        return self.refuse(Failure("invalid", "the model must be a string and stream true or false", 400))

    def refuse(self, failure: Failure) -> Reply:
        return error_replies.error_reply(self.call.client_codec, failure)

    def refuse_unavailable(self, down: StoreDown) -> Reply:
        return self.refuse(store_unavailable_failure(down) if self.repository.is_enabled else no_store_failure(404))

    def refuse_missing(self, kind: str, id: str) -> Reply | NotOurs:
        """Where nobody shares the provider's account, the provider may know what we do not."""
        speaker = self.call.runtime.router.find_speaker(self.call.client_codec.name)
        if speaker is not None and allows_upstream_state(self.call):
            return NotOurs()
        return self.refuse(self.keeping.not_found(kind, id))

    def read_body(self) -> Object | Reply:
        try:
            return expect_object(decode(self.call.body or b"{}", max_bytes=max(2, len(self.call.body))), None)
        except Malformed as bad:
            return self.refuse(Failure("invalid", str(bad), 400, param=bad.path))

    def read_page(self) -> Page | Reply:
        page = self.keeping.read_page(self.query)
        return self.refuse(page) if isinstance(page, Failure) else page

    def write_page(self, items: list[Object], page: Page) -> Reply:
        """A part of a list."""
        ordered = items[::-1] if page.descending else items
        if page.after:
            place = next((number for number, item in enumerate(ordered) if item.get("id") == page.after), None)
            if place is None:
                return self.refuse(self.keeping.not_found("item", page.after))
            ordered = ordered[place + 1 :]
        shown = ordered[: page.limit]
        return Reply(200, JSON_HEADERS, encode(self.keeping.write_page(shown, len(ordered) > len(shown))))


# --- Conversations that clients keep here: made, read, changed, and their items ---


EXISTING_MARKS = ("",)
"""The mark of a conversation: what is written with it is written only while it is there."""


async def _load_conversation(context: OperationContext) -> Entry | OperationOutcome:
    entry = await context.repository.get_one(context.owner, CONVERSATION, context.operation.id)
    if isinstance(entry, StoreDown):
        return context.refuse_unavailable(entry)
    return context.refuse_missing("conversation", context.operation.id) if entry is None else entry


async def _resolve_items(context: OperationContext, items: list[Object]) -> list[Object] | Reply:
    """Items with those put in that they only refer to."""
    ids = context.keeping.referred(items)
    if isinstance(ids, Failure):
        return context.refuse(ids)
    if not ids:
        return items
    got = await load_history(context.repository, context.owner, context.keeping, Wants(references=ids))
    return context.refuse(got) if isinstance(got, Failure) else context.keeping.resolved(items, got.referenced)


def _conversation_reply(context: OperationContext, entry: Entry) -> Reply:
    talk = read_stored_conversation(entry)
    return Reply(200, JSON_HEADERS, encode(context.keeping.write_conversation(entry.id, talk.created, talk.metadata)))


def _conversation_entry(
    context: OperationContext, id: str, created: float, metadata: Json, expires: float = 0.0
) -> Entry:
    body = encode_record(StoredConversation(created=int(created), metadata=metadata))
    return Entry(owner=context.owner, kind=CONVERSATION, id=id, body=body, created=created, expires=expires)


async def _create_conversation(context: OperationContext) -> OperationOutcome:
    body = context.read_body()
    if isinstance(body, Reply):
        return body
    asked = context.keeping.read_conversation(body)
    if isinstance(asked, Failure):
        return context.refuse(asked)
    given, metadata = asked
    items = await _resolve_items(context, given)
    if isinstance(items, Reply):
        return items
    seed, now = secrets.token_hex(12), context.repository.clock()
    entry = _conversation_entry(context, context.keeping.new("conversation", seed), now, metadata)
    behind = conversation_item_entries(context.owner, entry.id, context.keeping.renewed(items, seed), now)
    got = await context.repository.put(entry, appended=behind)
    return context.refuse_unavailable(got) if isinstance(got, StoreDown) else _conversation_reply(context, entry)


async def _get_conversation(context: OperationContext) -> OperationOutcome:
    entry = await _load_conversation(context)
    return _conversation_reply(context, entry) if isinstance(entry, Entry) else entry


async def _update_conversation(context: OperationContext) -> OperationOutcome:
    entry, body = await _load_conversation(context), context.read_body()
    if not isinstance(entry, Entry):
        return entry
    if isinstance(body, Reply):
        return body
    metadata = context.keeping.read_metadata(body)
    if isinstance(metadata, Failure):
        return context.refuse(metadata)
    # Not longer than its items, or it would be there without the first of them.
    changed = _conversation_entry(context, entry.id, entry.created, metadata, entry.expires)
    got = await context.repository.put(changed, required_marks=EXISTING_MARKS)
    if got is False:
        return context.refuse_missing("conversation", entry.id)
    return context.refuse_unavailable(got) if isinstance(got, StoreDown) else _conversation_reply(context, changed)


async def _delete_conversation(context: OperationContext) -> OperationOutcome:
    entry = await _load_conversation(context)
    if not isinstance(entry, Entry):
        return entry
    got = await context.repository.delete(context.owner, CONVERSATION, entry.id)
    if isinstance(got, StoreDown):
        return context.refuse_unavailable(got)
    return Reply(200, JSON_HEADERS, encode(context.keeping.write_deleted("conversation", entry.id)))


# --- items ----------------------------------------------------------------------------------------------------------


async def _list_conversation_items(context: OperationContext) -> OperationOutcome:
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
        else context.write_page(list(map(_read_item, entries)), page)
    )


async def _add_items(context: OperationContext) -> OperationOutcome:
    entry, body = await _load_conversation(context), context.read_body()
    if not isinstance(entry, Entry):
        return entry
    if isinstance(body, Reply):
        return body
    added = context.keeping.read_added(body)
    if isinstance(added, Failure):
        return context.refuse(added)
    whole = await _resolve_items(context, added)
    if isinstance(whole, Reply):
        return whole
    items = context.keeping.renewed(whole, secrets.token_hex(12))
    behind = conversation_item_entries(context.owner, entry.id, items, context.repository.clock())
    got = await context.repository.put(entry, required_marks=EXISTING_MARKS, appended=behind)
    if got is False:
        return context.refuse_missing("conversation", entry.id)
    return (
        context.refuse_unavailable(got)
        if isinstance(got, StoreDown)
        else Reply(200, JSON_HEADERS, encode(context.keeping.write_page(items, False)))
    )


async def _load_item(context: OperationContext, conversation: Entry) -> Entry | Reply:
    item = await context.repository.get_one(context.owner, ITEM, context.operation.item)
    if isinstance(item, StoreDown):
        return context.refuse_unavailable(item)
    if item is None or item.parent != conversation.id:
        return context.refuse(context.keeping.not_found("item", context.operation.item))
    return item


async def _get_item(context: OperationContext) -> OperationOutcome:
    talk = await _load_conversation(context)
    item = await _load_item(context, talk) if isinstance(talk, Entry) else talk
    return (
        Reply(200, JSON_HEADERS, encode(context.keeping.write_item(_read_item(item))))
        if isinstance(item, Entry)
        else item
    )


async def _delete_item(context: OperationContext) -> OperationOutcome:
    talk = await _load_conversation(context)
    if not isinstance(talk, Entry):
        return talk
    item = await _load_item(context, talk)
    got = await context.repository.delete(context.owner, ITEM, item.id) if isinstance(item, Entry) else item
    if isinstance(got, Reply):
        return got
    return context.refuse_unavailable(got) if isinstance(got, StoreDown) else _conversation_reply(context, talk)


def _read_item(entry: Entry) -> Object:
    return expect_object(decode(entry.body, max_bytes=len(entry.body)), None)


_CONVERSATION_OPERATIONS: Mapping[str, Callable[[OperationContext], Awaitable[OperationOutcome]]] = {
    "conversation-create": _create_conversation,
    "conversation": _get_conversation,
    "conversation-update": _update_conversation,
    "conversation-delete": _delete_conversation,
    "items": _list_conversation_items,
    "items-add": _add_items,
    "item": _get_item,
    "item-delete": _delete_item,
}


_INTEGER = re.compile(r"-?[0-9]{1,18}")


async def run_operation(context: OperationContext) -> OperationOutcome:
    """See to it."""
    if not context.repository.is_enabled and context.operation.verb != "compact":
        return context.refuse(no_store_failure(404)) if not allows_upstream_state(context.call) else NotOurs()
    return await _OPERATIONS[context.operation.verb](context)


# --- answers --------------------------------------------------------------------------------------------------------


async def _load_response(context: OperationContext) -> Entry | Reply | NotOurs:
    entry = await context.repository.get_one(context.owner, RESPONSE, context.operation.id)
    if entry is not None and not isinstance(entry, StoreDown):
        entry = await fail_if_abandoned(context.repository, context.keeping, entry)
    if isinstance(entry, StoreDown):
        return context.refuse_unavailable(entry)
    return context.refuse_missing("response", context.operation.id) if entry is None else entry


async def _get_response(context: OperationContext) -> OperationOutcome:
    entry = await _load_response(context)
    if not isinstance(entry, Entry):
        return entry
    if context.query.get("stream", "").lower() not in ("true", "1"):
        return Reply(200, JSON_HEADERS, encode(read_stored_response(entry).response))
    after = context.query.get("starting_after", "-1")
    if _INTEGER.fullmatch(after) is None:
        return context.refuse(Failure("invalid", "starting_after must be a number", 400, param="starting_after"))
    return StreamReplay(replay_stream(context, entry, int(after)))


async def replay_stream(context: OperationContext, entry: Entry, after: int) -> AsyncIterator[bytes]:
    """The stream of an answer from behind this event, as it was told or as it is told now."""
    kept, keeping = read_stored_response(entry), context.keeping
    job = context.service.jobs.get(context.owner, entry.id)
    if job is not None:
        async for frame in job.follow_stream(after):
            yield frame
    elif kept.background:
        async for frame in follow_remote_job(context.repository, keeping, entry, after, asyncio.sleep):
            yield frame
    else:
        for number, frame in keeping.numbered(keeping.frames(kept.response)):
            if number > after:
                yield frame


async def _delete_response(context: OperationContext) -> OperationOutcome:
    entry = await _load_response(context)
    if not isinstance(entry, Entry):
        return entry
    job = context.service.jobs.get(context.owner, entry.id)
    gone = await context.repository.delete(context.owner, RESPONSE, entry.id)
    if isinstance(gone, StoreDown):
        return context.refuse_unavailable(gone)
    if job is not None:
        job.cancel()
    return Reply(200, JSON_HEADERS, encode(context.keeping.write_deleted("response", entry.id)))


async def _cancel_response(context: OperationContext) -> OperationOutcome:
    entry = await _load_response(context)
    if not isinstance(entry, Entry):
        return entry
    kept = read_stored_response(entry)
    if not kept.background:
        what = "only an answer that is made in the background can be cancelled"
        return context.refuse(Failure("invalid", what, 400))
    if entry.mark in UNFINISHED_STATUSES:
        now = await store_ending(context.repository, context.keeping, entry, "cancelled", None)
        if isinstance(now, StoreDown):
            return context.refuse_unavailable(now)
        kept = read_stored_response(now)
        job = context.service.jobs.get(context.owner, entry.id)
        if job is not None and now.mark == "cancelled":
            job.cancel()
    return Reply(200, JSON_HEADERS, encode(kept.response))


async def _list_input_items(context: OperationContext) -> OperationOutcome:
    """All that the answer was made of: what came before it, and what was new."""
    entry = await _load_response(context)
    if not isinstance(entry, Entry):
        return entry
    page = context.read_page()
    if isinstance(page, Reply):
        return page
    before = await _load_input_items(context, entry, read_stored_response(entry))
    if isinstance(before, Failure):
        return context.refuse(before)
    return context.write_page(context.keeping.named(before, entry.id), page)


async def _load_input_items(context: OperationContext, entry: Entry, kept: StoredResponse) -> list[Object] | Failure:
    if kept.conversation:
        entries = await context.repository.get_children(context.owner, ITEM, kept.conversation)
        if isinstance(entries, StoreDown):
            return store_unavailable_failure(entries)
        items = [expect_object(decode(one.body, max_bytes=len(one.body)), None) for one in entries]
        made = {item.get("id") for item in context.keeping.output(kept.response)}
        end = next((number for number, item in enumerate(items) if item.get("id") in made), None)
        if end is not None:
            return items[:end]
        # It is not in the conversation: what was there when it was made, and what was asked.
        return [*(item for one, item in zip(entries, items, strict=True) if one.created < entry.created), *kept.items]
    if entry.parent:
        got = await load_response_chain(context.repository, context.owner, context.keeping, entry.parent)
        return got if isinstance(got, Failure) else [*got[1], *kept.items]
    return kept.items


# --- summaries ------------------------------------------------------------------------------------------------------


async def _compact_conversation(context: OperationContext) -> OperationOutcome:
    """A summary of a conversation: the provider's own where it makes one, else one that the model is asked for."""
    call, keeping = context.call, context.keeping
    body = context.read_body()
    if isinstance(body, Reply):
        return body
    targets = context.pipeline.route_call(call)
    if isinstance(targets, AttemptFailed):
        return targets.reply
    wants = keeping.wants(body)
    if isinstance(wants, Failure):
        return context.refuse(wants)
    native = is_native_target(call, targets)
    got = await load_history(context.repository, context.owner, keeping, wants)
    if isinstance(got, Failure):
        if got.status >= 500 or not (native and allows_upstream_state(call)):
            return context.refuse(got)
    elif wants.previous or wants.conversation or wants.references:
        body = keeping.expanded(body, got.history, got.referenced)
        replace_body(call, body)
    if native and ENVELOPE_PREFIX not in call.body:
        own = await context.pipeline.forward_native(call, targets[0], keeping.compact_path)
        if own is not None:
            return own
    items = keeping.items(body, call.id_seed)
    answer = await context.service.request_summary(call, targets, context.pipeline, keeping, body)
    if isinstance(answer, AttemptFailed):
        return answer.reply
    told = keeping.summarised(body, answer, items, call.id_seed, int(call.now))
    return context.refuse(told) if isinstance(told, Failure) else Reply(200, JSON_HEADERS, encode(told))


_OPERATIONS: Mapping[str, Callable[[OperationContext], Awaitable[OperationOutcome]]] = {
    "response": _get_response,
    "response-delete": _delete_response,
    "response-cancel": _cancel_response,
    "response-items": _list_input_items,
    "compact": _compact_conversation,
    **_CONVERSATION_OPERATIONS,
}
