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


class CapturedBytes:
    """A body as it came, in pieces with their times; cut if it is too long."""

    __slots__ = ("_budget", "_clock", "is_cut", "pieces", "size", "times")

    def __init__(self, clock: Callable[[], float], budget: CaptureBudget) -> None:
        self._clock, self._budget = clock, budget
        self.pieces: list[bytes] = []
        self.times: list[float] = []
        self.size = 0
        """Of the whole body, also if it is cut."""
        self.is_cut = False

    def add(self, data: bytes) -> None:
        size = len(data)
        self.size += size
        if self.size > MAX_CAPTURED or self.is_cut or not self._budget.take(size + PIECE_SIZE):
            self.is_cut = True
        elif size:
            self.pieces.append(data)
            self.times.append(self._clock())

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
        size = sum(map(len, self.pieces)) + PIECE_SIZE * len(self.pieces)
        self.is_cut = True
        self.pieces.clear()
        self.times.clear()
        return size


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
            self._captured.response.add(data)
        else:
            self._captured.error = data.detail
        if is_end or not data:
            self._captured.end()
        return data


class UpstreamCapture(msgspec.Struct, eq=False):
    """One request to a provider and its answer. Times are of the caller's monotonic clock, 0 for never."""

    protocol: str
    provider: str
    url: str
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

    def end(self) -> None:
        self.ended = self.ended or self.clock()

    def capture_response(self, source: UpstreamResponse | TransportError) -> CapturedResponse | TransportError:
        self.head_received = self.clock()
        if isinstance(source, TransportError):
            self.error, self.ended = source.detail, self.head_received
            return source
        self.status, self.headers = source.status, source.headers
        return CapturedResponse(source, self)


class ExchangeCapture:
    """The traffic of one request, with the client and with providers."""

    __slots__ = ("_budget", "_clock", "client_request", "client_response", "session_headers", "upstream_calls")

    def __init__(
        self, client_request: bytes, clock: Callable[[], float], budget: CaptureBudget, headers: Mapping[str, str]
    ) -> None:
        self._clock, self._budget = clock, budget
        is_small = len(client_request) <= MAX_CAPTURED and budget.take(len(client_request))
        self.client_request = client_request if is_small else b""
        self.client_response = CapturedBytes(clock, budget)
        self.session_headers = {name: headers[name] for name in SESSION_HEADERS if name in headers}
        self.upstream_calls: list[UpstreamCapture] = []

    def start_upstream_call(
        self, protocol: str, provider: str, url: str, body: bytes, renamed_tools: Mapping[str, str]
    ) -> UpstreamCapture:
        is_same = body is self.client_request  # it passes as it is, so it takes no more memory
        if not is_same and (len(body) > MAX_CAPTURED or not self._budget.take(len(body))):
            body = b""
        response = CapturedBytes(self._clock, self._budget)
        captured = UpstreamCapture(protocol, provider, url, body, response, self._clock, self._clock(), renamed_tools)
        self.upstream_calls.append(captured)
        return captured

    def copy_for(self, client_request: bytes) -> ExchangeCapture:
        """For a request that goes on in the background."""
        return ExchangeCapture(client_request, self._clock, self._budget, self.session_headers)

    def discard(self) -> int:
        """Forget the traffic, and capture no more of it. Returns the bytes that were reserved for it."""
        size = len(self.client_request) + self.client_response.discard()
        for call in self.upstream_calls:
            size += call.response.discard() + (0 if call.body is self.client_request else len(call.body))
            call.body = b""
        self.client_request = b""
        return size


SESSION_HEADERS = (
    "x-claude-code-session-id",  # Claude Code
    "session-id",  # Codex
    "session_id",  # older versions of Codex
)
"""Headers in which agents name their session."""


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
