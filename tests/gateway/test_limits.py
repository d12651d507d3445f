"""Limits as clients meet them: refusals in their own protocol, what counts, who it counts for, and what is settled."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from gateway import redis_server
from gateway.counter_stores import NEEDS_REDIS
from gateway.provider import ScriptedAnswer
from gateway.raw_exchange import (
    CLIENTS,
    PROVIDERS,
    STREAM_HEAD,
    RawAnswer,
    Scene,
    ScriptedConnection,
    Served,
    answer,
    ask,
    body_of,
    busy_answer,
    call,
    error_of,
    open_call,
    opening_frames,
    play_script,
    stage,
    write_chunked,
)
from gateway.test_passthrough import SEARCH, paused_answer
from toolwire.core.codec import Codec, parse_passthrough_endpoints
from toolwire.core.rate_limits import read_timestamp
from toolwire.core.tokens import estimate_body_tokens, estimate_text_tokens
from toolwire.gateway.exchange.client_body import ClientBody, read_client_body
from toolwire.gateway.features.limits.counters import Charge, Reserved
from toolwire.gateway.features.limits.counters_memory import MemoryCounters
from toolwire.gateway.features.limits.estimates import estimate_output
from toolwire.gateway.features.limits.limits import Limits
from toolwire.gateway.features.limits.reservations import Reservations
from toolwire.gateway.features.limits.settings import Limit, LimitSettings
from toolwire.gateway.http.client_request import ClientRequest
from toolwire.gateway.pipeline import relay
from toolwire.gateway.store.store import StoreDown
from toolwire.gateway.telemetry.metrics import Metrics
from toolwire.protocols import CODECS
from toolwire_conformance.peers.peer import encode_json
from waits import PATIENCE, wait_until

STREAMS = pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
KEYS = {"ana": "app", "ben": "app", "ci": "infra"}
"""The client keys of the tests, and their teams."""


@pytest.fixture(autouse=True)
def no_long_wait_for_usage(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay, "USAGE_SECONDS", 0.05)


def key_of(name: str) -> str:
    return f"tw-key-of-{name}-0123456789"


def sent_key(name: str) -> dict[str, str]:
    return {"x-toolwire-key": key_of(name)}


def keys() -> str:
    lines = []
    for name, team in KEYS.items():
        digest = hashlib.sha256(key_of(name).encode()).hexdigest()
        lines.append(f'[[server.keys]]\nname = "{name}"\nteam = "{team}"\nsha256 = "{digest}"\n')
    return "".join(lines)


@contextmanager
def serve_with_limits(folder: Path, limits: str, server: str = "", store: str = "none") -> Iterator[Served]:
    """A gateway with these limits, and keys for the team."""
    store = f'[store]\nurl = "{store}"\n'
    with stage(folder, f'log_format = "json"\n{server}', f"{keys()}{store}{limits}") as served:
        yield served


def reservations_of(served: Served) -> Reservations:
    found = served.features.limits.reservations
    assert found is not None
    return found


def read_used_counters(served: Served) -> dict[str, int]:
    """What is used of each counter, as soon as nothing is held any more."""
    reservations = reservations_of(served)
    cells = reservations.counters.cells  # type: ignore[attr-defined]
    wait_until(lambda: not reservations.open and not any(cell.held for cell in cells.values()))
    return {name: cell.used for name, cell in cells.items() if cell.used}


def stop_clock(served: Served, second_of_day: int | None = None) -> float:
    """For a test that counts in one minute, which might end in the middle of it. Returns the time."""
    now = time.time() if second_of_day is None else time.time() // 86400 * 86400 + second_of_day
    reservations_of(served).counters._clock = lambda: now  # type: ignore[attr-defined]
    return now


REACHED = {"openai-chat": (429, 403)}
"""The statuses of a limit that is reached: the second one if it opens after more than a minute."""


def expect_refusal(protocol: str, got: RawAnswer, status: int = 0) -> str:
    message = str(error_of(protocol, got)["message"])
    usual = (400,) if message.startswith("this request alone") else REACHED.get(protocol, (429,))
    assert got.status in ((status,) if status else usual), got.data
    return message


# --- refusals --------------------------------------------------------------------------------------------------------


@STREAMS
@pytest.mark.parametrize("client", CLIENTS)
def test_a_refusal_is_one_of_the_clients_own_protocol(client: str, stream: bool, tmp_path: Path) -> None:
    with serve_with_limits(tmp_path, '[[limits]]\nname = "a few"\nrequests_per_minute = 2\n') as served:
        scene = served.scene("openai-chat", play_script("openai-chat", stream))
        stop_clock(served)
        *passed, last = [call(served, client, scene.model, stream, sent_key("ana")) for _ in range(3)]
        assert [one.status for one in passed] == [200, 200]
        message = expect_refusal(client, last)
        assert re.match(
            r"the limit `a few`, 2 requests per minute, is reached: 2 requests are used or reserved\. It opens at ",
            message,
        )
        assert 1 <= float(last.headers["retry-after"]) <= 60
        line = served.line(last.id)
        assert (line["status"], line["failure"]) == (429, "rate")
        assert len(scene.asked) == 2


RATE_HEADERS = {
    "openai-chat": "x-ratelimit-{field}-tokens",
    "openai-responses": "x-ratelimit-{field}-tokens",
    "anthropic": "anthropic-ratelimit-tokens-{field}",
}


@pytest.mark.parametrize("client", RATE_HEADERS)
def test_a_refusal_has_the_headers_of_its_dialect(client: str, tmp_path: Path) -> None:
    with serve_with_limits(tmp_path, "[[limits]]\ntokens_per_day = 1500\n") as served:
        scene = served.scene("openai-chat", huge_use("openai-chat", 1400, 60))
        assert call(served, client, scene.model, False, sent_key("ana")).status == 200
        assert read_used_counters(served) == {"all requests/tokens_per_day": 1460}
        got = call(served, client, scene.model, False, sent_key("ana"))
        message = expect_refusal(client, got)
        assert "`all requests`, 1,500 tokens per day," in message
        assert "1,460 tokens are used or reserved; this request needs about" in message
        pattern = RATE_HEADERS[client]
        assert got.headers[pattern.format(field="limit")] == "1500"
        assert got.headers[pattern.format(field="remaining")] == "40"
        assert pattern.format(field="reset") in got.headers
        opens = read_timestamp(message.rpartition(" ")[2])
        assert opens is not None
        assert opens % 86400 == 0


LATE = {
    "openai-chat": (403, {"type": "insufficient_quota", "code": "insufficient_quota"}),
    "openai-responses": (429, {"type": "usage_limit_reached", "code": "usage_limit_reached"}),
    "anthropic": (429, {"type": "rate_limit_error"}),
    "gemini": (429, {"status": "RESOURCE_EXHAUSTED"}),
    "unified": (429, {"type": "quota"}),
}
"""What clients get of a limit that opens after more than a minute: real agents show it at once."""


@STREAMS
@pytest.mark.parametrize("client", LATE)
@pytest.mark.parametrize("second", [12 * 3600, 86400 - 61, 86400 - 60], ids=["hours", "61 seconds", "a minute"])
def test_a_limit_that_opens_late_is_not_waited_for(client: str, stream: bool, second: int, tmp_path: Path) -> None:
    wait = 86400 - second
    status, words = LATE[client]
    with serve_with_limits(tmp_path, "[[limits]]\ntokens_per_day = 1600\n") as served:
        stop_clock(served, second)
        scene = served.scene("openai-chat", huge_use("openai-chat", 1400, 60))
        assert call(served, "openai-chat", scene.model, False, sent_key("ana")).status == 200
        read_used_counters(served)
        got = call(served, client, scene.model, stream, sent_key("ana"))
        error = error_of(client, got)
        assert "`all requests`, 1,600 tokens per day, is reached" in error["message"]
        if wait <= 60:
            assert (got.status, got.headers["retry-after"]) == (429, str(wait))
            assert "x-should-retry" not in got.headers
            assert error.items() & words.items() <= {("status", "RESOURCE_EXHAUSTED"), ("type", "rate_limit_error")}
            return
        assert (got.status, got.headers["x-should-retry"]) == (status, "false")
        assert not {"retry-after", "retry-after-ms"} & got.headers.keys()
        assert words.items() <= error.items()
        if client == "openai-responses":
            opens = read_timestamp(error["message"].rpartition(" ")[2])
            assert opens is not None
            assert abs(error["resets_at"] - opens) <= 1
        if client == "gemini":
            kinds = {detail["@type"].rpartition(".")[2]: detail for detail in error["details"]}
            assert kinds["RetryInfo"]["retryDelay"] == f"{wait}s"
            assert "PerDay" in json.dumps(kinds["QuotaFailure"])
        assert served.line(got.id)["failure"] == "quota"
        assert len(scene.asked) == 1


def huge_use(protocol: str, sent: int, made: int) -> bytes:
    """An answer that counts so many tokens."""
    body = body_of(protocol, ScriptedAnswer("Hello there."))
    usage = {"prompt_tokens": sent, "completion_tokens": made, "total_tokens": sent + made}
    return answer(200, encode_json({**body, "usage": usage}).encode())


def test_gemini_reads_when_to_come_back_from_the_body(tmp_path: Path) -> None:
    with serve_with_limits(tmp_path, "[[limits]]\nrequests_per_minute = 1\n") as served:
        scene = served.scene("gemini", play_script("gemini", False))
        stop_clock(served)
        first, got = [call(served, "gemini", scene.model, False, sent_key("ana")) for _ in range(2)]
        assert (first.status, got.status) == (200, 429)
        assert any("retryDelay" in detail for detail in got.json()["error"]["details"])


def test_a_request_that_can_never_fit_says_so(tmp_path: Path) -> None:
    with serve_with_limits(tmp_path, "[[limits]]\ntokens_per_minute = 300\n") as served:
        scene = served.scene("openai-chat", play_script("openai-chat", False))
        got = call(served, "openai-chat", scene.model, False, sent_key("ana"), max_tokens=1000)
        assert re.search(
            r"this request alone needs about 1,\d\d\d tokens, more than the limit", expect_refusal("openai-chat", got)
        )
        assert "retry-after" not in got.headers
        assert got.headers["x-should-retry"] == "false"
        assert call(served, "openai-chat", scene.model, False, sent_key("ana"), max_tokens=100).status == 200
        assert len(scene.asked) == 1


# --- who a request counts for ----------------------------------------------------------------------------------------


def send_chat(served: Served, scene: Scene, name: str, headers: Mapping[str, str] | None = None, **more: Any) -> int:
    """The status; 429 for everything that a limit refuses."""
    got = call(served, "openai-chat", scene.model, False, {**sent_key(name), **(headers or {})}, **more)
    is_limit = got.status != 200 and (b"is reached" in got.data or b"this request alone" in got.data)
    return 429 if is_limit else got.status


@pytest.mark.parametrize(
    ("limit", "allowed"),
    [
        ("", {"ana": 3, "ben": 0, "ci": 0}),
        ('key = "ana"', {"ana": 3, "ben": 9, "ci": 9}),
        ('key = ["ana", "c*"]', {"ana": 3, "ben": 9, "ci": 0}),
        ('team = "app"', {"ana": 3, "ben": 0, "ci": 9}),
        ('per = "key"', {"ana": 3, "ben": 3, "ci": 3}),
        ('per = ["team"]', {"ana": 3, "ben": 0, "ci": 3}),
        ('team = "app"\nper = "key"', {"ana": 3, "ben": 3, "ci": 9}),
        ('provider = "chat"', {"ana": 3, "ben": 0, "ci": 0}),
        ('provider = "gem*"', {"ana": 9, "ben": 9, "ci": 9}),
        ('model = "gpt-4.1-*"', {"ana": 3, "ben": 0, "ci": 0}),
        ('model = "GPT-4.1-*"', {"ana": 3, "ben": 0, "ci": 0}),
        ('model = "chat/*"', {"ana": 9, "ben": 9, "ci": 9}),
        ('agent = "codex"', {"ana": 9, "ben": 9, "ci": 9}),
        ('agent = "claude"', {"ana": 3, "ben": 0, "ci": 0}),
    ],
)
def test_a_limit_is_for_those_that_it_selects(limit: str, allowed: dict[str, int], tmp_path: Path) -> None:
    """Days do not end while a test runs, unlike minutes."""
    text = f"[[limits]]\n{limit}\ntokens_per_day = 3300\n"
    with serve_with_limits(tmp_path, text) as served:
        scene = served.scene("openai-chat", huge_use("openai-chat", 1000, 0))
        agent = {"user-agent": "claude-cli/2.1.0 (external, cli)"}
        for name, count in allowed.items():
            statuses = []
            for _ in range(9):
                statuses.append(send_chat(served, scene, name, agent, max_tokens=400))
                read_used_counters(served)
            assert statuses == [200] * count + [429] * (9 - count), name


@pytest.mark.parametrize("spelling", ["gemini/{name}", "gemini/models/{name}", "models/gemini/models/{name}"])
@pytest.mark.parametrize("limit", ['model = "gemini-3.8-*"\ntokens_per_day = 90', "dollars_per_day = 0.0001"])
@pytest.mark.parametrize("client", ["openai-chat", "gemini"])
def test_a_model_is_the_same_in_every_spelling(client: str, limit: str, spelling: str, tmp_path: Path) -> None:
    """Google takes the name with its collection and without. Only one of them has a price in the catalogue."""
    with serve_with_limits(tmp_path, f"[[limits]]\n{limit}\n") as served:
        scene = served.scene("gemini", play_script("gemini", False))
        got = call(served, client, spelling.format(name=scene.name), False, sent_key("ana"))
        assert "this request alone needs about" in expect_refusal(client, got)
        assert not scene.asked


def test_a_request_that_several_limits_select_must_fit_all_and_counts_in_all(tmp_path: Path) -> None:
    limits = '[[limits]]\nname = "t"\nteam = "app"\ntokens_per_day = 9000\ntokens_per_month = 9000\n'
    limits += '[[limits]]\nname = "k"\nkey = "ana"\nparallel_requests = 1\ntokens_per_day = 1000\n'
    with serve_with_limits(tmp_path, limits) as served:
        scene = served.scene("openai-chat", huge_use("openai-chat", 700, 0))
        assert send_chat(served, scene, "ana", max_tokens=400) == 200
        assert read_used_counters(served) == {
            "t/tokens_per_day": 700,
            "t/tokens_per_month": 700,
            "k/tokens_per_day": 700,
        }
        assert send_chat(served, scene, "ana", max_tokens=400) == 429
        assert send_chat(served, scene, "ben", max_tokens=400) == 200
        assert read_used_counters(served) == {
            "t/tokens_per_day": 1400,
            "t/tokens_per_month": 1400,
            "k/tokens_per_day": 700,
        }


# --- parallel requests ------------------------------------------------------------------------------------------------


def test_parallel_requests(tmp_path: Path) -> None:
    def waits(peer: ScriptedConnection) -> None:
        peer.wait_for_release()
        peer.send(play_script("openai-chat", False))

    with serve_with_limits(tmp_path, '[[limits]]\nkey = "ci"\nparallel_requests = 1\n') as served:
        scene = served.scene("openai-chat", waits, play_script("openai-chat", False))
        running = open_call(served, "openai-chat", scene.model, False, sent_key("ci"))
        assert scene.reached.wait(PATIENCE)
        got = call(served, "openai-chat", scene.model, False, sent_key("ci"))
        assert expect_refusal("openai-chat", got) == (
            "the limit `key ci`, 1 parallel requests, is reached; it opens when one of these requests ends"
        )
        assert got.headers["retry-after"] == "2"
        assert send_chat(served, scene, "ana") == 200
        scene.go.set()
        assert running.start().read()
        running.disconnect()
        for _ in range(20):  # one after the other is never refused
            assert send_chat(served, scene, "ci") == 200


# --- what is settled --------------------------------------------------------------------------------------------------


@STREAMS
@pytest.mark.parametrize("provider", PROVIDERS)
def test_what_the_provider_counts_is_settled(provider: str, stream: bool, tmp_path: Path) -> None:
    with serve_with_limits(tmp_path, "[[limits]]\ntokens_per_day = 100000\n") as served:
        scene = served.scene(provider, play_script(provider, stream))
        line = served.line(call(served, "anthropic", scene.model, stream, sent_key("ana")).id)
        assert read_used_counters(served) == {
            "all requests/tokens_per_day": line["input_tokens"] + line["output_tokens"]
        }


def test_a_provider_that_refuses_costs_a_request_and_no_tokens(tmp_path: Path) -> None:
    with serve_with_limits(tmp_path, "[[limits]]\ntokens_per_day = 100000\nrequests_per_minute = 1000\n") as served:
        scene = served.scene("openai-chat", busy_answer("openai-chat"))
        assert send_chat(served, scene, "ana") == 503
        assert read_used_counters(served) == {"all requests/requests_per_minute": 1}


def test_a_client_that_leaves_gives_back_what_it_did_not_use(tmp_path: Path) -> None:
    def play(peer: ScriptedConnection) -> None:
        peer.send(STREAM_HEAD)
        peer.chunk(*opening_frames("openai-chat"))
        peer.wait_for_close()

    with serve_with_limits(tmp_path, "[[limits]]\ntokens_per_day = 100000\nparallel_requests = 1\n") as served:
        scene = served.scene("openai-chat", play)
        line = open_call(served, "openai-chat", scene.model, True, {**sent_key("ana"), "x-request-id": "leaves"})
        line.start()
        line.read_some()
        line.disconnect()
        served.line("leaves")
        ((_, tokens),) = read_used_counters(served).items()
        assert 0 < tokens < 100


def test_an_answer_of_unknown_usage_counts_as_it_was_estimated(tmp_path: Path) -> None:
    with serve_with_limits(tmp_path, "[[limits]]\ntokens_per_day = 100000\n") as served:
        body = {**body_of("openai-chat", ScriptedAnswer("Hi.")), "usage": None}
        scene = served.scene("openai-chat", answer(200, encode_json(body).encode()))
        assert send_chat(served, scene, "ana", max_tokens=500) == 200
        ((_, tokens),) = read_used_counters(served).items()
        assert 500 < tokens < 600


SILENT_REASONING = {
    "openai-chat": b'data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":'
    b'[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}\n\n',
    "openai-responses": b'event: response.created\ndata: {"type":"response.created","sequence_number":0,"response":'
    b'{"id":"r","object":"response","created_at":1,"status":"in_progress","model":"m","output":[]}}\n\n'
    b'event: response.output_item.added\ndata: {"type":"response.output_item.added","sequence_number":1,'
    b'"output_index":0,"item":{"type":"reasoning","id":"rs_1","summary":[]}}\n\n',
}
"""Streams of models that think, and do not show it."""


@pytest.mark.parametrize("cut_by", ["client", "provider"])
@pytest.mark.parametrize("client", ["openai-chat", "openai-responses", "anthropic"])
@pytest.mark.parametrize("provider", SILENT_REASONING)
def test_a_stream_that_is_cut_before_its_first_text_has_used_its_input(
    provider: str, client: str, cut_by: str, tmp_path: Path
) -> None:
    """Else a client could have models think for nothing, and leave before they speak."""

    def play(peer: ScriptedConnection) -> None:
        peer.send(STREAM_HEAD)
        peer.chunk(SILENT_REASONING[provider])
        if cut_by == "client":
            peer.wait_for_close()

    with serve_with_limits(tmp_path, "[[limits]]\ntokens_per_day = 100000\n", "heartbeat = 0.1\n") as served:
        scene = served.scene(provider, play)
        line = open_call(served, client, scene.model, True, {**sent_key("ana"), "x-request-id": "cut"})
        line.start()
        if cut_by == "client":
            assert line.read_some()
        line.disconnect()
        served.line("cut")
        ((_, tokens),) = read_used_counters(served).items()
        assert 10 < tokens < 100


CHUNK = b'data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":%b}\n\n'
COUNTED_STREAM = (
    CHUNK % b'[{"index":0,"delta":{"role":"assistant","content":"Hello."},"finish_reason":null}],"usage":null',
    CHUNK % b'[{"index":0,"delta":{},"finish_reason":"stop"}],"usage":null',
    CHUNK % b'[],"usage":{"prompt_tokens":9,"completion_tokens":5000,"total_tokens":5009}',
    b"data: [DONE]\n\n",
)
"""The model has thought for long. Without its counts, nobody could know."""


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        ({}, {"include_usage": True}),
        ({"stream_options": None}, {"include_usage": True}),
        ({"stream_options": {"include_usage": False}}, {"include_usage": True}),
        ({"stream_options": {"include_obfuscation": False}}, {"include_obfuscation": False, "include_usage": True}),
        ({"stream_options": {"include_usage": True}}, {"include_usage": True}),
    ],
)
@pytest.mark.parametrize("pieces", ["frames", "bytes"])
def test_a_client_cannot_keep_a_stream_from_being_counted(
    given: dict[str, Any], sent: dict[str, bool], pieces: str, tmp_path: Path
) -> None:
    is_asked = given.get("stream_options") == sent
    whole = b"".join(COUNTED_STREAM)
    chunks = COUNTED_STREAM if pieces == "frames" else [whole[place : place + 7] for place in range(0, len(whole), 7)]
    with serve_with_limits(tmp_path, "[[limits]]\ntokens_per_day = 100000\n") as served:
        scene = served.scene("openai-chat", write_chunked(*chunks))
        got = call(served, "openai-chat", scene.model, True, sent_key("ana"), **given)
        assert scene.asked[0].json()["stream_options"] == sent
        assert read_used_counters(served) == {"all requests/tokens_per_day": 5009}
        assert got.data == (whole if is_asked else whole.replace(COUNTED_STREAM[2], b""))


@pytest.mark.parametrize("limits", ["", "[[limits]]\nrequests_per_minute = 1000\n"])
def test_a_stream_that_no_limit_must_count_passes_as_it_is(limits: str, tmp_path: Path) -> None:
    with serve_with_limits(tmp_path, limits) as served:
        scene = served.scene("openai-chat", write_chunked(*COUNTED_STREAM))
        got = call(served, "openai-chat", scene.model, True, sent_key("ana"))
        assert "stream_options" not in scene.asked[0].json()
        assert got.data == b"".join(COUNTED_STREAM)


def test_a_server_that_refuses_the_question_is_not_asked(tmp_path: Path) -> None:
    text = '[providers.plain]\nprotocols = ["openai-chat"]\nbase_url = "{plain}"\nquirks = ["no-stream-options"]\n'
    with serve_with_limits(tmp_path, f"[[limits]]\ntokens_per_day = 100000\n{text}") as served:
        scene = served.scene("openai-chat", write_chunked(*COUNTED_STREAM), provider="plain")
        assert call(served, "openai-chat", scene.model, True, sent_key("ana")).status == 200
        assert "stream_options" not in scene.asked[0].json()


@pytest.mark.parametrize(
    ("provider", "counts"),
    [
        ("openai-chat", {"usage": {"prompt_tokens": -9000, "completion_tokens": 5, "total_tokens": -8995}}),
        ("openai-chat", {"usage": {"prompt_tokens": 9, "completion_tokens": -1, "total_tokens": 8}}),
        ("openai-responses", {"usage": {"input_tokens": 9, "output_tokens": -9000, "total_tokens": -8991}}),
        ("anthropic", {"usage": {"input_tokens": 9, "output_tokens": 5, "cache_read_input_tokens": -9000}}),
        ("gemini", {"usageMetadata": {"promptTokenCount": 9, "candidatesTokenCount": 5, "thoughtsTokenCount": -9000}}),
    ],
)
@pytest.mark.parametrize("client", ["openai-chat", "anthropic", "unified"])
def test_a_provider_cannot_give_tokens_back(provider: str, counts: dict[str, Any], client: str, tmp_path: Path) -> None:
    with serve_with_limits(tmp_path, "[[limits]]\ntokens_per_day = 100000\n") as served:
        body = {**body_of(provider, ScriptedAnswer("Hi.")), **counts}
        scene = served.scene(provider, answer(200, encode_json(body).encode()))
        got = call(served, client, scene.model, False, sent_key("ana"))
        assert got.status == 200
        line = served.line(got.id)
        assert min(line["input_tokens"], line["output_tokens"]) >= 0
        counted = read_used_counters(served)["all requests/tokens_per_day"]
        assert counted == 14 or least_use(scene, "Hi.") <= counted < 100


def least_use(scene: Scene, visible: str) -> int:
    """What the last request to the provider and the answer that the client saw make."""
    return estimate_body_tokens(scene.asked[-1].body) + estimate_text_tokens(len(visible))


LONG_ANSWER = "A long answer, in many words. " * 800
UNBELIEVABLE_USAGES: dict[str, Any] = {
    "none": None,
    "empty": {},
    "zero": {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0},
    "negative": {"prompt_tokens": -5, "completion_tokens": -90000, "total_tokens": -90005},
    "of nulls": {"prompt_tokens": None, "completion_tokens": None, "total_tokens": None},
    "a text": "many",
    "a list": [9, 5],
    "of texts": {"prompt_tokens": "few", "completion_tokens": "many", "total_tokens": {}},
    "of fractions": {"prompt_tokens": 0.5, "completion_tokens": 0.5, "total_tokens": True},
    "absurd": {"prompt_tokens": 10**17, "completion_tokens": 10**17, "total_tokens": 10**17},
    "absurd input": {"prompt_tokens": 2 * 10**9, "completion_tokens": 5, "total_tokens": 2 * 10**9 + 5},
    "absurd output": {"prompt_tokens": 5, "completion_tokens": 2 * 10**9, "total_tokens": 2 * 10**9 + 5},
}


@STREAMS
@pytest.mark.parametrize("kind", UNBELIEVABLE_USAGES)
@pytest.mark.parametrize("client", ["openai-chat", "anthropic"])
def test_a_usage_that_cannot_be_true_counts_as_what_was_seen(
    client: str, kind: str, stream: bool, tmp_path: Path
) -> None:
    limits = f'[[limits]]\nname = "x"\ntokens_per_day = 100000\ndollars_per_day = 1000\n{PRICES}'
    usage = UNBELIEVABLE_USAGES[kind]
    with serve_with_limits(tmp_path, limits) as served:
        if stream:
            said = CHUNK % (
                b'[{"index":0,"delta":{"content":%b},"finish_reason":null}]' % json.dumps(LONG_ANSWER).encode()
            )
            end = CHUNK % (b'[],"usage":%b' % json.dumps(usage).encode())
            play = write_chunked(said, COUNTED_STREAM[1], end, COUNTED_STREAM[3])
        else:
            play = answer(
                200, encode_json({**body_of("openai-chat", ScriptedAnswer(LONG_ANSWER)), "usage": usage}).encode()
            )
        scene = served.scene("openai-chat", play, model="priced")
        turns = [{"role": "user", "content": "Hi " * 500}]
        got = call(
            served, client, scene.model.partition("/")[2], stream, sent_key("ana"), messages=turns, max_tokens=50
        )
        assert got.status == 200
        counted = read_used_counters(served)
        least = least_use(scene, LONG_ANSWER)
        assert least <= counted["x/tokens_per_day"] < least * 2
        dollars = (estimate_body_tokens(scene.asked[-1].body) * 10 + estimate_text_tokens(len(LONG_ANSWER)) * 20) / 1e6
        assert dollars <= counted["x/dollars_per_day"] / 1e9 < dollars * 2


def event(name: str, **fields: Any) -> bytes:
    return f"event: {name}\ndata: {json.dumps({'type': name, **fields})}\n\n".encode()


MESSAGE = {"id": "m", "type": "message", "role": "assistant", "model": "m", "content": [], "stop_reason": None}
ITEM = {"type": "message", "id": "msg_1", "role": "assistant", "status": "in_progress", "content": []}
TEXT = {"type": "output_text", "text": "Hello.", "annotations": []}
RESPONSE = {"id": "r", "object": "response", "created_at": 1, "model": "m"}
COUNTED_AT_THE_END: dict[str, tuple[bytes, bytes]] = {
    "openai-chat": (COUNTED_STREAM[0], b"".join(COUNTED_STREAM[1:])),
    "anthropic": (
        event("message_start", message={**MESSAGE, "usage": {"input_tokens": 9, "output_tokens": 1}})
        + event("content_block_start", index=0, content_block={"type": "text", "text": ""})
        + event("content_block_delta", index=0, delta={"type": "text_delta", "text": "Hello."}),
        event("content_block_stop", index=0)
        + event("message_delta", delta={"stop_reason": "end_turn"}, usage={"output_tokens": 5000})
        + event("message_stop"),
    ),
    "openai-responses": (
        event("response.created", response={**RESPONSE, "status": "in_progress", "output": []})
        + event("response.output_item.added", output_index=0, item=ITEM)
        + event("response.output_text.delta", output_index=0, content_index=0, item_id="msg_1", delta="Hello."),
        event("response.output_item.done", output_index=0, item={**ITEM, "content": [TEXT], "status": "completed"})
        + event(
            "response.completed",
            response={
                **RESPONSE,
                "status": "completed",
                "output": [{**ITEM, "content": [TEXT], "status": "completed"}],
                "usage": {"input_tokens": 9, "output_tokens": 5000, "total_tokens": 5009},
            },
        ),
    ),
}
"""What a provider sends until its client has all that it wants, and what follows."""


@pytest.mark.parametrize("provider", COUNTED_AT_THE_END)
@pytest.mark.parametrize("client", ["same", "unified"])
def test_a_client_that_leaves_at_the_last_text_is_counted_in_full(
    client: str, provider: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Again and again: the provider says what was used when the client has what it wants."""
    monkeypatch.setattr(relay, "USAGE_SECONDS", 2 * PATIENCE)
    left: list[ClientRequest] = []

    class WatchedWait(relay.UsageWait):
        def __init__(self, request: ClientRequest) -> None:
            super().__init__(request)
            left.append(request)

    monkeypatch.setattr(relay, "UsageWait", WatchedWait)
    start, rest = COUNTED_AT_THE_END[provider]
    protocol = provider if client == "same" else client

    def play(peer: ScriptedConnection) -> None:
        peer.send(STREAM_HEAD)
        peer.chunk(start)
        peer.wait_for_release()
        peer.chunk(rest)
        peer.send(b"0\r\n\r\n")

    with serve_with_limits(tmp_path, "[[limits]]\ntokens_per_day = 100000\n") as served:
        for number in range(1, 4):
            scene = served.scene(provider, play)
            line = open_call(served, protocol, scene.model, True, {**sent_key("ana"), "x-request-id": f"end-{number}"})
            line.start()
            line.read_until(b"Hello.")
            line.disconnect()
            wait_until(lambda: len(left) == number and left[-1].is_disconnected)  # noqa: B023
            scene.go.set()
            assert served.line(f"end-{number}")
            assert read_used_counters(served) == {"all requests/tokens_per_day": 5009 * number}


def test_a_client_that_leaves_before_a_check_is_waited_for_until_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long its stream has lasted, and wherever in the interval it leaves."""

    class LeavingClient:
        is_disconnected = False

        def watch_disconnect(self, cancel_task: bool) -> None:
            assert not cancel_task

    async def run() -> None:
        client, waits = LeavingClient(), []
        client.loop = asyncio.get_running_loop()  # type: ignore[attr-defined]

        async def send_stream() -> None:
            waits.append(relay.UsageWait(client))  # type: ignore[arg-type]
            await asyncio.Event().wait()

        task = asyncio.create_task(send_stream())
        await asyncio.sleep(0)
        waits[0]._check_client()
        client.is_disconnected = True
        waits[0]._check_client()
        assert not task.cancelling()
        waits[0]._check_client()
        assert task.cancelling()
        await asyncio.wait([task])

    monkeypatch.setattr(relay, "USAGE_SECONDS", 2 * PATIENCE)
    asyncio.run(run())


def test_a_provider_that_never_says_it_is_not_waited_for(tmp_path: Path) -> None:
    def play(peer: ScriptedConnection) -> None:
        peer.send(STREAM_HEAD)
        peer.chunk(*COUNTED_STREAM[:2])
        peer.wait_for_close()

    with serve_with_limits(tmp_path, "[[limits]]\ntokens_per_day = 100000\n") as served:
        scene = served.scene("openai-chat", play)
        line = open_call(served, "openai-chat", scene.model, True, {**sent_key("ana"), "x-request-id": "end"})
        line.start()
        line.read_until(b'"finish_reason":"stop"')
        line.disconnect()
        assert served.line("end")
        ((_, tokens),) = read_used_counters(served).items()
        assert least_use(scene, "Hello.") <= tokens < 100


@pytest.mark.parametrize("text", ["Some plain words, ", "天气很好，我们去公园吧"])
@pytest.mark.parametrize("pieces", [1, 20, 40])
@pytest.mark.parametrize("client", ["openai-chat", "anthropic"])
def test_wherever_a_client_leaves_what_it_saw_is_counted(client: str, pieces: int, text: str, tmp_path: Path) -> None:
    said = CHUNK % (b'[{"index":0,"delta":{"content":%b},"finish_reason":null}]' % json.dumps(text * 9).encode())

    def play(peer: ScriptedConnection) -> None:
        peer.send(STREAM_HEAD)
        peer.chunk(*[said] * pieces)
        peer.wait_for_close()

    with serve_with_limits(tmp_path, "[[limits]]\ntokens_per_day = 100000\n") as served:
        scene = served.scene("openai-chat", play)
        line = open_call(served, client, scene.model, True, {**sent_key("ana"), "x-request-id": "leaves"})
        line.start()
        data, spellings = b"", {json.dumps(text[:3])[1:-1].encode(), text[:3].encode()}
        while sum(map(data.count, spellings)) < pieces * 9:
            data += line.read_some()
        line.disconnect()
        served.line("leaves")
        ((_, tokens),) = read_used_counters(served).items()
        seen = text * 9 * pieces
        least = estimate_text_tokens(len(seen)) if seen.isascii() else len(seen)
        assert least <= tokens - estimate_body_tokens(scene.asked[-1].body) < 1.2 * least + 20


# --- what is reserved ------------------------------------------------------------------------------------------------

CALL_OF_A_TOOL = {
    "role": "assistant",
    "content": None,
    "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"max_tokens": 1}'}}],
}
STEERING: dict[str, tuple[str, dict[str, Any]]] = {
    "metadata": ("openai-chat", {"metadata": {"max_tokens": 1}, "max_tokens": 4000}),
    "arguments": ("openai-chat", {"messages": [CALL_OF_A_TOOL], "max_tokens": 4000}),
    "a schema": ("openai-chat", {"tools": [{"max_tokens": 1}], "max_tokens": 4000}),
    "many keys": ("openai-chat", {**{f"max_tokens_{number}": 1 for number in range(40)}, "max_tokens": 4000}),
    "two limits": ("openai-chat", {"max_tokens": 1, "max_completion_tokens": 4000}),
    "two limits, the other way": ("openai-chat", {"max_tokens": 4000, "max_completion_tokens": 1}),
    "another spelling": ("openai-chat", {"max_tokens": 1, "Max_Tokens": 4000}),
    "another server's": ("openai-chat", {"max_tokens": 1, "n_predict": 4000}),
    "huge": ("openai-chat", {"max_tokens": 10**30}),
    "very long": ("openai-chat", {"max_tokens": int("9" * 300)}),
    "negative": ("openai-chat", {"max_tokens": -1}),
    "zero": ("openai-chat", {"max_tokens": 0}),
    "a float": ("openai-chat", {"max_tokens": 4000.0}),
    "a text": ("openai-chat", {"max_tokens": "4000"}),
    "no number": ("openai-chat", {"max_tokens": "few"}),
    "a flag": ("openai-chat", {"max_tokens": True}),
    "a list": ("openai-chat", {"max_tokens": [1]}),
    "an object": ("openai-chat", {"max_tokens": {"max_tokens": 1}}),
    "several answers": ("openai-chat", {"max_tokens": 500, "n": 8}),
    "several answers by default": ("openai-chat", {"n": 4}),
    "a text of answers": ("openai-chat", {"max_tokens": 500, "n": " 8 "}),
    "a float of answers": ("openai-chat", {"max_tokens": 500, "n": 8.0}),
    "candidates": ("openai-chat", {"max_tokens": 500, "best_of": 8}),
    "prompts": ("openai-chat", {"max_tokens": 500, "prompt": ["a"] * 8}),
    "Responses": ("openai-responses", {"metadata": {"max_output_tokens": 1}, "max_output_tokens": 4000}),
    "Anthropic": ("anthropic", {"metadata": {"max_tokens": 1}, "max_tokens": 4000}),
    "Gemini": ("gemini", {"labels": {"maxOutputTokens": "1"}, "generationConfig": {"maxOutputTokens": 4000}}),
    "Gemini in snakes": ("gemini", {"generation_config": {"max_output_tokens": 4000}, "maxOutputTokens": 1}),
    "Gemini, mixed": ("gemini", {"generationConfig": {"maxOutputTokens": 1, "max_output_tokens": 4000}}),
    "Gemini's candidates": ("gemini", {"generationConfig": {"maxOutputTokens": 500, "candidateCount": 8}}),
    "Gemini's text": ("gemini", {"generationConfig": {"maxOutputTokens": "500", "candidate_count": "8"}}),
    "unified": ("unified", {"metadata": {"max_output_tokens": 1}, "max_output_tokens": 4000}),
    "half of a character": ("openai-chat", {"user": "\ud800", "max_tokens": 500, "n": 8}),
    "half of a key": ("gemini", {"\udc00": 1, "generationConfig": {"maxOutputTokens": 4000}}),
}


def reserve_output(codec: Codec, data: bytes, max_output: int | None = None) -> int:
    """What a body that may not be JSON reserves for its answer."""
    body = read_client_body(codec, data)
    return estimate_output(body if isinstance(body, ClientBody) else ClientBody(codec, data), max_output)


@pytest.mark.parametrize("kind", STEERING)
def test_a_request_cannot_lower_what_it_reserves(kind: str) -> None:
    protocol, more = STEERING[kind]
    body = json.dumps({"model": "m", **more}).encode()
    assert reserve_output(CODECS[protocol], body) in (4000, 4096)
    assert reserve_output(CODECS[protocol], json.dumps({"model": "m", **more}, indent=1).encode()) in (4000, 4096)


@pytest.mark.parametrize(
    ("protocol", "more"),
    [
        ("openai-chat", {"maxTokens": 1, "Max_tokens": 1, **{f"max_tokens_{number}": 1 for number in range(20)}}),
        ("openai-chat", {"n_predict": 1, "max_new_tokens": 1, "max_output_tokens": 1}),
        ("openai-responses", {"maxOutputTokens": 1, "max_tokens": 1}),
        ("anthropic", {"max_tokens_to_sample": 1, "maxTokens": 1}),
        ("gemini", {"generationConfig": {"MaxOutputTokens": 1}, "maxOutputTokens": 1}),
    ],
)
def test_a_limit_that_some_servers_ignore_lowers_nothing(protocol: str, more: dict[str, Any]) -> None:
    """30 of 30 requests passed a limit that allows seven: the server did not know the spelling."""
    assert reserve_output(CODECS[protocol], json.dumps({"model": "m", **more}).encode()) == 1024


def test_what_a_request_reserves_for_its_output() -> None:
    chat, gemini = CODECS["openai-chat"], CODECS["gemini"]
    assert reserve_output(chat, b'{"model":"m"}') == 1024
    assert reserve_output(chat, b'{"max_tokens":null}') == 1024
    assert reserve_output(chat, b'{"max_tokens":7}') == 7
    assert reserve_output(chat, b'{"max_tokens":700}', 50) == 50
    assert reserve_output(chat, b'{"model":"m"}', 3000) == 3000
    assert reserve_output(chat, b'{"n":0,"max_tokens":7}') == 7
    assert reserve_output(chat, b'{"n":null,"max_tokens":7}') == 7
    assert reserve_output(chat, b"--boundary") == 1024
    assert reserve_output(chat, b'{"n":1e30}') == 2**48
    assert reserve_output(gemini, b'{"generationConfig":null}') == 1024
    assert reserve_output(gemini, b'{"generationConfig":{"maxOutputTokens":1,"maxOutputTokens":3000}}') == 3000


@pytest.mark.parametrize("kind", ["metadata", "two limits", "several answers", "Gemini, mixed", "letters", "an image"])
def test_concurrent_requests_do_not_pass_a_limit_that_allows_one(kind: str, tmp_path: Path) -> None:
    letters = "A" * 14_000
    url = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{letters}"}}
    steering = {
        **STEERING,
        "letters": ("openai-chat", {"messages": [{"role": "user", "content": letters}], "max_tokens": 1}),
        "an image": ("openai-chat", {"messages": [{"role": "user", "content": [url]}], "max_tokens": 1}),
    }
    protocol, more = steering[kind]

    def waits(peer: ScriptedConnection) -> None:
        peer.wait_for_release()
        peer.send(play_script(protocol, False))

    with serve_with_limits(tmp_path, "[[limits]]\ntokens_per_day = 7000\n") as served:
        scene = served.scene(protocol, waits)
        running = open_call(served, protocol, scene.model, False, sent_key("ana"), **more)
        assert scene.reached.wait(PATIENCE)
        for _ in range(5):
            assert expect_refusal(protocol, call(served, protocol, scene.model, False, sent_key("ana"), **more))
        scene.go.set()
        assert running.start().read()
        running.disconnect()
        assert len(scene.asked) == 1


@STREAMS
@pytest.mark.parametrize("background", [False, True])
def test_the_history_that_a_request_continues_is_reserved(background: bool, stream: bool, tmp_path: Path) -> None:
    def waits(peer: ScriptedConnection) -> None:
        peer.wait_for_release()
        peer.send(play_script("openai-chat", stream or background))

    store = f"sqlite://{tmp_path}/store.db"
    with serve_with_limits(tmp_path, "[[limits]]\ntokens_per_day = 20000\n", store=store) as served:
        scene = served.scene("openai-chat", huge_use("openai-chat", 5, 5), waits)
        long = [{"role": "user", "content": "Some words. " * 4000}]
        asked = ("openai-responses", scene.model)
        first = call(served, *asked, False, sent_key("ana"), input=long, store=True)
        assert first.status == 200
        more = {"previous_response_id": first.json()["id"], "store": True, "max_output_tokens": 100}
        if background:
            more["background"] = True
        running = open_call(served, *asked, stream, sent_key("ana"), **more)
        assert scene.reached.wait(PATIENCE)
        wait_until(lambda: len(scene.asked) == 2)
        for _ in range(3):
            more["background"] = False
            assert expect_refusal("openai-responses", call(served, *asked, False, sent_key("ana"), **more))
        scene.go.set()
        assert running.start().read()
        running.disconnect()
        assert len(scene.asked) == 2


UNREAD_REQUESTS: dict[str, tuple[str, dict[str, Any]]] = {
    "anthropic": (
        "/v1/messages/batches",
        {"requests": [{"custom_id": "1", "params": {"model": "m", "max_tokens": 9, "messages": []}}]},
    ),
    "openai-chat": ("/v1/batches", {"input_file_id": "file-1", "endpoint": "/v1/chat/completions"}),
    "gemini": ("/v1beta/models/gemini/m:batchGenerateContent", {"batch": {"inputConfig": {"fileName": "files/1"}}}),
}


@pytest.mark.parametrize(
    ("limit", "is_refused"),
    [
        ("tokens_per_day = 1000000", True),
        ("dollars_per_month = 100", True),
        ('model = "claude-*"\ntokens_per_day = 1000000', True),
        ('key = "ana"\nper = "model"\ntokens_per_day = 1000000', True),
        ("requests_per_minute = 100", False),
        ("tokens_per_day = 1000000\nsoft = true", False),
        ('key = "ben"\ntokens_per_day = 1000000', False),
        ('provider = "nobody"\ntokens_per_day = 1000000', False),
    ],
)
@pytest.mark.parametrize("protocol", UNREAD_REQUESTS)
def test_requests_that_cannot_be_counted_are_refused(
    protocol: str, limit: str, is_refused: bool, tmp_path: Path
) -> None:
    """A batch could use a thousand times the limit, and nobody says how much it has used."""
    with serve_with_limits(tmp_path, f'[[limits]]\nname = "x"\n{limit}\n', "shared_objects = true\n") as served:
        scene = served.scene(protocol, answer(200, b'{"id":"batch_1","name":"batches/1"}'))
        path, body = UNREAD_REQUESTS[protocol]
        sent = json.dumps({**body, "metadata": {"mark": f"-{scene.mark}"}}).encode()
        got = ask(served.port, "POST", path, sent, sent_key("ana"))
        if is_refused:
            assert "the limit `x` cannot be applied to this endpoint" in expect_refusal(protocol, got, 403)
        assert (got.status, len(scene.asked)) == ((403, 0) if is_refused else (200, 1))


COSTLY_REQUESTS: dict[str, tuple[str, str, str, dict[str, Any]]] = {
    "videos": ("openai-chat", "POST", "/v1/videos", {"model": "{model}", "prompt": "A cat"}),
    "a remix": ("openai-chat", "POST", "/v1/videos/video_1/remix", {"prompt": "A dog {mark}"}),
    "images": ("openai-chat", "POST", "/v1/images/generations", {"model": "{model}", "prompt": "A cat"}),
    "edited images": ("openai-chat", "POST", "/v1/images/edits", {"model": "{model}", "prompt": "A cat"}),
    "speech": ("openai-chat", "POST", "/v1/audio/speech", {"model": "{model}", "input": "Hi", "voice": "alloy"}),
    "transcriptions": ("openai-chat", "POST", "/v1/audio/transcriptions", {"model": "{model}"}),
    "fine-tuning": ("openai-chat", "POST", "/v1/fine_tuning/jobs", {"model": "{model}", "training_file": "f"}),
    "fine-tuning that goes on": ("openai-chat", "POST", "/v1/fine_tuning/jobs/{mark}/resume", {}),
    "runs": ("openai-chat", "POST", "/v1/threads/{mark}/runs", {"assistant_id": "a"}),
    "Imagen": ("gemini", "POST", "/v1beta/models/{model}:predict", {"instances": []}),
    "Veo": ("gemini", "POST", "/v1beta/models/{model}:predictLongRunning", {"instances": []}),
    "caches": ("gemini", "POST", "/v1beta/cachedContents", {"contents": [], "displayName": "{mark}"}),
    "indexed files": ("gemini", "POST", "/v1beta/fileSearchStores/{mark}:importFile", {"fileName": "files/1"}),
    "interactions": ("gemini", "POST", "/v1beta/interactions", {"model": "{model}", "input": "Hi"}),
}
STORAGE_REQUESTS: dict[str, tuple[str, str, str, dict[str, Any]]] = {
    "containers": ("openai-chat", "POST", "/v1/containers", {"name": "{mark}"}),
    "files in them": ("openai-chat", "POST", "/v1/containers/{mark}/files", {"file_id": "f"}),
    "vector stores": ("openai-chat", "POST", "/v1/vector_stores", {"name": "{mark}"}),
    "vector stores that live longer": ("openai-chat", "POST", "/v1/vector_stores/{mark}", {"expires_after": {}}),
    "threads": ("openai-chat", "POST", "/v1/threads", {"metadata": {"name": "{mark}"}}),
    "caches that live longer": ("gemini", "PATCH", "/v1beta/cachedContents/{mark}", {"ttl": "3600s"}),
}
FREE_REQUESTS: dict[str, tuple[str, str, str, dict[str, Any]]] = {
    "uploads": ("openai-chat", "POST", "/v1/uploads", {"filename": "{mark}", "bytes": 3, "purpose": "batch"}),
    "parts of uploads": ("openai-chat", "POST", "/v1/uploads/{mark}/complete", {"part_ids": []}),
    "conversations": ("openai-chat", "POST", "/v1/files", {"purpose": "{mark}"}),
    "cancelled batches": ("openai-chat", "POST", "/v1/batches/{mark}/cancel", {}),
    "lists": ("openai-chat", "GET", "/v1/files/{mark}", {}),
    "videos that are looked at": ("openai-chat", "GET", "/v1/videos/{mark}", {}),
    "deleted containers": ("openai-chat", "DELETE", "/v1/containers/{mark}", {}),
    "moderations": ("openai-chat", "POST", "/v1/moderations", {"model": "{model}", "input": "Hi"}),
    "cancelled batches of Claude": ("anthropic", "POST", "/v1/messages/batches/{mark}/cancel", {}),
}
FORWARDED = {**COSTLY_REQUESTS, **STORAGE_REQUESTS, **FREE_REQUESTS}


def send_forwarded(served: Served, scene: Scene, kind: str) -> RawAnswer:
    _, method, path, body = FORWARDED[kind]
    names = {"{model}": scene.model, "{mark}": f"x-{scene.mark}"}
    text = json.dumps(body)
    for name, value in names.items():
        path, text = path.replace(name, value), text.replace(name, value)
    return ask(served.port, method, path, b"" if method in ("GET", "DELETE") else text.encode(), sent_key("ana"))


@pytest.mark.parametrize(
    ("limit", "refused_kinds"),
    [
        ("dollars_per_day = 100", {*COSTLY_REQUESTS, *STORAGE_REQUESTS}),
        ("tokens_per_day = 100000", {*COSTLY_REQUESTS}),
        ("dollars_per_day = 100\nsoft = true", set()),
        ('key = "ben"\ndollars_per_day = 100', set()),
    ],
)
def test_a_limit_sees_everything_that_costs_money(limit: str, refused_kinds: set[str], tmp_path: Path) -> None:
    """Whatever the gateway does not know to be free, or cannot count, does not pass a hard limit."""
    with serve_with_limits(tmp_path, f'[[limits]]\nname = "x"\n{limit}\n', "shared_objects = true\n") as served:
        for kind, (protocol, *_) in FORWARDED.items():
            scene = served.scene(protocol, answer(200, b'{"id":"x_1","name":"x/1"}'))
            got = send_forwarded(served, scene, kind)
            if kind in refused_kinds:
                assert "the limit `x` cannot be applied to this endpoint" in expect_refusal(protocol, got, 403)
            assert (got.status, len(scene.asked)) == ((403, 0) if kind in refused_kinds else (200, 1)), kind
        assert read_used_counters(served) == {}


def test_every_request_to_a_provider_is_one(tmp_path: Path) -> None:
    most = len(FORWARDED)
    limits = f'[[limits]]\nname = "x"\nrequests_per_minute = {most}\nparallel_requests = 1\n'
    with serve_with_limits(tmp_path, limits, "shared_objects = true\n") as served:
        stop_clock(served)
        scenes = {}
        for number, (kind, (protocol, *_)) in enumerate(FORWARDED.items(), 1):
            scenes[kind] = served.scene(protocol, answer(200, b'{"id":"x_1","name":"x/1"}'))
            assert send_forwarded(served, scenes[kind], kind).status == 200, kind
            assert read_used_counters(served) == {"x/requests_per_minute": number}, kind
        for kind, scene in scenes.items():
            assert expect_refusal(FORWARDED[kind][0], send_forwarded(served, scene, kind))


def test_an_endpoint_is_free_only_if_its_table_says_so() -> None:
    (endpoint,) = parse_passthrough_endpoints("GET,POST,PUT,PATCH,DELETE /v1/new body create")
    costs = {method: endpoint.find_cost(method) for method in ("GET", "HEAD", "DELETE", "POST", "PUT", "PATCH")}
    assert costs == {"GET": "free", "HEAD": "free", "DELETE": "free", "POST": "", "PUT": "", "PATCH": ""}


def test_a_limit_for_other_models_does_not_refuse_images(tmp_path: Path) -> None:
    limits = '[[limits]]\nname = "x"\nmodel = "claude-*"\ndollars_per_day = 1\n'
    with serve_with_limits(tmp_path, limits) as served:
        scene = served.scene("openai-chat", answer(200, b"{}"))
        assert send_forwarded(served, scene, "images").status == 200


EMBEDDING_PRICE = '[models."embed-*"]\nprovider = "chat"\n[models."embed-*".facts.prices]\ninput = 10\n'


@pytest.mark.parametrize("usage", [b'{"prompt_tokens":200,"total_tokens":200}', b"null", b'{"prompt_tokens":0}'])
def test_embeddings_need_no_price_for_output(usage: bytes, tmp_path: Path) -> None:
    with serve_with_limits(tmp_path, f'[[limits]]\nname = "x"\ndollars_per_day = 1\n{EMBEDDING_PRICE}') as served:
        scene = served.scene("openai-chat", answer(200, b'{"data":[[0.1,0.2]],"usage":%b}' % usage), model="embed")
        body = json.dumps({"model": scene.model.partition("/")[2], "input": "Hi " * 200}).encode()
        assert ask(served.port, "POST", "/v1/embeddings", body, sent_key("ana")).status == 200
        counted = read_used_counters(served)["x/dollars_per_day"]
        assert counted == 2_000_000 or estimate_body_tokens(scene.asked[0].body) * 10_000 <= counted < 3_000_000


@pytest.mark.parametrize("words_of_event", [0, 1, 40, 3000])
@pytest.mark.parametrize("usage", [b"null", b'{"prompt_tokens":0,"completion_tokens":0}'])
def test_a_completion_of_unknown_usage_counts_what_was_seen(usage: bytes, words_of_event: int, tmp_path: Path) -> None:
    text, events = (b"word " * words_of_event, 9000 // words_of_event) if words_of_event else (b"word " * 9000, 0)
    event = b'data: {"choices":[{"text":"%b"}]}\n\n' % text
    whole = b'{"choices":[{"text":"%b"}],"usage":%b}' % (text, usage)
    with serve_with_limits(tmp_path, '[[limits]]\nname = "x"\ntokens_per_day = 100000\n') as served:
        scene = served.scene("openai-chat", write_chunked(event * events) if events else answer(200, whole))
        body = json.dumps({"model": scene.model, "prompt": "Hi", "max_tokens": 90000, "stream": bool(events)}).encode()
        assert ask(served.port, "POST", "/v1/completions", body, sent_key("ana")).status == 200
        assert 9_000 <= read_used_counters(served)["x/tokens_per_day"] < 14_000


def test_endpoints_that_only_pass_through_count(tmp_path: Path) -> None:
    with serve_with_limits(
        tmp_path, '[[limits]]\nname = "x"\ntokens_per_day = 100000\nparallel_requests = 9\n'
    ) as served:
        scene = served.scene("openai-chat", answer(200, b'{"data":[],"usage":{"prompt_tokens":2}}'))
        body = json.dumps({"model": scene.model, "input": "Hi " * 100}).encode()
        assert ask(served.port, "POST", "/v1/embeddings", body, sent_key("ana")).status == 200
        assert read_used_counters(served) == {"x/tokens_per_day": 2}


@STREAMS
@pytest.mark.parametrize("amount", ["tokens_per_day = 400", "dollars_per_day = 0.006"])
def test_rounds_of_one_answer_do_not_pass_a_limit(amount: str, stream: bool, tmp_path: Path) -> None:
    """The model could pause, or call tools of the gateway, many times for one request."""
    prices = PRICES.replace('provider = "chat"', 'provider = "anthropic"') + "search = 0\n"
    with serve_with_limits(tmp_path, f'[[limits]]\nname = "x"\nparallel_requests = 1\n{amount}\n{prices}') as served:
        scene = served.scene("anthropic", paused_answer("One, ", "pause_turn", stream), model="priced")
        name = scene.model.partition("/")[2]
        got = call(served, "openai-chat", name, stream, sent_key("ana"), max_tokens=100, **SEARCH["openai-chat"])
        assert b"the limit `x`" in got.data
        assert b"from the provider" not in got.data
        assert got.status == (200 if stream else REACHED["openai-chat"][1])
        assert 1 < len(scene.asked) < 9
        used = read_used_counters(served)
        assert used.keys() == {f"x/{amount.partition(' ')[0]}"}
        assert all(
            0 < one <= float(amount.rsplit(maxsplit=1)[-1]) * (1 if "tokens" in amount else 10**9)
            for one in used.values()
        )


POOL = """[providers.pool]
protocols = ["anthropic"]
base_url = "{plain}"
accounts = [{ name = "a", api_key = "k1-of-the-pool" }, { name = "b", api_key = "k2-of-the-pool" }]
[models."pooled-*"]
provider = "pool"
facts.prices = { input = 1, output = 1, search = 1000 }
"""


@pytest.mark.parametrize(
    ("client", "amount", "tools"),
    [
        ("openai-chat", "tokens_per_day = 400", SEARCH["openai-chat"]),
        ("anthropic", "dollars_per_day = 4.0002", SEARCH["anthropic"]),
        (
            "anthropic",
            "dollars_per_day = 4",
            {"tools": [{"type": "code_execution_20250825", "name": "code_execution"}]},
        ),
    ],
    ids=["in a further round", "before it is sent", "for its tools"],
)
def test_what_a_limit_refuses_lets_no_account_rest(
    client: str, amount: str, tools: dict[str, Any], tmp_path: Path
) -> None:
    """The keys of others go on with them."""
    with serve_with_limits(tmp_path, f'[[limits]]\nname = "x"\nkey = ["ana"]\n{amount}\n{POOL}') as served:
        scene = served.scene("anthropic", paused_answer("One, ", "pause_turn", False), provider="pool", model="pooled")
        for _ in range(2):
            got = call(served, client, scene.name, False, sent_key("ana"), max_tokens=100, **tools)
            read_used_counters(served)
        assert got.status in (403, 429), got.data
        assert b"the limit `x`" in got.data
        health, now = served.gateway.health, time.monotonic()
        assert not [label for label in ("pool/a", "pool/b") if health.is_resting(label, scene.name, now)]


COMPACTED = {"id": "c", "object": "response.compaction", "created_at": 1, "output": []}


@pytest.mark.parametrize("provider", ["openai-responses", "openai-chat"])
def test_a_compaction_counts(provider: str, tmp_path: Path) -> None:
    """OpenAI has an endpoint for it, and for other providers the gateway asks for a summary."""
    limits = '[[limits]]\nname = "x"\ntokens_per_day = 3000\nrequests_per_minute = 1000\n'
    with serve_with_limits(tmp_path, limits, store=f"sqlite://{tmp_path}/store.db") as served:
        usage = {"input_tokens": 1500, "output_tokens": 500, "total_tokens": 2000}
        native = answer(200, encode_json({**COMPACTED, "usage": usage}).encode())
        play = native if provider == "openai-responses" else huge_use(provider, 1500, 500)
        scene = served.scene(provider, play)
        body = json.dumps({"model": scene.model, "input": [{"role": "user", "content": "Hi"}]}).encode()
        stop_clock(served)
        first = ask(served.port, "POST", "/v1/responses/compact", body, sent_key("ana"))
        assert (first.status, read_used_counters(served)) == (
            200,
            {"x/tokens_per_day": 2000, "x/requests_per_minute": 1},
        )
        assert expect_refusal(
            "openai-responses", ask(served.port, "POST", "/v1/responses/compact", body, sent_key("ana"))
        )
        assert len(scene.asked) == 1


def test_a_compaction_reserves_what_is_sent(tmp_path: Path) -> None:
    """Stored turns are a part of it, though the client does not send them."""
    limits = '[[limits]]\nname = "x"\nprovider = ["responses"]\ntokens_per_day = 3000\n'
    with serve_with_limits(tmp_path, limits, store=f"sqlite://{tmp_path}/store.db") as served:
        scene = served.scene("openai-responses", answer(200, encode_json(COMPACTED).encode()))
        first = {"model": "loopback", "input": "word " * 9000}
        stored = ask(served.port, "POST", "/v1/responses", json.dumps(first).encode(), sent_key("ana"))
        body = {"model": scene.model, "previous_response_id": json.loads(stored.data)["id"], "input": "Hi"}
        got = ask(served.port, "POST", "/v1/responses/compact", json.dumps(body).encode(), sent_key("ana"))
        assert "this request alone needs about" in expect_refusal("openai-responses", got)
        assert (scene.asked, read_used_counters(served)) == ([], {})


@pytest.mark.parametrize(
    ("price", "fields", "name"),
    [
        ("", {"service_tier": "priority"}, "service_tier"),
        ("search = 10", {"tools": [{"type": "image_generation"}]}, "image_generation"),
        ("search = 10", {"tools": [{"type": "web_search"}]}, ""),
    ],
)
def test_a_compaction_has_no_tools_that_nobody_can_count(
    price: str, fields: dict[str, Any], name: str, tmp_path: Path
) -> None:
    prices = '[models."compact-*"]\nprovider = "responses"\n[models."compact-*".facts.prices]\ninput = 1\noutput = 1\n'
    limits = f'[[limits]]\nname = "x"\ndollars_per_day = 1\n{prices}{price}\n'
    with serve_with_limits(tmp_path, limits, store=f"sqlite://{tmp_path}/store.db") as served:
        usage = {"input_tokens": 1500, "output_tokens": 500, "total_tokens": 2000}
        native = answer(200, encode_json({**COMPACTED, "usage": usage}).encode())
        scene = served.scene("openai-responses", native, model="compact")
        body = {"model": scene.name, "input": [{"role": "user", "content": "Hi"}], **fields}
        got = ask(served.port, "POST", "/v1/responses/compact", json.dumps(body).encode(), sent_key("ana"))
        if name:
            assert f"what `{name}` costs" in expect_refusal("openai-responses", got, 403)
        assert (got.status, len(scene.asked)) == ((403, 0) if name else (200, 1)), got.data


def test_a_compaction_does_not_pass_a_limit_of_its_provider(tmp_path: Path) -> None:
    """Another provider would be allowed, but only this one can compact it."""
    limits = '[[limits]]\nname = "x"\nprovider = ["responses"]\nrequests_per_minute = 1\n'
    rule = '[models."twice-*"]\nprovider = "responses"\nfallbacks = ["loopback"]\n'
    with serve_with_limits(tmp_path, limits + rule, store=f"sqlite://{tmp_path}/store.db") as served:
        scene = served.scene("openai-responses", answer(200, encode_json(COMPACTED).encode()))
        body = json.dumps({"model": f"twice-{scene.name}", "input": "Hi"}).encode()
        stop_clock(served)
        first, second = (ask(served.port, "POST", "/v1/responses/compact", body, sent_key("ana")) for _ in range(2))
        assert (first.status, len(scene.asked)) == (200, 1)
        assert expect_refusal("openai-responses", second)


def test_what_asks_no_model_does_not_count(tmp_path: Path) -> None:
    with serve_with_limits(tmp_path, "[[limits]]\nrequests_per_minute = 1\n") as served:
        for _ in range(5):
            assert ask(served.port, "GET", "/v1/models", headers=sent_key("ana")).status == 200
            body = json.dumps({"model": "loopback", "messages": [{"role": "user", "content": "Hi"}]}).encode()
            assert ask(served.port, "POST", "/v1/messages/count_tokens", body, sent_key("ana")).status == 200
        assert read_used_counters(served) == {}


def test_a_response_in_the_background_holds_its_place_until_it_ends(tmp_path: Path) -> None:
    def waits(peer: ScriptedConnection) -> None:
        peer.wait_for_release()
        peer.send(play_script("openai-chat", True))

    store = f"sqlite://{tmp_path}/store.db"
    with serve_with_limits(
        tmp_path, '[[limits]]\nname = "x"\nparallel_requests = 1\ntokens_per_day = 99999\n', store=store
    ) as served:
        scene = served.scene("openai-chat", waits)
        more = {"background": True, "store": True}
        started = call(served, "openai-responses", scene.model, False, sent_key("ana"), **more)
        assert started.status == 200
        assert scene.reached.wait(PATIENCE)
        assert expect_refusal(
            "openai-responses", call(served, "openai-responses", scene.model, False, sent_key("ana"), **more)
        )
        scene.go.set()
        path = f"/v1/responses/{started.json()['id']}"
        wait_until(lambda: ask(served.port, "GET", path, headers=sent_key("ana")).json()["status"] == "completed")
        assert list(read_used_counters(served)) == ["x/tokens_per_day"]


@STREAMS
def test_a_response_in_the_background_counts_once(stream: bool, tmp_path: Path) -> None:
    """Its client's request has mostly ended before it begins."""
    limits = '[[limits]]\nname = "x"\nrequests_per_minute = 1000\n'
    with serve_with_limits(tmp_path, limits, store=f"sqlite://{tmp_path}/store.db") as served:
        scene = served.scene("openai-chat", play_script("openai-chat", True))
        stop_clock(served)
        more = {"background": True, "store": True}
        started = call(served, "openai-responses", scene.model, stream, sent_key("ana"), **more)
        path = f"/v1/responses/{re.findall(rb'resp_[0-9a-zA-Z]+', started.data)[0].decode()}"
        wait_until(lambda: ask(served.port, "GET", path, headers=sent_key("ana")).json()["status"] == "completed")
        assert read_used_counters(served) == {"x/requests_per_minute": 1}


# --- providers, fallbacks -------------------------------------------------------------------------------------------


def test_a_provider_that_is_full_leaves_the_request_to_its_fallback(tmp_path: Path) -> None:
    rules = '[models.pair]\nprovider = "chat"\nmodel = "first-s901x"\nfallbacks = ["anthropic/second-s902x"]\n'
    limits = '[[limits]]\nname = "of the provider"\nprovider = "chat"\ntokens_per_day = 1500\n'
    limits += '[[limits]]\nname = "of all"\ntokens_per_day = 100000\nrequests_per_minute = 1000\n'
    with serve_with_limits(tmp_path, limits + rules) as served:
        first = served.scene("openai-chat", huge_use("openai-chat", 1000, 0))
        second = served.scene("anthropic", play_script("anthropic", False))
        served.wire.scenes |= {b"s901x": first, b"s902x": second}
        stop_clock(served)
        providers = []
        for _ in range(3):
            got = call(served, "openai-chat", "pair", False, sent_key("ana"))
            assert got.status == 200
            providers.append(got.headers["x-toolwire-provider"])
            read_used_counters(served)
        assert providers == ["chat", "anthropic", "anthropic"]
        assert read_used_counters(served)["of all/requests_per_minute"] == 3
        assert read_used_counters(served)["of the provider/tokens_per_day"] == 1000


@pytest.mark.parametrize("first_answer", [b"<html>Busy</html>", b"{}"], ids=["page", "nothing"])
def test_a_call_of_unknown_usage_counts_for_the_provider_that_was_asked(first_answer: bytes, tmp_path: Path) -> None:
    rules = '[models.pair]\nprovider = "chat"\nmodel = "first-s901x"\nfallbacks = ["anthropic/second-s902x"]\n'
    with serve_with_limits(
        tmp_path, f'[[limits]]\nname = "x"\nper = "provider"\ntokens_per_day = 100000\n{rules}'
    ) as served:
        first = served.scene("openai-chat", answer(200, first_answer))
        second = served.scene("anthropic", play_script("anthropic", False))
        served.wire.scenes |= {b"s901x": first, b"s902x": second}
        got = call(served, "openai-chat", "pair", False, sent_key("ana"), max_tokens=500)
        line, counted = served.line(got.id), read_used_counters(served)
        assert got.headers["x-toolwire-provider"] == "anthropic"
        assert 500 < counted["x/tokens_per_day/chat"] < 600
        assert counted["x/tokens_per_day/anthropic"] == line["input_tokens"] + line["output_tokens"]


def test_a_fallback_after_a_failure_gives_back_what_the_first_provider_held(tmp_path: Path) -> None:
    rules = '[models.pair]\nprovider = "chat"\nmodel = "first-s901x"\nfallbacks = ["anthropic/second-s902x"]\n'
    limits = '[[limits]]\nper = "provider"\ntokens_per_day = 100000\nrequests_per_minute = 1000\n'
    with serve_with_limits(tmp_path, limits + rules) as served:
        first = served.scene("openai-chat", busy_answer("openai-chat"))
        second = served.scene("anthropic", play_script("anthropic", False))
        served.wire.scenes |= {b"s901x": first, b"s902x": second}
        assert call(served, "openai-chat", "pair", False, sent_key("ana")).status == 200
        name = "each provider/{}/anthropic".format
        assert read_used_counters(served).keys() == {name("tokens_per_day"), name("requests_per_minute")}


# --- money ------------------------------------------------------------------------------------------------------------

PRICES = """[models."priced-*"]
provider = "chat"
[models."priced-*".facts.prices]
input = 10
output = 20
"""


def test_dollars(tmp_path: Path) -> None:
    with serve_with_limits(
        tmp_path, f'[[limits]]\nname = "budget"\nteam = "app"\ndollars_per_month = 0.05\n{PRICES}'
    ) as served:
        scene = served.scene("openai-chat", huge_use("openai-chat", 1000, 150), model="priced")
        model = scene.model.partition("/")[2]
        got = call(served, "openai-chat", model, False, sent_key("ana"), max_tokens=100)
        assert got.status == 200
        assert read_used_counters(served) == {"budget/dollars_per_month": 13_000_000}
        assert [
            call(served, "openai-chat", model, False, sent_key("ben"), max_tokens=100).status for _ in range(2)
        ] == [200] * 2
        assert read_used_counters(served) == {"budget/dollars_per_month": 39_000_000}
        got = call(served, "openai-chat", model, False, sent_key("ben"), max_tokens=600)
        message = expect_refusal("openai-chat", got)
        assert message.startswith("the limit `budget`, $0.05 per month, is reached: $0.039 are used or reserved;")


@pytest.mark.parametrize("switch", ["open", "closed", ""])
def test_a_model_without_a_price(switch: str, tmp_path: Path) -> None:
    given = f'on_unknown_price = "{switch}"\n' if switch else ""
    limits = f'[[limits]]\nname = "budget"\ndollars_per_month = 5\n{given}'
    with serve_with_limits(tmp_path, limits) as served:
        scene = served.scene("openai-chat", play_script("openai-chat", False), model="unheard-of")
        got = call(served, "openai-chat", scene.model, False, sent_key("ana"))
        if switch != "open":
            assert "no price is known for `chat/unheard-of-" in expect_refusal("openai-chat", got, 403)
        else:
            assert got.status == 200
            assert read_used_counters(served) == {}
            event = event_of(served, "limit_unpriced")
            assert event["provider"] == "chat"


def test_a_fallback_without_a_price_is_not_asked(tmp_path: Path) -> None:
    rules = f'{PRICES}[models.pair]\nprovider = "chat"\nmodel = "priced-s901x"\nfallbacks = ["chat/unheard-of-s902x"]\n'
    with serve_with_limits(tmp_path, f'[[limits]]\nname = "x"\ndollars_per_day = 5\n{rules}') as served:
        first = served.scene("openai-chat", busy_answer("openai-chat"))
        second = served.scene("openai-chat", play_script("openai-chat", False))
        served.wire.scenes |= {b"s901x": first, b"s902x": second}
        assert call(served, "openai-chat", "pair", False, sent_key("ana")).status == 503
        assert not second.asked
        assert read_used_counters(served) == {}


def test_the_limit_of_a_key_refuses_models_without_a_price(tmp_path: Path) -> None:
    own = f'[[server.keys]]\nname = "own"\nsha256 = "{hashlib.sha256(b"tw-own-key-0123456789").hexdigest()}"\n'
    own += "limits = { dollars_per_day = 5 }\n"
    with serve_with_limits(tmp_path, own) as served:
        scene = served.scene("openai-chat", play_script("openai-chat", False), model="unheard-of")
        got = call(served, "openai-chat", scene.model, False, {"x-toolwire-key": "tw-own-key-0123456789"})
        assert "no price is known" in expect_refusal("openai-chat", got, 403)
        assert send_chat(served, scene, "ana") == 200


def event_of(served: Served, kind: str) -> dict[str, Any]:
    while True:
        found: dict[str, Any] = json.loads(served.lines.get(timeout=PATIENCE))
        if found.get("event") == kind:
            return found


@pytest.mark.parametrize(
    ("is_busy", "soft", "status"), [(True, "", 503), (True, "soft = true\n", 200), (False, "", 200)]
)
def test_counters_that_are_busy_open_no_limit(is_busy: bool, soft: str, status: int, tmp_path: Path) -> None:
    """Clients can make them busy; only counters that are down let requests pass."""

    class Unusable(MemoryCounters):
        async def reserve(self, id: str, charges: Sequence[Charge], lease: float) -> Reserved | StoreDown:
            return StoreDown("the reason", is_busy)

    with serve_with_limits(tmp_path, f"[[limits]]\ntokens_per_day = 50000\n{soft}") as served:
        scene = served.scene("openai-chat", play_script("openai-chat", False))
        reservations_of(served).counters = Unusable()
        got = call(served, "openai-chat", scene.model, False, sent_key("ana"))
        assert got.status == status
        if status == 503:
            assert "because its counters are busy" in expect_refusal("openai-chat", got, 503)
        event = event_of(served, "counters_busy" if is_busy else "counters_unavailable")
        assert (event["level"], event["message"]) == ("error", "the reason")


# --- soft limits, metrics ---------------------------------------------------------------------------------------------


def test_a_soft_limit_only_warns_once_in_its_window(tmp_path: Path) -> None:
    with serve_with_limits(tmp_path, '[[limits]]\nteam = "app"\ntokens_per_day = 1500\nsoft = true\n') as served:
        scene = served.scene("openai-chat", huge_use("openai-chat", 1000, 0))
        assert [send_chat(served, scene, "ana", max_tokens=100) for _ in range(5)] == [200] * 5
        event = event_of(served, "limit_passed")
        assert (event["level"], event["limit"], event["amount"]) == ("warn", "team app (soft)", "tokens_per_day")
        assert event["message"].startswith("the soft limit `team app (soft)`, 1,500 tokens per day, is passed: ")
        metrics = served.gateway.telemetry.metrics_text().decode()
        labels = 'limit="team app (soft)",amount="tokens_per_day"'
        assert f"toolwire_limit_warnings_total{{{labels}}} " in metrics
        assert "limit_passed" not in "".join(list(served.lines.queue))


def test_metrics_show_how_much_is_used(tmp_path: Path) -> None:
    with serve_with_limits(tmp_path, '[[limits]]\nper = "team"\ntokens_per_day = 1400\n') as served:
        scene = served.scene("openai-chat", huge_use("openai-chat", 1000, 0))
        assert [
            send_chat(served, scene, "ana", max_tokens=400) for _ in range(2) if read_used_counters(served) is not None
        ] == [200, 429]
        metrics = served.gateway.telemetry.metrics_text().decode()
        labels = 'limit="each team",amount="tokens_per_day"'
        assert f'toolwire_limit_used{{{labels},group="app"}} 1000\n' in metrics
        assert f'toolwire_limit_maximum{{{labels},group="app"}} 1400\n' in metrics
        assert f"toolwire_limit_refusals_total{{{labels}}} 1\n" in metrics


# --- restarts, changes ------------------------------------------------------------------------------------------------


def test_what_was_used_is_known_after_a_restart(tmp_path: Path) -> None:
    store, limits = f"sqlite://{tmp_path}/store.db", "[[limits]]\ntokens_per_month = 2500\n"
    for expected in ([200, 200], [429, 429]):
        with serve_with_limits(tmp_path, limits, store=store) as served:
            scene = served.scene("openai-chat", huge_use("openai-chat", 1200, 0))
            statuses = []
            for _ in range(2):
                statuses.append(send_chat(served, scene, "ana", max_tokens=100))
                if reservations_of(served).open:
                    read_used_counters(served)
            assert statuses == expected


@NEEDS_REDIS
@pytest.mark.parametrize(
    ("limit", "refused_keys"),
    [
        ("tokens_per_month = 2500", "ana ben ci"),
        ('per = "team"\ntokens_per_day = 2500', "ana ben"),
        ('key = "ana"\ntokens_per_hour = 2500', "ana"),
        ('model = "PRICED-*"\ndollars_per_month = 0.003', "ana ben ci"),
    ],
)
def test_a_redis_that_forgets_is_told_by_the_ledger(
    limit: str, refused_keys: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without that, its restart would give everybody a new budget."""
    from redis import Redis

    prices = '[models."chat/priced-*".facts.prices]\ninput = 1\noutput = 1\n'
    url = redis_server.fresh_url(str(tmp_path))
    more = f'[counters]\nurl = "{url}"\n{prices}[[limits]]\nname = "x"\n{limit}\n'
    with (
        serve_with_limits(tmp_path, more, store=f"sqlite://{tmp_path}/store.db") as served,
        Redis.from_url(url) as redis,
    ):
        now = stop_clock(served)
        monkeypatch.setattr(time, "time", lambda: now)  # for the rows of the ledger
        scene = served.scene("openai-chat", huge_use("openai-chat", 1150, 50), model="priced")
        assert [send_chat(served, scene, "ana", max_tokens=50) for _ in range(2)] == [200, 200]
        ledger = served.features.costs.ledger
        assert ledger is not None
        wait_until(lambda: not ledger.queue)
        wait_until(lambda: ledger.task is None)
        redis.flushdb()
        statuses = {key: send_chat(served, scene, key, max_tokens=1000) for key in KEYS}
        assert statuses == {key: 429 if key in refused_keys.split() else 200 for key in KEYS}


def test_a_new_amount_counts_on_and_a_new_limit_applies_at_once(tmp_path: Path) -> None:
    with serve_with_limits(tmp_path, '[[limits]]\nname = "x"\ntokens_per_day = 3500\n') as served:
        scene = served.scene("openai-chat", huge_use("openai-chat", 1000, 0))
        assert send_chat(served, scene, "ana", max_tokens=100) == 200
        read_used_counters(served)
        file = tmp_path / "toolwire.toml"
        file.write_text(file.read_text().replace("tokens_per_day = 3500", "tokens_per_day = 1050"))
        served.gateway.config_watch.start_reload()
        wait_until(lambda: served.gateway.config.section(LimitSettings).limits[0].tokens_per_day == 1050)
        assert send_chat(served, scene, "ana", max_tokens=100) == 429


def test_what_the_gateway_asks_itself_counts_its_tokens_and_is_no_request(tmp_path: Path) -> None:
    """Another model describes an image: the client has made one request, and only one may run."""
    rules = '[models."blind"]\nprovider = "chat"\nmodel = "blind-s901x"\ndescribe_images = "anthropic/eyes-s902x"\n'
    limits = '[[limits]]\nname = "x"\nparallel_requests = 1\nrequests_per_minute = 1000\ntokens_per_day = 100000\n'
    with serve_with_limits(tmp_path, limits + rules) as served:
        blind = served.scene("openai-chat", huge_use("openai-chat", 100, 10))
        eyes = served.scene("anthropic", play_script("anthropic", False))
        served.wire.scenes |= {b"s901x": blind, b"s902x": eyes}
        pixel = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
        image = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{pixel}"}}
        turns = [{"role": "user", "content": [{"type": "text", "text": "What is it?"}, image]}]
        assert call(served, "openai-chat", "blind", False, sent_key("ana"), messages=turns).status == 200
        assert len(eyes.asked) == 1
        found = read_used_counters(served)
        assert found["x/requests_per_minute"] == 1
        assert found["x/tokens_per_day"] > 110


def test_two_limits_with_one_name_are_counted_once() -> None:
    """`[server.keys]` can have limits, whose names nobody checks against `[[limits]]`."""
    limits = Limits(
        [Limit(name="x", tokens_per_day=5), Limit(name="x", tokens_per_day=7)],
        {},
        Reservations(MemoryCounters(), 30),
        Metrics(),
        lambda *_, **__: None,
    )
    (rule,) = limits._find_rules("", "", "", "p", "m", False, True).rules
    assert (rule.counter, rule.maximum) == ("x/tokens_per_day", 5)
