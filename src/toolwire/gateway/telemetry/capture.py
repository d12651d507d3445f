"""What an exchange says on both sides, copied while it goes by: only where the log is to tell of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

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
