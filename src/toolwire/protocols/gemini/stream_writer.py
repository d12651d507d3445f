"""Writes a Gemini stream: `data:` frames, each a small whole answer.

There are no events for the start and the end of a part. Calls are written whole, at their end. Text is written as it
comes, but the parts of one candidate keep their order: a later part waits until the earlier ones have ended. The last
chunk always has parts, a finishReason and usage, because the SDKs forget a turn that ends without them.
"""

from __future__ import annotations

from collections import defaultdict
from functools import partial

from msgspec import Struct
from msgspec.structs import replace

from toolwire.core import events as ev
from toolwire.core.codec import DeltaWriter, WriteContext
from toolwire.core.event_writer import EventWriter
from toolwire.core.ir import (
    Call,
    Citation,
    Finish,
    Logprobs,
    Part,
    ProviderCall,
    ProviderResult,
    Reasoning,
    Refusal,
    Seal,
    Text,
    source_path,
)
from toolwire.core.json_values import Object, encode
from toolwire.core.losses import Ledger
from toolwire.core.sse import escape_line_ends, write_data_frame
from toolwire.protocols.gemini.content_writer import PartWriteContext, write_part
from toolwire.protocols.gemini.errors import write_error_body
from toolwire.protocols.gemini.logprobs import write_logprobs
from toolwire.protocols.gemini.models import Family
from toolwire.protocols.gemini.names import NAME, is_own_seal
from toolwire.protocols.gemini.response import is_grounding, write_finish, write_grounding, write_head, write_usage

_TEXT_PARTS = (Text, Refusal, Reasoning)


class _OpenPart(Struct):
    """A part that was started."""

    part: Part
    choice: int
    pieces: list[str] = []
    citations: list[Citation] = []
    seal: Seal | None = None
    held_back: list[bytes] = []
    """Chunks that wait until the earlier parts have ended."""
    is_ended: bool = False


class _OpenCandidate(Struct):
    """One candidate: its parts that are not yet written, in order, and how it ended."""

    open_parts: list[_OpenPart] = []
    grounding_parts: list[tuple[int, Part]] = []
    finish: Finish | None = None
    has_cut_call: bool = False
    ended_text: str = ""
    """The text of all parts that have ended: positions of citations count from its start."""


_CONTENT_END = b'}],"role":"model"}'
_DELTA_HEAD = b'data: {"candidates":[{"content":{"parts":[{"text":'


class StreamWriter(EventWriter):
    protocol = NAME

    def __init__(self, ledger: Ledger, context: WriteContext) -> None:
        super().__init__(ledger, context)
        self._writing = PartWriteContext(ledger, Family(), in_response=True)
        self._response_start = ev.ResponseStart()
        self._tails: dict[int, bytes] = {}
        self._open_parts: dict[int, _OpenPart] = {}
        self._candidates: defaultdict[int, _OpenCandidate] = defaultdict(_OpenCandidate)
        self._end_sent = False
        """Did a frame of the provider hold the end?"""

    def delta_writer(self, kind: type[ev.Delta], index: int) -> DeltaWriter | None:
        return partial(self._write_delta, self._open_parts[index])

    # --- frames of our own protocol ---

    def write_verbatim(self, event: ev.Event, frame: ev.SourceFrame) -> bytes:
        """Write a frame of a Gemini provider as it came, once. We write the end only if no frame held it."""
        self._track_event(event)
        if isinstance(event, (ev.ResponseEnd, ev.ResponseFailed)):
            if frame.silent and (isinstance(event, ev.ResponseFailed) or not self._end_sent):
                return self._methods[type(event)](self, event)
            self._ended = True
        if frame.silent or frame is self._last_frame or frame.json is None:
            # Gemini clients fail on a `[DONE]`.
            return b""
        self._last_frame = frame
        self._end_sent = self._end_sent or _has_end(frame.json)
        return _write_frame(frame.json)

    def _track_event(self, event: ev.Event) -> bytes:
        """Remember what later chunks need; nothing is written."""
        if isinstance(event, ev.ResponseStart):
            self._response_start = event
        elif isinstance(event, ev.UsageUpdate):
            self._usage = event.usage
        elif isinstance(event, ev.ChoiceEnd):
            self._candidates[event.choice].finish = event.finish
        elif isinstance(event, ev.PartStart):
            # Its deltas may come without their frames, where a step changed them.
            self._open_parts[event.index] = _OpenPart(event.part, event.choice)
        elif isinstance(event, ev.PartEnd):
            self._open_parts.pop(event.index, None)
        return b""

    write_start = write_usage = write_choice_end = _track_event

    # --- parts ---

    def write_part_start(self, event: ev.PartStart) -> bytes:
        part = event.part
        open_part = self._open_parts[event.index] = _OpenPart(part, event.choice)
        if isinstance(part, Refusal):
            self._ledger.note("refusal-as-text", source_path(part), "the refusal became plain text")
        self._candidates[event.choice].open_parts.append(open_part)
        if isinstance(part, _TEXT_PARTS) and part.text:
            logprobs = () if isinstance(part, Reasoning) else part.logprobs
            open_part.pieces.append(part.text)
            open_part.held_back.append(self._write_text_chunk(open_part, part.text, logprobs))
        return b""

    def write_arguments(self, event: ev.ArgumentsDelta) -> bytes:
        return self._write_delta(self._open_parts[event.index], event.text)

    def write_text(self, event: ev.TextDelta) -> bytes:
        return self._write_delta(self._open_parts[event.index], event.text, event.logprobs)

    def _write_delta(self, open_part: _OpenPart, text: str, logprobs: Logprobs = ()) -> bytes:
        """Text is written as it comes, unless an earlier part is open; arguments wait for the end of their call."""
        open_part.pieces.append(text)
        if not isinstance(open_part.part, _TEXT_PARTS) or not (text or logprobs):
            return b""
        chunk = self._write_text_chunk(open_part, text, logprobs)
        open_parts = self._candidates[open_part.choice].open_parts
        if open_parts and open_parts[0] is not open_part:
            open_part.held_back.append(chunk)
            return b""
        if open_part.held_back:
            chunk = b"".join((*open_part.held_back, chunk))
            open_part.held_back = []
        return chunk

    def _write_text_chunk(self, open_part: _OpenPart, text: str, logprobs: Logprobs = ()) -> bytes:
        thought = b',"thought":true' if isinstance(open_part.part, Reasoning) else b""
        encoded = encode(text) if text.isascii() else escape_line_ends(encode(text))
        tail = self._chunk_tail(open_part.choice)
        if logprobs:
            written = escape_line_ends(encode(write_logprobs(logprobs, self._ledger)))
            tail = _CONTENT_END + b',"logprobsResult":' + written + tail.removeprefix(_CONTENT_END)
        return _DELTA_HEAD + encoded + thought + tail

    def write_seal(self, event: ev.SealDelta) -> bytes:
        self._open_parts[event.index].seal = event.seal
        return b""

    def write_citation(self, event: ev.CitationDelta) -> bytes:
        self._open_parts[event.index].citations.append(event.citation)
        return b""

    def _chunk_tail(self, choice: int) -> bytes:
        """What follows the text in every chunk of one candidate."""
        tail = self._tails.get(choice)
        if tail is None:
            heading = escape_line_ends(encode(self._response_head()))[1:]
            joint = b"}]," if len(heading) > 1 else b"}]"
            tail = self._tails[choice] = b'%b,"index":%d%b%b\n\n' % (_CONTENT_END, choice, joint, heading)
        return tail

    def write_part_end(self, event: ev.PartEnd) -> bytes:
        open_part = self._open_parts.pop(event.index)
        candidate = self._candidates[open_part.choice]
        open_part.is_ended = True
        open_part.held_back += self._write_closing_chunks(open_part, candidate, event.incomplete)
        out: list[bytes] = []
        while candidate.open_parts:
            first = candidate.open_parts[0]
            out += first.held_back
            first.held_back = []
            if not first.is_ended:
                break
            candidate.open_parts.pop(0)
        return b"".join(out)

    def _write_closing_chunks(self, open_part: _OpenPart, candidate: _OpenCandidate, incomplete: bool) -> list[bytes]:
        """What can be written only at the end of a part."""
        part, text = open_part.part, "".join(open_part.pieces)
        if isinstance(part, _TEXT_PARTS):
            if isinstance(part, Text):
                before, length = len(candidate.ended_text), len(text)
                cited = [
                    replace(one, start=before + (one.start or 0), end=before + (length if one.end is None else one.end))
                    for one in (*part.citations, *open_part.citations)
                ]
                candidate.ended_text += text
                if cited:
                    candidate.grounding_parts.append((0, Text(candidate.ended_text, tuple(cited), origin=part.origin)))
            seal = open_part.seal or (part.seal if not isinstance(part, Refusal) else None)
            if is_own_seal(seal):
                signed: Object = {"text": "", "thought": True} if isinstance(part, Reasoning) else {"text": ""}
                return [self._write_whole_part(signed | {"thoughtSignature": seal.value}, open_part.choice)]
            if seal is not None:
                self._ledger.note("seal-dropped", source_path(part), f"a seal of {seal.maker} was left out")
            return []
        if isinstance(part, Call):
            seal, cut = open_part.seal or part.seal, incomplete or part.incomplete
            part = replace(part, arguments=part.arguments + text, seal=seal, incomplete=cut)
            candidate.has_cut_call = candidate.has_cut_call or cut
        elif isinstance(part, ProviderCall) and text:
            part = replace(part, arguments=part.arguments + text)
        elif isinstance(part, ProviderResult):
            part = replace(part, text=part.text + text, sources=(*part.sources, *open_part.citations))
        if is_grounding(part):
            candidate.grounding_parts.append((0, part))
            return []
        written = write_part(part, self._writing)
        return [] if written is None else [self._write_whole_part(written, open_part.choice)]

    def _write_whole_part(self, part: Object, choice: int) -> bytes:
        written = escape_line_ends(encode(part))[:-1]
        return b'data: {"candidates":[{"content":{"parts":[%b%b' % (written, self._chunk_tail(choice))

    # --- the end ---

    def write_response_end(self, event: ev.ResponseEnd) -> bytes:
        self._ended = True
        candidates: list[Object] = []
        for choice, state in sorted(self._candidates.items()) or [(0, _OpenCandidate())]:
            finish = state.finish or Finish("other")
            candidate: Object = {"content": {"parts": [{"text": ""}], "role": "model"}}
            candidate |= write_finish(finish, state.has_cut_call, self._ledger)
            candidate["index"] = choice
            candidate |= write_grounding(state.grounding_parts, self._ledger)
            candidates.append(candidate)
        chunk: Object = {"candidates": candidates}
        usage = self._usage or self._response_start.usage
        if usage is not None:
            chunk["usageMetadata"] = write_usage(usage, self._ledger)
        return _write_frame(chunk | self._response_head())

    def _response_head(self) -> Object:
        start = self._response_start
        return write_head(start.id, start.model, start.created, self._context)

    def write_failure(self, event: ev.ResponseFailed) -> bytes:
        self._ended = True
        return _write_frame(write_error_body(event.failure))


def _write_frame(chunk: Object) -> bytes:
    return write_data_frame(escape_line_ends(encode(chunk)))


_END_KEYS = {"finishReason", "finish_reason", "blockReason", "block_reason"}


def _has_end(chunk: Object) -> bool:
    """Does a chunk hold an error, a finish reason, or the reason why the prompt was blocked?"""
    nodes = chunk.get("candidates") or [chunk.get("promptFeedback", chunk.get("prompt_feedback"))]
    nodes = [node for node in nodes if isinstance(node, dict)] if isinstance(nodes, list) else []
    return "error" in chunk or any(not _END_KEYS.isdisjoint(node) for node in nodes)
