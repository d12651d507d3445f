"""Requests that were sent to the endpoint of another protocol: the error names the right one."""

from __future__ import annotations

from toolwire.core.codec import Codec
from toolwire.core.ir import Opaque, Request, Text, Tool, Turn, replace_fields
from toolwire.core.json_values import Json, Malformed, Object, path_keys
from toolwire.core.losses import CONTENT_CODES, Ledger
from toolwire.protocols import CODECS

_ANSWERING_ROLES = frozenset({"assistant", "model"})


def read_request(codec: Codec, body: Object) -> Request:
    """The request in the internal form. Raises Malformed; if another protocol can read the body, that is said, too."""
    try:
        return codec.read_request(body)
    except Malformed as bad:
        bad.add_hint(describe_shape(codec, body))
        raise


def refuse_foreign_members(codec: Codec, request: Request) -> None:
    """Raises Malformed if tools or instructions are where only another protocol has them: without them, the model would
    do something else. For requests that are translated, or answered here: a provider of the client's protocol says
    itself what it does not take."""
    for key, value in request.origin.extra.items() if request.origin is not None else ():
        for other in CODECS.values() if value else ():
            if key in (other.constraints.tools_key, other.constraints.instructions_key):
                hint = f"requests of {other.name} have it, and go to {_endpoint_of(other.name)}"
                raise Malformed((None, key), f"requests of {codec.name} have no `{key}`; {hint}")


def refuse_foreign_turns(codec: Codec, body: Object, ledger: Ledger) -> None:
    """Raises Malformed if a turn has content in the shape of another protocol, which the provider would not get: it
    would answer something else, with status 200. Only turns of which something was lost are looked at."""
    turns, key = body.get(codec.constraints.turns_key), codec.constraints.turns_key
    lost = [path_keys(path)[:2] for code, path, _ in ledger.notes if code in CONTENT_CODES and type(path) is tuple]
    numbers = {number for name, number in (keys for keys in lost if len(keys) == 2) if name == key}
    for number in sorted(one for one in numbers if isinstance(one, int)):
        turn = turns[number] if isinstance(turns, list) and number < len(turns) else None
        if isinstance(turn, dict) and turn.get("role") not in _ANSWERING_ROLES and _count_unread(codec, turn):
            for other in CODECS.values():
                if other is not codec and _count_unread(other, turn) == 0:
                    what = f"content of {codec.name} is not written so"
                    hint = f"it looks like that of {other.name}, whose requests go to {_endpoint_of(other.name)}"
                    raise Malformed(((None, key), number), f"{what}; {hint}")


def _count_unread(codec: Codec, turn: Object) -> int | None:
    """How much of the content of a turn a protocol cannot read; None if it cannot read the turn."""
    request = _try_to_read(codec, {codec.constraints.turns_key: [turn]})
    if request is None:
        return None
    parts = [part for read in request.turns for part in read.parts] or [*request.system]
    return sum(isinstance(part, Opaque) for part in parts) + (not parts)


def describe_shape(codec: Codec, body: Object) -> str:
    """Whose requests, or whose tools, look like this; "" if nobody's do."""
    others = [other for other in CODECS.values() if other is not codec]
    read = {other.name: unknown for other in others if (unknown := _count_unknown(other, body)) is not None}
    name = min(read, key=read.__getitem__, default="")
    # With turns of its own protocol, a body that has a mistake must not be taken for another one's.
    if name and (not read[name] or codec.constraints.turns_key not in body):
        return f"this looks like a request of {name}, which goes to {_endpoint_of(name)}"
    turns, tools = body.get(codec.constraints.turns_key), body.get("tools")
    for other in others if isinstance(tools, list) else ():
        if _count_unknown(other, {other.constraints.turns_key: [], "tools": tools}) == 0:
            return f"these tools look like those of {other.name}, whose requests go to {_endpoint_of(other.name)}"
    if isinstance(tools, list) and any(isinstance(tool, dict) and "inputSchema" in tool for tool in tools):
        return "these tools look like those of an MCP server, which calls their schema `inputSchema`"
    for other in others if body.get("tool_choice") is not None else ():
        if _writes_choice(other, body["tool_choice"]) and not _writes_choice(codec, body["tool_choice"]):
            name = other.name
            return f"this tool choice looks like that of {name}, whose requests go to {_endpoint_of(name)}"
    for other in others if isinstance(turns, list) else ():
        key = other.constraints.turns_key
        if key != codec.constraints.turns_key and _count_unknown(other, {key: turns}) == 0:
            return f"the turns look like those of {other.name}, whose requests go to {_endpoint_of(other.name)}"
    return ""


def _writes_choice(codec: Codec, wire: Json) -> bool:
    """Would a protocol write the tool choice so?"""
    read = _try_to_read(codec, {codec.constraints.turns_key: [], "tool_choice": wire})
    choice = None if read is None else read.choice
    if choice is None:
        return False
    tools = tuple(Tool(tool.name, "", {}) for tool in choice.tools)
    request = Request(turns=(Turn("user", (Text("?"),)),), tools=tools, choice=replace_fields(choice, mode=choice.mode))
    return bool(codec.write_request(request, Ledger(codec.name, codec.name)).get("tool_choice") == wire)


def _count_unknown(codec: Codec, body: Object) -> int | None:
    """How much of the body a protocol does not know; None if it cannot read it, or there is nothing in it."""
    request = _try_to_read(codec, body)
    if request is None or not (request.turns or request.tools):
        return None
    return len(request.unknown_fields) + sum(isinstance(tool, Opaque) for tool in request.tools)


def _try_to_read(codec: Codec, body: Object) -> Request | None:
    try:
        return codec.read_request(body)
    except (Malformed, RecursionError):
        return None


def _endpoint_of(name: str) -> str:
    return CODECS[name].http.request_path("MODEL", False)
