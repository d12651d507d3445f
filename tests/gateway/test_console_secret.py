"""The secret of the console's cookies is one for all workers, also for those that start at the same moment."""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from toolwire.gateway.surfaces.console.access import make_secret
from toolwire.gateway.surfaces.console.peers import SECRET_FILE, load_secret
from waits import PATIENCE


def test_a_secret_is_whole_before_others_can_find_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One worker stops just before it writes: another one starts meanwhile."""
    is_writing, may_write = threading.Event(), threading.Event()
    found: list[bytes] = []
    open_file: Callable[..., Any] = os.fdopen

    def wait_and_open(*words: Any) -> Any:
        if threading.current_thread() is first:
            is_writing.set()
            assert may_write.wait(PATIENCE)
        return open_file(*words)

    monkeypatch.setattr(os, "fdopen", wait_and_open)
    first = threading.Thread(target=lambda: found.append(load_secret(tmp_path)))
    first.start()
    assert is_writing.wait(PATIENCE)
    second = load_secret(tmp_path)
    may_write.set()
    first.join(PATIENCE)
    assert found == [second]
    assert len(second) == len(make_secret())


def test_nobody_else_can_read_it_and_nothing_else_is_left(tmp_path: Path) -> None:
    load_secret(tmp_path)
    load_secret(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [SECRET_FILE]
    assert stat.S_IMODE((tmp_path / SECRET_FILE).stat().st_mode) == 0o600
