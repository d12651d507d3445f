"""One client's call on its way through the gateway, and the values that pass between its steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, Protocol, TypeAlias, final

from msgspec import Struct

from toolwire.exchange import Exchange
from toolwire.gateway.access import Visitor
from toolwire.gateway.bodies import has_tools
from toolwire.gateway.known import Sent
from toolwire.gateway.lines import Line, State
from toolwire.gateway.telemetry.record import Record
from toolwire.gateway.upstream.faults import Fault
from toolwire.gateway.upstream.waiting import Sink
from toolwire.ir import Call as ToolCall
from toolwire.ir import Failure, Result, Tool, Usage
from toolwire.keeping import Peek, Tap
from toolwire.loss import Ledger
from toolwire.room import Room
from toolwire.rounds import Rounds
from toolwire.sse import Again
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


class Call(Struct, eq=False):
    """What a client asks for."""

    state: State
    client: Room
    visitor: Visitor
    record: Record
    headers: Mapping[str, str]
    """The client's headers, in lower case."""
    clock: Callable[[], float]
    """The event loop's."""
    sent: Sent
    """What providers got to see of the headers."""
    now: float
    body: bytes = b""
    peek: Peek = Peek()
    model: str = ""
    stream: bool = False
    framing: str = ""
    seed: str = ""
    """What ids of its answer are made from; "" for its request id."""
    keeper: Keeper | None = None
    """Keeps its answer, where that is wanted."""
    sealing: Sealing | None = None
    """Keeps the seals that the client's protocol has no slot for, and what happened behind its back."""
    tooling: Tooling | None = None
    """Has further tools for the model."""
    without_seals: bool = False
    """Has a provider refused a seal in it?"""
    most_tokens: int | None = None
    """The most that the model at hand can give, where its provider has said so."""
    unseen: bool = False
    """May earlier answers have calls that the client did not see?"""

    def has_tools(self) -> bool:
        """Does it declare tools?"""
        return has_tools(self.peek, self.body)


class Reply(Struct, frozen=True):
    """A whole answer for the client."""

    status: int
    headers: Mapping[str, str]
    body: bytes


@final
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

    async def comes(self, seconds: float) -> bool: ...

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
    again: Again | None
    """What knows more of the last text by its bytes; while there is one, nothing that came was a failure."""

    @property
    def kept(self) -> Mapping[str, bytes]: ...

    @property
    def paused(self) -> bool: ...

    @property
    def ledger(self) -> Ledger | None: ...

    def knowing(self, put: Sink, other: Sink) -> Sink: ...

    def feed(self, data: bytes) -> bytes: ...

    def close(self) -> bytes: ...

    def fail(self, failure: Failure) -> bytes: ...

    def settle(self, results: tuple[Result, ...]) -> None: ...


@final
class Prepared(Struct, eq=False):
    """A request as a provider gets it, translated."""

    line: Line
    body: bytes
    exchange: Exchange
    ledger: Ledger | None
    codes: tuple[str, ...]
    """What its translation lost or changed."""
    passed: ClassVar[bool] = False
    """Are these the client's own bytes, whose answer passes, too?"""


@final
class Passed(Struct, eq=False):
    """The same where nothing needs translating."""

    line: Line
    body: bytes
    call: Call
    make: Callable[[Call, Line], Exchange]
    made: Exchange | None = None
    passed: ClassVar[bool] = True
    ledger: ClassVar[Ledger | None] = None
    codes: ClassVar[tuple[str, ...]] = ()

    @property
    def exchange(self) -> Exchange:
        """Made only when needed: mostly the answer is no other than was thought."""
        if self.made is None:
            self.made = self.make(self.call, self.line)
        return self.made


Ready: TypeAlias = Prepared | Passed


class Flow:
    """A stream that has begun: what came so far, and where the rest comes from."""

    __slots__ = ("headers", "pending", "prepared", "source", "source_ended", "stream")

    def __init__(self, prepared: Ready, source: Source, stream: Streaming, headers: Mapping[str, str]) -> None:
        self.prepared = prepared
        self.source = source
        self.stream = stream
        self.headers = headers
        self.pending: list[bytes] = []
        self.source_ended = False
