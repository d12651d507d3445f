"""Provider tools that this provider does not run: a function is used instead, or they are left out."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from toolwire.core.codec import Codec
from toolwire.core.ir import (
    AnyTool,
    Call,
    Part,
    ProviderCall,
    ProviderResult,
    ProviderTool,
    Request,
    Result,
    Text,
    Tool,
    ToolChoice,
    ToolName,
    Turn,
    replace_fields,
    source_path,
)
from toolwire.core.losses import Ledger
from toolwire.core.provider_tools import provider_result_text

_OPTION_FIELDS = ("max_uses", "allowed_domains", "blocked_domains", "location", "context_size")
NO_PROVIDER_TOOLS = "this server does not run tools"
EMPTY_RESULT = "nothing was found"
_NO_NAMES: Mapping[str, str] = MappingProxyType({})


def substitute_provider_tools(
    request: Request, substitutes: Mapping[str, Tool], provider: Codec, ledger: Ledger
) -> tuple[Request, Mapping[str, str]]:
    """The request with a function for every tool that the provider does not run and that has a substitute; and the tool
    that each function replaces. Earlier calls of such a tool become calls of the function. Where the server runs no
    tools at all, those without a substitute are left out."""
    requested = [tool for tool in request.tools if isinstance(tool, ProviderTool)]
    runs_tools = provider.constraints.server_runs_tools
    has_functions = any(isinstance(tool, Tool) for tool in request.tools)
    missing = {
        tool.tool
        for tool in requested
        if not (runs_tools and provider.supports_provider_tool(tool.tool, request.model, has_functions))
    }
    declared = {tool.name: tool for tool in request.tools if isinstance(tool, Tool) and not tool.namespace}
    given = {
        name: tool
        for name, tool in substitutes.items()
        if name in missing and declared.get(tool.name, tool) == tool  # not where the client has a tool of that name
    }
    if not runs_tools:
        request = _drop_unrunnable_tools(request, given, ledger)
    if not given:
        return request, _NO_NAMES
    turns: list[Turn] = []
    for turn in request.turns:
        turns += _replace_in_turn(turn, given)
    request = replace_fields(
        request,
        tools=_replace_tools(request.tools, given, ledger),
        turns=tuple(turns),
        choice=_replace_choice(request.choice, given),
    )
    return request, MappingProxyType({tool.name: name for name, tool in given.items()})


def _drop_unrunnable_tools(request: Request, substitutes: Mapping[str, Tool], ledger: Ledger) -> Request:
    """The request without tools that neither the provider nor the gateway runs, and without a choice of them."""
    kept: list[AnyTool] = []
    dropped: set[str] = set()
    for tool in request.tools:
        if isinstance(tool, ProviderTool) and tool.tool not in substitutes:
            dropped.add(tool.tool)
            ledger.note(
                "tool-dropped",
                source_path(tool),
                f"the provider's tool `{tool.tool}` was left out",
                NO_PROVIDER_TOOLS,
            )
        else:
            kept.append(tool)
    if not dropped:
        return request
    choice = request.choice
    if choice is not None and any(name.kind in dropped for name in choice.tools):
        left = tuple(name for name in choice.tools if name.kind not in dropped)
        choice = replace_fields(choice, tools=left) if left else ToolChoice("auto", origin=None)
        ledger.note(
            "choice-weakened",
            source_path(request.choice),
            "the tool choice names a tool that was left out",
            NO_PROVIDER_TOOLS,
        )
    return replace_fields(request, tools=tuple(kept), choice=choice)


def _replace_tools(tools: tuple[AnyTool, ...], substitutes: Mapping[str, Tool], ledger: Ledger) -> tuple[AnyTool, ...]:
    out: list[AnyTool] = []
    declared = {tool.name for tool in tools if isinstance(tool, Tool) and not tool.namespace}
    for tool in tools:
        if not isinstance(tool, ProviderTool) or tool.tool not in substitutes:
            out.append(tool)
            continue
        function = substitutes[tool.tool]
        ledger.note(
            "tool-substituted", source_path(tool), f"`{function.name}` replaces the provider's tool `{tool.tool}`"
        )
        for option in _OPTION_FIELDS:
            if getattr(tool, option):
                ledger.note("no-counterpart", source_path(tool), f"`{option}` of `{tool.tool}` was left out")
        if function.name not in declared:
            out.append(function)
            declared.add(function.name)
    return tuple(out)


def _replace_choice(choice: ToolChoice | None, substitutes: Mapping[str, Tool]) -> ToolChoice | None:
    if choice is None or not any(name.kind in substitutes for name in choice.tools):
        return choice
    names = [ToolName(substitutes[name.kind].name) if name.kind in substitutes else name for name in choice.tools]
    return replace_fields(choice, tools=tuple(names))


def _replace_in_turn(turn: Turn, substitutes: Mapping[str, Tool]) -> list[Turn]:
    """A turn with calls of such a tool as several turns: the parts up to the calls, the results, the rest."""
    if not any(isinstance(part, (ProviderCall, ProviderResult)) and part.tool in substitutes for part in turn.parts):
        return [turn]
    out: list[Turn] = []
    parts: list[Part] = []
    results: list[Turn] = []
    for part in turn.parts:
        if isinstance(part, ProviderResult) and part.tool in substitutes:
            results.append(Turn("tool", (_as_function_result(part, substitutes[part.tool].name),)))
            continue
        if results:
            out += [*_split_off(turn, parts), *results]
            parts, results = [], []
        if isinstance(part, ProviderCall) and part.tool in substitutes:
            parts.append(Call(part.id, substitutes[part.tool].name, part.arguments))
        else:
            parts.append(part)
    return [*out, *_split_off(turn, parts), *results]


def _split_off(turn: Turn, parts: list[Part]) -> list[Turn]:
    return [replace_fields(turn, parts=tuple(parts))] if parts else []


def _as_function_result(part: ProviderResult, name: str) -> Result:
    text = Text(provider_result_text(part) or EMPTY_RESULT)
    return Result(part.id, (text,), True if part.error else None, name)
