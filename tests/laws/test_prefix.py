"""A growing conversation: what a provider saw of it stays as it was, byte for byte, when the next turn comes.

Caches are billed by prefix, and some models bind their thinking to it.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from material import NAMES
from toolwire import translate
from toolwire.protocols import room

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": "d",
            "parameters": {"type": "object", "properties": {"a b": {"type": "string", "description": "A"}}},
        },
    }
    for name in ("read.file", "x" * 70)
]


def rounds(count: int) -> list[dict[str, Any]]:
    """A system prompt, then rounds of question, calls (some with odd or missing ids), results and answer."""
    messages: list[dict[str, Any]] = [{"role": "system", "content": "Be brief."}]
    for number in range(count):
        calls = [
            {"id": id, "type": "function", "function": {"name": tool["function"]["name"], "arguments": '{"a b": "x"}'}}
            for id, tool in zip((f"functions.f:{number}", f"call_{number}"), TOOLS, strict=True)
        ]
        messages += [
            {"role": "user", "content": f"question {number}"},
            {"role": "assistant", "content": None, "tool_calls": calls},
            *({"role": "tool", "tool_call_id": call["id"], "content": f"result {number}"} for call in calls),
            {"role": "assistant", "content": f"answer {number}"},
        ]
    return messages


def sent(target: str, count: int) -> dict[str, Any]:
    body = {"model": "m", "messages": [*rounds(count), {"role": "user", "content": "and now?"}], "tools": TOOLS}
    made: dict[str, Any] = translate(
        body, "request", source="openai-chat", target=target, model="claude-sonnet-4-5", cache_breakpoints=False
    ).json()
    return made


@pytest.mark.parametrize("target", NAMES)
def test_what_was_sent_stays_as_it_was(target: str) -> None:
    key = room(target).rules.turns_key
    shorter, longer = sent(target, 3), sent(target, 4)
    seen = shorter.pop(key)[:-1]
    grown = longer.pop(key)
    assert json.dumps(grown[: len(seen)]) == json.dumps(seen)
    assert json.dumps(shorter) == json.dumps(longer)
    assert len(seen) > 10
