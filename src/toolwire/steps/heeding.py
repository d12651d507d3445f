"""What the options of an exchange change in a client's request, where they ask for more than another model's name."""

from __future__ import annotations

from typing import Any

from toolwire.ir import Request, Settings, Tool, changed
from toolwire.loss import OFF, Ledger
from toolwire.options import Options


def limited(asked: int | None, options: Options) -> tuple[int, str] | None:
    """What the limit of the output becomes, and why; None where it stays."""
    most, limit = options.most_tokens, options.max_output_tokens
    if most is not None and asked is not None and asked > most and (limit is None or most <= limit):
        return most, "the model gives no more, by its provider's words"
    if limit is not None and (asked is None or asked > limit):
        return limit, "the operator set a limit"
    return None


def told(limit: tuple[int, str], request: Request, ledger: Ledger) -> None:
    most, why = limit
    where = request.settings.where.get("max_tokens")
    ledger.note("setting-clamped", where, f"the output is limited to {most:,} tokens", why)


def settled(settings: Settings, limit: tuple[int, str] | None, uncached: bool) -> Settings:
    """The settings with another limit, or with the breakpoints of a cache switched off."""
    changes: dict[str, Any] = {"cache": OFF} if uncached else {}
    if limit is not None:
        changes["max_tokens"] = limit[0]
    return changed(settings, **changes)


def lacking(request: Request, tools: tuple[Tool, ...]) -> tuple[Tool, ...]:
    """Those of the tools of which the client has none of the same name."""
    declared = {tool.name for tool in request.tools if isinstance(tool, Tool) and not tool.namespace}
    return tuple(tool for tool in tools if tool.name not in declared)
