"""Exchanges with providers as files: a `Recorder` writes them, `Recordings` answer from them without a network.

A file is a case, as `toolwire conformance` plays it. A recorded answer belongs to a conversation, whatever the protocol
of the client that asks: a test suite that was recorded with one SDK runs with another.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TypeAlias

import msgspec

from toolwire.core import ir
from toolwire.core.codec import Codec
from toolwire.core.ids import hex_digest
from toolwire.core.ir import Failure
from toolwire.core.json_values import Json, Malformed, decode, encode, parse_object
from toolwire.gateway.http.connection import TransportError
from toolwire.gateway.http.messages import ReadyResponse, UpstreamRequest, UpstreamResponse
from toolwire.gateway.http.redact import SecretFilter, find_secrets, redact
from toolwire.gateway.settings.config import Config, Timeouts
from toolwire.gateway.settings.problems import ConfigError, Problem
from toolwire.gateway.surfaces.console.case_file import write_case
from toolwire.gateway.telemetry.record import ExchangeRecord
from toolwire.in_process.recorded_case import (
    NAME_LENGTH,
    RecordedCase,
    RecordedExchange,
    ReplayedModel,
    SettingsWriter,
    build_config,
    read_case,
    read_protocol,
    write_host,
)
from toolwire.in_process.settings import leave_out_server
from toolwire.protocols import CODECS

_log = logging.getLogger("toolwire")
Answers: TypeAlias = dict[tuple[str, str], RecordedExchange]
"""The exchanges with providers, by the address of a recorded model and the digest of a conversation."""


class Recorder:
    def __init__(self, folder: Path, config: Config) -> None:
        """Raises OSError if there can be no such folder."""
        folder.mkdir(parents=True, exist_ok=True)
        self._folder, self._secrets, self._settings = folder, SecretFilter(config.secrets), SettingsWriter(config)

    def keep(self, record: ExchangeRecord) -> None:
        """Write an exchange. The same request again replaces its file."""
        capture = record.traffic.capture
        calls = capture.upstream_calls if capture is not None else []
        if capture is None or not any(call.status for call in calls):
            return
        if not capture.client_request or any(not call.body or call.response.is_cut for call in calls):
            _log.warning("an exchange with %s is not recorded: it is too long", record.asked.model)
            return
        sent = _read_json(capture.client_request)
        secrets = (*record.client.secrets, *find_secrets(sent))

        def clean(text: str) -> str:
            return self._secrets.clean(redact(text), secrets)

        case = write_case(record, clean, "recorded by toolwire.http_client", self._settings.write(record))
        name = hex_digest(f"{record.client.protocol}\0{capture.client_request.decode('utf-8', 'replace')}", NAME_LENGTH)
        (self._folder / f"{name}.json").write_bytes(case + b"\n")


class Recordings:
    """The recorded answers of a folder."""

    def __init__(self, folder: Path) -> None:
        """Raises ConfigError if a file there is not a recorded exchange."""
        self._folder = folder
        self._answers: Answers = {}
        models: dict[str, ReplayedModel] = {}
        for path in sorted(folder.glob("*.json")):
            try:
                case = read_case(path.read_bytes())
                model = models.setdefault(case.model, ReplayedModel(case.model, case.provider.protocol, case.settings))
                build_config([model])
                self._answers |= _list_answers(case)
            except (Malformed, OSError) as error:
                what = f"{path.name} is not a recorded exchange: {error}"
                raise ConfigError([Problem(location=str(path), message=what, hint="record it again")], "") from None
        if not models:
            what = f"there are no recorded exchanges in {folder}"
            hint = "record them with `record=` and a provider"
            raise ConfigError([Problem(location=str(folder), message=what, hint=hint)], "")
        self.config = leave_out_server(build_config(models.values()))

    def make_sender(self) -> Recordings:
        return self

    def set_timeouts(self, timeouts: Timeouts) -> None: ...

    async def close(self) -> None: ...

    async def send_request(self, request: UpstreamRequest) -> UpstreamResponse | TransportError:
        """The recorded answer to a request, or a provider's error that says that there is none."""
        host = request.address.host
        codec = CODECS[read_protocol(host)]
        text = redact(msgspec.json.format(request.body, indent=2).decode())  # as it was recorded
        found = self._answers.get((host, digest_conversation(codec, parse_object(text.encode()))))
        if found is None:
            what = f"there is no recorded answer to this conversation in {self._folder}: record it with `record=`"
            error = codec.write_error(Failure("not_found", what, 404))
            return ReadyResponse(error.status, {"content-type": "application/json"}, deque([encode(error.body)]))
        if isinstance(found.sse, str):
            framing = codec.http.framing
            return ReadyResponse(
                found.status, {"content-type": framing.content_type}, deque([framing.read_text(found.sse)])
            )
        data = found.body.encode() if isinstance(found.body, str) else encode(found.body)
        return ReadyResponse(found.status, {"content-type": "application/json"}, deque([data]))


def _list_answers(case: RecordedCase) -> Answers:
    """Without those that a fallback stood in for. Raises Malformed."""
    codec, exchanges = CODECS[case.provider.protocol], case.provider.exchanges
    host = write_host(case.model, case.provider.protocol)
    good = [exchange for exchange in exchanges if exchange.status < 300] or exchanges[-1:]
    return {(host, digest_conversation(codec, exchange.expect.body)): exchange for exchange in good}


def _read_json(data: bytes) -> Json:
    try:
        return decode(data)
    except Malformed:
        return None


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
