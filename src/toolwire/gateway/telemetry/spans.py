"""One span for each request, by OpenTelemetry's conventions for generative AI. It has text of conversations only if the
environment asks for it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from importlib.resources import files

import msgspec
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Span, SpanKind, StatusCode, get_current_span, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from opentelemetry.util.types import AttributeValue

from toolwire.core.codec import Codec
from toolwire.core.version import VERSION
from toolwire.gateway.http.redact import SecretFilter, printable_text, redact, safe_name
from toolwire.gateway.telemetry.conversations import read_side, write_messages
from toolwire.gateway.telemetry.record import ExchangeRecord
from toolwire.gateway.telemetry.text_lines import log_level
from toolwire.protocols import CODECS

CONTENT_VARIABLE = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
CONTENT_VALUES = frozenset({"true", "span_only", "span_and_event"})
MAX_WAITING = 100
"""Spans whose text waits to be read. Beyond that spans are sent without it: no request waits for them."""
SHUTDOWN_SECONDS = 5.0


class _ExporterWarnings(logging.Handler):
    """Passes warnings of the exporter to the gateway's log, but not those about a client's headers."""

    def __init__(self, warn: Callable[[str], None]) -> None:
        super().__init__(logging.WARNING)
        self._warn = warn

    def emit(self, record: logging.LogRecord) -> None:
        if record.name.startswith(("opentelemetry.exporter", "opentelemetry.sdk")):
            self._warn(f"traces: {record.getMessage()}")


class SpanTracer:
    def __init__(self, warn: Callable[[str], None], captures_content: bool = False) -> None:
        self.captures_content = captures_content
        self._secret_filter = SecretFilter()
        self._reader = ThreadPoolExecutor(1, "toolwire-spans") if captures_content else None
        self._waiting = 0
        self._logger = logging.getLogger("opentelemetry")
        self._handler = _ExporterWarnings(warn)
        self._logger.addHandler(self._handler)
        self._propagates, self._logger.propagate = self._logger.propagate, False
        # OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES win over this.
        own = Resource({"service.name": "toolwire", "service.version": VERSION})
        detected = Resource.create()
        unnamed = str(detected.attributes.get("service.name", "")).startswith("unknown_service")
        resource = detected.merge(own) if unnamed else own.merge(detected)
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
        self._tracer = self._provider.get_tracer("toolwire", VERSION)
        self._spans: dict[ExchangeRecord, Span] = {}
        """Of the exchanges that run."""
        self._propagator = TraceContextTextMapPropagator()
        text = files("toolwire.gateway.telemetry").joinpath("spans.json").read_bytes()
        self._provider_names = msgspec.json.decode(text, type=dict[str, str])

    def start_span(self, record: ExchangeRecord, headers: Mapping[str, str]) -> None:
        # In an application with its own traces, its span is the parent: it has already continued the client's trace.
        has_parent = get_current_span().get_span_context().is_valid
        context = None if has_parent else self._propagator.extract(headers, Context())
        start = int(record.started_at * 1e9)
        name = record.asked.operation
        span = self._tracer.start_span(name, context=context, kind=SpanKind.SERVER, start_time=start)
        self._spans[record] = span

    def trace_headers(self, record: ExchangeRecord) -> tuple[tuple[str, str], ...]:
        if record not in self._spans:
            return ()  # nothing is kept of it
        carrier: dict[str, str] = {}
        self._propagator.inject(carrier, set_span_in_context(self._spans[record], Context()))
        return tuple(carrier.items())

    def end_spans(self, records: Iterable[ExchangeRecord]) -> None:
        for record in records:
            self._end_span(record)

    def _end_span(self, record: ExchangeRecord) -> None:
        span = self._spans.pop(record)
        end = int((record.started_at + record.ended - record.started) * 1e9)
        if span.is_recording():
            model = safe_name(record.upstream.model or record.asked.model)
            span.update_name(f"{record.asked.operation} {model}".strip())
            span.set_attributes(self._attributes(record))
            if log_level(record) == "error":
                span.set_status(StatusCode.ERROR)
            sent = find_conversation(record) if self._reader is not None and self._waiting < MAX_WAITING else None
            if self._reader is not None and sent is not None:
                self._waiting += 1
                self._reader.submit(self._add_content, span, end, sent)
                return
        span.end(end)

    def hide_secrets(self, secrets: Iterable[str]) -> None:
        """Keys of providers, which no text may show."""
        self._secret_filter = SecretFilter(secrets)

    def _add_content(self, span: Span, end: int, sent: CapturedConversation) -> None:
        """In a thread: bodies can be large."""
        try:
            side = read_side(sent.codec, sent.request, sent.response, sent.status)
            if side is not None:
                clean = self._secret_filter.clean
                span.set_attributes(write_messages(side, lambda text: clean(redact(text), sent.secrets)))
        finally:
            self._waiting -= 1
            span.end(end)

    def close(self) -> None:
        """Export the last spans; a collector that does not answer must not delay the shutdown."""
        shutdown = threading.Thread(target=self._shut_down, daemon=True)
        shutdown.start()
        shutdown.join(SHUTDOWN_SECONDS)
        self._logger.removeHandler(self._handler)
        self._logger.propagate = self._propagates

    def _shut_down(self) -> None:
        if self._reader is not None:
            self._reader.shutdown()
        self._provider.shutdown()

    def _attributes(self, record: ExchangeRecord) -> dict[str, AttributeValue]:
        """Without empty values; a count of 0 is kept."""
        host, _, port = record.upstream.address.rpartition(":")
        is_chat, is_timed = record.asked.operation == "chat", record.asked.stream and record.first_byte
        usage, cost = record.answer.usage if is_chat else None, record.costs.add_up().total
        attempts = [f"{provider}:{outcome}" for provider, outcome, _ in record.attempts]
        attributes: dict[str, AttributeValue | None] = {
            "http.request.method": printable_text(record.client.method, 16),
            "url.path": safe_name(record.client.path.partition("?")[0]),
            "http.response.status_code": record.status or None,
            "user_agent.original": safe_name(record.client.user_agent),
            "client.address": printable_text(record.client.address),
            "error.type": record.failure or (str(record.status) if record.status >= 400 else ""),
            "gen_ai.operation.name": record.asked.operation if is_chat else "",
            "gen_ai.provider.name": self._provider_names.get(record.upstream.provider, record.upstream.provider),
            "gen_ai.request.model": safe_name(record.upstream.model or record.asked.model),
            "gen_ai.response.model": safe_name(record.answer.model),
            "gen_ai.response.finish_reasons": record.answer.finish_reasons,
            "server.address": host,
            "server.port": int(port) if port.isdecimal() else None,
            "gen_ai.request.stream": record.asked.stream or None,
            "gen_ai.response.time_to_first_chunk": record.first_byte - record.started if is_timed else None,
            "gen_ai.usage.input_tokens": usage.input if usage else None,
            "gen_ai.usage.output_tokens": usage.output if usage else None,
            "gen_ai.usage.cache_read.input_tokens": usage.cache_read if usage else None,
            "gen_ai.usage.cache_write.input_tokens": usage.cache_write if usage else None,
            "gen_ai.usage.reasoning.output_tokens": usage.reasoning if usage else None,
            "toolwire.request_id": printable_text(record.request_id),
            "toolwire.upstream_request_id": printable_text(record.answer.request_id),
            "toolwire.key_name": printable_text(record.client.key_name),
            "toolwire.client_protocol": record.client.protocol,
            "toolwire.provider_protocol": record.upstream.protocol,
            "toolwire.losses": tuple(dict.fromkeys(record.answer.losses)),
            "toolwire.attempts": attempts if len(attempts) > 1 else (),
            "toolwire.usage_estimated": record.answer.is_estimated or None,
            "toolwire.cost_usd": None if cost is None else float(cost),
            "toolwire.passthrough": record.is_passthrough or None,
            "toolwire.client_disconnected": record.client_disconnected or None,
        }
        return {name: value for name, value in attributes.items() if value is not None and value not in ("", ())}


class CapturedConversation(msgspec.Struct, frozen=True):
    """What the client has sent and got: the capture itself may be forgotten before it is read."""

    codec: Codec
    request: bytes
    response: bytes
    status: int
    secrets: tuple[str, ...]


def find_conversation(record: ExchangeRecord) -> CapturedConversation | None:
    capture, codec = record.traffic.capture, CODECS.get(record.client.protocol)
    if capture is None or codec is None or record.asked.operation != "chat":
        return None
    answer = capture.client_response.data
    return CapturedConversation(codec, capture.client_request, answer, record.status, record.client.secrets)
