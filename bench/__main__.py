"""`make bench`: microseconds for every pair, beside the standard library's json and beside other translators.

python -m bench [--quick] [--only small|agent|dense|huge|stream|memory|program] [--json FILE]
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import logging
import statistics
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench import bodies, clock, peers, programs
from toolwire import Stream, translate
from toolwire.protocols import CODECS

PARTS = ("small", "agent", "dense", "huge", "stream", "memory", "program")


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    parser.add_argument("--only", choices=PARTS, action="append", help="this part only; may be repeated")
    parser.add_argument("--json", metavar="FILE", help="write the figures to a file as well")
    chosen = parser.parse_args()
    seconds = 0.05 if chosen.quick else 0.4
    logging.disable(logging.CRITICAL)
    figures: dict[str, Any] = {}
    for part in chosen.only or PARTS:
        figures[part] = {
            "stream": lambda: streams(seconds),
            "memory": memory,
            "program": lambda: in_programs(seconds),
        }.get(part, lambda part=part: sizes(part, seconds))()
    if chosen.json:
        Path(chosen.json).write_text(json.dumps(figures, indent=1))
    return 0


def progress(text: str) -> None:
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\x1b[K{text}")
    elif text:
        sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def print_line(text: str = "") -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def sizes(size: str, seconds: float) -> dict[str, Any]:
    made = bodies.requests(size)
    print_line(f"\n{size} request, µs (bytes: {', '.join(f'{name} {len(body):,}' for name, body in made.items())})")
    print_line(
        f"{'from':17}{'to':17}{'toolwire':>10}{'json':>9}{'ratio':>7}{'rosetta':>10}{'×':>6}{'litellm':>10}{'×':>6}"
    )
    rows = []
    pairs = [(source, target) for source in CODECS for target in CODECS]
    for number, (source, target) in enumerate(pairs, 1):
        progress(f"{size} {number}/{len(pairs)}: {source} → {target}")
        rows.append(_row(source, target, made[source], seconds))
        progress("")
        print_line(_format_row(rows[-1]))
    ratios = [row["toolwire"] / row["json"] for row in rows if row["from"] != row["to"]]
    print_line(f"translated pairs: median {statistics.median(ratios):.2f} × json, worst {max(ratios):.2f} ×")
    return {"bytes": {name: len(body) for name, body in made.items()}, "rows": rows}


def _row(source: str, target: str, body: bytes, seconds: float) -> dict[str, Any]:
    model = bodies.MODELS[target]
    things: dict[str, Callable[[], object]] = {
        "toolwire": lambda: translate(body, "request", source=source, target=target, model=model),
        "json": lambda: json.dumps(json.loads(body)),
    }
    for name, found in (("rosetta", peers.rosetta(source, target)), ("litellm", peers.litellm(source, target))):
        if found is not None and _supports_pair(found, body):
            # They take and give parsed JSON; whoever uses them parses and prints as well.
            things[name] = lambda found=found: json.dumps(_take_first(found(json.loads(body))), default=str)
    return {"from": source, "to": target, **clock.measure_microseconds(things, seconds)}


def _supports_pair(peer: peers.Peer, body: bytes) -> bool:
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            peer(json.loads(body))
    except Exception as error:  # noqa: BLE001 - whatever another project raises here means that it does not support the pair
        progress(f"left out: {type(error).__name__}: {str(error)[:80]}")
        return False
    return True


def _take_first(value: Any) -> Any:
    return value[0] if isinstance(value, tuple) else value


def _format_row(row: dict[str, Any]) -> str:
    line = (
        f"{row['from']:17}{row['to']:17}{row['toolwire']:10.1f}{row['json']:9.1f}{row['toolwire'] / row['json']:7.2f}"
    )
    for name in ("rosetta", "litellm"):
        line += f"{row[name]:10.1f}{row[name] / row['toolwire']:6.1f}" if name in row else f"{'–':>10}{'':6}"
    return line


def streams(seconds: float) -> dict[str, Any]:
    made = bodies.stream()
    print_line("\nstream, µs an event (json: loads + dumps of the event's data)")
    print_line(f"{'from':17}{'to':17}{'toolwire':>10}{'json':>9}{'ratio':>7}")
    rows = []
    for source, data in made.items():
        frames = [line[6:] for line in data.split(b"\n") if line.startswith(b"data: {")]
        chunks = [data[at : at + 1400] for at in range(0, len(data), 1400)]
        for target in CODECS:
            progress(f"stream: {source} → {target}")

            def run(source: str = source, target: str = target, chunks: list[bytes] = chunks) -> None:
                stream = Stream(source=source, target=target)
                for chunk in chunks:
                    stream.feed(chunk)
                stream.close()

            def plain(frames: list[bytes] = frames) -> None:
                for frame in frames:
                    json.dumps(json.loads(frame))

            taken = clock.measure_microseconds({"toolwire": run, "json": plain}, seconds)
            row = {"from": source, "to": target, **{name: value / len(frames) for name, value in taken.items()}}
            rows.append(row)
            progress("")
            print_line(
                f"{source:17}{target:17}{row['toolwire']:10.2f}{row['json']:9.2f}{row['toolwire'] / row['json']:7.2f}"
            )
    ratios = [row["toolwire"] / row["json"] for row in rows]
    print_line(f"all pairs: median {statistics.median(ratios):.2f} × json, worst {max(ratios):.2f} ×")
    return {"rows": rows}


def memory() -> dict[str, Any]:
    print_line("\nmemory: the most that one translation of the huge request holds, in times its bytes")
    made = bodies.requests("huge")
    rows = {}
    for source, body in made.items():
        line = f"{source:17}"
        for target in CODECS:
            tracemalloc.start()
            translate(body, "request", source=source, target=target, model=bodies.MODELS[target])
            rows[f"{source} → {target}"] = tracemalloc.get_traced_memory()[1] / len(body)
            tracemalloc.stop()
            line += f"{target} {rows[f'{source} → {target}']:.1f}   "
        print_line(line.rstrip())
    return rows


def in_programs(seconds: float) -> dict[str, float]:
    print_line("\na small request with tools inside of a program, µs (the provider is another process)")
    taken = programs.measure_programs(seconds * 10)
    for name, value in taken.items():
        print_line(f"{name:17}{value:10.0f}{value / taken['sdk']:7.2f} × the SDK alone")
    return taken


if __name__ == "__main__":
    sys.exit(main())
