"""The coding agents that `toolwire run` can start, each described by a file `NAME.toml` in this folder.

To support another agent, add a file. Its texts may contain `{origin}`, `{base}` (the origin plus the protocol's
`path`), `{key}`, `{model}`, `{home}`, `{run}` and the keys of its protocol; `{model:quoted}` is the text in quotes, as
JSON and TOML write it.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

import msgspec
from msgspec import Struct

from toolwire.core.ir import EMPTY_MAPPING


class Mirror(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A folder of the user's that programs find by a variable. The agent sees what is in it, but for its own."""

    usual: str
    """Where it is when the variable is not set, below the user's home."""
    own: tuple[str, ...]
    """Entries that are not the user's here, but stand in the agent's home."""


class Agent(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One agent: how it is found, what it is told, and what leads it to the gateway."""

    name: str
    title: str
    command: str
    npm: str
    """The package that brings it."""
    version: str
    """The one that this file was tried with."""
    node: int
    """The oldest Node that runs it."""
    model: str = ""
    """What it asks for when nobody says anything."""
    speaks: Mapping[str, Mapping[str, str]]
    """Its protocols, the usual one first, each with texts of its own; `path` stands behind the origin."""
    helpers: Mapping[str, str] = EMPTY_MAPPING
    """Names that it asks for whatever model was chosen: a pattern, and one name that fits it."""
    seldom: Mapping[str, str] = EMPTY_MAPPING
    """The same for settings that few have: a gateway that is running need not know them."""
    arguments: tuple[str, ...] = ()
    """What stands before the user's own."""
    environment: Mapping[str, str | dict[str, Any]] = EMPTY_MAPPING
    """A table becomes JSON."""
    removed: tuple[str, ...] = ()
    """Variables that would lead it past the gateway, or into the user's own files."""
    files: Mapping[str, dict[str, Any]] = EMPTY_MAPPING
    """JSON, by path. One in `{home}` keeps what else stands in it."""
    mirrors: Mapping[str, Mirror] = EMPTY_MAPPING
    """Folders of the user's, by the variable that names them."""

    @property
    def install_command(self) -> str:
        return f"npm install -g {self.npm}@{self.version}"


@cache
def load_agents() -> Mapping[str, Agent]:
    """Every agent that there is a file for, by name."""
    found = {}
    for entry in sorted(files("toolwire.agents").iterdir(), key=lambda entry: entry.name):
        name, dot, kind = entry.name.rpartition(".")
        if dot and kind == "toml":
            found[name] = msgspec.convert({**tomllib.loads(entry.read_text("utf-8")), "name": name}, Agent)
    return found
