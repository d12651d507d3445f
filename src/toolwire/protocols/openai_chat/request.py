"""Requests: messages and settings, both ways."""

from __future__ import annotations

from typing import Any

from toolwire.ir import UNSET, Format, Origin, Request, Settings, Thinking, place
from toolwire.loss import Ledger
from toolwire.protocols.openai_chat import names
from toolwire.protocols.openai_chat.details.turns import read_turns, write_content, write_turns
from toolwire.protocols.openai_chat.models import (
    Family,
    family,
    refused,
    spelled,
    write_effort,
    write_stop,
    write_user,
)
from toolwire.protocols.openai_chat.names import NAME, own, sub_keys
from toolwire.protocols.openai_chat.tools import read_choice, read_tools, write_choice, write_tools
from toolwire.reading import Reading, finished, numbered, set_fields, verbatim
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
    take_text,
)

# --- reading --------------------------------------------------------------------------------------------------------


def read_request(body: Object) -> Request:
    reading = Reading(NAME)
    ordinary = _ORDINARY.issuperset(body)
    if "messages" not in body:
        raise Malformed(None, "`messages` is missing")
    turns = read_turns(body["messages"], (None, "messages"), reading)
    tools = read_tools(body, reading)
    choice = read_choice(body, reading)
    settings, unsaid = (UNSET, _NOTHING) if ordinary else _read_settings(body, reading)
    if choice is None:
        if not _CHOICE.isdisjoint(body):
            unsaid |= _CHOICE
    elif "function_call" in body and body.get("tool_choice") is not None and body["function_call"] is not None:
        unsaid |= {"function_call"}
    return Request(
        take_text(body, "model", None) or "",
        (),
        turns,
        tools,
        choice,
        take_bool(body, "stream", None) if "stream" in body else None,
        settings,
        False,
        Origin(NAME, None, body) if ordinary and not unsaid else _origin(body, unsaid, reading),
        tuple(reading.strays),
    )


def _origin(body: Object, unsaid: frozenset[str], reading: Reading) -> Origin:
    return reading.origin(body, None, names.KNOWN_REQUEST - unsaid if unsaid else names.KNOWN_REQUEST)


def _read_settings(body: Object, reading: Reading) -> tuple[Settings, frozenset[str]]:
    """Settings, and those known keys of which the value has found no place there."""
    unsaid = _NOTHING
    if _SETTINGS.isdisjoint(body):
        return UNSET, unsaid
    fields: dict[str, Any] = {}
    where: dict[str, Path] = {}
    for field, key, take in names.PLAIN_SETTINGS:
        if body.get(key) is not None:
            fields[field], where[field] = take(body, key, None), (None, key)
    for field, (first, second), take in (
        ("max_tokens", names.LIMIT_KEYS, take_int),
        ("user", names.USER_KEYS, take_text),
    ):
        values = take(body, first, None), take(body, second, None)
        if values != (None, None):
            chosen, said = (second, values[1]) if values[0] is None else (first, values[0])
            fields[field], where[field] = said, (None, chosen)
            if None not in values and values[0] != values[1]:
                unsaid |= {second}
    for key, (field, read) in _READ.items():
        if body.get(key) is not None:
            value = read(body[key], (None, key), reading)
            if value is not None:
                fields[field], where[field] = value, (None, key)
    return (Settings(**fields, where=where) if fields else UNSET), unsaid


def _read_stop(value: Json, path: Path, _reading: Reading) -> tuple[str, ...]:
    if isinstance(value, str):
        return (value,)
    return tuple(as_text(item, at) for item, at in numbered(as_list(value, path), path))


def _read_effort(value: Json, path: Path, reading: Reading) -> Thinking:
    effort = as_text(value, path)
    return Thinking("off" if effort == "none" else "", effort, origin=reading.whole(value, path))


def _read_format(value: Json, path: Path, reading: Reading) -> Format:
    node = as_object(value, path)
    kind, origin = need_text(node, "type", path), reading.whole(value, path)
    if kind == "text":
        return Format("text", origin=origin)
    if kind == "json_object":
        return Format("json", origin=origin)
    if kind != "json_schema":
        raise Malformed((path, "type"), f"unknown format {kind!r}; known are text, json_object, json_schema")
    at = (path, "json_schema")
    inner = as_object(node.get("json_schema"), at)
    reading.origin(inner, at, names.KNOWN_JSON_SCHEMA)
    return Format(
        "schema",
        inner.get("schema"),
        take_text(inner, "name", at) or "",
        take_text(inner, "description", at) or "",
        take_bool(inner, "strict", at),
        origin,
    )


def _read_stream_options(value: Json, path: Path, reading: Reading) -> bool | None:
    node = as_object(value, path)
    reading.origin(node, path, names.KNOWN_STREAM_OPTIONS)
    return take_bool(node, "include_usage", path)


_READ = {
    "stop": ("stop", _read_stop),
    "reasoning_effort": ("thinking", _read_effort),
    "response_format": ("format", _read_format),
    "stream_options": ("stream_usage", _read_stream_options),
}
_SETTINGS = frozenset((*_READ, *names.LIMIT_KEYS, *names.USER_KEYS, *(key for _, key, _ in names.PLAIN_SETTINGS)))
_CHOICE = frozenset({"tool_choice", "function_call"})
_ORDINARY = frozenset({"model", "messages", "tools", "tool_choice", "stream"})
_NOTHING: frozenset[str] = frozenset()


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
    # Of another protocol's request nothing can be given back as it was.
    messages += write_turns(request.turns, origin is not None and not known.native, known, ledger)
    out: Object = {"model": request.model, "messages": messages}
    out |= write_tools(request.tools, known, ledger)
    if request.choice is not None:
        if "tools" in out or "functions" in out or known.native:
            key, value = write_choice(request.choice, ledger)
            out[key] = value
        elif request.choice.mode not in ("auto", "none"):
            ledger.note("choice-weakened", place(request.choice), "without tools there is nothing to choose")
    if request.stream is not None:
        out["stream"] = request.stream
    _write_settings(request, out, known, ledger)
    return finished(out, origin, NAME) if ours else out


# --- settings -------------------------------------------------------------------------------------------------------


def _write_settings(request: Request, out: Object, known: Family, ledger: Ledger) -> None:
    settings = request.settings
    tools = "tools" in out or "functions" in out
    said = set_fields(settings)
    if not _PLAIN.isdisjoint(said):
        _write_plain(settings, out, tools, known, ledger)
    if settings.max_tokens is not None:
        out[spelled(request, names.LIMIT_KEYS, known.limit_key, known)] = settings.max_tokens
    if settings.user is not None:
        write_user(request, settings.user, out, known, ledger)
    if settings.stop is not None:
        write_stop(settings, settings.stop, out, known, ledger)
    if settings.thinking is not None or known.quiet_with_tools:
        write_effort(request, out, known, tools, ledger)
    if settings.format is not None:
        out["response_format"] = _write_format(settings.format)
    if request.stream or settings.stream_usage is not None or known.native:
        _write_stream_options(request, out, known, ledger)
    ledger.unsaid(settings, said, names.SAID)


_PLAIN = frozenset(field for field, _, _ in names.PLAIN_SETTINGS)


def _write_plain(settings: Settings, out: Object, tools: bool, known: Family, ledger: Ledger) -> None:
    for field, key, _ in names.PLAIN_SETTINGS:
        value = getattr(settings, field)
        if value is None:
            continue
        if refused(field, tools, known):
            ledger.note("no-counterpart", settings.where.get(field), f"`{key}` is not taken here and was left out")
        else:
            out[key] = value


def _write_format(form: Format) -> Json:
    if form.origin is not None and verbatim(form.origin, NAME):
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


def _write_stream_options(request: Request, out: Object, known: Family, ledger: Ledger) -> None:
    wanted = request.settings.stream_usage
    options: Object = {}
    if request.origin is not None and own(request.origin):
        options = sub_keys(request.origin.wire, "stream_options", names.KNOWN_STREAM_OPTIONS)
    if request.stream and wanted is None and not known.native:
        wanted = True
        ledger.note("default-added", None, "usage is asked for in the stream")
    if wanted is not None and not request.stream and not known.native:
        ledger.note(
            "no-counterpart", request.settings.where.get("stream_usage"), "without a stream there are no options of it"
        )
        return
    if wanted is not None:
        options = {"include_usage": wanted, **options}
    if options:
        out["stream_options"] = options
