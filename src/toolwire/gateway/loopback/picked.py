"""Which tools a text asks for, and how often: by the words that it shares with them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from msgspec import Struct

from toolwire.gateway.loopback.fitting import EXAMPLES, kind_of, sources
from toolwire.gateway.loopback.invented import simplified
from toolwire.gateway.loopback.offered import STOP_WORDS, Offer, words
from toolwire.ir import Tool
from toolwire.schema import standard
from toolwire.schema.refs import Lookup
from toolwire.wire import Malformed, Object

MOST = 16
"""Calls in one answer."""

_ABOUT = 300
"""How much of a description is read: agents write pages, and pages resemble everything."""
_ENOUGH = 2
_NAMED = 100
_JOINED = re.compile(r"\b(?:and|both|each|all|then|also|parallel|as well as|plus)\b|[,&;]|[.?!]\s+\w", re.IGNORECASE)
_ALL = re.compile(
    r"\b(?:both|all|each|every)\b[\w\s]{0,20}\btools?\b|\btools? in parallel\b|\bcall both\b", re.IGNORECASE
)
_TWICE = re.compile(r"\btwice\b|\bin parallel\b|\btwo (?:parallel )?calls\b", re.IGNORECASE)


class Picked(Struct, frozen=True):
    """One call to be made: the tool, and what its arguments are made of."""

    tool: Tool
    offer: Offer


class _Seen(Struct, frozen=True):
    """How much a tool resembles the text."""

    tool: Tool
    points: int
    weight: float
    named: bool
    shared: frozenset[str]
    """Words of its name that the text says."""


def picked(tools: Sequence[Tool], offer: Offer, must: bool, several: bool) -> list[Picked]:
    """The calls that a text asks for, the first tool where one must be called; none when it resembles no tool."""
    seen = _compared(tools, offer)
    best = max(seen, key=lambda one: one.weight, default=None)
    if best is None or (best.points < _ENOUGH and not must):
        return []
    if not several:
        return [Picked(best.tool, offer)]
    chosen = _together(seen, best, offer.text)
    calls = [Picked(tool, part) for tool in chosen for part in _apart(tool, offer)]
    if len(calls) == 1 and _TWICE.search(offer.text):
        calls *= 2
    return calls[:MOST]


def _stem(word: str) -> str:
    for end in ("ing", "ies", "ed", "es", "s"):
        if word.endswith(end) and len(word) - len(end) >= 3:
            word = word[: -len(end)]
            break
    return word.removesuffix("e")[:6]


def _stems(text: str) -> frozenset[str]:
    return frozenset(_stem(word) for word in words(text) if word not in STOP_WORDS)


def properties(tool: Tool) -> tuple[Object, frozenset[str]]:
    """The parameters of a tool, written out one level deep, and which of them are required."""
    try:
        schema = standard(tool.parameters).schema
    except Malformed:
        schema = {}
    lookup = Lookup(schema)
    root = simplified(lookup, schema)
    inner, listed = root.get("properties"), root.get("required")
    known = inner if isinstance(inner, dict) else {}
    required = [key for key in listed if isinstance(key, str)] if isinstance(listed, list) else []
    return {name: simplified(lookup, node) for name, node in known.items()}, frozenset(required)


def _compared(tools: Sequence[Tool], offer: Offer) -> list[_Seen]:
    said = _stems(offer.text)
    names = [_stems(f"{tool.namespace} {tool.name}") for tool in tools]
    common = Counter(stem for name in names for stem in name)
    return [_seen(tool, name, said, common, offer) for tool, name in zip(tools, names, strict=True)]


def _seen(tool: Tool, name: frozenset[str], said: frozenset[str], common: Counter[str], offer: Offer) -> _Seen:
    known, required = properties(tool)
    shared = name & said
    about = (_stems((tool.description or "")[:_ABOUT]) - name) & said
    asked = (_stems(" ".join(known)) - name - about) & said
    wanted = [kind for key in required if (kind := kind_of(key, known.get(key, {}))) in EXAMPLES]
    offered = sum(1 for kind in set(wanted) if any(offer.of(source) for source in sources(kind)))
    named = bool(re.search(rf"(?<![\w-]){re.escape(tool.name)}(?![\w-])", offer.text, re.IGNORECASE))
    named = named and tool.name.lower() not in STOP_WORDS
    rest = len(about) + len(asked) + 2 * offered + _NAMED * named
    return _Seen(tool, 3 * len(shared) + rest, sum(3 / common[one] for one in shared) + rest, named, shared)


def _together(seen: list[_Seen], best: _Seen, text: str) -> list[Tool]:
    """The tools that are called in one go: all that are named, or that the text resembles each by a word of its own."""
    named = [one.tool for one in seen if one.named]
    if len(named) > 1:
        return named
    if _ALL.search(text):
        return [one.tool for one in seen]
    if named or not _JOINED.search(text):
        return [best.tool]
    chosen, claimed = {id(best.tool)}, set(best.shared)
    for one in sorted(seen, key=lambda one: -one.weight):
        if one.shared - claimed:
            chosen.add(id(one.tool))
            claimed |= one.shared
    return [one.tool for one in seen if id(one.tool) in chosen]


def _apart(tool: Tool, offer: Offer) -> list[Offer]:
    """One offer for each of several values that only one parameter can take, one at a time."""
    known, required = properties(tool)
    single = {name: node for name, node in known.items() if not _takes_several(node)}
    texts = [name for name in single if name in required and _is(single[name], "string")]
    kinds = Counter(kind_of(name, single[name]) for name in single if _is(single[name], "string"))
    for kind, count in kinds.items():
        for source in sources(kind):
            values = offer.of(source)
            if count == 1 and len(values) > 1 and (source != "quoted" or len(texts) == 1):
                return [offer.only(source, value) for value in values]
    if len(texts) == 1 and len(offer.of("quoted")) > 1:
        return [offer.only("quoted", value) for value in offer.of("quoted")]
    numbers = [name for name in required if _is(known.get(name, {}), "integer", "number")]
    if len(numbers) == 1 and len(required) == 1 and len(offer.numbers) > 1:
        return [offer.only("number", one.number) for one in offer.numbers]
    return [offer]


def _is(node: Object, *types: str) -> bool:
    named = node.get("type", "string")
    return any(one in types for one in (named if isinstance(named, list) else [named])) and "enum" not in node


def _takes_several(node: Object) -> bool:
    return node.get("type") == "array" or "items" in node
