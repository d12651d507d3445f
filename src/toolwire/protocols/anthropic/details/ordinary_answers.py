"""Ordinary whole answers, of text, thoughts and calls: straight from bytes, and straight to bytes.

The types spell what is usual, in the order in which it is written. What is otherwise (a wrong type, another key, an
unusual block) does not fit, and goes the careful way.
"""

from __future__ import annotations

from functools import partial
from typing import Literal

from msgspec import UNSET, Struct, UnsetType
from msgspec.json import Decoder

from toolwire.ir import Call, Choice, Finish, Part, Reasoning, Response, Seal, Stray, Text, Usage
from toolwire.protocols.anthropic.names import COARSE, FINISHES, NAME, STOP_REASONS, UNKNOWN_MODEL, USAGE
from toolwire.protocols.anthropic.response import counts_nothing, message_id, spelled_usage
from toolwire.reading import placed, says_something
from toolwire.room import Context
from toolwire.wire import NOT_DECODED, Json, Object, Path, embedded, encode, encode_text, spelled


class _Text(Struct, tag_field="type", tag="text", forbid_unknown_fields=True, omit_defaults=True, gc=False):
    text: str
    citations: None = None


class _Thought(Struct, tag_field="type", tag="thinking", forbid_unknown_fields=True, gc=False):
    thinking: str
    signature: str


class _Caller(Struct, forbid_unknown_fields=True, gc=False):
    type: Literal["direct"]


class _Call(Struct, tag_field="type", tag="tool_use", forbid_unknown_fields=True, omit_defaults=True, gc=False):
    id: str
    name: str
    input: Json
    caller: _Caller | None = None


class _Answer(Struct, forbid_unknown_fields=True, gc=False):
    id: str
    type: Literal["message"]
    role: Literal["assistant"]
    model: str
    content: list[_Text | _Thought | _Call]
    stop_reason: str
    stop_sequence: str | None = None
    stop_details: None = None
    usage: Object | None = None
    container: UnsetType | None = UNSET
    context_management: UnsetType | None = UNSET


# --- reading ----------------------------------------------------------------------------------------------------------

_decode = Decoder(_Answer, float_hook=spelled).decode

_at = partial(placed, NAME)
_CONTENT: Path = (None, "content")
_USAGE: Path = (None, "usage")
_ANSWER_AT, _CONTENT_AT, _USAGE_AT = _at(None), _at(_CONTENT), _at(_USAGE)
_BLOCKS_AT = tuple([_at((_CONTENT, number)) for number in range(16)])
"""Answers of more blocks are none of the ordinary ones."""
_ENDS = {word: Finish(kind, word, "", "", _at((None, "stop_reason"))) for word, kind in STOP_REASONS.items()}


def read_ordinary(data: bytes) -> Response | None:
    try:
        answer = _decode(data)
    except NOT_DECODED:
        return None
    parts, finish, counts = _read_blocks(answer.content), _ENDS.get(answer.stop_reason), answer.usage
    if parts is None or finish is None:
        return None
    if answer.stop_sequence:
        finish = Finish(finish.kind, finish.raw, answer.stop_sequence, "", finish.origin)
    usage: Usage | None = None
    strays: tuple[Stray, ...] = ()
    if counts is not None:
        usage = _read_usage(counts)
        if usage is None:
            return None
        if len(counts) > 2:
            strays = _strays_of(counts)
    choice = Choice(0, parts, finish, _CONTENT_AT)
    return Response(answer.id, answer.model, None, (choice,), usage, None, _ANSWER_AT, strays)


def _read_blocks(blocks: list[_Text | _Thought | _Call]) -> tuple[Part, ...] | None:
    if len(blocks) > len(_BLOCKS_AT):
        return None
    parts: list[Part] = []
    for block in blocks:
        origin = _BLOCKS_AT[len(parts)]
        if type(block) is _Text:
            parts.append(Text(block.text, (), None, None, origin))
        elif type(block) is _Call:
            given = block.input
            if type(given) is not dict:
                return None
            parts.append(Call(block.id, block.name, encode_text(given), origin=origin))
        elif type(block) is _Thought:
            seal = Seal(NAME, block.signature) if block.signature else None
            parts.append(Reasoning(block.thinking, "", False, seal, "", origin))
    return tuple(parts)


def _read_usage(counts: Object) -> Usage | None:
    fresh, output = counts.get("input_tokens"), counts.get("output_tokens")
    if type(fresh) is not int or type(output) is not int:
        return None
    if len(counts) == 2:
        return Usage(fresh, output, None, None, None, None, _USAGE_AT)
    read, written = counts.get("cache_read_input_tokens"), counts.get("cache_creation_input_tokens")
    details, thought = counts.get("output_tokens_details"), None
    if details is not None:
        thought = details.get("thinking_tokens") if type(details) is dict and len(details) == 1 else None
        if type(thought) is not int:
            return None
    if not (read is None or type(read) is int) or not (written is None or type(written) is int):
        return None
    return Usage(fresh + (read or 0) + (written or 0), output, read, written, thought, None, _USAGE_AT)


def _strays_of(counts: Object) -> tuple[Stray, ...]:
    """What is told beside the counts, such as the tier: nearly every answer has some."""
    strays: list[Stray] = []
    for key, value in counts.items():
        # A text needs no other look.
        if key not in USAGE and (type(value) is str or (not counts_nothing(value) and says_something(value))):
            strays.append(Stray(_USAGE, key))
    return tuple(strays)


# --- writing ----------------------------------------------------------------------------------------------------------

_WORDS = {kind: word for kind, word in FINISHES.items() if kind not in COARSE and word != "refusal"}
"""Endings of which there is nothing more to tell than the word."""


def write_ordinary(response: Response, context: Context) -> bytes | None:
    choices, usage = response.choices, response.usage
    if len(choices) != 1 or usage is None or response.failure is not None:
        return None
    choice, request = choices[0], context.request
    finish = choice.finish
    word = _WORDS.get(finish.kind) if finish is not None else None
    blocks = _write_blocks(choice.parts) if word is not None else None
    if finish is None or word is None or blocks is None:
        return None
    asked = request.model if request is not None else ""
    answer = _Answer(
        message_id(response.id, context),
        "message",
        "assistant",
        asked or response.model or UNKNOWN_MODEL,
        blocks,
        word,
        finish.sequence or None,
        None,
        spelled_usage(usage),
    )
    return encode(answer)


def _write_blocks(parts: tuple[Part, ...]) -> list[_Text | _Thought | _Call] | None:
    """None where a part is of another kind, or has something to it that must be told or let go of."""
    blocks: list[_Text | _Thought | _Call] = []
    for part in parts:
        if type(part) is Text:
            if part.citations or part.cache is not None or part.seal is not None:
                return None
            if part.text:
                blocks.append(_Text(part.text))
        elif type(part) is Call:
            if part.kind == "custom" or part.item or part.cache is not None or part.seal is not None:
                return None
            given = embedded(part.arguments)
            if given is None:
                return None
            blocks.append(_Call(part.id, part.name, given))
        elif type(part) is Reasoning and part.seal is None:
            if part.text:
                blocks.append(_Thought(part.text, ""))
        else:
            return None
    return blocks
