"""The signatures of a process: the key that signs those that clients carry, and the store for those that they cannot.

A key that several gateways share is read from their store; until then, or if that fails, another one signs."""

from __future__ import annotations

from msgspec.structs import replace

from toolwire.core.envelopes import EnvelopeKeys
from toolwire.gateway.exchange.feature import Feature, Process
from toolwire.gateway.exchange.gateway_request import Runtime
from toolwire.gateway.features.signatures.envelope_keys import (
    PROCESS_KEY,
    SharedKey,
    load_envelope_keys,
    uses_shared_key,
)
from toolwire.gateway.features.signatures.signatures import SignatureRepository
from toolwire.gateway.features.signatures.stage import SignatureStage
from toolwire.gateway.settings.config import Config
from toolwire.gateway.store.store import SecretStore


class SignatureFeature(Feature):
    def __init__(self, process: Process) -> None:
        self._process = process
        self._signatures = SignatureRepository(process.store.repository)
        self._shared_key = None
        """None unless several gateways can share the store."""
        if isinstance(process.store.store, SecretStore):
            self._shared_key = SharedKey(process.store.store, self._on_key_loaded, self._on_key_failed)
        self._runtime: Runtime | None = None
        """Of the configuration that is in force."""
        self._needs_shared_key = False
        self._has_reported_process_key = False

    @property
    def is_settled(self) -> bool:
        return not self._needs_shared_key or self._shared_key is None or self._shared_key.is_settled

    async def wait_until_settled(self) -> None:
        if self._shared_key is not None and not self.is_settled:
            await self._shared_key.wait()

    def start(self) -> None:
        if self._shared_key is not None and not self.is_settled:
            self._shared_key.start()

    def configure(self, runtime: Runtime) -> SignatureStage | None:
        """None without a store."""
        self._runtime = runtime
        runtime.set_envelope_keys(self._load_keys(runtime.config))
        self._signatures.is_alone = self._shared_key is None and runtime.config.server.workers == 1
        return SignatureStage(runtime, self._signatures) if self._signatures.is_enabled else None

    def _load_keys(self, config: Config) -> EnvelopeKeys:
        environ = self._process.environ
        config = replace(config, store=self._process.store.settings)  # the one that was opened
        self._needs_shared_key = uses_shared_key(config, environ)
        shared = self._shared_key if self._needs_shared_key else None
        try:
            return load_envelope_keys(config, environ, shared.value if shared is not None else None)
        except OSError as error:
            self._report_process_key(f"{error.filename}: {error.strerror}")
            return EnvelopeKeys((PROCESS_KEY,))

    def _report_process_key(self, why: str) -> None:
        if not self._has_reported_process_key:
            self._has_reported_process_key = True
            what = f"the key that signs signatures and summaries for clients cannot be stored: {why}"
            hint = "set [server] secret_env, or they are not accepted after a restart or by other gateways"
            self._process.telemetry.log_event("config_problem", level="warn", message=what, hint=hint)

    def _on_key_loaded(self) -> None:
        if self._runtime is not None:
            self._runtime.set_envelope_keys(self._load_keys(self._runtime.config))

    def _on_key_failed(self, reason: str) -> None:
        what = f"the key that signs signatures and summaries for clients cannot be loaded, another is used: {reason}"
        hint = "repair the store, or set [server] secret_env"
        self._process.telemetry.log_event("envelope_key_unavailable", level="warn", message=what, hint=hint)

    async def close(self) -> None:
        if self._shared_key is not None:
            self._shared_key.close()
