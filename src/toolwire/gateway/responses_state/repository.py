"""Stored responses, conversations, items, signatures and stream events: what the records contain, and a repository that
reads and writes them and knows whether the store can be reached."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import TypeVar

from msgspec import Struct

from toolwire.core.ids import hex_digest
from toolwire.core.ir import Failure
from toolwire.core.json_values import Json, Object, decode, encode, expect_object
from toolwire.gateway.config.config import StoreSettings
from toolwire.gateway.server.access import Caller
from toolwire.gateway.store.store import STORE_DISABLED, Entry, NoStore, Store, StoreDown, SweepResult

Value = TypeVar("Value")

REACHABLE_SECONDS = 1.0
"""How long the store counts as reachable after it answered."""
MAX_CHAIN_LENGTH = 4096
"""The most responses that are followed back from a `previous_response_id`."""
MAX_ID_LENGTH = 1024
RESPONSE, ITEM, CONVERSATION, SEAL, EVENTS = "response", "item", "conversation", "seal", "events"
"""The kinds of entries in the store."""
UNFINISHED_STATUSES = ("queued", "in_progress")
"""The `mark` of a response's entry is its status; with one of these it is still being made in the background."""

# --- records ----------------------------------------------------------------------------------------------------------


class StoredResponse(Struct, frozen=True, kw_only=True, omit_defaults=True, rename={"has_end_event": "told"}):
    """A response in the store, with the new input items of its request."""

    items: list[Object]
    response: Object
    conversation: str = ""
    background: bool = False
    lease: float = 0.0
    """A background response: until when its gateway has promised the next update. After that it counts as lost."""
    has_end_event: bool = False
    """Is the last event among the stored events of its stream? Called `told` in the store."""


class StoredConversation(Struct, frozen=True, kw_only=True):
    """A conversation in the store; its items are entries of their own."""

    created: int
    metadata: Json = None


def encode_record(value: StoredResponse | StoredConversation) -> bytes:
    return encode(value)


def read_stored_response(entry: Entry) -> StoredResponse:
    fields = expect_object(decode(entry.body, max_bytes=len(entry.body)), None)
    return StoredResponse(has_end_event=fields.pop("told", False), **fields)


def read_stored_conversation(entry: Entry) -> StoredConversation:
    return StoredConversation(**decode(entry.body))


def read_stored_item(entry: Entry) -> Object:
    return expect_object(decode(entry.body, max_bytes=len(entry.body)), None)


def item_entries(owner: str, conversation: str, items: list[Object], now: float) -> list[Entry]:
    """The entries for the items of a conversation."""
    return [
        Entry(owner=owner, kind=ITEM, id=str(item["id"]), parent=conversation, body=encode(item), created=now)
        for item in items
    ]


def owner_of(caller: Caller) -> str:
    """Whose entries a caller reads and writes: every gateway key has its own; without keys there is one owner."""
    return _owner_digest(caller.key.sha256) if caller.key is not None else ""


@lru_cache(maxsize=1024)
def _owner_digest(sha256: str) -> str:
    return hex_digest(sha256.lower(), 32)


# --- failures ---------------------------------------------------------------------------------------------------------


def store_unavailable_failure(down: StoreDown, hint: str = "") -> Failure:
    """For a request that needs the store while it cannot be reached."""
    message = f"this request needs the gateway's store, which cannot be reached: {down.reason}"
    return Failure("overloaded", f"{message}{f'; {hint}' if hint else ''}", 503, "store_unavailable")


def no_store_failure(status: int) -> Failure:
    """For a request that needs the store where the gateway has none."""
    hint = "send the whole conversation in the request, with `store: false`, and wait for the answer"
    return Failure(
        "invalid" if status == 400 else "not_found", f"{STORE_DISABLED.reason}; {hint}", status, "nothing_kept"
    )


# --- the repository ---------------------------------------------------------------------------------------------------


class StateRepository:
    """The store of one process. Logs once when the store goes down and once when it is back."""

    def __init__(
        self,
        store: Store,
        settings: StoreSettings,
        log_event: Callable[[str, str], None],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.store = store
        self.is_enabled = not isinstance(store, NoStore)
        self.lease = settings.background_lease
        self.ttl = settings.ttl
        self.clock = clock
        self._log_event = log_event
        self._last_reached = 0.0
        self._outage: StoreDown | None = None

    def note_availability(self, result: Value | StoreDown) -> Value | StoreDown:
        """Note whether the store answered, and return its result."""
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
        """Called before a provider is asked, because an answer that cannot be stored would be lost work."""
        if time.monotonic() - self._last_reached < REACHABLE_SECONDS:
            return None
        result = self.note_availability(await self.store.get("", RESPONSE, ["-"]))
        return result if isinstance(result, StoreDown) else None

    async def get(self, owner: str, kind: str, ids: Sequence[str]) -> list[Entry] | StoreDown:
        return self.note_availability(await self.store.get(owner, kind, [id for id in ids if _is_valid_id(id)]))

    async def get_one(self, owner: str, kind: str, id: str) -> Entry | StoreDown | None:
        entries = await self.get(owner, kind, [id])
        return entries if isinstance(entries, StoreDown) else entries[0] if entries else None

    async def put(
        self, *entries: Entry, required_marks: tuple[str, ...] = (), appended: Sequence[Entry] = ()
    ) -> bool | StoreDown:
        return self.note_availability(await self.store.put(entries, required_marks, appended))

    async def get_chain(self, owner: str, id: str) -> list[Entry] | StoreDown:
        """The response with this id and those before it, oldest first."""
        if not _is_valid_id(id):
            return []
        return self.note_availability(await self.store.get_chain(owner, RESPONSE, id, MAX_CHAIN_LENGTH))

    async def get_children(
        self, owner: str, kind: str, parent: str, after: int | None = None, limit: int = 0, descending: bool = False
    ) -> list[Entry] | StoreDown:
        return self.note_availability(await self.store.get_children(owner, kind, parent, after, limit, descending))

    async def delete(self, owner: str, kind: str, *ids: str) -> int | StoreDown:
        return self.note_availability(await self.store.delete(owner, kind, ids))

    async def touch(self, owner: str, kind: str, ids: Sequence[str], expires: float) -> StoreDown | None:
        return self.note_availability(await self.store.touch(owner, kind, ids, expires))

    async def extend_expiring(self, owner: str, kind: str, entries: Iterable[tuple[str, float]]) -> None:
        """Extend the life of those entries (id, expires) that have passed half of it, because they are still used."""
        now = self.clock()
        old = [id for id, expires in entries if 0 < expires < now + self.ttl / 2]
        if old:
            await self.touch(owner, kind, old, now + self.ttl)

    async def sweep(self) -> SweepResult | StoreDown:
        return self.note_availability(await self.store.sweep())


def _is_valid_id(id: str) -> bool:
    """Can an entry have this id? PostgreSQL does not accept NUL in text."""
    return "\x00" not in id and len(id) <= MAX_ID_LENGTH
