"""A provider that answers every request of the four protocols with the same tool call: `python -m … PORT`.

An event of a stream is a chunk and a write of its own. `GET /stream/call/4` puts 4 ms between two, as a model does;
without a pace (`/stream/call/0`) they come as fast as they can be written, and a gateway reads several at once. The
stream `text` has one delta of arguments, in `call` it is every second. `GET /seen` counts.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections import Counter
from collections.abc import Iterator

import httptools
import uvloop

from bench.gateway import canned

STREAM = re.compile(rb'"stream"\s*:\s*true')


def _head(status: bytes, kind: bytes, framing: bytes) -> bytes:
    return b"HTTP/1.1 " + status + b"\r\ncontent-type: " + kind + b"\r\n" + framing + b"\r\n\r\n"


def _whole_answer(body: bytes, status: bytes = b"200 OK") -> bytes:
    return _head(status, b"application/json", b"content-length: %d" % len(body)) + body


ANSWERS = {name: _whole_answer(canned.whole_answer(name)) for name in canned.PATHS}
OPENING = _head(b"200 OK", b"text/event-stream", b"transfer-encoding: chunked")
STREAMS = {
    (name, stream): tuple(b"%x\r\n%b\r\n" % (len(event), event) for event in canned.events(name, stream))
    for name in canned.PATHS
    for stream in canned.TEXT_DELTAS
}
DONE = _whole_answer(b"{}")
UNKNOWN = _whole_answer(b'{"error":{"message":"no such path"}}', b"404 Not Found")


class State:
    """What all connections share."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.seen: Counter[str] = Counter()
        self.stream, self.pace = "call", 0.0

    def answer_bench(self, path: str) -> bytes | None:
        """The answer to what the bench itself asks."""
        if path == "/seen":
            return _whole_answer(json.dumps(self.seen).encode())
        if path.startswith("/stream/"):
            self.stream, _, pace = path.removeprefix("/stream/").partition("/")
            self.pace = float(pace) / 1000
            return DONE
        return None


class Provider(asyncio.Protocol):
    """One connection. Requests come one after the other, never pipelined."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._parser = httptools.HttpRequestParser(self)
        self._transport: asyncio.Transport
        self._path = b""
        self._body: list[bytes] = []

    def connection_made(self, transport: asyncio.Transport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_message_begin(self) -> None:
        self._path = b""
        self._body = []

    def on_url(self, url: bytes) -> None:
        self._path += url

    def on_body(self, body: bytes) -> None:
        self._body.append(body)

    def on_message_complete(self) -> None:
        path = self._path.decode()
        name = canned.protocol_of(path)
        told = self._state.answer_bench(path)
        if told is not None:
            self._transport.write(told)
        elif name is None:
            self._state.seen[path] += 1
            self._transport.write(UNKNOWN)
        elif ":streamGenerateContent" in path or STREAM.search(b"".join(self._body)):
            self._state.seen[f"{name} stream"] += 1
            self._transport.write(OPENING)
            self._next(iter(STREAMS[name, self._state.stream]))
        else:
            self._state.seen[f"{name} whole"] += 1
            self._transport.write(ANSWERS[name])

    def _next(self, events: Iterator[bytes]) -> None:
        if self._transport.is_closing():
            return
        event = next(events, None)
        if event is None:
            self._transport.write(b"0\r\n\r\n")
        else:
            self._transport.write(event)
            self._state.loop.call_later(self._state.pace, self._next, events)


async def start(port: int) -> asyncio.Server:
    state = State()
    return await state.loop.create_server(lambda: Provider(state), "127.0.0.1", port)


async def main() -> None:
    server = await start(int(sys.argv[1]))
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(main())
