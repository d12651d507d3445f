"""Metrics, read back by a strict little parser; hostile labels, bounded labels, and two processes as one."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path

import pytest

from forked_commands import start_program
from gateway.exchange_records import make_record
from toolwire.core.ir import Usage
from toolwire.gateway.telemetry.metrics import (
    ACCOUNT_ATTEMPTS,
    ACCOUNT_COOLDOWN,
    ACCOUNT_LIMIT_REMAINING,
    ATTEMPTS,
    CONFIG_RELOADS,
    IN_FLIGHT,
    LEDGER_ROWS_DROPPED,
    LIMIT_REFUSALS,
    LIMIT_WARNINGS,
    MAX_MODELS,
    MAX_SERIES,
    METRICS,
    PROVIDER_COOLDOWN,
    SLOT_CELLS,
    STORE_FAILURES,
    UPSTREAM_ERRORS,
    Metrics,
    Series,
    SharedCounters,
)
from toolwire.gateway.telemetry.record import CacheReport, CallUsage, ExchangeRecord

Sample = tuple[str, frozenset[tuple[str, str]]]

_HELP = re.compile(r"# HELP ([a-z_]+) .+")
_TYPE = re.compile(r"# TYPE ([a-z_]+) (counter|gauge|histogram)")
_SAMPLE = re.compile(r'([a-z_]+)(?:\{((?:[a-z_]+="(?:[^"\\\n]|\\["\\n])*",?)+)\})? (-?\d+(?:\.\d+)?(?:e-?\d+)?)')
_LABEL = re.compile(r'([a-z_]+)="((?:[^"\\\n]|\\["\\n])*)"(?:,|$)')
_UNESCAPED = {"\\\\": "\\", '\\"': '"', "\\n": "\n"}


def parse_samples(text: bytes) -> dict[Sample, float]:
    """All samples; each must belong to the family announced above it, and stand there once."""
    found: dict[Sample, float] = {}
    announced: set[str] = set()
    family = kind = ""
    assert text.endswith(b"\n")
    for line in text.decode().split("\n")[:-1]:
        if match := _HELP.fullmatch(line):
            assert match[1] not in announced
            announced.add(family := match[1])
        elif match := _TYPE.fullmatch(line):
            assert match[1] == family
            kind = match[2]
        else:
            match = _SAMPLE.fullmatch(line)
            assert match, line
            suffixes = ("_bucket", "_sum", "_count") if kind == "histogram" else ("",)
            assert match[1] in {family + suffix for suffix in suffixes}
            labels = frozenset(
                (name, re.sub(r"\\.", lambda escaped: _UNESCAPED[escaped[0]], value))
                for name, value in _LABEL.findall(match[2] or "")
            )
            assert (match[1], labels) not in found
            found[match[1], labels] = float(match[3])
    return found


def sample(metrics: Metrics, name: str, **labels: str) -> float | None:
    return parse_samples(metrics.write_text()).get((name, frozenset(labels.items())))


def total(metrics: Metrics, name: str) -> float:
    return sum(value for (found, _), value in parse_samples(metrics.write_text()).items() if found == name)


def exchange(**changes: object) -> ExchangeRecord:
    told: dict[str, object] = {
        "request_id": "r",
        "started": 100.0,
        "started_at": 0.0,
        "client_protocol": "anthropic",
        "provider_protocol": "gemini",
        "provider": "google",
        "model": "flash",
        "stream": True,
        "status": 200,
        "first_byte": 100.05,
        "ended": 102.0,
        "usage": Usage(input=500, output=30, cache_read=100, cache_write=7, reasoning=20),
        "losses": ("dropped-field", "added-id"),
    }
    return make_record(**(told | changes))


ROUTE = {"client_protocol": "anthropic", "provider_protocol": "gemini", "provider": "google", "stream": "true"}


def test_an_exchange_is_counted() -> None:
    metrics = Metrics()
    metrics.count_exchanges([exchange()])
    metrics.count_exchanges([exchange(first_byte=0.0, ended=100.05)])
    request = {**ROUTE, "operation": "chat", "model": "flash", "status": "200"}
    assert sample(metrics, "toolwire_requests_total", **request) == 2
    for kind, count in (("input", 1000), ("output", 60), ("cache_read", 200), ("cache_write", 14), ("reasoning", 40)):
        assert sample(metrics, "toolwire_tokens_total", provider="google", model="flash", kind=kind) == count
    assert sample(metrics, "toolwire_losses_total", code="dropped-field") == 2
    assert sample(metrics, "toolwire_request_seconds_count", **ROUTE) == 2
    assert sample(metrics, "toolwire_request_seconds_sum", **ROUTE) == pytest.approx(2.05)
    assert sample(metrics, "toolwire_first_byte_seconds_count", **ROUTE) == 1


def test_buckets_add_up() -> None:
    metrics = Metrics()
    for seconds in (0.0, 0.01, 0.02, 2.5, 3.0, 10_000.0):
        metrics.count_exchanges([exchange(started=0.0, ended=seconds)])
    bounds = {"0.01": 2, "0.025": 3, "1": 3, "2.5": 4, "5": 5, "600": 5, "+Inf": 6}
    assert {bound: sample(metrics, "toolwire_request_seconds_bucket", **ROUTE, le=bound) for bound in bounds} == bounds


def test_what_is_no_conversation_is_counted_without_times_and_tokens() -> None:
    metrics = Metrics()
    metrics.count_exchanges([exchange(operation="count_tokens")])
    metrics.count_exchanges([exchange(operation="models", provider="", model="", provider_protocol="")])
    metrics.count_exchanges([exchange(usage_estimated=True)])
    assert total(metrics, "toolwire_requests_total") == 3
    assert total(metrics, "toolwire_request_seconds_count") == 1
    assert total(metrics, "toolwire_tokens_total") == 0


def test_gauges_attempts_and_faults() -> None:
    metrics = Metrics()
    metrics.count(IN_FLIGHT)
    metrics.count(IN_FLIGHT)
    metrics.count(IN_FLIGHT, by=-1)
    metrics.count(ATTEMPTS, "google", "429")
    metrics.count(UPSTREAM_ERRORS, "google", "refused")
    metrics.set(PROVIDER_COOLDOWN, "google", to=1.0)
    assert sample(metrics, "toolwire_requests_in_flight") == 1
    assert sample(metrics, "toolwire_attempts_total", provider="google", outcome="429") == 1
    assert sample(metrics, "toolwire_upstream_errors_total", provider="google", kind="refused") == 1
    assert sample(metrics, "toolwire_provider_cooldown", provider="google") == 1
    metrics.set(PROVIDER_COOLDOWN, "google", to=0.0)
    assert sample(metrics, "toolwire_provider_cooldown", provider="google") == 0
    assert total(metrics, "toolwire_build_info") == total(metrics, "toolwire_workers") == 1


def test_every_family_is_told() -> None:
    metrics = Metrics()
    metrics.count_exchanges(
        [exchange(is_priced=True, call_usages=(CallUsage("p", "m"), CallUsage("p", "m", cost=Decimal(1))))]
    )
    metrics.count(LEDGER_ROWS_DROPPED)
    metrics.count(ATTEMPTS, "google", "ok")
    metrics.count(UPSTREAM_ERRORS, "google", "dns")
    metrics.set(PROVIDER_COOLDOWN, "google", to=0.0)
    metrics.count(ACCOUNT_ATTEMPTS, "google", "work", "429")
    metrics.set(ACCOUNT_COOLDOWN, "google", "work", to=1.0)
    metrics.set(ACCOUNT_LIMIT_REMAINING, "google", "work", "requests", to=0)
    report = CacheReport(5000, 0, 0, 5000, "tools", "", "/tools/0", "", Decimal("0.1"))
    metrics.count_cache(exchange(), report)
    metrics.count(CONFIG_RELOADS, "accepted")
    metrics.count(STORE_FAILURES, "write")
    metrics.add_limit("team app", "tokens_per_day", "", 100)
    metrics.count(LIMIT_REFUSALS, "team app", "tokens_per_day")
    metrics.count(LIMIT_WARNINGS, "team app", "tokens_per_day")
    assert {line.split()[2] for line in metrics.write_text().decode().splitlines() if line.startswith("# TYPE")} == set(
        METRICS
    )


# --- labels ---------------------------------------------------------------------------------------------------------


def test_what_was_used_of_a_limit_is_0_when_its_window_has_ended() -> None:
    metrics = Metrics()
    cells = [metrics.add_limit("team app", amount, "", 100) for amount in ("tokens_per_minute", "tokens_per_day")]
    for cell, end in zip(cells, (60.0, 86400.0), strict=True):
        metrics.values[cell], metrics.limit_ends[cell] = 50.0, end
    for now, expected in ((59.9, [50, 50]), (60.0, [0, 50]), (61.0, [0, 50])):
        metrics.reset_limits(now)
        found = [
            sample(metrics, "toolwire_limit_used", limit="team app", amount=amount, group="")
            for amount in ("tokens_per_minute", "tokens_per_day")
        ]
        assert found == expected


def test_labels_are_escaped() -> None:
    metrics = Metrics()
    name = 'a"} 1\\'
    metrics.set(PROVIDER_COOLDOWN, f"{name}\n", to=1.0)
    metrics.count_exchanges([exchange(model=f"{name}\n")])
    assert sample(metrics, "toolwire_provider_cooldown", provider=f"{name}\n") == 1
    models = {value for _, labels in parse_samples(metrics.write_text()) for label, value in labels if label == "model"}
    assert models == {f"{name}\\n"}


def models_of(metrics: Metrics) -> set[str]:
    samples = (labels for name, labels in parse_samples(metrics.write_text()) if name == "toolwire_requests_total")
    return {value for labels in samples for label, value in labels if label == "model"}


def test_a_model_that_never_worked_gets_no_label() -> None:
    metrics = Metrics()
    for number in range(50):
        metrics.count_exchanges([exchange(model=f"made-up-{number}", status=404, usage=None)])
    assert models_of(metrics) == {"unknown"}
    metrics.count_exchanges([exchange(model="made-up-0")])
    metrics.count_exchanges([exchange(model="made-up-0", status=429)])
    assert models_of(metrics) == {"unknown", "made-up-0"}


def test_models_are_bounded_even_if_all_of_them_work() -> None:
    metrics = Metrics()
    for number in range(MAX_MODELS + 50):
        metrics.count_exchanges([exchange(model=f"model-{number}")])
    assert len(models_of(metrics)) == MAX_MODELS + 1
    assert "other" in models_of(metrics)
    assert total(metrics, "toolwire_requests_total") == MAX_MODELS + 50


def test_series_are_bounded() -> None:
    metrics = Metrics()
    for number in range(MAX_SERIES + 50):
        metrics.count(ATTEMPTS, "p", f"outcome-{number}")
    assert sample(metrics, "toolwire_attempts_total", provider="other", outcome="other") == 50
    assert total(metrics, "toolwire_attempts_total") == MAX_SERIES + 50


def test_all_series_find_a_place() -> None:
    assert sum(metric.width * (MAX_SERIES + 1) for metric in METRICS.values()) < SLOT_CELLS - 64


def test_a_full_house_loses_numbers_but_breaks_nothing() -> None:
    cells = SharedCounters()
    index = cells.add_series(Series("a", (), SLOT_CELLS - 100))
    beyond = cells.add_series(Series("b", (), 40))
    assert (index, beyond) == (0, SLOT_CELLS - 64)
    cells.values[beyond + 39] += 1.0
    assert [found.series.metric for found in cells.read_all()] == ["a"]


# --- workers --------------------------------------------------------------------------------------------------------

WORKER = """
import sys
from decimal import Decimal
from pathlib import Path
from toolwire.gateway.telemetry.metrics import IN_FLIGHT, PROVIDER_COOLDOWN, Metrics
from toolwire.gateway.telemetry.record import Client, ExchangeRecord, UpstreamNames
metrics = Metrics(Path(sys.argv[1]))
metrics.count(IN_FLIGHT)
metrics.set(PROVIDER_COOLDOWN, "google", to=1.0)
for _ in range(3):
    metrics.count_exchanges(
        [
            ExchangeRecord(
                request_id="r", started=0.0, ended=1.0, started_at=0.0, status=200,
                client=Client(protocol="s"), upstream=UpstreamNames("p"),
            )
        ]
    )
print("counted", flush=True)
sys.stdin.read()
"""


@contextmanager
def worker(directory: Path) -> Iterator[None]:
    """A process that has counted, and is killed at the end of the block."""
    with start_program([sys.executable, "-c", WORKER, str(directory)], stdin=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "counted\n"
        yield


def test_the_numbers_of_all_workers_are_seen_at_each(tmp_path: Path) -> None:
    metrics = Metrics(tmp_path / "shared")
    metrics.count(IN_FLIGHT)
    metrics.count_exchanges([make_record(ended=1.0, client_protocol="s", provider="p", status=200)])
    with worker(tmp_path / "shared"):
        assert total(metrics, "toolwire_requests_total") == 4
        assert total(metrics, "toolwire_request_seconds_count") == 4
        assert total(metrics, "toolwire_request_seconds_sum") == 4.0
        assert total(metrics, "toolwire_requests_in_flight") == 2
        assert total(metrics, "toolwire_workers") == 2
        assert sample(metrics, "toolwire_provider_cooldown", provider="google") == 1
        assert total(metrics, "toolwire_build_info") == 1


def test_a_worker_that_dies_leaves_its_counts_and_the_next_one_counts_on(tmp_path: Path) -> None:
    metrics = Metrics(tmp_path)
    with worker(tmp_path):
        pass
    assert total(metrics, "toolwire_requests_total") == 3
    assert total(metrics, "toolwire_requests_in_flight") == 0
    assert total(metrics, "toolwire_workers") == 1
    assert sample(metrics, "toolwire_provider_cooldown", provider="google") is None
    with worker(tmp_path):
        assert total(metrics, "toolwire_requests_total") == 6
        assert total(metrics, "toolwire_requests_in_flight") == 1
        assert len(list(tmp_path.glob("*.cells"))) == 2


def test_a_slot_that_was_left_is_taken_over(tmp_path: Path) -> None:
    first = Metrics(tmp_path)
    first.count(ATTEMPTS, "p", "ok")
    first.close()
    first.count(ATTEMPTS, "p", "late")
    second = Metrics(tmp_path)
    second.count(ATTEMPTS, "p", "ok")
    assert sample(second, "toolwire_attempts_total", provider="p", outcome="ok") == 2
    assert total(second, "toolwire_workers") == len(list(tmp_path.glob("*.cells"))) == 1


def test_a_line_cut_by_death_does_not_swallow_the_next(tmp_path: Path) -> None:
    with worker(tmp_path):
        pass
    names = tmp_path / "0.names"
    names.write_bytes(names.read_bytes() + b'["toolwire_losses_to')
    metrics = Metrics(tmp_path)
    metrics.count_exchanges([exchange()])
    other = Metrics(tmp_path)
    assert total(other, "toolwire_requests_total") == 4
    assert sample(other, "toolwire_losses_total", code="added-id") == 1


def test_slots_of_another_version_or_of_nobody_are_passed_over(tmp_path: Path) -> None:
    metrics = Metrics(tmp_path)
    (tmp_path / "7.cells").write_bytes(b"")
    (tmp_path / "8.cells").write_bytes(bytes(SLOT_CELLS * 8))
    (tmp_path / "8.names").write_bytes(b'["toolwire_requests_total",["a"],3]\n["gone",[],1]\n["x",[],0]\n[]\n')
    metrics.count(ATTEMPTS, "p", "ok")
    assert total(metrics, "toolwire_attempts_total") == 1
