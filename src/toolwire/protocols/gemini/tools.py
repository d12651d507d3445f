"""Tools and the choice among them. Functions go into one list; each built-in tool stands in an object of its own."""

from __future__ import annotations

from toolwire.ir import AnyTool, HostedTool, Opaque, Origin, Tool, ToolChoice, ToolName, place
from toolwire.loss import Ledger
from toolwire.protocols.gemini.details.parts_write import foreign
from toolwire.protocols.gemini.details.schemas import all_defined, read_schema, write_schema
from toolwire.protocols.gemini.models import Family
from toolwire.protocols.gemini.names import (
    BUILT_IN,
    BUILT_IN_KEYS,
    CALLING,
    DECLARATION,
    NAME,
    TOOL_CONFIG,
    TOOLBOX,
    snake,
)
from toolwire.protocols.gemini.parts import PartReading
from toolwire.reading import finished, numbered, says_something, verbatim
from toolwire.wire import Json, Malformed, Object, Path, as_list, as_object, as_text, need_text, take_object, take_text

PARAMETERS = ("parameters", "parametersJsonSchema")
RETURNS = ("response", "responseJsonSchema")

# --- reading --------------------------------------------------------------------------------------------------------


def read_tools(value: Json, path: Path, reading: PartReading) -> tuple[AnyTool, ...]:
    """The tools of all boxes in one list; a single box without its array is accepted, as the servers do."""
    if isinstance(value, dict):
        return tuple(_read_box(value, path, reading))
    tools: list[AnyTool] = []
    for item, here in numbered(as_list(value, path), path):
        tools.extend(_read_box(as_object(item, here), here, reading))
    return tuple(tools)


def _read_box(box: Object, path: Path, reading: PartReading) -> list[AnyTool]:
    tools: list[AnyTool] = []
    for key, value in box.items():
        if value is None:
            continue
        word = TOOLBOX.spellings.get(key, key)
        here = (path, key)
        if word == "functionDeclarations":
            tools.extend(read_declaration(item, at, reading) for item, at in numbered(as_list(value, here), here))
        elif word in BUILT_IN:
            options = as_object(value, here)
            for option, chosen in options.items():
                if says_something(chosen):
                    reading.stray(here, option)
            tools.append(HostedTool(BUILT_IN[word], origin=reading.whole({key: value}, here)))
        else:
            tools.append(Opaque(word, reading.whole({key: value}, here)))
    return tools


def read_declaration(item: Json, path: Path, reading: PartReading) -> Tool:
    raw = as_object(item, path)
    node = DECLARATION(raw)
    return Tool(
        need_text(node, "name", path),
        take_text(node, "description", path),
        read_schema(node, PARAMETERS, path),
        output=read_schema(node, RETURNS, path),
        origin=reading.origin(raw, path, DECLARATION.known),
    )


_MODES = {"AUTO": "auto", "ANY": "required", "NONE": "none", "VALIDATED": "auto"}
_WORDS = {"auto": "AUTO", "required": "ANY", "none": "NONE"}
_MODE_NUMBERS = ("MODE_UNSPECIFIED", "AUTO", "ANY", "NONE", "VALIDATED")


def read_choice(value: Json, path: Path, reading: PartReading) -> ToolChoice | None:
    """The calling mode; None where the configuration says nothing about calling."""
    raw = as_object(value, path)
    node = TOOL_CONFIG(raw)
    origin = reading.origin(raw, path, TOOL_CONFIG.known)
    calling = take_object(node, "functionCallingConfig", path)
    if calling is None:
        return None
    here = (path, "functionCallingConfig")
    config = reading.inner(calling, here, CALLING)
    mode = config.get("mode")
    word = _MODE_NUMBERS[mode] if type(mode) is int and mode < 5 else as_text(mode or "AUTO", (here, "mode")).upper()
    listed = config.get("allowedFunctionNames")
    names = _read_names(listed, (here, "allowedFunctionNames")) if listed else ()
    if word == "MODE_UNSPECIFIED":
        word = "AUTO"
    if word not in _MODES:
        raise Malformed((here, "mode"), f"expected AUTO, ANY, NONE or VALIDATED, got {word!r}")
    if names and word == "ANY":
        return ToolChoice("one" if len(names) == 1 else "allowed", names, len(names) > 1, origin)
    if names and word == "VALIDATED":
        return ToolChoice("allowed", names, False, origin)
    if names:
        reading.stray(here, "allowedFunctionNames")
    return ToolChoice(_MODES[word], origin=origin)  # type: ignore[arg-type]


def _read_names(value: Json, path: Path) -> tuple[ToolName, ...]:
    return tuple([ToolName(as_text(name, at)) for name, at in numbered(as_list(value, path), path)])


# --- writing --------------------------------------------------------------------------------------------------------


def write_tools(tools: tuple[AnyTool, ...], family: Family, ledger: Ledger) -> list[Object]:
    """The boxes, functions at the place of the first of them."""
    boxes: list[Object] = []
    declarations: list[Object] = []
    for tool in tools:
        if isinstance(tool, Tool):
            if not declarations:
                boxes.append({"functionDeclarations": declarations})
            declarations.append(write_declaration(tool, family, ledger))
        elif isinstance(tool, HostedTool):
            box = _write_hosted(tool, Tool in map(type, tools), family, ledger)
            if box is not None:
                boxes.append(box)
        elif foreign(tool.origin):
            ledger.note("tool-dropped", place(tool), f"the tool `{tool.kind}` was left out")
        else:
            boxes.append(tool.origin.wire)
    return boxes


def write_declaration(tool: Tool, family: Family, ledger: Ledger) -> Object:
    origin, parameters = tool.origin, tool.parameters
    own = origin is None or origin.protocol == NAME
    if own and verbatim(origin, NAME):
        wire: Object = origin.wire  # type: ignore[union-attr]
        return wire
    out: Object = {"name": tool.name}
    if tool.description is not None:
        out["description"] = tool.description
    if parameters is not None and (own or parameters != {}):
        if family.json_schema and all_defined(parameters):
            out[PARAMETERS[1]] = parameters
        else:
            out |= write_schema(parameters, PARAMETERS, family, ledger, place(tool), arguments=True)
    if tool.output is not None:
        out |= write_schema(tool.output, RETURNS, family, ledger, place(tool))
    if tool.strict:
        ledger.note("no-counterpart", place(tool), f"`strict` of the tool `{tool.name}` was left out")
    if tool.defer:
        ledger.note("no-counterpart", place(tool), f"`defer` of the tool `{tool.name}` was left out")
    if tool.cache is not None:
        ledger.note("cache-dropped", place(tool), "the cache breakpoint was left out")
    return finished(out, origin, NAME) if own else out


_NEED_OPTIONS = frozenset({"file_search", "computer"})
"""Tools that mean nothing here without options which only this wire's clients know."""


def _write_hosted(tool: HostedTool, functions: bool, family: Family, ledger: Ledger) -> Object | None:
    own = tool.origin is not None and tool.origin.protocol == NAME
    if own and verbatim(tool.origin, NAME):
        wire: Object = tool.origin.wire  # type: ignore[union-attr]
        return wire
    key = BUILT_IN_KEYS.get(tool.tool)
    if key is None or (tool.tool in _NEED_OPTIONS and foreign(tool.origin)):
        ledger.note("tool-dropped", place(tool), f"the built-in tool `{tool.tool}` was left out")
        return None
    if functions and not family.third and not own:
        why = f"before the third generation {key} cannot be combined with functions"
        ledger.note("tool-dropped", place(tool), f"the built-in tool `{tool.tool}` was left out", why)
        return None
    unsaid = ("max_uses", "allowed_domains", "blocked_domains", "location", "context_size")
    lost = [option for option in unsaid if getattr(tool, option)]
    if lost or foreign(tool.origin):
        ledger.note("tool-mapped", place(tool), f"`{tool.name or tool.tool}` became `{key}`")
    for option in lost:
        ledger.note("no-counterpart", place(tool), f"`{option}` of `{tool.tool}` was left out")
    if tool.cache is not None:
        ledger.note("cache-dropped", place(tool), "the cache breakpoint was left out")
    return {key: _options(tool.origin, key)}


def _options(origin: Origin | None, key: str) -> Object:
    if origin is None or foreign(origin):
        return {}
    options: Object = origin.wire.get(key, origin.wire.get(snake(key), {}))
    return options


def declares_functions(boxes: list[Object]) -> bool:
    found = False
    for box in boxes:
        found = found or "functionDeclarations" in box
    return found


def needs_circulation(tools: tuple[AnyTool, ...], boxes: list[Object]) -> bool:
    """Built-in tools beside functions work only when their invocations are shown; this wire's clients see to it."""
    added = any(isinstance(tool, HostedTool) and not verbatim(tool.origin, NAME) for tool in tools)
    return added and len(boxes) > 1 and declares_functions(boxes)


def write_choice(choice: ToolChoice, declared: bool, ledger: Ledger) -> Object | None:
    """`functionCallingConfig` in its box; None when there is nothing to say."""
    if choice.mode == "auto" and declared and not choice.tools and foreign(choice.origin):
        return {"functionCallingConfig": {"mode": "AUTO"}}
    if verbatim(choice.origin, NAME):
        wire: Object = choice.origin.wire  # type: ignore[union-attr]
        return wire
    calling = _calling(choice, declared, ledger)
    if calling is None:
        return finished({}, choice.origin, NAME) or None
    return finished({"functionCallingConfig": calling}, choice.origin, NAME)


def _calling(choice: ToolChoice, declared: bool, ledger: Ledger) -> Object | None:
    names = [tool.name for tool in choice.tools if tool.kind == "function"]
    if not declared and foreign(choice.origin):
        if choice.mode not in ("auto", "none"):
            ledger.note("choice-weakened", place(choice), "a call was demanded, but there is no function to call")
        return None
    if choice.mode in ("required", "none") and foreign(choice.origin):
        ledger.note("choice-mapped", place(choice), f"`{choice.mode}` became the mode {_WORDS[choice.mode]}")
    if len(names) < len(choice.tools):
        other = ", ".join(tool.name or tool.kind for tool in choice.tools if tool.kind != "function")
        ledger.note("choice-weakened", place(choice), f"only functions can be chosen, not {other}")
    if choice.mode in _WORDS or not names:
        return {"mode": _WORDS.get(choice.mode, "AUTO")}
    demanded = choice.mode == "one" or choice.required
    return {"mode": "ANY" if demanded else "VALIDATED", "allowedFunctionNames": names}
