"""A talk with tools in Anthropic Messages."""

from __future__ import annotations

from collections.abc import Sequence

from toolwire.conformance.dialects.dialect import Json, Object
from toolwire.conformance.dialects.talks.talk import Says, Talk, Tool, counted, ids, ways_to_give

SEAL = "EuYBCkQYAiJAsealed+thoughts/of+the/model0A=="
THOUGHT = "Two places."


def ask(prompt: str, tools: Sequence[Tool]) -> Object:
    declared = [{"name": tool.name, "description": tool.description, "input_schema": tool.parameters} for tool in tools]
    asked = {"max_tokens": 1000, "messages": [{"role": "user", "content": prompt}]}
    return asked | ({"tools": declared} if declared else {})


def answer(says: Says) -> Object:
    content: list[Json] = []
    if says.sealed:
        content.append({"type": "thinking", "thinking": THOUGHT, "signature": SEAL})
    if says.text:
        content.append({"type": "text", "text": says.text})
    for number, (name, arguments) in enumerate(says.calls):
        content.append({"type": "tool_use", "id": f"toolu_01Rz5Np{number}", "name": name, "input": arguments})
    return {"content": content, "stop_reason": "tool_use" if says.calls else "end_turn"}


def results(body: Object, texts: Sequence[str]) -> list[Json]:
    calls = [block for block in body["content"] if block.get("type") == "tool_use"]
    blocks = [
        {"type": "tool_result", "tool_use_id": call["id"], "content": text}
        for call, text in zip(calls, texts, strict=True)
    ]
    return [{"role": "user", "content": blocks}]


def _calls(says: Says, letter: str) -> list[Json]:
    return [
        {"type": "tool_use", "id": id, "name": name, "input": {"$is": arguments}}
        for (name, arguments), (_, id) in zip(says.calls, ids(says.calls, letter), strict=True)
    ]


def sees(says: Says) -> Json:
    content: Object = counted(_calls(says, "c"), {"type": "tool_use"})
    if says.text:
        content["$text"] = says.text
    return {"role": "assistant", "content": content, "stop_reason": "tool_use" if says.calls else "end_turn"}


def hears(prompt: str, tools: Sequence[Tool]) -> Json:
    declared = [{"name": tool.name, "input_schema": {"properties": _properties(tool)}} for tool in tools]
    return {"messages": {"$contains": [_asked(prompt)]}} | ({"tools": declared} if declared else {})


def _asked(prompt: str) -> Json:
    return {"role": "user", "content": {"$text": {"$contains": prompt}}}


def _properties(tool: Tool) -> Object:
    return dict.fromkeys(tool.parameters["properties"], "$any")


def recalls(prompt: str, says: Says, texts: Sequence[str]) -> Json:
    thought = [{"type": "thinking", "thinking": THOUGHT, "signature": {"$is": SEAL}}] if says.sealed else []
    given = [
        {"type": "tool_result", "tool_use_id": f"$same:{name}", "content": {"$within": text}}
        for (name, _), text in zip(ids(says.calls, "p"), texts, strict=True)
    ]
    model = {"role": "assistant", "content": {"$contains": [*thought, *_calls(says, "p")]}}
    ways = [
        {"$contains": [_asked(prompt), model, *({"role": "user", "content": {"$contains": part}} for part in parts)]}
        for parts in ways_to_give(given)
    ]
    return {"messages": {"$either": ways, **({"$within": says.text} if says.text else {})}}


TALK = Talk(
    short="anthropic",
    model="claude-opus-5-5",
    thinker="claude-opus-5-5",
    turns="messages",
    seals=True,
    slot=True,
    ask=ask,
    answer=answer,
    results=results,
    sees=sees,
    hears=hears,
    recalls=recalls,
)
