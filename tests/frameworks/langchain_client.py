"""LangChain's three chat models, each with what it is told."""

from __future__ import annotations

from typing import Any

from google import genai
from google.genai.types import HttpOptions
from langchain_anthropic import ChatAnthropic
from langchain_google_genai import ChatGoogleGenerativeAI
from langchain_jobs import KEY, run_jobs
from langchain_openai import ChatOpenAI
from place import find_place

import toolwire


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

run_jobs(MODELS)
