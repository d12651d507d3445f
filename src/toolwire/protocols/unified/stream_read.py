"""A stream's events from bytes. One part is open at a time; `part` numbers them, `index` numbers the calls.

A delta without `part` belongs to the open part when that is of its type, and begins the next one when it is not: with
one open part at a time nothing is guessed. The end is `end` or `error`; a stream that stops before it has failed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TypeAlias

from msgspec.structs import replace

from toolwire import sse
from toolwire.events import (
    ArgumentsDelta,
    Carried,
    ChoiceEnd,
    CitationDelta,
    Event,
    Frame,
    PartEnd,
    PartStart,
    ResponseEnd,
    ResponseFailed,
    ResponseStart,
    SealDelta,
    TextDelta,
    UsageUpdate,
)
from toolwire.failures import TRUNCATED
from toolwire.fold import unfold
from toolwire.ir import Call, Choice, Failure, Finish, Origin, Part, Reasoning, Refusal, Response, Stray, Text
from toolwire.protocols.unified.errors import read_failure
from toolwire.protocols.unified.names import EVENTS, NAME, Loose, read_id
from toolwire.protocols.unified.parts import read_citation, read_part, read_reasoning
from toolwire.protocols.unified.response import SPOKEN, read_answer, read_seal, read_usage
from toolwire.wire import (
    Malformed,
    Object,
    Path,
    as_object,
    decode,
    need_text,
    take_bool,
    take_int,
    take_object,
    take_text,
)

_SILENT = Frame(NAME, None, None, silent=True)
_SEALED = frozenset({"text", "reasoning", "tool_call", "image", "file", "audio", "video"})
_GROWN = frozenset({"text", "reasoning", "refusal"})
_CITED = frozenset({"text", "hosted_result"})

Events: TypeAlias = list[Event]


class StreamReader:
    """Bytes of one answer in, events out."""

    def __init__(self) -> None:
        self._splitter = sse.Splitter()
        self._reading = Loose(NAME)
        self._count = 0
        self._started = False
        self._over = False
        self._failed = False
        self._at = -1
        """The open part, or the last one."""
        self._kind = ""
        """What the open part is."""
        self._is_open = False
        self._calls = 0
        self._counted: Object | None = None
        """The counts that were told last, so that the end does not tell them again."""
        self._strays: dict[tuple[str, str], Stray] = {}

    def feed(self, data: bytes) -> Events:
        if self._failed:
            return []
        try:
            frames = self._splitter.feed(data)
        except sse.FrameTooLong as error:
            return [self._fail(str(error), _SILENT)]
        return self._read(frames)

    def close(self) -> Events:
        if self._failed:
            return []
        events = self._read(self._splitter.close())
        if not self._over:
            events.append(self._fail(f"{TRUNCATED}: no `end` came", _SILENT, "stream_truncated"))
        return events

    def _read(self, frames: list[sse.Frame]) -> Events:
        events: Events = []
        for raw in frames:
            if self._failed:
                break
            path: Path = ((None, "event"), self._count)
            self._count += 1
            try:
                node = as_object(decode(raw.data, path), path)
                word = need_text(node, "type", path)
            except Malformed as error:
                events.append(self._unreadable(error, raw, path))
                continue
            frame = Frame(NAME, raw.event, node)
            more = self._more(node, frame)
            if more is not None:
                events.append(more)
                continue
            try:
                read = self._read_frame(word, node, path, frame)
            except Malformed as error:
                read = [self._fail(str(error), frame)]
            events.extend(read or [Carried(word, Origin(NAME, path, node), self._is_quiet(word), frame)])
        return events

    def _more(self, node: Object, frame: Frame) -> Event | None:
        """The usual case, more of the open part: nothing else has to be looked at."""
        if node.get("part") != self._at or node["type"] != self._kind or self._over:
            return None
        if len(node) == 3 and self._kind in _GROWN:
            text = node.get("delta")
            return TextDelta(self._at, text, frame) if text and text.__class__ is str else None
        if len(node) == 4 and self._kind == "tool_call" and node.get("index") == self._calls - 1:
            text = node.get("arguments")
            return ArgumentsDelta(self._at, text, frame) if text and text.__class__ is str else None
        return None

    def _unreadable(self, error: Malformed, raw: sse.Frame, path: Path) -> Event:
        """A frame that is no event of ours: the stream fails, unless it is over and complete."""
        frame = Frame(NAME, raw.event, None, silent=True)
        if self._over:
            return Carried("", Origin(NAME, path, raw.data.decode("utf-8", "replace")), frame=frame)
        return self._fail(str(error), frame)

    def _is_quiet(self, word: str) -> bool:
        return word in EVENTS and not self._over

    def _read_frame(self, word: str, node: Object, path: Path, frame: Frame) -> Events:
        handle = _READERS.get(word)
        known = EVENTS.get(word)
        if handle is None or known is None or self._over:
            return []
        if not known.issuperset(node):
            self._note_strays(word, node, path, known)
        if not self._started and word not in ("start", "error"):
            raise Malformed(path, f"`{word}` stands before `start`")
        return handle(self, node, path, frame)

    def _note_strays(self, word: str, node: Object, path: Path, known: frozenset[str]) -> None:
        """A key is reported once for each type of event, so that a long stream needs no more room than a short one."""
        for key, value in node.items():
            if key not in known and value is not None and value != [] and value != {}:
                self._strays.setdefault((word, key), Stray(path, key))

    def _fail(self, message: str, frame: Frame, code: str = "invalid_stream") -> ResponseFailed:
        self._failed = self._over = True
        return ResponseFailed(Failure("upstream", message, 502, code), frame)

    # --- one method for each type of event ---------------------------------------------------------------------------

    def _start(self, node: Object, path: Path, frame: Frame) -> Events:
        if self._started:
            raise Malformed(path, "`start` stands here a second time")
        usage = take_object(node, "usage", path)
        start = ResponseStart(
            take_text(node, "id", path) or "",
            take_text(node, "model", path) or "",
            take_int(node, "created", path),
            None if usage is None else read_usage(self._reading, usage, (path, "usage")),
            Origin(NAME, path, node, intact=False),
            frame,
        )
        self._started = True
        return [start]

    def _text(self, node: Object, path: Path, frame: Frame) -> Events:
        """Text, reasoning and refusals."""
        delta = take_text(node, "delta", path) or ""
        word: str = node["type"]
        events: Events = []
        if self._begins(node, path, word):
            events = self._open(_grown(self._reading, word, node, path), word, frame)
        if delta:
            events.append(TextDelta(self._at, delta, frame))
        return events

    def _tool_call(self, node: Object, path: Path, frame: Frame) -> Events:
        index = take_int(node, "index", path)
        if index is None:
            raise Malformed((path, "index"), "`index` is missing: nobody could tell which call this is")
        name = take_text(node, "name", path)
        events: Events = []
        if name is not None:
            if index != self._calls:
                raise Malformed((path, "index"), f"call {index} begins where call {self._calls} was due")
            self._begins(node, path, "")
            id, item = take_text(node, "id", path) or "", take_text(node, "item_id", path) or ""
            later, origin = take_bool(node, "later", path) or False, Origin(NAME, path, node, intact=False)
            events = self._open(Call(read_id(id), name, item=item, later=later, origin=origin), "tool_call", frame)
            self._calls += 1
        elif self._kind != "tool_call" or index != self._calls - 1:
            raise Malformed((path, "index"), f"arguments for call {index}, which is not open")
        else:
            self._same(node, path)
        text = take_text(node, "arguments", path)
        if text:
            events.append(ArgumentsDelta(self._at, text, frame))
        return events

    def _part(self, node: Object, path: Path, frame: Frame) -> Events:
        """A part that comes whole."""
        where: Path = (path, "content")
        part = read_part(self._reading, node.get("content"), where, SPOKEN)
        self._begins(node, path, "")
        return self._open(part, node["content"]["type"], frame)

    def _citation(self, node: Object, path: Path, frame: Frame) -> Events:
        self._belongs(node, path, _CITED)
        citation = read_citation(self._reading, node.get("citation"), (path, "citation"))
        return [CitationDelta(self._at, citation, frame)]

    def _seal(self, node: Object, path: Path, frame: Frame) -> Events:
        self._belongs(node, path, _SEALED)
        return [SealDelta(self._at, read_seal(node, path), frame)]

    def _usage(self, node: Object, path: Path, frame: Frame) -> Events:
        where: Path = (path, "usage")
        self._counted = as_object(node.get("usage"), where)
        return [UsageUpdate(read_usage(self._reading, self._counted, where), frame)]

    def _ping(self, node: Object, path: Path, frame: Frame) -> Events:
        return []

    def _error(self, node: Object, path: Path, frame: Frame) -> Events:
        where: Path = (path, "error")
        events: Events = []
        usage = take_object(node, "usage", path)
        if usage is not None and self._started:
            events.append(UsageUpdate(read_usage(self._reading, usage, (path, "usage")), frame))
        failure = read_failure(as_object(node.get("error"), where), where)
        self._failed = self._over = True
        return [*events, ResponseFailed(failure, frame)]

    def _end(self, node: Object, path: Path, frame: Frame) -> Events:
        """The whole answer closes the stream; parts that were not streamed are taken from it."""
        reading = Loose(NAME)
        answer = read_answer(reading, node.get("response"), (path, "response"))
        if answer.failure is not None:
            self._failed = self._over = True
            return [ResponseFailed(answer.failure, frame)]
        choice = answer.choices[0] if answer.choices else Choice(0, ())
        events: Events = []
        if self._is_open:
            last = choice.parts[self._at] if self._at < len(choice.parts) else None
            events.append(PartEnd(self._at, isinstance(last, Call) and last.incomplete, frame))
        events.extend(self._unstreamed(choice, frame))
        events.append(ChoiceEnd(choice.finish or Finish("other"), 0, frame))
        if answer.usage is not None and node["response"]["usage"] != self._counted:
            events.append(UsageUpdate(answer.usage, frame))
        strays = (*self._reading.strays, *self._strays.values(), *reading.strays)
        self._over = True
        return [*events, ResponseEnd(strays, frame)]

    def _unstreamed(self, choice: Choice, frame: Frame) -> Events:
        first = self._at + 1
        rest = Response(choices=(Choice(0, choice.parts[first:]),))
        return [
            replace(event, index=event.index + first, frame=frame)
            for event in unfold(rest)
            if isinstance(event, (PartStart, TextDelta, ArgumentsDelta, SealDelta, CitationDelta, PartEnd))
        ]

    # --- which part -------------------------------------------------------------------------------------------------

    def _begins(self, node: Object, path: Path, kind: str) -> bool:
        """Does this event begin a part? `kind` is "" when it always does."""
        given = take_int(node, "part", path)
        if given is None:
            return kind != self._kind
        if given == self._at + 1:
            return True
        if given == self._at and kind and kind == self._kind:
            return False
        raise Malformed((path, "part"), f"part {given} cannot stand here: {self._told()}")

    def _belongs(self, node: Object, path: Path, kinds: frozenset[str]) -> None:
        self._same(node, path)
        if self._kind not in kinds:
            raise Malformed(path, f"a {node['type']} cannot stand here: {self._told()}")

    def _same(self, node: Object, path: Path) -> None:
        given = take_int(node, "part", path)
        if given is not None and given != self._at:
            raise Malformed((path, "part"), f"part {given} is not open: {self._told()}")

    def _told(self) -> str:
        return f"part {self._at} ({self._kind}) is open" if self._is_open else "no part is open"

    def _open(self, part: Part, kind: str, frame: Frame) -> Events:
        events: Events = [PartEnd(self._at, frame=frame)] if self._is_open else []
        self._is_open = True
        self._at += 1
        self._kind = kind
        events.append(PartStart(self._at, part, 0, frame))
        return events


def _grown(reading: Loose, word: str, node: Object, path: Path) -> Text | Reasoning | Refusal:
    """An empty part that deltas will fill."""
    origin = Origin(NAME, path, node, intact=False)
    if word == "text":
        return Text("", origin=origin)
    return Refusal("", origin=origin) if word == "refusal" else read_reasoning(reading, node, path, origin)


_READERS: Mapping[str, Callable[[StreamReader, Object, Path, Frame], Events]] = MappingProxyType(
    {
        "text": StreamReader._text,
        "tool_call": StreamReader._tool_call,
        "reasoning": StreamReader._text,
        "refusal": StreamReader._text,
        "start": StreamReader._start,
        "part": StreamReader._part,
        "citation": StreamReader._citation,
        "seal": StreamReader._seal,
        "usage": StreamReader._usage,
        "ping": StreamReader._ping,
        "end": StreamReader._end,
        "error": StreamReader._error,
    }
)
