"""Events, written as a stream of chunks that the official SDK can add up.

Calls are numbered 0, 1, 2 … within their choice; only the first delta of a call names it, and one call is finished
before the next begins: deltas of later calls wait. Text does not wait, it has a channel of its own.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from toolwire import ids, sse
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
from toolwire.ir import Call, Citation, Failure, Media, Reasoning, Refusal, Seal, Text, Usage, place
from toolwire.loss import Ledger
from toolwire.protocols.openai_chat.details.calls import note_call, write_seal
from toolwire.protocols.openai_chat.details.message import note_part
from toolwire.protocols.openai_chat.errors import failure_body
from toolwire.protocols.openai_chat.models import Family
from toolwire.protocols.openai_chat.names import DONE, NAME, own_seal
from toolwire.protocols.openai_chat.parts import write_citation, write_detail, write_media
from toolwire.protocols.openai_chat.response import Ending, write_usage
from toolwire.protocols.openai_chat.tools import is_legacy
from toolwire.room import Context
from toolwire.wire import Json, Object, encode

_FIELDS: Mapping[type, bytes] = MappingProxyType(
    {Text: b'{"content":', Refusal: b'{"refusal":', Reasoning: b'{"reasoning_content":'}
)
_ANY = Family()


class _Slot:
    """A part under way."""

    __slots__ = (
        "answer",
        "citations",
        "counted",
        "ended",
        "head",
        "held",
        "incomplete",
        "number",
        "part",
        "said",
        "seal",
        "shift",
        "tail",
    )

    def __init__(self, part: Any, answer: _Answer) -> None:
        self.part = part
        self.answer = answer
        self.head = b""
        """Everything of a chunk before the text of a delta. A call has none while it waits."""
        self.tail = b""
        """Everything after it."""
        self.counted = isinstance(part, Text)
        self.number = -1
        self.held: list[str] = []
        self.said = False
        self.ended = False
        self.incomplete = False
        self.seal: Seal | None = None
        self.citations: list[Citation] = []
        self.shift = answer.length

    def more(self, text: str) -> bytes:
        """A delta of this text, once it is known what stands around it."""
        if self.counted:
            self.answer.length += len(text)
        return self.head + encode(text) + self.tail


class _Answer:
    """One choice."""

    __slots__ = ("begun", "calls", "cited", "details", "ending", "head", "index", "length", "open", "waiting")

    def __init__(self, index: int, legacy: bool, head: bytes) -> None:
        self.index = index
        self.head = head + str(index).encode() + b',"delta":'
        """Everything of its chunks before the delta."""
        self.begun = False
        self.calls = 0
        self.open: _Slot | None = None
        self.waiting: deque[_Slot] = deque()
        self.ending = Ending(legacy)
        self.length = 0
        self.cited = 0
        self.details = 0


class StreamWriter:
    def __init__(self, ledger: Ledger, context: Context) -> None:
        self._ledger = ledger
        self._context = context
        request = context.request
        self._legacy = is_legacy(request)
        self._wants_usage = request is None or bool(request.settings.stream_usage)
        self._tail = b'}],"usage":null}\n\n' if self._wants_usage else b"}]}\n\n"
        self._post = b'},"logprobs":null,"finish_reason":null' + self._tail
        self._head = b""
        self._id = ""
        self._usage: Usage | None = None
        self._answers: dict[int, _Answer] = {}
        self._slots: dict[int, _Slot] = {}
        self._last: Frame | None = None
        self._over = False

    def write(self, event: Event) -> bytes:
        frame = event.frame
        if frame is not None and frame.protocol == NAME:
            return self._verbatim(event, frame)
        if self._over and not isinstance(event, Carried):
            return b""
        return _WRITERS[type(event)](self, event)

    def grower(self, kind: type, index: int) -> Callable[[str], bytes] | None:
        slot = self._slots[index]
        return slot.more if slot.head and (slot.said or kind is TextDelta) else None

    def close(self) -> bytes:
        if self._over:
            return b""
        failure = Failure("upstream", TRUNCATED, 502, "stream_truncated")
        return self._failed(ResponseFailed(failure))

    def _verbatim(self, event: Event, frame: Frame) -> bytes:
        """A frame of our own goes out as it came, once. Only a failure can follow without one of its own."""
        if isinstance(event, (ResponseEnd, ResponseFailed)):
            if frame.silent and isinstance(event, ResponseFailed):
                return self._failed(event)
            self._over = True
        if frame is self._last or frame.silent:
            return b""
        self._last = frame
        data = DONE if frame.json is None else encode(frame.json)
        return sse.bare(data) if frame.event is None else sse.named(frame.event, data)

    # --- chunks ---

    def _chunk(self, answer: _Answer, delta: Json, finish: bytes = b"null") -> bytes:
        return answer.head + encode(delta) + b',"logprobs":null,"finish_reason":' + finish + self._tail

    def _start(self, event: ResponseStart) -> bytes:
        context = self._context
        self._id = event.id or ids.made("chatcmpl-", context.seed)
        head: Object = {
            "id": self._id,
            "object": "chat.completion.chunk",
            "created": event.created if event.created is not None else context.now,
            "model": event.model or (context.request.model if context.request is not None else ""),
        }
        self._usage = event.usage
        self._head = b"data: " + encode(head)[:-1] + b',"choices":['
        return b""

    def _answer(self, index: int) -> _Answer:
        answer = self._answers.get(index)
        if answer is None:
            answer = self._answers[index] = _Answer(index, self._legacy, self._head + b'{"index":')
        return answer

    def _begun(self, answer: _Answer, content: str | None = "") -> bytes:
        """The first chunk of a choice names the role; choices must appear in their order."""
        if answer.begun:
            return b""
        said = b'"","refusal":null' if content is not None else b'null,"refusal":null'
        return self._first(answer) + said + self._post

    def _first(self, answer: _Answer) -> bytes:
        """The beginning of its first chunk, up to the content, and before it the first chunks of those before it."""
        answer.begun = True
        out = b""
        for index in range(answer.index):
            out += self._begun(self._answer(index))
        return out + answer.head + b'{"role":"assistant","content":'

    # --- parts ---

    def _part(self, event: PartStart) -> bytes:
        answer = self._answer(event.choice)
        part = event.part
        slot = self._slots[event.index] = _Slot(part, answer)
        if isinstance(part, Call):
            return self._call(slot, part)
        field = _FIELDS.get(type(part))
        if field is not None and isinstance(part, (Text, Refusal, Reasoning)):
            return self._speech(slot, part, field)
        if isinstance(part, Media):
            image = write_media(part, _ANY, self._ledger)
            return self._begun(answer) + self._chunk(answer, {"images": [image]}) if image is not None else b""
        note_part(part, self._ledger)
        return b""

    def _speech(self, slot: _Slot, part: Text | Refusal | Reasoning, field: bytes) -> bytes:
        answer = slot.answer
        slot.head = answer.head + field
        slot.tail = self._post
        if isinstance(part, Refusal):
            answer.ending.refused = True
        if answer.calls and part.text is not None:
            what = "text, thinking and calls no longer stand in the order they were made"
            self._ledger.note("order-changed", place(part), what)
        out = self._begun(answer, None if isinstance(part, Refusal) else "")
        if part.text:
            out += slot.head + encode(part.text) + self._post
            answer.length += len(part.text)
        if isinstance(part, Text):
            for citation in part.citations:
                slot.citations.append(citation)
        if isinstance(part, (Text, Reasoning)) and part.seal is not None:
            out += self._seal_of(slot, part.seal)
        return out

    def _text(self, event: TextDelta) -> bytes:
        slot = self._slots[event.index]
        return slot.more(event.text) if slot.head else b""

    def _cite(self, event: CitationDelta) -> bytes:
        slot = self._slots[event.index]
        if isinstance(slot.part, Text):
            slot.citations.append(event.citation)
        else:
            self._ledger.note("citation-dropped", place(event.citation), "a source was left out")
        return b""

    def _seal(self, event: SealDelta) -> bytes:
        return self._seal_of(self._slots[event.index], event.seal)

    def _seal_of(self, slot: _Slot, seal: Seal) -> bytes:
        answer = slot.answer
        if not own_seal(seal) or isinstance(slot.part, Text) or self._legacy:
            self._ledger.note("seal-dropped", place(slot.part), "a seal was left out")
        elif isinstance(slot.part, Call):
            slot.seal = seal
        else:
            part = Reasoning("", slot.part.form, slot.part.hidden, seal, slot.part.id)
            detail = write_detail(part, answer.details)
            answer.details += 1
            return self._chunk(answer, {"reasoning_details": [detail]})
        return b""

    def _end(self, event: PartEnd) -> bytes:
        slot = self._slots.pop(event.index)
        answer = slot.answer
        if isinstance(slot.part, Call):
            slot.ended, slot.incomplete = True, event.incomplete
            answer.ending.incomplete = answer.ending.incomplete or event.incomplete
            return self._next(answer, self._close(slot)) if slot is answer.open else b""
        if not slot.citations:
            return b""
        # A list is added up by `index`; the first of its kind goes without, as the service sends it.
        length = answer.length - slot.shift
        found = [write_citation(citation, slot.shift, length) for citation in slot.citations]
        if answer.cited:
            found = [{**item, "index": answer.cited + number} for number, item in enumerate(found)]
        answer.cited += len(found)
        return self._chunk(answer, {"annotations": found})

    # --- calls ---

    def _call(self, slot: _Slot, call: Call) -> bytes:
        answer = slot.answer
        note_call(call, self._ledger)
        answer.ending.calls = True
        if self._legacy and answer.calls:
            what = f"`function_call` holds one call: `{call.name}` was left out"
            self._ledger.note("part-dropped", place(call), what)
            slot.said = True
            return b""
        slot.number = answer.calls
        answer.calls += 1
        slot.seal = call.seal if own_seal(call.seal) else None
        if call.arguments:
            slot.held.append(call.arguments)
        if answer.open is not None:
            answer.waiting.append(slot)
            return b""
        return self._announce(slot)

    def _announce(self, slot: _Slot) -> bytes:
        """The one delta that names the call, then what has been held of its arguments."""
        answer, call = slot.answer, slot.part
        answer.open = slot
        custom = call.kind == "custom" and not self._legacy
        key = b'"input":' if custom else b'"arguments":'
        if self._legacy:
            lead, inner, named, tail = b'"function_call":{', b"", b'"name":', b"}"
        else:
            id = call.id or ids.made("call_", self._id, answer.index, slot.number)
            kind = b'"custom"' if custom else b'"function"'
            lead, inner, tail = b'"tool_calls":[{"index":' + str(slot.number).encode() + b",", kind + b":{", b"}}]"
            named = b'"id":' + encode(id) + b',"type":' + kind + b"," + inner + b'"name":'
        slot.head = answer.head + b"{" + lead + inner + key
        slot.tail = tail + self._post
        out = answer.head + b"{" if answer.begun else self._first(answer) + b'null,"refusal":null,'
        out += lead + named + encode(call.name) + b"," + key + b'""' + slot.tail
        held, slot.held = "".join(slot.held), []
        return out + self._said(slot, held) if held else out

    def _said(self, slot: _Slot, text: str) -> bytes:
        slot.said = True
        return slot.more(text)

    def _arguments(self, event: ArgumentsDelta) -> bytes:
        slot = self._slots[event.index]
        text = event.text
        if not text or slot.number < 0:
            return b""
        if slot.head:
            return self._said(slot, text)
        slot.held.append(text)
        return b""

    def _close(self, slot: _Slot) -> bytes:
        """A call without arguments is a call with none of them: `{}`, never the empty text."""
        out = b""
        if not slot.said and not slot.incomplete and (slot.part.kind != "custom" or self._legacy):
            out = self._said(slot, "{}")
        if slot.seal is not None:
            # Without a piece of arguments, even an empty one, the SDK refuses a delta of a call.
            sealed = {"index": slot.number, "function": {"arguments": ""}, "extra_content": write_seal(slot.seal)}
            out += self._chunk(slot.answer, {"tool_calls": [sealed]})
        slot.answer.open = None
        return out

    def _next(self, answer: _Answer, out: bytes) -> bytes:
        while answer.waiting and answer.open is None:
            slot = answer.waiting.popleft()
            out += self._announce(slot)
            if slot.ended:
                out += self._close(slot)
        return out

    # --- the end ---

    def _choice_end(self, event: ChoiceEnd) -> bytes:
        answer = self._answer(event.choice)
        out = self._begun(answer)
        word = answer.ending.word(event.finish, place(event.finish), self._ledger)
        return out + self._chunk(answer, {}, encode(word))

    def _count(self, event: UsageUpdate) -> bytes:
        self._usage = event.usage
        return b""

    def _finish(self, _event: ResponseEnd) -> bytes:
        self._over = True
        out = b""
        if self._wants_usage and self._usage is not None:
            out = self._head + b'],"usage":' + encode(write_usage(self._usage)) + b"}\n\n"
        return out + sse.bare(DONE)

    def _failed(self, event: ResponseFailed) -> bytes:
        self._over = True
        return sse.bare(encode(failure_body(event.failure)))

    def _carried(self, event: Carried) -> bytes:
        if not event.quiet:
            self._ledger.note("event-dropped", event.origin.path, f"the event `{event.kind}` was left out")
        return b""


_WRITERS: Mapping[type, Callable[[StreamWriter, Any], bytes]] = MappingProxyType(
    {
        ResponseStart: StreamWriter._start,
        PartStart: StreamWriter._part,
        TextDelta: StreamWriter._text,
        ArgumentsDelta: StreamWriter._arguments,
        SealDelta: StreamWriter._seal,
        CitationDelta: StreamWriter._cite,
        PartEnd: StreamWriter._end,
        UsageUpdate: StreamWriter._count,
        ChoiceEnd: StreamWriter._choice_end,
        ResponseEnd: StreamWriter._finish,
        ResponseFailed: StreamWriter._failed,
        Carried: StreamWriter._carried,
    }
)
