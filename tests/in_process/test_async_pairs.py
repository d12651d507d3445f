"""The async clients of the SDKs on every provider, streamed and whole, with Toolwire inside of the program."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anthropic
import httpx2
import openai
import pytest
from google import genai
from google.genai import errors as genai_errors

import toolwire
from gateway.clients import CITY, IN_PROCESS
from gateway.conftest import MODELS, provider_name
from gateway.provider import PROTOCOLS, Provider, ScriptedAnswer, Step

PARIS = ("get_weather", {"city": "Paris"})
DONE = "It is 15 °C in Paris."
LOOK = "Let me look."
Heard = tuple[str, list[tuple[str, Any]]]
"""The text and the calls of an answer."""
CHAT_TOOL: Any = {"type": "function", "function": {"name": "get_weather", "parameters": CITY}}
GEMINI_TOOL: Any = {"function_declarations": [{"name": "get_weather", "parameters_json_schema": CITY}]}


async def ask_chat(http: httpx2.AsyncClient, model: str, stream: bool, prompt: str) -> Heard:
    sdk = openai.AsyncOpenAI(api_key="any", max_retries=0, http_client=http)
    asked: Any = {"model": model, "messages": [{"role": "user", "content": prompt}], "tools": [CHAT_TOOL]}
    if not stream:
        message = (await sdk.chat.completions.create(**asked)).choices[0].message
    else:
        async with sdk.chat.completions.stream(**asked) as events:
            message = (await events.get_final_completion()).choices[0].message
    calls: Any = message.tool_calls or []
    return message.content or "", [(call.function.name, json.loads(call.function.arguments)) for call in calls]


async def ask_responses(http: httpx2.AsyncClient, model: str, stream: bool, prompt: str) -> Heard:
    sdk = openai.AsyncOpenAI(api_key="any", max_retries=0, http_client=http)
    tool = {"type": "function", "name": "get_weather", "parameters": CITY, "strict": False}
    asked: Any = {"model": model, "input": prompt, "tools": [tool], "store": False}
    if not stream:
        response = await sdk.responses.create(**asked)
    else:
        async with sdk.responses.stream(**asked) as events:
            response = await events.get_final_response()
    calls = [item for item in response.output if item.type == "function_call"]
    return response.output_text, [(call.name, json.loads(call.arguments)) for call in calls]


async def ask_messages(http: httpx2.AsyncClient, model: str, stream: bool, prompt: str) -> Heard:
    sdk = anthropic.AsyncAnthropic(api_key="any", max_retries=0, http_client=http)
    tool = {"name": "get_weather", "input_schema": CITY}
    asked: Any = {"model": model, "max_tokens": 99, "tools": [tool], "messages": [{"role": "user", "content": prompt}]}
    if not stream:
        message: Any = await sdk.messages.create(**asked)
    else:
        async with sdk.messages.stream(**asked) as events:
            message = await events.get_final_message()
    text = "".join(part.text for part in message.content if part.type == "text")
    return text, [(part.name, part.input) for part in message.content if part.type == "tool_use"]


async def ask_gemini(http: httpx2.AsyncClient, model: str, stream: bool, prompt: str) -> Heard:
    options: Any = {"base_url": IN_PROCESS, "httpx_async_client": http}
    models = genai.Client(api_key="any", http_options=options).aio.models
    asked: Any = {"model": model, "contents": prompt, "config": {"tools": [GEMINI_TOOL]}}
    chunks = (
        [chunk async for chunk in await models.generate_content_stream(**asked)]
        if stream
        else [await models.generate_content(**asked)]
    )
    parts = [part for chunk in chunks for part in (chunk.parts or [])]
    calls = [part.function_call for part in parts if part.function_call is not None]
    return "".join(part.text or "" for part in parts), [(str(call.name), call.args) for call in calls]


SDKS: dict[str, Callable[[httpx2.AsyncClient, str, bool, str], Awaitable[Heard]]] = {
    "openai-chat": ask_chat,
    "openai-responses": ask_responses,
    "anthropic": ask_messages,
    "gemini": ask_gemini,
}
ERRORS = (openai.APIError, anthropic.APIError, genai_errors.APIError, httpx2.HTTPError, RuntimeError)
"""RuntimeError is what the OpenAI SDK raises without `response.completed`."""

pytestmark = [
    pytest.mark.parametrize("sdk", SDKS),
    pytest.mark.parametrize("target", PROTOCOLS),
    pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"]),
    pytest.mark.filterwarnings("ignore:Pydantic serializer warnings:UserWarning"),
]


async def ask(config: Path, sdk: str, target: str, stream: bool, prompt: str) -> Heard:
    async with toolwire.async_http_client(config) as http:
        return await SDKS[sdk](http, f"{provider_name(target)}/{MODELS[target]}", stream, prompt)


def test_text_and_calls(provider: Provider, config: Path, sdk: str, target: str, stream: bool) -> None:
    talk = provider.script(ScriptedAnswer(LOOK, (PARIS,)))
    assert asyncio.run(ask(config, sdk, target, stream, f"How is it? {talk.mark}")) == (LOOK, [PARIS])
    assert [asked.protocol for asked in talk.asked] == [target]


@pytest.mark.parametrize("breaks", ["cut", "ended"])
def test_a_broken_answer_is_an_error(
    provider: Provider, config: Path, sdk: str, target: str, stream: bool, breaks: Any
) -> None:
    how = breaks if stream else "cut"  # only a stream can end as if it were whole
    talk = provider.script(Step(ScriptedAnswer("One two three four five."), breaks=how))
    with pytest.raises(ERRORS):
        asyncio.run(ask(config, sdk, target, stream, f"Go {talk.mark}"))
    assert len(talk.asked) == 1
