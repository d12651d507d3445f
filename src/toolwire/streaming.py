"""A provider's stream in the client's protocol."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from toolwire import unseen
from toolwire.bodies import Body, parsed
from toolwire.events import (
    ArgumentsDelta,
    Carried,
    Checker,
    ChoiceEnd,
    CitationDelta,
    Event,
    PartEnd,
    PartStart,
    ResponseEnd,
    ResponseFailed,
    ResponseStart,
    SealDelta,
    TextDelta,
    UsageUpdate,
)
from toolwire.fold import Fold, unfold
from toolwire.ir import NOTHING, Failure, Result, Usage, changed
from toolwire.loss import Ledger, Loss
from toolwire.room import StreamReader, StreamWriter
from toolwire.sse import Again
from toolwire.steps.answers import STEPS, AnswerSteps
from toolwire.wire import as_object

if TYPE_CHECKING:
    from toolwire.exchange import Exchange


class StreamTranslation:
    """Bytes of the provider's stream in, bytes of the client's stream out.

    reader → checker → steps → writer. A stream that breaks its grammar or ends early becomes a failure in the client's
    own shape, and nothing follows it.
    """

    def __init__(self, exchange: Exchange, ledger: Ledger, steps: AnswerSteps | None) -> None:
        self._exchange = exchange
        self.ledger = ledger
        self._reader: StreamReader = exchange.provider.stream_reader()
        self._writer: StreamWriter = exchange.client.stream_writer(ledger, exchange.context(""))
        self._checker = Checker()
        self._steps = steps
        self.rounds = exchange.started()
        """Where the answer may take several."""
        self._fold = Fold() if exchange.keeps else None
        self._seal = ""
        """The first that the client got."""
        self.failure: Failure | None = None
        self.usage: Usage | None = None
        self.finishes: tuple[str, ...] = ()
        self.begun = False
        """Has anything of the answer itself come, not only its start?"""
        self.ended = False
        self.again: Again | None = None
        """What knows more of the part that grows by the bytes alone, where the reader can do that."""
        self._growing: type | None = None
        """The type of the last delta, as long as others like it can be nothing but more of the same."""
        self._index = self._onto = 0
        """The part that grows, by the provider's number and by the client's."""
        self._takers: tuple[Callable[[str], None], ...] = ()
        """Who keeps its text."""
        self._more: Callable[[str], bytes] = _held_back
        """What writes it."""

    def _read_anew(self) -> None:
        self._reader, self.again = self._exchange.provider.stream_reader(), None

    @property
    def called(self) -> bool:
        """Has a whole call come?"""
        return self._checker.called

    @property
    def losses(self) -> tuple[Loss, ...]:
        return self.ledger.losses

    @property
    def kept(self) -> Mapping[str, bytes]:
        """What to keep for the client of those choices that have ended, by id."""
        fold, steps = self._fold, self._steps
        if fold is None:
            return NOTHING
        if self.rounds is None and not fold.sealed and (steps is None or not steps.renamed):
            return NOTHING  # the client has all of it
        return self._exchange.kept(fold.response, steps, self.rounds, fold.ended, self._seal)

    @property
    def paused(self) -> bool:
        """Must the model be asked again? Then `go_on` is what to ask next, and its stream is fed here as well."""
        return self.rounds is not None and self.rounds.paused

    def knowing(self, put: Callable[[bytes], bool], other: Callable[[bytes], bool]) -> Callable[[bytes], bool]:
        """Puts more of a text that is known by its bytes, and leaves the rest to the other, who feeds it."""

        def hand_on(data: bytes) -> bool:
            again, more = self.again, self._more
            if again is not None:
                text = again(data)
                if text is not None:
                    for take in self._takers:
                        take(text)
                    return put(more(text))
                self.again = None  # it was looked at
            return other(data)

        return hand_on

    def feed(self, data: bytes) -> bytes:
        again, more = self.again, self._more
        if again is not None:
            text = again(data)
            if text is not None:
                for take in self._takers:
                    take(text)
                return more(text)
        events = self._reader.feed(data)
        alone = len(events) == 1 and self.failure is None and self.rounds is None
        out = self._one(events[0]) if alone else self._through(events)
        self.again = None if self._growing is None else getattr(self._reader, "again", None)
        return out

    def feed_whole(self, body: Body) -> bytes:
        """A whole answer where the provider sent no stream though one was asked for."""
        provider, options = self._exchange.provider, self._exchange.options
        response = provider.read_response(as_object(parsed(body, options), None))
        self._read_anew()
        out = self._through(list(unfold(changed(response, origin=None))))
        return out if self.paused else out + self._ended_now()

    def close(self) -> bytes:
        """The end of the provider's stream: what is still owed to the client."""
        closing = self._through(self._reader.close())
        return closing if self.paused else closing + self._ended_now()

    def _ended_now(self) -> bytes:
        if self.rounds is not None:
            self._exchange.forgets(self.rounds, self.ledger)
        return self._writer.close()

    def fail(self, failure: Failure) -> bytes:
        """The provider's stream broke: what the client is told, and the end of its stream."""
        if self.failure is not None or self.ended:
            return self._writer.close()
        return self._through([ResponseFailed(failure)]) + self._writer.close()

    def settle(self, results: tuple[Result, ...]) -> None:
        """The results of those calls of the last round that are not the client's: kept for its next request."""
        self._exchange.settle(results)

    def go_on(self, results: Sequence[Result]) -> bytes:
        """The request with which the model goes on."""
        if self.rounds is None:
            raise ValueError("this stream has one round only")
        self._read_anew()
        return self._exchange.go_on(self.rounds, results)

    def _through(self, events: list[Event]) -> bytes:
        out: list[bytes] = []
        if self.rounds is not None:
            events = self.rounds.through(events)
        for event in events:
            if self.failure is not None and (self._steps is not None or type(event) is not Carried):
                break
            out.append(self._one(event))
        return b"".join(out)

    def _one(self, event: Event) -> bytes:
        kind = type(event)
        if kind is self._growing and event.index == self._index and (text := event.text):  # type: ignore[union-attr]
            for take in self._takers:
                take(text)
            return self._more(text)
        if kind is not UsageUpdate:
            self._growing = None
        fault = self._checker.check(event)
        if fault is not None:
            return self._broken(ResponseFailed(fault))
        tapped = _TAPS[kind]
        if tapped is None:
            self.begun = True
        else:
            tapped(self, event)
        if self._fold is not None:
            self._fold.add(event)
        steps = self._steps
        if steps is None:
            return self._write([event])
        events = STEPS[kind](steps, event)
        out = self._writer.write(events[0]) if len(events) == 1 and self.rounds is None else self._write(events)
        if steps.failure is not None:
            self.failure = self.failure or steps.failure
        elif kind is TextDelta or kind is ArgumentsDelta:
            self._expect(event, steps)  # type: ignore[arg-type]
        return out

    def _broken(self, event: ResponseFailed) -> bytes:
        self.failure = event.failure
        if self._fold is not None:
            self._fold.add(event)
        return self._write([event])

    def _write(self, events: list[Event]) -> bytes:
        if self.rounds is not None and not self._seal:
            self._seal = next(filter(None, map(unseen.seal_in, events)), "")
        return b"".join(map(self._writer.write, events))

    def _expect(self, event: TextDelta | ArgumentsDelta, steps: AnswerSteps) -> None:
        """More like it, which need not be looked at again; rounds look at everything."""
        if self.failure is None and self.rounds is None:
            self._growing = kind = type(event)
            self._index = event.index
            self._onto, self._takers = onto, takers = steps.grown(event)
            # Some writers know at once how more of it is written.
            grower = getattr(self._writer, "grower", None) if onto >= 0 else None
            self._more = (grower and grower(kind, onto)) or (self._written if onto >= 0 else _held_back)
            if self._fold is not None:
                self._takers = (*takers, self._fold.taker(event.index))

    def _written(self, text: str) -> bytes:
        assert self._growing is not None
        return self._writer.write(self._growing(self._onto, text))

    def _counted(self, event: ResponseStart | UsageUpdate) -> None:
        self.usage = event.usage

    def _finished(self, event: ChoiceEnd) -> None:
        self.begun = True
        self.finishes += (event.finish.kind,)

    def _ended(self, event: ResponseEnd) -> None:
        self.begun = self.ended = True

    def _failed(self, event: ResponseFailed) -> None:
        self.failure = event.failure


def _held_back(text: str) -> bytes:
    return b""


def _unseen(stream: StreamTranslation, event: Carried) -> None:
    """What only one protocol knows is no part of the answer."""


_TAPS: Mapping[type, Callable[[StreamTranslation, Any], None] | None] = {
    ResponseStart: StreamTranslation._counted,
    PartStart: None,
    TextDelta: None,
    ArgumentsDelta: None,
    SealDelta: None,
    CitationDelta: None,
    PartEnd: None,
    UsageUpdate: StreamTranslation._counted,
    ChoiceEnd: StreamTranslation._finished,
    ResponseEnd: StreamTranslation._ended,
    ResponseFailed: StreamTranslation._failed,
    Carried: _unseen,
}
"""Events that are looked at on their way; all others are the answer itself."""
