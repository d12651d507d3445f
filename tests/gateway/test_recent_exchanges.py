"""The recent exchanges of the console: what is packed is the same afterwards, and no byte of the limit is lost."""

from __future__ import annotations

from itertools import permutations
from typing import get_type_hints

import msgspec
import pytest

from gateway.exchange_records import make_record
from toolwire.core.ir import Origin, Usage
from toolwire.core.losses import Ledger
from toolwire.gateway.settings.address import Address
from toolwire.gateway.telemetry.recent import MAX_PACKED, RecentExchanges
from toolwire.gateway.telemetry.record import (
    MAX_CAPTURED,
    CapturedBytes,
    ExchangeCapture,
    ExchangeRecord,
    UpstreamCapture,
)

LIMIT = 100 * 1024 * 1024


def record_of(kind: str, recent: RecentExchanges) -> ExchangeRecord:
    """A finished exchange."""
    ledger = Ledger("anthropic", "openai-chat")
    ledger.note("text-repaired", ((None, "messages"), 0), "half of a character was replaced by U+FFFD")
    large = {"large": 2 * MAX_PACKED, "too large": MAX_CAPTURED + 1}.get(kind, 10)
    record = make_record(
        request_id="req_1",
        started=1.5,
        started_at=1e9,
        path="/v1/\ud800" if kind == "not Unicode" else "/v1/messages",
        usage=Usage(25, 12, total=37, origin=Origin("openai-chat", (None, "usage"), {"x": msgspec.Raw(b"1e999")})),
        losses=("text-repaired",),
        ledgers=(ledger, None),
        attempts=[("a", "429", 0.1), ("b", "ok", 0.2)],
        tool_calls=(("read", "read_file"),),
        bytes_in=large,
    )
    recent.add(record)
    if kind != "without a body":
        call = UpstreamCapture(
            "openai-chat", "b", Address.parse("http://127.0.0.1:1"), "/v1", b"y" * large, 1.6, {"read_file": "read"}
        )
        call.headers, call.status = {"retry-after": "7"}, 200
        answers: list[CapturedBytes] = [call.response]
        record.traffic.capture = ExchangeCapture(b"x" * large, True, upstream_calls=[call])
        if kind == "stream":
            answers.append(record.traffic.capture.client_response)
        else:
            record.traffic.capture.client_response.add_whole(b"z" * large)
        for answer in answers:
            for number in range(3):
                answer.add(b"data: %d" % number, 2.0 + number, recent)
    record.ended = 9.5
    return record


KINDS = ("small", "stream", "large", "too large", "not Unicode", "without a body")


@pytest.fixture
def recent() -> RecentExchanges:
    recent = RecentExchanges()
    recent.configure(3, LIMIT)
    return recent


@pytest.mark.parametrize("kind", ["small", "stream", "without a body"])
def test_what_is_packed_is_the_same_afterwards(kind: str, recent: RecentExchanges) -> None:
    record = record_of(kind, recent)
    recent.keep_finished([record])
    found = recent.find(record.number)
    assert found is not None
    assert found is not record
    assert msgspec.msgpack.encode(found, enc_hook=dict) == msgspec.msgpack.encode(record, enc_hook=dict)
    assert found.answer.ledgers[0] is not None
    assert [loss.path for loss in found.answer.ledgers[0].losses] == ["/messages/0"]
    assert [one.number for one in recent.newest_first()] == [one.number for one in recent.since(0)] == [1]


@pytest.mark.parametrize("kinds", [*permutations(KINDS, 2)], ids="-".join)
def test_the_bytes_of_an_exchange_are_given_back(kinds: tuple[str, ...], recent: RecentExchanges) -> None:
    """Removed before it was counted, when it was counted, and with all others."""
    records = [record_of(kind, recent) for kind in (*kinds, "small")]
    recent.keep_finished(records[1:])
    record_of("small", recent)
    recent.keep_finished(records[:1])
    assert [one.number for one in recent.since(0)] == [2, 3, 4]
    assert recent.removed == 1
    recent.configure(0, LIMIT)
    assert recent.used_bytes == 0
    assert recent.removed == 4


def test_a_record_is_made_of_small_parts() -> None:
    """It once had 52 fields, written from 15 files. What a feature knows of an exchange is the feature's own value."""
    parts = [hint for hint in get_type_hints(ExchangeRecord).values() if hasattr(hint, "__struct_fields__")]
    assert len(parts) == 6
    sizes = {part.__name__: len(part.__struct_fields__) for part in (ExchangeRecord, *parts)}
    assert {name: size for name, size in sizes.items() if size > 20} == {}
