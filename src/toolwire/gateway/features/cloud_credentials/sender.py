"""Sends the requests of one provider, each with the credential that it has at that moment."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

from msgspec.structs import replace

from toolwire.gateway.features.cloud_credentials.authorizers import (
    Authorizer,
    OutgoingRequest,
)
from toolwire.gateway.features.cloud_credentials.leases import FETCH_SECONDS, CredentialProblem
from toolwire.gateway.http.client import HttpResponse
from toolwire.gateway.http.connection import TransportError
from toolwire.gateway.http.messages import ReadyResponse, RequestSender, UpstreamRequest, UpstreamResponse

MAX_REFUSAL = 1024 * 1024


class AuthorizedSender:
    """A `RequestSender` that authorizes what it sends. If the provider says that the credential has ended, the request
    is sent once more with another one, before anybody has seen an answer."""

    def __init__(self, client: RequestSender, authorizer: Authorizer[Any], secrets: tuple[str, ...] = ()) -> None:
        """`secrets` are the provider's own, which no answer may repeat either."""
        self._client, self._authorizer, self._secrets = client, authorizer, secrets

    async def send_request(self, request: UpstreamRequest) -> UpstreamResponse | TransportError:
        clock = asyncio.get_running_loop().time
        ends, address = clock() + request.max_seconds, request.address
        target, headers = address.request_target(request.path), {name.lower(): text for name, text in request.headers}
        outgoing = OutgoingRequest(request.method, address.authority, target, headers, request.body)
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
            if isinstance(response, HttpResponse):
                response.hide_keys((*used.secrets, *self._secrets))
            if is_repeated or response.status not in self._authorizer.renewable:
                return response
            data = await response.read(MAX_REFUSAL)  # it says why
            if isinstance(data, TransportError):
                return data
            refused = ReadyResponse(response.status, response.headers, deque([data]))
            if not self._authorizer.renew(used, refused):
                return refused
            is_repeated = True
