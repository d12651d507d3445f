"""Workers that die: the log says which and why, others take over, and when none can start, the gateway ends."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from forked_commands import start_program
from gateway.process import Process, run_gateway
from gateway.raw_exchange import ask
from waits import PATIENCE


def read_death(process: Process) -> dict[str, object]:
    line: dict[str, object] = json.loads(process.read_log_until('"worker_died"'))
    return line


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM])
def test_the_end_of_a_worker_is_logged_and_it_is_replaced(tmp_path: Path, number: signal.Signals) -> None:
    with run_gateway(tmp_path, "--workers", "2") as process:
        for worker in process.children():
            os.kill(worker, number)
        told = [read_death(process) for _ in range(2)]
        expected = "exit status 0" if number == signal.SIGTERM else f"signal {number.name}"
        for line in told:
            assert str(line["reason"]).startswith(expected)
            assert line["level"] == "error"
        assert len({line["pid"] for line in told}) == 2
        assert ask(process.port, "GET", "/livez").status == 200


def test_when_no_worker_can_start_any_more_the_gateway_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """New workers cannot open the metrics that they share with others."""
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    with run_gateway(tmp_path, "--workers", "2") as process:
        (shared,) = (path for path in temporary.glob("toolwire-*") if "console" not in path.name)
        shutil.rmtree(shared)
        shared.write_text("not a directory")
        for worker in process.children():
            os.kill(worker, signal.SIGKILL)
        lines = [process.log.get(timeout=PATIENCE)]
        while '"workers_failed"' not in lines[-1]:
            lines.append(process.log.get(timeout=PATIENCE))
        deaths = [json.loads(line) for line in lines if '"worker_died"' in line]
        pauses = [line["restart_seconds"] for line in deaths if not line["served"]]
        assert 3 <= len(pauses) <= 4  # two may end at the same moment
        assert pauses == sorted(pauses)
        assert pauses[0] > 0
        assert [line for line in lines if '"internal_error"' in line and "FileExistsError" in line]
        assert "no worker can start" in lines[-1]
        assert process.wait_for_exit() == 1
        with pytest.raises(ConnectionError):
            socket.create_connection(("127.0.0.1", process.port), PATIENCE)


SUPERVISOR = """
import os, signal, sys
from toolwire.gateway.http.workers import WorkerSupervisor

def say(*words):
    os.write(1, (" ".join(map(str, words)) + "\\n").encode())

def log(kind, *, level, **fields):
    say(kind, level, fields.get("reason", ""), fields.get("served", ""))

def serve(context):
    {serve}

supervisor = WorkerSupervisor(
    2, serve, log, lambda error: say(repr(error)), lambda: say("ready"), lambda: None
)
sys.exit(supervisor.supervise())
"""


def _supervise(serve: str, before: str = "") -> tuple[int, list[str]]:
    script = before + SUPERVISOR.format(serve=serve)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert not done.stderr
    return done.returncode, done.stdout.splitlines()


@pytest.mark.parametrize(
    ("serve", "reason"),
    [
        ("raise ValueError('a broken file')", "exit status 1"),
        ("sys.exit('no')", "exit status 1"),
        ("os._exit(7)", "exit status 7"),
        ("os.kill(os.getpid(), signal.SIGKILL)", "signal SIGKILL"),
    ],
)
def test_workers_that_never_serve_end_the_gateway_at_once(serve: str, reason: str) -> None:
    status, lines = _supervise(serve)
    assert status == 1
    assert "ready" not in lines
    assert [line for line in lines if line.startswith(f"worker_died error {reason}")]
    assert lines[-1].startswith("workers_failed error")
    if "raise" in serve:
        assert "ValueError('a broken file')" in lines


def test_one_worker_that_serves_is_enough() -> None:
    """The other one cannot start; when the one that serves ends the process, it ends well."""
    serve = (
        "context.slot and sys.exit(1); signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM]); "
        "context.on_ready(); signal.sigwait([signal.SIGTERM])"
    )
    script = SUPERVISOR.format(serve=serve)
    with start_program([sys.executable, "-c", script]) as process:
        assert process.stdout is not None
        seen = []
        while not {"ready", "worker_died error exit status 1 False"} <= set(seen):
            seen.append(process.stdout.readline().strip())
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0


SIGNAL_WHILE_FORKING = """
import os, signal

def wait_for_signal():
    for _ in range(1_000_000):
        if signal.SIGTERM in signal.sigpending():
            return

os.register_at_fork(before=lambda: os.kill(os.getpid(), signal.SIGTERM), after_in_child=wait_for_signal)
"""


def test_a_signal_that_comes_while_a_worker_is_forked_is_not_lost() -> None:
    assert _supervise("say('serves')", SIGNAL_WHILE_FORKING) == (0, [])


def test_workers_that_serve_after_the_signal_are_not_announced() -> None:
    """The socket is closed by then."""
    serve = (
        "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM]); say('starts'); signal.sigwait([signal.SIGTERM]); "
        "context.on_ready(); say('serves'); os.read(0, 1)"
    )
    script = SUPERVISOR.format(serve=serve)
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", script], text=True, **pipes) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert [process.stdout.readline() for _ in range(2)] == ["starts\n"] * 2
        process.send_signal(signal.SIGTERM)
        assert [process.stdout.readline() for _ in range(2)] == ["serves\n"] * 2
        process.stdin.close()  # ends the workers
        assert process.stdout.read() == ""
        assert process.wait(PATIENCE) == 0


def test_failed_starts_count_only_while_no_worker_serves() -> None:
    """The other one fails again and again. When the one that serves dies, too, it is replaced all the same."""
    serve = (
        "context.slot and sys.exit(1); signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM]); "
        "context.on_ready(); say('serves', os.getpid()); signal.sigwait([signal.SIGTERM])"
    )
    script = "from toolwire.gateway.http import workers\nworkers.FIRST_PAUSE = 0.01\n" + SUPERVISOR.format(serve=serve)
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for _ in range(2):
            seen = [""]
            while seen.count("worker_died error exit status 1 False") < 4 or not any("serves" in line for line in seen):
                seen.append(process.stdout.readline().strip())
                assert not seen[-1].startswith("workers_failed")
            [serving] = [line.partition(" ")[2] for line in seen if line.startswith("serves")]
            os.kill(int(serving), signal.SIGKILL)
        while not process.stdout.readline().startswith("serves"):
            pass
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_gateway_that_was_started_under_nohup_reads_its_file_again_on_a_hangup(tmp_path: Path, workers: str) -> None:
    file = tmp_path / "toolwire.toml"
    file.write_text("[server]\nretries = 1\n")
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # processes that are started now ignore it, too
    try:
        with run_gateway(tmp_path, "--config", str(file), "--workers", workers) as process:
            signal.signal(signal.SIGHUP, before)
            file.write_text("[server]\nretries = 2\n")
            process.signal(signal.SIGHUP)
            for _ in range(int(workers)):
                process.read_log_until('"config_reloaded"')
            assert ask(process.port, "GET", "/livez").status == 200
    finally:
        signal.signal(signal.SIGHUP, before)
