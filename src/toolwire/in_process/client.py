"""HTTP clients and transports for SDKs: each request is answered by any provider, in the SDK's own protocol."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import weakref
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from contextlib import suppress
from functools import partial
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import Struct

from toolwire.core.losses import Loss
from toolwire.gateway.http.messages import ProviderClient
from toolwire.gateway.settings.problems import report_problems
from toolwire.in_process.engine import ExchangeReport, ProgramAnswer, ProgramGateway, ProgramRequest
from toolwire.in_process.library import HttpLibrary, LibraryName, load_library
from toolwire.in_process.recordings import Recorder, Recordings
from toolwire.in_process.sender import LibrarySender
from toolwire.in_process.settings import ConfigSource, read_program_config

if TYPE_CHECKING:
    import httpx2

SENDER_OPTIONS = frozenset({"verify", "cert", "trust_env", "http1", "http2", "proxy", "limits", "mounts", "transport"})
"""Options of a client of the library that are about its connections: those to providers have them."""
DEFAULT_TIMEOUT = {"timeout": 600.0, "connect": 5.0}
"""That of the SDKs. The library's own five seconds are too short for a model."""
REPORT_EXTENSION = "toolwire"
"""The key of an `ExchangeReport` in the extensions of a response."""
CLOSED = "the client was closed"
OWN_THREAD = "this client cannot be asked by what it calls itself, such as a transport that was given to it"
NEEDS_ASYNCIO = "toolwire's async clients need asyncio; with trio, use `toolwire.http_client()` in a thread"
LossCallback = Callable[[Sequence[Loss]], None]
_T = TypeVar("_T")
_log = logging.getLogger("toolwire")


class ClientSettings(Struct, frozen=True):
    """What a program says when it makes a client."""

    config: ConfigSource
    library: HttpLibrary
    on_losses: LossCallback | None
    record: Path | None
    replay: Path | None
    options: Mapping[str, object]
    """Of a client of the library."""

    @property
    def client_options(self) -> dict[str, Any]:
        own = {name: value for name, value in self.options.items() if name not in SENDER_OPTIONS}
        return {"timeout": self.library.timeout(**DEFAULT_TIMEOUT), **own}

    @property
    def sender_options(self) -> dict[str, object]:
        return {name: value for name, value in self.options.items() if name in SENDER_OPTIONS}


def read_settings(
    config: ConfigSource,
    library: LibraryName,
    on_losses: LossCallback | None,
    record: str | PathLike[str] | None,
    replay: str | PathLike[str] | None,
    options: Mapping[str, object],
) -> ClientSettings:
    if replay is not None and (config is not None or record is not None):
        raise TypeError("`replay` answers from its files alone: leave out `config` and `record`")
    for name, folder in (("record", record), ("replay", replay)):
        if folder is not None and not os.fspath(folder):
            raise TypeError(f"`{name}` is the name of a folder, and this one is empty")
    http = load_library(library)
    mounts = options.get("mounts")
    for transport in (options.get("transport"), *(mounts.values() if isinstance(mounts, Mapping) else ())):
        if transport is not None and not isinstance(transport, http.async_transport):
            raise TypeError(
                f"`transport` and `mounts` lead to providers, and are async: use {library}.AsyncHTTPTransport"
            )
    record, replay = (Path(folder) if folder is not None else None for folder in (record, replay))
    return ClientSettings(config, http, on_losses, record, replay, options)


class GatewayMaker:
    """Makes the gateways of a client, one for each event loop that it is used in."""

    def __init__(self, settings: ClientSettings) -> None:
        """Raises ConfigError, and what the library raises for options that cannot be had."""
        replay, record = settings.replay, settings.record
        recordings = Recordings(replay) if replay is not None else None
        self._config = recordings.config if recordings else read_program_config(settings.config, os.environ)
        for line in report_problems(self._config.warnings, str(self._config.file or "")):
            _log.warning("%s", line)
        send = partial(LibrarySender, settings.library, settings.sender_options)
        self._make_sender: Callable[[], ProviderClient] = recordings.make_sender if recordings else send
        self._first_senders = [self._make_sender()]
        self._keep_exchange = Recorder(record, self._config).keep if record is not None else None

    def make(self) -> ProgramGateway:
        return ProgramGateway(self._config, self._take_sender, self._keep_exchange)

    def _take_sender(self) -> ProviderClient:
        try:
            return self._first_senders.pop()
        except IndexError:
            return self._make_sender()


def make_client(settings: ClientSettings) -> httpx2.Client:
    return settings.library.client(transport=_make_transport(settings), **settings.client_options)


def make_async_client(settings: ClientSettings) -> httpx2.AsyncClient:
    return settings.library.async_client(transport=_make_async_transport(settings), **settings.client_options)


def make_transport(settings: ClientSettings) -> httpx2.BaseTransport:
    _refuse_client_options(settings)
    return _make_transport(settings)


def make_async_transport(settings: ClientSettings) -> httpx2.AsyncBaseTransport:
    _refuse_client_options(settings)
    return _make_async_transport(settings)


def _refuse_client_options(settings: ClientSettings) -> None:
    unused = [name for name in settings.options if name not in SENDER_OPTIONS]
    if unused:
        raise TypeError(f"a transport has no `{unused[0]}`: give it to the client that you make")


def _make_transport(settings: ClientSettings) -> httpx2.BaseTransport:
    """A transport for sync clients. Its gateway has an event loop in a thread of its own, so that threads share it."""
    library, loop = settings.library, LoopThread(GatewayMaker(settings).make, settings.library)

    class Stream(library.stream):  # type: ignore[name-defined,misc]  # of httpx2 or of httpx
        def __init__(self, answer: ProgramAnswer, owner: object) -> None:
            self._answer, self._owner = answer, owner  # whose end would end the thread

        def __iter__(self) -> Iterator[bytes]:
            answer = self._answer
            while data := answer.take_pieces() if answer.is_over else loop.run(answer.read_pieces()):
                yield data
            _check_end(self._answer, settings)

        def close(self) -> None:
            loop.give_up(self._answer)
            _report_losses(self._answer, settings)

    class Transport(library.transport):  # type: ignore[name-defined,misc]  # of httpx2 or of httpx
        def handle_request(self, request: httpx2.Request) -> httpx2.Response:
            answer = loop.send_request(_read_request(request, request.read()))
            return _make_response(settings, answer, Stream(answer, self))

        def close(self) -> None:
            loop.close()

    transport: httpx2.BaseTransport = Transport()
    weakref.finalize(transport, loop.close_without_waiting).atexit = False
    return transport


def _make_async_transport(settings: ClientSettings) -> httpx2.AsyncBaseTransport:
    """A transport for async clients, in any number of event loops."""
    library, maker = settings.library, GatewayMaker(settings)
    gateways: dict[asyncio.AbstractEventLoop, ProgramGateway] = {}

    class Stream(library.async_stream):  # type: ignore[name-defined,misc]  # of httpx2 or of httpx
        def __init__(self, answer: ProgramAnswer) -> None:
            self._answer = answer

        async def __aiter__(self) -> AsyncIterator[bytes]:
            while data := await self._answer.read_pieces():
                yield data
            _check_end(self._answer, settings)

        async def aclose(self) -> None:
            await self._answer.close()
            _report_losses(self._answer, settings)

    class AsyncTransport(library.async_transport):  # type: ignore[name-defined,misc]  # of httpx2 or of httpx
        async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
            loop = _find_loop()
            if loop not in gateways:
                for ended in [other for other in tuple(gateways) if other.is_closed()]:
                    gateways.pop(ended, None)
                gateways[loop] = maker.make()
            answer = await gateways[loop].send_request(_read_request(request, await request.aread()))
            return _make_response(settings, answer, Stream(answer))

        async def aclose(self) -> None:
            gateway = gateways.pop(_find_loop(), None)
            if gateway is not None:
                await gateway.close()

    transport: httpx2.AsyncBaseTransport = AsyncTransport()
    return transport


def _find_loop() -> asyncio.AbstractEventLoop:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        raise RuntimeError(NEEDS_ASYNCIO) from None


def _read_request(request: httpx2.Request, body: bytes) -> ProgramRequest:
    timeout = request.extensions.get("timeout", {})
    return ProgramRequest(request.method, request.url.raw_path, request.headers.raw, body, timeout)


def _make_response(
    settings: ClientSettings, answer: ProgramAnswer, stream: httpx2.SyncByteStream | httpx2.AsyncByteStream
) -> httpx2.Response:
    library = settings.library
    if answer.has_ended:
        _report_losses(answer, settings)
        if answer.error is not None:
            raise answer.error
    if not answer.status:
        raise library.broken_answer(CLOSED)
    extensions = {REPORT_EXTENSION: answer.report}
    return library.response(answer.status, headers=answer.headers, stream=stream, extensions=extensions)


def _check_end(answer: ProgramAnswer, settings: ClientSettings) -> None:
    _report_losses(answer, settings)
    if answer.error is not None:
        raise answer.error
    if not answer.has_ended:
        raise settings.library.broken_answer("the answer ended before it was complete")


def _report_losses(answer: ProgramAnswer, settings: ClientSettings) -> None:
    """By the program's own thread or task: what its callback raises is the program's, and it may ask again."""
    report = answer.report
    if report.losses and not report.is_reported and settings.on_losses is not None:
        report.is_reported = True
        settings.on_losses(report.losses)


def find_losses(response: object) -> tuple[Loss, ...]:
    """What an exchange lost or changed, by the response of the HTTP library, or by what an SDK has it in: a raw
    response, a stream, an error. Of a stream, when it was read to its end."""
    for owner in (response, getattr(response, "http_response", None), getattr(response, "response", None)):
        report = getattr(owner, "extensions", {}).get(REPORT_EXTENSION)
        if isinstance(report, ExchangeReport):
            return report.losses
    what = "this is not a response of toolwire.http_client, and has none: use `with_raw_response`, or `on_losses`"
    raise TypeError(what)


class LoopThread:
    """An event loop in a thread of its own, which starts with the first request."""

    def __init__(self, make_gateway: Callable[[], ProgramGateway], library: HttpLibrary) -> None:
        self._make_gateway, self._library = make_gateway, library
        self._lock = threading.Condition()  # may be taken twice: the garbage collector closes streams anywhere
        self._loop: asyncio.AbstractEventLoop | None = None
        self._gateway: ProgramGateway | None = None
        self._thread: threading.Thread | None = None

    def send_request(self, request: ProgramRequest) -> ProgramAnswer:
        with self._lock:
            # In a process that was forked from the one with the thread, there is none.
            if self._gateway is None or not self._is_running:
                self._start()
            assert self._gateway is not None
            work = self._gateway.send_request(request)
        return self.run(work)

    def run(self, work: Coroutine[object, object, _T]) -> _T:
        """Wait in this thread for work in the other one. Whoever is interrupted here ends it there."""
        with self._lock:
            if not self._is_running or threading.current_thread() is self._thread:
                work.close()
                if self._is_running:
                    raise RuntimeError(OWN_THREAD)
                raise self._library.broken_answer(CLOSED)
            assert self._loop is not None
            future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except CancelledError:
            raise self._library.broken_answer(CLOSED) from None
        except BaseException:
            future.cancel()
            raise

    def give_up(self, answer: ProgramAnswer) -> None:
        """The program reads no more of an answer. If the client is closed, it has ended already. The garbage collector
        does not wait where it stops the other thread, or is in it."""
        is_held = self._is_held
        with self._lock:
            if not self._is_running or answer.is_over:
                return
            assert self._loop is not None
            future = asyncio.run_coroutine_threadsafe(answer.close(), self._loop)
            if is_held or threading.current_thread() is self._thread:
                return
        with suppress(CancelledError):
            future.result()

    def close(self) -> None:
        thread = self.close_without_waiting()
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def close_without_waiting(self) -> threading.Thread | None:
        """The thread that ends."""
        with self._lock:
            loop, gateway, thread, is_running = self._loop, self._gateway, self._thread, self._is_running
            self._loop = self._gateway = self._thread = None
            if loop is None or gateway is None or not is_running:
                return None
            asyncio.run_coroutine_threadsafe(_end_loop(gateway), loop)
        return thread

    @property
    def _is_held(self) -> bool:
        """Has this thread the lock? Nobody waits to be notified."""
        try:
            self._lock.notify()
        except RuntimeError:
            return False
        return True

    @property
    def _is_running(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def _start(self) -> None:
        gateway, loop = self._make_gateway(), asyncio.new_event_loop()
        thread = threading.Thread(target=_run_loop, args=(loop,), name="toolwire", daemon=True)
        thread.start()
        self._gateway, self._loop, self._thread = gateway, loop, thread


def _run_loop(loop: asyncio.AbstractEventLoop) -> None:
    try:
        loop.run_forever()
    finally:
        loop.close()


async def _end_loop(gateway: ProgramGateway) -> None:
    """Close the gateway, and leave no thread behind that waits for this loop."""
    try:
        await gateway.close()
    finally:
        waiting = asyncio.all_tasks() - {asyncio.current_task()}
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        loop = asyncio.get_running_loop()
        loop.call_soon(loop.stop)  # after those who wait in other threads were told
