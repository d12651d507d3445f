"""`toolwire tools`: the table, one tool in detail, and both as JSON."""

from __future__ import annotations

import json
from typing import Any

import pytest

from toolwire.cli import main
from toolwire.gateway.settings.policies import load_catalogue


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Any:
    def run(*words: str) -> tuple[int, str, str]:
        code = main(("tools", *words))
        out, err = capsys.readouterr()
        return code, out, err

    return run


def test_table_has_a_row_per_tool_and_a_column_per_agent(run: Any) -> None:
    code, out, err = run()
    assert (code, err) == (0, "")
    head, *lines = out.splitlines()
    starts = [head.index(agent.title) for agent in load_catalogue().agents.values()]
    assert [line.split()[0] for line in lines] == list(load_catalogue().tools)
    row = next(line for line in lines if line.startswith("shell "))
    cells = [row[start:end].strip() for start, end in zip(starts, [*starts[1:], None], strict=True)]
    assert cells == ["exec_command (shell, shell_command)", "Bash", "run_shell_command", "bash", "run_shell_command"]
    assert "\x1b" not in out


@pytest.mark.parametrize("name", ["read_file", "cat", "Read"])
def test_finds_a_tool_by_any_name(run: Any, name: str) -> None:
    code, out, err = run(name)
    assert (code, err) == (0, "")
    assert out.startswith("read_file  Reads a file.\n")
    assert "\nClaude Code: Read\n" in out
    assert "\nCodex: cat (older)\n" in out
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert "file_path string required The file." in lines
    assert "absolute_path string required, older The file." in lines


def test_shows_kinds_and_namespaces(run: Any) -> None:
    assert "\nCodex: apply_patch (custom)\n" in run("apply_patch")[1]
    assert "\nCodex: spawn_agent of multi_agent_v1\n" in run("spawn_agent")[1]
    assert "array of string" in run("shell")[1]


def test_json(run: Any) -> None:
    whole = json.loads(run("--json")[1])
    assert list(whole) == list(load_catalogue().tools)
    one = json.loads(run("google_web_search", "--json")[1])
    assert list(one) == ["web_search"]
    assert one["web_search"] == whole["web_search"]
    query = {"name": "query", "type": "string", "required": True, "older": False, "means": "The search query."}
    row = {"name": "google_web_search", "kind": "function", "older": False, "parameters": [query]}
    assert one["web_search"]["agents"]["gemini"] == [row]


@pytest.mark.parametrize(
    ("name", "hint"), [("aply_patch", "did you mean `apply_patch`?"), ("zzzzz", "`toolwire tools` lists all tools")]
)
def test_unknown_name(run: Any, name: str, hint: str) -> None:
    assert run(name) == (2, "", f"error: unknown tool `{name}`\nhint: {hint}\n")
