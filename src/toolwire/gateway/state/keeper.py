"""Keeps the answer of one request: before the client sees its end, so that whatever it asks next finds it."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from toolwire.gateway.call import Reply
from toolwire.gateway.state.book import ITEM, RESPONSE, Book, Kept, written
from toolwire.gateway.store.record import Down, Entry
from toolwire.keeping import Keeping, Tap, Wants
from toolwire.wire import Json, Malformed, Object, as_object, decode, encode

NOT_KEPT = {"x-toolwire-state": "not-kept"}
"""The header of an answer that should have been kept and could not be."""

FAILED = ("failed", "cancelled")
"""Answers that are none: they do not become part of a conversation."""


class Keeper:
    """What is known of a request whose answer is kept, or told differently."""

    def __init__(
        self,
        book: Book,
        owner: str,
        keeping: Keeping,
        wants: Wants,
        items: list[Object],
        given: tuple[str, int] = ("", 0),
    ) -> None:
        self.book = book
        self.owner = owner
        self.keeping = keeping
        self.wants = wants
        self.items = items
        """The input that is new in it, each item with an id."""
        self.changes = keeping.told(wants, *given)
        """Keys of the answer that are told otherwise than the provider told them."""

    def tap(self) -> Tap:
        return self.keeping.tap(self.changes)

    async def whole(self, reply: Reply) -> Reply:
        """An answer that came whole, kept; as the client gets it."""
        if reply.status != 200:
            return reply
        try:
            response = as_object(decode(reply.body, max_bytes=len(reply.body)), None)
        except Malformed:
            return replace(reply, headers={**reply.headers, **NOT_KEPT})
        told = {**response, **self.changes}
        missed = await self.keep(told)
        if missed is not None:
            headers = {**reply.headers, **NOT_KEPT}
            return Reply(reply.status, headers, encode({**told, **missed}))
        return replace(reply, body=encode(told)) if self.changes else reply

    async def keep(self, response: Object) -> Mapping[str, Json] | None:
        """None when it is kept, or need not be; else what the answer must say instead."""
        if not self.keeping.name(response):
            return self.keeping.unkept
        got: bool | Down = True
        if self.wants.conversation and self.keeping.status(response) not in FAILED:
            got = await self.converse(response)
        if self.wants.store and not isinstance(got, Down):
            got = await self.book.put(*self.entries(response))
        return self.keeping.unkept if isinstance(got, Down) else None

    def entries(self, response: Object) -> list[Entry]:
        """The answer, and a pointer to it from each of its items that can be referred to."""
        id, now = self.keeping.name(response), self.book.clock()
        kept = Kept(items=self.items, response=response, conversation=self.wants.conversation)
        answer = Entry(
            owner=self.owner,
            kind=RESPONSE,
            id=id,
            body=written(kept),
            parent=self.wants.previous,
            mark=self.keeping.status(response),
            created=now,
        )
        if self.wants.conversation:
            return [answer]  # its items are the conversation's
        pointers = [
            Entry(owner=self.owner, kind=ITEM, id=item["id"], parent=id, place=place, created=now)
            for place, item in enumerate(self.keeping.output(response))
            if isinstance(item.get("id"), str)
        ]
        return [answer, *pointers]

    async def converse(self, response: Object) -> bool | Down:
        """What was asked and what was answered, at the end of the conversation."""
        id = self.keeping.name(response)
        asked = self.keeping.renewed(self.items, id)
        items = [*asked, *self.keeping.named(self.keeping.output(response), id)]
        return await self.book.append(talk_items(self.owner, self.wants.conversation, items, self.book.clock()))


def talk_items(owner: str, conversation: str, items: list[Object], now: float) -> list[Entry]:
    """Items as a conversation keeps them."""
    return [
        Entry(owner=owner, kind=ITEM, id=str(item["id"]), parent=conversation, body=encode(item), created=now)
        for item in items
    ]
