"""Amazon Bedrock: every request is signed as botocore signs it, on the path and with the body that the model needs."""

from __future__ import annotations

import json
import os
import threading
import time
from base64 import b64encode
from calendar import timegm
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from email.utils import formatdate
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from anthropic import AnthropicBedrock
from botocore.credentials import Credentials

from gateway.conftest import serve_config
from gateway.fake_clouds import CAPTURED, HELLO, SAMPLES, TOOL, Answer, FakeCloud, Seen, is_signed, serve_cloud
from gateway.provider import ScriptedAnswer
from gateway.raw_exchange import RawAnswer, RawConnection, ask, body_of, frames, text_of
from toolwire.core.event_stream import write_event
from toolwire.gateway.settings.config import Timeouts
from waits import PATIENCE

KEYS = Credentials("AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", "session-token-of-the-role-0123456789")
REGION = "eu-west-1"
EVENT_STREAM = {"content-type": "application/vnd.amazon.eventstream"}
OLD, NEW, ARN = (
    "global.anthropic.claude-opus-4-6-v1:0",
    "anthropic.claude-opus-5-5",
    "arn:aws:bedrock:us-east-1:123456789012:application-inference-profile/abc123",
)
SERVER = '[server]\nretries = 1\nlog_format = "none"\n'


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    set_keys(monkeypatch, KEYS)


def set_keys(monkeypatch: pytest.MonkeyPatch, keys: Credentials) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", keys.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", keys.secret_key)
    monkeypatch.setenv("AWS_SESSION_TOKEN", keys.token)


def respond(seen: Seen) -> Answer:
    """Bedrock: Claude by InvokeModel and by Messages, and models of OpenAI."""
    if seen.path.endswith("/invoke-with-response-stream"):
        return Answer(200, (SAMPLES / "invoke_anthropic_tool_use.bin").read_bytes(), EVENT_STREAM)
    protocol = {"/openai/v1/chat/completions": "openai-chat", "/openai/v1/responses": "openai-responses"}.get(
        seen.path, "anthropic"
    )
    if seen.json.get("stream"):
        return Answer(200, b"".join(frames(protocol)), {"content-type": "text/event-stream"})
    return Answer(200, body_of(protocol, ScriptedAnswer("Hello there.")))


@contextmanager
def stage(folder: Path, cloud: FakeCloud, more: str = "", region: str = REGION, server: str = SERVER) -> Iterator[int]:
    file = folder / "toolwire.toml"
    file.write_text(f'{server}[providers.bedrock]\nregion = "{region}"\nbase_url = "{cloud.url}"\n{more}')
    with serve_config(file) as url:
        yield int(url.rpartition(":")[2])


def ask_claude(port: int, model: str, stream: bool = False, headers: dict[str, str] | None = None) -> RawAnswer:
    body = {"model": f"bedrock/{model}", **HELLO, "tools": [TOOL], "stream": stream}
    return ask(port, "POST", "/v1/messages", json.dumps(body).encode(), headers)


# --- paths, bodies and signatures -------------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_an_older_claude_is_asked_by_invoke_model(tmp_path: Path, stream: bool) -> None:
    call = "AnthropicBedrock.messages.create stream" if stream else "AnthropicBedrock.messages.create"
    with serve_cloud(respond) as cloud, stage(tmp_path, cloud) as port:
        got = ask_claude(port, OLD, stream, {"anthropic-version": "2026-10-21"})
    assert got.status == 200, got.data
    (seen,) = cloud.seen
    assert is_signed(seen, KEYS, REGION, "bedrock")
    captured = CAPTURED[call][0]
    assert seen.path == captured["path"].replace("claude-opus-5-5-v1:0", "claude-opus-4-6-v1%3A0")
    tools = [TOOL]
    assert seen.json == {**captured["body"], "tools": tools, "anthropic_version": "bedrock-2023-05-31"}
    assert not {"anthropic-version", "anthropic-beta", "x-api-key"} & seen.headers.keys()
    if stream:
        assert b'"partial_json":"{\\"location\\":\\"Paris\\"}"' in got.data
        assert got.data.rstrip().startswith(b"event: message_start")
        assert b"event: message_stop" in got.data
    else:
        assert b"Hello there." in got.data


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_a_newer_claude_is_asked_in_messages(tmp_path: Path, stream: bool) -> None:
    with serve_cloud(respond) as cloud, stage(tmp_path, cloud) as port:
        got = ask_claude(port, NEW, stream)
    assert got.status == 200
    assert text_of("anthropic", got, stream) == "Hello there."
    (seen,) = cloud.seen
    assert is_signed(seen, KEYS, REGION, "bedrock")
    assert seen.path == CAPTURED["AnthropicBedrockMantle api_key"][0]["path"]
    assert seen.json["model"] == NEW
    assert "anthropic_version" not in seen.json
    assert seen.headers["anthropic-version"]


@pytest.mark.parametrize(
    ("path", "body", "wanted"),
    [
        ("/v1/chat/completions", {"messages": HELLO["messages"]}, "/openai/v1/chat/completions"),
        ("/v1/responses", {"input": "hi"}, "/openai/v1/responses"),
        ("/v1/messages", HELLO, "/openai/v1/responses"),
    ],
)
def test_models_of_openai_are_asked_in_their_protocols(
    tmp_path: Path, path: str, body: dict[str, Any], wanted: str
) -> None:
    with serve_cloud(respond) as cloud, stage(tmp_path, cloud) as port:
        got = ask(port, "POST", path, json.dumps({"model": "bedrock/openai.gpt-5.5", **body}).encode())
    assert got.status == 200, got.data
    (seen,) = cloud.seen
    assert seen.path == wanted
    assert is_signed(seen, KEYS, REGION, "bedrock")


def respond_in_converse(seen: Seen) -> Answer:
    name = "text.bin" if seen.path.endswith("-stream") else "whole_text.json"
    data = (SAMPLES.parent / "bedrock_converse" / name).read_bytes()
    return Answer(200, data, EVENT_STREAM if name == "text.bin" else {})


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("model", ["amazon.nova-pro-v1:0", ARN], ids=["nova", "ARN"])
def test_other_models_are_asked_in_converse(tmp_path: Path, model: str, stream: bool) -> None:
    with serve_cloud(respond_in_converse) as cloud, stage(tmp_path, cloud) as port:
        got = ask_claude(port, model, stream)
    assert got.status == 200, got.data
    assert text_of("anthropic", got, stream)
    (seen,) = cloud.seen
    assert is_signed(seen, KEYS, REGION, "bedrock")
    name = model.replace(":", "%3A").replace("/", "%2F")
    assert seen.path == f"/model/{name}/converse{'-stream' if stream else ''}"


def test_an_arn_says_nothing_of_its_model_until_the_operator_does(tmp_path: Path) -> None:
    """maximhq/bifrost#6933: what a model can was guessed from an id that is an ARN."""
    rule = f'[models.mine]\nprovider = "bedrock"\nmodel = "{ARN}"\nprotocol = "anthropic"\n'
    with serve_cloud(respond) as cloud, stage(tmp_path, cloud, rule) as port:
        got = ask(port, "POST", "/v1/messages", json.dumps({"model": "mine", **HELLO}).encode())
    assert got.status == 200, got.data
    (seen,) = cloud.seen
    assert seen.path == f"/model/{ARN.replace(':', '%3A').replace('/', '%2F')}/invoke"
    assert is_signed(seen, KEYS, REGION, "bedrock")


@pytest.mark.parametrize(
    ("url", "service"),
    [
        ("https://bedrock-runtime.us-east-1.amazonaws.com", "bedrock"),
        ("https://bedrock-mantle.us-east-1.api.aws", "bedrock-mantle"),
        ("https://aws-external-anthropic.us-east-1.api.aws", "aws-external-anthropic"),
    ],
)
def test_the_host_says_which_service_is_signed_for(tmp_path: Path, url: str, service: str) -> None:
    from configs import load_config

    file = tmp_path / "toolwire.toml"
    file.write_text(f'[providers.bedrock]\nregion = "us-east-1"\nbase_url = "{url}"\n')
    assert load_config(file, os.environ).providers["bedrock"].access.service == service


# --- betas ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("model", "in_body"), [(OLD, True), (NEW, False)], ids=["invoke", "messages"])
def test_a_beta_that_bedrock_does_not_know_is_left_out_and_reported(tmp_path: Path, model: str, in_body: bool) -> None:
    """BerriAI/litellm#19877, router-for-me/CLIProxyAPI#4750: one unknown flag, and every request is refused."""
    betas = "context-1m-2025-08-07, prompt-caching-scope-2026-01-05, advanced-tool-use-2025-11-20, "
    betas += "tool-search-tool-2025-10-19"  # the same one by the clouds' name
    with serve_cloud(respond) as cloud, stage(tmp_path, cloud) as port:
        got = ask_claude(port, model, headers={"anthropic-beta": betas})
    (seen,) = cloud.seen
    kept = ["context-1m-2025-08-07", "tool-search-tool-2025-10-19"]
    assert seen.json.get("anthropic_beta") == (kept if in_body else None)
    assert seen.headers.get("anthropic-beta") == (None if in_body else ",".join(kept))
    assert got.headers["x-toolwire-losses"] == "1; codes=no-counterpart"


# --- keys that a server repeats ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("more", ['api_key = "bedrock-api-key-0123456789abcdef"\n', ""], ids=["key", "signed"])
def test_a_key_in_a_chunk_reaches_nobody(tmp_path: Path, more: str) -> None:
    """In a chunk it is in base64, and the SDK puts the pieces of a text together."""
    secret = more.partition('"')[2].rstrip('"\n') or KEYS.token
    texts = ["The key is ", secret, " or ", secret[:9], secret[9:], "."]

    def repeat_key(_: Seen) -> Answer:
        events = [
            {"type": "message_start", "message": {"id": "m", "type": "message", "role": "assistant", "content": []}},
            {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
            *({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": t}} for t in texts),
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 3}},
            {"type": "message_stop"},
        ]
        chunks = [json.dumps({"bytes": b64encode(json.dumps(one).encode()).decode()}).encode() for one in events]
        return Answer(200, b"".join(write_event("chunk", chunk) for chunk in chunks), EVENT_STREAM)

    with serve_cloud(repeat_key) as cloud, stage(tmp_path, cloud, more) as port:
        got = ask_claude(port, OLD, stream=True)
    assert text_of("anthropic", got, True) == "The key is [key] or [key]."
    assert b"event: message_stop" in got.data


def test_no_beta_is_added(tmp_path: Path) -> None:
    """anthropics/claude-code#56595: a gateway added flags that nobody had asked for."""
    with serve_cloud(respond) as cloud, stage(tmp_path, cloud) as port:
        ask_claude(port, OLD)
    assert "anthropic_beta" not in cloud.seen[0].json
    assert "anthropic-beta" not in cloud.seen[0].headers


# --- credentials that end, and clocks that differ ---------------------------------------------------------------------


def test_a_request_that_is_repeated_is_signed_again(tmp_path: Path) -> None:
    answers = iter([Answer(500, {"message": "try again"}), None])

    def fail_once(seen: Seen) -> Answer:
        return next(answers) or respond(seen)

    with serve_cloud(fail_once) as cloud, stage(tmp_path, cloud) as port:
        assert ask_claude(port, NEW).status == 200
    assert len(cloud.seen) == 2
    assert all(is_signed(seen, KEYS, REGION, "bedrock") for seen in cloud.seen)


def refuse_others(keys: Credentials, error: Answer) -> Any:
    return lambda seen: respond(seen) if is_signed(seen, keys, REGION, "bedrock") else error


EXPIRED = Answer(
    403,
    {"message": "The security token included in the request is expired"},
    {"x-amzn-errortype": "ExpiredTokenException"},
)


@pytest.mark.parametrize("error", [EXPIRED, Answer(403, EXPIRED.body)], ids=["header", "body"])
def test_keys_that_have_ended_are_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Answer) -> None:
    """A key that is read at the start only is dead after an hour (livekit/agents#1084)."""
    new = Credentials("AKIDNEW", "another-secret-0123456789", "another-token-0123456789")
    with serve_cloud(respond) as cloud, stage(tmp_path, cloud) as port:
        assert ask_claude(port, NEW).status == 200
        cloud.respond = refuse_others(new, error)
        set_keys(monkeypatch, new)
        assert ask_claude(port, NEW).status == 200
    assert len(cloud.seen) == 3


ERRORS = {
    "ValidationException": (400, "invalid_request_error"),
    "AccessDeniedException": (403, "permission_error"),
    "ResourceNotFoundException": (404, "not_found_error"),
    "ThrottlingException": (429, "rate_limit_error"),
    "InternalServerException": (500, "api_error"),
}
"""What AWS says, and what Anthropic calls it."""


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("model", [OLD, NEW])
@pytest.mark.parametrize("name", ERRORS)
def test_an_error_of_aws_has_the_clients_shape(tmp_path: Path, name: str, model: str, stream: bool) -> None:
    """Also where the protocol is the client's own: the error is not of that protocol."""
    status, kind = ERRORS[name]
    error = Answer(status, {"message": "It said so."}, {"x-amzn-errortype": f"{name}:http://internal.amazon.com/"})
    with serve_cloud(lambda seen: error) as cloud, stage(tmp_path, cloud, server=SERVER.replace("= 1", "= 0")) as port:
        got = ask_claude(port, model, stream)
        body = {"anthropic_version": "bedrock-2023-05-31", **HELLO}
        verb = "invoke-with-response-stream" if stream else "invoke"
        invoked = ask(port, "POST", f"/model/bedrock%2F{quote(model)}/{verb}", json.dumps(body).encode())
    said = got.json()
    assert (got.status, said["type"], said["error"]["type"]) == (status, "error", kind)
    assert said["error"]["message"].startswith("It said so. (from the provider `bedrock`")
    assert invoked.headers["x-amzn-errortype"] == name
    assert invoked.json()["message"].startswith("It said so.")


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/responses"])
def test_an_error_of_aws_has_the_shape_of_openai(tmp_path: Path, path: str) -> None:
    error = Answer(403, {"Message": "It said so."}, {"x-amzn-errortype": "AccessDeniedException"})
    body = {"model": "bedrock/openai.gpt-5.5", "input": "hi", "messages": [{"role": "user", "content": "hi"}]}
    body.pop("messages" if path == "/v1/responses" else "input")
    with serve_cloud(lambda seen: error) as cloud, stage(tmp_path, cloud) as port:
        got = ask(port, "POST", path, json.dumps(body).encode())
    assert got.status == 403
    assert got.json()["error"].keys() >= {"message", "type", "param", "code"}
    assert got.json()["error"]["message"].startswith("It said so.")


def test_keys_that_stay_refused_are_asked_for_once(tmp_path: Path) -> None:
    with serve_cloud(lambda seen: EXPIRED) as cloud, stage(tmp_path, cloud) as port:
        got = ask_claude(port, NEW)
        assert got.status == 403
        assert b"expired" in got.data
        assert len(cloud.seen) == 2
        ask_claude(port, NEW)
        assert len(cloud.seen) == 3


def test_a_refusal_of_another_kind_is_not_repeated(tmp_path: Path) -> None:
    denied = Answer(403, {"message": "no access to the model"}, {"x-amzn-errortype": "AccessDeniedException"})
    with serve_cloud(lambda seen: denied) as cloud, stage(tmp_path, cloud) as port:
        got = ask_claude(port, NEW)
    assert got.status == 403
    assert b"no access to the model" in got.data
    assert len(cloud.seen) == 1


def check_time(seen: Seen, hours: int) -> Answer:
    """AWS, where it is some hours later: it refuses signatures that are five minutes off, and says its own time."""
    now = time.time() + hours * 3600
    signed = timegm(time.strptime(seen.headers["x-amz-date"], "%Y%m%dT%H%M%SZ"))
    if abs(signed - now) < 300:
        return respond(seen)
    kind = {"x-amzn-errortype": "InvalidSignatureException", "date": formatdate(now, usegmt=True)}
    return Answer(403, {"message": "Signature not yet current"}, kind)


@pytest.mark.parametrize("hours", [-2, 2])
def test_a_clock_that_is_off_is_noticed_once(tmp_path: Path, hours: int) -> None:
    with serve_cloud(lambda seen: check_time(seen, hours)) as cloud, stage(tmp_path, cloud) as port:
        assert [ask_claude(port, NEW).status for _ in range(3)] == [200, 200, 200]
    assert len(cloud.seen) == 4
    assert all(is_signed(seen, KEYS, REGION, "bedrock") for seen in cloud.seen)


def test_all_requests_that_were_signed_with_a_wrong_clock_are_repeated(tmp_path: Path) -> None:
    """Not only the first one: the others are refused when the right time is known already."""
    count = 8
    refused = threading.Barrier(count)

    def refuse_together(seen: Seen) -> Answer:
        answer = check_time(seen, 2)
        if answer.status == 403:
            refused.wait(PATIENCE)
        return answer

    with (
        serve_cloud(refuse_together) as cloud,
        stage(tmp_path, cloud) as port,
        ThreadPoolExecutor(count) as pool,
    ):
        asked = [pool.submit(ask_claude, port, NEW) for _ in range(count)]
        assert [one.result().status for one in asked] == [200] * count
    assert len(cloud.seen) == 2 * count


def test_a_wrong_signature_without_a_difference_of_clocks_is_not_repeated(tmp_path: Path) -> None:
    error = json.loads((SAMPLES.parent / "bedrock_converse" / "error_403_signature.json").read_text())
    kind = {"x-amzn-errortype": "InvalidSignatureException", "date": formatdate(time.time(), usegmt=True)}
    with serve_cloud(lambda seen: Answer(403, error, kind)) as cloud, stage(tmp_path, cloud) as port:
        assert ask_claude(port, NEW).status == 403
    assert len(cloud.seen) == 1


# --- keys of Bedrock --------------------------------------------------------------------------------------------------


def test_a_key_of_bedrock_is_a_bearer_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_BEARER_TOKEN_BEDROCK", "bedrock-key-0123456789")
    with serve_cloud(respond) as cloud, stage(tmp_path, cloud) as port:
        for model in (OLD, NEW):
            assert ask_claude(port, model).status == 200
    assert {seen.headers["authorization"] for seen in cloud.seen} == {"Bearer bedrock-key-0123456789"}
    assert not any("x-amz-date" in seen.headers for seen in cloud.seen)


def test_a_key_that_has_ended_is_made_again(tmp_path: Path) -> None:
    """AWS says 403 of it, in words or in a header."""
    answers = iter([EXPIRED])
    server = serve_cloud(lambda seen: next(answers, None) or respond(seen))
    with server as cloud, stage(tmp_path, cloud, 'auth = "aws-key"\n') as port:
        assert ask_claude(port, NEW).status == 200
    assert len(cloud.seen) == 2


def test_a_key_of_bedrock_is_made_once(tmp_path: Path) -> None:
    with serve_cloud(respond) as cloud, stage(tmp_path, cloud, 'auth = "aws-key"\n') as port:
        for _ in range(3):
            assert ask_claude(port, NEW).status == 200
    (key,) = {seen.headers["authorization"] for seen in cloud.seen}
    assert key.startswith("Bearer bedrock-api-key-")


# --- streams ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sample", "kind", "message"),
    [
        ("invoke_anthropic_exception.bin", "rate_limit_error", "Too many requests, please wait before trying again."),
        ("invoke_anthropic_error_event.bin", "overloaded_error", "Overloaded"),
    ],
)
def test_an_exception_in_a_stream_is_an_error(tmp_path: Path, sample: str, kind: str, message: str) -> None:
    data = (SAMPLES / sample).read_bytes()
    with serve_cloud(lambda seen: Answer(200, data, EVENT_STREAM)) as cloud, stage(tmp_path, cloud) as port:
        got = ask_claude(port, OLD, stream=True)
    assert message.encode() in got.data
    assert b"message_stop" not in got.data
    assert kind.encode() in got.data or got.status in (429, 529)


def test_a_silent_stream_is_kept_alive(tmp_path: Path) -> None:
    """Others cut streams of Bedrock that were silent for two minutes (OpenRouterTeam/ai-sdk-provider#440)."""
    data = (SAMPLES / "invoke_anthropic_tool_use.bin").read_bytes()
    may_go_on = threading.Event()

    def write(send: Callable[[bytes], None]) -> None:
        send(data[:700])
        assert may_go_on.wait(PATIENCE)
        send(data[700:])

    with serve_cloud(lambda seen: Answer(200, write, EVENT_STREAM)) as cloud:
        server = SERVER.replace("retries = 1", "retries = 1\nheartbeat = 0.02")
        with stage(tmp_path, cloud, server=server) as port:
            line = RawConnection(port)
            body = {"model": f"bedrock/{OLD}", **HELLO, "tools": [TOOL], "stream": True}
            line.send("POST", "/v1/messages", json.dumps(body).encode())
            response = line.start()
            seen = b""
            while seen.count(b"event: ping") < 3:
                seen += response.read1()
            may_go_on.set()
            seen += response.read()
            line.connection.close()
    assert seen.count(b"event: message_start") == 1
    assert seen.rstrip().endswith(b"}")
    assert b"event: message_stop" in seen
    assert Timeouts().between_bytes >= 300


# --- what leaves the gateway ------------------------------------------------------------------------------------------


def test_no_credential_of_a_client_reaches_a_cloud(tmp_path: Path) -> None:
    names = (
        "authorization", "x-api-key", "api-key", "x-goog-api-key", "x-amz-security-token", "x-amz-date", "cookie",
        "x-amz-content-sha256", "amz-sdk-request", "x-goog-user-project", "openai-organization", "openai-project",
        "anthropic-workspace-id",
    )  # fmt: skip
    value = "credential-of-the-client"
    with serve_cloud(respond) as cloud, stage(tmp_path, cloud) as port:
        for model in (OLD, NEW):
            assert ask_claude(port, model, headers=dict.fromkeys(names, value)).status == 200
    for seen in cloud.seen:
        assert is_signed(seen, KEYS, REGION, "bedrock")
        assert value not in repr(seen)


def test_a_redirect_is_not_followed(tmp_path: Path) -> None:
    with serve_cloud(respond) as other:
        away = Answer(307, b"", {"location": f"{other.url}/anthropic/v1/messages"})
        with serve_cloud(lambda seen: away) as cloud, stage(tmp_path, cloud) as port:
            got = ask_claude(port, NEW)
    assert got.status == 502
    assert not other.seen


def test_a_refusal_names_the_credentials(tmp_path: Path) -> None:
    denied = Answer(403, {"message": "no access to the model"}, {"x-amzn-errortype": "AccessDeniedException"})
    with serve_cloud(lambda seen: denied) as cloud, stage(tmp_path, cloud) as port:
        got = ask(port, "POST", "/v1/chat/completions", json.dumps({"model": f"bedrock/{NEW}", **HELLO}).encode())
    assert "check what the credentials of AWS may use" in got.json()["error"]["message"]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_anthropics_sdk_for_bedrock_reaches_bedrock_through_the_gateway(tmp_path: Path, stream: bool) -> None:
    """It signs for AWS; the gateway signs again, with the credentials that it has."""
    rule = f'[models."{OLD}"]\nprovider = "bedrock"\n'
    with serve_cloud(respond) as cloud, stage(tmp_path, cloud, rule) as port:
        url = f"http://127.0.0.1:{port}"
        own = {"aws_access_key": "AKIDCLIENT", "aws_secret_key": "of-the-client", "aws_region": "us-east-1"}
        with AnthropicBedrock(base_url=url, max_retries=0, **own) as client:
            asked: Any = {"model": OLD, "max_tokens": 10, "messages": HELLO["messages"], "tools": [TOOL]}
            if stream:
                with client.messages.stream(**asked) as events:
                    message = events.get_final_message()
            else:
                message = client.messages.create(**asked)
    assert message.content[0].type == ("tool_use" if stream else "text")
    (seen,) = cloud.seen
    assert is_signed(seen, KEYS, REGION, "bedrock")
    assert seen.path.partition("/invoke")[0] == f"/model/{OLD.replace(':', '%3A')}"
    assert seen.json["anthropic_version"] == "bedrock-2023-05-31"
