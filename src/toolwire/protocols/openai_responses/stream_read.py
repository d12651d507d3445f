"""The stream's reader: from frames to events. What grows in between stands in `stream_items`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import filterfalse
from types import MappingProxyType

from toolwire.events import (
    Carried,
    ChoiceEnd,
    Event,
    Frame,
    ResponseEnd,
    ResponseFailed,
    ResponseStart,
    UsageUpdate,
)
from toolwire.failures import TRUNCATED, read_wait
from toolwire.ir import Failure, Origin, Stray
from toolwire.protocols.openai_responses.details.events import EVENT_KEYS, QUIET, SILENT_KEYS
from toolwire.protocols.openai_responses.details.growing import Growing, growing
from toolwire.protocols.openai_responses.details.stream_items import Items
from toolwire.protocols.openai_responses.errors import failure_of
from toolwire.protocols.openai_responses.names import NAME, RESPONSE
from toolwire.protocols.openai_responses.response import read_failure, read_finish, read_usage
from toolwire.sse import Frame as Raw
from toolwire.sse import FrameTooLong, Splitter
from toolwire.wire import Malformed, Object, Path, as_object, decode, take_int, take_object, take_text

_ROOT: Path = (None, "event")


class StreamReader:
    def __init__(self) -> None:
        self._splitter = Splitter()
        self._number = 0
        self._started = False
        self._ended = False
        self._broken = False
        self._items = Items()
        self._growing: Growing | None = None
        self._strange: dict[str, Stray] = {}

    def feed(self, data: bytes) -> list[Event]:
        if self._broken:
            return []
        try:
            frames = self._splitter.feed(data)
        except FrameTooLong as error:
            return self._fail(str(error), "frame_too_long")
        return self._read(frames)

    def close(self) -> list[Event]:
        if self._broken:
            return []
        events = self._read(self._splitter.close())
        if not self._ended and not self._broken:
            message = f"{TRUNCATED}: neither response.completed nor response.incomplete nor response.failed came"
            failure = Failure("upstream", message, 502, "stream_truncated")
            events.append(ResponseFailed(failure, Frame(NAME, None, None, silent=True)))
        self._broken = True
        return events

    def _read(self, frames: list[Raw]) -> list[Event]:
        events: list[Event] = []
        for raw in frames:
            path = (_ROOT, self._number)
            self._number += 1
            try:
                json = decode(raw.data, path)
                frame = Frame(NAME, raw.event, json)
                growing = self._growing
                more = None if growing is None else growing.more(json, frame)
                if more is None:
                    events += self._frame(as_object(json, path), frame, path)
                else:
                    events.append(more)
            except Malformed as error:
                events += self._unreadable(raw, path, error)
                if self._broken:
                    break
        return events

    def _unreadable(self, raw: Raw, path: Path, error: Malformed) -> list[Event]:
        if raw.data[:6] == b"[DONE]":
            return [Carried("[DONE]", Origin(NAME, path, None), True, Frame(NAME, raw.event, None))]
        return self._fail(str(error), "invalid_stream")

    def _fail(self, message: str, code: str) -> list[Event]:
        self._broken = True
        if self._ended:
            return []
        self._ended = True
        return [ResponseFailed(Failure("upstream", f"the provider's stream cannot be read: {message}", 502, code))]

    def _frame(self, node: Object, frame: Frame, path: Path) -> list[Event]:
        self._growing = None
        kind = node.get("type")
        if not isinstance(kind, str):
            kind = "error" if node.get("error") else frame.event or ""
            if kind != "error":
                # Only the `event:` line names it; the frame itself is carried as it came.
                node = {**node, "type": kind}
        if not EVENT_KEYS.issuperset(node):
            for key in filterfalse(EVENT_KEYS.__contains__, node):
                self._strange.setdefault(f"{kind} {key}", Stray(path, key))
        events: list[Event] = []
        if not self._ended:
            grow = ITEM_EVENTS.get(kind)
            if grow is not None and not node.get("error"):
                if not self._started:
                    events = self._begin(frame, None, path)
                grow(self._items, node, frame, path, events)
                self._growing = growing(frame.json, events, self._items.grown)
            else:
                handler = HANDLERS.get(kind, StreamReader._error if node.get("error") else None)
                events = [] if handler is None else handler(self, node, frame, path)
        if events:
            return events
        quiet = kind in QUIET or self._ended or (kind in ("keepalive", "ping") and SILENT_KEYS.issuperset(node))
        return [Carried(kind or "event", Origin(NAME, path, frame.json), quiet, frame)]

    # --- beginning and end ------------------------------------------------------------------------------------------

    def _begin(self, frame: Frame, response: Object | None, path: Path) -> list[Event]:
        if self._started:
            return []
        self._started = True
        if response is None:
            return [ResponseStart(frame=frame)]
        at = (path, "response")
        return [
            ResponseStart(
                take_text(response, "id", at) or "",
                take_text(response, "model", at) or "",
                take_int(response, "created_at", at),
                origin=Origin(NAME, at, response, intact=False),
                frame=frame,
            )
        ]

    def _lifecycle(self, node: Object, frame: Frame, path: Path) -> list[Event]:
        return self._begin(frame, take_object(node, "response", path), path)

    def _terminal(self, node: Object, frame: Frame, path: Path) -> list[Event]:
        response = take_object(node, "response", path) or {}
        events = self._begin(frame, response, path)
        at = (path, "response")
        if response.get("status") is None:
            response = {**response, "status": node["type"].rpartition(".")[2]}
        failure = read_failure(response, at)
        if failure is None:
            self._items.settle_all(response, at, frame, events)
        usage = read_usage(response, at, self._items.reading)
        if usage is not None:
            events.append(UsageUpdate(usage, frame))
        if failure is None:
            finish = read_finish(response, self._items.called, at)
            self._items.reading.origin(response, at, RESPONSE)
            events.append(ChoiceEnd(finish, 0, frame))
            events.append(ResponseEnd(self._strays(), frame))
        else:
            events.append(ResponseFailed(failure, frame))
        self._ended = True
        return events

    def _strays(self) -> tuple[Stray, ...]:
        for stray in self._items.reading.strays:
            self._strange.setdefault(f"item {stray.key}", stray)
        return tuple(self._strange.values())

    def _error(self, node: Object, frame: Frame, path: Path) -> list[Event]:
        self._ended = True
        error = node.get("error")
        headers = error.get("headers") if isinstance(error, dict) else None
        wait = None
        if isinstance(headers, dict):
            wait = read_wait({key: value for key, value in headers.items() if isinstance(value, str)})
        status = node.get("status")
        failure = failure_of(node, status if isinstance(status, int) else 0, path, wait)
        return [ResponseFailed(failure, frame)]


ITEM_EVENTS: Mapping[str, Callable[[Items, Object, Frame, Path, list[Event]], None]] = MappingProxyType(
    {
        "response.output_item.added": Items.added,
        "response.output_item.done": Items.done,
        "response.content_part.added": Items.part_added,
        "response.content_part.done": Items.part_done,
        "response.output_text.delta": Items.text_delta,
        "response.output_text.done": Items.text_done,
        "response.output_text.annotation.added": Items.annotation,
        "response.refusal.delta": Items.text_delta,
        "response.refusal.done": Items.text_done,
        "response.function_call_arguments.delta": Items.arguments_delta,
        "response.function_call_arguments.done": Items.arguments_done,
        "response.custom_tool_call_input.delta": Items.arguments_delta,
        "response.custom_tool_call_input.done": Items.arguments_done,
        "response.reasoning_summary_text.delta": Items.reasoning,
        "response.reasoning_summary_text.done": Items.reasoning,
        "response.reasoning_text.delta": Items.reasoning,
        "response.reasoning_text.done": Items.reasoning,
        "response.reasoning.delta": Items.reasoning,
        "response.reasoning.done": Items.reasoning,
    }
)

HANDLERS: Mapping[str, Callable[[StreamReader, Object, Frame, Path], list[Event]]] = MappingProxyType(
    {
        "response.created": StreamReader._lifecycle,
        "response.queued": StreamReader._lifecycle,
        "response.in_progress": StreamReader._lifecycle,
        "response.completed": StreamReader._terminal,
        "response.incomplete": StreamReader._terminal,
        "response.failed": StreamReader._terminal,
        "response.cancelled": StreamReader._terminal,
        "error": StreamReader._error,
    }
)
