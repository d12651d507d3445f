"""Writing the parts of a content, and their `thoughtSignature`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct

from toolwire.core.ir import (
    Call,
    Media,
    Opaque,
    Origin,
    Part,
    ProviderCall,
    ProviderResult,
    Reasoning,
    Refusal,
    Result,
    Summary,
    Text,
    ToolReference,
    ToolsAdded,
    source_path,
    summarise_media,
)
from toolwire.core.json_values import Object, decode_object_or_none
from toolwire.core.losses import Ledger
from toolwire.core.provenance import restore_original_keys
from toolwire.core.provider_tools import is_returned_call, note_returned_result, provider_result_as_text
from toolwire.protocols.gemini import names
from toolwire.protocols.gemini.content import GOOGLE_FILE_PREFIXES
from toolwire.protocols.gemini.models import Family
from toolwire.protocols.gemini.names import NAME, intact_wire, is_foreign, is_own, is_own_seal, to_snake_case

RESULT_MEDIA_TYPES = frozenset({"image/png", "image/jpeg", "image/webp", "application/pdf", "text/plain"})
"""The media that a result may hold, from Gemini 3 on."""

_DEFAULT_MEDIA_TYPES = {"image": "image/png", "file": "application/pdf", "audio": "audio/wav", "video": "video/mp4"}

_MEDIA_TYPE_BY_EXTENSION = {
    word.partition("/")[2]: word
    for word in """image/png image/jpeg image/webp image/gif image/heic application/pdf audio/mp3 audio/wav video/mp4
    video/webm""".split()
} | {"jpg": "image/jpeg", "txt": "text/plain"}


class PartWriteContext(Struct):
    """The state of one writer."""

    ledger: Ledger
    family: Family
    in_response: bool = False
    is_foreign: bool = False
    """Was the whole request read from another protocol? Then no part is written back verbatim."""
    writes_ids: bool = True
    """Gemini 2 makes no ids; a call and its result both have one, or neither has."""
    call_names: dict[str, str] = {}
    """The names of the calls so far, by id: a result must repeat the name."""
    media_after_results: list[Object] = []

    def note_cache_dropped(self, part: Text | Media | Call | Result) -> None:
        if part.cache is not None:
            self.ledger.note("cache-dropped", source_path(part), "the cache breakpoint was left out")


def write_part(part: Part, writing: PartWriteContext) -> Object | None:
    """One part, or None if Gemini has none for it, which is noted."""
    if (wire := intact_wire(part.origin)) is not None:
        if isinstance(part, Call) and part.id:
            writing.call_names[part.id] = part.name
        return wire
    out = PART_WRITERS[part.__class__](part, writing)
    return None if out is None else restore_original_keys(out, part.origin, NAME)


def write_seal(out: Object, part: Text | Reasoning | Call | Media, ledger: Ledger) -> Object:
    """Add the `thoughtSignature`, if Gemini made it."""
    seal = part.seal
    if seal is None:
        return out
    if is_own_seal(seal):
        out["thoughtSignature"] = seal.value
    else:
        ledger.note("seal-dropped", source_path(part), f"a signature of {seal.maker} was left out")
    return out


def _wrap(key: str, inner: Object, origin: Origin | None) -> Object:
    """A part of this type, with the unknown keys of its inner object if that was read from this protocol."""
    if origin is not None and origin.protocol == NAME and isinstance(origin.wire, dict):
        original = origin.wire.get(key, origin.wire.get(to_snake_case(key)))
        if isinstance(original, dict):
            inner |= names.INNER_KEYS[key].select_unknown(original)
    return {key: inner}


def write_text(part: Text, writing: PartWriteContext) -> Object:
    writing.note_cache_dropped(part)
    if part.citations and not writing.in_response:
        what = "the citations of a text in the history were left out"
        writing.ledger.note("citation-dropped", source_path(part), what)
    return write_seal({"text": part.text}, part, writing.ledger)


def _write_reasoning(part: Reasoning, writing: PartWriteContext) -> Object | None:
    sealed = is_own_seal(part.seal)
    if not writing.in_response and not sealed and is_foreign(part.origin):
        writing.ledger.note("reasoning-dropped", source_path(part), "thinking of another model was left out")
        return None
    if writing.in_response and not sealed and not part.text:
        if part.hidden or part.seal is not None:
            writing.ledger.note("reasoning-dropped", source_path(part), "sealed thinking was left out")
        return None
    return write_seal({"text": "" if part.hidden else part.text, "thought": True}, part, writing.ledger)


def _write_refusal(part: Refusal, writing: PartWriteContext) -> Object:
    writing.ledger.note("refusal-as-text", source_path(part), "the refusal became plain text")
    return {"text": part.text}


def _write_identity(part: Call | Result, name: str, writing: PartWriteContext) -> Object:
    """The name of a call or a result, and its id if the model has ids."""
    if part.id and writing.writes_ids:
        return {"id": part.id, "name": name}
    if part.id:
        why = "Gemini 2 pairs calls and results by their order"
        writing.ledger.note("id-rewritten", source_path(part), f"the id `{part.id}` was left out", why)
    return {"name": name}


def _write_call(part: Call, writing: PartWriteContext) -> Object | None:
    name, ledger = part.name, writing.ledger
    arguments = ledger.embed_object(part.arguments, source_path(part))
    if part.id:
        writing.call_names[part.id] = name
    if part.incomplete and writing.in_response and (not part.arguments or arguments is None):
        ledger.note("arguments-dropped", source_path(part), f"the call of `{name}` was cut off and left out")
        return None
    writing.note_cache_dropped(part)
    call = _write_identity(part, name, writing)
    if arguments is None:
        what = f"the arguments of `{name}` are not a JSON object, so they are sent under `{names.RAW_ARGUMENTS_KEY}`"
        ledger.note("arguments-wrapped", source_path(part), what)
    call["args"] = arguments or {names.RAW_ARGUMENTS_KEY: part.arguments}
    return write_seal(_wrap("functionCall", call, part.origin), part, ledger)


def _write_result(part: Result, writing: PartWriteContext) -> Object:
    writing.note_cache_dropped(part)
    name = part.name or writing.call_names.get(part.id, "")
    if not name:
        name = "unknown_function"
        what = f"the result got the name `{name}`, because its call `{part.id}` is not in the history"
        writing.ledger.note("name-added", source_path(part), what)
    result = _write_identity(part, name, writing)
    text, media = _split_content(part.content, writing)
    if not text and not part.error and is_foreign(part.origin):
        # The output that Google requires: the model would read that there is none.
        text = "\n".join([summarise_media(item) for item in media if isinstance(item, Media)])
    result["response"] = {"error" if part.error else "output": text if part.value is None else part.value}
    if part.error and is_foreign(part.origin):
        writing.ledger.note("error-marked", source_path(part), "the result is sent under the key `error`")
    if media and (nested := [written for item in media if (written := _place_media(item, writing)) is not None]):
        result["parts"] = nested
    return _wrap("functionResponse", result, part.origin)


def _split_content(content: tuple[Part, ...], writing: PartWriteContext) -> tuple[str, Sequence[Media | Opaque]]:
    """The text of a result, and its media. Most results are one text."""
    if len(content) == 1 and isinstance(only := content[0], Text) and only.cache is None:
        return only.text, ()
    texts: list[str] = []
    media: list[Media | Opaque] = []
    for item in content:
        if isinstance(item, (Text, Refusal)):
            texts.append(item.text)
            if isinstance(item, Text):
                writing.note_cache_dropped(item)
        elif isinstance(item, ToolReference):
            texts.append(f"The tool `{item.name}` is available now.")
        elif isinstance(item, Media) or (isinstance(item, Opaque) and not is_foreign(item.origin)):
            media.append(item)
        elif isinstance(item, Opaque):
            writing.ledger.note_opaque(item)
        else:
            kind = type(item).__name__
            writing.ledger.note("part-dropped", source_path(item), f"a part of type {kind} in a result was left out")
    return "\n".join(texts), media


def _place_media(item: Media | Opaque, writing: PartWriteContext) -> Object | None:
    """Media of a result: inside it for Gemini 3, otherwise in a part after the results."""
    if isinstance(item, Opaque):
        return _write_opaque(item, writing)
    nested = is_own(item.origin) or (writing.family.is_gemini_3 and (item.mime in RESULT_MEDIA_TYPES or not item.data))
    written = intact_wire(item.origin) or write_media(item, writing, nested)
    if written is None or nested:
        return written
    writing.media_after_results.append(written)
    writing.ledger.note("media-moved", source_path(item), f"the {item.kind} was moved to a part after the results")
    return None


def _write_media(part: Media, writing: PartWriteContext) -> Object | None:
    out = write_media(part, writing)
    if out is None:
        return None
    ((key, inner),) = out.items()
    return write_seal(_wrap(key, inner, part.origin), part, writing.ledger)


def write_media(media: Media, writing: PartWriteContext, nested: bool = False) -> Object | None:
    """`inlineData` or `fileData`; None if Gemini cannot have it, which is noted."""
    own, ledger = not is_foreign(media.origin), writing.ledger
    if media.detail not in ("", "auto"):
        ledger.note("no-counterpart", source_path(media), f"the detail `{media.detail}` was left out")
    writing.note_cache_dropped(media)
    name = media.name if own or nested else ""
    if media.name and not name:
        ledger.note("no-counterpart", source_path(media), f"the file's name `{media.name}` was left out")
    mime, data, uri = media.mime, media.data, media.url
    if uri.startswith("data:"):
        head, _, data = uri[5:].partition(",")
        mime, uri = mime or head.partition(";")[0], ""
    if data:
        if not mime:
            extension = media.name.rpartition(".")[2].lower()
            mime = _MEDIA_TYPE_BY_EXTENSION.get(extension) or _DEFAULT_MEDIA_TYPES[media.kind]
            ledger.note("default-added", source_path(media), f"the media type was set to {mime}")
        inline: Object = {"mimeType": mime, "data": data}
        return {"inlineData": {**inline, "displayName": name} if name else inline}
    if media.file_id:
        if not own and not media.file_id.startswith(GOOGLE_FILE_PREFIXES):
            what = f"the file `{media.file_id}` is stored at another provider"
            ledger.note("media-dropped", source_path(media), what)
            return None
        uri = media.file_id
    if not uri:
        ledger.note("media-dropped", source_path(media), f"the {media.kind} has neither data nor a URL")
        return None
    if not mime and not own:
        mime = _MEDIA_TYPE_BY_EXTENSION.get(uri.partition("?")[0].rpartition(".")[2].lower(), "")
    file: Object = {"mimeType": mime, "fileUri": uri} if mime else {"fileUri": uri}
    return {"fileData": {**file, "displayName": name} if name else file}


def _write_provider_call(part: ProviderCall, writing: PartWriteContext) -> Object | None:
    if not writing.in_response and is_foreign(part.origin) and not _is_returned_code(part):
        return _note_dropped(part, writing)
    if part.tool != "code_execution":
        return _write_provider_part("toolCall", "args", names.RAW_ARGUMENTS_KEY, part.arguments, part, writing)
    arguments = decode_object_or_none(part.arguments) or {}
    code, language = arguments.get("code", arguments.get("command")), arguments.get("language")
    written: Object = {"language": language if isinstance(language, str) else "PYTHON"}
    written["code"] = code if isinstance(code, str) else part.arguments
    return _wrap("executableCode", written | _write_code_id(part), part.origin)


def _write_provider_result(part: ProviderResult, writing: PartWriteContext) -> Object | None:
    if not writing.in_response and is_foreign(part.origin) and not _is_returned_code(part):
        if is_returned_call(part, names.GROUNDING_ID_PREFIX) or names.RETURNED_ID.fullmatch(part.id):
            note_returned_result(part, writing.ledger)
            return None
        text = provider_result_as_text(part, writing.ledger)
        return None if text is None else {"text": text.text}
    if part.tool != "code_execution":
        return _write_provider_part("toolResponse", "response", "output", part.text, part, writing)
    outcome = part.error if part.error.startswith("OUTCOME_") else "OUTCOME_FAILED" if part.error else "OUTCOME_OK"
    written = {"outcome": outcome, "output": part.text} | _write_code_id(part)
    return _wrap("codeExecutionResult", written, part.origin)


def _is_returned_code(part: ProviderCall | ProviderResult) -> bool:
    return part.tool == "code_execution" and names.RETURNED_ID.fullmatch(part.id) is not None


def _write_code_id(part: ProviderCall | ProviderResult) -> Object:
    """The id that Google gave to executed code, if it gave one."""
    id = part.id.rpartition("_")[2] if is_foreign(part.origin) and _is_returned_code(part) else part.id
    return {"id": id} if id and names.CODE_ID_PREFIX not in part.id else {}


def _write_provider_part(
    key: str, field: str, raw_key: str, value: str, part: ProviderCall | ProviderResult, writing: PartWriteContext
) -> Object | None:
    """A `toolCall` or `toolResponse`; text that is not a JSON object is written under `raw_key`."""
    tool_type = names.TYPE_BY_PROVIDER_TOOL.get(part.tool)
    if tool_type is None:
        return _note_dropped(part, writing)
    inner: Object = {"id": part.id, "toolType": tool_type} if part.id else {"toolType": tool_type}
    if value:
        inner[field] = writing.ledger.embed_object(value, source_path(part)) or {raw_key: value}
    return _wrap(key, inner, part.origin)


def _note_dropped(part: ProviderCall | ProviderResult, writing: PartWriteContext) -> Object | None:
    what = "call" if isinstance(part, ProviderCall) else "result"
    writing.ledger.note("part-dropped", source_path(part), f"a {what} of the provider tool `{part.tool}` was left out")
    return None


def _write_opaque(part: Opaque, writing: PartWriteContext) -> Object | None:
    if is_foreign(part.origin):
        writing.ledger.note_opaque(part)
        return None
    wire: Object = part.origin.wire
    return wire


def _write_misplaced(part: ToolsAdded | ToolReference | Summary, writing: PartWriteContext) -> None:
    writing.ledger.note("part-dropped", source_path(part), f"a part of type {type(part).__name__} was left out")


PART_WRITERS: dict[type, Callable[[Any, PartWriteContext], Object | None]] = {
    Text: write_text,
    Refusal: _write_refusal,
    Reasoning: _write_reasoning,
    Media: _write_media,
    Call: _write_call,
    Result: _write_result,
    ProviderCall: _write_provider_call,
    ProviderResult: _write_provider_result,
    ToolsAdded: _write_misplaced,
    ToolReference: _write_misplaced,
    Summary: _write_misplaced,
    Opaque: _write_opaque,
}
