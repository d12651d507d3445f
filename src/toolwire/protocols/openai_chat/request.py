"""Requests: messages and settings, both ways."""

from __future__ import annotations

from typing import Any

from toolwire.core.ir import NO_SETTINGS, Format, Origin, Request, Settings, Thinking, source_path
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
from toolwire.core.provenance import ReadContext, is_verbatim, items_with_paths, present_settings, restore_original_keys
from toolwire.protocols.openai_chat import names
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
from toolwire.protocols.openai_chat.names import NAME, is_own, unknown_nested_keys
from toolwire.protocols.openai_chat.tools import read_tool_choice, read_tools, write_tool_choice, write_tools

# --- reading --------------------------------------------------------------------------------------------------------


def read_request(body: Object) -> Request:
    reading = ReadContext(NAME)
    ordinary = _STRUCTURE_KEYS.issuperset(body)
    if "messages" not in body:
        raise Malformed(None, "`messages` is missing")
    turns = read_turns(body["messages"], (None, "messages"), reading)
    tools = read_tools(body, reading)
    choice = read_tool_choice(body, reading)
    settings, unsaid = (NO_SETTINGS, _NO_KEYS) if ordinary else _read_settings(body, reading)
    if choice is None:
        if not _TOOL_CHOICE_KEYS.isdisjoint(body):
            unsaid |= _TOOL_CHOICE_KEYS
    elif "function_call" in body and body.get("tool_choice") is not None and body["function_call"] is not None:
        unsaid |= {"function_call"}
    return Request(
        get_text(body, "model", None) or "",
        (),
        turns,
        tools,
        choice,
        get_bool(body, "stream", None) if "stream" in body else None,
        settings,
        False,
        Origin(NAME, None, body) if ordinary and not unsaid else _request_origin(body, unsaid, reading),
        tuple(reading.unknown_fields),
    )


def _request_origin(body: Object, unread_keys: frozenset[str], reading: ReadContext) -> Origin:
    return reading.read_origin(body, None, names.REQUEST_KEYS - unread_keys if unread_keys else names.REQUEST_KEYS)


def _read_settings(body: Object, reading: ReadContext) -> tuple[Settings, frozenset[str]]:
    """Settings, and those known keys of which the value has found no place there."""
    unsaid = _NO_KEYS
    if _SETTING_KEYS.isdisjoint(body):
        return NO_SETTINGS, unsaid
    fields: dict[str, Any] = {}
    where: dict[str, Path] = {}
    for field, key, take in names.COPIED_SETTINGS:
        if body.get(key) is not None:
            fields[field], where[field] = take(body, key, None), (None, key)
    for field, (first, second), take in (
        ("max_tokens", names.MAX_TOKENS_KEYS, get_int),
        ("user", names.USER_KEYS, get_text),
    ):
        values = take(body, first, None), take(body, second, None)
        if values != (None, None):
            chosen, said = (second, values[1]) if values[0] is None else (first, values[0])
            fields[field], where[field] = said, (None, chosen)
            if None not in values and values[0] != values[1]:
                unsaid |= {second}
    for key, (field, read) in _SETTING_READERS.items():
        if body.get(key) is not None:
            value = read(body[key], (None, key), reading)
            if value is not None:
                fields[field], where[field] = value, (None, key)
    return (Settings(**fields, where=where) if fields else NO_SETTINGS), unsaid


def _read_stop_sequences(value: Json, path: Path, _reading: ReadContext) -> tuple[str, ...]:
    if isinstance(value, str):
        return (value,)
    return tuple(expect_text(item, at) for item, at in items_with_paths(expect_list(value, path), path))


def _read_reasoning_effort(value: Json, path: Path, reading: ReadContext) -> Thinking:
    effort = expect_text(value, path)
    return Thinking("off" if effort == "none" else "", effort, origin=reading.whole_origin(value, path))


def _read_response_format(value: Json, path: Path, reading: ReadContext) -> Format:
    node = expect_object(value, path)
    kind, origin = require_text(node, "type", path), reading.whole_origin(value, path)
    if kind == "text":
        return Format("text", origin=origin)
    if kind == "json_object":
        return Format("json", origin=origin)
    if kind != "json_schema":
        raise Malformed((path, "type"), f"unknown format {kind!r}; known are text, json_object, json_schema")
    at = (path, "json_schema")
    inner = expect_object(node.get("json_schema"), at)
    reading.read_origin(inner, at, names.JSON_SCHEMA_KEYS)
    return Format(
        "schema",
        inner.get("schema"),
        get_text(inner, "name", at) or "",
        get_text(inner, "description", at) or "",
        get_bool(inner, "strict", at),
        origin,
    )


def _read_stream_options(value: Json, path: Path, reading: ReadContext) -> bool | None:
    node = expect_object(value, path)
    reading.read_origin(node, path, names.STREAM_OPTIONS_KEYS)
    return get_bool(node, "include_usage", path)


_SETTING_READERS = {
    "stop": ("stop", _read_stop_sequences),
    "reasoning_effort": ("thinking", _read_reasoning_effort),
    "response_format": ("format", _read_response_format),
    "stream_options": ("stream_usage", _read_stream_options),
}
_SETTING_KEYS = frozenset(
    (*_SETTING_READERS, *names.MAX_TOKENS_KEYS, *names.USER_KEYS, *(key for _, key, _ in names.COPIED_SETTINGS))
)
_TOOL_CHOICE_KEYS = frozenset({"tool_choice", "function_call"})
_STRUCTURE_KEYS = frozenset({"model", "messages", "tools", "tool_choice", "stream"})
_NO_KEYS: frozenset[str] = frozenset()


# --- writing --------------------------------------------------------------------------------------------------------


def write_request(request: Request, ledger: Ledger) -> Object:
    origin = request.origin
    ours = origin is not None and origin.protocol == NAME
    if ours and origin.intact:  # type: ignore[union-attr]
        wire: Object = origin.wire  # type: ignore[union-attr]
        return wire
    known = family(request.model, ours or ledger.source == NAME)
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
    return restore_original_keys(out, origin, NAME) if ours else out


# --- settings -------------------------------------------------------------------------------------------------------


def _write_settings(request: Request, out: Object, family: Family, ledger: Ledger) -> None:
    settings = request.settings
    tools = "tools" in out or "functions" in out
    said = present_settings(settings)
    if not _COPIED_SETTINGS.isdisjoint(said):
        _write_copied_settings(settings, out, tools, family, ledger)
    if settings.max_tokens is not None:
        out[key_as_sent(request, names.MAX_TOKENS_KEYS, family.max_tokens_key, family)] = settings.max_tokens
    if settings.user is not None:
        write_user(request, settings.user, out, family, ledger)
    if settings.stop is not None:
        write_stop_sequences(settings, settings.stop, out, family, ledger)
    if settings.thinking is not None or family.no_effort_with_tools:
        write_reasoning_effort(request, out, family, tools, ledger)
    if settings.format is not None:
        out["response_format"] = _write_response_format(settings.format)
    if request.stream or settings.stream_usage is not None or family.native:
        _write_stream_options(request, out, family, ledger)
    ledger.note_unwritten_settings(settings, said, names.SUPPORTED_SETTINGS)


_COPIED_SETTINGS = frozenset(field for field, _, _ in names.COPIED_SETTINGS)


def _write_copied_settings(settings: Settings, out: Object, has_tools: bool, family: Family, ledger: Ledger) -> None:
    for field, key, _ in names.COPIED_SETTINGS:
        value = getattr(settings, field)
        if value is None:
            continue
        if is_setting_refused(field, has_tools, family):
            ledger.note("no-counterpart", settings.where.get(field), f"`{key}` is not taken here and was left out")
        else:
            out[key] = value


def _write_response_format(form: Format) -> Json:
    if form.origin is not None and is_verbatim(form.origin, NAME):
        return form.origin.wire
    if form.kind != "schema":
        return {"type": "text" if form.kind == "text" else "json_object"}
    inner: Object = {"name": form.name or "answer"}
    if form.description:
        inner["description"] = form.description
    if form.schema is not None:
        inner["schema"] = form.schema
    if form.strict is not None:
        inner["strict"] = form.strict
    return {"type": "json_schema", "json_schema": inner}


def _write_stream_options(request: Request, out: Object, family: Family, ledger: Ledger) -> None:
    wanted = request.settings.stream_usage
    options: Object = {}
    if request.origin is not None and is_own(request.origin):
        options = unknown_nested_keys(request.origin.wire, "stream_options", names.STREAM_OPTIONS_KEYS)
    if request.stream and wanted is None and not family.native:
        wanted = True
        ledger.note("default-added", None, "usage is asked for in the stream")
    if wanted is not None and not request.stream and not family.native:
        ledger.note(
            "no-counterpart", request.settings.where.get("stream_usage"), "without a stream there are no options of it"
        )
        return
    if wanted is not None:
        options = {"include_usage": wanted, **options}
    if options:
        out["stream_options"] = options
