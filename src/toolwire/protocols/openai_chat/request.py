"""Requests: messages and settings, both ways."""

from __future__ import annotations

from typing import Any

from toolwire.ir import (
    Format,
    Media,
    Opaque,
    Origin,
    Part,
    Reasoning,
    Request,
    Result,
    Settings,
    Text,
    Thinking,
    Turn,
    changed,
    place,
)
from toolwire.loss import Ledger
from toolwire.protocols.openai_chat import names
from toolwire.protocols.openai_chat.details.message import Spoken, note_part, read_message
from toolwire.protocols.openai_chat.models import (
    Family,
    family,
    refused,
    spelled,
    write_effort,
    write_stop,
    write_user,
)
from toolwire.protocols.openai_chat.names import NAME, kept, own, own_seal, sub_keys
from toolwire.protocols.openai_chat.parts import read_content, write_media, write_text
from toolwire.protocols.openai_chat.tools import read_choice, read_tools, write_call, write_choice, write_tools
from toolwire.reading import Reading, finished, numbered, verbatim
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
    if "messages" not in body:
        raise Malformed(None, "`messages` is missing")
    at = (None, "messages")
    turns = tuple(
        [_read_turn(as_object(item, p), p, reading) for item, p in numbered(as_list(body["messages"], at), at)]
    )
    tools = read_tools(body, reading)
    choice = read_choice(body, reading)
    settings, unsaid = _read_settings(body, reading)
    if choice is None or (body.get("tool_choice") is not None and body.get("function_call") is not None):
        unsaid |= {"function_call"} if choice is not None else {"tool_choice", "function_call"}
    return Request(
        take_text(body, "model", None) or "",
        (),
        turns,
        tools,
        choice,
        take_bool(body, "stream", None),
        settings,
        origin=reading.origin(body, None, names.KNOWN_REQUEST - unsaid if unsaid else names.KNOWN_REQUEST),
        strays=tuple(reading.strays),
    )


def _read_turn(node: Object, path: Path, reading: Reading) -> Turn:
    spoken = need_text(node, "role", path)
    role = names.ROLES.get(spoken)
    if role is None:
        raise Malformed((path, "role"), f"unknown role {spoken!r}; known are {', '.join(names.ROLES)}")
    if role == "tool":
        origin = reading.origin(node, path, names.KNOWN_TOOL_MESSAGE)
        return Turn("tool", (_read_result(node, path, reading, origin),), origin=origin)
    name = take_text(node, "name", path) or ""
    if role == "assistant":
        origin = reading.origin(node, path, names.KNOWN_ASSISTANT)
        return Turn(role, read_message(node, path, reading), name, origin=origin)
    origin = reading.origin(node, path, names.KNOWN_MESSAGE)
    return Turn(role, tuple(read_content(node.get("content"), (path, "content"), reading)), name, origin=origin)


def _read_result(node: Object, path: Path, reading: Reading, origin: Origin) -> Result:
    """A tool's message, or the old `function` message, which names the function in place of the call."""
    id = "" if node["role"] == "function" else take_text(node, "tool_call_id", path) or ""
    content = tuple(read_content(node.get("content"), (path, "content"), reading))
    return Result(id, content, name=take_text(node, "name", path) or "", origin=origin)


def _read_settings(body: Object, reading: Reading) -> tuple[Settings, frozenset[str]]:
    """Settings, and those known keys of which the value has found no place there."""
    fields: dict[str, Any] = {}
    where: dict[str, Path] = {}
    unsaid: frozenset[str] = frozenset()
    for field, key, take in names.PLAIN_SETTINGS:
        if body.get(key) is not None:
            fields[field], where[field] = take(body, key, None), (None, key)
    for field, (first, second), take in (
        ("max_tokens", names.LIMIT_KEYS, take_int),
        ("user", names.USER_KEYS, take_text),
    ):
        values = take(body, first, None), take(body, second, None)
        if values != (None, None):
            chosen = second if values[0] is None else first
            fields[field], where[field] = body[chosen], (None, chosen)
            if None not in values and values[0] != values[1]:
                unsaid |= {second}
    for key, (field, read) in _READ.items():
        if body.get(key) is not None:
            value = read(body[key], (None, key), reading)
            if value is not None:
                fields[field], where[field] = value, (None, key)
    return (Settings(**fields, where=where) if fields else Settings()), unsaid


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


# --- writing --------------------------------------------------------------------------------------------------------


def write_request(request: Request, ledger: Ledger) -> Object:
    if request.origin is not None and verbatim(request.origin, NAME):
        wire: Object = request.origin.wire
        return wire
    known = family(request.model, ledger.source == NAME or own(request.origin))
    messages: list[Object] = []
    if request.system:
        messages.append({"role": "system", "content": _write_content(request.system, known, ledger)})
    for turn in request.turns:
        messages += _write_turn(turn, known, ledger)
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
    return finished(out, request.origin, NAME)


def _write_turn(turn: Turn, known: Family, ledger: Ledger) -> list[Object]:
    wire = kept(turn.origin)
    if wire is not None:
        return [wire]
    if turn.phase:
        ledger.note("no-counterpart", place(turn), f"the phase `{turn.phase}` was left out")
    if turn.role == "assistant":
        return [_write_assistant(turn, known, ledger)]
    results = [part for part in turn.parts if isinstance(part, Result)]
    messages = [_write_result(part, known, ledger) for part in results]
    if len(results) < len(turn.parts) or not results:
        rest = tuple(part for part in turn.parts if not isinstance(part, Result)) if results else turn.parts
        out: Object = {"role": _role(turn, known, ledger), "content": _write_content(rest, known, ledger)}
        if turn.name:
            out["name"] = turn.name
        messages.append(finished(out, turn.origin, NAME))
    return messages


def _role(turn: Turn, known: Family, ledger: Ledger) -> str:
    if turn.role == "developer" and not known.developer:
        ledger.note(
            "role-mapped", place(turn), "the role `developer` became `system`", "not every server knows `developer`"
        )
        return "system"
    return "user" if turn.role == "tool" else turn.role


def _write_content(parts: tuple[Part, ...], known: Family, ledger: Ledger) -> Json:
    """Text alone as a string, everything else as a list of parts."""
    if len(parts) == 1:
        only = parts[0]
        if isinstance(only, Text) and only.cache is None and not (only.origin and kept(only.origin)):
            _note_text(only, ledger)
            return only.text
    out: list[Object] = []
    for part in parts:
        if isinstance(part, Text):
            _note_text(part, ledger)
            out.append(write_text(part, known, ledger))
        elif isinstance(part, Media):
            media = write_media(part, known, ledger)
            if media is not None:
                out.append(media)
        elif isinstance(part, Opaque) and own(part.origin):
            out.append(part.origin.wire)
        else:
            note_part(part, ledger)
    return out or ""


def _note_text(part: Text, ledger: Ledger) -> None:
    if part.citations:
        ledger.note("citation-dropped", place(part), "the citations of a text in the history were left out")
    if part.seal is not None:
        ledger.note("seal-dropped", place(part), "the seal of a text was left out")


def _write_result(result: Result, known: Family, ledger: Ledger) -> Object:
    wire = kept(result.origin)
    if wire is not None:
        return wire
    content = result.content
    if result.cache is not None and content and isinstance(content[-1], Text) and content[-1].cache is None:
        content = (*content[:-1], changed(content[-1], cache=result.cache))
    elif result.cache is not None:
        ledger.note("cache-dropped", place(result), "a cache breakpoint on a result was left out")
    texts = tuple(part for part in content if isinstance(part, Text))
    for part in content:
        if isinstance(part, Media):
            ledger.note("media-dropped", place(part) or place(result), "media in a result were left out")
        elif not isinstance(part, Text):
            note_part(part, ledger)
    said = _write_content(texts, known, ledger)
    if not result.id and result.name:
        return {"role": "function", "name": result.name, "content": said}
    out: Object = {"role": "tool", "tool_call_id": result.id, "content": said}
    if result.name and known.native:
        # No key of the schema: only a client that sends it gets it through.
        out["name"] = result.name
    return finished(out, result.origin, NAME)


def _write_assistant(turn: Turn, known: Family, ledger: Ledger) -> Object:
    spoken = Spoken(turn.parts, place(turn), ledger)
    content: Json = None
    if spoken.content:
        content = _write_assistant_content(spoken, known, ledger)
    elif turn.parts and not spoken.calls and not spoken.refusals:
        content = ""
    out: Object = {"role": "assistant", "content": content}
    if turn.name:
        out["name"] = turn.name
    if spoken.refusals:
        out["refusal"] = "".join(spoken.refusals)
    _write_thoughts(spoken, out, known, ledger)
    for part in spoken.media:
        image = kept(part.origin)
        if image is not None:
            out.setdefault("images", []).append(image)
        else:
            ledger.note("media-dropped", place(part), "media in an assistant's turn were left out")
    if len(spoken.calls) == 1 and not spoken.calls[0].id and spoken.calls[0].kind == "function":
        out["function_call"] = write_call(spoken.calls[0], ledger, legacy=True)
    elif spoken.calls:
        out["tool_calls"] = [write_call(call, ledger) for call in spoken.calls]
    return finished(out, turn.origin, NAME)


def _write_assistant_content(spoken: Spoken, known: Family, ledger: Ledger) -> Json:
    if all(isinstance(part, Text) for part in spoken.content):
        return _write_content(tuple(spoken.content), known, ledger)
    out: list[Object] = []
    for part in spoken.content:
        out.append(write_text(part, known, ledger) if isinstance(part, Text) else part.origin.wire)  # type: ignore[union-attr]
    return out


def _write_thoughts(spoken: Spoken, out: Object, known: Family, ledger: Ledger) -> None:
    """Reasoning goes back to those who want it, to those who made it, and to nobody else."""
    wanted: list[Reasoning] = []
    for part in spoken.reasoning:
        if known.reasoning_back or own(part.origin) or own_seal(part.seal):
            wanted.append(part)
        else:
            ledger.note("reasoning-dropped", place(part), "a piece of reasoning was left out")
    spoken.reasoning = wanted
    spoken.write_reasoning(out, ledger)


# --- settings -------------------------------------------------------------------------------------------------------


def _write_settings(request: Request, out: Object, known: Family, ledger: Ledger) -> None:
    settings = request.settings
    tools = "tools" in out or "functions" in out
    for field, key, _ in names.PLAIN_SETTINGS:
        value = getattr(settings, field)
        if value is None or refused(field, tools, known):
            if value is not None:
                ledger.note("no-counterpart", settings.where.get(field), f"`{key}` is not taken here and was left out")
            continue
        out[key] = value
    if settings.max_tokens is not None:
        out[spelled(request, names.LIMIT_KEYS, known.limit_key)] = settings.max_tokens
    write_user(request, out, known, ledger)
    write_stop(settings, out, known, ledger)
    write_effort(request, out, known, tools, ledger)
    if settings.format is not None:
        out["response_format"] = _write_format(settings.format)
    _write_stream_options(request, out, known, ledger)
    ledger.unsaid(settings, names.SAID)


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
