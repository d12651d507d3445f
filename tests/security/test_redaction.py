"""No secret reaches a log: whatever it is called, however it is written, in lines, debug lines, events and bodies."""

from __future__ import annotations

import base64
import json
import string
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gateway.exchange_records import make_record
from gateway.raw_exchange import PROVIDERS, Served, answer, call, refusal, stage, whole_answer
from security.plain_redaction import redact_plainly
from toolwire.gateway.http import redact as redact_module
from toolwire.gateway.http.redact import (
    REDACTED,
    SecretFilter,
    hide_secrets,
    make_key_filter,
    redact,
    redact_body,
    safe_name,
)
from toolwire.gateway.settings.config import Config, Provider, Secret, ServerSettings, StoreSettings
from toolwire.gateway.telemetry.telemetry import Telemetry
from waits import PATIENCE

WORDS = ["token", "secret", "password", "passwd", "passphrase", "authorization", "api_key", "apikey", "access-key", "private_key", "credential", "cookie"]  # fmt: skip
NAMES = st.builds(
    lambda before, word, after, case: case(before + word + after),
    st.sampled_from(["", "x-", "X_", "my-", "DB_", "client.", "access_", "refresh-", "aws_session_", "session", "auth-", "github"]),
    st.sampled_from(WORDS),
    st.sampled_from(["", "_", "-v2", "2", "_value", "Hash", "_env"]),
    st.sampled_from([str, str.upper, str.title, str.swapcase, str.lower]),
)  # fmt: skip
VALUES = st.text(string.ascii_letters + string.digits + "+/=_-.~!$*", min_size=4, max_size=60).map(lambda t: f"hu5h{t}")
"""Each has `hu5h` in it, which nothing else has."""


def _nest_json(name: str, value: str, depth: int) -> str:
    """JSON within JSON, as tool arguments are."""
    text = json.dumps({"a": 1, name: value, "b": "visible"})
    for _ in range(depth):
        text = json.dumps({"arguments": text})
    return text


FORMS = {
    "json": lambda name, value: _nest_json(name, value, 0),
    "json in json": lambda name, value: _nest_json(name, value, 1),
    "json in json in json": lambda name, value: _nest_json(name, value, 3),
    "spaced json": lambda name, value: f'{{ "{name}" : "{value}" , "b": "visible" }}',
    "list": lambda name, value: json.dumps({name: [value], "b": "visible"}),
    "cut json": lambda name, value: f'{{"b": "visible", "{name}":"{value}',
    "python": lambda name, value: repr({"b": "visible", name: value}),
    "python bytes": lambda name, value: repr({"b": "visible", name: value.encode()}),
    "pair": lambda name, value: repr([("b", "visible"), (name, value)]),
    "header": lambda name, value: f"b: visible\n{name}: {value}\n",
    "header with a scheme": lambda name, value: f"visible {name}: Bearer {value}",
    "variable": lambda name, value: f"visible {name}={value} visible",
    "quoted variable": lambda name, value: f'visible {name}="{value} {value}" visible',
    "query": lambda name, value: f"visible https://h.example/p?a=b&{name}={value}&c=visible",
    "argument": lambda name, value: f"visible run --{name} {value} visible",
    "argument with =": lambda name, value: f"visible run --{name}={value}",
}


@pytest.mark.parametrize("form", FORMS)
@given(name=NAMES, value=VALUES)
def test_a_value_is_hidden_by_its_name(form: str, name: str, value: str) -> None:
    text = FORMS[form](name, value)
    shown = redact(text)
    assert "hu5h" not in shown
    assert "visible" in shown
    assert name in shown


@given(NAMES, st.text(max_size=40), st.integers(0, 3))
def test_the_rest_of_the_json_is_still_json(name: str, value: str, depth: int) -> None:
    shown = json.loads(redact(_nest_json(name, f"hu5h {value} hu5h", depth)))
    for _ in range(depth):
        shown = json.loads(shown["arguments"])
    assert shown == {"a": 1, name: REDACTED, "b": "visible"}


USERS = st.text(string.ascii_letters + string.digits + "_-.%", max_size=12)
PASSWORDS = st.text(string.ascii_letters + string.digits + "@:/?#%!$&+=-_", max_size=20).map(lambda t: f"hu5h{t}hu5h")


@given(
    st.sampled_from(["https", "postgresql", "redis", "mongodb+srv", "amqp"]), USERS | NAMES, PASSWORDS, st.booleans()
)
@example("https", "TOKEN", "hu5hhu5h", False)
def test_passwords_in_urls_are_hidden(scheme: str, user: str, password: str, is_escaped: bool) -> None:
    text = f"cannot reach {scheme}://{user}:{password}@db.example:5432/x today"
    shown = redact(text.replace("/", "\\/") if is_escaped else text)
    assert "hu5h" not in shown
    if "cookie" not in user.lower():  # that may be a header: all of its line is hidden
        assert "db.example" in shown


@pytest.mark.parametrize(
    "text",
    [
        "Authorization: Basic hu5haHU1aA==",
        "authorization: Digest username=\"x\", response=\"hu5h\"".replace('"', ""),
        "Authorization: AWS4-HMAC-SHA256 Credential=hu5h/2026, Signature=hu5h",
        "Cookie: a=hu5h; b=hu5h",
        "Set-Cookie: session=hu5h; HttpOnly",
        "the server said: bearer hu5h0123",
        "Bearer  hu5habcdefgh",
        "token=Bearer%20hu5habcdefgh",
        "invalid password 'hu5h hu5h'",
        'the token "hu5hhu5h" has expired',
        "the secret is `hu5hhu5h`",
        "eyJhdTVoaHU1aGh1NWg.eyJodTVo.hu5h",
        "glpat-hu5hhu5hhu5h0",
        "ASIAHU5HHU5HHU5HHU5H",
        f"/v1/tw-{'hu5h' * 10}_-x/chat/completions",  # a client key as `toolwire keys new` makes it
        "-----BEGIN RSA PRIVATE KEY-----\nhu5h\n-----END RSA PRIVATE KEY-----",
        "-----BEGIN PRIVATE KEY-----\nhu5h",
        '{"password": 123450}',
        f"SignedHeaders=host;x-amz-date, Signature={'12345067' * 8}",
        f"https://h.example/?X-Amz-Expires=60&X-Amz-Signature={'12345067' * 8}&Version=1",
    ],
)  # fmt: skip
def test_other_forms_are_hidden(text: str) -> None:
    shown = redact(text)
    assert "hu5h" not in shown.lower()
    assert "123450" not in shown
    assert REDACTED in shown


@pytest.mark.parametrize(
    "text",
    [
        '{"max_tokens":4096,"total_tokens":5,"token_count":7,"maxOutputTokens":3,"budget_tokens":1024}',
        '{"completion_tokens_details":{"reasoning_tokens":3},"input_tokens":9}',
        '{"token":"Hello","logprob":-0.1,"bytes":[72]}',
        '{"token":" wor","bytes":[1],"logprob":-0.1}',
        "max_tokens: 4096 is too large",
        "the bearer token is wrong",
        "unexpected token } in JSON",
        "api key is missing",
        "http://localhost:8080/a@b and https://h.example:443/x?y=me@example.com",
        '{"tokenizer":"cl100k","author":"me","keyboard":"qwerty"}',
        '{"password":null,"secret":{"type":"string"}}',
        "a sk-it task-force and desk-abcdefghijklmnopq",
        f"tw-call-{'0' * 32}, an id of the gateway's own",
        "def call(signature=inspect.signature(function), checks_signature=True)",
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    assert redact(text) == text


@pytest.mark.parametrize(
    "piece",
    ["\\", '"', "token", "://a:b", "-", '"password":"', "token=", "token ", '"' + "a" * 63, "a.", "-----BEGIN ", '\\"', '"password" ', '"token":"a",', "sk-", "bearer ", "password 'x", "cookie: ", "-eyJ", "eyJ", "key", "apikey ", "://", ":\\/\\/:", "-----BEGIN PRIVATE KEY----- ", "-----END ", "sk-x ", '"token":[', "--token "],
)  # fmt: skip
def test_no_text_takes_long(piece: str) -> None:
    """In a quadratic search each of these would take a minute."""
    redact(piece * (200_000 // len(piece)))


# --- the same as one search over the whole text ---

PIECES = st.sampled_from(
    [
        *WORDS, "key", "api", "api_key", "subscription.keys", "max_", "s", "jwt", "pwd", "pass", "auth", "bearer", "Bearer ", "set-cookie: ", "authorization: digest ",
        "toKen", "paſſword", "credentİal", "credentıal", "API-\u212aEY", "id", "_count", "set-", "is ", "'", '"', "`", "\\", "\\" * 14, '\\"', '": "', "': '", "=", ":", " ", "\t", "\n", "  ", "--", "-",
        ".", ",", "[", "]", "[hidden]", "{", "}", "=>", "%3d", "%20", "null", "true", "logprob", "bytes", '"logprob"', "b'", "://", ":\\/\\/", ":/\\/", "user:", "pa/s:s@", "@h", ":80", "/", "sk-", "gsk_", "hf.", "ghp_", "tw-",
        "github_pat_", "npm_", "xoxb-", "AKIA", "AIza", "ya29.", "bedrock-api-key-", "Signature=", "0a" * 32, "eyJ", "eyJhbGciOiJI", ".abcd", "-----BEGIN RSA PRIVATE KEY-----", "-----BEGIN ", "-----END PRIVATE KEY-----", "PRIVATE KEY-----",
        "hu5h", "hu5hhu5hhu5h", "0123456789", "é", "日本", "x" * 60, "x" * 70, " " * 64, "a.b-c_d",
    ]
)  # fmt: skip


@given(st.lists(PIECES | st.text(max_size=3), max_size=40).map("".join), st.sampled_from([11, 16, 33, 64, 16384]))
@example("-eyJ" * 50, 16)
@example('"token":[' + " " * 300 + "]", 16)
@example(" " * 10 + "bedrock-api-key-" + "x" * 20, 11)
@example(" " * 10 + "Signature=" + "0a" * 32, 11)
@settings(max_examples=400)
def test_slices_hide_what_a_search_over_the_whole_text_hides(text: str, size: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(redact_module, "_SLICE", size)
        assert redact(text) == redact_plainly(text)


@pytest.mark.parametrize("form", FORMS)
@given(name=NAMES, value=VALUES, before=st.integers(0, 40))
@settings(max_examples=20)
def test_a_secret_at_the_border_of_slices_is_hidden(form: str, name: str, value: str, before: int) -> None:
    text = "x" * before + " " + FORMS[form](name, value)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(redact_module, "_SLICE", 32)
        shown = redact(text)
    assert "hu5h" not in shown
    assert shown == redact_plainly(text)


def test_letters_keep_their_places_in_lower_case() -> None:
    """Words are searched in lower case, and cleaned at the same place of the text."""
    longer = {chr(code) for code in range(0x110000) if len(chr(code).lower()) != 1}
    assert longer <= {letter for letter, _ in redact_module._OTHER_CASES}


# --- through the log ---


def _write_log(form: str, **fields: object) -> str:
    lines: list[str] = []
    telemetry = Telemetry(ServerSettings(log_format=form, log_bodies=True), lines.append)  # type: ignore[arg-type]
    telemetry.finish_exchange(telemetry.start_exchange(make_record(**fields)), 1.0)
    telemetry.log_event("store_unavailable", level="error", message=str(fields["message"]))
    telemetry.close()
    return "".join(lines)


@pytest.mark.parametrize("log_format", ["json", "text"])
@given(form=st.sampled_from(sorted(FORMS)), name=NAMES, value=VALUES)
def test_no_line_shows_it(log_format: str, form: str, name: str, value: str) -> None:
    text = FORMS[form](name, value)
    line = _write_log(
        log_format,
        message=text,
        path=f"/v1/{text}",
        user_agent=text,
        requested_model=text,
        model=text,
        status=400,
        request_body=text.encode(),
        response_body=text.encode(),
    )
    assert "hu5h" not in line
    assert line


@given(NAMES, st.integers(0, 200), st.just(2000))
@example("token", 100, redact_module.MAX_BODY)
def test_a_secret_across_the_end_of_what_is_logged_is_hidden(name: str, before: int, max_body: int) -> None:
    text = " " * (max_body - before) + f'"{name}": "' + "hu5h" * 40
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(redact_module, "MAX_BODY", max_body)
        shown = redact_body(text.encode())
    assert "hu5h" not in shown
    assert "hu5h" not in safe_name(" " * max(0, 110 - before) + f"{name}=" + "hu5h" * 40)


@pytest.fixture(scope="module", name="served")
def serve_gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder: Path = tmp_path_factory.mktemp("redaction")
    settings = 'retries = 0\ncooldown_after = 9999\nlog_bodies = true\nlog_level = "debug"'
    with stage(folder, settings) as staged:
        yield staged


SECRETS = [
    '{"token": "hu5hhu5h"}',
    'DB_PASSWORD=hu5hhu5h',
    "postgresql://admin:hu5hhu5h@db/x",
    "Authorization: Bearer hu5hhu5h",
    "clientSecret: hu5hhu5h",
]  # fmt: skip


@pytest.mark.parametrize("secret", SECRETS)
@pytest.mark.parametrize("provider", PROVIDERS)
def test_neither_debug_lines_nor_errors_of_providers_show_it(served: Served, provider: str, secret: str) -> None:
    arguments = json.dumps({"command": secret})
    history = [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": None, "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "run", "arguments": arguments}}]},
        {"role": "tool", "tool_call_id": "c1", "content": secret},
    ]  # fmt: skip
    tools = [{"type": "function", "function": {"name": "run", "parameters": {"type": "object", "properties": {}}}}]
    scene = served.scene(
        provider, answer(400, refusal(provider, 400, "invalid_request_error", secret)), whole_answer(provider)
    )
    for status in (400, 200):
        got = call(served, "openai-chat", scene.model, False, {"user-agent": secret}, messages=history, tools=tools)
        assert got.status == status
        lines: list[str] = []
        while not lines or f'"request_id":"{got.id}"' in lines[-1]:
            lines.append(served.lines.get(timeout=PATIENCE))
            if '"step":"client_response"' in lines[-1]:
                break
        assert "hu5h" not in "".join(lines)


# --- values that are known ---

KNOWN = 'my/Own+se"cret~~?-0123456789'


@pytest.mark.parametrize(
    "written",
    [
        KNOWN,
        json.dumps(KNOWN),
        json.dumps(json.dumps(KNOWN)[1:-1]),
        KNOWN.replace("/", "\\/"),
        quote(KNOWN, safe=""),
        *(base64.b64encode(f"{before}{KNOWN}{after}".encode()).decode() for before in ("", "a", "ab") for after in ("", ":x")),
        base64.urlsafe_b64encode(KNOWN.encode()).decode(),
        KNOWN.lower(),
        "".join(f"%{ord(letter):02x}" for letter in KNOWN),
        "".join(f"\\u{ord(letter):04x}" for letter in KNOWN),
        "".join(f"\\\\u{ord(letter):04X}" for letter in KNOWN[:9]) + json.dumps(KNOWN[9:])[1:-1],
        *(f"{KNOWN[:size]}…" for size in range(6, len(KNOWN))),
    ],
)  # fmt: skip
def test_a_known_secret_is_found_however_it_is_written(written: str) -> None:
    for shown in (SecretFilter([KNOWN]).clean(f"a {written} b"), hide_secrets(f"a {written} b", (KNOWN,))):
        assert REDACTED in shown
        assert KNOWN[2:8] not in shown
        assert shown[:2] + shown[-2:] == "a  b"


def test_words_are_no_keys_of_providers() -> None:
    for word in ("ollama", "lm-studio", "not-needed", "sk-no-key-required"):
        assert make_key_filter((word,)) is None
        assert (make_key_filter((word,), is_error=True) is None) == (len(word) < 8)
    assert make_key_filter(("key-12345",)) is not None


def test_the_secrets_of_a_provider_are_in_its_own_headers_too() -> None:
    headers = {"X-Portkey-Api-Key": "pk-0123456789ab", "authorization": "Basic dXNlcjpwYXNz", "x-region": "eu-central"}
    provider = Provider(name="p", protocols=("openai-chat",), api_key=Secret("sk-0123456789ab"), headers=headers)
    assert provider.secrets == ("sk-0123456789ab", "pk-0123456789ab", "dXNlcjpwYXNz")
    store = StoreSettings(url="postgresql://me:hu5h%2Fhu5h@db.example/x")
    assert Config(providers={"p": provider}, store=store).secrets == [*provider.secrets, "hu5h/hu5h"]
