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
    """Text, media, resources and structured content; nothing that a server says is left out."""
    parts = tuple(_part(block) for block in result.content)
    error = True if result.is_error else None
    structured = result.structured_content
    if structured is None:
        return Said(parts, error)
    told = msgspec.json.encode(structured).decode()
    if not parts:
        return Said((Text(told),), error, structured)
    if not all(isinstance(part, Text) for part in parts):
        return Said(parts if _tells(parts, structured) else (*parts, Text(told)), error)
    if _tells(parts, structured):
        return Said(parts, error, structured if len(parts) == 1 else None)
    return Said((*parts, Text(told)), error)


def _tells(parts: tuple[Part, ...], structured: Json) -> bool:
    """Does the text hold the structured content already, as servers are asked to write it? Some wrap a bare value."""
    bare = structured["result"] if isinstance(structured, dict) and list(structured) == ["result"] else structured
    texts = [part.text for part in parts if isinstance(part, Text)]
    return any(_json(text) in (structured, bare) or text == bare for text in texts) or (
        isinstance(bare, list) and [_json(text) for text in texts] in (bare, [*map(_as_json, bare)])
    )


def _as_json(value: Json) -> Json:
    return _json(value) if isinstance(value, str) else value


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
