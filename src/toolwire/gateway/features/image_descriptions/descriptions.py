"""Descriptions of images: each image is described once, and always has the same text, so that prompts keep their
prefix."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from toolwire.gateway.store.repository import DESCRIPTION, StateRepository
from toolwire.gateway.store.store import Entry, StoreDown

MAX_CACHE_BYTES = 4 * 1024 * 1024
"""Bytes of descriptions that a process caches."""
ENTRY_OVERHEAD = 500


class DescriptionRepository:
    """Descriptions by the digest of an image, in the store and in memory. A store that is down is as if it were
    empty."""

    def __init__(self, repository: StateRepository) -> None:
        self._repository = repository
        self._cache: OrderedDict[tuple[str, str], str] = OrderedDict()
        self._cache_size = 0

    async def load(self, owner: str, ids: Sequence[str]) -> dict[str, str]:
        found = {id: text for id in ids if (text := self._cache.get((owner, id))) is not None}
        missing = [id for id in ids if id not in found]
        if missing and self._repository.is_enabled:
            entries = await self._repository.get(owner, DESCRIPTION, missing)
            if not isinstance(entries, StoreDown):
                found |= {entry.id: entry.body.decode() for entry in entries}
                lives = [(entry.id, entry.expires) for entry in entries]
                await self._repository.extend_expiring(owner, DESCRIPTION, lives)
        for id, text in found.items():
            self._cache_text(owner, id, text)
        return found

    async def save(self, owner: str, id: str, text: str) -> str:
        """Store a description. If another request was faster, its description is the one that counts."""
        if self._repository.is_enabled and (owner, id) not in self._cache:
            entry = Entry(owner=owner, kind=DESCRIPTION, id=id, body=text.encode())
            added = await self._repository.add(entry)
            if isinstance(added, StoreDown):
                self._repository.put_later(entry)
        text = (await self.load(owner, [id])).get(id, text)
        self._cache_text(owner, id, text)
        return text

    def _cache_text(self, owner: str, id: str, text: str) -> None:
        """Cache a description, and drop the least recently used ones that no longer fit."""
        before = self._cache.pop((owner, id), None)
        self._cache[owner, id] = text
        self._cache_size += len(text) - len(before) if before is not None else len(text) + ENTRY_OVERHEAD
        while self._cache_size > MAX_CACHE_BYTES and len(self._cache) > 1:
            self._cache_size -= len(self._cache.popitem(last=False)[1]) + ENTRY_OVERHEAD
