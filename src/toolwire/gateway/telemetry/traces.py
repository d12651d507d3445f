"""Are traces asked for? Nothing of OpenTelemetry is imported before the environment names an exporter."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from toolwire.gateway.telemetry.spans import Spans

HINT = "install the packages: pip install 'toolwire[otel]'"


def asked_for(environ: Mapping[str, str]) -> bool:
    """As OpenTelemetry's own variables say it."""
    if environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return False
    exporter = environ.get("OTEL_TRACES_EXPORTER", "").strip().lower()
    if exporter:
        return exporter != "none"
    return bool(environ.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") or environ.get("OTEL_EXPORTER_OTLP_ENDPOINT"))


def _unsupported(environ: Mapping[str, str]) -> str:
    """What is asked for and cannot be done, in words; otherwise nothing."""
    exporter = environ.get("OTEL_TRACES_EXPORTER", "").strip().lower() or "otlp"
    if exporter != "otlp":
        return f"OTEL_TRACES_EXPORTER={exporter}: only otlp (over HTTP) and none are known here"
    protocol = environ.get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL") or environ.get("OTEL_EXPORTER_OTLP_PROTOCOL") or ""
    if protocol.strip().lower() not in {"", "http/protobuf"}:
        return f"the OTLP protocol {protocol} is not spoken here: use http/protobuf (usually port 4318)"
    return ""


def tracer(environ: Mapping[str, str], warn: Callable[[str], None]) -> Spans | None:
    """The tracer that the environment asks for. What stands in its way is told once, and the gateway works without."""
    if not asked_for(environ):
        return None
    if problem := _unsupported(environ):
        warn(f"no traces: {problem}")
        return None
    try:
        from toolwire.gateway.telemetry.spans import Spans  # noqa: PLC0415 — a tenth of a second for those who want it
    except ImportError as error:
        warn(f"no traces: {error.name or error} is missing; {HINT}")
        return None
    return Spans(warn)
