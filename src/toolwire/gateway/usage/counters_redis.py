"""Counters in Redis or Valkey, which several gateways share. Each operation is one Lua script, which runs as a whole.

Keys, all in one hash slot: `{toolwire}:c:COUNTER:START` is a window of a counter (a hash: `used`, `held`),
`{toolwire}:r:ID` a reservation (a list: `held` or `released`, then each counter's key and amount), and
`{toolwire}:leases` the ends of all leases (a sorted set). Amounts are exact up to 2^53, as Lua has only such numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import sha1
from time import monotonic
from typing import Any
from urllib.parse import urlsplit

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import NoScriptError, RedisError

from toolwire.gateway.store.store import StoreDown
from toolwire.gateway.usage.counters import KEPT_SECONDS, NO_END, Charge, CounterState, CounterUse, Reserved, Settlement

TIMEOUT = 2.0
"""Seconds to connect, and for an answer."""
RETRY_DELAY = 1.0
"""Seconds until a server that is down is asked again."""
MAX_CONNECTIONS = 64
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
local seconds = {{minute = 60, hour = 3600, day = 86400}}
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
local states, refused, reservation = {{}}, {{}}, {{'held'}}
for place = 4, #ARGV, 4 do
    local counter, unit = ARGV[place], ARGV[place + 1]
    local amount, limit = tonumber(ARGV[place + 2]), tonumber(ARGV[place + 3])
    local start, ends = find_window(unit)
    local window = prefix .. 'c:' .. counter .. ':' .. text(start)
    local found = redis.call('HMGET', window, 'used', 'held')
    local taken = tonumber(found[1] or 0) + tonumber(found[2] or 0)
    if is_known then taken = taken - amount end
    states[#states + 1] = text(taken)
    states[#states + 1] = string.format('%.6f', ends - now)
    if not is_known and limit >= 0 and taken + amount > limit then refused[#refused + 1] = (place - 4) / 4 end
    reservation[#reservation + 1] = window
    reservation[#reservation + 1] = text(amount)
end
if #refused == 0 and not is_known then
    for place = 4, #ARGV, 4 do
        local start, ends = find_window(ARGV[place + 1])
        local window = reservation[place / 2]
        redis.call('HSET', window, 'counter', ARGV[place], 'unit', ARGV[place + 1], 'ends', text(ends))
        redis.call('HINCRBY', window, 'held', ARGV[place + 2])
        local kept = ARGV[place + 1] == 'none' and {_BARE_KEPT_SECONDS} or math.ceil(ends - now) + {KEPT_SECONDS}
        redis.call('EXPIRE', window, kept)
    end
    redis.call('RPUSH', key, unpack(reservation))
    redis.call('EXPIRE', key, math.ceil(lease) + {KEPT_SECONDS})
    redis.call('ZADD', leases, string.format('%.6f', now + lease), id)
end
return {{states, refused}}
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


class RedisCounters:
    def __init__(self, url: str, *, clock: Callable[[], float] | None = None) -> None:
        """`clock` replaces that of the server, in tests."""
        self._url, self._clock = url.replace("valkey", "redis", 1) if url.startswith("valkey") else url, clock
        self._location = describe_redis(url)
        self._client: Redis | None = None
        self._down: StoreDown | None = None
        self._retry_at = 0.0

    async def reserve(self, id: str, charges: Sequence[Charge], lease: float) -> Reserved | StoreDown:
        fields = [field for charge in charges for field in (charge.counter, charge.unit, charge.amount, charge.limit)]
        found = await self._run_script(_RESERVE, lease, id, *fields)
        if isinstance(found, StoreDown):
            return found
        states, refused = found
        pairs = zip(states[::2], states[1::2], strict=True)
        return Reserved(tuple(CounterState(int(taken), float(opens)) for taken, opens in pairs), tuple(refused))

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
                max_connections=MAX_CONNECTIONS,
                retry=Retry(NoBackoff(), 1),
                client_name="toolwire",
            )
        return self._client

    async def _run_script(self, script: str, *values: str | float | bytes) -> Any:
        if self._down is not None and monotonic() < self._retry_at:
            return self._down
        client = self._open_client()
        arguments = ("" if self._clock is None else self._clock(), *values)
        try:
            try:
                found = await client.evalsha(_SCRIPT_NAMES[script], 1, _LEASES, *arguments)
            except NoScriptError:
                found = await client.eval(script, 1, _LEASES, *arguments)
        except _ERRORS as error:
            return self._note_failure(error)
        self._down = None
        return found

    def _note_failure(self, error: Exception) -> StoreDown:
        self._retry_at = monotonic() + RETRY_DELAY
        self._down = StoreDown(f"the counters in {self._location} cannot be used: {_describe_error(error)}")
        return self._down


_SCRIPT_NAMES = {script: sha1(script.encode()).hexdigest() for script in (_RESERVE, _SETTLE, _RENEW, _READ)}


def describe_redis(url: str) -> str:
    """The server and its database, without user and password."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def _describe_error(error: Exception) -> str:
    """What went wrong. The texts of redis-py name the server, but no password."""
    text = str(error) or type(error).__name__
    return text if len(text) < 300 else f"{text[:300]}…"
