"""`[mcp.NAME]`: servers of tools, with the variables that they name. Their values are never told."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta, Struct

from toolwire.gateway.config.config import McpServer, Positive, Secret
from toolwire.gateway.config.problems import KeyPath, ProblemCollector, TomlTable
from toolwire.gateway.mcp.tools import SERVER_NAME
from toolwire.gateway.telemetry.redact import redact
from toolwire.gateway.upstream.address import check_base_url

INSTALL_HINT = "pip install 'toolwire[mcp]'"
PositiveSeconds = Annotated[float, Meta(gt=0)]
_VARIABLE = re.compile(r"\$(?:\$|\{(\w+)\}|([A-Za-z_]\w*))")
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_SECRET_ARGUMENT = re.compile(r"(?i)(--?[\w-]*(?:key|token|secret|passw)[\w-]*[= ])\S+")
"""An argument that says what follows it."""
_STDIO_KEYS, _HTTP_KEYS = ("env", "cwd"), ("headers",)


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
    timeout: PositiveSeconds = 60.0
    """Seconds that a call may take."""
    connect_timeout: PositiveSeconds = 30.0
    """Seconds until it must have started and listed its tools. The first request waits for that, later ones never."""
    call_visibility: Literal["hidden", "text"] = "hidden"
    """Whether clients see the calls: not at all, or as text in the answer."""
    max_rounds: Positive = 16
    """Rounds of calls to it within one answer; a model that wants more is told to answer."""
    max_parallel: Positive = 8
    """Calls to it at the same time, in each worker; more have to wait."""


def read_mcp_servers(
    tables: TomlTable, environ: Mapping[str, str], collector: ProblemCollector, folder: Path
) -> Mapping[str, McpServer]:
    """The servers of the section, in order, with everything that is wrong with them."""
    found: dict[str, McpServer] = {}
    for name, table in tables.items():
        place: KeyPath = ("mcp", name)
        if not SERVER_NAME.fullmatch(name):
            hint = (
                "start with a letter; up to 30 letters, digits, - and single _ may follow, none of - and _ at the end"
            )
            collector.add(place, f"invalid server name `{name}`: it is part of the names of the tools", hint)
        given = collector.read_fields(collector.expect_table(table, place), McpTable, place)
        if given is not None:
            server = _McpTableReader(collector, environ, place).read_server(name, McpTable(**given), folder)
            if server is not None:
                found[name] = server
    if tables and find_spec("mcp") is None:
        collector.add(("mcp",), "MCP servers need a package that is not installed", INSTALL_HINT)
    return found


class _McpTableReader:
    """One table, and the variables that were missed while it was read."""

    def __init__(self, collector: ProblemCollector, environ: Mapping[str, str], path: KeyPath) -> None:
        self._collector, self._environ, self._path = collector, environ, path
        self._missing_variables: dict[str, None] = {}

    def read_server(self, name: str, table: McpTable, folder: Path) -> McpServer | None:
        command = self._read_command(table)
        url = self._read_url(table)
        if not self._check_transport(table) or (not command and not url):
            return None
        env = {key: self._fill_variables(value, "env", key) for key, value in (table.env or {}).items()}
        headers = {key.lower(): self._read_header(key, value) for key, value in (table.headers or {}).items()}
        return McpServer(
            name=name,
            command=command,
            env=env,
            cwd=str(folder / table.cwd) if table.cwd else "",
            url=url,
            display_name=_display_command(command) if command else (table.url or "").partition("?")[0],
            headers=headers,
            missing_variables=tuple(self._missing_variables),
            tools=table.tools,
            models=table.models,
            clients=table.clients,
            timeout=table.timeout,
            connect_timeout=table.connect_timeout,
            call_visibility=table.call_visibility,
            max_rounds=table.max_rounds,
            max_parallel=table.max_parallel,
        )

    def _check_transport(self, table: McpTable) -> bool:
        if table.command is None and table.url is None:
            self._collector.add(
                self._path, "`command` or `url` is missing", "add the command that starts the server, or its URL"
            )
            return False
        if table.command is not None and table.url is not None:
            self._collector.add((*self._path, "url"), "command and url cannot be combined", "remove one of them")
            return False
        for key in _HTTP_KEYS if table.url is None else _STDIO_KEYS:
            if getattr(table, key):
                other = "url" if table.url is None else "command"
                self._collector.add((*self._path, key), f"`{key}` can only be used with `{other}`", "remove it")
        return True

    def _read_command(self, table: McpTable) -> tuple[str, ...]:
        if table.command is None:
            return ()
        place = (*self._path, "command")
        try:
            words = tuple(shlex.split(table.command) if isinstance(table.command, str) else table.command)
        except ValueError:
            self._collector.add(place, "a quotation mark is not closed", 'write a list: ["program", "argument"]')
            return ()
        if not words or not words[0]:
            self._collector.add(place, "the command is empty", 'write a list: ["program", "argument"]')
            return ()
        if any("\0" in word for word in words):
            self._collector.add(place, "a command cannot contain a NUL character")
            return ()
        return words

    def _read_url(self, table: McpTable) -> Secret:
        if table.url is None:
            return Secret()
        before = len(self._missing_variables)
        url = self._fill_variables(table.url, "url")
        if len(self._missing_variables) > before:
            return Secret(table.url)
        wrong = check_base_url(url.reveal())
        if wrong:
            self._collector.add(
                (*self._path, "url"),
                wrong if "$" not in table.url else "not a valid URL after the variables are filled in",
            )
        return url

    def _read_header(self, name: str, value: str) -> Secret:
        place = (*self._path, "headers", name)
        filled = self._fill_variables(value, "headers", name)
        if not _HEADER_NAME.fullmatch(name):
            self._collector.add(place, f"invalid header name `{name}`")
        elif any(mark in filled.reveal() for mark in "\r\n\0"):
            self._collector.add(place, "the value of a header cannot contain line breaks")
        return filled

    def _fill_variables(self, value: str, *keys: str) -> Secret:
        """A value with the variables that it names; one that is not set is a warning: all else works without it."""

        def fill_variable(found: re.Match[str]) -> str:
            name = found[1] or found[2]
            if name is None:
                return "$"
            if not self._environ.get(name) and name not in self._missing_variables:
                self._missing_variables[name] = None
                hint = f"set {name}; until then, the server is not used"
                self._collector.add(
                    (*self._path, *keys), f"the environment variable {name} is not set", hint, "warning"
                )
            return self._environ.get(name, "")

        return Secret(_VARIABLE.sub(fill_variable, value))


def _display_command(command: tuple[str, ...]) -> str:
    """A command without what looks like a credential in it, though a variable would be the place for that."""
    return redact(_SECRET_ARGUMENT.sub(r"\1…", shlex.join(command)))
