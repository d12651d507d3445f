"""Gateways that keep things in a store of their own, and clients that come back for what they left there."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import openai

from gateway.clients import CITY, KEY, PATIENCE, TOOLS
from gateway.conftest import MODELS, configuration, named, served
from gateway.provider import Provider, Received, Talk
from gateway.wire import Got, ask
from toolwire.conformance.peers.peer import encode_json

MODEL = {protocol: f"m-{named(protocol)}" for protocol in MODELS}
THINKS = {**MODEL, "openai-chat": "chat/deepseek-reasoner"}
"""Models whose thinking goes back to them."""
FOREIGN = ("openai-chat", "anthropic", "gemini")
"""Providers of another protocol than the clients here."""
SEALING = ("openai-responses", "anthropic", "gemini")
"""Providers whose turns bear what a Chat client has no place for."""
GIVEN = {"Paris": "15 °C", "Oslo": "3 °C", "Rome": "noon"}
"""What the tools of a Chat client give, by the city that they are asked for."""
ENOUGH = 20_000
"""How often a client asks again at most, so that a test that waits for nothing fails instead."""
FUNCTIONS = [
    {"type": "function", "name": name, "description": about, "parameters": CITY, "strict": False}
    for name, about in TOOLS.items()
]


class Client:
    """A client of the Responses family: the SDK where it has the call, plain HTTP elsewhere."""

    def __init__(self, base: str, key: str = KEY) -> None:
        self.sdk = openai.OpenAI(api_key=key, base_url=f"{base}/v1", max_retries=0, timeout=PATIENCE)
        self._port = urlsplit(base).port or 0
        self._headers = {"authorization": f"Bearer {key}"}

    def turn(self, model: str, input: Any, stream: bool = False, **more: Any) -> Any:
        """One answer; the SDK puts a stream together, and complains when its parts do not fit."""
        asked: dict[str, Any] = {"model": model, "input": input, **more}
        if not stream:
            return self.sdk.responses.create(**asked)
        with self.sdk.responses.stream(**asked) as events:
            return events.get_final_response()

    def raw(self, method: str, path: str, body: Any = None, root: str = "/v1") -> Got:
        data = body if isinstance(body, bytes) else b"" if body is None else encode_json(body).encode()
        return ask(self._port, method, f"{root}{path}", data, self._headers)

    def close(self) -> None:
        self.sdk.close()


Spell = Callable[[str], str]


class Plain:
    """A Chat client that sends back what every Chat client does, and nothing else."""

    def __init__(self, model: str, talk: Talk, stream: bool = False, spell: Spell = str) -> None:
        self.model, self.stream, self.spell = model, stream, spell
        self.messages: list[Any] = [{"role": "user", "content": f"How is the weather? {talk.mark}"}]

    def turn(self, client: Client, model: str = "") -> Any:
        """One answer; its calls are answered at once."""
        asked: dict[str, Any] = {"model": model or self.model, "messages": self.messages, "reasoning_effort": "medium"}
        asked["tools"] = [
            {"type": "function", "function": {"name": name, "description": about, "parameters": CITY}}
            for name, about in TOOLS.items()
        ]
        if self.stream:
            with client.sdk.chat.completions.stream(**asked) as events:
                message = events.get_final_completion().choices[0].message
        else:
            message = client.sdk.chat.completions.create(**asked).choices[0].message
        self.messages += self._replayed(message)
        return message

    def _replayed(self, message: Any) -> Iterator[Any]:
        calls = [
            {"id": call.id, "type": "function", "function": self._function(call.function)}
            for call in message.tool_calls or ()
        ]
        yield {"role": "assistant", "content": message.content, **({"tool_calls": calls} if calls else {})}
        for call in message.tool_calls or ():
            given = GIVEN[json.loads(call.function.arguments)["city"]]
            yield {"role": "tool", "tool_call_id": call.id, "content": given}

    def _function(self, function: Any) -> Any:
        return {"name": function.name, "arguments": self.spell(function.arguments)}


@contextmanager
def client_of(base: str, key: str = KEY) -> Iterator[Client]:
    made = Client(base, key)
    yield made
    made.close()


@contextmanager
def keeping(
    folder: Path, provider: Provider, store: str = "", keys: tuple[str, ...] = (KEY,), server: str = ""
) -> Iterator[str]:
    """A gateway with a store of its own (`store` and `server` are lines of these sections), and these client keys;
    without any, what it does not know might be known to a provider of the same protocol."""
    file = folder / "toolwire.toml"
    lines = [configuration(provider.url).replace("[server]\n", f"[server]\n{server}\n", 1)]
    lines.append("[server.timeouts]\nshutdown = 2")
    lines += ["[store]", store or f'url = "{file_in(folder)}"\nbackground_lease = 3']
    for key in keys:
        digest = hashlib.sha256(key.encode()).hexdigest()
        lines.append(f'[[server.keys]]\nname = "{key}"\nsha256 = "{digest}"')
    file.write_text("\n".join(lines) + "\n")
    with served(file) as base:
        yield base


def file_in(folder: Path) -> str:
    return f"sqlite:///{(folder / 'store.db').as_posix().lstrip('/')}"


def spoken(items: list[Any]) -> list[Any]:
    """Without reasoning, which some providers put beside everything, if only for a seal."""
    return [item for item in items if (item["type"] if isinstance(item, dict) else item.type) != "reasoning"]


def calls_of(response: Any) -> list[Any]:
    return [item for item in response.output if item.type == "function_call"]


def results(response: Any, *texts: str) -> list[dict[str, Any]]:
    """What the tools gave for the calls of an answer."""
    pairs = zip(calls_of(response), texts, strict=True)
    return [{"type": "function_call_output", "call_id": call.call_id, "output": text} for call, text in pairs]


def heard(asked: Received, *texts: str) -> None:
    """The provider was told these texts, each once, in this order."""
    places = [asked.text.find(text) for text in texts]
    assert -1 not in places, (texts[places.index(-1)], asked.text)
    assert places == sorted(places), asked.text
    assert [asked.text.count(text) for text in texts] == [1] * len(texts), asked.text


def texts_of(items: list[Any]) -> list[str]:
    """What each item says, calls and results too; items are of the SDK or plain JSON."""
    return [_said(item if isinstance(item, dict) else item.model_dump()) for item in items]


def _said(item: dict[str, Any]) -> str:
    content = item.get("content")
    if isinstance(content, str):
        return content
    if content:
        return "".join(part["text"] for part in content)
    return str(item.get("arguments") or item.get("output") or item.get("id"))


def error_in(got: Got) -> dict[str, Any]:
    """The error of an answer, which must have all keys that OpenAI's have."""
    error: dict[str, Any] = json.loads(got.data)["error"]
    assert {"message", "type", "param", "code"} <= error.keys(), error
    return error
