"""The path of one client request: route → prepare → attempt → relay.

`Pipeline.serve_request` shows the order. Each step is a module of its own, and gives a value to the next:

- `route`: the providers for the model that the request names, in the order in which they are tried;
- `prepare`: the request as one of these providers gets it, translated or passed through;
- `attempt`: sends it, and reads the response, or the start of a stream;
- `relay`: sends that to the client, in the client's own protocol.

Retries and fallbacks repeat `prepare` and `attempt`, as long as nothing has reached the client.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from functools import partial
from math import inf
from typing import TypeVar

from msgspec.structs import replace

from toolwire.core.codec import Codec, EndpointMatch
from toolwire.core.ir import Failure
from toolwire.gateway.exchange import error_replies
from toolwire.gateway.exchange.client_body import MAX_EMPTY, PLAIN_NAMES, read_client_body, refuse_empty, refuse_names
from toolwire.gateway.exchange.gateway_request import (
    Attempt,
    AttemptAnswer,
    AttemptFailed,
    GatewayRequest,
    PreparedRequest,
    Runtime,
    StartedStream,
)
from toolwire.gateway.exchange.hooks import StreamOutput
from toolwire.gateway.exchange.inner_members import refuse_inner_models
from toolwire.gateway.exchange.provider_health import ACCOUNT_FAILURES
from toolwire.gateway.exchange.session import find_session
from toolwire.gateway.exchange.stages import ExtendedRequest, Stages, ask_hooks
from toolwire.gateway.http.client_request import ClientRequest
from toolwire.gateway.http.large_work import LARGE_BODY, run_by_size, run_in_thread
from toolwire.gateway.http.messages import Reply
from toolwire.gateway.pipeline.attempt import attempt_request, retry_after_pause
from toolwire.gateway.pipeline.passthrough import forward_native
from toolwire.gateway.pipeline.prepare import prepare_request
from toolwire.gateway.pipeline.relay import relay_answer, relay_stream
from toolwire.gateway.settings.config import ClientKey, Provider
from toolwire.gateway.settings.router import MAX_MODEL_NAME, Target
from toolwire.gateway.telemetry.record import REFUSED_HERE, ExchangeCapture
from toolwire.protocols import find_codec


class Pipeline:
    """Answers the requests of one configuration."""

    def __init__(self, runtime: Runtime, stages: Stages) -> None:
        self.runtime = runtime
        self.stages = stages
        self._max_body = runtime.config.server.max_body
        self._max_seconds = runtime.config.server.timeouts.all_attempts or inf

    async def serve_request(
        self, request: ClientRequest, gateway_request: GatewayRequest, endpoint: EndpointMatch
    ) -> None:
        """Answer a request, from its body to the last byte of the answer."""
        body = request.buffered_body(self._max_body) or await request.read_body(self._max_body)
        read = await self.read_request(gateway_request, endpoint, body)
        if type(read) is AttemptFailed:  # `isinstance` is slow for a Struct that is not one
            await relay_answer(request, gateway_request, read)
            return
        gateway_request = read
        turns = gateway_request.body.members.get(gateway_request.client_codec.constraints.turns_key)
        empty = refuse_empty(gateway_request.body) if turns is None or len(turns) <= MAX_EMPTY else None
        targets = empty or self.runtime.router.route(gateway_request.model, gateway_request.caller.key)
        if type(targets) is Failure:
            await relay_answer(request, gateway_request, error_replies.gateway_error(gateway_request, targets))
            return
        request.watch_disconnect(self.runtime.cancels_on_disconnect)
        extended: ExtendedRequest = await self.admit(gateway_request, targets) if self.stages.admit else gateway_request
        for extend in self.stages.extend[gateway_request.client_codec.name]:
            if type(extended) is not GatewayRequest:
                break
            gateway_request = extended
            extended = await extend(gateway_request, targets, self)
        if type(extended) is not GatewayRequest:
            await relay_answer(request, gateway_request, extended)
            return
        gateway_request = extended
        await relay_answer(request, gateway_request, await self.request_answer(gateway_request, targets))

    async def admit(self, request: GatewayRequest, targets: tuple[Target, ...]) -> GatewayRequest | AttemptFailed:
        """The request, if all features let it pass."""
        return await _pass_through(self.stages.admit, request, targets)

    async def extend_count(
        self, request: GatewayRequest, targets: tuple[Target, ...]
    ) -> GatewayRequest | AttemptFailed:
        """The same for a request for a token count, which uses nothing."""
        return await _pass_through(self.stages.extend_count, request, targets)

    async def read_request(
        self, request: GatewayRequest, endpoint: EndpointMatch, body: bytes | Failure
    ) -> GatewayRequest | AttemptFailed:
        if endpoint.adapt_body is not None:
            endpoint = _choose_name(request, endpoint)
            request, body = await _adapt_body(request, endpoint, body)
        record, sinks = request.record, request.running.sinks
        if not isinstance(body, bytes):
            return error_replies.gateway_error(request, body)
        size = record.traffic.bytes_in = len(body)
        if sinks.wants_bodies:
            record.traffic.request_body = body
        if sinks.wants_capture:
            record.traffic.capture = ExchangeCapture(body, request.named_session != "", request.headers)
        codec = request.client_codec
        is_large = size >= LARGE_BODY
        read = (
            await run_in_thread(partial(read_client_body, codec, body)) if is_large else read_client_body(codec, body)
        )
        if type(read) is Failure:  # `isinstance` is slow for a Struct that is not one
            return error_replies.gateway_error(request, read)
        peek = read.peek
        stream = (peek.stream if endpoint.stream is None else endpoint.stream) is True
        request = replace(
            request, body=read, model=endpoint.model or peek.model, stream=stream, framing=endpoint.framing
        )
        if sinks.wants_session or self.runtime.accounts is not None:
            record.asked.session = find_session(request)
        record.asked.model = request.model[:MAX_MODEL_NAME]
        if read.names is not PLAIN_NAMES and (
            refused := refuse_names(read.codec, read.names, request.caller.key, bool(self.runtime.policy.rules))
        ):
            return error_replies.gateway_error(request, refused)
        key = request.caller.key
        if (
            key is not None
            and key.is_restricted
            and (inner := await self._refuse_inner_models(request, key)) is not None
        ):
            return error_replies.gateway_error(request, inner)
        if endpoint.model and (other := _refuse_other_model(endpoint, peek.model)) is not None:
            return error_replies.gateway_error(request, other)
        record.asked.stream = stream
        return request

    async def _refuse_inner_models(self, request: GatewayRequest, key: ClientKey) -> Failure | None:
        body = request.body
        refuse = partial(refuse_inner_models, self.runtime.router, body, request.model, key, bool(body.peek.model))
        return await run_by_size(len(body.data), refuse)

    def route_request(self, request: GatewayRequest) -> tuple[Target, ...] | AttemptFailed:
        found = self.runtime.router.route(request.model, request.caller.key)
        return found if isinstance(found, tuple) else error_replies.gateway_error(request, found)

    # --- prepare and attempt, with retries and fallbacks ---

    async def request_answer(self, request: GatewayRequest, targets: tuple[Target, ...]) -> AttemptAnswer:
        """The first answer that a target gives: the targets after the first are the fallbacks. If none answers, the
        failure of the first."""
        started = request.clock()
        accounts = self.runtime.accounts
        if accounts is not None:
            available = accounts.choose_targets(request, targets, started)
        else:
            available = targets if len(targets) == 1 else self._list_awake(targets, started)
        deadline = started + self._max_seconds
        first_failure: AttemptFailed | None = None
        silent: tuple[str, str] | None = None
        for number, target in enumerate(available, 1):
            later = available[number:]
            others: Collection[tuple[str, str]] = ()
            seconds = inf
            if later and (others := _list_others(target, later)):
                if (target.provider.name, target.model) == silent:
                    continue  # another account of a provider that says nothing
                seconds = self._share_time(request, len(others), deadline)
            hooks = self.stages.admit_target
            refused = await ask_hooks(hooks, request, target) if hooks else None
            answer = refused or await self._try_target(request, target, seconds)
            if type(answer) is not AttemptFailed:
                return answer
            answer = await self._retry_target(request, target, answer, later, deadline, seconds)
            if type(answer) is not AttemptFailed:
                return answer
            if first_failure is None or _ends_sooner(answer, first_failure, target.provider, available[0].provider):
                first_failure = answer
            if not answer.can_fall_back or (not others and request.clock() >= deadline):
                break
            if answer.failure.code in error_replies.SILENCES:
                silent = (target.provider.name, target.model)
        return first_failure or answer

    def _share_time(self, request: GatewayRequest, others: int, deadline: float) -> float:
        """Seconds for the first byte of a target, if so many others can be asked after it. The targets share the time
        for the first byte of a stream. A whole answer has none until the model has thought and written all of it, so
        there each may take all of the time."""
        if not request.stream:
            return self._max_seconds
        return max(deadline - request.clock(), self._max_seconds / 2) / (others + 1)

    def _list_awake(self, targets: tuple[Target, ...], now: float) -> tuple[Target, ...]:
        is_cooling_down = self.runtime.health.is_cooling_down
        awake = [one for one in targets if not is_cooling_down(one.provider.name, one.model, now)]
        return tuple(awake) or targets[:1]  # if all are cooling down, asking one is better than not trying

    async def _try_target(
        self,
        request: GatewayRequest,
        target: Target,
        max_seconds: float,
        token_limit: int | None = None,
        strips_seals: bool = False,
    ) -> AttemptAnswer:
        """One attempt at one provider. `token_limit` is the output limit that the provider has just named; without it,
        the model's own limit counts. A client of the provider's protocol is told by the provider."""
        if request.caller.key is not None and (ended := request.refuse_ended_key()) is not None:
            return error_replies.gateway_error(request, ended)
        started = request.clock()
        upstream = self.runtime.choose_upstream(request.client_codec, target, request.stream, request.body.has_tools)
        health, names = self.runtime.health, (target.provider.name, target.model)
        if token_limit is None and upstream.codec.name != request.client_codec.name:
            token_limit = health.token_limits.get(names) or self.runtime.find_output_limit(upstream)
        prompts_tools = names in health.models_without_tools and upstream.prompt_if_refused != ""
        attempt = Attempt(upstream, max_seconds, token_limit, prompts_tools, strips_seals)
        prepared = await self._prepare(request, attempt)
        if type(prepared) is AttemptFailed:
            answer: AttemptAnswer = replace(prepared, was_asked=False)
        else:
            answer = await attempt_request(request, prepared)
        self._record_attempt(request, target, answer, started)
        if prompts_tools and type(answer) is AttemptFailed:
            return replace(answer, prompted_tools=True)
        return answer

    async def _prepare(self, request: GatewayRequest, attempt: Attempt) -> PreparedRequest | AttemptFailed:
        upstream = attempt.upstream
        if (
            upstream.needs_credential_check
            and (failed := error_replies.missing_key_error(request, upstream)) is not None
        ):
            return failed
        for plan in self.stages.plan:
            refused = await plan(request, attempt)
            if refused is not None:
                return refused
        prepared = await prepare_request(request, attempt)
        if not self.stages.check_written or type(prepared) is AttemptFailed:
            return prepared
        return await ask_hooks(self.stages.check_written, request, prepared) or prepared

    def _record_attempt(self, request: GatewayRequest, target: Target, answer: AttemptAnswer, started: float) -> None:
        telemetry, provider, now = self.runtime.telemetry, target.provider, request.clock()
        if type(answer) is not AttemptFailed:
            self.runtime.health.record_success(provider, target.model)
            telemetry.record_attempt(request.record, provider, "ok", now - started)
            for after in self.stages.after:
                after(request, target, answer, now)
            return
        failure, server = answer.failure, self.runtime.config.server
        # If nobody has said what the call used, that is unknown. It ends here: limits count it for this provider.
        telemetry.end_call(request.running, None)
        # A code that a provider chose must not get into headers and metrics: it could be anything.
        is_known = failure.code in error_replies.ATTEMPT_OUTCOMES
        status = str(failure.status or answer.reply.status) if answer.was_asked else REFUSED_HERE
        outcome = failure.code if is_known else status
        is_fault = failure.kind in error_replies.BROKEN_ANSWER_KINDS
        telemetry.record_attempt(request.record, provider, outcome, now - started, is_transport_error=is_fault)
        if outcome == REFUSED_HERE:
            return
        is_handled = False
        for after in self.stages.after:
            is_handled |= after(request, target, answer, now)
        if not is_handled and answer.can_fall_back:
            settings = (server.cooldown_after, server.cooldown)
            self.runtime.health.record_failure(provider.label, target.model, now, *settings)

    async def _retry_target(
        self,
        request: GatewayRequest,
        target: Target,
        failed: AttemptFailed,
        later: tuple[Target, ...],
        deadline: float,
        seconds: float,
    ) -> AttemptAnswer:
        """Ask the same target again, where that may help and there is time. `later` are the next ones to ask."""
        following = later[0] if later else None
        answer = await self._retry_with_changed_request(request, target, failed, seconds)
        for number in range(self.runtime.config.server.retries):
            if not isinstance(answer, AttemptFailed) or not answer.can_retry:
                break
            if following is not None and (
                answer.failure.retry_after is not None
                or (answer.failure.code in error_replies.SILENCES and _list_others(target, later))
                or (answer.failure.kind in ACCOUNT_FAILURES and following.provider.name == target.provider.name)
            ):
                break  # the next target can be asked at once
            ask = partial(self._try_target, request, target, seconds)
            again = await retry_after_pause(request, target.provider, answer.failure, number, ask, deadline)
            if again is None:
                break
            answer = again
            if isinstance(answer, AttemptFailed):
                answer = await self._retry_with_changed_request(request, target, answer, seconds)
        return answer

    async def _retry_with_changed_request(
        self, request: GatewayRequest, target: Target, failed: AttemptFailed, seconds: float
    ) -> AttemptAnswer:
        """Ask with a changed request, where the provider says what it does not accept: parts of its protocol, tools,
        output limits and signatures."""
        target, changed = await self._retry_with_quirks(request, target, failed, seconds)
        if not isinstance(changed, AttemptFailed):
            return changed
        failed = changed
        upstream = self.runtime.choose_upstream(request.client_codec, target, request.stream, request.body.has_tools)
        codec = upstream.codec
        answer: AttemptAnswer = failed
        if upstream.prompt_if_refused and not failed.prompted_tools and error_replies.is_tool_refusal(failed.failure):
            self.runtime.health.models_without_tools[target.provider.name, target.model] = True
            answer = await self._try_target(request, target, seconds)
        if isinstance(answer, AttemptFailed):
            answer = await self._retry_with_fewer_tokens(request, target, codec, answer, seconds)
        if isinstance(answer, AttemptFailed) and error_replies.is_seal_refusal(answer.failure, codec.constraints):
            answer = await self._try_target(request, target, seconds, strips_seals=True)
            if isinstance(answer, AttemptFailed):
                answer = await self._retry_with_fewer_tokens(request, target, codec, answer, seconds, strips_seals=True)
        return answer

    async def _retry_with_quirks(
        self, request: GatewayRequest, target: Target, failed: AttemptFailed, seconds: float
    ) -> tuple[Target, AttemptAnswer]:
        """Ask a server once more that has refused something of its protocol, as if that were known: once for each quirk
        that it shows. What has helped is remembered."""
        answer: AttemptAnswer = failed
        while isinstance(answer, AttemptFailed):
            target = self.runtime.health.add_shown_quirks(target)
            asked = self.runtime.choose_upstream(request.client_codec, target, request.stream, request.body.has_tools)
            shown = error_replies.find_shown_quirks(answer.failure, target, find_codec(asked.codec.name))
            if not shown:
                return target, answer
            target = replace(target, shown_quirks=(*target.shown_quirks, *shown))
            answer = await self._try_target(request, target, seconds)
        self.runtime.record_shown_quirks(target)
        return target, answer

    async def _retry_with_fewer_tokens(
        self,
        request: GatewayRequest,
        target: Target,
        codec: Codec,
        failed: AttemptFailed,
        seconds: float,
        strips_seals: bool = False,
    ) -> AttemptAnswer:
        """Ask for fewer output tokens (`max_tokens`), where the provider names its limit. A client of another protocol
        asks for as many as its own models can give."""
        is_cross_protocol = codec.name != request.client_codec.name
        found = error_replies.read_token_limit(failed.failure, codec.constraints) if is_cross_protocol else None
        if found is None:
            return failed
        token_limit, holds_for_model = found
        if holds_for_model:
            self.runtime.health.token_limits[target.provider.name, target.model] = token_limit
        return await self._try_target(request, target, seconds, token_limit, strips_seals)

    # --- for features that send requests of their own ---

    async def relay_stream(self, request: GatewayRequest, started: StartedStream, output: StreamOutput) -> None:
        await relay_stream(request, started, output)

    async def forward_native(self, request: GatewayRequest, target: Target, path: str) -> Reply | None:
        # It was admitted for any of its targets, and maybe before stored turns were added.
        refused = await ask_hooks(self.stages.admit_target, request, target)
        return refused.reply if refused is not None else await forward_native(request, target, path, self.stages)


Answer = TypeVar("Answer")


async def _pass_through(
    hooks: Sequence[Callable[..., Awaitable[GatewayRequest | Answer]]], request: GatewayRequest, *given: object
) -> GatewayRequest | Answer:
    """The request as the last of the hooks leaves it; or what one of them gives in its place."""
    for hook in hooks:
        result = await hook(request, *given)
        if type(result) is not GatewayRequest:
            return result
        request = result
    return request


def _list_others(target: Target, later: tuple[Target, ...]) -> set[tuple[str, str]]:
    """Providers and models that can be asked after this one, without other accounts of the same."""
    return {(one.provider.name, one.model) for one in later} - {(target.provider.name, target.model)}


def _ends_sooner(failed: AttemptFailed, first: AttemptFailed, account: Provider, first_account: Provider) -> bool:
    """If all accounts of a provider are limited, the client learns of the one that can be asked again first."""
    if account.name != first_account.name or {failed.failure.kind, first.failure.kind} != {"rate"}:
        return False
    waits = (inf if one.failure.retry_after is None else one.failure.retry_after for one in (failed, first))
    return next(waits) < next(waits)


def _choose_name(request: GatewayRequest, endpoint: EndpointMatch) -> EndpointMatch:
    """The endpoint with the vendor's name of its model, if nobody here knows the cloud's name."""
    route, key = request.runtime.router.route, request.caller.key
    if not endpoint.other_model or isinstance(route(endpoint.model, key), tuple):
        return endpoint
    is_known = isinstance(route(endpoint.other_model, key), tuple)
    return replace(endpoint, model=endpoint.other_model) if is_known else endpoint


async def _adapt_body(
    request: GatewayRequest, endpoint: EndpointMatch, body: bytes | Failure
) -> tuple[GatewayRequest, bytes | Failure]:
    """The request of a cloud's client as the protocol itself has it."""
    adapt = endpoint.adapt_body
    request.running.cloud_endpoint = endpoint
    if adapt is None or isinstance(body, Failure):
        return request, body
    adapted = await run_by_size(len(body), lambda: adapt(body, endpoint, request.headers))
    return (
        (request, adapted)
        if isinstance(adapted, Failure)
        else (replace(request, headers=adapted.headers), adapted.data)
    )


def _refuse_other_model(endpoint: EndpointMatch, named: str) -> Failure | None:
    if not named or endpoint.ignores_model_in_body or named.removeprefix("models/") == endpoint.model:
        return None
    what = f"the path names the model `{endpoint.model}`, and the body another one, `{named[:80]}`"
    return Failure("invalid", what, 400, "", "model")
