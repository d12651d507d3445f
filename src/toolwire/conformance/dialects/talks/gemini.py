"""A talk with tools in Gemini generateContent. Ids of calls may be left out there: names and order pair them."""

from __future__ import annotations

from collections.abc import Sequence

from toolwire.conformance.dialects.dialect import Json, Object
from toolwire.conformance.dialects.talks.talk import Says, Talk, Tool, counted, ids

SEAL = "EpcBCpQB+sealed/thoughts+of/the+modelA=="
SPELLINGS = {"$either": [SEAL, SEAL.replace("+", "-").replace("/", "_")]}
"""The same bytes: it reads both alphabets."""


def ask(prompt: str, tools: Sequence[Tool]) -> Object:
    declared = [
        {"name": tool.name, "description": tool.description, "parametersJsonSchema": tool.parameters} for tool in tools
    ]
    return {
        "contents": [{"role": "user", "parts": [{"text": prompt}]}],
        "tools": [{"functionDeclarations": declared}],
    }


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
    declared = [_declared(tool) for tool in tools]
    heard: Object = {"contents": {"$contains": [_asked(prompt)]}}
    return heard | ({"tools": {"$contains": [{"functionDeclarations": declared}]}} if declared else {})


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
    turns = [
        _asked(prompt),
        {"role": "model", "parts": {"$contains": calls}},
        {"parts": {"$contains": given}},
    ]
    return {"contents": {"$contains": turns, **({"$within": says.text} if says.text else {})}}


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
