"""A gateway that gives models the tools of two real MCP servers: one over its pipes, one over HTTP."""

from __future__ import annotations

import asyncio
import socket
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from forked_commands import start_program
from gateway.conftest import configuration, serve_config
from gateway.provider import Provider
from toolwire.gateway.features.mcp import server_connection
from waits import PATIENCE

HERE = Path(__file__).parent
COMMAND = f'command = ["{sys.executable}", "{HERE / "mcp_server.py"}"]'


class Control:
    """Where a tool of the server waits for the test (`slow`)."""

    def __init__(self) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._listening.settimeout(PATIENCE)
        self.address = f"127.0.0.1:{self._listening.getsockname()[1]}"

    def call(self) -> Waiting:
        """A call that has come to the tool."""
        connection, _ = self._listening.accept()
        return Waiting(connection)

    def close(self) -> None:
        self._listening.close()


class Waiting:
    """A call of the tool `slow` under way."""

    def __init__(self, connection: socket.socket) -> None:
        connection.settimeout(PATIENCE)
        self._connection = connection
        self._lines = connection.makefile("r")
        assert self._lines.readline().startswith("waits")

    def send_result(self, text: str) -> None:
        self._connection.sendall(f"{text}\n".encode())
        self.read_last_line()

    def read_last_line(self) -> str:
        """What its last words were."""
        said = self._lines.readline().strip()
        self._lines.close()
        self._connection.close()
        return said


@contextmanager
def over_http() -> Iterator[str]:
    """The server over HTTP; gives its URL."""
    command = [sys.executable, str(HERE / "mcp_server.py"), "http"]
    with start_program(command) as process:
        assert process.stdout is not None
        yield f"http://127.0.0.1:{process.stdout.readline().strip()}/mcp"


def hold_timeouts(patch: pytest.MonkeyPatch, seconds: float) -> threading.Event:
    """Calls of MCP tools that may take so many seconds have taken them when the event is set, and not before: a call that
    has not reached its server yet cannot be cancelled there."""
    over = threading.Event()

    async def wait(tasks: Iterable[asyncio.Task[Any]], timeout: float | None = None) -> Any:
        if timeout != seconds:
            return await asyncio.wait(tasks, timeout=timeout)
        while not over.is_set():
            done, waiting = await asyncio.wait(tasks, timeout=0.01)
            if done:
                return done, waiting
        return set(), set(tasks)

    patch.setattr(server_connection, "asyncio", SimpleNamespace(**{**vars(asyncio), "wait": wait}))
    return over


def serve_with_mcp(
    folder: Path,
    provider: Provider,
    *,
    url: str = "",
    control: Control | None = None,
    mcp: str = 'models = ["*"]',
    server: str = "",
    store: str = "",
    more: str = "",
) -> str:
    """The text of a configuration with both servers; `mcp`, `server` and `store` are lines of these sections."""
    lines = [configuration(provider.url).replace("[server]\n", f"[server]\n{server}\n", 1)]
    lines.append(f"[mcp.test]\n{COMMAND}\n{mcp}")
    if control is not None:
        lines.append(f'env = {{ MCP_CONTROL = "{control.address}" }}')
    if url:
        lines.append(f'[mcp.net]\nurl = "{url}"\n{mcp}')
    lines += ["[store]", store or f'url = "sqlite:///{(folder / "store.db").as_posix().lstrip("/")}"', more]
    return "\n".join(lines) + "\n"


@contextmanager
def serve_config_text(folder: Path, text: str) -> Iterator[str]:
    file = folder / "toolwire.toml"
    file.write_text(text)
    with serve_config(file) as base:
        yield base
