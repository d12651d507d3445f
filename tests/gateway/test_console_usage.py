"""What the console says was used is what `toolwire costs --json` says."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from forked_commands import trust_file
from gateway.raw_exchange import Served, ask, call, play_script, stage
from gateway.state_clients import store_url
from gateway.test_console import API
from toolwire.gateway.surfaces.console.api_usage import UsageReport
from waits import wait_until

PRICES = '[models."anthropic/priced-*".facts.prices]\ninput = 5.0\ncache_read = 0.5\noutput = 25.0\n'
CALLS = 3


@pytest.fixture(name="folder", scope="module")
def make_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("usage")


@pytest.fixture(name="served", scope="module")
def stage_gateway(folder: Path) -> Iterator[Served]:
    with stage(folder, more=f'{PRICES}[store]\nurl = "{store_url(folder)}"\n') as served:
        for provider in ("anthropic", "openai-chat", "anthropic"):
            scene = served.scene(provider, play_script(provider, False))
            model = scene.model.replace("/", "/priced-", 1) if provider == "anthropic" else scene.model
            assert call(served, "openai-chat", model, False).status == 200
        wait_until(lambda: read_usage(served, "since=1h")["total"]["calls"] == CALLS)
        yield served


def read_usage(served: Served, query: str) -> Any:
    got = ask(served.port, "GET", f"{API}usage?{query}")
    assert got.status == 200
    msgspec.json.decode(got.data, type=UsageReport)
    return got.json()


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("by=model", ["--by", "model"]),
        ("by=hour,provider&since=7d", ["--by", "hour,provider", "--since", "7d"]),
        ("by=day,key", ["--by", "day,key"]),
        ("by=agent&only=provider%3Danthropic", ["--by", "agent", "--only", "provider=anthropic"]),
        ("", ["--by", ""]),
    ],
)
def test_the_figures_are_those_of_the_command(served: Served, folder: Path, query: str, words: list[str]) -> None:
    environ = {**os.environ, "HOME": str(folder), "XDG_CONFIG_HOME": str(folder), "XDG_STATE_HOME": str(folder)}
    trust_file(folder, environ)
    command = [
        sys.executable,
        "-m",
        "toolwire.cli",
        "costs",
        "--json",
        *words,
        "--config",
        str(folder / "toolwire.toml"),
    ]
    done = subprocess.run(command, env=environ, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    said, shown = json.loads(done.stdout), read_usage(served, query)
    assert shown["rows"]
    for name in ("by", "rows", "total"):
        assert shown[name] == said[name]


@pytest.mark.parametrize(
    ("query", "problem"),
    [
        ("by=colour", "cannot show costs by `colour`"),
        ("since=soon", "`soon` is not a time"),
        ("only=team", "has no value"),
        ("only=x%3D1", "unknown name `x`"),
        ("since=2026-01-02&until=2026-01-01", "is not before"),
    ],
)
def test_a_bad_question_is_an_error(served: Served, query: str, problem: str) -> None:
    got = ask(served.port, "GET", f"{API}usage?{query}")
    assert got.status == 400
    assert problem in got.json()["message"]
    assert got.json()["hint"]


def test_without_a_store_there_is_no_ledger(tmp_path: Path) -> None:
    with stage(tmp_path, more='[store]\nurl = "none"\n') as served:
        got = ask(served.port, "GET", f"{API}usage?by=model")
        assert (got.status, "no ledger" in got.json()["message"]) == (404, True)
