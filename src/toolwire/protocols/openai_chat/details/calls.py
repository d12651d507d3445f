"""Calls of tools: as they stand in messages and answers."""

from __future__ import annotations

from toolwire import wire
from toolwire.ir import Call, Origin, Seal, place
from toolwire.loss import Ledger
from toolwire.protocols.openai_chat import names
from toolwire.protocols.openai_chat.names import NAME, kept, own, own_seal, sub_keys
from toolwire.reading import Reading, finished
from toolwire.wire import Json, Object, Path


def argument_text(value: Json) -> str:
    """Arguments as text; some servers send the object itself."""
    return value if isinstance(value, str) else "" if value is None else wire.encode_text(value)


def read_calls(items: list[Json], path: Path, reading: Reading) -> list[Call]:
    """`tool_calls`. The ordinary call, of an id, a name and argument text, is taken at one go."""
    calls: list[Call] = []
    for number, node in enumerate(items):
        at = (path, number)
        calls.append(_read_plain_call(node, at) or read_call(wire.as_object(node, at), at, reading))
    return calls


def _read_plain_call(node: Json, path: Path) -> Call | None:
    try:
        inner = node["function"]
        id, name, text = node["id"], inner["name"], inner["arguments"]
        if node["type"] != "function" or len(node) != 3 or len(inner) != 2:
            return None
    except (LookupError, TypeError):
        return None
    if type(id) is not str or type(name) is not str or type(text) is not str:
        return None
    return Call(id, name, text, "function", "", "", None, None, False, False, Origin(NAME, path, node))


def read_call(node: Object, path: Path, reading: Reading) -> Call:
    """A call of `tool_calls`, or the old `function_call`, which stands alone and has no id."""
    if "function" not in node and "custom" not in node and "type" not in node:
        origin = reading.origin(node, path, names.KNOWN_FUNCTION)
        return Call("", wire.need_text(node, "name", path), argument_text(node.get("arguments")), origin=origin)
    custom = node.get("type") == "custom" or (node.get("function") is None and node.get("custom") is not None)
    kind, key, known = (
        ("custom", "input", names.KNOWN_CUSTOM) if custom else ("function", "arguments", names.KNOWN_FUNCTION)
    )
    inner = wire.as_object(node.get(kind), (path, kind))
    if not known.issuperset(inner):
        reading.origin(inner, (path, kind), known)
    return Call(
        wire.take_text(node, "id", path) or "",
        wire.need_text(inner, "name", (path, kind)),
        argument_text(inner.get(key)),
        kind,
        seal=read_seal(node, path, reading),
        origin=reading.origin(node, path, names.KNOWN_CALL),
    )


def read_seal(node: Object, path: Path, reading: Reading) -> Seal | None:
    """A seal in a call's `extra_content`; whatever else stands there is a stray."""
    boxes = node.get("extra_content")
    if not isinstance(boxes, dict):
        return None
    found = None
    for vendor, box in boxes.items():
        value = box.get(names.SEAL_BOXES[vendor]) if vendor in names.SEAL_BOXES and isinstance(box, dict) else None
        if isinstance(value, str) and value:
            found = Seal(f"{NAME}@{vendor}", value)
        else:
            reading.stray((path, "extra_content"), vendor)
    return found


def write_seal(seal: Seal) -> Object:
    vendor, key = next(iter(names.SEAL_BOXES.items()))
    return {vendor: {key: seal.value}}


def write_call(call: Call, ledger: Ledger, legacy: bool = False) -> Object:
    if not legacy and not own(call.origin):
        plain = plain_call(call)
        if plain is not None:
            return plain
    old = kept(call.origin)
    if old is not None and legacy == ("function" not in old and "custom" not in old):
        return old
    note_call(call, ledger)
    kind, key = ("custom", "input") if call.kind == "custom" and not legacy else ("function", "arguments")
    blank = kind == "function" and not call.arguments.strip() and not call.incomplete
    inner: Object = {"name": call.name, key: "{}" if blank else call.arguments}
    if legacy:
        return inner
    if own(call.origin):
        known = names.KNOWN_CUSTOM if kind == "custom" else names.KNOWN_FUNCTION
        inner |= sub_keys(call.origin.wire, kind, known)  # type: ignore[union-attr]
    out: Object = {"id": call.id, "type": kind, kind: inner}
    if call.seal is not None and own_seal(call.seal):
        out["extra_content"] = write_seal(call.seal)
    return finished(out, call.origin, NAME)


def is_plain(call: Call) -> bool:
    """Is it an ordinary call, of an id, a name and arguments?"""
    if call.kind != "function" or not call.id or call.later or call.namespace:
        return False
    return call.cache is None and call.seal is None and not call.incomplete and bool(call.arguments.strip())


def plain_call(call: Call) -> Object | None:
    """An ordinary call that is not of this protocol's making, at one go; None for every other."""
    if not is_plain(call):
        return None
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}


def note_call(call: Call, ledger: Ledger) -> None:
    """What a call says that this wire cannot."""
    if call.cache is not None:
        ledger.note("cache-dropped", place(call), "a cache breakpoint on a call was left out")
    if call.namespace:
        ledger.note("namespace-flattened", place(call), f"the namespace `{call.namespace}` was left out")
    if call.seal is not None and not own_seal(call.seal):
        ledger.note("seal-dropped", place(call), "the seal of a call was left out")
    if call.later:
        ledger.note("no-counterpart", place(call), "that the result may come later was left out")
