"""What exchanges, calls and sessions cost, and what the prompt cache gave, in a real browser. What is unknown says so."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

from console.browser import Page
from console.conftest import Gallery, Open
from console.exchanges import CLAUDE_TOOLS, Conversation, Reply, provider_settings
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
    write_chunked,
)
from toolwire.gateway.surfaces.console.api import API_PATH
from toolwire_conformance.peers.peer import encode_json

POOL = """
[models."pool/priced-*".facts.prices]
input = 1.25
output = 10.0
[models."anthropic/priced-*".facts.prices]
input = 100.0
output = 1000.0
[models.pair]
provider = "anthropic"
model = "priced-s901x"
fallbacks = ["chat/nobody-knows-s902x"]
[providers.pool]
protocols = ["openai-chat"]
base_url = "{plain}"
[[providers.pool.accounts]]
name = "work"
api_key = "key-of-work-0123456789"
"""
COST = "section[aria-label=Cost]"


def show_overview(served: Served, page: Page, got: RawAnswer) -> None:
    served.line(got.id)
    rows = ask(served.port, "GET", API_PATH + "exchanges").json()["exchanges"]
    page.show(f"#/exchange/{next(row['id'] for row in rows if row['request_id'] == got.id)}")
    page.find(f"dl.summary:has-text('{got.id}')").wait()


@pytest.mark.parametrize("width", [360, 1280])
def test_live_shows_costs(gallery: Gallery, open_page: Open, width: int) -> None:
    page = open_page(gallery.served, width=width, height=1200)  # all rows are visible
    page.show("")
    # 14,210 tokens at $1.25 and 96 at $10 for a million.
    page.find(f"#row-{gallery.find('claude')} .cost:text-is('$0.0187')").wait()
    page.find(f"#row-{gallery.find('opencode')} .cost:text-is('$0.0096')").wait()
    page.find(f"#row-{gallery.find('codex')} .cost:text-is('unknown')").wait("visible" if width > 1000 else "hidden")
    page.find(f"#row-{gallery.find('qwen')} .cost:empty").wait("attached")  # refused: it costs nothing


def test_an_exchange_shows_the_cost_of_each_call(gateways: ExitStack, tmp_path: Path, open_page: Open) -> None:
    served = gateways.enter_context(stage(tmp_path, more=POOL))
    body = body_of("openai-chat", ScriptedAnswer("Hello."))
    body["usage"] = {
        "prompt_tokens": 1000, "completion_tokens": 300, "total_tokens": 1300, "cost": 0.0014,
        "prompt_tokens_details": {"cached_tokens": 640}, "completion_tokens_details": {"reasoning_tokens": 128},
    }  # fmt: skip
    scene = served.scene("openai-chat", answer(200, encode_json(body).encode()), provider="pool", model="priced")
    page = open_page(served)
    show_overview(served, page, call(served, "anthropic", scene.model, False))
    page.find(f"{COST} header").wait_for_text("$0.00425")
    page.find(f"{COST} thead").wait_for_text("Cost", "Reported", "Input", "Cached", "Written", "Output", "Reasoning")
    words = ("pool", "account work", scene.name, "$0.00425", "$0.0014", "1,000", "640", "300", "128")
    page.find(f"{COST} tbody tr").wait_for_text(*words)
    page.find("dl.summary").wait_for_text("cost", "$0.00425")
    page.find("dl.summary a").click()
    page.find(".figures div:has(dt:text-is('As providers report it')) dd:text-is('$0.0014')").wait()

    first = served.scene("anthropic", write_chunked(*frames("anthropic")[:1], error_frame("anthropic")))
    second = served.scene("openai-chat", play_script("openai-chat", True))
    served.wire.scenes |= {b"s901x": first, b"s902x": second}
    got = call(served, "openai-chat", "pair", True)
    show_overview(served, page, got)
    page.find(f"{COST} tbody tr").wait_for_count(2)
    page.find(f"{COST} header >> text=/^\\$0\\.\\d+ \\+ unknown$/").wait()
    page.find(f"{COST} tbody tr >> nth=0").wait_for_text("anthropic", "priced-s901x", "$0.", "~")
    page.find(f"{COST} tbody tr >> nth=1").wait_for_text("chat", "nobody-knows-s902x", "unknown")
    page.find(COST).wait_for_text("A price is not known", "is an estimate")
    page.show("#/live")
    page.find(".exchange-row .cost >> text=/^\\$0\\.\\d+\\+\\?$/").wait()


def test_costs_that_are_off_are_not_shown(gateways: ExitStack, tmp_path: Path, open_page: Open) -> None:
    served = gateways.enter_context(stage(tmp_path, more="[costs]\nenabled = false\n"))
    scene = served.scene("openai-chat", play_script("openai-chat", False))
    page = open_page(served)
    show_overview(served, page, call(served, "anthropic", scene.model, False))
    page.find(COST).wait_for_text("Prices are not looked up")
    page.find(f"{COST} tbody td:text-is('unknown')").wait_for_count(0)
    page.show("#/sessions")
    page.find(".session-row").click()
    page.find(".figures").wait_for_text("Input tokens")
    page.find(".figures dt:text-is('Cost')").wait_for_count(0)


def test_a_session_shows_its_cost_and_what_a_broken_prefix_cost(gallery: Gallery, open_page: Open) -> None:
    page = open_page(gallery.served)
    page.show("#/sessions")
    row = page.find(f".session-row[href$='{gallery.session('claude')}']")
    row.wait_for_text("4 turns", "$0.0431")
    row.click()
    for name, value in {
        "Cost": "$0.0431",
        "Cached of expected": "28,992 of 43,630",
        # 14,630 tokens at $1.25 instead of $0.125 for a million.
        "Cost of missed tokens": "$0.0165",
    }.items():
        page.find(f".figures div:has(dt:text-is('{name}')) dd:text-is('{value}')").wait()
    for number, cost in enumerate(("$0.0187", "$0.00301", "$0.0191", "$0.00223")):
        page.find(f".turn >> nth={number} >> .turn-cost:text-is('{cost}')").wait()
    page.find(".turn >> nth=1").wait_for_text("14k of 14k expected cached")
    page.find(".prefix-break").wait_for_text("read 0 of 14,630 expected tokens", "$0.0165 more")
    page.find(".turn >> nth=2 >> a").click()
    page.find(COST).wait_for_text("read 0 of 14,630 expected tokens", "$0.0165 more", "a time, a date or an id")


def test_a_prefix_that_was_not_read_though_nothing_changed(
    gateways: ExitStack, tmp_path: Path, open_page: Open
) -> None:
    served = gateways.enter_context(stage(tmp_path, more=provider_settings("{plain}")))
    instructions = "Run the tests after every change. " * 150
    talk = Conversation(served, "claude", "anthropic", "deepseek/deepseek-v4", instructions, CLAUDE_TOOLS)
    for number in range(2):
        talk.ask(Reply(ScriptedAnswer("Yes."), (6000, 0, 5)), {"role": "user", "content": f"Question {number}"})
        talk.messages.append({"role": "assistant", "content": "Yes."})
    page = open_page(served)
    page.show("#/sessions")
    page.find(".session-row:has-text('Question 0')").click()
    page.find(".figures div:has(dt:text-is('Cost of missed tokens')) dd:text-is('unknown')").wait()
    page.find(".figures div:has(dt:text-is('Cost')) dd:text-is('unknown')").wait()
    words = ("read 0 of 6,000 expected tokens", "by an unknown amount", "The start of the prompt is the same as before")
    page.find(".prefix-break").wait_for_text(*words)
