"""pydantic-ai's models under an agent with two tools, which it runs to the end by itself. Jobs come on stdin as JSON."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterable
from functools import cache
from typing import Any

from anthropic import AsyncAnthropic
from openai import AsyncOpenAI
from place import find_place
from pydantic_ai import Agent, ToolCallPart, UsageLimits
from pydantic_ai.messages import ModelResponse, TextPart
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.google import GoogleModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.google import GoogleProvider
from pydantic_ai.providers.openai import OpenAIProvider

import toolwire

KEY = "key-of-the-client"
SECONDS = 300
"""For an answer: all jobs run at once, also on a busy machine."""


def open_place(base: str) -> tuple[str, Any]:
    url, config = find_place(base)
    return url, toolwire.async_http_client(config) if config else None


@cache
def openai(base: str) -> OpenAIProvider:
    url, http = open_place(base)
    own = {"api_key": KEY, "max_retries": 0, "timeout": SECONDS}
    return OpenAIProvider(openai_client=AsyncOpenAI(base_url=f"{url}/v1", http_client=http, **own))


@cache
def anthropic(base: str) -> AnthropicProvider:
    url, http = open_place(base)
    client = AsyncAnthropic(base_url=url, api_key=KEY, max_retries=0, timeout=SECONDS, http_client=http)
    return AnthropicProvider(anthropic_client=client)


@cache
def google(base: str) -> GoogleProvider:
    url, http = open_place(base)
    return GoogleProvider(api_key=KEY, base_url=url, http_client=http)


MODELS = {
    "openai-chat": lambda job: OpenAIChatModel(job["model"], provider=openai(job["base"])),
    "openai-responses": lambda job: OpenAIResponsesModel(job["model"], provider=openai(job["base"])),
    "anthropic": lambda job: AnthropicModel(job["model"], provider=anthropic(job["base"])),
    "gemini": lambda job: GoogleModel(job["model"], provider=google(job["base"])),
}


def turn(response: ModelResponse) -> dict[str, Any]:
    calls = [part for part in response.parts if isinstance(part, ToolCallPart)]
    told = [{"id": call.tool_call_id, "name": call.tool_name, "arguments": call.args_as_dict()} for call in calls]
    text = "".join(part.content for part in response.parts if isinstance(part, TextPart))
    return {"text": text, "calls": told, "usage": [response.usage.input_tokens, response.usage.output_tokens]}


async def listen(context: Any, events: AsyncIterable[Any]) -> None:
    async for _ in events:
        pass


async def converse(job: dict[str, Any]) -> list[dict[str, Any]]:
    agent = Agent(MODELS[job["client"]](job), retries=0)

    @agent.tool_plain
    def get_weather(city: str) -> str:
        """The weather in a city, now."""
        return str(job["results"][city]["text"])

    @agent.tool_plain
    def get_time(city: str) -> str:
        """The time of day in a city."""
        return str(job["results"][city]["text"])

    limits = UsageLimits(request_limit=5)
    # With a listener the agent asks for streams.
    listener = listen if job["stream"] else None
    result = await agent.run(job["prompt"], usage_limits=limits, event_stream_handler=listener)
    seen = result.all_messages()
    return [turn(message) for message in seen if isinstance(message, ModelResponse)]


async def outcome(job: dict[str, Any]) -> dict[str, Any]:
    try:
        return {"id": job["id"], "turns": await converse(job)}
    except Exception as error:  # noqa: BLE001 - whatever the library raises is what the test looks at
        return {"id": job["id"], "error": {"name": type(error).__name__, "message": str(error)}}


async def main() -> None:
    json.dump(await asyncio.gather(*map(outcome, json.load(sys.stdin))), sys.stdout)


asyncio.run(main())
