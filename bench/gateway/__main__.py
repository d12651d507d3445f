"""`make bench-gateway`: the gateway over real sockets, beside a floor, a direct call and other gateways.

python -m bench.gateway [--quick] [--only PART] [--pair CLIENT TARGET] [--systems NAME] [--json FILE] [--logs DIR]

CPU is that of a gateway's whole process tree. Systems take turns, and ratios are of the same round.
All of it takes a quarter of an hour, --quick a third of that.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from bench.gateway import report
from bench.gateway.measure import DIRECT, STREAMS, Case, Site, rounds
from bench.gateway.processes import DidNotStart
from bench.gateway.systems import SYSTEMS

PARTS = ("small", "session", "agent", *STREAMS, "start")
PAIRS = (
    ("openai-chat", "openai-chat"),
    ("anthropic", "anthropic"),
    ("anthropic", "openai-chat"),
    ("openai-chat", "anthropic"),
    ("openai-responses", "gemini"),
)

ROUNDS = {"small": 9, "stream": 15, "text": 15, "text-burst": 15}
"""More than the other parts have, which have no target that is close; and a stream's round has few streams."""


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="bench.gateway", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="fewer and shorter rounds, one start")
    parser.add_argument("--only", choices=PARTS, action="append", help="this part only; may be repeated")
    parser.add_argument("--systems", choices=list(SYSTEMS), action="append", help="this one only; may be repeated")
    parser.add_argument("--pair", nargs=2, metavar=("CLIENT", "TARGET"), help="this pair only")
    parser.add_argument("--json", metavar="FILE", help="write the figures to a file as well")
    parser.add_argument("--logs", metavar="DIR", type=Path, help="keep what the gateways say (else it goes nowhere)")
    chosen = parser.parse_args()
    if chosen.logs:
        chosen.logs.mkdir(parents=True, exist_ok=True)
    results = report.Results()
    with ExitStack() as stack:
        site = Site(stack, chosen.logs)
        names = [DIRECT, *_start(site, results, chosen.systems or list(SYSTEMS), 1 if chosen.quick else 3)]
        parts = [part for part in PARTS if part in (chosen.only or PARTS)]
        pairs = [(chosen.pair[0], chosen.pair[1])] if chosen.pair else PAIRS
        _measure(site, results, names, parts, pairs, chosen.quick)
        results.resident = {name: site.processes[name].resident() for name in names if name != DIRECT}
        progress("stopping")
    progress("")
    for line in (*report.footing(results), *report.verdicts(report.targets(results))):
        print_line(line)
    if chosen.json:
        Path(chosen.json).write_text(json.dumps(report.figures(results), indent=1))
    return 0


def _start(site: Site, results: report.Results, names: list[str], times: int) -> list[str]:
    running = []
    for name in dict.fromkeys((report.FLOOR, *names)):
        try:
            results.starts[name] = site.start(name, times, progress)
            running.append(name)
        except (DidNotStart, FileNotFoundError) as error:
            progress("")
            print_line(f"{name} is left out: {error}")
    return running


def _measure(
    site: Site,
    results: report.Results,
    names: list[str],
    parts: list[str],
    pairs: Sequence[tuple[str, str]],
    quick: bool,
) -> None:
    seconds = 0.3 if quick else 0.6
    for part in parts:
        if part not in report.TITLES:
            continue
        count = 3 if quick else ROUNDS.get(part, 7)
        progress("")
        print_line(f"\n{report.TITLES[part]}")
        print_line(report.heading(part))
        for pair in pairs:
            case = Case(part, *pair)
            results.add(rounds(site, case, names, count, seconds, progress))
            progress("")
            print_line(f" {case.pair}")
            for line in report.table(results, part, case):
                print_line(line)


def progress(text: str) -> None:
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\x1b[K{text}")
    elif text:
        sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def print_line(text: str = "") -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
