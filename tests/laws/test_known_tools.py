"""What is remembered about a list of tools is what reading, checking and writing it again would give."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from material import NAMES, corpus, needs_corpus
from toolwire import Malformed, translate
from toolwire.core.known_tools import MAX_LIST_BYTES, MAX_LISTS, forget_tools
from toolwire.protocols import CODECS

BODIES = {path.stem: json.loads(path.read_text()) for path in sorted((Path(__file__).parent / "bodies").glob("*.json"))}
MODELS = ("gpt-5.5", "claude-opus-5-5", "gemini-2.5-pro", "gemini-3-pro", "llama")
"""Of several families: schemas, names and limits depend on them."""


def translate_or_refuse(body: Any, source: str, target: str) -> object:
    try:
        found = translate(body, "request", source=source, target=target)
    except Malformed as problem:
        return str(problem)
    return found.body, found.losses


def assert_same(body: Any, source: str) -> None:
    """First everything is worked out, then all that can be is remembered; and what was given out meanwhile has changed
    nothing of it."""
    fresh = {}
    for target in NAMES:
        forget_tools()
        fresh[target] = translate_or_refuse(body, source, target)
    for _ in range(2):
        assert {target: translate_or_refuse(body, source, target) for target in NAMES} == fresh


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("source", BODIES)
def test_remembered_results_are_those_that_are_worked_out(source: str, model: str) -> None:
    assert_same({**BODIES[source], "model": model}, source)


@needs_corpus
@pytest.mark.parametrize("protocol", NAMES)
def test_recorded_tools_are_remembered_as_they_are_worked_out(protocol: str) -> None:
    requests = [one.request for one in corpus() if one.protocol == protocol and isinstance(one.request, dict)]
    by_tools = {json.dumps(request["tools"]): request for request in requests if request.get("tools")}
    for request in by_tools.values():
        assert_same(request, protocol)


def tool(name: str, description: str = "") -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "description": description, "parameters": {}}}


def read_tools(*tools: dict[str, Any]) -> object:
    return CODECS["openai-chat"].read_request({"model": "m", "messages": [], "tools": [*tools]}).tools


def test_a_list_that_comes_again_is_not_read_again() -> None:
    assert read_tools(tool("a")) is read_tools(tool("a"))
    assert read_tools(tool("a")) != read_tools(tool("b"))


def test_what_a_caller_does_with_its_list_changes_nothing() -> None:
    body = copy.deepcopy(BODIES["openai-chat"])
    before = translate_or_refuse(body, "openai-chat", "anthropic")
    body["tools"][0]["function"]["description"] = "changed"
    assert translate_or_refuse(body, "openai-chat", "anthropic") != before
    assert translate_or_refuse(BODIES["openai-chat"], "openai-chat", "anthropic") == before


def test_not_more_is_remembered_than_the_bounds_allow() -> None:
    first = read_tools(tool("first"))
    for number in range(MAX_LISTS):
        read_tools(tool(f"tool_{number}"))
    assert read_tools(tool("first")) is not first
    long = tool("long", "x" * MAX_LIST_BYTES)
    assert read_tools(long) is not read_tools(long)
    many = [tool(f"tool_{number}", "x" * (MAX_LIST_BYTES - 1000)) for number in range(9)]
    first = read_tools(many[0])
    assert read_tools(many[0]) is first
    for one in many[1:]:
        read_tools(one)
    assert read_tools(many[0]) is not first
