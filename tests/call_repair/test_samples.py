"""The samples of structured calls that lie beside the project: other people's data, read in place."""

from __future__ import annotations

import json
from typing import Any

import pytest

from material import HERE
from toolwire.call_repair.argument_stream import ArgumentMender
from toolwire.call_repair.calls import repair_call
from toolwire.call_repair.offered_tools import OfferedTools
from toolwire.core.ir import Tool

FOLDER = HERE.parent.parent / "shared" / "dialects" / "samples"
LINES = [line for file in sorted(FOLDER.glob("*.jsonl")) for line in file.read_text().splitlines()]
SAMPLES = [sample for sample in map(json.loads, LINES) if sample["dialect"] in ("names", "arguments")]


def offer(sample: Any) -> OfferedTools:
    functions = [tool["function"] for tool in sample["tools"]]
    return OfferedTools([Tool(one["name"], one.get("description"), one.get("parameters")) for one in functions])


@pytest.mark.skipif(not SAMPLES, reason="the samples of calls are not here: left out")
@pytest.mark.parametrize("sample", SAMPLES, ids=[sample["id"] for sample in SAMPLES])
def test_sample(sample: Any) -> None:
    tools, is_cut = offer(sample), sample.get("finish") == "length"
    repaired = repair_call(sample["name"], sample["text"], tools, is_cut)
    if not sample["calls"]:
        assert (repaired.arguments, repaired.repairs) == (sample["text"], ())
        assert repaired.problem
        return
    (call,) = sample["calls"]
    assert (repaired.name, json.loads(repaired.arguments)) == (call["name"], call["arguments"])
    assert bool(repaired.repairs) == (sample["kind"] == "repair")
    found = tools.find_tool(sample["name"])
    if found is not None:
        for size in (1, 2, 3, 7, len(sample["text"])):
            mender = ArgumentMender(tools.parameters(found))
            out = [mender.feed(sample["text"][at : at + size]) for at in range(0, len(sample["text"]), size)]
            assert json.loads("".join([*out, mender.close(is_cut)[0]])) == call["arguments"]
