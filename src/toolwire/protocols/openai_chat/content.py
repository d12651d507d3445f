"""The parts of a Chat message, read and written: text, citations, images and other media, and reasoning."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal

from msgspec.structs import replace

from toolwire.core.ir import (
    Call,
    Citation,
    Media,
    Opaque,
    Origin,
    Part,
    Reasoning,
    Refusal,
    Result,
    Seal,
    Text,
    document_text,
    source_path,
    split_data_url,
    titled_text,
)
from toolwire.core.json_values import (
    Json,
    Object,
    Path,
    decode_object_or_none,
    encode_text,
    expect_list,
    expect_object,
    get_list,
    get_text,
    require_text,
)
from toolwire.core.losses import Ledger
from toolwire.core.provenance import ReadContext, odd_shape, restore_original_keys
from toolwire.protocols.openai_chat import names
from toolwire.protocols.openai_chat.models import Family
from toolwire.protocols.openai_chat.names import NAME, intact_wire, is_own, is_own_seal, unknown_keys

# --- text -----------------------------------------------------------------------------------------------------------


def read_content(value: Json, path: Path, reading: ReadContext) -> tuple[Part, ...]:
    """The content of a message: a string, a list of parts, or null."""
    if isinstance(value, str):
        return (Text(value, (), None, None, Origin(NAME, path, value)),)
    if value is None:
        return ()
    if type(value) is dict:
        return read_content_object(value, path, reading)
    parts: list[Part] = []
    for number, item in enumerate(expect_list(value, path)):
        at = (path, number)
        text = item.get("text") if type(item) is dict and len(item) == 2 else None
        if type(text) is str and item.get("type") == "text":
            parts.append(Text(text, (), None, None, Origin(NAME, at, item)))
            continue
        kind = require_text(expect_object(item, at), "type", at)
        read = _PART_READERS.get(kind)
        parts.append(read(item, at, reading) if read is not None else Opaque(kind, Origin(NAME, at, item)))
    return tuple(parts)


def read_content_object(value: Object, path: Path, reading: ReadContext) -> tuple[Part, ...]:
    """Content that is an object: a part without its list, or what a tool has returned, which is JSON text then."""
    kind, inner = value.get("type"), ReadContext(NAME)
    if isinstance(kind, str) and kind in _PART_READERS and (kind != "text" or isinstance(value.get("text"), str)):
        what, parts = "an object as content was read as a list of one part", read_content([value], path, inner)
    else:
        what, parts = "an object as content was read as JSON text", (Text(encode_text(value)),)
    reading.unknown_fields += [*inner.unknown_fields, odd_shape(path[0] if path else None, "content", what)]
    return tuple([replace(part, origin=Origin(NAME, path, value, intact=False)) for part in parts])


def _read_nested_call(node: Object, path: Path, reading: ReadContext) -> Part:
    """A call among the parts of the content, as Anthropic's and Responses' clients write it."""
    inner: Object = node["function"] if isinstance(node.get("function"), dict) else node
    arguments: Json = next((inner[key] for key in ("input", "arguments", "args") if inner.get(key) is not None), {})
    id = next((node[key] for key in ("call_id", "tool_call_id", "id") if isinstance(node.get(key), str)), "")
    reading.unknown_fields.append(odd_shape(path, "type", "a call in the content was read as a call"))
    text = arguments if isinstance(arguments, str) else encode_text(arguments)
    return Call(id, require_text(inner, "name", path), text, origin=Origin(NAME, path, node, intact=False))


def _read_nested_result(node: Object, path: Path, reading: ReadContext) -> Part:
    value = next((node[key] for key in ("content", "output", "result") if node.get(key) is not None), None)
    id = next((node[key] for key in ("tool_use_id", "tool_call_id", "call_id") if isinstance(node.get(key), str)), "")
    reading.unknown_fields.append(odd_shape(path, "type", "a result in the content was read as a result"))
    is_error = node["is_error"] if isinstance(node.get("is_error"), bool) else None
    content = read_content(value, (path, "content"), ReadContext(NAME))
    return Result(id, content, is_error, origin=Origin(NAME, path, node, intact=False))


def _read_responses_text(node: Object, path: Path, reading: ReadContext) -> Part:
    reading.unknown_fields.append(odd_shape(path, "type", "a text as Responses has it was read as text"))
    return Text(require_text(node, "text", path), origin=Origin(NAME, path, node, intact=False))


def read_cache(node: Object) -> str | None:
    """The time to live of a cache breakpoint, "" for the default; None without one."""
    for key in names.CACHE_KEYS:
        if isinstance(mark := node.get(key), dict):
            return ttl if isinstance(ttl := mark.get("ttl"), str) else ""
    return None


_CACHE_MARKS: Mapping[str, tuple[Object, tuple[str, ...]]] = {
    "prompt_cache_breakpoint": ({"mode": "explicit"}, ("30m", "12h")),
    "cache_control": ({"type": "ephemeral"}, ("5m", "1h")),
}


def write_cache(out: Object, cache: str | None, where: Path, family: Family, ledger: Ledger) -> None:
    if cache is None:
        return
    if not family.breakpoint:
        ledger.note("cache-dropped", where, "a cache breakpoint was left out")
        return
    mark, ttls = _CACHE_MARKS[family.breakpoint]
    out[family.breakpoint] = {**mark, "ttl": cache} if cache in ttls else dict(mark)
    if cache and cache not in ttls:
        ledger.note("setting-mapped", where, f"a cache breakpoint of `{cache}` got the default time to live")


def _read_text(node: Object, path: Path, reading: ReadContext) -> Part:
    cache = read_cache(node) if len(node) > 2 else None
    return Text(require_text(node, "text", path), cache=cache, origin=reading.read_origin(node, path, names.TEXT_KEYS))


def write_text(part: Text, family: Family, ledger: Ledger) -> Object:
    if (wire := intact_wire(part.origin)) is not None:
        return wire
    out: Object = {"type": "text", "text": part.text}
    write_cache(out, part.cache, source_path(part), family, ledger)
    return restore_original_keys(out, part.origin, NAME)


def _read_thinking_part(node: Object, path: Path, reading: ReadContext) -> Part:
    """Mistral's content part `{"type": "thinking", "thinking": [text parts]}`."""
    pieces = node.get("thinking")
    if isinstance(pieces, list):
        texts = [piece.get("text") for piece in pieces if isinstance(piece, dict)]
        pieces = "".join(text for text in texts if isinstance(text, str))
    if not isinstance(pieces, str):
        return Opaque("thinking", reading.whole_origin(node, path))
    return Reasoning(pieces, "raw", origin=reading.whole_origin(node, path))


# --- citations ------------------------------------------------------------------------------------------------------


def read_citations(node: Object, path: Path, reading: ReadContext, offset: int = 0) -> tuple[Citation, ...]:
    """The `annotations` of a message; `offset` is where their text begins in the whole content."""
    found = []
    for number, item in enumerate(get_list(node, "annotations", path) or ()):
        at = ((path, "annotations"), number)
        cited = item.get("url_citation") if isinstance(item, dict) else None
        if not isinstance(cited, dict):
            reading.note_unknown_field((path, "annotations"), str(number))
            continue
        url, title, quote = (
            text if isinstance(text := cited.get(key), str) else "" for key in ("url", "title", "content")
        )
        start, end = (
            place - offset if isinstance(place := cited.get(key), int) and place >= offset else None
            for key in ("start_index", "end_index")
        )
        reading.read_origin(cited, (at, "url_citation"), names.CITATION_KEYS)
        found.append(Citation(url, title, quote, start, end, None if offset else Origin(NAME, at, item)))
    return tuple(found)


def write_citation(citation: Citation, offset: int = 0, text_length: int = 0) -> Object:
    """`offset` is where the text begins in the whole content. A citation without a place covers the whole text."""
    wire = intact_wire(citation.origin)
    if wire is not None and not offset:
        return wire
    start, end = citation.start or 0, text_length if citation.end is None else citation.end
    cited: Object = {"start_index": start + offset, "end_index": end + offset}
    cited |= {"url": citation.url, "title": citation.title}
    if citation.quote:
        cited["content"] = citation.quote
    return {"type": "url_citation", "url_citation": cited}


# --- media ----------------------------------------------------------------------------------------------------------


def _read_media_object(node: Object, path: Path, reading: ReadContext, kind: str) -> tuple[Object, Origin]:
    """The object under the part's own key, or a bare URL instead of it, and the part's origin."""
    value: Json = node.get(kind)
    if isinstance(value, str):
        value = {"url": value}
    else:
        reading.read_origin(expect_object(value, (path, kind)), (path, kind), names.MEDIA_KEYS[kind])
    return value, reading.read_origin(node, path, frozenset({"type", kind, *names.CACHE_KEYS}))


def _make_url_reader(kind: Literal["image", "video"]) -> Callable[[Object, Path, ReadContext], Part]:
    key = f"{kind}_url"

    def read(node: Object, path: Path, reading: ReadContext) -> Part:
        inner, origin = _read_media_object(node, path, reading, key)
        url = require_text(inner, "url", (path, key))
        detail = get_text(inner, "detail", (path, key)) or ""
        held = split_data_url(url)
        mime, data = held or ("", "")
        return Media(kind, mime, data, "" if held else url, detail=detail, cache=read_cache(node), origin=origin)

    return read


def _read_audio(node: Object, path: Path, reading: ReadContext) -> Part:
    inner, origin = _read_media_object(node, path, reading, "input_audio")
    at = (path, "input_audio")
    form = get_text(inner, "format", at) or ""
    mime = names.AUDIO_MIMES.get(form, f"audio/{form}" if form else "")
    return Media("audio", mime, require_text(inner, "data", at), cache=read_cache(node), origin=origin)


def _read_file(node: Object, path: Path, reading: ReadContext) -> Part:
    inner, origin = _read_media_object(node, path, reading, "file")
    at = (path, "file")
    data, id, name = (get_text(inner, key, at) or "" for key in ("file_data", "file_id", "filename"))
    mime, data = split_data_url(data) or ("", data)
    return Media("file", mime, data, file_id=id, name=name, cache=read_cache(node), origin=origin)


_PART_READERS: Mapping[str, Callable[[Object, Path, ReadContext], Part]] = {
    "text": _read_text,
    "refusal": lambda node, path, reading: Refusal(
        require_text(node, "refusal", path), origin=reading.read_origin(node, path, names.REFUSAL_KEYS)
    ),
    "thinking": _read_thinking_part,
    "image_url": _make_url_reader("image"),
    "video_url": _make_url_reader("video"),
    "input_audio": _read_audio,
    "file": _read_file,
    **dict.fromkeys(("input_text", "output_text"), _read_responses_text),
    **dict.fromkeys(("tool_use", "tool_call", "function_call"), _read_nested_call),
    **dict.fromkeys(("tool_result", "function_call_output"), _read_nested_result),
}


def write_media(part: Media, family: Family, ledger: Ledger) -> Object | None:
    if (wire := intact_wire(part.origin)) is not None:
        return wire
    if not is_own(part.origin) and (text := document_text(part)) is not None:
        return _write_text_file(part, text, family, ledger)
    key, write = _MEDIA_WRITERS[part.kind]
    inner = write(part, ledger) if part.kind != "video" or family.video or family.native else None
    if inner is None:
        held = "given by its URL" if part.url else f"of type `{part.mime}`"
        held = "held by another provider" if part.file_id else held
        ledger.note("media-dropped", source_path(part), f"a part of kind `{part.kind}` {held} was left out")
        return None
    if part.detail and key != "image_url":
        ledger.note("no-counterpart", source_path(part), f"the detail `{part.detail}` was left out")
    if key != "file":
        ledger.note_media_name(part)
    out: Object = {"type": key, key: inner | unknown_keys(part.origin, key, names.MEDIA_KEYS[key])}
    write_cache(out, part.cache, source_path(part), family, ledger)
    return restore_original_keys(out, part.origin, NAME)


def _write_text_file(part: Media, text: str, family: Family, ledger: Ledger) -> Object:
    """OpenAI takes only PDF as a file."""
    ledger.note("media-as-text", source_path(part), f"a file of type `{part.mime}` was sent as text")
    out: Object = {"type": "text", "text": titled_text(part.name, text)}
    write_cache(out, part.cache, source_path(part), family, ledger)
    return out


def _write_media_url(part: Media, _ledger: Ledger) -> Object | None:
    url = part.url or (f"data:{part.mime or 'application/octet-stream'};base64,{part.data}" if part.data else "")
    if not url:
        return None
    return {"url": url, "detail": part.detail} if part.detail and part.kind == "image" else {"url": url}


def _write_audio(part: Media, _ledger: Ledger) -> Object | None:
    form = names.AUDIO_FORMATS.get(part.mime, part.mime.rpartition("/")[2])
    return {"data": part.data, "format": form} if part.data else None


def _write_file(part: Media, ledger: Ledger) -> Object | None:
    if part.data:
        name = part.name
        if not name:
            name = "file.pdf" if part.mime in ("", "application/pdf") else f"file.{part.mime.rpartition('/')[2]}"
            ledger.note("name-added", source_path(part), f"a file without a name was named `{name}`")
        return {"filename": name, "file_data": f"data:{part.mime};base64,{part.data}" if part.mime else part.data}
    # The id of another provider's file would fail the whole request. OpenAI's begin with `file-`.
    if part.file_id and (part.file_id.startswith("file-") or part.origin is None or is_own(part.origin)):
        return {"file_id": part.file_id, "filename": part.name} if part.name else {"file_id": part.file_id}
    return None


_MEDIA_WRITERS: Mapping[str, tuple[str, Callable[[Media, Ledger], Object | None]]] = {
    "image": ("image_url", _write_media_url),
    "video": ("video_url", _write_media_url),
    "audio": ("input_audio", _write_audio),
    "file": ("file", _write_file),
}


# --- reasoning ------------------------------------------------------------------------------------------------------

_DETAIL_CONTENT_KEYS = ("type", "text", "summary")
"""Keys of an entry that are fields of `Reasoning`."""


_DETAIL_KEYS = frozenset({"type", "text", "summary", "data", "signature", "index", "id"})


def read_reasoning_detail(entry: Object, path: Path, reading: ReadContext) -> Reasoning | None:
    """One entry of OpenRouter's `reasoning_details`. The whole entry is the seal: OpenRouter wants all of it back."""
    form = entry.get("type")
    if form not in ("reasoning.text", "reasoning.summary", "reasoning.encrypted"):
        return None
    text, seal = entry.get("summary" if form == "reasoning.summary" else "text"), None
    if entry.get("signature") or entry.get("data"):
        seal = Seal(NAME, encode_text({key: value for key, value in entry.items() if key not in _DETAIL_CONTENT_KEYS}))
    text, id = (value if isinstance(value, str) else "" for value in (text, entry.get("id")))
    kind: Literal["summary", "raw"] = "summary" if form == "reasoning.summary" else "raw"
    if seal is None:
        reading.read_origin(entry, path, _DETAIL_KEYS)
    return Reasoning(text, kind, form == "reasoning.encrypted", seal, id, reading.whole_origin(entry, path))


def write_reasoning_detail(part: Reasoning, number: int) -> Object:
    wire = intact_wire(part.origin)
    if wire is not None and "type" in wire and wire["type"] != "thinking":
        return wire
    key = "summary" if part.form == "summary" else "text"
    out: Object = {"type": f"reasoning.{'encrypted' if part.hidden else key}"}
    if part.text or not part.hidden:
        out[key] = part.text
    if part.seal is not None and is_own_seal(part.seal):
        entry = decode_object_or_none(part.seal.value)
        whole = entry is not None and ("data" in entry or "signature" in entry)
        out |= entry if entry and whole else {"data" if part.hidden else "signature": part.seal.value}
    elif part.id:
        out["id"] = part.id
    return out if "index" in out else {**out, "index": number}


def read_reasoning(node: Object, path: Path, reading: ReadContext) -> list[Part]:
    """Reasoning of compatible servers: DeepSeek's and vLLM's `reasoning_content`, or `reasoning` with OpenRouter's
    `reasoning_details`, which repeat the text."""
    found: list[Part] = []
    at = (path, "reasoning_details")
    for number, item in enumerate(get_list(node, "reasoning_details", path) or ()):
        part = read_reasoning_detail(item, (at, number), reading) if isinstance(item, dict) else None
        if part is None:
            reading.note_unknown_field(at, str(number))
        else:
            found.append(part)
    known_text = "".join(part.text for part in found if isinstance(part, Reasoning))
    for key in ("reasoning_content", "reasoning"):
        text = node.get(key)
        if not isinstance(text, str) or not text:
            if text:
                reading.note_unknown_field(path, key)
        elif not known_text:
            known_text = text
            found.insert(0, Reasoning(text, "raw", origin=reading.whole_origin(text, (path, key))))
        elif text != known_text:
            reading.note_unknown_field(path, key)
    return found


def mark_incomplete_calls(parts: tuple[Part, ...]) -> tuple[Part, ...]:
    """The parts of an answer that was cut off; a call whose arguments are not whole JSON is marked."""
    out = list(parts)
    for number, part in enumerate(parts):
        if isinstance(part, Call) and has_incomplete_arguments(part.kind, part.arguments):
            out[number] = replace(part, incomplete=True)
    return tuple(out)


def has_incomplete_arguments(kind: str, arguments: str) -> bool:
    return kind != "custom" and (not arguments.strip() or decode_object_or_none(arguments) is None)
