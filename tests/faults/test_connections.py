"""Connections: none is left behind by a reload, none is used after its end, and none is blamed on others."""

from __future__ import annotations

import gc
import os
import resource
import signal
import socket
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress
from itertools import count
from pathlib import Path

import pytest

from gateway.misbehaving_providers import LOOPS, OK, client, on_loop, send_post
from gateway.process import Process, run_gateway
from gateway.raw_exchange import (
    RawConnection,
    RawProvider,
    ScriptedConnection,
    answer,
    ask,
    call,
    configuration,
    request_of,
    stage,
    whole_answer,
)
from toolwire.gateway.settings.address import Address
from toolwire.gateway.settings.config import Config
from toolwire_conformance.peers.peer import encode_json
from waits import PATIENCE, wait_until

LIMIT = 1 << 20


@pytest.fixture
def wire() -> Iterator[RawProvider]:
    made = RawProvider()
    yield made
    made.close()


def _descriptors(process: Process) -> int:
    return len(os.listdir(f"/proc/{process.process.pid}/fd"))


def _chat(model: str) -> bytes:
    return encode_json(request_of("openai-chat", model, False)).encode()


# --- connections to providers that are not used any more -----------------------------------------------------------


@pytest.mark.parametrize("key", ["connect", "first_byte", "between_bytes", "whole_answer", "all_attempts"])
def test_reloads_leave_no_connection_behind(tmp_path: Path, wire: RawProvider, key: str) -> None:
    file = tmp_path / "toolwire.toml"
    scene = wire.scene("openai-chat", whole_answer("openai-chat"))
    file.write_text(configuration(wire))
    with run_gateway(tmp_path, "--config", str(file)) as process:
        counts = []
        for number in range(12):
            file.write_text(configuration(wire, more=f"[server.timeouts]\n{key} = {100 + number}\n"))
            process.signal(signal.SIGHUP)
            process.read_log_until('"config_reloaded"')
            assert ask(process.port, "POST", "/v1/chat/completions", _chat(scene.model)).status == 200
            counts.append(_descriptors(process))
        assert max(counts[2:]) <= counts[1] + 1  # the last client's connection may still be open


# --- connections that end while they are idle ----------------------------------------------------------------------


def _hang_up(peer: ScriptedConnection) -> None:
    """Take the request, and close the connection without an answer."""


@pytest.mark.parametrize(("retries", "requests", "status"), [(0, 3, 200), (1, 3, 200), (2, 3, 200)])
@pytest.mark.parametrize("protocol", ["openai-chat", "anthropic"])
def test_a_request_is_sent_again_only_as_an_attempt(
    tmp_path: Path, protocol: str, retries: int, requests: int, status: int
) -> None:
    with stage(tmp_path, f"retries = {retries}") as served:
        scene = served.scene(protocol, whole_answer(protocol), _hang_up, whole_answer(protocol))
        assert call(served, protocol, scene.model, False).status == 200
        got = call(served, protocol, scene.model, False)
        assert got.status == status
        assert len(scene.asked) == requests
        outcomes = [outcome for _, outcome, _ in served.line(got.id)["attempts"]]
        assert outcomes == ["stale-connection", "ok"][: requests - 1]


@pytest.mark.parametrize(("retries", "requests", "status"), [(0, 3, 200), (1, 3, 200)])
def test_a_forwarded_request_too(tmp_path: Path, retries: int, requests: int, status: int) -> None:
    with stage(tmp_path, f"retries = {retries}") as served:
        found = answer(200, b'{"object":"list","data":[]}')
        scene = served.scene("openai-chat", found, _hang_up, found)
        body = encode_json({"model": scene.model, "input": "Hi"}).encode()
        assert ask(served.port, "POST", "/v1/embeddings", body).status == 200
        got = ask(served.port, "POST", "/v1/embeddings", body)
        assert got.status == status
        assert len(scene.asked) == requests
        assert [outcome for _, outcome, _ in served.line(got.id)["attempts"]] == ["stale-connection"]


@pytest.mark.parametrize("retries", [0, 1, 2])
def test_a_request_is_not_sent_for_ever(tmp_path: Path, retries: int) -> None:
    """Every connection is closed without an answer: one send more than `retries` allows, and each can be seen."""
    with stage(tmp_path, f"retries = {retries}") as served:
        scene = served.scene("openai-chat", whole_answer("openai-chat"), _hang_up)
        assert call(served, "openai-chat", scene.model, False).status == 200
        got = call(served, "openai-chat", scene.model, False)
        assert got.status == 502
        outcomes = [outcome for _, outcome, _ in served.line(got.id)["attempts"]]
        assert outcomes == ["stale-connection", *["connection-closed"] * (retries + 1)]
        assert len(scene.asked) == 1 + len(outcomes)


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("unasked", [b"", b"HTTP/1.1 408 Request Timeout\r\n\r\n"])
def test_a_connection_whose_end_is_in_the_socket_gets_no_request(loop: str, unasked: bytes) -> None:
    """The event loop has not read it yet, because it was busy."""
    answered, ended = threading.Event(), threading.Event()
    requests = []

    def serve(listening: socket.socket) -> None:
        for _ in range(2):
            connection, _ = listening.accept()
            with connection, suppress(ConnectionError):
                data = b""
                while b"\r\n\r\n" not in data:
                    data += connection.recv(65536)
                requests.append(data)
                connection.sendall(OK)
                answered.wait(PATIENCE)
                connection.sendall(unasked if len(requests) == 1 else b"")
                connection.shutdown(socket.SHUT_WR)
                ended.set()
                connection.recv(65536)

    async def test() -> None:
        with socket.create_server(("127.0.0.1", 0)) as listening:
            thread = threading.Thread(target=serve, args=(listening,), daemon=True)
            thread.start()
            address = Address.parse(f"http://127.0.0.1:{listening.getsockname()[1]}")
            async with client() as made:
                assert await (await send_post(made, address)).read(LIMIT) == b"ok"
                answered.set()
                ended.wait(PATIENCE)  # on the event loop: it reads nothing
                assert await (await send_post(made, address)).read(LIMIT) == b"ok"
            thread.join(PATIENCE)
            assert len(requests) == 2

    on_loop(loop, test())


# --- no descriptors left -------------------------------------------------------------------------------------------


def _take_descriptors(process: Process) -> Callable[[], object]:
    """Let the process open no more files, until the function that is returned is called."""
    pid = process.process.pid
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    taken = set(map(int, os.listdir(f"/proc/{pid}/fd")))
    lowest = next(number for number in count() if number not in taken)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (lowest, before[1]))
    return lambda: resource.prlimit(pid, resource.RLIMIT_NOFILE, before)


def test_the_provider_is_not_blamed_when_descriptors_run_out(tmp_path: Path, wire: RawProvider) -> None:
    scene = wire.scene("openai-chat", whole_answer("openai-chat"))
    file = tmp_path / "toolwire.toml"
    file.write_text(configuration(wire, "retries = 0\ncooldown_after = 1"))
    with run_gateway(tmp_path, "--config", str(file)) as process:
        line = RawConnection(process.port)
        line.send("GET", "/livez")
        assert line.start().read() == b"ok\n"
        restore = _take_descriptors(process)
        line.send("POST", "/v1/chat/completions", _chat(scene.model))
        response = line.start()
        assert response.status == 503
        body = response.read()
        assert b"file descriptor" in body
        assert b"ulimit -n" in body
        assert b"did not send" not in body
        assert not scene.asked
        restore()
        line.send("POST", "/v1/chat/completions", _chat(scene.model))
        response = line.start()
        assert (response.status, len(scene.asked)) == (200, 1)
        response.read()
        text = ask(process.port, "GET", "/metrics").data.decode()
        assert 'outcome="out-of-descriptors"' in text
        assert "toolwire_upstream_errors_total{" not in text
        line.connection.close()


def test_new_connections_wait_until_there_are_descriptors(tmp_path: Path) -> None:
    with run_gateway(tmp_path) as process:
        restore = _take_descriptors(process)
        waiting = [RawConnection(process.port) for _ in range(30)]
        for line in waiting:
            line.send("GET", "/livez")
        told = process.read_log_until('"accepting_paused"')
        assert "ulimit -n" in told
        assert '"level":"error"' in told
        restore()
        for line in waiting:  # none was closed
            assert line.start().read() == b"ok\n"
            line.connection.close()


# --- several workers ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [2, 3])
def test_connections_are_spread_over_the_workers(tmp_path: Path, workers: int) -> None:
    with run_gateway(tmp_path, "--workers", str(workers)) as process:
        idle = {pid: _sockets(pid) for pid in process.children()}
        with ExitStack() as lines:
            for _ in range(300 * workers):  # who has no processor for a moment gets none, and all new ones after it
                line = lines.enter_context(closing(RawConnection(process.port).connection))
                line.request("GET", "/livez")
                assert line.getresponse().read() == b"ok\n"
                if min(_sockets(pid) - before for pid, before in idle.items()) >= 20:
                    return
        raise AssertionError("one worker has nearly all connections")


def test_a_worker_that_is_stuck_does_not_stop_the_others(tmp_path: Path) -> None:
    with run_gateway(tmp_path, "--workers", "2") as process:
        stuck = min(process.children())
        os.kill(stuck, signal.SIGSTOP)
        lines = [RawConnection(process.port) for _ in range(10)]
        for line in lines:
            line.send("GET", "/livez")
            assert line.start().read() == b"ok\n"
            line.connection.close()
        os.kill(stuck, signal.SIGCONT)


def _sockets(pid: int) -> int:
    folder = Path(f"/proc/{pid}/fd")
    return sum(os.readlink(folder / name).startswith("socket:") for name in os.listdir(folder))


# --- configurations that are not used any more ----------------------------------------------------------------------


def _count_configurations() -> int:
    return sum(type(one) is Config for one in gc.get_objects())


def test_a_configuration_that_was_replaced_is_let_go(tmp_path: Path) -> None:
    """Without the garbage collector, which seldom looks at what is old: also while clients keep their connections."""
    more = f'[store]\nurl = "sqlite://{tmp_path}/store.db"\n[[limits]]\nname = "x"\ntokens_per_day = 100000000\n'
    gc.collect()
    before = _count_configurations()
    gc.disable()
    try:
        with stage(tmp_path, 'log_format = "none"', more) as served, ExitStack() as connections:
            file, replaced = tmp_path / "toolwire.toml", list[weakref.ReferenceType[object]]()
            scene = served.scene("anthropic", whole_answer("anthropic"))
            for number in range(3):
                connection = RawConnection(served.port)
                connections.callback(connection.disconnect)
                for _ in range(2):  # the second head is a known one
                    connection.send("POST", "/v1/chat/completions", _chat(scene.model))
                    assert connection.start().read()
                assert call(served, "anthropic", "unknown", False).status == 404
                runtime = served.gateway.current_routes(time.monotonic).runtime
                parts = (runtime, runtime.router, runtime.policy)
                replaced += map(weakref.ref, parts)
                del runtime, parts
                file.write_text(f"{file.read_text()}# {number}\n")
                served.gateway.config_watch.start_reload()
                wait_until(lambda: served.gateway.config_watch.source.accepted_file.text.endswith(f"# {number}\n"))  # type: ignore[union-attr]  # noqa: B023
                assert call(served, "anthropic", scene.model, False).status == 200
            wait_until(lambda: all(one() is None for one in replaced))
            assert _count_configurations() <= before + 2  # the file's, and the same with the keys of the store
    finally:
        gc.enable()
