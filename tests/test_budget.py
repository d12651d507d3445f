"""What an exchange costs, as a budget that fails: calls of our own functions and their bytecodes, counted over real
sockets with a clock that stands still, so that they are the same on every machine.

The budget of a system is for small requests, or for those of the size beside its name, with a little room there,
because a long body can come in several reads. The numbers are in `budget.json`. Lower them when a change makes it
possible; raise one only with a reason in the commit.
`make bench-bytecodes ARGS="--functions 40"` shows where they come from."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
BUDGET: dict[str, dict[str, dict[str, int]]] = json.loads(Path(__file__).with_name("budget.json").read_text())
SLACK = 0.96
"""A count below this share of its budget lets the budget be lowered."""
CELLS = [(system, pair, what) for system, pairs in BUDGET.items() for pair, row in pairs.items() for what in row]
pytestmark = pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="the budget is counted with Python 3.11")


@cache
def count_exchanges(system: str) -> dict[str, dict[str, int]]:
    name, _, size = system.partition(" ")
    command = [sys.executable, "-m", "bench.gateway.bytecodes", "--json", "--system", name, "--size", size or "small"]
    environment = {**os.environ, "PYTHONHASHSEED": "0", "PYTHONPATH": str(ROOT)}
    run = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr[-2000:]
    counted: dict[str, dict[str, int]] = json.loads(run.stdout)
    return counted


@pytest.mark.parametrize(("system", "pair", "what"), CELLS, ids=map(" ".join, CELLS))
def test_an_exchange_stays_in_its_budget(system: str, pair: str, what: str) -> None:
    budget, counted = BUDGET[system][pair][what], count_exchanges(system)[pair][what]
    assert counted <= budget, f"{what} of {pair} ({system}): {counted:,} are more than {budget:,}"
    assert counted >= SLACK * budget, f"{what} of {pair} ({system}): lower {budget:,} to {counted:,} in budget.json"
