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

from toolwire.gateway.mcp.said import Said
from toolwire.ir import Media, Part, Text
from toolwire.wire import Json


def said(result: CallToolResult) -> Said:
    """Text, media, resources and structured content; nothing that a server says is left out or said twice."""
    parts = tuple(_part(block) for block in result.content)
    error = True if result.is_error else None
    structured = result.structured_content
    if structured is None:
        return Said(parts, error)
    told = Text(msgspec.json.encode(structured).decode())
    if not parts:
        return Said((told,), error, structured)
    if not _tells(result.content, structured):
        return Said((*parts, told), error)
    alone = len(parts) == 1 and isinstance(parts[0], Text) and _json(parts[0].text) == structured
    return Said(parts, error, structured if alone else None)


def _tells(content: list[ContentBlock], structured: Json) -> bool:
    """Does the content say already what the structured content does? Servers are asked to write it down as text; many
    do so only with what stands under its one key, or put the content itself there."""
    meant = [structured]
    if isinstance(structured, dict) and len(structured) == 1:
        meant += structured.values()
    texts = [block.text for block in content if isinstance(block, TextContent)]
    blocks = [block.model_dump(mode="json", by_alias=True, exclude_none=True) for block in content]
    said = [*texts, *map(_json, texts), texts, [*map(_json, texts)], blocks]
    return any(value in said for value in meant)


def _json(text: str) -> Json:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return text


def _part(block: ContentBlock) -> Part:
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
            return _resource(block)


def _resource(block: EmbeddedResource) -> Part:
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
