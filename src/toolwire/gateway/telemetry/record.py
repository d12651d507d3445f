"""The record of one request, which log, metrics and traces read; and a copy of its traffic, for the console and the
debug log."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

import msgspec

from toolwire.core.ir import EMPTY_MAPPING, Call, Result, Usage
from toolwire.core.losses import Ledger
from toolwire.gateway.upstream.connection import TransportError

if TYPE_CHECKING:
    from toolwire.gateway.pipeline.gateway_request import UpstreamResponse

MAX_CAPTURED = 8 * 1024 * 1024
"""The largest body in bytes that is captured."""
PIECE_SIZE = 120
"""Bytes that Python needs for a captured piece, besides its data."""


class CaptureBudget(Protocol):
    """The memory for captured traffic."""

    def take(self, size: int) -> bool:
        """Reserve bytes. False if there are none left: then no more is captured."""


class CapturedBytes(msgspec.Struct, gc=False, eq=False):
    """A body as it came, in pieces with their times; cut if it is too long."""

    clock: Callable[[], float]
    budget: CaptureBudget
    pieces: list[bytes] = []
    times: list[float] = []
    size: int = 0
    """Of the whole body, also if it is cut."""
    is_cut: bool = False
    reserved: int = 0
    """Bytes of the budget that a stream has taken. A whole body is in memory anyway while its request runs: it counts
    when that has ended."""

    def add(self, data: bytes) -> None:
        """One more piece of a stream."""
        self.size += len(data)
        if self.size + PIECE_SIZE * len(self.pieces) > self.reserved and not self._reserve_more():
            return
        self.pieces.append(data)
        self.times.append(self.clock())

    def _reserve_more(self) -> bool:
        wanted = 2 * self.size + PIECE_SIZE * (2 * len(self.pieces) + 1)  # seldom, though a stream has many pieces
        if self.is_cut or self.size > MAX_CAPTURED or not self.budget.take(wanted - self.reserved):
            self.is_cut = True
            return False
        self.reserved = wanted
        return not self.is_cut  # taking it may have removed this very exchange

    def add_whole(self, data: bytes) -> None:
        """A whole body."""
        self.size += len(data)
        if self.size > MAX_CAPTURED:
            self.is_cut = True
        elif not self.is_cut:
            self.pieces.append(data)
            self.times.append(self.clock())

    def copy_writes(self, write: Callable[[bytes], bool]) -> Callable[[bytes], bool]:
        add = self.add

        def copy_and_write(data: bytes) -> bool:
            add(data)
            return write(data)

        return copy_and_write

    @property
    def data(self) -> bytes:
        return b"".join(self.pieces)

    def discard(self) -> int:
        """Forget the data, and capture no more. Returns the bytes that were reserved for it."""
        released, self.reserved = self.reserved, 0
        self.is_cut = True
        self.pieces.clear()
        self.times.clear()
        return released


class CapturedResponse:
    """A provider's answer that is captured while it is read."""

    __slots__ = ("_captured", "_source", "headers", "status")

    def __init__(self, source: UpstreamResponse, captured: UpstreamCapture) -> None:
        self.status: int = source.status
        self.headers: dict[str, str] = source.headers
        self._source, self._captured = source, captured

    async def read(self, limit: int) -> bytes | TransportError:
        return self._capture(await self._source.read(limit), is_end=True)

    async def wait_for_data(self, seconds: float) -> bool:
        return await self._source.wait_for_data(seconds)

    async def read_chunk(self) -> bytes | TransportError:
        return self._capture(await self._source.read_chunk())

    async def pour_into(self, sink: Callable[[bytes], bool]) -> bytes | TransportError | None:
        rest = await self._source.pour_into(self._captured.response.copy_writes(sink))
        return rest if rest is None else self._capture(rest, is_end=True)

    def abort(self) -> None:
        self._captured.end()
        self._source.abort()

    def _capture(self, data: bytes | TransportError, is_end: bool = False) -> bytes | TransportError:
        if isinstance(data, bytes):
            (self._captured.response.add_whole if is_end else self._captured.response.add)(data)
        else:
            self._captured.error = data.detail
        if is_end or not data:
            self._captured.end()
        return data


class UpstreamCapture(msgspec.Struct, gc=False, eq=False):
    """One request to a provider and its answer. Times are of the caller's monotonic clock, 0 for never."""

    protocol: str
    provider: str
    address: str
    path: str
    body: bytes
    response: CapturedBytes
    clock: Callable[[], float]
    started: float
    renamed_tools: Mapping[str, str]
    """The client's name of each tool that the provider knows by another name."""
    head_received: float = 0.0
    ended: float = 0.0
    status: int = 0
    headers: Mapping[str, str] = EMPTY_MAPPING
    """The provider's response headers, for its rate limits."""
    error: str = ""
    """Why there is no answer, or no whole one."""

    @property
    def url(self) -> str:
        return f"{self.address}{self.path}"

    def end(self) -> None:
        self.ended = self.ended or self.clock()

    def capture_response(self, source: UpstreamResponse | TransportError) -> CapturedResponse | TransportError:
        self.head_received = self.clock()
        if isinstance(source, TransportError):
            self.error, self.ended = source.detail, self.head_received
            return source
        self.status, self.headers = source.status, source.headers
        return CapturedResponse(source, self)


class ExchangeCapture(msgspec.Struct, gc=False, eq=False):
    """The traffic of one request, with the client and with providers."""

    client_request: bytes
    clock: Callable[[], float]
    budget: CaptureBudget
    client_response: CapturedBytes
    session: str = ""
    """The session that the client's headers name."""
    upstream_calls: list[UpstreamCapture] = []
    counted: int = 0
    """Bytes of the budget that it takes since it has ended."""

    def start_upstream_call(
        self, protocol: str, provider: str, address: str, path: str, body: bytes, renamed_tools: Mapping[str, str]
    ) -> UpstreamCapture:
        clock = self.clock
        response = CapturedBytes(clock, self.budget)
        captured = UpstreamCapture(protocol, provider, address, path, body, response, clock, clock(), renamed_tools)
        self.upstream_calls.append(captured)
        return captured

    def copy_for(self, client_request: bytes) -> ExchangeCapture:
        """For a request that goes on in the background."""
        response = CapturedBytes(self.clock, self.budget)
        return ExchangeCapture(client_request, self.clock, self.budget, response, self.session)

    def count_bytes(self) -> int:
        """The bytes that it takes, now that it has ended; those that were reserved for its streams are included."""
        if len(self.client_request) > MAX_CAPTURED:
            self.client_request = b""
        size = len(self.client_request) + self.client_response.size
        for call in self.upstream_calls:
            if len(call.body) > MAX_CAPTURED:
                call.body = b""
            size += len(call.body) + call.response.size
        self.counted = size + PIECE_SIZE * len(self.client_response.pieces)
        return self.counted

    def discard(self) -> int:
        """Forget the traffic, and capture no more of it. Returns the bytes of the budget that it has taken."""
        released, self.counted = self.counted, 0
        reserved = self.client_response.discard()
        self.client_request = b""
        for call in self.upstream_calls:
            reserved += call.response.discard()
            call.body = b""
        return released or reserved


SESSION_HEADERS = (
    "x-claude-code-session-id",  # Claude Code
    "session-id",  # Codex
    "session_id",  # older versions of Codex
)
"""Headers in which agents name their session."""


def find_session(headers: Mapping[str, str]) -> str:
    for name in SESSION_HEADERS:
        if name in headers:
            return headers[name]
    return ""


class ExchangeRecord(msgspec.Struct, kw_only=True, gc=False, eq=False):
    """Filled in while the request runs. Times are of the caller's monotonic clock, except for `started_at`. Contains no
    key and no header."""

    request_id: str
    started: float
    started_at: float
    """Unix time."""
    client_address: str = ""
    method: str = ""
    path: str = ""
    """As received; the query is removed before it is logged."""
    key_name: str = ""
    """The name of the client's key, never the key itself."""
    user_agent: str = ""
    """As received; the log shows its first product."""
    client_protocol: str = ""
    provider_protocol: str = ""
    provider: str = ""
    upstream_address: str = ""
    """The provider's `host:port`."""
    operation: str = "chat"
    """chat, count_tokens, models, metrics, responses_state, background or passthrough. Only chat has times and tokens
    in the metrics."""
    requested_model: str = ""
    """The model that the client asked for."""
    model: str = ""
    """The model that the provider was asked for."""
    response_model: str = ""
    """The model that the answer names."""
    stream: bool = False
    is_passthrough: bool = False
    """Were the bytes forwarded without translation?"""
    status: int = 0
    """The status that the client got; 0 for none."""
    failure: str = ""
    """The kind of failure, one of `ir.FAILURES`, also if it happened in the middle of a stream."""
    message: str = ""
    """The sentence about it that the client got."""
    first_byte: float = 0.0
    """When the first byte of the answer was sent to the client; 0 for never."""
    ended: float = 0.0
    usage: Usage | None = None
    usage_estimated: bool = False
    """Was the usage estimated, not counted by the provider?"""
    finish_reasons: tuple[str, ...] = ()
    losses: tuple[str, ...] = ()
    """Codes."""
    ledgers: tuple[Ledger | None, ...] = ()
    """The losses in full; formatted only when they are logged."""
    attempts: list[tuple[str, str, float]] = msgspec.field(default_factory=list)
    """Provider, outcome ("ok", a status, or the kind of a transport error), and seconds."""
    tool_calls: tuple[tuple[str, str], ...] = ()
    """The tools that the answer calls: the client's name of each, and the provider's."""
    tool_runs: list[tuple[str, str]] = msgspec.field(default_factory=list)
    """Tool calls that the gateway ran itself, and their outcomes."""
    client_disconnected: bool = False
    upstream_request_id: str = ""
    """The provider's id of the request."""
    bytes_in: int = 0
    bytes_out: int = 0
    note: str = ""
    request_body: bytes = b""
    """The bodies are set only if `Telemetry.wants_bodies`."""
    response_body: bytes = b""
    capture: ExchangeCapture | None = None
    """Set only if `Telemetry.wants_capture`."""
    number: int = 0
    """Its number among the recent exchanges of the process; 0 if it is not kept."""
    span: object = None
    """For the tracer."""

    def __repr__(self) -> str:
        """Without bodies, and without the path, whose query may contain a key."""
        return f"ExchangeRecord({self.request_id!r}, {self.provider!r}, {self.model!r}, {self.status})"

    def add_tool_runs(self, calls: Sequence[Call], results: Sequence[Result]) -> None:
        """Add tool calls that the gateway ran itself."""
        pairs = zip(calls, results, strict=True)
        self.tool_runs += [(call.name, "error" if result.error else "ok") for call, result in pairs]

    def set_tool_calls(self, names: Sequence[str], client_name: Callable[[str], str]) -> None:
        """The tools that the answer calls, by the provider's names."""
        self.tool_calls = tuple(zip(map(client_name, names), names, strict=True))

    def add_losses(self, codes: tuple[str, ...], *ledgers: Ledger | None) -> None:
        if codes:
            self.losses, self.ledgers = codes, ledgers
