"""Requests. Clients are held to the rules here, before anything is sent to a provider."""

from __future__ import annotations

from itertools import groupby
from typing import Literal, NoReturn, cast

from toolwire.core.ir import (
    Call,
    Format,
    Origin,
    Part,
    Request,
    Result,
    Role,
    Settings,
    Text,
    Thinking,
    Turn,
    source_path,
)
from toolwire.core.json_values import (
    Json,
    Malformed,
    Object,
    Path,
    encode,
    expect_list,
    expect_object,
    expect_text,
    get_bool,
    get_int,
    get_list,
    get_object,
    get_text,
    raise_wrong_type,
    raw_object_or_none,
    require_text,
)
from toolwire.core.losses import OFF, Ledger
from toolwire.core.provenance import is_verbatim, items_with_paths, present_settings, restore_original_keys
from toolwire.core.reasoning_effort import EFFORTS
from toolwire.protocols.unified.content import (
    read_cache,
    read_content,
    read_enum,
    read_result,
    write_cache,
    write_content,
    write_result,
)
from toolwire.protocols.unified.names import (
    ASSISTANT_KEYS,
    CALL_ID_PREFIX,
    FORMAT_KEYS,
    ID_LIMIT,
    INPUT_PART_TYPES,
    NAME,
    REASONING_KEYS,
    REQUEST_KEYS,
    RESULTS_TURN_KEYS,
    SETTING_FIELDS,
    SUPPORTED_SETTINGS,
    TURN_KEYS,
    StrictReadContext,
    is_plain_id,
    read_call_id,
    suggest_word,
    write_call_id,
)
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
    origin = reading.read_origin(node, None, REQUEST_KEYS)
    messages = get_list(node, "messages", None)
    if messages is None:
        raise Malformed(None, "`messages` is missing")
    turns = read_turns(reading, messages, (None, "messages"))
    check_conversation(turns)
    tools = read_tools(reading, get_list(node, "tools", None) or [], (None, "tools"))
    chosen = node.get("tool_choice")
    return Request(
        get_text(node, "model", None) or "",
        read_content(reading, node.get("system"), (None, "system"), INPUT_PART_TYPES),
        turns,
        tools,
        None if chosen is None else read_tool_choice(reading, chosen, (None, "tool_choice"), tools),
        get_bool(node, "stream", None),
        read_settings(reading, node),
        origin=origin,
    )


def read_turns(reading: StrictReadContext, messages: list[Json], path: Path) -> tuple[Turn, ...]:
    turns: list[Turn] = []
    for number, item in enumerate(messages):
        where = (path, number)
        usual = read_plain_turn(item, where) if item.__class__ is dict else None
        turns.append(read_turn(reading, item, where) if usual is None else usual)
    return tuple(turns)


def read_turn(reading: StrictReadContext, value: Json, path: Path) -> Turn:
    node = expect_object(value, path)
    role = require_text(node, "role", path)
    if role not in ROLES:
        raise Malformed((path, "role"), f"`{role}` is no role; {suggest_word(role, ROLES)}")
    if role == "tool":
        origin = reading.read_origin(node, path, RESULTS_TURN_KEYS)
        results = expect_list(node.get("results"), (path, "results"))
        parts: tuple[Part, ...] = tuple(
            read_result(reading, item, where) for item, where in items_with_paths(results, (path, "results"))
        )
        return Turn("tool", parts, origin=origin)
    if role == "assistant":
        origin = reading.read_origin(node, path, ASSISTANT_KEYS)
        parts = read_message(reading, node, path)
    else:
        origin = reading.read_origin(node, path, TURN_KEYS)
        parts = read_content(reading, node.get("content"), (path, "content"), INPUT_PART_TYPES)
    name, phase = get_text(node, "name", path) or "", get_text(node, "phase", path) or ""
    return Turn(cast(Role, role), parts, name, phase, origin=origin)


def check_conversation(turns: tuple[Turn, ...]) -> None:
    """Every call has an id of its own, every result one earlier call."""
    answered: dict[str, bool] = {}
    names: set[str] = set()
    for turn in turns:
        for part in turn.parts:
            if isinstance(part, Call):
                id = part.id
                if part.name not in names or not 0 < len(id) <= ID_LIMIT or id in answered:
                    _check_call(part, answered)
                    names.add(part.name)
                answered[id] = False
            elif isinstance(part, Result):
                if answered.get(part.id) is not False:
                    _refuse_result(part, answered)
                answered[part.id] = True


def _check_call(call: Call, answered: dict[str, bool]) -> None:
    where = source_path(call)
    check_tool_name(call.name, (where, "name"))
    if not 0 < len(call.id) <= ID_LIMIT:
        raise Malformed((where, "id"), f"an id has 1 to {ID_LIMIT} characters")
    if call.id in answered:
        raise Malformed(
            (where, "id"), f"an earlier call has the id `{write_call_id(call.id)}` already; ids must differ"
        )


def _refuse_result(result: Result, answered: dict[str, bool]) -> NoReturn:
    where: Path = (source_path(result), "tool_call_id")
    if result.id not in answered:
        known = [write_call_id(id) for id in answered]
        more = f" and {len(known) - _MAX_SHOWN_IDS} more" if len(known) > _MAX_SHOWN_IDS else ""
        listed = ", ".join(known[-_MAX_SHOWN_IDS:]) or "none, no call stands before this result"
        raise Malformed(where, f"unknown tool_call_id `{write_call_id(result.id)}`; known: {listed}{more}")
    raise Malformed(where, f"the call `{write_call_id(result.id)}` has a result already")


def read_settings(reading: StrictReadContext, node: Object) -> Settings:
    fields: dict[str, Json] = {}
    where: dict[str, Path] = {}
    for key, field, take in SETTING_FIELDS:
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
        origin=reading.read_origin(value, path, REASONING_KEYS),
    )


def _read_response_format(reading: StrictReadContext, node: Object, path: Path) -> Format:
    value = expect_object(node["response_format"], path)
    origin = reading.read_origin(value, path, FORMAT_KEYS)
    require_text(value, "type", path)
    kind = cast(Literal["text", "json", "schema"], read_enum(value, "type", path, ("text", "json", "schema")))
    schema = get_object(value, "schema", path)
    if (kind == "schema") is not (schema is not None):
        raise Malformed(path, "`schema` goes with the type `schema`, and with no other")
    if schema is not None:
        check_schema(schema, (path, "schema"))
    name, description = get_text(value, "name", path) or "", get_text(value, "description", path) or ""
    return Format(kind, schema, name, description, origin=origin)


def _read_cache_setting(reading: StrictReadContext, node: Object, path: Path) -> str | None:
    return read_cache(node, None)


_STRUCTURED_SETTINGS = (
    ("stop", "stop", _read_stop_sequences),
    ("reasoning", "thinking", _read_reasoning_settings),
    ("response_format", "format", _read_response_format),
    ("cache", "cache", _read_cache_setting),
)
"""Settings with a shape of their own."""

# --- writing --------------------------------------------------------------------------------------------------------


def write_request(request: Request, ledger: Ledger) -> Object:
    if is_verbatim(request.origin, NAME):
        return request.origin.wire  # type: ignore[union-attr, no-any-return]
    out: Object = {"model": request.model} if request.model else {}
    if request.system:
        out["system"] = write_content(request.system, ledger, INPUT_PART_TYPES)
    out["messages"] = write_turns(request.turns, ledger, request.origin is not None and request.origin.protocol != NAME)
    if request.tools:
        out["tools"] = write_tools(request.tools, ledger)
    if request.choice is not None:
        out["tool_choice"] = write_tool_choice(request.choice, ledger)
    out |= write_settings(request.settings, ledger)
    if request.stream is not None:
        out["stream"] = request.stream
    return restore_original_keys(out, request.origin, NAME)


def write_turns(turns: tuple[Turn, ...], ledger: Ledger, is_foreign: bool) -> list[Json]:
    """One message for each turn, but results that follow each other share one. What came verbatim stays as it was."""
    messages: list[Json] = []
    open_results: list[Json] | None = None
    for turn in turns:
        if not is_foreign and is_verbatim(turn.origin, NAME):
            messages.append(turn.origin.wire)  # type: ignore[union-attr]
            open_results = None
            continue
        usual = write_plain_turn(turn) if is_foreign else None
        for message in _write_turn_messages(turn, ledger) if usual is None else (usual,):
            results = message["results"] if message["role"] == "tool" else None
            if results is None or open_results is None:
                messages.append(message)
                open_results = results
            else:
                open_results.extend(results)
    return messages


def _write_turn_messages(turn: Turn, ledger: Ledger) -> list[Object]:
    return [
        restore_original_keys(_write_turn(turn, role, parts, ledger), turn.origin, NAME)
        for role, parts in _split_results(turn)
    ]


def _split_results(turn: Turn) -> list[tuple[Role, tuple[Part, ...]]]:
    """Results stand in messages of their own; what else a turn holds stays with its role, in the same order."""
    if turn.role != "tool" and not any(isinstance(part, Result) for part in turn.parts):
        return [(turn.role, turn.parts)]
    other: Role = "user" if turn.role == "tool" else turn.role
    runs = groupby(turn.parts, lambda part: isinstance(part, Result))
    groups: list[tuple[Role, tuple[Part, ...]]] = [("tool" if told else other, tuple(parts)) for told, parts in runs]
    return groups or [("tool", ())]


def _write_turn(turn: Turn, role: Role, parts: tuple[Part, ...], ledger: Ledger) -> Object:
    if role == "tool":
        return {"role": "tool", "results": [write_result(part, ledger) for part in parts if isinstance(part, Result)]}
    if role == "assistant":
        out = write_message(parts, ledger)
    else:
        out = {"role": role, "content": write_content(parts, ledger, INPUT_PART_TYPES)}
    if turn.name:
        out["name"] = turn.name
    if turn.phase:
        out["phase"] = turn.phase
    return out


def write_settings(settings: Settings, ledger: Ledger) -> Object:
    ledger.note_unwritten_settings(settings, present_settings(settings), SUPPORTED_SETTINGS)
    out: Object = {key: value for key, field, _ in SETTING_FIELDS if (value := getattr(settings, field)) is not None}
    if settings.stop is not None:
        out["stop"] = list(settings.stop)
    if settings.thinking is not None:
        out["reasoning"] = _write_reasoning_settings(settings.thinking)
    if settings.format is not None:
        out["response_format"] = _write_response_format(settings.format, settings.where.get("format"), ledger)
    return out if settings.cache == OFF else out | write_cache(settings.cache)


def _write_reasoning_settings(thinking: Thinking) -> Object:
    if is_verbatim(thinking.origin, NAME):
        return thinking.origin.wire  # type: ignore[union-attr, no-any-return]
    out: Object = {key: word for key in ("mode", "effort", "show") if (word := getattr(thinking, key))}
    if thinking.budget is not None:
        out["budget"] = thinking.budget
    return restore_original_keys(out, thinking.origin, NAME)


def _write_response_format(format: Format, where: Path, ledger: Ledger) -> Object:
    if is_verbatim(format.origin, NAME):
        return format.origin.wire  # type: ignore[union-attr, no-any-return]
    out: Object = {"type": format.kind}
    if format.name:
        out["name"] = format.name
    if format.description:
        out["description"] = format.description
    if format.schema is not None:
        out["schema"] = format.schema
    if format.strict:
        ledger.note("no-counterpart", where, "strict mode of the format was left out", "unified has none")
    return restore_original_keys(out, format.origin, NAME)


# --- reading --------------------------------------------------------------------------------------------------------


def read_plain_turn(node: Object, path: Path) -> Turn | None:
    role = node.get("role")
    if role == "tool":
        parts = _read_plain_results(node.get("results"), (path, "results")) if len(node) == 2 else None
        return None if parts is None else Turn("tool", tuple(parts), origin=Origin(NAME, path, node))
    content = node.get("content")
    if content.__class__ is str:
        parts = [Text(content, origin=Origin(NAME, (path, "content"), content))]
    elif content is None and "content" in node:
        parts = []
    else:
        return None
    if role == "assistant":
        if len(node) == 3:
            calls = _read_plain_calls(node.get("tool_calls"), (path, "tool_calls"))
            if calls is None:
                return None
            parts += calls
        elif len(node) != 2:
            return None
    elif len(node) != 2 or role not in ("user", "system", "developer"):
        return None
    return Turn(role, tuple(parts), origin=Origin(NAME, path, node))


def _read_plain_calls(items: Json, path: Path) -> list[Part] | None:
    if items.__class__ is not list:
        return None
    calls: list[Part] = []
    for number, node in enumerate(items):
        if node.__class__ is not dict or len(node) != 3:
            return None
        id, name, arguments = node.get("id"), node.get("name"), node.get("arguments")
        if id.__class__ is not str or name.__class__ is not str or arguments.__class__ is not dict:
            return None
        calls.append(
            Call(read_call_id(id), name, encode(arguments).decode(), origin=Origin(NAME, (path, number), node))
        )
    return calls


def _read_plain_results(items: Json, path: Path) -> list[Part] | None:
    if items.__class__ is not list:
        return None
    results: list[Part] = []
    for number, node in enumerate(items):
        if node.__class__ is not dict:
            return None
        id, content, error = node.get("tool_call_id"), node.get("content"), node.get("is_error")
        if id.__class__ is not str or content.__class__ is not str:
            return None
        if len(node) != 2 and (len(node) != 3 or error.__class__ is not bool):
            return None
        here = (path, number)
        said = (Text(content, origin=Origin(NAME, (here, "content"), content)),)
        results.append(Result(read_call_id(id), said, error, origin=Origin(NAME, here, node)))
    return results


# --- writing --------------------------------------------------------------------------------------------------------


def write_plain_turn(turn: Turn) -> Object | None:
    """A turn of another protocol's, in which nothing is given back as it was."""
    parts = turn.parts
    if not parts or turn.name or turn.phase:
        return None
    first = parts[0]
    if isinstance(first, Result):
        results = _write_plain_results(parts)
        return None if results is None else {"role": "tool", "results": results}
    if turn.role != "assistant" or not isinstance(first, Text) or not _is_plain_text(first):
        return None
    if len(parts) == 1:
        return {"role": "assistant", "content": first.text}
    calls = _write_plain_calls(parts[1:])
    return None if calls is None else {"role": "assistant", "content": first.text, "tool_calls": calls}


def _is_plain_text(text: Text) -> bool:
    return text.seal is None and text.cache is None and not text.citations


def _write_plain_calls(parts: tuple[Part, ...]) -> list[Object] | None:
    calls: list[Object] = []
    for call in parts:
        if not isinstance(call, Call) or call.kind != "function" or not is_plain_id(call.id):
            return None
        if call.namespace or call.item or call.later or call.incomplete:
            return None
        arguments = raw_object_or_none(call.arguments)
        if arguments is None or call.seal is not None or call.cache is not None:
            return None
        calls.append({"id": CALL_ID_PREFIX + call.id, "name": call.name, "arguments": arguments})
    return calls


def _write_plain_results(parts: tuple[Part, ...]) -> list[Object] | None:
    results: list[Object] = []
    for result in parts:
        if not isinstance(result, Result) or result.kind != "function" or not is_plain_id(result.id):
            return None
        content = result.content
        if len(content) != 1 or not isinstance(said := content[0], Text) or not _is_plain_text(said):
            return None
        if result.value is not None or result.name or result.cache is not None:
            return None
        out: Object = {"tool_call_id": CALL_ID_PREFIX + result.id, "content": said.text}
        if result.error is not None:
            out["is_error"] = result.error
        results.append(out)
    return results
