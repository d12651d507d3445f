"""Signatures (seals) in the store, for clients whose protocol cannot carry them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence

from msgspec import Struct

from toolwire.core.ir import Failure
from toolwire.gateway.settings.config import ClientKey
from toolwire.gateway.store.repository import SEAL, StateRepository, entry_size, owner_of, store_unavailable_failure
from toolwire.gateway.store.store import Entry, StoreDown

MAX_CACHE_BYTES = 32 * 1024 * 1024
"""Bytes of signatures that a process caches: the next turn mostly comes to the same process."""
MAX_ABSENT, ABSENT_SECONDS = 20_000, 300.0
"""Ids without signatures that a process remembers, and for how long: an agent sends the calls of all turns again with
every turn, and most have none."""
UNAVAILABLE_HINT = (
    "it has the model's signatures of earlier turns, and without them the provider may refuse the request or answer"
    " without its earlier reasoning"
)


class SignatureRepository:
    """Signatures (seals) that a client's protocol cannot carry, such as those of reasoning for a Chat client: stored by
    the id of their tool call, and loaded when the client sends the call back."""

    def __init__(self, repository: StateRepository) -> None:
        self._repository = repository
        self._cache: OrderedDict[tuple[str, str], Entry] = OrderedDict()
        self._cache_size = 0
        self._absent: OrderedDict[tuple[str, str], float] = OrderedDict()
        """Until when the store is not asked for an id again."""
        self.is_alone = False
        """Is the store the file of one worker? Signatures are stored before a client gets their call, so what is not
        there will not come, unless an id is used again: this process knows then, another one is not told. A second
        gateway on the same file has to wait for `ABSENT_SECONDS` in that case."""

    @property
    def is_enabled(self) -> bool:
        """Is there a store?"""
        return self._repository.is_enabled

    async def load(self, owner: str, ids: Sequence[str]) -> Mapping[str, bytes] | Failure:
        """The signatures that are stored under these ids."""
        now = self._repository.clock()
        cached = (self._cache.get((owner, id)) for id in ids)
        found = {entry.id: entry for entry in cached if entry is not None and not 0 < entry.expires <= now}
        absent = self._absent
        missing = [id for id in ids if id not in found and absent.get((owner, id), 0.0) <= now]
        if missing:
            entries = await self._repository.get(owner, SEAL, missing)
            if isinstance(entries, StoreDown):
                return store_unavailable_failure(entries, UNAVAILABLE_HINT)
            found.update({entry.id: entry for entry in entries})
            if self.is_alone:
                self._note_absent(owner, [id for id in missing if id not in found], now)
        await self._repository.extend_expiring(owner, SEAL, [(entry.id, entry.expires) for entry in found.values()])
        for entry in found.values():
            self._cache_entry(entry)
        return {id: entry.body for id, entry in found.items()}

    async def save(self, owner: str, values: Mapping[str, bytes]) -> bool:
        """Store signatures by their ids; False if the store cannot be reached."""
        now = self._repository.clock()
        expires = now + self._repository.ttl if self._repository.ttl else 0.0
        entries = [
            Entry(owner=owner, kind=SEAL, id=id, body=body, created=now, expires=expires) for id, body in values.items()
        ]
        for entry in entries:
            self._cache_entry(entry)
            self._absent.pop((owner, entry.id), None)
        if not isinstance(await self._repository.put(*entries), StoreDown):
            return True
        self._repository.put_later(*entries)
        return False

    def _note_absent(self, owner: str, ids: Sequence[str], now: float) -> None:
        """Remember ids that the store does not have, and that were not stored while it was asked."""
        names = [(owner, id) for id in ids if (owner, id) not in self._cache]
        for name in names:
            self._absent.pop(name, None)
            self._absent[name] = now + ABSENT_SECONDS
        while len(self._absent) > MAX_ABSENT:
            self._absent.popitem(last=False)

    def _cache_entry(self, entry: Entry) -> None:
        """Cache an entry, and drop the least recently used ones that no longer fit."""
        key = (entry.owner, entry.id)
        before = self._cache.pop(key, None)
        self._cache[key] = entry
        self._cache_size += entry_size(entry) - (entry_size(before) if before is not None else 0)
        while self._cache_size > MAX_CACHE_BYTES and len(self._cache) > 1:
            self._cache_size -= entry_size(self._cache.popitem(last=False)[1])


class ExchangeSignatures(Struct, eq=False):
    repository: SignatureRepository
    key: ClientKey | None
    has_failed: bool = False
    """Could a signature not be stored?"""

    async def load_signatures(self, ids: Sequence[str]) -> Mapping[str, bytes] | Failure:
        return await self.repository.load(owner_of(self.key), ids)

    async def save_signatures(self, signatures: Mapping[str, bytes]) -> None:
        if signatures and not await self.repository.save(owner_of(self.key), signatures):
            self.has_failed = True
