"""Reads a unified stream. One part is open at a time; `part` numbers them, `index` numbers the calls.

A delta without `part` belongs to the open part when that is of its type, and begins the next one when it is not: with
one open part at a time nothing is guessed. The end is `end` or `error`; a stream that stops before it has failed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from msgspec.structs import replace

from toolwire.core import events as ev
from toolwire.core.errors import truncated_stream_failure
from toolwire.core.frame_reader import FrameReader
from toolwire.core.ir import Call, Choice, Failure, Finish, Origin, Part, Refusal, Response, Text, UnknownField
from toolwire.core.json_values import (
    Malformed,
    Object,
    Path,
    decode,
    expect_object,
    get_int,
    get_text,
    require_text,
)
from toolwire.core.provenance import is_nonempty
from toolwire.core.sse import Frame
from toolwire.protocols.unified import names
from toolwire.protocols.unified.content import read_citation, read_part, read_reasoning
from toolwire.protocols.unified.errors import read_failure
from toolwire.protocols.unified.names import NAME, LenientReadContext, read_fields
from toolwire.protocols.unified.response import read_response_node, read_seal, read_usage

_SILENT_FRAME = ev.SourceFrame(NAME, None, None, silent=True)
_SEALABLE_PARTS = frozenset({"text", "reasoning", "tool_call", "image", "file", "audio", "video"})
_TEXT_PARTS: Mapping[str, type[Text | Refusal]] = {"text": Text, "refusal": Refusal}
_CITABLE_PARTS = frozenset({"text", "hosted_result"})


class StreamReader(FrameReader):
    """It recognises no repeats: the only providers of this protocol are other gateways."""

    silent_frame = _SILENT_FRAME

    def __init__(self) -> None:
        super().__init__()
        self._reading = LenientReadContext(NAME)
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

    def _end_input(self) -> None:
        self._fail(truncated_stream_failure("no `end` came"), _SILENT_FRAME)

    def _read_frame(self, raw: Frame, path: Path) -> None:
        try:
            node = expect_object(decode(raw.data, path, replaced=self.replaced_halves), path)
            word = require_text(node, "type", path)
        except Malformed as error:
            # Not a unified event: the stream fails, unless it is complete.
            if self._ended:
                frame = ev.SourceFrame(NAME, raw.event, None, silent=True)
                origin = Origin(NAME, path, raw.data.decode("utf-8", "replace"))
                self._events.append(ev.OpaqueEvent("", origin, frame=frame))
            else:
                self._fail(Failure("upstream", str(error), 502, "invalid_stream"), _SILENT_FRAME)
            return
        self._frame = ev.SourceFrame(NAME, raw.event, node)
        before = len(self._events)
        try:
            self._read_event(word, node, path)
        except Malformed as error:
            del self._events[before:]
            self._fail(Failure("upstream", str(error), 502, "invalid_stream"), _SILENT_FRAME)
        if len(self._events) == before:
            is_ignorable = word in names.EVENT_KEYS and not self._ended
            self._events.append(ev.OpaqueEvent(word, Origin(NAME, path, node), is_ignorable, self._frame))

    def _read_event(self, word: str, node: Object, path: Path) -> None:
        read = _EVENT_READERS.get(word)
        if read is None or self._ended:
            return
        known = names.EVENT_KEYS[word]
        for key in () if known.issuperset(node) else node:
            if key not in known and is_nonempty(node[key]):
                self._unknown_fields.setdefault((word, key), UnknownField(path, key))
        if not self._started and word not in ("start", "error"):
            raise Malformed(path, f"`{word}` came before `start`")
        read(self, node, path)

    # --- one method for each type of event ---

    def _read_start(self, node: Object, path: Path) -> None:
        if self._started:
            raise Malformed(path, "`start` came twice")
        usage = self._reading.get_counted(node, "usage", path)
        start = ev.ResponseStart(
            **read_fields(node, path, names.RESPONSE_FIELDS),
            usage=None if usage is None else read_usage(self._reading, usage, (path, "usage")),
            origin=Origin(NAME, path, node, intact=False),
            frame=self._frame,
        )
        self._started = True
        self._events.append(start)

    def _read_text(self, node: Object, path: Path) -> None:
        """Text, reasoning and refusals."""
        delta = get_text(node, "delta", path) or ""
        word: str = node["type"]
        if self._starts_part(node, path, word):
            origin, kind = Origin(NAME, path, node, intact=False), _TEXT_PARTS.get(word)
            part = kind("", origin=origin) if kind else read_reasoning(self._reading, node, path, origin)
            self._open_part(part, word)
        if delta:
            self._events.append(ev.TextDelta(self._part_index, delta, self._frame))

    def _read_tool_call(self, node: Object, path: Path) -> None:
        index = get_int(node, "index", path)
        if index is None:
            raise Malformed((path, "index"), "`index` is missing, so the call is unknown")
        name = get_text(node, "name", path)
        if name is not None:
            if index != self._call_count:
                raise Malformed((path, "index"), f"call {index} begins where call {self._call_count} was due")
            self._starts_part(node, path, "")
            id, origin = names.read_call_id(get_text(node, "id", path) or ""), Origin(NAME, path, node, intact=False)
            call = Call(id, name, **read_fields(node, path, names.CALL_FIELDS), origin=origin)
            self._open_part(call, "tool_call")
            self._call_count += 1
        elif self._part_kind != "tool_call" or index != self._call_count - 1:
            raise Malformed((path, "index"), f"arguments for call {index}, which is not open")
        else:
            self._check_open_part(node, path)
        text = get_text(node, "arguments", path)
        if text:
            self._events.append(ev.ArgumentsDelta(self._part_index, text, self._frame))

    def _read_part(self, node: Object, path: Path) -> None:
        """A part that comes whole."""
        part = read_part(self._reading, node.get("content"), (path, "content"), names.ASSISTANT_PART_TYPES)
        self._starts_part(node, path, "")
        self._open_part(part, node["content"]["type"])

    def _read_citation(self, node: Object, path: Path) -> None:
        self._check_part_kind(node, path, _CITABLE_PARTS)
        citation = read_citation(self._reading, node.get("citation"), (path, "citation"))
        self._events.append(ev.CitationDelta(self._part_index, citation, self._frame))

    def _read_seal(self, node: Object, path: Path) -> None:
        self._check_part_kind(node, path, _SEALABLE_PARTS)
        self._events.append(ev.SealDelta(self._part_index, read_seal(node, path), self._frame))

    def _read_usage(self, node: Object, path: Path) -> None:
        where: Path = (path, "usage")
        usage = self._reading.get_counted(node, "usage", path)
        if usage is not None:
            self._last_usage = usage
            self._events.append(ev.UsageUpdate(read_usage(self._reading, usage, where), self._frame))

    def _read_error(self, node: Object, path: Path) -> None:
        where: Path = (path, "error")
        usage = self._reading.get_counted(node, "usage", path)
        if usage is not None and self._started:
            self._events.append(ev.UsageUpdate(read_usage(self._reading, usage, (path, "usage")), self._frame))
        self._fail(read_failure(expect_object(node.get("error"), where), where), self._frame)

    def _read_end(self, node: Object, path: Path) -> None:
        """The end holds the whole answer; parts that were not streamed are read from it."""
        reading = LenientReadContext(NAME)
        answer = read_response_node(reading, node.get("response"), (path, "response"))
        if answer.failure is not None:
            self._fail(answer.failure, self._frame)
            return
        choice = answer.choices[0] if answer.choices else Choice(0, ())
        events, frame = self._events, self._frame
        if self._is_open:
            last = choice.parts[self._part_index] if self._part_index < len(choice.parts) else None
            events.append(ev.PartEnd(self._part_index, isinstance(last, Call) and last.incomplete, frame))
        first = self._part_index + 1
        rest = ev.unfold(Response(choices=(Choice(0, choice.parts[first:]),)))
        parts = (event for event in rest if isinstance(event, ev.PartEvent))
        events.extend(replace(event, index=event.index + first, frame=frame) for event in parts)
        events.append(ev.ChoiceEnd(choice.finish or Finish("other"), 0, frame))
        if answer.usage is not None and node["response"]["usage"] != self._last_usage:
            events.append(ev.UsageUpdate(answer.usage, frame))
        unknown_fields = (*self._reading.unknown_fields, *self._unknown_fields.values(), *reading.unknown_fields)
        self._ended = True
        events.append(ev.ResponseEnd(unknown_fields, frame))

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

    def _open_part(self, part: Part, kind: str) -> None:
        if self._is_open:
            self._events.append(ev.PartEnd(self._part_index, frame=self._frame))
        self._is_open = True
        self._part_index += 1
        self._part_kind = kind
        self._events.append(ev.PartStart(self._part_index, part, 0, self._frame))


_EVENT_READERS: Mapping[str, Callable[[StreamReader, Object, Path], None]] = {
    "text": StreamReader._read_text,
    "tool_call": StreamReader._read_tool_call,
    "reasoning": StreamReader._read_text,
    "refusal": StreamReader._read_text,
    "start": StreamReader._read_start,
    "part": StreamReader._read_part,
    "citation": StreamReader._read_citation,
    "seal": StreamReader._read_seal,
    "usage": StreamReader._read_usage,
    "ping": lambda _reader, _node, _path: None,
    "end": StreamReader._read_end,
    "error": StreamReader._read_error,
}
