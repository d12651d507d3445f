"""Several accounts of one provider: a session stays on one of them, and another one takes over while it is limited."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from configs import load_config
from gateway.clients import CLIENTS as CONVERSATIONS
from gateway.clients import TOOLS, Result, Task, close_all
from gateway.conftest import serve_config as serve
from gateway.provider import KEYS, PROTOCOLS, SECOND_KEYS, Provider, ScriptedAnswer, Step
from gateway.raw_exchange import (
    CLIENTS,
    PROVIDERS,
    RawAnswer,
    Scene,
    ScriptedConnection,
    Served,
    answer,
    ask,
    call,
    play_script,
    refusal,
    stage,
)
from material import WHOLE_OR_STREAM, parametrize_pairwise
from toolwire.core.envelopes import ENVELOPE_PREFIX
from toolwire.gateway.configuration.load import find_problems
from toolwire.gateway.exchange.provider_health import ALL_MODELS, MAX_MOVED_SESSIONS, ProviderHealth
from toolwire.gateway.features.accounts.accounts import find_first_to_wake, list_awake_accounts, rank_accounts
from toolwire.gateway.settings import config as gateway_config
from toolwire.gateway.surfaces.console.api import API_PATH
from waits import PATIENCE

KEY_OF = {name: f"sk-key-of-account-{name}-0123456789" for name in "abc"}
STREAMS = pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])


# --- which account ----------------------------------------------------------------------------------------------------


def account(name: str, weight: float = 1.0, key: str = "k") -> gateway_config.Provider:
    secret = gateway_config.Secret(key)
    return gateway_config.Provider(
        name="p", protocols=("anthropic",), account=name, weight=weight, api_key=secret, api_key_env="K"
    )


def pool(*accounts: gateway_config.Provider) -> gateway_config.Provider:
    return gateway_config.Provider(name="p", protocols=("anthropic",), accounts=accounts)


NAMES = st.lists(st.text("abcdefgh-._1", min_size=1, max_size=8), min_size=1, max_size=6, unique=True)
WEIGHTS = st.floats(0.01, 1000)


@given(NAMES, st.data(), st.text())
def test_the_order_depends_only_on_the_session_and_the_accounts(names: list[str], data: Any, session: str) -> None:
    accounts = [account(name, data.draw(WEIGHTS)) for name in names]
    ranked = [one.account for one in rank_accounts(accounts, session)]
    assert sorted(ranked) == sorted(names)
    shuffled = data.draw(st.permutations(accounts))
    assert [one.account for one in rank_accounts(shuffled, session)] == ranked


@given(NAMES, st.data(), st.text())
def test_another_account_moves_only_the_sessions_that_it_gets(names: list[str], data: Any, session: str) -> None:
    accounts = [account(name, data.draw(WEIGHTS)) for name in names]
    before = [one.account for one in rank_accounts(accounts, session)]
    after = [one.account for one in rank_accounts([*accounts, account("new", data.draw(WEIGHTS))], session)]
    after.remove("new")
    assert after == before


@given(NAMES, st.data(), st.text())
def test_accounts_that_rest_are_skipped_and_the_others_keep_their_order(
    names: list[str], data: Any, session: str
) -> None:
    provider, health = pool(*map(account, names)), ProviderHealth(lambda *_: None)
    resting = data.draw(st.sets(st.sampled_from(names)))
    for name in resting:
        health.start_rest(f"p/{name}", data.draw(st.sampled_from(["m", ALL_MODELS])), 100.0, 5.0)
    ranked = [one.account for one in rank_accounts(provider.accounts, session)]
    awake = [one.account for one in list_awake_accounts(provider, session, "m", health, 101.0)]
    assert awake == [name for name in ranked if name not in resting]
    assert [one.account for one in list_awake_accounts(provider, session, "m", health, 105.0)] == ranked
    assert [one.account for one in list_awake_accounts(provider, session, "m", health, 105.0)] == ranked


@settings(max_examples=20)
@given(st.lists(st.integers(1, 10), min_size=2, max_size=5))
def test_the_shares_of_the_sessions_are_those_of_the_weights(weights: list[int]) -> None:
    accounts = [account(str(number), weight) for number, weight in enumerate(weights)]
    count = 4000
    chosen = Counter(rank_accounts(accounts, f"session {number}")[0].account for number in range(count))
    for number, weight in enumerate(weights):
        share = weight / sum(weights)
        deviation = (count * share * (1 - share)) ** 0.5
        assert abs(chosen[str(number)] - count * share) < 6 * deviation


def test_an_account_without_a_key_is_used_only_if_there_is_no_other() -> None:
    with_key, without = account("a"), account("b", key="")
    assert {rank_accounts([with_key, without], str(number))[0] for number in range(50)} == {with_key}
    assert rank_accounts([without], "s") == [without]


def test_a_session_that_had_to_move_stays_where_it_went() -> None:
    provider, health = pool(account("a"), account("b"), account("c")), ProviderHealth(lambda *_: None)
    first, second, third = (one.account for one in rank_accounts(provider.accounts, "s"))

    def awake(now: float) -> list[str]:
        return [one.account for one in list_awake_accounts(provider, "s", "m", health, now)]

    health.start_rest(f"p/{first}", "m", 0.0, 10.0)
    assert awake(1.0) == [second, third]
    health.record_session("p", "s", second, first)
    assert awake(11.0) == [second, first, third]
    health.start_rest(f"p/{second}", "m", 11.0, 10.0)
    assert awake(12.0) == [first, third]
    health.record_session("p", "s", first, first)
    assert awake(30.0) == [first, second, third]


def test_if_all_rest_the_first_that_wakes_is_asked() -> None:
    provider, health = pool(account("a"), account("b")), ProviderHealth(lambda *_: None)
    health.start_rest("p/a", "m", 0.0, 10.0)
    health.start_rest("p/b", ALL_MODELS, 0.0, 5.0)
    assert list_awake_accounts(provider, "s", "m", health, 1.0) == []
    assert find_first_to_wake(provider, "s", "m", health).account == "b"


def test_what_is_remembered_of_sessions_and_rests_is_bounded() -> None:
    health = ProviderHealth(lambda *_: None)
    for number in range(MAX_MOVED_SESSIONS + 10):
        health.record_session("p", str(number), "b", "a")
        health.start_rest("p/a", f"model {number}", float(number), 1.0)
    assert len(health.moved_sessions) == MAX_MOVED_SESSIONS
    assert len(health._cooldown_until) <= 1100


def test_an_account_is_back_when_its_last_rest_has_ended() -> None:
    changes: list[tuple[str, float, str]] = []
    health = ProviderHealth(lambda *change: changes.append(change))
    health.start_rest("p/a", "m", 0.0, 10.0)
    health.start_rest("p/a", "n", 0.0, 20.0, "quota")
    health.end_expired(10.0)
    assert changes == [("p/a", 10.0, "rate"), ("p/a", 20.0, "quota")]
    assert not health.is_resting("p/a", "m", 10.0)
    health.end_expired(20.0)
    assert changes[2:] == [("p/a", 0.0, "")]


def test_a_rest_is_never_shortened() -> None:
    health = ProviderHealth(lambda *_: None)
    health.start_rest("p/a", "m", 0.0, 60.0)
    health.start_rest("p/a", "m", 1.0, 2.0)
    health.record_success(gateway_config.Provider(name="p", account="a", protocols=("openai-chat",)), "m")
    assert health.is_resting("p/a", "m", 50.0)
    assert not health.is_resting("p/a", "m", 60.0)


# --- the configuration ------------------------------------------------------------------------------------------------

POOL = """
[providers.lab]
protocols = ["openai-chat"]
base_url = "https://llm.example.com/v1"
headers = {x-all = "1", x-some = "1"}

[[providers.lab.accounts]]
name = "work"
api_key_env = "WORK_KEY"
weight = 3
headers = {openai-project = "proj_1", X-Some = "2"}

[[providers.lab.accounts]]
name = "home"
api_key_env = "HOME_KEY"
"""


def test_accounts_are_read(tmp_path: Path) -> None:
    file = tmp_path / "toolwire.toml"
    file.write_text(POOL)
    config = load_config(file, {"WORK_KEY": "sk-work-0123456789", "HOME_KEY": "sk-home-0123456789"})
    lab = config.providers["lab"]
    work, home = lab.accounts
    assert (work.label, work.weight, work.api_key.reveal()) == ("lab/work", 3.0, "sk-work-0123456789")
    assert work.headers == {"x-all": "1", "x-some": "2", "openai-project": "proj_1"}
    assert (home.label, home.weight, home.headers) == ("lab/home", 1.0, {"x-all": "1", "x-some": "1"})
    assert {"sk-work-0123456789", "sk-home-0123456789"} <= set(config.secrets)
    assert "sk-" not in repr(config)
    assert lab.key_state == "accounts: work uses WORK_KEY, home uses HOME_KEY"


def test_an_account_without_its_key_is_a_warning(tmp_path: Path) -> None:
    file = tmp_path / "toolwire.toml"
    file.write_text(POOL)
    config = load_config(file, {"HOME_KEY": "sk-home-0123456789"})
    assert [(one.line, one.message) for one in config.warnings] == [(9, "the environment variable WORK_KEY is not set")]
    lab = config.providers["lab"]
    assert not lab.is_key_missing
    assert lab.api_key.reveal() == "sk-home-0123456789"
    assert load_config(file, {}).providers["lab"].is_key_missing


ACCOUNT = '[[providers.lab.accounts]]\nname = "a"\napi_key_env = "A"\n'
LAB = '[providers.lab]\nprotocols = ["openai-chat"]\nbase_url = "https://llm.example.com/v1"\n'
MISTAKES: dict[str, tuple[str, str]] = {
    "no name": (LAB + '[[providers.lab.accounts]]\napi_key_env = "A"\n', "`name` is missing"),
    "a name with a slash": (LAB + ACCOUNT.replace('"a"', '"a/b"'), "invalid name `a/b`"),
    "a name twice": (LAB + ACCOUNT + ACCOUNT, "two accounts have the name `a`"),
    "no key": (LAB + '[[providers.lab.accounts]]\nname = "a"\n', "an account needs one of"),
    "two keys": (LAB + ACCOUNT + 'api_key = "x"\n', "an account needs one of"),
    "a weight of nothing": (LAB + ACCOUNT + "weight = 0\n", "`weight`"),
    "an unknown key": (LAB + ACCOUNT + "wieght = 1\n", "unknown key `wieght`"),
    "a key of the provider, too": (LAB + 'api_key_env = "B"\n' + ACCOUNT, "`api_key_env` and `accounts`"),
    "keys of clients, too": (LAB + "forward_auth = true\n" + ACCOUNT, "`forward_auth` and `accounts`"),
    "not a list": (LAB + "accounts = 5\n", "`accounts` must be a list of tables"),
    "a header of ours": (LAB + ACCOUNT + 'headers = {Host = "x"}\n', "`Host` is set by the gateway"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_told_with_its_line(mistake: str) -> None:
    text, told = MISTAKES[mistake]
    found = [
        one for one in find_problems(text, {"A": "k1", "B": "k2"}, Path("toolwire.toml")) if one.severity == "error"
    ]
    assert any(told in one.message for one in found), found
    assert all(one.line for one in found)


def test_a_key_that_two_accounts_have_is_a_warning() -> None:
    text = LAB + ACCOUNT + ACCOUNT.replace('"a"', '"b"')
    (found,) = find_problems(text, {"A": "sk-the-same-0123456789"})
    assert "the key of another account" in found.message


# --- through the gateway ----------------------------------------------------------------------------------------------


def _pools() -> str:
    """A pool of three accounts for each protocol, and one with a fallback."""
    lines = []
    for protocol in PROVIDERS:
        name = f"pool-{protocol}"
        lines.append(f'[providers.{name}]\nprotocols = ["{protocol}"]\nbase_url = "{{plain}}"')
        for one, key in KEY_OF.items():
            lines.append(f'[[providers.{name}.accounts]]\nname = "{one}"\napi_key = "{key}"')
        lines.append(f'headers = {{x-project = "{protocol}"}}')
        lines.append(f'[models."behind-{protocol}-*"]\nprovider = "{name}"\nfallbacks = ["chat/gpt-fallback-s900x"]')
    return "\n".join(lines) + "\n"


@pytest.fixture(scope="module", name="served")
def serve_gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with stage(tmp_path_factory.mktemp("accounts"), "cooldown = 60\nretries = 2", _pools()) as staged:
        yield staged


def account_of(headers: Any) -> str:
    """The account whose key a request has."""
    text = json.dumps(dict(headers))
    (found,) = (name for name, key in KEY_OF.items() if key in text)
    return found


def accounts_asked(scene: Scene) -> list[str]:
    return [account_of(asked.headers) for asked in scene.asked]


def close_after(data: bytes) -> bytes:
    """A play that is a function ends its connection: the gateway must not use it again."""
    return data.replace(b"content-type", b"connection: close\r\ncontent-type", 1)


def refuse_accounts(protocol: str, *accounts: str, then: bytes, **headers: str) -> Callable[[ScriptedConnection], None]:
    """Refuses these accounts with 429, and answers the others."""
    kind = {"anthropic": "rate_limit_error", "gemini": "RESOURCE_EXHAUSTED"}.get(protocol, "requests")
    refused = answer(429, refusal(protocol, 429, kind, "Slow down."), **{"retry_after": "40", **headers})

    def play(connection: ScriptedConnection) -> None:
        asked = connection.scene.asked[-1]
        connection.send(close_after(refused if account_of(asked.headers) in accounts else then))

    return play


def rank_names(served: Served, provider: str, session: str) -> list[str]:
    return [one.account for one in rank_accounts(served.gateway.config.providers[provider].accounts, session)]


def in_session(
    served: Served, client: str, scene: Scene, stream: bool, session: str
) -> tuple[RawAnswer, dict[str, Any]]:
    got = call(served, client, scene.model, stream, {"session-id": session})
    return got, served.line(got.id)


@STREAMS
@pytest.mark.parametrize("protocol", PROVIDERS)
@pytest.mark.parametrize("client", CLIENTS)
def test_a_session_stays_on_the_account_that_every_gateway_would_choose(
    served: Served, client: str, protocol: str, stream: bool
) -> None:
    name = f"pool-{protocol}"
    scene = served.scene(protocol, play_script(protocol, stream), provider=name)
    for session in ("one", "two", "three"):
        lines = [in_session(served, client, scene, stream, f"{session} {scene.mark}")[1] for _ in range(2)]
        first = rank_names(served, name, lines[0]["session"])[0]
        assert [line["account"] for line in lines] == [first, first]
        assert accounts_asked(scene)[-2:] == [first, first]
    assert scene.asked[-1].headers["x-project" if accounts_asked(scene)[-1] == "c" else "host"]


@STREAMS
@pytest.mark.parametrize("protocol", PROVIDERS)
def test_another_account_answers_for_one_that_is_limited(served: Served, protocol: str, stream: bool) -> None:
    name, client = f"pool-{protocol}", "openai-chat" if protocol != "openai-chat" else "anthropic"
    scene = served.scene(protocol, play_script(protocol, stream), provider=name)
    _, line = in_session(served, client, scene, stream, scene.mark)
    first, second, _ = rank_names(served, name, line["session"])
    scene.plays[:] = [refuse_accounts(protocol, first, then=play_script(protocol, stream))]
    got, line = in_session(served, client, scene, stream, scene.mark)
    assert got.status == 200
    assert got.headers["x-toolwire-attempts"] == f"{name}/{first}=429, {name}/{second}=ok"
    assert [row[:2] for row in line["attempts"]] == [[f"{name}/{first}", "429"], [f"{name}/{second}", "ok"]]
    assert (line["provider"], line["account"]) == (name, second)
    # It rests for all sessions, for this model; other models are asked as before.
    assert in_session(served, client, scene, stream, scene.mark)[1]["account"] == second
    assert first not in {
        in_session(served, client, scene, stream, f"{scene.mark} {n}")[1]["account"] for n in range(12)
    }
    other = served.scene(protocol, play_script(protocol, stream), provider=name)
    assert first in {in_session(served, client, other, stream, f"{other.mark} {n}")[1]["account"] for n in range(24)}
    metrics = ask(served.port, "GET", "/metrics").data.decode()
    assert f'toolwire_account_attempts_total{{provider="{name}",account="{first}",outcome="429"}}' in metrics
    assert f'toolwire_account_cooldown{{provider="{name}",account="{first}"}} 1' in metrics
    assert f'toolwire_attempts_total{{provider="{name}",outcome="429"}}' in metrics
    assert not any(key in metrics for key in KEY_OF.values())


def test_the_other_account_is_asked_at_once_also_if_nobody_says_how_long(served: Served) -> None:
    """No pause and no retry at the account that is limited, though a provider alone would be asked again."""
    name, kind = "pool-anthropic", "rate_limit_error"
    refused = close_after(answer(429, refusal("anthropic", 429, kind, "Slow down.")))
    scene = served.scene("anthropic", refused, play_script("anthropic", False), provider=name)
    got = call(served, "openai-chat", scene.model, False)
    lines: list[dict[str, Any]] = []
    while not lines or lines[-1].get("request_id") != got.id:
        lines.append(json.loads(served.lines.get(timeout=PATIENCE)))
    first, second = (row[0] for row in lines[-1]["attempts"])
    assert first != second
    assert len(scene.asked) == 2
    event = [line for line in lines if line["event"] == "provider_cooldown_start"][-1]
    assert f"{event['provider']}/{event['account']}" == first
    assert (event["reason"], event["seconds"], event["level"]) == ("rate", 60.0, "warn")


def test_a_limit_that_is_used_up_lets_the_account_rest_before_it_refuses(served: Served) -> None:
    protocol, name = "openai-chat", "pool-openai-chat"
    spent = {
        "x_ratelimit_limit_requests": "10",
        "x_ratelimit_remaining_requests": "0",
        "x_ratelimit_reset_requests": "6m0s",
    }
    body = play_script(protocol, False).replace(b"content-length", _headers(spent) + b"content-length")
    scene = served.scene(protocol, body, provider=name)
    _, first = in_session(served, "anthropic", scene, False, scene.mark)
    _, second = in_session(served, "anthropic", scene, False, scene.mark)
    assert first["account"] != second["account"]
    assert "attempts" not in second
    metrics = ask(served.port, "GET", "/metrics").data.decode()
    assert (
        f'toolwire_account_limit_remaining{{provider="{name}",account="{first["account"]}",limit="requests"}} 0'
        in metrics
    )


def _headers(values: dict[str, str]) -> bytes:
    return "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in values.items()).encode()


WHOLE = {"anthropic": ("authentication_error", 401), "openai-chat": ("invalid_request_error", 401)}


@pytest.mark.parametrize("protocol", WHOLE)
def test_an_account_whose_key_is_refused_rests_for_all_models(served: Served, protocol: str) -> None:
    kind, status = WHOLE[protocol]
    name = f"pool-{protocol}"
    refused = answer(status, refusal(protocol, status, kind, "Bad key.", "invalid_api_key"))
    bad: Callable[[ScriptedConnection], None] = lambda connection: connection.send(  # noqa: E731
        close_after(refused if len(connection.scene.asked) == 1 else play_script(protocol, False))
    )
    scene = served.scene(protocol, bad, provider=name)
    got, line = in_session(served, "gemini", scene, False, scene.mark)
    assert got.status == 200
    resting, answering = (row[0].partition("/")[2] for row in line["attempts"])
    assert resting != answering
    other = served.scene(protocol, play_script(protocol, False), provider=name)
    try:
        assert resting not in {
            in_session(served, "gemini", other, False, f"{scene.mark} {n}")[1]["account"] for n in range(12)
        }
    finally:
        served.gateway.health._cooldown_until.clear()  # the other tests need all accounts


@STREAMS
@pytest.mark.parametrize("protocol", PROVIDERS)
def test_all_accounts_are_tried_before_the_fallback(served: Served, protocol: str, stream: bool) -> None:
    behind = served.scene("openai-chat", play_script("openai-chat", stream, "From behind."))
    served.wire.scenes[b"s900x"] = behind
    everybody = refuse_accounts(protocol, *KEY_OF, then=b"")
    scene = served.scene(protocol, everybody, model=f"behind-{protocol}")
    got = call(served, "unified", scene.name, stream)
    assert got.status == 200
    line = served.line(got.id)
    tried = [row[0] for row in line["attempts"]]
    assert sorted(tried[:3]) == [f"pool-{protocol}/{one}" for one in "abc"]
    assert tried[3:] == ["chat"]
    # They all rest now: the fallback is asked at once.
    again = call(served, "unified", scene.name, stream)
    assert "attempts" not in served.line(again.id)
    assert len(scene.asked) == 3


def test_if_all_accounts_are_limited_the_client_learns_how_long(served: Served) -> None:
    """Of the account that can be asked again first."""
    waits = {"a": "50", "b": "40", "c": "60"}

    def play(connection: ScriptedConnection) -> None:
        wait = waits[accounts_asked(connection.scene)[-1]]
        refuse_accounts("anthropic", *KEY_OF, then=b"", retry_after=wait)(connection)

    scene = served.scene("anthropic", play, provider="pool-anthropic")
    got = call(served, "openai-chat", scene.model, False)
    assert (got.status, got.headers["retry-after"]) == (429, "40")
    assert len(scene.asked) == 3
    message = got.json()["error"]["message"]
    assert "account" in message
    assert not any(key in message for key in KEY_OF.values())


def test_the_console_shows_each_account(served: Served) -> None:
    scene = served.scene(
        "anthropic", refuse_accounts("anthropic", "a", then=play_script("anthropic", False)), provider="pool-anthropic"
    )
    for number in range(24):
        in_session(served, "anthropic", scene, False, f"{scene.mark} {number}")
    page = ask(served.port, "GET", f"{API_PATH}providers")
    rows = {row["name"]: row for row in page.json()["providers"]}
    assert {f"pool-anthropic/{one}" for one in "abc"} <= set(rows)
    assert "pool-anthropic" not in rows
    assert scene.name in [one["model"] for one in rows["pool-anthropic/a"]["cooldowns"]]
    assert scene.name not in [one["model"] for one in rows["pool-anthropic/b"]["cooldowns"]]
    assert not any(key.encode() in page.data for key in KEY_OF.values())


# --- what is bound to an account --------------------------------------------------------------------------------------

PARIS = ("get_weather", {"city": "Paris"})


@pytest.fixture(scope="module")
def pools(provider: Provider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A provider for each protocol with two accounts, that sign what they answer."""
    lines = ['[server]\nretries = 0\nlog_format = "none"\n']
    for protocol in PROTOCOLS:
        base = provider.url if protocol in ("anthropic", "gemini") else f"{provider.url}/v1"
        lines.append(f'[providers.{protocol}]\nprotocols = ["{protocol}"]\nbase_url = "{base}"')
        if protocol == "openai-chat":
            lines.append('quirks = ["reasoning-back"]')
        for name, keys in (("a", KEYS), ("b", SECOND_KEYS)):
            lines.append(f'[[providers.{protocol}.accounts]]\nname = "{name}"\napi_key = "{keys[protocol]}"')
    file = tmp_path_factory.mktemp("pools") / "toolwire.toml"
    file.write_text("\n".join(lines))
    with serve(file) as url:
        yield url
    close_all()


SIGNING = {"openai-responses": "gpt-5.5", "anthropic": "claude-sonnet-5-5", "gemini": "gemini-3.8-flash"}


@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings:UserWarning")
@parametrize_pairwise({"source": CONVERSATIONS.keys(), "target": list(SIGNING), "stream": WHOLE_OR_STREAM})
def test_a_seal_is_never_sent_to_another_account(
    provider: Provider, pools: str, source: str, target: str, stream: bool
) -> None:
    """The account that has signed the first answers is limited in the middle of a loop: the other one goes on, and
    sees none of its seals. The session then stays with it."""
    talk = provider.script(
        ScriptedAnswer("Let me look.", (PARIS,), "I think of Paris."),
        Step(fails="rate", wait=3600),
        ScriptedAnswer("And again.", (PARIS,), "I think of Paris again."),
        ScriptedAnswer("15 °C.", (), "Enough."),
        signed=True,
    )
    task = Task(f"How is the weather? {talk.mark}", {"Paris": Result("15 °C")}, thinking=True, tools=TOOLS)
    client = CONVERSATIONS[source](pools, f"{target}/{SIGNING[target]}-{talk.mark[2:-2]}", stream, task)
    turns = client.run()
    assert [turn.text for turn in turns][-1] == "15 °C."
    assert talk.refused == []
    first, *others = (asked.account for asked in talk.asked)
    assert others[0] == first
    assert others[1] != first
    assert others[2] == others[1]
    assert talk.seal_checker is not None
    for asked in talk.asked:
        assert talk.seal_checker.unknown_seals(asked.account, asked.protocol, asked.raw) == []
        assert ENVELOPE_PREFIX not in asked.raw
    last = talk.asked[-1]
    shown = talk.seal_checker.seals_sent(last.account, last.protocol, last.body)
    assert shown == talk.seal_checker.missing_seals(last.account, last.protocol)[: len(shown)]
    assert shown


UPLOAD = '----x\r\ncontent-disposition: form-data; name="file"; filename="a-{mark}"\r\n\r\ntext\r\n----x--\r\n'


def upload(served: Served, scene: Scene, path: str) -> str:
    """Upload a file that the provider calls by the scene's mark; the account that got it."""
    headers = {"content-type": "multipart/form-data; boundary=--x", "x-mark": f"-{scene.mark}"}
    got = ask(served.port, "POST", path, UPLOAD.format(mark=f"-{scene.mark}").encode(), headers)
    assert got.status == 200, got.data
    return accounts_asked(scene)[-1]


def test_an_object_is_used_in_the_account_that_has_it(tmp_path: Path) -> None:
    """A file is uploaded to one account. Requests about it and chats that use it go to that account, also when accounts
    are added that would have got it; chats without it are spread over all."""
    key = next(iter(KEY_OF.values()))
    protocols = '["openai-responses", "openai-chat"]'
    with stage(tmp_path) as staged:
        text = (tmp_path / "toolwire.toml").read_text().partition("[providers")[0]
        first = f'{text}[providers.pool]\nprotocols = {protocols}\nbase_url = "{staged.wire.url}"\n'
        first += f'[[providers.pool.accounts]]\nname = "a"\napi_key = "{key}"\n'
        more = "".join(
            f'[[providers.pool.accounts]]\nname = "{name}"\napi_key = "{KEY_OF[name]}"\nweight = 1000\n'
            for name in "bc"
        )
        (tmp_path / "toolwire.toml").write_text(first)
        staged.gateway.config_watch.reload(force=True)
        scene = staged.scene("openai-responses", b"", provider="pool")
        file = json.dumps({"id": f"file-{scene.mark}", "object": "file"}).encode()
        scene.plays[:] = [answer(200, file)]
        assert upload(staged, scene, "/v1/files") == "a"
        (tmp_path / "toolwire.toml").write_text(first + more)
        staged.gateway.config_watch.reload(force=True)
        assert ask(staged.port, "GET", f"/v1/files/file-{scene.mark}").status == 200
        scene.plays.append(play_script("openai-responses", False))
        for number in range(8):
            part = {"type": "input_file", "file_id": f"file-{scene.mark}"}
            turn = {"role": "user", "content": [part, {"type": "input_text", "text": f"Read it. {number}"}]}
            got = call(staged, "openai-responses", scene.model, False, input=[turn])
            assert got.status == 200, got.data
        assert accounts_asked(scene) == ["a"] * 10
        other = staged.scene("openai-responses", play_script("openai-responses", False), provider="pool")
        for number in range(8):
            call(staged, "openai-responses", other.model, False, input=f"Another. {number}")
        assert "a" not in accounts_asked(other)
        assert ask(staged.port, "GET", f"/v1/files/file-not-noted-{other.mark}").status == 200
        assert accounts_asked(other)[-1] != "a"


def test_to_choose_an_account_changes_no_byte(tmp_path: Path) -> None:
    """A file of JSON that is uploaded, and a chat that names an object: both are read for the account alone."""
    key = next(iter(KEY_OF.values()))
    with stage(tmp_path) as staged:
        text = (tmp_path / "toolwire.toml").read_text().partition("[providers")[0]
        for protocol in ("gemini", "openai-responses"):
            text += f'[providers.{protocol}]\nprotocols = ["{protocol}"]\nbase_url = "{staged.wire.url}"\n'
            text += f'[[providers.{protocol}.accounts]]\nname = "a"\napi_key = "{key}"\n'
        (tmp_path / "toolwire.toml").write_text(text)
        staged.gateway.config_watch.reload(force=True)
        scene = staged.scene("gemini", answer(200, b'{"file": {"name": "files/1"}}'), provider="gemini")
        file = b'{ "mark" : "-%b", "n": 1.50 }\n' % scene.mark.encode()
        got = ask(staged.port, "POST", "/upload/v1beta/files", file, {"content-type": "application/json"})
        assert got.status == 200, got.data
        assert scene.asked[0].body == file
        scene = staged.scene("openai-responses", play_script("openai-responses", False), provider="openai-responses")
        part = b'{"type" : "input_file", "file_id": "file-1"}'
        turn = b'{ "model": "%b", "store": false, "input": [{"role": "user", "content": [%b]}] }'
        got = ask(staged.port, "POST", "/v1/responses", turn % (scene.model.encode(), part))
        assert got.status == 200, got.data
        assert scene.asked[0].body == turn % (scene.name.encode(), part)
