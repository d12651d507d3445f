"""From one call to an answer: providers are tried in order, as long as nothing has reached the client."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from toolwire.core.codec import Codec
from toolwire.gateway.pipeline import error_replies
from toolwire.gateway.pipeline.attempt import AttemptRunner
from toolwire.gateway.pipeline.call import AttemptFailed, GatewayCall, Reply, StartedStream
from toolwire.gateway.pipeline.route import Target
from toolwire.gateway.upstream.health import ProviderHealth


class FallbackRunner:
    """Tries the targets of calls until one of them answers or none is left."""

    def __init__(self, attempt_runner: AttemptRunner, health: ProviderHealth) -> None:
        self._attempt_runner = attempt_runner
        self._health = health

    async def run_with_fallbacks(
        self, call: GatewayCall, targets: tuple[Target, ...]
    ) -> Reply | StartedStream | AttemptFailed:
        """The first answer there is; else why the target that was asked for gave none."""
        begun = call.clock()
        willing = targets if len(targets) == 1 else self._available_targets(targets, begun)
        got = await self._attempt_runner.attempt(call, willing[0])
        if type(got) is not AttemptFailed:
            return got
        until = begun + (call.runtime.config.server.timeouts.all_attempts or float("inf"))
        got = first = await self._retry_target(call, willing[0], got, len(willing) == 1, until)
        for number, target in enumerate(willing[1:], 2):
            if not isinstance(got, AttemptFailed) or not got.can_fall_back or call.clock() >= until:
                break
            got = await self._attempt_runner.attempt(call, target)
            if isinstance(got, AttemptFailed):
                got = await self._retry_target(call, target, got, number == len(willing), until)
        return first if isinstance(got, AttemptFailed) else got

    def _available_targets(self, targets: tuple[Target, ...], now: float) -> tuple[Target, ...]:
        """Those that do not rest; if all do, the first, because asking it is better than not trying."""
        awake = [
            target for target in targets if not self._health.is_cooling_down(target.provider.name, target.model, now)
        ]
        return tuple(awake) or targets[:1]

    async def _retry_target(
        self, call: GatewayCall, target: Target, failed: AttemptFailed, is_last: bool, deadline: float
    ) -> Reply | StartedStream | AttemptFailed:
        """The same target once more, and more often, where that may help and there is time."""
        got = await self._retry_adapted(call, target, failed)
        for number in range(call.runtime.config.server.retries):
            if not isinstance(got, AttemptFailed) or not got.can_retry:
                break
            wait = error_replies.retry_wait(got.failure, number)
            if wait > error_replies.MAX_RETRY_WAIT or call.clock() + wait > deadline:
                break
            if not is_last and got.failure.retry_after is not None:
                break  # another one need not be waited for
            await asyncio.sleep(wait)
            got = await self._attempt_runner.attempt(call, target)
            if isinstance(got, AttemptFailed):
                got = await self._retry_adapted(call, target, got)
        return got

    async def _retry_adapted(
        self, call: GatewayCall, target: Target, failed: AttemptFailed
    ) -> Reply | StartedStream | AttemptFailed:
        """Ask otherwise where the provider says what it does not take."""
        room = call.runtime.choose_upstream(call.client_codec, target, call.stream, call.has_tools).codec
        got = await self._retry_with_fewer_tokens(call, target, room, failed)
        if isinstance(got, AttemptFailed) and error_replies.is_seal_refusal(got.failure, room.constraints):
            call.strip_seals = True
            got = await self._attempt_runner.attempt(call, target)
            if isinstance(got, AttemptFailed):
                got = await self._retry_with_fewer_tokens(call, target, room, got)
            call.strip_seals = False
        return got

    async def _retry_with_fewer_tokens(
        self, call: GatewayCall, target: Target, codec: Codec, failed: AttemptFailed
    ) -> Reply | StartedStream | AttemptFailed:
        """Ask for less where the provider says how much there is: a client of another protocol asks for what the models
        that it knows can give."""
        crossing = codec.name != call.client_codec.name
        found = error_replies.read_token_limit(failed.failure, codec.constraints) if crossing else None
        if found is None:
            return failed
        most, lasts = found
        if lasts:
            self._health.record_token_limit(target.provider.name, target.model, most)
        return await self._attempt_runner.attempt(call, target, most)


def attempts_header(attempts: list[tuple[str, str, float]]) -> Mapping[str, str]:
    """What happened, where more than one try was needed."""
    if len(attempts) < 2:
        return {}
    return {"x-toolwire-attempts": ", ".join(f"{provider}={outcome}" for provider, outcome, _ in attempts)}
