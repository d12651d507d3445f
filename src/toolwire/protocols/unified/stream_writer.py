"""Writes a unified stream. Deltas are written as they come, one part at a time; the end repeats the whole answer."""

from __future__ import annotations

from collections import OrderedDict

from msgspec.structs import replace

from toolwire.core import events as ev
from toolwire.core import ids, sse
from toolwire.core.codec import DeltaWriter, WriteContext
from toolwire.core.event_writer import EventWriter
from toolwire.core.ir import (
    Call,
    Media,
    Opaque,
    Part,
    ProviderCall,
    ProviderResult,
    Reasoning,
    Refusal,
    Text,
    source_path,
)
from toolwire.core.json_values import Object, encode
from toolwire.core.losses import Ledger
from toolwire.protocols.unified.content import write_citation, write_part
from toolwire.protocols.unified.errors import write_failure
from toolwire.protocols.unified.names import ASSISTANT_PART_TYPES, NAME, REASONING_FIELDS, write_fields
from toolwire.protocols.unified.response import (
    has_error,
    write_call_head,
    write_losses,
    write_response,
    write_response_head,
    write_seal,
    write_usage,
)

_WHOLE_PARTS = (Media, ProviderCall, ProviderResult, Opaque)
"""Parts that are written whole, when they are complete."""


def _write_sse_event(event: Object) -> bytes:
    return sse.write_data_frame(encode(event))


class _OpenPart:
    """A part that was started; what it writes while an earlier part is open is held back."""

    __slots__ = ("delta_head", "first_delta", "held_back", "is_ended", "is_whole", "number", "part")

    def __init__(self, number: int, part: Part) -> None:
        self.number = number
        self.is_whole = isinstance(part, _WHOLE_PARTS)
        self.part = part
        self.first_delta: Object | None = None
        """The keys of the first delta besides its text; None once it is written."""
        self.delta_head = b""
        """The bytes of every further delta before its text."""
        self.held_back: list[bytes] = []
        self.is_ended = False

    def write_delta(self, text: str) -> bytes:
        if self.first_delta is None:
            return self.delta_head + encode(text) + b"}\n\n"
        head, self.first_delta = self.first_delta, None
        return _write_sse_event({**head, "delta": text})

    def write_announcement(self) -> bytes:
        """The first delta of the part without text, if it is not written yet."""
        return b"" if self.first_delta is None else self.write_delta("")


class StreamWriter(EventWriter):
    protocol = NAME

    def __init__(self, ledger: Ledger, context: WriteContext) -> None:
        super().__init__(ledger, context)
        self._fold = ev.Fold()
        self._open_parts: OrderedDict[int, _OpenPart] = OrderedDict()
        """Open parts, and ended ones that wait, in the order of their start; only the first one is written."""
        self._part_count = 0
        self._call_count = 0
        self._dropped_parts: set[int] = set()

    def delta_writer(self, kind: type[ev.Delta], index: int) -> DeltaWriter | None:
        """All deltas are written as events, because the end repeats the whole answer."""
        return None

    def track_event(self, event: ev.Event) -> None:
        """Usage is kept for a failure that may follow."""
        super().track_event(event)
        if isinstance(event, ev.UsageUpdate):
            self._fold.add_event(event)

    # --- one method for each event ---

    def write_start(self, event: ev.ResponseStart) -> bytes:
        head = write_response_head(event.id, event.model, event.created, self._ledger, self._context)
        self._fold.add_event(replace(event, **head, origin=None))
        usage = {} if event.usage is None else {"usage": write_usage(event.usage)}
        return _write_sse_event({"type": "start", **head, **usage})

    def write_part_start(self, event: ev.PartStart) -> bytes:
        part = event.part
        if event.choice:
            self._ledger.note("no-counterpart", None, f"choice {event.choice} was left out: an answer holds one")
        elif isinstance(part, Opaque) and part.origin.protocol != NAME:
            self._ledger.note_opaque(part)
        elif not isinstance(part, (Text, Reasoning, Refusal, Call, *_WHOLE_PARTS)):
            self._ledger.note("part-dropped", source_path(part), f"a part `{type(part).__name__}` was left out")
        else:
            return self._start_part(event)
        self._dropped_parts.add(event.index)
        return b""

    def _start_part(self, event: ev.PartStart) -> bytes:
        part = event.part
        if isinstance(part, Call) and not part.id:
            event = replace(event, part=replace(part, id=ids.derive_id("call_", self._context.seed, self._part_count)))
            self._ledger.note("id-added", source_path(part), f"the call `{part.name}` got an id")
        self._fold.add_event(event)
        open_part = self._open_parts[event.index] = _OpenPart(self._part_count, event.part)
        self._part_count += 1
        return self._write_or_hold(open_part, self._write_opening(open_part))

    def _write_opening(self, open_part: _OpenPart) -> bytes:
        """What a part writes at its start."""
        part, number = open_part.part, open_part.number
        match part:
            case Call():
                index = self._call_count
                self._call_count += 1
                position = {"type": "tool_call", "part": number, "index": index}
                open_part.delta_head = b'data: {"type":"tool_call","part":%d,"index":%d,"arguments":' % (number, index)
                out = _write_sse_event({**position, **write_call_head(part, self._ledger)})
                return out + open_part.write_delta(part.arguments) if part.arguments else out
            case Text() | Refusal() | Reasoning():
                word = type(part).__name__.lower()
                open_part.delta_head = b'data: {"type":"%b","part":%d,"delta":' % (word.encode(), number)
                open_part.first_delta = {"type": word, "part": number}
                if isinstance(part, Reasoning):
                    open_part.first_delta |= write_fields(part, REASONING_FIELDS)
                return open_part.write_delta(part.text) if part.text else b""
        return b""

    def _write_part_event(self, event: ev.PartEvent) -> bytes:
        """An event of a part that was started: its deltas, and its end."""
        if event.index in self._dropped_parts:
            return b""
        self._fold.add_event(event)
        open_part = self._open_parts[event.index]
        out = b""
        match event:
            case ev.TextDelta() | ev.ArgumentsDelta():
                if isinstance(event, ev.TextDelta) and event.logprobs:
                    self._ledger.note_logprobs(event.logprobs)
                out = open_part.write_delta(event.text) if open_part.delta_head and event.text else b""
            case ev.SealDelta():
                seal = write_seal(replace(open_part.part, seal=event.seal), self._ledger)
                if seal is not None and not open_part.is_whole:
                    seal = {"type": "seal", "part": open_part.number, **seal}
                    out = open_part.write_announcement() + _write_sse_event(seal)
            case ev.CitationDelta() if not open_part.is_whole:
                cited = {"type": "citation", "part": open_part.number, "citation": write_citation(event.citation)}
                out = open_part.write_announcement() + _write_sse_event(cited)
            case ev.PartEnd():
                open_part.is_ended = True
                if open_part.is_whole:
                    out = self._write_whole_part(event.index, open_part.number)
                else:
                    out = open_part.write_announcement()
                return self._write_or_hold(open_part, out) + self._release_waiting()
        return self._write_or_hold(open_part, out)

    write_text = write_arguments = write_seal = write_citation = write_part_end = _write_part_event

    def _write_whole_part(self, index: int, number: int) -> bytes:
        part = self._fold.current_part(index)
        content = write_part(part, self._ledger, ASSISTANT_PART_TYPES)
        out = _write_sse_event({"type": "part", "part": number, "content": content})
        seal = write_seal(part, self._ledger)
        return out if seal is None else out + _write_sse_event({"type": "seal", "part": number, **seal})

    def write_usage(self, event: ev.UsageUpdate) -> bytes:
        self._fold.add_event(event)
        return _write_sse_event({"type": "usage", "usage": write_usage(event.usage)})

    def write_choice_end(self, event: ev.ChoiceEnd) -> bytes:
        if not event.choice:
            self._fold.add_event(event)
        return b""

    def write_response_end(self, event: ev.ResponseEnd) -> bytes:
        self._ended = True
        body = write_response(replace(self._fold.response, origin=None), self._ledger, self._context)
        if has_error(body):
            return _write_sse_event(
                {"type": "error", **{key: value for key, value in body.items() if key != "message"}}
            )
        return _write_sse_event({"type": "end", "response": body})

    def write_failure(self, event: ev.ResponseFailed) -> bytes:
        """Everything that was held back, then the failure."""
        self._ended = True
        held = b"".join(piece for open_part in self._open_parts.values() for piece in open_part.held_back)
        out: Object = {"type": "error", "error": write_failure(event.failure)}
        if self._fold.usage is not None:
            out["usage"] = write_usage(self._fold.usage)
        return held + _write_sse_event({**out, "losses": write_losses(self._ledger, self._context)})

    # --- one part at a time ---

    def _write_or_hold(self, open_part: _OpenPart, data: bytes) -> bytes:
        """Write now if this part is the first one, else when the earlier ones have ended."""
        if open_part is next(iter(self._open_parts.values())):
            return data
        if data:
            open_part.held_back.append(data)
        return b""

    def _release_waiting(self) -> bytes:
        """Remove the ended parts at the front, and write what the next one held back."""
        out: list[bytes] = []
        while self._open_parts:
            index, open_part = next(iter(self._open_parts.items()))
            out += open_part.held_back
            open_part.held_back = []
            if not open_part.is_ended:
                break
            del self._open_parts[index]
        return b"".join(out)
