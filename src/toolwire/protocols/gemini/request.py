"""Requests. The model and the stream flag stand outside the body; the SDKs' `config` object is accepted too."""

from __future__ import annotations

from itertools import groupby, pairwise

from msgspec.structs import replace

from toolwire.core.ir import (
    EMPTY_MAPPING,
    AnyTool,
    Call,
    Origin,
    Part,
    Reasoning,
    Request,
    Result,
    Role,
    Text,
    ToolChoice,
    Turn,
    replace_fields,
    source_path,
)
from toolwire.core.json_values import (
    Json,
    Malformed,
    Object,
    Path,
    expect_list,
    expect_object,
    expect_text,
    get_list,
    get_object,
    get_text,
)
from toolwire.core.losses import Ledger
from toolwire.core.provenance import is_verbatim, restore_original_keys
from toolwire.protocols.gemini.content import PartReadContext, read_parts
from toolwire.protocols.gemini.content_writer import PART_WRITERS, PartWriteContext, is_own_seal, write_part, write_text
from toolwire.protocols.gemini.models import Family, family
from toolwire.protocols.gemini.names import (
    CONTENT_KEYS,
    FORMAT_KEY_SET,
    GENERATION_CONFIG_KEYS,
    NAME,
    PLACEHOLDER_SIGNATURE,
    REQUEST_KEYS,
    ROLES,
    SDK_CONFIG_KEYS,
    TOOL_CONFIG_KEYS,
    TOP_LEVEL_CONFIG_KEYS,
    to_snake_case,
)
from toolwire.protocols.gemini.settings import (
    SettingsCollector,
    read_generation_config,
    read_service_tier,
    write_generation_config,
    write_service_tier,
)
from toolwire.protocols.gemini.tools import (
    declares_functions,
    needs_server_side_invocations,
    read_tool_choice,
    read_tools,
    write_tool_choice,
    write_tools,
)

# --- reading --------------------------------------------------------------------------------------------------------


def read_request(body: Object) -> Request:
    reading = PartReadContext()
    node = REQUEST_KEYS(expect_object(body, None))
    origin = reading.read_origin(body, None, REQUEST_KEYS.all_keys)
    if node.get("contents") is None:
        raise Malformed(None, "`contents` is missing")
    turns = read_turns(node["contents"], (None, "contents"), reading)
    gathered = SettingsCollector()
    generation = get_object(node, "generationConfig", None)
    if generation is not None:
        here = (None, "generationConfig")
        read_generation_config(
            reading.read_inner_node(generation, here, GENERATION_CONFIG_KEYS), here, reading, gathered
        )
    read_service_tier(node, None, gathered)
    boxes: list[tuple[Object, Path]] = [(node, None)]
    config = get_object(node, "config", None)
    if config is not None:
        spelled = reading.read_inner_node(config, (None, "config"), SDK_CONFIG_KEYS)
        read_generation_config(spelled, (None, "config"), reading, gathered)
        read_service_tier(spelled, (None, "config"), gathered)
        boxes.append((spelled, (None, "config")))
    system, tools, choice = _read_system_and_tools(boxes, reading)
    return Request(
        get_text(node, "model", None) or "",
        tuple(system),
        tuple(turns),
        tools,
        choice,
        settings=gathered.build_settings(),
        continues=any(TOP_LEVEL_CONFIG_KEYS(box).get("cachedContent") is not None for box, _ in boxes),
        origin=origin,
        unknown_fields=tuple(reading.unknown_fields),
    )


def _read_system_and_tools(
    nodes: list[tuple[Object, Path]], reading: PartReadContext
) -> tuple[list[Part], tuple[AnyTool, ...], ToolChoice | None]:
    """Instructions, tools and the choice among them, from the body or from `config`."""
    system: list[Part] = []
    tools: tuple[AnyTool, ...] = ()
    choice: ToolChoice | None = None
    for node, path in nodes:
        if node.get("systemInstruction") is not None:
            system.extend(read_system(node["systemInstruction"], (path, "systemInstruction"), reading))
        if node.get("tools") is not None:
            read = read_tools(node["tools"], (path, "tools"), reading)
            tools = (*tools, *read) if tools else read
        if node.get("toolConfig") is not None and choice is None:
            choice = read_tool_choice(node["toolConfig"], (path, "toolConfig"), reading)
    return system, tools, choice


def read_system(value: Json, path: Path, reading: PartReadContext) -> list[Part]:
    if isinstance(value, str):
        return [Text(value, origin=reading.whole_origin({"text": value}, path))]
    content = reading.read_inner_node(expect_object(value, path), path, CONTENT_KEYS)
    return read_parts(get_list(content, "parts", path) or [], (path, "parts"), reading)


def read_turns(value: Json, path: Path, reading: PartReadContext) -> list[Turn]:
    turns: list[Turn] = []
    if isinstance(value, (str, dict)):
        value = [value]
    for number, item in enumerate(expect_list(value, path)):
        here = (path, number)
        if item.__class__ is dict and len(item) == 2 and reading.open_call is None:
            # The short way for nearly all turns: a role in the usual spelling and parts, nothing else.
            word, items = item.get("role"), item.get("parts")
            if items.__class__ is list and (word == "user" or word == "model"):
                parts = tuple(read_parts(items, (here, "parts"), reading))
                role: Role = "user" if word == "user" else "assistant"
                turns.append(Turn(role, parts, origin=Origin(NAME, here, item)))
                continue
        if isinstance(item, str):
            text = Text(item, origin=reading.whole_origin({"text": item}, here))
            turns.append(Turn("user", (text,), origin=Origin(NAME, here, {"parts": [{"text": item}], "role": "user"})))
            continue
        _read_turn(expect_object(item, here), here, reading, turns)
    if reading.open_call is not None:
        _close_open_call(reading, turns)
    return _merge_model_turns(turns)


def _merge_model_turns(turns: list[Turn]) -> list[Turn]:
    """What the model said in one go as one turn: chats of the SDKs send a content for every chunk of a stream."""
    if not any(one.role == two.role == "assistant" for one, two in pairwise(turns)):
        return turns
    whole: list[Turn] = []
    for role, group in groupby(turns, lambda turn: turn.role):
        run = list(group)
        whole += run if role != "assistant" or len(run) == 1 else [_join_turns(run)]
    return whole


def _join_turns(run: list[Turn]) -> Turn:
    parts: list[Part] = []
    pieces: list[str] = []
    for turn in run:
        for number, part in enumerate(turn.parts):
            last = parts[-1] if parts else None
            if number == 0 and _continues_part(last, part):
                pieces.append(part.text)  # type: ignore[union-attr]
                continue
            _join_pieces(parts, pieces)
            parts.append(part)
    _join_pieces(parts, pieces)
    origins = [turn.origin for turn in run if turn.origin is not None]
    wires = [origin.wire for origin in origins]
    intact = all(origin.intact for origin in origins)
    return replace(run[0], parts=tuple(parts), origin=Origin(NAME, origins[0].path, wires, EMPTY_MAPPING, intact))


def _continues_part(last: Part | None, part: Part) -> bool:
    """Are these pieces of one text or one thought? What is signed stays as it is."""
    if type(last) is not type(part) or not isinstance(part, (Text, Reasoning)) or part.seal is not None:
        return False
    return last.seal is None and not any(one.origin is not None and one.origin.extra for one in (last, part))  # type: ignore[union-attr]


def _join_pieces(parts: list[Part], pieces: list[str]) -> None:
    if pieces:
        begun = parts[-1]
        parts[-1] = replace_fields(begun, text="".join([begun.text, *pieces]))  # type: ignore[union-attr]
        pieces.clear()


def _read_turn(node: Object, path: Path, reading: PartReadContext, turns: list[Turn]) -> None:
    word = node.get("role")
    role = ROLES.get(word) if word.__class__ is str else None
    if role is None:
        role = _read_role(word, path)
    if reading.open_call is not None and (role != "assistant" or not turns or turns[-1].role != "assistant"):
        _close_open_call(reading, turns)
    continues = reading.open_call is not None
    items = get_list(node, "parts", path)
    parts = tuple(read_parts(items, (path, "parts"), reading)) if items else ()
    origin = reading.read_origin(node, path, CONTENT_KEYS.all_keys)
    if continues:
        # The pieces of one call came in several contents: they are one turn, and no longer word for word.
        turns[-1] = replace_fields(turns[-1], parts=turns[-1].parts + parts)
    else:
        turns.append(Turn(role, parts, origin=origin))


def _read_role(word: Json, path: Path) -> Role:
    """A role in another case, or none, which means the user's."""
    role: Role | None = ROLES.get(expect_text(word, (path, "role")).lower()) if word else "user"
    if role is None:
        raise Malformed((path, "role"), f'expected "user" or "model", got {word!r}')
    return role


def _close_open_call(reading: PartReadContext, turns: list[Turn]) -> None:
    """A call whose last piece never came."""
    call, reading.open_call = reading.open_call, None
    if call is not None and turns:
        turns[-1] = replace_fields(turns[-1], parts=(*turns[-1].parts, call.make_call(incomplete=True)))


# --- writing --------------------------------------------------------------------------------------------------------


def write_request(request: Request, ledger: Ledger) -> Object:
    model = family(request.model)
    unsigned = find_unsigned_calls(request.turns) if model.is_gemini_3 else {}
    origin, settings = request.origin, request.settings
    own = origin if origin is not None and origin.protocol == NAME else None
    if own is not None and own.intact and not unsigned:
        wire: Object = own.wire
        return wire
    # What has no origin counts as our own.
    writing = PartWriteContext(ledger, model, is_foreign=own is not origin, writes_ids=not model.is_gemini_2)
    out: Object = {} if own is None else _write_model(request.model, own)
    if request.system:
        parts = _write_parts(request.system, writing, None)
        if parts:
            out["systemInstruction"] = {"parts": parts} if own is None else _write_system(parts, own)
    out["contents"] = write_turns(request.turns, writing, unsigned)
    boxes = write_tools(request.tools, model, ledger) if request.tools else []
    if boxes:
        out["tools"] = boxes
    functions = declares_functions(boxes)
    config = _write_tool_config(request, boxes, functions, model, ledger)
    if config:
        out["toolConfig"] = config
    generation = write_generation_config(settings, model, functions, ledger)
    if own is not None:
        _add_unknown_keys(own, settings.format is None, out, generation)
    if generation or (own is not None and _original_node(own, "generationConfig") is not None):
        out["generationConfig"] = generation
    if settings.tier is not None:
        tier = write_service_tier(settings.tier, settings.where.get("tier"), ledger)
        if tier is not None:
            out["serviceTier"] = tier
    return out if own is None else restore_original_keys(out, own, NAME)


_WIRE_ROLES = {"assistant": "model", "user": "user", "tool": "user"}


def write_turns(turns: tuple[Turn, ...], writing: PartWriteContext, unsigned_calls: dict[int, Call]) -> list[Object]:
    contents: list[Object] = []
    for number, turn in enumerate(turns):
        if writing.is_foreign and turn.role in _WIRE_ROLES and not turn.name and not turn.phase:
            # The short way: a turn of another protocol that is a role and parts, nothing else.
            parts = _write_parts(turn.parts, writing, unsigned_calls.get(number) if unsigned_calls else None)
            contents.append({"parts": parts or [{"text": ""}], "role": _WIRE_ROLES[turn.role]})
        else:
            contents += write_turn(turn, writing, unsigned_calls.get(number))
    return contents


def write_turn(turn: Turn, writing: PartWriteContext, unsigned_call: Call | None) -> list[Object]:
    """A turn as one content; one that came in several, and is still as it was, goes out in several."""
    if unsigned_call is None and is_verbatim(turn.origin, NAME):
        for part in turn.parts:
            if isinstance(part, Call) and part.id:
                writing.call_names[part.id] = part.name
        wire: Object | list[Object] = turn.origin.wire  # type: ignore[union-attr]
        return wire if isinstance(wire, list) else [wire]
    if turn.role in ("system", "developer"):
        writing.ledger.note("role-mapped", source_path(turn), f"a {turn.role} turn became the user's")
    for what in ("name", "phase"):
        if getattr(turn, what):
            writing.ledger.note("no-counterpart", source_path(turn), f"the {what} `{getattr(turn, what)}` was left out")
    parts = _write_parts(turn.parts, writing, unsigned_call)
    # This wire refuses a content without parts, and the order of turns must hold.
    out: Object = {"parts": parts or [{"text": ""}], "role": _WIRE_ROLES.get(turn.role, "user")}
    return [restore_original_keys(out, turn.origin, NAME)]


def _write_parts(parts: tuple[Part, ...], writing: PartWriteContext, unsigned_call: Call | None) -> list[Object]:
    foreign = writing.is_foreign
    if foreign and len(parts) == 1 and parts[0].__class__ is Text:
        return [write_text(parts[0], writing)]
    out: list[Object] = []
    behind = 0
    for part in parts:
        written = PART_WRITERS[part.__class__](part, writing) if foreign else write_part(part, writing)
        if written is None:
            continue
        if part is unsigned_call:
            written = {**written, "thoughtSignature": PLACEHOLDER_SIGNATURE}
            what = f"the call of `{unsigned_call.name}` got the placeholder for a signature"
            writing.ledger.note("signature-added", source_path(part), what)
        out.append(written)
        if part.__class__ is Result:
            behind = len(out)
    if writing.media_after_results:
        out[behind:behind] = writing.media_after_results
        writing.media_after_results = []
    return out


def find_unsigned_calls(turns: tuple[Turn, ...]) -> dict[int, Call]:
    """The first call of each step in which nothing is signed, by the number of its turn. Only the steps of the current
    turn are looked at by the service, but what it was sent once must stay as it was when the conversation goes on."""
    found: dict[int, Call] = {}
    first: tuple[int, Call] | None = None
    signed = False
    for number in range(len(turns) + 1):
        turn = turns[number] if number < len(turns) else None
        if turn is None or turn.role != "assistant":
            if first is not None and not signed:
                found[first[0]] = first[1]
            first, signed = None, False
            continue
        for part in turn.parts:
            if isinstance(part, Call):
                first = first or (number, part)
                signed = signed or (part.seal is not None and is_own_seal(part.seal))
    return found


def _write_model(model: str, origin: Origin) -> Object:
    """The model stands in the body only where it stood there."""
    if "model" not in origin.wire:
        return {}
    prefix = "models/" if str(origin.wire["model"]).startswith("models/") and "/" not in model else ""
    return {"model": prefix + model}


def _write_system(parts: list[Object], origin: Origin) -> Object:
    held = _original_node(origin, "systemInstruction")
    role = held.get("role") if isinstance(held, dict) else None
    extra = {} if not isinstance(held, dict) else CONTENT_KEYS.select_unknown(held)
    return {"parts": parts} | ({"role": role} if role else {}) | extra


def _write_tool_config(
    request: Request, entries: list[Object], has_functions: bool, model: Family, ledger: Ledger
) -> Object:
    declared = has_functions or any("function_declarations" in box for box in entries)
    written = write_tool_choice(request.choice, declared, ledger) if request.choice is not None else None
    config = written if written is not None else _unknown_keys(request.origin, "toolConfig", TOOL_CONFIG_KEYS.all_keys)
    key = "includeServerSideToolInvocations"
    if (
        model.is_gemini_3
        and needs_server_side_invocations(request.tools, entries)
        and not config.get(key)
        and not config.get(to_snake_case(key))
    ):
        config = {**config, key: True}
        what = "the provider shows what its own tools did, because functions stand beside them"
        ledger.note("default-added", source_path(request), what)
    return config


def _original_node(origin: Origin | None, key: str) -> Json:
    """A node of the request as it was read, in either spelling."""
    if origin is None or origin.protocol != NAME or not isinstance(origin.wire, dict):
        return None
    return origin.wire.get(key, origin.wire.get(to_snake_case(key)))


def _unknown_keys(origin: Origin | None, key: str, known: frozenset[str]) -> Object:
    """The unknown keys of a node that has no counterpart in the internal form, when it came from this wire."""
    held = _original_node(origin, key)
    return {name: value for name, value in held.items() if name not in known} if isinstance(held, dict) else {}


def _add_unknown_keys(origin: Origin, without_format: bool, out: Object, generation: Object) -> None:
    """What has no counterpart, from this wire. Unknown keys of the SDKs' `config` go where the wire has them."""
    generation |= _unknown_keys(origin, "generationConfig", GENERATION_CONFIG_KEYS.all_keys)
    if without_format:
        # A format that only this wire has (`text/x.enum`) stands in keys that we know.
        generation |= _unknown_keys(
            origin, "generationConfig", GENERATION_CONFIG_KEYS.all_keys - FORMAT_KEY_SET.all_keys
        )
    for key, value in _unknown_keys(origin, "config", SDK_CONFIG_KEYS.all_keys).items():
        (out if key in TOP_LEVEL_CONFIG_KEYS.all_keys else generation)[key] = value
