"""The client keys of a process: those of its configuration, and those of the store, if the configuration wants them."""

from __future__ import annotations

from collections.abc import Sequence

from toolwire.gateway.exchange.feature import Feature, Process
from toolwire.gateway.features.keys.access import AccessControl
from toolwire.gateway.features.keys.key_records import KeyChange, KeyRecords, StoredKeyList
from toolwire.gateway.features.keys.stored_keys import StoredKeys
from toolwire.gateway.settings.client_keys import read_stored_keys
from toolwire.gateway.settings.config import ClientKey, Config, ServerSettings
from toolwire.gateway.settings.times import format_time


class KeyFeature(Feature):
    def __init__(self, process: Process) -> None:
        self._process, self._log_event = process, process.telemetry.log_event
        store = process.store.store
        self._records = KeyRecords(store) if store is not None else None
        self._stored: StoredKeys | None = None
        """None unless the configuration wants them (`store_keys`)."""

    @property
    def is_settled(self) -> bool:
        return self._stored is None or self._stored.is_settled

    async def wait_until_settled(self) -> None:
        if self._stored is not None and not self._stored.is_settled:
            await self._stored.wait()

    def start(self) -> None:
        if self._stored is not None:
            self._stored.start()

    def list_stored_keys(self, server: ServerSettings) -> tuple[ClientKey, ...]:
        """The keys of the store that a configuration gets beside its own, as far as they are known."""
        if server.store_keys and self._stored is None and self._records is not None:
            report_error = self._process.telemetry.report_error
            self._stored = StoredKeys(self._records, self._on_loaded, self._on_state_changed, report_error)
        elif not server.store_keys and self._stored is not None:
            self._stored.close()
            self._stored = None
        if self._stored is None or self._stored.current is None:
            return ()
        keys, problems = read_stored_keys(self._stored.current.tables, server.keys)
        for problem in problems:
            what = f"{problem.location}: {problem.message}"
            self._log_event("client_key_ignored", level="error", message=what, hint=problem.hint)
        return keys

    def make_access(self, server: ServerSettings) -> AccessControl:
        return AccessControl(server, self._is_waiting_for_keys)

    def _is_waiting_for_keys(self) -> bool:
        return self._stored is not None and self._stored.current is None

    def _on_loaded(self, changes: Sequence[KeyChange]) -> None:
        self._process.request_rebuild()
        for one in changes:
            at = format_time(one.at)
            fields = {"key_name": one.name, "action": one.action, "author": one.author, "at": at, "detail": one.detail}
            self._log_event("client_key_changed", **fields)

    def _on_state_changed(self, problem: str) -> None:
        if problem:
            what = f"the client keys in the store cannot be read; those that are known stay in force: {problem}"
            self._log_event("client_keys_unavailable", level="error", message=what)
        else:
            self._log_event("client_keys_available")

    async def sweep(self, config: Config) -> None:
        """Warn of keys that nobody asks for: the file may have lost `store_keys` before this gateway started."""
        if config.server.needs_keys or self._records is None:
            return
        found = await self._records.load(None)
        if isinstance(found, StoredKeyList) and found.tables:
            what = "the store has client keys, but this gateway serves everybody on this machine without a key"
            hint = "write `store_keys = true` in [server], or use another store"
            self._log_event("config_problem", level="warn", message=what, hint=hint)

    async def close(self) -> None:
        if self._stored is not None:
            self._stored.close()
