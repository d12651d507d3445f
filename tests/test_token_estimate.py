"""The estimate of tokens: it covers everything, is rather too high, and always the same."""

from __future__ import annotations

import base64
from functools import partial
from typing import Any

import pytest
from msgspec.structs import replace

import material
from step_count import count_steps
from toolwire.core import tokens
from toolwire.core.codec import UsageNames
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
    Usage,
)
from toolwire.core.json_values import decode, encode, expect_object
from toolwire.core.losses import Ledger
from toolwire.gateway.features.cache_watch.cache_prefix import PromptShape, guess_cause
from toolwire.gateway.pipeline.forwarded_usage import find_usage
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


# --- bodies that are not read, or only for their media ---

PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(90_000)).decode()


def body_with(protocol: str, *parts: Part) -> bytes:
    codec = CODECS[protocol]
    turns: tuple[Turn, ...] = (Turn("user", (Text("What is it?"), *parts)),)
    if any(isinstance(part, Result) for part in parts):
        turns = (Turn("user", (Text("What is it?"),)), Turn("assistant", (Call("c", "f", "{}"),)), Turn("user", parts))
    sent = Request("gpt-5.5", turns=turns, settings=Settings(max_tokens=100))
    return encode(codec.write_request(sent, Ledger(protocol, protocol)))


def estimate(protocol: str, *parts: Part) -> int:
    """What the parts add."""
    codec = CODECS[protocol]
    sent = body_with(protocol, *parts)
    return tokens.estimate_input(codec, sent).input - tokens.estimate_input(codec, body_with(protocol)).input


@pytest.mark.parametrize("protocol", CODECS)
def test_an_image_in_a_body_counts_as_one_and_letters_as_letters(protocol: str) -> None:
    assert 1_600 <= estimate(protocol, Media("image", "image/png", PNG)) < 1_800
    linked = Media("image", "image/png", url="https://a/b.png")
    if b"https://a/b.png" in body_with(protocol, linked):  # Converse has no pictures elsewhere but in S3
        assert 1_600 <= estimate(protocol, linked) < 1_800
    letters = "A" * len(PNG)
    for part in (Text(letters), Text(PNG), Media("image", "image/png", letters), Text(f"data:image/png;base64,{PNG}")):
        assert len(letters) / 4 < estimate(protocol, part) < len(letters)


@pytest.mark.parametrize("protocol", CODECS)
def test_all_media_of_a_body_are_found(protocol: str) -> None:
    """However short they are in the body: an address or an id says nothing about the size."""
    codec = CODECS[protocol]
    for part in (
        Media("image", "image/png", url="https://a/b"),
        Media("file", "application/pdf", url="https://a/b"),
        Media("file", file_id="file-1"),
        Media("audio", "audio/wav", data=base64.b64encode(b"RIFF" + bytes(900)).decode()),
        Media("video", "video/mp4", url="https://a/b"),
        Result("c", (Media("image", "image/png", url="https://a/b"),)),
    ):
        sent = body_with(protocol, part)
        read = codec.read_request(expect_object(decode(sent), None))
        found = [one for turn in read.turns for one in turn.parts if isinstance(one, Media | Result)]
        media = [
            inner
            for one in found
            for inner in (one.content if isinstance(one, Result) else (one,))
            if isinstance(inner, Media)
        ]
        least = sum(256 if one.kind == "audio" else 1_600 for one in media)
        assert tokens.estimate_input(codec, sent).input >= least + len(body_with(protocol)) // 4


def test_a_marker_in_escapes_is_found() -> None:
    url = "https://a/b.png"
    sent = body_with("openai-chat", Media("image", url=url)).replace(b'"image_url"', b'"im\\u0061ge_url"')
    assert tokens.estimate_input(CODECS["openai-chat"], sent).input > 1_600


def test_a_body_that_cannot_be_read_counts_as_text() -> None:
    sent = b'{"messages":[{"role":"user","content":[{"type":"image_url","image_url":"' + PNG.encode()
    assert tokens.estimate_input(CODECS["openai-chat"], sent).input > len(PNG) / 4


HARD_TEXTS = {
    "runs below 4096": "a" * 4095 + " ",
    "runs of 64": "a" * 64 + " ",
    "letters": "a",
    "base64 in lines": "A" * 76 + "\\n",
    "hex": "0123456789abcdef" * 8 + ":",
    "alternating": "a ",
    "Chinese": "天气很好",
    "escapes": "\\u0061\\\\\\u00e9",
    "markers": '{\\"type\\":\\"image_url\\"}',
    "data URLs": "data:image/png;base64,iVBORw0KGgo",
}


@pytest.mark.parametrize("kind", HARD_TEXTS)
@pytest.mark.parametrize("protocol", ["openai-chat", "anthropic"])
def test_the_estimate_of_a_body_is_linear(protocol: str, kind: str) -> None:
    """6 MB would take minutes if it were quadratic."""
    codec, text = CODECS[protocol], HARD_TEXTS[kind]
    image = Media("image", "image/png", PNG)
    plain, with_image = body_with(protocol), body_with(protocol, image)

    def make(body: bytes, size: int) -> bytes:
        return body.replace(b"What is it?", text.encode() * (size // len(text.encode())))

    for body in (plain, with_image):
        few, many = (count_steps(partial(tokens.estimate_input, codec, make(body, n))) for n in (5_000, 20_000))
        assert many <= few * 5
    found = tokens.estimate_input(codec, make(with_image, 6_000_000)).input
    assert found > 1_500_000


def test_many_beginnings_of_usage_are_not_read_one_by_one() -> None:
    end = b'"usage":{' * 900
    few, many = (count_steps(partial(find_usage, UsageNames(), end[-size:])) for size in (2_000, 8_000))
    assert many <= few * 5
    assert find_usage(UsageNames(), end + b'"usage":{"prompt_tokens":3}') == Usage(3)


def test_changes_of_many_tools_are_found_at_once() -> None:
    before, after = ([f"{word}{number}" for number in range(60_000)] for word in ("old", "new"))
    shapes = [PromptShape(tuple(names), "/tools", "", "messages", 1) for names in (before, after)]
    assert "added new0, new1, new2 and removed old0" in guess_cause(*shapes, 0, "")[1]
