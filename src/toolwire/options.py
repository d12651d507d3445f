"""The switches of a translation. All have defaults; none of them is a protocol's name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct

from toolwire.ir import NOTHING, Tool
from toolwire.policy.rules import Rule
from toolwire.wire import MAX_BYTES


class Options(Struct, frozen=True, kw_only=True):
    model: str = ""
    """The model's name for the provider, where it differs from what the client asked for or stands outside the body."""
    stream: bool | None = None
    """Does the client want a stream, where its wire says so outside the body?"""
    max_output_tokens: int | None = None
    """The most that may be asked for: a higher limit, or none, is lowered to this."""
    most_tokens: int | None = None
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
    stamps: bool = False
    """Name the maker of seals even to clients of the provider's own protocol: for those who serve it from several
    accounts, of which each refuses the seals of the others."""
    without_seals: bool = False
    """Leave every seal behind, and the thinking that is nothing without it: the provider has refused one."""
    keeps: bool = False
    """Does somebody keep, by the id of a call, what the client's protocol has no slot for, and give it back later?"""
    tools: tuple[Tool, ...] = ()
    """Tools that the model gets besides the client's own. Calls of them are answered by whoever serves the client, and
    do not reach it."""
    substitutes: Mapping[str, Tool] = NOTHING
    """Functions that stand in for a provider's own tools (`web_search`, `web_fetch`) where it has none. Their calls are
    answered like those of `tools`, and the client sees them as those of the tool that it asked for."""
    unseen: bool = False
    """May something be kept of earlier answers that the client did not see, because such calls were run for it?"""
    shown: frozenset[str] = frozenset()
    """Those of them whose calls the client is told of, in the thinking."""
    policy: tuple[Rule, ...] = ()
    """What an operator does to tools on their way: the rules that are in force for this exchange."""
    now: int = 0
    """The time for fields that demand one; passed in, so that the same input gives the same bytes."""
    seed: str = ""
    """What made-up ids are made of, besides what stands around them."""
    status: int = 0
    """The HTTP status of an error that is translated."""
