"""A provider on loopback that lists models, page by page, and counts who asked."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = tuple[int, Any]


class ListServer:
    """Answers a GET with what `answers` has for its target (path and query), or with what it makes of it. The target of
    a POST begins with `POST `."""

    def __init__(self, answers: Mapping[str, Answer] | Callable[[str], Answer]) -> None:
        self.answers = answers
        self.asked: list[tuple[str, dict[str, str]]] = []
        """The target and the headers of each request."""
        self.gate = threading.Event()
        """Requests wait for it."""
        self.gate.set()
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                self.rfile.read(int(self.headers.get("content-length", 0)))
                self.path = f"POST {self.path}"
                self.do_GET()

            def do_GET(self) -> None:
                server.asked.append((self.path, {name.lower(): value for name, value in self.headers.items()}))
                server.gate.wait()
                look = server.answers
                status, body = look(self.path) if callable(look) else look.get(self.path, (404, {"error": "no"}))
                data = body if isinstance(body, bytes) else json.dumps(body).encode()
                self.send_response(status)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: object) -> None:
                pass

        class Server(ThreadingHTTPServer):
            def handle_error(self, request: object, client_address: object) -> None:
                """A client that has gone away is not worth a traceback."""

        self._http = Server(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._http.server_port}"
        threading.Thread(target=self._http.serve_forever, args=(0.01,), daemon=True).start()

    def close(self) -> None:
        self.gate.set()
        self._http.shutdown()
        self._http.server_close()


@contextmanager
def list_server(answers: Mapping[str, Answer] | Callable[[str], Answer]) -> Iterator[ListServer]:
    server = ListServer(answers)
    try:
        yield server
    finally:
        server.close()


def openai_list(*names: str, **more: Any) -> Answer:
    return 200, {"object": "list", "data": [{"id": name, "object": "model"} for name in names], **more}
