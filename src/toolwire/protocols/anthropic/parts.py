"""Content blocks: text, thinking, calls, results. Media and the provider's own tools stand in `details`."""

from __future__ import annotations

from collections.abc import Callable

from toolwire.ir import (
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
    Seal,
    Summary,
    Text,
    ToolReference,
    ToolsAdded,
    place,
)
from toolwire.loss import Ledger
from toolwire.protocols.anthropic.details.cache import read_cache, write_cache
from toolwire.protocols.anthropic.details.hosted import (
    NAME_OF_RESULT,
    is_direct,
    read_server_call,
    read_server_result,
    write_server_call,
    write_server_result,
)
from toolwire.protocols.anthropic.details.media import read_document, read_image, write_media
from toolwire.protocols.anthropic.details.stamp import is_foreign, is_own, own_seal
from toolwire.protocols.anthropic.details.summary import read_summary, write_summary
from toolwire.protocols.anthropic.names import (
    CITATION,
    CITATION_OTHER,
    NAME,
    RAW,
    REDACTED,
    SEARCH_RESULT,
    TEXT,
    THOUGHT,
    TOOL_REFERENCE,
    TOOL_RESULT,
    TOOL_USE,
    TOOL_USE_DIRECT,
)
from toolwire.reading import Reading, finished, numbered, verbatim
from toolwire.wire import (
    Json,
    Object,
    Path,
    as_object,
    embedded,
    encode_text,
    need_text,
    take_bool,
    take_list,
    take_object,
    take_text,
    wrong,
)

# --- reading ----------------------------------------------------------------------------------------------------------


def read_content(value: Json, path: Path, reading: Reading) -> tuple[Part, ...]:
    """The parts of a content field; a string stands for one block of text."""
    if isinstance(value, str):
        return (Text(value, (), None, None, Origin(NAME, path, value)),) if value else ()
    if not isinstance(value, list):
        wrong(path, "a string or an array of content blocks", value)
    readers = READERS
    parts: list[Part] = []
    for number, block in enumerate(value):
        try:
            reader = readers[block["type"]]
        except (KeyError, TypeError):
            reader = read_part
        parts.append(reader(block, (path, number), reading))
    return tuple(parts)


def read_part(block: Json, path: Path, reading: Reading) -> Part:
    """A block of any kind. The readers of text, calls and results have a short way for the ordinary keys alone: where
    these are there, their number says that no other is."""
    if not isinstance(block, dict):
        wrong(path, "a content block", block)
    kind = block.get("type")
    if not isinstance(kind, str):
        kind = need_text(block, "type", path)
    reader = READERS.get(kind)
    return reader(block, path, reading) if reader else Opaque(kind, reading.whole(block, path))


def _read_text(block: Object, path: Path, reading: Reading) -> Part:
    plain = block.get("text")
    if len(block) == 2 and type(plain) is str:
        return Text(plain, (), None, None, Origin(NAME, path, block))
    text = need_text(block, "text", path)
    cited = block.get("citations")
    citations = read_citations(cited, (path, "citations"), reading) if cited else ()
    cache = read_cache(block, path, reading) if "cache_control" in block else None
    return Text(text, citations, cache, None, reading.origin(block, path, TEXT))


def read_citations(value: Json, path: Path, reading: Reading) -> tuple[Citation, ...]:
    if not isinstance(value, list):
        wrong(path, "an array of citations", value)
    return tuple([read_citation(as_object(item, here), here, reading) for item, here in numbered(value, path)])


def read_citation(item: Object, path: Path, reading: Reading) -> Citation:
    kind = item.get("type")
    known = CITATION.get(kind, CITATION_OTHER) if isinstance(kind, str) else CITATION_OTHER
    url = take_text(item, "url" if "url" in known else "source", path) if known is not CITATION_OTHER else ""
    title = take_text(item, "title" if "title" in known else "document_title", path)
    quote = take_text(item, "cited_text", path)
    return Citation(url or "", title or "", quote or "", origin=reading.origin(item, path, known))


def _read_thinking(block: Object, path: Path, reading: Reading) -> Part:
    signature = take_text(block, "signature", path)
    return Reasoning(
        take_text(block, "thinking", path) or "",
        seal=Seal(NAME, signature) if signature else None,
        origin=reading.origin(block, path, THOUGHT),
    )


def _read_redacted(block: Object, path: Path, reading: Reading) -> Part:
    seal = Seal(NAME, need_text(block, "data", path))
    return Reasoning(hidden=True, seal=seal, origin=reading.origin(block, path, REDACTED))


def _read_call(block: Object, path: Path, reading: Reading) -> Part:
    id, name, given = block.get("id"), block.get("name"), block.get("input")
    if len(block) == 4 and id.__class__ is name.__class__ is str and given.__class__ is dict:
        return Call(id, name, encode_text(given), origin=Origin(NAME, path, block))
    given = take_object(block, "input", path)
    cache = read_cache(block, path, reading) if "cache_control" in block else None
    return Call(
        take_text(block, "id", path) or "",
        need_text(block, "name", path),
        "" if given is None else encode_text(given),
        cache=cache,
        origin=reading.origin(block, path, TOOL_USE_DIRECT if is_direct(block) else TOOL_USE),
    )


def _read_result(block: Object, path: Path, reading: Reading) -> Part:
    id, content, error = block.get("tool_use_id"), block.get("content"), block.get("is_error")
    if type(content) is str and type(id) is str and len(block) == (4 if type(error) is bool else 3) and content:
        text = Text(content, (), None, None, Origin(NAME, (path, "content"), content))
        return Result(id, (text,), error, origin=Origin(NAME, path, block))
    cache = read_cache(block, path, reading) if "cache_control" in block else None
    return Result(
        take_text(block, "tool_use_id", path) or "",
        () if content is None else read_content(content, (path, "content"), reading),
        take_bool(block, "is_error", path),
        cache=cache,
        origin=reading.origin(block, path, TOOL_RESULT),
    )


def _read_reference(block: Object, path: Path, reading: Reading) -> Part:
    return ToolReference(need_text(block, "tool_name", path), reading.origin(block, path, TOOL_REFERENCE))


def _read_search_result(block: Object, path: Path, reading: Reading) -> Part:
    """A found passage is text to everybody else, with its title and source above it."""
    here = (path, "content")
    passages = take_list(block, "content", path) or []
    texts = [need_text(as_object(item, at), "text", at) for item, at in numbered(passages, here)]
    head = [take_text(block, "title", path), take_text(block, "source", path)]
    text = "\n".join([line for line in head if line] + texts)
    cache = read_cache(block, path, reading)
    return Text(text, cache=cache, origin=reading.origin(block, path, SEARCH_RESULT))


READERS: dict[str, Callable[[Object, Path, Reading], Part]] = {
    "text": _read_text,
    "thinking": _read_thinking,
    "redacted_thinking": _read_redacted,
    "tool_use": _read_call,
    "tool_result": _read_result,
    "tool_reference": _read_reference,
    "search_result": _read_search_result,
    "image": read_image,
    "document": read_document,
    "server_tool_use": read_server_call,
    "compaction": read_summary,
    **dict.fromkeys(NAME_OF_RESULT, read_server_result),
}


# --- writing ----------------------------------------------------------------------------------------------------------


def write_parts(parts: tuple[Part, ...], ledger: Ledger, answer: bool) -> list[Object]:
    writers = WRITERS
    blocks: list[Object] = []
    for part in parts:
        origin = part.origin
        write = writers[type(part)] if origin is None or origin.protocol != NAME else write_part
        block = write(part, ledger, answer)
        if block is not None:
            blocks.append(block)
    return blocks


def write_part(part: Part, ledger: Ledger, answer: bool) -> Object | None:
    """One block, or None when it cannot stand here. In an answer more can be told than in a history: what goes to the
    provider must bear its own signatures."""
    origin = part.origin
    if origin is not None and verbatim(origin, NAME) and (answer or not _unsigned(part)):
        wire: Json = origin.wire
        return wire if isinstance(wire, dict) else {"type": "text", "text": wire}
    return WRITERS[type(part)](part, ledger, answer)


def write_content(parts: tuple[Part, ...], origin: Origin | None, ledger: Ledger) -> str | list[Object]:
    """A content field: one plain text as a string, unless its node had blocks before."""
    if origin is None or origin.protocol != NAME:
        if len(parts) == 1 and type(parts[0]) is Text and (text := _plain_text(parts[0])):
            return text
        blocks = write_parts(parts, ledger, False)
        return shortened(blocks) if len(blocks) == 1 else blocks
    blocks = write_parts(parts, ledger, False)
    had_blocks = isinstance(origin.wire, dict) and isinstance(origin.wire.get("content"), list)
    return blocks if had_blocks else shortened(blocks)


def _plain_text(part: Text) -> str:
    """The short way for what most results and turns of the user hold: one text from elsewhere with nothing to it."""
    origin, text = part.origin, part.text
    if part.citations or part.cache is not None or part.seal is not None or text.isspace():
        return ""
    return text if origin is None or origin.protocol != NAME else ""


def shortened(blocks: list[Object]) -> str | list[Object]:
    """One plain text is said as a string."""
    if len(blocks) == 1 and blocks[0]["type"] == "text" and blocks[0].keys() == {"type", "text"}:
        text: str = blocks[0]["text"]
        return text
    return blocks


def _unsigned(part: Part) -> bool:
    return isinstance(part, Reasoning) and part.seal is None


def _write_text(part: Text, ledger: Ledger, answer: bool) -> Object | None:
    if part.seal is not None:
        ledger.note("seal-dropped", place(part), "the seal of a text was taken off")
    text = part.text
    if not text or (not answer and text.isspace()):
        if text or part.citations:
            ledger.note("empty-omitted", place(part), "text of white space alone was left out")
        return None
    out: Object = {"type": "text", "text": text}
    if part.citations:
        cited = [wire for item in part.citations if (wire := write_citation(item, part, ledger, answer)) is not None]
        if cited:
            out["citations"] = cited
    if part.cache is not None:
        write_cache(out, part.cache, ledger, place(part))
    origin = part.origin
    if origin is None or origin.protocol != NAME or not _is_text(origin.wire):
        return out
    return finished(out, origin, NAME)


def _is_text(wire: Json) -> bool:
    return isinstance(wire, dict) and wire.get("type") == "text"


def write_citation(item: Citation, part: Part, ledger: Ledger, answer: bool) -> Object | None:
    """Only places on the web can be told without the provider's own numbering of documents."""
    origin = item.origin
    if origin is not None and verbatim(origin, NAME):
        wire: Object = origin.wire
        return wire
    if not item.url or (not answer and is_foreign(origin or part.origin)):
        ledger.note(
            "citation-dropped", place(item) or place(part), f"a citation of `{item.url or item.title}` was left out"
        )
        return None
    quote = item.quote
    if item.start is not None and item.end is not None:
        quote = quote or (part.text[item.start : item.end] if isinstance(part, Text) else "")
        ledger.note("citation-mapped", place(item) or place(part), "a citation names its text instead of its place")
    out = {"type": "web_search_result_location", "cited_text": quote, "url": item.url, "title": item.title or None}
    return finished(out | {"encrypted_index": ""}, origin, NAME)


def _write_reasoning(part: Reasoning, ledger: Ledger, answer: bool) -> Object | None:
    value = own_seal(part.seal)
    if part.seal is not None and value is None:
        ledger.note("seal-dropped", place(part), "the seal of another maker was taken off")
    if value is not None:
        if part.hidden:
            return {"type": "redacted_thinking", "data": value}
        return {"type": "thinking", "thinking": part.text, "signature": value}
    if answer:
        return {"type": "thinking", "thinking": part.text, "signature": ""} if part.text else None
    if part.text:
        ledger.note("reasoning-dropped", place(part), "thinking without a signature was left out")
    return None


def _write_refusal(part: Refusal, ledger: Ledger, answer: bool) -> Object | None:
    ledger.note("refusal-as-text", place(part), "a refusal became text")
    return {"type": "text", "text": part.text} if part.text.strip() else None


def _write_call(part: Call, ledger: Ledger, answer: bool) -> Object | None:
    if part.seal is not None:
        ledger.note("seal-dropped", place(part), "the seal of a call was taken off")
    if part.item and is_foreign(part.origin):
        ledger.note("no-counterpart", place(part), f"the second id `{part.item}` of a call was left out")
    given: Json = embedded(part.arguments) if part.kind != "custom" else None
    if given is None:
        ledger.note("arguments-wrapped", place(part), f"the arguments of `{part.name}` stand as text under `{RAW}`")
        given = {RAW: part.arguments}
    out: Object = {"type": "tool_use", "id": part.id, "name": part.name, "input": given}
    if part.cache is not None:
        write_cache(out, part.cache, ledger, place(part))
    origin = part.origin
    return out if origin is None or origin.protocol != NAME else finished(out, origin, NAME)


def _write_result(part: Result, ledger: Ledger, answer: bool) -> Object | None:
    content = write_content(part.content, part.origin, ledger)
    if not content:
        content = ""
        if part.error:
            ledger.note("default-added", place(part), "a failed result without content says `error`")
            content = "error"
    out: Object = {"type": "tool_result", "tool_use_id": part.id, "content": content}
    if part.error is not None:
        out["is_error"] = part.error
    if part.cache is not None:
        write_cache(out, part.cache, ledger, place(part))
    origin = part.origin
    return out if origin is None or origin.protocol != NAME else finished(out, origin, NAME)


def _write_media(part: Media, ledger: Ledger, answer: bool) -> Object | None:
    if answer:
        ledger.note("media-dropped", place(part), f"{part.mime or part.kind} in an answer was left out")
        return None
    out = write_media(part, ledger)
    return None if out is None else finished(out, part.origin, NAME)


def _write_reference(part: ToolReference, ledger: Ledger, answer: bool) -> Object | None:
    return {"type": "tool_reference", "tool_name": part.name}


def _write_added(part: ToolsAdded, ledger: Ledger, answer: bool) -> Object | None:
    ledger.note("part-dropped", place(part), "tools that were added on the way were left out")
    return None


def _write_opaque(part: Opaque, ledger: Ledger, answer: bool) -> Object | None:
    if is_own(part.origin) and isinstance(part.origin.wire, dict):
        return part.origin.wire
    ledger.opaque(part)
    return None


WRITERS: dict[type, Callable[..., Object | None]] = {
    Text: _write_text,
    Reasoning: _write_reasoning,
    Refusal: _write_refusal,
    Call: _write_call,
    Result: _write_result,
    Media: _write_media,
    HostedCall: write_server_call,
    HostedResult: write_server_result,
    ToolReference: _write_reference,
    ToolsAdded: _write_added,
    Summary: write_summary,
    Opaque: _write_opaque,
}
