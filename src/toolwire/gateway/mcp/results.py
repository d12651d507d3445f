"""What a tool of an MCP server answered, as content of the internal form."""

from __future__ import annotations

import msgspec
from mcp.types import (
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
)

from toolwire.core.ir import Media, Part, Text
from toolwire.core.json_values import Json
from toolwire.gateway.mcp.tools import ToolOutcome


def read_tool_result(result: CallToolResult) -> ToolOutcome:
    """Text, media, resources and structured content; nothing that a server says is left out or said twice."""
    parts = tuple(_read_block(block) for block in result.content)
    error = True if result.is_error else None
    structured = result.structured_content
    if structured is None:
        return ToolOutcome(parts, error)
    told = Text(msgspec.json.encode(structured).decode())
    if not parts:
        return ToolOutcome((told,), error, structured)
    if not _repeats_structured_content(result.content, structured):
        return ToolOutcome((*parts, told), error)
    alone = len(parts) == 1 and isinstance(parts[0], Text) and _parse_json(parts[0].text) == structured
    return ToolOutcome(parts, error, structured if alone else None)


def _repeats_structured_content(content: list[ContentBlock], structured: Json) -> bool:
    """Does the content say already what the structured content does? Servers are asked to write it down as text; many
    do so only with what stands under its one key, or put the content itself there."""
    meant = [structured]
    if isinstance(structured, dict) and len(structured) == 1:
        meant += structured.values()
    texts = [block.text for block in content if isinstance(block, TextContent)]
    blocks = [block.model_dump(mode="json", by_alias=True, exclude_none=True) for block in content]
    said = [*texts, *map(_parse_json, texts), texts, [*map(_parse_json, texts)], blocks]
    return any(value in said for value in meant)


def _parse_json(text: str) -> Json:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return text


def _read_block(block: ContentBlock) -> Part:
    match block:
        case TextContent():
            return Text(block.text)
        case ImageContent():
            return Media("image", mime=block.mime_type, data=block.data)
        case AudioContent():
            return Media("audio", mime=block.mime_type, data=block.data)
        case ResourceLink():
            about = f" ({block.description})" if block.description else ""
            return Text(f"{block.title or block.name}{about}: {block.uri}")
        case EmbeddedResource():
            return _read_resource(block)


def _read_resource(block: EmbeddedResource) -> Part:
    held = block.resource
    if not isinstance(held, BlobResourceContents):
        return Text(held.text)
    mime = held.mime_type or "application/octet-stream"
    name = str(held.uri).rstrip("/").rpartition("/")[2]
    match mime.partition("/")[0]:
        case "image" | "audio" | "video" as kind:
            return Media(kind, mime=mime, data=held.blob, name=name)
        case _:
            return Media("file", mime=mime, data=held.blob, name=name)
