"""Images and documents."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from typing import Any

from toolwire.core.ir import Media, Opaque, Part, source_path
from toolwire.core.json_values import Json, Object, Path, get_object, get_text, require_text
from toolwire.core.losses import Ledger
from toolwire.core.provenance import ReadContext
from toolwire.protocols.anthropic.cache import read_cache, write_cache
from toolwire.protocols.anthropic.names import DOCUMENT_KEYS, IMAGE_KEYS, is_foreign

IMAGE_TYPES = ("image/jpeg", "image/png", "image/gif", "image/webp")
PDF_TYPE = "application/pdf"
PLAIN_TEXT_TYPE = "text/plain"

_BASE64_PREFIXES = {"/9j/": "image/jpeg", "iVBOR": "image/png", "R0lGOD": "image/gif", "UklGR": "image/webp"}
"""How the base64 of each kind of image begins."""


# --- reading ----------------------------------------------------------------------------------------------------------


def read_image(block: Object, path: Path, reading: ReadContext) -> Part:
    fields = _read_source(block, path)
    if fields is None:
        return Opaque("image", reading.whole_origin(block, path))
    cache = read_cache(block, path, reading)
    return Media("image", cache=cache, origin=reading.read_origin(block, path, IMAGE_KEYS), **fields)


def read_document(block: Object, path: Path, reading: ReadContext) -> Part:
    fields = _read_source(block, path)
    if fields is None:
        return Opaque("document", reading.whole_origin(block, path))
    return Media(
        "file",
        name=get_text(block, "title", path) or "",
        cache=read_cache(block, path, reading),
        origin=reading.read_origin(block, path, DOCUMENT_KEYS),
        **fields,
    )


def _read_source(block: Object, path: Path) -> dict[str, Any] | None:
    """The fields that a source tells; None for one that is not known here."""
    source = get_object(block, "source", path) or {}
    here = (path, "source")
    match source.get("type"):
        case "base64":
            return {"mime": get_text(source, "media_type", here) or "", "data": require_text(source, "data", here)}
        case "text":
            mime = get_text(source, "media_type", here) or PLAIN_TEXT_TYPE
            return {"mime": mime, "data": _encode_base64(require_text(source, "data", here))}
        case "url":
            return {"url": require_text(source, "url", here)}
        case "file":
            return {"file": require_text(source, "file_id", here)}
        case "content":
            text = _read_text_content(source.get("content"))
            return None if text is None else {"mime": PLAIN_TEXT_TYPE, "data": _encode_base64(text)}
    return None


def _read_text_content(content: Json) -> str | None:
    """The text of a document that is given in pieces; None when some of them are not text."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return None
    texts = [block.get("text") if isinstance(block, dict) else None for block in content]
    return None if None in texts else "\n".join(map(str, texts))


def _encode_base64(text: str) -> str:
    return base64.b64encode(text.encode("utf-8", "surrogatepass")).decode()


# --- writing ----------------------------------------------------------------------------------------------------------


def write_media(part: Media, ledger: Ledger) -> Object | None:
    writer = _MEDIA_WRITERS.get(part.kind)
    if part.file and is_foreign(part.origin):
        ledger.note("media-dropped", source_path(part), f"the file `{part.file}` is held by another provider")
        return None
    out = writer(part, ledger) if writer else None
    if out is None:
        ledger.note("media-dropped", source_path(part), f"{part.mime or part.kind} was left out")
        return None
    if part.seal is not None:
        ledger.note("seal-dropped", source_path(part), "the seal of a medium was taken off")
    write_cache(out, part.cache, ledger, source_path(part))
    return out


def _write_image(part: Media, ledger: Ledger) -> Object | None:
    if part.detail not in ("", "auto"):
        ledger.note("no-counterpart", source_path(part), f"the detail `{part.detail}` of an image was left out")
    if part.name:
        ledger.note("no-counterpart", source_path(part), f"the name `{part.name}` of an image was left out")
    if part.data:
        mime = _image_type(part)
        return {"type": "image", "source": {"type": "base64", "media_type": mime, "data": part.data}} if mime else None
    source = _write_url_or_file(part)
    return {"type": "image", "source": source} if source else None


def _image_type(part: Media) -> str | None:
    """The type that the data show, else the one that was given, if it is accepted."""
    shown = next((mime for start, mime in _BASE64_PREFIXES.items() if part.data.startswith(start)), None)
    return shown or (part.mime if part.mime in IMAGE_TYPES else None)


def _write_document(part: Media, ledger: Ledger) -> Object | None:
    source = _write_document_source(part, ledger) if part.data else _write_url_or_file(part)
    if source is None:
        return None
    out: Object = {"type": "document", "source": source}
    if part.name:
        out["title"] = part.name
    return out


def _write_document_source(part: Media, ledger: Ledger) -> Object | None:
    if part.mime == PDF_TYPE or part.data.startswith("JVBERi"):
        return {"type": "base64", "media_type": PDF_TYPE, "data": part.data}
    if part.mime and not part.mime.startswith("text/") and part.mime not in ("application/json", "application/xml"):
        return None
    try:
        text = base64.b64decode(part.data, validate=True).decode()
    except (binascii.Error, ValueError):
        return None
    if part.mime not in ("", PLAIN_TEXT_TYPE):
        ledger.note("setting-mapped", source_path(part), f"a file of type `{part.mime}` is sent as `{PLAIN_TEXT_TYPE}`")
    return {"type": "text", "media_type": PLAIN_TEXT_TYPE, "data": text}


def _write_url_or_file(part: Media) -> Object | None:
    if part.url:
        return {"type": "url", "url": part.url}
    return {"type": "file", "file_id": part.file} if part.file else None


_MEDIA_WRITERS: dict[str, Callable[[Media, Ledger], Object | None]] = {"image": _write_image, "file": _write_document}
