"""Law 5: every leaf of a request is written, carried or named in the ledger, for every pair of protocols."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from material import NAMES, PAIRS, corpus, leaves, needs_corpus

from toolwire import Malformed, translate

BODIES = {path.stem: json.loads(path.read_text()) for path in sorted((Path(__file__).parent / "bodies").glob("*.json"))}

STRUCTURE = frozenset({"type", "role", "object", "mode", "mimeType", "mime_type", "media_type", "execution", "status"})
"""Keys whose words belong to the grammar of a protocol: another protocol says the same by its own grammar."""

DEFAULTS: dict[str, tuple[Any, ...]] = {
    "is_error": (False,),
    "strict": (False,),
    "include_usage": (True,),
    "n": (1,),
    "candidateCount": (1,),
    "stream": (True, False),
    "parallel_tool_calls": (True,),
    "tool_choice": ("auto",),
    "includeThoughts": (True,),
    "detail": ("auto",),
}
"""Values that say what a wire takes for granted anyway."""


def words_of(body: Any) -> tuple[str, set[Any]]:
    """All text of a body, JSON inside of text included, and all its other scalars."""
    texts: list[str] = []
    others: set[Any] = set()
    waiting = [body]
    while waiting:
        for path, value in leaves(waiting.pop()):
            texts.extend(path.split("/"))
            if not isinstance(value, str):
                others.add(value)
                continue
            texts.append(value)
            if value[:1] in "{[":
                try:
                    waiting.append(json.loads(value))
                except ValueError:
                    continue
    return "\0".join(texts), others


def silent(body: Any, source: str, target: str, **options: Any) -> list[str]:
    """The leaves that are neither in the output nor in the ledger."""
    result = translate(body, "request", source=source, target=target, **options)
    text, others = words_of(json.loads(result.body))
    outside = {result.model, result.stream}
    named = [loss.path for loss in result.losses]
    missing = []
    for path, value in leaves(body):
        key = path.rsplit("/", 1)[1]
        if key in STRUCTURE or value in DEFAULTS.get(key, ()) or value in outside or value == "":
            continue
        if isinstance(value, str) and (value in text or all(piece in text for piece in _pieces(value))):
            continue
        if not isinstance(value, str) and (value in others or json.dumps(value) in text):
            continue
        if not any(path == place or path.startswith(f"{place}/") for place in named):
            missing.append(f"{path} = {value!r}")
    return missing


def _pieces(value: str) -> list[str]:
    """A data URL is written in pieces by those who keep type and data apart; JSON text by its leaves."""
    if value.startswith("data:"):
        head, _, data = value.partition(",")
        return [head.removeprefix("data:").removesuffix(";base64"), data]
    if value[:1] in "{[":
        try:
            return [str(leaf) if isinstance(leaf, str) else json.dumps(leaf) for _, leaf in leaves(json.loads(value))]
        except ValueError:
            return [value]
    return [value]


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_no_leaf_of_our_own_bodies_is_lost_in_silence(source: str, target: str) -> None:
    assert silent(BODIES[source], source, target) == []


@needs_corpus
@pytest.mark.parametrize("target", NAMES)
def test_no_leaf_of_recorded_requests_is_lost_in_silence(target: str) -> None:
    found: dict[str, list[str]] = {}
    for recorded in corpus():
        if recorded.request is None or recorded.status >= 400:
            continue
        try:
            missing = silent(recorded.request, recorded.protocol, target, model=recorded.model)
        except Malformed as bad:
            missing = [f"refused: {bad}"]
        if missing:
            found[recorded.name] = missing
    assert found == {}


def test_the_law_can_fail() -> None:
    """A leaf that is taken out of the ledger is noticed."""
    text, others = words_of({"messages": [{"content": "{\"a\": 5}"}]})
    assert "5" in text or 5 in others
    assert "unknown-to-all" not in text
