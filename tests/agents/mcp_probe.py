"""A small MCP server over its pipes, with nothing but JSON, so that it starts at once."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
WORD = {"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]}
READS = {"annotations": {"readOnlyHint": True}}
"""Several at once do no harm."""
LONG = 3500
"""Times: too much for agents that look at the size of a result."""
TOOLS = [
    {"name": "echo", "description": "Says a word again, as the probe heard it.", "inputSchema": WORD, **READS},
    {"name": "later", "description": "Is not done before another one.", "inputSchema": WORD, **READS},
    {"name": "shop.find", "description": "Finds an article of the shop by a word.", "inputSchema": WORD},
    {"name": "picture", "description": "Gives a picture.", "inputSchema": {"type": "object", "properties": {}}},
    {"name": "long", "description": "Says a word very often.", "inputSchema": WORD},
    {"name": "broken", "description": "Always fails.", "inputSchema": {"type": "object", "properties": {}}},
]
MANY = 200
"""Tools besides, if the working directory has a file of the name `MANY_FILE`: more than some providers take."""
MANY_FILE = "many-probe-tools"


def tools() -> list[dict[str, Any]]:
    more = range(MANY if Path(MANY_FILE).exists() else 0)
    return TOOLS + [
        {"name": f"extra_{number}", "description": f"Extra tool {number}.", "inputSchema": WORD} for number in more
    ]


def run_tool(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    if name == "picture":
        return {"content": [{"type": "image", "data": PNG, "mimeType": "image/png"}]}
    if name == "broken":
        return {"content": [{"type": "text", "text": "the probe is broken"}], "isError": True}
    text = f"probe {name} heard {arguments.get('word')}"
    if name == "long":
        text = f"{text}\n" * LONG
    return {"content": [{"type": "text", "text": text}]}


def answer(method: str, params: dict[str, Any]) -> dict[str, Any] | None:
    if method == "initialize":
        version = params.get("protocolVersion", "2025-06-18")
        about = {"name": "probe", "version": "1"}
        return {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": about}
    if method == "tools/list":
        return {"tools": tools()}
    if method == "tools/call":
        return run_tool(params["name"], params.get("arguments") or {})
    return {} if method == "ping" else None


def main() -> None:
    held = ""
    for line in sys.stdin:
        message = json.loads(line)
        if "id" not in message:
            continue
        result = answer(message["method"], message.get("params") or {})
        reply: dict[str, Any] = {"jsonrpc": "2.0", "id": message["id"]}
        reply |= {"result": result} if result is not None else {"error": {"code": -32601, "message": "no such method"}}
        text = json.dumps(reply) + "\n"
        if "probe later heard" in text:
            held = text
            continue
        sys.stdout.write(text + held)
        sys.stdout.flush()
        held = ""


if __name__ == "__main__":
    main()
