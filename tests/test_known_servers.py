"""What holds for every row of `providers.toml`: the table of well-known servers."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

import pytest

from toolwire.gateway.configuration.load import find_problems, read_config
from toolwire.gateway.models.catalogue import load_catalogue
from toolwire.gateway.settings.address import Address, check_base_url, is_exposed
from toolwire.gateway.settings.providers import UNSUPPORTED_SERVERS, KnownServer, known_servers
from toolwire.protocols import CODECS

SERVERS = known_servers()
ROWS = pytest.mark.parametrize(("name", "row"), SERVERS.items(), ids=list(SERVERS))
VARIABLE = re.compile(r"[A-Z][A-Z0-9_]+")
NAME = re.compile(r"[a-z0-9-]+")


def list_urls(row: KnownServer) -> dict[str, str]:
    return row.base_url if isinstance(row.base_url, dict) else dict.fromkeys(row.protocols, row.base_url)


@ROWS
def test_a_row_says_who_it_is_and_where_that_is_written(name: str, row: KnownServer) -> None:
    assert NAME.fullmatch(name)
    assert row.title
    assert row.source
    assert all(re.fullmatch(r"https://[^\s/]+\.[^\s/]+/?\S*", url) for url in row.source)
    assert re.fullmatch(r"20\d\d-(0[1-9]|1[0-2])", row.checked)


@ROWS
def test_a_row_has_an_address_for_each_protocol(name: str, row: KnownServer) -> None:
    assert row.protocols
    assert {*row.protocols} <= {*CODECS}
    urls = list_urls(row)
    assert urls.keys() == {*row.protocols}
    for url in filter(None, urls.values()):
        assert check_base_url(url) == ""
        assert row.local or not is_exposed(url), "a key must not be sent in the clear"
        assert not url.endswith("/")
        assert urlsplit(url).query == ""
        address = Address.parse(url)
        for protocol in row.protocols:
            assert not re.search(r"/v\d[^/]*/v\d", address.request_target(CODECS[protocol].http.model_list_paths[0]))
    assert row.base_url or row.base_url_env


@ROWS
def test_a_row_names_the_variable_of_its_key(name: str, row: KnownServer) -> None:
    assert row.key_env or row.cloud.auth
    assert len({*row.key_env}) == len(row.key_env)
    assert all(VARIABLE.fullmatch(variable) for variable in (*row.key_env, *row.base_url_env))
    others = {variable for other, one in SERVERS.items() if other != name for variable in one.key_env}
    assert others.isdisjoint(row.key_env), "one key would be sent to two vendors"


@ROWS
def test_the_quirks_of_a_row_exist_in_its_protocols(name: str, row: KnownServer) -> None:
    known = {quirk for protocol in row.protocols for quirk in CODECS[protocol].quirks}
    assert {*row.quirks} <= known
    assert len({*row.quirks}) == len(row.quirks)


@ROWS
def test_the_catalogue_has_the_names_that_a_row_gives(name: str, row: KnownServer) -> None:
    assert not row.catalogue or row.catalogue in load_catalogue().providers
    assert row.catalogue != name, "this is so without saying"


def test_no_two_servers_have_a_pattern_of_models_or_an_address_in_common() -> None:
    patterns = [pattern for row in SERVERS.values() for pattern in row.models]
    assert len({*patterns}) == len(patterns)
    urls = [url for row in SERVERS.values() for url in {*list_urls(row).values()} if url]
    assert len({*urls}) == len(urls)
    assert SERVERS.keys().isdisjoint(UNSUPPORTED_SERVERS)


HOSTED = [name for name, row in SERVERS.items() if not row.local and row.base_url and not row.cloud.platform]


def explain(text: str, environ: dict[str, str]) -> str:
    return " ".join(f"{problem.message}; {problem.hint}" for problem in find_problems(text, environ))


@pytest.mark.parametrize("name", HOSTED)
def test_a_key_in_the_environment_is_enough_unless_it_has_other_uses(name: str) -> None:
    row = SERVERS[name]
    for variable in row.key_env:
        config = read_config("", None, {variable: "k-1"}, {}, {})
        assert config.warnings == ()
        assert (name in config.providers) is not row.only_if_named
        named = read_config(f"[providers.{name}]\n", None, {variable: "k-1"}, {}, {})
        assert named.warnings == ()
        assert named.providers[name].api_key.reveal() == "k-1"
        assert named.providers[name].base_urls == list_urls(row)


@pytest.mark.parametrize("name", HOSTED)
def test_a_missing_key_is_named(name: str) -> None:
    assert f"{SERVERS[name].key_env[0]} is not set" in explain(f"[providers.{name}]\n", {})


@pytest.mark.parametrize(
    ("typed", "meant"),
    {
        "fireworks-ai": "fireworks",
        "togther": "together",
        "cerebrs": "cerebras",
        "minmax": "minimax",
        "dashscop": "dashscope",
    }.items(),
)
def test_a_name_that_is_nearly_right_is_understood(typed: str, meant: str) -> None:
    assert f"did you mean `{meant}`" in explain(f'[providers.mine]\nkind = "{typed}"\n', {})


def test_a_server_that_was_closed_is_named() -> None:
    text = '[providers.github]\napi_key_env = "GITHUB_TOKEN"\n'
    assert "closed on 30 July 2026" in explain(text, {"GITHUB_TOKEN": "k"})
