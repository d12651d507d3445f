"""A chunk that is the one before once more, but for its piece of text or of arguments: almost all that a stream has.

A chunk that made one event is the pattern for the next. One that differs from it by nothing but the piece makes the
same event of that piece; every other is read with care. If its bytes tell that, it need not even be decoded.
"""

from __future__ import annotations

from collections.abc import Mapping

from toolwire import sse
from toolwire.events import ArgumentsDelta, Event, Frame, TextDelta
from toolwire.protocols.openai_chat.details.growing import Answer, Growing
from toolwire.protocols.openai_chat.names import NAME
from toolwire.wire import Json, Malformed, Object, decode

_SPOKEN = ("content", "reasoning_content", "reasoning", "refusal")
_WORDS = {key: b'"%b"' % key.encode() for key in _SPOKEN}
_ARGUMENTS = b'"arguments"'
"""No chunk without these can be like one with them."""
_LOOSE = ("obfuscation", "id", "created")
"""Keys that say nothing once the answer has begun, and that some servers change from chunk to chunk."""
MAX_TRIES = 8
"""After so many patterns of which none was met again, the stream has none: every chunk holds what is new."""
_PADDING = b',"obfuscation":"'
"""The service itself ends every chunk with so much of it that no length tells the text."""
_UNLIKE = (Malformed, LookupError, TypeError, RecursionError)
"""What a chunk of another shape leads to."""


class Padded:
    """A chunk known by its bytes but for its padding."""

    __slots__ = ("_alike",)

    def __init__(self, alike: sse.Alike) -> None:
        self._alike = alike

    def text(self, data: bytes) -> str | None:
        bare = _unpadded(data, b"}\n\n")
        return None if bare is None else self._alike.text(bare)


def _unpadded(data: bytes, end: bytes) -> bytes | None:
    """The chunk without its padding, if it has one and that is plain and the last of it."""
    said, found, padding = data.rpartition(_PADDING)
    if not found:
        return None
    letters, _, rest = padding.partition(b'"')
    return said + end if rest == end and letters.isalnum() else None


class TextPattern:
    __slots__ = ("_answer", "_chunk", "_counted", "_index", "_key", "_word", "alike", "known")

    def __init__(self, data: bytes, key: str, answer: Answer) -> None:
        self._chunk: bytes | Object = data
        """Decoded when the bytes of another do not tell that it is like it."""
        self._index = answer.index
        self._key = key
        self._word = _WORDS[key]
        self._answer = answer
        self._counted = answer.channel == "text"
        self.alike: sse.Alike | None = None
        self.known: sse.Again | None = None

    def found(self, chunk: Json) -> Json:
        return chunk["choices"][0]["delta"][self._key]

    def like(self, frame: sse.Frame, text: str) -> sse.Alike | None:
        return sse.alike(frame, text, self.found)

    def count(self, size: int) -> None:
        if self._counted:
            self._answer.text_at += size

    def again(self, frame: sse.Frame) -> Event | None:
        if frame.event is not None or not frame.data.partition(self._word)[1]:
            return None
        key, pattern = self._key, _decoded(self)
        try:
            chunk = decode(frame.data)
            choice = chunk["choices"][0]
            pattern["choices"][0]["delta"][key] = text = choice["delta"][key]
            # A small number is one object: `is` tells 0 from false, which `==` does not.
            if choice["index"] is not self._index or not text or type(text) is not str:
                return None
            if chunk != pattern and not _is_loosely(pattern, chunk):
                return None
        except _UNLIKE:
            return None
        self.count(len(text))
        return TextDelta(self._answer.open, text, Frame(NAME, None, chunk))


class CallPattern:
    __slots__ = ("_chunk", "_index", "_slot", "alike", "known")

    def __init__(self, data: bytes, answer: Answer, slot: Growing) -> None:
        self._chunk: bytes | Object = data
        self._index = answer.index
        self._slot = slot
        self.alike: sse.Alike | None = None
        self.known: sse.Again | None = None

    def found(self, chunk: Json) -> Json:
        return chunk["choices"][0]["delta"]["tool_calls"][0]["function"]["arguments"]

    def like(self, frame: sse.Frame, text: str) -> sse.Alike | None:
        # What begins with all that there is may be that again.
        return sse.alike(frame, text, self.found, self._slot.keep, but=self._slot.text)

    def count(self, size: int) -> None:
        self._slot.size += size

    def again(self, frame: sse.Frame) -> Event | None:
        if frame.event is not None or not frame.data.partition(_ARGUMENTS)[1]:
            return None
        slot, pattern = self._slot, _decoded(self)
        try:
            chunk = decode(frame.data)
            choice = chunk["choices"][0]
            call = choice["delta"]["tool_calls"][0]
            text = call["function"]["arguments"]
            pattern["choices"][0]["delta"]["tool_calls"][0]["function"]["arguments"] = text
            if choice["index"] is not self._index or call["index"] is not slot.number:
                return None
            if not text or type(text) is not str or (chunk != pattern and not _is_loosely(pattern, chunk)):
                return None
        except _UNLIKE:
            return None
        if len(text) >= slot.size and text.startswith(slot.text):
            return None
        slot.grow(text)
        return ArgumentsDelta(slot.part, text, Frame(NAME, None, chunk))


Pattern = TextPattern | CallPattern


def _decoded(pattern: Pattern) -> Object:
    """The chunk that is the pattern, as a copy of its own."""
    chunk = pattern._chunk
    if isinstance(chunk, bytes):
        chunk = pattern._chunk = decode(chunk)
    return chunk


def _is_loosely(pattern: Object, chunk: Object) -> bool:
    """Is it the same but for the keys that say nothing?"""
    for key in _LOOSE:
        if key in chunk:
            pattern[key] = chunk[key]
            if chunk == pattern:
                return True
    return False


def pattern_of(
    frame: sse.Frame, chunk: Object, event: TextDelta | ArgumentsDelta, answers: Mapping[int, Answer]
) -> Pattern | None:
    """The pattern of a chunk of which this delta came, if it says nothing besides."""
    pattern = _pattern(frame.data, chunk["choices"], event, answers)
    if pattern is not None:
        bare = _unpadded(frame.data, b"}")
        alike = pattern.alike = pattern.like(frame if bare is None else sse.Frame(None, bare), event.text)
        if alike is not None:
            pattern.known = alike.text if bare is None else Padded(alike).text
    return pattern


def _pattern(
    data: bytes, choices: list[Object], event: TextDelta | ArgumentsDelta, answers: Mapping[int, Answer]
) -> Pattern | None:
    choice = choices[0]
    index = choice.get("index")
    if len(choices) != 1 or type(index) is not int or choice.get("finish_reason"):
        return None
    delta, answer = choice["delta"], answers[index]
    if isinstance(event, TextDelta):
        key = "content" if delta.get("content") else next(filter(delta.get, _SPOKEN), "content")
        said = delta.get(key) == event.text and _is_bare(delta, key)
        return TextPattern(data, key, answer) if said else None
    slot = _slot_of(delta, answer)
    return CallPattern(data, answer, slot) if slot is not None and _is_bare(delta, "tool_calls") else None


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
    return not [key for key, value in node.items() if value and type(value) is not str and key not in said]
