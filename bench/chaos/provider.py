"""A provider of all four protocols that fails in the way that the prompt asks for."""

from __future__ import annotations

import asyncio
import re
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress

from toolwire.core.json_values import Object
from toolwire_conformance.peers import PEERS
from toolwire_conformance.peers.peer import ModelAnswer, Peer, encode_json, write_frame

MARK = re.compile(rb"\[\[([a-z0-9-]+) (\d+)\]\]")
"""In the prompt: the fault, and the number of the exchange."""
COMPLETES = {
    "none": "nothing",
    "slow": "frames one by one, with pauses",
    "split": "the answer in pieces of seven bytes",
    "busy-once": "status 503, and an answer to the second try",
    "reset-once": "connection reset, and an answer to the second try",
    "behind": "pieces of the answer again, behind its end (Gemini's has none but the body's)",
}
FAILS = {
    "busy": "status 503, always",
    "limited": "status 429, always",
    "reset": "connection reset before the answer, always",
    "half-head": "connection closed within the response's headers",
    "cut": "connection reset in the middle of the answer",
    "ended": "the answer ends early, as if it were whole",
    "stall": "silence in the middle of the answer",
    "error": "an error in the middle of the answer",
    "garbage": "a frame in the middle that is not JSON",
    "odd": "a frame of another shape in the middle, and then the end",
    "html": "status 200 with an HTML page",
    "empty": "status 200 with `{}`",
}
FAULTS = {**COMPLETES, **FAILS}
WORDS = 120
LARGE_FRAMES = 40_000
"""Of about 120 bytes each: more than the buffers of the sockets hold."""


def answer_text(number: int) -> str:
    return " ".join(f"w{at}" for at in range(WORDS)) + f" END{number}"


def answer_arguments(number: int) -> dict[str, object]:
    return {"number": number, "lines": [f"line {at}" for at in range(50)]}


LAST_LINE = "line 49"


class ChaosProvider:
    """Runs in a thread of its own until the process ends."""

    def __init__(self) -> None:
        self.requests: Counter[str] = Counter()
        self._tries: Counter[int] = Counter()
        self._started = threading.Event()
        self.url = ""
        self.faults: list[str] = []
        """What went wrong here, and not in the gateway."""
        threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True).start()
        self._started.wait()

    async def _serve(self) -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: self.faults.append(str(context)))
        server = await asyncio.start_server(self._serve_connection, "127.0.0.1", 0, backlog=1024)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        self._started.set()
        await server.serve_forever()

    async def _serve_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await self._answer_next(reader, writer):
                pass
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    async def _answer_next(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Answer one request. False when the connection is over."""
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        found = re.search(r"content-length: *(\d+)", head, re.IGNORECASE)
        body = await reader.readexactly(int(found[1]) if found else 0)
        path = head.split(" ", 2)[1].partition("?")[0]
        peer = next((peer for peer in PEERS.values() if peer.http.path_pattern.search(path)), None)
        if peer is None:  # such as the list of models, which a gateway asks for by itself
            writer.write(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n")
            await writer.drain()
            return True
        wants_stream = b'"stream":true' in body or "streamGenerateContent" in path
        mark = MARK.search(body)
        fault, number = (mark[1].decode(), int(mark[2])) if mark else ("none", 0)
        self.requests[fault] += 1
        self._tries[number] += 1
        if fault.endswith("-once"):
            fault = fault.removesuffix("-once") if self._tries[number] == 1 else "none"
        return await self._play(writer, peer, fault, number, wants_stream)

    async def _play(
        self, writer: asyncio.StreamWriter, peer: Peer, fault: str, number: int, wants_stream: bool
    ) -> bool:
        if fault in ("reset", "half-head"):
            if fault == "half-head":
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-ty")
                await writer.drain()
            writer.transport.abort()
            return False
        if fault in ("busy", "limited", "html", "empty"):
            writer.write(_plain_response(fault, peer.name))
            await writer.drain()
            return True
        answer = ModelAnswer(answer_text(number), (("save", answer_arguments(number)),))
        whole = peer.complete_answer(peer.write_answer(answer), peer.model)
        pieces = (
            [frame.encode() for frame in peer.write_stream(whole)] if wants_stream else [encode_json(whole).encode()]
        )
        return await _send_pieces(writer, _break_pieces(pieces, fault, peer.name, wants_stream), wants_stream)


def _plain_response(fault: str, protocol: str) -> bytes:
    status, kind, body = {
        "busy": ("503 Service Unavailable", "application/json", _error_body(protocol, 503, "overloaded")),
        "limited": ("429 Too Many Requests", "application/json", _error_body(protocol, 429, "slow down")),
        "html": ("200 OK", "text/html", b"<html><body>Sign in to the hotel's network</body></html>"),
        "empty": ("200 OK", "application/json", b"{}"),
    }[fault]
    return f"HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body


def _error_body(protocol: str, status: int, message: str) -> bytes:
    """As the provider's own protocol has it."""
    bodies: dict[str, Object] = {
        "anthropic": {"type": "error", "error": {"type": "api_error", "message": message}},
        "gemini": {"error": {"code": status, "message": message, "status": "UNAVAILABLE"}},
    }
    other = {"error": {"message": message, "type": "server_error", "param": None, "code": None}}
    return encode_json(bodies.get(protocol, other)).encode()


def _break_pieces(pieces: list[bytes], fault: str, protocol: str, wants_stream: bool) -> list[bytes | str]:
    """The bytes to send, with the names of actions (`pause`, `stall`, `cut`) between them."""
    data = b"".join(pieces)
    half = b"".join(pieces[: len(pieces) // 2]) if wants_stream else data[: len(data) // 2]
    delta = next((piece for piece in pieces if b"w7" in piece), b"")
    planned: dict[str, Callable[[], list[bytes | str]]] = {
        "slow": lambda: [step for piece in pieces for step in (piece, "pause")],
        "split": lambda: [data[at : at + 7] for at in range(0, len(data), 7)],
        "cut": lambda: [half, "cut"],
        "stall": lambda: [half, "stall"],
        "ended": lambda: [half],
        "error": lambda: [half, _error_frame(protocol)],
        "garbage": lambda: [half, b'data: {"broken\n\n', data[len(half) :]],
        "odd": lambda: [half, _odd_frame(protocol), *(pieces[-1:] if wants_stream else [])],
        "behind": lambda: [data, *(pieces[len(pieces) // 2 :] if wants_stream and protocol != "gemini" else [])],
        "large": lambda: [*pieces[: pieces.index(delta)], *[delta * 100] * (LARGE_FRAMES // 100)],
        "huge": lambda: [half, b"data: " + b"x" * 80_000_000 + b"\n\n"],
    }
    return planned[fault]() if fault in planned else [data]


def _odd_frame(protocol: str) -> bytes:
    event, data = {
        "anthropic": ("content_block_delta", {"type": "content_block_delta", "index": "x", "delta": 5}),
        "openai-responses": ("response.output_text.delta", {"type": "response.output_text.delta", "delta": {"a": 1}}),
        "gemini": (None, {"candidates": 5}),
    }.get(protocol, (None, {"choices": 5}))
    return write_frame(event, data).encode()


def _error_frame(protocol: str) -> bytes:
    error = {"message": "the model has crashed", "type": "server_error", "code": "server_error"}
    match protocol:
        case "anthropic":
            return write_frame("error", {"type": "error", "error": error | {"type": "api_error"}}).encode()
        case "openai-responses":
            return write_frame("error", {"type": "error", "sequence_number": 99, "param": None} | error).encode()
        case "gemini":
            return write_frame(
                None, {"error": {"code": 500, "message": error["message"], "status": "INTERNAL"}}
            ).encode()
        case _:
            return write_frame(None, {"error": error}).encode()


async def _send_pieces(writer: asyncio.StreamWriter, pieces: list[bytes | str], wants_stream: bool) -> bool:
    kind = "text/event-stream" if wants_stream else "application/json"
    writer.write(f"HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ntransfer-encoding: chunked\r\n\r\n".encode())
    for piece in pieces:
        if piece == "pause":
            await asyncio.sleep(0.005)
        elif piece == "stall":
            await asyncio.sleep(60)
            return False
        elif piece == "cut":
            await asyncio.sleep(0.05)
            writer.transport.abort()
            return False
        elif isinstance(piece, bytes):
            writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
            await writer.drain()
    writer.write(b"0\r\n\r\n")
    await writer.drain()
    return True
