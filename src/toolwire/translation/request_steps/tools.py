"""Tool names, kinds and namespaces as the provider accepts them, and the map that restores them in the answer.

`rename_tools` shortens names (OpenAI allows 64 characters), flattens namespaces into the name, and wraps custom tools
as functions of one string. `ToolNameMap.client_tool` gives the client's tool for a name in the answer.
`substitute_provider_tools` replaces tools that this provider does not run by functions, or leaves them out.
"""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Callable, Container, Mapping, Sequence

from msgspec import Struct

from toolwire.call_repair.names import NameIndex
from toolwire.core import ids
from toolwire.core.codec import Codec, Constraints
from toolwire.core.converted_schema import ConvertedSchema
from toolwire.core.ir import (
    EMPTY_MAPPING,
    AnyTool,
    Call,
    Opaque,
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
    with_fields,
    with_parts,
)
from toolwire.core.json_values import Json, Malformed, Object, decode, decode_object_or_none, encode_text
from toolwire.core.known_tools import work_out
from toolwire.core.losses import Ledger
from toolwire.core.provider_tools import provider_result_text
from toolwire.core.tool_choice import fit_tool_choice
from toolwire.schema.repair import convert_arguments
from toolwire.translation.options import mark_added
from toolwire.translation.request_steps.turn_content import RequestFeatures

FREEFORM = "custom"
"""The kind of tools with raw text as input (OpenAI's custom tools)."""

FREEFORM_INPUT_SCHEMA: Object = {
    "type": "object",
    "properties": {"input": {"type": "string", "description": "The whole input of the tool, as raw text."}},
    "required": ["input"],
    "additionalProperties": False,
}


MIN_LIKENESS = 0.9
"""How alike a name must be to one with a digest. No tool of a client is found by likeness: it might be another one."""


class ToolNameMap(Struct, frozen=True):
    """The client's tool for each name that the provider was given."""

    names: Mapping[str, ToolName] = EMPTY_MAPPING
    """Tools whose name, kind or namespace was changed, and those that are not functions."""
    has_changes: bool = False
    """Was any tool changed, so that calls in the answer must be changed back?"""
    declared_names: frozenset[str] = frozenset()
    """All names that the provider was given."""
    schema_conversions: Mapping[str, ConvertedSchema] = EMPTY_MAPPING
    """Tools whose parameters were renamed or wrapped: how to restore their arguments."""

    def client_tool(self, name: str) -> ToolName | None:
        """The client's tool for a name that was changed. The model may have used the client's name, one that can only
        mean this tool, or have copied a long name that was made for the provider not quite right."""
        names = self.names
        if not names:
            return None
        found = names.get(name)
        if found is not None or name in self.declared_names:
            return found
        given = {one: one for one in (*names, *self.declared_names)}
        meant = NameIndex({**self.other_names, **given}).find_meant_name(name)
        if meant is not None:
            return names.get(meant)
        made = [given for given, tool in names.items() if tool.name != given and ids.ends_with_digest(given)]
        close = difflib.get_close_matches(name, made, n=2, cutoff=MIN_LIKENESS)
        return names[close[0]] if len(close) == 1 else None

    @property
    def other_names(self) -> Mapping[str, str]:
        """The provider's name of each renamed tool, by the client's name; a name that several have is left out."""
        named = [(tool.name, given) for given, tool in self.names.items() if tool.name != given]
        counts = Counter(name for name, _ in named)
        return {name: given for name, given in named if counts[name] == 1}


UNCHANGED_NAMES = ToolNameMap()


class _Namer(Struct, eq=False):
    """Gives every tool a legal and unique name."""

    constraints: Constraints
    ledger: Ledger
    model: str
    converted_schemas: Mapping[int, ConvertedSchema]
    """Schemas that were converted before, by the `id` of the original."""
    schema_conversions: dict[str, ConvertedSchema] = {}
    call_kinds: dict[str, str] = {}
    """The new kind of each call, by its id: its result gets the same kind."""
    given_names: dict[tuple[str, str], str] = {}
    """New names, by namespace and name."""
    taken_names: dict[str, tuple[str, str]] = {}
    """Namespace and name, by new name."""
    described_namespaces: set[str] = set()
    """Namespaces whose description is already in the description of a tool."""

    def __call__(self, name: str, namespace: str = "") -> str:
        key = (namespace, name)
        known = self.given_names.get(key)
        if known is not None:
            return known
        rules = self.constraints
        new = name if not namespace or rules.has_namespaces else ids.flatten_tool_name(namespace, name)
        taken = self.taken_names.get(new)
        is_taken = taken is not None and taken != key and not (rules.has_namespaces and taken[0] != namespace)
        if is_taken or not ids.is_legal_id(new, rules.tool_name_pattern, rules.max_tool_name_length):
            salt = namespace if is_taken else ""
            new = ids.make_legal_id(new, rules.tool_name_pattern, rules.max_tool_name_length, salt)
        self.given_names[key] = new
        self.taken_names.setdefault(new, key)
        return new


def rename_tools(
    request: Request, constraints: Constraints, ledger: Ledger, features: RequestFeatures, keep_all: bool = False
) -> tuple[Request, ToolNameMap]:
    """The request with tool names, kinds and namespaces that the target accepts, and the map that restores them. Tools
    beyond the target's limit are left out, unless `keep_all` is set."""
    converted: dict[int, ConvertedSchema] = {}
    if len(request.tools) > MIN_TOOLS_LIMIT and not keep_all:
        request = _drop_surplus_tools(drop_duplicate_tools(request, ledger), constraints, ledger, features.names)
    if _can_stay_unchanged(request, constraints, ledger, features, converted):
        return request, UNCHANGED_NAMES
    namer = _Namer(constraints, ledger, request.model, converted)
    request = drop_duplicate_tools(request, ledger)
    tools = tuple([_rename_tool(tool, namer) for tool in request.tools])
    name_map = _build_name_map(request.tools, tools, namer.schema_conversions)
    choice, turns = request.choice, request.turns
    if choice is not None and choice.tools:
        choice = _rename_choice(choice, namer)
    if not _has_unchanged_history(features, namer):
        turns = tuple([with_parts(turn, [_rename_part(part, namer) for part in turn.parts]) for turn in turns])
    return with_fields(request, tools=tools, choice=choice, turns=turns), name_map


MIN_TOOLS_LIMIT = 100
"""No provider is known to accept fewer tools than this, so shorter lists need no look at its limit."""


MIN_SERVER_TOOLS = 4
"""So many tools with the same first word (`github_create_issue`) are taken for those of one MCP server."""
_FIRST_WORD = re.compile(r"[^\W_]+(?=[_.\-])")


def find_server_tools(tools: Sequence[AnyTool]) -> set[int]:
    """The numbers of the tools that seem to come from MCP servers. Seen in November 2026: Claude Code, Codex and Qwen
    Code begin their names or namespaces with `mcp`, opencode with the server's name and `_`."""
    words = [_server_word(tool) for tool in tools]
    counts = Counter(words)
    return {n for n, word in enumerate(words) if word == "mcp" or (word and counts[word] >= MIN_SERVER_TOOLS)}


def _server_word(tool: AnyTool) -> str:
    if not isinstance(tool, Tool):
        return ""
    if tool.namespace:
        return "mcp" if tool.namespace.startswith("mcp") else ""
    found = _FIRST_WORD.match(tool.name)
    return found[0] if found is not None else ""


def _drop_surplus_tools(
    request: Request, constraints: Constraints, ledger: Ledger, used_names: Container[str]
) -> Request:
    """The request with as many tools as the provider accepts for this model. Tools that the choice names or the history
    calls stay, then those that are not deferred, the agent's own before those of MCP servers. In Responses' own lists a
    namespace is one entry of many tools."""
    limit = constraints.max_tools(request.model)
    if limit is None or len(request.tools) <= limit or (constraints.has_namespaces and ledger.is_same_protocol):
        return request
    chosen = {name.name for name in request.choice.tools} if request.choice is not None else set()
    server_tools = find_server_tools(request.tools)

    def rank(number: int) -> tuple[bool, bool, bool, bool, int]:
        tool = request.tools[number]
        name, is_deferred = (tool.name, bool(tool.defer)) if isinstance(tool, Tool) else ("", False)
        return name not in chosen, name not in used_names, is_deferred, number in server_tools, number

    kept = set(sorted(range(len(request.tools)), key=rank)[:limit])
    why = f"at most {limit} of {len(request.tools)} tools are accepted; choose with a policy rule or fewer MCP servers"
    for number, tool in enumerate(request.tools):
        if number not in kept:
            name = tool.kind if isinstance(tool, Opaque) else tool.name
            ledger.note("tool-dropped", source_path(tool), f"the tool `{name}` was left out", why)
    return replace_fields(request, tools=tuple(tool for number, tool in enumerate(request.tools) if number in kept))


def _can_stay_unchanged(
    request: Request,
    constraints: Constraints,
    ledger: Ledger,
    features: RequestFeatures,
    converted_schemas: dict[int, ConvertedSchema],
) -> bool:
    """Are there only functions with names and schemas that the target accepts? So it is in most requests. Schemas that
    this converts are added to `converted_schemas`."""
    choice = request.choice
    if features.has_namespaces or features.kinds - {"function"} or "function" not in constraints.tool_kinds:
        return False
    if choice is not None and choice.tools:
        return False
    names, conversions = work_out(_unchanged_names, request.tools, constraints, ledger.target, request.model)
    converted_schemas |= conversions
    if names is None:
        return False
    fits, limit = constraints.tool_name_pattern.fullmatch, constraints.max_tool_name_length
    undeclared = features.names - names if features.names else ()
    return not undeclared or all(len(name) <= limit and fits(name) for name in undeclared)


def _unchanged_names(
    tools: tuple[AnyTool, ...],
    constraints: Constraints,
    target: str,
    model: str,
) -> tuple[frozenset[str] | None, Mapping[int, ConvertedSchema]]:
    """The names of the functions, None where one of them, or its schema, must be changed; and the schemas that were
    converted to find out, by the `id` of the original."""
    fits, limit = constraints.tool_name_pattern.fullmatch, constraints.max_tool_name_length
    convert = constraints.convert_tool_schema
    names: set[str] = set()
    converted_schemas: dict[int, ConvertedSchema] = {}
    for tool in tools:
        if type(tool) is not Tool:
            continue
        name, schema, origin = tool.name, tool.parameters, tool.origin
        if tool.kind != "function" or tool.namespace or name in names or len(name) > limit:
            return None, converted_schemas
        if not (name.isidentifier() and name.isascii()) and not fits(name):
            return None, converted_schemas
        names.add(name)
        if origin is not None and origin.protocol == target:
            if constraints.refuses_tool(tool, model):
                return None, converted_schemas
            continue
        if tool.strict and constraints.convert_strict_schema is not None:
            return None, converted_schemas
        if convert is not None and schema is not None:
            converted = converted_schemas[id(schema)] = convert(schema, model)
            if converted.schema is not schema:
                return None, converted_schemas
    return frozenset(names), converted_schemas


def drop_duplicate_tools(request: Request, ledger: Ledger) -> Request:
    """The request without tools that repeat an earlier one; every target refuses the same name twice."""
    seen: dict[tuple[str, str], Tool] = {}
    duplicates: dict[int, Tool] = {}
    for number, tool in enumerate(request.tools):
        if isinstance(tool, Tool):
            first = seen.setdefault((tool.namespace, tool.name), tool)
            if first is not tool and (first.parameters, first.kind) == (tool.parameters, tool.kind):
                duplicates[number] = tool
    if not duplicates:
        return request
    for tool in duplicates.values():
        ledger.note("tools-merged", source_path(tool), f"`{tool.name}` was declared twice with the same parameters")
    kept = [tool for number, tool in enumerate(request.tools) if number not in duplicates]
    return replace_fields(request, tools=tuple(kept))


def _has_unchanged_history(features: RequestFeatures, namer: _Namer) -> bool:
    """Do all calls and results keep their names and kinds, as in most histories?"""
    mixed = len(features.kinds) > 1 and not namer.ledger.is_same_protocol
    if mixed or features.has_namespaces or namer.schema_conversions:
        return False
    if not features.kinds <= namer.constraints.tool_kinds:
        return False
    given = namer.given_names
    return all(given.get(("", name)) == name or namer(name) == name for name in features.names)


def _build_name_map(
    client_tools: tuple[AnyTool, ...],
    provider_tools: tuple[AnyTool, ...],
    schema_conversions: Mapping[str, ConvertedSchema],
) -> ToolNameMap:
    pairs = [
        (old, new)
        for old, new in zip(client_tools, provider_tools, strict=True)
        if isinstance(old, Tool) and isinstance(new, Tool)
    ]
    names = {
        new.name: ToolName(old.name, old.kind, old.namespace)
        for old, new in pairs
        if old.kind != "function" or (new.name, new.namespace) != (old.name, old.namespace)
    }
    has_changes = any((new.name, new.kind, new.namespace) != (old.name, old.kind, old.namespace) for old, new in pairs)
    return ToolNameMap(names, has_changes, frozenset(new.name for _, new in pairs), schema_conversions)


def _is_unknown_kind(namer: _Namer, node: Tool | Call | Result) -> bool:
    is_own = node.origin is not None and node.origin.protocol == namer.ledger.target
    return node.kind not in namer.constraints.tool_kinds and not is_own


def _rename_tool(tool: AnyTool, namer: _Namer) -> AnyTool:
    if not isinstance(tool, Tool):
        return tool
    changes = _name_changes(tool.name, tool.namespace, namer)
    if changes:
        code, old = "name-rewritten", f"`{tool.name}`"
        if "namespace" in changes:
            code, old = "namespace-flattened", f"`{tool.namespace}` / `{tool.name}`"
        namer.ledger.note(code, source_path(tool), f"{old} was renamed to `{changes.get('name', tool.name)}`")
    if _is_unknown_kind(namer, tool):
        namer.ledger.note("tool-wrapped", source_path(tool), f"the {tool.kind} tool `{tool.name}` became a function")
        changes["kind"] = "function"
        if tool.kind == FREEFORM:
            changes |= {"parameters": FREEFORM_INPUT_SCHEMA, "description": freeform_description(tool), "grammar": None}
    changes |= _convert_schema(tool, changes, namer)
    if "namespace" in changes and tool.namespace_description and tool.namespace not in namer.described_namespaces:
        # Only the first tool of a namespace gets its description.
        namer.described_namespaces.add(tool.namespace)
        description = changes.get("description", tool.description)
        added = f"`{tool.namespace}`: {tool.namespace_description}"
        changes["description"] = f"{description}\n\n{added}" if description else added
    return replace_fields(tool, **changes) if changes else tool


def _convert_schema(tool: Tool, changes: dict[str, object], namer: _Namer) -> dict[str, object]:
    convert = namer.constraints.convert_tool_schema
    is_own = tool.origin is not None and tool.origin.protocol == namer.ledger.target
    if convert is None or "parameters" in changes or (tool.parameters is None and not is_own):
        return {}
    if is_own and not namer.constraints.refuses_tool(tool, namer.model):
        return {}
    made: dict[str, object] = {}
    if tool.strict and namer.constraints.convert_strict_schema is not None:
        converted, problem = namer.constraints.convert_strict_schema(tool.parameters)
        if problem:
            what = f"`strict` of `{tool.name}` was left out"
            namer.ledger.note("no-counterpart", source_path(tool), what, problem)
            made["strict"] = None
    else:
        converted = namer.converted_schemas.get(id(tool.parameters)) or convert(tool.parameters, namer.model)
    if converted.schema is tool.parameters and not is_own:
        return made
    if converted.changes_arguments:
        namer.schema_conversions[str(changes.get("name", tool.name))] = converted
    for change in converted.changes:
        what = f"the schema of `{tool.name}` at {change.pointer or 'its root'}: {change.what}"
        namer.ledger.note("schema-rewritten", source_path(tool), what)
    if is_own and not converted.changes:
        what = f"the schema of `{tool.name}` was written as standard JSON Schema"
        namer.ledger.note("schema-rewritten", source_path(tool), what)
    return {**made, "parameters": converted.schema}


def _name_changes(name: str, namespace: str, namer: _Namer) -> dict[str, object]:
    changes: dict[str, object] = {}
    if (new := namer(name, namespace)) != name:
        changes["name"] = new
    if namespace and not namer.constraints.has_namespaces:
        changes["namespace"] = ""
    return changes


def freeform_description(tool: Tool) -> str:
    """The description of a custom tool that is wrapped as a function, with its grammar."""
    lines = [tool.description or f"Takes the raw input of `{tool.name}`."]
    lines.append("Give the whole input as the string `input`: raw text, without JSON, quotes or code fences around it.")
    if tool.grammar is not None:
        lines.append(f"The input must match this {tool.grammar.syntax} grammar:\n{tool.grammar.definition}")
    return "\n\n".join(lines)


def _rename_choice(choice: ToolChoice, namer: _Namer) -> ToolChoice:
    tools = tuple(_rename_choice_tool(tool, namer) for tool in choice.tools)
    if tools == choice.tools:
        return choice
    what = f"the tool choice names {', '.join(tool.name for tool in tools)}"
    namer.ledger.note("name-rewritten", source_path(choice), what)
    return replace_fields(choice, tools=tools)


def _rename_choice_tool(tool: ToolName, namer: _Namer) -> ToolName:
    if (tool.namespace, tool.name) not in namer.given_names and not tool.namespace:
        return tool
    kind = tool.kind if tool.kind in namer.constraints.tool_kinds else "function"
    namespace = tool.namespace if namer.constraints.has_namespaces else ""
    return ToolName(namer(tool.name, tool.namespace), kind, namespace)


def _rename_part(part: Part, namer: _Namer) -> Part:
    if isinstance(part, Call):
        return _rename_call(part, namer)
    return _rename_result(part, namer) if isinstance(part, Result) else part


def _rename_call(call: Call, namer: _Namer) -> Call:
    changes = _name_changes(call.name, call.namespace, namer)
    if _is_unknown_kind(namer, call):
        changes["kind"] = "function"
        if call.kind == FREEFORM:
            changes["arguments"] = encode_text({"input": call.arguments})
    namer.call_kinds[call.id] = str(changes.get("kind", call.kind))
    conversion = namer.schema_conversions.get(str(changes.get("name", call.name)))
    if conversion is not None and (conversion.renames or conversion.wrapper_property):
        changes["arguments"] = convert_argument_text(call.arguments, conversion, convert_arguments)
    if not changes:
        return call
    codes = {"namespace": "namespace-flattened", "name": "name-rewritten"}
    code = next((code for field, code in codes.items() if field in changes), "tool-wrapped")
    what = f"a call of `{call.name}` was sent as `{changes.get('name', call.name)}`"
    namer.ledger.note(code, source_path(call), what)
    return replace_fields(call, **changes)


def _rename_result(result: Result, namer: _Namer) -> Result:
    changes = _name_changes(result.name, result.namespace, namer) if result.name else {}
    if _is_unknown_kind(namer, result):
        changes["kind"] = "function"
    kind = namer.call_kinds.get(result.id, "")
    if kind and kind != changes.get("kind", result.kind) and not namer.ledger.is_same_protocol:
        changes["kind"] = kind
    if "name" in changes:
        what = f"a result of `{result.name}` was sent as `{changes['name']}`"
        namer.ledger.note("name-rewritten", source_path(result), what)
    return replace_fields(result, **changes) if changes else result


# --- arguments of wrapped and converted tools -------------------------------------------------------------------------


def convert_argument_text(
    arguments: str, conversion: ConvertedSchema, convert: Callable[[Json, ConvertedSchema], Json]
) -> str:
    """Argument text with its parameters renamed; text that is not JSON stays as it is."""
    try:
        value = decode(arguments) if arguments.strip() else {}
    except Malformed:
        return arguments
    return encode_text(convert(value, conversion))


def unwrap_freeform_input(arguments: str) -> str:
    """The raw input of a custom tool from the arguments of the function, also where the model used another key."""
    decoded = decode_object_or_none(arguments)
    if decoded is None:
        return _strip_code_fence(arguments)
    value = decoded.get("input")
    if not isinstance(value, str):
        texts = [item for item in decoded.values() if isinstance(item, str)]
        lists = [item[-1] for item in decoded.values() if isinstance(item, list) and item and isinstance(item[-1], str)]
        candidates = texts or lists
        value = candidates[0] if len(candidates) == 1 else None
    if value is None:
        return "" if not decoded else arguments
    return _strip_code_fence(value)


def _strip_code_fence(text: str) -> str:
    """The text without a code fence or heredoc around all of it."""
    lines = text.strip().splitlines()
    if len(lines) < 3:
        return text
    last = lines[-1].strip()
    heredoc = "<<" in lines[0] and last.strip("'\"") == lines[0].split("<<", 1)[1].strip().strip("'\"")
    is_fenced = heredoc or (lines[0].startswith("```") and last == "```")
    return "\n".join(lines[1:-1]) if is_fenced else text


# --- provider tools that this provider does not run ---


_OPTION_FIELDS = ("max_uses", "allowed_domains", "blocked_domains", "location", "context_size")
NO_PROVIDER_TOOLS = "this server does not run tools"
EMPTY_RESULT = "nothing was found"


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
        return request, EMPTY_MAPPING
    choice = request.choice
    if choice is not None and any(name.kind in given for name in choice.tools):
        names = [ToolName(given[name.kind].name) if name.kind in given else name for name in choice.tools]
        choice = replace_fields(choice, tools=tuple(names))
    turns = tuple(new for turn in request.turns for new in _replace_in_turn(turn, given))
    request = replace_fields(request, tools=_replace_tools(request.tools, given, ledger), turns=turns, choice=choice)
    return request, {tool.name: name for name, tool in given.items()}


def _drop_unrunnable_tools(request: Request, substitutes: Mapping[str, Tool], ledger: Ledger) -> Request:
    """The request without tools that neither the provider nor the gateway runs, and without a choice of them: not only
    writers read the choice, but also the prompt and the repairs of answers."""
    kept: list[AnyTool] = []
    for tool in request.tools:
        if isinstance(tool, ProviderTool) and tool.tool not in substitutes:
            what = f"the provider's tool `{tool.tool}` was left out"
            ledger.note("tool-dropped", source_path(tool), what, NO_PROVIDER_TOOLS)
        else:
            kept.append(tool)
    if len(kept) == len(request.tools):
        return request
    choice = request.choice
    if choice is not None:
        choice = fit_tool_choice(choice, kept, lambda _: True, ledger)
    return replace_fields(request, tools=tuple(kept), choice=choice)


def _replace_tools(tools: tuple[AnyTool, ...], substitutes: Mapping[str, Tool], ledger: Ledger) -> tuple[AnyTool, ...]:
    out: list[AnyTool] = []
    declared = {tool.name for tool in tools if isinstance(tool, Tool) and not tool.namespace}
    for tool in tools:
        if not isinstance(tool, ProviderTool) or tool.tool not in substitutes:
            out.append(tool)
            continue
        function = substitutes[tool.tool]
        what = f"`{function.name}` replaces the provider's tool `{tool.tool}`"
        ledger.note("tool-substituted", source_path(tool), what)
        for option in _OPTION_FIELDS:
            if getattr(tool, option):
                ledger.note("no-counterpart", source_path(tool), f"`{option}` of `{tool.tool}` was left out")
        if function.name not in declared:
            out.append(mark_added(function))
            declared.add(function.name)
    return tuple(out)


def _replace_in_turn(turn: Turn, substitutes: Mapping[str, Tool]) -> list[Turn]:
    """A turn with calls of such a tool as several turns: the parts up to the calls, the results, the rest."""
    if not any(isinstance(part, (ProviderCall, ProviderResult)) and part.tool in substitutes for part in turn.parts):
        return [turn]
    out: list[Turn] = []
    parts: list[Part] = []
    results: list[Turn] = []
    for part in turn.parts:
        if isinstance(part, ProviderResult) and part.tool in substitutes:
            text = Text(provider_result_text(part) or EMPTY_RESULT)
            name, error = substitutes[part.tool].name, True if part.error else None
            results.append(Turn("tool", (Result(part.id, (text,), error, name),)))
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
