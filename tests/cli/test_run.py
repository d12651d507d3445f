"""`toolwire run`, as a process of its own, with agents that stand in for the real ones."""

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
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from gateway.conftest import served
from toolwire.agents import load_agents
from toolwire.protocols import CODECS

STANDIN = Path(__file__).with_name("fake_agent.py")
PATIENCE = 60
TERMINAL = "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv(sys.argv[1], sys.argv[1:])"
"""Makes standard input the terminal of a new session, and goes on as another program."""
SECRET = "tw-geheim-0123456789-0123456789"
USUAL = {"codex": "gpt-5.5", "claude": "claude-opus-5-5", "gemini": "gemini-2.5-pro", "qwen": "qwen3-coder-plus"}


class Place:
    """A user's home, a project, and a folder of agents that are installed."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.home, self.project, self.bin = root / "home", root / "project", root / "bin"
        for folder in (self.home, self.project, self.bin):
            folder.mkdir()
        self.environ = {"HOME": str(self.home), "PATH": f"{self.bin}:/usr/bin:/bin", "TMPDIR": str(root)}
        self.configure("[server]\nport = 1\n")  # where nobody listens

    def configure(self, text: str) -> None:
        file = self.home / ".config" / "toolwire" / "toolwire.toml"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def install(self, name: str, folder: Path | None = None) -> Path:
        program = (folder or self.bin) / name
        program.parent.mkdir(parents=True, exist_ok=True)
        program.write_text(f'#!/bin/sh\nexec {sys.executable} {STANDIN} "$@"\n')
        program.chmod(0o755)
        return program

    def started(self, *words: str, **environ: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "toolwire.cli", "run", *words],
            cwd=self.project,
            env={**self.environ, **environ},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *words: str, **environ: str) -> tuple[int, str, str]:
        process = self.started(*words, **environ)
        out, err = process.communicate(timeout=PATIENCE)
        assert SECRET not in err
        assert not list(self.root.glob("toolwire-run-*")), "the folder of the run is left"
        return process.returncode, out, err

    def kept(self) -> list[str]:
        """What stands in the user's home, but for Toolwire's own."""
        own = self.home / ".local" / "state" / "toolwire"
        paths = (path for path in self.home.rglob("*") if path != own and own not in path.parents)
        return sorted(
            f"{path}: {path.read_text() if path.is_file() else ''}" for path in paths if path not in own.parents
        )


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A gateway that knows what the agents ask for."""
    names = [*USUAL.values(), *(pattern for agent in load_agents().values() for pattern in agent.helpers)]
    file = tmp_path_factory.mktemp("running") / "toolwire.toml"
    rules = "".join(f'{json.dumps(name)} = "loopback/loopback"\n' for name in names)
    file.write_text(f'[server]\nlog = "none"\n[store]\nurl = "none"\n[models]\n{rules}')
    with served(file) as url:
        yield url


def at(url: str) -> str:
    return f"[server]\nport = {urlsplit(url).port}\n"


def told(out: str) -> dict[str, Any]:
    """What the agent was given."""
    first: dict[str, Any] = json.loads(out.splitlines()[0])
    return first


# --- every agent ---


def test_there_are_five() -> None:
    assert list(load_agents()) == ["claude", "codex", "gemini", "opencode", "qwen"]


@pytest.mark.parametrize("name", load_agents())
def test_an_agent_is_led_to_the_gateway_and_nowhere_else(name: str, place: Place, running: str) -> None:
    agent = load_agents()[name]
    place.configure(at(running))
    place.install(name)
    (place.home / ".config" / "git").mkdir()
    theirs = dict.fromkeys({*agent.removed, *agent.environment} - {"TOOLWIRE_KEY"}, "https://elsewhere.example.com")
    before = place.kept()
    code, out, err = place.run(name, "--model", "loopback", "--", "a b", "--print", "--", "-c", **theirs)
    given = told(out)
    assert code == 0, err
    assert err == f"toolwire: {agent.title} on loopback, through the gateway at {running}\n"
    assert given["argv"][-4:] == ["a b", "--print", "--", "-c"]
    assert given["cwd"] == str(place.project)
    assert "elsewhere.example.com" not in out
    assert not [variable for variable in agent.removed if variable in given["environ"]]
    assert set(agent.environment) <= set(given["environ"])
    assert f"{running}{next(iter(agent.speaks.values())).get('path', '')}" in out
    assert not re.search(r"\{(origin|base|key|model|home|run|package)", out)
    assert given["environ"]["HOME"] == str(place.home)
    assert place.kept() == before


@pytest.mark.parametrize("name", load_agents())
def test_what_an_agent_is_told_is_right(name: str) -> None:
    agent = load_agents()[name]
    assert agent.speaks.keys() <= CODECS.keys()
    assert not agent.environment.keys() & set(agent.removed)
    for pattern, sample in {**agent.helpers, **agent.seldom}.items():
        assert sample.startswith(pattern.rstrip("*"))
    assert agent.install_command == f"npm install -g {agent.npm}@{agent.version}"


@pytest.mark.parametrize("name", [name for name, agent in load_agents().items() if agent.files])
def test_files_are_there_and_keep_what_else_stands_in_them(name: str, place: Place, running: str) -> None:
    place.configure(at(running))
    place.install(name)
    home = place.home / ".local" / "state" / "toolwire" / "agents" / name
    variables = {
        text: f"${{{variable}}}" for variable, text in load_agents()[name].environment.items() if isinstance(text, str)
    }
    paths = {path: variables.get(path, path.replace("{home}", str(home))) for path in load_agents()[name].files}
    for path in paths.values():
        if path.startswith("/"):
            Path(path).parent.mkdir(parents=True)
            Path(path).write_text('{"theme": "dark", "security": {"folderTrust": {"enabled": true}}}')
    _, out, _ = place.run(name, "--model", "loopback", STANDIN_FILES=":".join(paths.values()))
    for path, seen in paths.items():
        text = told(out)["files"][seen]
        wanted = json.loads(json.dumps(load_agents()[name].files[path]).replace("{model}", "loopback"))
        if seen.startswith("/"):
            wanted = {
                **wanted,
                "theme": "dark",
                "security": {**wanted.get("security", {}), "folderTrust": {"enabled": True}},
            }
        assert json.loads(text) == wanted


def test_programs_that_an_agent_runs_find_the_users_files(place: Place, running: str) -> None:
    place.configure(at(running))
    place.install("opencode")
    for name in ("git", "opencode"):
        (place.home / ".config" / name).mkdir()
        (place.home / ".config" / name / "config").write_text("mine")
    files = "${XDG_CONFIG_HOME}/git/config:${XDG_CONFIG_HOME}/opencode/config"
    _, out, _ = place.run("opencode", "--model", "loopback", STANDIN_FILES=files)
    assert list(told(out)["files"].values()) == ["mine", None]
    assert (place.home / ".config" / "git" / "config").read_text() == "mine"


def test_a_proxy_is_not_asked_for_what_is_here(place: Place, running: str) -> None:
    place.configure(at(running))
    place.install("claude")
    _, out, _ = place.run("claude", "--model", "loopback", http_proxy="http://p.example.com", NO_PROXY="a.example.com")
    assert told(out)["environ"]["no_proxy"] == "a.example.com,127.0.0.1,localhost,::1"


@pytest.mark.parametrize("name", ['a"b\\c', "tab\tand {model}", "ümlaut/ß"])
def test_odd_names_reach_the_agent_whole(name: str, place: Place) -> None:
    _, out, _ = place.run("codex", "--print", "--model", "loopback", "--as", name)
    command = shlex.split(out.strip().splitlines()[-1])
    setting = next(word for word in command if word.startswith("model="))
    assert tomllib.loads(setting)["model"] == name
    _, out, _ = place.run("opencode", "--print", "--model", "loopback", "--as", name)
    line = next(line for line in out.splitlines() if "OPENCODE_CONFIG_CONTENT=" in line)
    settings = json.loads(shlex.split(line)[1].partition("=")[2])
    assert settings["model"] == f"toolwire/{name}"
    assert list(settings["provider"]["toolwire"]["models"]) == [name]


# --- how it ends ---


@pytest.mark.parametrize(("does", "code"), [("0", 0), ("7", 7), ("die", 137)])
def test_the_exit_code_is_the_agents(does: str, code: int, place: Place, running: str) -> None:
    place.configure(at(running))
    place.install("claude")
    assert place.run("claude", "--model", "loopback", STANDIN=does)[0] == code


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1])
def test_signals_are_passed_on_and_the_agent_ends_in_its_own_way(number: int, place: Place) -> None:
    place.install("claude")
    process = place.started("claude", STANDIN="wait")
    origin = told(process.stdout.readline())["environ"]["ANTHROPIC_BASE_URL"]  # type: ignore[union-attr]
    assert process.stdout.readline() == "ready\n"  # type: ignore[union-attr]
    process.send_signal(number)
    _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 40 + number
    assert "through a gateway of its own: none is running at http://127.0.0.1:1" in err
    assert _gone(origin)
    assert not list(place.root.glob("toolwire-run-*"))


def test_what_is_typed_reaches_the_agent_once(place: Place, running: str) -> None:
    place.configure(at(running))
    place.install("claude")
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", TERMINAL, sys.executable, "-m", "toolwire.cli", "run", "claude", "--model", "loopback"],
        cwd=place.project,
        env={**place.environ, "STANDIN": "count"},
        stdin=theirs,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    lines = process.stdout
    assert lines is not None
    told(lines.readline())
    assert lines.readline() == "ready\n"
    os.write(ours, b"\x03")
    assert lines.readline() == "typed\n"
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=PATIENCE)
    os.close(ours)
    os.close(theirs)
    assert process.returncode == 1


def test_a_gateway_does_not_outlive_its_run(place: Place) -> None:
    place.install("claude")
    process = place.started("claude", STANDIN="wait")
    given = told(process.stdout.readline())  # type: ignore[union-attr]
    parts = urlsplit(given["environ"]["ANTHROPIC_BASE_URL"])
    with socket.create_connection((parts.hostname or "", parts.port or 0), PATIENCE) as held:
        process.kill()
        assert held.recv(1) == b"", "the gateway closes its connections"
    os.kill(given["pid"], signal.SIGKILL)
    process.communicate(timeout=PATIENCE)


def _gone(origin: str) -> bool:
    parts = urlsplit(origin)
    try:
        socket.create_connection((parts.hostname or "", parts.port or 0), PATIENCE).close()
    except ConnectionRefusedError:
        return True
    return False


# --- where it is installed ---


def test_an_agent_that_is_not_installed(place: Place) -> None:
    code, out, err = place.run("codex")
    assert (code, out) == (127, "")
    assert err == f"error: Codex is not installed\nhint: {load_agents()['codex'].install_command} (Node 22 or newer)\n"


def test_an_agent_of_the_project_runs_with_the_node_beside_it(place: Place, running: str) -> None:
    place.configure(at(running))
    beside = place.root / "node_modules" / ".bin"
    place.install("claude", beside)
    place.install("node", beside)
    code, out, _ = place.run("claude", "--model", "loopback")
    assert code == 0
    assert told(out)["environ"]["PATH"] == f"{beside}:{place.environ['PATH']}"


def test_an_agent_on_the_path_comes_first(place: Place, running: str) -> None:
    place.configure(at(running))
    place.install("claude", place.project / "node_modules" / ".bin").write_text("#!/bin/sh\nexit 9\n")
    place.install("claude")
    code, out, _ = place.run("claude", "--model", "loopback")
    assert code == 0
    assert told(out)["environ"]["PATH"] == place.environ["PATH"]


def test_the_list_says_where_each_is(place: Place) -> None:
    program = place.install("qwen")
    code, out, _ = place.run()
    assert code == 0
    rows = {row.split()[0]: row for row in out.splitlines()}
    assert list(rows) == list(load_agents())
    assert rows["qwen"].endswith(str(program))
    assert rows["codex"].endswith(f"not installed: {load_agents()['codex'].install_command}")
    assert place.run("--list", "codex")[1] == out


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
def test_without_a_model_the_agents_own_is_meant_or_one_that_there_is(
    environ: dict[str, str], model: str, place: Place
) -> None:
    code, out, _ = place.run("codex", "--print", **environ)
    assert code == 0
    assert f"""'model="{model}"'""" in out


def test_a_configured_model_comes_before_a_guess(place: Place) -> None:
    place.configure('[models]\n"x-*" = "anthropic"\nmine = "anthropic/claude-opus-5-5"\n')
    _, out, _ = place.run("codex", "--print", ANTHROPIC_API_KEY="k")
    assert """'model="mine"'""" in out


def test_nobody_can_guess_every_model(place: Place) -> None:
    code, _, err = place.run("codex", "--print", GROQ_API_KEY="k")
    assert code == 2
    assert err == "error: which model?\nhint: say --model NAME or --model PROVIDER/NAME; providers: groq\n"


def test_helpers_go_to_the_model_unless_they_lead_somewhere(place: Place) -> None:
    _, out, _ = place.run("gemini", "--print", "--model", "loopback")
    assert "toolwire serve --route 'gemini-*=loopback'\n" in out
    _, out, _ = place.run("gemini", "--print", "--model", "loopback", GEMINI_API_KEY="k")
    assert "toolwire serve\n" in out


def test_an_agent_is_told_another_name(place: Place) -> None:
    place.install("codex")
    code, out, err = place.run("codex", "--model", "loopback", "--as", "gpt-5.5")
    assert code == 0
    assert err == "toolwire: Codex on loopback (as gpt-5.5), through a gateway of its own: --as asks for one\n"
    assert 'model="gpt-5.5"' in told(out)["argv"]


# --- the gateway ---


def test_a_gateway_that_does_not_know_the_helpers_will_not_do(place: Place, tmp_path: Path) -> None:
    file = tmp_path / "small.toml"
    file.write_text('[server]\nlog = "none"\n[store]\nurl = "none"\n')
    place.install("gemini")
    with served(file) as url:
        place.configure(at(url))
        code, out, err = place.run("gemini", "--log", str(tmp_path / "log"))
    assert code == 0
    why = f"the one at {url} does not serve gemini-3-flash-preview: "
    assert f"Gemini CLI on loopback, through a gateway of its own: {why}" in err
    assert told(out)["environ"]["GOOGLE_GEMINI_BASE_URL"] != url
    lines = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines() if line.startswith("{")]
    assert [line["path"] for line in lines if "path" in line] == [
        "/v1beta/models/loopback",
        "/v1beta/models/loopback:generateContent",
    ]


def test_an_address_that_is_meant_for_sdks_does_not_lead_in_circles(place: Place) -> None:
    place.configure('[server]\nport = 9\n[providers.openai]\napi_key = "k"\n')
    place.install("claude")
    code, _, err = place.run("claude", "--model", "loopback", OPENAI_BASE_URL="http://127.0.0.1:9/v1")
    assert code == 0, err


def test_a_gateway_with_keys_wants_one(place: Place, tmp_path: Path) -> None:
    digest = hashlib.sha256(SECRET.encode()).hexdigest()
    file = tmp_path / "keys.toml"
    keys = f'[[server.keys]]\nname = "me"\nsha256 = "{digest}"\n'
    file.write_text(f'[store]\nurl = "none"\n[server]\nlog = "none"\n{keys}')
    place.install("claude")
    with served(file) as url:
        place.configure(at(url) + keys)
        code, out, err = place.run("claude", "--model", "loopback")
        assert (code, out) == (1, "")
        assert "hint: set TOOLWIRE_KEY to a key of this gateway\n" in err
        code, out, err = place.run("claude", "--model", "loopback", TOOLWIRE_KEY=SECRET)
    assert code == 0
    assert err == f"toolwire: Claude Code on loopback, through the gateway at {url}\n"
    assert told(out)["environ"]["ANTHROPIC_AUTH_TOKEN"] == SECRET


@pytest.mark.parametrize("name", ["codex", "claude"])
@pytest.mark.parametrize(
    ("model", "problem"),
    [
        ("nowhere/x", "error: --model: no provider is called `nowhere`\n"),
        ("lopback", "error: --model: nothing leads to the model `lopback`\n"),
        ("openai/gpt-5.5", "openai/gpt-5.5 does not answer: the provider `openai` has no key: set OPENAI_API_KEY"),
        ("dark/x", "error: dark/x does not answer: "),
    ],
)
def test_a_route_that_fails_is_told_and_no_agent_is_started(name: str, model: str, problem: str, place: Place) -> None:
    dark = '[providers.dark]\nprotocols = ["openai-chat"]\nbase_url = "http://127.0.0.1:1"\n'
    place.configure(f"[server]\nport = 2\nretries = 0\n{dark}")
    place.install(name)
    code, out, err = place.run(name, "--model", model)
    assert (code, out) == (1, "")
    assert problem in err
    assert "\nhint: " in err
    assert "Traceback" not in err


def test_the_check_can_be_left_out(place: Place) -> None:
    dark = '[providers.dark]\nprotocols = ["openai-chat"]\nbase_url = "http://127.0.0.1:1"\n'
    place.configure(f"[server]\nport = 2\n{dark}")
    place.install("codex")
    assert place.run("codex", "--model", "dark/x", "--no-check")[0] == 0


def test_a_configuration_with_mistakes(place: Place) -> None:
    place.install("codex")
    place.configure("[server]\nprot = 1\n")
    code, _, err = place.run("codex")
    assert code == 2
    assert "toolwire.toml:2: unknown key `prot`\nhint: did you mean `port`?\n" in err


# --- words ---


@pytest.mark.parametrize(
    ("words", "problem", "hint"),
    [
        (["codexx"], "no agent is called `codexx`", "there is: claude, codex, gemini, opencode, qwen"),
        (["codex", "exec", "x"], "`exec x` is not for toolwire", "for Codex: toolwire run codex -- exec x"),
        (["codex", "--protocol", "gemini"], "Codex does not speak `gemini`", "it speaks: openai-responses"),
    ],
)
def test_bad_use(words: list[str], problem: str, hint: str, place: Place) -> None:
    assert place.run(*words) == (2, "", f"error: {problem}\nhint: {hint}\n")


GOLDEN = """# the gateway, where none is running
toolwire serve --route fast=loopback --route 'gemini-*=loopback'

# the environment
unset CLOUD_SHELL CODE_ASSIST_ENDPOINT GEMINI_CLI_USE_COMPUTE_ADC GOOGLE_API_KEY GOOGLE_GENAI_USE_GCA \
GOOGLE_GENAI_USE_VERTEXAI GOOGLE_VERTEX_BASE_URL
export GEMINI_CLI_HOME=HOME/.local/state/toolwire/agents/gemini
export GEMINI_API_KEY="$TOOLWIRE_KEY"
export GOOGLE_GEMINI_BASE_URL=http://127.0.0.1:1
export GEMINI_MODEL=fast
export GEMINI_TELEMETRY_ENABLED=false

# HOME/.local/state/toolwire/agents/gemini/.gemini/settings.json, besides what stands in it
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
  }
}

# the command
gemini -p 'say hi'
"""


def test_print_shows_all_of_it_and_starts_nothing(place: Place) -> None:
    before = place.kept()
    words = ("gemini", "--print", "--as", "fast", "--model", "loopback", "--", "-p", "say hi")
    code, out, err = place.run(*words, TOOLWIRE_KEY=SECRET)
    assert (code, err) == (0, "")
    assert out.replace(str(place.home), "HOME") == GOLDEN
    assert place.kept() == before
    assert not (place.home / ".local").exists()
