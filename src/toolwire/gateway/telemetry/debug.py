"""What an exchange was about, in full: which tools came and went, under which names, and what calls looked like on both
sides. It is read out of what was heard when the lines are written, not before."""

from __future__ import annotations

from collections.abc import Iterator

from toolwire.fold import fold
from toolwire.gateway.telemetry.clean import clean, redact
from toolwire.gateway.telemetry.heard import Overheard
from toolwire.gateway.telemetry.record import Record
from toolwire.ir import (
    AnyTool,
    Call,
    HostedCall,
    HostedResult,
    HostedTool,
    Media,
    Part,
    Request,
    Response,
    Result,
    Text,
    Tool,
    ToolsAdded,
)
from toolwire.protocols import ROOMS
from toolwire.room import Room
from toolwire.wire import Malformed, as_object, decode

SHOWN = 200
"""Characters of arguments that are shown."""
LATEST = 10
"""Calls and results of a conversation that are shown, the last ones."""
_READ = 4096
"""Characters in which keys are looked for, so that one that lies across the limit is seen as one."""

Fields = tuple[tuple[str, object], ...]


def told(record: Record, heard: Overheard) -> Iterator[Fields]:
    """The lines of one exchange, each as its fields: what came, what went and what was answered, what the client got,
    and every loss."""
    client = ROOMS.get(record.source)
    if client is None:
        return
    yield (
        ("step", "came"),
        ("protocol", client.name),
        ("path", clean(record.path.partition("?")[0])),
        *_asking(client, heard.came),
    )
    for asked in heard.asked:
        room = ROOMS[asked.protocol]
        where = (("protocol", room.name), ("provider", asked.provider), ("url", clean(asked.url, 300)))
        yield ("step", "went"), *where, *_asking(room, asked.body)
        if asked.status:
            said = _answering(room, asked.answer.data, asked.status)
            yield ("step", "answered"), ("provider", asked.provider), ("status", asked.status), *said
    yield ("step", "given"), ("status", record.status), *_answering(client, heard.given, record.status)
    for loss in record.told:
        place = (("path", clean(loss.path)), ("severity", loss.severity))
        yield (
            ("step", "lost"),
            ("code", loss.code),
            *place,
            ("what", shortened(loss.what)),
            ("why", clean(loss.why, SHOWN)),
        )


def _asking(room: Room, body: bytes) -> Fields:
    request = _request(room, body)
    if request is None:
        return (("unread", len(body)),)
    tools = [*request.tools, *(tool for part in _parts(request) if isinstance(part, ToolsAdded) for tool in part.tools)]
    choice = request.choice
    chosen = (
        "" if choice is None else ",".join([choice.mode, *(clean(tool.name or tool.kind) for tool in choice.tools)])
    )
    calls = [part for part in _parts(request) if isinstance(part, (Call, HostedCall))]
    results = [part for part in _parts(request) if isinstance(part, (Result, HostedResult))]
    return (
        ("tools", [_named(tool) for tool in tools]),
        ("choice", chosen),
        ("earlier", max(0, len(calls) - LATEST)),
        ("calls", [_call(part) for part in calls[-LATEST:]]),
        ("results", [_result(part) for part in results[-LATEST:]]),
    )


def _answering(room: Room, body: bytes, status: int) -> Fields:
    response = _response(room, body) if status < 300 else None
    if response is None:
        return (("bytes", len(body)),)
    parts = [part for choice in response.choices for part in choice.parts]
    ends = [choice.finish.kind for choice in response.choices if choice.finish is not None]
    return (
        ("calls", [_call(part) for part in parts if isinstance(part, (Call, HostedCall))]),
        ("results", [_result(part) for part in parts if isinstance(part, HostedResult)]),
        ("text", sum(len(part.text) for part in parts if isinstance(part, Text))),
        ("finish", ",".join(ends)),
    )


def _parts(request: Request) -> Iterator[Part]:
    for turn in request.turns:
        yield from turn.parts


def _named(tool: AnyTool) -> str:
    """A tool by its name, and its kind where it is no plain function."""
    if isinstance(tool, Tool):
        name = f"{tool.namespace}.{tool.name}" if tool.namespace else tool.name
        return clean(name if tool.kind == "function" else f"{name} ({tool.kind})")
    return clean(f"{tool.name or tool.tool} (hosted)" if isinstance(tool, HostedTool) else f"{tool.kind} (its own)")


def _call(call: Call | HostedCall) -> dict[str, str]:
    if isinstance(call, HostedCall):
        return {"hosted": clean(call.tool), "id": clean(call.id), "arguments": shortened(call.arguments)}
    name = f"{call.namespace}.{call.name}" if call.namespace else call.name
    kind = {} if call.kind == "function" else {"kind": clean(call.kind)}
    return {"name": clean(name), **kind, "id": clean(call.id), "arguments": shortened(call.arguments)}


def _result(result: Result | HostedResult) -> dict[str, object]:
    if isinstance(result, HostedResult):
        found = {"sources": len(result.sources), "size": len(result.text), "error": clean(result.error)}
        return {"hosted": clean(result.tool), "id": clean(result.id)} | {key: one for key, one in found.items() if one}
    size = sum(_size(part) for part in result.content)
    return {"id": clean(result.id), "size": size} | ({"error": True} if result.error else {})


def _size(part: Part) -> int:
    return len(part.text) if isinstance(part, Text) else len(part.data) if isinstance(part, Media) else 0


def shortened(text: str) -> str:
    """Words of a conversation as a line may show them: without keys, short."""
    return clean(redact(text[:_READ]), SHOWN)


def _request(room: Room, body: bytes) -> Request | None:
    try:
        return room.read_request(as_object(decode(body), None))
    except (Malformed, RecursionError):
        return None


def _response(room: Room, body: bytes) -> Response | None:
    """A whole answer, or one out of a stream."""
    if not body:
        return None
    try:
        if body.lstrip()[:1] == b"{":
            return room.read_response(as_object(decode(body), None))
        reader = room.stream_reader()
        return fold([*reader.feed(body), *reader.close()])
    except (Malformed, RecursionError):
        return None
