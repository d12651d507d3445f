"""The process: what it says, what it does on signals, and several of it on one port."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from forked_commands import run_command
from gateway.process import run_gateway
from gateway.raw_exchange import (
    RawAnswer,
    RawConnection,
    RawProvider,
    ScriptedConnection,
    ask,
    configuration,
    frames,
    is_complete,
    opening_frames,
    request_of,
    text_of,
    whole_answer,
    write_chunked,
)
from toolwire_conformance.peers.peer import encode_json
from waits import PATIENCE, wait_until

ENOUGH = 10_000
"""How often the same is asked until the answer changes, so that one that never changes fails."""


@pytest.fixture
def wire() -> Iterator[RawProvider]:
    made = RawProvider()
    yield made
    made.close()


def _chat(port: int, model: str, stream: bool = False) -> RawAnswer:
    body = encode_json(request_of("openai-chat", model, stream)).encode()
    return ask(port, "POST", "/v1/chat/completions", body)


def _open_stream(port: int, model: str) -> RawConnection:
    line = RawConnection(port)
    line.send("POST", "/v1/chat/completions", encode_json(request_of("openai-chat", model, True)).encode())
    return line


def _stall_stream(peer: ScriptedConnection) -> None:
    peer.send(write_chunked(*opening_frames("openai-chat"), end=False))
    peer.wait_for_release()
    peer.chunk(*frames("openai-chat", "Hello there, how are you today?")[len(opening_frames("openai-chat")) :], b"")


def _read_rest(line: RawConnection, first: bytes) -> RawAnswer:
    got = RawAnswer(200, {}, first + line.response.read())
    line.connection.close()
    return got


# --- one process ---


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_says_where_it_is_and_serves_without_configuration(tmp_path: Path, number: int) -> None:
    with run_gateway(tmp_path) as process:
        base = f"http://127.0.0.1:{process.port}"
        lines = [line.split("#")[0].strip() for line in process.banner]
        assert lines == [
            f"export OPENAI_BASE_URL={base}/v1",
            f"export ANTHROPIC_BASE_URL={base}",
            f"export GOOGLE_GEMINI_BASE_URL={base}",
        ]
        assert base in process.read_log_until("Toolwire")
        assert ask(process.port, "GET", "/readyz").status == 200
        got = _chat(process.port, "loopback")
        assert got.status == 200
        line = json.loads(process.read_log_until(got.id))
        assert (line["provider"], line["status"]) == ("loopback", 200)
        process.signal(number)
        assert process.wait_for_exit() == 0


def test_a_stream_may_finish_when_it_is_asked_to_stop(tmp_path: Path, wire: RawProvider) -> None:
    (tmp_path / "toolwire.toml").write_text(configuration(wire))
    with run_gateway(tmp_path) as process:
        scene = wire.scene("openai-chat", _stall_stream)
        line = _open_stream(process.port, scene.model)
        line.start()
        first = line.read_until(b"Hel")
        process.signal(signal.SIGTERM)
        process.wait_until_refusing()
        scene.go.set()
        got = _read_rest(line, first)
        assert text_of("openai-chat", got, True) == "Hello there, how are you today?"
        assert is_complete("openai-chat", got.frames)
        assert process.wait_for_exit() == 0
        assert '"status":200' in process.read_log_until('"event":"exchange"')


def test_a_second_signal_does_not_wait(tmp_path: Path, wire: RawProvider) -> None:
    (tmp_path / "toolwire.toml").write_text(configuration(wire))
    with run_gateway(tmp_path) as process:
        scene = wire.scene("openai-chat", _stall_stream)
        line = _open_stream(process.port, scene.model)
        line.start()
        line.read_until(b"Hel")
        process.signal(signal.SIGTERM)
        process.wait_until_refusing()
        process.signal(signal.SIGTERM)
        assert process.wait_for_exit() == 0
        scene.go.set()
        line.connection.close()


def test_a_balancer_is_told_before_it_stops(tmp_path: Path) -> None:
    (tmp_path / "toolwire.toml").write_text("[server.timeouts]\ndrain = 600\n")
    with run_gateway(tmp_path) as process:
        assert ask(process.port, "GET", "/readyz").status == 200
        process.signal(signal.SIGTERM)
        for _ in range(ENOUGH):
            if ask(process.port, "GET", "/readyz").status == 503:
                break
        assert ask(process.port, "GET", "/readyz").data == b"stopping\n"
        assert _chat(process.port, "loopback").status == 200
        process.signal(signal.SIGTERM)
        assert process.wait_for_exit() == 0


def test_an_idle_connection_does_not_hold_it_up(tmp_path: Path) -> None:
    with run_gateway(tmp_path) as process:
        line = RawConnection(process.port)
        line.send("GET", "/livez")
        assert line.start().read() == b"ok\n"
        process.signal(signal.SIGTERM)
        assert process.wait_for_exit() == 0
        line.connection.close()


# --- a new configuration ---

ROUTE = '[models]\n{name} = "chat/gpt-4.1-{mark}"\n'


@pytest.mark.parametrize("how", ["signal", "file"])
def test_a_new_file_is_taken_up_without_dropping_a_stream(tmp_path: Path, wire: RawProvider, how: str) -> None:
    file = tmp_path / "toolwire.toml"
    old, new = wire.scene("openai-chat", _stall_stream), wire.scene("openai-chat", whole_answer("openai-chat", "New."))
    file.write_text(configuration(wire, more=ROUTE.format(name="before", mark=old.mark)))
    with run_gateway(tmp_path, "--config", str(file)) as process:
        line = _open_stream(process.port, "before")
        line.start()
        first = line.read_until(b"Hel")
        file.write_text(configuration(wire, more=ROUTE.format(name="behind", mark=new.mark)))
        if how == "signal":
            process.signal(signal.SIGHUP)
        assert str(file) in process.read_log_until('"config_reloaded"')
        assert text_of("openai-chat", _chat(process.port, "behind"), False) == "New."
        assert _chat(process.port, "before").status == 404
        old.go.set()
        assert is_complete("openai-chat", _read_rest(line, first).frames)


def test_a_bad_file_leaves_the_old_one_in_force(tmp_path: Path, wire: RawProvider) -> None:
    file = tmp_path / "toolwire.toml"
    scene = wire.scene("openai-chat", whole_answer("openai-chat"))
    good = configuration(wire, more=ROUTE.format(name="before", mark=scene.mark))
    file.write_text(good)
    with run_gateway(tmp_path, "--config", str(file)) as process:
        file.write_text(good.replace("[models]", "[modles]"))
        process.signal(signal.SIGHUP)
        told = json.loads(process.read_log_until("modles"))
        assert "models" in told["hint"]
        assert f"{file}:{good[: good.index('[models]')].count(chr(10)) + 1}" in told["message"]
        assert _chat(process.port, "before").status == 200
        file.write_text("no toml at all")
        process.signal(signal.SIGHUP)
        process.read_log_until("invalid TOML at column")
        assert _chat(process.port, "before").status == 200
        file.unlink()
        process.signal(signal.SIGHUP)
        process.read_log_until("cannot be read")
        assert _chat(process.port, "before").status == 200


# --- several workers ---


def _is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _count_exchanges(port: int) -> float:
    """Exchanges with the embedded model, of all workers together."""
    text = ask(port, "GET", "/metrics").data.decode()
    rows = re.findall(
        r'^toolwire_(?:requests|exchanges)_total\{[^}]*provider="loopback"[^}]*\} (\S+)$', text, re.MULTILINE
    )
    assert rows, text
    return sum(float(row) for row in rows)


def test_several_workers_share_the_port(tmp_path: Path) -> None:
    with run_gateway(tmp_path, "--workers", "2") as process:
        workers = process.children()
        assert len(workers) == 2
        for _ in range(20):
            assert _chat(process.port, "loopback").status == 200
        wait_until(lambda: {_count_exchanges(process.port) for _ in range(10)} == {20.0})
        victim = min(workers)
        os.kill(victim, signal.SIGKILL)
        wait_until(lambda: len(process.children()) == 2 and victim not in process.children())
        for _ in range(10):
            assert _chat(process.port, "loopback").status == 200
        workers = process.children()
        process.signal(signal.SIGTERM)
        assert process.wait_for_exit() == 0
        assert not [pid for pid in workers if _is_alive(pid)]


def test_workers_let_streams_finish_and_read_the_file_again(tmp_path: Path, wire: RawProvider) -> None:
    file = tmp_path / "toolwire.toml"
    file.write_text(configuration(wire))
    with run_gateway(tmp_path, "--config", str(file), "--workers", "2") as process:
        wait_until(lambda: ask(process.port, "GET", "/livez").status == 200)
        scene = wire.scene("openai-chat", _stall_stream)
        line = _open_stream(process.port, scene.model)
        line.start()
        first = line.read_until(b"Hel")
        new = wire.scene("openai-chat", whole_answer("openai-chat", "New."))
        file.write_text(configuration(wire, more=ROUTE.format(name="behind", mark=new.mark)))
        process.signal(signal.SIGHUP)
        for _ in range(2):
            process.read_log_until('"config_reloaded"')
        for _ in range(6):
            assert text_of("openai-chat", _chat(process.port, "behind"), False) == "New."
        process.signal(signal.SIGTERM)
        scene.go.set()
        assert is_complete("openai-chat", _read_rest(line, first).frames)
        assert process.wait_for_exit() == 0


def test_workers_do_not_outlive_whoever_looks_after_them(tmp_path: Path) -> None:
    with run_gateway(tmp_path, "--workers", "2") as process:
        workers = process.children()
        process.signal(signal.SIGKILL)
        process.process.wait(PATIENCE)
        wait_until(lambda: not [pid for pid in workers if _is_alive(pid)])


# --- what cannot begin ---


def _run_refused(folder: Path, *arguments: str) -> str:
    environ = {**os.environ, "HOME": str(folder), "XDG_CONFIG_HOME": str(folder)}
    done = run_command(["serve", *arguments], folder, environ)
    assert done.code == 2, done
    assert not done.out
    assert "Traceback" not in done.err
    return done.err


def test_a_port_that_is_taken(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        said = _run_refused(tmp_path, "--port", port)
    assert port in said
    assert "--port" in said
    assert "hint" in said


def test_a_port_from_the_file_that_is_taken(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        (tmp_path / "toolwire.toml").write_text(f"[server]\nport = {port}\n")
        assert f":{port}" in _run_refused(tmp_path)


def test_the_public_is_not_served_without_keys(tmp_path: Path) -> None:
    said = _run_refused(tmp_path, "--host", "0.0.0.0", "--port", "0")
    assert "0.0.0.0" in said
    assert "toolwire keys new" in said


def test_mistakes_in_the_file_are_told_with_their_lines(tmp_path: Path) -> None:
    (tmp_path / "toolwire.toml").write_text('[server]\n\nprot = 1\n[models]\na = "nobody/x"\n')
    said = _run_refused(tmp_path)
    assert "toolwire.toml:3" in said
    assert "toolwire.toml:5" in said
    assert "port" in said


@pytest.mark.parametrize(
    ("route", "what"),
    [
        ("fast", "--route: invalid route `fast`"),
        ("fast=", "--route: invalid route `fast=`"),
        ("fast=nobody/x", "--route: `fast=nobody/x`: unknown provider `nobody`"),
    ],
)
def test_a_route_that_is_none(route: str, what: str, tmp_path: Path) -> None:
    said = _run_refused(tmp_path, "--port", "0", "--route", route)
    assert said.startswith(f"error: {what}\nhint: ")
