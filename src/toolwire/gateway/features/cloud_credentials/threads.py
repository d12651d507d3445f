"""Runs a library that blocks in a thread of its own: the shared ones stay free, and nobody waits for it at the end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from threading import Thread
from typing import TypeVar

Found = TypeVar("Found")


async def run_in_thread(work: Callable[[], Found]) -> Found:
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Found] = loop.create_future()

    def finish(found: Found | None, error: BaseException | None) -> None:
        if done.done():
            return
        if error is not None:
            done.set_exception(error)
        else:
            done.set_result(found)  # type: ignore[arg-type]  # it has no error

    def run() -> None:
        found: Found | None = None
        failed: BaseException | None = None
        try:
            found = work()
        except BaseException as error:  # noqa: BLE001 — it is raised where the work is awaited
            failed = error
        with suppress(RuntimeError):  # the loop is closed, and nobody waits any more
            loop.call_soon_threadsafe(finish, found, failed)

    Thread(target=run, name="toolwire-credentials", daemon=True).start()
    return await done
