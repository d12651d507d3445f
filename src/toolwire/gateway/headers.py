"""Headers, to providers and back to clients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from toolwire.gateway.call import Call
from toolwire.gateway.lines import Headers, Line
from toolwire.room import Room

JSON = {"content-type": "application/json"}
HOPS = "x-toolwire-hops"
"""The gateways that a call has come through; one that finds itself there calls itself."""


def call_headers(call: Call, line: Line, body: bytes, hops: str, trace: Headers) -> list[tuple[str, str]]:
    """What a provider gets to see. Of the client's own headers only those that its protocol gives a meaning to."""
    http = line.room.http
    same = line.room.name == call.client.name
    given = call.state.forwarded[line.room.name].among(call.headers) if same else {}
    set_here = http.headers(line.model, body, call.headers if same else given)
    headers = {**given, **dict(set_here), **line.headers}
    if line.provider.forward_auth:
        name, value = http.credential(call.visitor.own)
        headers[name] = value
    headers["x-request-id"] = call.record.request_id
    passed = call.headers.get(HOPS)
    headers[HOPS] = f"{passed},{hops}" if passed else hops
    return [*headers.items(), *trace]


def answer_headers(call: Call, line: Line, given: Mapping[str, str], codes: Sequence[str]) -> dict[str, str]:
    """What a client gets to see of a provider's headers, and what we have to say ourselves."""
    headers = JSON.copy()
    if line.room.name == call.client.name:
        headers.update(call.state.answered[line.room.name].among(given))
    else:
        limits = line.room.http.read_limits(given, call.now)
        if limits:
            headers.update(call.client.http.write_limits(limits, call.now))
    if codes:
        headers["x-toolwire-losses"] = f"{len(codes)}; codes={','.join(dict.fromkeys(codes))}"
    return headers


def named(room: Room, request_id: str) -> dict[str, str]:
    """The id of the request, under the usual name and under the one that this protocol's clients look for."""
    return {"x-request-id": request_id, room.http.request_id: request_id}
