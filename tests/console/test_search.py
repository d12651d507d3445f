"""Live finds words in prompts, answers, arguments and results, by key, team and time, and the page does not jump."""

from __future__ import annotations

from console.browser import Page
from console.conftest import Gallery, Open
from console.test_hostile import check_document

ROWS = ".exchange-rows a"
FIELD = 'role=searchbox[name="Search"]'


def search_for(page: Page, words: str, count: int) -> None:
    page.find(FIELD).fill(words)
    page.wait_until("!document.querySelector('.search-note')")
    if count:
        page.find(ROWS).wait_for_count(count)
    else:
        page.text("No exchange matches").wait()


def test_words_of_a_result_are_found_and_marked(gallery: Gallery, open_page: Open) -> None:
    page = open_page(gallery.served)
    page.show("")
    page.find(f"{ROWS} >> nth=0").wait()
    search_for(page, "celsius KEYERROR", 3)  # each turn after the result
    for at in (1, 2, 3):
        page.find(f"#row-{gallery.find('claude', at)} mark").wait_for_text("celsius")
    page.find(f"#row-{gallery.find('claude', 1)}").click()
    page.find("#tab-overview").wait()
    page.press("Escape")
    page.find(ROWS).wait_for_count(3)  # the search is in the address
    check_document(page)


def test_enter_searches_at_once(gallery: Gallery, open_page: Open) -> None:
    page = open_page(gallery.served)
    page.show("")
    page.find(f"{ROWS} >> nth=0").wait()
    page.press("/")
    page.type("installs")
    page.press("Enter")
    page.wait_until("!document.querySelector('.search-note')")
    page.find(FIELD).fill("install it")
    page.press("Enter")
    page.find(ROWS).wait_for_count(1)
    page.find(f"#row-{gallery.find('gemini')} mark").wait_for_text("install")


def test_the_page_does_not_jump_when_nothing_matches(gallery: Gallery, open_page: Open) -> None:
    page = open_page(gallery.served, width=1600)
    page.show("")
    page.find(f"{ROWS} >> nth=0").wait()
    boxes = "JSON.stringify([...document.querySelectorAll('.facets legend, .live-list, .filter-field')].map((one) => {const box = one.getBoundingClientRect(); return [box.left, box.top, box.width]}))"
    before = page.evaluate(boxes)
    values = page.find(".facet-value").count
    search_for(page, "nowhereatall", 0)
    assert page.evaluate(boxes) == before
    assert page.find(".facet-value").count >= values - 1
    page.find(".live-list >> text=Remove all filters").click()
    page.find(f"{ROWS} >> nth=0").wait()


def test_a_time_is_chosen(gallery: Gallery, open_page: Open) -> None:
    page = open_page(gallery.served)
    page.show("")
    page.find(f"{ROWS} >> nth=0").wait()
    shown = page.find(ROWS).count
    page.find('role=combobox[name="Time"]').choose("1440")
    page.wait_until("location.hash.includes('since=1440')")
    page.find(ROWS).wait_for_count(shown)


def test_the_exchanges_of_a_session_are_listed(gallery: Gallery, open_page: Open) -> None:
    page = open_page(gallery.served, width=1600)
    page.show(f"#/session/{gallery.session('claude')}")
    page.text("Show its exchanges").click()
    page.find(ROWS).wait_for_count(4)
    assert page.find(".facet-value:has(input:checked)").count == 1
    page.find(".facets >> text=Remove all filters").click()
    page.find(f"{ROWS} >> nth=4").wait()


def test_what_was_asked_can_be_read_on_a_phone(gallery: Gallery, open_page: Open) -> None:
    page = open_page(gallery.served, width=360)
    page.show("")
    page.find(f"{ROWS} .asked >> nth=0").wait()
    rooms = page.evaluate(
        "[...document.querySelectorAll('.exchange-rows a:has(.asked)')].map((row) => {"
        "const [asked, all] = [row.querySelector('.asked'), row].map((one) => one.getBoundingClientRect());"
        "return [asked.width / all.width, row.querySelector('.tools').getBoundingClientRect().bottom <= all.bottom]})"
    )
    assert rooms
    assert all(share > 0.35 and is_inside for share, is_inside in rooms), rooms
