"""What an exchange says on both sides, copied while it goes by: only where the log is to tell of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec

from toolwire.core.ir import Call, Result, Usage
from toolwire.core.losses import Ledger, Loss
from toolwire.gateway.upstream.errors import TransportError

MAX_CAPTURED = 8 * 1024 * 1024
"""Bytes of a body that are copied; a longer one is not read."""


class UpstreamResponse(Protocol):
    """An answer as it comes in."""

    status: int
    headers: dict[str, str]

    async def read(self, limit: int) -> bytes | TransportError: ...

    async def wait_for_data(self, seconds: float) -> bool: ...

    async def read_chunk(self) -> bytes | TransportError: ...

    async def pour_into(self, sink: Callable[[bytes], bool]) -> bytes | TransportError | None: ...

    def abort(self) -> None: ...


class StreamSink(Protocol):
    """Where a stream goes."""

    def write_nowait(self, data: bytes) -> bool: ...

    async def drain(self) -> None: ...

    async def end(self) -> None: ...

    def close(self) -> None: ...


class CapturedBytes:
    """The start of what went by."""

    __slots__ = ("_data", "is_truncated")

    def __init__(self, data: bytes = b"") -> None:
        self._data = bytearray()
        self.is_truncated = False
        self.add(data)

    def add(self, data: bytes) -> None:
        self.is_truncated = self.is_truncated or len(self._data) + len(data) > MAX_CAPTURED
        if not self.is_truncated:
            self._data += data

    @property
    def data(self) -> bytes:
        return b"" if self.is_truncated else bytes(self._data)


class CapturedResponse:
    """An answer that is copied while it comes in."""

    def __init__(self, source: UpstreamResponse, captured: CapturedBytes) -> None:
        self.status, self.headers = source.status, source.headers
        self._source, self._captured = source, captured

    async def read(self, limit: int) -> bytes | TransportError:
        return self._capture(await self._source.read(limit))

    async def wait_for_data(self, seconds: float) -> bool:
        return await self._source.wait_for_data(seconds)

    async def read_chunk(self) -> bytes | TransportError:
        return self._capture(await self._source.read_chunk())

    async def pour_into(self, sink: Callable[[bytes], bool]) -> bytes | TransportError | None:
        def copy_and_forward(data: bytes) -> bool:
            self._captured.add(data)
            return sink(data)

        return await self._source.pour_into(copy_and_forward)

    def abort(self) -> None:
        self._source.abort()

    def _capture(self, data: bytes | TransportError) -> bytes | TransportError:
        if isinstance(data, bytes):
            self._captured.add(data)
        return data


class CapturedSink:
    """A stream to the client that is copied while it goes out."""

    def __init__(self, sink: StreamSink, captured: CapturedBytes) -> None:
        self._sink, self._captured = sink, captured

    def write_nowait(self, data: bytes) -> bool:
        self._captured.add(data)
        return self._sink.write_nowait(data)

    async def drain(self) -> None:
        await self._sink.drain()

    async def end(self) -> None:
        await self._sink.end()

    def close(self) -> None:
        self._sink.close()


class UpstreamCapture:
    """One question to a provider and its answer."""

    __slots__ = ("body", "protocol", "provider", "response", "status", "url")

    def __init__(self, protocol: str, provider: str, url: str, body: bytes) -> None:
        self.protocol, self.provider, self.url, self.body = protocol, provider, url, body
        self.response = CapturedBytes()
        self.status = 0


class ExchangeCapture:
    """Everything of one exchange, on both sides."""

    __slots__ = ("_client_output", "client_request", "upstream_calls")

    def __init__(self, client_request: bytes) -> None:
        self.client_request = client_request
        self.upstream_calls: list[UpstreamCapture] = []
        self._client_output = CapturedBytes()

    def add_upstream_call(self, protocol: str, provider: str, url: str, body: bytes) -> UpstreamCapture:
        self.upstream_calls.append(UpstreamCapture(protocol, provider, url, body))
        return self.upstream_calls[-1]

    @staticmethod
    def capture_response(upstream_call: UpstreamCapture, source: UpstreamResponse) -> CapturedResponse:
        upstream_call.status = source.status
        return CapturedResponse(source, upstream_call.response)

    def add_client_output(self, data: bytes) -> None:
        self._client_output.add(data)

    def capture_sink(self, sink: StreamSink) -> CapturedSink:
        return CapturedSink(sink, self._client_output)

    @property
    def client_response(self) -> bytes:
        return self._client_output.data


# --- One exchange, as it is seen from outside: filled in while it runs, read once when it ends ---


class ExchangeRecord(msgspec.Struct, kw_only=True, gc=False, eq=False):
    """Times are seconds of the caller's own monotonic clock; only `wall` is the time of day. No key, no header."""

    request_id: str
    started: float
    started_at: float
    """Unix time of the start."""
    client_address: str = ""
    method: str = ""
    path: str = ""
    """As it came: its query is cut off before anything is written."""
    key_name: str = ""
    """The name of the client's key, never the key."""
    user_agent: str = ""
    """The user agent as it came; the line shows its first product."""
    client_protocol: str = ""
    """The client's protocol."""
    provider_protocol: str = ""
    """The provider's protocol."""
    provider: str = ""
    upstream_address: str = ""
    """The provider's `host:port`."""
    operation: str = "chat"
    """What was asked for: chat, count, models, metrics, pass. Only a chat has times and tokens in the metrics."""
    requested_model: str = ""
    """The model as the client named it."""
    model: str = ""
    """The model as the provider was asked for it."""
    response_model: str = ""
    """The model as the answer names it."""
    stream: bool = False
    is_passthrough: bool = False
    """Did the bytes pass untouched?"""
    status: int = 0
    """As the client saw it; 0 when it saw none."""
    failure: str = ""
    """The kind of failure, one of `ir.FAILURES`; also of one in the middle of a stream."""
    first_byte: float = 0.0
    """When the first byte of the answer went to the client; 0 for never."""
    ended: float = 0.0
    usage: Usage | None = None
    usage_estimated: bool = False
    """Is the usage a local estimate?"""
    finish_reasons: tuple[str, ...] = ()
    losses: tuple[str, ...] = ()
    """The codes of what was lost in translation."""
    ledgers: tuple[Ledger | None, ...] = ()
    """Where they stand in full: spelled only when somebody reads it."""
    attempts: list[tuple[str, str, float]] = msgspec.field(default_factory=list)
    """Tries at providers: which one, what came of it ("ok", a status, the kind of a fault), seconds."""
    tool_runs: list[tuple[str, str]] = msgspec.field(default_factory=list)
    """Calls that were run here and not by the client, and what came of them."""
    client_disconnected: bool = False
    """Did the client leave?"""
    upstream_request_id: str = ""
    """The provider's own id of the request."""
    bytes_in: int = 0
    bytes_out: int = 0
    note: str = ""
    request_body: bytes = b""
    """The bodies only where `Telemetry.bodies` asks for them."""
    response_body: bytes = b""
    capture: ExchangeCapture | None = None
    """All that was said on both sides, only where `Telemetry.debug` asks for it."""
    span: object = None
    """Belongs to the tracer."""

    def __repr__(self) -> str:
        """Neither bodies nor a path whose query may hold a key."""
        return f"Record({self.request_id!r}, {self.provider!r}, {self.model!r}, {self.status})"

    def add_tool_runs(self, calls: Sequence[Call], results: Sequence[Result]) -> None:
        """Note calls that were run here."""
        for call, result in zip(calls, results, strict=True):
            self.tool_runs.append((call.name, "error" if result.error else "ok"))

    def add_losses(self, codes: tuple[str, ...], *ledgers: Ledger | None) -> None:
        """Note what a translation lost or changed."""
        if codes:
            self.losses, self.ledgers = codes, ledgers

    @property
    def all_losses(self) -> list[Loss]:
        """The losses in full."""
        return [loss for ledger in self.ledgers if ledger is not None for loss in ledger.losses]
