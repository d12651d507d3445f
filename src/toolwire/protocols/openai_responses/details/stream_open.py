"""The item that a stream's writer has open: how each type of item begins, grows and closes on the wire."""

from __future__ import annotations

from msgspec import Raw, field
from msgspec.structs import replace

from toolwire.events import ArgumentsDelta, CitationDelta, Event, SealDelta, TextDelta
from toolwire.ir import Call, Citation, HostedCall, HostedResult, Media, Opaque, Part, Reasoning, Refusal, Seal, Text
from toolwire.loss import Ledger
from toolwire.protocols.openai_responses.details.events import BEGUN
from toolwire.protocols.openai_responses.details.hosted import can_write_hosted, write_hosted
from toolwire.protocols.openai_responses.details.items import call_item, left_out, write_call, write_reasoning
from toolwire.protocols.openai_responses.details.output import (
    Names,
    content_part,
    drop,
    hosted_prefix,
    in_text,
    message_of,
    said_beyond,
    write_picture,
)
from toolwire.protocols.openai_responses.details.stream_frames import (
    ADDED,
    Closed,
    OpenItem,
    Sequence,
    formed,
    frame,
    grown,
    growth,
)
from toolwire.protocols.openai_responses.names import CALLS, NAME, CallShape
from toolwire.protocols.openai_responses.parts import own, write_citation
from toolwire.reading import finished
from toolwire.wire import Object, encode

_MESSAGE = b'{"id":%b,"type":"message","status":"%b","role":"assistant","content":[%b]%b}'
_MESSAGE_ADDED = ADDED.replace(b'"item":%b', b'"item":' + _MESSAGE)
_IN_CONTENT = b'"item_id":%b,"output_index":%d,"content_index":%d'
_PART_ADDED = frame("response.content_part.added", '%b,"part":%b')
_PART_DONE = frame("response.content_part.done", '%b,"part":%b')
_CITED = frame("response.output_text.annotation.added", '%b,"annotation_index":%d,"annotation":%b')
_TEXT = b'{"type":"output_text","text":%b,"annotations":%b,"logprobs":[]}'
_TEXT_BEGUN = _TEXT % (b'""', b"[]")
_TEXT_DELTA = growth("response.output_text.delta")
_TEXT_DONE = frame("response.output_text.done", '%b,"text":%b,"logprobs":[]') + _PART_DONE
_REFUSAL = b'{"type":"refusal","refusal":%b}'
_REFUSAL_BEGUN = _REFUSAL % b'""'
_REFUSAL_DELTA = growth("response.refusal.delta")
_REFUSAL_DONE = frame("response.refusal.done", '%b,"refusal":%b') + _PART_DONE


class OpenMessage(OpenItem):
    lingers = True

    name: bytes = b""
    beyond: bytes = b""
    """What it says beyond our words."""
    content: list[bytes] = field(default_factory=list)
    here: bytes = b""
    """How an event says that it speaks of the part of the content that is open."""
    held: list[Citation] = field(default_factory=list)
    """Citations of all of a text, whose end is not known before it ends."""
    annotations: list[Object] = field(default_factory=list)

    def begin(self, out: Sequence) -> bytes:
        self.name = name = encode(self.id)
        beyond = said_beyond(self.part)
        if beyond:
            self.beyond = b"," + encode(beyond)[1:-1]
        told = _MESSAGE_ADDED % (next(out.numbers), self.number, name, b"in_progress", b"", self.beyond)
        return told + self.go_on(self.part, out)

    def go_on(self, part: Part, out: Sequence) -> bytes:
        self.part = part
        if self.content:
            self.pieces, self.held, self.annotations = [], [], []
        self.here = here = _IN_CONTENT % (self.name, self.number, len(self.content))
        if part.__class__ is Opaque:
            self.grows = None
            return self._carry(part, out)
        self.grows = TextDelta
        refused = part.__class__ is Refusal
        self.form = formed(_REFUSAL_DELTA if refused else _TEXT_DELTA, here)
        begun = _PART_ADDED % (next(out.numbers), here, _REFUSAL_BEGUN if refused else _TEXT_BEGUN)
        if text := part.text:  # type: ignore[union-attr]
            begun += self.say(text, out)
        for citation in part.citations if part.__class__ is Text else ():
            begun += self._hold(citation, out)
        return begun

    def _carry(self, part: Part, out: Sequence) -> bytes:
        whole = content_part(part, self.ledger)
        if whole is None:
            return b""
        spelled = encode(whole)
        self.content.append(spelled)
        added = _PART_ADDED % (next(out.numbers), self.here, spelled)
        return added + _PART_DONE % (next(out.numbers), self.here, spelled)

    def grow(self, event: Event, out: Sequence) -> bytes:
        if isinstance(event, CitationDelta) and isinstance(self.part, Text):
            return self._hold(event.citation, out)
        if isinstance(event, SealDelta):
            self.ledger.note("seal-dropped", None, "the seal of a text was left out")
        return b""

    def _hold(self, citation: Citation, out: Sequence) -> bytes:
        if citation.end is None and not own(citation.origin):
            self.held.append(citation)
            return b""
        return self._cite(citation, out)

    def _cite(self, citation: Citation, out: Sequence) -> bytes:
        written = write_citation(citation, sum(map(len, self.pieces)), self.ledger)
        if written is None:
            return b""
        number = len(self.annotations)
        self.annotations.append(written)
        return _CITED % (next(out.numbers), self.here, number, encode(written))

    def end(self, incomplete: bool, out: Sequence) -> bytes:
        part, here = self.part, self.here
        if part.__class__ is Opaque:
            return b""
        text = encode("".join(self.pieces))
        said = b""
        if part.__class__ is Refusal:
            whole, form = _REFUSAL % text, _REFUSAL_DONE
        else:
            for citation in self.held:
                said += self._cite(citation, out)
            annotations = encode(self.annotations) if self.annotations else b"[]"
            whole, form = _TEXT % (text, annotations), _TEXT_DONE
        self.content.append(whole)
        return said + form % (next(out.numbers), here, text, next(out.numbers), here, whole)

    def close(self, cut: bool, out: Sequence) -> Closed:
        status = b"incomplete" if cut else b"completed"
        item = _MESSAGE % (self.name, status, b",".join(self.content), self.beyond)
        return self.done(item, out), item


class _Thought:
    """The words for one form of reasoning."""

    def __init__(self, stem: str, around: str, index: bytes, kind: bytes) -> None:
        self.index = index
        self.piece = b'{"type":"' + kind + b'","text":%b}'
        self.delta = growth(f"{stem}.delta")
        self.done = frame(f"{stem}.done", '%b,"text":%b')
        self.part_added = frame(f"{around}.added", '%b,"part":%b')
        self.part_done = frame(f"{around}.done", '%b,"part":%b')


_RAW = _Thought("response.reasoning_text", "response.content_part", b',"content_index":0', b"reasoning_text")
_SUMMARY = _Thought(
    "response.reasoning_summary_text", "response.reasoning_summary_part", b',"summary_index":0', b"summary_text"
)


class OpenReasoning(OpenItem):
    seal: Seal | None = None
    words: _Thought = _SUMMARY

    def begin(self, out: Sequence) -> bytes:
        part = self.part
        assert isinstance(part, Reasoning)
        self.seal = part.seal
        self.words = words = _RAW if part.form == "raw" else _SUMMARY
        self.located()
        self.at += words.index
        self.form = formed(words.delta, self.at)
        bare = replace(part, text="", form="", seal=None)
        told = self.added(encode(write_reasoning(bare, self.ledger, self.id)), out)
        return told + self._say(part.text, out) if part.text else told

    def _say(self, text: str, out: Sequence) -> bytes:
        begun = b""
        if not self.pieces:
            begun = self.words.part_added % (next(out.numbers), self.at, self.words.piece % b'""')
        self.grows = TextDelta
        return begun + self.say(text, out)

    def grow(self, event: Event, out: Sequence) -> bytes:
        if isinstance(event, TextDelta) and event.text:
            return self._say(event.text, out)
        if isinstance(event, SealDelta):
            self.seal = event.seal
        return b""

    def close(self, cut: bool, out: Sequence) -> Closed:
        part, text = self.part, "".join(self.pieces)
        assert isinstance(part, Reasoning)
        said = b""
        if text:
            spelled = encode(text)
            said = self.words.done % (next(out.numbers), self.at, spelled)
            said += self.words.part_done % (next(out.numbers), self.at, self.words.piece % spelled)
        whole = replace(part, text=text, form=part.form if text else "", seal=self.seal)
        item = encode(write_reasoning(whole, self.ledger, self.id))
        return said + self.done(item, out), item


_GROWTH = {shape.kind: growth(f"{shape.event}.delta") for shape in CALLS.values() if shape.event}
_ARGUED = {
    shape.kind: frame(f"{shape.event}.done", f'%b,"{shape.payload}":%b') for shape in CALLS.values() if shape.event
}


class OpenCall(OpenItem, kw_only=True):
    """A call whose arguments are text, told as it grows."""

    shape: CallShape
    seal: Seal | None = None
    incomplete: bool = False
    item: Object = field(default_factory=dict)

    def begin(self, out: Sequence) -> bytes:
        part, shape = self.part, self.shape
        assert isinstance(part, Call)
        self.seal, self.incomplete = part.seal, part.incomplete
        self.located()
        self.form = formed(_GROWTH[shape.kind], self.at)
        self.grows = ArgumentsDelta
        item = call_item(part, shape, self.id, "in_progress")
        item[shape.payload] = ""
        self.item = finished(item, part.origin, NAME)
        told = self.added(encode(self.item), out)
        return told + self.say(part.arguments, out) if part.arguments else told

    def grow(self, event: Event, out: Sequence) -> bytes:
        if isinstance(event, SealDelta):
            self.seal = event.seal
        return b""

    def end(self, incomplete: bool, out: Sequence) -> bytes:
        self.incomplete = self.incomplete or incomplete
        return b""

    def close(self, cut: bool, out: Sequence) -> Closed:
        part, item, shape = self.part, self.item, self.shape
        assert isinstance(part, Call)
        spelled = self._told()
        said = b""
        if not self.pieces and spelled != b'""':
            said = grown(self.form, next(out.numbers), spelled)
        at = b'%b,"name":%b' % (self.at, encode(part.name)) if shape.kind == "function" else self.at
        said += _ARGUED[shape.kind] % (next(out.numbers), at, spelled)
        item["status"] = "incomplete" if self.incomplete else "completed"
        item[shape.payload] = Raw(spelled)
        left_out(part, self.seal, self.ledger)
        whole = encode(item)
        return said + self.done(whole, out), whole

    def _told(self) -> bytes:
        """The arguments as they are spelled."""
        text = "".join(self.pieces)
        if (not text or text.isspace()) and self.shape.kind == "function" and not self.incomplete:
            return b'"{}"'
        return self.spelled if len(self.pieces) == 1 and self.spelled else encode(text)


class OpenAction(OpenItem):
    """A call whose arguments are an object, told when it is whole."""

    seal: Seal | None = None
    incomplete: bool = False

    def begin(self, out: Sequence) -> bytes:
        part = self.part
        assert isinstance(part, Call)
        self.pieces, self.seal, self.incomplete = [part.arguments], part.seal, part.incomplete
        bare = replace(part, arguments="", seal=None, cache=None, incomplete=True)
        return self.added(encode(write_call(bare, self.ledger, self.id, "in_progress")), out)

    def grow(self, event: Event, out: Sequence) -> bytes:
        if isinstance(event, ArgumentsDelta):
            self.pieces.append(event.text)
        elif isinstance(event, SealDelta):
            self.seal = event.seal
        return b""

    def end(self, incomplete: bool, out: Sequence) -> bytes:
        self.incomplete = self.incomplete or incomplete
        return b""

    def close(self, cut: bool, out: Sequence) -> Closed:
        part = self.part
        assert isinstance(part, Call)
        call = replace(part, arguments="".join(self.pieces), seal=self.seal, incomplete=self.incomplete)
        item = encode(write_call(call, self.ledger, self.id, "incomplete" if self.incomplete else "completed"))
        return self.done(item, out), item


class OpenHosted(OpenItem):
    """What a provider's tool did; what it found joins the same item."""

    lingers = True

    result: HostedResult | None = None
    found: list[str] = field(default_factory=list)
    sources: list[Citation] = field(default_factory=list)
    stem: str = ""

    def begin(self, out: Sequence) -> bytes:
        part = self.part
        assert isinstance(part, HostedCall)
        self.located()
        self.pieces = [part.arguments] if part.arguments else []
        item = write_hosted(replace(part, arguments=""), None, self.ledger, self.id, "in_progress")
        self.stem = f"response.{item['type']}"
        said = self.added(encode(item), out)
        for step in BEGUN[item["type"]]:
            said += frame(f"{self.stem}.{step}", "%b") % (next(out.numbers), self.at)
        return said

    def go_on(self, part: Part, out: Sequence) -> bytes:
        self.result = part if isinstance(part, HostedResult) else None
        return b""

    def grow(self, event: Event, out: Sequence) -> bytes:
        if isinstance(event, ArgumentsDelta):
            self.pieces.append(event.text)
        elif isinstance(event, TextDelta):
            self.found.append(event.text)
        elif isinstance(event, CitationDelta):
            self.sources.append(event.citation)
        return b""

    def close(self, cut: bool, out: Sequence) -> Closed:
        part, result = self.part, self.result
        assert isinstance(part, HostedCall)
        if result is not None:
            sources = (*result.sources, *self.sources)
            result = replace(result, text=result.text + "".join(self.found), sources=sources)
        call = replace(part, arguments="".join(self.pieces))
        item = encode(write_hosted(call, result, self.ledger, self.id))
        completed = frame(f"{self.stem}.completed", "%b") % (next(out.numbers), self.at)
        return completed + self.done(item, out), item


class OpenWhole(OpenItem, kw_only=True):
    """An item that is known whole at once."""

    item: bytes

    def begin(self, out: Sequence) -> bytes:
        return self.added(self.item, out)

    def close(self, cut: bool, out: Sequence) -> Closed:
        return self.done(self.item, out), self.item


def open_item(part: Part, names: Names, number: int, ledger: Ledger) -> OpenItem | None:
    """The item that a part begins, or None (noted) when this protocol has none for it."""
    if part.__class__ is Call:
        shape = CALLS.get(part.kind) or CALLS["function"]
        id = names.name(shape.prefix, part.item, number)
        if shape.event:
            return OpenCall(part, id, number, ledger, shape=shape)
        return OpenAction(part, id, number, ledger)
    if in_text(part):
        wire = message_of(part)
        given = "" if wire is None else str(wire.get("id") or "")
        return OpenMessage(part, names.name("msg_", given, number), number, ledger)
    match part:
        case Reasoning():
            return OpenReasoning(part, names.name("rs_", part.id, number), number, ledger)
        case HostedCall(tool=tool) if can_write_hosted(tool):
            return OpenHosted(part, names.name(hosted_prefix(tool), part.id, number), number, ledger)
        case Media(kind="image") if part.data:
            picture = write_picture(part, names.name("ig_", "", number))
            return OpenWhole(part, "", number, ledger, item=encode(picture))
        case Opaque() if part.origin.protocol == NAME:
            return OpenWhole(part, "", number, ledger, item=encode(part.origin.wire))
    drop(part, ledger)
    return None
