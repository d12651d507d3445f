"""One MCP server: connected when it is first wanted, connected again when it was lost, never waited for beyond its
time. Nothing that it does reaches further than this file."""

from __future__ import annotations

import asyncio
import contextvars
import math
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from fnmatch import fnmatchcase
from typing import Any, Literal, TypeAlias

import anyio
from mcp import Client, MCPError
from mcp import types as wire
from mcp.client.subscriptions import SubscriptionLost
from mcp.types.version import MODERN_PROTOCOL_VERSIONS
from msgspec import Struct

from toolwire import __version__
from toolwire.gateway.mcp.failing import Down, plain
from toolwire.gateway.mcp.names import exposed
from toolwire.gateway.mcp.results import said
from toolwire.gateway.mcp.said import Said, failed
from toolwire.gateway.mcp.transport import Tail, transport
from toolwire.gateway.settings.config import McpServer
from toolwire.ir import Tool

State: TypeAlias = Literal["idle", "connecting", "up", "down", "closed"]
PAGES = 100
"""Of a list of tools; one that never ends is cut."""
FAREWELL = 1.0
"""Seconds to tell a URL that its session is over."""
CLOSING = 10.0
"""Seconds for a server to close. The SDK needs less: it asks, then terminates, then kills."""
NO_SESSION = re.compile(r"(?i)session|^Server returned an error response$")
"""How a server that forgot us says so, itself or in the SDK's words."""


class Pace(Struct, frozen=True, kw_only=True):
    """How often and how long, in seconds."""

    first: float = 1.0
    """Until a server is tried again."""
    most: float = 60.0
    """The longest wait between two tries: every one doubles it."""
    steady: float = 10.0
    """A connection that held for so long is made again at once when it is lost; a shorter one counts as a failure."""
    keep: float = 300.0
    """How long the tools of a lost server are still offered: a list that flickers spoils every cache of prompts."""
    look: float = 300.0
    """Until tools are listed again though nobody said that they changed."""
    gap: float = 1.0
    """The shortest time between two lists."""


class Offered(Struct, frozen=True):
    """A tool: as the server knows it and as a model does."""

    name: str
    tool: Tool


class Link:
    """A server, its state and its tools. `changed` is called when the tools did, `says` when they or the state did."""

    def __init__(
        self, settings: McpServer, pace: Pace, changed: Callable[[], None], says: Callable[[str, State, str], None]
    ) -> None:
        self.settings = settings
        self.state: State = "idle"
        self.why = ""
        """What went wrong last; nothing while it is up."""
        self.version = ""
        """What the server calls itself."""
        self._pace, self._changed, self._says = pace, changed, says
        self._tools: tuple[Offered, ...] = ()
        self._listed: tuple[wire.Tool, ...] = ()
        self._client: Client | None = None
        self._forgetful: Client | None = None
        """The one whose server may have forgotten it."""
        self._scope: anyio.CancelScope | None = None
        self._task: asyncio.Task[None] | None = None
        self._settled = asyncio.Event()
        """Set whenever no connection is being made."""
        self._wake = asyncio.Event()
        self._stale = asyncio.Event()
        self._calls: set[asyncio.Task[Said]] = set()
        self._room = asyncio.Semaphore(settings.parallel)
        self._forgetting: asyncio.TimerHandle | None = None
        self._failures = 0
        self.tried = False
        """Has it come up, or failed to, at least once? From then on nobody waits for it."""
        self._anew = False
        """Is the connection given up only to make it again?"""
        self._closed = False
        self._tail = Tail()

    # --- for the gateway ---

    @property
    def tools(self) -> tuple[Offered, ...]:
        """Its tools as they were last listed, by name; none when it has been down for long."""
        return self._tools

    def start(self) -> None:
        """Connect, if that was not begun yet. Nothing is waited for."""
        if self._task is None and not self._closed:
            # Its own context: it outlives the request that it begins with, and belongs to no trace.
            self._task = asyncio.get_running_loop().create_task(self._run(), context=contextvars.Context())

    async def ready(self) -> None:
        """Connect, and wait until the first try has come to an end; later ones are not waited for."""
        self.start()
        if not self.tried:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._settled.wait(), self.settings.connect_timeout)

    def adapt(self, settings: McpServer) -> None:
        """Other settings for the same peer."""
        if settings.parallel != self.settings.parallel:
            self._room = asyncio.Semaphore(settings.parallel)
        self.settings = settings
        self._offer(self._listed)

    async def call(self, tool: str, arguments: Mapping[str, Any]) -> Said:
        """What came of a call, in any case. Whoever is cancelled here cancels the call at the server."""
        self.start()
        task = asyncio.get_running_loop().create_task(self._called(tool, arguments))
        self._calls.add(task)
        task.add_done_callback(self._over)
        try:
            await asyncio.wait({task}, timeout=self.settings.timeout)
        finally:
            finished = task.done()
            task.cancel()  # the SDK tells the server; that may take its time without us
        if not finished:
            return failed(f"{self._called_name(tool)} gave no answer within {self.settings.timeout:g} seconds")
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        return task.result() if error is None else failed(f"{self._called_name(tool)} failed: {self._plain(error)}")

    async def close(self) -> None:
        """End it: a program is asked, then terminated, then killed."""
        self._closed, self.state, self.why = True, "closed", "it is no longer configured, or the gateway stops"
        self._wake.set()
        self._settled.set()
        self._stale.set()
        if self._scope is not None and self._client is not None:
            self._scope.deadline = anyio.current_time() + FAREWELL
        elif self._scope is not None:
            self._scope.cancel()
        if self._forgetting is not None:
            self._forgetting.cancel()
        waiting = {task for task in (self._task, *self._calls) if task is not None and not task.done()}
        if waiting:
            _, late = await asyncio.wait(waiting, timeout=CLOSING)
            for task in late:
                task.cancel()

    # --- calls ---

    def _called_name(self, tool: str) -> str:
        return f"the tool `{tool}` of the MCP server `{self.settings.name}`"

    def _plain(self, error: BaseException) -> str:
        return plain(error, self.settings, self._tail.last)

    def _over(self, task: asyncio.Task[Said]) -> None:
        self._calls.discard(task)
        if not task.cancelled():
            task.exception()  # seen, so that nobody complains of it

    async def _called(self, tool: str, arguments: Mapping[str, Any]) -> Said:
        async with self._room:
            client = await self._current()
            try:
                return said(await client.call_tool(tool, dict(arguments)))
            except MCPError as error:
                if client is not self._forgetful or not NO_SESSION.search(error.message):
                    raise
            # A server that began anew: it did nothing with the call, and gets it once more.
            if client is self._client:
                self._anew = True
                self._lost()
            return said(await (await self._current()).call_tool(tool, dict(arguments)))

    async def _current(self) -> Client:
        if self.state in ("idle", "connecting"):
            await self._settled.wait()
        if self._client is None:
            raise Down(self.why)
        return self._client

    def _forgotten(self) -> None:
        self._forgetful = self._client

    # --- the connection ---

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            self._enter("connecting")
            begun = loop.time()
            connection = loop.create_task(self._connection())
            await asyncio.wait({connection})
            error = connection.exception()
            lasted = self._client is not None and loop.time() - begun >= self._pace.steady
            self._client, self._scope = None, None
            if self._closed:
                return
            if self._anew:
                self._anew = False
                continue
            self._failures = 0 if lasted else self._failures + 1
            self._keep_for_a_while(loop)
            self._enter("down", self._plain(error) if error is not None else self._ending())
            if self._failures:
                await self._rest()

    async def _rest(self) -> None:
        """Wait before the next try."""
        seconds = min(self._pace.most, self._pace.first * 2 ** min(self._failures - 1, 16))
        with suppress(TimeoutError):
            await asyncio.wait_for(self._wake.wait(), seconds)

    def _ending(self) -> str:
        last = self._tail.last
        return self._plain(Down(f"the connection ended{f'; it last said: {last}' if last else ''}"))

    def _enter(self, state: State, why: str = "") -> None:
        if self._closed:
            return
        self.state, self.why = state, why
        if state == "connecting":
            self._settled.clear()
        else:
            self.tried = True
            self._settled.set()
            self._says(self.settings.name, state, why)

    def _lost(self) -> None:
        """The other side is gone: this connection has no use any more."""
        if self._scope is not None:
            self._scope.cancel()
        if self.state == "up":
            self._enter("connecting")

    async def _connection(self) -> None:
        """From connecting to the end of the connection. Never cancelled from outside but by its scope: the SDK then
        ends the program in good order."""
        if self.settings.missing:
            raise Down(f"{', '.join(self.settings.missing)} is not set in the environment")
        self._tail = Tail()
        seconds = self.settings.connect_timeout
        with anyio.CancelScope(deadline=anyio.current_time() + seconds) as scope:
            self._scope = scope
            if self._closed:
                return
            async with self._made() as client:
                tools = await self._list(client)
                scope.deadline = math.inf
                self._up(client, tools)
                await self._watch(client)
        if scope.cancelled_caught and scope.deadline != math.inf and anyio.current_time() >= scope.deadline:
            raise Down(f"it did not list its tools within {seconds:g} seconds")

    def _made(self) -> Client:
        return Client(
            transport(self.settings, self._tail, self._lost, self._forgotten),
            # What it is asked first tells old servers from new ones; one that cannot bear that is asked the old way.
            mode="legacy" if self._failures % 2 else "auto",
            message_handler=self._told,
            client_info=wire.Implementation(name="toolwire", version=__version__),
            cache=None,
        )

    async def _told(self, message: object) -> None:
        if isinstance(message, wire.ToolListChangedNotification):
            self._stale.set()

    def _up(self, client: Client, tools: tuple[wire.Tool, ...]) -> None:
        if self._forgetting is not None:
            self._forgetting.cancel()
        info = client.server_info
        self._client = client
        self.version = f"{info.name} {info.version}" if info is not None else ""
        self._offer(tools)
        self._enter("up")

    async def _watch(self, client: Client) -> None:
        """Follow the list of tools until the connection ends."""
        offered = client.server_capabilities.tools
        listens = offered is not None and offered.list_changed and client.protocol_version in MODERN_PROTOCOL_VERSIONS
        async with anyio.create_task_group() as group:
            if listens:
                group.start_soon(self._listen, client)
            while True:
                with anyio.move_on_after(self._pace.look):
                    await self._stale.wait()
                if self._closed:
                    group.cancel_scope.cancel()
                    return
                self._stale.clear()
                with anyio.fail_after(self.settings.connect_timeout):
                    listed = await self._list(client)
                if self._offer(listed):
                    self._enter("up")
                await anyio.sleep(self._pace.gap)

    async def _listen(self, client: Client) -> None:
        """Since 2026 a server speaks of changes only to those who ask; one that will not is looked at now and then."""
        while True:
            try:
                async with client.listen(tools_list_changed=True) as events:
                    async for _ in events:
                        self._stale.set()
                return
            except MCPError:
                return
            except SubscriptionLost:
                await anyio.sleep(self._pace.first)
                self._stale.set()  # what was said in between was not heard

    async def _list(self, client: Client) -> tuple[wire.Tool, ...]:
        if client.server_capabilities.tools is None:
            return ()
        tools: list[wire.Tool] = []
        cursor: str | None = None
        for _ in range(PAGES):
            page = await client.list_tools(cursor=cursor)
            tools += page.tools
            cursor = page.next_cursor
            if cursor is None:
                break
        return tuple(tools)

    # --- tools ---

    def _offer(self, listed: tuple[wire.Tool, ...]) -> bool:
        """Is anything else offered from now on?"""
        found: dict[str, Offered] = {}
        for tool in sorted(listed, key=lambda tool: tool.name):
            offered = _offered(self.settings.name, tool)
            if any(fnmatchcase(name, glob) for name in (tool.name, offered.tool.name) for glob in self.settings.tools):
                found.setdefault(offered.tool.name, offered)
        tools = tuple(sorted(found.values(), key=lambda offered: offered.tool.name))
        self._listed = listed
        if tools == self._tools:
            return False
        self._tools = tools
        self._changed()
        return True

    def _keep_for_a_while(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._forgetting is None or self._forgetting.cancelled():
            self._forgetting = loop.call_later(self._pace.keep, self._offer, ())


def _offered(server: str, tool: wire.Tool) -> Offered:
    title = tool.title or (tool.annotations.title if tool.annotations is not None else None)
    return Offered(
        tool.name,
        Tool(
            exposed(server, tool.name),
            description=tool.description or title,
            parameters=tool.input_schema,
            output=tool.output_schema,
        ),
    )
