"""The floor: the least that a gateway in this language does. `python -m … PORT UPSTREAM_PORT`.

uvloop and httptools on both sides; a request is parsed, written to a pooled connection with another host, and what
comes back is parsed and handed on. Nothing is translated, checked or logged, and there is no task or future.
"""

from __future__ import annotations

import asyncio
import sys

import httptools
import uvloop

HOP = frozenset((b"host", b"connection", b"keep-alive", b"transfer-encoding", b"content-length"))


class Upstream(asyncio.Protocol):
    """One connection to the provider; answers whoever waits on it."""

    def __init__(self, pool: list[Upstream]) -> None:
        self._pool = pool
        self._client: Client | None = None
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.Transport) -> None:
        self.transport = transport

    def connection_lost(self, error: Exception | None) -> None:
        if self in self._pool:
            self._pool.remove(self)
        if self._client is not None:
            self._client.transport.abort()

    def send(self, client: Client, head: bytes, body: list[bytes]) -> None:
        self._client = client
        self._parser = httptools.HttpResponseParser(self)
        self._headers: list[bytes] = []
        self._body: list[bytes] = []
        self._chunked = False
        self.transport.writelines([head, *body])

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() == b"transfer-encoding":
            self._chunked = True
        elif name.lower() not in HOP:
            self._headers.append(name + b": " + value + b"\r\n")

    def on_headers_complete(self) -> None:
        if self._chunked:
            self._client.transport.write(self._head(b"transfer-encoding: chunked"))

    def on_body(self, body: bytes) -> None:
        if self._chunked:
            self._client.transport.write(b"%x\r\n%b\r\n" % (len(body), body))
        else:
            self._body.append(body)

    def on_message_complete(self) -> None:
        client, self._client = self._client, None
        assert client is not None
        if self._chunked:
            client.transport.write(b"0\r\n\r\n")
        else:
            body = b"".join(self._body)
            client.transport.write(self._head(b"content-length: %d" % len(body)) + body)
        self._pool.append(self)

    def _head(self, framing: bytes) -> bytes:
        status = b"HTTP/1.1 %d OK\r\n" % self._parser.get_status_code()
        return status + b"".join(self._headers) + framing + b"\r\n\r\n"


class Client(asyncio.Protocol):
    """One connection from a client; requests come one after the other."""

    def __init__(self, loop: asyncio.AbstractEventLoop, pool: list[Upstream], port: int) -> None:
        self._loop = loop
        self._pool = pool
        self._port = port
        self._parser = httptools.HttpRequestParser(self)
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.Transport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_message_begin(self) -> None:
        self._url = b""
        self._headers: list[bytes] = []
        self._body: list[bytes] = []

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() not in HOP:
            self._headers.append(name + b": " + value + b"\r\n")

    def on_body(self, body: bytes) -> None:
        self._body.append(body)

    def on_message_complete(self) -> None:
        length = sum(map(len, self._body))
        start = b"%b %b HTTP/1.1\r\nhost: 127.0.0.1:%d\r\n" % (self._parser.get_method(), self._url, self._port)
        head = start + b"".join(self._headers) + b"content-length: %d\r\n\r\n" % length
        if self._pool:
            self._pool.pop().send(self, head, self._body)
        else:
            self._opening = self._loop.create_task(self._open(head, self._body))

    async def _open(self, head: bytes, body: list[bytes]) -> None:
        try:
            _, upstream = await self._loop.create_connection(lambda: Upstream(self._pool), "127.0.0.1", self._port)
        except OSError:
            self.transport.abort()
        else:
            upstream.send(self, head, body)


async def start(port: int, upstream: int, pool: list[Upstream]) -> asyncio.Server:
    loop = asyncio.get_running_loop()
    return await loop.create_server(lambda: Client(loop, pool, upstream), "127.0.0.1", port)


async def main() -> None:
    server = await start(int(sys.argv[1]), int(sys.argv[2]), [])
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(main())
