"""One client's call on its way through the gateway, and the values that pass between its steps."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Protocol

from msgspec import Struct

from toolwire.exchange import Exchange
from toolwire.gateway.access import Visitor
from toolwire.gateway.bodies import Peek, has_tools
from toolwire.gateway.lines import Line, State
from toolwire.gateway.telemetry.record import Record
from toolwire.gateway.upstream.faults import Fault
from toolwire.gateway.upstream.waiting import Sink
from toolwire.ir import Call as ToolCall
from toolwire.ir import Failure, Result, Tool, Usage
from toolwire.keeping import Tap
from toolwire.loss import Ledger
from toolwire.room import Room
from toolwire.rounds import Rounds
from toolwire.wire import Json, Object


class Keeper(Protocol):
    """Whoever keeps an answer for a client to go on from."""

    def tap(self) -> Tap: ...

    async def keep(self, response: Object) -> Mapping[str, Json] | None: ...

    async def whole(self, reply: Reply) -> Reply: ...


class Sealing(Protocol):
    """Whoever keeps seals for a client that cannot carry them."""

    missed: bool

    async def recall(self, ids: Sequence[str]) -> Mapping[str, bytes] | Failure: ...

    async def keep(self, kept: Mapping[str, bytes]) -> None: ...


class Tooling(Protocol):
    """Whoever has tools for the model besides the client's."""

    tools: tuple[Tool, ...]
    substitutes: Mapping[str, Tool]
    """Those that stand in for a provider's own tools, by what they stand in for."""
    rounds: int
    """How often in one answer they may be called."""

    def shows(self, name: str) -> str:
        """Does the client see calls of this tool? "hidden": no."""

    async def run(self, calls: Sequence[ToolCall]) -> Sequence[Result]:
        """One result for each call. A tool that fails has one that says so."""


class Call:
    """What a client asks for. Most of what it can be is seldom, so that it stands here once for all."""

    body = b""
    peek = Peek()
    model = ""
    stream = False
    framing = ""
    seed = ""
    """What ids of its answer are made from; "" for its request id."""
    keeper: Keeper | None = None
    """Keeps its answer, where that is wanted."""
    sealing: Sealing | None = None
    """Keeps the seals that the client's protocol has no slot for, and what happened behind its back."""
    tooling: Tooling | None = None
    """Has further tools for the model."""
    without_seals = False
    """Has a provider refused a seal in it?"""
    most_tokens: int | None = None
    """The most that the model at hand can give, where its provider has said so."""
    unseen = False
    """May earlier answers have calls that the client did not see?"""

    def __init__(
        self,
        state: State,
        client: Room,
        visitor: Visitor,
        record: Record,
        headers: Mapping[str, str],
        clock: Callable[[], float],
    ) -> None:
        self.state = state
        self.client = client
        self.visitor = visitor
        self.record = record
        self.headers = headers
        """The client's headers, in lower case."""
        self.clock = clock
        """The event loop's."""
        self.now = time.time()

    def has_tools(self) -> bool:
        """Does it declare tools?"""
        return has_tools(self.peek, self.body)

    @property
    def cancels(self) -> bool:
        """Does a client that leaves cancel it?"""
        return self.state.config.server.on_client_gone == "cancel"


class Reply(Struct, frozen=True):
    """A whole answer for the client."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Refusal(Struct, frozen=True):
    """A provider that gave no answer: why, what the client would be told, and whether to try on."""

    failure: Failure
    reply: Reply
    again: bool = False
    """May the same provider do better in a moment?"""
    onward: bool = False
    """May another provider do better?"""


class Source(Protocol):
    """An answer as it comes in: from a provider, or from the embedded model."""

    status: int
    headers: dict[str, str]

    async def read(self, limit: int) -> bytes | Fault: ...

    async def chunk(self) -> bytes | Fault: ...

    async def pour(self, sink: Sink) -> bytes | Fault | None: ...

    def abort(self) -> None: ...


class Streaming(Protocol):
    """A stream on its way to the client, translated or passing."""

    @property
    def usage(self) -> Usage | None: ...

    @property
    def finishes(self) -> tuple[str, ...]: ...

    @property
    def failure(self) -> Failure | None: ...

    @property
    def begun(self) -> bool: ...

    @property
    def ended(self) -> bool: ...

    @property
    def called(self) -> bool: ...

    rounds: Rounds | None

    @property
    def kept(self) -> Mapping[str, bytes]: ...

    @property
    def paused(self) -> bool: ...

    @property
    def ledger(self) -> Ledger | None: ...

    def feed(self, data: bytes) -> bytes: ...

    def close(self) -> bytes: ...

    def fail(self, failure: Failure) -> bytes: ...

    def settle(self, results: tuple[Result, ...]) -> None: ...


class Prepared:
    """A request as a provider gets it."""

    ledger: Ledger | None = None
    codes: tuple[str, ...] = ()
    """What its translation lost or changed."""
    passed = True
    """Are these the client's own bytes?"""

    def __init__(
        self, line: Line, body: bytes, exchange: Exchange | Callable[[], Exchange], ledger: Ledger | None = None
    ) -> None:
        self.line = line
        self.body = body
        if isinstance(exchange, Exchange):
            self.passed = False
            self.exchange = exchange
        else:
            self._make = exchange
        if ledger is not None:
            self.ledger = ledger
            self.codes = ledger.codes

    @cached_property
    def exchange(self) -> Exchange:
        """Made only when needed where the bytes pass: mostly they pass back, too."""
        return self._make()


class Flow:
    """A stream that has begun: what came so far, and where the rest comes from."""

    __slots__ = ("headers", "pending", "prepared", "source", "source_ended", "stream", "waiting")

    def __init__(self, prepared: Prepared, source: Source, stream: Streaming, headers: Mapping[str, str]) -> None:
        self.prepared = prepared
        self.source = source
        self.stream = stream
        self.headers = headers
        self.pending: list[bytes] = []
        self.source_ended = False
        self.waiting: asyncio.Future[bytes | Fault] | None = None
        """A chunk that is already waited for."""
