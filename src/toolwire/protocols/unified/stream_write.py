"""A stream's bytes from events. Deltas go out as they come, one part at a time; the end repeats the whole answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from msgspec.structs import asdict, replace

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
from toolwire.fold import Fold
from toolwire.ir import Call, Failure, HostedCall, HostedResult, Media, Opaque, Part, Reasoning, Refusal, Text, place
from toolwire.loss import Ledger
from toolwire.protocols.unified.errors import write_failure
from toolwire.protocols.unified.names import NAME
from toolwire.protocols.unified.parts import reasoning_head, write_citation, write_part
from toolwire.protocols.unified.response import (
    SPOKEN,
    answer_id,
    call_head,
    failed,
    model_of,
    write_response,
    write_seal,
    write_usage,
)
from toolwire.room import Context
from toolwire.wire import Object, encode

_WHOLE = (Media, HostedCall, HostedResult)
"""Parts that go out at once, when they are complete."""


def _sent(event: Object) -> bytes:
    return sse.bare(encode(event))


class _Lane:
    """One part on its way out; what it says while an earlier part is open is held back."""

    __slots__ = ("ended", "grows", "head", "held", "index", "number", "part")

    def __init__(self, index: int, number: int, part: Part) -> None:
        self.index = index
        self.number = number
        self.part = part
        self.head: Object | None = None
        """What the first delta tells besides its text; None once it is told."""
        self.grows = b""
        """The beginning of every further delta."""
        self.held: list[bytes] = []
        self.ended = False

    def delta(self, text: str) -> bytes:
        if self.head is None:
            return self.grows + encode(text) + b"}\n\n"
        head, self.head = self.head, None
        return _sent({**head, "delta": text})

    def announced(self) -> bytes:
        """The part's first event, where something else than text comes first."""
        return b"" if self.head is None else self.delta("")


class StreamWriter:
    """Events of one answer in, bytes out."""

    def __init__(self, ledger: Ledger, context: Context) -> None:
        self._ledger = ledger
        self._context = context
        self._fold = Fold()
        self._last: Frame | None = None
        self._seed = context.seed
        self._lanes: dict[int, _Lane] = {}
        """Open parts, and ended ones that wait, in the order of their start; the first is the one that goes out."""
        self._parts = 0
        self._calls = 0
        self._left_out: set[int] = set()
        self._over = False

    def write(self, event: Event) -> bytes:
        if self._over:
            return self._after(event)
        frame = event.frame
        if frame is not None and frame.protocol == NAME:
            return self._repeated(event, frame)
        return _WRITERS[type(event)](self, event)

    def close(self) -> bytes:
        if self._over:
            return b""
        return self._failed(ResponseFailed(Failure("upstream", TRUNCATED, 502, "stream_truncated")))

    def _after(self, event: Event) -> bytes:
        """Several events may share the last frame; it is out already."""
        frame = event.frame
        if frame is None or frame.protocol != NAME or frame is self._last or frame.silent:
            return b""
        self._last = frame
        return _repeat(frame)

    def _repeated(self, event: Event, frame: Frame) -> bytes:
        """A frame of our own goes out as it came; only what a failure after it would tell is gathered."""
        if isinstance(event, UsageUpdate):
            self._fold.add(event)
        elif isinstance(event, (ResponseEnd, ResponseFailed)):
            self._over = True
        if frame.silent:
            # The end of input is no frame, but the client must hear of it.
            return self._failed(event) if isinstance(event, ResponseFailed) else b""
        if frame is self._last:
            return b""
        self._last = frame
        return _repeat(frame)

    # --- one method for each event ----------------------------------------------------------------------------------

    def _start(self, event: ResponseStart) -> bytes:
        id = answer_id(event.id, self._ledger, self._context)
        event = replace(event, id=id, model=event.model or model_of(self._context.request), origin=None)
        self._fold.add(event)
        out: Object = {"type": "start", "id": event.id, "model": event.model}
        if event.created is not None:
            out["created"] = event.created
        if event.usage is not None:
            out["usage"] = write_usage(event.usage)
        return _sent(out)

    def _part_start(self, event: PartStart) -> bytes:
        part = event.part
        if event.choice or not self._is_sayable(part):
            self._leave_out(event)
            return b""
        if isinstance(part, Call) and not part.id:
            event = replace(event, part=replace(part, id=ids.made("call_", self._seed, self._parts)))
            self._ledger.note("id-added", place(part), f"the call `{part.name}` got an id")
        self._fold.add(event)
        lane = _Lane(event.index, self._parts, event.part)
        self._parts += 1
        self._lanes[event.index] = lane
        return self._out(lane, self._opened(lane))

    def _is_sayable(self, part: Part) -> bool:
        if isinstance(part, Opaque):
            return part.origin.protocol == NAME
        return isinstance(part, (Text, Reasoning, Refusal, Call, *_WHOLE))

    def _leave_out(self, event: PartStart) -> None:
        self._left_out.add(event.index)
        part = event.part
        if event.choice:
            self._ledger.note("no-counterpart", None, f"choice {event.choice} was left out: an answer holds one")
        elif isinstance(part, Opaque):
            self._ledger.opaque(part)
        else:
            self._ledger.note("part-dropped", place(part), f"a part `{type(part).__name__}` was left out")

    def _opened(self, lane: _Lane) -> bytes:
        """What a part says at its start."""
        part, number = lane.part, lane.number
        match part:
            case Call():
                index = self._calls
                self._calls += 1
                told = {"type": "tool_call", "part": number, "index": index}
                lane.grows = b'data: {"type":"tool_call","part":%d,"index":%d,"arguments":' % (number, index)
                out = _sent({**told, **call_head(part, self._ledger)})
                return out + lane.delta(part.arguments) if part.arguments else out
            case Text() | Refusal() | Reasoning():
                word = type(part).__name__.lower()
                lane.grows = b'data: {"type":"%b","part":%d,"delta":' % (word.encode(), number)
                lane.head = {"type": word, "part": number}
                if isinstance(part, Reasoning):
                    lane.head |= reasoning_head(part)
                return lane.delta(part.text) if part.text else b""
        return b""

    def _grown(self, event: TextDelta | ArgumentsDelta) -> bytes:
        if event.index in self._left_out:
            return b""
        self._fold.add(event)
        lane = self._lanes[event.index]
        return self._out(lane, lane.delta(event.text)) if lane.grows and event.text else b""

    def _sealed(self, event: SealDelta) -> bytes:
        if event.index in self._left_out:
            return b""
        self._fold.add(event)
        lane = self._lanes[event.index]
        seal = write_seal(replace(lane.part, seal=event.seal), self._ledger)
        if seal is None or isinstance(lane.part, _WHOLE):
            return b""
        return self._out(lane, lane.announced() + _sent({"type": "seal", "part": lane.number, **seal}))

    def _cited(self, event: CitationDelta) -> bytes:
        if event.index in self._left_out:
            return b""
        self._fold.add(event)
        lane = self._lanes[event.index]
        if isinstance(lane.part, _WHOLE):
            return b""
        cited = {"type": "citation", "part": lane.number, "citation": write_citation(event.citation)}
        return self._out(lane, lane.announced() + _sent(cited))

    def _part_end(self, event: PartEnd) -> bytes:
        if event.index in self._left_out:
            return b""
        self._fold.add(event)
        lane = self._lanes[event.index]
        tail = lane.announced()
        if isinstance(lane.part, (*_WHOLE, Opaque)):
            tail = self._whole(lane)
        lane.ended = True
        return self._out(lane, tail) + self._released()

    def _whole(self, lane: _Lane) -> bytes:
        part = self._fold.part(lane.index)
        out = _sent({"type": "part", "part": lane.number, "content": write_part(part, self._ledger, SPOKEN)})
        seal = write_seal(part, self._ledger)
        return out if seal is None else out + _sent({"type": "seal", "part": lane.number, **seal})

    def _usage(self, event: UsageUpdate) -> bytes:
        self._fold.add(event)
        return _sent({"type": "usage", "usage": write_usage(event.usage)})

    def _choice_end(self, event: ChoiceEnd) -> bytes:
        if not event.choice:
            self._fold.add(event)
        return b""

    def _end(self, event: ResponseEnd) -> bytes:
        self._over = True
        body = write_response(replace(self._fold.response, origin=None), self._ledger, self._context)
        if failed(body):
            return _sent({"type": "error", **{key: value for key, value in body.items() if key != "message"}})
        return _sent({"type": "end", "response": body})

    def _failed(self, event: ResponseFailed) -> bytes:
        """Everything that was held back, then the failure."""
        self._over = True
        held = b"".join(piece for lane in self._lanes.values() for piece in lane.held)
        out: Object = {"type": "error", "error": write_failure(event.failure)}
        if self._fold.usage is not None:
            out["usage"] = write_usage(self._fold.usage)
        return held + _sent({**out, "losses": [asdict(loss) for loss in self._ledger.losses]})

    def _carried(self, event: Carried) -> bytes:
        if not event.quiet:
            self._ledger.note("event-dropped", event.origin.path, f"the event `{event.kind}` was left out")
        return b""

    # --- one part at a time -----------------------------------------------------------------------------------------

    def _out(self, lane: _Lane, data: bytes) -> bytes:
        """Now, when this part is the first one that is open; else when the earlier ones have ended."""
        if lane is next(iter(self._lanes.values())):
            return data
        if data:
            lane.held.append(data)
        return b""

    def _released(self) -> bytes:
        """Drop the ended parts at the head of the line, and let the next one say what it held back."""
        out: list[bytes] = []
        for index, lane in list(self._lanes.items()):
            out += lane.held
            lane.held = []
            if not lane.ended:
                break
            del self._lanes[index]
        return b"".join(out)


def _repeat(frame: Frame) -> bytes:
    data = encode(frame.json)
    return sse.bare(data) if frame.event is None else sse.named(frame.event, data)


_WRITERS: Mapping[type, Callable[[StreamWriter, Any], bytes]] = MappingProxyType(
    {
        TextDelta: StreamWriter._grown,
        ArgumentsDelta: StreamWriter._grown,
        ResponseStart: StreamWriter._start,
        PartStart: StreamWriter._part_start,
        SealDelta: StreamWriter._sealed,
        CitationDelta: StreamWriter._cited,
        PartEnd: StreamWriter._part_end,
        UsageUpdate: StreamWriter._usage,
        ChoiceEnd: StreamWriter._choice_end,
        ResponseEnd: StreamWriter._end,
        ResponseFailed: StreamWriter._failed,
        Carried: StreamWriter._carried,
    }
)
