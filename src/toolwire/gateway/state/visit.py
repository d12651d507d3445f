"""One request about what is kept, and how it can turn out."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Mapping
from typing import TypeAlias
from urllib.parse import parse_qsl

from msgspec import Struct

from toolwire.gateway import refusals
from toolwire.gateway.call import Call, Reply
from toolwire.gateway.headers import JSON
from toolwire.gateway.state.book import owner_of, unreachable
from toolwire.gateway.state.desk import Desk, trusts
from toolwire.gateway.state.engine import Engine
from toolwire.gateway.state.forgetful import nothing_kept
from toolwire.gateway.store.record import Down
from toolwire.ir import Failure
from toolwire.keeping import Errand, Keeping, Page
from toolwire.wire import Malformed, Object, as_object, decode, encode


class Replay(Struct, frozen=True):
    """An answer that is told as a stream."""

    frames: AsyncIterator[bytes]


class Passed(Struct, frozen=True):
    """Not ours: the provider may know it."""


Outcome: TypeAlias = Reply | Replay | Passed


class Visit:
    """One such request."""

    def __init__(self, desk: Desk, engine: Engine, call: Call, keeping: Keeping, errand: Errand, query: str) -> None:
        self.desk = desk
        self.book = desk.book
        self.engine = engine
        self.call = call
        self.keeping = keeping
        self.errand = errand
        self.owner = owner_of(call.visitor)
        self.query: Mapping[str, str] = dict(parse_qsl(query, keep_blank_values=True))

    def given(self, body: bytes) -> Reply | None:
        """The body of the request; a reply where it is none."""
        self.call.seed = secrets.token_hex(12)
        if not body or self.engine.read(self.call, body):
            return None
        try:
            as_object(decode(body, max_bytes=len(body)), None)
        except Malformed as bad:
            return self.refused(Failure("invalid", str(bad), 400, param=bad.path))
        return self.refused(Failure("invalid", "the model must be a string and stream true or false", 400))

    def refused(self, failure: Failure) -> Reply:
        return refusals.reply(self.call.client, failure)

    def down(self, down: Down) -> Reply:
        return self.refused(unreachable(down) if self.book.keeps else nothing_kept(404))

    def missing(self, kind: str, id: str) -> Reply | Passed:
        """Where nobody shares the provider's account, the provider may know what we do not."""
        speaker = self.call.state.router.speaker(self.call.client.name)
        if speaker is not None and trusts(self.call):
            return Passed()
        return self.refused(self.keeping.not_found(kind, id))

    def body(self) -> Object | Reply:
        try:
            return as_object(decode(self.call.body or b"{}", max_bytes=max(2, len(self.call.body))), None)
        except Malformed as bad:
            return self.refused(Failure("invalid", str(bad), 400, param=bad.path))

    def page(self) -> Page | Reply:
        page = self.keeping.read_page(self.query)
        return self.refused(page) if isinstance(page, Failure) else page

    def paged(self, items: list[Object], page: Page) -> Reply:
        """A part of a list."""
        ordered = items[::-1] if page.descending else items
        if page.after:
            place = next((number for number, item in enumerate(ordered) if item.get("id") == page.after), None)
            if place is None:
                return self.refused(self.keeping.not_found("item", page.after))
            ordered = ordered[place + 1 :]
        shown = ordered[: page.limit]
        return Reply(200, JSON, encode(self.keeping.write_page(shown, len(ordered) > len(shown))))
