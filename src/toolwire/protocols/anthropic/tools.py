"""Tools, the tool choice, the schemas of arguments, and calls and results of tools that Anthropic runs itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from msgspec.structs import replace

from toolwire.core.converted_schema import SchemaChange
from toolwire.core.ids import hex_digest
from toolwire.core.ir import (
    AnyTool,
    Citation,
    Opaque,
    Origin,
    Part,
    ProviderCall,
    ProviderResult,
    ProviderTool,
    Request,
    Text,
    Tool,
    ToolChoice,
    ToolName,
    replace_fields,
    source_path,
)
from toolwire.core.json_values import (
    Json,
    Malformed,
    Object,
    Path,
    encode_text,
    expect_object,
    get_bool,
    get_int,
    get_list,
    get_object,
    get_text,
    require_text,
)
from toolwire.core.known_tools import read_known_tools
from toolwire.core.losses import Ledger
from toolwire.core.provenance import ReadContext, items_with_paths, restore_original_keys
from toolwire.core.provider_tools import (
    carry_call_id,
    is_returned_call,
    note_returned_result,
    provider_result_as_text,
)
from toolwire.core.tool_choice import fit_tool_choice
from toolwire.protocols.anthropic import names
from toolwire.protocols.anthropic.models import Family, is_claude, read_cache, write_cache
from toolwire.protocols.anthropic.names import NAME, find_client_tool, intact_wire, is_foreign, is_own
from toolwire.schema.repair import convert_to_anthropic_input, fits_anthropic, repair_schema
from toolwire.schema.strict import STRICT_WITH_OPTIONAL, convert_to_strict, count_optional_and_unions, strict_problems

MAX_STRICT_TOOLS = 20
"""Anthropic accepts `strict` on at most this many tools of a request."""

NO_PARAMETERS: Object = {"type": "object", "properties": {}}


# --- reading ----------------------------------------------------------------------------------------------------------


def refuses_tool(tool: Tool, model: str) -> bool:
    """Anthropic refuses the whole request if one schema is not as it wants it; compatible servers may not."""
    return tool.kind == "function" and is_claude(model) and not fits_anthropic(tool.parameters)


def read_tools(body: Object, reading: ReadContext) -> tuple[AnyTool, ...]:
    return read_known_tools(_read_list, get_list(body, "tools", None) or [], (None, "tools"), reading)


def _read_list(tools: list[Json], path: Path, reading: ReadContext) -> tuple[AnyTool, ...]:
    return tuple([_read_tool(tool, at, reading) for tool, at in items_with_paths(tools, path)])


def _read_tool(value: Json, path: Path, reading: ReadContext) -> AnyTool:
    tool = expect_object(value, path)
    kind = get_text(tool, "type", path) or "custom"
    if "input_schema" not in tool and not _FOREIGN_KEYS.isdisjoint(tool):
        raise Malformed(path, "`input_schema` is missing")
    if kind == "custom":
        known, kind = names.TOOL_KEYS, "function"
        description, parameters = get_text(tool, "description", path), get_object(tool, "input_schema", path)
    elif provider_tool := _find_provider_tool(kind):
        return _read_provider_tool(provider_tool, tool, path, reading)
    elif client_tool := find_client_tool(kind):
        known = names.CLIENT_TOOL_KEYS
        description, parameters = client_tool
    else:
        return Opaque(kind, reading.whole_origin(tool, path))
    return Tool(
        require_text(tool, "name", path),
        description,
        parameters,
        kind,
        strict=get_bool(tool, "strict", path),
        defer=get_bool(tool, "defer_loading", path),
        cache=read_cache(tool, path, reading),
        origin=reading.read_origin(tool, path, known),
    )


_FOREIGN_KEYS = frozenset({"function", "parameters", "inputSchema"})
"""Where OpenAI and MCP have the schema of a tool. Such a tool would pass as one of a type that is not known yet, and be
lost, or its schema would be."""


def _find_provider_tool(kind: str) -> str:
    """The common name of a provider tool from its type, such as `web_search_20250305`."""
    return next((name for name in names.PROVIDER_TOOL_VERSIONS if kind.startswith(f"{name}_")), "")


def _read_provider_tool(name: str, tool: Object, path: Path, reading: ReadContext) -> ProviderTool:
    location = get_object(tool, "user_location", path)
    if location:
        for key in location:
            if key not in names.LOCATION_KEYS and key != "type":
                reading.note_unknown_field((path, "user_location"), key)
        location = {key: location[key] for key in location if key in names.LOCATION_KEYS and location[key] is not None}
    return ProviderTool(
        name,
        get_text(tool, "name", path) or name,
        get_int(tool, "max_uses", path),
        tuple(get_list(tool, "allowed_domains", path) or ()),
        tuple(get_list(tool, "blocked_domains", path) or ()),
        location,
        cache=read_cache(tool, path, reading),
        origin=reading.read_origin(tool, path, names.PROVIDER_TOOL_KEYS),
    )


CHOICE_MODES: Mapping[str, Literal["auto", "required", "none", "one"]] = {
    "auto": "auto",
    "any": "required",
    "none": "none",
    "tool": "one",
}
_CHOICE_TYPES: Mapping[str, str] = {mode: word for word, mode in CHOICE_MODES.items()}


def read_tool_choice(body: Object, reading: ReadContext) -> tuple[ToolChoice | None, bool | None]:
    """The tool choice, and whether parallel calls are allowed: Anthropic has both in one object."""
    choice = get_object(body, "tool_choice", None)
    if choice is None:
        return None, None
    path = (None, "tool_choice")
    kind = require_text(choice, "type", path)
    if kind not in CHOICE_MODES:
        raise Malformed((path, "type"), f"expected one of {', '.join(CHOICE_MODES)}, got `{kind}`")
    tools = (_read_tool_name(require_text(choice, "name", path), body),) if kind == "tool" else ()
    origin = reading.read_origin(choice, path, names.TOOL_CHOICE_KEYS)
    parallel = _read_parallel(get_bool(choice, "disable_parallel_tool_use", path))
    return ToolChoice(CHOICE_MODES[kind], tools, origin=origin), parallel


def _read_parallel(disabled: bool | None) -> bool | None:
    return None if disabled is None else not disabled


def _read_tool_name(name: str, body: Object) -> ToolName:
    """A choice names a provider tool like any other; only its declaration says what it is."""
    for tool in body.get("tools") or ():
        if isinstance(tool, dict) and tool.get("name") == name and isinstance(kind := tool.get("type"), str):
            return ToolName(name, _find_provider_tool(kind) or "function")
    return ToolName(name)


# --- writing ----------------------------------------------------------------------------------------------------------


def write_tools(tools: tuple[AnyTool, ...], ledger: Ledger, client_tools: Json = None) -> list[Object]:
    """The list of tools. `client_tools` is the list of Anthropic's own client, before anything was left out."""
    pairs = [(tool, wire) for tool in tools if (wire := _write_tool(tool, ledger)) is not None]
    written = [wire for _, wire in pairs]
    unreachable = any(wire.get("defer_loading") for wire in written) and _has_lost_search(tools, written, client_tools)
    too_many_strict = _has_too_many_strict(written) and all(is_foreign(tool.origin) for tool in tools)
    if not (unreachable or too_many_strict):
        return written
    if unreachable:
        for tool, wire in pairs:
            if wire.get("defer_loading"):
                why = "no tool that is sent could load it"
                ledger.note("no-counterpart", source_path(tool), "the tool is not deferred", why)
    if too_many_strict:
        why = f"Anthropic allows {MAX_STRICT_TOOLS} of them, with few optional properties and unions"
        ledger.note("no-counterpart", None, "`strict` was removed from all tools", why)
    removed = {key for key, is_removed in (("defer_loading", unreachable), ("strict", too_many_strict)) if is_removed}
    return [{key: value for key, value in wire.items() if key not in removed} for wire in written]


SEARCH_TYPE = "tool_search_tool_"
"""The types of Anthropic's tool search begin with this."""


def _has_lost_search(tools: tuple[AnyTool, ...], written: list[Object], client_tools: Json) -> bool:
    """Is there no search that would load deferred tools? Anthropic's own clients may run one of their own, so for them
    only a search that was left out counts."""
    if any(str(wire.get("type", "")).startswith(SEARCH_TYPE) for wire in written):
        return False
    if isinstance(client_tools, list):
        types = [str(tool.get("type", "")) for tool in client_tools if isinstance(tool, dict)]
        return any(kind.startswith(SEARCH_TYPE) for kind in types)
    functions = [tool for tool in tools if isinstance(tool, Tool)]
    is_deferred = any(tool.defer and is_foreign(tool.origin) for tool in functions)
    return is_deferred and not any(tool.kind == "search" for tool in functions)


def is_written(tool: AnyTool) -> bool:
    """Is this tool one of those that `write_tools` writes?"""
    if isinstance(tool, ProviderTool):
        return tool.tool in names.PROVIDER_TOOL_VERSIONS or intact_wire(tool.origin) is not None
    return isinstance(tool, Tool) or intact_wire(tool.origin) is not None


def _has_too_many_strict(written: list[Object]) -> bool:
    """Do the strict tools exceed what Anthropic allows for all of them together?"""
    strict = [wire for wire in written if wire.get("strict")]
    if len(strict) < 2:
        return False
    counts = [count_optional_and_unions(wire.get("input_schema")) for wire in strict]
    optional, unions = map(sum, zip(*counts, strict=True))
    limits = STRICT_WITH_OPTIONAL
    return (
        len(strict) > MAX_STRICT_TOOLS
        or optional > (limits.max_optional_properties or 0)
        or unions > (limits.max_unions or 0)
    )


def _write_tool(tool: AnyTool, ledger: Ledger) -> Object | None:
    if (wire := intact_wire(tool.origin)) is not None:
        return wire
    if isinstance(tool, Tool):
        return _write_function(tool, ledger)
    if isinstance(tool, Opaque):
        ledger.note_opaque(tool)
        return None
    return _write_provider_tool(tool, ledger)


def _write_function(tool: Tool, ledger: Ledger) -> Object:
    out: Object = {"name": tool.name}
    if tool.kind != "function" and find_client_tool(tool.kind) is not None:
        out = {"type": tool.kind, "name": tool.name}
    else:
        if tool.description is not None:
            out["description"] = tool.description
        out["input_schema"] = _write_parameters(tool, ledger)
    if tool.strict is not None:
        _write_strict(tool, out, ledger)
    if tool.defer is not None:
        out["defer_loading"] = tool.defer
    if tool.output is not None:
        ledger.note("no-counterpart", source_path(tool), f"the schema of what `{tool.name}` returns was left out")
    if tool.grammar is not None:
        ledger.note("no-counterpart", source_path(tool), f"the grammar of `{tool.name}` was left out")
    if tool.cache is not None and tool.defer:
        what = f"the cache breakpoint on `{tool.name}` was left out"
        ledger.note("cache-dropped", source_path(tool), what, "Anthropic accepts none on a deferred tool")
    else:
        write_cache(out, tool.cache, ledger, source_path(tool))
    return restore_original_keys(out, tool.origin, NAME)


def _write_parameters(tool: Tool, ledger: Ledger) -> Json:
    if tool.parameters is None:
        ledger.note("schema-added", source_path(tool), f"`{tool.name}` got a schema without arguments")
        return NO_PARAMETERS
    schema = tool.parameters
    has_object_root = isinstance(schema, dict) and schema.get("type") == "object" and _UNION_KEYS.isdisjoint(schema)
    if has_object_root or not is_foreign(tool.origin):
        return schema
    converted = convert_to_anthropic_input(schema)
    _note_schema_changes(converted.changes, source_path(tool), f"`{tool.name}`", ledger)
    return converted.schema


def _write_strict(tool: Tool, out: Object, ledger: Ledger) -> None:
    """`strict`, unless Anthropic would refuse it for this schema."""
    if tool.strict and is_foreign(tool.origin) and "input_schema" in out:
        schema, problem = make_strict_schema(out["input_schema"], source_path(tool), f"`{tool.name}`", ledger)
        if problem:
            ledger.note("no-counterpart", source_path(tool), f"`strict` of `{tool.name}` was left out", problem)
            return
        out["input_schema"] = schema
    out["strict"] = tool.strict


def _write_provider_tool(tool: ProviderTool, ledger: Ledger) -> Object | None:
    where = source_path(tool)
    version = names.PROVIDER_TOOL_VERSIONS.get(tool.tool)
    if version is None:
        ledger.note("tool-dropped", where, f"the provider tool `{tool.tool}` was left out")
        return None
    if is_own(tool.origin):
        version = tool.origin.wire["type"]
    out: Object = {"type": version, "name": tool.tool}
    options: Object = {
        "max_uses": tool.max_uses,
        "allowed_domains": list(tool.allowed_domains) or None,
        "blocked_domains": list(tool.blocked_domains) or None,
        "user_location": {"type": "approximate", **tool.location} if tool.location else None,
    }
    if tool.tool == "code_execution":
        options = {}
    if options.get("allowed_domains") and options.pop("blocked_domains", None):
        why = "Anthropic accepts either allowed or blocked domains"
        ledger.note("no-counterpart", where, "blocked domains were left out", why)
    out |= {key: value for key, value in options.items() if value is not None}
    if tool.context_size:
        ledger.note("no-counterpart", where, f"the context size `{tool.context_size}` of a search was left out")
    write_cache(out, tool.cache, ledger, where)
    return restore_original_keys(out, tool.origin, NAME)


def select_allowed_tools(request: Request, facts: Family, ledger: Ledger) -> tuple[AnyTool, ...]:
    """Anthropic has no choice of a subset of tools, so the others are left out. Models whose thinking is only valid
    after the same tools keep all of them: they would refuse their own history."""
    choice = request.choice
    if choice is None or choice.mode != "allowed":
        return request.tools
    where = source_path(choice)
    chosen = {tool.name for tool in choice.tools}
    if facts.binds_prefix:
        ledger.note("choice-weakened", where, "all tools are offered", "the model's thinking is bound to its tools")
        return request.tools
    allowed = tuple(tool for tool in request.tools if isinstance(tool, Opaque) or tool.name in chosen)
    if not any(map(is_written, allowed)):
        return request.tools  # `fit_tool_choice` forbids them all
    ledger.note("choice-mapped", where, "only the allowed tools are offered")
    for tool in request.tools:
        if tool not in allowed:
            ledger.note("choice-mapped", source_path(tool), "the tool was left out, because it is not allowed")
    return allowed


def write_tool_choice(request: Request, facts: Family, has_tools: bool, ledger: Ledger) -> Object | None:
    """`tool_choice` with `disable_parallel_tool_use`; None without tools."""
    choice, parallel = request.choice, request.settings.parallel
    if choice is not None and has_tools:
        choice = fit_tool_choice(choice, request.tools, is_written, ledger)
    forced = choice is not None and (
        choice.mode in ("required", "one") or (choice.mode == "allowed" and choice.required)
    )
    if not has_tools:
        if forced:
            ledger.note("choice-weakened", source_path(choice), "the forced call was left out", "there are no tools")
        return None
    origin = choice.origin if choice is not None else None
    refused = forced and not facts.forcing
    wire = intact_wire(origin)
    if wire is not None and not refused and parallel == _read_parallel(wire.get("disable_parallel_tool_use")):
        return wire
    out: Object = {"type": "auto"}
    if refused:
        what, why = "the model may, but need not call a tool", "this model cannot be forced to"
        ledger.note("choice-weakened", source_path(choice), what, why)
    elif choice is not None:
        out = _write_choice_mode(choice)
    if parallel is not None and out["type"] != "none" and (choice is not None or not parallel):
        out["disable_parallel_tool_use"] = not parallel
    if choice is None and "disable_parallel_tool_use" not in out:
        return None
    return restore_original_keys(out, origin, NAME)


def _write_choice_mode(choice: ToolChoice) -> Object:
    if choice.mode == "one" and choice.tools:
        return {"type": "tool", "name": choice.tools[0].name}
    mode: str = choice.mode
    if mode == "allowed":
        mode = "none" if not choice.tools else "required" if choice.required else "auto"
    return {"type": _CHOICE_TYPES["auto" if mode == "one" else mode]}


# --- schemas ----------------------------------------------------------------------------------------------------------

_UNION_KEYS = frozenset({"anyOf", "oneOf", "allOf"})


def make_strict_schema(schema: Json, where: Path, owner: str, ledger: Ledger) -> tuple[Json, str]:
    """A schema that Anthropic accepts with `strict`, and "" or why there is none."""
    plain = repair_schema(schema)
    made = convert_to_strict(plain.schema, STRICT_WITH_OPTIONAL)
    problems = strict_problems(made.schema, STRICT_WITH_OPTIONAL)
    if problems:
        return schema, f"{problems[0].what} ({problems[0].pointer or 'the root'})"
    _note_schema_changes((*plain.changes, *made.changes), where, owner, ledger)
    return made.schema, ""


def _note_schema_changes(changes: tuple[SchemaChange, ...], where: Path, owner: str, ledger: Ledger) -> None:
    for change in changes:
        at = f" at {change.pointer}" if change.pointer else ""
        ledger.note("schema-rewritten", where, f"the schema of {owner}{at}: {change.what}")


# --- calls and results of tools that Anthropic runs (`server_tool_use` and `…_tool_result`) ---------------------------

TOOL_BY_RESULT_TYPE = {f"{tool}_tool_result": tool for tool in names.PROVIDER_TOOL_VERSIONS}

PROVIDER_CALL_PREFIX = "srvtoolu_"


def known_call_keys(block: Object, keys: frozenset[str]) -> frozenset[str]:
    """`keys`, and `caller` where it is `{"type": "direct"}`, because that is the default."""
    return keys | {"caller"} if "caller" in block and block["caller"] in (None, {"type": "direct"}) else keys


def read_provider_call(block: Object, path: Path, reading: ReadContext) -> Part:
    name = get_text(block, "name", path) or ""
    if name not in names.PROVIDER_TOOL_VERSIONS:
        return Opaque("server_tool_use", reading.whole_origin(block, path))
    arguments = get_object(block, "input", path)
    return ProviderCall(
        get_text(block, "id", path) or "",
        name,
        "" if arguments is None else encode_text(arguments),
        reading.read_origin(block, path, known_call_keys(block, names.TOOL_USE_KEYS)),
    )


def read_provider_result(block: Object, path: Path, reading: ReadContext) -> Part:
    tool, content = TOOL_BY_RESULT_TYPE[block["type"]], block.get("content")
    fields = _RESULT_READERS[tool](content, (path, "content"), reading)
    if fields is None and isinstance(content, dict) and isinstance(content.get("error_code"), str):
        fields = (), "", content["error_code"]
    if fields is None:
        return Opaque(block["type"], reading.whole_origin(block, path))
    origin = reading.read_origin(block, path, known_call_keys(block, names.PROVIDER_RESULT_KEYS))
    return ProviderResult(get_text(block, "tool_use_id", path) or "", tool, *fields, origin)


_ResultFields = tuple[tuple[Citation, ...], str, str]
"""Sources, text and error."""


def _read_search_sources(content: Json, path: Path, reading: ReadContext) -> _ResultFields | None:
    if not isinstance(content, list) or not all(isinstance(item, dict) for item in content):
        return None
    sources = tuple(
        Citation(
            get_text(item, "url", here) or "",
            get_text(item, "title", here) or "",
            origin=reading.read_origin(item, here, names.SOURCE_KEYS),
        )
        for item, here in items_with_paths(content, path)
    )
    return sources, "", ""


def _read_fetched_page(content: Json, path: Path, reading: ReadContext) -> _ResultFields | None:
    if not isinstance(content, dict) or content.get("type") != "web_fetch_result":
        return None
    document = get_object(content, "content", path) or {}
    source = document.get("source")
    text = None
    if content.get("retrieved_at") is not None:
        reading.note_unknown_field(path, "retrieved_at")
    if isinstance(source, dict) and source.get("type") == "text":
        text = source.get("data")
    else:
        reading.note_unknown_field(path, "content")
    title = document.get("title")
    page = Citation(get_text(content, "url", path) or "", title if isinstance(title, str) else "")
    return (page,), text if isinstance(text, str) else "", ""


def _read_execution_output(content: Json, path: Path, reading: ReadContext) -> _ResultFields | None:
    if not isinstance(content, dict) or content.get("type") != "code_execution_result":
        return None
    for key, value in (("content", get_list(content, "content", path)), ("return_code", content.get("return_code"))):
        if value:
            reading.note_unknown_field(path, key)
    return (), (get_text(content, "stdout", path) or "") + (get_text(content, "stderr", path) or ""), ""


_RESULT_READERS = {
    "web_search": _read_search_sources,
    "web_fetch": _read_fetched_page,
    "code_execution": _read_execution_output,
}


NO_PROTOCOL = ""
"""The protocol of blocks that Toolwire made for an Anthropic client from another provider's answer."""


def disown_unsealed_parts(parts: tuple[Part, ...]) -> tuple[Part, ...] | None:
    """The parts of an earlier answer that Toolwire translated: searches and citations without Anthropic's encrypted
    values, which Anthropic would refuse, no longer count as its own. None if there are none."""
    unsealed = {part.id for part in parts if type(part) is ProviderResult and _is_unsealed_search(part)}
    if not unsealed and not any(type(part) is Text and _has_unsealed_citation(part) for part in parts):
        return None
    return tuple([_disown_part(part, unsealed) for part in parts])


def _disown_part(part: Part, unsealed: set[str]) -> Part:
    if isinstance(part, (ProviderCall, ProviderResult)) and part.id in unsealed:
        return replace(part, origin=Origin(NO_PROTOCOL, source_path(part), None))
    if isinstance(part, Text) and _has_unsealed_citation(part):
        citations = [replace(one, origin=Origin(NO_PROTOCOL, source_path(one), None)) for one in part.citations]
        return replace_fields(part, citations=tuple(citations))
    return part


def _is_unsealed_search(part: ProviderResult) -> bool:
    if part.tool != "web_search" or part.error or part.origin is None:
        return False
    # A search that found nothing has nothing that could be encrypted, and Anthropic takes it back.
    return any(not page.get("encrypted_content") for page in part.origin.wire.get("content") or ())


def _has_unsealed_citation(part: Text) -> bool:
    wires = [citation.origin.wire for citation in part.citations if citation.origin is not None]
    return any(isinstance(wire, dict) and wire.get("encrypted_index") == "" for wire in wires)


def write_provider_call_id(id: str) -> str:
    """Anthropic's ids of these calls begin with `srvtoolu_`."""
    return carry_call_id(id, PROVIDER_CALL_PREFIX) or f"{PROVIDER_CALL_PREFIX}{hex_digest(id, 24)}"


def write_provider_call(part: ProviderCall, ledger: Ledger, in_response: bool) -> Object | None:
    if not _can_write(part, ledger, in_response):
        return None
    arguments = ledger.embed_object(part.arguments, source_path(part))
    out = {
        "type": "server_tool_use",
        "id": write_provider_call_id(part.id),
        "name": part.tool,
        "input": {"input": part.arguments} if arguments is None else arguments,
    }
    return restore_original_keys(out, part.origin, NAME)


def write_provider_result(part: ProviderResult, ledger: Ledger, in_response: bool) -> Object | None:
    if not _can_write(part, ledger, in_response):
        is_made_here = part.origin is not None and part.origin.protocol == NO_PROTOCOL
        if not in_response and not is_made_here and is_returned_call(part, PROVIDER_CALL_PREFIX):
            note_returned_result(part, ledger)
            return None
        text = None if in_response else provider_result_as_text(part, ledger)
        return None if text is None else {"type": "text", "text": text.text}
    kind = f"{part.tool}_tool_result"
    content: Json
    if part.error and part.tool == "code_execution" and part.text:
        what = f"the outcome `{part.error}` of the code became a return code"
        ledger.note("no-counterpart", source_path(part), what)
        content = {"type": "code_execution_result", "stdout": "", "stderr": part.text, "return_code": 1, "content": []}
    elif part.error:
        content = {"type": f"{kind}_error", "error_code": part.error}
        if part.text:
            ledger.note("part-dropped", source_path(part), f"the text of a failed {part.tool} was left out")
    elif part.tool == "web_search":
        content = [_write_source(source) for source in part.sources]
        if part.text:
            ledger.note("part-dropped", source_path(part), "the text of a search result was left out")
    elif part.tool == "web_fetch":
        page = part.sources[0] if part.sources else Citation()
        source = {"type": "text", "media_type": "text/plain", "data": part.text}
        document = {"type": "document", "source": source, "title": page.title or None, "citations": {"enabled": False}}
        content = {"type": "web_fetch_result", "url": page.url, "content": document, "retrieved_at": None}
    else:
        content = {"type": "code_execution_result", "stdout": part.text, "stderr": "", "return_code": 0, "content": []}
    out = {"type": kind, "tool_use_id": write_provider_call_id(part.id), "content": content}
    return restore_original_keys(out, part.origin, NAME)


def _can_write(part: ProviderCall | ProviderResult, ledger: Ledger, in_response: bool) -> bool:
    """In a history Anthropic accepts only its own results, because they are encrypted."""
    if part.tool in names.PROVIDER_TOOL_VERSIONS and (in_response or not is_foreign(part.origin)):
        return True
    if in_response or isinstance(part, ProviderCall):
        ledger.note_provider_part(part)
    return False


def _write_source(source: Citation) -> Object:
    if (wire := intact_wire(source.origin)) is not None:
        return wire
    page = {"type": "web_search_result", "url": source.url, "title": source.title}
    sealed: Object = {} if is_own(source.origin) else {"encrypted_content": "", "page_age": None}
    return restore_original_keys(page | sealed, source.origin, NAME)


# --- MCP servers ---


def drop_unused_servers(out: Object, own: Origin) -> Object:
    """Without the MCP servers whose `mcp_toolset` was removed: Anthropic's first version of MCP offers all tools of a
    server that has none."""
    servers = out.get("mcp_servers")
    before = _toolset_servers(own.wire)
    if not before or not isinstance(servers, list):
        return out
    removed = before - _toolset_servers(out)
    return {**out, "mcp_servers": [one for one in servers if _server_name(one, "name") not in removed]}


def _toolset_servers(body: Json) -> set[str]:
    tools = body.get("tools") if isinstance(body, dict) else None
    names = {_server_name(tool, "mcp_server_name") for tool in tools} if isinstance(tools, list) else set()
    return names - {""}


def _server_name(node: Json, key: str) -> str:
    name = node.get(key) if isinstance(node, dict) else None
    return name if isinstance(name, str) else ""
