"""Usage: the figures of the ledger and of the requests as lines that can be looked at, chosen and filtered, and as tables;
limits, and where the prompt cache broke."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

from console.browser import Page
from console.conftest import Open
from console.exchanges import play_claude_session, play_others, provider_settings
from console.test_hostile import INJECTIONS, check_document
from console.test_layout import THEMES, WIDTHS, settle
from gateway.raw_exchange import Served, ask, call, play_script, stage
from gateway.state_clients import store_url
from toolwire.gateway.surfaces.console.api import API_PATH
from waits import wait_until

TABLE = "[aria-label=Sums]"
LIMITS = """
[[limits]]
name = "whole budget"
dollars_per_month = 50
[[limits]]
name = "of each model"
per = "model"
tokens_per_month = 100
soft = true
"""


@pytest.fixture(name="served")
def stage_gateway(tmp_path: Path, gateways: ExitStack) -> Served:
    more = provider_settings("{plain}") + f'[store]\nurl = "{store_url(tmp_path)}"\n'
    served = gateways.enter_context(stage(tmp_path, more=more))
    play_others(served)
    wait_for_calls(served, 3)  # the one that was refused has used nothing
    return served


def wait_for_calls(served: Served, count: int) -> None:
    """Until the ledger has them."""
    path = f"{API_PATH}usage?since=1h"
    wait_until(lambda: ask(served.port, "GET", path).json()["total"]["calls"] >= count)


def show_usage(page: Page, query: str = "since=24h") -> None:
    page.show(f"#/usage?{query}")
    page.find(f"{TABLE} >> tfoot").wait()
    page.find(".plot canvas").wait()


def test_usage_is_drawn_and_can_be_chosen(served: Served, open_page: Open) -> None:
    page = open_page(served)
    show_usage(page)
    page.find(".usage").wait_for_text("claude-opus-5-5", "deepseek-v4", "Total", "is not known")
    assert page.find(".u-legend .u-series").count >= 3
    page.find(".choice-button:text-is('Tokens')").click()
    page.wait_until("location.hash.includes('show=tokens')")
    page.find(".choice-button:text-is('Agent')").click()
    page.find(TABLE).wait_for_text("opencode")
    page.find(f"{TABLE} tbody button >> nth=0").click()
    page.wait_until("location.hash.includes('only=agent')")
    page.find(f"{TABLE} tbody tr").wait_for_count(1)
    page.find("text=remove this filter").click()
    page.wait_until("!location.hash.includes('only=')")
    page.find(f"{TABLE} tbody tr >> nth=1").wait()


def test_how_requests_were_answered_is_drawn(served: Served, open_page: Open) -> None:
    page = open_page(served)
    show_usage(page, "show=p95&by=provider")
    page.find(TABLE).wait_for_text("p95", "Failed", "claude", "deepseek", "google", "Total")
    page.find(".usage").wait_for_text("a restart forgets them")
    page.find(".choice-button:text-is('Failures')").click()
    page.wait_until("location.hash.includes('show=failed')")
    page.find(f"{TABLE} .tone-text-bad >> nth=0").wait()
    page.find(".choice-button:text-is('Hour')").click()
    page.wait_until("location.hash.includes('since=1h')")
    page.find(f"{TABLE} tbody button:text-is('claude')").click()
    page.wait_until("location.hash.includes('only=provider')")
    page.find(f"{TABLE} tbody tr").wait_for_count(1)
    rows = ask(served.port, "GET", f"{API_PATH}requests?by=provider&since=1h").json()["sums"]
    shown = page.find(f"{TABLE} tbody tr").text
    claude = next(row for row in rows if row["name"] == "claude")
    assert str(claude["requests"]) in shown


def test_a_zoom_stays_when_something_new_comes(served: Served, open_page: Open) -> None:
    """The axis says what is shown: it is drawn, so what is asked of it is whether the plot was made again."""
    page = open_page(served)
    show_usage(page, "show=requests&since=1h")
    page.evaluate("document.querySelector('.plot .uplot').dataset.mark = 'same'")
    page.find(".choice-button:text-is('Failures')").click()
    page.wait_until("location.hash.includes('show=failed')")
    settle(page)
    assert page.evaluate("document.querySelector('.plot .uplot').dataset.mark") == "same"


def test_limits_and_the_prompt_cache_are_shown(tmp_path: Path, gateways: ExitStack, open_page: Open) -> None:
    served = gateways.enter_context(stage(tmp_path, more=provider_settings("{plain}") + LIMITS))
    play_claude_session(served)  # its prefix breaks once
    page = open_page(served)
    show_usage(page, "show=missed&by=agent")
    page.find(".usage").wait_for_text(
        "Limits", "whole budget", "dollars per month", "of each model", "gpt-5.5", "only warns",
        "Where the prompt cache broke", "The time is in the prompt",
    )  # fmt: skip
    check_page(page)


def check_page(page: Page) -> None:
    found: list[str] = []
    for width in WIDTHS:
        for theme in THEMES:
            page.use(width, theme)
            settle(page)
            page.find(".plot canvas").wait()
            found += [f"{width} {theme}: {violation}" for violation in page.axe()]
        if (wide := page.evaluate("document.documentElement.scrollWidth")) > width:
            found.append(f"{width}: the page is {wide} wide")
    assert found == []


def test_axe_finds_nothing(served: Served, open_page: Open) -> None:
    page = open_page(served)
    show_usage(page)
    check_page(page)


def test_hostile_names_are_text(served: Served, open_page: Open) -> None:
    page = open_page(served)
    scene = served.scene("openai-chat", *[play_script("openai-chat", False)] * len(INJECTIONS))
    for injection in INJECTIONS:
        call(served, "openai-chat", f"chat/{injection}-{scene.mark}", False)
    wait_for_calls(served, 4)
    for show in ("cost", "calls", "cached", "requests", "p95"):
        show_usage(page, f"since=24h&show={show}&by=model")
        check_document(page)
