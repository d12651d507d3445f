"""A gateway for one event loop of a program. It gets requests as its ASGI server would give them, and its answers go
back to the program's HTTP client. The path of a request is that of the gateway: routes, fallbacks, repairs, losses."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct

from toolwire.core.ir import EMPTY_MAPPING
from toolwire.core.losses import Loss
from toolwire.gateway.app import Gateway
from toolwire.gateway.configuration.live_config import LiveConfig
from toolwire.gateway.http.client_request import Message, Receive, Scope, Send
from toolwire.gateway.http.headers import REQUEST_ID_HEADER
from toolwire.gateway.http.memory import MemoryBudget
from toolwire.gateway.http.messages import ProviderClient
from toolwire.gateway.settings.config import Config, Timeouts
from toolwire.gateway.settings.problems import ReportLine
from toolwire.gateway.telemetry.record import ExchangeRecord
from toolwire.gateway.telemetry.telemetry import Telemetry
from toolwire.in_process.sender import CURRENT_CALL, CallState

MAX_UNREAD_PIECES = 64
"""Pieces of a stream that wait for the program. With more, the provider is not read."""
_OWN_HEADERS = frozenset({b"host", b"origin", REQUEST_ID_HEADER.encode()})
KeepExchange = Callable[[ExchangeRecord], None]


class ProgramRequest(Struct, frozen=True):
    method: str
    target: bytes
    """The path and the query."""
    headers: Sequence[tuple[bytes, bytes]]
    body: bytes
    timeout: Mapping[str, object]


class ExchangeReport(Struct, eq=False):
    """What is known of an exchange when it has ended."""

    losses: tuple[Loss, ...] = ()
    is_reported: bool = False
    """Was the program's callback called?"""


class ProgramAnswer:
    """The answer to a request: its head, and its body in pieces as they come."""

    def __init__(self, report: ExchangeReport, call: CallState) -> None:
        self.report = report
        self._call = call
        self._earlier_error: Exception | None = None
        """Of the HTTP library, before the head: another provider has answered since."""
        self.status = 0
        self.headers: list[tuple[bytes, bytes]] = []
        self.task: asyncio.Task[None] | None = None
        self._pieces: list[bytes] = []
        self._has_changed = asyncio.Event()
        self._has_room = asyncio.Event()
        self._has_room.set()
        self.has_ended = False
        """Was the last piece sent? If the gateway stops before that, the answer is broken."""

    @property
    def error(self) -> Exception | None:
        """What the HTTP library has raised, if that is why the answer is missing or breaks off: SDKs know these errors,
        and need no others."""
        error = self._call.error
        if self.status >= 500 or error is not self._earlier_error:
            return error
        return None

    @property
    def is_over(self) -> bool:
        return self.task is not None and self.task.done()

    def follow(self, task: asyncio.Task[None]) -> None:
        """The answer comes from this task, and will not change after it."""
        self.task = task
        task.add_done_callback(lambda ended: self._has_changed.set())

    async def receive_message(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status, self.headers = message["status"], message["headers"]
            self._earlier_error = self._call.error
            return
        if message.get("body") and self.error is None:
            self._pieces.append(message["body"])
        self.has_ended = not message.get("more_body", False)
        self._has_changed.set()
        if len(self._pieces) >= MAX_UNREAD_PIECES and not self.has_ended:
            self._has_room.clear()
            await self._has_room.wait()

    async def wait_for_start(self) -> None:
        """Wait for the head and the first piece; of a whole answer, until the exchange has ended, so that all of its
        losses are known."""
        await self._wait_for_change()
        if self.has_ended:
            await self._wait_for_end()

    async def read_pieces(self) -> bytes:
        """All that has come since the last time; b"" at the end of the answer."""
        if not self._pieces and not self.has_ended:
            await self._wait_for_change()
        if not self._pieces:
            await self._wait_for_end()
        self._has_changed.clear()
        self._has_room.set()
        return self.take_pieces()

    def take_pieces(self) -> bytes:
        """The same without waiting, in any thread, of an answer that `is_over`."""
        data, self._pieces = b"".join(self._pieces), []
        if not data:
            self._raise_faults()
        return data

    async def close(self) -> None:
        """The program reads no more: the provider's call ends, too."""
        if self.task is not None and not self.task.done():
            self.task.cancel()
        await self._wait_for_end()

    async def _wait_for_change(self) -> None:
        if self.task is None or not self.task.done():
            await self._has_changed.wait()
        self._raise_faults()

    def _raise_faults(self) -> None:
        """What should not have happened in the gateway, or while the exchange was recorded."""
        if self.task is not None and self.task.done() and not self.task.cancelled():
            self.task.result()

    async def _wait_for_end(self) -> None:
        if self.task is not None and not self.is_over:  # a wait for what has ended is a step of the loop, too
            await asyncio.wait({self.task})


class ProgramGateway:
    """One for each event loop that the program uses."""

    def __init__(
        self,
        config: Config,
        make_sender: Callable[[], ProviderClient],
        keep_exchange: KeepExchange | None,
    ) -> None:
        self._keep_exchange = keep_exchange
        self._reports: dict[str, ExchangeReport] = {}
        self._running: set[asyncio.Task[None]] = set()
        captures = keep_exchange is not None
        telemetry = Telemetry(config.server, _write_nothing, keep_ended=self._note_ended, captures=captures)

        def make(timeouts: Timeouts, budget: MemoryBudget) -> ProviderClient:
            return make_sender()

        self._gateway = Gateway(LiveConfig(config, EMPTY_MAPPING, _ignore_problems), telemetry, make_sender=make)

    async def send_request(self, request: ProgramRequest) -> ProgramAnswer:
        """Ask the gateway, and wait for the start of its answer."""
        request_id = f"req_{secrets.token_hex(12)}"
        report = self._reports[request_id] = ExchangeReport()
        state = CallState(request.timeout)
        answer = ProgramAnswer(report, state)
        CURRENT_CALL.set(state)
        messages = [{"type": "http.request", "body": request.body, "more_body": False}]

        async def receive() -> Message:
            if messages:
                return messages.pop()
            await asyncio.get_running_loop().create_future()  # a program that leaves cancels the task
            raise AssertionError

        scope = _write_scope(request, request_id)
        task = asyncio.create_task(self._serve_request(scope, receive, answer.receive_message, state))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        answer.follow(task)
        try:
            await answer.wait_for_start()
        except BaseException:
            await answer.close()
            raise
        finally:
            if task.done():
                self._reports.pop(request_id, None)
        return answer

    async def _serve_request(self, scope: Scope, receive: Receive, send: Send, call: CallState) -> None:
        try:
            await self._gateway(scope, receive, send)
        finally:
            if call.closing:  # whoever gives an answer up can rely on it that its provider was told
                await asyncio.wait(call.closing)

    def _note_ended(self, records: Sequence[ExchangeRecord]) -> None:
        for record in records:
            losses = tuple(loss for ledger in record.answer.ledgers if ledger is not None for loss in ledger.losses)
            report = self._reports.pop(record.request_id, None)
            if report is not None:
                report.losses = losses
            if self._keep_exchange is not None:
                self._keep_exchange(record)

    async def close(self) -> None:
        """Answers that are not read to their end are given up."""
        running = tuple(self._running)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        await self._gateway.close(force=True)


def _write_scope(request: ProgramRequest, request_id: str) -> Scope:
    path, _, query = request.target.partition(b"?")
    kept = [(name.lower(), value) for name, value in request.headers if name.lower() not in _OWN_HEADERS]
    own = [(b"host", b"127.0.0.1"), (REQUEST_ID_HEADER.encode(), request_id.encode())]
    return {
        "type": "http",
        "method": request.method,
        "path": path.decode("latin-1"),
        "raw_path": path,
        "query_string": query,
        "headers": [*own, *kept],
        "client": ("127.0.0.1", 0),
    }


def _write_nothing(line: str) -> None:
    """A program has its own log."""


def _ignore_problems(lines: Sequence[ReportLine]) -> None:
    """They were reported when the client was made."""
