"""LangChain's chat models for Azure, Amazon Bedrock and Google Cloud, pointed at the gateway."""

from __future__ import annotations

import os
from typing import Any

from google.oauth2.credentials import Credentials
from langchain_aws import ChatBedrock, ChatBedrockConverse
from langchain_aws.chat_models import ChatAnthropicBedrock, ChatAnthropicMantle, ChatOpenAIMantle
from langchain_google_genai import ChatGoogleGenerativeAI
from langchain_google_vertexai.model_garden import ChatAnthropicVertex
from langchain_jobs import KEY, run_jobs
from langchain_openai import AzureChatOpenAI

REGION = "eu-west-1"
SIGNED = {"aws_access_key_id": KEY, "aws_secret_access_key": KEY, "region_name": REGION}


def azure(base: str, model: str, **more: Any) -> Any:
    own = {"azure_endpoint": base, "api_key": KEY, "api_version": "2025-04-01-preview", "max_retries": 0}
    return AzureChatOpenAI(azure_deployment=model, **own, **more)


def azure_responses(base: str, model: str) -> Any:
    return azure(base, model, use_responses_api=True)


def converse(base: str, model: str) -> Any:
    return ChatBedrockConverse(model=model, base_url=base, max_retries=1, **SIGNED)


def invoke(base: str, model: str) -> Any:
    return ChatBedrock(model=model, provider="anthropic", endpoint_url=base, **SIGNED)


def bedrock_messages(base: str, model: str) -> Any:
    os.environ["ANTHROPIC_BEDROCK_BASE_URL"] = base  # it has no parameter for it
    return ChatAnthropicBedrock(model=model, max_retries=0, max_tokens=4000, **SIGNED)


def mantle_messages(base: str, model: str) -> Any:
    return ChatAnthropicMantle(model=model, base_url=f"{base}/anthropic", max_retries=0, max_tokens=4000, **SIGNED)


def mantle_chat(base: str, model: str) -> Any:
    return ChatOpenAIMantle(model=model, base_url=f"{base}/openai/v1", api_key=KEY, max_retries=0, region_name=REGION)


def vertex_messages(base: str, model: str) -> Any:
    own = {"api_endpoint": f"{base}/v1", "project": "our-project", "location": "global", "access_token": KEY}
    return ChatAnthropicVertex(model_name=model, max_retries=0, max_output_tokens=4000, **own)


def vertex_gemini(base: str, model: str) -> Any:
    own = {"vertexai": True, "project": "our-project", "location": "global", "credentials": Credentials(token=KEY)}
    return ChatGoogleGenerativeAI(model=model, base_url=base, max_retries=0, **own)


MODELS = {
    "AzureChatOpenAI": azure,
    "AzureChatOpenAI responses": azure_responses,
    "ChatBedrockConverse": converse,
    "ChatBedrock": invoke,
    "ChatAnthropicBedrock": bedrock_messages,
    "ChatAnthropicMantle": mantle_messages,
    "ChatOpenAIMantle": mantle_chat,
    "ChatAnthropicVertex": vertex_messages,
    "ChatGoogleGenerativeAI in Vertex mode": vertex_gemini,
}

run_jobs(MODELS)
