"""From one call to an answer: providers are tried in order, as long as nothing has reached the client."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from toolwire.gateway import refusals
from toolwire.gateway.asking import Asking
from toolwire.gateway.call import Call, Flow, Refusal, Reply
from toolwire.gateway.health import Health
from toolwire.gateway.settings.routing import Target
from toolwire.room import Room


class Attempts:
    """Tries the targets of calls until one of them answers or none is left."""

    def __init__(self, asking: Asking, health: Health) -> None:
        self._asking = asking
        self._health = health

    async def run(self, call: Call, targets: tuple[Target, ...]) -> Reply | Flow | Refusal:
        """The first answer there is; else why the target that was asked for gave none."""
        begun = call.clock()
        willing = targets if len(targets) == 1 else self._willing(targets, begun)
        got = await self._asking.ask(call, willing[0])
        if type(got) is not Refusal:
            return got
        until = begun + (call.state.config.server.deadlines.retries or float("inf"))
        got = first = await self._again(call, willing[0], got, len(willing) == 1, until)
        for number, target in enumerate(willing[1:], 2):
            if not isinstance(got, Refusal) or not got.onward or call.clock() >= until:
                break
            got = await self._asking.ask(call, target)
            if isinstance(got, Refusal):
                got = await self._again(call, target, got, number == len(willing), until)
        return first if isinstance(got, Refusal) else got

    def _willing(self, targets: tuple[Target, ...], now: float) -> tuple[Target, ...]:
        """Those that do not rest; if all do, the first, because asking it is better than not trying."""
        awake = [target for target in targets if not self._health.rests(target.provider.name, target.model, now)]
        return tuple(awake) or targets[:1]

    async def _again(
        self, call: Call, target: Target, refusal: Refusal, last: bool, until: float
    ) -> Reply | Flow | Refusal:
        """The same target once more, and more often, where that may help and there is time."""
        got = await self._otherwise(call, target, refusal)
        for number in range(call.state.config.server.retries):
            if not isinstance(got, Refusal) or not got.again:
                break
            wait = refusals.wait_after(got.failure, number)
            if wait > refusals.LONGEST_WAIT or call.clock() + wait > until:
                break
            if not last and got.failure.retry_after is not None:
                break  # another one need not be waited for
            await asyncio.sleep(wait)
            got = await self._asking.ask(call, target)
            if isinstance(got, Refusal):
                got = await self._otherwise(call, target, got)
        return got

    async def _otherwise(self, call: Call, target: Target, refusal: Refusal) -> Reply | Flow | Refusal:
        """Ask otherwise where the provider says what it does not take."""
        room = call.state.between(call.client, target, call.stream, call.has_tools).room
        got = await self._for_less(call, target, room, refusal)
        if isinstance(got, Refusal) and refusals.of_seals(got.failure, room.rules):
            call.without_seals = True
            got = await self._asking.ask(call, target)
            if isinstance(got, Refusal):
                got = await self._for_less(call, target, room, got)
            call.without_seals = False
        return got

    async def _for_less(self, call: Call, target: Target, room: Room, refusal: Refusal) -> Reply | Flow | Refusal:
        """Ask for less where the provider says how much there is: a client of another protocol asks for what the models
        that it knows can give."""
        crossing = room.name != call.client.name
        found = refusals.most_tokens(refusal.failure, room.rules) if crossing else None
        if found is None:
            return refusal
        most, lasts = found
        if lasts:
            self._health.gives(target.provider.name, target.model, most)
        return await self._asking.ask(call, target, most)


def attempts_header(tried: list[tuple[str, str, float]]) -> Mapping[str, str]:
    """What happened, where more than one try was needed."""
    if len(tried) < 2:
        return {}
    return {"x-toolwire-attempts": ", ".join(f"{provider}={outcome}" for provider, outcome, _ in tried)}
