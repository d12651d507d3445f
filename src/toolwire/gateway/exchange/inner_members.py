"""Keys inside of a body that some servers read differently: `Name` beside `name`, `function_call` beside
`functionCall`. Where rules or limits are applied to a body that goes on in the same protocol, such a key is refused:
the provider could take the one that was not judged.

The outermost keys are checked in every body (`check_body_keys` in `request_body.py`)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import islice

from toolwire.core.ir import Failure
from toolwire.core.json_values import Json, Malformed, Object, Path, json_pointer
from toolwire.gateway.exchange.client_body import ClientBody
from toolwire.gateway.exchange.request_body import letters_of
from toolwire.gateway.settings.config import ClientKey
from toolwire.gateway.settings.router import Router, is_allowed, is_usable_name, keep_allowed

_SPELLINGS: tuple[tuple[str, ...], ...] = tuple(
    tuple(row.split())
    for row in """
    type
    name
    function
    functions
    definition
    custom
    tools
    tool_calls
    tool_choice
    allowed_tools
    mode
    server_url
    server_label
    connector_id
    functionDeclarations function_declarations
    functionCallingConfig function_calling_config
    allowedFunctionNames allowed_function_names
    functionCall function_call
    functionResponse function_response
    googleSearch google_search
    googleSearchRetrieval google_search_retrieval
    codeExecution code_execution
    urlContext url_context
    computerUse computer_use
    fileSearch file_search
    mcpServers mcp_servers
    file_id
    file_ids
    vector_store_ids
    container
    container_id
    skill_id
    fileData file_data
    fileUri file_uri
    max_tokens
    max_completion_tokens
    max_output_tokens maxOutputTokens
    """.split("\n")
    if row.strip()
)
"""Keys by which rules and limits judge, with all spellings that their protocols know."""
_KNOWN: Mapping[str, tuple[str, ...]] = {letters_of(row[0]): row for row in _SPELLINGS}
_OTHER_SPELLINGS: Mapping[str, str] = {other: row[0] for row in _SPELLINGS for other in row[1:]}
_USUAL_KEYS = frozenset(name for row in _SPELLINGS for name in row) | frozenset(
    """role content text id description parameters input_schema arguments args input output parts tool_use_id
    tool_call_id call_id cache_control status strict summary annotations signature thinking source media_type data
    image_url url detail index encrypted_content is_error title""".split()
)
"""Keys that need no second look."""
_OPAQUE_KEYS = frozenset(
    """arguments args parameters parametersJsonSchema parameters_json_schema input_schema inputSchema schema
    responseSchema response_schema responseJsonSchema response_json_schema properties metadata client_metadata parsed
    parsed_arguments""".split()
)
"""What users' own tools take and give, schemas and notes: their keys are free."""
_OPAQUE_OBJECTS = frozenset({"input", "response", "output"})
"""The same where the value is an object: the input of a call (Anthropic), a function's response (Gemini)."""


def check_inner_keys(body: Json, has_rules: bool = True, removes_tools: bool = False) -> None:
    """Raises Malformed if the body has a key that could be read as a judged one, or, where there are rules for tools,
    tools that they do not judge. Rules that remove tools allow none that the provider keeps."""
    if removes_tools and isinstance(body, dict):
        _check_stored_tools(body)
    pending: list[tuple[Path, Json]] = [(None, body)]
    while pending:
        path, node = pending.pop()
        if isinstance(node, list):
            pending += [((path, at), value) for at, value in enumerate(node) if isinstance(value, (dict, list))]
        elif isinstance(node, dict):
            odd = _find_odd_key_in(node)
            if odd is not None:
                what = "some servers take this key for another one, which rules or limits of this gateway judge"
                raise Malformed((path, odd), f"{what}; leave it out")
            if has_rules:
                _check_places_of_tools(path, node)
            for key, value in node.items():
                is_open = key not in _OPAQUE_OBJECTS if isinstance(value, dict) else isinstance(value, list)
                if is_open and key not in _OPAQUE_KEYS:
                    pending.append(((path, key), value))


_TOOL_LISTS = frozenset({"tools", "functions", "functionDeclarations", "function_declarations"})
_DECLARATIONS = _TOOL_LISTS | {"definition"}
"""Keys with objects that declare tools. `definition` is that of a tool which Anthropic adds within a conversation
(`tool_addition`, beta `inline-tools-2026-09-15`; platform.claude.com, preserved-thinking, November 2026); elsewhere it
is a text."""
_TOOL_LETTERS = frozenset(
    {*map(letters_of, _TOOL_LISTS), "toolchoice", "functioncall", "toolconfig", "mcpservers", "websearchoptions"}
)
"""The keys that declare or choose tools, as the most lenient server may read them."""
_TOOL_PLACES = frozenset({"tools", "functions", "tool_choice", "toolConfig", "tool_config"})
"""Outermost keys under which all tools are judged."""
_ITEMS_WITH_TOOLS = frozenset("additional_tools tool_search_output mcp_list_tools mcp_tool_listing".split())
"""Items of a conversation that are judged (OpenAI), or that only repeat what a server has listed."""


def _check_places_of_tools(path: Path, node: Object) -> None:
    """Raises Malformed where a list of tools is at a place at which no rule looks for it."""
    if path is None:
        servers = node.get("mcp_servers")
        for at, server in enumerate(servers) if isinstance(servers, list) else ():
            if not _has_toolset(node, server.get("name") if isinstance(server, dict) else None):
                what = "rules for tools can only be applied to MCP servers with an `mcp_toolset` in `tools`"
                raise Malformed(((None, "mcp_servers"), at), what)
        return
    kind = node.get("type")
    found = next((key for key in node if key in _DECLARATIONS and isinstance(node[key], (list, dict))), None)
    if found is None or (isinstance(kind, str) and kind in _ITEMS_WITH_TOOLS) or _outermost_key(path) in _TOOL_PLACES:
        return
    raise Malformed((path, found), "tools are declared at a place that the rules of this gateway do not judge")


_STORED_TOOLS: Mapping[str, type] = {"prompt": dict, "cachedContent": str, "cached_content": str}
"""Outermost keys, with the types of their values, that name something at a provider which has tools of its own: a
prompt at OpenAI, a cache at Google."""


def _check_stored_tools(body: Object) -> None:
    servers = body.get("mcp_servers")
    for at, server in enumerate(servers) if isinstance(servers, list) else ():
        if isinstance(server, dict) and server.get("tool_configuration"):  # of Anthropic's first version
            what = "rules for tools are applied to the `mcp_toolset` of a server; leave this out"
            raise Malformed((((None, "mcp_servers"), at), "tool_configuration"), what)
    for key, kind in _STORED_TOOLS.items():
        if body.get(key) and isinstance(body[key], kind):
            what = "this gateway has rules that remove tools, and cannot see which tools the provider has stored here"
            raise Malformed((None, key), f"{what}; send them with the request")


def find_unjudged_tools(body: Json) -> Path:
    """Where a body that is forwarded without being read declares tools, in any spelling; None if nowhere."""
    pending: list[tuple[Path, Json]] = [(None, body)]
    while pending:
        path, node = pending.pop()
        if isinstance(node, list):
            pending += [((path, at), value) for at, value in enumerate(node) if isinstance(value, (dict, list))]
        elif isinstance(node, dict):
            for key, value in node.items():
                if value and letters_of(key) in _TOOL_LETTERS:
                    return path, key
                if isinstance(value, (dict, list)) and key not in _OPAQUE_KEYS:
                    pending.append(((path, key), value))
    return None


def _has_toolset(body: Object, server: Json) -> bool:
    tools = body.get("tools")
    return any(
        isinstance(tool, dict) and tool.get("type") == "mcp_toolset" and tool.get("mcp_server_name") == server
        for tool in (tools if isinstance(tools, list) else ())
    )


def _outermost_key(path: Path) -> str | int | None:
    last: str | int | None = None
    while path is not None:
        path, last = path
    return last


def _find_odd_key_in(node: Object) -> str | None:
    if not _USUAL_KEYS.issuperset(node):
        for key in node:
            if key not in _USUAL_KEYS and letters_of(key) in _KNOWN:
                return key
    if not _OTHER_SPELLINGS.keys().isdisjoint(node):
        for other, first in _OTHER_SPELLINGS.items():
            if other in node and first in node:
                return other
    return None


# --- models inside of a body ---

_may_name_model = re.compile(rb'(?i)model[a-z0-9_-]*"[ \t\r\n]*:').finditer
_TURNS = frozenset({"messages", "input", "contents"})
"""Outermost keys of conversations. Only the tools in them can choose a model."""


def may_name_inner_models(body: bytes, has_outer_model: bool) -> bool:
    """Can there be another key for a model than the outermost one? If not, the body need not be decoded."""
    further = next(islice(_may_name_model(body), int(has_outer_model), None), None)
    return further is not None or body.find(b"\\u00") >= 0


def _is_vendor_tool(node: Object) -> bool:
    """Is it a tool such as `openrouter:subagent`, whose `parameters` are settings, not a schema?"""
    kind = node.get("type")
    return isinstance(kind, str) and ":" in kind


def refuse_inner_models(
    router: Router, body: ClientBody, model: str, key: ClientKey, has_outer_model: bool
) -> Failure | None:
    """Why a key for certain models may not send a body that names more of them than its own; None if it may."""
    if not may_name_inner_models(body.data, has_outer_model):
        return None
    found = keep_allowed(router.expand_targets(model) if is_usable_name(model) else (), key)
    prefix = f"{found[0].provider.name}/" if found else ""
    try:
        whole = body.judge()
    except Malformed as bad:
        return Failure("invalid", str(bad), 400, param=bad.path)
    for path, name in find_inner_models(whole):
        short = name.removeprefix("models/")
        if name != model and not is_allowed(key, short) and not (prefix and is_allowed(key, prefix + short)):
            where = json_pointer(path)
            what = f"the key `{key.name}` may not use the model `{name[:80]}`, which the body names at {where[:200]}"
            return Failure("permission", what, 403, "", where[:200])
    return None


def find_inner_models(body: Json) -> Iterator[tuple[Path, str]]:
    """The models that a body names besides the outermost one, and where: OpenAI's image generation and Anthropic's
    advisor have their own, servers such as LiteLLM take them in other objects."""
    pending: list[tuple[Path, Json, bool]] = [(None, body, False)]
    while pending:
        path, node, is_turn = pending.pop()
        if isinstance(node, list):
            pending += [((path, at), value, is_turn) for at, value in enumerate(node)]
        elif isinstance(node, dict):
            for key, value in node.items():
                at = (path, key)
                is_named = not is_turn and not (path is None and key == "model") and "model" in letters_of(key)
                for name in value if is_named and isinstance(value, list) else (value,) if is_named else ():
                    if isinstance(name, str):
                        yield at, name
                is_open = key not in _OPAQUE_OBJECTS if isinstance(value, dict) else isinstance(value, list)
                if is_open and (key not in _OPAQUE_KEYS or _is_vendor_tool(node)):
                    inside = key in _TURNS if path is None else is_turn and key not in _TOOL_LISTS
                    pending.append((at, value, inside))
