"""Requests that are small for their sender and dear for a gateway that is not careful."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable

from bench.chaos.clients import post

CHAT, MESSAGES = "/v1/chat/completions", "/v1/messages"


def chat(**fields: object) -> dict[str, object]:
    return {"model": "m-openai-chat", "messages": [{"role": "user", "content": "Go. [[none 0]]"}], **fields}


def nested_gzip() -> bytes:
    body = json.dumps(chat()).encode()
    packed = b"".join(gzip.compress(b"") for _ in range(200_000)) + gzip.compress(body)
    return post(CHAT, packed, more="content-encoding: gzip\r\n")


def layered_gzip() -> bytes:
    body = json.dumps(chat()).encode()
    for _ in range(10):
        body = gzip.compress(body)
    return post(CHAT, body, more=f"content-encoding: {', '.join(['gzip'] * 10)}\r\n")


def gzip_bomb() -> bytes:
    return post(CHAT, gzip.compress(b" " * 500_000_000, 1), more="content-encoding: gzip\r\n")


def many_turns() -> bytes:
    turns = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}] * 500_000
    return post(CHAT, json.dumps(chat(model="m-anthropic", messages=turns), separators=(",", ":")).encode())


def long_model() -> bytes:
    return post(CHAT, json.dumps(chat(model="m" * 16_000_000)).encode())


def catastrophic_pattern() -> bytes:
    schema = {
        "type": "object",
        "properties": {"text": {"type": "string", "pattern": "^(a|a)*b$"}},
        "required": ["text"],
    }
    tools = [{"type": "function", "function": {"name": "write", "parameters": schema}}]
    prompt = [{"role": "user", "content": "write " + "a" * 60}]
    return post(CHAT, json.dumps(chat(model="loopback", messages=prompt, tools=tools)).encode())


def wide_schema() -> bytes:
    properties = {f"p{at}": {"anyOf": [{"type": "string"}, {"type": "null"}], "minLength": 1} for at in range(5000)}
    tools = [
        {"type": "function", "function": {"name": "write", "parameters": {"type": "object", "properties": properties}}}
    ]
    return post(CHAT, json.dumps(chat(model="m-anthropic", tools=tools)).encode())


def deep_json() -> bytes:
    return post(CHAT, b'{"model":"m-openai-chat","messages":' + b"[" * 5_000_000)


def large_line() -> bytes:
    return post(
        CHAT,
        json.dumps(
            chat(model="m-anthropic", stream=True, messages=[{"role": "user", "content": "[[huge 0]]"}])
        ).encode(),
    )


ATTACKS: dict[str, Callable[[], bytes]] = {
    "200,000 gzip members": nested_gzip,
    "ten layers of gzip": layered_gzip,
    "500 MB behind 2 MB of gzip": gzip_bomb,
    "a million tiny turns": many_turns,
    "a model name of 16 MB": long_model,
    "a pattern that backtracks": catastrophic_pattern,
    "a schema of 5,000 properties": wide_schema,
    "five million open brackets": deep_json,
    "a provider's SSE line of 80 MB": large_line,
}
