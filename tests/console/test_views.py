"""The views of what has passed, in a real browser, on exchanges as agents make them."""

from __future__ import annotations

import json

import pytest

from console.browser import MODEL, Page, quote
from console.conftest import Gallery, Open
from console.exchanges import TITLE
from gateway.raw_exchange import Served, call, play_script
from toolwire.conformance.case import read_case

TABS = ("overview", "request", "answer", "stream", "tools", "calls")
RENAMED = "mcp__linear__issues.create"


def show_exchange(page: Page, id: str, tab: str) -> str:
    """The text of a tab of an exchange."""
    page.show(f"#/exchange/{id}/{tab}")
    page.find(f"[role=tab][aria-selected=true]#tab-{tab}").wait()
    return page.find("#panel").text


def test_live_shows_each_exchange_and_filters_them(gallery: Gallery, open_page: Open) -> None:
    page = open_page(gallery.served)
    page.show("")
    page.find("#row-0-1").wait()
    shown = len(gallery.rows)
    assert page.find(".exchange-rows a").count == shown
    row = page.find(f"#row-{gallery.find('claude')}").text
    for word in ("200", "anthropic", "openai", "claude-cli", "gpt-5.5", "Bash", "Read", "name-rewritten"):
        assert word in row
    failed = page.find(f"#row-{gallery.find('qwen')}").text
    assert "429" in failed
    assert "Quota exceeded" in failed
    for facet, value, expected in (
        ("Client", "gemini", 1), ("Agent", "claude-cli", 4), ("Provider", "deepseek", 1), ("Tool", "Read", 1),
        ("Failure", "rate", 1), ("Loss", "name-rewritten", 4),
    ):  # fmt: skip
        box = page.find(f"fieldset:has(legend:text-is({quote(facet)})) label:has-text({quote(value)}) input")
        box.click()
        page.wait_until(f"document.querySelectorAll('.exchange-rows a').length === {expected}")
        assert "#/live?" in page.evaluate("location.hash")
        box.click()
    page.find("input[type=search]").fill("no such thing")
    page.text("No exchange matches").wait()
    page.find(".live-list >> text=Remove all filters").click()
    page.wait_until(f"document.querySelectorAll('.exchange-rows a').length === {shown}")


def test_an_exchange_has_both_sides(gallery: Gallery, open_page: Open) -> None:
    page = open_page(gallery.served)
    id = gallery.find("claude", 1)
    overview = show_exchange(page, id, "overview")
    assert "The API no longer sends `unit`." in overview
    assert "name-rewritten" in overview
    assert "first byte to the client" in overview
    assert "/tools/3" in overview
    request = show_exchange(page, id, "request")
    assert "Client sent" in request
    assert "openai got" in request
    answer = show_exchange(page, id, "answer")
    assert "openai sent 200" in answer
    stream = show_exchange(page, id, "stream")
    assert "chat.completion.chunk" in stream
    assert "content_block_delta" in stream
    tools = show_exchange(page, id, "tools")
    for state in ("renamed", "kept", "dropped"):
        assert state in tools
    assert RENAMED in tools
    calls = show_exchange(page, id, "calls")
    assert "In the answer" in calls
    assert "FAILED tests/test_units.py" in calls
    detail = gallery.get(f"exchanges/{id}")
    renamed = next(row for row in detail["tools"] if row["state"] == "renamed")
    assert renamed["provider_name"] in calls
    assert renamed["provider_name"] in tools


def test_a_loss_leads_to_its_place(gallery: Gallery, open_page: Open) -> None:
    page = open_page(gallery.served)
    show_exchange(page, gallery.find("claude"), "overview")
    page.find(".loss-row:has-text('name-rewritten')").click()
    page.find(".json-line.marked:has-text('name-rewritten')").wait()
    assert page.find(".json-view:has(.marked) .pointer").text == "/tools/3"


def test_bodies_fold_and_can_be_searched(gallery: Gallery, open_page: Open) -> None:
    page = open_page(gallery.served)
    show_exchange(page, gallery.find("claude"), "request")
    side = ".json-view >> nth=0"
    lines = page.find(f"{side} >> .json-line").count
    page.find(f"{side} >> text=Fold >> nth=-1").click()
    page.wait_until(f"document.querySelector('.json-view').querySelectorAll('.json-line').length < {lines}")
    page.find(f"{side} >> input[type=search]").fill("linear")
    page.find(f"{side} >> mark:text-is('linear') >> nth=0").wait()
    assert page.find(f"{side} >> .match-count").text == "1/1"
    page.find(f"{side} >> text=Raw").click()
    assert RENAMED in page.find(f"{side} >> .raw-text").text


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
    changed = page.find("#panel").text
    assert "2026-11-16" in changed
    assert "2026-11-17" in changed


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
    assert "4 turns" in " ".join(row.text.split())
    assert "1 break" in row.text
    row.click()
    page.find(".turns").wait()
    assert page.find(".turn").count == 4
    broken = page.find(".prefix-break").text
    assert "Today is 2026-11-1" in broken
    assert page.find(".excerpt mark").texts == ["6", "7"]
    page.find(".turn >> nth=2 >> a").click()
    page.find("#tab-overview").wait()
