"""Counters in Redis or Valkey, which several gateways share. Each operation is one Lua script, which runs as a whole.
Operations that begin while all connections are in use are sent together, so that there are never too few of them.

Keys, all in one hash slot: `{toolwire}:c:COUNTER:START` is a window of a counter (a hash: `used`, `held`),
`{toolwire}:r:ID` a reservation (a list: `held` or `released`, then each counter's key and amount), and
`{toolwire}:leases` the ends of all leases (a sorted set). Amounts are exact up to 2^53, as Lua has only such numbers.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from hashlib import sha1
from time import monotonic
from typing import Any
from urllib.parse import urlsplit

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
    Persistence,
    Reserved,
    Settlement,
)
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

_COMMON = f"""
local leases, prefix = KEYS[1], '{_PREFIX}'
local now = tonumber(ARGV[1])
if not now then
    local time = redis.call('TIME')
    now = tonumber(time[1]) + tonumber(time[2]) / 1000000
end
local function text(number) return string.format('%.0f', number) end
local function add(key, field, amount)
    -- Not to a window that is gone.
    if amount ~= 0 and redis.call('EXISTS', key) == 1 then redis.call('HINCRBY', key, field, text(amount)) end
end
local function hold(reservation, sign)
    for place = 2, #reservation, 2 do add(reservation[place], 'held', sign * tonumber(reservation[place + 1])) end
end
local function release_expired()
    for _, id in ipairs(redis.call('ZRANGEBYSCORE', leases, '-inf', now, 'LIMIT', 0, 1000)) do
        local key = prefix .. 'r:' .. id
        local reservation = redis.call('LRANGE', key, 0, -1)
        if reservation[1] == 'held' then
            hold(reservation, -1)
            redis.call('LSET', key, 0, 'released')
        end
        redis.call('ZREM', leases, id)
    end
end
"""

# The day of the month is found as in core/rate_limits.py. A day 31 days after the first is in the next month.
_RESERVE = (
    _COMMON
    + f"""
local function day_of_month(days)
    local of_era = (days + 719468) % 146097
    local year = math.floor((of_era - math.floor(of_era / 1460) + math.floor(of_era / 36524)
        - math.floor(of_era / 146096)) / 365)
    local of_year = of_era - (365 * year + math.floor(year / 4) - math.floor(year / 100))
    return of_year - math.floor((153 * math.floor((5 * of_year + 2) / 153) + 2) / 5) + 1
end
local seconds = {{{", ".join(f"{unit} = {seconds}" for unit, seconds in UNIT_SECONDS.items())}}}
local function find_window(unit)
    if unit == 'none' then return 0, {NO_END} end
    if unit == 'month' then
        local today = math.floor(now / 86400)
        local first = today - day_of_month(today) + 1
        local following = first + 31
        return first * 86400, (following - day_of_month(following) + 1) * 86400
    end
    local start = math.floor(now / seconds[unit]) * seconds[unit]
    return start, start + seconds[unit]
end
release_expired()
local lease, id = tonumber(ARGV[2]), ARGV[3]
local key = prefix .. 'r:' .. id
local is_known = redis.call('EXISTS', key) == 1
local states, refused, reservation, forgotten = {{}}, {{}}, {{'held'}}, {{}}
for place = 4, #ARGV, 5 do
    local counter, unit = ARGV[place], ARGV[place + 1]
    local amount, limit = tonumber(ARGV[place + 2]), tonumber(ARGV[place + 3])
    local start, ends = find_window(unit)
    local window = prefix .. 'c:' .. counter .. ':' .. text(start)
    if ARGV[place + 4] == '1' and redis.call('EXISTS', window) == 0 then
        forgotten[#forgotten + 1] = {{(place - 4) / 5, text(start), text(ends), window}}
    end
    local found = redis.call('HMGET', window, 'used', 'held')
    local taken = tonumber(found[1] or 0) + tonumber(found[2] or 0)
    if is_known then taken = taken - amount end
    states[#states + 1] = text(taken)
    states[#states + 1] = string.format('%.6f', ends - now)
    if not is_known and limit >= 0 and taken + amount > limit then refused[#refused + 1] = (place - 4) / 5 end
    reservation[#reservation + 1] = window
    reservation[#reservation + 1] = text(amount)
end
if #forgotten > 0 and not is_known then return {{states, refused, forgotten}} end
if #refused == 0 and not is_known then
    for place = 4, #ARGV, 5 do
        local start, ends = find_window(ARGV[place + 1])
        local window = reservation[(place - 4) / 5 * 2 + 2]
        redis.call('HSET', window, 'counter', ARGV[place], 'unit', ARGV[place + 1], 'ends', text(ends))
        redis.call('HINCRBY', window, 'held', ARGV[place + 2])
        local kept = ARGV[place + 1] == 'none' and {_BARE_KEPT_SECONDS} or math.ceil(ends - now) + {KEPT_SECONDS}
        redis.call('EXPIRE', window, kept)
    end
    redis.call('RPUSH', key, unpack(reservation))
    redis.call('EXPIRE', key, math.ceil(lease) + {KEPT_SECONDS})
    redis.call('ZADD', leases, string.format('%.6f', now + lease), id)
end
return {{states, refused, {{}}}}
"""
)
# Of gateways that find at the same time that a window is not there, the first one fills it.
_FILL = (
    _COMMON
    + f"""
for place = 2, #ARGV, 5 do
    local window, ends = ARGV[place], tonumber(ARGV[place + 3])
    if redis.call('EXISTS', window) == 0 and ends > now then
        redis.call('HSET', window, 'counter', ARGV[place + 1], 'unit', ARGV[place + 2], 'ends', ARGV[place + 3],
            'used', ARGV[place + 4])
        redis.call('EXPIRE', window, math.ceil(ends - now) + {KEPT_SECONDS})
    end
end
return 1
"""
)
_SETTLE = (
    _COMMON
    + """
local place = 2
while place <= #ARGV do
    local id, count = ARGV[place], tonumber(ARGV[place + 1])
    local key = prefix .. 'r:' .. id
    local reservation = redis.call('LRANGE', key, 0, -1)
    if reservation[1] == 'held' then hold(reservation, -1) end
    if reservation[1] then
        for number = 1, count do
            local amount = tonumber(ARGV[place + 1 + number])
            add(reservation[number * 2], 'used', amount)
        end
        redis.call('DEL', key)
        redis.call('ZREM', leases, id)
    end
    place = place + 2 + count
end
return 1
"""
)
_RENEW = (
    _COMMON
    + f"""
release_expired()
local lease = tonumber(ARGV[2])
for place = 3, #ARGV do
    local id = ARGV[place]
    local key = prefix .. 'r:' .. id
    local reservation = redis.call('LRANGE', key, 0, -1)
    if reservation[1] then
        if reservation[1] == 'released' then
            hold(reservation, 1)
            redis.call('LSET', key, 0, 'held')
        end
        redis.call('EXPIRE', key, math.ceil(lease) + {KEPT_SECONDS})
        redis.call('ZADD', leases, string.format('%.6f', now + lease), id)
    end
end
return 1
"""
)
_READ = (
    _COMMON
    + """
release_expired()
local rows = {}
for _, window in ipairs(ARGV) do
    local found = redis.call('HMGET', window, 'counter', 'unit', 'ends', 'used', 'held')
    if window ~= ARGV[1] and found[1] and tonumber(found[3]) > now then
        rows[#rows + 1] = {found[1], found[2], found[4] or '0', found[5] or '0',
            string.format('%.6f', tonumber(found[3]) - now)}
    end
end
return rows
"""
)
_ERRORS = (RedisError, OSError)


class _Call(Struct, eq=False):
    """A script that waits for a connection, or for its answer."""

    script: str
    arguments: tuple[str | float | bytes, ...]
    answer: asyncio.Future[Any]


class RedisCounters:
    def __init__(self, url: str, *, clock: Callable[[], float] | None = None) -> None:
        """`clock` replaces that of the server, in tests."""
        self._url, self._clock = url.replace("valkey", "redis", 1) if url.startswith("valkey") else url, clock
        self._location = describe_redis(url)
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
            states, refused, forgotten = found
            if not forgotten:
                break
            # A window may end meanwhile: then the next one is filled, too.
            down = await self._fill_windows(charges, forgotten)
            if down is not None:
                return down
        pairs = zip(states[::2], states[1::2], strict=True)
        return Reserved(tuple(CounterState(int(taken), float(opens)) for taken, opens in pairs), tuple(refused))

    async def _fill_windows(
        self, charges: Sequence[Charge], forgotten: Sequence[tuple[int, bytes, bytes, bytes]]
    ) -> StoreDown | None:
        """Begin windows that are not there with what was used in them: they are new, or the server was restarted and
        has kept nothing."""
        fields: list[str | int | bytes] = []
        for index, start, end, window in forgotten:
            charge = charges[index]
            used = await charge.find_used(int(start), int(end)) if charge.find_used is not None else 0
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

    def settle_now(self, settlement: Settlement) -> bool:
        return False

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
        uses = [
            CounterUse(counter.decode(), unit.decode(), int(used), int(held), float(opens))
            for counter, unit, used, held, opens in rows
        ]
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


def _read_text(value: str | bytes) -> str:
    return value if isinstance(value, str) else value.decode()


def describe_redis(url: str) -> str:
    """The server and its database, without user and password."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def _describe_error(error: Exception) -> str:
    """What went wrong. The texts of redis-py name the server, but no password."""
    text = str(error) or type(error).__name__
    return text if len(text) < 300 else f"{text[:300]}…"
