"""The parts of a message: text, refusals and media, for the user's side (`input_*`) and the model's (`output_*`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Literal, TypeAlias

from toolwire.ir import Citation, Media, Opaque, Origin, Part, Refusal, Text, place
from toolwire.loss import Ledger
from toolwire.protocols.openai_responses.names import (
    AUDIO,
    CONTENT,
    FILE,
    IMAGE,
    INPUT_TEXT,
    NAME,
    OUTPUT_TEXT,
    REFUSAL,
    URL_CITATION,
)
from toolwire.reading import Reading, finished, numbered, says_something, verbatim
from toolwire.wire import (
    Json,
    Object,
    Path,
    as_list,
    as_object,
    take_int,
    take_list,
    take_object,
    take_text,
)

Side: TypeAlias = Literal["input", "output"]


def own(origin: Origin | None) -> bool:
    return origin is not None and origin.protocol == NAME


def stamped(reading: Reading, node: Object, path: Path, known: frozenset[str], quiet: str = "") -> Origin:
    """The origin of an item. What says nothing (a plain status, the key `quiet`) is kept, but is no stray."""
    if known.issuperset(node):
        return Origin(NAME, path, node)
    extra = {key: value for key, value in node.items() if key not in known and key != "async_"}
    for key, value in extra.items():
        if key != quiet and says_something(value) and not _says_nothing(key, value):
            reading.stray(path, key, "id-rewritten" if key == "id" else "unknown-field")
    return Origin(NAME, path, node, extra)


def _says_nothing(key: str, value: Json) -> bool:
    return (key == "status" and value in ("completed", "in_progress")) or (
        key == "caller" and value == {"type": "direct"}
    )


# --- reading --------------------------------------------------------------------------------------------------------


def read_content(value: Json, path: Path, reading: Reading) -> tuple[Part, ...]:
    """The content of a message: a string or a list of parts; null is none."""
    if isinstance(value, str):
        return (Text(value, origin=Origin(NAME, path, value)),)
    if value is None:
        return ()
    return tuple([read_part(as_object(part, at), at, reading) for part, at in numbered(as_list(value, path), path)])


def read_part(node: Object, path: Path, reading: Reading) -> Part:
    kind = take_text(node, "type", path) or "input_text"
    reader = READERS.get(kind)
    if reader is None:
        return Opaque(CONTENT + kind, Origin(NAME, path, node))
    return reader(node, path, reading)


def _read_input_text(node: Object, path: Path, reading: Reading) -> Part:
    cache = _read_cache(node, path)
    return Text(take_text(node, "text", path) or "", cache=cache, origin=reading.origin(node, path, INPUT_TEXT))


def _read_output_text(node: Object, path: Path, reading: Reading) -> Part:
    citations = read_annotations(node, path, reading)
    return Text(take_text(node, "text", path) or "", citations, origin=reading.origin(node, path, OUTPUT_TEXT))


def _read_refusal(node: Object, path: Path, reading: Reading) -> Part:
    return Refusal(take_text(node, "refusal", path) or "", reading.origin(node, path, REFUSAL))


def read_annotations(node: Object, path: Path, reading: Reading) -> tuple[Citation, ...]:
    annotations = take_list(node, "annotations", path)
    if not annotations:
        return ()
    at = (path, "annotations")
    return tuple([read_citation(as_object(one, where), where, reading) for one, where in numbered(annotations, at)])


def read_citation(node: Object, path: Path, reading: Reading) -> Citation:
    """A source on the web; other annotations name files that only the provider holds and are carried whole."""
    if node.get("type") != "url_citation":
        return Citation(title=str(node.get("filename") or ""), origin=Origin(NAME, path, node))
    return Citation(
        take_text(node, "url", path) or "",
        take_text(node, "title", path) or "",
        start=take_int(node, "start_index", path),
        end=take_int(node, "end_index", path),
        origin=reading.origin(node, path, URL_CITATION),
    )


def _read_cache(node: Object, path: Path) -> str | None:
    point = take_object(node, "prompt_cache_breakpoint", path)
    return None if point is None else str(point.get("ttl") or "")


def split_data_url(url: str) -> tuple[str, str] | None:
    """The media type and base64 data of a `data:` URL."""
    if not url.startswith("data:"):
        return None
    head, comma, data = url[5:].partition(",")
    return (head.removesuffix(";base64"), data) if comma and head.endswith(";base64") else None


def _read_image(node: Object, path: Path, reading: Reading) -> Part:
    return read_image(node, path, reading.origin(node, path, IMAGE))


def read_image(node: Object, path: Path, origin: Origin) -> Media:
    url = take_text(node, "image_url", path) or ""
    data = split_data_url(url)
    return Media(
        "image",
        mime=data[0] if data else "",
        data=data[1] if data else "",
        url="" if data else url,
        file=take_text(node, "file_id", path) or "",
        detail=take_text(node, "detail", path) or "",
        cache=_read_cache(node, path),
        origin=origin,
    )


def _read_file(node: Object, path: Path, reading: Reading) -> Part:
    text = take_text(node, "file_data", path) or ""
    data = split_data_url(text) or ("", text)
    return Media(
        "file",
        mime=data[0],
        data=data[1],
        url=take_text(node, "file_url", path) or "",
        file=take_text(node, "file_id", path) or "",
        name=take_text(node, "filename", path) or "",
        detail=take_text(node, "detail", path) or "",
        cache=_read_cache(node, path),
        origin=reading.origin(node, path, FILE),
    )


def _read_audio(node: Object, path: Path, reading: Reading) -> Part:
    sound = take_object(node, "input_audio", path) or {}
    at = (path, "input_audio")
    form = take_text(sound, "format", at) or ""
    mime = f"audio/{form}" if form else ""
    return Media("audio", mime=mime, data=take_text(sound, "data", at) or "", origin=reading.origin(node, path, AUDIO))


READERS: Mapping[str, Callable[[Object, Path, Reading], Part]] = MappingProxyType(
    {
        "input_text": _read_input_text,
        "text": _read_input_text,
        "output_text": _read_output_text,
        "refusal": _read_refusal,
        "input_image": _read_image,
        "input_file": _read_file,
        "input_audio": _read_audio,
    }
)
OUTPUT_TYPES = frozenset({"output_text", "refusal"})


# --- writing --------------------------------------------------------------------------------------------------------


def write_content(parts: tuple[Part, ...], side: Side, ledger: Ledger) -> Json:
    """The content of a message; a string that came as a string stays one."""
    if len(parts) == 1:
        origin = parts[0].origin
        if origin is not None and verbatim(origin, NAME) and isinstance(origin.wire, str):
            return origin.wire
    return [written for part in parts if (written := write_part(part, side, ledger)) is not None]


def write_part(part: Part, side: Side, ledger: Ledger) -> Object | None:
    """One part of a message, or None (noted) when this protocol has no place for it."""
    origin = part.origin
    if verbatim(origin, NAME) and isinstance(origin.wire, dict):  # type: ignore[union-attr]
        wire: Object = origin.wire  # type: ignore[union-attr]
        kind = wire.get("type")
        if isinstance(part, Opaque) or (kind in READERS and (kind in OUTPUT_TYPES) == (side == "output")):
            return wire
    match part:
        case Text():
            return write_text(part, side, ledger)
        case Refusal():
            return _write_refusal(part, side, ledger)
        case Media():
            return write_media(part, ledger)
        case Opaque():
            ledger.opaque(part)
        case _:
            ledger.note("part-dropped", place(part), f"a part of type {type(part).__name__} was left out of a message")
    return None


def write_text(part: Text, side: Side, ledger: Ledger, logprobs: bool = False) -> Object:
    if part.seal is not None:
        ledger.note("seal-dropped", place(part), "the seal of a text was left out")
    if side == "output":
        out: Object = {"type": "output_text", "text": part.text, "annotations": write_annotations(part, ledger)}
        if logprobs:
            out["logprobs"] = []
    else:
        out = {"type": "input_text", "text": part.text}
        for citation in part.citations:
            ledger.note("citation-dropped", place(citation), "a citation in a user's text was left out")
    _write_cache(part.cache, out, side, place(part), ledger)
    return _closed(out, part.origin)


def _write_refusal(part: Refusal, side: Side, ledger: Ledger) -> Object:
    if side == "output":
        return _closed({"type": "refusal", "refusal": part.text}, part.origin)
    ledger.note("refusal-as-text", place(part), "a refusal became text")
    return {"type": "input_text", "text": part.text}


def _closed(out: Object, origin: Origin | None) -> Object:
    """Give back unknown keys only to the very type of part that had them."""
    same = own(origin) and isinstance(origin.wire, dict) and origin.wire.get("type") == out["type"]  # type: ignore[union-attr]
    return finished(out, origin, NAME) if same else out


def _write_cache(cache: str | None, out: Object, side: Side, where: Path, ledger: Ledger) -> None:
    """A breakpoint is written only for a client of this protocol: older models refuse it, and cache by themselves."""
    if cache is None:
        return
    if side == "input" and ledger.source == NAME:
        out["prompt_cache_breakpoint"] = {"mode": "explicit", "ttl": cache} if cache else {"mode": "explicit"}
    else:
        ledger.note("cache-dropped", where, "a cache breakpoint was left out")


def write_annotations(part: Text, ledger: Ledger) -> list[Object]:
    length = len(part.text)
    return [out for citation in part.citations if (out := write_citation(citation, length, ledger)) is not None]


def write_citation(citation: Citation, length: int, ledger: Ledger) -> Object | None:
    if verbatim(citation.origin, NAME):
        wire: Object = citation.origin.wire  # type: ignore[union-attr]
        return wire
    if not citation.url:
        ledger.note("citation-dropped", place(citation), "a citation without a URL was left out")
        return None
    out: Object = {"type": "url_citation", "url": citation.url, "title": citation.title}
    own_words = ledger.source == NAME
    if citation.quote:
        ledger.note("citation-mapped", place(citation), "the quoted text of a citation was left out")
    if citation.start is not None or not own_words:
        out["start_index"] = citation.start or 0
    if citation.end is not None or not own_words:
        out["end_index"] = length if citation.end is None else citation.end
    return finished(out, citation.origin, NAME)


DETAILS = frozenset({"low", "high", "auto", "original"})
EXTENSIONS = MappingProxyType({"application/pdf": "pdf", "text/plain": "txt", "text/markdown": "md", "text/csv": "csv"})


def write_media(part: Media, ledger: Ledger) -> Object | None:
    if part.file and part.origin is not None and not own(part.origin):
        ledger.note("media-dropped", place(part), "a file that another provider holds was left out")
        return None
    if part.kind == "image":
        out = _write_image(part, ledger)
    elif part.kind == "file":
        out = _write_file(part, ledger)
    elif part.kind == "audio" and part.data and ledger.source == NAME:
        out = {"type": "input_audio", "input_audio": {"data": part.data, "format": part.mime.partition("/")[2]}}
    else:
        ledger.note("media-dropped", place(part), f"{part.kind} was left out")
        return None
    if part.seal is not None:
        ledger.note("seal-dropped", place(part), "the seal of a media part was left out")
    if part.detail in DETAILS or (part.detail and ledger.source == NAME):
        out["detail"] = part.detail
    elif part.detail:
        ledger.note("setting-mapped", place(part), f"the detail {part.detail!r} was left out")
    _write_cache(part.cache, out, "input", place(part), ledger)
    return _closed(out, part.origin)


def image_url(part: Media) -> str:
    return f"data:{part.mime or 'image/png'};base64,{part.data}" if part.data else part.url


def _write_image(part: Media, ledger: Ledger) -> Object:
    out: Object = {"type": "input_image"}
    if url := image_url(part):
        out["image_url"] = url
    if part.file:
        out["file_id"] = part.file
    if part.name:
        ledger.note("no-counterpart", place(part), "the name of an image was left out")
    return out


def _write_file(part: Media, ledger: Ledger) -> Object:
    out: Object = {"type": "input_file"}
    if part.file:
        out["file_id"] = part.file
    if part.url:
        out["file_url"] = part.url
    name = part.name
    if part.data:
        if not name and ledger.source != NAME:
            name = f"file.{EXTENSIONS.get(part.mime, part.mime.rpartition('/')[2] or 'bin')}"
            ledger.note("name-added", place(part), f"a file was named {name!r}")
        out["filename"] = name
        out["file_data"] = f"data:{part.mime};base64,{part.data}" if part.mime else part.data
    elif name and ledger.source == NAME:
        out["filename"] = name
    elif name:
        ledger.note("no-counterpart", place(part), "the name of a file given by reference was left out")
    if not out.get("filename", " "):
        del out["filename"]
    return out
