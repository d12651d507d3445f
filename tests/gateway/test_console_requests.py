"""Requests over time and limits in the console: of all workers, by the same counters that limit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from gateway.raw_exchange import RawConnection, Served, answer, ask, call, play_script, refusal, request_of, stage
from gateway.test_console import API, run_gateway
from toolwire.gateway.surfaces.console.api_usage import RequestReport
from toolwire_conformance.peers.peer import encode_json
from waits import wait_until

LIMITS = """
[[limits]]
name = "calm"
tokens_per_month = 100000
[[limits]]
name = "models"
per = "model"
tokens_per_month = 1000000
soft = true
"""


def read_requests(served: Served, query: str = "") -> RequestReport:
    got = ask(served.port, "GET", f"{API}requests?{query}")
    assert got.status == 200, got.data
    return msgspec.json.decode(got.data, type=RequestReport)


def wait_for_requests(served: Served, count: int, query: str = "") -> RequestReport:
    wait_until(lambda: read_requests(served, query).total.requests >= count)
    return read_requests(served, query)


def test_requests_are_counted_by_what_is_asked_for(tmp_path: Path) -> None:
    with stage(tmp_path) as served:
        good = served.scene("openai-chat", *[play_script("openai-chat", False)] * 3)
        for _ in range(3):
            assert call(served, "openai-chat", good.model, False).status == 200
        bad = served.scene("openai-chat", *[answer(400, refusal("openai-chat", 400, "bad", "no"))])
        assert call(served, "openai-chat", bad.model, False).status == 400
        ask(served.port, "GET", "/v1/models")
        found = wait_for_requests(served, 4, "by=model&step=minute&since=1h")
        assert {row.name: (row.requests, row.failed) for row in found.sums} == {
            good.model.partition("/")[2]: (3, 0),
            bad.model.partition("/")[2]: (1, 1),
        }
        row = next(row for row in found.sums if not row.failed)
        assert row.duration_p50_ms is not None
        assert row.duration_p95_ms is not None
        assert row.first_byte_p95_ms is not None
        assert 0 < row.duration_p50_ms <= row.duration_p95_ms
        assert {one.time for one in found.rows} <= {int(found.until) // 60 * 60 - 60 * ago for ago in range(60)}
        only = read_requests(served, f"by=provider&only=model%3D{row.name}&step=hour")
        assert (only.total.requests, only.step_seconds, [one.name for one in only.sums]) == (3, 3600, ["chat"])


def test_the_largest_groups_are_shown_and_the_others_together(tmp_path: Path) -> None:
    with stage(tmp_path) as served:
        scene = served.scene("openai-chat", *[play_script("openai-chat", False)] * 9)
        for number in range(9):
            call(served, "openai-chat", f"chat/m{number}-{scene.mark}", False)
        found = wait_for_requests(served, 9)
        assert len(found.sums) == 9
        assert len({row.name for row in found.rows}) == 6
        assert sum(row.requests for row in found.rows if row.name == "others") == 4


@pytest.mark.parametrize(
    ("query", "problem"),
    [
        ("by=colour", "not counted by `colour`"),
        ("by=session", "not counted by `session`"),
        ("step=year", "no step `year`"),
        ("since=soon", "`soon` is not a time"),
        ("only=session%3Dx", "not counted by `session`"),
    ],
)
def test_a_bad_question_is_an_error(tmp_path: Path, query: str, problem: str) -> None:
    with stage(tmp_path) as served:
        got = ask(served.port, "GET", f"{API}requests?{query}")
        assert (got.status, problem in got.json()["message"]) == (400, True)


def test_the_requests_of_all_workers_are_counted(tmp_path: Path) -> None:
    (tmp_path / "console.toml").write_text('[store]\nurl = "none"\n')
    with run_gateway(tmp_path, "--workers", "2", "--config", str(tmp_path / "console.toml")) as process:
        port = process.port
        body = encode_json(request_of("openai-chat", "loopback", False)).encode()
        asked = [RawConnection(port) for _ in range(12)]  # connections are spread over the workers
        for line in asked:
            line.send("POST", "/v1/chat/completions", body)
            assert line.start().status == 200
            line.response.read()
            line.disconnect()

        def count() -> int:
            return int(ask(port, "GET", f"{API}requests").json()["total"]["requests"])

        wait_until(lambda: count() == 12)


def test_what_is_used_of_limits_is_shown(tmp_path: Path) -> None:
    with stage(tmp_path, more=LIMITS) as served:
        scene = served.scene("openai-chat", *[play_script("openai-chat", False)] * 2)
        for _ in range(2):
            assert call(served, "openai-chat", scene.model, False).status == 200

        def read() -> list[dict[str, Any]]:
            rows: list[dict[str, Any]] = ask(served.port, "GET", API + "limits").json()["limits"]
            return rows

        wait_until(lambda: sum(row["reserved"] for row in read()) == 0)
        calm, models = read()  # the most used first
        assert (calm["limit"], calm["amount"], calm["maximum"]) == ("calm", "tokens_per_month", 100_000)
        assert (models["limit"], models["group"]) == ("models", scene.model.partition("/")[2])
        assert calm["used"] == models["used"] > 0
        assert (calm["is_soft"], models["is_soft"]) == (False, True)
        assert 0 < models["opens_after"] <= 31 * 86_400


def test_without_limits_there_are_none(tmp_path: Path) -> None:
    with stage(tmp_path) as served:
        assert ask(served.port, "GET", API + "limits").json() == {"limits": []}
