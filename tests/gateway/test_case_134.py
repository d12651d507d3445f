"""Case 134: more tools than the provider takes. Which of them stay is for the operator to say."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import urlsplit

from gateway.conftest import configuration, serve_config
from gateway.provider import Provider, ScriptedAnswer
from gateway.raw_exchange import ask

CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS = [{"name": f"tool_{number}", "description": "Does something.", "input_schema": CITY} for number in range(129)]
RULE = '[[policy]]\nprovider = "chat"\nmax_tools = 128\nkeep = ["tool_128", "tool_1*"]\n'


def test_the_operators_choice_of_tools_goes_out_and_the_rest_is_named(provider: Provider, tmp_path: Path) -> None:
    file = tmp_path / "toolwire.toml"
    file.write_text(configuration(provider.url) + RULE)
    talk = provider.script(ScriptedAnswer("Done."))
    body = {"model": "m-chat", "max_tokens": 99, "messages": [{"role": "user", "content": talk.mark}], "tools": TOOLS}
    with serve_config(file) as url:
        got = ask(urlsplit(url).port or 0, "POST", "/v1/messages", json.dumps(body).encode())
    assert got.status == 200
    sent = [tool["function"]["name"] for tool in talk.asked[0].body["tools"]]
    assert len(sent) == 128
    assert "tool_128" in sent
    assert "policy-" in got.headers["x-toolwire-losses"]


def test_without_a_rule_the_first_go_out_and_the_rest_is_reported(gateway: str, provider: Provider) -> None:
    talk = provider.script(ScriptedAnswer("Done."))
    body = {"model": "m-chat", "max_tokens": 99, "messages": [{"role": "user", "content": talk.mark}], "tools": TOOLS}
    got = ask(urlsplit(gateway).port or 0, "POST", "/v1/messages", json.dumps(body).encode())
    assert (got.status, got.headers["x-toolwire-losses"]) == (200, "1; codes=tool-dropped")
    sent = [tool["function"]["name"] for tool in talk.asked[0].body["tools"]]
    assert sent == [tool["name"] for tool in TOOLS[:128]]
