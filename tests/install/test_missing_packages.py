"""A package that is not installed never ends a command with a traceback: the error names it, and how to install it."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from install.clean_runs import EXTRA_PACKAGES, ForkedRuns, forked_runs
from toolwire.cli.commands import COMMANDS
from toolwire.terminal.packages import EXTRAS, describe_import_error

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
NEEDED_TO_SERVE = ["httptools", "asyncpg", "cryptography", "mcp"]
"""With the configuration below, `toolwire serve` does not start without these."""
EVERYTHING = """
[store]
url = "postgresql://user@127.0.0.1/none"
key_env = "STORE_KEY"

[mcp.files]
command = ["true"]
"""
SETTINGS = {"STORE_KEY": "x" * 32, "OTEL_TRACES_EXPORTER": "otlp", "TOOLWIRE_CONFIG": "toolwire.toml"}
WORDS: dict[str, tuple[str, ...]] = {
    "serve": ("--port", "0"),
    "run": ("codex", "--print"),
    "conformance": ("--list",),
    "mcp": ("list",),
    "translate": ("request", "--from", "openai-chat", "--to", "gemini", "body.json"),
    "check": ("body.json",),
    "policy": ("explain", "body.json"),
    "store": ("stats",),
}
"""Arguments with which a command does something; the others need none."""


OF_CLOUDS = {"botocore", "google-auth"}
"""They are looked for when a credential is needed, not by commands: the tests of credentials miss them."""
MODULES = {"pyyaml": "yaml"}
"""Packages whose module has another name."""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ForkedRuns]:
    with forked_runs(tmp_path_factory.mktemp("runs")) as made:
        yield made


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    weather = {"type": "object", "properties": {"city": {"type": "string", "pattern": "^[A-Z]"}}}
    tool = {"type": "function", "function": {"name": "get_weather", "parameters": weather}}
    body = {"model": "loopback", "messages": [{"role": "user", "content": "Hi"}], "tools": [tool]}
    (tmp_path / "body.json").write_text(json.dumps(body))
    (tmp_path / "toolwire.toml").write_text(EVERYTHING)
    return tmp_path


def _extras() -> dict[str, str]:
    """The extra of each package, as pyproject.toml has it."""
    found = {}
    for extra, lines in PROJECT["optional-dependencies"].items():
        for line in lines:
            name = re.split(r"[>;\[]", line)[0]
            module = "opentelemetry" if name.startswith("opentelemetry") else MODULES.get(name, name)
            found.setdefault(module, extra)  # cryptography is in two
    return found


def test_the_extras_are_those_of_the_project() -> None:
    named = {package: extra for package, extra in EXTRAS.items() if package in EXTRA_PACKAGES}
    assert named == {package: extra for package, extra in _extras().items() if package not in OF_CLOUDS}
    assert PROJECT["optional-dependencies"]["gateway"] == [], "an old name, for commands that people have"


@pytest.mark.parametrize("command", COMMANDS)
def test_no_command_ends_with_a_traceback(command: str, runs: ForkedRuns, folder: Path) -> None:
    """With a configuration that uses every extra, so that each command meets what is missing. A package that a command
    does not look for cannot be missed."""
    arguments = (*command.split(), *WORDS.get(command, ()))
    packages = NEEDED_TO_SERVE
    if command != "serve":  # which goes on when it has all that it needs
        packages = runs.find_imported((*EXTRA_PACKAGES, "httptools"), *arguments, cwd=folder, **SETTINGS)
    for package in packages:
        check_missing_package(runs, package, arguments, folder)


def test_the_commands_look_for_packages(runs: ForkedRuns, folder: Path) -> None:
    found = runs.find_imported((*EXTRA_PACKAGES, "httptools"), "store", "stats", cwd=folder, **SETTINGS)
    assert {"asyncpg", "cryptography"} <= {*found}
    assert "yaml" not in found


def check_missing_package(runs: ForkedRuns, package: str, arguments: Sequence[str], folder: Path) -> None:
    done = runs.run_without(package, *arguments, cwd=folder, **SETTINGS)
    assert "Traceback" not in done.err, done.err
    if done.code and package in done.err:
        extra = EXTRAS.get(package)
        assert f"the package {package}, which is not installed" in done.err
        assert "install it with: pip install " + (f"'toolwire[{extra}]'" if extra else "toolwire\n") in done.err


@pytest.mark.parametrize(
    ("command", "package", "text"),
    [
        ("serve", "httptools", "error: `toolwire serve` needs the package httptools, which is not installed\nhint: install it with: pip install toolwire\n"),
        ("doctor config", "asyncpg", "PostgreSQL needs the package asyncpg, which is not installed"),
        ("doctor config", "cryptography", "encryption needs the package cryptography, which is not installed"),
        ("doctor config", "mcp", "[mcp] needs the package mcp, which is not installed"),
        ("serve", "asyncpg", "install it with: pip install 'toolwire[store]'"),
        ("mcp", "mcp", "install it with: pip install 'toolwire[mcp]'"),
        ("store", "asyncpg", "install it with: pip install 'toolwire[store]'"),
    ],
)  # fmt: skip
def test_what_is_missing_is_named(command: str, package: str, text: str, runs: ForkedRuns, folder: Path) -> None:
    done = runs.run_without(package, *command.split(), *WORDS.get(command, ()), cwd=folder, **SETTINGS)
    assert text in done.err + done.out
    assert done.code in (1, 2)


def test_our_own_mistakes_keep_their_traceback() -> None:
    standard = frozenset({"sqlite3"})
    assert describe_import_error("x", ModuleNotFoundError("m", name="toolwire.nothing"), standard) is None
    assert describe_import_error("x", ImportError("m"), standard) is None
    problem, _ = describe_import_error("x", ModuleNotFoundError("m", name="sqlite3"), standard) or ("", "")
    assert problem == "x needs Python's own module sqlite3, which this Python was built without"
    problem, hint = describe_import_error("x", ImportError("cannot import", name="mcp.types"), standard) or ("", "")
    assert problem == "x cannot use the package mcp that is installed: cannot import"
    assert hint == "install it with: pip install --upgrade 'toolwire[mcp]'"
