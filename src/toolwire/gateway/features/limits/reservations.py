"""The reservations of one gateway: they are renewed while their requests run, and settled in the background.

No answer waits for a settlement. While the store is down, settlements are kept and tried again, for a limited time and
in a limited number.
"""

from __future__ import annotations

import asyncio
import itertools
import secrets
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from time import monotonic
from typing import Literal, TypeVar

from toolwire.gateway.features.limits.counters import KEPT_SECONDS, Charge, Counters, Reserved, Settlement
from toolwire.gateway.store.store import StoreDown

MAX_UNSETTLED = 10_000
MAX_SETTLING_SECONDS = KEPT_SECONDS * 2 / 3
"""How long a settlement is tried. After `KEPT_SECONDS` its reservation would be forgotten."""
BATCH_SIZE = 500
RENEWALS_PER_LEASE = 3
RETRY_SECONDS = 0.5
SWEEP_SECONDS = 600.0
CLOSE_SECONDS = 2.0
"""How long a gateway that stops waits for its last settlements."""

_Result = TypeVar("_Result", Reserved, None)
ReservationProblem = Literal["counters_unavailable", "counters_available", "counters_busy", "settlement_lost"]


class Reservations:
    def __init__(
        self,
        counters: Counters,
        lease: float,
        report: Callable[[ReservationProblem, str], None] = lambda *_: None,
        on_renewal: Callable[[], None] = lambda: None,
    ) -> None:
        """`on_renewal` is called several times in each lease."""
        self.counters = counters
        self._lease, self._report, self._on_renewal = lease, report, on_renewal
        self._id_prefix, self._numbers = secrets.token_hex(8), itertools.count()
        self.open: dict[str, None] = {}
        """The reservations of requests that run."""
        self._unsettled: deque[tuple[Settlement, float]] = deque()
        """What has ended, with the time until which it is tried."""
        self._settling = asyncio.Lock()
        self._has_work = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._is_down = self._is_busy = False
        self._next_renewal = self._next_sweep = 0.0

    async def reserve(self, charges: Sequence[Charge]) -> tuple[str, Reserved] | StoreDown:
        """The id of a new reservation, and its result. The id counts only if no charge was refused."""
        id = f"{self._id_prefix}-{next(self._numbers):x}"
        try:
            return await self._reserve(id, charges)
        except asyncio.CancelledError:  # its client has left, and the counters may have reserved it already
            self.settle(id, (0,) * len(charges))
            raise

    async def _reserve(self, id: str, charges: Sequence[Charge]) -> tuple[str, Reserved] | StoreDown:
        result = self._note_result(await self.counters.reserve(id, charges, self._lease))
        if type(result) is Reserved and result.refused and (self._unsettled or self._settling.locked()):
            # What this gateway knows to be free already must not refuse a request.
            await self._settle_batch()
            result = self._note_result(await self.counters.reserve(id, charges, self._lease))
        if type(result) is StoreDown:  # `isinstance` is slow for a Struct that is not one
            return result
        if not result.refused:
            self.open[id] = None
            if self._task is None:
                self._task = asyncio.get_running_loop().create_task(self._work())
                self._task.add_done_callback(self._on_work_ended)
        return id, result

    def settle(self, id: str, amounts: tuple[int, ...]) -> None:
        """The request has ended, and has used this."""
        self.open.pop(id, None)
        settlement = Settlement(id, amounts)
        if self.counters.settle_now(settlement):
            return
        if len(self._unsettled) >= MAX_UNSETTLED:
            self._unsettled.popleft()
            self._report("settlement_lost", "more requests have ended than can be settled while the store is down")
        self._unsettled.append((settlement, monotonic() + MAX_SETTLING_SECONDS))
        self._has_work.set()

    async def close(self) -> None:
        """Settle what has ended, but do not wait long for a store that is down."""
        if self._task is not None:
            self._task.cancel()
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_SECONDS):
                while self._unsettled and await self._settle_batch():
                    pass
        await self.counters.close()

    async def _work(self) -> None:
        seconds = self._lease / RENEWALS_PER_LEASE
        self._next_renewal, self._next_sweep = monotonic() + seconds, monotonic() + SWEEP_SECONDS
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, self._next_renewal - monotonic())):
                    await self._has_work.wait()
            self._has_work.clear()
            while self._unsettled:
                if not await self._settle_batch():
                    await asyncio.sleep(RETRY_SECONDS)
                    break
            if self._unsettled:
                self._has_work.set()
            if monotonic() >= self._next_renewal:
                self._next_renewal = monotonic() + seconds
                self._is_busy = False
                self._on_renewal()
                await self._renew_all()
            if monotonic() >= self._next_sweep:
                self._next_sweep = monotonic() + SWEEP_SECONDS
                self._note_result(await self.counters.sweep())

    def _on_work_ended(self, task: asyncio.Task[None]) -> None:
        """A bug must not end the work for good: the next reservation starts it again."""
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._task = None
            self._report("counters_unavailable", f"internal error: {type(error).__name__}: {error}")

    async def _settle_batch(self) -> bool:
        async with self._settling:
            batch = [self._unsettled.popleft() for _ in range(min(BATCH_SIZE, len(self._unsettled)))]
            if not batch:
                return True
            try:
                result = await self.counters.settle([settlement for settlement, _ in batch])
            except BaseException:  # cancelled; it can be sent again
                self._unsettled.extendleft(reversed(batch))
                raise
            if self._note_result(result) is None:
                return True
            now = monotonic()
            kept = [(settlement, until) for settlement, until in batch if until > now]
            self._unsettled.extendleft(reversed(kept))
            if len(kept) < len(batch):
                lost = len(batch) - len(kept)
                self._report(
                    "settlement_lost", f"{lost} requests could not be counted: the store was down for too long"
                )
            return False

    async def _renew_all(self) -> None:
        ids = [*self.open, *(settlement.id for settlement, _ in self._unsettled)]
        for start in range(0, len(ids), BATCH_SIZE):
            if self._note_result(await self.counters.renew(ids[start : start + BATCH_SIZE], self._lease)) is not None:
                return

    def _note_result(self, result: _Result | StoreDown) -> _Result | StoreDown:
        """Report once that the counters cannot be reached, and once that they can be again; that they are too busy, a
        few times in each lease."""
        is_down = type(result) is StoreDown
        if type(result) is StoreDown and result.is_busy:
            if not self._is_busy:
                self._is_busy = True
                self._report("counters_busy", result.reason)
            return result
        if is_down != self._is_down:
            self._is_down = is_down
            self._report(
                "counters_unavailable" if is_down else "counters_available",
                result.reason if type(result) is StoreDown else "",
            )
        return result
