"""The samples of calls in text that lie beside the project: other people's data, read in place."""

from __future__ import annotations

import json
from typing import Any

import pytest

from material import HERE
from tool_formats.reading import Outcome, every_split, join_blanks, offer_tools, read_pieces, sum_up
from tool_formats.test_formats import FOUND
from tool_formats.test_tag_formats import CALLS
from toolwire.tool_formats.families import ALIASES, FAMILIES
from toolwire.tool_formats.formats import FORMATS

FOLDER = HERE.parent.parent / "shared" / "dialects" / "samples"
STRUCTURED = {"names", "arguments"}
"""Dialects in which the calls do not come as text."""

DIFFERENT: dict[str, str] = {
    "harmony-009": "what was told to a tool that is not offered stays as text; the sample's note says that it is as good",
    "json-002": "the answer is JSON as the model wrote it, as in `alt`: real answers have that shape without llama.cpp",
}
"""Samples that come out differently, and why."""


def _load() -> list[Any]:
    lines = [line for file in sorted(FOLDER.glob("*.jsonl")) for line in file.read_text().splitlines()]
    return [sample for sample in map(json.loads, lines) if sample["dialect"] not in STRUCTURED]


SAMPLES = _load()
needs_samples = pytest.mark.skipif(not SAMPLES, reason="the samples of calls in text are not here: left out")


def _is_expected(found: Outcome, sample: Any) -> bool:
    if len(found.calls) != len(sample["calls"]):
        return False
    for (name, arguments, id), call in zip(found.calls, sample["calls"], strict=True):
        if (name, arguments) != (call["name"], call["arguments"]) or id != call.get("id", id):
            return False
    content, reasoning = join_blanks(sample["content"]), join_blanks(sample["reasoning"])
    if (found.content, found.reasoning) == (content, reasoning):
        return True
    # The README of the samples allows reasoning that stays in the content.
    return join_blanks(f"{found.reasoning} {found.content}") == join_blanks(f"{reasoning} {content}")


def test_every_dialect_is_a_format() -> None:
    assert {sample["dialect"] for sample in SAMPLES} <= {"none", *ALIASES, *(row.name for row in FORMATS)}
    assert {name for _, names in FAMILIES for name in names} <= {*ALIASES, *(row.name for row in FORMATS)}


@needs_samples
def test_every_format_has_samples() -> None:
    sampled = {sample["dialect"] for sample in SAMPLES} | {row[0] for row in FOUND} | {*CALLS}
    assert {row.name for row in FORMATS} - sampled == set()


@needs_samples
@pytest.mark.parametrize("sample", SAMPLES, ids=[sample["id"] for sample in SAMPLES])
def test_sample(sample: Any) -> None:
    tools = offer_tools(sample["tools"])
    facts = {
        "is_call_required": sample.get("tool_choice", "auto") not in ("auto", "none"),
        "expects_json": bool(sample.get("response_format")),
        "is_reasoning_open": bool(sample.get("prefilled_think")),
    }
    was_cut = sample.get("finish") == "length"
    outcomes = [
        sum_up(read_pieces(sample["text"], tools, chunks, was_cut=was_cut, **facts))
        for chunks in every_split(sample["text"])
    ]
    assert all(one == outcomes[0] for one in outcomes), "a split changes the result"
    assert _is_expected(outcomes[0], sample) == (sample["id"] not in DIFFERENT), (outcomes[0], sample)
