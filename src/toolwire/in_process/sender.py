"""Sends the requests to providers by the program's HTTP library: its timeouts, proxies and certificates hold."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Callable, Mapping
from contextvars import ContextVar
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from toolwire.core.ir import EMPTY_MAPPING
from toolwire.gateway.http.connection import TransportError, TransportErrorKind
from toolwire.gateway.http.messages import UpstreamRequest, UpstreamResponse
from toolwire.gateway.settings.address import Address
from toolwire.gateway.settings.config import Timeouts
from toolwire.in_process.library import HttpLibrary

if TYPE_CHECKING:
    import httpx2

ERROR_KINDS: Final[Mapping[str, TransportErrorKind]] = {
    "ConnectTimeout": "connect-timeout",
    "PoolTimeout": "connect-timeout",
    "TimeoutException": "first-byte-timeout",
    "ProxyError": "proxy",
    "ConnectError": "unreachable",
    "UnsupportedProtocol": "protocol",
    "DecodingError": "protocol",
    "LocalProtocolError": "protocol",
    "HTTPError": "connection-closed",
}
"""What the errors of the library are to the gateway, the special ones first."""
DEFAULT_LIMITS = {"max_connections": 1000, "max_keepalive_connections": 100}
"""Those of the SDKs (openai 3 and anthropic 2, `_constants.py`, 2026-11). The library's own is a hundred."""


class CallState(Struct, eq=False):
    """What the program says of one request, and what its library has raised."""

    timeout: Mapping[str, object] = EMPTY_MAPPING
    """As the library has it in the extensions of a request."""
    closing: list[asyncio.Task[None]] = []
    """Answers that were given up, until their connections are closed."""
    error: Exception | None = None
    """The last error without an answer after it, or that an answer came too late: the program gets it, because its SDK
    knows it."""


CURRENT_CALL: ContextVar[CallState] = ContextVar("toolwire_call")


class LibrarySender:
    """Sends requests by clients of the library: one, and more for providers with a proxy or certificates of their
    own."""

    def __init__(self, library: HttpLibrary, options: Mapping[str, object]) -> None:
        """Raises what the library raises for options that cannot be had, such as a proxy of an unknown kind."""
        self._library = library
        self._options = {"limits": library.limits(**DEFAULT_LIMITS), **options}
        self._clients: dict[tuple[str, str], httpx2.AsyncClient] = {("", ""): self._make_client({})}
        self._closing: set[asyncio.Task[None]] = set()
        """Answers that were given up, until their connections are closed."""

    def set_timeouts(self, timeouts: Timeouts) -> None:
        """The program's own hold."""

    def _find_client(self, address: Address) -> httpx2.AsyncClient:
        key = (address.proxy, address.ca_file)
        client = self._clients.get(key)
        if client is None:
            own: dict[str, object] = {}
            if address.proxy:
                own["proxy"] = address.proxy
            if address.ca_file:
                own["verify"] = address.ca_file
            client = self._clients[key] = self._make_client(own)
        return client

    def _make_client(self, own: Mapping[str, object]) -> httpx2.AsyncClient:
        return self._library.async_client(**{**self._options, **own})  # type: ignore[arg-type]  # the library checks them

    async def send_request(self, request: UpstreamRequest) -> UpstreamResponse | TransportError:
        address, max_seconds = request.address, request.max_seconds
        url = f"{address.scheme}://{address.authority}{address.request_target(request.path)}"
        state = CURRENT_CALL.get(CallState())
        extensions = {"timeout": state.timeout} if state.timeout else None
        try:
            headers = (*request.headers, *request.unique_headers)
            written = [(name.encode(), value.encode("latin-1")) for name, value in headers]
            sent = self._library.request(
                request.method, url, headers=written, content=request.body, extensions=extensions
            )
        except (UnicodeEncodeError, self._library.invalid_url) as error:
            return TransportError("protocol", f"the request to {address.label} cannot be written: {error}")
        try:
            async with asyncio.timeout(None if max_seconds == math.inf else max_seconds):
                response = await self._find_client(address).send(sent, stream=True)
        except TimeoutError:
            return TransportError("first-byte-timeout", f"{address.label} sent nothing within {max_seconds:g} seconds")
        except self._library.http_error as error:
            state.error = error
            return describe_error(error, address.label)
        state.error = None
        return LibraryResponse(response, self._library, address.label, state, self._close_response)

    def _close_response(self, response: httpx2.Response) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(response.aclose())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)
        return task

    async def close(self) -> None:
        await asyncio.gather(*self._closing)
        for client in self._clients.values():
            await client.aclose()


def describe_error(error: Exception, label: str) -> TransportError:
    names = [kind.__name__ for kind in type(error).__mro__]
    kinds: list[TransportErrorKind] = [ERROR_KINDS[name] for name in names if name in ERROR_KINDS]
    return TransportError(kinds[0], f"{label}: {str(error) or type(error).__name__}")


class LibraryResponse(UpstreamResponse):
    """An answer of a provider, read by the library. Decompressed already."""

    def __init__(
        self,
        response: httpx2.Response,
        library: HttpLibrary,
        label: str,
        call: CallState,
        close: Callable[[httpx2.Response], asyncio.Task[None]],
    ) -> None:
        self._response, self._library, self._label, self._call, self._close = response, library, label, call, close
        self._chunks: AsyncIterator[bytes] = response.aiter_bytes()
        self._next: asyncio.Task[bytes] | None = None
        self.status: int = response.status_code
        undone = ("content-encoding", "content-length") if "content-encoding" in response.headers else ()
        self.headers: dict[str, str] = {name: value for name, value in response.headers.items() if name not in undone}

    async def read(self, limit: int) -> bytes | TransportError:
        pieces: list[bytes] = []
        size = 0
        while True:
            data = await self.read_chunk()
            if isinstance(data, TransportError):
                return data
            if not data:
                return b"".join(pieces)
            size += len(data)
            if size > limit:
                self.abort()
                return TransportError("protocol", f"the answer of {self._label} is longer than {limit} bytes")
            pieces.append(data)

    async def wait_for_data(self, seconds: float) -> bool:
        if self._next is None:
            self._next = asyncio.get_running_loop().create_task(self._read_next())
        done, _ = await asyncio.wait({self._next}, timeout=max(0.0, seconds))
        return bool(done)

    async def read_chunk(self) -> bytes | TransportError:
        try:
            return await (self._next or self._read_next())
        except self._library.http_error as error:
            if isinstance(error, self._library.late_answer):
                self._call.error = error
            return describe_error(error, self._label)
        finally:
            self._next = None

    def abort(self) -> None:
        """The provider stops: its connection is closed, unless the answer was read to its end."""
        if self._next is not None:
            self._next.cancel()
            self._next = None
        if not self._response.is_closed:
            self._call.closing.append(self._close(self._response))

    async def _read_next(self) -> bytes:
        async for data in self._chunks:
            if data:
                return data
        return b""
