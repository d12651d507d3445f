"""What sends the requests to each provider. Most have the gateway's client; one with credentials of a cloud has one
that authorizes requests. And where a cloud has envelopes of its own for a protocol (`core.codec.Carriage`), requests
are converted as they are sent, and streams as they come: everything above sees those of the protocol."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct
from msgspec.structs import replace

from toolwire.core.codec import AnswerDecoder, Carriage, CarriedRequest, Codec
from toolwire.gateway.http.answer_keys import AnswerKeys
from toolwire.gateway.http.client import HttpResponse
from toolwire.gateway.http.connection import ChunkSink, TransportError
from toolwire.gateway.http.messages import RequestSender, UpstreamRequest, UpstreamResponse
from toolwire.gateway.http.redact import make_key_filter
from toolwire.gateway.settings.config import Provider


class ProviderSenders(Struct, frozen=True, eq=False):
    client: RequestSender
    own: Mapping[Provider, RequestSender] = {}
    """Those of providers whose requests are authorized as they are sent."""

    def find(self, provider: Provider, codec: Codec) -> RequestSender:
        sender, carriage = self.own.get(provider, self.client), codec.http.carriage
        return sender if carriage is None else CarryingSender(sender, carriage)


async def send_idempotent(sender: RequestSender, request: UpstreamRequest) -> UpstreamResponse | TransportError:
    """Send a request that may arrive twice: once more if a connection that had been idle was closed without an
    answer."""
    response = await sender.send_request(request)
    is_stale = isinstance(response, TransportError) and response.kind == "stale-connection"
    return await sender.send_request(request) if is_stale else response


class CarryingSender:
    def __init__(self, sender: RequestSender, carriage: Carriage) -> None:
        self._sender, self._carriage = sender, carriage

    async def send_request(self, request: UpstreamRequest) -> UpstreamResponse | TransportError:
        carriage = self._carriage
        sent = carriage.write_request(CarriedRequest(request.path, request.headers, request.body))
        response = await self._sender.send_request(
            replace(request, path=sent.path, headers=sent.headers, body=sent.body)
        )
        if isinstance(response, TransportError) or carriage.make_stream_decoder is None:
            return response
        if not response.headers.get("content-type", "").startswith(carriage.stream_content_type):
            return response
        return DecodedResponse(response, carriage.make_stream_decoder())


class DecodedResponse:
    """A stream whose framing was converted to server-sent events. Keys are hidden in these: in the framing of a cloud
    they could be spelled in base64, and its checksums would be wrong without them."""

    def __init__(self, response: UpstreamResponse, decoder: AnswerDecoder) -> None:
        self._response, self._decoder = response, decoder
        self._hidden = response.take_answer_keys() if isinstance(response, HttpResponse) else None
        self._is_closed = False
        self.status = response.status
        self.headers = {**response.headers, "content-type": "text/event-stream"}

    def hide_keys(self, keys: tuple[str, ...]) -> None:
        """As that of `HttpResponse`."""
        known = make_key_filter(keys)
        if known is not None:
            self._hidden = AnswerKeys(known)
            self.headers = known.clean_headers(self.headers)

    async def read(self, limit: int) -> bytes | TransportError:
        data = await self._response.read(limit)
        return data if isinstance(data, TransportError) else self._decode(data) + self._close()

    async def wait_for_data(self, seconds: float) -> bool:
        return self._is_closed or await self._response.wait_for_data(seconds)

    async def read_chunk(self) -> bytes | TransportError:
        while not self._is_closed:
            data = await self._response.read_chunk()
            if isinstance(data, TransportError):  # the next one, if something waits
                return self._release() or data
            decoded = self._decode(data) if data else self._close()
            if decoded:
                return decoded
        return b""

    async def pour_into(self, sink: ChunkSink) -> bytes | TransportError | None:
        if self._is_closed:
            return b""

        def pour(data: bytes) -> bool:
            decoded = self._decode(data)
            return sink(decoded) if decoded else True

        end = await self._response.pour_into(pour)
        if end is not None and (decoded := self._close() if end == b"" else self._release()):
            sink(decoded)
        return end

    def _decode(self, data: bytes) -> bytes:
        decoded = self._decoder.feed(data)
        return decoded if self._hidden is None else self._hidden.feed(decoded)

    def _close(self) -> bytes:
        self._is_closed = True
        decoded = self._decoder.close()
        return decoded if self._hidden is None else self._hidden.feed(decoded) + self._hidden.close()

    def _release(self) -> bytes:
        return b"" if self._hidden is None else self._hidden.close()

    def abort(self) -> None:
        self._response.abort()
