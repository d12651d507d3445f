"""A talk with tools in OpenAI Chat Completions."""

from __future__ import annotations

from collections.abc import Sequence

from toolwire.conformance.dialects.dialect import Json, Object
from toolwire.conformance.dialects.talks.talk import Says, Talk, Tool, ids
from toolwire.conformance.frames import compact


def ask(prompt: str, tools: Sequence[Tool]) -> Object:
    functions = [{"name": tool.name, "description": tool.description, "parameters": tool.parameters} for tool in tools]
    declared = [{"type": "function", "function": function} for function in functions]
    return {"messages": [{"role": "user", "content": prompt}]} | ({"tools": declared} if declared else {})


def answer(says: Says) -> Object:
    calls = [
        {"id": f"call_Kq3Vx{number}", "type": "function", "function": {"name": name, "arguments": compact(arguments)}}
        for number, (name, arguments) in enumerate(says.calls)
    ]
    message = {"role": "assistant", "content": says.text or None} | ({"tool_calls": calls} if calls else {})
    return {"choices": [{"message": message, "finish_reason": "tool_calls" if calls else "stop"}]}


def results(body: Object, texts: Sequence[str]) -> list[Json]:
    calls = body["choices"][0]["message"].get("tool_calls") or []
    return [
        {"role": "tool", "tool_call_id": call["id"], "content": text} for call, text in zip(calls, texts, strict=True)
    ]


def _calls(says: Says, letter: str) -> list[Json]:
    return [
        {
            "id": id,
            "type": "function",
            "function": {"name": name, "arguments": {"$json": {"$is": arguments}}},
        }
        for (name, arguments), (_, id) in zip(says.calls, ids(says.calls, letter), strict=True)
    ]


def sees(says: Says) -> Json:
    message: Object = {"role": "assistant"}
    if says.text:
        message["content"] = {"$text": says.text}
    message["tool_calls"] = _calls(says, "c") if says.calls else {"$either": ["$absent", []]}
    return {"choices": [{"message": message, "finish_reason": "tool_calls" if says.calls else "stop"}]}


def hears(prompt: str, tools: Sequence[Tool]) -> Json:
    return {"messages": {"$contains": [_asked(prompt)]}, **_declared(tools)}


def _asked(prompt: str) -> Json:
    return {"role": "user", "content": {"$text": {"$contains": prompt}}}


def _declared(tools: Sequence[Tool]) -> Object:
    declared = [
        {"type": "function", "function": {"name": tool.name, "parameters": {"properties": _properties(tool)}}}
        for tool in tools
    ]
    return {"tools": declared} if declared else {}


def _properties(tool: Tool) -> Object:
    return dict.fromkeys(tool.parameters["properties"], "$any")


def recalls(prompt: str, says: Says, texts: Sequence[str]) -> Json:
    turns: list[Json] = [_asked(prompt), {"role": "assistant", "tool_calls": _calls(says, "p")}]
    for (name, _), text in zip(ids(says.calls, "p"), texts, strict=True):
        turns.append({"role": "tool", "tool_call_id": f"$same:{name}", "content": {"$within": text}})
    return {"messages": {"$contains": turns, **({"$within": says.text} if says.text else {})}}


TALK = Talk(
    short="chat",
    model="gpt-4.1",
    thinker="gpt-4.1",
    turns="messages",
    seals=False,
    slot=False,
    ask=ask,
    answer=answer,
    results=results,
    sees=sees,
    hears=hears,
    recalls=recalls,
)
