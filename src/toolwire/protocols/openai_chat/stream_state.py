"""Unknown keys of a stream, each reported once, so that no stream can fill the memory with them."""

from __future__ import annotations

from collections.abc import Mapping

from toolwire.core import json_values, sse
from toolwire.core.events import ArgumentsDelta, Event, SourceFrame, TextDelta
from toolwire.core.ir import Finish, UnknownField
from toolwire.core.json_values import Json, Malformed, Object, Path, decode
from toolwire.core.provenance import is_nonempty
from toolwire.protocols.openai_chat.names import CALL_KEYS, CHUNK_KEYS, DELTA_KEYS, IGNORABLE_CHUNK_CHOICE_KEYS, NAME

_MAX_UNKNOWN_KEYS = 1024
"""More unknown keys than any lawful stream has."""
_KeySet = set[str] | frozenset[str]
_CHOICE_KEYS = IGNORABLE_CHUNK_CHOICE_KEYS - {"logprobs"}


class UnknownFields:
    """The keys that are known of each kind of node, and those that were found besides."""

    __slots__ = ("_found", "call", "choice", "chunk", "delta")

    def __init__(self) -> None:
        self._found: dict[tuple[str, str], UnknownField] = {}
        self.chunk: _KeySet = CHUNK_KEYS
        self.choice: _KeySet = _CHOICE_KEYS
        self.delta: _KeySet = DELTA_KEYS
        self.call: _KeySet = CALL_KEYS

    def add_unknown_keys(self, kind: str, node: Object, path: Path) -> None:
        """Unknown keys of a node: what was reported is known from then on."""
        known: _KeySet = getattr(self, kind)
        for key, value in node.items():
            if value is not None and key not in known and len(known) < _MAX_UNKNOWN_KEYS and is_nonempty(value):
                if isinstance(known, frozenset):
                    known = set(known)
                    setattr(self, kind, known)
                known.add(key)
                self._found[kind, key] = UnknownField(path, key)

    def add_once(self, kind: str, field: UnknownField, key: str | None = None) -> None:
        """A stray that a reader found; the first of its kind and key stays."""
        self._found.setdefault((kind, field.key if key is None else key), field)

    def as_tuple(self) -> tuple[UnknownField, ...]:
        return tuple(self._found.values())


# --- Calls and texts of a stream while they grow, and which of them a piece belongs to ---


class OpenCall:
    """A call while it grows. `pending` holds argument text of which it is not yet clear what it is."""

    __slots__ = (
        "_pieces",
        "append_piece",
        "call_index",
        "held_back",
        "id",
        "is_closed",
        "kind",
        "length",
        "name",
        "part_index",
        "sends_whole_text",
    )

    def __init__(self, id: str, name: str, kind: str, call_index: int) -> None:
        self._pieces: list[str] = []
        self.append_piece = self._pieces.append
        """Takes more of the arguments, whose length is still to be added to `size`."""
        self.call_index = call_index
        """Its place among the calls of the choice."""
        self.id = id
        self.name = name
        self.kind = kind
        self.part_index = -1
        self.length = 0
        """How many characters of arguments there are."""
        self.held_back: str | None = None
        self.sends_whole_text = False
        self.is_closed = False

    @property
    def text(self) -> str:
        """The arguments so far; put together only when somebody asks."""
        if len(self._pieces) > 1:
            self._pieces[:] = ["".join(self._pieces)]
        return self._pieces[0] if self._pieces else ""

    def add_delta(self, text: str) -> None:
        self.append_piece(text)
        self.length += len(text)

    def drop_repeated_names(self, delta: Object, inner: Object) -> None:
        """A later delta must not name the call again: clients would append it."""
        if self.id and delta.get("id"):
            del delta["id"]
        if self.name and inner.get("name"):
            del inner["name"]

    def read_arguments_delta(self, inner: Object, key: str, added: str) -> str:
        """What a delta adds to the arguments; its frame is made to say the same."""
        if not added:
            return ""
        fresh = len(added) < self.length or (not self.length and added != "{}")
        if fresh and self.held_back is None and not self.sends_whole_text and type(inner[key]) is str:
            # Shorter than what there is, or the first of it: it cannot be that again.
            self.add_delta(added)
            return added
        shown = self.holds_placeholder
        text = self.find_new_text(added)
        if text is not added and not shown and not self.holds_placeholder:
            inner[key] = text
        elif not isinstance(inner[key], str):
            inner[key] = added
        return text

    def find_new_text(self, text: str) -> str:
        """What a delta adds to the arguments.

        Some servers send, in every delta, the whole of the arguments so far. Such a delta begins with the whole buffer;
        so does, once in a long while, a lawful one (`{"a":` followed by `{"a":1}}`). It is held until the next delta
        extends it again, which is proof, or until the end, where only one of both readings is JSON.
        `{}` as the first text is held too: it may be a placeholder for arguments that are still to come.
        """
        if self.kind == "custom":
            self.add_delta(text)
            return text
        if self.held_back is not None:
            return self._resolve_held_back(text)
        held = self.length
        if self.sends_whole_text:
            if text.startswith(self.text):
                text = text[held:]
            elif self.text.startswith(text):
                return ""
        elif held and text == self.text and self.is_complete():
            return ""
        elif (held and len(text) > held and text.startswith(self.text)) or (not held and text == "{}"):
            self.held_back = text
            return ""
        self.add_delta(text)
        return text

    def _resolve_held_back(self, text: str) -> str:
        pending, self.held_back = self.held_back or "", None
        if not self.length:
            new = text if text.lstrip().startswith("{") else pending + text
        elif text.startswith(pending):
            self.sends_whole_text = True
            new = text[self.length :]
        else:
            new = pending + text
        self.add_delta(new)
        return new

    @property
    def holds_placeholder(self) -> bool:
        """Is what is held the empty object, which was shown to clients as it came?"""
        return self.held_back is not None and not self.length

    def release_held_back(self) -> str:
        """What is still held at the end: an extension of the buffer, unless appending is what gives JSON."""
        pending, self.held_back = self.held_back, None
        if pending is None:
            return ""
        if self.length and not json_values.is_object_text(self.text + pending):
            pending = pending[self.length :]
        self.add_delta(pending)
        return pending

    def is_complete(self) -> bool:
        """Are the arguments complete? Then nothing can follow them."""
        return (
            self.kind != "custom"
            and self.text.endswith("}")
            and self.held_back is None
            and json_values.is_object_text(self.text)
        )


class OpenChoice:
    """One choice: the part that grows by text, and the calls."""

    __slots__ = (
        "calls",
        "calls_by_index",
        "channel",
        "channel_key",
        "finish",
        "index",
        "open_part",
        "part_offset",
        "text_length",
    )

    def __init__(self, index: int) -> None:
        self.index = index
        self.channel = ""
        self.channel_key: Json = None
        self.open_part = -1
        self.calls: list[OpenCall] = []
        self.calls_by_index: dict[int | str, OpenCall] = {}
        self.finish: Finish | None = None
        self.part_offset = 0
        self.text_length = 0

    def add_call(self, call: OpenCall, index: int | str | None) -> OpenCall:
        self.calls.append(call)
        self.calls_by_index[-len(self.calls) if index is None else index] = call
        return call

    def write_arguments_choice(self, call: OpenCall, text: str) -> Object:
        """The choice of a chunk for arguments that were held to the end."""
        delta = {"tool_calls": [{"index": call.call_index, "function": {"arguments": text}}]}
        return {"index": self.index, "delta": delta, "logprobs": None, "finish_reason": None}

    def find_call(self, index: int | str | None, id: str, name: str) -> OpenCall | None:
        """The call that a delta belongs to; None for a new one. Never guessed: Malformed when nothing tells it."""
        if index is not None:
            slot = self.calls_by_index.get(index)
            if slot is None or (name and id and slot.id and id != slot.id):
                return None
            # Whole calls without ids, all at one index: a name after complete arguments begins another call.
            return None if name and not id and slot.is_complete() else slot
        if id:
            return next((slot for slot in self.calls if slot.id == id), None)
        if name:
            slot = self.calls[-1] if len(self.calls) == 1 else None
            return slot if slot is not None and slot.name == name and not slot.is_complete() else None
        if len(self.calls) == 1:
            return self.calls[0]
        raise Malformed(None, "a piece of a call has neither index, id nor name")


_TEXT_CHANNELS = ("content", "reasoning_content", "reasoning", "refusal")
_CHANNEL_MARKS = {key: b'"%b"' % key.encode() for key in _TEXT_CHANNELS}
_ARGUMENTS_MARK = b'"arguments"'
"""No chunk without these can be like one with them."""
_IGNORED_KEYS = ("obfuscation", "id", "created")
"""Keys that say nothing once the answer has begun, and that some servers change from chunk to chunk."""
MAX_PATTERN_TRIES = 8
"""After so many patterns of which none was met again, the stream has none: every chunk holds what is new."""
_PADDING_PREFIX = b',"obfuscation":"'
"""The service itself ends every chunk with so much of it that no length tells the text."""
_MISMATCH_ERRORS = (Malformed, LookupError, TypeError, RecursionError)
"""What a chunk of another shape leads to."""


class PaddedChunk:
    """A chunk known by its bytes but for its padding."""

    __slots__ = ("_frame_template",)

    def __init__(self, alike: sse.FrameTemplate) -> None:
        self._frame_template = alike

    def match_text(self, data: bytes) -> str | None:
        bare = _strip_padding(data, b"}\n\n")
        return None if bare is None else self._frame_template.match_text(bare)


def _strip_padding(data: bytes, end: bytes) -> bytes | None:
    """The chunk without its padding, if it has one and that is plain and the last of it."""
    said, found, padding = data.rpartition(_PADDING_PREFIX)
    if not found:
        return None
    letters, _, rest = padding.partition(b'"')
    return said + end if rest == end and letters.isalnum() else None


class TextDeltaPattern:
    __slots__ = (
        "_choice",
        "_choice_index",
        "_chunk",
        "_counts_text",
        "_key",
        "_mark",
        "frame_template",
        "read_repeat_bytes",
    )

    def __init__(self, data: bytes, key: str, choice: OpenChoice) -> None:
        self._chunk: bytes | Object = data
        """Decoded when the bytes of another do not tell that it is like it."""
        self._choice_index = choice.index
        self._key = key
        self._mark = _CHANNEL_MARKS[key]
        self._choice = choice
        self._counts_text = choice.channel == "text"
        self.frame_template: sse.FrameTemplate | None = None
        self.read_repeat_bytes: sse.RepeatReader | None = None

    def find_text(self, chunk: Json) -> Json:
        return chunk["choices"][0]["delta"][self._key]

    def build_frame_template(self, frame: sse.Frame, text: str) -> sse.FrameTemplate | None:
        return sse.make_frame_template(frame, text, self.find_text)

    def count_text(self, size: int) -> None:
        if self._counts_text:
            self._choice.text_length += size

    def read_repeat(self, frame: sse.Frame) -> Event | None:
        if frame.event is not None or not frame.data.partition(self._mark)[1]:
            return None
        key, pattern = self._key, _decode_pattern(self)
        try:
            chunk = decode(frame.data)
            choice = chunk["choices"][0]
            pattern["choices"][0]["delta"][key] = text = choice["delta"][key]
            # A small number is one object: `is` tells 0 from false, which `==` does not.
            if choice["index"] is not self._choice_index or not text or type(text) is not str:
                return None
            if chunk != pattern and not _matches_loosely(pattern, chunk):
                return None
        except _MISMATCH_ERRORS:
            return None
        self.count_text(len(text))
        return TextDelta(self._choice.open_part, text, SourceFrame(NAME, None, chunk))


class ArgumentsDeltaPattern:
    __slots__ = ("_call", "_choice_index", "_chunk", "frame_template", "read_repeat_bytes")

    def __init__(self, data: bytes, choice: OpenChoice, call: OpenCall) -> None:
        self._chunk: bytes | Object = data
        self._choice_index = choice.index
        self._call = call
        self.frame_template: sse.FrameTemplate | None = None
        self.read_repeat_bytes: sse.RepeatReader | None = None

    def find_text(self, chunk: Json) -> Json:
        return chunk["choices"][0]["delta"]["tool_calls"][0]["function"]["arguments"]

    def build_frame_template(self, frame: sse.Frame, text: str) -> sse.FrameTemplate | None:
        # What begins with all that there is may be that again.
        return sse.make_frame_template(
            frame, text, self.find_text, self._call.append_piece, excluded_start=self._call.text
        )

    def count_text(self, size: int) -> None:
        self._call.length += size

    def read_repeat(self, frame: sse.Frame) -> Event | None:
        if frame.event is not None or not frame.data.partition(_ARGUMENTS_MARK)[1]:
            return None
        slot, pattern = self._call, _decode_pattern(self)
        try:
            chunk = decode(frame.data)
            choice = chunk["choices"][0]
            call = choice["delta"]["tool_calls"][0]
            text = call["function"]["arguments"]
            pattern["choices"][0]["delta"]["tool_calls"][0]["function"]["arguments"] = text
            if choice["index"] is not self._choice_index or call["index"] is not slot.call_index:
                return None
            if not text or type(text) is not str or (chunk != pattern and not _matches_loosely(pattern, chunk)):
                return None
        except _MISMATCH_ERRORS:
            return None
        if len(text) >= slot.length and text.startswith(slot.text):
            return None
        slot.add_delta(text)
        return ArgumentsDelta(slot.part_index, text, SourceFrame(NAME, None, chunk))


DeltaPattern = TextDeltaPattern | ArgumentsDeltaPattern


def _decode_pattern(pattern: DeltaPattern) -> Object:
    """The chunk that is the pattern, as a copy of its own."""
    chunk = pattern._chunk
    if isinstance(chunk, bytes):
        chunk = pattern._chunk = decode(chunk)
    return chunk


def _matches_loosely(pattern: Object, chunk: Object) -> bool:
    """Is it the same but for the keys that say nothing?"""
    for key in _IGNORED_KEYS:
        if key in chunk:
            pattern[key] = chunk[key]
            if chunk == pattern:
                return True
    return False


def find_pattern(
    frame: sse.Frame, chunk: Object, event: TextDelta | ArgumentsDelta, choices: Mapping[int, OpenChoice]
) -> DeltaPattern | None:
    """The pattern of a chunk of which this delta came, if it says nothing besides."""
    pattern = _build_pattern(frame.data, chunk["choices"], event, choices)
    if pattern is not None:
        bare = _strip_padding(frame.data, b"}")
        alike = pattern.frame_template = pattern.build_frame_template(
            frame if bare is None else sse.Frame(None, bare), event.text
        )
        if alike is not None:
            pattern.read_repeat_bytes = alike.match_text if bare is None else PaddedChunk(alike).match_text
    return pattern


def _build_pattern(
    data: bytes, choices: list[Object], event: TextDelta | ArgumentsDelta, answers: Mapping[int, OpenChoice]
) -> DeltaPattern | None:
    choice = choices[0]
    index = choice.get("index")
    if len(choices) != 1 or type(index) is not int or choice.get("finish_reason"):
        return None
    delta, answer = choice["delta"], answers[index]
    if isinstance(event, TextDelta):
        key = "content" if delta.get("content") else next(filter(delta.get, _TEXT_CHANNELS), "content")
        said = delta.get(key) == event.text and _has_only_keys(delta, key)
        return TextDeltaPattern(data, key, answer) if said else None
    slot = _find_call(delta, answer)
    return (
        ArgumentsDeltaPattern(data, answer, slot) if slot is not None and _has_only_keys(delta, "tool_calls") else None
    )


def _find_call(delta: Object, choice: OpenChoice) -> OpenCall | None:
    """The call that every such delta belongs to: it is named by its own number, and by nothing else."""
    calls: Json = delta.get("tool_calls")
    if type(calls) is not list or len(calls) != 1:
        return None
    call = calls[0]
    index, function = call.get("index"), call.get("function")
    slot = choice.calls_by_index.get(index) if type(index) is int and type(function) is dict else None
    if (
        slot is None
        or slot.call_index != index
        or slot.kind != "function"
        or slot.held_back is not None
        or slot.sends_whole_text
    ):
        return None
    named = call.get("id") or function.get("name") or call.get("type") == "custom"
    return slot if not named and "arguments" in function and _has_only_keys(call, "function", "index") else None


def _has_only_keys(node: Object, *said: str) -> bool:
    """Is all the rest of it nothing, or words? What is made of those does not change."""
    return not [key for key, value in node.items() if value and type(value) is not str and key not in said]
