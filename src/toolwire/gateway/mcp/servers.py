"""All MCP servers of a process, who is given their tools, and the calls of one exchange."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from fnmatch import fnmatchcase
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import msgspec
from msgspec import Struct

from toolwire.core.ir import EMPTY_MAPPING, Call, Result, Tool
from toolwire.gateway.config.config import Config, McpServer
from toolwire.gateway.mcp.tools import ToolOutcome, failed_outcome

if TYPE_CHECKING:  # the SDK is an extra, and slow to import: only who has servers pays for it
    from toolwire.gateway.mcp.server_connection import ConnectionTiming, OfferedTool, ServerConnection, ServerState

StateCallback: TypeAlias = "Callable[[str, ServerState, str], None]"
"""Told of a server's name, its state, and what is wrong, whenever that or its tools changed."""
MAX_CACHED_TOOL_SETS = 1024
"""Sets of tools that are kept, by model and client. Models are named by clients, so there is no end of them."""


class ServerStatus(Struct, frozen=True):
    """What there is to say of a server."""

    settings: McpServer
    state: ServerState
    last_error: str
    version: str
    tools: tuple[OfferedTool, ...]


class McpServers:
    """One for a process. Nothing is started before somebody is given tools."""

    def __init__(
        self, on_state_changed: StateCallback = lambda *_: None, timing: ConnectionTiming | None = None
    ) -> None:
        self._on_state_changed, self._timing = on_state_changed, timing
        self._connections: dict[str, ServerConnection] = {}
        self._tool_sets: dict[
            tuple[frozenset[str], frozenset[str]], tuple[tuple[ServerConnection, OfferedTool], ...]
        ] = {}
        self._closing_tasks: set[asyncio.Task[None]] = set()

    # --- beginning, change and end ---

    def apply_config(self, config: Config) -> None:
        """The servers of this configuration from now on. Those that stay the same keep their connection; those that
        are gone or reached otherwise are closed, and calls to them fail."""
        old, self._connections = self._connections, {}
        for name, settings in config.mcp.items():
            link = old.get(name)
            if link is not None and link.settings.connection_identity == settings.connection_identity:
                del old[name]
                link.apply_settings(settings)
            else:
                link = self._make_connection(settings)
            self._connections[name] = link
        self._tool_sets.clear()
        for link in old.values():
            task = asyncio.get_running_loop().create_task(link.close())
            self._closing_tasks.add(task)
            task.add_done_callback(self._closing_tasks.discard)

    def _make_connection(self, settings: McpServer) -> ServerConnection:
        links = import_module("toolwire.gateway.mcp.server_connection")
        import_module("jsonschema")  # the SDK would load it in the middle of the first call
        link: ServerConnection = links.ServerConnection(
            settings, self._timing or links.ConnectionTiming(), self._tool_sets.clear, self._on_state_changed
        )
        return link

    async def close(self) -> None:
        """End all of them, and wait for it: no program is left behind."""
        links, self._connections = self._connections, {}
        self._tool_sets.clear()
        await asyncio.gather(*(link.close() for link in links.values()), *self._closing_tasks)

    # --- tools ---

    def __bool__(self) -> bool:
        return bool(self._connections)

    async def start_servers(self, models: Collection[str], clients: Collection[str]) -> None:
        """Start the servers that are given to them. The first who wants one waits until it has answered, or its
        `connect_timeout`; nobody else does."""
        fresh = [
            link
            for link in self._connections.values()
            if not link.was_tried and _is_offered_to(link.settings, models, clients)
        ]
        if fresh:
            await asyncio.gather(*(link.wait_until_tried() for link in fresh))

    def tools_for(self, models: Collection[str], clients: Collection[str]) -> tuple[Tool, ...]:
        """The tools that a model is given on behalf of a client: `models` are its names (the client's word and the
        provider's), `clients` the protocol, the key's name and the agent. From what was listed last, in a stable
        order."""
        return tuple(offered.tool for _, offered in self._offered_tools(models, clients))

    def make_interceptor(
        self,
        models: Collection[str],
        clients: Collection[str],
        client_tool_names: Collection[str] = (),
        substitutes: Mapping[str, tuple[ServerConnection, OfferedTool]] = EMPTY_MAPPING,
    ) -> ToolInterceptor | None:
        """The same tools for one exchange, with who runs them; None where there are none. A tool whose name the client
        has given to one of its own (`taken`) is left out."""
        given = self._offered_tools(models, clients)
        rows = {
            offered.tool.name: (link, offered) for link, offered in given if offered.tool.name not in client_tool_names
        }
        return ToolInterceptor(rows, substitutes) if rows or substitutes else None

    async def find_substitutes(
        self, wanted_tools: Mapping[str, tuple[str, str]]
    ) -> Mapping[str, tuple[ServerConnection, OfferedTool]]:
        """Tools that stand in for a provider's own, whoever else they are given to; those that are there now."""
        found: dict[str, tuple[ServerConnection, OfferedTool]] = {}
        for hosted, (server, name) in wanted_tools.items():
            link = self._connections.get(server)
            if link is not None:
                await link.wait_until_tried()
                there = [offered for offered in link.tools if offered.name == name]
                found |= {hosted: (link, there[0])} if there else {}
        return found

    def _offered_tools(
        self, models: Collection[str], clients: Collection[str]
    ) -> tuple[tuple[ServerConnection, OfferedTool], ...]:
        if not self._connections:
            return ()
        key = frozenset(models), frozenset(clients)
        found = self._tool_sets.get(key)
        if found is None:
            links = [link for link in self._connections.values() if _is_offered_to(link.settings, models, clients)]
            found = tuple((link, offered) for link in links for offered in link.tools)
            if len(self._tool_sets) >= MAX_CACHED_TOOL_SETS:
                self._tool_sets.clear()
            self._tool_sets[key] = found
        return found

    # --- for operators ---

    async def connect_all(self) -> None:
        """Start all servers and wait for them, whoever they are for."""
        await asyncio.gather(*(link.wait_until_tried() for link in self._connections.values()))

    def server_statuses(self) -> tuple[ServerStatus, ...]:
        return tuple(
            ServerStatus(link.settings, link.state, link.last_error, link.version, link.tools)
            for link in self._connections.values()
        )


def _is_offered_to(server: McpServer, models: Collection[str], clients: Collection[str]) -> bool:
    if not server.models and not server.clients:
        return False
    return _matches_any(server.models, models) and _matches_any(server.clients, clients)


def _matches_any(globs: tuple[str, ...], names: Collection[str]) -> bool:
    return not globs or any(fnmatchcase(name, glob) for name in names for glob in globs)


class ToolInterceptor:
    """The tools of one exchange: made anew for each, because it counts rounds."""

    def __init__(
        self,
        tools_by_name: Mapping[str, tuple[ServerConnection, OfferedTool]],
        substitutes: Mapping[str, tuple[ServerConnection, OfferedTool]] = EMPTY_MAPPING,
    ) -> None:
        self._tools_by_name = {**tools_by_name, **{row[1].tool.name: row for row in substitutes.values()}}
        self._rounds_by_server: Counter[str] = Counter()
        self.tools: tuple[Tool, ...] = tuple(offered.tool for _, offered in tools_by_name.values())
        self.substitutes: Mapping[str, Tool] = {hosted: offered.tool for hosted, (_, offered) in substitutes.items()}
        """Those that stand in for a provider's own tools."""
        self.max_rounds: int = max(link.settings.max_rounds for link, _ in self._tools_by_name.values())
        """After so many rounds every further call is refused."""

    def runs_tool(self, name: str) -> bool:
        """Is it we who run this tool?"""
        return name in self._tools_by_name

    def call_visibility(self, name: str) -> Literal["hidden", "text"]:
        """Does the client see calls of this tool?"""
        return self._tools_by_name[name][0].settings.call_visibility

    async def run_calls(self, calls: Sequence[Call]) -> tuple[Result, ...]:
        """The results of one round, in the order of the calls, which run side by side. Cancelled, it cancels them at
        their servers."""
        self._rounds_by_server.update(
            {self._tools_by_name[call.name][0].settings.name for call in calls if call.name in self._tools_by_name}
        )
        said = await asyncio.gather(*map(self._run_call, calls))
        return tuple(each.to_result(call) for each, call in zip(said, calls, strict=True))

    async def _run_call(self, call: Call) -> ToolOutcome:
        row = self._tools_by_name.get(call.name)
        if row is None:
            return failed_outcome(f"there is no tool `{call.name}`")
        link, offered = row
        limit = link.settings.max_rounds
        if self._rounds_by_server[link.settings.name] > limit:
            return failed_outcome(f"the limit of {limit} rounds of calls is reached: answer with what you have")
        arguments = _read_arguments(call)
        if arguments is None:
            return failed_outcome(f"the arguments of `{call.name}` are no JSON object: call it again with one")
        return await link.call_tool(offered.name, arguments)


def _read_arguments(call: Call) -> Mapping[str, Any] | None:
    if call.incomplete:
        return None
    if not call.arguments.strip():
        return EMPTY_MAPPING
    try:
        found = msgspec.json.decode(call.arguments)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
    return found if isinstance(found, dict) else None
