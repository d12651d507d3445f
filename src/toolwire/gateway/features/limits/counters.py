"""The counters of limits: what was used in the current minute, hour, day or month, and what running requests hold.

A request reserves an estimate before it is sent, on all of its counters or on none, and settles what it has really used
when it has ended. A reservation has a lease, which its gateway renews while the request runs: a gateway that was killed
gives it back when the lease ends. A request counts in the window in which it began. Windows are those of UTC, by the
clock of the store, so that gateways whose clocks differ agree on them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Literal, Protocol, TypeAlias, final, runtime_checkable

from msgspec import Struct

from toolwire.gateway.store.store import StoreDown

Unit: TypeAlias = Literal["minute", "hour", "day", "month", "none"]
"""How long a counter counts. `none` is for requests at the same time, which have no window."""
UNIT_SECONDS: Mapping[Unit, int] = {"minute": 60, "hour": 3600, "day": 86400}
"""The units whose windows all have the same length."""
NO_END = 253_402_300_799
"""The end of a window without one: the last second of the year 9999."""
KEPT_SECONDS = 900
"""How long a reservation that was given back is remembered, so that a late settlement still counts. Settlements are
tried for less time than this."""


def find_window(unit: Unit, now: float) -> tuple[int, int]:
    """The start and the end of the current window, in seconds since 1970."""
    if unit == "none":
        return 0, NO_END
    if unit == "month":
        month = datetime.fromtimestamp(now, UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
        following = month.replace(year=month.year + month.month // 12, month=month.month % 12 + 1)
        return int(month.timestamp()), int(following.timestamp())
    seconds = UNIT_SECONDS[unit]
    start = int(now // seconds) * seconds
    return start, start + seconds


class Charge(Struct, frozen=True, gc=False):
    """What one request adds to one counter."""

    counter: str
    """The name of the counter, which belongs to one unit."""
    unit: Unit
    amount: int
    limit: int = -1
    """The most that the counter may reach; -1 for a counter that refuses nothing."""
    find_used: Callable[[int, int], Awaitable[int | StoreDown]] | None = None
    """Finds what was used between two times elsewhere (in the ledger), if that can be known: for a server of counters
    that may have forgotten it."""


class CounterState(Struct, frozen=True, gc=False):
    """A counter as a reservation found it."""

    taken: int
    """What was used, and what other requests held."""
    opens_after: float
    """Seconds until its window ends."""


@final
class Reserved(Struct, frozen=True, gc=False):
    """The result of a reservation: the counters in the order of the charges. If one refuses, nothing is reserved."""

    states: tuple[CounterState, ...]
    refused: tuple[int, ...] = ()
    """The indexes of the charges that did not fit."""


class Settlement(Struct, frozen=True, gc=False):
    """What a request with a reservation has really used, in the order of its charges."""

    id: str
    amounts: tuple[int, ...]


class CounterUse(Struct, frozen=True):
    """A counter in its current window, for people."""

    counter: str
    unit: str
    used: int
    held: int
    opens_after: float


class Counters(Protocol):
    """Every operation is atomic, and returns `StoreDown` instead of raising."""

    async def reserve(self, id: str, charges: Sequence[Charge], lease: float) -> Reserved | StoreDown:
        """Reserve all charges for `lease` seconds, or nothing. Ids are never used twice."""

    def settle_now(self, settlement: Settlement) -> bool:
        """Settle without waiting, where the counters are in this process; False where `settle` has to be awaited."""
        return False

    async def settle(self, settlements: Sequence[Settlement]) -> StoreDown | None:
        """Replace what these reservations hold by what was used. A reservation that is not known, because it was
        settled already, changes nothing: so this can be repeated."""

    async def renew(self, ids: Sequence[str], lease: float) -> StoreDown | None:
        """Let these reservations last for `lease` seconds from now, also if they had ended."""

    async def list_counters(self) -> list[CounterUse] | StoreDown:
        """All counters whose window is now, in the order of their names."""

    async def sweep(self) -> StoreDown | None:
        """Remove windows and reservations that no longer matter."""

    async def close(self) -> None: ...


Persistence: TypeAlias = Literal["all", "snapshots", "nothing", "unknown"]
"""What a server of counters keeps when it is restarted: everything, what it had some time ago, or nothing."""


@runtime_checkable
class ForgetfulCounters(Counters, Protocol):
    """Counters that may be forgotten when their server is restarted."""

    async def find_persistence(self) -> Persistence | StoreDown:
        """Managed servers may refuse to say it."""
