"""What `toolwire serve` says when it is ready, and that its lines work as they are."""

from __future__ import annotations

import hashlib
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from urllib.request import urlopen

import pytest

from cli.terminal_golden import (
    WIDTHS,
    TerminalProcess,
    compare_screens,
    make_environ,
    run_in_pipe,
    start_on_terminal,
)
from forked_commands import TOOLWIRE, start_program
from waits import PATIENCE, wait_until

END = r"toolwire run [^\n]*\n\n"
MAX_LINES = 22
KEY = "tw-a-key-of-the-tests"
SCENES: dict[str, tuple[str, dict[str, str]]] = {
    "nothing": ("", {}),
    "one-key": ("", {"OPENAI_API_KEY": "sk-x"}),
    "file": (
        f"""\
[[server.keys]]
name = "alice"
sha256 = "{hashlib.sha256(KEY.encode()).hexdigest()}"

[providers.anthropic]

[providers.openai]

[providers.local]
protocols = ["openai-chat"]
base_url = "http://127.0.0.1:9/v1"

[models]
claude = "anthropic/claude-sonnet-5"
fast = "loopback/loopback"

[mcp.search]
url = "http://127.0.0.1:9/mcp"
headers = {{ authorization = "Bearer ${{SEARCH_TOKEN}}" }}
models = ["*"]
""",
        {"OPENAI_API_KEY": "sk-x"},
    ),
    "many": (
        "\n".join(f'[providers.p{n}]\nprotocols = ["openai-chat"]\nbase_url = "http://h{n}/v1"\n' for n in range(9)),
        {},
    ),
}


def write_scene(name: str, folder: Path) -> dict[str, str]:
    text, environ = SCENES[name]
    if text:
        (folder / "toolwire.toml").write_text(text)
    return {**environ, "PATH": "/usr/bin:/bin"}


def read_banner(folder: Path, environ: dict[str, str], columns: int) -> str:
    with start_on_terminal(["serve", "--port", "0"], folder, columns, environ) as process:
        text = process.read_until(END)
        process.process.send_signal(signal.SIGTERM)
        assert process.read_all().code == 0
    start = re.search(r"(\x1b\[1m)?Toolwire ", text)  # warnings about the configuration come before it
    assert start is not None
    return text[start.start() :]


@pytest.mark.parametrize("scene", SCENES)
def test_banner(scene: str, folder: Path) -> None:
    environ = write_scene(scene, folder)
    for columns in WIDTHS:
        plain = read_banner(folder, {**environ, "NO_COLOR": "1"}, columns)
        assert len(plain.splitlines()) <= MAX_LINES
        assert "sk-x" not in plain
        compare_screens(f"serve-{scene}/{columns}", plain, folder, None)
        coloured = read_banner(folder, environ, columns)
        compare_screens(f"serve-{scene}/{columns}-colour", coloured, folder, None)


def test_commands_are_shown_as_the_program_was_started(folder: Path) -> None:
    """After `make serve` there is no `toolwire` on PATH, or another one. What is shown works in any folder."""
    (folder / "toolwire.toml").write_text(f'[[server.keys]]\nname = "a"\nsha256 = "{"ab" * 32}"\n')
    elsewhere, programs = folder / "else where", folder / "bin"
    for made in (elsewhere, programs):
        made.mkdir()
    (elsewhere / "json.py").write_text("raise SystemExit('a module of the folder was imported')\n")
    link = folder / "toolwire"
    link.symlink_to(Path(sys.executable).with_name("toolwire"))
    (programs / "toolwire").write_text("#!/bin/sh\nexit 9\n")
    (programs / "toolwire").chmod(0o755)
    for command, path in (
        ([sys.executable, "-m", "toolwire.cli"], "/usr/bin:/bin"),
        (["./toolwire"], "/usr/bin:/bin"),
        (["./toolwire"], f"{programs}:/usr/bin:/bin"),
        (["./toolwire"], f"{folder}:/usr/bin:/bin"),
    ):
        process = TerminalProcess([*command, "serve", "--port", "0"], folder, 300, {"PATH": path, "NO_COLOR": "1"})
        try:
            text = process.read_until(r"YOUR-KEY [^\n]* run \w+[^\n]*\n\n")
        finally:
            process.close()
        (new_key,) = re.findall(r"to make one: (.*)", text)
        (run,) = re.findall(r"TOOLWIRE_CLIENT_KEY=YOUR-KEY .* run .*", text)
        assert new_key.startswith("toolwire keys") == path.startswith(str(folder) + ":")
        script = f"{new_key.replace('--write', '')}\n{run} --print"
        environ = make_environ(folder, {"PATH": path})
        done = subprocess.run(["sh", "-euc", script], cwd=elsewhere, env=environ, capture_output=True, check=False)
        assert done.returncode == 0, done.stderr


SDK = """
import anthropic, openai
from google import genai

for make, ask in (
    (openai.OpenAI, lambda sdk: sdk.models.list().data),
    (anthropic.Anthropic, lambda sdk: list(sdk.models.list())),
    (genai.Client, lambda sdk: list(sdk.models.list())),
):
    assert ask(make())
"""


@pytest.mark.parametrize("scene", ["nothing", "file"])
def test_the_lines_work_as_they_are(scene: str, folder: Path) -> None:
    environ = {**write_scene(scene, folder), "NO_COLOR": "1"}
    with start_on_terminal(["serve", "--port", "0"], folder, 80, environ) as process:
        text = process.read_until(END).replace("YOUR-KEY", KEY)
        exports = re.findall(r"export .*", text)
        curl = re.search(r"curl .*", text)
        assert curl is not None
        assert len(exports) == 3
        script = "\n".join((*exports, f"{curl[0]} -s --fail-with-body", f'"{sys.executable}" -W ignore -c "$SDK"'))
        done = subprocess.run(
            ["bash", "-euc", script],
            env=make_environ(folder, {"SDK": SDK, "PATH": environ["PATH"]}),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert "You said: Hello" in json.loads(done.stdout)["choices"][0]["message"]["content"]


def test_the_agent_line_works_as_it_is(folder: Path) -> None:
    environ = {**write_scene("nothing", folder), "NO_COLOR": "1"}
    line = read_banner(folder, environ, 80).strip().splitlines()[-1]
    done = run_in_pipe([*line.split()[1:], "--print"], folder, environ)
    assert "ANTHROPIC_BASE_URL" in done.out, done


def test_without_a_terminal_there_is_one_line_before_the_variables(folder: Path) -> None:
    command = [*TOOLWIRE, "serve", "--port", "0"]
    with (
        (folder / "log").open("wb") as log,
        start_program(command, cwd=folder, env=make_environ(folder), stdout=log, stderr=log) as process,
    ):
        wait_until(lambda: (folder / "log").read_bytes().count(b"export") >= 3 or process.poll() is not None)
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0
    first, *rest = (folder / "log").read_text().splitlines()
    event = json.loads(first)
    assert (event["event"], event["config"], event["providers"]) == ("serving", "", ["loopback"])
    assert re.fullmatch(r"Toolwire \S+ on http://127\.0\.0\.1:\d+", event["message"])
    assert [line.split("=")[0] for line in rest] == [
        "export OPENAI_BASE_URL",
        "export ANTHROPIC_BASE_URL",
        "export GOOGLE_GEMINI_BASE_URL",
    ]


@pytest.mark.parametrize("workers", ["1", "2"])
def test_it_ends_with_the_window_of_its_terminal(workers: str, folder: Path) -> None:
    """It would keep its port, and nobody would see it."""
    with start_on_terminal(["serve", "--port", "0", "--workers", workers], folder) as process:
        process.read_until(END)
        assert process.close_window() == 0


def test_it_serves_also_when_nobody_reads_the_variables(folder: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    pipes = {"stdout": writer, "stderr": subprocess.PIPE}
    with start_program([*TOOLWIRE, "serve", "--port", "0"], cwd=folder, env=make_environ(folder), **pipes) as process:
        os.close(writer)
        assert process.stderr is not None
        first = json.loads(process.stderr.readline())
        with urlopen(f"{first['message'].split()[-1]}/v1/models", timeout=PATIENCE) as answer:
            assert answer.status == 200
        process.send_signal(signal.SIGTERM)
        _, rest = process.communicate(timeout=PATIENCE)
        assert (process.returncode, "rror" in rest) == (0, False), rest
