"""A chunk that is the one before once more, but for its piece of text or of arguments: almost all that a stream has.

A chunk that made one event is the pattern for the next. One that differs from it by nothing but the piece makes the
same event of that piece; every other is read with care.
"""

from __future__ import annotations

from collections.abc import Mapping

from toolwire import sse
from toolwire.events import ArgumentsDelta, Event, Frame, TextDelta
from toolwire.protocols.openai_chat.details.growing import Answer, Growing
from toolwire.protocols.openai_chat.names import NAME
from toolwire.wire import Json, Malformed, Object, decode

_SPOKEN = ("content", "reasoning_content", "reasoning", "refusal")
_LOOSE = ("obfuscation", "id", "created")
"""Keys that say nothing once the answer has begun, and that some servers change from chunk to chunk."""
_UNLIKE = (Malformed, LookupError, TypeError, RecursionError)
"""What a chunk of another shape leads to."""


class TextPattern:
    __slots__ = ("_answer", "_chunk", "_counted", "_delta", "_index", "_key")

    def __init__(self, chunk: Object, key: str, answer: Answer) -> None:
        choice = chunk["choices"][0]
        self._chunk = chunk
        self._index = choice["index"]
        self._delta = choice["delta"]
        self._key = key
        self._answer = answer
        self._counted = answer.channel == "text"

    def again(self, frame: sse.Frame) -> Event | None:
        if frame.event is not None:
            return None
        key = self._key
        try:
            chunk = decode(frame.data)
            choice = chunk["choices"][0]
            self._delta[key] = text = choice["delta"][key]
            # A small number is one object: `is` tells 0 from false, which `==` does not.
            if choice["index"] is not self._index or not text or type(text) is not str:
                return None
            if chunk != self._chunk and not _is_loosely(self._chunk, chunk):
                return None
        except _UNLIKE:
            return None
        answer = self._answer
        if self._counted:
            answer.text_at += len(text)
        return TextDelta(answer.open, text, Frame(NAME, None, chunk))


class CallPattern:
    __slots__ = ("_chunk", "_function", "_index", "_slot")

    def __init__(self, chunk: Object, slot: Growing) -> None:
        choice = chunk["choices"][0]
        self._chunk = chunk
        self._index = choice["index"]
        self._function = choice["delta"]["tool_calls"][0]["function"]
        self._slot = slot

    def again(self, frame: sse.Frame) -> Event | None:
        if frame.event is not None:
            return None
        slot = self._slot
        try:
            chunk = decode(frame.data)
            choice = chunk["choices"][0]
            call = choice["delta"]["tool_calls"][0]
            self._function["arguments"] = text = call["function"]["arguments"]
            if choice["index"] is not self._index or call["index"] is not slot.number:
                return None
            # What is not shorter than all there is may be that again.
            if not text or type(text) is not str or len(text) >= slot.size:
                return None
            if chunk != self._chunk and not _is_loosely(self._chunk, chunk):
                return None
        except _UNLIKE:
            return None
        slot.grow(text)
        return ArgumentsDelta(slot.part, text, Frame(NAME, None, chunk))


Pattern = TextPattern | CallPattern


def _is_loosely(pattern: Object, chunk: Object) -> bool:
    """Is it the same but for the keys that say nothing?"""
    for key in _LOOSE:
        if key in chunk:
            pattern[key] = chunk[key]
            if chunk == pattern:
                return True
    return False


def pattern_of(data: bytes, event: Event, answers: Mapping[int, Answer]) -> Pattern | None:
    """The pattern of a chunk of which one event came, if it says nothing besides."""
    if not isinstance(event, (TextDelta, ArgumentsDelta)):
        return None
    # A copy of its own: the frame belongs to those who write it.
    chunk = decode(data)
    choice = chunk["choices"][0]
    index = choice.get("index")
    if len(chunk["choices"]) != 1 or type(index) is not int or choice.get("finish_reason"):
        return None
    delta, answer = choice["delta"], answers[index]
    if isinstance(event, TextDelta):
        key = next(filter(delta.get, _SPOKEN), "content")
        said = delta.get(key) == event.text and _is_bare(delta, key)
        return TextPattern(chunk, key, answer) if said else None
    slot = _slot_of(delta, answer)
    return CallPattern(chunk, slot) if slot is not None and _is_bare(delta, "tool_calls") else None


def _slot_of(delta: Object, answer: Answer) -> Growing | None:
    """The call that every such delta belongs to: it is named by its own number, and by nothing else."""
    calls: Json = delta.get("tool_calls")
    if type(calls) is not list or len(calls) != 1:
        return None
    call = calls[0]
    index, function = call.get("index"), call.get("function")
    slot = answer.by_index.get(index) if type(index) is int and type(function) is dict else None
    if slot is None or slot.number != index or slot.kind != "function" or slot.pending is not None or slot.resent:
        return None
    named = call.get("id") or function.get("name") or call.get("type") == "custom"
    return slot if not named and "arguments" in function and _is_bare(call, "function", "index") else None


def _is_bare(node: Object, *said: str) -> bool:
    """Is all the rest of it nothing, or words? What is made of those does not change."""
    return all(not value or type(value) is str or key in said for key, value in node.items())
