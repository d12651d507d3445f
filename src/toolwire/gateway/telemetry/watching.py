"""What is seen from outside: one line an exchange, counters, and a span where traces are asked for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from toolwire.gateway.telemetry.log import Log, to_stderr
from toolwire.gateway.telemetry.metrics import Metrics
from toolwire.gateway.telemetry.record import Record

__all__ = ["Record", "Settings", "Telemetry", "Tracer"]


class Settings(Protocol):
    """The part of the server's settings that matters here."""

    @property
    def log(self) -> str: ...

    @property
    def log_level(self) -> str: ...

    @property
    def log_bodies(self) -> bool: ...


class Tracer(Protocol):
    def begin(self, record: Record, headers: Mapping[str, str]) -> None: ...

    def headers(self, record: Record) -> tuple[tuple[str, str], ...]: ...

    def finish(self, record: Record) -> None: ...

    def close(self) -> None: ...


MOMENT = 0.02
"""Seconds that the line of an exchange may wait for others."""
_NO_HEADERS: Mapping[str, str] = {}


class Telemetry:
    """Begin a record for every exchange, fill it in, finish it once: in whatever way the exchange ends."""

    def __init__(
        self,
        server: Settings,
        out: Callable[[str], None] = to_stderr,
        tracer: Tracer | None = None,
        metrics: Metrics | None = None,
    ) -> None:
        self.log = Log(server.log, out)
        self.bodies = False
        """Should the caller fill in the bodies of a record?"""
        self.debug = False
        """Should the caller copy what is said on both sides?"""
        self.metrics = metrics or Metrics()
        self._tracer = tracer
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiting: list[Record] = []
        self.configure(server)

    def configure(self, server: Settings, secrets: Iterable[str] = ()) -> None:
        """New settings, and the keys that must never be seen in a note or a body."""
        self.bodies = server.log_bodies and server.log != "none"
        self.debug = server.log_level == "debug" and server.log != "none"
        self.log.configure(server.log, self.bodies, secrets, server.log_level)

    def begin(self, record: Record, headers: Mapping[str, str] = _NO_HEADERS) -> Record:
        """Count it as running and, when traced, continue the trace that the client's headers (lower case) name."""
        self.metrics.running(1)
        if self._tracer is not None:
            self._tracer.begin(record, headers)
        return record

    def upstream_headers(self, record: Record) -> tuple[tuple[str, str], ...]:
        """The headers that carry the trace on to the provider; none when nothing is traced."""
        return () if self._tracer is None else self._tracer.headers(record)

    def attempt(self, record: Record, provider: str, outcome: str, seconds: float, fault: bool = False) -> None:
        """A try at a provider ended: "ok", a status such as "429", or the kind of a fault (`fault=True`)."""
        record.attempts.append((provider, outcome, seconds))
        self.metrics.attempt(provider, outcome)
        if fault:
            self.metrics.fault(provider, outcome)

    def resting(self, provider: str, rests: bool) -> None:
        self.metrics.resting(provider, rests)

    def finish(self, record: Record, ended: float) -> None:
        record.ended = ended
        waiting = self._waiting
        waiting.append(record)
        if len(waiting) == 1:
            if self._loop is None:
                self.flush()
            else:
                self._loop.call_later(MOMENT, self.flush)

    def gather(self, loop: asyncio.AbstractEventLoop) -> None:
        """From now on exchanges are told together, a moment later: what is done for many in a row costs each less."""
        self._loop = loop

    def flush(self) -> None:
        """Tell of the exchanges that wait for it."""
        records, self._waiting = self._waiting, []
        if not records:
            return
        self.metrics.running(-len(records))
        self.metrics.exchanges(records)
        if self._tracer is not None:
            for record in records:
                self._tracer.finish(record)
        self.log.exchanges(records)

    def event(self, kind: str, *, level: str = "info", **fields: object) -> None:
        """A line that is not about an exchange: started, reloaded, a provider rests, shutdown; info, warn or error."""
        self.flush()
        self.log.event(kind, fields, level)

    def metrics_text(self) -> bytes:
        self.flush()
        return self.metrics.text()

    def close(self) -> None:
        """Hand over what the tracer still holds: may take seconds, so not on the loop; and leave the shared numbers."""
        self.flush()
        if self._tracer is not None:
            self._tracer.close()
        self.metrics.close()
