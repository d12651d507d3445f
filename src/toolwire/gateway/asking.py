"""One try at one provider: the request is sent, and its answer brought to where the client's answer begins."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from typing import Any

from msgspec.structs import replace

from toolwire.exchange import StreamTranslation
from toolwire.gateway import refusals
from toolwire.gateway.call import Call, Flow, Passed, Prepared, Ready, Refusal, Reply, Source, Streaming
from toolwire.gateway.headers import REQUEST_ID, answer_headers, call_headers
from toolwire.gateway.health import Health
from toolwire.gateway.lines import Line
from toolwire.gateway.loopback.embedded import Embedded
from toolwire.gateway.loopback.model import answer
from toolwire.gateway.passing import Passing
from toolwire.gateway.preparing import Missing, completed, prepared
from toolwire.gateway.rounding import left_over, results_of
from toolwire.gateway.settings.routing import Target
from toolwire.gateway.telemetry.heard import Overheard
from toolwire.gateway.telemetry.record import Record
from toolwire.gateway.telemetry.watching import Telemetry
from toolwire.gateway.upstream.client import Client
from toolwire.gateway.upstream.faults import Fault
from toolwire.ir import NOTHING, Failure, Response
from toolwire.room import Room
from toolwire.wire import Malformed, as_object, decode

MAX_ANSWER = 256 * 1024 * 1024
HOLD = 15.0
"""Seconds for which the start of a stream waits for its first content, where no heartbeat is set."""
STREAM = "text/event-stream"


class Asking:
    """Asks providers. It has the connections; all else comes with the call."""

    def __init__(self, client: Client, health: Health, telemetry: Telemetry, hops: str) -> None:
        self._client = client
        self._health = health
        self._telemetry = telemetry
        self._hops = hops

    async def ask(self, call: Call, target: Target, most: int | None = None) -> Reply | Flow | Refusal:
        """One try, and a note of what came of it; `most` are the tokens that may be asked for, where the provider has
        just said so."""
        record, health, provider, model = call.record, self._health, target.provider.name, target.model
        begun = call.clock()
        line = call.state.between(call.client, target, call.stream, call.has_tools)
        room = line.room
        if most is None and health.limits and room.name != call.client.name:
            most = health.limits.get((provider, model))
        if most is not None or call.most_tokens is not None:
            call.most_tokens = most
        ready = prepared(call, line)
        if type(ready) is not Passed and type(ready) is not Prepared:
            ready = await _recalled(call, line, ready) if isinstance(ready, Missing) else ready
            if isinstance(ready, Refusal):
                return self._noted(call, target, ready, begun)
        record.provider, record.target, record.model, record.passed = provider, room.name, model, ready.passed
        source = await self.send(call, line, ready.body)
        if type(source) is Fault:  # of a struct `isinstance` costs much where it is none
            return self._noted(call, target, refusals.faulty(call, line, source), begun)
        record.upstream_id = source.headers.get(room.http.request_id, "")
        take = self._refused if source.status >= 300 else self._flowing if call.stream else self._whole
        got = await take(call, ready, source)
        if type(got) is Refusal:
            got = _final(got, line, done=source.status < 300 and bool(record.calls))
            return self._noted(call, target, got, begun)
        health.succeeded(provider, model)
        self._telemetry.attempt(record, provider, "ok", call.clock() - begun)
        return got

    def _noted(self, call: Call, target: Target, refusal: Refusal, begun: float) -> Refusal:
        """A try that came to nothing, and a note of it."""
        server, failure, provider = call.state.config.server, refusal.failure, target.provider.name
        # Only words of our own: a provider's could be anything, and stand in headers and metrics.
        outcome = failure.code if failure.code in refusals.OUTCOMES else str(failure.status or refusal.reply.status)
        fault = failure.kind in ("upstream", "deadline")
        self._telemetry.attempt(call.record, provider, outcome, call.clock() - begun, fault=fault)
        if refusal.onward:
            self._health.failed(provider, target.model, call.clock(), server.rest_after, server.rest)
        return refusal

    def send(self, call: Call, line: Line, body: bytes, method: str = "POST") -> Coroutine[Any, Any, Source | Fault]:
        record, address = call.record, line.address
        sent: Coroutine[Any, Any, Source | Fault]
        if address is None:
            sent = _embedded(call, line, body)
        else:
            record.server = line.server
            headers = call_headers(call, line, body, self._hops)
            own = ((REQUEST_ID, record.request_id), *self._telemetry.upstream_headers(record))
            sent = self._client.send(address, method, line.path, headers, body, own)
        return sent if record.heard is None else _overheard(record.heard, line, body, sent)

    async def _refused(self, call: Call, ready: Ready, source: Source) -> Refusal:
        line = ready.line
        data = await source.read(MAX_ANSWER)
        if isinstance(data, Fault):
            return refusals.faulty(call, line, data)
        if source.status < 400:
            return refusals.redirected(call, line, source.status)
        data = scrubbed(data, line)
        said = ready.exchange.error(data, source.status, source.headers)
        failure = said.failure or Failure("upstream", "", 502)
        headers = {**said.headers, **answer_headers(call, line, source.headers, ready.codes)}
        if not ready.exchange.crossing and "json" in source.headers.get("content-type", ""):
            return refusals.refused(failure, Reply(source.status, headers, data))
        return refusals.refused(failure, Reply(said.status, headers, said.body))

    # --- whole answers ---

    async def _whole(self, call: Call, ready: Ready, source: Source) -> Reply | Refusal:
        line, record, headers = ready.line, call.record, source.headers
        passed = ready.passed
        data: bytes | Fault | Failure = await source.read(MAX_ANSWER)
        if not passed and ready.exchange.goes_on and isinstance(data, bytes):
            data = await self._in_rounds(call, ready, data)
        if not isinstance(data, bytes):
            return _broken(call, line, data)
        streamed = not data.startswith(b"{") and _came_as_stream(data, headers)
        try:
            if passed and not streamed:
                passing = Reply(200, answer_headers(call, line, headers, ()), data)
                failed = _looked_at(line.room, data, record)
                return passing if failed is None else _failed(call, failed, passing)
            exchange = ready.exchange
            said = exchange.streamed_response(data) if streamed else exchange.response(data)
        except Malformed as bad:
            return refusals.unreadable(call, line, bad)
        record.usage, record.answered, record.finishes = said.usage, said.model, said.finishes
        codes = ready.codes + said.ledger.codes
        if call.sealing is not None:
            if said.kept:
                await call.sealing.keep(said.kept)
            codes += refusals.unsealed(call)
        if codes:
            record.lost(codes, ready.ledger, said.ledger)
        told = answer_headers(call, line, headers, codes)
        whole = Reply(said.status, {**said.headers, **told} if said.headers else told, said.body)
        return whole if said.failure is None else refusals.refused(said.failure, whole)

    async def _in_rounds(self, call: Call, ready: Ready, data: bytes) -> bytes | Fault | Failure:
        """An answer that paused, or calls what is not the client's, is asked to go on until it is whole."""
        exchange = ready.exchange
        while True:
            try:
                taking = exchange.hears(data, _is_stream(data))
            except Malformed:
                return data
            if taking is None or not taking.paused:
                if taking is not None and taking.taken:
                    exchange.settle(await left_over(call, taking))
                return data
            results = await results_of(call, taking)
            if isinstance(results, Fault):
                return results
            got = await self.again(call, ready, exchange.go_on(taking, results))
            read = got if isinstance(got, (Fault, Failure)) else await got.read(MAX_ANSWER)
            if isinstance(read, (Fault, Failure)):
                return read
            data = read

    async def again(self, call: Call, ready: Ready, body: bytes) -> Source | Failure:
        """Ask for the rest of an answer. What was done so far is worth another try."""
        tries = call.state.config.server.retries
        for number in range(tries + 1):
            got = await self._once_more(call, ready, body)
            if not isinstance(got, Failure) or number == tries or got.kind not in refusals.AGAIN:
                break
            wait = refusals.wait_after(got, number)
            if wait > refusals.LONGEST_WAIT:
                break
            await asyncio.sleep(wait)
        return got

    async def _once_more(self, call: Call, ready: Ready, body: bytes) -> Source | Failure:
        line = ready.line
        source = await self.send(call, line, body)
        if isinstance(source, Fault):
            return refusals.failure_of(line, source)
        if source.status < 300:
            return source
        data = await source.read(MAX_ANSWER)
        said = b"" if isinstance(data, Fault) else scrubbed(data, line)
        return ready.exchange.error(said, source.status, source.headers).failure or Failure("upstream", "", 502)

    # --- streams ---

    async def _flowing(self, call: Call, ready: Ready, source: Source) -> Flow | Refusal:
        """Waits until something of the answer itself has come: up to then another provider can still be asked."""
        streams = source.headers.get("content-type", "").startswith(STREAM)
        stream: Streaming
        if streams:
            stream = Passing(ready.line.room) if ready.passed else ready.exchange.stream()
            flow = Flow(ready, source, stream, answer_headers(call, ready.line, source.headers, ready.codes))
            refusal = await self._begin(call, flow)
        else:
            stream = ready.exchange.stream()
            flow = Flow(ready, source, stream, answer_headers(call, ready.line, source.headers, ready.codes))
            refusal = await self._unfold(call, flow, stream)
        if refusal is None and stream.failure is not None:
            call.record.usage = stream.usage
            failed = refusals.reply(call.client, stream.failure)
            refusal = refusals.refused(
                stream.failure, Reply(failed.status, {**flow.headers, **failed.headers}, failed.body)
            )
        if refusal is not None:
            source.abort()
            return refusal
        return flow

    async def _begin(self, call: Call, flow: Flow) -> Refusal | None:
        source, stream = flow.source, flow.stream
        clock = call.clock
        until = 0.0
        while not stream.begun and stream.failure is None:
            if until and not await source.comes(until - clock()):
                return None
            data = await source.chunk()
            until = until or clock() + (call.state.config.server.heartbeat or HOLD)
            if isinstance(data, Fault):
                return refusals.faulty(call, flow.prepared.line, data)
            if not data:
                flow.source_ended = True
                flow.pending.append(stream.close())
                return None
            flow.pending.append(stream.feed(data))
        return None

    async def _unfold(self, call: Call, flow: Flow, stream: StreamTranslation) -> Refusal | None:
        """A provider that sends a whole answer though a stream was asked for."""
        line = flow.prepared.line
        data = await flow.source.read(MAX_ANSWER)
        if isinstance(data, Fault):
            return refusals.faulty(call, line, data)
        try:
            if isinstance(decode(data), list):
                flow.pending += [stream.feed(data), stream.close()]
            else:
                flow.pending.append(stream.feed_whole(data))
        except Malformed as bad:
            return refusals.unreadable(call, line, bad)
        flow.source_ended = True
        return None


async def _recalled(call: Call, line: Line, missing: Missing) -> Ready | Refusal:
    """A request with what was kept for it."""
    kept = await call.sealing.recall(missing.ids) if call.sealing is not None else NOTHING
    if isinstance(kept, Failure):
        return refusals.told(call, kept)
    return completed(call, line, missing.exchange, kept, missing.passes)


async def _overheard(
    heard: Overheard, line: Line, body: bytes, sent: Coroutine[Any, Any, Source | Fault]
) -> Source | Fault:
    """The same, copied for the log."""
    asked = heard.asks(line.room.name, line.provider.name, f"{line.server}{line.path}", body)
    source = await sent
    return source if isinstance(source, Fault) else heard.hears(asked, source)


async def _embedded(call: Call, line: Line, body: bytes) -> Source:
    return Embedded(answer(line.room, body, line.model, line.stream, int(call.now), call.seed))


def _broken(call: Call, line: Line, why: Fault | Failure) -> Refusal:
    """An answer that did not come to its end."""
    if isinstance(why, Fault):
        return refusals.faulty(call, line, why)
    return refusals.refused(why, refusals.reply(call.client, why))


def _is_stream(data: bytes) -> bool:
    """Did the provider send a stream though none was asked for? A later round may come otherwise than the first."""
    return data.lstrip()[:6].startswith((b"data:", b"event:", b":"))


def _came_as_stream(data: bytes, headers: Mapping[str, str]) -> bool:
    """The same, where the headers of the first round may say so too."""
    said_so = headers.get("content-type", "").startswith(STREAM)
    return _is_stream(data) or (said_so and not data.lstrip().startswith(b"{"))


def _looked_at(room: Room, data: bytes, record: Record) -> Response | None:
    """What an answer that passes says of itself; None unless it failed. What is no answer at all is not passed on."""
    try:
        glance = room.glance(data)
    except Malformed:
        return None  # an answer whose counts make no sense is still an answer
    if glance is not None:
        record.usage, record.answered = glance.usage, glance.model
        return None
    response = room.read_response(as_object(decode(data), None))
    record.usage, record.answered = response.usage, response.model
    return response if response.failure is not None else None


def _failed(call: Call, response: Response, passing: Reply) -> Refusal:
    """One without an id is no answer, only an error that came as one: then clients must see it in the status."""
    failure = response.failure or Failure("upstream", "", 502)
    if response.id:
        return refusals.refused(failure, passing)
    told = refusals.reply(call.client, failure)
    return refusals.refused(failure, Reply(told.status, {**passing.headers, **told.headers}, told.body))


def scrubbed(data: bytes, line: Line) -> bytes:
    """Some servers repeat the key in their complaint; nobody else needs to see it."""
    key = line.provider.api_key.reveal().encode()
    return data.replace(key, b"[key]") if len(key) >= 8 else data


def _final(refusal: Refusal, line: Line, done: bool) -> Refusal:
    """What was `done` must not be done a second time. And no key, wherever it may stand: also in headers, and in what a
    stream said before it began."""
    if done:
        refusal = replace(refusal, again=False, onward=False)
    key = line.provider.api_key.reveal()
    if len(key) < 8:
        return refusal
    reply = refusal.reply
    headers = {name: value.replace(key, "[key]") for name, value in reply.headers.items()}
    return replace(refusal, reply=Reply(reply.status, headers, scrubbed(reply.body, line)))
