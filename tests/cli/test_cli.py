"""The command line: exit codes, what goes to which stream, and error messages."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from material import NAMES, SAMPLES
from toolwire.cli import main

CHAT = {"model": "gpt-4o", "messages": [{"role": "user", "content": "hi"}], "logit_bias": {"1": 2}}


class CommandResult:
    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]) -> Any:
    def run(*words: str, stdin: bytes = b"") -> CommandResult:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        try:
            code = main(words)
        except SystemExit as stop:
            code = int(stop.code or 0)
        sys.stdout.flush()
        sys.stderr.flush()
        out, err = capfdbinary.readouterr()
        return CommandResult(code, out.decode(), err.decode())

    return run


def test_a_request_goes_from_standard_input_to_standard_output(run: Any) -> None:
    result = run("translate", "request", "--from", "openai-chat", "--to", "anthropic", stdin=json.dumps(CHAT).encode())
    assert result.code == 0
    assert json.loads(result.out)["messages"] == [{"role": "user", "content": "hi"}]
    assert "lost" in result.err
    assert "/logit_bias" in result.err
    assert "\x1b" not in result.err


def test_losses_go_to_the_report_as_json_lines(run: Any, tmp_path: Path) -> None:
    body, report = tmp_path / "in.json", tmp_path / "losses.jsonl"
    body.write_text(json.dumps(CHAT))
    result = run("translate", "request", "--from", "openai_chat", "--to", "gemini", str(body), "--report", str(report))
    assert result.code == 0
    losses = [json.loads(line) for line in report.read_text().splitlines()]
    assert any(
        loss["code"] == "unknown-field" and loss["path"] == "/logit_bias" and loss["severity"] == "lost"
        for loss in losses
    )
    assert result.err == ""


def test_strict_exits_with_3(run: Any) -> None:
    result = run(
        "translate",
        "request",
        "--from",
        "openai-chat",
        "--to",
        "anthropic",
        "--strict",
        stdin=json.dumps(CHAT).encode(),
    )
    assert result.code == 3
    assert "hint:" in result.err


@pytest.mark.parametrize(
    ("words", "stdin", "message"),
    [
        (("--from", "openai-chat", "--to", "anthropic"), b"{", "not JSON"),
        (
            ("--from", "openai-chat", "--to", "anthropic"),
            b'{"model": "m", "messages": [{"role": "user", "content": 5}]}',
            "/messages/0/content",
        ),
        (("--from", "morse", "--to", "anthropic"), b"{}", "morse"),
        (("--from", "openai-chat", "--to", "morse"), b"{}", "morse"),
        (("--from", "openai-chat", "--to", "anthropic", "nowhere.json"), b"", "nowhere.json"),
    ],
)
def test_bad_input_exits_with_2_and_names_the_place(
    run: Any, words: tuple[str, ...], stdin: bytes, message: str
) -> None:
    result = run("translate", "request", *words, stdin=stdin)
    assert result.code == 2
    assert result.out == ""
    assert result.err.startswith("error: ")
    assert message in result.err
    assert "hint: " in result.err
    assert "Traceback" not in result.err


def test_a_stream_that_fails_exits_with_1(run: Any) -> None:
    whole = SAMPLES / "anthropic" / "text_then_tool_use.sse"
    result = run("translate", "stream", "--from", "anthropic", "--to", "openai-chat", str(whole))
    assert result.code == 0
    assert result.out.endswith("data: [DONE]\n\n")
    cut = run("translate", "stream", "--from", "anthropic", "--to", "openai-chat", stdin=whole.read_bytes()[:900])
    assert cut.code == 1
    assert '"error"' in cut.out
    assert "[DONE]" not in cut.out
    assert "hint:" in cut.err


def test_request_option_restores_tool_names(run: Any, tmp_path: Path) -> None:
    long = "n" * 80
    request = tmp_path / "request.json"
    request.write_text(
        json.dumps(
            {
                "model": "m",
                "max_tokens": 9,
                "messages": [{"role": "user", "content": "q"}],
                "tools": [{"name": long, "input_schema": {"type": "object"}}],
            }
        )
    )
    sent = json.loads(run("translate", "request", "--from", "anthropic", "--to", "openai-chat", str(request)).out)
    name = sent["tools"][0]["function"]["name"]
    assert len(name) <= 64
    answer = {
        "id": "c",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [
            {
                "index": 0,
                "finish_reason": "tool_calls",
                "message": {
                    "role": "assistant",
                    "content": None,
                    "tool_calls": [{"id": "call_1", "type": "function", "function": {"name": name, "arguments": "{}"}}],
                },
            }
        ],
    }
    result = run(
        "translate",
        "response",
        "--from",
        "openai-chat",
        "--to",
        "anthropic",
        "--request",
        str(request),
        stdin=json.dumps(answer).encode(),
    )
    assert json.loads(result.out)["content"][0]["name"] == long
    assert json.loads(result.out)["stop_reason"] == "tool_use"


@pytest.mark.parametrize("kind", ["request", "response", "stream", "error"])
def test_translate_to_ir(run: Any, kind: str) -> None:
    inputs = {
        "request": json.dumps(CHAT).encode(),
        "response": (SAMPLES / "openai_chat" / "function_call.json").read_bytes(),
        "stream": (SAMPLES / "openai_chat" / "function_call.sse").read_bytes(),
        "error": b'{"error": {"message": "no", "type": "invalid_request_error"}}',
    }
    result = run("translate", kind, "--from", "openai-chat", "--to", "ir", stdin=inputs[kind])
    assert result.code == 0
    assert '"node"' in result.out


def test_matrix_shows_every_scenario_in_every_protocol(run: Any) -> None:
    result = run("demo", "matrix")
    assert result.code == 0
    for word in ("run_shell_command", "read_many_files", "web_search", *NAMES):
        assert word in result.out
    whole = json.loads(run("demo", "matrix", "--json").out)
    assert set(whole["read_file"]) == set(NAMES)
    assert run("demo", "matrix", "no_such_scenario").code == 2


TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "fine",
            "description": "Fine.",
            "parameters": {"type": "object", "properties": {"a": {"type": "string", "description": "A"}}},
        },
    },
    {
        "type": "function",
        "function": {
            "name": "a.name_of_more_than_sixty_four_characters_that_no_wire_but_some_would_take",
            "description": "Long.",
            "parameters": {"type": "object", "properties": {}},
        },
    },
    {
        "type": "function",
        "function": {
            "name": "root",
            "description": "Bad root.",
            "parameters": {"type": "array", "items": {"type": "string"}},
        },
    },
]


@pytest.mark.parametrize("text", [b"{}", b"[]", b'{"tools": []}', b'{"model": "m", "messages": []}', b'"x"'])
def test_what_has_no_tools_cannot_be_checked(text: bytes, run: Any) -> None:
    result = run("check", stdin=text)
    assert (result.code, result.out) == (2, "")
    assert "the input contains no tools" in result.err


def test_check_covers_every_provider(run: Any, tmp_path: Path) -> None:
    file = tmp_path / "tools.json"
    file.write_text(json.dumps(TOOLS))
    result = run("check", str(file))
    for name in NAMES:
        assert name in result.out
    assert "renamed" in result.out
    assert "rewritten" in result.out
    one = run("check", str(file), "--for", "anthropic")
    assert "gemini" not in one.out


def test_check_lists_unusable_tools(run: Any) -> None:
    tools = [
        {"type": "web_search"},
        {"type": "image_generation"},
        {"type": "function", "name": "fine", "parameters": {"type": "object"}},
        {"type": "function", "name": "bad", "parameters": {"type": "array"}},
    ]
    stdin = json.dumps(tools).encode()
    result = run("check", "--for", "anthropic", stdin=stdin)
    assert "  cannot use: image_generation\n" in result.out
    assert "web_search" not in result.out
    assert "  cannot use: bad\n" in run("check", "--for", "openai-responses", stdin=stdin).out
    assert "cannot use" not in run("check", "--for", "openai-responses", stdin=json.dumps(tools[:3]).encode()).out


def test_check_for_a_well_known_provider(run: Any) -> None:
    tools = [{"type": "custom", "name": "patch"}]
    result = run("check", "--for", "groq", stdin=json.dumps(tools).encode())
    assert result.code == 0
    assert result.out.startswith("groq (openai-chat)\n  rewritten  patch")  # which its protocol alone would take
    assert "rewritten" not in run("check", "--for", "openai-chat", stdin=json.dumps(tools).encode()).out
    wrong = run("check", "--for", "grok-q", stdin=b"[]")
    assert (wrong.code, wrong.out) == (2, "")
    assert "hint: did you mean `groq`?" in wrong.err


@pytest.mark.parametrize(
    "tools",
    [
        [{"name": "f", "description": "d", "input_schema": {"type": "object", "properties": {}}}],
        [{"name": "f", "description": "d", "inputSchema": {"type": "object", "properties": {}}}],
        [{"name": "f", "description": "d", "parameters": {"type": "object", "properties": {"x": {"type": "string"}}}}],
        [{"functionDeclarations": [{"name": "f", "description": "d"}]}],
        {
            "tools": [
                {
                    "type": "function",
                    "name": "f",
                    "description": "d",
                    "parameters": {"type": "object", "properties": {}},
                }
            ]
        },
    ],
)
def test_check_detects_the_protocol_of_tools(run: Any, tools: Any) -> None:
    result = run("check", "--for", "openai-chat", stdin=json.dumps(tools).encode())
    assert result.code == 0, result.err
    assert result.out.split() == ["openai-chat", "ok", "1", "tool", "accepted", "unchanged"]


@pytest.mark.parametrize("stdin", [b"{", b"5", b'"x"'])
def test_check_of_invalid_input(run: Any, stdin: bytes) -> None:
    result = run("check", stdin=stdin)
    assert result.code == 2
    assert "hint:" in result.err
