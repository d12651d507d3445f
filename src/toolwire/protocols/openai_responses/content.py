"""The parts of a Responses message, read and written: text, refusals, images and files, for the user (`input_*`) and
the model (`output_*`)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, TypeAlias

from toolwire.core.ir import (
    Citation,
    Logprobs,
    Media,
    Opaque,
    Origin,
    Part,
    Refusal,
    Text,
    Turn,
    UnknownField,
    source_path,
    split_data_url,
)
from toolwire.core.json_values import (
    Json,
    Object,
    Path,
    expect_list,
    expect_object,
    get_int,
    get_list,
    get_object,
    get_text,
)
from toolwire.core.logprobs import LogprobsReadContext, read_openai_logprobs
from toolwire.core.losses import Ledger
from toolwire.core.provenance import ReadContext, is_nonempty, items_with_paths, restore_original_keys
from toolwire.protocols.openai_responses import names
from toolwire.protocols.openai_responses.names import NAME, intact_wire, is_own

Side: TypeAlias = Literal["input", "output"]

INPUT_TEXT_KEYS = frozenset({"type", "text", "prompt_cache_breakpoint"})
OUTPUT_TEXT_KEYS = frozenset({"type", "text", "annotations"})
REFUSAL_KEYS = frozenset({"type", "refusal"})
IMAGE_KEYS = frozenset({"type", "image_url", "file_id", "detail", "prompt_cache_breakpoint"})
FILE_KEYS = frozenset({"type", "file_id", "file_url", "file_data", "filename", "detail", "prompt_cache_breakpoint"})
AUDIO_KEYS = frozenset({"type", "input_audio"})
CITATION_KEYS = frozenset({"type", "url", "title", "start_index", "end_index"})


def read_item_origin(
    reading: ReadContext, node: Object, path: Path, known: frozenset[str], ignored_key: str = ""
) -> Origin:
    """The origin of an item. Keys with a default value, and `ignored_key`, are kept but not noted as unknown."""
    if known.issuperset(node):
        return Origin(NAME, path, node)
    extra = {key: value for key, value in node.items() if key not in known and key != "async_"}
    for key, value in extra.items():
        is_default = value in _DEFAULT_VALUES.get(key, ())
        if key != ignored_key and is_nonempty(value) and not is_default:
            reading.note_unknown_field(path, key, "id-rewritten" if key == "id" else "unknown-field")
    return Origin(NAME, path, node, extra)


def list_answer_losses(reading: ReadContext) -> list[UnknownField]:
    """The unknown fields of an answer. Ids of items are none of them: calls and results are paired by `call_id`, other
    protocols have ids of their own, and unified carries these."""
    return [field for field in reading.unknown_fields if field.code != "id-rewritten"]


_DEFAULT_VALUES: Mapping[str, tuple[Json, ...]] = {
    "status": ("completed", "in_progress"),
    "caller": ({"type": "direct"},),
}


def read_content(value: Json, path: Path, reading: ReadContext) -> tuple[Part, ...]:
    """The content of a message: a string, a list of parts, or null."""
    if isinstance(value, str):
        return (Text(value, (), None, None, Origin(NAME, path, value)),)
    if value is None:
        return ()
    return tuple([read_part(part, (path, number), reading) for number, part in enumerate(expect_list(value, path))])


def read_part(value: Json, path: Path, reading: ReadContext) -> Part:
    node = value if type(value) is dict else expect_object(value, path)
    kind = get_text(node, "type", path) or "input_text"
    reader = PART_READERS.get(kind)
    if reader is None:
        return Opaque(names.CONTENT_KIND_PREFIX + kind, Origin(NAME, path, node))
    return reader(node, path, reading)


def _read_input_text(node: Object, path: Path, reading: ReadContext) -> Part:
    cache = _read_cache(node, path) if len(node) > 2 else None
    return Text(get_text(node, "text", path) or "", (), cache, None, reading.read_origin(node, path, INPUT_TEXT_KEYS))


def _read_output_text(node: Object, path: Path, reading: ReadContext) -> Part:
    citations: tuple[Citation, ...] = ()
    if node.get("annotations"):
        annotations = items_with_paths(get_list(node, "annotations", path) or [], (path, "annotations"))
        citations = tuple([read_citation(expect_object(one, at), at, reading) for one, at in annotations])
    origin = reading.read_origin(node, path, OUTPUT_TEXT_KEYS)
    return Text(get_text(node, "text", path) or "", citations, None, None, origin)


def split_logprobs(node: Object, path: Path, reading: ReadContext) -> tuple[Object, Logprobs]:
    """A text part of an answer without `logprobs`, and its tokens. In a history nobody needs them: they are unknown."""
    if not node.get("logprobs"):
        return node, ()
    inner = LogprobsReadContext(NAME)
    logprobs = read_openai_logprobs(node["logprobs"], (path, "logprobs"), inner)
    if logprobs is None:
        return node, ()
    reading.unknown_fields += inner.unknown_fields
    return {key: value for key, value in node.items() if key != "logprobs"}, logprobs


FILE_CITATION_KEYS = frozenset({"type", "filename"})


def read_citation(node: Object, path: Path, reading: ReadContext) -> Citation:
    """A source on the web. Other annotations name files at OpenAI and are carried as they are."""
    if node.get("type") != "url_citation":
        origin = reading.read_origin(node, path, FILE_CITATION_KEYS)
        return Citation(title=str(node.get("filename") or ""), origin=origin)
    url, title = get_text(node, "url", path) or "", get_text(node, "title", path) or ""
    start, end = get_int(node, "start_index", path), get_int(node, "end_index", path)
    return Citation(url, title, start=start, end=end, origin=reading.read_origin(node, path, CITATION_KEYS))


def _read_cache(node: Object, path: Path) -> str | None:
    point = get_object(node, "prompt_cache_breakpoint", path)
    return None if point is None else str(point.get("ttl") or "")


def read_image(node: Object, path: Path, origin: Origin) -> Media:
    url = get_text(node, "image_url", path) or ""
    inline = split_data_url(url)
    mime, data = inline or ("", "")
    return Media(
        "image",
        mime,
        data,
        "" if inline else url,
        file_id=get_text(node, "file_id", path) or "",
        detail=get_text(node, "detail", path) or "",
        cache=_read_cache(node, path),
        origin=origin,
    )


def _read_file(node: Object, path: Path, reading: ReadContext) -> Part:
    text = get_text(node, "file_data", path) or ""
    return Media(
        "file",
        *(split_data_url(text) or ("", text)),
        get_text(node, "file_url", path) or "",
        file_id=get_text(node, "file_id", path) or "",
        name=get_text(node, "filename", path) or "",
        detail=get_text(node, "detail", path) or "",
        cache=_read_cache(node, path),
        origin=reading.read_origin(node, path, FILE_KEYS),
    )


def _read_audio(node: Object, path: Path, reading: ReadContext) -> Part:
    sound = get_object(node, "input_audio", path) or {}
    at = (path, "input_audio")
    form, data = get_text(sound, "format", at), get_text(sound, "data", at) or ""
    origin = reading.read_origin(node, path, AUDIO_KEYS)
    return Media("audio", f"audio/{form}" if form else "", data, origin=origin)


PART_READERS: Mapping[str, Callable[[Object, Path, ReadContext], Part]] = {
    "input_text": _read_input_text,
    "text": _read_input_text,
    "output_text": _read_output_text,
    "refusal": lambda node, path, reading: Refusal(
        get_text(node, "refusal", path) or "", reading.read_origin(node, path, REFUSAL_KEYS)
    ),
    "input_image": lambda node, path, reading: read_image(node, path, reading.read_origin(node, path, IMAGE_KEYS)),
    "input_file": _read_file,
    "input_audio": _read_audio,
}

OUTPUT_PART_TYPES = ("output_text", "refusal")
_AGENT_MESSAGE_KEYS = frozenset({"type", "id", "author", "recipient", "content", "agent"})
_SEALED_TEXT = re.compile(r"gAAAA[A-Za-z0-9_-]{95,}={0,2}")
"""A text that OpenAI has encrypted; it is never shorter."""


def read_agent_message(node: Object, path: Path, reading: ReadContext) -> Turn:
    """A message of one Codex agent to another, as a user's turn: sender and task are in the text."""
    content = items_with_paths(get_list(node, "content", path) or [], (path, "content"))
    parts = tuple([_read_agent_part(expect_object(part, at), at, reading) for part, at in content])
    return Turn("user", parts, origin=read_item_origin(reading, node, path, _AGENT_MESSAGE_KEYS))


def _read_agent_part(node: Object, path: Path, reading: ReadContext) -> Part:
    """Codex sends the argument of a call back as `encrypted_content`, as it was declared. Models that encrypt nothing
    wrote it as plain text."""
    text = node.get("encrypted_content")
    if node.get("type") == "encrypted_content" and isinstance(text, str) and not _SEALED_TEXT.fullmatch(text):
        return Text(text, origin=Origin(NAME, path, None, intact=False))
    return read_part(node, path, reading)


def write_content(parts: Sequence[Part], side: Side, ledger: Ledger) -> Json:
    """The content of a message; an unchanged string is given back as a string."""
    origin = parts[0].origin if len(parts) == 1 else None
    if is_own(origin) and origin.intact and isinstance(origin.wire, str):
        return origin.wire
    return [written for part in parts if (written := write_part(part, side, ledger)) is not None]


def write_part(part: Part, side: Side, ledger: Ledger) -> Object | None:
    """One part of a message, or None, with a note, when there is no place for it."""
    if (wire := intact_wire(part.origin)) is not None:
        kind = wire.get("type")
        if isinstance(part, Opaque) or (kind in PART_READERS and (kind in OUTPUT_PART_TYPES) == (side == "output")):
            return wire
    match part:
        case Text():
            return _write_text(part, side, ledger)
        case Refusal():
            if side == "output":
                return _add_unknown_keys({"type": "refusal", "refusal": part.text}, part.origin)
            ledger.note("refusal-as-text", source_path(part), "a refusal became text")
            return {"type": "input_text", "text": part.text}
        case Media():
            return write_media(part, ledger)
        case Opaque():
            ledger.note_opaque(part)
        case _:
            what = f"a part of type {type(part).__name__} was left out of a message"
            ledger.note("part-dropped", source_path(part), what)
    return None


def _write_text(part: Text, side: Side, ledger: Ledger) -> Object:
    if side == "output":
        out: Object = {"type": "output_text", "text": part.text, "annotations": []}
        if part.citations:
            citations = [write_citation(one, len(part.text), ledger) for one in part.citations]
            out["annotations"] = [one for one in citations if one]
    else:
        out = {"type": "input_text", "text": part.text}
        for citation in part.citations:
            ledger.note("citation-dropped", source_path(citation), "a citation in a user's text was left out")
    if part.seal is not None:
        ledger.note("seal-dropped", source_path(part), "the seal of a text was left out")
    if part.cache is not None:
        _write_cache(part.cache, out, side, source_path(part), ledger)
    return _add_unknown_keys(out, part.origin) if is_own(part.origin) else out


def _add_unknown_keys(out: Object, origin: Origin | None) -> Object:
    """Give unknown keys back to a part of the same type only."""
    same = is_own(origin) and isinstance(origin.wire, dict) and origin.wire.get("type") == out["type"]
    return restore_original_keys(out, origin, NAME) if same else out


def _write_cache(cache: str, out: Object, side: Side, where: Path, ledger: Ledger) -> None:
    """A breakpoint is written only for a Responses client: older OpenAI models refuse it, and cache by themselves."""
    if side == "input" and ledger.source == NAME:
        out["prompt_cache_breakpoint"] = {"mode": "explicit", "ttl": cache} if cache else {"mode": "explicit"}
    else:
        ledger.note("cache-dropped", where, "a cache breakpoint was left out")


def write_citation(citation: Citation, text_length: int, ledger: Ledger) -> Object | None:
    if (wire := intact_wire(citation.origin)) is not None:
        return wire
    if not citation.url:
        ledger.note("citation-dropped", source_path(citation), "a citation without a URL was left out")
        return None
    out: Object = {"type": "url_citation", "url": citation.url, "title": citation.title}
    if citation.quote:
        ledger.note("citation-mapped", source_path(citation), "the quoted text of a citation was left out")
    if citation.start is not None or ledger.source != NAME:
        out["start_index"] = citation.start or 0
    if citation.end is not None or ledger.source != NAME:
        out["end_index"] = text_length if citation.end is None else citation.end
    return restore_original_keys(out, citation.origin, NAME)


IMAGE_DETAILS = frozenset({"low", "high", "auto", "original"})
FILE_EXTENSIONS = {"application/pdf": "pdf", "text/plain": "txt", "text/markdown": "md", "text/csv": "csv"}


def write_media(part: Media, ledger: Ledger) -> Object | None:
    """Media of a message. The ids of OpenAI's files begin with `file-`; Chat has the same ones."""
    is_openai_file = part.file_id.startswith("file-") or part.origin is None or is_own(part.origin)
    if part.file_id and not is_openai_file:
        ledger.note("media-dropped", source_path(part), "a file that another provider holds was left out")
        return None
    if part.kind == "image":
        out = _write_image(part, ledger)
    elif part.kind == "file":
        out = _write_file(part, ledger)
    elif part.kind == "audio" and part.data and ledger.source == NAME:
        out = {"type": "input_audio", "input_audio": {"data": part.data, "format": part.mime.partition("/")[2]}}
    else:
        ledger.note("media-dropped", source_path(part), f"{part.kind} was left out")
        return None
    if part.seal is not None:
        ledger.note("seal-dropped", source_path(part), "the seal of a media part was left out")
    if part.detail in IMAGE_DETAILS or (part.detail and ledger.source == NAME):
        out["detail"] = part.detail
    elif part.detail:
        ledger.note("setting-mapped", source_path(part), f"the detail {part.detail!r} was left out")
    if part.cache is not None:
        _write_cache(part.cache, out, "input", source_path(part), ledger)
    return _add_unknown_keys(out, part.origin)


def image_url(part: Media) -> str:
    return f"data:{part.mime or 'image/png'};base64,{part.data}" if part.data else part.url


def _write_image(part: Media, ledger: Ledger) -> Object:
    fields = {"type": "input_image", "image_url": image_url(part), "file_id": part.file_id}
    ledger.note_media_name(part)
    return {key: value for key, value in fields.items() if value}


def _write_file(part: Media, ledger: Ledger) -> Object:
    out: Object = {"type": "input_file"}
    if part.file_id:
        out["file_id"] = part.file_id
    if part.url:
        out["file_url"] = part.url
    name = part.name
    if part.data:
        if not name and ledger.source != NAME:
            name = f"file.{FILE_EXTENSIONS.get(part.mime, part.mime.rpartition('/')[2] or 'bin')}"
            ledger.note("name-added", source_path(part), f"a file was named {name!r}")
        out["filename"] = name
        out["file_data"] = f"data:{part.mime};base64,{part.data}" if part.mime else part.data
    elif name and ledger.source == NAME:
        out["filename"] = name
    elif name:
        ledger.note("no-counterpart", source_path(part), "the name of a file given by reference was left out")
    if not out.get("filename", " "):
        del out["filename"]
    return out
