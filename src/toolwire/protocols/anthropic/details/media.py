"""Images and documents."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from typing import Any

from toolwire.ir import Media, Opaque, Part, place
from toolwire.loss import Ledger
from toolwire.protocols.anthropic.details.cache import read_cache, write_cache
from toolwire.protocols.anthropic.details.stamp import is_foreign
from toolwire.protocols.anthropic.names import DOCUMENT, IMAGE
from toolwire.reading import Reading
from toolwire.wire import Json, Object, Path, need_text, take_object, take_text

IMAGES = ("image/jpeg", "image/png", "image/gif", "image/webp")
PDF = "application/pdf"
PLAIN = "text/plain"

_BEGINNINGS = {"/9j/": "image/jpeg", "iVBOR": "image/png", "R0lGOD": "image/gif", "UklGR": "image/webp"}
"""How the base64 of each kind of image begins."""


# --- reading ----------------------------------------------------------------------------------------------------------


def read_image(block: Object, path: Path, reading: Reading) -> Part:
    fields = _source(block, path)
    if fields is None:
        return Opaque("image", reading.whole(block, path))
    cache = read_cache(block, path, reading)
    return Media("image", cache=cache, origin=reading.origin(block, path, IMAGE), **fields)


def read_document(block: Object, path: Path, reading: Reading) -> Part:
    fields = _source(block, path)
    if fields is None:
        return Opaque("document", reading.whole(block, path))
    return Media(
        "file",
        name=take_text(block, "title", path) or "",
        cache=read_cache(block, path, reading),
        origin=reading.origin(block, path, DOCUMENT),
        **fields,
    )


def _source(block: Object, path: Path) -> dict[str, Any] | None:
    """The fields that a source tells; None for one that is not known here."""
    source = take_object(block, "source", path) or {}
    here = (path, "source")
    match source.get("type"):
        case "base64":
            return {"mime": take_text(source, "media_type", here) or "", "data": need_text(source, "data", here)}
        case "text":
            mime = take_text(source, "media_type", here) or PLAIN
            return {"mime": mime, "data": _encoded(need_text(source, "data", here))}
        case "url":
            return {"url": need_text(source, "url", here)}
        case "file":
            return {"file": need_text(source, "file_id", here)}
        case "content":
            text = _plain_content(source.get("content"))
            return None if text is None else {"mime": PLAIN, "data": _encoded(text)}
    return None


def _plain_content(content: Json) -> str | None:
    """The text of a document that is given in pieces; None when some of them are not text."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return None
    texts = [block.get("text") if isinstance(block, dict) else None for block in content]
    return None if None in texts else "\n".join(map(str, texts))


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode("utf-8", "surrogatepass")).decode()


# --- writing ----------------------------------------------------------------------------------------------------------


def write_media(part: Media, ledger: Ledger) -> Object | None:
    writer = _WRITERS.get(part.kind)
    if part.file and is_foreign(part.origin):
        ledger.note("media-dropped", place(part), f"the file `{part.file}` is held by another provider")
        return None
    out = writer(part, ledger) if writer else None
    if out is None:
        ledger.note("media-dropped", place(part), f"{part.mime or part.kind} was left out")
        return None
    if part.seal is not None:
        ledger.note("seal-dropped", place(part), "the seal of a medium was taken off")
    write_cache(out, part.cache, ledger, place(part))
    return out


def _write_image(part: Media, ledger: Ledger) -> Object | None:
    if part.detail not in ("", "auto"):
        ledger.note("no-counterpart", place(part), f"the detail `{part.detail}` of an image was left out")
    if part.name:
        ledger.note("no-counterpart", place(part), f"the name `{part.name}` of an image was left out")
    if part.data:
        mime = _image_type(part)
        return {"type": "image", "source": {"type": "base64", "media_type": mime, "data": part.data}} if mime else None
    source = _elsewhere(part)
    return {"type": "image", "source": source} if source else None


def _image_type(part: Media) -> str | None:
    """The type that the data show, else the one that was given, if it is accepted."""
    shown = next((mime for start, mime in _BEGINNINGS.items() if part.data.startswith(start)), None)
    return shown or (part.mime if part.mime in IMAGES else None)


def _write_document(part: Media, ledger: Ledger) -> Object | None:
    source = _document_data(part, ledger) if part.data else _elsewhere(part)
    if source is None:
        return None
    out: Object = {"type": "document", "source": source}
    if part.name:
        out["title"] = part.name
    return out


def _document_data(part: Media, ledger: Ledger) -> Object | None:
    if part.mime == PDF or part.data.startswith("JVBERi"):
        return {"type": "base64", "media_type": PDF, "data": part.data}
    if part.mime and not part.mime.startswith("text/") and part.mime not in ("application/json", "application/xml"):
        return None
    try:
        text = base64.b64decode(part.data, validate=True).decode()
    except (binascii.Error, ValueError):
        return None
    if part.mime not in ("", PLAIN):
        ledger.note("setting-mapped", place(part), f"a file of type `{part.mime}` is sent as `{PLAIN}`")
    return {"type": "text", "media_type": PLAIN, "data": text}


def _elsewhere(part: Media) -> Object | None:
    if part.url:
        return {"type": "url", "url": part.url}
    return {"type": "file", "file_id": part.file} if part.file else None


_WRITERS: dict[str, Callable[[Media, Ledger], Object | None]] = {"image": _write_image, "file": _write_document}
