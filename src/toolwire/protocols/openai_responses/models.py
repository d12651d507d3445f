"""What families of models refuse, where the references say so. An unknown model takes everything."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType

from msgspec import Struct

from toolwire.protocols.openai_responses.names import TOOL_TYPES
from toolwire.room import Quirk
from toolwire.thinking import EFFORTS


class Family(Struct, frozen=True):
    efforts: tuple[str, ...] = EFFORTS
    """The efforts it takes; none at all means that it does not reason."""
    sampling: bool = True
    """Does it take temperature and top_p?"""


ANY = Family()

FAMILIES: tuple[tuple[re.Pattern[str], Family], ...] = (
    (re.compile(r"gpt-6(-astra|\.1-sol)"), Family(EFFORTS[1:], sampling=False)),
    (re.compile(r"gpt-6"), Family(sampling=False)),
    (re.compile(r"(chatgpt-)?(gpt-)?4o|gpt-(3|4)|chatgpt-"), Family(efforts=())),
    (re.compile(r"o[134](-|$)"), Family(("low", "medium", "high"), sampling=False)),
)
"""First match wins, on the name behind the last slash."""


@lru_cache(maxsize=256)
def family_of(model: str) -> Family:
    name = model.rpartition("/")[2]
    for pattern, family in FAMILIES:
        if pattern.match(name):
            return family
    return ANY


_OTHERS = re.compile(
    r"(?i).*(?:deepseek|kimi|moonshot|qwen|qwq|glm|minimax|mimo|llama|mistral|magistral|devstral|gemma|phi-|claude|gpt-oss)"
)


def hosts(tool: str, model: str, functions: bool) -> bool:
    """Models of other makers are served in this protocol too, mostly without its tools. A page is fetched by the tool
    that searches."""
    return (tool in TOOL_TYPES or tool == "web_fetch") and not _OTHERS.match(model)


QUIRKS: Mapping[str, Quirk] = MappingProxyType(
    {"no-hosted-tools": Quirk(about="runs no tools itself: no search, no code", rules={"hosted": False})}
)
