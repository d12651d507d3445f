"""Writes an Anthropic stream: each part is a content block."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from toolwire.core import events as ev
from toolwire.core import tokens
from toolwire.core.block_writer import BlockPart, BlockWriter
from toolwire.core.codec import DeltaWriter, WriteContext
from toolwire.core.ir import (
    Call,
    Citation,
    Finish,
    Part,
    ProviderCall,
    ProviderResult,
    Reasoning,
    Refusal,
    Text,
    Usage,
    source_path,
)
from toolwire.core.json_values import Object, encode, encode_text
from toolwire.core.losses import Ledger
from toolwire.core.provenance import not_verbatim
from toolwire.core.sse import write_data_frame, write_event_frame
from toolwire.protocols.anthropic.content import write_citation, write_part
from toolwire.protocols.anthropic.errors import write_error
from toolwire.protocols.anthropic.names import NAME, RAW_ARGUMENTS_KEY, is_own, is_own_seal
from toolwire.protocols.anthropic.response import (
    DELTA_USAGE,
    MESSAGE_USAGE,
    ProviderToolUse,
    message_id,
    model_name,
    write_finish,
    write_usage,
)

_EMPTY_TEXT_BLOCK: Object = {"type": "text", "text": "", "citations": []}
_EMPTY_THINKING_BLOCK: Object = {"type": "thinking", "thinking": "", "signature": ""}
"""Blocks as content_block_start shows them."""
_BLOCK_START = b'event: content_block_start\ndata: {"type":"content_block_start","index":'
_BLOCK_STOP = b'event: content_block_stop\ndata: {"type":"content_block_stop","index":'
_MESSAGE_STOP = b'}\n\nevent: message_stop\ndata: {"type":"message_stop"}\n\n'

_TEXT_DELTA = '"text_delta","text":'
_DELTA_TYPES: Mapping[type, str] = {
    Call: '"input_json_delta","partial_json":',
    ProviderCall: '"input_json_delta","partial_json":',
    Reasoning: '"thinking_delta","thinking":',
}
"""The type of a part's deltas and the key of their text; all other parts have text deltas."""


class _OpenPart(BlockPart):
    __slots__ = ("citations", "is_blank")

    def __init__(self, part: Part) -> None:
        super().__init__(part)
        self.is_blank = True
        """Are there no arguments yet?"""
        self.citations: list[Citation] = []

    def write_delta(self, text: str) -> bytes:
        return self.delta_head + encode(text) + b"}}\n\n"


_STRUCTURE_EVENTS = frozenset(
    "message_start message_delta message_stop content_block_start content_block_delta content_block_stop".split()
)


class StreamWriter(BlockWriter[_OpenPart]):
    protocol = NAME
    part_type = _OpenPart

    def __init__(self, ledger: Ledger, context: WriteContext) -> None:
        super().__init__(ledger, context)
        self._message_id = ""
        self._tool_use = ProviderToolUse(context.request)

    def delta_writer(self, kind: type[ev.Delta], index: int) -> DeltaWriter | None:
        open_part = self._open_parts.get(index)
        if open_part is None or index != self._open_index:
            return None
        # Where the writer needs the texts of the deltas, or must look at each of them, they are written as events.
        if kind is ev.ArgumentsDelta:
            is_collected = open_part.is_blank or open_part.is_custom_call
        else:
            is_collected = isinstance(open_part.part, Text) and self._tool_use.may_cite_by_position
        return None if is_collected else open_part.write_delta

    def track_event(self, event: ev.Event) -> None:
        super().track_event(event)
        if isinstance(event, ev.PartStart):
            self._open_parts[event.index].is_blank = False

    # --- the message ---

    def write_start(self, event: ev.ResponseStart) -> bytes:
        context = self._context
        usage = event.usage
        if usage is None or not usage.input:
            # Agents show the use of the context from this; the exact count comes at the end.
            estimate = context.input_tokens
            if estimate is None:
                estimate = 0 if context.request is None else tokens.estimate_tokens(context.request)
            usage = Usage(estimate)
        self._message_id = message_id(event.id, context)
        message: Object = {
            "id": self._message_id,
            "type": "message",
            "role": "assistant",
            "model": model_name(event.model, self._ledger, context),
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "stop_details": None,
            "container": None,
            "usage": write_usage(usage, self._ledger, MESSAGE_USAGE),
        }
        return b'event: message_start\ndata: {"type":"message_start","message":' + encode(message) + b"}\n\n"

    def write_response_end(self, event: ev.ResponseEnd) -> bytes:
        self._ended = True
        out = self._write_block_stop() + self._release_waiting(True)
        more = self._tool_use.take_final_parts(self._finish, self._message_id)
        if more:
            out += self._write_whole_blocks(more)
        finish = write_finish(self._finish or Finish("stop"), self._has_refusal, self._ledger)
        usage = write_usage(self._usage, self._ledger, DELTA_USAGE, self._tool_use.used)
        delta = b'event: message_delta\ndata: {"type":"message_delta","delta":' + encode(finish | {"container": None})
        return out + delta + b',"usage":' + encode(usage) + _MESSAGE_STOP

    def write_failure(self, event: ev.ResponseFailed) -> bytes:
        self._ended = True
        return write_event_frame("error", encode(write_error(event.failure).body))

    def write_opaque_event(self, event: ev.OpaqueEvent) -> bytes:
        wire = event.origin.wire
        if is_own(event.origin) and isinstance(wire, dict) and wire.get("type") not in _STRUCTURE_EVENTS:
            return write_event_frame(event.kind, encode(wire)) if event.kind else write_data_frame(encode(wire))
        return super().write_opaque_event(event)

    # --- parts ---

    def _needs_block(self, open_part: _OpenPart, event: ev.PartEvent) -> bool:
        """Does this event write something now?"""
        part = open_part.part
        if isinstance(event, ev.PartEnd):
            is_text = isinstance(part, (Text, Refusal))
            return not is_text and (not isinstance(part, Reasoning) or open_part.seal is not None)
        if isinstance(event, ev.PartStart):
            if isinstance(part, (Text, Refusal, Reasoning, ProviderResult)):
                return bool(part.text or (isinstance(part, Text) and part.citations))
            return open_part.is_call
        if isinstance(event, ev.TextDelta):
            return bool(event.text) and not isinstance(part, ProviderResult)
        return isinstance(event, ev.ArgumentsDelta) or (isinstance(event, ev.CitationDelta) and isinstance(part, Text))

    def _delta_head(self, number: int, part: Part) -> bytes:
        kind = _DELTA_TYPES.get(type(part), _TEXT_DELTA)
        data = f'{{"type":"content_block_delta","index":{number},"delta":{{"type":{kind}'
        return b"event: content_block_delta\ndata: " + data.encode()

    def _write_stop(self, number: int) -> bytes:
        return _BLOCK_STOP + str(number).encode() + b"}\n\n"

    def _write_whole_blocks(self, parts: list[Part]) -> bytes:
        """Blocks that are complete when they start."""
        out: list[bytes] = []
        for part in parts:
            block, number = encode(write_part(part, self._ledger, True)), str(self._block_count).encode()
            out += [_BLOCK_START, number, b',"content_block":', block, b"}\n\n", _BLOCK_STOP, number, b"}\n\n"]
            self._block_count += 1
        return b"".join(out)

    def _write_block_start(self, index: int, open_part: _OpenPart, block: Object) -> bytes:
        number = str(self._block_count).encode()
        self._take_block(index, open_part)
        return _BLOCK_START + number + b',"content_block":' + encode(block) + b"}\n\n"

    def _ensure_block(self, index: int, open_part: _OpenPart) -> bytes:
        """Start a block of text or thinking, unless the part has one."""
        if open_part.delta_head:
            return b""
        is_thinking = isinstance(open_part.part, Reasoning)
        return self._write_block_start(index, open_part, _EMPTY_THINKING_BLOCK if is_thinking else _EMPTY_TEXT_BLOCK)

    def _write_block_delta(self, index: int, open_part: _OpenPart, delta: Object) -> bytes:
        out = self._ensure_block(index, open_part)
        event = {"type": "content_block_delta", "index": self._block_count - 1, "delta": delta}
        return out + write_event_frame("content_block_delta", encode(event))

    def _write_part_start(self, open_part: _OpenPart, event: ev.PartStart) -> bytes:
        part = event.part
        if isinstance(part, (Call, ProviderCall)):
            return self._write_call_start(open_part, event.index, part)
        if isinstance(part, Reasoning):
            open_part.seal = part.seal
        elif isinstance(part, Refusal):
            self._has_refusal = True
            self._ledger.note("refusal-as-text", source_path(part), "a refusal became text")
        elif not isinstance(part, Text):
            return b""
        elif part.seal is not None:
            self._ledger.note("seal-dropped", source_path(part), "the signature of a text was removed")
        if isinstance(part, (Text, Refusal)):
            self._ledger.note_logprobs(part.logprobs)
        is_shown = bool(part.text) and not (isinstance(part, Reasoning) and part.hidden)
        out = self._write_text(open_part, ev.TextDelta(event.index, part.text)) if is_shown else b""
        for citation in part.citations if isinstance(part, Text) else ():
            out += self._write_citation(open_part, ev.CitationDelta(event.index, citation))
        return out

    def _write_call_start(self, open_part: _OpenPart, index: int, part: Call | ProviderCall) -> bytes:
        """Start a call without arguments: agents read them only from the deltas."""
        if isinstance(part, ProviderCall):
            self._tool_use.add_call(part)
            start: Part = replace(part, arguments="", origin=not_verbatim(part.origin))
        else:
            if part.seal is not None:
                self._ledger.note("seal-dropped", source_path(part), "the signature of a call was removed")
            start = replace(part, arguments="", kind="function", seal=None, origin=not_verbatim(part.origin))
        block = write_part(start, self._ledger, True)
        if block is None:
            del self._open_parts[index]
            return b""
        block["input"] = {}
        out = self._write_block_start(index, open_part, block)
        return out + self._write_arguments(open_part, ev.ArgumentsDelta(index, part.arguments))

    def _write_text(self, open_part: _OpenPart, event: ev.TextDelta) -> bytes:
        if event.logprobs:
            self._ledger.note_logprobs(event.logprobs)
        if isinstance(open_part.part, ProviderResult) or not event.text:
            open_part.pieces.append(event.text)
            return b""
        out = b""
        if not open_part.delta_head:
            if isinstance(open_part.part, Text):
                out = self._write_whole_blocks(self._tool_use.take_missing_results())
            out += self._ensure_block(event.index, open_part)
        if self._tool_use.may_cite_by_position and isinstance(open_part.part, Text):
            open_part.pieces.append(event.text)
        return out + open_part.write_delta(event.text)

    def _write_arguments(self, open_part: _OpenPart, event: ev.ArgumentsDelta) -> bytes:
        if open_part.is_custom_call:
            open_part.pieces.append(event.text)
            return b""
        if open_part.is_blank and event.text.strip():
            open_part.is_blank = False
        return open_part.write_delta(event.text) if event.text else b""

    def _write_seal(self, open_part: _OpenPart, event: ev.SealDelta) -> bytes:
        open_part.seal = event.seal
        if not isinstance(open_part.part, Reasoning):
            self._ledger.note("seal-dropped", source_path(open_part.part), "a signature was removed")
        return b""

    def _write_citation(self, open_part: _OpenPart, event: ev.CitationDelta) -> bytes:
        if not isinstance(open_part.part, Text):
            open_part.citations.append(event.citation)
            return b""
        self._tool_use.add_citation(event.citation)
        cited = open_part.part if event.citation.quote else replace(open_part.part, text="".join(open_part.pieces))
        wire = write_citation(event.citation, cited, self._ledger, True)
        delta = {"type": "citations_delta", "citation": wire}
        return b"" if wire is None else self._write_block_delta(event.index, open_part, delta)

    def _write_part_end(self, open_part: _OpenPart, event: ev.PartEnd) -> bytes:
        if open_part.is_call:
            return self._write_final_arguments(open_part)
        if isinstance(open_part.part, Reasoning):
            return self._write_signature(open_part, event.index)
        return b"" if isinstance(open_part.part, (Text, Refusal)) else self._write_whole_part(open_part, event.index)

    def _write_final_arguments(self, open_part: _OpenPart) -> bytes:
        if open_part.is_custom_call:
            what = f"raw input is sent as text under `{RAW_ARGUMENTS_KEY}`"
            self._ledger.note("arguments-wrapped", source_path(open_part.part), what)
            return open_part.write_delta(encode_text({RAW_ARGUMENTS_KEY: "".join(open_part.pieces)}))
        return open_part.write_delta("{}") if open_part.is_blank else b""

    def _write_signature(self, open_part: _OpenPart, index: int) -> bytes:
        """Write the signature, which comes last."""
        assert isinstance(open_part.part, Reasoning)
        seal = open_part.seal
        if not is_own_seal(seal):
            if seal is not None:
                what = "the signature of another provider was removed"
                self._ledger.note("seal-dropped", source_path(open_part.part), what)
            return b""
        if open_part.part.hidden:
            return self._write_block_start(index, open_part, {"type": "redacted_thinking", "data": seal.value})
        return self._write_block_delta(index, open_part, {"type": "signature_delta", "signature": seal.value})

    def _write_whole_part(self, open_part: _OpenPart, index: int) -> bytes:
        """Write a part that comes in one piece."""
        part = open_part.part
        if isinstance(part, ProviderResult):
            self._tool_use.add_result(part.id)
            if open_part.pieces or open_part.citations:
                text, sources = part.text + "".join(open_part.pieces), (*part.sources, *open_part.citations)
                part = replace(part, text=text, sources=sources, origin=not_verbatim(part.origin))
        block = write_part(part, self._ledger, True)
        return b"" if block is None else self._write_block_start(index, open_part, block)
