"""The converters of other gateways' configuration: what becomes what, and four laws: every key is converted or named, no
secret is written, the result is a valid configuration, and no input ends in a traceback."""

from __future__ import annotations

import copy
import tomllib
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolwire.gateway.configuration.load import find_problems
from toolwire.gateway.settings.importers import (
    IMPORTERS,
    Imported,
    ImportProblem,
    convert_config,
    find_importer,
    parse_json,
)

SECRET = "sk-this-must-never-be-written"

LITELLM: dict[str, Any] = {
    "model_list": [
        {"model_name": "fast", "litellm_params": {"model": "deepseek/deepseek-chat", "api_key": "os.environ/TEAM_KEY", "rpm": 9}},
        {
            "model_name": "best",
            "litellm_params": {"model": "azure/one", "api_base": "https://eu.openai.azure.com/", "api_key": SECRET + "1", "api_version": "2024"},
            "model_info": {"mode": "chat", "max_input_tokens": 128000, "id": "x", "input_cost_per_token": 2.5e-06, "output_cost_per_token": "0.00001"},
        },
        {"model_name": "best", "litellm_params": {"model": "azure/two", "api_base": "https://us.openai.azure.com", "api_key": SECRET + "2"}},
        {"model_name": "local", "litellm_params": {"model": "ollama_chat/qwen3", "api_base": "http://10.0.0.7:11434", "api_key": SECRET + "3"}},
        {"model_name": "gpt-5.5", "litellm_params": {"model": "gpt-5.5", "organization": "org-1", "temperature": 0.2, "max_tokens": 900}},
        {"model_name": "lab", "litellm_params": {"model": "openai/org/coder", "api_base": "https://llm.example.com/v1", "api_key": SECRET + "4"}},
        {"model_name": "moon", "litellm_params": {"model": "moonshot/kimi-k3", "extra_headers": {"X-Title": "us", "X-Token": SECRET}}},
        {"model_name": "shared", "litellm_params": {"model": "groq/llama", "litellm_credential_name": "team"}},
        {"model_name": "rock", "litellm_params": {"model": "bedrock/claude", "aws_secret_access_key": SECRET, "aws_region_name": "eu"}},
        {"model_name": "what", "litellm_params": {"model": "nobody/knows"}},
        {"model_name": "claude-*", "litellm_params": {"model": "anthropic/claude-*"}},
        {"model_name": "my-*", "litellm_params": {"model": "anthropic/*"}},
    ],
    "credential_list": [{"credential_name": "team", "credential_values": {"api_key": SECRET + "5"}, "credential_info": {"description": "d"}}],
    "litellm_settings": {
        "fallbacks": [{"best": ["fast", "gone"]}, {"fast": ["best"]}, {"*": ["local"]}],
        "context_window_fallbacks": [{"fast": ["best"]}],
        "request_timeout": 30,
        "drop_params": True,
        "callbacks": ["prometheus"],
        "cache": True,
        "json_logs": True,
    },
    "router_settings": {
        "num_retries": 5,
        "allowed_fails": 3,
        "cooldown_time": 12,
        "routing_strategy": "least-busy",
        "model_group_alias": {"quick": "fast", "hidden": {"model": "fast", "hidden": True}, "bad": "gone"},
        "redis_host": "r",
        "redis_password": SECRET,
    },
    "general_settings": {
        "master_key": SECRET + "-and-long-enough",
        "database_url": f"postgresql://u:{SECRET}@h/d",
        "global_max_parallel_requests": 50,
        "max_request_size_mb": 2,
        "alerting": ["slack"],
    },
    "mcp_servers": {
        "files": {"transport": "stdio", "command": "npx", "args": ["-y", "server"], "env": {"TOKEN": SECRET, "HOME_DIR": "os.environ/FILES"}},
        "web": {"url": "https://mcp.example.com/mcp", "auth_type": "bearer", "authentication_token": SECRET},
        "old": {"url": "https://mcp.example.com/sse", "transport": "sse"},
        "bad": {"command": "run", "args": ["--api-key", SECRET]},
    },
    "environment_variables": {"REDIS_HOST": SECRET},
    "guardrails": [{"guardrail_name": "pii"}],
}  # fmt: skip

ROUTER: dict[str, Any] = {
    "APIKEY": SECRET + "-and-long-enough",
    "HOST": "0.0.0.0",
    "PORT": 3456,
    "LOG": False,
    "LOG_LEVEL": "trace",
    "API_TIMEOUT_MS": "30000",
    "PROXY_URL": "http://127.0.0.1:7890",
    "NON_INTERACTIVE_MODE": True,
    "CUSTOM_ROUTER_PATH": "/x.js",
    "transformers": [{"path": "/y.js", "options": {"token": SECRET}}],
    "Providers": [
        {
            "name": "openrouter",
            "api_base_url": "https://openrouter.ai/api/v1/chat/completions",
            "api_key": SECRET + "1",
            "models": ["vendor/a"],
            "transformer": {"use": [["openrouter", {"referer": "https://e.org", "title": "us", "provider": {"only": ["x"]}}]]},
        },
        {
            "name": "scope",
            "api_base_url": "https://api.example.cn/v1/chat/completions",
            "api_key": "${SCOPE_KEY}",
            "models": ["Q/one", "Q/two"],
            "transformer": {"use": [["maxtoken", {"max_tokens": 65536}], "enhancetool"], "Q/two": {"use": ["reasoning", ["maxtoken", {"max_tokens": 9}]]}},
        },
        {"name": "gemini", "api_base_url": "https://generativelanguage.googleapis.com/v1beta/models/", "api_key": SECRET + "2", "models": ["gemini-3.5-pro"], "transformer": {"use": ["gemini"]}},
        {"name": "openai", "api_base_url": "https://proxy.example.com/v1/messages", "api_key": SECRET + "3", "models": ["claude-x"], "transformer": {"use": ["Anthropic"]}},
        {"name": "vertex", "api_base_url": "https://x.googleapis.com", "api_key": SECRET, "models": ["g"], "transformer": {"use": ["vertex-gemini"]}},
        {"name": "home", "api_base_url": "http://localhost:11434/v1/chat/completions", "api_key": "ollama", "models": ["qwen3"]},
    ],
    "Router": {
        "default": "scope,Q/one",
        "background": "home,qwen3",
        "think": "gemini,gemini-3.5-pro",
        "longContext": "gone,model",
        "longContextThreshold": 60000,
    },
    "fallback": {"default": ["openrouter,vendor/a"]},
}  # fmt: skip

SAMPLES = {"litellm": LITELLM, "claude-code-router": ROUTER}


def _convert(name: str, value: Any = None) -> tuple[dict[str, Any], Imported]:
    imported = convert_config(SAMPLES[name] if value is None else value, name, "file")
    return tomllib.loads(imported.toml), imported


# --- what becomes what ------------------------------------------------------------------------------------------------


def test_litellm_models() -> None:
    config, _ = _convert("litellm")
    assert config["models"] == {
        "fast": {"provider": "deepseek", "model": "deepseek-chat", "fallbacks": ["local"]},
        "best": {
            "provider": "azure",
            "model": "one",
            "fallbacks": ["azure-2/two", "fast"],
            "facts": {"context_window": 128000, "prices": {"input": 2.5, "output": 10.0}},
        },
        "local": {"provider": "ollama", "model": "qwen3"},
        "gpt-5.5": {"provider": "openai", "max_output_tokens": 900, "fallbacks": ["local"]},
        "lab": {"provider": "llm-example-com", "model": "org/coder", "fallbacks": ["local"]},
        "moon": {"provider": "moonshot", "model": "kimi-k3", "fallbacks": ["local"]},
        "shared": {"provider": "groq", "model": "llama", "fallbacks": ["local"]},
        "rock": {"provider": "bedrock", "model": "claude", "fallbacks": ["local"]},
        "claude-*": {"provider": "anthropic", "fallbacks": ["local"]},
        "quick": {"provider": "deepseek", "model": "deepseek-chat", "fallbacks": ["local"]},
        "hidden": {"provider": "deepseek", "model": "deepseek-chat", "fallbacks": ["local"]},
    }


def test_litellm_providers() -> None:
    config, imported = _convert("litellm")
    assert config["providers"] == {
        "deepseek": {"api_key_env": "TEAM_KEY"},
        "azure": {"base_url": "https://eu.openai.azure.com/openai/v1"},
        "azure-2": {
            "kind": "azure",
            "base_url": "https://us.openai.azure.com/openai/v1",
            "api_key_env": "AZURE_OPENAI_API_KEY_2",
        },
        "ollama": {"base_url": "http://10.0.0.7:11434"},
        "openai": {"headers": {"openai-organization": "org-1"}},
        "llm-example-com": {
            "protocols": ["openai-chat"],
            "base_url": "https://llm.example.com/v1",
            "api_key_env": "LLM_EXAMPLE_COM_API_KEY",
        },
        "moonshot": {"headers": {"x-title": "us"}},
        "groq": {},
        "bedrock": {"region": "eu"},
        "anthropic": {},
    }
    todo = {note.place: note.text for note in imported.notes if note.kind == "to do"}
    assert todo["model_list[1].litellm_params.api_key"].startswith("set the environment variable AZURE_OPENAI_API_KEY")
    assert todo["credential_list[0].credential_values.api_key"].startswith("set the environment variable GROQ_API_KEY")


def test_litellm_settings() -> None:
    config, imported = _convert("litellm")
    keys = config["server"].pop("keys")
    assert [(key["name"], len(key["sha256"])) for key in keys] == [("litellm-master-key", 64)]
    assert config["server"] == {
        "retries": 5,
        "cooldown_after": 3,
        "cooldown": 12,
        "log_format": "json",
        "max_requests": 50,
        "max_body": 2 * 1024 * 1024,
        "timeouts": {"first_byte": 30},
    }
    assert config["mcp"] == {
        "files": {"command": ["npx", "-y", "server"], "env": {"TOKEN": "${TOKEN}", "HOME_DIR": "${FILES}"}},
        "web": {"url": "https://mcp.example.com/mcp"},
    }
    named = {note.place for note in imported.notes if note.kind == "not converted"}
    assert {"mcp_servers.old", "mcp_servers.bad", "model_list[8].litellm_params.aws_secret_access_key"} <= named
    assert {"model_list[9].litellm_params.model", "model_list[11].model_name", "guardrails"} <= named


def test_litellm_wildcards() -> None:
    """`*` takes the names that nothing else takes: the last place where the gateway looks."""
    names = {"*": "openai/*", "groq/*": "groq/*", "claude-*": "anthropic/claude-*", "my-*": "xai/*"}
    entries = [{"model_name": name, "litellm_params": {"model": model}} for name, model in names.items()]
    config, imported = _convert("litellm", {"model_list": entries})
    assert config["models"] == {"claude-*": {"provider": "anthropic"}}
    assert list(config["providers"]) == ["openai", "groq", "anthropic", "xai"]
    assert config["providers"]["openai"]["models"][-1] == "*"
    assert [note.place for note in imported.notes] == ["model_list[3].model_name"]


@pytest.mark.parametrize(
    ("environ", "address", "kind"),
    [
        ({}, "https://our-base.invalid", "to do"),
        ({"OUR_BASE": "https://llm.example.com/v1"}, "https://llm.example.com/v1", "changed"),
        ({"OUR_BASE": f"https://u:{SECRET}@llm.example.com"}, "https://our-base.invalid", "to do"),
    ],
)
def test_an_address_in_the_environment(environ: dict[str, str], address: str, kind: str) -> None:
    params = {"model": "openai/coder", "api_base": "os.environ/OUR_BASE"}
    value = {"model_list": [{"model_name": "coder", "litellm_params": params}]}
    imported = convert_config(value, "litellm", "file", environ)
    [provider] = tomllib.loads(imported.toml)["providers"].values()
    assert provider["base_url"] == address
    assert [(note.kind, note.place) for note in imported.notes] == [(kind, "model_list[0].litellm_params.api_base")]
    router = {"Providers": [{"name": "lab", "api_base_url": "$OUR_BASE", "models": ["m"]}]}
    imported = convert_config(router, "claude-code-router", "file", environ)
    assert tomllib.loads(imported.toml)["providers"]["lab"]["base_url"] == address


def test_a_circle_of_fallbacks_is_broken_and_named() -> None:
    _, imported = _convert("litellm")
    assert [note.place for note in imported.notes if "circle" in note.text] == ["litellm_settings.fallbacks[1]"]


def test_a_short_or_well_known_client_key_is_not_taken_over() -> None:
    for key in ("sk-1234", "short"):
        config, imported = _convert("litellm", {"general_settings": {"master_key": key}})
        assert config == {}
        assert [note.place for note in imported.notes] == ["general_settings.master_key"]


def test_the_same_key_of_two_servers_gets_two_variables() -> None:
    """Both may be a placeholder; the real key of one server must not reach the other."""
    servers = {"deepseek": "https://api.deepseek.com", "lab": "https://lab.example.com/api/v3"}
    providers = [
        {"name": name, "api_base_url": f"{url}/chat/completions", "api_key": "sk-xxx", "models": ["m"]}
        for name, url in servers.items()
    ]
    config, _ = _convert("claude-code-router", {"Providers": providers})
    assert "api_key_env" not in config["providers"]["deepseek"]  # DEEPSEEK_API_KEY is the usual one
    assert config["providers"]["lab"]["api_key_env"] == "LAB_API_KEY"


def test_claude_code_router() -> None:
    config, imported = _convert("claude-code-router")
    keys = config["server"].pop("keys")
    assert [key["name"] for key in keys] == ["claude-code-router"]
    assert config["server"] == {
        "host": "0.0.0.0",
        "port": 3456,
        "log_format": "none",
        "log_level": "debug",
        "timeouts": {"first_byte": 30},
    }
    proxy = "http://127.0.0.1:7890"
    assert config["providers"] == {
        "openrouter": {
            "models": ["vendor/a"],
            "proxy": proxy,
            "headers": {"http-referer": "https://e.org", "x-title": "us"},
        },
        "scope": {
            "protocols": ["openai-chat"],
            "base_url": "https://api.example.cn/v1",
            "api_key_env": "SCOPE_KEY",
            "models": ["Q/one", "Q/two"],
            "proxy": proxy,
        },
        "gemini": {"models": ["gemini-3.5-pro", "gemini-*", "gemma-*"], "proxy": proxy},
        "openai-2": {
            "protocols": ["anthropic"],
            "base_url": "https://proxy.example.com",
            "api_key_env": "OPENAI_API_KEY",
            "models": ["claude-x"],
            "proxy": proxy,
        },
        "home": {"kind": "ollama", "models": ["qwen3"]},
    }
    assert config["models"] == {
        "claude-*": {
            "provider": "scope",
            "model": "Q/one",
            "max_output_tokens": 65536,
            "fallbacks": ["openrouter/vendor/a"],
        },
        "claude-*haiku*": {"provider": "home", "model": "qwen3"},
        "think": {"provider": "gemini", "model": "gemini-3.5-pro"},
        "scope/Q/one": {"provider": "scope", "model": "Q/one", "max_output_tokens": 65536},
        "scope/Q/two": {"provider": "scope", "model": "Q/two", "max_output_tokens": 9},
    }
    named = {note.place for note in imported.notes if note.kind == "not converted"}
    assert {
        "Router.longContext",
        "Router.longContextThreshold",
        "CUSTOM_ROUTER_PATH",
        "Providers[4]",
    } <= named


def test_json_with_comments_and_trailing_commas() -> None:
    text = '{\n// one\n"a": "http://x//y", /* two\n*/ "b": [1, 2,],\n}'
    assert parse_json(text) == {"a": "http://x//y", "b": [1, 2]}
    with pytest.raises(ImportProblem, match="line 2, column 1"):
        parse_json('{\nname: "sk-secret"}')


def test_whose_file_it_is() -> None:
    assert {name: find_importer(value) for name, value in SAMPLES.items()} == {name: name for name in IMPORTERS}
    assert find_importer({"models": []}) == find_importer([]) == ""


# --- the laws ---------------------------------------------------------------------------------------------------------

Path = tuple[str | int, ...]


def _leaves(value: Any, path: Path = ()) -> Iterator[Path]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        if isinstance(inner, dict | list) and inner:
            yield from _leaves(inner, (*path, key))
        else:
            yield (*path, key)


def _tables(value: Any, path: Path = ()) -> Iterator[Path]:
    if isinstance(value, dict):
        yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield from _tables(inner, (*path, key))


def _value_at(value: Any, path: Path) -> Any:
    for step in path:
        value = value[step]
    return value


def _is_named(path: Path, imported: Imported) -> bool:
    """Does a note name this key, or a table or list that contains it?"""
    text = "".join(f".{step}" if isinstance(step, str) else f"[{step}]" for step in path).lstrip(".")
    return any(text == note.place or text.startswith((f"{note.place}.", f"{note.place}[")) for note in imported.notes)


@pytest.mark.parametrize("name", IMPORTERS)
def test_every_value_changes_the_result_or_is_named(name: str) -> None:
    """Leaving out any one value of the input changes the file or the notes."""
    whole = _convert(name)
    for path in _leaves(SAMPLES[name]):
        less = copy.deepcopy(SAMPLES[name])
        del _value_at(less, path[:-1])[path[-1]]
        assert _convert(name, less) != whole or _is_named(path, whole[1]), path


@pytest.mark.parametrize("name", IMPORTERS)
def test_every_unknown_key_is_named(name: str) -> None:
    """Wherever a key is added that the converter does not know, a note names it, or a table that contains it."""
    for path in _tables(SAMPLES[name]):
        more = copy.deepcopy(SAMPLES[name])
        _value_at(more, path)["zz_new"] = SECRET
        _, imported = _convert(name, more)
        assert _is_named((*path, "zz_new"), imported), path


@pytest.mark.parametrize("name", IMPORTERS)
def test_no_secret_is_written(name: str) -> None:
    _, imported = _convert(name)
    assert SECRET not in imported.toml
    assert not [note for note in imported.notes if SECRET in note.place + note.text]


@pytest.mark.parametrize("name", IMPORTERS)
def test_the_result_is_a_valid_configuration(name: str) -> None:
    _, imported = _convert(name)
    assert [problem for problem in find_problems(imported.toml, {}) if problem.severity == "error"] == []


JUNK = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=8),
    st.sampled_from(
        ["os.environ/X", "$X", "http://h/v1", "https://u:p@h", "*", "a/b", "a,b", "sse", "openai/*", "scope,"]
    ),
    st.lists(st.text(max_size=3), max_size=2),
    st.dictionaries(st.text(max_size=3), st.text(max_size=3), max_size=2),
)


@pytest.mark.parametrize("name", IMPORTERS)
@given(data=st.data())
@settings(deadline=None, max_examples=150)
def test_any_value_anywhere_gives_a_valid_configuration(name: str, data: st.DataObject) -> None:
    value = copy.deepcopy(SAMPLES[name])
    for path in data.draw(
        st.lists(st.sampled_from(sorted(_leaves(value), key=str)), min_size=1, max_size=3, unique=True)
    ):
        _value_at(value, path[:-1])[path[-1]] = data.draw(JUNK)
    _, imported = _convert(name, value)
    assert [problem for problem in find_problems(imported.toml, {}) if problem.severity == "error"] == []
