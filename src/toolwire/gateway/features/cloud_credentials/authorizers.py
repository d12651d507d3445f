"""The two ways to authorize a request: a bearer token, and a signature over the exact bytes that are sent."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from email.utils import parsedate_to_datetime
from typing import Protocol

from msgspec import Struct

from toolwire.core.ir import EMPTY_MAPPING
from toolwire.gateway.features.cloud_credentials.leases import BearerToken, CredentialProblem, Lease, LeaseKeeper
from toolwire.gateway.features.cloud_credentials.sigv4 import AwsKeys, Scope, sign_request
from toolwire.gateway.http.headers import Headers

HIDDEN_LENGTH = 48
"""Characters at the end of a token that no answer may repeat: without them it is of no use. Whole tokens have
thousands, and every event of a stream is searched."""


class OutgoingRequest(Struct, frozen=True):
    """A request as it is sent."""

    method: str
    host: str
    target: str
    """The path and the query."""
    headers: Mapping[str, str]
    """With names in lower case."""
    body: bytes


class Refusal(Struct, frozen=True):
    """An answer that may say that a credential has ended."""

    status: int
    headers: Mapping[str, str]
    body: bytes = b""


class Authorization(Struct, frozen=True):
    """What a request needs besides its own headers."""

    headers: Headers
    secrets: tuple[str, ...]
    """What no answer may repeat."""
    lease: Lease[BearerToken] | Lease[AwsKeys]
    skew: float = 0.0
    """How much later it was taken to be at the provider than here."""


class Authorizer(Protocol):
    """Authorizes the requests of a provider."""

    @property
    def source(self) -> str:
        """Where the credential is from, for people."""

    async def authorize(self, request: OutgoingRequest, max_seconds: float) -> Authorization | CredentialProblem: ...

    def may_renew(self, status: int) -> bool:
        """May an answer with this status say that the credential has ended?"""

    def renew(self, used: Authorization, refusal: Refusal) -> bool:
        """Does this answer say so? True if it is worth to authorize the request once more."""

    async def check(self) -> Lease[BearerToken] | Lease[AwsKeys] | CredentialProblem:
        """Is there a credential?"""

    async def close(self) -> None: ...


class BearerAuthorizer:
    """Sends a token."""

    def __init__(self, keeper: LeaseKeeper[BearerToken]) -> None:
        self._keeper = keeper

    @property
    def source(self) -> str:
        return self._keeper.source

    async def authorize(self, request: OutgoingRequest, max_seconds: float) -> Authorization | CredentialProblem:
        lease = await self._keeper.get(max_seconds)
        if isinstance(lease, CredentialProblem):
            return lease
        token = lease.value.token
        headers = (("authorization", f"Bearer {token}"), *lease.value.headers)
        return Authorization(headers, (token[-HIDDEN_LENGTH:],), lease)

    def may_renew(self, status: int) -> bool:
        return status in (401, 403)

    def renew(self, used: Authorization, refusal: Refusal) -> bool:
        # A token that was revoked would be used until its end (BerriAI/litellm#23512). AWS says 403 of one that has
        # ended; elsewhere that is a right that is missing.
        if refusal.status == 403 and not _ENDED.search(_read_reason(refusal)):
            return False
        return self._keeper.drop(used.lease)  # type: ignore[arg-type]

    async def check(self) -> Lease[BearerToken] | CredentialProblem:
        return await self._keeper.get()

    async def close(self) -> None:
        await self._keeper.close()


SIGNED_HEADERS = frozenset({"content-type", "anthropic-version", "x-amz-content-sha256"})
"""Those that no proxy on the way changes, besides `host` and what the signature adds."""
_ENDED = re.compile(
    r"ExpiredToken|UnrecognizedClient|InvalidClientTokenId|InvalidToken|InvalidAccessKeyId"
    r"|security token included in the request is (?:expired|invalid)"
)
_SKEWED = re.compile(r"InvalidSignature|SignatureDoesNotMatch|RequestExpired|RequestTimeTooSkewed|not yet current")
_MIN_SKEW = 60.0
"""Seconds. AWS refuses signatures that are five minutes off."""
_ERROR_TYPE_HEADER = "x-amzn-errortype"


class SigningAuthorizer:
    """Signs each request, also a repeated one, with Signature Version 4."""

    def __init__(self, keeper: LeaseKeeper[AwsKeys], scope: Scope, now: Callable[[], float]) -> None:
        self._keeper, self._scope, self._now = keeper, scope, now
        self._skew = 0.0
        """How much later it is at AWS than on this machine."""

    @property
    def source(self) -> str:
        return self._keeper.source

    async def authorize(self, request: OutgoingRequest, max_seconds: float) -> Authorization | CredentialProblem:
        lease = await self._keeper.get(max_seconds)
        if isinstance(lease, CredentialProblem):
            return lease
        keys, signed = lease.value, {name: request.headers[name] for name in request.headers if name in SIGNED_HEADERS}
        signed["host"] = request.host
        skew = self._skew
        date = write_amz_date(self._now() + skew)
        added = sign_request(keys, self._scope, request.method, request.target, signed, request.body, date)
        secrets = (keys.secret_key, *([keys.session_token[-HIDDEN_LENGTH:]] if keys.session_token else []))
        return Authorization(tuple(added.items()), secrets, lease, skew)

    def may_renew(self, status: int) -> bool:
        return status in (400, 401, 403)

    def renew(self, used: Authorization, refusal: Refusal) -> bool:
        reason = _read_reason(refusal)
        if _ENDED.search(reason):
            return self._keeper.drop(used.lease)  # type: ignore[arg-type]
        if not _SKEWED.search(reason):
            return False
        skew = _read_date(refusal.headers.get("date", "")) - self._now()
        if not abs(skew - used.skew) > _MIN_SKEW:  # also if it is not known
            return False
        self._skew = skew
        return True

    async def check(self) -> Lease[AwsKeys] | CredentialProblem:
        return await self._keeper.get()

    async def close(self) -> None:
        await self._keeper.close()


def _read_reason(refusal: Refusal) -> str:
    """What AWS says of an error, in a header or in the body alone."""
    return refusal.headers.get(_ERROR_TYPE_HEADER, "") + refusal.body[:4096].decode("utf-8", "replace")


def write_amz_date(now: float) -> str:
    return time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now))


def _read_date(text: str) -> float:
    """The Unix time of a Date header; NaN if it cannot be read, which is no skew."""
    try:
        return parsedate_to_datetime(text).timestamp()
    except ValueError:
        return float("nan")


def plain_headers(headers: Headers) -> Mapping[str, str]:
    return {name.lower(): value for name, value in headers} if headers else EMPTY_MAPPING
