"""Threads for work that others must not wait for: large bodies, and files on disks that may hang."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, TypeVar

LARGE_BODY = 128 * 1024
"""From this size in bytes on, reading and translating a body is large work: some milliseconds."""
_executor = ThreadPoolExecutor(2, "toolwire-large-work")
"""Few threads: Python runs one at a time, and the event loop has to wait for its turn among them."""
_aside = ThreadPoolExecutor(1, "toolwire-aside")

Result = TypeVar("Result")


async def run_by_size(size: int, work: Callable[[], Result]) -> Result:
    """Run the work at once if it is small, else in a thread."""
    return work() if size < LARGE_BODY else await run_in_thread(work)


async def run_in_thread(work: Callable[[], Result]) -> Result:
    """Run large work. What every request does asks for its size itself, which costs less than `run_by_size`.

    Who is cancelled meanwhile, because a client has left, goes on when the thread is done: it may look at what the
    thread works on, such as the stream whose usage it records. Work that has not begun is cancelled, too."""
    job = _executor.submit(work)
    try:
        return await asyncio.wrap_future(job)
    except asyncio.CancelledError:
        ended = asyncio.wrap_future(job)
        while not ended.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait([ended])
        if not ended.cancelled():
            ended.exception()  # nobody waits for it any more
        raise


async def run_aside(work: Callable[[], Result]) -> Result:
    """Run what no client waits for, such as what an operator looks at, in a thread of its own: it does not take one
    from requests with large bodies."""
    return await asyncio.get_running_loop().run_in_executor(_aside, work)


class DaemonThread:
    """Runs functions one after the other in a thread that does not keep the process from ending: a thread that waits
    for a disk that hangs never ends."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._calls: SimpleQueue[tuple[asyncio.Future[Any], Callable[[], Any]] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def call(self, function: Callable[[], Any]) -> asyncio.Future[Any]:
        future = asyncio.get_running_loop().create_future()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()
        self._calls.put((future, function))
        return future

    def end(self) -> None:
        """End the thread after the calls that it has already."""
        self._calls.put(None)

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            future, function = call
            try:
                result = function()
            except BaseException as error:  # noqa: BLE001  handed to whoever waits for it
                result = error
            with suppress(RuntimeError):  # the event loop has ended
                future.get_loop().call_soon_threadsafe(_settle, future, result)


async def run_in_daemon(name: str, work: Callable[[], Result]) -> Result:
    """Run what may block for long in a daemon of its own: the shared threads stay free."""
    thread = DaemonThread(name)
    done = thread.call(work)
    thread.end()
    found: Result | BaseException = await done
    if isinstance(found, BaseException):
        raise found
    return found


def _settle(future: asyncio.Future[Any], result: Any) -> None:
    if not future.done():
        future.set_result(result)
