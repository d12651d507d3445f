"""Uploads in several requests: a provider names a URL for the bytes of a file (Gemini: `x-goog-upload-url`).

Whoever has that URL can go on with the upload, without any key, and google-genai sends none. So with client keys the
client gets a URL of the gateway with a ticket in place of the provider's: it is signed, says which key has started the
upload, and allows nothing but to go on with it. The provider's own URL stays in the store."""

from __future__ import annotations

import hmac
import re
import secrets
from collections.abc import Mapping
from urllib.parse import parse_qsl, urlsplit

import msgspec

from toolwire.core.codec import Codec
from toolwire.core.ir import Failure
from toolwire.gateway.exchange.caller import drop_credentials
from toolwire.gateway.exchange.gateway_request import GatewayRequest, PassthroughMatch, Runtime, Upstream
from toolwire.gateway.exchange.named_model import UPLOAD_PREFIX
from toolwire.gateway.exchange.stages import EarlierRequest, ForwardedAnswer, ForwardedRequest
from toolwire.gateway.settings.config import ClientKey
from toolwire.gateway.store.repository import UPLOAD, StateRepository, owner_of, store_unavailable_failure
from toolwire.gateway.store.store import Entry, StoreDown

SESSION_SECONDS = 24 * 3600.0
_TICKET_KEY = "upload_id"
_is_ticket = re.compile(r"tw_([0-9a-f]{32})([0-9a-f]{32})([0-9a-f]{32})").fullmatch
"""The owner, the id of the session, and the signature of both."""
_is_target = re.compile(r"/upload/[!-~]+").fullmatch
_ENDED = frozenset({"final", "cancelled"})
_PURPOSE = b"upload\0"


class UploadSessions:
    """The uploads that clients have started, under one configuration."""

    def __init__(self, runtime: Runtime, repository: StateRepository) -> None:
        self._runtime, self._repository = runtime, repository
        self._keys = {owner_of(key): key for key in runtime.config.server.keys}
        self._gives_tickets = runtime.config.server.needs_keys and repository.is_enabled

    def find_key(self, codec: Codec, match: PassthroughMatch, query: str) -> ClientKey | None:
        """The key that a request without one belongs to, by the ticket in its query. The caller must make sure that it
        can do nothing but go on with the upload (`find_session`)."""
        ticket = _read_ticket(query) if self._gives_tickets and is_upload(codec, match) else None
        owner, id, signature = ticket or ("", "", "")
        key = self._keys.get(owner)
        if key is None:
            return None
        signatures = self._sign(key, id)
        return key if any(hmac.compare_digest(signature, one) for one in signatures) else None

    def _sign(self, key: ClientKey, id: str) -> list[str]:
        keys = self._runtime.envelope_keys_of(key)
        return [] if keys is None else [keys.sign(one, _PURPOSE + id.encode()).hex() for one in keys.keys]

    async def find_session(
        self, request: GatewayRequest, match: PassthroughMatch, query: str
    ) -> EarlierRequest | Failure | None:
        """The upload that a request goes on with; None if it starts one, or has nothing to do with uploads."""
        if not self._gives_tickets or not is_upload(request.client_codec, match) or not _names_upload(query):
            return None
        key, ticket = self.find_key(request.client_codec, match, query), _read_ticket(query)
        unknown = Failure("not_found", "this key has not started such an upload, or it has ended; start it again", 404)
        if key is None or ticket is None or request.caller.key is None or request.caller.key.sha256 != key.sha256:
            return unknown
        entry = await self._repository.get_one(owner_of(key), UPLOAD, ticket[1])
        if isinstance(entry, StoreDown):
            return store_unavailable_failure(entry)
        if entry is None or entry.parent != match.path:
            return unknown
        return msgspec.json.decode(entry.body, type=EarlierRequest)

    async def adapt_headers(
        self, gateway_request: GatewayRequest, request: ForwardedRequest, answer: ForwardedAnswer
    ) -> Mapping[str, str] | Failure:
        """The headers that the client gets, with a URL of the gateway in place of the provider's. An upload that has
        ended is forgotten."""
        match, headers = request.match, dict(answer.headers)
        if not is_upload(gateway_request.client_codec, match):
            return headers
        headers.pop("location", None)  # in an older protocol of Google's, it is the URL of the upload
        name = gateway_request.client_codec.http.upload_url_header
        url = headers.pop(name, "")
        if request.earlier is not None:
            if headers.get("x-goog-upload-status", "").lower() in _ENDED:
                await self._repository.delete(owner_of(gateway_request.caller.key), UPLOAD, request.earlier.id)
        elif url:
            target = await self._start_session(gateway_request, match, answer.upstream, url)
            if isinstance(target, Failure):
                return target
            scheme = "https" if gateway_request.headers.get("x-forwarded-proto", "").lower() == "https" else "http"
            headers[name] = f"{scheme}://{gateway_request.headers.get('host', '')}{target}"
        return headers

    async def _start_session(
        self, request: GatewayRequest, match: PassthroughMatch, upstream: Upstream, url: str
    ) -> str | Failure:
        """The path and query that the client gets. Without client keys they are the provider's."""
        target = self._read_target(upstream, url)
        if target is None:
            return Failure("upstream", f"the provider `{upstream.provider.name}` gave an unusable upload URL", 502)
        key, id = request.caller.key, secrets.token_hex(16)
        signatures = self._sign(key, id) if self._gives_tickets and key is not None else []
        if not signatures:
            return target
        owner = owner_of(key)
        body = msgspec.json.encode(EarlierRequest(id, upstream.provider.name, target, upstream.provider.account))
        expires = self._repository.clock() + SESSION_SECONDS
        entry = Entry(owner=owner, kind=UPLOAD, id=id, body=body, parent=match.path, expires=expires)
        result = await self._repository.put(entry)
        if isinstance(result, StoreDown):
            return store_unavailable_failure(result)
        ticket = f"{_TICKET_KEY}=tw_{owner}{id}{signatures[0]}"
        return f"{match.path}?{ticket}&upload_protocol=resumable"

    def _read_target(self, upstream: Upstream, url: str) -> str | None:
        """The path and query of the provider's URL, without a key: it comes back with the gateway's request."""
        try:
            parts = urlsplit(url)
        except ValueError:
            return None
        base = upstream.address.base_path if upstream.address is not None else ""
        query = drop_credentials(parts.query)
        path = parts.path.removeprefix(base.rstrip("/"))
        target = f"{path}?{query}" if query else path
        return target if _is_target(target) else None


def is_upload(codec: Codec, match: PassthroughMatch) -> bool:
    return bool(codec.http.upload_url_header) and match.path.startswith(UPLOAD_PREFIX)


def _names_upload(query: str) -> bool:
    names = (name for name, _ in parse_qsl(query, keep_blank_values=True))
    return any("".join(filter(str.isalnum, name)).lower() == "uploadid" for name in names)


def _read_ticket(query: str) -> tuple[str, str, str] | None:
    values = [value for name, value in parse_qsl(query, keep_blank_values=True) if name == _TICKET_KEY]
    found = _is_ticket(values[0]) if len(values) == 1 else None
    return (found[1], found[2], found[3]) if found is not None else None
