"""Reads a unified stream. One part is open at a time; `part` numbers them, `index` numbers the calls.

A delta without `part` belongs to the open part when that is of its type, and begins the next one when it is not: with
one open part at a time nothing is guessed. The end is `end` or `error`; a stream that stops before it has failed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from msgspec.structs import replace

from toolwire.core import events as ev
from toolwire.core import sse
from toolwire.core.errors import truncated_stream_failure
from toolwire.core.frame_reader import EVENT_PATH, FrameReader
from toolwire.core.ir import Call, Choice, Failure, Finish, Origin, Part, Refusal, Response, Text, UnknownField
from toolwire.core.json_values import (
    Malformed,
    Object,
    Path,
    decode,
    expect_object,
    get_int,
    get_object,
    get_text,
    require_text,
)
from toolwire.core.provenance import is_nonempty
from toolwire.protocols.unified import names
from toolwire.protocols.unified.content import read_citation, read_part, read_reasoning
from toolwire.protocols.unified.errors import read_failure
from toolwire.protocols.unified.names import NAME, LenientReadContext, read_fields
from toolwire.protocols.unified.response import read_response_node, read_seal, read_usage

_SILENT_FRAME = ev.SourceFrame(NAME, None, None, silent=True)
_SEALABLE_PARTS = frozenset({"text", "reasoning", "tool_call", "image", "file", "audio", "video"})
_TEXT_PARTS: Mapping[str, type[Text | Refusal]] = {"text": Text, "refusal": Refusal}
_CITABLE_PARTS = frozenset({"text", "hosted_result"})

Events: TypeAlias = list[ev.Event]


class StreamReader(FrameReader):
    """It recognises no repeats: the only providers of this protocol are other gateways."""

    silent_frame = _SILENT_FRAME

    def __init__(self) -> None:
        super().__init__()
        self._splitter = sse.SseSplitter()
        self._reading = LenientReadContext(NAME)
        self._has_failed = False
        self._part_index = -1
        """The open part, or the last one."""
        self._part_kind = ""
        """The type of the open part."""
        self._is_open = False
        self._call_count = 0
        self._last_usage: Object | None = None
        """The last usage, so that the end does not repeat it."""
        self._unknown_fields: dict[tuple[str, str], UnknownField] = {}
        """Each key once for each type of event, so that a long stream takes no more memory than a short one."""

    def feed(self, data: bytes) -> Events:
        if self._has_failed:
            return []
        try:
            frames = self._splitter.feed(data)
        except sse.FrameTooLong as error:
            return [self._fail_stream(str(error), _SILENT_FRAME)]
        return self._read_frames(frames)

    def close(self) -> Events:
        if self._has_failed:
            return []
        events = self._read_frames(self._splitter.close())
        if not self._ended:
            events.append(self._fail(truncated_stream_failure("no `end` came"), _SILENT_FRAME))
        return events

    def _read_frames(self, frames: list[sse.Frame]) -> Events:
        events: Events = []
        for raw in frames:
            if self._has_failed:
                break
            path: Path = (EVENT_PATH, self._frame_count)
            self._frame_count += 1
            try:
                node = expect_object(decode(raw.data, path, replaced=self.replaced_halves), path)
                word = require_text(node, "type", path)
            except Malformed as error:
                # Not a unified event: the stream fails, unless it is complete.
                frame = ev.SourceFrame(NAME, raw.event, None, silent=True)
                origin = Origin(NAME, path, raw.data.decode("utf-8", "replace"))
                failed = (
                    ev.OpaqueEvent("", origin, frame=frame) if self._ended else self._fail_stream(str(error), frame)
                )
                events.append(failed)
                continue
            frame = ev.SourceFrame(NAME, raw.event, node)
            try:
                read = self._read_frame(word, node, path, frame)
            except Malformed as error:
                read = [self._fail_stream(str(error), _SILENT_FRAME)]
            is_ignorable = word in names.EVENT_KEYS and not self._ended
            events.extend(read or [ev.OpaqueEvent(word, Origin(NAME, path, node), is_ignorable, frame)])
        return events

    def _read_frame(self, word: str, node: Object, path: Path, frame: ev.SourceFrame) -> Events:
        read = _EVENT_READERS.get(word)
        if read is None or self._ended:
            return []
        known = names.EVENT_KEYS[word]
        for key in () if known.issuperset(node) else node:
            if key not in known and is_nonempty(node[key]):
                self._unknown_fields.setdefault((word, key), UnknownField(path, key))
        if not self._started and word not in ("start", "error"):
            raise Malformed(path, f"`{word}` came before `start`")
        return read(self, node, path, frame)

    def _fail_stream(self, message: str, frame: ev.SourceFrame) -> ev.ResponseFailed:
        return self._fail(Failure("upstream", message, 502, "invalid_stream"), frame)

    def _fail(self, failure: Failure, frame: ev.SourceFrame) -> ev.ResponseFailed:
        self._has_failed = self._ended = True
        return ev.ResponseFailed(failure, frame)

    # --- one method for each type of event ---

    def _read_start(self, node: Object, path: Path, frame: ev.SourceFrame) -> Events:
        if self._started:
            raise Malformed(path, "`start` came twice")
        usage = get_object(node, "usage", path)
        start = ev.ResponseStart(
            **read_fields(node, path, names.RESPONSE_FIELDS),
            usage=None if usage is None else read_usage(self._reading, usage, (path, "usage")),
            origin=Origin(NAME, path, node, intact=False),
            frame=frame,
        )
        self._started = True
        return [start]

    def _read_text(self, node: Object, path: Path, frame: ev.SourceFrame) -> Events:
        """Text, reasoning and refusals."""
        delta = get_text(node, "delta", path) or ""
        word: str = node["type"]
        events: Events = []
        if self._starts_part(node, path, word):
            origin, kind = Origin(NAME, path, node, intact=False), _TEXT_PARTS.get(word)
            part = kind("", origin=origin) if kind else read_reasoning(self._reading, node, path, origin)
            events = self._open_part(part, word, frame)
        if delta:
            events.append(ev.TextDelta(self._part_index, delta, frame))
        return events

    def _read_tool_call(self, node: Object, path: Path, frame: ev.SourceFrame) -> Events:
        index = get_int(node, "index", path)
        if index is None:
            raise Malformed((path, "index"), "`index` is missing, so the call is unknown")
        name = get_text(node, "name", path)
        events: Events = []
        if name is not None:
            if index != self._call_count:
                raise Malformed((path, "index"), f"call {index} begins where call {self._call_count} was due")
            self._starts_part(node, path, "")
            id, origin = names.read_call_id(get_text(node, "id", path) or ""), Origin(NAME, path, node, intact=False)
            call = Call(id, name, **read_fields(node, path, names.CALL_FIELDS), origin=origin)
            events = self._open_part(call, "tool_call", frame)
            self._call_count += 1
        elif self._part_kind != "tool_call" or index != self._call_count - 1:
            raise Malformed((path, "index"), f"arguments for call {index}, which is not open")
        else:
            self._check_open_part(node, path)
        text = get_text(node, "arguments", path)
        if text:
            events.append(ev.ArgumentsDelta(self._part_index, text, frame))
        return events

    def _read_part(self, node: Object, path: Path, frame: ev.SourceFrame) -> Events:
        """A part that comes whole."""
        part = read_part(self._reading, node.get("content"), (path, "content"), names.ASSISTANT_PART_TYPES)
        self._starts_part(node, path, "")
        return self._open_part(part, node["content"]["type"], frame)

    def _read_citation(self, node: Object, path: Path, frame: ev.SourceFrame) -> Events:
        self._check_part_kind(node, path, _CITABLE_PARTS)
        citation = read_citation(self._reading, node.get("citation"), (path, "citation"))
        return [ev.CitationDelta(self._part_index, citation, frame)]

    def _read_seal(self, node: Object, path: Path, frame: ev.SourceFrame) -> Events:
        self._check_part_kind(node, path, _SEALABLE_PARTS)
        return [ev.SealDelta(self._part_index, read_seal(node, path), frame)]

    def _read_usage(self, node: Object, path: Path, frame: ev.SourceFrame) -> Events:
        where: Path = (path, "usage")
        self._last_usage = expect_object(node.get("usage"), where)
        return [ev.UsageUpdate(read_usage(self._reading, self._last_usage, where), frame)]

    def _read_error(self, node: Object, path: Path, frame: ev.SourceFrame) -> Events:
        where: Path = (path, "error")
        events: Events = []
        usage = get_object(node, "usage", path)
        if usage is not None and self._started:
            events.append(ev.UsageUpdate(read_usage(self._reading, usage, (path, "usage")), frame))
        return [*events, self._fail(read_failure(expect_object(node.get("error"), where), where), frame)]

    def _read_end(self, node: Object, path: Path, frame: ev.SourceFrame) -> Events:
        """The end holds the whole answer; parts that were not streamed are read from it."""
        reading = LenientReadContext(NAME)
        answer = read_response_node(reading, node.get("response"), (path, "response"))
        if answer.failure is not None:
            return [self._fail(answer.failure, frame)]
        choice = answer.choices[0] if answer.choices else Choice(0, ())
        events: Events = []
        if self._is_open:
            last = choice.parts[self._part_index] if self._part_index < len(choice.parts) else None
            events.append(ev.PartEnd(self._part_index, isinstance(last, Call) and last.incomplete, frame))
        events.extend(self._read_unstreamed_parts(choice, frame))
        events.append(ev.ChoiceEnd(choice.finish or Finish("other"), 0, frame))
        if answer.usage is not None and node["response"]["usage"] != self._last_usage:
            events.append(ev.UsageUpdate(answer.usage, frame))
        unknown_fields = (*self._reading.unknown_fields, *self._unknown_fields.values(), *reading.unknown_fields)
        self._ended = True
        return [*events, ev.ResponseEnd(unknown_fields, frame)]

    def _read_unstreamed_parts(self, choice: Choice, frame: ev.SourceFrame) -> Events:
        first = self._part_index + 1
        rest = Response(choices=(Choice(0, choice.parts[first:]),))
        return [
            replace(event, index=event.index + first, frame=frame)
            for event in ev.unfold(rest)
            if isinstance(event, ev.PartEvent)
        ]

    # --- which part ---

    def _starts_part(self, node: Object, path: Path, kind: str) -> bool:
        """Does this event start a part? `kind` is "" if it always does."""
        given = get_int(node, "part", path)
        if given is None:
            return kind != self._part_kind
        if given == self._part_index + 1:
            return True
        if given == self._part_index and kind and kind == self._part_kind:
            return False
        raise Malformed((path, "part"), f"part {given} is not allowed here: {self._describe_open_part()}")

    def _check_part_kind(self, node: Object, path: Path, kinds: frozenset[str]) -> None:
        self._check_open_part(node, path)
        if self._part_kind not in kinds:
            raise Malformed(path, f"a {node['type']} is not allowed here: {self._describe_open_part()}")

    def _check_open_part(self, node: Object, path: Path) -> None:
        given = get_int(node, "part", path)
        if given is not None and given != self._part_index:
            raise Malformed((path, "part"), f"part {given} is not open: {self._describe_open_part()}")

    def _describe_open_part(self) -> str:
        return f"part {self._part_index} ({self._part_kind}) is open" if self._is_open else "no part is open"

    def _open_part(self, part: Part, kind: str, frame: ev.SourceFrame) -> Events:
        events: Events = [ev.PartEnd(self._part_index, frame=frame)] if self._is_open else []
        self._is_open = True
        self._part_index += 1
        self._part_kind = kind
        events.append(ev.PartStart(self._part_index, part, 0, frame))
        return events


_EVENT_READERS: Mapping[str, Callable[[StreamReader, Object, Path, ev.SourceFrame], Events]] = {
    "text": StreamReader._read_text,
    "tool_call": StreamReader._read_tool_call,
    "reasoning": StreamReader._read_text,
    "refusal": StreamReader._read_text,
    "start": StreamReader._read_start,
    "part": StreamReader._read_part,
    "citation": StreamReader._read_citation,
    "seal": StreamReader._read_seal,
    "usage": StreamReader._read_usage,
    "ping": lambda _reader, _node, _path, _frame: [],
    "end": StreamReader._read_end,
    "error": StreamReader._read_error,
}
