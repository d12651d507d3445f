"""The gateway's book: what it keeps, through one store, and whether that can be reached."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import TypeVar

from msgspec import Struct

from toolwire.core.ids import hex_digest
from toolwire.core.ir import Failure
from toolwire.core.json_values import Json, Object, decode, encode
from toolwire.gateway.config.config import StoreSettings as Settings
from toolwire.gateway.server.access import Caller
from toolwire.gateway.store.store import Entry, NoStore, Store, StoreDown, SweepResult

Value = TypeVar("Value")

REACHABLE_SECONDS = 1.0
"""Seconds for which a store that answered is believed to be there."""
MAX_CHAIN_LENGTH = 4096
"""Answers that follow one another; more are not gone back."""
MAX_ID_LENGTH = 1024
RESPONSE, ITEM, CONVERSATION, SEAL, EVENTS = "response", "item", "conversation", "seal", "events"
"""The kinds of entries."""
UNFINISHED_STATUSES = ("queued", "in_progress")
"""Marks of answers that are not there yet."""


class StoredResponse(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An answer as it is kept: what was new in its request, and what came of it."""

    items: list[Object]
    response: Object
    conversation: str = ""
    background: bool = False
    lease: float = 0.0
    """Until when whoever makes it in the background has promised to tell more; nobody does after that."""
    told: bool = False
    """Is its end among the events of its stream?"""


class StoredConversation(Struct, frozen=True, kw_only=True):
    """A conversation as it is kept; its items are entries of their own."""

    created: int
    metadata: Json = None


def encode_record(value: StoredResponse | StoredConversation) -> bytes:
    return encode(value)


def read_stored_response(entry: Entry) -> StoredResponse:
    return StoredResponse(**decode(entry.body, max_bytes=len(entry.body)))


def read_stored_conversation(entry: Entry) -> StoredConversation:
    return StoredConversation(**decode(entry.body))


def owner_of(visitor: Caller) -> str:
    """Whose things these are: every key has its own."""
    return _owner_digest(visitor.key.sha256) if visitor.key is not None else ""


@lru_cache(maxsize=1024)
def _owner_digest(sha256: str) -> str:
    return hex_digest(sha256.lower(), 32)


class StateRepository:
    """One for a process. Says once when its store goes and once when it comes back."""

    def __init__(
        self,
        store: Store,
        settings: Settings,
        log_event: Callable[[str, str], None],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.store = store
        self.is_enabled = not isinstance(store, NoStore)
        """Is anything kept at all?"""
        self.lease = settings.background_lease
        self.ttl = settings.ttl
        self.clock = clock
        self._log_event = log_event
        self._last_reached = 0.0
        self._outage: StoreDown | None = None

    def note_availability(self, result: Value | StoreDown) -> Value | StoreDown:
        """The same, noted: is the store there?"""
        if not self.is_enabled:
            return result
        if isinstance(result, StoreDown):
            if self._outage is None:
                self._log_event("store_unavailable", result.reason)
            self._outage, self._last_reached = result, 0.0
        else:
            if self._outage is not None:
                self._log_event("store_available", "")
            self._outage, self._last_reached = None, time.monotonic()
        return result

    async def check_reachable(self) -> StoreDown | None:
        """Can something be kept? Asked before a provider is: an answer that cannot be kept would be lost work."""
        if time.monotonic() - self._last_reached < REACHABLE_SECONDS:
            return None
        got = self.note_availability(await self.store.get("", RESPONSE, ["-"]))
        return got if isinstance(got, StoreDown) else None

    async def get(self, owner: str, kind: str, ids: Sequence[str]) -> list[Entry] | StoreDown:
        return self.note_availability(await self.store.get(owner, kind, [id for id in ids if _is_valid_id(id)]))

    async def get_one(self, owner: str, kind: str, id: str) -> Entry | StoreDown | None:
        got = await self.get(owner, kind, [id])
        return got if isinstance(got, StoreDown) else got[0] if got else None

    async def put(
        self, *entries: Entry, required_marks: tuple[str, ...] = (), appended: Sequence[Entry] = ()
    ) -> bool | StoreDown:
        return self.note_availability(await self.store.put(entries, required_marks, appended))

    async def append(self, entries: Sequence[Entry]) -> bool | StoreDown:
        return self.note_availability(await self.store.append(entries)) if entries else True

    async def get_chain(self, owner: str, id: str) -> list[Entry] | StoreDown:
        return (
            self.note_availability(await self.store.get_chain(owner, RESPONSE, id, MAX_CHAIN_LENGTH))
            if _is_valid_id(id)
            else []
        )

    async def get_children(
        self, owner: str, kind: str, parent: str, after: int | None = None, limit: int = 0, descending: bool = False
    ) -> list[Entry] | StoreDown:
        return self.note_availability(await self.store.get_children(owner, kind, parent, after, limit, descending))

    async def delete(self, owner: str, kind: str, *ids: str) -> int | StoreDown:
        return self.note_availability(await self.store.delete(owner, kind, ids))

    async def touch(self, owner: str, kind: str, ids: Sequence[str], expires: float) -> StoreDown | None:
        return self.note_availability(await self.store.touch(owner, kind, ids, expires))

    async def extend_expiring(self, owner: str, kind: str, entries: Iterable[tuple[str, float]]) -> None:
        """What is still used lives on: those (id, expires) that have passed half of their time."""
        now = self.clock()
        old = [id for id, expires in entries if 0 < expires < now + self.ttl / 2]
        if old:
            await self.touch(owner, kind, old, now + self.ttl)

    async def sweep(self) -> SweepResult | StoreDown:
        return self.note_availability(await self.store.sweep())


def _is_valid_id(id: str) -> bool:
    """Could this be an id of anything? Not all databases take every character, and nothing here has such an id."""
    return "\x00" not in id and len(id) <= MAX_ID_LENGTH


def store_unavailable_failure(down: StoreDown, hint: str = "") -> Failure:
    """What a client is told whose request needs the store."""
    what = f"this request needs what the gateway keeps, and its store cannot be reached: {down.reason}"
    return Failure("overloaded", f"{what}{f'; {hint}' if hint else ''}", 503, "store_unavailable")
