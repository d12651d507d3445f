"""From the name of a model to its targets, and from a target to its room."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from configs import load_config
from toolwire import translate
from toolwire.core.ir import Failure
from toolwire.gateway.configuration.live_config import LiveConfig
from toolwire.gateway.exchange.gateway_request import Runtime, Services
from toolwire.gateway.exchange.provider_health import ProviderHealth
from toolwire.gateway.http.admission import Admission
from toolwire.gateway.http.client import UpstreamClient
from toolwire.gateway.settings.config import ClientKey, Config, Provider
from toolwire.gateway.settings.problems import ConfigError
from toolwire.gateway.settings.providers import known_servers
from toolwire.gateway.settings.router import (
    MAX_CACHED_ROUTES,
    MAX_SUGGESTIONS,
    Router,
    Target,
    choose_codec,
    codec_with_quirks,
    is_allowed,
)
from toolwire.gateway.telemetry.telemetry import Telemetry
from toolwire.protocols import CODECS, find_codec
from toolwire.translation.exchange import Exchange
from toolwire.translation.options import Options

FILE = """
[providers.work]
protocols = ["openai-responses", "openai-chat"]
base_url = "https://work.example.com"
api_key_env = "K"
models = ["house-*", "house-9"]
[providers.lab]
protocols = ["openai-chat"]
base_url = "https://lab.example.com"
api_key_env = "K"
models = ["house-9*"]

[models]
fast = "lab/tiny"
"work/renamed" = "lab/other"
[models."claude-*"]
provider = "work"
model = "gpt-5.5"
max_output_tokens = 100
fallbacks = ["anthropic/claude-opus-5-5", "fast", "lab/tiny"]
[models."claude-haiku-*"]
provider = "lab"
model = "*"
protocol = "openai_chat"
[models.claude-haiku-4-5]
provider = "work"
"""


@pytest.fixture
def config(tmp_path: Path) -> Config:
    file = tmp_path / "toolwire.toml"
    file.write_text(FILE)
    return load_config(file, {"K": "k", "ANTHROPIC_API_KEY": "a", "GEMINI_API_KEY": "g", "OPENROUTER_API_KEY": "o"})


@pytest.fixture
def router(config: Config) -> Router:
    return Router(config)


def list_targets(found: Any) -> list[str]:
    assert isinstance(found, tuple), found
    return [f"{target.provider.name}:{target.model}" for target in found]


@pytest.mark.parametrize(
    ("asked", "targets"),
    [
        ("fast", ["lab:tiny"]),
        ("claude-sonnet-4-5-20250929", ["work:gpt-5.5", "anthropic:claude-opus-5-5", "lab:tiny"]),
        ("claude-opus-5-5[1m]", ["work:gpt-5.5", "anthropic:claude-opus-5-5", "lab:tiny"]),
        ("claude-haiku-4-5-20251001", ["lab:claude-haiku-4-5-20251001"]),
        ("claude-haiku-4-5", ["work:claude-haiku-4-5"]),
        ("anthropic/claude-x", ["anthropic:claude-x"]),
        ("openrouter/meta/llama:free", ["openrouter:meta/llama:free"]),
        ("work/renamed", ["lab:other"]),
        ("models/gemini-3-pro", ["gemini:gemini-3-pro"]),
        ("house-1", ["work:house-1"]),
        ("house-9", ["work:house-9"]),
        ("house-99", ["lab:house-99"]),
        ("loopback", ["loopback:loopback"]),
        ("loopback/loopback", ["loopback:loopback"]),
    ],
)
def test_a_name_finds_its_targets(router: Router, asked: str, targets: list[str]) -> None:
    assert list_targets(router.route(asked, None)) == targets


def test_a_rule_says_how_to_ask(router: Router) -> None:
    first = router.route("claude-opus-4", None)
    pinned = router.route("claude-haiku-9", None)
    assert isinstance(first, tuple)
    assert isinstance(pinned, tuple)
    assert (first[0].max_output_tokens, first[0].protocol) == (100, "")
    assert pinned[0].protocol == "openai-chat"


def test_a_fallback_that_names_a_provider_is_not_caught_by_a_pattern(tmp_path: Path) -> None:
    file = tmp_path / "toolwire.toml"
    file.write_text('[models."*"]\nprovider = "loopback"\nmodel = "loopback"\nfallbacks = ["anthropic/claude-x"]')
    router = Router(load_config(file, {"ANTHROPIC_API_KEY": "k"}))
    assert list_targets(router.route("anthropic/claude-y", None)) == ["loopback:loopback", "anthropic:claude-x"]


def test_routes_are_remembered_within_bounds(router: Router) -> None:
    assert router.route("fast", None) is router.route("fast", None)
    for number in range(MAX_CACHED_ROUTES + 5):
        router.route(f"unknown-{number}", None)
    assert len(router._route_cache) <= MAX_CACHED_ROUTES
    assert list_targets(router.route("fast", None)) == ["lab:tiny"]


def test_an_unknown_model_is_told_what_there_is(router: Router) -> None:
    found = router.route("cluade-haiku-4-5", None)
    assert isinstance(found, Failure)
    assert found.kind == "not_found"
    assert found.message.startswith(
        "unknown model `cluade-haiku-4-5`. Did you mean `claude-haiku-4-5`? Available: claude-haiku-4-5, fast, "
    )
    assert "anthropic/*" in found.message
    nameless = router.route("", None)
    assert isinstance(nameless, Failure)
    assert "does not name a model" in nameless.message


def test_the_list_in_the_message_ends_somewhere(config: Config) -> None:
    rule = config.models[0]
    many = replace(config, models=tuple(replace(rule, name=f"m{number}") for number in range(50)))
    found = Router(many).route("nothing", None)
    assert isinstance(found, Failure)
    assert found.message.count(", ") == MAX_SUGGESTIONS - 1
    assert found.message.endswith(" more")


# --- keys ---


def test_a_key_limits_what_may_be_asked_for(router: Router) -> None:
    key = ClientKey(name="ci", sha256="", models=("claude-haiku-*", "fast"))
    assert list_targets(router.route("fast", key)) == ["lab:tiny"]
    assert list_targets(router.route("models/fast", key)) == ["lab:tiny"]
    found = router.route("claude-opus-4", key)
    assert isinstance(found, Failure)
    assert found.kind == "permission"
    assert "the key `ci` may not use the model `claude-opus-4`" in found.message
    assert "house" not in found.message
    unknown = router.route("claude-haiku-x/y", ClientKey(name="all", sha256=""))
    assert not isinstance(unknown, Failure)
    assert isinstance(router.route("nothing", ClientKey(name="all", sha256="")), Failure)


NAMES_OF_VARIANTS = (
    "gpt-x:online",
    "gpt-x@preset/cheap",
    "gpt-x-mini:free",
    "openrouter/openai/gpt-x:online",
    "openrouter/@preset/cheap",
)


@pytest.mark.parametrize(
    ("pattern", "allowed"),
    [
        ("gpt-x*", ()),
        ("gpt-?*", ()),
        ("gpt-x?online", ()),
        ("*gpt-x*", ()),
        ("openrouter/openai/*", ()),
        ("*/*", ()),
        ("gpt-x*:*", ("gpt-x:online", "gpt-x-mini:free")),
        ("gpt-x:*", ("gpt-x:online",)),
        ("gpt-x:online", ("gpt-x:online",)),
        ("gpt-x@*", ("gpt-x@preset/cheap",)),
        ("openrouter/*", ("openrouter/openai/gpt-x:online", "openrouter/@preset/cheap")),
        ("openrouter/openai/*:*", ("openrouter/openai/gpt-x:online",)),
        ("*", NAMES_OF_VARIANTS),
    ],
)
def test_a_pattern_of_a_key_does_not_reach_variants_of_models(pattern: str, allowed: tuple[str, ...]) -> None:
    """OpenRouter's variants choose tools and other models."""
    key = ClientKey(name="ci", sha256="", models=(pattern,))
    assert tuple(name for name in NAMES_OF_VARIANTS if is_allowed(key, name)) == allowed


def test_a_key_is_told_why_its_pattern_does_not_allow_a_variant(router: Router) -> None:
    found = router.route("house-1:online", ClientKey(name="ci", sha256="", models=("house-*",)))
    assert isinstance(found, Failure)
    assert found.kind == "permission"
    assert "`*` does not match `:` or `@`" in found.message


def test_models_are_listed_by_name(router: Router) -> None:
    everything = {card.id: card.owner for card in router.list_models(None)}
    assert everything == {
        "fast": "lab",
        "work/renamed": "lab",
        "claude-haiku-4-5": "work",
        "house-9": "work",
        "loopback": "loopback",
    }
    some = router.list_models(ClientKey(name="ci", sha256="", models=("house-*",)))
    assert [card.id for card in some] == ["house-9"]


def test_the_embedded_model_can_be_taken_away(tmp_path: Path) -> None:
    file = tmp_path / "toolwire.toml"
    file.write_text("[server]\nloopback = false")
    router = Router(load_config(file, {}))
    assert router.list_models(None) == ()
    found = router.route("loopback", None)
    assert isinstance(found, Failure)
    assert found.message.endswith("No model is configured")


def test_a_speaker_for_what_only_passes_through(router: Router, tmp_path: Path) -> None:
    speaker = router.find_speaker("openai-chat", None)
    assert speaker is not None
    assert speaker.name == "work"
    assert router.find_speaker("unified", None) is None
    file = tmp_path / "other.toml"
    file.write_text("[providers.openai]")
    assert Router(load_config(file, {})).find_speaker("openai-chat", None) is None


# --- rooms ---


def provider_with_protocols(*protocols: str, quirks: tuple[str, ...] = ()) -> Provider:
    return Provider(name="p", protocols=protocols, quirks=quirks)


def fail_when_called() -> bool:
    raise AssertionError("nobody needs to know")


def with_tools() -> bool:
    return True


def test_the_clients_own_protocol_is_preferred() -> None:
    target = Target(provider_with_protocols("openai-chat", "anthropic"), "m")
    assert choose_codec(target, find_codec("anthropic"), fail_when_called) is find_codec("anthropic")
    assert choose_codec(target, find_codec("gemini"), fail_when_called) is find_codec("openai-chat")


def test_a_pin_wins() -> None:
    target = Target(provider_with_protocols("openai-chat", "anthropic"), "m", "openai-chat")
    assert choose_codec(target, find_codec("anthropic"), fail_when_called) is find_codec("openai-chat")


def test_a_room_that_does_not_take_the_model_is_passed_over() -> None:
    client = find_codec("openai-chat")
    assert not client.supports_model("gpt-5.5", True)
    provider = provider_with_protocols("openai-responses", "openai-chat")
    assert choose_codec(Target(provider, "gpt-5.5"), client, with_tools) is find_codec("openai-responses")
    assert choose_codec(Target(provider, "gpt-4o"), client, fail_when_called) is find_codec("openai-chat")
    assert choose_codec(Target(provider, "gpt-5.5"), client, lambda: False) is find_codec("openai-chat")


def test_newer_models_take_tools_on_responses_only() -> None:
    target = Target(provider_with_protocols("openai-responses", "openai-chat"), "gpt-5.5")
    takes = find_codec("openai-chat").supports_model("gpt-5.5", True)
    expected = "openai-chat" if takes else "openai-responses"
    assert choose_codec(target, find_codec("openai-chat"), with_tools).name == expected
    alone = Target(provider_with_protocols("openai-chat"), "gpt-5.5")
    assert choose_codec(alone, find_codec("openai-chat"), with_tools) is find_codec("openai-chat")


async def make_runtime(config: Config) -> Runtime:
    client, health = UpstreamClient(config.server.timeouts), ProviderHealth(lambda *_: None)
    telemetry, admission = Telemetry(config.server), Admission(config.server)
    services = Services(gateway_id="gateway", client=client, health=health, telemetry=telemetry, admission=admission)
    return Runtime(config, services)


def test_the_upstream_of_a_call_depends_on_its_tools_only_where_the_protocol_does(config: Config) -> None:
    state, client = asyncio.run(make_runtime(config)), find_codec("openai-chat")
    assert not client.supports_model("gpt-5.5", True)
    work = config.providers["work"]
    newer, older = Target(work, "gpt-5.5"), Target(work, "gpt-4o")
    for _ in range(2):  # found, and remembered
        assert state.choose_upstream(client, newer, False, with_tools).codec is find_codec("openai-responses")
        without = state.choose_upstream(client, newer, False, lambda: False).codec
        assert without is codec_with_quirks(client.name, work.quirks, "")
        assert state.choose_upstream(client, older, False, fail_when_called).codec is without
    line = state.choose_upstream(client, older, True, fail_when_called)
    assert line is state.upstream_for(older, without, True)
    assert (line.options.model, line.options.stream, line.needs_credential_check) == ("gpt-4o", True, False)


def test_quirks_make_another_room_once() -> None:
    bent = choose_codec(Target(provider_with_protocols("openai-chat", quirks=("nine-letter-ids", "max-tokens-key")), "m"), find_codec("openai-chat"), with_tools)  # fmt: skip
    assert bent is not find_codec("openai-chat")
    assert bent is codec_with_quirks("openai-chat", ("nine-letter-ids", "max-tokens-key"), "")
    assert bent.constraints.max_call_id_length == 9
    assert find_codec("openai-chat").constraints.max_call_id_length != 9
    assert codec_with_quirks("anthropic", ("nine-letter-ids",)) is find_codec("anthropic")


def test_a_bent_room_writes_what_its_server_takes() -> None:
    bent = codec_with_quirks("openai-chat", ("nine-letter-ids", "max-tokens-key"))
    body = {
        "model": "m",
        "max_tokens": 7,
        "messages": [
            {"role": "user", "content": "hi"},
            {
                "role": "assistant",
                "content": [{"type": "tool_use", "id": "toolu_0123456789", "name": "f", "input": {}}],
            },
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_0123456789", "content": "x"}]},
        ],
    }
    written = Exchange(find_codec("anthropic"), bent, Options()).translate_request(body).json()
    call = written["messages"][1]["tool_calls"][0]["id"]
    assert len(call) == 9
    assert written["messages"][2]["tool_call_id"] == call
    assert written["max_tokens"] == 7
    plain = translate(body, "request", source="anthropic", target="openai-chat").json()
    assert plain["messages"][1]["tool_calls"][0]["id"] == "toolu_0123456789"


def test_the_embedded_model_speaks_every_protocol(router: Router) -> None:
    found = router.route("loopback", None)
    assert isinstance(found, tuple)
    for client in CODECS.values():
        assert choose_codec(found[0], client, with_tools) is client


# --- routes of the command line ---


@pytest.fixture
def over(tmp_path: Path) -> Any:
    def over(**routes: str) -> Config:
        file = tmp_path / "toolwire.toml"
        file.write_text(FILE)
        environ = {"K": "k", "ANTHROPIC_API_KEY": "a", "GEMINI_API_KEY": "g"}
        return load_config(file, environ, {}, routes)

    return over


@pytest.mark.parametrize(
    ("model", "wanted"),
    [
        ("lab/other", ["lab:other"]),
        ("fast", ["lab:tiny"]),
        ("house-7", ["work:house-7"]),
        ("loopback", ["loopback:loopback"]),
        ("mistral/m", ["mistral:m"]),
        ("claude-haiku-9", ["lab:claude-haiku-9"]),
        ("claude-opus-5-5", ["work:gpt-5.5", "anthropic:claude-opus-5-5", "lab:tiny"]),
    ],
)
def test_a_route_leads_where_its_model_leads(model: str, wanted: list[str], over: Any) -> None:
    routes = Router(over(**{"new": model, "pattern-*": model}))
    assert list_targets(routes.route("new", None)) == wanted
    assert list_targets(routes.route("pattern-1", None)) == wanted


def test_a_route_stands_over_the_file_and_follows_it_no_further_than_the_file(over: Any) -> None:
    routes = Router(over(**{"fast": "house-7", "slow": "fast", "claude-*": "fast"}))
    assert list_targets(routes.route("fast", None)) == ["work:house-7"]
    assert list_targets(routes.route("slow", None)) == ["lab:tiny"]
    assert list_targets(routes.route("claude-opus-5-5", None)) == ["lab:tiny"]
    assert list_targets(routes.route("claude-haiku-9", None)) == ["lab:claude-haiku-9"]  # the longer pattern


def test_a_route_to_itself_goes_where_the_file_leads(over: Any) -> None:
    assert list_targets(Router(over(fast="fast")).route("fast", None)) == ["lab:tiny"]


@pytest.mark.parametrize(
    ("model", "what", "hint"),
    [
        ("lap/x", "`new=lap/x`: unknown provider `lap`", "did you mean `lab`?"),
        ("fasst", "`new=fasst`: no provider serves the model `fasst`", "Did you mean `fast`?"),
        ("new", "no provider serves the model `new`", ""),
    ],
)
def test_a_route_to_nowhere(model: str, what: str, hint: str, over: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        over(new=model)
    assert [(one.location, one.message) for one in caught.value.problems] == [("--route", what)]
    assert caught.value.problems[0].hint.startswith(hint)


def test_routes_survive_a_new_file(tmp_path: Path) -> None:
    file = tmp_path / "toolwire.toml"
    file.write_text("")
    live = LiveConfig(file, {}, lambda problems: None, {}, {"new": "loopback"})
    file.write_text("[server]\nport = 7\n")
    assert live.reload_if_changed(force=True)
    assert live.current.server.port == 7
    assert list_targets(Router(live.current).route("new", None)) == ["loopback:loopback"]


# --- whose model it is ------------------------------------------------------------------------------------------------

ROUTE_HINT = "and start again, or add a route under [models]."
OWNERS = {
    "claude-opus-5": f"claude-* models are Anthropic's: set ANTHROPIC_API_KEY {ROUTE_HINT}",
    "models/gemini-3-pro": f"gemini-* models are Google Gemini's: set GEMINI_API_KEY {ROUTE_HINT}",
    "gpt-6": f"gpt-* models are OpenAI's: set OPENAI_API_KEY {ROUTE_HINT}",
    "o3-mini": f"o3* models are OpenAI's: set OPENAI_API_KEY {ROUTE_HINT}",
    "codex-mini-latest": f"codex-* models are OpenAI's: set OPENAI_API_KEY {ROUTE_HINT}",
    "deepseek-chat": f"deepseek-* models are DeepSeek's: set DEEPSEEK_API_KEY {ROUTE_HINT}",
    "grok-5": f"grok-* models are xAI's: set XAI_API_KEY {ROUTE_HINT}",
    "codestral-latest": f"codestral-* models are Mistral's: set MISTRAL_API_KEY {ROUTE_HINT}",
    "groq/llama-4": f"groq/* models are Groq's: set GROQ_API_KEY {ROUTE_HINT}",
    "openrouter/qwen/qwen4": f"openrouter/* models are OpenRouter's: set OPENROUTER_API_KEY {ROUTE_HINT}",
    "ollama/llama4": f"ollama/* models are Ollama's: set OLLAMA_BASE_URL {ROUTE_HINT}",
    **{
        name: f"it looks like a model of Ollama: set OLLAMA_BASE_URL or add [providers.ollama], then ask for `ollama/{name}`."
        for name in ("llama3.2:3b", "qwen3:8b", "gpt-oss:20b", "deepseek-r1:latest")
    },
    "azure/mine": f"azure/* models are Azure OpenAI's: set AZURE_OPENAI_API_KEY and AZURE_OPENAI_BASE_URL {ROUTE_HINT}",
    "bedrock/anthropic.claude": f"bedrock/* models are Amazon Bedrock's: set AWS_BEARER_TOKEN_BEDROCK {ROUTE_HINT}",
    "vertex/gemini-3-pro": "vertex/* models are Google Vertex AI's: add [providers.vertex].",
}


def make_router(folder: Path, text: str) -> Router:
    file = folder / "toolwire.toml"
    file.write_text(text)
    return Router(load_config(file, {"K": "k"}))


@pytest.mark.parametrize("model", OWNERS)
def test_an_unknown_model_says_whose_it_is_and_what_to_do(tmp_path: Path, model: str) -> None:
    found = make_router(tmp_path, "").route(model, None)
    assert isinstance(found, Failure)
    name = model.removeprefix("models/")
    assert found.message.startswith(f"unknown model `{name}`. {OWNERS[model]} Available: ")


MISSPELLED = {
    "gtp-5.5": f"Did you mean `gpt-5.5`? gpt-* models are OpenAI's: set OPENAI_API_KEY {ROUTE_HINT} ",
    "opneai/gpt-5.5": f"Did you mean `openai/gpt-5.5`? openai/* models are OpenAI's: set OPENAI_API_KEY {ROUTE_HINT} ",
    "togther/llama-4": "Did you mean `together/llama-4`? ",
    "fsat": "Did you mean `fast`? ",
    "loopbak": "Did you mean `loopback`? ",
    "something-else": "",
    "x" * 200: "",
}


@pytest.mark.parametrize("model", MISSPELLED)
def test_a_misspelled_name_is_told_which_one_was_meant(tmp_path: Path, model: str) -> None:
    server = '[providers.together]\nprotocols = ["openai-chat"]\nbase_url = "http://127.0.0.1:1/v1"\napi_key = "k"\n'
    found = make_router(tmp_path, server + '[models]\nfast = "together/llama-4"\n').route(model, None)
    assert isinstance(found, Failure)
    assert found.message.startswith(f"unknown model `{model}`. {MISSPELLED[model]}Available: ")


def test_every_well_known_server_can_be_named(tmp_path: Path) -> None:
    router = make_router(tmp_path, "")
    for name, row in known_servers().items():
        found = router.route(f"{name}/m", None)
        assert isinstance(found, Failure)
        needed = row.needed_variables
        todo = f"add [providers.{name}]{' and set' if needed else ''}" if row.only_if_named or not needed else "set"
        assert " ".join((f"{row.title}'s: {todo}", *needed[:1])) in found.message


def test_a_model_of_a_configured_server_that_does_not_serve_it(tmp_path: Path) -> None:
    text = '[providers.work]\nkind = "anthropic"\napi_key_env = "K"\nmodels = []\n'
    router = make_router(tmp_path, text)
    found = router.route("claude-opus-5", None)
    assert isinstance(found, Failure)
    assert "Anthropic's: ask for `work/claude-opus-5`, or add a route under [models]." in found.message
    direct = router.route("anthropic/claude-opus-5", None)
    assert isinstance(direct, Failure)
    assert "Anthropic's: ask for `work/claude-opus-5`" in direct.message


def test_a_bare_name_with_a_tag_is_found_at_the_configured_ollama(tmp_path: Path) -> None:
    found = make_router(tmp_path, '[providers.box]\nkind = "ollama"\n').route("llama3.2:3b", None)
    assert isinstance(found, Failure)
    assert "it looks like a model of Ollama: ask for `box/llama3.2:3b`, or add a route under [models]." in found.message


def test_a_key_is_not_shown_what_it_may_not_use(tmp_path: Path) -> None:
    text = '[providers.secret]\nkind = "anthropic"\napi_key_env = "K"\nmodels = []\n'
    key = ClientKey(name="ci", sha256="0" * 64, models=("claude-*",))
    router = make_router(tmp_path, text)
    for model in ("claude-opus-5", "gpt-6"):
        found = router.route(model, key)
        assert isinstance(found, Failure)
        assert "secret" not in found.message
        assert "OPENAI_API_KEY" not in found.message
        assert found.message.endswith("Available: claude-*")
