"""What Gemini models accept, by the version and the size in their names."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cached_property, lru_cache
from types import MappingProxyType
from typing import Literal

from msgspec import Struct

from toolwire.core.codec import Quirk
from toolwire.core.json_values import Json, Object
from toolwire.core.losses import Ledger

_VERSION = re.compile(r"gemini-(\d+)(?:\.(\d+))?")
_LATEST_ALIAS = re.compile(r"gemini-(?:pro|flash|flash-lite)-latest")
_GENERATION_1 = re.compile(r"gemini-(?:pro|ultra)(?:-vision)?(?![a-z-]*latest)")


class Family(Struct, frozen=True, dict=True):
    """A model's version, 0.0 if its name does not say, and its size."""

    major: int = 0
    minor: int = 0
    size: Literal["", "pro", "flash", "lite"] = ""

    @property
    def is_known(self) -> bool:
        return self.major > 0

    @cached_property
    def is_gemini_3(self) -> bool:
        """Gemini 3 and later: calls have ids, results may hold media, calls must be signed, and provider tools can be
        combined with functions."""
        return self.major >= 3

    @cached_property
    def is_gemini_2(self) -> bool:
        return self.major == 2

    @cached_property
    def takes_json_schema(self) -> bool:
        """Does it accept JSON Schema? Models before 2.0 know only a subset of OpenAPI's schemas."""
        return self.major != 1

    @property
    def thinking_measure(self) -> Literal["", "level", "budget", "either"]:
        """How the amount of thinking is set; "" if it does not think."""
        if not self.is_known:
            return "either"
        if self.is_gemini_3:
            return "level"
        return "budget" if (self.major, self.minor) >= (2, 5) else ""

    @property
    def thinking_levels(self) -> tuple[str, ...]:
        if self.size != "pro":
            return ("minimal", "low", "medium", "high")
        return ("low", "high") if (self.major, self.minor) == (3, 0) else ("low", "medium", "high")

    @property
    def budget_range(self) -> tuple[int, int]:
        """The smallest and the largest budget, besides 0 (off) and -1 (the model decides)."""
        return _BUDGET_RANGES[self.size]

    @property
    def can_disable_thinking(self) -> bool:
        """Can thinking be switched off with a budget of 0?"""
        return self.size != "pro"


_PROVIDER_TOOLS = frozenset({"web_search", "web_fetch", "code_execution", "maps"})


def supports_provider_tool(tool: str, model: str, has_functions: bool) -> bool:
    """Before Gemini 3 provider tools cannot be combined with functions."""
    known = family(model)
    return tool in _PROVIDER_TOOLS and known.major != 1 and (known.is_gemini_3 or not has_functions)


_BUDGET_RANGES = {"pro": (128, 32768), "flash": (1, 24576), "lite": (512, 24576), "": (1, 24576)}


@lru_cache(maxsize=256)
def family(model: str) -> Family:
    name = model.lower()
    size: Literal["", "pro", "flash", "lite"] = "lite" if "flash-lite" in name else "flash" if "flash" in name else ""
    if not size and "pro" in name:
        size = "pro"
    match = _VERSION.search(name)
    if match:
        return Family(int(match[1]), int(match[2] or 0), size)
    if _LATEST_ALIAS.search(name):
        # Since 2026 the aliases mean 3.x (3.1 pro and 3.6 flash were seen).
        return Family(3, 1, size)
    return Family(1, 0, size) if _GENERATION_1.search(name) else Family(0, 0, size)


# --- quirks ---------------------------------------------------------------------------------------------------------


CALL_SPELLINGS = ("functionCall", "function_call")
RESULT_SPELLINGS = ("functionResponse", "function_response")


def remove_ids(body: Object, _model: str, ledger: Ledger) -> Object:
    """Remove the ids of calls and results, and sort results like their calls: such a server pairs them by order."""
    contents = body.get("contents")
    if not isinstance(contents, list):
        return body
    order: dict[str, int] = {}
    out: list[Json] = []
    for number, content in enumerate(contents):
        parts = content.get("parts") if isinstance(content, dict) else None
        if not isinstance(parts, list) or not any(_has_id(part) for part in parts):
            out.append(content)
            continue
        _record_call_order(parts, order)
        where = ((None, "contents"), number) if ledger.source == ledger.target else None
        ledger.note("no-counterpart", where, "the ids of calls and results were left out", "this server refuses ids")
        out.append(content | {"parts": [_without_id(part) for part in _sort_results(parts, order)]})
    return body if all(new is old for new, old in zip(out, contents, strict=True)) else body | {"contents": out}


def _find_inner(part: Json, names: tuple[str, ...]) -> tuple[str, Object] | None:
    if not isinstance(part, dict):
        return None
    return next(((key, part[key]) for key in names if isinstance(part.get(key), dict)), None)


def _has_id(part: Json) -> bool:
    inner = _find_inner(part, CALL_SPELLINGS + RESULT_SPELLINGS)
    return inner is not None and "id" in inner[1]


def _without_id(part: Json) -> Json:
    keyed = _find_inner(part, CALL_SPELLINGS + RESULT_SPELLINGS)
    if keyed is None or "id" not in keyed[1]:
        return part
    key, inner = keyed
    return part | {key: {name: value for name, value in inner.items() if name != "id"}}


def _record_call_order(parts: list[Json], order: dict[str, int]) -> None:
    for part in parts:
        call = _find_inner(part, CALL_SPELLINGS)
        if call is not None and isinstance(call[1].get("id"), str):
            order[call[1]["id"]] = len(order)


def _sort_results(parts: list[Json], order: dict[str, int]) -> list[Json]:
    """The parts with their results in the order of the calls; other parts stay in place."""
    ranks = {
        place: order.get(result[1].get("id", ""), len(order))
        for place, part in enumerate(parts)
        if (result := _find_inner(part, RESULT_SPELLINGS)) is not None
    }
    source = dict(zip(ranks, sorted(ranks, key=ranks.__getitem__), strict=True))
    return [parts[source.get(place, place)] for place in range(len(parts))]


QUIRKS: Mapping[str, Quirk] = MappingProxyType(
    {
        "no-ids": Quirk(about="refuses `id` in calls and results, as older servers do", rewrite_body=remove_ids),
        "no-hosted-tools": Quirk(
            about="runs no tools itself: no search, no fetch, no code", constraints={"server_runs_tools": False}
        ),
    }
)
