"""How many tokens a request has: asked of the provider where it counts, else estimated here."""

from __future__ import annotations

from msgspec.structs import replace

from toolwire import estimate
from toolwire.exchange import Exchange
from toolwire.gateway import refusals
from toolwire.gateway.asking import MAX_ANSWER, Asking
from toolwire.gateway.call import Call, Reply
from toolwire.gateway.headers import JSON
from toolwire.gateway.lines import Line
from toolwire.gateway.preparing import maker_of, rules_for
from toolwire.gateway.settings.routing import Target, chosen_room
from toolwire.gateway.upstream.faults import Fault
from toolwire.ir import Failure, changed
from toolwire.options import Options
from toolwire.room import Count
from toolwire.wire import Json, Malformed, as_object, decode, encode

ESTIMATE = {"x-toolwire-estimate": "tokens"}
"""The header that marks a count as an estimate: no protocol has a field for that."""


async def counted(call: Call, targets: tuple[Target, ...], asking: Asking) -> Reply:
    """The count in the client's shape."""
    shape = call.client.http.count
    if shape is None:
        raise ValueError("only protocols that count are asked to")
    try:
        body = shape.read_body(as_object(decode(call.body), None))
        request = call.client.read_request(body)
    except Malformed as bad:
        return refusals.reply(call.client, Failure("invalid", str(bad), 400, param=bad.path))
    target = targets[0]
    room = chosen_room(target, call.client, lambda: bool(request.tools))
    line = call.state.line(target, room, False)
    call.record.provider, call.record.target, call.record.model = target.provider.name, room.name, target.model
    asked = await _asked(call, line, body, asking)
    if asked is not None:
        return Reply(200, JSON, encode(shape.write(asked)))
    call.record.estimated = True
    if call.tooling is not None:
        request = changed(request, tools=(*request.tools, *call.tooling.tools))
    return Reply(200, {**JSON, **ESTIMATE}, encode(shape.write(estimate.tokens(request))))


async def _asked(call: Call, line: Line, body: Json, asking: Asking) -> int | None:
    """What the provider counts; None when it cannot be asked or does not say."""
    count = line.room.http.count
    if count is None or line.address is None or line.provider.key_missing:
        return None
    if line.provider.forward_auth and not call.visitor.own:
        return None
    options = Options(
        model=line.model,
        stream=False,
        maker=maker_of(call, line)[0],
        policy=rules_for(call, line),
        tools=call.tooling.tools if call.tooling is not None else (),
    )
    exchange = Exchange(call.client, line.room, options)
    try:
        wire = as_object(decode(exchange.request(body).body), None)
    except Malformed:
        return None
    there = replace(line, path=count.path(line.model))
    source = await asking.send(call, there, encode(count.write_body(wire, line.model)))
    if isinstance(source, Fault):
        return None
    data = await source.read(MAX_ANSWER)
    return _read(count, data) if source.status == 200 and not isinstance(data, Fault) else None


def _read(count: Count, data: bytes) -> int | None:
    try:
        return count.read(decode(data))
    except Malformed:
        return None
