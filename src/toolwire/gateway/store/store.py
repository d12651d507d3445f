"""What a store keeps, and the few verbs by which it is asked.

A store that cannot be reached is a value, no exception.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Protocol

from msgspec import Struct


class Entry(Struct, frozen=True, kw_only=True):
    """One thing that is kept. Owner, kind and id name it together; nobody sees what another owner keeps."""

    owner: str
    """The client key that made it, as a digest; "" where there are no keys."""
    kind: str
    id: str
    body: bytes = b""
    """The only thing that is encrypted, where that is wanted."""
    parent: str = ""
    """What it belongs to or follows: the conversation of an item, the answer before an answer."""
    place: int = 0
    """Its place among all with the same parent."""
    mark: str = ""
    """What state it is in; `put` can demand one."""
    created: float = 0.0
    """Seconds since 1970; 0: now."""
    expires: float = 0.0
    """From then on it is gone. 0: the store's own time to live from now."""


NEVER_EXPIRES = 253_402_300_799.0
"""The last second of the year 9999, for stores whose time to live is 0: nothing goes by itself."""


def expiry_time(expires: float, now: float, ttl: float) -> float:
    """When an entry goes that is written now."""
    return expires or (now + ttl if ttl else NEVER_EXPIRES)


class StoreDown(Struct, frozen=True):
    """The store cannot be reached or read: why, without any secret in it."""

    reason: str


class KindStats(Struct, frozen=True):
    """How much there is of one kind."""

    kind: str
    entries: int
    bytes: int


class StoreStats(Struct, frozen=True, kw_only=True):
    where: str
    """The file or the database, without a password."""
    version: int
    """Of its tables."""
    kinds: tuple[KindStats, ...]
    owners: int
    expired: int
    """Entries that the next sweep removes."""
    oldest: float | None
    size: int
    """Bytes that it takes on the disk."""
    limit: int
    """`max_bytes`; 0 for none."""
    encrypted: bool


class SweepResult(Struct, frozen=True):
    """What a sweep removed: entries past their time, and the oldest where there was too much."""

    expired: int
    crowded: int


class Store(Protocol):
    """All verbs are all or nothing, see only what has not expired, and never raise for a store that is down."""

    async def get(self, owner: str, kind: str, ids: Sequence[str]) -> list[Entry] | StoreDown:
        """Those of these that are there, each once, in the order of the ids."""

    async def put(
        self, entries: Sequence[Entry], required_marks: tuple[str, ...] = (), appended: Sequence[Entry] = ()
    ) -> bool | StoreDown:
        """Keep them; one with the same name is replaced. With `where`, only if the first is there and bears one of
        these marks: else nothing is written and the answer is False. Those `behind` are appended with them."""

    async def append(self, entries: Sequence[Entry]) -> bool | StoreDown:
        """Keep them behind all that their parent has: their places are given here, in the order of the list, also when
        two gateways append at once."""

    async def get_chain(self, owner: str, kind: str, id: str, limit: int) -> list[Entry] | StoreDown:
        """The entry and those it follows by `parent`, oldest first, at most so many; empty when it is not there. An
        ancestor that is gone ends it: its child, which names a parent, then stands first."""

    async def get_children(
        self, owner: str, kind: str, parent: str, after: int | None = None, limit: int = 0, descending: bool = False
    ) -> list[Entry] | StoreDown:
        """All with this parent by their place, from behind the place `after`, at most so many (0: all)."""

    async def delete(self, owner: str, kind: str, ids: Sequence[str]) -> int | StoreDown:
        """How many of these were there; they are gone now, and so is all that has one of them as its parent and is of
        another kind."""

    async def touch(self, owner: str, kind: str, ids: Sequence[str], expires: float) -> StoreDown | None:
        """They live at least until then; 0: the store's own time to live from now."""

    async def sweep(self) -> SweepResult | StoreDown: ...

    async def stats(self) -> StoreStats | StoreDown: ...

    def export(self, owner: str | None = None) -> AsyncIterator[Entry | StoreDown]:
        """Everything, or everything of one owner, bodies readable, in a stable order."""

    async def close(self) -> None: ...


# --- No store at all, where the operator wants nothing kept ---


STORE_DISABLED = StoreDown("this gateway keeps nothing (`[store] url` is `none`)")


class NoStore:
    """Says so to whoever asks."""

    async def get(self, owner: str, kind: str, ids: Sequence[str]) -> list[Entry] | StoreDown:
        return STORE_DISABLED

    async def put(
        self, entries: Sequence[Entry], required_marks: tuple[str, ...] = (), appended: Sequence[Entry] = ()
    ) -> bool | StoreDown:
        return STORE_DISABLED

    async def append(self, entries: Sequence[Entry]) -> bool | StoreDown:
        return STORE_DISABLED

    async def get_chain(self, owner: str, kind: str, id: str, limit: int) -> list[Entry] | StoreDown:
        return STORE_DISABLED

    async def get_children(
        self, owner: str, kind: str, parent: str, after: int | None = None, limit: int = 0, descending: bool = False
    ) -> list[Entry] | StoreDown:
        return STORE_DISABLED

    async def delete(self, owner: str, kind: str, ids: Sequence[str]) -> int | StoreDown:
        return STORE_DISABLED

    async def touch(self, owner: str, kind: str, ids: Sequence[str], expires: float) -> StoreDown | None:
        return STORE_DISABLED

    async def sweep(self) -> SweepResult | StoreDown:
        return STORE_DISABLED

    async def stats(self) -> StoreStats | StoreDown:
        return STORE_DISABLED

    async def export(self, owner: str | None = None) -> AsyncIterator[Entry | StoreDown]:
        yield STORE_DISABLED

    async def close(self) -> None:
        """Nothing is open."""
