"""Tool names, kinds and namespaces on the way out, and the plan by which they come back.

A target that knows function tools only gets freeform tools wrapped as functions of one string, namespaces flattened
into the name, and names cut to its letters and length; the plan says what each of its names stands for.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping

from msgspec import Struct

from toolwire.core import ids
from toolwire.core.codec import Constraints
from toolwire.core.ir import (
    EMPTY_MAPPING,
    AnyTool,
    Call,
    Part,
    Request,
    Result,
    Tool,
    ToolChoice,
    ToolName,
    Turn,
    replace_fields,
    source_path,
)
from toolwire.core.json_values import Json, Malformed, Object, decode, decode_object_or_none, encode_text
from toolwire.core.losses import Ledger
from toolwire.schema import ConvertedSchema, convert_arguments
from toolwire.translation.request_steps.request_features import RequestFeatures

FREEFORM = "custom"

FREEFORM_INPUT_SCHEMA: Object = {
    "type": "object",
    "properties": {"input": {"type": "string", "description": "The whole input of the tool, as raw text."}},
    "required": ["input"],
    "additionalProperties": False,
}


class ToolNameMap(Struct, frozen=True):
    """What each name that the provider sees stands for at the client."""

    names: Mapping[str, ToolName] = EMPTY_MAPPING
    """Those that differ from what the client declared (another name, kind or namespace), or that are no functions."""
    has_changes: bool = False
    """Does anything differ, so that answers must be written anew?"""
    declared_names: frozenset[str] = frozenset()
    """All names that the provider was given."""
    schema_conversions: Mapping[str, ConvertedSchema] = EMPTY_MAPPING
    """Tools whose parameters have other names there, or are wrapped: how their arguments come back."""

    def client_tool(self, name: str) -> ToolName | None:
        """The client's own tool, when the provider's name for it is another one, or slightly misspelt."""
        names = self.names
        if not names:
            return None
        found = names.get(name)
        if found is not None or name in self.declared_names:
            return found
        near = difflib.get_close_matches(name, names, n=2, cutoff=0.9)
        return names[near[0]] if len(near) == 1 else None


UNCHANGED_NAMES = ToolNameMap()


class _Namer:
    """Gives every tool one legal, unique name at the target."""

    def __init__(
        self, constraints: Constraints, ledger: Ledger, model: str, converted_schemas: Mapping[int, ConvertedSchema]
    ) -> None:
        self.constraints = constraints
        self.ledger = ledger
        self.model = model
        self.converted_schemas = converted_schemas
        """Schemas in the target's dialect, as far as they are known, by the `id` of the client's own."""
        self.schema_conversions: dict[str, ConvertedSchema] = {}
        self.call_kinds: dict[str, str] = {}
        """The kind of each call as it goes out, by its id: a result is of the same kind."""
        self.given_names: dict[tuple[str, str], str] = {}
        self.taken_names: dict[str, tuple[str, str]] = {}
        self.described_namespaces: set[str] = set()

    def __call__(self, name: str, namespace: str = "") -> str:
        key = (namespace, name)
        known = self.given_names.get(key)
        if known is not None:
            return known
        wanted = name if not namespace or self.constraints.has_namespaces else ids.flatten_tool_name(namespace, name)
        legal = len(wanted) <= self.constraints.max_tool_name_length and self.constraints.tool_name_pattern.fullmatch(
            wanted
        )
        taken = self.taken_names.get(wanted)
        clash = taken is not None and taken != key and not (self.constraints.has_namespaces and taken[0] != namespace)
        if not legal or clash:
            salt = "" if not clash else namespace
            wanted = ids.make_legal_id(
                wanted, self.constraints.tool_name_pattern, self.constraints.max_tool_name_length, salt
            )
        self.given_names[key] = wanted
        self.taken_names.setdefault(wanted, key)
        return wanted


def rename_tools(
    request: Request, constraints: Constraints, ledger: Ledger, features: RequestFeatures
) -> tuple[Request, ToolNameMap]:
    """The request with names, kinds and namespaces that the target knows, and the way back."""
    made: dict[int, ConvertedSchema] = {}
    if _can_stay_unchanged(request, constraints, ledger, features, made):
        return request, UNCHANGED_NAMES
    namer = _Namer(constraints, ledger, request.model, made)
    request = _drop_duplicate_tools(request, ledger)
    tools = tuple([_rename_tool(tool, namer) for tool in request.tools])
    plan = _build_name_map(request.tools, tools, namer.schema_conversions)
    changes: dict[str, object] = {}
    if any(new is not old for new, old in zip(tools, request.tools, strict=True)):
        changes["tools"] = tools
    if request.choice is not None and request.choice.tools:
        choice = _rename_choice(request.choice, namer)
        if choice is not request.choice:
            changes["choice"] = choice
    if not _has_unchanged_history(features, namer):
        turns = _rename_in_turns(request.turns, namer)
        if turns is not request.turns:
            changes["turns"] = turns
    return (replace_fields(request, **changes) if changes else request), plan


_FUNCTION_KIND = frozenset({"function"})


def _can_stay_unchanged(
    request: Request,
    constraints: Constraints,
    ledger: Ledger,
    features: RequestFeatures,
    converted_schemas: dict[int, ConvertedSchema],
) -> bool:
    """Are there functions only, with names and schemas that the target takes? Told in one pass, because most are such.
    Schemas that were converted on the way are `made`."""
    choice = request.choice
    if (
        features.has_namespaces
        or (features.kinds and not features.kinds <= _FUNCTION_KIND)
        or "function" not in constraints.tool_kinds
    ):
        return False
    if choice is not None and choice.tools:
        return False
    names = _unchanged_names(request, constraints, ledger, converted_schemas)
    if names is None:
        return False
    fits, limit = constraints.tool_name_pattern.fullmatch, constraints.max_tool_name_length
    undeclared = features.names - names if features.names else ()
    return not undeclared or all(len(name) <= limit and fits(name) for name in undeclared)


def _unchanged_names(
    request: Request, constraints: Constraints, ledger: Ledger, converted_schemas: dict[int, ConvertedSchema]
) -> set[str] | None:
    """The names of its functions; None where one of them, or its schema, cannot stay as it is."""
    fits, limit, dialect, target = (
        constraints.tool_name_pattern.fullmatch,
        constraints.max_tool_name_length,
        constraints.convert_tool_schema,
        ledger.target,
    )
    names: set[str] = set()
    for tool in request.tools:
        if type(tool) is not Tool:
            continue
        name, schema, origin = tool.name, tool.parameters, tool.origin
        if tool.kind != "function" or tool.namespace or name in names or len(name) > limit:
            return None
        if not (name.isidentifier() and name.isascii()) and not fits(name):
            return None
        names.add(name)
        if dialect is not None and schema is not None and (origin is None or origin.protocol != target):
            converted = converted_schemas[id(schema)] = dialect(schema, request.model)
            if converted.schema is not schema:
                return None
    return names


def _drop_duplicate_tools(request: Request, ledger: Ledger) -> Request:
    """The request without tools that say what an earlier one said already; every target refuses a name twice."""
    seen: dict[tuple[str, str], Tool] = {}
    doubles: list[Tool] = []
    for tool in request.tools:
        if isinstance(tool, Tool):
            first = seen.setdefault((tool.namespace, tool.name), tool)
            if first is not tool and (first.parameters, first.kind) == (tool.parameters, tool.kind):
                doubles.append(tool)
    if not doubles:
        return request
    for tool in doubles:
        ledger.note("tools-merged", source_path(tool), f"`{tool.name}` was declared before, with the same parameters")
    return replace_fields(
        request, tools=tuple([tool for tool in request.tools if not any(tool is one for one in doubles)])
    )


def _has_unchanged_history(features: RequestFeatures, namer: _Namer) -> bool:
    """Are all calls and results called as they are declared? Most histories are, and nobody needs to touch them."""
    mixed = len(features.kinds) > 1 and namer.ledger.source != namer.ledger.target
    if (
        mixed
        or features.has_namespaces
        or namer.schema_conversions
        or not features.kinds <= namer.constraints.tool_kinds
    ):
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
    active = any((new.name, new.kind, new.namespace) != (old.name, old.kind, old.namespace) for old, new in pairs)
    return ToolNameMap(names, active, frozenset(new.name for _, new in pairs), schema_conversions)


def _is_unknown_kind(kind: str, namer: _Namer, node: Tool | Call | Result) -> bool:
    return kind not in namer.constraints.tool_kinds and (
        node.origin is None or node.origin.protocol != namer.ledger.target
    )


def _rename_tool(tool: AnyTool, namer: _Namer) -> AnyTool:
    if not isinstance(tool, Tool):
        return tool
    changes = _name_changes(tool.name, tool.namespace, namer)
    if changes:
        _note_renaming(tool, changes, namer)
    if _is_unknown_kind(tool.kind, namer, tool):
        namer.ledger.note(
            "tool-wrapped", source_path(tool), f"the {tool.kind} tool `{tool.name}` is offered as a function"
        )
        changes["kind"] = "function"
        if tool.kind == FREEFORM:
            changes |= {"parameters": FREEFORM_INPUT_SCHEMA, "description": freeform_description(tool), "grammar": None}
    changes |= _convert_schema(tool, changes, namer)
    if "namespace" in changes and tool.namespace_description and tool.namespace not in namer.described_namespaces:
        # Said once, by the first tool of the namespace.
        namer.described_namespaces.add(tool.namespace)
        own = changes.get("description", tool.description)
        words = f"`{tool.namespace}`: {tool.namespace_description}"
        changes["description"] = f"{own}\n\n{words}" if own else words
    return replace_fields(tool, **changes) if changes else tool


def _convert_schema(tool: Tool, changes: dict[str, object], namer: _Namer) -> dict[str, object]:
    """Parameters in the target's dialect, and the way back for arguments."""
    dialect = namer.constraints.convert_tool_schema
    if dialect is None or "parameters" in changes or not _has_foreign_schema(tool, namer):
        return {}
    made = namer.converted_schemas.get(id(tool.parameters)) or dialect(tool.parameters, namer.model)
    if made.schema is tool.parameters:
        return {}
    if made.renames or made.wrapper_property:
        namer.schema_conversions[str(changes.get("name", tool.name))] = made
    for change in made.changes:
        namer.ledger.note(
            "schema-rewritten",
            source_path(tool),
            f"the schema of `{tool.name}` at {change.pointer or 'its root'}: {change.what}",
        )
    return {"parameters": made.schema}


def _has_foreign_schema(tool: Tool, namer: _Namer) -> bool:
    return tool.parameters is not None and (tool.origin is None or tool.origin.protocol != namer.ledger.target)


def _name_changes(name: str, namespace: str, namer: _Namer) -> dict[str, object]:
    wire = namer(name, namespace)
    changes: dict[str, object] = {}
    if wire != name:
        changes["name"] = wire
    if namespace and not namer.constraints.has_namespaces:
        changes["namespace"] = ""
    return changes


def _note_renaming(tool: Tool, changes: dict[str, object], namer: _Namer) -> None:
    if "namespace" in changes:
        namer.ledger.note(
            "namespace-flattened",
            source_path(tool),
            f"`{tool.namespace}` / `{tool.name}` is called `{changes.get('name', tool.name)}`",
        )
    elif "name" in changes:
        namer.ledger.note("name-rewritten", source_path(tool), f"`{tool.name}` is called `{changes['name']}`")


def freeform_description(tool: Tool) -> str:
    """The description of a freeform tool, with its grammar, for a target that has functions only."""
    lines = [tool.description or f"Takes the raw input of `{tool.name}`."]
    lines.append("Give the whole input as the string `input`: raw text, without JSON, quotes or code fences around it.")
    if tool.grammar is not None:
        lines.append(f"The input must match this {tool.grammar.syntax} grammar:\n{tool.grammar.definition}")
    return "\n\n".join(lines)


def _rename_choice(choice: ToolChoice, namer: _Namer) -> ToolChoice:
    tools = tuple(_rename_choice_tool(tool, namer) for tool in choice.tools)
    if tools == choice.tools:
        return choice
    namer.ledger.note(
        "name-rewritten", source_path(choice), f"the choice names {', '.join(tool.name for tool in tools)}"
    )
    return replace_fields(choice, tools=tools)


def _rename_choice_tool(tool: ToolName, namer: _Namer) -> ToolName:
    if (tool.namespace, tool.name) not in namer.given_names and not tool.namespace:
        return tool
    kind = tool.kind if tool.kind in namer.constraints.tool_kinds else "function"
    namespace = tool.namespace if namer.constraints.has_namespaces else ""
    return ToolName(namer(tool.name, tool.namespace), kind, namespace)


def _rename_in_turns(turns: tuple[Turn, ...], namer: _Namer) -> tuple[Turn, ...]:
    result = tuple(_rename_in_turn(turn, namer) for turn in turns)
    return turns if all(new is old for new, old in zip(result, turns, strict=True)) else result


def _rename_in_turn(turn: Turn, namer: _Namer) -> Turn:
    parts = tuple(_PART_STEPS[type(part)](part, namer) if type(part) in _PART_STEPS else part for part in turn.parts)
    return (
        turn
        if all(new is old for new, old in zip(parts, turn.parts, strict=True))
        else replace_fields(turn, parts=parts)
    )


def _rename_call(call: Call, namer: _Namer) -> Call:
    changes = _name_changes(call.name, call.namespace, namer)
    if _is_unknown_kind(call.kind, namer, call):
        changes["kind"] = "function"
        if call.kind == FREEFORM:
            changes["arguments"] = wrap_freeform_input(call.arguments)
    namer.call_kinds[call.id] = str(changes.get("kind", call.kind))
    shape = namer.schema_conversions.get(str(changes.get("name", call.name)))
    if shape is not None:
        changes["arguments"] = convert_argument_text(call.arguments, shape, convert_arguments)
    if not changes:
        return call
    code = (
        "namespace-flattened" if "namespace" in changes else "name-rewritten" if "name" in changes else "tool-wrapped"
    )
    namer.ledger.note(
        code, source_path(call), f"a call of `{call.name}` goes out as `{changes.get('name', call.name)}`"
    )
    return replace_fields(call, **changes)


def _rename_result(result: Result, namer: _Namer) -> Result:
    changes = _name_changes(result.name, result.namespace, namer) if result.name else {}
    if _is_unknown_kind(result.kind, namer, result):
        changes["kind"] = "function"
    kind = namer.call_kinds.get(result.id, "")
    if kind and kind != changes.get("kind", result.kind) and namer.ledger.source != namer.ledger.target:
        changes["kind"] = kind
    if "name" in changes:
        namer.ledger.note(
            "name-rewritten", source_path(result), f"a result of `{result.name}` goes out as `{changes['name']}`"
        )
    return replace_fields(result, **changes) if changes else result


_PART_STEPS: Mapping[type, Callable[..., Part]] = {Call: _rename_call, Result: _rename_result}


# --- freeform input, in and out of its wrapper ------------------------------------------------------------------------


def wrap_freeform_input(text: str) -> str:
    return encode_text({"input": text})


def convert_argument_text(
    arguments: str, conversion: ConvertedSchema, convert: Callable[[Json, ConvertedSchema], Json]
) -> str:
    """Argument text with its parameters' names changed; text that is no JSON stays as it is."""
    try:
        value = decode(arguments) if arguments.strip() else {}
    except Malformed:
        return arguments
    return encode_text(convert(value, conversion))


def unwrap_freeform_input(arguments: str) -> str:
    """The raw input of a freeform call, however the model wrapped it."""
    found = decode_object_or_none(arguments)
    if found is None:
        return _strip_code_fence(arguments)
    value = found.get("input")
    if not isinstance(value, str):
        texts = [item for item in found.values() if isinstance(item, str)]
        lists = [item[-1] for item in found.values() if isinstance(item, list) and item and isinstance(item[-1], str)]
        candidates = texts or lists
        value = candidates[0] if len(candidates) == 1 else None
    if value is None:
        return "" if not found else arguments
    return _strip_code_fence(value)


def _strip_code_fence(text: str) -> str:
    """Without a code fence or a heredoc around the whole of it."""
    lines = text.strip().splitlines()
    if len(lines) >= 3 and lines[0].startswith("```") and lines[-1].strip() == "```":
        return "\n".join(lines[1:-1])
    if (
        len(lines) >= 3
        and "<<" in lines[0]
        and lines[-1].strip().strip("'\"") == lines[0].split("<<", 1)[1].strip().strip("'\"")
    ):
        return "\n".join(lines[1:-1])
    return text
