"""What a gateway must be known by, so that it can be started, pointed at our provider, and asked."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from msgspec import Struct

ANSWERING = 60
"""Seconds that a program has to say its version: some load much before they speak."""


class NotInstalled(Exception):
    """A program that is in none of the folders."""


class Sources(Struct, frozen=True):
    """Where programs are looked for: in these folders (an environment's `bin`, `node_modules/.bin`), then on PATH."""

    folders: tuple[Path, ...] = ()

    def find(self, program: str) -> str:
        for folder in self.folders:
            if found := shutil.which(program, path=str(folder)):
                return found
        if found := shutil.which(program):
            return found
        raise NotInstalled(program)

    def said(self, program: str, *words: str) -> str:
        """What a program prints, without the blanks around it."""
        command = [self.find(program), *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=ANSWERING, check=False)
        return done.stdout.strip()


class Route(Struct, frozen=True):
    """What the client must ask for, to reach a model behind the provider of a protocol."""

    model: str
    headers: Mapping[str, str] = {}


class Target(Struct, frozen=True, kw_only=True):
    name: str
    title: str
    install: str = "`make conformance` in the sources of Toolwire installs it"
    """How to get it, for people who have not."""
    version: Callable[[Sources], str]
    """Asked of what is installed, never written down."""
    command: Callable[[int, str, Path, Sequence[tuple[str, str]]], Sequence[str]]
    """From the port to listen on, the provider's origin (`http://127.0.0.1:N`), an empty folder for the configuration,
    and all pairs of a provider's protocol and a model that will be asked: the command line. It runs in the folder; its
    first word is looked for in the sources."""
    route: Callable[[str, str, str, str], Route | str]
    """From the client's protocol, the provider's, the model and the provider's origin: what to ask for, or in words why
    this pair cannot be had there."""
    environment: Mapping[str, str] = {}
    reaches: tuple[str, ...] = ()
    """Cases that need something of the gateway's configuration which the command gives."""
    ready: str = "/"
    """A path that is answered, with whatever status below 500, once the gateway is up."""
    patience: float = 60.0
    """Seconds to wait for that."""
