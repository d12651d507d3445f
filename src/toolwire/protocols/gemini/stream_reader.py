"""Reads a Gemini stream: each chunk is a whole answer whose parts add to what came before.

Text and thoughts grow over the chunks. A signed part is a part of its own, so that its signature can go back on exactly
the same part. A call comes whole, or in pieces with JSON paths. The stream is complete when every candidate has a
finishReason, or the prompt was blocked; the events of the end follow at the end of input.
"""

from __future__ import annotations

from contextlib import suppress

from msgspec import Raw, Struct
from msgspec.json import Decoder
from msgspec.structs import replace

from toolwire.core import events as ev
from toolwire.core.errors import truncated_stream_failure
from toolwire.core.frame_reader import EVENT_PATH, FrameReader
from toolwire.core.ir import EMPTY_MAPPING, Call, Failure, Finish, Logprobs, Origin, Part, Reasoning, Text, Usage
from toolwire.core.json_values import (
    MAX_BYTES,
    Json,
    Malformed,
    Object,
    Path,
    decode,
    encode,
    expect_object,
    get_bool,
    get_int,
    get_list,
    get_object,
    get_text,
    read_float,
)
from toolwire.core.logprobs import identify_field
from toolwire.core.provenance import is_nonempty
from toolwire.core.sse import MAX_FAILED_TEMPLATES, Frame, FrameTemplate
from toolwire.protocols.gemini import names
from toolwire.protocols.gemini.content import (
    OpenCall,
    PartReadContext,
    is_call_fragment,
    items_or_single,
    read_part,
    read_plain_call,
    read_seal,
)
from toolwire.protocols.gemini.errors import read_error, unreadable_stream
from toolwire.protocols.gemini.http import ChunkSplitter
from toolwire.protocols.gemini.logprobs import read_logprobs
from toolwire.protocols.gemini.names import NAME, KnownKeys
from toolwire.protocols.gemini.response import (
    GROUNDING_METADATA_KEYS,
    finish_failure,
    read_block_reason,
    read_create_time,
    read_finish,
    read_grounding,
    read_usage,
)

_SILENT_FRAME = ev.SourceFrame(NAME, None, None, silent=True)


class _OpenText(Struct):
    """A text or thought that may still grow."""

    index: int
    choice: int
    is_thought: bool
    pieces: list[str] = []


class _OpenCandidate(Struct):
    """What is open of one candidate."""

    index: int
    open_text: _OpenText | None = None
    open_call: OpenCall | None = None
    finish: Finish | None = None
    grounding: tuple[Object, Path] | None = None
    signature: Text | None = None
    """An empty text with a signature, which waits for the end of the open text: citations may come with it."""
    text_index: int = -1
    """The part that is the last text."""


class StreamReader(FrameReader):
    silent_frame = _SILENT_FRAME

    def __init__(self) -> None:
        self._chunk_splitter = ChunkSplitter()
        super().__init__(self._chunk_splitter)
        self._chunk = b""
        """The last chunk as it came."""
        self._is_closing = False
        self._reading = PartReadContext()
        self._noted_keys: set[tuple[KnownKeys, str]] = set()
        self._part_count = 0
        self._usage: tuple[Object, int] | None = None
        """The last usage, and the number of its chunk."""
        self._candidates: dict[int, _OpenCandidate] = {}
        self._open_text: _OpenText | None = None
        """The text that grew last, while it is open."""

    # --- bytes ---

    def feed(self, data: bytes) -> list[ev.Event]:
        self._take_repeated_usage()
        before = self._frame_count
        super().feed(data)
        open_text, last = self._open_text, self._usage
        is_whole_frame = self._frame_count == before + 1 and self._splitter.is_between_frames
        if open_text is not None and is_whole_frame and self._failed_templates < MAX_FAILED_TEMPLATES:
            self._failed_templates += 1
            usage = last[0] if last is not None and last[1] == before else None
            self._template = _make_template(data, self._chunk, open_text, usage)
            self._add_repeat = open_text.pieces.append
        return self._events

    def _take_repeated_usage(self) -> None:
        """The usage of the last chunk that the template recognised, or was made from."""
        if isinstance(self._template, _UsageTemplate):
            self._usage = (self._template.usage, self._frame_count - 1)

    def close(self) -> list[ev.Event]:
        self._take_repeated_usage()
        self._is_closing = True
        return super().close()

    def _end_input(self) -> None:
        if self._candidates and all(candidate.finish is not None for candidate in self._candidates.values()):
            self._ended = self._is_over = True
            self._end_response()
        else:
            self._fail_truncated()

    def _read_frame(self, raw: Frame, path: Path) -> None:
        self._chunk = raw.data
        try:
            json = decode(raw.data, path, replaced=self.replaced_halves)
        except Malformed as error:
            if raw.data.strip() == b"[DONE]":
                frame = ev.SourceFrame(NAME, raw.event, None)
                self._events.append(ev.OpaqueEvent("[DONE]", Origin(NAME, path, None), True, frame))
            elif self._is_closing:
                # A partial frame at the end of input means that the stream was cut, not that it was wrong.
                self._fail_truncated()
            else:
                self._fail(unreadable_stream(error), None)
            return
        self._frame = ev.SourceFrame(NAME, raw.event, json)
        before = len(self._events)
        try:
            self._read_chunk(expect_object(json, path), path)
        except Malformed as error:
            del self._events[before:]  # no client can use a part of this frame
            self._fail(unreadable_stream(error), None)
        if len(self._events) == before:
            self._events.append(ev.OpaqueEvent("chunk", Origin(NAME, path, json), True, self._frame))

    def _fail(self, failure: Failure, frame: ev.SourceFrame | None) -> None:
        self._open_text = None
        if self._usage is not None and self._started:
            # The failure matters more than usage that cannot be read.
            with suppress(Malformed):
                self._events.append(ev.UsageUpdate(_read_usage(self._usage, self._reading), frame))
        super()._fail(failure, frame)

    # --- chunks ---

    def _read_chunk(self, raw: Object, path: Path) -> None:
        error = raw.get("error")
        if error is not None or self._frame.event == "error":
            failure = read_error(raw, 0, {}, path)
            # Google's SDKs raise an error in this shape; in another it is of no use to a client.
            if isinstance(error, dict) and type(error.get("code")) is int and not self._frame.event:
                self._fail(failure, self._frame)
            else:
                self._fail(replace(failure, origin=None), _SILENT_FRAME)
            return
        chunk = self._read_node(raw, path, names.RESPONSE_KEYS)
        usage = chunk.get("usageMetadata")
        if isinstance(usage, dict):
            self._usage = (usage, self._frame_count - 1)
        elif usage is not None and (names.USAGE_KEYS, "") not in self._noted_keys:
            self._noted_keys.add((names.USAGE_KEYS, ""))
            self._reading.get_counted(chunk, "usageMetadata", path)
        if not self._started:
            self._started = True
            id, model = (get_text(chunk, key, path) or "" for key in ("responseId", "modelVersion"))
            created = read_create_time(chunk.get("createTime"), self._reading, path)
            counts = None if self._usage is None else _read_usage(self._usage, PartReadContext())
            origin = Origin(NAME, path, {}, EMPTY_MAPPING, False)
            self._events.append(ev.ResponseStart(id, model, created, counts, origin, self._frame))
        candidates = get_list(chunk, "candidates", path)
        for number, item in enumerate(candidates or ()):
            here = ((path, "candidates"), number)
            self._read_candidate(expect_object(item, here), here, number)
            if self._ended:
                return
        if not candidates and (blocked := read_block_reason(chunk, path, self._reading)) is not None:
            self._find_candidate(0).finish = blocked
        elif candidates and chunk.get("promptFeedback") is not None:
            self._reading.note_unknown_field(path, "promptFeedback")

    def _read_node(self, node: Object, path: Path, shape: KnownKeys) -> Object:
        """The node in camelCase; an unknown key is noted once."""
        if shape.camel_keys.issuperset(node):
            return node
        for key, value in node.items():
            if key not in shape.all_keys and (shape, key) not in self._noted_keys and is_nonempty(value):
                self._noted_keys.add((shape, key))
                self._reading.note_unknown_field(path, key)
        return shape(node)

    def _find_candidate(self, index: int) -> _OpenCandidate:
        return self._candidates.get(index) or self._candidates.setdefault(index, _OpenCandidate(index))

    def _read_candidate(self, raw: Object, path: Path, number: int) -> None:
        node = self._read_node(raw, path, names.CANDIDATE_KEYS)
        index = get_int(node, "index", path)
        if index is not None and not 0 <= index < ev.MAX_CHOICES:
            raise Malformed((path, "index"), f"no answer has {index} candidates")
        candidate = self._find_candidate(number if index is None else index)
        content = get_object(node, "content", path)
        before = len(self._events)
        if content is not None:
            here = (path, "content")
            inner = self._read_node(content, here, names.CONTENT_KEYS)
            for part, at in items_or_single(inner.get("parts"), (here, "parts")):
                self._read_part(candidate, part, at)
        if node.get("logprobsResult"):
            self._read_logprobs(candidate, node, path, before)
        metadata = {key: node[key] for key in GROUNDING_METADATA_KEYS if node.get(key)}
        if metadata:
            candidate.grounding = (
                _join_metadata(candidate.grounding[0] if candidate.grounding else {}, metadata),
                path,
            )
        finish = read_finish(node, path)
        if finish is not None:
            candidate.finish = finish
            if (failure := finish_failure(finish)) is not None:
                self._fail(failure, self._frame)

    def _read_logprobs(self, candidate: _OpenCandidate, node: Object, path: Path, before: int) -> None:
        reading = PartReadContext()
        logprobs = read_logprobs(node["logprobsResult"], path, reading)
        if logprobs and not self._add_logprobs(candidate, logprobs, node, path, before):
            reading.note_unknown_field(path, "logprobsResult")
        for field in reading.unknown_fields:
            known = (names.TOKEN_KEYS, identify_field(field))
            if known not in self._noted_keys:
                self._noted_keys.add(known)
                self._reading.unknown_fields.append(field)

    def _add_logprobs(
        self, candidate: _OpenCandidate, logprobs: Logprobs, node: Object, path: Path, before: int
    ) -> bool:
        """Add tokens to the text that the chunk has added, or else to the open text. An empty text with tokens begins
        one, but not at the end, where Google sends an empty text after calls. Was there a place for them?"""
        events = self._events
        for number in range(len(events) - 1, before - 1, -1):
            event = events[number]
            if isinstance(event, ev.TextDelta) and event.index == candidate.text_index:
                events[number] = replace(event, logprobs=logprobs)
                return True
        channel = candidate.open_text
        if channel is None and len(events) == before and node.get("content") and node.get("finishReason") is None:
            channel = self._start_text(candidate, False, {}, path)
        if channel is None or channel.is_thought:
            return False
        events.append(ev.TextDelta(channel.index, "", self._frame, logprobs))
        return True

    # --- parts ---

    def _read_part(self, candidate: _OpenCandidate, item: Json, path: Path) -> None:
        node = item if item.__class__ is dict else expect_object(item, path)
        text = node.get("text")
        if isinstance(text, str):
            if len(node) == 1:
                self._read_text(candidate, text, False, node, path)
                return
            if read_seal(node, path) is None:
                self._read_node(node, path, names.TEXT_KEYS)
                self._read_text(candidate, text, bool(get_bool(node, "thought", path)), node, path)
                return
        call = node.get("functionCall", node.get("function_call"))
        part: Part | None = None
        if isinstance(call, dict):
            part = read_plain_call(node, call, path)
            if part is None and is_call_fragment(pieces := names.INNER_KEYS["functionCall"](call)):
                self._read_call_fragment(candidate, pieces, node, path)
                return
        part = part or read_part(node, path, self._reading)
        if part is not None:
            self._add_whole_part(candidate, part)

    def _read_text(self, candidate: _OpenCandidate, text: str, thought: bool, node: Object, path: Path) -> None:
        if not text:
            return
        channel = candidate.open_text
        if channel is None or channel.is_thought is not thought or candidate.signature:
            channel = self._start_text(candidate, thought, node, path)
        self._open_text = channel
        channel.pieces.append(text)
        self._events.append(ev.TextDelta(channel.index, text, self._frame))

    def _start_text(self, candidate: _OpenCandidate, thought: bool, node: Object, path: Path) -> _OpenText:
        self._end_text(candidate)
        channel = candidate.open_text = _OpenText(self._part_count, candidate.index, thought)
        self._part_count += 1
        origin = Origin(NAME, path, node, EMPTY_MAPPING, False)
        part: Part = Reasoning(form="summary", origin=origin) if thought else Text("", origin=origin)
        if not thought:
            candidate.text_index = channel.index
        self._events.append(ev.PartStart(channel.index, part, candidate.index, self._frame))
        return channel

    def _end_text(self, candidate: _OpenCandidate) -> None:
        if candidate.open_text is not None:
            self._events.append(ev.PartEnd(candidate.open_text.index, frame=self._frame))
            candidate.open_text = self._open_text = None
        if candidate.signature is not None:
            signed, candidate.signature = candidate.signature, None
            self._add_whole_part(candidate, signed)

    def _add_whole_part(self, candidate: _OpenCandidate, part: Part) -> None:
        """A part that came in one piece: a call, media, a signed text, or what a provider tool did."""
        if isinstance(part, Text) and not part.text:
            if part.seal is None:
                return
            if candidate.open_text is not None and not candidate.open_text.is_thought and candidate.signature is None:
                candidate.signature = part
                return
        self._end_text(candidate)
        index, self._part_count = self._part_count, self._part_count + 1
        start, deltas = part, list[ev.Event]()
        if isinstance(part, Text):
            candidate.text_index = index
        if isinstance(part, Call):
            start = replace(part, arguments="", seal=None)
            deltas += [ev.ArgumentsDelta(index, part.arguments, self._frame)] if part.arguments else []
        elif isinstance(part, (Text, Reasoning)):
            start = replace(part, text="", seal=None)
            deltas += [ev.TextDelta(index, part.text, self._frame)] if part.text else []
        if isinstance(part, (Call, Text, Reasoning)) and part.seal is not None:
            deltas.append(ev.SealDelta(index, part.seal, self._frame))
        start_event = ev.PartStart(index, start, candidate.index, self._frame)
        self._events += [start_event, *deltas, ev.PartEnd(index, frame=self._frame)]

    def _read_call_fragment(self, candidate: _OpenCandidate, call: Object, node: Object, path: Path) -> None:
        """One piece of a call whose arguments are streamed by JSON path."""
        name = get_text(call, "name", path)
        if name is not None:
            if candidate.open_call is not None:
                other = candidate.open_call.name
                raise Malformed(path, f"a call begins while the arguments of `{other}` are still coming")
            self._read_node(node, path, names.PART_KEYS["functionCall"])
            self._end_text(candidate)
            id, index = get_text(call, "id", path) or "", self._part_count
            candidate.open_call = OpenCall(id, name, read_seal(node, path), path, node, index=index)
            self._part_count += 1
            started = Call(id, name, origin=Origin(NAME, path, node, EMPTY_MAPPING, False))
            self._events.append(ev.PartStart(index, started, candidate.index, self._frame))
        elif candidate.open_call is None:
            raise Malformed(path, "a piece of a call came, but no call is open")
        candidate.open_call.add(call, path)
        if not get_bool(call, "willContinue", path):
            self._end_call(candidate, False)

    def _end_call(self, candidate: _OpenCandidate, incomplete: bool) -> None:
        call, candidate.open_call = candidate.open_call, None
        if call is None:
            return
        if text := call.json_text():
            self._events.append(ev.ArgumentsDelta(call.index, text, self._frame))
        if call.seal is not None:
            self._events.append(ev.SealDelta(call.index, call.seal, self._frame))
        self._events.append(ev.PartEnd(call.index, incomplete, self._frame))

    # --- the end of input ---

    def _end_response(self) -> None:
        self._frame = _SILENT_FRAME
        try:
            for _, candidate in sorted(self._candidates.items()):
                assert candidate.finish is not None
                self._end_call(candidate, candidate.finish.kind != "stop")
                self._add_grounding(candidate)
                self._events.append(ev.ChoiceEnd(candidate.finish, candidate.index, _SILENT_FRAME))
            if self._usage is not None:
                self._events.append(ev.UsageUpdate(_read_usage(self._usage, self._reading), _SILENT_FRAME))
        except Malformed as error:
            self._events.append(ev.ResponseFailed(unreadable_stream(error), _SILENT_FRAME))
            return
        self._events.append(ev.ResponseEnd(tuple(self._reading.unknown_fields), _SILENT_FRAME))

    def _add_grounding(self, candidate: _OpenCandidate) -> None:
        """Add citations to the text that is still open: they need the text they belong to."""
        channel, provider_parts = candidate.open_text, list[Part]()
        if candidate.grounding is not None:
            metadata, path = candidate.grounding
            texts = ["".join(channel.pieces)] if channel is not None and not channel.is_thought else []
            provider_parts, citations = read_grounding(metadata, texts, path, self._reading)
            if channel is not None:
                self._events += [ev.CitationDelta(channel.index, found, _SILENT_FRAME) for _, found in citations]
        self._end_text(candidate)
        for part in provider_parts:
            self._add_whole_part(candidate, part)

    def _fail_truncated(self) -> None:
        """The input ended too early, perhaps with an error that has no `data:` before it."""
        bare = self._chunk_splitter.find_bare_error()
        if bare is None:
            self._fail(truncated_stream_failure("no finishReason came"), _SILENT_FRAME)
        else:
            path = (EVENT_PATH, self._frame_count)
            self._fail(read_error(bare, 0, {}, path), ev.SourceFrame(NAME, None, bare))


def _join_metadata(known: Object, more: Object) -> Object:
    """The metadata of all chunks: what a later one has replaces what an earlier one had, key by key."""
    out = dict(known)
    for key, value in more.items():
        both = isinstance(value, dict) and isinstance(out.get(key), dict)
        out[key] = out[key] | {name: one for name, one in value.items() if is_nonempty(one)} if both else value
    return out


def _read_usage(usage: tuple[Object, int], reading: PartReadContext) -> Usage:
    return read_usage(usage[0], ((EVENT_PATH, usage[1]), "usageMetadata"), reading)


# --- Chunks recognised by their bytes ---


class _ChunkUsage(Struct):
    usageMetadata: Raw


_decode_chunk_usage = Decoder(_ChunkUsage).decode
_decode_usage = Decoder(Object, float_hook=read_float).decode
_decode_text = Decoder(str).decode


class _UsageTemplate(FrameTemplate):
    """Recognises chunks whose usage differs too: Gemini counts the tokens again in each chunk."""

    __slots__ = ("_between", "_head", "_tail", "_text_first", "_usage_length", "usage")

    def __init__(
        self, head: bytes, between: bytes, tail: bytes, text_first: bool, encoded_usage: bytes, usage: Object
    ) -> None:
        """The chunk is `head`, text, `between`, usage, `tail`, or the same with usage before text. The quotes of the
        text belong to the bytes around it."""
        self._head, self._between, self._tail = head, between, tail
        self._text_first = text_first
        self._excluded_start = ""
        self._set_usage(encoded_usage, usage)

    def _set_usage(self, encoded: bytes, usage: Object) -> None:
        self.usage = usage
        self._usage_length = len(encoded)
        if self._text_first:
            prefix, suffix = self._head, self._between + encoded + self._tail
        else:
            prefix, suffix = self._head + encoded + self._between, self._tail
        self._set_bytes(prefix[:-1], suffix[1:])

    def match_text(self, data: bytes) -> str | None:
        if len(data) > MAX_BYTES:
            return None
        text = super().match_text(data)
        if text is not None:
            return text
        head, between, tail = self._head, self._between, self._tail
        if not data.startswith(head) or not data.endswith(tail):
            return None
        start, end = len(head), len(data) - len(tail)
        # Wherever `between` is found: if text and usage around it are valid JSON, that is the right place.
        at = end - self._usage_length - len(between) if self._text_first else start + self._usage_length
        if data[at : at + len(between)] != between:
            at = data.find(between, start, end)
        first, second = data[start:at], data[at + len(between) : end]
        encoded, usage = (first, second) if self._text_first else (second, first)
        if at < 0 or usage[:1] != b"{" or usage.find(b"\n") >= 0 or usage.find(b"\r") >= 0:
            return None
        try:
            text = _decode_text(b'"' + encoded + b'"')
            if text:
                self._set_usage(usage, _decode_usage(usage))
        except (ValueError, RecursionError):
            return None
        return text or None


def _make_template(data: bytes, body: bytes, open_text: _OpenText, usage: Object | None) -> FrameTemplate | None:
    """A template of these bytes, if they are one chunk that only adds text to `open_text` and has this usage."""
    end = data[6 + len(body) :]
    if data[:6] != b"data: " or (end != b"\n\n" and end != b"\r\n\r\n") or data[6 : -len(end)] != body:
        return None
    try:
        if usage is not None:
            return _make_usage_template(body, end, open_text, usage)
        last = open_text.pieces[-1]
        prefix, text, suffix = body.rpartition(encode(last))
        # The same bytes may occur elsewhere in the chunk: change them, and see whether the change is found.
        if _holds_only(prefix + text[:-1] + b'?"' + suffix, open_text, last + "?", None):
            return FrameTemplate(b"data: " + prefix, suffix + end)
    except (ValueError, RecursionError):
        pass
    return None


def _make_usage_template(body: bytes, end: bytes, open_text: _OpenText, usage: Object) -> _UsageTemplate | None:
    last, encoded = open_text.pieces[-1], encode(usage)
    if body.find(encoded) < 0:
        encoded = bytes(_decode_chunk_usage(body).usageMetadata)
    before, text, after = body.rpartition(encode(last))
    before, other, after = before + b'"', text[1:-1] + b"?", b'"' + after
    between, text_first, tail = after.partition(encoded)
    if text_first:
        head = before
        probe = head + other + between + b'{"?":0}' + tail
    else:
        head, _, between = before.rpartition(encoded)
        tail = after
        probe = head + b'{"?":0}' + between + other + tail
    if not _holds_only(probe, open_text, last + "?", {"?": 0}) or usage == {"?": 0}:
        return None
    return _UsageTemplate(b"data: " + head, between, tail + end, bool(text_first), encoded, usage)


def _holds_only(body: bytes, open_text: _OpenText, text: str, usage: Object | None) -> bool:
    """Does a chunk hold exactly this text for the open part, this usage, and nothing else that is read?"""
    try:
        chunk = decode(body)
        (candidate,) = chunk["candidates"]
        (part,) = candidate["content"]["parts"]
        return (
            part.get("text") == text
            and bool(part.get("thought", False)) is open_text.is_thought
            and chunk.get("usageMetadata") == usage
            and candidate.get("index", 0) == open_text.choice
            and names.RESPONSE_KEYS.camel_keys.issuperset(chunk)
            and candidate.keys() <= {"content", "index"}
            and names.CONTENT_KEYS.camel_keys.issuperset(candidate["content"])
            and part.keys() <= {"text", "thought"}
        )
    except (Malformed, LookupError, TypeError, ValueError, AttributeError):
        return False
