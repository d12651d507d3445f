"""Streams, written: bare `data:` frames, each a small whole answer.

This wire has no events for the start and the end of a part. Calls go out whole, when their arguments are; text goes out
as it comes, but the parts of one candidate stay in line: what comes for a later part waits until the earlier are done.
The last chunk always holds parts, a finishReason and the usage, because the SDKs forget a turn that ends without them.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from toolwire.events import (
    ArgumentsDelta,
    Carried,
    ChoiceEnd,
    CitationDelta,
    Event,
    Frame,
    PartEnd,
    PartStart,
    ResponseEnd,
    ResponseFailed,
    ResponseStart,
    SealDelta,
    TextDelta,
    UsageUpdate,
)
from toolwire.failures import TRUNCATED
from toolwire.ir import (
    Call,
    Citation,
    Failure,
    Finish,
    HostedCall,
    HostedResult,
    Part,
    Reasoning,
    Refusal,
    Seal,
    Text,
    Usage,
    place,
)
from toolwire.loss import Ledger
from toolwire.protocols.gemini.details.grounding import grounds, write_grounding
from toolwire.protocols.gemini.details.parts_write import Writing, own_seal, write_part
from toolwire.protocols.gemini.errors import error_body
from toolwire.protocols.gemini.models import Family
from toolwire.protocols.gemini.names import NAME
from toolwire.protocols.gemini.response import write_finish, write_heading, write_usage
from toolwire.room import Context
from toolwire.sse import bare
from toolwire.wire import Object, encode

_PROSE = (Text, Refusal, Reasoning)


class _Part:
    """A part under way, and what waits for its turn."""

    __slots__ = ("choice", "citations", "ended", "form", "part", "pieces", "seal", "thought", "waiting")

    def __init__(self, part: Part, choice: int) -> None:
        self.part = part
        self.choice = choice
        self.thought = isinstance(part, Reasoning)
        self.pieces: list[str] = []
        self.citations: list[Citation] = []
        self.seal: Seal | None = None
        self.waiting: list[bytes] = []
        self.form = (b"", b"")
        """What stands around more text in its chunk, once nothing stands before it in the line: nothing ever will."""
        self.ended = False

    def more(self, text: str) -> bytes:
        """More text of a part that has its form."""
        self.pieces.append(text)
        head, tail = self.form
        return head + encode(text) + tail

    def held(self, text: str) -> bytes:
        """More arguments, which are told at the end."""
        self.pieces.append(text)
        return b""


_HEAD = b'data: {"candidates":[{"content":{"parts":[{"text":'


class _Candidate:
    """One candidate: its parts that are not yet written, in order, and how it ended."""

    __slots__ = ("cut", "finish", "grounded", "line", "said")

    def __init__(self) -> None:
        self.line: list[_Part] = []
        self.grounded: list[tuple[int, Part]] = []
        self.finish: Finish | None = None
        self.cut = False
        self.said = ""
        """The text of all parts that are over: places in it count from its start."""


def _shifted(citation: Citation, before: int, length: int) -> Citation:
    start = 0 if citation.start is None else citation.start
    end = length if citation.end is None else citation.end
    return replace(citation, start=before + start, end=before + end)


class StreamWriter:
    def __init__(self, ledger: Ledger, context: Context) -> None:
        self._ledger = ledger
        self._context = context
        self._writing = Writing(ledger, Family(), answer=True)
        self._start = ResponseStart()
        self._tails: dict[int, bytes] = {}
        self._parts: dict[int, _Part] = {}
        self._candidates: dict[int, _Candidate] = {}
        self._usage: Usage | None = None
        self._frame: Frame | None = None
        self._told = False
        """Has a frame of the provider's own already told the ending?"""
        self._done = False

    def write(self, event: Event) -> bytes:
        frame = event.frame
        if frame is not None and frame.protocol == NAME:
            return self._own(event, frame)
        if isinstance(event, TextDelta):
            growing, text = self._parts[event.index], event.text
            return growing.more(text) if growing.form[0] and text else self._delta(growing, text)
        if isinstance(event, ArgumentsDelta):
            return self._parts[event.index].held(event.text)
        return self._other(event)

    def grower(self, kind: type, index: int) -> Callable[[str], bytes] | None:
        growing = self._parts.get(index)
        if growing is None:
            return None
        if kind is ArgumentsDelta:
            return growing.held
        return growing.more if growing.form[0] else None

    def _other(self, event: Event) -> bytes:
        match event:
            case PartStart(index, part, choice):
                self._begin(index, part, choice)
            case PartEnd(index, incomplete):
                return self._end(self._parts.pop(index), incomplete)
            case SealDelta(index, seal):
                self._parts[index].seal = seal
            case CitationDelta(index, citation):
                self._parts[index].citations.append(citation)
            case ResponseEnd():
                return self._last()
            case ResponseFailed(failure):
                return self._failed(failure)
            case Carried(kind, origin, quiet) if not quiet:
                self._ledger.note("event-dropped", origin.path, f"the event `{kind}` was left out")
            case _:
                self._keep(event)
        return b""

    def close(self) -> bytes:
        if self._done:
            return b""
        return self._failed(Failure("upstream", TRUNCATED, 502, "stream_truncated"))

    # --- frames of our own protocol ---

    def _own(self, event: Event, frame: Frame) -> bytes:
        """A frame of the provider's goes out once, as it came; the end is ours to tell only where no frame told it."""
        self._keep(event)
        if isinstance(event, (ResponseEnd, ResponseFailed)) and frame.silent and not self._told:
            return self._failed(event.failure) if isinstance(event, ResponseFailed) else self._last()
        if isinstance(event, (ResponseEnd, ResponseFailed)):
            self._done = True
        if frame.silent or frame is self._frame or frame.json is None:
            # A sentinel that is no JSON kills this wire's clients.
            return b""
        self._frame = frame
        self._told = self._told or _tells_end(frame.json)
        return bare(encode(frame.json))

    def _keep(self, event: Event) -> None:
        if isinstance(event, ResponseStart):
            self._start = event
        elif isinstance(event, UsageUpdate):
            self._usage = event.usage
        elif isinstance(event, ChoiceEnd):
            self._open(event.choice).finish = event.finish
        elif isinstance(event, PartStart):
            # Its deltas may come without their frames, when something on the way changed them.
            self._parts[event.index] = _Part(event.part, event.choice)
        elif isinstance(event, PartEnd):
            self._parts.pop(event.index, None)

    # --- parts ---

    def _open(self, choice: int) -> _Candidate:
        one = self._candidates.get(choice)
        if one is None:
            one = self._candidates[choice] = _Candidate()
        return one

    def _begin(self, index: int, part: Part, choice: int) -> None:
        growing = self._parts[index] = _Part(part, choice)
        if isinstance(part, Refusal):
            self._ledger.note("refusal-as-text", place(part), "the refusal became plain text")
        self._open(choice).line.append(growing)
        if isinstance(part, _PROSE) and part.text:
            growing.waiting.append(self._delta(growing, part.text, waits=True))

    def _delta(self, growing: _Part, text: str, waits: bool = False) -> bytes:
        growing.pieces.append(text)
        if not isinstance(growing.part, _PROSE) or not text:
            return b""
        tail = self._tail(growing.choice)
        if growing.thought:
            tail = b',"thought":true' + tail
        frame = _HEAD + encode(text) + tail
        if waits:
            return frame
        line = self._open(growing.choice).line
        if line and line[0] is not growing:
            growing.waiting.append(frame)
            return b""
        if growing.waiting:
            growing.waiting.append(frame)
            frame, growing.waiting = b"".join(growing.waiting), []
        if line:
            growing.form = (_HEAD, tail)
        return frame

    def _tail(self, choice: int) -> bytes:
        """What follows the text of every chunk of one candidate, made once."""
        tail = self._tails.get(choice)
        if tail is None:
            start = self._start
            heading = encode(write_heading(start.id, start.model, start.created, self._context))[1:]
            joint = b"}]," if len(heading) > 1 else b"}]"
            tail = b'}],"role":"model"},"index":%d%b%b\n\n' % (choice, joint, heading)
            self._tails[choice] = tail
        return tail

    def _end(self, growing: _Part, incomplete: bool) -> bytes:
        one = self._open(growing.choice)
        growing.ended = True
        growing.waiting += self._closing(growing, one, incomplete)
        out: list[bytes] = []
        while one.line:
            head = one.line[0]
            out += head.waiting
            head.waiting = []
            if not head.ended:
                break
            one.line.pop(0)
        return b"".join(out)

    def _closing(self, growing: _Part, one: _Candidate, incomplete: bool) -> list[bytes]:
        """What can be written of a part only at its end."""
        part, text = growing.part, "".join(growing.pieces)
        if isinstance(part, _PROSE):
            if isinstance(part, Text):
                cited = [_shifted(each, len(one.said), len(text)) for each in (*part.citations, *growing.citations)]
                one.said += text
                if cited:
                    one.grounded.append((0, Text(one.said, tuple(cited), origin=part.origin)))
            seal = growing.seal or (part.seal if not isinstance(part, Refusal) else None)
            if seal is None:
                return []
            if not own_seal(seal):
                self._ledger.note("seal-dropped", place(part), f"a seal of {seal.maker} was left out")
                return []
            signed: Object = {"text": "", "thought": True} if growing.thought else {"text": ""}
            return [self._whole(signed | {"thoughtSignature": seal.value}, growing.choice)]
        if isinstance(part, Call):
            seal = growing.seal or part.seal
            cut = incomplete or part.incomplete
            part = replace(part, arguments=part.arguments + text, seal=seal, incomplete=cut)
            one.cut = one.cut or cut
        elif isinstance(part, HostedCall) and text:
            part = replace(part, arguments=part.arguments + text)
        elif isinstance(part, HostedResult):
            part = replace(part, text=part.text + text, sources=(*part.sources, *growing.citations))
        if grounds(part):
            one.grounded.append((0, part))
            return []
        written = write_part(part, self._writing)
        return [] if written is None else [self._whole(written, growing.choice)]

    def _whole(self, part: Object, choice: int) -> bytes:
        return b'data: {"candidates":[{"content":{"parts":[%b%b' % (encode(part)[:-1], self._tail(choice))

    # --- the end ---

    def _last(self) -> bytes:
        self._done = True
        candidates: list[Object] = []
        for choice, one in sorted(self._candidates.items()) or [(0, _Candidate())]:
            finish = one.finish or Finish("other")
            candidate: Object = {"content": {"parts": [{"text": ""}], "role": "model"}}
            candidate |= write_finish(finish, one.cut, self._ledger)
            candidate["index"] = choice
            candidate |= write_grounding(one.grounded, self._ledger)
            candidates.append(candidate)
        chunk: Object = {"candidates": candidates}
        usage = self._usage or self._start.usage
        if usage is not None:
            chunk["usageMetadata"] = write_usage(usage, self._ledger)
        start = self._start
        return bare(encode(chunk | write_heading(start.id, start.model, start.created, self._context)))

    def _failed(self, failure: Failure) -> bytes:
        self._done = True
        return bare(encode(error_body(failure)))


def _tells_end(chunk: Object) -> bool:
    if "error" in chunk:
        return True
    candidates = chunk.get("candidates")
    if not candidates:
        feedback = chunk.get("promptFeedback", chunk.get("prompt_feedback"))
        return isinstance(feedback, dict) and ("blockReason" in feedback or "block_reason" in feedback)
    return isinstance(candidates, list) and any(
        isinstance(one, dict) and ("finishReason" in one or "finish_reason" in one) for one in candidates
    )
