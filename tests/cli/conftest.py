"""Where the commands of the tests run."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def folder() -> Iterator[Path]:
    """An empty folder whose path always has the same length, for golden text. It is the home and the working directory
    of commands."""
    path = Path(tempfile.mkdtemp(prefix="toolwire-", dir="/tmp"))
    yield path
    shutil.rmtree(path)
