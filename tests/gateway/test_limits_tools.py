"""Tools that the provider runs, under a hard limit in dollars: those whose price is unknown or not counted are refused,
in every protocol, translated or not, unless a rule has dropped them before."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from configs import load_config
from gateway.raw_exchange import (
    RawAnswer,
    Scene,
    ScriptedConnection,
    Served,
    answer,
    ask,
    call,
    open_call,
    play_script,
    stage,
)
from gateway.test_limits import expect_refusal, read_used_counters, reservations_of
from toolwire.gateway.features.limits.counters import Charge, Reserved
from toolwire.gateway.features.limits.hosted_tools import HostedTool
from toolwire.gateway.models.prices import find_prices
from toolwire.gateway.store.store import StoreDown
from toolwire.protocols import CODECS
from toolwire_conformance.peers.peer import encode_json
from waits import PATIENCE

LIMIT = '[[limits]]\nname = "budget"\ndollars_per_day = 100\n'
PRICES = "".join(
    f'[models."{kind}-*"]\nprovider = "{provider}"\n[models."{kind}-*".facts.prices]\ninput = 10\noutput = 20\n{search}'
    for provider in ("chat", "responses", "anthropic", "gemini")
    for kind, search in ((f"{provider}-priced", "search = 10\n"), (f"{provider}-unsearched", ""))
)
FUNCTION = {"name": "look", "parameters": {"type": "object", "properties": {}}}
FUNCTIONS: dict[str, dict[str, Any]] = {
    "openai-chat": {"type": "function", "function": FUNCTION},
    "openai-responses": {"type": "function", **FUNCTION},
    "anthropic": {"name": "look", "input_schema": {"type": "object", "properties": {}}},
    "gemini": {"functionDeclarations": [{"name": "look"}]},
    "unified": {"name": "look", "description": "Looks.", "parameters": FUNCTION["parameters"]},
}
Row = tuple[str, dict[str, Any], str]
"""The client's protocol, what it sends, and the word that the refusal has."""
UNCOUNTED: dict[str, Row] = {
    "OpenAI's containers": (
        "openai-responses",
        {"tools": [{"type": "code_interpreter", "container": {"type": "auto"}}]},
        "code_interpreter",
    ),
    "OpenAI's pictures": ("openai-responses", {"tools": [{"type": "image_generation"}]}, "image_generation"),
    "OpenAI's files": ("openai-responses", {"tools": [{"type": "file_search", "vector_store_ids": []}]}, "file_search"),
    "OpenAI's shell": (
        "openai-responses",
        {"tools": [{"type": "shell", "environment": {"type": "container_auto"}}]},
        "shell",
    ),
    "a tool that nobody knows": ("openai-responses", {"tools": [{"type": "brand_new"}]}, "brand_new"),
    "tools that a turn adds": (
        "openai-responses",
        {
            "input": [
                {"type": "additional_tools", "role": "developer", "tools": [{"type": "image_generation"}]},
                {"role": "user", "content": "Hi"},
            ]
        },
        "image_generation",
    ),
    "tools that a search has found": (
        "openai-responses",
        {
            "input": [
                {"type": "tool_search_output", "execution": "server", "tools": [{"type": "image_generation"}]},
                {"role": "user", "content": "Hi"},
            ]
        },
        "image_generation",
    ),
    "a stored prompt": ("openai-responses", {"prompt": {"id": "pmpt_1"}}, "prompt"),
    "a search of xAI": ("openai-responses", {"search_parameters": {"mode": "on"}}, "search_parameters"),
    "Chat's own search": ("openai-chat", {"web_search_options": {}}, "web_search"),
    "a search of Qwen": ("openai-chat", {"enable_search": True}, "enable_search"),
    "a plugin of OpenRouter": ("openai-chat", {"plugins": [{"id": "web"}]}, "plugins"),
    "a tool of OpenRouter": ("openai-chat", {"tools": [{"type": "openrouter:web_search"}]}, "openrouter:web_search"),
    "a search of Baidu": ("openai-chat", {"web_search": {"enable": True}}, "web_search"),
    "a search that a server has invented": ("openai-chat", {"enableSearch": True}, "enableSearch"),
    "other models of OpenRouter": ("openai-chat", {"models": ["other/dear"]}, "models"),
    "… after a fallback": ("anthropic", {"fallbacks": [{"model": "dear"}]}, "fallbacks"),
    "a setting in another spelling": ("anthropic", {"Speed": "fast"}, "Speed"),
    "a tier": ("openai-chat", {"service_tier": "priority"}, "service_tier"),
    "… of Responses": ("openai-responses", {"service_tier": "priority"}, "service_tier"),
    "a tier that nobody knows": ("openai-responses", {"service_tier": "ultrafast"}, "service_tier"),
    "… of Google": ("gemini", {"serviceTier": "SERVICE_TIER_PRIORITY"}, "serviceTier"),
    "an agent of Google": ("gemini", {"agent": "deep-research"}, "agent"),
    "Google's armour": ("gemini", {"modelArmorConfig": {"promptTemplateName": "x"}}, "modelArmorConfig"),
    "spoken answers": ("openai-chat", {"modalities": ["text", "audio"], "audio": {"voice": "a"}}, "modalities"),
    "spoken questions": (
        "openai-chat",
        {
            "messages": [
                {"role": "user", "content": [{"type": "input_audio", "input_audio": {"data": "", "format": "wav"}}]}
            ]
        },
        "input_audio",
    ),
    "Anthropic's code": (
        "anthropic",
        {"tools": [{"type": "code_execution_20250825", "name": "code_execution"}]},
        "code_execution_20250825",
    ),
    "Anthropic's containers": ("anthropic", {"container": "container_1"}, "container"),
    "Anthropic's advisor": (
        "anthropic",
        {"tools": [{"type": "advisor_20260301", "name": "advisor"}]},
        "advisor_20260301",
    ),
    "Anthropic's fast mode": ("anthropic", {"speed": "fast"}, "speed"),
    "a plugin of OpenRouter in Messages": ("anthropic", {"plugins": [{"id": "web"}]}, "plugins"),
    "Anthropic in one country": ("anthropic", {"inference_geo": "us"}, "inference_geo"),
    "Google's search": ("gemini", {"tools": [{"googleSearch": {}}]}, "web_search"),
    "… in the other spelling": ("gemini", {"tools": [{"google_search": {}}]}, "web_search"),
    "Google's maps": ("gemini", {"tools": [{"googleMaps": {}}]}, "maps"),
    "Google's search for companies": ("gemini", {"tools": [{"enterpriseWebSearch": {}}]}, "enterpriseWebSearch"),
    "a cache, which may have tools": ("gemini", {"cachedContent": "cachedContents/1"}, "cachedContent"),
}
FREE: dict[str, tuple[str, dict[str, Any]]] = {
    "an OpenAI computer": ("openai-responses", {"tools": [{"type": "computer"}]}),
    "a local shell": ("openai-responses", {"tools": [{"type": "local_shell"}, {"type": "apply_patch"}]}),
    "an MCP server at OpenAI": (
        "openai-responses",
        {"tools": [{"type": "mcp", "server_label": "x", "server_url": "https://x.example"}]},
    ),
    "OpenAI's search": ("openai-responses", {"tools": [{"type": "web_search"}]}),
    "Anthropic's search": ("anthropic", {"tools": [{"type": "web_search_20250305", "name": "web_search"}]}),
    "Anthropic's pages": ("anthropic", {"tools": [{"type": "web_fetch_20250910", "name": "web_fetch"}]}),
    "tools that a client of Anthropic runs": (
        "anthropic",
        {
            "tools": [
                {"type": "bash_20250124", "name": "bash"},
                {"type": "text_editor_20250728", "name": "str_replace_based_edit_tool"},
                {"type": "memory_20250818", "name": "memory"},
                {"type": "computer_20250124", "name": "computer", "display_width_px": 9, "display_height_px": 9},
            ]
        },
    ),
    "Google's pages and code": ("gemini", {"tools": [{"urlContext": {}}, {"codeExecution": {}}, {"computerUse": {}}]}),
    "Anthropic's usual mode": ("anthropic", {"speed": "standard", "inference_geo": "global"}),
    "a usual tier": ("openai-chat", {"service_tier": "auto"}),
    "written answers": ("openai-chat", {"modalities": ["text"]}),
    "a choice among a model's providers": ("openai-chat", {"provider": {"order": ["x"]}, "transforms": ["middle-out"]}),
    "settings of servers": ("openai-chat", {"top_k": 4, "enable_thinking": True, "chat_template_kwargs": {"x": 1}}),
    "settings of hosts": (
        "openai-chat",
        {
            **dict.fromkeys(("reasoning_split", "disable_reasoning", "clear_thinking"), True),
            **dict.fromkeys(("prompt_cache_isolation_key", "reasoning_history"), "x"),
            **{key: {"x": "y"} for key in ("chat_template_args", "nvext", "client_metadata")},
        },
    ),
    "settings of hosts in Responses": (
        "openai-responses",
        {"thinking": {"type": "enabled"}, "enable_thinking": True, "verbosity": "low"},
    ),
    "a choice among a model's providers in Messages": (
        "anthropic",
        {"provider": {"order": ["x"]}, "route": "fallback", "session_id": "s", "trace": {"a": "b"}, "user": "u"},
    ),
    "Google's usual tier": ("gemini", {"serviceTier": "unspecified"}),
    "… in capitals": ("gemini", {"service_tier": "SERVICE_TIER_UNSPECIFIED"}),
    "a search that is off": ("openai-chat", {"enable_search": False, "plugins": []}),
}


@contextmanager
def serve(folder: Path, limit: str = LIMIT, more: str = "") -> Iterator[Served]:
    with stage(folder, 'log_format = "json"\n', f'[store]\nurl = "none"\n{PRICES}{limit}{more}') as served:
        yield served


def priced_scene(served: Served, protocol: str, kind: str = "priced", play: bytes | None = None) -> Scene:
    provider = protocol.removeprefix("openai-")
    return served.scene(protocol, play or play_script(protocol, False), model=f"{provider}-{kind}")


def send(served: Served, client: str, scene: Scene, **fields: Any) -> RawAnswer:
    return call(served, client, scene.name, False, **fields)


@pytest.mark.parametrize("beside", ["alone", "beside a function"])
@pytest.mark.parametrize("kind", UNCOUNTED)
def test_a_tool_that_nobody_can_count_does_not_pass_a_limit_in_dollars(kind: str, beside: str, tmp_path: Path) -> None:
    client, fields, name = UNCOUNTED[kind]
    if beside != "alone":
        fields = {**fields, "tools": [FUNCTIONS[client], *fields.get("tools", ())]}
    with serve(tmp_path) as served:
        scene = priced_scene(served, client)
        message = expect_refusal(client, send(served, client, scene, **fields), 403)
        provider = client.removeprefix("openai-")
        assert re.match(
            rf"what `{name}` costs (at `{provider}`|with `{provider}/{provider}-priced\S*`) is not known", message
        )
        is_unknown = not CODECS[client].request_members.outermost.issuperset(UNCOUNTED[kind][1])
        assert ("choose tools and models by such members" in message) == is_unknown
        has_priced_tier = name in ("service_tier", "serviceTier", "speed") and kind != "a tier that nobody knows"
        assert (re.search("the tier `(priority|fast)` has no price", message) is not None) == has_priced_tier
        assert ("remove its [models.NAME.facts.prices]" in message) == has_priced_tier
        assert "the limit `budget` in dollars refuses it" in message
        assert "the operator of this gateway can " in message
        assert message.endswith('set on_unknown_price = "open" in the limit `budget`')
        assert ("drop = true" in message) == (
            not {"tools", "input", "web_search_options"}.isdisjoint(UNCOUNTED[kind][1])
        )
        assert not scene.asked
        assert send(served, client, scene, tools=[FUNCTIONS[client]]).status == 200
        assert set(read_used_counters(served)) == {"budget/dollars_per_day"}


SEARCHING = """chat-priced-4o-search-preview chat-priced-5-search-api-2025 chat-priced-MARK:online perplexity/sonar-pro
    groq/compound-mini anthropic-priced-MARK:online"""


@pytest.mark.parametrize("model", SEARCHING.split())
def test_a_model_that_always_searches_does_not_pass_a_limit_in_dollars(model: str, tmp_path: Path) -> None:
    """Each answer has the price of a search, of which its usage says nothing."""
    more = "".join(
        f'[models."{name}*"]\nprovider = "chat"\nfacts.prices = {{ input = 10, output = 20 }}\n'
        for name in ("perplexity/", "groq/")
    )
    protocol = "anthropic" if model.startswith("anthropic") else "openai-chat"
    with serve(tmp_path, more=more) as served:
        name, _, variant = model.partition("-MARK")
        scene = served.scene(protocol, play_script(protocol, False), model=name)
        message = expect_refusal(protocol, call(served, protocol, scene.name + variant, False), 403)
        assert message.startswith(f"what `web_search` costs at `{protocol.removeprefix('openai-')}` is not known")
        assert not scene.asked


@pytest.mark.parametrize("kind", FREE)
def test_a_tool_that_is_free_or_counted_passes(kind: str, tmp_path: Path) -> None:
    client, fields = FREE[kind]
    with serve(tmp_path) as served:
        scene = priced_scene(served, client)
        assert send(served, client, scene, **fields).status == 200
        assert len(scene.asked) == 1


@pytest.mark.parametrize(
    "limit",
    [
        f'{LIMIT}on_unknown_price = "open"\n',
        f"{LIMIT}soft = true\n",
        LIMIT.replace("dollars_per_day = 100", "tokens_per_day = 100_000"),
        "",
    ],
    ids=["open", "soft", "tokens", "none"],
)
def test_only_a_hard_limit_in_dollars_refuses_tools(limit: str, tmp_path: Path) -> None:
    with serve(tmp_path, limit) as served:
        for client, fields, _ in UNCOUNTED.values():
            scene = priced_scene(served, client)
            assert send(served, client, scene, **fields).status == 200, fields


@pytest.mark.parametrize(
    ("client", "tool", "provider", "name"),
    [
        ("anthropic", {"type": "code_execution_20250825", "name": "code_execution"}, "openai-responses", "code_interpreter"),
        ("unified", {"hosted": "web_search"}, "gemini", "web_search"),
        ("openai-responses", {"type": "web_search"}, "gemini", "web_search"),
        ("openai-responses", {"type": "code_interpreter", "container": {"type": "auto"}}, "anthropic", "code_execution_20250825"),
        # What the target cannot run is not sent, and costs nothing.
        ("openai-responses", {"type": "image_generation"}, "anthropic", ""),
        ("anthropic", {"type": "code_execution_20250825", "name": "code_execution"}, "gemini", ""),
        ("gemini", {"codeExecution": {}}, "openai-responses", "code_interpreter"),
    ],
)  # fmt: skip
def test_what_is_sent_to_the_provider_decides(
    client: str, tool: dict[str, Any], provider: str, name: str, tmp_path: Path
) -> None:
    with serve(tmp_path) as served:
        scene = priced_scene(served, provider)
        got = send(served, client, scene, tools=[tool])
        if name:
            assert f"what `{name}` costs" in expect_refusal(client, got, 403)
        assert (got.status, len(scene.asked)) == ((403, 0) if name else (200, 1))


@pytest.mark.parametrize("kind", [kind for kind, row in UNCOUNTED.items() if "tools" in row[1]])
def test_a_tool_that_a_rule_drops_is_not_refused(kind: str, tmp_path: Path) -> None:
    client, fields, _ = UNCOUNTED[kind]
    with serve(tmp_path) as served:
        message = expect_refusal(client, send(served, client, priced_scene(served, client), **fields), 403)
    rule = message.partition("[[policy]] with ")[2].partition(" and drop")[0]
    with serve(tmp_path, more=f"[[policy]]\n{rule}\ndrop = true\n") as served:
        scene = priced_scene(served, client)
        got = send(served, client, scene, tools=[*fields["tools"], FUNCTIONS[client]])
        assert (got.status, len(scene.asked)) == (200, 1), got.data
        assert kind not in scene.asked[0].body.decode()


def test_a_limit_does_not_judge_what_a_provider_takes(tmp_path: Path) -> None:
    """A limit reads a request with tools. Without them nobody does, and the provider says what is wrong."""
    with serve(tmp_path) as served:
        for fields in ({}, {"tools": [FUNCTIONS["openai-chat"]]}):
            scene = priced_scene(served, "openai-chat")
            assert send(served, "openai-chat", scene, instructions="", **fields).status == 200
            assert scene.asked[0].json()["instructions"] == ""


def test_what_was_judged_is_what_is_sent(tmp_path: Path) -> None:
    """A provider may take the first of two equal keys, and the gateway the last."""
    twice = '{"model":"%s","input":"Hi","tools":[{"type":"code_interpreter","type":"function","name":"f"}]}'
    with serve(tmp_path) as served:
        scene = priced_scene(served, "openai-responses")
        assert ask(served.port, "POST", "/v1/responses", (twice % scene.name).encode()).status == 200
        assert b"code_interpreter" not in scene.asked[0].body


@pytest.mark.parametrize("protocol", ["openai-responses", "anthropic"])
def test_searches_are_counted_with_their_price(protocol: str, tmp_path: Path) -> None:
    tool = {
        "openai-responses": {"type": "web_search"},
        "anthropic": {"type": "web_search_20250305", "name": "web_search"},
    }
    whole = json.loads(play_script(protocol, False).partition(b"\r\n\r\n")[2])
    if protocol == "anthropic":
        whole["usage"] = {"input_tokens": 100, "output_tokens": 10, "server_tool_use": {"web_search_requests": 2}}
    else:
        search = {"type": "web_search_call", "status": "completed", "action": {"type": "search", "query": "x"}}
        whole["output"] = [{**search, "id": f"ws_{number}"} for number in range(2)] + whole["output"]
        whole["usage"] |= {"input_tokens": 100, "output_tokens": 10, "total_tokens": 110}
    play = answer(200, encode_json(whole).encode())
    with serve(tmp_path) as served:
        scene = priced_scene(served, protocol, play=play)
        assert send(served, protocol, scene, tools=[tool[protocol]]).status == 200
        tokens, searches = 100 * 10_000 + 10 * 20_000, 2 * 10_000_000
        assert read_used_counters(served) == {"budget/dollars_per_day": tokens + searches}
        unknown = priced_scene(served, protocol, "unsearched")
        message = expect_refusal(protocol, send(served, protocol, unknown, tools=[tool[protocol]]), 403)
        assert "what a search by `web_search" in message
        assert "add the price of a `search`" in message


def test_tools_in_a_request_that_is_only_forwarded(tmp_path: Path) -> None:
    with serve(tmp_path) as served:
        scene = priced_scene(served, "openai-chat", play=answer(200, b'{"usage":{"prompt_tokens":1}}'))
        body = {"model": scene.name, "prompt": "Hi"}
        refused = [{"tools": [{"type": "openrouter:web_search"}]}, {"plugins": [{"id": "web"}]}, {"models": ["dear"]}]
        for fields in refused:
            got = ask(served.port, "POST", "/v1/completions", json.dumps(body | fields).encode())
            assert f"what `{next(iter(fields))}` costs" in expect_refusal("openai-chat", got, 403)
        assert not scene.asked
        assert ask(served.port, "POST", "/v1/completions", json.dumps(body).encode()).status == 200


@pytest.mark.parametrize("protocol", ["openai-chat", "anthropic"])
def test_what_a_server_says_that_it_takes_counts_if_it_is_more(protocol: str, tmp_path: Path) -> None:
    """It can have used another model, or a tool, without being asked."""
    whole = json.loads(play_script(protocol, False).partition(b"\r\n\r\n")[2])
    names = ("input_tokens", "output_tokens") if protocol == "anthropic" else ("prompt_tokens", "completion_tokens")
    with serve(tmp_path) as served:
        for cost, dollars in ((0.25, 0.25), (0.0, 0.0012), (-1, 0.0012), ("much", 0.0012)):
            whole["usage"] = {**dict(zip(names, (100, 10), strict=True)), "cost": cost}
            before = read_used_counters(served).get("budget/dollars_per_day", 0)
            scene = priced_scene(served, protocol, play=answer(200, encode_json(whole).encode()))
            assert send(served, protocol, scene, provider={"sort": "throughput"}).status == 200
            assert read_used_counters(served)["budget/dollars_per_day"] - before == dollars * 10**9


NAMED_AUDIO = {
    **FUNCTION,
    "name": "input_audio",
    "parameters": {"type": "object", "properties": {"input_audio": {"enum": ["input_audio"]}}},
}
AUDIO = {"type": "input_audio", "input_audio": {"data": "", "format": "wav"}}


@pytest.mark.parametrize("provider", ["openai-chat", "openai-responses"])
@pytest.mark.parametrize("client", ["openai-chat", "openai-responses", "anthropic"])
def test_only_audio_in_the_turns_is_audio(client: str, provider: str, tmp_path: Path) -> None:
    tool = {
        "openai-chat": {"type": "function", "function": NAMED_AUDIO},
        "openai-responses": {"type": "function", **NAMED_AUDIO},
        "anthropic": {"name": "input_audio", "input_schema": NAMED_AUDIO["parameters"]},
    }[client]
    with serve(tmp_path) as served:
        scene = priced_scene(served, provider)
        assert send(served, client, scene, tools=[tool]).status == 200
        assert b'"input_audio"' in scene.asked[0].body


@pytest.mark.parametrize(
    ("protocol", "turn"),
    [
        ("openai-chat", {"role": "user", "content": [AUDIO]}),
        ("openai-chat", {"role": "tool", "tool_call_id": "c", "content": [AUDIO]}),
        ("openai-chat", {"role": "user", "content": [{"type": "new", "parts": [AUDIO]}]}),
        ("openai-responses", {"role": "user", "content": [AUDIO]}),
        ("openai-responses", {"type": "function_call_output", "call_id": "c", "output": [AUDIO]}),
        ("openai-responses", {"type": "new", "content": [AUDIO]}),
    ],
)
def test_audio_anywhere_in_the_turns_is_audio(protocol: str, turn: dict[str, Any], tmp_path: Path) -> None:
    with serve(tmp_path) as served:
        scene = priced_scene(served, protocol)
        got = send(served, protocol, scene, **{CODECS[protocol].constraints.turns_key: [turn]})
        assert "what `input_audio` costs" in expect_refusal(protocol, got, 403)


def test_a_tier_whose_price_is_known_is_counted() -> None:
    openai = load_config(None, {"OPENAI_API_KEY": "k"}).providers["openai"]
    priority = HostedTool("service_tier", service_tier="priority")
    for model, is_known in (("gpt-5", True), ("gpt-4o-audio-preview", False)):
        assert priority.is_counted(find_prices(openai, model, 1.8e9, "priority")) is is_known
    for model, is_known in (("gpt-audio", True), ("gpt-4o-audio-preview", False)):
        spoken = HostedTool("modalities", prices=("output_audio",))
        assert spoken.is_counted(find_prices(openai, model, 1.8e9)) is is_known


@pytest.mark.parametrize("more", ["", 'on_unknown_price = "open"\n'])
@pytest.mark.parametrize(
    "tier", [b"1e999", b"true", b"[1e999]", b"{}", b'{"type":{}}', b'"pri\\u006frity"', b'"\\ud800"']
)
def test_a_tier_that_is_none_is_no_error_of_the_gateway(tier: bytes, more: str, tmp_path: Path) -> None:
    with serve(tmp_path, LIMIT + more) as served:
        for protocol, path in (("openai-chat", "/v1/chat/completions"), ("openai-responses", "/v1/responses")):
            scene = priced_scene(served, protocol)
            turns = b'"messages":[{"role":"user","content":"Hi"}]' if protocol == "openai-chat" else b'"input":"Hi"'
            body = b'{"model":"%b","service_tier":%b,%b}' % (scene.name.encode(), tier, turns)
            assert ask(served.port, "POST", path, body).status in (200, 400, 403)


OPENAI = '[providers.openai]\nprotocols = ["{protocol}"]\nbase_url = "{plain}"\napi_key = "k"\n'
TIERS: dict[str, tuple[str, dict[str, str], int]] = {
    "usual": ("openai-chat", {"service_tier": "default"}, 10_000),
    "dear": ("openai-chat", {"service_tier": "priority"}, 20_000),
    "dear, of Responses": ("openai-responses", {"service_tier": "fast"}, 20_000),
}


@pytest.mark.parametrize(("protocol", "fields", "price"), TIERS.values(), ids=list(TIERS))
def test_a_tier_is_reserved_and_counted_with_its_price(
    protocol: str, fields: dict[str, str], price: int, tmp_path: Path
) -> None:
    """Also where the server does not say how it has served the request."""
    whole = json.loads(play_script(protocol, False).partition(b"\r\n\r\n")[2])
    keys = ("prompt_tokens", "completion_tokens") if protocol == "openai-chat" else ("input_tokens", "output_tokens")
    whole["usage"] = dict(zip(keys, (0, 100), strict=True)) | {keys[0]: 8}

    def waits(peer: ScriptedConnection) -> None:
        peer.wait_for_release()
        peer.send(answer(200, encode_json(whole).encode()))

    limit = LIMIT.replace("100", "0.025")
    with serve(tmp_path, limit, OPENAI.replace("{protocol}", protocol)) as served:
        scene = served.scene(protocol, waits, provider="openai")
        asked = {"max_tokens" if protocol == "openai-chat" else "max_output_tokens": 1000, **fields}
        asked["metadata"] = {"mark": f"-{scene.mark}"}
        line = open_call(served, protocol, "openai/gpt-5", False, **asked)
        assert scene.reached.wait(PATIENCE)
        if price > 10_000:
            second = call(served, protocol, "openai/gpt-5", False, **asked)
            assert "`budget`, $0.025 per day, is reached" in expect_refusal(protocol, second)
        scene.go.set()
        assert line.start().status == 200
        line.disconnect()
        assert read_used_counters(served) == {"budget/dollars_per_day": 8 * price // 8 + 100 * price}


@pytest.mark.parametrize("most", ["0.03", "0.042"])
@pytest.mark.parametrize("protocol", ["openai-responses", "anthropic"])
def test_searches_are_reserved(protocol: str, most: str, tmp_path: Path) -> None:
    """A limit that would be enough for the tokens, or for the searches."""
    tool = {"type": "web_search"} if protocol == "openai-responses" else {"type": "web_search_20250305"}
    few = {"max_output_tokens" if protocol == "openai-responses" else "max_tokens": 100}
    with serve(tmp_path, LIMIT.replace("100", most)) as served:
        scene = priced_scene(served, protocol)
        assert send(served, protocol, scene, **few).status == 200
        got = send(served, protocol, scene, **few, tools=[{"name": "web_search", **tool}])
        assert re.match(r"this request alone needs about \$0\.04\d*, more", expect_refusal(protocol, got))
        assert len(scene.asked) == 1


def test_what_a_search_costs_more_is_reserved_beside_the_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A request that was let in does not lose its place to another one while it reserves more."""
    charged: list[Sequence[Charge]] = []
    others: list[RawAnswer] = []
    with serve(tmp_path, f"{LIMIT}parallel_requests = 1\n") as served:
        scene = priced_scene(served, "anthropic")
        reserve = reservations_of(served).reserve

        async def reserve_after_another(charges: Sequence[Charge]) -> tuple[str, Reserved] | StoreDown:
            charged.append(charges)
            if len(charged) == 2:
                others.append(await asyncio.to_thread(send, served, "anthropic", scene))
            return await reserve(charges)

        monkeypatch.setattr(reservations_of(served), "reserve", reserve_after_another)
        tools = [{"type": "web_search_20250305", "name": "web_search"}]
        assert send(served, "anthropic", scene, tools=tools).status == 200
        assert "1 parallel requests, is reached" in expect_refusal("anthropic", others[0])
        assert read_used_counters(served).keys() == {"budget/dollars_per_day"}


def test_audio_is_reserved_with_its_price(tmp_path: Path) -> None:
    prices = '[models."spoken-*"]\nprovider = "gemini"\nfacts.prices = { input = 1, output = 1, input_audio = 100 }\n'
    parts = [{"text": "Hi"}, {"inlineData": {"mimeType": "audio/wav", "data": "UklGR" + "A" * 399_995}}]
    with serve(tmp_path, LIMIT.replace("100", "0.05"), prices) as served:
        scene = served.scene("gemini", play_script("gemini", False), model="spoken")
        assert send(served, "gemini", scene, contents=[{"role": "user", "parts": parts[:1]}]).status == 200
        got = send(served, "gemini", scene, contents=[{"role": "user", "parts": parts}])
        assert re.match(r"this request alone needs about \$0\.07\d*, more", expect_refusal("gemini", got))
        assert len(scene.asked) == 1


CONVERSE = """[providers.converse]
protocols = ["bedrock-converse"]
base_url = "{plain}"
api_key = "k"
[models."nova-*"]
provider = "converse"
facts.prices = { input = 1, output = 1 }
"""
CONVERSED = {
    "output": {"message": {"role": "assistant", "content": [{"text": "Hello."}]}},
    "stopReason": "end_turn",
    "usage": {"inputTokens": 9, "outputTokens": 2, "totalTokens": 11},
}


def converse(served: Served, headers: dict[str, str] | None = None, **fields: Any) -> tuple[RawAnswer, Scene]:
    play = answer(200, encode_json(CONVERSED).encode())
    scene = served.scene("unified", play, provider="converse", model="nova")
    body = encode_json({"messages": [{"role": "user", "content": [{"text": "Hi"}]}], **fields}).encode()
    return ask(served.port, "POST", f"/model/{scene.name}/converse", body, headers), scene


def test_a_header_does_not_choose_a_tier(tmp_path: Path) -> None:
    """Converse takes it in its body, where limits read it; AWS has headers for the same in InvokeModel."""
    names = ("Service-Tier", "PerformanceConfig-Latency", "GuardrailIdentifier")
    with serve(tmp_path, more=CONVERSE) as served:
        got, scene = converse(served, {f"X-Amzn-Bedrock-{name}": "priority" for name in names})
        assert got.status == 200
        assert not [name for name in scene.asked[0].headers if name.startswith("x-amzn-bedrock")]


MODEL_FIELDS: dict[str, tuple[dict[str, Any], int]] = {
    "thinking": ({"thinking": {"type": "enabled", "budget_tokens": 1024}, "top_k": 4}, 200),
    "Nova's": ({"inferenceConfig": {"topK": 3}, "reasoningConfig": {"type": "disabled"}}, 200),
    "Cohere's": ({"k": 4, "documents": [{"title": "A page", "snippet": "Words."}]}, 200),
    "nothing": ({"tools": [], "web_search_options": None}, 200),
    "tools that a client of Claude runs": (
        {
            "tools": [
                {"type": "computer_20250124", "name": "computer", "display_width_px": 9, "display_height_px": 9},
                {"type": "bash_20250124", "name": "bash"},
                {"type": "text_editor_20250728", "name": "str_replace_based_edit_tool"},
                {"type": "memory_20250818", "name": "memory"},
                {"name": "look", "input_schema": {"type": "object"}},
            ],
            "anthropic_beta": ["computer-use-2025-01-24"],
        },
        200,
    ),
    "fast mode": ({"speed": "fast"}, 403),
    "a tier": ({"service_tier": "priority"}, 403),
    "tools": (
        {"tools": [{"name": "look"}, {"type": "code_execution_20250825", "name": "code_execution"}]},
        403,
    ),
    "a tool that is none": ({"tools": ["code_execution"]}, 403),
    "tools that are no list": ({"tools": {"type": "bash"}}, 403),
    "a search": ({"web_search_options": {"search_context_size": "low"}}, 403),
}


@pytest.mark.parametrize(("fields", "status"), MODEL_FIELDS.values(), ids=list(MODEL_FIELDS))
def test_settings_of_a_model_do_not_pass_a_limit_in_dollars(
    fields: dict[str, Any], status: int, tmp_path: Path
) -> None:
    """Converse gives them to the model as they are."""
    with serve(tmp_path, more=CONVERSE) as served:
        got, scene = converse(served, additionalModelRequestFields=fields)
        assert (got.status, len(scene.asked)) == (status, int(status == 200)), got.data
        assert status == 200 or f"what `{next(iter(fields))}` costs" in got.json()["message"]
        assert converse(served, additionalModelRequestFields="x")[0].status == 400


@pytest.mark.parametrize("fields", [{"max_tokens": 4000}, {"inferenceConfig": {"max_new_tokens": 4000}}])
def test_the_largest_output_of_a_model_is_reserved(fields: dict[str, Any], tmp_path: Path) -> None:
    with serve(tmp_path, LIMIT.replace("100", "0.003"), CONVERSE) as served:
        assert converse(served, inferenceConfig={"maxTokens": 1})[0].status == 200
        got, _ = converse(served, inferenceConfig={"maxTokens": 1}, additionalModelRequestFields=fields)
        assert "this request alone needs about" in got.json()["message"]
