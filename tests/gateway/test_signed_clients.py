"""Requests that are signed as for AWS, at a gateway with client keys."""

from __future__ import annotations

import datetime
import hashlib
import json
from collections.abc import Iterator, Mapping
from urllib.parse import urlsplit

import boto3
import httpx2
import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.config import Config
from botocore.credentials import Credentials
from botocore.exceptions import ClientError

from gateway.conftest import serve_config
from toolwire.gateway.features.keys.access import AccessControl
from toolwire.gateway.settings.config import ServerSettings
from waits import PATIENCE

KEY, OTHER = "tw-the-key-of-ann", "tw-not-the-key-of-ann"
MODEL = "loopback"
BODY = json.dumps(
    {
        "anthropic_version": "bedrock-2023-05-31",
        "max_tokens": 9,
        "messages": [{"role": "user", "content": "hi"}],
    }
).encode()
CONFIG = f"""
[server]
log_format = "none"
[[server.keys]]
name = "ann"
sha256 = "{hashlib.sha256(KEY.encode()).hexdigest()}"
[models]
"claude-opus-5-5" = "loopback/loopback"
"arn:aws:bedrock:us-east-1:1:application-inference-profile/abc" = "loopback/loopback"
"""


@pytest.fixture(scope="module")
def gateway_with_key(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    file = tmp_path_factory.mktemp("signed") / "toolwire.toml"
    file.write_text(CONFIG)
    with serve_config(file) as url:
        yield url


def sign(
    url: str, body: bytes, access: str = KEY, secret: str = KEY, token: str = "", **headers: str
) -> dict[str, str]:
    """The headers of a request as botocore signs it."""
    given = {"content-type": "application/json", "host": urlsplit(url).netloc, **headers}
    request = AWSRequest(method="POST", url=url, data=body, headers=given)
    SigV4Auth(Credentials(access, secret, token or None), "bedrock", "eu-west-1").add_auth(request)
    return dict(request.headers.items())


def post(url: str, body: bytes, headers: Mapping[str, str]) -> httpx2.Response:
    return httpx2.post(url, content=body, headers=headers, timeout=PATIENCE)


PATHS = [
    "/model/eu.anthropic.claude-opus-5-5-v1%3A0/invoke",  # as Claude Code names it
    f"/model/{MODEL}/invoke",
    "/model/arn:aws:bedrock:us-east-1:1:application-inference-profile%2Fabc/invoke",
    "/model/arn%3Aaws%3Abedrock%3Aus-east-1%3A1%3Aapplication-inference-profile%2Fabc/invoke",
]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("token", ["", "a/session+token=="])
def test_what_is_signed_with_the_key_is_answered(gateway_with_key: str, path: str, token: str) -> None:
    url = f"{gateway_with_key}{path}"
    assert post(url, BODY, sign(url, BODY, token=token)).status_code == 200


@pytest.mark.parametrize(
    ("access", "secret", "words"),
    [
        (KEY, OTHER, "AWS_SECRET_ACCESS_KEY must be the same key"),
        (OTHER, OTHER, "unknown API key"),
        (OTHER, KEY, "unknown API key"),
    ],
)
def test_another_key_or_secret_is_refused(gateway_with_key: str, access: str, secret: str, words: str) -> None:
    client = boto3.client(
        "bedrock-runtime",
        region_name="eu-west-1",
        endpoint_url=gateway_with_key,
        aws_access_key_id=access,
        aws_secret_access_key=secret,
        config=Config(retries={"max_attempts": 0}, read_timeout=PATIENCE),
    )
    with pytest.raises(ClientError) as caught:
        client.invoke_model(modelId=MODEL, body=BODY)
    client.close()
    error = caught.value.response["Error"]
    assert error["Code"] == "UnrecognizedClientException"
    assert words in error["Message"]
    assert OTHER not in str(caught.value)


def test_converse_is_checked_too(gateway_with_key: str) -> None:
    body = json.dumps({"messages": [{"role": "user", "content": [{"text": "hi"}]}]}).encode()
    url = f"{gateway_with_key}/model/{MODEL}/converse"
    assert post(url, body, sign(url, body)).status_code == 200
    refused = post(url, body, sign(url, body, secret=OTHER))
    assert refused.status_code == 403  # as AWS answers
    assert refused.headers["x-amzn-errortype"] == "UnrecognizedClientException"


def test_what_was_changed_on_the_way_is_refused(gateway_with_key: str) -> None:
    url = f"{gateway_with_key}/model/{MODEL}/invoke"
    signed = sign(url, BODY)
    changes: list[tuple[str, bytes, dict[str, str]]] = [
        (url, BODY.replace(b"hi", b"ho"), signed),
        (url.replace("invoke", "invoke-with-response-stream"), BODY, signed),
        (f"{url}?a=b", BODY, signed),
        (url, BODY, signed | {"content-type": "application/json; charset=utf-8"}),
        (url, BODY, signed | {"X-Amz-Date": "20260101T000000Z"}),
        (url, BODY, signed | {"Authorization": signed["Authorization"][:-1] + "g"}),
        (url, BODY, signed | {"Authorization": signed["Authorization"].replace("host;", "")}),
        (url, BODY, signed | {"Authorization": signed["Authorization"].replace("host;", "host;x-other;")}),
        (url, BODY, signed | {"Authorization": signed["Authorization"].partition(", Signed")[0]}),
    ]
    for where, body, headers in changes:
        assert post(where, body, headers).status_code == 401, (where, headers)
    assert post(url, BODY, signed).status_code == 200


def test_a_hash_of_the_body_that_was_signed_must_be_that_of_the_body(gateway_with_key: str) -> None:
    url = f"{gateway_with_key}/model/{MODEL}/invoke"
    unsigned = sign(url, BODY, **{"x-amz-content-sha256": "UNSIGNED-PAYLOAD"})
    answer = post(url, BODY, unsigned)
    assert answer.status_code == 401
    assert "not the one that was signed" in answer.text
    right = sign(url, BODY, **{"x-amz-content-sha256": hashlib.sha256(BODY).hexdigest()})
    assert post(url, BODY, right).status_code == 200


def test_endpoints_of_models_only_take_signed_requests_with_a_body(gateway_with_key: str) -> None:
    url = f"{gateway_with_key}/v1/files"
    answer = post(url, b"{}", sign(url, b"{}"))
    assert answer.status_code == 403
    assert "send the key as a bearer token" in answer.text
    assert post(url, b"{}", {"authorization": f"Bearer {KEY}"}).status_code != 403


def test_the_clock_is_not_asked(gateway_with_key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The key is in the request: who has the request has the key, however old it is."""
    monkeypatch.setattr("botocore.auth.get_current_datetime", lambda: datetime.datetime(2020, 1, 1))  # noqa: DTZ001
    url = f"{gateway_with_key}/model/{MODEL}/invoke"
    signed = sign(url, BODY)
    assert signed["X-Amz-Date"].startswith("2020")
    assert post(url, BODY, signed).status_code == 200


def test_the_key_in_a_signature_is_a_secret() -> None:
    signed = sign("http://127.0.0.1/model/m/invoke", BODY)
    words = AccessControl(ServerSettings()).list_credentials({"authorization": signed["Authorization"]}, "")
    assert KEY in words
    assert signed["Authorization"].rpartition(" ")[2] in words
