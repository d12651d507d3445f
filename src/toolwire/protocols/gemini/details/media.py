"""Images, documents, sound and film: inline as base64, or by address."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal

from toolwire.ir import Media, Origin, Seal, place
from toolwire.loss import Ledger
from toolwire.protocols.gemini.names import FILE, INLINE, NAME
from toolwire.wire import Object, Path, as_text, take_text

MediaKind = Literal["image", "file", "audio", "video"]

_KINDS: Mapping[str, MediaKind] = MappingProxyType({"image": "image", "audio": "audio", "video": "video"})

_DEFAULTS: Mapping[str, str] = MappingProxyType(
    {"image": "image/png", "file": "application/pdf", "audio": "audio/wav", "video": "video/mp4"}
)

_ENDINGS: Mapping[str, str] = MappingProxyType(
    {
        "png": "image/png",
        "jpg": "image/jpeg",
        "jpeg": "image/jpeg",
        "webp": "image/webp",
        "gif": "image/gif",
        "heic": "image/heic",
        "pdf": "application/pdf",
        "txt": "text/plain",
        "mp3": "audio/mp3",
        "wav": "audio/wav",
        "mp4": "video/mp4",
        "webm": "video/webm",
    }
)

_HELD = ("gs://", "files/", "https://generativelanguage.googleapis.com/")
"""Addresses that only this provider can open."""

_FILM = ("https://www.youtube.com/", "https://youtube.com/", "https://youtu.be/")

NESTED = frozenset({"image/png", "image/jpeg", "image/webp", "application/pdf", "text/plain"})
"""What a result may hold inside, from the third generation on."""

_STANDARD = str.maketrans("-_", "+/")


def kind_of(mime: str) -> MediaKind:
    return _KINDS.get(mime.partition("/")[0], "file")


def standard_base64(data: str) -> str:
    """The wire takes both alphabets, padded or not; everybody else wants the standard one."""
    if "-" in data or "_" in data:
        data = data.translate(_STANDARD)
    return data if len(data) % 4 == 0 else data + "=" * (-len(data) % 4)


def read_inline(inline: Object, path: Path, origin: Origin | None, seal: Seal | None = None) -> Media:
    node = INLINE(inline)
    mime = take_text(node, "mimeType", path) or ""
    data = standard_base64(as_text(node.get("data") or "", (path, "data")))
    name = take_text(node, "displayName", path) or ""
    return Media(kind_of(mime), mime, data=data, name=name, seal=seal, origin=origin)


def read_file(file: Object, path: Path, origin: Origin | None, seal: Seal | None = None) -> Media:
    node = FILE(file)
    mime = take_text(node, "mimeType", path) or ""
    uri = as_text(node.get("fileUri") or "", (path, "fileUri"))
    held = uri.startswith(_HELD)
    kind = "video" if not mime and uri.startswith(_FILM) else kind_of(mime)
    return Media(
        kind,
        mime,
        url="" if held else uri,
        file=uri if held else "",
        name=take_text(node, "displayName", path) or "",
        seal=seal,
        origin=origin,
    )


def write_media(media: Media, ledger: Ledger, nested: bool = False) -> Object | None:
    """One data part; None when the media cannot be said here, which is noted."""
    own = media.origin is None or media.origin.protocol == NAME
    if media.detail not in ("", "auto"):
        ledger.note("no-counterpart", place(media), f"the detail `{media.detail}` was left out")
    if media.cache is not None:
        ledger.note("cache-dropped", place(media), "the cache breakpoint was left out")
    name = media.name if own or nested else ""
    if media.name and not name:
        ledger.note("no-counterpart", place(media), f"the file's name `{media.name}` was left out")
    mime, data, uri = media.mime, media.data, media.url
    if uri.startswith("data:"):
        head, _, data = uri[5:].partition(",")
        mime, uri = mime or head.partition(";")[0], ""
    if data:
        inline: Object = {"mimeType": mime or _default(media, ledger), "data": data}
        return {"inlineData": {**inline, "displayName": name} if name else inline}
    if media.file:
        if not own and not media.file.startswith(_HELD):
            ledger.note("media-dropped", place(media), f"the file `{media.file}` is held by another provider")
            return None
        uri = media.file
    if not uri:
        ledger.note("media-dropped", place(media), f"the {media.kind} has neither data nor an address")
        return None
    if not mime and not own:
        mime = _ENDINGS.get(uri.partition("?")[0].rpartition(".")[2].lower(), "")
    file: Object = {"mimeType": mime, "fileUri": uri} if mime else {"fileUri": uri}
    return {"fileData": {**file, "displayName": name} if name else file}


def _default(media: Media, ledger: Ledger) -> str:
    mime = _ENDINGS.get(media.name.rpartition(".")[2].lower()) or _DEFAULTS[media.kind]
    ledger.note("default-added", place(media), f"the media type was given as {mime}")
    return mime
