"""A talk with tools in Gemini generateContent. Ids of calls may be left out there: names and order pair them."""

from __future__ import annotations

from collections.abc import Sequence

from toolwire.conformance.dialects.dialect import Json, Object
from toolwire.conformance.dialects.talks.talk import Says, Talk, Tool, counted, ids, ways_to_give

SEAL = "EpcBCpQB+sealed/thoughts+of/the+modelA=="
SPELLINGS = {"$either": [SEAL, SEAL.replace("+", "-").replace("/", "_")]}
"""The same bytes: it reads both alphabets."""


def ask(prompt: str, tools: Sequence[Tool]) -> Object:
    declared = [
        {"name": tool.name, "description": tool.description, "parameters": _schema(tool.parameters)} for tool in tools
    ]
    asked = {"contents": [{"role": "user", "parts": [{"text": prompt}]}]}
    return asked | ({"tools": [{"functionDeclarations": declared}]} if declared else {})


def _schema(schema: Object) -> Object:
    """As its SDK writes it: types in capitals."""
    out = {**schema, "type": schema["type"].upper()}
    if "properties" in schema:
        out["properties"] = {name: _schema(inner) for name, inner in schema["properties"].items()}
    return out


def answer(says: Says) -> Object:
    parts: list[Json] = [{"text": says.text}] if says.text else []
    for number, (name, arguments) in enumerate(says.calls):
        signed = {"thoughtSignature": SEAL} if says.sealed and number == 0 else {}
        parts.append({"functionCall": {"id": f"gc7d{number}", "name": name, "args": arguments}, **signed})
    return {"candidates": [{"content": {"role": "model", "parts": parts}, "finishReason": "STOP"}]}


def results(body: Object, texts: Sequence[str]) -> list[Json]:
    parts = body["candidates"][0]["content"]["parts"]
    calls = [part["functionCall"] for part in parts if "functionCall" in part]
    answers = [
        {key: call[key] for key in ("id", "name") if key in call} | {"response": {"output": text}}
        for call, text in zip(calls, texts, strict=True)
    ]
    return [{"role": "user", "parts": [{"functionResponse": one} for one in answers]}]


def _calls(says: Says, letter: str) -> list[Json]:
    return [
        {"functionCall": {"name": name, "args": {"$is": arguments}, "id": {"$either": ["$absent", id]}}}
        for (name, arguments), (_, id) in zip(says.calls, ids(says.calls, letter), strict=True)
    ]


def sees(says: Says) -> Json:
    parts: Object = counted(_calls(says, "c"), {"functionCall": "$any"})
    if says.text:
        parts["$text"] = says.text
    return {"candidates": [{"content": {"parts": parts}, "finishReason": "STOP"}]}


def hears(prompt: str, tools: Sequence[Tool]) -> Json:
    ways = [
        {"$contains": [{"functionDeclarations": part} for part in parts]}
        for parts in ways_to_give([_declared(tool) for tool in tools])
    ]
    return {"contents": {"$contains": [_asked(prompt)]}} | ({"tools": {"$either": ways}} if tools else {})


def _declared(tool: Tool) -> Json:
    schema = {"properties": dict.fromkeys(tool.parameters["properties"], "$any")}
    return {"name": tool.name, "$either": [{"parameters": schema}, {"parametersJsonSchema": schema}]}


def _asked(prompt: str) -> Json:
    return {"parts": {"$text": {"$contains": prompt}}}


def recalls(prompt: str, says: Says, texts: Sequence[str]) -> Json:
    calls = _calls(says, "p")
    if says.sealed:
        calls[0] = {**calls[0], "thoughtSignature": SPELLINGS}
    given = [
        {
            "functionResponse": {
                "name": says.calls[number][0],
                "id": {"$either": ["$absent", f"$same:{name}"]},
                "response": {"$within": text},
            }
        }
        for number, ((name, _), text) in enumerate(zip(ids(says.calls, "p"), texts, strict=True))
    ]
    model = {"role": "model", "parts": {"$contains": calls}}
    ways = [
        {"$contains": [_asked(prompt), model, *({"parts": {"$contains": part}} for part in parts)]}
        for parts in ways_to_give(given)
    ]
    return {"contents": {"$either": ways, **({"$within": says.text} if says.text else {})}}


TALK = Talk(
    short="gemini",
    model="gemini-2.5-flash",
    thinker="gemini-3.8-flash",
    turns="contents",
    seals=True,
    slot=True,
    ask=ask,
    answer=answer,
    results=results,
    sees=sees,
    hears=hears,
    recalls=recalls,
)
