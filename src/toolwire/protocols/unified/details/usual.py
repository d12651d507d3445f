"""The short way for messages of the usual shape: plain text, whole calls, and results of one text.

Whatever has one key more, or another type, or something to note, is None here and goes the full way, which also says
what is wrong with it.
"""

from __future__ import annotations

from toolwire.ir import Call, Origin, Part, Result, Text, Turn
from toolwire.protocols.unified.names import NAME, PREFIX, is_word, read_id
from toolwire.wire import Json, Object, Path, embedded, encode

# --- reading --------------------------------------------------------------------------------------------------------


def read_usual_turn(node: Object, path: Path) -> Turn | None:
    role = node.get("role")
    if role == "tool":
        parts = _read_results(node.get("results"), (path, "results")) if len(node) == 2 else None
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
            calls = _read_calls(node.get("tool_calls"), (path, "tool_calls"))
            if calls is None:
                return None
            parts += calls
        elif len(node) != 2:
            return None
    elif len(node) != 2 or role not in ("user", "system", "developer"):
        return None
    return Turn(role, tuple(parts), origin=Origin(NAME, path, node))


def _read_calls(items: Json, path: Path) -> list[Part] | None:
    if items.__class__ is not list:
        return None
    calls: list[Part] = []
    for number, node in enumerate(items):
        if node.__class__ is not dict or len(node) != 3:
            return None
        id, name, arguments = node.get("id"), node.get("name"), node.get("arguments")
        if id.__class__ is not str or name.__class__ is not str or arguments.__class__ is not dict:
            return None
        calls.append(Call(read_id(id), name, encode(arguments).decode(), origin=Origin(NAME, (path, number), node)))
    return calls


def _read_results(items: Json, path: Path) -> list[Part] | None:
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
        results.append(Result(read_id(id), said, error, origin=Origin(NAME, here, node)))
    return results


# --- writing --------------------------------------------------------------------------------------------------------


def write_usual_turn(turn: Turn) -> Object | None:
    """A turn of another protocol's, in which nothing is given back as it was."""
    parts = turn.parts
    if not parts or turn.name or turn.phase:
        return None
    first = parts[0]
    if isinstance(first, Result):
        results = _write_results(parts)
        return None if results is None else {"role": "tool", "results": results}
    if turn.role != "assistant" or not isinstance(first, Text) or not _is_bare(first):
        return None
    if len(parts) == 1:
        return {"role": "assistant", "content": first.text}
    calls = _write_calls(parts[1:])
    return None if calls is None else {"role": "assistant", "content": first.text, "tool_calls": calls}


def _is_bare(text: Text) -> bool:
    return text.seal is None and text.cache is None and not text.citations


def _write_calls(parts: tuple[Part, ...]) -> list[Object] | None:
    calls: list[Object] = []
    for call in parts:
        if not isinstance(call, Call) or call.kind != "function" or not is_word(call.id):
            return None
        if call.namespace or call.item or call.later or call.incomplete:
            return None
        arguments = embedded(call.arguments)
        if arguments is None or call.seal is not None or call.cache is not None:
            return None
        calls.append({"id": PREFIX + call.id, "name": call.name, "arguments": arguments})
    return calls


def _write_results(parts: tuple[Part, ...]) -> list[Object] | None:
    results: list[Object] = []
    for result in parts:
        if not isinstance(result, Result) or result.kind != "function" or not is_word(result.id):
            return None
        content = result.content
        if len(content) != 1 or not isinstance(said := content[0], Text) or not _is_bare(said):
            return None
        if result.value is not None or result.name or result.cache is not None:
            return None
        out: Object = {"tool_call_id": PREFIX + result.id, "content": said.text}
        if result.error is not None:
            out["is_error"] = result.error
        results.append(out)
    return results
