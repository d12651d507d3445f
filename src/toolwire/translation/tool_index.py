"""Finds tools by words: BM25 over their names, descriptions and parameters."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from math import log

from toolwire.core.ir import Tool
from toolwire.core.json_values import Json

SATURATION, LENGTH_WEIGHT = 1.2, 0.75
"""The usual `k1` and `b` of BM25."""
NAME_WEIGHT = 3
"""A word of the name counts as often as this in a description."""
MAX_QUERY_WORDS = 64
MIN_PREFIX = 3
"""The shortest word that also finds longer ones, such as `repo` for `repository`."""
STOP_WORDS = frozenset(
    "a an and any are as at be by can do for from get how i in into is it me my of on or that the this to tool tools "
    "use what which with you".split()
)
_SEPARATORS = re.compile(r"[\W_]+")
_CAMEL_CASE = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_UNSPACED_LETTER = re.compile(r"[\u0e00-\u0eff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")
"""Letters of languages that put no spaces between words: each counts as a word."""
_NAME_SEPARATORS = re.compile(r"[\s,;\"'`()\[\]]+")


def split_words(text: str) -> list[str]:
    """The words of a text in one form: `getUserEmails` and `get_user_email` have the same."""
    words: list[str] = []
    for run in _SEPARATORS.split(text):
        if run.isascii():
            parts = _CAMEL_CASE.findall(run)
            words += parts if len(parts) < 2 else [*parts, run]
        else:
            words += _UNSPACED_LETTER.findall(run)
            words += filter(None, _UNSPACED_LETTER.split(run))
    return [_stem(word.casefold()) for word in words]


def _stem(word: str) -> str:
    """The singular of most English nouns."""
    if len(word) > 4 and word.endswith("ies"):
        return f"{word[:-3]}y"
    return word[:-1] if len(word) > 3 and word.endswith("s") and not word.endswith(("ss", "us", "is")) else word


class ToolIndex:
    """The words of some tools. The same tools and the same query always give the same result."""

    def __init__(self, tools: Sequence[Tool]) -> None:
        self._names = [tool.name.casefold() for tool in tools]
        counts = [_count_words(tool) for tool in tools]
        self._sizes = [sum(count.values()) for count in counts]
        self._average = sum(self._sizes) / len(tools) if tools else 1.0
        self._postings: dict[str, list[tuple[int, int]]] = {}
        """For each word, the tools that have it, and how often."""
        for number, count in enumerate(counts):
            for word, times in count.items():
                self._postings.setdefault(word, []).append((number, times))

    def search(self, query: str, limit: int) -> list[int]:
        """The numbers of the tools that fit best: those whose names the query has, then by score, then by order."""
        named = {name.casefold() for name in _NAME_SEPARATORS.split(query)}
        scores: Counter[int] = Counter()
        words = dict.fromkeys(word for word in split_words(query) if word not in STOP_WORDS)
        for word in [*words][:MAX_QUERY_WORDS]:
            self._add_scores(word, scores)
        exact = [number for number, name in enumerate(self._names) if name in named]
        ranked = sorted(scores, key=lambda number: (-scores[number], number))
        return [*dict.fromkeys([*exact, *ranked])][:limit]

    def _add_scores(self, word: str, scores: Counter[int]) -> None:
        postings = self._postings.get(word)
        if postings is None:
            postings = self._find_longer_words(word)
        rarity = log(1 + (len(self._sizes) - len(postings) + 0.5) / (len(postings) + 0.5))
        for number, times in postings:
            length = 1 - LENGTH_WEIGHT + LENGTH_WEIGHT * self._sizes[number] / self._average
            # Rounded, so that a sum does not depend on the order of the words.
            scores[number] += round(1e6 * rarity * times * (SATURATION + 1) / (times + SATURATION * length))

    def _find_longer_words(self, word: str) -> list[tuple[int, int]]:
        found: Counter[int] = Counter()
        if len(word) >= MIN_PREFIX:
            for longer, postings in self._postings.items():
                if longer.startswith(word):
                    for number, times in postings:
                        found[number] += times
        return list(found.items())


def _count_words(tool: Tool) -> Mapping[str, int]:
    counts = Counter(word for word in split_words(f"{tool.namespace} {tool.name}") for _ in range(NAME_WEIGHT))
    for text in (tool.description, tool.namespace_description, *_schema_texts(tool.parameters)):
        counts.update(split_words(text or ""))
    return counts


def _schema_texts(schema: Json) -> Iterator[str]:
    """The names and descriptions of parameters, and the values that they may have."""
    pending: list[Json] = [schema]
    while pending:
        node = pending.pop()
        if isinstance(node, list):
            pending += node
        elif isinstance(node, dict):
            properties, description, values = (node.get(key) for key in ("properties", "description", "enum"))
            if isinstance(properties, dict):
                yield from properties
            if isinstance(description, str):
                yield description
            if isinstance(values, list):
                yield from (value for value in values if isinstance(value, str))
            pending += node.values()
