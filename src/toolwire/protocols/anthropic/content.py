"""The block that stands for earlier turns."""

from __future__ import annotations

from collections.abc import Callable

from toolwire.core.ir import (
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
    Seal,
    Summary,
    Text,
    ToolReference,
    ToolsAdded,
    source_path,
)
from toolwire.core.json_values import (
    Json,
    Object,
    Path,
    encode_text,
    expect_object,
    get_bool,
    get_list,
    get_object,
    get_text,
    raise_wrong_type,
    raw_object_or_none,
    require_text,
)
from toolwire.core.losses import Ledger
from toolwire.core.provenance import ReadContext, is_verbatim, items_with_paths, restore_original_keys
from toolwire.protocols.anthropic.cache import read_cache, write_cache
from toolwire.protocols.anthropic.media import read_document, read_image, write_media
from toolwire.protocols.anthropic.names import (
    CITATION_KEYS,
    DIRECT_TOOL_USE_KEYS,
    NAME,
    OTHER_CITATION_KEYS,
    RAW_ARGUMENTS_KEY,
    REDACTED_THINKING_KEYS,
    SEARCH_RESULT_KEYS,
    TEXT_KEYS,
    THINKING_BLOCK_KEYS,
    TOOL_REFERENCE_KEYS,
    TOOL_RESULT_KEYS,
    TOOL_USE_KEYS,
    is_foreign,
    is_own,
    key_set,
    own_seal_value,
)
from toolwire.protocols.anthropic.provider_tools import (
    TOOL_BY_RESULT_TYPE,
    is_called_directly,
    read_provider_call,
    read_provider_result,
    write_provider_call,
    write_provider_result,
)

_SUMMARY_KEYS = key_set("type", "content", "encrypted_content")


class ResponseReadContext(ReadContext):
    """Of an answer. Only who asked for a summary in this protocol gets one, so there it is carried whole."""


def read_summary(block: Object, path: Path, reading: ReadContext) -> Part:
    if isinstance(reading, ResponseReadContext):
        return Opaque("compaction", reading.whole_origin(block, path))
    encrypted = get_text(block, "encrypted_content", path)
    seal = Seal(NAME, encrypted) if encrypted else None
    return Summary(get_text(block, "content", path) or "", seal, origin=reading.read_origin(block, path, _SUMMARY_KEYS))


def write_summary(part: Summary, ledger: Ledger, in_response: bool) -> Object | None:
    if part.origin is not None and part.origin.protocol != NAME:
        ledger.note("part-dropped", source_path(part), "a summary that only its maker can read was left out")
        return None
    out: Object = {"type": "compaction", "content": part.text or None}
    if part.seal is not None:
        out["encrypted_content"] = part.seal.value
    return restore_original_keys(out, part.origin, NAME)


# --- reading ----------------------------------------------------------------------------------------------------------


def read_content(value: Json, path: Path, reading: ReadContext) -> tuple[Part, ...]:
    """The parts of a content field; a string stands for one block of text."""
    if isinstance(value, str):
        return (Text(value, (), None, None, Origin(NAME, path, value)),) if value else ()
    if not isinstance(value, list):
        raise_wrong_type(path, "a string or an array of content blocks", value)
    readers = PART_READERS
    parts: list[Part] = []
    for number, block in enumerate(value):
        try:
            reader = readers[block["type"]]
        except (KeyError, TypeError):
            reader = read_part
        parts.append(reader(block, (path, number), reading))
    return tuple(parts)


def read_part(block: Json, path: Path, reading: ReadContext) -> Part:
    """A block of any kind. The readers of text, calls and results have a short way for the ordinary keys alone: where
    these are there, their number says that no other is."""
    if not isinstance(block, dict):
        raise_wrong_type(path, "a content block", block)
    kind = block.get("type")
    if not isinstance(kind, str):
        kind = require_text(block, "type", path)
    reader = PART_READERS.get(kind)
    return reader(block, path, reading) if reader else Opaque(kind, reading.whole_origin(block, path))


def _read_text(block: Object, path: Path, reading: ReadContext) -> Part:
    plain = block.get("text")
    if len(block) == 2 and type(plain) is str:
        return Text(plain, (), None, None, Origin(NAME, path, block))
    text = require_text(block, "text", path)
    cited = block.get("citations")
    citations = read_citations(cited, (path, "citations"), reading) if cited else ()
    cache = read_cache(block, path, reading) if "cache_control" in block else None
    return Text(text, citations, cache, None, reading.read_origin(block, path, TEXT_KEYS))


def read_citations(value: Json, path: Path, reading: ReadContext) -> tuple[Citation, ...]:
    if not isinstance(value, list):
        raise_wrong_type(path, "an array of citations", value)
    return tuple(
        [read_citation(expect_object(item, here), here, reading) for item, here in items_with_paths(value, path)]
    )


def read_citation(item: Object, path: Path, reading: ReadContext) -> Citation:
    kind = item.get("type")
    known = CITATION_KEYS.get(kind, OTHER_CITATION_KEYS) if isinstance(kind, str) else OTHER_CITATION_KEYS
    url = get_text(item, "url" if "url" in known else "source", path) if known is not OTHER_CITATION_KEYS else ""
    title = get_text(item, "title" if "title" in known else "document_title", path)
    quote = get_text(item, "cited_text", path)
    return Citation(url or "", title or "", quote or "", origin=reading.read_origin(item, path, known))


def _read_reasoning(block: Object, path: Path, reading: ReadContext) -> Part:
    signature = get_text(block, "signature", path)
    return Reasoning(
        get_text(block, "thinking", path) or "",
        seal=Seal(NAME, signature) if signature else None,
        origin=reading.read_origin(block, path, THINKING_BLOCK_KEYS),
    )


def _read_redacted_reasoning(block: Object, path: Path, reading: ReadContext) -> Part:
    seal = Seal(NAME, require_text(block, "data", path))
    return Reasoning(hidden=True, seal=seal, origin=reading.read_origin(block, path, REDACTED_THINKING_KEYS))


def _read_call(block: Object, path: Path, reading: ReadContext) -> Part:
    id, name, given = block.get("id"), block.get("name"), block.get("input")
    if len(block) == 4 and id.__class__ is name.__class__ is str and given.__class__ is dict:
        return Call(id, name, encode_text(given), origin=Origin(NAME, path, block))
    given = get_object(block, "input", path)
    cache = read_cache(block, path, reading) if "cache_control" in block else None
    return Call(
        get_text(block, "id", path) or "",
        require_text(block, "name", path),
        "" if given is None else encode_text(given),
        cache=cache,
        origin=reading.read_origin(block, path, DIRECT_TOOL_USE_KEYS if is_called_directly(block) else TOOL_USE_KEYS),
    )


def _read_result(block: Object, path: Path, reading: ReadContext) -> Part:
    id, content, error = block.get("tool_use_id"), block.get("content"), block.get("is_error")
    if type(content) is str and type(id) is str and len(block) == (4 if type(error) is bool else 3) and content:
        text = Text(content, (), None, None, Origin(NAME, (path, "content"), content))
        return Result(id, (text,), error, origin=Origin(NAME, path, block))
    cache = read_cache(block, path, reading) if "cache_control" in block else None
    return Result(
        get_text(block, "tool_use_id", path) or "",
        () if content is None else read_content(content, (path, "content"), reading),
        get_bool(block, "is_error", path),
        cache=cache,
        origin=reading.read_origin(block, path, TOOL_RESULT_KEYS),
    )


def _read_tool_reference(block: Object, path: Path, reading: ReadContext) -> Part:
    return ToolReference(require_text(block, "tool_name", path), reading.read_origin(block, path, TOOL_REFERENCE_KEYS))


def _read_search_result(block: Object, path: Path, reading: ReadContext) -> Part:
    """A found passage is text to everybody else, with its title and source above it."""
    here = (path, "content")
    passages = get_list(block, "content", path) or []
    texts = [require_text(expect_object(item, at), "text", at) for item, at in items_with_paths(passages, here)]
    head = [get_text(block, "title", path), get_text(block, "source", path)]
    text = "\n".join([line for line in head if line] + texts)
    cache = read_cache(block, path, reading)
    return Text(text, cache=cache, origin=reading.read_origin(block, path, SEARCH_RESULT_KEYS))


PART_READERS: dict[str, Callable[[Object, Path, ReadContext], Part]] = {
    "text": _read_text,
    "thinking": _read_reasoning,
    "redacted_thinking": _read_redacted_reasoning,
    "tool_use": _read_call,
    "tool_result": _read_result,
    "tool_reference": _read_tool_reference,
    "search_result": _read_search_result,
    "image": read_image,
    "document": read_document,
    "server_tool_use": read_provider_call,
    "compaction": read_summary,
    **dict.fromkeys(TOOL_BY_RESULT_TYPE, read_provider_result),
}


# --- writing ----------------------------------------------------------------------------------------------------------


def write_parts(parts: tuple[Part, ...], ledger: Ledger, in_response: bool) -> list[Object]:
    writers = PART_WRITERS
    blocks: list[Object] = []
    for part in parts:
        origin = part.origin
        write = writers[type(part)] if origin is None or origin.protocol != NAME else write_part
        block = write(part, ledger, in_response)
        if block is not None:
            blocks.append(block)
    return blocks


def write_part(part: Part, ledger: Ledger, in_response: bool) -> Object | None:
    """One block, or None when it cannot stand here. In an answer more can be told than in a history: what goes to the
    provider must bear its own signatures."""
    origin = part.origin
    if origin is not None and is_verbatim(origin, NAME) and (in_response or not _is_unsigned_reasoning(part)):
        wire: Json = origin.wire
        return wire if isinstance(wire, dict) else {"type": "text", "text": wire}
    return PART_WRITERS[type(part)](part, ledger, in_response)


def write_content(parts: tuple[Part, ...], origin: Origin | None, ledger: Ledger) -> str | list[Object]:
    """A content field: one plain text as a string, unless its node had blocks before."""
    if origin is None or origin.protocol != NAME:
        if len(parts) == 1 and type(parts[0]) is Text and (text := _plain_text(parts[0])):
            return text
        blocks = write_parts(parts, ledger, False)
        return collapse_single_text(blocks) if len(blocks) == 1 else blocks
    blocks = write_parts(parts, ledger, False)
    had_blocks = isinstance(origin.wire, dict) and isinstance(origin.wire.get("content"), list)
    return blocks if had_blocks else collapse_single_text(blocks)


def _plain_text(part: Text) -> str:
    """The short way for what most results and turns of the user hold: one text from elsewhere with nothing to it."""
    origin, text = part.origin, part.text
    if part.citations or part.cache is not None or part.seal is not None or text.isspace():
        return ""
    return text if origin is None or origin.protocol != NAME else ""


def collapse_single_text(blocks: list[Object]) -> str | list[Object]:
    """One plain text is said as a string."""
    if len(blocks) == 1 and blocks[0]["type"] == "text" and blocks[0].keys() == {"type", "text"}:
        text: str = blocks[0]["text"]
        return text
    return blocks


def _is_unsigned_reasoning(part: Part) -> bool:
    return isinstance(part, Reasoning) and part.seal is None


def _write_text(part: Text, ledger: Ledger, in_response: bool) -> Object | None:
    if part.seal is not None:
        ledger.note("seal-dropped", source_path(part), "the seal of a text was taken off")
    text = part.text
    if not text or (not in_response and text.isspace()):
        if text or part.citations:
            ledger.note("empty-omitted", source_path(part), "text of white space alone was left out")
        return None
    out: Object = {"type": "text", "text": text}
    if part.citations:
        cited = [
            wire for item in part.citations if (wire := write_citation(item, part, ledger, in_response)) is not None
        ]
        if cited:
            out["citations"] = cited
    if part.cache is not None:
        write_cache(out, part.cache, ledger, source_path(part))
    origin = part.origin
    if origin is None or origin.protocol != NAME or not _is_text_block(origin.wire):
        return out
    return restore_original_keys(out, origin, NAME)


def _is_text_block(wire: Json) -> bool:
    return isinstance(wire, dict) and wire.get("type") == "text"


def write_citation(item: Citation, part: Part, ledger: Ledger, in_response: bool) -> Object | None:
    """Only places on the web can be told without the provider's own numbering of documents."""
    origin = item.origin
    if origin is not None and is_verbatim(origin, NAME):
        wire: Object = origin.wire
        return wire
    if not item.url or (not in_response and is_foreign(origin or part.origin)):
        ledger.note(
            "citation-dropped",
            source_path(item) or source_path(part),
            f"a citation of `{item.url or item.title}` was left out",
        )
        return None
    quote = item.quote
    if item.start is not None and item.end is not None:
        quote = quote or (part.text[item.start : item.end] if isinstance(part, Text) else "")
        ledger.note(
            "citation-mapped", source_path(item) or source_path(part), "a citation names its text instead of its place"
        )
    out = {"type": "web_search_result_location", "cited_text": quote, "url": item.url, "title": item.title or None}
    return restore_original_keys(out | {"encrypted_index": ""}, origin, NAME)


def _write_reasoning(part: Reasoning, ledger: Ledger, in_response: bool) -> Object | None:
    value = own_seal_value(part.seal)
    if part.seal is not None and value is None:
        ledger.note("seal-dropped", source_path(part), "the seal of another maker was taken off")
    if value is not None:
        if part.hidden:
            return {"type": "redacted_thinking", "data": value}
        return {"type": "thinking", "thinking": part.text, "signature": value}
    if in_response:
        return {"type": "thinking", "thinking": part.text, "signature": ""} if part.text else None
    if part.text:
        ledger.note("reasoning-dropped", source_path(part), "thinking without a signature was left out")
    return None


def _write_refusal(part: Refusal, ledger: Ledger, in_response: bool) -> Object | None:
    ledger.note("refusal-as-text", source_path(part), "a refusal became text")
    return {"type": "text", "text": part.text} if part.text.strip() else None


def _write_call(part: Call, ledger: Ledger, in_response: bool) -> Object | None:
    if part.seal is not None:
        ledger.note("seal-dropped", source_path(part), "the seal of a call was taken off")
    if part.item and is_foreign(part.origin):
        ledger.note("no-counterpart", source_path(part), f"the second id `{part.item}` of a call was left out")
    given: Json = raw_object_or_none(part.arguments) if part.kind != "custom" else None
    if given is None:
        ledger.note(
            "arguments-wrapped",
            source_path(part),
            f"the arguments of `{part.name}` stand as text under `{RAW_ARGUMENTS_KEY}`",
        )
        given = {RAW_ARGUMENTS_KEY: part.arguments}
    out: Object = {"type": "tool_use", "id": part.id, "name": part.name, "input": given}
    if part.cache is not None:
        write_cache(out, part.cache, ledger, source_path(part))
    origin = part.origin
    return out if origin is None or origin.protocol != NAME else restore_original_keys(out, origin, NAME)


def _write_result(part: Result, ledger: Ledger, in_response: bool) -> Object | None:
    content = write_content(part.content, part.origin, ledger)
    if not content:
        content = ""
        if part.error:
            ledger.note("default-added", source_path(part), "a failed result without content says `error`")
            content = "error"
    out: Object = {"type": "tool_result", "tool_use_id": part.id, "content": content}
    if part.error is not None:
        out["is_error"] = part.error
    if part.cache is not None:
        write_cache(out, part.cache, ledger, source_path(part))
    origin = part.origin
    return out if origin is None or origin.protocol != NAME else restore_original_keys(out, origin, NAME)


def _write_media(part: Media, ledger: Ledger, in_response: bool) -> Object | None:
    if in_response:
        ledger.note("media-dropped", source_path(part), f"{part.mime or part.kind} in an answer was left out")
        return None
    out = write_media(part, ledger)
    return None if out is None else restore_original_keys(out, part.origin, NAME)


def _write_tool_reference(part: ToolReference, ledger: Ledger, in_response: bool) -> Object | None:
    return {"type": "tool_reference", "tool_name": part.name}


def _write_tools_added(part: ToolsAdded, ledger: Ledger, in_response: bool) -> Object | None:
    ledger.note("part-dropped", source_path(part), "tools that were added on the way were left out")
    return None


def _write_opaque(part: Opaque, ledger: Ledger, in_response: bool) -> Object | None:
    if is_own(part.origin) and isinstance(part.origin.wire, dict):
        return part.origin.wire
    ledger.note_opaque(part)
    return None


PART_WRITERS: dict[type, Callable[..., Object | None]] = {
    Text: _write_text,
    Reasoning: _write_reasoning,
    Refusal: _write_refusal,
    Call: _write_call,
    Result: _write_result,
    Media: _write_media,
    ProviderCall: write_provider_call,
    ProviderResult: write_provider_result,
    ToolReference: _write_tool_reference,
    ToolsAdded: _write_tools_added,
    Summary: write_summary,
    Opaque: _write_opaque,
}
