"""Which tools stay where only so many may, and what becomes of the choice among them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from toolwire.ir import AnyTool, Request, ToolChoice, ToolName, changed, place
from toolwire.loss import Ledger
from toolwire.policy.match import fits, means, named
from toolwire.policy.rules import Rule
from toolwire.wire import Malformed

Forces = Callable[[str, bool | None], bool]
"""Can this model be made to call a tool, while it thinks or not, or as it is by itself (None)?"""
Renamed = Callable[[ToolName], ToolName | None]


def limited(tools: Sequence[AnyTool], rule: Rule, choice: ToolChoice | None) -> list[AnyTool]:
    """Those that are too many, of the tools that a rule speaks of. What the client demands stays, then what the rule
    names, then what stands first."""
    spoken = [tool for tool in tools if means(rule, named(tool))]
    if rule.max_tools is None or len(spoken) <= rule.max_tools:
        return []
    demanded = (
        {(one.namespace, one.name) for one in choice.tools} if choice is not None and choice.mode == "one" else ()
    )

    def priority(tool: AnyTool) -> int:
        name = named(tool)
        if (name.namespace, name.name) in demanded:
            return -1
        return next((at for at, glob in enumerate(rule.keep) if fits(name.name, (glob,))), len(rule.keep))

    kept = sorted(spoken, key=priority)[: rule.max_tools]
    return [tool for tool in spoken if not any(tool is one for one in kept)]


def chosen(
    request: Request,
    tools: Sequence[AnyTool],
    rules: Sequence[Rule],
    renamed: Renamed,
    ledger: Ledger,
    forces: Forces | None,
) -> ToolChoice | None:
    """The choice, as far as it can still be given."""
    choice = request.choice
    if choice is None:
        return None
    if request.tools and not tools:
        ledger.note("policy-choice", place(choice), "the choice was left out: no tools are left")
        return None
    if choice.tools:
        choice = _renamed(choice, renamed, ledger)
    rule = next((rule for rule in reversed(rules) if rule.choice), None)
    if rule is None or forces is None or not _demands(choice) or forces(request.model, _thinks(request)):
        return choice
    why = "this model cannot be made to call a tool" + (" while it thinks" if forces(request.model, False) else "")
    if rule.choice == "refuse":
        raise Malformed(place(request.choice), f"{why}; the rule `{rule.name}` refuses such a choice")
    ledger.note("policy-choice", place(choice), "the model may call a tool, it need not", why)
    if choice.mode == "allowed":
        return changed(choice, required=False)
    return changed(choice, mode="auto", tools=())


def _demands(choice: ToolChoice) -> bool:
    return choice.mode in ("required", "one") or (choice.mode == "allowed" and choice.required)


def _thinks(request: Request) -> bool | None:
    thinking = request.settings.thinking
    if thinking is None:
        return None
    if thinking.mode == "off" or thinking.effort == "none":
        return False
    return thinking.budget != 0 or bool(thinking.effort)


def _renamed(choice: ToolChoice, renamed: Renamed, ledger: Ledger) -> ToolChoice:
    tools = tuple(new for tool in choice.tools if (new := renamed(tool)) is not None)
    if tools == choice.tools:
        return choice
    lost = [tool.name for tool in choice.tools if renamed(tool) is None]
    if not lost:
        ledger.note("policy-choice", place(choice), f"the choice names {', '.join(tool.name for tool in tools)}")
        return changed(choice, tools=tools)
    said = ", ".join(f"`{name}`" for name in lost)
    if tools:
        ledger.note("policy-choice", place(choice), f"{said} cannot be chosen any more")
        return changed(choice, tools=tools)
    if choice.mode == "allowed":
        ledger.note("policy-choice", place(choice), f"no call is allowed: only {said} was, and is gone")
        return changed(choice, mode="none", tools=(), required=False)
    ledger.note("policy-choice", place(choice), f"the choice of {said} became `auto`")
    return changed(choice, mode="auto", tools=())
