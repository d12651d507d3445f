"""A tool choice that names only tools which are sent: every provider refuses a request that names another. And one
that is written as another protocol does."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from toolwire.core.ir import (
    AnyTool,
    Call,
    Opaque,
    ProviderTool,
    Request,
    Tool,
    ToolChoice,
    ToolName,
    replace_fields,
    source_path,
)
from toolwire.core.json_values import Json, Object
from toolwire.core.losses import Ledger

_NAMED_KINDS = frozenset({"function", "custom"})
"""Kinds of tools that a choice names by their name; others are named by their kind."""


def fit_tool_choice(
    choice: ToolChoice, tools: Iterable[AnyTool], is_sent: Callable[[AnyTool], bool], ledger: Ledger
) -> ToolChoice:
    """The choice without tools that are not sent, whatever left them out. A call that cannot be forced is left to the
    model; where none of the allowed tools is sent, it must not call any other."""
    if not choice.tools:
        return choice
    sent = list(filter(is_sent, tools))
    missing = [name for name in choice.tools if not any(_is_named(tool, name) for tool in sent)]
    if not missing:
        return choice
    listed = ", ".join(f"`{name.name or name.kind}`" for name in missing)
    ledger.note("choice-weakened", source_path(choice), f"the tool choice names {listed}", "such a tool is not sent")
    kept = tuple(name for name in choice.tools if name not in missing)
    if kept:
        return replace_fields(choice, tools=kept)
    return ToolChoice("none" if choice.mode == "allowed" else "auto")


def _is_named(tool: AnyTool, name: ToolName) -> bool:
    if isinstance(tool, Opaque):
        return tool.kind == name.kind
    if isinstance(tool, ProviderTool):
        return tool.tool == name.kind or name.name in (tool.tool, tool.name)
    if tool.kind not in _NAMED_KINDS and tool.kind == name.kind:
        return True
    return tool.name == name.name and (not name.namespace or not tool.namespace or tool.namespace == name.namespace)


def must_call(choice: ToolChoice | None) -> bool:
    """Must the model call a tool?"""
    return choice is not None and (choice.mode in ("required", "one") or choice.required)


def callable_tools(tools: Iterable[AnyTool], choice: ToolChoice | None) -> list[Tool]:
    """The client's tools that the model may call."""
    functions = [tool for tool in tools if isinstance(tool, Tool)]
    if choice is None or choice.mode not in ("none", "allowed"):
        return functions
    names = {tool.name for tool in choice.tools} if choice.mode == "allowed" else set()
    return [tool for tool in functions if tool.name in names]


NOT_PARALLEL = "disable_parallel_tool_use"
"""Anthropic says it in the choice, OpenAI beside it (`parallel_tool_calls`)."""
LONGEST_MODE = len('"required"')
"""A choice that is longer, as JSON, is not only a mode."""


def has_other_choice(choice: msgspec.Raw, has_other_shape: Callable[[Json], bool]) -> bool:
    """Has a choice that is not decoded yet the shape of another protocol?"""
    try:
        return has_other_shape(msgspec.json.decode(choice))
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return False  # reading it says what is wrong


def replace_tool_choice(body: Object, choice: Json) -> Object:
    """A body of OpenAI's protocols with this choice in place of one that had the shape of another protocol."""
    disabled = body["tool_choice"].get(NOT_PARALLEL)
    parallel = {"parallel_tool_calls": not disabled} if isinstance(disabled, bool) else {}
    return {**parallel, **body, "tool_choice": choice}


def list_called_names(request: Request) -> list[str]:
    """The names of all tools that were called in the conversation, in order."""
    calls = [part for turn in request.turns for part in turn.parts if isinstance(part, Call)]
    return list(dict.fromkeys(call.name for call in calls))
