"""The client keys of the store in a gateway: loaded at the start, and read again within seconds of a change."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress

from toolwire.gateway.features.keys.key_records import KeyChange, KeyRecords, StoredKeyList
from toolwire.gateway.store.store import StoreDown

POLL_SECONDS = 1.0
LOAD_WAIT_SECONDS = 3.0
"""How long the first requests wait for the keys."""
NOT_READ = "they have not been read yet"


class StoredKeys:
    """The keys that were read last. Those that are known stay in force while the store is down: nobody can change them
    then, and they still end at their time."""

    def __init__(
        self,
        records: KeyRecords,
        on_loaded: Callable[[Sequence[KeyChange]], None],
        on_state_changed: Callable[[str], None],
        report_error: Callable[[BaseException], None],
    ) -> None:
        """`on_loaded` gets the changes since the last time, `on_state_changed` why the store cannot be read, or ""."""
        self._records, self._on_loaded, self._on_state_changed = records, on_loaded, on_state_changed
        self._report_error = report_error
        self.current: StoredKeyList | None = None
        """None until they are read for the first time."""
        self.problem = NOT_READ
        """Why the store could not be read the last time."""
        self._first_attempt = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def is_settled(self) -> bool:
        """Has the store been asked? Before that, no request is refused."""
        return self._first_attempt.is_set()

    def start(self) -> None:
        """Read them in the background, again and again."""
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._poll())
            self._task.add_done_callback(self._on_ended)

    async def wait(self) -> None:
        """Wait until they are read or the store is known to be down, but not long."""
        self.start()
        with suppress(TimeoutError):
            async with asyncio.timeout(LOAD_WAIT_SECONDS):
                await self._first_attempt.wait()

    def close(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def _on_ended(self, task: asyncio.Task[None]) -> None:
        """A bug must not end the polling for good: a key that was disabled would keep working."""
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._report_error(error)
            task.get_loop().call_later(POLL_SECONDS, self.start)

    async def _poll(self) -> None:
        while True:
            await self.load()
            await asyncio.sleep(POLL_SECONDS)

    async def load(self) -> None:
        found = await self._records.load(self.current.version if self.current is not None else None)
        before, self.problem = self.problem, found.reason if isinstance(found, StoreDown) else ""
        if isinstance(found, StoredKeyList):
            self.current = found
            self._on_loaded(found.changes)
        was_down = before not in ("", NOT_READ)
        if was_down != bool(self.problem):
            self._on_state_changed(self.problem)
        self._first_attempt.set()
