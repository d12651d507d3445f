"""The recent exchanges of a process, in memory only: limited in number, and in the bytes of what they sent and got."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence

from toolwire.gateway.telemetry.record import ExchangeRecord


class RecentExchanges:
    """Running and finished exchanges, the oldest first. It only keeps them: whoever looks works out what to show. It is
    also the memory for captured traffic (`CaptureBudget`), which it gets by removing the oldest exchanges."""

    def __init__(self) -> None:
        self._records: deque[ExchangeRecord] = deque()
        self._max_exchanges = self._max_bytes = 0
        self._used_bytes = 0
        self._last_number = 0
        self.removed = 0
        """Exchanges that were removed because of the limits."""

    def configure(self, max_exchanges: int, max_bytes: int) -> None:
        """Set the limits. With `max_exchanges` of 0, traffic is captured for the log alone."""
        self._max_exchanges, self._max_bytes = max_exchanges, max_bytes
        while len(self._records) > max_exchanges:
            self._remove_oldest()

    def add(self, record: ExchangeRecord) -> None:
        if not self._max_exchanges:
            return
        if len(self._records) >= self._max_exchanges:
            self._remove_oldest()
        self._last_number += 1
        record.number = self._last_number
        self._records.append(record)

    def take(self, size: int) -> bool:
        """Reserve memory for captured traffic; False if there is not enough, though nothing is left to remove."""
        self._used_bytes += size
        while self._used_bytes > self._max_bytes and self._records:
            self._remove_oldest()
        if self._used_bytes <= self._max_bytes:
            return True
        self._used_bytes -= size
        return False

    def count_finished(self, records: Iterable[ExchangeRecord]) -> None:
        """Count the bytes of exchanges that have ended, and forget the traffic of those that are not kept."""
        for record in records:
            capture = record.capture
            if capture is None:
                continue
            if not record.number:
                self._used_bytes -= capture.discard()
                record.capture = None
            else:
                reserved = capture.client_response.reserved
                for call in capture.upstream_calls:
                    reserved += call.response.reserved
                self._used_bytes += capture.count_bytes() - reserved
        while self._used_bytes > self._max_bytes and self._records:
            self._remove_oldest()

    def _remove_oldest(self) -> None:
        record = self._records.popleft()
        record.number = 0
        self.removed += 1
        capture = record.capture
        if capture is not None:
            # What has ended goes with its record; what still runs goes on without being captured.
            self._used_bytes -= capture.counted or capture.discard()

    def find(self, number: int) -> ExchangeRecord | None:
        if not self._records:
            return None
        place = number - self._records[0].number
        return self._records[place] if 0 <= place < len(self._records) else None

    def newest_first(self) -> Iterator[ExchangeRecord]:
        return iter(list(reversed(self._records)))

    def since(self, number: int) -> Sequence[ExchangeRecord]:
        """The exchanges after the one with this number, the oldest first."""
        if not self._records or self._records[-1].number <= number:
            return ()
        first = self._records[0].number
        return [self._records[place] for place in range(max(0, number + 1 - first), len(self._records))]

    @property
    def last_number(self) -> int:
        return self._last_number
