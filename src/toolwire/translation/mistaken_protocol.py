"""Requests that were sent to the endpoint of another protocol: the error names the right one."""

from __future__ import annotations

from toolwire.core.codec import Codec
from toolwire.core.ir import Opaque, Request, Text, Tool, Turn, replace_fields
from toolwire.core.json_values import Json, Malformed, Object
from toolwire.core.losses import Ledger
from toolwire.protocols import CODECS


def read_request(codec: Codec, body: Object) -> Request:
    """The request in the internal form. Raises Malformed; if another protocol can read the body, that is said, too."""
    try:
        return codec.read_request(body)
    except Malformed as bad:
        bad.add_hint(_describe_shape(codec, body))
        raise


def _describe_shape(codec: Codec, body: Object) -> str:
    """Whose requests, or whose tools, look like this; "" if nobody's do."""
    others = [other for other in CODECS.values() if other is not codec]
    read = {other.name: unknown for other in others if (unknown := _count_unknown(other, body)) is not None}
    name = min(read, key=read.__getitem__, default="")
    # With turns of its own protocol, a body that has a mistake must not be taken for another one's.
    if name and (not read[name] or codec.constraints.turns_key not in body):
        return f"this looks like a request of {name}, which goes to {_endpoint_of(name)}"
    tools = body.get("tools")
    for other in others if isinstance(tools, list) else ():
        if _count_unknown(other, {other.constraints.turns_key: [], "tools": tools}) == 0:
            return f"these tools look like those of {other.name}, whose requests go to {_endpoint_of(other.name)}"
    for other in others if body.get("tool_choice") is not None else ():
        if _writes_choice(other, body["tool_choice"]) and not _writes_choice(codec, body["tool_choice"]):
            name = other.name
            return f"this tool choice looks like that of {name}, whose requests go to {_endpoint_of(name)}"
    return ""


def _writes_choice(codec: Codec, wire: Json) -> bool:
    """Would a protocol write the tool choice so?"""
    try:
        choice = codec.read_request({codec.constraints.turns_key: [], "tool_choice": wire}).choice
    except (Malformed, RecursionError):
        return False
    if choice is None:
        return False
    tools = tuple(Tool(tool.name, "", {}) for tool in choice.tools)
    request = Request(turns=(Turn("user", (Text("?"),)),), tools=tools, choice=replace_fields(choice, mode=choice.mode))
    return bool(codec.write_request(request, Ledger(codec.name, codec.name)).get("tool_choice") == wire)


def _count_unknown(codec: Codec, body: Object) -> int | None:
    """How much of the body a protocol does not know; None if it cannot read it, or there is nothing in it."""
    try:
        request = codec.read_request(body)
    except (Malformed, RecursionError):
        return None
    unknown = len(request.unknown_fields) + sum(isinstance(tool, Opaque) for tool in request.tools)
    return unknown if request.turns or request.tools else None


def _endpoint_of(name: str) -> str:
    return CODECS[name].http.request_path("MODEL", False)
