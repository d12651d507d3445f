"""Shell completion, in the real shells."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from cli.terminal_golden import TerminalProcess, make_environ, run_in_pipe
from toolwire.cli.commands import COMMANDS
from toolwire.cli.completion import read_command
from toolwire.protocols import CODECS
from waits import PATIENCE

LINES = [
    ("toolwire transl", "translate"),
    ("toolwire doctor con", "doctor config"),
    ("toolwire --vers", "--version"),
    ("toolwire help transl", "help translate"),
    ("toolwire translate requ", "translate request"),
    ("toolwire translate --fro", "translate --from"),
    ("toolwire translate --from gem", "translate --from gemini"),
    ("toolwire translate --from=gem", "translate --from=gemini"),
    ("toolwire translate --from gemini requ", "translate --from gemini request"),
    ("toolwire translate request some", "translate request some.json"),
    ("toolwire translate request --report some", "translate request --report some.json"),
    ("toolwire conformance --from fold", "conformance --from folder/"),
    ("toolwire run qw", "run qwen"),
    ("toolwire serve --log-lev", "serve --log-level"),
    ("toolwire serve --log-level warn --log te", "serve --log-level warn --log text"),
    ("toolwire serve --color ne", "serve --color never"),
    ("toolwire completion fi", "completion fish"),
    ("toolwire demo matrix run_s", "demo matrix run_shell_command"),
    ("toolwire demo matrix --prot", "demo matrix --protocol"),
    ("toolwire demo matrix --protocol gem", "demo matrix --protocol gemini"),
    ("toolwire costs limits --js", "costs limits --json"),
    ("toolwire costs --onl", "costs --only"),
]
SETUP = {
    "bash": 'set +o history; source ./script; toolwire() { echo "GOT<$*>"; }',
    "zsh": 'autoload -U compinit && compinit -u -D; source ./script; toolwire() { print -r -- "GOT<$*>" }',
}
COMMAND = {"bash": ["bash", "--norc", "--noprofile", "-i"], "zsh": ["zsh", "-f", "-i"]}


def write_script(shell: str, folder: Path) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    done = run_in_pipe(["completion", shell], folder)
    assert (done.code, done.err) == (0, "")
    (folder / "script").write_text(done.out)
    (folder / "some.json").write_text("{}")
    (folder / "folder").mkdir()


@pytest.mark.parametrize("shell", SETUP)
def test_the_tab_key_completes(shell: str, folder: Path) -> None:
    write_script(shell, folder)
    process = TerminalProcess(COMMAND[shell], folder, 200, {"PS1": "> "})
    try:
        process.read_until("> ")
        process.type(f"{SETUP[shell]}; echo READY''\n")
        process.read_until("READY\n")
        for number, (typed, completed) in enumerate(LINES, 1):
            process.type(f"{typed}\t\necho DONE{number}''\n")
            process.read_until(f"DONE{number}\n")
            assert re.findall(r"GOT<([^$]*?)>", process.text)[-1].rstrip(" /") == completed.rstrip("/"), process.text
    finally:
        process.close()


def test_fish_completes(folder: Path) -> None:
    write_script("fish", folder)
    for typed, completed in LINES:
        command = ["fish", "--no-config", "-c", "source ./script; complete -C $argv[1]", typed]
        done = subprocess.run(
            command, cwd=folder, env=make_environ(folder), capture_output=True, text=True, timeout=PATIENCE, check=True
        )
        assert [line.partition("\t")[0] for line in done.stdout.splitlines()] == [completed.split()[-1]], typed


def test_every_option_has_its_place_in_the_scripts(folder: Path) -> None:
    scripts = {shell: run_in_pipe(["completion", shell], folder).out for shell in ("bash", "zsh", "fish")}
    for name in COMMANDS:
        for option in read_command(name).options:
            long = option.names[-1]
            assert long in scripts["bash"], (name, long)
            assert f"{long}[" in scripts["zsh"] or f"{long}=[" in scripts["zsh"], (name, long)
            assert re.search(rf"""'__toolwire_at "{name}"' .*-l {long[2:]}\b""", scripts["fish"]), (name, long)


def test_protocols_are_known_by_their_metavar() -> None:
    options = {one.names[0]: one for one in read_command("translate").options}
    assert list(options["--from"].words) == list(CODECS)
    assert not options["--strict"].takes_value
