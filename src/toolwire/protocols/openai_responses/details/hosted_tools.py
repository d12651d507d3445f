"""Declarations of tools that the provider runs."""

from __future__ import annotations

from msgspec.structs import replace

from toolwire.ir import AnyTool, HostedTool, Request, Tool, place
from toolwire.loss import Ledger
from toolwire.protocols.openai_responses.names import HOSTED_TOOLS, NAME, TOOL_TYPES
from toolwire.reading import Reading
from toolwire.wire import Object, Path, take_list, take_object, take_text

SEARCHES = "web_search"
"""What the type of every version of the search begins with, later ones too."""
SOURCES = "web_search_call.action.sources"
"""What must be asked for, or a search does not tell what it found."""
WEB = frozenset({"type", "filters", "search_context_size", "user_location"})
FILTERS = frozenset({"allowed_domains"})
LOCATION = ("city", "country", "region", "timezone")

# --- reading --------------------------------------------------------------------------------------------------------


def read_hosted_tool(node: Object, path: Path, reading: Reading) -> AnyTool:
    if node["type"].startswith(SEARCHES):
        return _read_web_search(node, path, reading)
    tool = HOSTED_TOOLS[node["type"]]
    auto = tool == "code_execution" and node.get("container") == {"type": "auto"}
    known = frozenset({"type", "container"}) if auto else frozenset({"type"})
    return HostedTool(tool, origin=reading.origin(node, path, known))


def _read_web_search(node: Object, path: Path, reading: Reading) -> AnyTool:
    filters = take_object(node, "filters", path) or {}
    place_of_user = take_object(node, "user_location", path) or {}
    reading.origin(filters, (path, "filters"), FILTERS)
    domains = take_list(filters, "allowed_domains", (path, "filters")) or []
    location = {key: place_of_user[key] for key in LOCATION if place_of_user.get(key) is not None}
    return HostedTool(
        "web_search",
        allowed_domains=tuple(domains),
        location=location or None,
        context_size=take_text(node, "search_context_size", path) or "",
        origin=reading.origin(node, path, WEB),
    )


def read_limits(body: Object, tools: tuple[AnyTool, ...]) -> tuple[tuple[AnyTool, ...], frozenset[str]]:
    """The tools, and the keys that were understood: the limit on all of the provider's tools is that of the only one
    there is."""
    limit = body.get("max_tool_calls")
    if type(limit) is not int:
        return tools, frozenset()
    used = [tool for tool in tools if not isinstance(tool, Tool)]
    if len(used) != 1 or not isinstance(used[0], HostedTool):
        return tools, frozenset()
    limited = replace(used[0], max_uses=limit)
    return tuple([limited if tool is used[0] else tool for tool in tools]), frozenset({"max_tool_calls"})


# --- writing --------------------------------------------------------------------------------------------------------


def is_fetch(tool: AnyTool) -> bool:
    return isinstance(tool, HostedTool) and tool.tool == "web_fetch"


def write_hosted_tool(tool: HostedTool, ledger: Ledger) -> Object | None:
    known = "web_search" if tool.tool == "web_fetch" else tool.tool
    if known not in TOOL_TYPES:
        ledger.note("tool-dropped", place(tool), f"the provider's tool {known!r} was left out")
        return None
    out: Object = {"type": TOOL_TYPES[known]}
    if tool.tool == "web_fetch":
        ledger.note("tool-mapped", place(tool), "fetching pages is part of `web_search`")
    elif ledger.source != NAME:
        ledger.note("tool-mapped", place(tool), f"the provider's tool {known!r} became `{out['type']}`")
    if known == "code_execution":
        out["container"] = {"type": "auto"}
    elif known == "web_search":
        _write_web_search(tool, out)
    if tool.blocked_domains:
        ledger.note("no-counterpart", place(tool), f"`blocked_domains` of {tool.tool!r} was left out")
    return out


def _write_web_search(tool: HostedTool, out: Object) -> None:
    if tool.allowed_domains:
        out["filters"] = {"allowed_domains": list(tool.allowed_domains)}
    if tool.location:
        out["user_location"] = {"type": "approximate", **tool.location}
    if tool.context_size:
        out["search_context_size"] = tool.context_size


def write_limits(request: Request, out: Object, ledger: Ledger) -> None:
    """What stands beside the tools: how often they may be used, all together, and that sources are wanted."""
    used = [tool for tool in request.tools if isinstance(tool, HostedTool)]
    limits = [tool.max_uses for tool in used if tool.max_uses is not None]
    if limits and len(limits) == len(used):
        out["max_tool_calls"] = sum(limits)
        ledger.note("setting-mapped", place(used[0]), f"the tools may be used {sum(limits)} times, all together")
    for tool in used:
        if tool.max_uses is not None and len(limits) < len(used):
            what = f"`max_uses` of {tool.tool!r} was left out"
            ledger.note("no-counterpart", place(tool), what, "there is one limit for all tools")
    if any(tool.tool in ("web_search", "web_fetch") for tool in used):
        out["include"] = [*out.get("include", ()), SOURCES]
        ledger.note("default-added", (None, "include"), "the sources of searches are asked for")
