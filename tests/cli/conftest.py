"""Where and how the commands of the tests run."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from forked_commands import trust_file
from gateway.postgres import PASSWORD
from toolwire.cli import main


@pytest.fixture
def folder() -> Iterator[Path]:
    """An empty folder whose path always has the same length, for golden text. It is the home and the working directory
    of commands."""
    path = Path(tempfile.mkdtemp(prefix="toolwire-", dir="/tmp"))
    yield path
    shutil.rmtree(path)


@pytest.fixture
def run_alone(
    monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes], tmp_path: Path
) -> Callable[..., tuple[int, str, str]]:
    """Runs `toolwire WORDS` in this process and in `tmp_path`, without the settings of whoever runs the tests. Gives the
    exit code, the output, and what was written to standard error. The password of the store is in neither."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TOOLWIRE_CONFIG", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))

    def run(*words: str) -> tuple[int, str, str]:
        trust_file(tmp_path, os.environ)
        code = main(words)
        sys.stdout.flush()
        out, err = capfdbinary.readouterr()
        assert PASSWORD.encode() not in out + err
        return code, out.decode(), err.decode()

    return run
