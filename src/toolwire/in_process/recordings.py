"""Exchanges with providers as files: a `Recorder` writes them, `Recordings` answer from them without a network.

A file is a case, as `toolwire conformance` plays it. A recorded answer belongs to a conversation, whatever the protocol
of the client that asks: a test suite that was recorded with one SDK runs with another.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from toolwire.core import ir
from toolwire.core.codec import Codec
from toolwire.core.ids import hex_digest
from toolwire.core.ir import EMPTY_MAPPING, Failure
from toolwire.core.json_values import Json, Malformed, decode, encode, expect_object
from toolwire.gateway.configuration.load import read_config
from toolwire.gateway.http.connection import TransportError
from toolwire.gateway.http.headers import Headers
from toolwire.gateway.http.messages import UpstreamResponse
from toolwire.gateway.http.redact import SecretFilter, find_secrets, redact
from toolwire.gateway.models.loopback.model import LoopbackAnswer
from toolwire.gateway.settings.address import Address
from toolwire.gateway.settings.config import Config, Timeouts
from toolwire.gateway.settings.problems import ConfigError, Problem
from toolwire.gateway.settings.toml_text import Toml, write_table
from toolwire.gateway.surfaces.console.case_file import write_case
from toolwire.gateway.telemetry.record import ExchangeRecord
from toolwire.in_process.settings import SERVER_SETTINGS, leave_out_server
from toolwire.protocols import CODECS

HOST = ".recorded.invalid"
"""The address of a recorded model is a digest of its name, its protocol and this. Nothing is sent there."""
NAME_LENGTH = 16
Answers: TypeAlias = dict[tuple[str, str], Mapping[str, Json]]
"""The exchanges with providers, by the address of a recorded model and the digest of a conversation."""


class Recorder:
    def __init__(self, folder: Path, secrets: Iterable[str]) -> None:
        self._folder, self._secrets = folder, SecretFilter(secrets)

    def keep(self, record: ExchangeRecord) -> None:
        """Write an exchange. The same request again replaces its file."""
        capture = record.traffic.capture
        sent = decode(capture.client_request) if capture is not None and capture.upstream_calls else None
        secrets = (*record.client.secrets, *find_secrets(sent))

        def clean(text: str) -> str:
            return self._secrets.clean(redact(text), secrets)

        case = write_case(record, clean, "recorded by toolwire.http_client")
        if capture is None or not case:
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        name = hex_digest(f"{record.client.protocol}\0{capture.client_request.decode('utf-8', 'replace')}", NAME_LENGTH)
        (self._folder / f"{name}.json").write_bytes(case + b"\n")


class Recordings:
    """The recorded answers of a folder."""

    def __init__(self, folder: Path) -> None:
        """Raises ConfigError if a file there is not a recorded exchange."""
        self._folder = folder
        self._answers: Answers = {}
        models: dict[str, str] = {}
        for path in sorted(folder.glob("*.json")):
            try:
                case = msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
                model, protocol = _find_model(case)
                self._answers |= _list_answers(case, _write_host(model, protocol))
            except (msgspec.DecodeError, KeyError, TypeError, AttributeError, Malformed, OSError) as error:
                what = f"{path.name} is not a recorded exchange: {type(error).__name__}: {error}"
                raise ConfigError([Problem(location=str(path), message=what, hint="record it again")], "") from None
            models.setdefault(model, protocol)
        if not models:
            what = f"there are no recorded exchanges in {folder}"
            hint = "record them with `record=` and a provider"
            raise ConfigError([Problem(location=str(folder), message=what, hint=hint)], "")
        self.config = _write_config(models)

    def make_sender(self) -> Recordings:
        return self

    def set_timeouts(self, timeouts: Timeouts) -> None: ...

    async def close(self) -> None: ...

    async def send_request(
        self,
        address: Address,
        method: str,
        path: str,
        headers: Headers,
        body: bytes,
        unique_headers: Headers = (),
        max_seconds: float = math.inf,
    ) -> UpstreamResponse | TransportError:
        """The recorded answer to a request, or a provider's error that says that there is none."""
        codec = CODECS[address.host.removesuffix(HOST).partition(".")[2]]
        found = self._answers.get((address.host, digest_conversation(codec, expect_object(decode(body), None))))
        if found is None:
            what = f"there is no recorded answer to this conversation in {self._folder}: record it with `record=`"
            error = codec.write_error(Failure("not_found", what, 404))
            return LoopbackAnswer(error.status, {"content-type": "application/json"}, deque([encode(error.body)]))
        if "sse" in found:
            framing = codec.http.framing
            return LoopbackAnswer(
                200, {"content-type": framing.content_type}, deque([framing.read_text(str(found["sse"]))])
            )
        status = found["status"]
        data = encode(found["body"])
        return LoopbackAnswer(status, {"content-type": "application/json"}, deque([data]))


def _find_model(case: Mapping[str, Any]) -> tuple[str, str]:
    """The model that the client asked for, and the protocol of its provider."""
    client = case["client"]
    return client.get("model") or client["request"].get("model", ""), case["provider"]["protocol"]


def _list_answers(case: Mapping[str, Any], host: str) -> Answers:
    """Without those that a fallback stood in for. Raises Malformed."""
    codec, exchanges = CODECS[case["provider"]["protocol"]], case["provider"]["exchanges"]
    good = [exchange for exchange in exchanges if exchange["status"] < 300] or exchanges[-1:]
    return {(host, digest_conversation(codec, exchange["expect"]["$is"])): exchange for exchange in good}


def _write_host(model: str, protocol: str) -> str:
    return f"{hex_digest(model, NAME_LENGTH)}.{protocol}{HOST}"


def _write_config(models: Mapping[str, str]) -> Config:
    """A provider for each model that was asked for, with its protocol."""
    tables: list[str] = []
    for model, protocol in models.items():
        host = _write_host(model, protocol)
        name = f"recorded-{host.partition('.')[0]}"
        provider: dict[str, Toml] = {"protocols": [protocol], "base_url": f"http://{host}", "api_key": "recorded"}
        rule: dict[str, Toml] = {"provider": name, "model": model.rpartition("/")[2]}
        tables += [write_table(("providers", name), provider), write_table(("models", model), rule)]
    config = read_config("".join(tables), None, EMPTY_MAPPING, SERVER_SETTINGS, EMPTY_MAPPING)
    return msgspec.structs.replace(leave_out_server(config), warnings=())


def digest_conversation(codec: Codec, body: Mapping[str, Json]) -> str:
    """What a request to a provider asks, without what differs between clients: ids, blanks, where instructions stand,
    and how turns are split. Raises Malformed."""
    request = codec.read_request(dict(body))
    instructions = [part for turn in request.turns if turn.role in ("system", "developer") for part in turn.parts]
    system = "".join(_list_items((*request.system, *instructions)))
    items = [
        f"{'assistant' if turn.role == 'assistant' else 'user'} {item}"
        for turn in request.turns
        if turn.role not in ("system", "developer")
        for item in _list_items(turn.parts)
    ]
    names = sorted(tool.name for tool in request.tools if isinstance(tool, ir.Tool))
    return hex_digest("\0".join((system, *items, *names)), 24)


def _list_items(parts: Iterable[ir.Part]) -> Iterator[str]:
    for part in parts:
        match part:
            case ir.Text() if part.text.strip():
                yield "".join(part.text.split())
            case ir.Call():
                yield f"call {part.name} {_write_arguments(part.arguments)}"
            case ir.Result():
                yield f"result {''.join(_list_items(part.content))}"
            case ir.Media():
                yield f"media {hex_digest(part.data, 16)}"


def _write_arguments(arguments: str) -> str:
    try:
        return msgspec.json.encode(decode(arguments.encode()), order="sorted").decode()
    except Malformed:
        return arguments
