"""The estimate of tokens: it covers everything, is rather too high, and always the same."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from msgspec.structs import replace

import material
from toolwire.core import tokens
from toolwire.core.events import fold
from toolwire.core.ir import (
    Call,
    Citation,
    Format,
    Grammar,
    Media,
    Opaque,
    Origin,
    Part,
    ProviderCall,
    ProviderResult,
    ProviderTool,
    Reasoning,
    Refusal,
    Request,
    Result,
    Seal,
    Settings,
    Summary,
    Text,
    Thinking,
    Tool,
    ToolReference,
    ToolsAdded,
    Turn,
)
from toolwire.protocols import CODECS

LONG = "A sentence about the weather, in plain words. " * 20
WIRE = Origin("p", None, {"text": LONG})


def request(*parts: Part, **more: Any) -> Request:
    return Request("m", turns=(Turn("user", parts),), **more)


BARE = tokens.estimate_tokens(request())
WITH_TOOLS = tokens.estimate_tokens(request(tools=(Tool("t"),)))

COUNTED: dict[str, tuple[Request, int]] = {
    "text": (request(Text(LONG)), BARE),
    "refusal": (request(Refusal(LONG)), BARE),
    "system": (request(system=(Text(LONG),)), BARE),
    "reasoning": (request(Reasoning(LONG)), BARE),
    "sealed reasoning": (request(Reasoning(seal=Seal("m", LONG * 2))), BARE),
    "summary": (request(Summary(LONG)), BARE),
    "sealed summary": (request(Summary(seal=Seal("m", LONG * 2))), BARE),
    "arguments": (request(Call("c", "t", LONG)), BARE),
    "sealed call": (request(Call("c", "t", "", seal=Seal("m", LONG * 2))), BARE),
    "result": (request(Result("c", (Text(LONG),))), BARE),
    "hosted call": (request(ProviderCall("c", "web_search", LONG)), BARE),
    "hosted result": (request(ProviderResult("c", "web_search", (Citation(quote=LONG),))), BARE),
    "sealed hosted result": (request(ProviderResult("c", "web_search", origin=WIRE)), BARE),
    "tools added": (request(ToolsAdded((Tool("t", LONG),))), BARE),
    "reference": (request(ToolReference(LONG)), BARE),
    "opaque part": (request(Opaque("x", WIRE)), BARE),
    "description": (request(tools=(Tool("t", LONG),)), WITH_TOOLS),
    "schema": (request(tools=(Tool("t", parameters={"description": LONG}),)), WITH_TOOLS),
    "output schema": (request(tools=(Tool("t", output={"description": LONG}),)), WITH_TOOLS),
    "grammar": (request(tools=(Tool("t", grammar=Grammar("lark", LONG)),)), WITH_TOOLS),
    "namespace": (request(tools=(Tool("t", namespace_description=LONG),)), WITH_TOOLS),
    "opaque tool": (request(tools=(Opaque("x", WIRE),)), WITH_TOOLS),
    "format": (request(settings=Settings(format=Format("schema", {"description": LONG}))), BARE),
}


@pytest.mark.parametrize("name", COUNTED)
def test_nothing_is_left_out(name: str) -> None:
    counted, without = COUNTED[name]
    assert tokens.estimate_tokens(counted) - without >= len(LONG) / 4


def test_what_is_told_without_words_counts_too() -> None:
    assert tokens.estimate_tokens(request(tools=(ProviderTool("web_search"),))) > WITH_TOOLS
    assert WITH_TOOLS > BARE
    assert tokens.estimate_tokens(request(settings=Settings(thinking=Thinking("on")))) > BARE


@pytest.mark.parametrize(
    ("text", "least", "most"),
    [
        ("The quick brown fox jumps over the lazy dog. " * 100, 1000, 1500),
        ('{"location": "Paris", "unit": "celsius"}' * 100, 1000, 1500),
        ("天气很好，我们去公园吧" * 100, 1100, 1300),
        ("今日は天気がいいですね" * 100, 1100, 1300),
        ("Сегодня хорошая погода. " * 100, 1000, 1700),
        ("Größere Städte überqueren Flüsse. " * 100, 900, 1300),
        ("😀" * 100, 100, 300),
        ("\ud800", 1, 3),
        ("x", 1, 1),
    ],
)
def test_text_of_every_script(text: str, least: int, most: int) -> None:
    assert least <= tokens.estimate_tokens(request(Text(text))) - BARE <= most


def data(size: int) -> str:
    return base64.b64encode(bytes(size)).decode()


@pytest.mark.parametrize(
    ("media", "least", "most"),
    [
        (Media("image", "image/png", data(900_000)), 1600, 1600),
        (Media("image", url="https://a/b.png"), 1600, 1600),
        (Media("file", "application/pdf", data(1_600_000)), 90_000, 110_000),
        (Media("file", "application/pdf", data(10)), 1600, 1600),
        (Media("file", "text/plain", data(35_000)), 9_900, 10_100),
        (Media("file", file_id="file-1"), 3000, 3000),
        (Media("audio", "audio/wav", data(400_000)), 900, 1100),
        (Media("video", "video/mp4", data(4_000_000)), 9_000, 11_000),
    ],
)
def test_media_by_their_kind_and_never_by_their_text(media: Media, least: int, most: int) -> None:
    assert least <= tokens.estimate_tokens(request(media)) - BARE <= most
    in_result = tokens.estimate_tokens(request(Result("c", (media,)))) - tokens.estimate_tokens(request(Result("c")))
    assert least <= in_result <= most


def test_more_is_never_less() -> None:
    first = request(Text(LONG))
    more = replace(first, turns=(*first.turns, Turn("assistant", (Text("."),))))
    assert tokens.estimate_tokens(more) > tokens.estimate_tokens(first)


@material.needs_corpus
def test_it_is_seldom_below_what_providers_counted() -> None:
    """Where nothing is hidden from us: no tools of the provider's own, no media, no state."""
    below, seen = 0, 0
    for recorded in material.corpus():
        if recorded.status != 200 or not isinstance(recorded.request, dict):
            continue
        codec = CODECS[recorded.protocol]
        request = codec.read_request(recorded.request)
        parts = [part for turn in request.turns for part in turn.parts]
        plain = all(type(part) in (Text, Call, Result, Reasoning) for part in parts)
        if request.has_provider_history or not plain or not all(isinstance(tool, Tool) for tool in request.tools):
            continue
        if recorded.bytes is not None:
            reader = codec.make_stream_reader()
            usage = fold(reader.feed(recorded.bytes) + reader.close()).usage
        elif isinstance(recorded.response, dict):
            usage = codec.read_response(recorded.response).usage
        else:
            continue
        if usage is not None and usage.input:
            seen += 1
            below += tokens.estimate_tokens(request) < usage.input
    assert seen > 500
    assert below < seen * 0.1
