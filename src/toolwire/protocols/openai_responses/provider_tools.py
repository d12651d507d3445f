"""Tools that OpenAI runs itself, such as `web_search`: their declarations, and the items that report their calls."""

from __future__ import annotations

from msgspec.structs import replace

from toolwire.core.ir import (
    AnyTool,
    Citation,
    Part,
    ProviderCall,
    ProviderResult,
    ProviderTool,
    Request,
    Tool,
    source_path,
)
from toolwire.core.json_values import (
    Json,
    Object,
    Path,
    decode_object_or_none,
    encode_text,
    get_list,
    get_object,
    get_text,
)
from toolwire.core.losses import Ledger
from toolwire.core.provenance import ReadContext, restore_original_keys
from toolwire.core.provider_tools import search_queries
from toolwire.protocols.openai_responses.content import read_item_origin
from toolwire.protocols.openai_responses.names import (
    NAME,
    PROVIDER_ITEM_BY_TOOL,
    PROVIDER_ITEMS,
    PROVIDER_TOOL_KINDS,
    PROVIDER_TOOL_TYPES,
    RAW_ARGUMENTS_KEY,
)

WEB_SEARCH_PREFIX = "web_search"
"""The type of every version of OpenAI's web search begins with this."""
INCLUDE_SOURCES = "web_search_call.action.sources"
"""The `include` without which a web search does not list its sources."""
WEB_SEARCH_KEYS = frozenset({"type", "filters", "search_context_size", "user_location"})
FILTER_KEYS = frozenset({"allowed_domains"})
LOCATION_KEYS = ("city", "country", "region", "timezone")

# --- reading --------------------------------------------------------------------------------------------------------


def read_provider_tool(node: Object, path: Path, reading: ReadContext) -> AnyTool:
    if node["type"].startswith(WEB_SEARCH_PREFIX):
        return _read_web_search(node, path, reading)
    tool = PROVIDER_TOOL_KINDS[node["type"]]
    auto = tool == "code_execution" and node.get("container") == {"type": "auto"}
    known = frozenset({"type", "container"}) if auto else frozenset({"type"})
    return ProviderTool(tool, origin=reading.read_origin(node, path, known))


def _read_web_search(node: Object, path: Path, reading: ReadContext) -> AnyTool:
    filters = get_object(node, "filters", path) or {}
    place_of_user = get_object(node, "user_location", path) or {}
    reading.read_origin(filters, (path, "filters"), FILTER_KEYS)
    domains = get_list(filters, "allowed_domains", (path, "filters")) or []
    location = {key: place_of_user[key] for key in LOCATION_KEYS if place_of_user.get(key) is not None}
    return ProviderTool(
        "web_search",
        allowed_domains=tuple(domains),
        location=location or None,
        context_size=get_text(node, "search_context_size", path) or "",
        origin=reading.read_origin(node, path, WEB_SEARCH_KEYS),
    )


def read_max_tool_calls(body: Object, tools: tuple[AnyTool, ...]) -> tuple[tuple[AnyTool, ...], frozenset[str]]:
    """The tools with `max_tool_calls` as their limit, and the keys that were read. The limit counts for all provider
    tools together, so it is read only where there is exactly one."""
    limit = body.get("max_tool_calls")
    if type(limit) is not int:
        return tools, frozenset()
    used = [tool for tool in tools if not isinstance(tool, Tool)]
    if len(used) != 1 or not isinstance(used[0], ProviderTool):
        return tools, frozenset()
    limited = replace(used[0], max_uses=limit)
    return tuple([limited if tool is used[0] else tool for tool in tools]), frozenset({"max_tool_calls"})


# --- writing --------------------------------------------------------------------------------------------------------


def is_web_fetch(tool: AnyTool) -> bool:
    return isinstance(tool, ProviderTool) and tool.tool == "web_fetch"


def write_provider_tool(tool: ProviderTool, ledger: Ledger) -> Object | None:
    known = "web_search" if tool.tool == "web_fetch" else tool.tool
    if known not in PROVIDER_TOOL_TYPES:
        ledger.note("tool-dropped", source_path(tool), f"the provider's tool {known!r} was left out")
        return None
    out: Object = {"type": PROVIDER_TOOL_TYPES[known]}
    if tool.tool == "web_fetch":
        ledger.note("tool-mapped", source_path(tool), "fetching pages is part of `web_search`")
    elif ledger.source != NAME:
        ledger.note("tool-mapped", source_path(tool), f"the provider's tool {known!r} became `{out['type']}`")
    if known == "code_execution":
        out["container"] = {"type": "auto"}
    elif known == "web_search":
        _write_web_search(tool, out)
    if tool.blocked_domains:
        ledger.note("no-counterpart", source_path(tool), f"`blocked_domains` of {tool.tool!r} was left out")
    return out


def _write_web_search(tool: ProviderTool, out: Object) -> None:
    if tool.allowed_domains:
        out["filters"] = {"allowed_domains": list(tool.allowed_domains)}
    if tool.location:
        out["user_location"] = {"type": "approximate", **tool.location}
    if tool.context_size:
        out["search_context_size"] = tool.context_size


def write_provider_tool_settings(request: Request, out: Object, ledger: Ledger) -> None:
    """Write `max_tool_calls`, which is one limit for all tools, and ask for the sources of searches."""
    used = [tool for tool in request.tools if isinstance(tool, ProviderTool)]
    limits = [tool.max_uses for tool in used if tool.max_uses is not None]
    if limits and len(limits) == len(used):
        out["max_tool_calls"] = sum(limits)
        what = f"`max_uses` became a limit of {sum(limits)} calls for all tools together"
        ledger.note("setting-mapped", source_path(used[0]), what)
    for tool in used:
        if tool.max_uses is not None and len(limits) < len(used):
            what = f"`max_uses` of {tool.tool!r} was left out"
            ledger.note("no-counterpart", source_path(tool), what, "there is one limit for all tools")
    if any(tool.tool in ("web_search", "web_fetch") for tool in used):
        out["include"] = [*out.get("include", ()), INCLUDE_SOURCES]
        ledger.note("default-added", (None, "include"), "the sources of web searches were asked for")


# --- items: one for a call and its results --------------------------------------------------------------------------


def read_provider_item(node: Object, path: Path, reading: ReadContext) -> tuple[Part, ...]:
    """A ProviderCall, and a ProviderResult if the item has results."""
    tool = PROVIDER_ITEMS[node["type"]][0]
    id = get_text(node, "id", path) or ""
    arguments, sources, text, known = _ITEM_READERS[tool](node, path)
    if arguments.get("type") == "open_page" and isinstance(arguments.get("url"), str):
        tool, arguments = "web_fetch", {"url": arguments["url"]}
    origin = read_item_origin(reading, node, path, known | {"type", "id", "status"})
    call = ProviderCall(id, tool, encode_text(arguments) if arguments else "", origin)
    if not sources and not text:
        return (call,)
    return call, ProviderResult(id, tool, sources, text, origin=origin)


_ProviderItemFields = tuple[Object, tuple[Citation, ...], str, frozenset[str]]


def _read_search_item(node: Object, path: Path) -> _ProviderItemFields:
    action = get_object(node, "action", path) or {}
    found = get_list(action, "sources", (path, "action")) or []
    sources = tuple(
        [Citation(str(one.get("url") or ""), str(one.get("title") or "")) for one in found if _has_url(one)]
    )
    if len(sources) == len(found):
        action = {key: value for key, value in action.items() if key != "sources"}
    else:
        sources = ()
    return _simplify_search(action), sources, "", frozenset({"action"})


def _simplify_search(action: Object) -> Object:
    """The arguments of a search as in other protocols: `queries` beside `query` only where there are several."""
    if action.get("type", "search") != "search":
        return action
    plain = {key: value for key, value in action.items() if key != "type" and value not in (None, "", [])}
    queries = plain.get("queries")
    if isinstance(queries, list) and queries:
        plain.setdefault("query", queries[0])
        if queries == [plain["query"]]:
            del plain["queries"]
    return plain


def _has_url(source: Json) -> bool:
    return isinstance(source, dict) and source.keys() <= {"type", "url", "title"} and bool(source.get("url"))


def _read_code_item(node: Object, path: Path) -> _ProviderItemFields:
    code = get_text(node, "code", path)
    outputs = get_list(node, "outputs", path) or []
    logs = [one["logs"] for one in outputs if isinstance(one, dict) and isinstance(one.get("logs"), str)]
    known = frozenset({"code", "container_id"})
    arguments = {"code": code} if code is not None else {}
    return arguments, (), "".join(logs), known | {"outputs"} if len(logs) == len(outputs) else known


def _read_file_search_item(node: Object, path: Path) -> _ProviderItemFields:
    queries = get_list(node, "queries", path) or []
    results = get_list(node, "results", path) or []
    found = [one for one in results if isinstance(one, dict)]
    sources = tuple([Citation(title=str(one.get("filename") or ""), quote=str(one.get("text") or "")) for one in found])
    return {"queries": queries}, sources, "", frozenset({"queries"})


_ITEM_READERS = {
    "web_search": _read_search_item,
    "code_execution": _read_code_item,
    "file_search": _read_file_search_item,
}


def can_write_provider_item(tool: str) -> bool:
    return tool in PROVIDER_ITEM_BY_TOOL


def provider_id_prefix(tool: str) -> str:
    return PROVIDER_ITEM_BY_TOOL[tool][1]


def write_provider_item(
    call: ProviderCall, result: ProviderResult | None, ledger: Ledger, id: str, status: str = "completed"
) -> Object:
    """The item of a provider's own tool."""
    arguments = decode_object_or_none(call.arguments)
    if arguments is None:
        what = f"the arguments of {call.tool!r} are not an object and were wrapped"
        ledger.note("arguments-wrapped", source_path(call), what)
        arguments = {RAW_ARGUMENTS_KEY: call.arguments}
    out: Object = {"type": PROVIDER_ITEM_BY_TOOL[call.tool][0], "id": id, "status": status}
    found = ProviderResult(call.id, call.tool) if result is None else result
    _ITEM_WRITERS.get(call.tool, _write_search_item)(out, call, arguments, found, ledger)
    if found.error:
        ledger.note("part-dropped", source_path(found), f"the error of {call.tool!r} was left out")
    return restore_original_keys(out, call.origin, NAME)


def _write_code_item(out: Object, call: ProviderCall, arguments: Object, found: ProviderResult, ledger: Ledger) -> None:
    out["code"] = arguments.get("code")
    out["container_id"] = ""
    out["outputs"] = [{"type": "logs", "logs": found.text}] if found.text else None
    if arguments.keys() - {"code"}:
        ledger.note("no-counterpart", source_path(call), "everything about the executed code but its text was left out")


def _write_file_search_item(
    out: Object, _call: ProviderCall, arguments: Object, found: ProviderResult, ledger: Ledger
) -> None:
    out["queries"] = arguments.get("queries") or []
    out["results"] = [{"filename": one.title, "text": one.quote} for one in found.sources] or None
    if found.text:
        ledger.note("part-dropped", source_path(found), "the text that a file search found was left out")


def _write_search_item(
    out: Object, call: ProviderCall, arguments: Object, found: ProviderResult, ledger: Ledger
) -> None:
    out["action"] = _write_search_action(call, arguments, ledger)
    if found.sources:
        out["action"]["sources"] = [{"type": "url", "url": one.url} for one in found.sources]
    for one in found.sources:
        if one.title or one.quote:
            what = f"everything about the source {one.url!r} but its URL was left out"
            ledger.note("citation-mapped", source_path(one) or source_path(found), what)
    if found.text:
        ledger.note("part-dropped", source_path(found), f"the text that {call.tool!r} found was left out")


_ITEM_WRITERS = {"code_execution": _write_code_item, "file_search": _write_file_search_item}


def _write_search_action(call: ProviderCall, arguments: Object, ledger: Ledger) -> Object:
    if "type" in arguments:
        return dict(arguments)
    if call.tool == "web_fetch":
        if ledger.source != NAME:
            ledger.note("tool-mapped", source_path(call), "a fetched page became an opened page of a search")
        return {"type": "open_page", "url": arguments.get("url")}
    queries = search_queries(call.arguments)
    return {"type": "search", **arguments, "query": queries[0] if queries else "", "queries": queries}
