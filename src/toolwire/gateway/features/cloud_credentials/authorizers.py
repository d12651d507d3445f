"""The two ways to authorize a request: a bearer token, and a signature over the exact bytes that are sent."""

from __future__ import annotations

import re
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import ClassVar, Generic

from msgspec import Struct

from toolwire.core.rate_limits import read_http_date
from toolwire.gateway.features.cloud_credentials.leases import (
    BearerToken,
    CredentialProblem,
    Lease,
    LeaseKeeper,
    Value,
)
from toolwire.gateway.features.cloud_credentials.sigv4 import AwsKeys, Scope, sign_request
from toolwire.gateway.http.headers import Headers
from toolwire.gateway.http.messages import ReadyResponse

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


class Authorization(Struct, Generic[Value], frozen=True):
    """What a request needs besides its own headers."""

    headers: Headers
    secrets: tuple[str, ...]
    """What no answer may repeat."""
    lease: Lease[Value]
    skew: float = 0.0
    """How much later it was taken to be at the provider than here."""


class Authorizer(ABC, Generic[Value]):
    """Authorizes the requests of a provider."""

    renewable: ClassVar[frozenset[int]]
    """The statuses of answers that may say that the credential has ended."""

    def __init__(self, keeper: LeaseKeeper[Value]) -> None:
        self._keeper = keeper
        self.source = keeper.source
        """Where the credential is from, for people."""

    async def authorize(self, request: OutgoingRequest, max_seconds: float) -> Authorization[Value] | CredentialProblem:
        lease = await self._keeper.get(max_seconds)
        return lease if isinstance(lease, CredentialProblem) else self._write(request, lease)

    @abstractmethod
    def _write(self, request: OutgoingRequest, lease: Lease[Value]) -> Authorization[Value]: ...

    @abstractmethod
    def renew(self, used: Authorization[Value], refusal: ReadyResponse) -> bool:
        """Does this answer say that the credential has ended? True if it is worth to authorize the request again."""

    async def check(self) -> Lease[Value] | CredentialProblem:
        """Is there a credential?"""
        return await self._keeper.get()

    async def close(self) -> None:
        await self._keeper.close()


class BearerAuthorizer(Authorizer[BearerToken]):
    """Sends a token."""

    renewable = frozenset({401, 403})

    def _write(self, request: OutgoingRequest, lease: Lease[BearerToken]) -> Authorization[BearerToken]:
        token = lease.value.token
        headers = (("authorization", f"Bearer {token}"), *lease.value.headers)
        return Authorization(headers, (token[-HIDDEN_LENGTH:],), lease)

    def renew(self, used: Authorization[BearerToken], refusal: ReadyResponse) -> bool:
        # A token that was revoked would be used until its end (BerriAI/litellm#23512). AWS says 403 of one that has
        # ended; elsewhere that is a right that is missing.
        if refusal.status == 403 and not _ENDED.search(_read_reason(refusal)):
            return False
        return self._keeper.drop(used.lease)


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


class SigningAuthorizer(Authorizer[AwsKeys]):
    """Signs each request, also a repeated one, with Signature Version 4."""

    renewable = frozenset({400, 401, 403})

    def __init__(self, keeper: LeaseKeeper[AwsKeys], scope: Scope, now: Callable[[], float]) -> None:
        super().__init__(keeper)
        self._scope, self._now = scope, now
        self._skew = 0.0
        """How much later it is at AWS than on this machine."""

    def _write(self, request: OutgoingRequest, lease: Lease[AwsKeys]) -> Authorization[AwsKeys]:
        keys, signed = lease.value, {name: request.headers[name] for name in request.headers if name in SIGNED_HEADERS}
        signed["host"] = request.host
        date = write_amz_date(self._now() + self._skew)
        added = sign_request(keys, self._scope, request.method, request.target, signed, request.body, date)
        secrets = (keys.secret_key, *([keys.session_token[-HIDDEN_LENGTH:]] if keys.session_token else []))
        return Authorization(tuple(added.items()), secrets, lease, self._skew)

    def renew(self, used: Authorization[AwsKeys], refusal: ReadyResponse) -> bool:
        reason = _read_reason(refusal)
        if _ENDED.search(reason):
            return self._keeper.drop(used.lease)
        if not _SKEWED.search(reason):
            return False
        at_aws, now = read_http_date(refusal.headers.get("date", "")), self._now()
        if at_aws is None or abs(at_aws - now - used.skew) <= _MIN_SKEW:
            return False
        self._skew = at_aws - now
        return True


def _read_reason(refusal: ReadyResponse) -> str:
    """What AWS says of an error, in a header or in the body alone."""
    return refusal.headers.get(_ERROR_TYPE_HEADER, "") + b"".join(refusal.pieces)[:4096].decode("utf-8", "replace")


def write_amz_date(now: float) -> str:
    return time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now))
