"""What differs from model to model, told by the name alone: the version, and how thinking is measured."""

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
    """A model's version, (0, 0) where its name does not tell, and its size."""

    major: int = 0
    minor: int = 0
    size: Literal["", "pro", "flash", "lite"] = ""

    @property
    def is_known(self) -> bool:
        return self.major > 0

    @cached_property
    def is_gemini_3(self) -> bool:
        """Gemini 3 and later: ids on calls, media in results, signatures demanded, built-in tools beside functions."""
        return self.major >= 3

    @cached_property
    def is_gemini_2(self) -> bool:
        return self.major == 2

    @cached_property
    def takes_json_schema(self) -> bool:
        """Does it take a JSON Schema as it is? Models before 2.0 know only the older dialect."""
        return self.major != 1

    @property
    def thinking_measure(self) -> Literal["", "level", "budget", "either"]:
        """How it is told how much to think; "" when it does not think."""
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
        """The smallest and the largest budget besides 0 (off) and -1 (its own choice)."""
        return _BUDGET_RANGES[self.size]

    @property
    def can_disable_thinking(self) -> bool:
        """Can thinking be switched off with a budget of 0?"""
        return self.size != "pro"


_PROVIDER_TOOLS = frozenset({"web_search", "web_fetch", "code_execution", "maps"})


def supports_provider_tool(tool: str, model: str, has_functions: bool) -> bool:
    """Before the third generation built-in tools do not stand beside functions."""
    known = family(model)
    return tool in _PROVIDER_TOOLS and known.major != 1 and (known.is_gemini_3 or not has_functions)


_BUDGET_RANGES = {"pro": (128, 32768), "flash": (1, 24576), "lite": (512, 24576), "": (1, 24576)}


@lru_cache(maxsize=256)
def family(model: str) -> Family:
    name = model.lower()
    size: Literal["", "pro", "flash", "lite"] = "lite" if "flash-lite" in name else "flash" if "flash" in name else ""
    if not size and "pro" in name:
        size = "pro"
    found = _VERSION.search(name)
    if found:
        return Family(int(found[1]), int(found[2] or 0), size)
    if _LATEST_ALIAS.search(name):
        # The aliases have pointed at 3.x since 2026 (seen: 3.1 pro, 3.6 flash); 3.1 stands for "3 or later".
        return Family(3, 1, size)
    return Family(1, 0, size) if _GENERATION_1.search(name) else Family(0, 0, size)


# --- Where servers differ: bodies bent to what they take. A body is never changed in place ---


CALL_SPELLINGS = ("functionCall", "function_call")
RESULT_SPELLINGS = ("functionResponse", "function_response")


def remove_ids(body: Object, _model: str, ledger: Ledger) -> Object:
    """Calls and results without ids: such a server pairs them by their order, so results follow their calls'."""
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
    found = _find_inner(part, CALL_SPELLINGS + RESULT_SPELLINGS)
    return found is not None and "id" in found[1]


def _without_id(part: Json) -> Json:
    found = _find_inner(part, CALL_SPELLINGS + RESULT_SPELLINGS)
    if found is None or "id" not in found[1]:
        return part
    key, inner = found
    return part | {key: {name: value for name, value in inner.items() if name != "id"}}


def _record_call_order(parts: list[Json], order: dict[str, int]) -> None:
    for part in parts:
        call = _find_inner(part, CALL_SPELLINGS)
        if call is not None and isinstance(call[1].get("id"), str):
            order[call[1]["id"]] = len(order)


def _sort_results(parts: list[Json], order: dict[str, int]) -> list[Json]:
    """Results in the order of their calls, at the places where results stand."""
    found = [
        (place, result[1])
        for place, part in enumerate(parts)
        if (result := _find_inner(part, RESULT_SPELLINGS)) is not None
    ]
    ranks = [order.get(inner.get("id"), len(order)) for _, inner in found]  # type: ignore[arg-type]
    out = list(parts)
    by_rank = sorted(range(len(found)), key=ranks.__getitem__)
    for (place, _), chosen in zip(found, by_rank, strict=True):
        out[place] = parts[found[chosen][0]]
    return out


QUIRKS: Mapping[str, Quirk] = MappingProxyType(
    {
        "no-ids": Quirk(about="`id` is refused in calls and results, as older servers do", rewrite_body=remove_ids),
        "no-hosted-tools": Quirk(
            about="runs no tools itself: no search, no fetch, no code", constraints={"server_runs_tools": False}
        ),
    }
)
