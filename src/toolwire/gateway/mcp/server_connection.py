"""What went wrong with a server, in a line that may be shown to a model and in a log."""

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
import httpx2
from mcp import Client, MCPError
from mcp import types as wire
from mcp.client.subscriptions import SubscriptionLost
from mcp.types.version import MODERN_PROTOCOL_VERSIONS
from msgspec import Struct
from pydantic import ValidationError

from toolwire import __version__
from toolwire.core.ir import Tool
from toolwire.gateway.config.config import McpServer
from toolwire.gateway.mcp.results import read_tool_result
from toolwire.gateway.mcp.tools import ToolOutcome, exposed_tool_name, failed_outcome
from toolwire.gateway.mcp.transport import StderrTail, open_transport
from toolwire.gateway.telemetry.redact import printable_text, redact

MIN_SECRET_LENGTH = 6
"""Shorter values are words such as `true`, and hiding them would hide what is said."""
MAX_ERROR_LENGTH = 300
REDACTED = "…"


class ServerDown(Exception):
    """There is nobody to ask, and why."""


def describe_error(error: BaseException, server: McpServer, last_output: str = "") -> str:
    """One line, without anything that the configuration keeps secret. `last` is what a program said last."""
    text = _error_text(_root_error(error), last_output)
    for secret in sorted(server.secrets, key=len, reverse=True):
        if len(secret) >= MIN_SECRET_LENGTH:
            text = text.replace(secret, REDACTED)
    return printable_text(redact(" ".join(text.split())), MAX_ERROR_LENGTH)


def _root_error(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _error_text(error: BaseException, last_output: str) -> str:
    match error:
        case ValidationError():
            return "it answered with something that MCP does not know"
        case httpx2.ConnectError() | httpx2.ConnectTimeout():
            return "it cannot be reached"
        case httpx2.HTTPError():
            return f"the connection failed ({type(error).__name__})"
        case FileNotFoundError() | PermissionError():
            return f"it cannot be started: {error.strerror}"
        case _:
            text = str(error) or type(error).__name__
            return f"{text}; it last said: {last_output}" if last_output and "onnection closed" in text else text


ServerState: TypeAlias = Literal["idle", "connecting", "up", "down", "closed"]
MAX_LIST_PAGES = 100
"""Of a list of tools; one that never ends is cut."""
SESSION_END_TIMEOUT = 1.0
"""Seconds to tell a URL that its session is over."""
CLOSE_TIMEOUT = 10.0
"""Seconds for a server to close. The SDK needs less: it asks, then terminates, then kills."""
LOST_SESSION_TEXT = re.compile(r"(?i)session|^Server returned an error response$")
"""How a server that forgot us says so, itself or in the SDK's words."""


class ConnectionTiming(Struct, frozen=True, kw_only=True):
    """How often and how long, in seconds."""

    first_retry_delay: float = 1.0
    """Until a server is tried again."""
    max_retry_delay: float = 60.0
    """The longest wait between two tries: every one doubles it."""
    stable_after: float = 10.0
    """A connection that held for so long is made again at once when it is lost; a shorter one counts as a failure."""
    keep_lost_tools: float = 300.0
    """How long the tools of a lost server are still offered: a list that flickers spoils every cache of prompts."""
    relist_interval: float = 300.0
    """Until tools are listed again though nobody said that they changed."""
    min_list_interval: float = 1.0
    """The shortest time between two lists."""


class OfferedTool(Struct, frozen=True):
    """A tool: as the server knows it and as a model does."""

    name: str
    tool: Tool


class ServerConnection:
    """A server, its state and its tools. `changed` is called when the tools did, `says` when they or the state did."""

    def __init__(
        self,
        settings: McpServer,
        timing: ConnectionTiming,
        on_tools_changed: Callable[[], None],
        on_state_changed: Callable[[str, ServerState, str], None],
    ) -> None:
        self.settings = settings
        self.state: ServerState = "idle"
        self.last_error = ""
        """What went wrong last; nothing while it is up."""
        self.version = ""
        """What the server calls itself."""
        self._timing, self._on_tools_changed, self._on_state_changed = timing, on_tools_changed, on_state_changed
        self._tools: tuple[OfferedTool, ...] = ()
        self._listed_tools: tuple[wire.Tool, ...] = ()
        self._client: Client | None = None
        self._client_with_lost_session: Client | None = None
        """The one whose server may have forgotten it."""
        self._scope: anyio.CancelScope | None = None
        self._task: asyncio.Task[None] | None = None
        self._connect_settled = asyncio.Event()
        """Set whenever no connection is being made."""
        self._stop_waiting = asyncio.Event()
        self._tools_stale = asyncio.Event()
        self._calls: set[asyncio.Task[ToolOutcome]] = set()
        self._call_slots = asyncio.Semaphore(settings.max_parallel)
        self._forget_tools_timer: asyncio.TimerHandle | None = None
        self._failures = 0
        self.was_tried = False
        """Has it come up, or failed to, at least once? From then on nobody waits for it."""
        self._is_reconnecting = False
        """Is the connection given up only to make it again?"""
        self._closed = False
        self._stderr_tail = StderrTail()

    # --- for the gateway ---

    @property
    def tools(self) -> tuple[OfferedTool, ...]:
        """Its tools as they were last listed, by name; none when it has been down for long."""
        return self._tools

    def start(self) -> None:
        """Connect, if that was not begun yet. Nothing is waited for."""
        if self._task is None and not self._closed:
            # Its own context: it outlives the request that it begins with, and belongs to no trace.
            self._task = asyncio.get_running_loop().create_task(self._keep_connected(), context=contextvars.Context())

    async def wait_until_tried(self) -> None:
        """Connect, and wait until the first try has come to an end; later ones are not waited for."""
        self.start()
        if not self.was_tried:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._connect_settled.wait(), self.settings.connect_timeout)

    def apply_settings(self, settings: McpServer) -> None:
        """Other settings for the same peer."""
        if settings.max_parallel != self.settings.max_parallel:
            self._call_slots = asyncio.Semaphore(settings.max_parallel)
        self.settings = settings
        self._set_tools(self._listed_tools)

    async def call_tool(self, tool: str, arguments: Mapping[str, Any]) -> ToolOutcome:
        """What came of a call, in any case. Whoever is cancelled here cancels the call at the server."""
        self.start()
        task = asyncio.get_running_loop().create_task(self._run_call(tool, arguments))
        self._calls.add(task)
        task.add_done_callback(self._discard_call)
        try:
            await asyncio.wait({task}, timeout=self.settings.timeout)
        finally:
            finished = task.done()
            task.cancel()  # the SDK tells the server; that may take its time without us
        if not finished:
            return failed_outcome(f"{self._tool_label(tool)} gave no answer within {self.settings.timeout:g} seconds")
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        return (
            task.result()
            if error is None
            else failed_outcome(f"{self._tool_label(tool)} failed: {self._describe_error(error)}")
        )

    async def close(self) -> None:
        """End it: a program is asked, then terminated, then killed."""
        self._closed, self.state, self.last_error = True, "closed", "it is no longer configured, or the gateway stops"
        self._stop_waiting.set()
        self._connect_settled.set()
        self._tools_stale.set()
        if self._scope is not None and self._client is not None:
            self._scope.deadline = anyio.current_time() + SESSION_END_TIMEOUT
        elif self._scope is not None:
            self._scope.cancel()
        if self._forget_tools_timer is not None:
            self._forget_tools_timer.cancel()
        waiting = {task for task in (self._task, *self._calls) if task is not None and not task.done()}
        if waiting:
            _, late = await asyncio.wait(waiting, timeout=CLOSE_TIMEOUT)
            for task in late:
                task.cancel()

    # --- calls ---

    def _tool_label(self, tool: str) -> str:
        return f"the tool `{tool}` of the MCP server `{self.settings.name}`"

    def _describe_error(self, error: BaseException) -> str:
        return describe_error(error, self.settings, self._stderr_tail.last_line)

    def _discard_call(self, task: asyncio.Task[ToolOutcome]) -> None:
        self._calls.discard(task)
        if not task.cancelled():
            task.exception()  # seen, so that nobody complains of it

    async def _run_call(self, tool: str, arguments: Mapping[str, Any]) -> ToolOutcome:
        async with self._call_slots:
            client = await self._wait_for_client()
            try:
                return read_tool_result(await client.call_tool(tool, dict(arguments)))
            except MCPError as error:
                if client is not self._client_with_lost_session or not LOST_SESSION_TEXT.search(error.message):
                    raise
            # A server that began anew: it did nothing with the call, and gets it once more.
            if client is self._client:
                self._is_reconnecting = True
                self._drop_connection()
            return read_tool_result(await (await self._wait_for_client()).call_tool(tool, dict(arguments)))

    async def _wait_for_client(self) -> Client:
        if self.state in ("idle", "connecting"):
            await self._connect_settled.wait()
        if self._client is None:
            raise ServerDown(self.last_error)
        return self._client

    def _note_lost_session(self) -> None:
        self._client_with_lost_session = self._client

    # --- the connection ---

    async def _keep_connected(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            self._set_state("connecting")
            begun = loop.time()
            connection = loop.create_task(self._connect_and_watch())
            await asyncio.wait({connection})
            error = connection.exception()
            lasted = self._client is not None and loop.time() - begun >= self._timing.stable_after
            self._client, self._scope = None, None
            if self._closed:
                return
            if self._is_reconnecting:
                self._is_reconnecting = False
                continue
            self._failures = 0 if lasted else self._failures + 1
            self._schedule_forgetting_tools(loop)
            self._set_state("down", self._describe_error(error) if error is not None else self._connection_ended_text())
            if self._failures:
                await self._wait_before_retry()

    async def _wait_before_retry(self) -> None:
        """Wait before the next try."""
        seconds = min(self._timing.max_retry_delay, self._timing.first_retry_delay * 2 ** min(self._failures - 1, 16))
        with suppress(TimeoutError):
            await asyncio.wait_for(self._stop_waiting.wait(), seconds)

    def _connection_ended_text(self) -> str:
        last = self._stderr_tail.last_line
        return self._describe_error(ServerDown(f"the connection ended{f'; it last said: {last}' if last else ''}"))

    def _set_state(self, state: ServerState, error: str = "") -> None:
        if self._closed:
            return
        self.state, self.last_error = state, error
        if state == "connecting":
            self._connect_settled.clear()
        else:
            self.was_tried = True
            self._connect_settled.set()
            self._on_state_changed(self.settings.name, state, error)

    def _drop_connection(self) -> None:
        """The other side is gone: this connection has no use any more."""
        if self._scope is not None:
            self._scope.cancel()
        if self.state == "up":
            self._set_state("connecting")

    async def _connect_and_watch(self) -> None:
        """From connecting to the end of the connection. Never cancelled from outside but by its scope: the SDK then
        ends the program in good order."""
        if self.settings.missing_variables:
            raise ServerDown(f"{', '.join(self.settings.missing_variables)} is not set in the environment")
        self._stderr_tail = StderrTail()
        seconds = self.settings.connect_timeout
        with anyio.CancelScope(deadline=anyio.current_time() + seconds) as scope:
            self._scope = scope
            if self._closed:
                return
            async with self._make_client() as client:
                tools = await self._list_tools(client)
                scope.deadline = math.inf
                self._mark_up(client, tools)
                await self._watch_tools(client)
        if scope.cancelled_caught and scope.deadline != math.inf and anyio.current_time() >= scope.deadline:
            raise ServerDown(f"it did not list its tools within {seconds:g} seconds")

    def _make_client(self) -> Client:
        return Client(
            open_transport(self.settings, self._stderr_tail, self._drop_connection, self._note_lost_session),
            # What it is asked first tells old servers from new ones; one that cannot bear that is asked the old way.
            mode="legacy" if self._failures % 2 else "auto",
            message_handler=self._on_message,
            client_info=wire.Implementation(name="toolwire", version=__version__),
            cache=None,
        )

    async def _on_message(self, message: object) -> None:
        if isinstance(message, wire.ToolListChangedNotification):
            self._tools_stale.set()

    def _mark_up(self, client: Client, tools: tuple[wire.Tool, ...]) -> None:
        if self._forget_tools_timer is not None:
            self._forget_tools_timer.cancel()
        info = client.server_info
        self._client = client
        self.version = f"{info.name} {info.version}" if info is not None else ""
        self._set_tools(tools)
        self._set_state("up")

    async def _watch_tools(self, client: Client) -> None:
        """Follow the list of tools until the connection ends."""
        offered = client.server_capabilities.tools
        listens = offered is not None and offered.list_changed and client.protocol_version in MODERN_PROTOCOL_VERSIONS
        async with anyio.create_task_group() as group:
            if listens:
                group.start_soon(self._listen_for_changes, client)
            while True:
                with anyio.move_on_after(self._timing.relist_interval):
                    await self._tools_stale.wait()
                if self._closed:
                    group.cancel_scope.cancel()
                    return
                self._tools_stale.clear()
                with anyio.fail_after(self.settings.connect_timeout):
                    listed = await self._list_tools(client)
                if self._set_tools(listed):
                    self._set_state("up")
                await anyio.sleep(self._timing.min_list_interval)

    async def _listen_for_changes(self, client: Client) -> None:
        """Since 2026 a server speaks of changes only to those who ask; one that will not is looked at now and then."""
        while True:
            try:
                async with client.listen(tools_list_changed=True) as events:
                    async for _ in events:
                        self._tools_stale.set()
                return
            except MCPError:
                return
            except SubscriptionLost:
                await anyio.sleep(self._timing.first_retry_delay)
                self._tools_stale.set()  # what was said in between was not heard

    async def _list_tools(self, client: Client) -> tuple[wire.Tool, ...]:
        if client.server_capabilities.tools is None:
            return ()
        tools: list[wire.Tool] = []
        cursor: str | None = None
        for _ in range(MAX_LIST_PAGES):
            page = await client.list_tools(cursor=cursor)
            tools += page.tools
            cursor = page.next_cursor
            if cursor is None:
                break
        return tuple(tools)

    # --- tools ---

    def _set_tools(self, listed: tuple[wire.Tool, ...]) -> bool:
        """Is anything else offered from now on?"""
        found: dict[str, OfferedTool] = {}
        for tool in sorted(listed, key=lambda tool: tool.name):
            offered = _read_tool(self.settings.name, tool)
            if any(fnmatchcase(name, glob) for name in (tool.name, offered.tool.name) for glob in self.settings.tools):
                found.setdefault(offered.tool.name, offered)
        tools = tuple(sorted(found.values(), key=lambda offered: offered.tool.name))
        self._listed_tools = listed
        if tools == self._tools:
            return False
        self._tools = tools
        self._on_tools_changed()
        return True

    def _schedule_forgetting_tools(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._forget_tools_timer is None or self._forget_tools_timer.cancelled():
            self._forget_tools_timer = loop.call_later(self._timing.keep_lost_tools, self._set_tools, ())


def _read_tool(server: str, tool: wire.Tool) -> OfferedTool:
    title = tool.title or (tool.annotations.title if tool.annotations is not None else None)
    return OfferedTool(
        tool.name,
        Tool(
            exposed_tool_name(server, tool.name),
            description=tool.description or title,
            parameters=tool.input_schema,
            output=tool.output_schema,
        ),
    )
