"""`toolwire doctor config`: what it shows, what it never shows, and its exit codes."""

from __future__ import annotations

import hashlib
import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from configs import load_config
from toolwire.cli import main

GOOD = """
[[server.keys]]
name = "ci"
sha256 = "dbfc93fc9b0178455673a3bd50c368d32c8b386da6e46989b9a16a0e2f36bf2e"
models = ["claude-*"]
[providers.deepseek]
api_key_env = "TEAM_KEY"
[providers.own]
protocols = ["openai-chat"]
base_url = "https://llm.example.com/v1?secret=sk-hidden"
forward_auth = true
[providers.written]
kind = "groq"
api_key = "sk-hidden"
[models."claude-*"]
provider = "own"
max_output_tokens = 9
fallbacks = ["mistral/m"]
[store]
url = "postgresql://me:sk-hidden@db/kept?password=sk-hidden"
ttl = 86400
[[policy]]
name = "no patching"
client = "openai-responses"
tool = ["apply_patch", "update_*"]
drop = true
guidance = "Use {shell}."
"""


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Any:
    monkeypatch.chdir(tmp_path)
    for name in ("TOOLWIRE_CONFIG", "XDG_CONFIG_HOME", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("OPENAI_API_KEY", "sk-hidden")

    def run(*words: str, stdin: bytes = b"", command: str = "doctor config") -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        code = main((*command.split(), *words))
        out, err = capsys.readouterr()
        return code, out, err

    return run


def test_a_preset_shows_what_it_is_limited_to(run: Any, tmp_path: Path) -> None:
    (tmp_path / "toolwire.toml").write_text(
        '[[policy]]\npreset = "codex-on-anthropic"\nprovider = "openai"\n[[policy]]\nmax_tools = 8\n'
    )
    lines = [" ".join(line.split()) for line in run()[1].splitlines()]
    effects = "drop, guidance, clean, choice"
    assert f"policy 1: codex-on-anthropic, apply_patch tool apply_patch; provider openai {effects}" in lines
    assert "policy 2 everything max_tools" in lines


def test_shows_the_configuration_without_keys(run: Any, tmp_path: Path) -> None:
    (tmp_path / "toolwire.toml").write_text(GOOD)
    code, out, err = run()
    assert code == 0
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert lines[0] == "file toolwire.toml"
    assert lines[1] == "server http://127.0.0.1:8642, 1 worker, for clients with a key"
    assert lines[2] == "store postgresql://db/kept, for 1 days, at most 1 GiB"
    assert "deepseek anthropic https://api.deepseek.com/anthropic set TEAM_KEY" in lines
    assert "own openai-chat https://llm.example.com/v1 clients send their own key" in lines
    assert "written openai-chat https://api.groq.com/openai/v1 has a key in the file" in lines
    assert "openai openai-responses, openai-chat https://api.openai.com/v1 uses OPENAI_API_KEY" in lines
    assert "loopback every protocol (embedded) needs no key" in lines
    assert "claude-* own/(as requested), at most 9 tokens then mistral/m" in lines
    assert "ci claude-*" in lines
    assert "no patching client openai-responses; tool apply_patch, update_* drop, guidance" in lines
    assert "warning: toolwire.toml:7: the environment variable TEAM_KEY is not set" in err
    assert "hint: set TEAM_KEY" in err
    assert "sk-hidden" not in out + err
    assert "\x1b" not in out + err


def test_a_key_with_an_old_name_is_shown_with_the_new_one(run: Any, tmp_path: Path) -> None:
    (tmp_path / "toolwire.toml").write_text("[server]\n\nrest_after = 3\n")
    code, _, err = run()
    assert code == 0
    assert "warning: toolwire.toml:3: `rest_after` has been renamed" in err
    assert "write `cooldown_after` instead of `rest_after`" in err


def test_without_a_file_uses_the_environment(run: Any) -> None:
    code, out, err = run()
    assert (code, err) == (0, "")
    assert out.startswith("file    none: only the environment is used\n")


def test_mistakes_end_with_2(run: Any, tmp_path: Path) -> None:
    file = tmp_path / "my.toml"
    file.write_text("[server]\nprot = 1\nworkers = 0")
    code, out, err = run("--config", str(file))
    assert (code, out) == (2, "")
    assert err == (
        f"error: {file}:2: unknown key `prot`\n"
        "hint: did you mean `port`?\n"
        f"error: {file}:3: `workers`: expected a whole number >= 1\n"
    )
    code, _, err = run("--config", str(tmp_path / "none.toml"))
    assert code == 2
    assert "cannot be read" in err


def test_hash_prints_configuration(run: Any, tmp_path: Path) -> None:
    code, out, err = run(stdin=b"a-long-and-random-key\n", command="keys hash")
    assert (code, err) == (0, "")
    assert "a-long" not in out
    file = tmp_path / "toolwire.toml"
    file.write_text(out)
    assert load_config(file, {}).server.keys[0].sha256 == hashlib.sha256(b"a-long-and-random-key").hexdigest()


def test_hash_takes_a_name_and_needs_no_configuration(run: Any, tmp_path: Path) -> None:
    (tmp_path / "toolwire.toml").write_text("[broken")
    _, out, _ = run("alice", stdin=b"a-long-and-random-key\n", command="keys hash")
    assert 'name = "alice"' in out
    shown = json.loads(run("alice", "--json", stdin=b"a-long-and-random-key\n", command="keys hash")[1])
    assert (shown["name"], shown["lines"]) == ("alice", out)


def test_hash_rejects_bad_keys(run: Any) -> None:
    assert "can be guessed" in run(stdin=b"short", command="keys hash")[2]
    code, out, err = run(stdin=b" \n", command="keys hash")
    assert (code, out) == (2, "")
    assert err.startswith("error: the key is empty\nhint: ")
