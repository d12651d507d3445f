"""A stream of chunks, read into events: from the service itself and from servers that speak it with an accent.

The end is a finish reason for every choice, or `[DONE]`. Endings wait for one of the two, because some servers send a
second finish reason, or content beside and after the first.

A frame goes back to clients of this protocol as it came, but for what their SDKs cannot add up, which is mended in it:
ids and names that are repeated, indices that are missing, shared or not in line, arguments that are sent again.
"""

from __future__ import annotations

from toolwire.core import events as ev
from toolwire.core import sse
from toolwire.core.errors import TRUNCATED_STREAM_MESSAGE
from toolwire.core.ir import Call, Failure, Finish, Media, Origin, Part, Reasoning, Refusal, Text, UnknownField
from toolwire.core.json_values import (
    Json,
    Malformed,
    Object,
    Path,
    decode,
    expect_object,
    get_int,
    get_list,
    get_object,
    get_text,
)
from toolwire.core.provenance import ReadContext
from toolwire.protocols.openai_chat.content import (
    has_incomplete_arguments,
    read_citations,
    read_content,
    read_reasoning_detail,
)
from toolwire.protocols.openai_chat.errors import read_failure
from toolwire.protocols.openai_chat.names import DONE, NAME
from toolwire.protocols.openai_chat.response import read_created, read_finish, read_usage
from toolwire.protocols.openai_chat.stream_state import (
    MAX_PATTERN_TRIES,
    DeltaPattern,
    OpenCall,
    OpenChoice,
    UnknownFields,
    find_pattern,
)
from toolwire.protocols.openai_chat.tools import read_arguments, read_seal

_SILENT_FRAME = ev.SourceFrame(NAME, None, None, silent=True)
_DONE_FRAME = ev.SourceFrame(NAME, None, None)
_LEGACY_CALL_KEY = "function_call"
_MIN_CHUNK_LENGTH = 64
"""No chunk is shorter; only such data can be the sentinel or nothing."""


class StreamReader:
    def __init__(self) -> None:
        self._splitter = sse.SseSplitter()
        self._frame_count = 0
        self._part_count = 0
        self._choices: dict[int, OpenChoice] = {}
        self._started = False
        self._first_chunk: Object = {}
        """The chunk that began the answer."""
        self._ended = False
        self._unknown_fields = UnknownFields()
        self._events: list[ev.Event] = []
        self._frame = _SILENT_FRAME
        self._pattern: DeltaPattern | None = None
        """What the chunk before was, if the next may be the same but for its piece."""
        self._pattern_tries = 0
        """Patterns that were looked for since one was met again."""
        self._chunk_changed = False
        """Was anything changed in the last chunk, so that its bytes do not tell what it says?"""
        self.read_repeat: sse.RepeatReader | None = None

    def feed(self, data: bytes) -> list[ev.Event]:
        if self._ended:
            return []
        pattern = self._pattern
        if pattern is not None:
            self._count_repeats(pattern)
        out = self._events = []
        try:
            frames = self._splitter.feed(data)
        except sse.FrameTooLong as error:
            self._frame = _SILENT_FRAME
            self._fail_stream(str(error), "frame_too_long")
            return out
        for frame in frames:
            event = None if pattern is None else pattern.read_repeat(frame)
            if event is None:
                pattern = self._pattern = self._read_frame(frame)
            else:
                self._frame_count += 1
                self._pattern_tries = 0
                out.append(event)
        if pattern is not None and self._splitter.is_between_frames:
            self.read_repeat = pattern.read_repeat_bytes
        return out

    def _count_repeats(self, pattern: DeltaPattern) -> None:
        """Count in what was known by its bytes."""
        self.read_repeat = None
        alike = pattern.frame_template
        if alike is not None and alike.match_count:
            pattern.count_text(alike.text_length)
            self._frame_count += alike.match_count
            self._pattern_tries = alike.match_count = alike.text_length = 0

    def close(self) -> list[ev.Event]:
        if self._ended:
            return []
        if self._pattern is not None:
            self._count_repeats(self._pattern)
        out = self._events = []
        for frame in self._splitter.close():
            self._read_frame(frame)
        if not self._ended:
            self._frame = _SILENT_FRAME
            if self._choices and all(answer.finish for answer in self._choices.values()):
                self._end_response()
            else:
                self._fail_stream(f"{TRUNCATED_STREAM_MESSAGE}: no finish reason or [DONE] came", "stream_truncated")
        return out

    # --- frames ---

    def _read_frame(self, raw: sse.Frame) -> DeltaPattern | None:
        """Read a frame; what may come again is given back as a pattern."""
        if self._ended:
            return None
        path: Path = (_EVENT_PATH, self._frame_count)
        self._frame_count += 1
        out, data = self._events, raw.data
        before = len(out)
        if len(data) < _MIN_CHUNK_LENGTH and data.strip() in (DONE, b""):
            self._read_marker(raw, path)
            return None
        try:
            chunk = decode(data, path)
            self._frame = ev.SourceFrame(NAME, raw.event, chunk)
            self._chunk_changed = False
            self._read_chunk(chunk if type(chunk) is dict else expect_object(chunk, path), path)
        except Malformed as error:
            # Half of a frame says nothing: the failure stands in its place.
            del out[before:]
            self._fail_stream(f"the provider's stream cannot be read: {error}", "invalid_stream")
            return None
        if len(out) == before:
            out.append(ev.OpaqueEvent("chunk", Origin(NAME, path, chunk), True, self._frame))
            return None
        last = out[-1]
        if (
            self._chunk_changed
            or not isinstance(last, _DELTA_EVENTS)
            or raw.event is not None
            or self._pattern_tries >= MAX_PATTERN_TRIES
        ):
            return None
        for event in out[before:-1]:
            if type(event) not in _EVENTS_BEFORE_DELTA:
                return None
        self._pattern_tries += 1
        return find_pattern(raw, chunk, last, self._choices)

    def _read_marker(self, raw: sse.Frame, path: Path) -> None:
        """Data that is no chunk: `[DONE]`, or nothing at all."""
        if raw.data.strip():
            self._frame = _DONE_FRAME
            self._end_response()
            return
        self._frame = ev.SourceFrame(NAME, raw.event, None, silent=True)
        self._events.append(ev.OpaqueEvent(raw.event or "empty", Origin(NAME, path, None), True, self._frame))

    def _fail_stream(self, message: str, code: str) -> None:
        self._ended = True
        self._events.append(ev.ResponseFailed(Failure("upstream", message, 502, code), _SILENT_FRAME))

    def _read_chunk(self, chunk: Object, path: Path) -> None:
        if chunk.get("error") or chunk.get("object") == "error" or self._frame.event == "error":
            self._read_error(chunk)
            return
        if not self._unknown_fields.chunk.issuperset(chunk):
            self._unknown_fields.add_unknown_keys("chunk", chunk, path)
        choices, usage = chunk.get("choices"), chunk.get("usage")
        if type(choices) is not list:
            choices = get_list(chunk, "choices", path) or []
        if usage is not None:
            usage = expect_object(usage, (path, "usage"))
        if not self._started and not self._start_response(chunk, path, bool(choices or usage)):
            return
        for number, choice in enumerate(choices):
            at = ((path, "choices"), number)
            if type(choice) is not dict:
                expect_object(choice, at)
            if "error" in choice and isinstance(choice["error"], dict):
                self._read_error(choice)
                return
            self._read_choice(choice, at)
        if usage:
            self._read_usage(usage, (path, "usage"))

    def _read_error(self, node: Object) -> None:
        self._ended = True
        self._events.append(ev.ResponseFailed(read_failure(node, 0), self._frame))

    def _start_response(self, chunk: Object, path: Path, has_content: bool) -> bool:
        """Does the answer begin here? A first chunk that only tells of the prompt (filters) has no id yet."""
        if not has_content and not chunk.get("id"):
            return False
        self._started, self._first_chunk = True, chunk
        id, model = get_text(chunk, "id", path) or "", get_text(chunk, "model", path) or ""
        self._events.append(ev.ResponseStart(id, model, read_created(chunk, path), None, None, self._frame))
        return True

    def _read_usage(self, usage: Object, path: Path) -> None:
        reading = ReadContext(NAME)
        self._events.append(ev.UsageUpdate(read_usage(usage, path, reading), self._frame))
        for stray in reading.unknown_fields:
            self._unknown_fields.add_once("usage", stray)

    def _read_choice(self, choice: Object, path: Path) -> None:
        if not self._unknown_fields.choice.issuperset(choice):
            self._unknown_fields.add_unknown_keys("choice", choice, path)
        index = choice.get("index")
        if type(index) is not int:
            index = get_int(choice, "index", path) or 0
        answer = self._choices.get(index)
        if answer is None:
            if not 0 <= index < ev.MAX_CHOICES:
                raise Malformed((path, "index"), f"no answer has {index} choices")
            answer = self._choices[index] = OpenChoice(index)
        delta = choice.get("delta")
        if delta:
            at = (path, "delta")
            self._read_delta(answer, delta if type(delta) is dict else expect_object(delta, at), at)
        raw = choice.get("finish_reason")
        if raw:
            finish = read_finish(str(raw), bool(answer.calls), choice.get("stop_reason"), (path, "finish_reason"))
            # A second word counts only where the first said least.
            if answer.finish is None or (answer.finish.kind == "stop" and finish.kind != "stop"):
                answer.finish = finish
            elif answer.finish.kind != finish.kind:
                choice["finish_reason"] = None
                self._chunk_changed = True

    # --- deltas ---

    def _read_delta(self, choice: OpenChoice, delta: Object, path: Path) -> None:
        plain = _COMMON_DELTA_KEYS.issuperset(delta)
        if not plain:
            self._unknown_fields.add_unknown_keys("delta", delta, path)
            self._read_reasoning(choice, delta, path)
        content = delta.get("content")
        if content:
            if isinstance(content, str):
                self._add_text(choice, "text", content)
            else:
                self._read_content_list(choice, content, (path, "content"))
        if delta.get("refusal"):
            self._add_text(choice, "refusal", get_text(delta, "refusal", path) or "")
        if not plain and delta.get("annotations"):
            self._read_citations(choice, delta, path)
        if not plain and delta.get("images"):
            self._read_content_list(choice, delta["images"], (path, "images"))
        if delta.get("tool_calls") or (not plain and delta.get(_LEGACY_CALL_KEY)):
            self._read_calls(choice, delta, path)

    def _add_text(self, choice: OpenChoice, channel: str, text: str, key: Json = None) -> None:
        self._open_part(choice, channel, key)
        if channel == "text":
            choice.text_length += len(text)
        self._events.append(ev.TextDelta(choice.open_part, text, self._frame))

    def _open_part(self, choice: OpenChoice, channel: str, key: Json = None, part: Part | None = None) -> None:
        """Make this channel's part the one that grows; a change of channel ends the part before."""
        if choice.channel == channel and choice.channel_key == key and part is None:
            return
        self._end_open_part(choice)
        for slot in choice.calls:
            if not slot.is_closed and slot.part_index >= 0 and slot.is_complete():
                self._end_call(slot, False)
        choice.channel, choice.channel_key, choice.open_part = (
            channel,
            key,
            self._start_part(choice, part or _EMPTY_PARTS[channel]),
        )
        choice.part_offset = choice.text_length

    def _end_open_part(self, choice: OpenChoice) -> None:
        if choice.channel:
            self._events.append(ev.PartEnd(choice.open_part, frame=self._frame))
            choice.channel, choice.channel_key = "", None

    def _start_part(self, choice: OpenChoice, part: Part) -> int:
        index = self._part_count
        self._part_count += 1
        self._events.append(ev.PartStart(index, part, choice.index, self._frame))
        return index

    def _read_content_list(self, choice: OpenChoice, value: Json, path: Path) -> None:
        """Content as a list of parts, as some servers stream it."""
        for part in read_content(value, path, ReadContext(NAME)):
            if isinstance(part, (Text, Reasoning)):
                if part.text:
                    self._add_text(choice, "text" if isinstance(part, Text) else "reasoning", part.text)
            elif isinstance(part, Media):
                self._end_open_part(choice)
                self._events.append(ev.PartEnd(self._start_part(choice, part), frame=self._frame))
            else:
                self._unknown_fields.add_once("content", UnknownField(path, "type"), type(part).__name__)

    def _read_citations(self, choice: OpenChoice, delta: Object, path: Path) -> None:
        self._open_part(choice, "text")
        reading = ReadContext(NAME)
        for citation in read_citations(delta, path, reading, choice.part_offset):
            self._events.append(ev.CitationDelta(choice.open_part, citation, self._frame))
        for stray in reading.unknown_fields:
            self._unknown_fields.add_once("annotation", stray)

    def _read_reasoning(self, choice: OpenChoice, delta: Object, path: Path) -> None:
        """Reasoning text, or details of which the text is a copy."""
        told = False
        for number, item in enumerate(get_list(delta, "reasoning_details", path) or ()):
            at = ((path, "reasoning_details"), number)
            part = read_reasoning_detail(item, at, ReadContext(NAME)) if isinstance(item, dict) else None
            if part is None:
                self._unknown_fields.add_once("detail", UnknownField((path, "reasoning_details"), str(number)), "")
                continue
            told = told or bool(part.text)
            self._add_reasoning_detail(choice, part, item.get("index"))
        if told:
            return
        text = delta.get("reasoning_content") or delta.get("reasoning")
        if text and isinstance(text, str):
            self._add_text(choice, "reasoning", text, choice.channel_key if choice.channel == "reasoning" else None)

    def _add_reasoning_detail(self, choice: OpenChoice, part: Reasoning, number: Json) -> None:
        key = (part.form, number)
        if (
            part.hidden
            or choice.channel != "reasoning"
            or (choice.channel_key is not None and choice.channel_key != key)
        ):
            self._open_part(choice, "reasoning", key, Reasoning("", part.form, part.hidden, id=part.id))
        choice.channel_key = key
        if part.text:
            self._events.append(ev.TextDelta(choice.open_part, part.text, self._frame))
        if part.seal is not None:
            self._events.append(ev.SealDelta(choice.open_part, part.seal, self._frame))
        if part.hidden:
            self._end_open_part(choice)

    # --- calls ---

    def _read_calls(self, choice: OpenChoice, delta: Object, path: Path) -> None:
        for number, item in enumerate(get_list(delta, "tool_calls", path) or ()):
            at = ((path, "tool_calls"), number)
            node = expect_object(item, at)
            self._read_call(choice, node, at, get_int(node, "index", at))
        old = get_object(delta, _LEGACY_CALL_KEY, path)
        if old and (old.get("name") or choice.calls_by_index.get(_LEGACY_CALL_KEY)):
            self._read_call(choice, {"function": old}, path, _LEGACY_CALL_KEY)

    def _read_call(self, choice: OpenChoice, delta: Object, path: Path, index: int | str | None) -> None:
        self._unknown_fields.add_unknown_keys("call", delta, path)
        custom = delta.get("custom") or delta.get("type") == "custom"
        kind, key = ("custom", "input") if custom else ("function", "arguments")
        inner = get_object(delta, kind, path) or {}
        id, name = get_text(delta, "id", path) or "", get_text(inner, "name", (path, kind)) or ""
        slot = choice.find_call(index, id, name)
        if slot is None:
            slot = choice.add_call(OpenCall(id, name, kind, len(choice.calls)), index)
        elif id or name:
            slot.drop_repeated_names(delta, inner)
            slot.id, slot.name = slot.id or id, slot.name or name
            self._chunk_changed = True
        if index != _LEGACY_CALL_KEY and delta.get("index") is not slot.call_index:
            delta["index"] = slot.call_index
            self._chunk_changed = True
        given = inner.get(key)
        added = read_arguments(given)
        if slot.is_closed:
            if added.strip() and not slot.text.startswith(added):
                raise Malformed(path, f"more arguments for the call of `{slot.name}`, whose arguments are complete")
            inner[key] = ""
            self._chunk_changed = True
            return
        text = slot.read_arguments_delta(inner, key, added)
        self._chunk_changed = self._chunk_changed or text is not given
        if slot.part_index >= 0:
            if text:
                self._events.append(ev.ArgumentsDelta(slot.part_index, text, self._frame))
        elif slot.name:
            self._start_call(choice, slot)
        seal = read_seal(delta, path, ReadContext(NAME)) if "extra_content" in delta and slot.part_index >= 0 else None
        if seal is not None:
            self._events.append(ev.SealDelta(slot.part_index, seal, self._frame))

    def _start_call(self, choice: OpenChoice, call: OpenCall) -> None:
        """Announce a call once its name is known; those before it that are complete end here."""
        self._end_open_part(choice)
        for other in choice.calls:
            if other is not call and not other.is_closed and other.part_index >= 0 and other.is_complete():
                self._end_call(other, False)
        call.part_index = self._start_part(choice, Call(call.id, call.name, "", call.kind))
        if call.text:
            self._events.append(ev.ArgumentsDelta(call.part_index, call.text, self._frame))

    def _end_call(self, call: OpenCall, incomplete: bool) -> None:
        call.is_closed = True
        self._events.append(ev.PartEnd(call.part_index, incomplete, self._frame))

    # --- the end ---

    def _end_response(self) -> None:
        if not self._choices:
            self._fail_stream(TRUNCATED_STREAM_MESSAGE, "stream_truncated")
            return
        for index in sorted(self._choices):
            answer = self._choices[index]
            for slot in answer.calls:
                if slot.part_index < 0:
                    self._fail_stream(f"the provider's stream never named the call {slot.id!r}", "invalid_stream")
                    return
            self._end_open_part(answer)
            self._end_choice(answer)
        self._ended = True
        self._events.append(ev.ResponseEnd(self._unknown_fields.as_tuple(), self._frame))

    def _end_choice(self, choice: OpenChoice) -> None:
        finish = choice.finish
        broken = False
        for slot in choice.calls:
            if slot.held_back is not None:
                self._release_held_arguments(choice, slot)
            if slot.is_closed:
                continue
            open_ended = bool(slot.text.strip()) if finish is None else finish.kind in ("length", "filter")
            incomplete = open_ended and has_incomplete_arguments(slot.kind, slot.text)
            broken = broken or incomplete
            self._end_call(slot, incomplete)
        if finish is None:
            # [DONE] without a reason: the content tells it, and cut arguments tell that it was cut.
            finish = Finish("length" if broken else "calls" if choice.calls else "stop")
        self._events.append(ev.ChoiceEnd(finish, choice.index, self._frame))

    def _release_held_arguments(self, choice: OpenChoice, call: OpenCall) -> None:
        """Arguments that were held until it is clear what they are."""
        shown, text = call.holds_placeholder, call.release_held_back()
        if text:
            head: Object = {key: self._first_chunk[key] for key in _HEAD_KEYS if key in self._first_chunk}
            late: Object = head | {"choices": [choice.write_arguments_choice(call, text)]}
            frame = self._frame if shown else ev.SourceFrame(NAME, None, late)
            self._events.append(ev.ArgumentsDelta(call.part_index, text, frame))


_EVENT_PATH: Path = (None, "event")
_DELTA_EVENTS = (ev.TextDelta, ev.ArgumentsDelta)
_EVENTS_BEFORE_DELTA = (ev.ResponseStart, ev.PartStart, ev.PartEnd)
"""What may stand before a delta in its chunk: the beginning of what it belongs to does not come again."""
_EMPTY_PARTS: dict[str, Part] = {"text": Text(""), "refusal": Refusal(""), "reasoning": Reasoning("", "raw")}
_HEAD_KEYS = ("id", "object", "created", "model")
_COMMON_DELTA_KEYS = frozenset({"role", "content", "refusal", "tool_calls"})
"""All that most deltas have."""
