"""Whole Chat requests: messages, tools and settings, read and written."""

from __future__ import annotations

from typing import Any

from toolwire.core.ir import NO_SETTINGS, Format, Request, Settings, Thinking, source_path
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
    get_text,
    require_text,
)
from toolwire.core.losses import Ledger
from toolwire.core.provenance import ReadContext, items_with_paths, present_settings, restore_original_keys
from toolwire.protocols.openai_chat.messages import read_turns, write_content, write_turns
from toolwire.protocols.openai_chat.models import (
    Family,
    family,
    is_setting_refused,
    key_as_sent,
    write_reasoning_effort,
    write_stop_sequences,
    write_user,
)
from toolwire.protocols.openai_chat.names import (
    COPIED_SETTINGS,
    FORMAT_KINDS,
    FORMAT_TYPES,
    JSON_SCHEMA_KEYS,
    MAX_TOKENS_KEYS,
    NAME,
    REQUEST_KEYS,
    STREAM_OPTIONS_KEYS,
    SUPPORTED_SETTINGS,
    USER_KEYS,
    intact_wire,
    is_own,
    unknown_nested_keys,
)
from toolwire.protocols.openai_chat.tools import read_tool_choice, read_tools, write_tool_choice, write_tools

# --- reading --------------------------------------------------------------------------------------------------------


def read_request(body: Object) -> Request:
    reading = ReadContext(NAME)
    if "messages" not in body:
        raise Malformed(None, "`messages` is missing")
    turns = read_turns(body["messages"], (None, "messages"), reading)
    tools = read_tools(body, reading)
    choice = read_tool_choice(body, reading)
    settings, unread_keys = (NO_SETTINGS, _NO_KEYS) if _SETTING_KEYS.isdisjoint(body) else _read_settings(body, reading)
    if choice is None:
        unread_keys |= _TOOL_CHOICE_KEYS
    elif body.get("tool_choice") is not None and body.get("function_call") is not None:
        unread_keys |= {"function_call"}
    known = REQUEST_KEYS - unread_keys if unread_keys else REQUEST_KEYS
    return Request(
        get_text(body, "model", None) or "",
        (),
        turns,
        tools,
        choice,
        get_bool(body, "stream", None),
        settings,
        False,
        reading.read_origin(body, None, known),
        tuple(reading.unknown_fields),
    )


def _read_settings(body: Object, reading: ReadContext) -> tuple[Settings, frozenset[str]]:
    """The settings, and the known keys whose value has no place in them."""
    unread_keys = _NO_KEYS
    fields: dict[str, Any] = {}
    where: dict[str, Path] = {}
    for field, (key, take) in COPIED_SETTINGS.items():
        if body.get(key) is not None:
            fields[field], where[field] = take(body, key, None), (None, key)
    for field, keys, take in (("max_tokens", MAX_TOKENS_KEYS, get_int), ("user", USER_KEYS, get_text)):
        values = {key: found for key in keys if (found := take(body, key, None)) is not None}
        for key, found in values.items():
            if field not in fields:
                fields[field], where[field] = found, (None, key)
            elif found != fields[field]:
                unread_keys |= {key}
    for key, (field, read) in _SETTING_READERS.items():
        if body.get(key) is not None:
            value = read(body[key], (None, key), reading)
            if value is not None:
                fields[field], where[field] = value, (None, key)
    return (Settings(**fields, where=where) if fields else NO_SETTINGS), unread_keys


def _read_stop_sequences(value: Json, path: Path, _reading: ReadContext) -> tuple[str, ...]:
    if isinstance(value, str):
        return (value,)
    return tuple(expect_text(item, at) for item, at in items_with_paths(expect_list(value, path), path))


def _read_reasoning_effort(value: Json, path: Path, reading: ReadContext) -> Thinking:
    effort = expect_text(value, path)
    return Thinking("off" if effort == "none" else "", effort, origin=reading.whole_origin(value, path))


def _read_response_format(value: Json, path: Path, reading: ReadContext) -> Format:
    node = expect_object(value, path)
    word, origin = require_text(node, "type", path), reading.whole_origin(value, path)
    kind = FORMAT_KINDS.get(word)
    if kind is None:
        raise Malformed((path, "type"), f"unknown format {word!r}; known are {', '.join(FORMAT_KINDS)}")
    if kind != "schema":
        return Format(kind, origin=origin)
    at = (path, "json_schema")
    inner = expect_object(node.get("json_schema"), at)
    reading.read_origin(inner, at, JSON_SCHEMA_KEYS)
    name, description = get_text(inner, "name", at) or "", get_text(inner, "description", at) or ""
    return Format("schema", inner.get("schema"), name, description, get_bool(inner, "strict", at), origin)


def _read_stream_options(value: Json, path: Path, reading: ReadContext) -> bool | None:
    node = expect_object(value, path)
    reading.read_origin(node, path, STREAM_OPTIONS_KEYS)
    return get_bool(node, "include_usage", path)


_SETTING_READERS = {
    "stop": ("stop", _read_stop_sequences),
    "reasoning_effort": ("thinking", _read_reasoning_effort),
    "response_format": ("format", _read_response_format),
    "stream_options": ("stream_usage", _read_stream_options),
}
_SETTING_KEYS = frozenset(
    (*_SETTING_READERS, *MAX_TOKENS_KEYS, *USER_KEYS, *(key for key, _ in COPIED_SETTINGS.values()))
)
_TOOL_CHOICE_KEYS = frozenset({"tool_choice", "function_call"})
_NO_KEYS: frozenset[str] = frozenset()


# --- writing --------------------------------------------------------------------------------------------------------


def write_request(request: Request, ledger: Ledger) -> Object:
    origin = request.origin
    wire = intact_wire(origin)
    if wire is not None:
        return wire
    known = family(request.model, is_own(origin) or ledger.source == NAME)
    messages: list[Object] = []
    if request.system:
        messages.append({"role": "system", "content": write_content(request.system, known, ledger)})
    messages += write_turns(request.turns, known, ledger)
    out: Object = {"model": request.model, "messages": messages}
    out |= write_tools(request.tools, known, ledger)
    if request.choice is not None:
        if "tools" in out or "functions" in out or known.native:
            key, value = write_tool_choice(request.choice, ledger)
            out[key] = value
        elif request.choice.mode not in ("auto", "none"):
            ledger.note("choice-weakened", source_path(request.choice), "without tools there is nothing to choose")
    if request.stream is not None:
        out["stream"] = request.stream
    _write_settings(request, out, known, ledger)
    return restore_original_keys(out, origin, NAME)


def _write_settings(request: Request, out: Object, family: Family, ledger: Ledger) -> None:
    settings = request.settings
    has_tools = "tools" in out or "functions" in out
    present = present_settings(settings)
    for field in filter(present.__contains__, COPIED_SETTINGS):
        key, _ = COPIED_SETTINGS[field]
        if is_setting_refused(field, has_tools, family):
            ledger.note("no-counterpart", settings.where.get(field), f"`{key}` is not accepted here and was left out")
        else:
            out[key] = getattr(settings, field)
    if settings.max_tokens is not None:
        out[key_as_sent(request, MAX_TOKENS_KEYS, family.max_tokens_key, family)] = settings.max_tokens
    if settings.user is not None:
        write_user(request, settings.user, out, family, ledger)
    if settings.stop is not None:
        write_stop_sequences(settings, settings.stop, out, family, ledger)
    if settings.thinking is not None or family.no_effort_with_tools:
        write_reasoning_effort(request, out, family, has_tools, ledger)
    if settings.format is not None:
        out["response_format"] = _write_response_format(settings.format)
    if request.stream or settings.stream_usage is not None or family.native:
        _write_stream_options(request, out, family, ledger)
    ledger.note_unwritten_settings(settings, present, SUPPORTED_SETTINGS)


def _write_response_format(form: Format) -> Object:
    wire = intact_wire(form.origin)
    if wire is not None:
        return wire
    if form.kind != "schema":
        return {"type": FORMAT_TYPES[form.kind]}
    fields = {
        "name": form.name or "answer",
        "description": form.description or None,
        "schema": form.schema,
        "strict": form.strict,
    }
    return {"type": "json_schema", "json_schema": {key: value for key, value in fields.items() if value is not None}}


def _write_stream_options(request: Request, out: Object, family: Family, ledger: Ledger) -> None:
    wanted = request.settings.stream_usage
    options: Object = {}
    if is_own(request.origin):
        options = unknown_nested_keys(request.origin.wire, "stream_options", STREAM_OPTIONS_KEYS)
    if request.stream and wanted is None and not family.native:
        wanted = True
        ledger.note("default-added", None, "the stream was asked to report its usage")
    if wanted is not None and not request.stream and not family.native:
        where = request.settings.where.get("stream_usage")
        ledger.note("no-counterpart", where, "`stream_options` were left out: they need `stream`")
        return
    if wanted is not None:
        options = {"include_usage": wanted, **options}
    if options:
        out["stream_options"] = options
