"""The record of one request, which log, metrics and traces read; and a copy of its traffic, for the console and the
debug log."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from functools import partial
from typing import Protocol

import msgspec

from toolwire.core.ir import EMPTY_MAPPING, Call, Result, Usage
from toolwire.core.losses import Ledger
from toolwire.gateway.http.connection import TransportError
from toolwire.gateway.http.messages import UpstreamResponse
from toolwire.gateway.http.redact import hide_secrets
from toolwire.gateway.models.amounts import add_known
from toolwire.gateway.settings.address import Address

MAX_CAPTURED = 8 * 1024 * 1024
"""The largest body in bytes that is captured."""
PIECE_SIZE = 120
"""Bytes that Python needs for a captured piece, besides its data."""


class CaptureBudget(Protocol):
    """The memory for captured traffic."""

    def take(self, size: int) -> bool:
        """Reserve bytes. False if there are none left: then no more is captured."""


class CapturedBytes(msgspec.Struct, gc=False, eq=False, array_like=True):
    """A body as it came, whole or in pieces; cut if it is too long."""

    pieces: list[bytes] = []
    times: list[float] = []
    """When each piece of a stream came; a whole body has none."""
    dropped: int = 0
    """Bytes that came and are not kept."""
    is_cut: bool = False
    reserved: int = 0
    """Bytes of the budget that a stream has taken. A whole body is in memory anyway while its request runs: it counts
    when that has ended."""
    free: int = 0
    """How many of these are left."""

    @property
    def size(self) -> int:
        """Of the whole body, also if it is cut. Added up when somebody looks: a stream has many pieces."""
        return self.dropped + sum(map(len, self.pieces))

    def add(self, data: bytes, time: float, budget: CaptureBudget) -> None:
        """One more piece of a stream."""
        self.copy_writes(bool, lambda: time, budget)(data)

    def _reserve_more(self, data: bytes, budget: CaptureBudget) -> bool:
        size, count = self.size + len(data), len(self.pieces) + 1
        more = 2 * (size + PIECE_SIZE * count) - self.reserved  # seldom, though a stream has many pieces
        if self.is_cut or size > MAX_CAPTURED or not budget.take(more):
            self.is_cut = True
        else:
            self.reserved += more
            self.free = self.reserved - size - PIECE_SIZE * count
        if self.is_cut:  # taking it may have removed this very exchange
            self.dropped += len(data)
            self.free = 0
        return not self.is_cut

    def add_whole(self, data: bytes) -> None:
        """A whole body, or the rest of one."""
        if self.is_cut or len(data) > MAX_CAPTURED or (self.pieces and self.size + len(data) > MAX_CAPTURED):
            self.is_cut = True
            self.dropped += len(data)
        else:
            self.pieces.append(data)

    def copy_writes(
        self, write: Callable[[bytes], bool], clock: Callable[[], float], budget: CaptureBudget
    ) -> Callable[[bytes], bool]:
        """Writes each piece of a stream, and keeps it here as long as the budget allows."""
        add_piece, add_time = self.pieces.append, self.times.append

        def write_and_copy(data: bytes) -> bool:
            self.free = free = self.free - len(data) - PIECE_SIZE
            if free >= 0 or self._reserve_more(data, budget):
                add_piece(data)
                add_time(clock())
            return write(data)

        return write_and_copy

    def copy_before(self, last: Sequence[bytes]) -> CapturedBytes:
        """The same pieces, without the last if they are these. They take no more memory, so nothing is reserved."""
        count = len(self.pieces)
        for piece in reversed(last):
            count -= bool(count) and self.pieces[count - 1] is piece
        return CapturedBytes(self.pieces[:count], self.times[:count], self.dropped, self.is_cut)

    @property
    def data(self) -> bytes:
        return b"".join(self.pieces)

    def discard(self) -> int:
        """Forget the data, and capture no more. Returns the bytes that were reserved for it."""
        released, self.reserved = self.reserved, 0
        self.is_cut, self.free = True, 0
        self.dropped = self.size
        self.pieces.clear()
        self.times.clear()
        return released


class CapturedResponse(msgspec.Struct, eq=False):
    """A provider's answer that is captured while it is read."""

    status: int
    headers: dict[str, str]
    _source: UpstreamResponse
    _captured: UpstreamCapture
    _clock: Callable[[], float]
    _budget: CaptureBudget

    async def read(self, limit: int) -> bytes | TransportError:
        data = await self._source.read(limit)
        captured = self._captured
        captured.ended = self._clock()
        if type(data) is TransportError:
            captured.error = data.detail
        else:
            captured.response.add_whole(data)
        return data

    async def wait_for_data(self, seconds: float) -> bool:
        return await self._source.wait_for_data(seconds)

    async def read_chunk(self) -> bytes | TransportError:
        return self._capture_chunk(await self._source.read_chunk())

    async def pour_into(self, sink: Callable[[bytes], bool]) -> bytes | TransportError | None:
        rest = await self._source.pour_into(self._captured.response.copy_writes(sink, self._clock, self._budget))
        if rest is not None:
            self._capture_chunk(rest)
            self._captured.end(self._clock())
        return rest

    def abort(self) -> None:
        self._captured.end(self._clock())
        self._source.abort()

    def _capture_chunk(self, data: bytes | TransportError) -> bytes | TransportError:
        captured, time = self._captured, self._clock()
        if type(data) is TransportError:
            captured.error = data.detail
        else:
            captured.response.add(data, time, self._budget)
        if not data:
            captured.end(time)
        return data


class UpstreamCapture(msgspec.Struct, gc=False, eq=False, array_like=True):
    """One request to a provider and its answer. Times are of the caller's monotonic clock, 0 for never."""

    protocol: str
    provider: str
    address: Address | None
    """None for the model inside of the gateway."""
    path: str
    body: bytes
    started: float
    renamed_tools: Mapping[str, str]
    """The client's name of each tool that the provider knows by another name."""
    sent_headers: Sequence[tuple[str, str]] = ()
    """Without those that belong to the connection."""
    response: CapturedBytes = msgspec.field(default_factory=CapturedBytes)
    head_received: float = 0.0
    ended: float = 0.0
    status: int = 0
    headers: Mapping[str, str] = EMPTY_MAPPING
    """The provider's response headers."""
    error: str = ""
    """Why there is no answer, or no whole one."""

    @property
    def url(self) -> str:
        """What was called, with the path of the base URL."""
        address = self.address
        if address is None:
            return self.path
        return f"{address.scheme}://{address.authority}{address.request_target(self.path)}"

    def end(self, time: float) -> None:
        self.ended = self.ended or time

    def capture_response(
        self, source: UpstreamResponse | TransportError, clock: Callable[[], float], budget: CaptureBudget
    ) -> CapturedResponse | TransportError:
        self.head_received = clock()
        if type(source) is TransportError:  # `isinstance` is slow for a Struct that is not one
            self.error, self.ended = source.detail, self.head_received
            return source
        self.status, self.headers = source.status, source.headers
        return CapturedResponse(source.status, source.headers, source, self, clock, budget)


class ExchangeCapture(msgspec.Struct, gc=False, eq=False, array_like=True):
    """The traffic of one request, with the client and with providers."""

    client_request: bytes
    names_session: bool = False
    """Does a header of the client name its session?"""
    client_headers: Mapping[str, str] = EMPTY_MAPPING
    """Those of its request, with its credentials: they stay in memory, and are hidden from whoever looks."""
    reply_headers: Sequence[Mapping[str, str]] = ()
    """Those that the client got, in several parts."""
    client_response: CapturedBytes = msgspec.field(default_factory=CapturedBytes)
    upstream_calls: list[UpstreamCapture] = []
    counted: int = 0
    """Bytes of the budget that it takes since it has ended."""

    def copy_for(self, client_request: bytes) -> ExchangeCapture:
        """For a request that goes on in the background."""
        return ExchangeCapture(client_request, self.names_session, self.client_headers)

    @property
    def reserved_bytes(self) -> int:
        """Bytes of the budget that its streams have taken."""
        client = self.client_response
        reserved = client.reserved
        for call in self.upstream_calls:
            if call.response is not client:  # see `PassedAnswer`
                reserved += call.response.reserved
        return reserved

    def count_bytes(self) -> int:
        """The bytes that it takes, now that it has ended; those that were reserved for its streams are included."""
        if len(self.client_request) > MAX_CAPTURED:
            self.client_request = b""
        self.counted = len(self.client_request)
        for call in self.upstream_calls:
            if len(call.body) > MAX_CAPTURED:
                call.body = b""
            self.counted += len(call.body)
        answers = {id(one): one for one in (self.client_response, *(call.response for call in self.upstream_calls))}
        self.counted += sum(one.size + PIECE_SIZE * len(one.pieces) for one in answers.values())
        return self.counted

    def discard(self) -> int:
        """Forget the traffic, and capture no more of it. Returns the bytes that were reserved for it."""
        self.client_request = b""
        released = self.client_response.discard()
        for call in self.upstream_calls:
            released += call.response.discard()
            call.body = b""
        return released


class PassedAnswer:
    """A stream that the client gets as its provider sends it: captured once, until something else is written."""

    __slots__ = ("_budget", "_capture", "_clock", "_write", "pass_on")

    def __init__(
        self,
        capture: ExchangeCapture,
        write: Callable[[bytes], bool],
        clock: Callable[[], float],
        budget: CaptureBudget,
    ) -> None:
        self._capture, self._write, self._clock, self._budget = capture, write, clock, budget
        self.pass_on = write
        """Write what is captured as the provider's answer."""
        capture.client_response = capture.upstream_calls[-1].response

    def write(self, data: bytes) -> bool:
        """Write something else."""
        if data:
            self.stop_sharing()
        return self.pass_on(data)

    def stop_sharing(self, *pieces: bytes) -> None:
        """From now on the client's stream is captured by itself: it does not get these last pieces as the provider sent
        them."""
        if self.pass_on is self._write:
            own = self._capture.client_response = self._capture.client_response.copy_before(pieces)
            self.pass_on = own.copy_writes(self._write, self._clock, self._budget)


SUBAGENT_HEADERS = (
    "x-claude-code-agent-id",  # Claude Code: the id of the sub-agent
    "x-openai-subagent",  # Codex: what it is for, such as `review` or `compact`
)
"""Headers that agents send with the requests of their sub-agents (recorded traffic, November 2026)."""


def find_subagent(headers: Mapping[str, str]) -> str:
    if headers.keys().isdisjoint(SUBAGENT_HEADERS):
        return ""
    return next(headers[name] for name in SUBAGENT_HEADERS if name in headers)


class CallUsage(msgspec.Struct, gc=False, eq=False, array_like=True):
    """What one call of a provider has used. An exchange may have several: retries, fallbacks, rounds of tool calls."""

    provider: str
    model: str
    account: str = ""
    """Which of the provider's accounts was asked, if it has several."""
    usage: Usage | None = None
    """None if it is unknown: the provider did not say, or the answer was not read to its end."""
    is_estimated: bool = False
    """Was a part of it estimated? So it is for a stream that was cut, and for one without usage."""
    cost: Decimal | None = None
    """In USD, by our prices; None if it is unknown."""
    reported_cost: Decimal | None = None
    """In USD, as the provider says it itself (OpenRouter); None if it does not."""
    least: Usage | None = None
    """What the sent body and the visible answer make. Set only if limits count, and the provider does not say what can
    be true: no usage, or none of its input or output."""
    row_id: str = ""
    """The id of its row in the ledger; "" without one."""


class CacheReport(msgspec.Struct, gc=False, eq=False, array_like=True):
    """What the provider's prompt cache gave for an exchange, in tokens."""

    expected: int
    """The tokens of the prompt before in the same session: with an unchanged prefix they can be read."""
    read: int
    written: int
    missed: int = 0
    """Expected tokens that were not read."""
    cause: str = ""
    """Why they were not read, one of `cache_prefix.CacheCause`; "" if they were."""
    reason: str = ""
    """The same as a sentence, if the prefix broke."""
    place: str = ""
    """The first place that differs, as a JSON Pointer into the request to the provider; "" if the prefix is the
    same."""
    excerpt: str = ""
    """The text there, not cleaned of secrets."""
    cost: Decimal | None = None
    """What the missed tokens cost more than if they had been read, in USD; None if it is not known."""


class Client(msgspec.Struct, frozen=True, cache_hash=True, gc=False, array_like=True, kw_only=True):
    """Who asks. Equal heads on one connection share it."""

    address: str = ""
    method: str = ""
    path: str = ""
    """As received, without the client's keys; the query is removed before it is logged."""
    key_name: str = ""
    """The name of the client's key, never the key itself."""
    team: str = ""
    user_agent: str = ""
    """As received, without the client's keys; the log shows its first product."""
    agent: str = ""
    """The agent that the user agent names, or else its first product."""
    subagent: str = ""
    """The sub-agent that asks, where the agent says it."""
    protocol: str = ""
    secrets: tuple[str, ...] = ()
    """The keys that the client has sent: nothing that operators see may show them."""


class Asked(msgspec.Struct, gc=False, eq=False, array_like=True):
    operation: str = "chat"
    """chat, count_tokens, models, metrics, responses_state, background, describe_image or passthrough. Only chat has
    times and tokens in the metrics."""
    model: str = ""
    """As the client names it."""
    stream: bool = False
    session: str = ""
    """The conversation that the request is a turn of, as a digest (`exchange/session.py`)."""


REFUSED_HERE = "refused_here"
NOT_ASKED_OUTCOMES = frozenset({REFUSED_HERE, "provider_key_missing"})
"""Outcomes of attempts in which the gateway itself refused the request, and the provider was not asked."""


class UpstreamNames(msgspec.Struct, frozen=True, cache_hash=True, gc=False, array_like=True):
    """Who was asked last. The requests to one upstream share it."""

    provider: str = ""
    account: str = ""
    """Which of the provider's accounts, if it has several."""
    protocol: str = ""
    model: str = ""
    """As the provider names it."""
    address: str = ""
    """`host:port`; "" if nothing was sent to it."""


class Answer(msgspec.Struct, gc=False, eq=False, array_like=True):
    model: str = ""
    """As the answer names it."""
    request_id: str = ""
    """The provider's id of the request."""
    usage: Usage | None = None
    """Of the answer that the client got, with all of its rounds."""
    is_estimated: bool = False
    """Was the usage estimated, not counted by the provider?"""
    finish_reasons: tuple[str, ...] = ()
    losses: tuple[str, ...] = ()
    """Codes."""
    ledgers: tuple[Ledger | None, ...] = ()
    """The losses in full; formatted only when they are logged."""
    tool_calls: tuple[tuple[str, str], ...] = ()
    """The tools that the answer calls: the client's name of each, and the provider's."""
    tool_runs: tuple[tuple[str, str], ...] = ()
    """Tool calls that the gateway ran itself, and their outcomes."""

    def add_tool_runs(self, calls: Sequence[Call], results: Sequence[Result]) -> None:
        pairs = zip(calls, results, strict=True)
        self.tool_runs += tuple((call.name, "error" if result.error else "ok") for call, result in pairs)

    def set_tool_calls(self, names: Sequence[str], client_name: Callable[[str], str]) -> None:
        self.tool_calls = tuple(zip(map(client_name, names), names, strict=True))

    def add_losses(self, codes: tuple[str, ...], *ledgers: Ledger | None) -> None:
        if codes:
            self.losses, self.ledgers = codes, ledgers


class CostSum(msgspec.Struct, frozen=True, gc=False):
    """What the calls of one exchange cost together, in USD."""

    total: Decimal | None
    """None if no cost is known. Calls with an unknown cost are left out."""
    reported: Decimal | None
    """What the providers say themselves; None if none says it."""
    unpriced: int
    """Calls whose cost is unknown."""


class Costs(msgspec.Struct, gc=False, eq=False, array_like=True):
    """What the calls of providers have used and cost; `Telemetry` writes it."""

    calls: tuple[CallUsage, ...] = ()
    """Also those whose answers the client did not get."""
    is_priced: bool = False
    """Were prices looked up for them?"""

    def add_up(self) -> CostSum:
        calls = self.calls
        if len(calls) == 1:
            cost, reported = calls[0].cost, calls[0].reported_cost
            return CostSum(cost, reported, 1 if cost is None else 0)
        costs = [call.cost for call in calls]
        return CostSum(add_known(costs), add_known([call.reported_cost for call in calls]), costs.count(None))


class Traffic(msgspec.Struct, gc=False, eq=False, array_like=True):
    """How much was sent and received; and the text of it, only where the operator asks for that."""

    bytes_in: int = 0
    bytes_out: int = 0
    request_body: bytes = b""
    """The bodies are set only if `Sinks.wants_bodies`."""
    response_body: bytes = b""
    capture: ExchangeCapture | None = None
    """Set only if `Sinks.wants_capture`."""


class ExchangeRecord(msgspec.Struct, kw_only=True, gc=False, eq=False, array_like=True):
    """What is known of one exchange, filled in while it runs; what it holds meanwhile is in `RunningExchange`. Times
    are of the caller's monotonic clock, except for `started_at`. Contains no header, and no key except in
    `client.secrets` and what was captured."""

    request_id: str
    started: float
    started_at: float
    """Unix time."""
    client: Client = Client()
    asked: Asked = msgspec.field(default_factory=Asked)
    upstream: UpstreamNames = UpstreamNames()
    attempts: list[tuple[str, str, float]] = []
    """Provider, outcome ("ok", a status, the kind of a transport error, or of `NOT_ASKED_OUTCOMES`), and seconds."""
    is_passthrough: bool = False
    """Were the bytes forwarded without translation?"""
    status: int = 0
    """The status that the client got; 0 for none."""
    failure: str = ""
    """The kind of failure, one of `ir.FAILURES`, also if it happened in the middle of a stream."""
    message: str = ""
    """The sentence about it that the client got."""
    client_disconnected: bool = False
    first_byte: float = 0.0
    """When the first byte of the answer was sent to the client; 0 for never."""
    ended: float = 0.0
    answer: Answer = msgspec.field(default_factory=Answer)
    costs: Costs = msgspec.field(default_factory=Costs)
    cache: CacheReport | None = None
    """None if there was no turn before, or nothing is known of a cache."""
    traffic: Traffic = msgspec.field(default_factory=Traffic)
    number: int = 0
    """Its number among the recent exchanges of the process; 0 if it is not kept."""

    def hide_secrets(self) -> None:
        """Remove the client's keys from the texts of the record, before anybody sees them. What was captured is cleaned
        where it is shown."""
        asked, answer, model = self.asked, self.answer, self.upstream.model
        texts = f"{asked.model}\n{model}\n{self.message}\n{answer.tool_calls}"
        secrets = self.client.secrets
        if hide_secrets(texts, secrets) == texts:
            return
        hide = partial(hide_secrets, secrets=secrets)
        asked.model = hide(asked.model)
        self.upstream = msgspec.structs.replace(self.upstream, model=hide(model))
        self.message = hide(self.message)
        answer.tool_calls = tuple((hide(client), hide(provider)) for client, provider in answer.tool_calls)
        for call in self.costs.calls:
            call.model = hide(call.model)

    def make_related(self, operation: str, started: float, started_at: float) -> ExchangeRecord:
        """The record of another exchange that belongs to the same request of the client."""
        return ExchangeRecord(
            request_id=self.request_id,
            started=started,
            started_at=started_at,
            client=self.client,
            asked=Asked(operation, session=self.asked.session),
        )

    def __repr__(self) -> str:
        """Without bodies, and without the path, whose query may contain a key."""
        upstream = self.upstream
        return f"ExchangeRecord({self.request_id!r}, {upstream.provider!r}, {upstream.model!r}, {self.status})"
