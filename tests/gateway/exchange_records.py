"""Records of exchanges for tests, made of plain fields."""

from __future__ import annotations

from msgspec.structs import fields

from toolwire.gateway.telemetry.record import Answer, Asked, Client, Costs, ExchangeRecord, Traffic, UpstreamNames

PARTS = {
    "client": Client, "asked": Asked, "upstream": UpstreamNames, "answer": Answer, "costs": Costs, "traffic": Traffic,
}  # fmt: skip
OTHER_NAMES = {
    "client_address": ("client", "address"),
    "client_protocol": ("client", "protocol"),
    "requested_model": ("asked", "model"),
    "model": ("upstream", "model"),
    "provider_protocol": ("upstream", "protocol"),
    "upstream_address": ("upstream", "address"),
    "response_model": ("answer", "model"),
    "upstream_request_id": ("answer", "request_id"),
    "usage_estimated": ("answer", "is_estimated"),
    "call_usages": ("costs", "calls"),
}
"""Fields of several parts have one name in their part and another one here."""
PLACES = {field.name: (part, field.name) for part, kind in PARTS.items() for field in fields(kind)} | OTHER_NAMES
OWN = {field.name for field in fields(ExchangeRecord)}


def make_record(**values: object) -> ExchangeRecord:
    own: dict[str, object] = {"request_id": "r", "started": 0.0, "started_at": 0.0}
    parts: dict[str, dict[str, object]] = {part: {} for part in PARTS}
    for name, value in values.items():
        if name in OWN:
            own[name] = value
        else:
            part, field = PLACES[name]
            parts[part][field] = value
    return ExchangeRecord(**own, **{part: kind(**parts[part]) for part, kind in PARTS.items()})  # type: ignore[arg-type]
