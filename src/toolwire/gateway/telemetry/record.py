"""The record of one request, which log, metrics and traces read; and a copy of its traffic for the debug log."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import msgspec

from toolwire.core.ir import Call, Result, Usage
from toolwire.core.losses import Ledger
from toolwire.gateway.upstream.connection import TransportError

if TYPE_CHECKING:
    from toolwire.gateway.pipeline.gateway_request import UpstreamResponse

MAX_CAPTURED = 8 * 1024 * 1024
"""The largest body in bytes that is copied for the debug log."""


class CapturedBytes:
    """A copy of a body; empty if the body is too long."""

    def __init__(self) -> None:
        self._data = bytearray()
        self._is_too_long = False

    def add(self, data: bytes) -> None:
        self._is_too_long = self._is_too_long or len(self._data) + len(data) > MAX_CAPTURED
        if not self._is_too_long:
            self._data += data

    def copy_writes(self, write: Callable[[bytes], bool]) -> Callable[[bytes], bool]:
        def copy_and_write(data: bytes) -> bool:
            self.add(data)
            return write(data)

        return copy_and_write

    @property
    def data(self) -> bytes:
        return b"" if self._is_too_long else bytes(self._data)


class CapturedResponse:
    """A provider's answer that is copied while it is read."""

    def __init__(self, source: UpstreamResponse, captured: CapturedBytes) -> None:
        self.status: int = source.status
        self.headers: dict[str, str] = source.headers
        self._source, self._captured = source, captured

    async def read(self, limit: int) -> bytes | TransportError:
        return self._capture(await self._source.read(limit))

    async def wait_for_data(self, seconds: float) -> bool:
        return await self._source.wait_for_data(seconds)

    async def read_chunk(self) -> bytes | TransportError:
        return self._capture(await self._source.read_chunk())

    async def pour_into(self, sink: Callable[[bytes], bool]) -> bytes | TransportError | None:
        return await self._source.pour_into(self._captured.copy_writes(sink))

    def abort(self) -> None:
        self._source.abort()

    def _capture(self, data: bytes | TransportError) -> bytes | TransportError:
        if isinstance(data, bytes):
            self._captured.add(data)
        return data


class UpstreamCapture(msgspec.Struct, eq=False):
    """One request to a provider and its answer."""

    protocol: str
    provider: str
    url: str
    body: bytes
    response: CapturedBytes = msgspec.field(default_factory=CapturedBytes)
    status: int = 0

    def capture_response(self, source: UpstreamResponse) -> CapturedResponse:
        self.status = source.status
        return CapturedResponse(source, self.response)


class ExchangeCapture(msgspec.Struct, eq=False):
    """The traffic of one request, with the client and with providers."""

    client_request: bytes
    upstream_calls: list[UpstreamCapture] = msgspec.field(default_factory=list)
    client_response: CapturedBytes = msgspec.field(default_factory=CapturedBytes)


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
