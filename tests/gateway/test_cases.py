"""The reported cases once more, through the gateway and real sockets: the player's client on one side, its provider on
the other. What a frame brings at once cannot be seen from here; that is left to the library's own run."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar
from urllib.parse import unquote, urlsplit

import pytest

from gateway.conftest import named, served
from gateway.provider import PROTOCOLS
from toolwire.conformance.case import Case, read_cases
from toolwire.conformance.player import Answerer, Asked, Given, Received, Seen, play
from toolwire.protocols import room

CASES = {case.id: case for case in read_cases()}
PATIENCE = 30
BEFORE = "the failure comes before any of the answer, so the gateway says it as a status, or asks another provider"
OTHERWISE = {f"150:stream, to {client}": BEFORE for client in ("chat", "anthropic", "responses")}
"""What the gateway does in another way than the library can."""
REACHED = frozenset({"011:mistral", "075", "084:chat, with a store", "135"})
"""What the library cannot do by itself, and the gateway can."""
STATELESS = frozenset({"084:chat, without a store"})
"""Played on a gateway that keeps nothing."""
QUIRKS = {
    "011:mistral": "nine-letter-ids",
    "021": "repeated-deltas",
    "075": "empty-content",
    "135": "short-descriptions",
}
"""Servers that the configuration must name as what they are."""


class Stage(BaseHTTPRequestHandler):
    """The provider's side: whatever is asked goes to the player, which says what to answer."""

    protocol_version = "HTTP/1.1"
    answering: ClassVar[Answerer | None] = None

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        path = unquote(self.path.partition("?")[0])
        model = path.rpartition("models/")[2].partition(":")[0] if ":" in path else body.get("model", "")
        stream = "stream" in path if ":" in path else bool(body.get("stream"))
        assert Stage.answering is not None
        self._give(Stage.answering(Received(body, model, stream)))

    def _give(self, given: Given) -> None:
        self.send_response(given.status)
        self.send_header("content-type", "text/event-stream" if given.stream else "application/json")
        for name, value in given.headers.items():
            self.send_header(name, value)
        data = "".join(given.pieces).encode()
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        pass


class Through:
    """Carries the player's calls through a gateway, that which keeps things or the other one."""

    def __init__(self, keeping: str, stateless: str) -> None:
        self._keeping, self._stateless = urlsplit(keeping).netloc, urlsplit(stateless).netloc
        self.quirk = "p"
        self.kept = True

    def send(self, asked: Asked, answer: Answerer) -> Seen:
        Stage.answering = staticmethod(answer)  # type: ignore[assignment]
        client = room(asked.protocol).http
        model = f"{self.quirk}-{named(asked.provider)}/{asked.model or 'model'}"
        body = dict(asked.body) if isinstance(asked.body, dict) else asked.body
        if client.model_in_body and isinstance(body, dict):
            body["model"] = model
        if client.stream_in_body and isinstance(body, dict) and asked.stream:
            body["stream"] = True
        connection = http.client.HTTPConnection(self._keeping if self.kept else self._stateless, timeout=PATIENCE)
        path = client.path(model, asked.stream)
        connection.request("POST", path, json.dumps(body).encode(), {"content-type": "application/json"})
        response = connection.getresponse()
        text = response.read().decode()
        connection.close()
        return Seen(response.status, dict(response.getheaders()), (text,))


@pytest.fixture(scope="module")
def through(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Through]:
    stage = ThreadingHTTPServer(("127.0.0.1", 0), Stage)
    threading.Thread(target=stage.serve_forever, args=(0.01,), daemon=True).start()
    url = f"http://127.0.0.1:{stage.server_address[1]}"
    lines = ['[server]\nretries = 0\nrest_after = 1000000\nlog = "none"']
    for protocol in PROTOCOLS:
        lines.append(f'[providers.p-{named(protocol)}]\nprotocols = ["{protocol}"]\nbase_url = "{url}"')
    for quirk in QUIRKS.values():
        lines.append(f'[providers.{quirk}-chat]\nprotocols = ["openai-chat"]\nbase_url = "{url}"\nquirks = ["{quirk}"]')
    folder = tmp_path_factory.mktemp("cases")
    files = folder / "toolwire.toml", folder / "stateless.toml"
    files[0].write_text("\n".join(lines))
    files[1].write_text("\n".join([*lines, '[store]\nurl = "none"']))
    with served(files[0]) as keeping, served(files[1]) as stateless:
        yield Through(keeping, stateless)
    stage.shutdown()
    stage.server_close()


def _watches_frames(case: Case) -> bool:
    return any(turn.client_sees.after for turn in case.turns)


def _play(id: str) -> str:
    """The id of a case without its stream mode."""
    return id.removesuffix(":whole").removesuffix(":stream")


@pytest.mark.parametrize("case", [pytest.param(case, id=id) for id, case in CASES.items()])
def test_the_case_through_the_gateway(case: Case, through: Through) -> None:
    if case.out_of_reach and _play(case.id) not in REACHED:
        pytest.skip(case.out_of_reach)
    if _watches_frames(case) or case.turns[0].provider.protocol == "unified":
        pytest.skip("not for the gateway")
    quirky = case.turns[0].provider.protocol == "openai-chat"
    through.quirk = QUIRKS.get(_play(case.id)) or QUIRKS.get(case.id.partition(":")[0], "p") if quirky else "p"
    through.kept = _play(case.id) not in STATELESS
    outcome = play(case, through, anyway=True)
    assert outcome.passed or case.id in OTHERWISE, "\n".join(outcome.differences)
    assert not (outcome.passed and case.id in OTHERWISE)


def test_the_named_cases_are_there() -> None:
    plays = {_play(id) for id in CASES}
    assert plays >= REACHED | STATELESS
    assert {number for play in plays for number in (play, play.partition(":")[0])} >= QUIRKS.keys()
