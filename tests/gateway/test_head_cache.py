"""A head like the one before is not parsed again: what is understood must be what the parser would have understood."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolwire.gateway.http.admission import Admission
from toolwire.gateway.http.client_request import HttpRequest
from toolwire.gateway.http.head_cache import MAX_CACHED_HEAD
from toolwire.gateway.http.server import ClientConnection
from toolwire.gateway.http.write_queue import WriteQueue
from toolwire.gateway.settings.config import ServerSettings

Seen = tuple[str, str, str, dict[str, str], bytes | None, bool, bool]


class Socket(asyncio.Transport):
    """Takes what is said, and is never full."""

    def __init__(self) -> None:
        super().__init__()
        self.said = b""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.said += data

    def is_closing(self) -> bool:
        return False

    def get_write_buffer_size(self) -> int:
        return 0

    def write_eof(self) -> None: ...
    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...
    def close(self) -> None: ...
    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...


class Desk:
    """Answers every request at once, in its turn, and keeps it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.write_queue = WriteQueue(loop)
        self.admission = Admission(ServerSettings())
        self.started: list[HttpRequest] = []

    def time(self) -> float:
        return 0.0

    def add_connection(self, connection: ClientConnection) -> None: ...
    def remove_connection(self, connection: ClientConnection) -> None: ...
    def close_when_idle(self, connection: ClientConnection) -> None: ...
    def start_request(self, request: HttpRequest) -> None:
        self.started.append(request)


def read_requests(pieces: Iterable[bytes]) -> tuple[list[Seen], bytes]:
    """The requests in what a client sent piece by piece, and what it was told besides."""
    loop = asyncio.new_event_loop()
    desk, socket = Desk(loop), Socket()
    connection = ClientConnection(desk)
    connection.connection_made(socket)
    try:
        for piece in pieces:
            connection.data_received(piece)
            while (request := connection.current_request) is not None and request.buffered_body(
                MAX_CACHED_HEAD
            ) is not None:
                connection.finish_request(request)
    finally:
        loop.close()
    found = [
        (
            one.method,
            one.path,
            one.query,
            one.headers,
            one.buffered_body(MAX_CACHED_HEAD),
            one.keep_alive,
            one.expects_continue,
        )
        for one in desk.started
    ]
    return found, socket.said


def request(
    body: bytes, *lines: bytes, first: bytes = b"POST /v1/x?a=b HTTP/1.1", length: bytes | None = None
) -> bytes:
    told = b"%d" % len(body) if length is None else length
    return b"\r\n".join((first, b"Host: here", b"Content-Length: " + told, *lines, b"", body))


USUAL = request(b'{"a": 1}')
PIECES: dict[str, bytes] = {
    "usual": USUAL,
    "longer": request(b'{"a": "and so on"}'),
    "empty": request(b""),
    "one digit more": request(b"x" * 100),
    "the last of its digits": request(b"x" * 99),
    "more than its digits": request(b"x" * 101, length=b"100"),
    "less than its digits": request(b"x" * 99, length=b"100"),
    "a line end in it": request(b"\r\n\r\nGET /y HTTP/1.1\r\n\r\n"),
    "shorter than it says": request(b"abc", length=b"5"),
    "longer than it says": request(b"abcGET /z HTTP/1.1\r\n\r\n", length=b"3"),
    "zeros": request(b"abc", length=b"003"),
    "a sign": request(b"abc", length=b"+3"),
    "no length": request(b"", length=b""),
    "hidden length": request(b"abc", length=b"0\r\nx: 3"),
    "two lengths": request(b"abc", length=b"3\r\nContent-Length: 3"),
    "spaces": request(b"abc", length=b"   3  "),
    "another line": request(b"abc", b"X-More: 1"),
    "another path": request(b"abc", first=b"POST /v1/y HTTP/1.1"),
    "a length in a value": request(b"abc", b"X-Content-Length: 3"),
    "closing": request(b"abc", b"Connection: close"),
    "old": request(b"abc", b"Connection: keep-alive", first=b"POST /v1/x HTTP/1.0"),
    "expecting": request(b"abc", b"Expect: 100-continue"),
    "upgrading": request(b"abc", b"Connection: Upgrade", b"Upgrade: h2c"),
    "chunks": b"POST /x HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
    "chunks and length": request(b"3\r\nabc\r\n0\r\n\r\n", b"Transfer-Encoding: chunked", length=b"3"),
    "two": USUAL + USUAL,
    "lines before": b"\r\n" + USUAL,
    "lines behind": USUAL + b"\r\n",
    "bare ends": USUAL.replace(b"\r\n", b"\n"),
    "half": USUAL[:40],
    "the other half": USUAL[40:],
    "a get": b"GET /v1/models HTTP/1.1\r\nHost: here\r\n\r\n",
    "large head": request(b"abc", b"X: " + b"x" * MAX_CACHED_HEAD),
}


def read_byte_by_byte(pieces: Sequence[bytes]) -> tuple[list[Seen], bytes]:
    """In single bytes nothing is ever whole, so that only the parser reads it."""
    return read_requests(bytes((byte,)) for piece in pieces for byte in piece)


@given(st.lists(st.one_of(st.just("usual"), st.sampled_from(list(PIECES))), min_size=1, max_size=6))
def test_it_is_what_the_parser_would_have_understood(names: list[str]) -> None:
    pieces = [PIECES[name] for name in names]
    found, said = read_requests(pieces)
    expected, told = read_byte_by_byte(pieces)
    assert found == expected
    assert (said == b"") == (told == b"")


@pytest.mark.parametrize("name", list(PIECES))
def test_behind_and_before_one_that_is_remembered(name: str) -> None:
    pieces = [USUAL, PIECES[name], USUAL, PIECES[name], USUAL]
    assert read_requests(pieces)[0] == read_byte_by_byte(pieces)[0]


def test_the_parser_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[bytes] = []
    parse = ClientConnection._parse
    monkeypatch.setattr(ClientConnection, "_parse", lambda self, data: (parsed.append(data), parse(self, data)))
    read_requests([USUAL, PIECES["longer"], PIECES["empty"], PIECES["another path"], PIECES["another path"]])
    assert parsed == [USUAL, PIECES["another path"]]


def test_headers_are_each_requests_own() -> None:
    first, second, third = (one[3] for one in read_requests([USUAL, PIECES["longer"], USUAL])[0])
    assert (first["content-length"], second["content-length"]) == ("8", "18")
    assert first == third
    assert first is not third
