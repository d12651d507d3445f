"""The interface of a store: its entries and operations.

A store that cannot be reached is a return value (`StoreDown`), not an exception.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Protocol

from msgspec import Struct


class Entry(Struct, frozen=True, kw_only=True):
    """One stored record. Owner, kind and id together are its name; an owner cannot see the entries of another."""

    owner: str
    """A digest of the client key that wrote it; "" if the gateway has no client keys."""
    kind: str
    id: str
    body: bytes = b""
    """The only field that is encrypted, if encryption is configured."""
    parent: str = ""
    """The id that it belongs to or follows: the conversation of an item, the response before a response."""
    place: int = 0
    """Its position among all entries with the same parent."""
    mark: str = ""
    """Its state; `put` can require one."""
    created: float = 0.0
    """Seconds since 1970; 0 means now."""
    expires: float = 0.0
    """Seconds since 1970; from then on the entry is invisible. 0 means the store's default time to live from now."""


NEVER_EXPIRES = 253_402_300_799.0
"""The last second of the year 9999, for stores whose time to live is 0, where nothing expires."""


def expiry_time(expires: float, now: float, ttl: float) -> float:
    """When an entry that is written now expires."""
    return expires or (now + ttl if ttl else NEVER_EXPIRES)


class StoreDown(Struct, frozen=True):
    """The store cannot be reached or read; `reason` says why and contains no secret."""

    reason: str


class KindStats(Struct, frozen=True):
    """The number and size of the entries of one kind."""

    kind: str
    entries: int
    bytes: int


class StoreStats(Struct, frozen=True, kw_only=True):
    where: str
    """The file or the database, without a password."""
    version: int
    """The version of its tables."""
    kinds: tuple[KindStats, ...]
    owners: int
    expired: int
    """Number of entries that the next sweep removes."""
    oldest: float | None
    size: int
    """Bytes on the disk."""
    limit: int
    """`max_bytes`; 0 means no limit."""
    encrypted: bool


class SweepResult(Struct, frozen=True):
    """How many entries a sweep removed: expired ones, and the oldest ones of a store that was too large."""

    expired: int
    crowded: int


class Store(Protocol):
    """Every operation is atomic, ignores expired entries, and returns `StoreDown` instead of raising."""

    async def get(self, owner: str, kind: str, ids: Sequence[str]) -> list[Entry] | StoreDown:
        """The entries with these ids that exist, each once, in the order of the ids."""

    async def put(
        self, entries: Sequence[Entry] = (), required_marks: tuple[str, ...] = (), appended: Sequence[Entry] = ()
    ) -> bool | StoreDown:
        """Write entries; existing ones with the same name are replaced. With `required_marks`, only if the first entry
        exists and has one of these marks; otherwise nothing is written and the result is False. `appended` are written
        in the same transaction, after all other children of their parent: the store sets `place`, in the order of the
        list, and gives no place twice when two gateways append at the same time."""

    async def get_chain(self, owner: str, kind: str, id: str, limit: int) -> list[Entry] | StoreDown:
        """The entry and its ancestors by `parent`, oldest first, at most `limit`; empty if the entry does not exist.
        A missing ancestor ends the chain: then the first entry names a parent."""

    async def get_children(
        self, owner: str, kind: str, parent: str, after: int | None = None
    ) -> list[Entry] | StoreDown:
        """The entries with this parent, ordered by place, starting after place `after`."""

    async def delete(self, owner: str, kind: str, ids: Sequence[str]) -> int | StoreDown:
        """Delete these entries, and those of other kinds whose parent is one of them; returns how many of `ids`
        existed."""

    async def touch(self, owner: str, kind: str, ids: Sequence[str], expires: float) -> StoreDown | None:
        """Extend the life of these entries to at least `expires`; 0 means the default time to live from now."""

    async def sweep(self) -> SweepResult | StoreDown:
        """Remove expired entries, and the oldest ones if the store is larger than `max_bytes`."""

    async def stats(self) -> StoreStats | StoreDown: ...

    def export(self, owner: str | None = None) -> AsyncIterator[Entry | StoreDown]:
        """All entries, or those of one owner, decrypted and in a stable order."""

    async def close(self) -> None: ...


STORE_DISABLED = StoreDown("this gateway keeps nothing (`[store] url` is `none`)")
