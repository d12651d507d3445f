"""A request: one turn for each item of `input`, the settings, and back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from msgspec.structs import replace

from toolwire.hosted import retold
from toolwire.ids import made
from toolwire.ir import (
    Call,
    HostedCall,
    HostedResult,
    Media,
    Opaque,
    Origin,
    Part,
    Reasoning,
    Refusal,
    Request,
    Result,
    Seal,
    Summary,
    Text,
    ToolReference,
    ToolsAdded,
    Turn,
    place,
)
from toolwire.loss import Ledger
from toolwire.protocols.openai_responses.details.agents import read_agent_message
from toolwire.protocols.openai_responses.details.hosted import HOSTED_TYPES, can_write_hosted, write_hosted
from toolwire.protocols.openai_responses.details.hosted_tools import read_limits
from toolwire.protocols.openai_responses.details.items import (
    read_model_item,
    read_result,
    runs_at_provider,
    sealed_here,
    write_call,
    write_reasoning,
    write_result,
)
from toolwire.protocols.openai_responses.details.ordinary import read_ordinary, write_ordinary
from toolwire.protocols.openai_responses.details.output import message_of
from toolwire.protocols.openai_responses.details.settings import read_settings, write_settings
from toolwire.protocols.openai_responses.names import (
    CLIENT_ITEMS,
    CONTENT,
    MESSAGE,
    NAME,
    OUTPUT_ITEMS,
    REQUEST,
    ROLES,
    SUMMARY,
)
from toolwire.protocols.openai_responses.parts import Side, own, read_content, stamped, write_content, write_part
from toolwire.protocols.openai_responses.tools import read_choice, read_tools, write_choice, write_tools
from toolwire.reading import Reading, finished, says_something, verbatim
from toolwire.wire import (
    Json,
    Malformed,
    Object,
    Path,
    as_list,
    as_object,
    take_bool,
    take_list,
    take_text,
)

# --- reading --------------------------------------------------------------------------------------------------------


def read_request(body: Object) -> Request:
    reading = Reading(NAME)
    settings, known = read_settings(body, reading)
    system: tuple[Text, ...] = ()
    instructions = take_text(body, "instructions", None)
    if instructions is not None:
        told = Origin(NAME, (None, "instructions"), instructions)
        system = (Text(instructions, (), None, None, told),)
    tools = take_list(body, "tools", None)
    offered = () if tools is None else read_tools(tools, (None, "tools"), reading)
    if "max_tool_calls" in body:
        offered, limits = read_limits(body, offered)
        known |= limits
    model = take_text(body, "model", None) or ""
    turns, refers = read_input(body.get("input"), (None, "input"), reading)
    return Request(
        model,
        system,
        turns,
        offered,
        read_choice(body.get("tool_choice"), (None, "tool_choice"), reading),
        take_bool(body, "stream", None) if "stream" in body else None,
        settings,
        # Earlier turns that the provider holds: an answer, a conversation, or items that are only referred to.
        refers or bool(body.get("previous_response_id") or body.get("conversation")),
        _origin(body, known, reading),
        tuple(reading.strays),
    )


def _origin(body: Object, said: frozenset[str], reading: Reading) -> Origin:
    """The request's origin. What the settings have understood of `include` and `user` is kept, but is no stray."""
    if REQUEST.issuperset(body):
        return Origin(NAME, None, body)
    extra = {key: value for key, value in body.items() if key not in REQUEST}
    for key, value in extra.items():
        if key not in said and says_something(value):
            reading.stray(None, key)
    return Origin(NAME, None, body, extra)


def read_input(value: Json, path: Path, reading: Reading) -> tuple[tuple[Turn, ...], bool]:
    """The turns, and whether some of them are only referred to."""
    if value is None:
        return (), False
    if value.__class__ is str:
        origin = Origin(NAME, path, value)
        return (Turn("user", (Text(value, origin=origin),), origin=origin),), False
    items = value if value.__class__ is list else as_list(value, path)
    turns: list[Turn] = []
    for number, item in enumerate(items):
        turn = read_ordinary(item, (path, number)) if item.__class__ is dict else None
        if turn is None:
            return _read_mixed(items, turns, path, reading)
        turns.append(turn)
    return tuple(turns), False


def _read_mixed(items: list[Json], turns: list[Turn], path: Path, reading: Reading) -> tuple[tuple[Turn, ...], bool]:
    """The same where not all items are ordinary; the first turns are read already."""
    kinds = [item.get("type") for item in items if isinstance(item, dict)]
    elsewhere = _run_elsewhere(items) if "shell_call" in kinds else []
    # A result may answer a call that the provider ran: then none is ordinary.
    turns = [] if elsewhere else turns
    for number, item in enumerate(items[len(turns) :], len(turns)):
        at = (path, number)
        turn = read_ordinary(item, at) if item.__class__ is dict and not elsewhere else None
        turns.append(read_turn(as_object(item, at), at, reading, elsewhere) if turn is None else turn)
    return tuple(turns), "item_reference" in kinds


def _run_elsewhere(items: list[Json]) -> list[Json]:
    shells = [item for item in items if isinstance(item, dict) and item.get("type") == "shell_call"]
    return [item.get("call_id") for item in shells if runs_at_provider(item)]


def read_turn(node: Object, path: Path, reading: Reading, elsewhere: list[Json]) -> Turn:
    """One item as one turn. `elsewhere` are the calls that the provider ran itself: their results are its own too."""
    kind = take_text(node, "type", path) or ("message" if "role" in node else "item_reference")
    if kind in _SPOKEN:
        return _SPOKEN[kind](node, path, reading)
    shape = OUTPUT_ITEMS.get(kind)
    if shape is not None and not runs_at_provider(node) and (not elsewhere or node.get("call_id") not in elsewhere):
        result = read_result(node, path, shape, reading)
        return Turn("tool", (result,), origin=result.origin)
    if kind == "compaction" and node.get("encrypted_content"):
        return _read_summary(node, path, reading)
    if shape is not None or kind in CLIENT_ITEMS:
        opaque = Opaque(kind, Origin(NAME, path, node))
        return Turn("user" if kind in CLIENT_ITEMS else "assistant", (opaque,), origin=opaque.origin)
    parts = read_model_item(node, path, reading)
    return Turn("assistant", parts, origin=parts[0].origin)


def _read_summary(node: Object, path: Path, reading: Reading) -> Turn:
    seal = Seal(NAME, take_text(node, "encrypted_content", path) or "")
    origin = stamped(reading, node, path, SUMMARY, "id")
    return Turn("user", (Summary("", seal, take_text(node, "id", path) or "", origin),), origin=origin)


def _read_message(node: Object, path: Path, reading: Reading) -> Turn:
    name = take_text(node, "role", path)
    role = ROLES.get(name or "")
    if role is None:
        raise Malformed((path, "role"), f"{name!r} is no role; one of {', '.join(ROLES)} is")
    parts = read_content(node.get("content"), (path, "content"), reading)
    phase = take_text(node, "phase", path) or ""
    return Turn(role, parts, phase=phase, origin=stamped(reading, node, path, MESSAGE))


def _read_additional_tools(node: Object, path: Path, reading: Reading) -> Turn:
    tools = take_list(node, "tools", path) or []
    at = (path, "tools")
    role = ROLES.get(str(node.get("role")), "developer")
    added = ToolsAdded(read_tools(tools, at, reading), Origin(NAME, at, tools))
    return Turn(role, (added,), origin=stamped(reading, node, path, frozenset({"type", "role", "tools"})))


_SPOKEN: Mapping[str, Callable[[Object, Path, Reading], Turn]] = MappingProxyType(
    {"message": _read_message, "agent_message": read_agent_message, "additional_tools": _read_additional_tools}
)


# --- writing --------------------------------------------------------------------------------------------------------


def write_request(request: Request, ledger: Ledger) -> Object:
    origin = request.origin
    if verbatim(origin, NAME):
        wire: Object = origin.wire  # type: ignore[union-attr]
        return wire
    was: Object = origin.wire if own(origin) else {}  # type: ignore[union-attr]
    out: Object = {}
    if request.model:
        out["model"] = request.model
    if request.system:
        out["instructions"] = _write_system(request.system, ledger)
    if request.turns or "input" in was or not was:
        out["input"] = write_input(request.turns, ledger, was.get("input"))
    if request.tools or "tools" in was:
        tools = was.get("tools")
        written = write_tools(request.tools, ledger, Origin(NAME, None, tools) if tools else None)
        if written or "tools" in was:
            out["tools"] = written
    if request.choice is not None:
        out["tool_choice"] = write_choice(request.choice, ledger)
    if request.stream is not None:
        out["stream"] = request.stream
    write_settings(request, out, ledger)
    return finished(out, origin, NAME)


def _write_system(parts: tuple[Part, ...], ledger: Ledger) -> str:
    texts = []
    for part in parts:
        if not isinstance(part, Text):
            ledger.note("part-dropped", place(part), "instructions can hold text only")
            continue
        if part.cache is not None:
            ledger.note("cache-dropped", place(part), "a cache breakpoint in the instructions was left out")
        texts.append(part.text)
    return "\n\n".join(texts)


def write_input(turns: tuple[Turn, ...], ledger: Ledger, was: Json = None) -> Json:
    """The items; a string that came as a string stays one, an untouched list is given back itself."""
    before = [was] if isinstance(was, str) else was if isinstance(was, list) else []
    if before and len(before) == len(turns) and all(map(_is_still, turns, before)):
        return was
    items: list[Object] = []
    for turn in turns:
        write_turn(turn, items, ledger)
    return items


def _is_still(turn: Turn, item: Json) -> bool:
    return turn.origin is not None and verbatim(turn.origin, NAME) and turn.origin.wire is item


def write_turn(turn: Turn, items: list[Object], ledger: Ledger) -> None:
    """The items of a turn, in the order of its parts; text between other items is a message of its own."""
    origin = turn.origin
    if verbatim(origin, NAME) and isinstance(origin.wire, dict):  # type: ignore[union-attr]
        items.append(origin.wire)  # type: ignore[union-attr]
        return
    if not own(origin) and write_ordinary(turn, items):
        return
    if turn.name:
        ledger.note("no-counterpart", place(turn), f"the name {turn.name!r} of a turn was left out")
    run: list[Part] = []
    before = len(items)
    skipped: HostedResult | None = None
    for number, part in enumerate(turn.parts):
        if _in_message(part, turn):
            if run and message_of(run[-1]) is not message_of(part):
                _write_message(turn, run, items, ledger)
                run = []
            run.append(part)
            continue
        _write_message(turn, run, items, ledger)
        run = []
        if part is skipped:
            continue
        if isinstance(part, HostedCall):
            after = turn.parts[number + 1] if number + 1 < len(turn.parts) else None
            skipped = after if isinstance(after, HostedResult) and after.id == part.id else None
            _write_hosted_part(part, skipped, items, ledger)
        else:
            _write_part_item(part, turn, number, items, ledger)
    if run or (not turn.parts and turn.role != "tool"):
        _write_message(turn, run, items, ledger, always=len(items) == before)


def _in_message(part: Part, turn: Turn) -> bool:
    if isinstance(part, Media):
        return turn.role != "assistant"
    return isinstance(part, (Text, Refusal)) or (isinstance(part, Opaque) and part.kind.startswith(CONTENT))


def _write_message(turn: Turn, run: list[Part], items: list[Object], ledger: Ledger, always: bool = False) -> None:
    if not run and not always:
        return
    role = "user" if turn.role == "tool" else turn.role
    message = message_of(run[0]) if run and role == "assistant" else None
    if message is not None and len(run) == len(message["content"]) and all(verbatim(one.origin, NAME) for one in run):
        items.append(message)
        return
    side: Side = "output" if role == "assistant" else "input"
    content = write_content(tuple(run), side, ledger)
    if not content and content != "" and not always:
        return
    out: Object = {"type": "message", "role": role, "content": content}
    if turn.phase and role == "assistant":
        out["phase"] = turn.phase
    elif turn.phase:
        ledger.note("no-counterpart", place(turn), "the phase of a turn that is not the model's was left out")
    whole = own(turn.origin) and isinstance(turn.origin.wire, dict) and len(run) == len(turn.parts)  # type: ignore[union-attr]
    items.append(finished(out, turn.origin, NAME) if whole else out)


def _write_part_item(part: Part, turn: Turn, number: int, items: list[Object], ledger: Ledger) -> None:
    if verbatim(part.origin, NAME) and isinstance(part.origin.wire, dict):  # type: ignore[union-attr]
        items.append(part.origin.wire)  # type: ignore[union-attr]
        return
    match part:
        case Call():
            items.append(write_call(part, ledger))
        case Result():
            items.append(write_result(part, ledger))
        case Reasoning():
            _write_thought(part, items, ledger)
        case ToolsAdded(tools, origin):
            out: Object = {"type": "additional_tools", "role": "developer", "tools": write_tools(tools, ledger, origin)}
            items.append(finished(out, turn.origin, NAME) if len(turn.parts) == 1 else out)
        case HostedResult():
            _write_found_text(part, items, ledger)
        case Media():
            _write_model_media(part, items, ledger)
        case Summary():
            _write_summary(part, items, ledger)
        case ToolReference(name):
            ledger.note("tool-dropped", place(part), f"a reference to the tool {name!r} was left out")
        case _:
            _drop(part, ledger)


def _drop(part: Part, ledger: Ledger) -> None:
    if isinstance(part, Opaque):
        ledger.opaque(part)
    else:
        ledger.note("part-dropped", place(part), f"a part of type {type(part).__name__} was left out")


def _write_thought(part: Reasoning, items: list[Object], ledger: Ledger) -> None:
    """Only what this provider can verify goes back to it: its own seal, or an item that it knows by id."""
    if sealed_here(part.seal) or own(part.origin) or part.id.startswith("rs_"):
        items.append(write_reasoning(part, ledger))
        return
    ledger.note("reasoning-dropped", place(part), "thinking without a seal of the provider was left out")


def _write_summary(part: Summary, items: list[Object], ledger: Ledger) -> None:
    if not sealed_here(part.seal):
        ledger.note("part-dropped", place(part), "a summary that only its maker can read was left out")
        return
    out: Object = {"type": "compaction"}
    if part.id.startswith("cmp_") or own(part.origin):
        out["id"] = part.id
    out["encrypted_content"] = part.seal.value  # type: ignore[union-attr]
    items.append(finished({key: value for key, value in out.items() if value}, part.origin, NAME))


def _write_hosted_part(call: HostedCall, result: HostedResult | None, items: list[Object], ledger: Ledger) -> None:
    if verbatim(call.origin, NAME):
        items.append(call.origin.wire)  # type: ignore[union-attr]
    elif can_write_hosted(call.tool):
        prefix = HOSTED_TYPES.get(call.tool, HOSTED_TYPES["web_search"])[1]
        given = call.id if call.id.startswith(prefix) else made(prefix, call.id, call.arguments)
        if given != call.id:
            for part in (call, result) if result else (call,):
                ledger.note("id-rewritten", place(part), f"the id {call.id!r} became {given!r}")
        # The item has no place for what was read: it is told beside it.
        bare = result if result is None or not result.text else replace(result, text="")
        items.append(write_hosted(call, bare, ledger, given))
        if result is not None and result.text:
            _write_found_text(replace(result, sources=()), items, ledger)
    else:
        ledger.note("part-dropped", place(call), f"a call of the provider's tool {call.tool!r} was left out")
        if result is not None:
            _write_found_text(result, items, ledger)


def _write_found_text(part: HostedResult, items: list[Object], ledger: Ledger) -> None:
    text = retold(part, ledger)
    if text is not None:
        items.append({"type": "message", "role": "assistant", "content": [write_part(text, "output", ledger)]})


def _write_model_media(part: Media, items: list[Object], ledger: Ledger) -> None:
    """The model's side takes no media: an image that it made goes back as the user's."""
    written = write_part(part, "input", ledger)
    if written is not None:
        ledger.note("media-moved", place(part), f"{part.kind} of the model was moved to a user's message")
        items.append({"type": "message", "role": "user", "content": [written]})
