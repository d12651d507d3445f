"""A credential that ends: one request for it at a time, renewed before its end, and kept while it is valid."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest

from toolwire.gateway.features.cloud_credentials import leases
from toolwire.gateway.features.cloud_credentials.leases import (
    DROP_SECONDS,
    FETCH_SECONDS,
    MAX_WAIT,
    RENEW_SECONDS,
    CredentialProblem,
    Lease,
    LeaseKeeper,
)
from toolwire.gateway.http.redact import redact

LIFE = 3600.0


class Source:
    """Numbers its credentials; each is given when the test says so."""

    def __init__(self) -> None:
        self.asked = 0
        self.gate: asyncio.Event | None = None
        self.fails = False
        self.life = LIFE
        self.has_end = True
        self.time = 1_000_000.0

    def now(self) -> float:
        return self.time

    async def fetch(self) -> Lease[str] | CredentialProblem:
        self.asked += 1
        number = self.asked
        if self.gate is not None:
            await self.gate.wait()
        if self.fails:
            return CredentialProblem("the fake cloud", "it is closed", "open it")
        return Lease(f"credential {number}", self.time + self.life, has_end=self.has_end)

    def keep(self) -> LeaseKeeper[str]:
        def fail(error: BaseException) -> None:
            raise error

        return LeaseKeeper("the fake cloud", self.fetch, self.now, fail, jitter=lambda: 0.0)


def run(test: Callable[[Source, LeaseKeeper[str]], Coroutine[Any, Any, None]]) -> None:
    async def body() -> None:
        source = Source()
        keeper = source.keep()
        await test(source, keeper)
        await keeper.close()

    asyncio.run(body())


def value(found: Lease[str] | CredentialProblem) -> str:
    assert isinstance(found, Lease), found
    return found.value


async def settle(true: Callable[[], object]) -> None:
    """Let others work until it is so."""
    while not true():
        await asyncio.sleep(0)


def test_two_hundred_at_once_ask_once() -> None:
    """A herd of refreshes stopped a proxy for 20 seconds (BerriAI/litellm#26024)."""

    async def test(source: Source, keeper: LeaseKeeper[str]) -> None:
        source.gate = asyncio.Event()
        waiting = [asyncio.ensure_future(keeper.get()) for _ in range(200)]
        await settle(lambda: source.asked)
        source.gate.set()
        assert {value(found) for found in await asyncio.gather(*waiting)} == {"credential 1"}
        assert source.asked == 1

    run(test)


def test_a_credential_serves_until_it_has_to_be_renewed() -> None:
    """Others asked for one at each request (ogx-ai/ogx#4928, anthropics/anthropic-sdk-python#575)."""

    async def test(source: Source, keeper: LeaseKeeper[str]) -> None:
        for _ in range(50):
            assert value(await keeper.get()) == "credential 1"
            source.time += (LIFE - RENEW_SECONDS) / 51
        assert source.asked == 1

    run(test)


def test_it_is_renewed_in_the_background_while_the_old_one_serves() -> None:
    async def test(source: Source, keeper: LeaseKeeper[str]) -> None:
        await keeper.get()
        source.time += LIFE - RENEW_SECONDS + 1
        source.gate = asyncio.Event()
        found = await asyncio.gather(*(keeper.get() for _ in range(200)))
        assert {value(one) for one in found} == {"credential 1"}  # nobody waits
        source.gate.set()
        await settle(lambda: keeper._flight is None)
        assert value(await keeper.get()) == "credential 2"
        assert source.asked == 2

    run(test)


def test_half_of_a_short_life_is_used() -> None:
    async def test(source: Source, keeper: LeaseKeeper[str]) -> None:
        source.life = 100.0
        await keeper.get()
        source.time += 49
        await keeper.get()
        assert source.asked == 1
        source.time += 2
        await keeper.get()
        await settle(lambda: keeper._flight is None)
        assert source.asked == 2

    run(test)


def test_one_that_has_ended_is_not_used() -> None:
    async def test(source: Source, keeper: LeaseKeeper[str]) -> None:
        await keeper.get()
        source.time += LIFE + 1
        assert value(await keeper.get()) == "credential 2"

    run(test)


def test_if_it_cannot_be_renewed_the_old_one_serves_to_its_end() -> None:
    async def test(source: Source, keeper: LeaseKeeper[str]) -> None:
        await keeper.get()
        source.fails = True
        source.time += LIFE - 200
        for _ in range(19):  # until one second before its end
            assert value(await keeper.get()) == "credential 1"
            await settle(lambda: keeper._flight is None)
            source.time += 10.5
        source.time += 1
        problem = await keeper.get()
        assert isinstance(problem, CredentialProblem)
        assert str(problem) == "no credentials from the fake cloud: it is closed (open it)"
        assert source.asked < 12  # the pauses between them grow

    run(test)


def test_a_source_that_failed_is_left_alone_for_a_while_and_then_asked_again() -> None:
    async def test(source: Source, keeper: LeaseKeeper[str]) -> None:
        source.fails = True
        for _ in range(100):
            assert isinstance(await keeper.get(), CredentialProblem)
        assert source.asked == 1
        for number in range(2, 9):
            source.time += MAX_WAIT + 1
            await keeper.get()
            assert source.asked == number
        source.fails = False
        source.time += MAX_WAIT + 1
        assert value(await keeper.get()) == "credential 9"

    run(test)


def test_whoever_leaves_does_not_end_it_for_the_others() -> None:
    async def test(source: Source, keeper: LeaseKeeper[str]) -> None:
        source.gate = asyncio.Event()
        first, second = (asyncio.ensure_future(keeper.get()) for _ in range(2))
        await settle(lambda: source.asked)
        first.cancel()
        await asyncio.wait([first])
        source.gate.set()
        assert value(await second) == "credential 1"

    run(test)


def test_whoever_has_no_time_does_not_wait_for_a_slow_source() -> None:
    async def test(source: Source, keeper: LeaseKeeper[str]) -> None:
        source.gate = asyncio.Event()
        problem = await keeper.get(max_seconds=0.0)
        assert isinstance(problem, CredentialProblem)
        assert "no answer within" in problem.problem
        source.gate.set()
        assert value(await keeper.get()) == "credential 1"
        assert source.asked == 1

    run(test)


def test_a_credential_that_is_refused_is_dropped_but_not_again_and_again() -> None:
    """One that was revoked was used until its end (BerriAI/litellm#23512)."""

    async def test(source: Source, keeper: LeaseKeeper[str]) -> None:
        first = await keeper.get()
        assert isinstance(first, Lease)
        assert keeper.drop(first)
        second = await keeper.get()
        assert isinstance(second, Lease)
        assert second.value == "credential 2"
        assert keeper.drop(first)  # somebody has done it already: the next one is new
        assert not keeper.drop(second)
        assert value(await keeper.get()) == "credential 2"
        source.time += DROP_SECONDS + 1
        assert keeper.drop(second)
        assert value(await keeper.get()) == "credential 3"

    run(test)


def test_a_mistake_in_a_source_is_reported_and_does_not_stop_it_for_ever() -> None:
    async def body() -> None:
        reported: list[BaseException] = []
        answers: list[Callable[[], Awaitable[Lease[str]]]] = []

        async def fail() -> Lease[str]:
            raise KeyError("secret-of-the-source")

        async def give() -> Lease[str]:
            return Lease("credential", 1e12)

        answers += [fail, give]
        time = [0.0]

        async def fetch() -> Lease[str]:
            return await answers.pop(0)()

        keeper = LeaseKeeper("the fake cloud", fetch, lambda: time[0], reported.append)
        problem = await keeper.get()
        assert isinstance(problem, CredentialProblem)
        assert "secret-of-the-source" not in str(problem)
        assert isinstance(reported[0], KeyError)
        time[0] = 100.0
        assert value(await keeper.get()) == "credential"
        await keeper.close()

    asyncio.run(body())


def test_a_failure_is_reported_once_and_so_is_its_end() -> None:
    """Also while the old credential serves, when no request shows it."""

    async def body() -> None:
        source, reported = Source(), list[str]()

        def fail(error: BaseException) -> None:
            raise error

        def note(name: str, problem: CredentialProblem | None) -> None:
            reported.append(f"{name}: {problem.problem if problem is not None else 'back'}")

        keeper = LeaseKeeper("the fake cloud", source.fetch, source.now, fail, note, jitter=lambda: 0.0)
        await keeper.get()
        source.fails = True
        source.time += LIFE - 200
        for _ in range(5):
            await keeper.get()
            await settle(lambda: keeper._flight is None)
            source.time += MAX_WAIT + 1
        source.fails = False
        await keeper.get()
        await settle(lambda: keeper._flight is None)
        await keeper.close()
        assert reported == ["the fake cloud: it is closed", "the fake cloud: back"]

    asyncio.run(body())


@pytest.mark.parametrize("shown", [Lease("credential of somebody"), [Lease("credential of somebody", 5.0)]])
def test_what_holds_a_credential_does_not_show_it(shown: object) -> None:
    assert "credential" not in repr(shown)


def test_one_that_has_ended_already_is_a_failure_and_not_asked_for_again_and_again() -> None:
    async def test(source: Source, keeper: LeaseKeeper[str]) -> None:
        source.life = -60.0
        problems = [await keeper.get() for _ in range(50)]
        assert source.asked == 1
        assert "what it gives has ended already, at 1970-01-12 13:45:40 UTC" in str(problems[-1])

    run(test)


def test_one_whose_end_nobody_says_serves_until_there_is_another_one() -> None:
    async def test(source: Source, keeper: LeaseKeeper[str]) -> None:
        source.has_end = False
        await keeper.get()
        source.fails = True
        source.time += LIFE + 1000
        assert value(await keeper.get()) == "credential 1"
        source.fails = False
        source.time += MAX_WAIT + 1
        assert value(await keeper.get()) == "credential 3"

    run(test)


def test_a_source_that_hangs_keeps_only_the_first_requests_waiting() -> None:
    async def test(source: Source, keeper: LeaseKeeper[str]) -> None:
        source.gate = asyncio.Event()
        first = asyncio.ensure_future(keeper.get())
        await settle(lambda: source.asked)
        source.time += FETCH_SECONDS + 5
        assert str(await keeper.get()) == "no credentials from the fake cloud: no answer within 35 seconds"
        assert source.asked == 1
        source.gate.set()
        assert value(await first) == "credential 1"

    run(test)


def test_a_source_that_hangs_for_ever_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "STUCK_SECONDS", 0.0)

    async def test(source: Source, keeper: LeaseKeeper[str]) -> None:
        source.gate = asyncio.Event()
        assert isinstance(await keeper.get(), CredentialProblem)
        monkeypatch.undo()
        source.gate.set()
        source.time += MAX_WAIT
        assert value(await keeper.get()) == "credential 2"

    run(test)


def test_the_log_shows_what_was_asked() -> None:
    """After "gives no credential:" the next word was taken for one, and hidden."""
    problem = CredentialProblem("AWS, role `arn:aws:iam::1:role/token`", "169.254.169.254 answered with 404")
    assert redact(str(problem)) == str(problem)
