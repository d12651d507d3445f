"""Short ways for what most of a request is: plain texts, calls of functions, results of one text, and functions.

An item or a turn that has exactly the ordinary fields is read or written here at once. For every other shape these
functions do nothing and say so, and the full way, which they shorten but never bend, takes over.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct, ValidationError, convert

from toolwire.ir import Call, Origin, Result, Text, Tool, Turn
from toolwire.protocols.openai_responses.names import NAME, ROLES
from toolwire.wire import Json, Object, Path

# --- reading --------------------------------------------------------------------------------------------------------


def read_ordinary(node: Object, path: Path) -> Turn | None:
    """The turn of an ordinary item. The number of keys tells that it has no others than those looked at."""
    kind = node.get("type")
    if kind == "message" or kind is None:
        return _read_texts(node, path) if len(node) == (2 if kind is None else 3) else None
    if kind == "function_call_output":
        id, output = node.get("call_id"), node.get("output")
        if len(node) != 3 or type(id) is not str or type(output) is not str or not output:
            return None
        origin = Origin(NAME, path, node)
        text = Text(output, (), None, None, Origin(NAME, (path, "output"), output))
        return Turn("tool", (Result(id, (text,), None, "", "function", "", None, None, origin),), "", "", origin)
    if kind == "function_call":
        id, name, arguments = node.get("call_id"), node.get("name"), node.get("arguments")
        if len(node) != 4 or type(id) is not str or type(name) is not str or type(arguments) is not str:
            return None
        origin = Origin(NAME, path, node)
        call = Call(id, name, arguments, "function", "", "", None, None, False, False, origin)
        return Turn("assistant", (call,), "", "", origin)
    return None


def _read_texts(node: Object, path: Path) -> Turn | None:
    """A message that has nothing but `role` and `content` (and perhaps `type`), and holds texts only."""
    word, content = node.get("role"), node.get("content")
    role = ROLES.get(word) if word.__class__ is str else None
    if role is None:
        return None
    at = (path, "content")
    if content.__class__ is str:
        text = Text(content, (), None, None, Origin(NAME, at, content))
        return Turn(role, (text,), "", "", Origin(NAME, path, node))
    if content.__class__ is not list:
        return None
    parts: list[Text] = []
    for part in content:
        try:
            kind, said = part["type"], part["text"]
        except (TypeError, KeyError):
            return None
        if said.__class__ is not str:
            return None
        if (kind != "input_text" or len(part) != 2) and not _is_said(kind, part):
            return None
        parts.append(Text(said, (), None, None, Origin(NAME, (at, len(parts)), part)))
    return Turn(role, tuple(parts), "", "", Origin(NAME, path, node))


def _is_said(kind: Json, part: Object) -> bool:
    """What the model itself said, perhaps with no annotations."""
    return kind == "output_text" and (len(part) == 2 or (len(part) == 3 and part.get("annotations") == []))


class _Function(Struct, forbid_unknown_fields=True, gc=False):
    type: Literal["function"]
    name: str
    description: str
    parameters: Json
    strict: bool | None = None


def read_ordinary_tool(node: Object, path: Path) -> Tool | None:
    """A function with a name, a description and parameters, and perhaps `strict`."""
    try:
        told = convert(node, _Function)
    except ValidationError:
        return None
    parameters = told.parameters
    if parameters.__class__ is not dict:
        return None
    origin = Origin(NAME, path, node)
    strict = told.strict
    return Tool(told.name, told.description, parameters, "function", None, "", "", strict, None, None, None, origin)


# --- writing --------------------------------------------------------------------------------------------------------


def write_ordinary(turn: Turn, items: list[Object]) -> bool:
    """Write a turn of ordinary parts that came from elsewhere; False, with nothing written, for any other."""
    if turn.name or turn.phase or not turn.parts:
        return False
    model = turn.role == "assistant"
    before = len(items)
    said: list[Object] | None = None
    for part in turn.parts:
        origin = part.origin
        if origin is not None and origin.protocol == NAME:
            break
        if type(part) is Text:
            if part.citations or part.cache is not None or part.seal is not None:
                break
            if said is None:
                said = []
                items.append({"type": "message", "role": "user" if turn.role == "tool" else turn.role, "content": said})
            said.append(
                {"type": "output_text", "text": part.text, "annotations": []}
                if model
                else {"type": "input_text", "text": part.text}
            )
            continue
        item = _write_call(part) if type(part) is Call else _write_result(part) if type(part) is Result else None
        if item is None:
            break
        items.append(item)
        said = None
    else:
        return True
    del items[before:]
    return False


def is_plain(call: Call) -> bool:
    """Is it the whole call of a function, of which this wire needs to be told no more than its name and arguments?"""
    text = call.arguments
    return not (
        call.kind != "function"
        or call.namespace
        or call.item
        or call.incomplete
        or call.later
        or call.seal is not None
        or call.cache is not None
        or not text
        or text.isspace()
    )


def _write_call(call: Call) -> Object | None:
    if not is_plain(call):
        return None
    return {"type": "function_call", "call_id": call.id, "name": call.name, "arguments": call.arguments}


def _write_result(result: Result) -> Object | None:
    content = result.content
    if result.kind != "function" or result.cache is not None or len(content) != 1:
        return None
    part = content[0]
    if type(part) is not Text or part.cache is not None:
        return None
    return {"type": "function_call_output", "call_id": result.id, "output": part.text}
