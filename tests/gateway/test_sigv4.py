"""Signatures of AWS: our signer and botocore's, on the same requests."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from hypothesis import given
from hypothesis import strategies as st

from toolwire.gateway.features.cloud_credentials.sigv4 import AwsKeys, Scope, make_bedrock_key, sign_request

VECTORS: dict[str, Any] = json.loads((Path(__file__).parents[1] / "samples/clouds/sigv4_vectors.json").read_text())
KEYS = [one["name"] for one in VECTORS["vectors"]]


@pytest.mark.parametrize("vector", VECTORS["vectors"], ids=KEYS)
def test_a_signature_is_that_of_botocore(vector: dict[str, Any]) -> None:
    keys = AwsKeys(VECTORS["access_key"], VECTORS["secret_key"], vector["session_token"] or "")
    url = urlsplit(vector["url"])
    headers = {name.lower(): value for name, value in vector["headers"].items()} | {"host": url.netloc}
    target = f"{url.path}?{url.query}" if url.query else url.path
    scope = Scope(vector["region"], vector["service"])
    added = sign_request(keys, scope, vector["method"], target, headers, vector["body"].encode(), vector["amz_date"])
    assert added["authorization"] == vector["authorization"]
    assert added["x-amz-date"] == vector["amz_date"]
    assert added.get("x-amz-security-token") == vector["session_token"]


@pytest.mark.parametrize("vector", VECTORS["short_term_bedrock_keys"]["vectors"], ids=["plain", "session"])
def test_a_key_of_bedrock_is_that_of_the_generator(vector: dict[str, Any]) -> None:
    keys = AwsKeys(vector["access_key"], vector["secret_key"], vector["session_token"] or "")
    assert make_bedrock_key(keys, vector["region"], vector["amz_date"], vector["expires"]) == vector["key"]


MODELS = st.text(st.characters(codec="utf-8"), min_size=1, max_size=40).map(lambda text: quote(text, safe=":@"))


@given(
    model=MODELS,
    body=st.binary(max_size=200),
    token=st.from_regex(r"[A-Za-z0-9+/=]{0,40}", fullmatch=True),
    second=st.integers(1_700_000_000, 2_000_000_000),
    region=st.sampled_from(["us-east-1", "eu-west-1", "cn-north-1"]),
)
def test_any_request_is_signed_as_botocore_signs_it(
    model: str, body: bytes, token: str, second: int, region: str
) -> None:
    date = datetime.fromtimestamp(second, UTC).strftime("%Y%m%dT%H%M%SZ")
    path = f"/model/{model}/invoke"
    request = AWSRequest("POST", f"https://bedrock.test{path}", headers={"Content-Type": "application/json"}, data=body)
    request.context["timestamp"] = date
    judge = SigV4Auth(Credentials("AKID", "secret", token or None), "bedrock", region)
    request.headers["X-Amz-Date"] = date
    if token:
        request.headers["X-Amz-Security-Token"] = token
    judged = judge.signature(judge.string_to_sign(request, judge.canonical_request(request)), request)
    headers = {"content-type": "application/json", "host": "bedrock.test"}
    added = sign_request(AwsKeys("AKID", "secret", token), Scope(region, "bedrock"), "POST", path, headers, body, date)
    assert added["authorization"].endswith(f"Signature={judged}")


def test_what_holds_keys_does_not_show_them() -> None:
    assert "secret" not in repr(AwsKeys("AKID", "secret", "token"))
