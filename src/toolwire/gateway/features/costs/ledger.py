"""The ledger: one row for each call of a provider, and their sums by hour, in the store.

No request waits for it. Rows are written in batches, in the background. Those that a store which is down cannot take
wait in memory; what does not fit there is dropped, counted and logged.
"""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import lru_cache
from itertools import count, islice
from time import monotonic
from typing import Any, ClassVar, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from toolwire.core.ir import Usage
from toolwire.gateway.features.costs.settings import CostSettings
from toolwire.gateway.http.redact import safe_name
from toolwire.gateway.models.amounts import to_units
from toolwire.gateway.settings.config import StoreSettings
from toolwire.gateway.store.store import Rows, Store, StoreDown
from toolwire.gateway.telemetry.record import CallUsage, ExchangeRecord
from toolwire.gateway.telemetry.running import RunningExchange

HOUR = 3600
DAY = 24 * HOUR
MAX_NAME = 90
"""Characters of a name in the ledger. Clients choose some of them, and PostgreSQL takes no longer keys."""
DIMENSIONS = ("key", "team", "agent", "subagent", "provider", "account", "model")
"""What the sums of an hour are kept for."""
GROUPS = (*DIMENSIONS, "session", "operation", "hour", "day", "month")
"""What costs can be shown by."""
TIME_STEPS = {"hour": HOUR, "day": DAY, "month": DAY}
"""The steps of time by which a store groups, in UTC; `fold_months` makes months of days."""
ROW_GROUPS = frozenset({"session", "operation"})
"""Groups for which there are no sums by hour: the rows are read."""
NUMBERS = (
    "calls", "unknown_calls", "estimated_calls", "unpriced_calls", "reported_calls",
    "input", "output", "cache_read", "cache_write", "reasoning", "cost", "reported_cost",
)  # fmt: skip
"""What is summed, each a field of `UsageSum`."""


class LedgerRow(Struct, frozen=True, gc=False):
    """One call of a provider. Contains names and numbers only."""

    id: str
    """Of this row alone, so that a batch that is written again is not counted twice."""
    at: float
    """Unix time of the start of its exchange."""
    request_id: str
    operation: str
    session: str
    key: str
    team: str
    agent: str
    subagent: str
    provider: str
    account: str
    model: str
    input: int | None
    """None if the usage is unknown."""
    output: int | None
    cache_read: int | None
    cache_write: int | None
    reasoning: int | None
    cost: int | None
    """In 10⁻¹² USD; None if it is unknown."""
    reported_cost: int | None
    """In 10⁻¹² USD, as the provider says it; None if it does not."""
    estimated: bool
    running: bool = False
    """Has the call not ended yet? It counts as one of unknown usage. So it stays if its gateway is killed."""


class UsageSum(Struct, frozen=True, gc=False, kw_only=True):
    """What the calls of one group have used."""

    group: tuple[str | int, ...] = ()
    """A value for each group that was asked for; times are Unix times of their start."""
    calls: int = 0
    unknown_calls: int = 0
    """Calls whose usage is not known."""
    estimated_calls: int = 0
    unpriced_calls: int = 0
    """Calls whose cost is not known: `cost` does not contain them."""
    reported_calls: int = 0
    """Calls whose provider has said what they cost."""
    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    reasoning: int = 0
    cost: int = 0
    """In 10⁻¹² USD."""
    reported_cost: int = 0

    def __add__(self, other: UsageSum) -> UsageSum:
        """Both together, in the group of the first."""
        return UsageSum(group=self.group, **{name: getattr(self, name) + getattr(other, name) for name in NUMBERS})


class LedgerQuery(Struct, frozen=True, kw_only=True):
    """Which sums to read."""

    by: tuple[str, ...]
    """Of `GROUPS`."""
    since: float
    until: float
    only: tuple[tuple[str, str], ...] = ()
    """Pairs of a dimension and the value that rows must have."""

    @property
    def needs_rows(self) -> bool:
        return not ROW_GROUPS.isdisjoint((*self.by, *(name for name, _ in self.only)))


MAX_ROWS = 2_000_000
"""Rows in a store without a limit, of older ones only the sums are kept; and sums there."""
MAX_SHARE = 0.25
"""The part of the store's `max_bytes` for rows, and for sums: clients choose some of the names for which there are
sums, so these have to be limited, too."""
ROW_SIZE = 400
"""About how many bytes a row takes, or a sum."""


ROW_NUMBERS = {
    "calls": "1",
    "unknown_calls": "CAST(input IS NULL AS integer)",
    "estimated_calls": "CAST(estimated AS integer)",
    "unpriced_calls": "CAST(cost IS NULL AS integer)",
    "reported_calls": "CAST(reported_cost IS NOT NULL AS integer)",
}
"""What a row adds to each number, in SQL; to the others, the column with the name."""
AMOUNTS = ("cost", "reported_cost")
SPLIT = 10**9
"""Sums of amounts are read in two parts: a database may have numbers of 64 bits, which is nine million dollars."""


class LedgerTables(ABC):
    """The ledger in a store. Its tables are made by the migrations there."""

    sum_parts: ClassVar[tuple[str, str]]
    """The two parts of the sum of an amount, in SQL: in billions, and the rest."""
    whole_number: ClassVar[str]
    """A time without its fraction, in SQL."""

    def __init__(self, store: Store) -> None:
        self._store = store

    @abstractmethod
    async def add_rows(self, rows: Sequence[LedgerRow], ended: Sequence[str] = ()) -> StoreDown | None:
        """Write rows, and add them to the sums of their hours, all or none. Rows that are there already do not count
        again. `ended` are the ids of calls that do not run any more: their rows are replaced by those of the same id,
        or removed."""

    @abstractmethod
    async def remove_old(
        self, rows_before: float, hours_before: float, max_rows: int, max_sums: int = MAX_ROWS
    ) -> int | StoreDown:
        """Remove rows and sums of hours before these times, and the oldest rows and sums if there are more than
        `max_rows` and `max_sums`. Returns how many rows were removed."""

    async def read_sums(self, query: LedgerQuery) -> list[UsageSum] | StoreDown:
        """The sums of each group. Times are grouped by hour or day; `fold_months` does the rest."""
        statement = self._write_query(query)
        since = query.since if query.needs_rows else query.since // HOUR * HOUR
        values = (float(since), float(query.until), *(value for _, value in query.only))

        async def work(rows: Rows, _now: float) -> list[UsageSum]:
            return [_read_sum(query, row) for row in await rows.fetch(statement, *values)]

        return await self._store.run_sql(work, is_long=True)

    def _write_query(self, query: LedgerQuery) -> str:
        table, time = ("toolwire_usage_rows", "at") if query.needs_rows else ("toolwire_usage_hours", "hour")
        steps = {name: f"{self.whole_number.format(time)} / {step} * {step}" for name, step in TIME_STEPS.items()}
        groups = [steps.get(name, name) for name in query.by]
        sums: list[str] = []
        for name in NUMBERS:
            number = ROW_NUMBERS.get(name, name) if query.needs_rows else name
            parts = self.sum_parts if name in AMOUNTS else ("coalesce(sum({}), 0)",)
            sums += [part.format(number) for part in parts]
        only = [f"{name} = ${number}" for number, (name, _) in enumerate(query.only, 3)]
        where = " AND ".join([f"{time} >= CAST($1 AS float8)", f"{time} < CAST($2 AS float8)", *only])
        group_by = f" GROUP BY {', '.join(map(str, range(1, len(groups) + 1)))}" if groups else ""
        return f"SELECT {', '.join([*groups, *sums])} FROM {table} WHERE {where}{group_by}"


def _read_sum(query: LedgerQuery, row: Sequence[Any]) -> UsageSum:
    cells = iter(row[len(query.by) :])
    numbers: dict[str, int] = {}
    for name in NUMBERS:
        value = int(next(cells))
        numbers[name] = value * SPLIT + int(next(cells)) if name in AMOUNTS else value
    return UsageSum(group=tuple(row[: len(query.by)]), **numbers)


async def read_used(
    tables: LedgerTables, by: tuple[str, ...], since: int, until: int
) -> Sequence[UsageSum] | StoreDown:
    """What was used between two times, for limits whose counters were lost."""
    return await tables.read_sums(LedgerQuery(by=by, since=since, until=until))


def fold_months(query: LedgerQuery, sums: Iterable[UsageSum]) -> list[UsageSum]:
    """The sums with months in place of days, where months were asked for."""
    if "month" not in query.by:
        return list(sums)
    place = query.by.index("month")
    folded: dict[tuple[str | int, ...], UsageSum] = {}
    for one in sums:
        day = datetime.fromtimestamp(int(one.group[place]), UTC)
        month = int(datetime(day.year, day.month, 1, tzinfo=UTC).timestamp())
        moved = replace(one, group=(*one.group[:place], month, *one.group[place + 1 :]))
        folded[moved.group] = folded[moved.group] + moved if moved.group in folded else moved
    return list(folded.values())


MAX_COUNT = 10**12
"""Larger counts of a provider are nonsense, and their sums would not fit."""
_is_count = range(MAX_COUNT + 1).__contains__
Counts: TypeAlias = tuple[int | None, int | None, int | None, int | None, int | None]
Names: TypeAlias = tuple[str, str, str, str, str, str, str]
_NO_COUNTS: Counts = (None, None, None, None, None)


def make_row(id: str, record: ExchangeRecord, call: CallUsage) -> LedgerRow:
    usage, cost, reported, client = call.usage, call.cost, call.reported_cost, record.client
    return LedgerRow(
        id,
        record.started_at,
        record.request_id[:MAX_NAME],
        record.asked.operation,
        record.asked.session,
        *_clean_names(
            client.key_name, client.team, client.agent, client.subagent, call.provider, call.account, call.model
        ),
        *(_NO_COUNTS if usage is None else _read_counts(usage)),
        None if cost is None else to_units(cost),
        None if reported is None else to_units(reported),
        call.is_estimated,
    )


@lru_cache(1024)
def _clean_names(*names: str) -> Names:
    """Names without credentials and control characters; the same ones come again and again. A session is a digest."""
    key, team, agent, subagent, provider, account, model = (safe_name(name)[:MAX_NAME] for name in names)
    return key, team, agent, subagent, provider, account, model


def _read_counts(usage: Usage) -> Counts:
    counts = (usage.input, usage.output, usage.cache_read, usage.cache_write, usage.reasoning)
    if all(map(_is_count, filter(None, counts))):
        return counts
    return tuple(count and min(max(count, 0), MAX_COUNT) for count in counts)  # type: ignore[return-value]


async def sweep_ledger(tables: LedgerTables, costs: CostSettings, store: StoreSettings) -> int | StoreDown:
    """Remove rows and sums that are too old, and those that take too much of the store. Returns how many rows. It is
    done before entries are removed from the store, or these would make room for rows that nobody keeps."""
    now = time.time()
    rows_before, hours_before = (now - ttl if ttl else 0.0 for ttl in (costs.row_ttl, costs.ttl))
    max_rows = int(store.max_bytes * MAX_SHARE / ROW_SIZE) if store.max_bytes else MAX_ROWS
    return await tables.remove_old(rows_before, hours_before, max_rows, max_rows)


# --- writing in the background ----------------------------------------------------------------------------------------

MAX_QUEUED = 20_000
"""Rows that wait for the store, in one process: about 20 MB."""
BATCH_SIZE = 500
WRITE_DELAY = 0.05
"""Seconds for which rows are collected. A gateway that is killed loses those of this time."""
START_DELAY = 0.1
"""Seconds after which a call that runs is written, too. A shorter one is written once."""
FIRST_RETRY_SECONDS, MAX_RETRY_SECONDS = 1.0, 30.0


class LedgerWriter:
    """Writes the rows of one process."""

    def __init__(
        self,
        tables: LedgerTables,
        writer_id: str,
        log_event: Callable[..., None],
        count_dropped: Callable[[int], None],
    ) -> None:
        self.tables, self._writer_id = tables, writer_id
        self._log_event, self._count_dropped = log_event, count_dropped
        self._numbers = count(1)
        self.queue: dict[str, LedgerRow] = {}
        """Rows to write, by id; the one of a call that has ended replaces that of its start."""
        self._started: deque[tuple[float, RunningExchange, CallUsage]] = deque()
        """Calls that have begun, with the time when they are written if they still run then."""
        self._noted: set[str] = set()
        """Ids of calls that were written, or may have been, while they ran."""
        self._removed: dict[str, None] = {}
        """Those of them that have used nothing."""
        self.task: asyncio.Task[None] | None = None
        self._wake = asyncio.Event()
        self._is_closing = False
        self._down_reason = ""
        self._dropped = 0
        """Rows that were dropped since the store went down."""

    def start_call(self, running: RunningExchange, call: CallUsage) -> None:
        """A call was sent. If it lasts, it is written before it ends."""
        call.row_id = f"{self._writer_id}-{next(self._numbers)}"
        self._started.append((monotonic() + START_DELAY, running, call))
        if self.task is None:
            self._start_writing()

    def end_call(self, record: ExchangeRecord, call: CallUsage) -> None:
        id = call.row_id or f"{self._writer_id}-{next(self._numbers)}"
        if len(self.queue) >= MAX_QUEUED and id not in self.queue:
            self._drop(1)
        else:
            self.queue[id] = make_row(id, record, call)
        if self.task is None:
            self._start_writing()

    def drop_call(self, call: CallUsage) -> None:
        """A call has ended that has used nothing: it is not kept."""
        self.queue.pop(call.row_id, None)
        if call.row_id in self._noted:
            self._removed[call.row_id] = None
            if self.task is None:
                self._start_writing()

    def _start_writing(self) -> None:
        if not self._is_closing:
            try:
                loop = asyncio.get_running_loop()
            except RuntimeError:
                return  # a reload in another thread logs, too; the next records of the loop start the writing
            self.task = loop.create_task(self._write())

    async def _write(self) -> None:
        """Write until nothing waits."""
        try:
            delay = WRITE_DELAY
            while self.queue or self._removed or (self._started and not self._is_closing):
                if not self._is_closing:
                    with suppress(TimeoutError):  # sooner if the gateway stops
                        await asyncio.wait_for(self._wake.wait(), delay)
                    self._queue_running()
                is_written = await self._write_batch()
                if is_written:
                    delay = WRITE_DELAY if len(self.queue) < BATCH_SIZE else 0.0
                elif self._is_closing:
                    return
                else:
                    delay = min(2 * delay, MAX_RETRY_SECONDS) if delay >= FIRST_RETRY_SECONDS else FIRST_RETRY_SECONDS
        finally:
            self.task = None

    def _queue_running(self) -> None:
        """Queue the calls that have been running for a while."""
        now = monotonic()
        while self._started and self._started[0][0] <= now:
            _, running, call = self._started.popleft()
            if running.open_call is call and len(self.queue) < MAX_QUEUED:
                self.queue[call.row_id] = replace(make_row(call.row_id, running.record, call), running=True)
                self._noted.add(call.row_id)

    async def _write_batch(self) -> bool:
        batch = list(islice(self.queue.values(), BATCH_SIZE))
        removed = list(islice(self._removed, BATCH_SIZE))
        ended = [*removed, *(row.id for row in batch if not row.running and row.id in self._noted)]
        if not batch and not ended:
            return True
        down = await (self.tables.add_rows(batch, ended) if ended else self.tables.add_rows(batch))
        if down is not None:
            if not self._down_reason:
                self._down_reason = down.reason
                what = f"costs are not written until the store is back: {down.reason}"
                self._log_event("ledger_unavailable", level="warn", rows=len(self.queue), message=what)
            return False
        for row in batch:
            if self.queue.get(row.id) is row:  # its call may have ended meanwhile
                del self.queue[row.id]
        for id in removed:
            del self._removed[id]
        self._noted.difference_update(ended)
        if self._down_reason:
            what = f"costs are written again; rows that are missing: {self._dropped}"
            self._log_event("ledger_available", rows=len(batch), dropped=self._dropped, message=what)
            self._down_reason, self._dropped = "", 0
        return True

    def _drop(self, rows: int) -> None:
        if not self._dropped:
            what = f"too many rows wait for the store ({MAX_QUEUED:,}): costs are missing in the ledger from now on"
            hint = "the log and the metrics have them; repair the store"
            self._log_event("ledger_rows_dropped", level="error", message=what, hint=hint)
        self._dropped += rows
        self._count_dropped(rows)

    async def close(self) -> None:
        """Write what waits. If the store is down, it is lost: the log says how many rows."""
        self._is_closing = True
        self._wake.set()
        if self.task is not None:
            await self.task
        if self.queue or self._removed:
            await self._write()
        if lost := len(self.queue):
            self.queue.clear()
            self._count_dropped(lost)
            what = f"the gateway stops while the store is down: the ledger lacks {lost:,} calls: {self._down_reason}"
            self._log_event("ledger_rows_dropped", level="error", rows=lost, message=what)
