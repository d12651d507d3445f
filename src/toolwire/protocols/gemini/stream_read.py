"""Streams, read: each chunk is a whole answer whose parts add to what came before.

Parts of one channel (answer text, thoughts) grow over the chunks; a signed part stands for itself, so that its
signature can go back on exactly the same part. A call comes whole, or in pieces with JSON paths. The stream has come to
its end when every candidate has given a reason, or the prompt was blocked; what is owed follows at the end of input.
"""

from __future__ import annotations

from contextlib import suppress

from msgspec import ValidationError, convert
from msgspec.structs import replace

from toolwire.events import (
    MAX_CHOICES,
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
from toolwire.ir import NOTHING, Call, Failure, Finish, Origin, Part, Reasoning, Text, Usage
from toolwire.protocols.gemini.details.fragments import Fragments
from toolwire.protocols.gemini.details.framing import Framing
from toolwire.protocols.gemini.details.grounding import TOLD, read_grounding
from toolwire.protocols.gemini.details.growing import Candidate, Channel, Chunk, more_of
from toolwire.protocols.gemini.details.pattern import MAX_TRIES, Counted, pattern_of
from toolwire.protocols.gemini.errors import read_error, unreadable
from toolwire.protocols.gemini.names import ANSWER, CALL_PART, CANDIDATE, CONTENT, FRAGMENT, NAME, TEXT, Shape
from toolwire.protocols.gemini.parts import OpenCall, PartReading, is_piece, ordinary_call, read_part, read_seal
from toolwire.protocols.gemini.response import broken, read_block, read_finish, read_time, read_usage
from toolwire.reading import says_something
from toolwire.sse import Again, Alike, FrameTooLong
from toolwire.sse import Frame as Bytes
from toolwire.wire import (
    Json,
    Malformed,
    Object,
    Path,
    as_object,
    decode,
    take_bool,
    take_int,
    take_list,
    take_object,
    take_text,
)

SILENT = Frame(NAME, None, None, silent=True)
_ROOT: Path = (None, "event")


def _counts(told: tuple[Object, int], reading: PartReading) -> Usage:
    return read_usage(told[0], ((_ROOT, told[1]), "usageMetadata"), reading)


class StreamReader:
    """Bytes of one answer in, events out."""

    def __init__(self) -> None:
        self._framing = Framing()
        self._reading = PartReading()
        self._noted: set[tuple[Shape, str]] = set()
        self._out: list[Event] = []
        self._frames = 0
        self._parts = 0
        self._started = False
        self._done = False
        self._usage: tuple[Object, int] | None = None
        """The last counts, and the number of the chunk that they came with."""
        self._candidates: dict[int, Candidate] = {}
        self._growing: Channel | None = None
        """The text that grew last, while it is open."""
        self._pattern: tuple[Alike | Counted, Channel] | None = None
        """How more of it is known by its bytes."""
        self._tries = 0
        """Patterns that were looked for since one was met again."""
        self.again: Again | None = None

    # --- bytes ---

    def feed(self, data: bytes) -> list[Event]:
        if self._done or not data:
            return []
        self._settle()
        try:
            frames = self._framing.feed(data)
        except FrameTooLong as error:
            return self._fail(Failure("upstream", str(error), 502, "frame_too_long"), SILENT)
        events = self._take(frames)
        if self._growing is not None and self._framing.between and not self._done:
            self._learn(data, frames, self._growing)
        return events

    def _learn(self, data: bytes, frames: list[Bytes], channel: Channel) -> None:
        known = self._pattern
        if self._tries < MAX_TRIES:
            self._tries += 1
            if len(frames) == 1:
                told = self._usage
                usage = None if told is None or told[1] != self._frames - 1 else told[0]
                found = pattern_of(data, frames[0].data, channel, usage)
                if found is not None:
                    self._pattern = known = (found, channel)
        if known is not None and known[1] is channel:
            self.again = known[0].text

    def _settle(self) -> None:
        """Count in what was known by its bytes; it leaves nothing of what came before it."""
        self.again = None
        alike = None if self._pattern is None else self._pattern[0]
        if alike is not None and alike.met:
            self._frames += alike.met
            self._tries = alike.met = 0
            if isinstance(alike, Counted):
                self._usage = (alike.usage, self._frames - 1)
            self._framing.forget()

    def close(self) -> list[Event]:
        if self._done:
            return []
        self._settle()
        return self._ended(self._take(self._framing.close(), at_end=True))

    def _ended(self, events: list[Event]) -> list[Event]:
        if self._done:
            return events
        self._done = True
        for one in self._candidates.values():
            if one.finish is None:
                break
        else:
            if self._candidates:
                return events + self._finish()
        return events + self._cut()

    def _take(self, frames: list[Bytes], at_end: bool = False) -> list[Event]:
        out = self._out = []
        for bytes_ in frames:
            path = (_ROOT, self._frames)
            self._frames += 1
            try:
                json = decode(bytes_.data, path)
            except Malformed as error:
                if bytes_.data.strip() == b"[DONE]":
                    frame = Frame(NAME, bytes_.event, None)
                    out.append(Carried("[DONE]", Origin(NAME, path, None), quiet=True, frame=frame))
                    continue
                # What the end of input tore is a stream that was cut, not one that was wrong.
                out.extend(self._cut() if at_end else self._fail(unreadable(error)))
                break
            frame = Frame(NAME, bytes_.event, json)
            growing = self._growing
            # What comes alone, and is not known by its bytes, is hardly more of the same.
            if growing is not None and (self._pattern is None or len(frames) > 1):
                more = more_of(growing, json)
                if more is not None:
                    text, usage = more
                    if usage is not None:
                        self._usage = (usage, self._frames - 1)
                    out.append(TextDelta(growing.index, text, frame))
                    continue
            self._other(json, path, frame)
            if self._done:
                break
        return out

    def _other(self, json: Json, path: Path, frame: Frame) -> None:
        out = self._out
        before = len(out)
        try:
            if not self._usual(json, path, frame):
                self._chunk(as_object(json, path), path, frame)
        except Malformed as error:
            out.extend(self._fail(unreadable(error)))
        if len(out) == before:
            out.append(Carried("chunk", Origin(NAME, path, json), quiet=True, frame=frame))

    def _fail(self, failure: Failure, frame: Frame | None = None) -> list[Event]:
        self._done = True
        events: list[Event] = []
        if self._usage is not None and self._started:
            # The failure at hand matters more than counts that cannot be read.
            with suppress(Malformed):
                events.append(UsageUpdate(_counts(self._usage, self._reading), frame=frame))
        return [*events, ResponseFailed(failure, frame=frame)]

    # --- chunks ---

    def _usual(self, json: Json, path: Path, frame: Frame) -> bool:
        """The short way for a chunk of one candidate that has parts, and no key that we do not know."""
        try:
            chunk = convert(json, Chunk)
        except ValidationError:
            return False
        (node,) = chunk.candidates
        usage, index = chunk.usageMetadata, node.index
        if (usage.__class__ is not dict and usage is not None) or not 0 <= index < MAX_CHOICES:
            return False
        if usage is not None:
            self._usage = (usage, self._frames - 1)
        if not self._started:
            self._start(json, path, frame)
        one = self._open(index)
        here = ((path, "candidates"), 0)
        for number, part in enumerate(node.content.parts):
            self._part(one, part, (((here, "content"), "parts"), number), frame)
        if node.finishReason is not None:
            self._ends(one, read_finish(json["candidates"][0], here), frame)
        return True

    def _chunk(self, raw: Object, path: Path, frame: Frame) -> None:
        if "error" in raw:
            self._out.extend(self._fail(read_error(raw, 0, {}, path), frame))
            return
        chunk = self._known(raw, path, ANSWER)
        usage = take_object(chunk, "usageMetadata", path)
        if usage is not None:
            self._usage = (usage, self._frames - 1)
        if not self._started:
            self._start(chunk, path, frame)
        candidates = take_list(chunk, "candidates", path)
        for number, item in enumerate(candidates or ()):
            here = ((path, "candidates"), number)
            self._candidate(as_object(item, here), here, number, frame)
            if self._done:
                return
        if not candidates and chunk.get("promptFeedback") is not None:
            blocked = read_block(chunk, path, self._reading)
            if blocked is not None:
                self._open(0).finish = blocked

    def _known(self, node: Object, path: Path, shape: Shape) -> Object:
        """The node in camelCase; an unknown key is noted the first time it comes."""
        if shape.keys.issuperset(node):
            return node
        for key, value in node.items():
            if key not in shape.known and (shape, key) not in self._noted and says_something(value):
                self._noted.add((shape, key))
                self._reading.stray(path, key)
        return shape(node)

    def _start(self, chunk: Object, path: Path, frame: Frame) -> None:
        self._started = True
        time = chunk.get("createTime")
        self._out.append(
            ResponseStart(
                take_text(chunk, "responseId", path) or "",
                take_text(chunk, "modelVersion", path) or "",
                None if time is None else read_time(time, self._reading, path),
                None if self._usage is None else _counts(self._usage, PartReading()),
                Origin(NAME, path, {}, NOTHING, False),
                frame,
            )
        )

    def _open(self, index: int) -> Candidate:
        one = self._candidates.get(index)
        if one is None:
            one = self._candidates[index] = Candidate(index)
        return one

    def _candidate(self, raw: Object, path: Path, number: int, frame: Frame) -> None:
        node = self._known(raw, path, CANDIDATE)
        index = take_int(node, "index", path)
        if index is not None and not 0 <= index < MAX_CHOICES:
            raise Malformed((path, "index"), f"no answer has {index} candidates")
        one = self._open(number if index is None else index)
        content = take_object(node, "content", path)
        if content is not None:
            here = (path, "content")
            inner = self._known(content, here, CONTENT)
            for at, part in enumerate(take_list(inner, "parts", here) or ()):
                self._part(one, part, ((here, "parts"), at), frame)
        told = {key: node[key] for key in TOLD if node.get(key)}
        if told:
            one.grounding = ((one.grounding[0] if one.grounding else {}) | told, path)
        self._ends(one, read_finish(node, path), frame)

    def _ends(self, one: Candidate, finish: Finish | None, frame: Frame) -> None:
        if finish is not None:
            one.finish = finish
            failure = broken(finish)
            if failure is not None:
                self._out.extend(self._fail(failure, frame))

    # --- parts ---

    def _part(self, one: Candidate, item: Json, path: Path, frame: Frame) -> None:
        node = item if item.__class__ is dict else as_object(item, path)
        text = node.get("text")
        if isinstance(text, str):
            if len(node) == 1:
                self._text(one, text, False, node, path, frame)
                return
            if read_seal(node, path) is None:
                self._known(node, path, TEXT)
                self._text(one, text, bool(take_bool(node, "thought", path)), node, path, frame)
                return
        call = node.get("functionCall", node.get("function_call"))
        part: Part | None = None
        if isinstance(call, dict):
            part = ordinary_call(node, call, path)
            if part is None and is_piece(pieces := FRAGMENT(call)):
                self._piece(one, pieces, node, path, frame)
                return
        part = part or read_part(node, path, self._reading)
        if part is not None:
            self._whole(one, part, frame)

    def _text(self, one: Candidate, text: str, thought: bool, node: Object, path: Path, frame: Frame) -> None:
        if not text:
            return
        channel = one.channel
        if channel is None or channel.thought is not thought:
            self._end_channel(one, frame)
            channel = one.channel = Channel(self._parts, one.index, thought)
            self._parts += 1
            origin = Origin(NAME, path, node, NOTHING, False)
            part: Part = Reasoning(form="summary", origin=origin) if thought else Text("", origin=origin)
            self._out.append(PartStart(channel.index, part, one.index, frame))
        self._growing = channel
        channel.pieces.append(text)
        self._out.append(TextDelta(channel.index, text, frame))

    def _end_channel(self, one: Candidate, frame: Frame) -> None:
        if one.channel is not None:
            self._out.append(PartEnd(one.channel.index, frame=frame))
            one.channel = self._growing = None

    def _whole(self, one: Candidate, part: Part, frame: Frame) -> None:
        """A part that came in one piece: a call, media, a signed text, what the provider's own tools did."""
        if isinstance(part, Text) and not part.text and part.seal is None:
            return
        self._end_channel(one, frame)
        index, self._parts = self._parts, self._parts + 1
        out = self._out
        if isinstance(part, Call):
            out.append(PartStart(index, replace(part, arguments="", seal=None), one.index, frame))
            if part.arguments:
                out.append(ArgumentsDelta(index, part.arguments, frame))
        elif isinstance(part, (Text, Reasoning)):
            out.append(PartStart(index, replace(part, text="", seal=None), one.index, frame))
            if part.text:
                out.append(TextDelta(index, part.text, frame))
        else:
            out.append(PartStart(index, part, one.index, frame))
        if isinstance(part, (Call, Text, Reasoning)) and part.seal is not None:
            out.append(SealDelta(index, part.seal, frame))
        out.append(PartEnd(index, frame=frame))

    def _piece(self, one: Candidate, call: Object, node: Object, path: Path, frame: Frame) -> None:
        """One piece of a call whose arguments are streamed by JSON path."""
        name = take_text(call, "name", path)
        if name is not None:
            if one.call is not None:
                raise Malformed(path, f"a call begins while the arguments of `{one.call[1].name}` are still coming")
            self._known(node, path, CALL_PART)
            self._end_channel(one, frame)
            opened = OpenCall(take_text(call, "id", path) or "", name, read_seal(node, path), path, node, Fragments())
            one.call = (self._parts, opened)
            self._parts += 1
            origin = Origin(NAME, path, node, NOTHING, False)
            self._out.append(PartStart(one.call[0], Call(opened.id, name, origin=origin), one.index, frame))
        elif one.call is None:
            raise Malformed(path, "a piece of a call came, but no call is open")
        one.call[1].pieces.add(call, path)
        if not take_bool(call, "willContinue", path):
            self._end_call(one, frame, False)

    def _end_call(self, one: Candidate, frame: Frame, incomplete: bool) -> None:
        if one.call is None:
            return
        index, opened = one.call
        one.call = None
        text = opened.pieces.text(opened.path)
        if text:
            self._out.append(ArgumentsDelta(index, text, frame))
        if opened.seal is not None:
            self._out.append(SealDelta(index, opened.seal, frame))
        self._out.append(PartEnd(index, incomplete, frame))

    # --- the end of input ---

    def _finish(self) -> list[Event]:
        out = self._out = []
        try:
            for _, one in sorted(self._candidates.items()):
                assert one.finish is not None
                self._end_call(one, SILENT, one.finish.kind != "stop")
                self._ground(one)
                out.append(ChoiceEnd(one.finish, one.index, SILENT))
            if self._usage is not None:
                out.append(UsageUpdate(_counts(self._usage, self._reading), SILENT))
        except Malformed as error:
            return [*out, ResponseFailed(unreadable(error), SILENT)]
        out.append(ResponseEnd(tuple(self._reading.strays), SILENT))
        return out

    def _ground(self, one: Candidate) -> None:
        """Citations need the text they belong to: only the one that is still open can take them."""
        channel = one.channel if one.channel is not None and not one.channel.thought else None
        if one.grounding is None:
            self._end_channel(one, SILENT)
            return
        told, path = one.grounding
        found = read_grounding(told, ["".join(channel.pieces)] if channel else [], path, self._reading)
        if channel is not None:
            self._out.extend(CitationDelta(channel.index, citation, SILENT) for _, citation in found.citations)
        self._end_channel(one, SILENT)
        for part in found.hosted:
            self._whole(one, part, SILENT)

    def _cut(self) -> list[Event]:
        """The input ended too early: perhaps with an error that lacks its `data:`."""
        bare = self._framing.bare_error()
        if bare is not None:
            path = (_ROOT, self._frames)
            return self._fail(read_error(bare, 0, {}, path), Frame(NAME, None, bare))
        return self._fail(Failure("upstream", f"{TRUNCATED}: no finishReason came", 502, "stream_truncated"), SILENT)
