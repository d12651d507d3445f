"""A talk with tools in OpenAI Responses."""

from __future__ import annotations

from collections.abc import Sequence

from toolwire.conformance.dialects.dialect import Json, Object
from toolwire.conformance.dialects.talks.talk import Says, Talk, Tool, counted, ids
from toolwire.conformance.frames import compact

SEAL = "gAAAAABpQ7sealed_-thoughts+of/the=model=="


def ask(prompt: str, tools: Sequence[Tool]) -> Object:
    """Without the server's store, as agents use it: all that is known travels in the input."""
    declared = [
        {
            "type": "function",
            "name": tool.name,
            "description": tool.description,
            "parameters": tool.parameters,
            "strict": False,
        }
        for tool in tools
    ]
    asked = {"input": [{"role": "user", "content": prompt}], "store": False}
    return asked | ({"tools": declared} if declared else {})


def answer(says: Says) -> Object:
    output: list[Json] = []
    if says.sealed:
        thought = [{"type": "summary_text", "text": "Two places."}]
        output.append({"type": "reasoning", "id": "rs_7f01", "summary": thought, "encrypted_content": SEAL})
    if says.text:
        said = [{"type": "output_text", "text": says.text, "annotations": []}]
        message = {"type": "message", "id": "msg_7f02", "role": "assistant", "status": "completed", "content": said}
        output.append(message)
    for number, (name, arguments) in enumerate(says.calls):
        call = {"name": name, "call_id": f"call_Wm8Ty{number}", "arguments": compact(arguments)}
        output.append({"type": "function_call", "id": f"fc_7f1{number}", "status": "completed", **call})
    return {"output": output, "status": "completed"}


def results(body: Object, texts: Sequence[str]) -> list[Json]:
    calls = [item for item in body["output"] if item.get("type") == "function_call"]
    return [
        {"type": "function_call_output", "call_id": call["call_id"], "output": text}
        for call, text in zip(calls, texts, strict=True)
    ]


def _calls(says: Says, letter: str) -> list[Json]:
    return [
        {"type": "function_call", "call_id": id, "name": name, "arguments": {"$json": {"$is": arguments}}}
        for (name, arguments), (_, id) in zip(says.calls, ids(says.calls, letter), strict=True)
    ]


def sees(says: Says) -> Json:
    output: Object = counted(_calls(says, "c"), {"type": "function_call"})
    if says.text:
        # Before its calls or behind them: one client or another has it either way.
        output["$either"] = [{"$contains": [{"type": "message", "content": {"$text": says.text}}]}]
    return {"status": "completed", "output": output}


def hears(prompt: str, tools: Sequence[Tool]) -> Json:
    heard: Object = {"input": {"$either": [{"$contains": prompt}, {"$contains": [_asked(prompt)]}]}}
    declared = [
        {"type": "function", "name": tool.name, "parameters": {"properties": _properties(tool)}} for tool in tools
    ]
    return heard | ({"tools": declared} if declared else {})


def _asked(prompt: str) -> Json:
    return {"role": "user", "content": {"$text": {"$contains": prompt}}}


def _properties(tool: Tool) -> Object:
    return dict.fromkeys(tool.parameters["properties"], "$any")


def recalls(prompt: str, says: Says, texts: Sequence[str]) -> Json:
    items: list[Json] = [_asked(prompt)]
    if says.sealed:
        items.append({"type": "reasoning", "encrypted_content": {"$is": SEAL}})
    items += _calls(says, "p")
    for (name, _), text in zip(ids(says.calls, "p"), texts, strict=True):
        items.append({"type": "function_call_output", "call_id": f"$same:{name}", "output": {"$within": text}})
    return {"input": {"$contains": items, **({"$within": says.text} if says.text else {})}}


TALK = Talk(
    short="responses",
    model="gpt-5.5",
    thinker="gpt-5.5",
    turns="input",
    seals=True,
    slot=True,
    ask=ask,
    answer=answer,
    results=results,
    sees=sees,
    hears=hears,
    recalls=recalls,
)
