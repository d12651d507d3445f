"""Reserves what requests will probably use of the limits, before they are sent."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar

from toolwire.core.ir import Failure
from toolwire.core.json_values import Malformed
from toolwire.gateway.exchange import error_replies
from toolwire.gateway.exchange.gateway_request import Attempt, AttemptFailed, GatewayRequest, PreparedRequest
from toolwire.gateway.exchange.hooks import Refusal
from toolwire.gateway.exchange.stages import ForwardedRequest, Stage
from toolwire.gateway.features.limits.hosted_tools import estimate_extra, list_forwarded_tools, list_hosted_tools
from toolwire.gateway.features.limits.limits import Limits
from toolwire.gateway.http.large_work import run_by_size
from toolwire.gateway.settings.router import Target

Value = TypeVar("Value")


class LimitStage(Stage):
    """The limits of one configuration. What is reserved is settled when the exchange ends."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits

    async def admit(self, request: GatewayRequest, targets: tuple[Target, ...]) -> GatewayRequest | AttemptFailed:
        """Reserve before anything is done for the request, or stored."""
        refused = await self._reserve(request, targets[0])
        has_fallback = refused is not None and refused.can_fall_back and len(targets) > 1
        return request if refused is None or has_fallback else refused

    async def admit_target(self, request: GatewayRequest, target: Target) -> AttemptFailed | None:
        if self._limits.is_reserved(request.running, target.provider, target.model, len(request.body.data)):
            return None
        return await self._reserve(request, target)

    async def plan(self, request: GatewayRequest, attempt: Attempt) -> AttemptFailed | None:
        """Where a limit judges the tools of a request, what it judges is what is sent."""
        upstream = attempt.upstream
        if self._limits.find_price_rule(request.record, upstream.provider, upstream.model) is not None:
            judged = await _read_by_size(len(request.body.data), request.body.judge)
            if isinstance(judged, Failure):
                return error_replies.gateway_error(request, judged)
        return None

    async def check_written(self, request: GatewayRequest, prepared: PreparedRequest) -> AttemptFailed | None:
        """Refuse tools that cost money which a limit in dollars cannot count, and reserve what the others cost besides
        tokens. Rules may have dropped them by now."""
        record, upstream = request.record, prepared.upstream
        provider, model = upstream.provider, upstream.model
        if not self._limits.bounds_dollars(record, provider, model):
            return None
        rule = self._limits.find_price_rule(record, provider, model)
        tools = await _read_by_size(len(prepared.body), partial(list_hosted_tools, request.body, prepared))
        if isinstance(tools, Failure):
            return error_replies.gateway_error(request, tools) if rule is not None else None
        refusal = self._limits.refuse_tools(rule, record, provider, model, tools) if rule is not None else None
        if refusal is None and tools:
            refusal = await self._limits.reserve_extra(request.running, estimate_extra(tools))
        return error_replies.limit_error(request, refusal) if refusal is not None else None

    async def _reserve(self, request: GatewayRequest, target: Target) -> AttemptFailed | None:
        asked = (target.provider, target.model, request.body, target.max_output_tokens)
        refusal = await self._limits.reserve(request.running, *asked)
        return error_replies.limit_error(request, refusal) if refusal is not None else None

    async def admit_forwarded(self, gateway_request: GatewayRequest, request: ForwardedRequest) -> AttemptFailed | None:
        refused = await self._refuse_forwarded(gateway_request, request)
        if isinstance(refused, Failure):
            return error_replies.gateway_error(gateway_request, refused)
        return error_replies.limit_error(gateway_request, refused) if refused is not None else None

    async def _refuse_forwarded(
        self, gateway_request: GatewayRequest, request: ForwardedRequest
    ) -> Failure | Refusal | None:
        """Every request to a provider counts as one, and those that say their tokens count like translated ones. What
        does not say its cost is refused where it could pass a limit."""
        running, endpoint, target = gateway_request.running, request.match.endpoint, request.target
        cost = endpoint.find_cost(gateway_request.record.client.method)
        if cost in ("", "storage"):
            # What it runs besides may be of any model.
            model = "" if endpoint.runs_models else target.model
            refused = self._limits.refuse_uncounted(
                gateway_request.record, target.provider, model, uses_tokens=not cost
            )
            if refused is not None:
                return refused
        if cost not in ("input", "tokens"):
            return await self._limits.reserve_request(running, target.provider, target.model)
        tool_refused = await self._refuse_forwarded_tool(gateway_request, request)
        if tool_refused is not None:
            return tool_refused
        max_output = 0 if cost == "input" else None
        return await self._limits.reserve(running, target.provider, target.model, request.body, max_output)

    async def _refuse_forwarded_tool(
        self, gateway_request: GatewayRequest, request: ForwardedRequest
    ) -> Failure | Refusal | None:
        provider, model, body = request.target.provider, request.target.model, request.body
        rule = self._limits.find_price_rule(gateway_request.record, provider, model)
        if rule is None:
            return None
        tools = await _read_by_size(len(body.data), partial(list_forwarded_tools, body))
        if isinstance(tools, Failure):
            return tools
        return self._limits.refuse_tools(rule, gateway_request.record, provider, model, tools)


async def _read_by_size(size: int, read: Callable[[], Value]) -> Value | Failure:
    try:
        return await run_by_size(size, read)
    except Malformed as bad:
        return Failure("invalid", str(bad), 400, param=bad.path)
