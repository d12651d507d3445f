"""The gateway's book: what it keeps, through one store, and whether that can be reached."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import TypeVar

from msgspec import Struct

from toolwire.gateway.access import Visitor
from toolwire.gateway.settings.config import Store as Settings
from toolwire.gateway.store.absent import Absent
from toolwire.gateway.store.record import Down, Entry, Store, Swept
from toolwire.ids import digest
from toolwire.ir import Failure
from toolwire.wire import Json, Object, decode, encode

Got = TypeVar("Got")

FRESH = 1.0
"""Seconds for which a store that answered is believed to be there."""
MOST_TURNS = 4096
"""Answers that follow one another; more are not gone back."""
LONGEST_ID = 1024
RESPONSE, ITEM, CONVERSATION, SEAL, EVENTS = "response", "item", "conversation", "seal", "events"
"""The kinds of entries."""
LIVING = ("queued", "in_progress")
"""Marks of answers that are not there yet."""


class Kept(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An answer as it is kept: what was new in its request, and what came of it."""

    items: list[Object]
    response: Object
    conversation: str = ""
    background: bool = False
    lease: float = 0.0
    """Until when whoever makes it in the background has promised to tell more; nobody does after that."""
    told: bool = False
    """Is its end among the events of its stream?"""


class Talk(Struct, frozen=True, kw_only=True):
    """A conversation as it is kept; its items are entries of their own."""

    created: int
    metadata: Json = None


def written(value: Kept | Talk) -> bytes:
    return encode(value)


def read_kept(entry: Entry) -> Kept:
    return Kept(**decode(entry.body, max_bytes=len(entry.body)))


def read_talk(entry: Entry) -> Talk:
    return Talk(**decode(entry.body))


def owner_of(visitor: Visitor) -> str:
    """Whose things these are: every key has its own."""
    return _owner(visitor.key.sha256) if visitor.key is not None else ""


@lru_cache(maxsize=1024)
def _owner(sha256: str) -> str:
    return digest(sha256.lower(), 32)


class Book:
    """One for a process. Says once when its store goes and once when it comes back."""

    def __init__(
        self,
        store: Store,
        settings: Settings,
        say: Callable[[str, str], None],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.store = store
        self.keeps = not isinstance(store, Absent)
        """Is anything kept at all?"""
        self.lease = settings.lease
        self.ttl = settings.ttl
        self.clock = clock
        self._say = say
        self._reached = 0.0
        self._down: Down | None = None

    def seen(self, got: Got | Down) -> Got | Down:
        """The same, noted: is the store there?"""
        if not self.keeps:
            return got
        if isinstance(got, Down):
            if self._down is None:
                self._say("store-down", got.what)
            self._down, self._reached = got, 0.0
        else:
            if self._down is not None:
                self._say("store-back", "")
            self._down, self._reached = None, time.monotonic()
        return got

    async def ready(self) -> Down | None:
        """Can something be kept? Asked before a provider is: an answer that cannot be kept would be lost work."""
        if time.monotonic() - self._reached < FRESH:
            return None
        got = self.seen(await self.store.get("", RESPONSE, ["-"]))
        return got if isinstance(got, Down) else None

    async def get(self, owner: str, kind: str, ids: Sequence[str]) -> list[Entry] | Down:
        return self.seen(await self.store.get(owner, kind, [id for id in ids if _is_sane(id)]))

    async def one(self, owner: str, kind: str, id: str) -> Entry | Down | None:
        got = await self.get(owner, kind, [id])
        return got if isinstance(got, Down) else got[0] if got else None

    async def put(self, *entries: Entry, where: tuple[str, ...] = (), behind: Sequence[Entry] = ()) -> bool | Down:
        return self.seen(await self.store.put(entries, where, behind))

    async def append(self, entries: Sequence[Entry]) -> bool | Down:
        return self.seen(await self.store.append(entries)) if entries else True

    async def chain(self, owner: str, id: str) -> list[Entry] | Down:
        return self.seen(await self.store.chain(owner, RESPONSE, id, MOST_TURNS)) if _is_sane(id) else []

    async def children(
        self, owner: str, kind: str, parent: str, after: int | None = None, most: int = 0, descending: bool = False
    ) -> list[Entry] | Down:
        return self.seen(await self.store.children(owner, kind, parent, after, most, descending))

    async def delete(self, owner: str, kind: str, *ids: str) -> int | Down:
        return self.seen(await self.store.delete(owner, kind, ids))

    async def touch(self, owner: str, kind: str, ids: Sequence[str], expires: float) -> Down | None:
        return self.seen(await self.store.touch(owner, kind, ids, expires))

    async def refresh(self, owner: str, kind: str, entries: Iterable[tuple[str, float]]) -> None:
        """What is still used lives on: those (id, expires) that have passed half of their time."""
        now = self.clock()
        old = [id for id, expires in entries if 0 < expires < now + self.ttl / 2]
        if old:
            await self.touch(owner, kind, old, now + self.ttl)

    async def sweep(self) -> Swept | Down:
        return self.seen(await self.store.sweep())


def _is_sane(id: str) -> bool:
    """Could this be an id of anything? Not all databases take every character, and nothing here has such an id."""
    return "\x00" not in id and len(id) <= LONGEST_ID


def unreachable(down: Down, hint: str = "") -> Failure:
    """What a client is told whose request needs the store."""
    what = f"this request needs what the gateway keeps, and its store cannot be reached: {down.what}"
    return Failure("overloaded", f"{what}{f'; {hint}' if hint else ''}", 503, "store_unavailable")
