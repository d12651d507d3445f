"""Counters in the memory of one process. What was used is also written to a file, so that a restart does not forget it.

The file is written in the background, and only ever added to: two gateways with one file see what the other has used
when they write. What must be exact between several gateways belongs into PostgreSQL or Redis.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from math import inf

from msgspec import Struct

from toolwire.gateway.features.limits.counters import (
    KEPT_SECONDS,
    Charge,
    Counters,
    CounterState,
    CounterUse,
    Reserved,
    Settlement,
    find_window,
)
from toolwire.gateway.features.limits.counters_sqlite import CounterFile, UsedAmount
from toolwire.gateway.store.store import StoreDown

WRITE_DELAY = 0.1
"""Seconds that a used amount may wait, so that many are written at once: a transaction costs more than a request."""
WRITE_RETRY_SECONDS = 1.0


class _Cell(Struct, eq=False, gc=False):
    """One window of one counter."""

    counter: str
    unit: str
    start: int
    end: int
    used: int = 0
    held: int = 0
    unwritten: int = 0
    """The part of `used` that is not in the file yet."""
    is_loaded: bool = True


class _Hold(Struct, eq=False, gc=False):
    cells: Sequence[_Cell]
    charges: Sequence[Charge]
    expires: float
    is_released: bool = False


class MemoryCounters(Counters):
    def __init__(self, file: CounterFile | None = None, clock: Callable[[], float] = time.time) -> None:
        self._file, self._clock = file, clock
        self.cells: dict[str, _Cell] = {}
        self._holds: dict[str, _Hold] = {}
        self._next_expiry = inf
        """Until then no lease ends."""
        self._unwritten: dict[tuple[str, int], _Cell] = {}
        self.write_task: asyncio.Task[None] | None = None

    async def reserve(self, id: str, charges: Sequence[Charge], lease: float) -> Reserved | StoreDown:
        now = self._clock()
        if now >= self._next_expiry:
            self._release_expired(now)
        cells: list[_Cell] = []
        states: list[CounterState] = []
        refused: tuple[int, ...] = ()
        for charge in charges:
            cell = self.cells.get(charge.counter)
            if cell is None or not cell.start <= now < cell.end:
                cell = self._open_cell(charge, now)
            taken = cell.used + cell.held
            if taken + charge.amount > charge.limit >= 0:
                refused = (*refused, len(states))
            cells.append(cell)
            states.append(CounterState(taken, cell.end - now))
        if self._file is not None and (unknown := [cell for cell in cells if not cell.is_loaded]):
            failed = await self._load_cells(self._file, unknown)
            return failed if failed is not None else await self.reserve(id, charges, lease)
        if not refused:
            for charge, cell in zip(charges, cells, strict=True):
                cell.held += charge.amount
            self._holds[id] = _Hold(cells, charges, now + lease)
            self._next_expiry = min(self._next_expiry, now + lease)
        return Reserved(tuple(states), refused)

    def settle_now(self, settlement: Settlement) -> bool:
        hold = self._holds.pop(settlement.id, None)
        if hold is None:
            return True
        for cell, charge, amount in zip(hold.cells, hold.charges, settlement.amounts, strict=True):
            if not hold.is_released:
                cell.held -= charge.amount
            if amount:
                cell.used += amount
                if self._file is not None:
                    cell.unwritten += amount
                    self._unwritten[cell.counter, cell.start] = cell
        if self._unwritten and (self.write_task is None or self.write_task.done()):
            self.write_task = asyncio.get_running_loop().create_task(self._write_used())
        return True

    async def settle(self, settlements: Sequence[Settlement]) -> StoreDown | None:
        for settlement in settlements:
            self.settle_now(settlement)
        return None

    async def renew(self, ids: Sequence[str], lease: float) -> StoreDown | None:
        now = self._clock()
        self._release_expired(now)
        for id in ids:
            hold = self._holds.pop(id, None)
            if hold is None:
                continue
            if hold.is_released:
                self._hold_again(hold)
            hold.expires = now + lease
            self._next_expiry = min(self._next_expiry, hold.expires)
            self._holds[id] = hold  # at the end, so that those that expire first are first
        return None

    async def list_counters(self) -> list[CounterUse] | StoreDown:
        now = self._clock()
        self._release_expired(now)
        uses = [_describe_cell(cell, now) for _, cell in sorted(self.cells.items()) if cell.start <= now < cell.end]
        return [use for use in uses if use.used or use.held]

    async def sweep(self) -> StoreDown | None:
        now = self._clock()
        self._release_expired(now)
        self._holds = {
            id: hold for id, hold in self._holds.items() if not hold.is_released or hold.expires + KEPT_SECONDS > now
        }
        in_use = {cell.counter for hold in self._holds.values() for cell in hold.cells}
        self.cells = {
            name: cell for name, cell in self.cells.items() if cell.end > now and (cell.used or name in in_use)
        }
        return await self._file.sweep() if self._file is not None else None

    async def close(self) -> None:
        """Write what is not written yet."""
        if self.write_task is not None and not self.write_task.done():
            await asyncio.wait([self.write_task], timeout=WRITE_RETRY_SECONDS)
            self.write_task.cancel()
        if self._file is not None:
            await self._write_batch(self._file)
            await self._file.close()

    def _open_cell(self, charge: Charge, now: float) -> _Cell:
        """The cell of a window that has just begun."""
        is_loaded = self._file is None or charge.unit == "none"
        cell = _Cell(charge.counter, charge.unit, *find_window(charge.unit, now), is_loaded=is_loaded)
        self.cells[charge.counter] = cell
        return cell

    def _release_expired(self, now: float) -> None:
        """All leases are equally long, so those that end first are first."""
        self._next_expiry = inf
        for hold in self._holds.values():
            if hold.is_released:
                continue
            if hold.expires > now:
                self._next_expiry = hold.expires
                return
            hold.is_released = True
            for cell, charge in zip(hold.cells, hold.charges, strict=True):
                cell.held -= charge.amount

    @staticmethod
    def _hold_again(hold: _Hold) -> None:
        hold.is_released = False
        for cell, charge in zip(hold.cells, hold.charges, strict=True):
            cell.held += charge.amount

    # --- the file ---

    @staticmethod
    async def _load_cells(file: CounterFile, unknown: Sequence[_Cell]) -> StoreDown | None:
        """Read what was used before this process began, or by another one."""
        found = await file.read_used([(cell.counter, cell.start) for cell in unknown])
        if isinstance(found, StoreDown):
            return found
        for cell, used in zip(unknown, found, strict=True):
            if not cell.is_loaded:  # another request may have loaded it meanwhile
                cell.is_loaded = True
                cell.used += used
        return None

    async def _write_used(self) -> None:
        while self._unwritten and self._file is not None:
            await asyncio.sleep(WRITE_DELAY)
            if await self._write_batch(self._file) is not None:
                await asyncio.sleep(WRITE_RETRY_SECONDS)

    async def _write_batch(self, file: CounterFile) -> StoreDown | None:
        batch, self._unwritten = self._unwritten, {}
        amounts = [(cell, cell.unwritten) for cell in batch.values()]
        for cell in batch.values():
            cell.unwritten = 0
        totals = await file.add_used(
            [UsedAmount(cell.counter, cell.unit, cell.start, cell.end, amount) for cell, amount in amounts]
        )
        if isinstance(totals, StoreDown):
            for cell, amount in amounts:
                cell.unwritten += amount
            self._unwritten = {**batch, **self._unwritten}
            return totals
        for (cell, _), total in zip(amounts, totals, strict=True):
            lost = cell.used - cell.unwritten - total
            if lost > 0:  # somebody has removed the file: this process still knows what was used
                cell.unwritten += lost
                self._unwritten[cell.counter, cell.start] = cell
            else:
                cell.used = total + cell.unwritten  # with what other processes have used
        return None


def _describe_cell(cell: _Cell, now: float) -> CounterUse:
    return CounterUse(cell.counter, cell.unit, cell.used, cell.held, cell.end - now)
