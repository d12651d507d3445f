"""What the store has no signatures for is not asked for with every turn."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import cast

import pytest

from toolwire.gateway.features.signatures.signatures import ABSENT_SECONDS, MAX_ABSENT, SignatureRepository
from toolwire.gateway.store.repository import StateRepository
from toolwire.gateway.store.store import Entry


class Store:
    """A repository that notes what it is asked for."""

    is_enabled, ttl = True, 0.0

    def __init__(self) -> None:
        self.now = 1000.0
        self.asked: list[list[str]] = []
        self.entries: dict[tuple[str, str], Entry] = {}
        self.while_asked: list[dict[str, bytes]] = []
        """What the signatures get while the store is read."""
        self.signatures = SignatureRepository(cast("StateRepository", self))
        self.signatures.is_alone = True

    def clock(self) -> float:
        return self.now

    async def get(self, owner: str, kind: str, ids: Sequence[str]) -> list[Entry]:
        self.asked.append([*ids])
        found = [self.entries[owner, id] for id in ids if (owner, id) in self.entries]
        for values in self.while_asked:
            await self.signatures.save(owner, values)
        return found

    async def put(self, *entries: Entry) -> bool:
        self.entries.update({(entry.owner, entry.id): entry for entry in entries})
        return True

    async def extend_expiring(self, owner: str, kind: str, entries: object) -> None: ...

    def load(self, *ids: str, owner: str = "ana") -> dict[str, bytes]:
        return dict(cast("dict[str, bytes]", asyncio.run(self.signatures.load(owner, ids))))

    def save(self, **values: bytes) -> None:
        asyncio.run(self.signatures.save("ana", values))


def test_the_store_is_asked_once_for_what_it_does_not_have() -> None:
    store = Store()
    assert store.load("a", "b") == store.load("a", "b") == {}
    store.load("a", "b", "c")
    assert store.asked == [["a", "b"], ["c"]]
    store.load("a", owner="ben")
    assert store.asked[2:] == [["a"]]


def test_what_is_stored_later_is_found() -> None:
    store = Store()
    store.load("a")
    store.save(a=b"seal")
    assert store.load("a") == {"a": b"seal"}


def test_what_is_stored_while_the_store_is_asked_is_found() -> None:
    store = Store()
    store.while_asked = [{"a": b"seal"}]
    store.load("a")
    assert store.load("a") == {"a": b"seal"}


def test_it_is_asked_again_after_a_while() -> None:
    store = Store()
    store.load("a")
    store.now += ABSENT_SECONDS
    store.load("a")
    assert store.asked == [["a"], ["a"]]


def test_a_process_that_is_not_alone_asks_every_time() -> None:
    store = Store()
    store.signatures.is_alone = False
    store.load("a")
    store.entries["ana", "a"] = Entry(owner="ana", kind="seal", id="a", body=b"seal", created=0.0, expires=0.0)
    assert store.load("a") == {"a": b"seal"}


@pytest.mark.parametrize("count", [MAX_ABSENT + 3])
def test_only_so_many_are_remembered(count: int) -> None:
    store = Store()
    store.load(*map(str, range(count)))
    store.load(*map(str, range(count)))
    assert store.asked[1] == ["0", "1", "2"]
