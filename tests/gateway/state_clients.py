"""Gateways with a store of their own, and clients that use stored responses and conversations."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import openai
import pytest

from gateway.clients import CITY, KEY, TOOLS
from gateway.conftest import MODELS, configuration, provider_name, serve_config
from gateway.provider import Provider, Received, Script
from gateway.raw_exchange import RawAnswer, ask
from toolwire.gateway.features.responses import background
from toolwire_conformance.peers.peer import encode_json
from waits import PATIENCE

MODEL = {protocol: f"m-{provider_name(protocol)}" for protocol in MODELS}
REASONING_MODELS = {**MODEL, "openai-chat": "chat/deepseek-reasoner"}
"""Models that get their reasoning back."""
OTHER_PROTOCOLS = ("openai-chat", "anthropic", "gemini")
"""Protocols of providers other than the Responses clients' own."""
SIGNING_PROTOCOLS = ("openai-responses", "anthropic", "gemini")
"""Protocols whose turns have signatures that a Chat client cannot carry."""
TOOL_RESULTS = {"Paris": "15 °C", "Oslo": "3 °C", "Rome": "noon"}
"""Results of the Chat client's tools, by city."""
FUNCTIONS = [
    {"type": "function", "name": name, "description": about, "parameters": CITY, "strict": False}
    for name, about in TOOLS.items()
]


BACKGROUND_LEASE = f"background_lease = {PATIENCE}"
"""In `[store]`: a gateway that is slow is not taken for one that is gone."""


class ResponsesClient:
    """A client of the Responses API: the SDK where it has the call, else plain HTTP."""

    def __init__(self, base: str, key: str = KEY) -> None:
        self.sdk = openai.OpenAI(api_key=key, base_url=f"{base}/v1", max_retries=0, timeout=PATIENCE)
        self._port = urlsplit(base).port or 0
        self._headers = {"authorization": f"Bearer {key}"}

    def turn(self, model: str, input: Any, stream: bool = False, **more: Any) -> Any:
        """One response. The SDK assembles a stream, and raises if its events do not match."""
        request: dict[str, Any] = {"model": model, "input": input, **more}
        if not stream:
            return self.sdk.responses.create(**request)
        with self.sdk.responses.stream(**request) as events:
            return events.get_final_response()

    def raw(self, method: str, path: str, body: Any = None, root: str = "/v1") -> RawAnswer:
        data = body if isinstance(body, bytes) else b"" if body is None else encode_json(body).encode()
        return ask(self._port, method, f"{root}{path}", data, self._headers)

    def close(self) -> None:
        self.sdk.close()


Spell = Callable[[str], str]


class ChatClient:
    """A Chat client that sends back messages and results, but no fields of the gateway's."""

    def __init__(self, model: str, talk: Script, stream: bool = False, spell: Spell = str) -> None:
        self.model, self.stream, self.spell = model, stream, spell
        self.messages: list[Any] = [{"role": "user", "content": f"How is the weather? {talk.mark}"}]

    def turn(self, client: ResponsesClient, model: str = "") -> Any:
        """One answer; the results of its calls are added at once."""
        request: dict[str, Any] = {
            "model": model or self.model,
            "messages": self.messages,
            "reasoning_effort": "medium",
        }
        request["tools"] = [
            {"type": "function", "function": {"name": name, "description": about, "parameters": CITY}}
            for name, about in TOOLS.items()
        ]
        if self.stream:
            with client.sdk.chat.completions.stream(**request) as events:
                message = events.get_final_completion().choices[0].message
        else:
            message = client.sdk.chat.completions.create(**request).choices[0].message
        self.messages += self._write_turns(message)
        return message

    def _write_turns(self, message: Any) -> Iterator[Any]:
        calls = [
            {"id": call.id, "type": "function", "function": self._function(call.function)}
            for call in message.tool_calls or ()
        ]
        yield {"role": "assistant", "content": message.content, **({"tool_calls": calls} if calls else {})}
        for call in message.tool_calls or ():
            result = TOOL_RESULTS[json.loads(call.function.arguments)["city"]]
            yield {"role": "tool", "tool_call_id": call.id, "content": result}

    def _function(self, function: Any) -> Any:
        return {"name": function.name, "arguments": self.spell(function.arguments)}


@contextmanager
def open_client(base: str, key: str = KEY) -> Iterator[ResponsesClient]:
    with closing(ResponsesClient(base, key)) as client:
        yield client


@contextmanager
def gateway_with_store(
    folder: Path, provider: Provider, store: str = "", keys: tuple[str, ...] = (KEY,), server: str = ""
) -> Iterator[str]:
    """A gateway with a store of its own and these client keys; `store` and `server` are lines of these sections. Without
    keys the gateway asks the provider for ids that it does not know."""
    file = folder / "toolwire.toml"
    lines = [configuration(provider.url).replace("[server]\n", f"[server]\n{server}\n", 1)]
    lines.append("[server.timeouts]\nshutdown = 2")
    lines += ["[store]", store or f'url = "{store_url(folder)}"\n{BACKGROUND_LEASE}']
    for key in keys:
        digest = hashlib.sha256(key.encode()).hexdigest()
        lines.append(f'[[server.keys]]\nname = "{key}"\nsha256 = "{digest}"')
    file.write_text("\n".join(lines) + "\n")
    with pytest.MonkeyPatch.context() as patch, serve_config(file) as base:
        patch.setattr(background, "RENEWALS_PER_LEASE", PATIENCE)  # every second
        yield base


def store_url(folder: Path) -> str:
    return f"sqlite:///{(folder / 'store.db').as_posix().lstrip('/')}"


def without_reasoning(items: list[Any]) -> list[Any]:
    """The items without reasoning, which some providers add only for its signature."""
    return [item for item in items if (item["type"] if isinstance(item, dict) else item.type) != "reasoning"]


def function_calls(response: Any) -> list[Any]:
    return [item for item in response.output if item.type == "function_call"]


def function_outputs(response: Any, *texts: str) -> list[dict[str, Any]]:
    """The results of the calls of a response."""
    pairs = zip(function_calls(response), texts, strict=True)
    return [{"type": "function_call_output", "call_id": call.call_id, "output": text} for call, text in pairs]


def assert_received(request: Received, *texts: str) -> None:
    """Check that the provider got these texts, each once, in this order."""
    places = [request.text.find(text) for text in texts]
    assert -1 not in places, (texts[places.index(-1)], request.text)
    assert places == sorted(places), request.text
    assert [request.text.count(text) for text in texts] == [1] * len(texts), request.text


def item_texts(items: list[Any]) -> list[str]:
    """The text of each item, also of calls and results; items of the SDK or plain JSON."""
    return [_item_text(item if isinstance(item, dict) else item.model_dump()) for item in items]


def _item_text(item: dict[str, Any]) -> str:
    content = item.get("content")
    if isinstance(content, str):
        return content
    if content:
        return "".join(part["text"] for part in content)
    return str(item.get("arguments") or item.get("output") or item.get("id"))


def read_error(got: RawAnswer) -> dict[str, Any]:
    """The error of a reply, which must have all keys of OpenAI's errors."""
    error: dict[str, Any] = json.loads(got.data)["error"]
    assert {"message", "type", "param", "code"} <= error.keys(), error
    return error
