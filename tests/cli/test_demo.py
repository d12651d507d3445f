"""`toolwire demo`: the real gateway and a provider on real sockets, and what is shown of them."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from cli.terminal_golden import check_fits, check_golden, run_in_pipe, run_on_terminal
from toolwire.cli.gateway.demo import format_body, play_all, summarise_losses
from toolwire.cli.gateway.demo.conversation import WEATHER, PlayedConversation, planted_fields
from toolwire.gateway.settings.providers import DEMO_PROTOCOLS
from toolwire.terminal.text import remove_colours


@pytest.fixture(scope="module", name="played")
def play_demo() -> list[PlayedConversation]:
    return asyncio.run(play_all())


def test_every_pair_is_played(played: list[PlayedConversation]) -> None:
    pairs = [(one.client, one.provider) for one in played]
    assert pairs == [(client, provider) for client in DEMO_PROTOCOLS for provider in DEMO_PROTOCOLS]
    assert [one.problem for one in played if one.problem] == []
    assert {len(one.calls) for one in played} == {2}


def test_the_provider_got_its_own_protocol(played: list[PlayedConversation]) -> None:
    paths = {(one.provider, exchange.provider_path) for one in played for exchange in one.exchanges}
    assert paths == {
        ("openai-chat", "/v1/chat/completions"),
        ("openai-responses", "/v1/responses"),
        ("anthropic", "/v1/messages"),
        ("gemini", "/v1beta/models/demo-gemini:streamGenerateContent"),
    }
    for one in played:
        results = json.dumps(one.exchanges[1].provider_body)
        assert all(weather in results for weather in WEATHER.values()), (one.client, one.provider)


def test_the_planted_field_is_lost_between_protocols_and_nowhere_else(played: list[PlayedConversation]) -> None:
    for one in played:
        (planted,) = planted_fields()[one.client]
        crossed = one.client != one.provider
        body = one.exchanges[0].provider_body
        assert isinstance(body, dict)
        assert (planted in body) != crossed
        assert ("unknown-field" in one.exchanges[0].losses) == crossed


def test_the_demo(folder: Path) -> None:
    check_golden("demo", ["demo"], folder)


def test_another_pair(folder: Path) -> None:
    check_golden("demo-gemini-anthropic", ["demo", "--from", "gemini", "--to", "anthropic"], folder)


def test_it_stores_nothing(folder: Path) -> None:
    assert run_in_pipe(["demo"], folder).code == 0
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("columns", [60, 80, 91, 92, 120, 200])
def test_all_pairs_in_detail(folder: Path, columns: int) -> None:
    done = run_on_terminal(["demo", "--all"], folder, columns)
    assert done.code == 0
    assert remove_colours(done.out).count("The answer\n") == 16
    check_fits(done.out, columns)


def test_an_unknown_protocol(folder: Path) -> None:
    done = run_in_pipe(["demo", "--to", "antropic"], folder)
    assert done.code == 2
    assert "unknown protocol `antropic`" in done.err
    assert "anthropic" in done.err


@pytest.mark.parametrize("width", [20, 40, 60, 200])
@pytest.mark.parametrize("value", [{"a": [1, {"b": "c" * 30}], "d": {}, "e": [["f"] * 9]}, [], "x" * 100, None])
def test_a_body_stays_the_same_json(value: Any, width: int) -> None:
    assert json.loads("\n".join(format_body(value, width))) == value


LOSSES = {"": "none", "1; codes=unknown-field": "unknown-field", "2; codes=default-added": "2 added"}


@pytest.mark.parametrize(
    ("header", "text"), [*LOSSES.items(), ("3; codes=unknown-field,default-added", "unknown-field, 2 added")]
)
def test_losses_in_few_words(header: str, text: str) -> None:
    assert summarise_losses(header) == text
