"""An exchange that has not ended yet: its record, what it holds until it ends, and where it is kept."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol, TypeAlias

from msgspec import Struct

from toolwire.core.codec import Codec, EndpointMatch
from toolwire.core.ir import Failure
from toolwire.gateway.telemetry.record import CacheReport, CallUsage, ExchangeRecord


class Holding(Protocol):
    """What a feature holds for an exchange until it ends, such as a reservation of its limits."""

    def end(self, record: ExchangeRecord) -> None:
        """The exchange has ended."""


class CallSink(Protocol):
    """Learns of every call of a provider that may cost something (`features/costs/ledger.py`)."""

    def start_call(self, running: RunningExchange, call: CallUsage) -> None: ...
    def end_call(self, record: ExchangeRecord, call: CallUsage) -> None: ...
    def drop_call(self, call: CallUsage) -> None:
        """It has used nothing."""


class PromptSink(Protocol):
    """Compares the requests to providers with those before them (`features/cache_watch/`)."""

    def keep_prompt(self, running: RunningExchange, protocol: str, body: bytes) -> None:
        """A provider answers this request, the call that runs."""

    def take_broken(self) -> list[tuple[ExchangeRecord, CacheReport]]:
        """The broken prefixes to warn of."""


StartSink: TypeAlias = Callable[[ExchangeRecord, Mapping[str, str]], None]
"""Gets an exchange that starts, with the client's headers."""
EndSink: TypeAlias = Callable[[Sequence[ExchangeRecord]], None]
"""Gets exchanges that have ended."""


class Sinks(Struct, frozen=True, eq=False):
    """What keeps something of an exchange. What is not configured is not here. Without any, an exchange leaves nothing
    behind but numbers without a name: how many requests run, and which providers failed."""

    started: tuple[StartSink, ...] = ()
    ended: tuple[EndSink, ...] = ()
    """In the order in which they get it."""
    calls: CallSink | None = None
    prompts: PromptSink | None = None
    wants_session: bool = False
    """Is the session of a request found? For the JSON log, the console, the ledger and the watch of the cache."""
    wants_bodies: bool = False
    """Are the bodies of the client set in a record? For the log."""
    wants_capture: bool = False
    """Is its traffic captured? For the console and for the debug log."""


RoundReserver: TypeAlias = "Callable[[RunningExchange, Codec, bytes], Awaitable[Failure | None]]"
"""Reserves what the next round of an answer will use: a request to a provider, with its codec. A failure if a limit
does not allow it."""


class RunningExchange(Struct, eq=False):
    record: ExchangeRecord
    sinks: Sinks = Sinks()
    trace_headers: tuple[tuple[str, str], ...] = ()
    """The headers that pass its trace on to providers."""
    open_call: CallUsage | None = None
    """The call of a provider that has not ended yet."""
    holdings: tuple[Holding, ...] = ()
    counts_use: bool = False
    """Is there a limit that must know what the provider has counted?"""
    reserve_round: RoundReserver | None = None
    """Set where `counts_use` is."""
    cloud_endpoint: EndpointMatch | None = None
    """What a client of a cloud has asked for: its errors are adapted to its SDK."""

    def take_over(self, other: RunningExchange) -> None:
        """Hold what another exchange holds, which ends before this one. If it has ended already, that is nothing."""
        self.holdings, other.holdings = other.holdings, ()
        self.counts_use, other.counts_use = other.counts_use, False
        self.reserve_round, other.reserve_round = other.reserve_round, None

    def end_holdings(self) -> None:
        held, self.holdings, self.counts_use = self.holdings, (), False
        for holding in held:
            holding.end(self.record)
