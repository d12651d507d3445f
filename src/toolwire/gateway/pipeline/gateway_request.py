"""The values that the steps of the pipeline hand to each other: the client's request, the
prepared request for a provider, and the answer."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from typing import TYPE_CHECKING, ClassVar, Protocol, TypeAlias, final

from msgspec import Struct

from toolwire.core.codec import Codec, EndpointMatch
from toolwire.core.ir import Failure, Result, Usage
from toolwire.core.json_values import Json, Object
from toolwire.core.losses import Ledger
from toolwire.gateway.pipeline.headers import Headers
from toolwire.gateway.pipeline.runtime import Runtime, Upstream
from toolwire.gateway.server.access import Caller
from toolwire.gateway.server.request_body import Peek, declares_tools, peek_body
from toolwire.gateway.telemetry.record import ExchangeRecord
from toolwire.gateway.upstream.connection import ChunkSink, TransportError
from toolwire.translation.exchange import Exchange
from toolwire.translation.tool_rounds import Rounds

if TYPE_CHECKING:
    from toolwire.gateway.mcp.servers import ToolInterceptor
    from toolwire.gateway.store.repository import ExchangeSignatures

UpstreamHeaders: TypeAlias = dict[Upstream, tuple[Headers, Headers]]


class ResolvedHead(Struct, frozen=True, eq=False):
    """What the head of a request says under one configuration. Equal heads on one connection share it."""

    codec: Codec
    endpoint: EndpointMatch | None
    """None for a path that is not an endpoint of a protocol."""
    caller: Caller | Failure
    """The client, or why it is refused."""
    key_name: str
    """The name of the client's key."""
    request_id: str
    """The client's own id of the request, if it sent a usable one."""
    upstream_headers: UpstreamHeaders
    """The headers that upstreams got for it: those that depend on the body, and all."""


ResolvedHeads: TypeAlias = dict[Runtime, ResolvedHead]
"""A resolved head, under the current configuration."""


class ResponseTap(Protocol):
    """Reads the client's stream on its way out, and holds its last event back until the response is stored."""

    response: Object | None
    """The whole response, once its last event has come."""

    def feed(self, data: bytes) -> bytes: ...

    def close(self) -> bytes: ...

    def release(self, changes: Mapping[str, Json]) -> bytes: ...


class ResponseRecorder(Protocol):
    """Stores an answer, so that a later request can refer to it (Responses API)."""

    def open_tap(self) -> ResponseTap: ...

    async def save_response(self, response: Object) -> Mapping[str, Json] | None: ...

    async def save_reply(self, reply: Reply) -> Reply: ...


class GatewayRequest(Struct, eq=False):
    """A client's HTTP request, as all steps of the pipeline see it. Variables of this type are called `call`, because
    `request` is the request in the internal form or on the connection."""

    runtime: Runtime
    client_codec: Codec
    caller: Caller
    record: ExchangeRecord
    headers: Mapping[str, str]
    """The client's headers, in lower case."""
    clock: Callable[[], float]
    """The event loop's."""
    upstream_headers: UpstreamHeaders
    """The headers that upstreams got for such a head."""
    now: float
    """Unix time of the start."""
    body: bytes = b""
    peek: Peek = Peek()
    model: str = ""
    stream: bool = False
    framing: str = ""
    id_seed: str = ""
    """The seed for ids in its answer; "" for its request id."""
    recorder: ResponseRecorder | None = None
    """Stores its answer, where the client wants that."""
    signature_store: ExchangeSignatures | None = None
    """Stores the seals for which the client's protocol has no slot, and tool calls that the client does not see."""
    gateway_tools: ToolInterceptor | None = None
    """Tools of MCP servers, which the gateway runs itself."""
    strip_seals: bool = False
    """Leave the seals out: the provider has refused one."""
    model_output_limit: int | None = None
    """The most output tokens that the model can give, where its provider has said so."""
    expect_hidden_calls: bool = False
    """Earlier answers may have had tool calls that the client did not see."""

    def load_body(self, body: bytes) -> bool:
        """Take this body in place of the client's; False if it cannot be read."""
        peek = peek_body(body)
        if peek is None:
            return False
        self.body, self.peek = body, peek
        self.model, self.stream = peek.model, bool(peek.stream)
        self.record.requested_model = self.model
        return True

    def has_tools(self) -> bool:
        """Does it declare tools?"""
        return declares_tools(self.peek, self.body)


@final
class Reply(Struct, frozen=True):
    """The HTTP reply to the client: a whole answer, or an error."""

    status: int
    headers: Mapping[str, str]
    body: bytes


@final
class AttemptFailed(Struct, frozen=True):
    """An attempt without an answer: why, what the client gets if it is the last one, and whether to go on."""

    failure: Failure
    reply: Reply
    can_retry: bool = False
    """The same provider may answer in a moment."""
    can_fall_back: bool = False
    """Another provider may answer."""


class UpstreamResponse(Protocol):
    """A response as it comes in, from a provider or the embedded model."""

    status: int
    headers: dict[str, str]

    async def read(self, limit: int) -> bytes | TransportError: ...

    async def wait_for_data(self, seconds: float) -> bool: ...

    async def read_chunk(self) -> bytes | TransportError: ...

    async def pour_into(self, sink: ChunkSink) -> bytes | TransportError | None: ...

    def abort(self) -> None: ...


class AnswerStream(Protocol):
    """A stream on its way to the client, translated or passed through."""

    @property
    def usage(self) -> Usage | None: ...

    @property
    def finishes(self) -> tuple[str, ...]: ...

    @property
    def failure(self) -> Failure | None: ...

    @property
    def has_content(self) -> bool: ...

    @property
    def has_complete_call(self) -> bool: ...

    rounds: Rounds | None

    @property
    def memory_records(self) -> Mapping[str, bytes]: ...

    @property
    def needs_next_round(self) -> bool: ...

    @property
    def ledger(self) -> Ledger | None: ...

    def feed(self, data: bytes) -> bytes: ...

    def close(self) -> bytes: ...

    def fail(self, failure: Failure) -> bytes: ...

    def keep_pending_results(self, results: tuple[Result, ...]) -> None: ...


@final
class TranslatedRequest(Struct, eq=False):
    """A request as a provider gets it, with the translation that its response needs."""

    upstream: Upstream
    body: bytes
    exchange: Exchange
    ledger: Ledger | None
    loss_codes: tuple[str, ...]
    """Codes of what its translation lost or changed."""
    is_passthrough: ClassVar[bool] = False
    """The client's own bytes, and the response passes through, too."""


@final
class PassthroughRequest(Struct, eq=False):
    """A request that needs no translation."""

    upstream: Upstream
    body: bytes
    call: GatewayRequest
    make_exchange: Callable[[GatewayRequest, Upstream], Exchange]
    cached_exchange: Exchange | None = None
    is_passthrough: ClassVar[bool] = True
    ledger: ClassVar[Ledger | None] = None
    loss_codes: ClassVar[tuple[str, ...]] = ()

    @property
    def exchange(self) -> Exchange:
        """Needed only for errors, and for a response that is a stream where none was asked for, or the other way."""
        if self.cached_exchange is None:
            self.cached_exchange = self.make_exchange(self.call, self.upstream)
        return self.cached_exchange


PreparedRequest: TypeAlias = TranslatedRequest | PassthroughRequest


class StartedStream:
    """A stream that has begun: the output so far, and the response that the rest comes from."""

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


class StreamReplay(Struct, frozen=True):
    """The stream of a response that is stored, or made in the background."""

    frames: AsyncIterator[bytes]


class StreamInterrupted(Exception):
    """A replayed stream cannot go on now. Its reader must see that it is incomplete, and may come back."""
