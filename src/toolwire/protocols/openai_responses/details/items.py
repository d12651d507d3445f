"""The items of a conversation: calls, their results, reasoning, and what the provider's own tools did.

One union serves input and output, so requests, answers and streams all read and write their items here.
"""

from __future__ import annotations

from toolwire.ids import made
from toolwire.ir import (
    Call,
    Media,
    Opaque,
    Origin,
    Part,
    Reasoning,
    Result,
    Seal,
    Text,
    ToolReference,
    ToolsAdded,
    place,
    plain_text,
)
from toolwire.loss import Ledger
from toolwire.protocols.openai_responses.details.hosted import read_hosted
from toolwire.protocols.openai_responses.names import (
    CALL_ITEMS,
    CALLS,
    HOSTED_ITEMS,
    NAME,
    OUTPUT,
    RAW,
    REASONING,
    CallShape,
)
from toolwire.protocols.openai_responses.parts import image_url, own, read_content, read_image, stamped, write_part
from toolwire.protocols.openai_responses.tools import read_tools, write_tools
from toolwire.reading import Reading, finished, numbered
from toolwire.wire import (
    Json,
    Object,
    Path,
    as_object,
    embedded,
    encode_text,
    object_or_none,
    take_list,
    take_object,
    take_text,
    wrong,
)

# --- calls ----------------------------------------------------------------------------------------------------------


def runs_at_provider(node: Object) -> bool:
    """A search or a shell that the provider runs itself has the same type of item as the client's."""
    kind = node.get("type")
    if kind in ("tool_search_call", "tool_search_output"):
        return node.get("execution") != "client"
    if kind == "shell_call":
        environment = node.get("environment")
        return isinstance(environment, dict) and environment.get("type") not in (None, "local")
    return False


def read_call(node: Object, path: Path, shape: CallShape, reading: Reading) -> Call:
    if node.get("id") is not None:
        # The item's own id; what pairs a call with its result is the other one.
        reading.stray(path, "id", "id-rewritten")
    return Call(
        take_text(node, "call_id", path) or "",
        shape.name or take_text(node, "name", path) or "",
        _read_arguments(node, path, shape),
        shape.kind,
        (take_text(node, "namespace", path) or "") if shape.is_text else "",
        take_text(node, "id", path) or "",
        incomplete=node.get("status") == "incomplete",
        later=shape.is_text and node.get("async") is True,
        origin=stamped(reading, node, path, shape.known),
    )


def _read_arguments(node: Object, path: Path, shape: CallShape) -> str:
    value = node.get(shape.payload)
    if isinstance(value, str):
        return value
    if value is None and shape.kind == "computer" and node.get("actions") is not None:
        return encode_text({"actions": node["actions"]})
    if value is None:
        return ""
    if not isinstance(value, dict):
        wrong((path, shape.payload), "a string" if shape.is_text else "an object", value)
    return encode_text(value)


def kept_id(given: str, prefix: str, origin: Origin | None, item: str) -> str:
    """The id of an item if its type's prefix vouches for it, or if it stood on this very type of item; else none."""
    if given.startswith(prefix):
        return given
    same = own(origin) and isinstance(origin.wire, dict) and origin.wire.get("type") == item  # type: ignore[union-attr]
    return given if same else ""


def write_call(call: Call, ledger: Ledger, id: str = "", status: str = "") -> Object:
    """A call's item. Without `id` and `status` (in a request) both stand only where the type demands them."""
    shape = CALLS.get(call.kind, CALLS["function"])
    id = id or kept_id(call.item, shape.prefix, call.origin, shape.item)
    if not id and shape.needs_id:
        id = made(shape.prefix, call.id, call.name)
    status = status or ("incomplete" if call.incomplete else "completed" if shape.needs_status else "")
    out = call_item(call, shape, id, status)
    if shape.kind == "search":
        out["execution"] = "client"
    _write_arguments(out, call, shape, ledger)
    left_out(call, call.seal, ledger)
    return finished(out, call.origin, NAME)


def call_item(call: Call, shape: CallShape, id: str, status: str) -> Object:
    """The item of a call, without its arguments."""
    out: Object = {"type": shape.item}
    if id:
        out["id"] = id
    if status:
        out["status"] = status
    out["call_id"] = call.id
    if not shape.name:
        out["name"] = call.name
        if call.namespace:
            out["namespace"] = call.namespace
    if call.later and shape.is_text:
        out["async"] = True
    return out


def left_out(call: Call, seal: Seal | None, ledger: Ledger) -> None:
    """Note what the item of a call has no place for."""
    if seal is not None:
        ledger.note("seal-dropped", place(call), f"the seal of the call {call.name!r} was left out")
    if call.cache is not None:
        ledger.note("cache-dropped", place(call), f"the cache breakpoint of the call {call.name!r} was left out")


def _write_arguments(out: Object, call: Call, shape: CallShape, ledger: Ledger) -> None:
    text = call.arguments
    if shape.is_text:
        blank = not text or text.isspace()
        out[shape.payload] = "{}" if blank and shape.kind == "function" and not call.incomplete else text
        return
    if shape.kind == "computer":
        out["pending_safety_checks"] = []
        value = object_or_none(text)
        if value is not None and "actions" in value:
            out["actions"] = value["actions"]
            return
    body = embedded(text)
    if body is None:
        ledger.note("arguments-wrapped", place(call), f"arguments of {call.name!r} that are no object were wrapped")
        out[shape.payload] = {RAW: text}
    else:
        out[shape.payload] = body


# --- results --------------------------------------------------------------------------------------------------------


def read_result(node: Object, path: Path, shape: CallShape, reading: Reading) -> Result:
    id = take_text(node, "call_id", path) or ""
    if shape.kind == "local_shell" and not id:
        id = take_text(node, "id", path) or ""
    content, value, error, known = _READ_OUTPUT[shape.kind](node, path, reading)
    return Result(
        id,
        content,
        error,
        take_text(node, "name", path) or "",
        shape.kind,
        take_text(node, "namespace", path) or "",
        value=value,
        origin=stamped(reading, node, path, known),
    )


_Output = tuple[tuple[Part, ...], Json, bool | None, frozenset[str]]


def _read_plain_output(node: Object, path: Path, reading: Reading) -> _Output:
    value = node.get("output")
    if value == "":
        return (), None, None, OUTPUT
    if isinstance(value, dict):
        return (Text(encode_text(value), origin=Origin(NAME, (path, "output"), value)),), value, None, OUTPUT
    return read_content(value, (path, "output"), reading), None, None, OUTPUT


def _read_search_output(node: Object, path: Path, reading: Reading) -> _Output:
    tools = take_list(node, "tools", path) or []
    at = (path, "tools")
    added = ToolsAdded(read_tools(tools, at, reading), Origin(NAME, at, tools))
    return (added,), None, None, OUTPUT | {"tools", "execution"}


def _read_shell_output(node: Object, path: Path, reading: Reading) -> _Output:
    value = node.get("output")
    if value is None or isinstance(value, str):
        return _read_plain_output(node, path, reading)
    return (Text(encode_text(value), origin=Origin(NAME, (path, "output"), value)),), value, None, OUTPUT


def _read_patch_output(node: Object, path: Path, reading: Reading) -> _Output:
    content, value, _, known = _read_plain_output(node, path, reading)
    return content, value, node.get("status") == "failed", known | {"status"}


def _read_screen_output(node: Object, path: Path, reading: Reading) -> _Output:
    screen = take_object(node, "output", path)
    if screen is None:
        return (), None, None, OUTPUT
    at = (path, "output")
    return (read_image(screen, at, reading.origin(screen, at, OUTPUT_SCREEN)),), None, None, OUTPUT


OUTPUT_SCREEN = frozenset({"type", "image_url", "file_id", "detail"})

_READ_OUTPUT = {
    "function": _read_plain_output,
    "custom": _read_plain_output,
    "search": _read_search_output,
    "local_shell": _read_plain_output,
    "shell": _read_shell_output,
    "apply_patch": _read_patch_output,
    "computer": _read_screen_output,
}


def write_result(result: Result, ledger: Ledger) -> Object:
    shape = CALLS.get(result.kind, CALLS["function"])
    out: Object = {"type": shape.output}
    out["id" if shape.kind == "local_shell" else "call_id"] = result.id
    if shape.kind == "search":
        _write_found(out, result, ledger)
    elif shape.kind == "shell":
        out["output"] = _write_shell_output(result, ledger)
    elif shape.kind == "computer":
        out["output"] = _write_screen(result, ledger)
    else:
        if shape.kind == "apply_patch":
            out["status"] = "failed" if result.error else "completed"
        out["output"] = write_output_value(result, ledger)
    if result.cache is not None:
        ledger.note("cache-dropped", place(result), "the cache breakpoint of a result was left out")
    if own(result.origin):
        for key, value in (("name", result.name), ("namespace", result.namespace)):
            if value and key in result.origin.wire:  # type: ignore[union-attr]
                out[key] = value
    return finished(out, result.origin, NAME)


def write_output_value(result: Result, ledger: Ledger) -> Json:
    """A string where the result is one text or none, else a list of typed parts."""
    parts = result.content
    if not parts:
        return ""
    if len(parts) == 1 and isinstance(parts[0], Text) and parts[0].cache is None:
        return parts[0].text
    out = []
    for part in parts:
        written = _write_result_part(part, ledger)
        if written is not None:
            out.append(written)
    return out or ""


def _write_result_part(part: Part, ledger: Ledger) -> Object | None:
    match part:
        case ToolReference(name):
            ledger.note("tool-mapped", place(part), f"a reference to the tool {name!r} became text")
            return {"type": "input_text", "text": name}
        case ToolsAdded(tools):
            names = ", ".join(getattr(tool, "name", "") or getattr(tool, "kind", "") for tool in tools)
            ledger.note("tool-mapped", place(part), "tools found by a search became text")
            return {"type": "input_text", "text": names}
    return write_part(part, "input", ledger)


def _write_found(out: Object, result: Result, ledger: Ledger) -> None:
    """The answer to a search for tools holds tools; anything else in it is named as lost."""
    out["execution"] = "client"
    out["status"] = "completed"
    tools: list[Object] = []
    for part in result.content:
        if isinstance(part, ToolsAdded):
            tools += write_tools(part.tools, ledger, part.origin)
        else:
            ledger.note("part-dropped", place(part), "the answer of a search for tools can hold tools only")
    out["tools"] = tools


def _write_shell_output(result: Result, ledger: Ledger) -> Json:
    if isinstance(result.value, list):
        return result.value
    text = plain_text(result.content)
    for part in result.content:
        if not isinstance(part, Text):
            ledger.note("part-dropped", place(part), "the output of a shell can hold text only")
    return [{"stdout": text, "stderr": "", "outcome": {"type": "exit", "exit_code": 1 if result.error else 0}}]


def _write_screen(result: Result, ledger: Ledger) -> Object:
    out: Object = {"type": "computer_screenshot"}
    for part in result.content:
        if isinstance(part, Media) and part.kind == "image" and len(out) == 1:
            if url := image_url(part):
                out["image_url"] = url
            if part.file:
                out["file_id"] = part.file
            if part.detail:
                out["detail"] = part.detail
        else:
            ledger.note("part-dropped", place(part), "the answer of a computer can hold one screenshot only")
    return out


# --- reasoning ------------------------------------------------------------------------------------------------------

BETWEEN = "\n\n"
"""Stands between the parts of a summary."""


def read_reasoning(node: Object, path: Path, reading: Reading) -> Reasoning:
    """Raw thinking where the item has it, else its summary; a summary beside raw thinking stays with the item."""
    raw = read_texts(node, "content", path)
    summary = read_texts(node, "summary", path)
    encrypted = take_text(node, "encrypted_content", path)
    known = REASONING - {"summary"} if raw and summary else REASONING
    if node.get("id") is not None:
        reading.stray(path, "id", "id-rewritten")
    text = "".join(raw) if raw else BETWEEN.join(summary)
    return Reasoning(
        text,
        "raw" if raw else "summary" if text else "",
        seal=Seal(NAME, encrypted) if encrypted else None,
        id=take_text(node, "id", path) or "",
        origin=stamped(reading, node, path, known),
    )


def read_texts(node: Object, key: str, path: Path) -> list[str]:
    parts = take_list(node, key, path)
    if not parts:
        return []
    return [take_text(as_object(one, at), "text", at) or "" for one, at in numbered(parts, (path, key))]


def sealed_here(seal: Seal | None) -> bool:
    return seal is not None and (seal.maker == NAME or seal.maker.startswith(f"{NAME}/"))


def write_reasoning(part: Reasoning, ledger: Ledger, id: str = "") -> Object:
    id = id or kept_id(part.id, "rs_", part.origin, "reasoning")
    out: Object = {"type": "reasoning"}
    if id:
        out["id"] = id
    raw = part.form == "raw"
    out["summary"] = [{"type": "summary_text", "text": part.text}] if part.text and not raw else []
    if raw:
        out["content"] = [{"type": "reasoning_text", "text": part.text}]
        if own(part.origin) and "summary" in part.origin.extra:  # type: ignore[union-attr]
            del out["summary"]
    if sealed_here(part.seal):
        out["encrypted_content"] = part.seal.value  # type: ignore[union-attr]
    elif part.seal is not None:
        ledger.note("seal-dropped", place(part), "the seal of a thought was left out")
    return finished(out, part.origin, NAME)


# --- any item of the model ------------------------------------------------------------------------------------------


def read_model_item(node: Object, path: Path, reading: Reading) -> tuple[Part, ...]:
    """The parts of an item that is no message: one, or two for a provider's tool that tells what it found."""
    kind = take_text(node, "type", path) or "item"
    shape = CALL_ITEMS.get(kind)
    if shape is not None and not runs_at_provider(node):
        return (read_call(node, path, shape, reading),)
    if kind == "reasoning":
        return (read_reasoning(node, path, reading),)
    if kind in HOSTED_ITEMS:
        return read_hosted(node, path, reading)
    if kind == "image_generation_call" and isinstance(node.get("result"), str):
        known = frozenset({"type", "id", "status", "result", "output_format"})
        mime = f"image/{node.get('output_format') or 'png'}"
        return (Media("image", mime, node["result"], origin=stamped(reading, node, path, known)),)
    return (Opaque(kind, Origin(NAME, path, node)),)
