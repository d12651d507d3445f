"""Writes src/toolwire/gateway/models/catalogue.json: what genai-prices knows about models, in a form that loads fast.

Run it with the package installed: `uv run --no-project --with genai-prices==VERSION .ci/catalogue.py`. Why not the
package itself: docs/decisions/0018.
"""

from __future__ import annotations

import json
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


def write_clause(clause: Any) -> dict[str, Any]:
    word, attribute = KINDS[type(clause)]
    value = getattr(clause, attribute)
    return {word: [write_clause(one) for one in value] if isinstance(value, list) else value}


def write_model(model: Any) -> dict[str, Any]:
    facts = {"context_window": model.context_window} if model.context_window else {}
    return {"id": model.id, "match": write_clause(model.match), **facts}


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
