"""The views of what has passed, in a real browser, on exchanges as agents make them."""

from __future__ import annotations

import json

import pytest

from console.browser import MODEL, Page, quote
from console.conftest import Gallery, Open
from console.exchanges import TITLE
from gateway.raw_exchange import Served, call, play_script
from toolwire_conformance.case import read_case

TABS = ("overview", "conversation", "request", "answer", "stream", "tools", "calls")
RENAMED = "mcp__linear__issues.create"


def show_exchange(page: Page, id: str, tab: str, *words: str) -> None:
    """A tab of an exchange, with all of these words."""
    page.show(f"#/exchange/{id}/{tab}")
    page.find(f"[role=tab][aria-selected=true]#tab-{tab}").wait()
    page.find("#panel").wait_for_text(*words)


def test_live_shows_each_exchange_and_filters_them(gallery: Gallery, open_page: Open) -> None:
    page = open_page(gallery.served)
    page.show("")
    page.find("#row-0-1").wait()
    shown = len(gallery.get("exchanges")["exchanges"])  # another test may have added one
    page.find(".exchange-rows a").wait_for_count(shown)
    words = ("200", "anthropic", "openai", "claude-cli", "gpt-5.5", "Bash", "Read", "name-rewritten")
    page.find(f"#row-{gallery.find('claude')}").wait_for_text(*words)
    page.find(f"#row-{gallery.find('qwen')}").wait_for_text("429", "Quota exceeded")
    for facet, value, expected in (
        ("Agent", "claude-cli", 4), ("Provider", "deepseek", 1), ("Protocol", "gemini", 1), ("Tool", "Read", 1),
        ("Failure", "rate", 1), ("Loss", "name-rewritten", 4),
    ):  # fmt: skip
        box = page.find(f"fieldset:has(legend:text-is({quote(facet)})) label:has-text({quote(value)}) input")
        box.click()
        page.find(".exchange-rows a").wait_for_count(expected)
        page.wait_until("location.hash.includes('#/live?')")
        box.click()
    page.find("input[type=search]").fill("no such thing")
    page.text("No exchange matches").wait()
    page.find(".live-list >> text=Remove all filters").click()
    page.find(".exchange-rows a").wait_for_count(shown)


def test_an_exchange_has_both_sides(gallery: Gallery, open_page: Open) -> None:
    page = open_page(gallery.served)
    id = gallery.find("claude", 1)
    tools = gallery.get(f"exchanges/{id}")["tools"]
    other_name = next(row["provider_name"] for row in tools if row["state"] == "renamed")
    for tab, words in {
        "overview": ("The API no longer sends `unit`.", "name-rewritten", "first byte to the client", "/tools/3"),
        "request": ("Client sent", "openai got"),
        "answer": ("openai sent 200",),
        "stream": ("chat.completion.chunk", "content_block_delta"),
        "tools": ("renamed", "kept", "dropped", RENAMED, other_name),
        "calls": ("In the answer", "FAILED tests/test_units.py", other_name),
    }.items():
        show_exchange(page, id, tab, *words)


def test_a_loss_leads_to_its_place(gallery: Gallery, open_page: Open) -> None:
    page = open_page(gallery.served)
    show_exchange(page, gallery.find("claude"), "overview")
    page.find(".loss-row:has-text('name-rewritten')").click()
    page.find(".json-line.marked:has-text('name-rewritten')").wait()
    page.find(".json-view:has(.marked) .pointer:text-is('/tools/3')").wait()


def test_bodies_fold_and_can_be_searched(gallery: Gallery, open_page: Open) -> None:
    page = open_page(gallery.served)
    show_exchange(page, gallery.find("claude"), "request")
    side = ".json-view >> nth=0"
    page.find(f"{side} >> text=Fold >> nth=-1").wait()
    lines = page.find(f"{side} >> .json-line").count
    page.find(f"{side} >> text=Fold >> nth=-1").click()
    page.wait_until(f"document.querySelector('.json-view').querySelectorAll('.json-line').length < {lines}")
    page.find(f"{side} >> input[type=search]").fill("linear")
    page.find(f"{side} >> mark:text-is('linear') >> nth=0").wait()
    page.find(f"{side} >> .match-count:text-is('1/1')").wait()
    page.find(f"{side} >> text=Raw").click()
    page.find(f"{side} >> .raw-text").wait_for_text(RENAMED)


def test_an_event_of_a_stream_can_be_chosen(gallery: Gallery, open_page: Open) -> None:
    page = open_page(gallery.served)
    show_exchange(page, gallery.find("claude"), "stream")
    page.find(".event-row:has-text('message_start') >> nth=0").click()
    page.find(".json-view:has-text('Client got #0')").wait()


def test_a_tool_shows_what_changed_in_its_declaration(gallery: Gallery, open_page: Open) -> None:
    page = open_page(gallery.served)
    show_exchange(page, gallery.find("claude"), "tools")
    page.find(f".tool-line:has-text({quote(RENAMED)})").click()
    page.find(".tool .diff, .tool [aria-label=Declaration] >> nth=0").wait()


def test_what_can_be_taken_away(gallery: Gallery, open_page: Open) -> None:
    page = open_page(gallery.served)
    show_exchange(page, gallery.find("claude"), "overview")
    page.button("Copy as curl").click()
    page.button("Copied").wait()
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied.startswith("curl ")
    assert gallery.served.url in copied
    [case] = read_case(json.loads(page.download("text=Download case")))
    assert case.turns[0].client.protocol == "anthropic"


def test_two_exchanges_are_compared(gallery: Gallery, open_page: Open) -> None:
    page = open_page(gallery.served)
    first, second = gallery.find("claude", 1), gallery.find("claude", 2)
    show_exchange(page, first, "overview")
    page.button("Compare with…").click()
    page.find("dialog input").fill(second)
    page.find(f"dialog a:has-text('{second}')").click()
    page.text("Client's request").wait()
    for part in ("request", "upstream", "answer", "raw", "tools"):
        page.find(f"#tab-{part}").click()
        page.find(f"[role=tab][aria-selected=true]#tab-{part}").wait()
        page.find("#panel >> text=/./ >> nth=0").wait()
    page.find("#tab-request").click()
    page.find("#panel").wait_for_text("2026-11-16", "2026-11-17")


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_an_exchange_is_sent_again_to_another_model(gallery: Gallery, open_page: Open, stream: bool) -> None:
    served: Served = gallery.served
    first = served.scene("openai-chat", play_script("openai-chat", stream, "It is warm."))
    other = served.scene("anthropic", play_script("anthropic", stream, "It is cold."))
    got = call(served, "openai-responses", first.model, stream)
    served.line(got.id)
    id = next(row["id"] for row in gallery.get("exchanges")["exchanges"] if row["request_id"] == got.id)
    page = open_page(served)
    show_exchange(page, id, "overview")
    page.find("text=Send again…").click()
    page.find(MODEL).fill(other.model)
    page.button("Send").click()
    page.find("section[aria-label=Now] >> text=It is cold.").wait()
    page.find("section[aria-label=Before] >> text=It is warm.").wait()
    page.find("text=Compare the requests to the providers").click()
    page.find("[role=tab][aria-selected=true]#tab-upstream").wait()


def test_a_session_shows_where_its_prefix_broke(gallery: Gallery, open_page: Open) -> None:
    page = open_page(gallery.served)
    page.show("#/sessions")
    row = page.find(f".session-row:has-text({quote(TITLE[:40])})")
    row.wait_for_text("4 turns", "1 break")
    row.click()
    page.find(".turn").wait_for_count(4)
    page.find(".prefix-break").wait_for_text("Today is 2026-11-1")
    for at, digit in enumerate("67"):
        page.find(f".excerpt mark >> nth={at} >> text={digit}").wait()
    page.find(".turn >> nth=2 >> a").click()
    page.find("#tab-overview").wait()
