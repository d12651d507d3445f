"""Content blocks: text, thinking, tool calls, tool results, images, documents, and the cache points between them.

A block is an object with one member, which says what it is. Servers may add members that are null.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from toolwire.core.envelopes import ENVELOPE_PREFIX
from toolwire.core.ir import (
    CacheBreakpoint,
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
    replace_fields,
    source_path,
    split_data_url,
)
from toolwire.core.json_values import (
    Json,
    Malformed,
    Object,
    Path,
    Paths,
    encode_text,
    expect_list,
    expect_object,
    expect_text,
    get_list,
    get_object,
    get_text,
    raise_wrong_type,
    require_text,
)
from toolwire.core.losses import Ledger
from toolwire.core.provenance import ReadContext, items_with_paths, restore_original_keys
from toolwire.core.provider_tools import provider_result_as_text
from toolwire.protocols.bedrock_converse import names
from toolwire.protocols.bedrock_converse.models import UNKNOWN, Family
from toolwire.protocols.bedrock_converse.names import NAME, intact_wire, is_foreign, is_own, is_own_seal, own_block

CACHE_POINT = "cachePoint"
_CACHEABLE = (Text, Media, Call, Result)
"""Parts after which a cache point is kept as a breakpoint of the part."""

# --- reading --------------------------------------------------------------------------------------------------------


class ResponseReadContext(ReadContext):
    """The context of an answer, where results are those of tools that the provider ran."""


def find_member(block: Json, path: Path) -> tuple[str, Json]:
    """The name and the value of a union's one member. Raises Malformed."""
    node = expect_object(block, path)
    members = [(key, value) for key, value in node.items() if value is not None and key != "p"]
    if len(members) == 1:
        return members[0]
    if not members:
        raise Malformed(path, "it has no member: a block has one, such as `text` or `toolUse`")
    listed = ", ".join(f"`{key}`" for key, _ in members[:5])
    raise Malformed(path, f"it has {len(members)} members ({listed}): a block has one")


def read_content(value: Json, path: Path, reading: ReadContext) -> tuple[Part, ...]:
    """The parts of a list of blocks. A cache point becomes the breakpoint of the part before it."""
    if not isinstance(value, list):
        raise_wrong_type(path, "an array of content blocks", value)
    parts: list[Part] = []
    for number, block in enumerate(value):
        part = read_part(block, (path, number), reading)
        if type(part) is Opaque and part.kind == CACHE_POINT and parts:
            cache = _read_breakpoint(part.origin.wire)
            before = parts[-1]
            if cache is not None and isinstance(before, _CACHEABLE) and before.cache is None:
                parts[-1] = replace(before, cache=cache, origin=_with_place(before.origin, (path, number)))
                continue
        parts.append(part)
    return tuple(parts)


def read_part(block: Json, path: Path, reading: ReadContext) -> Part:
    member, value = find_member(block, path)
    read = PART_READERS.get(member)
    part = None if read is None else read(value, (path, member), reading)
    if part is None:
        return Opaque(member, reading.whole_origin(block, path))
    origin: Origin | None = getattr(part, "origin", None)
    if origin is None:
        return replace(part, origin=Origin(NAME, path, block))
    return replace(part, origin=replace(origin, path=path, wire=block))


def _with_place(origin: Origin | None, place: Path) -> Origin | None:
    """What becomes of the part is said of its cache point, too."""
    return None if origin is None else replace(origin, path=Paths((origin.path, place)))


def _read_breakpoint(block: Object) -> CacheBreakpoint:
    """The lifetime of a cache point, "" for the default; None for one that says something else."""
    point = block.get(CACHE_POINT)
    if not isinstance(point, dict) or point.get("type") != "default" or not names.CACHE_POINT_KEYS.issuperset(point):
        return None
    ttl = point.get("ttl")
    return "" if ttl is None else ttl if isinstance(ttl, str) and ttl else None


def read_cache_after(block: Json) -> CacheBreakpoint:
    """The breakpoint that an entry of the tools stands for; None if it is something else."""
    return _read_breakpoint(block) if isinstance(block, dict) else None


def _read_text(value: Json, path: Path, reading: ReadContext) -> Part:
    return Text(expect_text(value, path))


def _read_call(value: Json, path: Path, reading: ReadContext) -> Part | None:
    node = expect_object(value, path)
    if get_text(node, "type", path) is not None:  # a tool that the provider ran: nobody else may run it
        return _read_provider_call(node, path, reading)
    arguments = node.get("input")
    origin = reading.read_origin(node, path, names.CALL_KEYS)
    if isinstance(arguments, (list, str)):
        text = arguments if isinstance(arguments, str) else encode_text(arguments)
        origin = replace(origin, intact=False)
    else:
        text = "" if (given := get_object(node, "input", path)) is None else encode_text(given)
    return Call(get_text(node, "toolUseId", path) or "", require_text(node, "name", path), text, origin=origin)


def _read_provider_call(node: Object, path: Path, reading: ReadContext) -> Part | None:
    tool = names.PROVIDER_TOOL_BY_NAME.get(get_text(node, "name", path) or "")
    if tool is None or node["type"] != "server_tool_use":
        return None
    arguments = node.get("input")
    text = arguments if isinstance(arguments, str) else "" if arguments is None else encode_text(arguments)
    origin = reading.read_origin(node, path, names.CALL_KEYS)
    return ProviderCall(get_text(node, "toolUseId", path) or "", tool, text, origin)


def _read_result(value: Json, path: Path, reading: ReadContext) -> Part | None:
    node = expect_object(value, path)
    status, kind = get_text(node, "status", path), get_text(node, "type", path)
    if kind is not None or isinstance(reading, ResponseReadContext):
        tool = names.PROVIDER_RESULT_TYPES.get(kind or "")
        return None if tool is None else _read_provider_result(tool, node, path, reading)
    content = get_list(node, "content", path) or []
    origin = reading.read_origin(node, path, names.RESULT_KEYS)
    parts = read_content(content, (path, "content"), reading)
    only = content[0] if len(content) == 1 and isinstance(content[0], dict) else {}
    error = None if status is None else status == "error"
    return Result(get_text(node, "toolUseId", path) or "", parts, error, value=only.get("json"), origin=origin)


def _read_provider_result(tool: str, node: Object, path: Path, reading: ReadContext) -> Part:
    items = read_content(get_list(node, "content", path) or [], (path, "content"), reading)
    text = "\n".join([part.text for part in items if isinstance(part, Text)])
    for part in items:
        if not isinstance(part, Text):
            reading.note_unknown_field(source_path(part), type(part).__name__.lower())
    error = "error" if node.get("status") == "error" else ""
    origin = reading.read_origin(node, path, names.RESULT_KEYS)
    return ProviderResult(get_text(node, "toolUseId", path) or "", tool, (), text, error, origin)


def _read_json(value: Json, path: Path, reading: ReadContext) -> Part:
    return Text(encode_text(value))


def _read_reasoning(value: Json, path: Path, reading: ReadContext) -> Part | None:
    member, inner = find_member(value, path)
    if member == "redactedContent":
        return Reasoning(hidden=True, seal=Seal(NAME, expect_text(inner, (path, member))))
    if member != "reasoningText":
        return None
    at = (path, member)
    node = expect_object(inner, at)
    signature = get_text(node, "signature", at)
    origin = reading.read_origin(node, at, names.REASONING_TEXT_KEYS)
    return Reasoning(get_text(node, "text", at) or "", seal=Seal(NAME, signature) if signature else None, origin=origin)


def _make_media_reader(block: str) -> Callable[[Json, Path, ReadContext], Part | None]:
    def read(value: Json, path: Path, reading: ReadContext) -> Part | None:
        node = expect_object(value, path)
        wire_format = get_text(node, "format", path) or ""
        mime = names.FORMATS[block].get(wire_format, f"{block}/{wire_format}" if wire_format else "")
        fields = _read_source(get_object(node, "source", path) or {}, (path, "source"), mime)
        if fields is None:
            return None
        is_document = block == "document"
        known = names.DOCUMENT_KEYS if is_document else names.MEDIA_KEYS
        name = (get_text(node, "name", path) or "") if is_document else ""
        origin = reading.read_origin(node, path, known)
        return Media(names.MEDIA_KINDS[block], name=name, origin=origin, **fields)  # type: ignore[arg-type]

    return read


def _read_source(source: Object, path: Path, mime: str) -> dict[str, Any] | None:
    member, value = find_member(source, path)
    at = (path, member)
    if member == "bytes":
        return {"mime": mime, "data": expect_text(value, at)}
    if member == "s3Location":
        node = expect_object(value, at)
        return None if node.keys() - {"uri"} else {"mime": mime, "file_id": require_text(node, "uri", at)}
    if member == "text":
        text = expect_text(value, at)
    elif member == "content":
        texts = [item.get("text") if isinstance(item, dict) else None for item in expect_list(value, at)]
        if not all(isinstance(one, str) for one in texts):
            return None
        text = "\n".join(map(str, texts))
    else:
        return None
    data = base64.b64encode(text.encode("utf-8", "surrogatepass")).decode()
    return {"mime": mime or "text/plain", "data": data}


def _read_search_result(value: Json, path: Path, reading: ReadContext) -> Part:
    """A search result that the client gives as content: text, with the title and the source above it."""
    node = expect_object(value, path)
    passages = items_with_paths(get_list(node, "content", path) or [], (path, "content"))
    texts = [require_text(expect_object(item, here), "text", here) for item, here in passages]
    heads = [get_text(node, key, path) for key in ("title", "source")]
    origin = reading.read_origin(node, path, names.SEARCH_RESULT_KEYS)
    return Text("\n".join([*filter(None, heads), *texts]), origin=origin)


def _read_guarded(value: Json, path: Path, reading: ReadContext) -> Part | None:
    """Content that a guardrail looks at. For a model it is text like any other, or an image."""
    member, inner = find_member(value, path)
    at = (path, member)
    if member == "image":
        return _make_media_reader("image")(inner, at, reading)
    if member != "text":
        return None
    node = expect_object(inner, at)
    return Text(require_text(node, "text", at), origin=reading.read_origin(node, at, frozenset({"text"})))


def _read_cited_text(value: Json, path: Path, reading: ReadContext) -> Part:
    node = expect_object(value, path)
    pieces = items_with_paths(get_list(node, "content", path) or [], (path, "content"))
    texts = [require_text(expect_object(item, here), "text", here) for item, here in pieces]
    items = items_with_paths(get_list(node, "citations", path) or [], (path, "citations"))
    citations = tuple([read_citation(item, here, reading) for item, here in items])
    return Text("".join(texts), citations, origin=reading.read_origin(node, path, names.CITED_KEYS))


def read_citation(value: Json, path: Path, reading: ReadContext) -> Citation:
    """A citation of a web page, or of a document of the request, which other protocols cannot name."""
    node = expect_object(value, path)
    location = get_object(node, "location", path) or {}
    web = location.get("web")
    url = web.get("url") if isinstance(web, dict) else None
    source = get_text(node, "source", path) or ""
    if not isinstance(url, str):
        url = source if source.startswith(("http://", "https://")) else ""
        if location:
            reading.note_unknown_field(path, "location")
    if source and source != url:
        reading.note_unknown_field(path, "source")
    quotes = [item.get("text") for item in get_list(node, "sourceContent", path) or () if isinstance(item, dict)]
    return Citation(
        url,
        get_text(node, "title", path) or "",
        "".join([quote for quote in quotes if isinstance(quote, str)]),
        origin=reading.read_origin(node, path, names.CITATION_KEYS),
    )


PART_READERS: Mapping[str, Callable[[Json, Path, ReadContext], Part | None]] = {
    "text": _read_text,
    "toolUse": _read_call,
    "toolResult": _read_result,
    "json": _read_json,
    "reasoningContent": _read_reasoning,
    "citationsContent": _read_cited_text,
    "guardContent": _read_guarded,
    "searchResult": _read_search_result,
    **{block: _make_media_reader(block) for block in names.FORMATS},
}

# --- writing --------------------------------------------------------------------------------------------------------


class Writing(Struct):
    """What the blocks of one body are written with."""

    ledger: Ledger
    facts: Family = UNKNOWN
    """What the model of a request takes."""
    in_response: bool = False
    cache_places: dict[int, Path] = {}
    """The place of what asked for each cache point, by the identity of the entry."""
    document_names: set[str] = set()
    """The names of documents so far: they must differ in the whole request (litellm#30093)."""


def write_content(parts: Iterable[Part], writing: Writing) -> list[Object]:
    """The blocks, with the cache point of a part behind it."""
    blocks: list[Object] = []
    for part in parts:
        block = write_part(part, writing)
        if block is None:
            continue
        blocks.append(block)
        cache = result_breakpoint(part) if type(part) is Result else getattr(part, "cache", None)
        if cache is not None and not writing.in_response and _takes_cache_point(part, block, writing):
            point = write_cache_point(cache, writing.ledger, source_path(part))
            writing.cache_places[id(point)] = source_path(part)
            blocks.append(point)
    return blocks


def _takes_cache_point(part: Part, block: Object, writing: Writing) -> bool:
    """Can a cache point follow this block? Of a block that was read from this protocol, its client knows that."""
    if is_own(getattr(part, "origin", None)):
        return True
    if writing.facts.caches:
        return True
    why = "this model takes no cache points"
    writing.ledger.note("cache-dropped", source_path(part), "a cache breakpoint was left out", why)
    return False


def write_cache_point(cache: str, ledger: Ledger, where: Path) -> Object:
    if cache not in ("", "5m", "1h"):
        ledger.note("setting-mapped", where, f"the cache lifetime `{cache}` became `1h`")
        cache = "1h"
    return {CACHE_POINT: {"type": "default"} | ({"ttl": cache} if cache else {})}


def write_part(part: Part, writing: Writing) -> Object | None:
    """One block, or None if there is none for the part."""
    if (wire := intact_wire(part.origin)) is None:
        return PART_WRITERS[type(part)](part, writing)
    if type(part) is Media and part.kind == "file":
        writing.document_names.add(part.name)
    # A model writes empty blocks of citations, and refuses to get them back (botocore#3525).
    is_blank = type(part) is Text and not part.text.strip() and bool(wire.get("citationsContent"))
    if is_blank and not writing.in_response:
        writing.ledger.note("empty-omitted", source_path(part), "a text without words was left out")
        return None
    return wire


def _write_text(part: Text, writing: Writing) -> Object | None:
    ledger = writing.ledger
    if part.seal is not None:
        ledger.note("seal-dropped", source_path(part), "the signature of a text was removed")
    text = part.text
    if not text or (not writing.in_response and text.isspace()):
        if text or part.citations:
            ledger.note("empty-omitted", source_path(part), "text of only white space was left out")
        return None
    if guarded := own_block(part.origin, "guardContent"):
        return {"guardContent": {"text": {**guarded.get("text", {}), "text": text}}}
    citations = [write_citation(item, part, writing) for item in part.citations]
    cited = [wire for wire in citations if wire is not None]
    return {"citationsContent": {"content": [{"text": text}], "citations": cited}} if cited else {"text": text}


def write_citation(item: Citation, part: Part, writing: Writing) -> Object | None:
    ledger = writing.ledger
    if (wire := intact_wire(item.origin)) is not None:
        return wire
    where = source_path(item) or source_path(part)
    if not item.url or not writing.in_response:
        ledger.note("citation-dropped", where, f"a citation of `{item.url or item.title}` was left out")
        return None
    quote = item.quote
    if item.start is not None and item.end is not None:
        quote = quote or (part.text[item.start : item.end] if isinstance(part, Text) else "")
        ledger.note("citation-mapped", where, "a citation quotes its text instead of giving its position")
    out: Object = {"title": item.title} if item.title else {}
    if quote:
        out["sourceContent"] = [{"text": quote}]
    domain = re.sub(r"^[a-z]+://", "", item.url).partition("/")[0]
    return out | {"location": {"web": {"url": item.url, "domain": domain}}}


def _write_refusal(part: Refusal, writing: Writing) -> Object | None:
    writing.ledger.note("refusal-as-text", source_path(part), "a refusal became text")
    return {"text": part.text} if part.text.strip() else None


def _write_reasoning(part: Reasoning, writing: Writing) -> Object | None:
    """Thinking. A signature is written only where there is one: other models refuse the member, also an empty one."""
    seal, ledger = part.seal, writing.ledger
    if is_own_seal(seal):
        if part.hidden and not seal.value.startswith(ENVELOPE_PREFIX) and _is_base64(seal.value):
            return {"reasoningContent": {"redactedContent": seal.value}}
        return {"reasoningContent": {"reasoningText": {"text": part.text, "signature": seal.value}}}
    if seal is not None:
        ledger.note("seal-dropped", source_path(part), "the signature of another provider was removed")
    if not part.text:
        return None
    if not writing.in_response and (writing.facts.signs_reasoning or is_foreign(part.origin)):
        ledger.note("reasoning-dropped", source_path(part), "thinking without a signature was left out")
        return None
    return {"reasoningContent": {"reasoningText": {"text": part.text}}}


def _is_base64(text: str) -> bool:
    """SDKs decode the value, and fail if they cannot."""
    try:
        return base64.b64encode(base64.b64decode(text, validate=True)).decode() == text
    except (binascii.Error, ValueError):
        return False


def _write_call(part: Call, writing: Writing) -> Object | None:
    ledger, where = writing.ledger, source_path(part)
    if part.seal is not None:
        ledger.note("seal-dropped", where, "the signature of a call was removed")
    if part.item_id and not writing.in_response and is_foreign(part.origin):
        what, why = f"the second id `{part.item_id}` of a call was left out", "there is one id for call and result"
        ledger.note("id-rewritten", where, what, why)
    arguments: Json = ledger.embed_object(part.arguments, where) if part.kind != "custom" else None
    if arguments is None:
        what = f"the arguments of `{part.name}` are sent as text under `{names.RAW_ARGUMENTS_KEY}`"
        ledger.note("arguments-wrapped", where, what)
        arguments = {names.RAW_ARGUMENTS_KEY: part.arguments}
    out: Object = {"toolUseId": part.id, "name": part.name, "input": arguments}
    return {"toolUse": _restore_inner(out, part.origin, "toolUse")}


def _restore_inner(out: Object, origin: Origin | None, member: str) -> Object:
    """A written object in the key order of the block that it was read from, with its unknown keys."""
    inner = own_block(origin, member)
    if not inner or origin is None:
        return out
    return restore_original_keys(out, replace(origin, wire=inner), NAME)


NO_OUTPUT = "(no output)"


def _write_result(part: Result, writing: Writing) -> Object | None:
    ledger, where = writing.ledger, source_path(part)
    cached = [item for item in part.content if getattr(item, "cache", None) is not None]
    inner = [replace_fields(item, cache=None) if item in cached else item for item in part.content]
    if type(part.value) is dict and not is_own(part.origin) and not any(type(one) is Media for one in inner):
        content: list[Object] = [{"json": part.value}]
    else:
        content = write_content(inner, writing)
    if not content:
        content = [{"text": "error" if part.error else NO_OUTPUT}]
        ledger.note("default-added", where, "a result without content got a line of text")
    out: Object = {"toolUseId": part.id, "content": content}
    if part.error is not None and (part.error or is_own(part.origin)):
        if writing.facts.has_status or is_own(part.origin):
            out["status"] = "error" if part.error else "success"
        else:
            why = "this model takes no status"
            ledger.note("error-marked", where, "a failed result is marked in its text", why)
            out["content"] = [{"text": "[tool error]"}, *content]
    return {"toolResult": _restore_inner(out, part.origin, "toolResult")}


def result_breakpoint(part: Result) -> CacheBreakpoint:
    """The breakpoint after a result: its own, or that of the last thing in it, where none may be."""
    inner = [cache for item in part.content if (cache := getattr(item, "cache", None)) is not None]
    return part.cache if part.cache is not None else inner[-1] if inner else None


# --- media ----------------------------------------------------------------------------------------------------------

_IMAGE_STARTS = {"/9j/": "jpeg", "iVBOR": "png", "R0lGOD": "gif", "UklGR": "webp"}
"""How the base64 of each format begins."""
_FORMAT_BY_MIME: Mapping[str, Mapping[str, str]] = {
    block: {mime: name for name, mime in reversed([*table.items()])} for block, table in names.FORMATS.items()
}
_NAME_UNSAFE = re.compile(r"[^A-Za-z0-9()\[\]-]+")
MAX_NAME = 200
"""Names of documents: letters, digits, single spaces, hyphens and brackets (vercel/ai#20365)."""


def _write_media(part: Media, writing: Writing) -> Object | None:
    ledger, where = writing.ledger, source_path(part)
    data_url = split_data_url(part.url)
    if data_url is not None and not part.data:
        part = replace(part, mime=part.mime or data_url[0], data=data_url[1], url="")
    if part.detail and part.detail != "auto":
        ledger.note("no-counterpart", where, f"the detail `{part.detail}` was left out")
    if part.seal is not None:
        ledger.note("seal-dropped", where, f"the signature of a part of type {part.kind} was removed")
    block, source = names.MEDIA_BLOCKS[part.kind], _write_source(part)
    wire_format = _find_format(part, writing.in_response)
    if source is None or wire_format is None or (writing.in_response and part.kind != "image"):
        what = f"the file `{part.file_id}` is stored at another provider" if part.file_id else ""
        what = what or (f"{part.url[:200]} is not fetched" if part.url else f"{part.mime or part.kind} was left out")
        ledger.note("media-dropped", where, what)
        return None
    written = names.FORMATS[block].get(wire_format, "")
    if part.mime and part.kind == "image" and written != part.mime:
        ledger.note("setting-mapped", where, f"an image of type `{part.mime}` is sent as `{written}`")
    out: Object = {"format": wire_format, "source": source} if wire_format else {"source": source}
    if part.kind == "file":
        if part.mime.startswith("text/") and part.mime not in _FORMAT_BY_MIME["document"]:
            ledger.note("setting-mapped", where, f"a file of type `{part.mime}` is sent as `text/plain`")
        out = {"name": _write_document_name(part, writing), **out}
    else:
        ledger.note_media_name(part)
    return {block: _restore_inner(out, part.origin, block)}


def _write_source(part: Media) -> Object | None:
    """The bytes, or the place in S3: there is no other URL."""
    if part.data:
        return {"bytes": part.data}
    uri = part.file_id if is_own(part.origin) else part.url
    return {"s3Location": {"uri": uri}} if uri.startswith("s3://") else None


def _find_format(part: Media, in_response: bool) -> str | None:
    """The format by the media type, for images by their first bytes; None if there is none for it."""
    block = names.MEDIA_BLOCKS[part.kind]
    if part.kind == "image" and not (in_response and part.mime in names.IMAGE_FORMATS.values()):
        found = next((name for start, name in _IMAGE_STARTS.items() if part.data.startswith(start)), None)
        if found is not None:
            return found
    mime = part.mime.partition(";")[0].strip().lower()
    if block == "document" and part.data.startswith("JVBERi"):
        return "pdf"
    found = _FORMAT_BY_MIME[block].get(mime)
    if found is None and mime.startswith(f"{block}/") and is_own(part.origin):
        return mime.partition("/")[2]
    if found is None and block == "document" and document_text(part if mime else replace(part, mime="text/plain")):
        return "txt"
    return {"image/jpg": "jpeg", "audio/mp3": "mp3", "audio/x-wav": "wav"}.get(mime) if found is None else found


def _write_document_name(part: Media, writing: Writing) -> str:
    """A legal name that no other document of the request has. It depends only on what is before it, so that the prefix
    of the conversation stays the same."""
    name = part.name
    if not is_own(part.origin) or not name:
        name = _NAME_UNSAFE.sub(" ", name).strip()[: MAX_NAME - 8].strip() or "document"
    number, given = 1, name
    while name in writing.document_names:
        number += 1
        name = f"{given} {number}"
    writing.document_names.add(name)
    if name != part.name:
        what = (
            f"the name `{part.name}` of a document became `{name}`" if part.name else f"a document is called `{name}`"
        )
        code = "name-rewritten" if part.name else "name-added"
        writing.ledger.note(code, source_path(part), what)
    return name


# --- what there is no block for -------------------------------------------------------------------------------------


def _write_provider_call(part: ProviderCall, writing: Writing) -> Object | None:
    name = names.NAME_BY_PROVIDER_TOOL.get(part.tool)
    if name is None or not (writing.in_response or is_own(part.origin)):
        writing.ledger.note_provider_part(part)
        return None
    arguments = writing.ledger.embed_object(part.arguments, source_path(part))
    out: Object = {
        "toolUseId": part.id,
        "name": name,
        "input": {"input": part.arguments} if arguments is None else arguments,
        "type": "server_tool_use",
    }
    return {"toolUse": _restore_inner(out, part.origin, "toolUse")}


def _write_provider_result(part: ProviderResult, writing: Writing) -> Object | None:
    name = names.NAME_BY_PROVIDER_TOOL.get(part.tool)
    if name is None or not (writing.in_response or is_own(part.origin)):
        if writing.in_response:
            writing.ledger.note_provider_part(part)
            return None
        text = provider_result_as_text(part, writing.ledger)
        return None if text is None else {"text": text.text}
    sources = [{"json": {"url": one.url, "title": one.title}} for one in part.sources]
    content: list[Object] = [*sources, *([{"text": part.text}] if part.text else [])]
    out: Object = {
        "toolUseId": part.id,
        "type": f"{name}_result",
        "status": "error" if part.error else "success",
        "content": content,
    }
    return {"toolResult": _restore_inner(out, part.origin, "toolResult")}


def _write_tool_reference(part: ToolReference, writing: Writing) -> Object | None:
    writing.ledger.note("part-dropped", source_path(part), f"the reference to `{part.name}` was left out")
    return None


def _write_summary(part: Summary, writing: Writing) -> Object | None:
    writing.ledger.note("part-dropped", source_path(part), "a summary that only its provider can read was left out")
    return None


def _write_tools_added(part: ToolsAdded, writing: Writing) -> Object | None:
    writing.ledger.note(
        "part-dropped", source_path(part), "tools that were added during the conversation were left out"
    )
    return None


def _write_opaque(part: Opaque, writing: Writing) -> Object | None:
    if is_own(part.origin) and isinstance(part.origin.wire, dict):
        return part.origin.wire
    writing.ledger.note_opaque(part)
    return None


PART_WRITERS: dict[type, Callable[..., Object | None]] = {
    Text: _write_text,
    Reasoning: _write_reasoning,
    Refusal: _write_refusal,
    Call: _write_call,
    Result: _write_result,
    Media: _write_media,
    ProviderCall: _write_provider_call,
    ProviderResult: _write_provider_result,
    ToolReference: _write_tool_reference,
    ToolsAdded: _write_tools_added,
    Summary: _write_summary,
    Opaque: _write_opaque,
}
