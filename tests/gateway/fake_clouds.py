"""Clouds on loopback: a server that answers as a function says, and the vendors' own libraries as judges of what it
got."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

SAMPLES = Path(__file__).parents[1] / "samples" / "clouds"
CAPTURED: dict[str, Any] = {
    call["call"]: call["requests"] for call in json.loads((SAMPLES / "wire_requests_cloud.json").read_text())["calls"]
}
"""What the vendors' SDKs and credential libraries send, by the name of the call."""
KEY = rsa.generate_private_key(65537, 2048)
PRIVATE = KEY.private_bytes(
    serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
).decode()
PUBLIC = KEY.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
TOOL = {"name": "get_weather", "description": "The weather.", "input_schema": {"type": "object"}}
HELLO = {"max_tokens": 10, "messages": [{"role": "user", "content": "hi"}]}


@dataclass(frozen=True)
class Seen:
    """A request as it came. Names of headers are in lower case."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.body)
        return found

    @property
    def form(self) -> dict[str, str]:
        return {name: values[0] for name, values in parse_qs(self.body.decode()).items()}

    @property
    def query(self) -> dict[str, str]:
        return {name: values[0] for name, values in parse_qs(urlsplit(self.path).query).items()}


@dataclass(frozen=True)
class Answer:
    status: int = 200
    body: Any = b""
    """Bytes, a value that is sent as JSON, or a function that sends pieces."""
    headers: Mapping[str, str] = field(default_factory=dict)


Respond = Callable[[Seen], Answer]


class FakeCloud:
    """What came, and where it is reached."""

    def __init__(self, respond: Respond) -> None:
        self.respond = respond
        self.seen: list[Seen] = []
        self.url = ""

    @property
    def paths(self) -> list[str]:
        return [one.path for one in self.seen]


@contextmanager
def serve_cloud(respond: Respond) -> Iterator[FakeCloud]:
    cloud = FakeCloud(respond)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"] or 0))
            seen = Seen(self.command, self.path, {k.lower(): v for k, v in self.headers.items()}, body)
            cloud.seen.append(seen)
            answer = cloud.respond(seen)
            if callable(answer.body):
                self.stream(answer)
                return
            data = answer.body if isinstance(answer.body, bytes) else json.dumps(answer.body).encode()
            self.send_response_only(answer.status)
            headers = {"content-type": "application/json", **answer.headers, "content-length": str(len(data))}
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(data)

        def stream(self, answer: Answer) -> None:
            def send(data: bytes) -> None:
                self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))

            self.send_response_only(answer.status)
            for name, value in {**answer.headers, "transfer-encoding": "chunked"}.items():
                self.send_header(name, value)
            self.end_headers()
            answer.body(send)
            self.wfile.write(b"0\r\n\r\n")

        do_GET = do_POST = do_PUT = answer

        def log_message(self, format: str, *args: object) -> None:
            """Quiet."""

    class Server(ThreadingHTTPServer):
        request_queue_size = 512
        daemon_threads = True

    server = Server(("127.0.0.1", 0), Handler)
    cloud.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield cloud
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def is_signed(seen: Seen, keys: Credentials, region: str, service: str) -> bool:
    """Would botocore, with these keys, have made the signature that came? Over the bytes that came."""
    given = seen.headers.get("authorization", "")
    scheme, _, rest = given.partition(" ")
    parts = dict(part.partition("=")[::2] for part in rest.split(", "))
    date = seen.headers.get("x-amz-date", "")
    scope = f"{keys.access_key}/{date[:8]}/{region}/{service}/aws4_request"
    if scheme != "AWS4-HMAC-SHA256" or parts.get("Credential") != scope:
        return False
    names = parts["SignedHeaders"].split(";")
    if "host" not in names or "x-amz-date" not in names or (keys.token and "x-amz-security-token" not in names):
        return False
    request = AWSRequest(seen.method, f"http://{seen.headers['host']}{seen.path}", data=seen.body)
    for name in names:
        if name != "host":
            request.headers[name] = seen.headers[name]
    request.context["timestamp"] = date
    judge = SigV4Auth(keys, service, region)
    wanted = judge.signature(judge.string_to_sign(request, judge.canonical_request(request)), request)
    token_fits = seen.headers.get("x-amz-security-token") == keys.token
    return bool(wanted == parts["Signature"]) and token_fits


def write_json(file: Path, value: Mapping[str, Any]) -> str:
    file.write_text(json.dumps(value))
    return str(file)


def service_account(folder: Path, url: str) -> str:
    return write_json(
        folder / "service_account.json",
        {
            "type": "service_account",
            "client_email": "sa@proj.iam.gserviceaccount.com",
            "private_key_id": "kid-1",
            "private_key": PRIVATE,
            "project_id": "proj",
            "token_uri": f"{url}/token",
        },
    )
