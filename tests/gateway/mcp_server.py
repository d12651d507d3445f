"""An MCP server with the official SDK: over its pipes, or with `http` as its argument over streamable HTTP, on a port
that it prints. Its tools do what tools do in the world; where one has to wait, it waits for the test (`MCP_CONTROL`)."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import Callable
from typing import Any

import anyio
import uvicorn
from mcp import types
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.stdio import stdio_server
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ToolsListChanged

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
TEXT = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
NUMBERS = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}, "required": ["a", "b"]}
ANY: dict[str, Any] = {"type": "object"}
LONG = "a_tool_with_a_name_that_goes_on_" * 6 + "and_on_x"
assert len(LONG) == 200
TOOLS = {
    "echo": TEXT,
    "add": NUMBERS,
    "image": ANY,
    "audio": ANY,
    "resources": ANY,
    "fail": ANY,
    "refuse": ANY,
    "slow": ANY,
    "crash": ANY,
    "secret": ANY,
    "mixed": ANY,
    "told_twice": ANY,
    "seen": ANY,
    "change": ANY,
    "odd.name/with spaces": ANY,
    "имя": ANY,
    LONG: ANY,
    LONG[:-1] + "y": ANY,
}
added: list[str] = []
headers: list[str] = []
bus = InMemorySubscriptionBus()


def text(words: str, **more: Any) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(text=words)], **more)


async def list_tools(ctx: Any, params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
    """Three pages."""
    names = [*TOOLS, *added]
    page = int(params.cursor) if params and params.cursor else 0
    size = -(-len(names) // 3)
    tools = [
        types.Tool(
            name=name,
            description=f"Does {name[:20]}.",
            input_schema=TOOLS.get(name, ANY),
            output_schema={"type": "object", "properties": {"sum": {"type": "integer"}}} if name == "add" else None,
        )
        for name in names[page * size : (page + 1) * size]
    ]
    return types.ListToolsResult(tools=tools, next_cursor=str(page + 1) if page < 2 else None)


async def wait_for_control() -> str:
    """Tell the test that it waits, then what becomes of it."""
    host, _, port = os.environ["MCP_CONTROL"].rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(f"waits {os.getpid()}\n".encode())
    try:
        return (await reader.readline()).decode().strip()
    except asyncio.CancelledError:
        writer.write(b"cancelled\n")
        raise
    finally:
        writer.close()


async def call_tool(ctx: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
    given = params.arguments or {}
    if params.name in PLAIN:
        return PLAIN[params.name](given)
    if params.name == "slow":
        return text(await wait_for_control())
    if params.name == "change":
        added.append(f"added_{len(added)}")
        await bus.publish(ToolsListChanged())
        return text("changed")
    return text(f"called {params.name}")


def refuse_call(given: dict[str, Any]) -> types.CallToolResult:
    raise ValueError("no such thing")


def crash_server(given: dict[str, Any]) -> types.CallToolResult:
    sys.stderr.write("out of memory, goodbye\n")
    sys.stderr.flush()
    os._exit(3)


def add_numbers(given: dict[str, Any]) -> types.CallToolResult:
    return types.CallToolResult(content=[], structured_content={"sum": given["a"] + given["b"]})


def return_image(given: dict[str, Any]) -> types.CallToolResult:
    picture = types.ImageContent(data=PIXEL, mime_type="image/png")
    return types.CallToolResult(content=[types.TextContent(text="a dot"), picture])


def return_audio(given: dict[str, Any]) -> types.CallToolResult:
    return types.CallToolResult(content=[types.AudioContent(data="UklGRg==", mime_type="audio/wav")])


def resources() -> list[types.ContentBlock]:
    held = types.TextResourceContents(uri="file:///notes/a.txt", text="a note", mime_type="text/plain")
    blob = types.BlobResourceContents(uri="file:///notes/a.pdf", blob="JVBERg==", mime_type="application/pdf")
    return [
        types.EmbeddedResource(resource=held),
        types.EmbeddedResource(resource=blob),
        types.ResourceLink(name="b.txt", uri="file:///notes/b.txt", description="another"),
    ]


PLAIN: dict[str, Callable[[dict[str, Any]], types.CallToolResult]] = {
    "echo": lambda given: text(given["text"]),
    "add": add_numbers,
    "image": return_image,
    "audio": return_audio,
    "resources": lambda _: types.CallToolResult(content=resources()),
    "fail": lambda _: text("the disk is full", is_error=True),
    "refuse": refuse_call,
    "crash": crash_server,
    "secret": lambda _: text(os.environ.get("MCP_TOKEN", "none")),
    "mixed": lambda _: text("three", structured_content={"n": 3}),
    "told_twice": lambda _: text('{"n": 3}', structured_content={"n": 3}),
    "seen": lambda _: text("|".join(headers)),
}


async def no_prompts(ctx: Any, params: types.PaginatedRequestParams | None) -> types.ListPromptsResult:
    return types.ListPromptsResult(prompts=[types.Prompt(name="greet")])


server: Server[Any] = Server(
    "test-tools",
    version="1.2.3",
    on_list_tools=list_tools,
    on_call_tool=call_tool,
    on_list_prompts=no_prompts,
    on_subscriptions_listen=ListenHandler(bus),
)


async def serve_stdio() -> None:
    async with stdio_server() as (read, write):
        options = server.create_initialization_options(NotificationOptions(tools_changed=True))
        await server.run(read, write, options)


def record_authorization(app: Any) -> Any:
    """Remember what the last request was authorised with."""

    async def call_app(scope: Any, receive: Any, send: Any) -> None:
        found = dict(scope.get("headers", ())).get(b"authorization", b"")
        headers[:] = [found.decode()] if found else []
        await app(scope, receive, send)

    return call_app


def over_http(port: int = 0) -> None:
    bound = socket.create_server(("127.0.0.1", port))
    sys.stdout.write(f"{bound.getsockname()[1]}\n")
    sys.stdout.flush()
    app = record_authorization(server.streamable_http_app())
    uvicorn.Server(uvicorn.Config(app, log_level="error")).run(sockets=[bound])


if __name__ == "__main__":
    if sys.argv[1:2] == ["http"]:
        over_http(int(sys.argv[2]) if sys.argv[2:] else 0)
    else:
        anyio.run(serve_stdio)
