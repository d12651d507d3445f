"""The coding agents that `toolwire run` can start, each described by a file `NAME.toml` in this folder.

To support another agent, add a file. Its texts may contain `{origin}`, `{base}` (the origin plus the protocol's
`path`), `{key}`, `{model}`, `{home}`, `{run}` and the keys of its protocol; `{model:quoted}` is the text in quotes, as
JSON and TOML write it. The texts of its `limits` may also contain `{context_window}`, `{max_output_tokens}`,
`{max_prompt_tokens}` and `{compression_threshold}`; `{context_window:number}` is a number in JSON.
"""

from __future__ import annotations

import os
import shutil
import tomllib
from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct

from toolwire.core.ir import EMPTY_MAPPING
from toolwire.gateway.settings.trust import hash_program, is_trusted, lies_in_folder


class MirroredFolder(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A folder that programs find by an environment variable. The agent sees a copy of the user's, made of links."""

    default: str
    """Where the folder is if the variable is not set, relative to the user's home."""
    private: tuple[str, ...]
    """Entries that are not linked to the user's, but to the agent's home."""


class AddedSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings that an agent gets in some runs only. Tables are joined with those of the agent."""

    arguments: tuple[str, ...] = ()
    environment: Mapping[str, str | dict[str, Any]] = EMPTY_MAPPING
    files: Mapping[str, dict[str, Any]] = EMPTY_MAPPING


class Agent(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One agent: how to find it, and how to point it at the gateway."""

    name: str
    title: str
    command: str
    version: str
    """The version that this file was tested with."""
    install: str
    """The command that installs it, with `{version}`: agents change how they are configured."""
    needs: str = ""
    """What must be there before, such as a version of Node."""
    model: str = ""
    """The model that it asks for by default."""
    protocols: Mapping[str, Mapping[str, str]]
    """Its protocols, the default first, each with texts for the placeholders; `path` is appended to the origin."""
    known_models: tuple[str, ...] = ()
    """Patterns of the names that it treats as they deserve; () if a name makes no difference."""
    unknown_model: str = ""
    """What is different with another name, and what helps."""
    helper_models: Mapping[str, str] = EMPTY_MAPPING
    """Models that it asks for whatever model was chosen: a pattern, and one name that matches it."""
    rare_models: Mapping[str, str] = EMPTY_MAPPING
    """The same for settings that few people use: a running gateway need not know these."""
    arguments: tuple[str, ...] = ()
    """Arguments before the user's own."""
    subcommands: tuple[str, ...] = ()
    """If the user's own begin with one of these, `arguments` are left out: the subcommand would not know them."""
    environment: Mapping[str, str | dict[str, Any]] = EMPTY_MAPPING
    """Variables to set. A table is written as JSON."""
    unset: tuple[str, ...] = ()
    """Variables that would point it at another server."""
    own_variables: tuple[str, ...] = ()
    """Variables that would point it at the user's own files; they are kept with `--own-settings`."""
    own_settings_problem: str = ""
    """Why it cannot use the user's own settings, if it cannot."""
    own_settings: AddedSettings = AddedSettings()
    """What it needs with `--own-settings`, because the user's settings could point it at another server."""
    files: Mapping[str, dict[str, Any]] = EMPTY_MAPPING
    """JSON files, by path. Other keys of a file in `{home}` are kept."""
    mirrors: Mapping[str, MirroredFolder] = EMPTY_MAPPING
    """Folders of the user, by the variable that names them."""
    limits: tuple[AddedSettings, ...] = ()
    """They tell it the limits of the model; one whose limits are unknown is left out. Later ones override earlier."""

    def knows_model(self, name: str) -> bool:
        bare = name.rpartition("/")[2]
        return not self.known_models or any(fnmatchcase(bare, pattern) for pattern in self.known_models)

    @property
    def install_command(self) -> str:
        return self.install.replace("{version}", self.version)


@cache
def load_agents() -> Mapping[str, Agent]:
    """All agents, by name."""
    entries = sorted(files("toolwire.agents").iterdir(), key=lambda entry: entry.name)
    tables = {entry.name[:-5]: entry.read_text("utf-8") for entry in entries if entry.name.endswith(".toml")}
    return {name: msgspec.convert({**tomllib.loads(text), "name": name}, Agent) for name, text in tables.items()}


class FoundProgram(NamedTuple):
    """Where an agent's program is; "" if it is not installed."""

    path: str = ""
    left_out: str = ""
    """A program of the working folder that was found before and is not used."""


def find_program(
    agent: Agent, environ: Mapping[str, str], folder: Path, may_use: Callable[[Path], bool] | None = None
) -> FoundProgram:
    """The agent's program on PATH or in the project's `node_modules`.

    One that the folder brings, or a folder above it, is somebody else's until its user trusts it (`may_use` asks):
    in `node_modules`, or on PATH by an entry that is relative, empty, or leads into the folder.
    """
    may_use = may_use or (lambda program: is_trusted(program, hash_program(program), environ))
    own = [Path(entry) for entry in environ.get("PATH", "").split(os.pathsep)]
    modules = [parent / "node_modules" / ".bin" for parent in (folder, *folder.parents)]
    left_out = ""
    for place in (*own, *modules):
        program = shutil.which(agent.command, path=str(folder / place))
        if program is None:
            continue
        is_own = place in own and place.is_absolute() and place.resolve() not in [one.resolve() for one in modules]
        if (is_own and not lies_in_folder(Path(program), folder, environ)) or may_use(Path(program)):
            return FoundProgram(program, left_out)
        left_out = left_out or program
    return FoundProgram("", left_out)


def search_path(program: str, environ: Mapping[str, str]) -> str:
    """PATH for the agent. A Node installed beside it comes first: the one on PATH may be too old."""
    beside, path = str(Path(program).parent), environ.get("PATH", "")
    return f"{beside}{os.pathsep}{path}" if shutil.which("node", path=beside) else path
