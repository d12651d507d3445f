"""The provider's side over HTTP: a server on loopback that speaks all protocols, told apart by path, and answers as the
play under way says. What arrives outside of a play is refused and noted, so that it cannot disturb the next one."""

from __future__ import annotations

import codecs
import json
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from typing import Any, ClassVar, TypeAlias
from urllib.parse import unquote, urlsplit

from msgspec import Struct, structs

from toolwire.conformance.dialects import DIALECTS
from toolwire.conformance.dialects.dialect import Wire
from toolwire.conformance.frames import compact, frames_of
from toolwire.conformance.player import Answerer, Given, Received

Json: TypeAlias = Any
BETWEEN_FRAMES = 2.0
"""Seconds that a gateway has to show a client what it was just given."""
LEAVING = 5.0
"""Seconds that calls of a play have to end after the client has what it wanted."""
BEYOND = 0.05
"""Seconds between the frames of a stream that has no end."""
ENDLESS = 10.0
"""Seconds after which it has one."""
SETTLING = 5.0
UNASKED = '{"error":{"message":"nothing is asked of this provider now"}}'
ELSEWHERE = '{"error":{"message":"this provider does not speak this protocol"}}'


class Audience:
    """What the client has received so far; the provider can wait for it."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._text = ""
        self._gone = False
        self._marks: list[int] = []
        self._in_vain = False
        """Was something waited for that did not come? Then the play is lost, and nothing more is waited for."""

    def hear(self, data: bytes, piece: str = "") -> bool:
        """Take this in. Has the piece, if there is one, come by now?"""
        with self._changed:
            self._text += self._decoder.decode(data)
            self._changed.notify_all()
            return bool(piece) and piece in self._text

    def leave(self) -> None:
        with self._changed:
            self._gone = True
            self._changed.notify_all()

    def wait(self, enough: Callable[[str], bool] | None, patience: float = BETWEEN_FRAMES) -> None:
        """A frame was sent: wait until that is enough for the client, and mark how far it has come."""
        with self._changed:
            if enough is not None and not self._in_vain:
                self._in_vain = not self._changed.wait_for(lambda: self._gone or enough(self._text), patience)
            self._marks.append(len(self._text))

    def pieces(self) -> tuple[str, ...]:
        """What was received after each frame, and at last the rest."""
        with self._changed:
            marks = [0, *self._marks, len(self._text)]
            return tuple(self._text[start:end] for start, end in pairwise(marks))


class _Play(Struct, eq=False):
    """What is asked of the provider now: in which protocol, and who answers."""

    protocol: str
    answer: Answerer
    audience: Audience
    lock: Any
    elsewhere: list[str]
    calls: int = 0


class Stage:
    """The server. One play at a time; any number of calls in it."""

    def __init__(self, port: int = 0, models: Sequence[str] = (), leaving: float = LEAVING) -> None:
        self._server = _Server(("127.0.0.1", port), type("Handler", (_Handler,), {"stage": self}))
        self.origin = f"http://127.0.0.1:{self._server.server_address[1]}"
        self.models = tuple(models)
        self.strays: list[str] = []
        self._leaving = leaving
        self.lingering = False
        """Did calls of the last play go on after it?"""
        self._changed = threading.Condition()
        self._play: _Play | None = None
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    @contextmanager
    def playing(self, protocol: str, answer: Answerer, audience: Audience) -> Iterator[list[str]]:
        """Answer calls in this protocol until the end of the block. Gives the paths that were of another."""
        play = _Play(protocol, answer, audience, threading.Lock(), [])
        with self._changed:
            self._play = play
        try:
            yield play.elsewhere
        finally:
            audience.leave()
            with self._changed:
                self._play = None
                self.lingering = not self._changed.wait_for(lambda: play.calls == 0, self._leaving)

    def settle(self, quiet: float) -> None:
        """After a play that went astray: wait until no call of it has come for a while."""
        deadline = time.monotonic() + SETTLING
        with self._changed:
            while self._changed.wait(quiet) and time.monotonic() < deadline:
                pass

    @contextmanager
    def entered(self, what: str) -> Iterator[_Play | None]:
        """The play under way, as long as one call is answered; none is a stray call."""
        with self._changed:
            play = self._play
            if play is None:
                self.strays.append(what)
                self._changed.notify_all()
            else:
                play.calls += 1
        try:
            yield play
        finally:
            if play is not None:
                with self._changed:
                    play.calls -= 1
                    self._changed.notify_all()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), ConnectionError):  # gateways leave as they like
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    stage: ClassVar[Stage]

    def do_HEAD(self) -> None:
        self._whole(200, "")

    def do_GET(self) -> None:
        self._whole(200, compact(_models(self.stage.models)))

    def do_POST(self) -> None:
        data = self._data()
        asked = urlsplit(self.path)
        path = unquote(asked.path)
        if any(wire.counts and path.endswith(wire.counts) for wire in _WIRES.values()):
            self._whole(200, compact(_counted(data)))
            return
        with self.stage.entered(f"POST {path}") as play:
            if play is None:
                self._whole(500, UNASKED)
            elif (received := _received(_WIRES[play.protocol], path, data)) is None:
                play.elsewhere.append(path)
                self._whole(404, ELSEWHERE)
            else:
                with play.lock:
                    given = play.answer(received)
                framed = _WIRES[play.protocol].frames_query in asked.query
                self._give(given if framed else _as_array(given), play.audience)

    def _data(self) -> bytes:
        if "chunked" not in self.headers.get("transfer-encoding", ""):
            return self.rfile.read(int(self.headers.get("content-length") or 0))
        data = b""
        while size := int(self.rfile.readline().partition(b";")[0], 16):
            data += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return data

    def _give(self, given: Given, audience: Audience) -> None:
        if not given.stream:
            self._whole(given.status, "".join(given.pieces), given)
            return
        self._head(given.status, given, "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        # Frames that nobody watches go out at once, so that what a gateway makes of them depends on no race.
        pieces = given.pieces if given.awaited else ("".join(given.pieces),)
        try:
            for number, piece in enumerate(pieces):
                for data in _parts(piece.encode(), given.bytewise):
                    self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))
                audience.wait(given.awaited.get(number))
            if given.cut or given.endless:
                self._go_on(given.pieces[-1].encode() if given.endless else b"")
            else:
                self.wfile.write(b"0\r\n\r\n")
        except OSError:
            self.close_connection = True  # the gateway has left; what its client got is judged

    def _whole(self, status: int, text: str, given: Given | None = None) -> None:
        data = text.encode()
        self._head(status, given, "application/json")
        short = given is not None and (given.cut or given.endless)
        self.send_header("content-length", str(len(data) + short))
        self.end_headers()
        try:
            for part in _parts(data, given is not None and given.bytewise):
                self.wfile.write(part)
            self.close_connection |= short
        except OSError:
            self.close_connection = True

    def _go_on(self, frame: bytes) -> None:
        """No end: say this again and again until the gateway hangs up; or say nothing, and hang up at once."""
        self.close_connection = True
        self.connection.settimeout(BEYOND)
        deadline = time.monotonic() + ENDLESS
        while frame and time.monotonic() < deadline:
            try:
                if not self.connection.recv(1):
                    return
            except TimeoutError:
                self.wfile.write(b"%x\r\n%b\r\n" % (len(frame), frame))

    def _head(self, status: int, given: Given | None, content_type: str) -> None:
        self.send_response(status)
        headers = given.headers if given is not None else {}
        if not any(name.lower() == "content-type" for name in headers):
            self.send_header("content-type", content_type)
        for name, value in headers.items():
            self.send_header(name, value)

    def log_message(self, format: str, *args: object) -> None:
        pass


_WIRES: dict[str, Wire] = {name: dialect.wire for name, dialect in DIALECTS.items()}


def _received(wire: Wire, path: str, data: bytes) -> Received | None:
    """The call as this protocol has it; None where the path is another protocol's."""
    found = wire.listens.search(path)
    if found is None:
        return None
    try:
        body = json.loads(data)
    except ValueError:
        body = None
    groups = found.groupdict()
    if wire.in_body:
        said = body if isinstance(body, dict) else {}
        return Received(body, str(said.get("model") or ""), bool(said.get("stream")))
    return Received(body, groups["model"], groups["stream"] is not None)


def _parts(data: bytes, bytewise: bool) -> list[bytes]:
    return [data[at : at + 1] for at in range(len(data))] if bytewise else [data]


def _counted(data: bytes) -> Json:
    """Tokens, roughly, as clients of any protocol read them."""
    tokens = 1 + len(data) // 4
    return {"object": "response.input_tokens", "input_tokens": tokens, "totalTokens": tokens}


def _as_array(given: Given) -> Given:
    """A stream for those who did not ask for frames: the same elements, in one array that grows."""
    if not given.stream:
        return given
    elements = [",\r\n".join(frame.text for frame in frames_of(piece)) + "\n" for piece in given.pieces]
    pieces = ["[" + elements[0], *(",\r\n" + element for element in elements[1:]), "]\n"]
    return structs.replace(given, pieces=tuple(pieces), headers={**given.headers, "content-type": "application/json"})


def _models(names: Sequence[str]) -> Json:
    """A list of models that clients of any protocol can read."""
    listed = [{"id": name, "object": "model", "created": 1767225600, "owned_by": "stage"} for name in names]
    return {"object": "list", "data": listed, "has_more": False, "models": [{"name": f"models/{n}"} for n in names]}
