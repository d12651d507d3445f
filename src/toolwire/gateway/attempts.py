"""From one call to an answer: providers are tried in order, as long as nothing has reached the client."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from toolwire.gateway import refusals
from toolwire.gateway.asking import Asking
from toolwire.gateway.bodies import has_tools
from toolwire.gateway.call import Call, Flow, Refusal, Reply
from toolwire.gateway.health import Health
from toolwire.gateway.settings.routing import Target, chosen_room
from toolwire.gateway.telemetry.watching import Telemetry
from toolwire.room import Room


class Attempts:
    """Tries the targets of one call until one of them answers or none is left."""

    def __init__(self, call: Call, asking: Asking, health: Health, telemetry: Telemetry) -> None:
        self._call = call
        self._asking = asking
        self._health = health
        self._telemetry = telemetry
        self._clock = call.clock
        self._begun = call.clock()

    async def run(self, targets: tuple[Target, ...]) -> Reply | Flow | Refusal:
        """The first answer there is; else why the target that was asked for gave none."""
        willing = self._willing(targets)
        first = await self._ask(willing[0])
        if not isinstance(first, Refusal):
            return first
        got = first = await self._again(willing[0], first, len(willing) == 1)
        for number, target in enumerate(willing[1:], 2):
            if not isinstance(got, Refusal) or not got.onward or self._clock() >= self._until:
                break
            got = await self._ask(target)
            if isinstance(got, Refusal):
                got = await self._again(target, got, number == len(willing))
        return first if isinstance(got, Refusal) else got

    @property
    def _until(self) -> float:
        return self._begun + (self._call.state.config.server.deadlines.retries or float("inf"))

    def _willing(self, targets: tuple[Target, ...]) -> tuple[Target, ...]:
        """Those that do not rest; if all do, the first, because asking it is better than not trying."""
        if len(targets) == 1:
            return targets
        now = self._clock()
        awake = [target for target in targets if not self._health.rests(target.provider.name, target.model, now)]
        return tuple(awake) or targets[:1]

    async def _ask(self, target: Target) -> Reply | Flow | Refusal:
        call = self._call
        room = chosen_room(target, call.client, lambda: has_tools(call.peek, call.body))
        got = await self._ask_as(target, room)
        if isinstance(got, Refusal) and refusals.of_seals(got.failure, room.rules):
            call.without_seals = True
            got = await self._ask_as(target, room)
            call.without_seals = False
        return got

    async def _ask_as(self, target: Target, room: Room) -> Reply | Flow | Refusal:
        """Ask, and ask for less where the provider says how much there is: a client of another protocol asks for what
        the models that it knows can give."""
        call, provider, model = self._call, target.provider.name, target.model
        if room.name == call.client.name:
            return await self._ask_once(target, room)
        call.most_tokens = self._health.most_tokens(provider, model)
        got = await self._ask_once(target, room)
        found = refusals.most_tokens(got.failure, room.rules) if isinstance(got, Refusal) else None
        if found is not None:
            call.most_tokens, lasts = found
            if lasts:
                self._health.gives(provider, model, call.most_tokens)
            got = await self._ask_once(target, room)
        call.most_tokens = None
        return got

    async def _ask_once(self, target: Target, room: Room) -> Reply | Flow | Refusal:
        call, provider = self._call, target.provider
        begun = self._clock()
        got = await self._asking.ask(call, call.state.line(target, room, call.stream))
        seconds = self._clock() - begun
        if isinstance(got, Refusal):
            self._note(target, got, seconds)
        else:
            self._health.succeeded(provider.name, target.model)
            self._telemetry.attempt(call.record, provider.name, "ok", seconds)
        return got

    async def _again(self, target: Target, refusal: Refusal, last: bool) -> Reply | Flow | Refusal:
        """The same target once more, and more often, where that may help and there is time."""
        got: Reply | Flow | Refusal = refusal
        for number in range(self._call.state.config.server.retries):
            if not isinstance(got, Refusal) or not got.again:
                break
            wait = refusals.wait_after(got.failure, number)
            if wait > refusals.LONGEST_WAIT or self._clock() + wait > self._until:
                break
            if not last and got.failure.retry_after is not None:
                break  # another one need not be waited for
            await asyncio.sleep(wait)
            got = await self._ask(target)
        return got

    def _note(self, target: Target, refusal: Refusal, seconds: float) -> None:
        server, failure = self._call.state.config.server, refusal.failure
        # Only words of our own: a provider's could be anything, and stand in headers and metrics.
        outcome = failure.code if failure.code in refusals.OUTCOMES else str(failure.status or refusal.reply.status)
        self._telemetry.attempt(
            self._call.record, target.provider.name, outcome, seconds, fault=failure.kind in ("upstream", "deadline")
        )
        if refusal.onward:
            self._health.failed(target.provider.name, target.model, self._clock(), server.rest_after, server.rest)


def attempts_header(tried: list[tuple[str, str, float]]) -> Mapping[str, str]:
    """What happened, where more than one try was needed."""
    if len(tried) < 2:
        return {}
    return {"x-toolwire-attempts": ", ".join(f"{provider}={outcome}" for provider, outcome, _ in tried)}
