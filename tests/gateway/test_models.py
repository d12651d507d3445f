"""Lists of models: asked of providers over real sockets, cached, merged with the configuration."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest

from configs import load_config
from gateway.list_server import ListServer, list_server, openai_list
from gateway.raw_exchange import ask, run_own_server
from toolwire.core.codec import ModelInfo, make_facts
from toolwire.gateway import app
from toolwire.gateway.http.client import UpstreamClient
from toolwire.gateway.http.senders import ProviderSenders
from toolwire.gateway.models import listing
from toolwire.gateway.models.listing import ListUnavailable, ModelLists, ProviderList, ask_models
from toolwire.gateway.models.merge import merge_models
from toolwire.gateway.settings.config import Provider, Secret, Timeouts
from toolwire.gateway.settings.router import Router
from waits import free_port

T = TypeVar("T")


def provider_at(url: str, protocol: str = "openai-chat", **more: Any) -> Provider:
    return Provider(
        name=more.pop("name", "lab"),
        protocols=(protocol,),
        base_urls={protocol: url},
        api_key=Secret("key-of-the-lab"),
        **more,
    )


def with_client(use: Callable[[UpstreamClient], Awaitable[T]]) -> T:
    async def run() -> T:
        client = UpstreamClient(Timeouts())
        try:
            return await use(client)
        finally:
            await client.close()

    return asyncio.run(run())


def ask_once(provider: Provider) -> tuple[ModelInfo, ...] | ListUnavailable:
    return with_client(lambda client: ask_models(ProviderSenders(client), provider))


def names(answer: tuple[ModelInfo, ...] | ListUnavailable) -> list[str]:
    assert isinstance(answer, tuple), answer
    return [model.id for model in answer]


# --- asking ---------------------------------------------------------------------------------------------------------

CLAUDE_PAGES = {
    "/v1/models?limit=1000": (200, {"data": [{"id": "a"}, {"id": "b"}], "has_more": True, "last_id": "b"}),
    "/v1/models?limit=1000&after_id=b": (200, {"data": [{"id": "c"}], "has_more": False, "last_id": "c"}),
}
GEMINI_PAGES = {
    "/v1beta/models?pageSize=1000": (200, {"models": [{"name": "models/a"}], "nextPageToken": "t="}),
    "/v1beta/models?pageSize=1000&pageToken=t%3D": (200, {"models": [{"name": "models/b"}, {"name": "models/a"}]}),
}
ASKED: dict[str, tuple[str, Any, list[str], dict[str, str]]] = {
    "chat": (
        "openai-chat",
        {"/v1/models": openai_list("a", "b")},
        ["a", "b"],
        {"authorization": "Bearer key-of-the-lab"},
    ),
    "responses": ("openai-responses", {"/v1/models": openai_list("a")}, ["a"], {}),
    "anthropic": (
        "anthropic",
        CLAUDE_PAGES,
        ["a", "b", "c"],
        {"x-api-key": "key-of-the-lab", "anthropic-version": "2023-06-01"},
    ),
    "gemini": ("gemini", GEMINI_PAGES, ["a", "b"], {"x-goog-api-key": "key-of-the-lab"}),
}


@pytest.mark.parametrize(("protocol", "answers", "expected", "headers"), ASKED.values(), ids=list(ASKED))
def test_a_provider_is_asked_in_its_own_protocol(
    protocol: str, answers: Any, expected: list[str], headers: dict[str, str]
) -> None:
    with list_server(answers) as server:
        assert names(ask_once(provider_at(server.url, protocol))) == expected
        assert [target for target, _ in server.asked] == list(answers)
        for _, sent in server.asked:
            assert headers.items() <= sent.items()
            assert "content-type" not in sent


def test_a_cursor_that_is_ignored_does_not_ask_for_ever() -> None:
    with list_server(lambda _: openai_list("a", has_more=True, last_id="a")) as server:
        assert names(ask_once(provider_at(server.url))) == ["a"]
        assert len(server.asked) == 2


def test_pages_and_models_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    def endless(target: str) -> tuple[int, Any]:
        start = int(target.partition("after=m")[2] or 0) + 1
        return openai_list(f"m{start}", f"m{start + 1}", has_more=True, last_id=f"m{start + 1}")

    monkeypatch.setattr(listing, "MAX_PAGES", 3)
    with list_server(endless) as server:
        assert names(ask_once(provider_at(server.url))) == ["m1", "m2", "m3", "m4", "m5", "m6"]
        monkeypatch.setattr(listing, "MAX_MODELS", 3)
        assert names(ask_once(provider_at(server.url))) == ["m1", "m2", "m3"]


FAILURES: dict[str, tuple[Any, str, str]] = {
    "refused": ((401, {"error": {"message": "bad key key-of-the-lab"}}), "401", "answered with 401: bad key [key]"),
    "an error that is not JSON": ((503, b"<html>"), "503", "answered with 503"),
    "a page that is not a list": ((200, {"status": "ok"}), "not-a-list", "not a list of models"),
    "not JSON": ((200, b"<html>"), "not-a-list", "not a list of models"),
    "nested too deeply": ((200, b"[" * 100_000), "not-a-list", "not a list of models"),
    "too large": ((200, b" " * 3000), "protocol", "more than 2,000 bytes"),
}


@pytest.mark.parametrize(("answer", "reason", "detail"), FAILURES.values(), ids=list(FAILURES))
def test_why_there_is_no_list(monkeypatch: pytest.MonkeyPatch, answer: Any, reason: str, detail: str) -> None:
    if "2,000" in detail:
        monkeypatch.setattr(listing, "MAX_PAGE_BYTES", 2000)
    with list_server(lambda _: answer) as server:
        failed = ask_once(provider_at(server.url))
    assert isinstance(failed, ListUnavailable)
    assert failed.reason == reason
    assert detail in failed.detail
    assert "key-of-the-lab" not in failed.detail


def test_a_provider_that_is_down() -> None:
    failed = ask_once(provider_at(f"http://127.0.0.1:{free_port()}"))
    assert isinstance(failed, ListUnavailable)
    assert failed.reason == "refused"


def test_a_provider_that_never_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "ASK_SECONDS", 0.05)
    with list_server({"/v1/models": openai_list("a")}) as server:
        server.gate.clear()
        failed = ask_once(provider_at(server.url))
    assert isinstance(failed, ListUnavailable)
    assert failed.reason == "timeout"


def test_names_that_could_be_another_path_are_left_out() -> None:
    with list_server({"/v1/models": openai_list("a", "../b", "c\n", "d%2e", "x" * 300)}) as server:
        assert names(ask_once(provider_at(server.url))) == ["a"]


# --- the cache ------------------------------------------------------------------------------------------------------


class Cached:
    """The lists of one provider with a clock that the test moves."""

    def __init__(self, client: UpstreamClient, server: ListServer) -> None:
        self.provider, self.client, self.now = provider_at(server.url), client, 0.0
        self.events: list[tuple[str, str]] = []
        self.lists = ModelLists(lambda name, why: self.events.append((name, why.reason if why else "")), self._fail)

    def _fail(self, error: BaseException) -> None:
        raise error

    async def load(self, wait_seconds: float = 60) -> ProviderList:
        (one,) = await self.lists.load(
            ProviderSenders(self.client), [self.provider], lambda: self.now, "", wait_seconds
        )
        return one

    async def settle(self) -> None:
        """Wait for the request in the background."""
        for cached in self.lists._lists.values():
            if cached.task is not None:
                await cached.task


def play(story: Callable[[Cached, ListServer], Awaitable[None]], answers: Any = None) -> None:
    with list_server(answers or {"/v1/models": openai_list("a")}) as server:
        with_client(lambda client: story(Cached(client, server), server))


def test_a_list_is_asked_for_once_while_it_is_fresh() -> None:
    async def story(cached: Cached, server: ListServer) -> None:
        answers = await asyncio.gather(*(cached.load() for _ in range(10)))
        assert all(names(one.models or ()) == ["a"] for one in answers)
        cached.now = listing.FRESH_SECONDS - 1
        await cached.load()
        assert len(server.asked) == 1

    play(story)


def test_a_list_that_is_cut_off_is_reported_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "MAX_MODELS", 2)

    async def story(cached: Cached, server: ListServer) -> None:
        for _ in range(2):
            assert len((await cached.load()).models or ()) == 2
            await cached.settle()
            cached.now += listing.FRESH_SECONDS
        assert cached.events == [("lab", "cut-off")]

    play(story, {"/v1/models": openai_list("a", "b", "c")})


def test_an_old_list_is_used_while_a_new_one_is_on_its_way() -> None:
    async def story(cached: Cached, server: ListServer) -> None:
        await cached.load()
        cached.now = listing.FRESH_SECONDS
        server.answers = {"/v1/models": openai_list("b")}
        server.gate.clear()
        assert names((await cached.load()).models or ()) == ["a"]
        assert names((await cached.load()).models or ()) == ["a"]
        server.gate.set()
        await cached.settle()
        assert names((await cached.load()).models or ()) == ["b"]
        assert len(server.asked) == 2

    play(story)


def test_an_old_list_stays_while_the_provider_is_down_and_is_said_to_be_old() -> None:
    async def story(cached: Cached, server: ListServer) -> None:
        await cached.load()
        cached.now += listing.FRESH_SECONDS
        server.answers = {}
        await cached.load()
        await cached.settle()
        down = await cached.load()
        assert names(down.models or ()) == ["a"]
        assert down.problem is not None
        assert down.problem.reason == "404"
        assert len(server.asked) == 2, "not asked by every request"
        cached.now += listing.RETRY_SECONDS
        server.answers = {"/v1/models": openai_list("a")}
        await cached.load()
        await cached.settle()
        assert (await cached.load()).problem is None
        assert cached.events == [("lab", "404"), ("lab", "")]

    play(story)


def test_a_request_does_not_wait_for_ever_for_the_first_list() -> None:
    async def story(cached: Cached, server: ListServer) -> None:
        server.gate.clear()
        slow = await cached.load(0)
        assert slow.models is None
        assert slow.problem is not None
        assert slow.problem.reason == "slow"
        server.gate.set()
        assert names((await cached.load()).models or ()) == ["a"]

    play(story)


def test_a_changed_provider_is_asked_again_and_a_removed_one_forgotten() -> None:
    async def story(cached: Cached, server: ListServer) -> None:
        await cached.load()
        same = provider_at(server.url)
        cached.lists.forget_others([same])
        cached.provider = same
        await cached.load()
        assert len(server.asked) == 1
        cached.provider = provider_at(server.url, headers={"x-team": "red"})
        await cached.load()
        assert len(server.asked) == 2
        cached.lists.forget_others([cached.provider])
        assert len(cached.lists._lists) == 1

    play(story)


# --- merging --------------------------------------------------------------------------------------------------------

CONFIG = """
[providers.first]
protocols = ["openai-chat"]
base_url = "http://127.0.0.1:1/v1"
models = ["gpt-*", "fixed"]
[providers.second]
protocols = ["anthropic"]
base_url = "http://127.0.0.1:1"
models = ["claude-*", "gpt-*"]
[models]
fast = "second/claude-small"
[models."claude-large*"]
provider = "first"
model = "gpt-large"
[models."lab-*"]
provider = "second"
"""


def merge_lists(tmp_path: Path, offered: dict[str, list[ModelInfo]], text: str = CONFIG) -> dict[str, ModelInfo]:
    path = tmp_path / "toolwire.toml"
    path.write_text(text)
    config = load_config(path, {})
    lists = [ProviderList(config.providers[name], tuple(models)) for name, models in offered.items()]
    return {model.id: model for model in merge_models(Router(config), lists)}


def test_models_are_listed_under_the_names_that_reach_them(tmp_path: Path) -> None:
    first = [ModelInfo("gpt-large", created=7), ModelInfo("odd")]
    second = [
        ModelInfo("claude-small", facts=make_facts(1000, 100), display_name="Small"),
        ModelInfo("claude-large-2"),
        ModelInfo("gpt-large"),
        ModelInfo("lab-1"),
    ]
    found = merge_lists(tmp_path, {"first": first, "second": second})
    assert {name: model.owner for name, model in found.items()} == {
        "fast": "second",  # an alias
        "fixed": "first",  # a name in the configuration, which the provider does not list
        "gpt-large": "first",
        "first/odd": "first",  # no pattern leads there
        "claude-small": "second",
        "second/claude-large-2": "second",  # the pattern takes its own name away
        "claude-large-2": "first",  # and leads there
        "second/gpt-large": "second",  # the same model at another provider
        "lab-1": "second",
        "loopback": "loopback",
    }
    assert list(found)[-1] == "loopback"
    assert found["gpt-large"].created == 7
    assert found["claude-large-2"].created == 7, "it is gpt-large"
    assert found["fast"].facts == found["claude-small"].facts == make_facts(1000, 100)
    assert found["claude-small"].display_name == "Small"
    assert found["fast"].display_name == ""


def test_every_listed_name_leads_to_its_provider(tmp_path: Path) -> None:
    every = [
        ModelInfo(name) for name in ("a", "fast", "fixed", "loopback", "first/x", "claude-large", "gpt-1", "lab-1")
    ]
    found = merge_lists(tmp_path, {"first": every, "second": every})
    router = Router(load_config(tmp_path / "toolwire.toml", {}))
    for name, model in found.items():
        targets = router.route(name, None)
        assert isinstance(targets, tuple)
        assert targets[0].provider.name == model.owner


# --- the gateway ----------------------------------------------------------------------------------------------------

KEYS = {"all": "the-key-of-everybody", "some": "the-key-of-somebody"}
DIALECTS: dict[str, tuple[str, dict[str, str], Callable[[Any], list[str]]]] = {
    "openai": ("/v1/models", {}, lambda body: [one["id"] for one in body["data"]]),
    "codex": ("/v1/models?client_version=1", {}, lambda body: [one["id"] for one in body["data"]]),
    "anthropic": ("/v1/models", {"anthropic-version": "2023-06-01"}, lambda body: [one["id"] for one in body["data"]]),
    "gemini": ("/v1beta/models", {}, lambda body: [one["name"].removeprefix("models/") for one in body["models"]]),
    "unified": ("/v1/unified/models", {}, lambda body: [one["id"] for one in body["models"]]),
}


def write_config(tmp_path: Path, chat: str, claude: str, dead: int) -> Path:
    keys = "".join(
        f'[[server.keys]]\nname = "{name}"\nsha256 = "{hashlib.sha256(key.encode()).hexdigest()}"\n'
        + ('models = ["gpt-*", "fast"]\n' if name == "some" else "")
        for name, key in KEYS.items()
    )
    path = tmp_path / "toolwire.toml"
    path.write_text(f"""
[server]
log_format = "none"
{keys}
[providers.lab]
protocols = ["openai-chat"]
base_url = "{chat}/v1"
models = ["gpt-*"]
[providers.claude]
protocols = ["anthropic"]
base_url = "{claude}"
models = ["claude-*"]
[providers.dead]
protocols = ["openai-chat"]
base_url = "http://127.0.0.1:{dead}/v1"
models = ["dead-*"]
[models]
fast = "claude/claude-small"
""")
    return path


CLAUDE = {"id": "claude-small", "max_input_tokens": 200000, "max_tokens": 8192, "display_name": "Small"}


@pytest.fixture
def gateway_port(tmp_path: Path) -> Any:
    chat, claude = {"/v1/models": openai_list("gpt-1", "tts-1")}, {"/v1/models?limit=1000": (200, {"data": [CLAUDE]})}
    with (
        list_server(chat) as first,
        list_server(claude) as second,
        run_own_server(app(write_config(tmp_path, first.url, second.url, free_port()))) as port,
    ):
        yield port


def get(port: int, path: str, key: str, headers: dict[str, str]) -> Any:
    return ask(port, "GET", path, headers={**headers, "authorization": f"Bearer {KEYS[key]}"})


@pytest.mark.parametrize(("path", "headers", "read"), DIALECTS.values(), ids=list(DIALECTS))
def test_the_gateway_lists_what_the_providers_offer(
    gateway_port: int, path: str, headers: dict[str, str], read: Callable[[Any], list[str]]
) -> None:
    got = get(gateway_port, path, "all", headers)
    assert got.status == 200
    assert read(got.json()) == ["fast", "gpt-1", "lab/tts-1", "claude-small", "loopback"]
    assert got.headers[listing.UNAVAILABLE_HEADER] == "dead=refused"
    some = get(gateway_port, path, "some", headers)
    assert read(some.json()) == ["fast", "gpt-1"]
    assert listing.UNAVAILABLE_HEADER not in some.headers, "the provider is none of its business"


def test_one_model_has_the_facts_of_its_provider(gateway_port: int) -> None:
    anthropic = {"anthropic-version": "2023-06-01"}
    for name in ("claude-small", "fast", "claude/claude-small"):
        entry = get(gateway_port, f"/v1/models/{name}", "all", anthropic).json()
        assert (entry["id"], entry["max_input_tokens"], entry["max_tokens"]) == (name, 200000, 8192)
    entry = get(gateway_port, "/v1beta/models/fast", "all", {}).json()
    assert (entry["inputTokenLimit"], entry["outputTokenLimit"]) == (200000, 8192)
    assert get(gateway_port, "/v1/models/claude-small", "some", {}).status == 403
    assert get(gateway_port, "/v1/models/dead-1", "all", {}).status == 200
    assert get(gateway_port, "/v1/models/nowhere", "all", {}).status == 404


def test_pages_of_a_merged_list(tmp_path: Path) -> None:
    listed = {"/v1/models": openai_list(*(f"gpt-{number}" for number in range(50)))}
    with (
        list_server(listed) as server,
        run_own_server(app(write_config(tmp_path, server.url, server.url, free_port()))) as port,
    ):
        seen: list[str] = []
        after = ""
        while True:
            query = f"?limit=20&after_id={after}" if after else "?limit=20"
            page = get(port, f"/v1/models{query}", "all", {"anthropic-version": "2023-06-01"}).json()
            seen += [one["id"] for one in page["data"]]
            after = page["last_id"]
            if not page["has_more"]:
                break
        assert seen == ["fast", *(f"gpt-{number}" for number in range(50)), "loopback"]
        assert len(server.asked) == 2, "one list for each provider, however many pages were sent"


def test_a_provider_hears_through_which_gateways_it_is_asked(tmp_path: Path) -> None:
    """So that gateways that list each other do not ask for ever: one that finds itself in the header refuses."""
    listed = {"/v1/models": openai_list("gpt-1")}
    with (
        list_server(listed) as server,
        run_own_server(app(write_config(tmp_path, server.url, server.url, free_port()))) as port,
    ):
        assert get(port, "/v1/models", "all", {"x-toolwire-hops": "abc"}).status == 200
        hops = [headers["x-toolwire-hops"] for _, headers in server.asked]
        assert len(hops) == 2
        assert all(one.startswith("abc,") for one in hops)
        assert get(port, "/v1/models", "all", {"x-toolwire-hops": hops[0]}).json()["error"]["code"] == "loop"


# --- the models demo-… ----------------------------------------------------------------------------------------------

DEMOS = ["demo-openai-chat", "demo-openai-responses", "demo-anthropic", "demo-gemini"]


def test_demos_are_listed_only_without_a_real_provider(tmp_path: Path) -> None:
    assert list(merge_lists(tmp_path, {}, "")) == ["loopback", *DEMOS]
    assert "demo-gemini" not in merge_lists(tmp_path, {})
    assert Router(load_config(tmp_path / "toolwire.toml", {})).find_target("demo-gemini") is not None


@pytest.mark.parametrize("model", ["loopback", *DEMOS])
def test_a_demo_is_translated(tmp_path: Path, model: str) -> None:
    """The Chat client's `logit_bias` survives only where Chat is spoken."""
    path = tmp_path / "toolwire.toml"
    path.write_text('[server]\nlog_format = "none"\n')
    message = {"role": "user", "content": "What is the weather in Paris and London?"}
    tool = {"type": "function", "function": {"name": "get_weather", "parameters": {"properties": {"city": {}}}}}
    body = {"model": model, "messages": [message], "tools": [tool], "logit_bias": {"1": 1}}
    with run_own_server(app(path)) as port:
        got = ask(port, "POST", "/v1/chat/completions", json.dumps(body).encode())
    assert got.status == 200, got.data
    assert got.json()["model"] == model
    assert ("unknown-field" in got.headers.get("x-toolwire-losses", "")) == (
        model not in ("loopback", "demo-openai-chat")
    )
