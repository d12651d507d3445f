"""What a key may do: its providers, its MCP servers, its time. No name of a model, alias, fallback or path leads around
them."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from configs import load_config
from gateway.clients import PNG
from gateway.mcp_gateway import COMMAND
from gateway.raw_exchange import (
    CLIENTS,
    RawConnection,
    Scene,
    Served,
    answer,
    ask,
    call,
    error_of,
    path_of,
    request_of,
    stage,
    whole_answer,
)
from toolwire.gateway.settings.config import ClientKey, Config, ModelRule, Provider
from toolwire.gateway.settings.problems import ConfigError
from toolwire.gateway.settings.router import Router
from toolwire.gateway.settings.times import format_time, parse_duration, parse_time
from toolwire.gateway.store.repository import owner_of
from toolwire_conformance.peers.peer import encode_json

SECRETS = {name: f"tw-{name}-key-0123456789" for name in ("all", "ana", "ben", "gone", "off", "new", "old", "late")}
EXPIRY = 2_000_000_000.0
FIELDS = {
    "all": "",
    "ana": 'team = "app"\nproviders = ["anthropic"]\nmcp_servers = ["docs"]\n',
    "ben": 'team = "infra"\nproviders = ["chat", "gem*"]\nmodels = ["alias", "blind", "both", "chat/*", "anthropic/*"]\n',
    "gone": "expires = 2020-01-31\n",
    "off": "disabled = true\n",
    "new": f'old_sha256 = "{hashlib.sha256(SECRETS["old"].encode()).hexdigest()}"\nold_until = "{format_time(EXPIRY)}"\n',
    "late": f'expires = "{format_time(EXPIRY)}"\n',
}


def key_table(name: str, fields: str = "") -> str:
    digest = hashlib.sha256(SECRETS[name].encode()).hexdigest()
    return f'[[server.keys]]\nname = "{name}"\nsha256 = "{digest}"\n{fields}'


TABLES = "".join(key_table(name, fields) for name, fields in FIELDS.items())
MODELS = """
[models]
alias = "anthropic/claude-sonnet-4-5-s901x"
eyes = "anthropic/claude-sonnet-4-5-s903x"
[models.both]
provider = "anthropic"
model = "claude-sonnet-4-5-s901x"
fallbacks = ["chat/gpt-4.1-s902x"]
[models.blind]
provider = "chat"
model = "gpt-4.1-s904x"
describe_images = "eyes"
"""
MCP = f"""
[mcp.docs]
{COMMAND}
tools = ["echo"]
models = ["*"]
[mcp.other]
{COMMAND}
tools = ["echo"]
keys = ["*"]
[mcp.infra]
{COMMAND}
tools = ["echo"]
teams = ["inf*"]
"""


@pytest.fixture(scope="module", name="served")
def serve_gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with stage(
        tmp_path_factory.mktemp("rights"), f"retries = 0\ncooldown_after = 9999\n{TABLES}", f"{MODELS}{MCP}"
    ) as staged:
        yield staged


@pytest.fixture
def scenes(served: Served) -> dict[str, Scene]:
    """The models that the file names."""
    models = {
        "anthropic": ("anthropic", "anthropic/claude-sonnet-4-5-s901x"),
        "chat": ("openai-chat", "chat/gpt-4.1-s902x"),
        "eyes": ("anthropic", "anthropic/claude-sonnet-4-5-s903x"),
        "blind": ("openai-chat", "chat/gpt-4.1-s904x"),
    }
    made = {}
    for name, (protocol, model) in models.items():
        mark = model.rpartition("-")[2]
        made[name] = served.wire.scenes[mark.encode()] = Scene(mark, model, [whole_answer(protocol)])
    return made


def headers_of(name: str, **more: str) -> dict[str, str]:
    return {"authorization": f"Bearer {SECRETS[name]}", **more}


# --- providers ---


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize(
    ("key", "model"),
    [
        ("ana", "chat/gpt-4.1-s902x"),
        ("ana", "models/chat/gpt-4.1-s902x"),
        ("ana", "blind"),
        ("ben", "alias"),
        ("ben", "anthropic/claude-sonnet-4-5-s901x"),
        ("ana", "loopback"),
        ("ana", "loopback/anything"),
    ],
)
def test_a_provider_that_is_not_allowed_is_never_asked(
    served: Served, scenes: dict[str, Scene], client: str, key: str, model: str
) -> None:
    body = encode_json(request_of(client, model, False)).encode()
    got = ask(served.port, "POST", path_of(client, model, False), body, headers_of(key))
    assert got.status == 403
    assert "`providers` of the key" in error_of(client, got)["message"]
    assert not any(scene.asked for scene in scenes.values())


def test_a_fallback_is_left_out_or_taken(served: Served, scenes: dict[str, Scene]) -> None:
    """The first provider is not allowed: the next one answers. The next one is not allowed: it is not asked."""
    got = call(served, "openai-chat", "both", False, headers_of("ben"))
    assert (got.status, got.headers["x-toolwire-provider"]) == (200, "chat")
    assert not scenes["anthropic"].asked
    scenes["anthropic"].plays[:] = [answer(500, b"{}")]
    scenes["chat"].asked.clear()
    got = call(served, "openai-chat", "both", False, headers_of("ana"))
    assert got.status == 500
    assert not scenes["chat"].asked
    assert call(served, "openai-chat", "both", False, headers_of("all")).headers["x-toolwire-provider"] == "chat"


def test_lists_have_the_models_of_allowed_providers(served: Served) -> None:
    def list_models(key: str) -> set[str]:
        got = ask(served.port, "GET", "/v1/models", headers=headers_of(key))
        return {model["id"] for model in got.json()["data"]}

    assert list_models("all") == {"alias", "eyes", "both", "blind", "loopback"}
    assert list_models("ana") == {"alias", "eyes", "both"}
    assert list_models("ben") == {"both", "blind"}
    assert ask(served.port, "GET", "/v1/models/alias", headers=headers_of("ben")).status == 403


@pytest.mark.parametrize("path", ["/v1/embeddings", "/v1/images/generations", "/v1/files"])
def test_forwarded_paths_have_the_key_s_providers(served: Served, scenes: dict[str, Scene], path: str) -> None:
    """Ana may use no provider that speaks OpenAI's protocols."""
    for body in ({"model": "chat/gpt-4.1-s902x", "input": "x"}, {"model": "nonesuch-s902x"}, {}):
        got = ask(served.port, "POST", path, encode_json(body).encode(), headers_of("ana"))
        assert got.status in (403, 404), body
    assert not scenes["chat"].asked


def test_images_are_not_described_by_a_provider_that_is_not_allowed(served: Served, scenes: dict[str, Scene]) -> None:
    picture = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}}
    body = {"model": "blind", "messages": [{"role": "user", "content": [{"type": "text", "text": "?"}, picture]}]}
    sent = encode_json(body).encode()
    assert ask(served.port, "POST", "/v1/chat/completions", sent, headers_of("ben")).status == 200
    assert not scenes["eyes"].asked
    assert PNG.encode() not in scenes["blind"].asked[0].body
    assert ask(served.port, "POST", "/v1/chat/completions", sent, headers_of("all")).status == 200
    assert len(scenes["eyes"].asked) == 1


# --- MCP servers ---


@pytest.mark.parametrize(
    ("key", "tools"),
    [
        ("all", {"docs__echo", "other__echo"}),
        ("ana", {"docs__echo"}),
        ("ben", {"docs__echo", "other__echo", "infra__echo"}),
    ],
)
def test_a_key_has_its_mcp_servers(served: Served, scenes: dict[str, Scene], key: str, tools: set[str]) -> None:
    scene = scenes["anthropic" if key == "ana" else "chat"]
    for agent in ("codex_cli_rs/1.0", "ben/1", "infra", "python"):
        assert call(served, "unified", scene.model, False, headers_of(key, **{"user-agent": agent})).status == 200
    for asked in scene.asked:
        assert {tool.get("name") or tool["function"]["name"] for tool in asked.json().get("tools", ())} == tools


# --- time ---


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize(
    ("key", "words"), [("gone", "expired at 2020-01-31"), ("off", "is disabled; ask the operator")]
)
def test_a_key_that_does_not_work_says_why(served: Served, client: str, key: str, words: str) -> None:
    got = call(served, client, "alias", False, headers_of(key))
    assert got.status == 401
    assert words in error_of(client, got)["message"]
    assert ask(served.port, "GET", "/v1/models", headers=headers_of(key)).status == 401
    assert ask(served.port, "GET", "/metrics", headers=headers_of(key)).status == 401


@pytest.mark.parametrize(("key", "words"), [("late", "expired at"), ("old", "was replaced")])
def test_a_key_ends_on_a_connection_that_stays_open(
    served: Served, scenes: dict[str, Scene], monkeypatch: pytest.MonkeyPatch, key: str, words: str
) -> None:
    """Equal heads on one connection share what was found out about them, but not beyond the end of the key."""
    now = SimpleNamespace(time=lambda: EXPIRY - 1, monotonic=time.monotonic)
    monkeypatch.setattr(import_module("toolwire.gateway.app"), "time", now)
    body = encode_json(request_of("openai-chat", "alias", False)).encode()
    line = RawConnection(served.port)
    statuses, said = [], b""
    for number in range(4):
        if number == 3:
            now.time = lambda: EXPIRY
        line.send("POST", "/v1/chat/completions", body, headers_of(key))
        response = line.start()
        statuses.append(response.status)
        said = response.read()
    line.connection.close()
    assert statuses == [200, 200, 200, 401]
    assert words in json.loads(said)["error"]["message"]
    assert len(scenes["anthropic"].asked) == 3
    if key == "old":
        assert call(served, "openai-chat", "alias", False, headers_of("new")).status == 200


# --- the file ---


def load(folder: Path, text: str) -> Any:
    file = folder / "toolwire.toml"
    file.write_text(text)
    return load_config(file, {})


@pytest.mark.parametrize(
    ("fields", "place", "words"),
    [
        ('expires = "soon"', "server.keys.0.expires", "not a time"),
        ("expires = 12", "server.keys.0.expires", "expected a string"),
        ('old_until = "2027-01-01"', "server.keys.0.old_until", "`old_sha256` is missing"),
        (f'old_sha256 = "{"ab" * 32}"', "server.keys.0.old_sha256", "`old_until` is missing"),
        ('old_sha256 = "1234"\nold_until = "2027-01-01"', "server.keys.0.old_sha256", "not a SHA-256 hash"),
        ('team = "\\u0007"', "server.keys.0.team", "name of a team"),
        ('providers = "anthropic"', "server.keys.0.providers", "expected a list"),
        ("limits = { requests_per_minute = 0 }", "server.keys.0.limits.requests_per_minute", ">= 1"),
        ("limits = { requests = 5 }", "server.keys.0.limits.requests", "unknown key"),
        ("limits = 5", "server.keys.0.limits", "must be a table"),
        ('disabled = "no"', "server.keys.0.disabled", "expected true or false"),
    ],
)
def test_what_is_wrong_with_a_key_is_an_error(tmp_path: Path, fields: str, place: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, key_table("all", fields))
    (problem,) = caught.value.problems
    assert (problem.location, problem.line > 2) == (place, True)
    assert words in problem.message


def test_two_keys_never_share_a_hash_or_an_owner(tmp_path: Path) -> None:
    digest = hashlib.sha256(SECRETS["all"].encode()).hexdigest()
    old = f'old_sha256 = "{digest}"\nold_until = "2027-01-01"\n'
    for fields in (old, f'first_sha256 = "{digest.upper()}"\n'):
        for tables in ((key_table("all"), key_table("ana", fields)), (key_table("ana", fields), key_table("all"))):
            with pytest.raises(ConfigError, match=r"listed twice|same first key"):
                load(tmp_path, "".join(tables))


def test_unknown_names_are_a_warning(tmp_path: Path) -> None:
    fields = 'providers = ["anthropc"]\nmcp_servers = ["docs"]\nteam = "app"\n'
    rule = '[[policy]]\nteam = "ap"\ntool = "shell"\ndrop = true\n'
    found = load(tmp_path, key_table("all", fields) + rule)
    messages = {problem.location: problem.message for problem in found.warnings}
    assert messages == {
        "server.keys.0.providers.0": "there is no provider `anthropc`",
        "server.keys.0.mcp_servers.0": "there is no MCP server `docs`",
        "policy.0.team.0": "there is no team `ap`",
    }


def test_what_was_stored_stays_with_the_first_key(tmp_path: Path) -> None:
    (before,) = load(tmp_path, key_table("all")).server.keys
    (after,) = load(tmp_path, key_table("new", f'first_sha256 = "{before.sha256}"\n')).server.keys
    (other,) = load(tmp_path, key_table("new")).server.keys
    assert owner_of(after) == owner_of(before) != owner_of(other)


def test_times() -> None:
    assert parse_time("2026-12-31") == parse_time("2027-01-01T00:00:00Z") == parse_time("2027-01-01T01:00:00+01:00")
    assert parse_time("2026-12-31T18:00:00") == parse_time("2026-12-31T18:00:00Z")
    assert [parse_time(text) for text in ("", "soon", "2026-13-01", "9999-12-31", "20261231")] == [None] * 4 + [
        parse_time("2026-12-31T00:00:00Z")
    ]
    assert parse_time(format_time(EXPIRY)) == EXPIRY
    assert [parse_duration(text) for text in ("90m", "12h", "30d", "4w", "-1d", "1y", "", "d")] == [
        5400.0, 43200.0, 2592000.0, 2419200.0, None, None, None, None,
    ]  # fmt: skip
    assert json.dumps(parse_time("2027-01-01T00:00:00Z")) == "1798761600.0"


# --- a law ---

PROVIDERS = {name: Provider(name=name, protocols=("openai-chat",), models=(f"{name}-*",)) for name in ("a", "b", "c")}
NAMES = st.sampled_from(["x", "y", "z", "x*", "a/m", "b/m", "c/m", "a-1", "b-1", "models/a/m", "x/y", "nowhere"])
RULES = st.lists(
    st.builds(
        ModelRule,
        name=st.sampled_from(["x", "y", "z", "x*", "a/*"]),
        provider=st.sampled_from(list(PROVIDERS)),
        model=st.sampled_from(["", "m"]),
        fallbacks=st.lists(NAMES, max_size=3).map(tuple),
    ),
    max_size=4,
    unique_by=lambda rule: rule.name,
)
ALLOWED = st.lists(st.sampled_from(["a", "b", "c", "*", "?", "[ab]"]), max_size=2).map(tuple)


@given(RULES.map(tuple), NAMES, ALLOWED)
def test_no_route_leads_to_a_provider_that_is_not_allowed(
    rules: tuple[ModelRule, ...], name: str, providers: tuple[str, ...]
) -> None:
    """What is left of a route is what is allowed of it, in the same order; lists show exactly what can be used."""
    router = Router(Config(models=rules, providers=PROVIDERS))
    key = ClientKey(name="k", sha256="ab" * 32, providers=providers)
    every, found = router.route(name, None), router.route(name, key)
    allowed = [one for one in every if key.may_use_provider(one.provider.name)] if isinstance(every, tuple) else []
    assert (list(found) if isinstance(found, tuple) else []) == allowed
    if isinstance(every, tuple):
        assert router.may_use(name.removeprefix("models/"), key) == bool(allowed)
    speaker = router.find_speaker("openai-chat", key)
    assert speaker is None or key.may_use_provider(speaker.name)
