"""Sends the requests of one provider, each with the credential that it has at that moment."""

from __future__ import annotations

import asyncio

from msgspec.structs import replace

from toolwire.gateway.features.cloud_credentials.authorizers import (
    Authorization,
    Authorizer,
    OutgoingRequest,
    Refusal,
    plain_headers,
)
from toolwire.gateway.features.cloud_credentials.leases import FETCH_SECONDS, CredentialProblem
from toolwire.gateway.http.client import HttpResponse
from toolwire.gateway.http.connection import ChunkSink, TransportError
from toolwire.gateway.http.messages import RequestSender, UpstreamRequest, UpstreamResponse
from toolwire.gateway.settings.config import Timeouts

MAX_REFUSAL = 1024 * 1024


class AuthorizedSender:
    """A `RequestSender` that authorizes what it sends. If the provider says that the credential has ended, the request
    is sent once more with another one, before anybody has seen an answer."""

    def __init__(self, client: RequestSender, authorizer: Authorizer, secrets: tuple[str, ...] = ()) -> None:
        """`secrets` are the provider's own, which no answer may repeat either."""
        self._client, self._authorizer, self._secrets = client, authorizer, secrets

    def set_timeouts(self, timeouts: Timeouts) -> None:
        self._client.set_timeouts(timeouts)

    async def send_request(self, request: UpstreamRequest) -> UpstreamResponse | TransportError:
        clock = asyncio.get_running_loop().time
        ends, address = clock() + request.max_seconds, request.address
        target = address.request_target(request.path)
        outgoing = OutgoingRequest(
            request.method, address.authority, target, plain_headers(request.headers), request.body
        )
        is_repeated = False
        while True:
            used = await self._authorizer.authorize(outgoing, min(FETCH_SECONDS, max(0.0, ends - clock())))
            if isinstance(used, CredentialProblem):
                return TransportError("no-credential", str(used))
            seconds = ends - clock()
            if seconds <= 0:
                return TransportError("first-byte-timeout", f"{self._authorizer.source} took all of its time")
            sent = replace(request, unique_headers=request.unique_headers + used.headers, max_seconds=seconds)
            response = await self._client.send_request(sent)
            if isinstance(response, TransportError):
                return response
            if is_repeated or not self._authorizer.may_renew(response.status):
                return self._hide_secrets(response, used)
            refused = await _read_refusal(self._hide_secrets(response, used))
            if isinstance(refused, TransportError):
                return refused
            if not self._authorizer.renew(used, Refusal(refused.status, refused.headers, refused.body)):
                return refused
            is_repeated = True

    def _hide_secrets(self, response: UpstreamResponse, used: Authorization) -> UpstreamResponse:
        if isinstance(response, HttpResponse):
            response.hide_keys((*used.secrets, *self._secrets))
        return response

    async def close(self) -> None:
        """The client is closed by whoever made it."""


async def _read_refusal(response: UpstreamResponse) -> ReadResponse | TransportError:
    """The whole answer: it says why."""
    data = await response.read(MAX_REFUSAL)
    return data if isinstance(data, TransportError) else ReadResponse(response.status, response.headers, data)


class ReadResponse:
    """An answer that was read already, with the interface of one that was not."""

    def __init__(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.status, self.headers, self.body = status, headers, body
        self._rest = body

    async def read(self, limit: int) -> bytes | TransportError:
        return self._take()

    async def wait_for_data(self, seconds: float) -> bool:
        return True

    async def read_chunk(self) -> bytes | TransportError:
        return self._take()

    async def pour_into(self, sink: ChunkSink) -> bytes | TransportError | None:
        data = self._take()
        if data:
            sink(data)
            return None
        return b""

    def abort(self) -> None:
        self._rest = b""

    def _take(self) -> bytes:
        data, self._rest = self._rest, b""
        return data
