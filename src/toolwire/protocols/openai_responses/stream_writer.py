"""Writes a Responses stream: the full lifecycle of every item, each closed before the next one starts."""

from __future__ import annotations

from collections import OrderedDict
from itertools import count

from msgspec import Raw

from toolwire.core import events as ev
from toolwire.core.codec import DeltaWriter, WriteContext
from toolwire.core.event_writer import EventWriter
from toolwire.core.framing import write_sse_frame
from toolwire.core.ir import Reasoning, Refusal, source_path
from toolwire.core.json_values import Object, encode
from toolwire.core.losses import Ledger
from toolwire.protocols.openai_responses import names
from toolwire.protocols.openai_responses.errors import write_stream_error
from toolwire.protocols.openai_responses.names import NAME, is_own
from toolwire.protocols.openai_responses.response import (
    ItemIds,
    empty_reasoning_item,
    needs_reasoning_item,
    shares_item,
    write_end_fields,
    write_start_fields,
    write_usage,
)
from toolwire.protocols.openai_responses.stream_items import ITEM_ADDED, ITEM_DONE, EventSequence, OpenItem, open_item

_LONG_KEYS = frozenset({"instructions", "tools"})
"""Encoded once, because they can be long and three events repeat them."""


class StreamWriter(EventWriter):
    protocol = NAME

    def __init__(self, ledger: Ledger, context: WriteContext) -> None:
        super().__init__(ledger, context)
        self._sequence = EventSequence()
        self._response: Object | None = None
        """The response as the last event showed it."""
        self._item_ids = ItemIds()
        self._items: list[Object | Raw] = []
        self._open_item: OpenItem | None = None
        self._open_part_index: int | None = None
        self._waiting_events: OrderedDict[int, list[ev.PartEvent]] = OrderedDict()
        """Parts that started while another was open: this protocol has them one after the other."""
        self._has_refusal = False
        self._needs_reasoning = needs_reasoning_item(context.request, ledger)

    def delta_writer(self, kind: type[ev.Delta], index: int) -> DeltaWriter | None:
        item = self._open_item
        if item is None or kind is not item.streamed_event or index != self._open_part_index:
            return None
        return item.write_delta

    def write_frame(self, event: ev.Event, frame: ev.SourceFrame) -> bytes:
        """What it says is kept for an end that we may write."""
        node = frame.json or {}
        number = node.get("sequence_number")
        if isinstance(number, int):
            self._sequence.numbers = count(number + 1)
        if isinstance(event, ev.ResponseStart) and isinstance(node.get("response"), dict):
            self._response = dict(node["response"])
        elif node.get("type") == "response.output_item.done" and isinstance(node.get("item"), dict):
            self._items.append(node["item"])
        return write_sse_frame(event, frame)

    # --- beginning and end ---

    def write_start(self, event: ev.ResponseStart) -> bytes:
        known: Object = {}
        write_start_fields(known, event.id, event.model, event.created, self._context, self._ledger.source == NAME)
        if event.origin is not None and is_own(event.origin):
            known.update(event.origin.extra)
        self._item_ids = ItemIds(known["id"])
        for key in known.keys() & _LONG_KEYS:
            known[key] = Raw(encode(known[key]))
        self._response = response = {**names.RESPONSE_DEFAULTS, **known}
        created = self._sequence.write_event("response.created", {"response": response})
        return created + self._sequence.write_event("response.in_progress", {"response": response})

    def write_response_end(self, event: ev.ResponseEnd) -> bytes:
        out = [b"" if self._open_part_index is None else self.write_part_end(ev.PartEnd(self._open_part_index))]
        out.append(self._write_item_end())
        if self._needs_reasoning:
            out.append(self._write_empty_reasoning())
        if self._response is None:
            out.insert(0, self.write_start(ev.ResponseStart()))
        response = self._response or {}
        self._fill_response(response)
        write_end_fields(response, self._finish, self._has_refusal, self._ledger, self._context)
        if response["status"] in names.UNFINISHED_STATUSES:
            response["incomplete_details"] = {"reason": response["status"]}
            response["status"] = "incomplete"
        self._ended = True
        out.append(self._sequence.write_event(f"response.{response['status']}", {"response": response}))
        return b"".join(out)

    def write_failure(self, event: ev.ResponseFailed) -> bytes:
        """Agents take only this end for a failure. A call that is still open is left out."""
        self._ended = True
        head = self.write_start(ev.ResponseStart()) if self._response is None else b""
        response = {**(self._response or {}), "status": "failed", "error": write_stream_error(event.failure)}
        self._fill_response(response)
        return head + self._sequence.write_event("response.failed", {"response": response})

    def _fill_response(self, response: Object) -> None:
        response["output"] = self._items
        if self._usage is not None:
            response["usage"] = write_usage(self._usage)

    def write_choice_end(self, event: ev.ChoiceEnd) -> bytes:
        if event.choice != 0:
            return b""
        super().write_choice_end(event)
        return b"" if self._open_part_index is not None else self._write_item_end()

    # --- parts ---

    def write_part_start(self, event: ev.PartStart) -> bytes:
        if event.choice != 0:
            self._ledger.note("no-counterpart", source_path(event.part), f"choice {event.choice} was left out")
            return b""
        if self._open_part_index is not None:
            self._waiting_events[event.index] = [event]
            return b""
        return self._write_part_opening(event)

    def _write_part_opening(self, event: ev.PartStart) -> bytes:
        part = event.part
        self._open_part_index = event.index
        if part.__class__ is Refusal:
            self._has_refusal = True
        out = self._write_empty_reasoning() if self._needs_reasoning and part.__class__ is not Reasoning else b""
        self._needs_reasoning = False
        if self._open_item is not None:
            if shares_item(self._open_item.part, part):
                return out + self._open_item.add_part(part)
            out += self._write_item_end()
        self._open_item = item = open_item(part, self._item_ids, len(self._items), self._ledger, self._sequence)
        return out if item is None else out + item.write_start()

    def _write_empty_reasoning(self) -> bytes:
        self._needs_reasoning = False
        number = len(self._items)
        item = encode(empty_reasoning_item(self._item_ids.assign_id("rs_", "", number)))
        self._items.append(Raw(item))
        self._ledger.note("reasoning-added", None, "an empty reasoning item was put first")
        added = ITEM_ADDED % (next(self._sequence.numbers), number, item)
        return added + ITEM_DONE % (next(self._sequence.numbers), number, item)

    def _write_delta(self, event: ev.Delta | ev.SealDelta | ev.CitationDelta) -> bytes:
        if event.index != self._open_part_index:
            return self._queue_event(event)
        item = self._open_item
        if item is None:
            return b""
        if event.__class__ is ev.TextDelta and event.logprobs:
            return item.add_delta(event)
        if event.__class__ is item.streamed_event and (text := event.text):
            return item.write_delta(text)
        return item.add_delta(event)

    write_text = write_arguments = write_seal = write_citation = _write_delta

    def _queue_event(self, event: ev.PartEvent) -> bytes:
        if event.index in self._waiting_events:
            self._waiting_events[event.index].append(event)
        return b""

    def write_part_end(self, event: ev.PartEnd) -> bytes:
        if event.index != self._open_part_index:
            return self._queue_event(event)
        out = self._write_part_closing(event)
        return out + self._write_waiting_parts() if self._waiting_events else out

    def _write_waiting_parts(self) -> bytes:
        """Write the parts that waited, one after the other, until one of them is incomplete."""
        out: list[bytes] = []
        while self._open_part_index is None and self._waiting_events:
            for event in self._waiting_events.popitem(last=False)[1]:
                if isinstance(event, ev.PartStart):
                    out.append(self._write_part_opening(event))
                elif isinstance(event, ev.PartEnd):
                    out.append(self._write_part_closing(event))
                else:
                    out.append(self._write_delta(event))
        return b"".join(out)

    def _write_part_closing(self, event: ev.PartEnd) -> bytes:
        self._open_part_index = None
        if self._open_item is None:
            return b""
        out = self._open_item.end_part(event.incomplete)
        return out if self._open_item.accepts_more_parts else out + self._write_item_end()

    def _write_item_end(self) -> bytes:
        item, self._open_item = self._open_item, None
        if item is None:
            return b""
        cut = self._finish is not None and self._finish.kind in names.INCOMPLETE_FINISH_KINDS
        out, encoded = item.close(cut)
        self._items.append(Raw(encoded))
        return out
