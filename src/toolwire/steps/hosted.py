"""Tools that a provider would run itself, where it has none: a function stands in for them, or they are left out."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from msgspec import Struct

from toolwire.hosted import found_text
from toolwire.ir import (
    AnyTool,
    Call,
    HostedCall,
    HostedResult,
    HostedTool,
    Part,
    Request,
    Result,
    Text,
    Tool,
    ToolChoice,
    ToolName,
    Turn,
    changed,
    place,
)
from toolwire.loss import Ledger
from toolwire.room import Room

_OPTIONS = ("max_uses", "allowed_domains", "blocked_domains", "location", "context_size")
NO_TOOLS = "this server runs no tools itself"
NOTHING_FOUND = "nothing was found"
_NONE: Mapping[str, str] = MappingProxyType({})


class Substituted(Struct, frozen=True):
    """A request in which functions stand in for the provider's own tools."""

    request: Request
    names: Mapping[str, str] = _NONE
    """The tool that each function stands in for, by the function's name."""


def substituted(request: Request, substitutes: Mapping[str, Tool], provider: Room, ledger: Ledger) -> Substituted:
    """The request with a function for every tool that the provider does not run and that has a substitute. What the
    conversation tells of such a tool becomes calls of the function, so that the model finds its own kind of call.
    Where the server is known to run no tools at all, those without a substitute are left out."""
    asked = [tool for tool in request.tools if isinstance(tool, HostedTool)]
    if not asked:
        return Substituted(request)
    there, functions = provider.rules.hosted, any(isinstance(tool, Tool) for tool in request.tools)
    lacking = {tool.tool for tool in asked if not (there and provider.hosts(tool.tool, request.model, functions))}
    declared = {tool.name: tool for tool in request.tools if isinstance(tool, Tool) and not tool.namespace}
    given = {
        name: tool
        for name, tool in substitutes.items()
        if name in lacking
        and declared.get(tool.name, tool) == tool  # the client's own tool of that name is the client's
    }
    if not there:
        request = _bare(request, given, ledger)
    if not given:
        return Substituted(request)
    turns: list[Turn] = []
    for turn in request.turns:
        turns += _retold(turn, given)
    fresh = changed(
        request,
        tools=_offered(request.tools, given, ledger),
        turns=tuple(turns),
        choice=_chosen(request.choice, given),
    )
    return Substituted(fresh, MappingProxyType({tool.name: name for name, tool in given.items()}))


def _bare(request: Request, given: Mapping[str, Tool], ledger: Ledger) -> Request:
    """Without the tools that nobody here would run, and without a choice of them."""
    kept: list[AnyTool] = []
    gone: set[str] = set()
    for tool in request.tools:
        if isinstance(tool, HostedTool) and tool.tool not in given:
            gone.add(tool.tool)
            ledger.note("tool-dropped", place(tool), f"the provider's own tool `{tool.tool}` was left out", NO_TOOLS)
        else:
            kept.append(tool)
    if not gone:
        return request
    choice = request.choice
    if choice is not None and any(name.kind in gone for name in choice.tools):
        left = tuple(name for name in choice.tools if name.kind not in gone)
        choice = changed(choice, tools=left) if left else ToolChoice("auto", origin=None)
        ledger.note("choice-weakened", place(request.choice), "a tool that was left out cannot be chosen", NO_TOOLS)
    return changed(request, tools=tuple(kept), choice=choice)


def _offered(tools: tuple[AnyTool, ...], given: Mapping[str, Tool], ledger: Ledger) -> tuple[AnyTool, ...]:
    out: list[AnyTool] = []
    there = {tool.name for tool in tools if isinstance(tool, Tool) and not tool.namespace}
    for tool in tools:
        if not isinstance(tool, HostedTool) or tool.tool not in given:
            out.append(tool)
            continue
        made = given[tool.tool]
        ledger.note("tool-substituted", place(tool), f"`{made.name}` stands in for the provider's own `{tool.tool}`")
        for option in _OPTIONS:
            if getattr(tool, option):
                ledger.note("no-counterpart", place(tool), f"`{option}` of `{tool.tool}` was left out")
        if made.name not in there:
            out.append(made)
            there.add(made.name)
    return tuple(out)


def _chosen(choice: ToolChoice | None, given: Mapping[str, Tool]) -> ToolChoice | None:
    if choice is None or not any(name.kind in given for name in choice.tools):
        return choice
    names = [ToolName(given[name.kind].name) if name.kind in given else name for name in choice.tools]
    return changed(choice, tools=tuple(names))


def _retold(turn: Turn, given: Mapping[str, Tool]) -> list[Turn]:
    """A turn as several, where it tells of such a tool: what was said up to its calls, their results, the rest."""
    if not any(isinstance(part, (HostedCall, HostedResult)) and part.tool in given for part in turn.parts):
        return [turn]
    out: list[Turn] = []
    said: list[Part] = []
    results: list[Turn] = []
    for part in turn.parts:
        if isinstance(part, HostedResult) and part.tool in given:
            results.append(Turn("tool", (_told(part, given[part.tool].name),)))
            continue
        if results:
            out += [*_turn(turn, said), *results]
            said, results = [], []
        if isinstance(part, HostedCall) and part.tool in given:
            said.append(Call(part.id, given[part.tool].name, part.arguments))
        else:
            said.append(part)
    return [*out, *_turn(turn, said), *results]


def _turn(turn: Turn, said: list[Part]) -> list[Turn]:
    return [changed(turn, parts=tuple(said))] if said else []


def _told(part: HostedResult, name: str) -> Result:
    text = Text(found_text(part) or NOTHING_FOUND)
    return Result(part.id, (text,), True if part.error else None, name)
