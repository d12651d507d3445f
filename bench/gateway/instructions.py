"""What a translation costs in machine instructions, C and all, counted by valgrind: exact where a clock is not.

python -m bench.gateway.instructions [--pair CLIENT TARGET]

A process translates a small request, or its answer, many times over, and another one never does: what they differ by
is the translation. Numbers of one interpreter and one machine can be compared, those of others cannot.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from bench.gateway import canned
from bench.gateway.__main__ import PAIRS
from toolwire.protocols import CODECS
from toolwire.translation.exchange import Exchange
from toolwire.translation.options import Options

TIMES = 200
WARM = 60
"""Rounds after which the interpreter has specialised its code."""
PARTS = ("request", "response")
_COUNTED = re.compile(rb"Collected : (\d+)")


def repeat(client: str, target: str, part: str, times: int) -> None:
    """The work that is counted."""
    options = Options(model=canned.MODELS[target], stream=False, now=1, seed="req_1", maker="bench")
    _, body = canned.build_request(canned.requests("small")[client], client, canned.MODELS[target], False)
    answer = canned.whole_answer(target)

    def exchange() -> Exchange:
        return Exchange(CODECS[client], CODECS[target], options)

    asked = exchange()
    asked.translate_request(body)
    for _ in range(WARM):
        exchange().translate_request(body)
        asked.translate_response(answer)
    for _ in range(times):
        if part == "request":
            exchange().translate_request(body)
        else:
            asked.translate_response(answer)


def count_instructions(client: str, target: str, part: str) -> float:
    """The instructions of one translation."""
    few, many = (_run_callgrind(client, target, part, times) for times in (0, TIMES))
    return (many - few) / TIMES


def _run_callgrind(client: str, target: str, part: str, times: int) -> int:
    with tempfile.TemporaryDirectory() as folder:
        tool = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={Path(folder) / 'out'}"]
        work = [sys.executable, "-m", "bench.gateway.instructions", "--repeat", client, target, part, str(times)]
        env = {**os.environ, "PYTHONHASHSEED": "1"}
        done = subprocess.run([*tool, *work], env=env, capture_output=True, check=True)
    found = _COUNTED.search(done.stderr)
    if found is None:
        raise RuntimeError(f"valgrind counted nothing: {done.stderr.decode(errors='replace')[-500:]}")
    return int(found[1])


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench.gateway.instructions", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--pair", nargs=2, metavar=("CLIENT", "TARGET"), help="this pair only")
    parser.add_argument("--repeat", nargs=4, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.repeat:
        repeat(*chosen.repeat[:3], int(chosen.repeat[3]))
        return 0
    if shutil.which("valgrind") is None:
        print("error: valgrind was not found\nhint: install it from your system's packages", file=sys.stderr)
        return 1
    pairs = [(chosen.pair[0], chosen.pair[1])] if chosen.pair else [pair for pair in PAIRS if pair[0] != pair[1]]
    print(f"{'instructions':36}{'request':>10}{'response':>10}")
    for client, target in pairs:
        row = [count_instructions(client, target, part) for part in PARTS]
        print(f"{f'{client} → {target}':36}{row[0]:10,.0f}{row[1]:10,.0f}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
