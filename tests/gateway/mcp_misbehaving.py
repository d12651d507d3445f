"""MCP servers as they should not be, and one of 2025: written by hand, over its pipes. Its arguments say how it is."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

how = sys.argv[1]
tools = ["echo"]


def send(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def answer(id: Any, result: dict[str, Any]) -> None:
    send({"id": id, "result": result})


def write_noise() -> None:
    sys.stdout.buffer.write(b"Starting up...\n\xff\xfe\n{}\n[]\nnull\n" + b'{"jsonrpc":"2.0","id":77,"result":{}}\n')
    sys.stdout.flush()


def answer_request(method: str, id: Any, params: dict[str, Any]) -> None:
    if method == "server/discover":
        if how == "upset":
            os._exit(1)
        send({"id": id, "error": {"code": -32601, "message": "Method not found"}})
    elif method == "initialize":
        info = {"name": how, "version": "1"}
        capabilities = {"tools": {"listChanged": True}}
        version = params["protocolVersion"]
        answer(id, {"protocolVersion": version, "capabilities": capabilities, "serverInfo": info})
    elif method == "tools/list":
        page = int(params.get("cursor", 0))
        found = [{"name": name, "inputSchema": {"type": "object"}} for name in tools]
        answer(id, {"tools": found, **({"nextCursor": str(page + 1)} if how == "endless" else {})})
        if how == "deaf":
            signal.pause()
    elif method == "tools/call":
        answer_call(id, params)
    else:
        send({"id": id, "error": {"code": -32601, "message": "Method not found"}})


def answer_call(id: Any, params: dict[str, Any]) -> None:
    if how == "grows":
        tools.append(f"more_{len(tools)}")
        send({"method": "notifications/tools/list_changed"})
    elif how == "garbage":
        write_noise()
    elif how == "floods":
        sys.stderr.write("x" * 79 + "\n" * 20_000)
        sys.stderr.write(("y" * 79 + "\n") * 20_000)
    elif how == "wrong":
        answer(id, {"content": "this is no list"})
        return
    elif how == "dies" and not Path(sys.argv[2]).exists():
        Path(sys.argv[2]).touch()
        os._exit(1)
    answer(id, {"content": [{"type": "text", "text": json.dumps(params["arguments"])}]})


if how == "stubborn":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    Path(sys.argv[2]).write_text(str(os.getpid()))
if how == "noted":
    with Path(sys.argv[2]).open("a") as pids:
        pids.write(f"{os.getpid()}\n")
if how == "garbage":
    write_noise()
if how == "silent":
    signal.pause()
for line in sys.stdin:
    message = json.loads(line)
    if "id" in message and "method" in message:
        answer_request(message["method"], message["id"], message.get("params", {}))
while how == "stubborn":
    signal.pause()
