"""Tokens of Google Cloud and of Microsoft Entra ID, and those that a program prints: each source as the vendor's own
library asks it, and what the providers get."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from importlib import import_module
from inspect import signature
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from google.auth import jwt

from gateway.conftest import serve_config
from gateway.fake_clouds import (
    CAPTURED,
    HELLO,
    PRIVATE,
    PUBLIC,
    TOOL,
    Answer,
    FakeCloud,
    Seen,
    serve_cloud,
    service_account,
    write_json,
)
from gateway.misbehaving_providers import LOOPS, on_loop
from gateway.provider import ScriptedAnswer
from gateway.raw_exchange import RawAnswer, ask, body_of, frames, text_of
from toolwire.gateway.features.cloud_credentials.command import CommandSource
from toolwire.gateway.features.cloud_credentials.google import AWS_SUBJECT, FILE_KINDS, FileKind, find_kind
from toolwire.gateway.features.cloud_credentials.leases import CredentialProblem
from toolwire.gateway.features.cloud_credentials.senders import CloudSenders
from toolwire.gateway.http.client import UpstreamClient
from toolwire.gateway.settings.cloud_access import CloudAccess
from toolwire.gateway.surfaces.console.api import API_PATH
from waits import wait_until

SERVER = '[server]\nretries = 0\nlog_format = "none"\n'
TOKEN = "ya29.token-of-the-cloud-0123456789-{}"
SECRET = "client-secret-0123456789-very-secret"
CLOUD_VARIABLES = ("AWS_", "AZURE_", "GOOGLE_", "GCE_", "IDENTITY_", "CLOUDSDK_", "CLOUD_ML", "ANTHROPIC_", "ALL_PROXY")


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [name for name in os.environ if name.startswith(CLOUD_VARIABLES)]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("GCE_METADATA_HOST", "127.0.0.1:1")


class Cloud:
    """A cloud: token endpoints, and models that want the newest token."""

    def __init__(self) -> None:
        self.given = 0
        self.life: Any = 3599
        self.refuses = False
        """Do the token endpoints refuse everybody?"""
        self.gate: threading.Event | None = None
        """What the token endpoints wait for."""

    @property
    def token(self) -> str:
        return TOKEN.format(self.given)

    def respond(self, seen: Seen) -> Answer:
        path = urlsplit(seen.path).path
        if path.endswith(("/token", "/msi", ":generateAccessToken")):
            return self.give_token(path)
        if seen.headers.get("authorization") != f"Bearer {self.token}":
            return Answer(401, {"error": {"message": "bad token", "status": "UNAUTHENTICATED", "code": 401}})
        return answer_model(seen)

    def give_token(self, path: str) -> Answer:
        if self.gate is not None:
            self.gate.wait()
        if self.refuses:
            return Answer(400, {"error": "invalid_grant", "error_description": "the account is closed", "echo": SECRET})
        self.given += 1
        if path.endswith(":generateAccessToken"):
            end = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 3600))
            return Answer(200, {"accessToken": self.token, "expireTime": end})
        body = {"access_token": self.token, "expires_in": self.life, "token_type": "Bearer"}
        return Answer(200, body, {"metadata-flavor": "Google"})


def answer_model(seen: Seen) -> Answer:
    path = urlsplit(seen.path).path
    protocol = next((name for end, name in _PROTOCOLS.items() if path.endswith(end)), "")
    if not protocol:
        return Answer(404, {"error": {"message": f"no path {path}"}})
    if protocol == "count":
        return Answer(200, {"input_tokens": 42})
    if path.endswith(("streamRawPredict", "streamGenerateContent")) or (
        protocol != "gemini" and seen.json.get("stream")
    ):
        return Answer(200, b"".join(frames(protocol)), {"content-type": "text/event-stream"})
    return Answer(200, body_of(protocol, ScriptedAnswer("Hello there.")))


_PROTOCOLS = {
    "count-tokens:rawPredict": "count",
    "awPredict": "anthropic",
    "/v1/messages": "anthropic",
    "enerateContent": "gemini",
    "/chat/completions": "openai-chat",
    "/responses": "openai-responses",
}
VERTEX = '[providers.vertex]\nproject = "proj"\nbase_url = "{url}"\n'
AZURE = '[providers.azure]\nprotocols = ["openai-responses", "openai-chat", "anthropic"]\nbase_url = "{url}"\n'


@contextmanager
def stage(folder: Path, server: FakeCloud, text: str) -> Iterator[int]:
    file = folder / "toolwire.toml"
    file.write_text(SERVER + text.replace("{url}", server.url))
    with serve_config(file) as url:
        yield int(url.rpartition(":")[2])


def ask_model(
    port: int, model: str = "vertex/claude-opus-5-5", stream: bool = False, headers: Mapping[str, str] | None = None
) -> RawAnswer:
    body = {"model": model, **HELLO, "tools": [TOOL], "stream": stream}
    return ask(port, "POST", "/v1/messages", json.dumps(body).encode(), headers)


# --- Google -----------------------------------------------------------------------------------------------------------


def test_a_service_account_of_google(tmp_path: Path) -> None:
    cloud = Cloud()
    with serve_cloud(cloud.respond) as server:
        service_account(tmp_path, server.url)
        text = f'{VERTEX}auth = "google"\ncredentials_file = "service_account.json"\n'
        with stage(tmp_path, server, text) as port:
            assert [ask_model(port).status for _ in range(3)] == [200, 200, 200]
    asked, *calls = server.seen
    assert asked.form["grant_type"] == "urn:ietf:params:oauth:grant-type:jwt-bearer"
    claims = jwt.decode(asked.form["assertion"], certs=PUBLIC, audience="https://oauth2.googleapis.com/token")
    assert claims["iss"] == "sa@proj.iam.gserviceaccount.com"
    assert claims["scope"] == "https://www.googleapis.com/auth/cloud-platform"
    captured = CAPTURED["AnthropicVertex create"][0]
    assert {call.path for call in calls} == {captured["path"].replace("@20261020", "")}
    assert calls[0].json == {
        **captured["body"],
        "tools": [TOOL],
        "stream": False,
        "anthropic_version": "vertex-2023-10-16",
    }
    assert {call.headers["authorization"] for call in calls} == {f"Bearer {TOKEN.format(1)}"}
    assert not {"anthropic-version", "x-api-key"} & calls[0].headers.keys()


def test_a_federated_identity_of_google(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And nobody asks for the project: it is in the configuration."""
    cloud = Cloud()
    with serve_cloud(cloud.respond) as server:
        subject = tmp_path / "subject"
        subject.write_text("token-of-the-cluster")
        pool = "//iam.googleapis.com/projects/123/locations/global/workloadIdentityPools/p/providers/q"
        account = f"{server.url}/v1/projects/-/serviceAccounts/sa@x:generateAccessToken"
        file = write_json(
            tmp_path / "federated.json",
            {
                "type": "external_account",
                "audience": pool,
                "subject_token_type": "urn:ietf:params:oauth:token-type:jwt",
                "token_url": f"{server.url}/v1/token",
                "service_account_impersonation_url": account,
                "credential_source": {"file": str(subject)},
            },
        )
        monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", file)
        with stage(tmp_path, server, VERTEX) as port:
            assert ask_model(port).status == 200
    exchange, impersonation, _ = server.seen
    assert exchange.form["subject_token"] == "token-of-the-cluster"
    assert exchange.form["audience"] == pool
    assert impersonation.json["scope"] == ["https://www.googleapis.com/auth/cloud-platform"]


def test_the_metadata_server_of_google(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cloud = Cloud()
    with serve_cloud(cloud.respond) as server:
        monkeypatch.setenv("GCE_METADATA_HOST", server.url.removeprefix("http://"))
        monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")  # it is never asked through a proxy
        with stage(tmp_path, server, VERTEX) as port:
            assert ask_model(port).status == 200
    captured = CAPTURED["credentials: google metadata server"][-1]
    assert server.seen[0].path == captured["path"]
    assert server.seen[0].headers["metadata-flavor"] == "Google"


def test_the_files_of_google_need_no_requests_library() -> None:
    """The extra has google-auth and cryptography alone."""
    code = """
import sys
sys.modules["requests"] = None
import google.auth, google.oauth2.service_account, google.auth.identity_pool, google.oauth2.credentials
import google.auth.impersonated_credentials
from toolwire.gateway.features.cloud_credentials.command import CommandSource
from toolwire.gateway.features.cloud_credentials.leases import CredentialProblem
from toolwire.gateway.features.cloud_credentials.google import GoogleSource
"""
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True)


@pytest.mark.parametrize("kind", FILE_KINDS.values(), ids=FILE_KINDS)
def test_google_auth_reads_each_kind_of_file(kind: FileKind) -> None:
    """It is called by name, so that nothing of it is imported before."""
    read = getattr(getattr(import_module(kind.module), kind.class_name), kind.method)
    signature(read).bind({}, **({"scopes": ["s"]} if kind.takes_scopes else {}))


FEDERATED = {
    "type": "external_account",
    "audience": "//iam.googleapis.com/projects/1/locations/global/workloadIdentityPools/p/providers/x",
    "subject_token_type": "urn:ietf:params:oauth:token-type:jwt",
}
FILES: dict[str, dict[str, Any]] = {
    "authorized_user": {"type": "authorized_user", "client_id": "c", "client_secret": "s", "refresh_token": SECRET},
    "external_account_authorized_user": {
        "type": "external_account_authorized_user",
        "audience": "//iam.googleapis.com/locations/global/workforcePools/p/providers/x",
        "client_id": "c",
        "client_secret": "s",
        "refresh_token": SECRET,
        "token_url": "{url}/token",
    },
    "impersonated_service_account": {
        "type": "impersonated_service_account",
        "service_account_impersonation_url": "https://iamcredentials.googleapis.com/v1/a@b:generateAccessToken",
        "source_credentials": {
            "type": "authorized_user", "client_id": "c", "client_secret": "s", "refresh_token": SECRET,
        },
    },
    "external_account": FEDERATED | {"token_url": "{url}/token", "credential_source": {"url": "{url}/subject"}},
    "external_account (executable)": FEDERATED
    | {"token_url": "{url}/token", "credential_source": {"executable": {"command": "{program}"}}},
    "external_account (AWS)": FEDERATED
    | {
        "subject_token_type": AWS_SUBJECT,
        "token_url": "{url}/token",
        "credential_source": {
            "environment_id": "aws1",
            "regional_cred_verification_url": "https://sts.{region}.amazonaws.com?Action=GetCallerIdentity",
        },
    },
}  # fmt: skip


@pytest.mark.parametrize("kind", FILES)
def test_each_kind_of_file_gives_a_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    cloud = Cloud()
    subject = {"version": 1, "success": True, "token_type": FEDERATED["subject_token_type"], "id_token": SECRET}
    (tmp_path / "subject.json").write_text(json.dumps(subject))
    monkeypatch.setenv("GOOGLE_EXTERNAL_ACCOUNT_ALLOW_EXECUTABLES", "1")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION"):
        monkeypatch.setenv(name, "eu-west-1")
    respond = lambda seen: Answer(200, SECRET.encode()) if seen.path == "/subject" else cloud.respond(seen)  # noqa: E731
    with serve_cloud(respond) as server:
        # google-auth takes these two addresses from no file.
        monkeypatch.setattr("google.oauth2.credentials._GOOGLE_OAUTH2_TOKEN_ENDPOINT", f"{server.url}/token")
        monkeypatch.setattr("google.auth.iam._IAM_ENDPOINT", f"{server.url}/{{}}:generateAccessToken")
        text = json.dumps(FILES[kind] | {"quota_project_id": "pays"})
        text = text.replace("{url}", server.url).replace("{program}", f"cat {tmp_path / 'subject.json'}")
        (tmp_path / "file.json").write_text(text)
        with stage(tmp_path, server, VERTEX + 'credentials_file = "file.json"\n') as port:
            got = ask_model(port)
            assert got.status == 200, got.json()
    assert server.seen[-1].headers["x-goog-user-project"] == "pays"
    if kind == "external_account (AWS)":
        assert "aws4_request" in server.seen[0].form["subject_token"]
    else:
        assert SECRET in server.seen[0].body.decode() + server.seen[-2].body.decode()


@pytest.mark.parametrize(
    ("info", "kind"),
    [
        ({"type": "service_account"}, "service_account"),
        ({"type": "external_account", "credential_source": {"file": "f"}}, "external_account"),
        ({"type": "external_account", "credential_source": {"executable": {}}}, "external_account (executable)"),
        ({"type": "external_account", "subject_token_type": AWS_SUBJECT}, "external_account (AWS)"),
    ],
)
def test_a_file_says_its_kind(info: dict[str, Any], kind: str) -> None:
    assert find_kind(info) == kind
    assert kind in FILE_KINDS


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (Answer(200, b"<html>"), "cannot be read"),
        (Answer(200, []), "cannot be read"),
        (Answer(302, b"", {"location": "http://127.0.0.1:1/"}), "redirect (302)"),
        (Answer(400, b"what?"), "what?"),
    ],
)
def test_an_odd_answer_to_a_service_account_is_said(tmp_path: Path, answer: Answer, words: str) -> None:
    with serve_cloud(lambda seen: answer) as server:
        service_account(tmp_path, server.url)
        with stage(tmp_path, server, f'{VERTEX}credentials_file = "service_account.json"\n') as port:
            message = ask_model(port).json()["error"]["message"]
    assert f"{urlsplit(server.url).netloc}: " in message
    assert words in message


def test_what_answers_without_its_header_is_no_metadata_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as the start page of a network, which answers for every name."""
    with serve_cloud(lambda seen: Answer(200, {"access_token": TOKEN, "expires_in": 3599})) as server:
        monkeypatch.setenv("GCE_METADATA_HOST", server.url.removeprefix("http://"))
        with stage(tmp_path, server, VERTEX) as port:
            got = ask_model(port)
    assert got.status == 503
    assert "is another server: its answer lacks `metadata-flavor`" in got.json()["error"]["message"]


def test_a_metadata_server_that_is_not_ready_is_asked_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As that of a new pod, also of Google (its own library waits as well)."""
    monkeypatch.setattr("toolwire.gateway.features.cloud_credentials.token_requests.PAUSES", (0.0, 0.0, 0.0))
    cloud = Cloud()
    answers = iter([Answer(503), Answer(429)])
    with serve_cloud(lambda seen: next(answers, None) or cloud.respond(seen)) as server:
        monkeypatch.setenv("GCE_METADATA_HOST", server.url.removeprefix("http://"))
        with stage(tmp_path, server, VERTEX) as port:
            assert ask_model(port).status == 200


@pytest.mark.parametrize("text", ["{", "[]", '{"type": "nobody"}', '{"type": "service_account"}', "\udcff"])
def test_a_file_that_is_none_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "broken.json").write_bytes(text.encode("utf-8", "surrogateescape"))
    more = 'credentials_file = "broken.json"\n'
    with serve_cloud(Cloud().respond) as server, stage(tmp_path, server, VERTEX + more) as port:
        got = ask_model(port)
    assert got.status == 503
    assert "Google Cloud" in got.json()["error"]["message"]
    assert not server.seen


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_the_models_of_vertex(tmp_path: Path, stream: bool) -> None:
    command = [sys.executable, "-c", f"print({TOKEN.format(0)!r})"]
    cloud = Cloud()
    with serve_cloud(cloud.respond) as server:
        text = f"{VERTEX}auth_command = {json.dumps(command)}\n"
        with stage(tmp_path, server, text) as port:
            for model in ("gemini-3.8-flash", "gpt-5.5", "meta/llama-5", "claude-opus-5-5@20261020"):
                got = ask_model(port, f"vertex/{model}", stream)
                assert got.status == 200
                assert text_of("anthropic", got, stream) == "Hello there."
    place = "/projects/proj/locations/global"
    verb, predict = (
        ("streamGenerateContent?alt=sse", "streamRawPredict") if stream else ("generateContent", "rawPredict")
    )
    assert server.paths == [
        f"/v1beta1{place}/publishers/google/models/gemini-3.8-flash:{verb}",
        f"/v1{place}/publishers/openai/v1/responses",
        f"/v1beta1{place}/endpoints/openapi/chat/completions",
        f"/v1{place}/publishers/anthropic/models/claude-opus-5-5@20261020:{predict}",
    ]
    assert server.seen[3].json.get("stream", False) is stream


def test_tokens_are_counted_by_vertex(tmp_path: Path) -> None:
    command = [sys.executable, "-c", f"print({TOKEN.format(0)!r})"]
    with (
        serve_cloud(Cloud().respond) as server,
        stage(tmp_path, server, f"{VERTEX}auth_command = {json.dumps(command)}\n") as port,
    ):
        body = {"model": "vertex/claude-opus-5-5", "messages": HELLO["messages"]}
        got = ask(port, "POST", "/v1/messages/count_tokens", json.dumps(body).encode())
    assert got.json() == {"input_tokens": 42}
    captured = CAPTURED["AnthropicVertex count_tokens"][0]
    assert server.paths == [captured["path"]]
    assert server.seen[0].json == {**captured["body"], "anthropic_version": "vertex-2023-10-16"}


# --- Azure ------------------------------------------------------------------------------------------------------------


def check_azure(server: FakeCloud, port: int) -> None:
    """A deployment of OpenAI's and one of Claude, both with the token."""
    for model in ("azure/my-deployment", "azure/claude-opus-5-5"):
        got = ask_model(port, model)
        assert got.status == 200, got.data
    assert server.paths[-2:] == ["/openai/v1/responses", "/anthropic/v1/messages"]
    assert {one.headers["authorization"] for one in server.seen[-2:]} == {f"Bearer {TOKEN.format(1)}"}
    assert not {"api-key", "x-api-key"} & server.seen[-1].headers.keys()


def sign_in(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    for name, value in {"TENANT_ID": "tenant-1", "CLIENT_ID": "client-1", "AUTHORITY_HOST": url}.items():
        monkeypatch.setenv(f"AZURE_{name}", value)


def test_a_client_secret_of_azure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serve_cloud(Cloud().respond) as server:
        sign_in(monkeypatch, server.url)
        monkeypatch.setenv("AZURE_CLIENT_SECRET", SECRET)
        with stage(tmp_path, server, f'{AZURE}auth = "entra"\n') as port:
            check_azure(server, port)
    asked = server.seen[0]
    assert asked.path == "/tenant-1/oauth2/v2.0/token"
    # Others asked for `ml.azure.com` and were refused (Azure/PyRIT#1453).
    wanted = {"client_id": "client-1", "client_secret": SECRET, "grant_type": "client_credentials"}
    assert asked.form == wanted | {"scope": "https://cognitiveservices.azure.com/.default"}


@pytest.mark.parametrize("method", ["entra", "managed-identity"])
def test_a_token_can_be_for_somebody_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str) -> None:
    """Azure API Management has an id of its own (microsoft/vscode#318111)."""
    monkeypatch.setenv("AZURE_CLIENT_SECRET", SECRET)
    text = f'{AZURE}auth = "{method}"\naudience = "api://apim/.default"\n'
    with serve_cloud(Cloud().respond) as server:
        sign_in(monkeypatch, server.url)
        monkeypatch.setenv("AZURE_POD_IDENTITY_AUTHORITY_HOST", server.url)
        with stage(tmp_path, server, text) as port:
            check_azure(server, port)
    asked = server.seen[0]
    assert asked.form.get("scope", "api://apim/.default") == "api://apim/.default"
    assert asked.query.get("resource", "api://apim") == "api://apim"
    assert asked.form or asked.query


def test_a_workload_identity_of_azure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serve_cloud(Cloud().respond) as server:
        sign_in(monkeypatch, server.url)
        file = tmp_path / "federated"
        file.write_text("token-of-the-cluster")
        monkeypatch.setenv("AZURE_FEDERATED_TOKEN_FILE", str(file))
        with stage(tmp_path, server, f'{AZURE}auth = "entra"\n') as port:
            check_azure(server, port)
    form = server.seen[0].form
    assert form["client_assertion"] == "token-of-the-cluster"
    assert "client_secret" not in form
    assert form["client_assertion_type"] == "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"


def test_the_managed_identity_of_a_machine_in_azure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its server says 404 and 5xx while it is not ready, and writes numbers as strings."""
    cloud = Cloud()
    busy = iter([404, 503])

    def respond(seen: Seen) -> Answer:
        if seen.path.startswith("/metadata/identity") and (status := next(busy, 0)):
            return Answer(status, {"error": "not ready"})
        return cloud.respond(seen)

    cloud.life = "3599"
    with serve_cloud(respond) as server:
        monkeypatch.setenv("AZURE_POD_IDENTITY_AUTHORITY_HOST", server.url)
        with stage(tmp_path, server, f'{AZURE}auth = "managed-identity"\n') as port:
            check_azure(server, port)
    assert len(server.seen) == 5
    assert server.seen[0].headers["metadata"] == "true"
    wanted = {"api-version": "2018-02-01", "resource": "https://cognitiveservices.azure.com"}
    assert server.seen[0].query == wanted


def test_the_managed_identity_of_an_app_in_azure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serve_cloud(Cloud().respond) as server:
        monkeypatch.setenv("IDENTITY_ENDPOINT", f"{server.url}/msi")
        monkeypatch.setenv("IDENTITY_HEADER", "header-of-the-app")
        monkeypatch.setenv("AZURE_CLIENT_ID", "uami-client-id")
        with stage(tmp_path, server, f'{AZURE}auth = "managed-identity"\n') as port:
            check_azure(server, port)
    asked = server.seen[0]
    assert asked.headers["x-identity-header"] == "header-of-the-app"
    wanted = {"api-version": "2019-08-01", "resource": "https://cognitiveservices.azure.com"}
    assert asked.query == wanted | {"client_id": "uami-client-id"}


def test_a_key_of_azure_is_in_its_own_header(tmp_path: Path) -> None:
    with serve_cloud(answer_model) as server, stage(tmp_path, server, f'{AZURE}api_key = "{SECRET}"\n') as port:
        for model in ("azure/my-deployment", "azure/claude-opus-5-5"):
            assert ask_model(port, model).status == 200
    first, second = server.seen
    assert first.headers["api-key"] == SECRET
    assert second.headers["x-api-key"] == SECRET


def test_no_api_version_is_sent_to_the_v1_api(tmp_path: Path) -> None:
    """Others demanded one there."""
    with serve_cloud(answer_model) as server, stage(tmp_path, server, f'{AZURE}api_key = "{SECRET}"\n') as port:
        ask_model(port, "azure/my-deployment")
    assert "api-version" not in server.paths[0]


@pytest.mark.parametrize(
    ("path", "body", "call"),
    [
        ("/v1/chat/completions", {"messages": HELLO["messages"]}, "AzureOpenAI chat"),
        ("/v1/responses", {"input": "hi"}, "AzureOpenAI responses"),
    ],
)
def test_a_deployment_is_in_the_path_where_a_version_is_asked_for(
    tmp_path: Path, path: str, body: dict[str, Any], call: str
) -> None:
    text = f'[providers.azure]\nbase_url = "{{url}}"\napi_version = "2025-04-01-preview"\napi_key = "{SECRET}"\n'
    with serve_cloud(answer_model) as server, stage(tmp_path, server, text) as port:
        got = ask(port, "POST", path, json.dumps({"model": "azure/my-dep", **body}).encode())
    assert got.status == 200
    captured = CAPTURED[call][0]
    assert server.paths == [captured["path"]]
    assert server.seen[0].json == {**captured["body"], "stream": False}


# --- commands ---------------------------------------------------------------------------------------------------------

FULL = json.dumps({"accessToken": TOKEN.format(0), "expiresOn": "2099-01-01 00:00:00.000000"})
COMMANDS = {
    "a token alone": f"print({TOKEN.format(0)!r})",
    "gcloud's JSON": f"print({json.dumps({'token': TOKEN.format(0), 'expires_in': 100})!r})",
    "az's JSON": f"print({FULL!r})",
}


@pytest.mark.parametrize("code", COMMANDS.values(), ids=COMMANDS)
def test_a_program_prints_a_token(tmp_path: Path, code: str) -> None:
    text = f"{VERTEX}auth_command = {json.dumps([sys.executable, '-c', code])}\n"
    with serve_cloud(Cloud().respond) as server, stage(tmp_path, server, text) as port:
        got = ask_model(port)
    assert got.status == 200, got.data


def test_any_provider_can_have_a_program(tmp_path: Path) -> None:
    command = json.dumps([sys.executable, "-c", f"print({TOKEN.format(0)!r})"])
    text = f'[providers.mine]\nprotocols = ["anthropic"]\nbase_url = "{{url}}"\nauth_command = {command}\n'
    with serve_cloud(Cloud().respond) as server, stage(tmp_path, server, text) as port:
        assert ask_model(port, "mine/m").status == 200


def test_a_changed_configuration_keeps_the_token() -> None:
    senders = CloudSenders(Unused(), {}, time.time, print)
    first = senders.find_authorizer(CloudAccess(method="google", credentials_file="a"))
    assert senders.find_authorizer(CloudAccess(method="google", credentials_file="a")) is first
    assert senders.find_authorizer(CloudAccess(method="google", credentials_file="b")) is not first


class Unused(UpstreamClient):
    def __init__(self) -> None:
        """Nothing is sent."""


FAILING = {
    "fails": ("import sys; sys.exit('sign in first\\npassword=hunter2-hunter2')", "it ended with 1: password="),
    "is silent": ("", "it prints no token"),
    "prints a page": ("print('<html>no token</html>  here')", "it prints no token"),
    "prints other JSON": ("print('{\"a\": 1}')", "its JSON has no token"),
}


@pytest.mark.parametrize(("code", "problem"), FAILING.values(), ids=FAILING)
def test_a_program_that_prints_none_is_named_and_nothing_of_it_is_shown(
    tmp_path: Path, code: str, problem: str
) -> None:
    text = f"{VERTEX}auth_command = {json.dumps([sys.executable, '-c', code])}\n"
    with serve_cloud(Cloud().respond) as server, stage(tmp_path, server, text) as port:
        got = ask_model(port)
    message = got.json()["error"]["message"]
    assert got.status == 503
    assert problem in message
    assert "`vertex`" in message
    assert "the command" in message
    assert "hunter2" not in message
    assert not server.seen


def test_a_program_that_prints_for_ever_is_ended(tmp_path: Path) -> None:
    """And not kept in memory meanwhile."""
    text = f"{VERTEX}auth_command = {json.dumps([sys.executable, '-c', 'while True: print(1)'])}\n"
    with serve_cloud(Cloud().respond) as server, stage(tmp_path, server, text) as port:
        got = ask_model(port)
    assert "it prints too much" in got.json()["error"]["message"]


def test_what_a_program_leaves_running_does_not_keep_anybody_waiting(tmp_path: Path) -> None:
    """It has the output of the program, which would end only with it."""
    code = f"""
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"])
open({str(tmp_path / "child")!r}, "w").write(str(child.pid))
print({TOKEN.format(0)!r})
"""
    text = f"{VERTEX}auth_command = {json.dumps([sys.executable, '-c', code])}\n"
    with serve_cloud(Cloud().respond) as server, stage(tmp_path, server, text) as port:
        assert ask_model(port).status == 200
    wait_until(lambda: not is_running(int((tmp_path / "child").read_text())))


@pytest.mark.parametrize("name", LOOPS)
def test_a_daemon_of_a_program_that_is_ended_does_not_keep_anybody_waiting(name: str, tmp_path: Path) -> None:
    """It is in a group of its own, and goes on with the program's output."""
    code = f"""
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"], start_new_session=True)
open({str(tmp_path / "child")!r}, "w").write(str(child.pid))
while True: print(1)
"""

    async def fetch() -> None:
        found = await CommandSource([sys.executable, "-c", code], time.time).fetch_token()
        assert isinstance(found, CredentialProblem)
        assert "it prints too much" in str(found)
        child = int((tmp_path / "child").read_text())
        assert is_running(child)
        os.kill(child, signal.SIGKILL)

    on_loop(name, fetch())


def is_running(pid: int) -> bool:
    """A process that has ended may still be in the list, as a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_program_that_is_missing_is_named(tmp_path: Path) -> None:
    text = VERTEX + 'auth_command = ["no-such-program-of-a-cloud"]\n'
    with serve_cloud(Cloud().respond) as server, stage(tmp_path, server, text) as port:
        message = ask_model(port).json()["error"]["message"]
    assert "`no-such-program-of-a-cloud`" in message
    assert "cannot be started" in message


# --- tokens that end, and endpoints that fail -------------------------------------------------------------------------


def test_a_token_that_was_revoked_is_replaced_before_the_client_notices(tmp_path: Path) -> None:
    """BerriAI/litellm#23512: it was sent until its end."""
    cloud = Cloud()
    with serve_cloud(cloud.respond) as server:
        service_account(tmp_path, server.url)
        with stage(tmp_path, server, f'{VERTEX}credentials_file = "service_account.json"\n') as port:
            assert ask_model(port).status == 200
            cloud.given += 1  # somebody else got a token, and only the newest is valid
            assert ask_model(port).status == 200
    assert len(server.seen) == 5


def test_two_hundred_requests_ask_for_one_token(tmp_path: Path) -> None:
    """BerriAI/litellm#26024."""
    cloud = Cloud()
    cloud.gate = threading.Event()
    with serve_cloud(cloud.respond) as server:
        service_account(tmp_path, server.url)
        text = f'{VERTEX}credentials_file = "service_account.json"\n'
        with stage(tmp_path, server, text) as port, ThreadPoolExecutor(200) as pool:
            asked = [pool.submit(ask_model, port) for _ in range(200)]
            cloud.gate.set()
            assert {one.result().status for one in asked} == {200}
    assert cloud.given == 1


def test_nobody_else_waits_for_a_slow_source(tmp_path: Path) -> None:
    cloud = Cloud()
    cloud.gate = threading.Event()
    other = (
        '[providers.other]\nprotocols = ["anthropic"]\nbase_url = "{url}"\napi_key = "'
        + TOKEN.format(0)
        + '"\nauth_header = "authorization"\n'
    )
    with serve_cloud(cloud.respond) as server:
        service_account(tmp_path, server.url)
        text = f'{VERTEX}credentials_file = "service_account.json"\n{other}'
        with stage(tmp_path, server, text) as port, ThreadPoolExecutor(4) as pool:
            slow = pool.submit(ask_model, port)
            assert [ask_model(port, "other/m").status for _ in range(5)] == [200] * 5
            assert not slow.done()
            cloud.gate.set()
            assert slow.result().status == 200


def test_a_stream_goes_on_when_its_token_has_ended(tmp_path: Path) -> None:
    cloud = Cloud()
    may_end = threading.Event()
    whole = b"".join(frames("anthropic"))

    with serve_cloud(cloud.respond) as server:
        service_account(tmp_path, server.url)

        def respond(seen: Seen) -> Answer:
            answer = cloud.respond(seen)
            if seen.path.endswith("streamRawPredict") and answer.status == 200:
                cloud.given += 1  # the token ends here
                may_end.set()
            return answer

        server.respond = respond
        with stage(tmp_path, server, f'{VERTEX}credentials_file = "service_account.json"\n') as port:
            got = ask_model(port, stream=True)
            assert may_end.is_set()
            assert text_of("anthropic", got, True) == "Hello there."
            assert got.data.count(b"event:") == whole.count(b"event:")
            assert ask_model(port).status == 200


def test_a_refusal_says_the_source_and_no_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cloud = Cloud()
    cloud.refuses = True
    with serve_cloud(cloud.respond) as server:
        sign_in(monkeypatch, server.url)
        monkeypatch.setenv("AZURE_CLIENT_SECRET", SECRET)
        with stage(tmp_path, server, f'{AZURE}auth = "entra"\n') as port:
            got = [ask_model(port, "azure/my-deployment") for _ in range(3)][-1]
    message = got.json()["error"]["message"]
    assert got.status == 503
    assert "the account is closed" in message
    assert "Microsoft Entra ID (client secret)" in message
    assert SECRET.encode() not in got.data
    assert len(server.seen) < 3  # a source that has failed is left alone for a while


@pytest.mark.parametrize("variable", ["AZURE_CLIENT_SECRET", "AZURE_FEDERATED_TOKEN_FILE", "IDENTITY_HEADER"])
def test_a_secret_that_a_token_endpoint_repeats_is_not_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    error = {"error": "invalid_client", "error_description": f"Invalid client secret provided: {SECRET}\r\nTrace: 1"}
    file = tmp_path / "token"
    file.write_text(SECRET)
    with serve_cloud(lambda seen: Answer(401, error)) as server:
        sign_in(monkeypatch, server.url)
        monkeypatch.setenv("IDENTITY_ENDPOINT", server.url)
        monkeypatch.setenv(variable, str(file) if variable.endswith("FILE") else SECRET)
        method = "managed-identity" if variable.startswith("IDENTITY") else "entra"
        with stage(tmp_path, server, f'{AZURE}auth = "{method}"\n') as port:
            got = ask_model(port, "azure/my-deployment")
    message = got.json()["error"]["message"]
    assert "Invalid client secret provided: [hidden] Trace: 1" in message
    assert SECRET not in message
    assert ("AZURE_CLIENT_ID" if method == "managed-identity" else variable) in message


def test_a_fallback_answers_while_there_is_no_token(tmp_path: Path) -> None:
    cloud = Cloud()
    cloud.refuses = True
    more = """auth = "entra"
[providers.other]
protocols = ["anthropic"]
base_url = "{url}"
api_key = "ya29.token-of-the-cloud-0123456789-0"
auth_header = "authorization"
[models.m]
provider = "azure"
fallbacks = ["other/m"]
"""
    with serve_cloud(cloud.respond) as server, stage(tmp_path, server, AZURE + more) as port:
        got = ask_model(port, "m")
    assert got.status == 200
    assert got.headers["x-toolwire-provider"] == "other"


def test_a_token_that_a_provider_repeats_is_not_shown(tmp_path: Path) -> None:
    token = TOKEN.format("x" * 60)
    echo = lambda seen: Answer(400, {"error": {"type": "invalid_request_error", "message": f"you sent {token}"}})  # noqa: E731
    text = f"{VERTEX}auth_command = {json.dumps([sys.executable, '-c', f'print({token!r})'])}\n"
    with serve_cloud(echo) as server, stage(tmp_path, server, text) as port:
        got = ask_model(port)
    assert got.status == 400
    assert token.encode() not in got.data
    assert token[-40:].encode() not in got.data


def test_no_secret_is_in_the_log_or_the_console(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Also with all bodies in the log, and where a cloud repeats what it got."""
    cloud = Cloud()

    def respond(seen: Seen) -> Answer:
        if seen.path.startswith("/openai"):  # a provider that repeats the token in an error
            return Answer(400, {"error": {"message": f"you sent {seen.headers['authorization']}"}})
        return cloud.respond(seen)

    file = tmp_path / "toolwire.toml"
    with serve_cloud(respond) as server:
        sign_in(monkeypatch, server.url)
        monkeypatch.setenv("AZURE_CLIENT_SECRET", SECRET)
        service_account(tmp_path, server.url)
        own = f'{VERTEX}credentials_file = "service_account.json"\n{AZURE}auth = "entra"\n'
        log = '[server]\nretries = 0\nlog_format = "json"\nlog_level = "debug"\nlog_bodies = true\n'
        file.write_text(log + own.replace("{url}", server.url))
        with serve_config(file) as url:
            port = int(url.rpartition(":")[2])
            answers = [ask_model(port, name) for name in ("vertex/claude-opus-5-5", "azure/my-deployment")]
            cloud.refuses = True
            cloud.given += 1  # what was given is not valid any more
            answers.append(ask_model(port))
            pages = [ask(port, "GET", f"{API_PATH}{page}") for page in ("state", "providers", "exchanges")]
            ids = [one["id"] for one in pages[-1].json()["exchanges"]]
            assert len(ids) == 3
            pages += [ask(port, "GET", f"{API_PATH}exchanges/{one}") for one in ids]
    assert [one.status for one in answers] == [200, 400, 503]
    assert {page.status for page in pages} == {200}
    captured = capfd.readouterr()
    shown = captured.out + captured.err + "".join(page.data.decode() for page in (*pages, *answers))
    assert '"event":"exchange"' in shown
    assert "credentials_unavailable" in shown
    key_line = PRIVATE.split("\n")[3]
    for secret in (SECRET, key_line, *(TOKEN.format(number) for number in range(4))):
        assert secret not in shown


# --- nothing of it where it is not configured -------------------------------------------------------------------------


def test_nothing_is_imported_where_no_cloud_is_configured(tmp_path: Path) -> None:
    code = """
import sys
from pathlib import Path
from toolwire.gateway.app import app
from toolwire.gateway.features import import_modules
file = Path(sys.argv[1])
gateway = app(file)
import_modules(gateway.config)
names = ("botocore", "google.auth", "toolwire.gateway.features.cloud_credentials.senders", "urllib.request", "http.client")
print([name for name in names if name in sys.modules])
"""
    file = tmp_path / "toolwire.toml"
    file.write_text('[providers.one]\nprotocols = ["anthropic"]\nbase_url = "http://127.0.0.1:1"\napi_key = "k"\n')
    run = subprocess.run([sys.executable, "-c", code, str(file)], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
