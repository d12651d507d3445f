"""The thinking setting. Converse has an effort; all else is a member of each vendor's own request."""

from __future__ import annotations

from typing import Literal, TypeGuard

from msgspec import Raw

from toolwire.core.ir import Origin, Request, Thinking
from toolwire.core.json_values import Json, Number, Object, Path
from toolwire.core.losses import Ledger
from toolwire.core.provenance import ReadContext, is_verbatim
from toolwire.core.tokens import budget_for_effort, effort_for_budget, nearest_effort
from toolwire.protocols.bedrock_converse.models import Family
from toolwire.protocols.bedrock_converse.names import NAME, is_own

MODEL_FIELDS_PATH: Path = (None, "additionalModelRequestFields")
MIN_BUDGET = 1024
ANSWER_TOKENS = 8192
"""What a budget leaves for the answer, where the client set no limit."""

_MODES: dict[str, Literal["", "off", "on", "auto"]] = {
    "enabled": "on",
    "adaptive": "auto",
    "disabled": "off",
    "between_tools": "off",
}

# --- reading --------------------------------------------------------------------------------------------------------


def read_thinking(
    fields: Object, effort: str | None, reading: ReadContext
) -> tuple[Thinking | None, Number | None, frozenset[str]]:
    """The thinking setting, top_k, and the members of the model's own fields that were understood. The others are free:
    nothing in them is an error."""
    wire: Object = {}
    mode: Literal["", "off", "on", "auto"] = ""
    budget: int | None = None
    claude, nova, word = fields.get("thinking"), fields.get("reasoningConfig"), fields.get("reasoning_effort")
    if _has_mode(claude) and not claude.keys() - {"type", "budget_tokens"}:
        wire["thinking"], mode = claude, _MODES[claude["type"]]
        budget = claude["budget_tokens"] if type(claude.get("budget_tokens")) is int else None
    if _has_mode(nova) and not nova.keys() - {"type", "maxReasoningEffort"}:
        wire["reasoningConfig"], mode = nova, _MODES[nova["type"]]
        given = nova.get("maxReasoningEffort")
        effort = given if isinstance(given, str) else effort
    if isinstance(word, str):
        wire["reasoning_effort"], effort = word, word
    top_k, known = _read_top_k(fields)
    thinking = None
    if wire or effort:
        path: Path = MODEL_FIELDS_PATH if wire else ((None, "outputConfig"), "effort")
        thinking = Thinking(mode, effort or "", budget, origin=Origin(NAME, path, wire))
    choice = fields.get("tool_choice")
    if isinstance(choice, dict) and isinstance(choice.get("disable_parallel_tool_use"), bool):
        known |= {"tool_choice"}
    return thinking, top_k, known | wire.keys()


def _has_mode(node: Json) -> TypeGuard[Object]:
    kind = node.get("type") if isinstance(node, dict) else None
    return isinstance(kind, str) and kind in _MODES


def _read_top_k(fields: Object) -> tuple[Number | None, frozenset[str]]:
    inner = fields.get("inferenceConfig")
    if _is_number(fields.get("top_k")):
        return fields["top_k"], frozenset({"top_k"})
    if isinstance(inner, dict) and inner.keys() == {"topK"} and _is_number(inner["topK"]):
        return inner["topK"], frozenset({"inferenceConfig"})
    return None, frozenset()


def _is_number(value: Json) -> bool:
    return isinstance(value, (int, float, Raw)) and not isinstance(value, bool)


# --- writing --------------------------------------------------------------------------------------------------------


def write_thinking(
    request: Request, facts: Family, forced: bool, fields: Object, out: Object, ledger: Ledger
) -> str | None:
    """Adds the model's own fields to `fields`; returns the effort of Converse itself."""
    thinking = request.settings.thinking
    if thinking is None:
        return None
    if is_own(thinking.origin) and is_verbatim(thinking.origin, NAME):
        fields |= thinking.origin.wire
        is_in_fields = {"reasoningConfig", "reasoning_effort"} & thinking.origin.wire.keys()
        return None if is_in_fields else thinking.effort or None
    where = request.settings.where.get("thinking")
    is_off = _is_off(thinking)
    if thinking.summary:
        ledger.note("no-counterpart", where, f"the summary `{thinking.summary}` of thinking was not asked for")
    match facts.thinking:
        case "budget" | "either" | "adaptive":
            return _write_claude(request, facts, forced, fields, out, ledger)
        case "effort":
            effort = facts.efforts[0] if is_off else nearest_effort(_asked_effort(thinking), facts.efforts)
            fields["reasoning_effort"] = effort
            _note_effort(thinking, effort, where, ledger)
        case "nova":
            effort = nearest_effort(_asked_effort(thinking), facts.efforts)
            on: Object = {"type": "enabled", "maxReasoningEffort": effort}
            fields["reasoningConfig"] = {"type": "disabled"} if is_off else on
            if not is_off:
                _note_effort(thinking, effort, where, ledger)
        case "unknown":
            return _write_effort(thinking, fields, where, ledger)
        case _:
            if not is_off:
                why = "this model has no such setting"
                ledger.note("no-counterpart", where, "the thinking setting was left out", why)
    return None


def _write_effort(thinking: Thinking, fields: Object, where: Path, ledger: Ledger) -> str | None:
    """The effort of Converse itself, where the model is not known."""
    if _is_off(thinking):
        ledger.note("no-counterpart", where, "switched-off thinking was left out", _UNKNOWN_MODEL)
        return None
    if thinking.budget and thinking.budget > 0 and not thinking.effort:
        fields["thinking"] = {"type": "enabled", "budget_tokens": thinking.budget}  # a budget is a word of Claude
        return None
    effort = _asked_effort(thinking)
    _note_effort(thinking, effort, where, ledger)
    return effort


_UNKNOWN_MODEL = "the name of the model does not say how it is asked for"


def _is_off(thinking: Thinking) -> bool:
    return thinking.mode == "off" or thinking.effort == "none" or (thinking.budget == 0 and not thinking.effort)


def _asked_effort(thinking: Thinking) -> str:
    if thinking.effort:
        return thinking.effort
    budget = thinking.budget
    return "medium" if budget is None or budget < 0 else effort_for_budget(budget)


def _note_effort(thinking: Thinking, effort: str, where: Path, ledger: Ledger) -> None:
    if effort != thinking.effort:
        asked = f"a budget of {thinking.budget} tokens" if thinking.budget else thinking.effort or thinking.mode
        ledger.note("thinking-mapped", where, f"`{asked}` became the effort `{effort}`")


def _write_claude(
    request: Request, facts: Family, forced: bool, fields: Object, out: Object, ledger: Ledger
) -> str | None:
    thinking, where = request.settings.thinking, request.settings.where.get("thinking")
    assert thinking is not None
    if _is_off(thinking):
        if facts.thinking == "adaptive":
            fields["thinking"] = {"type": "disabled"}
        return None
    if facts.thinking == "adaptive" or (facts.thinking == "either" and not thinking.budget):
        effort = nearest_effort(_asked_effort(thinking), facts.efforts) if thinking.effort or thinking.budget else None
        if effort is not None:
            _note_effort(thinking, effort, where, ledger)
        fields["thinking"] = {"type": "adaptive"}
        return effort
    limit = request.settings.max_tokens
    why = _budget_obstacle(limit, forced, out)
    if why:
        ledger.note("thinking-mapped", where, "thinking was switched off", why)
        return None
    accepted = _write_budget(thinking, limit, where, ledger)
    if limit is None:
        out["inferenceConfig"] = {"maxTokens": accepted + ANSWER_TOKENS}
        ledger.note("max-tokens-added", where, f"the limit was set to {accepted + ANSWER_TOKENS} tokens")
    fields["thinking"] = {"type": "enabled", "budget_tokens": accepted}
    return None


def _write_budget(thinking: Thinking, limit: int | None, where: Path, ledger: Ledger) -> int:
    budget = max(thinking.budget or 0, 0)
    if not budget:
        budget = budget_for_effort(thinking.effort or "medium")
        what = f"`{thinking.effort or thinking.mode}` became a budget of {budget} tokens"
        ledger.note("thinking-mapped", where, what)
    accepted = max(budget, MIN_BUDGET)
    if limit is not None and accepted >= limit:
        accepted = max(MIN_BUDGET, limit // 2)  # half for thinking and half for the answer
    if accepted != budget:
        ledger.note("setting-clamped", where, f"the budget of {budget} tokens became {accepted}")
    return accepted


def _budget_obstacle(limit: int | None, forced: bool, out: Object) -> str:
    """Why Claude would refuse a budget; "" if it would not."""
    if forced:
        return "Claude refuses it together with a forced call"
    if limit is not None and limit <= MIN_BUDGET:
        return f"the limit of {limit} tokens is too low for it"
    if _starts_without_thinking(out):
        return "the turn with the calls does not begin with thinking that Claude signed"
    return ""


def _starts_without_thinking(out: Object) -> bool:
    """Does the turn that is being continued have calls, and no thinking before them?"""
    for message in reversed(out["messages"]):
        if message["role"] == "assistant":
            is_called = any("toolUse" in block for block in message["content"])
            return is_called and "reasoningContent" not in message["content"][0]
        if not any("toolResult" in block for block in message["content"]):
            return False
    return False
