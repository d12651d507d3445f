"""A store in one file, which the workers of one gateway share."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from toolwire.gateway.store import sqlite_file
from toolwire.gateway.store.record import Down, Entry, Kind, Stats, Swept, until
from toolwire.gateway.store.sqlite_file import PRAGMAS, STEPS
from toolwire.gateway.store.sqlite_line import Line

_COLUMNS = "owner, kind, id, body, parent, place, mark, created, expires"
_FIELDS = _COLUMNS.split(", ")
_NAMED = "owner = ? AND kind = ? AND id = ?"
_GET = f"SELECT {_COLUMNS} FROM entries WHERE {_NAMED} AND expires > ?"
_MARK = f"SELECT mark FROM entries WHERE {_NAMED} AND expires > ?"
_PUT = f"""INSERT INTO entries ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT (owner, kind, id) DO UPDATE SET body = excluded.body, parent = excluded.parent,
    place = excluded.place, mark = excluded.mark, created = excluded.created, expires = excluded.expires"""
_DELETE = f"DELETE FROM entries WHERE {_NAMED} RETURNING expires"
_NEXT = "SELECT coalesce(max(place), -1) + 1 FROM entries WHERE owner = ? AND parent = ? AND kind = ?"
_CHAIN = f"""WITH RECURSIVE line (depth, entry, parent) AS (
        SELECT 1, rowid, parent FROM entries WHERE owner = ?1 AND kind = ?2 AND id = ?3 AND expires > ?4
        UNION ALL
        SELECT depth + 1, entries.rowid, entries.parent FROM line CROSS JOIN entries
        WHERE line.parent <> '' AND depth < ?5 AND owner = ?1 AND kind = ?2 AND id = line.parent AND expires > ?4
    )
    SELECT {_COLUMNS.replace("parent", "entries.parent")}
    FROM line CROSS JOIN entries ON entries.rowid = line.entry ORDER BY depth DESC"""
_CHILDREN = f"""SELECT {_COLUMNS} FROM entries
    WHERE owner = ? AND parent = ? AND kind = ? AND expires > ? AND place {{beyond}} ?
    ORDER BY place {{way}}, id {{way}} LIMIT ?"""
_UP = _CHILDREN.format(beyond=">", way="")
_DOWN = _CHILDREN.format(beyond="<", way="DESC")
_FIRST, _LAST = -(2**63), 2**63 - 1
_AT_ONCE = 500
"""Entries or pages in one transaction of a sweep or an export, so that requests are served between."""
_ROW = 300
"""About what an entry takes beside its body."""
_MUCH = 4 * 1024 * 1024
_ROOM = 0.9
"""What a sweep of a store that is too large leaves of its limit."""


class Sqlite:
    """`now` is the clock. `pragmas` and `steps` are as in `sqlite_file`; only tests have others."""

    def __init__(
        self,
        path: Path,
        *,
        ttl: float = 30 * 24 * 3600.0,
        max_bytes: int = 0,
        now: Callable[[], float] = time.time,
        pragmas: Mapping[str, int | str] = PRAGMAS,
        steps: Sequence[Sequence[str]] = STEPS,
    ) -> None:
        self._path, self._ttl, self._limit, self._version = path, ttl, max_bytes, len(steps)
        self._line = Line(path, now, pragmas, steps)

    # --- verbs ---

    async def get(self, owner: str, kind: str, ids: Sequence[str]) -> list[Entry] | Down:
        def work(file: sqlite3.Connection, now: float) -> list[Entry]:
            rows = (file.execute(_GET, (owner, kind, id, now)).fetchone() for id in dict.fromkeys(ids))
            return [_entry(row) for row in rows if row is not None]

        return await self._line.ask(work, writes=False)

    async def put(
        self, entries: Sequence[Entry], where: tuple[str, ...] = (), behind: Sequence[Entry] = ()
    ) -> bool | Down:
        def work(file: sqlite3.Connection, now: float) -> bool:
            if where and entries:
                first = entries[0]
                marked = file.execute(_MARK, (first.owner, first.kind, first.id, now)).fetchone()
                if marked is None or marked[0] not in where:
                    return False
            for entry in entries:
                file.execute(_PUT, self._row(entry, entry.place, now))
            for entry in behind:
                (place,) = file.execute(_NEXT, (entry.owner, entry.parent, entry.kind)).fetchone()
                file.execute(_PUT, self._row(entry, place, now))
            return True

        return await self._line.ask(work)

    async def append(self, entries: Sequence[Entry]) -> bool | Down:
        return await self.put((), (), entries)

    async def chain(self, owner: str, kind: str, id: str, most: int) -> list[Entry] | Down:
        def work(file: sqlite3.Connection, now: float) -> list[Entry]:
            return [_entry(row) for row in file.execute(_CHAIN, (owner, kind, id, now, most))]

        return await self._line.ask(work, writes=False)

    async def children(
        self, owner: str, kind: str, parent: str, after: int | None = None, most: int = 0, descending: bool = False
    ) -> list[Entry] | Down:
        edge = after if after is not None else _LAST if descending else _FIRST

        def work(file: sqlite3.Connection, now: float) -> list[Entry]:
            found = file.execute(_DOWN if descending else _UP, (owner, parent, kind, now, edge, most or -1))
            return [_entry(row) for row in found]

        return await self._line.ask(work, writes=False)

    async def delete(self, owner: str, kind: str, ids: Sequence[str]) -> int | Down:
        def work(file: sqlite3.Connection, now: float) -> int:
            gone = 0
            for id in dict.fromkeys(ids):
                ends = file.execute(
                    f"DELETE FROM entries WHERE {_NAMED} RETURNING expires", (owner, kind, id)
                ).fetchall()
                gone += any(end > now for (end,) in ends)
                if id:  # "" is nobody's parent
                    file.execute("DELETE FROM entries WHERE owner = ? AND parent = ? AND kind <> ?", (owner, id, kind))
            return gone

        return await self._line.ask(work)

    async def touch(self, owner: str, kind: str, ids: Sequence[str], expires: float) -> Down | None:
        def work(file: sqlite3.Connection, now: float) -> None:
            end = until(expires, now, self._ttl)
            rows = [(end, owner, kind, id, now) for id in ids]
            file.executemany(f"UPDATE entries SET expires = max(expires, ?) WHERE {_NAMED} AND expires > ?", rows)

        return await self._line.ask(work)

    async def close(self) -> None:
        await self._line.close()

    def _row(self, entry: Entry, place: int, now: float) -> tuple[object, ...]:
        ends = until(entry.expires, now, self._ttl)
        name = (entry.owner, entry.kind, entry.id)
        return (*name, entry.body, entry.parent, place, entry.mark, entry.created or now, ends)

    # --- housekeeping ---

    async def sweep(self) -> Swept | Down:
        expired = await self._repeated(_remove_expired)
        if isinstance(expired, Down):
            return expired
        crowded = await self._thinned()
        if isinstance(crowded, Down):
            return crowded
        freed = await self._repeated(_free)
        await self._line.trim()
        return freed if isinstance(freed, Down) else Swept(expired, crowded)

    async def _thinned(self) -> int | Down:
        """Too much? Then the first that would go anyway go now, until there is room again."""
        used = await self._line.ask(_used, writes=False)
        if isinstance(used, Down):
            return used
        if not self._limit or used <= self._limit:
            return 0
        aim = int(self._limit * _ROOM)
        return await self._repeated(lambda file, now: _remove_first(file, _used(file, now) - aim))

    async def _repeated(self, work: Callable[[sqlite3.Connection, float], int]) -> int | Down:
        """In small portions, until nothing is left to do: how much was done."""
        total = 0
        while True:
            done = await self._line.ask(work)
            if isinstance(done, Down):
                return done
            if not done:
                return total
            total += done

    async def stats(self) -> Stats | Down:
        def work(file: sqlite3.Connection, now: float) -> Stats:
            kinds = file.execute(
                "SELECT kind, count(*), sum(length(body)) FROM entries WHERE expires > ? GROUP BY kind ORDER BY kind",
                (now,),
            )
            owners, oldest = file.execute(
                "SELECT count(DISTINCT owner), min(created) FROM entries WHERE expires > ?", (now,)
            ).fetchone()
            (expired,) = file.execute("SELECT count(*) FROM entries WHERE expires <= ?", (now,)).fetchone()
            return Stats(
                where=str(self._path),
                version=self._version,
                kinds=tuple(Kind(*row) for row in kinds),
                owners=owners,
                expired=expired,
                oldest=oldest,
                size=sqlite_file.size(self._path),
                limit=self._limit,
                encrypted=False,
            )

        return await self._line.ask(work, writes=False)

    async def export(self, owner: str | None = None) -> AsyncIterator[Entry | Down]:
        behind = "(owner, kind, id) > (?1, ?2, ?3)" if owner is None else "owner = ?1 AND (kind, id) > (?2, ?3)"
        page = f"SELECT {_COLUMNS} FROM entries WHERE {behind} AND expires > ?4 ORDER BY owner, kind, id"
        last = (owner or "", "", "")

        def work(file: sqlite3.Connection, now: float) -> list[Entry]:
            found: list[Entry] = []
            much = 0
            for row in file.execute(page, (*last, now)):
                found.append(_entry(row))
                much += len(found[-1].body)
                if much > _MUCH or len(found) == _AT_ONCE:
                    break
            return found

        while True:
            entries = await self._line.ask(work, writes=False)
            if isinstance(entries, Down):
                yield entries
                return
            for entry in entries:
                yield entry
            if not entries:
                return
            last = (entries[-1].owner, entries[-1].kind, entries[-1].id)


def _entry(row: tuple[Any, ...]) -> Entry:
    return Entry(**dict(zip(_FIELDS, row, strict=True)))


def _used(file: sqlite3.Connection, _now: float) -> int:
    """Bytes of the file that hold something."""
    return (_told(file, "page_count") - _told(file, "freelist_count")) * _told(file, "page_size")


def _told(file: sqlite3.Connection, pragma: str) -> int:
    return int(file.execute(f"PRAGMA {pragma}").fetchone()[0])


def _remove_expired(file: sqlite3.Connection, now: float) -> int:
    first = "SELECT rowid FROM entries WHERE expires <= ? ORDER BY expires LIMIT ?"
    return file.execute(f"DELETE FROM entries WHERE rowid IN ({first})", (now, _AT_ONCE)).rowcount


def _remove_first(file: sqlite3.Connection, excess: int) -> int:
    """Those that expire first, until so many bytes are free; how many that were."""
    found: list[tuple[int]] = []
    if excess > 0:
        for row, length in file.execute(
            "SELECT rowid, length(body) FROM entries ORDER BY expires, rowid LIMIT ?", (_AT_ONCE,)
        ):
            found.append((row,))
            excess -= length + _ROW
            if excess <= 0:
                break
    file.executemany("DELETE FROM entries WHERE rowid = ?", found)
    return len(found)


def _free(file: sqlite3.Connection, _now: float) -> int:
    """Give free pages back to the disk, some at a time; how many these were."""
    before = _told(file, "freelist_count")
    file.execute(f"PRAGMA incremental_vacuum({_AT_ONCE})").fetchall()
    return before - _told(file, "freelist_count")
