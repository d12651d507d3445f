"""What Gemini models accept, by the version and the size in their names.

Source: Google's guides on thinking and function calling (copies of 2026) and recorded traffic; `thinkingConfig` in
the Python SDK `google-genai` 3.1.0. Looked up in November 2026."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cached_property, lru_cache

from msgspec import Struct

from toolwire.core.body_changes import change_items, client_path
from toolwire.core.codec import NO_FACTS, ModelFacts, Quirk
from toolwire.core.json_values import Json, Object, without_keys
from toolwire.core.losses import Ledger

_VERSION = re.compile(r"gemini-(\d+)(?:\.(\d+))?")
_LATEST_ALIAS = re.compile(r"gemini-(?:pro|flash|flash-lite)-latest")
_GENERATION_1 = re.compile(r"gemini-(?:pro|ultra)(?:-vision)?(?![a-z-]*latest)")


class Family(Struct, frozen=True, dict=True):
    """A model's version, 0.0 if its name does not say, and its size."""

    major: int = 0
    minor: int = 0
    size: str = ""
    """"pro", "flash", "lite", or "" if the name does not say."""

    @property
    def is_known(self) -> bool:
        return self.major > 0

    @cached_property
    def is_gemini_3(self) -> bool:
        """Gemini 3 and later: calls have ids, results may hold media, calls must be signed, and provider tools can be
        combined with functions."""
        return self.major >= 3

    @cached_property
    def takes_json_schema(self) -> bool:
        """Does it accept JSON Schema? Models before 2.0 know only a subset of OpenAPI's schemas."""
        return self.major != 1

    @property
    def can_think(self) -> bool:
        return not self.is_known or (self.major, self.minor) >= (2, 5)

    @property
    def thinking_levels(self) -> tuple[str, ...]:
        if self.size != "pro":
            return ("minimal", "low", "medium", "high")
        return ("low", "high") if (self.major, self.minor) == (3, 0) else ("low", "medium", "high")

    @property
    def budget_range(self) -> tuple[int, int]:
        """The smallest and the largest budget, besides 0 (off) and -1 (the model decides)."""
        return _BUDGET_RANGES[self.size]


_PROVIDER_TOOLS = frozenset({"web_search", "web_fetch", "code_execution", "maps"})


def supports_provider_tool(tool: str, model: str, has_functions: bool) -> bool:
    """Before Gemini 3 provider tools cannot be combined with functions."""
    known = family(model)
    return tool in _PROVIDER_TOOLS and known.major != 1 and (known.is_gemini_3 or not has_functions)


_SIZES = {"flash-lite": "lite", "flash": "flash", "pro": "pro"}
_BUDGET_RANGES = {"pro": (128, 32768), "flash": (1, 24576), "lite": (512, 24576), "": (1, 24576)}


@lru_cache(maxsize=256)
def family(model: str) -> Family:
    name = model.lower()
    size = next((size for word, size in _SIZES.items() if word in name), "")
    if match := _VERSION.search(name):
        return Family(int(match[1]), int(match[2] or 0), size)
    if _LATEST_ALIAS.search(name):
        # Since 2026 the aliases mean 3.x (3.1 pro and 3.6 flash were seen).
        return Family(3, 1, size)
    return Family(1, 0, size) if _GENERATION_1.search(name) else Family(0, 0, size)


def find_model_facts(model: str) -> ModelFacts:
    """An effort becomes a budget for Gemini 2.5, which has no levels."""
    known = family(model)
    if not known.is_known:
        return NO_FACTS
    budgets = ("low", "medium", "high") if known.can_think else ()
    return ModelFacts(reasoning_efforts=known.thinking_levels if known.is_gemini_3 else budgets)


# --- quirks ---------------------------------------------------------------------------------------------------------


_CALL_KEYS = ("functionCall", "function_call")
_RESULT_KEYS = ("functionResponse", "function_response")


def remove_ids(body: Object, _model: str, ledger: Ledger) -> Object:
    """Remove the ids of calls and results, and sort results like their calls: such a server pairs them by order."""
    order: dict[str, int] = {}

    def remove(number: int, content: Object) -> Object:
        parts = content.get("parts")
        if not isinstance(parts, list) or not any("id" in _find_inner(part)[1] for part in parts):
            return content
        for part in parts:
            id = _find_inner(part, _CALL_KEYS)[1].get("id")
            if isinstance(id, str):
                order[id] = len(order)
        where = client_path(ledger, "contents", number)
        ledger.note("no-counterpart", where, "the ids of calls and results were left out", "this server refuses ids")
        return content | {"parts": [_without_id(part) for part in _sort_results(parts, order)]}

    return change_items(body, "contents", remove)


def _find_inner(part: Json, keys: tuple[str, ...] = _CALL_KEYS + _RESULT_KEYS) -> tuple[str, Object]:
    """The call or the result in a part, with its key; "" and {} if there is none."""
    found = (key for key in keys if isinstance(part, dict) and isinstance(part.get(key), dict))
    return (key, part[key]) if (key := next(found, "")) else ("", {})


def _without_id(part: Json) -> Json:
    key, inner = _find_inner(part)
    return part | {key: without_keys(inner, ["id"])} if "id" in inner else part


def _sort_results(parts: list[Json], order: dict[str, int]) -> list[Json]:
    """The parts with their results in the order of the calls; other parts stay in place."""
    results = {place: _find_inner(part, _RESULT_KEYS) for place, part in enumerate(parts)}
    ranks = {place: order.get(result.get("id", ""), len(order)) for place, (key, result) in results.items() if key}
    source = dict(zip(ranks, sorted(ranks, key=ranks.__getitem__), strict=True))
    return [parts[source.get(place, place)] for place in range(len(parts))]


QUIRKS: Mapping[str, Quirk] = {
    "no-ids": Quirk(about="refuses `id` in calls and results, as older servers do", rewrite_body=remove_ids),
    "no-hosted-tools": Quirk(
        about="runs no tools itself: no search, no fetch, no code", constraints={"server_runs_tools": False}
    ),
}
