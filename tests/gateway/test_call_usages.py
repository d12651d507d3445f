"""What every call of a provider has used is recorded, each to its provider: also of calls whose answers the client did
not get."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from gateway.provider import ScriptedAnswer
from gateway.raw_exchange import (
    PROVIDERS,
    STREAM_HEAD,
    ScriptedConnection,
    Served,
    answer,
    body_of,
    busy_answer,
    call,
    error_frame,
    frames,
    open_call,
    opening_frames,
    play_script,
    stage,
    write_chunked,
)
from toolwire.core.codec import Codec
from toolwire.core.ir import Usage
from toolwire.core.tokens import estimate_body_tokens, estimate_input
from toolwire.gateway.pipeline import attempt
from toolwire.gateway.telemetry.recent import pack_exchange, unpack_exchange
from toolwire.gateway.telemetry.record import CallUsage, ExchangeRecord
from toolwire.gateway.telemetry.running import RunningExchange
from toolwire_conformance.peers.peer import encode_json
from waits import PATIENCE

STREAMS = pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
CLIENTS = ("openai-chat", "anthropic", "gemini")


@pytest.fixture(scope="module", name="served")
def serve_gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    rules = '[models.pair]\nprovider = "chat"\nmodel = "first-s901x"\nfallbacks = ["anthropic/second-s902x"]\n'
    with stage(tmp_path_factory.mktemp("calls"), 'log_format = "json"\n', rules) as staged:
        yield staged


@pytest.fixture
def records(served: Served, monkeypatch: pytest.MonkeyPatch) -> list[ExchangeRecord]:
    found: list[ExchangeRecord] = []
    telemetry = served.gateway.telemetry
    finish = telemetry.finish_exchange

    def finish_and_keep(running: RunningExchange, ended: float) -> None:
        finish(running, ended)
        assert running.open_call is None
        found.append(running.record)

    monkeypatch.setattr(telemetry, "finish_exchange", finish_and_keep)
    return found


def usages(record: ExchangeRecord) -> list[tuple[str, str, Usage | None, bool]]:
    return [(one.provider, one.model, _keep_totals(one.usage), one.is_estimated) for one in record.costs.calls]


def _keep_totals(usage: Usage | None) -> Usage | None:
    return None if usage is None else Usage(usage.input, usage.output)


def find_record(served: Served, records: list[ExchangeRecord], line: dict[str, Any]) -> ExchangeRecord:
    (record,) = [one for one in records if one.request_id == line["request_id"]]
    return record


def tokens(protocol: str) -> Usage:
    """What the scripted provider says for its answers."""
    codec_usage = {
        "openai-chat": ("usage", "prompt_tokens", "completion_tokens"),
        "openai-responses": ("usage", "input_tokens", "output_tokens"),
        "anthropic": ("usage", "input_tokens", "output_tokens"),
        "gemini": ("usageMetadata", "promptTokenCount", "candidatesTokenCount"),
    }
    key, sent, made = codec_usage[protocol]
    said = body_of(protocol, ScriptedAnswer("Hello there."))[key]
    return Usage(said[sent], said[made])


@STREAMS
@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("client", CLIENTS)
def test_one_call(served: Served, records: list[ExchangeRecord], client: str, provider: str, stream: bool) -> None:
    scene = served.scene(provider, play_script(provider, stream))
    got = call(served, client, scene.model, stream)
    record = find_record(served, records, served.line(got.id))
    assert usages(record) == [(record.upstream.provider, scene.name, tokens(provider), False)]


@STREAMS
def test_a_refusal_uses_nothing_and_the_fallback_is_another_call(
    served: Served, records: list[ExchangeRecord], stream: bool
) -> None:
    first = served.scene("openai-chat", busy_answer("openai-chat"))
    second = served.scene("anthropic", play_script("anthropic", stream))
    served.wire.scenes |= {b"s901x": first, b"s902x": second}
    line = served.line(call(served, "openai-chat", "pair", stream).id)
    assert usages(find_record(served, records, line)) == [("anthropic", "second-s902x", tokens("anthropic"), False)]


def test_a_stream_that_fails_before_its_content_has_used_what_it_said(
    served: Served, records: list[ExchangeRecord]
) -> None:
    """Anthropic says the input when a stream starts. The fallback gives the answer."""
    first = served.scene("openai-chat", play_script("openai-chat", True))
    start = frames("anthropic")[:1]
    second = served.scene("anthropic", write_chunked(*start, error_frame("anthropic")))
    served.wire.scenes |= {b"s903x": second, b"s904x": first}
    got = call(served, "openai-chat", "anthropic/x-s903x", True)
    record = find_record(served, records, served.line(got.id))
    assert usages(record) == [("anthropic", "x-s903x", Usage(tokens("anthropic").input, 1), True)]


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("client", CLIENTS)
def test_a_stream_that_is_cut_is_estimated(
    served: Served, records: list[ExchangeRecord], client: str, provider: str
) -> None:
    scene = served.scene(provider, write_chunked(*opening_frames(provider), end=False) + b"x")
    got = call(served, client, scene.model, True)
    ((_, _, usage, is_estimated),) = usages(find_record(served, records, served.line(got.id)))
    assert is_estimated
    assert usage is not None
    assert usage.output >= 1
    assert usage.input == tokens(provider).input or usage.input == estimate_body_tokens(scene.asked[0].body)


def test_a_client_that_leaves_is_counted(served: Served, records: list[ExchangeRecord]) -> None:
    def play(peer: ScriptedConnection) -> None:
        peer.send(STREAM_HEAD)
        peer.chunk(*opening_frames("openai-chat"))
        peer.wait_for_close()

    scene = served.scene("openai-chat", play)
    line = open_call(served, "anthropic", scene.model, True, {"x-request-id": "leaves-1"})
    line.start()
    line.read_some()
    line.disconnect()
    record = find_record(served, records, served.line("leaves-1"))
    ((provider, _, usage, is_estimated),) = usages(record)
    assert (provider, is_estimated) == ("chat", True)
    assert usage is not None
    assert min(usage.input, usage.output) > 0


def test_a_client_that_does_not_wait_leaves_a_call_of_unknown_usage(
    served: Served, records: list[ExchangeRecord]
) -> None:
    scene = served.scene("openai-chat", ScriptedConnection.wait_for_close)
    line = open_call(served, "openai-chat", scene.model, False, {"x-request-id": "leaves-2"})
    assert scene.reached.wait(PATIENCE)
    line.disconnect()
    record = find_record(served, records, served.line("leaves-2"))
    assert usages(record) == [("chat", scene.name, None, False)]


def test_an_answer_without_usage_is_unknown_not_zero(served: Served, records: list[ExchangeRecord]) -> None:
    body = {**body_of("openai-chat", ScriptedAnswer("Hi.")), "usage": None}
    scene = served.scene("openai-chat", answer(200, encode_json(body).encode()))
    record = find_record(served, records, served.line(call(served, "openai-chat", scene.model, False).id))
    assert usages(record) == [("chat", scene.name, None, False)]
    assert record.costs.add_up().total is None


def test_a_large_request_is_estimated_in_a_thread(
    served: Served, records: list[ExchangeRecord], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The event loop serves others meanwhile."""
    threads: list[str] = []

    def estimate(codec: Codec, body: bytes) -> Usage:
        threads.append(threading.current_thread().name)
        return estimate_input(codec, body)

    monkeypatch.setattr(attempt, "estimate_input", estimate)
    scene = served.scene("openai-chat", write_chunked(*opening_frames("openai-chat"), end=False) + b"x")
    turns = [{"role": "user", "content": ("a" * 4095 + " ") * 64}]
    got = call(served, "openai-chat", scene.model, True, messages=turns)
    ((_, _, usage, is_estimated),) = usages(find_record(served, records, served.line(got.id)))
    assert is_estimated
    assert usage is not None
    assert usage.input > 64 * 1024
    assert [name.startswith("toolwire-large-work") for name in threads] == [True]


def test_who_asks(served: Served, records: list[ExchangeRecord]) -> None:
    scene = served.scene("anthropic", play_script("anthropic", False))
    headers = {"user-agent": "claude-cli/2.1.0 (external, cli)", "x-claude-code-agent-id": "agent-7"}
    line = served.line(call(served, "anthropic", scene.model, False, headers).id)
    record = find_record(served, records, line)
    assert (record.client.agent, record.client.subagent) == ("claude", "agent-7")
    assert (line["agent"], line["subagent"]) == ("claude", "agent-7")
    codex = {"user-agent": "codex_exec/0.166.0", "x-openai-subagent": "review"}
    record = find_record(served, records, served.line(call(served, "anthropic", scene.model, False, codex).id))
    assert (record.client.agent, record.client.subagent) == ("codex", "review")
    other = served.line(call(served, "anthropic", scene.model, False, {"user-agent": "my-tool/1"}).id)
    assert other["agent"] == "my-tool"
    for name in ("password=hu5hhu5h", "sk-ant-REDACTED", "a" * 65, "<b>"):
        secret = {"user-agent": name, "x-openai-subagent": name}
        line = served.line(call(served, "anthropic", scene.model, False, secret).id)
        assert "agent" not in line
        assert "subagent" not in line


def test_a_packed_exchange_keeps_its_calls() -> None:
    record = ExchangeRecord(request_id="r", started=0.0, started_at=0.0)
    record.costs.calls = (CallUsage("p", "m", usage=Usage(3, 4)),)
    packed = pack_exchange(record)
    assert packed is not None
    (kept,) = unpack_exchange(packed).costs.calls
    assert (kept.provider, kept.usage) == ("p", Usage(3, 4))


@STREAMS
@pytest.mark.parametrize("count", [2**53, 2**64, 2**70])
@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_count_that_cannot_be_harms_no_record(
    served: Served, records: list[ExchangeRecord], provider: str, count: int, stream: bool
) -> None:
    """Stores, logs and packed records have no place for it, and what ends with it is processed with others."""
    data = b"".join(frames(provider, "Hi")) if stream else encode_json(body_of(provider, ScriptedAnswer("Hi"))).encode()
    told, replaced = re.subn(rb'(?i)("[a-z_]*token(?:s|count)":)\d+', rb"\g<1>%d" % count, data)
    assert replaced > 1
    scene = served.scene(provider, answer(200, told, "text/event-stream" if stream else "application/json"))
    for client in CLIENTS:
        got = call(served, client, scene.model, stream)
        assert got.status == 200
        record = find_record(served, records, served.line(got.id))
        assert pack_exchange(record) is not None
        (used,) = record.costs.calls
        assert used.usage is None or max(used.usage.input, used.usage.output) < 10_000
