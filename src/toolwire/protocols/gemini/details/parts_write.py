"""Writing the parts of a content, the mirror of `parts`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct

from toolwire.hosted import retold
from toolwire.ir import (
    Call,
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
from toolwire.protocols.gemini.details.media import NESTED, write_media
from toolwire.protocols.gemini.models import Family
from toolwire.protocols.gemini.names import (
    CODE,
    FILE,
    FRAGMENT,
    HOSTED_CALL,
    HOSTED_RESULT,
    INLINE,
    NAME,
    OUTCOME,
    RAW_ARGUMENTS,
    RESULT,
    TOOL_TYPE_WORDS,
    Shape,
    snake,
)
from toolwire.reading import finished, verbatim
from toolwire.wire import Object, embedded, object_or_none


class Writing(Struct):
    """One pass of the writer: what the model can take, the names of the calls so far, media that must follow."""

    ledger: Ledger
    family: Family
    answer: bool = False
    foreign: bool = False
    """Does the whole come from another protocol? Then nothing in it is given back as it was."""
    ids: bool = True
    """The second generation makes no ids; a call and its result carry one both, or neither."""
    names: dict[str, str] = {}
    siblings: list[Object] = []


def foreign(origin: Origin | None) -> bool:
    """Was it read from another protocol? What has no origin counts as our own."""
    return origin is not None and origin.protocol != NAME


def write_part(part: Part, writing: Writing) -> Object | None:
    """One part as this wire has it; None when it cannot be said, which is noted."""
    if verbatim(part.origin, NAME):
        if isinstance(part, Call) and part.id:
            writing.names[part.id] = part.name
        wire: Object = part.origin.wire  # type: ignore[union-attr]
        return wire
    out = WRITERS[part.__class__](part, writing)
    return None if out is None else finished(out, part.origin, NAME)


def write_seal(out: Object, part: Text | Reasoning | Call | Media, ledger: Ledger) -> Object:
    if part.seal is not None:
        if own_seal(part.seal):
            out["thoughtSignature"] = part.seal.value
        else:
            ledger.note("seal-dropped", place(part), f"a seal of {part.seal.maker} was left out")
    return out


def own_seal(seal: Seal) -> bool:
    return seal.maker == NAME or seal.maker.startswith(f"{NAME}/")


def _carried(out: Object, origin: Origin | None, key: str, shape: Shape) -> Object:
    """The unknown keys of a node inside a part, when it was read from this wire."""
    if origin is not None and origin.protocol == NAME and isinstance(origin.wire, dict):
        inner = origin.wire.get(key, origin.wire.get(snake(key)))
        if isinstance(inner, dict) and not shape.known.issuperset(inner):
            out.update(shape.unknown(inner))
    return out


def write_text(part: Text, writing: Writing) -> Object:
    if part.cache is not None:
        writing.ledger.note("cache-dropped", place(part), "the cache breakpoint was left out")
    if part.citations and not writing.answer:
        writing.ledger.note("citation-dropped", place(part), "the citations of a text in the history were left out")
    out: Object = {"text": part.text}
    return out if part.seal is None else write_seal(out, part, writing.ledger)


def _write_reasoning(part: Reasoning, writing: Writing) -> Object | None:
    sealed = part.seal is not None and own_seal(part.seal)
    if not writing.answer and not sealed and foreign(part.origin):
        writing.ledger.note("reasoning-dropped", place(part), "thinking that another model did was left out")
        return None
    if writing.answer and not sealed and not part.text:
        if part.hidden or part.seal is not None:
            writing.ledger.note("reasoning-dropped", place(part), "sealed thinking was left out")
        return None
    return write_seal({"text": "" if part.hidden else part.text, "thought": True}, part, writing.ledger)


def _write_refusal(part: Refusal, writing: Writing) -> Object:
    writing.ledger.note("refusal-as-text", place(part), "the refusal became plain text")
    return {"text": part.text}


_WITHOUT_IDS = "models of the second generation pair calls and results by their order"


def _named(part: Call | Result, name: str, writing: Writing) -> Object:
    """What tells a call or a result: its name, and its id where the model has ids."""
    id, origin = part.id, part.origin
    if not id:
        return {"name": name}
    if writing.ids:
        return {"id": id, "name": name}
    where = None if origin is None else origin.path
    writing.ledger.note("id-rewritten", where, f"the id `{id}` was left out", _WITHOUT_IDS)
    return {"name": name}


def _write_call(part: Call, writing: Writing) -> Object | None:
    name, arguments, ledger = part.name, embedded(part.arguments), writing.ledger
    if part.id:
        writing.names[part.id] = name
    if part.incomplete and writing.answer and (not part.arguments or arguments is None):
        ledger.note("arguments-dropped", place(part), f"the call of `{name}` was cut off and left out")
        return None
    if part.cache is not None:
        ledger.note("cache-dropped", place(part), "the cache breakpoint was left out")
    call = _named(part, name, writing)
    if arguments is None:
        ledger.note("arguments-wrapped", place(part), f"the arguments of `{name}` are no JSON object")
        call["args"] = {RAW_ARGUMENTS: part.arguments}
    else:
        call["args"] = arguments
    out: Object = {"functionCall": call if writing.foreign else _carried(call, part.origin, "functionCall", FRAGMENT)}
    return out if part.seal is None else write_seal(out, part, ledger)


def _write_result(part: Result, writing: Writing) -> Object:
    if part.cache is not None:
        writing.ledger.note("cache-dropped", place(part), "the cache breakpoint was left out")
    name = part.name or writing.names.get(part.id, "")
    if not name:
        name = "unknown_function"
        writing.ledger.note("name-added", place(part), f"the call `{part.id}` that this answers is not in the history")
    result = _named(part, name, writing)
    text, media = _split_content(part.content, writing)
    result["response"] = {"error" if part.error else "output": text if part.value is None else part.value}
    if part.error and foreign(part.origin):
        writing.ledger.note("error-marked", place(part), "the result stands under the key `error`")
    if media:
        nested = [written for item in media if (written := _place_media(item, writing)) is not None]
        if nested:
            result["parts"] = nested
    if not writing.foreign:
        _carried(result, part.origin, "functionResponse", RESULT)
    return {"functionResponse": result}


def _split_content(content: tuple[Part, ...], writing: Writing) -> tuple[str, Sequence[Media | Opaque]]:
    """The text of a result, and what stands beside it; most results are one plain text."""
    if len(content) == 1 and isinstance(only := content[0], Text) and only.cache is None:
        return only.text, ()
    texts: list[str] = []
    media: list[Media | Opaque] = []
    for item in content:
        if isinstance(item, (Text, Refusal)):
            texts.append(item.text)
            if isinstance(item, Text) and item.cache is not None:
                writing.ledger.note("cache-dropped", place(item), "the cache breakpoint was left out")
        elif isinstance(item, Media):
            media.append(item)
        elif isinstance(item, ToolReference):
            texts.append(f"The tool `{item.name}` is available now.")
        elif isinstance(item, Opaque) and not foreign(item.origin):
            media.append(item)
        elif isinstance(item, Opaque):
            writing.ledger.opaque(item)
        else:
            kind = type(item).__name__
            writing.ledger.note("part-dropped", place(item), f"a part of type {kind} in a result was left out")
    return "\n".join(texts), media


def _place_media(item: Media | Opaque, writing: Writing) -> Object | None:
    """Media of a result: inside it for models that take it so, else as a part of its own behind the results."""
    if isinstance(item, Opaque):
        held: Object = item.origin.wire
        return held
    as_it_was = item.origin is not None and not foreign(item.origin)
    nested = as_it_was or (writing.family.third and (item.mime in NESTED or not item.data))
    written = item.origin.wire if verbatim(item.origin, NAME) else write_media(item, writing.ledger, nested)  # type: ignore[union-attr]
    if written is None or nested:
        return written
    writing.siblings.append(written)
    writing.ledger.note("media-moved", place(item), f"the {item.kind} follows the results as a part of its own")
    return None


def _write_media(part: Media, writing: Writing) -> Object | None:
    out = write_media(part, writing.ledger)
    if out is None:
        return None
    key, shape = ("inlineData", INLINE) if "inlineData" in out else ("fileData", FILE)
    _carried(out[key], part.origin, key, shape)
    return write_seal(out, part, writing.ledger)


def _write_hosted_call(part: HostedCall, writing: Writing) -> Object | None:
    if not writing.answer and foreign(part.origin):
        return _dropped(part, writing)
    identity: Object = {"id": part.id} if part.id else {}
    if part.tool == "code_execution":
        return {"executableCode": _carried(_code(part) | identity, part.origin, "executableCode", CODE)}
    word = TOOL_TYPE_WORDS.get(part.tool)
    if word is None:
        return _dropped(part, writing)
    call = identity | {"toolType": word}
    if part.arguments:
        arguments = embedded(part.arguments)
        call["args"] = {RAW_ARGUMENTS: part.arguments} if arguments is None else arguments
    return {"toolCall": _carried(call, part.origin, "toolCall", HOSTED_CALL)}


def _code(part: HostedCall) -> Object:
    arguments = object_or_none(part.arguments) or {}
    code = arguments.get("code", arguments.get("command"))
    language = arguments.get("language")
    return {
        "language": language if isinstance(language, str) else "PYTHON",
        "code": code if isinstance(code, str) else part.arguments,
    }


def _write_hosted_result(part: HostedResult, writing: Writing) -> Object | None:
    if not writing.answer and foreign(part.origin):
        text = retold(part, writing.ledger)
        return None if text is None else {"text": text.text}
    identity: Object = {"id": part.id} if part.id else {}
    if part.tool == "code_execution":
        outcome = part.error if part.error.startswith("OUTCOME_") else "OUTCOME_FAILED" if part.error else "OUTCOME_OK"
        result: Object = {"outcome": outcome, "output": part.text} | identity
        return {"codeExecutionResult": _carried(result, part.origin, "codeExecutionResult", OUTCOME)}
    word = TOOL_TYPE_WORDS.get(part.tool)
    if word is None:
        return _dropped(part, writing)
    result = identity | {"toolType": word}
    if part.text:
        response = embedded(part.text)
        result["response"] = {"output": part.text} if response is None else response
    return {"toolResponse": _carried(result, part.origin, "toolResponse", HOSTED_RESULT)}


def _dropped(part: HostedCall | HostedResult, writing: Writing) -> Object | None:
    what = "call" if isinstance(part, HostedCall) else "result"
    writing.ledger.note("part-dropped", place(part), f"a {what} of the provider's own tool `{part.tool}` was left out")
    return None


def _write_opaque(part: Opaque, writing: Writing) -> Object | None:
    if foreign(part.origin):
        writing.ledger.opaque(part)
        return None
    wire: Object = part.origin.wire
    return wire


def _write_misplaced(part: ToolsAdded | ToolReference | Summary, writing: Writing) -> None:
    writing.ledger.note("part-dropped", place(part), f"a part of type {type(part).__name__} was left out")


WRITERS: dict[type, Callable[[Any, Writing], Object | None]] = {
    Text: write_text,
    Refusal: _write_refusal,
    Reasoning: _write_reasoning,
    Media: _write_media,
    Call: _write_call,
    Result: _write_result,
    HostedCall: _write_hosted_call,
    HostedResult: _write_hosted_result,
    ToolsAdded: _write_misplaced,
    ToolReference: _write_misplaced,
    Summary: _write_misplaced,
    Opaque: _write_opaque,
}
