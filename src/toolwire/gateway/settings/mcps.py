"""`[mcp.NAME]`: servers of tools, with the variables that they name. Their values are never told."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta, Struct

from toolwire.gateway.mcp.names import SERVER
from toolwire.gateway.settings.addresses import fault
from toolwire.gateway.settings.config import McpServer, Positive, Secret
from toolwire.gateway.settings.tables import Findings, Table
from toolwire.gateway.settings.toml_lines import Place
from toolwire.gateway.telemetry.clean import redact

EXTRA = "pip install 'toolwire[mcp]'"
Limit = Annotated[float, Meta(gt=0)]
_VARIABLE = re.compile(r"\$(?:\$|\{(\w+)\}|([A-Za-z_]\w*))")
_TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_SAID = re.compile(r"(?i)(--?[\w-]*(?:key|token|secret|passw)[\w-]*[= ])\S+")
"""An argument that says what follows it."""
_STDIO, _HTTP = ("env", "cwd"), ("headers",)


class McpTable(Struct, frozen=True, kw_only=True):
    """An MCP server whose tools the gateway offers to models and runs itself, under names such as `NAME__tool`."""

    command: str | tuple[str, ...] | None = None
    """The program to start and its arguments: a list, or one text as a shell would read it. It is spoken to over its
    standard input and output."""
    env: dict[str, str] | None = None
    """Variables of its environment, besides `HOME`, `PATH` and the like. `$VAR` and `${VAR}` stand for ours, `$$` for a
    dollar."""
    cwd: str = ""
    """The folder that it is started in, from the folder of this file; the gateway's own when left out."""
    url: str | None = None
    """Or where it is, over streamable HTTP. `$VAR` as in `env`."""
    headers: dict[str, str] | None = None
    """Headers of every request to a URL. `$VAR` as in `env`."""
    tools: tuple[str, ...] = ("*",)
    """Names and patterns of its tools that are offered."""
    models: tuple[str, ...] = ()
    """Names and patterns of the models that are given its tools: as the client asks for them or as the provider knows
    them. Left out with `clients` given: all of those clients' models."""
    clients: tuple[str, ...] = ()
    """Names and patterns of the clients whose requests are given its tools: a protocol, the name of a client key, or
    the agent that the user agent names. Left out with `models` given: all clients. Without both nobody is."""
    timeout: Limit = 60.0
    """Seconds that a call may take."""
    connect_timeout: Limit = 30.0
    """Seconds until it must have started and listed its tools. The first request waits for that, later ones never."""
    shows: Literal["hidden", "text"] = "hidden"
    """Whether clients see the calls: not at all, or as text in the answer."""
    rounds: Positive = 16
    """Rounds of calls to it within one answer; a model that wants more is told to answer."""
    parallel: Positive = 8
    """Calls to it at the same time, in each worker; more have to wait."""


def mcp_servers(tables: Table, environ: Mapping[str, str], findings: Findings, folder: Path) -> Mapping[str, McpServer]:
    """The servers of the section, in order, with everything that is wrong with them."""
    found: dict[str, McpServer] = {}
    for name, table in tables.items():
        place: Place = ("mcp", name)
        if not SERVER.fullmatch(name):
            hint = "a letter, then at most 30 letters, digits, - and single _, none of them at its end"
            findings.add(place, f"a server cannot be called `{name}`: tools are named after it", hint)
        given = findings.shaped(findings.table(table, place), McpTable, place)
        if given is not None:
            server = _Reading(findings, environ, place).server(name, McpTable(**given), folder)
            if server is not None:
                found[name] = server
    if tables and find_spec("mcp") is None:
        findings.add(("mcp",), "servers of tools need a package that is not installed", EXTRA)
    return found


class _Reading:
    """One table, and the variables that were missed while it was read."""

    def __init__(self, findings: Findings, environ: Mapping[str, str], place: Place) -> None:
        self._findings, self._environ, self._place = findings, environ, place
        self._missing: dict[str, None] = {}

    def server(self, name: str, table: McpTable, folder: Path) -> McpServer | None:
        command = self._command(table)
        url = self._url(table)
        if not self._one(table) or (not command and not url):
            return None
        env = {key: self._filled(value, "env", key) for key, value in (table.env or {}).items()}
        headers = {key.lower(): self._header(key, value) for key, value in (table.headers or {}).items()}
        return McpServer(
            name=name,
            command=command,
            env=env,
            cwd=str(folder / table.cwd) if table.cwd else "",
            url=url,
            shown=_shown(command) if command else (table.url or "").partition("?")[0],
            headers=headers,
            missing=tuple(self._missing),
            tools=table.tools,
            models=table.models,
            clients=table.clients,
            timeout=table.timeout,
            connect_timeout=table.connect_timeout,
            shows=table.shows,
            rounds=table.rounds,
            parallel=table.parallel,
        )

    def _one(self, table: McpTable) -> bool:
        if table.command is None and table.url is None:
            self._findings.add(self._place, "`command` or `url` is missing", "say how the server is reached")
            return False
        if table.command is not None and table.url is not None:
            self._findings.add((*self._place, "url"), "command and url exclude each other", "keep one of them")
            return False
        for key in _HTTP if table.url is None else _STDIO:
            if getattr(table, key):
                other = "url" if table.url is None else "command"
                self._findings.add((*self._place, key), f"`{key}` goes with `{other}` only", "take it out")
        return True

    def _command(self, table: McpTable) -> tuple[str, ...]:
        if table.command is None:
            return ()
        place = (*self._place, "command")
        try:
            words = tuple(shlex.split(table.command) if isinstance(table.command, str) else table.command)
        except ValueError:
            self._findings.add(place, "a quote is not closed", 'write a list: ["program", "argument"]')
            return ()
        if not words or not words[0]:
            self._findings.add(place, "the command is empty", 'write a list: ["program", "argument"]')
            return ()
        if any("\0" in word for word in words):
            self._findings.add(place, "a command cannot hold a NUL")
            return ()
        return words

    def _url(self, table: McpTable) -> Secret:
        if table.url is None:
            return Secret()
        before = len(self._missing)
        url = self._filled(table.url, "url")
        if len(self._missing) > before:
            return Secret(table.url)
        wrong = fault(url.reveal())
        if wrong:
            self._findings.add((*self._place, "url"), wrong if "$" not in table.url else "this is no URL of a server")
        return url

    def _header(self, name: str, value: str) -> Secret:
        place = (*self._place, "headers", name)
        filled = self._filled(value, "headers", name)
        if not _TOKEN.fullmatch(name):
            self._findings.add(place, f"no header can be called `{name}`")
        elif any(mark in filled.reveal() for mark in "\r\n\0"):
            self._findings.add(place, "a header holds one line")
        return filled

    def _filled(self, value: str, *keys: str) -> Secret:
        """A value with the variables that it names; one that is not set is a warning: all else works without it."""

        def of(found: re.Match[str]) -> str:
            name = found[1] or found[2]
            if name is None:
                return "$"
            if not self._environ.get(name) and name not in self._missing:
                self._missing[name] = None
                hint = f"set {name}: the server is not used without"
                self._findings.add((*self._place, *keys), f"the variable {name} is not set", hint, "warning")
            return self._environ.get(name, "")

        return Secret(_VARIABLE.sub(of, value))


def _shown(command: tuple[str, ...]) -> str:
    """A command without what looks like a credential in it, though a variable would be the place for that."""
    return redact(_SAID.sub(r"\1…", shlex.join(command)))
