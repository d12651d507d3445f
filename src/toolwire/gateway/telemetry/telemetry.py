"""`Telemetry` passes each finished request to log, metrics and traces. OpenTelemetry is imported only if it is used."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING

from toolwire.core.ir import EMPTY_MAPPING, Usage
from toolwire.gateway.http.stderr import STDERR
from toolwire.gateway.settings.config import Provider, ServerSettings
from toolwire.gateway.telemetry.call_prices import CallPricer
from toolwire.gateway.telemetry.log import Log, write_stderr
from toolwire.gateway.telemetry.metrics import (
    ACCOUNT_ATTEMPTS,
    ATTEMPTS,
    IN_FLIGHT,
    LOG_LINES_DROPPED,
    UPSTREAM_ERRORS,
    Metrics,
)
from toolwire.gateway.telemetry.recent import MAX_EXCHANGES, RecentExchanges
from toolwire.gateway.telemetry.record import CacheReport, CallUsage, ExchangeRecord
from toolwire.gateway.telemetry.running import CallSink, EndSink, PromptSink, RunningExchange, Sinks, StartSink
from toolwire.terminal.packages import describe_missing_package

if TYPE_CHECKING:  # its packages are an optional extra
    from toolwire.gateway.telemetry.spans import SpanTracer


def is_tracing_requested(environ: Mapping[str, str]) -> bool:
    """Do OpenTelemetry's standard variables ask for traces?"""
    if environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return False
    exporter = environ.get("OTEL_TRACES_EXPORTER", "").strip().lower()
    if exporter:
        return exporter != "none"
    return bool(environ.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") or environ.get("OTEL_EXPORTER_OTLP_ENDPOINT"))


def make_tracer(environ: Mapping[str, str], warn: Callable[[str], None]) -> SpanTracer | None:
    """The tracer that the environment asks for. If it cannot be made, warn once and work without traces."""
    if not is_tracing_requested(environ):
        return None
    exporter = environ.get("OTEL_TRACES_EXPORTER", "").strip().lower() or "otlp"
    if exporter != "otlp":
        warn(f"no traces: OTEL_TRACES_EXPORTER={exporter}: only otlp (over HTTP) and none are supported")
        return None
    protocol = environ.get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL") or environ.get("OTEL_EXPORTER_OTLP_PROTOCOL") or ""
    if protocol.strip().lower() not in {"", "http/protobuf"}:
        warn(f"no traces: the OTLP protocol {protocol} is not supported: use http/protobuf (usually port 4318)")
        return None
    try:
        from toolwire.gateway.telemetry.spans import (  # noqa: PLC0415 — takes a tenth of a second
            CONTENT_VALUES,
            CONTENT_VARIABLE,
            SpanTracer,
        )
    except ImportError as error:
        problem, hint = describe_missing_package("tracing", error.name or "opentelemetry")
        warn(f"no traces: {problem}; {hint}")
        return None
    return SpanTracer(warn, environ.get(CONTENT_VARIABLE, "").strip().lower() in CONTENT_VALUES)


MAX_DEBUG_CAPTURE = 256 * 1024 * 1024
"""Bytes of traffic that are captured at a time for the debug log."""
LOG_DELAY = 0.02
"""Seconds that a log line may wait, so that several are written at once."""
_SINKS_OF = attrgetter("sinks")


def describe_break(record: ExchangeRecord, report: CacheReport, has_excerpt: bool) -> dict[str, object]:
    """The fields of the line about a broken prefix. The log removes secrets from them. The excerpt is text of the
    conversation, which is logged only where the operator asks for such text."""
    fields = {
        "key_name": record.client.key_name,
        "session": record.asked.session,
        "request_id": record.request_id,
        "provider": record.upstream.provider,
        "account": record.upstream.account,
        "model": record.upstream.model,
        "message": f"the prompt cache could not be read: {report.reason}",
        "cause": report.cause,
        "place": report.place,
        "excerpt": report.excerpt if has_excerpt else "",
        "expected_tokens": report.expected,
        "read_tokens": report.read,
        "missed_tokens": report.missed,
        "extra_cost_usd": None if report.cost is None else float(report.cost),
    }
    return {name: value for name, value in fields.items() if value not in ("", None)}


class Telemetry:
    """Start a record for every request, fill it in, and finish it exactly once, however the request ends."""

    def __init__(
        self,
        server: ServerSettings,
        out: Callable[[str], None] = write_stderr,
        tracer: SpanTracer | None = None,
        metrics: Metrics | None = None,
        keep_ended: EndSink | None = None,
        captures: bool = False,
    ) -> None:
        """`keep_ended` gets the exchanges that have ended: a program that uses the gateway inside of itself reads their
        losses, and their traffic if it `captures` that."""
        self.log = Log(server.log_format, out)
        self.recent = RecentExchanges()
        self.metrics = metrics or Metrics()
        self._in_flight = self.metrics.find_cell(IN_FLIGHT)
        self._attempt_cells = self.metrics.find_cells(ATTEMPTS)
        self.pricer: CallPricer | None = None
        """Finds what calls of providers cost; None if nobody wants to know."""
        self.tells_costs = False
        """Do clients get the cost of a whole answer in a header?"""
        self._tracer = tracer
        self._keep_ended, self._captures = keep_ended, captures
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ended: list[RunningExchange] = []
        self._counted_drops = STDERR.dropped_lines
        self.configure(server)

    def configure(self, server: ServerSettings, secrets: Iterable[str] = (), console_bytes: int = 0) -> None:
        """Apply settings, and the secrets that must never be logged. `console_bytes` is the memory
        of the console in all workers; 0 if it is off."""
        bodies = server.log_bodies and server.log_format != "none"
        self._server, self._has_console = server, console_bytes > 0
        if console_bytes:
            self.recent.configure(MAX_EXCHANGES, console_bytes // server.workers)
        else:
            self.recent.configure(0, MAX_DEBUG_CAPTURE)
        self.log.configure(server.log_format, bodies, secrets, server.log_level)
        if self._tracer is not None:
            self._tracer.hide_secrets(secrets)
        self.build_sinks()

    def build_sinks(self, ledger: CallSink | None = None, prompts: PromptSink | None = None) -> None:
        """List what keeps exchanges, in the order in which they get them; with these of the features."""
        server, tracer = self._server, self._tracer
        has_log = server.log_format != "none"
        has_debug_log = has_log and server.log_level == "debug"
        has_content = tracer is not None and tracer.captures_content
        wants_capture = self._captures or self._has_console or has_debug_log or has_content
        started: list[tuple[bool, StartSink]] = [(self._has_console, self.recent.add)]
        ended: list[tuple[bool, EndSink]] = [(True, self.metrics.count_exchanges)]
        if tracer is not None:
            started.append((True, tracer.start_span))
            ended.append((True, tracer.end_spans))
        if self._keep_ended is not None:
            ended.append((True, self._keep_ended))
        ended += [
            (has_log, self.log.log_exchanges),
            (prompts is not None, self._warn_of_breaks),
            (wants_capture, self.recent.keep_finished),
        ]
        self._sinks = Sinks(
            started=tuple(sink for is_on, sink in started if is_on),
            ended=tuple(sink for is_on, sink in ended if is_on),
            calls=ledger,
            prompts=prompts,
            wants_session=self.log.shows_sessions or self._has_console or ledger is not None or prompts is not None,
            wants_bodies=has_log and server.log_bodies,
            wants_capture=wants_capture,
        )

    def choose_sinks(self, record: ExchangeRecord) -> Sinks:
        """What keeps an exchange. This is the one place that decides it, when the exchange starts: for one that must
        leave nothing behind, it is `Sinks()`."""
        return self._sinks

    def start_exchange(self, record: ExchangeRecord, headers: Mapping[str, str] = EMPTY_MAPPING) -> RunningExchange:
        """Count the request as running, and continue the trace of the client's headers (in lower case)."""
        self.metrics.values[self._in_flight] += 1.0
        sinks = self.choose_sinks(record)
        for start in sinks.started:
            start(record, headers)
        return RunningExchange(record, sinks, () if self._tracer is None else self._tracer.trace_headers(record))

    def record_attempt(
        self, record: ExchangeRecord, provider: Provider, outcome: str, seconds: float, is_transport_error: bool = False
    ) -> None:
        """Add an attempt: "ok", a status such as "429", or the kind of a transport error."""
        name, account = provider.name, provider.account
        record.attempts.append((f"{name}/{account}" if account else name, outcome, seconds))
        if account:
            self.metrics.count(ACCOUNT_ATTEMPTS, name, account, outcome)
        self.metrics.values[self._attempt_cells[name, outcome]] += 1.0
        if is_transport_error:
            self.metrics.count(UPSTREAM_ERRORS, name, outcome)

    def start_call(self, running: RunningExchange, provider: str, model: str, account: str = "") -> None:
        """A request to a provider that may cost something is being sent."""
        if running.open_call is not None:
            self.end_call(running, None)
        running.open_call = call = CallUsage(provider, model, account)
        if (ledger := running.sinks.calls) is not None:
            ledger.start_call(running, call)

    def end_call(self, running: RunningExchange, usage: Usage | None, is_estimated: bool = False) -> None:
        """The call of a provider that runs has ended with this usage; None if it is unknown. This is the one place
        where usage is recorded, for every call: costs and limits build on it."""
        call = running.open_call
        if call is not None:
            running.open_call = None
            call.usage, call.is_estimated = usage, is_estimated
            record = running.record
            record.costs.calls += (call,)
            if self.pricer is not None:
                self.pricer.price_call(call, record.started_at)
                record.costs.is_priced = True
            if (ledger := running.sinks.calls) is not None:
                ledger.end_call(record, call)

    def drop_call(self, running: RunningExchange) -> None:
        """The provider did not answer the call that runs, or refused it: it has used nothing."""
        ledger = running.sinks.calls
        if ledger is not None and running.open_call is not None:
            ledger.drop_call(running.open_call)
        running.open_call = None

    def finish_exchange(self, running: RunningExchange, ended: float) -> None:
        record = running.record
        record.ended = ended
        if running.open_call is not None:  # its client has left while the provider worked
            self.end_call(running, None)
        if running.holdings:
            running.end_holdings()
        if record.client.secrets:
            record.hide_secrets()
        self._ended.append(running)
        if len(self._ended) == 1:
            if self._loop is None:
                self.flush()
            else:
                self._loop.call_later(LOG_DELAY, self.flush)

    def batch_on_loop(self, loop: asyncio.AbstractEventLoop) -> None:
        """Collect finished requests for a moment and process them together, which costs less."""
        self._loop = loop

    def flush(self) -> None:
        """Give the exchanges that have ended to their sinks. Mostly these are the same for all. A sink that fails keeps
        nothing from the others: its error is raised when all of them have had theirs."""
        ended, self._ended = self._ended, []
        due: list[tuple[Sinks, list[ExchangeRecord]]] = []
        for sinks, group in groupby(ended, _SINKS_OF):
            records = [running.record for running in group]
            self.metrics.values[self._in_flight] -= len(records)
            due.append((sinks, records))
        with ExitStack() as stack:  # it calls the last one first
            for sinks, records in reversed(due):
                for keep in reversed(sinks.ended):
                    stack.callback(keep, records)
        if STDERR.dropped_lines != self._counted_drops:
            lost, self._counted_drops = STDERR.dropped_lines - self._counted_drops, STDERR.dropped_lines
            self.metrics.count(LOG_LINES_DROPPED, by=lost)

    def _warn_of_breaks(self, records: Sequence[ExchangeRecord]) -> None:
        """Log the prefixes that these exchanges broke, after their own lines."""
        may_log_text = self._server.log_bodies or self._server.log_level == "debug"
        for record, report in self._sinks.prompts.take_broken() if self._sinks.prompts is not None else ():
            fields = describe_break(record, report, may_log_text)
            self.log.log_event("cache_prefix_broken", fields, "warn", record.client.secrets)

    def log_event(self, kind: str, *, level: str = "info", **fields: object) -> None:
        """Log something that is not a request, such as `config_reloaded`; the level is info, warn or error."""
        self.flush()
        self.log.log_event(kind, fields, level)

    def report_error(self, error: BaseException) -> None:
        """Log an error that should not happen, with its place."""
        frames = list(traceback.walk_tb(error.__traceback__))
        place = f"{frames[-1][0].f_code.co_filename}:{frames[-1][1]}" if frames else ""
        self.log_event("internal_error", level="error", error=f"{type(error).__name__}: {error}", location=place)

    def metrics_text(self) -> bytes:
        self.flush()
        return self.metrics.write_text()

    def close(self) -> None:
        """Export the last spans, which may take seconds, so not on the event loop; and release the metrics."""
        self.flush()
        if self._tracer is not None:
            self._tracer.close()
        self.metrics.close()
        STDERR.drain()
