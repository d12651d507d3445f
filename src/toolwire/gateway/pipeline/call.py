"""What the head of a request says, worked out once for all requests with the same head on one connection."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, Protocol, TypeAlias, final

from msgspec import Struct

from toolwire.core.codec import Codec, EndpointMatch
from toolwire.core.ir import Call as ToolCall
from toolwire.core.ir import Failure, Result, Tool, Usage
from toolwire.core.json_values import Json, Object
from toolwire.core.losses import Ledger
from toolwire.gateway.pipeline.runtime import Headers, Runtime, Upstream
from toolwire.gateway.server.access import Caller
from toolwire.gateway.server.request_body import Peek, declares_tools
from toolwire.gateway.telemetry.record import ExchangeRecord
from toolwire.gateway.upstream.connection import ChunkSink
from toolwire.gateway.upstream.errors import TransportError
from toolwire.translation.exchange import Exchange
from toolwire.translation.tool_rounds import Rounds

UpstreamHeaders: TypeAlias = dict[Upstream, tuple[Headers, Headers]]


class ResolvedHead(Struct, frozen=True, eq=False):
    """It holds under one configuration only: under another one all is worked out anew."""

    codec: Codec
    endpoint: EndpointMatch | None
    """None for all but the endpoints of a protocol."""
    caller: Caller | Failure
    """Who asks, or why nobody is let in with such a head."""
    key_name: str
    """The name of the client's key."""
    request_id: str
    """The client's own id of the request, if it is one that can be kept."""
    upstream_headers: UpstreamHeaders
    """What providers got to see of it, by line: headers that the body called for, and with them all."""


ResolvedHeads: TypeAlias = dict[Runtime, ResolvedHead]
"""What is known of a head, under the configuration in force."""


class ResponseTap(Protocol):
    """Reads the client's stream on its way out, and holds its last event back until the response is stored."""

    response: Object | None
    """The whole response, once its last event has come."""

    def feed(self, data: bytes) -> bytes: ...

    def close(self) -> bytes: ...

    def release(self, changes: Mapping[str, Json]) -> bytes: ...


class ResponseRecorder(Protocol):
    """Stores the answer to a request, so that later requests can refer to it."""

    def open_tap(self) -> ResponseTap: ...

    async def save_response(self, response: Object) -> Mapping[str, Json] | None: ...

    async def save_reply(self, reply: Reply) -> Reply: ...


class SignatureStore(Protocol):
    """Whoever keeps seals for a client that cannot carry them."""

    has_failed: bool

    async def load_signatures(self, ids: Sequence[str]) -> Mapping[str, bytes] | Failure: ...

    async def save_signatures(self, signatures: Mapping[str, bytes]) -> None: ...


class GatewayTools(Protocol):
    """Whoever has tools for the model besides the client's."""

    tools: tuple[Tool, ...]
    substitutes: Mapping[str, Tool]
    """Those that stand in for a provider's own tools, by what they stand in for."""
    max_rounds: int
    """How often in one answer they may be called."""

    def call_visibility(self, name: str) -> str:
        """Does the client see calls of this tool? "hidden": no."""

    async def run_calls(self, calls: Sequence[ToolCall]) -> Sequence[Result]:
        """One result for each call. A tool that fails has one that says so."""


class GatewayCall(Struct, eq=False):
    """What a client asks for."""

    runtime: Runtime
    client_codec: Codec
    caller: Caller
    record: ExchangeRecord
    headers: Mapping[str, str]
    """The client's headers, in lower case."""
    clock: Callable[[], float]
    """The event loop's."""
    upstream_headers: UpstreamHeaders
    """What providers got to see of the headers."""
    now: float
    body: bytes = b""
    peek: Peek = Peek()
    model: str = ""
    stream: bool = False
    framing: str = ""
    id_seed: str = ""
    """What ids of its answer are made from; "" for its request id."""
    recorder: ResponseRecorder | None = None
    """Keeps its answer, where that is wanted."""
    signature_store: SignatureStore | None = None
    """Keeps the seals that the client's protocol has no slot for, and what happened behind its back."""
    gateway_tools: GatewayTools | None = None
    """Has further tools for the model."""
    strip_seals: bool = False
    """Has a provider refused a seal in it?"""
    model_output_limit: int | None = None
    """The most that the model at hand can give, where its provider has said so."""
    expect_hidden_calls: bool = False
    """May earlier answers have calls that the client did not see?"""

    def has_tools(self) -> bool:
        """Does it declare tools?"""
        return declares_tools(self.peek, self.body)


class Reply(Struct, frozen=True):
    """A whole answer for the client."""

    status: int
    headers: Mapping[str, str]
    body: bytes


@final
class AttemptFailed(Struct, frozen=True):
    """A provider that gave no answer: why, what the client would be told, and whether to try on."""

    failure: Failure
    reply: Reply
    can_retry: bool = False
    """May the same provider do better in a moment?"""
    can_fall_back: bool = False
    """May another provider do better?"""


class UpstreamResponse(Protocol):
    """An answer as it comes in: from a provider, or from the embedded model."""

    status: int
    headers: dict[str, str]

    async def read(self, limit: int) -> bytes | TransportError: ...

    async def wait_for_data(self, seconds: float) -> bool: ...

    async def read_chunk(self) -> bytes | TransportError: ...

    async def pour_into(self, sink: ChunkSink) -> bytes | TransportError | None: ...

    def abort(self) -> None: ...


class AnswerStream(Protocol):
    """A stream on its way to the client, translated or passing."""

    @property
    def usage(self) -> Usage | None: ...

    @property
    def finishes(self) -> tuple[str, ...]: ...

    @property
    def failure(self) -> Failure | None: ...

    @property
    def has_content(self) -> bool: ...

    @property
    def ended(self) -> bool: ...

    @property
    def has_complete_call(self) -> bool: ...

    rounds: Rounds | None

    @property
    def memory_records(self) -> Mapping[str, bytes]: ...

    @property
    def is_paused(self) -> bool: ...

    @property
    def ledger(self) -> Ledger | None: ...

    def feed(self, data: bytes) -> bytes: ...

    def close(self) -> bytes: ...

    def fail(self, failure: Failure) -> bytes: ...

    def keep_pending_results(self, results: tuple[Result, ...]) -> None: ...


@final
class TranslatedRequest(Struct, eq=False):
    """A request as a provider gets it, translated."""

    upstream: Upstream
    body: bytes
    exchange: Exchange
    ledger: Ledger | None
    loss_codes: tuple[str, ...]
    """What its translation lost or changed."""
    is_passthrough: ClassVar[bool] = False
    """Are these the client's own bytes, whose answer passes, too?"""


@final
class PassthroughRequest(Struct, eq=False):
    """The same where nothing needs translating."""

    upstream: Upstream
    body: bytes
    call: GatewayCall
    make_exchange: Callable[[GatewayCall, Upstream], Exchange]
    cached_exchange: Exchange | None = None
    is_passthrough: ClassVar[bool] = True
    ledger: ClassVar[Ledger | None] = None
    loss_codes: ClassVar[tuple[str, ...]] = ()

    @property
    def exchange(self) -> Exchange:
        """Made only when needed: mostly the answer is no other than was thought."""
        if self.cached_exchange is None:
            self.cached_exchange = self.make_exchange(self.call, self.upstream)
        return self.cached_exchange


PreparedRequest: TypeAlias = TranslatedRequest | PassthroughRequest


class StartedStream:
    """A stream that has begun: what came so far, and where the rest comes from."""

    __slots__ = ("headers", "pending_output", "request", "response", "response_ended", "stream")

    def __init__(
        self, request: PreparedRequest, response: UpstreamResponse, stream: AnswerStream, headers: Mapping[str, str]
    ) -> None:
        self.request = request
        self.response = response
        self.stream = stream
        self.headers = headers
        self.pending_output: list[bytes] = []
        self.response_ended = False
