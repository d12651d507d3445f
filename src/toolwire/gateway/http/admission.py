"""Admission control: who is served now, who waits, and who is told to come back later.

Every limit is checked before work is done. A client over a limit of its own key gets 429; if the gateway as a whole is
full, 503. Both come with `retry-after`, so that clients back off instead of asking at once again.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable

from msgspec import Struct

from toolwire.core.ir import Failure
from toolwire.gateway.http.memory import ANSWER_COPIES, MemoryBudget, default_budget, weigh_body
from toolwire.gateway.settings.config import ServerSettings

RETRY_AFTER = 2.0
"""Seconds after which a refused client may ask again."""
MAX_QUEUED = 1024
"""Requests that wait for their turn after `max_requests`. More would wait in vain."""
QUEUE_SECONDS = 10.0
KEY_SHARE, MIN_REQUESTS_OF_KEY = 0.5, 512
"""One client key may have this share of `max_requests` in flight, or so many if that is more: the other keys of a busy
gateway are still served."""
RETRY_SHARE, MIN_RETRIES = 0.2, 10
"""Of the requests in flight, the share that may be retries at one provider at the same time, and how many always may.
More would multiply the load on a provider that is failing."""


class Admission:
    """The limits of one process, and the counters that they are compared with."""

    def __init__(self, server: ServerSettings) -> None:
        self.memory = MemoryBudget(0)
        self.in_flight = 0
        self.retries: Counter[str] = Counter()
        """Retries that wait or run now, by provider."""
        self.by_key: dict[str, int] = {}
        self.queue: deque[asyncio.Future[None]] = deque()
        self.configure(server)

    def configure(self, server: ServerSettings) -> None:
        """Take the limits of a new configuration. What is in flight stays."""
        self.settings = server
        self.memory.set_limit((server.max_memory or default_budget()) // server.workers)

    # --- requests ---

    @property
    def is_full(self) -> bool:
        """Is there no place, not even in the queue?"""
        return self.in_flight >= self.settings.max_requests and len(self.queue) >= MAX_QUEUED

    def describe_full_queue(self) -> Failure:
        return overload_failure(f"the gateway has {self.in_flight:,} requests in flight, and its queue is full")

    def take_share(self, key_name: str) -> Failure | None:
        """Count a request for its key. A failure if the key has too many in flight already."""
        of_key = self.by_key.get(key_name, 0)
        limit = max(MIN_REQUESTS_OF_KEY, int(self.settings.max_requests * KEY_SHARE))
        if of_key < limit:
            self.by_key[key_name] = of_key + 1
            return None
        message = f"the key `{key_name}` has {limit:,} requests in flight, which is its limit; wait for some of them"
        return Failure("rate", message, 429, retry_after=RETRY_AFTER)

    async def wait_for_place(self, cancel_when_left: Callable[[bool], None]) -> Failure | None:
        """Wait in the queue, for a limited time. If the client leaves meanwhile, the task is cancelled."""
        if self.is_full:
            return self.describe_full_queue()
        place = asyncio.get_running_loop().create_future()
        self.queue.append(place)
        cancel_when_left(True)
        try:
            await asyncio.wait((place,), timeout=QUEUE_SECONDS)
        except asyncio.CancelledError:
            if place.done():  # it was given the place at the same moment
                self.leave()
            else:
                self.queue.remove(place)
            raise
        finally:
            cancel_when_left(False)
        if place.done():
            return None
        self.queue.remove(place)
        return overload_failure(f"the gateway had no place for {QUEUE_SECONDS:g} seconds")

    def leave(self) -> None:
        """A request has ended: its place goes to the one that has waited longest."""
        self.in_flight -= 1
        if self.queue and self.in_flight < self.settings.max_requests:
            self.in_flight += 1
            self.queue.popleft().set_result(None)

    # --- retries ---

    def start_retry(self, provider: str) -> bool:
        """May a failed request be repeated at this provider? Only a share of the requests in flight may, or retries
        would multiply the load on a provider that is down already. Other providers are not affected by that."""
        if self.retries[provider] >= max(MIN_RETRIES, self.in_flight * RETRY_SHARE):
            return False
        self.retries[provider] += 1
        return True

    def end_retry(self, provider: str) -> None:
        self.retries[provider] -= 1


class Ticket(Struct, eq=False):
    """What one request holds: a place among those in flight, and bytes of the memory budget."""

    _admission: Admission
    _key_name: str
    _held: int = 0
    _is_counted: bool = False
    _has_place: bool = False

    def check_early(self, size: int) -> Failure | None:
        """Refuse a request of which only the head is known, with a body of at least this size."""
        admission = self._admission
        if admission.is_full:
            return admission.describe_full_queue()
        return None if admission.memory.used + size <= admission.memory.request_limit else memory_failure()

    def hold(self, size: int) -> bool:
        """Hold at least so many bytes of the budget; False if there are not enough."""
        more = size - self._held
        memory = self._admission.memory
        if more > 0:
            if memory.used + more > memory.request_limit:
                return False
            memory.used += more
            self._held = size
        return True

    def add_answer(self, size: int) -> None:
        """An answer of this size was read whole; until now its connection had the memory for it."""
        if self._has_place:  # a response in the background outlives its request
            weight = size * ANSWER_COPIES
            self._admission.memory.used += weight
            self._held += weight

    def try_enter(self, body: bytes) -> bool:
        """Take a place for a request whose body has come, if that is possible at once."""
        admission = self._admission
        if self._has_place:
            return True
        if admission.in_flight >= admission.settings.max_requests or not self.hold(weigh_body(body)):
            return False
        if self._key_name and admission.take_share(self._key_name) is not None:
            return False
        admission.in_flight += 1
        self._is_counted = self._has_place = True
        return True

    async def enter(self, body: bytes, cancel_when_left: Callable[[bool], None]) -> Failure | None:
        """Take a place, or wait for one. A failure if the request cannot be served now."""
        admission = self._admission
        if self._has_place:
            return None
        weight = weigh_body(body)
        if weight > admission.memory.request_limit:
            message = f"the request needs about {weight / 1e6:,.0f} MB of memory, more than this gateway has for all"
            return Failure("too_large", f"{message}; send less, or raise server.max_memory", 413)
        if not self.hold(weight):
            return memory_failure()
        refused = admission.take_share(self._key_name) if self._key_name else None
        if refused is not None:
            return refused
        self._is_counted = True  # those in the queue count for their key, too
        if admission.in_flight < admission.settings.max_requests:
            admission.in_flight += 1
        elif (full := await admission.wait_for_place(cancel_when_left)) is not None:
            return full
        self._has_place = True
        return None

    def leave(self) -> None:
        admission = self._admission
        admission.memory.used -= self._held
        self._held = 0
        if self._is_counted:
            self._is_counted = False
            if self._key_name:
                admission.by_key[self._key_name] -= 1
                if not admission.by_key[self._key_name]:
                    del admission.by_key[self._key_name]
        if self._has_place:
            self._has_place = False
            admission.leave()


def overload_failure(what: str) -> Failure:
    return Failure("overloaded", f"{what}; try again in a moment", 503, retry_after=RETRY_AFTER)


def memory_failure() -> Failure:
    return overload_failure("the requests in flight need all of this gateway's memory (server.max_memory)")
