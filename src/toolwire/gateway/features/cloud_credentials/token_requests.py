"""Asks for a credential over HTTP, and reads what comes: one small request to an address of the cloud."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from urllib.parse import urlencode, urlsplit

from toolwire.core.ir import EMPTY_MAPPING
from toolwire.core.json_values import Malformed, Object, parse_object
from toolwire.gateway.features.cloud_credentials.leases import CredentialProblem, clean_detail
from toolwire.gateway.http.connection import TransportError
from toolwire.gateway.http.messages import RequestSender, UpstreamRequest
from toolwire.gateway.http.senders import send_idempotent
from toolwire.gateway.settings.address import Address

MAX_ANSWER = 1024 * 1024
ANSWER_SECONDS = 10.0
PAUSES = (0.5, 1.0, 2.0)
"""Seconds before a server is asked again that is not ready yet."""
RETRY_STATUSES = frozenset({404, 410, 429, 500, 502, 503, 504})
"""With these, metadata servers say that they are not ready yet."""
FORM = {"content-type": "application/x-www-form-urlencoded"}


class TokenRequests:
    """Sends such requests for one source."""

    def __init__(
        self, client: RequestSender, source: str, proxy: str = "", secrets: tuple[str, ...] = (), hint: str = ""
    ) -> None:
        """`secrets` are sent, and may be repeated by who refuses them. `hint` says what to do then."""
        self._client, self._source, self._proxy = client, source, proxy
        self._secrets, self._hint = secrets, hint

    async def get(
        self, url: str, headers: Mapping[str, str], needed_headers: Mapping[str, str] = EMPTY_MAPPING
    ) -> Object | CredentialProblem:
        """Asks until the server is ready. It must be the one that sends these headers."""
        answer = await self._ask("GET", url, headers, b"", needed_headers)
        for pause in PAUSES:
            if not isinstance(answer, CredentialProblem) or not answer.is_transient:
                break
            await asyncio.sleep(pause)
            answer = await self._ask("GET", url, headers, b"", needed_headers)
        return answer

    async def post_form(self, url: str, form: Mapping[str, str]) -> Object | CredentialProblem:
        return await self._ask("POST", url, FORM, urlencode(form).encode())

    def fail(self, problem: str, hint: str = "", is_transient: bool = False) -> CredentialProblem:
        return CredentialProblem(self._source, problem, hint or self._hint, is_transient)

    async def _ask(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        body: bytes,
        needed_headers: Mapping[str, str] = EMPTY_MAPPING,
    ) -> Object | CredentialProblem:
        parts = urlsplit(url)
        place = parts.netloc
        try:
            address = Address.parse(f"{parts.scheme}://{parts.netloc}", self._proxy)
        except ValueError as error:
            return self.fail(f"{place}: {error}")
        path = f"{parts.path}?{parts.query}" if parts.query else parts.path
        sent = tuple({"accept": "application/json", **headers}.items())
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                response = await send_idempotent(self._client, UpstreamRequest(address, method, path, sent, body))
                data = response if isinstance(response, TransportError) else await response.read(MAX_ANSWER)
        except TimeoutError:
            return self.fail(f"{place} did not answer within {ANSWER_SECONDS:g} seconds")
        if isinstance(response, TransportError) or isinstance(data, TransportError):
            return self.fail(response.detail if isinstance(response, TransportError) else str(data))
        answer = read_object(data)
        if response.status != 200:
            what = f"{place} answered with {response.status}{_describe_error(answer, self._secrets)}"
            return self.fail(what, is_transient=response.status in RETRY_STATUSES)
        if not needed_headers.items() <= response.headers.items():
            return self.fail(f"{place} is another server: its answer lacks `{'`, `'.join(needed_headers)}`")
        return answer if answer is not None else self.fail(f"{place} sent something that is not a JSON object")


def read_object(data: bytes) -> Object | None:
    try:
        return parse_object(data)
    except Malformed:
        return None


ERROR_KEYS = ("error", "error_code", "code", "error_description", "message", "Message")
"""What token endpoints say about themselves. Other members may repeat what was sent."""


def _describe_error(answer: Object | None, secrets: tuple[str, ...]) -> str:
    said = [value for key in ERROR_KEYS if isinstance(value := (answer or {}).get(key), str)]
    return f": {clean_detail(': '.join(said), secrets)}" if said else ""
