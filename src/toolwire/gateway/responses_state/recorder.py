"""Keeps the answer of one request: before the client sees its end, so that whatever it asks next finds it."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from toolwire.core.ir import Failure
from toolwire.core.json_values import Json, Malformed, Object, decode, encode, expect_object
from toolwire.gateway.pipeline.call import Reply
from toolwire.gateway.responses_state.repository import ITEM, RESPONSE, StateRepository, StoredResponse, encode_record
from toolwire.gateway.store.store import STORE_DISABLED, Entry, StoreDown
from toolwire.keeping import Keeping, Tap, Wants

NOT_STORED_HEADER = {"x-toolwire-state": "not-kept"}
"""The header of an answer that should have been kept and could not be."""

FAILED_STATUSES = ("failed", "cancelled")
"""Answers that are none: they do not become part of a conversation."""


class StoringRecorder:
    """What is known of a request whose answer is kept, or told differently."""

    def __init__(
        self,
        repository: StateRepository,
        owner: str,
        keeping: Keeping,
        wants: Wants,
        items: list[Object],
        preassigned: tuple[str, int] = ("", 0),
    ) -> None:
        self.repository = repository
        self.owner = owner
        self.keeping = keeping
        self.wants = wants
        self.items = items
        """The input that is new in it, each item with an id."""
        self.overrides = keeping.told(wants, *preassigned)
        """Keys of the answer that are told otherwise than the provider told them."""

    def open_tap(self) -> Tap:
        return self.keeping.tap(self.overrides)

    async def save_reply(self, reply: Reply) -> Reply:
        """An answer that came whole, kept; as the client gets it."""
        if reply.status != 200:
            return reply
        try:
            response = expect_object(decode(reply.body, max_bytes=len(reply.body)), None)
        except Malformed:
            return replace(reply, headers={**reply.headers, **NOT_STORED_HEADER})
        told = {**response, **self.overrides}
        missed = await self.save_response(told)
        if missed is not None:
            headers = {**reply.headers, **NOT_STORED_HEADER}
            return Reply(reply.status, headers, encode({**told, **missed}))
        return replace(reply, body=encode(told)) if self.overrides else reply

    async def save_response(self, response: Object) -> Mapping[str, Json] | None:
        """None when it is kept, or need not be; else what the answer must say instead."""
        if not self.keeping.name(response):
            return self.keeping.unkept
        parts = await self.linked_entries(response)
        if isinstance(parts, StoreDown):
            return self.keeping.unkept
        pointers, turn = parts
        answer = [self._response_entry(response)] if self.wants.store else []
        got = await self.repository.put(*answer, *pointers, appended=turn)
        return self.keeping.unkept if isinstance(got, StoreDown) else None

    def _response_entry(self, response: Object) -> Entry:
        kept = StoredResponse(items=self.items, response=response, conversation=self.wants.conversation)
        return Entry(
            owner=self.owner,
            kind=RESPONSE,
            id=self.keeping.name(response),
            body=encode_record(kept),
            parent=self.wants.previous,
            mark=self.keeping.status(response),
            created=self.repository.clock(),
        )

    async def linked_entries(self, response: Object) -> tuple[list[Entry], list[Entry]] | StoreDown:
        """What is kept beside the answer: pointers to it from its items that can be referred to; or, in a conversation,
        what was asked and what was answered, at its end. All this is written with the answer, or nothing is."""
        id, output = self.keeping.name(response), self.keeping.output(response)
        if self.wants.conversation and self.keeping.status(response) in FAILED_STATUSES:
            return [], []
        if self.wants.conversation:
            output = self.keeping.named(output, id)
        elif not self.wants.store:
            return [], []
        ids = [item["id"] for item in output if isinstance(item.get("id"), str)]
        there = await self.repository.get(self.owner, ITEM, ids) if ids else []
        if isinstance(there, StoreDown):
            return there
        if self.wants.conversation:
            asked = self.keeping.renewed(self.items, id)
            items = [*asked, *self._make_ids_unique(output, {entry.id for entry in there}, id)]
            return [], conversation_item_entries(self.owner, self.wants.conversation, items, self.repository.clock())
        return self._pointer_entries(output, {entry.id for entry in there if entry.body}, id), []

    def _pointer_entries(self, output: list[Object], used_ids: set[str], id: str) -> list[Entry]:
        now = self.repository.clock()
        return [
            Entry(owner=self.owner, kind=ITEM, id=item["id"], parent=id, place=place, created=now)
            for place, item in enumerate(output)
            if isinstance(item.get("id"), str) and item["id"] not in used_ids
        ]

    def _make_ids_unique(self, output: list[Object], used_ids: set[str], id: str) -> list[Object]:
        """Items with ids that nothing else has: some providers give the same ones again and again."""
        out: list[Object] = []
        for number, item in enumerate(output):
            if item["id"] in used_ids:
                out += self.keeping.renewed([item], f"{id}|{number}")
            else:
                out.append(item)
            used_ids.add(item["id"])
        return out


def conversation_item_entries(owner: str, conversation: str, items: list[Object], now: float) -> list[Entry]:
    """Items as a conversation keeps them."""
    return [
        Entry(owner=owner, kind=ITEM, id=str(item["id"]), parent=conversation, body=encode(item), created=now)
        for item in items
    ]


class StatelessRecorder:
    """In the place of a keeper."""

    def __init__(self, keeping: Keeping) -> None:
        self.keeping = keeping

    def open_tap(self) -> Tap:
        return self.keeping.tap(self.keeping.unkept)

    async def save_response(self, response: Object) -> Mapping[str, Json] | None:
        return None

    async def save_reply(self, reply: Reply) -> Reply:
        try:
            response = expect_object(decode(reply.body, max_bytes=len(reply.body)), None)
        except Malformed:
            return reply
        return Reply(reply.status, reply.headers, encode({**response, **self.keeping.unkept}))


def no_store_failure(status: int) -> Failure:
    """What is said to those who want something kept, or refer to it."""
    hint = "send the whole conversation in the request, with `store: false`, and wait for the answer"
    return Failure(
        "invalid" if status == 400 else "not_found", f"{STORE_DISABLED.reason}; {hint}", status, "nothing_kept"
    )
