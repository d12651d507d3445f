"""An exchange is read as a conversation: both sides, what changed, pictures; on a phone, with the keyboard, and hostile."""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Iterator

import pytest

from console.conftest import Gallery, Open
from console.test_hostile import ALL, INJECTIONS, check_document, play_hostile
from console.test_layout import THEMES, WIDTHS, settle
from gateway.provider import ScriptedAnswer
from gateway.raw_exchange import RawAnswer, Served, ask, call, stage
from gateway.test_web_tools import play_answer
from toolwire.gateway.surfaces.console.api import API_PATH
from toolwire_conformance.peers.peer import encode_json

SYSTEM = "Answer briefly. " * 20 + "Never guess."
TOOL = {"name": "look.up", "description": "Looks up.", "input_schema": {"type": "object", "properties": {}}}


def write_png(width: int, height: int) -> str:
    """A grey picture that a browser can show, in base64."""
    rows = (b"\0" + b"\x80" * width) * height
    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    chunks = [(b"IHDR", head), (b"IDAT", zlib.compress(rows)), (b"IEND", b"")]
    framed = [
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    ]
    return base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"".join(framed)).decode()


def picture(data: str, media_type: str = "image/png") -> dict[str, object]:
    return {"type": "image", "source": {"type": "base64", "media_type": media_type, "data": data}}


HISTORY = [
    {"role": "user", "content": [{"type": "text", "text": "What is\non this picture?"}, picture(write_png(3000, 20))]},
    {"role": "assistant", "content": [
        {"type": "thinking", "thinking": "It may be a cat.", "signature": "c2ln"},
        {"type": "tool_use", "id": "toolu_1", "name": "look.up", "input": {"q": "cats"}},
    ]},
    {"role": "user", "content": [
        {"type": "tool_result", "tool_use_id": "toolu_1", "is_error": True, "content": f"no network\n{'x' * 900}"},
    ]},
]  # fmt: skip


@pytest.fixture(name="served", scope="module")
def stage_gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with stage(tmp_path_factory.mktemp("conversation")) as staged:
        yield staged


def find_id(served: Served, got: RawAnswer) -> str:
    served.line(got.id)  # it is finished
    rows = ask(served.port, "GET", API_PATH + "exchanges").json()["exchanges"]
    return next(str(row["id"]) for row in rows if row["request_id"] == got.id)


@pytest.fixture(scope="module")
def exchange(served: Served) -> str:
    """The id of an exchange with every kind of part."""
    says = ScriptedAnswer("A cat, I think.", (("look.up", {"q": "more cats"}),))
    scene = served.scene("openai-chat", play_answer("openai-chat", says, False))
    got = call(served, "anthropic", scene.model, False, messages=HISTORY, tools=[TOOL], system=SYSTEM)
    return find_id(served, got)


def test_both_sides_are_read(served: Served, exchange: str, open_page: Open) -> None:
    page = open_page(served)
    page.show(f"#/exchange/{exchange}/conversation")
    page.find("#panel").wait_for_text(
        "Instructions", "What is on this picture?", "calls look.up", "cats", "A cat, I think."
    )
    assert page.find(".talk-turn").count == 5
    page.find(".talk-turn.is-answer").wait_for_text("Answer", "A cat, I think.", "more cats")
    instructions = page.find(".role-system >> details >> .answer-text")
    instructions.wait("hidden")
    page.find(".role-system >> summary").click()
    instructions.wait_for_text("Never guess.")
    result = page.find(".kind-result")
    result.wait_for_text("error", "toolu_1")
    assert "no network" not in result.text  # it is long
    page.find(".kind-result >> summary").click()
    result.wait_for_text("no network")
    page.find(".kind-reasoning >> summary").click()
    page.find(".kind-reasoning").wait_for_text("It may be a cat.")
    page.button("Provider (openai-chat)").click()
    page.wait_until("location.hash.includes('side=provider')")
    page.find(".choice-button[aria-pressed=true]:has-text('Provider')").wait()
    page.find("#panel").wait_for_text("What is on this picture?", "A cat, I think.")
    assert page.find(".kind-reasoning").count == 0  # Chat Completions has no field for it


def test_what_changed_is_marked_and_leads_to_its_place(served: Served, exchange: str, open_page: Open) -> None:
    page = open_page(served)
    page.show(f"#/exchange/{exchange}/conversation")
    page.find(".kind-reasoning.is-changed .loss-mark >> nth=0").click()
    page.find("#tab-request[aria-selected=true]").wait()
    page.find(".json-line.marked").wait()


def test_a_long_text_is_shown_in_part_at_first(served: Served, open_page: Open) -> None:
    scene = served.scene("openai-chat", play_answer("openai-chat", ScriptedAnswer("Read."), False))
    text = f"The whole file: {'x ' * 4000} and its last line."
    got = call(served, "anthropic", scene.model, False, messages=[{"role": "user", "content": text}])
    page = open_page(served)
    page.show(f"#/exchange/{find_id(served, got)}/conversation")
    asked = page.find(".role-user")
    asked.wait_for_text("The whole file")
    assert "last line" not in asked.text
    page.find(".role-user >> button").click()
    asked.wait_for_text("last line", "Show less")
    assert page.axe() == []


def test_both_sides_that_say_the_same_say_so(gallery: Gallery, open_page: Open) -> None:
    page = open_page(gallery.served)
    page.show(f"#/exchange/{gallery.find('gemini')}/conversation")
    page.find("#panel").wait_for_text("both sides say the same", "Summarise the readme.")
    assert page.find(".is-changed").count == 0


@pytest.mark.parametrize("side", ["client", "provider"])
def test_pictures_are_shown_and_fit(served: Served, exchange: str, open_page: Open, side: str) -> None:
    page = open_page(served, width=360)
    page.show(f"#/exchange/{exchange}/conversation?side={side}")
    page.find(".talk-picture").wait()
    page.wait_until("document.querySelector('.talk-picture').naturalWidth === 3000")
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    assert page.find(".talk-picture").attribute("alt")


def test_axe_finds_nothing_also_where_everything_is_open(served: Served, exchange: str, open_page: Open) -> None:
    page = open_page(served)
    found: list[str] = []
    for side in ("client", "provider"):
        page.show(f"#/exchange/{exchange}/conversation?side={side}")
        page.find(".talk").wait()
        page.evaluate("document.querySelectorAll('.talk details').forEach((one) => (one.open = true))")
        page.find(".kind-result").wait_for_text("no network")
        for width in WIDTHS:
            for theme in THEMES:
                page.use(width, theme)
                settle(page)
                found += [f"{side} {width} {theme}: {violation}" for violation in page.axe()]
            if (wide := page.evaluate("document.documentElement.scrollWidth")) > width:
                found.append(f"{side} {width}: the page is {wide} wide")
    assert found == []


def test_the_keyboard_is_enough(served: Served, exchange: str, open_page: Open) -> None:
    page = open_page(served)
    page.show(f"#/exchange/{exchange}")
    page.find("#tab-overview").focus()
    page.press("ArrowRight")
    page.find("#tab-conversation:focus[aria-selected=true]").wait()
    page.find(".talk").wait()
    page.find(".choice-button[aria-pressed=true]").focus()
    page.press("Tab")
    page.find(".choice-button:focus:has-text('Provider')").wait()
    page.press("Enter")
    page.find(".choice-button[aria-pressed=true]:has-text('Provider')").wait()
    page.find(".choice-button:focus").wait()
    page.press("Tab", "Enter")
    page.find(".role-system >> details >> .answer-text").wait_for_text("Never guess.")


def test_hostile_parts_are_text(served: Served, open_page: Open) -> None:
    """In the text, the name, the id, the arguments, the result, the kind and the address of a picture; on both sides."""
    page = open_page(served)
    svg = base64.b64encode(b"<svg xmlns='http://www.w3.org/2000/svg' onload='alert(1)'/>").decode()
    for injection in INJECTIONS:
        scene = served.scene("openai-chat", play_hostile(injection, injection, False))
        use = {"type": "tool_use", "id": injection, "name": injection, "input": {injection: ALL}}
        asked = [
            {"role": "user", "content": [{"type": "text", "text": ALL}, picture(svg), picture(svg, injection)]},
            {"role": "user", "content": [{"type": "image", "source": {"type": "url", "url": injection}}]},
            {"role": "assistant", "content": [{"type": "thinking", "thinking": ALL, "signature": injection}, use]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": injection, "content": ALL}]},
        ]
        body = {"model": scene.model, "max_tokens": 9, "system": ALL, "messages": asked}
        got = ask(served.port, "POST", "/v1/messages", encode_json(body).encode())
        id = find_id(served, got)
        for side in ("client", "provider"):
            page.show(f"#/exchange/{id}/conversation?side={side}")
            settle(page)
            page.evaluate("document.querySelectorAll('.talk details').forEach((one) => (one.open = true))")
            page.find(".talk").wait_for_text("<script>alert(2)</script>")
            page.find(".kind-result").wait_for_text("<script>alert(2)</script>")
            check_document(page)
    page.show("#/live")
    page.find(".exchange-rows a >> nth=0").wait()
    check_document(page)
