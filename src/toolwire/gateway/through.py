"""Paths of a protocol that are not about tools (embeddings, files …): passed on to a provider that speaks it."""

from __future__ import annotations

import posixpath
from urllib.parse import unquote

from toolwire.gateway import refusals
from toolwire.gateway.asking import Asking
from toolwire.gateway.bodies import ambiguous, peeked, with_model
from toolwire.gateway.call import Call, Reply, Source
from toolwire.gateway.headers import named
from toolwire.gateway.incoming import Incoming
from toolwire.gateway.lines import Line
from toolwire.gateway.settings.config import Provider
from toolwire.gateway.settings.routing import Target, Unroutable
from toolwire.gateway.upstream.faults import Fault
from toolwire.ir import Failure
from toolwire.protocols import ROOMS

KEPT = frozenset({"content-type", "content-disposition", "cache-control", "etag", "last-modified", "location"})
"""Headers of an answer that matter whatever it is; the protocol's own come besides."""
NOWHERE = Reply(404, {}, b"")


async def pass_through(call: Call, incoming: Incoming, asking: Asking, read: bytes | None = None) -> Reply | None:
    """Bytes there and bytes back, as they come; a Reply where there is nobody to pass them to, else None. `read` is
    the body where it was read already."""
    room, record = call.client, call.record
    if not all(path.startswith(room.http.families) for path in (incoming.path, _plain(incoming.path))):
        return NOWHERE
    if call.state.config.server.keys and _plain(incoming.path).startswith(_STATE):
        return NOWHERE  # another client may have left it there: all share the provider's account
    body = await incoming.body(call.state.config.server.max_body) if read is None else read
    if isinstance(body, Failure):
        return refusals.reply(room, body)
    target = _target(call, body)
    if target is None:
        return NOWHERE
    if isinstance(target, Failure):
        return refusals.reply(room, target)
    provider = target.provider
    record.verb, record.provider, record.target, record.passed = "pass", provider.name, room.name, True
    line = _line(call, incoming, provider)
    if isinstance(line, Failure):
        return refusals.reply(room, line)
    incoming.watch(call.state.cancels)
    source = await asking.send(call, line, _renamed(call, body, target.model), incoming.method)
    if isinstance(source, Fault):
        return refusals.reply(room, refusals.failure_of(line, source))
    await _relayed(call, incoming, line, source)
    return None


_STATE = tuple(family for room in ROOMS.values() if room.keeping is not None for family in room.http.families)
"""Where clients leave things with a provider."""


def _plain(path: str) -> str:
    """The path as a provider may understand it, which dots and escapes could hide."""
    return "/" + posixpath.normpath(unquote(path)).lstrip("/")


def _target(call: Call, body: bytes) -> Target | Failure | None:
    """The provider of the model that the body names; where it names none that is known, the first that speaks this."""
    peek = peeked(body) if body[:1] == b"{" else None
    key, protocol = call.visitor.key, call.client.name
    narrow = key is not None and key.models != ("*",)
    if peek is not None and peek.model and not (narrow and not call.client.http.model_in_body):
        targets = call.state.router.route(peek.model, key)
        if not isinstance(targets, Unroutable):
            return _speaking(targets[0], protocol)
        if targets.kind == "permission":
            return Failure("permission", targets.message, 403)
    elif key is not None and narrow:
        # Where the path names the model, the body could name another one.
        return Failure("permission", f"the key `{key.name}` is for certain models only, and this names none", 403)
    provider = call.state.router.speaker(protocol)
    return Target(provider, peek.model if peek is not None else "") if provider is not None else None


def _speaking(target: Target, protocol: str) -> Target | Failure | None:
    if target.provider.embedded:
        return None
    if protocol in target.provider.protocols:
        return target
    what = f"the provider `{target.provider.name}` of this model does not have this endpoint"
    return Failure("not_found", f"{what}: it does not speak {protocol}, and this path is only passed on", 404)


def _renamed(call: Call, body: bytes, model: str) -> bytes:
    """The body with the model's own name, if it names one."""
    peek = peeked(body) if model else None
    if peek is None:
        return body
    key = call.visitor.key
    # A key that may use some models only must not smuggle in a second name that another parser would take.
    smuggled = key is not None and key.models != ("*",) and ambiguous(body)
    return with_model(body, model) if peek.model != model or smuggled else body


def _line(call: Call, incoming: Incoming, provider: Provider) -> Line | Failure:
    room, state = call.client, call.state
    if provider.forward_auth and not call.visitor.own:
        return Failure("authentication", f"the provider `{provider.name}` wants your own key of it", 401)
    query = state.access.without_credential(incoming.query)
    path = f"{incoming.path}?{query}" if query else incoming.path
    kind = incoming.headers.get("content-type", "application/json")
    headers = {**state.fixed(provider, room), "content-type": kind}
    address = state.address(provider, room.name)
    return Line(provider, room, "", False, None, True, address, address.peer, path, headers, "", False)


async def _relayed(call: Call, incoming: Incoming, line: Line, source: Source) -> None:
    record, table = call.record, call.state.answered[line.room.name]
    headers = {name: value for name, value in source.headers.items() if name in KEPT or table.has(name)}
    record.status = source.status
    await incoming.start(source.status, {**headers, **named(line.room, record.request_id)})
    try:
        while True:
            data = await source.chunk()
            if isinstance(data, Fault):
                # Headers are out and the shape of the body is not ours: no end is all that is left to say it.
                incoming.abort()
                return
            await incoming.write(data, more=bool(data))
            if not data:
                return
    finally:
        source.abort()
