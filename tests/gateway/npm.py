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

HERE = Path(__file__).parents[1] / "js"
OFFLINE = ("EAI_AGAIN", "ENOTFOUND", "ECONNREFUSED", "ENETUNREACH", "ETIMEDOUT")


def installed(config: pytest.Config) -> str:
    """Node, with the packages of the lock file in tests/js; installed at first use."""
    found, npm = shutil.which("node"), shutil.which("npm")
    if not found or not npm:
        pytest.skip("node and npm are not here: the tests of what is written in JavaScript are left out")
    version = subprocess.run([found, "--version"], capture_output=True, text=True, check=True).stdout
    if int(version.removeprefix("v").partition(".")[0]) < 20:
        pytest.skip(f"node {version.strip()} is too old, 20 is needed: what is written in JavaScript is left out")
    lock = hashlib.sha256((HERE / "package-lock.json").read_bytes()).hexdigest()
    stamp = HERE / "node_modules" / ".toolwire"
    with _one_worker_at_a_time():
        if not stamp.exists() or stamp.read_text() != lock:
            _install(npm, config)
            stamp.write_text(lock)
    return found


@contextmanager
def _one_worker_at_a_time() -> Iterator[None]:
    """The first worker installs; the others wait and then find the packages."""
    folder = os.open(HERE, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


def _install(npm: str, config: pytest.Config) -> None:
    with config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
        sys.stderr.write("\nInstalling the JavaScript packages into tests/js/node_modules, once …\n")
        command = [npm, "ci", "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error"]
        done = subprocess.run(command, cwd=HERE, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode and any(word in done.stderr for word in OFFLINE):
        pytest.skip("npm reaches no registry: the tests of what is written in JavaScript are left out")
    assert done.returncode == 0, done.stderr
