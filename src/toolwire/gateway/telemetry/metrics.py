"""Counters for Prometheus, of all workers together: docs/decisions/0009-metrics-and-traces.md says why by hand."""

from __future__ import annotations

import sys
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from toolwire import __version__
from toolwire.gateway.telemetry.cells import Cells, Found, Series
from toolwire.gateway.telemetry.clean import clean
from toolwire.gateway.telemetry.record import Record
from toolwire.ir import Usage

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
DIRECTORY = "TOOLWIRE_METRICS_DIR"
"""The variable of the environment that names the directory which workers share."""

SERIES_LIMIT = 500
"""Series of one family; what comes after them is counted together, with `other` in every label."""
MODEL_LIMIT = 100
"""Models with a label of their own. Clients name models, so a name gets its label only by an answer that succeeded."""
_MARKS_LIMIT = 4096
_MOST_LOSSES = 50
OTHER = "other"
UNKNOWN = "unknown"

_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0)
_BOUNDS = (*_SECONDS, float("inf"))
_SUM = len(_SECONDS) + 1
"""Where the sum of a histogram stands, after its buckets and what is beyond them."""
_ROUTE = ("source", "target", "provider", "stream")


class Family(msgspec.Struct, frozen=True, kw_only=True):
    """One metric: a counter or a gauge has one cell a series; a histogram one a bucket, one beyond, and the sum."""

    name: str
    help: str
    kind: Literal["counter", "gauge", "histogram"] = "counter"
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()
    together: Literal["sum", "max"] = "sum"
    """How the numbers of several workers become one."""

    @property
    def width(self) -> int:
        return len(self.buckets) + 2 if self.buckets else 1


REQUESTS = Family(
    name="toolwire_requests_total",
    help="Exchanges that ended, by what the client saw.",
    labels=("verb", "source", "target", "provider", "model", "status", "stream"),
)
SECONDS = Family(
    name="toolwire_request_seconds",
    help="From the request to the end of the answer.",
    kind="histogram",
    labels=_ROUTE,
    buckets=_SECONDS,
)
FIRST_BYTE = Family(
    name="toolwire_first_byte_seconds",
    help="From the request to the first byte of the answer.",
    kind="histogram",
    labels=_ROUTE,
    buckets=_SECONDS,
)
TOKENS = Family(
    name="toolwire_tokens_total",
    help="Tokens as providers counted them; input includes what was cached, output includes reasoning.",
    labels=("provider", "model", "kind"),
)
LOSSES = Family(name="toolwire_losses_total", help="What translations lost or changed.", labels=("code",))
ATTEMPTS = Family(
    name="toolwire_attempts_total", help="Tries at providers, by what came of them.", labels=("provider", "outcome")
)
FAULTS = Family(
    name="toolwire_upstream_faults_total",
    help="Connections to providers that failed.",
    labels=("provider", "kind"),
)
IN_FLIGHT = Family(name="toolwire_in_flight", help="Exchanges that run now.", kind="gauge")
RESTING = Family(
    name="toolwire_provider_resting",
    help="1 while a provider is left alone because it kept failing.",
    kind="gauge",
    labels=("provider",),
    together="max",
)
WORKERS = Family(name="toolwire_workers", help="Processes that serve.", kind="gauge")
BUILD = Family(
    name="toolwire_build_info", help="What runs.", kind="gauge", labels=("version", "python"), together="max"
)
FAMILIES: Mapping[str, Family] = {
    family.name: family
    for family in (
        REQUESTS, SECONDS, FIRST_BYTE, TOKENS, LOSSES, ATTEMPTS, FAULTS, IN_FLIGHT, RESTING, WORKERS, BUILD
    )
}  # fmt: skip

_KINDS = ("input", "output", "cache_read", "cache_write", "reasoning")


Kind = tuple[object, ...]


class Marks(msgspec.Struct, gc=False):
    """Where the numbers of one kind of exchange stand, found once."""

    requests: int
    lost: tuple[int, ...]
    """One for each loss."""
    seconds: int
    """-1 for what has neither times nor tokens."""
    first_byte: int
    provider: str
    model: str
    tokens: tuple[int, ...] = ()


Alike = tuple[Marks, list[float], list[float], list[Usage]]
"""Exchanges of one kind: how long each took, to its end and to its first byte, and what was used."""


class _Places(dict[tuple[str, ...], int]):
    """Where the series of one family stand; one that is new gets its place when it is asked for."""

    __slots__ = ("_cells", "_family")

    def __init__(self, cells: Cells, family: Family) -> None:
        self._cells, self._family = cells, family

    def __missing__(self, labels: tuple[str, ...]) -> int:
        if len(self) >= SERIES_LIMIT:
            labels = (OTHER,) * len(labels)
            if labels in self:
                return self[labels]
        family = self._family
        return self.setdefault(labels, self._cells.place(Series(family.name, labels, family.width)))


class Metrics:
    def __init__(self, directory: Path | None = None) -> None:
        self._cells = Cells(directory)
        self._values = self._cells.values
        self._places = {name: _Places(self._cells, family) for name, family in FAMILIES.items()}
        self._tried = self._places[ATTEMPTS.name]
        self._marks: dict[Kind, Marks] = {}
        self._models: set[str] = set()
        for series, index in self._cells.known():
            self._adopt(series, index)
        self._in_flight = self._place(IN_FLIGHT, ())
        self._values[self._place(WORKERS, ())] = 1.0
        self._values[self._place(BUILD, (__version__, ".".join(map(str, sys.version_info[:3]))))] = 1.0

    def _adopt(self, series: Series, index: int) -> None:
        """Count on where a worker that died left off; what was only true while it lived starts anew."""
        family = FAMILIES.get(series.family)
        if family is None or family.width != series.width or len(family.labels) != len(series.labels):
            return
        self._places[family.name][series.labels] = index
        if family.kind == "gauge":
            self._values[index] = 0.0
        if family is REQUESTS and len(self._models) < MODEL_LIMIT:
            self._models.add(series.labels[4])

    def _place(self, family: Family, labels: tuple[str, ...]) -> int:
        return self._places[family.name][labels]

    def _model(self, record: Record) -> str:
        """The label for the model that was sent; a name that never worked gets none."""
        name = clean(record.model, 100)
        if name in self._models:
            return name
        if not name or not 200 <= record.status < 300:
            return UNKNOWN if name else ""
        if len(self._models) >= MODEL_LIMIT:
            return OTHER
        self._models.add(name)
        return name

    def _find(self, kind: Kind, record: Record) -> Marks:
        model = self._model(record)
        status = str(record.status) if 100 <= record.status <= 599 else "none"
        stream = "true" if record.stream else "false"
        route = (record.source, record.target, record.provider, stream)
        timed = record.verb == "chat" and record.provider != ""
        marks = Marks(
            requests=self._place(REQUESTS, (record.verb, *route[:3], model, status, stream)),
            lost=tuple(self._place(LOSSES, (code,)) for code in record.losses),
            seconds=self._place(SECONDS, route) if timed else -1,
            first_byte=self._place(FIRST_BYTE, route) if timed else -1,
            provider=record.provider,
            model=model,
        )
        # One that is unknown may be known tomorrow, and what is too long is not worth keeping.
        if model == record.model and len(record.losses) <= _MOST_LOSSES:
            if len(self._marks) >= _MARKS_LIMIT:
                self._marks.clear()
            self._marks[kind] = marks
        return marks

    def exchanges(self, records: Iterable[Record]) -> None:
        """Those of one kind are counted together."""
        alike: dict[Kind, Alike] = {}
        last: Kind = ()
        for record in records:
            kind: Kind = (
                record.verb, record.source, record.target, record.provider, record.model, record.status, record.stream,
                record.losses,
            )  # fmt: skip
            if kind != last:  # neighbours are mostly alike
                last, same = kind, alike.get(kind)
                if same is None:
                    same = alike[kind] = self._marks.get(kind) or self._find(kind, record), [], [], []
                _, took, begun, usages = same
            started, usage = record.started, record.usage
            took.append(record.ended - started)
            if record.first_byte:
                begun.append(record.first_byte - started)
            if usage is not None and not record.estimated:
                usages.append(usage)
        for same in alike.values():
            self._count(*same)

    def _count(self, marks: Marks, took: list[float], begun: list[float], usages: Sequence[Usage]) -> None:
        values = self._values
        values[marks.requests] += len(took)
        for index in marks.lost:
            values[index] += len(took)
        if marks.seconds >= 0:
            self._observe(marks.seconds, took)
            if begun:
                self._observe(marks.first_byte, begun)
            if usages:
                self._count_tokens(marks, usages)

    def _observe(self, index: int, times: list[float]) -> None:
        """Those of one bucket are counted together."""
        values = self._values
        values[index + _SUM] += sum(times)
        times.sort()
        told = 0
        while told < len(times):
            bucket = bisect_left(_BOUNDS, times[told])
            here = bisect_right(times, _BOUNDS[bucket])
            values[index + bucket] += here - told
            told = here

    def _count_tokens(self, marks: Marks, usages: Iterable[Usage]) -> None:
        input = output = cache_read = cache_write = reasoning = 0
        for usage in usages:
            input += usage.input
            output += usage.output
            if usage.cache_read:
                cache_read += usage.cache_read
            if usage.cache_write:
                cache_write += usage.cache_write
            if usage.reasoning:
                reasoning += usage.reasoning
        if not marks.tokens:
            marks.tokens = tuple(self._place(TOKENS, (marks.provider, marks.model, kind)) for kind in _KINDS)
        values, places = self._values, marks.tokens
        for at, count in enumerate((input, output, cache_read, cache_write, reasoning)):
            if count:
                values[places[at]] += count

    def running(self, by: int) -> None:
        self._values[self._in_flight] += by

    def attempt(self, provider: str, outcome: str) -> None:
        self._values[self._tried[provider, outcome]] += 1.0

    def fault(self, provider: str, kind: str) -> None:
        self._values[self._place(FAULTS, (provider, kind))] += 1.0

    def resting(self, provider: str, rests: bool) -> None:
        self._values[self._place(RESTING, (provider,))] = float(rests)

    def text(self) -> bytes:
        """Everything, of all workers, in Prometheus' text format."""
        return "".join(_written(_together(self._cells.read()))).encode()

    def close(self) -> None:
        self._cells.close()


Numbers = dict[str, dict[tuple[str, ...], Sequence[float]]]


def _together(found: Iterable[Found]) -> Numbers:
    numbers: Numbers = {name: {} for name in FAMILIES}
    for item in found:
        series = item.series
        family = FAMILIES.get(series.family)
        if family is None or family.width != series.width or len(family.labels) != len(series.labels):
            continue  # written by another version
        if family.kind == "gauge" and not item.alive:
            continue
        before = numbers[family.name].get(series.labels)
        values = item.values
        if before is not None:
            add = sum if family.together == "sum" else max
            values = [add(pair) for pair in zip(before, item.values, strict=True)]
        numbers[family.name][series.labels] = values
    return numbers


def _written(numbers: Numbers) -> Iterable[str]:
    for name, family in FAMILIES.items():
        if numbers[name]:
            yield f"# HELP {name} {family.help}\n# TYPE {name} {family.kind}\n"
        for labels, values in sorted(numbers[name].items()):
            pairs = list(zip(family.labels, labels, strict=True))
            if family.buckets:
                yield from _histogram(family, pairs, values)
            else:
                yield f"{name}{_braces(pairs)} {_number(values[0])}\n"


def _histogram(family: Family, pairs: list[tuple[str, str]], values: Sequence[float]) -> Iterable[str]:
    count = 0.0
    bounds = [*(_number(bound) for bound in family.buckets), "+Inf"]
    for bound, value in zip(bounds, values[:-1], strict=True):
        count += value
        yield f"{family.name}_bucket{_braces([*pairs, ('le', bound)])} {_number(count)}\n"
    yield f"{family.name}_sum{_braces(pairs)} {_number(values[-1])}\n"
    yield f"{family.name}_count{_braces(pairs)} {_number(count)}\n"


_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})


def _braces(pairs: list[tuple[str, str]]) -> str:
    if not pairs:
        return ""
    return "{" + ",".join(f'{name}="{value.translate(_ESCAPES)}"' for name, value in pairs) + "}"


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(value)
