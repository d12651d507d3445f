"""Headers, to providers and back to clients."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from toolwire.gateway.call import Call
from toolwire.gateway.lines import Headers, Line
from toolwire.room import Room

JSON: Mapping[str, str] = {"content-type": "application/json"}
"""An answer that bears nothing else has this very mapping, and is known by that."""
REQUEST_ID = "x-request-id"
HOPS = "x-toolwire-hops"
"""The gateways that a call has come through; one that finds itself there calls itself."""
_LINES = 16
"""More are not remembered for one head."""
_NONE: Mapping[str, str] = {}


def call_headers(call: Call, line: Line, body: bytes, hops: str) -> Headers:
    """What a provider gets to see, but for what is new in every request."""
    room = line.room
    needed = room.http.headers(line.model, body, call.headers if room.name == call.client.name else _NONE)
    sent = call.sent.get(line)
    if sent is not None and sent[0] == needed:
        return sent[1]
    if len(call.sent) >= _LINES:
        call.sent.clear()
    headers = _call_headers(call, line, needed, hops)
    call.sent[line] = (needed, headers)
    return headers


def _call_headers(call: Call, line: Line, needed: Headers, hops: str) -> Headers:
    """Of the client's own headers only those that its protocol gives a meaning to."""
    room, came = line.room, call.headers
    headers = call.state.forwarded[room.name].among(came) if room.name == call.client.name else {}
    headers.update(needed)
    headers.update(line.headers)
    if line.provider.forward_auth:
        name, value = room.http.credential(call.visitor.own)
        headers[name] = value
    passed = came.get(HOPS)
    headers[HOPS] = f"{passed},{hops}" if passed else hops
    headers.pop(REQUEST_ID, None)
    return tuple(headers.items())


def answer_headers(call: Call, line: Line, given: Mapping[str, str], codes: tuple[str, ...]) -> Mapping[str, str]:
    """What a client gets to see of a provider's headers, and what we have to say ourselves."""
    room, client = line.room, call.client
    if room.name == client.name:
        more: Mapping[str, str] = call.state.answered[room.name].among(given)
    else:
        limits = room.http.read_limits(given, call.now)
        more = client.http.write_limits(limits, call.now) if limits else _NONE
    if codes:
        more = {**more, "x-toolwire-losses": _losses(codes)}
    return {**JSON, **more} if more else JSON


@lru_cache(maxsize=128)
def _losses(codes: tuple[str, ...]) -> str:
    return f"{len(codes)}; codes={','.join(dict.fromkeys(codes))}"


def named(room: Room, request_id: str) -> dict[str, str]:
    """The id of the request, under the usual name and under the one that this protocol's clients look for."""
    return {REQUEST_ID: request_id, room.http.request_id: request_id}
