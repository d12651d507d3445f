"""A provider that writes down every request that reaches it, behind a real gateway, and a client of bare sockets."""

from __future__ import annotations

import hashlib
import json
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gateway.provider import ScriptedAnswer
from gateway.raw_exchange import PROVIDER_KEY, PROVIDERS, answer, body_of, parametrize_protocols, run_own_server
from toolwire.gateway import app
from toolwire_conformance.peers.peer import encode_json
from waits import PATIENCE

KEYS = {name: f"tw-key-of-{name}-0123456789" for name in ("ann", "bob", "narrow")}
NARROW_MODELS = ("small", "chat/gpt-small*", "gemini/embed-small*", "anthropic/claude-small*", "responses/gpt-small*")
KEY_SETTINGS = "".join(
    f'[[server.keys]]\nname = "{name}"\nsha256 = "{hashlib.sha256(key.encode()).hexdigest()}"\n'
    + (f"models = {json.dumps(NARROW_MODELS)}\n" if name == "narrow" else "")
    for name, key in KEYS.items()
)
POLICY = '[[policy]]\nname = "no shell"\ntool = "forbidden_*"\ndrop = true\n'
MODELS = '[models]\nsmall = "chat/gpt-small"\nlarge = "chat/gpt-large"\n'


@dataclass(frozen=True)
class Arrived:
    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def path(self) -> str:
        return self.target.partition("?")[0]


@dataclass
class RecordedProvider:
    """Answers every request, and keeps it. `replies` are by path; other paths get an answer of their protocol."""

    replies: dict[str, tuple[int, Any]] = field(default_factory=dict)
    headers: dict[str, dict[str, str]] = field(default_factory=dict)
    """More headers of replies, by path."""
    arrived: list[Arrived] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()

    def close(self) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._accepting.join()
        self._listening.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as reader:
            try:
                while line := reader.readline().decode("latin-1"):
                    headers: dict[str, str] = {}
                    while row := reader.readline().decode("latin-1").rstrip("\r\n"):
                        name, _, value = row.partition(": ")
                        headers[name.lower()] = value
                    body = reader.read(int(headers.get("content-length", 0)))
                    method, target, _ = line.split(" ")
                    asked = Arrived(method, target, headers, body)
                    self.arrived.append(asked)
                    connection.sendall(self._reply(asked))
            except OSError:
                return

    def _reply(self, asked: Arrived) -> bytes:
        if asked.path in self.replies:
            status, body = self.replies[asked.path]
            data = body if isinstance(body, bytes) else encode_json(body).encode()
            return answer(status, data, **self.headers.get(asked.path, {}))
        for path, protocol in ANSWERED.items():
            if asked.path.endswith(path):
                return answer(200, encode_json(body_of(protocol, ScriptedAnswer("Hello."))).encode())
        return answer(200, b'{"id":"obj_1"}')


ANSWERED = {
    "/chat/completions": "openai-chat",
    "/v1/responses": "openai-responses",
    "/v1/messages": "anthropic",
    ":generateContent": "gemini",
}


@dataclass
class Guarded:
    """A gateway in front of the recorded provider."""

    port: int
    provider: RecordedProvider

    def take_arrived(self) -> list[Arrived]:
        arrived = list(self.provider.arrived)
        self.provider.arrived.clear()
        return arrived


@contextmanager
def serve_guarded(folder: Path, server: str = "", more: str = "", base: str = "") -> Iterator[Guarded]:
    """A gateway with one provider for each protocol. `server` comes into `[server]`, `more` at the end."""
    provider = RecordedProvider()
    lines = ["[server]", 'retries = 0\ncooldown_after = 1000000\nlog_format = "none"', server]
    for protocol in PROVIDERS:
        name = parametrize_protocols(protocol)
        lines.append(f'[providers.{name}]\nprotocols = ["{protocol}"]\nbase_url = "{provider.url}{base}"')
        lines.append(f'api_key = "{PROVIDER_KEY}"')
    file = folder / "toolwire.toml"
    file.write_text("\n".join([*lines, MODELS, more]))
    with closing(provider), run_own_server(app(file)) as port:
        yield Guarded(port, provider)


@dataclass(frozen=True)
class RawReply:
    status: int
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


def send_raw(
    port: int, method: str, target: bytes | str, body: bytes = b"", headers: Mapping[str, str] | None = None
) -> RawReply:
    """One request with exactly these bytes as its target."""
    raw = target if isinstance(target, bytes) else target.encode("latin-1")
    given = {"host": f"127.0.0.1:{port}", "content-type": "application/json", **(headers or {})}
    head = b"".join(f"{name}: {value}\r\n".encode("latin-1") for name, value in given.items())
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as connection:
        connection.sendall(
            method.encode() + b" " + raw + b" HTTP/1.1\r\n" + head
            + b"content-length: %d\r\nconnection: close\r\n\r\n" % len(body) + body
        )  # fmt: skip
        data = b""
        while piece := connection.recv(65536):
            data += piece
    head_bytes, _, rest = data.partition(b"\r\n\r\n")
    return RawReply(int(head_bytes.split(b" ")[1]), rest)


def as_key(name: str, **headers: str) -> dict[str, str]:
    return {"authorization": f"Bearer {KEYS[name]}", **{key.replace("_", "-"): value for key, value in headers.items()}}


def chat_body(model: str = "small", **more: Any) -> bytes:
    tools = [
        {"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": {}}}}
        for name in ("allowed", "forbidden_shell")
    ]
    turns = [{"role": "user", "content": "Hi"}]
    return json.dumps({"model": model, "messages": turns, "tools": tools, **more}).encode()


Judge = Callable[[Arrived], bool]
