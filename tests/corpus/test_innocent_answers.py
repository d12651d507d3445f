"""The recorded answers hold no calls in their text: none may be found."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from material import corpus, needs_corpus
from tool_formats.reading import offer_tools, read_pieces
from toolwire.tool_formats.frame import TextCall

USUAL = ["bash", "read_file", "search", "python"]
"""Offered where the recorded request offers nothing."""


def _names(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        if isinstance(node.get("name"), str):
            yield node["name"]
        node = list(node.values())
    if isinstance(node, list):
        for child in node:
            yield from _names(child)


def _texts(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        for key, child in node.items():
            if key in ("text", "content") and isinstance(child, str):
                yield child
            elif key not in ("arguments", "input", "tools"):
                yield from _texts(child)
    elif isinstance(node, list):
        for child in node:
            yield from _texts(child)


@needs_corpus
def test_no_call_is_found_in_recorded_text() -> None:
    found: list[object] = []
    seen = 0
    for recorded in corpus():
        request = recorded.request if isinstance(recorded.request, dict) else {}
        names = [*dict.fromkeys(_names(request.get("tools")))] or USUAL
        tools = offer_tools([{"function": {"name": name, "parameters": {"type": "object"}}} for name in names])
        for text in _texts(recorded.response):
            seen += 1
            found += [(recorded.name, one) for one in read_pieces(text, tools, [text]) if isinstance(one, TextCall)]
    assert seen
    assert found == []
