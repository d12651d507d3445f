"""Too many tools for a provider or a model: most of them are deferred, and the model finds them with one tool.

`plan_tool_search` decides which tools are declared from the start, and adds the search tool. `ToolSearch` runs its
calls and declares what they find. Calls of the search tool do not reach the client (`tool_rounds.py`).

Prompts are cached by their prefix. So the declared tools only grow at their end, and the next request of a conversation
declares the same ones in the same order: those that its history has found, loaded or called, in this order.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Sequence
from typing import Literal, TypeAlias

from msgspec import Struct

from toolwire.core.codec import Constraints
from toolwire.core.ir import (
    AnyTool,
    Call,
    Opaque,
    Part,
    Request,
    Result,
    Text,
    Tool,
    ToolReference,
    ToolsAdded,
    plain_text,
    replace_fields,
    source_path,
    with_fields,
)
from toolwire.core.json_values import Object, decode_object_or_none, encode_text
from toolwire.core.losses import ADDED_ORIGIN, Ledger
from toolwire.translation.options import Options
from toolwire.translation.request_steps.tools import ToolNameMap, drop_duplicate_tools, find_server_tools
from toolwire.translation.tool_index import ToolIndex

SEARCH_NAME = "search_tools"
MAX_FOUND = 5
"""Tools that one search loads. Of a namespace that is loaded as a whole (Responses) there may be more."""
RESERVED_TOOLS = 32
"""How many of the tools that a provider accepts are left for those that searches load."""
MAX_DESCRIPTION = 200
"""Characters of a tool's description in the result of a search. The whole one is in its declaration."""
MAX_OVERVIEW = 600
"""Characters of the search tool's description that say what can be found. OpenAI allows 1024 for all of it."""
FOUND_KEY = "loaded"
_FIRST_WORD = re.compile(r".+?(?=__)|[^\W_]+|.+", re.DOTALL)
"""What groups the names of tools: an MCP server (`github__create_issue`), or the first word."""

DEFERRABLE_KINDS = frozenset({"function", "custom"})
"""Others are built-in tools of a vendor, or the client's own search for tools."""

SEARCH_PARAMETERS: Object = {
    "type": "object",
    "properties": {
        "query": {"type": "string", "description": "What the tool should do, in a few words, or the name of a tool."}
    },
    "required": ["query"],
    "additionalProperties": False,
}
NOTHING_FOUND = "no tool fits these words; try others, or go on without"

ToolKey: TypeAlias = tuple[str, str]
"""Namespace and name, as the client knows them."""


class LoadedName(Struct, frozen=True):
    """A tool that the history has loaded."""

    name: str
    namespace: str = ""
    known_to: Literal["client", "provider"] = "client"
    """Whose name it is: the result of a search has the provider's."""
    was_called: bool = False


class SearchPlan(Struct, frozen=True):
    """Which tools are declared from the start."""

    request: Request
    """The request with the search tool, and with no tool marked as deferred."""
    search_name: str
    direct_tools: frozenset[ToolKey]
    loaded_names: tuple[LoadedName, ...]
    stale_turns: int = 0
    """The number of turns before the last change of the declared tools, if the model binds its thinking to these."""


# --- the plan ---------------------------------------------------------------------------------------------------------


def plan_tool_search(
    request: Request, client: Constraints, provider: Constraints, options: Options, ledger: Ledger
) -> SearchPlan | None:
    """None where all tools are declared."""
    if options.tool_search != "gateway" or (request.settings.count or 1) > 1:
        return None
    request = drop_duplicate_tools(request, ledger)
    direct = _direct_tools(request, provider, options)
    deferred = [tool for tool in request.tools if isinstance(tool, Tool) and _key(tool) not in direct]
    if not deferred:
        return None
    name = _unused_name(request)
    cache = next((tool.cache for tool in reversed(deferred) if tool.cache is not None), None)
    search = Tool(name, _describe_search(deferred), SEARCH_PARAMETERS, cache=cache, origin=ADDED_ORIGIN)
    tools = [
        _without_marks(tool, _key(tool) not in direct) if isinstance(tool, Tool) else tool
        for tool in request.tools
        if not _is_provider_search(tool, client, name, ledger)
    ]
    loaded = [*_loaded_names(request, name)]
    is_bound = provider.binds_reasoning_to_tools(request.model)
    stale_turns = _last_load(loaded, {*map(_key, deferred)}, direct) if is_bound else 0
    choice = request.choice
    chosen = (LoadedName(one.name, one.namespace, was_called=True) for one in (choice.tools if choice else ()))
    names = tuple(dict.fromkeys([*(one for _, one in loaded), *chosen]))
    return SearchPlan(replace_fields(request, tools=(*tools, search)), name, direct, names, stale_turns)


def _key(tool: Tool) -> ToolKey:
    return (tool.namespace, tool.name)


def _direct_tools(request: Request, constraints: Constraints, options: Options) -> frozenset[ToolKey]:
    """The tools that are declared from the start: those that the client has not deferred, and if it has deferred none,
    as many as the operator allows: the agent's own before those of MCP servers, in their order."""
    functions = [tool for tool in request.tools if isinstance(tool, Tool)]
    limit = constraints.max_tools(request.model)
    most = len(functions) if limit is None else max(limit - RESERVED_TOOLS - 1 - len(request.tools) + len(functions), 0)
    is_marked = any(tool.defer for tool in functions)
    if not is_marked and len(functions) <= min(options.direct_tools, len(functions) if limit is None else limit):
        return frozenset(map(_key, functions))
    direct: list[ToolKey] = []
    of_servers = find_server_tools(functions)
    by_owner = sorted(range(len(functions)), key=lambda number: number in of_servers)
    for unit in _group_tools([functions[number] for number in by_owner], constraints):
        is_built_in = any(tool.kind not in DEFERRABLE_KINDS for tool in unit)
        is_deferred = all(tool.defer for tool in unit)
        is_clients_choice = is_marked and unit[0].origin is not ADDED_ORIGIN
        allowed = most if is_clients_choice else min(options.direct_tools, most)
        if is_built_in or (not is_deferred and len(direct) + len(unit) <= allowed):
            direct += map(_key, unit)
    return frozenset(direct)


def _group_tools(tools: Sequence[Tool], constraints: Constraints) -> list[list[Tool]]:
    """Tools that are declared together: each alone, or, where the protocol has namespaces, those of a namespace."""
    groups: dict[object, list[Tool]] = {}
    for tool in tools:
        key: object = tool.namespace if tool.namespace and constraints.has_namespaces else _key(tool)
        groups.setdefault(key, []).append(tool)
    return list(groups.values())


def _unused_name(request: Request) -> str:
    taken = {tool.name for tool in request.tools if isinstance(tool, Tool)}
    names = (SEARCH_NAME, *(f"{SEARCH_NAME}_{number}" for number in range(2, len(taken) + 3)))
    return next(name for name in names if name not in taken)


def _without_marks(tool: Tool, is_deferred: bool) -> Tool:
    """A tool that is declared by us when it is needed. A cache breakpoint on it is on the search tool instead."""
    return with_fields(tool, defer=tool.defer and None, cache=None if is_deferred else tool.cache)


def _is_provider_search(tool: AnyTool, client: Constraints, name: str, ledger: Ledger) -> bool:
    """Is it the tool search of the client's vendor? Ours replaces it."""
    if (
        not isinstance(tool, Opaque)
        or not client.tool_search_types
        or not tool.kind.startswith(client.tool_search_types)
    ):
        return False
    ledger.note("tool-substituted", source_path(tool), f"`{name}` replaces `{tool.kind}`", WHY_SUBSTITUTED)
    return True


WHY_SUBSTITUTED = "the operator has set `tool_search`"


def _describe_search(tools: Sequence[Tool]) -> str:
    """It depends on the deferred tools only, not on what is loaded: the prefix of the prompt stays the same."""
    names = [f"{tool.namespace}__{tool.name}" if tool.namespace else tool.name for tool in tools]
    overview = ", ".join(names)
    if len(overview) > MAX_OVERVIEW:
        groups = Counter(_FIRST_WORD.match(name)[0] for name in names)  # type: ignore[index]
        overview = ", ".join(f"{group} ({count})" for group, count in groups.items())
    if len(overview) > MAX_OVERVIEW:
        overview = overview[:MAX_OVERVIEW].rpartition(", ")[0] + ", …"
    return (
        f"Finds and loads more tools. There are {len(tools)} of them: {overview}. If none of your tools fits the task, "
        "search here first. The tools that are found can be called after that."
    )


# --- what the history has loaded --------------------------------------------------------------------------------------


def _loaded_names(request: Request, search_name: str) -> Iterator[tuple[int, LoadedName]]:
    """The tools that the history has found, loaded or called, in order, with the number of turns before the change: the
    model has made these turns without the tool."""
    searches: set[str] = set()
    for number, turn in enumerate(request.turns):
        for part in turn.parts:
            if isinstance(part, Call):
                if part.name == search_name and not part.namespace:
                    searches.add(part.id)
                else:
                    yield number + 1, LoadedName(part.name, part.namespace, was_called=True)
            elif isinstance(part, Result) and (part.id in searches or part.name == search_name):
                for found in _found_names(part):
                    yield number, found
            else:
                for loaded in _names_in(part):
                    yield number, loaded


def _found_names(result: Result) -> Iterator[LoadedName]:
    found = (decode_object_or_none(plain_text(result.content)) or {}).get(FOUND_KEY)
    for row in found if isinstance(found, list) else ():
        name, namespace = (row.get("name"), row.get("namespace", "")) if isinstance(row, dict) else (None, None)
        if isinstance(name, str) and isinstance(namespace, str):
            yield LoadedName(name, namespace, "provider")


def _names_in(part: Part) -> Iterator[LoadedName]:
    """The tools that the client's own search has loaded."""
    for item in part.content if isinstance(part, Result) else (part,):
        if isinstance(item, ToolReference):
            yield LoadedName(item.name)
        elif isinstance(item, ToolsAdded):
            yield from (LoadedName(tool.name, tool.namespace) for tool in item.tools if isinstance(tool, Tool))


def _last_load(
    loaded: Iterable[tuple[int, LoadedName]], deferred: Container[ToolKey], direct: Container[ToolKey]
) -> int:
    """The number of turns before the last change of the declared tools."""
    seen: set[ToolKey] = set()
    last = 0
    for number, name in loaded:
        key = (name.namespace, name.name)
        if key not in seen and (key in deferred or (name.known_to == "provider" and key not in direct)):
            seen.add(key)
            last = number
    return last


# --- the search -------------------------------------------------------------------------------------------------------


class ToolSearch:
    """The tools of one exchange, as the provider knows them: which of them are declared, and which can be found."""

    def __init__(self, plan: SearchPlan, adapted: Request, names: ToolNameMap, constraints: Constraints) -> None:
        tools = [(self._client_key(tool, names), tool) for tool in adapted.tools if isinstance(tool, Tool)]
        search = next(tool for key, tool in tools if key == ("", plan.search_name))
        self.name = search.name
        """The provider's name of the search tool."""
        deferred = {id(tool) for key, tool in tools if key not in plan.direct_tools and tool is not search}
        self._direct: list[AnyTool] = [
            tool for tool in adapted.tools if id(tool) not in deferred and tool is not search
        ]
        self._direct.append(search)
        self._deferred = [tool for _, tool in tools if id(tool) in deferred]
        self._searched = [tool for _, tool in tools if tool is not search]
        self._groups = {_key(tool): group for group in _group_tools(self._deferred, constraints) for tool in group}
        limit = constraints.max_tools(adapted.model)
        self._room = None if limit is None else max(limit - len(self._direct), 1)
        self._index: ToolIndex | None = None
        self._loaded: list[Tool] = []
        self._called: set[ToolKey] = set()
        self.loads = 0
        """How often searches have changed the declared tools."""
        provider_keys = {key: _key(tool) for key, tool in tools}
        for one in plan.loaded_names:
            key = (one.namespace, one.name)
            if one.known_to == "client":
                key = provider_keys.get(key, key)
            self._load(key)
            if one.was_called:
                self._called.add(key)

    @staticmethod
    def _client_key(tool: Tool, names: ToolNameMap) -> ToolKey:
        original = None if tool.namespace else names.names.get(tool.name)
        return _key(tool) if original is None else (original.namespace, original.name)

    def declared_tools(self) -> tuple[AnyTool, ...]:
        """The tools for the provider: those from the start, the search, and what was loaded, in order."""
        return (*self._direct, *self._loaded)

    def note_deferred(self, ledger: Ledger) -> None:
        loaded = {*map(id, self._loaded)}
        for tool in self._deferred:
            if id(tool) not in loaded:
                ledger.note("tool-deferred", source_path(tool), f"the model finds `{tool.name}` with `{self.name}`")

    def run(self, call: Call) -> Result:
        """Search, and load what is found."""
        if self._index is None:
            self._index = ToolIndex(self._searched)
        found = [self._searched[number] for number in self._index.search(_read_query(call.arguments), MAX_FOUND)]
        before = [*map(id, self._loaded)]
        rows = {_key(one): _describe_tool(one) for tool in found for one in self._load(_key(tool)) or (tool,)}
        if [*map(id, self._loaded)] != before:
            self.loads += 1
        outcome: Object = {FOUND_KEY: [*rows.values()]} if rows else {FOUND_KEY: [], "message": NOTHING_FOUND}
        return Result(call.id, (Text(encode_text(outcome)),), name=call.name)

    def _load(self, key: ToolKey) -> Sequence[Tool]:
        """Declare a deferred tool behind the others. Gives the tools that are declared together; none for others."""
        group = self._groups.get(key, ())
        known = {id(tool) for tool in self._loaded}
        self._loaded += [tool for tool in group if id(tool) not in known]
        while self._room is not None and len(self._loaded) > self._room:
            # More than the provider accepts: what was not called goes first, then what was loaded first.
            kept = self._called.union(map(_key, group))
            unused = (number for number, tool in enumerate(self._loaded) if _key(tool) not in kept)
            del self._loaded[next(unused, 0)]
        return group


def _describe_tool(tool: Tool) -> Object:
    names = {"name": tool.name, "namespace": tool.namespace} if tool.namespace else {"name": tool.name}
    return {**names, "description": (tool.description or "")[:MAX_DESCRIPTION]}


def _read_query(arguments: str) -> str:
    """The words of a search. Small models name the parameter otherwise, or send plain text."""
    read = decode_object_or_none(arguments)
    if read is None:
        return arguments
    values = [item for value in read.values() for item in (value if isinstance(value, list) else [value])]
    return " ".join(value for value in values if isinstance(value, str))
