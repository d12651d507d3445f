"""Servers that are compatible with a protocol and do not know all of it: what they are known to refuse is left out or
rewritten, and what they refuse unexpectedly is left out when they are asked once more. The servers here are as strict as
those whose words they use."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx2
import pytest

from gateway.conftest import serve_config
from waits import PATIENCE

Object = dict[str, Any]
Check = Callable[[Object, dict[str, str]], str]
"""Says why a request is refused; "" if it is not."""

DEEPSEEK_ROLE = (
    "Failed to deserialize the JSON body into the target type: messages[{at}].role: unknown variant `system`, "
    "expected `user` or `assistant` at line 1 column 23495"
)
VLLM_ROLE = (
    "1 validation error:\n  {{'type': 'literal_error', 'loc': ('body', 'messages', {at}, 'role'), 'msg': \"Input should "
    "be 'user' or 'assistant'\", 'input': 'system', 'ctx': {{'expected': \"'user' or 'assistant'\"}}}}"
)
OTHER_ROLE = "messages[{at}].role must be either 'user' or 'assistant', but got 'system'"
TEMPLATE = "System message must be at the beginning."
NO_BLOCK = "messages[{at}].content: unknown variant `{kind}`, expected one of `text`, `tool_use`, `tool_result`"
NO_DEFER = "tools.{at}.custom.defer_loading: Extra inputs are not permitted"
NO_MEMBER = "{name}: Extra inputs are not permitted"
NO_BETA = (
    "Unexpected value(s) `{value}` for the `anthropic-beta` header. Please consult our documentation or try again "
    "without the header."
)
BAD_FLAG = "invalid beta flag"
NO_USER = (
    "Invalid 'user_id': string does not match pattern. Expected a string that matches the pattern '^[a-zA-Z0-9_-]+$'."
)
MEMBERS = (
    "model messages system tools tool_choice max_tokens stream thinking output_config metadata temperature".split()
)


def refuse_roles(words: str) -> Check:
    def check(body: Object, _headers: dict[str, str]) -> str:
        late = [at for at, message in enumerate(body["messages"]) if message["role"] not in ("user", "assistant")]
        return words.format(at=late[0]) if late else ""

    return check


def refuse_blocks(body: Object, _headers: dict[str, str]) -> str:
    known = {"text", "tool_use", "tool_result", "thinking", "image"}
    for at, message in enumerate(body["messages"]):
        blocks = message["content"] if isinstance(message["content"], list) else []
        inner = [one for block in blocks if isinstance(block.get("content"), list) for one in block["content"]]
        for block in (*blocks, *inner):
            if block["type"] not in known:
                return NO_BLOCK.format(at=at, kind=block["type"])
    return next((NO_DEFER.format(at=at) for at, tool in enumerate(body["tools"]) if "defer_loading" in tool), "")


def refuse_members(body: Object, _headers: dict[str, str]) -> str:
    return next((NO_MEMBER.format(name=name) for name in body if name not in MEMBERS), "")


def refuse_betas(words: str) -> Check:
    return lambda _body, headers: words.format(value=headers["anthropic-beta"]) if "anthropic-beta" in headers else ""


def refuse_user_ids(body: Object, _headers: dict[str, str]) -> str:
    user = body.get("metadata", {}).get("user_id", "")
    return "" if not user or user.replace("-", "").replace("_", "").isalnum() else NO_USER


def refuse_lost_reasoning(body: Object, _headers: dict[str, str]) -> str:
    turns = [message for message in body["messages"] if message["role"] == "assistant"]
    if all((message.get("reasoning_content") or "").strip() for message in turns):
        return ""
    return "The `reasoning_content` in the thinking mode must be passed back to the API."


def refuse_late_instructions(body: Object, _headers: dict[str, str]) -> str:
    return TEMPLATE if any(message["role"] == "system" for message in body["messages"][1:]) else ""


def refuse_allowed_tools(body: Object, _headers: dict[str, str]) -> str:
    return "" if isinstance(body.get("tool_choice", ""), str) else "tool_choice: unknown variant `allowed_tools`"


CHECKS: list[Check] = [
    refuse_roles(DEEPSEEK_ROLE),
    refuse_blocks,
    refuse_members,
    refuse_betas(NO_BETA),
    refuse_user_ids,
]


class StrictServer:
    """Answers in the protocol of the path, or refuses with what the first check says."""

    def __init__(self, checks: list[Check], status: int = 400) -> None:
        self.checks, self.status = checks, status
        self.asked: list[Object] = []
        """The body of each request."""
        self.headers: list[dict[str, str]] = []
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                headers = {name.lower(): value for name, value in self.headers.items()}
                server.asked.append(body)
                server.headers.append(headers)
                wrong = next(filter(None, (check(body, headers) for check in server.checks)), "")
                if wrong:
                    error = {"message": wrong, "type": "invalid_request_error", "code": "invalid_request_error"}
                    self.reply(server.status, json.dumps({"error": error}).encode())
                else:
                    self.reply(200, _answer(self.path, bool(body.get("stream"))), bool(body.get("stream")))

            def reply(self, status: int, data: bytes, stream: bool = False) -> None:
                self.send_response(status)
                self.send_header("content-type", "text/event-stream" if stream else "application/json")
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: object) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._http.server_port}"
        threading.Thread(target=self._http.serve_forever, args=(0.01,), daemon=True).start()

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()


def _answer(path: str, stream: bool) -> bytes:
    if path.endswith("/messages"):
        message = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "stop_sequence": None}
        usage = {"input_tokens": 1, "output_tokens": 1}
        text = {"type": "text", "text": "Hello."}
        if not stream:
            return json.dumps({**message, "content": [text], "stop_reason": "end_turn", "usage": usage}).encode()
        events = [
            {"type": "message_start", "message": {**message, "content": [], "stop_reason": None, "usage": usage}},
            {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
            {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hello."}},
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": {"stop_reason": "end_turn", "stop_sequence": None}, "usage": usage},
            {"type": "message_stop"},
        ]
        return b"".join(f"event: {one['type']}\ndata: {json.dumps(one)}\n\n".encode() for one in events)
    if path.endswith("/responses"):
        content = [{"type": "output_text", "text": "Hello.", "annotations": []}]
        item = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": content}
        return json.dumps({"id": "resp_1", "object": "response", "status": "completed", "output": [item]}).encode()
    chunk = {"id": "c_1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    if not stream:
        message = {"role": "assistant", "content": "Hello."}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        return json.dumps({**chunk, "object": "chat.completion", "choices": [choice]}).encode()
    deltas = [({"role": "assistant", "content": "Hello."}, None), ({}, "stop")]
    chunks = [{**chunk, "choices": [{"index": 0, "delta": one, "finish_reason": end}]} for one, end in deltas]
    return b"".join(f"data: {json.dumps(one)}\n\n".encode() for one in chunks) + b"data: [DONE]\n\n"


@contextmanager
def serve(folder: Path, server: StrictServer, provider: str) -> Iterator[str]:
    file = folder / "toolwire.toml"
    lines = '[server]\nretries = 0\nlog_format = "none"\n[store]\nurl = "none"\n'
    file.write_text(f'{lines}[providers.p]\nbase_url = "{server.url}"\n{provider}\n')
    try:
        with serve_config(file) as url:
            yield url
    finally:
        server.close()


def ask(url: str, path: str, body: Object, stream: bool, **headers: str) -> httpx2.Response:
    sent = {"anthropic-version": "2023-06-01", **headers} if path == MESSAGES else headers
    return httpx2.post(url + path, json={**body, "stream": stream}, headers=sent, timeout=PATIENCE)


def assert_answered(got: httpx2.Response) -> None:
    assert got.status_code == 200, got.text
    assert "Hello." in got.text


MESSAGES, CHAT, RESPONSES = "/v1/messages", "/v1/chat/completions", "/v1/responses"
CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
BETAS = "claude-code-20250219,context-management-2025-06-27,mid-conversation-system-2026-04-07"
CLAUDE_CODE: Object = {
    "model": "p/deepseek-v4-pro",
    "max_tokens": 128000,
    "system": [{"type": "text", "text": "You are Claude Code.", "cache_control": {"type": "ephemeral", "scope": "global"}}],
    "messages": [
        {"role": "user", "content": [{"type": "text", "text": "Weather?"}]},
        {"role": "system", "content": [{"type": "text", "text": "Be brief."}], "output_config": {"effort": "high"}},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "toolu_1", "name": "ToolSearch", "input": {"q": "w"}}]},
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "toolu_1",
                    "content": [{"type": "tool_reference", "tool_name": "get_weather"}],
                }
            ],
        },
        {"role": "system", "content": "The date has changed."},
        {"role": "system", "content": [ADDED := {"type": "tool_addition", "tool": {"type": "tool_definition", "definition": {"name": "added", "input_schema": CITY}}}]},
    ],
    "tools": [
        {"name": "ToolSearch", "input_schema": {"type": "object", "properties": {"q": {"type": "string"}}}},
        {"name": "placeholder", "input_schema": CITY, "defer_loading": True},
        {"name": "get_weather", "input_schema": CITY, "defer_loading": True, "eager_input_streaming": True},
    ],
    "metadata": {"user_id": '{"device_id":"d","session_id":"s"}'},
    "thinking": {"type": "adaptive", "display": "updates"},
    "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
    "output_config": {"effort": "medium"},
}  # fmt: skip
"""As Claude Code 2.1.325 writes it, with a tool that was added in the middle."""
KNOWN_QUIRKS = '["no-system-turns", "no-tool-search", "no-betas", "plain-user-id"]'
whole_or_stream = pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])


@whole_or_stream
@pytest.mark.parametrize(
    "provider",
    ['kind = "deepseek"\nprotocols = ["anthropic"]\napi_key = "k"', f'protocols = ["anthropic"]\nquirks = {KNOWN_QUIRKS}'],
    ids=["kind", "quirks"],
)  # fmt: skip
def test_claude_code_at_a_strict_server_of_its_protocol(tmp_path: Path, provider: str, stream: bool) -> None:
    server = StrictServer(CHECKS)
    with serve(tmp_path, server, provider) as url:
        got = ask(url, f"{MESSAGES}?beta=true", CLAUDE_CODE, stream, **{"anthropic-beta": BETAS})
    assert_answered(got)
    [sent] = server.asked
    assert [message["role"] for message in sent["messages"]] == ["user", "assistant", "user"]
    assert sent["messages"][0]["content"] == [
        {"type": "text", "text": "Weather?"},
        {"type": "text", "text": "Be brief."},
    ]
    result, *texts = sent["messages"][2]["content"]
    assert result["content"] == [{"type": "text", "text": "Tool found: get_weather"}]
    assert texts == [{"type": "text", "text": "The date has changed."}]
    assert [tool["name"] for tool in sent["tools"]] == ["ToolSearch", "placeholder", "get_weather", "added"]
    assert all(tool.keys() == {"name", "input_schema"} for tool in sent["tools"])
    assert sent["system"] == [CLAUDE_CODE["system"][0] | {"cache_control": {"type": "ephemeral"}}]
    codes = got.headers["x-toolwire-losses"]
    assert all(code in codes for code in ("role-mapped", "tools-merged", "no-counterpart", "cache-dropped"))


CHAT_TURNS: list[Object] = [
    {"role": "system", "content": "You are brief."},
    {"role": "user", "content": "Weather?"},
    {"role": "system", "content": "Be polite."},
]


@whole_or_stream
def test_a_chat_client_at_a_strict_server_of_anthropics_protocol(tmp_path: Path, stream: bool) -> None:
    """Under the name of a model that takes system turns at Anthropic."""
    server = StrictServer(CHECKS)
    body = {"model": "p/claude-opus-5-5", "messages": CHAT_TURNS}
    tools = [{"type": "function", "function": {"name": "get_weather", "parameters": CITY}}]
    with serve(tmp_path, server, 'kind = "deepseek"\nprotocols = ["anthropic"]\napi_key = "k"') as url:
        assert_answered(ask(url, CHAT, {**body, "tools": tools}, stream))
    [sent] = server.asked
    assert [message["role"] for message in sent["messages"]] == ["user"]


REFUSALS: list[tuple[str, Check, int]] = [
    ("deepseek-role", refuse_roles(DEEPSEEK_ROLE), 400),
    ("vllm-role", refuse_roles(VLLM_ROLE), 400),
    ("other-role", refuse_roles(OTHER_ROLE), 422),
    ("template", refuse_late_instructions, 500),
    ("blocks", refuse_blocks, 400),
    ("members", refuse_members, 400),
    ("beta-values", refuse_betas(NO_BETA), 400),
    ("beta-flag", refuse_betas(BAD_FLAG), 400),
    ("user-id", refuse_user_ids, 400),
]


@whole_or_stream
@pytest.mark.parametrize(("check", "status"), [row[1:] for row in REFUSALS], ids=[row[0] for row in REFUSALS])
def test_what_a_server_refuses_is_left_out_from_then_on(
    tmp_path: Path, check: Check, status: int, stream: bool
) -> None:
    """A server that nothing is known about: within one protocol, where bytes would pass."""
    server = StrictServer([check], status)
    with serve(tmp_path, server, 'protocols = ["anthropic"]') as url:
        for _ in range(2):
            assert_answered(got := ask(url, MESSAGES, CLAUDE_CODE, stream, **{"anthropic-beta": BETAS}))
    assert len(server.asked) == 3  # the refusal, the second try, and the next request, which knows it
    assert got.headers["x-toolwire-losses"]


def refuse_member(name: str, words: str) -> Check:
    return lambda body, _headers: words if f'"{name}":' in json.dumps(body) else ""


UNNAMED: dict[str, Check] = {
    "limit": refuse_member("max_tokens", "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."),
    "temperature": refuse_member("temperature", "Unsupported value: 'temperature' does not support 0 with this model. Only the default (1) value is supported."),
    "effort": refuse_member("reasoning_effort", "Unrecognized request argument supplied: reasoning_effort"),
}  # fmt: skip
"""What OpenAI's models refuse, some because they reason and some because they do not."""
SETTINGS: dict[str, Object] = {
    CHAT: {"max_tokens": 99, "temperature": 0, "reasoning_effort": "low"},
    MESSAGES: {"max_tokens": 9999, "temperature": 0, "thinking": {"type": "enabled", "budget_tokens": 2048}},
    RESPONSES: {"max_output_tokens": 99, "temperature": 0, "reasoning": {"effort": "low"}},
}


@whole_or_stream
@pytest.mark.parametrize("path", SETTINGS)
@pytest.mark.parametrize("check", UNNAMED.values(), ids=list(UNNAMED))
def test_a_model_behind_a_name_that_does_not_say_what_it_is(
    tmp_path: Path, path: str, check: Check, stream: bool
) -> None:
    """A deployment at Azure, or a model behind another gateway."""
    server = StrictServer([check])
    turns = {"input": "Hello"} if path == RESPONSES else {"messages": [{"role": "user", "content": "Hello"}]}
    with serve(tmp_path, server, 'protocols = ["openai-chat"]') as url:
        for _ in range(2):
            assert_answered(got := ask(url, path, SETTINGS[path] | turns | {"model": "p/ours"}, stream))
    assert len(server.asked) == 3
    assert got.headers["x-toolwire-losses"]
    assert server.asked[-1].get("max_tokens", server.asked[-1].get("max_completion_tokens"))


SMALL: dict[str, tuple[str, Object, Object, str]] = {
    "value": (CHAT, {"reasoning_effort": "none"}, {"reasoning_effort": "high"}, "Unsupported value: 'reasoning_effort' does not support 'none' with this model. Supported values are: 'minimal', 'low', and 'high'."),
    "condition": (CHAT, {"temperature": 0, "top_logprobs": 2}, {"temperature": 0.2}, "top_logprobs is not allowed unless logprobs is true"),
    "inner": (RESPONSES, {"reasoning": {"effort": "low", "summary": "auto"}}, {"reasoning": {"effort": "high"}}, "Unsupported parameter: 'reasoning.summary' is not supported with this model."),
}  # fmt: skip


@pytest.mark.parametrize(("path", "refused", "later", "words"), SMALL.values(), ids=list(SMALL))
def test_what_one_request_has_wrong_is_not_taken_from_later_ones(
    tmp_path: Path, path: str, refused: Object, later: Object, words: str
) -> None:
    server = StrictServer([lambda body, _headers: words if refused.items() <= body.items() else ""])
    protocol = "openai-responses" if path == RESPONSES else "openai-chat"
    turns = {"input": "Hello"} if path == RESPONSES else {"messages": [{"role": "user", "content": "Hello"}]}
    with serve(tmp_path, server, f'protocols = ["{protocol}"]') as url:
        got = ask(url, path, turns | refused | {"model": "p/ours"}, False)
        assert got.status_code == 400
        assert got.json()["error"]["message"].startswith(words)
        assert_answered(ask(url, path, turns | later | {"model": "p/ours"}, False))
    assert later.items() <= server.asked[-1].items()
    assert len(server.asked) == 2


def test_cache_breakpoints_that_a_server_refuses(tmp_path: Path) -> None:
    server = StrictServer([refuse_member("cache_control", NO_MEMBER.format(name="system.0.cache_control"))])
    with serve(tmp_path, server, 'protocols = ["anthropic"]') as url:
        for _ in range(2):
            assert_answered(ask(url, MESSAGES, CLAUDE_CODE, False))
    assert len(server.asked) == 3


def test_a_server_that_refuses_one_thing_after_another(tmp_path: Path) -> None:
    server = StrictServer(CHECKS)
    with serve(tmp_path, server, 'protocols = ["anthropic"]') as url:
        assert_answered(ask(url, MESSAGES, CLAUDE_CODE, True, **{"anthropic-beta": BETAS}))
        tries = len(server.asked)
        assert_answered(ask(url, MESSAGES, CLAUDE_CODE, False, **{"anthropic-beta": BETAS}))
    assert 1 < tries <= 1 + len(CHECKS)
    assert len(server.asked) == tries + 1


def refuse_later_members(body: Object, _headers: dict[str, str]) -> str:
    if body.get("thinking", {}).get("type") == "adaptive":
        return "thinking.type: Input should be 'enabled' or 'disabled'"
    found = [name for name in ("output_config", "display", "strict") if f'"{name}":' in json.dumps(body)]
    return NO_MEMBER.format(name=found[0]) if found else ""


def test_a_server_that_knows_only_the_first_version_of_its_protocol(tmp_path: Path) -> None:
    server = StrictServer([*CHECKS, refuse_later_members])
    body = CLAUDE_CODE | {"tools": [{**tool, "strict": True} for tool in CLAUDE_CODE["tools"]], "max_tokens": 8000}
    with serve(tmp_path, server, 'protocols = ["anthropic"]') as url:
        for _ in range(2):
            assert_answered(ask(url, MESSAGES, body, False, **{"anthropic-beta": BETAS}))
    first, last = server.asked[0], server.asked[-1]
    assert (first["thinking"]["type"], last["thinking"]) == ("adaptive", {"type": "enabled", "budget_tokens": 7999})
    assert "output_config" not in last
    assert not [tool for tool in last["tools"] if "strict" in tool]
    # It is not refused again.
    assert server.asked[-2] == last


def test_a_refusal_that_stays_is_told(tmp_path: Path) -> None:
    """Not a third time, and nothing is learnt from what did not help."""
    server = StrictServer([lambda _body, _headers: DEEPSEEK_ROLE.format(at=1)])
    with serve(tmp_path, server, 'protocols = ["anthropic"]') as url:
        for _ in range(2):
            got = ask(url, MESSAGES, CLAUDE_CODE, False)
            assert got.status_code == 400
            assert got.json()["error"]["message"].startswith(DEEPSEEK_ROLE.format(at=1))
    assert len(server.asked) == 4
    assert server.asked[0]["messages"] == server.asked[2]["messages"] == CLAUDE_CODE["messages"]


def test_other_errors_are_told_at_once(tmp_path: Path) -> None:
    server = StrictServer([lambda _body, _headers: "messages: roles must alternate between user and assistant"])
    with serve(tmp_path, server, 'protocols = ["anthropic"]') as url:
        assert ask(url, MESSAGES, CLAUDE_CODE, False).status_code == 400
    assert len(server.asked) == 1


def test_the_losses_of_a_second_try_can_be_forbidden(tmp_path: Path) -> None:
    server = StrictServer([refuse_members])
    with serve(tmp_path, server, 'protocols = ["anthropic"]\n[translate]\non_loss = "refuse"') as url:
        got = ask(url, MESSAGES, CLAUDE_CODE, False)
    assert got.status_code == 400
    assert "`context_management` was left out" in got.json()["error"]["message"]
    assert len(server.asked) == 1


# --- thinking that another model did not leave ------------------------------------------------------------------------

CALLS = [{"id": "call_1", "type": "function", "function": {"name": "get_weather", "arguments": '{"city":"Paris"}'}}]
CHAT_TOOLS = [{"type": "function", "function": {"name": "get_weather", "parameters": CITY}}]
HISTORIES: dict[str, Object] = {
    CHAT: {
        "messages": [
            {"role": "user", "content": "Hello"},
            {"role": "assistant", "content": "Hello."},
            {"role": "user", "content": "Weather?"},
            {"role": "assistant", "content": None, "tool_calls": CALLS},
            {"role": "tool", "tool_call_id": "call_1", "content": "15"},
        ],
        "tools": CHAT_TOOLS,
    },
    MESSAGES: {
        "max_tokens": 1000,
        "messages": [
            {"role": "user", "content": "Weather?"},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "Paris, then.", "signature": "c2lnbmF0dXJl"},
                    {"type": "tool_use", "id": "toolu_1", "name": "get_weather", "input": {"city": "Paris"}},
                ],
            },
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "15"}]},
        ],
        "tools": [{"name": "get_weather", "input_schema": CITY}],
    },
    RESPONSES: {
        "store": False,
        "input": [
            {"role": "user", "content": "Weather?"},
            {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAAA"},
            {"type": "function_call", "call_id": "call_1", "name": "get_weather", "arguments": '{"city":"Paris"}'},
            {"type": "function_call_output", "call_id": "call_1", "output": "15"},
        ],
        "tools": [{"type": "function", "name": "get_weather", "parameters": CITY, "strict": False}],
    },
}


@whole_or_stream
@pytest.mark.parametrize("path", HISTORIES)
@pytest.mark.parametrize(
    ("provider", "tries"),
    [('kind = "deepseek"\nprotocols = ["openai-chat"]\napi_key = "k"', 1), ('protocols = ["openai-chat"]', 2)],
    ids=["kind", "unknown"],
)
def test_a_history_of_another_model_at_deepseek(
    tmp_path: Path, path: str, provider: str, tries: int, stream: bool
) -> None:
    server = StrictServer([refuse_lost_reasoning])
    with serve(tmp_path, server, provider) as url:
        got = ask(url, path, {"model": "p/deepseek-v4-pro", **HISTORIES[path]}, stream)
    assert_answered(got)
    had_text = path == MESSAGES
    assert len(server.asked) == tries
    turn = next(message for message in server.asked[-1]["messages"] if message.get("tool_calls"))
    assert turn["reasoning_content"] == ("Paris, then." if had_text else 'Next: get_weather {"city":"Paris"}')
    assert had_text or "reasoning-added" in got.headers["x-toolwire-losses"]


@whole_or_stream
def test_a_model_that_was_not_taken_for_one_that_thinks(tmp_path: Path, stream: bool) -> None:
    """A server of a known kind: what it refuses counts more than the model's name."""
    server = StrictServer([refuse_lost_reasoning])
    with serve(tmp_path, server, 'kind = "deepseek"\nprotocols = ["openai-chat"]\napi_key = "k"') as url:
        for _ in range(2):
            assert_answered(ask(url, CHAT, {"model": "p/deepseek-chat", **HISTORIES[CHAT]}, stream))
    assert len(server.asked) == 3


def refuse_lost_thinking(body: Object, _headers: dict[str, str]) -> str:
    turns = [message["content"] for message in body["messages"] if message["role"] == "assistant"]
    if all(isinstance(content, list) and content[0]["type"] == "thinking" for content in turns):
        return ""
    return "The `content[].thinking` in the thinking mode must be passed back to the API."


@whole_or_stream
@pytest.mark.parametrize("path", [CHAT, RESPONSES, f"{MESSAGES}?beta=true"])
def test_a_history_of_another_model_at_deepseeks_messages(tmp_path: Path, path: str, stream: bool) -> None:
    server = StrictServer([refuse_lost_thinking])
    provider = 'kind = "deepseek"\nprotocols = ["anthropic"]\napi_key = "k"'
    history = HISTORIES.get(path) or {key: CLAUDE_CODE[key] for key in ("messages", "tools", "max_tokens")}
    with serve(tmp_path, server, provider) as url:
        for _ in range(2):
            assert_answered(got := ask(url, path, {"model": "p/deepseek-v4-pro", **history}, stream))
    assert len(server.asked) == 3
    turns = [message for message in server.asked[-1]["messages"] if message["role"] == "assistant"]
    assert turns[-1]["content"][0]["thinking"].startswith("Next: ")
    assert "reasoning-added" in got.headers["x-toolwire-losses"]


@pytest.mark.parametrize(
    "more", [{"reasoning_effort": "none"}, {"thinking": {"type": "disabled"}}], ids=["effort", "thinking"]
)
def test_nothing_is_made_up_where_the_model_does_not_think(tmp_path: Path, more: Object) -> None:
    server = StrictServer([])
    with serve(tmp_path, server, 'kind = "deepseek"\nprotocols = ["openai-chat"]\napi_key = "k"') as url:
        assert_answered(ask(url, CHAT, {"model": "p/deepseek-v4-pro", **HISTORIES[CHAT], **more}, False))
    assert not any("reasoning_content" in message for message in server.asked[0]["messages"])


# --- instructions, and allowed tools ----------------------------------------------------------------------------------


@whole_or_stream
@pytest.mark.parametrize("provider", ['kind = "vllm"\nprotocols = ["openai-chat"]', 'protocols = ["openai-chat"]'])
def test_late_instructions_at_a_chat_server(tmp_path: Path, provider: str, stream: bool) -> None:
    server = StrictServer([refuse_late_instructions])
    with serve(tmp_path, server, provider) as url:
        assert_answered(ask(url, CHAT, {"model": "p/qwen", "messages": [CHAT_TURNS[0], *CHAT_TURNS]}, stream))
    sent = server.asked[-1]["messages"]
    assert [message["role"] for message in sent] == ["system", "user", "user"]
    assert sent[0]["content"] == "You are brief.\n\nYou are brief."


ALLOWED: dict[str, Object] = {
    CHAT: {
        "messages": [{"role": "user", "content": "Weather?"}],
        "tools": [*CHAT_TOOLS, {"type": "function", "function": {"name": "other", "parameters": CITY}}],
        "tool_choice": {
            "type": "allowed_tools",
            "allowed_tools": {"mode": "required", "tools": [{"type": "function", "function": {"name": "get_weather"}}]},
        },
    },
    RESPONSES: {
        "input": "Weather?",
        "store": False,
        "tools": [{"type": "function", "name": name, "parameters": CITY} for name in ("get_weather", "other")],
        "tool_choice": {
            "type": "allowed_tools",
            "mode": "required",
            "tools": [{"type": "function", "name": "get_weather"}],
        },
    },
}


@whole_or_stream
@pytest.mark.parametrize("path", ALLOWED)
@pytest.mark.parametrize("quirks", ["", 'quirks = ["no-strict"]'], ids=["unknown", "with-quirks"])
def test_an_unknown_chat_server_gets_only_the_allowed_tools(
    tmp_path: Path, path: str, quirks: str, stream: bool
) -> None:
    server = StrictServer([refuse_allowed_tools])
    with serve(tmp_path, server, f'protocols = ["openai-chat"]\n{quirks}') as url:
        got = ask(url, path, {"model": "p/some-model", **ALLOWED[path]}, stream)
    assert_answered(got)
    [sent] = server.asked
    assert [tool["function"]["name"] for tool in sent["tools"]] == ["get_weather"]
    assert sent["tool_choice"] == "required"
    assert "choice-mapped" in got.headers["x-toolwire-losses"]


def test_a_server_of_openais_kind_gets_the_choice(tmp_path: Path) -> None:
    server = StrictServer([])
    with serve(tmp_path, server, 'kind = "openai"\nprotocols = ["openai-chat"]\napi_key = "k"') as url:
        got = ask(url, CHAT, {"model": "p/some-model", **ALLOWED[CHAT]}, False)
    assert_answered(got)
    assert server.asked[0] == {**ALLOWED[CHAT], "model": "some-model", "stream": False}
    assert "x-toolwire-losses" not in got.headers


# --- paths that a server does not have --------------------------------------------------------------------------------

MISSING = {
    "fastapi": (404, '{"detail":"Not Found"}'),
    "lm-studio": (404, '{"error":"Unexpected endpoint or method. (POST /v1/messages)"}'),
    "llama.cpp": (404, '{"error":{"code":404,"message":"File Not Found","type":"not_found_error"}}'),
    "go": (404, "404 page not found"),
    "express": (404, "<pre>Cannot POST /v1/messages</pre>"),
    "openai": (404, '{"error":{"message":"Invalid URL (POST /v1/messages)","type":"invalid_request_error"}}'),
    "method": (405, '{"detail":"Method Not Allowed"}'),
}
MISSING_MODEL = {
    "anthropic": '{"type":"error","error":{"type":"not_found_error","message":"model: some-model"}}',
    "vllm": '{"error":{"message":"The model `some-model` does not exist.","type":"NotFoundError","code":404}}',
}


class PathServer(StrictServer):
    """Answers every request with one error."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__([])
        handler = self._http.RequestHandlerClass

        def do_POST(self: Any) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            self.reply(status, text.encode())

        handler.do_POST = do_POST  # type: ignore[attr-defined]


@pytest.mark.parametrize("path", [MESSAGES, CHAT])
@pytest.mark.parametrize(("status", "text"), MISSING.values(), ids=MISSING)
def test_a_missing_path_says_how_to_choose_a_protocol(tmp_path: Path, path: str, status: int, text: str) -> None:
    with serve(tmp_path, PathServer(status, text), 'protocols = ["anthropic", "openai-chat"]') as url:
        got = ask(url, path, {"model": "p/some-model", **HISTORIES[path]}, False)
    asked, other = ("anthropic", "openai-chat") if path == MESSAGES else ("openai-chat", "anthropic")
    message = got.json()["error"]["message"]
    assert f"it was asked in {asked} at {path}, and is configured to speak anthropic and openai-chat" in message
    assert f'set `protocols = ["{other}"]` under [providers.p]' in message


@pytest.mark.parametrize("text", MISSING_MODEL.values(), ids=MISSING_MODEL)
def test_a_missing_model_is_not_a_missing_path(tmp_path: Path, text: str) -> None:
    with serve(tmp_path, PathServer(404, text), 'protocols = ["anthropic"]') as url:
        same = ask(url, MESSAGES, {"model": "p/some-model", **HISTORIES[MESSAGES]}, False).text
        assert "it was asked in" not in same
        assert json.loads(re.sub(r" \(from the provider[^)]*\)", "", same)) == json.loads(text)
        got = ask(url, CHAT, {"model": "p/some-model", **HISTORIES[CHAT]}, False)
    assert "check the model's name there" in got.json()["error"]["message"]
