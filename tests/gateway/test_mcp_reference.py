"""The official reference servers, from npm: programs of others, of 2025."""

from __future__ import annotations

import base64
import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from forked_commands import start_program
from gateway.mcp_server import PIXEL
from gateway.npm import HERE, install_packages
from gateway.test_mcp import open_talk, run, server_at, words
from toolwire.core.ir import Media
from toolwire.gateway.features.mcp.settings import McpServer
from waits import free_port

PACKAGES = HERE / "node_modules" / "@modelcontextprotocol"
EVERYTHING = str(PACKAGES / "server-everything" / "dist" / "index.js")
FILES = str(PACKAGES / "server-filesystem" / "dist" / "index.js")


@pytest.fixture(scope="module")
def node(pytestconfig: pytest.Config) -> str:
    return install_packages(pytestconfig)


@contextmanager
def over_http(node: str, port: int) -> Iterator[str]:
    environ = {**os.environ, "PORT": str(port)}
    pipes = {"stdout": None, "stderr": subprocess.PIPE}
    with start_program([node, EVERYTHING, "streamableHttp"], env=environ, **pipes) as process:
        assert process.stderr is not None
        while "listening" not in process.stderr.readline():
            assert process.poll() is None
        yield f"http://127.0.0.1:{port}/mcp"


@pytest.fixture(params=["stdio", "http"])
def everything(request: pytest.FixtureRequest, node: str) -> Iterator[McpServer]:
    if request.param == "stdio":
        yield McpServer(name="docs", command=(node, EVERYTHING), models=("*",))
        return
    with over_http(node, free_port()) as url:
        yield server_at(url)


def test_everything(everything: McpServer) -> None:
    async def test() -> None:
        async with open_talk(everything) as talk:
            assert words(await talk.call("docs__echo", '{"message": "grüße"}')) == "Echo: grüße"
            assert words(await talk.call("docs__get-sum", '{"a": 1, "b": 2}')) == "The sum of 1 and 2 is 3."
            picture = await talk.call("docs__get-tiny-image")
            assert [part.mime for part in picture.content if isinstance(part, Media)] == ["image/png"]
            weather = await talk.call("docs__get-structured-content", '{"location": "Chicago"}')
            assert json.loads(words(weather)) == weather.value
            link = await talk.call("docs__get-resource-links", '{"count": 1}')
            assert "demo://resource/" in words(link)
            wrong = await talk.call("docs__get-sum", '{"a": "x"}')
            assert wrong.error

    run(test)


def test_a_server_that_forgot_us_is_asked_anew(node: str) -> None:
    async def test() -> None:
        port = free_port()
        with ExitStack() as first:
            url = first.enter_context(over_http(node, port))
            async with open_talk(server_at(url)) as talk:
                assert words(await talk.call("docs__echo", '{"message": "once"}')) == "Echo: once"
                first.close()
                with over_http(node, port):
                    assert words(await talk.call("docs__echo", '{"message": "again"}')) == "Echo: again"

    run(test)


def test_a_session_is_ended_with_the_gateway(node: str, capfd: pytest.CaptureFixture[str]) -> None:
    async def test() -> None:
        with over_http(node, free_port()) as url:
            async with open_talk(server_at(url)) as talk:
                assert talk.names()

    run(test)
    assert "Received session termination request" in capfd.readouterr().out


def test_files(node: str, tmp_path: Path) -> None:
    folder = tmp_path / "shared"
    folder.mkdir()

    async def test() -> None:
        server = McpServer(name="files", command=(node, FILES, str(folder)), models=("*",), tools=("read_*", "write_*"))
        async with open_talk(server) as talk:
            assert all(name.startswith(("files__read_", "files__write_")) for name in talk.names())
            file = str(folder / "a.txt")
            written = await talk.call("files__write_file", json.dumps({"path": file, "content": "hello"}))
            assert not written.error
            assert (folder / "a.txt").read_text() == "hello"
            assert words(await talk.call("files__read_text_file", json.dumps({"path": file}))) == "hello"
            (folder / "dot.png").write_bytes(base64.b64decode(PIXEL))
            seen = await talk.call("files__read_media_file", json.dumps({"path": str(folder / "dot.png")}))
            assert seen.content == (Media("image", mime="image/png", data=PIXEL),), "and not once more as text"
            outside = await talk.call("files__read_text_file", json.dumps({"path": str(tmp_path / "secret")}))
            assert outside.error
            assert "Access denied" in words(outside)

    run(test)
