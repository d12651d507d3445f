"""What the gateway can do beside translating: one folder each. Features do not know each other.

`Features` has their one list: its order is the order of calls, and what a configuration does not ask for is not in its
stages."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from msgspec.structs import replace

from toolwire.gateway.exchange.feature import Feature, Process, StageFeature
from toolwire.gateway.exchange.gateway_request import Runtime, Services
from toolwire.gateway.exchange.stages import Stages
from toolwire.gateway.features.accounts.stage import build_account_stage, open_accounts
from toolwire.gateway.features.cache_watch.cache_watch import CacheWatch
from toolwire.gateway.features.cloud_credentials.feature import (
    CloudCredentialFeature,
    has_cloud_access,
    load_senders,
)
from toolwire.gateway.features.context_window.stage import ContextWindowStage
from toolwire.gateway.features.costs.feature import CostFeature
from toolwire.gateway.features.image_descriptions.descriptions import DescriptionRepository
from toolwire.gateway.features.keys.feature import KeyFeature
from toolwire.gateway.features.limits.feature import LimitFeature
from toolwire.gateway.features.limits.settings import LimitSettings
from toolwire.gateway.features.mcp.feature import McpFeature
from toolwire.gateway.features.mcp.servers import load_sdk
from toolwire.gateway.features.mcp.settings import McpSettings
from toolwire.gateway.features.provider_objects.stage import ObjectFeature
from toolwire.gateway.features.responses.service import ResponsesService
from toolwire.gateway.features.signatures.feature import SignatureFeature
from toolwire.gateway.http.messages import RequestSender
from toolwire.gateway.settings.config import Config, Provider


def import_modules(config: Config) -> None:
    """Import what a configuration needs and takes long, in a thread."""
    if config.section(McpSettings).servers:
        load_sdk()
    if has_cloud_access(config):
        load_senders()


def make_runtime(
    config: Config, services: Services, own_senders: Mapping[Provider, RequestSender] | None = None
) -> Runtime:
    """What requests need of this configuration."""
    may_hide_calls = bool(config.section(McpSettings).servers or config.policy or config.searches_tools)
    return Runtime(config, services, open_accounts(config, services), may_hide_calls, own_senders)


class Features:
    def __init__(self, process: Process) -> None:
        self.store = process.store
        self.cloud_credentials = CloudCredentialFeature(process)
        self.keys = KeyFeature(process)
        self.objects = ObjectFeature(process)
        self.responses = ResponsesService(process.store.repository)
        self.descriptions = DescriptionRepository(process.store.repository)
        self.costs = CostFeature(process)
        self.limits = LimitFeature(process, self.costs.find_reader)
        self.cache_watch = CacheWatch()
        self._all: tuple[Feature, ...] = (
            self.cloud_credentials,
            StageFeature(build_account_stage),
            self.keys,
            self.costs,
            self.objects,
            self.limits,
            SignatureFeature(process),
            McpFeature(process),
            StageFeature(lambda _: self.responses),
            StageFeature(lambda _: ContextWindowStage()),
        )

    @property
    def is_settled(self) -> bool:
        """Need no requests wait for what is read from the store?"""
        return all(one.is_settled for one in self._all)

    async def wait_until_settled(self) -> None:
        await asyncio.gather(*(one.wait_until_settled() for one in self._all))

    def complete_config(self, config: Config) -> Config:
        """The configuration with the client keys of the store, and their limits."""
        keys = self.keys.list_stored_keys(config.server)
        if not keys:
            return config
        server = replace(config.server, keys=(*config.server.keys, *keys))
        return replace(config, server=server).with_section(config.section(LimitSettings).add_keys(keys))

    def build_stages(self, runtime: Runtime) -> Stages:
        """Use a configuration, for the requests from now on."""
        config = runtime.config
        stages = [one.configure(runtime) for one in self._all]
        self.cache_watch.configure(config.providers)
        runtime.telemetry.build_sinks(self.costs.ledger, self.cache_watch if config.server.watch_cache else None)
        return Stages([stage for stage in stages if stage is not None])

    def start(self) -> None:
        """Read in the background what requests will wait for."""
        for one in self._all:
            one.start()

    async def sweep_if_due(self, config: Config) -> None:
        """Remove from the store what is too old, if it is time."""
        await self.store.sweep_if_due(lambda: self._sweep(config))

    async def _sweep(self, config: Config) -> None:
        for one in self._all:
            await one.sweep(config)

    async def close(self, seconds: float | None) -> None:
        """Background responses may take so long to finish; None means as long as they need."""
        await self.responses.finish_jobs(seconds)
        for one in self._all:
            await one.close()
        await self.store.close()
