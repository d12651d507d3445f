"""Law 5: every leaf of a request is written, carried or in the ledger, for every pair of protocols."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from material import NAMES, PAIRS, corpus, leaves, needs_corpus
from toolwire import Malformed, Translation, translate
from toolwire.protocols.unified.names import read_call_id

BODIES = {path.stem: json.loads(path.read_text()) for path in sorted((Path(__file__).parent / "bodies").glob("*.json"))}

STRUCTURE = frozenset(
    "type role object mode mimeType mime_type media_type execution status nullable thought outcome language "
    "toolType tool_type responseMimeType response_mime_type".split()
)
"""Keys whose words belong to the grammar of a protocol: another protocol says the same by its own grammar."""

DEFAULTS: dict[str, tuple[Any, ...]] = {
    "is_error": (False,),
    "strict": (False,),
    "include_usage": (True,),
    "n": (1,),
    "candidateCount": (1,),
    "stream": (True, False),
    "parallel_tool_calls": (True,),
    "disable_parallel_tool_use": (False,),
    "tool_choice": ("auto",),
    "function_call": ("auto",),
    "includeThoughts": (True,),
    "include_thoughts": (True,),
    "detail": ("auto",),
    "store": (False,),
}
"""Values that say what a wire takes for granted anyway."""

SAME = {
    "any": "required",
    "required": "any",
    "omitted": "",
    "summarized": "auto",
    "reasoning.encrypted_content": "",
    "models/gemini-2.0-flash": "gemini-2.0-flash",
}
"""Words that another protocol, or the outside of the body, says differently; seals are always asked for."""


INVERTED = {"disable_parallel_tool_use": "parallel_tool_calls", "parallel_tool_calls": "disable_parallel_tool_use"}
"""Keys whose meaning is negated in another protocol."""


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
    return unaccounted(body, result, [loss.path for loss in result.losses if loss.path])


def unaccounted(body: Any, result: Translation, named: list[str]) -> list[str]:
    text, others = words_of(json.loads(result.body))
    outside = {result.model, result.stream}
    missing = []
    for path, value in leaves(body):
        key = path.rsplit("/", 1)[1]
        if key in STRUCTURE or value in DEFAULTS.get(key, ()) or value in outside or value == "":
            continue
        if isinstance(value, str) and (value in text or all(piece in text for piece in _pieces(value))):
            continue
        if isinstance(value, str) and SAME.get(value, value).lower() in f"{text}\0{result.model}".lower():
            continue
        if key in INVERTED and INVERTED[key] in text:
            continue
        if not isinstance(value, str) and (value in others or json.dumps(value) in text):
            continue
        if not any(path == place or path.startswith(f"{place}/") for place in named):
            missing.append(f"{path} = {value!r}")
    return missing


def _pieces(value: str) -> list[str]:
    """What a text is written as elsewhere: a data URL in pieces, JSON by its leaves, bytes in the other alphabet of
    base64, ids of our own by what they stand for."""
    if value.startswith("data:"):
        head, _, data = value.partition(",")
        return [head.removeprefix("data:").removesuffix(";base64"), data]
    if value[:1] in "{[":
        try:
            return [str(leaf) if isinstance(leaf, str) else json.dumps(leaf) for _, leaf in leaves(json.loads(value))]
        except ValueError:
            return [value]
    if value.startswith("tw_"):
        return [read_call_id(value)]
    if "-" in value or "_" in value:
        return [value.replace("-", "+").replace("_", "/")]
    if len(value) % 4 == 0 and value.isalnum():
        return [base64.b64decode(value).decode("utf-8", "replace")]
    return [base64.b64encode(value.encode()).decode() if value.endswith("\n") else value]


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
    """Without the ledger, what the target could not say is missed."""
    body = BODIES["openai-chat"]
    result = translate(body, "request", source="openai-chat", target="anthropic")
    missed = unaccounted(body, result, [])
    assert "/future_field/deep = 'unknown-to-all'" in missed
    assert "/seed = 271828" in missed
    assert unaccounted(body, result, [loss.path for loss in result.losses if loss.path]) == []
