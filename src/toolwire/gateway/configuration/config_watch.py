"""Watches the configuration of a process: reads it again when its file changes, or when somebody asks for it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from time import sleep

from toolwire.gateway.configuration.live_config import LiveConfig, Reload
from toolwire.gateway.features import import_modules
from toolwire.gateway.http.large_work import DaemonThread
from toolwire.gateway.settings.client_keys import list_key_changes
from toolwire.gateway.telemetry.metrics import CONFIG_RELOADS
from toolwire.gateway.telemetry.telemetry import Telemetry

POLL_SECONDS = 1.0
SETTLE_SECONDS, MAX_LOOKS = 0.05, 40
"""How long a file must stay the same before it is read at once, because somebody asks for it, and how often that is
looked at. An editor or `cp` empties a file before it writes it, and without a file there are no providers."""


class ConfigWatch:
    """Polls the file in the background once it was started; before that, whoever needs the configuration calls
    `check`."""

    def __init__(
        self,
        source: LiveConfig,
        telemetry: Telemetry,
        on_accepted: Callable[[], None],
    ) -> None:
        self.source = source
        self._telemetry, self._on_accepted = telemetry, on_accepted
        self._last_check = 0.0
        self.polling: asyncio.Task[None] | None = None
        self._reload_requested = asyncio.Event()
        self._thread = DaemonThread("toolwire-config")

    def check(self, now: float) -> None:
        """Read the file again if it has changed, but not for every request."""
        if now - self._last_check >= POLL_SECONDS:
            self._last_check = now
            self.reload()

    def reload(self, force: bool = False) -> None:
        """Read the configuration again if it has changed."""
        self._apply(self.source.read_if_changed(force))

    def start_reload(self) -> None:
        """Read the configuration again in a thread: a large file takes a while."""
        self._reload_requested.set()

    def _apply(self, reload: Reload | None) -> None:
        if reload is None:
            return
        before = self.source.current.server.keys
        is_new = self.source.apply(reload)
        self._telemetry.metrics.count(CONFIG_RELOADS, "accepted" if is_new else "refused")
        config = self.source.current
        file = str(config.file or "")
        if is_new:
            self._telemetry.log_event("config_reloaded", file=file)
            for name, action, detail in list_key_changes(before, config.server.keys):
                fields = {"key_name": name, "action": action, "author": file, "detail": detail}
                self._telemetry.log_event("client_key_changed", **fields)
            self._on_accepted()
        else:
            what = "the new configuration is refused: the old one stays in force"
            self._telemetry.log_event("config_refused", level="error", file=file, message=what)

    # --- in the background ---

    def start(self, on_poll: Callable[[], Awaitable[None]]) -> None:
        """Poll from now on; `on_poll` is called each time."""
        self.polling = asyncio.get_running_loop().create_task(self._poll(on_poll))

        def restart(task: asyncio.Task[None]) -> None:
            """A bug must not end the polling for good: a key that was removed from the file would keep working."""
            error = None if task.cancelled() else task.exception()
            if error is not None:
                self._telemetry.report_error(error)
                self.start(on_poll)

        self.polling.add_done_callback(restart)

    async def _poll(self, on_poll: Callable[[], Awaitable[None]]) -> None:
        seen = self.source.file_stamp()
        while True:
            forced = await self._wait()
            before, seen = seen, self.source.file_stamp()
            # A file that has just changed may still be written: it is read when it has been the same twice.
            if forced or seen == before:
                found = await self._thread.call(partial(self._read, forced))
                if isinstance(found, BaseException):
                    raise found
                self._apply(found)
            await on_poll()

    async def _wait(self) -> bool:
        """Wait for the next poll, or less if a reload is requested: then True."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._reload_requested.wait(), POLL_SECONDS)
        forced = self._reload_requested.is_set()
        self._reload_requested.clear()
        return forced

    def _read(self, forced: bool) -> Reload | None:
        """A changed configuration, with what must be imported for it. Runs in a thread."""
        if forced:
            self._wait_until_written()
        found = self.source.read_if_changed(forced)
        if found is not None and found.config is not None:
            import_modules(found.config)
        return found

    def _wait_until_written(self) -> None:
        seen = self.source.file_stamp()
        for _ in range(MAX_LOOKS):
            sleep(SETTLE_SECONDS)
            before, seen = seen, self.source.file_stamp()
            if seen == before:
                return

    def close(self) -> None:
        if self.polling is not None:
            self.polling.cancel()
        self._thread.end()
