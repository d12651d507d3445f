"""Requests that an SDK of AWS has signed: the access key id is the client's key, and so is the secret.

The gateway has only hashes of keys, so it can compute a signature only with what the request brings
(docs/decisions/0031-signed-clients.md)."""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Iterator, Mapping
from urllib.parse import quote

from msgspec import Struct
from msgspec.structs import replace

from toolwire.core.codec import AdaptedBody, EndpointMatch
from toolwire.core.ir import Failure
from toolwire.gateway.features.cloud_credentials.sigv4 import ALGORITHM, AwsKeys, Scope, sign_request
from toolwire.gateway.features.keys.access import GATEWAY_KEY_HEADER
from toolwire.gateway.http.client_request import ClientRequest

DATE_HEADER, TOKEN_HEADER, HASH_HEADER = "x-amz-date", "x-amz-security-token", "x-amz-content-sha256"
_AUTHORIZATION = re.compile(
    rf"{ALGORITHM} +Credential=(?P<key>[^,\s]+)/\d{{8}}/(?P<region>[^/,\s]+)/(?P<service>[^/,\s]+)/aws4_request"
    r", *SignedHeaders=(?P<names>[a-z0-9;-]+), *Signature=(?P<signature>[0-9a-f]{64})\s*"
)
_ADDED = frozenset({DATE_HEADER, TOKEN_HEADER})
"""Headers that the signer adds itself."""
_NEEDED = frozenset({"host", DATE_HEADER})
WRONG_SIGNATURE = (
    "the signature does not match: AWS_SECRET_ACCESS_KEY must be the same key as AWS_ACCESS_KEY_ID, and no proxy may"
    " change signed headers; or send the key as a bearer token"
)


class Signature(Struct, frozen=True):
    """A signature, and what it is for besides the body."""

    keys: AwsKeys
    scope: Scope
    amz_date: str
    value: str
    method: str
    targets: tuple[str, ...]
    """The path and query in each spelling that SDKs send: the gateway has the path without escapes."""
    headers: Mapping[str, str]
    """Those that are signed."""


def is_signed(headers: Mapping[str, str]) -> bool:
    return headers.get("authorization", "").startswith(ALGORITHM) and GATEWAY_KEY_HEADER not in headers


def read_signature(request: ClientRequest, model: str) -> Signature | Failure:
    """The signature of a request; `model` is that in its path."""
    headers = request.headers
    found = _AUTHORIZATION.fullmatch(headers["authorization"])
    names = frozenset(found["names"].split(";")) if found is not None else frozenset()
    if found is None or not names >= _NEEDED or not names <= headers.keys():
        return Failure("authentication", "the signature in `authorization` cannot be read", 401)
    query = f"?{request.query}" if request.query else ""
    return Signature(
        keys=AwsKeys(found["key"], found["key"], headers[TOKEN_HEADER] if TOKEN_HEADER in names else ""),
        scope=Scope(found["region"], found["service"]),
        amz_date=headers[DATE_HEADER],
        value=found["signature"],
        method=request.method,
        targets=tuple(f"{path}{query}" for path in _list_spellings(request.path, model)),
        headers={name: headers[name] for name in names - _ADDED},
    )


def _list_spellings(path: str, model: str) -> Iterator[str]:
    """boto3 escapes all of a model's name, Anthropic's SDK its slashes."""
    yield path
    if model:
        yield path.replace(f"/{model}/", f"/{quote(model, safe='')}/")
        yield path.replace(f"/{model}/", f"/{model.replace('/', '%2F')}/")


def check_signature(signature: Signature, body: bytes) -> Failure | None:
    """Why a signed request is refused; None if nothing of it was changed since it was signed."""
    given_hash = signature.headers.get(HASH_HEADER)
    if given_hash is not None and given_hash != hashlib.sha256(body).hexdigest():
        return Failure("authentication", "the body is not the one that was signed", 401)
    for target in dict.fromkeys(signature.targets):
        added = sign_request(
            signature.keys, signature.scope, signature.method, target, signature.headers, body, signature.amz_date
        )
        if hmac.compare_digest(added["authorization"].rpartition("=")[2], signature.value):
            return None
    return Failure("authentication", WRONG_SIGNATURE, 401)


def check_before_reading(signature: Signature, endpoint: EndpointMatch) -> EndpointMatch:
    """The endpoint, which checks the signature as soon as the body is there."""

    def adapt(data: bytes, matched: EndpointMatch, headers: Mapping[str, str]) -> AdaptedBody | Failure:
        refused = check_signature(signature, data)
        if refused is not None:
            return refused
        return (
            AdaptedBody(data, headers) if endpoint.adapt_body is None else endpoint.adapt_body(data, matched, headers)
        )

    return replace(endpoint, adapt_body=adapt)
