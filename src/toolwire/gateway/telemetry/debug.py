"""The debug lines of a request: its tools and tool calls, as the client and as the provider saw them."""

from __future__ import annotations

from collections.abc import Iterator

from toolwire.core.codec import Codec
from toolwire.core.events import fold
from toolwire.core.ir import (
    AnyTool,
    Call,
    Media,
    Part,
    ProviderCall,
    ProviderResult,
    ProviderTool,
    Request,
    Response,
    Result,
    Text,
    Tool,
    ToolsAdded,
)
from toolwire.core.json_values import Malformed, decode, expect_object
from toolwire.gateway.telemetry.record import ExchangeCapture, ExchangeRecord
from toolwire.gateway.telemetry.redact import printable_text, redact
from toolwire.protocols import CODECS

MAX_ARGUMENTS = 200
"""Characters of arguments that are logged."""
MAX_RECENT = 10
"""Calls and results of a conversation that are logged, the last ones."""
_REDACTION_WINDOW = 4096
"""Characters that are searched for keys, so that a key that crosses the limit is recognised."""

Fields = tuple[tuple[str, object], ...]


def debug_lines(record: ExchangeRecord, capture: ExchangeCapture) -> Iterator[Fields]:
    """The fields of each debug line: the client's request, each upstream request and response, the client's
    response, and each loss."""
    client = CODECS.get(record.client_protocol)
    if client is None:
        return
    path = printable_text(record.path.partition("?")[0])
    request = _describe_request(client, capture.client_request)
    yield ("step", "client_request"), ("protocol", client.name), ("path", path), *request
    for sent in capture.upstream_calls:
        codec, provider = CODECS[sent.protocol], ("provider", sent.provider)
        where = (("protocol", codec.name), provider, ("url", printable_text(sent.url, 300)))
        yield ("step", "upstream_request"), *where, *_describe_request(codec, sent.body)
        if sent.status:
            response = _describe_response(codec, sent.response.data, sent.status)
            yield ("step", "upstream_response"), provider, ("status", sent.status), *response
    response = _describe_response(client, capture.client_response, record.status)
    yield ("step", "client_response"), ("status", record.status), *response
    for loss in record.all_losses:
        yield (
            ("step", "loss"),
            ("code", loss.code),
            ("path", printable_text(loss.path)),
            ("severity", loss.severity),
            ("what", shorten_text(loss.what)),
            ("why", printable_text(loss.why, MAX_ARGUMENTS)),
        )


def _describe_request(codec: Codec, body: bytes) -> Fields:
    request = _read_request(codec, body)
    if request is None:
        return (("unreadable_bytes", len(body)),)
    parts = [part for turn in request.turns for part in turn.parts]
    added = [tool for part in parts if isinstance(part, ToolsAdded) for tool in part.tools]
    calls = [part for part in parts if isinstance(part, (Call, ProviderCall))]
    results = [part for part in parts if isinstance(part, (Result, ProviderResult))]
    choice = request.choice
    chosen = () if choice is None else (choice.mode, *(printable_text(tool.name or tool.kind) for tool in choice.tools))
    return (
        ("tools", [_tool_label(tool) for tool in (*request.tools, *added)]),
        ("tool_choice", ",".join(chosen)),
        ("omitted_calls", max(0, len(calls) - MAX_RECENT)),
        ("calls", [_describe_call(part) for part in calls[-MAX_RECENT:]]),
        ("results", [_describe_result(part) for part in results[-MAX_RECENT:]]),
    )


def _describe_response(codec: Codec, body: bytes, status: int) -> Fields:
    response = _read_response(codec, body) if status < 300 else None
    if response is None:
        return (("bytes", len(body)),)
    parts = [part for choice in response.choices for part in choice.parts]
    reasons = [choice.finish.kind for choice in response.choices if choice.finish is not None]
    return (
        ("calls", [_describe_call(part) for part in parts if isinstance(part, (Call, ProviderCall))]),
        ("results", [_describe_result(part) for part in parts if isinstance(part, ProviderResult)]),
        ("text_length", sum(len(part.text) for part in parts if isinstance(part, Text))),
        ("finish_reasons", ",".join(reasons)),
    )


def _tool_label(tool: AnyTool) -> str:
    """The name of a tool, and its kind if it is not a function."""
    if isinstance(tool, Tool):
        name = f"{tool.namespace}.{tool.name}" if tool.namespace else tool.name
        return printable_text(name if tool.kind == "function" else f"{name} ({tool.kind})")
    return printable_text(
        f"{tool.name or tool.tool} (provider tool)" if isinstance(tool, ProviderTool) else f"{tool.kind} (opaque)"
    )


def _describe_call(call: Call | ProviderCall) -> dict[str, str]:
    if isinstance(call, ProviderCall):
        return {
            "provider_tool": printable_text(call.tool),
            "id": printable_text(call.id),
            "arguments": shorten_text(call.arguments),
        }
    name = f"{call.namespace}.{call.name}" if call.namespace else call.name
    kind = {} if call.kind == "function" else {"kind": printable_text(call.kind)}
    return {
        "name": printable_text(name),
        **kind,
        "id": printable_text(call.id),
        "arguments": shorten_text(call.arguments),
    }


def _describe_result(result: Result | ProviderResult) -> dict[str, object]:
    if isinstance(result, ProviderResult):
        details = {"sources": len(result.sources), "size": len(result.text), "error": printable_text(result.error)}
        return {"provider_tool": printable_text(result.tool), "id": printable_text(result.id)} | {
            key: value for key, value in details.items() if value
        }
    size = sum(_part_size(part) for part in result.content)
    return {"id": printable_text(result.id), "size": size} | ({"error": True} if result.error else {})


def _part_size(part: Part) -> int:
    return len(part.text) if isinstance(part, Text) else len(part.data) if isinstance(part, Media) else 0


def shorten_text(text: str) -> str:
    """Text of a conversation, shortened and without keys."""
    return printable_text(redact(text[:_REDACTION_WINDOW]), MAX_ARGUMENTS)


def _read_request(codec: Codec, body: bytes) -> Request | None:
    try:
        return codec.read_request(expect_object(decode(body), None))
    except (Malformed, RecursionError):
        return None


def _read_response(codec: Codec, body: bytes) -> Response | None:
    """Read a whole answer or a stream."""
    if not body:
        return None
    try:
        if body.lstrip()[:1] == b"{":
            return codec.read_response(expect_object(decode(body), None))
        reader = codec.make_stream_reader()
        return fold([*reader.feed(body), *reader.close()])
    except (Malformed, RecursionError):
        return None
