"""How a case is played over HTTP, through a gateway to a scripted provider.

The provider is a server on this machine that supports all protocols, by their paths. Plays run one after the
other; calls outside of a play are refused and counted, so that they cannot disturb the next one.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from typing import Any, ClassVar
from urllib.parse import quote, unquote, urlsplit

from msgspec import Struct, structs

from toolwire_conformance.peers import PEERS
from toolwire_conformance.peers.peer import COMPRESSORS, SSE, Framing, PeerHttp, encode_json, read_frames
from toolwire_conformance.player import AnswerCall, ClientCall, ClientView, ProviderAnswer, ReceivedCall
from toolwire_conformance.targets import Route, Router

ANSWER_TIMEOUT = 20.0
FRAME_TIMEOUT = 2.0
"""Seconds for a gateway to pass a frame on to the client."""
QUIET_SECONDS = 1.0
CLIENT_KEY = "conformance"


class HttpTransport:
    """Sends the player's calls through the gateway at a URL."""

    def __init__(
        self,
        url: str,
        provider: ProviderServer,
        router: Router,
        *,
        timeout: float = ANSWER_TIMEOUT,
        frame_timeout: float = FRAME_TIMEOUT,
        key: str = CLIENT_KEY,
    ) -> None:
        self._url, self._provider, self._router = urlsplit(url), provider, router
        self._timeout, self._frame_timeout, self._key = timeout, frame_timeout, key
        self._timeout_text = f"the answer did not end within {timeout:g} seconds"

    def send_call(self, call: ClientCall, answer: AnswerCall) -> ClientView:
        route = self._router(call.protocol, call.provider, call.model)
        if isinstance(route, str):
            return ClientView(501, {}, (route,))
        received = ReceivedText(self._frame_timeout)
        with self._provider.serve_play(call.provider, answer, received) as wrong_paths:
            status, headers, problem = self._exchange_call(call, route, received)
        if problem == self._timeout_text:
            self._provider.wait_until_quiet(min(QUIET_SECONDS, self._timeout))
        if call.leaves and self._provider.has_lingering_calls:
            problem = problem or "the gateway keeps reading from the provider after its client disconnected"
        if wrong_paths:
            problem = problem or f"the gateway called {wrong_paths[0]}, which is a path of another protocol"
        return ClientView(status, headers, received.pieces(), None, problem)

    def _exchange_call(
        self, call: ClientCall, route: Route, received: ReceivedText
    ) -> tuple[int, Mapping[str, str], str]:
        """Send the call and read its answer: status, headers, and what went wrong."""
        deadline = time.monotonic() + self._timeout
        status, headers = 0, dict[str, str]()
        path, sent, body = self._write_call(call, route)
        kind = HTTPSConnection if self._url.scheme == "https" else HTTPConnection
        connection = kind(self._url.netloc, timeout=self._timeout)
        try:
            connection.connect()
            socket = connection.sock
            connection.request("POST", path, body, sent)
            with connection.getresponse() as response:
                status, headers = response.status, dict(response.getheaders())
                framing = PEERS[call.protocol].http.framing
                if (response.getheader("content-type") or "").startswith(framing.content_type):
                    received.set_framing(framing)
                while True:
                    socket.settimeout(max(0.01, deadline - time.monotonic()))
                    data = response.read1(65536)
                    if not data or received.add_data(data, call.leaves):
                        return status, headers, ""
        except TimeoutError:
            return status, headers, self._timeout_text
        except (OSError, HTTPException) as error:
            return status, headers, f"the connection to the gateway broke: {error!r}"
        finally:
            connection.close()

    def _write_call(self, call: ClientCall, route: Route) -> tuple[str, dict[str, str], bytes]:
        """Path, headers and body, as the SDK of this protocol writes them."""
        http = PEERS[call.protocol].http
        path = http.other_paths[call.asks] if call.asks else (call.stream and http.stream_path) or http.path
        name, value = http.credential
        headers = {"content-type": "application/json", "accept": "application/json", **http.headers}
        headers |= {name: value.format(key=self._key)}
        headers |= {name.lower(): value for name, value in route.headers.items()}
        headers |= {"content-encoding": call.encoding} if call.encoding else {}
        body = call.body
        if http.has_model_in_body and isinstance(body, dict):
            body = {**body, "model": route.model} | ({"stream": True} if call.stream else {})
        base = self._url.path.rstrip("/").removesuffix("/v1")
        data = COMPRESSORS[call.encoding](encode_json(body).encode())
        return base + path.replace("{model}", quote(route.model, safe="/@")), headers, data


DRAIN_TIMEOUT = 5.0
"""Seconds for the provider calls of a play to end after the client has its answer."""
ENDLESS_INTERVAL = 0.05
"""Seconds between the frames of an endless stream."""
ENDLESS_LIMIT = 10.0
"""Seconds after which an endless stream ends anyway."""
SETTLE_TIMEOUT = 5.0
NO_PLAY_ERROR = '{"error":{"message":"no case is being played"}}'
WRONG_PROTOCOL_ERROR = '{"error":{"message":"this provider does not support this protocol"}}'


# --- the scripted provider ------------------------------------------------------------------------------------------


class ReceivedText:
    """The text that the client has received so far; the provider can wait for it."""

    def __init__(self, timeout: float = FRAME_TIMEOUT) -> None:
        self._timeout = timeout
        self._changed = threading.Condition()
        self._decoder = SSE.make_decoder()
        self._text = ""
        self._is_gone = False
        self._frame_marks: list[int] = []
        self._wait_failed = False
        """Did a wait time out? Then the play has failed, and later frames are not waited for."""

    def set_framing(self, framing: Framing) -> None:
        """How the stream that follows is sent."""
        self._decoder = framing.make_decoder()

    def add_data(self, data: bytes, awaited_text: str = "") -> bool:
        """Add received data. Has the awaited text, if any, been received?"""
        with self._changed:
            self._text += self._decoder.decode(data)
            self._changed.notify_all()
            return bool(awaited_text) and awaited_text in self._text

    def mark_gone(self) -> None:
        with self._changed:
            self._is_gone = True
            self._changed.notify_all()

    def wait_for_client(self, is_enough: Callable[[str], bool] | None) -> None:
        """After a frame was sent: wait until the client has received enough, and mark the position."""
        with self._changed:
            if is_enough is not None and not self._wait_failed:
                seen = self._changed.wait_for(lambda: self._is_gone or is_enough(self._text), self._timeout)
                self._wait_failed = not seen
            self._frame_marks.append(len(self._text))

    def pieces(self) -> tuple[str, ...]:
        """The text received after each frame, and then the rest."""
        with self._changed:
            marks = [0, *self._frame_marks, len(self._text)]
            return tuple(self._text[start:end] for start, end in pairwise(marks))


class _ActivePlay(Struct, eq=False):
    """The play that the provider is answering."""

    protocol: str
    answer: AnswerCall
    received: ReceivedText
    lock: Any
    wrong_paths: list[str]
    open_calls: int = 0


class ProviderServer:
    """The provider's server. It handles one play at a time, with any number of calls."""

    def __init__(self, port: int = 0, models: Sequence[str] = (), drain_timeout: float = DRAIN_TIMEOUT) -> None:
        self._server = _HttpServer(("127.0.0.1", port), type("Handler", (_ProviderEndpoint,), {"server_state": self}))
        self.origin = f"http://127.0.0.1:{self._server.server_address[1]}"
        self.models = tuple(models)
        self.unexpected_calls: list[str] = []
        self._drain_timeout = drain_timeout
        self.has_lingering_calls = False
        """Were calls of the last play still open after it?"""
        self._changed = threading.Condition()
        self._active_play: _ActivePlay | None = None
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    @contextmanager
    def serve_play(self, protocol: str, answer: AnswerCall, received: ReceivedText) -> Iterator[list[str]]:
        """Answer calls in this protocol during the block. Gives a list that collects paths of other protocols."""
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
        """After a play that timed out: wait until its late calls have stopped."""
        deadline = time.monotonic() + SETTLE_TIMEOUT
        with self._changed:
            while self._changed.wait(quiet) and time.monotonic() < deadline:
                pass

    @contextmanager
    def enter_call(self, what: str) -> Iterator[_ActivePlay | None]:
        """The active play, for the time of one call; None if the call belongs to no play."""
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
        if not isinstance(sys.exception(), ConnectionError):  # gateways may disconnect
            super().handle_error(request, client_address)


class _ProviderEndpoint(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server_state: ClassVar[ProviderServer]

    def do_HEAD(self) -> None:
        self._send_whole(200, "")

    def do_GET(self) -> None:
        """A list of models, in the fields of all protocols."""
        names = self.server_state.models
        listed = [{"id": name, "object": "model", "created": 1767225600, "owned_by": "conformance"} for name in names]
        models = [{"name": f"models/{name}"} for name in names]
        self._send_whole(200, encode_json({"object": "list", "data": listed, "has_more": False, "models": models}))

    def do_POST(self) -> None:
        data = self._read_body()
        url = urlsplit(self.path)
        path = unquote(url.path)
        if any(peer.http.count_path and path.endswith(peer.http.count_path) for peer in PEERS.values()):
            tokens = 1 + len(data) // 4  # a rough count, in the fields of all protocols
            counts = {"object": "response.input_tokens", "input_tokens": tokens}
            counts |= {"totalTokens": tokens, "inputTokens": tokens}
            self._send_whole(200, encode_json(counts))
            return
        with self.server_state.enter_call(f"POST {path}") as play:
            if play is None:
                self._send_whole(500, NO_PLAY_ERROR)
            elif (received := _read_call(PEERS[play.protocol].http, path, data)) is None:
                play.wrong_paths.append(path)
                self._send_whole(404, WRONG_PROTOCOL_ERROR)
            else:
                with play.lock:
                    given = play.answer(received)
                framed = PEERS[play.protocol].http.frames_query in url.query
                framing = PEERS[play.protocol].http.framing
                self._send_answer(given if framed else _as_json_array(given), play.received, framing)

    def _read_body(self) -> bytes:
        if "chunked" not in self.headers.get("transfer-encoding", ""):
            return self.rfile.read(int(self.headers.get("content-length") or 0))
        data = b""
        while size := int(self.rfile.readline().partition(b";")[0], 16):
            data += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return data

    def _send_answer(self, answer: ProviderAnswer, received: ReceivedText, framing: Framing) -> None:
        if not answer.stream:
            self._send_whole(answer.status, "".join(answer.pieces), answer)
            return
        self._send_head(answer.status, answer, framing.content_type)
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        # Without a wait all frames are sent at once, so that the gateway's behaviour does not depend on timing.
        pieces = answer.pieces if answer.awaited else ("".join(answer.pieces),)
        try:
            for number, piece in enumerate(pieces):
                for data in _split_bytes(framing.encode(piece), answer.bytewise):
                    self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))
                received.wait_for_client(answer.awaited.get(number))
            if answer.cut or answer.endless:
                self._send_endless(framing.encode(answer.pieces[-1]) if answer.endless else b"")
            else:
                self.wfile.write(b"0\r\n\r\n")
        except OSError:
            self.close_connection = True  # the gateway disconnected; the player judges what its client received

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
        """Repeat the frame until the gateway disconnects; without a frame, close the connection at once."""
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


def _read_call(http: PeerHttp, path: str, data: bytes) -> ReceivedCall | None:
    """The call as this protocol reads it; None if the path belongs to another protocol."""
    found = http.path_pattern.search(path)
    if found is None:
        return None
    try:
        body = json.loads(data)
    except ValueError:
        body = None
    if not http.has_model_in_body:
        return ReceivedCall(body, found["model"], found["stream"] is not None)
    fields = body if isinstance(body, dict) else {}
    return ReceivedCall(body, str(fields.get("model") or ""), bool(fields.get("stream")))


def _split_bytes(data: bytes, bytewise: bool) -> list[bytes]:
    return [data[at : at + 1] for at in range(len(data))] if bytewise else [data]


def _as_json_array(answer: ProviderAnswer) -> ProviderAnswer:
    """The stream as one JSON array, for a Gemini call without `alt=sse`."""
    if not answer.stream:
        return answer
    elements = [",\r\n".join(frame.text for frame in read_frames(piece)) + "\n" for piece in answer.pieces]
    pieces = ["[" + elements[0], *(",\r\n" + element for element in elements[1:]), "]\n"]
    return structs.replace(answer, pieces=tuple(pieces), headers={**answer.headers, "content-type": "application/json"})
