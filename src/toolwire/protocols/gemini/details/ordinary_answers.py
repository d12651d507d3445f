"""Ordinary whole answers, of text, thoughts and calls: straight from bytes, and straight to bytes.

The types spell what is usual, in camelCase, in the order in which it is written. What is otherwise (a wrong type,
another key, a second candidate) does not fit, and goes the careful way.
"""

from __future__ import annotations

from functools import partial

from msgspec import Raw, Struct
from msgspec.json import Decoder

from toolwire.ir import Call, Choice, Finish, Part, Reasoning, Response, Seal, Stray, Text, Usage
from toolwire.protocols.gemini.names import BROKEN, FINISH_WORDS, FINISHES, NAME
from toolwire.protocols.gemini.parts import PartReading
from toolwire.protocols.gemini.response import read_time, read_usage, write_heading
from toolwire.reading import placed
from toolwire.room import Context
from toolwire.wire import NOT_DECODED, Json, Malformed, Path, decode_object, embedded, encode, spelled


class _Call(Struct, forbid_unknown_fields=True, omit_defaults=True, kw_only=True, gc=False):
    id: str = ""
    name: str
    args: Json = None


class _Part(Struct, forbid_unknown_fields=True, omit_defaults=True, gc=False):
    text: str | None = None
    functionCall: _Call | None = None
    thoughtSignature: str | None = None
    thought: bool | None = None


class _Content(Struct, forbid_unknown_fields=True, gc=False):
    parts: list[_Part]
    role: Json = None


class _Candidate(Struct, forbid_unknown_fields=True, omit_defaults=True, gc=False):
    content: _Content
    finishReason: str
    index: int | None = None
    finishMessage: str = ""
    avgLogprobs: float | None = None


class _Counts(Struct, forbid_unknown_fields=True, omit_defaults=True, gc=False):
    promptTokenCount: int | None = None
    candidatesTokenCount: int | None = None
    totalTokenCount: int | None = None
    cachedContentTokenCount: int | None = None
    thoughtsTokenCount: int | None = None
    toolUsePromptTokenCount: int | None = None


_UNTOLD = Raw(b"")


class _Answer(Struct, forbid_unknown_fields=True, omit_defaults=True, gc=False):
    candidates: tuple[_Candidate]
    usageMetadata: Raw = _UNTOLD
    modelVersion: str = ""
    createTime: str | None = None
    responseId: str = ""


# --- reading --------------------------------------------------------------------------------------------------------

_decode = Decoder(_Answer, float_hook=spelled).decode
_decode_counts = Decoder(_Counts).decode
_ENDINGS = {word: Finish(kind, word) for word, kind in FINISHES.items() if word not in BROKEN}

_at = partial(placed, NAME)
_CHOICE: Path = ((None, "candidates"), 0)
_PARTS: Path = ((_CHOICE, "content"), "parts")
_USAGE: Path = (None, "usageMetadata")
_ANSWER_AT, _CHOICE_AT, _USAGE_AT = _at(None), _at(_CHOICE), _at(_USAGE)
_PARTS_AT = tuple(_at((_PARTS, number)) for number in range(16))


def read_ordinary(data: bytes) -> Response | None:
    try:
        answer = _decode(data)
    except NOT_DECODED:
        return None
    (node,) = answer.candidates
    parts, finish = _read_parts(node.content.parts), _ENDINGS.get(node.finishReason)
    if parts is None or finish is None:
        return None
    strays: list[Stray] = []
    if node.finishMessage:
        finish = Finish(finish.kind, finish.raw, "", node.finishMessage)
    if node.avgLogprobs is not None:
        strays.append(Stray(_CHOICE, "avgLogprobs"))
    created, usage = None, None
    if answer.createTime is not None:
        created = read_time(answer.createTime, PartReading(NAME, strays))
    if answer.usageMetadata is not _UNTOLD:
        usage = _read_counts(answer.usageMetadata, strays)
        if usage is None:
            return None
    return Response(
        answer.responseId,
        answer.modelVersion,
        created,
        (Choice(node.index or 0, tuple(parts), finish, _CHOICE_AT),),
        usage,
        None,
        _ANSWER_AT,
        tuple(strays),
    )


def _read_parts(items: list[_Part]) -> list[Part] | None:
    parts: list[Part] = []
    for number, item in enumerate(items):
        text, call, signature = item.text, item.functionCall, item.thoughtSignature
        seal = None if signature is None else Seal(NAME, signature)
        origin = _PARTS_AT[number] if number < len(_PARTS_AT) else _at((_PARTS, number))
        if call is not None:
            args = call.args
            if text is not None or item.thought is not None or (args is not None and args.__class__ is not dict):
                return None
            arguments = "" if args is None else encode(args).decode()
            parts.append(Call(call.id, call.name, arguments, "function", "", "", None, seal, False, False, origin))
        elif text is None:
            return None
        elif item.thought:
            parts.append(Reasoning(text, "summary", False, seal, origin=origin))
        elif text or seal is not None:
            parts.append(Text(text, (), None, seal, origin))
    return parts


def _read_counts(data: Raw, strays: list[Stray]) -> Usage | None:
    try:
        counts = _decode_counts(data)
    except NOT_DECODED:
        return _read_finer_counts(data, strays)
    reasoning = counts.thoughtsTokenCount
    return Usage(
        (counts.promptTokenCount or 0) + (counts.toolUsePromptTokenCount or 0),
        (counts.candidatesTokenCount or 0) + (reasoning or 0),
        counts.cachedContentTokenCount,
        None,
        reasoning,
        counts.totalTokenCount,
        _USAGE_AT,
    )


def _read_finer_counts(data: Raw, strays: list[Stray]) -> Usage | None:
    """Counts with others beside them, by modality or by traffic, which are strays in the order in which they stand."""
    try:
        usage = read_usage(decode_object(data), _USAGE, PartReading(NAME, strays))
    except (*NOT_DECODED, Malformed):
        return None
    return Usage(usage.input, usage.output, usage.cache_read, None, usage.reasoning, usage.total, _USAGE_AT)


# --- writing --------------------------------------------------------------------------------------------------------

_WORDS = {kind: FINISH_WORDS[kind] for kind in ("stop", "length", "calls")}
"""Endings of which there is one word only, whatever another wire calls them."""


def write_ordinary(response: Response, context: Context) -> bytes | None:
    choices, usage = response.choices, response.usage
    if len(choices) != 1 or response.failure is not None or (usage is not None and usage.cache_write):
        return None
    choice = choices[0]
    parts, finish = _write_parts(choice.parts), choice.finish
    if parts is None or finish is None or finish.kind not in _WORDS or finish.detail:
        return None
    candidate = _Candidate(_Content(parts, "model"), _WORDS[finish.kind], choice.index)
    counts = _UNTOLD if usage is None else Raw(encode(_write_counts(usage)))
    heading = write_heading(response.id, response.model, response.created, context)
    return encode(_Answer((candidate,), counts, **heading))


def _write_parts(parts: tuple[Part, ...]) -> list[_Part] | None:
    out: list[_Part] = []
    for part in parts:
        if type(part) is Text:
            if part.citations or part.cache is not None or part.seal is not None:
                return None
            out.append(_Part(part.text))
        elif type(part) is Call:
            args = embedded(part.arguments)
            if args is None or part.incomplete or part.cache is not None or part.seal is not None:
                return None
            out.append(_Part(None, _Call(id=part.id, name=part.name, args=args)))
        else:
            return None
    return out or [_Part("")]


def _write_counts(usage: Usage) -> _Counts:
    total, reasoning = usage.total, usage.reasoning
    return _Counts(
        usage.input,
        usage.output - (reasoning or 0),
        usage.input + usage.output if total is None else total,
        usage.cache_read,
        reasoning,
    )
