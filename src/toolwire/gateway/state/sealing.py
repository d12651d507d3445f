"""Seals that a client's protocol has no slot for: kept by call id, and there again when the call comes back."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence

from msgspec import Struct

from toolwire.gateway.state.book import SEAL, Book, unreachable
from toolwire.gateway.store.record import Down, Entry
from toolwire.ir import Failure

REMEMBERED = 32 * 1024 * 1024
"""Bytes of seals that a process remembers itself: most turns follow where the last one was."""
OVERHEAD = 800
"""Bytes that one of them takes besides."""
HINT = "the model's signatures of earlier turns are kept there, and without them the provider may refuse or forget"


class Seals:
    """All seals of a gateway."""

    def __init__(self, book: Book) -> None:
        self._book = book
        self._near: OrderedDict[tuple[str, str], Entry] = OrderedDict()
        self._size = 0

    def of(self, owner: str) -> Sealing:
        return Sealing(self, owner)

    async def recall(self, owner: str, ids: Sequence[str]) -> Mapping[str, bytes] | Failure:
        """What is kept under these ids."""
        now = self._book.clock()
        known = (self._near.get((owner, id)) for id in ids)
        found = {entry.id: entry for entry in known if entry is not None and not 0 < entry.expires <= now}
        missing = [id for id in ids if id not in found]
        if missing:
            entries = await self._book.get(owner, SEAL, missing)
            if isinstance(entries, Down):
                return unreachable(entries, HINT)
            found.update({entry.id: entry for entry in entries})
        await self._book.refresh(owner, SEAL, [(entry.id, entry.expires) for entry in found.values()])
        for entry in found.values():
            self._remember(entry)
        return {id: entry.body for id, entry in found.items()}

    async def keep(self, owner: str, kept: Mapping[str, bytes]) -> Down | None:
        now = self._book.clock()
        until = now + self._book.ttl if self._book.ttl else 0.0
        entries = [
            Entry(owner=owner, kind=SEAL, id=id, body=body, created=now, expires=until) for id, body in kept.items()
        ]
        got = await self._book.put(*entries)
        if isinstance(got, Down):
            return got
        for entry in entries:
            self._remember(entry)
        return None

    def _remember(self, entry: Entry) -> None:
        """The latest stay, as many as fit."""
        key = (entry.owner, entry.id)
        before = self._near.pop(key, None)
        self._near[key] = entry
        self._size += _weight(entry) - (_weight(before) if before is not None else 0)
        while self._size > REMEMBERED and len(self._near) > 1:
            self._size -= _weight(self._near.popitem(last=False)[1])


def _weight(entry: Entry) -> int:
    """What it takes in memory, about: most are small."""
    return len(entry.body) + len(entry.id) + OVERHEAD


class Sealing(Struct, eq=False):
    """The seals of one exchange."""

    seals: Seals
    owner: str
    missed: bool = False
    """Was there something to keep that could not be?"""

    async def recall(self, ids: Sequence[str]) -> Mapping[str, bytes] | Failure:
        return await self.seals.recall(self.owner, ids)

    async def keep(self, kept: Mapping[str, bytes]) -> None:
        if kept and await self.seals.keep(self.owner, kept) is not None:
            self.missed = True
