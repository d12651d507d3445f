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

from toolwire.gateway.mcp.said import Said, failed
from toolwire.gateway.settings.config import Config, McpServer
from toolwire.ir import NOTHING, Call, Result, Tool

if TYPE_CHECKING:  # the SDK is an extra, and slow to import: only who has servers pays for it
    from toolwire.gateway.mcp.link import Link, Offered, Pace, State

Says: TypeAlias = "Callable[[str, State, str], None]"
"""Told of a server's name, its state, and what is wrong, whenever that or its tools changed."""
REMEMBERED = 1024
"""Sets of tools that are kept, by model and client. Models are named by clients, so there is no end of them."""


class Status(Struct, frozen=True):
    """What there is to say of a server."""

    settings: McpServer
    state: State
    why: str
    version: str
    tools: tuple[Offered, ...]


class Servers:
    """One for a process. Nothing is started before somebody is given tools."""

    def __init__(self, says: Says = lambda *_: None, pace: Pace | None = None) -> None:
        self._says, self._pace = says, pace
        self._links: dict[str, Link] = {}
        self._sets: dict[tuple[frozenset[str], frozenset[str]], tuple[tuple[Link, Offered], ...]] = {}
        self._closing: set[asyncio.Task[None]] = set()

    # --- beginning, change and end ---

    def reload(self, config: Config) -> None:
        """The servers of this configuration from now on. Those that stay the same keep their connection; those that
        are gone or reached otherwise are closed, and calls to them fail."""
        old, self._links = self._links, {}
        for name, settings in config.mcp.items():
            link = old.get(name)
            if link is not None and link.settings.peer == settings.peer:
                del old[name]
                link.adapt(settings)
            else:
                link = self._made(settings)
            self._links[name] = link
        self._sets.clear()
        for link in old.values():
            task = asyncio.get_running_loop().create_task(link.close())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    def _made(self, settings: McpServer) -> Link:
        links = import_module("toolwire.gateway.mcp.link")
        import_module("jsonschema")  # the SDK would load it in the middle of the first call
        link: Link = links.Link(settings, self._pace or links.Pace(), self._sets.clear, self._says)
        return link

    async def close(self) -> None:
        """End all of them, and wait for it: no program is left behind."""
        links, self._links = self._links, {}
        self._sets.clear()
        await asyncio.gather(*(link.close() for link in links.values()), *self._closing)

    # --- tools ---

    def __bool__(self) -> bool:
        return bool(self._links)

    async def ready(self, models: Collection[str], clients: Collection[str]) -> None:
        """Start the servers that are given to them. The first who wants one waits until it has answered, or its
        `connect_timeout`; nobody else does."""
        fresh = [link for link in self._links.values() if not link.tried and _given(link.settings, models, clients)]
        if fresh:
            await asyncio.gather(*(link.ready() for link in fresh))

    def tools_for(self, models: Collection[str], clients: Collection[str]) -> tuple[Tool, ...]:
        """The tools that a model is given on behalf of a client: `models` are its names (the client's word and the
        provider's), `clients` the protocol, the key's name and the agent. From what was listed last, in a stable
        order."""
        return tuple(offered.tool for _, offered in self._given(models, clients))

    def interceptor(
        self,
        models: Collection[str],
        clients: Collection[str],
        taken: Collection[str] = (),
        standing: Mapping[str, tuple[Link, Offered]] = NOTHING,
    ) -> Interceptor | None:
        """The same tools for one exchange, with who runs them; None where there are none. A tool whose name the client
        has given to one of its own (`taken`) is left out."""
        given = self._given(models, clients)
        rows = {offered.tool.name: (link, offered) for link, offered in given if offered.tool.name not in taken}
        return Interceptor(rows, standing) if rows or standing else None

    async def standing(self, wanted: Mapping[str, tuple[str, str]]) -> Mapping[str, tuple[Link, Offered]]:
        """Tools that stand in for a provider's own, whoever else they are given to; those that are there now."""
        found: dict[str, tuple[Link, Offered]] = {}
        for hosted, (server, name) in wanted.items():
            link = self._links.get(server)
            if link is not None:
                await link.ready()
                there = [offered for offered in link.tools if offered.name == name]
                found |= {hosted: (link, there[0])} if there else {}
        return found

    def _given(self, models: Collection[str], clients: Collection[str]) -> tuple[tuple[Link, Offered], ...]:
        if not self._links:
            return ()
        key = frozenset(models), frozenset(clients)
        found = self._sets.get(key)
        if found is None:
            links = [link for link in self._links.values() if _given(link.settings, models, clients)]
            found = tuple((link, offered) for link in links for offered in link.tools)
            if len(self._sets) >= REMEMBERED:
                self._sets.clear()
            self._sets[key] = found
        return found

    # --- for operators ---

    async def connect(self) -> None:
        """Start all servers and wait for them, whoever they are for."""
        await asyncio.gather(*(link.ready() for link in self._links.values()))

    def status(self) -> tuple[Status, ...]:
        return tuple(
            Status(link.settings, link.state, link.why, link.version, link.tools) for link in self._links.values()
        )


def _given(server: McpServer, models: Collection[str], clients: Collection[str]) -> bool:
    if not server.models and not server.clients:
        return False
    return _fits(server.models, models) and _fits(server.clients, clients)


def _fits(globs: tuple[str, ...], names: Collection[str]) -> bool:
    return not globs or any(fnmatchcase(name, glob) for name in names for glob in globs)


class Interceptor:
    """The tools of one exchange: made anew for each, because it counts rounds."""

    def __init__(
        self, rows: Mapping[str, tuple[Link, Offered]], standing: Mapping[str, tuple[Link, Offered]] = NOTHING
    ) -> None:
        self._rows = {**rows, **{row[1].tool.name: row for row in standing.values()}}
        self._rounds: Counter[str] = Counter()
        self.tools: tuple[Tool, ...] = tuple(offered.tool for _, offered in rows.values())
        self.substitutes: Mapping[str, Tool] = {hosted: offered.tool for hosted, (_, offered) in standing.items()}
        """Those that stand in for a provider's own tools."""
        self.rounds: int = max(link.settings.rounds for link, _ in self._rows.values())
        """After so many rounds every further call is refused."""

    def intercepts(self, name: str) -> bool:
        """Is it we who run this tool?"""
        return name in self._rows

    def shows(self, name: str) -> Literal["hidden", "text"]:
        """Does the client see calls of this tool?"""
        return self._rows[name][0].settings.shows

    async def run(self, calls: Sequence[Call]) -> tuple[Result, ...]:
        """The results of one round, in the order of the calls, which run side by side. Cancelled, it cancels them at
        their servers."""
        self._rounds.update({self._rows[call.name][0].settings.name for call in calls if call.name in self._rows})
        said = await asyncio.gather(*map(self._said, calls))
        return tuple(each.to(call) for each, call in zip(said, calls, strict=True))

    async def _said(self, call: Call) -> Said:
        row = self._rows.get(call.name)
        if row is None:
            return failed(f"there is no tool `{call.name}`")
        link, offered = row
        limit = link.settings.rounds
        if self._rounds[link.settings.name] > limit:
            return failed(f"the limit of {limit} rounds of calls is reached: answer with what you have")
        arguments = _arguments(call)
        if arguments is None:
            return failed(f"the arguments of `{call.name}` are no JSON object: call it again with one")
        return await link.call(offered.name, arguments)


def _arguments(call: Call) -> Mapping[str, Any] | None:
    if call.incomplete:
        return None
    if not call.arguments.strip():
        return NOTHING
    try:
        found = msgspec.json.decode(call.arguments)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
    return found if isinstance(found, dict) else None
