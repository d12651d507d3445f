"""LangChain's three chat models with tools: bind, call, answer with ToolMessage, end. Jobs come on stdin as JSON."""

from __future__ import annotations

import json
import sys
from functools import cache
from typing import Any

from google import genai
from google.genai.types import HttpOptions
from langchain_anthropic import ChatAnthropic
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_google_genai import ChatGoogleGenerativeAI
from langchain_openai import ChatOpenAI
from place import find_place

import toolwire

KEY = "key-of-the-client"


@tool
def get_weather(city: str) -> str:
    """The weather in a city, now."""
    raise NotImplementedError  # the job says what it gives


@tool
def get_time(city: str) -> str:
    """The time of day in a city."""
    raise NotImplementedError


@cache
def make_model(client: str, base: str, model: str) -> Any:
    """The chat model with its tools; they are dear to make."""
    return MODELS[client](base, model).bind_tools([get_weather, get_time])


def chat(base: str, model: str, **more: Any) -> Any:
    url, config = find_place(base)
    inside = {"http_client": toolwire.http_client(config)} if config else {}
    own = {"base_url": f"{url}/v1", "api_key": KEY, "max_retries": 0, "stream_usage": True}
    return ChatOpenAI(model=model, **own, **inside, **more)


def responses(base: str, model: str) -> Any:
    return chat(base, model, use_responses_api=True)


def messages(base: str, model: str) -> Any:
    url, config = find_place(base)
    found = ChatAnthropic(model=model, base_url=url, api_key=KEY, max_retries=0, max_tokens=4000)
    if config:  # it takes no client, but its SDK does
        found.__dict__["_client"] = found._client.with_options(http_client=toolwire.http_client(config))
    return found


def generate(base: str, model: str) -> Any:
    url, config = find_place(base)
    found = ChatGoogleGenerativeAI(model=model, base_url=url, api_key=KEY, max_retries=0)
    if config:  # its google-genai takes httpx, too
        http = toolwire.http_client(config, library="httpx")
        found.client = genai.Client(api_key=KEY, http_options=HttpOptions(base_url=url, httpx_client=http))
    return found


MODELS = {"openai-chat": chat, "openai-responses": responses, "anthropic": messages, "gemini": generate}


def ask_model(model: Any, history: list[Any], stream: bool) -> AIMessage:
    if not stream:
        return model.invoke(history)
    whole = None
    for chunk in model.stream(history):
        whole = chunk if whole is None else whole + chunk
    assert whole is not None
    return whole


def converse(job: dict[str, Any]) -> list[dict[str, Any]]:
    model = make_model(job["client"], job["base"], job["model"])
    history: list[Any] = [HumanMessage(job["prompt"])]
    turns = []
    while not turns or turns[-1]["calls"]:
        answer = ask_model(model, history, job["stream"])
        history.append(answer)
        calls = [{"id": call["id"], "name": call["name"], "arguments": call["args"]} for call in answer.tool_calls]
        for call in calls:
            history.append(ToolMessage(job["results"][call["arguments"]["city"]]["text"], tool_call_id=call["id"]))
        used = answer.usage_metadata or {}
        usage = [used.get("input_tokens"), used.get("output_tokens")]
        turns.append({"text": answer.text, "calls": calls, "usage": usage})
    return turns


def outcome(job: dict[str, Any]) -> dict[str, Any]:
    try:
        return {"id": job["id"], "turns": converse(job)}
    except Exception as error:  # noqa: BLE001 - whatever the library raises is what the test looks at
        return {"id": job["id"], "error": {"name": type(error).__name__, "message": str(error)}}


json.dump([outcome(job) for job in json.load(sys.stdin)], sys.stdout)
