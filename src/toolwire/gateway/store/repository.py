"""Reads and writes the entries of the store for the gateway, and notes whether the store can be reached."""

from __future__ import annotations

import asyncio
import math
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Sequence
from functools import lru_cache
from typing import TypeVar

from toolwire.core.ids import hex_digest
from toolwire.core.ir import Failure
from toolwire.gateway.settings.config import ClientKey, StoreSettings
from toolwire.gateway.store.store import STORE_DISABLED, Entries, Entry, Store, StoreDown, SweepResult

Value = TypeVar("Value")

REACHABLE_SECONDS = 1.0
"""How long the store counts as reachable after it answered."""
MAX_CHAIN_LENGTH = 4096
"""The most responses that are followed back from a `previous_response_id`."""
PAGE_BYTES = 4 * 1024 * 1024
"""About how many bytes of a long chain or conversation are loaded at once."""
MAX_ID_LENGTH = 1024
MAX_SEEN_LEASES = 4096
SETTLED_SECONDS = 5.0
"""Seconds without a failure after which the store counts as up again: on a disk that is almost full, small entries are
written and large ones are not."""
MAX_PENDING_BYTES = 32 * 1024 * 1024
"""Bytes of entries that a process holds for a store that is down; the oldest are given up."""
PENDING_BATCH = 32
FIRST_RETRY_SECONDS, MAX_RETRY_SECONDS = 1.0, 30.0
RESPONSE, ITEM, CONVERSATION, SEAL, EVENTS = "response", "item", "conversation", "seal", "events"
IDEMPOTENCY = "idempotency"
OBJECT = "object"
UPLOAD = "upload"
DESCRIPTION = "description"
"""The kinds of entries in the store."""


def owner_of(key: ClientKey | None) -> str:
    """The owner of the entries of a client: every key has its own entries, also after it was replaced; without keys all
    clients share them."""
    return _owner_digest(key.first_sha256 or key.sha256) if key is not None else ""


@lru_cache(maxsize=1024)
def _owner_digest(sha256: str) -> str:
    return hex_digest(sha256.lower(), 32)


# --- failures ---------------------------------------------------------------------------------------------------------


def store_unavailable_failure(down: StoreDown, hint: str = "") -> Failure:
    """For a request that needs the store while it cannot be reached."""
    message = f"this request needs the gateway's store, which cannot be reached: {down.reason}"
    return Failure("overloaded", f"{message}{f'; {hint}' if hint else ''}", 503, "store_unavailable")


NOTHING_KEPT = "nothing_kept"
"""The error code where the gateway has no store."""


def no_store_failure(status: int) -> Failure:
    """For a request that needs the store where the gateway has none."""
    hint = "send the whole conversation in the request, with `store: false`, and wait for the answer"
    return Failure(
        "invalid" if status == 400 else "not_found", f"{STORE_DISABLED.reason}; {hint}", status, NOTHING_KEPT
    )


# --- the repository ---------------------------------------------------------------------------------------------------


class PendingWrites:
    """Entries that a store that is down could not take. They stay in memory, as long as they are not too large, and are
    written when the store is back. Answers have been paid for, so they are not given up at once."""

    def __init__(self, write: Callable[[Sequence[Entry]], Awaitable[bool | StoreDown]]) -> None:
        self._write = write
        self._entries: OrderedDict[tuple[str, str, str], Entry] = OrderedDict()
        self._size = 0
        self._task: asyncio.Task[None] | None = None

    def add(self, entries: Iterable[Entry]) -> None:
        for entry in entries:
            self._remove(entry.owner, entry.kind, entry.id)
            self._entries[entry.owner, entry.kind, entry.id] = entry
            self._size += entry_size(entry)
        while self._size > MAX_PENDING_BYTES:
            self._size -= entry_size(self._entries.popitem(last=False)[1])
        if self._entries and (self._task is None or self._task.done()):
            self._task = asyncio.create_task(self._retry())

    def find(self, owner: str, kind: str, id: str) -> Entry | None:
        return self._entries.get((owner, kind, id))

    def discard(self, owner: str, kind: str, ids: Iterable[str]) -> None:
        """Do not write these any more: they were deleted."""
        for id in ids:
            self._remove(owner, kind, id)

    def _remove(self, owner: str, kind: str, id: str) -> None:
        entry = self._entries.pop((owner, kind, id), None)
        if entry is not None:
            self._size -= entry_size(entry)

    async def _retry(self) -> None:
        delay = FIRST_RETRY_SECONDS
        while self._entries:
            await asyncio.sleep(delay)
            delay = FIRST_RETRY_SECONDS if await self.write_some() else min(2 * delay, MAX_RETRY_SECONDS)

    async def write_some(self) -> bool:
        """Try to write some entries. If that fails, others are tried first next time."""
        some = list(self._entries.items())[:PENDING_BATCH]
        if not some or await self._write([entry for _, entry in some]) is not True:
            for name, _ in some:
                if name in self._entries:
                    self._entries.move_to_end(name)
            return False
        for name, entry in some:
            if self._entries.get(name) is entry:
                self._remove(*name)
        return True

    async def close(self) -> None:
        """Try once more."""
        if self._task is not None:
            self._task.cancel()
        while await self.write_some():
            pass


MAX_USED_IDS = 10_000


class StateRepository:
    """The store of one process, or none. Logs once when the store goes down and once when it is back; `count_failure`
    is called for every operation that fails, with `read` or `write`."""

    def __init__(
        self,
        store: Store | None,
        settings: StoreSettings,
        log_event: Callable[[str, str], None],
        clock: Callable[[], float] = time.time,
        steady_clock: Callable[[], float] = time.monotonic,
        count_failure: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._store = store
        self.is_enabled = store is not None
        self.lease = settings.background_lease
        self.ttl = settings.ttl
        self.clock = clock
        self._steady_clock = steady_clock
        self._seen_leases: OrderedDict[tuple[str, str], tuple[float, float]] = OrderedDict()
        """Leases that have run out by the time of day, and since when this process sees them unchanged."""
        self._used_ids: OrderedDict[tuple[str, str], None] = OrderedDict()
        """Ids of recent responses, by owner."""
        self._log_event = log_event
        self._count_failure = count_failure
        self._last_reached = 0.0
        self._last_failures: dict[str, float] = {}
        """When reading and writing failed last; empty while the store is up. With a full disk only writing fails."""
        self._failures = 0
        """How many operations have failed since the store went down."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._pending = PendingWrites(lambda entries: self.put(*entries))

    def claim_id(self, owner: str, id: str) -> bool:
        """May a new response have this id? Not if a recent one of this process has it: some servers give all responses
        the same id. It is asked when a stream starts: its client must not see the id change later."""
        is_free = (owner, id) not in self._used_ids
        self._used_ids[owner, id] = None
        self._used_ids.move_to_end((owner, id))
        if len(self._used_ids) > MAX_USED_IDS:
            self._used_ids.popitem(last=False)
        return is_free

    async def _run(
        self, operation: Callable[[Store], Awaitable[Value | StoreDown]], writes: bool = False
    ) -> Value | StoreDown:
        """The result of an operation of the store. Notes whether the store can be reached."""
        if self._store is None:
            return STORE_DISABLED
        result = await operation(self._store)
        if isinstance(result, StoreDown):
            self._note_failure("write" if writes else "read", result)
        else:
            self._note_success(writes)
        return result

    def _note_failure(self, action: str, down: StoreDown) -> None:
        if not self._last_failures:
            self._failures = 0
            self._log_event("store_unavailable", down.reason)
        self._last_failures[action], self._last_reached = self._steady_clock(), 0.0
        self._failures += 1
        self._count_failure(action)

    def _note_success(self, writes: bool) -> None:
        self._last_reached = time.monotonic()
        if not self._last_failures:
            return
        settled = self._steady_clock() - SETTLED_SECONDS
        for action in ("read", "write") if writes else ("read",):
            if self._last_failures.get(action, math.inf) <= settled:
                del self._last_failures[action]
        if not self._last_failures:
            self._log_event("store_available", f"{self._failures} operations failed while it was down")

    async def check_reachable(self) -> StoreDown | None:
        """Called before a provider is asked, because an answer that cannot be stored would be lost work."""
        if time.monotonic() - self._last_reached < REACHABLE_SECONDS:
            return None
        result = await self.get("", RESPONSE, ["-"])
        return result if isinstance(result, StoreDown) else None

    def has_lapsed(self, owner: str, id: str, lease: float) -> bool:
        """Does nobody renew the lease of this response any more? It must have run out by the time of day, and this
        process must have seen it unchanged for as long as a lease lasts, by a clock that cannot be set: if the time of
        day jumps, or differs between gateways, jobs that run are still renewed and do not fail."""
        if lease >= self.clock():
            return False
        now, name = self._steady_clock(), (owner, id)
        seen, since = self._seen_leases.pop(name, (lease, now))
        if seen != lease:
            since = now
        elif now - since >= self.lease:
            return True
        self._seen_leases[name] = (lease, since)
        if len(self._seen_leases) > MAX_SEEN_LEASES:
            self._seen_leases.popitem(last=False)
        return False

    async def get(self, owner: str, kind: str, ids: Sequence[str]) -> Entries:
        entries = await self._run(lambda store: store.get(owner, kind, [id for id in ids if is_valid_id(id)]))
        if isinstance(entries, StoreDown):
            return entries
        pending = (self._pending.find(owner, kind, id) for id in ids)
        found = {entry.id for entry in entries}
        return entries + [entry for entry in pending if entry is not None and entry.id not in found]

    async def get_one(self, owner: str, kind: str, id: str) -> Entry | StoreDown | None:
        entries = await self.get(owner, kind, [id])
        return entries if isinstance(entries, StoreDown) else entries[0] if entries else None

    async def put(
        self, *entries: Entry, required_marks: tuple[str, ...] = (), appended: Sequence[Entry] = ()
    ) -> bool | StoreDown:
        return await self._run(lambda store: store.put(entries, required_marks, appended), writes=True)

    async def add(self, entry: Entry) -> bool | StoreDown:
        return await self._run(lambda store: store.add(entry), writes=True)

    def put_later(self, *entries: Entry) -> None:
        """Write entries that the store could not take, when it can."""
        if self.is_enabled:
            self._pending.add(entries)

    async def get_chain_page(self, owner: str, id: str) -> Entries:
        """The response with this id and those before it, oldest first, as far back as a page reaches."""
        if not is_valid_id(id):
            return []
        pending = self._pending.find(owner, RESPONSE, id)
        if pending is not None:
            return [pending]
        return await self._run(lambda store: store.get_chain(owner, RESPONSE, id, MAX_CHAIN_LENGTH, PAGE_BYTES))

    async def iterate_children(
        self, owner: str, kind: str, parent: str, after: int | None = None
    ) -> AsyncIterator[Entry | StoreDown]:
        """The entries with this parent, ordered by place, loaded in pages. A `StoreDown` is the last."""
        while True:
            place = after
            page = await self._run(lambda store: store.get_children(owner, kind, parent, place, PAGE_BYTES))  # noqa: B023
            if isinstance(page, StoreDown):
                yield page
            if isinstance(page, StoreDown) or not page:
                return
            for entry in page:
                yield entry
            after = page[-1].place

    async def delete(self, owner: str, kind: str, *ids: str) -> int | StoreDown:
        self._pending.discard(owner, kind, ids)
        return await self._run(lambda store: store.delete(owner, kind, ids), writes=True)

    async def extend_expiring(
        self, owner: str, kind: str, entries: Iterable[tuple[str, float]], now: float | None = None
    ) -> None:
        """Extend the life of those entries (id, expires) that have passed half of it, because they are still used."""
        now = self.clock() if now is None else now
        old = [id for id, expires in entries if 0 < expires < now + self.ttl / 2]
        if old:
            await self._run(lambda store: store.touch(owner, kind, old, now + self.ttl), writes=True)

    def start_task(self, work: Coroutine[object, object, None]) -> None:
        """Do something with the store without waiting for it; `close` does."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def sweep(self) -> SweepResult | StoreDown:
        return await self._run(lambda store: store.sweep(), writes=True)

    async def close(self) -> None:
        if self._store is not None:
            if self._tasks:
                await asyncio.wait(self._tasks)
            await self._pending.close()
            await self._store.close()


ENTRY_OVERHEAD = 800
"""Bytes that an entry takes in memory besides its id and value."""


def entry_size(entry: Entry) -> int:
    return len(entry.body) + len(entry.id) + ENTRY_OVERHEAD


def is_valid_id(id: str) -> bool:
    """Can an entry have this id? PostgreSQL does not accept NUL in text."""
    return "\x00" not in id and len(id) <= MAX_ID_LENGTH
