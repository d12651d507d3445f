"""Reads a text whole, character by character and in random chunks, and says what came out."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from msgspec import Struct

from toolwire.call_repair.offered_tools import OfferedTools
from toolwire.core.ir import Tool
from toolwire.tool_formats.families import formats_for_model
from toolwire.tool_formats.frame import Piece, ReasoningText, TextCall
from toolwire.tool_formats.text_reader import TextReader


class Outcome(Struct, frozen=True):
    """What a reader found, with runs of blanks joined: where text is cut, they may differ."""

    calls: list[tuple[str, Any, str]]
    content: str
    reasoning: str


def offer_tools(declarations: Iterable[dict[str, Any]]) -> OfferedTools:
    """Tools in OpenAI Chat form."""
    return OfferedTools(
        Tool(one["function"]["name"], one["function"].get("description"), one["function"].get("parameters"))
        for one in declarations
    )


def join_blanks(text: str | None) -> str:
    return " ".join((text or "").split())


def read_pieces(
    text: str,
    tools: OfferedTools,
    chunks: Sequence[str],
    tool_format: str = "auto",
    was_cut: bool = False,
    **facts: bool,
) -> list[Piece]:
    assert "".join(chunks) == text
    reader = TextReader(tools, formats_for_model("", tool_format), **facts)
    pieces = [piece for chunk in chunks for piece in reader.feed(chunk)]
    return pieces + reader.close(was_cut)


def sum_up(pieces: Iterable[Piece]) -> Outcome:
    pieces = list(pieces)
    return Outcome(
        [(one.name, json.loads(one.arguments), one.id) for one in pieces if isinstance(one, TextCall)],
        join_blanks("".join(one for one in pieces if isinstance(one, str))),
        join_blanks("".join(one.text for one in pieces if isinstance(one, ReasoningText))),
    )


def split_randomly(text: str, seed: int) -> list[str]:
    chance = random.Random(seed)
    chunks = []
    while text:
        size = chance.choice((1, 1, 2, 3, 5, 8, 13, 40))
        chunks.append(text[:size])
        text = text[size:]
    return chunks


def every_split(text: str) -> Iterator[list[str]]:
    """Whole, every character, random chunks."""
    yield [text]
    yield list(text)
    for seed in range(3):
        yield split_randomly(text, seed)
