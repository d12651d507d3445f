"""Content parts and results."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Literal

from toolwire.core.ir import (
    PROVIDER_TOOLS,
    Call,
    Citation,
    Media,
    Opaque,
    Origin,
    Part,
    ProviderCall,
    ProviderResult,
    Reasoning,
    Refusal,
    Result,
    Text,
    source_path,
)
from toolwire.core.json_values import (
    Json,
    Malformed,
    Object,
    Path,
    encode_text,
    expect_object,
    get_bool,
    get_int,
    get_list,
    get_text,
    raise_wrong_type,
    raw_object_or_none,
    require_text,
)
from toolwire.core.losses import Ledger
from toolwire.core.provenance import is_verbatim, items_with_paths, restore_original_keys
from toolwire.protocols.unified.names import (
    CALL_ID_PREFIX,
    CITATION_KEYS,
    JSON_PART_KEYS,
    NAME,
    PART_KEYS,
    RAW_ARGUMENTS_KEY,
    RESULT_KEYS,
    LenientReadContext,
    read_call_id,
    suggest_word,
    write_call_id,
)

PartTypes = tuple[str, ...]

# --- small things that several parts have ---------------------------------------------------------------------------


def read_cache(node: Object, path: Path) -> str | None:
    """A cache breakpoint: `true`, or its time to live."""
    value = node.get("cache")
    if value is None or value is False:
        return None
    if value is True:
        return ""
    return value if isinstance(value, str) else raise_wrong_type((path, "cache"), "true or a time to live", value)


def write_cache(cache: str | None) -> Object:
    return {} if cache is None else {"cache": cache or True}


def read_enum(node: Object, key: str, path: Path, words: tuple[str, ...], default: str = "") -> str:
    """One of some words."""
    word = get_text(node, key, path)
    if word is not None and word not in words:
        raise Malformed((path, key), f"`{word}` is no {key} here; {suggest_word(word, words)}")
    return default if word is None else word


def read_citation(reading: LenientReadContext, value: Json, path: Path) -> Citation:
    node = expect_object(value, path)
    return Citation(
        get_text(node, "url", path) or "",
        get_text(node, "title", path) or "",
        get_text(node, "quote", path) or "",
        get_int(node, "start", path),
        get_int(node, "end", path),
        origin=reading.read_origin(node, path, CITATION_KEYS),
    )


def write_citation(citation: Citation) -> Object:
    if is_verbatim(citation.origin, NAME):
        return citation.origin.wire  # type: ignore[union-attr, no-any-return]
    out: Object = {key: text for key in ("url", "title", "quote") if (text := getattr(citation, key))}
    out |= {key: number for key in ("start", "end") if (number := getattr(citation, key)) is not None}
    return restore_original_keys(out, citation.origin, NAME)


def _read_citations(reading: LenientReadContext, node: Object, key: str, path: Path) -> tuple[Citation, ...]:
    values = get_list(node, key, path) or []
    return tuple(read_citation(reading, value, where) for value, where in items_with_paths(values, (path, key)))


# --- reading parts --------------------------------------------------------------------------------------------------


def read_content(reading: LenientReadContext, value: Json, path: Path, allowed: PartTypes) -> tuple[Part, ...]:
    """Content is a string or a list of parts; null is no content."""
    if isinstance(value, str):
        return (Text(value, origin=reading.whole_origin(value, path)),)
    if value is None:
        return ()
    if not isinstance(value, list):
        raise_wrong_type(path, "a string or an array of parts", value)
    return tuple(read_part(reading, item, where, allowed) for item, where in items_with_paths(value, path))


def read_part(reading: LenientReadContext, value: Json, path: Path, allowed: PartTypes) -> Part:
    node = expect_object(value, path)
    word = require_text(node, "type", path)
    read = _PART_READERS.get(word)
    if read is None:
        return reading.read_unknown(value, path, "part", word, allowed)
    if word not in allowed:
        raise Malformed((path, "type"), f"`{word}` cannot stand here, only {', '.join(allowed)}")
    return read(reading, node, path, reading.read_origin(node, path, PART_KEYS[word]))


def _read_text(reading: LenientReadContext, node: Object, path: Path, origin: Origin) -> Part:
    text = require_text(node, "text", path)
    return Text(text, _read_citations(reading, node, "citations", path), read_cache(node, path), origin=origin)


def _read_refusal(reading: LenientReadContext, node: Object, path: Path, origin: Origin) -> Part:
    return Refusal(require_text(node, "text", path), origin=origin)


_REASONING_FORMS: Mapping[str, Literal["", "summary", "raw"]] = MappingProxyType(
    {"": "", "summary": "summary", "raw": "raw"}
)


def read_reasoning(reading: LenientReadContext, node: Object, path: Path, origin: Origin) -> Reasoning:
    return Reasoning(
        get_text(node, "text", path) or "",
        _REASONING_FORMS[read_enum(node, "form", path, ("summary", "raw"))],
        get_bool(node, "hidden", path) or False,
        id=get_text(node, "id", path) or "",
        origin=origin,
    )


_MEDIA_KINDS: Mapping[str, Literal["image", "file", "audio", "video"]] = MappingProxyType(
    {"image": "image", "file": "file", "audio": "audio", "video": "video"}
)
_MEDIA_SOURCES = ("data", "url", "file_id")


def _read_media(reading: LenientReadContext, node: Object, path: Path, origin: Origin) -> Part:
    if not any(node.get(key) for key in _MEDIA_SOURCES):
        raise Malformed(path, "give the content as `data` (base64), `url` or `file_id`")
    texts = [get_text(node, key, path) or "" for key in ("mime", *_MEDIA_SOURCES, "name", "detail")]
    mime, data, url, file, name, detail = texts
    return Media(_MEDIA_KINDS[node["type"]], mime, data, url, file, name, detail, read_cache(node, path), origin=origin)


def _read_provider_identity(node: Object, path: Path) -> tuple[str, str]:
    require_text(node, "tool", path)
    return get_text(node, "id", path) or "", read_enum(node, "tool", path, PROVIDER_TOOLS)


def _read_provider_call(reading: LenientReadContext, node: Object, path: Path, origin: Origin) -> Part:
    arguments = node.get("arguments")
    text = "" if arguments is None else encode_text(expect_object(arguments, (path, "arguments")))
    return ProviderCall(*_read_provider_identity(node, path), text, origin=origin)


def _read_provider_result(reading: LenientReadContext, node: Object, path: Path, origin: Origin) -> Part:
    sources = _read_citations(reading, node, "sources", path)
    text, error = get_text(node, "text", path) or "", get_text(node, "error", path) or ""
    return ProviderResult(*_read_provider_identity(node, path), sources, text, error, origin=origin)


_PART_READERS: Mapping[str, Callable[[LenientReadContext, Object, Path, Origin], Part]] = MappingProxyType(
    {
        "text": _read_text,
        "image": _read_media,
        "file": _read_media,
        "audio": _read_media,
        "video": _read_media,
        "reasoning": read_reasoning,
        "refusal": _read_refusal,
        "hosted_call": _read_provider_call,
        "hosted_result": _read_provider_result,
    }
)

# --- writing parts --------------------------------------------------------------------------------------------------


def is_plain_text(part: Part) -> bool:
    """Can a string stand for this part? A part that its client wrote as an object stays one."""
    if not isinstance(part, Text) or part.citations or part.cache is not None:
        return False
    origin = part.origin
    return origin is None or origin.protocol != NAME or not origin.intact or not isinstance(origin.wire, dict)


def write_content(parts: tuple[Part, ...], ledger: Ledger, allowed: PartTypes) -> str | list[Json]:
    """Content of a message that has no seals."""
    for part in parts:
        if getattr(part, "seal", None) is not None:
            ledger.note("seal-dropped", source_path(part), "a seal outside the assistant's messages was left out")
    if len(parts) == 1 and isinstance(only := parts[0], Text) and is_plain_text(only):
        return only.text
    return [out for part in parts if (out := write_part(part, ledger, allowed)) is not None]


def write_part(part: Part, ledger: Ledger, allowed: PartTypes) -> Object | None:
    """A part without its seal; None, and a note, when it cannot stand here."""
    origin: Origin | None = part.origin
    if origin is not None and origin.intact and origin.protocol == NAME and isinstance(origin.wire, dict):
        return origin.wire
    if isinstance(part, Opaque):
        ledger.note_opaque(part)
        return None
    out = _write_part_fields(part, ledger)
    if out is None or out["type"] not in allowed:
        if isinstance(part, Refusal):
            ledger.note("refusal-as-text", source_path(part), "a refusal became text")
            return {"type": "text", "text": part.text}
        what = type(part).__name__ if out is None else out["type"]
        ledger.note("part-dropped", source_path(part), f"a part `{what}` was left out")
        return None
    return restore_original_keys(out, origin, NAME)


def _write_part_fields(part: Part, ledger: Ledger) -> Object | None:
    match part:
        case Text(text, citations, cache):
            cited = {"citations": [write_citation(citation) for citation in citations]} if citations else {}
            return {"type": "text", "text": text, **cited, **write_cache(cache)}
        case Refusal(text):
            return {"type": "refusal", "text": text}
        case Reasoning():
            return {"type": "reasoning", "text": part.text, **write_reasoning_head(part)}
        case Media():
            return _write_media(part)
        case ProviderCall(id, tool, arguments):
            given = {"arguments": write_arguments(arguments, part, ledger)} if arguments else {}
            return {"type": "hosted_call", "id": id, "tool": tool, **given}
        case ProviderResult(id, tool, sources, text, error):
            found: Object = {"sources": [write_citation(source) for source in sources]} if sources else {}
            found |= {key: value for key, value in (("text", text), ("error", error)) if value}
            return {"type": "hosted_result", "id": id, "tool": tool, **found}
    return None


def write_reasoning_head(part: Reasoning) -> Object:
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
    named = zip(("mime", *_MEDIA_SOURCES, "name", "detail"), values, strict=True)
    return {"type": media.kind, **{key: value for key, value in named if value}, **write_cache(media.cache)}


def write_arguments(text: str, part: Call | ProviderCall, ledger: Ledger) -> Json:
    """Arguments are an object, byte for byte as they came; anything else is wrapped in one."""
    arguments = raw_object_or_none(text)
    if arguments is None:
        ledger.note(
            "arguments-wrapped", source_path(part), f"arguments that are no object went into `{RAW_ARGUMENTS_KEY}`"
        )
        return {RAW_ARGUMENTS_KEY: text}
    return arguments


# --- results --------------------------------------------------------------------------------------------------------

RESULT_PART_TYPES = ("text", "image", "file", "audio", "video")
_REQUIRED_KEYS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"text": ("text",)} | dict.fromkeys(_MEDIA_KINDS, _MEDIA_SOURCES)
)


def read_result(reading: LenientReadContext, value: Json, path: Path) -> Result:
    node = expect_object(value, path)
    origin = reading.read_origin(node, path, RESULT_KEYS)
    content, value = _read_result_content(reading, node.get("content"), (path, "content"))
    id, error = read_call_id(require_text(node, "tool_call_id", path)), get_bool(node, "is_error", path)
    name = get_text(node, "name", path) or "" if "name" in node else ""
    cache = read_cache(node, path) if "cache" in node else None
    return Result(id, content, error, name, "function", "", cache, value, origin)


def _read_result_content(reading: LenientReadContext, value: Json, path: Path) -> tuple[tuple[Part, ...], Json]:
    if value is None or isinstance(value, str):
        return read_content(reading, value, path, RESULT_PART_TYPES), None
    if not (isinstance(value, list) and are_parts(value)):
        return (_value_as_text(value, path),), value
    parts: list[Part] = []
    held: Json = None
    for item, where in items_with_paths(value, path):
        if item["type"] != "json":
            parts.append(read_part(reading, item, where, RESULT_PART_TYPES))
        elif held is not None:
            raise Malformed(where, "a result holds one `json` part at most; put the values into one array")
        else:
            held = item["value"]
            parts.append(_value_as_text(held, where))
    return tuple(parts), held


def _value_as_text(value: Json, path: Path) -> Text:
    return Text(encode_text(value), origin=Origin(NAME, path, value, intact=False))


def are_parts(items: list[Json]) -> bool:
    """Is this list parts, or data? Parts are all of a known type, with what that type needs and no key beyond."""
    return bool(items) and all(isinstance(item, dict) and _is_part(item) for item in items)


def _is_part(item: Object) -> bool:
    word = item.get("type")
    if word == "json":
        return item.keys() == JSON_PART_KEYS and item["value"] is not None
    if not isinstance(word, str) or word not in _REQUIRED_KEYS:
        return False
    return PART_KEYS[word].issuperset(item) and any(isinstance(item.get(key), str) for key in _REQUIRED_KEYS[word])


def write_result(result: Result, ledger: Ledger) -> Object:
    if is_verbatim(result.origin, NAME):
        return result.origin.wire  # type: ignore[union-attr, no-any-return]
    if result.kind != "function":
        ledger.note("tool-wrapped", source_path(result), f"the result of a {result.kind} call became a function's")
    id = write_call_id(result.id)
    if id != CALL_ID_PREFIX + result.id:
        ledger.note("id-rewritten", source_path(result), "the id of a call was escaped in its result")
    out: Object = {"tool_call_id": id}
    if result.name:
        out["name"] = result.name
    if result.value is None and result.content:
        out["content"] = write_content(result.content, ledger, RESULT_PART_TYPES)
    else:
        out["content"] = None if result.value is None else _write_value(result.value, result.content, ledger)
    if result.error is not None:
        out["is_error"] = result.error
    if result.cache is not None:
        out["cache"] = result.cache or True
    return restore_original_keys(out, result.origin, NAME)


def _write_value(value: Json, parts: tuple[Part, ...], ledger: Ledger) -> Json:
    """Data as they are where nothing stands beside them, else as a part of their own."""
    at = _find_value_text(value, parts)
    rest = parts if at is None else parts[:at] + parts[at + 1 :]
    data = isinstance(value, str) or (isinstance(value, list) and are_parts(value))
    if not rest and not data:
        return value
    written = write_content(rest, ledger, RESULT_PART_TYPES) if rest else []
    others = [{"type": "text", "text": written}] if isinstance(written, str) else written
    others.insert(at or 0, {"type": "json", "value": value})
    return others


def _find_value_text(value: Json, parts: tuple[Part, ...]) -> int | None:
    """Which text is only the value's text form?"""
    texts = [at for at, part in enumerate(parts) if isinstance(part, Text)]
    spelled = encode_text(value) if len(texts) > 1 else ""
    same = [at for at in texts if isinstance(part := parts[at], Text) and part.text == spelled]
    return next(iter(same or texts), None)
