"""Quirks: servers that speak a protocol with an accent, and what is done for them."""

from __future__ import annotations

import copy
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from toolwire.core import ids
from toolwire.core.codec import Codec, Constraints, Http
from toolwire.core.ir import Call, Request, Result, Text, Turn
from toolwire.core.losses import LOSS_CODES, Ledger
from toolwire.core.missing_reasoning import make_up_reasoning
from toolwire.gateway.settings.providers import known_servers
from toolwire.protocols import CODECS, find_codec
from toolwire.translation.exchange import Exchange
from toolwire.translation.options import Options
from toolwire.translation.request_steps.adapt_request import adapt_request
from toolwire.translation.request_steps.history import normalise_call_ids
from toolwire.translation.request_steps.turn_content import request_features

CHAT = find_codec("openai-chat")
NINE = re.compile(r"[A-Za-z0-9]{9}")


def variant(plain: Codec, *names: str) -> Codec:
    rules = plain.constraints
    for name in names:
        rules = replace(rules, **plain.quirks[name].constraints)
    return replace(plain, constraints=rules)


def bent(protocol: str, name: str, body: Any, source: str = "") -> tuple[Any, Ledger]:
    """The body as a quirk leaves it, and what it noted; the given body must not change."""
    plain = find_codec(protocol)
    ledger = Ledger(source or plain.name, plain.name)
    door = plain.quirks[name].rewrite_body
    assert door is not None
    before = copy.deepcopy(body)
    out = door(body, "m", ledger)
    assert body == before
    again = door(out, "m", Ledger("a", "b"))
    assert again is out, "what is bent once needs no bending"
    return out, ledger


def function_tool(name: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": {}}}}


def allow(mode: str, *names: str) -> dict[str, Any]:
    tools = [{"type": "function", "function": {"name": name}} for name in names]
    return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": tools}}


def codes(ledger: Ledger) -> list[tuple[str, str]]:
    return [(loss.code, loss.path) for loss in ledger.losses]


LONG = "x" * 1500
CALLS = [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}]

CHANGED: list[tuple[str, Any, Any, list[tuple[str, str]]]] = [
    (
        "empty-content",
        {"messages": [{"role": "assistant", "content": None, "tool_calls": CALLS}]},
        {"messages": [{"role": "assistant", "content": "", "tool_calls": CALLS}]},
        [],
    ),
    (
        "empty-content",
        {"messages": [{"role": "assistant", "tool_calls": CALLS}]},
        {"messages": [{"role": "assistant", "tool_calls": CALLS, "content": ""}]},
        [],
    ),
    (
        "plain-text-content",
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}]},
        {"messages": [{"role": "user", "content": "a\nb"}]},
        [],
    ),
    (
        "plain-text-content",
        {
            "messages": [
                {"role": "system", "content": "s"},
                {
                    "role": "tool",
                    "tool_call_id": "c",
                    "content": [{"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}],
                },
            ]
        },
        {"messages": [{"role": "system", "content": "s"}, {"role": "tool", "tool_call_id": "c", "content": "a"}]},
        [("no-counterpart", "/messages/1/content/0/cache_control")],
    ),
    (
        "short-descriptions",
        {"tools": [{"type": "function", "function": {"name": "f", "description": LONG}}]},
        {"tools": [{"type": "function", "function": {"name": "f", "description": "x" * 1023 + "…"}}]},
        [("description-cut", "/tools/0")],
    ),
    ("max-tokens-key", {"model": "m", "max_completion_tokens": 5}, {"model": "m", "max_tokens": 5}, []),
    ("max-tokens-key", {"max_tokens": 5, "max_completion_tokens": 5}, {"max_tokens": 5}, []),
    (
        "max-tokens-key",
        {"max_tokens": 6, "max_completion_tokens": 5},
        {"max_tokens": 5},
        [("no-counterpart", "/max_tokens")],
    ),
    ("max-tokens-key", {"max_tokens": 6, "max_completion_tokens": None}, {"max_tokens": 6}, []),
    (
        "new-tokens-key",
        {"model": "m", "max_tokens": 5},
        {"model": "m", "max_completion_tokens": 5},
        [("setting-mapped", "/max_tokens")],
    ),
    (
        "new-tokens-key",
        {"max_tokens": 6, "max_completion_tokens": 5},
        {"max_completion_tokens": 5},
        [("setting-mapped", "/max_tokens")],
    ),
    ("no-sampling", {"temperature": 1.0, "top_p": 1, "logprobs": False}, {}, []),
    (
        "no-sampling",
        {"model": "m", "temperature": 0, "presence_penalty": 0.5},
        {"model": "m"},
        [("no-counterpart", "/temperature"), ("no-counterpart", "/presence_penalty")],
    ),
    ("no-effort", {"model": "m", "reasoning_effort": "low"}, {"model": "m"}, [("no-counterpart", "/reasoning_effort")]),
    (
        "reasoning-required",
        {"model": "deepseek-chat", "messages": [{"role": "assistant", "content": "a", "tool_calls": []}]},
        {
            "model": "deepseek-chat",
            "messages": [
                {"role": "assistant", "content": "a", "tool_calls": [], "reasoning_content": make_up_reasoning(())}
            ],
        },
        [("reasoning-added", "/messages/0")],
    ),
    (
        "no-developer-role",
        {"messages": [{"role": "developer", "content": "d"}]},
        {"messages": [{"role": "system", "content": "d"}]},
        [("role-mapped", "/messages/0/role")],
    ),
    (
        "no-stream-options",
        {"stream": True, "stream_options": {"include_usage": True}},
        {"stream": True},
        [("no-counterpart", "/stream_options")],
    ),
    (
        "no-strict",
        {"tools": [{"type": "function", "function": {"name": "f", "strict": True}}]},
        {"tools": [{"type": "function", "function": {"name": "f"}}]},
        [("no-counterpart", "/tools/0")],
    ),
    (
        "no-strict",
        {"tools": [{"type": "function", "function": {"name": "f", "strict": False}}]},
        {"tools": [{"type": "function", "function": {"name": "f"}}]},
        [],
    ),
    (
        "no-allowed-tools",
        {"tools": [*map(function_tool, "fgh")], "tool_choice": allow("required", "f", "h")},
        {"tools": [*map(function_tool, "fh")], "tool_choice": "required"},
        [("choice-mapped", "/tool_choice")],
    ),
    (
        "no-allowed-tools",
        {"tools": [*map(function_tool, "fg")], "tool_choice": allow("auto", "g", "unknown")},
        {"tools": [function_tool("g")], "tool_choice": "auto"},
        [("choice-mapped", "/tool_choice")],
    ),
    (
        "no-allowed-tools",
        {"model": "m", "tools": [function_tool("f")], "tool_choice": allow("auto", "unknown")},
        {"model": "m"},
        [("choice-mapped", "/tool_choice")],
    ),
    ("no-allowed-tools", {"tool_choice": "auto"}, {"tool_choice": "auto"}, []),
    ("unforced", {"tool_choice": "auto"}, {"tool_choice": "auto"}, []),
    ("unforced", {"tool_choice": "none"}, {"tool_choice": "none"}, []),
    ("unforced", {"tools": []}, {"tools": []}, []),
    ("unforced", {"tool_choice": "required"}, {"tool_choice": "auto"}, [("choice-weakened", "/tool_choice")]),
    (
        "unforced",
        {"tool_choice": {"type": "function", "function": {"name": "f"}}},
        {"tool_choice": "auto"},
        [("choice-weakened", "/tool_choice")],
    ),
    ("no-parallel-flag", {"parallel_tool_calls": False}, {}, [("no-counterpart", "/parallel_tool_calls")]),
    ("no-parallel-flag", {"parallel_tool_calls": True}, {}, []),
    (
        "no-store-fields",
        {"model": "m", "store": True, "metadata": {"a": "b"}, "prompt_cache_key": "medium", "verbosity": "low"},
        {"model": "m"},
        [
            ("no-counterpart", "/store"),
            ("no-counterpart", "/metadata"),
            ("no-counterpart", "/prompt_cache_key"),
            ("no-counterpart", "/verbosity"),
        ],
    ),
    ("no-store-fields", {"model": "m", "store": False, "metadata": {}, "verbosity": "medium"}, {"model": "m"}, []),
]


@pytest.mark.parametrize(("name", "body", "expected", "noted"), CHANGED)
def test_a_body_is_bent_and_what_is_lost_is_named(
    name: str, body: Any, expected: Any, noted: list[tuple[str, str]]
) -> None:
    out, ledger = bent("openai-chat", name, body)
    assert out == expected
    assert codes(ledger) == noted
    translated = bent("openai-chat", name, body, source="anthropic")[1]
    assert [code for code, _ in codes(translated)] == [code for code, _ in noted]
    assert {path for _, path in codes(translated)} <= {""}, "of another protocol's request the place is not known"


ORDINARY = {
    "model": "m",
    "messages": [
        {"role": "system", "content": "s"},
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": "u"}}]},
        {"role": "assistant", "content": "", "tool_calls": CALLS, "reasoning_content": "So."},
        {"role": "tool", "tool_call_id": "c", "content": "r"},
    ],
    "tools": [{"type": "function", "function": {"name": "f", "description": "d"}}],
    "max_tokens": 5,
}
ODD: list[Any] = [{}, {"messages": None, "tools": {}}, {"messages": [None, 1], "tools": [None, {"function": 1}]}]


@pytest.mark.parametrize("name", [name for name, quirk in CHAT.quirks.items() if quirk.rewrite_body is not None])
def test_nothing_to_do_gives_the_very_same_body(name: str) -> None:
    ordinary = ORDINARY if name != "new-tokens-key" else {key: ORDINARY[key] for key in ORDINARY if key != "max_tokens"}
    for body in (ordinary, *ODD):
        out, ledger = bent("openai-chat", name, body)
        assert out is body
        assert not ledger.losses


@pytest.mark.parametrize("protocol", CODECS)
def test_a_quirk_says_what_it_is_about_and_names_real_rules(protocol: str) -> None:
    for name, quirk in find_codec(protocol).quirks.items():
        assert quirk.about
        assert (
            quirk.constraints or quirk.rewrite_body or quirk.http or name == "repeated-deltas"
        )  # that one only keeps streams from passing
        assert set(quirk.constraints) <= set(Constraints.__struct_fields__)
        assert set(quirk.http) <= set(Http.__struct_fields__)


ANTHROPIC = find_codec("anthropic")
PLAIN_MESSAGES: Any = {
    "system": [{"type": "text", "text": "s", "cache_control": {"type": "ephemeral"}}],
    "messages": [
        {"role": "user", "content": "u"},
        {"role": "assistant", "content": [{"type": "thinking"}, {"type": "tool_use", "id": "c", "name": "f"}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": [{"type": "text"}]}]},
    ],
    "tools": [{"name": "f", "input_schema": {}}],
    "metadata": {"user_id": "user_1-2"},
}


@pytest.mark.parametrize("name", [name for name, quirk in ANTHROPIC.quirks.items() if quirk.rewrite_body is not None])
def test_nothing_to_do_gives_the_very_same_messages(name: str) -> None:
    odd = [{"role": "system"}, {"role": "user", "content": [None, {"type": "tool_result", "content": [1]}]}]
    plain = PLAIN_MESSAGES if name != "no-cache" else {**PLAIN_MESSAGES, "system": "s"}
    for body in (plain, {**ODD[0]}, ODD[1], {"messages": odd[1:], "tools": [None], "metadata": 1}):
        out, ledger = bent("anthropic", name, body)
        assert out is body
        assert not ledger.losses


def test_cache_breakpoints_are_left_out_at_any_depth() -> None:
    mark = {"cache_control": {"type": "ephemeral"}}
    inner = {"type": "tool_result", "tool_use_id": "c", "content": [{"type": "text", "text": "r"} | mark]}
    body = mark | {
        "system": [{"type": "text", "text": "s"} | mark],
        "tools": [{"name": "f", "input_schema": {}} | mark],
        "messages": [{"role": "user", "content": [inner | mark, {"type": "text", "text": "u"} | mark]}],
    }
    out, ledger = bent("anthropic", "no-cache", body)
    assert "cache_control" not in str(out)
    assert out["messages"][0]["content"][0]["content"] == [{"type": "text", "text": "r"}]
    assert codes(ledger) == [("cache-dropped", "")]


@pytest.mark.parametrize(
    ("name", "body", "expected", "noted"),
    [
        ("no-sampling", {"input": "x", "temperature": 1, "top_p": None}, {"input": "x"}, []),
        ("no-sampling", {"input": "x", "temperature": 0}, {"input": "x"}, [("no-counterpart", "/temperature")]),
        (
            "no-reasoning",
            {"input": "x", "reasoning": {"effort": "low"}, "include": ["reasoning.encrypted_content", "message.x"]},
            {"input": "x", "include": ["message.x"]},
            [("no-counterpart", "/reasoning")],
        ),
    ],
)
def test_a_response_is_asked_for_without_what_its_server_refuses(
    name: str, body: Any, expected: Any, noted: list[tuple[str, str]]
) -> None:
    out, ledger = bent("openai-responses", name, body)
    assert (out, codes(ledger)) == (expected, noted)
    assert bent("openai-responses", name, expected)[0] is expected


def test_instructions_alone_go_to_the_top() -> None:
    body = {"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}], "system": "t"}
    out, ledger = bent("anthropic", "no-system-turns", body)
    texts = [{"type": "text", "text": "t"}, {"type": "text", "text": "s"}]
    assert out == {"messages": [{"role": "user", "content": "u"}], "system": texts}
    assert codes(ledger) == [("system-moved", "/messages/0")]


LATER: dict[str, Any] = {
    "max_tokens": 9000,
    "messages": [
        {"role": "user", "content": "u"},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "f", "input": {}, "caller": {"type": "direct"}}]},
    ],
    "tools": [{"name": "f", "input_schema": {}, "strict": True}],
    "tool_choice": {"type": "auto", "disable_parallel_tool_use": True},
    "thinking": {"type": "adaptive", "display": "updates"},
    "output_config": {"effort": "high"},
}  # fmt: skip


def test_small_members_that_came_later_are_left_out() -> None:
    out, ledger = bent("anthropic", "no-later-members", LATER)
    assert (out["tools"], out["tool_choice"]) == ([{"name": "f", "input_schema": {}}], {"type": "auto"})
    assert (out["thinking"], "caller" in str(out["messages"])) == ({"type": "adaptive"}, False)
    places = ["/thinking/display", "/tool_choice/disable_parallel_tool_use", "/tools/0/strict"]
    assert codes(ledger) == [("no-counterpart", place) for place in (*places, "/messages/1/content/0/caller")]


def test_an_effort_is_left_out_and_a_format_stays() -> None:
    out, ledger = bent("anthropic", "no-effort", LATER)
    assert ("output_config" in out, codes(ledger)) == (False, [("no-counterpart", "/output_config/effort")])
    config = {"effort": "low", "format": {"type": "json_schema", "schema": {}}}
    out, _ = bent("anthropic", "no-effort", LATER | {"output_config": config})
    assert out["output_config"] == {"format": config["format"]}


@pytest.mark.parametrize(
    ("more", "thinking"),
    [
        ({}, {"type": "enabled", "display": "updates", "budget_tokens": 8999}),
        ({"output_config": {"effort": "low"}}, {"type": "enabled", "display": "updates", "budget_tokens": 4096}),
        ({"max_tokens": 1024}, None),
        ({"tool_choice": {"type": "any"}}, None),
    ],
)
def test_adaptive_thinking_gets_a_budget(more: dict[str, Any], thinking: Any) -> None:
    out, ledger = bent("anthropic", "no-adaptive-thinking", LATER | more)
    assert (out.get("thinking"), codes(ledger)) == (thinking, [("thinking-mapped", "/thinking")])


SAID = [
    ("openai-chat", "no-stream-options", "{'type': 'extra_forbidden', 'loc': ('body', 'stream_options')}"),
    ("openai-chat", "no-store-fields", "property 'store' is unsupported"),
    ("openai-chat", "no-parallel-flag", "Unrecognized request argument supplied: parallel_tool_calls"),
    ("openai-chat", "no-strict", "tools.0.function.strict: Extra inputs are not permitted"),
    ("openai-chat", "no-store-fields", '[{"type":"extra_forbidden","loc":["body","store"],"msg":"Extra inputs"}]'),
    ("openai-chat", "no-store-fields", "Additional properties are not allowed ('store' was unexpected)"),
    ("openai-chat", "no-store-fields", "metadata\n  extra fields not permitted (type=value_error.extra)"),
    ("openai-chat", "no-store-fields", 'Invalid JSON payload received. Unknown name "store": Cannot find field.'),
    ("openai-chat", "no-stream-options", "Argument not supported on this model: stream_options"),
    ("openai-chat", "no-stream-options", "Unrecognized request arguments supplied: foo, stream_options"),
    ("openai-chat", "no-sampling", "temperature and top_p are not supported for model `m-5.1`."),
    ("openai-chat", "no-effort", "body.reasoning_effort: Extra inputs are not permitted"),
    ("openai-chat", "no-allowed-tools", "tool_choice: unknown variant `allowed_tools`, expected `function`"),
    ("openai-chat", "no-developer-role", "messages[0].role: unknown variant `developer`, expected one of `system`"),
    ("openai-chat", "no-developer-role", "Unexpected message role."),
    ("openai-chat", "system-first", "System message must be at the beginning."),
    (
        "openai-chat",
        "new-tokens-key",
        "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.",
    ),
    (
        "openai-chat",
        "no-sampling",
        "Unsupported value: 'temperature' does not support 0 with this model. Only the default (1) value is supported.",
    ),
    ("openai-chat", "no-sampling", "Unsupported parameter: 'top_p' is not supported with this model."),
    ("openai-chat", "no-effort", "Unrecognized request argument supplied: reasoning_effort"),
    ("openai-responses", "no-sampling", "Unsupported parameter: 'temperature' is not supported with this model."),
    ("openai-responses", "no-reasoning", "Unsupported parameter: 'reasoning.effort' is not supported with this model."),
    ("openai-responses", "no-reasoning", "Encrypted content is not supported with this model."),
    ("anthropic", "no-cache", "system.0.cache_control: Extra inputs are not permitted"),
    ("anthropic", "no-cache", 'json: unknown field "cache_control"'),
    (
        "openai-chat",
        "reasoning-required",
        "The `reasoning_content` in the thinking mode must be passed back to the API.",
    ),
    ("anthropic", "no-system-turns", "messages[1].role: unknown variant `system`, expected `user` or `assistant`"),
    ("anthropic", "no-tool-search", "messages[3].content: unknown variant `tool_addition`"),
    ("anthropic", "no-betas", "context_management: Extra inputs are not permitted"),
    ("anthropic", "no-betas", "Unexpected value(s) `effort-2025-11-24` for the `anthropic-beta` header."),
    ("anthropic", "no-betas", "tools.3.custom.input_examples: Extra inputs are not permitted"),
    ("anthropic", "no-betas", "system.2.cache_control.ephemeral.scope: Extra inputs are not permitted"),
    ("anthropic", "thinking-back", "The `content[].thinking` in the thinking mode must be passed back to the API."),
    (
        "openai-chat",
        "reasoning-required",
        "Missing `reasoning_content` field in the assistant message at message index 1.",
    ),
    ("anthropic", "no-effort", "output_config: Extra inputs are not permitted"),
    ("anthropic", "no-effort", "Unknown field: output_config"),
    ("anthropic", "no-adaptive-thinking", "thinking.type: Input should be 'enabled' or 'disabled'"),
    ("anthropic", "no-adaptive-thinking", "adaptive thinking is not supported on this model"),
    (
        "anthropic",
        "no-adaptive-thinking",
        "thinking: Input tag 'adaptive' found using 'type' does not match any of the expected tags",
    ),
    ("anthropic", "no-later-members", "tools.0.custom.strict: Extra inputs are not permitted"),
    ("anthropic", "no-later-members", "messages.2.content.0.tool_use.caller: Extra inputs are not permitted"),
    ("anthropic", "no-later-members", "thinking.adaptive.display: Extra inputs are not permitted"),
    ("anthropic", "plain-user-id", "Invalid 'user_id': string does not match pattern."),
]
"""What servers have said; the places where it was reported are in the modules of the quirks."""


@pytest.mark.parametrize(
    ("protocol", "name", "words"), SAID, ids=[f"{name}-{at}" for at, (_, name, _) in enumerate(SAID)]
)
def test_what_a_server_says_shows_its_quirk(protocol: str, name: str, words: str) -> None:
    patterns = {one: quirk.refusal for one, quirk in find_codec(protocol).quirks.items() if quirk.refusal is not None}
    assert [one for one, pattern in patterns.items() if pattern.search(words)] == [name]


@pytest.mark.parametrize(
    "words",
    [
        "messages: roles must alternate between user and assistant",
        "max_tokens: 200000 > 64000, which is the maximum allowed number of output tokens",
        "prompt is too long: 210000 tokens > 200000 maximum",
        "messages.1.content.0: Invalid `signature` in `thinking` block",
        "tools.0.name: String should match pattern '^[a-zA-Z0-9_-]{1,128}$'",
        "Invalid schema for function 'f': True is not of type 'array'.",
        # A value
        "Unsupported value: 'reasoning_effort' does not support 'none' with this model. Supported values are: 'low'.",
        "Unsupported value: 'temperature'",
        "reasoning_effort: unknown variant `none`, expected one of `low`, `high`",
        "Unexpected value for reasoning_effort",
        "reasoning_effort 'xhigh' is not supported",
        # A condition
        "top_logprobs is not allowed unless logprobs is true",
        "cache_control is not supported for deferred tools",
        "Unsupported parameter: 'temperature' is not supported when thinking is enabled.",
        "temperature is not supported with reasoning",
        "When thinking is enabled, `temperature` is not supported.",
        # A member inside of it, or one of the same name somewhere else
        "Unsupported parameter: 'reasoning.summary' is not supported with this model.",
        "Unknown parameter: 'reasoning.context'.",
        "Unknown parameter: 'input[2].reasoning'.",
        "metadata.user: Extra inputs are not permitted",
        "messages.0.metadata: Extra inputs are not permitted",
        "{'type': 'extra_forbidden', 'loc': ('body', 'messages', 0, 'metadata')}",
        "{'type': 'extra_forbidden', 'loc': ('body', 'stream_options', 'continuous_usage_stats')}",
        "messages.1.content.0.thinking.cache_control: Extra inputs are not permitted",
        "cache_control.ttl: Extra inputs are not permitted",
        "output_config.format: Extra inputs are not permitted",
        # Another member
        "unknown field `foo`, expected one of `model`, `temperature`, `store`",
        # Words that nobody writes, and that would take long to look at
        "metadata" + " " * 4000 + "not supported",
    ],
)
def test_other_words_show_none(words: str) -> None:
    quirks = [quirk for protocol in CODECS for quirk in find_codec(protocol).quirks.values()]
    assert not [quirk.about for quirk in quirks if quirk.refusal is not None and quirk.refusal.search(words)]


def test_the_quirks_there_are() -> None:
    assert set(CHAT.quirks) == {
        "nine-letter-ids",
        "function-tools-only",
        "no-hosted-tools",
        "empty-content",
        "plain-text-content",
        "short-descriptions",
        "max-tokens-key",
        "new-tokens-key",
        "no-sampling",
        "no-effort",
        "reasoning-required",
        "no-developer-role",
        "no-stream-options",
        "system-first",
        "repeated-deltas",
        "sealed-reasoning",
        "sealed-calls",
        "reasoning-back",
        "thinking-unforced",
        "unforced",
        "schema-for-calls",
        "frames-for-calls",
        "guided-json",
        "no-strict",
        "no-allowed-tools",
        "at-most-128-tools",
        "no-parallel-flag",
        "no-store-fields",
    }
    assert set(find_codec("gemini").quirks) == {"no-ids", "no-hosted-tools"}
    assert set(find_codec("anthropic").quirks) == {
        "block-cache",
        "no-cache",
        "no-hosted-tools",
        "no-system-turns",
        "no-tool-search",
        "no-betas",
        "no-effort",
        "no-adaptive-thinking",
        "no-later-members",
        "thinking-back",
        "plain-user-id",
    }
    assert set(find_codec("openai-responses").quirks) == {
        "no-sampling",
        "no-reasoning",
        "no-hosted-tools",
        "at-most-128-tools",
    }
    assert LOSS_CODES["description-cut"][0] == "lost"


@pytest.mark.parametrize(
    "server", ["vllm", "groq", "mistral", "deepseek", "ollama", "llamacpp", "lmstudio", "xai", "openrouter"]
)
def test_servers_that_do_not_know_allowed_tools_have_the_quirk(server: str) -> None:
    assert "no-allowed-tools" in known_servers()[server].quirks


# --- ids of nine letters --------------------------------------------------------------------------------------------


def calls(*given: str) -> Request:
    """A history in which every id is called and answered, in turn."""
    turns = [
        turn
        for number, id in enumerate(given)
        for turn in (
            Turn("user", (Text(f"{number}"),)),
            Turn("assistant", (Call(id, "f", f'{{"n":{number}}}'),)),
            Turn("tool", (Result(id, (Text(f"result {number}"),)),)),
        )
    ]
    return Request("m", turns=tuple(turns))


def pair_calls(request: Request) -> list[tuple[str, str, str, str]]:
    """Every call with its result: both ids, the arguments, and the text."""
    parts = [part for turn in request.turns for part in turn.parts if isinstance(part, (Call, Result))]
    found: list[tuple[str, str, str, str]] = []
    for call, result in zip(parts[::2], parts[1::2], strict=True):
        assert isinstance(call, Call)
        assert isinstance(result, Result)
        text = result.content[0]
        assert isinstance(text, Text)
        found.append((call.id, result.id, call.arguments, text.text))
    return found


def adapt_for_chat(request: Request, source: str = "anthropic") -> Request:
    return adapt_request(request, variant(CHAT, "nine-letter-ids"), Ledger(source, CHAT.name), Options())[0]


@pytest.mark.parametrize(
    "given",
    [
        ("toolu_01A09q90qw90lq917835lq9",),
        ("call_1", "call_2", "call_3"),
        ("call_1", "call_1", "call_1"),
        ("a b", "a_b", "a-b"),
        ("x" * 200, "x" * 199),
        ("", "", ""),
        ("abcdefgh1", "abcdefgh1", "abcdefgh2"),
        ("ünïcødé", "日本語"),
    ],
)
def test_ids_become_nine_letters_stay_apart_and_keep_their_pairs(given: tuple[str, ...]) -> None:
    for source in ("anthropic", "openai-responses"):
        found = pair_calls(adapt_for_chat(calls(*given), source))
        assert all(NINE.fullmatch(call) for call, _, _, _ in found)
        assert [call for call, _, _, _ in found] == [result for _, result, _, _ in found]
        assert len({call for call, _, _, _ in found}) == len(given)
        assert [text for _, _, _, text in found] == [f"result {number}" for number in range(len(given))]


@given(st.lists(st.text(min_size=1, max_size=12), min_size=1, max_size=8))
def test_any_ids_become_nine_letters(given: list[str]) -> None:
    found = pair_calls(adapt_for_chat(calls(*given)))
    assert len({call for call, _, _, _ in found}) == len(given)
    assert all(NINE.fullmatch(call) and call == result for call, result, _, _ in found)


def test_an_id_of_nine_letters_is_the_servers_own_and_passes() -> None:
    assert pair_calls(adapt_for_chat(calls("D681PevKs", "call_1")))[0][0] == "D681PevKs"


def test_the_ids_of_a_history_do_not_change_as_it_grows() -> None:
    short, longer = (
        pair_calls(adapt_for_chat(calls("call_1", "", "call_1"))),
        pair_calls(adapt_for_chat(calls("call_1", "", "call_1", "call_9", ""))),
    )
    assert longer[:3] == short


@pytest.mark.parametrize("name", ["a", "_", "Z9_a", "_0", "x" * 64])
def test_every_identifier_is_a_name_of_a_tool_in_every_room(name: str) -> None:
    for plain in CODECS.values():
        for rules in (plain.constraints, *(variant(plain, quirk).constraints for quirk in plain.quirks)):
            assert len(name) > rules.max_tool_name_length or rules.tool_name_pattern.fullmatch(name)


def test_a_result_without_its_call_has_a_legal_id_too() -> None:
    lone = Request("m", turns=(Turn("user", (Text("a"),)), Turn("tool", (Result("toolu_1", (Text("r"),)),))))
    rules = variant(CHAT, "nine-letter-ids").constraints
    made = ids.make_legal_id("toolu_1", rules.call_id_pattern, rules.max_call_id_length)
    assert NINE.fullmatch(made)
    out = normalise_call_ids(lone, rules, Ledger("a", "b"), request_features(lone))[0]
    results = [part for turn in out.turns for part in turn.parts if isinstance(part, Result)]
    assert [result.id for result in results] == [made]


@pytest.mark.parametrize("limit", [1, 5, 9, 12, 13, 14, 40])
def test_a_rewritten_id_is_never_longer_than_it_may_be(limit: int) -> None:
    made = {ids.make_legal_id(f"call {number}", ids.SAFE_ID_PATTERN, limit) for number in range(10)}
    assert all(ids.is_legal_id(id, ids.SAFE_ID_PATTERN, limit) for id in made)
    assert limit < 5 or len(made) == 10


def test_a_whole_exchange_with_such_a_server() -> None:
    body = {
        "model": "m",
        "max_tokens": 100,
        "messages": [
            {"role": "user", "content": "Weather?"},
            {
                "role": "assistant",
                "content": [
                    {"type": "tool_use", "id": "toolu_01", "name": "f", "input": {"a": 1}},
                    {"type": "tool_use", "id": "toolu_02", "name": "f", "input": {"a": 2}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "toolu_02", "content": "two"},
                    {"type": "tool_result", "tool_use_id": "toolu_01", "content": "one"},
                ],
            },
        ],
        "tools": [{"name": "f", "input_schema": {"type": "object"}}],
    }
    messages = (
        Exchange(find_codec("anthropic"), variant(CHAT, "nine-letter-ids")).translate_request(body).json()["messages"]
    )
    said = {call["function"]["arguments"]: call["id"] for call in messages[1]["tool_calls"]}
    told = {message["content"]: message["tool_call_id"] for message in messages[2:]}
    assert all(NINE.fullmatch(id) for id in said.values())
    assert told == {"one": said['{"a":1}'], "two": said['{"a":2}']}


def test_custom_tools_are_wrapped_for_servers_that_know_only_functions() -> None:
    body = {
        "model": "m",
        "input": "x",
        "tools": [{"type": "custom", "name": "apply_patch", "format": {"type": "text"}}],
    }
    responses = find_codec("openai-responses")
    plain = Exchange(responses, CHAT).translate_request(body).json()["tools"]
    wrapped = Exchange(responses, variant(CHAT, "function-tools-only")).translate_request(body).json()["tools"]
    assert [tool["type"] for tool in plain] == ["custom"]
    assert [tool["type"] for tool in wrapped] == ["function"]


# --- servers without ids --------------------------------------------------------------------------------------------


def test_ids_are_left_out_and_results_follow_the_order_of_their_calls() -> None:
    call = {"functionCall": {"id": "a", "name": "f", "args": {}}, "thoughtSignature": "AA=="}
    other = {"functionCall": {"id": "b", "name": "f", "args": {}}}
    first = {"functionResponse": {"id": "a", "name": "f", "response": {"output": 1}}}
    second = {"functionResponse": {"id": "b", "name": "f", "response": {"output": 2}}}
    text = {"text": "and?"}
    body = {
        "contents": [
            {"role": "user", "parts": [{"text": "q"}]},
            {"role": "model", "parts": [call, other]},
            {"role": "user", "parts": [second, first, text]},
        ]
    }
    out, ledger = bent("gemini", "no-ids", body)
    assert out["contents"][0] is body["contents"][0]
    assert out["contents"][1]["parts"] == [
        {"functionCall": {"name": "f", "args": {}}, "thoughtSignature": "AA=="},
        {"functionCall": {"name": "f", "args": {}}},
    ]
    assert [part.get("functionResponse", part) for part in out["contents"][2]["parts"]] == [
        {"name": "f", "response": {"output": 1}},
        {"name": "f", "response": {"output": 2}},
        text,
    ]
    assert codes(ledger) == [("no-counterpart", "/contents/1"), ("no-counterpart", "/contents/2")]


def test_contents_without_ids_are_left_alone() -> None:
    for body in ({}, {"contents": None}, {"contents": [None, {"parts": [None, {"functionCall": {"name": "f"}}]}]}):
        out, ledger = bent("gemini", "no-ids", body)
        assert out is body
        assert not ledger.losses
