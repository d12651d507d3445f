"""What Claude models accept, by family. An unknown model counts as an older, permissive one."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from toolwire.core.codec import Quirk
from toolwire.protocols.anthropic.cache import move_breakpoint_to_last_block

Version: TypeAlias = tuple[int, int]

EFFORTS_TO_HIGH = ("low", "medium", "high")
EFFORTS_TO_MAX = (*EFFORTS_TO_HIGH, "max")
ALL_EFFORTS = (*EFFORTS_TO_HIGH, "xhigh", "max")


_OTHER_VENDORS = re.compile(
    r"(?i).*(?:deepseek|kimi|moonshot|qwen|qwq|glm|minimax|mimo|llama|mistral|magistral|devstral|gemma|phi-|gpt-)"
)
_PROVIDER_TOOLS = frozenset({"web_search", "web_fetch", "code_execution"})


def supports_provider_tool(tool: str, model: str, has_functions: bool) -> bool:
    """Other vendors' models are served in Anthropic's protocol too, mostly without these tools."""
    return tool in _PROVIDER_TOOLS and not _OTHER_VENDORS.match(model)


class Family(Struct, frozen=True, kw_only=True):
    """What the models of a family accept."""

    default_tokens: int
    """The `max_tokens` that is written if the client set none."""
    max_tokens: int | None = None
    """The highest limit that is accepted; None when unknown."""
    sampling: bool = False
    """Are temperature, top_p and top_k accepted?"""
    one_sampling: bool = False
    """Are temperature and top_p refused together?"""
    thinking: Literal["", "budget", "either", "adaptive", "given"] = "adaptive"
    """What it accepts: nothing, a budget, an effort ("adaptive") or either; "given" writes what the client asked."""
    thinks_unasked: bool = False
    off: Literal["", "disabled", "between_tools"] = "disabled"
    """The `thinking.type` that switches thinking off; "" if it cannot be."""
    efforts: tuple[str, ...] = ()
    off_efforts: tuple[str, ...] = ALL_EFFORTS
    """The efforts that are accepted while thinking is off."""
    forcing: bool = True
    """Can the model be made to call a tool?"""
    binds_prefix: bool = False
    """Is its thinking only valid after the same tools and turns?"""
    formats: bool = True
    """Is a schema for the answer accepted?"""
    prefill: bool = False
    """May the last turn be an assistant turn, which the model continues?"""


_CLAUDE_5_5 = Family(
    default_tokens=128_000,
    max_tokens=128_000,
    thinks_unasked=True,
    off="",
    efforts=ALL_EFFORTS,
    forcing=False,
    binds_prefix=True,
)
_CLAUDE_5 = replace(_CLAUDE_5_5, off="disabled", off_efforts=EFFORTS_TO_HIGH, forcing=True, binds_prefix=False)
_CLAUDE_4_7 = replace(_CLAUDE_5, thinks_unasked=False, off_efforts=ALL_EFFORTS)
_CLAUDE_4_6 = replace(
    _CLAUDE_4_7, default_tokens=64_000, sampling=True, one_sampling=True, thinking="either", efforts=EFFORTS_TO_MAX
)
_CLAUDE_4_5 = replace(_CLAUDE_4_6, max_tokens=64_000, thinking="budget", efforts=(), prefill=True)
_CLAUDE_4 = replace(_CLAUDE_4_5, default_tokens=32_000, one_sampling=False, formats=False)
_CLAUDE_3 = replace(_CLAUDE_4, default_tokens=4_096, max_tokens=4_096, thinking="")

FAMILY_ROWS: tuple[tuple[tuple[str, ...], Version, Family], ...] = (
    (("fable", "mythos"), (0, 0), _CLAUDE_5_5),
    (("sonnet",), (5, 5), replace(_CLAUDE_5_5, off="between_tools")),
    (("haiku",), (5, 5), replace(_CLAUDE_5, default_tokens=64_000, off_efforts=ALL_EFFORTS, forcing=False)),
    ((), (5, 5), _CLAUDE_5_5),
    (("haiku",), (5, 0), replace(_CLAUDE_4_7, default_tokens=64_000)),
    ((), (5, 0), _CLAUDE_5),
    ((), (4, 7), _CLAUDE_4_7),
    ((), (4, 6), _CLAUDE_4_6),
    ((), (4, 5), _CLAUDE_4_5),
    (("opus",), (4, 0), replace(_CLAUDE_4, max_tokens=32_000)),
    ((), (4, 0), _CLAUDE_4),
    ((), (3, 7), replace(_CLAUDE_4, max_tokens=128_000)),
    ((), (3, 5), replace(_CLAUDE_3, default_tokens=8_192, max_tokens=8_192)),
    ((), (0, 0), _CLAUDE_3),
)
"""Model lines (none: every line), the first version, and the family; the first row that matches counts."""

AS_GIVEN = Family(default_tokens=0, sampling=True, thinking="given", prefill=True)
"""For requests of Anthropic's own clients, which know their model: everything is written as it came."""

UNKNOWN_FAMILY = Family(default_tokens=16_384, sampling=True, thinking="budget", prefill=True)

_MODEL_NAME = re.compile(
    r"claude-(?:(?P<line>[a-z]+)(?:-|$))?(?:(?P<major>\d{1,2})(?!\d)(?:[-.](?P<minor>\d{1,2})(?!\d))?)?"
    r"(?:-(?P<last>haiku|sonnet|opus)\b)?"
)

MID_SYSTEM_MODELS = re.compile(
    r".*claude-(?:opus-(?:4[-.](?:[89]|[1-9]\d)(?!\d)|[5-9](?!\d)|[1-9]\d(?!\d))"
    r"|sonnet-(?:5[-.](?:[5-9]|[1-9]\d)(?!\d)|[6-9](?!\d)|[1-9]\d(?!\d))"
    r"|(?:fable|mythos)-(?:[5-9]|[1-9]\d)(?!\d)).*",
    re.DOTALL,
)
"""Models that accept system turns between the other turns."""


@lru_cache(maxsize=256)
def family(model: str) -> Family:
    """The family of a model, from its name."""
    match = _MODEL_NAME.search(model)
    if match is None or (match["major"] is None and match["line"] not in ("fable", "mythos")):
        return UNKNOWN_FAMILY
    line = match["last"] or match["line"] or ""
    version = (int(match["major"] or 0), int(match["minor"] or 0))
    for lines, since, facts in FAMILY_ROWS:
        if (not lines or line in lines) and version >= since:
            return facts
    return UNKNOWN_FAMILY


def can_force_tools(model: str, thinks: bool | None) -> bool:
    """Can the model be made to call a tool? Not while it thinks with a budget."""
    facts = family(model)
    return facts.forcing and not (thinks and facts.thinking == "budget")


QUIRKS: Mapping[str, Quirk] = MappingProxyType(
    {
        "block-cache": Quirk(
            about="knows cache breakpoints on blocks only, none for the whole request",
            rewrite_body=lambda body, _model, _ledger: move_breakpoint_to_last_block(body),
        ),
        "no-hosted-tools": Quirk(
            about="runs no tools itself: no search, no fetch, no code", constraints={"server_runs_tools": False}
        ),
    }
)
