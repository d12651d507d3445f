"""Costs and the prompt cache in the console's API: exact amounts, each call to its provider, and what is unknown as unknown."""

from __future__ import annotations

import json
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gateway.exchange_records import make_record
from gateway.provider import ScriptedAnswer
from gateway.raw_exchange import (
    RawAnswer,
    Served,
    answer,
    ask,
    body_of,
    call,
    error_frame,
    frames,
    play_script,
    stage,
    whole_answer,
    write_chunked,
)
from toolwire.core.ir import Usage
from toolwire.gateway.surfaces.console import api, rows, sessions
from toolwire.gateway.telemetry.record import CacheReport, CallUsage, ExchangeCapture, ExchangeRecord
from toolwire_conformance.peers.peer import encode_json

LONG = "You are a careful assistant. " * 200
SECRET = "sk-ant-api03-abcdefghijklmnopqrstuvwxyz0123456789"
PRICES = "".join(
    f'[models."{name}".facts.prices]\ninput = 1.25\ncache_read = 0.125\noutput = 10.00\n'
    for name in ("chat/priced-*", "pool/priced-*", "anthropic/priced-*")
)
"""Dollars for a million tokens."""
ROUTE = '[models.pair]\nprovider = "anthropic"\nmodel = "priced-s901x"\nfallbacks = ["chat/nobody-knows-s902x"]\n'
POOL = """
[providers.pool]
protocols = ["openai-chat"]
base_url = "{plain}"
[[providers.pool.accounts]]
name = "work"
api_key = "key-of-work-0123456789"
"""


@pytest.fixture(scope="module", name="served")
def serve_gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with stage(tmp_path_factory.mktemp("console-costs"), more=PRICES + ROUTE + POOL) as staged:
        yield staged


def chat_answer(prompt: int, cached: int, made: int, reasoning: int = 0, **usage: object) -> bytes:
    body = body_of("openai-chat", ScriptedAnswer("Hello."))
    body["usage"] = {
        "prompt_tokens": prompt,
        "completion_tokens": made,
        "total_tokens": prompt + made,
        "prompt_tokens_details": {"cached_tokens": cached},
        "completion_tokens_details": {"reasoning_tokens": reasoning},
        **usage,
    }
    return answer(200, encode_json(body).encode())


def get(served: Served, path: str) -> Any:
    """JSON with amounts as they are written."""
    return json.loads(ask(served.port, "GET", api.API_PATH + path).data, parse_float=Decimal)


def detail_of(served: Served, got: RawAnswer) -> dict[str, Any]:
    served.line(got.id)  # it is finished
    rows = get(served, "exchanges")["exchanges"]
    (row,) = [row for row in rows if row["request_id"] == got.id]
    found: dict[str, Any] = get(served, f"exchanges/{row['id']}")
    assert found["row"] == row
    return found


def test_an_exchange_has_its_cost_by_our_prices_and_by_the_providers_own(served: Served) -> None:
    scene = served.scene("openai-chat", chat_answer(1001, 400, 30, 7, cost=0.0014), provider="pool", model="priced")
    found = detail_of(served, call(served, "anthropic", scene.model, False))
    # 601 tokens at $1.25, 400 at $0.125 and 30 at $10 for a million.
    cost = {"cost_usd": Decimal("0.00110125"), "unpriced_calls": 0, "reported_cost_usd": Decimal("0.0014")}
    assert found["row"]["cost"] == cost
    tokens = {"input": 1001, "output": 30, "cache_read": 400, "reasoning": 7}
    assert found["call_costs"] == [
        {"provider": "pool", "account": "work", "model": scene.name, "tokens": tokens, "cost": cost}
    ]


def test_an_unknown_price_is_unknown_and_the_embedded_model_is_free(served: Served) -> None:
    scene = served.scene("openai-chat", whole_answer("openai-chat"), model="nobody-knows")
    unknown = {"cost_usd": None, "unpriced_calls": 1, "reported_cost_usd": None}
    assert detail_of(served, call(served, "anthropic", scene.model, False))["row"]["cost"] == unknown
    free = {"cost_usd": 0, "unpriced_calls": 0, "reported_cost_usd": None}
    assert detail_of(served, call(served, "anthropic", "loopback", False))["row"]["cost"] == free


def test_every_call_of_an_exchange_has_its_own_cost(served: Served) -> None:
    """Anthropic counts the input before its stream fails; the price of the fallback is not known."""
    first = served.scene("anthropic", write_chunked(*frames("anthropic")[:1], error_frame("anthropic")))
    second = served.scene("openai-chat", play_script("openai-chat", True))
    served.wire.scenes |= {b"s901x": first, b"s902x": second}
    found = detail_of(served, call(served, "openai-chat", "pair", True))
    calls = found["call_costs"]
    assert [one["provider"] for one in calls] == ["anthropic", "chat"]
    assert [one["tokens"].get("is_estimated", False) for one in calls] == [True, False]
    counted = calls[0]["tokens"]
    cost = (counted["input"] * Decimal("1.25") + counted["output"] * 10) / 1_000_000
    assert cost > 0
    assert [one["cost"]["cost_usd"] for one in calls] == [cost, None]
    assert found["row"]["cost"] == {"cost_usd": cost, "unpriced_calls": 1, "reported_cost_usd": None}


def test_without_costs_there_are_tokens_alone(tmp_path: Path) -> None:
    with stage(tmp_path, more=f"[costs]\nenabled = false\n{PRICES}") as served:
        scene = served.scene("openai-chat", chat_answer(100, 0, 5), model="priced")
        found = detail_of(served, call(served, "anthropic", scene.model, False))
        assert found["row"]["cost"] is None
        assert [(one["tokens"]["input"], one["cost"]) for one in found["call_costs"]] == [(100, None)]
        (row,) = get(served, "sessions")["sessions"]
        assert row["cost"] is None


def play_session(served: Served, model: str) -> dict[str, Any]:
    """Three turns. The second one has another time in its instructions."""
    plays = (chat_answer(4000, 0, 10), chat_answer(4100, 0, 10), chat_answer(4200, 4100, 10))
    scene = served.scene("openai-chat", *plays, model=model)
    turns = [{"role": "user", "content": "Hello"}]
    for stamp in ("10:15:01", "10:16:02", "10:16:02"):
        system = f"{LONG} It is {stamp}, the key is {SECRET}. {LONG}"
        headers = {"x-claude-code-session-id": scene.mark}
        got = call(served, "anthropic", scene.model, False, headers, system=system, messages=turns)
        turns += [{"role": "assistant", "content": "Hello."}, {"role": "user", "content": "And now?"}]
        served.line(got.id)
    found: dict[str, Any] = get(served, f"sessions/{get(served, 'sessions')['sessions'][0]['id']}")
    assert len(found["turns"]) == 3
    return found


def test_a_session_has_its_total_and_what_the_cache_gave_for_each_turn(served: Served) -> None:
    found = play_session(served, "priced")
    costs = [turn["exchange"]["cost"]["cost_usd"] for turn in found["turns"]]
    assert costs == [Decimal("0.0051"), Decimal("0.005225"), Decimal("0.0007375")]
    assert found["session"]["cost"] == {"cost_usd": sum(costs), "unpriced_calls": 0, "reported_cost_usd": None}
    first, second, third = (turn["cache"] for turn in found["turns"])
    assert first is None
    assert (second["expected_tokens"], second["read_tokens"], second["missed_tokens"]) == (4000, 0, 4000)
    assert (second["cause"], second["place"]) == ("time", found["turns"][1]["prefix_break"]["place"])
    assert (third["expected_tokens"], third["read_tokens"], third["missed_tokens"]) == (4100, 4100, 0)
    # 4,000 tokens at $1.25 instead of $0.125 for a million.
    assert [second["extra_cost_usd"], third["extra_cost_usd"]] == [Decimal("0.0045"), 0]
    assert found["session"]["extra_cost_usd"] == Decimal("0.0045")
    id = found["turns"][1]["exchange"]["id"]
    assert get(served, f"exchanges/{id}")["cache"] == second
    assert SECRET[:20] not in json.dumps(found, default=str)  # an excerpt may end in the middle of it


def test_what_a_broken_prefix_cost_is_unknown_without_prices(served: Served) -> None:
    found = play_session(served, "nobody-knows")
    assert found["session"]["cost"] == {"cost_usd": None, "unpriced_calls": 3, "reported_cost_usd": None}
    assert [turn["cache"] and turn["cache"]["extra_cost_usd"] for turn in found["turns"]] == [None, None, 0]
    assert found["session"]["extra_cost_usd"] is None


KEYS = ("sk-ant-api03-abcdefghijklmnopqrstuvwxyz0123456789", "sk-ant-api03-zyxwvutsrqponmlkjihgfedcba9876543210")
BREAKS: dict[str, tuple[str, str]] = {
    "in a key": (f"The key is {KEYS[0]}, as said.", f"The key is {KEYS[1]}, as said."),
    "after half of a key": (f"{KEYS[0]} {'y' * 90} at 10:15", f"{KEYS[0]} {'y' * 90} at 10:16"),
    "before half of a key": (f"10:15 {'y' * 90} {KEYS[0]}", f"10:16 {'y' * 90} {KEYS[0]}"),
}


@pytest.mark.parametrize("case", BREAKS)
def test_no_part_of_a_key_is_shown_where_a_prefix_broke(served: Served, case: str) -> None:
    scene = served.scene("openai-chat", whole_answer("openai-chat"))
    turns = [{"role": "user", "content": "Hello"}]
    for system in BREAKS[case]:
        headers = {"x-claude-code-session-id": scene.mark}
        got = call(served, "anthropic", scene.model, False, headers, system=system, messages=turns)
        turns += [{"role": "assistant", "content": "Hello."}, {"role": "user", "content": "And now?"}]
        served.line(got.id)
    found = get(served, f"sessions/{get(served, 'sessions')['sessions'][0]['id']}")
    broken = found["turns"][1]["prefix_break"]
    assert broken["place"] == "/messages/0"
    assert 0 <= broken["difference"] <= len(broken["before"])
    for key in KEYS:
        parts = [key[at : at + 8] for at in range(len("sk-ant-api03-"), len(key) - 7)]
        assert [part for part in parts if part in json.dumps(broken)] == []


def priced_record() -> ExchangeRecord:
    prices = (Decimal("0.123456789012"), Decimal("0.10"), None)
    usages = [CallUsage("p", "m", "a", Usage(9, 1), cost=cost, reported_cost=cost) for cost in prices]
    return make_record(
        request_id="r",
        started=1.0,
        started_at=1e9,
        ended=2.0,
        client_protocol="anthropic",
        call_usages=tuple(usages),
        is_priced=True,
        capture=ExchangeCapture(b'{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"Hi"}]}'),
    )


def test_amounts_are_numbers_with_all_digits_also_between_workers() -> None:
    record = priced_record()
    record.cache = CacheReport(2000, 0, 0, 2000, "time", cost=Decimal("0.000000000001"))
    facts = sessions.read_facts(record, 0, str)
    text = api.encode_message([facts])
    assert b'"cost_usd":0.223456789012,"unpriced_calls":1,"reported_cost_usd":0.223456789012}' in text
    (got,) = msgspec.json.decode(text, type=list[sessions.ExchangeFacts])
    assert (got.row.cost, got.cache) == (facts.row.cost, facts.cache)
    (group,) = sessions.group_sessions([facts, msgspec.structs.replace(got, digests=[*got.digests, "a turn more"])])
    row = sessions.session_row(group)
    assert row.cost == api.Cost(
        cost_usd=Decimal("0.446913578024"), unpriced_calls=2, reported_cost_usd=Decimal("0.446913578024")
    )
    assert row.extra_cost_usd == Decimal("0.000000000002")


def test_the_words_of_a_cache_report_are_cleaned() -> None:
    report = CacheReport(2000, 0, 0, 2000, "tools", reason=f"{SECRET} is new", place=f"/tools/{SECRET}")
    shown = rows.clean_texts(rows.cache_usage(report), lambda text: text.replace(SECRET, "[hidden]"))
    assert shown is not None
    assert (shown.reason, shown.place) == ("[hidden] is new", "/tools/[hidden]")
