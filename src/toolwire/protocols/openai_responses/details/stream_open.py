"""The item that a stream's writer has open: how each type of item begins, grows and closes on the wire."""

from __future__ import annotations

from itertools import count

from msgspec.structs import replace

from toolwire.events import ArgumentsDelta, CitationDelta, Event, SealDelta, TextDelta
from toolwire.ir import Call, Citation, HostedCall, HostedResult, Media, Opaque, Part, Reasoning, Refusal, Seal, Text
from toolwire.loss import Ledger
from toolwire.protocols.openai_responses.details.events import BEGUN
from toolwire.protocols.openai_responses.details.hosted import can_write_hosted, write_hosted
from toolwire.protocols.openai_responses.details.items import write_call, write_reasoning
from toolwire.protocols.openai_responses.details.output import (
    Names,
    content_part,
    drop,
    hosted_prefix,
    in_text,
    message_item,
    message_of,
    write_picture,
)
from toolwire.protocols.openai_responses.names import CALLS, NAME
from toolwire.protocols.openai_responses.parts import own, write_citation
from toolwire.sse import named
from toolwire.wire import Json, Object, encode

_Closed = tuple[bytes, Object | None]


class Sequence:
    """Numbers the events of one answer."""

    __slots__ = ("numbers",)

    def __init__(self, first: int = 0) -> None:
        self.numbers = count(first)

    def event(self, kind: str, fields: Object) -> bytes:
        return named(kind, encode({"type": kind, "sequence_number": next(self.numbers), **fields}))

    def delta(self, form: bytes, text: str) -> bytes:
        """A delta from its prepared frame: only its number and its text are new."""
        return form % (next(self.numbers), encode(text))


def prepared(kind: str, fields: Object) -> bytes:
    """The frame of a kind of delta, with gaps for its number and its text."""
    head = f'event: {kind}\ndata: {{"type":"{kind}","sequence_number":%d,'.encode()
    return head + encode(fields)[1:-1].replace(b"%", b"%%") + b',"delta":%b}\n\n'


class OpenItem:
    """An item that is on the wire and not yet done."""

    lingers = False
    """May more parts join it? Then it is closed only when something else comes."""

    def __init__(self, part: Part, id: str, number: int, ledger: Ledger) -> None:
        self.part = part
        self.id = id
        self.number = number
        self.ledger = ledger
        self.pieces: list[str] = []
        self.seal: Seal | None = None
        self.form = b""
        self.grows: type[TextDelta | ArgumentsDelta] | None = None
        """Deltas that are told as they come, in this form; all others go to `grow`."""

    def begin(self, out: Sequence) -> bytes:
        return b""

    def go_on(self, part: Part, out: Sequence) -> bytes:
        """Another part joins."""
        return b""

    def grow(self, event: Event, out: Sequence) -> bytes:
        return b""

    def end(self, incomplete: bool, out: Sequence) -> bytes:
        """The part that is open is complete."""
        return b""

    def close(self, cut: bool, out: Sequence) -> _Closed:
        return b"", None

    def added(self, item: Object, out: Sequence) -> bytes:
        return out.event("response.output_item.added", {"output_index": self.number, "item": item})

    def done(self, item: Object, out: Sequence) -> bytes:
        return out.event("response.output_item.done", {"output_index": self.number, "item": item})

    def about(self, **fields: Json) -> Object:
        return {"item_id": self.id, "output_index": self.number, **fields}


class OpenMessage(OpenItem):
    lingers = True

    def __init__(self, part: Part, id: str, number: int, ledger: Ledger) -> None:
        super().__init__(part, id, number, ledger)
        self.first = part
        self.content: list[Object] = []
        self.held: list[Citation] = []
        """Citations of all of a text, whose end is not known before it ends."""
        self.annotations: list[Object] = []

    def begin(self, out: Sequence) -> bytes:
        return self.added(message_item(self.id, "in_progress", [], self.first), out) + self.go_on(self.part, out)

    def go_on(self, part: Part, out: Sequence) -> bytes:
        self.part = part
        self.pieces = []
        self.held, self.annotations = [], []
        self.grows = None
        if isinstance(part, Opaque):
            return self._carry(part, out)
        self.grows = TextDelta
        at = self.about(content_index=len(self.content))
        empty = content_part(Refusal("") if isinstance(part, Refusal) else Text(""), self.ledger)
        self.form = prepared(f"response.{_word(part)}.delta", at)
        begun = out.event("response.content_part.added", {**at, "part": empty})
        text = part.text if isinstance(part, (Text, Refusal)) else ""
        begun += self._say(text, out) if text else b""
        for citation in part.citations if isinstance(part, Text) else ():
            begun += self._hold(citation, out)
        return begun

    def _carry(self, part: Opaque, out: Sequence) -> bytes:
        whole = content_part(part, self.ledger)
        if whole is None:
            return b""
        at = self.about(content_index=len(self.content))
        self.content.append(whole)
        added = out.event("response.content_part.added", {**at, "part": whole})
        return added + out.event("response.content_part.done", {**at, "part": whole})

    def grow(self, event: Event, out: Sequence) -> bytes:
        if isinstance(event, CitationDelta) and isinstance(self.part, Text):
            return self._hold(event.citation, out)
        if isinstance(event, SealDelta):
            self.ledger.note("seal-dropped", None, "the seal of a text was left out")
        return b""

    def _say(self, text: str, out: Sequence) -> bytes:
        self.pieces.append(text)
        return out.delta(self.form, text)

    def _hold(self, citation: Citation, out: Sequence) -> bytes:
        if citation.end is None and not own(citation.origin):
            self.held.append(citation)
            return b""
        return self._cite(citation, out)

    def _cite(self, citation: Citation, out: Sequence) -> bytes:
        written = write_citation(citation, sum(map(len, self.pieces)), self.ledger)
        if written is None:
            return b""
        at = self.about(content_index=len(self.content), annotation_index=len(self.annotations))
        self.annotations.append(written)
        return out.event("response.output_text.annotation.added", {**at, "annotation": written})

    def end(self, incomplete: bool, out: Sequence) -> bytes:
        if isinstance(self.part, Opaque):
            return b""
        text = "".join(self.pieces)
        at = self.about(content_index=len(self.content))
        cited = b"".join([self._cite(citation, out) for citation in self.held])
        if isinstance(self.part, Refusal):
            whole: Object = {"type": "refusal", "refusal": text}
            said = out.event("response.refusal.done", {**at, "refusal": text})
        else:
            whole = {"type": "output_text", "text": text, "annotations": self.annotations, "logprobs": []}
            said = cited + out.event("response.output_text.done", {**at, "text": text, "logprobs": []})
        self.content.append(whole)
        return said + out.event("response.content_part.done", {**at, "part": whole})

    def close(self, cut: bool, out: Sequence) -> _Closed:
        item = message_item(self.id, "incomplete" if cut else "completed", self.content, self.first)
        item["status"] = "incomplete" if cut else "completed"
        return self.done(item, out), item


def _word(part: Part) -> str:
    return "refusal" if isinstance(part, Refusal) else "output_text"


class OpenReasoning(OpenItem):
    part: Reasoning

    def __init__(self, part: Reasoning, id: str, number: int, ledger: Ledger) -> None:
        super().__init__(part, id, number, ledger)
        self.seal = part.seal
        self.raw = part.form == "raw"
        self.at = self.about(content_index=0) if self.raw else self.about(summary_index=0)
        self.stem = "response.reasoning_text" if self.raw else "response.reasoning_summary_text"
        self.around = "response.content_part" if self.raw else "response.reasoning_summary_part"
        self.form = prepared(f"{self.stem}.delta", self.at)

    def _piece(self, text: str) -> Object:
        return {"type": "reasoning_text" if self.raw else "summary_text", "text": text}

    def begin(self, out: Sequence) -> bytes:
        bare = replace(self.part, text="", form="", seal=None)
        begun = self.added(write_reasoning(bare, self.ledger, self.id), out)
        return begun + (self._say(self.part.text, out) if self.part.text else b"")

    def _say(self, text: str, out: Sequence) -> bytes:
        begun = b"" if self.pieces else out.event(f"{self.around}.added", {**self.at, "part": self._piece("")})
        self.pieces.append(text)
        self.grows = TextDelta
        return begun + out.delta(self.form, text)

    def grow(self, event: Event, out: Sequence) -> bytes:
        if isinstance(event, TextDelta) and event.text:
            return self._say(event.text, out)
        if isinstance(event, SealDelta):
            self.seal = event.seal
        return b""

    def close(self, cut: bool, out: Sequence) -> _Closed:
        text = "".join(self.pieces)
        said = b""
        if self.pieces:
            said = out.event(f"{self.stem}.done", {**self.at, "text": text})
            said += out.event(f"{self.around}.done", {**self.at, "part": self._piece(text)})
        whole = replace(self.part, text=text, form=self.part.form if text else "", seal=self.seal)
        item = write_reasoning(whole, self.ledger, self.id)
        return said + self.done(item, out), item


class OpenCall(OpenItem):
    part: Call

    def __init__(self, part: Call, id: str, number: int, ledger: Ledger) -> None:
        super().__init__(part, id, number, ledger)
        self.shape = CALLS.get(part.kind, CALLS["function"])
        self.seal = part.seal
        self.incomplete = part.incomplete
        if self.shape.event:
            self.form = prepared(f"{self.shape.event}.delta", self.about())
            self.grows = ArgumentsDelta

    def begin(self, out: Sequence) -> bytes:
        bare = replace(self.part, arguments="", seal=None, cache=None, incomplete=True)
        begun = self.added(write_call(bare, self.ledger, self.id, "in_progress"), out)
        return begun + (self._say(self.part.arguments, out) if self.part.arguments else b"")

    def _say(self, text: str, out: Sequence) -> bytes:
        self.pieces.append(text)
        return out.delta(self.form, text) if self.shape.event else b""

    def grow(self, event: Event, out: Sequence) -> bytes:
        if isinstance(event, ArgumentsDelta) and event.text:
            return self._say(event.text, out)
        if isinstance(event, SealDelta):
            self.seal = event.seal
        return b""

    def end(self, incomplete: bool, out: Sequence) -> bytes:
        self.incomplete = self.incomplete or incomplete
        return b""

    def close(self, cut: bool, out: Sequence) -> _Closed:
        call = replace(self.part, arguments="".join(self.pieces), seal=self.seal, incomplete=self.incomplete)
        item = write_call(call, self.ledger, self.id, "incomplete" if self.incomplete else "completed")
        said = b""
        if self.shape.event:
            text = item[self.shape.payload]
            if text and not self.pieces:
                said = out.delta(self.form, text)
            named_too = {"name": call.name} if self.shape.kind == "function" else {}
            said += out.event(f"{self.shape.event}.done", self.about(**named_too, **{self.shape.payload: text}))
        return said + self.done(item, out), item


class OpenHosted(OpenItem):
    """What a provider's tool did; what it found joins the same item."""

    lingers = True
    part: HostedCall

    def __init__(self, part: HostedCall, id: str, number: int, ledger: Ledger) -> None:
        super().__init__(part, id, number, ledger)
        self.result: HostedResult | None = None
        self.found: list[str] = []
        self.sources: list[Citation] = []
        self.pieces = [part.arguments] if part.arguments else []
        self.stem = ""

    def begin(self, out: Sequence) -> bytes:
        bare = replace(self.part, arguments="")
        item = write_hosted(bare, None, self.ledger, self.id, "in_progress")
        self.stem = f"response.{item['type']}"
        said = self.added(item, out)
        for step in BEGUN[item["type"]]:
            said += out.event(f"{self.stem}.{step}", self.about())
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

    def close(self, cut: bool, out: Sequence) -> _Closed:
        result = self.result
        if result is not None:
            sources = (*result.sources, *self.sources)
            result = replace(result, text=result.text + "".join(self.found), sources=sources)
        call = replace(self.part, arguments="".join(self.pieces))
        item = write_hosted(call, result, self.ledger, self.id)
        return out.event(f"{self.stem}.completed", self.about()) + self.done(item, out), item


class OpenWhole(OpenItem):
    """An item that is known whole at once."""

    def __init__(self, item: Object, part: Part, number: int, ledger: Ledger) -> None:
        super().__init__(part, str(item.get("id") or ""), number, ledger)
        self.item = item

    def begin(self, out: Sequence) -> bytes:
        return self.added(self.item, out)

    def close(self, cut: bool, out: Sequence) -> _Closed:
        return self.done(self.item, out), self.item


def open_item(part: Part, names: Names, number: int, ledger: Ledger) -> OpenItem | None:
    """The item that a part begins, or None (noted) when this protocol has none for it."""
    if in_text(part):
        wire = message_of(part)
        given = "" if wire is None else str(wire.get("id") or "")
        return OpenMessage(part, names.name("msg_", given, number), number, ledger)
    match part:
        case Call():
            shape = CALLS.get(part.kind, CALLS["function"])
            return OpenCall(part, names.name(shape.prefix, part.item, number), number, ledger)
        case Reasoning():
            return OpenReasoning(part, names.name("rs_", part.id, number), number, ledger)
        case HostedCall(tool=tool) if can_write_hosted(tool):
            return OpenHosted(part, names.name(hosted_prefix(tool), part.id, number), number, ledger)
        case Media(kind="image") if part.data:
            return OpenWhole(write_picture(part, names.name("ig_", "", number)), part, number, ledger)
        case Opaque() if part.origin.protocol == NAME:
            return OpenWhole(part.origin.wire, part, number, ledger)
    drop(part, ledger)
    return None
