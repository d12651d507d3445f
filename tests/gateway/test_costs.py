"""What an exchange costs: in the log, the metrics, a header and the ledger; and that nothing is counted twice or lost."""

from __future__ import annotations

import asyncio
import json
import signal
import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, closing
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from gateway.clients import PNG
from gateway.conftest import configuration as provider_configuration
from gateway.exchange_records import make_record
from gateway.mcp_gateway import serve_config_text, serve_with_mcp
from gateway.postgres import schema_of, server
from gateway.process import run_gateway
from gateway.provider import KEYS, Provider, Script, ScriptedAnswer, Step
from gateway.raw_exchange import (
    PROVIDER_KEY,
    PROVIDERS,
    RawConnection,
    RawProvider,
    ScriptedConnection,
    Served,
    answer,
    ask,
    body_of,
    busy_answer,
    call,
    configuration,
    play_script,
    stage,
    whole_answer,
)
from toolwire.core.codec import UsageNames
from toolwire.core.ir import Usage
from toolwire.gateway.features.costs.ledger import LedgerQuery, UsageSum
from toolwire.gateway.features.costs.ledger_tables import open_ledger
from toolwire.gateway.pipeline.forwarded_usage import find_usage
from toolwire.gateway.settings.config import StoreSettings
from toolwire.gateway.store import open_store
from toolwire.gateway.store.store import StoreDown
from toolwire.gateway.telemetry.call_prices import read_reported_cost
from toolwire_conformance.peers.peer import encode_json
from waits import PATIENCE, wait_until

STREAMS = pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
PRICES = "".join(
    f'[models."{provider}/priced-*".facts.prices]\ninput = 1.25\noutput = 10.00\n'
    for provider in ("chat", "responses", "anthropic", "gemini")
)
"""The same for all: 1.25 and 10 dollars for a million tokens."""


def expected_cost(provider: str) -> Decimal:
    said = body_of(provider, ScriptedAnswer("Hello there."))
    usage = said.get("usage") or said["usageMetadata"]
    names = (
        ("prompt_tokens", "input_tokens", "promptTokenCount"),
        (
            "completion_tokens",
            "output_tokens",
            "candidatesTokenCount",
        ),
    )
    sent, made = (next(usage[name] for name in group if name in usage) for group in names)
    return (Decimal(sent) * Decimal("1.25") + Decimal(made) * 10) / 1_000_000


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("costs")


@pytest.fixture(scope="module", name="served")
def serve_gateway(folder: Path) -> Iterator[Served]:
    more = f'[costs]\nheader = true\n[store]\nurl = "sqlite://{folder}/store.db"\n{PRICES}'
    with stage(folder, 'log_format = "json"\n', more) as staged:
        yield staged


def parse_exact_json(line: str) -> dict[str, Any]:
    """A JSON document with amounts as they are written."""
    found: dict[str, Any] = json.loads(line, parse_float=Decimal)
    return found


def log_line(served: Served, request_id: str) -> dict[str, Any]:
    while True:
        found = parse_exact_json(served.lines.get(timeout=PATIENCE))
        if found.get("request_id") == request_id:
            return found


@STREAMS
@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("client", ["openai-chat", "gemini"])
def test_log_and_header_say_the_cost(served: Served, client: str, provider: str, stream: bool) -> None:
    scene = served.scene(provider, play_script(provider, stream), model="priced")
    got = call(served, client, scene.model, stream)
    line = log_line(served, got.id)
    assert line["cost_usd"] == expected_cost(provider)
    assert "unpriced_calls" not in line
    header = got.headers.get("x-toolwire-cost")
    assert header is None if stream else Decimal(str(header)) == expected_cost(provider)


def test_an_unknown_price_is_unknown_not_zero(served: Served) -> None:
    scene = served.scene("openai-chat", whole_answer("openai-chat"), model="nobody-knows-it")
    got = call(served, "openai-chat", scene.model, False)
    line = log_line(served, got.id)
    assert "cost_usd" not in line
    assert line["unpriced_calls"] == 1
    assert got.headers["x-toolwire-cost"] == "unknown"


def test_the_embedded_model_is_free(served: Served) -> None:
    got = call(served, "openai-chat", "loopback", False)
    assert log_line(served, got.id)["cost_usd"] == 0


def test_what_the_provider_says_is_kept_beside_ours(served: Served) -> None:
    """OpenRouter says the cost with the tokens."""
    body = body_of("openai-chat", ScriptedAnswer("Hi."))
    body["usage"] |= {"cost": 0.00014, "cost_details": {"upstream_inference_cost": None}}
    scene = served.scene("openai-chat", answer(200, encode_json(body).encode()), model="priced")
    for client in ("openai-chat", "anthropic"):
        line = log_line(served, call(served, client, scene.model, False).id)
        assert line["reported_cost_usd"] == Decimal("0.00014")
        assert line["cost_usd"] == expected_cost("openai-chat")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0.1, "0.1"),
        (1e-7, "1e-7"),
        (3, "3"),
        (0, "0"),
        (True, None),
        ("1", None),
        (-1, None),
        (1e300, None),
        (None, None),
    ],
)
def test_reported_costs_that_cannot_be_are_left_out(value: object, expected: str | None) -> None:
    assert read_reported_cost(value) == (None if expected is None else Decimal(expected))


def test_metrics(served: Served) -> None:
    scene = served.scene("anthropic", whole_answer("anthropic"), model="priced")
    log_line(served, call(served, "anthropic", scene.model, False).id)
    text = ask(served.port, "GET", "/metrics").data.decode()
    row = f'toolwire_cost_usd_total{{provider="anthropic",model="{scene.name}",key=""}} '
    (found,) = [line.removeprefix(row) for line in text.splitlines() if line.startswith(row)]
    assert Decimal(found) == expected_cost("anthropic")


# --- the ledger -------------------------------------------------------------------------------------------------------


def read_total(url: str, **only: str) -> UsageSum:
    async def read() -> list[UsageSum] | StoreDown:
        store = open_store(StoreSettings(url=url), {})
        tables = open_ledger(store)
        assert tables is not None
        assert store is not None
        sums = await tables.read_sums(LedgerQuery(by=(), since=0.0, until=4e9, only=tuple(only.items())))
        await store.close()
        return sums

    sums = asyncio.run(read())
    assert isinstance(sums, list)
    return sums[0]


def test_every_call_is_in_the_ledger_when_the_gateway_has_stopped(tmp_path: Path) -> None:
    """Retries and fallbacks too, each to its provider; the sums agree with the log."""
    rules = '[models.pair]\nprovider = "chat"\nmodel = "priced-s901x"\nfallbacks = ["anthropic/priced-s902x"]\n'
    more = f'{rules}{PRICES}[store]\nurl = "sqlite://{tmp_path}/store.db"\n'
    logged = Decimal(0)
    headers = {"user-agent": "claude-cli/2.1.0", "x-claude-code-session-id": "one", "x-claude-code-agent-id": "sub"}
    with stage(tmp_path, 'log_format = "json"\n', more) as served:
        empty = {**body_of("openai-chat", ScriptedAnswer("Hi.")), "choices": []}
        first = served.scene("openai-chat", busy_answer("openai-chat"), answer(200, encode_json(empty).encode()))
        second = served.scene("anthropic", whole_answer("anthropic"))
        served.wire.scenes |= {b"s901x": first, b"s902x": second}
        for _ in range(2):
            got = call(served, "openai-chat", "pair", False, headers)
            assert got.status == 200
            logged += log_line(served, got.id)["cost_usd"]
        for provider in PROVIDERS:
            scene = served.scene(provider, play_script(provider, True), model="priced")
            logged += log_line(served, call(served, "openai-chat", scene.model, True, headers).id)["cost_usd"]
    url = f"sqlite://{tmp_path}/store.db"
    whole_sum = read_total(url)
    assert Decimal(whole_sum.cost) / 10**12 == logged
    assert read_total(url, agent="claude", subagent="sub") == whole_sum
    assert read_total(url, provider="anthropic").calls >= 3
    rows = sqlite3.connect(tmp_path / "store.db").execute("SELECT DISTINCT session FROM usage_rows").fetchall()
    assert all(session for (session,) in rows)


def test_without_a_store_or_without_costs_there_is_no_ledger(tmp_path: Path) -> None:
    for number, more in enumerate(
        ('[store]\nurl = "none"\n', f'[costs]\nenabled = false\n[store]\nurl = "sqlite://{tmp_path}/2/store.db"\n')
    ):
        (tmp_path / str(number)).mkdir()
        with stage(tmp_path / str(number), 'log_format = "json"\n', more + PRICES) as served:
            scene = served.scene("openai-chat", whole_answer("openai-chat"), model="priced")
            line = log_line(served, call(served, "openai-chat", scene.model, False).id)
            assert ("cost_usd" in line) == (number == 0)
            assert served.gateway.telemetry.choose_sinks(make_record()).calls is None
    assert not (tmp_path / "2" / "store.db").exists()


def test_a_store_that_is_down_stops_no_answer_and_loses_nothing_silently(tmp_path: Path) -> None:
    (tmp_path / "not-a-folder").write_text("")
    more = f'[store]\nurl = "sqlite://{tmp_path}/not-a-folder/store.db"\n{PRICES}'
    with stage(tmp_path, 'log_format = "json"\n', more) as served:
        scene = served.scene("openai-chat", whole_answer("openai-chat"), model="priced")
        for _ in range(3):
            got = call(served, "openai-chat", scene.model, False)
            assert log_line(served, got.id)["cost_usd"] == expected_cost("openai-chat")
    events = [json.loads(line) for line in served.lines.queue]
    assert [event["rows"] for event in events if event["event"] == "ledger_rows_dropped"] == [3]


@pytest.mark.parametrize("backend", ["sqlite", "postgres"])
def test_workers_and_gateways_share_one_ledger(tmp_path: Path, backend: str) -> None:
    """Two gateways, one of them with two workers. One is killed: what it has written is not lost, and nothing is there
    twice. The other one stops: it writes what waits."""
    url = f"sqlite://{tmp_path}/store.db" if backend == "sqlite" else server().create_schema(schema_of(tmp_path))
    wire = RawProvider()
    (tmp_path / "toolwire.toml").write_text(configuration(wire, "", f'[store]\nurl = "{url}"\n{PRICES}'))
    scene = wire.scene("openai-chat", whole_answer("openai-chat"), model="priced")
    body = encode_json({"model": scene.model, "messages": [{"role": "user", "content": "Hi"}]}).encode()
    with run_gateway(tmp_path) as killed, run_gateway(tmp_path, "--workers", "2") as other:
        for _ in range(4):
            assert ask(killed.port, "POST", "/v1/chat/completions", body).status == 200
        wait_until(lambda: (found := read_total(url)).calls == 4 and not found.unknown_calls)
        killed.signal(signal.SIGKILL)
        for _ in range(6):
            assert ask(other.port, "POST", "/v1/chat/completions", body).status == 200
        other.signal(signal.SIGTERM)
        assert other.wait_for_exit() == 0
    wire.close()
    found = read_total(url)
    assert (found.calls, found.unpriced_calls) == (10, 0)
    assert Decimal(found.cost) / 10**12 == 10 * expected_cost("openai-chat")


@pytest.mark.parametrize("backend", ["sqlite", "postgres"])
def test_a_gateway_that_is_killed_leaves_its_running_calls_in_the_ledger(tmp_path: Path, backend: str) -> None:
    """Nobody knows what they have used; they are not forgotten. What has ended is there, and nothing twice."""
    url = f"sqlite://{tmp_path}/store.db" if backend == "sqlite" else server().create_schema(schema_of(tmp_path))

    def wait(peer: ScriptedConnection) -> None:
        peer.wait_for_release()

    def refuse(peer: ScriptedConnection) -> None:
        peer.wait_for_release()
        peer.send(answer(500, b'{"error": {"message": "no"}}'))

    with closing(RawProvider()) as wire, ExitStack() as connections:
        (tmp_path / "toolwire.toml").write_text(configuration(wire, "retries = 0", f'[store]\nurl = "{url}"\n{PRICES}'))
        quick = wire.scene("openai-chat", whole_answer("openai-chat"), model="priced")
        held = wire.scene("openai-chat", wait, model="priced-held")
        failed = wire.scene("openai-chat", refuse, model="priced-failed")
        with run_gateway(tmp_path) as process:

            def send(model: str) -> RawConnection:
                connection = RawConnection(process.port)
                connections.callback(connection.disconnect)
                body = encode_json({"model": model, "messages": [{"role": "user", "content": "Hi"}]}).encode()
                connection.send("POST", "/v1/chat/completions", body)
                return connection

            for _ in range(4):
                assert send(quick.model).start().status == 200
            running, last = [send(held.model) for _ in range(3)], send(failed.model)
            wait_until(lambda: read_total(url).calls == 8)
            failed.go.set()
            assert last.start().status == 500
            wait_until(lambda: (found := read_total(url)).calls == 7 and found.unknown_calls == 3)
            process.signal(signal.SIGKILL)
            process.wait_for_exit()
        held.go.set()
        found = read_total(url)
        assert (found.calls, found.unknown_calls, found.unpriced_calls) == (4 + len(running), 3, 3)
        assert Decimal(found.cost) / 10**12 == 4 * expected_cost("openai-chat")


def test_secrets_are_not_in_the_ledger(tmp_path: Path) -> None:
    more = f'[store]\nurl = "sqlite://{tmp_path}/store.db"\n'
    with stage(tmp_path, 'log_format = "json"\n', more) as served:
        scene = served.scene("openai-chat", whole_answer("openai-chat"))
        log_line(served, call(served, "openai-chat", scene.model, False, {"authorization": "Bearer sk-mine-123"}).id)
    data = b"".join(file.read_bytes() for file in tmp_path.glob("store.db*"))
    assert PROVIDER_KEY.encode() not in data
    assert b"sk-mine-123" not in data


# --- calls that are not an answer of their own ------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_every_round_of_tool_calls_is_a_call(provider: Provider, tmp_path: Path, stream: bool) -> None:
    """The client sees one answer; the provider is asked, and bills, three times."""
    prices = '[models."chat/gpt-4.1".facts.prices]\ninput = 1.25\noutput = 10.00\n'
    add = (("test__add", {"a": 2, "b": 3}),)
    script = provider.script(ScriptedAnswer("", add), ScriptedAnswer("", add), ScriptedAnswer("It is 5."))
    with serve_config_text(tmp_path, serve_with_mcp(tmp_path, provider, more=prices)) as base:
        body = {"model": "m-chat", "max_tokens": 99, "messages": [{"role": "user", "content": script.mark}]}
        port = int(base.rpartition(":")[2])
        got = ask(port, "POST", "/v1/messages", encode_json({**body, "stream": stream}).encode())
        assert got.status == 200
    assert len(script.asked) == 3
    found = read_total(f"sqlite://{tmp_path}/store.db", provider="chat", model="gpt-4.1")
    assert (found.calls, found.unpriced_calls, found.estimated_calls) == (3, 0, 0)
    one = body_of("openai-chat", ScriptedAnswer("It is 5."))["usage"]
    assert found.input == 3 * one["prompt_tokens"]


def test_a_search_for_tools_is_a_call(provider: Provider, tmp_path: Path) -> None:
    tools = [
        {"type": "function", "function": {"name": f"tool_{number}", "description": f"Does task {number}"}}
        for number in range(8)
    ]
    text = provider_configuration(provider.url).replace(
        "api_key =", 'tool_search = "gateway"\ndirect_tools = 1\napi_key ='
    )
    script = provider.script(
        ScriptedAnswer("", (("search_tools", {"query": "task 7"}),)), ScriptedAnswer("", (("tool_7", {}),))
    )
    with serve_config_text(tmp_path, f'{text}[store]\nurl = "sqlite://{tmp_path}/store.db"\n') as base:
        body = {"model": "m-chat", "messages": [{"role": "user", "content": script.mark}], "tools": tools}
        got = ask(int(base.rpartition(":")[2]), "POST", "/v1/chat/completions", encode_json(body).encode())
        assert got.status == 200
    assert len(script.asked) == 2
    assert read_total(f"sqlite://{tmp_path}/store.db", provider="chat").calls == 2


def test_a_description_of_an_image_is_a_call_of_its_own_model(provider: Provider, tmp_path: Path) -> None:
    eyes = Provider()
    eyes.strangers = Script("", [Step(ScriptedAnswer("A red dot."))])
    text = provider_configuration(provider.url).replace("api_key =", 'describe_images = "eyes/gpt-5.5"\napi_key =')
    text += f'[providers.eyes]\nprotocols = ["openai-chat"]\nbase_url = "{eyes.url}/v1"\napi_key = "{KEYS["openai-chat"]}"\n'
    script = provider.script(ScriptedAnswer("A dot."))
    image = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}}
    with serve_config_text(tmp_path, f'{text}[store]\nurl = "sqlite://{tmp_path}/store.db"\n') as base:
        content = [{"type": "text", "text": script.mark}, image]
        body = {"model": "m-chat", "messages": [{"role": "user", "content": content}]}
        headers = {"user-agent": "codex_exec/1.0"}
        port = int(base.rpartition(":")[2])
        assert ask(port, "POST", "/v1/chat/completions", encode_json(body).encode(), headers).status == 200
    eyes.close()
    url = f"sqlite://{tmp_path}/store.db"
    assert read_total(url, provider="eyes", operation="describe_image", agent="codex").calls == 1
    assert read_total(url, provider="chat", operation="chat", agent="codex").calls == 1


def test_a_background_response_is_counted(provider: Provider, tmp_path: Path) -> None:
    script = provider.script(ScriptedAnswer("Done."))
    text = f'{provider_configuration(provider.url)}[store]\nurl = "sqlite://{tmp_path}/store.db"\n'
    with serve_config_text(tmp_path, text) as base:
        body = encode_json({"model": "m-anthropic", "input": script.mark, "background": True}).encode()
        port = int(base.rpartition(":")[2])
        made = ask(port, "POST", "/v1/responses", body).json()
        wait_until(lambda: ask(port, "GET", f"/v1/responses/{made['id']}").json()["status"] == "completed")
    assert read_total(f"sqlite://{tmp_path}/store.db", operation="background", provider="anthropic").calls == 1


@pytest.mark.parametrize(
    ("path", "answered", "tokens"),
    [
        ("/v1/embeddings", b'{"data":[{"embedding":[0.1]}],"usage":{"prompt_tokens":7,"total_tokens":7}}', (7, 0)),
        (
            "/v1/completions",
            b'{"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":3,"total_tokens":8}}',
            (5, 3),
        ),
        ("/v1/completions", b'data: {"usage":{"prompt_tokens":5,"completion_tokens":3}}\n\ndata: [DONE]\n\n', (5, 3)),
        ("/v1/images/generations", b'{"data":[{"url":"u"}]}', None),
    ],
    ids=["embeddings", "completions", "stream", "unknown"],
)
def test_paths_that_are_only_forwarded(
    served: Served, path: str, answered: bytes, tokens: tuple[int, int] | None
) -> None:
    scene = served.scene("openai-chat", answer(200, answered), model="priced")
    got = ask(served.port, "POST", path, encode_json({"model": scene.model, "input": "x"}).encode())
    line = log_line(served, got.id)
    if tokens is None:
        assert line["unpriced_calls"] == 1
        assert "cost_usd" not in line
    else:
        assert (line["input_tokens"], line["output_tokens"]) == tokens
        assert line["cost_usd"] == (tokens[0] * Decimal("1.25") + tokens[1] * 10) / 1_000_000


def test_a_forwarded_path_that_is_free(served: Served) -> None:
    scene = served.scene("openai-chat", answer(200, b'{"results":[]}'), model="priced")
    got = ask(served.port, "POST", "/v1/moderations", encode_json({"model": scene.model, "input": "x"}).encode())
    assert "unpriced_calls" not in log_line(served, got.id)


@pytest.mark.parametrize(
    "end",
    [
        b"",
        b'"usage":{',
        b'"usage":{"prompt_tokens":true}',
        b'"usage":null',
        b'"usage":{"prompt_tokens":-1}',
        b'"usage":{x}',
    ],
)
def test_an_end_without_usage(end: bytes) -> None:
    assert find_usage(UsageNames(), end) is None


def test_the_last_usage_counts() -> None:
    end = b'{"usage":{"input_tokens":1}} {"usage": {"input_tokens":9,"input_tokens_details":{"cached_tokens":4}}}'
    assert find_usage(UsageNames(), end) == Usage(9, 0, 4)
