"""Requests. Clients are held to the rules here, before anything is sent to a provider."""

from __future__ import annotations

from itertools import groupby
from typing import Literal, NoReturn, cast

from toolwire.ir import Call, Format, Part, Request, Result, Role, Settings, Thinking, Turn, place
from toolwire.loss import OFF, Ledger
from toolwire.protocols.unified.details.usual import read_usual_turn, write_usual_turn
from toolwire.protocols.unified.names import (
    ASSISTANT,
    FORMAT,
    GIVEN,
    ID_LIMIT,
    NAME,
    REASONING,
    REQUEST,
    RESULTS,
    SAID,
    SETTINGS,
    TURN,
    Strict,
    suggestion,
    write_id,
)
from toolwire.protocols.unified.parts import (
    read_cache,
    read_content,
    read_result,
    read_word,
    write_cache,
    write_content,
    write_result,
)
from toolwire.protocols.unified.response import read_message, write_message
from toolwire.protocols.unified.tools import (
    check_name,
    check_schema,
    read_choice,
    read_tools,
    write_choice,
    write_tools,
)
from toolwire.reading import finished, numbered, set_fields, verbatim
from toolwire.thinking import EFFORTS
from toolwire.wire import (
    Json,
    Malformed,
    Object,
    Path,
    as_list,
    as_object,
    as_text,
    need_text,
    take_bool,
    take_int,
    take_list,
    take_object,
    take_text,
    wrong,
)

ROLES = ("user", "assistant", "tool", "system", "developer")
_SHOWN_IDS = 10
"""How many known ids an error lists."""

# --- reading --------------------------------------------------------------------------------------------------------


def read_request(body: Object) -> Request:
    reading = Strict(NAME)
    node = as_object(body, None)
    origin = reading.origin(node, None, REQUEST)
    messages = take_list(node, "messages", None)
    if messages is None:
        raise Malformed(None, "`messages` is missing")
    turns = read_turns(reading, messages, (None, "messages"))
    check_conversation(turns)
    tools = read_tools(reading, take_list(node, "tools", None) or [], (None, "tools"))
    chosen = node.get("tool_choice")
    return Request(
        take_text(node, "model", None) or "",
        read_content(reading, node.get("system"), (None, "system"), GIVEN),
        turns,
        tools,
        None if chosen is None else read_choice(reading, chosen, (None, "tool_choice"), tools),
        take_bool(node, "stream", None),
        read_settings(reading, node),
        origin=origin,
    )


def read_turns(reading: Strict, messages: list[Json], path: Path) -> tuple[Turn, ...]:
    turns: list[Turn] = []
    for number, item in enumerate(messages):
        where = (path, number)
        usual = read_usual_turn(item, where) if item.__class__ is dict else None
        turns.append(read_turn(reading, item, where) if usual is None else usual)
    return tuple(turns)


def read_turn(reading: Strict, value: Json, path: Path) -> Turn:
    node = as_object(value, path)
    role = need_text(node, "role", path)
    if role not in ROLES:
        raise Malformed((path, "role"), f"`{role}` is no role; {suggestion(role, ROLES)}")
    if role == "tool":
        origin = reading.origin(node, path, RESULTS)
        results = as_list(node.get("results"), (path, "results"))
        parts: tuple[Part, ...] = tuple(
            read_result(reading, item, where) for item, where in numbered(results, (path, "results"))
        )
        return Turn("tool", parts, origin=origin)
    if role == "assistant":
        origin = reading.origin(node, path, ASSISTANT)
        parts = read_message(reading, node, path)
    else:
        origin = reading.origin(node, path, TURN)
        parts = read_content(reading, node.get("content"), (path, "content"), GIVEN)
    name, phase = take_text(node, "name", path) or "", take_text(node, "phase", path) or ""
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
    where = place(call)
    check_name(call.name, (where, "name"))
    if not 0 < len(call.id) <= ID_LIMIT:
        raise Malformed((where, "id"), f"an id has 1 to {ID_LIMIT} characters")
    if call.id in answered:
        raise Malformed((where, "id"), f"an earlier call has the id `{write_id(call.id)}` already; ids must differ")


def _refuse_result(result: Result, answered: dict[str, bool]) -> NoReturn:
    where: Path = (place(result), "tool_call_id")
    if result.id not in answered:
        known = [write_id(id) for id in answered]
        more = f" and {len(known) - _SHOWN_IDS} more" if len(known) > _SHOWN_IDS else ""
        listed = ", ".join(known[-_SHOWN_IDS:]) or "none, no call stands before this result"
        raise Malformed(where, f"unknown tool_call_id `{write_id(result.id)}`; known: {listed}{more}")
    raise Malformed(where, f"the call `{write_id(result.id)}` has a result already")


def read_settings(reading: Strict, node: Object) -> Settings:
    fields: dict[str, Json] = {}
    where: dict[str, Path] = {}
    for key, field, take in SETTINGS:
        if node.get(key) is not None:
            fields[field], where[field] = take(node, key, None), (None, key)
    for key, field, read in _SHAPED:
        if node.get(key) is not None:
            fields[field], where[field] = read(reading, node, (None, key)), (None, key)
    return Settings(**fields, where=where)


def _read_stop(reading: Strict, node: Object, path: Path) -> tuple[str, ...]:
    value = node["stop"]
    if isinstance(value, str):
        return (value,)
    if not isinstance(value, list):
        wrong(path, "a string or an array of strings", value)
    return tuple(as_text(item, where) for item, where in numbered(value, path))


def _read_thinking(reading: Strict, node: Object, path: Path) -> Thinking:
    value = as_object(node["reasoning"], path)
    return Thinking(
        cast(Literal["", "off", "on", "auto"], read_word(value, "mode", path, ("off", "on", "auto"))),
        read_word(value, "effort", path, EFFORTS),
        take_int(value, "budget", path),
        take_text(value, "show", path) or "",
        origin=reading.origin(value, path, REASONING),
    )


def _read_format(reading: Strict, node: Object, path: Path) -> Format:
    value = as_object(node["response_format"], path)
    origin = reading.origin(value, path, FORMAT)
    need_text(value, "type", path)
    kind = cast(Literal["text", "json", "schema"], read_word(value, "type", path, ("text", "json", "schema")))
    schema = take_object(value, "schema", path)
    if (kind == "schema") is not (schema is not None):
        raise Malformed(path, "`schema` goes with the type `schema`, and with no other")
    if schema is not None:
        check_schema(schema, (path, "schema"))
    name, description = take_text(value, "name", path) or "", take_text(value, "description", path) or ""
    return Format(kind, schema, name, description, origin=origin)


def _read_cache(reading: Strict, node: Object, path: Path) -> str | None:
    return read_cache(node, None)


_SHAPED = (
    ("stop", "stop", _read_stop),
    ("reasoning", "thinking", _read_thinking),
    ("response_format", "format", _read_format),
    ("cache", "cache", _read_cache),
)
"""Settings with a shape of their own."""

# --- writing --------------------------------------------------------------------------------------------------------


def write_request(request: Request, ledger: Ledger) -> Object:
    if verbatim(request.origin, NAME):
        return request.origin.wire  # type: ignore[union-attr, no-any-return]
    out: Object = {"model": request.model} if request.model else {}
    if request.system:
        out["system"] = write_content(request.system, ledger, GIVEN)
    out["messages"] = write_turns(request.turns, ledger, request.origin is not None and request.origin.protocol != NAME)
    if request.tools:
        out["tools"] = write_tools(request.tools, ledger)
    if request.choice is not None:
        out["tool_choice"] = write_choice(request.choice, ledger)
    out |= write_settings(request.settings, ledger)
    if request.stream is not None:
        out["stream"] = request.stream
    return finished(out, request.origin, NAME)


def write_turns(turns: tuple[Turn, ...], ledger: Ledger, foreign: bool) -> list[Json]:
    """One message for each turn, but results that follow each other share one. What came verbatim stays as it was."""
    messages: list[Json] = []
    open_results: list[Json] | None = None
    for turn in turns:
        if not foreign and verbatim(turn.origin, NAME):
            messages.append(turn.origin.wire)  # type: ignore[union-attr]
            open_results = None
            continue
        usual = write_usual_turn(turn) if foreign else None
        for message in _write_split(turn, ledger) if usual is None else (usual,):
            results = message["results"] if message["role"] == "tool" else None
            if results is None or open_results is None:
                messages.append(message)
                open_results = results
            else:
                open_results.extend(results)
    return messages


def _write_split(turn: Turn, ledger: Ledger) -> list[Object]:
    return [finished(_write_turn(turn, role, parts, ledger), turn.origin, NAME) for role, parts in _split(turn)]


def _split(turn: Turn) -> list[tuple[Role, tuple[Part, ...]]]:
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
        out = {"role": role, "content": write_content(parts, ledger, GIVEN)}
    if turn.name:
        out["name"] = turn.name
    if turn.phase:
        out["phase"] = turn.phase
    return out


def write_settings(settings: Settings, ledger: Ledger) -> Object:
    ledger.unsaid(settings, set_fields(settings), SAID)
    out: Object = {key: value for key, field, _ in SETTINGS if (value := getattr(settings, field)) is not None}
    if settings.stop is not None:
        out["stop"] = list(settings.stop)
    if settings.thinking is not None:
        out["reasoning"] = _write_thinking(settings.thinking)
    if settings.format is not None:
        out["response_format"] = _write_format(settings.format, settings.where.get("format"), ledger)
    return out if settings.cache == OFF else out | write_cache(settings.cache)


def _write_thinking(thinking: Thinking) -> Object:
    if verbatim(thinking.origin, NAME):
        return thinking.origin.wire  # type: ignore[union-attr, no-any-return]
    out: Object = {key: word for key in ("mode", "effort", "show") if (word := getattr(thinking, key))}
    if thinking.budget is not None:
        out["budget"] = thinking.budget
    return finished(out, thinking.origin, NAME)


def _write_format(format: Format, where: Path, ledger: Ledger) -> Object:
    if verbatim(format.origin, NAME):
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
    return finished(out, format.origin, NAME)
