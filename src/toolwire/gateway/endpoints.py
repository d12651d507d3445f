"""What is served: answers, counts, lists of models, paths that pass through, and the gateway's own pages."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from typing import Any
from urllib.parse import parse_qsl, unquote

from msgspec.structs import replace

from toolwire.gateway import refusals
from toolwire.gateway.access import Visitor
from toolwire.gateway.agents import recognised
from toolwire.gateway.attempts import attempts_header
from toolwire.gateway.bodies import peeked
from toolwire.gateway.call import Call, Flow, Refusal, Reply
from toolwire.gateway.counting import counted
from toolwire.gateway.dialects import Dialects
from toolwire.gateway.engine import Engine
from toolwire.gateway.headers import JSON, named
from toolwire.gateway.incoming import Incoming
from toolwire.gateway.known import Known
from toolwire.gateway.lines import State
from toolwire.gateway.mcp.servers import Servers
from toolwire.gateway.relay import Outlet
from toolwire.gateway.settings.routing import Target, Unroutable
from toolwire.gateway.state import errands
from toolwire.gateway.state.book import owner_of
from toolwire.gateway.state.desk import Desk
from toolwire.gateway.state.jobs import Interrupted, Job
from toolwire.gateway.state.visit import Passed, Replay, Visit
from toolwire.gateway.telemetry.heard import Overheard
from toolwire.gateway.telemetry.metrics import CONTENT_TYPE
from toolwire.gateway.telemetry.record import Record
from toolwire.gateway.telemetry.watching import Telemetry
from toolwire.gateway.through import NOWHERE, pass_through
from toolwire.ir import NOTHING, Failure
from toolwire.room import Asked, Card, Room
from toolwire.wire import Malformed, as_object, decode, encode

TEXT = {"content-type": "text/plain; charset=utf-8"}
METRICS = {"content-type": CONTENT_TYPE}
_NO_MORE: Mapping[str, str] = {}


class Endpoints:
    """Serves one configuration."""

    def __init__(
        self,
        state: State,
        engine: Engine,
        telemetry: Telemetry,
        dialects: Dialects,
        desk: Desk,
        servers: Servers,
    ) -> None:
        self.state = state
        self._engine = engine
        self._asking = engine.asking
        self._telemetry = telemetry
        self._dialects = dialects
        self._desk = desk
        self._servers = servers
        self._limit = state.config.server.max_body
        self._unseen = bool(servers) or bool(state.policy)
        rooms = dialects.rooms if desk.book.keeps else ()
        self._sealed = frozenset(room.name for room in rooms if self._unseen or not room.rules.seals)
        """Protocols whose clients cannot carry all of an answer themselves."""
        self.open: Mapping[str, Callable[[], Reply]] = {
            "/livez": lambda: Reply(200, TEXT, b"ok\n"),
            "/readyz": lambda: Reply(503, TEXT, b"stopping\n") if engine.leaving() else Reply(200, TEXT, b"ok\n"),
        }
        """Pages that everybody may see: they tell nothing."""

    def serve(self, incoming: Incoming, known: Known, visitor: Visitor, record: Record) -> Coroutine[Any, Any, None]:
        """Answer a visitor that was let in."""
        headers, clock, asked = incoming.headers, incoming.clock, known.asked
        call = Call(self.state, known.room, visitor, record, headers, clock, known.sent, record.wall)
        if asked is None:
            return self._other(incoming, call)
        return (self._count if asked.verb == "count" else self._generate)(incoming, call, asked)

    async def _other(self, incoming: Incoming, call: Call) -> None:
        room, record = call.client, call.record
        endpoint = self._dialects.asked(incoming.path, incoming.query) is not None
        answer = _wrong_method(incoming, room) if endpoint else self._page(incoming, room, call.visitor, record)
        keeping = room.keeping
        errand = keeping.errand(incoming.method, incoming.path) if answer is None and keeping is not None else None
        if errand is not None and keeping is not None:
            visit = Visit(self._desk, self._engine, call, keeping, errand, incoming.query)
            await self._errand(incoming, call, visit)
            return
        if answer is None:
            answer = await pass_through(call, incoming, self._asking)
            if answer is None:
                return
            if answer is NOWHERE:
                answer = self._nowhere(incoming, room)
        await self._answer(incoming, room, record, answer)

    # --- answers ---

    async def _generate(self, incoming: Incoming, call: Call, asked: Asked) -> None:
        targets = self._read(call, asked, incoming.whole(self._limit) or await incoming.body(self._limit))
        if not isinstance(targets, tuple):
            await self._refuse(incoming, call, targets)
            return
        incoming.watch(self.state.cancels)
        client = call.client
        if client.name in self._sealed:
            call.sealing = self._desk.seals.of(owner_of(call.visitor))
        wants = client.keeping is not None and not client.keeping.stateless(call.peek)
        begun = await self._begun(call, targets, wants) if wants or self._unseen else None
        got = await self._engine.ask(call, targets) if begun is None else begun
        if isinstance(got, Reply):
            whole = got if call.keeper is None else await call.keeper.whole(got)
            record, name = call.record, client.http.request_id
            more = self._noted(incoming, record, whole)
            if not incoming.tell(whole, record.request_id, name, more):
                await incoming.answer(whole, {**more, **named(client, record.request_id)})
        elif isinstance(got, Flow):
            await self._stream(incoming, call, got)
        elif isinstance(got, Refusal):
            await self._refuse(incoming, call, refusals.streamed(call, await self._failed(call, got)))
        else:
            await self._told(incoming, call, got.followed(-1))

    async def _begun(self, call: Call, targets: tuple[Target, ...], wants: bool) -> Reply | Refusal | Job | None:
        """What a client may want besides an answer, and what happens behind its back."""
        if self._unseen:
            call.unseen = True
            if self._servers:
                await self._equip(call, targets[0])
        return await self._desk.begin(call, targets, self._engine) if wants else None

    def _read(self, call: Call, asked: Asked, body: bytes | Failure) -> tuple[Target, ...] | Refusal:
        """What the body asks for, and where that is."""
        record, telemetry = call.record, self._telemetry
        if not isinstance(body, bytes):
            return refusals.told(call, body)
        record.bytes_in = len(body)
        if telemetry.bodies:
            record.request_body = body
        if telemetry.debug:
            record.heard = Overheard(body)
        keeping = call.client.keeping
        peek = (None if keeping is None else keeping.peek(body)) or peeked(body)
        if peek is None:
            return refusals.told(call, _malformed(call.client, body))
        call.body, call.peek = body, peek
        call.model = record.asked = asked.model or peek.model
        if peek.stream if asked.stream is None else asked.stream:
            call.stream = record.stream = True
        if asked.framing:
            call.framing = asked.framing
        return self._engine.targets(call)

    async def _equip(self, call: Call, target: Target) -> None:
        """Tools for the model that are run here."""
        key = call.visitor.key
        models = (call.model, target.model)
        agents = recognised(call.headers.get("user-agent", ""))
        clients = (call.client.name, key.name if key is not None else "", *agents)
        await self._servers.ready(models, clients)
        standing = await self._standing(call)
        call.tooling = self._servers.interceptor(models, clients, (), standing)

    async def _standing(self, call: Call) -> Mapping[str, Any]:
        """What stands in for tools of a provider, where the request has such."""
        wanted = self.state.config.translate.substitutes
        if not wanted or not any(word in call.body for word in call.client.http.hosted):
            return NOTHING
        return await self._servers.standing(wanted)

    async def _stream(self, incoming: Incoming, call: Call, flow: Flow) -> None:
        http, record, server = call.client.http, call.record, self.state.config.server
        framing = http.framing(call.framing) if call.framing else None
        kind = "application/json" if framing is not None else http.stream_type
        headers = {**flow.headers, **attempts_header(record.attempts), **named(call.client, record.request_id)}
        await incoming.start(200, {**headers, "content-type": kind, "cache-control": "no-cache"})
        record.status, record.first_byte = 200, incoming.clock()
        outlet = Outlet(incoming, framing, b"" if framing is not None else http.heartbeat, server.heartbeat)
        outlet.begin()
        await self._engine.relay(call, flow, outlet if record.heard is None else record.heard.speaks(outlet))

    async def _told(self, incoming: Incoming, call: Call, frames: AsyncIterator[bytes]) -> None:
        """A stream that is made elsewhere, as it comes."""
        http, record = call.client.http, call.record
        headers = {"content-type": http.stream_type, "cache-control": "no-cache"}
        await incoming.start(200, {**headers, **named(call.client, record.request_id)})
        record.status, record.first_byte, record.stream = 200, incoming.clock(), True
        outlet = Outlet(incoming, None, http.heartbeat, self.state.config.server.heartbeat)
        try:
            async for frame in frames:
                outlet.begin()
                if not outlet.put(frame):
                    await outlet.drained()
            await outlet.end()
        except Interrupted:
            incoming.abort()
        finally:
            outlet.close()

    async def _errand(self, incoming: Incoming, call: Call, visit: Visit) -> None:
        """Something about what is kept."""
        call.record.verb = "state"
        body = await incoming.body(self._limit)
        bad = refusals.reply(call.client, body) if isinstance(body, Failure) else visit.given(body)
        if bad is not None or isinstance(body, Failure):
            await self._answer(incoming, call.client, call.record, bad or NOWHERE)
            return
        incoming.watch(self.state.cancels)
        got = await errands.run(visit)
        if isinstance(got, Replay):
            await self._told(incoming, call, got.frames)
        elif isinstance(got, Reply):
            await self._answer(incoming, call.client, call.record, got)
        elif isinstance(got, Passed):
            passed = await pass_through(call, incoming, self._asking, body)
            if passed is not None:
                answer = self._nowhere(incoming, call.client) if passed is NOWHERE else passed
                await self._answer(incoming, call.client, call.record, answer)

    @staticmethod
    async def _failed(call: Call, refusal: Refusal) -> Refusal:
        """An answer that says itself that it failed is kept as any other."""
        if call.keeper is None or refusal.reply.status != 200:
            return refusal
        return replace(refusal, reply=await call.keeper.whole(refusal.reply))

    async def _refuse(self, incoming: Incoming, call: Call, refusal: Refusal) -> None:
        call.record.failure = refusal.failure.kind
        await self._answer(incoming, call.client, call.record, refusal.reply)

    def _answer(self, incoming: Incoming, room: Room, record: Record, answer: Reply) -> Coroutine[Any, Any, None]:
        return incoming.answer(answer, {**self._noted(incoming, record, answer), **named(room, record.request_id)})

    def _noted(self, incoming: Incoming, record: Record, answer: Reply) -> Mapping[str, str]:
        """The headers that an answer gets besides its own and its id, when it is noted."""
        record.status, record.first_byte = answer.status, incoming.clock()
        if self._telemetry.bodies:
            record.response_body = answer.body
        if record.heard is not None:
            record.heard.gives(answer.body)
        return _NO_MORE if len(record.attempts) < 2 else attempts_header(record.attempts)

    # --- counts ---

    async def _count(self, incoming: Incoming, call: Call, asked: Asked) -> None:
        call.record.verb = "count"
        targets = self._read(call, asked, await incoming.body(self._limit))
        call.stream = False
        incoming.watch(self.state.cancels)
        answer = targets.reply if isinstance(targets, Refusal) else await self._counted(call, targets)
        await self._answer(incoming, call.client, call.record, answer)

    async def _counted(self, call: Call, targets: tuple[Target, ...]) -> Reply:
        """What the request only refers to is counted too, and what the model is given besides."""
        if self._servers:
            await self._equip(call, targets[0])
        refusal = await self._desk.recalled(call, targets)
        return await counted(call, targets, self._asking) if refusal is None else refusal.reply

    # --- pages ---

    def _page(self, incoming: Incoming, room: Room, visitor: Visitor, record: Record) -> Reply | None:
        """What can be answered at once; None for a path that may pass through."""
        if incoming.path == "/metrics":
            record.verb = "metrics"
            return Reply(200, METRICS, self._telemetry.metrics_text())
        if incoming.method not in ("GET", "HEAD"):
            return None
        name = self._dialects.listed(incoming.path)
        if name is None:
            return None
        record.verb = "models"
        return self._models(room, visitor, incoming.query) if not name else self._model(room, visitor, unquote(name))

    def _models(self, room: Room, visitor: Visitor, query: str) -> Reply:
        cards = self.state.router.cards(visitor.key)
        return Reply(200, JSON, encode(room.http.write_models(cards, dict(parse_qsl(query)))))

    def _model(self, room: Room, visitor: Visitor, name: str) -> Reply:
        for card in self.state.router.cards(visitor.key):
            if card.id == name:
                return Reply(200, JSON, encode(room.http.write_model(card)))
        targets = self.state.router.route(name, visitor.key)
        if isinstance(targets, Unroutable):
            return refusals.reply(room, Failure(targets.kind, targets.message, 0, "model_not_found", "model"))
        return Reply(200, JSON, encode(room.http.write_model(Card(name, targets[0].provider.name))))

    def _nowhere(self, incoming: Incoming, room: Room) -> Reply:
        near = self._dialects.near(incoming.path)
        hint = f"did you mean POST {near}?" if near else f"there is: {', '.join(self._dialects.posts)}"
        what = f"nothing is served at {incoming.method} {incoming.path[:200]}"
        return refusals.reply(room, Failure("not_found", f"{what}; hint: {hint}", 404))


def _malformed(room: Room, body: bytes) -> Failure:
    try:
        room.read_request(as_object(decode(body), None))
    except Malformed as bad:
        return Failure("invalid", str(bad), 400, param=bad.path)
    return Failure("invalid", "the model must be a string and stream true or false", 400)


def _wrong_method(incoming: Incoming, room: Room) -> Reply:
    if incoming.headers.get("upgrade", "").lower() == "websocket":
        return upgrade_refused(room)
    answer = refusals.reply(room, Failure("invalid", f"{incoming.path} takes POST, not {incoming.method}", 405))
    return Reply(405, {**answer.headers, "allow": "POST"}, answer.body)


def upgrade_refused(room: Room) -> Reply:
    """Clients that are told so at once use HTTP."""
    failure = Failure("invalid", "WebSockets are not spoken here; send the same request with POST", 426)
    answer = refusals.reply(room, failure)
    return Reply(426, answer.headers, answer.body)
