"""Writes src/toolwire/gateway/models/catalogue.json: what genai-prices knows about models, in a form that loads fast.

Run it with the package installed: `uv run --no-project --with genai-prices==VERSION .ci/catalogue.py`. Why not the
package itself: docs/decisions/0018.
"""

from __future__ import annotations

import json
from decimal import Decimal
from importlib.metadata import version
from pathlib import Path
from typing import Any

from genai_prices import types
from genai_prices.data import providers

FILE = Path(__file__).parents[1] / "src" / "toolwire" / "gateway" / "models" / "catalogue.json"
KINDS = {
    types.ClauseEquals: ("equals", "equals"),
    types.ClauseStartsWith: ("starts", "starts_with"),
    types.ClauseEndsWith: ("ends", "ends_with"),
    types.ClauseContains: ("contains", "contains"),
    types.ClauseRegex: ("regex", "regex"),
    types.ClauseOr: ("any", "or_"),
    types.ClauseAnd: ("all", "and_"),
}
RATES = {
    "input_mtok": "input",
    "output_mtok": "output",
    "cache_read_mtok": "cache_read",
    "cache_write_mtok": "cache_write",
    "cache_write_1h_mtok": "cache_write_1h",
    "output_reasoning_mtok": "reasoning",
    "input_audio_mtok": "input_audio",
    "input_image_mtok": "input_image",
    "output_audio_mtok": "output_audio",
    "output_image_mtok": "output_image",
    "web_searches_kcount": "search",
    "requests_kcount": "request",
}
"""Prices that chat requests can have, and what `Rates` in gateway/settings/prices.py calls them. The others are for
audio by the hour, pages, characters, and searches in stored files."""


def write_clause(clause: Any) -> dict[str, Any]:
    word, attribute = KINDS[type(clause)]
    value = getattr(clause, attribute)
    return {word: [write_clause(one) for one in value] if isinstance(value, list) else value}


def write_number(value: Decimal) -> float | int:
    number = int(value) if value == value.to_integral_value() else float(value)
    assert Decimal(str(number)) == value, value
    return number


def write_rates(prices: Any) -> dict[str, Any]:
    base: dict[str, Any] = {}
    tiers: dict[int, dict[str, Any]] = {}
    for key, name in RATES.items():
        value = getattr(prices, key)
        if isinstance(value, types.TieredPrices):
            base[name] = write_number(value.base)
            for tier in value.tiers:
                tiers.setdefault(tier.start, {})[name] = write_number(tier.price)
        elif value is not None:
            base[name] = write_number(value)
    if tiers:
        base["tiers"] = [{"above": start, **tiers[start]} for start in sorted(tiers)]
    return base


def write_condition(constraint: Any) -> dict[str, Any]:
    if isinstance(constraint, types.StartDateConstraint):
        return {"since": constraint.start_date.isoformat()}
    if isinstance(constraint, types.TimeOfDateConstraint):
        # In UTC, and without an offset, which all of them have.
        times = (constraint.start_time, constraint.end_time)
        assert all(one.utcoffset() is None or not one.utcoffset() for one in times)
        return {"hours": [one.replace(tzinfo=None).isoformat() for one in times]}
    assert constraint is None
    return {}


def write_prices(model: Any) -> list[dict[str, Any]]:
    dated = model.prices if isinstance(model.prices, list) else [types.ConditionalPrice(prices=model.prices)]
    rows = [{**write_condition(one.constraint), **write_rates(one.prices)} for one in dated]
    for variant in model.price_variants or ():
        # Batches are not chat requests. Other variants are routes that only OpenRouter and Perplexity have.
        tier = variant.when.get("service_tier", "") if len(variant.when) == 1 else ""
        if tier and (rates := write_rates(variant.prices)):
            rows.append({"service_tier": tier, **write_condition(variant.constraint), **rates})
    if model.id.endswith(":free"):
        return [{"input": 0, "output": 0}]
    # Without prices, a model is free, or not offered any more: genai-prices does not tell which.
    return rows if any(set(row) & set(RATES.values()) for row in rows) else []


def write_model(model: Any) -> dict[str, Any]:
    facts = {"context_window": model.context_window, "prices": write_prices(model)}
    return {"id": model.id, "match": write_clause(model.match), **{key: value for key, value in facts.items() if value}}


def main() -> None:
    rows = {
        one.id: {
            "url": one.api_pattern,
            "fallbacks": one.fallback_model_providers or [],
            "models": [write_model(model) for model in one.models],
        }
        for one in providers
    }
    document = {"source": f"genai-prices {version('genai-prices')} (MIT)", "providers": rows}
    lines = json.dumps(document, ensure_ascii=False, separators=(",", ":")).replace('{"id":', '\n{"id":')
    FILE.write_text(f"{lines}\n", "utf-8")


main()
