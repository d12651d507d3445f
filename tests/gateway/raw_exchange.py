"""A provider that plays bytes, a gateway whose log can be waited for, and clients that see bytes: nothing in between.

Every test has scenes of its own, found by a mark in the model's name, so one provider and one gateway serve them all.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import queue
import re
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, Literal

import uvicorn
import uvloop

from gateway.provider import ANSWERS, ScriptedAnswer
from toolwire.gateway.app import Gateway
from toolwire.gateway.configuration.live_config import LiveConfig
from toolwire.gateway.features import Features
from toolwire.gateway.http.server import HttpServer
from toolwire.gateway.telemetry.telemetry import Telemetry
from toolwire_conformance.peers import PEERS
from toolwire_conformance.peers.peer import SseFrame, encode_json, read_frames
from waits import PATIENCE

PROVIDERS = ("openai-chat", "openai-responses", "anthropic", "gemini")
CLIENTS = (*PROVIDERS, "unified")
NAMES = {
    "openai-chat": "gpt-4.1",
    "openai-responses": "gpt-5.5",
    "anthropic": "claude-sonnet-4-5",
    "gemini": "gemini-3.8-flash",
}
PROVIDER_KEY = "sk-provider-key-0123456789"
CLIENT_KEY = "tw-client-key-0123456789"

Play = bytes | Callable[["ScriptedConnection"], None]


# --- the provider -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ReceivedRequest:
    """A request as it came, byte for byte."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Scene:
    """What is played for one model: a play for each request, the last one again for all that follow."""

    mark: str
    model: str
    """With the provider before it, as clients ask for it."""
    plays: list[Play]
    asked: list[ReceivedRequest] = field(default_factory=list)
    reached: threading.Event = field(default_factory=threading.Event)
    """Set by a play that waits."""
    go: threading.Event = field(default_factory=threading.Event)
    """What such a play waits for."""
    gone: threading.Event = field(default_factory=threading.Event)
    """Its client has left."""

    @property
    def name(self) -> str:
        return self.model.partition("/")[2]


class ScriptedConnection:
    """The provider's end of a connection."""

    def __init__(self, connection: socket.socket, scene: Scene) -> None:
        self.connection = connection
        self.scene = scene

    def send(self, *pieces: bytes) -> None:
        """Send these. A head says that the connection is closed behind the play: the other side must not keep it, or
        its next request might find out too late."""
        for piece in pieces:
            if piece.startswith(b"HTTP/1.1 ") and b"connection:" not in piece.partition(b"\r\n\r\n")[0].lower():
                piece = piece.replace(b"\r\n", b"\r\nconnection: close\r\n", 1)
            self.connection.sendall(piece)

    def chunk(self, *pieces: bytes) -> None:
        for piece in pieces:
            self.send(b"%x\r\n%b\r\n" % (len(piece), piece))

    def wait_for_release(self) -> None:
        self.scene.reached.set()
        assert self.scene.go.wait(PATIENCE)

    def wait_for_close(self) -> None:
        """Until the other side hangs up; it fails if that does not happen."""
        self.scene.reached.set()
        self.connection.settimeout(PATIENCE)
        try:
            while self.connection.recv(65536):
                pass
        except ConnectionError:
            pass
        self.scene.gone.set()


class RawProvider:
    """The provider: all protocols, any path; the mark alone tells what is played."""

    MARK = re.compile(rb"-(s\d+x)")

    def __init__(self, keeps_alive: bool = True) -> None:
        self.keeps_alive = keeps_alive
        """May another request follow on a connection?"""
        self._numbers = count(1)
        self.scenes: dict[bytes, Scene] = {}
        """What is played, by the mark in a request; tests put a scene under a mark of their own here."""
        self._listening = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port: int = self._listening.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.faults: list[BaseException] = []
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()

    def scene(self, protocol: str, *plays: Play, provider: str = "", model: str = "") -> Scene:
        mark = f"s{next(self._numbers)}x"
        name = f"{model or NAMES[protocol]}-{mark}"
        scene = Scene(mark, f"{provider or parametrize_protocols(protocol)}/{name}", list(plays))
        self.scenes[mark.encode()] = scene
        return scene

    def close(self) -> None:
        # First the thread: one that still waits on a number that is given to another socket would take its connections.
        self._listening.shutdown(socket.SHUT_RDWR)
        self._accepting.join()
        self._listening.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as reader:
            try:
                while self._answer_one(connection, reader):
                    pass
            except ConnectionError:
                return
            except AssertionError as fault:
                self.faults.append(fault)

    def _answer_one(self, connection: socket.socket, reader: Any) -> bool:
        if reader.peek(1)[:1] == b"\x16":  # somebody greets in TLS
            connection.sendall(answer(400, b"plain HTTP only", "text/plain"))
            return False
        line = reader.readline().decode("latin-1")
        if not line:
            return False
        headers = {}
        while row := reader.readline().decode("latin-1").rstrip("\r\n"):
            name, _, value = row.partition(": ")
            headers[name.lower()] = value
        body = reader.read(int(headers.get("content-length", 0)))
        method, target, _ = line.split(" ")
        found = self.MARK.search(target.encode() + b" " + headers.get("x-mark", "").encode() + b" " + body)
        if found is None:
            connection.sendall(answer(404, b'{"error":{"message":"no mark"}}'))
            return self.keeps_alive
        scene = self.scenes[found[1]]
        scene.asked.append(ReceivedRequest(method, target, headers, body))
        play = scene.plays[min(len(scene.asked), len(scene.plays)) - 1]
        if isinstance(play, bytes):
            connection.sendall(play)
            return self.keeps_alive
        play(ScriptedConnection(connection, scene))
        with suppress(OSError):  # the other side may have hung up already
            connection.shutdown(socket.SHUT_RDWR)
        return False


def parametrize_protocols(protocol: str) -> str:
    """What the configuration calls the provider."""
    return protocol.removeprefix("openai-")


# --- its bytes --------------------------------------------------------------------------------------------------------

REASONS = {200: "OK", 429: "Too Many Requests", 500: "Internal Server Error"}
STREAM_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


def answer(status: int, body: bytes, kind: str = "application/json", **headers: str) -> bytes:
    """A whole answer; underscores in names of headers become hyphens."""
    more = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    head = f"HTTP/1.1 {status} {REASONS.get(status, 'Status')}\r\ncontent-type: {kind}\r\n{more}content-length: {len(body)}\r\n\r\n"
    return head.encode() + body


def write_chunked(*pieces: bytes, end: bool = True) -> bytes:
    body = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces)
    return STREAM_HEAD + body + (b"0\r\n\r\n" if end else b"")


def body_of(protocol: str, says: ScriptedAnswer, model: str = "the-model") -> dict[str, Any]:
    ids = [str(number) for number in range(len(says.calls))] or ["0"]
    whole: dict[str, Any] = PEERS[protocol].complete_answer(ANSWERS[protocol](says, ids), model)
    return whole


def whole_answer(protocol: str, text: str = "Hello there.", **headers: str) -> bytes:
    return answer(200, encode_json(body_of(protocol, ScriptedAnswer(text))).encode(), **headers)


def frames(protocol: str, text: str = "Hello there.") -> list[bytes]:
    return [frame.encode() for frame in PEERS[protocol].write_stream(body_of(protocol, ScriptedAnswer(text)))]


def stream_steps(protocol: str, text: str = "Hello there.") -> bytes:
    return write_chunked(*frames(protocol, text))


def play_script(protocol: str, stream: bool, text: str = "Hello there.") -> bytes:
    return stream_steps(protocol, text) if stream else whole_answer(protocol, text)


CONTENT = {
    "openai-chat": b'"content":"',
    "openai-responses": b"response.output_text.delta",
    "anthropic": b"content_block_delta",
    "gemini": b'"text":"',
}


def opening_frames(protocol: str) -> list[bytes]:
    """The frames of a stream up to the first that holds some text."""
    every = frames(protocol, "Hello there, how are you today?")
    for number, frame in enumerate(every):
        if CONTENT[protocol] in frame and b'"content":""' not in frame:
            return every[: number + 1]
    raise AssertionError("no text in this stream")


def refusal(protocol: str, status: int, kind: str, message: str, code: str | None = None) -> bytes:
    if protocol == "anthropic":
        return encode_json({"type": "error", "error": {"type": kind, "message": message}}).encode()
    if protocol == "gemini":
        return encode_json({"error": {"code": status, "message": message, "status": kind}}).encode()
    return encode_json({"error": {"message": message, "type": kind, "param": None, "code": code}}).encode()


BUSY = {
    "openai-chat": (503, "service_unavailable_error"),
    "openai-responses": (503, "service_unavailable_error"),
    "anthropic": (529, "overloaded_error"),
    "gemini": (503, "UNAVAILABLE"),
}


def busy_answer(protocol: str) -> bytes:
    status, kind = BUSY[protocol]
    return answer(status, refusal(protocol, status, kind, "Too busy just now."))


def error_frame(protocol: str) -> bytes:
    """The frame that says in a stream that it failed."""
    status, kind = BUSY[protocol]
    said = refusal(protocol, status, kind, "Too busy just now.")
    if protocol == "openai-responses":
        error = {"code": "server_is_overloaded", "message": "Too busy just now."}
        response = PEERS[protocol].complete_answer({"status": "failed", "error": error, "usage": None}, "m")
        said = encode_json({"type": "response.failed", "sequence_number": 9, "response": response}).encode()
        return b"event: response.failed\ndata: " + said + b"\n\n"
    return (b"event: error\n" if protocol == "anthropic" else b"") + b"data: " + said + b"\n\n"


# --- the gateway ------------------------------------------------------------------------------------------------------


def configuration(wire: RawProvider, server: str = "", more: str = "", forward: bool = False) -> str:
    """One provider for each protocol, all at the wire's address; nothing is tried twice, and none ever rests."""
    lines = ["[server]", server]
    if "retries" not in server:
        lines.append("retries = 0")
    if "cooldown_after" not in server:
        lines.append("cooldown_after = 1000000")
    for protocol in PROVIDERS:
        credential = "forward_auth = true" if forward else f'api_key = "{PROVIDER_KEY}"'
        lines.append(
            f'[providers.{parametrize_protocols(protocol)}]\nprotocols = ["{protocol}"]\nbase_url = "{wire.url}"\n{credential}'
        )
    return "\n".join(lines) + "\n" + more


class Served:
    """A gateway that serves, its log, and the provider behind it."""

    def __init__(self, port: int, wire: RawProvider, gateway: Gateway, lines: queue.Queue[str]) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.port = port
        self.wire = wire
        self.gateway = gateway
        self.lines = lines
        self.scene = wire.scene

    @property
    def features(self) -> Features:
        """What the gateway's features keep."""
        assert self.gateway.features is not None
        return self.gateway.features

    def line(self, request_id: str) -> dict[str, Any]:
        """The log line of this exchange, which may come a moment after its answer."""
        while True:
            found: dict[str, Any] = json.loads(self.lines.get(timeout=PATIENCE))
            if found.get("request_id") == request_id:
                return found


@contextmanager
def stage(folder: Path, server: str = "", more: str = "", forward: bool = False, host: str = "own") -> Iterator[Served]:
    """A provider and a gateway before it, until the end of the block; `{plain}` in `more` is the provider's address, and
    `{secure}` the same as if it spoke TLS. The gateway runs in its own server, or in one of others by the standard."""
    wire = RawProvider()
    file = folder / "toolwire.toml"
    more = more.replace("{plain}", wire.url).replace("{secure}", wire.url.replace("http:", "https:"))
    text = configuration(wire, server, more, forward)
    file.write_text(text)
    live = LiveConfig(file, {"HOME": os.devnull}, lambda found: None)
    lines: queue.Queue[str] = queue.Queue()

    def log(text: str) -> None:
        for line in text.splitlines():
            lines.put(line)

    gateway = Gateway(live, Telemetry(live.current.server, log))
    with closing(wire), (run_own_server if host == "own" else run_uvicorn)(gateway) as port:
        yield Served(port, wire, gateway, lines)
    assert not wire.faults


@contextmanager
def run_own_server(gateway: Gateway, bound: socket.socket | None = None) -> Iterator[int]:
    """The gateway's own server, in a thread."""
    with bound or socket.create_server(("127.0.0.1", 0), backlog=128) as listening:
        port = listening.getsockname()[1]
        listening.setblocking(False)
        ready = threading.Event()
        stop: list[Callable[[], object]] = []

        async def run() -> None:
            loop, stopped = asyncio.get_running_loop(), asyncio.Event()
            stop.append(lambda: loop.call_soon_threadsafe(stopped.set))
            made = HttpServer(gateway.handle_request, gateway.answer_internal_error, gateway.admission)
            gateway.open()
            await made.listen(listening, 128)
            ready.set()
            await stopped.wait()
            await made.close(1)
            await gateway.close()

        def work() -> None:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(run())

        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        assert ready.wait(PATIENCE)
        try:
            yield port
        finally:
            stop[0]()
            thread.join()


@contextmanager
def run_uvicorn(app: Any, lifespan: Literal["on", "off"] = "on", ws: Any = "none") -> Iterator[int]:
    """Any application in a server of others, on a port of its own."""
    with socket.create_server(("127.0.0.1", 0), backlog=128) as listening:
        config = uvicorn.Config(
            app, log_config=None, access_log=False, lifespan=lifespan, ws=ws, timeout_graceful_shutdown=1
        )
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        try:
            yield listening.getsockname()[1]
        finally:
            server.should_exit = True
            thread.join()


# --- clients ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RawAnswer:
    status: int
    headers: Mapping[str, str]
    data: bytes
    whole: bool = True
    """Did the body come to its proper end?"""

    def json(self) -> Any:
        return json.loads(self.data)

    @property
    def frames(self) -> list[SseFrame]:
        return read_frames(self.data.decode())

    @property
    def id(self) -> str:
        return self.headers["x-request-id"]


class RawConnection:
    """One connection to the gateway, for a client that looks at what comes or leaves."""

    def __init__(self, port: int) -> None:
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)

    def send(self, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] | None = None) -> None:
        self.connection.request(method, path, body, {"content-type": "application/json", **(headers or {})})

    def start(self) -> http.client.HTTPResponse:
        self.response = self.connection.getresponse()
        return self.response

    def read_some(self) -> bytes:
        return self.response.read1(65536)

    def read_until(self, words: bytes) -> bytes:
        """What comes, up to these words."""
        data = b""
        while words not in data:
            piece = self.read_some()
            assert piece, data
            data += piece
        return data

    def disconnect(self) -> None:
        if self.connection.sock is not None:
            self.connection.sock.shutdown(socket.SHUT_RDWR)
        self.connection.close()


def ask(port: int, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] | None = None) -> RawAnswer:
    line = RawConnection(port)
    try:
        line.send(method, path, body, headers)
        response = line.start()
        try:
            data, ended = response.read(), True
        except http.client.IncompleteRead as cut:
            data, ended = cut.partial, False
        return RawAnswer(response.status, {name.lower(): value for name, value in response.getheaders()}, data, ended)
    finally:
        line.connection.close()


def path_of(protocol: str, model: str, stream: bool) -> str:
    if protocol == "gemini":
        verb = "streamGenerateContent?alt=sse" if stream else "generateContent"
        return f"/v1beta/models/{model}:{verb}"
    return {
        "openai-chat": "/v1/chat/completions",
        "openai-responses": "/v1/responses",
        "anthropic": "/v1/messages",
        "unified": "/v1/unified",
    }[protocol]


def request_of(protocol: str, model: str, stream: bool, **more: Any) -> dict[str, Any]:
    """A small request; `more` are further keys of its body."""
    turns = [{"role": "user", "content": "Hi"}]
    bodies: dict[str, dict[str, Any]] = {
        "openai-chat": {"model": model, "messages": turns},
        "openai-responses": {"model": model, "input": turns, "store": False},
        "anthropic": {"model": model, "max_tokens": 100, "messages": turns},
        "gemini": {"contents": [{"role": "user", "parts": [{"text": "Hi"}]}]},
        "unified": {"model": model, "messages": turns},
    }
    flag = {"stream": True} if stream and protocol != "gemini" else {}
    return {**bodies[protocol], **flag, **more}


def call(
    served: Served, protocol: str, model: str, stream: bool, headers: Mapping[str, str] | None = None, **more: Any
) -> RawAnswer:
    body = encode_json(request_of(protocol, model, stream, **more)).encode()
    return ask(served.port, "POST", path_of(protocol, model, stream), body, headers)


def open_call(
    served: Served, protocol: str, model: str, stream: bool, headers: Mapping[str, str] | None = None, **more: Any
) -> RawConnection:
    line = RawConnection(served.port)
    body = encode_json(request_of(protocol, model, stream, **more)).encode()
    line.send("POST", path_of(protocol, model, stream), body, headers)
    return line


# --- what a client makes of it ----------------------------------------------------------------------------------------


def text_of(protocol: str, got: RawAnswer, stream: bool) -> str:
    """The text that was said."""
    return "".join(_texts(protocol, [frame.data for frame in got.frames] if stream else [got.json()], stream))


def _texts(protocol: str, bodies: list[Any], stream: bool) -> Iterator[str]:
    for body in bodies:
        if not isinstance(body, dict):
            continue
        if protocol == "openai-chat":
            for choice in body.get("choices", ()):
                yield (choice.get("delta") or choice.get("message") or {}).get("content") or ""
        elif protocol == "openai-responses":
            if stream:
                yield body["delta"] if body["type"] == "response.output_text.delta" else ""
            else:
                yield from (part["text"] for item in body["output"] for part in item.get("content", ()))
        elif protocol == "anthropic":
            blocks = body.get("content", ()) if not stream else [body.get("delta") or {}]
            yield from (block.get("text", "") for block in blocks)
        elif protocol == "gemini":
            candidates = body.get("candidates", ())
            yield from (part.get("text", "") for one in candidates for part in one.get("content", {}).get("parts", ()))
        elif stream:
            yield body["delta"] if body["type"] == "text" else ""
        else:
            content = body["message"]["content"]
            yield content if isinstance(content, str) else "".join(part.get("text", "") for part in content)


def is_failure(protocol: str, seen: list[SseFrame]) -> bool:
    """Does the stream end with this protocol's own failure, and nothing after it?"""
    if protocol == "gemini":
        *seen, behind = seen  # an older SDK of Google's passes over the frame; what is no frame it cannot pass over
        if behind.text or len(behind.other_lines) != 1 or "error" not in json.loads(behind.other_lines[0]):
            return False
    last = [frame for frame in seen if frame.text != "[DONE]"][-1]
    data = last.data
    if not isinstance(data, dict):
        return False
    if protocol == "openai-responses":
        is_numbered = isinstance(data.get("sequence_number"), int)
        return data["type"] in ("response.failed", "error") and last.event == data["type"] and is_numbered
    if protocol == "anthropic":
        return last.event == "error" and data["type"] == "error"
    if protocol == "unified":
        return data["type"] == "error"
    return isinstance(data.get("error"), dict) and "type" not in data and last.event is None


def is_complete(protocol: str, seen: list[SseFrame]) -> bool:
    """Is there a sign of success anywhere in the stream?"""
    for frame in seen:
        data = frame.data
        if frame.text == "[DONE]":
            return True
        if not isinstance(data, dict):
            continue
        if data.get("type") in ("response.completed", "message_stop", "end"):
            return True
        if any(choice.get("finish_reason") for choice in data.get("choices") or ()):
            return True
        if any(one.get("finishReason") for one in data.get("candidates") or ()):
            return True
    return False


def error_of(protocol: str, got: RawAnswer) -> dict[str, Any]:
    """The error in a body, which must have this protocol's own shape."""
    body = got.json()
    assert isinstance(body, dict), body
    error = body["error"]
    if protocol == "anthropic":
        assert body["type"] == "error"
        assert isinstance(error["type"], str)
    elif protocol == "gemini":
        assert error["code"] == got.status
        assert error["status"].isupper()
    elif protocol != "unified":
        assert {"message", "type", "param", "code"} <= error.keys()
    assert error["message"]
    return dict(error)
