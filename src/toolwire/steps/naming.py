"""Tool names, kinds and namespaces on the way out, and the plan by which they come back.

A target that knows function tools only gets freeform tools wrapped as functions of one string, namespaces flattened
into the name, and names cut to its letters and length; the plan says what each of its names stands for.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping

from msgspec import Struct

from toolwire import ids
from toolwire.ir import NOTHING, AnyTool, Call, Part, Request, Result, Tool, ToolChoice, ToolName, Turn, changed, place
from toolwire.loss import Ledger
from toolwire.room import Rules
from toolwire.schema import Converted, applied
from toolwire.steps.survey import Survey
from toolwire.wire import Json, Malformed, Object, decode, encode_text, object_or_none

FREEFORM = "custom"

INPUT_SCHEMA: Object = {
    "type": "object",
    "properties": {"input": {"type": "string", "description": "The whole input of the tool, as raw text."}},
    "required": ["input"],
    "additionalProperties": False,
}


class Plan(Struct, frozen=True):
    """What each name that the provider sees stands for at the client."""

    names: Mapping[str, ToolName] = NOTHING
    """Those that differ from what the client declared (another name, kind or namespace), or that are no functions."""
    active: bool = False
    """Does anything differ, so that answers must be written anew?"""
    declared: frozenset[str] = frozenset()
    """All names that the provider was given."""
    shapes: Mapping[str, Converted] = NOTHING
    """Tools whose parameters have other names there, or are wrapped: how their arguments come back."""

    def original(self, name: str) -> ToolName | None:
        """The client's own tool, when the provider's name for it is another one, or slightly misspelt."""
        names = self.names
        if not names:
            return None
        found = names.get(name)
        if found is not None or name in self.declared:
            return found
        near = difflib.get_close_matches(name, names, n=2, cutoff=0.9)
        return names[near[0]] if len(near) == 1 else None


AS_DECLARED = Plan()


class _Namer:
    """Gives every tool one legal, unique name at the target."""

    def __init__(self, rules: Rules, ledger: Ledger, model: str, made: Mapping[int, Converted]) -> None:
        self.rules = rules
        self.ledger = ledger
        self.model = model
        self.made = made
        """Schemas in the target's dialect, as far as they are known, by the `id` of the client's own."""
        self.shapes: dict[str, Converted] = {}
        self.kinds: dict[str, str] = {}
        """The kind of each call as it goes out, by its id: a result is of the same kind."""
        self.given: dict[tuple[str, str], str] = {}
        self.taken: dict[str, tuple[str, str]] = {}
        self.described: set[str] = set()

    def __call__(self, name: str, namespace: str = "") -> str:
        key = (namespace, name)
        known = self.given.get(key)
        if known is not None:
            return known
        wanted = name if not namespace or self.rules.namespaces else ids.flat(namespace, name)
        legal = len(wanted) <= self.rules.name_limit and self.rules.name_pattern.fullmatch(wanted)
        taken = self.taken.get(wanted)
        clash = taken is not None and taken != key and not (self.rules.namespaces and taken[0] != namespace)
        if not legal or clash:
            salt = "" if not clash else namespace
            wanted = ids.rewritten(wanted, self.rules.name_pattern, self.rules.name_limit, salt)
        self.given[key] = wanted
        self.taken.setdefault(wanted, key)
        return wanted


def planned(request: Request, rules: Rules, ledger: Ledger, survey: Survey) -> tuple[Request, Plan]:
    """The request with names, kinds and namespaces that the target knows, and the way back."""
    made: dict[int, Converted] = {}
    if _all_stay(request, rules, ledger, survey, made):
        return request, AS_DECLARED
    namer = _Namer(rules, ledger, request.model, made)
    request = _once(request, ledger)
    tools = tuple([_tool(tool, namer) for tool in request.tools])
    plan = _plan(request.tools, tools, namer.shapes)
    changes: dict[str, object] = {}
    if any(new is not old for new, old in zip(tools, request.tools, strict=True)):
        changes["tools"] = tools
    if request.choice is not None and request.choice.tools:
        choice = _choice(request.choice, namer)
        if choice is not request.choice:
            changes["choice"] = choice
    if not _spared(survey, namer):
        turns = _turns(request.turns, namer)
        if turns is not request.turns:
            changes["turns"] = turns
    return (changed(request, **changes) if changes else request), plan


_FUNCTIONS = frozenset({"function"})


def _all_stay(request: Request, rules: Rules, ledger: Ledger, survey: Survey, made: dict[int, Converted]) -> bool:
    """Are there functions only, with names and schemas that the target takes? Told in one pass, because most are such.
    Schemas that were converted on the way are `made`."""
    choice = request.choice
    if survey.namespaces or (survey.kinds and not survey.kinds <= _FUNCTIONS) or "function" not in rules.tool_kinds:
        return False
    if choice is not None and choice.tools:
        return False
    names = _names_that_stay(request, rules, ledger, made)
    if names is None:
        return False
    fits, limit = rules.name_pattern.fullmatch, rules.name_limit
    undeclared = survey.names - names if survey.names else ()
    return not undeclared or all(len(name) <= limit and fits(name) for name in undeclared)


def _names_that_stay(request: Request, rules: Rules, ledger: Ledger, made: dict[int, Converted]) -> set[str] | None:
    """The names of its functions; None where one of them, or its schema, cannot stay as it is."""
    fits, limit, dialect, target = rules.name_pattern.fullmatch, rules.name_limit, rules.dialect, ledger.target
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
            converted = made[id(schema)] = dialect(schema, request.model)
            if converted.schema is not schema:
                return None
    return names


def _once(request: Request, ledger: Ledger) -> Request:
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
        ledger.note("tools-merged", place(tool), f"`{tool.name}` was declared before, with the same parameters")
    return changed(request, tools=tuple([tool for tool in request.tools if not any(tool is one for one in doubles)]))


def _spared(survey: Survey, namer: _Namer) -> bool:
    """Are all calls and results called as they are declared? Most histories are, and nobody needs to touch them."""
    mixed = len(survey.kinds) > 1 and namer.ledger.source != namer.ledger.target
    if mixed or survey.namespaces or namer.shapes or not survey.kinds <= namer.rules.tool_kinds:
        return False
    given = namer.given
    return all(given.get(("", name)) == name or namer(name) == name for name in survey.names)


def _plan(client: tuple[AnyTool, ...], provider: tuple[AnyTool, ...], shapes: Mapping[str, Converted]) -> Plan:
    pairs = [
        (old, new) for old, new in zip(client, provider, strict=True) if isinstance(old, Tool) and isinstance(new, Tool)
    ]
    names = {
        new.name: ToolName(old.name, old.kind, old.namespace)
        for old, new in pairs
        if old.kind != "function" or (new.name, new.namespace) != (old.name, old.namespace)
    }
    active = any((new.name, new.kind, new.namespace) != (old.name, old.kind, old.namespace) for old, new in pairs)
    return Plan(names, active, frozenset(new.name for _, new in pairs), shapes)


def _foreign(kind: str, namer: _Namer, node: Tool | Call | Result) -> bool:
    return kind not in namer.rules.tool_kinds and (node.origin is None or node.origin.protocol != namer.ledger.target)


def _tool(tool: AnyTool, namer: _Namer) -> AnyTool:
    if not isinstance(tool, Tool):
        return tool
    changes = _renamed(tool.name, tool.namespace, namer)
    if changes:
        _note_name(tool, changes, namer)
    if _foreign(tool.kind, namer, tool):
        namer.ledger.note("tool-wrapped", place(tool), f"the {tool.kind} tool `{tool.name}` is offered as a function")
        changes["kind"] = "function"
        if tool.kind == FREEFORM:
            changes |= {"parameters": INPUT_SCHEMA, "description": freeform_description(tool), "grammar": None}
    changes |= _reshaped(tool, changes, namer)
    if "namespace" in changes and tool.namespace_description and tool.namespace not in namer.described:
        # Said once, by the first tool of the namespace.
        namer.described.add(tool.namespace)
        own = changes.get("description", tool.description)
        words = f"`{tool.namespace}`: {tool.namespace_description}"
        changes["description"] = f"{own}\n\n{words}" if own else words
    return changed(tool, **changes) if changes else tool


def _reshaped(tool: Tool, changes: dict[str, object], namer: _Namer) -> dict[str, object]:
    """Parameters in the target's dialect, and the way back for arguments."""
    dialect = namer.rules.dialect
    if dialect is None or "parameters" in changes or not _foreign_schema(tool, namer):
        return {}
    made = namer.made.get(id(tool.parameters)) or dialect(tool.parameters, namer.model)
    if made.schema is tool.parameters:
        return {}
    if made.renames or made.wrapped:
        namer.shapes[str(changes.get("name", tool.name))] = made
    for change in made.changes:
        namer.ledger.note(
            "schema-rewritten",
            place(tool),
            f"the schema of `{tool.name}` at {change.pointer or 'its root'}: {change.what}",
        )
    return {"parameters": made.schema}


def _foreign_schema(tool: Tool, namer: _Namer) -> bool:
    return tool.parameters is not None and (tool.origin is None or tool.origin.protocol != namer.ledger.target)


def _renamed(name: str, namespace: str, namer: _Namer) -> dict[str, object]:
    wire = namer(name, namespace)
    changes: dict[str, object] = {}
    if wire != name:
        changes["name"] = wire
    if namespace and not namer.rules.namespaces:
        changes["namespace"] = ""
    return changes


def _note_name(tool: Tool, changes: dict[str, object], namer: _Namer) -> None:
    if "namespace" in changes:
        namer.ledger.note(
            "namespace-flattened",
            place(tool),
            f"`{tool.namespace}` / `{tool.name}` is called `{changes.get('name', tool.name)}`",
        )
    elif "name" in changes:
        namer.ledger.note("name-rewritten", place(tool), f"`{tool.name}` is called `{changes['name']}`")


def freeform_description(tool: Tool) -> str:
    """The description of a freeform tool, with its grammar, for a target that has functions only."""
    lines = [tool.description or f"Takes the raw input of `{tool.name}`."]
    lines.append("Give the whole input as the string `input`: raw text, without JSON, quotes or code fences around it.")
    if tool.grammar is not None:
        lines.append(f"The input must match this {tool.grammar.syntax} grammar:\n{tool.grammar.definition}")
    return "\n\n".join(lines)


def _choice(choice: ToolChoice, namer: _Namer) -> ToolChoice:
    tools = tuple(_choice_name(tool, namer) for tool in choice.tools)
    if tools == choice.tools:
        return choice
    namer.ledger.note("name-rewritten", place(choice), f"the choice names {', '.join(tool.name for tool in tools)}")
    return changed(choice, tools=tools)


def _choice_name(tool: ToolName, namer: _Namer) -> ToolName:
    if (tool.namespace, tool.name) not in namer.given and not tool.namespace:
        return tool
    kind = tool.kind if tool.kind in namer.rules.tool_kinds else "function"
    namespace = tool.namespace if namer.rules.namespaces else ""
    return ToolName(namer(tool.name, tool.namespace), kind, namespace)


def _turns(turns: tuple[Turn, ...], namer: _Namer) -> tuple[Turn, ...]:
    result = tuple(_turn(turn, namer) for turn in turns)
    return turns if all(new is old for new, old in zip(result, turns, strict=True)) else result


def _turn(turn: Turn, namer: _Namer) -> Turn:
    parts = tuple(_STEPS[type(part)](part, namer) if type(part) in _STEPS else part for part in turn.parts)
    return turn if all(new is old for new, old in zip(parts, turn.parts, strict=True)) else changed(turn, parts=parts)


def _call(call: Call, namer: _Namer) -> Call:
    changes = _renamed(call.name, call.namespace, namer)
    if _foreign(call.kind, namer, call):
        changes["kind"] = "function"
        if call.kind == FREEFORM:
            changes["arguments"] = wrapped(call.arguments)
    namer.kinds[call.id] = str(changes.get("kind", call.kind))
    shape = namer.shapes.get(str(changes.get("name", call.name)))
    if shape is not None:
        changes["arguments"] = reshaped(call.arguments, shape, applied)
    if not changes:
        return call
    code = (
        "namespace-flattened" if "namespace" in changes else "name-rewritten" if "name" in changes else "tool-wrapped"
    )
    namer.ledger.note(code, place(call), f"a call of `{call.name}` goes out as `{changes.get('name', call.name)}`")
    return changed(call, **changes)


def _result(result: Result, namer: _Namer) -> Result:
    changes = _renamed(result.name, result.namespace, namer) if result.name else {}
    if _foreign(result.kind, namer, result):
        changes["kind"] = "function"
    kind = namer.kinds.get(result.id, "")
    if kind and kind != changes.get("kind", result.kind) and namer.ledger.source != namer.ledger.target:
        changes["kind"] = kind
    if "name" in changes:
        namer.ledger.note(
            "name-rewritten", place(result), f"a result of `{result.name}` goes out as `{changes['name']}`"
        )
    return changed(result, **changes) if changes else result


_STEPS: Mapping[type, Callable[..., Part]] = {Call: _call, Result: _result}


# --- freeform input, in and out of its wrapper ------------------------------------------------------------------------


def wrapped(text: str) -> str:
    return encode_text({"input": text})


def reshaped(arguments: str, shape: Converted, way: Callable[[Json, Converted], Json]) -> str:
    """Argument text with its parameters' names changed; text that is no JSON stays as it is."""
    try:
        value = decode(arguments) if arguments.strip() else {}
    except Malformed:
        return arguments
    return encode_text(way(value, shape))


def unwrapped(arguments: str) -> str:
    """The raw input of a freeform call, however the model wrapped it."""
    found = object_or_none(arguments)
    if found is None:
        return _unfenced(arguments)
    value = found.get("input")
    if not isinstance(value, str):
        texts = [item for item in found.values() if isinstance(item, str)]
        lists = [item[-1] for item in found.values() if isinstance(item, list) and item and isinstance(item[-1], str)]
        candidates = texts or lists
        value = candidates[0] if len(candidates) == 1 else None
    if value is None:
        return "" if not found else arguments
    return _unfenced(value)


def _unfenced(text: str) -> str:
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
