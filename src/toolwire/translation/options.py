"""The switches of a translation. All have defaults; none of them is a protocol's name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from msgspec import Struct

from toolwire.core.ir import EMPTY_MAPPING, Request, Settings, Tool, replace_fields
from toolwire.core.json_values import MAX_BYTES
from toolwire.core.losses import OFF, Ledger
from toolwire.policy.rules import Rule


class Options(Struct, frozen=True, kw_only=True):
    model: str = ""
    """The model's name for the provider, where it differs from what the client asked for or stands outside the body."""
    stream: bool | None = None
    """Does the client want a stream, where its wire says so outside the body?"""
    max_output_tokens: int | None = None
    """The most that may be asked for: a higher limit, or none, is lowered to this."""
    model_output_limit: int | None = None
    """The most that the model can give, by what its provider said: a higher limit is lowered to this."""
    binary_results: Literal["native", "summary"] = "native"
    """Media in tool results: carried natively wherever the target can, or replaced by a line of text everywhere."""
    cache_breakpoints: bool = True
    """Set cache breakpoints for clients that cannot, where the target caches only what is marked."""
    strict: bool = False
    """Refuse instead of losing anything."""
    max_bytes: int = MAX_BYTES
    """The largest body that is read."""
    maker: str = ""
    """Who makes the provider's seals (`protocol/provider/account/family`), where more is known than the protocol."""
    stamp_seals: bool = False
    """Name the maker of seals even to clients of the provider's own protocol: for those who serve it from several
    accounts, of which each refuses the seals of the others."""
    without_seals: bool = False
    """Leave every seal behind, and the thinking that is nothing without it: the provider has refused one."""
    has_memory: bool = False
    """Does somebody keep, by the id of a call, what the client's protocol has no slot for, and give it back later?"""
    tools: tuple[Tool, ...] = ()
    """Tools that the model gets besides the client's own. Calls of them are answered by whoever serves the client, and
    do not reach it."""
    substitutes: Mapping[str, Tool] = EMPTY_MAPPING
    """Functions that stand in for a provider's own tools (`web_search`, `web_fetch`) where it has none. Their calls are
    answered like those of `tools`, and the client sees them as those of the tool that it asked for."""
    expect_hidden_calls: bool = False
    """May something be kept of earlier answers that the client did not see, because such calls were run for it?"""
    shown_tools: frozenset[str] = frozenset()
    """Those of them whose calls the client is told of, in the thinking."""
    policy: tuple[Rule, ...] = ()
    """What an operator does to tools on their way: the rules that are in force for this exchange."""
    now: int = 0
    """The time for fields that demand one; passed in, so that the same input gives the same bytes."""
    seed: str = ""
    """What made-up ids are made of, besides what stands around them."""
    status: int = 0
    """The HTTP status of an error that is translated."""


def choose_output_limit(asked: int | None, options: Options) -> tuple[int, str] | None:
    """What the limit of the output becomes, and why; None where it stays."""
    most, limit = options.model_output_limit, options.max_output_tokens
    if most is not None and asked is not None and asked > most and (limit is None or most <= limit):
        return most, "the model gives no more, by its provider's words"
    if limit is not None and (asked is None or asked > limit):
        return limit, "the operator set a limit"
    return None


def note_output_limit(limit: tuple[int, str], request: Request, ledger: Ledger) -> None:
    most, why = limit
    where = request.settings.where.get("max_tokens")
    ledger.note("setting-clamped", where, f"the output is limited to {most:,} tokens", why)


def change_settings(settings: Settings, limit: tuple[int, str] | None, disable_cache: bool) -> Settings:
    """The settings with another limit, or with the breakpoints of a cache switched off."""
    changes: dict[str, Any] = {"cache": OFF} if disable_cache else {}
    if limit is not None:
        changes["max_tokens"] = limit[0]
    return replace_fields(settings, **changes)


def missing_tools(request: Request, tools: tuple[Tool, ...]) -> tuple[Tool, ...]:
    """Those of the tools of which the client has none of the same name."""
    declared = {tool.name for tool in request.tools if isinstance(tool, Tool) and not tool.namespace}
    return tuple(tool for tool in tools if tool.name not in declared)
