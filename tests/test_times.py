"""Durations and timestamps, checked against the standard library."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolwire.core.rate_limits import MAX_TIMESTAMP, read_duration, read_timestamp, write_duration, write_timestamp

SPANS = [
    ("6m0s", 360.0),
    ("120ms", 0.12),
    ("1s", 1.0),
    ("7.66s", 7.66),
    ("2m59.56s", 179.56),
    ("1h2m3s", 3723.0),
    ("1d0h0m1s", 86401.0),
    ("0s", 0.0),
    ("17", 17.0),
]


@pytest.mark.parametrize(("text", "seconds"), SPANS)
def test_a_span_is_read(text: str, seconds: float) -> None:
    assert read_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "soon", "-1s", "1m 2s", "s", "1e9", "9" * 5000, "1s2m", "٣s"])
def test_what_is_no_span_is_none(text: str) -> None:
    assert read_duration(text) is None


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.12, "120ms"),
        (360, "6m0s"),
        (7.66, "7.66s"),
        (3723, "1h2m3s"),
        (3600, "1h0m0s"),
        (-5, "0ms"),
        (1.0001, "1.001s"),
    ],
)
def test_a_span_is_written(seconds: float, text: str) -> None:
    assert write_duration(seconds) == text


@given(st.integers(0, 10**9))
def test_a_span_comes_back(milliseconds: int) -> None:
    assert read_duration(write_duration(milliseconds / 1000)) == pytest.approx(milliseconds / 1000)


@given(st.integers(0, MAX_TIMESTAMP))
def test_an_instant_is_the_calendars(seconds: int) -> None:
    text = datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")
    assert write_timestamp(seconds) == text
    assert read_timestamp(text) == seconds


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("2026-11-20T12:00:00Z", 1795176000.0),
        ("2026-11-20T14:30:00.250+02:30", 1795176000.25),
        ("2026-11-20t09:00:00-03:00", 1795176000.0),
        ("2024-02-29T00:00:00Z", 1709164800.0),
        ("20 Nov 2026", None),
        ("2026-13-01T00:00:00Z", None),
        ("2026-11-20T12:00:00", None),
        ("", None),
    ],
)
def test_an_instant_is_read(text: str, seconds: float | None) -> None:
    assert read_timestamp(text) == seconds


def test_an_instant_is_never_early() -> None:
    assert write_timestamp(1795176000.1) == "2026-11-20T12:00:01Z"
