"""Content parts, citations, cache breakpoints and results."""

from __future__ import annotations

from collections.abc import Callable, Mapping

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
    get_list,
    get_text,
    raise_wrong_type,
    require_text,
)
from toolwire.core.losses import Ledger
from toolwire.core.provenance import items_with_paths, restore_original_keys
from toolwire.protocols.unified import names
from toolwire.protocols.unified.names import NAME, LenientReadContext, intact_wire, read_fields, write_fields

PartTypes = tuple[str, ...]

# --- fields of several parts ----------------------------------------------------------------------------------------


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


def read_citation(reading: LenientReadContext, value: Json, path: Path) -> Citation:
    node = expect_object(value, path)
    fields = read_fields(node, path, names.CITATION_FIELDS)
    return Citation(**fields, origin=reading.read_origin(node, path, names.CITATION_KEYS))


def write_citation(citation: Citation) -> Object:
    if (wire := intact_wire(citation.origin)) is not None:
        return wire
    return restore_original_keys(write_fields(citation, names.CITATION_FIELDS), citation.origin, NAME)


def _read_citations(reading: LenientReadContext, node: Object, key: str, path: Path) -> tuple[Citation, ...]:
    values = get_list(node, key, path) or []
    return tuple(read_citation(reading, value, where) for value, where in items_with_paths(values, (path, key)))


# --- reading --------------------------------------------------------------------------------------------------------


def read_content(reading: LenientReadContext, value: Json, path: Path, allowed: PartTypes) -> tuple[Part, ...]:
    """The parts of a content field: a string, a list of parts, or null."""
    if isinstance(value, str):
        return (Text(value, origin=reading.whole_origin(value, path)),)
    if value is None:
        return ()
    if not isinstance(value, list):
        raise_wrong_type(path, "a string or an array of parts", value)
    return tuple(read_part(reading, item, where, allowed) for item, where in items_with_paths(value, path))


def read_part(reading: LenientReadContext, value: Json, path: Path, allowed: PartTypes) -> Part:
    node = expect_object(value, path)
    kind = require_text(node, "type", path)
    read = _PART_READERS.get(kind)
    if read is None:
        return reading.read_unknown(value, path, kind, allowed)
    if kind not in allowed:
        raise Malformed((path, "type"), f"`{kind}` is not allowed here, only {', '.join(allowed)}")
    return read(reading, node, path, reading.read_origin(node, path, names.PART_KEYS[kind]))


def _read_text(reading: LenientReadContext, node: Object, path: Path, origin: Origin) -> Part:
    text = require_text(node, "text", path)
    return Text(text, _read_citations(reading, node, "citations", path), read_cache(node, path), origin=origin)


def read_reasoning(reading: LenientReadContext, node: Object, path: Path, origin: Origin) -> Reasoning:
    text = get_text(node, "text", path) or ""
    return Reasoning(text, **read_fields(node, path, names.REASONING_FIELDS), origin=origin)


_MEDIA_SOURCES = ("data", "url", "file_id")


def _read_media(reading: LenientReadContext, node: Object, path: Path, origin: Origin) -> Part:
    if not any(node.get(key) for key in _MEDIA_SOURCES):
        raise Malformed(path, "give the content as `data` (base64), `url` or `file_id`")
    fields = read_fields(node, path, names.MEDIA_FIELDS)
    return Media(node["type"], **fields, cache=read_cache(node, path), origin=origin)


def _read_provider_identity(node: Object, path: Path) -> tuple[str, str]:
    tool = require_text(node, "tool", path)
    names.read_word(node, "tool", path, PROVIDER_TOOLS)
    return get_text(node, "id", path) or "", tool


def _read_provider_call(reading: LenientReadContext, node: Object, path: Path, origin: Origin) -> Part:
    arguments = node.get("arguments")
    text = "" if arguments is None else encode_text(expect_object(arguments, (path, "arguments")))
    return ProviderCall(*_read_provider_identity(node, path), text, origin=origin)


def _read_provider_result(reading: LenientReadContext, node: Object, path: Path, origin: Origin) -> Part:
    sources = _read_citations(reading, node, "sources", path)
    text, error = get_text(node, "text", path) or "", get_text(node, "error", path) or ""
    return ProviderResult(*_read_provider_identity(node, path), sources, text, error, origin=origin)


_PART_READERS: Mapping[str, Callable[[LenientReadContext, Object, Path, Origin], Part]] = {
    "text": _read_text,
    "image": _read_media,
    "file": _read_media,
    "audio": _read_media,
    "video": _read_media,
    "reasoning": read_reasoning,
    "refusal": lambda _reading, node, path, origin: Refusal(require_text(node, "text", path), origin=origin),
    "hosted_call": _read_provider_call,
    "hosted_result": _read_provider_result,
}

# --- writing --------------------------------------------------------------------------------------------------------


def is_plain_text(part: Part) -> bool:
    """Can the part be written as a string? One that the client wrote as an object stays an object."""
    if not isinstance(part, Text) or part.citations or part.cache is not None:
        return False
    return intact_wire(part.origin) is None


def write_content(parts: tuple[Part, ...], ledger: Ledger) -> str | list[Json]:
    """The content of a message or a result, which has no seals unless it is the assistant's."""
    for part in parts:
        if getattr(part, "seal", None) is not None:
            ledger.note("seal-dropped", source_path(part), "a seal outside of assistant messages was left out")
    if len(parts) == 1 and isinstance(only := parts[0], Text) and is_plain_text(only):
        return only.text
    return [out for part in parts if (out := write_part(part, ledger, names.INPUT_PART_TYPES)) is not None]


def write_part(part: Part, ledger: Ledger, allowed: PartTypes) -> Object | None:
    """A part without its seal; None if it is not allowed here, which is noted."""
    if (wire := intact_wire(part.origin)) is not None:
        return wire
    if isinstance(part, Opaque):
        ledger.note_opaque(part)
        return None
    out = _write_part_fields(part, ledger)
    if out is not None and out["type"] in allowed:
        return restore_original_keys(out, part.origin, NAME)
    if isinstance(part, Refusal):
        ledger.note("refusal-as-text", source_path(part), "a refusal became text")
        return {"type": "text", "text": part.text}
    kind = type(part).__name__ if out is None else out["type"]
    ledger.note("part-dropped", source_path(part), f"a part of type `{kind}` was left out")
    return None


def _write_part_fields(part: Part, ledger: Ledger) -> Object | None:
    match part:
        case Text(text, citations, cache):
            ledger.note_logprobs(part.logprobs)
            out: Object = {"type": "text", "text": text}
            if citations:
                out["citations"] = [write_citation(citation) for citation in citations]
            return out | write_cache(cache)
        case Refusal(text):
            ledger.note_logprobs(part.logprobs)
            return {"type": "refusal", "text": text}
        case Reasoning():
            return {"type": "reasoning", "text": part.text, **write_fields(part, names.REASONING_FIELDS)}
        case Media():
            return {"type": part.kind, **write_fields(part, names.MEDIA_FIELDS), **write_cache(part.cache)}
        case ProviderCall(id, tool, arguments):
            out = {"type": "hosted_call", "id": id, "tool": tool}
            return out | ({"arguments": write_arguments(arguments, part, ledger)} if arguments else {})
        case ProviderResult(id, tool, sources, text, error):
            out = {"type": "hosted_result", "id": id, "tool": tool}
            fields = {"sources": [write_citation(source) for source in sources], "text": text, "error": error}
            return out | {key: value for key, value in fields.items() if value}
    return None


def write_arguments(text: str, part: Call | ProviderCall, ledger: Ledger) -> Json:
    """The arguments, byte for byte as they came; text that is not a JSON object is wrapped in one."""
    arguments = ledger.embed_object(text, source_path(part))
    if arguments is None:
        what = f"arguments that are not a JSON object were put under `{names.RAW_ARGUMENTS_KEY}`"
        ledger.note("arguments-wrapped", source_path(part), what)
        return {names.RAW_ARGUMENTS_KEY: text}
    return arguments


# --- results --------------------------------------------------------------------------------------------------------


def read_result(reading: LenientReadContext, value: Json, path: Path) -> Result:
    node = expect_object(value, path)
    origin = reading.read_origin(node, path, names.RESULT_KEYS)
    content, value = _read_result_content(reading, node.get("content"), (path, "content"))
    id, error = names.read_call_id(require_text(node, "tool_call_id", path)), get_bool(node, "is_error", path)
    name = get_text(node, "name", path) or ""
    return Result(id, content, error, name, cache=read_cache(node, path), value=value, origin=origin)


def _read_result_content(reading: LenientReadContext, value: Json, path: Path) -> tuple[tuple[Part, ...], Json]:
    if value is None or isinstance(value, str):
        return read_content(reading, value, path, names.INPUT_PART_TYPES), None
    if not (isinstance(value, list) and _are_parts(value)):
        return (_value_as_text(value, path),), value
    parts: list[Part] = []
    json_value: Json = None
    for item, where in items_with_paths(value, path):
        if item["type"] != "json":
            parts.append(read_part(reading, item, where, names.INPUT_PART_TYPES))
        elif json_value is not None:
            raise Malformed(where, "a result may have one `json` part; put the values into one array")
        else:
            json_value = item["value"]
            parts.append(_value_as_text(json_value, where))
    return tuple(parts), json_value


def _value_as_text(value: Json, path: Path) -> Text:
    return Text(encode_text(value), origin=Origin(NAME, path, value, intact=False))


def _are_parts(items: list[Json]) -> bool:
    """Is this a list of parts, or data? Parts have a known type, its required keys, and no others."""
    return bool(items) and all(isinstance(item, dict) and _is_part(item) for item in items)


def _is_part(item: Object) -> bool:
    kind = item.get("type")
    if kind == "json":
        return item.keys() == names.JSON_PART_KEYS and item["value"] is not None
    if kind not in names.INPUT_PART_TYPES or not names.PART_KEYS[kind].issuperset(item):
        return False
    return any(isinstance(item.get(key), str) for key in (("text",) if kind == "text" else _MEDIA_SOURCES))


def write_result(result: Result, ledger: Ledger) -> Object:
    if (wire := intact_wire(result.origin)) is not None:
        return wire
    if result.kind != "function":
        ledger.note("tool-wrapped", source_path(result), f"the result of a {result.kind} call became one of a function")
    id = names.write_call_id(result.id)
    if id != names.CALL_ID_PREFIX + result.id:
        ledger.note("id-rewritten", source_path(result), "the id of a call was escaped in its result")
    out: Object = {"tool_call_id": id}
    if result.name:
        out["name"] = result.name
    if result.value is None and result.content:
        out["content"] = write_content(result.content, ledger)
    else:
        out["content"] = None if result.value is None else _write_value(result.value, result.content, ledger)
    if result.error is not None:
        out["is_error"] = result.error
    return restore_original_keys(out | write_cache(result.cache), result.origin, NAME)


def _write_value(value: Json, parts: tuple[Part, ...], ledger: Ledger) -> Json:
    """A JSON value as the whole content, or as a `json` part if there are other parts or it could be misread."""
    texts = {at: part.text for at, part in enumerate(parts) if isinstance(part, Text)}
    encoded = encode_text(value) if len(texts) > 1 else ""
    # The text that is the value as JSON, or else the first text.
    at = next((at for at, text in texts.items() if text == encoded), next(iter(texts), None))
    rest = parts if at is None else parts[:at] + parts[at + 1 :]
    if not rest and not (isinstance(value, str) or (isinstance(value, list) and _are_parts(value))):
        return value
    written = write_content(rest, ledger) if rest else []
    content = [{"type": "text", "text": written}] if isinstance(written, str) else written
    content.insert(at or 0, {"type": "json", "value": value})
    return content
