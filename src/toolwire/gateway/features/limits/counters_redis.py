"""Counters in Redis or Valkey, which several gateways share. Each operation is one Lua script, which runs as a whole.
Operations that begin while all connections are in use are sent together, so that there are never too few of them.

Keys, all in one hash slot: `{toolwire}:c:COUNTER:START` is a window of a counter (a hash: `used`, `held`),
`{toolwire}:r:ID` a reservation (a list: `held` or `released`, then each counter's key and amount), and
`{toolwire}:leases` the ends of all leases (a sorted set). Amounts are exact up to 2^53, as Lua has only such numbers.
"""

from __future__ import annotations

import asyncio
import re
from collections import deque
from collections.abc import Callable, Sequence
from hashlib import sha1
from importlib.resources import files
from time import monotonic
from typing import Any

from msgspec import Struct
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import NoScriptError, RedisError, ResponseError

from toolwire.gateway.features.limits.counters import (
    KEPT_SECONDS,
    NO_END,
    UNIT_SECONDS,
    Charge,
    CounterState,
    CounterUse,
    ForgetfulCounters,
    Persistence,
    Reserved,
    Settlement,
)
from toolwire.gateway.settings.store import hide_user
from toolwire.gateway.store.store import StoreDown

TIMEOUT = 2.0
"""Seconds to connect, and for an answer."""
RETRY_DELAY = 1.0
"""Seconds until a server that is down is asked again."""
MAX_WAIT = 5.0
"""Seconds that an operation may take, with waiting for a connection: longer than a connection needs to fail twice."""
MAX_CONNECTIONS = 4
"""At the same time. Servers limit their clients, and there may be many gateways."""
MAX_BATCH = 256
"""Operations that are sent together."""
_PREFIX = "{toolwire}:"
_LEASES = f"{_PREFIX}leases"
_BARE_KEPT_SECONDS = 30 * 86400
"""How long a counter without a window is kept after its last reservation."""

_CONSTANTS = f"""local PREFIX, NO_END = '{_PREFIX}', {NO_END}
local KEPT_SECONDS, BARE_KEPT_SECONDS = {KEPT_SECONDS}, {_BARE_KEPT_SECONDS}
local UNIT_SECONDS = {{{", ".join(f"{unit} = {seconds}" for unit, seconds in UNIT_SECONDS.items())}}}
"""
_LUA = (files(__package__) / "counters.lua").read_text("utf-8")
_SCRIPTS = dict(re.findall(r"^-- script (\w+)\n(.*?)(?=^-- script|\Z)", _LUA, re.MULTILINE | re.DOTALL))
_RESERVE, _FILL, _SETTLE, _RENEW, _READ = (
    _CONSTANTS + _SCRIPTS["common"] + _SCRIPTS[name] for name in ("reserve", "fill", "settle", "renew", "read")
)
_ERRORS = (RedisError, OSError)
_WRONG_SHAPES = (AttributeError, IndexError, OverflowError, TypeError, ValueError)
"""What an answer raises that is not one of our scripts'."""
_NO_COUNTERS = ValueError("the server answers a script as no Redis does")


class _Call(Struct, eq=False):
    """A script that waits for a connection, or for its answer."""

    script: str
    arguments: tuple[str | float | bytes, ...]
    answer: asyncio.Future[Any]


class RedisCounters(ForgetfulCounters):
    def __init__(self, url: str, *, clock: Callable[[], float] | None = None) -> None:
        """`clock` replaces that of the server, in tests."""
        self._url, self._clock = url.replace("valkey", "redis", 1) if url.startswith("valkey") else url, clock
        self._location = hide_user(url)
        self._client: Redis | None = None
        self._down: StoreDown | None = None
        self._retry_at = 0.0
        self._queue: deque[_Call] = deque()
        self._senders: set[asyncio.Task[None]] = set()
        """Each uses one connection."""
        self._answered = 0
        """Batches that the server has answered."""

    async def reserve(self, id: str, charges: Sequence[Charge], lease: float) -> Reserved | StoreDown:
        fields = [
            field
            for charge in charges
            for field in (charge.counter, charge.unit, charge.amount, charge.limit, int(charge.find_used is not None))
        ]
        while True:
            found = await self._run_script(_RESERVE, lease, id, *fields)
            if isinstance(found, StoreDown):
                return found
            try:
                states, refused, forgotten = _read_reserved(found, len(charges))
            except _WRONG_SHAPES:
                return self._note_failure(_NO_COUNTERS)
            if not forgotten:
                return Reserved(states, refused)
            # A window may end meanwhile: then the next one is filled, too.
            down = await self._fill_windows(charges, forgotten)
            if down is not None:
                return down

    async def _fill_windows(
        self, charges: Sequence[Charge], forgotten: Sequence[tuple[int, int, int, bytes]]
    ) -> StoreDown | None:
        """Begin windows that are not there with what was used in them: they are new, or the server was restarted and
        has kept nothing."""
        fields: list[str | int | bytes] = []
        for index, start, end, window in forgotten:
            charge = charges[index]
            used = await charge.find_used(start, end) if charge.find_used is not None else 0
            if isinstance(used, StoreDown):
                return used
            fields += (window, charge.counter, charge.unit, end, used)
        done = await self._run_script(_FILL, *fields)
        return done if isinstance(done, StoreDown) else None

    async def find_persistence(self) -> Persistence | StoreDown:
        try:
            client = self._open_client()  # one at a time: Redis 6 takes no two names
            found = {**await client.config_get("appendonly"), **await client.config_get("save")}
        except ResponseError:
            return "unknown"
        except _ERRORS as error:
            return self._note_failure(error)
        values = {_read_text(name or ""): _read_text(value or "") for name, value in found.items()}
        if not values:
            return "unknown"
        return "all" if values.get("appendonly") == "yes" else "snapshots" if values.get("save") else "nothing"

    async def settle(self, settlements: Sequence[Settlement]) -> StoreDown | None:
        fields: list[str | int] = []
        for settlement in settlements:
            fields += (settlement.id, len(settlement.amounts), *settlement.amounts)
        done = await self._run_script(_SETTLE, *fields)
        return done if isinstance(done, StoreDown) else None

    async def renew(self, ids: Sequence[str], lease: float) -> StoreDown | None:
        done = await self._run_script(_RENEW, lease, *ids)
        return done if isinstance(done, StoreDown) else None

    async def list_counters(self) -> list[CounterUse] | StoreDown:
        try:
            keys = [key async for key in self._open_client().scan_iter(match=f"{_PREFIX}c:*", count=1000)]
        except _ERRORS as error:
            return self._note_failure(error)
        rows = await self._run_script(_READ, *keys)
        if isinstance(rows, StoreDown):
            return rows
        try:
            uses = [
                CounterUse(counter.decode(), unit.decode(), int(used), int(held), float(opens))
                for counter, unit, used, held, opens in rows
            ]
        except _WRONG_SHAPES:
            return self._note_failure(_NO_COUNTERS)
        return sorted((use for use in uses if use.used or use.held), key=lambda use: use.counter)

    async def sweep(self) -> StoreDown | None:
        return None  # keys expire by themselves

    async def close(self) -> None:
        if self._senders:
            for sender in self._senders:
                sender.cancel()
            await asyncio.wait(self._senders)  # nobody waits for their answers any more
        if self._client is not None:
            await self._client.aclose()

    def _open_client(self) -> Redis:
        """Made on first use, so that processes can be forked."""
        if self._client is None:
            # One retry, at once, for a connection that was closed while it was idle. All scripts can be repeated.
            self._client = Redis.from_url(
                self._url,
                socket_timeout=TIMEOUT,
                socket_connect_timeout=TIMEOUT,
                retry=Retry(NoBackoff(), 1),
                client_name="toolwire",
            )
        return self._client

    async def _run_script(self, script: str, *values: str | float | bytes) -> Any:
        if (down := self._find_down()) is not None:
            return down
        arguments = ("" if self._clock is None else self._clock(), *values)
        call = _Call(script, arguments, asyncio.get_running_loop().create_future())
        self._queue.append(call)
        if len(self._senders) < MAX_CONNECTIONS:
            self._senders.add(asyncio.create_task(self._send_queue()))
        answered = self._answered
        try:
            await asyncio.wait([call.answer], timeout=MAX_WAIT)
        finally:
            call.answer.cancel()  # without effect on an answer; otherwise it is not sent any more
        if not call.answer.cancelled():
            return call.answer.result()
        if self._answered == answered:
            return self._note_failure(TimeoutError("the server did not answer in time"))
        what = (
            f"more requests at the same time than the counters in {self._location} can answer in {MAX_WAIT:g} seconds"
        )
        return StoreDown(what, is_busy=True)

    async def _send_queue(self) -> None:
        try:
            while self._queue:
                batch = [self._queue.popleft() for _ in range(min(MAX_BATCH, len(self._queue)))]
                batch = [call for call in batch if not call.answer.done()]
                if batch and not await self._answer_calls(batch):
                    return
        finally:  # in this step, so that nobody counts on a sender that has seen an empty queue
            self._senders.discard(asyncio.current_task())

    async def _answer_calls(self, batch: list[_Call]) -> bool:
        """False if this sender cannot do it, and leaves it to others."""
        answers: Sequence[Any]
        try:
            answers = await self._send_batch(batch)
        except _ERRORS as error:
            if len(self._senders) > 1 and self._find_down() is None:
                # A server can refuse one more connection, and answer at the others: their senders go on with this.
                self._queue.extendleft(reversed(batch))
                return False
            batch += self._queue
            self._queue.clear()
            answers = [self._note_failure(error)] * len(batch)
        else:
            self._down = None
            self._answered += 1
        for call, answer in zip(batch, answers, strict=True):
            if not call.answer.done():
                call.answer.set_result(answer)
        return True

    async def _send_batch(self, batch: Sequence[_Call], loads_scripts: bool = False) -> list[Any]:
        """The answers. A script that the server does not know is sent in full, once."""
        pipeline = self._open_client().pipeline(transaction=False)
        loaded: set[str] = set()
        for call in batch:
            if loads_scripts and call.script not in loaded:
                loaded.add(call.script)
                pipeline.eval(call.script, 1, _LEASES, *call.arguments)
            else:
                pipeline.evalsha(_SCRIPT_NAMES[call.script], 1, _LEASES, *call.arguments)
        answers = await pipeline.execute(raise_on_error=False)
        unknown = [index for index, answer in enumerate(answers) if isinstance(answer, NoScriptError)]
        if unknown and not loads_scripts:
            again = await self._send_batch([batch[index] for index in unknown], loads_scripts=True)
            for index, answer in zip(unknown, again, strict=True):
                answers[index] = answer
        return [self._note_failure(answer) if isinstance(answer, RedisError) else answer for answer in answers]

    def _find_down(self) -> StoreDown | None:
        """Why the server is not asked now."""
        return self._down if monotonic() < self._retry_at else None

    def _note_failure(self, error: Exception) -> StoreDown:
        self._retry_at = monotonic() + RETRY_DELAY
        self._down = StoreDown(f"the counters in {self._location} cannot be used: {_describe_error(error)}")
        return self._down


_SCRIPT_NAMES = {script: sha1(script.encode()).hexdigest() for script in (_RESERVE, _FILL, _SETTLE, _RENEW, _READ)}


def _read_reserved(
    found: Any, charges: int
) -> tuple[tuple[CounterState, ...], tuple[int, ...], list[tuple[int, int, int, bytes]]]:
    """The counters, the indexes of the charges that did not fit, and those whose windows are not there."""
    numbers, refused, forgotten = found
    pairs = zip(numbers[::2], numbers[1::2], strict=True)
    states = tuple(CounterState(int(taken), float(opens)) for taken, opens in pairs)
    windows = [(int(index), int(start), int(end), bytes(window)) for index, start, end, window in forgotten]
    indexes = [*map(int, refused), *(window[0] for window in windows)]
    if any(not 0 <= index < charges for index in indexes) or any(state.taken < 0 for state in states):
        raise ValueError
    if not windows and len(states) != charges:
        raise ValueError
    return states, tuple(map(int, refused)), windows


def _read_text(value: str | bytes) -> str:
    return value if isinstance(value, str) else value.decode()


def _describe_error(error: Exception) -> str:
    """What went wrong. The texts of redis-py name the server, but no password."""
    text = str(error) or type(error).__name__
    return text if len(text) < 300 else f"{text[:300]}…"
