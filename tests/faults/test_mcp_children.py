"""Programs of MCP servers do not outlive the gateway, however it ends, and cannot fill its memory."""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forked_commands import start_program
from gateway.process import run_gateway
from gateway.raw_exchange import ask
from toolwire.core.ir import Text
from toolwire.gateway.features.mcp.program_guard import MessageFilter, ProgramRefused
from toolwire.gateway.features.mcp.servers import McpServers
from toolwire.gateway.features.mcp.settings import McpServer, McpSettings
from toolwire.gateway.settings.config import Config, Secret
from waits import PATIENCE

SERVER = """
import json, os, signal, subprocess, sys, time
how, place = sys.argv[1], sys.argv[2]
if how == "stubborn":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
pids = [os.getpid()]
if how == "parent":
    pids.append(subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]).pid)
with open(place, "a") as file:
    file.writelines(f"{pid}\\n" for pid in pids)

def answer(id, result):
    if how == "late id":
        sys.stdout.write(json.dumps({"result": result, "jsonrpc": "2.0", "id": id}) + "\\n")
    else:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": id, "result": result}) + "\\n")
    sys.stdout.flush()

for line in sys.stdin:
    message = json.loads(line)
    method, id = message.get("method"), message.get("id")
    if method == "initialize":
        answer(id, {"protocolVersion": message["params"]["protocolVersion"], "capabilities": {"tools": {}},
                    "serverInfo": {"name": "s", "version": "1"}})
    elif method == "tools/list":
        answer(id, {"tools": [{"name": "make", "inputSchema": {"type": "object"}}]})
    elif method == "tools/call":
        size = message["params"]["arguments"]["size"]
        if size < 0:
            chunk = "x" * 1_000_000
            sys.stdout.write('{"jsonrpc":"2.0","id":%d,"result":{"content":[{"type":"text","text":"' % id)
            for _ in range(-size):
                sys.stdout.write(chunk)
            sys.stdout.write('"}]}}\\n')
            sys.stdout.flush()
        else:
            answer(id, {"content": [{"type": "text", "text": "x" * size}]})
    elif id is not None:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": id, "error": {"code": -32601, "message": "no"}}) + "\\n")
        sys.stdout.flush()
while how != "plain" and how != "late id":
    time.sleep(600)
"""


def is_alive(pid: int) -> bool:
    """Does it run? What has ended and was not waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except FileNotFoundError:
        return False


@contextmanager
def ending(pids: Iterable[int]) -> Iterator[None]:
    """Wait until all of these, which run now, have ended in the block or after it."""
    with ExitStack() as stack:
        descriptors = [os.pidfd_open(pid) for pid in pids]
        for descriptor in descriptors:
            stack.callback(os.close, descriptor)
        yield
        for descriptor in descriptors:
            assert select.select([descriptor], [], [], PATIENCE)[0]


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="it looks at processes of Linux")
@pytest.mark.parametrize("how", ["plain", "deaf", "stubborn", "parent"])
def test_programs_end_when_the_gateway_is_killed(tmp_path: Path, how: str) -> None:
    """Also those that do not look at their input, that ignore SIGTERM, or that have started others."""
    pids = tmp_path / "pids"
    (tmp_path / "server.py").write_text(SERVER)
    command = [sys.executable, str(tmp_path / "server.py"), how, str(pids)]
    (tmp_path / "toolwire.toml").write_text(f'[mcp.rogue]\ncommand = {json.dumps(command)}\nmodels = ["loopback"]\n')
    with run_gateway(tmp_path) as process:
        body = b'{"model": "loopback", "messages": [{"role": "user", "content": "hello"}]}'
        assert ask(process.port, "POST", "/v1/chat/completions", body).status == 200
        assert '"up"' in process.read_log_until('"rogue"')
        started = [int(pid) for pid in pids.read_text().split()]
        guards = process.children()
        assert started
        assert all(is_alive(pid) for pid in started)
        with ending((*started, *guards)):
            process.signal(signal.SIGKILL)
            process.wait_for_exit()
        assert not any(is_alive(pid) for pid in (*started, *guards))


EARLY = """
import os, signal, subprocess, sys
from toolwire.gateway.features.mcp import program_guard
start = subprocess.Popen
def start_and_be_terminated(*arguments, **options):
    program = start(*arguments, **options)
    print(program.pid, file=sys.stderr, flush=True)
    os.kill(os.getpid(), signal.SIGTERM)
    return program
subprocess.Popen = start_and_be_terminated
sys.exit(program_guard.main("1000", sys.executable, "-c", "import time; time.sleep(600)"))
"""


def test_a_guard_that_is_terminated_while_it_starts_its_program_ends_it() -> None:
    with start_program([sys.executable, "-c", EARLY], stdin=subprocess.PIPE, stderr=subprocess.PIPE) as guard:
        assert guard.stderr is not None
        pid = int(guard.stderr.readline())
        try:
            assert guard.wait(PATIENCE) == 1
            assert not is_alive(pid)
        finally:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


# --- the size of results ----------------------------------------------------------------------------------------------


def call_all(folder: Path, how: str, sizes: list[int], limit: int) -> list[Any]:
    """The results of calls that give texts of these sizes; each counts -size MB if it is negative."""
    (folder / "server.py").write_text(SERVER)
    command = (sys.executable, str(folder / "server.py"), how, str(folder / "pids"))
    server = McpServer(name="s", command=command, env={"A": Secret("b")}, models=("*",), max_result_bytes=limit)
    return call_sizes(server, sizes)


def call_sizes(server: McpServer, sizes: list[int]) -> list[Any]:
    async def run() -> list[Any]:
        servers = McpServers()
        servers.apply_config(Config().with_section(McpSettings(servers={"s": server})))
        await servers.connect_all()
        (status,) = servers.server_statuses()
        assert status.state == "up", status.last_error
        connection = servers._connections["s"]
        found = [await connection.call_tool("make", {"size": size}) for size in sizes]
        await servers.close()
        return found

    return asyncio.run(run())


@pytest.mark.parametrize("how", ["plain", "late id"])
def test_a_result_that_is_too_large_is_an_error(tmp_path: Path, how: str) -> None:
    """The model learns why, and the server goes on."""
    found = call_all(tmp_path, how, [10, 100_000, 100_001, 20_000_000, 10], 100_000)
    assert [outcome.error for outcome in found] == [None, None, True, True, None]
    assert all("max_result_bytes" in outcome.content[0].text for outcome in (found[2], found[3]))


def test_a_result_without_end_does_not_fill_the_memory(tmp_path: Path) -> None:
    """300 MB of one line pass through the guard, which holds a few."""
    outcome, again = call_all(tmp_path, "plain", [-300, 5], 100_000)
    assert outcome.error
    assert "300000" in outcome.content[0].text
    assert again.content == (Text("xxxxx"),)


LINES = st.lists(st.binary(max_size=60).map(lambda line: line.replace(b"\n", b"")), max_size=6)


@given(LINES, st.lists(st.integers(1, 20), max_size=40), st.integers(20, 40))
def test_lines_pass_or_are_refused_however_they_are_cut(lines: list[bytes], cuts: list[int], limit: int) -> None:
    data = b"".join(line + b"\n" for line in lines)
    pieces, start = [], 0
    for cut in cuts:
        pieces.append(data[start : start + cut])
        start += cut
    pieces.append(data[start:])
    messages = MessageFilter(limit)
    expected = b"".join(line + b"\n" for line in lines)
    if all(len(line) <= limit for line in lines):
        assert b"".join(messages.feed(piece) for piece in pieces) == expected
        return
    short = b"".join(line + b"\n" for line in lines[: next(n for n, line in enumerate(lines) if len(line) > limit)])
    passed: list[bytes] = []
    with pytest.raises(ProgramRefused):
        passed.extend(map(messages.feed, pieces))
    assert short.startswith(b"".join(passed))


IDS = [1, -7, 12345, "a", 'q"uote', "call-1"]


@pytest.mark.parametrize("id", IDS)
@pytest.mark.parametrize(
    "order",
    [
        ("jsonrpc", "id", "result"),
        ("result", "jsonrpc", "id"),
        ("id", "result", "jsonrpc"),
        ("result", "id", "jsonrpc"),
    ],
)
@pytest.mark.parametrize("spaces", [(",", ":"), (", ", ": ")])
def test_the_call_of_a_large_result_is_found(id: Any, order: tuple[str, ...], spaces: tuple[str, str]) -> None:
    whole = {
        "jsonrpc": "2.0",
        "id": id,
        "result": {"content": [{"type": "text", "text": 'no "id":99 here ' * 200}], "id": 98},
    }
    line = json.dumps({key: whole[key] for key in order}, separators=spaces).encode()
    messages = MessageFilter(1000)
    out = messages.feed(line[:1500]) + messages.feed(line[1500:] + b'\n{"next":1}\n')
    error, after = out.splitlines()
    assert (json.loads(error)["id"], after) == (id, b'{"next":1}')
    assert "max_result_bytes" in json.loads(error)["error"]["message"]


# --- over HTTP --------------------------------------------------------------------------------------------------------


class HttpMcp(BaseHTTPRequestHandler):
    """An MCP server over HTTP that gives texts of any size, as JSON or as a stream, compressed or not."""

    kind, compressed = "application/json", False
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        self._send(405, b"")

    def do_DELETE(self) -> None:
        self._send(200, b"")

    def do_POST(self) -> None:
        message = json.loads(self.rfile.read(int(self.headers["content-length"])))
        id, method = message.get("id"), message["method"]
        if id is None:
            self._send(202, b"")
            return
        results: dict[str, Any] = {
            "initialize": lambda: {
                "protocolVersion": message["params"]["protocolVersion"],
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "s", "version": "1"},
            },
            "tools/list": lambda: {"tools": [{"name": "make", "inputSchema": {"type": "object"}}]},
            "tools/call": lambda: {"content": [{"type": "text", "text": "x" * message["params"]["arguments"]["size"]}]},
        }
        body = {"result": results[method]()} if method in results else {"error": {"code": -32601, "message": "no"}}
        data = json.dumps({"jsonrpc": "2.0", "id": id, **body}).encode()
        if self.kind == "text/event-stream":
            data = b"event: message\ndata: " + data + b"\n\n"
        self._send(200, gzip.compress(data) if self.compressed and method == "tools/call" else data, method)

    def _send(self, status: int, data: bytes, method: str = "") -> None:
        self.send_response(status)
        self.send_header("content-type", self.kind)
        if self.compressed and method == "tools/call":
            self.send_header("content-encoding", "gzip")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        with suppress(ConnectionError):
            self.wfile.write(data)


@pytest.mark.parametrize(
    ("kind", "compressed"), [("application/json", False), ("text/event-stream", False), ("application/json", True)]
)
def test_results_over_http_are_limited(kind: str, compressed: bool) -> None:
    """Also while they are read, and what unpacks to more than it seems is not read at all."""
    handler = type("Handler", (HttpMcp,), {"kind": kind, "compressed": compressed})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as listening:
        threading.Thread(target=listening.serve_forever, args=(0.01,), daemon=True).start()
        url = Secret(f"http://127.0.0.1:{listening.server_address[1]}/mcp")
        server = McpServer(name="s", url=url, models=("*",), max_result_bytes=100_000, timeout=PATIENCE)
        found = call_sizes(server, [10, 100_001, 20_000_000, 10])
        listening.shutdown()
    assert [outcome.error for outcome in found] == ([True] * 4 if compressed else [None, True, True, None])
    assert not any("did not answer" in outcome.content[0].text for outcome in found)
