"""A gateway that stops, with one worker and with several: no connection that it has taken, or that waits for it, is reset."""

from __future__ import annotations

import http.client
import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from gateway.process import Process, run_gateway
from gateway.raw_exchange import ask
from toolwire.gateway.serve import LAST_REQUEST_SECONDS
from waits import PATIENCE, wait_until

MANY = 150
"""More connections than are accepted at once."""
LIVEZ = b"GET /livez HTTP/1.1\r\nhost: x\r\n\r\n"
WORKERS = pytest.mark.parametrize("workers", [1, 2])


def servers(process: Process) -> set[int]:
    """The processes that accept connections."""
    return process.children() or {process.process.pid}


@contextmanager
def asleep(process: Process) -> Iterator[None]:
    """Meanwhile connections wait in the kernel, and so do signals."""
    pids = servers(process)
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    wait_until(lambda: all(" T " in Path(f"/proc/{pid}/stat").read_text() for pid in pids))
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


def connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), PATIENCE)


def read_answer(connection: socket.socket) -> http.client.HTTPResponse:
    answer = http.client.HTTPResponse(connection)
    answer.begin()
    assert (answer.status, answer.read()) == (200, b"ok\n")
    return answer


@WORKERS
def test_connections_that_wait_are_answered(tmp_path: Path, workers: int) -> None:
    with run_gateway(tmp_path, "--workers", str(workers)) as process:
        kept = [connect(process.port) for _ in range(4)]
        for connection in kept:
            connection.sendall(LIVEZ)
            assert not read_answer(connection).will_close
        with asleep(process):
            waiting = [*kept, *(connect(process.port) for _ in range(MANY))]
            for connection in waiting:
                connection.sendall(LIVEZ)
            process.signal(signal.SIGTERM)
        for connection in waiting:
            with closing(connection):
                read_answer(connection)
        assert process.wait_for_exit() == 0
        with pytest.raises(ConnectionRefusedError):
            connect(process.port)


def test_another_worker_answers_what_waits(tmp_path: Path) -> None:
    """One worker is stopped alone: nothing else must change, on any port."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        metrics = free.getsockname()[1]
    (tmp_path / "toolwire.toml").write_text(f'[server]\nmetrics_listen = "127.0.0.1:{metrics}"\n')
    with run_gateway(tmp_path, "--workers", "2") as process:
        with asleep(process):
            waiting = [connect(process.port) for _ in range(MANY)]
            for connection in waiting:  # before it stops: it may accept some, and waits only a short time for requests
                connection.sendall(LIVEZ)
            os.kill(min(servers(process)), signal.SIGTERM)
        for connection in waiting:
            with closing(connection):
                read_answer(connection)
        process.read_log_until('"worker_died"')
        with closing(connect(process.port)) as connection:
            connection.sendall(LIVEZ)
            assert not read_answer(connection).will_close
        assert ask(metrics, "GET", "/metrics").status == 200


def test_clients_leave_while_it_drains(tmp_path: Path) -> None:
    """A kept connection is answered for the last time, so that its client connects elsewhere."""
    (tmp_path / "toolwire.toml").write_text("[server.timeouts]\ndrain = 600\n")
    with run_gateway(tmp_path) as process, closing(connect(process.port)) as kept:
        kept.sendall(LIVEZ)
        assert not read_answer(kept).will_close
        process.signal(signal.SIGTERM)
        wait_until(lambda: ask(process.port, "GET", "/readyz").status == 503)
        kept.sendall(LIVEZ)
        assert read_answer(kept).will_close
        assert not kept.recv(1)
        with closing(connect(process.port)) as new:
            new.sendall(LIVEZ)
            assert read_answer(new).will_close
        process.signal(signal.SIGTERM)
        assert process.wait_for_exit() == 0


@WORKERS
@pytest.mark.parametrize("keeps", [False, True], ids=["new connections", "kept connections"])
def test_clients_that_go_on_are_answered_or_refused(tmp_path: Path, workers: int, keeps: bool) -> None:
    faults: list[BaseException] = []
    begun = threading.Barrier(5)

    def repeat(port: int) -> None:
        is_first, used_at = True, 0.0
        try:
            while True:
                used_at = time.monotonic()
                try:
                    connection = connect(port)
                except ConnectionRefusedError:
                    return
                with closing(connection):
                    will_close = False
                    while not will_close:
                        sent_at = time.monotonic()
                        connection.sendall(LIVEZ)
                        will_close = read_answer(connection).will_close or not keeps
                        used_at = sent_at  # the gateway has seen it later
                        if is_first:
                            is_first = False
                            begun.wait(PATIENCE)
        except (OSError, http.client.HTTPException, AssertionError) as fault:
            # A client that the machine has kept from asking for longer may find its connection closed.
            if time.monotonic() - used_at < LAST_REQUEST_SECONDS:
                faults.append(fault)

    with run_gateway(tmp_path, "--workers", str(workers)) as process:
        clients = [threading.Thread(target=repeat, args=(process.port,), daemon=True) for _ in range(4)]
        for client in clients:
            client.start()
        begun.wait(PATIENCE)
        process.signal(signal.SIGTERM)
        assert process.wait_for_exit() == 0
        for client in clients:
            client.join(PATIENCE)
    assert not faults
