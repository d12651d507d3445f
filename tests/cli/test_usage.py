"""How commands are called: what a user who mistypes is told."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cli.terminal_golden import check_golden, make_environ, run_in_pipe, run_on_terminal, start_on_terminal
from forked_commands import TOOLWIRE, run_program
from toolwire.cli import main
from toolwire.cli.commands import COMMANDS

ANY = ["translate", "request", "--to", "gemini"]


@pytest.mark.parametrize(
    ("words", "problem", "hint"),
    [
        (["srve"], "unknown command `srve`", "did you mean `serve`?"),
        (["start"], "unknown command `start`", "did you mean `serve`?"),
        (["claude"], "unknown command `claude`", "did you mean `toolwire run claude`?"),
        (["qqqqq"], "unknown command `qqqqq`", "`toolwire help` lists the commands"),
        (["help", "srve"], "unknown command `srve`", "did you mean `serve`?"),
        (["--vers"], "unknown option `--vers`", "did you mean `--version`?"),
        (["--qqqqq"], "unknown option `--qqqqq`", "see `toolwire help`"),
        (["serve", "--prot", "1"], "unknown option `--prot`", "did you mean `--port`?"),
        (["serve", "--prot=1"], "unknown option `--prot`", "did you mean `--port`?"),
        (["serve", "--qqqqq"], "unknown option `--qqqqq`", "see `toolwire serve --help`"),
        (["serve", "--log", "jsn"], "unknown value of --log-format `jsn`", "did you mean `json`?"),
        (["serve", "--log", "qqqqq"], "unknown value of --log-format `qqqqq`", "choose from: auto, json, text, none"),
        (["serve", "--port", "http"], "--port: `http` is not a whole number", "see `toolwire serve --help`"),
        (["serve", "--port"], "--port needs a value", "see `toolwire serve --help`"),
        (["serve", "now"], "unexpected arguments: `now`", "see `toolwire serve --help`"),
        (["demo", "matrix", "--json=1"], "--json takes no value", "see `toolwire demo matrix --help`"),
        (["demo", "matrix", "read_fil"], "unknown scenario `read_fil`", "did you mean `read_file`?"),
        (["doctor", "confg"], "unknown subcommand `doctor confg`", "did you mean `config`?"),
        (["limit"], "unknown command `limit`", "did you mean `costs limits`?"),
        (["translate", "request"], "missing: --from, --to", "see `toolwire translate --help`"),
        ([*ANY, "--form", "gemini"], "unknown option `--form`", "did you mean `--from`?"),
        (["mcp"], "missing: action", "action is one of: list"),
        (["mcp", "lst"], "unknown action `lst`", "did you mean `list`?"),
        (["run", "cladue"], "unknown agent `cladue`", "did you mean `claude`?"),
        ([*ANY, "--from", "openai"], "--from: unknown protocol `openai`", "did you mean `openai-chat` or `openai-responses`?"),
        ([*ANY, "--from", "chat"], "--from: unknown protocol `chat`", "did you mean `openai-chat`?"),
        ([*ANY, "--from", "Claude"], "--from: unknown protocol `Claude`", "did you mean `anthropic`?"),
        ([*ANY, "--from", "antropic"], "--from: unknown protocol `antropic`", "did you mean `anthropic`?"),
        (["demo", "--to", "Claude"], "--to: unknown protocol `Claude`", "did you mean `anthropic`?"),
        (["check", "--for", "gorq"], "--for: unknown protocol `gorq`", "did you mean `groq`?"),
        (["translate", "rquest", "--from", "gemini", "--to", "gemini"], "unknown kind `rquest`", "did you mean `request`?"),
        (["completion", "sh"], "unknown shell `sh`", "did you mean `zsh`?"),
        (["models", "show"], "which model?", "name it: `toolwire models show NAME`; `toolwire models` lists them all"),
    ],
)  # fmt: skip
def test_bad_usage_is_one_line_and_a_hint(
    words: list[str], problem: str, hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    assert capsys.readouterr() == ("", f"error: {problem}\nhint: {hint}\n")


@pytest.mark.parametrize("words", [["version"], ["--version"], ["-V"]])
def test_version(words: list[str], folder: Path) -> None:
    check_golden("version", words, folder)


@pytest.mark.parametrize("words", [["help"], ["--help"], ["-h"]])
def test_all_commands_are_listed(words: list[str], folder: Path) -> None:
    check_golden("help", words, folder)


def test_the_list_has_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["help"]) == 0
    listed = [line.split()[0] for line in capsys.readouterr().out.splitlines() if line.startswith("  ")]
    assert {name for name in COMMANDS if " " not in name} <= set(listed)


def test_toolwire_alone_says_what_to_do_next(folder: Path) -> None:
    check_golden("alone", [], folder)


@pytest.mark.parametrize("words", [["help", "translate"], ["translate", "--help"], ["translate", "-h"]])
def test_one_command_is_explained(words: list[str], folder: Path) -> None:
    check_golden("help-translate", words, folder)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_can_be_explained(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["help", *command.split()]) == 0
    assert f"usage: toolwire {command}" in capsys.readouterr().out


def test_a_command_lists_its_subcommands(capsys: pytest.CaptureFixture[str]) -> None:
    for name in COMMANDS:
        command, _, subcommand = name.partition(" ")
        main(["help", command])
        listed = capsys.readouterr().out.partition("subcommands:\n")[2]
        assert not subcommand or re.search(rf"^  {subcommand} ", listed, re.MULTILINE), name


@pytest.mark.parametrize(
    ("old", "new", "rest"),
    [
        ("check-config", "doctor config", []),
        ("check-config", "doctor config", ["--config", "none.toml"]),
        ("check-config --hash-key", "keys hash", []),
        ("matrix", "demo matrix", ["read_file", "--json"]),
        ("matrix", "demo matrix", ["none"]),
        ("limits", "costs limits", ["--json"]),
    ],
)
def test_an_old_command_does_the_same_and_names_the_new_one(old: str, new: str, rest: list[str], folder: Path) -> None:
    before, now = (run_in_pipe([*words.split(), *rest], folder) for words in (old, new))
    note = f"toolwire: `toolwire {old}` is `toolwire {new}` now\n"
    assert (before.code, before.out, before.err) == (now.code, now.out, note + now.err)


def test_an_old_command_is_explained_as_the_new_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["help", "limits"]) == 0
    assert capsys.readouterr().out.startswith("usage: toolwire costs limits ")


def test_an_error_of_usage_on_a_terminal(folder: Path) -> None:
    check_golden("unknown-command", ["srve"], folder, code=2)


# --- colour -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "environ", "coloured"),
    [
        (["version"], {}, False),
        (["srve"], {}, True),
        (["srve", "--color", "never"], {}, False),
        (["--color=never", "srve"], {}, False),
        (["srve"], {"NO_COLOR": "1"}, False),
        (["--color", "always", "srve"], {"NO_COLOR": "1"}, True),
        (["srve"], {"TERM": "dumb"}, False),
    ],
)
def test_colour_on_a_terminal(words: list[str], environ: dict[str, str], coloured: bool, folder: Path) -> None:
    assert ("\x1b" in run_on_terminal(words, folder, 80, environ).out) is coloured


def test_colour_in_a_pipe_only_if_asked_for(folder: Path) -> None:
    assert "\x1b" not in run_in_pipe(["srve"], folder).err
    assert "\x1b" in run_in_pipe(["--color=always", "srve"], folder).err
    assert run_in_pipe(["--color=sometimes", "version"], folder).code == 2


# --- ends -------------------------------------------------------------------------------------------------------------


def run_in_shell(script: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command = ["bash", "-c", script]
    return subprocess.run(command, env=make_environ(folder), cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("command", ["demo matrix", "version", "tools"])
def test_a_closed_pipe_is_silent(command: str, folder: Path) -> None:
    shell = f'"{sys.executable}" -m toolwire.cli {command} | true; exit ${{PIPESTATUS[0]}}'
    done = run_in_shell(shell, folder)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("redirection", [">&-", "2>&-", ">&- 2>&-"])
def test_a_stream_that_is_closed_takes_any_output(redirection: str, folder: Path) -> None:
    shell = f'"{sys.executable}" -m toolwire.cli tools {redirection}'
    done = run_in_shell(shell, folder)
    assert (done.returncode, done.stderr) == (0, "")


def test_standard_input_that_is_closed_is_empty(folder: Path) -> None:
    shell = f'"{sys.executable}" -m toolwire.cli translate request --from gemini --to anthropic <&-'
    done = run_in_shell(shell, folder)
    assert done.returncode == 2
    assert done.stderr.startswith("error: ")


def test_a_full_disk_is_an_error_with_a_hint(folder: Path) -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [*TOOLWIRE, "demo", "matrix"],
            env=make_environ(folder),
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 2
    assert done.stderr.startswith("error: cannot write the output: No space left on device\n")


def test_ctrl_c_is_silent(folder: Path) -> None:
    os.mkfifo(folder / "fifo")
    command = start_on_terminal(["check", "fifo"], folder)
    with command as process:
        with open(folder / "fifo", "wb"):  # it can be opened when the command has opened it
            process.process.send_signal(signal.SIGINT)
        output = process.read_all()  # what comes just before the command reads is noticed when there is no more to read
    assert (output.code, output.out) == (130, "")


def test_a_console_without_unicode_shows_all_it_can(folder: Path) -> None:
    done = run_program([*TOOLWIRE, "tools"], folder, make_environ(folder, {"PYTHONIOENCODING": "ascii:strict"}))
    assert done.code == 0
    assert "\\u2013" in done.out
