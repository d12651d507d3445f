"""What the provider's own search found: sources and the texts that rest on them, in `groundingMetadata`.

Its offsets count bytes of UTF-8, ours count characters.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct

from toolwire.hosted import queries_of
from toolwire.ids import digest
from toolwire.ir import Citation, HostedCall, HostedResult, Origin, Part, Text, place
from toolwire.loss import Ledger
from toolwire.protocols.gemini.names import CANDIDATE, CHUNK, FETCHED, GROUNDING, NAME, SEGMENT, SOURCES, SUPPORT, snake
from toolwire.protocols.gemini.parts import PartReading
from toolwire.reading import says_something
from toolwire.wire import Json, Object, Path, as_list, as_object, encode_text, take_int, take_text

_KINDS = {tool: kind for kind, tool in SOURCES.items()} | {"web_fetch": "web"}


class Grounds(Struct, frozen=True):
    """What was read: the hosted calls with their results, and citations with the number of the text they belong to."""

    hosted: tuple[Part, ...]
    citations: tuple[tuple[int, Citation], ...]


TOLD = ("groundingMetadata", "urlContextMetadata")
"""The keys of a candidate (in camelCase) that tell of the provider's own tools."""
_GROUNDED = "grounding_"
"""How the ids begin that calls get here, because the wire gives them none."""
_FETCHED = "URL_RETRIEVAL_STATUS_SUCCESS"


def read_grounding(candidate: Object, texts: Sequence[str | None], path: Path, reading: PartReading) -> Grounds:
    """`texts` holds the text of each part of the content, None for parts that are no answer text."""
    fetched = _read_fetched(candidate.get("urlContextMetadata"), (path, "urlContextMetadata"), reading)
    value, path = candidate.get("groundingMetadata"), (path, "groundingMetadata")
    if not says_something(value):
        return Grounds(tuple(fetched), ())
    raw = as_object(value, path)
    node = reading.inner(raw, path, GROUNDING)
    chunks = _read_chunks(node, path, reading)
    hosted: list[Part] = []
    queries = _said(node.get("webSearchQueries"))
    tools = list(dict.fromkeys(tool for tool, _ in chunks if tool))
    if queries and "web_search" not in tools:
        tools.insert(0, "web_search")
    for tool in tools:
        arguments = encode_text(_asked(queries)) if queries and tool == "web_search" else ""
        found = tuple(source for kind, source in chunks if kind == tool)
        # No origin: these parts stand beside the content, which is never given back for them.
        id = f"{_GROUNDED}{digest(encode_text([tool, queries, [one.url for one in found], list(texts)]), 16)}"
        hosted += [HostedCall(id, tool, arguments), HostedResult(id, tool, found)]
    return Grounds((*hosted, *fetched), tuple(_read_supports(node, chunks, texts, path, reading)))


def _said(queries: Json) -> Json:
    """Those that say something: there are empty ones among them at times."""
    return [one for one in queries if one] if isinstance(queries, list) else queries


def _asked(queries: Json) -> Object:
    """A search as every protocol tells it."""
    if not isinstance(queries, list):
        return {"query": queries}
    return {"query": queries[0]} if len(queries) == 1 else {"query": queries[0], "queries": queries}


def _read_fetched(value: Json, path: Path, reading: PartReading) -> Iterable[Part]:
    """Pages that were fetched, each a call with its result."""
    if not says_something(value):
        return
    rows = as_object(value, path)
    here = (path, "urlMetadata")
    for number, item in enumerate(as_list(rows.get("urlMetadata", rows.get("url_metadata")) or [], here)):
        at = (here, number)
        row = reading.inner(as_object(item, at), at, FETCHED)
        url, status = take_text(row, "retrievedUrl", at) or "", take_text(row, "urlRetrievalStatus", at) or _FETCHED
        id = f"{_GROUNDED}{digest(f'{number} {url}', 16)}"
        yield HostedCall(id, "web_fetch", encode_text({"url": url}))
        yield HostedResult(id, "web_fetch", (Citation(url),), error="" if status == _FETCHED else status)


def _read_chunks(node: Object, path: Path, reading: PartReading) -> list[tuple[str, Citation]]:
    here = (path, "groundingChunks")
    chunks: list[tuple[str, Citation]] = []
    for number, item in enumerate(as_list(node.get("groundingChunks") or [], here)):
        chunk = as_object(item, (here, number))
        for kind, tool in SOURCES.items():
            key = kind if kind in chunk else snake(kind)
            if isinstance(chunk.get(key), dict):
                at = ((here, number), key)
                source = reading.inner(chunk[key], at, CHUNK)
                url, title, text = (take_text(source, name, at) or "" for name in ("uri", "title", "text"))
                chunks.append((tool, Citation(url, title, text)))
                break
        else:
            if says_something(chunk):
                reading.stray(here, str(number))
            chunks.append(("", Citation()))
    return chunks


def _read_supports(
    node: Object, chunks: list[tuple[str, Citation]], texts: Sequence[str | None], path: Path, reading: PartReading
) -> Iterable[tuple[int, Citation]]:
    here = (path, "groundingSupports")
    for number, item in enumerate(as_list(node.get("groundingSupports") or [], here)):
        at = (here, number)
        support = reading.inner(as_object(item, at), at, SUPPORT)
        segment = SEGMENT(as_object(support.get("segment") or {}, (at, "segment")))
        found = _locate(segment, texts, (at, "segment"))
        if found is None:
            reading.stray(here, str(number))
            continue
        part, start, end = found
        for index in as_list(support.get("groundingChunkIndices") or [], (at, "groundingChunkIndices")):
            if isinstance(index, int) and 0 <= index < len(chunks):
                tool, source = chunks[index]
                if tool:
                    yield part, Citation(source.url, source.title, source.quote, start, end)


def _locate(segment: Object, texts: Sequence[str | None], path: Path) -> tuple[int, int | None, int | None] | None:
    """Which text a segment lies in, and where. Its own text decides: in a stream the part's number means little."""
    number = take_int(segment, "partIndex", path) or 0
    start = take_int(segment, "startIndex", path) or 0
    end = take_int(segment, "endIndex", path)
    words = take_text(segment, "text", path)
    order = sorted(range(len(texts)), key=lambda part: part != number)
    candidates = [(part, text) for part in order if (text := texts[part]) is not None]
    for part, text in candidates:
        held = text.encode()
        if end is not None and end <= len(held) and (not words or held[start:end] == words.encode()):
            first = len(held[:start].decode(errors="ignore"))
            return part, first, first + len(held[start:end].decode(errors="ignore"))
    for part, text in candidates:
        if words and (at := text.find(words)) >= 0:
            return part, at, at + len(words)
    return (candidates[0][0], None, None) if candidates else None


# --- writing --------------------------------------------------------------------------------------------------------


def grounds(part: Part) -> bool:
    """Is this part told by `groundingMetadata`, and not by a part of the content?"""
    if not isinstance(part, (HostedCall, HostedResult)) or part.tool not in _KINDS:
        return False
    # What this wire shows as a part of its own (`toolCall`) has an origin; what it grounds on has none.
    if part.origin is None:
        return not part.id or part.id.startswith(_GROUNDED)
    return part.origin.protocol != NAME


def write_grounding(parts: Iterable[tuple[int, Part]], ledger: Ledger) -> Object:
    """The metadata for what these parts (each with its number in the content) found and cite; {} when there is none."""
    queries: list[str] = []
    chunks: list[Object] = []
    known: dict[tuple[str, str, str], int] = {}
    supports: list[Object] = []
    fetched: list[Object] = []
    cited: list[tuple[int, Text]] = []
    for number, part in parts:
        if isinstance(part, HostedCall) and grounds(part):
            queries += queries_of(part.arguments) if part.tool == "web_search" else ()
        elif isinstance(part, HostedResult) and grounds(part):
            if part.tool == "web_fetch":
                fetched += _fetched(part, ledger)
            else:
                _found(part, chunks, known, ledger)
        elif isinstance(part, Text) and part.citations:
            cited.append((number, part))
    for number, text in cited:
        supports += _supports(number, text, chunks, known)
    found = (("webSearchQueries", queries), ("groundingChunks", chunks), ("groundingSupports", supports))
    metadata = {key: value for key, value in found if value}
    out: Object = {"groundingMetadata": metadata} if metadata else {}
    return out | ({"urlContextMetadata": {"urlMetadata": fetched}} if fetched else {})


def _found(part: HostedResult, chunks: list[Object], known: dict[tuple[str, str, str], int], ledger: Ledger) -> None:
    for source in part.sources:
        _chunk(source, _KINDS[part.tool], chunks, known)
    if part.error:
        ledger.note("no-counterpart", place(part), f"the failure `{part.error}` of {part.tool} was left out")
    if part.text:
        ledger.note("part-dropped", place(part), f"the text that {part.tool} found was left out")


def _fetched(part: HostedResult, ledger: Ledger) -> Iterable[Object]:
    if part.text:
        ledger.note("part-dropped", place(part), "the text of a fetched page was left out")
    status = part.error if part.error.startswith("URL_") else "URL_RETRIEVAL_STATUS_ERROR" if part.error else _FETCHED
    for page in part.sources:
        yield {"retrievedUrl": page.url, "urlRetrievalStatus": status}


def carried_grounding(origin: Origin | None) -> Object:
    """The unknown keys of a candidate's metadata (a search widget and the like), when it came from this wire."""
    if origin is None or origin.protocol != NAME:
        return {}
    held = CANDIDATE(origin.wire).get("groundingMetadata")
    return GROUNDING.unknown(held) if isinstance(held, dict) else {}


def _chunk(source: Citation, kind: str, chunks: list[Object], known: dict[tuple[str, str, str], int]) -> int:
    key = _key(source) if kind != "retrievedContext" else (source.url, source.title, source.quote)
    if key not in known:
        known[key] = len(chunks)
        fields = (("uri", source.url), ("title", source.title), ("text", key[2]))
        chunks.append({kind: {name: value for name, value in fields if value}})
    elif source.title:
        for told in chunks[known[key]].values():
            told.setdefault("title", source.title)
    return known[key]


def _key(source: Citation) -> tuple[str, str, str]:
    """What tells sources apart: the address, where there is one."""
    return (source.url, "", "") if source.url else ("", source.title, "")


def _supports(
    number: int, text: Text, chunks: list[Object], known: dict[tuple[str, str, str], int]
) -> Iterable[Object]:
    """One support for each stretch of text, with all the sources that it rests on."""
    stretches: dict[tuple[int, int], list[int]] = {}
    for citation in text.citations:
        start = citation.start if citation.start is not None else 0
        end = citation.end if citation.end is not None else len(text.text)
        key = (citation.url, citation.title, citation.quote)
        index = known[key] if key in known else _chunk(citation, "web", chunks, known)
        indices = stretches.setdefault((start, end), [])
        if index not in indices:
            indices.append(index)
    for (start, end), indices in stretches.items():
        words = text.text[start:end]
        before = len(text.text[:start].encode())
        segment: Object = {"partIndex": number} if number else {}
        if before:
            segment["startIndex"] = before
        segment |= {"endIndex": before + len(words.encode()), "text": words}
        yield {"segment": segment, "groundingChunkIndices": indices}
