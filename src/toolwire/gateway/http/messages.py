"""The values that the server, the client and the gateway hand to each other."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from typing import Protocol, final

from msgspec import Struct

from toolwire.gateway.http.connection import ChunkSink, TransportError
from toolwire.gateway.http.headers import Headers
from toolwire.gateway.settings.address import Address
from toolwire.gateway.settings.config import Timeouts


class HeadKey:
    """Requests with equal heads on one connection have the same one."""

    __slots__ = ("__weakref__",)


@final
class Reply(Struct, frozen=True):
    """The HTTP reply to the client: a whole answer, or an error."""

    status: int
    headers: Mapping[str, str]
    body: bytes


@final
class UpstreamRequest(Struct, frozen=True):
    """A request to a provider, as whatever sends it gets it."""

    address: Address
    method: str
    path: str
    headers: Headers
    body: bytes
    unique_headers: Headers = ()
    """Those that differ in every request, because the encoded form of the others is cached."""
    max_seconds: float = math.inf
    """For the head of the answer."""


class UpstreamResponse(Protocol):
    """A provider's response whose head has come. What watches a response, or stands for one, has the same methods."""

    status: int
    headers: dict[str, str]

    async def read(self, limit: int) -> bytes | TransportError:
        """The whole body, or the rest of it; more than `limit` bytes are an error."""

    async def wait_for_data(self, seconds: float) -> bool:
        """Wait at most `seconds` for bytes, the end, or an error; False if nothing came."""

    async def read_chunk(self) -> bytes | TransportError:
        """The next bytes of the body as they arrive; b"" at its end."""

    async def pour_into(self, sink: ChunkSink) -> bytes | TransportError | None:
        """Give the chunks to a sink as they arrive, until it takes no more; then None. b"" at the end of the body."""
        while (data := await self.read_chunk()) and not isinstance(data, TransportError):
            if not sink(data):
                return None
        return data

    def abort(self) -> None: ...


class ReadyResponse(Struct):
    """A response that was read already, or made here: one piece, or one for each event of a stream."""

    status: int
    headers: dict[str, str]
    pieces: deque[bytes]

    async def read(self, limit: int) -> bytes | TransportError:
        return b"".join(self.pieces)

    async def wait_for_data(self, seconds: float) -> bool:
        return True

    async def read_chunk(self) -> bytes | TransportError:
        return self.pieces.popleft() if self.pieces else b""

    async def pour_into(self, sink: ChunkSink) -> bytes | TransportError | None:
        while self.pieces:
            if not sink(self.pieces.popleft()):
                return None
        return b""

    def abort(self) -> None:
        self.pieces.clear()


class RequestSender(Protocol):
    """Sends requests to providers."""

    async def send_request(self, request: UpstreamRequest) -> UpstreamResponse | TransportError:
        """Send a request and wait for the head of the answer, at most its `max_seconds`."""


class ProviderClient(RequestSender, Protocol):
    """`UpstreamClient`, or the HTTP client of a program (`in_process/`)."""

    def set_timeouts(self, timeouts: Timeouts) -> None:
        """For requests that are sent from now on."""

    async def close(self) -> None: ...
