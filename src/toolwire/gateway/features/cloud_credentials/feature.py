"""The credentials of clouds in a process: they outlive a configuration."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING

from toolwire.gateway.exchange.feature import Feature, Process
from toolwire.gateway.http.messages import RequestSender
from toolwire.gateway.http.senders import ProviderSenders
from toolwire.gateway.settings.config import Config, Provider

if TYPE_CHECKING:
    from toolwire.gateway.features.cloud_credentials.senders import CloudSenders


def load_senders() -> None:
    """Import what providers with such credentials need, in a thread, before a configuration with one is used."""
    import_module("toolwire.gateway.features.cloud_credentials.senders")


def open_cloud_senders(
    client: RequestSender,
    environ: Mapping[str, str],
    report_error: Callable[[BaseException], None],
    log_event: Callable[..., None] | None = None,
) -> CloudSenders:
    from toolwire.gateway.features.cloud_credentials.senders import CloudSenders  # noqa: PLC0415 — only if configured

    return CloudSenders(client, environ, time.time, report_error, log_event)


def has_cloud_access(config: Config) -> bool:
    return any(provider.access.method for provider in config.providers.values())


def make_provider_senders(config: Config, client: RequestSender, environ: Mapping[str, str]) -> ProviderSenders:
    """For a command, which ends soon."""
    if not has_cloud_access(config):
        return ProviderSenders(client)
    return ProviderSenders(client, open_cloud_senders(client, environ, lambda error: None).make_senders(config))


class CloudCredentialFeature(Feature):
    def __init__(self, process: Process) -> None:
        self._process = process
        self._senders: CloudSenders | None = None

    def make_senders(self, config: Config, client: RequestSender) -> Mapping[Provider, RequestSender]:
        """Those of providers with credentials of a cloud. Without one, nothing is imported."""
        if not has_cloud_access(config):
            return {}
        if self._senders is None:
            process = self._process
            log_event = process.telemetry.log_event
            self._senders = open_cloud_senders(client, process.environ, process.telemetry.report_error, log_event)
        return self._senders.make_senders(config)

    async def close(self) -> None:
        if self._senders is not None:
            await self._senders.close()
