"""`log_level = "debug"`: the tools and calls of a request, on both sides."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gateway.process import run_gateway
from gateway.provider import ScriptedAnswer
from gateway.raw_exchange import PROVIDER_KEY, RawAnswer, Served, answer, ask, body_of, path_of, stage, write_chunked
from toolwire_conformance.peers import PEERS
from toolwire_conformance.peers.peer import encode_json
from waits import PATIENCE

LONG = "mcp__" + "a-server-with-a-very-long-name__" * 2 + "and_its_tool"
SECRET = "sk-live-0123456789abcdef0123"
SCHEMA = {"type": "object", "properties": {"command": {"type": "string"}}}
REQUEST: dict[str, Any] = {
    "max_tokens": 100,
    "messages": [
        {"role": "user", "content": "List."},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "toolu_1", "name": "bash", "input": {"command": "ls"}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "x" * 1234}]},
    ],
    "tools": [
        {"name": "bash", "input_schema": SCHEMA},
        {"name": LONG, "input_schema": SCHEMA},
        {"type": "web_fetch_20250910", "name": "web_fetch"},
    ],
}  # fmt: skip


@pytest.fixture(scope="module", name="served")
def serve_gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with stage(tmp_path_factory.mktemp("debug"), 'log_level = "debug"') as staged:
        yield staged


def post_body(served: Served, client: str, body: dict[str, Any]) -> RawAnswer:
    return ask(served.port, "POST", path_of(client, "", False), encode_json(body).encode())


def steps_of(served: Served, request_id: str, last: str) -> list[dict[str, Any]]:
    """The debug lines of one exchange, up to the first of the step that ends them."""
    found: list[dict[str, Any]] = []
    while not found or found[-1]["step"] != last:
        line = json.loads(served.lines.get(timeout=PATIENCE))
        if line["event"] == "debug" and line["request_id"] == request_id:
            found.append(line)
    return found


def script_answer(says: ScriptedAnswer, stream: bool) -> bytes:
    body = body_of("openai-chat", says)
    if stream:
        return write_chunked(*(frame.encode() for frame in PEERS["openai-chat"].write_stream(body)))
    return answer(200, encode_json(body).encode())


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
def test_it_tells_tools_and_calls_on_both_sides(served: Served, stream: bool) -> None:
    scene = served.scene(
        "openai-chat", script_answer(ScriptedAnswer("", ((LONG[:64], {"command": "y" * 5000}),)), stream)
    )
    got = post_body(served, "anthropic", {**REQUEST, "model": scene.model, "stream": stream})
    sent = scene.asked[0].json()
    name = sent["tools"][1]["function"]["name"]
    lines = {line["step"]: line for line in steps_of(served, got.id, "loss")}
    assert lines["client_request"]["tools"] == ["bash", LONG, "web_fetch (provider tool)"]
    assert lines["client_request"]["results"] == [{"id": "toolu_1", "size": 1234}]
    assert lines["upstream_request"]["tools"] == ["bash", name]
    assert lines["upstream_request"]["url"].endswith(scene.asked[0].target)
    assert lines["upstream_request"]["calls"] == [{"name": "bash", "id": "toolu_1", "arguments": '{"command":"ls"}'}]
    (called,), (given,) = lines["upstream_response"]["calls"], lines["client_response"]["calls"]
    assert called["name"] == LONG[:64]
    assert given["id"] == (re.search(rb'"id":"(tw-[^"]*)"', got.data) or [b"", b""])[1].decode()
    for call in (called, given):
        assert call["arguments"].startswith('{"command":"yyy')
        assert len(call["arguments"]) == 200
    assert lines["loss"]["severity"] in ("lost", "changed", "added")
    assert lines["loss"]["why"]


def test_the_names_of_a_call_differ_as_the_wire_does(served: Served) -> None:
    scene = served.scene("openai-chat", b"")
    probe = {**REQUEST, "model": scene.model}
    scene.plays[:] = [script_answer(ScriptedAnswer("No."), False)]
    post_body(served, "anthropic", probe)
    name = scene.asked[0].json()["tools"][1]["function"]["name"]
    assert name != LONG
    scene.plays[:] = [script_answer(ScriptedAnswer("", ((name, {}),)), False)]
    got = post_body(served, "anthropic", probe)
    lines = {line["step"]: line for line in steps_of(served, got.id, "client_response")}
    assert lines["upstream_response"]["calls"][0]["name"] == name
    assert lines["client_response"]["calls"][0]["name"] == LONG


def test_no_key_is_shown(served: Served) -> None:
    says = ScriptedAnswer(
        "", (("bash", {"command": f"curl -H 'x: {SECRET}' {PROVIDER_KEY}", "api_key": "hunter2-and-more"}),)
    )
    scene = served.scene("openai-chat", script_answer(says, False))
    got = post_body(served, "anthropic", {**REQUEST, "model": scene.model})
    lines = json.dumps(steps_of(served, got.id, "client_response"))
    assert "curl" in lines
    for secret in (SECRET, PROVIDER_KEY, "hunter2-and-more"):
        assert secret not in lines


def test_a_refusal_is_told_too(served: Served) -> None:
    scene = served.scene("openai-chat", answer(400, b'{"error":{"message":"no"}}'))
    got = post_body(served, "anthropic", {**REQUEST, "model": scene.model})
    lines = {line["step"]: line for line in steps_of(served, got.id, "client_response")}
    assert lines["upstream_response"]["status"] == 400
    assert lines["client_response"]["status"] == 400


def test_what_is_no_request_is_only_counted(served: Served) -> None:
    got = post_body(served, "anthropic", {"model": "chat/x", "messages": 5, "max_tokens": 1})
    assert got.status == 400
    lines = {line["step"]: line for line in steps_of(served, got.id, "client_response")}
    assert lines["client_request"]["unreadable_bytes"] > 0


def test_the_form_for_a_terminal(tmp_path_factory: pytest.TempPathFactory) -> None:
    with stage(tmp_path_factory.mktemp("debug"), 'log_format = "text"\nlog_level = "debug"') as served:
        scene = served.scene("openai-chat", script_answer(ScriptedAnswer("", (("bash", {"command": "ls"}),)), False))
        post_body(served, "anthropic", {**REQUEST, "model": scene.model})
        lines = [served.lines.get(timeout=PATIENCE) for _ in range(5)]
    assert [line.split()[1] for line in lines[1:]] == [
        "client_request",
        "upstream_request",
        "upstream_response",
        "client_response",
    ]
    assert f"tools=[bash, {LONG}, web_fetch (provider tool)]  calls=[bash toolu_1 " in lines[1]
    assert "web_fetch" not in lines[2]


@pytest.mark.parametrize(("level", "told"), [("info", True), ("warn", False)])
def test_other_levels_say_less(tmp_path_factory: pytest.TempPathFactory, level: str, told: bool) -> None:
    with stage(tmp_path_factory.mktemp("debug"), f'log_level = "{level}"') as served:
        fine = served.scene("openai-chat", script_answer(ScriptedAnswer("Yes."), False))
        bad = served.scene("openai-chat", answer(500, b"{}"))
        for scene in (fine, bad):
            post_body(served, "openai-chat", {"model": scene.model, "messages": [{"role": "user", "content": "Hi."}]})
        lines = [json.loads(served.lines.get(timeout=PATIENCE)) for _ in range(2 if told else 1)]
    assert [line["level"] for line in lines] == (["info", "error"] if told else ["error"])
    assert {line["event"] for line in lines} == {"exchange"}


def test_the_command_line_asks_for_it(tmp_path: Path) -> None:
    tool = {"type": "function", "function": {"name": "get_weather", "parameters": SCHEMA}}
    with run_gateway(tmp_path, "--log", "text", "--log-level", "debug") as process:
        body = {"model": "loopback", "messages": [{"role": "user", "content": "How is it?"}], "tools": [tool]}
        got = ask(process.port, "POST", path_of("openai-chat", "", False), encode_json(body).encode())
        came, went = process.read_log_until(" client_request "), process.read_log_until(" upstream_request ")
    for line in (came, went):
        assert "tools=[get_weather]" in line
        assert got.id in line
    assert "provider=loopback" in went
