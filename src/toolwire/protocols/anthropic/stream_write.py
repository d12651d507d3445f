"""Events as a stream of this wire: one block at a time, numbered without gaps, every frame with its `event:` line."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from msgspec.structs import replace

from toolwire import estimate
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
from toolwire.ir import Call, Failure, Finish, HostedCall, HostedResult, Part, Reasoning, Refusal, Text, Usage, place
from toolwire.loss import Ledger
from toolwire.protocols.anthropic.details.hosted import Searches
from toolwire.protocols.anthropic.details.open_part import (
    END,
    START,
    STOP,
    TEXT,
    THOUGHT,
    OpenPart,
    PartEvent,
    head_of,
    speaks,
    stale,
    start_of,
)
from toolwire.protocols.anthropic.details.stamp import is_own, own_seal
from toolwire.protocols.anthropic.errors import write_error
from toolwire.protocols.anthropic.names import NAME, RAW
from toolwire.protocols.anthropic.parts import write_citation, write_part
from toolwire.protocols.anthropic.response import message_id, model_name, write_finish, write_usage
from toolwire.room import Context
from toolwire.sse import bare, named
from toolwire.wire import Object, encode, encode_text

_STRUCTURE = frozenset(
    "message_start message_delta message_stop content_block_start content_block_delta content_block_stop".split()
)


class StreamWriter:
    def __init__(self, ledger: Ledger, context: Context) -> None:
        self._ledger = ledger
        self._context = context
        self._last: Frame | None = None
        self._parts: dict[int, OpenPart] = {}
        self._holder: int | None = None
        """The part whose block is open."""
        self._growing: type | None = None
        """The events whose text goes straight into that block, if the last one was such."""
        self._head = b""
        """What stands before the text."""
        self._waiting: dict[int, list[PartEvent]] = {}
        self._blocks = 0
        self._id = ""
        self._searches = Searches(context.request)
        self._refused = False
        self._finish: Finish | None = None
        self._usage: Usage | None = None
        self._over = False

    def write(self, event: Event) -> bytes:
        frame = event.frame
        if frame is not None and frame.protocol == NAME:
            return self._verbatim(event, frame)
        if type(event) is self._growing and event.index == self._holder and event.text:  # type: ignore[union-attr]
            return self._head + encode(event.text) + b"}}\n\n"  # type: ignore[union-attr]
        return _WRITERS[type(event)](self, event)

    def grower(self, kind: type, index: int) -> Callable[[str], bytes] | None:
        return self._more if kind is self._growing and index == self._holder else None

    def _more(self, text: str) -> bytes:
        return self._head + encode(text) + b"}}\n\n"

    def close(self) -> bytes:
        if self._over:
            return b""
        return self.failed(ResponseFailed(Failure("upstream", TRUNCATED, 502, "stream_truncated")))

    # --- what came from this wire goes back as it came ---

    def _verbatim(self, event: Event, frame: Frame) -> bytes:
        self._track(event)
        if frame is self._last:
            return b""
        self._last = frame
        if frame.silent:
            # The wire said nothing, but a client must hear of a failure.
            return self.failed(event) if isinstance(event, ResponseFailed) else b""
        if frame.json is None:
            return bare(b"[DONE]")
        data = encode(frame.json)
        return named(frame.event, data) if frame.event else bare(data)

    def _track(self, event: Event) -> None:
        """Keep the numbering in step, for events that follow without a frame."""
        self._growing = None
        if isinstance(event, PartStart):
            state = self._parts[event.index] = OpenPart(event.part)
            state.block, self._blocks = self._blocks, self._blocks + 1
            state.head = head_of(state)
            state.blank = False
            self._holder = event.index
        elif isinstance(event, PartEnd):
            self._parts.pop(event.index, None)
            if self._holder == event.index:
                self._holder = None
        elif isinstance(event, UsageUpdate):
            self._usage = event.usage
        elif isinstance(event, ChoiceEnd):
            self._finish = event.finish
        elif isinstance(event, (ResponseEnd, ResponseFailed)):
            self._over = True

    # --- the message ---

    def start(self, event: ResponseStart) -> bytes:
        context = self._context
        usage = event.usage
        if usage is None or not usage.input:
            # Agents show how full the context is from here on; the exact count comes with the end.
            usage = Usage(0 if context.request is None else estimate.tokens(context.request))
        self._id = message_id(event.id, context)
        message: Object = {
            "id": self._id,
            "type": "message",
            "role": "assistant",
            "model": model_name(event.model, self._ledger, context),
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": write_usage(usage, self._ledger),
        }
        return b'event: message_start\ndata: {"type":"message_start","message":' + encode(message) + b"}\n\n"

    def usage(self, event: UsageUpdate) -> bytes:
        self._usage = event.usage
        return b""

    def choice_end(self, event: ChoiceEnd) -> bytes:
        if event.choice == 0:
            self._finish = event.finish
        return b""

    def end(self, event: ResponseEnd) -> bytes:
        self._over = True
        out = self._stop() if self._holder is not None else b""
        if self._waiting:
            out += self._released(True)
        more = self._searches.last(self._finish, self._id)
        if more:
            out += self._blocks_of(more)
        finish = write_finish(self._finish or Finish("stop"), self._refused, self._ledger)
        if finish["stop_details"] is None:
            del finish["stop_details"]
        usage = write_usage(self._usage, self._ledger, self._searches.used)
        delta = b'event: message_delta\ndata: {"type":"message_delta","delta":' + encode(finish)
        return out + delta + b',"usage":' + encode(usage) + END

    def failed(self, event: ResponseFailed) -> bytes:
        self._over = True
        return named("error", encode(write_error(event.failure).body))

    def carried(self, event: Carried) -> bytes:
        wire = event.origin.wire
        if is_own(event.origin) and isinstance(wire, dict) and wire.get("type") not in _STRUCTURE:
            return named(event.kind, encode(wire)) if event.kind else bare(encode(wire))
        if not event.quiet:
            self._ledger.note("event-dropped", event.origin.path, f"the event `{event.kind}` was left out")
        return b""

    # --- parts: each takes the wire when it has something to say and nobody else holds it ---

    def part(self, event: PartEvent) -> bytes:
        index, kind = event.index, type(event)
        self._growing = None
        if isinstance(event, PartStart):
            if event.choice != 0:
                what = f"answer {event.choice} was left out"
                self._ledger.note("no-counterpart", None, what, "there is one answer only")
                return b""
            state = self._parts[index] = OpenPart(event.part)
        elif (found := self._parts.get(index)) is not None:
            state = found
        else:
            return b""
        out, holder = b"", self._holder
        if self._waiting and index in self._waiting:
            self._waiting[index].append(event)
            return b""
        if holder is not None and holder != index and speaks(state, event):
            if isinstance(self._parts[holder].part, (Call, HostedCall)):
                self._waiting[index] = [event]
                return b""
            # Text and thinking can go on in another block; a call cannot.
            out = self._stop()
        out += _PARTS[kind](self, state, event)
        if kind is PartEnd:
            self._parts.pop(index, None)
            if self._waiting and self._holder is None:
                out += self._released(False)
        return out

    def _released(self, force: bool) -> bytes:
        """Give the wire to those who waited, in their order."""
        out: list[bytes] = []
        waiting, self._waiting = self._waiting, {}
        for events in waiting.values():
            out.extend(map(self.part, events))
            if force and self._holder is not None:
                out.append(self._stop())
        return b"".join(out)

    def _blocks_of(self, parts: list[Part]) -> bytes:
        """Blocks that are known whole."""
        out: list[bytes] = []
        for part in parts:
            start = {"type": "content_block_start", "index": self._blocks}
            whole = start | {"content_block": write_part(part, self._ledger, True)}
            stop = {"type": "content_block_stop", "index": self._blocks}
            out += [named("content_block_start", encode(whole)), named("content_block_stop", encode(stop))]
            self._blocks += 1
        return b"".join(out)

    def _begin(self, index: int, state: OpenPart, block: Object) -> bytes:
        state.block, self._blocks = self._blocks, self._blocks + 1
        state.head = head_of(state)
        self._holder = index
        return START + str(state.block).encode() + b',"content_block":' + encode(block) + b"}\n\n"

    def _stop(self) -> bytes:
        """Close the block that is open."""
        assert self._holder is not None
        state = self._parts[self._holder]
        number, state.block, self._holder = state.block, -1, None
        return STOP + str(number).encode() + b"}\n\n"

    def _delta(self, state: OpenPart, delta: Object) -> bytes:
        event = {"type": "content_block_delta", "index": state.block, "delta": delta}
        return named("content_block_delta", encode(event))

    def part_start(self, state: OpenPart, event: PartStart) -> bytes:
        part = event.part
        if isinstance(part, (Text, Refusal)):
            self._note_text(part)
            out = self.text(state, TextDelta(event.index, part.text)) if part.text else b""
            for citation in part.citations if isinstance(part, Text) else ():
                out += self.citation(state, CitationDelta(event.index, citation))
            return out
        if isinstance(part, Reasoning):
            state.seal = part.seal
            return self.text(state, TextDelta(event.index, part.text)) if part.text and not part.hidden else b""
        if isinstance(part, Call):
            return self._call(state, event.index, part.arguments, start_of(part, self._ledger))
        if isinstance(part, HostedCall):
            self._searches.called(part)
            begun = replace(part, arguments="", origin=stale(part))
            return self._call(state, event.index, part.arguments, write_part(begun, self._ledger, True))
        return b""

    def _note_text(self, part: Text | Refusal) -> None:
        if isinstance(part, Refusal):
            self._refused = True
            self._ledger.note("refusal-as-text", place(part), "a refusal became text")
        elif part.seal is not None:
            self._ledger.note("seal-dropped", place(part), "the seal of a text was taken off")

    def _call(self, state: OpenPart, index: int, arguments: str, block: Object | None) -> bytes:
        """The start of a call has no arguments: agents read them from the deltas alone."""
        if block is None:
            del self._parts[index]
            return b""
        block["input"] = {}
        out = self._begin(index, state, block)
        return out + self.arguments(state, ArgumentsDelta(index, arguments))

    def text(self, state: OpenPart, event: TextDelta) -> bytes:
        if isinstance(state.part, HostedResult) or not event.text:
            state.pieces.append(event.text)
            return b""
        out = b""
        if state.block < 0:
            if self._searches.waits and isinstance(state.part, Text):
                out = self._blocks_of(self._searches.settled())
            out += self._begin(event.index, state, THOUGHT if isinstance(state.part, Reasoning) else TEXT)
        if self._searches.quotes and isinstance(state.part, Text):
            state.pieces.append(event.text)
        else:
            self._grows(state, event)
        return out + state.head + encode(event.text) + b"}}\n\n"

    def arguments(self, state: OpenPart, event: ArgumentsDelta) -> bytes:
        if isinstance(state.part, Call) and state.part.kind == "custom":
            state.pieces.append(event.text)
            return b""
        if state.blank and event.text.strip():
            state.blank = False
        if not state.blank:
            self._grows(state, event)
        return state.head + encode(event.text) + b"}}\n\n" if event.text else b""

    def _grows(self, state: OpenPart, event: TextDelta | ArgumentsDelta) -> None:
        """More events like this one need no other look."""
        if self._holder == event.index:
            self._growing, self._head = type(event), state.head

    def seal(self, state: OpenPart, event: SealDelta) -> bytes:
        state.seal = event.seal
        if not isinstance(state.part, Reasoning):
            self._ledger.note("seal-dropped", place(state.part), "a seal was taken off")
        return b""

    def citation(self, state: OpenPart, event: CitationDelta) -> bytes:
        if not isinstance(state.part, Text):
            state.sources.append(event)
            return b""
        self._searches.cites(event.citation)
        said = state.part if event.citation.quote else replace(state.part, text="".join(state.pieces))
        wire = write_citation(event.citation, said, self._ledger, True)
        if wire is None:
            return b""
        out = self._begin(event.index, state, TEXT) if state.block < 0 else b""
        return out + self._delta(state, {"type": "citations_delta", "citation": wire})

    def part_end(self, state: OpenPart, event: PartEnd) -> bytes:
        part = state.part
        out = b""
        if isinstance(part, (Call, HostedCall)):
            out = self._rest_of_arguments(state)
        elif isinstance(part, Reasoning):
            out = self._signed(state, event.index)
        elif not isinstance(part, (Text, Refusal)):
            out = self._whole(state, event.index)
        return out + self._stop() if self._holder == event.index else out

    def _rest_of_arguments(self, state: OpenPart) -> bytes:
        if isinstance(state.part, Call) and state.part.kind == "custom":
            text = "".join(state.pieces)
            self._ledger.note("arguments-wrapped", place(state.part), f"raw input stands as text under `{RAW}`")
            return state.head + encode(encode_text({RAW: text})) + b"}}\n\n"
        return state.head + b'"{}"}}\n\n' if state.blank else b""

    def _signed(self, state: OpenPart, index: int) -> bytes:
        """The signature, whole and last."""
        assert isinstance(state.part, Reasoning)
        value = own_seal(state.seal)
        if value is None:
            if state.seal is not None:
                self._ledger.note("seal-dropped", place(state.part), "the seal of another maker was taken off")
            return b""
        if state.part.hidden:
            return self._begin(index, state, {"type": "redacted_thinking", "data": value})
        out = b""
        if state.block < 0:
            out = self._begin(index, state, THOUGHT)
        return out + self._delta(state, {"type": "signature_delta", "signature": value})

    def _whole(self, state: OpenPart, index: int) -> bytes:
        """A part that this wire sends in one piece."""
        part = state.part
        if isinstance(part, HostedResult):
            self._searches.came(part)
        if isinstance(part, HostedResult) and (state.pieces or state.sources):
            sources = (*part.sources, *(event.citation for event in state.sources))
            part = replace(part, text=part.text + "".join(state.pieces), sources=sources, origin=stale(part))
        block = write_part(part, self._ledger, True)
        return b"" if block is None else self._begin(index, state, block)


_WRITERS: Mapping[type, Callable[..., bytes]] = {
    TextDelta: StreamWriter.part,
    ArgumentsDelta: StreamWriter.part,
    PartStart: StreamWriter.part,
    PartEnd: StreamWriter.part,
    SealDelta: StreamWriter.part,
    CitationDelta: StreamWriter.part,
    ResponseStart: StreamWriter.start,
    UsageUpdate: StreamWriter.usage,
    ChoiceEnd: StreamWriter.choice_end,
    ResponseEnd: StreamWriter.end,
    ResponseFailed: StreamWriter.failed,
    Carried: StreamWriter.carried,
}

_PARTS: Mapping[type, Callable[..., bytes]] = {
    PartStart: StreamWriter.part_start,
    TextDelta: StreamWriter.text,
    ArgumentsDelta: StreamWriter.arguments,
    SealDelta: StreamWriter.seal,
    CitationDelta: StreamWriter.citation,
    PartEnd: StreamWriter.part_end,
}
