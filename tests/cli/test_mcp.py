"""`toolwire mcp list`: what it shows for servers that answer and that do not, and its exit codes."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from forked_commands import trust_file
from toolwire.cli import main

SERVER = Path(__file__).parents[1] / "gateway" / "mcp_server.py"
GOOD = f"""
[mcp.docs]
command = ["{sys.executable}", "{SERVER}"]
env = {{ MCP_TOKEN = "$TOKEN" }}
tools = ["add", "echo", "odd*"]
models = ["gpt-*", "claude-*"]
protocols = ["openai-*"]
connect_timeout = 600  # on a busy machine a Python and the SDK take long to start
"""
BAD = """
[mcp.gone]
command = ["does-not-exist", "--token", "geheim-0123456789"]
models = ["*"]
[mcp.far]
url = "http://127.0.0.1:1/$TOKEN/mcp?key=geheim-0123456789"
models = ["*"]
[mcp.poor]
command = "x"
env = { KEY = "$NOT_SET" }
models = ["*"]
"""
ROWS = """docs  up  test-tools 1.2.3  for gpt-*, claude-*; protocols openai-*
  docs__add                            add                   Does add.
  docs__echo                           echo                  Does echo.
  docs__odd_name_with_spaces_548f5b90  odd.name/with spaces  Does odd.name/with spaces.
"""


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path) -> Any:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TOOLWIRE_CONFIG", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("TOKEN", "geheim-0123456789")
    monkeypatch.setenv("COLUMNS", "200")

    def run(text: str, *words: str) -> tuple[int, str, str]:
        (tmp_path / "toolwire.toml").write_text(text)
        trust_file(tmp_path, os.environ)
        code = main(words)
        out, err = capfd.readouterr()
        assert "geheim" not in out + err
        return code, out, err

    return run


def test_servers_tools_and_names(run: Any) -> None:
    assert run(GOOD, "mcp", "list") == (0, ROWS, "")


def test_servers_that_are_down(run: Any) -> None:
    code, out, err = run(GOOD + BAD, "mcp", "list")
    assert code == 1
    assert out == ROWS + (
        "gone  down  does-not-exist --token …  for *\n"
        "far  down  http://127.0.0.1:1/$TOKEN/mcp  for *\n"
        "poor  down  x  for *\n"
    )
    assert err.splitlines()[2:] == [
        "error: gone is down: it cannot be started: No such file or directory",
        "hint: try to start it yourself: does-not-exist --token …",
        "error: far is down: it cannot be reached",
        "hint: check that it is running at http://127.0.0.1:1/$TOKEN/mcp",
        "error: poor is down: NOT_SET is not set in the environment",
        "hint: set NOT_SET",
    ]


def test_json(run: Any) -> None:
    code, out, _ = run(GOOD + BAD, "mcp", "list", "--json")
    assert code == 1
    docs, gone, far, _ = json.loads(out)["servers"]
    assert (docs["name"], docs["state"], docs["server"]) == ("docs", "up", "test-tools 1.2.3")
    assert [(tool["name"], tool["tool"]) for tool in docs["tools"][:2]] == [
        ("docs__add", "add"),
        ("docs__echo", "echo"),
    ]
    assert docs["tools"][0]["parameters"]["required"] == ["a", "b"]
    assert (gone["state"], far["state"], far["tools"]) == ("down", "down", [])
    assert far["why"] == "it cannot be reached"


def test_a_server_that_does_not_answer_in_time_is_down(run: Any) -> None:
    mute = f"""[mcp.mute]
command = ["{sys.executable}", "-c", "import signal; signal.pause()"]
connect_timeout = 0.1
models = ["*"]
"""
    code, out, err = run(mute, "mcp", "list")
    assert (code, out.split()[:2]) == (1, ["mute", "down"])
    assert "error: mute is down: it did not list its tools within 0.1 seconds\n" in err


def test_no_servers(run: Any) -> None:
    code, out, err = run("", "mcp", "list")
    assert (code, out) == (0, "")
    assert err == "no MCP server is configured\nhint: add [mcp.NAME] with a `command` or a `url`\n"
    assert json.loads(run("", "mcp", "list", "--json")[1]) == {"servers": []}


def test_mistakes_end_with_2(run: Any) -> None:
    code, out, err = run("[mcp.a]\n", "mcp", "list")
    assert (code, out) == (2, "")
    assert "toolwire.toml:1: `command` or `url` is missing\nhint: " in err
    assert run("", "mcp", "show")[0] == 2


def test_doctor_config_shows_them(run: Any) -> None:
    code, out, _ = run(GOOD + BAD, "doctor", "config")
    assert code == 0
    assert [line.split() for line in out.splitlines() if line.startswith(("  gone", "  poor"))] == [
        ["gone", "does-not-exist", "--token", "…", "for", "*"],
        ["poor", "x", "for", "*", "set", "NOT_SET"],
    ]
