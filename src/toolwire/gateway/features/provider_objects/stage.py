"""Lets only those use an object at a provider who have created it."""

from __future__ import annotations

from toolwire.core.ir import Failure
from toolwire.gateway.exchange import error_replies
from toolwire.gateway.exchange.feature import Feature, Process
from toolwire.gateway.exchange.gateway_request import AttemptFailed, GatewayRequest, PreparedRequest, Runtime
from toolwire.gateway.exchange.stages import Stage
from toolwire.gateway.features.provider_objects.provider_objects import ProviderObjects
from toolwire.gateway.settings.router import Target


class ObjectFeature(Feature):
    def __init__(self, process: Process) -> None:
        self._repository = process.store.repository
        self.current: ProviderObjects
        """Of the configuration that is in force."""

    def configure(self, runtime: Runtime) -> ObjectStage | None:
        """None without keys and without several accounts: then nobody's objects are kept apart."""
        self.current = ProviderObjects(self._repository, runtime)
        is_needed = runtime.config.server.needs_keys or runtime.accounts is not None
        return ObjectStage(self.current) if is_needed else None


class ObjectStage(Stage):
    def __init__(self, objects: ProviderObjects) -> None:
        self._objects = objects

    async def admit(self, call: GatewayRequest, targets: tuple[Target, ...]) -> GatewayRequest | AttemptFailed:
        checked = await self._objects.check_references(call, targets)
        return error_replies.gateway_error(call, checked) if isinstance(checked, Failure) else checked

    async def extend_count(self, call: GatewayRequest, targets: tuple[Target, ...]) -> GatewayRequest | AttemptFailed:
        return await self.admit(call, targets)

    async def check_written(self, call: GatewayRequest, prepared: PreparedRequest) -> AttemptFailed | None:
        if prepared.is_passthrough:
            return None  # `admit` has seen it
        refused = await self._objects.refuse_translated(call, prepared.upstream, prepared.body)
        return error_replies.gateway_error(call, refused) if refused is not None else None
