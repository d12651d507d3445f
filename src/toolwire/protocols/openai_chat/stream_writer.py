"""Writes a stream of Chat chunks that the official SDK can add up.

Calls are numbered 0, 1, 2 … within their choice; only the first delta of a call names it, and one call is finished
before the next begins: deltas of later calls wait. Text does not wait, because it has its own field.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

from msgspec import Struct, field

from toolwire.core import events as ev
from toolwire.core import ids, sse
from toolwire.core.codec import DeltaWriter, WriteContext
from toolwire.core.event_writer import EventWriter
from toolwire.core.ir import Call, Citation, Logprobs, Media, Reasoning, Refusal, Seal, Text, source_path
from toolwire.core.json_values import Json, Object, encode
from toolwire.core.losses import Ledger
from toolwire.protocols.openai_chat.content import write_citation, write_media, write_reasoning_detail
from toolwire.protocols.openai_chat.errors import write_error_body
from toolwire.protocols.openai_chat.models import DEFAULT_FAMILY
from toolwire.protocols.openai_chat.names import DONE, NAME, is_own_seal
from toolwire.protocols.openai_chat.request import note_dropped_part
from toolwire.protocols.openai_chat.response import FinishReasonWriter, write_logprobs, write_usage
from toolwire.protocols.openai_chat.tools import note_call_losses, uses_legacy_functions, write_seal

_DELTA_PREFIXES: Mapping[type, bytes] = {
    Text: b'{"content":',
    Refusal: b'{"refusal":',
    Reasoning: b'{"reasoning_content":',
}


class _OpenPart(Struct, eq=False):
    """A part that was started."""

    part: Any
    choice: _OpenChoice
    text_offset: int
    counts_text: bool
    delta_prefix: bytes = b""
    """The bytes of a chunk before the text of a delta; empty for a call that waits."""
    delta_suffix: bytes = b""
    """The bytes after the text."""
    call_index: int = -1
    held_back: list[str] = []
    has_arguments: bool = False
    is_ended: bool = False
    incomplete: bool = False
    seal: Seal | None = None
    citations: list[Citation] = []

    def write_delta(self, text: str) -> bytes:
        """A delta with this text; only for a part that has a prefix."""
        if self.counts_text:
            self.choice.text_length += len(text)
        return self.delta_prefix + encode(text) + self.delta_suffix


class _OpenChoice(Struct, eq=False):
    index: int
    finish_reason: FinishReasonWriter
    chunk_prefix: bytes
    """The bytes of its chunks before the delta."""
    is_started: bool = False
    call_count: int = 0
    open_call: _OpenPart | None = None
    waiting_calls: deque[_OpenPart] = field(default_factory=deque)
    text_length: int = 0
    citation_count: int = 0
    detail_count: int = 0


class StreamWriter(EventWriter):
    protocol = NAME

    def __init__(self, ledger: Ledger, context: WriteContext) -> None:
        super().__init__(ledger, context)
        request = context.request
        self._legacy = uses_legacy_functions(request)
        self._wants_usage = request is None or bool(request.settings.stream_usage)
        self._chunk_suffix = b'}],"usage":null}\n\n' if self._wants_usage else b"}]}\n\n"
        self._delta_suffix = b'},"logprobs":null,"finish_reason":null' + self._chunk_suffix
        self._chunk_prefix = b""
        self._response_id = ""
        self._choices: dict[int, _OpenChoice] = {}
        self._open_parts: dict[int, _OpenPart] = {}

    def delta_writer(self, kind: type[ev.Delta], index: int) -> DeltaWriter | None:
        open_part = self._open_parts[index]
        if not open_part.delta_prefix or (kind is ev.ArgumentsDelta and not open_part.has_arguments):
            return None
        return open_part.write_delta

    # --- chunks ---

    def _write_chunk(self, choice: _OpenChoice, delta: Json, finish: bytes = b"null") -> bytes:
        return choice.chunk_prefix + encode(delta) + b',"logprobs":null,"finish_reason":' + finish + self._chunk_suffix

    def write_start(self, event: ev.ResponseStart) -> bytes:
        context = self._context
        self._response_id = event.id or ids.derive_id("chatcmpl-", context.seed)
        head: Object = {
            "id": self._response_id,
            "object": "chat.completion.chunk",
            "created": event.created if event.created is not None else context.now,
            "model": event.model or (context.request.model if context.request is not None else ""),
        }
        self._usage = event.usage
        self._chunk_prefix = b"data: " + encode(head)[:-1] + b',"choices":['
        return b""

    def _choice(self, index: int) -> _OpenChoice:
        choice = self._choices.get(index)
        if choice is None:
            prefix = b'%b{"index":%d,"delta":' % (self._chunk_prefix, index)
            choice = self._choices[index] = _OpenChoice(index, FinishReasonWriter(self._legacy), prefix)
        return choice

    def _write_choice_start(self, choice: _OpenChoice, content: bytes = b'""') -> bytes:
        """The first chunk of a choice, with the role; the choices before it must have theirs first."""
        if choice.is_started:
            return b""
        return self._write_choice_prefix(choice) + content + b',"refusal":null' + self._delta_suffix

    def _write_choice_prefix(self, choice: _OpenChoice) -> bytes:
        """The first chunks of the choices before this one, then the bytes of its first chunk before the content."""
        choice.is_started = True
        out = b""
        for index in range(choice.index):
            out += self._write_choice_start(self._choice(index))
        return out + choice.chunk_prefix + b'{"role":"assistant","content":'

    # --- parts ---

    def write_part_start(self, event: ev.PartStart) -> bytes:
        choice = self._choice(event.choice)
        part = event.part
        open_part = _OpenPart(part, choice, choice.text_length, isinstance(part, Text))
        self._open_parts[event.index] = open_part
        if isinstance(part, Call):
            return self._write_call_start(open_part, part)
        field = _DELTA_PREFIXES.get(type(part))
        if field is not None and isinstance(part, (Text, Refusal, Reasoning)):
            return self._write_text_start(open_part, part, field)
        if isinstance(part, Media):
            image = write_media(part, DEFAULT_FAMILY, self._ledger)
            if image is not None:
                return self._write_choice_start(choice) + self._write_chunk(choice, {"images": [image]})
        else:
            note_dropped_part(part, self._ledger)
        return b""

    def _write_text_start(self, open_part: _OpenPart, part: Text | Refusal | Reasoning, field: bytes) -> bytes:
        choice = open_part.choice
        open_part.delta_prefix = choice.chunk_prefix + field
        open_part.delta_suffix = self._delta_suffix
        if isinstance(part, Refusal):
            choice.finish_reason.has_refusal = True
        if choice.call_count and part.text is not None:
            what = "text, thinking and calls are no longer in the order they were made"
            self._ledger.note("order-changed", source_path(part), what)
        out = self._write_choice_start(choice, b"null" if isinstance(part, Refusal) else b'""')
        logprobs = () if isinstance(part, Reasoning) else part.logprobs
        if logprobs:
            out += self._write_logprobs_delta(open_part, part.text, logprobs)
        elif part.text:
            out += open_part.delta_prefix + encode(part.text) + self._delta_suffix
            choice.text_length += len(part.text)
        if isinstance(part, Text):
            open_part.citations += part.citations
        if isinstance(part, (Text, Reasoning)) and part.seal is not None:
            out += self._write_part_seal(open_part, part.seal)
        return out

    def write_text(self, event: ev.TextDelta) -> bytes:
        open_part = self._open_parts[event.index]
        if event.logprobs and open_part.delta_prefix:
            return self._write_logprobs_delta(open_part, event.text, event.logprobs)
        return open_part.write_delta(event.text) if open_part.delta_prefix else b""

    def _write_logprobs_delta(self, open_part: _OpenPart, text: str, logprobs: Logprobs) -> bytes:
        refused = isinstance(open_part.part, Refusal)
        written = encode(write_logprobs((), logprobs) if refused else write_logprobs(logprobs, ()))
        delta = open_part.write_delta(text).removesuffix(self._delta_suffix)
        return delta + b'},"logprobs":' + written + b',"finish_reason":null' + self._chunk_suffix

    def write_citation(self, event: ev.CitationDelta) -> bytes:
        open_part = self._open_parts[event.index]
        if isinstance(open_part.part, Text):
            open_part.citations.append(event.citation)
        else:
            self._ledger.note("citation-dropped", source_path(event.citation), "a source was left out")
        return b""

    def write_seal(self, event: ev.SealDelta) -> bytes:
        return self._write_part_seal(self._open_parts[event.index], event.seal)

    def _write_part_seal(self, open_part: _OpenPart, seal: Seal) -> bytes:
        choice = open_part.choice
        if not is_own_seal(seal) or isinstance(open_part.part, Text) or self._legacy:
            self._ledger.note("seal-dropped", source_path(open_part.part), "a seal was left out")
        elif isinstance(open_part.part, Call):
            open_part.seal = seal
        else:
            part = Reasoning("", open_part.part.form, open_part.part.hidden, seal, open_part.part.id)
            detail = write_reasoning_detail(part, choice.detail_count)
            choice.detail_count += 1
            return self._write_chunk(choice, {"reasoning_details": [detail]})
        return b""

    def write_part_end(self, event: ev.PartEnd) -> bytes:
        open_part = self._open_parts.pop(event.index)
        choice = open_part.choice
        if isinstance(open_part.part, Call):
            open_part.is_ended, open_part.incomplete = True, event.incomplete
            choice.finish_reason.is_incomplete = choice.finish_reason.is_incomplete or event.incomplete
            if open_part is not choice.open_call:
                return b""
            out = self._write_call_end(open_part)
            while choice.waiting_calls:
                waiting = choice.waiting_calls.popleft()
                out += self._write_announcement(waiting)
                if not waiting.is_ended:
                    break
                out += self._write_call_end(waiting)
            return out
        if not open_part.citations:
            return b""
        # The SDK merges lists by `index`; OpenAI sends the first annotations without it.
        length = choice.text_length - open_part.text_offset
        found = [write_citation(citation, open_part.text_offset, length) for citation in open_part.citations]
        if choice.citation_count:
            found = [{**item, "index": choice.citation_count + number} for number, item in enumerate(found)]
        choice.citation_count += len(found)
        return self._write_chunk(choice, {"annotations": found})

    # --- calls ---

    def _write_call_start(self, open_part: _OpenPart, call: Call) -> bytes:
        choice = open_part.choice
        note_call_losses(call, self._ledger)
        choice.finish_reason.has_calls = True
        if self._legacy and choice.call_count:
            what = f"`function_call` holds one call: `{call.name}` was left out"
            self._ledger.note("part-dropped", source_path(call), what)
            open_part.has_arguments = True
            return b""
        open_part.call_index = choice.call_count
        choice.call_count += 1
        open_part.seal = call.seal if is_own_seal(call.seal) else None
        if call.arguments:
            open_part.held_back.append(call.arguments)
        if choice.open_call is not None:
            choice.waiting_calls.append(open_part)
            return b""
        return self._write_announcement(open_part)

    def _write_announcement(self, open_part: _OpenPart) -> bytes:
        """The delta that names the call, then the arguments that were held back."""
        choice, call = open_part.choice, open_part.part
        choice.open_call = open_part
        custom = call.kind == "custom" and not self._legacy
        key = b'"input":' if custom else b'"arguments":'
        if self._legacy:
            lead, inner, named, tail = b'"function_call":{', b"", b'"name":', b"}"
        else:
            id = call.id or ids.derive_id("call_", self._response_id, choice.index, open_part.call_index)
            kind = b'"custom"' if custom else b'"function"'
            lead, inner, tail = b'"tool_calls":[{"index":%d,' % open_part.call_index, kind + b":{", b"}}]"
            named = b'"id":' + encode(id) + b',"type":' + kind + b"," + inner + b'"name":'
        open_part.delta_prefix = choice.chunk_prefix + b"{" + lead + inner + key
        open_part.delta_suffix = tail + self._delta_suffix
        if choice.is_started:
            out = choice.chunk_prefix + b"{"
        else:
            out = self._write_choice_prefix(choice) + b'null,"refusal":null,'
        out += lead + named + encode(call.name) + b"," + key + b'""' + open_part.delta_suffix
        held, open_part.held_back = "".join(open_part.held_back), []
        return out + self._write_arguments_text(open_part, held) if held else out

    def _write_arguments_text(self, open_part: _OpenPart, text: str) -> bytes:
        open_part.has_arguments = open_part.has_arguments or not text.isspace()
        return open_part.write_delta(text)

    def write_arguments(self, event: ev.ArgumentsDelta) -> bytes:
        open_part = self._open_parts[event.index]
        if open_part.call_index < 0 or not event.text:
            return b""
        if open_part.delta_prefix:
            return self._write_arguments_text(open_part, event.text)
        open_part.held_back.append(event.text)
        return b""

    def _write_call_end(self, open_part: _OpenPart) -> bytes:
        """Write `{}` for a call without arguments: neither the empty text nor white space is JSON."""
        out = b""
        has_json_arguments = open_part.part.kind != "custom" or self._legacy
        if has_json_arguments and not open_part.has_arguments and not open_part.incomplete:
            out = self._write_arguments_text(open_part, "{}")
        if open_part.seal is not None:
            # The SDK refuses a delta of a call without `arguments`, so they are empty.
            sealed = {"index": open_part.call_index, "function": {"arguments": ""}}
            sealed["extra_content"] = write_seal(open_part.seal)
            out += self._write_chunk(open_part.choice, {"tool_calls": [sealed]})
        open_part.choice.open_call = None
        return out

    # --- the end ---

    def write_choice_end(self, event: ev.ChoiceEnd) -> bytes:
        choice = self._choice(event.choice)
        out = self._write_choice_start(choice)
        word = choice.finish_reason.write(event.finish, source_path(event.finish), self._ledger)
        return out + self._write_chunk(choice, {}, encode(word))

    def write_response_end(self, _event: ev.ResponseEnd) -> bytes:
        self._ended = True
        out = b""
        if self._wants_usage and self._usage is not None:
            out = self._chunk_prefix + b'],"usage":' + encode(write_usage(self._usage)) + b"}\n\n"
        return out + sse.write_data_frame(DONE)

    def write_failure(self, event: ev.ResponseFailed) -> bytes:
        self._ended = True
        return sse.write_data_frame(encode(write_error_body(event.failure)))

    def write_opaque_event(self, event: ev.OpaqueEvent) -> bytes:
        if event.origin.protocol == NAME and event.origin.wire is not None:
            announced = map(self._choice, _find_announced_choices(event.origin.wire))
            return b"".join(map(self._write_choice_start, announced))
        return super().write_opaque_event(event)


def _find_announced_choices(chunk: Json) -> list[int]:
    """The choices of which a provider's chunk says nothing but the role."""
    choices = chunk.get("choices") if isinstance(chunk, dict) else None
    announced = [one for one in choices if isinstance(one, dict)] if isinstance(choices, list) else []
    deltas = [(one.get("index"), one.get("delta")) for one in announced]
    return [
        index for index, delta in deltas if isinstance(index, int) and isinstance(delta, dict) and delta.get("role")
    ]
