"""Requests over time: counted by minute and by hour, for each group, in limited memory."""

from __future__ import annotations

import asyncio
from decimal import Decimal

import msgspec
import pytest

from toolwire.gateway.telemetry import request_counts
from toolwire.gateway.telemetry.record import Asked, CacheReport, Client, ExchangeRecord, UpstreamNames
from toolwire.gateway.telemetry.request_counts import (
    DAY,
    HOUR,
    MAX_WAITING,
    MINUTE,
    CountQuery,
    Counts,
    CountSums,
    RequestCounts,
    add_sums,
    find_bucket,
    find_quantile,
)

START = 1_800_000_000 // DAY * DAY


def make_record(at: float, seconds: float = 1.0, model: str = "m", key: str = "ada", **more: object) -> ExchangeRecord:
    record = ExchangeRecord(
        request_id="r", started=5.0, started_at=at, ended=5.0 + seconds, first_byte=5.0 + seconds / 2
    )
    record.client = Client(key_name=key, team="app", agent="codex")
    record.upstream = UpstreamNames(provider="lab", model=model)
    record.status = 200
    record.attempts = [("lab", "ok", seconds)]
    for name, value in more.items():
        setattr(record, name, value)
    return record


def read(
    counts: RequestCounts, by: str = "model", step: int = MINUTE, since: float = START, *only: tuple[str, str]
) -> CountSums:
    return asyncio.run(counts.read_sums(CountQuery(by, step, since, only)))


def by_group(sums: CountSums) -> dict[tuple[int, str], int]:
    return {(time - START, name): counts.requests for time, name, counts in sums.counts}


def test_requests_are_counted_by_time_and_group() -> None:
    counts = RequestCounts(START)
    counts.add([make_record(START + at, model=model) for at, model in ((1, "a"), (59, "a"), (61, "a"), (2, "b"))])
    assert by_group(read(counts)) == {(0, "a"): 2, (60, "a"): 1, (0, "b"): 1}
    assert by_group(read(counts, step=HOUR)) == {(0, "a"): 3, (0, "b"): 1}
    assert by_group(read(counts, "provider", DAY)) == {(0, "lab"): 4}
    assert by_group(read(counts, "key", DAY, START, ("model", "b"))) == {(0, "ada"): 1}
    assert by_group(read(counts, "model", MINUTE, START + 65)) == {(60, "a"): 1}


def test_how_they_ended_is_counted() -> None:
    counts = RequestCounts(START)
    counts.add([
        make_record(START, 0.1),
        make_record(START, 10.0, status=502, failure="server", attempts=[("lab", "502", 1.0), ("lab", "502", 1.0)]),
        make_record(START, 9.0, client_disconnected=True),
        make_record(START, asked=Asked("models")),
    ])  # fmt: skip
    ((_, _, found),) = read(counts).counts
    assert (found.requests, found.failed, found.left, found.retries) == (3, 1, 1, 1)
    assert sum(found.durations.values()) == sum(found.first_bytes.values()) == 1, "only of what did not fail"


def test_what_the_cache_did_not_give_is_counted_by_cause() -> None:
    counts = RequestCounts(START)
    broken = CacheReport(900, 100, 0, 800, "tools", cost=Decimal("0.25"))
    unpriced = CacheReport(10, 0, 0, 10, "tools")
    counts.add([make_record(START, cache=cache) for cache in (CacheReport(500, 500, 0), broken, broken, unpriced)])
    ((_, _, found),) = read(counts).counts
    assert found.expected == 2310
    missed = found.missed["tools"]
    assert (missed.turns, missed.tokens, missed.cost, missed.unpriced) == (3, 1610, 500_000_000_000, 1)


@pytest.mark.parametrize("share", [0.5, 0.95])
def test_quantiles_are_near(share: float) -> None:
    durations = [0.05 * 1.01**number for number in range(700)]
    buckets: dict[int, int] = {}
    for seconds in durations:
        buckets[find_bucket(seconds)] = buckets.get(find_bucket(seconds), 0) + 1
    exact = durations[int(share * len(durations)) - 1] * 1e3
    found = find_quantile(buckets, share)
    assert found is not None
    assert abs(found - exact) < 0.06 * exact
    assert find_quantile({}, share) is None


def test_old_minutes_become_hours_and_old_hours_are_forgotten() -> None:
    counts = RequestCounts(START)
    counts.add([make_record(START + 60), make_record(START + 120)])
    counts.add([make_record(START + 7 * HOUR)])
    counts.count_waiting()
    assert by_group(read(counts, step=MINUTE)) == {(0, "m"): 2, (7 * HOUR, "m"): 1}
    assert counts.kept_since == START
    counts.add([make_record(START + 31 * DAY + 2 * HOUR)])
    counts.count_waiting()
    assert sum(by_group(read(counts, step=DAY)).values()) == 2, "the hour at the start is gone"
    assert counts.kept_since == START + HOUR


def test_names_that_clients_choose_take_no_more_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_counts, "MAX_COUNTS", 50)
    counts = RequestCounts(START)
    for number in range(40):
        counts.add([make_record(START + 61 * number, model=f"{number}-{name}") for name in range(10)])
        counts.count_waiting()
    assert len(read(counts, step=MINUTE, since=0).counts) <= 110
    assert counts.kept_since > START, "what is forgotten is not claimed"
    counts.add([make_record(START + 50 * HOUR, model=f"name-{name}") for name in range(101)])
    counts.count_waiting()
    assert counts.kept_since == START + 50 * HOUR + 1, "not since the end of the hour"


def test_a_clock_that_is_set_back_does_not_let_counts_grow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_counts, "MAX_COUNTS", 50)
    counts = RequestCounts(START)
    counts.add([make_record(START + DAY)])
    counts.count_waiting()
    for number in range(40):
        counts.add([make_record(START, model=f"{number}-{name}") for name in range(10)])
        counts.count_waiting()
    assert len(read(counts, step=MINUTE, since=0).counts) <= 50 + 2 * 50 + 10


def test_no_request_is_counted_twice_while_minutes_become_hours(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading lets others have their turn, and a request may end then."""
    monkeypatch.setattr(request_counts, "SLICE", 1)
    counts = RequestCounts(START)
    counts.add([make_record(START), make_record(START + 7 * HOUR)])
    counts.count_waiting()
    counts.add([make_record(START + 30), make_record(START + 7 * HOUR)])  # into the next fold

    async def read_and_fold() -> CountSums:
        reading = asyncio.create_task(counts.read_sums(CountQuery("team", DAY, START)))
        await asyncio.sleep(0)
        counts.add([make_record(START + 9 * HOUR)])
        counts.count_waiting()
        return await reading

    ((_, _, found),) = asyncio.run(read_and_fold()).counts
    assert found.requests == 4


def test_what_has_become_hours_is_read_by_the_hour() -> None:
    """No minute can be told then, and the first one of the hour did not have them all."""
    counts = RequestCounts(START)
    counts.add([make_record(START + 120), make_record(START + 2 * HOUR + 60), make_record(START + 7 * HOUR + 60)])
    counts.count_waiting()
    lately = read(counts, "model", MINUTE, START + HOUR)
    assert (lately.step, by_group(lately)) == (MINUTE, {(2 * HOUR + 60, "m"): 1, (7 * HOUR + 60, "m"): 1})
    longer = read(counts, "model", MINUTE, START + HOUR - 60)
    assert (longer.step, by_group(longer)) == (HOUR, {(0, "m"): 1, (2 * HOUR, "m"): 1, (7 * HOUR, "m"): 1})
    merged = add_sums([lately, longer])
    assert (merged.step, by_group(merged)) == (HOUR, {(0, "m"): 1, (2 * HOUR, "m"): 2, (7 * HOUR, "m"): 2})


def test_requests_do_not_wait_for_long() -> None:
    counts = RequestCounts(START)
    for _ in range(MAX_WAITING + 1):
        counts.add([make_record(START)])
    assert counts.waiting == []
    assert by_group(read(counts)) == {(0, "m"): MAX_WAITING + 1}


def test_workers_are_one() -> None:
    one, other = RequestCounts(START), RequestCounts(START + 5)
    one.add([make_record(START, 1.0), make_record(START, model="b")])
    other.add([make_record(START, 4.0)])
    parts = [msgspec.json.decode(msgspec.json.encode(read(counts)), type=CountSums) for counts in (one, other)]
    merged = add_sums(parts)
    assert by_group(merged) == {(0, "m"): 2, (0, "b"): 1}
    assert merged.kept_since == START + 5
    found = next(counts for _, name, counts in merged.counts if name == "m")
    assert found.durations == {find_bucket(1.0): 1, find_bucket(4.0): 1}
    assert Counts().durations == {}
