"""MCP servers as the gateway has them: real processes and real sockets, good ones and bad ones."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest
import uvloop

from configs import load_config
from forked_commands import start_program
from gateway.mcp_gateway import hold_timeouts
from gateway.mcp_server import LONG, PIXEL, TOOLS
from gateway.process import run_gateway
from gateway.raw_exchange import ask
from toolwire.core.ir import Call, Media, Result, Text
from toolwire.gateway.features.mcp.offered_tools import MAX_NAME_LENGTH, ConnectionTiming, exposed_tool_name
from toolwire.gateway.features.mcp.servers import McpClient, McpServers, ToolInterceptor
from toolwire.gateway.features.mcp.settings import McpServer, McpSettings
from toolwire.gateway.settings.config import Config
from toolwire.gateway.settings.problems import ConfigError
from waits import PATIENCE, free_port

HERE = Path(__file__).parent
GOOD = (sys.executable, str(HERE / "mcp_server.py"))
QUICK = ConnectionTiming(first_retry_delay=0.001, max_retry_delay=0.01, min_list_interval=0.0)
Test = Callable[[], Awaitable[None]]


SOMEBODY = McpClient(("m",), "c")


def rogue_server(*how: str, **more: Any) -> McpServer:
    """Written by hand, so it starts at once; `plain` does nothing wrong."""
    command = (sys.executable, "-S", "-E", str(HERE / "mcp_misbehaving.py"), *how)
    return McpServer(**{"name": "rogue", "command": command, "models": ("*",), **more})


def good_server(name: str = "docs", **more: Any) -> McpServer:
    return McpServer(name=name, command=GOOD, **{"models": ("*",), **more})


class Talk:
    """Servers, and what they said of themselves."""

    def __init__(self, pace: ConnectionTiming) -> None:
        self.said: asyncio.Queue[tuple[str, str, str]] = asyncio.Queue()
        self.servers = McpServers(lambda *told: self.said.put_nowait(told), pace)

    async def until(self, state: str) -> str:
        """Until a server is in this state; gives what is wrong with it."""
        while True:
            _, now, why = await asyncio.wait_for(self.said.get(), PATIENCE)
            if now == state:
                return why

    def calls(self) -> ToolInterceptor:
        found = self.servers.make_interceptor(SOMEBODY)
        assert found is not None
        return found

    def names(self) -> list[str]:
        found = self.servers.make_interceptor(SOMEBODY)
        return [tool.name for tool in found.tools] if found is not None else []

    async def call(self, name: str, arguments: str = "") -> Result:
        (result,) = await asyncio.wait_for(self.calls().run_calls([Call("1", name, arguments)]), PATIENCE)
        assert (result.id, result.name) == ("1", name)
        return result


@asynccontextmanager
async def open_talk(*servers: McpServer, pace: ConnectionTiming = QUICK) -> AsyncIterator[Talk]:
    talk = Talk(pace)
    talk.servers.apply_config(config_with_servers(*servers))
    try:
        await asyncio.wait_for(talk.servers.start_servers(SOMEBODY), PATIENCE)
        yield talk
    finally:
        await talk.servers.close()


def config_with_servers(*servers: McpServer) -> Config:
    return Config().with_section(McpSettings(servers={server.name: server for server in servers}))


def run(test: Test) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:  # as the gateway does
        runner.run(test())


def words(result: Result) -> str:
    return "".join(part.text for part in result.content if isinstance(part, Text))


# --- names ----------------------------------------------------------------------------------------------------------


def test_plain_names_are_plain() -> None:
    assert exposed_tool_name("docs", "search") == "docs__search"
    assert exposed_tool_name("docs", "_a__b-c") == "docs___a__b-c"


ODD = ["a.b", "a b", "a/b", "имя", "", LONG, LONG[:-1] + "y", "x" * 64, "a_6aee76b7", "\ud800", "a\n"]


@pytest.mark.parametrize("tool", ODD)
def test_odd_names_are_legal_short_and_marked(tool: str) -> None:
    name = exposed_tool_name("docs", tool)
    assert re.fullmatch(r"docs__[A-Za-z0-9_-]*_[0-9a-f]{8}", name)
    assert len(name) <= MAX_NAME_LENGTH
    assert exposed_tool_name("docs", tool) == name


def test_no_two_tools_share_a_name() -> None:
    tools = [
        *ODD,
        *TOOLS,
        "a_b",
        "a__b",
        "b",
        "_b",
        exposed_tool_name("docs", "a.b").removeprefix("docs__"),
        "a:b",
        "y" * 300,
    ]
    servers = ["docs", "a", "a-b", "a_b", "s" * 31, "Docs"]
    names = {exposed_tool_name(server, tool) for server in servers for tool in set(tools)}
    assert len(names) == len(servers) * len(set(tools))


def test_the_names_of_one_server_do_not_depend_on_another() -> None:
    async def test() -> None:
        async with open_talk(rogue_server("plain", name="other"), good_server(), rogue_server("plain")) as talk:
            mine = sorted(exposed_tool_name("docs", tool) for tool in TOOLS)
            assert talk.names() == ["other__echo", *mine, "rogue__echo"]
            talk.servers.apply_config(config_with_servers(good_server()))
            assert talk.names() == mine

    run(test)


# --- calls ----------------------------------------------------------------------------------------------------------


@contextmanager
def over_http(port: int = 0) -> Iterator[str]:
    """The good server as a process of its own, behind a URL."""
    with start_program([*GOOD, "http", str(port)]) as process:
        assert process.stdout is not None
        yield f"http://127.0.0.1:{int(process.stdout.readline())}/mcp"


@pytest.fixture(params=["stdio", "http"], scope="module")
def server(request: pytest.FixtureRequest) -> Iterator[McpServer]:
    """The same server, reached in both ways."""
    if request.param == "stdio":
        yield good_server()
        return
    with over_http() as url:
        yield server_at(url)


def server_at(url: str, **more: Any) -> McpServer:
    table = {"url": url, "models": ["*"], **more}
    return read(table)


def read(table: dict[str, Any], **environ: str) -> McpServer:
    """A server as the file has it."""
    from toolwire.gateway.features.mcp.settings import read_mcp_servers
    from toolwire.gateway.settings.problems import ProblemCollector

    findings = ProblemCollector(None)
    found = read_mcp_servers({"docs": table}, environ, findings, Path())
    assert not findings.has_errors, findings.problems
    return found["docs"]


def test_results_of_every_kind(server: McpServer) -> None:
    async def test() -> None:
        async with open_talk(server) as talk:
            calls = [
                Call("1", "docs__echo", '{"text": "grüße"}'),
                Call("2", "docs__add", '{"a": 1, "b": 2}'),
                Call("3", "docs__image"),
                Call("4", "docs__audio", "{}"),
                Call("5", "docs__resources"),
                Call("6", "docs__mixed"),
                Call("7", "docs__told_twice"),
                Call("8", exposed_tool_name("docs", "имя")),
            ]
            results = await talk.calls().run_calls(calls)
            assert [result.id for result in results] == list("12345678")
            assert [result.name for result in results] == [call.name for call in calls]
            assert not any(result.error for result in results)
            assert [result.content for result in results] == [
                (Text("grüße"),),
                (Text('{"sum":3}'),),
                (Text("a dot"), Media("image", mime="image/png", data=PIXEL)),
                (Media("audio", mime="audio/wav", data="UklGRg=="),),
                (
                    Text("a note"),
                    Media("file", mime="application/pdf", data="JVBERg==", name="a.pdf"),
                    Text("b.txt (another): file:///notes/b.txt"),
                ),
                (Text("three"), Text('{"n":3}')),
                (Text('{"n": 3}'),),
                (Text("called имя"),),
            ]
            assert [result.value for result in results[:2]] == [None, {"sum": 3}]
            assert results[6].value == {"n": 3}

    run(test)


def test_numbers_of_any_spelling_are_arguments(server: McpServer) -> None:
    async def test() -> None:
        async with open_talk(server) as talk:
            for a, b in (("1.50", "2.5"), ("1e0", "2"), ("-0.0", "4E+0")):
                result = await talk.call("docs__add", f'{{"a": {a}, "b": {b}}}')
                assert result.value == {"sum": float(a) + float(b)}, words(result)

    run(test)


def test_failures_are_error_results(server: McpServer) -> None:
    async def test() -> None:
        async with open_talk(server) as talk:
            for name, arguments, said in [
                ("docs__fail", "", "^the disk is full$"),
                ("docs__refuse", "", "^the tool `refuse` of the MCP server `docs` failed: "),
                ("docs__echo", "{", "are not a JSON object"),
                ("docs__echo", "[1]", "are not a JSON object"),
                ("docs__echo", "[" * 100_000, "are not a JSON object"),
                ("docs__nothing", "", "there is no tool `docs__nothing`"),
            ]:
                result = await talk.call(name, arguments)
                assert result.error is True
                assert re.search(said, words(result)), words(result)
            cut = await talk.calls().run_calls([Call("1", "docs__echo", '{"text": "x"}', incomplete=True)])
            assert cut[0].error

    run(test)


class Control:
    """Where the tool `slow` waits."""

    def __init__(self) -> None:
        self.waiting: asyncio.Queue[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = asyncio.Queue()
        self.writers: list[asyncio.StreamWriter] = []

    def came(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writers.append(writer)
        self.waiting.put_nowait((reader, writer))

    async def next(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter, int]:
        reader, writer = await asyncio.wait_for(self.waiting.get(), PATIENCE)
        word, pid = (await asyncio.wait_for(reader.readline(), PATIENCE)).split()
        assert word == b"waits"
        return reader, writer, int(pid)


@asynccontextmanager
async def serve_control() -> AsyncIterator[tuple[Control, dict[str, str]]]:
    control = Control()
    listening = await asyncio.start_server(control.came, "127.0.0.1", 0)
    host, port = listening.sockets[0].getsockname()
    try:
        yield control, {"MCP_CONTROL": f"{host}:{port}"}
    finally:
        listening.close()
        for writer in control.writers:
            writer.transport.abort()
        await asyncio.sleep(0)


def slow_server(environ: dict[str, str], **more: Any) -> McpServer:
    return read({"command": list(GOOD), "env": environ, "models": ["*"], **more})


def test_calls_run_side_by_side() -> None:
    async def test() -> None:
        async with serve_control() as (control, environ), open_talk(slow_server(environ)) as talk:
            calls = [Call(str(number), "docs__slow") for number in range(3)]
            task = asyncio.create_task(talk.calls().run_calls(calls))
            waiting = [await control.next() for _ in calls]
            for number, (_, writer, _) in enumerate(reversed(waiting)):
                writer.write(f"done {number}\n".encode())
            results = await asyncio.wait_for(task, PATIENCE)
            assert [result.id for result in results] == ["0", "1", "2"]
            assert sorted(words(result) for result in results) == ["done 0", "done 1", "done 2"]

    run(test)


def test_more_calls_than_a_server_takes_wait() -> None:
    async def test() -> None:
        async with serve_control() as (control, environ), open_talk(slow_server(environ, max_parallel=1)) as talk:
            task = asyncio.create_task(talk.calls().run_calls([Call("1", "docs__slow"), Call("2", "docs__slow")]))
            for _ in range(2):
                _, writer, _ = await control.next()
                assert control.waiting.empty()
                writer.write(b"done\n")
            assert [words(result) for result in await asyncio.wait_for(task, PATIENCE)] == ["done", "done"]

    run(test)


def test_whoever_leaves_cancels_the_call_at_the_server(server: McpServer) -> None:
    async def test() -> None:
        async with serve_control() as (control, environ):
            if server.command:
                await cancel_call(control, slow_server(environ))
                return
            os.environ |= environ
            try:
                with over_http() as url:
                    await cancel_call(control, server_at(url))
            finally:
                del os.environ["MCP_CONTROL"]

    async def cancel_call(control: Control, server: McpServer) -> None:
        async with open_talk(server) as talk:
            task = asyncio.create_task(talk.calls().run_calls([Call("1", "docs__slow")]))
            reader, _, _ = await control.next()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert await asyncio.wait_for(reader.readline(), PATIENCE) == b"cancelled\n"
            assert words(await talk.call("docs__echo", '{"text": "still here"}')) == "still here"

    run(test)


def test_a_call_that_takes_too_long_is_an_error_and_is_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        over = hold_timeouts(monkeypatch, 1)
        async with serve_control() as (control, environ), open_talk(slow_server(environ, timeout=1)) as talk:
            task = asyncio.create_task(talk.call("docs__slow"))
            reader, _, _ = await control.next()
            over.set()
            result = await asyncio.wait_for(task, PATIENCE)
            assert result.error is True
            assert words(result) == "the tool `slow` of the MCP server `docs` did not answer within 1 seconds"
            assert await asyncio.wait_for(reader.readline(), PATIENCE) == b"cancelled\n"

    run(test)


def test_rounds_have_an_end() -> None:
    async def test() -> None:
        async with open_talk(rogue_server("plain", max_rounds=2)) as talk:
            calls = talk.calls()
            assert calls.max_rounds == 2
            once = [Call("1", "rogue__echo", '{"x": 1}'), Call("2", "rogue__echo", '{"y": 2}')]
            for _ in range(2):
                assert [words(result) for result in await calls.run_calls(once)] == ['{"x": 1}', '{"y": 2}']
            over = await calls.run_calls(once)
            assert [result.error for result in over] == [True, True]
            assert words(over[0]) == "the limit of 2 rounds of calls is reached: answer with what you have"

    run(test)


# --- who is given tools ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "client", "given"),
    [
        ({}, McpClient(("m",), "p", "k", ("codex",)), False),
        ({"models": ("*",)}, McpClient(("m",)), True),
        ({"models": ("gpt-*",)}, McpClient(("fast", "gpt-5")), True),
        ({"models": ("gpt-*",)}, McpClient(("claude",)), False),
        ({"models": ("gpt-*",), "protocols": ("p",)}, McpClient(("gpt-5",), "q"), False),
        ({"models": ("gpt-*",), "protocols": ("p",)}, McpClient(("gpt-5",), "p"), True),
        ({"keys": ("team-*",)}, McpClient(("m",), "p", "team-a"), True),
        ({"keys": ("team-*",)}, McpClient(("m",), "team-a", "other", ("team-a",)), False),
        ({"keys": ("*",)}, McpClient(("m",)), False),
        ({"keys": ("k",), "agents": ("codex",)}, McpClient(("m",), "p", "k", ("codex",)), True),
        ({"keys": ("k",), "agents": ("codex",)}, McpClient(("m",), "p", "k", ("claude-code",)), False),
        ({"agents": ("*",)}, McpClient(("m",), "p", "k", ("codex",)), False),
    ],
)
def test_tools_are_given_by_key_model_and_protocol(settings: dict[str, Any], client: McpClient, given: bool) -> None:
    async def test() -> None:
        servers = McpServers()
        servers.apply_config(config_with_servers(rogue_server("plain", **{"models": (), **settings})))
        try:
            await servers.start_servers(client)
            assert (servers.make_interceptor(client) is not None) is given
            assert servers.server_statuses()[0].state == ("up" if given else "idle"), "nobody is started for nothing"
        finally:
            await servers.close()

    run(test)


def test_only_allowed_tools_are_offered() -> None:
    async def test() -> None:
        async with open_talk(good_server(tools=("e*", "docs__a[du]*"))) as talk:
            assert talk.names() == ["docs__add", "docs__audio", "docs__echo"]
            echo = talk.calls().tools[2]
            assert (echo.description, echo.parameters) == ("Does echo.", TOOLS["echo"])
            there = await talk.servers.find_substitutes(
                {"web_search": ("docs", "add"), "web_fetch": ("docs", "fail")}, SOMEBODY
            )
            assert list(there) == ["web_search"]

    run(test)


# --- servers as they should not be ----------------------------------------------------------------------------------


def test_a_server_of_2025_that_changes_its_tools() -> None:
    async def test() -> None:
        async with open_talk(rogue_server("grows")) as talk:
            await talk.until("up")
            before = talk.calls()
            assert words(await talk.call("rogue__echo", '{"a": 1}')) == '{"a": 1}'
            await talk.until("up")
            assert talk.names() == ["rogue__echo", "rogue__more_1"]
            assert [tool.name for tool in before.tools] == ["rogue__echo"], (
                "an exchange keeps the tools that it began with"
            )

    run(test)


def test_a_server_that_changes_its_tools(server: McpServer) -> None:
    async def test() -> None:
        async with open_talk(server) as talk:
            await talk.until("up")
            assert "docs__added_0" not in talk.names()
            assert words(await talk.call("docs__change")) == "changed"
            await talk.until("up")
            assert "docs__added_0" in talk.names()

    run(test)


def test_a_server_that_dies_in_a_call_is_an_error_and_comes_back(tmp_path: Path) -> None:
    async def test() -> None:
        async with open_talk(rogue_server("dies", str(tmp_path / "mark"))) as talk:
            await talk.until("up")
            result = await talk.call("rogue__echo")
            assert result.error
            assert "failed: Connection closed" in words(result)
            assert await talk.until("down")
            assert talk.names() == ["rogue__echo"], "its tools are still offered for a while"
            await talk.until("up")
            assert words(await talk.call("rogue__echo", "{}")) == "{}"

    run(test)


def test_what_a_program_said_last_is_told() -> None:
    async def test() -> None:
        async with open_talk(good_server()) as talk:
            result = await talk.call("docs__crash")
            assert words(result).endswith("Connection closed; its last output: out of memory, goodbye")

    run(test)


def test_tools_of_a_server_that_stays_down_are_forgotten(tmp_path: Path) -> None:
    async def test() -> None:
        pace = ConnectionTiming(first_retry_delay=PATIENCE, keep_lost_tools=0.0)
        async with open_talk(rogue_server("dies", str(tmp_path / "mark")), pace=pace) as talk:
            kept = talk.calls()
            await talk.call("rogue__echo")
            await talk.until("down")
            while talk.names():  # a timer of no time
                await asyncio.sleep(0)
            (result,) = await kept.run_calls([Call("1", "rogue__echo")])
            assert result.error
            assert "the connection ended" in words(result)
            with pytest.raises(StopIteration):  # nobody waits for it a second time
                talk.servers.start_servers(SOMEBODY).send(None)

    run(test)


@pytest.mark.usefixtures("_short_grace")
def test_a_server_that_says_nothing_holds_nobody_up() -> None:
    async def test() -> None:
        well = rogue_server("plain", name="well")
        async with open_talk(
            rogue_server("silent", connect_timeout=0.2), well, pace=ConnectionTiming(first_retry_delay=PATIENCE)
        ) as talk:
            assert talk.names() == ["well__echo"]
            assert "within 0.2 seconds" in await talk.until("down")

    run(test)


@pytest.mark.parametrize("how", ["garbage", "floods", "endless", "upset"])
def test_a_server_that_misbehaves_is_borne(how: str, capfd: pytest.CaptureFixture[str]) -> None:
    async def test() -> None:
        async with open_talk(rogue_server(how)) as talk:
            await talk.until("up")
            assert talk.names() == ["rogue__echo"]
            for number in range(3):
                assert words(await talk.call("rogue__echo", json.dumps({"n": number}))) == json.dumps({"n": number})

    run(test)
    assert capfd.readouterr() == ("", "")


@pytest.fixture
def _short_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    """For servers that do not end when asked: the SDK waits two seconds before it terminates them."""
    monkeypatch.setattr("mcp.client.stdio.PROCESS_TERMINATION_TIMEOUT", 0.2)


@pytest.mark.usefixtures("_short_grace")
@pytest.mark.parametrize("how", ["deaf", "wrong"])
def test_a_server_that_answers_no_call_is_an_error(how: str) -> None:
    async def test() -> None:
        async with open_talk(rogue_server(how, timeout=0.3)) as talk:
            result = await talk.call("rogue__echo", json.dumps({"much": "x" * 1_000_000}))
            assert result.error
            assert re.search(r"did not answer within|not valid MCP", words(result))

    run(test)


@pytest.mark.usefixtures("_short_grace")
def test_a_program_that_will_not_end_is_killed(tmp_path: Path) -> None:
    async def test() -> None:
        async with open_talk(rogue_server("stubborn", str(tmp_path / "pid"))) as talk:
            assert talk.names() == ["rogue__echo"]

    run(test)
    pid = int((tmp_path / "pid").read_text())
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_programs_end_with_the_gateway() -> None:
    async def test() -> None:
        async with serve_control() as (control, environ), open_talk(slow_server(environ)) as talk:
            task = asyncio.create_task(talk.calls().run_calls([Call("1", "docs__slow")]))
            _, _, pid = await control.next()
            await talk.servers.close()
            (result,) = await asyncio.wait_for(task, PATIENCE)
            assert result.error
            with pytest.raises(ProcessLookupError):
                os.kill(pid, 0)

    run(test)


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"command": ("does-not-exist",)}, "it cannot be started: No such file or directory"),
        ({"command": (str(HERE),)}, "it cannot be started: Permission denied"),
        ({"command": GOOD, "cwd": "/does/not/exist"}, "it cannot be started: No such file or directory"),
        ({"command": (sys.executable, "-c", "raise SystemExit('no key')")}, "its last output: no key"),
        ({"command": GOOD, "missing_variables": ("TOKEN",)}, "TOKEN is not set in the environment"),
    ],
)
def test_a_program_that_cannot_be_started(settings: dict[str, Any], why: str) -> None:
    async def test() -> None:
        async with open_talk(
            McpServer(name="docs", models=("*",), **settings), pace=ConnectionTiming(first_retry_delay=PATIENCE)
        ) as talk:
            assert why in await talk.until("down")
            assert talk.names() == []
            assert talk.servers.make_interceptor(SOMEBODY) is None

    run(test)


def test_a_url_where_nobody_is_and_then_somebody() -> None:
    async def test() -> None:
        port = free_port()
        async with open_talk(server_at(f"http://127.0.0.1:{port}/mcp")) as talk:
            assert await talk.until("down") == "it cannot be reached"
            with over_http(port):
                await talk.until("up")
                assert words(await talk.call("docs__echo", '{"text": "x"}')) == "x"
            result = await talk.call("docs__echo", '{"text": "x"}')
            assert result.error
            assert await talk.until("down")
            with over_http(port):
                await talk.until("up")
                assert words(await talk.call("docs__echo", '{"text": "y"}')) == "y"

    run(test)


# --- secrets --------------------------------------------------------------------------------------------------------


def test_variables_and_headers_reach_the_server_and_nobody_else() -> None:
    async def test() -> None:
        token = "geheim-0123456789"
        server = read(
            {"command": list(GOOD), "env": {"MCP_TOKEN": "x-$TOKEN-${TOKEN}-$$"}, "models": ["*"]}, TOKEN=token
        )
        assert token not in repr(server)
        async with open_talk(server) as talk:
            assert words(await talk.call("docs__secret")) == f"x-{token}-{token}-$"
        with over_http() as url:
            there = read({"url": url, "headers": {"Authorization": "Bearer $TOKEN"}, "models": ["*"]}, TOKEN=token)
            assert token not in repr(there)
            async with open_talk(there) as talk:
                assert words(await talk.call("docs__seen")) == f"Bearer {token}"

    run(test)


def test_a_secret_is_not_told_with_a_failure() -> None:
    async def test() -> None:
        command = [sys.executable, "-c", "import os; raise SystemExit('bad token ' + os.environ['TOKEN'])"]
        server = read({"command": command, "env": {"TOKEN": "$T"}, "models": ["*"]}, T="geheim-0123456789")
        async with open_talk(server, pace=ConnectionTiming(first_retry_delay=PATIENCE)) as talk:
            assert (await talk.until("down")).endswith("its last output: bad token …")

    run(test)


def test_a_program_does_not_get_the_environment_of_the_gateway(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MCP_TOKEN", "geheim")

    async def test() -> None:
        async with open_talk(good_server()) as talk:
            assert words(await talk.call("docs__secret")) == "none"

    run(test)


# --- another configuration ------------------------------------------------------------------------------------------


def test_a_new_configuration_starts_stops_and_keeps() -> None:
    async def test() -> None:
        other = rogue_server("plain", name="other")
        async with serve_control() as (control, environ), open_talk(slow_server(environ), other) as talk:
            old = talk.calls()
            task = asyncio.create_task(talk.calls().run_calls([Call("1", "docs__slow")]))
            _, writer, _ = await control.next()
            talk.servers.apply_config(
                config_with_servers(slow_server(environ, tools=["slow"]), rogue_server("plain", name="third"))
            )
            await talk.servers.start_servers(SOMEBODY)
            assert [name for name in talk.names() if name.startswith("docs__")] == ["docs__slow"]
            assert "third__echo" in talk.names()
            assert not any(name.startswith("other__") for name in talk.names())
            writer.write(b"kept\n")
            assert words((await asyncio.wait_for(task, PATIENCE))[0]) == "kept"
            (gone,) = await old.run_calls([Call("1", "other__echo")])
            assert gone.error
            assert "no longer configured" in words(gone)

    run(test)


# --- the gateway as a process ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", ["1", "2"])
def test_programs_end_with_the_process(tmp_path: Path, workers: str) -> None:
    """They get neither its end of the terminal nor its signals: it has to end them."""
    pids = tmp_path / "pids"
    command = [sys.executable, str(HERE / "mcp_misbehaving.py"), "noted", str(pids)]
    (tmp_path / "toolwire.toml").write_text(f'[mcp.rogue]\ncommand = {json.dumps(command)}\nmodels = ["loopback"]\n')
    with run_gateway(tmp_path, "--workers", workers) as process:
        body = b'{"model": "loopback", "messages": [{"role": "user", "content": "hello"}]}'
        assert ask(process.port, "POST", "/v1/chat/completions", body).status == 200
        assert '"up"' in process.read_log_until('"rogue"')
        process.signal(signal.SIGTERM)
        assert process.wait_for_exit() == 0
    started = pids.read_text().split()
    assert started
    for pid in started:
        with pytest.raises(ProcessLookupError):
            os.kill(int(pid), 0)


# --- the file -------------------------------------------------------------------------------------------------------

MISTAKES = [
    ('[mcp.a__b]\ncommand = "x"', 1, "invalid server name `a__b`"),
    ('[mcp.a_]\ncommand = "x"', 1, "invalid server name `a_`"),
    ('[mcp."ä"]\ncommand = "x"', 1, "invalid server name `ä`"),
    (f'[mcp.{"a" * 32}]\ncommand = "x"', 1, "invalid server name"),
    ("[mcp.a]", 1, "`command` or `url` is missing"),
    ('[mcp.a]\ncommand = "x"\nurl = "http://x"', 3, "command and url cannot be combined"),
    ('[mcp.a]\ncommand = "x"\nheaders = {a = "b"}', 3, "`headers` can only be used with `url`"),
    ('[mcp.a]\nurl = "http://x"\nenv = {a = "b"}', 3, "`env` can only be used with `command`"),
    ('[mcp.a]\nurl = "x"', 2, "a base URL must begin with http:// or https://"),
    ('[mcp.a]\ncommand = "x \'y"', 2, "a quotation mark is not closed"),
    ("[mcp.a]\ncommand = []", 2, "the command is empty"),
    ('[mcp.a]\nurl = "http://x"\n[mcp.a.headers]\n"a b" = "x"', 4, "invalid header name `a b`"),
    ('[mcp.a]\nurl = "http://x"\nheaders = {a = "b\\nc"}', 3, "the value of a header cannot contain line breaks"),
    ('[mcp.a]\ncommand = "x"\nmax_rounds = 0', 3, "`max_rounds`: expected a whole number >= 1"),
    ('[mcp.a]\ncommand = "x"\ntimeout = 0', 3, "`timeout`: expected a number > 0.0"),
    ('[mcp.a]\ncommand = "x"\ntool = "x"', 3, "unknown key `tool`"),
    ('[mcp.a]\ncommand = "x"\ncall_visibility = "all"', 3, "`call_visibility` has an invalid value"),
    ("mcp = 1", 1, "`mcp` must be a table"),
]


@pytest.mark.parametrize(("text", "line", "what"), MISTAKES)
def test_mistakes_have_a_line(tmp_path: Path, text: str, line: int, what: str) -> None:
    file = tmp_path / "toolwire.toml"
    file.write_text(text)
    with pytest.raises(ConfigError) as problems:
        load_config(file, {})
    found = [problem for problem in problems.value.problems if problem.severity == "error"]
    assert [(problem.line, problem.message[: len(what)]) for problem in found] == [(line, what)]


def test_what_is_only_a_warning(tmp_path: Path) -> None:
    file = tmp_path / "toolwire.toml"
    file.write_text('[mcp.a]\ncommand = "x"\nenv = {A = "$NOT_THERE"}\n')
    config = load_config(file, {})
    assert [(problem.line, problem.message) for problem in config.warnings] == [
        (1, "no client gets these tools"),
        (3, "the environment variable NOT_THERE is not set"),
    ]
    assert config.section(McpSettings).servers["a"].missing_variables == ("NOT_THERE",)


def test_a_command_is_a_list_or_a_text(tmp_path: Path) -> None:
    file = tmp_path / "toolwire.toml"
    file.write_text(
        '[mcp.a]\ncommand = "x \'y z\' $A"\ncwd = "sub"\nmodels = ["*"]\n[mcp.b]\ncommand = ["x", "y z"]\nmodels = ["*"]'
    )
    found = load_config(file, {}).section(McpSettings).servers
    assert found["a"].command == ("x", "y z", "$A")
    assert found["a"].cwd == str(tmp_path / "sub")
    assert found["b"].command == ("x", "y z")


def test_what_is_shown_of_a_server_hides_what_is_not_for_all() -> None:
    assert read({"url": "https://$USER@x/$KEY/mcp?key=abc"}, KEY="k").display_name == "https://$USER@x/$KEY/mcp"
    assert read({"command": "x --api-key abc --token=def --port 1"}).display_name == "x --api-key … --token=… --port 1"
    long = "key-" * 50_000  # in a file of a folder that somebody has cloned; it would take hours
    assert read({"command": f"x {long}"}).display_name.startswith("x key-")
