"""The items of a streamed answer while they grow. `.done` has the last word over deltas.

Messages, reasoning and calls with text arguments grow by deltas. All other items are read whole when they are done:
their own progress events repeat what the finished item says.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from msgspec.structs import replace

from toolwire.events import ArgumentsDelta, CitationDelta, Event, Frame, PartEnd, PartStart, SealDelta, TextDelta
from toolwire.ir import Call, HostedCall, Origin, Part, Reasoning, Refusal, Text
from toolwire.protocols.openai_responses.details.items import BETWEEN, read_call, read_reasoning
from toolwire.protocols.openai_responses.names import ANSWER_MESSAGE, CALL_ITEMS, NAME
from toolwire.protocols.openai_responses.parts import read_citation, read_part, stamped
from toolwire.protocols.openai_responses.response import read_output_item
from toolwire.reading import Reading
from toolwire.wire import Malformed, Object, Path, as_object, take_int, take_list, take_object, take_text

STREAMED = frozenset({"message", "reasoning", "function_call", "custom_tool_call"})


class _Part:
    """A part that has been started: what was told of it so far."""

    __slots__ = ("citations", "index", "open", "pieces")

    def __init__(self, index: int) -> None:
        self.index = index
        self.pieces: list[str] = []
        self.citations = 0
        self.open = True


class _Item:
    """An item of the answer: its parts by content index (reasoning and calls have one, at 0)."""

    __slots__ = ("done", "node", "parts", "pending", "section", "told", "type")

    def __init__(self, node: Object) -> None:
        self.node = node
        kind = node.get("type")
        self.type = kind if isinstance(kind, str) else ""
        self.parts: dict[int, _Part] = {}
        self.pending: list[str] = []
        """Arguments that came before the call's name."""
        self.section = 0
        """The part of a summary that is being told."""
        self.told = 0
        """How many pieces belong to earlier sections."""
        self.done = False


class Items:
    """All items of one answer, told apart by `output_index`, else by id."""

    def __init__(self) -> None:
        self.reading = Reading(NAME)
        self.called = False
        """Has the model made a call that the client must run?"""
        self.grown: list[str] = []
        """The pieces of the part that grew last."""
        self._items: dict[int, _Item] = {}
        self._ids: dict[str, int] = {}
        self._next = 0

    def _add(self, index: int, node: Object) -> _Item:
        item = _Item(node)
        self._items[index] = item
        id = node.get("id")
        if isinstance(id, str) and id:
            self._ids.setdefault(id, index)
        return item

    def _find(self, node: Object, path: Path, kind: str) -> _Item:
        """The item that an event speaks of. One that was never announced counts as added, if the event says where."""
        index = node.get("output_index")
        if type(index) is not int:
            index = take_int(node, "output_index", path)
        if index is None:
            index = self._ids.get(take_text(node, "item_id", path) or "")
            if index is None:
                raise Malformed(path, f"`{node.get('type')}` names no item by output_index or by a known item_id")
        item = self._items.get(index)
        if item is None:
            return self._add(index, {"type": kind, "id": node.get("item_id")})
        if item.type != kind:
            if item.type:
                raise Malformed(path, f"`{node.get('type')}` speaks of an item of type `{item.type}`")
            item.type = kind
        return item

    def added(self, node: Object, frame: Frame, path: Path, events: list[Event]) -> None:
        given = as_object(node.get("item"), (path, "item"))
        index = take_int(node, "output_index", path)
        if index is None:
            index = max(self._items, default=-1) + 1
        if index in self._items:
            if self._items[index].node.get("id") != given.get("id"):
                raise Malformed(path, f"two items are added at output_index {index}")
            return
        item = self._add(index, given)
        if item.type in CALL_ITEMS and item.type in STREAMED and given.get("name"):
            self._start_call(item, given, (path, "item"), frame, events)

    def done(self, node: Object, frame: Frame, path: Path, events: list[Event]) -> None:
        given = as_object(node.get("item"), (path, "item"))
        item = self._find(node, path, str(given.get("type") or "message"))
        if not item.done:
            self._settle(item, given, (path, "item"), frame, events)

    def settle_all(self, response: Object, path: Path, frame: Frame, events: list[Event]) -> None:
        """The end: items that only the whole answer tells, and those that were never closed."""
        output = take_list(response, "output", path) or []
        aligned = list(self._items.values()) if len(output) == len(self._items) else []
        for number, value in enumerate(output):
            at = ((path, "output"), number)
            node = as_object(value, at)
            item = self._same(node, aligned[number] if aligned else None)
            if item is None:
                item = self._add(max(self._items, default=-1) + 1, node)
            if not item.done:
                self._settle(item, node, at, frame, events)
        for item in self._items.values():
            if not item.done:
                self._settle(item, item.node, path, frame, events, response.get("status") == "incomplete")

    def _same(self, node: Object, aligned: _Item | None) -> _Item | None:
        index = self._ids.get(str(node.get("id") or ""))
        if index is not None:
            return self._items[index]
        call = node.get("call_id")
        for item in self._items.values():
            if call and item.node.get("call_id") == call and item.type == node.get("type"):
                return item
        return aligned if aligned is not None and aligned.type == node.get("type") else None

    def _settle(
        self, item: _Item, node: Object, path: Path, frame: Frame, events: list[Event], cut: bool = False
    ) -> None:
        """Say what is still unsaid of an item, and close it."""
        item.done = True
        item.type = item.type or str(node.get("type") or "message")
        if item.type == "message":
            self._settle_message(item, node, path, frame, events)
        elif item.type == "reasoning":
            self._settle_reasoning(item, node, path, frame, events)
        elif item.type in STREAMED:
            self._settle_call(item, node, path, frame, events, cut)
        else:
            for part in read_output_item(node, path, self.reading):
                self._whole(part, frame, events)

    def _start(self, item: _Item, at: int, part: Part, frame: Frame, events: list[Event]) -> _Part:
        started = item.parts[at] = _Part(self._next)
        events.append(PartStart(self._next, part, 0, frame))
        self._next += 1
        return started

    def _end(self, part: _Part, frame: Frame, events: list[Event], incomplete: bool = False) -> None:
        if part.open:
            part.open = False
            events.append(PartEnd(part.index, incomplete, frame))

    def _whole(self, part: Part, frame: Frame, events: list[Event]) -> None:
        """A part that came all at once, as a stream of its own."""
        index = self._next
        self._next += 1
        arguments = ""
        if isinstance(part, (Call, HostedCall)):
            self.called = self.called or isinstance(part, Call)
            arguments, loose = part.arguments, replace(part.origin, intact=False) if part.origin else None
            part = replace(part, arguments="", origin=loose)
        incomplete = isinstance(part, Call) and part.incomplete
        if isinstance(part, Call):
            part = replace(part, incomplete=False)
        events.append(PartStart(index, part, 0, frame))
        if arguments:
            events.append(ArgumentsDelta(index, arguments, frame))
        events.append(PartEnd(index, incomplete, frame))

    # --- messages ---------------------------------------------------------------------------------------------------

    def _text_part(self, item: _Item, at: int, kind: str, path: Path, frame: Frame, events: list[Event]) -> _Part:
        part = item.parts.get(at)
        if part is not None:
            return part
        extra = {key: value for key, value in item.node.items() if key not in ANSWER_MESSAGE}
        origin = Origin(NAME, path, item.node, extra, intact=False)
        empty = Refusal("", origin) if kind == "refusal" else Text("", origin=origin)
        return self._start(item, at, empty, frame, events)

    def part_added(self, node: Object, frame: Frame, path: Path, events: list[Event]) -> None:
        part = take_object(node, "part", path) or {}
        kind = part.get("type")
        if kind in ("output_text", "refusal"):
            item = self._find(node, path, "message")
            self._text_part(item, take_int(node, "content_index", path) or 0, str(kind), path, frame, events)

    def part_done(self, node: Object, frame: Frame, path: Path, events: list[Event]) -> None:
        part = take_object(node, "part", path) or {}
        if part.get("type") in ("output_text", "refusal"):
            item = self._find(node, path, "message")
            at = take_int(node, "content_index", path) or 0
            self._settle_text(item, at, part, (path, "part"), frame, events)

    def text_delta(self, node: Object, frame: Frame, path: Path, events: list[Event]) -> None:
        item = self._find(node, path, "message")
        at = take_int(node, "content_index", path) or 0
        part = item.parts.get(at)
        if part is None:
            kind = "refusal" if node["type"] == "response.refusal.delta" else "output_text"
            part = self._text_part(item, at, kind, path, frame, events)
        self._say(part, take_text(node, "delta", path) or "", frame, events)

    def _say(self, part: _Part, text: str, frame: Frame, events: list[Event]) -> None:
        if text and part.open:
            self.grown = part.pieces
            part.pieces.append(text)
            events.append(TextDelta(part.index, text, frame))

    def text_done(self, node: Object, frame: Frame, path: Path, events: list[Event]) -> None:
        item = self._find(node, path, "message")
        refusal = node["type"] == "response.refusal.done"
        kind = "refusal" if refusal else "output_text"
        part = self._text_part(item, take_int(node, "content_index", path) or 0, kind, path, frame, events)
        self._say(part, _rest(part.pieces, take_text(node, "refusal" if refusal else "text", path)), frame, events)

    def annotation(self, node: Object, frame: Frame, path: Path, events: list[Event]) -> None:
        item = self._find(node, path, "message")
        part = item.parts.get(take_int(node, "content_index", path) or 0)
        annotation = take_object(node, "annotation", path)
        if part is None or not part.open or annotation is None:
            return
        part.citations += 1
        citation = read_citation(annotation, (path, "annotation"), self.reading)
        events.append(CitationDelta(part.index, citation, frame))

    def _settle_text(self, item: _Item, at: int, node: Object, path: Path, frame: Frame, events: list[Event]) -> None:
        kind = str(node.get("type"))
        part = self._text_part(item, at, kind, path, frame, events)
        if not part.open:
            return
        text = take_text(node, "refusal" if kind == "refusal" else "text", path)
        self._say(part, _rest(part.pieces, text), frame, events)
        if kind == "output_text":
            whole = read_part(node, path, self.reading)
            for citation in whole.citations[part.citations :] if isinstance(whole, Text) else ():
                part.citations += 1
                events.append(CitationDelta(part.index, citation, frame))
        self._end(part, frame, events)

    def _settle_message(self, item: _Item, node: Object, path: Path, frame: Frame, events: list[Event]) -> None:
        stamped(self.reading, node, path, ANSWER_MESSAGE, "id")
        for at, value in enumerate(take_list(node, "content", path) or []):
            where = ((path, "content"), at)
            content = as_object(value, where)
            if content.get("type") in ("output_text", "refusal"):
                self._settle_text(item, at, content, where, frame, events)
            elif at not in item.parts:
                alone = {**node, "content": [content]}
                for strange in read_output_item(alone, path, self.reading):
                    self._whole(strange, frame, events)
        for part in item.parts.values():
            self._end(part, frame, events)

    # --- reasoning --------------------------------------------------------------------------------------------------

    def _thought(self, item: _Item, raw: bool, frame: Frame, path: Path, events: list[Event]) -> _Part:
        part = item.parts.get(0)
        if part is not None:
            return part
        origin = Origin(NAME, path, item.node, intact=False)
        id = item.node.get("id")
        reasoning = Reasoning(form="raw" if raw else "summary", id=id if isinstance(id, str) else "", origin=origin)
        return self._start(item, 0, reasoning, frame, events)

    def reasoning(self, node: Object, frame: Frame, path: Path, events: list[Event]) -> None:
        """Deltas and `.done` of summaries and of raw thinking."""
        kind: str = node["type"]
        raw = "summary" not in kind
        item = self._find(node, path, "reasoning")
        section = take_int(node, "content_index" if raw else "summary_index", path) or 0
        done = kind.endswith(".done")
        text = take_text(node, "text" if done else "delta", path) or ""
        if not text:
            return
        part = self._thought(item, raw, frame, path, events)
        if section > item.section:
            item.section = section
            if part.pieces and not raw:
                self._say(part, BETWEEN, frame, events)
            item.told = len(part.pieces)
        if section == item.section:
            self._say(part, _rest(part.pieces[item.told :], text) if done else text, frame, events)

    def _settle_reasoning(self, item: _Item, node: Object, path: Path, frame: Frame, events: list[Event]) -> None:
        whole = read_reasoning(node, path, self.reading)
        part = item.parts.get(0)
        if part is None:
            loose = replace(whole.origin, intact=False) if whole.origin else None
            part = self._start(item, 0, replace(whole, text="", seal=None, origin=loose), frame, events)
        self._say(part, _rest(part.pieces, whole.text), frame, events)
        if whole.seal is not None and part.open:
            events.append(SealDelta(part.index, whole.seal, frame))
        self._end(part, frame, events)

    # --- calls ------------------------------------------------------------------------------------------------------

    def _start_call(self, item: _Item, node: Object, path: Path, frame: Frame, events: list[Event]) -> _Part:
        call = read_call(node, path, CALL_ITEMS[item.type], self.reading)
        loose = replace(call.origin, intact=False) if call.origin else None
        self.called = True
        part = self._start(item, 0, replace(call, arguments="", incomplete=False, origin=loose), frame, events)
        for text in item.pending:
            self._argue(part, text, frame, events)
        return part

    def _argue(self, part: _Part, text: str, frame: Frame, events: list[Event]) -> None:
        if text and part.open:
            self.grown = part.pieces
            part.pieces.append(text)
            events.append(ArgumentsDelta(part.index, text, frame))

    def arguments_delta(self, node: Object, frame: Frame, path: Path, events: list[Event]) -> None:
        item = self._find(node, path, ARGUMENT_EVENTS[node["type"]])
        text = take_text(node, "delta", path) or ""
        part = item.parts.get(0)
        if part is None:
            item.pending.append(text)
        else:
            self._argue(part, text, frame, events)

    def arguments_done(self, node: Object, frame: Frame, path: Path, events: list[Event]) -> None:
        item = self._find(node, path, ARGUMENT_EVENTS[node["type"]])
        text = take_text(node, CALL_ITEMS[ARGUMENT_EVENTS[node["type"]]].payload, path)
        part = item.parts.get(0)
        if part is None:
            item.pending.append(_rest(item.pending, text))
        else:
            self._argue(part, _rest(part.pieces, text), frame, events)

    def _settle_call(self, item: _Item, node: Object, path: Path, frame: Frame, events: list[Event], cut: bool) -> None:
        part = item.parts.get(0) or self._start_call(item, node, path, frame, events)
        shape = CALL_ITEMS[item.type]
        call = read_call(node, path, shape, Reading(NAME))
        self._argue(part, _rest(part.pieces, call.arguments), frame, events)
        self._end(part, frame, events, call.incomplete or cut)


def _rest(pieces: list[str], whole: str | None) -> str:
    """What a finished text adds to the pieces told so far; nothing when it contradicts them, for they are told."""
    if not whole:
        return ""
    if not pieces:
        return whole
    so_far = "".join(pieces)
    return whole[len(so_far) :] if whole.startswith(so_far) else ""


ARGUMENT_EVENTS: Mapping[str, str] = MappingProxyType(
    {f"{shape.event}.{end}": shape.item for shape in CALL_ITEMS.values() if shape.event for end in ("delta", "done")}
)
