"""A gateway of its own for one run: a process that lives no longer than we do."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from toolwire.gateway.config.config import ServerSettings
from toolwire.gateway.config.providers import known_servers
from toolwire.gateway.config.urls import is_own_address

ADDRESS_PATTERN = re.compile(rb"http://[^/\s]+")
STOP_TIMEOUT = 3.0
"""Seconds for it to end when it is asked to; the agent has gone by then."""
LOG_TAIL_LINES = 12
"""Lines of its log that are shown when it ends by itself."""


class GatewayDied(Exception):
    """It could not begin; says what its log says."""


class PrivateGateway:
    """The gateway while it runs."""

    def __init__(self, process: subprocess.Popen[bytes], origin: str, log: Path) -> None:
        self._process, self.origin, self._log = process, origin, log

    @property
    def death_message(self) -> str:
        """What it said last, when it has ended by itself."""
        return log_tail(self._log) if self._process.poll() is not None else ""


@contextmanager
def start_gateway(
    file: str | None, routes: Mapping[str, str], environ: Mapping[str, str], server: ServerSettings, log: Path
) -> Iterator[PrivateGateway]:
    """Start one, wait until it serves, and end it with the block. Raises `Died`, or OSError for the log."""
    command = [sys.executable, "-m", "toolwire.cli", "serve", "--host", "127.0.0.1", "--port", "0", "--workers", "1"]
    command += ["--log", "json", *(["--config", file] if file else [])]
    for name, model in routes.items():
        command += ["--route", f"{name}={model}"]
    with log.open("ab") as written:
        lifeline, held = os.pipe()  # however we end, its reader sees the end of it
        process = subprocess.Popen(
            [*command, "--lifeline", str(lifeline)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=written,
            env=_gateway_environment(environ, server),
            pass_fds=(lifeline,),
            start_new_session=True,  # the terminal's Ctrl-C is meant for the agent
        )
    os.close(lifeline)
    try:
        line = process.stdout.readline() if process.stdout is not None else b""
        address = ADDRESS_PATTERN.search(line)
        if address is None:
            process.wait()
            raise GatewayDied(log_tail(log))
        yield PrivateGateway(process, address[0].decode(), log)
    finally:
        os.close(held)
        _stop_process(process)


def _stop_process(process: subprocess.Popen[bytes]) -> None:
    for number in (signal.SIGTERM, signal.SIGTERM, signal.SIGKILL):  # the second one waits for no stream
        process.send_signal(number)
        try:
            process.wait(STOP_TIMEOUT)
            break
        except subprocess.TimeoutExpired:
            continue
    if process.stdout is not None:
        process.stdout.close()


def _gateway_environment(environ: Mapping[str, str], server: ServerSettings) -> dict[str, str]:
    """Without base URLs that lead to the usual gateway: they are meant for SDKs, and this one has another address."""
    variables = {variable for row in known_servers().values() for variable in row.base_url_env}
    return {
        name: value for name, value in environ.items() if name not in variables or not _points_to_server(value, server)
    }


def _points_to_server(url: str, server: ServerSettings) -> bool:
    try:
        return is_own_address(url.strip(), server)
    except ValueError:  # no URL; the gateway says so itself
        return False


def log_tail(log: Path) -> str:
    return "\n".join(log.read_text("utf-8", "replace").strip().splitlines()[-LOG_TAIL_LINES:])
