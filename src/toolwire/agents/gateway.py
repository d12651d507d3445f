"""The gateway that an agent uses: a client for one that is running, and a private one for a single run."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from urllib.parse import quote, urlsplit

from msgspec import Struct

from toolwire.core.codec import NO_FACTS, ModelFacts
from toolwire.core.ir import EMPTY_MAPPING, Failure, Request, Text, Turn
from toolwire.core.json_values import Malformed, decode, encode
from toolwire.core.losses import Ledger
from toolwire.gateway.configuration.load import ConfigFile
from toolwire.gateway.settings.address import bracket_ipv6
from toolwire.gateway.settings.client_keys import CHALLENGE_HEADER, PROOF_HEADER, KeyChallenge, hash_key
from toolwire.gateway.settings.config import ServerSettings
from toolwire.gateway.settings.providers import LOOPBACK_NAME, is_own_address, known_servers
from toolwire.protocols import find_codec

LOCAL_TIMEOUT = 2.0
"""Seconds to wait for what the gateway answers by itself."""
MODEL_TIMEOUT = 120.0
"""Seconds to wait for a model's answer."""
FACTS_PROTOCOL = "anthropic"
"""A protocol whose lists of models have their limits; OpenAI's have none."""
PROBE_PROMPT = "Say ok."


class HttpAnswer(Struct, frozen=True):
    status: int
    headers: Mapping[str, str]
    body: bytes


class GatewayClient(Struct, frozen=True):
    """Asks a gateway questions in one protocol."""

    origin: str
    key: str
    protocol: str

    def is_alive(self) -> bool:
        """Does a Toolwire gateway answer there? No key is sent."""
        answer = self._exchange("GET", "/livez", LOCAL_TIMEOUT, {})
        return isinstance(answer, HttpAnswer) and (answer.status, answer.body) == (200, b"ok\n")

    def proves_key(self, key: str) -> bool:
        """Does it prove that it knows a key? The key is not sent: anything can listen on a port and say `ok`."""
        challenge = KeyChallenge(key)
        answer = self._exchange("GET", "/livez", LOCAL_TIMEOUT, {CHALLENGE_HEADER: challenge.header})
        return isinstance(answer, HttpAnswer) and challenge.is_answered_by(answer.headers.get(PROOF_HEADER, ""))

    def find_key_failure(self) -> Failure | None:
        """Why the gateway does not accept the key; None if it does, or needs none."""
        failure = self.find_model_failure(LOOPBACK_NAME)
        return failure if failure is not None and failure.kind == "authentication" else None

    def find_model_failure(self, name: str) -> Failure | None:
        """Why the gateway does not serve a model of this name; None if it does."""
        page = find_codec(self.protocol).http.model_list_paths[0]
        return self._read_failure(self._send_request("GET", f"{page}/{quote(name, safe='')}", LOCAL_TIMEOUT))

    def find_model_facts(self, name: str) -> ModelFacts:
        """What the gateway knows about a model, also from its provider's list."""
        codec = find_codec(FACTS_PROTOCOL)
        answer = GatewayClient(self.origin, self.key, codec.name)._send_request(
            "GET", f"{codec.http.model_list_paths[0]}/{quote(name, safe='')}", LOCAL_TIMEOUT
        )
        if isinstance(answer, str) or answer.status != 200:
            return NO_FACTS
        with suppress(Malformed):
            page = codec.http.read_model_list({"data": [decode(answer.body)]})
            return page.models[0].facts if page is not None and page.models else NO_FACTS
        return NO_FACTS

    def knows_model(self, name: str) -> bool:
        return self.find_model_failure(name) is None

    def probe_model(self, name: str) -> Failure | None:
        """Send the model a short prompt, as the agent would; gives the failure, if any."""
        codec = find_codec(self.protocol)
        request = Request(model=name, stream=False, turns=(Turn("user", (Text(PROBE_PROMPT),)),))
        body = encode(codec.write_request(request, Ledger(codec.name, codec.name)))
        path = codec.http.request_path(name, False)
        return self._read_failure(self._send_request("POST", path, MODEL_TIMEOUT, name, body))

    def _send_request(
        self, method: str, path: str, timeout: float, model: str = "", body: bytes = b""
    ) -> HttpAnswer | str:
        """The answer to a request with the key, or why there is none."""
        http = find_codec(self.protocol).http
        headers = dict([http.write_credential(self.key), *http.extra_headers(model, body, EMPTY_MAPPING)])
        return self._exchange(method, path, timeout, {"content-type": "application/json", **headers}, body)

    def _exchange(
        self, method: str, path: str, timeout: float, headers: Mapping[str, str], body: bytes = b""
    ) -> HttpAnswer | str:
        """The answer, or why there is none."""
        parts = urlsplit(self.origin)
        connection = HTTPConnection(parts.hostname or "", parts.port, timeout=timeout)
        try:
            connection.request(method, path, body or None, headers)
            answer = connection.getresponse()
            return HttpAnswer(answer.status, {key.lower(): text for key, text in answer.getheaders()}, answer.read())
        except (OSError, HTTPException) as error:
            return f"no answer from {self.origin}: {str(error) or type(error).__name__}"
        finally:
            connection.close()

    def _read_failure(self, answer: HttpAnswer | str) -> Failure | None:
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
    """The URL of a gateway with these settings, as seen from this machine; empty if it listens on any free port."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(server.host, server.host)
    return f"http://{bracket_ipv6(host)}:{server.port}" if server.port else ""


# --- a private gateway ----------------------------------------------------------------------------------------------

ADDRESS_PATTERN = re.compile(rb"http://[^/\s]+")
STOP_TIMEOUT = 3.0
"""Seconds to wait for the gateway to stop; the agent has ended by then."""
LOG_TAIL_LINES = 12
"""Lines of its log that are shown if it ends by itself."""


class GatewayDied(Exception):
    """The gateway did not start; the message is the end of its log."""


class PrivateGateway:
    def __init__(self, process: subprocess.Popen[bytes], origin: str, log: Path) -> None:
        self._process, self.origin, self._log = process, origin, log

    @property
    def death_message(self) -> str:
        """The end of its log, if it has ended by itself."""
        return log_tail(self._log) if self._process.poll() is not None else ""


@contextmanager
def start_gateway(
    file: ConfigFile | None,
    routes: Mapping[str, str],
    environ: Mapping[str, str],
    server: ServerSettings,
    log: Path,
    run_key: str = "",
) -> Iterator[PrivateGateway]:
    """Start a gateway, wait until it serves, and stop it at the end. `run_key` is a client's key that it accepts in
    addition to those of the file. Raises GatewayDied, or OSError for the log."""
    # -P: nothing is imported from the working folder, such as a `json.py` of a repository that was cloned.
    command = [sys.executable, "-P", "-m", "toolwire.cli", "serve", "--host", "127.0.0.1", "--port", "0"]
    command += ["--workers", "1", "--log", "json"]
    if file is not None:
        command += ["--config", file.file, "--config-hash", file.digest]
    for name, model in routes.items():
        command += ["--route", f"{name}={model}"]
    if run_key:  # as a hash: everybody on the machine can read the command
        command += ["--run-key", hash_key(run_key)]
    with log.open("ab") as log_file:
        # The gateway stops when the other end of its standard input closes, however this process ends.
        process = subprocess.Popen(
            [*command, "--lifeline", "0"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log_file,
            env=_gateway_environment(environ, server),
            start_new_session=True,  # the terminal's Ctrl-C is meant for the agent
            creationflags=getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0),  # the same on Windows
        )
    try:
        line = process.stdout.readline() if process.stdout is not None else b""
        address = ADDRESS_PATTERN.search(line)
        if address is None:
            process.wait()
            raise GatewayDied(log_tail(log))
        yield PrivateGateway(process, address[0].decode(), log)
    finally:
        if process.stdin is not None:
            process.stdin.close()
        _stop_process(process)


def _stop_process(process: subprocess.Popen[bytes]) -> None:
    for stop in (process.terminate, process.terminate, process.kill):  # the second SIGTERM ends open streams
        stop()
        with suppress(subprocess.TimeoutExpired):
            process.wait(STOP_TIMEOUT)
            break
    if process.stdout is not None:
        process.stdout.close()


def _gateway_environment(environ: Mapping[str, str], server: ServerSettings) -> dict[str, str]:
    """Without base URLs that point at the configured gateway: they are for SDKs, and would make this one call it."""
    kept = dict(environ)
    for variable in {variable for row in known_servers().values() for variable in row.base_url_env} & environ.keys():
        with suppress(ValueError):  # not a URL; the gateway reports it
            if is_own_address(environ[variable].strip(), server):
                del kept[variable]
    return kept


def log_tail(log: Path) -> str:
    return "\n".join(log.read_text("utf-8", "replace").strip().splitlines()[-LOG_TAIL_LINES:])
