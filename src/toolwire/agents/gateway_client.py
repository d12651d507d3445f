"""Questions to a gateway on this machine: is it there, does it know a name, does the model behind it answer."""

from __future__ import annotations

from collections.abc import Mapping
from http.client import HTTPConnection, HTTPException
from urllib.parse import quote, urlsplit

from msgspec import Struct

from toolwire.core.ir import EMPTY_MAPPING, Failure, Request, Text, Turn
from toolwire.core.json_values import Malformed, decode, encode
from toolwire.core.losses import Ledger
from toolwire.gateway.config.config import ServerSettings
from toolwire.protocols import find_codec

LOCAL_TIMEOUT = 2.0
"""Seconds for what a gateway answers by itself."""
MODEL_TIMEOUT = 120.0
"""Seconds for a model's first words."""
PROBE_PROMPT = "Say ok."


class HttpAnswer(Struct, frozen=True):
    status: int
    headers: Mapping[str, str]
    body: bytes


class GatewayClient(Struct, frozen=True):
    """One that is running, or should be, asked in one protocol."""

    origin: str
    key: str
    protocol: str

    def is_alive(self) -> bool:
        """Is it there, and one of ours?"""
        answer = self._send_request("GET", "/livez", LOCAL_TIMEOUT)
        return isinstance(answer, HttpAnswer) and (answer.status, answer.body) == (200, b"ok\n")

    def find_model_failure(self, name: str) -> Failure | None:
        """Why a model cannot be asked for under this name; nothing when it can."""
        page = find_codec(self.protocol).http.model_list_paths[0]
        return self._read_failure(self._send_request("GET", f"{page}/{quote(name, safe='')}", LOCAL_TIMEOUT))

    def knows_model(self, name: str) -> bool:
        return self.find_model_failure(name) is None

    def probe_model(self, name: str) -> Failure | None:
        """Ask the model something small, as the agent would; a failure when that fails."""
        spoken = find_codec(self.protocol)
        request = Request(model=name, stream=False, turns=(Turn("user", (Text(PROBE_PROMPT),)),))
        body = encode(spoken.write_request(request, Ledger(spoken.name, spoken.name)))
        return self._read_failure(
            self._send_request("POST", spoken.http.request_path(name, False), MODEL_TIMEOUT, name, body)
        )

    def _send_request(
        self, method: str, path: str, timeout: float, model: str = "", body: bytes = b""
    ) -> HttpAnswer | str:
        """The answer, or why there is none."""
        parts, http = urlsplit(self.origin), find_codec(self.protocol).http
        connection = HTTPConnection(parts.hostname or "", parts.port, timeout=timeout)
        headers = dict([http.write_credential(self.key), *http.extra_headers(model, body, EMPTY_MAPPING)])
        try:
            connection.request(method, path, body or None, {"content-type": "application/json", **headers})
            answer = connection.getresponse()
            return HttpAnswer(answer.status, {key.lower(): text for key, text in answer.getheaders()}, answer.read())
        except (OSError, HTTPException) as error:
            return f"no answer from {self.origin}: {str(error) or type(error).__name__}"
        finally:
            connection.close()

    def _read_failure(self, answer: HttpAnswer | str) -> Failure | None:
        """What an error says, in the words of its protocol."""
        if isinstance(answer, str):
            return Failure("server", answer)
        if answer.status == 200:
            return None
        try:
            body = decode(answer.body)
        except Malformed:
            body = None
        return find_codec(self.protocol).read_error(body, answer.status, answer.headers)


def server_origin(server: ServerSettings) -> str:
    """Where a gateway with these settings is asked from this machine; nothing where the port is any that is free."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(server.host, server.host)
    shown = f"[{host}]" if ":" in host else host
    return f"http://{shown}:{server.port}" if server.port else ""
