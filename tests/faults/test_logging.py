"""A log that nobody reads: no request, no health check and no signal waits for it, and what is lost is counted."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from forked_commands import start_program
from gateway.process import Process, run_gateway
from gateway.raw_exchange import ask, request_of
from toolwire_conformance.peers.peer import encode_json
from waits import PATIENCE

REQUESTS = 90
"""With their bodies, their lines are longer than the queue."""
EXCHANGE = re.compile(r'"event":"exchange"|^\d\d:\d\d:\d\d \d{3} ')
REPORT = re.compile(r'\blog_lines_dropped\b(?:","level":"warn","|  )lines"?[=:](\d+)')


def _ask_model(process: Process, size: int) -> str:
    """A request for a model that does not exist: only its log line is of interest, which holds the body."""
    body = request_of("openai-chat", "nobody", False) | {"messages": [{"role": "user", "content": "x" * size}]}
    got = ask(process.port, "POST", "/v1/chat/completions", encode_json(body).encode())
    assert got.status == 404
    return got.id


def count_dropped_lines(process: Process) -> int:
    text = ask(process.port, "GET", "/metrics").data.decode()
    return int(float(re.findall(r"^toolwire_log_lines_dropped_total (\S+)$", text, re.MULTILINE)[0]))


@pytest.mark.parametrize("form", ["json", "text"])
def test_requests_go_on_and_every_line_is_written_or_counted(tmp_path: Path, form: str) -> None:
    (tmp_path / "toolwire.toml").write_text(f'[server]\nlog_bodies = true\nlog_format = "{form}"\n')
    with run_gateway(tmp_path, reads_log=False) as process:
        for _ in range(REQUESTS):
            _ask_model(process, 60_000)
        assert ask(process.port, "GET", "/livez").status == 200
        assert 0 < count_dropped_lines(process) < REQUESTS
        process.read_log()
        lines = [process.read_log_match(EXCHANGE) for _ in range(REQUESTS // 2)]  # now there is room again
        last = _ask_model(process, 10)
        while last not in lines[-1]:
            lines.append(process.log.get(timeout=PATIENCE))
        lost = sum(int(found[1]) for line in lines if (found := REPORT.search(line)))
        # Beside these there is a line for the request for the metrics.
        assert sum(bool(EXCHANGE.search(line)) for line in lines) + lost == REQUESTS + 2
        assert count_dropped_lines(process) == lost


@pytest.mark.parametrize("workers", ["1", "2"])
def test_it_stops_though_nobody_reads(tmp_path: Path, workers: str) -> None:
    (tmp_path / "toolwire.toml").write_text("[server]\nlog_bodies = true\n")
    with run_gateway(tmp_path, "--workers", workers, reads_log=False) as process:
        for _ in range(20):
            _ask_model(process, 60_000)
        process.signal(signal.SIGTERM)
        assert process.process.wait(PATIENCE) == 0


@pytest.mark.parametrize("workers", ["1", "2"])
def test_lines_of_a_process_that_stops_are_written(tmp_path: Path, workers: str) -> None:
    """The queue is emptied at the end, for a reader that reads."""
    (tmp_path / "toolwire.toml").write_text("[server]\nlog_bodies = true\n")
    with run_gateway(tmp_path, "--workers", workers, reads_log=False) as process:
        ids = {_ask_model(process, 1_000) for _ in range(100)}  # longer lines of two workers may mix in a pipe
        process.read_log()
        process.signal(signal.SIGTERM)
        assert process.wait_for_exit() == 0
        lines = [process.log.get_nowait() for _ in range(process.log.qsize())]
        assert {json.loads(line)["request_id"] for line in lines if '"exchange"' in line} == ids


def test_a_reader_that_leaves_does_not_break_requests(tmp_path: Path) -> None:
    with run_gateway(tmp_path, reads_log=False) as process:
        process.stderr.close()
        for _ in range(3):
            _ask_model(process, 10)
        process.signal(signal.SIGTERM)
        assert process.process.wait(PATIENCE) == 0


FLOOD = """
import sys
from toolwire.gateway.http.stderr import STDERR, queue_stderr
with queue_stderr():
    for number in range(20_000):  # a traceback, a warning, a message of a library
        print("x" * 1000, file=sys.stderr)
print(STDERR.dropped_lines)
"""


def test_other_messages_do_not_block_either() -> None:
    with start_program([sys.executable, "-c", FLOOD], stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert int(process.stdout.read()) > 0
        assert process.wait(PATIENCE) == 0
