"""What the models behind Converse accept, by vendor, and the quirks of some.

A model is known by its id (`us.anthropic.claude-…`, an ARN of a foundation model). The ARN of an application profile, a
provisioned model or a prompt router says nothing about the model: then nothing is left out that some model takes
(bifrost#6933 lost the cache points of such profiles).

Source: AWS's pages on the models, on prompt caching and on tool use, looked up in November 2026; single rows say more.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from toolwire.core.codec import NO_FACTS, ModelFacts

Version: TypeAlias = tuple[int, int]
Efforts: TypeAlias = tuple[str, ...]

EFFORTS_TO_HIGH: Efforts = ("low", "medium", "high")
EFFORTS_TO_MAX: Efforts = (*EFFORTS_TO_HIGH, "max")
ALL_EFFORTS: Efforts = (*EFFORTS_TO_HIGH, "xhigh", "max")


class Family(Struct, frozen=True, kw_only=True):
    """What the models of a family accept."""

    vendor: str = ""
    thinking: Literal["", "budget", "either", "adaptive", "effort", "nova", "unknown"] = ""
    """How thinking is asked for: Claude's budget, its effort or either, gpt-oss's `reasoning_effort`, Nova's
    `reasoningConfig`; "" where the model has no such setting."""
    efforts: Efforts = ()
    caches: bool = True
    """Does it take cache points?"""
    caches_tools: bool = True
    max_cache_points: int | None = None
    signs_reasoning: bool = False
    """Does it refuse thinking without its signature?"""
    has_status: bool = True
    """May a result have a status?"""
    sampling: bool = True
    one_sampling: bool = False
    """Are temperature and topP refused together?"""
    has_top_k: Literal["", "top_k", "nova"] = ""
    forcing: bool = True
    """Can it be made to call a tool?"""
    prefill: bool = True
    """May the last turn be an assistant turn, which the model continues?"""
    max_tokens: int | None = None


UNKNOWN = Family(thinking="unknown", has_top_k="top_k")
_CLAUDE = Family(
    vendor="anthropic",
    thinking="budget",
    max_cache_points=4,
    signs_reasoning=True,
    has_top_k="top_k",
)
_CLAUDE_4_5 = replace(_CLAUDE, one_sampling=True, max_tokens=64_000)
_CLAUDE_4_6 = replace(_CLAUDE_4_5, thinking="either", efforts=EFFORTS_TO_MAX, prefill=False, max_tokens=128_000)
_CLAUDE_4_7 = replace(
    _CLAUDE_4_6, thinking="adaptive", efforts=ALL_EFFORTS, sampling=False, one_sampling=False, has_top_k=""
)
_CLAUDE_5_5 = replace(_CLAUDE_4_7, forcing=False)
_CLAUDE_ROWS: tuple[tuple[Version, Family], ...] = (
    ((5, 5), _CLAUDE_5_5),
    ((4, 7), _CLAUDE_4_7),
    ((4, 6), _CLAUDE_4_6),
    ((4, 5), _CLAUDE_4_5),
    ((3, 7), _CLAUDE),
    ((0, 0), replace(_CLAUDE, thinking="")),
)
"""The first version, and what it accepts: platform.claude.com, November 2026. Its own API is the same."""

_OTHERS = Family(caches=False, caches_tools=False, has_status=False)
_VENDORS: tuple[tuple[re.Pattern[str], Family], ...] = (
    (re.compile(r"nova-2|nova-premier-v[2-9]"), Family(
        vendor="amazon", thinking="nova", efforts=EFFORTS_TO_HIGH, caches_tools=False,
        has_top_k="nova",
    )),
    (re.compile(r"amazon\.nova|nova-(?:micro|lite|pro|premier|canvas|sonic)"), Family(
        vendor="amazon", caches_tools=False, has_top_k="nova",
    )),
    (re.compile(r"gpt-oss|openai\.gpt"), replace(
        _OTHERS, vendor="openai", thinking="effort", efforts=EFFORTS_TO_HIGH,
    )),
    (re.compile(
        r"(?:meta|mistral|cohere|deepseek|qwen|zai|moonshotai?|minimax|writer|ai21|google|nvidia|stability|luma)\."
        r"|llama|mixtral|mistral|deepseek|glm-|kimi|palmyra|jamba"
    ), _OTHERS),
)  # fmt: skip
"""From AWS's pages on prompt caching, tool use and Nova 2 (November 2026): cache points and `status` are taken by
Claude and Nova alone, Nova caches no tools."""

_CLAUDE_NAME = re.compile(
    r"claude-(?:v?(?P<major>\d{1,2})(?!\d)(?:[-.:](?P<minor>\d{1,2})(?!\d))?|instant|[a-z]+-(?P<later>\d{1,2})(?!\d)"
    r"(?:[-.](?P<latest>\d{1,2})(?!\d))?|(?P<newest>fable|mythos))"
)


@lru_cache(maxsize=256)
def family(model: str) -> Family:
    """The family of a model, from its id."""
    name = model.lower()
    found = _CLAUDE_NAME.search(name)
    if found is not None:
        version = (int(found["major"] or found["later"] or 0), int(found["minor"] or found["latest"] or 0))
        version = (5, 5) if found["newest"] else version
        return next(facts for since, facts in _CLAUDE_ROWS if version >= since)
    if "claude" in name:
        return _CLAUDE
    return next((facts for pattern, facts in _VENDORS if pattern.search(name)), UNKNOWN)


def find_model_facts(model: str) -> ModelFacts:
    known = family(model)
    if not known.vendor:
        return NO_FACTS
    efforts = known.efforts or (EFFORTS_TO_HIGH if known.thinking else ())
    return ModelFacts(max_output_tokens=known.max_tokens, reasoning_efforts=efforts)


def can_force_tools(model: str, thinks: bool | None) -> bool:
    """Can the model be made to call a tool? Claude cannot while it thinks with a budget."""
    facts = family(model)
    return facts.forcing and not (thinks and facts.thinking == "budget")


def supports_provider_tool(tool: str, model: str, has_functions: bool) -> bool:
    return tool == "web_search" and family(model).vendor == "amazon"
