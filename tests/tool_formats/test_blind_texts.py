"""Calls and innocent texts by authors who had not seen the mechanism: `blind/calls.jsonl`, `blind/mentions.jsonl`.

`{CALL}` is where a call stands. Each text is read in two formats, the second another one for each text.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec import Struct
from msgspec.json import decode

from tool_formats.mentioned_calls import WHOLE_OR_LINE
from tool_formats.reading import every_split, offer_tools, read_pieces
from tool_formats.written_calls import WRITERS
from toolwire.call_repair.offered_tools import OfferedTools
from toolwire.tool_formats.frame import TextCall

BLIND = Path(__file__).parent / "blind"
FORMATS = [name for name in WRITERS if name not in WHOLE_OR_LINE]
FOUND = 1858
"""Calls of the 2,078 texts that are found, at least."""


class Call(Struct):
    name: str
    arguments: dict[str, object]


class BlindText(Struct):
    text: str
    calls: list[Call]
    tools: list[dict[str, object]]

    def write(self, format_name: str) -> str:
        text = self.text
        for call in self.calls:
            text = text.replace("{CALL}", WRITERS[format_name]([(call.name, call.arguments)]), 1)
        return text

    def offer(self) -> OfferedTools:
        return offer_tools({"function": tool} for tool in self.tools)


def read_texts(name: str) -> list[BlindText]:
    return [decode(line, type=BlindText) for line in (BLIND / name).read_bytes().splitlines()]


MENTIONS = read_texts("mentions.jsonl")
CALLS = read_texts("calls.jsonl")


def list_formats(number: int) -> Iterator[str]:
    yield "hermes"
    yield FORMATS[number % len(FORMATS)]


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, len(MENTIONS), 50))
def test_a_mentioned_call_stays_text(first: int) -> None:
    for number, blind in enumerate(MENTIONS[first : first + 50], first):
        for name in list_formats(number):
            text = blind.write(name)
            for chunks in every_split(text):
                assert "".join(map(str, read_pieces(text, blind.offer(), chunks))) == text


@pytest.mark.slow
def test_calls_are_found() -> None:
    missed = {
        blind.text
        for number, blind in enumerate(CALLS)
        for name in list_formats(number)
        if _list_calls(blind, name) != [(call.name, call.arguments) for call in blind.calls]
    }
    assert len(CALLS) - len(missed) >= FOUND, missed


def _list_calls(blind: BlindText, format_name: str) -> list[tuple[str, object]]:
    text = blind.write(format_name)
    pieces = read_pieces(text, blind.offer(), [text])
    return [(one.name, json.loads(one.arguments)) for one in pieces if isinstance(one, TextCall)]


def test_a_call_without_words_is_found() -> None:
    for number, blind in enumerate(CALLS):
        for name in list_formats(number):
            alone = BlindText("{CALL}", blind.calls[:1], blind.tools)
            assert _list_calls(alone, name) == [(call.name, call.arguments) for call in alone.calls]
