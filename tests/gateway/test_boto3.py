"""boto3, the SDK of AWS, pointed at the gateway: Claude through `invoke_model`."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from gateway.clients import CITY, KEY
from gateway.provider import RATE, Provider, ScriptedAnswer, Step
from waits import PATIENCE

MODEL = "m-anthropic"
DONE = "It is 15 °C in Paris."
PARIS = ("get_weather", {"city": "Paris"})
TOOL = {"name": "get_weather", "description": "The weather in a city, now.", "input_schema": CITY}


@pytest.fixture
def bedrock(gateway: str) -> Iterator[Any]:
    config = Config(retries={"max_attempts": 0}, read_timeout=PATIENCE)
    client = boto3.client(
        "bedrock-runtime",
        region_name="eu-west-1",
        endpoint_url=gateway,
        aws_access_key_id=KEY,
        aws_secret_access_key=KEY,
        config=config,
    )
    yield client
    client.close()


def make_body(mark: str) -> str:
    body = {
        "anthropic_version": "bedrock-2023-05-31",
        "max_tokens": 100,
        "tools": [TOOL],
        "messages": [{"role": "user", "content": f"How is the weather? {mark}"}],
    }
    return json.dumps(body)


def test_invoke_model(bedrock: Any, provider: Provider) -> None:
    talk = provider.script(ScriptedAnswer(calls=(PARIS,)))
    answer = bedrock.invoke_model(modelId=MODEL, body=make_body(talk.mark))
    body = json.loads(answer["body"].read())
    assert [(block["name"], block["input"]) for block in body["content"]] == [PARIS]
    assert body["stop_reason"] == "tool_use"
    assert talk.refused == []


def read_events(answer: Any) -> list[dict[str, Any]]:
    with contextlib.closing(answer["body"]) as events:
        return [json.loads(event["chunk"]["bytes"]) for event in events]


def test_invoke_model_with_response_stream(bedrock: Any, provider: Provider) -> None:
    talk = provider.script(ScriptedAnswer(DONE))
    answer = bedrock.invoke_model_with_response_stream(modelId=MODEL, body=make_body(talk.mark))
    events = read_events(answer)
    assert events[0]["type"] == "message_start"
    assert events[-1]["type"] == "message_stop"
    assert "".join(event["delta"].get("text", "") for event in events if "delta" in event) == DONE


@pytest.mark.parametrize("name", ["invoke_model", "invoke_model_with_response_stream"])
def test_an_error_is_an_exception_of_aws(bedrock: Any, provider: Provider, name: str) -> None:
    talk = provider.script(Step(fails="rate"))
    with pytest.raises(bedrock.exceptions.ThrottlingException) as caught:
        getattr(bedrock, name)(modelId=MODEL, body=make_body(talk.mark))
    assert RATE in caught.value.response["Error"]["Message"]
    assert caught.value.response["ResponseMetadata"]["HTTPStatusCode"] == 429


@pytest.mark.parametrize("breaks", ["error", "cut", "ended"])
def test_a_stream_that_breaks_off_is_never_a_success(bedrock: Any, provider: Provider, breaks: Any) -> None:
    talk = provider.script(Step(ScriptedAnswer("Half of what I say.", (PARIS,)), breaks=breaks))
    with pytest.raises(ClientError):
        read_events(bedrock.invoke_model_with_response_stream(modelId=MODEL, body=make_body(talk.mark)))


def test_an_unknown_model_is_named(bedrock: Any) -> None:
    with pytest.raises(ClientError, match=r"unknown model `amazon\.nova-9`"):
        bedrock.invoke_model(modelId="amazon.nova-9", body=make_body(""))


def test_the_body_of_another_model_is_refused(bedrock: Any) -> None:
    with pytest.raises(bedrock.exceptions.ValidationException, match="`anthropic_version` is missing"):
        bedrock.invoke_model(modelId=MODEL, body=json.dumps({"inputText": "hi"}))
