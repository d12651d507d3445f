"""An exchange as something to take away: a command for curl, and a case that `toolwire conformance` can play."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping

import msgspec

from toolwire.core.ir import EMPTY_MAPPING
from toolwire.core.json_values import Json, Malformed, Object, decode
from toolwire.gateway.telemetry.log import log_path
from toolwire.gateway.telemetry.record import ExchangeRecord, UpstreamCapture
from toolwire.protocols import CODECS

MAX_ARGUMENT = 100_000
"""Bytes of a body in a command: Linux takes 128 kB in one argument. For a longer one the command names a file."""
CASE_ID = 9000
"""The number of a case that was not reported."""
NEEDS_SETTINGS = frozenset({"calls", "policy", "translate"})
"""What changes questions and answers, and is the operator's choice."""


def write_curl(record: ExchangeRecord, clean: Callable[[str], str]) -> str:
    """The client's request as a command. The address and the key are variables of the shell."""
    codec, capture = CODECS.get(record.client.protocol), record.traffic.capture
    if codec is None or capture is None:
        return ""
    name, value = codec.http.write_credential("$KEY")
    query = record.client.path.partition("?")[2]
    kept = "&".join(pair for pair in query.split("&") if pair == "alt=sse")
    path = log_path(record) + (f"?{kept}" if kept else "")
    headers = f'-H "{name}: {value}" -H "content-type: application/json"'
    body = shlex.quote(clean(capture.client_request.decode("utf-8", "replace")))
    if len(body.encode("utf-8", "replace")) > MAX_ARGUMENT:
        body = "@request.json"
    return f'curl -N "$URL{path}" {headers} -d {body}'


def write_case(
    record: ExchangeRecord,
    clean: Callable[[str], str],
    source: str = "recorded by the console",
    settings: Mapping[str, Json] = EMPTY_MAPPING,
) -> bytes:
    """The exchange as the file of a case: what the client sent, what each provider was sent and answered, and what the
    client got. b"" if it was not captured. `settings` are for who replays it; with `NEEDS_SETTINGS` among them, only a
    gateway that is set up alike can play the case."""
    capture = record.traffic.capture
    if capture is None or not capture.upstream_calls:
        return b""
    client: Object = {
        "protocol": record.client.protocol,
        "stream": record.asked.stream,
        "request": _read_json(capture.client_request),
    }
    if record.asked.model and "model" not in (client["request"] or {}):
        client["model"] = record.asked.model
    case: Object = {
        "id": CASE_ID,
        "title": f"{record.client.protocol} to {record.upstream.protocol}, as recorded",
        "source": [source],
        "client": client,
        "provider": {
            "protocol": capture.upstream_calls[-1].protocol,
            "exchanges": [_write_exchange(call, record.asked.model) for call in capture.upstream_calls],
        },
        "client_sees": {"status": record.status},
        **({"settings": dict(settings)} if settings else {}),
        **({"configured": True} if NEEDS_SETTINGS & settings.keys() else {}),
    }
    return clean(msgspec.json.format(msgspec.json.encode(case), indent=2).decode()).encode()


def _write_exchange(call: UpstreamCapture, model: str) -> Object:
    """`model` is the name that the client asked for: whoever plays the case has no aliases."""
    framing = CODECS[call.protocol].http.framing
    is_stream = call.headers.get("content-type", "").startswith(framing.content_type)
    data = call.response.data
    answer: Object = {"sse": framing.write_text(data)} if is_stream else {"body": _read_json(data)}
    sent = _read_json(call.body)
    if isinstance(sent, dict) and "model" in sent:
        sent["model"] = model
    # `$is`: exactly this, so that texts which begin with `$` are not read as operators.
    return {"expect": {"$is": sent}, "status": call.status or 502, "whole": True, **answer}


def _read_json(data: bytes) -> Json:
    try:
        return decode(data)
    except Malformed:
        return data.decode("utf-8", "replace")
