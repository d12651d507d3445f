"""Start a gateway, wait until it answers, and stop it at the end."""

from __future__ import annotations

import http.client
import os
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

from toolwire.conformance.targets.target import Sources, Target

BETWEEN = 0.1
KEPT = ("PATH", "LANG", "LC_ALL", "TZ", "SYSTEMROOT")
"""Of the environment. Keys, proxies and a home full of settings are not the gateway's, so that all runs are alike."""
STOPPING = 10
LINES = 15
"""Of the log, when it does not start."""


class DoesNotStart(Exception):
    """A gateway that ended or stayed silent; the text is the end of what it wrote."""


@contextmanager
def started(target: Target, origin: str, models: Sequence[tuple[str, str]], sources: Sources) -> Iterator[str]:
    """The gateway's URL, as long as the block runs. `origin` is where the providers are."""
    with tempfile.TemporaryDirectory(prefix="toolwire-conformance-") as name:
        folder, port = Path(name), free_port()
        command = list(target.command(port, origin, folder, models))
        command[0] = sources.find(command[0])
        log = folder / "gateway.log"
        with log.open("wb") as out:
            process = subprocess.Popen(
                command,
                cwd=folder,
                env=_environment(target, sources, folder),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            url = f"http://127.0.0.1:{port}"
            if not answers(url + target.ready, target.patience, process):
                raise DoesNotStart("\n".join(log.read_text(errors="replace").splitlines()[-LINES:]))
            yield url
        finally:
            _stop(process)


def free_port() -> int:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        return int(bound.getsockname()[1])


def _environment(target: Target, sources: Sources, home: Path) -> dict[str, str]:
    """The folders come first on PATH too, because programs there start others."""
    kept = {name: os.environ[name] for name in KEPT if name in os.environ}
    path = os.pathsep.join([*map(str, sources.folders), kept.get("PATH", "")])
    return {**kept, "PATH": path, "HOME": str(home), **target.environment}


def answers(url: str, patience: float, process: subprocess.Popen[bytes] | None = None) -> bool:
    """Is there an answer, of whatever kind but a server's own failure, before patience or the process ends?"""
    deadline = time.monotonic() + patience
    place = urlsplit(url)
    kind = http.client.HTTPSConnection if place.scheme == "https" else http.client.HTTPConnection
    while process is None or process.poll() is None:
        connection = kind(place.netloc, timeout=5)
        with suppress(OSError, http.client.HTTPException):
            connection.request("GET", place.path or "/")
            with connection.getresponse() as response:
                up = response.status < 500
            if up:
                connection.close()
                return True
        connection.close()
        if time.monotonic() > deadline:
            return False
        time.sleep(BETWEEN)
    return False


def _stop(process: subprocess.Popen[bytes]) -> None:
    """The process and what it started; politely first."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(STOPPING)
            return
