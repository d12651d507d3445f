"""Whole Responses requests, read and written: one turn for each item of `input`, tools and settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec
from msgspec.structs import replace

from toolwire.core.codec import Members, RequestPeek, peek_members
from toolwire.core.ids import derive_id
from toolwire.core.ir import (
    Call,
    Media,
    Opaque,
    Origin,
    Part,
    ProviderCall,
    ProviderResult,
    Reasoning,
    Request,
    Result,
    Role,
    Seal,
    Summary,
    Text,
    ToolChoice,
    ToolReference,
    ToolsAdded,
    Turn,
    source_path,
)
from toolwire.core.json_values import (
    Json,
    Malformed,
    Object,
    Path,
    expect_list,
    expect_object,
    get_bool,
    get_list,
    get_text,
)
from toolwire.core.known_tools import read_known_tools, write_known_tools
from toolwire.core.losses import Ledger
from toolwire.core.provenance import ReadContext, is_nonempty, restore_original_keys
from toolwire.core.provider_tools import is_returned_call, note_returned_result, provider_result_as_text
from toolwire.core.tool_choice import LONGEST_MODE, fit_tool_choice, has_other_choice, replace_tool_choice
from toolwire.protocols.openai_responses import names
from toolwire.protocols.openai_responses.content import (
    read_agent_message,
    read_content,
    read_item_origin,
    write_content,
    write_part,
)
from toolwire.protocols.openai_responses.items import (
    is_run_by_provider,
    read_call,
    read_model_item,
    read_result,
    read_tools_added,
    write_call,
    write_provider_item,
    write_reasoning,
    write_result,
)
from toolwire.protocols.openai_responses.names import NAME, intact_wire, is_own, is_own_seal
from toolwire.protocols.openai_responses.response import (
    is_message_part,
    is_whole_message,
    note_dropped_part,
    source_message,
)
from toolwire.protocols.openai_responses.settings import find_refused_settings, read_settings, write_settings
from toolwire.protocols.openai_responses.tools import (
    ADDITIONAL_TOOLS,
    flatten_choice,
    has_other_shape,
    is_written,
    read_max_tool_calls,
    read_tool_choice,
    read_tools,
    tools_added_by,
    write_tool_choice,
    write_tools,
)

MESSAGE_KEYS = frozenset({"type", "role", "content", "phase"})
COMPACTION_KEYS = frozenset({"type", "id", "encrypted_content"})


def peek_request(members: Members) -> RequestPeek | None:
    found, choice = peek_members(members), members.get("tool_choice")
    if found is None:
        return None
    if choice is not None and len(choice) > LONGEST_MODE:
        found = replace(found, is_unusual=has_other_choice(choice, has_other_shape))
    if members.keys().isdisjoint(_CONTINUING_KEYS):
        return found
    ids = [_read_id(members.get(key)) for key in _CONTINUING_KEYS]
    return replace(found, continues=next(filter(None, ids), ""), conversation=ids[-1])


def _read_id(value: msgspec.Raw | None) -> str:
    """An id, or that of an object."""
    found = None if value is None else _decode_value(value)
    found = found.get("id") if isinstance(found, dict) else found
    return found if isinstance(found, str) else ""


_CONTINUING_KEYS = ("previous_response_id", "conversation")
_decode_value = msgspec.json.decode


def flatten_tool_choice(body: Object) -> Object:
    """A body whose tool choice has the shape of another protocol, as OpenAI takes it here."""
    return replace_tool_choice(body, flatten_choice(body["tool_choice"]))


def read_request(body: Object) -> Request:
    if type(body.get("tool_choice")) is dict and has_other_shape(body["tool_choice"]):
        body = flatten_tool_choice(body)
    reading = ReadContext(NAME)
    settings, known = read_settings(body, reading)
    system: tuple[Text, ...] = ()
    instructions = get_text(body, "instructions", None)
    if instructions is not None:
        origin = Origin(NAME, (None, "instructions"), instructions)
        system = (Text(instructions, (), None, None, origin),)
    tools = get_list(body, "tools", None)
    offered = () if tools is None else read_known_tools(read_tools, tools, (None, "tools"), reading)
    if "max_tool_calls" in body:
        limited = read_max_tool_calls(body, offered)
        known |= {"max_tool_calls"} if limited is not offered else frozenset()
        offered = limited
    model = get_text(body, "model", None) or ""
    turns, refers = read_input(body.get("input"), (None, "input"), reading)
    choice = read_tool_choice(body.get("tool_choice"), (None, "tool_choice"), reading)
    stream = get_bool(body, "stream", None) if "stream" in body else None
    if not turns and not system:
        _refuse_missing_input(body)
    return Request(
        model,
        system,
        turns,
        offered,
        choice,
        stream,
        settings,
        # OpenAI has earlier turns: a response, a conversation, a stored prompt, or items that are only referred to.
        refers or any(map(body.get, names.TURN_SOURCES)),
        _request_origin(body, known, reading),
        tuple(reading.unknown_fields),
    )


def _refuse_missing_input(body: Object) -> None:
    if isinstance(body.get("prompt"), str):
        raise Malformed((None, "prompt"), "expected a stored prompt's object, got a string: text goes into `input`")
    if body.get("input") is None and not any(map(body.get, names.TURN_SOURCES)):
        raise Malformed(None, "`input` is missing")


def _request_origin(body: Object, understood_keys: frozenset[str], reading: ReadContext) -> Origin:
    """The request's origin. Keys that the settings have read (`include`, `user`) are kept but not noted as unknown."""
    if names.REQUEST_KEYS.issuperset(body):
        return Origin(NAME, None, body)
    extra = {key: value for key, value in body.items() if key not in names.REQUEST_KEYS}
    for key, value in extra.items():
        if key not in understood_keys and is_nonempty(value):
            reading.note_unknown_field(None, key)
    return Origin(NAME, None, body, extra)


def read_input(value: Json, path: Path, reading: ReadContext) -> tuple[tuple[Turn, ...], bool]:
    """The turns, and whether some items are only referred to."""
    if value is None:
        return (), False
    if value.__class__ is str:
        origin = Origin(NAME, path, value)
        return (Turn("user", (Text(value, origin=origin),), origin=origin),), False
    items = expect_list(value, path)
    types = [item.get("type") for item in items if isinstance(item, dict)]
    provider_run_ids: list[Json] = []
    if "shell_call" in types:
        shells = [item for item in items if isinstance(item, dict) and item.get("type") == "shell_call"]
        provider_run_ids = [item.get("call_id") for item in shells if is_run_by_provider(item)]
    turns = [read_turn(item, (path, number), reading, provider_run_ids) for number, item in enumerate(items)]
    return tuple(turns), "item_reference" in types


def read_turn(value: Json, path: Path, reading: ReadContext, provider_run_ids: list[Json]) -> Turn:
    """One item as one turn. The results of calls that the provider ran itself are the provider's own, too."""
    node = value if type(value) is dict else expect_object(value, path)
    kind: Json = node.get("type")
    if type(kind) is not str or not kind:
        kind = get_text(node, "type", path) or ("message" if "role" in node else "item_reference")
    reader = _TURN_READERS.get(kind)
    if reader is not None:
        return reader(node, path, reading)
    shape = names.SHAPE_BY_OUTPUT_TYPE.get(kind)
    if shape is not None and not is_run_by_provider(node) and node.get("call_id") not in provider_run_ids:
        return _read_result_turn(node, path, reading)
    if kind == FOUND_TOOLS_TYPE and isinstance(node.get("tools"), list) and node["tools"]:
        return _read_found_tools(node, path, reading)
    if kind == "compaction" and node.get("encrypted_content"):
        return _read_compaction(node, path, reading)
    if shape is not None or kind in names.CLIENT_ITEM_TYPES:
        opaque = Opaque(kind, Origin(NAME, path, node))
        return Turn("user" if kind in names.CLIENT_ITEM_TYPES else "assistant", (opaque,), origin=opaque.origin)
    parts = read_model_item(node, path, reading)
    return Turn("assistant", parts, "", "", parts[0].origin)


def _read_call_turn(node: Object, path: Path, reading: ReadContext) -> Turn:
    call = read_call(node, path, names.SHAPE_BY_CALL_TYPE[node["type"]], reading)
    return Turn("assistant", (call,), "", "", call.origin)


def _read_result_turn(node: Object, path: Path, reading: ReadContext) -> Turn:
    result = read_result(node, path, names.SHAPE_BY_OUTPUT_TYPE[node["type"]], reading)
    return Turn("tool", (result,), "", "", result.origin)


def _read_compaction(node: Object, path: Path, reading: ReadContext) -> Turn:
    seal = Seal(NAME, get_text(node, "encrypted_content", path) or "")
    origin = read_item_origin(reading, node, path, COMPACTION_KEYS, "id")
    return Turn("user", (Summary("", seal, get_text(node, "id", path) or "", origin),), origin=origin)


def _read_message(node: Object, path: Path, reading: ReadContext) -> Turn:
    word = get_text(node, "role", path)
    role = names.ROLES.get(word or "")
    if role is None:
        raise Malformed((path, "role"), f"unknown role {word!r}; known are {', '.join(names.ROLES)}")
    parts = read_content(node.get("content"), (path, "content"), reading)
    phase = get_text(node, "phase", path) or "" if "phase" in node else ""
    return Turn(role, parts, "", phase, read_item_origin(reading, node, path, MESSAGE_KEYS))


def _read_additional_tools(node: Object, path: Path, reading: ReadContext) -> Turn:
    role, added = names.ROLES.get(str(node.get("role")), "developer"), read_tools_added(node, path, reading)
    return Turn(role, (added,), origin=read_item_origin(reading, node, path, frozenset({"type", "role", "tools"})))


FOUND_TOOLS_TYPE = names.SHAPE_BY_KIND["search"].output_type
FOUND_TOOLS_KEYS = frozenset({"type", "tools"})


def _read_found_tools(node: Object, path: Path, reading: ReadContext) -> Turn:
    """What a search found that OpenAI ran itself. A client could have written it, so its tools are tools as others."""
    added = read_tools_added(node, path, reading)
    return Turn("assistant", (added,), origin=read_item_origin(reading, node, path, FOUND_TOOLS_KEYS))


def _write_found_tools(turn: Turn, ledger: Ledger) -> Object | None:
    """The item of such a turn, also if a rule has removed all its tools; None for any other turn."""
    wire = turn.origin.wire if is_own(turn.origin) and turn.role == "assistant" else None
    was = wire if isinstance(wire, dict) and wire.get("type") == FOUND_TOOLS_TYPE else None
    if was is None and not (turn.role == "assistant" and [*map(type, turn.parts)] == [ToolsAdded]):
        return None
    tools = tuple([tool for part in turn.parts for tool in tools_added_by(part)])
    item = was or {"type": FOUND_TOOLS_TYPE, "call_id": None, "execution": "server", "status": "completed"}
    return {**item, "tools": write_tools(tools, ledger)}


_TURN_READERS: Mapping[str, Callable[[Object, Path, ReadContext], Turn]] = {
    "message": _read_message,
    "agent_message": read_agent_message,
    ADDITIONAL_TOOLS: _read_additional_tools,
    "function_call": _read_call_turn,
    "function_call_output": _read_result_turn,
}
"""Readers of the items whose type alone says how they are read."""


def write_request(request: Request, ledger: Ledger) -> Object:
    origin = request.origin
    if (wire := intact_wire(origin)) is not None and not find_refused_settings(request):
        return wire
    was: Object = origin.wire if is_own(origin) else {}
    out: Object = {}
    if request.model:
        out["model"] = request.model
    if request.system:
        out["instructions"] = _write_system(request.system, ledger)
    if request.turns or "input" in was or not was:
        out["input"] = write_input(request.turns, ledger, was.get("input"))
    if request.tools or "tools" in was:
        tools = was.get("tools")
        if tools:
            written = write_tools(request.tools, ledger, Origin(NAME, None, tools))
        else:
            written = write_known_tools(write_tools, request.tools, ledger)
        if written or "tools" in was:
            out["tools"] = written
    if request.choice is not None and (choice := _fit_tool_choice(request, request.choice, ledger)) is not None:
        out["tool_choice"] = write_tool_choice(choice, ledger)
    if request.stream is not None:
        out["stream"] = request.stream
    write_settings(request, out, ledger)
    return restore_original_keys(out, origin, NAME)


def _fit_tool_choice(request: Request, choice: ToolChoice, ledger: Ledger) -> ToolChoice | None:
    """The choice among the tools that are sent; None if a call is forced and there are none. Tools can also be added in
    the conversation, or come with a stored response."""
    if request.has_provider_history:
        return choice
    if choice.mode in ("auto", "none"):
        return choice
    added = [tool for turn in request.turns for part in turn.parts for tool in tools_added_by(part)]
    if any(map(is_written, (*request.tools, *added))):
        return fit_tool_choice(choice, (*request.tools, *added), is_written, ledger)
    ledger.note("choice-weakened", source_path(choice), "the forced call was left out", "there are no tools")
    return None


def _write_system(parts: tuple[Part, ...], ledger: Ledger) -> str:
    texts = []
    for part in parts:
        if not isinstance(part, Text):
            ledger.note("part-dropped", source_path(part), "instructions can hold text only")
            continue
        if part.cache is not None:
            ledger.note("cache-dropped", source_path(part), "a cache breakpoint in the instructions was left out")
        texts.append(part.text)
    return "\n\n".join(texts)


def write_input(turns: tuple[Turn, ...], ledger: Ledger, received: Json = None) -> Json:
    """The items; unchanged input is given back as it was."""
    before = [received] if isinstance(received, str) else received if isinstance(received, list) else []
    if before and len(before) == len(turns):
        pairs = zip(turns, before, strict=True)
        if all(is_own(turn.origin) and turn.origin.intact and turn.origin.wire is item for turn, item in pairs):
            return received
    items: list[Object] = []
    for turn in turns:
        write_turn(turn, items, ledger)
    return items


def write_turn(turn: Turn, items: list[Object], ledger: Ledger) -> None:
    """The items of a turn, in the order of its parts; texts between other items are a message of their own."""
    if (wire := intact_wire(turn.origin)) is not None:
        items.append(wire)
        return
    if turn.name:
        ledger.note("no-counterpart", source_path(turn), f"the name {turn.name!r} of a turn was left out")
    if (found_tools := _write_found_tools(turn, ledger)) is not None:
        items.append(found_tools)
        return
    before = len(items)
    run: list[Part] = []
    for part in turn.parts:
        writer = _ITEM_WRITERS.get(type(part))
        if run and (writer is not None or not _shares_item(run[-1], part, turn.role)):
            _write_run(run, turn, items, ledger)
            run = []
        if writer is None:
            run.append(part)
        else:
            items.append(intact_wire(part.origin) or writer(part, ledger))
    if run or (not turn.parts and turn.role != "tool"):
        _write_run(run, turn, items, ledger, even_if_empty=len(items) == before)
    if turn.role == "user" and len(items) == before:
        # Nothing of it could be written, and the ledger says so. But it asks for the answer, and OpenAI refuses a
        # request without input.
        items.append({"type": "message", "role": "user", "content": ""})


_ITEM_WRITERS: Mapping[type, Callable[..., Object]] = {Call: write_call, Result: write_result}


def _belongs_in_message(part: Part, role: Role) -> bool:
    return is_message_part(part) or (type(part) is Media and role != "assistant")


def _shares_item(last: Part, part: Part, role: Role) -> bool:
    """Are these two neighbours in one item: texts of one message, or a provider's tool and what it found?"""
    if isinstance(part, ProviderResult):
        return isinstance(last, ProviderCall) and last.id == part.id
    if not _belongs_in_message(part, role) or not _belongs_in_message(last, role):
        return False
    return source_message(last) is source_message(part)


def _write_run(run: list[Part], turn: Turn, items: list[Object], ledger: Ledger, even_if_empty: bool = False) -> None:
    """Write the parts of one item; an empty message only where the turn would not be there at all without it."""
    if run and not _belongs_in_message(run[0], turn.role):
        _write_other_item(run, turn, items, ledger)
        return
    role = "user" if turn.role == "tool" else turn.role
    message = source_message(run[0]) if run and role == "assistant" else None
    if message is not None and is_whole_message(run, message):
        items.append(message)
        return
    content = write_content(run, "output" if role == "assistant" else "input", ledger)
    if not content and content != "" and not even_if_empty:
        return
    out: Object = {"type": "message", "role": role, "content": content}
    if turn.phase and role == "assistant":
        out["phase"] = turn.phase
    elif turn.phase:
        ledger.note("no-counterpart", source_path(turn), "the phase of a turn that is not the model's was left out")
    whole = is_own(turn.origin) and isinstance(turn.origin.wire, dict) and len(run) == len(turn.parts)
    items.append(restore_original_keys(out, turn.origin, NAME) if whole else out)


def _write_other_item(run: list[Part], turn: Turn, items: list[Object], ledger: Ledger) -> None:
    part = run[0]
    if (wire := intact_wire(part.origin)) is not None:
        items.append(wire)
        return
    match part:
        case ProviderCall():
            result = run[1] if len(run) > 1 and isinstance(run[1], ProviderResult) else None
            _write_provider_call(part, result, items, ledger)
        case Reasoning():
            _write_reasoning(part, items, ledger)
        case ToolsAdded(tools, origin):
            out: Object = {"type": ADDITIONAL_TOOLS, "role": "developer", "tools": write_tools(tools, ledger, origin)}
            items.append(restore_original_keys(out, turn.origin, NAME) if len(turn.parts) == 1 else out)
        case ProviderResult():
            _write_provider_result_text(part, items, ledger)
        case Media():
            _write_model_media(part, items, ledger)
        case Summary():
            _write_compaction(part, items, ledger)
        case ToolReference(name):
            ledger.note("tool-dropped", source_path(part), f"a reference to the tool {name!r} was left out")
        case _:
            note_dropped_part(part, ledger)


def _write_reasoning(part: Reasoning, items: list[Object], ledger: Ledger) -> None:
    """OpenAI accepts only reasoning that it can verify: with its own seal, or an item that it knows by its id."""
    if is_own_seal(part.seal) or is_own(part.origin) or part.id.startswith("rs_"):
        items.append(write_reasoning(part, ledger))
        return
    ledger.note("reasoning-dropped", source_path(part), "reasoning without OpenAI's seal was left out")


def _write_compaction(part: Summary, items: list[Object], ledger: Ledger) -> None:
    if not is_own_seal(part.seal):
        ledger.note("part-dropped", source_path(part), "a summary that only its maker can read was left out")
        return
    out: Object = {"type": "compaction"}
    if part.id.startswith("cmp_") or is_own(part.origin):
        out["id"] = part.id
    out["encrypted_content"] = part.seal.value
    items.append(restore_original_keys({key: value for key, value in out.items() if value}, part.origin, NAME))


def _write_provider_call(
    call: ProviderCall, result: ProviderResult | None, items: list[Object], ledger: Ledger
) -> None:
    if call.tool in names.PROVIDER_ITEM_BY_TOOL:
        prefix = names.PROVIDER_ITEM_BY_TOOL[call.tool][1]
        given = call.id if call.id.startswith(prefix) else derive_id(prefix, call.id, call.arguments)
        if given != call.id:
            for part in (call, result) if result else (call,):
                ledger.note("id-rewritten", source_path(part), f"the id {call.id!r} became {given!r}")
        # Most items have no place for text that was found: it becomes a message after the item.
        holds_text = call.tool == "code_execution" or result is None or not result.text
        bare = result if holds_text or result is None else replace(result, text="")
        items.append(write_provider_item(call, bare, ledger, given))
        if not holds_text and result is not None and is_returned_call(result, prefix):
            note_returned_result(result, ledger)
        elif not holds_text and result is not None:
            _write_provider_result_text(replace(result, sources=()), items, ledger)
    else:
        ledger.note("part-dropped", source_path(call), f"a call of the provider's tool {call.tool!r} was left out")
        if result is not None:
            _write_provider_result_text(result, items, ledger)


def _write_provider_result_text(part: ProviderResult, items: list[Object], ledger: Ledger) -> None:
    text = provider_result_as_text(part, ledger)
    if text is not None:
        items.append({"type": "message", "role": "assistant", "content": [write_part(text, "output", ledger)]})


def _write_model_media(part: Media, items: list[Object], ledger: Ledger) -> None:
    """The model's messages cannot hold media: an image that it made goes back as the user's."""
    written = write_part(part, "input", ledger)
    if written is not None:
        ledger.note("media-moved", source_path(part), f"{part.kind} of the model was moved to a user's message")
        items.append({"type": "message", "role": "user", "content": [written]})
