"""Requests and their settings. The model and the stream flag are in the path; the SDKs' `config` is read too."""

from __future__ import annotations

from itertools import groupby, pairwise
from typing import Any

from msgspec.structs import replace

from toolwire.core.codec import Members, RequestPeek, peek_members
from toolwire.core.ir import (
    EMPTY_MAPPING,
    AnyTool,
    Call,
    Format,
    Origin,
    Part,
    ProviderTool,
    Reasoning,
    Request,
    Result,
    Settings,
    Text,
    Thinking,
    Tool,
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
    Paths,
    expect_list,
    expect_object,
    expect_text,
    get_bool,
    get_int,
    get_number,
    get_object,
    get_text,
    without_keys,
)
from toolwire.core.known_tools import read_known_tools, write_known_tools
from toolwire.core.losses import Ledger
from toolwire.core.provenance import is_verbatim, odd_shape, present_settings, restore_original_keys
from toolwire.core.tokens import budget_for_effort, effort_for_budget, nearest_effort
from toolwire.core.tool_choice import fit_tool_choice
from toolwire.protocols.gemini import names
from toolwire.protocols.gemini.content import PartReadContext, items_or_single, read_parts
from toolwire.protocols.gemini.content_writer import PART_WRITERS, PartWriteContext, write_part
from toolwire.protocols.gemini.models import Family, family
from toolwire.protocols.gemini.names import NAME, intact_wire, is_foreign, is_own, is_own_seal, to_snake_case
from toolwire.protocols.gemini.tools import (
    declares_functions,
    is_written,
    read_schema,
    read_tool_choice,
    read_tools,
    write_schema,
    write_tool_choice,
    write_tools,
)

_FORMAT_SLOTS = ("responseSchema", "responseJsonSchema")

# --- reading --------------------------------------------------------------------------------------------------------


def peek_request(members: Members) -> RequestPeek | None:
    found = peek_members(members)
    return replace(found, is_unusual=True) if found is not None and "config" in members else found


def open_config(body: Object) -> Object:
    """A body as the API takes it, where it has the `config` of Google's SDKs, which holds all but the turns."""
    path = (None, "config")
    out = {key: value for key, value in body.items() if key != "config"}
    holder = "generation_config" if "generation_config" in out else "generationConfig"
    generation = {**(get_object(out, holder, None) or {})}
    for key, value in (get_object(body, "config", None) or {}).items():
        place = out if key in names.OUTER_CONFIG_KEYS.all_keys else generation
        if place.get(key, value) != value:
            raise Malformed((path, key), "it is also outside of `config`, with another value: leave one of them out")
        if names.to_camel_case(key) == "systemInstruction" and isinstance(value, str):
            value = {"parts": [{"text": value}]}
        place[key] = value
    return out | {holder: generation} if generation else out


def read_request(body: Object) -> Request:
    if "config" in body:
        body = open_config(body)
    reading = PartReadContext()
    node, origin = reading.read_node(body, None, names.REQUEST_KEYS)
    if node.get("contents") is None:
        raise Malformed(None, "`contents` is missing")
    turns = _read_turns(node["contents"], (None, "contents"), reading)
    found: _FoundSettings = {}
    if node.get("generationConfig") is not None:
        here = (None, "generationConfig")
        generation = reading.read_inner_node(node["generationConfig"], here, names.GENERATION_CONFIG_KEYS)
        _read_generation_config(generation, here, reading, found)
    _read_service_tier(node, None, found)
    system: list[Part] = []
    tools: tuple[AnyTool, ...] = ()
    choice: ToolChoice | None = None
    if node.get("systemInstruction") is not None:
        system = _read_system(node["systemInstruction"], (None, "systemInstruction"), reading)
    if node.get("tools") is not None:
        tools = read_known_tools(read_tools, node["tools"], (None, "tools"), reading)
    if node.get("toolConfig") is not None:
        choice = read_tool_choice(node["toolConfig"], (None, "toolConfig"), reading)
    values = {field: value for field, (value, _) in found.items()}
    if any(field.what for field in reading.unknown_fields):
        origin = replace(origin, intact=False)
    return Request(
        get_text(node, "model", None) or "",
        tuple(system),
        tuple(turns),
        tools,
        choice,
        settings=Settings(**values, where={field: where for field, (_, where) in found.items()}),
        has_provider_history=names.OUTER_CONFIG_KEYS(node).get("cachedContent") is not None,
        origin=origin,
        unknown_fields=tuple(reading.unknown_fields),
    )


def _read_system(value: Json, path: Path, reading: PartReadContext) -> list[Part]:
    if isinstance(value, str):
        return [Text(value, origin=reading.whole_origin({"text": value}, path))]
    content = reading.read_inner_node(value, path, names.CONTENT_KEYS)
    return read_parts(content.get("parts"), (path, "parts"), reading)


def _read_turns(value: Json, path: Path, reading: PartReadContext) -> list[Turn]:
    turns: list[Turn] = []
    if isinstance(value, (str, dict)):
        value = [value]
    for number, item in enumerate(expect_list(value, path)):
        here = (path, number)
        if isinstance(item, str):
            text = Text(item, origin=reading.whole_origin({"text": item}, here))
            turns.append(Turn("user", (text,), origin=Origin(NAME, here, {"parts": [{"text": item}], "role": "user"})))
        else:
            _read_turn(expect_object(item, here), here, reading, turns)
    _close_open_call(reading, turns)
    if not any(one.role == two.role == "assistant" for one, two in pairwise(turns)):
        return turns
    # Chats of Google's SDKs send one content for every chunk of a stream: consecutive model turns become one.
    merged: list[Turn] = []
    for role, group in groupby(turns, lambda turn: turn.role):
        run = list(group)
        merged += run if role != "assistant" or len(run) == 1 else [_join_turns(run)]
    return merged


def _join_turns(run: list[Turn]) -> Turn:
    groups: list[list[Any]] = []
    for turn in run:
        for number, part in enumerate(turn.parts):
            if number == 0 and groups and _continues_part(groups[-1][0], part):
                groups[-1].append(part)
            else:
                groups.append([part])
    parts = tuple(
        group[0] if len(group) == 1 else replace_fields(group[0], text="".join([part.text for part in group]))
        for group in groups
    )
    origins = [turn.origin for turn in run if turn.origin is not None]
    wires, intact = [origin.wire for origin in origins], all(origin.intact for origin in origins)
    return replace(run[0], parts=parts, origin=Origin(NAME, origins[0].path, wires, EMPTY_MAPPING, intact))


def _continues_part(last: Part, part: Part) -> bool:
    """Are these pieces of one text or one thought? Signed parts stay apart."""
    if not isinstance(last, (Text, Reasoning)) or not isinstance(part, type(last)) or last.seal or part.seal:
        return False
    return not any(one.origin is not None and one.origin.extra for one in (last, part))


def _read_turn(node: Object, path: Path, reading: PartReadContext, turns: list[Turn]) -> None:
    value = node.get("role")
    role = names.ROLES.get(expect_text(value, (path, "role")).lower()) if value else "user"
    if role is None:
        raise Malformed((path, "role"), f'expected "user" or "model", got {value!r}')
    if value == names.OLD_RESULT_ROLE:
        node = node | {"role": "user"}
        reading.unknown_fields.append(odd_shape(path, "role", f"the role `{names.OLD_RESULT_ROLE}` became `user`"))
    if role != "assistant" or not turns or turns[-1].role != "assistant":
        _close_open_call(reading, turns)
    continues = reading.open_call is not None
    parts = tuple(read_parts(node.get("parts"), (path, "parts"), reading))
    origin = reading.read_origin(node, path, names.CONTENT_KEYS.all_keys)
    if continues:
        # The pieces of one call came in several contents: they become one turn.
        turns[-1] = replace_fields(turns[-1], parts=turns[-1].parts + parts)
    else:
        turns.append(Turn(role, parts, origin=origin))


def _close_open_call(reading: PartReadContext, turns: list[Turn]) -> None:
    """If the last piece of a call never came, add the call to the last turn as it is."""
    call, reading.open_call = reading.open_call, None
    if call is not None and turns:
        turns[-1] = replace_fields(turns[-1], parts=(*turns[-1].parts, call.make_call(incomplete=True)))


# --- reading settings -----------------------------------------------------------------------------------------------

_FoundSettings = dict[str, tuple[Any, Path]]
"""Settings with their places."""


def _read_stop_sequences(node: Object, key: str, path: Path) -> tuple[str, ...] | None:
    if node[key] is None:
        return None
    here = (path, key)
    return tuple([expect_text(stop, at) for stop, at in items_or_single(node[key], here)])


_FIELD_READERS: dict[str, Any] = {
    **dict.fromkeys(("max_tokens", "seed", "count", "top_logprobs"), get_int),
    "stop": _read_stop_sequences,
    "logprobs": get_bool,
}


def _read_generation_config(node: Object, path: Path, reading: PartReadContext, found: _FoundSettings) -> None:
    """Read the settings of one object (in camelCase). The caller notes unknown keys."""
    for field, key in names.SETTING_KEYS.items():
        if key in node:
            value = _FIELD_READERS.get(field, get_number)(node, key, path)
            if value is not None:
                found.setdefault(field, (value, (path, key)))
    if node.get("thinkingConfig") is not None:
        here = (path, "thinkingConfig")
        found.setdefault("thinking", (_read_thinking(node["thinkingConfig"], here, reading), here))
    format_keys = [key for key in names.FORMAT_KEYS if node.get(key) is not None]
    if format_keys:
        format = _read_response_format(node, format_keys, path, reading)
        if format is not None:
            found.setdefault("format", (format, Paths((path, key) for key in format_keys)))


def _read_service_tier(node: Object, path: Path, found: _FoundSettings) -> None:
    tier = get_text(node, "serviceTier", path)
    if tier is not None:
        found.setdefault("tier", (tier.lower().removeprefix("service_tier_"), (path, "serviceTier")))


def _read_thinking(value: Json, path: Path, reading: PartReadContext) -> Thinking:
    node, origin = reading.read_node(value, path, names.THINKING_KEYS)
    budget = get_int(node, "thinkingBudget", path)
    level = (get_text(node, "thinkingLevel", path) or "").lower().removeprefix("thinking_level_")
    shown = get_bool(node, "includeThoughts", path)
    show = "" if shown is None else "auto" if shown else "none"
    effort = "" if level == "unspecified" else level
    if budget is None:
        return Thinking(effort=effort, summary=show, origin=origin)
    if budget <= 0:
        return Thinking("off" if budget == 0 else "auto", effort, summary=show, origin=origin)
    return Thinking("on", effort, budget, show, origin)


def _read_response_format(node: Object, keys: list[str], path: Path, reading: PartReadContext) -> Format | None:
    media_type = (get_text(node, "responseMimeType", path) or "application/json").lower()
    schema = read_schema(node, _FORMAT_SLOTS, path)
    if media_type not in ("application/json", "text/plain"):
        for key in keys:
            reading.note_unknown_field(path, key)
        return None
    wire = {key: node[key] for key in names.FORMAT_KEYS if key in node}
    origin = reading.whole_origin(wire, (path, "responseMimeType"))
    if schema is not None:
        return Format("schema", schema, origin=origin)
    return Format("json" if media_type == "application/json" else "text", origin=origin)


# --- writing --------------------------------------------------------------------------------------------------------


def _has_refused_choice(request: Request) -> bool:
    """Google refuses a calling mode without functions."""
    return request.choice is not None and not any(isinstance(tool, Tool) for tool in request.tools)


def write_request(request: Request, ledger: Ledger) -> Object:
    model = family(request.model)
    unsigned = find_unsigned_calls(request.turns) if model.is_gemini_3 else {}
    origin, settings = request.origin, request.settings
    if (wire := intact_wire(origin)) is not None and not unsigned and not _has_refused_choice(request):
        return wire
    own = origin if is_own(origin) else None
    writing = PartWriteContext(ledger, model, is_foreign=is_foreign(origin), writes_ids=model.major != 2)
    out: Object = {}
    if own is not None and "model" in own.wire:
        prefix = "models/" if str(own.wire["model"]).startswith("models/") and "/" not in request.model else ""
        out["model"] = prefix + request.model
    if parts := _write_parts(request.system, writing, None):
        out["systemInstruction"] = {"parts": parts} if own is None else _write_system(parts, own)
    out["contents"] = [
        content
        for number, turn in enumerate(request.turns)
        for content in write_turn(turn, writing, unsigned.get(number))
    ]
    if tools := write_known_tools(write_tools, request.tools, ledger, model):
        out["tools"] = tools
    has_functions = declares_functions(tools)
    if config := _write_tool_config(request, tools, has_functions, model, ledger):
        out["toolConfig"] = config
    generation = _write_generation_config(settings, model, has_functions, ledger)
    if own is not None:
        _add_unknown_keys(own, settings.format is None, generation)
    if generation or (own is not None and _original_node(own, "generationConfig") is not None):
        out["generationConfig"] = generation
    if settings.tier is not None and (tier := _write_service_tier(settings, ledger)) is not None:
        out["serviceTier"] = tier
    return out if own is None else restore_original_keys(out, own, NAME)


_WIRE_ROLES = {"assistant": "model", "user": "user", "tool": "user"}


def write_turn(turn: Turn, writing: PartWriteContext, unsigned_call: Call | None) -> list[Object]:
    """A turn as one content; an unchanged turn that was merged from several contents is written as these."""
    if unsigned_call is None and is_own(turn.origin) and turn.origin.intact:
        for part in turn.parts:
            if isinstance(part, Call) and part.id:
                writing.call_names[part.id] = part.name
        wire: Object | list[Object] = turn.origin.wire
        return wire if isinstance(wire, list) else [wire]
    if turn.role in ("system", "developer"):
        writing.ledger.note("role-mapped", source_path(turn), f"a {turn.role} turn became a user turn")
    if turn.name or turn.phase:
        writing.ledger.note_turn_fields(turn)
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
    for is_model, step in groupby(enumerate(turns), lambda row: row[1].role == "assistant"):
        if is_model:
            calls = [(number, part) for number, turn in step for part in turn.parts if isinstance(part, Call)]
            if calls and not any(is_own_seal(call.seal) for _, call in calls):
                unsigned.update(calls[:1])
    return unsigned


def _write_system(parts: list[Object], origin: Origin) -> Object:
    original = _original_node(origin, "systemInstruction")
    if not isinstance(original, dict):
        return {"parts": parts}
    if original.get("parts") in (parts, *parts[:1]):
        return original
    role = {"role": original["role"]} if original.get("role") else {}
    return {"parts": parts} | role | names.CONTENT_KEYS.select_unknown(original)


def _write_tool_config(
    request: Request, entries: list[Object], has_functions: bool, model: Family, ledger: Ledger
) -> Object:
    config = None
    if request.choice is not None:
        declared = has_functions or any("function_declarations" in entry for entry in entries)
        choice = fit_tool_choice(request.choice, request.tools, is_written, ledger)
        config = write_tool_choice(choice, declared, ledger)
    if config is None:
        config = _unknown_keys(request.origin, "toolConfig", names.TOOL_CONFIG_KEYS.all_keys)
    # Gemini combines provider tools and functions only if it may show its own invocations. Clients of Gemini set that
    # themselves.
    key = "includeServerSideToolInvocations"
    is_set = config.get(key) or config.get("include_server_side_tool_invocations")
    added = (tool for tool in request.tools if isinstance(tool, ProviderTool) and not is_verbatim(tool.origin, NAME))
    if model.is_gemini_3 and has_functions and len(entries) > 1 and not is_set and any(added):
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
    return without_keys(node, known) if isinstance(node, dict) else {}


def _add_unknown_keys(origin: Origin, without_format: bool, generation: Object) -> None:
    """Write unknown keys back."""
    known = names.GENERATION_CONFIG_KEYS.all_keys
    generation |= _unknown_keys(origin, "generationConfig", known)
    if without_format:
        # A format that only Gemini has (`text/x.enum`) is in known keys, but not in the internal form.
        generation |= _unknown_keys(origin, "generationConfig", known - names.FORMAT_KEY_SET.all_keys)


# --- writing settings -----------------------------------------------------------------------------------------------

_WRITTEN_SETTINGS = frozenset({*names.SETTING_KEYS, "thinking", "format", "tier", "stream_usage"})


def _write_generation_config(settings: Settings, family: Family, has_functions: bool, ledger: Ledger) -> Object:
    present = present_settings(settings)
    if not present:
        return {}
    fields = filter(present.__contains__, names.SETTING_KEYS)
    out: Object = {names.SETTING_KEYS[field]: getattr(settings, field) for field in fields}
    if settings.stop is not None:
        out["stopSequences"] = list(settings.stop[: names.MAX_STOP_SEQUENCES])
        if len(settings.stop) > names.MAX_STOP_SEQUENCES:
            what = f"only the first {names.MAX_STOP_SEQUENCES} of {len(settings.stop)} stop sequences were sent"
            ledger.note("setting-clamped", settings.where.get("stop"), what)
    if settings.format is not None:
        out.update(_write_response_format(settings.format, family, has_functions, ledger))
    if settings.thinking is not None:
        where = settings.where.get("thinking")
        if thinking := _write_thinking(settings.thinking, family, where, ledger):
            out["thinkingConfig"] = thinking
    # Gemini always may make parallel calls.
    supported = _WRITTEN_SETTINGS | {"parallel"} if settings.parallel else _WRITTEN_SETTINGS
    ledger.note_unwritten_settings(settings, present, supported)
    return out


def _write_service_tier(settings: Settings, ledger: Ledger) -> str | None:
    asked, where = settings.tier or "", settings.where.get("tier")
    if asked == "auto":
        ledger.note("setting-mapped", where, "the tier `auto` was left out, because it is the default")
        return None
    tier = names.SERVICE_TIERS.get(asked)
    if tier is None:
        ledger.note("no-counterpart", where, f"the tier `{asked}` was left out")
    elif tier != asked:
        ledger.note("setting-mapped", where, f"the tier `{asked}` became `{tier}`")
    return tier


def _write_response_format(format: Format, family: Family, has_functions: bool, ledger: Ledger) -> Object:
    if (wire := intact_wire(format.origin)) is not None:
        return wire
    if format.kind == "text":
        return {"responseMimeType": "text/plain"} if not is_foreign(format.origin) else {}
    if has_functions and family.is_known and not family.is_gemini_3 and is_foreign(format.origin):
        why = "before Gemini 3 a format cannot be combined with functions"
        ledger.note("no-counterpart", source_path(format), "the format of the answer was left out", why)
        return {}
    lost = [field for field in ("name", "description", "strict") if getattr(format, field)]
    if lost:
        ledger.note("format-mapped", source_path(format), f"of the format {', '.join(lost)} was left out")
    out: Object = {"responseMimeType": "application/json"}
    if format.kind == "schema" and format.schema is not None:
        out |= write_schema(format.schema, _FORMAT_SLOTS, family, ledger, source_path(format))
    return out


def _write_thinking(thinking: Thinking, family: Family, where: Path, ledger: Ledger) -> Object:
    if (wire := intact_wire(thinking.origin)) is not None:
        return wire
    if not family.can_think:
        ledger.note("no-counterpart", where, "the setting `thinking` was left out", "this model does not think")
        return {}
    out: Object = {}
    if thinking.summary:
        out["includeThoughts"] = thinking.summary != "none"
    elif thinking.mode == "on" and is_foreign(thinking.origin):
        out["includeThoughts"] = True
    amount = (_thinking_level if family.is_gemini_3 else _thinking_budget)(thinking, family)
    out |= amount
    requested = {"thinkingBudget": thinking.budget, "thinkingLevel": thinking.effort.upper()}
    changed = any(requested[key] != value for key, value in amount.items() if value not in (0, -1))
    if changed or is_foreign(thinking.origin):
        asked = thinking.effort or (f"a budget of {thinking.budget}" if thinking.budget is not None else thinking.mode)
        became = ", ".join(f"{key} {value}" for key, value in out.items()) or "the default"
        ledger.note("thinking-mapped", where, f"{asked or 'thinking'} became {became}")
    return restore_original_keys(out, thinking.origin, NAME)


def _thinking_level(thinking: Thinking, family: Family) -> Object:
    asked = "none" if thinking.mode == "off" else thinking.effort
    if not asked and thinking.budget is not None:
        asked = effort_for_budget(thinking.budget)
    return {"thinkingLevel": nearest_effort(asked, family.thinking_levels).upper()} if asked else {}


def _thinking_budget(thinking: Thinking, family: Family) -> Object:
    """A budget; for an unknown model a level, if that is what the client sent."""
    least, most = family.budget_range
    if thinking.mode == "off" or thinking.effort == "none":
        # A budget of 0 switches thinking off, except in the pro models.
        return {"thinkingBudget": least if family.is_known and family.size == "pro" else 0}
    budget = thinking.budget
    if budget is None and thinking.effort:
        if not family.is_known:
            return _thinking_level(thinking, family)
        budget = budget_for_effort(thinking.effort)
    if budget is not None:
        return {"thinkingBudget": min(max(budget, least), most) if family.is_known else budget}
    return {"thinkingBudget": -1} if thinking.mode == "auto" else {}
