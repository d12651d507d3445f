"""Search results and citations in `groundingMetadata`, fetched pages in `urlContextMetadata`.

Google's offsets count bytes of UTF-8, those of the internal form count characters.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct

from toolwire.core.ids import hex_digest
from toolwire.core.ir import Citation, Origin, Part, ProviderCall, ProviderResult, Text, source_path
from toolwire.core.json_values import Json, Object, Path, encode_text, expect_list, expect_object, get_int, get_text
from toolwire.core.losses import Ledger
from toolwire.core.provenance import is_nonempty
from toolwire.core.provider_tools import search_queries
from toolwire.protocols.gemini import names
from toolwire.protocols.gemini.content import PartReadContext
from toolwire.protocols.gemini.names import NAME, to_snake_case

_CHUNK_KIND_BY_TOOL = {tool: kind for kind, tool in names.TOOL_BY_CHUNK_KIND.items()} | {"web_fetch": "web"}


class Grounding(Struct, frozen=True):
    """Calls of provider tools with their results, and citations with the number of the text they belong to."""

    provider_parts: tuple[Part, ...]
    citations: tuple[tuple[int, Citation], ...]


GROUNDING_METADATA_KEYS = ("groundingMetadata", "urlContextMetadata")
"""The keys of a candidate (in camelCase) with results of provider tools."""
_GROUNDING_ID_PREFIX = "grounding_"
"""The prefix of the ids that are made for these calls, because Google gives them none."""
_FETCH_SUCCESS = "URL_RETRIEVAL_STATUS_SUCCESS"


def read_grounding(candidate: Object, texts: Sequence[str | None], path: Path, reading: PartReadContext) -> Grounding:
    """Read the grounding of a candidate. `texts` has the text of each part, None for parts of other types."""
    fetched = _read_fetched_pages(candidate.get("urlContextMetadata"), (path, "urlContextMetadata"), reading)
    value, path = candidate.get("groundingMetadata"), (path, "groundingMetadata")
    if not is_nonempty(value):
        return Grounding(tuple(fetched), ())
    raw = expect_object(value, path)
    node = reading.read_inner_node(raw, path, names.GROUNDING_KEYS)
    chunks = _read_chunks(node, path, reading)
    provider_parts: list[Part] = []
    queries = _nonempty_queries(node.get("webSearchQueries"))
    tools = list(dict.fromkeys(tool for tool, _ in chunks if tool))
    if queries and "web_search" not in tools:
        tools.insert(0, "web_search")
    for tool in tools:
        arguments = encode_text(_query_arguments(queries)) if queries and tool == "web_search" else ""
        sources = tuple(source for kind, source in chunks if kind == tool)
        digest = hex_digest(encode_text([tool, queries, [source.url for source in sources], list(texts)]), 16)
        id = f"{_GROUNDING_ID_PREFIX}{digest}"
        # Without an origin: they are written as metadata, not as parts of the content.
        provider_parts += [ProviderCall(id, tool, arguments), ProviderResult(id, tool, sources)]
    return Grounding((*provider_parts, *fetched), tuple(_read_supports(node, chunks, texts, path, reading)))


def _nonempty_queries(queries: Json) -> Json:
    """The queries without empty ones, which Google sends at times."""
    return [one for one in queries if one] if isinstance(queries, list) else queries


def _query_arguments(queries: Json) -> Object:
    """The arguments of a search in their common form."""
    if not isinstance(queries, list):
        return {"query": queries}
    return {"query": queries[0]} if len(queries) == 1 else {"query": queries[0], "queries": queries}


def _read_fetched_pages(value: Json, path: Path, reading: PartReadContext) -> Iterable[Part]:
    """The fetched pages, each as a call with its result."""
    if not is_nonempty(value):
        return
    rows = expect_object(value, path)
    here = (path, "urlMetadata")
    for number, item in enumerate(expect_list(rows.get("urlMetadata", rows.get("url_metadata")) or [], here)):
        at = (here, number)
        row = reading.read_inner_node(expect_object(item, at), at, names.URL_METADATA_KEYS)
        url, status = get_text(row, "retrievedUrl", at) or "", get_text(row, "urlRetrievalStatus", at) or _FETCH_SUCCESS
        id = f"{_GROUNDING_ID_PREFIX}{hex_digest(f'{number} {url}', 16)}"
        yield ProviderCall(id, "web_fetch", encode_text({"url": url}))
        yield ProviderResult(id, "web_fetch", (Citation(url),), error="" if status == _FETCH_SUCCESS else status)


def _read_chunks(node: Object, path: Path, reading: PartReadContext) -> list[tuple[str, Citation]]:
    here = (path, "groundingChunks")
    chunks: list[tuple[str, Citation]] = []
    for number, item in enumerate(expect_list(node.get("groundingChunks") or [], here)):
        chunk = expect_object(item, (here, number))
        for kind, tool in names.TOOL_BY_CHUNK_KIND.items():
            key = kind if kind in chunk else to_snake_case(kind)
            if isinstance(chunk.get(key), dict):
                at = ((here, number), key)
                source = reading.read_inner_node(chunk[key], at, names.GROUNDING_CHUNK_KEYS)
                url, title, text = (get_text(source, name, at) or "" for name in ("uri", "title", "text"))
                chunks.append((tool, Citation(url, title, text)))
                break
        else:
            if is_nonempty(chunk):
                reading.note_unknown_field(here, str(number))
            chunks.append(("", Citation()))
    return chunks


def _read_supports(
    node: Object, chunks: list[tuple[str, Citation]], texts: Sequence[str | None], path: Path, reading: PartReadContext
) -> Iterable[tuple[int, Citation]]:
    here = (path, "groundingSupports")
    for number, item in enumerate(expect_list(node.get("groundingSupports") or [], here)):
        at = (here, number)
        support = reading.read_inner_node(expect_object(item, at), at, names.GROUNDING_SUPPORT_KEYS)
        segment = names.SEGMENT_KEYS(expect_object(support.get("segment") or {}, (at, "segment")))
        located = _locate_segment(segment, texts, (at, "segment"))
        if located is None:
            reading.note_unknown_field(here, str(number))
            continue
        part, start, end = located
        for index in expect_list(support.get("groundingChunkIndices") or [], (at, "groundingChunkIndices")):
            if isinstance(index, int) and 0 <= index < len(chunks):
                tool, source = chunks[index]
                if tool:
                    yield part, Citation(source.url, source.title, source.quote, start, end)


def _locate_segment(
    segment: Object, texts: Sequence[str | None], path: Path
) -> tuple[int, int | None, int | None] | None:
    """The number of the text that has the segment, and its start and end. The segment's text decides, because the
    `partIndex` is often wrong in a stream."""
    number = get_int(segment, "partIndex", path) or 0
    start = get_int(segment, "startIndex", path) or 0
    end = get_int(segment, "endIndex", path)
    words = get_text(segment, "text", path)
    order = sorted(range(len(texts)), key=lambda part: part != number)
    candidates = [(part, text) for part in order if (text := texts[part]) is not None]
    for part, text in candidates:
        data = text.encode()
        if end is not None and end <= len(data) and (not words or data[start:end] == words.encode()):
            first = len(data[:start].decode(errors="ignore"))
            return part, first, first + len(data[start:end].decode(errors="ignore"))
    for part, text in candidates:
        if words and (at := text.find(words)) >= 0:
            return part, at, at + len(words)
    return (candidates[0][0], None, None) if candidates else None


# --- writing --------------------------------------------------------------------------------------------------------


def is_grounding(part: Part) -> bool:
    """Is this part written into the metadata, and not as a part of the content?"""
    if not isinstance(part, (ProviderCall, ProviderResult)) or part.tool not in _CHUNK_KIND_BY_TOOL:
        return False
    # A part that was read from a `toolCall` has an origin, one that was read from the metadata has none.
    if part.origin is None:
        return not part.id or part.id.startswith(_GROUNDING_ID_PREFIX)
    return part.origin.protocol != NAME


def write_grounding(parts: Iterable[tuple[int, Part]], ledger: Ledger) -> Object:
    """The metadata for these parts, each with its number in the content; {} if there is none."""
    queries: list[str] = []
    chunks: list[Object] = []
    known: dict[tuple[str, str, str], int] = {}
    supports: list[Object] = []
    fetched: list[Object] = []
    cited: list[tuple[int, Text]] = []
    for number, part in parts:
        if isinstance(part, ProviderCall) and is_grounding(part):
            queries += search_queries(part.arguments) if part.tool == "web_search" else ()
        elif isinstance(part, ProviderResult) and is_grounding(part):
            if part.tool == "web_fetch":
                fetched += _write_fetched_pages(part, ledger)
            else:
                _add_result_chunks(part, chunks, known, ledger)
        elif isinstance(part, Text) and part.citations:
            cited.append((number, part))
    for number, text in cited:
        supports += _write_supports(number, text, chunks, known)
    fields = {"webSearchQueries": queries, "groundingChunks": chunks, "groundingSupports": supports}
    metadata = {key: value for key, value in fields.items() if value}
    out: Object = {"groundingMetadata": metadata} if metadata else {}
    return out | ({"urlContextMetadata": {"urlMetadata": fetched}} if fetched else {})


def _add_result_chunks(
    part: ProviderResult, chunks: list[Object], known: dict[tuple[str, str, str], int], ledger: Ledger
) -> None:
    for source in part.sources:
        _add_chunk(source, _CHUNK_KIND_BY_TOOL[part.tool], chunks, known)
    if part.error:
        ledger.note("no-counterpart", source_path(part), f"the error `{part.error}` of {part.tool} was left out")
    if part.text:
        ledger.note("part-dropped", source_path(part), f"the text of a {part.tool} result was left out")


def _write_fetched_pages(part: ProviderResult, ledger: Ledger) -> Iterable[Object]:
    if part.text:
        ledger.note("part-dropped", source_path(part), "the text of a fetched page was left out")
    status = (
        part.error if part.error.startswith("URL_") else "URL_RETRIEVAL_STATUS_ERROR" if part.error else _FETCH_SUCCESS
    )
    for page in part.sources:
        yield {"retrievedUrl": page.url, "urlRetrievalStatus": status}


def unknown_grounding_keys(origin: Origin | None) -> Object:
    """The unknown keys of a candidate's metadata, such as a search widget, to be written back."""
    if origin is None or origin.protocol != NAME:
        return {}
    metadata = names.CANDIDATE_KEYS(origin.wire).get("groundingMetadata")
    return names.GROUNDING_KEYS.select_unknown(metadata) if isinstance(metadata, dict) else {}


def _add_chunk(source: Citation, kind: str, chunks: list[Object], known: dict[tuple[str, str, str], int]) -> int:
    key = _source_key(source) if kind != "retrievedContext" else (source.url, source.title, source.quote)
    if key not in known:
        known[key] = len(chunks)
        fields = (("uri", source.url), ("title", source.title), ("text", key[2]))
        chunks.append({kind: {name: value for name, value in fields if value}})
    elif source.title:
        for chunk in chunks[known[key]].values():
            chunk.setdefault("title", source.title)
    return known[key]


def _source_key(source: Citation) -> tuple[str, str, str]:
    """What identifies a source: its URL, if it has one."""
    return (source.url, "", "") if source.url else ("", source.title, "")


def _write_supports(
    number: int, text: Text, chunks: list[Object], known: dict[tuple[str, str, str], int]
) -> Iterable[Object]:
    """One support for each cited range of the text, with all its sources."""
    ranges: dict[tuple[int, int], list[int]] = {}
    for citation in text.citations:
        start = citation.start if citation.start is not None else 0
        end = citation.end if citation.end is not None else len(text.text)
        key = (citation.url, citation.title, citation.quote)
        index = known[key] if key in known else _add_chunk(citation, "web", chunks, known)
        indices = ranges.setdefault((start, end), [])
        if index not in indices:
            indices.append(index)
    for (start, end), indices in ranges.items():
        words = text.text[start:end]
        before = len(text.text[:start].encode())
        segment: Object = {"partIndex": number} if number else {}
        if before:
            segment["startIndex"] = before
        segment |= {"endIndex": before + len(words.encode()), "text": words}
        yield {"segment": segment, "groundingChunkIndices": indices}
