"""A provider's stream in the client's protocol."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from toolwire.core.codec import StreamReader, StreamWriter
from toolwire.core.events import (
    ArgumentsDelta,
    ChoiceEnd,
    CitationDelta,
    Event,
    OpaqueEvent,
    PartEnd,
    PartStart,
    ResponseEnd,
    ResponseFailed,
    ResponseStart,
    SealDelta,
    StreamChecker,
    TextDelta,
    UsageUpdate,
)
from toolwire.core.fold import Fold, unfold
from toolwire.core.ir import EMPTY_MAPPING, Failure, Result, Usage, replace_fields
from toolwire.core.json_values import expect_object
from toolwire.core.losses import Ledger, Loss
from toolwire.core.sse import RepeatReader
from toolwire.translation import hidden_calls
from toolwire.translation.answer_steps import EVENT_STEPS, AnswerSteps
from toolwire.translation.body import Body, parse_body

if TYPE_CHECKING:
    from toolwire.translation.exchange import Exchange


class StreamTranslation:
    """Bytes of the provider's stream in, bytes of the client's stream out.

    reader → checker → steps → writer. A stream that breaks its grammar or ends early becomes a failure in the client's
    own shape, and nothing follows it.
    """

    def __init__(self, exchange: Exchange, ledger: Ledger, steps: AnswerSteps | None) -> None:
        self._exchange = exchange
        self.ledger = ledger
        self._reader: StreamReader = exchange.provider.make_stream_reader()
        self._writer: StreamWriter = exchange.client.make_stream_writer(ledger, exchange.writer_context(""))
        self._checker = StreamChecker()
        self._steps = steps
        self.rounds = exchange.start_rounds()
        """Where the answer may take several."""
        self._fold = Fold() if exchange.uses_memory else None
        self._first_seal = ""
        """The first that the client got."""
        self.failure: Failure | None = None
        self.usage: Usage | None = None
        self.finishes: tuple[str, ...] = ()
        self.has_content = False
        """Has anything of the answer itself come, not only its start?"""
        self.ended = False
        self.read_repeat: RepeatReader | None = None
        """What knows more of the part that grows by the bytes alone, where the reader can do that."""
        self._open_delta_type: type | None = None
        """The type of the last delta, as long as others like it can be nothing but more of the same."""
        self._source_index = self._target_index = 0
        """The part that grows, by the provider's number and by the client's."""
        self._text_sinks: tuple[Callable[[str], None], ...] = ()
        """Who keeps its text."""
        self._text_writer: Callable[[str], bytes] = _write_nothing
        """What writes it."""

    def _reset_reader(self) -> None:
        self._reader, self.read_repeat = self._exchange.provider.make_stream_reader(), None

    @property
    def has_complete_call(self) -> bool:
        """Has a whole call come?"""
        return self._checker.has_complete_call

    @property
    def losses(self) -> tuple[Loss, ...]:
        return self.ledger.losses

    @property
    def memory_records(self) -> Mapping[str, bytes]:
        """What to keep for the client of those choices that have ended, by id."""
        fold, steps = self._fold, self._steps
        if fold is None:
            return EMPTY_MAPPING
        if self.rounds is None and not fold.may_have_seals and (steps is None or not steps.has_renamed_ids):
            return EMPTY_MAPPING  # the client has all of it
        return self._exchange.collect_records(fold.response, steps, self.rounds, fold.ended, self._first_seal)

    @property
    def is_paused(self) -> bool:
        """Must the model be asked again? Then `go_on` is what to ask next, and its stream is fed here as well."""
        return self.rounds is not None and self.rounds.is_paused

    def make_sink(self, write: Callable[[bytes], bool], fallback: Callable[[bytes], bool]) -> Callable[[bytes], bool]:
        """Puts more of a text that is known by its bytes, and leaves the rest to the other, who feeds it."""

        def forward(data: bytes) -> bool:
            again, more = self.read_repeat, self._text_writer
            if again is not None:
                text = again(data)
                if text is not None:
                    for take in self._text_sinks:
                        take(text)
                    return write(more(text))
                self.read_repeat = None  # it was looked at
            return fallback(data)

        return forward

    def feed(self, data: bytes) -> bytes:
        again, more = self.read_repeat, self._text_writer
        if again is not None:
            text = again(data)
            if text is not None:
                for take in self._text_sinks:
                    take(text)
                return more(text)
        events = self._reader.feed(data)
        alone = len(events) == 1 and self.failure is None and self.rounds is None
        out = self._translate_event(events[0]) if alone else self._translate_events(events)
        self.read_repeat = None if self._open_delta_type is None else getattr(self._reader, "read_repeat", None)
        return out

    def feed_whole_response(self, body: Body) -> bytes:
        """A whole answer where the provider sent no stream though one was asked for."""
        provider, options = self._exchange.provider, self._exchange.options
        response = provider.read_response(expect_object(parse_body(body, options), None))
        self._reset_reader()
        out = self._translate_events(list(unfold(replace_fields(response, origin=None))))
        return out if self.is_paused else out + self._finish()

    def close(self) -> bytes:
        """The end of the provider's stream: what is still owed to the client."""
        closing = self._translate_events(self._reader.close())
        return closing if self.is_paused else closing + self._finish()

    def _finish(self) -> bytes:
        if self.rounds is not None:
            self._exchange.note_forgotten_calls(self.rounds, self.ledger)
        return self._writer.close()

    def fail(self, failure: Failure) -> bytes:
        """The provider's stream broke: what the client is told, and the end of its stream."""
        if self.failure is not None or self.ended:
            return self._writer.close()
        return self._translate_events([ResponseFailed(failure)]) + self._writer.close()

    def keep_pending_results(self, results: tuple[Result, ...]) -> None:
        """The results of those calls of the last round that are not the client's: kept for its next request."""
        self._exchange.keep_pending_results(results)

    def next_request(self, results: Sequence[Result]) -> bytes:
        """The request with which the model goes on."""
        if self.rounds is None:
            raise ValueError("this stream has one round only")
        self._reset_reader()
        return self._exchange.next_request(self.rounds, results)

    def _translate_events(self, events: list[Event]) -> bytes:
        out: list[bytes] = []
        if self.rounds is not None:
            events = self.rounds.join_events(events)
        for event in events:
            if self.failure is not None and (self._steps is not None or type(event) is not OpaqueEvent):
                break
            out.append(self._translate_event(event))
        return b"".join(out)

    def _translate_event(self, event: Event) -> bytes:
        kind = type(event)
        if kind is self._open_delta_type and event.index == self._source_index and (text := event.text):  # type: ignore[union-attr]
            for take in self._text_sinks:
                take(text)
            return self._text_writer(text)
        if kind is not UsageUpdate:
            self._open_delta_type = None
        fault = self._checker.check_event(event)
        if fault is not None:
            return self._write_grammar_failure(ResponseFailed(fault))
        tapped = _TAPS[kind]
        if tapped is None:
            self.has_content = True
        else:
            tapped(self, event)
        if self._fold is not None:
            self._fold.add_event(event)
        steps = self._steps
        if steps is None:
            return self._write_events([event])
        events = EVENT_STEPS[kind](steps, event)
        out = self._writer.write(events[0]) if len(events) == 1 and self.rounds is None else self._write_events(events)
        if steps.failure is not None:
            self.failure = self.failure or steps.failure
        elif kind is TextDelta or kind is ArgumentsDelta:
            self._expect_more_text(event, steps)  # type: ignore[arg-type]
        return out

    def _write_grammar_failure(self, event: ResponseFailed) -> bytes:
        self.failure = event.failure
        if self._fold is not None:
            self._fold.add_event(event)
        return self._write_events([event])

    def _write_events(self, events: list[Event]) -> bytes:
        if self.rounds is not None and not self._first_seal:
            self._first_seal = next(filter(None, map(hidden_calls.seal_of_event, events)), "")
        return b"".join(map(self._writer.write, events))

    def _expect_more_text(self, event: TextDelta | ArgumentsDelta, steps: AnswerSteps) -> None:
        """More like it, which need not be looked at again; rounds look at everything."""
        if self.failure is None and self.rounds is None:
            self._open_delta_type = kind = type(event)
            self._source_index = event.index
            self._target_index, self._text_sinks = onto, takers = steps.delta_target(event)
            # Some writers know at once how more of it is written.
            grower = getattr(self._writer, "delta_writer", None) if onto >= 0 else None
            self._text_writer = (grower and grower(kind, onto)) or (
                self._write_more_text if onto >= 0 else _write_nothing
            )
            if self._fold is not None:
                self._text_sinks = (*takers, self._fold.text_appender(event.index))

    def _write_more_text(self, text: str) -> bytes:
        assert self._open_delta_type is not None
        return self._writer.write(self._open_delta_type(self._target_index, text))

    def _on_usage(self, event: ResponseStart | UsageUpdate) -> None:
        self.usage = event.usage

    def _on_choice_end(self, event: ChoiceEnd) -> None:
        self.has_content = True
        self.finishes += (event.finish.kind,)

    def _on_response_end(self, event: ResponseEnd) -> None:
        self.has_content = self.ended = True

    def _on_response_failed(self, event: ResponseFailed) -> None:
        self.failure = event.failure


def _write_nothing(text: str) -> bytes:
    return b""


def _ignore_event(stream: StreamTranslation, event: OpaqueEvent) -> None:
    """What only one protocol knows is no part of the answer."""


_TAPS: Mapping[type, Callable[[StreamTranslation, Any], None] | None] = {
    ResponseStart: StreamTranslation._on_usage,
    PartStart: None,
    TextDelta: None,
    ArgumentsDelta: None,
    SealDelta: None,
    CitationDelta: None,
    PartEnd: None,
    UsageUpdate: StreamTranslation._on_usage,
    ChoiceEnd: StreamTranslation._on_choice_end,
    ResponseEnd: StreamTranslation._on_response_end,
    ResponseFailed: StreamTranslation._on_response_failed,
    OpaqueEvent: _ignore_event,
}
"""Events that are looked at on their way; all others are the answer itself."""
