"""The samples of structured calls that lie beside the project: other people's data, read in place."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import pytest

from material import HERE, Recorded, corpus, needs_corpus
from toolwire.call_repair.argument_stream import ArgumentMender
from toolwire.call_repair.calls import repair_arguments
from toolwire.call_repair.offered_tools import OfferedTools
from toolwire.core.events import fold
from toolwire.core.ir import Call, Tool
from toolwire.core.json_values import Malformed
from toolwire.protocols import find_codec

FOLDER = HERE.parent.parent / "shared" / "dialects" / "samples"
LINES = [line for file in sorted(FOLDER.glob("*.jsonl")) for line in file.read_text().splitlines()]
SAMPLES = [sample for sample in map(json.loads, LINES) if sample["dialect"] in ("names", "arguments")]


def offer(sample: Any) -> OfferedTools:
    functions = [tool["function"] for tool in sample["tools"]]
    return OfferedTools([Tool(one["name"], one.get("description"), one.get("parameters")) for one in functions])


class RepairedCall(NamedTuple):
    name: str
    arguments: str
    repairs: tuple[str, ...]
    problem: str = ""


def repair_call(name: str, arguments: str, tools: OfferedTools, is_cut: bool = False) -> RepairedCall:
    found = tools.find_tool(name)
    if found is None:
        return RepairedCall(name, arguments, (), "there is no such tool")
    repaired = repair_arguments(arguments, tools.parameters(found), is_cut=is_cut)
    renamed = () if found == name else (f"`{name}` was taken as `{found}`",)
    return RepairedCall(found, repaired.text, (*renamed, *repaired.repairs), repaired.problem)


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


def recorded_calls(record: Recorded) -> list[Call]:
    codec = find_codec(record.protocol)
    try:
        if record.bytes is not None:
            reader = codec.make_stream_reader()
            response = fold([*reader.feed(record.bytes), *reader.close()])
        else:
            response = codec.read_response(record.response)
    except Malformed:
        return []
    parts = [part for choice in response.choices for part in choice.parts]
    return [part for part in parts if isinstance(part, Call) and part.kind == "function"]


@needs_corpus
def test_recorded_calls_stay_as_they_are() -> None:
    """Only calls without any arguments are mended, which some servers send for tools without parameters."""
    seen = 0
    for record in corpus():
        if not isinstance(record.request, dict) or not record.request.get("tools"):
            continue
        if record.bytes is None and not isinstance(record.response, dict):
            continue
        try:
            tools = OfferedTools(find_codec(record.protocol).read_request(record.request).tools)
        except Malformed:
            continue
        for call in recorded_calls(record):
            repaired = repair_call(call.name, call.arguments, tools)
            if call.arguments and repaired.name == call.name:
                assert (repaired.arguments, repaired.repairs) == (call.arguments, ()), record.name
                seen += 1
    assert seen > 100
