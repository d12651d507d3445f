"""All MCP servers of a process, who may use their tools, the names that models see, and the calls of one exchange."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import msgspec
from msgspec import Struct

from toolwire.core.ir import EMPTY_MAPPING, Call, Result, Tool
from toolwire.gateway.features.mcp.offered_tools import (
    ConnectionTiming,
    OfferedTool,
    ServerState,
    StateCallback,
    ToolOutcome,
    failed_outcome,
)
from toolwire.gateway.features.mcp.settings import McpServer, McpSettings
from toolwire.gateway.settings.config import Config

if TYPE_CHECKING:  # the SDK is an extra and slow to import, so it is loaded only if a server is configured
    from toolwire.gateway.features.mcp.server_connection import ServerConnection


ServerTool: TypeAlias = "tuple[ServerConnection, OfferedTool]"


class McpClient(Struct, frozen=True):
    """Who asks: what selects the servers of a request."""

    models: tuple[str, ...]
    """The client's and the provider's name of the model."""
    protocol: str = ""
    key: str = ""
    """The name of the client key; "" without one."""
    agents: tuple[str, ...] = ()
    """What the user agent claims."""
    team: str = ""
    """The team of the client key; "" without one."""
    may_use_server: Callable[[str], bool] = lambda _: True
    """Does the client key allow the server with this name?"""


class ServerStatus(Struct, frozen=True):
    """A server for display."""

    settings: McpServer
    state: ServerState
    last_error: str
    version: str
    tools: tuple[OfferedTool, ...]


USUAL_TIMING = ConnectionTiming()
CONNECTION_MODULE = "toolwire.gateway.features.mcp.server_connection"
LATE_MODULES = ("jsonschema", "anyio._backends._asyncio", "httpcore2")
"""What the SDK would import during its first connection and its first call."""


def load_sdk() -> None:
    """Import the SDK and all that it needs, which takes a second. A new configuration is read in a thread, and this is
    done there, so that no request waits for it."""
    for name in (CONNECTION_MODULE, *LATE_MODULES):
        with suppress(ImportError):  # if the SDK itself is missing, `apply_config` says so
            import_module(name)


class McpServers:
    """The servers of a process. A server is started when its tools are needed for the first time."""

    def __init__(
        self, on_state_changed: StateCallback = lambda *_: None, timing: ConnectionTiming = USUAL_TIMING
    ) -> None:
        self._on_state_changed, self._timing = on_state_changed, timing
        self._connections: dict[str, ServerConnection] = {}
        self._closing_tasks: set[asyncio.Task[None]] = set()

    # --- configuration ---

    def apply_config(self, config: Config) -> None:
        """Use the servers of this configuration. Unchanged servers keep their connection; removed or changed ones are
        closed, and calls to them fail."""
        old, self._connections = self._connections, {}
        for name, settings in config.section(McpSettings).servers.items():
            connection = old.get(name)
            if connection is not None and connection.settings.connection_identity == settings.connection_identity:
                del old[name]
                connection.apply_settings(settings)
            else:
                load_sdk()
                connections = import_module(CONNECTION_MODULE)
                connection = connections.ServerConnection(settings, self._timing, self._on_state_changed)
            self._connections[name] = connection
        for connection in old.values():
            task = asyncio.get_running_loop().create_task(connection.close())
            self._closing_tasks.add(task)
            task.add_done_callback(self._closing_tasks.discard)

    async def close(self) -> None:
        """Close all connections and wait until every program has ended."""
        connections, self._connections = self._connections, {}
        await asyncio.gather(*(connection.close() for connection in connections.values()), *self._closing_tasks)

    # --- tools ---

    def __bool__(self) -> bool:
        return bool(self._connections)

    async def start_servers(self, client: McpClient) -> None:
        """Start the servers for this client. The first request waits until a server has answered, at most its
        `connect_timeout`; later requests do not wait."""
        untried = [one for one in self._connections_for(client) if not one.was_tried]
        if untried:
            await asyncio.gather(*(connection.wait_until_tried() for connection in untried))

    def _connections_for(self, client: McpClient) -> list[ServerConnection]:
        return [one for one in self._connections.values() if is_offered_to(one.settings, client)]

    def make_interceptor(
        self, client: McpClient, substitutes: Mapping[str, ServerTool] = EMPTY_MAPPING
    ) -> ToolInterceptor | None:
        """The tools for a client, as listed last, to intercept and run their calls; None if there are none."""
        connections = self._connections_for(client) if self._connections else ()
        rows = {offered.tool.name: (one, offered) for one in connections for offered in one.tools}
        return ToolInterceptor(rows, substitutes) if rows or substitutes else None

    async def find_substitutes(
        self, wanted_tools: Mapping[str, tuple[str, str]], client: McpClient
    ) -> Mapping[str, ServerTool]:
        """The configured substitutes for provider tools that are available now. They are for every client, unless their
        server is for certain keys."""
        found: dict[str, ServerTool] = {}
        for provider_tool, (server, name) in wanted_tools.items():
            connection = self._connections.get(server)
            if connection is not None and _has_key_for(connection.settings, client):
                await connection.wait_until_tried()
                for offered in connection.tools:
                    if offered.name == name:
                        found.setdefault(provider_tool, (connection, offered))
        return found

    # --- for operators ---

    async def connect_all(self) -> None:
        """Start all servers and wait until each has answered or failed."""
        await asyncio.gather(*(connection.wait_until_tried() for connection in self._connections.values()))

    def server_statuses(self) -> tuple[ServerStatus, ...]:
        return tuple(
            ServerStatus(one.settings, one.state, one.last_error, one.version, one.tools)
            for one in self._connections.values()
        )


def is_offered_to(server: McpServer, client: McpClient) -> bool:
    """Does the client get the server's tools? Every list that is set must match. What a client only claims, its user
    agent, can take tools away, but it never gives any."""
    return (
        server.has_audience
        and _has_key_for(server, client)
        and _matches_any(server.models, client.models)
        and _matches_any(server.protocols, (client.protocol,))
        and _matches_any(server.agents, client.agents)
    )


def _has_key_for(server: McpServer, client: McpClient) -> bool:
    """Without a key, a client matches no list of keys or teams, not even `*`."""
    return (
        client.may_use_server(server.name)
        and (not server.keys or any(client.key and fnmatchcase(client.key, glob) for glob in server.keys))
        and (not server.teams or any(client.team and fnmatchcase(client.team, glob) for glob in server.teams))
    )


def _matches_any(globs: tuple[str, ...], names: Collection[str]) -> bool:
    return not globs or "*" in globs or any(fnmatchcase(name, glob) for name in names for glob in globs)


class ToolInterceptor:
    """The tools that the gateway runs in one exchange; it counts the rounds."""

    def __init__(
        self, tools_by_name: Mapping[str, ServerTool], substitutes: Mapping[str, ServerTool] = EMPTY_MAPPING
    ) -> None:
        self._tools_by_name = {**tools_by_name, **{row[1].tool.name: row for row in substitutes.values()}}
        self._rounds_by_server: Counter[str] = Counter()
        self.tools: tuple[Tool, ...] = tuple([offered.tool for _, offered in tools_by_name.values()])
        self.substitutes: Mapping[str, Tool] = {name: offered.tool for name, (_, offered) in substitutes.items()}
        """The substitutes for provider tools, by the provider tool's name."""
        connections = {row[0] for row in self._tools_by_name.values()}
        self.max_rounds: int = max([connection.settings.max_rounds for connection in connections])
        """Further calls are refused after this number of rounds."""

    def call_visibility(self, name: str) -> Literal["hidden", "text"]:
        """Whether the client sees the calls of this tool as text."""
        return self._tools_by_name[name][0].settings.call_visibility

    async def run_calls(self, calls: Sequence[Call]) -> tuple[Result, ...]:
        """Run the calls of one round in parallel; the results are in the order of the calls. If this is cancelled, the
        calls are cancelled at their servers."""
        self._rounds_by_server.update(
            {self._tools_by_name[call.name][0].settings.name for call in calls if call.name in self._tools_by_name}
        )
        outcomes = await asyncio.gather(*map(self._run_call, calls))
        return tuple(outcome.to_result(call) for outcome, call in zip(outcomes, calls, strict=True))

    async def _run_call(self, call: Call) -> ToolOutcome:
        row = self._tools_by_name.get(call.name)
        if row is None:
            return failed_outcome(f"there is no tool `{call.name}`")
        connection, offered = row
        limit = connection.settings.max_rounds
        if self._rounds_by_server[connection.settings.name] > limit:
            return failed_outcome(f"the limit of {limit} rounds of calls is reached: answer with what you have")
        arguments = None if call.incomplete else _read_arguments(call.arguments)
        if arguments is None:
            return failed_outcome(f"the arguments of `{call.name}` are not a JSON object: call it again with one")
        return await connection.call_tool(offered.name, arguments)


def _read_arguments(text: str) -> Mapping[str, Any] | None:
    """None if they are not an object. Numbers are those of Python, for the SDK: `decode_object_or_none` keeps how
    some of them are spelled."""
    try:
        arguments = msgspec.json.decode(text) if text.strip() else EMPTY_MAPPING
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
    return arguments if isinstance(arguments, Mapping) else None
