"""Clients that read an answer as the SDKs do, and say whether it was whole, an honest failure, or lost."""

from __future__ import annotations

import asyncio
import re
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from bench.chaos.provider import LAST_LINE, answer_arguments, answer_text
from gateway.raw_exchange import RawAnswer, error_of, is_failure, text_of  # type: ignore[import-not-found]
from toolwire.core.json_values import Object
from toolwire_conformance.expectations import find_differences
from toolwire_conformance.peers import PEERS
from toolwire_conformance.peers.peer import ModelAnswer, Peer, ScenarioTool, SseFrame, encode_json

PATIENCE = 60.0
"""Seconds after which an answer counts as one that never ends."""
SAVE = ScenarioTool(
    "save",
    "Save lines.",
    {
        "type": "object",
        "properties": {"number": {"type": "integer"}, "lines": {"type": "array", "items": {"type": "string"}}},
    },
)

PLAYED = {name: peer for name, peer in PEERS.items() if peer.is_compared}
"""The protocols of server-sent events. Broken streams of Converse, which have another framing, are in its own tests."""


@dataclass(frozen=True)
class Exchange:
    """One request: who asks whom, and for which fault."""

    client: str
    provider: str
    fault: str
    number: int
    stream: bool


@dataclass(frozen=True)
class Response:
    status: int
    headers: Mapping[str, str]
    body: bytes
    is_whole: bool
    """Did it end as its headers said?"""


def request_bytes(exchange: Exchange) -> bytes:
    peer = PLAYED[exchange.client]
    model = f"m-{exchange.provider}"
    prompt = f"Go. [[{exchange.fault} {exchange.number}]]"
    body = peer.write_first_request(prompt, [SAVE])
    if peer.http.has_model_in_body:
        body |= {"model": model} | ({"stream": True} if exchange.stream else {})
    if exchange.client == "anthropic":
        body.setdefault("max_tokens", 4096)
    path = (peer.http.stream_path if exchange.stream and peer.http.stream_path else peer.http.path).replace(
        "{model}", model
    )
    return post(path, encode_json(body).encode(), peer)


def post(path: str, body: bytes, peer: Peer | None = None, more: str = "") -> bytes:
    lines = "".join(f"{name}: {value}\r\n" for name, value in (peer.http.headers if peer else {}).items())
    head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{lines}{more}"
    return f"{head}content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body


async def send(port: int, request: bytes, patience: float = PATIENCE) -> Response | None:
    """The response; None if it did not come to an end in time."""
    try:
        async with asyncio.timeout(patience):
            return await _send(port, request)
    except TimeoutError:
        return None


async def _send(port: int, request: bytes) -> Response:
    data = bytearray()
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 22)
    except OSError:
        return Response(0, {}, b"", False)
    try:
        writer.write(request)
        while piece := await reader.read(1 << 16):
            data += piece
    except OSError:
        pass
    finally:
        writer.close()
    return read_response(bytes(data))


def read_response(data: bytes) -> Response:
    head, end, body = data.partition(b"\r\n\r\n")
    if not end:
        return Response(0, {}, b"", False)
    status, *lines = head.decode("latin-1").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    code = int(status.split(" ")[1])
    if headers.get("transfer-encoding") != "chunked":
        return Response(code, headers, body, len(body) == int(headers.get("content-length", len(body))))
    whole = bytearray()
    while found := re.match(rb"([0-9a-fA-F]+)\r\n", body):
        size = int(found[1], 16)
        whole += body[found.end() : found.end() + size]
        if not size:
            return Response(code, headers, bytes(whole), True)
        body = body[found.end() + size + 2 :]
    return Response(code, headers, bytes(whole), False)


# --- verdicts ---


VERDICTS = ("complete", "failed", "misshapen", "mixed", "broken", "hung", "lost")
ENDS: dict[str, Callable[[Object], bool]] = {
    "openai-chat": lambda data: any(choice.get("finish_reason") for choice in data.get("choices") or ()),
    "openai-responses": lambda data: data.get("type") in ("response.completed", "response.incomplete"),
    "anthropic": lambda data: data.get("type") == "message_stop",
    "gemini": lambda data: any(one.get("finishReason") for one in data.get("candidates") or ()),
}
"""Whether a frame says that the answer has come to its end."""


def judge(exchange: Exchange, response: Response | None) -> str:
    """One of `VERDICTS`:

    - `complete`: all of the answer, in its order, with one end and nothing behind it.
    - `failed`: an error in the client's own shape, with nothing behind it, after none or some of the answer.
    - `misshapen`: an error in another shape; an end twice; something behind an end or an error.
    - `mixed`: pieces that are doubled, in another order, or of another answer.
    - `broken`: a connection that broke. `hung`: it never ended.
    - `lost`: it looks like a success, and is not all of the answer.
    """
    if response is None:
        return "hung"
    if not response.is_whole:
        return "broken"
    answer = RawAnswer(response.status, response.headers, response.body)
    try:
        if response.status >= 400:
            error_of(exchange.client, answer)
            return "failed"
        return _judge_answer(exchange, answer)
    except (AssertionError, AttributeError, IndexError, KeyError, TypeError, ValueError):
        return "misshapen"  # no client of this protocol could read it


def _judge_answer(exchange: Exchange, answer: RawAnswer) -> str:
    expected = ModelAnswer(answer_text(exchange.number), (("save", answer_arguments(exchange.number)),))
    if not expected.text.startswith(text_of(exchange.client, answer, exchange.stream)):
        return "mixed"
    peer = PLAYED[exchange.client]
    body = answer.json() if not exchange.stream else {}
    if exchange.stream:
        frames = answer.frames
        ends = [at for at, frame in enumerate(frames) if isinstance(frame.data, dict) and ENDS[peer.name](frame.data)]
        errors = [at for at, frame in enumerate(frames) if _is_error_frame(frame)]
        if errors:
            is_last = all(_is_error_frame(frame) or _is_no_piece(frame) for frame in frames[errors[0] :])
            return "failed" if is_last and not ends and is_failure(peer.name, frames) else "misshapen"
        if not ends:
            return "lost"
        folded = peer.fold_stream(frames)
        if len(ends) > 1 or folded.violations or not all(map(_is_no_piece, frames[ends[0] + 1 :])):
            return "misshapen"
        body = folded.body
    if not find_differences(peer.expect_answer(expected), body, {}):
        return "complete"
    return "mixed" if encode_json(body).count(LAST_LINE) > 1 else "lost"


def _is_no_piece(frame: SseFrame) -> bool:
    """A frame that may stand behind the end: usage alone, `[DONE]`, a line that is no event."""
    data = frame.data
    return not isinstance(data, dict) or not (data.get("choices") or data.get("candidates") or data.get("type"))


def _is_error_frame(frame: SseFrame) -> bool:
    data = frame.data
    if not isinstance(data, dict):
        return False
    return data.get("type") in ("error", "response.failed") or isinstance(data.get("error"), dict)


# --- a neighbour ---


class Neighbour:
    """A client that asks the gateway for nothing but a sign of life, again and again, and notes the longest wait."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.longest = 0.0
        self.served = 0

    async def __aenter__(self) -> Neighbour:
        self._task = asyncio.create_task(self._ask())
        await asyncio.sleep(0.05)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])

    async def _ask(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            with socket.create_connection(("127.0.0.1", self._port), 10) as line:
                line.setblocking(False)
                try:
                    while True:
                        await self._ask_once(loop, line)
                        await asyncio.sleep(0.005)
                except OSError:
                    continue

    async def _ask_once(self, loop: asyncio.AbstractEventLoop, line: socket.socket) -> None:
        asked = time.perf_counter()
        await loop.sock_sendall(line, b"GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n")
        try:
            answer = await loop.sock_recv(line, 4096)
        finally:
            self.longest = max(self.longest, time.perf_counter() - asked)
        if not answer:
            raise OSError
        self.served += 1
