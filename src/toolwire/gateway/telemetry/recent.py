"""The recent exchanges of a process, in memory only: limited in number, and in the bytes of what they sent and got."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from functools import cache

import msgspec
from msgspec.structs import replace

from toolwire.core.ir import EMPTY_MAPPING
from toolwire.gateway.telemetry.record import ExchangeRecord
from toolwire.gateway.telemetry.request_counts import RequestCounts

MAX_EXCHANGES = 1000
"""Exchanges that the console keeps, in each worker: more than anybody scrolls through."""
MAX_PACKED = 64 * 1024
"""Bytes of an exchange with its client up to which it is packed: to copy more costs more than it saves."""
_encode = msgspec.msgpack.Encoder(enc_hook=dict).encode  # EMPTY_MAPPING is not a dict


class RecentExchanges:
    """Running and finished exchanges, the oldest first. It only keeps them: whoever looks works out what to show. It is
    also the memory for captured traffic (`CaptureBudget`), which it gets by removing the oldest exchanges.

    A finished exchange is packed into one piece of memory. Its fifty objects can then be used again at once by the next
    exchanges; if they stayed, each exchange would be slower, because all of its memory would be new to the processor.
    """

    def __init__(self) -> None:
        self._exchanges: deque[ExchangeRecord | bytes] = deque()
        self.max_exchanges = self._max_bytes = 0
        self.used_bytes = 0
        self._last_number = 0
        self.removed = 0
        """Exchanges that were removed because of the limits."""
        self.counts = RequestCounts(time.time())
        """Of all that have ended, also of those that are not kept any more."""

    def configure(self, max_exchanges: int, max_bytes: int) -> None:
        """Set the limits. With `max_exchanges` of 0, traffic is captured for the log alone."""
        if max_exchanges and not self.max_exchanges:
            self.counts = RequestCounts(time.time())
        self.max_exchanges, self._max_bytes = max_exchanges, max_bytes
        while len(self._exchanges) > max_exchanges:
            self._remove_oldest()

    def add(self, record: ExchangeRecord, headers: Mapping[str, str] = EMPTY_MAPPING) -> None:
        """Keep an exchange that starts, without its headers."""
        exchanges = self._exchanges
        if len(exchanges) >= self.max_exchanges:  # at least one: with none, nothing is added
            self._remove_oldest()
        record.number = self._last_number = self._last_number + 1
        exchanges.append(record)

    def take(self, size: int) -> bool:
        """Reserve memory for captured traffic; False if there is not enough, though nothing is left to remove."""
        self.used_bytes += size
        while self.used_bytes > self._max_bytes and self._exchanges:
            self._remove_oldest()
        if self.used_bytes <= self._max_bytes:
            return True
        self.used_bytes -= size
        return False

    def keep_finished(self, records: Sequence[ExchangeRecord]) -> None:
        """Pack exchanges that have ended and count their bytes, and forget the traffic of those that are not kept."""
        if self.max_exchanges:
            self.counts.add(records)
        first = self._last_number + 1 - len(self._exchanges)
        for record in records:
            capture = record.traffic.capture
            if record.number:
                reserved = capture.reserved_bytes if capture is not None else 0
                packed = pack_exchange(record)
                if packed is not None:
                    self._exchanges[record.number - first] = packed
                    self.used_bytes += len(packed) - reserved
                elif capture is not None:
                    self.used_bytes += capture.count_bytes() - reserved
            elif capture is not None:
                self.used_bytes -= capture.discard()
                record.traffic.capture = None
        while self.used_bytes > self._max_bytes and self._exchanges:
            self._remove_oldest()

    def _remove_oldest(self) -> None:
        exchange = self._exchanges.popleft()
        self.removed += 1
        if isinstance(exchange, bytes):
            self.used_bytes -= len(exchange)
            return
        exchange.number = 0
        capture = exchange.traffic.capture
        if capture is not None:
            # What has ended goes with its record; what still runs goes on without being captured.
            self.used_bytes -= capture.counted or capture.discard()

    @property
    def _first_number(self) -> int:
        return self._last_number + 1 - len(self._exchanges)

    def find(self, number: int) -> ExchangeRecord | None:
        place = number - self._first_number
        return unpack_exchange(self._exchanges[place]) if 0 <= place < len(self._exchanges) else None

    def newest_first(self) -> Iterator[ExchangeRecord]:
        return map(unpack_exchange, list(reversed(self._exchanges)))

    def list_unfinished(self) -> list[ExchangeRecord]:
        """Those that still run: what has ended is packed, or has its time."""
        return [one for one in self._exchanges if not isinstance(one, bytes) and not one.ended]

    def since(self, number: int) -> Sequence[ExchangeRecord]:
        """The exchanges after the one with this number, the oldest first."""
        start = max(0, number + 1 - self._first_number)
        return [unpack_exchange(self._exchanges[place]) for place in range(start, len(self._exchanges))]

    @property
    def last_number(self) -> int:
        return self._last_number


def pack_exchange(record: ExchangeRecord) -> bytes | None:
    """A finished exchange in one piece; None if it stays as it is, because it is large or a name is not Unicode."""
    if record.traffic.bytes_in + record.traffic.bytes_out > MAX_PACKED:
        return None
    usage = bare = record.answer.usage
    if usage is not None and usage.origin is not None:
        bare = record.answer.usage = replace(usage, origin=None)  # the provider's JSON is in its answer
    for call in record.costs.calls:
        if call.usage is usage:  # mostly: the client gets the answer of one call
            call.usage = bare
        elif call.usage is not None and call.usage.origin is not None:
            call.usage = replace(call.usage, origin=None)
    try:
        return _encode(record)
    except UnicodeEncodeError:
        return None  # half of a surrogate pair


def unpack_exchange(exchange: ExchangeRecord | bytes) -> ExchangeRecord:
    return _decoder().decode(exchange) if isinstance(exchange, bytes) else exchange


@cache
def _decoder() -> msgspec.msgpack.Decoder[ExchangeRecord]:
    return msgspec.msgpack.Decoder(ExchangeRecord)
