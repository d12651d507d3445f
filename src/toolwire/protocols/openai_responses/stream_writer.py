"""The events that tell all of an answer, at its beginning and at its end. Most of it nobody speaks of, and one kind of
client says the same keys every time: so forms of it are kept."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import lru_cache, partial
from itertools import count
from operator import itemgetter
from types import MappingProxyType

from msgspec import Raw, Struct, field

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
from toolwire.core.ir import Failure, Finish, Reasoning, Refusal, Usage, source_path
from toolwire.core.json_values import Json, Object, encode
from toolwire.core.losses import Ledger
from toolwire.core.sse import write_data_frame, write_event_frame
from toolwire.protocols.openai_responses.errors import write_stream_error
from toolwire.protocols.openai_responses.names import (
    INCOMPLETE_FINISH_KINDS,
    NAME,
    RESPONSE_DEFAULTS,
    UNFINISHED_STATUSES,
    is_own,
)
from toolwire.protocols.openai_responses.response import (
    ItemIds,
    empty_reasoning_item,
    item_id_stem,
    needs_reasoning_item,
    shares_item,
    write_end_fields,
    write_start_fields,
    write_usage,
)
from toolwire.protocols.openai_responses.stream_state import (
    ITEM_ADDED,
    ITEM_DONE,
    EventSequence,
    OpenItem,
    event_template,
    open_item,
)

_CHANGING_KEYS = ("status", "completed_at", "error", "incomplete_details", "output", "usage")
"""What changes in an answer until its end."""
_changing_values = itemgetter(*_CHANGING_KEYS)
_PLACEHOLDER = b"\0"
"""Stands for a gap in JSON, where no other such byte can be."""


class ResponseTemplates(Struct, frozen=True):
    """How answers are told of which certain keys are said."""

    take_known_values: Callable[[Object], tuple[Json, ...]]
    """Takes what is said, in the order of the gaps."""
    announcement: bytes
    """Both events of the beginning, each with gaps for its number and for what is said."""
    terminal_event: bytes
    """The event of the end, with gaps for its kind, twice, for its number, and for what is said and what changed."""
    merge_values: Callable[[tuple[bytes, ...]], tuple[bytes, ...]]
    """Puts both of these into the order of the gaps."""

    def write_terminal_event(self, number: int, known_values: tuple[bytes, ...], response: Object) -> bytes:
        status = response["status"].encode()
        changed = tuple(map(encode, _changing_values(response)))
        return self.terminal_event % (status, status, number, *self.merge_values(known_values + changed))


@lru_cache(maxsize=64)
def find_templates(known_keys: tuple[str, ...]) -> ResponseTemplates:
    keys = tuple(dict.fromkeys((*RESPONSE_DEFAULTS, *known_keys)))
    ordered = [key for key in keys if key in known_keys]
    told = [*ordered, *_CHANGING_KEYS]
    begun, ended = _write_response_template(keys, known_keys), _write_response_template(keys, told)
    announced = _write_event_template("response.created", begun) + _write_event_template("response.in_progress", begun)
    merged = itemgetter(*[told.index(key) for key in keys if key in told])
    return ResponseTemplates(itemgetter(*ordered), announced, _write_event_template("response.%b", ended), merged)


def _write_response_template(keys: Collection[str], placeholder_keys: Collection[str]) -> bytes:
    """All keys of an answer, with gaps for some of their values."""
    spelled = [
        encode(key) + b":" + (_PLACEHOLDER if key in placeholder_keys else encode(RESPONSE_DEFAULTS[key]))
        for key in keys
    ]
    return (b"{%b}" % b",".join(spelled)).replace(b"%", b"%%").replace(_PLACEHOLDER, b"%b")


def _write_event_template(kind: str, response: bytes) -> bytes:
    return event_template(kind, '"response":\0').replace(_PLACEHOLDER, response)


# --- The stream's writer: the full lifecycle of every item, each closed before the next opens ---


DONE_FRAME = b"data: [DONE]\n\n"


class StreamWriter(Struct, eq=False):
    _ledger: Ledger
    _context: WriteContext
    _sequence: EventSequence = field(default_factory=EventSequence)
    _response: Object | None = None
    _templates: ResponseTemplates | None = None
    """How the answer is told; None for one that was given to us."""
    _known_values: tuple[bytes, ...] = ()
    """What was said of it, as it is spelled."""
    _item_ids: ItemIds = field(default_factory=ItemIds)
    _items: list[Object | Raw] = []
    _open_item: OpenItem | None = None
    _open_part_index: int | None = None
    _waiting_events: dict[int, list[Event]] = {}
    """Parts that began while another was open: this wire wants one after the other."""
    _finish: Finish | None = None
    _usage: Usage | None = None
    _has_refusal: bool = False
    _ended: bool = False
    _needs_reasoning: bool = False
    _last_frame: SourceFrame | None = None

    def __post_init__(self) -> None:
        self._needs_reasoning = needs_reasoning_item(self._context.request, self._ledger)

    def write(self, event: Event) -> bytes:
        frame = event.frame
        if frame is not None and frame.protocol == NAME:
            return self._write_verbatim(frame, event)
        return EVENT_WRITERS[event.__class__](self, event)

    def delta_writer(self, kind: type[TextDelta | ArgumentsDelta], index: int) -> DeltaWriter | None:
        item = self._open_item
        if item is None or kind is not item.streamed_event or index != self._open_part_index:
            return None
        return partial(item.write_delta, out=self._sequence)

    def close(self) -> bytes:
        if self._ended:
            return b""
        return self._write_failed_response(Failure("upstream", TRUNCATED_STREAM_MESSAGE, 502, "stream_truncated"))

    def _write_verbatim(self, frame: SourceFrame, event: Event) -> bytes:
        """A frame of our own protocol as it was, once; what it said is remembered for an end that we must write."""
        if frame.silent and isinstance(event, ResponseFailed):
            return self._write_failed_response(event.failure)
        if isinstance(event, (ResponseEnd, ResponseFailed)):
            self._ended = True
        if frame is self._last_frame:
            return b""
        self._last_frame = frame
        if frame.silent:
            return b""
        node = frame.json
        if not isinstance(node, dict):
            return DONE_FRAME
        number = node.get("sequence_number")
        if isinstance(number, int):
            self._sequence.numbers = count(number + 1)
        if isinstance(event, ResponseStart) and isinstance(node.get("response"), dict):
            self._response, self._templates = dict(node["response"]), None
        elif node.get("type") == "response.output_item.done" and isinstance(node.get("item"), dict):
            self._items.append(node["item"])
        return write_data_frame(encode(node)) if frame.event is None else write_event_frame(frame.event, encode(node))

    # --- beginning and end ------------------------------------------------------------------------------------------

    def _write_start(self, event: Event) -> bytes:
        assert isinstance(event, ResponseStart)
        known: Object = {}
        write_start_fields(known, event.id, event.model, event.created, self._context, self._ledger.source == NAME)
        if is_own(event.origin):
            known.update(event.origin.extra)
        return self._write_announcement(known)

    def _write_announcement(self, known: Object) -> bytes:
        id, numbers = known["id"], self._sequence.numbers
        self._item_ids = ItemIds(id, item_id_stem(id))
        self._response = {
            "created_at": known["created_at"],
            "status": "in_progress",
            "completed_at": None,
            "error": None,
            "incomplete_details": None,
            "usage": None,
        }
        self._templates = form = find_templates(tuple(known))
        self._known_values = said = tuple(map(encode, form.take_known_values(known)))
        return form.announcement % (next(numbers), *said, next(numbers), *said)

    def _write_empty_announcement(self) -> bytes:
        """The beginning of an answer that ends without one."""
        known: Object = {}
        write_start_fields(known, "", "", None, self._context, False)
        return self._write_announcement(known)

    def _write_terminal_event(self, response: Object) -> bytes:
        """The end, with the answer as it is then."""
        if self._templates is None:
            return self._sequence.write_event(f"response.{response['status']}", {"response": response})
        return self._templates.write_terminal_event(next(self._sequence.numbers), self._known_values, response)

    def _write_response_end(self, event: Event) -> bytes:
        out = [self._write_open_ends()]
        if self._needs_reasoning:
            out.append(self._write_empty_reasoning())
        if self._response is None:
            out.insert(0, self._write_empty_announcement())
        response = self._response or {}
        self._fill_response(response)
        write_end_fields(response, self._finish, self._has_refusal, self._ledger, self._context)
        if response["status"] in UNFINISHED_STATUSES:
            response["incomplete_details"] = {"reason": response["status"]}
            response["status"] = "incomplete"
        self._ended = True
        out.append(self._write_terminal_event(response))
        return b"".join(out)

    def _write_failure(self, event: Event) -> bytes:
        assert isinstance(event, ResponseFailed)
        return self._write_failed_response(event.failure)

    def _write_failed_response(self, failure: Failure) -> bytes:
        """The only end that agents take for a failure. A call that is still open is not handed over."""
        self._ended = True
        head = b""
        if self._response is None:
            head = self._write_empty_announcement()
        response = {**(self._response or {}), "status": "failed", "error": write_stream_error(failure)}
        self._fill_response(response)
        return head + self._write_terminal_event(response)

    def _fill_response(self, response: Object) -> None:
        response["output"] = self._items
        if self._usage is not None:
            response["usage"] = write_usage(self._usage)

    def _write_choice_end(self, event: Event) -> bytes:
        assert isinstance(event, ChoiceEnd)
        if event.choice != 0:
            return b""
        self._finish = event.finish
        return b"" if self._open_part_index is not None else self._write_item_end()

    def _write_usage(self, event: Event) -> bytes:
        assert isinstance(event, UsageUpdate)
        self._usage = event.usage
        return b""

    def _write_carried(self, event: Event) -> bytes:
        assert isinstance(event, OpaqueEvent)
        if not event.is_ignorable:
            self._ledger.note("event-dropped", source_path(event), f"the event `{event.kind}` was left out")
        return b""

    # --- parts ------------------------------------------------------------------------------------------------------

    def _write_part_start(self, event: Event) -> bytes:
        assert isinstance(event, PartStart)
        if event.choice != 0:
            self._ledger.note("no-counterpart", source_path(event.part), f"choice {event.choice} was left out")
            return b""
        if self._open_part_index is not None:
            self._waiting_events[event.index] = [event]
            return b""
        return self._write_part_opening(event)

    def _write_part_opening(self, event: PartStart) -> bytes:
        part = event.part
        self._open_part_index = event.index
        if part.__class__ is Refusal:
            self._has_refusal = True
        said = self._write_empty_reasoning() if self._needs_reasoning and part.__class__ is not Reasoning else b""
        self._needs_reasoning = False
        if self._open_item is not None:
            if shares_item(self._open_item.part, part):
                return said + self._open_item.add_part(part, self._sequence)
            said += self._write_item_end()
        self._open_item = item = open_item(part, self._item_ids, len(self._items), self._ledger)
        return said if item is None else said + item.write_start(self._sequence)

    def _write_empty_reasoning(self) -> bytes:
        self._needs_reasoning = False
        number = len(self._items)
        item = encode(empty_reasoning_item(self._item_ids.assign_id("rs_", "", number)))
        self._items.append(Raw(item))
        self._ledger.note("reasoning-added", None, "an empty reasoning item was put first")
        return ITEM_ADDED % (next(self._sequence.numbers), number, item) + ITEM_DONE % (
            next(self._sequence.numbers),
            number,
            item,
        )

    def _write_delta(self, event: Event) -> bytes:
        if event.index != self._open_part_index:  # type: ignore[union-attr]
            return self._queue_event(event)
        item = self._open_item
        if item is None:
            return b""
        if event.__class__ is item.streamed_event and (text := event.text):
            return item.write_delta(text, self._sequence)
        return item.add_delta(event, self._sequence)

    def _queue_event(self, event: Event) -> bytes:
        queue = self._waiting_events.get(event.index)  # type: ignore[union-attr]
        if queue is not None:
            queue.append(event)
        return b""

    def _write_part_end(self, event: Event) -> bytes:
        assert isinstance(event, PartEnd)
        if event.index != self._open_part_index:
            return self._queue_event(event)
        out = self._write_part_closing(event)
        return out + self._write_waiting_parts() if self._waiting_events else out

    def _write_waiting_parts(self) -> bytes:
        """The parts that waited, one after the other, until one of them is not yet whole."""
        out: list[bytes] = []
        while self._open_part_index is None and self._waiting_events:
            queue = self._waiting_events.pop(next(iter(self._waiting_events)))
            out += [self._write_waiting_event(one) for one in queue]
        return b"".join(out)

    def _write_waiting_event(self, event: Event) -> bytes:
        if isinstance(event, PartStart):
            return self._write_part_opening(event)
        if isinstance(event, PartEnd):
            return self._write_part_closing(event)
        return self._write_delta(event)

    def _write_part_closing(self, event: PartEnd) -> bytes:
        self._open_part_index = None
        if self._open_item is None:
            return b""
        out = self._open_item.end_part(event.incomplete, self._sequence)
        return out if self._open_item.accepts_more_parts else out + self._write_item_end()

    def _write_item_end(self) -> bytes:
        item, self._open_item = self._open_item, None
        if item is None:
            return b""
        cut = self._finish is not None and self._finish.kind in INCOMPLETE_FINISH_KINDS
        out, spelled = item.close(cut, self._sequence)
        self._items.append(Raw(spelled))
        return out

    def _write_open_ends(self) -> bytes:
        out = b""
        if self._open_part_index is not None:
            out = self._write_part_end(PartEnd(self._open_part_index))
        return out + self._write_item_end()


EVENT_WRITERS: Mapping[type, Callable[[StreamWriter, Event], bytes]] = MappingProxyType(
    {
        ResponseStart: StreamWriter._write_start,
        PartStart: StreamWriter._write_part_start,
        TextDelta: StreamWriter._write_delta,
        ArgumentsDelta: StreamWriter._write_delta,
        SealDelta: StreamWriter._write_delta,
        CitationDelta: StreamWriter._write_delta,
        PartEnd: StreamWriter._write_part_end,
        UsageUpdate: StreamWriter._write_usage,
        ChoiceEnd: StreamWriter._write_choice_end,
        ResponseEnd: StreamWriter._write_response_end,
        ResponseFailed: StreamWriter._write_failure,
        OpaqueEvent: StreamWriter._write_carried,
    }
)
