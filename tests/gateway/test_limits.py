"""Limits as clients meet them: refusals in their own protocol, what counts, who it counts for, and what is settled."""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

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
    begun,
    body_of,
    busy,
    call,
    error_of,
    open_call,
    play_script,
    stage,
    write_chunked,
)
from gateway.replicas import until
from toolwire.conformance.peers.peer import encode_json
from toolwire.core.rate_limits import read_timestamp
from toolwire.gateway.config.config import Limit
from toolwire.gateway.telemetry.metrics import Metrics
from toolwire.gateway.usage.counters_memory import MemoryCounters
from toolwire.gateway.usage.limits import Limits
from toolwire.gateway.usage.reservations import Reservations

STREAMS = pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
KEYS = {"ana": "app", "ben": "app", "ci": "infra"}
"""The client keys of the tests, and their teams."""


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
def limited(folder: Path, limits: str, server: str = "", store: str = "none") -> Iterator[Served]:
    """A gateway with these limits, and keys for the team."""
    store = f'[store]\nurl = "{store}"\n'
    with stage(folder, f'log_format = "json"\n{server}', f"{keys()}{store}{limits}") as served:
        yield served


def used(served: Served) -> dict[str, int]:
    """What is used of each counter, as soon as nothing is held any more."""
    reservations = served.gateway._reservations
    assert reservations is not None
    cells = reservations.counters._cells  # type: ignore[attr-defined]
    until(lambda: not reservations._open and not any(cell.held for cell in cells.values()))
    return {name: cell.used for name, cell in cells.items() if cell.used}


def stop_clock(served: Served) -> None:
    """For a test that counts in one minute, which might end in the middle of it."""
    reservations, now = served.gateway._reservations, time.time()
    assert reservations is not None
    reservations.counters._clock = lambda: now  # type: ignore[attr-defined]


def refused(protocol: str, got: RawAnswer, status: int = 429) -> str:
    assert got.status == status, got.data
    return str(error_of(protocol, got)["message"])


# --- refusals --------------------------------------------------------------------------------------------------------


@STREAMS
@pytest.mark.parametrize("client", CLIENTS)
def test_a_refusal_is_one_of_the_clients_own_protocol(client: str, stream: bool, tmp_path: Path) -> None:
    with limited(tmp_path, '[[limits]]\nname = "a few"\nrequests_per_minute = 2\n') as served:
        scene = served.scene("openai-chat", play_script("openai-chat", stream))
        stop_clock(served)
        *passed, last = [call(served, client, scene.model, stream, sent_key("ana")) for _ in range(3)]
        assert [one.status for one in passed] == [200, 200]
        message = refused(client, last)
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
    with limited(tmp_path, "[[limits]]\ntokens_per_day = 1500\n") as served:
        scene = served.scene("openai-chat", huge_use("openai-chat", 1400, 60))
        assert call(served, client, scene.model, False, sent_key("ana")).status == 200
        assert used(served) == {"all requests/tokens_per_day": 1460}
        got = call(served, client, scene.model, False, sent_key("ana"))
        message = refused(client, got)
        assert "`all requests`, 1,500 tokens per day," in message
        assert "1,460 tokens are used or reserved; this request needs about" in message
        pattern = RATE_HEADERS[client]
        assert got.headers[pattern.format(field="limit")] == "1500"
        assert got.headers[pattern.format(field="remaining")] == "40"
        assert pattern.format(field="reset") in got.headers
        opens = read_timestamp(message.rpartition(" ")[2])
        assert opens is not None
        assert opens % 86400 == 0
        is_far = float(got.headers["retry-after"]) > 60
        assert got.headers.get("x-should-retry") == ("false" if is_far else None)


def huge_use(protocol: str, sent: int, made: int) -> bytes:
    """An answer that counts so many tokens."""
    body = body_of(protocol, ScriptedAnswer("Hello there."))
    usage = {"prompt_tokens": sent, "completion_tokens": made, "total_tokens": sent + made}
    return answer(200, encode_json({**body, "usage": usage}).encode())


def test_gemini_reads_when_to_come_back_from_the_body(tmp_path: Path) -> None:
    with limited(tmp_path, "[[limits]]\nrequests_per_minute = 1\n") as served:
        scene = served.scene("gemini", play_script("gemini", False))
        stop_clock(served)
        first, got = [call(served, "gemini", scene.model, False, sent_key("ana")) for _ in range(2)]
        assert (first.status, got.status) == (200, 429)
        assert any("retryDelay" in detail for detail in got.json()["error"]["details"])


def test_a_request_that_can_never_fit_says_so(tmp_path: Path) -> None:
    with limited(tmp_path, "[[limits]]\ntokens_per_minute = 300\n") as served:
        scene = served.scene("openai-chat", play_script("openai-chat", False))
        got = call(served, "openai-chat", scene.model, False, sent_key("ana"), max_tokens=1000)
        assert re.search(
            r"this request alone needs about 1,\d\d\d tokens, more than the limit", refused("openai-chat", got)
        )
        assert "retry-after" not in got.headers
        assert got.headers["x-should-retry"] == "false"
        assert call(served, "openai-chat", scene.model, False, sent_key("ana"), max_tokens=100).status == 200
        assert len(scene.asked) == 1


# --- who a request counts for ----------------------------------------------------------------------------------------


def asked(served: Served, scene: Scene, name: str, headers: Mapping[str, str] | None = None, **more: Any) -> int:
    return call(served, "openai-chat", scene.model, False, {**sent_key(name), **(headers or {})}, **more).status


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
    with limited(tmp_path, text) as served:
        scene = served.scene("openai-chat", huge_use("openai-chat", 1000, 0))
        agent = {"user-agent": "claude-cli/2.1.0 (external, cli)"}
        for name, count in allowed.items():
            statuses = []
            for _ in range(9):
                statuses.append(asked(served, scene, name, agent, max_tokens=400))
                used(served)
            assert statuses == [200] * count + [429] * (9 - count), name


@pytest.mark.parametrize("spelling", ["gemini/{name}", "gemini/models/{name}", "models/gemini/models/{name}"])
@pytest.mark.parametrize("limit", ['model = "gemini-3.8-*"\ntokens_per_day = 90', "dollars_per_day = 0.0001"])
@pytest.mark.parametrize("client", ["openai-chat", "gemini"])
def test_a_model_is_the_same_in_every_spelling(client: str, limit: str, spelling: str, tmp_path: Path) -> None:
    """Google takes the name with its collection and without. Only one of them has a price in the catalogue."""
    with limited(tmp_path, f"[[limits]]\n{limit}\n") as served:
        scene = served.scene("gemini", play_script("gemini", False))
        got = call(served, client, spelling.format(name=scene.name), False, sent_key("ana"))
        assert "this request alone needs about" in refused(client, got)
        assert not scene.asked


def test_a_request_that_several_limits_select_must_fit_all_and_counts_in_all(tmp_path: Path) -> None:
    limits = '[[limits]]\nname = "t"\nteam = "app"\ntokens_per_day = 9000\ntokens_per_month = 9000\n'
    limits += '[[limits]]\nname = "k"\nkey = "ana"\nparallel_requests = 1\ntokens_per_day = 1000\n'
    with limited(tmp_path, limits) as served:
        scene = served.scene("openai-chat", huge_use("openai-chat", 700, 0))
        assert asked(served, scene, "ana", max_tokens=400) == 200
        assert used(served) == {"t/tokens_per_day": 700, "t/tokens_per_month": 700, "k/tokens_per_day": 700}
        assert asked(served, scene, "ana", max_tokens=400) == 429
        assert asked(served, scene, "ben", max_tokens=400) == 200
        assert used(served) == {"t/tokens_per_day": 1400, "t/tokens_per_month": 1400, "k/tokens_per_day": 700}


# --- parallel requests ------------------------------------------------------------------------------------------------


def test_parallel_requests(tmp_path: Path) -> None:
    def waits(peer: ScriptedConnection) -> None:
        peer.wait_for_release()
        peer.send(play_script("openai-chat", False))

    with limited(tmp_path, '[[limits]]\nkey = "ci"\nparallel_requests = 1\n') as served:
        scene = served.scene("openai-chat", waits, play_script("openai-chat", False))
        running = open_call(served, "openai-chat", scene.model, False, sent_key("ci"))
        assert scene.reached.wait(10)
        got = call(served, "openai-chat", scene.model, False, sent_key("ci"))
        assert refused("openai-chat", got) == (
            "the limit `key ci`, 1 parallel requests, is reached; it opens when one of these requests ends"
        )
        assert got.headers["retry-after"] == "2"
        assert asked(served, scene, "ana") == 200
        scene.go.set()
        assert running.start().read()
        running.disconnect()
        for _ in range(20):  # one after the other is never refused
            assert asked(served, scene, "ci") == 200


# --- what is settled --------------------------------------------------------------------------------------------------


@STREAMS
@pytest.mark.parametrize("provider", PROVIDERS)
def test_what_the_provider_counts_is_settled(provider: str, stream: bool, tmp_path: Path) -> None:
    with limited(tmp_path, "[[limits]]\ntokens_per_day = 100000\n") as served:
        scene = served.scene(provider, play_script(provider, stream))
        line = served.line(call(served, "anthropic", scene.model, stream, sent_key("ana")).id)
        assert used(served) == {"all requests/tokens_per_day": line["input_tokens"] + line["output_tokens"]}


def test_a_provider_that_refuses_costs_a_request_and_no_tokens(tmp_path: Path) -> None:
    with limited(tmp_path, "[[limits]]\ntokens_per_day = 100000\nrequests_per_minute = 1000\n") as served:
        scene = served.scene("openai-chat", busy("openai-chat"))
        assert asked(served, scene, "ana") == 503
        assert used(served) == {"all requests/requests_per_minute": 1}


def test_a_client_that_leaves_gives_back_what_it_did_not_use(tmp_path: Path) -> None:
    def play(peer: ScriptedConnection) -> None:
        peer.send(STREAM_HEAD)
        peer.chunk(*begun("openai-chat"))
        peer.wait_for_close()

    with limited(tmp_path, "[[limits]]\ntokens_per_day = 100000\nparallel_requests = 1\n") as served:
        scene = served.scene("openai-chat", play)
        line = open_call(served, "openai-chat", scene.model, True, {**sent_key("ana"), "x-request-id": "leaves"})
        line.start()
        line.read_some()
        line.disconnect()
        served.line("leaves")
        ((_, tokens),) = used(served).items()
        assert 0 < tokens < 100


def test_an_answer_of_unknown_usage_counts_as_it_was_estimated(tmp_path: Path) -> None:
    with limited(tmp_path, "[[limits]]\ntokens_per_day = 100000\n") as served:
        body = {**body_of("openai-chat", ScriptedAnswer("Hi.")), "usage": None}
        scene = served.scene("openai-chat", answer(200, encode_json(body).encode()))
        assert asked(served, scene, "ana", max_tokens=500) == 200
        ((_, tokens),) = used(served).items()
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

    with limited(tmp_path, "[[limits]]\ntokens_per_day = 100000\n", "heartbeat = 0.1\n") as served:
        scene = served.scene(provider, play)
        line = open_call(served, client, scene.model, True, {**sent_key("ana"), "x-request-id": "cut"})
        line.start()
        if cut_by == "client":
            assert line.read_some()
        line.disconnect()
        served.line("cut")
        ((_, tokens),) = used(served).items()
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
    with limited(tmp_path, "[[limits]]\ntokens_per_day = 100000\n") as served:
        scene = served.scene("openai-chat", write_chunked(*chunks))
        got = call(served, "openai-chat", scene.model, True, sent_key("ana"), **given)
        assert scene.asked[0].json()["stream_options"] == sent
        assert used(served) == {"all requests/tokens_per_day": 5009}
        assert got.data == (whole if is_asked else whole.replace(COUNTED_STREAM[2], b""))


@pytest.mark.parametrize("limits", ["", "[[limits]]\nrequests_per_minute = 1000\n"])
def test_a_stream_that_no_limit_must_count_passes_as_it_is(limits: str, tmp_path: Path) -> None:
    with limited(tmp_path, limits) as served:
        scene = served.scene("openai-chat", write_chunked(*COUNTED_STREAM))
        got = call(served, "openai-chat", scene.model, True, sent_key("ana"))
        assert "stream_options" not in scene.asked[0].json()
        assert got.data == b"".join(COUNTED_STREAM)


def test_a_server_that_refuses_the_question_is_not_asked(tmp_path: Path) -> None:
    text = '[providers.plain]\nprotocols = ["openai-chat"]\nbase_url = "{plain}"\nquirks = ["no-stream-options"]\n'
    with limited(tmp_path, f"[[limits]]\ntokens_per_day = 100000\n{text}") as served:
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
    with limited(tmp_path, "[[limits]]\ntokens_per_day = 100000\n") as served:
        body = {**body_of(provider, ScriptedAnswer("Hi.")), **counts}
        scene = served.scene(provider, answer(200, encode_json(body).encode()))
        got = call(served, client, scene.model, False, sent_key("ana"))
        assert got.status == 200
        line = served.line(got.id)
        assert min(line["input_tokens"], line["output_tokens"]) >= 0
        assert used(served)["all requests/tokens_per_day"] in (5, 9, 14)


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
    with limited(tmp_path, f'[[limits]]\nname = "x"\n{limit}\n', "shared_objects = true\n") as served:
        scene = served.scene(protocol, answer(200, b'{"id":"batch_1","name":"batches/1"}'))
        path, body = UNREAD_REQUESTS[protocol]
        sent = json.dumps({**body, "metadata": {"mark": f"-{scene.mark}"}}).encode()
        got = ask(served.port, "POST", path, sent, sent_key("ana"))
        if is_refused:
            assert "the limit `x` cannot be applied to this endpoint" in refused(protocol, got, 403)
        assert (got.status, len(scene.asked)) == ((403, 0) if is_refused else (200, 1))


def test_endpoints_that_only_pass_through_count(tmp_path: Path) -> None:
    with limited(tmp_path, '[[limits]]\nname = "x"\ntokens_per_day = 100000\nparallel_requests = 9\n') as served:
        scene = served.scene("openai-chat", answer(200, b'{"data":[],"usage":{"prompt_tokens":2}}'))
        body = json.dumps({"model": scene.model, "input": "Hi " * 100}).encode()
        assert ask(served.port, "POST", "/v1/embeddings", body, sent_key("ana")).status == 200
        assert used(served) == {"x/tokens_per_day": 2}


COMPACTED = {"id": "c", "object": "response.compaction", "created_at": 1, "output": []}


@pytest.mark.parametrize("provider", ["openai-responses", "openai-chat"])
def test_a_compaction_counts(provider: str, tmp_path: Path) -> None:
    """OpenAI has an endpoint for it, and for other providers the gateway asks for a summary."""
    limits = '[[limits]]\nname = "x"\ntokens_per_day = 3000\nrequests_per_minute = 1000\n'
    with limited(tmp_path, limits, store=f"sqlite://{tmp_path}/store.db") as served:
        usage = {"input_tokens": 1500, "output_tokens": 500, "total_tokens": 2000}
        native = answer(200, encode_json({**COMPACTED, "usage": usage}).encode())
        play = native if provider == "openai-responses" else huge_use(provider, 1500, 500)
        scene = served.scene(provider, play)
        body = json.dumps({"model": scene.model, "input": [{"role": "user", "content": "Hi"}]}).encode()
        stop_clock(served)
        first = ask(served.port, "POST", "/v1/responses/compact", body, sent_key("ana"))
        assert (first.status, used(served)) == (200, {"x/tokens_per_day": 2000, "x/requests_per_minute": 1})
        assert refused("openai-responses", ask(served.port, "POST", "/v1/responses/compact", body, sent_key("ana")))
        assert len(scene.asked) == 1


def test_what_asks_no_model_does_not_count(tmp_path: Path) -> None:
    with limited(tmp_path, "[[limits]]\nrequests_per_minute = 1\n") as served:
        for _ in range(5):
            assert ask(served.port, "GET", "/v1/models", headers=sent_key("ana")).status == 200
            body = json.dumps({"model": "loopback", "messages": [{"role": "user", "content": "Hi"}]}).encode()
            assert ask(served.port, "POST", "/v1/messages/count_tokens", body, sent_key("ana")).status == 200
        assert used(served) == {}


def test_a_response_in_the_background_holds_its_place_until_it_ends(tmp_path: Path) -> None:
    def waits(peer: ScriptedConnection) -> None:
        peer.wait_for_release()
        peer.send(play_script("openai-chat", True))

    store = f"sqlite://{tmp_path}/store.db"
    with limited(
        tmp_path, '[[limits]]\nname = "x"\nparallel_requests = 1\ntokens_per_day = 99999\n', store=store
    ) as served:
        scene = served.scene("openai-chat", waits)
        more = {"background": True, "store": True}
        started = call(served, "openai-responses", scene.model, False, sent_key("ana"), **more)
        assert started.status == 200
        assert scene.reached.wait(10)
        assert refused(
            "openai-responses", call(served, "openai-responses", scene.model, False, sent_key("ana"), **more)
        )
        scene.go.set()
        path = f"/v1/responses/{started.json()['id']}"
        until(lambda: ask(served.port, "GET", path, headers=sent_key("ana")).json()["status"] == "completed")
        assert list(used(served)) == ["x/tokens_per_day"]


# --- providers, fallbacks -------------------------------------------------------------------------------------------


def test_a_provider_that_is_full_leaves_the_request_to_its_fallback(tmp_path: Path) -> None:
    rules = '[models.pair]\nprovider = "chat"\nmodel = "first-s901x"\nfallbacks = ["anthropic/second-s902x"]\n'
    limits = '[[limits]]\nname = "of the provider"\nprovider = "chat"\ntokens_per_day = 1500\n'
    limits += '[[limits]]\nname = "of all"\ntokens_per_day = 100000\nrequests_per_minute = 1000\n'
    with limited(tmp_path, limits + rules) as served:
        first = served.scene("openai-chat", huge_use("openai-chat", 1000, 0))
        second = served.scene("anthropic", play_script("anthropic", False))
        served.wire._scenes |= {b"s901x": first, b"s902x": second}
        stop_clock(served)
        providers = []
        for _ in range(3):
            got = call(served, "openai-chat", "pair", False, sent_key("ana"))
            assert got.status == 200
            providers.append(got.headers["x-toolwire-provider"])
            used(served)
        assert providers == ["chat", "anthropic", "anthropic"]
        assert used(served)["of all/requests_per_minute"] == 3
        assert used(served)["of the provider/tokens_per_day"] == 1000


@pytest.mark.parametrize("first_answer", [b"<html>Busy</html>", b"{}"], ids=["page", "nothing"])
def test_a_call_of_unknown_usage_counts_for_the_provider_that_was_asked(first_answer: bytes, tmp_path: Path) -> None:
    rules = '[models.pair]\nprovider = "chat"\nmodel = "first-s901x"\nfallbacks = ["anthropic/second-s902x"]\n'
    with limited(tmp_path, f'[[limits]]\nname = "x"\nper = "provider"\ntokens_per_day = 100000\n{rules}') as served:
        first = served.scene("openai-chat", answer(200, first_answer))
        second = served.scene("anthropic", play_script("anthropic", False))
        served.wire._scenes |= {b"s901x": first, b"s902x": second}
        got = call(served, "openai-chat", "pair", False, sent_key("ana"), max_tokens=500)
        line, counted = served.line(got.id), used(served)
        assert got.headers["x-toolwire-provider"] == "anthropic"
        assert 500 < counted["x/tokens_per_day/chat"] < 600
        assert counted["x/tokens_per_day/anthropic"] == line["input_tokens"] + line["output_tokens"]


def test_a_fallback_after_a_failure_gives_back_what_the_first_provider_held(tmp_path: Path) -> None:
    rules = '[models.pair]\nprovider = "chat"\nmodel = "first-s901x"\nfallbacks = ["anthropic/second-s902x"]\n'
    limits = '[[limits]]\nper = "provider"\ntokens_per_day = 100000\nrequests_per_minute = 1000\n'
    with limited(tmp_path, limits + rules) as served:
        first = served.scene("openai-chat", busy("openai-chat"))
        second = served.scene("anthropic", play_script("anthropic", False))
        served.wire._scenes |= {b"s901x": first, b"s902x": second}
        assert call(served, "openai-chat", "pair", False, sent_key("ana")).status == 200
        name = "each provider/{}/anthropic".format
        assert used(served).keys() == {name("tokens_per_day"), name("requests_per_minute")}


# --- money ------------------------------------------------------------------------------------------------------------

PRICES = """[models."priced-*"]
provider = "chat"
[models."priced-*".facts.prices]
input = 10
output = 20
"""


def test_dollars(tmp_path: Path) -> None:
    with limited(tmp_path, f'[[limits]]\nname = "budget"\nteam = "app"\ndollars_per_month = 0.05\n{PRICES}') as served:
        scene = served.scene("openai-chat", huge_use("openai-chat", 1000, 150), model="priced")
        model = scene.model.partition("/")[2]
        got = call(served, "openai-chat", model, False, sent_key("ana"), max_tokens=100)
        assert got.status == 200
        assert used(served) == {"budget/dollars_per_month": 13_000_000}
        assert [
            call(served, "openai-chat", model, False, sent_key("ben"), max_tokens=100).status for _ in range(2)
        ] == [200] * 2
        assert used(served) == {"budget/dollars_per_month": 39_000_000}
        got = call(served, "openai-chat", model, False, sent_key("ben"), max_tokens=600)
        message = refused("openai-chat", got)
        assert message.startswith("the limit `budget`, $0.05 per month, is reached: $0.039 are used or reserved;")
        assert float(got.headers["retry-after"]) > 0


@pytest.mark.parametrize("switch", ["open", "closed"])
def test_a_model_without_a_price(switch: str, tmp_path: Path) -> None:
    limits = f'[[limits]]\nname = "budget"\ndollars_per_month = 5\non_unknown_price = "{switch}"\n'
    with limited(tmp_path, limits) as served:
        scene = served.scene("openai-chat", play_script("openai-chat", False), model="unheard-of")
        got = call(served, "openai-chat", scene.model, False, sent_key("ana"))
        if switch == "closed":
            assert "no price is known for `chat/unheard-of-" in refused("openai-chat", got, 403)
        else:
            assert got.status == 200
            assert used(served) == {}
            event = event_of(served, "limit_unpriced")
            assert event["provider"] == "chat"


def event_of(served: Served, kind: str) -> dict[str, Any]:
    while True:
        found: dict[str, Any] = json.loads(served.lines.get(timeout=10))
        if found.get("event") == kind:
            return found


# --- soft limits, metrics ---------------------------------------------------------------------------------------------


def test_a_soft_limit_only_warns_once_in_its_window(tmp_path: Path) -> None:
    with limited(tmp_path, '[[limits]]\nteam = "app"\ntokens_per_day = 1500\nsoft = true\n') as served:
        scene = served.scene("openai-chat", huge_use("openai-chat", 1000, 0))
        assert [asked(served, scene, "ana", max_tokens=100) for _ in range(5)] == [200] * 5
        event = event_of(served, "limit_passed")
        assert (event["level"], event["limit"], event["amount"]) == ("warn", "team app (soft)", "tokens_per_day")
        assert event["message"].startswith("the soft limit `team app (soft)`, 1,500 tokens per day, is passed: ")
        metrics = served.gateway._telemetry.metrics_text().decode()
        labels = 'limit="team app (soft)",amount="tokens_per_day"'
        assert f"toolwire_limit_warnings_total{{{labels}}} " in metrics
        assert "limit_passed" not in "".join(list(served.lines.queue))


def test_metrics_show_how_much_is_used(tmp_path: Path) -> None:
    with limited(tmp_path, '[[limits]]\nper = "team"\ntokens_per_day = 1400\n') as served:
        scene = served.scene("openai-chat", huge_use("openai-chat", 1000, 0))
        assert [asked(served, scene, "ana", max_tokens=400) for _ in range(2) if used(served) is not None] == [200, 429]
        metrics = served.gateway._telemetry.metrics_text().decode()
        labels = 'limit="each team",amount="tokens_per_day"'
        assert f'toolwire_limit_used{{{labels},group="app"}} 1000\n' in metrics
        assert f'toolwire_limit_maximum{{{labels},group="app"}} 1400\n' in metrics
        assert f"toolwire_limit_refusals_total{{{labels}}} 1\n" in metrics


# --- restarts, changes ------------------------------------------------------------------------------------------------


def test_what_was_used_is_known_after_a_restart(tmp_path: Path) -> None:
    store, limits = f"sqlite://{tmp_path}/store.db", "[[limits]]\ntokens_per_month = 2500\n"
    for expected in ([200, 200], [429, 429]):
        with limited(tmp_path, limits, store=store) as served:
            scene = served.scene("openai-chat", huge_use("openai-chat", 1200, 0))
            statuses = []
            for _ in range(2):
                statuses.append(asked(served, scene, "ana", max_tokens=100))
                if served.gateway._reservations._open:  # type: ignore[union-attr]
                    used(served)
            assert statuses == expected


def test_a_new_amount_counts_on_and_a_new_limit_applies_at_once(tmp_path: Path) -> None:
    with limited(tmp_path, '[[limits]]\nname = "x"\ntokens_per_day = 3500\n') as served:
        scene = served.scene("openai-chat", huge_use("openai-chat", 1000, 0))
        assert asked(served, scene, "ana", max_tokens=100) == 200
        used(served)
        file = tmp_path / "toolwire.toml"
        file.write_text(file.read_text().replace("tokens_per_day = 3500", "tokens_per_day = 1050"))
        served.gateway.start_reload()
        until(lambda: served.gateway.config.limits[0].tokens_per_day == 1050)
        assert asked(served, scene, "ana", max_tokens=100) == 429


def test_what_the_gateway_asks_itself_counts_its_tokens_and_is_no_request(tmp_path: Path) -> None:
    """Another model describes an image: the client has made one request, and only one may run."""
    rules = '[models."blind"]\nprovider = "chat"\nmodel = "blind-s901x"\ndescribe_images = "anthropic/eyes-s902x"\n'
    limits = '[[limits]]\nname = "x"\nparallel_requests = 1\nrequests_per_minute = 1000\ntokens_per_day = 100000\n'
    with limited(tmp_path, limits + rules) as served:
        blind = served.scene("openai-chat", huge_use("openai-chat", 100, 10))
        eyes = served.scene("anthropic", play_script("anthropic", False))
        served.wire._scenes |= {b"s901x": blind, b"s902x": eyes}
        pixel = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
        image = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{pixel}"}}
        turns = [{"role": "user", "content": [{"type": "text", "text": "What is it?"}, image]}]
        assert call(served, "openai-chat", "blind", False, sent_key("ana"), messages=turns).status == 200
        assert len(eyes.asked) == 1
        found = used(served)
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
    (rule,) = limits._find_rules("", "", "", "p", "m", False).rules
    assert (rule.counter, rule.maximum) == ("x/tokens_per_day", 5)
