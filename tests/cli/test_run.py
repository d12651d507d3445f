"""`toolwire run`, as a subprocess, with fake agents."""

from __future__ import annotations

import hashlib
import json
import os
import pty
import re
import shlex
import signal
import socket
import subprocess
import sys
import threading
import tomllib
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from forked_commands import TOOLWIRE, Output, run_command, start_program
from gateway.conftest import serve_config
from toolwire.agents import load_agents
from toolwire.agents.session import FAILURE_HINTS
from toolwire.core.ir import STATUS_BY_FAILURE_KIND
from toolwire.gateway.settings.trust import hash_program, remember_trust
from toolwire.protocols import CODECS
from waits import PATIENCE

FAKE_AGENT = Path(__file__).with_name("fake_agent.py")
TERMINAL = "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv(sys.argv[1], sys.argv[1:])"
"""Makes standard input the terminal of a new session, and goes on as another program."""
SECRET = "tw-geheim-0123456789-0123456789"
DEFAULT_MODELS = {
    "codex": "gpt-5.5",
    "claude": "claude-opus-5-5",
    "gemini": "gemini-2.5-pro",
    "qwen": "qwen3-coder-plus",
}


class Sandbox:
    """A user's home, a project, and a folder of agents that are installed."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.home, self.project, self.bin = root / "home", root / "project", root / "bin"
        for folder in (self.home, self.project, self.bin):
            folder.mkdir()
        self.environ = {"HOME": str(self.home), "PATH": f"{self.bin}:/usr/bin:/bin", "TMPDIR": str(root)}
        self.environ |= {name: os.environ[name] for name in ("PYTHONPATH",) if name in os.environ}
        self.configure("[server]\nport = 1\n")  # where nobody listens

    def configure(self, text: str) -> None:
        file = self.home / ".config" / "toolwire" / "toolwire.toml"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def install(self, name: str, folder: Path | None = None) -> Path:
        program = (folder or self.bin) / name
        program.parent.mkdir(parents=True, exist_ok=True)
        program.write_text(f'#!/bin/sh\nexec {sys.executable} {FAKE_AGENT} "$@"\n')
        program.chmod(0o755)
        return program

    def start(self, *words: str, **environ: str) -> AbstractContextManager[subprocess.Popen[str]]:
        return start_program(
            [*TOOLWIRE, "run", *words],
            cwd=self.project,
            env={**self.environ, **environ},
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )

    def run(self, *words: str, **environ: str) -> Output:
        done = run_command(["run", *words], self.project, {**self.environ, **environ})
        assert SECRET not in done.err
        assert not list(self.root.glob("toolwire-run-*")), "the folder of the run is left"
        return done

    def user_files(self) -> list[str]:
        """The files in the user's home, except Toolwire's own."""
        own = self.home / ".local" / "state" / "toolwire"
        paths = (path for path in self.home.rglob("*") if path != own and own not in path.parents)
        return sorted(
            f"{path}: {path.read_text() if path.is_file() else ''}" for path in paths if path not in own.parents
        )


@pytest.fixture
def sandbox(tmp_path: Path) -> Sandbox:
    return Sandbox(tmp_path)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A gateway that knows what the agents ask for."""
    names = [
        *DEFAULT_MODELS.values(),
        *(pattern for agent in load_agents().values() for pattern in agent.helper_models),
    ]
    file = tmp_path_factory.mktemp("running") / "toolwire.toml"
    rules = "".join(f'{json.dumps(name)} = "loopback/loopback"\n' for name in names)
    file.write_text(f'[server]\nlog_format = "none"\n[store]\nurl = "none"\n[models]\n{rules}')
    with serve_config(file) as url:
        yield url


def server_settings(url: str) -> str:
    return f"[server]\nport = {urlsplit(url).port}\n"


def read_agent_report(out: str) -> dict[str, Any]:
    """What the fake agent prints about its environment."""
    first: dict[str, Any] = json.loads(out.splitlines()[0])
    return first


# --- every agent ---


def test_agent_list() -> None:
    first = ["aider", "claude", "cline", "codex", "continue", "copilot"]
    assert list(load_agents()) == [*first, "gemini", "goose", "kilo", "kimi", "opencode", "pi", "qwen"]


def test_guide_lists_every_agent() -> None:
    guide = (Path(__file__).parents[2] / "docs" / "guides" / "agents.md").read_text()
    rows = [
        f"| {agent.title} | `{name}` | {agent.version} | {', '.join(f'`{protocol}`' for protocol in agent.protocols)} |"
        for name, agent in load_agents().items()
    ]
    assert [row for row in guide.splitlines() if re.match(r"\| [^|]+ \| `\w+` \|", row)] == rows


def agent_files(name: str, sandbox: Sandbox) -> dict[str, str]:
    """The files that are written for an agent, and where its program finds them."""
    home = sandbox.home / ".local" / "state" / "toolwire" / "agents" / name
    folders = {"{home}": str(home), "{run}": "${TMPDIR}/toolwire-run-*"}
    return {path: re.sub(r"^\{\w+\}", lambda at: folders[at[0]], path) for path in load_agents()[name].files}


@pytest.mark.parametrize("name", load_agents())
def test_agent_is_pointed_at_the_gateway_only(name: str, sandbox: Sandbox, running: str) -> None:
    agent = load_agents()[name]
    sandbox.configure(server_settings(running))
    sandbox.install(agent.command)
    (sandbox.home / ".config" / "git").mkdir()
    unset = {*agent.unset, *agent.own_variables}
    theirs = dict.fromkeys({*unset, *agent.environment} - {"TOOLWIRE_CLIENT_KEY"}, "https://elsewhere.example.com")
    theirs["FAKE_AGENT_FILES"] = ":".join(agent_files(name, sandbox).values())
    before = sandbox.user_files()
    code, out, err = sandbox.run(name, "--model", "loopback", "--", "a b", "--print", "--", "-c", **theirs)
    given = read_agent_report(out)
    assert code == 0, err
    settings, gateway = err.splitlines()
    assert settings == settings_line(name)
    assert gateway == f"toolwire: {agent.title} uses loopback through the gateway at {running}"
    assert given["argv"][-4:] == ["a b", "--print", "--", "-c"]
    assert given["cwd"] == str(sandbox.project)
    assert "elsewhere.example.com" not in out
    assert not [variable for variable in unset if variable in given["environ"]]
    assert set(agent.environment) <= set(given["environ"])
    assert f"{running}{next(iter(agent.protocols.values())).get('path', '')}" in out
    placeholders = {"origin", "base", "key", "model", "home", "run", *next(iter(agent.protocols.values()))}
    assert not re.search(rf"\{{({'|'.join(placeholders)})", out)
    assert given["environ"]["HOME"] == str(sandbox.home)
    assert sandbox.user_files() == before


USES_YOURS = "uses your own settings, and Toolwire's for the server and the model"
REFUSES_YOURS = ("gemini", "pi")


def settings_line(name: str) -> str:
    """The first line of a run without `--own-settings`."""
    title, home = load_agents()[name].title, f"~/.local/state/toolwire/agents/{name}"
    if name == "aider":
        return f"toolwire: {title} {USES_YOURS}"
    offer = "" if name in REFUSES_YOURS else ", unless you add --own-settings"
    return f"toolwire: {title} has its settings in {home}, and does not use yours{offer}"


@pytest.mark.parametrize("name", [name for name in load_agents() if name not in REFUSES_YOURS])
def test_own_settings(name: str, sandbox: Sandbox, running: str) -> None:
    agent = load_agents()[name]
    sandbox.configure(server_settings(running))
    sandbox.install(agent.command)
    homes = [key for key, value in agent.environment.items() if isinstance(value, str) and "{home}" in value]
    theirs = dict.fromkeys([*homes, *agent.own_variables], str(sandbox.home / "theirs"))
    before = sandbox.user_files()
    code, out, err = sandbox.run(name, "--model", "loopback", "--own-settings", "--", "hello", **theirs)
    given = read_agent_report(out)
    assert code == 0, err
    assert err.splitlines()[0] == f"toolwire: {agent.title} {USES_YOURS}"
    assert {variable: given["environ"].get(variable) for variable in theirs} == theirs
    assert not agent.mirrors.keys() & given["environ"].keys()
    assert f"{running}{next(iter(agent.protocols.values())).get('path', '')}" in out or agent.files
    assert f"toolwire/agents/{name}" not in out
    assert sandbox.user_files() == before


@pytest.mark.parametrize("name", REFUSES_YOURS)
def test_agents_that_cannot_use_own_settings(name: str, sandbox: Sandbox) -> None:
    code, out, err = sandbox.run(name, "--own-settings", "--print")
    assert (code, out) == (2, "")
    assert err.startswith(f"error: {load_agents()[name].title} cannot use your own settings: ")


LIMITS = "[models.loopback.facts]\ncontext_window = 123457\nmax_output_tokens = 4561\n"
WINDOWS = dict.fromkeys(load_agents(), "123457") | dict.fromkeys(("aider", "copilot"), str(123457 - 4561))
OUTPUTS = dict.fromkeys(load_agents(), "4561")
UNKNOWN_LIMITS = (("codex", OUTPUTS), ("gemini", WINDOWS), ("gemini", OUTPUTS))
"""Limits that an agent has no setting for."""


@pytest.mark.parametrize("name", load_agents())
def test_limits_of_the_model_are_passed(name: str, sandbox: Sandbox) -> None:
    sandbox.configure(f"[server]\nport = 1\n{LIMITS}")
    _, plan, _ = sandbox.run(name, "--model", "loopback", "--print")
    for limits in (WINDOWS, OUTPUTS):
        is_passed = re.search(rf"\b{limits[name]}\b", plan) is not None
        assert is_passed == ((name, limits) not in UNKNOWN_LIMITS)
    assert not re.search(r"\{\w+(:number)?\}", plan.replace("{env:TOOLWIRE_CLIENT_KEY}", ""))
    sandbox.configure("[server]\nport = 1\n[models.loopback.facts]\ncontext_window = 123457\n")
    _, plan, _ = sandbox.run(name, "--model", "loopback", "--print")
    assert ("123457" in plan) == (name != "gemini")


def test_continue_is_told_the_longest_answer_only_with_the_window(sandbox: Sandbox) -> None:
    """It ends if an answer can be longer than the window that it guesses."""
    sandbox.configure("[server]\nport = 1\n[models.loopback.facts]\nmax_output_tokens = 393216\n")
    assert "393216" not in sandbox.run("continue", "--model", "loopback", "--print")[1]


WINDOWS_OF_GEMINI = {
    "": 0.5,
    "context_window = 262144": 0.125,
    "context_window = 2000000": 0.5,
    "context_window = 1": 0.5,
}


@pytest.mark.parametrize("line", WINDOWS_OF_GEMINI)
def test_gemini_shortens_its_history_in_time(line: str, sandbox: Sandbox) -> None:
    """It has no setting for the window, but one for the share of 1,048,576 tokens at which it does so."""
    sandbox.configure(f"[server]\nport = 1\n[models.loopback.facts]\n{line}\n")
    _, plan, _ = sandbox.run("gemini", "--model", "loopback", "--print")
    assert f'"compressionThreshold": {WINDOWS_OF_GEMINI[line]}\n' in plan


def test_limits_come_from_the_gateway(sandbox: Sandbox) -> None:
    """Also those that only the provider's list has."""
    sandbox.configure(f"[server]\nport = 1\n{LIMITS}")
    sandbox.install("claude")
    code, out, err = sandbox.run("claude", "--model", "loopback")
    assert code == 0, err
    environ = read_agent_report(out)["environ"]
    assert environ["CLAUDE_CODE_MAX_CONTEXT_TOKENS"] == environ["CLAUDE_CODE_AUTO_COMPACT_WINDOW"] == "123457"
    assert environ["CLAUDE_CODE_MAX_OUTPUT_TOKENS"] == "4561"


@pytest.mark.parametrize("name", load_agents())
def test_agent_definitions_are_consistent(name: str) -> None:
    agent = load_agents()[name]
    assert agent.protocols.keys() <= CODECS.keys()
    assert not agent.environment.keys() & set(agent.unset)
    for pattern, sample in {**agent.helper_models, **agent.rare_models}.items():
        assert sample.startswith(pattern.rstrip("*"))
    assert agent.version in agent.install_command
    assert bool(agent.needs) == agent.install.startswith(("npm ", "uv "))


@pytest.mark.parametrize("name", [name for name, agent in load_agents().items() if agent.files])
def test_files_keep_other_keys(name: str, sandbox: Sandbox, running: str) -> None:
    agent = load_agents()[name]
    sandbox.configure(server_settings(running))
    sandbox.install(agent.command)
    texts = {**next(iter(agent.protocols.values())), "model": "loopback", "key": "toolwire"}
    texts["base"] = running + texts.get("path", "")
    paths = agent_files(name, sandbox)
    for path in paths.values():
        if path.startswith("/"):
            Path(path).parent.mkdir(parents=True)
            Path(path).write_text('{"theme": "dark", "security": {"folderTrust": {"enabled": true}}}')
    _, out, _ = sandbox.run(name, "--model", "loopback", FAKE_AGENT_FILES=":".join(paths.values()))
    for path, seen in paths.items():
        text = read_agent_report(out)["files"][seen]
        filled = re.sub(r"\{(\w+)\}", lambda found: texts.get(found[1], found[0]), json.dumps(agent.files[path]))
        wanted = json.loads(filled)
        if seen.startswith("/"):
            wanted = {
                **wanted,
                "theme": "dark",
                "security": {**wanted.get("security", {}), "folderTrust": {"enabled": True}},
            }
        assert json.loads(text) == wanted


def test_subcommands_do_not_get_the_arguments(sandbox: Sandbox, running: str) -> None:
    sandbox.configure(server_settings(running))
    sandbox.install("pi")
    given = [
        read_agent_report(sandbox.run("pi", "--model", "loopback", "--", *words)[1])["argv"]
        for words in (["install", "npm:theme"], ["-p", "install"])
    ]
    assert given == [["install", "npm:theme"], ["--provider", "toolwire", "--model", "loopback", "-p", "install"]]


def test_mirrored_folders_contain_the_users_files(sandbox: Sandbox, running: str) -> None:
    sandbox.configure(server_settings(running))
    sandbox.install("opencode")
    for name in ("git", "opencode"):
        (sandbox.home / ".config" / name).mkdir()
        (sandbox.home / ".config" / name / "config").write_text("mine")
    files = "${XDG_CONFIG_HOME}/git/config:${XDG_CONFIG_HOME}/opencode/config"
    _, out, _ = sandbox.run("opencode", "--model", "loopback", FAKE_AGENT_FILES=files)
    assert list(read_agent_report(out)["files"].values()) == ["mine", None]
    assert (sandbox.home / ".config" / "git" / "config").read_text() == "mine"


def test_local_hosts_bypass_the_proxy(sandbox: Sandbox, running: str) -> None:
    sandbox.configure(server_settings(running))
    sandbox.install("claude")
    _, out, _ = sandbox.run(
        "claude", "--model", "loopback", http_proxy="http://p.example.com", NO_PROXY="a.example.com"
    )
    assert read_agent_report(out)["environ"]["no_proxy"] == "a.example.com,127.0.0.1,localhost,::1"


@pytest.mark.parametrize("name", ['a"b\\c', "tab\tand {model}", "ümlaut/ß"])
def test_special_characters_in_model_names(name: str, sandbox: Sandbox) -> None:
    _, out, _ = sandbox.run("codex", "--print", "--model", "loopback", "--as", name)
    command = shlex.split(out.strip().splitlines()[-1])
    setting = next(word for word in command if word.startswith("model="))
    assert tomllib.loads(setting)["model"] == name
    _, out, _ = sandbox.run("opencode", "--print", "--model", "loopback", "--as", name)
    line = next(line for line in out.splitlines() if "OPENCODE_CONFIG_CONTENT=" in line)
    settings = json.loads(shlex.split(line)[1].partition("=")[2])
    assert settings["model"] == f"toolwire/{name}"
    assert list(settings["provider"]["toolwire"]["models"]) == [name]


# --- exit codes and signals ---


@pytest.mark.parametrize(("does", "code"), [("0", 0), ("7", 7), ("die", 137)])
def test_exit_code_of_the_agent(does: str, code: int, sandbox: Sandbox, running: str) -> None:
    sandbox.configure(server_settings(running))
    sandbox.install("claude")
    assert sandbox.run("claude", "--model", "loopback", FAKE_AGENT_ACTION=does)[0] == code


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1])
def test_signals_are_forwarded(number: int, sandbox: Sandbox) -> None:
    sandbox.install("claude")
    with sandbox.start("claude", FAKE_AGENT_ACTION="wait") as process:
        origin = read_agent_report(process.stdout.readline())["environ"]["ANTHROPIC_BASE_URL"]  # type: ignore[union-attr]
        assert process.stdout.readline() == "ready\n"  # type: ignore[union-attr]
        process.send_signal(number)
        _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 40 + number
    assert "through a private gateway: none is running at http://127.0.0.1:1" in err
    assert f"toolwire: watch it at {origin}/\n" in err
    assert _is_refused(origin)
    assert not list(sandbox.root.glob("toolwire-run-*"))


def test_ctrl_c_reaches_the_agent_once(sandbox: Sandbox, running: str) -> None:
    sandbox.configure(server_settings(running))
    sandbox.install("claude")
    with ExitStack() as stack:
        ours, theirs = pty.openpty()
        stack.callback(os.close, ours)
        stack.callback(os.close, theirs)
        command = start_program(
            [sys.executable, "-c", TERMINAL, *TOOLWIRE, "run", "claude", "--model", "loopback"],
            cwd=sandbox.project,
            env={**sandbox.environ, "FAKE_AGENT_ACTION": "count"},
            stdin=theirs,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        process = stack.enter_context(command)
        lines = process.stdout
        assert lines is not None
        read_agent_report(lines.readline())
        assert lines.readline() == "ready\n"
        os.write(ours, b"\x03")
        assert lines.readline() == "typed\n"
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=PATIENCE)
        assert process.returncode == 1


def test_private_gateway_ends_with_the_run(sandbox: Sandbox) -> None:
    sandbox.install("claude")
    with sandbox.start("claude", FAKE_AGENT_ACTION="wait") as process:
        given = read_agent_report(process.stdout.readline())  # type: ignore[union-attr]
        parts = urlsplit(given["environ"]["ANTHROPIC_BASE_URL"])
        with socket.create_connection((parts.hostname or "", parts.port or 0), PATIENCE) as held:
            process.kill()
            assert held.recv(1) == b"", "the gateway closes its connections"
        os.kill(given["pid"], signal.SIGKILL)
        process.communicate(timeout=PATIENCE)


def _is_refused(origin: str) -> bool:
    parts = urlsplit(origin)
    try:
        socket.create_connection((parts.hostname or "", parts.port or 0), PATIENCE).close()
    except ConnectionRefusedError:
        return True
    return False


# --- finding the program ---


def test_agent_not_installed(sandbox: Sandbox) -> None:
    code, out, err = sandbox.run("codex")
    assert (code, out) == (127, "")
    assert err == f"error: Codex is not installed\nhint: {load_agents()['codex'].install_command} (Node 22 or newer)\n"


def test_agent_in_node_modules_uses_the_node_beside_it(sandbox: Sandbox, running: str) -> None:
    sandbox.configure(server_settings(running))
    beside = sandbox.root / "node_modules" / ".bin"
    program = sandbox.install("claude", beside)
    sandbox.install("node", beside)
    remember_trust(program, hash_program(program), sandbox.environ)
    code, out, _ = sandbox.run("claude", "--model", "loopback")
    assert code == 0
    assert read_agent_report(out)["environ"]["PATH"] == f"{beside}:{sandbox.environ['PATH']}"


def test_agent_on_path_comes_first(sandbox: Sandbox, running: str) -> None:
    sandbox.configure(server_settings(running))
    sandbox.install("claude", sandbox.project / "node_modules" / ".bin").write_text("#!/bin/sh\nexit 9\n")
    sandbox.install("claude")
    code, out, _ = sandbox.run("claude", "--model", "loopback")
    assert code == 0
    assert read_agent_report(out)["environ"]["PATH"] == sandbox.environ["PATH"]


def test_list_shows_programs(sandbox: Sandbox) -> None:
    program = sandbox.install("qwen")
    code, out, _ = sandbox.run()
    assert code == 0
    rows = {row.split()[0]: row for row in out.splitlines()}
    assert list(rows) == list(load_agents())
    assert rows["qwen"].endswith(str(program))
    assert rows["codex"].endswith(f"not installed: {load_agents()['codex'].install_command}")
    assert sandbox.run("--list", "codex")[1] == out


# --- models ---


@pytest.mark.parametrize(
    ("environ", "model"),
    [
        ({}, "loopback"),
        ({"OPENAI_API_KEY": "k"}, "gpt-5.5"),
        ({"ANTHROPIC_API_KEY": "k"}, "claude-opus-5-5"),
        ({"ANTHROPIC_API_KEY": "k", "OPENAI_API_KEY": "k"}, "gpt-5.5"),
    ],
)
def test_default_model(environ: dict[str, str], model: str, sandbox: Sandbox) -> None:
    code, out, _ = sandbox.run("codex", "--print", **environ)
    assert code == 0
    assert f"""'model="{model}"'""" in out


def test_configured_model_comes_before_other_agents_defaults(sandbox: Sandbox) -> None:
    sandbox.configure('[models]\n"x-*" = "anthropic"\nmine = "anthropic/claude-opus-5-5"\n')
    _, out, _ = sandbox.run("codex", "--print", ANTHROPIC_API_KEY="k")
    assert """'model="mine"'""" in out


def test_model_cannot_be_guessed(sandbox: Sandbox) -> None:
    code, _, err = sandbox.run("codex", "--print", GROQ_API_KEY="k")
    assert code == 2
    assert (
        err == "error: no model is chosen\nhint: name one with --model NAME or --model PROVIDER/NAME; providers: groq\n"
    )


def test_helper_models_are_routed_to_the_model_unless_configured(sandbox: Sandbox) -> None:
    _, out, _ = sandbox.run("gemini", "--print", "--model", "loopback")
    assert "toolwire serve --route 'gemini-*=loopback'\n" in out
    _, out, _ = sandbox.run("gemini", "--print", "--model", "loopback", GEMINI_API_KEY="k")
    assert "toolwire serve\n" in out


def test_as_option(sandbox: Sandbox) -> None:
    sandbox.install("codex")
    code, out, err = sandbox.run("codex", "--model", "loopback", "--as", "gpt-5.5")
    assert code == 0
    assert "toolwire: Codex uses loopback (as gpt-5.5) through a private gateway: --as needs one\n" in err
    assert 'model="gpt-5.5"' in read_agent_report(out)["argv"]


@pytest.mark.parametrize(
    ("agent", "words", "is_said"),
    [
        ("codex", ["--model", "mine"], True),
        ("codex", ["--model", "mine", "--as", "gpt-5.5"], False),
        ("codex", ["--model", "loopback"], False),
        ("claude", ["--model", "mine"], False),
    ],
)
def test_an_agent_that_knows_its_models_by_name(sandbox: Sandbox, agent: str, words: list[str], is_said: bool) -> None:
    """Under another name the instructions of Codex demand a tool that it does not declare."""
    sandbox.install(agent)
    sandbox.configure('[models]\nmine = "loopback"\n')
    code, _, err = sandbox.run(agent, *words)
    assert code == 0
    assert ("toolwire: Codex does not know mine: its instructions demand apply_patch" in err) == is_said


def test_a_model_without_its_key_names_the_variable(sandbox: Sandbox) -> None:
    sandbox.install("codex")
    code, _, err = sandbox.run("codex", "--model", "gpt-5.5")
    assert code == 1
    assert err.count("no provider serves the model `gpt-5.5`") == 1
    assert "hint: gpt-* models are OpenAI's: set OPENAI_API_KEY" in err


# --- the gateway ---


def test_running_gateway_without_helper_models_is_not_used(sandbox: Sandbox, tmp_path: Path) -> None:
    file = tmp_path / "small.toml"
    file.write_text('[server]\nlog_format = "none"\n[store]\nurl = "none"\n')
    sandbox.install("gemini")
    with serve_config(file) as url:
        sandbox.configure(server_settings(url))
        code, out, err = sandbox.run("gemini", "--log", str(tmp_path / "log"))
    assert code == 0
    why = f"the one at {url} does not serve gemini-3-flash-preview: "
    assert f"Gemini CLI uses loopback through a private gateway: {why}" in err
    assert read_agent_report(out)["environ"]["GOOGLE_GEMINI_BASE_URL"] != url
    lines = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines() if line.startswith("{")]
    assert [line["path"] for line in lines if "path" in line] == [
        "/v1beta/models/loopback",
        "/v1beta/models/loopback:generateContent",
        "/v1/models/loopback",  # for its limits
    ]


def test_private_gateway_ignores_base_url_of_the_gateway(sandbox: Sandbox) -> None:
    sandbox.configure('[server]\nport = 9\n[providers.openai]\napi_key = "k"\n')
    sandbox.install("claude")
    code, _, err = sandbox.run("claude", "--model", "loopback", OPENAI_BASE_URL="http://127.0.0.1:9/v1")
    assert code == 0, err


# --- client keys ---

KEY_LINES = f'[[server.keys]]\nname = "me"\nsha256 = "{hashlib.sha256(SECRET.encode()).hexdigest()}"\n'
KEY_HINT = "hint: set TOOLWIRE_CLIENT_KEY to a key of this gateway; `toolwire keys new NAME --write` makes one\n"


@pytest.fixture(scope="module")
def running_with_keys(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    file = tmp_path_factory.mktemp("keys") / "toolwire.toml"
    file.write_text(f'[store]\nurl = "none"\n[server]\nlog_format = "none"\n{KEY_LINES}')
    with serve_config(file) as url:
        yield url


@pytest.mark.parametrize(
    ("words", "environ", "problem"),
    [
        ([], {}, "needs a client's key"),
        ([], {"TOOLWIRE_CLIENT_KEY": "toolwire"}, "needs a client's key"),
        ([], {"TOOLWIRE_CLIENT_KEY": "tw-other"}, "does not know the key in TOOLWIRE_CLIENT_KEY"),
        ([], {"TOOLWIRE_KEY": "tw-other"}, "does not know the key in TOOLWIRE_KEY"),
        (["--key", "tw-other"], {"TOOLWIRE_CLIENT_KEY": SECRET}, "does not know the key in --key"),
    ],
)
def test_running_gateway_with_keys_needs_one(
    words: list[str], environ: dict[str, str], problem: str, sandbox: Sandbox, running_with_keys: str
) -> None:
    sandbox.configure(server_settings(running_with_keys) + KEY_LINES)
    sandbox.install("claude")
    code, out, err = sandbox.run("claude", "--model", "loopback", *words, **environ)
    assert (code, out) == (1, "")
    assert err.endswith(f"error: the gateway at {running_with_keys} {problem}\n{KEY_HINT}")
    assert "tw-other" not in err


OLD_NAME = "toolwire: TOOLWIRE_KEY is the old name of TOOLWIRE_CLIENT_KEY: rename it\n"


@pytest.mark.parametrize(
    ("words", "environ", "warning"),
    [
        ([], {"TOOLWIRE_CLIENT_KEY": SECRET}, ""),
        ([], {"TOOLWIRE_CLIENT_KEY": SECRET, "TOOLWIRE_KEY": "tw-other"}, ""),
        ([], {"TOOLWIRE_KEY": SECRET}, OLD_NAME),
        (["--key", SECRET], {"TOOLWIRE_CLIENT_KEY": "tw-other"}, ""),
    ],
)
def test_running_gateway_gets_the_key(
    words: list[str], environ: dict[str, str], warning: str, sandbox: Sandbox, running_with_keys: str
) -> None:
    sandbox.configure(server_settings(running_with_keys) + KEY_LINES)
    sandbox.install("claude")
    code, out, err = sandbox.run("claude", "--model", "loopback", *words, **environ)
    assert (code, err) == (
        0,
        f"{settings_line('claude')}\n{warning}"
        f"toolwire: Claude Code uses loopback through the gateway at {running_with_keys}\n",
    )
    assert read_agent_report(out)["environ"]["ANTHROPIC_AUTH_TOKEN"] == SECRET


class Stranger:
    """A program that listens on the gateway's port, says yes to everything, and notes what it gets."""

    def __init__(self) -> None:
        self.got: list[str] = []
        stranger = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                stranger.got.append(f"{self.path} {self.headers}")
                challenge = self.headers.get("x-toolwire-challenge", "")
                body = b"ok\n" if self.path == "/livez" else b'{"id": "loopback"}'
                self.send_response(200)
                self.send_header("content-length", str(len(body)))
                self.send_header("x-toolwire-proof", challenge.rpartition(" ")[2] or "\xe9")
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *words: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


@pytest.fixture
def stranger() -> Iterator[Stranger]:
    listening = Stranger()
    yield listening
    listening.server.shutdown()
    listening.server.server_close()


@pytest.mark.parametrize("has_keys", [True, False])
def test_what_listens_on_the_port_does_not_get_the_key(has_keys: bool, sandbox: Sandbox, stranger: Stranger) -> None:
    sandbox.install("claude")
    sandbox.configure(f"[server]\nport = {stranger.server.server_port}\n{KEY_LINES if has_keys else ''}")
    code, out, err = sandbox.run("claude", "--model", "loopback", "--no-check", TOOLWIRE_CLIENT_KEY=SECRET)
    assert "/livez" in stranger.got[0]
    assert SECRET not in "".join(stranger.got)
    assert hashlib.sha256(SECRET.encode()).hexdigest() not in "".join(stranger.got)
    if has_keys:
        assert (code, out) == (1, "")
        assert " does not know the key in TOOLWIRE_CLIENT_KEY" in err
    else:
        assert read_agent_report(out)["environ"]["ANTHROPIC_AUTH_TOKEN"] == "toolwire"


@pytest.mark.parametrize("word", ["", "--config"])
def test_private_gateway_with_keys_gets_one_of_its_own(word: str, sandbox: Sandbox, tmp_path: Path) -> None:
    text = f'[server]\nport = 1\n{KEY_LINES}models = ["nothing"]\n'
    sandbox.configure(text)
    file = sandbox.home / ".config" / "toolwire" / "toolwire.toml"
    sandbox.install("claude")
    words = [word, str(file)] if word else []
    code, out, err = sandbox.run("claude", "--model", "loopback", "--log", str(tmp_path / "log"), *words)
    assert code == 0, err
    key = read_agent_report(out)["environ"]["ANTHROPIC_AUTH_TOKEN"]
    assert re.fullmatch(r"tw-\w{43}", key)
    assert file.read_text() == text
    log = (tmp_path / "log").read_text()
    assert key not in err + log
    lines = [json.loads(line) for line in log.splitlines() if line.startswith("{")]
    assert {line["key_name"] for line in lines if line.get("path")} == {"toolwire run"}


def test_private_gateway_uses_the_rights_of_a_given_key(sandbox: Sandbox, tmp_path: Path) -> None:
    routes = '[models]\nfirst = "loopback/loopback"\nsecond = "loopback/loopback"\n'
    sandbox.configure(f'[server]\nport = 1\n{KEY_LINES}models = ["second", "claude-*"]\n{routes}')
    sandbox.install("claude")
    log = tmp_path / "log"
    code, out, err = sandbox.run("claude", "--log", str(log), TOOLWIRE_CLIENT_KEY=SECRET)
    assert code == 0, err
    environ = read_agent_report(out)["environ"]
    assert (environ["ANTHROPIC_AUTH_TOKEN"], environ["ANTHROPIC_MODEL"]) == (SECRET, "second")
    code, out, err = sandbox.run("claude", "--model", "first", TOOLWIRE_CLIENT_KEY=SECRET)
    assert (code, out) == (1, "")
    assert "the gateway does not serve first" in err


@pytest.mark.parametrize(
    ("key", "code", "problem"),
    [
        ("tw-other", 1, "does not have the key in TOOLWIRE_CLIENT_KEY\nhint: "),
        ("tw-\n-other", 2, "the key in TOOLWIRE_CLIENT_KEY is not valid\nhint: "),
        ("tw-schlüssel", 2, "the key in TOOLWIRE_CLIENT_KEY is not valid\nhint: "),
    ],
)
def test_private_gateway_does_not_know_the_key(key: str, code: int, problem: str, sandbox: Sandbox) -> None:
    sandbox.configure(f"[server]\nport = 1\n{KEY_LINES}")
    sandbox.install("claude")
    found, out, err = sandbox.run("claude", "--model", "loopback", TOOLWIRE_CLIENT_KEY=key)
    assert (found, out) == (code, "")
    assert problem in err
    assert key not in err


def test_key_of_the_store_is_not_a_client_key(sandbox: Sandbox) -> None:
    """An older page named TOOLWIRE_KEY as the variable of the store."""
    pytest.importorskip("cryptography")
    sandbox.configure('[server]\nport = 1\n[store]\nkey_env = "TOOLWIRE_KEY"\n')
    sandbox.install("claude")
    code, out, err = sandbox.run("claude", "--model", "loopback", TOOLWIRE_KEY=SECRET)
    assert code == 0, err
    assert read_agent_report(out)["environ"]["ANTHROPIC_AUTH_TOKEN"] == "toolwire"


def test_print_with_keys_in_the_file(sandbox: Sandbox) -> None:
    sandbox.configure(f"[server]\nport = 1\n{KEY_LINES}")
    for environ in ({}, {"TOOLWIRE_CLIENT_KEY": SECRET}):
        code, out, _ = sandbox.run("claude", "--print", "--model", "loopback", **environ)
        assert code == 0
        assert 'export ANTHROPIC_AUTH_TOKEN="$TOOLWIRE_CLIENT_KEY"\n' in out


@pytest.mark.parametrize("name", ["codex", "claude"])
@pytest.mark.parametrize(
    ("model", "problem"),
    [
        ("nowhere/x", "error: --model: unknown provider `nowhere`\n"),
        ("lopback", "error: --model: no provider serves the model `lopback`\n"),
        ("openai/gpt-5.5", "openai/gpt-5.5 does not answer: the provider `openai` has no key: set OPENAI_API_KEY"),
        ("dark/x", "error: dark/x does not answer: "),
    ],
)
def test_failing_route_stops_the_run(name: str, model: str, problem: str, sandbox: Sandbox) -> None:
    dark = '[providers.dark]\nprotocols = ["openai-chat"]\nbase_url = "http://127.0.0.1:1"\n'
    sandbox.configure(f"[server]\nport = 2\nretries = 0\n{dark}")
    sandbox.install(name)
    code, out, err = sandbox.run(name, "--model", model)
    assert (code, out) == (1, "")
    assert problem in err
    assert "\nhint: " in err
    assert "Traceback" not in err


class RateLimitedProvider(BaseHTTPRequestHandler):
    """A provider that answers every request with 429."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        body = b'{"error": {"message": "too many requests", "type": "requests", "code": "rate_limit_exceeded"}}'
        self.send_response(429)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None: ...


def test_hint_after_a_rate_limit(sandbox: Sandbox) -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), RateLimitedProvider)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    busy = f'[providers.busy]\nprotocols = ["openai-chat"]\nbase_url = "http://127.0.0.1:{server.server_port}"\n'
    sandbox.configure(f"[server]\nport = 2\nretries = 0\n{busy}")
    sandbox.install("claude")
    try:
        code, out, err = sandbox.run("claude", "--model", "busy/x")
    finally:
        server.shutdown()
        server.server_close()
    assert (code, out) == (1, "")
    assert "busy/x does not answer: " in err
    assert f"\nhint: {FAILURE_HINTS['rate']}\n" in err
    assert FAILURE_HINTS.keys() <= STATUS_BY_FAILURE_KIND.keys()


def test_no_check_option(sandbox: Sandbox) -> None:
    dark = '[providers.dark]\nprotocols = ["openai-chat"]\nbase_url = "http://127.0.0.1:1"\n'
    sandbox.configure(f"[server]\nport = 2\n{dark}")
    sandbox.install("codex")
    assert sandbox.run("codex", "--model", "dark/x", "--no-check")[0] == 0


def test_invalid_configuration(sandbox: Sandbox) -> None:
    sandbox.install("codex")
    sandbox.configure("[server]\nprot = 1\n")
    code, _, err = sandbox.run("codex")
    assert code == 2
    assert "toolwire.toml:2: unknown key `prot`\nhint: did you mean `port`?\n" in err


# --- usage ---


@pytest.mark.parametrize(
    ("words", "problem", "hint"),
    [
        (["codexx"], "unknown agent `codexx`", "did you mean `codex`?"),
        (
            ["codex", "exec", "x"],
            "unexpected arguments: `exec x`",
            "to pass them to Codex: toolwire run codex -- exec x",
        ),
        (
            ["codex", "--protocol", "gemini"],
            "Codex does not support the protocol `gemini`",
            "it supports: openai-responses",
        ),
    ],
)
def test_bad_usage(words: list[str], problem: str, hint: str, sandbox: Sandbox) -> None:
    assert sandbox.run(*words) == (2, "", f"error: {problem}\nhint: {hint}\n")


GOLDEN = """# start the gateway, if none is running
toolwire serve --route fast=loopback --route 'gemini-*=loopback'

# environment
unset CLOUD_SHELL CODE_ASSIST_ENDPOINT GEMINI_CLI_USE_COMPUTE_ADC GOOGLE_API_KEY GOOGLE_GENAI_USE_GCA \
GOOGLE_GENAI_USE_VERTEXAI GOOGLE_VERTEX_BASE_URL
export GEMINI_CLI_HOME=HOME/.local/state/toolwire/agents/gemini
export GEMINI_API_KEY="$TOOLWIRE_CLIENT_KEY"
export GOOGLE_GEMINI_BASE_URL=http://127.0.0.1:1
export GEMINI_MODEL=fast
export GEMINI_TELEMETRY_ENABLED=false

# HOME/.local/state/toolwire/agents/gemini/.gemini/settings.json (other keys are kept)
{
  "security": {
    "auth": {
      "selectedType": "gemini-api-key"
    }
  },
  "telemetry": {
    "enabled": false
  },
  "privacy": {
    "usageStatisticsEnabled": false
  },
  "general": {
    "enableAutoUpdate": false,
    "enableAutoUpdateNotification": false
  },
  "model": {
    "compressionThreshold": 0.5
  }
}

# command
gemini -p 'say hi'
"""


def test_print_option(sandbox: Sandbox) -> None:
    before = sandbox.user_files()
    words = ("gemini", "--print", "--as", "fast", "--model", "loopback", "--", "-p", "say hi")
    code, out, err = sandbox.run(*words, TOOLWIRE_CLIENT_KEY=SECRET)
    assert (code, err) == (0, "")
    assert out.replace(str(sandbox.home), "HOME") == GOLDEN
    assert sandbox.user_files() == before
    assert not (sandbox.home / ".local").exists()
