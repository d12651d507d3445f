"""Where credentials of AWS come from: each source of botocore's chain, with its services on loopback, and what each is
asked, as captured from boto3."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from botocore.credentials import Credentials

from gateway.fake_clouds import CAPTURED, Answer, FakeCloud, Seen, is_signed, serve_cloud
from toolwire.gateway.features.cloud_credentials.aws import AwsSource
from toolwire.gateway.features.cloud_credentials.leases import CredentialProblem, Lease
from toolwire.gateway.features.cloud_credentials.sigv4 import AwsKeys

KEYS = AwsKeys("AKIDNEW", "secret-of-the-chain", "token-of-the-chain")
END = 4_000_000_000.0
END_TEXT = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(END))
OWN = Credentials("AKIDOWN", "secret-of-the-profile")


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", "http://127.0.0.1:1")


def respond(seen: Seen) -> Answer:
    """The services that give out keys."""
    if seen.form.get("Action"):
        return Answer(200, write_role(seen.form["Action"]).encode(), {"content-type": "text/xml"})
    if seen.path.endswith("/api/token"):
        return Answer(200, b"token-of-the-metadata")
    if seen.path.endswith("/security-credentials/"):
        return Answer(200, b"my-role")
    if seen.path.startswith("/federation"):
        keys = {"accessKeyId": KEYS.access_key, "secretAccessKey": KEYS.secret_key, "sessionToken": KEYS.session_token}
        return Answer(200, {"roleCredentials": keys | {"expiration": int(END * 1000)}})
    keys = {"AccessKeyId": KEYS.access_key, "SecretAccessKey": KEYS.secret_key, "Token": KEYS.session_token}
    return Answer(200, keys | {"Expiration": END_TEXT, "Code": "Success"})


def write_role(action: str) -> str:
    return f"""<{action}Response xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><{action}Result>
<AssumedRoleUser><Arn>arn</Arn><AssumedRoleId>id</AssumedRoleId></AssumedRoleUser><Credentials>
<AccessKeyId>{KEYS.access_key}</AccessKeyId><SecretAccessKey>{KEYS.secret_key}</SecretAccessKey>
<SessionToken>{KEYS.session_token}</SessionToken><Expiration>{END_TEXT}</Expiration>
</Credentials></{action}Result></{action}Response>"""


def load(profile: str = "", role_arn: str = "") -> Lease[AwsKeys] | CredentialProblem:
    source = AwsSource(profile, role_arn, "eu-west-1", os.environ, time.time)
    return asyncio.run(source.fetch_keys())


def write_config(folder: Path, text: str) -> None:
    (folder / ".aws").mkdir(exist_ok=True)
    (folder / ".aws" / "config").write_text(text)


OWN_PROFILE = f"[profile own]\naws_access_key_id = {OWN.access_key}\naws_secret_access_key = {OWN.secret_key}\n"
SetUp = Callable[[FakeCloud, pytest.MonkeyPatch, Path], str]
"""Sets a source up, and returns the profile to use."""


def container(cloud: FakeCloud, monkeypatch: pytest.MonkeyPatch, folder: Path) -> str:
    (folder / "token").write_text("token-of-the-pod")
    monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"{cloud.url}/creds")
    monkeypatch.setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", str(folder / "token"))
    return ""


def instance(cloud: FakeCloud, monkeypatch: pytest.MonkeyPatch, folder: Path) -> str:
    monkeypatch.delenv("AWS_EC2_METADATA_DISABLED")
    monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", cloud.url)
    return ""


def web_identity(cloud: FakeCloud, monkeypatch: pytest.MonkeyPatch, folder: Path) -> str:
    (folder / "token").write_text("token-of-the-cluster")
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", cloud.url)
    monkeypatch.setenv("AWS_ROLE_ARN", "arn:aws:iam::123456789012:role/irsa")
    monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(folder / "token"))
    return ""


def role_of_profile(cloud: FakeCloud, monkeypatch: pytest.MonkeyPatch, folder: Path) -> str:
    role = "[profile role]\nrole_arn = arn:aws:iam::123456789012:role/r\nsource_profile = own\nexternal_id = x1\n"
    write_config(folder, OWN_PROFILE + role)
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", cloud.url)
    return "role"


def sso(cloud: FakeCloud, monkeypatch: pytest.MonkeyPatch, folder: Path) -> str:
    session = "[sso-session corp]\nsso_region = eu-west-1\nsso_start_url = https://corp.awsapps.com/start\n"
    profile = "[profile dev]\nsso_session = corp\nsso_account_id = 123456789012\nsso_role_name = Dev\n"
    write_config(folder, session + profile)
    cache = folder / ".aws" / "sso" / "cache"
    cache.mkdir(parents=True, exist_ok=True)
    token = {"accessToken": "token-of-the-sso-session", "expiresAt": END_TEXT, "startUrl": "x", "region": "eu-west-1"}
    (cache / f"{hashlib.sha1(b'corp').hexdigest()}.json").write_text(json.dumps(token))
    for place in ("tokens.SSOTokenProvider", "credentials.SSOProvider"):  # botocore has read HOME when it was imported
        monkeypatch.setattr(f"botocore.{place}._SSO_TOKEN_CACHE_DIR", str(cache))
    monkeypatch.setenv("AWS_ENDPOINT_URL_SSO", cloud.url)
    return "dev"


def process(cloud: FakeCloud, monkeypatch: pytest.MonkeyPatch, folder: Path) -> str:
    keys = {"Version": 1, "AccessKeyId": KEYS.access_key, "SecretAccessKey": KEYS.secret_key}
    (folder / "keys.json").write_text(json.dumps(keys | {"SessionToken": KEYS.session_token, "Expiration": END_TEXT}))
    code = f"import sys; sys.stdout.write(open('{folder / 'keys.json'}').read())"
    write_config(folder, f'[profile made]\ncredential_process = {sys.executable} -c "{code}"\n')
    return "made"


SOURCES: dict[str, tuple[SetUp, str, str]] = {
    "container": (container, "container-role", "credentials: ecs/eks container"),
    "instance": (instance, "iam-role", "credentials: imdsv2"),
    "web identity": (web_identity, "assume-role-with-web-identity", "credentials: web identity"),
    "role": (role_of_profile, "assume-role", "credentials: assume role profile"),
    "SSO": (sso, "sso", "credentials: sso profile"),
    "process": (process, "custom-process", "credentials: process"),
}


@pytest.mark.parametrize(("set_up", "method", "call"), SOURCES.values(), ids=SOURCES)
def test_a_source_gives_keys_and_their_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, set_up: SetUp, method: str, call: str
) -> None:
    with serve_cloud(respond) as cloud:
        found = load(set_up(cloud, monkeypatch, tmp_path))
    assert isinstance(found, Lease), found
    assert (found.value, found.origin) == (KEYS, method)
    assert found.expires_at == END
    captured = CAPTURED[call]
    asked = [(seen.method, seen.path.partition("?")[0]) for seen in cloud.seen]
    assert asked == [(one["method"], one["path"].partition("?")[0]) for one in captured]


def test_each_source_is_asked_as_it_wants(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serve_cloud(respond) as cloud:
        for set_up, _, _ in SOURCES.values():
            with monkeypatch.context() as only:
                load(set_up(cloud, only, tmp_path))
    by_path = {seen.path.partition("?")[0]: seen for seen in cloud.seen}
    assert by_path["/creds"].headers["authorization"] == "token-of-the-pod"
    assert by_path["/latest/meta-data/iam/security-credentials/my-role"].headers["x-aws-ec2-metadata-token"]
    assert by_path["/federation/credentials"].headers["x-amz-sso_bearer_token"] == "token-of-the-sso-session"
    web, role = (seen for seen in cloud.seen if seen.form.get("Action"))
    assert web.form["WebIdentityToken"] == "token-of-the-cluster"
    assert "authorization" not in web.headers
    assert is_signed(role, OWN, "eu-west-1", "sts")
    assert role.form["ExternalId"] == "x1"


def test_a_role_is_assumed_with_what_the_chain_finds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_config(tmp_path, OWN_PROFILE)
    with serve_cloud(respond) as cloud:
        monkeypatch.setenv("AWS_ENDPOINT_URL_STS", cloud.url)
        found = load("own", "arn:aws:iam::123456789012:role/models")
    assert isinstance(found, Lease), found
    assert (found.value, found.expires_at) == (KEYS, END)
    (seen,) = cloud.seen
    assert is_signed(seen, OWN, "eu-west-1", "sts")
    assert seen.form["RoleArn"] == "arn:aws:iam::123456789012:role/models"


def test_keys_of_the_environment_need_no_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "botocore.session", None)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKID")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_CREDENTIAL_EXPIRATION", END_TEXT)
    found = load()
    assert isinstance(found, Lease)
    assert (found.value, found.expires_at, found.origin) == (AwsKeys("AKID", "secret"), END, "env")


def test_a_profile_wins_over_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_config(tmp_path, OWN_PROFILE)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKID")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    found = load("own")
    assert isinstance(found, Lease)
    assert found.value.access_key == OWN.access_key


def test_an_instance_is_not_asked_through_a_proxy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    with serve_cloud(respond) as cloud:
        found = load(instance(cloud, monkeypatch, tmp_path))
    assert isinstance(found, Lease), found
    assert found.value == KEYS


def test_files_are_read_again(tmp_path: Path) -> None:
    write_config(tmp_path, OWN_PROFILE)
    first = load("own")
    write_config(tmp_path, OWN_PROFILE.replace("AKIDOWN", "AKIDLATER"))
    second = load("own")
    assert isinstance(first, Lease)
    assert isinstance(second, Lease)
    assert (first.value.access_key, second.value.access_key) == ("AKIDOWN", "AKIDLATER")


def test_no_source_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    found = load()
    assert isinstance(found, CredentialProblem)
    assert "there are none" in found.problem
    assert "aws sso login" in found.hint
    found = load("nobody")
    assert isinstance(found, CredentialProblem)
    assert "nobody" in found.problem
    assert "aws sso login --profile nobody" in found.hint


def test_the_profile_of_the_environment_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_PROFILE", "nobody")
    found = load()
    assert isinstance(found, CredentialProblem)
    assert found.source == "AWS (profile `nobody`)"
    assert "aws sso login --profile nobody" in found.hint


@pytest.mark.parametrize("profile", ["asks", "behind"])
def test_nobody_is_asked_for_a_code(tmp_path: Path, profile: str) -> None:
    """botocore would ask at the terminal of the gateway, and wait for ever."""
    asks = "[profile asks]\nrole_arn = r\nsource_profile = own\nmfa_serial = arn:aws:iam::1:mfa/me\n"
    write_config(tmp_path, OWN_PROFILE + asks + "[profile behind]\nrole_arn = r\nsource_profile = asks\n")
    found = load(profile)
    assert isinstance(found, CredentialProblem)
    assert "the profile `asks` wants a code" in found.problem
    assert "auth_command" in found.hint


def test_a_session_of_aws_login_says_what_it_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other than SSO, it needs a part of botocore that the extra does not have."""
    monkeypatch.setattr("botocore.credentials.EC", None, raising=False)
    write_config(tmp_path, "[profile web]\nlogin_session = arn:aws:iam::1:user/me\nregion = eu-west-1\n")
    found = load("web")
    assert isinstance(found, CredentialProblem)
    assert "botocore[crt]" in found.hint


@pytest.mark.parametrize("answer", [b"<html>", b"<a></a>", b"<a><b/></a>"])
def test_an_answer_of_another_kind_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: bytes) -> None:
    with serve_cloud(lambda seen: Answer(200, answer, {"content-type": "text/xml"})) as cloud:
        found = load(web_identity(cloud, monkeypatch, tmp_path))
    assert isinstance(found, CredentialProblem)
    assert "cannot be read" in found.problem


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "botocore.session", None)
    found = load("own")
    assert isinstance(found, CredentialProblem)
    assert str(found) == "no credentials from AWS (profile `own`): botocore is not installed (install `toolwire[aws]`)"


def test_what_a_service_refuses_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    error = "<ErrorResponse><Error><Code>AccessDenied</Code><Message>not authorized</Message></Error></ErrorResponse>"
    with serve_cloud(lambda seen: Answer(403, error.encode(), {"content-type": "text/xml"})) as cloud:
        found = load(role_of_profile(cloud, monkeypatch, tmp_path))
    assert isinstance(found, CredentialProblem)
    assert "AccessDenied" in found.problem
    assert OWN.secret_key not in str(found)
