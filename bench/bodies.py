"""Bodies to measure with: a small call, an agent's session of 250 kB, a huge one of 2 MB, and streams."""

from __future__ import annotations

import inspect
import json
from typing import Any

from toolwire import Stream, translate
from toolwire.core import events, ir, json_values
from toolwire.protocols import CODECS

SIZES = {
    "small": (1, 2, 80, 0),
    "session": (12, 8, 2_300, 1),
    "agent": (24, 60, 2_300, 1),
    "dense": (24, 120, 1_500, 0),
    "huge": (40, 400, 4_400, 1),
}
"""Tools, rounds of call and result, characters of each result, and whether prompt and tools are as wordy as agents'.

An agent's session is mostly source code that was read and edited, behind a long prompt and wordy tools. `dense` has
twice as many turns in the same bytes: the hard case for a translator, whose cost is by turn.
"""

MODELS = {
    "openai-chat": "gpt-4.1",
    "openai-responses": "gpt-4.1",
    "anthropic": "claude-sonnet-4-5",
    "gemini": "gemini-2.5-pro",
    "unified": "any/model",
}

CODE = "".join(inspect.getsource(module) for module in (ir, events, json_values))
"""What an agent reads: source code, with its indentation, quotes and newlines."""


def excerpt(start: int, size: int) -> str:
    at = start * 977 % (len(CODE) - size)
    return CODE[at : at + size]


def conversation(tools: int, rounds: int, size: int, wordy: int) -> dict[str, Any]:
    """A session as an agent holds one, in the protocol that most scripts speak."""
    prompt = "You are a coding agent. " * (500 if wordy else 4)
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": prompt},
        {"role": "user", "content": "Fix the bug."},
    ]
    for number in range(rounds):
        call = f"call_{number:04d}"
        length = 200 if wordy else 10
        edit = {
            "path": f"/src/file_{number}.py",
            "old": excerpt(number, length),
            "new": excerpt(number + 1, length),
            "count": 1,
        }
        function = {"name": f"tool_{number % tools}", "arguments": json.dumps(edit)}
        calls = [{"id": call, "type": "function", "function": function}]
        messages.append({"role": "assistant", "content": f"Step {number}: edit the file.", "tool_calls": calls})
        messages.append({"role": "tool", "tool_call_id": call, "content": excerpt(number, size)})
    messages.append({"role": "user", "content": "Go on."})
    return {
        "model": "gpt-4.1",
        "messages": messages,
        "tools": [_tool(number, wordy) for number in range(tools)],
        "tool_choice": "auto",
        "stream": True,
    }


def _tool(number: int, wordy: int) -> dict[str, Any]:
    properties = {
        "path": {"type": "string", "description": "The absolute path of the file."},
        "old": {"type": "string", "description": "The text that is replaced."},
        "new": {"type": "string", "description": "The text that replaces it."},
        "count": {"type": "integer", "description": "How often.", "minimum": 1},
        "mode": {"type": "string", "enum": ["strict", "loose"], "description": "How to compare."},
    }
    schema = {
        "type": "object",
        "properties": properties,
        "required": ["path", "old", "new"],
        "additionalProperties": False,
    }
    return {
        "type": "function",
        "function": {
            "name": f"tool_{number}",
            "description": "Replaces text in a file. " * (60 if wordy else 3),
            "parameters": schema,
        },
    }


def requests(size: str) -> dict[str, bytes]:
    """The same session as the body of each protocol, as its own clients would send it."""
    base = conversation(*SIZES[size])
    return {
        name: translate(
            base, "request", source="openai-chat", target=name, model=MODELS[name], cache_breakpoints=False
        ).body
        for name in CODECS
    }


def stream(deltas: int = 400) -> dict[str, bytes]:
    """One answer of text and a call in many fragments, as each protocol streams it."""
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1767225600, "model": "gpt-4.1"}

    def chunk(delta: dict[str, Any], finish: str | None = None) -> bytes:
        return (
            b"data: "
            + json.dumps(
                {**head, "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}]}
            ).encode()
            + b"\n\n"
        )

    pieces = [chunk({"role": "assistant", "content": ""})]
    pieces += [chunk({"content": f" word{number}"}) for number in range(deltas // 2)]
    first = {"index": 0, "id": "call_1", "type": "function", "function": {"name": "write_file", "arguments": ""}}
    pieces.append(chunk({"tool_calls": [first]}))
    text = json.dumps({"path": "/a", "content": "line of text " * (deltas // 2)})
    step = len(text) // (deltas // 2) + 1
    pieces += [
        chunk({"tool_calls": [{"index": 0, "function": {"arguments": text[at : at + step]}}]})
        for at in range(0, len(text), step)
    ]
    pieces += [chunk({}, "tool_calls"), b"data: [DONE]\n\n"]
    whole = b"".join(pieces)
    found = {}
    for name in CODECS:
        made = Stream(source="openai-chat", target=name)
        found[name] = made.feed(whole) + made.close()
    return found
