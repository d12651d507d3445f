"""A credential that ends: got when it is needed, shared by all requests of a process, and renewed before its end.

One request for it is under way at a time, whoever waits (a herd of them stopped a proxy for 20 seconds:
BerriAI/litellm#26024). The old credential serves while it is valid, also where a new one cannot be had."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable
from random import random
from typing import Generic, TypeVar

from msgspec import Struct

from toolwire.gateway.http.headers import Headers
from toolwire.gateway.http.redact import hide_secrets, printable_text, redact_start

RENEW_SECONDS = 300.0
"""Before its end a credential is renewed, in the background; before half of its life, if that is shorter."""
SAFE_SECONDS = 10.0
"""One that ends sooner is not used any more: it could end on the way."""
FIRST_WAIT, MAX_WAIT = 1.0, 30.0
"""Seconds after a failure until the source is asked again, doubled after each further failure."""
FETCH_SECONDS = 30.0
"""That a request waits for a source; no longer than until the source was asked so long ago."""
STUCK_SECONDS = 300.0
"""A source that has not answered by then, such as a program that waits for somebody, is asked again."""
DROP_SECONDS = 30.0
"""A credential that a cloud refuses is dropped at most so often: a refusal can have other reasons."""

Value = TypeVar("Value")


class Lease(Struct, Generic[Value], frozen=True):
    """A credential and its end."""

    value: Value
    expires_at: float = math.inf
    """Unix time."""
    origin: str = ""
    """What a chain of sources has found, for people: `sso`, `service_account`."""
    has_end: bool = True
    """False if nobody says when it ends: then `expires_at` is when the source is asked again, and this one serves until
    that has another one."""

    def __repr__(self) -> str:
        return f"Lease(…, {self.expires_at})"


DEFAULT_SECONDS = 300.0
"""After these a credential is asked for again whose end nobody says."""


def make_lease(
    value: Value, ends_at: float | None, now: float, origin: str = "", seconds: float = DEFAULT_SECONDS
) -> Lease[Value]:
    """A credential whose end may not be known: then it is asked for again after so many seconds."""
    return Lease(value, now + seconds if ends_at is None else ends_at, origin, ends_at is not None)


class BearerToken(Struct, frozen=True):
    """A token, and what is sent with it."""

    token: str
    headers: Headers = ()

    def __repr__(self) -> str:
        return "BearerToken(…)"


class CredentialProblem(Struct, frozen=True):
    """Why a source gives no credential, and what to do. Never contains a secret."""

    source: str
    """What was asked, for people: "the profile `work` of AWS"."""
    problem: str
    hint: str = ""
    is_transient: bool = False
    """May the source answer in a moment?"""

    def describe(self) -> str:
        # The words around the colon are none that the log takes for the name of a secret.
        return f"no credentials from {self.source}: {self.problem}"

    def __str__(self) -> str:
        return f"{self.describe()}{f' ({self.hint})' if self.hint else ''}"


def clean_detail(text: str, secrets: tuple[str, ...] = ()) -> str:
    """What a source says in an error: without these secrets and without what looks like one, and safe to print."""
    return printable_text(redact_start(" ".join(hide_secrets(text, secrets).split())), 300)


def describe_time(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(at)) if 0 <= at < 1e11 else "an unknown time"


Fetch = Callable[[], Awaitable[Lease[Value] | CredentialProblem]]


class LeaseKeeper(Generic[Value]):
    """Keeps the credential of one source."""

    def __init__(
        self,
        source: str,
        fetch: Fetch[Value],
        now: Callable[[], float],
        report_error: Callable[[BaseException], None],
        on_change: Callable[[str, CredentialProblem | None], None] = lambda source, problem: None,
        jitter: Callable[[], float] = random,
    ) -> None:
        """`on_change` gets the source and why it fails now, or None when it gives credentials again."""
        self.source, self._on_change = source, on_change
        """For people; never a secret."""
        self._fetch, self._now, self._report_error, self._jitter = fetch, now, report_error, jitter
        self._lease: Lease[Value] | None = None
        self._renew_at = -math.inf
        self._flight: asyncio.Task[None] | None = None
        self._flight_began = -math.inf
        self._problem: CredentialProblem | None = None
        self._wait, self._retry_at = FIRST_WAIT, -math.inf
        self._dropped_at = -math.inf

    async def get(self, max_seconds: float = FETCH_SECONDS) -> Lease[Value] | CredentialProblem:
        """The credential. Waits only if there is none that is valid."""
        lease, now = self._lease, self._now()
        if lease is not None and now < lease.expires_at - SAFE_SECONDS:
            if now >= self._renew_at and now >= self._retry_at:
                self._start_flight()
            return lease
        if self._flight is not None or self._problem is None or now >= self._retry_at:
            flight = self._start_flight()
            waits = min(max_seconds, max(0.0, self._flight_began + FETCH_SECONDS - now), FETCH_SECONDS)
            # Whoever waits may leave: that must not end it for the others.
            await asyncio.wait([flight], timeout=waits)
            if not flight.done() and not self._has_valid_lease():
                seconds = max(0.0, self._now() - self._flight_began)
                return CredentialProblem(self.source, f"no answer within {seconds:.0f} seconds")
        if self._lease is not None and self._has_valid_lease():
            return self._lease
        return self._problem or CredentialProblem(self.source, "it gives none that is valid")

    def _has_valid_lease(self) -> bool:
        return self._lease is not None and (self._now() < self._lease.expires_at or not self._lease.has_end)

    def drop(self, lease: Lease[Value]) -> bool:
        """A cloud has refused this credential before its end. True if the next `get` gives another one."""
        if self._lease is not lease:
            return True  # it was renewed meanwhile
        if self._now() - self._dropped_at < DROP_SECONDS:
            return False
        self._dropped_at, self._lease, self._retry_at = self._now(), None, -math.inf
        return True

    def _start_flight(self) -> asyncio.Task[None]:
        if self._flight is None:
            self._flight_began = self._now()
            self._flight = asyncio.get_running_loop().create_task(self._renew())
            self._flight.add_done_callback(self._end_flight)
        return self._flight

    def _end_flight(self, flight: asyncio.Task[None]) -> None:
        self._flight = None
        error = None if flight.cancelled() else flight.exception()
        if error is not None:
            self._report_error(error)
            self._note_problem(
                CredentialProblem(self.source, f"it failed ({type(error).__name__}); the log says where")
            )

    async def _renew(self) -> None:
        try:
            async with asyncio.timeout(STUCK_SECONDS):
                found = await self._fetch()
        except TimeoutError:
            found = CredentialProblem(self.source, f"no answer within {STUCK_SECONDS:g} seconds")
        if isinstance(found, Lease) and found.expires_at <= self._now():
            ended = f"what it gives has ended already, at {describe_time(found.expires_at)}"
            found = CredentialProblem(self.source, ended, "check its end, and the clock of this machine")
        if isinstance(found, CredentialProblem):
            self._note_problem(found)
            return
        if self._problem is not None:
            self._on_change(self.source, None)
        self._lease, self._problem, self._wait, self._retry_at = found, None, FIRST_WAIT, -math.inf
        early = min(RENEW_SECONDS, (found.expires_at - self._now()) / 2)
        self._renew_at = found.expires_at - early * (1 - self._jitter() / 5)  # not all processes at once

    def _note_problem(self, problem: CredentialProblem) -> None:
        if self._problem is None:
            self._on_change(self.source, problem)
        self._problem, self._retry_at = problem, self._now() + self._wait
        self._wait = min(self._wait * 2, MAX_WAIT)

    async def close(self) -> None:
        if self._flight is not None:
            self._flight.cancel()
            await asyncio.wait([self._flight])
