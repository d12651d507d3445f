"""The connection to one MCP server: it connects, lists the tools, runs calls (`tools/call`), reads their results, and
reconnects."""

from __future__ import annotations

import asyncio
import contextvars
import errno
import logging
import math
import os
import re
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from fnmatch import fnmatchcase
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import anyio
import httpx2
import msgspec
from mcp import Client, MCPError
from mcp import types as mcp_types
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import MCP_SESSION_ID, streamable_http_client
from mcp.client.subscriptions import SubscriptionLost
from mcp.shared._stream_protocols import ReadStream, WriteStream
from mcp.shared.message import SessionMessage
from mcp.types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from toolwire.core.ir import Media, Part, Text, Tool
from toolwire.core.json_values import Json
from toolwire.core.losses import ADDED_ORIGIN
from toolwire.core.version import VERSION
from toolwire.gateway.features.mcp import program_guard
from toolwire.gateway.features.mcp.offered_tools import (
    ConnectionTiming,
    OfferedTool,
    ServerState,
    StateCallback,
    ToolOutcome,
    exposed_tool_name,
    failed_outcome,
)
from toolwire.gateway.features.mcp.settings import McpServer
from toolwire.gateway.http.large_work import run_by_size
from toolwire.gateway.http.redact import printable_text, redact

MIN_SECRET_LENGTH = 6
"""Shorter values are words such as `true`; replacing these would garble the text."""
MAX_ERROR_LENGTH = 300
REDACTED = "…"
CONNECTION_ENDED = "the connection ended"


class ServerDown(Exception):
    """The server is not connected; the text says why."""


def _error_text(error: BaseException, last_output: str) -> str:
    match error:
        case ValidationError():
            return "its answer is not valid MCP"
        case httpx2.ConnectError() | httpx2.ConnectTimeout():
            return "it cannot be reached"
        case httpx2.HTTPError():
            return f"the connection failed ({type(error).__name__})"
        case FileNotFoundError() | PermissionError():
            return f"it cannot be started: {error.strerror}"
        case _:
            text = str(error) or type(error).__name__
            is_end = "onnection closed" in text or text == CONNECTION_ENDED
            return f"{text}; its last output: {last_output}" if last_output and is_end else text


MAX_LIST_PAGES = 100
"""Further pages of a list of tools are ignored, in case it never ends."""
SESSION_END_TIMEOUT = 1.0
"""Seconds to end the session of a URL."""
CLOSE_TIMEOUT = 10.0
"""Seconds for a server to close. The SDK needs less: it asks a program to end, terminates it, then kills it."""
LOST_SESSION_TEXT = re.compile(r"(?i)session|^Server returned an error response$")
"""The error messages of the SDK and of servers for a lost session."""


class ServerConnection:
    """A server with its state and its tools."""

    def __init__(self, settings: McpServer, timing: ConnectionTiming, on_state_changed: StateCallback) -> None:
        self.settings = settings
        self.state: ServerState = "idle"
        self.last_error = ""
        """The last error; empty while the server is up."""
        self.version = ""
        """The server's own name and version."""
        self.tools: tuple[OfferedTool, ...] = ()
        """The tools as listed last, sorted by name; none if the server has been down for long."""
        self._timing, self._on_state_changed = timing, on_state_changed
        self._listed_tools: tuple[mcp_types.Tool, ...] = ()
        self._client: Client | None = None
        self._client_with_lost_session: Client | None = None
        """The client whose session the server may have lost."""
        self._scope: anyio.CancelScope | None = None
        self._task: asyncio.Task[None] | None = None
        self._connect_settled = asyncio.Event()
        """Set while no connection is being made."""
        self._stop_waiting = asyncio.Event()
        self._tools_stale = asyncio.Event()
        self._calls: set[asyncio.Task[ToolOutcome]] = set()
        self._call_slots = asyncio.Semaphore(settings.max_parallel)
        self._forget_tools_timer: asyncio.TimerHandle | None = None
        self._failures = 0
        self.was_tried = False
        """Whether the first attempt has succeeded or failed. From then on, no request waits for the server."""
        self._is_reconnecting = False
        """Whether the connection is closed on purpose, to be made again at once."""
        self._closed = False
        self._stderr_tail = StderrTail()

    # --- for the gateway ---

    def start(self) -> None:
        """Start to connect, without waiting."""
        if self._task is None and not self._closed:
            # In a context of its own, because it outlives the request and its trace.
            self._task = asyncio.get_running_loop().create_task(self._keep_connected(), context=contextvars.Context())

    async def wait_until_tried(self) -> None:
        """Connect, and wait for the first attempt only."""
        self.start()
        if not self.was_tried:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._connect_settled.wait(), self.settings.connect_timeout)

    def apply_settings(self, settings: McpServer) -> None:
        """Use other settings for the same connection."""
        if settings.max_parallel != self.settings.max_parallel:
            self._call_slots = asyncio.Semaphore(settings.max_parallel)
        self.settings = settings
        self._set_tools(self._listed_tools)

    async def call_tool(self, tool: str, arguments: Mapping[str, Any]) -> ToolOutcome:
        """Run a tool (MCP `tools/call`). Failures are error results. If this is cancelled, the call is cancelled at the
        server."""
        self.start()
        task = asyncio.get_running_loop().create_task(self._run_call(tool, arguments))
        self._calls.add(task)
        task.add_done_callback(self._discard_call)
        try:
            await asyncio.wait({task}, timeout=self.settings.timeout)
        finally:
            finished = task.done()
            task.cancel()  # the SDK tells the server, which may take a while
        label = f"the tool `{tool}` of the MCP server `{self.settings.name}`"
        if not finished:
            return failed_outcome(f"{label} did not answer within {self.settings.timeout:g} seconds")
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        if error is not None:  # whatever the connection says that ends because the server is not wanted any more
            return failed_outcome(f"{label} failed: {self.last_error if self._closed else self._describe_error(error)}")
        return task.result()

    async def close(self) -> None:
        """Close the connection: a program is asked to end, then terminated, then killed."""
        self._closed, self.state = True, "closed"
        self.last_error = "it is no longer configured, or the gateway is shutting down"
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

    def _describe_error(self, error: BaseException) -> str:
        """The error in one line, without the secrets of the configuration."""
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        text = _error_text(error, self._stderr_tail.last_line)
        for secret in sorted(self.settings.secrets, key=len, reverse=True):
            if len(secret) >= MIN_SECRET_LENGTH:
                text = text.replace(secret, REDACTED)
        return printable_text(redact(" ".join(text.split())), MAX_ERROR_LENGTH)

    def _discard_call(self, task: asyncio.Task[ToolOutcome]) -> None:
        self._calls.discard(task)
        if not task.cancelled():
            task.exception()  # marks it as retrieved, so that asyncio does not log it

    async def _run_call(self, tool: str, arguments: Mapping[str, Any]) -> ToolOutcome:
        async with self._call_slots:
            client = await self._wait_for_client()
            try:
                return await self._read_result(await client.call_tool(tool, dict(arguments)))
            except MCPError as error:
                if client is not self._client_with_lost_session or not LOST_SESSION_TEXT.search(error.message):
                    raise
            # The server has restarted and did nothing with the call, so it is sent again.
            if client is self._client:
                self._is_reconnecting = True
                self._drop_connection()
            return await self._read_result(await (await self._wait_for_client()).call_tool(tool, dict(arguments)))

    async def _read_result(self, result: mcp_types.CallToolResult) -> ToolOutcome:
        """The result; an error result, from which the model learns what to do, if it is too large."""
        texts = (block.text for block in result.content if isinstance(block, mcp_types.TextContent))
        outcome = await run_by_size(sum(map(len, texts)), lambda: read_tool_result(result))
        if _outcome_size(outcome) <= self.settings.max_result_bytes:
            return outcome
        return failed_outcome(f"the result is too large: {_too_large_text(self.settings.max_result_bytes)}")

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
            if self._forget_tools_timer is None or self._forget_tools_timer.cancelled():
                self._forget_tools_timer = loop.call_later(self._timing.keep_lost_tools, self._set_tools, ())
            self._set_state("down", self._describe_error(error or ServerDown(CONNECTION_ENDED)))
            if self._failures:
                delay = self._timing.first_retry_delay * 2 ** min(self._failures - 1, 16)
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._stop_waiting.wait(), min(self._timing.max_retry_delay, delay))

    def _set_state(self, state: ServerState, error: str = "") -> None:
        if self._closed:
            return
        if state != "connecting":  # until it is known how this try ends, the last one says what is wrong
            self.last_error = error
        self.state = state
        if state == "connecting":
            self._connect_settled.clear()
        else:
            self.was_tried = True
            self._connect_settled.set()
            self._on_state_changed(self.settings.name, state, error)

    def _drop_connection(self) -> None:
        """Give up the connection, because the other side has ended."""
        if self._scope is not None:
            self._scope.cancel()
        if self.state == "up":
            self._set_state("connecting")

    async def _connect_and_watch(self) -> None:
        """Connect, and return when the connection ends. It is cancelled by its scope only, because only then the SDK
        ends the program properly."""
        if self.settings.missing_variables:
            raise ServerDown(f"{', '.join(self.settings.missing_variables)} is not set in the environment")
        self._stderr_tail = StderrTail()
        seconds = self.settings.connect_timeout
        with anyio.CancelScope(deadline=anyio.current_time() + seconds) as scope:
            self._scope = scope
            if self._closed:
                return
            client = Client(
                open_transport(self.settings, self._stderr_tail, self._drop_connection, self._note_lost_session),
                # `auto` starts with `server/discover`. Some servers fail on that, so every second attempt is `legacy`.
                mode="legacy" if self._failures % 2 else "auto",
                message_handler=self._on_message,
                client_info=mcp_types.Implementation(name="toolwire", version=VERSION),
                cache=None,
            )
            async with client:
                tools = await self._list_tools(client)
                scope.deadline = math.inf
                if self._forget_tools_timer is not None:
                    self._forget_tools_timer.cancel()
                self._client, info = client, client.server_info
                self.version = f"{info.name} {info.version}" if info is not None else ""
                self._set_tools(tools)
                self._set_state("up")
                await self._watch_tools(client)
        if scope.cancelled_caught and scope.deadline != math.inf and anyio.current_time() >= scope.deadline:
            raise ServerDown(f"it did not list its tools within {seconds:g} seconds")

    async def _on_message(self, message: object) -> None:
        if isinstance(message, mcp_types.ToolListChangedNotification):
            self._tools_stale.set()

    async def _watch_tools(self, client: Client) -> None:
        """Keep the list of tools up to date until the connection ends."""
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
        """Subscribe to changes of the tools, as the protocol of 2026 requires. If the server refuses, they are listed
        every `relist_interval`."""
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
                self._tools_stale.set()  # changes in between were not reported

    async def _list_tools(self, client: Client) -> tuple[mcp_types.Tool, ...]:
        if client.server_capabilities.tools is None:
            return ()
        page = await client.list_tools()
        tools = page.tools
        for _ in range(MAX_LIST_PAGES - 1):
            if page.next_cursor is None:
                break
            page = await client.list_tools(cursor=page.next_cursor)
            tools += page.tools
        return tuple(tools)

    # --- tools ---

    def _set_tools(self, listed: tuple[mcp_types.Tool, ...]) -> bool:
        """Store the tools; returns whether the offered ones have changed."""
        offered = [_read_tool(self.settings.name, tool) for tool in sorted(listed, key=lambda tool: tool.name)]
        found: dict[str, OfferedTool] = {}
        for one in offered:
            if any(fnmatchcase(name, glob) for name in (one.name, one.tool.name) for glob in self.settings.tools):
                found.setdefault(one.tool.name, one)
        tools = tuple(found[name] for name in sorted(found))
        self._listed_tools, before, self.tools = listed, self.tools, tools
        return tools != before


def _read_tool(server: str, tool: mcp_types.Tool) -> OfferedTool:
    title = tool.title or (tool.annotations.title if tool.annotations is not None else None)
    shown = Tool(
        exposed_tool_name(server, tool.name),
        description=tool.description or title,
        parameters=tool.input_schema,
        output=tool.output_schema,
        origin=ADDED_ORIGIN,
    )
    return OfferedTool(tool.name, shown)


# --- results of tools ---


def read_tool_result(result: mcp_types.CallToolResult) -> ToolOutcome:
    """All content of a result, with the structured content only if the rest does not repeat it."""
    parts = tuple(_read_block(block) for block in result.content)
    error = True if result.is_error else None
    structured = result.structured_content
    if structured is None:
        return ToolOutcome(parts, error)
    structured_text = Text(msgspec.json.encode(structured).decode())
    if not parts:
        return ToolOutcome((structured_text,), error, structured)
    if not _repeats_structured_content(result.content, structured):
        return ToolOutcome((*parts, structured_text), error)
    is_same = len(parts) == 1 and isinstance(parts[0], Text) and _parse_json(parts[0].text) == structured
    return ToolOutcome(parts, error, structured if is_same else None)


def _too_large_text(max_bytes: int) -> str:
    return f"it has more than {max_bytes} bytes (`max_result_bytes`): ask for less"


def _outcome_size(outcome: ToolOutcome) -> int:
    return sum(
        len(part.text.encode()) if isinstance(part, Text) else len(part.data or "") if isinstance(part, Media) else 0
        for part in outcome.content
    )


def _repeats_structured_content(content: list[mcp_types.ContentBlock], structured: Json) -> bool:
    """Whether the content already contains the structured content. MCP asks servers to repeat it as text; many repeat
    only the value of its single key, or put the content blocks themselves there."""
    candidates = [structured]
    if isinstance(structured, dict) and len(structured) == 1:
        candidates += structured.values()
    texts = [block.text for block in content if isinstance(block, mcp_types.TextContent)]
    blocks = [block.model_dump(mode="json", by_alias=True, exclude_none=True) for block in content]
    contained = [*texts, *map(_parse_json, texts), texts, [*map(_parse_json, texts)], blocks]
    return any(value in contained for value in candidates)


def _parse_json(text: str) -> Json:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return text


def _read_block(block: mcp_types.ContentBlock) -> Part:
    match block:
        case mcp_types.TextContent():
            return Text(block.text)
        case mcp_types.ImageContent():
            return Media("image", mime=block.mime_type, data=block.data)
        case mcp_types.AudioContent():
            return Media("audio", mime=block.mime_type, data=block.data)
        case mcp_types.ResourceLink():
            description = f" ({block.description})" if block.description else ""
            return Text(f"{block.title or block.name}{description}: {block.uri}")
        case mcp_types.EmbeddedResource():
            return _read_resource(block)


def _read_resource(block: mcp_types.EmbeddedResource) -> Part:
    resource = block.resource
    if not isinstance(resource, mcp_types.BlobResourceContents):
        return Text(resource.text)
    mime = resource.mime_type or "application/octet-stream"
    name = str(resource.uri).rstrip("/").rpartition("/")[2]
    match mime.partition("/")[0]:
        case "image" | "audio" | "video" as kind:
            return Media(kind, mime=mime, data=resource.blob, name=name)
        case _:
            return Media("file", mime=mime, data=resource.blob, name=name)


# --- the two transports: a program and its pipes, or a URL; both report when the other side ends ---

STDERR_TAIL_BYTES = 4096
"""Only the last bytes of a program's standard error are kept."""
_MIN_MESSAGE_BYTES = 4 * 1024 * 1024
UNKNOWN_SESSION_STATUSES = (400, 404)
"""Statuses for an unknown session: the specification says 404, the reference server sends 400."""
IncomingMessage = SessionMessage | Exception
MessageStreams = tuple[ReadStream[IncomingMessage], WriteStream[SessionMessage]]

for _name in ("mcp", "client"):  # the SDK's loggers; our own log reports the errors of servers
    logging.getLogger(_name).addHandler(logging.NullHandler())


class StderrTail(asyncio.Protocol):
    """The end of a program's standard error."""

    def __init__(self) -> None:
        self._buffer = b""

    def data_received(self, data: bytes) -> None:
        self._buffer = (self._buffer + data)[-STDERR_TAIL_BYTES:]

    @property
    def last_line(self) -> str:
        lines = self._buffer.decode(errors="replace").strip().splitlines()
        return lines[-1].strip() if lines else ""


@asynccontextmanager
async def open_transport(
    server: McpServer, tail: StderrTail, on_ended: Callable[[], None], on_session_lost: Callable[[], None]
) -> AsyncGenerator[MessageStreams, None]:
    """The two streams of messages. `on_ended` is called when the incoming stream ends, `on_session_lost` when the
    server may have lost our session."""
    if server.command:
        async with _open_pipes(server, tail) as (reading, writing):
            yield WatchedStream(reading, on_ended), writing
        return
    timeout = httpx2.Timeout(server.connect_timeout, read=None)  # each call has its own deadline
    # Not compressed, because the size of an answer is limited while it is read.
    headers = {"accept-encoding": "identity"} | {name: value.reveal() for name, value in server.headers.items()}

    async def check_session(response: httpx2.Response) -> None:
        if response.status_code in UNKNOWN_SESSION_STATUSES and MCP_SESSION_ID in response.request.headers:
            on_session_lost()
        is_stream = response.headers.get("content-type", "").lower().startswith("text/event-stream")
        if response.headers.get("content-encoding", "identity") != "identity":
            raise httpx2.DecodingError("it compresses its answers, though it was asked not to")
        if not is_stream and isinstance(response.stream, httpx2.AsyncByteStream):
            response.stream = LimitedStream(response.stream, _max_message_bytes(server))

    async with (
        httpx2.AsyncClient(headers=headers, timeout=timeout, event_hooks={"response": [check_session]}) as client,
        streamable_http_client(
            server.url.reveal(), http_client=client, max_sse_event_size=_max_message_bytes(server)
        ) as (reading, writing),
    ):
        yield WatchedStream(reading, on_ended), writing


@asynccontextmanager
async def _open_pipes(server: McpServer, tail: StderrTail) -> AsyncGenerator[MessageStreams, None]:
    """Start a program. Its standard error is always read, so that it never blocks."""
    env = {name: value.reveal() for name, value in server.env.items()}
    program, *arguments = _guard_program(server, env.get("PATH", os.environ.get("PATH", os.defpath)))
    parameters = StdioServerParameters(
        command=program, args=arguments, env=env, cwd=server.cwd or None, encoding_error_handler="replace"
    )
    if sys.platform == "win32":  # where the loop cannot read from pipes
        with open(os.devnull, "w") as nowhere:
            async with stdio_client(parameters, errlog=nowhere) as streams:
                yield streams
        return
    read, write = os.pipe()
    reading, writing = open(read, "rb", 0), open(write, "w")  # noqa: SIM115  closed below
    try:
        pipe, _ = await asyncio.get_running_loop().connect_read_pipe(lambda: tail, reading)
    except BaseException:
        reading.close()
        writing.close()
        raise
    try:
        async with stdio_client(parameters, errlog=writing) as streams:
            writing.close()
            yield streams
    finally:
        writing.close()
        pipe.close()


def _guard_program(server: McpServer, path: str) -> tuple[str, ...]:
    """The command with a guard before it, which ends the program if the gateway is killed, and limits its messages.
    Raises `OSError` if the program cannot be started."""
    if sys.platform == "win32":  # there the SDK uses a job object for it
        return server.command
    name = server.command[0]
    folders = [""] if "/" in name else path.split(os.pathsep)
    found = [place for folder in folders if (place := Path(server.cwd, folder, name)).exists()]
    if not any(place.is_file() and os.access(place, os.X_OK) for place in found):
        number = errno.EACCES if found else errno.ENOENT
        raise OSError(number, os.strerror(number))
    return (sys.executable, "-I", "-S", program_guard.__file__, str(_max_message_bytes(server)), *server.command)


def _max_message_bytes(server: McpServer) -> int:
    """The most bytes of a message. Escapes in JSON make a result longer, and lists of tools have messages, too."""
    return 2 * server.max_result_bytes + _MIN_MESSAGE_BYTES


class LimitedStream(httpx2.AsyncByteStream):
    """The body of a response; an error if it is too long."""

    def __init__(self, stream: httpx2.AsyncByteStream, max_bytes: int) -> None:
        self._stream, self._max_bytes = stream, max_bytes

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for data in self._stream:
            size += len(data)
            if size > self._max_bytes:
                raise httpx2.StreamError(_too_large_text(self._max_bytes))
            yield data

    async def aclose(self) -> None:
        await self._stream.aclose()


class WatchedStream:
    """A stream of messages that reports its end."""

    def __init__(self, stream: ReadStream[IncomingMessage], on_ended: Callable[[], None]) -> None:
        self._stream, self._on_ended = stream, on_ended

    @property
    def last_context(self) -> object:
        """The SDK reads this attribute."""
        return getattr(self._stream, "last_context", None)

    async def receive(self) -> IncomingMessage:
        return await self._stream.receive()

    async def aclose(self) -> None:
        await self._stream.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> IncomingMessage:
        try:
            return await self._stream.__anext__()
        except StopAsyncIteration:
            self._on_ended()
            raise

    async def __aenter__(self) -> Self:
        await self._stream.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return await self._stream.__aexit__(kind, error, trace)
