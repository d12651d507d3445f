"""What a feature keeps while the process runs, under one configuration after the other."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import final

from msgspec import Struct

from toolwire.gateway.exchange.gateway_request import Runtime
from toolwire.gateway.exchange.stages import Stage
from toolwire.gateway.settings.config import Config
from toolwire.gateway.store.gateway_store import GatewayStore
from toolwire.gateway.telemetry.telemetry import Telemetry


class Process(Struct, frozen=True):
    """What features use of the process that they are in."""

    gateway_id: str
    environ: Mapping[str, str]
    telemetry: Telemetry
    store: GatewayStore
    request_rebuild: Callable[[], None]
    """The next request is served by what is built anew from the configuration: a feature has read something that
    belongs to it."""


class Feature:
    """One for a process; it overrides what it needs. `features/__init__.py` lists all of them."""

    @property
    def is_settled(self) -> bool:
        """False while requests have to wait for something that is read from the store."""
        return True

    async def wait_until_settled(self) -> None:
        """Wait for that, but not long."""

    def configure(self, runtime: Runtime) -> Stage | None:
        """Use a configuration; returns the stage for its requests, if it asks for one."""

    def start(self) -> None:
        """Read in the background what requests will wait for."""

    async def sweep(self, config: Config) -> None:
        """Remove from the store what is too old."""

    async def close(self) -> None:
        """Write what waits, and end what runs. The store is closed after all features."""


@final
class StageFeature(Feature):
    """A feature of which the process knows only how its stage is built."""

    def __init__(self, build_stage: Callable[[Runtime], Stage | None]) -> None:
        self._build_stage = build_stage

    def configure(self, runtime: Runtime) -> Stage | None:
        return self._build_stage(runtime)
