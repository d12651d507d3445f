"""How a call comes to its answer: the same way for a client that waits and for work in the background."""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine
from typing import Any

from msgspec.structs import replace

from toolwire.gateway import refusals
from toolwire.gateway.asking import MAX_ANSWER, Asking, scrubbed
from toolwire.gateway.attempts import Attempts
from toolwire.gateway.bodies import peeked
from toolwire.gateway.call import Call, Flow, Refusal, Reply
from toolwire.gateway.headers import answer_headers
from toolwire.gateway.health import Health
from toolwire.gateway.preparing import retold
from toolwire.gateway.relay import relay
from toolwire.gateway.settings.routing import Target
from toolwire.gateway.state.engine import Outflow
from toolwire.gateway.telemetry.heard import Overheard
from toolwire.gateway.telemetry.record import Record
from toolwire.gateway.telemetry.watching import Telemetry
from toolwire.gateway.upstream.faults import Fault
from toolwire.ir import Failure

NOT_THERE = frozenset({404, 405, 501})


class Engine:
    """One for a configuration."""

    def __init__(
        self,
        asking: Asking,
        health: Health,
        telemetry: Telemetry,
        fault: Callable[[BaseException], None],
        leaving: Callable[[], bool],
    ) -> None:
        self.asking = asking
        self.fault = fault
        self.leaving = leaving
        """Was the gateway asked to stop?"""
        self.ask: Callable[[Call, tuple[Target, ...]], Coroutine[Any, Any, Reply | Flow | Refusal]]
        self.ask = Attempts(asking, health).run
        self._telemetry = telemetry

    async def relay(self, call: Call, flow: Flow, outflow: Outflow) -> None:
        try:
            await relay(call, flow, self.asking, outflow)
        finally:
            self.noted(call, flow)

    @staticmethod
    def noted(call: Call, flow: Flow) -> None:
        """What a stream came to, for the log."""
        record, stream, ready = call.record, flow.stream, flow.prepared
        record.usage, record.finishes = stream.usage, stream.finishes
        record.failure = stream.failure.kind if stream.failure is not None else ""
        told = stream.ledger
        codes = (*ready.codes, *(told.codes if told is not None else ()), *refusals.unsealed(call))
        record.lost(codes, ready.ledger, told)

    async def native(self, call: Call, target: Target, path: str) -> Reply | None:
        line = replace(call.state.between(call.client, target, False, call.has_tools), path=path)
        source = await self.asking.send(call, line, retold(call, line))
        if isinstance(source, Fault):
            return refusals.reply(call.client, refusals.failure_of(line, source))
        data = await source.read(MAX_ANSWER)
        if isinstance(data, Fault):
            return refusals.reply(call.client, refusals.failure_of(line, data))
        if source.status in NOT_THERE:
            return None
        headers = answer_headers(call, line, source.headers, ())
        return Reply(source.status, headers, data if source.status < 300 else scrubbed(data, line))

    def targets(self, call: Call) -> tuple[Target, ...] | Refusal:
        found = call.state.router.route(call.model, call.visitor.key)
        if isinstance(found, tuple):
            return found
        code = "model_not_found" if found.kind == "not_found" else ""
        return refusals.told(call, Failure(found.kind, found.message, 0, code, "model"))

    @staticmethod
    def read(call: Call, body: bytes) -> bool:
        """Take a body as what the call asks for; False when it is none."""
        peek = peeked(body)
        if peek is None:
            return False
        call.body, call.peek = body, peek
        call.model, call.stream = peek.model, bool(peek.stream)
        call.record.asked = call.model
        return True

    def detached(self, call: Call) -> None:
        before = call.record
        call.record = Record(
            request_id=before.request_id,
            started=call.clock(),
            wall=time.time(),
            peer=before.peer,
            method=before.method,
            path=before.path,
            key=before.key,
            agent=before.agent,
            source=before.source,
            asked=before.asked,
            stream=True,
            verb="background",
            heard=None if before.heard is None else Overheard(call.body),
        )
        self._telemetry.begin(call.record)

    def over(self, call: Call) -> None:
        call.record.status = call.record.status or (500 if call.record.failure else 200)
        self._telemetry.finish(call.record, call.clock())
