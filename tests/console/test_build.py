"""The committed page is what its source makes, its types are those of the API, and it stays small."""

from __future__ import annotations

import gzip
import subprocess
import sys
from pathlib import Path

import pytest

from gateway.npm import ROOT, install_packages

CONSOLE = ROOT / "console"
PAGE = ROOT / "src" / "toolwire" / "gateway" / "surfaces" / "console" / "page"
MAX_COMPRESSED = 200_000


def test_the_types_are_those_of_the_api() -> None:
    done = subprocess.run(
        [sys.executable, ".ci/console_types.py", "--check"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_the_page_is_what_its_source_makes(pytestconfig: pytest.Config, tmp_path: Path) -> None:
    node = install_packages(pytestconfig, CONSOLE)
    for command in (
        ["typescript/bin/tsc"],
        ["vite/bin/vite.js", "build", "--outDir", str(tmp_path), "--emptyOutDir", "--logLevel", "warn"],
    ):
        script, *arguments = command
        done = subprocess.run(
            [node, f"node_modules/{script}", *arguments], cwd=CONSOLE, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
    built, committed = ({file.name: file.read_bytes() for file in folder.iterdir()} for folder in (tmp_path, PAGE))
    assert built.keys() == committed.keys()
    old = [name for name, data in built.items() if data != committed[name]]
    assert not old, "run `make console` and commit what it makes"


def test_the_tests_of_its_source(pytestconfig: pytest.Config) -> None:
    node = install_packages(pytestconfig, CONSOLE)
    done = subprocess.run(
        [node, "node_modules/vitest/vitest.mjs", "run"], cwd=CONSOLE, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_page_is_small() -> None:
    assert sum(len(gzip.compress(file.read_bytes())) for file in PAGE.iterdir()) <= MAX_COMPRESSED
