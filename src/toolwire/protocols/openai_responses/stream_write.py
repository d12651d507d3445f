"""The stream's writer: the full lifecycle of every item, each closed before the next opens."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import count
from types import MappingProxyType

from msgspec import Raw, Struct, field

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
from toolwire.ir import Failure, Finish, Reasoning, Refusal, Usage, place
from toolwire.loss import Ledger
from toolwire.protocols.openai_responses.details.output import CUT, Names, empty_reasoning, joins, stem
from toolwire.protocols.openai_responses.details.stream_answer import Form, form_of
from toolwire.protocols.openai_responses.details.stream_frames import (
    ADDED,
    DIGITS,
    ITEM_DONE,
    TAIL,
    OpenItem,
    Sequence,
    grown,
)
from toolwire.protocols.openai_responses.details.stream_open import open_item
from toolwire.protocols.openai_responses.errors import stream_error
from toolwire.protocols.openai_responses.names import NAME, UNFINISHED
from toolwire.protocols.openai_responses.parts import own
from toolwire.protocols.openai_responses.response import begin, close, waits_for_thought, write_usage
from toolwire.room import Context
from toolwire.sse import bare, named
from toolwire.wire import Object, encode

DONE = b"data: [DONE]\n\n"


class StreamWriter(Struct, eq=False):
    _ledger: Ledger
    _context: Context
    _out: Sequence = field(default_factory=Sequence)
    _response: Object | None = None
    _form: Form | None = None
    """How the answer is told; None for one that was given to us."""
    _said: tuple[bytes, ...] = ()
    """What was said of it, as it is spelled."""
    _names: Names = field(default_factory=Names)
    _items: list[Object | Raw] = []
    _open: OpenItem | None = None
    _part: int | None = None
    _waiting: dict[int, list[Event]] = {}
    """Parts that began while another was open: this wire wants one after the other."""
    _finish: Finish | None = None
    _usage: Usage | None = None
    _refused: bool = False
    _ended: bool = False
    _think: bool = False
    _last: Frame | None = None

    def __post_init__(self) -> None:
        self._think = waits_for_thought(self._context.request, self._ledger)

    def write(self, event: Event) -> bytes:
        item, frame = self._open, event.frame
        if (
            item is not None
            and frame is None
            and event.__class__ is item.grows
            and event.index == self._part
            and (text := event.text)
        ):
            # The short way for most events: more of what the open item tells as it comes.
            item.pieces.append(text)
            item.spelled = spelled = encode(text)
            return grown(item.form, next(self._out.numbers), spelled)
        if frame is not None and frame.protocol == NAME:
            return self._give_back(frame, event)
        return WRITERS[event.__class__](self, event)

    def grower(self, kind: type, index: int) -> Callable[[str], bytes] | None:
        item = self._open
        return self._more if item is not None and kind is item.grows and index == self._part else None

    def _more(self, text: str) -> bytes:
        item = self._open
        assert item is not None
        item.pieces.append(text)
        number, (before, place) = next(self._out.numbers), item.form
        digits = DIGITS[number] if number < 1000 else b"%d" % number  # as `grown` does, with a call less
        return b"".join((before, digits, place, encode(text), TAIL))

    def close(self) -> bytes:
        if self._ended:
            return b""
        return self._fail(Failure("upstream", TRUNCATED, 502, "stream_truncated"))

    def _give_back(self, frame: Frame, event: Event) -> bytes:
        """A frame of our own protocol as it was, once; what it said is remembered for an end that we must write."""
        if frame.silent and isinstance(event, ResponseFailed):
            return self._fail(event.failure)
        if isinstance(event, (ResponseEnd, ResponseFailed)):
            self._ended = True
        if frame is self._last:
            return b""
        self._last = frame
        if frame.silent:
            return b""
        node = frame.json
        if not isinstance(node, dict):
            return DONE
        number = node.get("sequence_number")
        if isinstance(number, int):
            self._out.numbers = count(number + 1)
        if isinstance(event, ResponseStart) and isinstance(node.get("response"), dict):
            self._response, self._form = dict(node["response"]), None
        elif node.get("type") == "response.output_item.done" and isinstance(node.get("item"), dict):
            self._items.append(node["item"])
        return bare(encode(node)) if frame.event is None else named(frame.event, encode(node))

    # --- beginning and end ------------------------------------------------------------------------------------------

    def _begin(self, event: Event) -> bytes:
        assert isinstance(event, ResponseStart)
        known: Object = {}
        begin(known, event.id, event.model, event.created, self._context, self._ledger.source == NAME)
        if own(event.origin):
            known.update(event.origin.extra)  # type: ignore[union-attr]
        return self._announce(known)

    def _announce(self, known: Object) -> bytes:
        id, numbers = known["id"], self._out.numbers
        self._names = Names(id, stem(id))
        self._response = {
            "created_at": known["created_at"],
            "status": "in_progress",
            "completed_at": None,
            "error": None,
            "incomplete_details": None,
            "usage": None,
        }
        self._form = form = form_of(tuple(known))
        self._said = said = tuple(map(encode, form.said(known)))
        return form.announced % (next(numbers), *said, next(numbers), *said)

    def _announce_unknown(self) -> bytes:
        """The beginning of an answer that ends without one."""
        known: Object = {}
        begin(known, "", "", None, self._context, False)
        return self._announce(known)

    def _told(self, response: Object) -> bytes:
        """The end, with the answer as it is then."""
        if self._form is None:
            return self._out.event(f"response.{response['status']}", {"response": response})
        return self._form.end(next(self._out.numbers), self._said, response)

    def _end(self, event: Event) -> bytes:
        out = [self._close_all()]
        if self._think:
            out.append(self._empty_thought())
        if self._response is None:
            out.insert(0, self._announce_unknown())
        response = self._response or {}
        self._fill(response)
        close(response, self._finish, self._refused, self._ledger, self._context)
        if response["status"] in UNFINISHED:
            response["incomplete_details"] = {"reason": response["status"]}
            response["status"] = "incomplete"
        self._ended = True
        out.append(self._told(response))
        return b"".join(out)

    def _failed(self, event: Event) -> bytes:
        assert isinstance(event, ResponseFailed)
        return self._fail(event.failure)

    def _fail(self, failure: Failure) -> bytes:
        """The only end that agents take for a failure. A call that is still open is not handed over."""
        self._ended = True
        head = b""
        if self._response is None:
            head = self._announce_unknown()
        response = {**(self._response or {}), "status": "failed", "error": stream_error(failure)}
        self._fill(response)
        return head + self._told(response)

    def _fill(self, response: Object) -> None:
        response["output"] = self._items
        if self._usage is not None:
            response["usage"] = write_usage(self._usage)

    def _choice_end(self, event: Event) -> bytes:
        assert isinstance(event, ChoiceEnd)
        if event.choice != 0:
            return b""
        self._finish = event.finish
        return b"" if self._part is not None else self._close_item()

    def _count(self, event: Event) -> bytes:
        assert isinstance(event, UsageUpdate)
        self._usage = event.usage
        return b""

    def _carried(self, event: Event) -> bytes:
        assert isinstance(event, Carried)
        if not event.quiet:
            self._ledger.note("event-dropped", place(event), f"the event `{event.kind}` was left out")
        return b""

    # --- parts ------------------------------------------------------------------------------------------------------

    def _part_start(self, event: Event) -> bytes:
        assert isinstance(event, PartStart)
        if event.choice != 0:
            self._ledger.note("no-counterpart", place(event.part), f"choice {event.choice} was left out")
            return b""
        if self._part is not None:
            self._waiting[event.index] = [event]
            return b""
        return self._open_part(event)

    def _open_part(self, event: PartStart) -> bytes:
        part = event.part
        self._part = event.index
        if part.__class__ is Refusal:
            self._refused = True
        said = self._empty_thought() if self._think and part.__class__ is not Reasoning else b""
        self._think = False
        if self._open is not None:
            if joins(self._open.part, part):
                return said + self._open.go_on(part, self._out)
            said += self._close_item()
        self._open = item = open_item(part, self._names, len(self._items), self._ledger)
        return said if item is None else said + item.begin(self._out)

    def _empty_thought(self) -> bytes:
        self._think = False
        number = len(self._items)
        item = encode(empty_reasoning(self._names.name("rs_", "", number)))
        self._items.append(Raw(item))
        self._ledger.note("reasoning-added", None, "an empty reasoning item was put first")
        return ADDED % (next(self._out.numbers), number, item) + ITEM_DONE % (next(self._out.numbers), number, item)

    def _delta(self, event: Event) -> bytes:
        if event.index != self._part:  # type: ignore[union-attr]
            return self._wait(event)
        item = self._open
        if item is None:
            return b""
        if event.__class__ is item.grows and (text := event.text):
            return item.say(text, self._out)
        return item.grow(event, self._out)

    def _wait(self, event: Event) -> bytes:
        queue = self._waiting.get(event.index)  # type: ignore[union-attr]
        if queue is not None:
            queue.append(event)
        return b""

    def _part_end(self, event: Event) -> bytes:
        assert isinstance(event, PartEnd)
        if event.index != self._part:
            return self._wait(event)
        out = self._end_part(event)
        return out + self._caught_up() if self._waiting else out

    def _caught_up(self) -> bytes:
        """The parts that waited, one after the other, until one of them is not yet whole."""
        out: list[bytes] = []
        while self._part is None and self._waiting:
            queue = self._waiting.pop(next(iter(self._waiting)))
            out += [self._catch_up(one) for one in queue]
        return b"".join(out)

    def _catch_up(self, event: Event) -> bytes:
        if isinstance(event, PartStart):
            return self._open_part(event)
        if isinstance(event, PartEnd):
            return self._end_part(event)
        return self._delta(event)

    def _end_part(self, event: PartEnd) -> bytes:
        self._part = None
        if self._open is None:
            return b""
        out = self._open.end(event.incomplete, self._out)
        return out if self._open.lingers else out + self._close_item()

    def _close_item(self) -> bytes:
        item, self._open = self._open, None
        if item is None:
            return b""
        cut = self._finish is not None and self._finish.kind in CUT
        out, spelled = item.close(cut, self._out)
        self._items.append(Raw(spelled))
        return out

    def _close_all(self) -> bytes:
        out = b""
        if self._part is not None:
            out = self._part_end(PartEnd(self._part))
        return out + self._close_item()


WRITERS: Mapping[type, Callable[[StreamWriter, Event], bytes]] = MappingProxyType(
    {
        ResponseStart: StreamWriter._begin,
        PartStart: StreamWriter._part_start,
        TextDelta: StreamWriter._delta,
        ArgumentsDelta: StreamWriter._delta,
        SealDelta: StreamWriter._delta,
        CitationDelta: StreamWriter._delta,
        PartEnd: StreamWriter._part_end,
        UsageUpdate: StreamWriter._count,
        ChoiceEnd: StreamWriter._choice_end,
        ResponseEnd: StreamWriter._end,
        ResponseFailed: StreamWriter._failed,
        Carried: StreamWriter._carried,
    }
)
