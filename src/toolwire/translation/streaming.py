"""`StreamTranslation` translates a provider's stream to the client's protocol, piece by piece."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum

from msgspec import Struct
from msgspec.structs import replace

from toolwire.core import events as ev
from toolwire.core.codec import DeltaWriter, StreamReader, StreamWriter
from toolwire.core.ir import EMPTY_MAPPING, Call, Failure, Result, Usage, replace_fields
from toolwire.core.json_values import Body, Path, parse_object
from toolwire.core.losses import Ledger, Loss
from toolwire.core.tokens import measure_text
from toolwire.translation import signature_memory
from toolwire.translation.answer_steps import EVENT_STEPS
from toolwire.translation.exchange import Exchange
from toolwire.translation.unchanged_start import UnchangedStart


class Mode(Enum):
    """What becomes of the frames that come.

    ::

        PASSING ── something is repaired ──▶ TRANSLATING      WRITING_BACK
           └──────────────────┬───────────────────┴─────────────────┘
                     the end, or a failure
                              ▼
                          `is_over`

    ============  ======================================  ======================================  ====================
    mode          begins where                            the client gets                         of a `TextRun`
    ============  ======================================  ======================================  ====================
    PASSING       both speak one protocol, and the        the frames as they came                 the frame itself
                  answer may be repaired                  (`UnchangedStart`)
    WRITING_BACK  both speak one protocol                 events with their frames, checked       (there are none)
    TRANSLATING   they speak two, or policy, memory or    events that the steps have changed,     the text, written by
                  a repair change the answer              written by the client's writer          `TextRun.write`
    ============  ======================================  ======================================  ====================

    After the end, or a failure, nothing follows in any mode, except what `second_failure_event` allows.
    """

    PASSING = "frames pass"
    WRITING_BACK = "frames are written back"
    TRANSLATING = "events are translated"


PASSING, WRITING_BACK, TRANSLATING = Mode


class TextRun(Struct):
    """Deltas of one part that follow each other. The reader recognises the next one by its bytes, and reads only its
    text. Any other event ends the run."""

    delta: ev.Delta
    """The first of them, as it was translated."""
    provider_index: int = -1
    """Its part, where answers are repaired: the provider's index, which a repair may have changed."""
    write: DeltaWriter | None = None
    """Writes the texts. This and what follows are looked up when the first text comes."""
    change: Callable[[str], str | None] | None = None
    """Takes the texts, and may change them."""
    fold: Callable[[str], None] | None = None
    """Collects the texts as they came."""


class StreamTranslation:
    """Bytes of the provider's stream in, bytes of the client's stream out.

    reader → checker → steps → writer, in one of the modes of `Mode`. A stream that breaks its grammar or ends early
    becomes a failure in the client's own shape, and nothing follows it.
    """

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self.ledger = ledger = Ledger(exchange.provider.name, exchange.client.name)
        self._reader: StreamReader = exchange.provider.make_stream_reader()
        self._writer: StreamWriter = exchange.client.make_stream_writer(ledger, exchange.writer_context(""))
        http = exchange.provider.http
        self._split_frames = http.framing.split_frames
        self._second_failure_event = http.second_failure_event
        self._checker = ev.StreamChecker()
        repairs = exchange.repairs_answers
        is_rewritten = exchange.needs_answer_rewrite or (repairs and exchange.can_take_rounds)
        self._steps = steps = exchange.make_answer_steps("", ledger, repairs) if is_rewritten else None
        """None if the provider's frames are written back, as long as nothing is repaired."""
        self._repair = exchange.start_repair(ledger)
        self.rounds = exchange.start_rounds()
        """Set where the answer may take several rounds of tool calls."""
        self._mode = TRANSLATING if steps is not None else WRITING_BACK if self._repair is None else PASSING
        self._unchanged_start = UnchangedStart(http.framing) if self._mode is PASSING else None
        self._passed_delta: ev.Delta | None = None
        """The last delta of which the writer does not know."""
        self._fold = ev.Fold() if exchange.uses_memory else None
        self._first_seal = ""
        """The first seal that the client got."""
        self.describe_failure: Callable[[Failure], Failure] = keep_failure
        """Makes of a failure what the client is told, where the caller knows more about the provider. What a provider
        of the client's own protocol says is not changed."""
        self.failure: Failure | None = None
        """Why the stream failed; None as long as it has not."""
        self.usage: Usage | None = None
        self._event_text_length = 0
        self.finishes: tuple[str, ...] = ()
        self.called_tools: tuple[str, ...] = ()
        """The tools that the answer calls, by the provider's names."""
        self.has_content = False
        """Has any content come after the start?"""
        self.ended = False
        self._run: TextRun | None = None
        """Set if the last event was a delta and the reader may recognise more of them by their bytes."""

    @property
    def is_over(self) -> bool:
        return self.ended or self.failure is not None

    @property
    def has_complete_call(self) -> bool:
        return self._checker.has_complete_call

    @property
    def losses(self) -> tuple[Loss, ...]:
        return self.ledger.losses

    @property
    def memory_records(self) -> Mapping[str, bytes]:
        """What to store for the client's next request, of the choices that have ended, by id."""
        fold, steps = self._fold, self._steps
        if fold is None:
            return EMPTY_MAPPING
        if self._unchanged_start is not None:
            fold = ev.Fold()
            for event in self._unchanged_start.sent_events:
                fold.add_event(event)
        if self.rounds is None and not fold.may_have_seals and (steps is None or not steps.has_renamed_ids):
            return EMPTY_MAPPING  # the client got everything
        return self._exchange.collect_records(fold.response, steps, self.rounds, fold.ended, self._first_seal)

    @property
    def needs_next_round(self) -> bool:
        """Must the model be asked again? Then send `next_request`, and feed its stream here too."""
        return self.rounds is not None and self.failure is None and self.rounds.needs_next_round

    @property
    def round_usage(self) -> Usage | None:
        """What this round alone has used."""
        return self.usage if self.rounds is None else self.rounds.round_usage

    def feed(self, data: bytes) -> bytes:
        return b"".join(map(self._translate_piece, self._split_frames(data)))

    def _translate_piece(self, piece: bytes) -> bytes:
        run = self._run
        if run is None or (text := self._reader.read_repeat(piece)) is None:
            return self._translate_read(self._reader.feed(piece), piece)
        if self._mode is PASSING:
            return self._pass_repeat(run, text, piece)
        return self._translate_repeat(run, text)

    def feed_whole_response(self, body: Body) -> bytes:
        """Translate a whole answer that the provider sent although a stream was requested."""
        provider, options = self._exchange.provider, self._exchange.options
        repairs: list[Path] = []
        response = provider.read_response(parse_object(body, options.max_bytes, repairs))
        self.ledger.note_repairs(repairs)
        self._reader, self._run = provider.make_stream_reader(), None
        out = self._translate_read(list(ev.unfold(replace_fields(response, origin=None))))
        return out if self.needs_next_round else out + self._finish()

    def close(self) -> bytes:
        """The end of the provider's stream: returns what the client still needs."""
        closing = self._translate_read(self._reader.close())
        return closing if self.needs_next_round else closing + self._finish()

    def _finish(self) -> bytes:
        if self.rounds is not None:
            self._exchange.note_forgotten_calls(self.rounds, self.ledger)
        return self._writer.close()

    def fail(self, failure: Failure) -> bytes:
        """The provider's stream broke: returns the failure and the end of the client's stream."""
        if self.is_over:
            return self._writer.close()
        return self._translate_events([ev.ResponseFailed(failure)]) + self._writer.close()

    def keep_pending_results(self, results: tuple[Result, ...]) -> None:
        """Keep the results of gateway tools called in the last round for the client's next request."""
        self._exchange.keep_pending_results(results)

    def next_request(self, results: Sequence[Result]) -> bytes:
        if self.rounds is None:
            raise ValueError("this stream has only one round")
        self._reader, self._run = self._exchange.provider.make_stream_reader(), None
        self._repair = self._exchange.start_repair(self.ledger)
        self._event_text_length = 0
        return self._exchange.next_request(self.rounds, results)

    @property
    def text_length(self) -> int:
        """Characters of text and arguments that the provider has sent in this round, as `measure_text` counts them: for
        an estimate where it does not say its usage."""
        return self._event_text_length + self._reader.repeated_length

    def _translate_read(self, events: list[ev.Event], piece: bytes = b"") -> bytes:
        """Translate the events that the reader has read from a piece of the stream."""
        for event in events:
            if type(event) is ev.TextDelta or type(event) is ev.ArgumentsDelta:
                self._event_text_length += measure_text(event.text)
        return self._translate_events(events, piece)

    def _translate_events(self, events: list[ev.Event], piece: bytes = b"") -> bytes:
        if self._reader.replaced_halves:
            self.ledger.note_repairs(self._reader.replaced_halves)
        repair = self._repair
        if repair is not None:
            start, last = self._unchanged_start, events[-1] if events else None
            last_delta = last if isinstance(last, (ev.TextDelta, ev.ArgumentsDelta)) else None
            if start is not None and start.is_whole_frame(piece) and last_delta and self._is_repeat(events, piece):
                return self._pass_repeat(TextRun(last_delta), last_delta.text, piece)
            repaired = repair.repair_events(events)
            if start is not None:
                start.add_events(events, repaired)
                return self._pass_frames(start, last_delta)
            events = repaired
        if self.rounds is not None:
            events = self.rounds.join_events(events)
        out = self._write_all(events)
        if repair is not None:
            self._continue_run(last_delta)
            self._run = self._run if events else None
        return out

    def _continue_run(self, last_delta: ev.Delta | None) -> None:
        """The run goes on if the repair takes its texts. `last_delta` is the provider's last event, if that is one."""
        if self._repair is None or self._repair.take_repeat is None:
            self._run = None
        elif self._run is not None:
            self._run.provider_index = -1 if last_delta is None else last_delta.index

    def _write_all(self, events: Iterable[ev.Event]) -> bytes:
        out: list[bytes] = []
        for event in events:
            if self.is_over:
                out.append(self._repeat_failure(event))
            elif type(event) is not ev.OpaqueEvent or may_pass(event):
                out.append(self._translate_event(event))
        return b"".join(out)

    def _repeat_failure(self, event: ev.Event) -> bytes:
        """Once, where the provider's frames are written back: nothing else follows the end."""
        kind, self._second_failure_event = self._second_failure_event, ""
        is_second = type(event) is ev.OpaqueEvent and event.kind == kind
        return self._writer.write(event) if is_second and not self.ended and self._mode is not TRANSLATING else b""

    # --- an answer that is not repaired, or not yet ---

    def _is_repeat(self, events: list[ev.Event], frame: bytes) -> bool:
        """Is this one more text of the same part, and nothing else, and does the frame say it as it is?"""
        event, run = events[0], self._run
        if len(events) > 1 or run is None or type(event) is not type(run.delta) or event.index != run.delta.index:
            return False
        if self._reader.is_frame_changed or frame.find(b"\\u") >= 0:  # perhaps half of a character
            return False
        return not (isinstance(event, ev.TextDelta) and event.logprobs)

    def _pass_frames(self, start: UnchangedStart, last_delta: ev.Delta | None) -> bytes:
        """Send the frames that came, if nothing is repaired. `last_delta` is the last event, if it is a delta."""
        assert self._repair is not None
        if self._repair.has_changes or start.is_changed:
            return self._write_anew(start, last_delta)
        # A repair writes the start of a call, so a frame that already names it must wait for that, too.
        frames = [] if self._reader.has_unstarted_call else start.take_frames()
        if frames and self._passed_delta is not None:
            self._writer.write(self._passed_delta)  # its bytes were sent already, but its number counts (Responses)
            self._passed_delta = None
        out = [one if isinstance(one, bytes) else self._write_all([one]) for one in frames]
        can_continue = self._repair.take_repeat is not None and self.failure is None
        self._run = TextRun(last_delta) if last_delta is not None and can_continue else None
        return b"".join(out)

    def _pass_repeat(self, run: TextRun, text: str, frame: bytes) -> bytes:
        """As `_translate_repeat`, where the frame itself can be sent."""
        start = self._unchanged_start
        assert start is not None
        assert self._repair is not None
        assert self._repair.take_repeat is not None
        taken, delta = self._repair.take_repeat(text), run.delta
        if taken == text and start.send_text(delta, text):
            self._run, self._passed_delta = run, delta
            return frame
        received: list[ev.Event] = [type(delta)(delta.index, text)]
        if taken is None:
            repaired = self._repair.repair_events(received)
        else:
            repaired = [type(delta)(self._repair.repeat_index, taken)] if taken else []
        start.add_events(received, repaired, frame)
        return self._pass_frames(start, delta)

    def _write_anew(self, start: UnchangedStart, last_delta: ev.Delta | None) -> bytes:
        """Something is repaired: PASSING ends, and TRANSLATING begins. The writer, and all that is before it, is told
        first what the client has got."""
        exchange, ledger = self._exchange, self.ledger
        notes = dict(ledger.notes)
        self._mode, self._unchanged_start = TRANSLATING, None
        self._steps = exchange.make_answer_steps("", ledger, is_repaired=True)
        self._writer = exchange.client.make_stream_writer(ledger, exchange.writer_context(""))
        self._checker = ev.StreamChecker()
        self._fold = None if self._fold is None else ev.Fold()
        for event in start.sent_events:
            self._checker.check_event(event)
            if self._fold is not None:
                self._fold.add_event(event)
            self._write_events(EVENT_STEPS[type(event)](self._steps, event))
        ledger.notes = notes  # what was sent as it came has lost nothing
        out = self._write_all(start.unsent_events)
        self._continue_run(last_delta)
        return out

    def _translate_event(self, event: ev.Event) -> bytes:
        kind = type(event)
        self._run = None
        fault = self._checker.check_event(event)
        if fault is not None:
            event = ev.ResponseFailed(fault)
        if type(event) is ev.ResponseFailed and (self._exchange.is_cross_protocol or event.failure.origin is None):
            event = replace(event, failure=self.describe_failure(event.failure))
        self._observe_event(event)
        if self._fold is not None:
            self._fold.add_event(event)
        steps = self._steps
        if steps is None or fault is not None:
            if isinstance(event, ev.ResponseEnd) and event.unknown_fields:
                self.ledger.note_foreign_fields(event)
            out = self._write_events([event])
            return out if out or kind is not ev.ResponseEnd else self._write_missing_end(event)
        out = self._write_events(EVENT_STEPS[kind](steps, event))
        if kind is ev.ResponseEnd:
            return out or self._write_missing_end(event)
        if steps.failure is not None:
            self.failure = self.failure or steps.failure
        elif isinstance(event, (ev.TextDelta, ev.ArgumentsDelta)) and self.failure is None and self.rounds is None:
            self._run = TextRun(event)
        return out

    def _write_missing_end(self, event: ev.Event) -> bytes:
        """The last frame, where a provider of the client's protocol has left it out."""
        is_missing = not self._exchange.is_cross_protocol and event.frame is not None and event.frame.silent
        return self._exchange.client.http.stream_end if is_missing else b""

    def _translate_repeat(self, run: TextRun, text: str) -> bytes:
        """Translate one more delta of a run, of which only the text is known."""
        if self._repair is not None:
            assert self._repair.take_repeat is not None
            taken = self._repair.take_repeat(text)
            if taken is None:
                return self._translate_events([type(run.delta)(run.provider_index, text)])
            if not taken:
                return b""
            text = taken
        write = run.write
        if write is None:
            write = self._start_run(run)
            if write is None:
                out = self._translate_event(type(run.delta)(run.delta.index, text))
                if self._run is not None:
                    self._run.provider_index = run.provider_index
                return out
        if run.fold is not None:
            run.fold(text)
        if run.change is not None and (changed := run.change(text)) is not None:
            return write(changed) if changed else b""
        return write(text)

    def _start_run(self, run: TextRun) -> DeltaWriter | None:
        """Look up who gets the texts of a run. None: each must be translated as an event."""
        assert self._steps is not None
        delta = run.delta
        target, run.change = self._steps.delta_target(delta)
        run.fold = None if self._fold is None else self._fold.text_appender(delta.index)
        # The text of a part that is held back is only collected.
        run.write = (lambda _: b"") if target < 0 else self._writer.delta_writer(type(delta), target)
        return run.write

    def _write_events(self, events: list[ev.Event]) -> bytes:
        if self.rounds is not None and not self._first_seal:
            self._first_seal = next(filter(None, map(signature_memory.seal_of_event, events)), "")
        return b"".join(map(self._writer.write, events))

    def _observe_event(self, event: ev.Event) -> None:
        if isinstance(event, (ev.ResponseStart, ev.UsageUpdate)):
            self.usage = event.usage
        elif isinstance(event, ev.ResponseFailed):
            self.failure = event.failure
        elif not isinstance(event, ev.OpaqueEvent):  # an event that only one protocol knows is not content
            self.has_content = True
            self.ended = isinstance(event, ev.ResponseEnd)
            if isinstance(event, ev.ChoiceEnd):
                self.finishes += (event.finish.kind,)
            elif isinstance(event, ev.PartStart) and isinstance(event.part, Call):
                self.called_tools += (event.part.name,)


def may_pass(event: ev.OpaqueEvent) -> bool:
    """May a client of the provider's protocol get this event? Only Chat has `[DONE]`, where it is the end. Proxies add
    it to other protocols, where OpenAI's SDKs stop reading, and Google's fail. Empty data is of no use either."""
    return event.kind != "[DONE]" and (event.frame is None or not event.frame.silent)


def keep_failure(failure: Failure) -> Failure:
    return failure
