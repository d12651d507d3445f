"""Reads a stream of Chat chunks, from OpenAI and from servers that deviate from its API.

The end is a finish reason for every choice, or `[DONE]`. Parts and choices end only there, because some servers send a
second finish reason, or content beside and after the first.

A Chat client gets each frame as it came, except for what its SDK cannot add up, which is repaired in the frame:
repeated ids and names, missing, shared or unordered indices, and arguments that are sent again.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from toolwire.core import events as ev
from toolwire.core import sse
from toolwire.core.errors import NOTHING_SAID, truncated_stream_failure
from toolwire.core.frame_reader import FrameReader
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
    get_timestamp,
    read_count,
)
from toolwire.core.logprobs import identify_field
from toolwire.core.provenance import ReadContext, odd_shape
from toolwire.protocols.openai_chat.content import (
    has_incomplete_arguments,
    read_citations,
    read_content,
    read_reasoning_detail,
)
from toolwire.protocols.openai_chat.errors import read_failure
from toolwire.protocols.openai_chat.names import CUT_FINISH_KINDS, DONE, FINISH_REASON_BY_KIND, NAME
from toolwire.protocols.openai_chat.response import (
    KINDS_BEFORE_CALLS,
    finish_failure,
    read_finish,
    read_logprobs,
    read_usage,
)
from toolwire.protocols.openai_chat.stream_state import OpenCall, OpenChoice, UnknownFields
from toolwire.protocols.openai_chat.tools import read_arguments, read_seal

_SILENT_FRAME = ev.SourceFrame(NAME, None, None, silent=True)
_DONE_FRAME = ev.SourceFrame(NAME, None, None)
_LEGACY_CALL_KEY = "function_call"
_MIN_CHUNK_LENGTH = 64
"""Shorter data may be `[DONE]` or empty."""


class _PaddedTemplate(sse.FrameTemplate):
    """OpenAI ends each chunk with random padding, so that its length does not reveal the text."""

    __slots__ = ()

    def match_text(self, data: bytes) -> str | None:
        chunk = _strip_padding(data, b"}\n\n")
        return None if chunk is None else super().match_text(chunk)


def _strip_padding(data: bytes, end: bytes) -> bytes | None:
    """The chunk without `obfuscation`, if that is its last key."""
    chunk, found, padding = data.rpartition(b',"obfuscation":"')
    letters, _, rest = padding.partition(b'"')
    return chunk + end if found and rest == end and letters.isalnum() else None


class StreamReader(FrameReader):
    silent_frame = _SILENT_FRAME

    def __init__(self) -> None:
        super().__init__()
        self._part_count = 0
        self._choices: dict[int, OpenChoice] = {}
        self._first_chunk: Object = {}
        """The chunk that started the answer."""
        self._finish_failure: Failure | None = None
        self._unknown_fields = UnknownFields()

    @property
    def has_unstarted_call(self) -> bool:
        return not self._ended and any(one.calls and one.calls[-1].part_index < 0 for one in self._choices.values())

    # --- frames ---

    def _end_input(self) -> None:
        if self._choices and all(choice.finish for choice in self._choices.values()):
            self._end_response()
        else:
            self._fail(truncated_stream_failure("no finish reason or [DONE] came"), _SILENT_FRAME)

    def _read_frame(self, raw: sse.Frame, path: Path) -> None:
        out, data = self._events, raw.data
        before = len(out)
        short = data.strip() if len(data) < _MIN_CHUNK_LENGTH else None
        if short == DONE:
            self._frame, self.is_frame_changed = _DONE_FRAME, False
            self._end_response()
            return
        if short == b"":
            self._frame = ev.SourceFrame(NAME, raw.event, None, silent=True)
            out.append(ev.OpaqueEvent(raw.event or "empty", Origin(NAME, path, None), True, self._frame))
            return
        try:
            chunk = decode(data, path, replaced=self.replaced_halves)
            self._frame = ev.SourceFrame(NAME, raw.event, chunk)
            self.is_frame_changed = False
            self._read_chunk(expect_object(chunk, path), path)
        except Malformed as error:
            # The failure replaces the events of the part of the frame that could be read.
            del out[before:]
            self._fail_stream(str(error))
            return
        if len(out) == before:
            out.append(ev.OpaqueEvent("chunk", Origin(NAME, path, chunk), True, self._frame))
        elif not self.is_frame_changed and raw.event is None and self._failed_templates < sse.MAX_FAILED_TEMPLATES:
            self._make_template(raw, chunk, out[before:])

    def _make_template(self, raw: sse.Frame, chunk: Object, events: list[ev.Event]) -> None:
        """Recognise frames that repeat this chunk with another text, if it holds one delta and nothing else."""
        *earlier, event = events
        if not isinstance(event, _DELTA_EVENTS) or not all(
            isinstance(before, _EVENTS_BEFORE_DELTA) for before in earlier
        ):
            return
        choices: list[Object] = chunk["choices"]
        index = choices[0].get("index")
        if len(choices) != 1 or type(index) is not int or choices[0].get("finish_reason"):
            return
        choice, delta = self._choices[index], choices[0].get("delta")
        if not delta:
            return
        if isinstance(event, ev.TextDelta):
            key = next(filter(delta.get, _TEXT_KEYS), "content")
            if delta.get(key) == event.text and _has_only(delta, key) and not event.logprobs:
                self._add_repeat = choice.count_text
                self._set_template(raw, event.text, lambda found: found["choices"][0]["delta"][key])
        elif (call := _find_repeated_call(delta, choice)) is not None:
            self._add_repeat = call.add_delta
            # A delta that starts with all arguments so far may repeat them: it must be read.
            self._set_template(raw, event.text, _find_arguments, call.text)

    def _set_template(
        self, raw: sse.Frame, text: str, find_text: Callable[[Json], Json], excluded_start: str = ""
    ) -> None:
        self._failed_templates += 1
        bare = _strip_padding(raw.data, b"}")
        frame, kind = (raw, sse.FrameTemplate) if bare is None else (sse.Frame(None, bare), _PaddedTemplate)
        self._template = sse.make_frame_template(frame, text, find_text, excluded_start, kind)

    def _read_chunk(self, chunk: Object, path: Path) -> None:
        if chunk.get("error") or chunk.get("object") == "error" or self._frame.event == "error":
            failure = read_failure(chunk, 0)
            # SDKs take an error for one only in this shape; in another it is of no use to a client.
            if isinstance(chunk.get("error"), dict):
                self._fail(failure, self._frame)
            else:
                self._fail(replace(failure, origin=None), _SILENT_FRAME)
            return
        self._unknown_fields.add_unknown_keys("chunk", chunk, path)
        choices, usage = get_list(chunk, "choices", path) or [], chunk.get("usage")
        if not self._started:
            if not (choices or usage or chunk.get("id")):
                return  # Azure's first chunk has only the prompt's filter results, and no id
            self._started, self._first_chunk = True, chunk
            id, model = get_text(chunk, "id", path) or "", get_text(chunk, "model", path) or ""
            self._events.append(
                ev.ResponseStart(id, model, get_timestamp(chunk, "created", path), None, None, self._frame)
            )
        for number, choice in enumerate(choices):
            at = ((path, "choices"), number)
            node = expect_object(choice, at)
            if isinstance(node.get("error"), dict):
                self._fail(replace(read_failure(node, 0), origin=None), _SILENT_FRAME)
                return
            self._read_choice(node, at)
        if usage:
            self._read_usage(chunk, path)
        if self._finish_failure is not None:
            # A client gets the chunk, and a failure after it: it may not know this finish reason.
            self._events.append(ev.OpaqueEvent("chunk", Origin(NAME, path, chunk), True, self._frame))
            self._fail(self._finish_failure, _SILENT_FRAME)

    def _read_usage(self, chunk: Object, path: Path) -> None:
        reading = ReadContext(NAME)
        usage = reading.get_counted(chunk, "usage", path)
        if usage is not None:
            counts = read_usage(usage, (path, "usage"), reading, chunk.get("service_tier"))
            self._events.append(ev.UsageUpdate(counts, self._frame))
        for field in reading.unknown_fields:
            self._unknown_fields.add_once("usage", field)

    def _read_choice(self, node: Object, path: Path) -> None:
        self._unknown_fields.add_unknown_keys("choice", node, path)
        index = get_int(node, "index", path) or 0
        choice = self._choices.get(index)
        if choice is None:
            if not 0 <= index < ev.MAX_CHOICES:
                raise Malformed((path, "index"), f"no answer has {index} choices")
            choice = self._choices[index] = OpenChoice(index)
        # Some servers send a whole answer as the only chunk: its `message` is all there is.
        key = "message" if node.get("message") and not node.get("delta") else "delta"
        before = len(self._events)
        if node.get(key):
            at = (path, key)
            self._read_delta(choice, expect_object(node[key], at), at)
        if node.get("logprobs"):
            self._add_logprobs(choice, node, path, before)
        raw, sequence = node.get("finish_reason"), node.get("stop_reason")
        if sequence is not None and not (raw and isinstance(sequence, str)):
            self._unknown_fields.add_once("choice", UnknownField(path, "stop_reason"))
        if raw:
            if choice.calls:
                self._start_named_calls(choice)
            finish = read_finish(str(raw), bool(choice.calls), sequence, (path, "finish_reason"))
            self._finish_failure = self._finish_failure or finish_failure(finish)
            # A second finish reason counts only if the first was "stop".
            if choice.finish is None or (choice.finish.kind == "stop" and finish.kind != "stop"):
                choice.finish = finish
                self._fit_finish(choice, finish, node)
            elif choice.finish.kind != finish.kind:
                node["finish_reason"] = None
                self.is_frame_changed = True

    def _fit_finish(self, choice: OpenChoice, finish: Finish, node: Object) -> None:
        """After a call that was moved beside the content, a client looks for it only with this reason."""
        if choice.has_moved_calls and finish.kind in KINDS_BEFORE_CALLS:
            node["finish_reason"] = FINISH_REASON_BY_KIND["calls"]
            self.is_frame_changed = True

    # --- deltas ---

    def _read_delta(self, choice: OpenChoice, delta: Object, path: Path) -> None:
        self._unknown_fields.add_unknown_keys("delta", delta, path)
        self._read_reasoning(choice, delta, path)
        content = delta.get("content")
        if content:
            if isinstance(content, str):
                self._add_text(choice, "text", content)
            else:
                self._read_odd_content(choice, delta, path)
        if delta.get("refusal"):
            self._add_text(choice, "refusal", get_text(delta, "refusal", path) or "")
        if delta.get("annotations"):
            self._read_citations(choice, delta, path)
        if delta.get("images"):
            self._read_content_list(choice, delta["images"], (path, "images"))
        if delta.get("tool_calls") or delta.get(_LEGACY_CALL_KEY):
            self._read_calls(choice, delta, path)

    def _read_odd_content(self, choice: OpenChoice, delta: Object, path: Path) -> None:
        """Content that is no string: a list of parts, or a text part without its list, which becomes a string."""
        content = delta["content"]
        if not isinstance(content, dict) or content.get("type") != "text" or not isinstance(content.get("text"), str):
            calls = self._read_content_list(choice, content, (path, "content"))
            if calls:
                choice.has_moved_calls = True
                self._move_calls(delta, content, calls)
            return
        what = "an object as content was read as a list of one part"
        self._unknown_fields.add_once("content", odd_shape(path, "content", what), what)
        self.is_frame_changed = True
        delta["content"] = content["text"]
        self._add_text(choice, "text", content["text"])

    def _move_calls(self, delta: Object, content: Json, calls: dict[int, Object]) -> None:
        """Calls among the parts of the content, by their numbers there, become calls beside it, and are read there."""
        parts = content if isinstance(content, list) else [content]
        rest = [part for number, part in enumerate(parts) if number not in calls]
        texts = [part["text"] for part in rest if isinstance(part, dict) and isinstance(part.get("text"), str)]
        delta["content"] = ("".join(texts) or None) if len(texts) == len(rest) else rest
        beside = delta.get("tool_calls") or []
        delta["tool_calls"] = [*(beside if isinstance(beside, list) else [beside]), *calls.values()]
        self.is_frame_changed = True

    def _add_text(self, choice: OpenChoice, channel: str, text: str, key: Json = None) -> None:
        self._open_part(choice, channel, key)
        choice.count_text(text)
        self._events.append(ev.TextDelta(choice.open_part, text, self._frame))

    def _add_logprobs(self, choice: OpenChoice, node: Object, path: Path, before: int) -> None:
        """Add tokens to the text that the chunk has added, or to the open text. Those of calls have no place."""
        reading, delta = ReadContext(NAME), node.get("delta")
        content, refusal = read_logprobs(node["logprobs"], path, reading)
        for channel, key, logprobs in (("text", "content", content), ("refusal", "refusal", refusal)):
            if not logprobs:
                continue
            if choice.channel != channel and not choice.calls and isinstance(delta, dict) and delta.get(key) == "":
                self._open_part(choice, channel)
            if choice.channel != channel:
                reading.note_unknown_field(path, "logprobs")
                continue
            last = self._events[-1] if len(self._events) > before else None
            text = last.text if isinstance(last, ev.TextDelta) and last.index == choice.open_part else None
            if text is not None:
                self._events.pop()
            self._events.append(ev.TextDelta(choice.open_part, text or "", self._frame, logprobs))
        for field in reading.unknown_fields:
            self._unknown_fields.add_once("logprobs", field, identify_field(field))

    def _open_part(self, choice: OpenChoice, channel: str, key: Json = None, part: Part | None = None) -> None:
        """Open a part for this channel, if it is not open already; a change of channel ends the part before."""
        goes_on = choice.channel == channel and choice.channel_key == key and part is None
        if goes_on and not choice.holds_call:
            return
        self._end_open_part(choice)
        if choice.calls:
            self._start_named_calls(choice)
            self._end_complete_calls(choice)
        choice.channel, choice.channel_key = channel, key
        choice.open_part = self._start_part(choice, part or _EMPTY_PARTS[channel])
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

    def _read_content_list(self, choice: OpenChoice, value: Json, path: Path) -> dict[int, Object]:
        """Content as a list of parts, as some servers stream it. Calls are returned, by their number in the list."""
        reading = ReadContext(NAME)
        calls: dict[int, Object] = {}
        for number, part in enumerate(read_content(value, path, reading)):
            if isinstance(part, (Text, Reasoning)):
                if part.text:
                    self._add_text(choice, "text" if isinstance(part, Text) else "reasoning", part.text)
            elif isinstance(part, Media):
                self._end_open_part(choice)
                self._events.append(ev.PartEnd(self._start_part(choice, part), frame=self._frame))
            elif isinstance(part, Call):
                function = {"name": part.name, "arguments": part.arguments}
                calls[number] = {"id": part.id, "type": "function", "function": function}
            else:
                self._unknown_fields.add_once("content", UnknownField(path, "type"), type(part).__name__)
        for field in reading.unknown_fields:
            self._unknown_fields.add_once("content", field, field.what or None)
        return calls

    def _read_citations(self, choice: OpenChoice, delta: Object, path: Path) -> None:
        self._open_part(choice, "text")
        reading = ReadContext(NAME)
        for citation in read_citations(delta, path, reading, choice.part_offset):
            self._events.append(ev.CitationDelta(choice.open_part, citation, self._frame))
        for field in reading.unknown_fields:
            self._unknown_fields.add_once("annotation", field)

    def _read_reasoning(self, choice: OpenChoice, delta: Object, path: Path) -> None:
        """Reasoning text, or `reasoning_details` (OpenRouter), of which the text is a copy."""
        has_text = False
        for number, item in enumerate(get_list(delta, "reasoning_details", path) or ()):
            at = ((path, "reasoning_details"), number)
            reading = ReadContext(NAME)
            part = read_reasoning_detail(item, at, reading) if isinstance(item, dict) else None
            for field in reading.unknown_fields:
                self._unknown_fields.add_once("detail", field)
            if part is None:
                self._unknown_fields.add_once("detail", UnknownField((path, "reasoning_details"), str(number)), "")
                continue
            has_text = has_text or bool(part.text)
            self._add_reasoning_detail(choice, part, item.get("index"))
        if has_text:
            return
        text = delta.get("reasoning_content") or delta.get("reasoning")
        if text and isinstance(text, str):
            self._add_text(choice, "reasoning", text, choice.channel_key if choice.channel == "reasoning" else None)

    def _add_reasoning_detail(self, choice: OpenChoice, part: Reasoning, number: Json) -> None:
        key = (part.form, number)
        if part.hidden or choice.channel != "reasoning" or choice.channel_key not in (None, key):
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
        calls = delta.get("tool_calls")
        if type(calls) is not list:
            calls = self._read_odd_calls(delta, path)
        for number, item in enumerate(calls):
            at = ((path, "tool_calls"), number)
            node = expect_object(item, at)
            index = node.get("index")
            self._read_call(choice, node, at, index if type(index) is int else self._read_odd_index(node, at))
        old = get_object(delta, _LEGACY_CALL_KEY, path)
        if old and (old.get("name") or choice.calls_by_index.get(_LEGACY_CALL_KEY)):
            self._read_call(choice, {"function": old}, path, _LEGACY_CALL_KEY)

    def _read_odd_calls(self, delta: Object, path: Path) -> list[Json]:
        if isinstance(delta.get("tool_calls"), dict):
            delta["tool_calls"] = [delta["tool_calls"]]
            self._note_odd_calls(path, "one call without its list was read as a list")
        return get_list(delta, "tool_calls", path) or []

    def _read_odd_index(self, node: Object, path: Path) -> int | None:
        if isinstance(node.get("index"), str) and (number := read_count(node["index"])) is not None:
            node["index"] = number
            self._note_odd_calls(path, "the number of a call that was text was read as a number")
        return get_int(node, "index", path)

    def _note_odd_calls(self, path: Path, what: str) -> None:
        self._unknown_fields.add_once("call", odd_shape(path, "tool_calls", what), what)
        self.is_frame_changed = True

    def _read_call(self, choice: OpenChoice, delta: Object, path: Path, index: int | str | None) -> None:
        self._unknown_fields.add_unknown_keys("call", delta, path)
        custom = delta.get("custom") or delta.get("type") == "custom"
        kind, key = ("custom", "input") if custom else ("function", "arguments")
        inner = get_object(delta, kind, path) or {}
        id, name = get_text(delta, "id", path) or "", get_text(inner, "name", (path, kind)) or ""
        given = inner.get(key)
        added = read_arguments(given)
        open_call = choice.find_call(index, id, name)
        if open_call is None:
            open_call = self._add_call(choice, OpenCall(id, name, kind, len(choice.calls)), index)
        elif id or name:
            self._add_names(open_call, delta, inner, name, bool(added), path)
        if index != _LEGACY_CALL_KEY and delta.get("index") is not open_call.call_index:
            delta["index"] = open_call.call_index
            self.is_frame_changed = True
        if open_call.is_closed:
            if added.strip() and not open_call.text.startswith(added):
                what = f"more arguments for the call of `{open_call.name}`, whose arguments are complete"
                raise Malformed(path, what)
            inner[key] = ""
            self.is_frame_changed = True
            return
        text = open_call.read_arguments_delta(inner, key, added)
        choice.changed_calls[open_call.call_index] = open_call
        self.is_frame_changed = self.is_frame_changed or text is not given
        if open_call.part_index >= 0:
            if text:
                self._events.append(ev.ArgumentsDelta(open_call.part_index, text, self._frame))
        elif open_call.name and open_call.length:
            self._start_call(choice, open_call)
        if "extra_content" in delta and (seal := read_seal(delta, path, ReadContext(NAME))) is not None:
            open_call.seal = seal
            self._add_seal(open_call)

    def _add_seal(self, call: OpenCall) -> None:
        if call.seal is not None and call.part_index >= 0:
            self._events.append(ev.SealDelta(call.part_index, call.seal, self._frame))
            call.seal = None

    def _add_call(self, choice: OpenChoice, call: OpenCall, index: int | str | None) -> OpenCall:
        self._start_named_calls(choice)
        if call.name:
            self._end_complete_calls(choice)
        return choice.add_call(call, index)

    def _add_names(
        self, call: OpenCall, delta: Object, inner: Object, name: str, has_arguments: bool, path: Path
    ) -> None:
        if call.add_names(delta, inner, name, has_arguments, path):
            odd = odd_shape(path, call.kind, "a name that came in pieces was joined")
            self._unknown_fields.add_once("call", odd, "name in pieces")
        self.is_frame_changed = True

    def _start_call(self, choice: OpenChoice, call: OpenCall) -> None:
        """Start a call once its name is known; calls before it that are complete end here."""
        self._end_open_part(choice)
        self._end_complete_calls(choice)
        call.part_index = self._start_part(choice, Call(call.id, call.name, "", call.kind))
        choice.changed_calls[call.call_index] = call
        if call.text:
            self._events.append(ev.ArgumentsDelta(call.part_index, call.text, self._frame))
        self._add_seal(call)

    def _start_named_calls(self, choice: OpenChoice) -> None:
        """Start the last call, if it waits for more of its name or for arguments behind `{}`: something else has begun.
        A repair waits with its frames until then, because a client that has them would get `{}` twice."""
        if choice.calls and choice.calls[-1].part_index < 0 and choice.calls[-1].name:
            choice.calls[-1].release_held_back()
            self._start_call(choice, choice.calls[-1])

    def _end_complete_calls(self, choice: OpenChoice) -> None:
        """Only calls that have changed since the last time can have become complete: a provider may open thousands."""
        changed, choice.changed_calls = choice.changed_calls, {}
        for _, call in sorted(changed.items()):
            if not call.is_closed and call.part_index >= 0 and call.is_complete():
                self._end_call(call, False)

    def _end_call(self, call: OpenCall, incomplete: bool) -> None:
        call.is_closed = True
        self._events.append(ev.PartEnd(call.part_index, incomplete, self._frame))

    # --- the end ---

    def _end_response(self) -> None:
        if not self._part_count and not any(one.finish or one.holds_call for one in self._choices.values()):
            self._fail(truncated_stream_failure(NOTHING_SAID), _SILENT_FRAME)
            return
        for index in sorted(self._choices):
            choice = self._choices[index]
            self._start_named_calls(choice)
            for open_call in choice.calls:
                if open_call.part_index < 0:
                    # The failure replaces the end that this frame would be.
                    self._events = [event for event in self._events if event.frame is not self._frame]
                    problem = f"the provider's stream never named the call {open_call.id!r}"
                    self._fail(Failure("upstream", problem, 502, "invalid_stream"), _SILENT_FRAME)
                    return
            self._end_open_part(choice)
            self._end_choice(choice)
        self._ended = self._is_over = True
        self._events.append(ev.ResponseEnd(tuple(self._unknown_fields.found.values()), self._frame))

    def _end_choice(self, choice: OpenChoice) -> None:
        finish = choice.finish
        broken = False
        for open_call in choice.calls:
            if open_call.held_back is not None:
                self._release_held_arguments(choice, open_call)
            if open_call.is_closed:
                continue
            open_ended = bool(open_call.text.strip()) if finish is None else finish.kind in CUT_FINISH_KINDS
            incomplete = open_ended and has_incomplete_arguments(open_call.kind, open_call.text)
            broken = broken or incomplete
            self._end_call(open_call, incomplete)
        if finish is None:
            # [DONE] without a finish reason: derive it; incomplete arguments mean that the answer was cut.
            finish = Finish("length" if broken else "calls" if choice.calls else "stop")
        self._events.append(ev.ChoiceEnd(finish, choice.index, self._frame))

    def _release_held_arguments(self, choice: OpenChoice, call: OpenCall) -> None:
        """Send arguments that were held back until it was clear what they are."""
        already_sent, text = call.holds_placeholder, call.release_held_back()
        if text:
            late: Object = {key: self._first_chunk[key] for key in _HEAD_KEYS if key in self._first_chunk}
            delta = {"tool_calls": [{"index": call.call_index, "function": {"arguments": text}}]}
            late["choices"] = [{"index": choice.index, "delta": delta, "logprobs": None, "finish_reason": None}]
            frame = self._frame if already_sent else ev.SourceFrame(NAME, None, late)
            self.is_frame_changed = self.is_frame_changed or not already_sent
            self._events.append(ev.ArgumentsDelta(call.part_index, text, frame))


_DELTA_EVENTS = (ev.TextDelta, ev.ArgumentsDelta)
_EVENTS_BEFORE_DELTA = (ev.ResponseStart, ev.PartStart, ev.PartEnd)
"""Events that a chunk may have before its delta, and that its repeats do not have."""
_EMPTY_PARTS: dict[str, Part] = {"text": Text(""), "refusal": Refusal(""), "reasoning": Reasoning("", "raw")}
_HEAD_KEYS = ("id", "object", "created", "model")
_TEXT_KEYS = ("content", "reasoning_content", "reasoning", "refusal")


def _find_arguments(chunk: Json) -> Json:
    return chunk["choices"][0]["delta"]["tool_calls"][0]["function"]["arguments"]


def _find_repeated_call(delta: Object, choice: OpenChoice) -> OpenCall | None:
    """The call of a delta with one piece of arguments and no other content."""
    calls: Json = delta.get("tool_calls")
    if type(calls) is not list or len(calls) != 1 or not _has_only(delta, "tool_calls"):
        return None
    node = calls[0]
    index, function = node.get("index"), node.get("function")
    call = choice.calls_by_index.get(index) if type(index) is int and type(function) is dict else None
    if call is None or call.call_index != index or call.kind != "function":
        return None
    if call.held_back is not None or call.sends_whole_text:
        return None
    named = node.get("id") or function.get("name") or node.get("type") == "custom"
    return call if not named and "arguments" in function and _has_only(node, "function", "index") else None


def _has_only(node: Object, *keys: str) -> bool:
    """Are all other values empty, or strings, which are read the same way in every chunk?"""
    return not [key for key, value in node.items() if value and type(value) is not str and key not in keys]
