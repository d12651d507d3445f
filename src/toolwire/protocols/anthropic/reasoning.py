"""Thinking settings: `thinking` (off, a budget, or adaptive) and `output_config.effort`."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal, TypeAlias

from toolwire.core.ir import Call, Reasoning, Request, Result, Thinking
from toolwire.core.json_values import Object, Path, get_int, get_object, get_text
from toolwire.core.losses import Ledger
from toolwire.core.provenance import ReadContext, is_verbatim, restore_original_keys
from toolwire.core.tokens import budget_for_effort, effort_for_budget, nearest_effort
from toolwire.protocols.anthropic.models import Family
from toolwire.protocols.anthropic.names import (
    NAME,
    THINKING_DISPLAYS,
    THINKING_KEYS,
    WIRE_THINKING_DISPLAYS,
    invert_table,
    own_seal_value,
)

ReasoningSettings: TypeAlias = tuple[Object | None, str | None]
"""`thinking`, and the effort in `output_config`."""

MIN_BUDGET = 1024

_THINKING_MODES: Mapping[str, Literal["", "off", "on", "auto"]] = MappingProxyType(
    {"adaptive": "auto", "enabled": "on", "disabled": "off", "between_tools": "off"}
)
_WIRE_THINKING_MODES = invert_table(_THINKING_MODES)


def read_reasoning_settings(body: Object, effort: str | None, reading: ReadContext) -> Thinking | None:
    wire = get_object(body, "thinking", None)
    path: Path = (None, "thinking")
    if wire is None:
        return Thinking(effort=effort, origin=reading.whole_origin(None, path)) if effort else None
    kind = get_text(wire, "type", path) or ""
    if kind not in _THINKING_MODES:
        reading.note_unknown_field(path, "type")
    display = get_text(wire, "display", path) or ""
    return Thinking(
        _THINKING_MODES.get(kind, ""),
        effort or "",
        get_int(wire, "budget_tokens", path),
        THINKING_DISPLAYS.get(display, display),
        reading.read_origin(wire, path, THINKING_KEYS),
    )


def write_reasoning_settings(
    request: Request, facts: Family, max_tokens: int, forced: bool, ledger: Ledger
) -> ReasoningSettings:
    """`thinking` and the effort, as the model's family accepts them."""
    thinking = request.settings.thinking
    if thinking is None:
        return None, None
    where = request.settings.where.get("thinking")
    if facts.thinking == "given":
        return _write_as_given(thinking, where, ledger), thinking.effort or None
    if not facts.thinking:
        if not _is_off(thinking):
            ledger.note("no-counterpart", where, "the thinking setting was left out", "this model does not think")
        return None, None
    if _is_off(thinking):
        return _write_off(thinking, facts, where, ledger)
    if facts.thinking != "budget" and not (facts.thinking == "either" and _has_budget(thinking)):
        return _write_adaptive(thinking, facts, where, ledger)
    why = _budget_obstacle(request, max_tokens, forced)
    if why:
        ledger.note("thinking-mapped", where, "thinking was switched off", why)
        return None, None
    budget = _thinking_budget(thinking, where, ledger)
    out: Object = {"type": "enabled", "budget_tokens": _fit_budget(budget, max_tokens, where, ledger)}
    return restore_original_keys(_add_display(out, thinking, where, ledger), thinking.origin, NAME), None


def _write_as_given(thinking: Thinking, where: Path, ledger: Ledger) -> Object | None:
    if thinking.origin is not None and is_verbatim(thinking.origin, NAME):
        wire: Object | None = thinking.origin.wire
        return wire
    if thinking.budget is not None:
        out: Object = {"type": "enabled", "budget_tokens": thinking.budget}
    elif mode := _WIRE_THINKING_MODES.get(thinking.mode):
        out = {"type": mode}
    else:
        return None
    return restore_original_keys(_add_display(out, thinking, where, ledger), thinking.origin, NAME)


def _is_off(thinking: Thinking) -> bool:
    return thinking.mode == "off" or thinking.effort == "none" or (thinking.budget == 0 and not thinking.effort)


def _write_off(thinking: Thinking, facts: Family, where: Path, ledger: Ledger) -> ReasoningSettings:
    if facts.off != "disabled":
        instead = facts.off or "the lowest effort"
        ledger.note("thinking-mapped", where, f"switched-off thinking became {instead}", "this model always thinks")
        return ({"type": facts.off}, None) if facts.off else (None, facts.efforts[0])
    effort: str | None = None
    if thinking.effort not in ("", "none") and facts.efforts:
        effort = nearest_effort(thinking.effort, tuple(one for one in facts.efforts if one in facts.off_efforts))
    return {"type": "disabled"}, effort


def _has_budget(thinking: Thinking) -> bool:
    """Is there a budget? A negative one leaves it to the model (Gemini)."""
    return thinking.budget is not None and thinking.budget > 0


def _thinking_budget(thinking: Thinking, where: Path, ledger: Ledger) -> int:
    if thinking.budget is not None and thinking.budget > 0:
        return thinking.budget
    budget = budget_for_effort(thinking.effort or "medium")
    ledger.note("thinking-mapped", where, f"`{thinking.effort or thinking.mode}` became a budget of {budget} tokens")
    return budget


def _write_adaptive(thinking: Thinking, facts: Family, where: Path, ledger: Ledger) -> ReasoningSettings:
    asked = thinking.effort
    if thinking.budget is not None and _has_budget(thinking) and not asked:
        asked = effort_for_budget(thinking.budget)
        effort: str | None = nearest_effort(asked, facts.efforts)
        ledger.note("thinking-mapped", where, f"a budget of {thinking.budget} tokens became the effort `{effort}`")
    else:
        effort = nearest_effort(asked, facts.efforts) if asked else None
        if effort != (asked or None):
            ledger.note("thinking-mapped", where, f"the effort `{asked}` became `{effort}`")
    if not thinking.mode and not thinking.summary and thinking.budget is None and facts.thinks_unasked:
        return None, effort
    if not thinking.mode and thinking.budget is None:
        ledger.note("thinking-mapped", where, f"thinking was switched on for the effort `{effort}`")
    out = _add_display({"type": "adaptive"}, thinking, where, ledger)
    return restore_original_keys(out, thinking.origin, NAME), effort


def _add_display(out: Object, thinking: Thinking, where: Path, ledger: Ledger) -> Object:
    if thinking.summary:
        display = WIRE_THINKING_DISPLAYS.get(thinking.summary)
        if display is None:
            display = "summarized"
            ledger.note("thinking-mapped", where, f"the summary `{thinking.summary}` became `{display}`")
        out["display"] = display
    return out


def _fit_budget(budget: int, max_tokens: int, where: Path, ledger: Ledger) -> int:
    accepted = max(budget, MIN_BUDGET)
    if accepted >= max_tokens:
        # Half for thinking and half for the answer: with less the answer would be cut off.
        accepted = max(MIN_BUDGET, max_tokens // 2)
    if accepted != budget:
        ledger.note("setting-clamped", where, f"the budget of {budget} tokens became {accepted}")
    return accepted


def _budget_obstacle(request: Request, max_tokens: int, forced: bool) -> str:
    """Why Anthropic would refuse a thinking budget; "" if it would not."""
    if forced:
        return "Anthropic refuses it together with a forced call"
    if max_tokens <= MIN_BUDGET:
        return f"the limit of {max_tokens} tokens is too low for it"
    if _has_calls_without_reasoning(request):
        return "the turn with the calls does not begin with thinking that Anthropic signed"
    return ""


def _has_calls_without_reasoning(request: Request) -> bool:
    for turn in reversed(request.turns):
        if turn.role == "assistant":
            first = turn.parts[0] if turn.parts else None
            signed = isinstance(first, Reasoning) and own_seal_value(first.seal) is not None
            return not signed and any(isinstance(part, Call) for part in turn.parts)
        if not any(isinstance(part, Result) for part in turn.parts):
            return False
    return False
