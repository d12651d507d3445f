"""Requests. Google has the model and the stream flag in the path; the `config` of its SDKs is accepted too."""

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
from toolwire.protocols.gemini import names
from toolwire.protocols.gemini.content import PartReadContext, read_parts
from toolwire.protocols.gemini.content_writer import PART_WRITERS, PartWriteContext, write_part
from toolwire.protocols.gemini.models import Family, family
from toolwire.protocols.gemini.names import NAME, intact_wire, is_foreign, is_own, is_own_seal, to_snake_case
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
    node = names.REQUEST_KEYS(expect_object(body, None))
    origin = reading.read_origin(body, None, names.REQUEST_KEYS.all_keys)
    if node.get("contents") is None:
        raise Malformed(None, "`contents` is missing")
    turns = read_turns(node["contents"], (None, "contents"), reading)
    settings = SettingsCollector()
    generation = get_object(node, "generationConfig", None)
    if generation is not None:
        here = (None, "generationConfig")
        generation = reading.read_inner_node(generation, here, names.GENERATION_CONFIG_KEYS)
        read_generation_config(generation, here, reading, settings)
    read_service_tier(node, None, settings)
    nodes: list[tuple[Object, Path]] = [(node, None)]
    config = get_object(node, "config", None)
    if config is not None:
        here = (None, "config")
        config = reading.read_inner_node(config, here, names.SDK_CONFIG_KEYS)
        read_generation_config(config, here, reading, settings)
        read_service_tier(config, here, settings)
        nodes.append((config, here))
    system, tools, choice = _read_system_and_tools(nodes, reading)
    return Request(
        get_text(node, "model", None) or "",
        tuple(system),
        tuple(turns),
        tools,
        choice,
        settings=settings.build_settings(),
        has_provider_history=any(
            names.TOP_LEVEL_CONFIG_KEYS(node).get("cachedContent") is not None for node, _ in nodes
        ),
        origin=origin,
        unknown_fields=tuple(reading.unknown_fields),
    )


def _read_system_and_tools(
    nodes: list[tuple[Object, Path]], reading: PartReadContext
) -> tuple[list[Part], tuple[AnyTool, ...], ToolChoice | None]:
    """The system prompt, the tools and the tool choice, from the body or from `config`."""
    system: list[Part] = []
    tools: tuple[AnyTool, ...] = ()
    choice: ToolChoice | None = None
    for node, path in nodes:
        if node.get("systemInstruction") is not None:
            system.extend(read_system(node["systemInstruction"], (path, "systemInstruction"), reading))
        if node.get("tools") is not None:
            tools += read_tools(node["tools"], (path, "tools"), reading)
        if node.get("toolConfig") is not None and choice is None:
            choice = read_tool_choice(node["toolConfig"], (path, "toolConfig"), reading)
    return system, tools, choice


def read_system(value: Json, path: Path, reading: PartReadContext) -> list[Part]:
    if isinstance(value, str):
        return [Text(value, origin=reading.whole_origin({"text": value}, path))]
    content = reading.read_inner_node(expect_object(value, path), path, names.CONTENT_KEYS)
    return read_parts(get_list(content, "parts", path) or [], (path, "parts"), reading)


def read_turns(value: Json, path: Path, reading: PartReadContext) -> list[Turn]:
    turns: list[Turn] = []
    if isinstance(value, (str, dict)):
        value = [value]
    for number, item in enumerate(expect_list(value, path)):
        here = (path, number)
        if isinstance(item, str):
            text = Text(item, origin=reading.whole_origin({"text": item}, here))
            turns.append(Turn("user", (text,), origin=Origin(NAME, here, {"parts": [{"text": item}], "role": "user"})))
            continue
        _read_turn(expect_object(item, here), here, reading, turns)
    if reading.open_call is not None:
        _close_open_call(reading, turns)
    return _merge_model_turns(turns)


def _merge_model_turns(turns: list[Turn]) -> list[Turn]:
    """Merge consecutive model turns: chats of Google's SDKs send one content for every chunk of a stream."""
    if not any(one.role == two.role == "assistant" for one, two in pairwise(turns)):
        return turns
    merged: list[Turn] = []
    for role, group in groupby(turns, lambda turn: turn.role):
        run = list(group)
        merged += run if role != "assistant" or len(run) == 1 else [_join_turns(run)]
    return merged


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
    """Are these pieces of one text or one thought? Signed parts stay apart."""
    if type(last) is not type(part) or not isinstance(part, (Text, Reasoning)) or part.seal is not None:
        return False
    return last.seal is None and not any(one.origin is not None and one.origin.extra for one in (last, part))  # type: ignore[union-attr]


def _join_pieces(parts: list[Part], pieces: list[str]) -> None:
    if pieces:
        first = parts[-1]
        parts[-1] = replace_fields(first, text="".join([first.text, *pieces]))  # type: ignore[union-attr]
        pieces.clear()


def _read_turn(node: Object, path: Path, reading: PartReadContext, turns: list[Turn]) -> None:
    value = node.get("role")
    role = names.ROLES.get(value) if value.__class__ is str else None
    if role is None:
        role = _read_role(value, path)
    if reading.open_call is not None and (role != "assistant" or not turns or turns[-1].role != "assistant"):
        _close_open_call(reading, turns)
    continues = reading.open_call is not None
    items = get_list(node, "parts", path)
    parts = tuple(read_parts(items, (path, "parts"), reading)) if items else ()
    origin = reading.read_origin(node, path, names.CONTENT_KEYS.all_keys)
    if continues:
        # The pieces of one call came in several contents: they become one turn.
        turns[-1] = replace_fields(turns[-1], parts=turns[-1].parts + parts)
    else:
        turns.append(Turn(role, parts, origin=origin))


def _read_role(value: Json, path: Path) -> Role:
    """A role in any case; without one the turn is the user's."""
    role: Role | None = names.ROLES.get(expect_text(value, (path, "role")).lower()) if value else "user"
    if role is None:
        raise Malformed((path, "role"), f'expected "user" or "model", got {value!r}')
    return role


def _close_open_call(reading: PartReadContext, turns: list[Turn]) -> None:
    """Add the call whose last piece never came to the last turn."""
    call, reading.open_call = reading.open_call, None
    if call is not None and turns:
        turns[-1] = replace_fields(turns[-1], parts=(*turns[-1].parts, call.make_call(incomplete=True)))


# --- writing --------------------------------------------------------------------------------------------------------


def write_request(request: Request, ledger: Ledger) -> Object:
    model = family(request.model)
    unsigned = find_unsigned_calls(request.turns) if model.is_gemini_3 else {}
    origin, settings = request.origin, request.settings
    if (wire := intact_wire(origin)) is not None and not unsigned:
        return wire
    own = origin if is_own(origin) else None
    writing = PartWriteContext(ledger, model, is_foreign=is_foreign(origin), writes_ids=not model.is_gemini_2)
    out: Object = {} if own is None else _write_model(request.model, own)
    if request.system:
        parts = _write_parts(request.system, writing, None)
        if parts:
            out["systemInstruction"] = {"parts": parts} if own is None else _write_system(parts, own)
    out["contents"] = write_turns(request.turns, writing, unsigned)
    tools = write_tools(request.tools, model, ledger)
    if tools:
        out["tools"] = tools
    config = _write_tool_config(request, tools, model, ledger)
    if config:
        out["toolConfig"] = config
    generation = write_generation_config(settings, model, declares_functions(tools), ledger)
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
        contents += write_turn(turn, writing, unsigned_calls.get(number))
    return contents


def write_turn(turn: Turn, writing: PartWriteContext, unsigned_call: Call | None) -> list[Object]:
    """A turn as one content; an unchanged turn that was merged from several contents is written as these."""
    if unsigned_call is None and is_verbatim(turn.origin, NAME):
        for part in turn.parts:
            if isinstance(part, Call) and part.id:
                writing.call_names[part.id] = part.name
        wire: Object | list[Object] = turn.origin.wire  # type: ignore[union-attr]
        return wire if isinstance(wire, list) else [wire]
    if turn.role in ("system", "developer"):
        writing.ledger.note("role-mapped", source_path(turn), f"a {turn.role} turn became a user turn")
    if turn.name:
        writing.ledger.note("no-counterpart", source_path(turn), f"the name `{turn.name}` of a turn was left out")
    if turn.phase:
        writing.ledger.note("no-counterpart", source_path(turn), f"the phase `{turn.phase}` of a turn was left out")
    parts = _write_parts(turn.parts, writing, unsigned_call)
    # Google refuses a content without parts, and leaving the turn out would change the order of the roles.
    out: Object = {"parts": parts or [{"text": ""}], "role": _WIRE_ROLES.get(turn.role, "user")}
    return [restore_original_keys(out, turn.origin, NAME)]


def _write_parts(parts: tuple[Part, ...], writing: PartWriteContext, unsigned_call: Call | None) -> list[Object]:
    out: list[Object] = []
    results_end = 0
    for part in parts:
        written = PART_WRITERS[part.__class__](part, writing) if writing.is_foreign else write_part(part, writing)
        if written is None:
            continue
        if part is unsigned_call:
            written = {**written, "thoughtSignature": names.PLACEHOLDER_SIGNATURE}
            what = f"the call of `{unsigned_call.name}` got Google's placeholder for a signature"
            writing.ledger.note("signature-added", source_path(part), what)
        out.append(written)
        if part.__class__ is Result:
            results_end = len(out)
    if writing.media_after_results:
        out[results_end:results_end] = writing.media_after_results
        writing.media_after_results = []
    return out


def find_unsigned_calls(turns: tuple[Turn, ...]) -> dict[int, Call]:
    """The first call of each step without a `thoughtSignature`, by the number of its turn: Gemini 3 requires one there.
    Google checks only the current turn, but earlier turns must stay the same for its prompt cache."""
    unsigned: dict[int, Call] = {}
    first: tuple[int, Call] | None = None
    signed = False
    for number in range(len(turns) + 1):
        turn = turns[number] if number < len(turns) else None
        if turn is None or turn.role != "assistant":
            if first is not None and not signed:
                unsigned[first[0]] = first[1]
            first, signed = None, False
            continue
        for part in turn.parts:
            if isinstance(part, Call):
                first = first or (number, part)
                signed = signed or is_own_seal(part.seal)
    return unsigned


def _write_model(model: str, origin: Origin) -> Object:
    """`model`, if the client sent one in the body."""
    if "model" not in origin.wire:
        return {}
    prefix = "models/" if str(origin.wire["model"]).startswith("models/") and "/" not in model else ""
    return {"model": prefix + model}


def _write_system(parts: list[Object], origin: Origin) -> Object:
    original = _original_node(origin, "systemInstruction")
    if not isinstance(original, dict):
        return {"parts": parts}
    role = {"role": original["role"]} if original.get("role") else {}
    return {"parts": parts} | role | names.CONTENT_KEYS.select_unknown(original)


def _write_tool_config(request: Request, entries: list[Object], model: Family, ledger: Ledger) -> Object:
    declared = declares_functions(entries) or any("function_declarations" in entry for entry in entries)
    config = write_tool_choice(request.choice, declared, ledger) if request.choice is not None else None
    if config is None:
        config = _unknown_keys(request.origin, "toolConfig", names.TOOL_CONFIG_KEYS.all_keys)
    key = "includeServerSideToolInvocations"
    if (
        model.is_gemini_3
        and needs_server_side_invocations(request.tools, entries)
        and not (config.get(key) or config.get(to_snake_case(key)))
    ):
        config = {**config, key: True}
        ledger.note("default-added", source_path(request), f"`{key}` was set, because functions are declared too")
    return config


def _original_node(origin: Origin | None, key: str) -> Json:
    """A node of the request as it came, in either spelling."""
    if not is_own(origin) or not isinstance(origin.wire, dict):
        return None
    return origin.wire.get(key, origin.wire.get(to_snake_case(key)))


def _unknown_keys(origin: Origin | None, key: str, known: frozenset[str]) -> Object:
    """The unknown keys of a node of the request, to be written back."""
    node = _original_node(origin, key)
    return {name: value for name, value in node.items() if name not in known} if isinstance(node, dict) else {}


def _add_unknown_keys(origin: Origin, without_format: bool, out: Object, generation: Object) -> None:
    """Write unknown keys back. Those of the SDKs' `config` go where the body has them."""
    known = names.GENERATION_CONFIG_KEYS.all_keys
    generation |= _unknown_keys(origin, "generationConfig", known)
    if without_format:
        # A format that only Gemini has (`text/x.enum`) is in known keys, but not in the internal form.
        generation |= _unknown_keys(origin, "generationConfig", known - names.FORMAT_KEY_SET.all_keys)
    for key, value in _unknown_keys(origin, "config", names.SDK_CONFIG_KEYS.all_keys).items():
        (out if key in names.TOP_LEVEL_CONFIG_KEYS.all_keys else generation)[key] = value
