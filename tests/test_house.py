"""The rules of the house that no linter knows: naming rooms, how rooms look, how long things get, what files say."""

from __future__ import annotations

import ast
import re
import subprocess
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from toolwire.protocols import CODECS, PACKAGES, UnknownProtocol, find_codec

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "toolwire"
PROTOCOLS = SOURCE / "protocols"
REGISTRY = PROTOCOLS / "__init__.py"
MODULES = sorted(SOURCE.rglob("*.py"))
EXISTING = [folder for folder in PACKAGES if (PROTOCOLS / folder).is_dir()]

FILE_LINES = 450
LONGER = {"src/toolwire/ir.py": 500}
"""The internal form is one file, so that it can be read from top to bottom."""
FUNCTION_LINES = 60


def shown(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


# --- rooms ----------------------------------------------------------------------------------------------------------


def test_every_folder_is_registered() -> None:
    folders = {path.parent.name for path in PROTOCOLS.glob("*/__init__.py")}
    assert folders == set(PACKAGES)


@pytest.mark.parametrize("folder", PACKAGES)
def test_a_room_is_found_by_its_name_with_hyphens_or_underscores(folder: str) -> None:
    name = folder.replace("_", "-")
    assert find_codec(name) is find_codec(folder) is CODECS[name]
    assert find_codec(name).name == name


def test_an_unknown_protocol_is_answered_with_the_known_ones() -> None:
    with pytest.raises(UnknownProtocol, match="no protocol is called 'telex'; known are " + ", ".join(CODECS)):
        find_codec("telex")


def test_rooms_have_the_same_files() -> None:
    files = {folder: {path.name for path in (PROTOCOLS / folder).glob("*.py")} for folder in EXISTING}
    everywhere = set().union(*files.values())
    missing = {folder: sorted(everywhere - names) for folder, names in files.items() if everywhere - names}
    assert not missing, f"what only one room needs belongs into its folder `details`; missing elsewhere: {missing}"


JUDGES = (SOURCE / "conformance" / "dialects", SOURCE / "conformance" / "strict")
"""These know the protocols on their own: a judge that read with a room's own eyes would not see its faults."""


@pytest.mark.parametrize("folder", PACKAGES)
def test_a_room_is_named_only_in_its_own_room_and_in_one_line_of_the_registry(folder: str) -> None:
    word = re.compile(rf"(?<![A-Za-z0-9]){folder.replace('_', '[-_ ]?')}(?![A-Za-z0-9])", re.IGNORECASE)
    leaks = [
        f"{shown(path)}:{number}: {line.strip()}"
        for path in MODULES
        if not {PROTOCOLS / folder, *JUDGES} & set(path.parents)
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if word.search(line) and (path, line) != (REGISTRY, f'    "{folder}",')
    ]
    assert not leaks, "\n".join([f"{folder} is named outside its room:", *leaks])


# --- floors ---------------------------------------------------------------------------------------------------------

WITH_IO = {"toolwire.cli", "toolwire.agents", "toolwire.gateway", "toolwire.inspector", "toolwire.conformance"}
"""Floors that may touch files or sockets; all others stand in the contract that forbids it."""


def _contract(id: str) -> dict[str, list[str]]:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    return next(contract for contract in contracts if contract["id"] == id)


def _floors() -> set[str]:
    names = {path.relative_to(SOURCE).parts[0].removesuffix(".py") for path in MODULES} - {"__init__", "__main__"}
    return {f"toolwire.{name}" for name in names}


def test_every_module_has_its_floor() -> None:
    listed = {name.strip(" ()") for layer in _contract("floors")["layers"] for name in re.split(r"[:|]", layer)}
    assert _floors() <= listed, "add these to the contract `floors` in pyproject.toml"


def test_every_module_without_io_is_held_to_it() -> None:
    assert _floors() - WITH_IO == set(_contract("pure")["source_modules"]), "see the contract `pure` in pyproject.toml"


# --- size -----------------------------------------------------------------------------------------------------------


def test_files_stay_readable() -> None:
    lengths = {shown(path): path.read_text().count("\n") for path in MODULES}
    assert not {path: lines for path, lines in lengths.items() if lines >= LONGER.get(path, FILE_LINES)}


def _functions(path: Path) -> Iterator[tuple[str, int]]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield f"{shown(path)}:{node.lineno} {node.name}", (node.end_lineno or node.lineno) - node.lineno + 1


def test_functions_stay_readable() -> None:
    lengths = {name: lines for path in MODULES for name, lines in _functions(path)}
    assert not {name: lines for name, lines in lengths.items() if lines >= FUNCTION_LINES}


def test_no_file_is_a_grab_bag() -> None:
    banned = re.compile(r"(^|_)(utils?|helpers?|base|managers?|handlers?|common|misc)$")
    assert not [shown(path) for path in MODULES if banned.search(path.stem) or banned.search(path.parent.name)]


# --- what files say -------------------------------------------------------------------------------------------------

# Spelled in halves, so that this file does not find itself.
FORBIDDEN = tuple(
    head + tail
    for head, tail in (
        ("pypi", ".org"),
        ("files.python", "hosted.org"),
        ("npmjs", ".org"),
        ("npmjs", ".com"),
        ("--index", "-url"),
        ("--extra-index", "-url"),
        ("/wo", "rk/"),
        ("/ro", "ot/"),
        ("/ho", "me/"),
        ("/Us", "ers/"),
    )
)


@cache
def _files() -> tuple[Path, ...]:
    """What is committed or would be; everything below the root where there is no git."""
    command = ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        listed = subprocess.run(command, capture_output=True, check=True, text=True).stdout.split("\0")
    except (OSError, subprocess.CalledProcessError):
        hidden = {".venv", ".venv-bench", ".venv-faces", "node_modules"}
        return tuple(path for path in ROOT.rglob("*") if path.is_file() and not hidden & set(path.parts))
    return tuple(path for name in listed if name and (path := ROOT / name).is_file())


@pytest.mark.parametrize("word", FORBIDDEN)
def test_no_file_names_a_registry_or_a_path_of_one_machine(word: str) -> None:
    # Not within a longer path, such as the JSON Pointer `$defs` + the word.
    wanted = re.compile(rb"(?<!\w)" + re.escape(word.encode()))
    found = [shown(path) for path in _files() if wanted.search(path.read_bytes())]
    assert not found
