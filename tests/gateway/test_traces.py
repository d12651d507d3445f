"""Traces arrive at a real collector on loopback, by the conventions; nothing is imported when none are asked for."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from gateway.exchange_records import make_record
from gateway.provider import ScriptedAnswer
from gateway.raw_exchange import body_of, frames
from toolwire.core.ir import Usage
from toolwire.gateway.settings.config import ServerSettings
from toolwire.gateway.telemetry.record import CapturedBytes, ExchangeCapture, ExchangeRecord
from toolwire.gateway.telemetry.telemetry import Telemetry, is_tracing_requested, make_tracer


class Collector(ThreadingHTTPServer):
    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Taking)
        self.taken: list[tuple[str, ExportTraceServiceRequest]] = []
        self.thread = threading.Thread(target=self.serve_forever, args=(0.01,))
        self.thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def spans(self) -> list[Span]:
        return [
            span
            for _, request in self.taken
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]


class Taking(BaseHTTPRequestHandler):
    server: Collector
    protocol_version: ClassVar[str] = "HTTP/1.1"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.server.taken.append((self.path, ExportTraceServiceRequest.FromString(body)))
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    server = Collector()
    for name in list(os.environ):
        if name.startswith("OTEL_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", server.url)
    yield server
    server.shutdown()
    server.thread.join()
    server.server_close()


PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def exchange(**changes: object) -> ExchangeRecord:
    told: dict[str, object] = {
        "request_id": "req_1",
        "started": 100.0,
        "started_at": 1_800_000_000.0,
        "method": "POST",
        "path": "/v1/messages?key=hush",
        "client_address": "127.0.0.1",
        "user_agent": "claude-cli/2.1.0",
        "key_name": "laptop",
        "client_protocol": "anthropic",
        "provider_protocol": "gemini",
        "provider": "gemini",
        "upstream_address": "generativelanguage.example:443",
        "requested_model": "sonnet",
        "model": "flash",
        "response_model": "flash-002",
        "stream": True,
        "status": 200,
        "first_byte": 100.5,
        "usage": Usage(input=500, output=30, cache_read=100, cache_write=0, reasoning=20),
        "finish_reasons": ("calls",),
        "losses": ("dropped-field",),
        "request_body": b"hush",
        "response_body": b"hush",
        "message": "hush",
    }
    return make_record(**(told | changes))


def plain_value(value: AnyValue) -> object:
    if value.HasField("array_value"):
        return [plain_value(item) for item in value.array_value.values]
    return getattr(value, str(value.WhichOneof("value")))


def attributes(span: Span) -> dict[str, object]:
    return {pair.key: plain_value(pair.value) for pair in span.attributes}


def trace_exchanges(
    *records: ExchangeRecord, headers: dict[str, str] | None = None
) -> list[tuple[tuple[str, str], ...]]:
    """Runs the exchanges, gives the headers for their providers; all spans have arrived afterwards."""
    warnings: list[str] = []
    telemetry = Telemetry(
        ServerSettings(log_format="none", log_level="info", log_bodies=False),
        warnings.append,
        make_tracer(os.environ, warnings.append),
    )
    passed_on = []
    for record in records:
        running = telemetry.start_exchange(record, headers or {})
        passed_on.append(running.trace_headers)
        telemetry.finish_exchange(running, 102.0)
    telemetry.close()
    assert warnings == []
    return passed_on


def test_a_span_tells_the_exchange_by_the_conventions(collector: Collector) -> None:
    trace_exchanges(exchange())
    (span,) = collector.spans()
    assert collector.taken[0][0] == "/v1/traces"
    assert span.name == "chat flash"
    assert span.kind == Span.SPAN_KIND_SERVER
    assert (span.start_time_unix_nano, span.end_time_unix_nano) == (1_800_000_000 * 10**9, 1_800_000_002 * 10**9)
    assert span.status.code == Status.STATUS_CODE_UNSET
    assert attributes(span) == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "gcp.gemini",
        "gen_ai.request.model": "flash",
        "gen_ai.request.stream": True,
        "gen_ai.response.model": "flash-002",
        "gen_ai.response.finish_reasons": ["calls"],
        "gen_ai.response.time_to_first_chunk": 0.5,
        "gen_ai.usage.input_tokens": 500,
        "gen_ai.usage.output_tokens": 30,
        "gen_ai.usage.cache_read.input_tokens": 100,
        "gen_ai.usage.cache_write.input_tokens": 0,
        "gen_ai.usage.reasoning.output_tokens": 20,
        "server.address": "generativelanguage.example",
        "server.port": 443,
        "client.address": "127.0.0.1",
        "http.request.method": "POST",
        "http.response.status_code": 200,
        "url.path": "/v1/messages",
        "user_agent.original": "claude-cli/2.1.0",
        "toolwire.request_id": "req_1",
        "toolwire.key_name": "laptop",
        "toolwire.client_protocol": "anthropic",
        "toolwire.provider_protocol": "gemini",
        "toolwire.losses": ["dropped-field"],
    }
    assert b"hush" not in collector.taken[0][1].SerializeToString()


def test_the_service_is_named(collector: Collector, monkeypatch: pytest.MonkeyPatch) -> None:
    trace_exchanges(exchange())
    monkeypatch.setenv("OTEL_SERVICE_NAME", "ours")
    trace_exchanges(exchange())
    resources = [request.resource_spans[0].resource for _, request in collector.taken]
    names = [
        {pair.key: plain_value(pair.value) for pair in resource.attributes}["service.name"] for resource in resources
    ]
    assert names == ["toolwire", "ours"]


def test_the_clients_trace_is_continued_and_passed_on(collector: Collector) -> None:
    headers = {"traceparent": PARENT, "tracestate": "vendor=1", "baggage": "user=me"}
    (passed_on,) = trace_exchanges(exchange(), headers=headers)
    (span,) = collector.spans()
    assert span.trace_id.hex() == "0af7651916cd43dd8448eb211c80319c"
    assert span.parent_span_id.hex() == "b7ad6b7169203331"
    assert dict(passed_on) == {
        "traceparent": f"00-{span.trace_id.hex()}-{span.span_id.hex()}-01",
        "tracestate": "vendor=1",
    }


def test_a_trace_that_is_not_sampled_stays_so(collector: Collector) -> None:
    (passed_on,) = trace_exchanges(exchange(), headers={"traceparent": PARENT[:-1] + "0"})
    assert collector.spans() == []
    assert dict(passed_on)["traceparent"].startswith("00-0af7651916cd43dd8448eb211c80319c-")
    assert dict(passed_on)["traceparent"].endswith("-00")


@pytest.mark.parametrize("broken", ["", "nonsense", "00-" + "0" * 32 + "-b7ad6b7169203331-01", "x" * 10_000])
def test_a_broken_trace_starts_a_new_one(collector: Collector, broken: str) -> None:
    (passed_on,) = trace_exchanges(exchange(), headers={"traceparent": broken})
    (span,) = collector.spans()
    assert span.parent_span_id == b""
    ((name, value),) = passed_on
    assert name == "traceparent"
    assert value.rpartition("-")[0] == f"00-{span.trace_id.hex()}-{span.span_id.hex()}"
    assert int(value.rpartition("-")[2], 16) & 1


def test_failures_are_told(collector: Collector) -> None:
    upstream = exchange(status=502, failure="upstream", usage=None)
    upstream.attempts += [("gemini", "503", 0.1), ("groq", "refused", 0.2)]
    trace_exchanges(
        upstream,
        exchange(status=404, failure="not_found", requested_model="nope\n", model="", provider="", upstream_address=""),
    )
    first, second = collector.spans()
    assert first.status.code == Status.STATUS_CODE_ERROR
    assert attributes(first)["error.type"] == "upstream"
    assert attributes(first)["toolwire.attempts"] == ["gemini:503", "groq:refused"]
    assert second.name == "chat nope\\n"
    assert second.status.code == Status.STATUS_CODE_UNSET
    assert attributes(second)["error.type"] == "not_found"


def test_what_is_no_conversation_is_no_operation_of_a_model(collector: Collector) -> None:
    trace_exchanges(exchange(operation="models", model="", requested_model="", provider="", usage=None))
    (span,) = collector.spans()
    assert span.name == "models"
    assert not {"gen_ai.operation.name", "gen_ai.provider.name"} & attributes(span).keys()


def test_a_collector_that_is_away_is_told_in_our_own_log(collector: Collector, monkeypatch: pytest.MonkeyPatch) -> None:
    closed = ThreadingHTTPServer(("127.0.0.1", 0), Taking)
    closed.server_close()
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{closed.server_address[1]}")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
    warnings: list[str] = []
    spans = make_tracer(os.environ, warnings.append)
    assert spans is not None
    record = exchange(ended=102.0)
    spans.start_span(record, {})
    spans.end_spans([record])
    spans.close()
    assert warnings
    assert all(warning.startswith("traces: ") for warning in warnings)


# --- text of conversations ---

SECRET = "sk-proj-abcdefghijklmnop1234"
CONVERSATION = {
    "model": "sonnet",
    "system": "Be brief.",
    "messages": [
        {"role": "user", "content": [
            {"type": "text", "text": f"Look, my key is {SECRET}."},
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}},
        ]},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "look_up", "input": {"q": "x"}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "found"}]},
    ],
}  # fmt: skip


def span_texts(span: Span) -> dict[str, Any]:
    texts = {name: value for name, value in attributes(span).items() if name.endswith(("messages", "instructions"))}
    return {name: json.loads(str(value)) for name, value in texts.items()}


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("value", ["true", "SPAN_ONLY", "false", ""])
def test_text_is_in_spans_only_if_the_environment_asks_for_it(
    collector: Collector, monkeypatch: pytest.MonkeyPatch, value: str, stream: bool
) -> None:
    monkeypatch.setenv("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", value)
    answer = "".join(frame.decode() for frame in frames("anthropic", "Here it is."))
    if not stream:
        answer = json.dumps(body_of("anthropic", ScriptedAnswer("Here it is.")))
    capture = ExchangeCapture(json.dumps(CONVERSATION).encode(), client_response=CapturedBytes([answer.encode()]))
    trace_exchanges(exchange(capture=capture))
    (span,) = collector.spans()
    assert SECRET not in str(attributes(span))
    found = span_texts(span)
    if value in ("false", ""):
        assert found == {}
        return
    assert found["gen_ai.system_instructions"] == [{"type": "text", "content": "Be brief."}]
    user, model, tool = found["gen_ai.input.messages"]
    assert user["parts"][0]["content"].startswith("Look, my key is ")
    assert user["parts"][1] == {"type": "file", "modality": "image", "mime_type": "image/png", "file_id": ""}
    assert model["parts"] == [{"type": "tool_call", "id": "t1", "name": "look_up", "arguments": {"q": "x"}}]
    assert tool["parts"] == [{"type": "tool_call_response", "id": "t1", "response": "found"}]
    assert found["gen_ai.output.messages"] == [
        {"role": "assistant", "parts": [{"type": "text", "content": "Here it is."}], "finish_reason": "stop"}
    ]


def test_what_cannot_be_read_has_a_span_without_text(collector: Collector, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "true")
    trace_exchanges(exchange(capture=ExchangeCapture(b"{")), exchange(capture=None), exchange(operation="models"))
    assert [span_texts(span) for span in collector.spans()] == [{}] * 3


# --- asked for or not -----------------------------------------------------------------------------------------------

HERE = "http://127.0.0.1:4318"


@pytest.mark.parametrize(
    ("environ", "asked"),
    [
        ({}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": HERE}, True),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": HERE}, True),
        ({"OTEL_TRACES_EXPORTER": "otlp"}, True),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": HERE, "OTEL_TRACES_EXPORTER": "none"}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": HERE, "OTEL_SDK_DISABLED": "True"}, False),
    ],
)
def test_the_environment_says_whether_there_are_traces(environ: dict[str, str], asked: bool) -> None:
    assert is_tracing_requested(environ) is asked


@pytest.mark.parametrize(
    ("environ", "words"),
    [
        ({"OTEL_TRACES_EXPORTER": "zipkin"}, "OTEL_TRACES_EXPORTER=zipkin"),
        ({"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, "use http/protobuf"),
    ],
)
def test_what_cannot_be_done_is_told_once(environ: dict[str, str], words: str) -> None:
    warnings: list[str] = []
    assert make_tracer(environ, warnings.append) is None
    assert len(warnings) == 1
    assert words in warnings[0]


WITHOUT = """
import sys
class Absent:
    def find_spec(self, name, path=None, provider_protocol=None):
        if name.split(".")[0] == "opentelemetry":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Absent())
from toolwire.gateway.telemetry.telemetry import make_tracer
print(make_tracer({"OTEL_TRACES_EXPORTER": sys.argv[1]}, print))
print("opentelemetry" in sys.modules)
"""


@pytest.mark.parametrize(
    ("exporter", "said"),
    [
        (
            "otlp",
            [
                "no traces: tracing needs the package opentelemetry, which is not installed; install it with: pip install 'toolwire[otel]'",
                "None",
            ],
        ),
        ("none", ["None"]),
    ],
)
def test_without_the_packages_there_is_a_hint(exporter: str, said: list[str]) -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT, exporter], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [*said, "False"]
