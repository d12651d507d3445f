"""LangChain's standard tests of a chat model, with Toolwire inside of the program: pytest runs this file in the environment
of the frameworks."""

from __future__ import annotations

from typing import Any

from langchain_openai import ChatOpenAI
from langchain_tests.integration_tests import ChatModelIntegrationTests

import toolwire

SHARED: dict[str, Any] = {
    "api_key": "any",
    "stream_usage": True,
    "http_client": toolwire.http_client({}),
    "http_async_client": toolwire.async_http_client({}),
}


class TestChat(ChatModelIntegrationTests):
    @property
    def chat_model_class(self) -> type[ChatOpenAI]:
        return ChatOpenAI

    @property
    def chat_model_params(self) -> dict[str, Any]:
        return {**SHARED, "model": "demo-anthropic"}


class TestResponses(TestChat):
    @property
    def chat_model_params(self) -> dict[str, Any]:
        return {**SHARED, "model": "demo-gemini", "use_responses_api": True}
