"""The short ways: messages of the ordinary shape, which nearly all have, are read and written at one go.

None stands for every other shape: it goes the full way. Both ways say the same of what both can take.
"""

from __future__ import annotations

from toolwire.ir import Call, Origin, Part, Result, Text, Turn
from toolwire.protocols.openai_chat.details.calls import plain_call, read_calls
from toolwire.protocols.openai_chat.names import NAME
from toolwire.reading import Reading
from toolwire.wire import Json, Object, Path


def read_plain(node: Json, path: Path, reading: Reading) -> Turn | None:
    """A message that holds a role, one text, beside them the calls or the id of a result, and nothing else."""
    if type(node) is not dict:
        return None
    role: Json = node.get("role")
    content, size = node.get("content"), len(node)
    if type(content) is not str:
        return _read_silent(node, path, reading) if content is None and role == "assistant" else None
    text = Text(content, (), None, None, Origin(NAME, (path, "content"), content))
    if size == 2:
        spoken = role in ("user", "assistant", "system", "developer")
        return Turn(role, (text,), "", "", Origin(NAME, path, node)) if spoken else None
    if role == "tool":
        id = node.get("tool_call_id")
        if size != 3 or type(id) is not str:
            return None
        origin = Origin(NAME, path, node)
        return Turn("tool", (Result(id, (text,), None, "", "function", "", None, None, origin),), "", "", origin)
    if role == "assistant" and size == 3:
        calls = node.get("tool_calls")
        if type(calls) is not list:
            return None
        parts: tuple[Part, ...] = (text, *read_calls(calls, (path, "tool_calls"), reading))
        return Turn("assistant", parts, "", "", Origin(NAME, path, node))
    return None


def _read_silent(node: Object, path: Path, reading: Reading) -> Turn | None:
    """An assistant's message of calls alone."""
    calls = node.get("tool_calls")
    if type(calls) is not list or len(node) != (3 if "content" in node else 2):
        return None
    return Turn("assistant", tuple(read_calls(calls, (path, "tool_calls"), reading)), "", "", Origin(NAME, path, node))


def write_plain(turn: Turn) -> Object | None:
    """The message of a turn that another protocol's client sent, so that no origin in it is our own."""
    parts, role = turn.parts, turn.role
    if turn.name or turn.phase or not parts:
        return None
    if len(parts) != 1:
        return _write_assistant(parts) if role == "assistant" else None
    part = parts[0]
    if type(part) is Text:
        text = _text(part) if role in ("user", "assistant", "system") else None
        return None if text is None else {"role": role, "content": text}
    if role == "assistant":
        return _write_assistant(parts)
    if type(part) is not Result or part.cache is not None or not part.id:
        return None
    text = _text(part.content[0]) if len(part.content) == 1 else None
    return None if text is None else {"role": "tool", "tool_call_id": part.id, "content": text}


def _write_assistant(parts: tuple[Part, ...]) -> Object | None:
    text = _text(parts[0])
    calls = _calls(parts if text is None else parts[1:])
    if calls is None:
        return None
    if calls:
        return {"role": "assistant", "content": text, "tool_calls": calls}
    return {"role": "assistant", "content": text}


_SPOKEN = frozenset({"role", "content", "tool_calls"})


def read_plain_answer(node: Object, path: Path, reading: Reading) -> tuple[Part, ...] | None:
    """The parts of an answer's message: a text, calls, or both, where no other key says anything."""
    if not _SPOKEN.issuperset(node) and _says_more(node):
        return None
    content, calls = node.get("content"), node.get("tool_calls")
    if content is None:
        spoken: tuple[Part, ...] = ()
    elif type(content) is str:
        # Empty text says nothing here.
        spoken = (Text(content, (), None, None, Origin(NAME, (path, "content"), content)),) if content else ()
    else:
        return None
    if not calls:
        return spoken if calls is None or type(calls) is list else None
    return (*spoken, *read_calls(calls, (path, "tool_calls"), reading)) if type(calls) is list else None


def _says_more(node: Object) -> bool:
    for key, value in node.items():
        if value is not None and key not in _SPOKEN and (value or key != "annotations"):
            return True
    return False


def _calls(parts: tuple[Part, ...]) -> list[Object] | None:
    """Parts that are all ordinary calls."""
    calls: list[Object] = []
    for part in parts:
        call = plain_call(part) if type(part) is Call else None
        if call is None:
            return None
        calls.append(call)
    return calls


def _text(part: Part) -> str | None:
    """The text of a part that is nothing but text."""
    if type(part) is Text and part.cache is None and part.seal is None and not part.citations:
        return part.text
    return None
