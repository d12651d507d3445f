"""Gateways that the suite starts by itself, by name. Words of protocols stand in the tables (`*.toml`) beside them."""

from __future__ import annotations

import http.client
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from fnmatch import fnmatchcase
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

# --- What a gateway must be known by, so that it can be started, pointed at our provider, and asked ---


VERSION_TIMEOUT = 60
"""Seconds that a program has to say its version: some load much before they speak."""


class NotInstalled(Exception):
    """A program that is in none of the folders."""


class ProgramFolders(Struct, frozen=True):
    """Where programs are looked for: in these folders (an environment's `bin`, `node_modules/.bin`), then on PATH."""

    folders: tuple[Path, ...] = ()

    def find_program(self, program: str) -> str:
        for folder in self.folders:
            if found := shutil.which(program, path=str(folder)):
                return found
        if found := shutil.which(program):
            return found
        raise NotInstalled(program)

    def read_output(self, program: str, *words: str) -> str:
        """What a program prints, without the blanks around it."""
        command = [self.find_program(program), *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=VERSION_TIMEOUT, check=False)
        return done.stdout.strip()


class Route(Struct, frozen=True):
    """What the client must ask for, to reach a model behind the provider of a protocol."""

    model: str
    headers: Mapping[str, str] = {}


class Target(Struct, frozen=True, kw_only=True):
    name: str
    title: str
    install_hint: str = "`make conformance` in the sources of Toolwire installs it"
    """How to get it, for people who have not."""
    read_version: Callable[[ProgramFolders], str]
    """Asked of what is installed, never written down."""
    make_command: Callable[[int, str, Path, Sequence[tuple[str, str]]], Sequence[str]]
    """From the port to listen on, the provider's origin (`http://127.0.0.1:N`), an empty folder for the configuration,
    and all pairs of a provider's protocol and a model that will be asked: the command line. It runs in the folder; its
    first word is looked for in the sources."""
    find_route: Callable[[str, str, str, str], Route | str]
    """From the client's protocol, the provider's, the model and the provider's origin: what to ask for, or in words why
    this pair cannot be had there."""
    environment: Mapping[str, str] = {}
    configured_cases: tuple[str, ...] = ()
    """Cases that need something of the gateway's configuration which the command gives."""
    ready_path: str = "/"
    """A path that is answered, with whatever status below 500, once the gateway is up."""
    start_timeout: float = 60.0
    """Seconds to wait for that."""


class ProviderPlacement(Struct, frozen=True, forbid_unknown_fields=True):
    """How the gateway is told of a provider: what it calls that kind of provider, and where it is."""

    protocol: str
    kind: str
    base: str = ""
    """Behind the provider's origin."""
    models: tuple[str, ...] = ("*",)
    """Patterns of names."""
    clients: tuple[str, ...] = ("*",)
    """Patterns of protocols, where the gateway is told by each request."""
    settings: Mapping[str, Any] = {}


class ImpossiblePair(Struct, frozen=True, forbid_unknown_fields=True):
    why: str
    clients: tuple[str, ...] = ("*",)
    providers: tuple[str, ...] = ("*",)


class GatewayTable(Struct, frozen=True, forbid_unknown_fields=True):
    title: str
    places: tuple[ProviderPlacement, ...]
    """The first that fits counts."""
    environment: Mapping[str, str] = {}
    settings: Mapping[str, Any] = {}
    """Goes into its configuration as it stands."""
    impossible: tuple[ImpossiblePair, ...] = ()

    def find_placement(self, protocol: str, model: str, client: str = "") -> ProviderPlacement:
        return next(
            place
            for place in self.places
            if place.protocol == protocol and _matches_any(model, place.models) and _matches_any(client, place.clients)
        )

    def find_obstacle(self, client: str, provider: str) -> str:
        """Why a pair cannot be had, or nothing."""
        found = (
            one.why
            for one in self.impossible
            if _matches_any(client, one.clients) and _matches_any(provider, one.providers)
        )
        return next(found, "")


def _matches_any(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def read_table(name: str) -> GatewayTable:
    return msgspec.toml.decode(files(__package__).joinpath(f"{name}.toml").read_bytes(), type=GatewayTable)


def model_alias(protocol: str, model: str) -> str:
    """A name of its own for each model behind each protocol; the model comes first, as some look at how names begin."""
    return f"{model}--{protocol}"


# --- Start a gateway, wait until it answers, and stop it at the end ---


POLL_INTERVAL = 0.1
KEPT_VARIABLES = ("PATH", "LANG", "LC_ALL", "TZ", "SYSTEMROOT")
"""Of the environment. Keys, proxies and a home full of settings are not the gateway's, so that all runs are alike."""
STOP_TIMEOUT = 10
LOG_LINES = 15
"""Of the log, when it does not start."""


class GatewayNotStarted(Exception):
    """A gateway that ended or stayed silent; the text is the end of what it wrote."""


@contextmanager
def start_target(
    target: Target, origin: str, models: Sequence[tuple[str, str]], folders: ProgramFolders
) -> Iterator[str]:
    """The gateway's URL, as long as the block runs. `origin` is where the providers are."""
    with tempfile.TemporaryDirectory(prefix="toolwire-conformance-") as name:
        folder, port = Path(name), find_free_port()
        command = list(target.make_command(port, origin, folder, models))
        command[0] = folders.find_program(command[0])
        log = folder / "gateway.log"
        with log.open("wb") as out:
            process = subprocess.Popen(
                command,
                cwd=folder,
                env=_target_environment(target, folders, folder),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            url = f"http://127.0.0.1:{port}"
            if not wait_for_answer(url + target.ready_path, target.start_timeout, process):
                raise GatewayNotStarted("\n".join(log.read_text(errors="replace").splitlines()[-LOG_LINES:]))
            yield url
        finally:
            _stop_process(process)


def find_free_port() -> int:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        return int(bound.getsockname()[1])


def _target_environment(target: Target, folders: ProgramFolders, home: Path) -> dict[str, str]:
    """The folders come first on PATH too, because programs there start others."""
    kept = {name: os.environ[name] for name in KEPT_VARIABLES if name in os.environ}
    path = os.pathsep.join([*map(str, folders.folders), kept.get("PATH", "")])
    return {**kept, "PATH": path, "HOME": str(home), **target.environment}


def wait_for_answer(url: str, timeout: float, process: subprocess.Popen[bytes] | None = None) -> bool:
    """Is there an answer, of whatever kind but a server's own failure, before patience or the process ends?"""
    deadline = time.monotonic() + timeout
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
        time.sleep(POLL_INTERVAL)
    return False


def _stop_process(process: subprocess.Popen[bytes]) -> None:
    """The process and what it started; politely first."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(STOP_TIMEOUT)
            return
