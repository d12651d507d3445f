"""The time of day may be set, forwards and backwards, and may differ between gateways: a background response that is
being made is never taken for a lost one, and a lost one is always noticed."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.stores import Clock
from toolwire.gateway.features.responses.background import BackgroundJob, fail_if_abandoned
from toolwire.gateway.features.responses.recorder import StoringRecorder
from toolwire.gateway.features.responses.response_objects import StateOptions, write_pending_response
from toolwire.gateway.settings.config import StoreSettings
from toolwire.gateway.store.repository import MAX_SEEN_LEASES, RESPONSE, StateRepository
from toolwire.gateway.store.sqlite import SqliteStore
from toolwire.gateway.store.store import Entry

LEASE = 10.0
DAY = 24 * 3600.0
START = 1_700_000_000.0


class Host:
    """A gateway on a host with clocks of its own."""

    def __init__(self, file: Path, ahead: float = 0.0) -> None:
        self.wall, self.steady = Clock(START + ahead), Clock(77.0)
        self.store = SqliteStore(file, clock=self.wall)
        settings = StoreSettings(background_lease=LEASE)
        self.repository = StateRepository(self.store, settings, lambda *_: None, self.wall, self.steady)

    def pass_time(self, seconds: float) -> None:
        self.wall.time += seconds
        self.steady.time += seconds

    async def look(self) -> str:
        entry = await self.repository.get_one("", RESPONSE, "resp_1")
        assert isinstance(entry, Entry), entry
        found = await fail_if_abandoned(self.repository, entry)
        assert isinstance(found, Entry)
        return found.mark


def make_job(host: Host) -> BackgroundJob:
    options = StateOptions(store=True, background=True)
    recorder = StoringRecorder(host.repository, "", options, [], ("resp_1", 1))
    queued, running = (
        {**write_pending_response({"model": "m"}, 1, status), "id": "resp_1"} for status in ("queued", "in_progress")
    )
    return BackgroundJob(host.repository, recorder, queued, running)


Event = st.one_of(
    st.tuples(st.just("jump"), st.floats(-3 * DAY, 3 * DAY)),
    st.tuples(st.just("wait"), st.floats(0, LEASE / 3)),
)


@given(st.floats(-DAY, DAY), st.lists(Event, max_size=12))
def test_a_running_response_never_fails(
    tmp_path_factory: pytest.TempPathFactory, ahead: float, events: list[tuple[str, float]]
) -> None:
    file = tmp_path_factory.mktemp("clocks") / "store.db"

    async def run() -> None:
        maker, other = Host(file), Host(file, ahead)
        job = make_job(maker)
        assert await job.store_queued() is True
        for what, seconds in events:
            for host in (maker, other):
                if what == "jump":
                    host.wall.time += seconds
                else:
                    host.pass_time(seconds)
            assert await maker.look() == await other.look() == "queued"
            if what == "wait":
                assert await job.store_progress() is True
        await maker.store.close()
        await other.store.close()

    asyncio.run(run())


@pytest.mark.parametrize("jump", [0.0, 3600.0, DAY, -3600.0])
def test_a_lost_response_is_noticed(tmp_path: Path, jump: float) -> None:
    async def run() -> None:
        maker, other = Host(tmp_path / "store.db"), Host(tmp_path / "store.db")
        assert await make_job(maker).store_queued() is True
        other.wall.time += jump
        seen = []
        for _ in range(int((abs(jump) + 2 * LEASE) / 5) + 3):
            seen.append(await other.look())
            other.pass_time(5.0)
        assert seen[0] == "queued"
        assert seen[-1] == "failed"
        await maker.store.close()
        await other.store.close()

    asyncio.run(run())


def test_what_is_remembered_of_leases_is_bounded(tmp_path: Path) -> None:
    host: Any = Host(tmp_path / "store.db")
    for number in range(MAX_SEEN_LEASES + 100):
        assert not host.repository.has_lapsed("", f"resp_{number}", START - 1)
    assert len(host.repository._seen_leases) == MAX_SEEN_LEASES
