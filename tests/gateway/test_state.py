"""Requests that build on turns which only their own provider holds: asked of another, they are refused, not shortened."""

from __future__ import annotations

import http.client
import json
from typing import Any
from urllib.parse import urlsplit

import pytest

from gateway.provider import Provider, Says

REFERENCES: dict[str, dict[str, Any]] = {
    "response": {"previous_response_id": "resp_1"},
    "conversation": {"conversation": "conv_1"},
    "item": {"input": [{"role": "user", "content": "Hi"}, {"type": "item_reference", "id": "msg_1"}]},
}


def ask(gateway: str, model: str, more: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    connection = http.client.HTTPConnection(urlsplit(gateway).netloc, timeout=30)
    body = {"model": model, "input": "And now?", **more}
    connection.request("POST", "/v1/responses", json.dumps(body), {"content-type": "application/json"})
    response = connection.getresponse()
    answer = json.loads(response.read())
    connection.close()
    return response.status, answer


@pytest.mark.parametrize("what", REFERENCES)
@pytest.mark.parametrize("model", ["m-chat", "m-anthropic", "m-gemini"])
def test_another_protocol_is_not_asked_without_the_earlier_turns(gateway: str, model: str, what: str) -> None:
    status, answer = ask(gateway, model, REFERENCES[what])
    assert status == 400
    assert answer["error"]["code"] == "previous_response_not_found"
    assert "send the whole conversation" in answer["error"]["message"]


@pytest.mark.parametrize("what", REFERENCES)
def test_their_own_protocol_is(gateway: str, provider: Provider, what: str) -> None:
    talk = provider.script(Says(text="Now this."))
    more = json.loads(json.dumps(REFERENCES[what]).replace("Hi", talk.mark))
    status, answer = ask(gateway, "m-responses", {"input": talk.mark, **more})
    assert status == 200, answer
    assert {key: talk.asked[0].body[key] for key in more} == more
