"""Writes a stream of Converse: each part is a block.

Only calls have a `contentBlockStart`: boto3 gives a stream up that starts a text or sends a union without a member.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from toolwire.core import events as ev
from toolwire.core.block_writer import BlockPart, BlockWriter
from toolwire.core.codec import DeltaWriter, WriteContext
from toolwire.core.envelopes import ENVELOPE_PREFIX
from toolwire.core.event_stream import write_event
from toolwire.core.framing import write_source_message
from toolwire.core.ir import (
    Call,
    Part,
    ProviderCall,
    ProviderResult,
    Reasoning,
    Refusal,
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

_DELTA_KEYS: Mapping[type, str] = {
    Call: '{"toolUse":{"input":',
    ProviderCall: '{"toolUse":{"input":',
    Reasoning: '{"reasoningContent":{"text":',
}
_TEXT_KEY = '{"text":'


class StreamWriter(BlockWriter[BlockPart]):
    protocol = NAME
    part_type = BlockPart

    def __init__(self, ledger: Ledger, context: WriteContext) -> None:
        super().__init__(ledger, context)
        self._has_calls = False
        self._writing = Writing(ledger, in_response=True)

    def delta_writer(self, kind: type[ev.Delta], index: int) -> DeltaWriter | None:
        open_part = self._open_parts.get(index)
        if open_part is None or index != self._open_index or not open_part.delta_head:
            return None
        if kind is ev.ArgumentsDelta and (open_part.is_custom_call or not open_part.pieces):
            return None
        if kind is ev.TextDelta and isinstance(open_part.part, Text):
            return None  # a citation may quote it
        return lambda text: _write_text_delta(open_part.delta_head, open_part.part, text)

    write_frame = staticmethod(write_source_message)

    def track_event(self, event: ev.Event) -> None:
        super().track_event(event)
        self._has_calls = self._has_calls or (isinstance(event, ev.PartStart) and isinstance(event.part, Call))

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

    def _needs_block(self, open_part: BlockPart, event: ev.PartEvent) -> bool:
        """Nothing of other parts is written inside of a call; what is written elsewhere ends the block before it."""
        return self._is_inside_call()

    def _delta_head(self, number: int, part: Part) -> bytes:
        return f'{{"contentBlockIndex":{number},"delta":{_DELTA_KEYS.get(type(part), _TEXT_KEY)}'.encode()

    def _write_stop(self, number: int) -> bytes:
        return write_event("contentBlockStop", b'{"contentBlockIndex":%d}' % number)

    def _ensure_block(self, index: int, open_part: BlockPart) -> bytes:
        """The end of another block, if this part has none that is open."""
        if self._open_index == index:
            return b""
        out = self._write_block_stop()
        self._take_block(index, open_part)
        return out

    def _write_delta(self, index: int, open_part: BlockPart, delta: Object) -> bytes:
        out = self._ensure_block(index, open_part)
        payload = {"contentBlockIndex": self._block_count - 1, "delta": delta}
        return out + write_event("contentBlockDelta", encode(payload))

    def _write_part_start(self, open_part: BlockPart, event: ev.PartStart) -> bytes:
        part, index = event.part, event.index
        if isinstance(part, (Call, ProviderCall)):
            return self._write_call_start(index, open_part, part)
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

    def _write_call_start(self, index: int, open_part: BlockPart, part: Call | ProviderCall) -> bytes:
        if isinstance(part, Call):
            if part.seal is not None:
                self._ledger.note("seal-dropped", source_path(part), "the signature of a call was removed")
            self._has_calls = True
            start: Object = {"toolUseId": part.id, "name": part.name}
        elif (name := NAME_BY_PROVIDER_TOOL.get(part.tool)) is not None:
            start = {"toolUseId": part.id, "name": name, "type": "server_tool_use"}
        else:
            self._ledger.note_provider_part(part)
            self._open_parts.pop(index)
            return b""
        out = self._write_start(index, open_part, {"toolUse": start})
        return (
            out + self._write_arguments(open_part, ev.ArgumentsDelta(index, part.arguments)) if part.arguments else out
        )

    def _write_start(self, index: int, open_part: BlockPart, start: Object) -> bytes:
        out = self._write_block_stop()
        self._take_block(index, open_part)
        return out + write_event(
            "contentBlockStart", encode({"contentBlockIndex": self._block_count - 1, "start": start})
        )

    def _write_whole_block(self, index: int, open_part: BlockPart, part: Part) -> bytes:
        """An image, or what only this protocol knows."""
        block = write_part(part, self._writing)
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

    def _write_result(self, index: int, open_part: BlockPart, value: Object) -> bytes:
        start = {key: inner for key, inner in value.items() if key != "content"}
        out = self._write_start(index, open_part, {"toolResult": start})
        content = value.get("content")
        return out + (self._write_delta(index, open_part, {"toolResult": content}) if content else b"")

    def _write_text(self, open_part: BlockPart, event: ev.TextDelta) -> bytes:
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

    def _write_arguments(self, open_part: BlockPart, event: ev.ArgumentsDelta) -> bytes:
        open_part.pieces.append(event.text)
        if not event.text or open_part.is_custom_call:
            return b""
        return _write_text_delta(open_part.delta_head, open_part.part, event.text)

    def _write_seal(self, open_part: BlockPart, event: ev.SealDelta) -> bytes:
        if isinstance(open_part.part, Reasoning):
            open_part.seal = event.seal
        else:
            self._ledger.note("seal-dropped", source_path(open_part.part), "a signature was removed")
        return b""

    def _write_citation(self, open_part: BlockPart, event: ev.CitationDelta) -> bytes:
        part = open_part.part
        if isinstance(part, ProviderResult):
            open_part.part = replace(part, sources=(*part.sources, event.citation))
            return b""
        if not isinstance(part, Text):
            return b""
        told = Text("".join(open_part.pieces)) if open_part.pieces else part
        wire = write_citation(event.citation, told, self._writing)
        return b"" if wire is None else self._write_delta(event.index, open_part, {"citation": wire})

    def _write_part_end(self, open_part: BlockPart, event: ev.PartEnd) -> bytes:
        part, index = open_part.part, event.index
        if isinstance(part, Reasoning):
            return self._write_thought_end(index, open_part, part)
        if isinstance(part, ProviderResult):
            whole = replace(part, text=part.text + "".join(open_part.pieces))
            block = write_part(whole, self._writing)
            return b"" if block is None else self._write_result(index, open_part, block["toolResult"])
        return self._write_call_end(open_part) if open_part.is_call else b""

    def _write_thought_end(self, index: int, open_part: BlockPart, part: Reasoning) -> bytes:
        """The signature is the last delta of its block, or the only one."""
        seal = open_part.seal
        if seal is None:
            return b""
        if not is_own_seal(seal):
            self._ledger.note("seal-dropped", source_path(part), "the signature of another provider was removed")
            return b""
        if part.hidden and not seal.value.startswith(ENVELOPE_PREFIX):
            block = write_part(replace(part, seal=seal, origin=None), self._writing)
            inner = {} if block is None else block["reasoningContent"]
            if "redactedContent" in inner:
                return self._write_delta(index, open_part, {"reasoningContent": inner})
        return self._write_delta(index, open_part, {"reasoningContent": {"signature": seal.value}})

    def _write_call_end(self, open_part: BlockPart) -> bytes:
        part, text = open_part.part, "".join(open_part.pieces)
        if open_part.is_custom_call:
            what = f"the input of a call is sent under `{RAW_ARGUMENTS_KEY}`"
            self._ledger.note("arguments-wrapped", source_path(part), what)
            return _write_text_delta(open_part.delta_head, part, encode_text({RAW_ARGUMENTS_KEY: text}))
        return b"" if text else _write_text_delta(open_part.delta_head, part, "{}")


def _write_text_delta(head: bytes, part: Part, text: str) -> bytes:
    """`head` ends before the text; calls and thinking have one more level."""
    tail = b"}}" if isinstance(part, (Text, Refusal)) else b"}}}"
    return write_event("contentBlockDelta", head + encode(text) + tail)


_STRUCTURE_EVENTS = frozenset(
    "messageStart contentBlockStart contentBlockDelta contentBlockStop messageStop metadata".split()
)
