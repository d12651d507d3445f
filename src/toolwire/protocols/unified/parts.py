"""Content parts and results."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Literal

from toolwire.ir import (
    HOSTED,
    Call,
    Citation,
    HostedCall,
    HostedResult,
    Media,
    Opaque,
    Origin,
    Part,
    Reasoning,
    Refusal,
    Result,
    Text,
    place,
)
from toolwire.loss import Ledger
from toolwire.protocols.unified.names import (
    CITATION,
    JSON_PART,
    NAME,
    PARTS,
    PREFIX,
    RAW_KEY,
    RESULT,
    Loose,
    read_id,
    suggestion,
    write_id,
)
from toolwire.reading import finished, numbered, verbatim
from toolwire.wire import (
    Json,
    Malformed,
    Object,
    Path,
    as_object,
    embedded,
    encode_text,
    need_text,
    take_bool,
    take_int,
    take_list,
    take_text,
    wrong,
)

Allowed = tuple[str, ...]

# --- small things that several parts have ---------------------------------------------------------------------------


def read_cache(node: Object, path: Path) -> str | None:
    """A cache breakpoint: `true`, or its time to live."""
    value = node.get("cache")
    if value is None or value is False:
        return None
    if value is True:
        return ""
    return value if isinstance(value, str) else wrong((path, "cache"), "true or a time to live", value)


def write_cache(cache: str | None) -> Object:
    return {} if cache is None else {"cache": cache or True}


def read_word(node: Object, key: str, path: Path, words: tuple[str, ...], default: str = "") -> str:
    """One of some words."""
    word = take_text(node, key, path)
    if word is not None and word not in words:
        raise Malformed((path, key), f"`{word}` is no {key} here; {suggestion(word, words)}")
    return default if word is None else word


def read_citation(reading: Loose, value: Json, path: Path) -> Citation:
    node = as_object(value, path)
    return Citation(
        take_text(node, "url", path) or "",
        take_text(node, "title", path) or "",
        take_text(node, "quote", path) or "",
        take_int(node, "start", path),
        take_int(node, "end", path),
        origin=reading.origin(node, path, CITATION),
    )


def write_citation(citation: Citation) -> Object:
    if verbatim(citation.origin, NAME):
        return citation.origin.wire  # type: ignore[union-attr, no-any-return]
    out: Object = {key: text for key in ("url", "title", "quote") if (text := getattr(citation, key))}
    out |= {key: number for key in ("start", "end") if (number := getattr(citation, key)) is not None}
    return finished(out, citation.origin, NAME)


def _citations(reading: Loose, node: Object, key: str, path: Path) -> tuple[Citation, ...]:
    values = take_list(node, key, path) or []
    return tuple(read_citation(reading, value, where) for value, where in numbered(values, (path, key)))


# --- reading parts --------------------------------------------------------------------------------------------------


def read_content(reading: Loose, value: Json, path: Path, allowed: Allowed) -> tuple[Part, ...]:
    """Content is a string or a list of parts; null is no content."""
    if isinstance(value, str):
        return (Text(value, origin=reading.whole(value, path)),)
    if value is None:
        return ()
    if not isinstance(value, list):
        wrong(path, "a string or an array of parts", value)
    return tuple(read_part(reading, item, where, allowed) for item, where in numbered(value, path))


def read_part(reading: Loose, value: Json, path: Path, allowed: Allowed) -> Part:
    node = as_object(value, path)
    word = need_text(node, "type", path)
    read = _READERS.get(word)
    if read is None:
        return reading.unknown(value, path, "part", word, allowed)
    if word not in allowed:
        raise Malformed((path, "type"), f"`{word}` cannot stand here, only {', '.join(allowed)}")
    return read(reading, node, path, reading.origin(node, path, PARTS[word]))


def _read_text(reading: Loose, node: Object, path: Path, origin: Origin) -> Part:
    text = need_text(node, "text", path)
    return Text(text, _citations(reading, node, "citations", path), read_cache(node, path), origin=origin)


def _read_refusal(reading: Loose, node: Object, path: Path, origin: Origin) -> Part:
    return Refusal(need_text(node, "text", path), origin=origin)


_FORMS: Mapping[str, Literal["", "summary", "raw"]] = MappingProxyType({"": "", "summary": "summary", "raw": "raw"})


def read_reasoning(reading: Loose, node: Object, path: Path, origin: Origin) -> Reasoning:
    return Reasoning(
        take_text(node, "text", path) or "",
        _FORMS[read_word(node, "form", path, ("summary", "raw"))],
        take_bool(node, "hidden", path) or False,
        id=take_text(node, "id", path) or "",
        origin=origin,
    )


_MEDIA: Mapping[str, Literal["image", "file", "audio", "video"]] = MappingProxyType(
    {"image": "image", "file": "file", "audio": "audio", "video": "video"}
)
_PLACES = ("data", "url", "file_id")


def _read_media(reading: Loose, node: Object, path: Path, origin: Origin) -> Part:
    if not any(node.get(key) for key in _PLACES):
        raise Malformed(path, "give the content as `data` (base64), `url` or `file_id`")
    texts = [take_text(node, key, path) or "" for key in ("mime", *_PLACES, "name", "detail")]
    mime, data, url, file, name, detail = texts
    return Media(_MEDIA[node["type"]], mime, data, url, file, name, detail, read_cache(node, path), origin=origin)


def _hosted(node: Object, path: Path) -> tuple[str, str]:
    need_text(node, "tool", path)
    return take_text(node, "id", path) or "", read_word(node, "tool", path, HOSTED)


def _read_hosted_call(reading: Loose, node: Object, path: Path, origin: Origin) -> Part:
    arguments = node.get("arguments")
    text = "" if arguments is None else encode_text(as_object(arguments, (path, "arguments")))
    return HostedCall(*_hosted(node, path), text, origin=origin)


def _read_hosted_result(reading: Loose, node: Object, path: Path, origin: Origin) -> Part:
    sources = _citations(reading, node, "sources", path)
    text, error = take_text(node, "text", path) or "", take_text(node, "error", path) or ""
    return HostedResult(*_hosted(node, path), sources, text, error, origin=origin)


_READERS: Mapping[str, Callable[[Loose, Object, Path, Origin], Part]] = MappingProxyType(
    {
        "text": _read_text,
        "image": _read_media,
        "file": _read_media,
        "audio": _read_media,
        "video": _read_media,
        "reasoning": read_reasoning,
        "refusal": _read_refusal,
        "hosted_call": _read_hosted_call,
        "hosted_result": _read_hosted_result,
    }
)

# --- writing parts --------------------------------------------------------------------------------------------------


def is_plain(part: Part) -> bool:
    """Can a string stand for this part? A part that its client wrote as an object stays one."""
    if not isinstance(part, Text) or part.citations or part.cache is not None:
        return False
    origin = part.origin
    return origin is None or origin.protocol != NAME or not origin.intact or not isinstance(origin.wire, dict)


def write_content(parts: tuple[Part, ...], ledger: Ledger, allowed: Allowed) -> str | list[Json]:
    """Content of a message that has no seals."""
    if len(parts) == 1 and isinstance(only := parts[0], Text) and only.seal is None and is_plain(only):
        return only.text
    for part in parts:
        if getattr(part, "seal", None) is not None:
            ledger.note("seal-dropped", place(part), "a seal outside the assistant's messages was left out")
    if len(parts) == 1 and isinstance(part := parts[0], Text) and is_plain(part):
        return part.text
    return [out for part in parts if (out := write_part(part, ledger, allowed)) is not None]


def write_part(part: Part, ledger: Ledger, allowed: Allowed) -> Object | None:
    """A part without its seal; None, and a note, when it cannot stand here."""
    origin: Origin | None = part.origin
    if origin is not None and origin.intact and origin.protocol == NAME and isinstance(origin.wire, dict):
        return origin.wire
    if isinstance(part, Opaque):
        ledger.opaque(part)
        return None
    out = _meaning(part, ledger)
    if out is None or out["type"] not in allowed:
        if isinstance(part, Refusal):
            ledger.note("refusal-as-text", place(part), "a refusal became text")
            return {"type": "text", "text": part.text}
        what = type(part).__name__ if out is None else out["type"]
        ledger.note("part-dropped", place(part), f"a part `{what}` was left out")
        return None
    return finished(out, origin, NAME)


def _meaning(part: Part, ledger: Ledger) -> Object | None:
    match part:
        case Text(text, citations, cache):
            cited = {"citations": [write_citation(citation) for citation in citations]} if citations else {}
            return {"type": "text", "text": text, **cited, **write_cache(cache)}
        case Refusal(text):
            return {"type": "refusal", "text": text}
        case Reasoning():
            return {"type": "reasoning", "text": part.text, **reasoning_head(part)}
        case Media():
            return _write_media(part)
        case HostedCall(id, tool, arguments):
            given = {"arguments": write_arguments(arguments, part, ledger)} if arguments else {}
            return {"type": "hosted_call", "id": id, "tool": tool, **given}
        case HostedResult(id, tool, sources, text, error):
            found: Object = {"sources": [write_citation(source) for source in sources]} if sources else {}
            found |= {key: value for key, value in (("text", text), ("error", error)) if value}
            return {"type": "hosted_result", "id": id, "tool": tool, **found}
    return None


def reasoning_head(part: Reasoning) -> Object:
    """What is known of thinking besides its text."""
    out: Object = {}
    if part.form:
        out["form"] = part.form
    if part.hidden:
        out["hidden"] = True
    if part.id:
        out["id"] = part.id
    return out


def _write_media(media: Media) -> Object:
    values = (media.mime, media.data, media.url, media.file, media.name, media.detail)
    named = zip(("mime", *_PLACES, "name", "detail"), values, strict=True)
    return {"type": media.kind, **{key: value for key, value in named if value}, **write_cache(media.cache)}


def write_arguments(text: str, part: Call | HostedCall, ledger: Ledger) -> Json:
    """Arguments are an object, byte for byte as they came; anything else is wrapped in one."""
    arguments = embedded(text)
    if arguments is None:
        ledger.note("arguments-wrapped", place(part), f"arguments that are no object went into `{RAW_KEY}`")
        return {RAW_KEY: text}
    return arguments


# --- results --------------------------------------------------------------------------------------------------------

RESULT_PARTS = ("text", "image", "file", "audio", "video")
_NEEDED: Mapping[str, tuple[str, ...]] = MappingProxyType({"text": ("text",)} | dict.fromkeys(_MEDIA, _PLACES))


def read_result(reading: Loose, value: Json, path: Path) -> Result:
    node = as_object(value, path)
    origin = reading.origin(node, path, RESULT)
    content, held = _read_result_content(reading, node.get("content"), (path, "content"))
    return Result(
        read_id(need_text(node, "tool_call_id", path)),
        content,
        take_bool(node, "is_error", path),
        take_text(node, "name", path) or "",
        cache=read_cache(node, path),
        value=held,
        origin=origin,
    )


def _read_result_content(reading: Loose, value: Json, path: Path) -> tuple[tuple[Part, ...], Json]:
    if value is None or isinstance(value, str):
        return read_content(reading, value, path, RESULT_PARTS), None
    if not (isinstance(value, list) and all_parts(value)):
        return (_text_of(value, path),), value
    parts: list[Part] = []
    held: Json = None
    for item, where in numbered(value, path):
        if item["type"] != "json":
            parts.append(read_part(reading, item, where, RESULT_PARTS))
        elif held is not None:
            raise Malformed(where, "a result holds one `json` part at most; put the values into one array")
        else:
            held = item["value"]
            parts.append(_text_of(held, where))
    return tuple(parts), held


def _text_of(value: Json, path: Path) -> Text:
    return Text(encode_text(value), origin=Origin(NAME, path, value, intact=False))


def all_parts(items: list[Json]) -> bool:
    """Is this list parts, or data? Parts are all of a known type, with what that type needs and no key beyond."""
    return bool(items) and all(isinstance(item, dict) and _is_part(item) for item in items)


def _is_part(item: Object) -> bool:
    word = item.get("type")
    if word == "json":
        return item.keys() == JSON_PART and item["value"] is not None
    if not isinstance(word, str) or word not in _NEEDED:
        return False
    return PARTS[word].issuperset(item) and any(isinstance(item.get(key), str) for key in _NEEDED[word])


def write_result(result: Result, ledger: Ledger) -> Object:
    if verbatim(result.origin, NAME):
        return result.origin.wire  # type: ignore[union-attr, no-any-return]
    if result.kind != "function":
        ledger.note("tool-wrapped", place(result), f"the result of a {result.kind} call became a function's")
    id = write_id(result.id)
    if id != PREFIX + result.id:
        ledger.note("id-rewritten", place(result), "the id of a call was escaped in its result")
    out: Object = {"tool_call_id": id}
    if result.name:
        out["name"] = result.name
    if result.value is None and result.content:
        out["content"] = write_content(result.content, ledger, RESULT_PARTS)
    else:
        out["content"] = None if result.value is None else _write_value(result.value, result.content, ledger)
    if result.error is not None:
        out["is_error"] = result.error
    if result.cache is not None:
        out["cache"] = result.cache or True
    return finished(out, result.origin, NAME)


def _write_value(value: Json, parts: tuple[Part, ...], ledger: Ledger) -> Json:
    """Data as they are where nothing stands beside them, else as a part of their own."""
    at = _place_of_value(value, parts)
    rest = parts if at is None else parts[:at] + parts[at + 1 :]
    data = isinstance(value, str) or (isinstance(value, list) and all_parts(value))
    if not rest and not data:
        return value
    written = write_content(rest, ledger, RESULT_PARTS) if rest else []
    others = [{"type": "text", "text": written}] if isinstance(written, str) else written
    others.insert(at or 0, {"type": "json", "value": value})
    return others


def _place_of_value(value: Json, parts: tuple[Part, ...]) -> int | None:
    """Which text is only the value's text form?"""
    texts = [at for at, part in enumerate(parts) if isinstance(part, Text)]
    spelled = encode_text(value) if len(texts) > 1 else ""
    same = [at for at in texts if isinstance(part := parts[at], Text) and part.text == spelled]
    return next(iter(same or texts), None)
