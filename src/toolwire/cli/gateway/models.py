"""`toolwire models`: what the configured providers offer, and what is known about a model. Needs no gateway."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal
from typing import Any

import msgspec
from msgspec.structs import replace

from toolwire import terminal
from toolwire.core.codec import ModelInfo
from toolwire.core.ir import Failure
from toolwire.gateway.features.cloud_credentials.feature import make_provider_senders
from toolwire.gateway.http.client import open_client
from toolwire.gateway.models.facts import Fact, FactFinder, FactValue
from toolwire.gateway.models.listing import ProviderList, ask_all
from toolwire.gateway.models.merge import find_listed, merge_models
from toolwire.gateway.models.prices import DECIMALS_OF_UNIT, PriceFinder, find_prices
from toolwire.gateway.settings.config import Config, Provider
from toolwire.gateway.settings.providers import build_known_provider, known_servers
from toolwire.gateway.settings.router import Router, Target, find_owner
from toolwire.policy.rules import is_glob, matches_globs
from toolwire.terminal import EXIT_FAILED, CommandError

UNKNOWN = "–"
FACT_TITLES = {
    "context_window": "window",
    "max_output_tokens": "most output",
    "input_modalities": "takes",
    "output_modalities": "answers with",
    "tools": "tools",
    "parallel_tools": "parallel tools",
    "reasoning_efforts": "efforts",
}
UNKNOWN_PRICES = "unknown; set input and output in [models.NAME.facts.prices]"
PRICE_TITLES = {
    "input": "input",
    "output": "output",
    "cache_read": "cached",
    "cache_write": "cache written",
    "cache_write_1h": "cached for 1 h",
    "reasoning": "thinking",
    "input_audio": "audio input",
    "input_image": "image input",
    "output_audio": "audio output",
    "output_image": "image output",
    "search": "search",
    "request": "request",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("words", nargs="*", metavar="PATTERN", help="list the models with this text, or of this pattern (`gpt-*`)")
    parser.epilog = "`toolwire models show NAME` says what is known about one model, and from where."
    add("--offline", action="store_true", help="ask no provider: only the configuration and the catalogue")
    add("--json", action="store_true", help="print one JSON document")


def run(args: argparse.Namespace, config: Config) -> int:
    is_show = args.words[:1] == ["show"]
    if args.words == ["show"]:
        raise CommandError("which model?", "name it: `toolwire models show NAME`; `toolwire models` lists them all")
    if len(args.words) > (2 if is_show else 1):
        hint = "`toolwire models PATTERN` lists models, `toolwire models show NAME` explains one"
        raise CommandError(f"too many words: {' '.join(args.words)}", hint)
    if is_show:
        return show_model(config, args.words[1], args)
    return list_models(config, args.words[0] if args.words else "", args)


def ask_providers(providers: Iterable[Provider], config: Config, is_offline: bool) -> tuple[ProviderList, ...]:
    """Ask the providers for their models, and say which cannot be asked."""
    if is_offline:
        return ()

    async def ask() -> tuple[ProviderList, ...]:
        async with open_client(config.server.timeouts) as client:
            return await ask_all(make_provider_senders(config, client, os.environ), [*providers])

    lists = asyncio.run(ask())
    rows = [(f"left out: {one.provider.name}", one.problem.detail) for one in lists if one.problem is not None]
    sys.stderr.write(terminal.format_table(rows, ["changed"] * len(rows), sys.stderr))
    return lists


# --- the list -------------------------------------------------------------------------------------------------------


def list_models(config: Config, pattern: str, args: argparse.Namespace) -> int:
    lists = ask_providers(config.providers.values(), config, args.offline)
    models = [model for model in merge_models(Router(config), lists) if _is_chosen(model.id, pattern)]
    if args.json:
        document = {
            "models": [model_document(model) for model in models],
            "unavailable": {one.provider.name: one.problem.detail for one in lists if one.problem is not None},
        }
        sys.stdout.write(terminal.format_json(document))
        return 0
    if not models:
        hint = "`toolwire models` lists them all" if pattern else "set a provider's key, or name one in toolwire.toml"
        raise CommandError(f"no model matches `{pattern}`" if pattern else "there is no model", hint, EXIT_FAILED)
    rows = [("model", "provider", "window", "most output"), *map(model_row, models)]
    sys.stdout.write(terminal.format_table(terminal.align_right(rows, 2), ["head"], has_header=True))
    return 0


def _is_chosen(name: str, pattern: str) -> bool:
    """`gpt-*` also matches `provider/gpt-5.5`."""
    if is_glob(pattern):
        return any(matches_globs(one, (pattern,)) for one in (name, name.partition("/")[2]))
    return pattern.lower() in name.lower()


def model_row(model: ModelInfo) -> tuple[str, ...]:
    facts = model.facts
    return model.id, model.owner, format_count(facts.context_window), format_count(facts.max_output_tokens)


def format_count(value: int | None) -> str:
    return UNKNOWN if value is None else f"{value:,}"


def model_document(model: ModelInfo) -> dict[str, object]:
    return {"id": model.id, "provider": model.owner, **msgspec.to_builtins(model.facts)}


# --- one model ------------------------------------------------------------------------------------------------------


def show_model(config: Config, name: str, args: argparse.Namespace) -> int:
    router = Router(config)
    targets = router.route(name, None)
    missing = ""
    if isinstance(targets, Failure):
        router, missing = add_owner(config, name)
        found = router.route(name, None)
        if isinstance(found, Failure):
            raise CommandError(targets.message, "`toolwire models` lists the models", EXIT_FAILED)
        targets = found
    elif targets[0].provider.is_key_missing:
        missing = targets[0].provider.api_key_env
    lists = ask_providers((targets[0].provider,), config, args.offline or bool(missing))
    listed = find_listed(targets[0], lists)
    facts = FactFinder(router).explain_facts(name, (listed or ModelInfo(name)).facts)
    prices = find_prices(targets[0].provider, targets[0].model, time.time())
    if args.json:
        sys.stdout.write(terminal.format_json(fact_document(name, targets, facts, prices, missing)))
        return 0
    served = ", then ".join(_describe_target(target) for target in targets)
    sys.stdout.write(terminal.heading(name))
    sys.stdout.write(terminal.format_table([("served by", served)]))
    if missing:
        sys.stdout.write(terminal.format_table([("missing", f"{missing}: set it to use this model")], ["changed"]))
    sys.stdout.write(terminal.format_table(map(fact_row, facts)))
    sys.stdout.write(terminal.format_table([("prices", prices.origin if prices is not None else UNKNOWN_PRICES)]))
    if prices is not None:
        sys.stdout.write(terminal.format_table(price_rows(prices)))
    if any(one.models is not None for one in lists) and listed is None:
        sys.stderr.write(f"{targets[0].provider.name} does not list it; a request may still work\n")
    return 0


def add_owner(config: Config, name: str) -> tuple[Router, str]:
    """A router that also knows the well-known server whose model this is, and the variables that it needs."""
    owner = find_owner(name)[0]
    provider = build_known_provider(owner) if owner and owner not in config.providers else None
    if provider is None:
        return Router(config), ""
    variables = " and ".join(known_servers()[owner].needed_variables)
    return Router(replace(config, providers={**config.providers, owner: provider})), variables


def _describe_target(target: Target) -> str:
    kind = "the embedded model" if target.provider.embedded else target.provider.name
    return f"{kind}, as {target.model}{f' in {target.protocol}' if target.protocol else ''}"


def fact_row(fact: Fact) -> tuple[str, str, str]:
    unknown = f"unknown; set {fact.name} in [models.NAME.facts]"
    return FACT_TITLES[fact.name], format_fact(fact.value), fact.source or unknown


def format_fact(value: FactValue) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return ", ".join(value) or "none"
    return format_count(value)


def price_rows(prices: PriceFinder) -> Iterator[tuple[str, str, str]]:
    """The prices that apply now, with those for long prompts."""
    limits = sorted({0, *(tier.above for one in prices.prices for tier in one.tiers)})
    for kind, title in PRICE_TITLES.items():
        unit = "a thousand" if kind in DECIMALS_OF_UNIT else "a million tokens"
        steps: list[tuple[int, Decimal]] = []
        for limit in limits:
            rate = prices.find_rate(kind, limit + 1)
            if rate is not None and (not steps or rate != steps[-1][1]):
                steps.append((limit, rate))
        if steps:
            more = [f"${rate.normalize():f} in prompts above {limit:,} tokens" for limit, rate in steps[1:]]
            yield f"  {title}", f"${steps[0][1].normalize():f} {unit}", ", ".join(more)


def fact_document(
    name: str, targets: Sequence[Target], facts: Iterable[Fact], prices: PriceFinder | None, missing: str
) -> dict[str, object]:
    document: dict[str, object] = {
        "id": name,
        "missing": missing or None,
        "served_by": [{"provider": target.provider.name, "model": target.model} for target in targets],
        "facts": {fact.name: {"value": fact.value, "source": fact.source or None} for fact in facts},
        "prices": None,
    }
    if prices is not None:
        tables = [msgspec.to_builtins(one) for one in prices.prices]
        document["prices"] = {"value": [_drop_unknown(table) for table in tables], "source": prices.origin}
    return document


def _drop_unknown(table: dict[str, Any]) -> dict[str, Any]:
    known = {key: value for key, value in table.items() if value not in (None, "", [])}
    return {**known, "tiers": [*map(_drop_unknown, known["tiers"])]} if "tiers" in known else known
