"""The live view: what has changed among the recent exchanges since the last look, and more of the running streams.

Whoever watches looks again and again, so that exchanges cost nothing more while nobody watches.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator

from toolwire.core.events import PartStart, TextDelta
from toolwire.core.ir import Call, ProviderCall, Reasoning
from toolwire.gateway.http.large_work import LARGE_BODY, run_aside
from toolwire.gateway.surfaces.console.api import ExchangeRow, Hello, Output, encode_message
from toolwire.gateway.surfaces.console.rows import exchange_id, exchange_row, exchange_state
from toolwire.gateway.telemetry.recent import RecentExchanges
from toolwire.gateway.telemetry.record import ExchangeRecord
from toolwire.protocols import CODECS

LOOK_SECONDS = 0.1
"""Between two looks."""
KEEP_ALIVE_LOOKS = 150
"""After so many looks without a change, a comment keeps the connection open."""
MAX_ROWS_AT_ONCE = 200
MAX_TEXT = 16 * 1024
"""Characters of output in one event; a longer one is cut at its start, because the page shows the end."""
MAX_HELD = 400
"""Characters of a word that are held back."""
KEEP_ALIVE = b": still here\n\n"


def write_event(name: str, value: Hello | ExchangeRow | Output) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (name.encode(), encode_message(value))


class OutputReader:
    """Reads what a running stream has sent to its client so far, a little more at each look."""

    def __init__(self, record: ExchangeRecord) -> None:
        self._record = record
        self._reader = CODECS[record.client.protocol].make_stream_reader()
        self._pieces_read = self.bytes_read = 0
        self._reasoning_parts: set[int] = set()
        self._held = ["", ""]
        """The last words of text and reasoning, as long as they may go on."""

    def read_more(self, id: str, clean: Callable[[str], str]) -> Output | None:
        """What came since the last call; None if nothing did. A word that has not ended is held back, so that a
        credential cannot slip through in two halves."""
        capture = self._record.traffic.capture
        if capture is None:
            return None
        pieces = capture.client_response.pieces[self._pieces_read :]
        if not pieces and not (self._record.ended and any(self._held)):
            return None
        self._pieces_read += len(pieces)
        calls: list[str] = []
        texts: tuple[list[str], list[str]] = ([self._held[0]], [self._held[1]])
        for event in self._reader.feed(b"".join(pieces)):
            if isinstance(event, PartStart):
                if isinstance(event.part, Reasoning):
                    self._reasoning_parts.add(event.index)
                elif isinstance(event.part, Call | ProviderCall):
                    calls.append(event.part.name if isinstance(event.part, Call) else event.part.tool)
            elif isinstance(event, TextDelta):
                texts[event.index in self._reasoning_parts].append(event.text)
        shown: list[str] = []
        for number, words in enumerate(texts):
            text = "".join(words)
            end = len(text) if self._record.ended else _last_space(text)
            shown.append(clean(text[:end])[-MAX_TEXT:])
            self._held[number] = text[end:]
        size = self.bytes_read = capture.client_response.size
        return Output(id=id, text=shown[0], reasoning=shown[1], calls=list(map(clean, calls)), bytes_out=size)


def _last_space(text: str) -> int:
    """Where the last word begins; the end of the text if it is too long for a word."""
    at = max(text.rfind(space) for space in " \n\t") + 1
    return at if len(text) - at <= MAX_HELD else len(text)


class Watch:
    """One watcher of the recent exchanges of this process: knows what it has seen."""

    def __init__(
        self,
        recent: RecentExchanges,
        worker: int,
        clean_text_of: Callable[[ExchangeRecord], Callable[[str], str]],
        words_of: Callable[[ExchangeRecord], tuple[str, str]],
    ) -> None:
        self._recent, self._worker, self._clean_text_of, self._words_of = recent, worker, clean_text_of, words_of
        self._last_number = recent.last_number
        """Older ones are in the list that the page has asked for; those that still run are watched, too."""
        self._running = {record.number: record for record in recent.list_unfinished()}
        self._outputs: dict[int, OutputReader] = {}
        self._shown: dict[int, tuple[object, ...]] = {}

    def count_new_bytes(self) -> int:
        """How much of running streams came since the last look, and how much is to be read of what has ended."""
        records = [(one, one.traffic.capture) for one in self._running.values()]
        received = sum(capture.client_response.size for _, capture in records if capture is not None)
        ended = sum(len(capture.client_request) for record, capture in records if capture is not None and record.ended)
        return received + ended - sum(one.bytes_read for one in self._outputs.values())

    def note_new(self) -> None:
        """Watch exchanges that have begun since the last look, too. On the event loop, which adds and removes them."""
        for record in self._recent.since(self._last_number)[:MAX_ROWS_AT_ONCE]:
            self._last_number = record.number
            self._running[record.number] = record

    def look(self) -> bytes:
        """The events of what has changed since the last look."""
        return b"".join([event for row in list(self._running.items()) for event in self._look_at(*row)])

    def _look_at(self, number: int, record: ExchangeRecord) -> Iterator[bytes]:
        if record.asked.stream and record.client.protocol in CODECS:
            reader = self._outputs.setdefault(number, OutputReader(record))
            output = reader.read_more(exchange_id(self._worker, number), self._clean_text_of(record))
            if output is not None:
                yield write_event("output", output)
        state = exchange_state(record)
        shown = (state, record.status, record.upstream, len(record.attempts), record.first_byte)
        if record.number and self._shown.get(number) != shown:
            self._shown[number] = shown
            yield write_event("exchange", exchange_row(record, self._worker, self._words_of(record)))
        if state != "running" or not record.number:
            for table in (self._running, self._outputs, self._shown):
                table.pop(number, None)


async def watch_exchanges(watch: Watch, is_stopping: Callable[[], bool]) -> AsyncIterator[bytes]:
    """Server-sent events, until the watcher leaves or the gateway stops: an open page must not hold it up."""
    idle_looks = 0
    while not is_stopping():
        watch.note_new()
        is_large = watch.count_new_bytes() >= LARGE_BODY
        events = await run_aside(watch.look) if is_large else watch.look()
        idle_looks = 0 if events else idle_looks + 1
        if idle_looks == KEEP_ALIVE_LOOKS:
            idle_looks, events = 0, KEEP_ALIVE
        if events:
            yield events
        await asyncio.sleep(LOOK_SECONDS)
