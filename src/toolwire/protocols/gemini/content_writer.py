"""Writing the parts of a content, the mirror of `parts`."""

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
    Seal,
    Summary,
    Text,
    ToolReference,
    ToolsAdded,
    source_path,
)
from toolwire.core.json_values import Object, decode_object_or_none, raw_object_or_none
from toolwire.core.losses import Ledger
from toolwire.core.provenance import is_verbatim, restore_original_keys
from toolwire.core.provider_tools import provider_result_as_text
from toolwire.protocols.gemini.content import RESULT_MEDIA_TYPES, write_media
from toolwire.protocols.gemini.models import Family
from toolwire.protocols.gemini.names import (
    CALL_FRAGMENT_KEYS,
    CODE_KEYS,
    CODE_RESULT_KEYS,
    FILE_KEYS,
    INLINE_KEYS,
    NAME,
    PROVIDER_CALL_KEYS,
    PROVIDER_RESULT_KEYS,
    RAW_ARGUMENTS_KEY,
    RESULT_KEYS,
    TYPE_BY_PROVIDER_TOOL,
    KnownKeys,
    to_snake_case,
)


class PartWriteContext(Struct):
    """One pass of the writer: what the model can take, the names of the calls so far, media that must follow."""

    ledger: Ledger
    family: Family
    in_response: bool = False
    is_foreign: bool = False
    """Does the whole come from another protocol? Then nothing in it is given back as it was."""
    writes_ids: bool = True
    """The second generation makes no ids; a call and its result carry one both, or neither."""
    call_names: dict[str, str] = {}
    media_after_results: list[Object] = []


def is_foreign(origin: Origin | None) -> bool:
    """Was it read from another protocol? What has no origin counts as our own."""
    return origin is not None and origin.protocol != NAME


def write_part(part: Part, writing: PartWriteContext) -> Object | None:
    """One part as this wire has it; None when it cannot be said, which is noted."""
    if is_verbatim(part.origin, NAME):
        if isinstance(part, Call) and part.id:
            writing.call_names[part.id] = part.name
        wire: Object = part.origin.wire  # type: ignore[union-attr]
        return wire
    out = PART_WRITERS[part.__class__](part, writing)
    return None if out is None else restore_original_keys(out, part.origin, NAME)


def write_seal(out: Object, part: Text | Reasoning | Call | Media, ledger: Ledger) -> Object:
    if part.seal is not None:
        if is_own_seal(part.seal):
            out["thoughtSignature"] = part.seal.value
        else:
            ledger.note("seal-dropped", source_path(part), f"a seal of {part.seal.maker} was left out")
    return out


def is_own_seal(seal: Seal) -> bool:
    return seal.maker == NAME or seal.maker.startswith(f"{NAME}/")


def _add_unknown_keys(out: Object, origin: Origin | None, key: str, shape: KnownKeys) -> Object:
    """The unknown keys of a node inside a part, when it was read from this wire."""
    if origin is not None and origin.protocol == NAME and isinstance(origin.wire, dict):
        inner = origin.wire.get(key, origin.wire.get(to_snake_case(key)))
        if isinstance(inner, dict) and not shape.all_keys.issuperset(inner):
            out.update(shape.select_unknown(inner))
    return out


def write_text(part: Text, writing: PartWriteContext) -> Object:
    if part.cache is not None:
        writing.ledger.note("cache-dropped", source_path(part), "the cache breakpoint was left out")
    if part.citations and not writing.in_response:
        writing.ledger.note(
            "citation-dropped", source_path(part), "the citations of a text in the history were left out"
        )
    out: Object = {"text": part.text}
    return out if part.seal is None else write_seal(out, part, writing.ledger)


def _write_reasoning(part: Reasoning, writing: PartWriteContext) -> Object | None:
    sealed = part.seal is not None and is_own_seal(part.seal)
    if not writing.in_response and not sealed and is_foreign(part.origin):
        writing.ledger.note("reasoning-dropped", source_path(part), "thinking that another model did was left out")
        return None
    if writing.in_response and not sealed and not part.text:
        if part.hidden or part.seal is not None:
            writing.ledger.note("reasoning-dropped", source_path(part), "sealed thinking was left out")
        return None
    return write_seal({"text": "" if part.hidden else part.text, "thought": True}, part, writing.ledger)


def _write_refusal(part: Refusal, writing: PartWriteContext) -> Object:
    writing.ledger.note("refusal-as-text", source_path(part), "the refusal became plain text")
    return {"text": part.text}


_NO_IDS_REASON = "models of the second generation pair calls and results by their order"


def _write_identity(part: Call | Result, name: str, writing: PartWriteContext) -> Object:
    """What tells a call or a result: its name, and its id where the model has ids."""
    id, origin = part.id, part.origin
    if not id:
        return {"name": name}
    if writing.writes_ids:
        return {"id": id, "name": name}
    where = None if origin is None else origin.path
    writing.ledger.note("id-rewritten", where, f"the id `{id}` was left out", _NO_IDS_REASON)
    return {"name": name}


def _write_call(part: Call, writing: PartWriteContext) -> Object | None:
    name, arguments, ledger = part.name, raw_object_or_none(part.arguments), writing.ledger
    if part.id:
        writing.call_names[part.id] = name
    if part.incomplete and writing.in_response and (not part.arguments or arguments is None):
        ledger.note("arguments-dropped", source_path(part), f"the call of `{name}` was cut off and left out")
        return None
    if part.cache is not None:
        ledger.note("cache-dropped", source_path(part), "the cache breakpoint was left out")
    call = _write_identity(part, name, writing)
    if arguments is None:
        ledger.note("arguments-wrapped", source_path(part), f"the arguments of `{name}` are no JSON object")
        call["args"] = {RAW_ARGUMENTS_KEY: part.arguments}
    else:
        call["args"] = arguments
    out: Object = {
        "functionCall": call
        if writing.is_foreign
        else _add_unknown_keys(call, part.origin, "functionCall", CALL_FRAGMENT_KEYS)
    }
    return out if part.seal is None else write_seal(out, part, ledger)


def _write_result(part: Result, writing: PartWriteContext) -> Object:
    if part.cache is not None:
        writing.ledger.note("cache-dropped", source_path(part), "the cache breakpoint was left out")
    name = part.name or writing.call_names.get(part.id, "")
    if not name:
        name = "unknown_function"
        writing.ledger.note(
            "name-added", source_path(part), f"the call `{part.id}` that this answers is not in the history"
        )
    result = _write_identity(part, name, writing)
    text, media = _split_content(part.content, writing)
    result["response"] = {"error" if part.error else "output": text if part.value is None else part.value}
    if part.error and is_foreign(part.origin):
        writing.ledger.note("error-marked", source_path(part), "the result stands under the key `error`")
    if media:
        nested = [written for item in media if (written := _place_media(item, writing)) is not None]
        if nested:
            result["parts"] = nested
    if not writing.is_foreign:
        _add_unknown_keys(result, part.origin, "functionResponse", RESULT_KEYS)
    return {"functionResponse": result}


def _split_content(content: tuple[Part, ...], writing: PartWriteContext) -> tuple[str, Sequence[Media | Opaque]]:
    """The text of a result, and what stands beside it; most results are one plain text."""
    if len(content) == 1 and isinstance(only := content[0], Text) and only.cache is None:
        return only.text, ()
    texts: list[str] = []
    media: list[Media | Opaque] = []
    for item in content:
        if isinstance(item, (Text, Refusal)):
            texts.append(item.text)
            if isinstance(item, Text) and item.cache is not None:
                writing.ledger.note("cache-dropped", source_path(item), "the cache breakpoint was left out")
        elif isinstance(item, Media):
            media.append(item)
        elif isinstance(item, ToolReference):
            texts.append(f"The tool `{item.name}` is available now.")
        elif isinstance(item, Opaque) and not is_foreign(item.origin):
            media.append(item)
        elif isinstance(item, Opaque):
            writing.ledger.note_opaque(item)
        else:
            kind = type(item).__name__
            writing.ledger.note("part-dropped", source_path(item), f"a part of type {kind} in a result was left out")
    return "\n".join(texts), media


def _place_media(item: Media | Opaque, writing: PartWriteContext) -> Object | None:
    """Media of a result: inside it for models that take it so, else as a part of its own behind the results."""
    if isinstance(item, Opaque):
        held: Object = item.origin.wire
        return held
    as_it_was = item.origin is not None and not is_foreign(item.origin)
    nested = as_it_was or (writing.family.is_gemini_3 and (item.mime in RESULT_MEDIA_TYPES or not item.data))
    written = item.origin.wire if is_verbatim(item.origin, NAME) else write_media(item, writing.ledger, nested)  # type: ignore[union-attr]
    if written is None or nested:
        return written
    writing.media_after_results.append(written)
    writing.ledger.note("media-moved", source_path(item), f"the {item.kind} follows the results as a part of its own")
    return None


def _write_media(part: Media, writing: PartWriteContext) -> Object | None:
    out = write_media(part, writing.ledger)
    if out is None:
        return None
    key, shape = ("inlineData", INLINE_KEYS) if "inlineData" in out else ("fileData", FILE_KEYS)
    _add_unknown_keys(out[key], part.origin, key, shape)
    return write_seal(out, part, writing.ledger)


def _write_provider_call(part: ProviderCall, writing: PartWriteContext) -> Object | None:
    if not writing.in_response and is_foreign(part.origin):
        return _note_dropped(part, writing)
    identity: Object = {"id": part.id} if part.id else {}
    if part.tool == "code_execution":
        return {
            "executableCode": _add_unknown_keys(_write_code(part) | identity, part.origin, "executableCode", CODE_KEYS)
        }
    word = TYPE_BY_PROVIDER_TOOL.get(part.tool)
    if word is None:
        return _note_dropped(part, writing)
    call = identity | {"toolType": word}
    if part.arguments:
        arguments = raw_object_or_none(part.arguments)
        call["args"] = {RAW_ARGUMENTS_KEY: part.arguments} if arguments is None else arguments
    return {"toolCall": _add_unknown_keys(call, part.origin, "toolCall", PROVIDER_CALL_KEYS)}


def _write_code(part: ProviderCall) -> Object:
    arguments = decode_object_or_none(part.arguments) or {}
    code = arguments.get("code", arguments.get("command"))
    language = arguments.get("language")
    return {
        "language": language if isinstance(language, str) else "PYTHON",
        "code": code if isinstance(code, str) else part.arguments,
    }


def _write_provider_result(part: ProviderResult, writing: PartWriteContext) -> Object | None:
    if not writing.in_response and is_foreign(part.origin):
        text = provider_result_as_text(part, writing.ledger)
        return None if text is None else {"text": text.text}
    identity: Object = {"id": part.id} if part.id else {}
    if part.tool == "code_execution":
        outcome = part.error if part.error.startswith("OUTCOME_") else "OUTCOME_FAILED" if part.error else "OUTCOME_OK"
        result: Object = {"outcome": outcome, "output": part.text} | identity
        return {"codeExecutionResult": _add_unknown_keys(result, part.origin, "codeExecutionResult", CODE_RESULT_KEYS)}
    word = TYPE_BY_PROVIDER_TOOL.get(part.tool)
    if word is None:
        return _note_dropped(part, writing)
    result = identity | {"toolType": word}
    if part.text:
        response = raw_object_or_none(part.text)
        result["response"] = {"output": part.text} if response is None else response
    return {"toolResponse": _add_unknown_keys(result, part.origin, "toolResponse", PROVIDER_RESULT_KEYS)}


def _note_dropped(part: ProviderCall | ProviderResult, writing: PartWriteContext) -> Object | None:
    what = "call" if isinstance(part, ProviderCall) else "result"
    writing.ledger.note(
        "part-dropped", source_path(part), f"a {what} of the provider's own tool `{part.tool}` was left out"
    )
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
