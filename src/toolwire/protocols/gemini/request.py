"""Requests. The model and the stream flag stand outside the body; the SDKs' `config` object is accepted too."""

from __future__ import annotations

from itertools import groupby, pairwise

from msgspec.structs import replace

from toolwire.ir import (
    NOTHING,
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
    changed,
    place,
)
from toolwire.loss import Ledger
from toolwire.protocols.gemini.details.parts_write import WRITERS, Writing, own_seal, write_part, write_text
from toolwire.protocols.gemini.details.settings import (
    Gathered,
    read_generation,
    read_tier,
    write_generation,
    write_tier,
)
from toolwire.protocols.gemini.models import Family, family
from toolwire.protocols.gemini.names import (
    BESIDE,
    CONFIG,
    CONTENT,
    FORMAT,
    GENERATION,
    NAME,
    PLACEHOLDER,
    REQUEST,
    ROLES,
    TOOL_CONFIG,
    snake,
)
from toolwire.protocols.gemini.parts import PartReading, read_parts
from toolwire.protocols.gemini.tools import (
    declares_functions,
    needs_circulation,
    read_choice,
    read_tools,
    write_choice,
    write_tools,
)
from toolwire.reading import finished, verbatim
from toolwire.wire import Json, Malformed, Object, Path, as_list, as_object, as_text, take_list, take_object, take_text

# --- reading --------------------------------------------------------------------------------------------------------


def read_request(body: Object) -> Request:
    reading = PartReading()
    node = REQUEST(as_object(body, None))
    origin = reading.origin(body, None, REQUEST.known)
    if node.get("contents") is None:
        raise Malformed(None, "`contents` is missing")
    turns = read_turns(node["contents"], (None, "contents"), reading)
    gathered = Gathered()
    generation = take_object(node, "generationConfig", None)
    if generation is not None:
        here = (None, "generationConfig")
        read_generation(reading.inner(generation, here, GENERATION), here, reading, gathered)
    read_tier(node, None, gathered)
    boxes: list[tuple[Object, Path]] = [(node, None)]
    config = take_object(node, "config", None)
    if config is not None:
        spelled = reading.inner(config, (None, "config"), CONFIG)
        read_generation(spelled, (None, "config"), reading, gathered)
        read_tier(spelled, (None, "config"), gathered)
        boxes.append((spelled, (None, "config")))
    system, tools, choice = _read_boxes(boxes, reading)
    return Request(
        take_text(node, "model", None) or "",
        tuple(system),
        tuple(turns),
        tools,
        choice,
        settings=gathered.settings(),
        continues=any(BESIDE(box).get("cachedContent") is not None for box, _ in boxes),
        origin=origin,
        strays=tuple(reading.strays),
    )


def _read_boxes(
    boxes: list[tuple[Object, Path]], reading: PartReading
) -> tuple[list[Part], tuple[AnyTool, ...], ToolChoice | None]:
    """Instructions, tools and the choice among them, from the body or from `config`."""
    system: list[Part] = []
    tools: tuple[AnyTool, ...] = ()
    choice: ToolChoice | None = None
    for node, path in boxes:
        if node.get("systemInstruction") is not None:
            system.extend(read_system(node["systemInstruction"], (path, "systemInstruction"), reading))
        if node.get("tools") is not None:
            read = read_tools(node["tools"], (path, "tools"), reading)
            tools = (*tools, *read) if tools else read
        if node.get("toolConfig") is not None and choice is None:
            choice = read_choice(node["toolConfig"], (path, "toolConfig"), reading)
    return system, tools, choice


def read_system(value: Json, path: Path, reading: PartReading) -> list[Part]:
    if isinstance(value, str):
        return [Text(value, origin=reading.whole({"text": value}, path))]
    content = reading.inner(as_object(value, path), path, CONTENT)
    return read_parts(take_list(content, "parts", path) or [], (path, "parts"), reading)


def read_turns(value: Json, path: Path, reading: PartReading) -> list[Turn]:
    turns: list[Turn] = []
    if isinstance(value, (str, dict)):
        value = [value]
    for number, item in enumerate(as_list(value, path)):
        here = (path, number)
        if item.__class__ is dict and len(item) == 2 and reading.open is None:
            # The short way for nearly all turns: a role in the usual spelling and parts, nothing else.
            word, items = item.get("role"), item.get("parts")
            if items.__class__ is list and (word == "user" or word == "model"):
                parts = tuple(read_parts(items, (here, "parts"), reading))
                role: Role = "user" if word == "user" else "assistant"
                turns.append(Turn(role, parts, origin=Origin(NAME, here, item)))
                continue
        if isinstance(item, str):
            text = Text(item, origin=reading.whole({"text": item}, here))
            turns.append(Turn("user", (text,), origin=Origin(NAME, here, {"parts": [{"text": item}], "role": "user"})))
            continue
        _read_turn(as_object(item, here), here, reading, turns)
    if reading.open is not None:
        _close_cut(reading, turns)
    return _whole(turns)


def _whole(turns: list[Turn]) -> list[Turn]:
    """What the model said in one go as one turn: chats of the SDKs send a content for every chunk of a stream."""
    if not any(one.role == two.role == "assistant" for one, two in pairwise(turns)):
        return turns
    whole: list[Turn] = []
    for role, group in groupby(turns, lambda turn: turn.role):
        run = list(group)
        whole += run if role != "assistant" or len(run) == 1 else [_joined(run)]
    return whole


def _joined(run: list[Turn]) -> Turn:
    parts: list[Part] = []
    pieces: list[str] = []
    for turn in run:
        for number, part in enumerate(turn.parts):
            last = parts[-1] if parts else None
            if number == 0 and _goes_on(last, part):
                pieces.append(part.text)  # type: ignore[union-attr]
                continue
            _close_pieces(parts, pieces)
            parts.append(part)
    _close_pieces(parts, pieces)
    origins = [turn.origin for turn in run if turn.origin is not None]
    wires = [origin.wire for origin in origins]
    intact = all(origin.intact for origin in origins)
    return replace(run[0], parts=tuple(parts), origin=Origin(NAME, origins[0].path, wires, NOTHING, intact))


def _goes_on(last: Part | None, part: Part) -> bool:
    """Are these pieces of one text or one thought? What is signed stays as it is."""
    if type(last) is not type(part) or not isinstance(part, (Text, Reasoning)) or part.seal is not None:
        return False
    return last.seal is None and not any(one.origin is not None and one.origin.extra for one in (last, part))  # type: ignore[union-attr]


def _close_pieces(parts: list[Part], pieces: list[str]) -> None:
    if pieces:
        begun = parts[-1]
        parts[-1] = changed(begun, text="".join([begun.text, *pieces]))  # type: ignore[union-attr]
        pieces.clear()


def _read_turn(node: Object, path: Path, reading: PartReading, turns: list[Turn]) -> None:
    word = node.get("role")
    role = ROLES.get(word) if word.__class__ is str else None
    if role is None:
        role = _role(word, path)
    if reading.open is not None and (role != "assistant" or not turns or turns[-1].role != "assistant"):
        _close_cut(reading, turns)
    continues = reading.open is not None
    items = take_list(node, "parts", path)
    parts = tuple(read_parts(items, (path, "parts"), reading)) if items else ()
    origin = reading.origin(node, path, CONTENT.known)
    if continues:
        # The pieces of one call came in several contents: they are one turn, and no longer word for word.
        turns[-1] = changed(turns[-1], parts=turns[-1].parts + parts)
    else:
        turns.append(Turn(role, parts, origin=origin))


def _role(word: Json, path: Path) -> Role:
    """A role in another case, or none, which means the user's."""
    role: Role | None = ROLES.get(as_text(word, (path, "role")).lower()) if word else "user"
    if role is None:
        raise Malformed((path, "role"), f'expected "user" or "model", got {word!r}')
    return role


def _close_cut(reading: PartReading, turns: list[Turn]) -> None:
    """A call whose last piece never came."""
    call, reading.open = reading.open, None
    if call is not None and turns:
        turns[-1] = changed(turns[-1], parts=(*turns[-1].parts, call.closed(incomplete=True)))


# --- writing --------------------------------------------------------------------------------------------------------


def write_request(request: Request, ledger: Ledger) -> Object:
    model = family(request.model)
    unsigned = unsigned_calls(request.turns) if model.third else {}
    origin, settings = request.origin, request.settings
    own = origin if origin is not None and origin.protocol == NAME else None
    if own is not None and own.intact and not unsigned:
        wire: Object = own.wire
        return wire
    # What has no origin counts as our own.
    writing = Writing(ledger, model, foreign=own is not origin, ids=not model.second)
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
    generation = write_generation(settings, model, functions, ledger)
    if own is not None:
        _carry(own, settings.format is None, out, generation)
    if generation or (own is not None and _had(own, "generationConfig") is not None):
        out["generationConfig"] = generation
    if settings.tier is not None:
        tier = write_tier(settings.tier, settings.where.get("tier"), ledger)
        if tier is not None:
            out["serviceTier"] = tier
    return out if own is None else finished(out, own, NAME)


_ORDINARY = {"assistant": "model", "user": "user", "tool": "user"}


def write_turns(turns: tuple[Turn, ...], writing: Writing, unsigned: dict[int, Call]) -> list[Object]:
    contents: list[Object] = []
    for number, turn in enumerate(turns):
        if writing.foreign and turn.role in _ORDINARY and not turn.name and not turn.phase:
            # The short way: a turn of another protocol that is a role and parts, nothing else.
            parts = _write_parts(turn.parts, writing, unsigned.get(number) if unsigned else None)
            contents.append({"parts": parts or [{"text": ""}], "role": _ORDINARY[turn.role]})
        else:
            contents += write_turn(turn, writing, unsigned.get(number))
    return contents


def write_turn(turn: Turn, writing: Writing, unsigned: Call | None) -> list[Object]:
    """A turn as one content; one that came in several, and is still as it was, goes out in several."""
    if unsigned is None and verbatim(turn.origin, NAME):
        for part in turn.parts:
            if isinstance(part, Call) and part.id:
                writing.names[part.id] = part.name
        wire: Object | list[Object] = turn.origin.wire  # type: ignore[union-attr]
        return wire if isinstance(wire, list) else [wire]
    if turn.role in ("system", "developer"):
        writing.ledger.note("role-mapped", place(turn), f"a {turn.role} turn became the user's")
    for what in ("name", "phase"):
        if getattr(turn, what):
            writing.ledger.note("no-counterpart", place(turn), f"the {what} `{getattr(turn, what)}` was left out")
    parts = _write_parts(turn.parts, writing, unsigned)
    # This wire refuses a content without parts, and the order of turns must hold.
    out: Object = {"parts": parts or [{"text": ""}], "role": _ORDINARY.get(turn.role, "user")}
    return [finished(out, turn.origin, NAME)]


def _write_parts(parts: tuple[Part, ...], writing: Writing, unsigned: Call | None) -> list[Object]:
    foreign = writing.foreign
    if foreign and len(parts) == 1 and parts[0].__class__ is Text:
        return [write_text(parts[0], writing)]
    out: list[Object] = []
    behind = 0
    for part in parts:
        written = WRITERS[part.__class__](part, writing) if foreign else write_part(part, writing)
        if written is None:
            continue
        if part is unsigned:
            written = {**written, "thoughtSignature": PLACEHOLDER}
            what = f"the call of `{unsigned.name}` got the placeholder for a signature"
            writing.ledger.note("signature-added", place(part), what)
        out.append(written)
        if part.__class__ is Result:
            behind = len(out)
    if writing.siblings:
        out[behind:behind] = writing.siblings
        writing.siblings = []
    return out


def unsigned_calls(turns: tuple[Turn, ...]) -> dict[int, Call]:
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
                signed = signed or (part.seal is not None and own_seal(part.seal))
    return found


def _write_model(model: str, origin: Origin) -> Object:
    """The model stands in the body only where it stood there."""
    if "model" not in origin.wire:
        return {}
    prefix = "models/" if str(origin.wire["model"]).startswith("models/") and "/" not in model else ""
    return {"model": prefix + model}


def _write_system(parts: list[Object], origin: Origin) -> Object:
    held = _had(origin, "systemInstruction")
    role = held.get("role") if isinstance(held, dict) else None
    extra = {} if not isinstance(held, dict) else CONTENT.unknown(held)
    return {"parts": parts} | ({"role": role} if role else {}) | extra


def _write_tool_config(request: Request, boxes: list[Object], functions: bool, model: Family, ledger: Ledger) -> Object:
    declared = functions or any("function_declarations" in box for box in boxes)
    written = write_choice(request.choice, declared, ledger) if request.choice is not None else None
    config = written if written is not None else _carried(request.origin, "toolConfig", TOOL_CONFIG.known)
    key = "includeServerSideToolInvocations"
    if model.third and needs_circulation(request.tools, boxes) and not config.get(key) and not config.get(snake(key)):
        config = {**config, key: True}
        what = "the provider shows what its own tools did, because functions stand beside them"
        ledger.note("default-added", place(request), what)
    return config


def _had(origin: Origin | None, key: str) -> Json:
    """A node of the request as it was read, in either spelling."""
    if origin is None or origin.protocol != NAME or not isinstance(origin.wire, dict):
        return None
    return origin.wire.get(key, origin.wire.get(snake(key)))


def _carried(origin: Origin | None, key: str, known: frozenset[str]) -> Object:
    """The unknown keys of a node that has no counterpart in the internal form, when it came from this wire."""
    held = _had(origin, key)
    return {name: value for name, value in held.items() if name not in known} if isinstance(held, dict) else {}


def _carry(origin: Origin, formless: bool, out: Object, generation: Object) -> None:
    """What has no counterpart, from this wire. Unknown keys of the SDKs' `config` go where the wire has them."""
    generation |= _carried(origin, "generationConfig", GENERATION.known)
    if formless:
        # A format that only this wire has (`text/x.enum`) stands in keys that we know.
        generation |= _carried(origin, "generationConfig", GENERATION.known - FORMAT.known)
    for key, value in _carried(origin, "config", CONFIG.known).items():
        (out if key in BESIDE.known else generation)[key] = value
