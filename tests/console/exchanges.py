"""Exchanges as agents make them, for the views to show: conversations with parallel calls, a renamed tool, losses, a broken
prefix, failures. The provider plays them; a mark in the instructions says which, so that names of models stay as they are.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gateway.provider import ScriptedAnswer
from gateway.raw_exchange import STREAM_HEAD, RawAnswer, ScriptedConnection, Served, answer, ask, body_of, refusal
from toolwire_conformance.peers import PEERS
from toolwire_conformance.peers.peer import encode_json

PROVIDERS = {
    "openai": "openai-chat",
    "azure": "openai-responses",
    "deepseek": "openai-chat",
    "claude": "anthropic",
    "google": "gemini",
}
PATHS = {
    "openai-chat": "/v1/chat/completions",
    "openai-responses": "/v1/responses",
    "anthropic": "/v1/messages",
    "gemini": "/v1beta/models/{model}:streamGenerateContent?alt=sse",
}
AGENTS = {
    "claude": "claude-cli/2.1.325 (external, cli)",
    "codex": "codex_cli_rs/0.166.0 (Debian 12; x86_64)",
    "opencode": "opencode/1.18.33",
    "gemini": "GeminiCLI/0.61.0/gemini-3.8-pro (linux; x64)",
    "qwen": "QwenCode/0.24.4 (linux; x64)",
}
NO_PAUSE: Callable[[], object] = lambda: None  # noqa: E731

Json = dict[str, Any]


PRICES = {"openai/gpt-5.5": (1.25, 0.125, 10.0), "claude/claude-opus-5-5": (5.0, 0.5, 25.0)}
"""Dollars for a million tokens: input, what is read from the cache, output. Those of the other models are not known."""


def provider_settings(url: str) -> str:
    """The providers of these exchanges, all at one address, and what their models cost."""
    providers = [
        f'[providers.{name}]\nprotocols = ["{protocol}"]\nbase_url = "{url}"\napi_key = "key-of-{name}-0123456789"\n'
        for name, protocol in PROVIDERS.items()
    ]
    prices = [
        f'[models."{model}".facts.prices]\ninput = {sent}\ncache_read = {read}\noutput = {made}\n'
        for model, (sent, read, made) in PRICES.items()
    ]
    return "".join((*providers, *prices))


SILENCE = ScriptedAnswer()


@dataclass(frozen=True)
class Reply:
    """What the provider answers."""

    says: ScriptedAnswer = SILENCE
    tokens: tuple[int, int, int] = (1200, 0, 40)
    """Input, how many of it came from the cache, and output."""
    fails: tuple[int, str, str] = (0, "", "")
    """A status, a kind and a message instead."""


def write_usage(protocol: str, tokens: tuple[int, int, int]) -> Json:
    asked, cached, said = tokens
    if protocol == "openai-chat":
        return {"usage": {"prompt_tokens": asked, "completion_tokens": said, "total_tokens": asked + said,
                          "prompt_tokens_details": {"cached_tokens": cached}}}  # fmt: skip
    if protocol == "openai-responses":
        return {"usage": {"input_tokens": asked, "input_tokens_details": {"cached_tokens": cached}, "output_tokens": said,
                          "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": asked + said}}  # fmt: skip
    if protocol == "anthropic":
        return {"usage": {"input_tokens": asked - cached, "cache_read_input_tokens": cached,
                          "cache_creation_input_tokens": 0, "output_tokens": said}}  # fmt: skip
    return {"usageMetadata": {"promptTokenCount": asked, "cachedContentTokenCount": cached, "candidatesTokenCount": said,
                              "totalTokenCount": asked + said}}  # fmt: skip


def find_declared(request: str, name: str) -> str:
    """What the gateway calls a tool for this provider: the same name, or one that only has other punctuation."""
    names: list[str] = re.findall(r'"name":\s*"([^"]+)"', request)
    return next((found for found in names if found == name), "") or next(
        (found for found in names if _squash(found).startswith(_squash(name))), name
    )


def _squash(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def play_reply(
    protocol: str, reply: Reply, model: str, stream: bool, pause: Callable[[], object]
) -> Callable[[ScriptedConnection], None]:
    def play(connection: ScriptedConnection) -> None:
        pause()
        if reply.fails[0]:
            status, kind, message = reply.fails
            connection.send(answer(status, refusal(protocol, status, kind, message)))
            return
        request = connection.scene.asked[-1].body.decode()
        calls = tuple((find_declared(request, name), arguments) for name, arguments in reply.says.calls)  # type: ignore[misc]
        body = body_of(protocol, ScriptedAnswer(reply.says.text, calls, reply.says.thinking), model)
        body |= write_usage(protocol, reply.tokens)
        if not stream:
            connection.send(answer(200, encode_json(body).encode()))
            return
        connection.send(STREAM_HEAD)
        for frame in PEERS[protocol].write_stream(body):
            connection.chunk(frame.encode())
            pause()
        connection.send(b"0\r\n\r\n")

    return play


@dataclass
class Conversation:
    """An agent's requests to one model, turn by turn."""

    served: Served
    agent: str
    client: str
    model: str
    """With the provider before it."""
    system: str
    tools: Sequence[Json]
    more: Json = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    stream: bool = True
    pause: Callable[[], object] = NO_PAUSE
    messages: list[Json] = field(default_factory=list)

    def __post_init__(self) -> None:
        provider, _, name = self.model.partition("/")
        self._protocol, self._name = PROVIDERS[provider], name
        self._scene = self.served.scene(self._protocol)
        self.system += f"\nWorkspace: weather-{self._scene.mark}"

    def ask(self, reply: Reply, *messages: Json) -> RawAnswer:
        """One turn, to its end."""
        self.messages += messages
        self._scene.plays.append(play_reply(self._protocol, reply, self._name, self.stream, self.pause))
        path = PATHS[self.client].format(model=self.model)
        headers = {"user-agent": AGENTS.get(self.agent, self.agent), **self.headers}
        got = ask(self.served.port, "POST", path, encode_json(self._write_body()).encode(), headers)
        self.served.line(got.id)
        return got

    def _write_body(self) -> Json:
        flags = {"model": self.model, "stream": self.stream, "tools": list(self.tools), **self.more}
        if self.client == "anthropic":
            return {
                "max_tokens": 8192,
                "system": [{"type": "text", "text": self.system}],
                "messages": self.messages,
                **flags,
            }
        if self.client == "openai-responses":
            return {"instructions": self.system, "input": self.messages, "store": False, **flags}
        if self.client == "openai-chat":
            return {"messages": [{"role": "system", "content": self.system}, *self.messages], **flags}
        system = {"parts": [{"text": self.system}]}
        return {"systemInstruction": system, "contents": self.messages, "tools": list(self.tools), **self.more}


# --- an agent on another vendor's model -------------------------------------------------------------------------------


def object_schema(*names: str) -> Json:
    return {"type": "object", "properties": {name: {"type": "string"} for name in names}, "required": list(names)}


CLAUDE_TOOLS = (
    {"name": "Bash", "description": "Runs a command.", "input_schema": object_schema("command")},
    {"name": "Read", "description": "Reads a file.", "input_schema": object_schema("file_path")},
    {"name": "Edit", "description": "Changes a file.", "input_schema": object_schema("file_path", "old_string", "new_string")},
    {"name": "mcp__linear__issues.create", "description": "Creates an issue.", "input_schema": object_schema("title")},
    {"type": "web_search_20250305", "name": "web_search"},
)  # fmt: skip
INSTRUCTIONS = (
    "Read a file before you change it. Run the tests after every change. Say what you have done, and why.\n" * 40
)
"""As long as a prompt has to be for a provider to cache it."""
TITLE = "The tests of the weather service fail since yesterday. Find out why, and mend it."


def use(id: str, name: str, **arguments: str) -> Json:
    return {"type": "tool_use", "id": id, "name": name, "input": arguments}


def result(id: str, content: str, is_error: bool = False) -> Json:
    return {"type": "tool_result", "tool_use_id": id, "content": content, **({"is_error": True} if is_error else {})}


def play_claude_session(served: Served, pause: Callable[[], object] = NO_PAUSE) -> Conversation:
    """Claude Code on a model of OpenAI: two calls at once, a tool that is renamed, and a prefix that breaks."""
    talk = Conversation(
        served, "claude", "anthropic", "openai/gpt-5.5",
        f"You are Claude Code, Anthropic's official CLI.\nToday is 2026-11-16.\n{INSTRUCTIONS}", CLAUDE_TOOLS,
        more={"top_k": 40}, headers={"x-claude-code-session-id": "5f0c2a9e-7d1b-4c55-9f0e-2b6c1d7e8a90"}, pause=pause,
    )  # fmt: skip
    first = ScriptedAnswer(
        "I will run the tests and look at the code.",
        (("Bash", {"command": "pytest -q"}), ("Read", {"file_path": "src/weather.py"})),
    )
    talk.ask(Reply(first, (14210, 0, 96)), {"role": "user", "content": TITLE})
    answered = [use("toolu_01", "Bash", command="pytest -q"), use("toolu_02", "Read", file_path="src/weather.py")]
    results = [
        result("toolu_01", "FAILED tests/test_units.py::test_celsius - KeyError: 'unit'\n1 failed, 41 passed", is_error=True),
        result("toolu_02", 'def celsius(day):\n    return convert(day["temp"], day["unit"])\n'),
    ]  # fmt: skip
    second = ScriptedAnswer(
        "The API no longer sends `unit`.", (("mcp__linear__issues.create", {"title": "The API no longer sends unit"}),)
    )
    talk.ask(
        Reply(second, (14630, 14208, 71)),
        {"role": "assistant", "content": [{"type": "text", "text": first.text}, *answered]},
        {"role": "user", "content": results},
    )
    talk.system = talk.system.replace("2026-11-16", "2026-11-17")
    issue = use("toolu_03", "mcp__linear__issues.create", title="The API no longer sends unit")
    talk.ask(
        Reply(ScriptedAnswer("", (("Edit", {"file_path": "src/weather.py", "old_string": 'day["unit"]', "new_string": 'day.get("unit", "C")'}),)), (14790, 0, 64)),
        {"role": "assistant", "content": [{"type": "text", "text": second.text}, issue]},
        {"role": "user", "content": [result("toolu_03", "WEA-118")]},
    )  # fmt: skip
    edit = use(
        "toolu_04", "Edit", file_path="src/weather.py", old_string='day["unit"]', new_string='day.get("unit", "C")'
    )
    talk.ask(
        Reply(
            ScriptedAnswer("The service reads the unit with a default now, and all 42 tests pass."), (14910, 14784, 22)
        ),
        {"role": "assistant", "content": [edit]},
        {"role": "user", "content": [result("toolu_04", "ok")]},
    )
    return talk


def chat_tool(name: str, *parameters: str) -> Json:
    return {
        "type": "function",
        "function": {"name": name, "description": name, "parameters": object_schema(*parameters)},
    }


def play_others(served: Served, pause: Callable[[], object] = NO_PAUSE) -> None:
    """Other agents, models and ends."""
    codex = Conversation(
        served, "codex", "openai-responses", "deepseek/deepseek-v4", "You are Codex.",
        ({"type": "function", "name": "shell", "parameters": object_schema("command")}, {"type": "web_search"}),
        headers={"session-id": "0199-codex"}, pause=pause,
    )  # fmt: skip
    codex.ask(Reply(ScriptedAnswer("Let me look.", (("shell", {"command": "git log -3"}),), thinking="The log comes first."), (9120, 0, 55)),
              {"role": "user", "content": "What changed since Friday?"})  # fmt: skip
    opencode = Conversation(
        served, "opencode", "openai-chat", "claude/claude-opus-5-5", "You are opencode.",
        (chat_tool("bash", "command"), chat_tool("grep", "pattern")), more={"seed": 7, "logit_bias": {"50256": -100}}, pause=pause,
    )  # fmt: skip
    opencode.ask(Reply(ScriptedAnswer("", (("grep", {"pattern": "TODO"}), ("bash", {"command": "ls"}))), (7210, 6144, 48)),
                 {"role": "user", "content": "Which TODOs are left?"})  # fmt: skip
    gemini = Conversation(
        served, "gemini", "gemini", "azure/gpt-5.5-mini", "You are Gemini CLI.",
        ({"functionDeclarations": [{"name": "read_file", "parameters": object_schema("path")}]},), pause=pause,
    )  # fmt: skip
    gemini.ask(Reply(ScriptedAnswer("The readme says how to install it, and where the settings are."), (5120, 0, 31)),
               {"role": "user", "parts": [{"text": "Summarise the readme."}]})  # fmt: skip
    busy = Conversation(served, "qwen", "openai-chat", "google/gemini-3.8-pro", "You are Qwen Code.", (), pause=pause)
    busy.ask(
        Reply(fails=(429, "RESOURCE_EXHAUSTED", "Quota exceeded for this minute.")),
        {"role": "user", "content": "Hello"},
    )
