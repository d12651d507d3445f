"""Jobs for LangChain's chat models with tools: bind, call, answer with ToolMessage, end. They come on stdin as JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool

KEY = "key-of-the-client"


@tool
def get_weather(city: str) -> str:
    """The weather in a city, now."""
    raise NotImplementedError  # the job says what it gives


@tool
def get_time(city: str) -> str:
    """The time of day in a city."""
    raise NotImplementedError


def ask_model(model: Any, history: list[Any], stream: bool) -> AIMessage:
    if not stream:
        return model.invoke(history)
    whole = None
    for chunk in model.stream(history):
        whole = chunk if whole is None else whole + chunk
    assert whole is not None
    return whole


def converse(model: Any, job: dict[str, Any]) -> list[dict[str, Any]]:
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


def run_jobs(models: Mapping[str, Callable[[str, str], Any]]) -> None:
    """Print the outcome of every job. The models are made with the address and the model's name."""

    @cache
    def make_model(client: str, base: str, model: str) -> Any:
        """The chat model with its tools; they are dear to make."""
        return models[client](base, model).bind_tools([get_weather, get_time])

    def run_job(job: dict[str, Any]) -> dict[str, Any]:
        try:
            return {"id": job["id"], "turns": converse(make_model(job["client"], job["base"], job["model"]), job)}
        except Exception as error:  # noqa: BLE001 - whatever the library raises is what the test looks at
            return {"id": job["id"], "error": {"name": type(error).__name__, "message": str(error)}}

    json.dump([run_job(job) for job in json.load(sys.stdin)], sys.stdout)
