"""What requests cost."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest

from configs import load_config
from toolwire.core.ir import Usage
from toolwire.gateway.models.prices import estimate_cost, find_prices, price_usage
from toolwire.gateway.settings.config import Config
from toolwire.gateway.settings.problems import ConfigError

KEYS = {
    "A": "k1",
    "B": "k2",
    "ANTHROPIC_API_KEY": "a",
    "OPENAI_API_KEY": "o",
    "GEMINI_API_KEY": "g",
    "DEEPSEEK_API_KEY": "d",
}
NOW = datetime(2026, 11, 16, 12, 0, tzinfo=UTC).timestamp()
MILLION = 1_000_000

FILE = """
[providers.lab]
protocols = ["openai-chat"]
base_url = "http://127.0.0.1:1/v1"
models = ["lab-*"]
[providers.other]
protocols = ["openai-chat"]
base_url = "http://127.0.0.1:2/v1"
[providers.pool]
protocols = ["openai-chat"]
base_url = "http://127.0.0.1:3/v1"
accounts = [{ name = "a", api_key_env = "A" }, { name = "b", api_key_env = "B" }]
[models]
fast = "lab/lab-small"
[models.cheap]
provider = "anthropic"
model = "claude-sonnet-4-5"
[models.cheap.facts.prices]
input = 1
output = 2
[models."lab-*".facts.prices]
input = 0.1
output = "0.4"
[models."lab/lab-large".facts.prices]
input = 1
output = 4
cache_read = 0.1
search = 5
tiers = [{ above = 100000, input = 2 }, { above = 1000, output = 6 }]
[models."openai/gpt-4o".facts.prices]
input = 1
"""


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Config:
    path = tmp_path_factory.mktemp("prices") / "toolwire.toml"
    path.write_text(FILE)
    return load_config(path, KEYS)


def ask_price(config: Config, name: str, usage: Usage, at: float = NOW) -> Decimal | None:
    provider, _, model = name.partition("/")
    return price_usage(config.providers[provider], model, usage, at)


def ask_prices(config: Config, name: str, usage: Usage) -> tuple[str, list[str]]:
    """Where the prices are from, and the kinds that are paid."""
    provider, _, model = name.partition("/")
    finder = find_prices(config.providers[provider], model, NOW)
    assert finder is not None
    return finder.source, list(finder.find_unit_prices(usage.input).count_paid(usage) or ())


PRICES: dict[str, tuple[str, Usage, str | None, str]] = {
    # Claude Sonnet 4.5 at Anthropic: 3 and 15 dollars, 0.30 for cached tokens, 3.75 and 6 for those that are written;
    # above 200,000 input tokens 6 and 22.50.
    "input and output": ("anthropic/claude-sonnet-4-6", Usage(1000, 100), "0.0045", "input output"),
    "cached tokens are a part of the input": (
        "anthropic/claude-sonnet-4-6",
        Usage(1000, 0, cache_read=900, cache_write=50),
        "0.0006075",  # 50 · 3 + 900 · 0.3 + 50 · 3.75
        "cache_read cache_write input",
    ),
    "tokens that are cached for an hour are a part of those that are written": (
        "anthropic/claude-sonnet-4-6",
        Usage(1000, 0, cache_write=1000, cache_write_1h=400),
        "0.00465",  # 400 · 6 + 600 · 3.75
        "cache_write_1h cache_write",
    ),
    "a kind without a price costs what the whole costs": (
        "openai/gpt-5",
        Usage(1000, 100, cache_write=500, reasoning=50),
        "0.00225",
        "input output",
    ),
    "searches": ("anthropic/claude-sonnet-4-6", Usage(0, 0, searches=3), "0.03", "search"),
    "nothing was used": ("anthropic/claude-sonnet-4-6", Usage(), "0", ""),
    "more cached than sent": ("anthropic/claude-sonnet-4-6", Usage(10, 0, cache_read=20), "0.000006", "cache_read"),
    "a negative count": ("anthropic/claude-sonnet-4-6", Usage(-5, 100), "0.0015", "output"),
    "the file, by the provider's name": ("lab/lab-large", Usage(1000, 100, cache_read=10), "0.001391", "*"),
    "the file, by a pattern": ("lab/lab-small", Usage(MILLION, MILLION), "0.5", "input output"),
    "the pattern has no provider": ("other/lab-small", Usage(MILLION, MILLION), "0.5", "input output"),
    "a rule, by the name at its provider": ("anthropic/claude-sonnet-4-5", Usage(MILLION, MILLION), "3", "*"),
    "a rule is not about other providers": ("other/cheap", Usage(1, 1), None, ""),
    "a tier": ("lab/lab-large", Usage(1001, 100), "0.001601", "input output"),
    "a higher tier leaves out the output": ("lab/lab-large", Usage(100_001, 100), "0.200602", "input output"),
    "searches without a price": ("lab/lab-small", Usage(MILLION, 0, searches=2), "0.1", "input"),
    "no price of the output": ("openai/gpt-4o", Usage(1, 1), None, ""),
    "an unknown model": ("anthropic/claude-99", Usage(1, 1), None, ""),
    "an unknown provider": ("other/gpt-5", Usage(1, 1), None, ""),
    "the embedded model": ("loopback/loopback", Usage(1, 1), None, ""),
}


@pytest.mark.parametrize(("name", "usage", "total", "kinds"), PRICES.values(), ids=list(PRICES))
def test_usage_has_a_price(config: Config, name: str, usage: Usage, total: str | None, kinds: str) -> None:
    cost = ask_price(config, name, usage)
    if total is None:
        assert cost is None
        return
    assert cost == Decimal(total)
    if kinds != "*":
        assert " ".join(ask_prices(config, name, usage)[1]) == kinds


def test_all_accounts_of_a_provider_have_its_prices(config: Config) -> None:
    costs = {
        price_usage(account, "lab-small", Usage(MILLION, 0), NOW) for account in config.providers["pool"].each_account
    }
    assert len(config.providers["pool"].accounts) == 2
    assert costs == {Decimal("0.1")}


def test_the_source_and_what_has_no_price_are_told(config: Config) -> None:
    known = ask_prices(config, "openai/gpt-5", Usage(1, 1))
    written = ask_prices(config, "lab/lab-small", Usage(1, 1, searches=2))
    assert known == ("catalogue", ["input", "output"])
    assert written == ("file", ["input", "output"])  # searches have no price there


def parse_moment(text: str) -> float:
    return datetime.fromisoformat(f"{text}+00:00").timestamp()


DATES = {
    "at night": ("deepseek/deepseek-flash", "2026-11-16T00:59:59", "", "0.15"),
    "in the morning": ("deepseek/deepseek-flash", "2026-11-16T01:00:00", "", "0.3"),
    "between two busy times": ("deepseek/deepseek-flash", "2026-11-16T04:00:00", "", "0.15"),
    "before a new price": ("openai/o3", "2025-06-09T23:59:59", "", "10"),
    "after it": ("openai/o3", "2025-06-10T00:00:00", "", "2"),
    "before the first price": ("openai/o3", "1999-01-01T00:00:00", "", "10"),
    "a service tier": ("openai/gpt-5", "2026-11-16T00:00:00", "priority", "2.5"),
    "the usual tier": ("openai/gpt-5", "2026-11-16T00:00:00", "default", "1.25"),
    "a tier that has no prices": ("openai/gpt-5", "2026-11-16T00:00:00", "scale", "1.25"),
}


@pytest.mark.parametrize(("name", "at", "tier", "price"), DATES.values(), ids=list(DATES))
def test_a_price_depends_on_the_time_and_the_service_tier(
    config: Config, name: str, at: str, tier: str, price: str
) -> None:
    cost = ask_price(config, name, Usage(MILLION, 0, service_tier=tier), parse_moment(at))
    assert cost == Decimal(price)


def test_an_estimate_is_not_less_than_the_price(config: Config) -> None:
    for name in ("anthropic/claude-sonnet-4-6", "openai/gpt-5", "lab/lab-large"):
        provider, _, model = name.partition("/")
        most = estimate_cost(config.providers[provider], model, Usage(5000, 1000), NOW)
        assert most is not None
        for read, written in ((0, 0), (5000, 0), (0, 5000), (2000, 1000)):
            for hour in (0, written):
                usage = Usage(5000, 1000, cache_read=read, cache_write=written, cache_write_1h=hour)
                cost = ask_price(config, name, usage)
                assert cost is not None
                assert cost <= most
    assert estimate_cost(config.providers["other"], "gpt-5", Usage(1, 1), NOW) is None


MISTAKES = {
    "a misspelt key": ("inptu = 1", "unknown key `inptu`"),
    "not a number": ('input = "a lot"', "input"),
    "negative": ("output = -1", "`output` must be a price from 0 to 1,000,000"),
    "not finite": ("output = nan", "`output` must be a price"),
    "a tier without a limit": ("tiers = [{ input = 1 }]", "tiers"),
    "a misspelt key in a tier": ("tiers = [{ above = 1, inptu = 1 }]", "tiers"),
    "a negative price in a tier": ("tiers = [{ above = 1, input = -1 }]", "`input` must be a price"),
}


@pytest.mark.parametrize(("line", "message"), MISTAKES.values(), ids=list(MISTAKES))
def test_a_mistake_in_the_file_is_reported(tmp_path: Path, line: str, message: str) -> None:
    path = tmp_path / "toolwire.toml"
    path.write_text(f"[models.gpt-5.facts.prices]\n{line}\n")
    with pytest.raises(ConfigError) as error:
        load_config(path, KEYS)
    (problem,) = error.value.problems
    assert message in f"{problem.location} {problem.message}"
