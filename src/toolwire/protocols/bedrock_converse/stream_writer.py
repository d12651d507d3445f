"""Writes a stream of Converse: each part is a block, and one block is open at a time.

A part opens its block when it has something to write and no other block is open; a call is never interrupted. Only
calls have a `contentBlockStart`: boto3 gives a stream up that starts a text or sends a union without a member.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from msgspec.structs import replace

from toolwire.core import events as ev
from toolwire.core.codec import DeltaWriter, WriteContext
from toolwire.core.envelopes import ENVELOPE_PREFIX
from toolwire.core.event_stream import write_event
from toolwire.core.event_writer import EventWriter
from toolwire.core.framing import write_source_message
from toolwire.core.ir import (
    Call,
    Citation,
    Part,
    ProviderCall,
    ProviderResult,
    Reasoning,
    Refusal,
    Seal,
    Text,
    source_path,
)
from toolwire.core.json_values import Object, encode, encode_text
from toolwire.core.losses import Ledger
from toolwire.protocols.bedrock_converse.content import Writing, write_citation, write_part
from toolwire.protocols.bedrock_converse.errors import write_stream_error
from toolwire.protocols.bedrock_converse.names import (
    NAME,
    NAME_BY_PROVIDER_TOOL,
    RAW_ARGUMENTS_KEY,
    is_own,
    is_own_seal,
)
from toolwire.protocols.bedrock_converse.response import note_names, write_finish, write_metadata


class _OpenPart:
    """A part that was started."""

    __slots__ = ("delta_head", "has_block", "part", "pieces", "seal")

    def __init__(self, part: Part) -> None:
        self.part = part
        self.has_block = False
        """Was anything of it written?"""
        self.delta_head = b""
        """The payload of a delta before its text, in its open block; b"" if it has none."""
        self.pieces: list[str] = []
        """The text so far, where something depends on all of it."""
        self.seal: Seal | None = None

    @property
    def is_call(self) -> bool:
        return isinstance(self.part, (Call, ProviderCall))


_DELTA_KEYS: Mapping[type, str] = {
    Call: '{"toolUse":{"input":',
    ProviderCall: '{"toolUse":{"input":',
    Reasoning: '{"reasoningContent":{"text":',
}
_TEXT_KEY = '{"text":'


class StreamWriter(EventWriter):
    protocol = NAME

    def __init__(self, ledger: Ledger, context: WriteContext) -> None:
        super().__init__(ledger, context)
        self._open_parts: dict[int, _OpenPart] = {}
        self._block_holder: int | None = None
        """The part whose block is open."""
        self._waiting: dict[int, list[ev.PartEvent]] = {}
        """Events of parts that wait until a call has ended."""
        self._block_count = 0
        self._has_calls = False
        self._has_refusal = False

    def delta_writer(self, kind: type[ev.Delta], index: int) -> DeltaWriter | None:
        open_part = self._open_parts.get(index)
        if open_part is None or index != self._block_holder or not open_part.delta_head:
            return None
        if kind is ev.ArgumentsDelta and (_is_custom(open_part.part) or not open_part.pieces):
            return None
        if kind is ev.TextDelta and isinstance(open_part.part, Text):
            return None  # a citation may quote it
        return lambda text: _write_text_delta(open_part.delta_head, open_part.part, text)

    write_frame = staticmethod(write_source_message)

    def track_event(self, event: ev.Event) -> None:
        if isinstance(event, ev.PartStart):
            open_part = self._open_parts[event.index] = _OpenPart(event.part)
            self._take_block(event.index, open_part)
            self._has_calls = self._has_calls or isinstance(event.part, Call)
        elif isinstance(event, ev.PartEnd):
            self._open_parts.pop(event.index, None)
            if self._block_holder == event.index:
                self._block_holder = None
        elif isinstance(event, ev.UsageUpdate):
            self._usage = event.usage
        elif isinstance(event, ev.ChoiceEnd):
            self._finish = event.finish
        else:
            super().track_event(event)

    # --- the message ---

    def write_start(self, event: ev.ResponseStart) -> bytes:
        note_names(event.id, event.model, event.origin, self._ledger)
        return write_event("messageStart", b'{"role":"assistant"}')

    def write_response_end(self, event: ev.ResponseEnd) -> bytes:
        self._ended = True
        out = self._write_block_stop() + self._release_waiting(True)
        request = self._context.request
        stop = write_finish(self._finish, self._has_calls, self._has_refusal, self._ledger, request)
        metadata = write_metadata(self._usage, self._ledger)
        return out + write_event("messageStop", encode(stop)) + write_event("metadata", encode(metadata))

    def write_failure(self, event: ev.ResponseFailed) -> bytes:
        self._ended = True
        return write_stream_error(event.failure)

    def write_opaque_event(self, event: ev.OpaqueEvent) -> bytes:
        if is_own(event.origin) and isinstance(event.origin.wire, dict) and event.kind not in _STRUCTURE_EVENTS:
            return write_event(event.kind, encode(event.origin.wire))
        return super().write_opaque_event(event)

    # --- parts ---

    def _write_part(self, event: ev.PartEvent) -> bytes:
        index = event.index
        if isinstance(event, ev.PartStart):
            if event.choice != 0:
                what = f"answer {event.choice} was left out"
                self._ledger.note("no-counterpart", None, what, "there is one answer only")
                return b""
            self._open_parts[index] = _OpenPart(event.part)
        open_part = self._open_parts.get(index)
        if open_part is None:
            return b""
        if index in self._waiting:
            self._waiting[index].append(event)
            return b""
        holder = None if self._block_holder is None else self._open_parts[self._block_holder]
        if holder is not None and holder is not open_part and holder.is_call:
            self._waiting[index] = [event]
            return b""
        out = _PART_EVENT_WRITERS[type(event)](self, open_part, event)
        if isinstance(event, ev.PartEnd):
            if self._block_holder == index:
                out += self._write_block_stop()
            self._open_parts.pop(index, None)
            out += self._release_waiting(False)
        return out

    write_part_start = write_text = write_arguments = write_seal = write_citation = write_part_end = _write_part

    def _release_waiting(self, force: bool) -> bytes:
        """Write the parts that waited, in their order, until one of them is a call that has not ended."""
        out: list[bytes] = []
        while self._waiting:
            holder = None if self._block_holder is None else self._open_parts[self._block_holder]
            if holder is not None and holder.is_call:
                if not force:
                    break
                out.append(self._write_block_stop())
            waiting, self._waiting = self._waiting, {}
            first = next(iter(waiting))
            out += map(self._write_part, waiting.pop(first))
            # What came up meanwhile is behind the others, except for more of the same parts.
            self._waiting = {**waiting, **{key: events for key, events in self._waiting.items() if key not in waiting}}
        if force:
            out.append(self._write_block_stop())
        return b"".join(out)

    def _take_block(self, index: int, open_part: _OpenPart) -> None:
        """Write this part into a new block from now on."""
        number, self._block_holder = self._block_count, index
        self._block_count += 1
        key = _DELTA_KEYS.get(type(open_part.part), _TEXT_KEY)
        open_part.has_block = True
        open_part.delta_head = f'{{"contentBlockIndex":{number},"delta":{key}'.encode()

    def _ensure_block(self, index: int, open_part: _OpenPart) -> bytes:
        """The end of another block, if this part has none that is open."""
        if self._block_holder == index:
            return b""
        out = self._write_block_stop()
        self._take_block(index, open_part)
        return out

    def _write_block_stop(self) -> bytes:
        if self._block_holder is None:
            return b""
        self._open_parts[self._block_holder].delta_head = b""
        self._block_holder = None
        return write_event("contentBlockStop", b'{"contentBlockIndex":%d}' % (self._block_count - 1))

    def _write_delta(self, index: int, open_part: _OpenPart, delta: Object) -> bytes:
        out = self._ensure_block(index, open_part)
        payload = {"contentBlockIndex": self._block_count - 1, "delta": delta}
        return out + write_event("contentBlockDelta", encode(payload))

    def _write_part_start(self, open_part: _OpenPart, event: ev.PartStart) -> bytes:
        part, index = event.part, event.index
        if isinstance(part, Call):
            return self._write_call_start(index, open_part, part)
        if isinstance(part, ProviderCall):
            return self._write_provider_call_start(index, open_part, part)
        if isinstance(part, Reasoning):
            open_part.seal = part.seal
        elif isinstance(part, Refusal):
            self._has_refusal = True
            self._ledger.note("refusal-as-text", source_path(part), "a refusal became text")
        elif not isinstance(part, (Text, ProviderResult)):
            return self._write_whole_block(index, open_part, part)
        elif isinstance(part, Text) and part.seal is not None:
            self._ledger.note("seal-dropped", source_path(part), "the signature of a text was removed")
        if isinstance(part, (Text, Refusal)):
            self._ledger.note_logprobs(part.logprobs)
        has_text = isinstance(part, (Text, Refusal, Reasoning)) and bool(part.text)
        out = self._write_text(open_part, ev.TextDelta(index, part.text)) if has_text else b""
        for citation in part.citations if isinstance(part, Text) else ():
            out += self._write_citation(open_part, ev.CitationDelta(index, citation))
        return out

    def _write_call_start(self, index: int, open_part: _OpenPart, part: Call) -> bytes:
        if part.seal is not None:
            self._ledger.note("seal-dropped", source_path(part), "the signature of a call was removed")
        self._has_calls = True
        start: Object = {"toolUseId": part.id, "name": part.name}
        out = self._write_start(index, open_part, {"toolUse": start})
        return out + (
            self._write_arguments(open_part, ev.ArgumentsDelta(index, part.arguments)) if part.arguments else b""
        )

    def _write_provider_call_start(self, index: int, open_part: _OpenPart, part: ProviderCall) -> bytes:
        name = NAME_BY_PROVIDER_TOOL.get(part.tool)
        if name is None:
            self._ledger.note_provider_part(part)
            self._open_parts.pop(index)
            return b""
        start: Object = {"toolUseId": part.id, "name": name, "type": "server_tool_use"}
        out = self._write_start(index, open_part, {"toolUse": start})
        return out + (
            self._write_arguments(open_part, ev.ArgumentsDelta(index, part.arguments)) if part.arguments else b""
        )

    def _write_start(self, index: int, open_part: _OpenPart, start: Object) -> bytes:
        out = self._write_block_stop()
        self._take_block(index, open_part)
        return out + write_event(
            "contentBlockStart", encode({"contentBlockIndex": self._block_count - 1, "start": start})
        )

    def _write_whole_block(self, index: int, open_part: _OpenPart, part: Part) -> bytes:
        """An image, or what only this protocol knows."""
        block = write_part(part, Writing(self._ledger, in_response=True))
        if block is None:
            self._open_parts.pop(index)
            return b""
        member, value = next(iter(block.items()))
        if member == "image":
            out = self._write_start(index, open_part, {"image": {"format": value.get("format")}})
            return out + self._write_delta(index, open_part, {"image": {"source": value.get("source")}})
        if member == "toolUse":
            start = {key: inner for key, inner in value.items() if key != "input"}
            out = self._write_start(index, open_part, {"toolUse": start})
            return out + self._write_delta(
                index, open_part, {"toolUse": {"input": encode_text(value.get("input") or {})}}
            )
        if member == "toolResult":
            return self._write_result(index, open_part, value)
        if member == "reasoningContent":
            return self._write_delta(index, open_part, block)
        self._ledger.note("part-dropped", source_path(part), f"`{member}` was left out", "streams have no such block")
        self._open_parts.pop(index)
        return b""

    def _write_result(self, index: int, open_part: _OpenPart, value: Object) -> bytes:
        start = {key: inner for key, inner in value.items() if key != "content"}
        out = self._write_start(index, open_part, {"toolResult": start})
        content = value.get("content")
        return out + (self._write_delta(index, open_part, {"toolResult": content}) if content else b"")

    def _write_text(self, open_part: _OpenPart, event: ev.TextDelta) -> bytes:
        part, text = open_part.part, event.text
        if event.logprobs:
            self._ledger.note_logprobs(event.logprobs)
        if not text:
            return b""
        if isinstance(part, ProviderResult):
            open_part.pieces.append(text)
            return b""
        if isinstance(part, Text):
            open_part.pieces.append(text)
        out = self._ensure_block(event.index, open_part)
        return out + _write_text_delta(open_part.delta_head, part, text)

    def _write_arguments(self, open_part: _OpenPart, event: ev.ArgumentsDelta) -> bytes:
        open_part.pieces.append(event.text)
        if not event.text or _is_custom(open_part.part):
            return b""
        return _write_text_delta(open_part.delta_head, open_part.part, event.text)

    def _write_seal(self, open_part: _OpenPart, event: ev.SealDelta) -> bytes:
        if isinstance(open_part.part, Reasoning):
            open_part.seal = event.seal
        else:
            self._ledger.note("seal-dropped", source_path(open_part.part), "a signature was removed")
        return b""

    def _write_citation(self, open_part: _OpenPart, event: ev.CitationDelta) -> bytes:
        part = open_part.part
        if isinstance(part, ProviderResult):
            open_part.part = _add_source(part, event.citation)
            return b""
        if not isinstance(part, Text):
            return b""
        told = Text("".join(open_part.pieces)) if open_part.pieces else part
        wire = write_citation(event.citation, told, Writing(self._ledger, in_response=True))
        return b"" if wire is None else self._write_delta(event.index, open_part, {"citation": wire})

    def _write_part_end(self, open_part: _OpenPart, event: ev.PartEnd) -> bytes:
        part, index = open_part.part, event.index
        if isinstance(part, Reasoning):
            return self._write_thought_end(index, open_part, part)
        if isinstance(part, ProviderResult):
            whole = replace(part, text=part.text + "".join(open_part.pieces))
            block = write_part(whole, Writing(self._ledger, in_response=True))
            return b"" if block is None else self._write_result(index, open_part, block["toolResult"])
        if open_part.is_call:
            return self._write_call_end(open_part, part)
        return b""

    def _write_thought_end(self, index: int, open_part: _OpenPart, part: Reasoning) -> bytes:
        """The signature is the last delta of its block, or the only one."""
        seal = open_part.seal
        if seal is None:
            return b""
        if not is_own_seal(seal):
            self._ledger.note("seal-dropped", source_path(part), "the signature of another provider was removed")
            return b""
        if part.hidden and not seal.value.startswith(ENVELOPE_PREFIX):
            block = write_part(replace(part, seal=seal, origin=None), Writing(self._ledger, in_response=True))
            inner = {} if block is None else block["reasoningContent"]
            if "redactedContent" in inner:
                return self._write_delta(index, open_part, {"reasoningContent": inner})
        return self._write_delta(index, open_part, {"reasoningContent": {"signature": seal.value}})

    def _write_call_end(self, open_part: _OpenPart, part: Part) -> bytes:
        text = "".join(open_part.pieces)
        if _is_custom(part):
            self._ledger.note(
                "arguments-wrapped", source_path(part), f"the input of a call is sent under `{RAW_ARGUMENTS_KEY}`"
            )
            return _write_text_delta(open_part.delta_head, part, encode_text({RAW_ARGUMENTS_KEY: text}))
        if not text or text.isspace():
            return b"" if text else _write_text_delta(open_part.delta_head, part, "{}")
        return b""


def _is_custom(part: Part) -> bool:
    return isinstance(part, Call) and part.kind == "custom"


def _add_source(part: ProviderResult, citation: Citation) -> ProviderResult:
    return replace(part, sources=(*part.sources, citation))


def _write_text_delta(head: bytes, part: Part, text: str) -> bytes:
    """`head` ends before the text; calls and thinking have one more level."""
    tail = b"}}" if isinstance(part, (Text, Refusal)) else b"}}}"
    return write_event("contentBlockDelta", head + encode(text) + tail)


_STRUCTURE_EVENTS = frozenset(
    "messageStart contentBlockStart contentBlockDelta contentBlockStop messageStop metadata".split()
)

_PART_EVENT_WRITERS: Mapping[type, Callable[..., bytes]] = {
    ev.PartStart: StreamWriter._write_part_start,
    ev.TextDelta: StreamWriter._write_text,
    ev.ArgumentsDelta: StreamWriter._write_arguments,
    ev.SealDelta: StreamWriter._write_seal,
    ev.CitationDelta: StreamWriter._write_citation,
    ev.PartEnd: StreamWriter._write_part_end,
}
