"""Questions to a gateway on this machine: is it there, does it know a name, does the model behind it answer."""

from __future__ import annotations

from collections.abc import Mapping
from http.client import HTTPConnection, HTTPException
from urllib.parse import quote, urlsplit

from msgspec import Struct

from toolwire.gateway.settings.config import Server
from toolwire.ir import NOTHING, Failure, Request, Text, Turn
from toolwire.loss import Ledger
from toolwire.protocols import room
from toolwire.wire import Malformed, decode, encode

SOON = 2.0
"""Seconds for what a gateway answers by itself."""
LONG = 120.0
"""Seconds for a model's first words."""
WORDS = "Say ok."


class Answer(Struct, frozen=True):
    status: int
    headers: Mapping[str, str]
    body: bytes


class Gateway(Struct, frozen=True):
    """One that is running, or should be, asked in one protocol."""

    origin: str
    key: str
    protocol: str

    def alive(self) -> bool:
        """Is it there, and one of ours?"""
        answer = self._asked("GET", "/livez", SOON)
        return isinstance(answer, Answer) and (answer.status, answer.body) == (200, b"ok\n")

    def refuses(self, name: str) -> Failure | None:
        """Why a model cannot be asked for under this name; nothing when it can."""
        page = room(self.protocol).http.lists[0]
        return self._failure(self._asked("GET", f"{page}/{quote(name, safe='')}", SOON))

    def knows(self, name: str) -> bool:
        return self.refuses(name) is None

    def answers(self, name: str) -> Failure | None:
        """Ask the model something small, as the agent would; a failure when that fails."""
        spoken = room(self.protocol)
        request = Request(model=name, stream=False, turns=(Turn("user", (Text(WORDS),)),))
        body = encode(spoken.write_request(request, Ledger(spoken.name, spoken.name)))
        return self._failure(self._asked("POST", spoken.http.path(name, False), LONG, name, body))

    def _asked(self, method: str, path: str, patience: float, model: str = "", body: bytes = b"") -> Answer | str:
        """The answer, or why there is none."""
        parts, http = urlsplit(self.origin), room(self.protocol).http
        connection = HTTPConnection(parts.hostname or "", parts.port, timeout=patience)
        headers = dict([http.credential(self.key), *http.headers(model, body, NOTHING)])
        try:
            connection.request(method, path, body or None, {"content-type": "application/json", **headers})
            answer = connection.getresponse()
            return Answer(answer.status, {key.lower(): text for key, text in answer.getheaders()}, answer.read())
        except (OSError, HTTPException) as error:
            return f"no answer from {self.origin}: {str(error) or type(error).__name__}"
        finally:
            connection.close()

    def _failure(self, answer: Answer | str) -> Failure | None:
        """What an error says, in the words of its protocol."""
        if isinstance(answer, str):
            return Failure("server", answer)
        if answer.status == 200:
            return None
        try:
            body = decode(answer.body)
        except Malformed:
            body = None
        return room(self.protocol).read_error(body, answer.status, answer.headers)


def origin_of(server: Server) -> str:
    """Where a gateway with these settings is asked from this machine; nothing where the port is any that is free."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(server.host, server.host)
    shown = f"[{host}]" if ":" in host else host
    return f"http://{shown}:{server.port}" if server.port else ""
