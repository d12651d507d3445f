"""One line an exchange: what it says, what it never says, and that nobody can forge one."""

from __future__ import annotations

import asyncio
import io
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import closing

import pytest
from msgspec.structs import replace

from gateway.exchange_records import make_record
from toolwire.core.ir import Usage
from toolwire.gateway.http.redact import MAX_BODY, REDACTED, printable_text, redact
from toolwire.gateway.settings.config import Provider, ServerSettings
from toolwire.gateway.telemetry.log import Log, write_stderr
from toolwire.gateway.telemetry.record import ExchangeRecord
from toolwire.gateway.telemetry.running import Sinks
from toolwire.gateway.telemetry.telemetry import Telemetry


def settings(log_format: str = "json", log_bodies: bool = False) -> ServerSettings:
    return ServerSettings(log_format=log_format, log_level="info", log_bodies=log_bodies)


def exchange(**changes: object) -> ExchangeRecord:
    told: dict[str, object] = {
        "request_id": "req_1",
        "started": 100.0,
        "started_at": 1_800_000_000.25,
        "client_address": "127.0.0.1",
        "method": "POST",
        "path": "/v1/messages",
        "key_name": "laptop",
        "user_agent": "claude-cli/2.1.0 (external, cli)",
        "client_protocol": "anthropic",
        "provider_protocol": "openai-chat",
        "provider": "groq",
        "requested_model": "sonnet",
        "model": "llama-4",
        "stream": True,
        "status": 200,
        "first_byte": 100.5,
        "usage": Usage(input=500, output=30, cache_read=100),
        "losses": ("dropped-field",),
        "upstream_request_id": "up_1",
        "bytes_in": 10,
        "bytes_out": 20,
    }
    return make_record(**(told | changes))


def write_log_line(
    record: ExchangeRecord, log: str = "json", bodies: bool = False, secrets: tuple[str, ...] = ()
) -> str:
    lines: list[str] = []
    telemetry = Telemetry(settings(log, bodies), lines.append)
    telemetry.configure(settings(log, bodies), secrets)
    telemetry.finish_exchange(telemetry.start_exchange(record), 101.5)
    (line,) = lines
    assert line.endswith("\n")
    assert line.count("\n") == 1
    return line


def read_log_line(record: ExchangeRecord, **how: object) -> dict[str, object]:
    return json.loads(write_log_line(record, **how))  # type: ignore[arg-type]


# --- what it says ---------------------------------------------------------------------------------------------------


def test_a_line_says_who_from_to_model_status_times_tokens_and_losses() -> None:
    assert read_log_line(exchange()) == {
        "time": "2027-01-15T08:00:00.250Z",
        "event": "exchange",
        "level": "warn",
        "key_name": "laptop",
        "user_agent": "claude-cli/2.1.0",
        "client_address": "127.0.0.1",
        "operation": "chat",
        "method": "POST",
        "path": "/v1/messages",
        "client_protocol": "anthropic",
        "provider_protocol": "openai-chat",
        "provider": "groq",
        "requested_model": "sonnet",
        "model": "llama-4",
        "stream": True,
        "status": 200,
        "losses": ["dropped-field"],
        "loss_count": 1,
        "request_id": "req_1",
        "first_byte_ms": 500.0,
        "duration_ms": 1500.0,
        "input_tokens": 500,
        "output_tokens": 30,
        "cache_read_tokens": 100,
        "upstream_request_id": "up_1",
        "bytes_in": 10,
        "bytes_out": 20,
    }


@pytest.mark.parametrize(
    ("changes", "level"),
    [
        ({"losses": ()}, "info"),
        ({"status": 404, "failure": "not_found"}, "warn"),
        ({"client_disconnected": True}, "warn"),
        ({"status": 502, "failure": "upstream"}, "error"),
        ({"status": 200, "failure": "upstream"}, "error"),
    ],
)
def test_the_level_tells_what_needs_a_look(changes: dict[str, object], level: str) -> None:
    assert read_log_line(exchange(**changes))["level"] == level


def test_the_next_exchange_of_the_same_client_has_its_own_numbers() -> None:
    lines: list[str] = []
    telemetry = Telemetry(settings(), lines.append)
    for number in (1, 2):
        running = telemetry.start_exchange(exchange(request_id=f"req_{number}", usage=Usage(input=number, output=0)))
        telemetry.finish_exchange(running, 100.0 + number)
    assert [(line["request_id"], line["input_tokens"], line["duration_ms"]) for line in map(json.loads, lines)] == [
        ("req_1", 1, 1000.0),
        ("req_2", 2, 2000.0),
    ]


def test_tries_are_told_when_the_first_was_not_the_last() -> None:
    record = exchange()
    lines: list[str] = []
    telemetry = Telemetry(settings(), lines.append)
    running = telemetry.start_exchange(record)
    telemetry.record_attempt(record, Provider(name="groq", protocols=("openai-chat",)), "429", 0.25)
    telemetry.record_attempt(record, Provider(name="mistral", protocols=("openai-chat",)), "ok", 0.5)
    telemetry.finish_exchange(running, 101.0)
    assert json.loads(lines[0])["attempts"] == [["groq", "429", 250.0], ["mistral", "ok", 500.0]]
    assert "attempts" not in read_log_line(exchange(attempts=[("groq", "ok", 0.5)]))


def test_many_losses_make_no_long_line() -> None:
    line = read_log_line(exchange(losses=("a", "b") * 5000))
    assert (line["losses"], line["loss_count"]) == (["a", "b"], 10_000)
    assert "  a×5000, b×5000  " in write_log_line(exchange(losses=("a", "b") * 5000), "text")


def test_an_estimate_is_marked() -> None:
    assert read_log_line(exchange(usage_estimated=True))["usage_estimated"] is True
    assert "~500 in" in write_log_line(exchange(usage_estimated=True), "text")


def test_none_writes_no_exchanges_but_events() -> None:
    lines: list[str] = []
    telemetry = Telemetry(settings("none"), lines.append)
    telemetry.finish_exchange(telemetry.start_exchange(exchange()), 101.0)
    assert lines == []
    telemetry.log_event("started", port=8642)
    assert lines[0].endswith(" started  port=8642\n")


def test_events_are_lines_too() -> None:
    lines: list[str] = []
    log = Log("json", lines.append, clock=lambda: 1_800_000_000.0)
    log.log_event("provider-rests", {"provider": "groq", "seconds": 30.0, "why": "cut\nsk-abcdefghijklmnop"}, "warn")
    assert json.loads(lines[0]) == {
        "time": "2027-01-15T08:00:00.000Z",
        "event": "provider-rests",
        "level": "warn",
        "provider": "groq",
        "seconds": 30.0,
        "why": f"cut\\n{REDACTED}",
    }


# --- what it never says ---------------------------------------------------------------------------------------------

FORGED = 'x\n{"time":"now","event":"exchange","status":200}\r\x1b[2J\u2028\u202e\x85'


@pytest.mark.parametrize("form", ["json", "text"])
@pytest.mark.parametrize(
    "field",
    [
        "requested_model",
        "model",
        "user_agent",
        "path",
        "request_id",
        "upstream_request_id",
        "key_name",
        "method",
    ],
)
def test_no_line_can_be_forged(field: str, form: str) -> None:
    line = write_log_line(exchange(**{field: FORGED}), form)
    assert all(character.isprintable() for character in line[:-1])
    if form == "json":
        assert json.loads(line)["status"] == 200


def test_a_field_of_a_readable_line_cannot_be_forged() -> None:
    line = write_log_line(exchange(requested_model='a  status=500  key="root"', request_id='r" key=root'), "text")
    assert r'  "a  status=500  key=\"root\"" → llama-4  ' in line
    assert r'request_id="r\" key=root"' in line


def test_what_peers_wrote_is_cut() -> None:
    line = read_log_line(exchange(requested_model="m" * 10_000, user_agent="a" * 10_000, path="/" * 10_000))
    assert len(json.dumps(line)) < 1500
    assert str(line["requested_model"]).endswith("m…")


def test_what_peers_wrote_is_not_kept_when_it_is_long() -> None:
    log = Log("json", lambda line: None)
    log.log_exchanges([exchange(requested_model="m" * 10_000), exchange(losses=("a",) * 10_000)])
    log.log_exchanges([exchange(secrets=("k" * 10_000,))])
    assert not log._line_heads
    for number in range(5000):
        log.log_exchanges([exchange(requested_model=str(number))])
    assert len(log._line_heads) <= 1024


def test_half_a_character_does_not_break_a_line() -> None:
    assert read_log_line(exchange(requested_model="a\ud800b"))["requested_model"] == "a\\ud800b"


def test_queries_are_cut_because_they_may_hold_a_key() -> None:
    for form in ("json", "text"):
        assert "hush" not in write_log_line(
            exchange(path="/v1beta/models/m:generateContent?key=hush", provider=""), form
        )


KEYS = [
    "sk-proj-abcdefghijklmnop",
    "sk-ant-api03-abcdefghijklmnop",
    "AIzaSyabcdefghijklmnopqrstuvwxyz",
    "gsk_abcdefghijklmnop",
    "AKIAABCDEFGHIJKLMNOP",
    "ghp_abcdefghijklmnop",
]


@pytest.mark.parametrize("key", KEYS)
def test_keys_are_known_by_their_shape(key: str) -> None:
    assert redact(f"Incorrect API key provided: {key}.") in {
        f"Incorrect API key provided: {REDACTED}.",
        f"Incorrect API key provided: {REDACTED}",
    }
    assert key not in write_log_line(exchange(message=f"said: {key}"))


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ('{"api_key": "abc", "a": 1}', f'{{"api_key": "{REDACTED}", "a": 1}}'),
        ('{"x-api-key":"abc"}', f'{{"x-api-key":"{REDACTED}"}}'),
        ('{"authorization_token":"abc"}', f'{{"authorization_token":"{REDACTED}"}}'),
        (r'{"arguments":"{\"password\": \"abc\"}"}', rf'{{"arguments":"{{\"password\": \"{REDACTED}\"}}"}}'),
        ("Authorization: Bearer abcdefgh.ijkl", f"Authorization: Bearer {REDACTED}"),
        ("-----BEGIN PRIVATE KEY-----\nabc\n-----END PRIVATE KEY-----\n", f"{REDACTED}\n"),
        ('{"token":"Hello","logprob":-0.1}', '{"token":"Hello","logprob":-0.1}'),
        ("a sk-it task-force and desk-abcdefghijklmnopq", "a sk-it task-force and desk-abcdefghijklmnopq"),
    ],
)
def test_credentials_are_hidden_and_words_are_not(text: str, shown: str) -> None:
    assert redact(text) == shown


def test_configured_keys_are_hidden_wherever_they_stand() -> None:
    secret = 'quoted"secret-of-a-provider'
    for form in ("json", "text"):
        line = write_log_line(exchange(message=f"it is {secret}", requested_model=secret), form, secrets=(secret,))
        assert "secret-of-a-provider" not in line


CLAIMED_KEYS = (
    '"key_name":"laptop"',
    '"exchange","level":"warn"',
    "requested_model",
    "laptop-of-bob",
    "key=laptop-of-bob",
    '/v1/messages","client_protocol":"anthropic',
    "\\u0000\\u0001\\u0002",
)
"""What a client may send as its key, to hide what it did or others do."""


@pytest.mark.parametrize("form", ["json", "text"])
@pytest.mark.parametrize("key", CLAIMED_KEYS)
def test_what_a_client_calls_its_key_hides_nothing_but_itself(key: str, form: str) -> None:
    lines: list[str] = []
    log = Log(form, lines.append)
    note = f'it sent {key}, the \\ and a " with it'
    own, other = exchange(key_name="laptop-of-bob", secrets=(key,), message=note), exchange(message=note)
    log.log_exchanges([other, own, other])
    log.log_exchanges([other])
    first, middle, last = lines[0].splitlines()
    assert first == last == lines[1].rstrip("\n"), "lines of others are as they were"
    assert "laptop-of-bob" in middle
    if form == "json":
        shown, plain = json.loads(middle), json.loads(first)
        assert shown == {
            **plain, "key_name": "laptop-of-bob", "message": f"it sent {REDACTED}, the \\ and a \" with it",
        }  # fmt: skip


def test_a_placeholder_for_a_key_does_not_hide_names() -> None:
    assert read_log_line(exchange(provider="ollama"), secrets=("ollama",))["provider"] == "ollama"


def test_bodies_are_logged_only_when_asked_for() -> None:
    record = exchange(request_body=b'{"api_key":"hush","q":"hi"}', response_body=b"\xff ok")
    assert not {"request", "response"} & read_log_line(record).keys()
    line = read_log_line(record, bodies=True)
    assert line["request"] == f'{{"api_key":"{REDACTED}","q":"hi"}}'
    assert line["response"] == "\ufffd ok"
    assert "hush" not in write_log_line(record, "text", bodies=True)


def test_a_key_across_the_cut_of_a_body_is_hidden() -> None:
    body = b" " * (MAX_BODY - 10) + KEYS[0].encode() + b" " * 1000
    line = read_log_line(exchange(request_body=body), bodies=True)
    assert "sk-proj" not in str(line["request"])
    assert str(line["request"]).endswith(f"… ({len(body)} bytes)")


def test_clean_leaves_ordinary_names_alone() -> None:
    assert printable_text("models/größe-7b:free") == "models/größe-7b:free"


def test_a_record_shows_no_body_and_no_query() -> None:
    record = exchange(request_body=b"hush", response_body=b"hush", path="/v1?key=hush")
    assert "hush" not in repr(record)


# --- where lines go -------------------------------------------------------------------------------------------------


def test_a_closed_stderr_does_not_break_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    closed = io.StringIO()
    closed.close()
    for stream in (closed, None):
        monkeypatch.setattr(sys, "stderr", stream)
        telemetry = Telemetry(settings("text"), write_stderr)
        telemetry.finish_exchange(telemetry.start_exchange(exchange()), 101.0)


SCRIPT = """
import sys
from toolwire.gateway.settings.config import ServerSettings
from toolwire.gateway.telemetry.record import ExchangeRecord
from toolwire.gateway.telemetry.telemetry import Telemetry
telemetry = Telemetry(ServerSettings(log_format="text", log_level="info", log_bodies=False))
telemetry.finish_exchange(telemetry.start_exchange(ExchangeRecord(request_id="r", started=0.0, started_at=0.0, status=200)), 1.0)
print(*(name for name in ("opentelemetry", "google.protobuf", "requests") if name in sys.modules))
"""


def test_a_pipe_that_nobody_reads_does_not_break_requests_and_nothing_needless_is_imported() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run([sys.executable, "-c", SCRIPT], stdout=subprocess.PIPE, stderr=writing, check=False)
    finally:
        os.close(writing)
    assert done.stdout == b"\n"


@pytest.mark.parametrize(("refused", "coloured"), [("", True), ("1", False)])
def test_colour_only_on_a_terminal_that_wants_it(refused: str, coloured: bool) -> None:
    ours, theirs = os.openpty()
    environ = {**os.environ, "NO_COLOR": refused}
    try:
        subprocess.run([sys.executable, "-c", SCRIPT], stdout=subprocess.PIPE, stderr=theirs, env=environ, check=True)
        line = os.read(ours, 65536)
    finally:
        os.close(ours)
        os.close(theirs)
    assert (b"\x1b[32m200\x1b[0m" in line) is coloured
    assert (b" 200 " in line) is not coloured


# --- what is kept -----------------------------------------------------------------------------------------------------


def test_what_is_not_configured_is_not_in_the_list_of_sinks() -> None:
    counts = {}
    for name, (log, level, console) in {
        "nothing": ("none", "debug", 0),
        "log": ("json", "info", 0),
        "debug log": ("json", "debug", 0),
        "console": ("none", "info", 1000),
    }.items():
        server = ServerSettings(log_format=log, log_level=level)  # type: ignore[arg-type]
        telemetry = Telemetry(server, lambda line: None)
        telemetry.configure(server, console_bytes=console)
        sinks = telemetry.choose_sinks(exchange())
        counts[name] = (len(sinks.started), len(sinks.ended), sinks.wants_capture)
        assert (sinks.calls, sinks.prompts, sinks.wants_bodies) == (None, None, False)
    assert counts == {
        "nothing": (0, 1, False), "log": (0, 2, False), "debug log": (0, 3, True), "console": (1, 2, True),
    }  # fmt: skip


def test_an_exchange_without_sinks_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []
    telemetry = Telemetry(settings("json"), lines.append)
    telemetry.configure(settings("json"), console_bytes=1000)
    chosen = telemetry.choose_sinks
    monkeypatch.setattr(
        telemetry, "choose_sinks", lambda record: Sinks() if record.request_id == "secret" else chosen(record)
    )
    for id in ("secret", "kept"):
        telemetry.finish_exchange(telemetry.start_exchange(exchange(request_id=id)), 101.0)
    assert [json.loads(line)["request_id"] for line in lines] == ["kept"]
    assert [one.request_id for one in telemetry.recent.newest_first()] == ["kept"]
    text = telemetry.metrics_text().decode()
    assert [line[-2:] for line in text.splitlines() if line.startswith("toolwire_requests_total{")] == [" 1"]
    assert "toolwire_requests_in_flight 0" in text


def test_a_sink_that_fails_keeps_nothing_from_the_others() -> None:
    lines: list[str] = []

    def fail(records: Sequence[ExchangeRecord]) -> None:
        raise OSError("the disk is full")

    telemetry = Telemetry(settings("json"), lines.append, keep_ended=fail)
    telemetry.configure(settings("json"), console_bytes=1000)
    chosen = telemetry.choose_sinks(exchange())
    telemetry.choose_sinks = lambda record: replace(chosen)  # type: ignore[method-assign]  # each has sinks of its own
    with closing(asyncio.new_event_loop()) as loop:
        telemetry.batch_on_loop(loop)
        for id in ("first", "second"):
            telemetry.finish_exchange(telemetry.start_exchange(exchange(request_id=id)), 101.0)
    with pytest.raises(OSError, match="the disk is full"):
        telemetry.flush()
    assert [json.loads(line)["request_id"] for line in lines] == ["first", "second"]
    assert [one.ended for one in telemetry.recent.newest_first()] == [101.0, 101.0]
    text = telemetry.metrics_text().decode()
    assert [line[-2:] for line in text.splitlines() if line.startswith("toolwire_requests_total{")] == [" 2"]
    assert "toolwire_requests_in_flight 0" in text
