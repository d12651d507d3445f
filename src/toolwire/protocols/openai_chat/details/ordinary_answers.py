"""Ordinary whole answers: one choice of text and calls, straight from its bytes, and straight to bytes.

None stands for every other answer: it goes the careful way. Both ways say the same of what both can take.
"""

from __future__ import annotations

from functools import partial
from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from toolwire import ids
from toolwire.ir import Call, Choice, Finish, Part, Response, Stray, Text, Usage
from toolwire.protocols.openai_chat.details.calls import is_plain
from toolwire.protocols.openai_chat.names import NAME
from toolwire.protocols.openai_chat.response import BEYOND, FINISH_KINDS
from toolwire.protocols.openai_chat.tools import is_legacy
from toolwire.reading import glancing, placed
from toolwire.room import Context
from toolwire.wire import Path, encode

# --- shapes -----------------------------------------------------------------------------------------------------------

_Zero = Literal[0, None]
_Empty = Annotated[list[None], Meta(max_length=0)]


class _Shape(Struct, gc=False, forbid_unknown_fields=True):
    """A node of an ordinary answer, with the keys that servers send though they say nothing."""


class _Function(_Shape):
    name: str
    arguments: str


class _Call(_Shape):
    function: _Function
    id: str = ""
    type: Literal["function"] = "function"
    index: int = 0


class _Message(_Shape):
    role: Literal["assistant"] = "assistant"
    content: str | None = None
    refusal: None = None
    annotations: _Empty | None = None
    tool_calls: list[_Call] | None = None
    function_call: None = None
    audio: None = None
    reasoning_content: None = None
    reasoning: None = None


class _Choice(_Shape):
    message: _Message
    finish_reason: str
    index: int = 0
    logprobs: None = None
    stop_reason: None = None


class _Prompt(_Shape):
    cached_tokens: int | None = None
    audio_tokens: _Zero = None
    cache_write_tokens: int | None = None


class _Completion(_Shape):
    reasoning_tokens: int | None = None
    audio_tokens: _Zero = None
    accepted_prediction_tokens: _Zero = None
    rejected_prediction_tokens: _Zero = None


class _Counts(_Shape):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: _Prompt | None = None
    completion_tokens_details: _Completion | None = None
    num_cached_tokens: int | None = None
    prompt_cache_hit_tokens: int | UnsetType = UNSET
    prompt_cache_miss_tokens: int = 0


class _Answer(_Shape):
    id: str
    model: str
    choices: tuple[_Choice]
    object: Literal["chat.completion"] = "chat.completion"
    created: Annotated[int, Meta(ge=0, lt=BEYOND)] | None = None
    usage: _Counts | None = None
    service_tier: str | None = None
    system_fingerprint: str | None = None
    error: None = None
    prompt_logprobs: None = None


# --- reading ----------------------------------------------------------------------------------------------------------

_at = partial(placed, NAME)
_CHOICE: Path = ((None, "choices"), 0)
_MESSAGE: Path = (_CHOICE, "message")
_ANSWERED, _CHOSEN, _COUNTED, _SPOKEN = _at(None), _at(_CHOICE), _at((None, "usage")), _at((_MESSAGE, "content"))
_CALLED = tuple(_at(((_MESSAGE, "tool_calls"), number)) for number in range(32))
"""Where the calls stand; there are never so many."""
_FINISHES = {raw: Finish(kind, raw, "", "", _at((_CHOICE, "finish_reason"))) for raw, kind in FINISH_KINDS.items()}
_CUTS = frozenset(raw for raw, kind in FINISH_KINDS.items() if kind in ("length", "filter"))
"""Endings that may have cut a call off."""
_TIER, _FINGERPRINT = Stray(None, "service_tier"), Stray(None, "system_fingerprint")
_MISSED = Stray((None, "usage"), "prompt_cache_miss_tokens")

_glance = glancing(_Answer)


def read_ordinary(data: bytes) -> Response | None:
    found = _glance(data)
    if found is None:
        return None
    choice, counts = found.choices[0], found.usage
    finish = _FINISHES.get(choice.finish_reason)
    parts = _read_parts(choice)
    strays = _strays(found, data)
    if finish is None or parts is None or strays is None:
        return None
    if counts is not None and counts.prompt_cache_miss_tokens:
        strays = (_MISSED, *strays)
    return Response(
        found.id,
        found.model,
        found.created,
        (Choice(choice.index, parts, finish, _CHOSEN),),
        None if counts is None else _read_counts(counts),
        None,
        _ANSWERED,
        strays,
    )


def _read_parts(choice: _Choice) -> tuple[Part, ...] | None:
    message = choice.message
    content, calls = message.content, message.tool_calls
    parts: list[Part] = []
    if content:
        parts.append(Text(content, (), None, None, _SPOKEN))
    if calls:
        if len(calls) > len(_CALLED) or choice.finish_reason in _CUTS:
            return None
        for number, call in enumerate(calls):
            id, name, arguments = call.id, call.function.name, call.function.arguments
            parts.append(Call(id, name, arguments, "function", "", "", None, None, False, False, _CALLED[number]))
    return tuple(parts)


def _read_counts(counts: _Counts) -> Usage:
    into, out, total = counts.prompt_tokens, counts.completion_tokens, counts.total_tokens
    prompt, completion = counts.prompt_tokens_details, counts.completion_tokens_details
    read, written = (None, None) if prompt is None else (prompt.cached_tokens, prompt.cache_write_tokens)
    thought = None if completion is None else completion.reasoning_tokens
    if thought and total == into + out + thought:
        out += thought
    if read is None:
        hit = counts.prompt_cache_hit_tokens
        read = counts.num_cached_tokens if hit is UNSET else hit
    return Usage(into, out, read, written, thought, total, _COUNTED)


def _strays(found: _Answer, data: bytes) -> tuple[Stray, ...] | None:
    """The keys that nearly every answer of the vendor has and no other protocol knows, in their order."""
    tier, fingerprint = found.service_tier, found.system_fingerprint
    if tier is None:
        return () if fingerprint is None else (_FINGERPRINT,)
    if fingerprint is None:
        return (_TIER,)
    # Quotes inside of a text are escaped, so these are the keys.
    first, second = data.find(b'"service_tier":'), data.find(b'"system_fingerprint":')
    if first < 0 or second < 0:
        return None
    return (_TIER, _FINGERPRINT) if first < second else (_FINGERPRINT, _TIER)


# --- writing ----------------------------------------------------------------------------------------------------------


class _Cached(Struct, gc=False, omit_defaults=True):
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None


class _Thought(Struct, gc=False):
    reasoning_tokens: int


class _Used(Struct, gc=False, omit_defaults=True):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: _Cached | None = None
    completion_tokens_details: _Thought | None = None


class _Made(Struct, gc=False):
    id: str
    type: str
    function: _Function


class _Spoken(Struct, gc=False):
    role: str
    content: str | None
    refusal: None
    annotations: tuple[()]


class _Calling(_Spoken, gc=False):
    tool_calls: list[_Made]


class _Ended(Struct, gc=False):
    index: int
    message: _Spoken
    logprobs: None
    finish_reason: str


class _Told(Struct, gc=False):
    id: str
    object: str
    created: int
    model: str
    choices: tuple[_Ended]
    usage: _Used


_WORDS = {
    ("stop", False): "stop",
    ("calls", True): "tool_calls",
    ("length", False): "length",
    ("length", True): "length",
}
"""Endings, without and with calls; others have no word of their own."""


def write_ordinary(response: Response, context: Context) -> bytes | None:
    choices, usage, request = response.choices, response.usage, context.request
    if len(choices) != 1 or usage is None or response.failure is not None or is_legacy(request):
        return None
    choice = choices[0]
    spoken, finish = _write_parts(choice.parts), choice.finish
    if spoken is None or finish is None or finish.detail or finish.raw == "function_call":
        return None
    word = _WORDS.get((finish.kind, spoken.__class__ is _Calling))
    if word is None or choice.index:
        return None
    told = _Told(
        response.id or ids.made("chatcmpl-", context.seed),
        "chat.completion",
        context.now if response.created is None else response.created,
        response.model or (request.model if request is not None else ""),
        (_Ended(0, spoken, None, word),),
        _used(usage),
    )
    return encode(told)


def _write_parts(parts: tuple[Part, ...]) -> _Spoken | None:
    """A text, and the calls behind it."""
    text = ""
    calls: list[_Made] = []
    for part in parts:
        if type(part) is Call:
            if not is_plain(part):
                return None
            calls.append(_Made(part.id, "function", _Function(part.name, part.arguments)))
        elif calls or type(part) is not Text or part.seal is not None or part.citations:
            return None
        else:
            text += part.text
    return _Calling("assistant", text or None, None, (), calls) if calls else _Spoken("assistant", text, None, ())


def _used(usage: Usage) -> _Used:
    into, out, total = usage.input, usage.output, usage.total
    if total is None:
        total = into + out
    read, written, thought = usage.cache_read, usage.cache_write, usage.reasoning
    cached = None if read is None and written is None else _Cached(read, written)
    return _Used(into, out, total, cached, None if thought is None else _Thought(thought))
