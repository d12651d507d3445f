"""Whole answers: candidates, finish reasons, usage and grounding.

Grounding is what provider tools found: search results and citations in `groundingMetadata`, fetched pages in
`urlContextMetadata`. Google's offsets count bytes of UTF-8, those of the internal form count characters.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime

from msgspec import Raw, Struct
from msgspec.structs import replace

from toolwire.core import ids
from toolwire.core.codec import MAX_HOLLOW_BYTES, ResponsePeek, WriteContext
from toolwire.core.errors import expect_answer
from toolwire.core.ir import (
    EMPTY_MAPPING,
    Call,
    Choice,
    Citation,
    Failure,
    Finish,
    Origin,
    Part,
    ProviderCall,
    ProviderResult,
    Refusal,
    Response,
    Text,
    Usage,
    read_service_tier,
    source_path,
)
from toolwire.core.json_values import (
    Json,
    Malformed,
    Object,
    Path,
    encode_text,
    expect_list,
    expect_object,
    find_count,
    get_int,
    get_list,
    get_object,
    get_text,
    raise_wrong_type,
)
from toolwire.core.losses import MAX_QUOTED, Ledger
from toolwire.core.provenance import is_nonempty, partial_decoder, restore_original_keys
from toolwire.core.provider_tools import search_queries
from toolwire.protocols.gemini import names
from toolwire.protocols.gemini.content import PartReadContext, read_parts
from toolwire.protocols.gemini.content_writer import PartWriteContext, write_part
from toolwire.protocols.gemini.errors import read_error, write_error_body
from toolwire.protocols.gemini.logprobs import read_logprobs, write_logprobs
from toolwire.protocols.gemini.models import Family
from toolwire.protocols.gemini.names import NAME, intact_wire, is_own, to_snake_case

# --- reading --------------------------------------------------------------------------------------------------------

_FINISH_BY_REASON = {word: Finish(kind, word) for word, kind in names.KIND_BY_FINISH_REASON.items()}


def read_response(body: Object) -> Response:
    reading = PartReadContext()
    if isinstance(expect_object(body, None).get("error"), dict):
        return Response(failure=read_error(body, 0, {}), origin=reading.whole_origin(body, None))
    node, origin = reading.read_node(body, None, names.RESPONSE_KEYS)
    candidates = enumerate(get_list(node, "candidates", None) or ())
    choices = [_read_candidate(item, ((None, "candidates"), number), number, reading) for number, item in candidates]
    if not choices and (blocked := read_block_reason(node, None, reading)) is not None:
        choices = [Choice(0, (), blocked)]
    elif not choices:
        raise Malformed(None, "this is not a Gemini answer: it has neither `candidates` nor a `blockReason`")
    elif node.get("promptFeedback") is not None:
        reading.note_unknown_field(None, "promptFeedback")
    usage = reading.get_counted(node, "usageMetadata", None)
    failures = [finish_failure(choice.finish) for choice in choices]
    response = Response(
        get_text(node, "responseId", None) or "",
        get_text(node, "modelVersion", None) or "",
        read_create_time(node.get("createTime"), reading),
        tuple(choices),
        read_usage(usage, (None, "usageMetadata"), reading) if usage is not None else None,
        next(filter(None, failures), None),
        origin,
        tuple(reading.unknown_fields),
    )
    return expect_answer(response)


def _read_candidate(item: Json, path: Path, number: int, reading: PartReadContext) -> Choice:
    node, origin = reading.read_node(item, path, names.CANDIDATE_KEYS)
    parts: list[Part] = []
    content = get_object(node, "content", path)
    if content is not None:
        here = (path, "content")
        items = reading.read_inner_node(content, here, names.CONTENT_KEYS).get("parts")
        parts = read_parts(items, (here, "parts"), reading, True)
    whole_parts = len(parts)
    if reading.open_call is not None:
        parts.append(reading.open_call.make_call(incomplete=True))
        reading.open_call = None
    if any(map(is_nonempty, map(node.get, GROUNDING_METADATA_KEYS))):
        texts = [part.text if isinstance(part, Text) else None for part in parts[:whole_parts]]
        provider_parts, citations = read_grounding(node, texts, path, reading)
        cited: dict[int, list[Citation]] = {}
        for at, citation in citations:
            cited.setdefault(at, []).append(citation)
        for at, found in cited.items():
            parts[at] = replace(parts[at], citations=tuple(found))
        parts += provider_parts
    if node.get("logprobsResult"):
        logprobs = read_logprobs(node["logprobsResult"], path, reading)
        text = next((number for number, part in enumerate(parts) if isinstance(part, Text)), -1)
        if logprobs and text >= 0:
            parts[text] = replace(parts[text], logprobs=logprobs)
        elif logprobs:
            reading.note_unknown_field(path, "logprobsResult")
    index = get_int(node, "index", path)
    return Choice(number if index is None else index, tuple(parts), read_finish(node, path), origin)


def read_finish(candidate: Object, path: Path) -> Finish | None:
    """The finish reason of a candidate (in camelCase): a word in any case, or its number."""
    reason = candidate.get("finishReason")
    if reason is None:
        return None
    if isinstance(reason, str):
        if reason in _FINISH_BY_REASON and "finishMessage" not in candidate:
            return _FINISH_BY_REASON[reason]
        word = reason.upper()
    elif isinstance(reason, int) and not isinstance(reason, bool):
        word = names.FINISH_REASON_NUMBERS[reason] if 0 <= reason < len(names.FINISH_REASON_NUMBERS) else str(reason)
    else:
        raise_wrong_type((path, "finishReason"), "a string", reason)
    detail = get_text(candidate, "finishMessage", path) or ""
    origin = Origin(NAME, (path, "finishMessage"), None, EMPTY_MAPPING, False) if detail else None
    return Finish(names.KIND_BY_FINISH_REASON.get(word, "other"), word, detail=detail, origin=origin)


def read_block_reason(answer: Object, path: Path, reading: PartReadContext) -> Finish | None:
    """The finish of an answer (in camelCase) whose prompt was blocked."""
    here = (path, "promptFeedback")
    raw = get_object(answer, "promptFeedback", path) or {}
    feedback = reading.read_inner_node(raw, here, names.PROMPT_FEEDBACK_KEYS)
    reason = feedback.get("blockReason")
    if reason is None:
        return None
    word = str(reason).upper()
    message = get_text(feedback, "blockReasonMessage", here) or "the prompt was blocked"
    # The word is in the message too: only Google has different ones for what others call a content filter.
    detail = f"{message} ({word})"
    return Finish("filter", word, detail=detail, origin=Origin(NAME, here, None, EMPTY_MAPPING, False))


def finish_failure(finish: Finish | None) -> Failure | None:
    """The failure that a finish reason stands for, if any: such an answer must not look like a success."""
    if finish is None or finish.raw not in names.FAILED_FINISH_REASONS:
        return None
    message = f"the model's answer cannot be used ({finish.raw})"
    return Failure("upstream", f"{message}: {finish.detail}" if finish.detail else message, 502, finish.raw.lower())


def read_usage(raw: Object, path: Path, reading: PartReadContext) -> Usage:
    """Token counts. Google counts thinking apart from the other output tokens."""
    node, extra = names.USAGE_KEYS(raw), EMPTY_MAPPING
    if not names.USAGE_KEYS.all_keys.issuperset(raw):
        # Finer counts, by modality or by traffic: the others are their sums.
        extra = names.USAGE_KEYS.select_unknown(raw)
        for key, value in extra.items():
            if is_nonempty(value):
                reading.note_unknown_field(path, key, "usage-mapped")
    prompt, tool_prompt, answer, reasoning, cached, total = reading.read_counts(node, names.COUNT_KEYS, path)
    input, output = (prompt or 0) + (tool_prompt or 0), (answer or 0) + (reasoning or 0)
    usage = Usage(input, output, cached, None, reasoning, total, Origin(NAME, path, raw, extra))
    if not extra:
        return usage
    tier = read_service_tier(extra.get("serviceTier") or extra.get("service_tier"))
    return replace(usage, **_read_modalities(extra), service_tier=tier)


def _read_modalities(extra: Mapping[str, Json]) -> dict[str, int]:
    """Tokens of audio and images, which have prices of their own."""
    found: dict[str, int] = {}
    for key, direction in _DETAIL_LISTS.items():
        rows = extra.get(key)
        for row in rows if isinstance(rows, list) else ():
            field = f"{direction}_{str(row.get('modality')).lower()}" if isinstance(row, dict) else ""
            if field in _PRICED_MODALITIES and (count := find_count(row, "tokenCount")):
                found[field] = found.get(field, 0) + count
    return found


def _write_modalities(usage: Usage) -> Object:
    """The tokens of audio and images, where they are known. Those of text are the rest."""
    out: Object = {}
    for key, direction in _DETAIL_LISTS.items():
        counts = {modality: getattr(usage, f"{direction}_{modality}") for modality in ("audio", "image")}
        rows = [{"modality": modality.upper(), "tokenCount": count} for modality, count in counts.items() if count]
        if rows:
            out[key] = rows
    return out


_DETAIL_LISTS = {"promptTokensDetails": "input", "candidatesTokensDetails": "output"}
_PRICED_MODALITIES = ("input_audio", "input_image", "output_audio", "output_image")


def read_create_time(value: Json, reading: PartReadContext, path: Path = None) -> int | None:
    if value is None:
        return None
    try:
        return int(datetime.fromisoformat(value).timestamp())
    except (ValueError, TypeError, OverflowError):
        reading.note_unknown_field(path, "createTime")
        return None


# --- reading grounding ----------------------------------------------------------------------------------------------

GROUNDING_METADATA_KEYS = ("groundingMetadata", "urlContextMetadata")
"""The keys of a candidate (in camelCase) with results of provider tools."""
_FETCH_SUCCESS = "URL_RETRIEVAL_STATUS_SUCCESS"


def read_grounding(
    candidate: Object, texts: Sequence[str | None], path: Path, reading: PartReadContext
) -> tuple[list[Part], list[tuple[int, Citation]]]:
    """Calls of provider tools with their results, and citations with the number of the text they belong to. `texts`
    has the text of each part, None for parts of other types."""
    fetched = _read_fetched_pages(candidate.get("urlContextMetadata"), (path, "urlContextMetadata"), reading)
    value, path = candidate.get("groundingMetadata"), (path, "groundingMetadata")
    if not is_nonempty(value):
        return [*fetched], []
    node = reading.read_inner_node(value, path, names.GROUNDING_KEYS)
    chunks = _read_chunks(node, path, reading)
    queries = node.get("webSearchQueries")
    if isinstance(queries, list):
        queries = [query for query in queries if query]  # Google sends empty ones at times
    tools = list(dict.fromkeys(tool for tool, _ in chunks if tool))
    if queries and "web_search" not in tools:
        tools.insert(0, "web_search")
    provider_parts: list[Part] = []
    for tool in tools:
        arguments = ""
        if queries and tool == "web_search":
            several = {"queries": queries} if isinstance(queries, list) and len(queries) > 1 else {}
            arguments = encode_text({"query": queries[0] if isinstance(queries, list) else queries} | several)
        sources = tuple(source for kind, source in chunks if kind == tool)
        digest = ids.hex_digest(encode_text([tool, queries, [source.url for source in sources], list(texts)]), 16)
        id = f"{names.GROUNDING_ID_PREFIX}{digest}"
        # Without an origin: they are written as metadata, not as parts of the content.
        provider_parts += [ProviderCall(id, tool, arguments), ProviderResult(id, tool, sources)]
    return [*provider_parts, *fetched], list(_read_supports(node, chunks, texts, path, reading))


def _read_fetched_pages(value: Json, path: Path, reading: PartReadContext) -> Iterable[Part]:
    """The fetched pages, each as a call with its result."""
    if not is_nonempty(value):
        return
    rows = expect_object(value, path)
    here = (path, "urlMetadata")
    for number, item in enumerate(expect_list(rows.get("urlMetadata", rows.get("url_metadata")) or [], here)):
        at = (here, number)
        row = reading.read_inner_node(item, at, names.URL_METADATA_KEYS)
        url, status = get_text(row, "retrievedUrl", at) or "", get_text(row, "urlRetrievalStatus", at) or _FETCH_SUCCESS
        id = f"{names.GROUNDING_ID_PREFIX}{ids.hex_digest(f'{number} {url}', 16)}"
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
        support = reading.read_inner_node(item, at, names.GROUNDING_SUPPORT_KEYS)
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


def write_response(response: Response, ledger: Ledger, context: WriteContext) -> Object:
    if (wire := intact_wire(response.origin)) is not None:
        return wire
    failure = response.failure
    if failure is not None and (failure.code.upper() not in names.FAILED_FINISH_REASONS or not response.choices):
        return write_error_body(failure)
    out: Object = {"candidates": [write_candidate(choice, ledger) for choice in response.choices]}
    if response.usage is not None:
        out["usageMetadata"] = write_usage(response.usage, ledger)
    out |= write_head(response.id, response.model, response.created, context)
    return restore_original_keys(out, response.origin, NAME)


MAX_CREATE_TIME = 253_402_300_799
"""The end of the year 9999: `createTime` has four digits for the year."""


def write_head(id: str, model: str, created: int | None, context: WriteContext) -> Object:
    """The model, the time and the id, which are in every chunk of a stream."""
    out: Object = {"modelVersion": model} if model else {}
    if created is not None and 0 <= created <= MAX_CREATE_TIME:
        out["createTime"] = datetime.fromtimestamp(created, UTC).isoformat().replace("+00:00", "Z")
    if id or context.seed:
        out["responseId"] = id or ids.derive_id("", context.seed)
    return out


def write_candidate(choice: Choice, ledger: Ledger) -> Object:
    if (wire := intact_wire(choice.origin)) is not None:
        return wire
    writing = PartWriteContext(ledger, Family(), in_response=True)
    parts: list[Object] = []
    grounded: list[tuple[int, Part]] = []
    cut = False
    for part in choice.parts:
        if isinstance(part, Call):
            cut = cut or part.incomplete
        elif isinstance(part, (ProviderCall, ProviderResult)) or (isinstance(part, Text) and part.citations):
            grounded.append((len(parts), part))
        written = None if is_grounding(part) else write_part(part, writing)
        if written is not None:
            parts.append(written)
    out: Object = {"content": {"parts": parts or [{"text": ""}], "role": "model"}}
    if choice.finish is not None:
        out |= write_finish(choice.finish, cut, ledger)
    out["index"] = choice.index
    out |= write_grounding(grounded, ledger)
    out |= _write_logprobs(choice, ledger)
    if is_own(choice.origin):
        original = names.CANDIDATE_KEYS(choice.origin.wire).get("groundingMetadata")
        # Such as a search widget.
        if isinstance(original, dict) and (extra := names.GROUNDING_KEYS.select_unknown(original)):
            out["groundingMetadata"] = out.get("groundingMetadata", {}) | extra
    return restore_original_keys(out, choice.origin, NAME)


def _write_logprobs(choice: Choice, ledger: Ledger) -> Object:
    if is_own(choice.origin):
        original = names.CANDIDATE_KEYS(choice.origin.wire).get("logprobsResult")
        return {"logprobsResult": original} if original else {}
    logprobs = [token for part in choice.parts if isinstance(part, (Text, Refusal)) for token in part.logprobs]
    return {"logprobsResult": write_logprobs(tuple(logprobs), ledger)} if logprobs else {}


def write_finish(finish: Finish, has_cut_call: bool, ledger: Ledger) -> Object:
    """The finish reason that was read, if it is one of Gemini's, or else the one for its kind."""
    reason = finish.raw
    ledger.note_stop_sequence(finish)
    if names.KIND_BY_FINISH_REASON.get(reason) != finish.kind or reason not in names.WRITTEN_FINISH_REASONS:
        reason = names.FINISH_REASON_BY_KIND[finish.kind]
        if finish.kind in names.COARSER_FINISH_KINDS:
            what = f"the finish reason `{finish.raw or finish.kind}` became `{reason}`"
            ledger.note("finish-mapped", source_path(finish), what)
    if has_cut_call and finish.kind in ("stop", "calls"):
        reason = names.FINISH_REASON_BY_KIND["length"]
    return {"finishReason": reason, "finishMessage": finish.detail} if finish.detail else {"finishReason": reason}


def write_usage(usage: Usage, ledger: Ledger) -> Object:
    if (wire := intact_wire(usage.origin)) is not None:
        return wire
    if usage.cache_write:
        what = f"the count of {usage.cache_write} tokens written to a cache was left out"
        ledger.note("usage-mapped", source_path(usage), what)
    out: Object = {"promptTokenCount": usage.input, "candidatesTokenCount": usage.output - (usage.reasoning or 0)}
    out["totalTokenCount"] = usage.total if usage.total is not None else usage.input + usage.output
    if usage.cache_read is not None:
        out["cachedContentTokenCount"] = usage.cache_read
    if usage.reasoning is not None:
        out["thoughtsTokenCount"] = usage.reasoning
    out |= _write_modalities(usage)
    return restore_original_keys(out, usage.origin, NAME)


# --- writing grounding ----------------------------------------------------------------------------------------------

_CHUNK_KIND_BY_TOOL = {tool: kind for kind, tool in names.TOOL_BY_CHUNK_KIND.items()} | {"web_fetch": "web"}
_Chunks = dict[tuple[str, str, str], tuple[int, Object]]
"""Grounding chunks with their numbers, by what identifies their source."""


def is_grounding(part: Part) -> bool:
    """Is this part written into the metadata, and not as a part of the content?"""
    if not isinstance(part, (ProviderCall, ProviderResult)) or part.tool not in _CHUNK_KIND_BY_TOOL:
        return False
    # A part that was read from a `toolCall` has an origin, one that was read from the metadata has none.
    if part.origin is None:
        return not part.id or part.id.startswith(names.GROUNDING_ID_PREFIX)
    return part.origin.protocol != NAME


def write_grounding(parts: Iterable[tuple[int, Part]], ledger: Ledger) -> Object:
    """The metadata for these parts, each with its number in the content; {} if there is none."""
    queries: list[str] = []
    chunks: _Chunks = {}
    fetched: list[Object] = []
    cited: list[tuple[int, Text]] = []
    for number, part in parts:
        if isinstance(part, ProviderCall) and is_grounding(part):
            found = search_queries(part.arguments) if part.tool == "web_search" else []
            queries += found
            if part.arguments and not found:  # a page was opened or searched, or there was another tool
                what = f"the arguments of {part.tool} were left out: {part.arguments[:MAX_QUOTED]}"
                ledger.note("no-counterpart", source_path(part), what)
        elif isinstance(part, ProviderResult) and is_grounding(part):
            if part.tool == "web_fetch":
                fetched += _write_fetched_pages(part, ledger)
            else:
                _add_result_chunks(part, chunks, ledger)
        elif isinstance(part, Text) and part.citations:
            cited.append((number, part))
    supports = [support for number, text in cited for support in _write_supports(number, text, chunks, ledger)]
    written = [chunk for _, chunk in chunks.values()]
    fields = {"webSearchQueries": queries, "groundingChunks": written, "groundingSupports": supports}
    metadata = {key: value for key, value in fields.items() if value}
    out: Object = {"groundingMetadata": metadata} if metadata else {}
    return out | ({"urlContextMetadata": {"urlMetadata": fetched}} if fetched else {})


def _add_result_chunks(part: ProviderResult, chunks: _Chunks, ledger: Ledger) -> None:
    for source in part.sources:
        _add_chunk(source, _CHUNK_KIND_BY_TOOL[part.tool], chunks)
    if part.error:
        ledger.note("no-counterpart", source_path(part), f"the error `{part.error}` of {part.tool} was left out")
    if part.text:
        ledger.note("part-dropped", source_path(part), f"the text of a {part.tool} result was left out")


def _write_fetched_pages(part: ProviderResult, ledger: Ledger) -> list[Object]:
    if part.text:
        ledger.note("part-dropped", source_path(part), "the text of a fetched page was left out")
    status = part.error or _FETCH_SUCCESS
    if not status.startswith("URL_"):
        ledger.note("no-counterpart", source_path(part), f"the error `{status}` of a fetched page was left out")
        status = "URL_RETRIEVAL_STATUS_ERROR"
    return [{"retrievedUrl": page.url, "urlRetrievalStatus": status} for page in part.sources]


def _add_chunk(source: Citation, kind: str, chunks: _Chunks) -> int:
    """The number of the chunk of a source. It is identified by its URL, if it has one."""
    key = (source.url, "", "") if source.url else ("", source.title, "")
    if kind == "retrievedContext":
        key = (source.url, source.title, source.quote)
    fields = {"uri": source.url, "title": source.title, "text": key[2]}
    new: Object = {kind: {name: value for name, value in fields.items() if value}}
    number, chunk = chunks.setdefault(key, (len(chunks), new))
    if source.title:
        for known in chunk.values():
            known.setdefault("title", source.title)
    return number


def _write_supports(number: int, text: Text, chunks: _Chunks, ledger: Ledger) -> Iterable[Object]:
    """One support for each cited range of the text, with all its sources."""
    ranges: dict[tuple[int, int], dict[int, None]] = {}
    for citation in text.citations:
        start = citation.start if citation.start is not None else 0
        end = citation.end if citation.end is not None else len(text.text)
        key = (citation.url, citation.title, citation.quote)
        index = chunks[key][0] if key in chunks else _add_chunk(citation, "web", chunks)
        kept = next(iter([*chunks.values()][index][1].values()))
        if citation.quote != kept.get("text", "") or (citation.title and citation.title != kept.get("title")):
            what = f"of a citation only the source was kept: {citation.url or citation.title}"
            ledger.note("citation-mapped", source_path(citation) or source_path(text), what)
        ranges.setdefault((start, end), {})[index] = None
    for (start, end), indices in ranges.items():
        words, before = text.text[start:end], len(text.text[:start].encode())
        segment: Object = {"partIndex": number} if number else {}
        if before:
            segment["startIndex"] = before
        segment |= {"endIndex": before + len(words.encode()), "text": words}
        yield {"segment": segment, "groundingChunkIndices": list(indices)}


# --- peeking --------------------------------------------------------------------------------------------------------


class _CallPeek(Struct, gc=False):
    name: str = ""


class _PartPeek(Struct, gc=False, rename="camel"):
    function_call: _CallPeek | None = None


class _ContentPeek(Struct, gc=False):
    parts: list[_PartPeek] | None = None


class _CandidatePeek(Struct, gc=False):
    content: _ContentPeek | None = None


class _ResponsePeek(Struct, gc=False, rename="camel"):
    candidates: list[Raw]
    model_version: str = ""
    usage_metadata: Object | None = None


_decode_peek, _decode_candidate_peek = partial_decoder(_ResponsePeek), partial_decoder(_CandidatePeek)


def peek_response(data: bytes) -> ResponsePeek | None:
    peek = _decode_peek(data)
    if peek is None or not any(len(candidate) > MAX_HOLLOW_BYTES for candidate in peek.candidates):
        return None
    usage = None if peek.usage_metadata is None else read_usage(peek.usage_metadata, None, PartReadContext())
    called = tuple(_peek_called_tools(peek.candidates)) if data.find(b'"functionCall"') >= 0 else ()
    return ResponsePeek(peek.model_version, usage, called)


def _peek_called_tools(candidates: list[Raw]) -> Iterator[str]:
    for candidate in candidates:
        found = _decode_candidate_peek(candidate)
        content = found.content if found is not None else None
        for part in (content.parts or ()) if content is not None else ():
            if part.function_call is not None and part.function_call.name:
                yield part.function_call.name
