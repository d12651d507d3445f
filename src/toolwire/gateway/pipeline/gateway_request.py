"""The values that the steps of the pipeline hand to each other: the client's request, the prepared request for a
provider, and the answer."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from typing import TYPE_CHECKING, ClassVar, TypeAlias, final

from msgspec import Struct

from toolwire.core.codec import Codec, EndpointMatch
from toolwire.core.ir import Failure
from toolwire.core.losses import Ledger
from toolwire.gateway.loopback.model import LoopbackSource
from toolwire.gateway.pipeline.headers import Headers
from toolwire.gateway.pipeline.passthrough_stream import PassthroughStream
from toolwire.gateway.pipeline.runtime import Runtime, Upstream
from toolwire.gateway.server.access import Caller
from toolwire.gateway.server.request_body import Peek, declares_tools, peek_body
from toolwire.gateway.telemetry.record import CapturedResponse, ExchangeRecord
from toolwire.gateway.upstream.client import HttpResponse
from toolwire.translation.exchange import Exchange
from toolwire.translation.streaming import StreamTranslation

if TYPE_CHECKING:
    from toolwire.gateway.mcp.servers import ToolInterceptor
    from toolwire.gateway.responses_state.recorder import StatelessRecorder, StoringRecorder
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
    recorder: StoringRecorder | StatelessRecorder | None = None
    """Stores its answer, so that a later request can refer to it (Responses API)."""
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


UpstreamResponse: TypeAlias = HttpResponse | LoopbackSource | CapturedResponse
"""A response as it comes in, from a provider or the embedded model."""
AnswerStream: TypeAlias = StreamTranslation | PassthroughStream
"""A stream on its way to the client."""


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


class StartedStream(Struct, eq=False):
    """A stream that has begun: the output so far, and the response that the rest comes from."""

    request: PreparedRequest
    response: UpstreamResponse
    stream: AnswerStream
    headers: Mapping[str, str]
    pending_output: list[bytes] = []
    response_ended: bool = False


AttemptAnswer: TypeAlias = Reply | StartedStream | AttemptFailed
"""What one attempt, or several, came to."""


class StreamReplay(Struct, frozen=True):
    """The stream of a response that is stored, or made in the background."""

    frames: AsyncIterator[bytes]


class StreamInterrupted(Exception):
    """A replayed stream cannot go on now. Its reader must see that it is incomplete, and may come back."""
