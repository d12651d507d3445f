"""Tables and targets, from the cells that were measured."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable

from msgspec import Struct

from bench.gateway.measure import DIRECT, STREAMS, Case, Cell

OURS = "toolwire"
WITHOUT_CONSOLE = "no-console"
BARE = "bare"
REPAIRING = "repairing"
WITHOUT_COSTS, PRICED, LIMITED = "no-costs", "priced", "limited"
SIGNED = "signed"
"""`bare`, and every request is signed for AWS."""
FLOOR = "floor"


class Target(Struct, frozen=True):
    what: str
    limit: float
    most: bool
    """Whether the limit is the most that is allowed, or the least."""
    unit: str
    figures: dict[str, float]

    def worst(self) -> float:
        return (max if self.most else min)(self.figures.values())

    def met(self) -> bool:
        return self.worst() <= self.limit if self.most else self.worst() >= self.limit


class Results:
    """All cells of a run, by system and case."""

    def __init__(self) -> None:
        self.cells: dict[tuple[str, Case], Cell] = {}
        self.starts: dict[str, float] = {}
        self.resident: dict[str, int] = {}

    def add(self, cells: Iterable[Cell]) -> None:
        self.cells |= {(cell.system, cell.case): cell for cell in cells}

    def cases(self, part: str) -> list[Case]:
        return list(dict.fromkeys(case for _, case in self.cells if case.part == part))

    def good(self, system: str, case: Case) -> Cell | None:
        cell = self.cells.get((system, case))
        return cell if cell is not None and cell.fault is None and cell.samples else None

    def ratio(self, over: str, under: str, case: Case) -> float | None:
        """How many times the processor of one the other takes: round by round, and the median of that."""
        upper, lower = self.good(over, case), self.good(under, case)
        if upper is None or lower is None:
            return None
        pairs = zip(upper.samples, lower.samples, strict=False)
        found = [above.cpu / below.cpu for above, below in pairs if above.cpu is not None and below.cpu]
        return statistics.median(found) if found else None

    def event(self, system: str, case: Case) -> float | None:
        """Seconds of processor an event."""
        cell = self.good(system, case)
        found = [sample.event for sample in cell.samples if sample.event is not None] if cell else []
        return statistics.median(found) if found else None

    def event_times(self, over: str, under: str, case: Case) -> float | None:
        """How many times the processor of one the other takes for an event."""
        above, below = self.event(over, case), self.event(under, case)
        return above / below if above is not None and below else None

    def event_ratio(self, system: str, case: Case) -> float | None:
        """An event, in times the floor's whole request of the same client in the same round."""
        upper, lower = self.good(system, case), self.good(FLOOR, case)
        if upper is None or lower is None:
            return None
        pairs = zip(upper.samples, lower.samples, strict=False)
        found = [above.event / below.whole for above, below in pairs if above.event is not None and below.whole]
        return statistics.median(found) if found else None


# --- tables ---------------------------------------------------------------------------------------------------------

TITLES = {
    "small": "small request (0.8 kB, one tool), whole answer",
    "session": "request early in an agent's session (62 kB), whole answer",
    "agent": "agent's request (250 kB), whole answer",
    "stream": "small request, streamed answer, events 4 ms apart; µs an event = (streamed − whole) / events",
    "burst": "small request, streamed answer, events as fast as they can be written; µs an event likewise",
    "text": "small request, streamed answer of plain text and a short call, events 4 ms apart",
    "text-burst": "the same, events as fast as they can be written",
}


def table(results: Results, part: str, case: Case) -> list[str]:
    lines = []
    for (name, of), cell in results.cells.items():
        if of != case:
            continue
        if cell.fault is not None:
            lines.append(f"  {name:10}  left out: {cell.fault}")
            continue
        line = f"  {name:10}{cell.rate():>10,.0f}{cell.quantile(0.5) * 1e3:>10.2f}{cell.quantile(0.99) * 1e3:>10.2f}"
        line += "" if name == DIRECT else f"{cell.cpu() * 1e6:>12,.1f}"
        lines.append((line + _format_comparison(results, name, case)).rstrip())
    return lines


def _format_comparison(results: Results, name: str, case: Case) -> str:
    if name == DIRECT:
        return ""
    ratio = results.ratio(name, FLOOR, case)
    line = f"{ratio:>9.2f}" if ratio is not None else f"{'–':>9}"
    event, times = results.event(name, case), results.event_ratio(name, case)
    if case.is_stream and event is not None and times is not None:
        bunched = statistics.median(sample.bunched for sample in results.cells[name, case].samples)
        line += f"{event * 1e6:>12,.1f}{times:>9.2f}{bunched:>9.1f}"
    return line


def heading(part: str) -> str:
    line = f"  {'':10}{'req/s':>10}{'p50 ms':>10}{'p99 ms':>10}{'CPU µs/req':>12}{'× floor':>9}"
    return line + (f"{'µs/event':>12}{'× whole':>9}{'ev/read':>9}" if part in STREAMS else "")


def footing(results: Results) -> list[str]:
    lines = ["", "start and memory", f"  {'':10}{'start s':>10}{'RSS MB':>10}"]
    for name, seconds in results.starts.items():
        lines.append(f"  {name:10}{seconds:>10.2f}{results.resident[name] / 1e6:>10.1f}")
    return lines


# --- targets --------------------------------------------------------------------------------------------------------


def targets(results: Results) -> list[Target]:
    small = results.cases("small")
    same = [case for case in small if case.client == case.target]
    translated = [case for case in small if case.client != case.target]
    everything = [case for part in TITLES for case in results.cases(part)]

    def times(over: str, under: str) -> Callable[[Case], float | None]:
        return lambda case: results.ratio(over, under, case)

    def event(case: Case) -> float | None:
        return results.event_ratio(OURS, case)

    def repaired_event(case: Case) -> float | None:
        return results.event_times(REPAIRING, OURS, case)

    found = [
        _target("same protocol / floor", 2.5, True, "×", same, times(OURS, FLOOR)),
        _target("translated / floor", 5.5, True, "×", translated, times(OURS, FLOOR)),
        _target("with the console / without", 1.03, True, "×", everything, times(OURS, WITHOUT_CONSOLE)),
        _target("with costs / without", 1.10, True, "×", small, times(PRICED, WITHOUT_COSTS)),
        _target("with costs and limits / without", 1.10, True, "×", small, times(LIMITED, WITHOUT_COSTS)),
        _target("litellm / ours", 60, False, "×", small, times("litellm", OURS)),
        _target("llm-rosetta / ours", 10, False, "×", small, times("rosetta", OURS)),
        _target("stream event / floor's whole request", 0.9, True, "×", results.cases("stream"), event),
        _target("the same, events in bursts", 0.4, True, "×", results.cases("burst"), event),
        _target("event of plain text, repairs / none", 1.15, True, "×", results.cases("text"), repaired_event),
        _target("the same, events in bursts", 1.15, True, "×", results.cases("text-burst"), repaired_event),
    ]
    if OURS in results.starts:
        found.append(Target("cold start", 0.4, True, "s", {"best": results.starts[OURS]}))
        found.append(Target("resident", 60, True, "MB", {"now": results.resident[OURS] / 1e6}))
    return [target for target in found if target.figures]


def _target(
    what: str, limit: float, most: bool, unit: str, cases: list[Case], figure: Callable[[Case], float | None]
) -> Target:
    return Target(what, limit, most, unit, {case.pair: value for case in cases if (value := figure(case)) is not None})


def verdicts(found: list[Target]) -> list[str]:
    if not found:
        return []
    lines = ["", "targets, by the worst pair", f"  {'':38}{'worst':>8}{'of pairs':>16}{'target':>10}"]
    for target in found:
        values = sorted(target.figures.values())
        across = f"{values[0]:.2f}–{values[-1]:.2f}" if len(values) > 1 else ""
        limit = f"{'≤' if target.most else '≥'} {target.limit:g} {target.unit}"
        verdict = "ok" if target.met() else "missed"
        lines.append(f"  {target.what:38}{target.worst():>8.2f}{across:>16}{limit:>10}  {verdict}")
    return lines


def figures(results: Results) -> dict[str, object]:
    """Everything, for a file."""
    rows = []
    for (name, case), cell in results.cells.items():
        row: dict[str, object] = {"system": name, "part": case.part, "from": case.client, "to": case.target}
        if cell.fault is not None:
            rows.append(row | {"fault": cell.fault})
            continue
        row |= {"requests": cell.requests, "rounds": len(cell.samples), "per_second": cell.rate()}
        row |= {"p50": cell.quantile(0.5), "p99": cell.quantile(0.99)}
        if name != DIRECT:
            event = results.event(name, case) if case.is_stream else None
            row |= {"cpu": cell.cpu(), "floors": results.ratio(name, FLOOR, case)}
            row |= {} if event is None else {"cpu_event": event, "event_floors": results.event_ratio(name, case)}
        rows.append(row)
    judged = [
        {"what": t.what, "worst": t.worst(), "limit": t.limit, "met": t.met(), "pairs": t.figures}
        for t in targets(results)
    ]
    return {"cells": rows, "start": results.starts, "resident": results.resident, "targets": judged}
