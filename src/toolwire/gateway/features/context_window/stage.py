"""Refuses prompts that cannot fit, before their provider is asked."""

from __future__ import annotations

from toolwire.gateway.exchange.gateway_request import Attempt, AttemptFailed, GatewayRequest
from toolwire.gateway.exchange.stages import Stage
from toolwire.gateway.features.context_window.context_window import MIN_BODY, refuse_overflow


class ContextWindowStage(Stage):
    async def plan(self, request: GatewayRequest, attempt: Attempt) -> AttemptFailed | None:
        return await refuse_overflow(request, attempt.upstream) if len(request.body.data) >= MIN_BODY else None
