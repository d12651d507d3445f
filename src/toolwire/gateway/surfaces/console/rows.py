"""Rows of the recent exchanges and of losses: without credentials, and short enough for a list."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import TypeVar, cast

from msgspec import Struct
from msgspec.structs import asdict, replace

from toolwire.core.ir import Usage
from toolwire.core.losses import Loss
from toolwire.gateway.http.redact import printable_text, redact_start, safe_name, shorten_agent
from toolwire.gateway.models.amounts import add_known, write_amount
from toolwire.gateway.surfaces.console import api
from toolwire.gateway.telemetry.log import log_path
from toolwire.gateway.telemetry.record import CacheReport, CallUsage, ExchangeRecord

CleanText = Callable[[str], str]
"""Removes credentials."""
Value = TypeVar("Value")
MAX_NAMES = 50
"""Tools that a row names."""
MAX_MESSAGE = 1000


def exchange_id(worker: int, number: int) -> str:
    return f"{worker}-{number}"


def parse_exchange_id(text: str) -> tuple[int, int] | None:
    """The worker and the number; None if it is not an id."""
    worker, dash, number = text.partition("-")
    is_id = dash and all(part.isascii() and part.isdecimal() and len(part) < 16 for part in (worker, number))
    return (int(worker), int(number)) if is_id else None


def exchange_row(record: ExchangeRecord, worker: int, words: tuple[str, str] = ("", "")) -> api.ExchangeRow:
    id = exchange_id(worker, record.number)
    started, first, state = record.started, record.first_byte, exchange_state(record)
    if record.client.secrets:
        record.hide_secrets()  # it may still run
    return api.ExchangeRow(
        id=id,
        request_id=safe_name(record.request_id),
        state=state,
        started_at=record.started_at,
        first_byte_ms=milliseconds(first - started) if first else None,
        duration_ms=milliseconds(record.ended - started) if state != "running" else None,
        asked=words[0],
        answered=words[1],
        operation=record.asked.operation,
        method=printable_text(record.client.method, 16),
        path=log_path(record),
        agent=shorten_agent(record.client.user_agent),
        key_name=printable_text(record.client.key_name),
        team=printable_text(record.client.team),
        client_protocol=record.client.protocol,
        provider_protocol=record.upstream.protocol,
        provider=record.upstream.provider,
        requested_model=safe_name(record.asked.model),
        model=safe_name(record.upstream.model),
        stream=record.asked.stream,
        passthrough=record.is_passthrough,
        status=record.status,
        failure=record.failure,
        message=printable_text(redact_start(record.message), MAX_MESSAGE),
        losses=tuple(dict.fromkeys(record.answer.losses)),
        loss_count=len(record.answer.losses),
        called_tools=[api.CalledTool(safe_name(a), safe_name(b)) for a, b in record.answer.tool_calls[:MAX_NAMES]],
        tool_runs=[safe_name(name) for name, _ in record.answer.tool_runs[:MAX_NAMES]],
        tokens=count_tokens(record.answer.usage, record.answer.is_estimated, record.cache),
        cost=exchange_cost(record),
        attempts=len(record.attempts),
        bytes_in=record.traffic.bytes_in,
        bytes_out=record.traffic.bytes_out,
        session=id if record.traffic.capture is not None else "",
        conversation=record.asked.session,
    )


def exchange_state(record: ExchangeRecord) -> api.ExchangeState:
    if not record.ended:
        return "running"
    if record.client_disconnected:
        return "disconnected"
    return "failed" if record.failure or record.status >= 400 else "done"


def count_tokens(
    usage: Usage | None, is_estimated: bool = False, cache: CacheReport | None = None
) -> api.Tokens | None:
    if usage is None:
        return None
    return api.Tokens(
        input=usage.input,
        output=usage.output,
        cache_read=usage.cache_read,
        cache_write=usage.cache_write,
        reasoning=usage.reasoning,
        cache_expected=cache.expected if cache is not None else None,
        cache_missed=cache.missed if cache is not None else None,
        is_estimated=is_estimated,
    )


def exchange_cost(record: ExchangeRecord) -> api.Cost | None:
    if not record.costs.is_priced:
        return None
    costs = record.costs.add_up()
    return make_cost(costs.total, costs.unpriced, costs.reported)


def call_cost(call: CallUsage, is_priced: bool) -> api.CallCost:
    cost = make_cost(call.cost, int(call.cost is None), call.reported_cost)
    return api.CallCost(
        provider=call.provider,
        account=call.account,
        model=safe_name(call.model),
        tokens=count_tokens(call.usage, call.is_estimated),
        cost=cost if is_priced else None,
    )


def cache_usage(report: CacheReport | None) -> api.CacheUsage | None:
    if report is None:
        return None
    return api.CacheUsage(
        expected_tokens=report.expected,
        read_tokens=report.read,
        write_tokens=report.written,
        missed_tokens=report.missed,
        cause=report.cause,
        reason=report.reason,
        place=report.place,
        extra_cost_usd=shorten_amount(report.cost) if report.missed else Decimal(0),
    )


def add_costs(costs: Sequence[api.Cost]) -> api.Cost | None:
    if not costs:
        return None
    known, reported = add_known([one.cost_usd for one in costs]), add_known([one.reported_cost_usd for one in costs])
    return make_cost(known, sum(one.unpriced_calls for one in costs), reported)


def make_cost(cost: Decimal | None, unpriced_calls: int, reported: Decimal | None) -> api.Cost:
    return api.Cost(
        cost_usd=shorten_amount(cost), unpriced_calls=unpriced_calls, reported_cost_usd=shorten_amount(reported)
    )


def shorten_amount(amount: Decimal | None) -> Decimal | None:
    """All digits of an amount, without zeros at the end."""
    return None if amount is None else Decimal(write_amount(amount))


def milliseconds(seconds: float) -> float:
    return round(max(seconds, 0.0) * 1e3, 2)


def loss_row(loss: Loss, is_in_answer: bool) -> api.LossRow:
    return api.LossRow(
        code=loss.code,
        severity=loss.severity,
        path=loss.path,
        is_in_answer=is_in_answer,
        what=loss.what,
        why=loss.why,
    )


def clean_texts(value: Value, clean: CleanText) -> Value:
    """The same with all texts in it cleaned."""
    cleaned: object = value
    if isinstance(value, str):
        cleaned = clean(value)
    elif isinstance(value, list):
        cleaned = [clean_texts(one, clean) for one in value]
    elif isinstance(value, Struct):
        cleaned = replace(value, **{name: clean_texts(one, clean) for name, one in asdict(value).items()})
    return cast("Value", cleaned)
