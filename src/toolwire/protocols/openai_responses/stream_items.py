"""The items that the Responses stream writer has open: how each type of item starts, grows and ends, as frames."""

from __future__ import annotations

from itertools import count
from typing import ClassVar

from msgspec import Raw, Struct, field
from msgspec.structs import replace

from toolwire.core.events import ArgumentsDelta, CitationDelta, Delta, Event, SealDelta, TextDelta
from toolwire.core.ir import (
    Call,
    Citation,
    Logprobs,
    Media,
    Opaque,
    Part,
    ProviderCall,
    ProviderResult,
    Reasoning,
    Refusal,
    Seal,
    Text,
)
from toolwire.core.json_values import Object, encode
from toolwire.core.logprobs import write_openai_logprobs
from toolwire.core.losses import Ledger
from toolwire.core.provenance import restore_original_keys
from toolwire.core.sse import write_event_frame
from toolwire.protocols.openai_responses import names
from toolwire.protocols.openai_responses.content import write_citation
from toolwire.protocols.openai_responses.items import (
    note_call_losses,
    write_call,
    write_call_item,
    write_provider_item,
    write_reasoning,
)
from toolwire.protocols.openai_responses.names import NAME, is_own
from toolwire.protocols.openai_responses.response import (
    ItemIds,
    is_message_part,
    note_dropped_part,
    source_message,
    unknown_message_keys,
    write_content_part,
    write_image_item,
)

ClosedItem = tuple[bytes, bytes]
"""The events that close an item, and the JSON of the item."""


class EventSequence(Struct, eq=False):
    """Numbers the events of one answer."""

    numbers: count[int] = field(default_factory=count)

    def write_event(self, kind: str, fields: Object) -> bytes:
        return write_event_frame(kind, encode({"type": kind, "sequence_number": next(self.numbers), **fields}))


def event_template(kind: str, rest: str) -> bytes:
    """A format string for the frame of an event; its first value is the sequence number."""
    return f'event: {kind}\ndata: {{"type":"{kind}","sequence_number":%d,{rest}}}\n\n'.encode()


def delta_prefix(kind: str) -> bytes:
    """The bytes of a delta before its number."""
    return f'event: {kind}\ndata: {{"type":"{kind}","sequence_number":'.encode()


ITEM_ADDED = event_template("response.output_item.added", '"output_index":%d,"item":%b')
ITEM_DONE = event_template("response.output_item.done", '"output_index":%d,"item":%b')


class OpenItem(Struct, eq=False):
    """An item that was added and is not done."""

    accepts_more_parts: ClassVar[bool] = False
    """May several parts share it? Then it is closed only when another item starts, or at the end."""

    part: Part
    id: str
    output_index: int
    ledger: Ledger
    sequence: EventSequence
    location: bytes = b""
    """The keys with which an event names this item."""
    pieces: list[str] = []
    template: tuple[bytes, bytes] = (b"", b"")
    """The bytes of a delta before its number, and between its number and its text."""
    streamed_event: type[Delta] | None = None
    """Deltas that are written as they come; all others go to `add_delta`."""
    whole: bytes = b""
    """The JSON of an item that is complete when it starts."""

    def write_frame(self, template: bytes, *values: object) -> bytes:
        return template % (next(self.sequence.numbers), *values)

    def write_start(self) -> bytes:
        return self.write_added(self.whole)

    def add_part(self, part: Part) -> bytes:
        """Add another part to this item."""
        return b""

    def add_delta(self, event: Event) -> bytes:
        return b""

    def end_part(self, incomplete: bool) -> bytes:
        """End the open part."""
        return b""

    def close(self, cut: bool) -> ClosedItem:
        return self.write_done(self.whole), self.whole

    def set_location(self) -> None:
        self.location = b'"item_id":%b,"output_index":%d' % (encode(self.id), self.output_index)

    def write_delta(self, text: str) -> bytes:
        self.pieces.append(text)
        return self.write_delta_frame(encode(text))

    def write_delta_frame(self, encoded_text: bytes) -> bytes:
        before, after = self.template
        return b"%b%d%b%b}\n\n" % (before, next(self.sequence.numbers), after, encoded_text)

    def write_added(self, item: bytes) -> bytes:
        return self.write_frame(ITEM_ADDED, self.output_index, item)

    def write_done(self, item: bytes) -> bytes:
        return self.write_frame(ITEM_DONE, self.output_index, item)


_MESSAGE_ITEM = b'{"id":%b,"type":"message","status":"%b","role":"assistant","content":[%b]%b}'
_MESSAGE_ADDED = ITEM_ADDED.replace(b'"item":%b', b'"item":' + _MESSAGE_ITEM)
_CONTENT_LOCATION = b'"item_id":%b,"output_index":%d,"content_index":%d'
_PART_ADDED = event_template("response.content_part.added", '%b,"part":%b')
_PART_DONE = event_template("response.content_part.done", '%b,"part":%b')
_ANNOTATION_ADDED = event_template("response.output_text.annotation.added", '%b,"annotation_index":%d,"annotation":%b')
_TEXT_PART = b'{"type":"output_text","text":%b,"annotations":%b,"logprobs":%b}'
_EMPTY_TEXT_PART = _TEXT_PART % (b'""', b"[]", b"[]")
_TEXT_DELTA = delta_prefix("response.output_text.delta")
_TEXT_DONE = event_template("response.output_text.done", '%b,"text":%b,"logprobs":%b') + _PART_DONE
_NO_LOGPROBS = b',"logprobs":[],"delta":'
_REFUSAL_PART = b'{"type":"refusal","refusal":%b}'
_EMPTY_REFUSAL_PART = _REFUSAL_PART % b'""'
_REFUSAL_DELTA = delta_prefix("response.refusal.delta")
_REFUSAL_DONE = event_template("response.refusal.done", '%b,"refusal":%b') + _PART_DONE


class OpenMessage(OpenItem):
    accepts_more_parts = True

    encoded_id: bytes = b""
    unknown_keys: bytes = b""
    """Its unknown keys, as JSON without braces."""
    content: list[bytes] = field(default_factory=list)
    part_location: bytes = b""
    """The keys with which an event names the open content part."""
    held_back: list[Citation] = field(default_factory=list)
    """Citations of the whole text, whose end is known only when the text ends."""
    annotations: list[Object] = field(default_factory=list)
    logprobs: list[Object] = field(default_factory=list)

    def write_start(self) -> bytes:
        self.encoded_id = encode(self.id)
        if unknown := unknown_message_keys(self.part):
            self.unknown_keys = b"," + encode(unknown)[1:-1]
        values = (self.output_index, self.encoded_id, b"in_progress", b"", self.unknown_keys)
        return self.write_frame(_MESSAGE_ADDED, *values) + self.add_part(self.part)

    def add_part(self, part: Part) -> bytes:
        self.part = part
        if self.content:
            self.pieces, self.held_back, self.annotations, self.logprobs = [], [], [], []
        self.part_location = here = _CONTENT_LOCATION % (self.encoded_id, self.output_index, len(self.content))
        if part.__class__ is Opaque:
            self.streamed_event = None
            return self._write_opaque_part(part)
        self.streamed_event = TextDelta
        refused = part.__class__ is Refusal
        # OpenAI's SDKs demand `logprobs` in every delta of a text.
        between = b',"delta":' if refused else _NO_LOGPROBS
        self.template = (_REFUSAL_DELTA if refused else _TEXT_DELTA, b"," + here + between)
        begun = self.write_frame(_PART_ADDED, here, _EMPTY_REFUSAL_PART if refused else _EMPTY_TEXT_PART)
        if logprobs := part.logprobs:  # type: ignore[union-attr]
            begun += self.write_logprobs_delta(part.text, logprobs)  # type: ignore[union-attr]
        elif text := part.text:  # type: ignore[union-attr]
            begun += self.write_delta(text)
        for citation in part.citations if part.__class__ is Text else ():
            begun += self._add_citation(citation)
        return begun

    def write_logprobs_delta(self, text: str, logprobs: Logprobs) -> bytes:
        if self.part.__class__ is Refusal:
            self.ledger.note_logprobs(logprobs)
            return self.write_delta(text) if text else b""
        written = write_openai_logprobs(logprobs, derives_bytes=True)
        self.logprobs += written
        self.pieces.append(text)
        before, after = self.template
        after = after.removesuffix(_NO_LOGPROBS) + b',"logprobs":' + encode(written) + b',"delta":'
        return b"%b%d%b%b}\n\n" % (before, next(self.sequence.numbers), after, encode(text))

    def _write_opaque_part(self, part: Part) -> bytes:
        whole = write_content_part(part, self.ledger)
        if whole is None:
            return b""
        self.content.append(encoded := encode(whole))
        added = self.write_frame(_PART_ADDED, self.part_location, encoded)
        return added + self.write_frame(_PART_DONE, self.part_location, encoded)

    def add_delta(self, event: Event) -> bytes:
        if isinstance(event, TextDelta) and event.logprobs:
            return self.write_logprobs_delta(event.text, event.logprobs)
        if isinstance(event, CitationDelta) and isinstance(self.part, Text):
            return self._add_citation(event.citation)
        if isinstance(event, SealDelta):
            self.ledger.note("seal-dropped", None, "the seal of a text was left out")
        return b""

    def _add_citation(self, citation: Citation) -> bytes:
        if citation.end is None and not is_own(citation.origin):
            self.held_back.append(citation)
            return b""
        return self._write_citation(citation)

    def _write_citation(self, citation: Citation) -> bytes:
        written = write_citation(citation, sum(map(len, self.pieces)), self.ledger)
        if written is None:
            return b""
        number = len(self.annotations)
        self.annotations.append(written)
        return self.write_frame(_ANNOTATION_ADDED, self.part_location, number, encode(written))

    def end_part(self, incomplete: bool) -> bytes:
        part, here = self.part, self.part_location
        if part.__class__ is Opaque:
            return b""
        text = encode("".join(self.pieces))
        out = b""
        numbers = self.sequence.numbers
        if part.__class__ is Refusal:
            whole, form = _REFUSAL_PART % text, _REFUSAL_DONE
        else:
            for citation in self.held_back:
                out += self._write_citation(citation)
            annotations = encode(self.annotations) if self.annotations else b"[]"
            logprobs = encode(self.logprobs) if self.logprobs else b"[]"
            whole = _TEXT_PART % (text, annotations, logprobs)
            self.content.append(whole)
            return out + _TEXT_DONE % (next(numbers), here, text, logprobs, next(numbers), here, whole)
        self.content.append(whole)
        return out + form % (next(numbers), here, text, next(numbers), here, whole)

    def close(self, cut: bool) -> ClosedItem:
        status = b"incomplete" if cut else b"completed"
        item = _MESSAGE_ITEM % (self.encoded_id, status, b",".join(self.content), self.unknown_keys)
        return self.write_done(item), item


class _ReasoningTemplates:
    """The events of one form of reasoning."""

    def __init__(self, stem: str, around: str, index: bytes, kind: bytes) -> None:
        self.location = index
        self.part = b'{"type":"' + kind + b'","text":%b}'
        self.delta = delta_prefix(f"{stem}.delta")
        self.done = event_template(f"{stem}.done", '%b,"text":%b')
        self.part_added = event_template(f"{around}.added", '%b,"part":%b')
        self.part_done = event_template(f"{around}.done", '%b,"part":%b')


_RAW_REASONING = _ReasoningTemplates(
    "response.reasoning_text", "response.content_part", b',"content_index":0', b"reasoning_text"
)
_SUMMARY_REASONING = _ReasoningTemplates(
    "response.reasoning_summary_text", "response.reasoning_summary_part", b',"summary_index":0', b"summary_text"
)


class OpenReasoning(OpenItem):
    seal: Seal | None = None
    event_templates: _ReasoningTemplates = _SUMMARY_REASONING

    def write_start(self) -> bytes:
        part = self.part
        assert isinstance(part, Reasoning)
        self.seal = part.seal
        self.event_templates = words = _RAW_REASONING if part.form == "raw" else _SUMMARY_REASONING
        self.set_location()
        self.location += words.location
        self.template = (words.delta, b"," + self.location + b',"delta":')
        bare = replace(part, text="", form="", seal=None)
        added = self.write_added(encode(write_reasoning(bare, self.ledger, self.id)))
        return added + self._write_text(part.text) if part.text else added

    def _write_text(self, text: str) -> bytes:
        words, begun = self.event_templates, b""
        if not self.pieces:
            begun = self.write_frame(words.part_added, self.location, words.part % b'""')
        self.streamed_event = TextDelta
        return begun + self.write_delta(text)

    def add_delta(self, event: Event) -> bytes:
        if isinstance(event, TextDelta) and event.text:
            return self._write_text(event.text)
        if isinstance(event, SealDelta):
            self.seal = event.seal
        return b""

    def close(self, cut: bool) -> ClosedItem:
        part, text = self.part, "".join(self.pieces)
        assert isinstance(part, Reasoning)
        out = b""
        if text:
            words, encoded = self.event_templates, encode(text)
            out = self.write_frame(words.done, self.location, encoded)
            out += self.write_frame(words.part_done, self.location, words.part % encoded)
        whole = replace(part, text=text, form=part.form if text else "", seal=self.seal)
        item = encode(write_reasoning(whole, self.ledger, self.id))
        return out + self.write_done(item), item


_STREAMED_SHAPES = [shape for shape in names.SHAPE_BY_KIND.values() if shape.event]
_ARGUMENTS_DELTA = {shape.kind: delta_prefix(f"{shape.event}.delta") for shape in _STREAMED_SHAPES}
_ARGUMENTS_DONE = {
    shape.kind: event_template(f"{shape.event}.done", f'%b,"{shape.payload_key}":%b') for shape in _STREAMED_SHAPES
}


class OpenCall(OpenItem, kw_only=True):
    """A call. Text arguments are written as they come, an object when it is complete."""

    shape: names.CallShape
    seal: Seal | None = None
    incomplete: bool = False
    item: Object = field(default_factory=dict)

    def write_start(self) -> bytes:
        part, shape = self.part, self.shape
        assert isinstance(part, Call)
        self.seal, self.incomplete = part.seal, part.incomplete
        if not shape.event:
            self.pieces = [part.arguments]
            bare = replace(part, arguments="", seal=None, cache=None, incomplete=True)
            return self.write_added(encode(write_call(bare, self.ledger, self.id, "in_progress")))
        self.set_location()
        self.template = (_ARGUMENTS_DELTA[shape.kind], b"," + self.location + b',"delta":')
        self.streamed_event = ArgumentsDelta
        item = write_call_item(part, shape, self.id, "in_progress")
        item[shape.payload_key] = ""
        self.item = restore_original_keys(item, part.origin, NAME)
        added = self.write_added(encode(self.item))
        return added + self.write_delta(part.arguments) if part.arguments else added

    def add_delta(self, event: Event) -> bytes:
        if isinstance(event, SealDelta):
            self.seal = event.seal
        elif isinstance(event, ArgumentsDelta) and not self.shape.event:
            self.pieces.append(event.text)
        return b""

    def end_part(self, incomplete: bool) -> bytes:
        self.incomplete = self.incomplete or incomplete
        return b""

    def close(self, cut: bool) -> ClosedItem:
        part, text, status = self.part, "".join(self.pieces), "incomplete" if self.incomplete else "completed"
        assert isinstance(part, Call)
        if not self.shape.event:
            call = replace(part, arguments=text, seal=self.seal, incomplete=self.incomplete)
            item = encode(write_call(call, self.ledger, self.id, status))
            return self.write_done(item), item
        out, at = b"", self.location
        if self.shape.kind == "function":
            at = b'%b,"name":%b' % (at, encode(part.name))
            if (not text or text.isspace()) and not self.incomplete:
                text = "{}"
        encoded = encode(text)
        if text and not self.pieces:
            out = self.write_delta_frame(encoded)
        out += self.write_frame(_ARGUMENTS_DONE[self.shape.kind], at, encoded)
        note_call_losses(part, self.seal, self.ledger)
        item = encode(self.item | {"status": status, self.shape.payload_key: Raw(encoded)})
        return out + self.write_done(item), item


class OpenProviderCall(OpenItem):
    """The call of a provider tool; its result becomes part of the same item."""

    accepts_more_parts = True

    result: ProviderResult | None = None
    result_texts: list[str] = field(default_factory=list)
    sources: list[Citation] = field(default_factory=list)
    event_prefix: str = ""

    def write_start(self) -> bytes:
        part = self.part
        assert isinstance(part, ProviderCall)
        self.set_location()
        self.pieces = [part.arguments] if part.arguments else []
        item = write_provider_item(replace(part, arguments=""), None, self.ledger, self.id, "in_progress")
        self.event_prefix = f"response.{item['type']}"
        out = self.write_added(encode(item))
        for step in names.PROGRESS_STEPS[item["type"]]:
            out += self.write_frame(event_template(f"{self.event_prefix}.{step}", "%b"), self.location)
        return out

    def add_part(self, part: Part) -> bytes:
        self.result = part if isinstance(part, ProviderResult) else None
        return b""

    def add_delta(self, event: Event) -> bytes:
        if isinstance(event, ArgumentsDelta):
            self.pieces.append(event.text)
        elif isinstance(event, TextDelta):
            self.result_texts.append(event.text)
        elif isinstance(event, CitationDelta):
            self.sources.append(event.citation)
        return b""

    def close(self, cut: bool) -> ClosedItem:
        part, result = self.part, self.result
        assert isinstance(part, ProviderCall)
        if result is not None:
            sources = (*result.sources, *self.sources)
            result = replace(result, text=result.text + "".join(self.result_texts), sources=sources)
        call = replace(part, arguments="".join(self.pieces))
        item = encode(write_provider_item(call, result, self.ledger, self.id))
        completed = self.write_frame(event_template(f"{self.event_prefix}.completed", "%b"), self.location)
        return completed + self.write_done(item), item


def open_item(part: Part, ids: ItemIds, number: int, ledger: Ledger, sequence: EventSequence) -> OpenItem | None:
    """The item that a part starts; None, with a loss noted, where this protocol has none for it."""
    if part.__class__ is Call:
        shape = names.SHAPE_BY_KIND.get(part.kind) or names.SHAPE_BY_KIND["function"]
        id = ids.assign_id(shape.id_prefix, part.item_id, number)
        return OpenCall(part, id, number, ledger, sequence, shape=shape)
    if is_message_part(part):
        wire = source_message(part)
        given = "" if wire is None else str(wire.get("id") or "")
        return OpenMessage(part, ids.assign_id("msg_", given, number), number, ledger, sequence)
    match part:
        case Reasoning():
            return OpenReasoning(part, ids.assign_id("rs_", part.id, number), number, ledger, sequence)
        case ProviderCall(tool=tool) if tool in names.PROVIDER_ITEM_BY_TOOL:
            id = ids.assign_provider_id(tool, part.id, number)
            return OpenProviderCall(part, id, number, ledger, sequence)
        case Media(kind="image") if part.data:
            picture = write_image_item(part, ids.assign_id("ig_", "", number), ledger)
            return OpenItem(part, "", number, ledger, sequence, whole=encode(picture))
        case Opaque() if part.origin.protocol == NAME:
            return OpenItem(part, "", number, ledger, sequence, whole=encode(part.origin.wire))
    note_dropped_part(part, ledger)
    return None
