"""`[mcp.NAME]`: MCP servers, with environment variables filled in. Their values are never shown."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, ClassVar, Literal, Self

from msgspec import Meta, Struct
from msgspec.structs import asdict

from toolwire.core.ir import EMPTY_MAPPING
from toolwire.gateway.http.redact import redact
from toolwire.gateway.settings.address import PLAIN_HTTP, check_base_url, is_exposed
from toolwire.gateway.settings.client_keys import NO_CLIENTS, ClientNames, check_globs, read_client_names
from toolwire.gateway.settings.config import (
    MAX_SECONDS,
    Positive,
    Power,
    Secret,
    Section,
    SectionInput,
    TranslateSettings,
)
from toolwire.gateway.settings.problems import KeyPath, ProblemCollector, TomlTable, suggest_name
from toolwire.gateway.settings.trust import hash_text
from toolwire.protocols import CODECS
from toolwire.terminal.packages import describe_missing_package, is_installed

PositiveSeconds = Annotated[float, Meta(gt=0, le=MAX_SECONDS)]
SERVER_NAME = re.compile(r"[A-Za-z](?!.*__)[A-Za-z0-9_-]{0,30}(?<!_)")
"""The name of a server: short enough that the hash of a shortened name fits after it. The part of a tool's name before
the first `__` is the server, so the names of two servers never clash."""
_VARIABLE = re.compile(r"\$(?:\$|\{(\w+)\}|([A-Za-z_]\w*))")
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_SECRET_ARGUMENT = re.compile(r"(?i)(?<![\w-])(\w*+-(?=[\w-]*(?:key|token|secret|passw))[\w-]*+[= ])\S+")
"""A command line argument whose name says that its value is a secret."""


class McpUse(Struct, frozen=True, kw_only=True):
    """Who gets the tools of a server, and how they are run."""

    tools: tuple[str, ...] = ("*",)
    """Names and patterns of the tools to offer."""
    models: tuple[str, ...] = ()
    """Names and patterns of the models that get its tools: the client's name for the model or the provider's.
    Default: all models, if `keys`, `teams` or `protocols` is set. If none of the four is set, nobody gets its tools."""
    keys: tuple[str, ...] = ()
    """Names and patterns of the client keys that get its tools; nobody else does. Default: every client. Only this and
    `teams` protect a server: a client can choose its model and protocol."""
    teams: tuple[str, ...] = ()
    """Names and patterns of the teams whose client keys get its tools; nobody else does. Default: every client."""
    protocols: tuple[str, ...] = ()
    """Names and patterns of the protocols whose clients get its tools. Default: all protocols."""
    agents: tuple[str, ...] = ()
    """Names and patterns of agents, to which the other keys are limited further. Agents are recognised by the user
    agent, which any client can claim, so this alone gives its tools to nobody. Default: all agents."""
    timeout: PositiveSeconds = 60.0
    """Seconds that a tool call may take."""
    connect_timeout: PositiveSeconds = 30.0
    """Seconds to start and list its tools. Only the first request waits for that."""
    call_visibility: Literal["hidden", "text"] = "hidden"
    """Whether clients see the calls: `hidden`, or as `text` in the answer."""
    max_rounds: Positive = 16
    """Rounds of calls within one answer; after that the model is told to answer."""
    max_result_bytes: Positive = 16 * 1024 * 1024
    """The largest result of a call, in bytes. In place of a larger one, the model gets an error that says so."""
    max_parallel: Positive = 8
    """Calls that run at the same time, in each worker; further calls wait."""


class McpTable(McpUse, frozen=True, kw_only=True):
    """An MCP server. The gateway offers its tools to models, under names such as `NAME__tool`, and runs them itself."""

    command: str | tuple[str, ...] | None = None
    """The program to start and its arguments: a list, or one string that is split like in a shell. The gateway uses its
    standard input and output."""
    env: dict[str, str] | None = None
    """Its environment variables, besides `HOME`, `PATH` and a few others. `$VAR` and `${VAR}` are replaced by the
    gateway's own variables, `$$` by a dollar sign."""
    cwd: str = ""
    """The folder to start it in, relative to the folder of this file. Default: the gateway's working directory."""
    url: str | None = None
    """The URL of a server that speaks streamable HTTP, instead of `command`. `$VAR` as in `env`."""
    headers: dict[str, str] | None = None
    """Headers of every request to `url`. `$VAR` as in `env`."""


class McpServer(McpUse, frozen=True, kw_only=True, eq=False):
    """An MCP server: a program to start, or a URL. `repr` hides its variables and headers."""

    name: str
    command: tuple[str, ...] = ()
    env: Mapping[str, Secret] = EMPTY_MAPPING
    cwd: str = ""
    url: Secret = Secret()
    display_name: str = ""
    """The command or URL for people, without secrets."""
    headers: Mapping[str, Secret] = EMPTY_MAPPING
    missing_variables: tuple[str, ...] = ()
    """Environment variables that it needs and that are not set; it is not started without them."""

    @property
    def connection_identity(self) -> tuple[object, ...]:
        """The settings that the connection depends on; while they are the same, the connection is kept."""
        env = tuple((name, value.reveal()) for name, value in self.env.items())
        headers = tuple((name, value.reveal()) for name, value in self.headers.items())
        return self.command, env, self.cwd, self.url.reveal(), headers, self.missing_variables, self.max_result_bytes

    @property
    def has_audience(self) -> bool:
        """Is anything set that gives its tools to somebody? `agents` does not: a user agent proves nothing."""
        return bool(self.models or self.keys or self.teams or self.protocols)

    @property
    def secrets(self) -> tuple[str, ...]:
        """Values that must not appear in logs."""
        values = (self.url, *self.env.values(), *self.headers.values())
        return tuple(value.reveal() for value in values if value)

    def __repr__(self) -> str:
        return f"McpServer({self.name!r}, {self.display_name!r})"

    def __rich_repr__(self) -> list[tuple[str, object]]:
        return [("name", self.name), ("display_name", self.display_name)]


class McpSettings(Section, frozen=True, kw_only=True):
    """The MCP servers, in the order of the file."""

    servers: Mapping[str, McpServer] = EMPTY_MAPPING
    renamed_keys: ClassVar[Mapping[KeyPath, str]] = {
        ("mcp", "*", "parallel"): "max_parallel",
        ("mcp", "*", "rounds"): "max_rounds",
        ("mcp", "*", "shows"): "call_visibility",
    }

    @classmethod
    def list_tables(cls) -> Mapping[str, type[Struct]]:
        return {"[mcp.NAME]": McpTable}

    @classmethod
    def read(cls, source: SectionInput) -> Self:
        tables = source.collector.at("mcp").expect_table(source.tables.get("mcp", {}))
        clients = read_client_names(source.config.server)
        return cls(servers=read_mcp_servers(tables, source.environ, source.collector, source.folder, clients))

    def check(self, source: SectionInput) -> None:
        _check_substitutes(self.servers, source.config.translate, source.collector)
        for name, server in self.servers.items():
            if server.headers and is_exposed(server.url.reveal()):
                source.collector.at("mcp", name, "url").add(*PLAIN_HTTP, "warning")
        for number, key in enumerate(source.config.server.keys):
            if key.mcp_servers != ("*",):
                place = source.collector.at("server", "keys", number, "mcp_servers")
                check_globs("MCP server", self.servers, key.mcp_servers, place)

    @property
    def secrets(self) -> Iterable[str]:
        return [secret for server in self.servers.values() for secret in server.secrets]

    def list_powers(self) -> Iterable[Power]:
        return map(_server_power, self.servers.values())


def _check_substitutes(
    servers: Mapping[str, McpServer], translate: TranslateSettings, collector: ProblemCollector
) -> None:
    """Check `web_search` and `web_fetch`, and warn of MCP servers that no client can use."""
    for name, value in (("web_search", translate.web_search), ("web_fetch", translate.web_fetch)):
        place = collector.at("translate", name)
        server, _, tool = value.removeprefix("mcp:").partition("/")
        if value and not (value.startswith("mcp:") and server and tool):
            place.add(f"`{value}` is not a tool of an MCP server", 'write "mcp:SERVER/TOOL"')
        elif value and server not in servers:
            place.add(f"unknown MCP server `{server}`", suggest_name(server, servers) or f"add [mcp.{server}]")
    used = {server for server, _ in translate.substitutes.values()}
    for name, settings in servers.items():
        if not settings.has_audience and name not in used:
            hint = 'models = ["*"] gives its tools to all models, keys = ["NAME"] to clients with this key'
            collector.at("mcp", name).add("no client gets these tools", hint, "warning")


def _server_power(server: McpServer) -> Power:
    secrets = [(name, value.reveal()) for part in (server.env, server.headers) for name, value in part.items()]
    identity = hash_text(repr((server.command, server.cwd, server.url.reveal(), secrets)))
    given = f" with {', '.join((*server.env, *server.headers))}" if secrets else ""
    what = f"start {shlex.join(server.command)}" if server.command else f"ask {server.display_name}"
    return Power(identity, f"[mcp.{server.name}]", what + given)


def read_mcp_servers(
    tables: TomlTable,
    environ: Mapping[str, str],
    collector: ProblemCollector,
    folder: Path,
    clients: ClientNames = NO_CLIENTS,
) -> Mapping[str, McpServer]:
    """The servers of the section, in order."""
    found: dict[str, McpServer] = {}
    for name, table in tables.items():
        place = collector.at("mcp", name)
        if not SERVER_NAME.fullmatch(name):
            hint = "use a letter, then up to 30 letters, digits, - and single _, with a letter or digit at the end"
            place.add(f"invalid server name `{name}`: it is part of the names of the tools", hint)
        given = place.read_fields(table, McpTable)
        if given is not None:
            server = _McpTableReader(place, environ).read_server(name, McpTable(**given), folder)
            if server is not None:
                found[name] = server
                _check_audience(server, place, clients)
    if tables and not is_installed("mcp"):
        collector.at("mcp").add(*describe_missing_package("[mcp]", "mcp"))
    return found


def _check_audience(server: McpServer, place: ProblemCollector, clients: ClientNames) -> None:
    clients.check_globs("client key", clients.keys, server.keys, place.at("keys"))
    clients.check_globs("team", clients.teams, server.teams, place.at("teams"))
    check_globs("protocol", CODECS, server.protocols, place.at("protocols"))


class _McpTableReader:
    """Reads one table and notes the environment variables that are not set."""

    def __init__(self, place: ProblemCollector, environ: Mapping[str, str]) -> None:
        self._place, self._environ = place, environ
        self._missing_variables: dict[str, None] = {}

    def read_server(self, name: str, table: McpTable, folder: Path) -> McpServer | None:
        command = self._read_command(table)
        url = self._read_url(table)
        if not self._check_transport(table) or (not command and not url):
            return None
        # The command without what looks like a credential. (Credentials belong into `env`.)
        shown = redact(_SECRET_ARGUMENT.sub(r"\1…", shlex.join(command)))
        read = {
            "name": name,
            "command": command,
            "env": {key: self._fill_variables(value, "env", key) for key, value in (table.env or {}).items()},
            "cwd": str(folder / table.cwd) if table.cwd else "",
            "url": url,
            "display_name": shown if command else (table.url or "").partition("?")[0],
            "headers": {key.lower(): self._read_header(key, value) for key, value in (table.headers or {}).items()},
        }
        return McpServer(**{**asdict(table), **read, "missing_variables": tuple(self._missing_variables)})

    def _check_transport(self, table: McpTable) -> bool:
        if table.command is None and table.url is None:
            self._place.add("`command` or `url` is missing", "add the command that starts the server, or its URL")
            return False
        if table.command is not None and table.url is not None:
            self._place.at("url").add("command and url cannot be combined", "remove one of them")
            return False
        values = {"headers": table.headers} if table.url is None else {"env": table.env, "cwd": table.cwd}
        other = "url" if table.url is None else "command"
        for key, value in values.items():
            if value:
                self._place.at(key).add(f"`{key}` can only be used with `{other}`", "remove it")
        return True

    def _read_command(self, table: McpTable) -> tuple[str, ...]:
        place, hint = self._place.at("command"), 'write a list: ["program", "argument"]'
        try:
            words = shlex.split(table.command) if isinstance(table.command, str) else table.command or ()
        except ValueError:
            place.add("a quotation mark is not closed", hint)
            return ()
        if table.command is not None and (not words or not words[0]):
            place.add("the command is empty", hint)
            return ()
        if any("\0" in word for word in words):
            place.add("a command cannot contain a NUL character")
            return ()
        return tuple(words)

    def _read_url(self, table: McpTable) -> Secret:
        if table.url is None:
            return Secret()
        before = len(self._missing_variables)
        url = self._fill_variables(table.url, "url")
        if len(self._missing_variables) > before:
            return Secret(table.url)
        wrong = check_base_url(url.reveal())
        if wrong:
            self._place.at("url").add(
                wrong if "$" not in table.url else "not a valid URL once its variables are filled in"
            )
        return url

    def _read_header(self, name: str, value: str) -> Secret:
        filled = self._fill_variables(value, "headers", name)
        if not _HEADER_NAME.fullmatch(name):
            self._place.at("headers", name).add(f"invalid header name `{name}`")
        elif any(mark in filled.reveal() for mark in "\r\n\0"):
            self._place.at("headers", name).add("the value of a header cannot contain line breaks")
        return filled

    def _fill_variables(self, value: str, *keys: str) -> Secret:
        """Replace `$VAR` in a value. A variable that is not set is only a warning: the rest works without it."""

        def fill_variable(found: re.Match[str]) -> str:
            name = found[1] or found[2]
            if name is None:
                return "$"
            if not self._environ.get(name) and name not in self._missing_variables:
                self._missing_variables[name] = None
                hint = f"set {name}; until then, the server is not used"
                self._place.at(*keys).add(f"the environment variable {name} is not set", hint, "warning")
            return self._environ.get(name, "")

        return Secret(_VARIABLE.sub(fill_variable, value))
