"""What differs from model to model, told by the name alone: the version, and how thinking is measured."""

from __future__ import annotations

import re
from functools import cached_property, lru_cache
from typing import Literal

from msgspec import Struct

_VERSION = re.compile(r"gemini-(\d+)(?:\.(\d+))?")
_LATEST = re.compile(r"gemini-(?:pro|flash|flash-lite)-latest")
_FIRST = re.compile(r"gemini-(?:pro|ultra)(?:-vision)?(?![a-z-]*latest)")


class Family(Struct, frozen=True, dict=True):
    """A model's version, (0, 0) where its name does not tell, and its size."""

    major: int = 0
    minor: int = 0
    size: Literal["", "pro", "flash", "lite"] = ""

    @property
    def known(self) -> bool:
        return self.major > 0

    @cached_property
    def third(self) -> bool:
        """Gemini 3 and later: ids on calls, media in results, signatures demanded, built-in tools beside functions."""
        return self.major >= 3

    @cached_property
    def second(self) -> bool:
        return self.major == 2

    @cached_property
    def json_schema(self) -> bool:
        """Does it take a JSON Schema as it is? Models before 2.0 know only the older dialect."""
        return self.major != 1

    @property
    def measure(self) -> Literal["", "level", "budget", "either"]:
        """How it is told how much to think; "" when it does not think."""
        if not self.known:
            return "either"
        if self.third:
            return "level"
        return "budget" if (self.major, self.minor) >= (2, 5) else ""

    @property
    def levels(self) -> tuple[str, ...]:
        if self.size != "pro":
            return ("minimal", "low", "medium", "high")
        return ("low", "high") if (self.major, self.minor) == (3, 0) else ("low", "medium", "high")

    @property
    def budgets(self) -> tuple[int, int]:
        """The smallest and the largest budget besides 0 (off) and -1 (its own choice)."""
        return _BUDGETS[self.size]

    @property
    def can_rest(self) -> bool:
        """Can thinking be switched off with a budget of 0?"""
        return self.size != "pro"


_RUN = frozenset({"web_search", "web_fetch", "code_execution", "maps"})


def hosts(tool: str, model: str, functions: bool) -> bool:
    """Before the third generation built-in tools do not stand beside functions."""
    known = family(model)
    return tool in _RUN and known.major != 1 and (known.third or not functions)


_BUDGETS = {"pro": (128, 32768), "flash": (1, 24576), "lite": (512, 24576), "": (1, 24576)}


@lru_cache(maxsize=256)
def family(model: str) -> Family:
    name = model.lower()
    size: Literal["", "pro", "flash", "lite"] = "lite" if "flash-lite" in name else "flash" if "flash" in name else ""
    if not size and "pro" in name:
        size = "pro"
    found = _VERSION.search(name)
    if found:
        return Family(int(found[1]), int(found[2] or 0), size)
    if _LATEST.search(name):
        # The aliases have pointed at 3.x since 2026 (seen: 3.1 pro, 3.6 flash); 3.1 stands for "3 or later".
        return Family(3, 1, size)
    return Family(1, 0, size) if _FIRST.search(name) else Family(0, 0, size)
