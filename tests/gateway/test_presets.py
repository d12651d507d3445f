"""Presets in the file, over sockets: three agents, a model behind another protocol that knows another agent's tools."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from gateway.conftest import serve_config
from toolwire.core.events import fold
from toolwire.core.ir import Call, Request, Text, Tool, Turn
from toolwire.core.json_values import decode, expect_object
from toolwire.core.losses import Ledger
from toolwire.protocols import find_codec

FILE = """
[server]
log_format = "none"
[store]
url = "none"
[providers.model]
protocols = ["openai-chat"]
base_url = "{url}"
[models."*"]
provider = "model"
model = "loopback"
[[policy]]
preset = "claude-tools-for-codex"
agent = "codex"
[[policy]]
preset = "gemini-tools-for-claude"
agent = "claude"
[[policy]]
preset = "codex-tools-for-gemini"
agent = "gemini"
"""


class Agent(NamedTuple):
    protocol: str
    product: str
    path: str
    streams: str
    own: str
    parameters: dict[str, str]
    said: str
    """What makes the model call the tool: it knows it under the other agent's names only."""
    got: dict[str, Any]


AGENTS = (
    Agent("openai-responses", "codex_exec/0.166.0", "/v1/responses", "/v1/responses", "exec_command", {"cmd": "string"}, 'Use the tool Bash with command=ls', {"cmd": "ls"}),
    Agent("anthropic", "claude-cli/2.1.325 (external, sdk-cli)", "/v1/messages", "/v1/messages", "Read", {"file_path": "string", "offset": "integer"}, 'Use the tool read_file with file_path="/a/b" start_line=7', {"file_path": "/a/b", "offset": 7}),
    Agent("gemini", "GeminiCLI-tui/0.61.0/m (linux; x64)", "/v1beta/models/m:generateContent", "/v1beta/models/m:streamGenerateContent?alt=sse", "run_shell_command", {"command": "string"}, 'Use the tool exec_command with cmd=ls', {"command": "ls"}),
)  # fmt: skip


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("presets")
    (folder / "model.toml").write_text('[server]\nlog_format = "none"\n[store]\nurl = "none"\n')
    with serve_config(folder / "model.toml") as model:
        (folder / "toolwire.toml").write_text(FILE.format(url=model))
        with serve_config(folder / "toolwire.toml") as url:
            yield url


def request_calls(gateway: str, agent: Agent, product: str, stream: bool) -> list[Call]:
    """The calls that the client gets for its words."""
    place = find_codec(agent.protocol)
    properties = {name: {"type": kind} for name, kind in agent.parameters.items()}
    schema = {"type": "object", "properties": properties, "required": [*properties][:1]}
    tool = Tool(agent.own, "Does something.", schema)
    request = Request(model="m", stream=stream, tools=(tool,), turns=(Turn("user", (Text(agent.said),)),))
    body = json.dumps(place.write_request(request, Ledger("", ""))).encode()
    headers = {"content-type": "application/json", "user-agent": product}
    path = agent.streams if stream else agent.path
    with urllib.request.urlopen(urllib.request.Request(gateway + path, body, headers)) as answer:
        data = answer.read()
    if stream:
        reader = place.make_stream_reader()
        [choice] = fold([*reader.feed(data), *reader.close()]).choices
    else:
        [choice] = place.read_response(expect_object(decode(data), None)).choices
    return [part for part in choice.parts if isinstance(part, Call)]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("agent", AGENTS, ids=lambda agent: agent.protocol)
def test_an_agent_runs_its_own_tool_for_a_model_that_knows_another(gateway: str, agent: Agent, stream: bool) -> None:
    [call] = request_calls(gateway, agent, agent.product, stream)
    assert (call.name, decode(call.arguments)) == (agent.own, agent.got)


@pytest.mark.parametrize("agent", AGENTS, ids=lambda agent: agent.protocol)
def test_other_clients_are_left_alone(gateway: str, agent: Agent) -> None:
    """The model knows the tool by its own name, and so cannot follow these words."""
    for call in request_calls(gateway, agent, "curl/8", stream=False):
        assert decode(call.arguments) != agent.got
