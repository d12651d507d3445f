"""Whole answers, and the assistant message, which requests have too."""

from __future__ import annotations

from itertools import count

from msgspec.structs import asdict, replace

from toolwire.core.codec import WriteContext
from toolwire.core.errors import NOTHING_SAID
from toolwire.core.ids import derive_id
from toolwire.core.ir import (
    Call,
    Choice,
    Finish,
    Media,
    Part,
    Reasoning,
    Response,
    Seal,
    Text,
    Usage,
    says_something,
    source_path,
)
from toolwire.core.json_values import (
    Json,
    Malformed,
    Object,
    Path,
    encode_text,
    expect_object,
    get_bool,
    get_int,
    get_list,
    get_object,
    get_text,
    raise_wrong_type,
    raw_object_or_none,
    require_text,
)
from toolwire.core.losses import Ledger
from toolwire.core.provenance import is_verbatim, items_with_paths, restore_original_keys
from toolwire.protocols.unified import names
from toolwire.protocols.unified.content import (
    is_plain_text,
    read_cache,
    read_content,
    read_part,
    write_arguments,
    write_cache,
    write_part,
)
from toolwire.protocols.unified.errors import read_failure, write_failure, write_malformed_arguments
from toolwire.protocols.unified.names import NAME, LenientReadContext, intact_wire, read_fields, write_fields

# --- calls ----------------------------------------------------------------------------------------------------------


def read_call(reading: LenientReadContext, value: Json, path: Path) -> Call:
    node = expect_object(value, path)
    arguments = node.get("arguments")
    origin = reading.read_origin(node, path, names.CALL_KEYS)
    if isinstance(arguments, str):
        raise Malformed((path, "arguments"), "expected an object, got a string: send the arguments parsed, not as text")
    return Call(
        names.read_call_id(require_text(node, "id", path)),
        require_text(node, "name", path),
        "{}" if arguments is None else encode_text(expect_object(arguments, (path, "arguments"))),
        item_id=get_text(node, "item_id", path) or "",
        is_async=get_bool(node, "later", path) or False,
        cache=read_cache(node, path),
        incomplete=get_bool(node, "incomplete", path) or False,
        origin=origin,
    )


def write_call(call: Call, ledger: Ledger) -> Object:
    if (wire := intact_wire(call.origin)) is not None:
        return wire
    arguments = write_arguments(call.arguments, call, ledger)
    out = write_call_head(call, ledger) | {"arguments": arguments} | write_cache(call.cache)
    if call.incomplete:
        out["incomplete"] = True
    return restore_original_keys(out, call.origin, NAME)


def write_call_head(call: Call, ledger: Ledger) -> Object:
    """The fields of a call besides its arguments."""
    if call.kind != "function":
        ledger.note("tool-wrapped", source_path(call), f"the {call.kind} call `{call.name}` became a function call")
    if call.namespace:
        ledger.note("namespace-flattened", source_path(call), f"the namespace `{call.namespace}` was left out")
    id = names.write_call_id(call.id or derive_id("call_", call.name, call.arguments))
    if not call.id:
        ledger.note("id-added", source_path(call), f"the call `{call.name}` got an id")
    elif id != names.CALL_ID_PREFIX + call.id:
        ledger.note("id-rewritten", source_path(call), f"the id of the call `{call.name}` was escaped")
    head: Object = {"id": id, "name": call.name}
    return head | write_fields(call, names.CALL_FIELDS) if call.item_id or call.is_async else head


# --- the assistant message ------------------------------------------------------------------------------------------


def read_message(reading: LenientReadContext, node: Object, path: Path) -> tuple[Part, ...]:
    """The parts in order: calls are where their placeholders are, others after the content. Then seals are added."""
    listed = items_with_paths(get_list(node, "tool_calls", path) or [], (path, "tool_calls"))
    calls = [read_call(reading, item, where) for item, where in listed]
    content = node.get("content")
    parts: list[Part] = []
    placed: set[int] = set()
    if isinstance(content, list):
        for item, where in items_with_paths(content, (path, "content")):
            if isinstance(item, dict) and item.get("type") == "tool_call":
                parts.append(calls[_read_placeholder(reading, item, where, len(calls), placed)])
            else:
                parts.append(read_part(reading, item, where, names.ASSISTANT_PART_TYPES))
    else:
        parts.extend(read_content(reading, content, (path, "content"), names.ASSISTANT_PART_TYPES))
    parts.extend(call for at, call in enumerate(calls) if at not in placed)
    for item, where in items_with_paths(get_list(node, "seals", path) or [], (path, "seals")):
        _apply_seal(reading, item, where, parts)
    return tuple(parts)


def _read_placeholder(reading: LenientReadContext, node: Object, path: Path, count: int, placed: set[int]) -> int:
    reading.read_origin(node, path, names.PLACEHOLDER_KEYS)
    index = get_int(node, "index", path)
    if index is None or not 0 <= index < count:
        raise Malformed((path, "index"), f"there is no such call: `tool_calls` has {count}")
    if index in placed:
        raise Malformed((path, "index"), f"call {index} already has a placeholder")
    placed.add(index)
    return index


def _apply_seal(reading: LenientReadContext, value: Json, path: Path, parts: list[Part]) -> None:
    """Add a seal to its part. A string belongs to the part with the same number."""
    assert path is not None
    if isinstance(value, str):
        at, seal = path[1], Seal(NAME, value)
    else:
        node = expect_object(value, path)
        reading.read_origin(node, path, names.SEAL_KEYS)
        at, seal = get_int(node, "at", path), read_seal(node, path)
    if at is None or not 0 <= at < len(parts):
        raise Malformed(path, f"part {at} does not exist, there are {len(parts)}: send messages back unchanged")
    part = parts[at]
    if not isinstance(part, (Text, Reasoning, Call, Media)):
        raise Malformed(path, f"part {at} cannot be sealed")
    parts[at] = replace(part, seal=seal)


def read_seal(node: Object, path: Path) -> Seal:
    return Seal(get_text(node, "maker", path) or NAME, require_text(node, "value", path))


def write_seal(part: Part, ledger: Ledger) -> Object | None:
    seal: Seal | None = getattr(part, "seal", None)
    if seal is None:
        return None
    if seal.maker == NAME:
        return {"value": seal.value}
    if seal.maker.startswith(NAME + "/"):
        return {"maker": seal.maker, "value": seal.value}
    ledger.note("seal-dropped", source_path(part), f"a seal of {seal.maker} was left out")
    return None


def write_message(parts: tuple[Part, ...], ledger: Ledger) -> Object:
    """Content, calls and seals. The content has placeholders only if another part follows a call."""
    written: list[Part] = []
    content: list[Json] = []
    calls: list[Json] = []
    mixed = False
    for part in parts:
        if isinstance(part, Call):
            calls.append(write_call(part, ledger))
        elif (out := write_part(part, ledger, names.ASSISTANT_PART_TYPES)) is not None:
            content.append(out)
            mixed = mixed or bool(calls)
        else:
            continue
        written.append(part)
    message: Object = {"role": "assistant", "content": content or None}
    if mixed:
        index, rest = count(), iter(content)
        message["content"] = [
            {"type": "tool_call", "index": next(index)} if isinstance(part, Call) else next(rest) for part in written
        ]
    elif len(content) == 1 and is_plain_text(written[0]):
        message["content"] = content[0]["text"]
    if calls:
        message["tool_calls"] = calls
    sealed = [(at, part) for at, part in enumerate(written) if getattr(part, "seal", None) is not None]
    if seals := [{"at": at, **seal} for at, part in sealed if (seal := write_seal(part, ledger)) is not None]:
        message["seals"] = seals
    return message


# --- stop reasons and usage -----------------------------------------------------------------------------------------


def read_finish(node: Object, path: Path) -> Finish | None:
    reason = get_text(node, "stop_reason", path)
    if reason is None:
        return None
    kind = names.KIND_BY_STOP_REASON.get(reason)
    fields = read_fields(node, path, names.FINISH_FIELDS)
    if kind is None and not fields.get("raw"):
        fields["raw"] = reason
    return Finish(kind or "other", **fields)


def write_finish(finish: Finish | None) -> Object:
    if finish is None:
        return {"stop_reason": None}
    return {"stop_reason": names.STOP_REASON_BY_KIND[finish.kind], **write_fields(finish, names.FINISH_FIELDS)}


def read_usage(reading: LenientReadContext, node: Object, path: Path) -> Usage:
    input, output, read, written, reasoning, total = reading.read_counts(node, (*names.USAGE_FIELDS,), path)
    origin = reading.read_origin(node, path, names.USAGE_KEYS)
    return Usage(input or 0, output or 0, read, written, reasoning, total, origin)


def write_usage(usage: Usage) -> Object:
    if (wire := intact_wire(usage.origin)) is not None:
        return wire
    counts = {key: getattr(usage, field) for key, field in names.USAGE_FIELDS.items()}
    known = {key: count for key, count in counts.items() if count is not None}
    return restore_original_keys(known, usage.origin, NAME)


# --- answers --------------------------------------------------------------------------------------------------------


def read_response(body: Object) -> Response:
    return read_response_node(LenientReadContext(NAME), body, None)


def read_response_node(reading: LenientReadContext, body: Json, path: Path) -> Response:
    node = expect_object(body, path)
    origin = reading.read_origin(node, path, names.RESPONSE_KEYS)
    error, usage = get_object(node, "error", path), reading.get_counted(node, "usage", path)
    choice = _read_choice(reading, node, path)
    if error is None and node.get("message") is None and not ("message" in node and node.get("id")):
        raise Malformed(path, "this is not a unified answer: it has neither `message` nor `error`")
    is_hollow = choice is not None and choice.finish is None and not any(map(says_something, choice.parts))
    if error is None and is_hollow and not node.get("id"):
        raise Malformed(path, f"this is not an answer: {NOTHING_SAID}")
    return Response(
        **read_fields(node, path, names.RESPONSE_FIELDS),
        choices=() if choice is None else (choice,),
        usage=None if usage is None else read_usage(reading, usage, (path, "usage")),
        failure=None if error is None else read_failure(error, (path, "error")),
        origin=origin,
        unknown_fields=tuple(reading.unknown_fields),
    )


def _read_choice(reading: LenientReadContext, node: Object, path: Path) -> Choice | None:
    message, finish = get_object(node, "message", path), read_finish(node, path)
    if message is None:
        return None if finish is None else Choice(0, (), finish)
    where: Path = (path, "message")
    role = get_text(message, "role", where)
    if role not in (None, "assistant"):
        raise_wrong_type((where, "role"), "`assistant`", role)
    origin = reading.read_origin(message, where, names.ASSISTANT_KEYS)
    return Choice(0, read_message(reading, message, where), finish, origin=origin)


def write_response(response: Response, ledger: Ledger, context: WriteContext) -> Object:
    """The whole answer. If it failed, or if arguments do not parse, it has an `error` (see `has_error`)."""
    if (wire := intact_wire(response.origin)) is not None:
        return wire
    if len(response.choices) > 1:
        ledger.note_other_choices(response, "unified has one answer only")
    choice = response.choices[0] if response.choices else None
    error = None if response.failure is None else write_failure(response.failure)
    if choice is not None:
        choice, broken = _without_broken_calls(choice, ledger)
        if error is None and broken:
            error = write_malformed_arguments(broken[0], choice.finish)
    out: Object = {"error": error} if error is not None else {}
    out |= write_response_head(response.id, response.model, response.created, ledger, context)
    out["message"] = None if choice is None else _write_choice(choice, ledger)
    out |= write_finish(choice.finish if choice is not None else None)
    out["usage"] = None if response.usage is None else write_usage(response.usage)
    out["losses"] = write_losses(ledger, context)
    return restore_original_keys(out, response.origin, NAME)


def write_losses(ledger: Ledger, context: WriteContext) -> list[Object]:
    """What was lost of the request, then what was lost of the answer."""
    asked = () if context.request_ledger is None else context.request_ledger.losses
    return [asdict(loss) for loss in (*asked, *ledger.losses)]


def write_response_head(id: str, model: str, created: int | None, ledger: Ledger, context: WriteContext) -> Object:
    if not id:
        ledger.note("id-added", None, "the answer got an id")
        id = derive_id("answer_", context.seed)
    head: Object = {"id": id, "model": model or ("" if context.request is None else context.request.model)}
    return head if created is None else head | {"created": created}


def has_error(body: Json) -> bool:
    """Did this answer fail? Then it is sent with the status in its `error`."""
    return isinstance(body, dict) and isinstance(body.get("error"), dict)


def _write_choice(choice: Choice, ledger: Ledger) -> Object:
    if (wire := intact_wire(choice.origin)) is not None:
        return wire
    return restore_original_keys(write_message(choice.parts, ledger), choice.origin, NAME)


def _without_broken_calls(choice: Choice, ledger: Ledger) -> tuple[Choice, list[Call]]:
    """The choice without calls whose arguments are not a JSON object, and these calls: the error has the first."""
    functions = [part for part in choice.parts if isinstance(part, Call) and part.kind == "function"]
    written = (call for call in functions if not is_verbatim(call.origin, NAME))
    broken = [call for call in written if raw_object_or_none(call.arguments) is None]
    if not broken:
        return choice, broken
    for call in broken[1:]:
        ledger.note("arguments-dropped", source_path(call), f"the call `{call.name}` was left out")
    return Choice(choice.index, tuple([part for part in choice.parts if part not in broken]), choice.finish), broken
