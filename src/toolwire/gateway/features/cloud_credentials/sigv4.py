"""Signature Version 4 of AWS, and the keys of Amazon Bedrock that are made from it. No clock, no I/O.

docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv.html, and botocore 1.44.3 (`auth.py`), which made the vectors in
tests/samples/sigv4/; aws-bedrock-token-generator 1.1.0 for the keys. Looked up in November 2026."""

from __future__ import annotations

import hashlib
import hmac
from base64 import b64encode
from collections.abc import Mapping
from functools import lru_cache
from urllib.parse import quote

from msgspec import Struct

ALGORITHM = "AWS4-HMAC-SHA256"
BEDROCK_KEY_PREFIX = "bedrock-api-key-"
BEDROCK_KEY_HOST = "bedrock.amazonaws.com"
_EMPTY_HASH = hashlib.sha256(b"").hexdigest()


class AwsKeys(Struct, frozen=True):
    """An access key of AWS; a temporary one has a session token."""

    access_key: str
    secret_key: str
    session_token: str = ""

    def __repr__(self) -> str:
        return "AwsKeys(…)"


class Scope(Struct, frozen=True):
    """What a signature is for."""

    region: str
    service: str

    def write(self, date: str) -> str:
        return f"{date}/{self.region}/{self.service}/aws4_request"


def sign_request(
    keys: AwsKeys, scope: Scope, method: str, target: str, headers: Mapping[str, str], body: bytes, amz_date: str
) -> dict[str, str]:
    """The headers that a request needs besides those given, which are signed, with names in lower case and `host` among
    them. `target` is the path and query as they are sent, `amz_date` the time as `20261117T120000Z`."""
    added = {"x-amz-date": amz_date}
    if keys.session_token:
        added["x-amz-security-token"] = keys.session_token
    signed = {name: " ".join(value.split()) for name, value in sorted({**headers, **added}.items())}
    names = ";".join(signed)
    path, _, query = target.partition("?")
    lines = "".join(f"{name}:{value}\n" for name, value in signed.items())
    payload = headers.get("x-amz-content-sha256") or hashlib.sha256(body).hexdigest()
    canonical = f"{method}\n{quote(path, safe='-_.~/')}\n{_sort_query(query)}\n{lines}\n{names}\n{payload}"
    signature = _sign(keys, scope, canonical, amz_date)
    credential = f"{keys.access_key}/{scope.write(amz_date[:8])}"
    added["authorization"] = f"{ALGORITHM} Credential={credential}, SignedHeaders={names}, Signature={signature}"
    return added


def make_bedrock_key(keys: AwsKeys, region: str, amz_date: str, seconds: int) -> str:
    """A short-term key of Amazon Bedrock: a signed URL that is sent as a bearer token. It is made without a request."""
    scope = Scope(region, "bedrock")
    query = {
        "Action": "CallWithBearerToken",
        "X-Amz-Algorithm": ALGORITHM,
        "X-Amz-Credential": f"{keys.access_key}/{scope.write(amz_date[:8])}",
        "X-Amz-Date": amz_date,
        "X-Amz-Expires": str(seconds),
        "X-Amz-SignedHeaders": "host",
    }
    if keys.session_token:
        query["X-Amz-Security-Token"] = keys.session_token
    text = "&".join(f"{name}={quote(value, safe='-_.~')}" for name, value in query.items())
    canonical = f"POST\n/\n{_sort_query(text)}\nhost:{BEDROCK_KEY_HOST}\n\nhost\n{_EMPTY_HASH}"
    url = f"{BEDROCK_KEY_HOST}/?{text}&X-Amz-Signature={_sign(keys, scope, canonical, amz_date)}&Version=1"
    return BEDROCK_KEY_PREFIX + b64encode(url.encode()).decode()


def _sort_query(query: str) -> str:
    """A query as it is sent, in the order of its names."""
    pairs = sorted(pair.partition("=")[::2] for pair in query.split("&") if pair)
    return "&".join(f"{name}={value}" for name, value in pairs)


def _sign(keys: AwsKeys, scope: Scope, canonical: str, amz_date: str) -> str:
    date = amz_date[:8]
    digest = hashlib.sha256(canonical.encode()).hexdigest()
    to_sign = f"{ALGORITHM}\n{amz_date}\n{scope.write(date)}\n{digest}"
    return _hmac(_derive_key(keys.secret_key, date, scope.region, scope.service), to_sign).hex()


@lru_cache(64)
def _derive_key(secret_key: str, date: str, region: str, service: str) -> bytes:
    """The key of a day."""
    key = f"AWS4{secret_key}".encode()
    for text in (date, region, service, "aws4_request"):
        key = _hmac(key, text)
    return key


def _hmac(key: bytes, text: str) -> bytes:
    return hmac.digest(key, text.encode(), "sha256")
