"""Every view on a phone and on a wide screen, in light and dark, with the keyboard alone, and judged by axe."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from console.browser import Browser, Page, quote
from console.conftest import Gallery, Open
from console.test_views import TABS

WIDTHS = (360, 1600)
THEMES = ("light", "dark")
EXAMPLE = (
    "#/translate?t=eyJtb2RlbCI6ImNsYXVkZS1vcHVzLTUtNSIsIm1heF90b2tlbnMiOjksInRvcF9rIjo0MCwibWVzc2FnZXMiOlt7InJvbGUiOiJ1"
    "c2VyIiwiY29udGVudCI6IkhpIn1dfQ"
)
"""A link that holds a small request of Anthropic."""
VIEWS = {
    "live": "#/live",
    "filtered": "#/live?loss=name-rewritten",
    **{f"exchange {tab}": f"#/exchange/{{exchange}}/{tab}" for tab in TABS},
    "failed": "#/exchange/{failed}",
    "unknown cost": "#/exchange/{unpriced}",
    "removed": "#/exchange/0-99999",
    "unknown session": "#/session/0123456789abcdef",
    "compare": "#/compare/{exchange}/{other}/upstream",
    "again": "#/again/{exchange}",
    "sessions": "#/sessions",
    "session": "#/session/{session}",
    "translate": EXAMPLE,
    "try": "#/try",
    "providers": "#/providers",
    "connect": "#/connect",
    "usage": "#/usage?since=24h",
    "nothing": "#/nothing",
}


@pytest.fixture(scope="module")
def page(browser: Browser, gallery: Gallery) -> Iterator[Page]:
    """One page for all of these tests: what they look at does not depend on how it was reached."""
    page = browser.open(gallery.served.url)
    page.allowed = ("404",)
    yield page
    page.check()
    page.close()


def address(gallery: Gallery, view: str) -> str:
    return VIEWS[view].format(
        exchange=gallery.find("claude", 1),
        other=gallery.find("claude", 2),
        failed=gallery.find("qwen"),
        unpriced=gallery.find("codex"),
        session=gallery.session("claude"),
    )


def settle(page: Page) -> None:
    """Until what was asked for is there."""
    page.wait_until("!document.querySelector('.loading') && !/Loading…|Checking…/.test(document.body.innerText)")


@pytest.mark.parametrize("view", VIEWS)
def test_axe_finds_nothing_and_nothing_is_too_wide(page: Page, gallery: Gallery, view: str) -> None:
    page.show(address(gallery, view), "h1, [role=alert] >> nth=0")
    found: list[str] = []
    for width in WIDTHS:
        for theme in THEMES:
            page.use(width, theme)
            settle(page)
            found += [f"{width} {theme}: {violation}" for violation in page.axe()]
        if (wide := page.evaluate("document.documentElement.scrollWidth")) > width:
            found.append(f"{width}: the page is {wide} wide")
    assert found == []


OVERLAPPING = """
[...document.querySelectorAll('.exchange-rows a')].flatMap((row) => {
  const outer = row.getBoundingClientRect();
  return [...row.querySelectorAll('*')]
    .filter((one) => one.checkVisibility() && getComputedStyle(one).position !== 'absolute')
    .map((one) => [one.className + ' ' + one.innerText, one.getBoundingClientRect()])
    .filter(([, box]) => box.height > 0 && (box.top < outer.top - 1 || box.bottom > outer.bottom + 1))
    .map(([name]) => row.id + ' ' + name);
})
"""


@pytest.mark.parametrize("width", [*WIDTHS, 1280])
def test_what_is_in_a_row_stays_in_it(page: Page, width: int) -> None:
    page.use(width, "light")
    page.show("#/live")
    page.find(".exchange-rows a >> nth=0").wait()
    assert page.evaluate(OVERLAPPING) == []


def test_themes(page: Page) -> None:
    page.show("#/live")
    colours = []
    for theme in THEMES:
        page.use(1280, theme)
        colours.append(page.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert len(set(colours)) == 2
    page.find("[aria-label^='Theme:']").click()  # always light, whatever the system says
    page.use(1280, "dark")
    page.wait_until(f"getComputedStyle(document.body).backgroundColor === {quote(colours[0])}")
    page.press("t", "t")


def test_the_keyboard_is_enough(gallery: Gallery, open_page: Open) -> None:
    page = open_page(gallery.served)
    page.show("")
    page.find(".exchange-rows a >> nth=0").wait()
    newest, second = gallery.get("exchanges")["exchanges"][:2]
    page.press("j", "j")
    page.find(f"#row-{second['id']}:focus").wait()
    page.press("k")
    page.find(f"#row-{newest['id']}:focus").wait()
    page.press("j", "Enter")
    page.find("#tab-overview").wait()
    page.wait_until(f"location.hash === '#/exchange/{second['id']}'")
    page.find("#tab-overview").focus()
    page.press("ArrowRight")
    page.find("#tab-conversation:focus[aria-selected=true]").wait()
    page.press("ArrowRight")
    page.find("#tab-request:focus[aria-selected=true]").wait()
    page.find("[role=tree] >> nth=0").focus()
    page.press("Home", "ArrowLeft")
    page.find("[role=treeitem][aria-expanded=false] >> nth=0").wait()
    page.press("ArrowRight", "ArrowDown")
    page.find("[role=treeitem][aria-selected=true] >> nth=0").wait()
    page.press("]")
    page.wait_until(f"location.hash !== '#/exchange/{second['id']}/request'")
    page.press("[")
    page.press("Escape")
    page.find(f"#row-{second['id']}:focus").wait()
    page.press("/")
    page.find("input[type=search]:focus").wait()
    page.type("429")
    page.press("Escape", "Escape")
    page.wait_until("document.querySelector('input[type=search]').value === ''")
    page.press("?")
    page.find("dialog[open] >> text=next, previous row").wait()
    page.press("Escape")
    page.find("dialog").wait("detached")
    for number, heading in enumerate(("Live", "Sessions", "Translate", "Try", "Providers", "Connect", "Usage"), 1):
        page.press(str(number))
        page.find(f"nav [aria-current=page]:has-text('{heading}')").wait()


def test_tab_reaches_everything_visibly(page: Page, gallery: Gallery) -> None:
    page.use(1280, "light")
    page.show(address(gallery, "exchange tools"))
    page.call("reload")
    page.find("#panel").wait()
    reached: list[str] = []
    for _ in range(40):
        page.press("Tab")
        if page.evaluate("document.activeElement === document.body"):
            break
        name, outline = page.evaluate(
            "[document.activeElement.innerText || document.activeElement.ariaLabel || '',"
            " getComputedStyle(document.activeElement).outlineStyle]"
        )
        assert outline != "none", name
        reached.append(name)
    assert reached[0] == "Skip to the content"
    for name in ("Live", "Sessions", "Copy as curl", "Send again…", "Tools"):
        assert any(name in one for one in reached), (name, reached)
