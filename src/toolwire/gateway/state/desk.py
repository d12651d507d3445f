"""Requests that want more than an answer: to go on from what is kept, to have it kept, or to fetch it later."""

from __future__ import annotations

import secrets
from copy import copy

from toolwire import seals
from toolwire.gateway import refusals
from toolwire.gateway.bodies import peeked
from toolwire.gateway.call import Call, Flow, Refusal, Reply
from toolwire.gateway.headers import JSON
from toolwire.gateway.settings.routing import Target, chosen_room
from toolwire.gateway.state import recalling
from toolwire.gateway.state.book import LIVING, Book, owner_of, unreachable
from toolwire.gateway.state.engine import Engine
from toolwire.gateway.state.forgetful import Unkept, nothing_kept
from toolwire.gateway.state.jobs import Job, Jobs, Work
from toolwire.gateway.state.keeper import Keeper
from toolwire.gateway.state.recalling import WITHOUT, Recalled
from toolwire.gateway.state.sealing import Seals
from toolwire.gateway.state.working import BROKEN, failed, worked
from toolwire.gateway.store.record import Down
from toolwire.ir import Failure
from toolwire.keeping import Keeping, Wants
from toolwire.wire import Malformed, Object, as_object, decode, encode

ENVELOPE = seals.PREFIX.encode()


class Desk:
    """One for a process, where the gateway keeps anything at all."""

    def __init__(self, book: Book) -> None:
        self.book = book
        self.seals = Seals(book)
        self.jobs = Jobs(book)

    async def close(self, seconds: float | None) -> None:
        """Work in the background may finish, as streams may."""
        await self.jobs.close(seconds)
        await self.book.store.close()

    async def begin(self, call: Call, targets: tuple[Target, ...], engine: Engine) -> Reply | Refusal | Job | None:
        """See to what a request wants besides an answer. None: go on and ask for it."""
        keeping = call.client.keeping
        if keeping is None:
            return None
        body = body_of(call)
        wants = keeping.wants(body) if body is not None else None
        if body is None or wants is None:
            return None  # whoever reads it next says what is wrong with it
        if isinstance(wants, Failure):
            return refusals.told(call, wants)
        if not (wants.store or wants.previous or wants.conversation or wants.references or wants.summary):
            return None
        call.seed = secrets.token_hex(12)
        owner = owner_of(call.visitor)
        hint = "" if wants.background else WITHOUT
        recalled = await recalling.recalled(self.book, owner, keeping, wants, hint)
        if isinstance(recalled, Failure):
            return None if _is_foreign(call, targets, recalled) else refusals.told(call, recalled)
        if not self.book.keeps:
            return await self._forget(call, targets, engine, keeping, wants, body, recalled)
        down = await self.book.ready() if wants.store else None
        if down is not None:
            return refusals.told(call, unreachable(down, hint))
        items = keeping.items(keeping.expanded(body, [], recalled.fresh), call.seed)
        given = (keeping.new("response", call.seed), int(call.now)) if wants.background else ("", 0)
        keeper = Keeper(self.book, owner, keeping, wants, items, given)
        return await self._set_up(call, targets, engine, keeper, body, recalled)

    async def _set_up(
        self, call: Call, targets: tuple[Target, ...], engine: Engine, keeper: Keeper, body: Object, recalled: Recalled
    ) -> Reply | Refusal | Job | None:
        keeping, wants = keeper.keeping, keeper.wants
        if wants.summary and not (is_native(call, targets) and ENVELOPE not in call.body):
            return await self._summary(call, targets, engine, keeper, body, recalled)
        if wants.previous or wants.conversation or wants.references or wants.background:
            take(call, keeping.expanded(body, recalled.history, recalled.found), wants.background)
        if wants.background:
            return await self._background(call, targets, engine, keeper, body)
        call.keeper = keeper
        return None

    async def _forget(
        self,
        call: Call,
        targets: tuple[Target, ...],
        engine: Engine,
        keeping: Keeping,
        wants: Wants,
        body: Object,
        recalled: Recalled,
    ) -> Reply | Refusal | None:
        """Nothing is kept here. A provider of the client's own protocol may do it, where nobody shares its account."""
        if is_native(call, targets) and trusts(call):
            return None
        if wants.background:
            return refusals.told(call, nothing_kept(400))
        unkept = Unkept(keeping)
        if wants.summary:
            return await self._summary(call, targets, engine, unkept, body, recalled)
        call.keeper = unkept
        return None

    async def recalled(self, call: Call, targets: tuple[Target, ...]) -> Refusal | None:
        """Put in what a request only refers to, where no answer is wanted."""
        keeping = call.client.keeping
        if keeping is None:
            return None
        body = body_of(call)
        wants = keeping.wants(body) if body is not None else None
        if (
            body is None
            or not isinstance(wants, Wants)
            or not (wants.previous or wants.conversation or wants.references)
        ):
            return None
        found = await recalling.recalled(self.book, owner_of(call.visitor), keeping, wants, WITHOUT)
        if isinstance(found, Failure):
            return None if _is_foreign(call, targets, found) else refusals.told(call, found)
        take(call, keeping.expanded(body, found.history, found.found))
        return None

    # --- in the background ---

    async def _background(
        self, call: Call, targets: tuple[Target, ...], engine: Engine, keeper: Keeper, body: Object
    ) -> Reply | Refusal | Job:
        queued, running = ({**keeper.keeping.begun(body, int(call.now), status), **keeper.changes} for status in LIVING)
        job = Job(self.book, keeper, queued, running)
        got = await job.begin()
        if isinstance(got, Down):
            return refusals.told(call, unreachable(got))
        work = copy(call)
        work.stream, work.keeper = True, None

        def broken(error: BaseException) -> Work:
            engine.fault(error)
            return failed(job, keeper, BROKEN)

        self.jobs.run(keeper.owner, job, worked(engine, work, targets, keeper, job), broken)
        return job if call.stream else Reply(200, JSON, encode(queued))

    # --- summaries ---

    async def _summary(
        self,
        call: Call,
        targets: tuple[Target, ...],
        engine: Engine,
        keeper: Keeper | Unkept,
        body: Object,
        recalled: Recalled,
    ) -> Reply | Refusal:
        """A summary in place of an answer, for a provider that makes none itself."""
        keeping, streams = keeper.keeping, call.stream
        whole = keeping.expanded(body, recalled.history, recalled.found)
        got = await self.summed(call, targets, engine, keeping, whole)
        if isinstance(got, Refusal):
            return got
        response = keeping.summary(body, got, call.seed, int(call.now))
        if isinstance(response, Failure):
            return refusals.told(call, response)
        reply = await keeper.whole(Reply(200, JSON, encode(response)))
        if not streams:
            return reply
        told = as_object(decode(reply.body), None)
        headers = {**reply.headers, "content-type": call.client.http.stream_type}
        return Reply(200, headers, keeping.frames(told))

    async def summed(
        self, call: Call, targets: tuple[Target, ...], engine: Engine, keeping: Keeping, whole: Object
    ) -> Object | Refusal:
        """The model's own words about a conversation, as an answer of the client's protocol."""
        take(call, keeping.summons(whole, keeping.items(whole, call.seed)))
        call.stream, call.keeper, call.tooling = False, None, None
        got = await engine.ask(call, targets)
        if isinstance(got, Refusal):
            return got
        if isinstance(got, Flow):
            raise ValueError("a whole answer was asked for")
        try:
            return as_object(decode(got.body, max_bytes=len(got.body)), None)
        except Malformed as bad:
            return refusals.told(call, Failure("upstream", str(bad), 502))


def body_of(call: Call) -> Object | None:
    try:
        return as_object(decode(call.body, max_bytes=len(call.body)), None)
    except Malformed:
        return None


def take(call: Call, body: Object, streams: bool = False) -> None:
    """From here on this is what the client asked for."""
    if streams and call.client.http.stream_in_body:
        body = {**body, "stream": True}
    call.body = encode(body)
    call.peek = peeked(call.body) or call.peek


def is_native(call: Call, targets: tuple[Target, ...]) -> bool:
    """Is the first provider one of the client's own protocol, that may keep such things itself?"""
    target = targets[0]
    room = chosen_room(target, call.client, call.has_tools)
    return room.name == call.client.name and not target.provider.embedded


def _is_foreign(call: Call, targets: tuple[Target, ...], failure: Failure) -> bool:
    """May the provider itself know what we do not?"""
    return failure.status in (400, 404) and is_native(call, targets) and trusts(call)


def trusts(call: Call) -> bool:
    """May a client refer to what the provider keeps? Not where several clients share the provider's account."""
    return not call.state.config.server.keys
