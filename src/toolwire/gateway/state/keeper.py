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
        parts = await self.parts(response)
        if isinstance(parts, Down):
            return self.keeping.unkept
        pointers, turn = parts
        answer = [self._answer(response)] if self.wants.store else []
        got = await self.book.put(*answer, *pointers, behind=turn)
        return self.keeping.unkept if isinstance(got, Down) else None

    def _answer(self, response: Object) -> Entry:
        kept = Kept(items=self.items, response=response, conversation=self.wants.conversation)
        return Entry(
            owner=self.owner,
            kind=RESPONSE,
            id=self.keeping.name(response),
            body=written(kept),
            parent=self.wants.previous,
            mark=self.keeping.status(response),
            created=self.book.clock(),
        )

    async def parts(self, response: Object) -> tuple[list[Entry], list[Entry]] | Down:
        """What is kept beside the answer: pointers to it from its items that can be referred to; or, in a conversation,
        what was asked and what was answered, at its end. All this is written with the answer, or nothing is."""
        id, output = self.keeping.name(response), self.keeping.output(response)
        if self.wants.conversation and self.keeping.status(response) in FAILED:
            return [], []
        if self.wants.conversation:
            output = self.keeping.named(output, id)
        elif not self.wants.store:
            return [], []
        ids = [item["id"] for item in output if isinstance(item.get("id"), str)]
        there = await self.book.get(self.owner, ITEM, ids) if ids else []
        if isinstance(there, Down):
            return there
        if self.wants.conversation:
            asked = self.keeping.renewed(self.items, id)
            items = [*asked, *self._unlike(output, {entry.id for entry in there}, id)]
            return [], talk_items(self.owner, self.wants.conversation, items, self.book.clock())
        return self._pointers(output, {entry.id for entry in there if entry.body}, id), []

    def _pointers(self, output: list[Object], taken: set[str], id: str) -> list[Entry]:
        now = self.book.clock()
        return [
            Entry(owner=self.owner, kind=ITEM, id=item["id"], parent=id, place=place, created=now)
            for place, item in enumerate(output)
            if isinstance(item.get("id"), str) and item["id"] not in taken
        ]

    def _unlike(self, output: list[Object], taken: set[str], id: str) -> list[Object]:
        """Items with ids that nothing else has: some providers give the same ones again and again."""
        out: list[Object] = []
        for number, item in enumerate(output):
            if item["id"] in taken:
                out += self.keeping.renewed([item], f"{id}|{number}")
            else:
                out.append(item)
            taken.add(item["id"])
        return out


def talk_items(owner: str, conversation: str, items: list[Object], now: float) -> list[Entry]:
    """Items as a conversation keeps them."""
    return [
        Entry(owner=owner, kind=ITEM, id=str(item["id"]), parent=conversation, body=encode(item), created=now)
        for item in items
    ]
