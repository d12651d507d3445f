"""Puts stored turns into requests of the Responses API, and stores their answers."""

from __future__ import annotations

from toolwire.core.codec import Codec
from toolwire.gateway.exchange.gateway_request import AttemptFailed, GatewayRequest
from toolwire.gateway.exchange.stages import ExtendedRequest, RequestRunner, Stage
from toolwire.gateway.features.responses.service import ResponsesService
from toolwire.gateway.settings.router import Target


class ResponsesStage(Stage):
    def __init__(self, service: ResponsesService) -> None:
        self._service = service

    def serves(self, codec: Codec) -> bool:
        return self._service.serves(codec)

    async def extend(self, call: GatewayRequest, targets: tuple[Target, ...], runner: RequestRunner) -> ExtendedRequest:
        if not self._service.may_need_state(call):
            return call
        return await self._service.prepare_stateful_request(call, targets, runner)

    async def extend_count(self, call: GatewayRequest, targets: tuple[Target, ...]) -> GatewayRequest | AttemptFailed:
        return await self._service.expand_references(call, targets)
