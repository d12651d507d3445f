"""`make serve` installs a few pinned packages, prints a line for each step, and says in a sentence what is wrong."""

from __future__ import annotations

import re
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from install.clean_runs import clean_environment
from waits import PATIENCE

ROOT = Path(__file__).parents[2]
LOCK = ROOT / "requirements" / "serve.txt"
PACKAGES = re.findall(r"^([a-z0-9][\w.-]*)==(\S+)", LOCK.read_text(), re.MULTILINE)
MAX_PACKAGES = 12


def test_the_lock_is_small_and_complete() -> None:
    names = {name for name, _ in PACKAGES}
    assert names == {"msgspec", "httptools", "google-re2", "backports-zstd", "uvloop", "uv-build"}
    assert len(names) <= MAX_PACKAGES
    blocks = re.split(r"^(?=[a-z])", LOCK.read_text(), flags=re.MULTILINE)[1:]
    assert all("--hash=sha256:" in block for block in blocks)


@pytest.mark.parametrize("other", ["gateway.txt", "dev.txt", "bench.txt"])
def test_the_versions_are_those_that_are_tested(other: str) -> None:
    pinned = dict(re.findall(r"^([a-z0-9][\w.-]*)==(\S+)", (ROOT / "requirements" / other).read_text(), re.MULTILINE))
    assert {name: pinned[name] for name, _ in PACKAGES} == dict(PACKAGES)


def make_environment(folder: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    command = [str(ROOT / ".ci" / "venv"), str(folder / "env"), "requirements/serve.txt"]
    environment = clean_environment(folder, **environ)
    return subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=PATIENCE, check=False
    )


def write_program(path: Path, text: str) -> str:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def test_no_python_is_told(tmp_path: Path) -> None:
    done = make_environment(tmp_path, PYTHON=str(tmp_path / "python3"))
    assert done.returncode == 1
    assert done.stderr.startswith("error: Toolwire needs Python 3.11 or newer, and none was found as ")
    assert done.stderr.count("\n") == 2
    assert "PYTHON=/path/to/python3" in done.stderr


def test_an_old_python_is_told(tmp_path: Path) -> None:
    old = write_program(tmp_path / "python3", '[ "$1" = --version ] && echo Python 3.9.2 && exit; exit 1')
    done = make_environment(tmp_path, PYTHON=old)
    assert done.returncode == 1
    assert done.stderr.startswith(f"error: Toolwire needs Python 3.11 or newer; {old} is Python 3.9.2\nhint: ")


def test_a_python_without_venv_is_told(tmp_path: Path) -> None:
    bare = write_program(tmp_path / "python3", f'case "$2" in *venv*) exit 1;; esac; exec {sys.executable} "$@"')
    done = make_environment(tmp_path, PYTHON=bare)
    assert done.returncode == 1
    assert done.stderr.startswith(f"error: {bare} is new enough, but it lacks Python's venv module\nhint: ")


def test_no_network_is_told(tmp_path: Path) -> None:
    nowhere = {
        "PIP_INDEX_URL": "http://127.0.0.1:9/simple",
        "PIP_FIND_LINKS": "",
        "PIP_RETRIES": "0",
        "PIP_NO_CACHE_DIR": "1",
    }
    done = make_environment(tmp_path, PYTHON=sys.executable, **nowhere)
    assert done.returncode == 1
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["Making", "Downloading"]
    assert done.stderr.startswith("error: the packages could not be downloaded: pip does not reach the package index")
    assert done.stderr.count("\n") == 2
