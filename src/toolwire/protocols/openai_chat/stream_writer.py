"""Events, written as a stream of chunks that the official SDK can add up.

Calls are numbered 0, 1, 2 … within their choice; only the first delta of a call names it, and one call is finished
before the next begins: deltas of later calls wait. Text does not wait, it has a channel of its own.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from toolwire.core import ids, sse
from toolwire.core.codec import DeltaWriter, WriteContext
from toolwire.core.errors import TRUNCATED_STREAM_MESSAGE
from toolwire.core.events import (
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
from toolwire.core.ir import Call, Citation, Failure, Media, Reasoning, Refusal, Seal, Text, Usage, source_path
from toolwire.core.json_values import Json, Object, encode
from toolwire.core.losses import Ledger
from toolwire.protocols.openai_chat.content import write_citation, write_media, write_reasoning_detail
from toolwire.protocols.openai_chat.errors import write_error_body
from toolwire.protocols.openai_chat.messages import note_dropped_part
from toolwire.protocols.openai_chat.models import Family
from toolwire.protocols.openai_chat.names import DONE, NAME, is_own_seal
from toolwire.protocols.openai_chat.response import FinishReasonWriter, write_usage
from toolwire.protocols.openai_chat.tools import note_call_losses, uses_legacy_functions, write_seal

_DELTA_PREFIXES: Mapping[type, bytes] = MappingProxyType(
    {Text: b'{"content":', Refusal: b'{"refusal":', Reasoning: b'{"reasoning_content":'}
)
_DEFAULT_FAMILY = Family()


class _OpenPart:
    """A part under way."""

    __slots__ = (
        "call_index",
        "choice",
        "citations",
        "counts_text",
        "delta_prefix",
        "delta_suffix",
        "has_arguments",
        "held_back",
        "incomplete",
        "is_ended",
        "part",
        "seal",
        "text_offset",
    )

    def __init__(self, part: Any, choice: _OpenChoice) -> None:
        self.part = part
        self.choice = choice
        self.delta_prefix = b""
        """Everything of a chunk before the text of a delta. A call has none while it waits."""
        self.delta_suffix = b""
        """Everything after it."""
        self.counts_text = isinstance(part, Text)
        self.call_index = -1
        self.held_back: list[str] = []
        self.has_arguments = False
        self.is_ended = False
        self.incomplete = False
        self.seal: Seal | None = None
        self.citations: list[Citation] = []
        self.text_offset = choice.text_length

    def write_delta(self, text: str) -> bytes:
        """A delta of this text, once it is known what stands around it."""
        if self.counts_text:
            self.choice.text_length += len(text)
        return self.delta_prefix + encode(text) + self.delta_suffix


class _OpenChoice:
    """One choice."""

    __slots__ = (
        "call_count",
        "chunk_prefix",
        "citation_count",
        "detail_count",
        "finish_reason",
        "index",
        "is_started",
        "open_call",
        "text_length",
        "waiting_calls",
    )

    def __init__(self, index: int, legacy: bool, chunk_prefix: bytes) -> None:
        self.index = index
        self.chunk_prefix = chunk_prefix + str(index).encode() + b',"delta":'
        """Everything of its chunks before the delta."""
        self.is_started = False
        self.call_count = 0
        self.open_call: _OpenPart | None = None
        self.waiting_calls: deque[_OpenPart] = deque()
        self.finish_reason = FinishReasonWriter(legacy)
        self.text_length = 0
        self.citation_count = 0
        self.detail_count = 0


class StreamWriter:
    def __init__(self, ledger: Ledger, context: WriteContext) -> None:
        self._ledger = ledger
        self._context = context
        request = context.request
        self._legacy = uses_legacy_functions(request)
        self._wants_usage = request is None or bool(request.settings.stream_usage)
        self._chunk_suffix = b'}],"usage":null}\n\n' if self._wants_usage else b"}]}\n\n"
        self._delta_suffix = b'},"logprobs":null,"finish_reason":null' + self._chunk_suffix
        self._chunk_prefix = b""
        self._response_id = ""
        self._usage: Usage | None = None
        self._choices: dict[int, _OpenChoice] = {}
        self._open_parts: dict[int, _OpenPart] = {}
        self._last_frame: SourceFrame | None = None
        self._ended = False

    def write(self, event: Event) -> bytes:
        frame = event.frame
        if frame is not None and frame.protocol == NAME:
            return self._write_verbatim(event, frame)
        if self._ended and not isinstance(event, OpaqueEvent):
            return b""
        return _EVENT_WRITERS[type(event)](self, event)

    def delta_writer(self, kind: type[TextDelta | ArgumentsDelta], index: int) -> DeltaWriter | None:
        slot = self._open_parts[index]
        return slot.write_delta if slot.delta_prefix and (slot.has_arguments or kind is TextDelta) else None

    def close(self) -> bytes:
        if self._ended:
            return b""
        failure = Failure("upstream", TRUNCATED_STREAM_MESSAGE, 502, "stream_truncated")
        return self._write_failure(ResponseFailed(failure))

    def _write_verbatim(self, event: Event, frame: SourceFrame) -> bytes:
        """A frame of our own goes out as it came, once. Only a failure can follow without one of its own."""
        if isinstance(event, (ResponseEnd, ResponseFailed)):
            if frame.silent and isinstance(event, ResponseFailed):
                return self._write_failure(event)
            self._ended = True
        if frame is self._last_frame or frame.silent:
            return b""
        self._last_frame = frame
        data = DONE if frame.json is None else encode(frame.json)
        return sse.write_data_frame(data) if frame.event is None else sse.write_event_frame(frame.event, data)

    # --- chunks ---

    def _write_chunk(self, choice: _OpenChoice, delta: Json, finish: bytes = b"null") -> bytes:
        return choice.chunk_prefix + encode(delta) + b',"logprobs":null,"finish_reason":' + finish + self._chunk_suffix

    def _write_start(self, event: ResponseStart) -> bytes:
        context = self._context
        self._response_id = event.id or ids.derive_id("chatcmpl-", context.seed)
        head: Object = {
            "id": self._response_id,
            "object": "chat.completion.chunk",
            "created": event.created if event.created is not None else context.now,
            "model": event.model or (context.request.model if context.request is not None else ""),
        }
        self._usage = event.usage
        self._chunk_prefix = b"data: " + encode(head)[:-1] + b',"choices":['
        return b""

    def _choice(self, index: int) -> _OpenChoice:
        answer = self._choices.get(index)
        if answer is None:
            answer = self._choices[index] = _OpenChoice(index, self._legacy, self._chunk_prefix + b'{"index":')
        return answer

    def _write_choice_start(self, choice: _OpenChoice, content: str | None = "") -> bytes:
        """The first chunk of a choice names the role; choices must appear in their order."""
        if choice.is_started:
            return b""
        said = b'"","refusal":null' if content is not None else b'null,"refusal":null'
        return self._write_choice_prefix(choice) + said + self._delta_suffix

    def _write_choice_prefix(self, choice: _OpenChoice) -> bytes:
        """The beginning of its first chunk, up to the content, and before it the first chunks of those before it."""
        choice.is_started = True
        out = b""
        for index in range(choice.index):
            out += self._write_choice_start(self._choice(index))
        return out + choice.chunk_prefix + b'{"role":"assistant","content":'

    # --- parts ---

    def _write_part_start(self, event: PartStart) -> bytes:
        answer = self._choice(event.choice)
        part = event.part
        slot = self._open_parts[event.index] = _OpenPart(part, answer)
        if isinstance(part, Call):
            return self._write_call_start(slot, part)
        field = _DELTA_PREFIXES.get(type(part))
        if field is not None and isinstance(part, (Text, Refusal, Reasoning)):
            return self._write_text_start(slot, part, field)
        if isinstance(part, Media):
            image = write_media(part, _DEFAULT_FAMILY, self._ledger)
            return (
                self._write_choice_start(answer) + self._write_chunk(answer, {"images": [image]})
                if image is not None
                else b""
            )
        note_dropped_part(part, self._ledger)
        return b""

    def _write_text_start(self, part_state: _OpenPart, part: Text | Refusal | Reasoning, field: bytes) -> bytes:
        answer = part_state.choice
        part_state.delta_prefix = answer.chunk_prefix + field
        part_state.delta_suffix = self._delta_suffix
        if isinstance(part, Refusal):
            answer.finish_reason.has_refusal = True
        if answer.call_count and part.text is not None:
            what = "text, thinking and calls no longer stand in the order they were made"
            self._ledger.note("order-changed", source_path(part), what)
        out = self._write_choice_start(answer, None if isinstance(part, Refusal) else "")
        if part.text:
            out += part_state.delta_prefix + encode(part.text) + self._delta_suffix
            answer.text_length += len(part.text)
        if isinstance(part, Text):
            for citation in part.citations:
                part_state.citations.append(citation)
        if isinstance(part, (Text, Reasoning)) and part.seal is not None:
            out += self._write_part_seal(part_state, part.seal)
        return out

    def _write_text(self, event: TextDelta) -> bytes:
        slot = self._open_parts[event.index]
        return slot.write_delta(event.text) if slot.delta_prefix else b""

    def _write_citation(self, event: CitationDelta) -> bytes:
        slot = self._open_parts[event.index]
        if isinstance(slot.part, Text):
            slot.citations.append(event.citation)
        else:
            self._ledger.note("citation-dropped", source_path(event.citation), "a source was left out")
        return b""

    def _write_seal(self, event: SealDelta) -> bytes:
        return self._write_part_seal(self._open_parts[event.index], event.seal)

    def _write_part_seal(self, part_state: _OpenPart, seal: Seal) -> bytes:
        answer = part_state.choice
        if not is_own_seal(seal) or isinstance(part_state.part, Text) or self._legacy:
            self._ledger.note("seal-dropped", source_path(part_state.part), "a seal was left out")
        elif isinstance(part_state.part, Call):
            part_state.seal = seal
        else:
            part = Reasoning("", part_state.part.form, part_state.part.hidden, seal, part_state.part.id)
            detail = write_reasoning_detail(part, answer.detail_count)
            answer.detail_count += 1
            return self._write_chunk(answer, {"reasoning_details": [detail]})
        return b""

    def _write_part_end(self, event: PartEnd) -> bytes:
        slot = self._open_parts.pop(event.index)
        answer = slot.choice
        if isinstance(slot.part, Call):
            slot.is_ended, slot.incomplete = True, event.incomplete
            answer.finish_reason.is_incomplete = answer.finish_reason.is_incomplete or event.incomplete
            return self._write_waiting_calls(answer, self._write_call_end(slot)) if slot is answer.open_call else b""
        if not slot.citations:
            return b""
        # A list is added up by `index`; the first of its kind goes without, as the service sends it.
        length = answer.text_length - slot.text_offset
        found = [write_citation(citation, slot.text_offset, length) for citation in slot.citations]
        if answer.citation_count:
            found = [{**item, "index": answer.citation_count + number} for number, item in enumerate(found)]
        answer.citation_count += len(found)
        return self._write_chunk(answer, {"annotations": found})

    # --- calls ---

    def _write_call_start(self, part_state: _OpenPart, call: Call) -> bytes:
        answer = part_state.choice
        note_call_losses(call, self._ledger)
        answer.finish_reason.has_calls = True
        if self._legacy and answer.call_count:
            what = f"`function_call` holds one call: `{call.name}` was left out"
            self._ledger.note("part-dropped", source_path(call), what)
            part_state.has_arguments = True
            return b""
        part_state.call_index = answer.call_count
        answer.call_count += 1
        part_state.seal = call.seal if is_own_seal(call.seal) else None
        if call.arguments:
            part_state.held_back.append(call.arguments)
        if answer.open_call is not None:
            answer.waiting_calls.append(part_state)
            return b""
        return self._write_announcement(part_state)

    def _write_announcement(self, part_state: _OpenPart) -> bytes:
        """The one delta that names the call, then what has been held of its arguments."""
        answer, call = part_state.choice, part_state.part
        answer.open_call = part_state
        custom = call.kind == "custom" and not self._legacy
        key = b'"input":' if custom else b'"arguments":'
        if self._legacy:
            lead, inner, named, tail = b'"function_call":{', b"", b'"name":', b"}"
        else:
            id = call.id or ids.derive_id("call_", self._response_id, answer.index, part_state.call_index)
            kind = b'"custom"' if custom else b'"function"'
            lead, inner, tail = (
                b'"tool_calls":[{"index":' + str(part_state.call_index).encode() + b",",
                kind + b":{",
                b"}}]",
            )
            named = b'"id":' + encode(id) + b',"type":' + kind + b"," + inner + b'"name":'
        part_state.delta_prefix = answer.chunk_prefix + b"{" + lead + inner + key
        part_state.delta_suffix = tail + self._delta_suffix
        out = (
            answer.chunk_prefix + b"{"
            if answer.is_started
            else self._write_choice_prefix(answer) + b'null,"refusal":null,'
        )
        out += lead + named + encode(call.name) + b"," + key + b'""' + part_state.delta_suffix
        held, part_state.held_back = "".join(part_state.held_back), []
        return out + self._write_arguments_text(part_state, held) if held else out

    def _write_arguments_text(self, part_state: _OpenPart, text: str) -> bytes:
        part_state.has_arguments = True
        return part_state.write_delta(text)

    def _write_arguments(self, event: ArgumentsDelta) -> bytes:
        slot = self._open_parts[event.index]
        text = event.text
        if not text or slot.call_index < 0:
            return b""
        if slot.delta_prefix:
            return self._write_arguments_text(slot, text)
        slot.held_back.append(text)
        return b""

    def _write_call_end(self, part_state: _OpenPart) -> bytes:
        """A call without arguments is a call with none of them: `{}`, never the empty text."""
        out = b""
        if (
            not part_state.has_arguments
            and not part_state.incomplete
            and (part_state.part.kind != "custom" or self._legacy)
        ):
            out = self._write_arguments_text(part_state, "{}")
        if part_state.seal is not None:
            # Without a piece of arguments, even an empty one, the SDK refuses a delta of a call.
            sealed = {
                "index": part_state.call_index,
                "function": {"arguments": ""},
                "extra_content": write_seal(part_state.seal),
            }
            out += self._write_chunk(part_state.choice, {"tool_calls": [sealed]})
        part_state.choice.open_call = None
        return out

    def _write_waiting_calls(self, choice: _OpenChoice, out: bytes) -> bytes:
        while choice.waiting_calls and choice.open_call is None:
            slot = choice.waiting_calls.popleft()
            out += self._write_announcement(slot)
            if slot.is_ended:
                out += self._write_call_end(slot)
        return out

    # --- the end ---

    def _write_choice_end(self, event: ChoiceEnd) -> bytes:
        answer = self._choice(event.choice)
        out = self._write_choice_start(answer)
        word = answer.finish_reason.write(event.finish, source_path(event.finish), self._ledger)
        return out + self._write_chunk(answer, {}, encode(word))

    def _write_usage(self, event: UsageUpdate) -> bytes:
        self._usage = event.usage
        return b""

    def _write_response_end(self, _event: ResponseEnd) -> bytes:
        self._ended = True
        out = b""
        if self._wants_usage and self._usage is not None:
            out = self._chunk_prefix + b'],"usage":' + encode(write_usage(self._usage)) + b"}\n\n"
        return out + sse.write_data_frame(DONE)

    def _write_failure(self, event: ResponseFailed) -> bytes:
        self._ended = True
        return sse.write_data_frame(encode(write_error_body(event.failure)))

    def _write_carried(self, event: OpaqueEvent) -> bytes:
        if not event.is_ignorable:
            self._ledger.note("event-dropped", event.origin.path, f"the event `{event.kind}` was left out")
        return b""


_EVENT_WRITERS: Mapping[type, Callable[[StreamWriter, Any], bytes]] = MappingProxyType(
    {
        ResponseStart: StreamWriter._write_start,
        PartStart: StreamWriter._write_part_start,
        TextDelta: StreamWriter._write_text,
        ArgumentsDelta: StreamWriter._write_arguments,
        SealDelta: StreamWriter._write_seal,
        CitationDelta: StreamWriter._write_citation,
        PartEnd: StreamWriter._write_part_end,
        UsageUpdate: StreamWriter._write_usage,
        ChoiceEnd: StreamWriter._write_choice_end,
        ResponseEnd: StreamWriter._write_response_end,
        ResponseFailed: StreamWriter._write_failure,
        OpaqueEvent: StreamWriter._write_carried,
    }
)
