"""Requests. They are checked strictly before anything is sent to a provider."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import groupby
from typing import Any, NoReturn, cast

from toolwire.core.ir import Call, Format, Opaque, Part, Request, Result, Role, Settings, Thinking, Turn, source_path
from toolwire.core.json_values import (
    Json,
    Malformed,
    Object,
    Path,
    expect_list,
    expect_object,
    get_bool,
    get_list,
    get_object,
    get_text,
    raise_wrong_type,
    require_text,
)
from toolwire.core.losses import OFF, Ledger
from toolwire.core.provenance import items_with_paths, present_settings, restore_original_keys
from toolwire.core.tool_choice import fit_tool_choice
from toolwire.protocols.unified import names
from toolwire.protocols.unified.content import (
    read_cache,
    read_content,
    read_result,
    write_cache,
    write_content,
    write_result,
)
from toolwire.protocols.unified.names import (
    NAME,
    StrictReadContext,
    intact_wire,
    read_fields,
    write_call_id,
    write_fields,
)
from toolwire.protocols.unified.response import read_message, write_message
from toolwire.protocols.unified.tools import (
    check_schema,
    check_tool_name,
    read_tool_choice,
    read_tools,
    write_any_tool,
    write_tool_choice,
)

ROLES = ("user", "assistant", "tool", "system", "developer")
_MAX_SHOWN_IDS = 10
"""How many known ids an error lists."""

# --- reading --------------------------------------------------------------------------------------------------------


def read_request(body: Object) -> Request:
    reading = StrictReadContext(NAME)
    node = expect_object(body, None)
    origin = reading.read_origin(node, None, names.REQUEST_KEYS)
    messages = get_list(node, "messages", None)
    if messages is None:
        raise Malformed(None, "`messages` is missing")
    turns = tuple([read_turn(reading, item, at) for item, at in items_with_paths(messages, (None, "messages"))])
    check_conversation(turns)
    tools = read_tools(reading, get_list(node, "tools", None) or [], (None, "tools"))
    choice = node.get("tool_choice")
    return Request(
        get_text(node, "model", None) or "",
        read_content(reading, node.get("system"), (None, "system"), names.INPUT_PART_TYPES),
        turns,
        tools,
        None if choice is None else read_tool_choice(reading, choice, (None, "tool_choice"), tools),
        get_bool(node, "stream", None),
        read_settings(reading, node),
        origin=origin,
    )


def read_turn(reading: StrictReadContext, value: Json, path: Path) -> Turn:
    node = expect_object(value, path)
    role = require_text(node, "role", path)
    if role not in ROLES:
        raise Malformed((path, "role"), f"unknown role `{role}`; {names.suggest_word(role, ROLES)}")
    if role == "tool":
        origin = reading.read_origin(node, path, names.RESULTS_TURN_KEYS)
        results = items_with_paths(expect_list(node.get("results"), (path, "results")), (path, "results"))
        return Turn("tool", tuple([read_result(reading, item, at) for item, at in results]), origin=origin)
    if role == "assistant":
        origin = reading.read_origin(node, path, names.ASSISTANT_KEYS)
        parts = read_message(reading, node, path)
    else:
        origin = reading.read_origin(node, path, names.TURN_KEYS)
        parts = read_content(reading, node.get("content"), (path, "content"), names.INPUT_PART_TYPES)
    name, phase = get_text(node, "name", path) or "", get_text(node, "phase", path) or ""
    return Turn(cast(Role, role), parts, name, phase, origin)


def check_conversation(turns: tuple[Turn, ...]) -> None:
    """Check that every call has its own id, and that every result belongs to one earlier call."""
    answered: dict[str, bool] = {}
    checked_names: set[str] = set()
    for turn in turns:
        for part in turn.parts:
            if isinstance(part, Call):
                if part.name not in checked_names or not 0 < len(part.id) <= names.ID_LIMIT or part.id in answered:
                    _check_call(part, answered)
                    checked_names.add(part.name)
                answered[part.id] = False
            elif isinstance(part, Result):
                if answered.get(part.id) is not False:
                    _refuse_result(part, answered)
                answered[part.id] = True


def _check_call(call: Call, answered: Mapping[str, bool]) -> None:
    check_tool_name(call.name, (source_path(call), "name"))
    if not 0 < len(call.id) <= names.ID_LIMIT:
        raise Malformed((source_path(call), "id"), f"an id has 1 to {names.ID_LIMIT} characters")
    if call.id in answered:
        problem = f"an earlier call already has the id `{write_call_id(call.id)}`; ids must be unique"
        raise Malformed((source_path(call), "id"), problem)


def _refuse_result(result: Result, answered: Mapping[str, bool]) -> NoReturn:
    where: Path = (source_path(result), "tool_call_id")
    if result.id not in answered:
        known = [write_call_id(id) for id in answered]
        more = f" and {len(known) - _MAX_SHOWN_IDS} more" if len(known) > _MAX_SHOWN_IDS else ""
        listed = ", ".join(known[-_MAX_SHOWN_IDS:]) or "none, there is no call before this result"
        raise Malformed(where, f"unknown tool_call_id `{write_call_id(result.id)}`; known: {listed}{more}")
    raise Malformed(where, f"the call `{write_call_id(result.id)}` already has a result")


def read_settings(reading: StrictReadContext, node: Object) -> Settings:
    fields = read_fields(node, None, names.SETTING_FIELDS)
    for key, (field, read) in _STRUCTURED_SETTINGS.items():
        if node.get(key) is not None:
            fields[field] = read(reading, node, (None, key))
    return Settings(**fields, where={field: (None, _SETTING_KEYS[field]) for field in fields})


def _read_stop_sequences(reading: StrictReadContext, node: Object, path: Path) -> tuple[str, ...]:
    value = node["stop"]
    if isinstance(value, str):
        return (value,)
    if not isinstance(value, list):
        raise_wrong_type(path, "a string or an array of strings", value)
    return names.get_texts(node, "stop", None) or ()


def _read_reasoning_settings(reading: StrictReadContext, node: Object, path: Path) -> Thinking:
    value = expect_object(node["reasoning"], path)
    fields = read_fields(value, path, names.THINKING_FIELDS)
    return Thinking(**fields, origin=reading.read_origin(value, path, names.REASONING_KEYS))


def _read_response_format(reading: StrictReadContext, node: Object, path: Path) -> Format:
    value = expect_object(node["response_format"], path)
    origin = reading.read_origin(value, path, names.FORMAT_KEYS)
    require_text(value, "type", path)
    kind: Any = names.read_word(value, "type", path, ("text", "json", "schema"))
    schema = get_object(value, "schema", path)
    if (kind == "schema") is not (schema is not None):
        raise Malformed(path, "the type `schema` needs `schema`, and no other type has it")
    if schema is not None:
        check_schema(schema, (path, "schema"))
    return Format(kind, schema, **read_fields(value, path, names.FORMAT_FIELDS), origin=origin)


_STRUCTURED_SETTINGS: Mapping[str, tuple[str, Callable[[StrictReadContext, Object, Path], Any]]] = {
    "stop": ("stop", _read_stop_sequences),
    "reasoning": ("thinking", _read_reasoning_settings),
    "response_format": ("format", _read_response_format),
    "cache": ("cache", lambda _reading, node, _path: read_cache(node, None)),
}
"""Settings with a reader of their own: the key, the field of `Settings`, and the reader."""
_SETTING_KEYS = {field: key for key, (field, _) in {**names.SETTING_FIELDS, **_STRUCTURED_SETTINGS}.items()}
SUPPORTED_SETTINGS = frozenset({*_SETTING_KEYS, "stream_usage"})
"""The settings that unified has. Its streams always report the usage."""

# --- writing --------------------------------------------------------------------------------------------------------


def write_request(request: Request, ledger: Ledger) -> Object:
    if (wire := intact_wire(request.origin)) is not None:
        return wire
    out: Object = {"model": request.model} if request.model else {}
    if request.system:
        out["system"] = write_content(request.system, ledger)
    out["messages"] = write_turns(request.turns, ledger)
    if request.tools:
        out["tools"] = [tool for tool in (write_any_tool(tool, ledger) for tool in request.tools) if tool is not None]
    if request.choice is not None:
        choice = fit_tool_choice(request.choice, request.tools, lambda tool: not isinstance(tool, Opaque), ledger)
        out["tool_choice"] = write_tool_choice(choice, ledger)
    out |= write_settings(request.settings, ledger)
    if request.stream is not None:
        out["stream"] = request.stream
    return restore_original_keys(out, request.origin, NAME)


def write_turns(turns: tuple[Turn, ...], ledger: Ledger) -> list[Json]:
    """One message for each turn, but consecutive results share one."""
    messages: list[Json] = []
    open_results: list[Json] | None = None
    for turn in turns:
        if (wire := intact_wire(turn.origin)) is not None:
            messages.append(wire)
            open_results = None
            continue
        for role, parts in _split_results(turn):
            message = restore_original_keys(_write_turn(turn, role, parts, ledger), turn.origin, NAME)
            results = message["results"] if message["role"] == "tool" else None
            if results is None or open_results is None:
                messages.append(message)
                open_results = results
            else:
                open_results.extend(results)
    return messages


def _split_results(turn: Turn) -> list[tuple[Role, tuple[Part, ...]]]:
    """Split a turn: results are in messages of role "tool", other parts keep their role and order."""
    kinds = set(map(type, turn.parts))
    if Result not in kinds and turn.role != "tool":
        return [(turn.role, turn.parts)]
    if kinds == {Result}:
        return [("tool", turn.parts)]
    other: Role = "user" if turn.role == "tool" else turn.role
    groups = groupby(turn.parts, lambda part: isinstance(part, Result))
    split: list[tuple[Role, tuple[Part, ...]]] = [("tool" if results else other, tuple(run)) for results, run in groups]
    return split or [("tool", ())]


def _write_turn(turn: Turn, role: Role, parts: tuple[Part, ...], ledger: Ledger) -> Object:
    if role == "tool":
        return {"role": "tool", "results": [write_result(part, ledger) for part in parts if isinstance(part, Result)]}
    if role == "assistant":
        out = write_message(parts, ledger)
    else:
        out = {"role": role, "content": write_content(parts, ledger)}
    return out | write_fields(turn, names.TURN_FIELDS) if turn.name or turn.phase else out


def write_settings(settings: Settings, ledger: Ledger) -> Object:
    ledger.note_unwritten_settings(settings, present_settings(settings), SUPPORTED_SETTINGS)
    values = ((key, getattr(settings, field)) for key, (field, _) in names.SETTING_FIELDS.items())
    out: Object = {key: value for key, value in values if value is not None}
    if settings.stop is not None:
        out["stop"] = list(settings.stop)
    if (thinking := settings.thinking) is not None:
        wire = intact_wire(thinking.origin)
        fields = write_fields(thinking, names.THINKING_FIELDS) if wire is None else wire
        out["reasoning"] = restore_original_keys(fields, thinking.origin, NAME)
    if settings.format is not None:
        out["response_format"] = _write_response_format(settings.format, settings.where.get("format"), ledger)
    return out if settings.cache == OFF else out | write_cache(settings.cache)


def _write_response_format(format: Format, where: Path, ledger: Ledger) -> Object:
    if (wire := intact_wire(format.origin)) is not None:
        return wire
    out: Object = {"type": format.kind, **write_fields(format, names.FORMAT_FIELDS)}
    if format.schema is not None:
        out["schema"] = format.schema
    if format.strict:
        ledger.note("no-counterpart", where, "`strict` of the format was left out", "unified has no strict mode")
    return restore_original_keys(out, format.origin, NAME)
