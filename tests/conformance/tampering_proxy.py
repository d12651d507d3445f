"""A small gateway for tests: it forwards calls without translating them, with one fault or none."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Literal
from urllib.parse import urlsplit

Fault = Literal["", "drops call", "hangs", "buffers", "stops", "wrong path", "drains"]


class TamperingProxy:
    """The address of the provider, the fault, and the paths that are served."""

    def __init__(self, provider: str) -> None:
        self.provider = urlsplit(provider).netloc
        self.fault: Fault = ""
        self.paths = ("/v1/chat/completions", "/v1/messages")
        self.is_closing = threading.Event()
        self.url = ""
        self.headers: dict[str, str] = {}


@contextmanager
def run_proxy(provider: str) -> Iterator[TamperingProxy]:
    gateway = TamperingProxy(provider)
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"gateway": gateway}))
    gateway.url = f"http://127.0.0.1:{server.server_address[1]}"
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield gateway
    finally:
        gateway.is_closing.set()
        server.shutdown()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    gateway: TamperingProxy

    def do_GET(self) -> None:
        self._send(200, b"here")

    def do_POST(self) -> None:
        data = self.rfile.read(int(self.headers["content-length"]))
        self.gateway.headers = {name.lower(): value for name, value in self.headers.items()}
        fault, path = self.gateway.fault, self.path
        if path not in self.gateway.paths:
            self._send(404, b'{"error":"no such path"}')
            return
        if fault == "hangs":
            self.gateway.is_closing.wait()
            return
        body = json.loads(data)
        body["model"] = body["model"].rpartition("/")[2]
        with closing(http.client.HTTPConnection(self.gateway.provider)) as connection:
            to = "/v1/responses" if fault == "wrong path" else path
            connection.request("POST", to, json.dumps(body), {"content-type": "application/json"})
            with connection.getresponse() as answer:
                self.send_response(answer.status)
                self.send_header("content-type", answer.headers["content-type"])
                self.end_headers()
                self._forward(answer, fault)

    def _forward(self, upstream: http.client.HTTPResponse, fault: Fault) -> None:
        if fault in ("buffers", "drops call", ""):
            chunks = []
            while data := upstream.read1(65536):
                chunks.append(data)
                if not fault:
                    self.wfile.write(data)
            if fault:
                self.wfile.write(_drop_second_call(b"".join(chunks)) if fault == "drops call" else b"".join(chunks))
        elif fault == "drains":
            with suppress(http.client.IncompleteRead):  # the provider has seen enough, and breaks off
                while data := upstream.read1(65536):
                    with suppress(OSError):
                        self.wfile.write(data)
        elif fault == "stops":
            self.wfile.write(upstream.read1(65536)[:40])
            self.wfile.flush()
            self.gateway.is_closing.wait()
        else:
            self.wfile.write(upstream.read())

    def _send(self, status: int, data: bytes) -> None:
        self.send_response(status)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        pass


def _drop_second_call(data: bytes) -> bytes:
    """A whole answer without its second call; anything else as it is."""
    try:
        body = json.loads(data)
        del body["choices"][0]["message"]["tool_calls"][1]
    except (ValueError, KeyError, IndexError):
        return data
    return json.dumps(body).encode()
