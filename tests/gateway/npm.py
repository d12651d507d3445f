"""Node, and the packages that tests need of it."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HERE = ROOT / "tests" / "js"
OFFLINE = ("EAI_AGAIN", "ENOTFOUND", "ECONNREFUSED", "ENETUNREACH", "ETIMEDOUT")


def install_packages(config: pytest.Config, folder: Path = HERE) -> str:
    """Node, with the packages of the lock file in this folder; installed at first use."""
    found, npm = shutil.which("node"), shutil.which("npm")
    if not found or not npm:
        pytest.skip("node and npm are not here: the tests of what is written in JavaScript are left out")
    version = subprocess.run([found, "--version"], capture_output=True, text=True, check=True).stdout
    if int(version.removeprefix("v").partition(".")[0]) < 20:
        pytest.skip(f"node {version.strip()} is too old, 20 is needed: what is written in JavaScript is left out")
    lock = hashlib.sha256((folder / "package-lock.json").read_bytes()).hexdigest()
    stamp = folder / "node_modules" / ".toolwire"
    with _one_worker_at_a_time(folder):
        if not stamp.exists() or stamp.read_text() != lock:
            _install(npm, config, folder)
            stamp.write_text(lock)
    return found


@contextmanager
def _one_worker_at_a_time(folder: Path) -> Iterator[None]:
    """The first worker installs; the others wait and then find the packages."""
    opened = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(opened, fcntl.LOCK_EX)
        yield
    finally:
        os.close(opened)


def _install(npm: str, config: pytest.Config, folder: Path) -> None:
    with config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
        sys.stderr.write(f"\nInstalling the JavaScript packages into {folder.relative_to(ROOT)}/node_modules, once …\n")
        command = [npm, "ci", "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error"]
        done = subprocess.run(command, cwd=folder, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode and any(word in done.stderr for word in OFFLINE):
        pytest.skip("npm reaches no registry: the tests of what is written in JavaScript are left out")
    assert done.returncode == 0, done.stderr
