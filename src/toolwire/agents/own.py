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

from toolwire.gateway.settings.addresses import is_self
from toolwire.gateway.settings.config import Server
from toolwire.gateway.settings.providers import rows

ADDRESS = re.compile(rb"http://[^/\s]+")
PATIENCE = 3.0
"""Seconds for it to end when it is asked to; the agent has gone by then."""
TAIL = 12
"""Lines of its log that are shown when it ends by itself."""


class Died(Exception):
    """It could not begin; says what its log says."""


class Own:
    """The gateway while it runs."""

    def __init__(self, process: subprocess.Popen[bytes], origin: str, log: Path) -> None:
        self._process, self.origin, self._log = process, origin, log

    @property
    def died(self) -> str:
        """What it said last, when it has ended by itself."""
        return last_words(self._log) if self._process.poll() is not None else ""


@contextmanager
def started(
    file: str | None, routes: Mapping[str, str], environ: Mapping[str, str], server: Server, log: Path
) -> Iterator[Own]:
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
            env=_environment(environ, server),
            pass_fds=(lifeline,),
            start_new_session=True,  # the terminal's Ctrl-C is meant for the agent
        )
    os.close(lifeline)
    try:
        line = process.stdout.readline() if process.stdout is not None else b""
        address = ADDRESS.search(line)
        if address is None:
            process.wait()
            raise Died(last_words(log))
        yield Own(process, address[0].decode(), log)
    finally:
        os.close(held)
        _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    for number in (signal.SIGTERM, signal.SIGTERM, signal.SIGKILL):  # the second one waits for no stream
        process.send_signal(number)
        try:
            process.wait(PATIENCE)
            break
        except subprocess.TimeoutExpired:
            continue
    if process.stdout is not None:
        process.stdout.close()


def _environment(environ: Mapping[str, str], server: Server) -> dict[str, str]:
    """Without base URLs that lead to the usual gateway: they are meant for SDKs, and this one has another address."""
    variables = {variable for row in rows().values() for variable in row.base_url_env}
    return {name: value for name, value in environ.items() if name not in variables or not _leads_back(value, server)}


def _leads_back(url: str, server: Server) -> bool:
    try:
        return is_self(url.strip(), server)
    except ValueError:  # no URL; the gateway says so itself
        return False


def last_words(log: Path) -> str:
    return "\n".join(log.read_text("utf-8", "replace").strip().splitlines()[-TAIL:])
