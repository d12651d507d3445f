"""`toolwire policy`: what rules do to a request, and which rule does it."""

from __future__ import annotations

import io
import json
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from forked_commands import trust_file
from toolwire.cli import main
from toolwire.gateway.settings.policies import preset_rules

RULES = """
[providers.anthropic]
api_key = "sk-hidden"
[[policy]]
name = "shell only"
preset = "codex-on-anthropic"
model = ["claude-*"]
[[policy]]
name = "plain words"
tool = ["exec_command"]
rename = "run"
parameters = { cmd = "command" }
[[policy]]
name = "elsewhere"
provider = ["loopback"]
tool = ["view_image"]
drop = true
"""
COMMAND = {"type": "object", "properties": {"cmd": {"type": "string"}, "tty": {"type": "boolean"}}, "required": ["cmd"]}
REQUEST = {
    "model": "claude-opus-5-5",
    "instructions": "You are Codex.\nEdit with `apply_patch`.\nBe brief.",
    "input": [
        {"role": "user", "content": "Go."},
        {"type": "function_call", "call_id": "c1", "name": "exec_command", "arguments": '{"cmd":"ls"}'},
        {"type": "function_call_output", "call_id": "c1", "output": "a"},
    ],
    "tools": [
        {"type": "function", "name": "exec_command", "description": "Runs.", "parameters": COMMAND},
        {"type": "custom", "name": "apply_patch", "format": {"type": "text"}},
        {
            "type": "function",
            "name": "view_image",
            "parameters": {"type": "object", "properties": {"path": {"type": "string"}}},
        },
        {"type": "web_search"},
    ],
    "tool_choice": {"type": "custom", "name": "apply_patch"},
}


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Any:
    monkeypatch.chdir(tmp_path)
    for name in ("TOOLWIRE_CONFIG", "XDG_CONFIG_HOME", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "toolwire.toml").write_text(RULES)
    (tmp_path / "request.json").write_text(json.dumps(REQUEST))

    def run(*words: str, stdin: bytes = b"") -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        trust_file(tmp_path, os.environ)
        code = main(("policy", *words))
        out, err = capsys.readouterr()
        assert "sk-hidden" not in out + err
        return code, out, err

    return run


def explain(run: Any, *words: str) -> tuple[list[str], str]:
    code, out, err = run("explain", "--client", "openai-responses", *words, "request.json")
    assert code == 0, err
    return [" ".join(line.split()) for line in out.splitlines()], err


def test_explain_shows_changes_and_their_rules(run: Any) -> None:
    lines, err = explain(run, "--agent", "codex_exec/0.166.0")
    assert err == ""
    assert lines[:4] == ["client openai-responses", "agent codex", "provider anthropic", "model claude-opus-5-5"]
    assert "shell only: codex-on-anthropic, apply_patch" in lines
    assert "shell only: codex-on-anthropic, update_plan (matches no tool of this request)" in lines
    assert "changed exec_command(cmd, tty?) → run(command, tty?) plain words" in lines
    assert "dropped apply_patch (custom) shell only: codex-on-anthropic, apply_patch" in lines
    assert "kept view_image(path?)" in lines
    assert "kept web_search" in lines
    assert "one apply_patch → auto shell only: codex-on-anthropic, apply_patch" in lines
    assert 'exec_command {"cmd":"ls"} → run {"command":"ls"}' in lines
    assert "- Edit with `apply_patch`." in lines
    assert "+ Edit with `run`." in lines
    assert any(line.startswith("+ There is no apply_patch tool here") for line in lines)
    assert "elsewhere" not in lines


def test_model_selects_the_rules(run: Any) -> None:
    lines, err = explain(run, "--model", "loopback")
    assert err == ""
    assert lines[2:4] == ["provider loopback", "model loopback"]
    assert "kept apply_patch (custom)" in lines
    assert "dropped view_image(path?) elsewhere" in lines
    assert "instructions" not in lines
    assert "choice" not in lines


def test_provider_option(run: Any) -> None:
    lines, err = explain(run, "--provider", "loopback")
    assert (lines[2], err) == ("provider loopback", "")
    assert "dropped view_image(path?) elsewhere" in lines
    _, err = explain(run, "--provider", "lopback")
    assert err.startswith("note: unknown provider `lopback` (did you mean `loopback`?)")
    _, err = explain(run, "--model", "nobody-has-it")
    assert err.startswith("note: the provider is unknown")


def test_preset_option(run: Any) -> None:
    lines, _ = explain(run, "--model", "loopback", "--preset", "claude-tools-for-codex")
    assert "changed exec_command(cmd, tty?) → Bash(command) exec_command as Bash" in lines
    code, out, err = run("explain", "--client", "openai-responses", "--preset", "smal-model", "request.json")
    assert (code, out) == (2, "")
    assert err == "error: unknown preset 'smal-model'\nhint: did you mean `small-model`?\n"


def test_without_rules(run: Any, tmp_path: Path) -> None:
    (tmp_path / "toolwire.toml").write_text("")
    lines, _ = explain(run, "--model", "loopback")
    start = lines.index("rules in force")
    assert lines[start : start + 4] == ["rules in force", "none", "", "tools"]
    assert [line.split()[0] for line in lines[start + 4 :]] == ["kept"] * 4


def test_explain_shows_tools_added_in_later_turns(run: Any, tmp_path: Path) -> None:
    body = {**REQUEST, "tools": [], "tool_choice": "auto"}
    body["input"] = [{"type": "additional_tools", "role": "developer", "tools": REQUEST["tools"]}, *REQUEST["input"]]  # type: ignore[misc]
    (tmp_path / "request.json").write_text(json.dumps(body))
    lines, _ = explain(run)
    assert "changed exec_command(cmd, tty?) → run(command, tty?) plain words" in lines
    assert "dropped apply_patch (custom) shell only: codex-on-anthropic, apply_patch" in lines


def test_explain_shows_a_refusal(run: Any, tmp_path: Path) -> None:
    rule = '[providers.anthropic]\napi_key = "sk-hidden"\n[[policy]]\nname = "no force"\nchoice = "refuse"\n'
    (tmp_path / "toolwire.toml").write_text(rule)
    body = {**REQUEST, "tool_choice": "required", "reasoning": {"effort": "high"}, "model": "claude-sonnet-4-5"}
    (tmp_path / "request.json").write_text(json.dumps(body))
    lines, _ = explain(run)
    assert "refused" in lines
    assert any("the rule `no force` refuses such a choice" in line for line in lines)
    found = json.loads(run("explain", "--client", "openai-responses", "--json", "request.json")[1])
    assert "no force" in found["refused"]
    assert found["after"] is None


def test_json(run: Any) -> None:
    code, out, _ = run("explain", "--client", "openai-responses", "--json", "request.json")
    assert code == 0
    found = json.loads(out)
    assert found["subject"]["provider"] == "anthropic"
    assert [row["verdict"] for row in found["tools"]] == ["changed", "dropped", "kept", "kept"]
    assert [tool.get("name") for tool in found["before"]["tools"]] == [
        "exec_command",
        "apply_patch",
        "view_image",
        None,
    ]
    assert [tool.get("name") for tool in found["after"]["tools"]] == ["run", "view_image", None]
    assert (found["before"]["choice"]["mode"], found["after"]["choice"]["mode"]) == ("one", "auto")
    assert found["after"]["calls"][0]["arguments"] == '{"command":"ls"}'
    assert {"policy-dropped", "policy-renamed"} <= {loss["code"] for loss in found["report"]}


def test_request_from_standard_input(run: Any) -> None:
    code, out, _ = run("explain", "--client", "openai-responses", stdin=json.dumps(REQUEST).encode())
    assert code == 0
    assert "run(command, tty?)" in out


def test_presets(run: Any) -> None:
    code, out, _ = run("presets")
    assert code == 0
    assert [line.split()[0] for line in out.splitlines()] == list(preset_rules())
    listed = json.loads(run("presets", "--json")[1])
    assert [rule["tool"] for rule in listed["codex-on-anthropic"]["rules"]] == [["apply_patch"], ["update_plan"]]


@pytest.mark.parametrize(
    ("words", "error", "hint"),
    [
        (("explain", "request.json"), "--client is missing", "name the protocol"),
        (
            ("explain", "--client", "telex", "request.json"),
            "--client: unknown protocol `telex`",
            "choose from: openai-chat",
        ),
        (("explain", "--client", "gemini", "none.json"), "cannot read none.json", "check the path"),
        (("explain", "--client", "gemini", "bad.json"), "bad.json: ", "the input was read as gemini"),
        (
            ("explain", "--client", "gemini", "--config", "bad.toml", "request.json"),
            "bad.toml:3: ",
            "did you mean `rename`?",
        ),
        (("expalin",), "unknown action `expalin`", "did you mean `explain`?"),
    ],
)
def test_errors_have_hints(run: Any, tmp_path: Path, words: tuple[str, ...], error: str, hint: str) -> None:
    (tmp_path / "bad.json").write_text("[1]")
    (tmp_path / "bad.toml").write_text('[[policy]]\ntool = ["x"]\nrenam = "y"\n')
    code, out, err = run(*words)
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert error in err
    assert "\nhint: " in err
    assert hint in err


@pytest.mark.parametrize(("quiet", "coloured"), [({}, True), ({"NO_COLOR": "1"}, False)])
def test_colours_only_on_terminals(run: Any, tmp_path: Path, quiet: dict[str, str], coloured: bool) -> None:
    command = [
        sys.executable,
        "-m",
        "toolwire.cli",
        "policy",
        "explain",
        "--client",
        "openai-responses",
        "request.json",
    ]
    ours, theirs = pty.openpty()
    environment = {key: value for key, value in os.environ.items() if key != "NO_COLOR"} | {"TERM": "xterm", **quiet}
    with subprocess.Popen(command, stdout=theirs, cwd=tmp_path, env=environment) as process:
        os.close(theirs)
        shown = b"".join(iter(lambda: _read_terminal(ours), b""))
        assert process.wait() == 0
    os.close(ours)
    assert b"rules in force" in shown
    assert (b"\x1b[" in shown) is coloured


def _read_terminal(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # a terminal whose other side is gone
        return b""
