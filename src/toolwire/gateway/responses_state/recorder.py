"""Stores the response to a request before the client sees its end, so that the next request can refer to it; and the
form that responses, conversations and items have in the store."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct
from msgspec.structs import replace

from toolwire.core.json_values import Json, Malformed, Object, decode, encode, expect_object
from toolwire.gateway.pipeline.call import Reply
from toolwire.gateway.responses_state.items import add_missing_ids, replace_ids
from toolwire.gateway.responses_state.response_objects import (
    NOT_STORED_FIELDS,
    read_output,
    read_response_id,
    read_status,
    write_state_fields,
)
from toolwire.gateway.responses_state.state_options import StateOptions
from toolwire.gateway.responses_state.stream_tap import StreamTap
from toolwire.gateway.store.repository import ITEM, RESPONSE, StateRepository
from toolwire.gateway.store.store import Entry, StoreDown

# --- records ----------------------------------------------------------------------------------------------------------

UNFINISHED_STATUSES = ("queued", "in_progress")
"""The `mark` of a response's entry is its status; with one of these it is still being made in the background."""


class StoredResponse(Struct, frozen=True, kw_only=True, omit_defaults=True, rename={"has_end_event": "told"}):
    """A response in the store, with the new input items of its request."""

    items: list[Object]
    response: Object
    conversation: str = ""
    background: bool = False
    lease: float = 0.0
    """A background response: until when its gateway has promised the next update. After that it counts as lost."""
    has_end_event: bool = False
    """Is the last event among the stored events of its stream? Called `told` in the store."""


class StoredConversation(Struct, frozen=True, kw_only=True):
    """A conversation in the store; its items are entries of their own."""

    created: int
    metadata: Json = None


def read_stored_response(entry: Entry) -> StoredResponse:
    fields = expect_object(decode(entry.body, max_bytes=len(entry.body)), None)
    return StoredResponse(has_end_event=fields.pop("told", False), **fields)


def read_stored_conversation(entry: Entry) -> StoredConversation:
    return StoredConversation(**decode(entry.body))


def read_stored_item(entry: Entry) -> Object:
    return expect_object(decode(entry.body, max_bytes=len(entry.body)), None)


def item_entries(owner: str, conversation: str, items: list[Object], now: float) -> list[Entry]:
    """The entries for the items of a conversation."""
    return [
        Entry(owner=owner, kind=ITEM, id=str(item["id"]), parent=conversation, body=encode(item), created=now)
        for item in items
    ]


# --- recorders --------------------------------------------------------------------------------------------------------

NOT_STORED_HEADER = {"x-toolwire-state": "not-kept"}
"""The header of a response that should have been stored and could not be."""
FAILED_STATUSES = ("failed", "cancelled")
"""Responses with these do not become part of their conversation."""


class StoringRecorder:
    """Stores the response, and sets the fields that the provider cannot know."""

    def __init__(
        self,
        repository: StateRepository,
        owner: str,
        options: StateOptions,
        items: list[Object],
        preassigned: tuple[str, int] = ("", 0),
    ) -> None:
        self.repository = repository
        self.owner = owner
        self.options = options
        self.items = items
        """The new input items of the request, each with an id."""
        self.overrides = write_state_fields(options, *preassigned)
        """Fields of the response that differ from the provider's."""

    def open_tap(self) -> StreamTap:
        return StreamTap(self.overrides)

    async def save_reply(self, reply: Reply) -> Reply:
        """Store a whole response; returns it as the client gets it."""
        if reply.status != 200:
            return reply
        try:
            response = expect_object(decode(reply.body, max_bytes=len(reply.body)), None)
        except Malformed:
            return replace(reply, headers={**reply.headers, **NOT_STORED_HEADER})
        response = {**response, **self.overrides}
        changes = await self.save_response(response)
        if changes is not None:
            headers = {**reply.headers, **NOT_STORED_HEADER}
            return Reply(reply.status, headers, encode({**response, **changes}))
        return replace(reply, body=encode(response)) if self.overrides else reply

    async def save_response(self, response: Object) -> Mapping[str, Json] | None:
        """Store a response; returns the fields to change in it if it could not be stored."""
        if not read_response_id(response):
            return NOT_STORED_FIELDS
        linked = await self.linked_entries(response)
        if isinstance(linked, StoreDown):
            return NOT_STORED_FIELDS
        pointers, conversation_items = linked
        entries = [self._response_entry(response)] if self.options.store else []
        result = await self.repository.put(*entries, *pointers, appended=conversation_items)
        return NOT_STORED_FIELDS if isinstance(result, StoreDown) else None

    def _response_entry(self, response: Object) -> Entry:
        stored = StoredResponse(items=self.items, response=response, conversation=self.options.conversation)
        return Entry(
            owner=self.owner,
            kind=RESPONSE,
            id=read_response_id(response),
            body=encode(stored),
            parent=self.options.previous_response_id,
            mark=read_status(response),
            created=self.repository.clock(),
        )

    async def linked_entries(self, response: Object) -> tuple[list[Entry], list[Entry]] | StoreDown:
        """Entries to write in one transaction with the response: pointers to it from its output items, for
        `item_reference`; or, in a conversation, the input and output items to append."""
        id, output = read_response_id(response), read_output(response)
        conversation = self.options.conversation
        if conversation and read_status(response) in FAILED_STATUSES:
            return [], []
        if conversation:
            output = add_missing_ids(output, id)
        elif not self.options.store:
            return [], []
        ids = [item["id"] for item in output if isinstance(item.get("id"), str)]
        existing = await self.repository.get(self.owner, ITEM, ids) if ids else []
        if isinstance(existing, StoreDown):
            return existing
        if conversation:
            items = [
                *replace_ids(self.items, id),
                *_make_ids_unique(output, {entry.id for entry in existing}, id),
            ]
            return [], item_entries(self.owner, conversation, items, self.repository.clock())
        return self._pointer_entries(output, {entry.id for entry in existing if entry.body}, id), []

    def _pointer_entries(self, output: list[Object], used_ids: set[str], id: str) -> list[Entry]:
        now = self.repository.clock()
        return [
            Entry(owner=self.owner, kind=ITEM, id=item["id"], parent=id, place=place, created=now)
            for place, item in enumerate(output)
            if isinstance(item.get("id"), str) and item["id"] not in used_ids
        ]


def _make_ids_unique(output: list[Object], used_ids: set[str], seed: str) -> list[Object]:
    """The items with new ids where another item has the same one: some providers use the same ids in every response."""
    out: list[Object] = []
    for number, item in enumerate(output):
        if item["id"] in used_ids:
            out += replace_ids([item], f"{seed}|{number}")
        else:
            out.append(item)
        used_ids.add(item["id"])
    return out


class StatelessRecorder:
    """Stores nothing, where the gateway has no store, and says so in the response."""

    def open_tap(self) -> StreamTap:
        return StreamTap(NOT_STORED_FIELDS)

    async def save_response(self, response: Object) -> Mapping[str, Json] | None:
        return None

    async def save_reply(self, reply: Reply) -> Reply:
        try:
            response = expect_object(decode(reply.body, max_bytes=len(reply.body)), None)
        except Malformed:
            return reply
        return Reply(reply.status, reply.headers, encode({**response, **NOT_STORED_FIELDS}))
