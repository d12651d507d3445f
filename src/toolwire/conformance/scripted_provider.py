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

from toolwire.conformance.peers import PEERS
from toolwire.conformance.peers.peer import PeerHttp
from toolwire.conformance.player import AnswerCall, ProviderAnswer, ReceivedCall
from toolwire.conformance.wire_encoding import encode_json, read_frames

Json: TypeAlias = Any
FRAME_TIMEOUT = 2.0
"""Seconds that a gateway has to show a client what it was just given."""
DRAIN_TIMEOUT = 5.0
"""Seconds that calls of a play have to end after the client has what it wanted."""
ENDLESS_INTERVAL = 0.05
"""Seconds between the frames of a stream that has no end."""
ENDLESS_LIMIT = 10.0
"""Seconds after which it has one."""
SETTLE_TIMEOUT = 5.0
NO_PLAY_ERROR = '{"error":{"message":"nothing is asked of this provider now"}}'
WRONG_PROTOCOL_ERROR = '{"error":{"message":"this provider does not speak this protocol"}}'


class ReceivedText:
    """What the client has received so far; the provider can wait for it."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._text = ""
        self._is_gone = False
        self._frame_marks: list[int] = []
        self._wait_failed = False
        """Was something waited for that did not come? Then the play is lost, and nothing more is waited for."""

    def add_data(self, data: bytes, awaited_text: str = "") -> bool:
        """Take this in. Has the piece, if there is one, come by now?"""
        with self._changed:
            self._text += self._decoder.decode(data)
            self._changed.notify_all()
            return bool(awaited_text) and awaited_text in self._text

    def mark_gone(self) -> None:
        with self._changed:
            self._is_gone = True
            self._changed.notify_all()

    def wait_for_client(self, is_enough: Callable[[str], bool] | None, timeout: float = FRAME_TIMEOUT) -> None:
        """A frame was sent: wait until that is enough for the client, and mark how far it has come."""
        with self._changed:
            if is_enough is not None and not self._wait_failed:
                self._wait_failed = not self._changed.wait_for(lambda: self._is_gone or is_enough(self._text), timeout)
            self._frame_marks.append(len(self._text))

    def pieces(self) -> tuple[str, ...]:
        """What was received after each frame, and at last the rest."""
        with self._changed:
            marks = [0, *self._frame_marks, len(self._text)]
            return tuple(self._text[start:end] for start, end in pairwise(marks))


class _ActivePlay(Struct, eq=False):
    """What is asked of the provider now: in which protocol, and who answers."""

    protocol: str
    answer: AnswerCall
    received: ReceivedText
    lock: Any
    wrong_paths: list[str]
    open_calls: int = 0


class ProviderServer:
    """The server. One play at a time; any number of calls in it."""

    def __init__(self, port: int = 0, models: Sequence[str] = (), drain_timeout: float = DRAIN_TIMEOUT) -> None:
        self._server = _HttpServer(("127.0.0.1", port), type("Handler", (_ProviderEndpoint,), {"server_state": self}))
        self.origin = f"http://127.0.0.1:{self._server.server_address[1]}"
        self.models = tuple(models)
        self.unexpected_calls: list[str] = []
        self._drain_timeout = drain_timeout
        self.has_lingering_calls = False
        """Did calls of the last play go on after it?"""
        self._changed = threading.Condition()
        self._active_play: _ActivePlay | None = None
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    @contextmanager
    def serve_play(self, protocol: str, answer: AnswerCall, received: ReceivedText) -> Iterator[list[str]]:
        """Answer calls in this protocol until the end of the block. Gives the paths that were of another."""
        play = _ActivePlay(protocol, answer, received, threading.Lock(), [])
        with self._changed:
            self._active_play = play
        try:
            yield play.wrong_paths
        finally:
            received.mark_gone()
            with self._changed:
                self._active_play = None
                self.has_lingering_calls = not self._changed.wait_for(lambda: play.open_calls == 0, self._drain_timeout)

    def wait_until_quiet(self, quiet: float) -> None:
        """After a play that went astray: wait until no call of it has come for a while."""
        deadline = time.monotonic() + SETTLE_TIMEOUT
        with self._changed:
            while self._changed.wait(quiet) and time.monotonic() < deadline:
                pass

    @contextmanager
    def enter_call(self, what: str) -> Iterator[_ActivePlay | None]:
        """The play under way, as long as one call is answered; none is a stray call."""
        with self._changed:
            play = self._active_play
            if play is None:
                self.unexpected_calls.append(what)
                self._changed.notify_all()
            else:
                play.open_calls += 1
        try:
            yield play
        finally:
            if play is not None:
                with self._changed:
                    play.open_calls -= 1
                    self._changed.notify_all()


class _HttpServer(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), ConnectionError):  # gateways leave as they like
            super().handle_error(request, client_address)


class _ProviderEndpoint(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server_state: ClassVar[ProviderServer]

    def do_HEAD(self) -> None:
        self._send_whole(200, "")

    def do_GET(self) -> None:
        self._send_whole(200, encode_json(_write_models(self.server_state.models)))

    def do_POST(self) -> None:
        data = self._read_body()
        asked = urlsplit(self.path)
        path = unquote(asked.path)
        if any(wire.count_path and path.endswith(wire.count_path) for wire in _HTTP_SHAPES.values()):
            self._send_whole(200, encode_json(_count_tokens(data)))
            return
        with self.server_state.enter_call(f"POST {path}") as play:
            if play is None:
                self._send_whole(500, NO_PLAY_ERROR)
            elif (received := _read_call(_HTTP_SHAPES[play.protocol], path, data)) is None:
                play.wrong_paths.append(path)
                self._send_whole(404, WRONG_PROTOCOL_ERROR)
            else:
                with play.lock:
                    given = play.answer(received)
                framed = _HTTP_SHAPES[play.protocol].frames_query in asked.query
                self._send_answer(given if framed else _as_json_array(given), play.received)

    def _read_body(self) -> bytes:
        if "chunked" not in self.headers.get("transfer-encoding", ""):
            return self.rfile.read(int(self.headers.get("content-length") or 0))
        data = b""
        while size := int(self.rfile.readline().partition(b";")[0], 16):
            data += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return data

    def _send_answer(self, answer: ProviderAnswer, received: ReceivedText) -> None:
        if not answer.stream:
            self._send_whole(answer.status, "".join(answer.pieces), answer)
            return
        self._send_head(answer.status, answer, "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        # Frames that nobody watches go out at once, so that what a gateway makes of them depends on no race.
        pieces = answer.pieces if answer.awaited else ("".join(answer.pieces),)
        try:
            for number, piece in enumerate(pieces):
                for data in _split_bytes(piece.encode(), answer.bytewise):
                    self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))
                received.wait_for_client(answer.awaited.get(number))
            if answer.cut or answer.endless:
                self._send_endless(answer.pieces[-1].encode() if answer.endless else b"")
            else:
                self.wfile.write(b"0\r\n\r\n")
        except OSError:
            self.close_connection = True  # the gateway has left; what its client got is judged

    def _send_whole(self, status: int, text: str, answer: ProviderAnswer | None = None) -> None:
        data = text.encode()
        self._send_head(status, answer, "application/json")
        short = answer is not None and (answer.cut or answer.endless)
        self.send_header("content-length", str(len(data) + short))
        self.end_headers()
        try:
            for part in _split_bytes(data, answer is not None and answer.bytewise):
                self.wfile.write(part)
            self.close_connection |= short
        except OSError:
            self.close_connection = True

    def _send_endless(self, frame: bytes) -> None:
        """No end: say this again and again until the gateway hangs up; or say nothing, and hang up at once."""
        self.close_connection = True
        self.connection.settimeout(ENDLESS_INTERVAL)
        deadline = time.monotonic() + ENDLESS_LIMIT
        while frame and time.monotonic() < deadline:
            try:
                if not self.connection.recv(1):
                    return
            except TimeoutError:
                self.wfile.write(b"%x\r\n%b\r\n" % (len(frame), frame))

    def _send_head(self, status: int, answer: ProviderAnswer | None, content_type: str) -> None:
        self.send_response(status)
        headers = answer.headers if answer is not None else {}
        if not any(name.lower() == "content-type" for name in headers):
            self.send_header("content-type", content_type)
        for name, value in headers.items():
            self.send_header(name, value)

    def log_message(self, format: str, *args: object) -> None:
        pass


_HTTP_SHAPES: dict[str, PeerHttp] = {name: dialect.http for name, dialect in PEERS.items()}


def _read_call(http: PeerHttp, path: str, data: bytes) -> ReceivedCall | None:
    """The call as this protocol has it; None where the path is another protocol's."""
    found = http.path_pattern.search(path)
    if found is None:
        return None
    try:
        body = json.loads(data)
    except ValueError:
        body = None
    groups = found.groupdict()
    if http.has_model_in_body:
        said = body if isinstance(body, dict) else {}
        return ReceivedCall(body, str(said.get("model") or ""), bool(said.get("stream")))
    return ReceivedCall(body, groups["model"], groups["stream"] is not None)


def _split_bytes(data: bytes, bytewise: bool) -> list[bytes]:
    return [data[at : at + 1] for at in range(len(data))] if bytewise else [data]


def _count_tokens(data: bytes) -> Json:
    """Tokens, roughly, as clients of any protocol read them."""
    tokens = 1 + len(data) // 4
    return {"object": "response.input_tokens", "input_tokens": tokens, "totalTokens": tokens}


def _as_json_array(answer: ProviderAnswer) -> ProviderAnswer:
    """A stream for those who did not ask for frames: the same elements, in one array that grows."""
    if not answer.stream:
        return answer
    elements = [",\r\n".join(frame.text for frame in read_frames(piece)) + "\n" for piece in answer.pieces]
    pieces = ["[" + elements[0], *(",\r\n" + element for element in elements[1:]), "]\n"]
    return structs.replace(answer, pieces=tuple(pieces), headers={**answer.headers, "content-type": "application/json"})


def _write_models(names: Sequence[str]) -> Json:
    """A list of models that clients of any protocol can read."""
    listed = [{"id": name, "object": "model", "created": 1767225600, "owned_by": "stage"} for name in names]
    return {"object": "list", "data": listed, "has_more": False, "models": [{"name": f"models/{n}"} for n in names]}
