"""Requests. They are checked strictly before anything is sent to a provider."""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby
from typing import Any, Literal, NoReturn, cast

from toolwire.core.ir import (
    Call,
    Format,
    Part,
    Request,
    Result,
    Role,
    Settings,
    Thinking,
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
    expect_text,
    get_bool,
    get_int,
    get_list,
    get_object,
    get_text,
    raise_wrong_type,
    require_text,
)
from toolwire.core.losses import OFF, Ledger
from toolwire.core.provenance import items_with_paths, present_settings, restore_original_keys
from toolwire.core.tokens import EFFORTS
from toolwire.protocols.unified import names
from toolwire.protocols.unified.content import (
    read_cache,
    read_content,
    read_enum,
    read_result,
    write_cache,
    write_content,
    write_result,
)
from toolwire.protocols.unified.names import NAME, StrictReadContext, intact_wire, suggest_word, write_call_id
from toolwire.protocols.unified.response import read_message, write_message
from toolwire.protocols.unified.tools import (
    check_schema,
    check_tool_name,
    read_tool_choice,
    read_tools,
    write_tool_choice,
    write_tools,
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
        raise Malformed((path, "role"), f"unknown role `{role}`; {suggest_word(role, ROLES)}")
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
                id = part.id
                if part.name not in checked_names or not 0 < len(id) <= names.ID_LIMIT or id in answered:
                    _check_call(part, answered)
                    checked_names.add(part.name)
                answered[id] = False
            elif isinstance(part, Result):
                if answered.get(part.id) is not False:
                    _refuse_result(part, answered)
                answered[part.id] = True


def _check_call(call: Call, answered: dict[str, bool]) -> None:
    where = source_path(call)
    check_tool_name(call.name, (where, "name"))
    if not 0 < len(call.id) <= names.ID_LIMIT:
        raise Malformed((where, "id"), f"an id has 1 to {names.ID_LIMIT} characters")
    if call.id in answered:
        problem = f"an earlier call already has the id `{write_call_id(call.id)}`; ids must be unique"
        raise Malformed((where, "id"), problem)


def _refuse_result(result: Result, answered: dict[str, bool]) -> NoReturn:
    where: Path = (source_path(result), "tool_call_id")
    if result.id not in answered:
        known = [write_call_id(id) for id in answered]
        more = f" and {len(known) - _MAX_SHOWN_IDS} more" if len(known) > _MAX_SHOWN_IDS else ""
        listed = ", ".join(known[-_MAX_SHOWN_IDS:]) or "none, there is no call before this result"
        raise Malformed(where, f"unknown tool_call_id `{write_call_id(result.id)}`; known: {listed}{more}")
    raise Malformed(where, f"the call `{write_call_id(result.id)}` already has a result")


def read_settings(reading: StrictReadContext, node: Object) -> Settings:
    fields: dict[str, Json] = {}
    where: dict[str, Path] = {}
    for key, field, take in names.SETTING_FIELDS:
        if node.get(key) is not None:
            fields[field], where[field] = take(node, key, None), (None, key)
    for key, field, read in _STRUCTURED_SETTINGS:
        if node.get(key) is not None:
            fields[field], where[field] = read(reading, node, (None, key)), (None, key)
    return Settings(**fields, where=where)


def _read_stop_sequences(reading: StrictReadContext, node: Object, path: Path) -> tuple[str, ...]:
    value = node["stop"]
    if isinstance(value, str):
        return (value,)
    if not isinstance(value, list):
        raise_wrong_type(path, "a string or an array of strings", value)
    return tuple(expect_text(item, where) for item, where in items_with_paths(value, path))


def _read_reasoning_settings(reading: StrictReadContext, node: Object, path: Path) -> Thinking:
    value = expect_object(node["reasoning"], path)
    return Thinking(
        cast(Literal["", "off", "on", "auto"], read_enum(value, "mode", path, ("off", "on", "auto"))),
        read_enum(value, "effort", path, EFFORTS),
        get_int(value, "budget", path),
        get_text(value, "show", path) or "",
        origin=reading.read_origin(value, path, names.REASONING_KEYS),
    )


def _read_response_format(reading: StrictReadContext, node: Object, path: Path) -> Format:
    value = expect_object(node["response_format"], path)
    origin = reading.read_origin(value, path, names.FORMAT_KEYS)
    require_text(value, "type", path)
    kind = cast(Literal["text", "json", "schema"], read_enum(value, "type", path, ("text", "json", "schema")))
    schema = get_object(value, "schema", path)
    if (kind == "schema") is not (schema is not None):
        raise Malformed(path, "the type `schema` needs `schema`, and no other type has it")
    if schema is not None:
        check_schema(schema, (path, "schema"))
    name, description = get_text(value, "name", path) or "", get_text(value, "description", path) or ""
    return Format(kind, schema, name, description, origin=origin)


_STRUCTURED_SETTINGS: tuple[tuple[str, str, Callable[[StrictReadContext, Object, Path], Any]], ...] = (
    ("stop", "stop", _read_stop_sequences),
    ("reasoning", "thinking", _read_reasoning_settings),
    ("response_format", "format", _read_response_format),
    ("cache", "cache", lambda _reading, node, _path: read_cache(node, None)),
)
"""Settings with a reader of their own: the key, the field of `Settings`, and the reader."""

# --- writing --------------------------------------------------------------------------------------------------------


def write_request(request: Request, ledger: Ledger) -> Object:
    if (wire := intact_wire(request.origin)) is not None:
        return wire
    out: Object = {"model": request.model} if request.model else {}
    if request.system:
        out["system"] = write_content(request.system, ledger, names.INPUT_PART_TYPES)
    out["messages"] = write_turns(request.turns, ledger)
    if request.tools:
        out["tools"] = write_tools(request.tools, ledger)
    if request.choice is not None:
        out["tool_choice"] = write_tool_choice(request.choice, ledger)
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
        out = {"role": role, "content": write_content(parts, ledger, names.INPUT_PART_TYPES)}
    return out | {key: value for key in ("name", "phase") if (value := getattr(turn, key))}


def write_settings(settings: Settings, ledger: Ledger) -> Object:
    ledger.note_unwritten_settings(settings, present_settings(settings), names.SUPPORTED_SETTINGS)
    out: Object = {
        key: value for key, field, _ in names.SETTING_FIELDS if (value := getattr(settings, field)) is not None
    }
    if settings.stop is not None:
        out["stop"] = list(settings.stop)
    if settings.thinking is not None:
        out["reasoning"] = _write_reasoning_settings(settings.thinking)
    if settings.format is not None:
        out["response_format"] = _write_response_format(settings.format, settings.where.get("format"), ledger)
    return out if settings.cache == OFF else out | write_cache(settings.cache)


def _write_reasoning_settings(thinking: Thinking) -> Object:
    if (wire := intact_wire(thinking.origin)) is not None:
        return wire
    words = {"mode": thinking.mode, "effort": thinking.effort, "show": thinking.summary}
    out: Object = {key: word for key, word in words.items() if word}
    if thinking.budget is not None:
        out["budget"] = thinking.budget
    return restore_original_keys(out, thinking.origin, NAME)


def _write_response_format(format: Format, where: Path, ledger: Ledger) -> Object:
    if (wire := intact_wire(format.origin)) is not None:
        return wire
    out: Object = {"type": format.kind}
    out |= {key: value for key in ("name", "description") if (value := getattr(format, key))}
    if format.schema is not None:
        out["schema"] = format.schema
    if format.strict:
        ledger.note("no-counterpart", where, "`strict` of the format was left out", "unified has no strict mode")
    return restore_original_keys(out, format.origin, NAME)
