"""Prometheus metrics of all workers together. Each metric is declared here as a `Metric`. See docs/decisions/0009.

The numbers of a worker are in memory or, if workers share a directory, in a file that the others can read. Each worker
owns one slot of the directory: `N.cells` holds the numbers, `N.names` names their series, one per line. A worker holds
a lock on its slot as long as it runs; a new worker takes over the slot of a dead one and continues its counters, so
that no counter ever goes down.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import sys
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from itertools import compress
from operator import attrgetter
from pathlib import Path
from typing import Literal

import msgspec

from toolwire.core.bounded_dict import BoundedDict
from toolwire.core.version import VERSION
from toolwire.gateway.http.redact import printable_text
from toolwire.gateway.telemetry.record import CacheReport, CallUsage, ExchangeRecord

_CAN_SHARE = find_spec("fcntl") is not None
"""Not on Windows, which has only one worker."""
if _CAN_SHARE:
    import fcntl

SLOT_CELLS = 1 << 16
"""Numbers of a slot; pages that were never written use no disk space."""
_OVERFLOW_CELL = SLOT_CELLS - 64
"""For series that no longer fit into the slot; never shown."""
_SLOT_BYTES = SLOT_CELLS * 8


class Series(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One series: its metric, the values of its labels, and its number of cells. Written to `N.names` as an array."""

    metric: str
    labels: tuple[str, ...]
    width: int


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Series).decode


class WorkerSeries(msgspec.Struct, frozen=True, gc=False):
    series: Series
    values: Sequence[float]
    is_alive: bool


class SharedCounters:
    def __init__(self, directory: Path | None = None) -> None:
        directory = self._directory = directory if _CAN_SHARE else None
        self._names_file: int | None = None
        self._lock_file: int | None = None
        self._slot = -1
        self.series: list[tuple[Series, int]] = []
        """All series of the slot, at first those of its previous owner, with their first cells."""
        self._next_cell = 0
        memory = mmap.mmap(-1, _SLOT_BYTES) if directory is None else self._take_slot(directory)
        self.values = memoryview(memory).cast("d")

    def _take_slot(self, directory: Path) -> mmap.mmap:
        """Take the first slot that no running worker holds, with its numbers."""
        directory.mkdir(parents=True, exist_ok=True)
        while True:
            self._slot += 1
            cells = os.open(directory / f"{self._slot}.cells", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(cells, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(cells)
                continue
            self._lock_file = cells  # the lock is held as long as this file is open
            os.ftruncate(cells, _SLOT_BYTES)
            self._names_file = os.open(directory / f"{self._slot}.names", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            self.series = list(_read_series(directory / f"{self._slot}.names"))
            # Remove an incomplete last line, which a worker leaves if it dies while writing.
            os.ftruncate(self._names_file, sum(len(_encode(series)) + 1 for series, _ in self.series))
            os.lseek(self._names_file, 0, os.SEEK_END)
            self._next_cell = sum(series.width for series, _ in self.series)
            return mmap.mmap(cells, _SLOT_BYTES)

    def add_series(self, series: Series) -> int:
        """The first cell of a new series."""
        if self._next_cell + series.width > _OVERFLOW_CELL:
            return _OVERFLOW_CELL
        index = self._next_cell
        if self._names_file is not None:
            os.write(self._names_file, _encode(series) + b"\n")
        self._next_cell += series.width
        self.series.append((series, index))
        return index

    def close(self) -> None:
        """Release the slot. Numbers that are added later stay in memory."""
        if self._lock_file is not None and self._names_file is not None:
            fcntl.flock(self._lock_file, fcntl.LOCK_UN)  # the memory map holds a copy of the descriptor
            os.close(self._lock_file)
            os.close(self._names_file)
        self._lock_file = self._names_file = None

    def read_all(self) -> Iterator[WorkerSeries]:
        for series, index in self.series:
            yield WorkerSeries(series, self.values[index : index + series.width].tolist(), True)
        if self._directory is not None:
            for path in sorted(self._directory.glob("*.cells")):
                if path.stem != str(self._slot):
                    yield from _read_other_worker(path)


def _read_series(path: Path) -> Iterator[tuple[Series, int]]:
    """The series of a slot, up to the first invalid line."""
    index = 0
    try:
        lines = path.read_bytes().split(b"\n")[:-1]
    except FileNotFoundError:
        return
    for line in lines:
        try:
            series = _decode(line)
        except msgspec.DecodeError:
            return
        if not 0 < series.width <= _OVERFLOW_CELL - index:
            return
        yield series, index
        index += series.width


def _read_other_worker(path: Path) -> list[WorkerSeries]:
    # The file may have been removed since it was listed, or a new worker has not set its size yet.
    with contextlib.suppress(OSError, ValueError), path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            alive = False
            fcntl.flock(file, fcntl.LOCK_UN)
        except BlockingIOError:
            alive = True
        with mmap.mmap(file.fileno(), _SLOT_BYTES, access=mmap.ACCESS_READ) as memory:
            return [
                WorkerSeries(
                    series, memoryview(memory[index * 8 : (index + series.width) * 8]).cast("d").tolist(), alive
                )
                for series, index in _read_series(path.with_suffix(".names"))
            ]
    return []


# --- metrics ----------------------------------------------------------------------------------------------------------

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
DIRECTORY_VARIABLE = "TOOLWIRE_METRICS_DIR"
"""The environment variable with the directory that workers share."""

MAX_SERIES = 500
"""Series of one metric; further ones are counted together, with `other` in every label."""
MAX_MODELS = 100
"""Models with a label of their own. Clients choose the names, so only a successful answer gives a model its label."""
_MAX_CACHED_CELLS = 4096
_MAX_LOSSES = 50
OTHER = "other"
UNKNOWN = "unknown"

_TIME_BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0)
_SUM_CELL = len(_TIME_BUCKETS) + 1
"""The cell of a histogram's sum, after its buckets and the one for larger values."""
_ROUTE_LABELS = ("client_protocol", "provider_protocol", "provider", "stream")


class Metric(msgspec.Struct, frozen=True):
    """A series of a metric has one cell; of a histogram one per bucket, one for larger values, and the sum."""

    name: str
    help: str
    labels: tuple[str, ...] = ()
    kind: Literal["counter", "gauge", "histogram"] = "counter"
    merge: Literal["sum", "max"] = "sum"
    """How the numbers of several workers are combined."""

    @property
    def width(self) -> int:
        return len(_TIME_BUCKETS) + 2 if self.kind == "histogram" else 1


REQUESTS = Metric(
    "toolwire_requests_total",
    "Finished requests, with the status that the client got.",
    ("operation", "client_protocol", "provider_protocol", "provider", "model", "status", "stream"),
)
REQUEST_SECONDS = Metric(
    "toolwire_request_seconds", "Time from the request to the end of the answer.", _ROUTE_LABELS, "histogram"
)
FIRST_BYTE_SECONDS = Metric(
    "toolwire_first_byte_seconds", "Time from the request to the first byte of the answer.", _ROUTE_LABELS, "histogram"
)
TOKENS = Metric(
    "toolwire_tokens_total",
    "Tokens as counted by providers; input includes cached tokens, output includes reasoning.",
    ("provider", "model", "kind"),
)
COST = Metric(
    "toolwire_cost_usd_total",
    "What calls of providers cost in USD, by the prices that are known.",
    ("provider", "model", "key"),
)
UNPRICED_CALLS = Metric(
    "toolwire_unpriced_calls_total", "Calls of providers whose cost is not known.", ("provider", "model", "key")
)
LEDGER_ROWS_DROPPED = Metric(
    "toolwire_ledger_rows_dropped_total", "Calls of providers that the ledger of costs lacks: its store was down."
)
LOSSES = Metric("toolwire_losses_total", "Losses in translation.", ("code",))
ATTEMPTS = Metric("toolwire_attempts_total", "Attempts at providers, by outcome.", ("provider", "outcome"))
UPSTREAM_ERRORS = Metric("toolwire_upstream_errors_total", "Connection errors of providers.", ("provider", "kind"))
IN_FLIGHT = Metric("toolwire_requests_in_flight", "Requests that are running now.", (), "gauge")
PROVIDER_COOLDOWN = Metric(
    "toolwire_provider_cooldown",
    "1 while a provider is skipped because it keeps failing.",
    ("provider",),
    "gauge",
    "max",
)
ACCOUNT_ATTEMPTS = Metric(
    "toolwire_account_attempts_total",
    "Attempts at the accounts of providers that have several, by outcome.",
    ("provider", "account", "outcome"),
)
ACCOUNT_COOLDOWN = Metric(
    "toolwire_account_cooldown",
    "1 while an account is skipped because it is limited or keeps failing.",
    ("provider", "account"),
    "gauge",
    "max",
)
ACCOUNT_LIMIT_REMAINING = Metric(
    "toolwire_account_limit_remaining",
    "What the provider said last is left of a limit of the account, such as `requests` or `tokens`.",
    ("provider", "account", "limit"),
    "gauge",
    "max",
)
CACHE_EXPECTED = Metric(
    "toolwire_cache_expected_tokens_total",
    "Tokens of prompts that were in the prompt before of their session: an unchanged prefix can be read.",
    ("provider", "model"),
)
CACHE_MISSED = Metric(
    "toolwire_cache_missed_tokens_total",
    "Expected tokens that were not read from the prompt cache, by cause.",
    ("provider", "model", "cause"),
)
CACHE_MISSED_COST = Metric(
    "toolwire_cache_missed_cost_usd_total",
    "What missed tokens cost more than if they had been read, where prices are known.",
    ("provider", "model", "cause"),
)
CACHE_BREAKS = Metric(
    "toolwire_cache_breaks_total",
    "Turns whose prefix is not that of the turn before.",
    ("provider", "cause"),
)
CONFIG_RELOADS = Metric(
    "toolwire_config_reloads_total",
    "Changed configuration files, by outcome; a refused one leaves the old configuration in force.",
    ("outcome",),
)
STORE_FAILURES = Metric(
    "toolwire_store_failures_total",
    "Operations of the store that failed, by action: `read`, `write` or `count` (of limits).",
    ("action",),
)
LIMIT_USED = Metric(
    "toolwire_limit_used",
    "What was used and reserved of a limit in its window when it was last looked at, by its key in [[limits]].",
    ("limit", "amount", "group"),
    "gauge",
    "max",
)
LIMIT_MAXIMUM = Metric("toolwire_limit_maximum", "The amount of a limit.", ("limit", "amount", "group"), "gauge", "max")
LIMIT_REFUSALS = Metric("toolwire_limit_refusals_total", "Requests that a limit has refused.", ("limit", "amount"))
LIMIT_WARNINGS = Metric("toolwire_limit_warnings_total", "Requests beyond a soft limit.", ("limit", "amount"))
LOG_LINES_DROPPED = Metric(
    "toolwire_log_lines_dropped_total", "Log lines that were dropped because standard error was not read."
)
WORKERS = Metric("toolwire_workers", "Running worker processes.", (), "gauge")
BUILD_INFO = Metric("toolwire_build_info", "Versions of Toolwire and Python.", ("version", "python"), "gauge", "max")
METRICS: Mapping[str, Metric] = {one.name: one for one in [*globals().values()] if isinstance(one, Metric)}
"""All that are declared above, in their order."""

_TOKEN_KINDS = ("input", "output", "cache_read", "cache_write", "reasoning")
read_counts = attrgetter(*_TOKEN_KINDS)


def find_metric(series: Series) -> Metric | None:
    """The metric of a series; None if it is of another version of Toolwire."""
    metric = METRICS.get(series.metric)
    is_same = metric and metric.width == series.width and len(metric.labels) == len(series.labels)
    return metric if is_same else None


ExchangeKind = tuple[object, ...]


class ExchangeCells(msgspec.Struct, gc=False):
    """The cells that exchanges of one kind add to, looked up once."""

    requests: int
    losses: tuple[int, ...]
    seconds: int
    """-1 for an operation without times and tokens."""
    first_byte: int
    tokens: tuple[int, ...]


class _SeriesCells(dict[tuple[str, ...], int]):
    """The first cell of each series of one metric, by its labels; a new series is added on first use."""

    __slots__ = ("_counters", "_metric")

    def __init__(self, cells: SharedCounters, metric: Metric) -> None:
        self._counters, self._metric = cells, metric

    def __missing__(self, labels: tuple[str, ...]) -> int:
        if len(self) >= MAX_SERIES:
            labels = (OTHER,) * len(labels)
            if labels in self:
                return self[labels]
        metric = self._metric
        return self.setdefault(labels, self._counters.add_series(Series(metric.name, labels, metric.width)))


class Metrics:
    def __init__(self, directory: Path | None = None) -> None:
        self._counters = SharedCounters(directory)
        self._values = self.values = self._counters.values
        self._series_cells = {name: _SeriesCells(self._counters, metric) for name, metric in METRICS.items()}
        self.limit_ends: dict[int, float] = {}
        """When the windows of limits end, by their cells."""
        self._exchange_cells: dict[ExchangeKind, ExchangeCells] = BoundedDict(_MAX_CACHED_CELLS)
        self._cost_cells: dict[tuple[str, str, str], tuple[int, int]] = BoundedDict(_MAX_CACHED_CELLS)
        self._labelled_models: set[str] = set()
        for series, index in self._counters.series:
            metric = find_metric(series)
            if metric is None:
                continue
            # The counters of a dead worker continue; its gauges start at 0.
            self._series_cells[metric.name][series.labels] = index
            if metric.kind == "gauge":
                self._values[index] = 0.0
            if metric is REQUESTS and len(self._labelled_models) < MAX_MODELS:
                self._labelled_models.add(series.labels[4])
        for metric in (IN_FLIGHT, LOG_LINES_DROPPED):  # shown also while they are 0
            self.count(metric, by=0.0)
        self.set(WORKERS, to=1.0)
        self.set(BUILD_INFO, VERSION, ".".join(map(str, sys.version_info[:3])), to=1.0)

    def find_cell(self, metric: Metric, *labels: str) -> int:
        """The cell of a series in `values`, for what is counted so often that it is looked up once."""
        return self._series_cells[metric.name][labels]

    def find_cells(self, metric: Metric) -> Mapping[tuple[str, ...], int]:
        """The cells of all series of a metric; asking for a new series adds it."""
        return self._series_cells[metric.name]

    def _model_label(self, record: ExchangeRecord) -> str:
        """The label for the model; `unknown` until it has answered successfully."""
        name = printable_text(record.upstream.model, 100)
        if name in self._labelled_models:
            return name
        if not name or not 200 <= record.status < 300:
            return UNKNOWN if name else ""
        if len(self._labelled_models) >= MAX_MODELS:
            return OTHER
        self._labelled_models.add(name)
        return name

    def _find_cells(self, exchange_kind: ExchangeKind, record: ExchangeRecord) -> ExchangeCells:
        model = self._model_label(record)
        status = str(record.status) if 100 <= record.status <= 599 else "none"
        stream = "true" if record.asked.stream else "false"
        route = (record.client.protocol, record.upstream.protocol, record.upstream.provider, stream)
        has_times = record.asked.operation == "chat" and record.upstream.provider != ""
        cells = ExchangeCells(
            requests=self.find_cell(REQUESTS, record.asked.operation, *route[:3], model, status, stream),
            losses=tuple(self.find_cell(LOSSES, code) for code in record.answer.losses),
            seconds=self.find_cell(REQUEST_SECONDS, *route) if has_times else -1,
            first_byte=self.find_cell(FIRST_BYTE_SECONDS, *route) if has_times else -1,
            tokens=tuple(self.find_cell(TOKENS, record.upstream.provider, model, kind) for kind in _TOKEN_KINDS)
            if has_times and record.answer.usage is not None and not record.answer.is_estimated
            else (),
        )
        # An unknown model may become a known one, and a long list of losses is not worth the memory.
        if model == record.upstream.model and len(record.answer.losses) <= _MAX_LOSSES:
            self._exchange_cells[exchange_kind] = cells
        return cells

    def count_exchanges(self, records: Sequence[ExchangeRecord]) -> None:
        values, known = self._values, self._exchange_cells
        for record in records:
            if record.cache is not None:
                self.count_cache(record, record.cache)
            answer, asked = record.answer, record.asked
            usage = None if answer.is_estimated else answer.usage
            kind: ExchangeKind = (
                record.upstream, record.client.protocol, asked.operation, asked.stream, record.status, answer.losses,
                usage is None,
            )  # fmt: skip
            cells = known.get(kind) or self._find_cells(kind, record)
            values[cells.requests] += 1.0
            for call in record.costs.calls if record.costs.is_priced else ():
                costs = self._cost_cells.get((call.provider, call.model, record.client.key_name))
                known_cost, unpriced = costs or self._find_cost_cells(record, call)
                if call.cost is None:
                    values[unpriced] += 1.0
                else:
                    values[known_cost] += float(call.cost)
            for cell in cells.losses:
                values[cell] += 1.0
            if cells.seconds < 0:
                continue
            seconds = record.ended - record.started
            values[cells.seconds + bisect_left(_TIME_BUCKETS, seconds)] += 1.0
            values[cells.seconds + _SUM_CELL] += seconds
            if record.first_byte:
                seconds = record.first_byte - record.started
                values[cells.first_byte + bisect_left(_TIME_BUCKETS, seconds)] += 1.0
                values[cells.first_byte + _SUM_CELL] += seconds
            if usage is not None:
                counts = read_counts(usage)
                for cell, count in compress(zip(cells.tokens, counts, strict=True), counts):
                    values[cell] += count

    def _find_cost_cells(self, record: ExchangeRecord, call: CallUsage) -> tuple[int, int]:
        """The cells for the cost of a call, and for calls whose cost is not known."""
        model = printable_text(call.model, 100)
        if call.model == record.upstream.model:
            model = self._model_label(record)
        elif model not in self._labelled_models:
            model = UNKNOWN
        labels = (call.provider, model, printable_text(record.client.key_name, 100))
        cells = (self.find_cell(COST, *labels), self.find_cell(UNPRICED_CALLS, *labels))
        if model == call.model:  # an unknown model may become a known one
            self._cost_cells[call.provider, call.model, record.client.key_name] = cells
        return cells

    def count_cache(self, record: ExchangeRecord, report: CacheReport) -> None:
        provider, model, cause = record.upstream.provider, self._model_label(record), report.cause
        self.count(CACHE_EXPECTED, provider, model, by=report.expected)
        if report.missed:
            self.count(CACHE_MISSED, provider, model, cause, by=report.missed)
            if report.cost is not None:
                self.count(CACHE_MISSED_COST, provider, model, cause, by=float(report.cost))
        if report.place:
            self.count(CACHE_BREAKS, provider, cause)

    def count(self, metric: Metric, *labels: str, by: float = 1.0) -> None:
        """Add to a series that exchanges do not count by themselves."""
        self._values[self._series_cells[metric.name][labels]] += by

    def set(self, metric: Metric, *labels: str, to: float) -> None:
        self._values[self._series_cells[metric.name][labels]] = to

    def add_limit(self, limit: str, amount: str, group: str, maximum: float) -> int:
        """Show a limit. Returns its cell in `values`, because every request sets what is used of it."""
        labels = (limit, amount, printable_text(group, 100))
        self.set(LIMIT_MAXIMUM, *labels, to=maximum)
        return self.find_cell(LIMIT_USED, *labels)

    def reset_limits(self, now: float) -> None:
        """What was used in a window that has ended is 0, also if no request has come since."""
        for cell in [cell for cell, end in self.limit_ends.items() if end <= now]:
            self.values[cell] = 0.0
            del self.limit_ends[cell]

    def write_text(self) -> bytes:
        return "".join(_write_metrics(_merge_workers(self._counters.read_all()))).encode()

    def close(self) -> None:
        self._counters.close()


MergedSeries = dict[str, dict[tuple[str, ...], Sequence[float]]]


def _merge_workers(found: Iterable[WorkerSeries]) -> MergedSeries:
    numbers: MergedSeries = {name: {} for name in METRICS}
    for item in found:
        series = item.series
        metric = find_metric(series)
        if metric is None or (metric.kind == "gauge" and not item.is_alive):
            continue
        before = numbers[metric.name].get(series.labels)
        values = item.values
        if before is not None:
            add = sum if metric.merge == "sum" else max
            values = [add(pair) for pair in zip(before, item.values, strict=True)]
        numbers[metric.name][series.labels] = values
    return numbers


def _write_metrics(numbers: MergedSeries) -> Iterator[str]:
    for name, metric in METRICS.items():
        if numbers[name]:
            yield f"# HELP {name} {metric.help}\n# TYPE {name} {metric.kind}\n"
        for labels, values in sorted(numbers[name].items()):
            pairs = list(zip(metric.labels, labels, strict=True))
            if metric.kind == "histogram":
                yield from _write_histogram(metric, pairs, values)
            else:
                yield f"{name}{_write_labels(pairs)} {_write_number(values[0])}\n"


def _write_histogram(metric: Metric, pairs: list[tuple[str, str]], values: Sequence[float]) -> Iterable[str]:
    count = 0.0
    bounds = [*(_write_number(bound) for bound in _TIME_BUCKETS), "+Inf"]
    for bound, value in zip(bounds, values[:-1], strict=True):
        count += value
        yield f"{metric.name}_bucket{_write_labels([*pairs, ('le', bound)])} {_write_number(count)}\n"
    yield f"{metric.name}_sum{_write_labels(pairs)} {_write_number(values[-1])}\n"
    yield f"{metric.name}_count{_write_labels(pairs)} {_write_number(count)}\n"


_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})


def _write_labels(pairs: list[tuple[str, str]]) -> str:
    if not pairs:
        return ""
    return "{" + ",".join(f'{name}="{value.translate(_ESCAPES)}"' for name, value in pairs) + "}"


def _write_number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(value)
