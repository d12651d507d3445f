"""Content blocks: text, thinking, tool calls, tool results, images, documents and summaries."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

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
    document_text,
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
    require_text,
)
from toolwire.core.losses import Ledger
from toolwire.core.provenance import ReadContext, is_verbatim, items_with_paths, restore_original_keys
from toolwire.protocols.anthropic import names
from toolwire.protocols.anthropic.models import read_cache, write_cache
from toolwire.protocols.anthropic.names import NAME, intact_wire, is_foreign, is_own, is_own_seal
from toolwire.protocols.anthropic.tools import (
    TOOL_BY_RESULT_TYPE,
    known_call_keys,
    read_provider_call,
    read_provider_result,
    write_provider_call,
    write_provider_result,
)

IMAGE_TYPES = ("image/jpeg", "image/png", "image/gif", "image/webp")
PDF_TYPE = "application/pdf"
PLAIN_TEXT_TYPE = "text/plain"

_BASE64_PREFIXES = {"/9j/": "image/jpeg", "iVBOR": "image/png", "R0lGOD": "image/gif", "UklGR": "image/webp"}
"""How the base64 of each kind of image begins."""


class ResponseReadContext(ReadContext):
    """The context of an answer. A compaction block in one is carried whole: only clients of Anthropic ask for it."""


# --- reading ----------------------------------------------------------------------------------------------------------


def read_content(value: Json, path: Path, reading: ReadContext) -> tuple[Part, ...]:
    """The parts of a content field, which is a string or a list of blocks."""
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
    """A block of any type. The readers of text, calls and results compare the number of keys first: if the usual ones
    are there and no others, there is nothing else to look at."""
    if not isinstance(block, dict):
        raise_wrong_type(path, "a content block", block)
    kind = block.get("type")
    if not isinstance(kind, str):
        kind = require_text(block, "type", path)
    reader = PART_READERS.get(kind)
    return reader(block, path, reading) if reader else Opaque(kind, reading.whole_origin(block, path))


def _read_text(block: Object, path: Path, reading: ReadContext) -> Part:
    text = block.get("text")
    if len(block) == 2 and type(text) is str:
        return Text(text, (), None, None, Origin(NAME, path, block))
    text = require_text(block, "text", path)
    items = items_with_paths(get_list(block, "citations", path) or [], (path, "citations"))
    citations = tuple([read_citation(expect_object(item, here), here, reading) for item, here in items])
    cache = read_cache(block, path, reading)
    return Text(text, citations, cache, None, reading.read_origin(block, path, names.TEXT_KEYS))


def read_citation(item: Object, path: Path, reading: ReadContext) -> Citation:
    kind = item.get("type")
    known = names.CITATION_KEYS.get(kind if isinstance(kind, str) else "", names.OTHER_CITATION_KEYS)
    url, title, quote = (
        next((get_text(item, key, path) or "" for key in keys if key in known), "")
        for keys in (("url", "source"), ("title", "document_title"), ("cited_text",))
    )
    return Citation(url, title, quote, origin=reading.read_origin(item, path, known))


def _read_reasoning(block: Object, path: Path, reading: ReadContext) -> Part:
    signature = get_text(block, "signature", path)
    return Reasoning(
        get_text(block, "thinking", path) or "",
        seal=Seal(NAME, signature) if signature else None,
        origin=reading.read_origin(block, path, names.THINKING_BLOCK_KEYS),
    )


def _read_redacted_reasoning(block: Object, path: Path, reading: ReadContext) -> Part:
    seal = Seal(NAME, require_text(block, "data", path))
    return Reasoning(hidden=True, seal=seal, origin=reading.read_origin(block, path, names.REDACTED_THINKING_KEYS))


def _read_call(block: Object, path: Path, reading: ReadContext) -> Part:
    id, name, arguments = block.get("id"), block.get("name"), block.get("input")
    if len(block) == 4 and id.__class__ is name.__class__ is str and arguments.__class__ is dict:
        return Call(id, name, encode_text(arguments), origin=Origin(NAME, path, block))
    origin = reading.read_origin(block, path, known_call_keys(block, names.TOOL_USE_KEYS))
    if isinstance(arguments, (list, str)):
        # Pi and others put a model's malformed arguments into their history, and Anthropic refuses all but an object.
        text = arguments if isinstance(arguments, str) else encode_text(arguments)
        origin = replace(origin, intact=False)
    else:
        text = "" if (given := get_object(block, "input", path)) is None else encode_text(given)
    return Call(
        get_text(block, "id", path) or "",
        require_text(block, "name", path),
        text,
        cache=read_cache(block, path, reading),
        origin=origin,
    )


def _read_result(block: Object, path: Path, reading: ReadContext) -> Part:
    id, content, error = block.get("tool_use_id"), block.get("content"), block.get("is_error")
    if type(content) is str and type(id) is str and len(block) == (4 if type(error) is bool else 3) and content:
        text = Text(content, (), None, None, Origin(NAME, (path, "content"), content))
        return Result(id, (text,), error, origin=Origin(NAME, path, block))
    return Result(
        get_text(block, "tool_use_id", path) or "",
        () if content is None else read_content(content, (path, "content"), reading),
        get_bool(block, "is_error", path),
        cache=read_cache(block, path, reading),
        origin=reading.read_origin(block, path, names.TOOL_RESULT_KEYS),
    )


def _read_tool_reference(block: Object, path: Path, reading: ReadContext) -> Part:
    name = require_text(block, "tool_name", path)
    return ToolReference(name, reading.read_origin(block, path, names.TOOL_REFERENCE_KEYS))


def _read_search_result(block: Object, path: Path, reading: ReadContext) -> Part:
    """A search result that the client gives as content: text, with the title and the source above it."""
    passages = items_with_paths(get_list(block, "content", path) or [], (path, "content"))
    texts = [require_text(expect_object(item, here), "text", here) for item, here in passages]
    text = "\n".join([*filter(None, (get_text(block, key, path) for key in ("title", "source"))), *texts])
    origin = reading.read_origin(block, path, names.SEARCH_RESULT_KEYS)
    return Text(text, cache=read_cache(block, path, reading), origin=origin)


def _read_summary(block: Object, path: Path, reading: ReadContext) -> Part:
    if isinstance(reading, ResponseReadContext):
        return Opaque("compaction", reading.whole_origin(block, path))
    encrypted = get_text(block, "encrypted_content", path)
    return Summary(
        get_text(block, "content", path) or "",
        Seal(NAME, encrypted) if encrypted else None,
        origin=reading.read_origin(block, path, names.COMPACTION_KEYS),
    )


def _read_media(block: Object, path: Path, reading: ReadContext) -> Part:
    """An image or a document; one whose source is of an unknown type is carried whole."""
    is_image = block["type"] == "image"
    fields = _read_source(get_object(block, "source", path) or {}, (path, "source"))
    if fields is None:
        return Opaque(block["type"], reading.whole_origin(block, path))
    return Media(
        "image" if is_image else "file",
        name="" if is_image else get_text(block, "title", path) or "",
        cache=read_cache(block, path, reading),
        origin=reading.read_origin(block, path, names.IMAGE_KEYS if is_image else names.DOCUMENT_KEYS),
        **fields,
    )


def _read_source(source: Object, path: Path) -> dict[str, Any] | None:
    match source.get("type"):
        case "base64":
            return {"mime": get_text(source, "media_type", path) or "", "data": require_text(source, "data", path)}
        case "text":
            mime, text = get_text(source, "media_type", path) or PLAIN_TEXT_TYPE, require_text(source, "data", path)
        case "url":
            return {"url": require_text(source, "url", path)}
        case "file":
            return {"file_id": require_text(source, "file_id", path)}
        case "content":
            content = source.get("content")
            blocks = [{"text": content}] if isinstance(content, str) else content
            if not isinstance(blocks, list) or not all(isinstance(block, dict) for block in blocks):
                return None
            texts = [block.get("text") for block in blocks]
            if None in texts:
                return None
            mime, text = PLAIN_TEXT_TYPE, "\n".join(map(str, texts))
        case _:
            return None
    return {"mime": mime, "data": base64.b64encode(text.encode("utf-8", "surrogatepass")).decode()}


PART_READERS: dict[str, Callable[[Object, Path, ReadContext], Part]] = {
    "text": _read_text,
    "thinking": _read_reasoning,
    "redacted_thinking": _read_redacted_reasoning,
    "tool_use": _read_call,
    "tool_result": _read_result,
    "tool_reference": _read_tool_reference,
    "search_result": _read_search_result,
    "image": _read_media,
    "document": _read_media,
    "server_tool_use": read_provider_call,
    "compaction": _read_summary,
    **dict.fromkeys(TOOL_BY_RESULT_TYPE, read_provider_result),
}


# --- writing ----------------------------------------------------------------------------------------------------------


def write_parts(parts: tuple[Part, ...], ledger: Ledger, in_response: bool) -> list[Object]:
    writers = PART_WRITERS
    blocks: list[Object] = []
    for part in parts:
        origin = part.origin
        is_foreign = origin is None or origin.protocol != NAME
        write = writers[type(part)] if is_foreign else write_part
        block = write(part, ledger, in_response)
        if block is not None:
            if in_response and is_foreign and (default := names.ANSWER_BLOCK_DEFAULTS.get(block["type"])):
                block.setdefault(*default)
            blocks.append(block)
    return blocks


def write_part(part: Part, ledger: Ledger, in_response: bool) -> Object | None:
    """One block, or None if there is none for the part. Anthropic refuses thinking without its signature in a history;
    in an answer it is fine."""
    origin = part.origin
    is_unsigned = isinstance(part, Reasoning) and part.seal is None
    if origin is not None and is_verbatim(origin, NAME) and (in_response or not is_unsigned):
        return origin.wire if isinstance(origin.wire, dict) else {"type": "text", "text": origin.wire}
    block = PART_WRITERS[type(part)](part, ledger, in_response)
    if in_response and block is not None and (origin is None or origin.protocol != NAME):
        default = names.ANSWER_BLOCK_DEFAULTS.get(block["type"])
        if default is not None:
            block.setdefault(*default)
    return block


def write_content(parts: tuple[Part, ...], origin: Origin | None, ledger: Ledger) -> str | list[Object]:
    """A content field: one plain text as a string, unless its node had blocks before."""
    is_foreign = origin is None or origin.protocol != NAME
    if is_foreign and len(parts) == 1 and type(part := parts[0]) is Text and not is_own(part.origin):
        # Most results and user turns: one text without anything else.
        is_plain = part.cache is None and part.seal is None and not part.citations
        if is_plain and part.text and not part.text.isspace():
            return part.text
    blocks = write_parts(parts, ledger, False)
    if is_own(origin) and isinstance(origin.wire, dict) and isinstance(origin.wire.get("content"), list):
        return blocks
    return collapse_single_text(blocks)


def collapse_single_text(blocks: list[Object]) -> str | list[Object]:
    """The text of a single plain text block."""
    if len(blocks) == 1 and blocks[0]["type"] == "text" and blocks[0].keys() == {"type", "text"}:
        text: str = blocks[0]["text"]
        return text
    return blocks


def _write_text(part: Text, ledger: Ledger, in_response: bool) -> Object | None:
    if part.seal is not None:
        ledger.note("seal-dropped", source_path(part), "the signature of a text was removed")
    text = part.text
    if not text or (not in_response and text.isspace()):
        if text or part.citations:
            ledger.note("empty-omitted", source_path(part), "text of only white space was left out")
        return None
    out: Object = {"type": "text", "text": text}
    if part.citations:
        citations = [write_citation(item, part, ledger, in_response) for item in part.citations]
        if any(citations):
            out["citations"] = [wire for wire in citations if wire is not None]
    if part.cache is not None:
        write_cache(out, part.cache, ledger, source_path(part))
    origin = part.origin
    # A text may come from another type of block (a search result), whose keys do not belong here.
    is_text_block = is_own(origin) and isinstance(origin.wire, dict) and origin.wire.get("type") == "text"
    return restore_original_keys(out, origin, NAME) if is_text_block else out


def write_citation(item: Citation, part: Part, ledger: Ledger, in_response: bool) -> Object | None:
    """A citation of a web page. Other citations name documents by Anthropic's own numbers, so they cannot be made."""
    origin = item.origin
    if (wire := intact_wire(origin)) is not None:
        return wire
    where = source_path(item) or source_path(part)
    if not item.url or (not in_response and is_foreign(origin or part.origin)):
        ledger.note("citation-dropped", where, f"a citation of `{item.url or item.title}` was left out")
        return None
    quote = item.quote
    if item.start is not None and item.end is not None:
        quote = quote or (part.text[item.start : item.end] if isinstance(part, Text) else "")
        ledger.note("citation-mapped", where, "a citation quotes its text instead of giving its position")
    out = {"type": "web_search_result_location", "cited_text": quote, "url": item.url, "title": item.title or None}
    return restore_original_keys(out | {"encrypted_index": ""}, origin, NAME)


def _write_reasoning(part: Reasoning, ledger: Ledger, in_response: bool) -> Object | None:
    seal = part.seal
    if is_own_seal(seal):
        if part.hidden:
            return {"type": "redacted_thinking", "data": seal.value}
        return {"type": "thinking", "thinking": part.text, "signature": seal.value}
    if seal is not None:
        ledger.note("seal-dropped", source_path(part), "the signature of another provider was removed")
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
        ledger.note("seal-dropped", source_path(part), "the signature of a call was removed")
    if part.item_id and not in_response and is_foreign(part.origin):
        what, why = f"the second id `{part.item_id}` of a call was left out", "Anthropic has one id for call and result"
        ledger.note("id-rewritten", source_path(part), what, why)
    arguments: Json = ledger.embed_object(part.arguments, source_path(part)) if part.kind != "custom" else None
    if arguments is None:
        what = f"the arguments of `{part.name}` are sent as text under `{names.RAW_ARGUMENTS_KEY}`"
        ledger.note("arguments-wrapped", source_path(part), what)
        arguments = {names.RAW_ARGUMENTS_KEY: part.arguments}
    out: Object = {"type": "tool_use", "id": part.id, "name": part.name, "input": arguments}
    if part.cache is not None:
        write_cache(out, part.cache, ledger, source_path(part))
    return restore_original_keys(out, part.origin, NAME)


def _write_result(part: Result, ledger: Ledger, in_response: bool) -> Object | None:
    content = write_content(part.content, part.origin, ledger)
    if not content:
        content = ""
        if part.error:
            ledger.note("default-added", source_path(part), "a failed result without content got the text `error`")
            content = "error"
    out: Object = {"type": "tool_result", "tool_use_id": part.id, "content": content}
    if part.error is not None:
        out["is_error"] = part.error
    if part.cache is not None:
        write_cache(out, part.cache, ledger, source_path(part))
    return restore_original_keys(out, part.origin, NAME)


def _write_media(part: Media, ledger: Ledger, in_response: bool) -> Object | None:
    where = source_path(part)
    if in_response:
        ledger.note("media-dropped", where, f"{part.mime or part.kind} in an answer was left out")
        return None
    if part.file_id and is_foreign(part.origin):
        ledger.note("media-dropped", where, f"the file `{part.file_id}` is stored at another provider")
        return None
    if part.detail and part.detail != "auto":
        ledger.note("no-counterpart", where, f"the detail `{part.detail}` was left out")
    if part.name and part.kind == "image":
        ledger.note("no-counterpart", where, f"the name `{part.name}` of an image was left out")
    source = _write_source(part, ledger)
    if source is None:
        ledger.note("media-dropped", where, f"{part.mime or part.kind} was left out")
        return None
    out: Object = {"type": "image" if part.kind == "image" else "document", "source": source}
    if part.kind == "file" and part.name:
        out["title"] = part.name
    if part.seal is not None:
        ledger.note("seal-dropped", where, f"the signature of a part of type {part.kind} was removed")
    write_cache(out, part.cache, ledger, where)
    return restore_original_keys(out, part.origin, NAME)


def _write_source(part: Media, ledger: Ledger) -> Object | None:
    if part.kind not in ("image", "file"):
        return None
    if not part.data:
        if part.url:
            return {"type": "url", "url": part.url}
        return {"type": "file", "file_id": part.file_id} if part.file_id else None
    if part.kind == "image":
        # The first bytes say more than the type that the client gave.
        mime = next((mime for start, mime in _BASE64_PREFIXES.items() if part.data.startswith(start)), part.mime)
        return {"type": "base64", "media_type": mime, "data": part.data} if mime in IMAGE_TYPES else None
    return _write_document_data(part, ledger)


def _write_document_data(part: Media, ledger: Ledger) -> Object | None:
    """The source of a PDF or a text; Anthropic accepts no other documents."""
    if part.mime == PDF_TYPE or part.data.startswith("JVBERi"):
        return {"type": "base64", "media_type": PDF_TYPE, "data": part.data}
    text = document_text(part if part.mime else replace(part, mime=PLAIN_TEXT_TYPE))
    if text is None:
        return None
    if part.mime not in ("", PLAIN_TEXT_TYPE):
        ledger.note("setting-mapped", source_path(part), f"a file of type `{part.mime}` is sent as `{PLAIN_TEXT_TYPE}`")
    return {"type": "text", "media_type": PLAIN_TEXT_TYPE, "data": text}


def _write_summary(part: Summary, ledger: Ledger, in_response: bool) -> Object | None:
    if is_foreign(part.origin):
        ledger.note("part-dropped", source_path(part), "a summary that only its provider can read was left out")
        return None
    out: Object = {"type": "compaction", "content": part.text or None}
    if part.seal is not None:
        out["encrypted_content"] = part.seal.value
    return restore_original_keys(out, part.origin, NAME)


def _write_tools_added(part: ToolsAdded, ledger: Ledger, in_response: bool) -> Object | None:
    ledger.note("part-dropped", source_path(part), "tools that were added during the conversation were left out")
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
    ToolReference: lambda part, _ledger, _in_response: {"type": "tool_reference", "tool_name": part.name},
    ToolsAdded: _write_tools_added,
    Summary: _write_summary,
    Opaque: _write_opaque,
}
