"""Streams, read: each chunk is a whole answer whose parts add to what came before.

Parts of one channel (answer text, thoughts) grow over the chunks; a signed part stands for itself, so that its
signature can go back on exactly the same part. A call comes whole, or in pieces with JSON paths. The stream has come to
its end when every candidate has given a reason, or the prompt was blocked; what is owed follows at the end of input.
"""

from __future__ import annotations

from contextlib import suppress

from msgspec import ValidationError, convert
from msgspec.structs import replace

from toolwire.core.errors import TRUNCATED_STREAM_MESSAGE
from toolwire.core.events import (
    MAX_CHOICES,
    ArgumentsDelta,
    ChoiceEnd,
    CitationDelta,
    Event,
    OpaqueEvent,
    PartEnd,
    PartStart,
    ResponseEnd,
    ResponseFailed,
    ResponseStart,
    SealDelta,
    SourceFrame,
    TextDelta,
    UsageUpdate,
)
from toolwire.core.ir import EMPTY_MAPPING, Call, Failure, Finish, Origin, Part, Reasoning, Text, Usage
from toolwire.core.json_values import (
    Json,
    Malformed,
    Object,
    Path,
    decode,
    expect_object,
    get_bool,
    get_int,
    get_list,
    get_object,
    get_text,
)
from toolwire.core.provenance import is_nonempty
from toolwire.core.sse import Frame as Bytes
from toolwire.core.sse import FrameTemplate, FrameTooLong, RepeatReader
from toolwire.protocols.gemini.content import (
    ArgumentFragments,
    OpenCall,
    PartReadContext,
    is_call_fragment,
    read_part,
    read_plain_call,
    read_seal,
)
from toolwire.protocols.gemini.errors import read_error, unreadable_stream
from toolwire.protocols.gemini.grounding import GROUNDING_METADATA_KEYS, read_grounding
from toolwire.protocols.gemini.http import ChunkSplitter
from toolwire.protocols.gemini.names import (
    CALL_FRAGMENT_KEYS,
    CALL_PART_KEYS,
    CANDIDATE_KEYS,
    CONTENT_KEYS,
    NAME,
    RESPONSE_KEYS,
    TEXT_KEYS,
    KnownKeys,
)
from toolwire.protocols.gemini.response import (
    finish_failure,
    read_block_reason,
    read_create_time,
    read_finish,
    read_usage,
)
from toolwire.protocols.gemini.stream_state import (
    MAX_PATTERN_TRIES,
    OpenCandidate,
    OpenText,
    PlainChunk,
    UsageFrameTemplate,
    find_pattern,
    read_delta_chunk,
)

SILENT_FRAME = SourceFrame(NAME, None, None, silent=True)
_EVENT_PATH: Path = (None, "event")


def _read_usage(told: tuple[Object, int], reading: PartReadContext) -> Usage:
    return read_usage(told[0], ((_EVENT_PATH, told[1]), "usageMetadata"), reading)


class StreamReader:
    """Bytes of one answer in, events out."""

    def __init__(self) -> None:
        self._splitter = ChunkSplitter()
        self._reading = PartReadContext()
        self._noted_keys: set[tuple[KnownKeys, str]] = set()
        self._out: list[Event] = []
        self._frame_count = 0
        self._part_count = 0
        self._started = False
        self._done = False
        self._usage: tuple[Object, int] | None = None
        """The last counts, and the number of the chunk that they came with."""
        self._candidates: dict[int, OpenCandidate] = {}
        self._open_text: OpenText | None = None
        """The text that grew last, while it is open."""
        self._pattern: tuple[FrameTemplate | UsageFrameTemplate, OpenText] | None = None
        """How more of it is known by its bytes."""
        self._pattern_tries = 0
        """Patterns that were looked for since one was met again."""
        self.read_repeat: RepeatReader | None = None

    # --- bytes ---

    def feed(self, data: bytes) -> list[Event]:
        if self._done or not data:
            return []
        self._count_repeats()
        try:
            frames = self._splitter.feed(data)
        except FrameTooLong as error:
            return self._fail_stream(Failure("upstream", str(error), 502, "frame_too_long"), SILENT_FRAME)
        events = self._read_frames(frames)
        if self._open_text is not None and self._splitter.is_between_frames and not self._done:
            self._learn_pattern(data, frames, self._open_text)
        return events

    def _learn_pattern(self, data: bytes, frames: list[Bytes], open_text: OpenText) -> None:
        known = self._pattern
        if self._pattern_tries < MAX_PATTERN_TRIES:
            self._pattern_tries += 1
            if len(frames) == 1:
                told = self._usage
                usage = None if told is None or told[1] != self._frame_count - 1 else told[0]
                found = find_pattern(data, frames[0].data, open_text, usage)
                if found is not None:
                    self._pattern = known = (found, open_text)
        if known is not None and known[1] is open_text:
            self.read_repeat = known[0].match_text

    def _count_repeats(self) -> None:
        """Count in what was known by its bytes; it leaves nothing of what came before it."""
        self.read_repeat = None
        alike = None if self._pattern is None else self._pattern[0]
        if alike is not None and alike.match_count:
            self._frame_count += alike.match_count
            self._pattern_tries = alike.match_count = 0
            if isinstance(alike, UsageFrameTemplate):
                self._usage = (alike.usage, self._frame_count - 1)
            self._splitter.forget_recent()

    def close(self) -> list[Event]:
        if self._done:
            return []
        self._count_repeats()
        return self._end_stream(self._read_frames(self._splitter.close(), at_end=True))

    def _end_stream(self, events: list[Event]) -> list[Event]:
        if self._done:
            return events
        self._done = True
        for one in self._candidates.values():
            if one.finish is None:
                break
        else:
            if self._candidates:
                return events + self._end_response()
        return events + self._fail_truncated()

    def _read_frames(self, frames: list[Bytes], at_end: bool = False) -> list[Event]:
        out = self._out = []
        for bytes_ in frames:
            path = (_EVENT_PATH, self._frame_count)
            self._frame_count += 1
            try:
                json = decode(bytes_.data, path)
            except Malformed as error:
                if bytes_.data.strip() == b"[DONE]":
                    frame = SourceFrame(NAME, bytes_.event, None)
                    out.append(OpaqueEvent("[DONE]", Origin(NAME, path, None), is_ignorable=True, frame=frame))
                    continue
                # What the end of input tore is a stream that was cut, not one that was wrong.
                out.extend(self._fail_truncated() if at_end else self._fail_stream(unreadable_stream(error)))
                break
            frame = SourceFrame(NAME, bytes_.event, json)
            growing = self._open_text
            # What comes alone, and is not known by its bytes, is hardly more of the same.
            if growing is not None and (self._pattern is None or len(frames) > 1):
                more = read_delta_chunk(growing, json)
                if more is not None:
                    text, usage = more
                    if usage is not None:
                        self._usage = (usage, self._frame_count - 1)
                    out.append(TextDelta(growing.index, text, frame))
                    continue
            self._read_frame(json, path, frame)
            if self._done:
                break
        return out

    def _read_frame(self, json: Json, path: Path, frame: SourceFrame) -> None:
        out = self._out
        before = len(out)
        try:
            if not self._read_plain_chunk(json, path, frame):
                self._read_chunk(expect_object(json, path), path, frame)
        except Malformed as error:
            out.extend(self._fail_stream(unreadable_stream(error)))
        if len(out) == before:
            out.append(OpaqueEvent("chunk", Origin(NAME, path, json), is_ignorable=True, frame=frame))

    def _fail_stream(self, failure: Failure, frame: SourceFrame | None = None) -> list[Event]:
        self._done = True
        events: list[Event] = []
        if self._usage is not None and self._started:
            # The failure at hand matters more than counts that cannot be read.
            with suppress(Malformed):
                events.append(UsageUpdate(_read_usage(self._usage, self._reading), frame=frame))
        return [*events, ResponseFailed(failure, frame=frame)]

    # --- chunks ---

    def _read_plain_chunk(self, json: Json, path: Path, frame: SourceFrame) -> bool:
        """The short way for a chunk of one candidate that has parts, and no key that we do not know."""
        try:
            chunk = convert(json, PlainChunk)
        except ValidationError:
            return False
        (node,) = chunk.candidates
        usage, index = chunk.usageMetadata, node.index
        if (usage.__class__ is not dict and usage is not None) or not 0 <= index < MAX_CHOICES:
            return False
        if usage is not None:
            self._usage = (usage, self._frame_count - 1)
        if not self._started:
            self._start_response(json, path, frame)
        one = self._find_candidate(index)
        here = ((path, "candidates"), 0)
        for number, part in enumerate(node.content.parts):
            self._read_part(one, part, (((here, "content"), "parts"), number), frame)
        if node.finishReason is not None:
            self._end_candidate(one, read_finish(json["candidates"][0], here), frame)
        return True

    def _read_chunk(self, raw: Object, path: Path, frame: SourceFrame) -> None:
        if "error" in raw:
            self._out.extend(self._fail_stream(read_error(raw, 0, {}, path), frame))
            return
        chunk = self._read_node(raw, path, RESPONSE_KEYS)
        usage = get_object(chunk, "usageMetadata", path)
        if usage is not None:
            self._usage = (usage, self._frame_count - 1)
        if not self._started:
            self._start_response(chunk, path, frame)
        candidates = get_list(chunk, "candidates", path)
        for number, item in enumerate(candidates or ()):
            here = ((path, "candidates"), number)
            self._read_candidate(expect_object(item, here), here, number, frame)
            if self._done:
                return
        if not candidates and chunk.get("promptFeedback") is not None:
            blocked = read_block_reason(chunk, path, self._reading)
            if blocked is not None:
                self._find_candidate(0).finish = blocked

    def _read_node(self, node: Object, path: Path, shape: KnownKeys) -> Object:
        """The node in camelCase; an unknown key is noted the first time it comes."""
        if shape.camel_keys.issuperset(node):
            return node
        for key, value in node.items():
            if key not in shape.all_keys and (shape, key) not in self._noted_keys and is_nonempty(value):
                self._noted_keys.add((shape, key))
                self._reading.note_unknown_field(path, key)
        return shape(node)

    def _start_response(self, chunk: Object, path: Path, frame: SourceFrame) -> None:
        self._started = True
        time = chunk.get("createTime")
        self._out.append(
            ResponseStart(
                get_text(chunk, "responseId", path) or "",
                get_text(chunk, "modelVersion", path) or "",
                None if time is None else read_create_time(time, self._reading, path),
                None if self._usage is None else _read_usage(self._usage, PartReadContext()),
                Origin(NAME, path, {}, EMPTY_MAPPING, False),
                frame,
            )
        )

    def _find_candidate(self, index: int) -> OpenCandidate:
        one = self._candidates.get(index)
        if one is None:
            one = self._candidates[index] = OpenCandidate(index)
        return one

    def _read_candidate(self, raw: Object, path: Path, number: int, frame: SourceFrame) -> None:
        node = self._read_node(raw, path, CANDIDATE_KEYS)
        index = get_int(node, "index", path)
        if index is not None and not 0 <= index < MAX_CHOICES:
            raise Malformed((path, "index"), f"no answer has {index} candidates")
        one = self._find_candidate(number if index is None else index)
        content = get_object(node, "content", path)
        if content is not None:
            here = (path, "content")
            inner = self._read_node(content, here, CONTENT_KEYS)
            for at, part in enumerate(get_list(inner, "parts", here) or ()):
                self._read_part(one, part, ((here, "parts"), at), frame)
        told = {key: node[key] for key in GROUNDING_METADATA_KEYS if node.get(key)}
        if told:
            one.grounding = ((one.grounding[0] if one.grounding else {}) | told, path)
        self._end_candidate(one, read_finish(node, path), frame)

    def _end_candidate(self, candidate: OpenCandidate, finish: Finish | None, frame: SourceFrame) -> None:
        if finish is not None:
            candidate.finish = finish
            failure = finish_failure(finish)
            if failure is not None:
                self._out.extend(self._fail_stream(failure, frame))

    # --- parts ---

    def _read_part(self, candidate: OpenCandidate, item: Json, path: Path, frame: SourceFrame) -> None:
        node = item if item.__class__ is dict else expect_object(item, path)
        text = node.get("text")
        if isinstance(text, str):
            if len(node) == 1:
                self._read_text(candidate, text, False, node, path, frame)
                return
            if read_seal(node, path) is None:
                self._read_node(node, path, TEXT_KEYS)
                self._read_text(candidate, text, bool(get_bool(node, "thought", path)), node, path, frame)
                return
        call = node.get("functionCall", node.get("function_call"))
        part: Part | None = None
        if isinstance(call, dict):
            part = read_plain_call(node, call, path)
            if part is None and is_call_fragment(pieces := CALL_FRAGMENT_KEYS(call)):
                self._read_call_fragment(candidate, pieces, node, path, frame)
                return
        part = part or read_part(node, path, self._reading)
        if part is not None:
            self._add_whole_part(candidate, part, frame)

    def _read_text(
        self, candidate: OpenCandidate, text: str, thought: bool, node: Object, path: Path, frame: SourceFrame
    ) -> None:
        if not text:
            return
        channel = candidate.open_text
        if channel is None or channel.is_thought is not thought:
            self._end_text(candidate, frame)
            channel = candidate.open_text = OpenText(self._part_count, candidate.index, thought)
            self._part_count += 1
            origin = Origin(NAME, path, node, EMPTY_MAPPING, False)
            part: Part = Reasoning(form="summary", origin=origin) if thought else Text("", origin=origin)
            self._out.append(PartStart(channel.index, part, candidate.index, frame))
        self._open_text = channel
        channel.pieces.append(text)
        self._out.append(TextDelta(channel.index, text, frame))

    def _end_text(self, candidate: OpenCandidate, frame: SourceFrame) -> None:
        if candidate.open_text is not None:
            self._out.append(PartEnd(candidate.open_text.index, frame=frame))
            candidate.open_text = self._open_text = None

    def _add_whole_part(self, candidate: OpenCandidate, part: Part, frame: SourceFrame) -> None:
        """A part that came in one piece: a call, media, a signed text, what the provider's own tools did."""
        if isinstance(part, Text) and not part.text and part.seal is None:
            return
        self._end_text(candidate, frame)
        index, self._part_count = self._part_count, self._part_count + 1
        out = self._out
        if isinstance(part, Call):
            out.append(PartStart(index, replace(part, arguments="", seal=None), candidate.index, frame))
            if part.arguments:
                out.append(ArgumentsDelta(index, part.arguments, frame))
        elif isinstance(part, (Text, Reasoning)):
            out.append(PartStart(index, replace(part, text="", seal=None), candidate.index, frame))
            if part.text:
                out.append(TextDelta(index, part.text, frame))
        else:
            out.append(PartStart(index, part, candidate.index, frame))
        if isinstance(part, (Call, Text, Reasoning)) and part.seal is not None:
            out.append(SealDelta(index, part.seal, frame))
        out.append(PartEnd(index, frame=frame))

    def _read_call_fragment(
        self, candidate: OpenCandidate, call: Object, node: Object, path: Path, frame: SourceFrame
    ) -> None:
        """One piece of a call whose arguments are streamed by JSON path."""
        name = get_text(call, "name", path)
        if name is not None:
            if candidate.open_call is not None:
                raise Malformed(
                    path, f"a call begins while the arguments of `{candidate.open_call[1].name}` are still coming"
                )
            self._read_node(node, path, CALL_PART_KEYS)
            self._end_text(candidate, frame)
            opened = OpenCall(
                get_text(call, "id", path) or "", name, read_seal(node, path), path, node, ArgumentFragments()
            )
            candidate.open_call = (self._part_count, opened)
            self._part_count += 1
            origin = Origin(NAME, path, node, EMPTY_MAPPING, False)
            self._out.append(
                PartStart(candidate.open_call[0], Call(opened.id, name, origin=origin), candidate.index, frame)
            )
        elif candidate.open_call is None:
            raise Malformed(path, "a piece of a call came, but no call is open")
        candidate.open_call[1].pieces.add(call, path)
        if not get_bool(call, "willContinue", path):
            self._end_call(candidate, frame, False)

    def _end_call(self, candidate: OpenCandidate, frame: SourceFrame, incomplete: bool) -> None:
        if candidate.open_call is None:
            return
        index, opened = candidate.open_call
        candidate.open_call = None
        text = opened.pieces.json_text(opened.path)
        if text:
            self._out.append(ArgumentsDelta(index, text, frame))
        if opened.seal is not None:
            self._out.append(SealDelta(index, opened.seal, frame))
        self._out.append(PartEnd(index, incomplete, frame))

    # --- the end of input ---

    def _end_response(self) -> list[Event]:
        out = self._out = []
        try:
            for _, one in sorted(self._candidates.items()):
                assert one.finish is not None
                self._end_call(one, SILENT_FRAME, one.finish.kind != "stop")
                self._add_grounding(one)
                out.append(ChoiceEnd(one.finish, one.index, SILENT_FRAME))
            if self._usage is not None:
                out.append(UsageUpdate(_read_usage(self._usage, self._reading), SILENT_FRAME))
        except Malformed as error:
            return [*out, ResponseFailed(unreadable_stream(error), SILENT_FRAME)]
        out.append(ResponseEnd(tuple(self._reading.unknown_fields), SILENT_FRAME))
        return out

    def _add_grounding(self, candidate: OpenCandidate) -> None:
        """Citations need the text they belong to: only the one that is still open can take them."""
        channel = (
            candidate.open_text if candidate.open_text is not None and not candidate.open_text.is_thought else None
        )
        if candidate.grounding is None:
            self._end_text(candidate, SILENT_FRAME)
            return
        told, path = candidate.grounding
        found = read_grounding(told, ["".join(channel.pieces)] if channel else [], path, self._reading)
        if channel is not None:
            self._out.extend(CitationDelta(channel.index, citation, SILENT_FRAME) for _, citation in found.citations)
        self._end_text(candidate, SILENT_FRAME)
        for part in found.provider_parts:
            self._add_whole_part(candidate, part, SILENT_FRAME)

    def _fail_truncated(self) -> list[Event]:
        """The input ended too early: perhaps with an error that lacks its `data:`."""
        bare = self._splitter.find_bare_error()
        if bare is not None:
            path = (_EVENT_PATH, self._frame_count)
            return self._fail_stream(read_error(bare, 0, {}, path), SourceFrame(NAME, None, bare))
        return self._fail_stream(
            Failure("upstream", f"{TRUNCATED_STREAM_MESSAGE}: no finishReason came", 502, "stream_truncated"),
            SILENT_FRAME,
        )
