"""No store at all, where the operator wants nothing kept."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from toolwire.gateway.store.record import Down, Entry, Stats, Swept

NOTHING = Down("this gateway keeps nothing (`[store] url` is `none`)")


class Absent:
    """Says so to whoever asks."""

    async def get(self, owner: str, kind: str, ids: Sequence[str]) -> list[Entry] | Down:
        return NOTHING

    async def put(
        self, entries: Sequence[Entry], where: tuple[str, ...] = (), behind: Sequence[Entry] = ()
    ) -> bool | Down:
        return NOTHING

    async def append(self, entries: Sequence[Entry]) -> bool | Down:
        return NOTHING

    async def chain(self, owner: str, kind: str, id: str, most: int) -> list[Entry] | Down:
        return NOTHING

    async def children(
        self, owner: str, kind: str, parent: str, after: int | None = None, most: int = 0, descending: bool = False
    ) -> list[Entry] | Down:
        return NOTHING

    async def delete(self, owner: str, kind: str, ids: Sequence[str]) -> int | Down:
        return NOTHING

    async def touch(self, owner: str, kind: str, ids: Sequence[str], expires: float) -> Down | None:
        return NOTHING

    async def sweep(self) -> Swept | Down:
        return NOTHING

    async def stats(self) -> Stats | Down:
        return NOTHING

    async def export(self, owner: str | None = None) -> AsyncIterator[Entry | Down]:
        yield NOTHING

    async def close(self) -> None:
        """Nothing is open."""
