"""`toolwire costs`: tables, JSON and CSV from the ledger, and what is not possible."""

from __future__ import annotations

import asyncio
import csv
import io
import json
import os
import time
from decimal import Decimal
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from configs import load_config
from gateway.exchange_records import make_record
from gateway.postgres import schema_of, server
from toolwire.core.ir import Usage
from toolwire.gateway.features.costs.ledger import LedgerRow, make_row
from toolwire.gateway.features.costs.ledger_tables import open_ledger
from toolwire.gateway.store import open_store
from toolwire.gateway.telemetry.record import CallUsage

NOW = time.time()
_ids = count()


def row(
    key: str, team: str, model: str, cost: str | None, *, hours: float = 1, session: str = "s", **call: Any
) -> LedgerRow:
    record = make_record(
        started_at=NOW - hours * 3600,
        key_name=key,
        team=team,
        session=session,
        agent="claude",
    )
    usage = CallUsage("anthropic", model, usage=Usage(1000, 100, cache_read=400), **call)
    usage.cost = None if cost is None else Decimal(cost)
    return make_row(f"row-{next(_ids)}", record, usage)


def rows() -> list[LedgerRow]:
    return [
        row("ana", "app", "claude-sonnet-5-5", "0.0045"),
        row("ana", "app", "claude-sonnet-5-5", "1.000000000001", session="t"),
        row("ben", "app", "=cmd()", None, reported_cost=Decimal("0.25")),
        row("ci", "infra", "local", "0", hours=50),
        row("ci", "infra", "claude-sonnet-5-5", "0.01", hours=24 * 40),
    ]


@pytest.fixture
def run(run_alone: Any) -> Any:
    return partial(run_alone, "costs")


@pytest.fixture(params=["sqlite", "postgres"])
def ledger(request: pytest.FixtureRequest, run: Any, tmp_path: Path) -> None:
    url = f"sqlite://{tmp_path}/store.db" if request.param == "sqlite" else server().create_schema(schema_of(tmp_path))
    (tmp_path / "toolwire.toml").write_text(f'[store]\nurl = "{url}"\n')

    async def fill() -> None:
        store = open_store(load_config(tmp_path / "toolwire.toml", os.environ).store, os.environ)
        tables = open_ledger(store)
        assert tables is not None
        assert store is not None
        assert await tables.add_rows(rows()) is None
        await store.close()

    asyncio.run(fill())


def cells(out: str) -> list[list[str]]:
    return [line.split() for line in out.splitlines()]


@pytest.mark.usefixtures("ledger")
def test_a_table(run: Any) -> None:
    code, out, err = run("--by", "key,team")
    assert (code, err) == (0, "")
    assert cells(out) == [
        ["key", "team", "calls", "input", "cached", "output", "cost", "reported"],
        ["ana", "app", "2", "2,000", "800", "200", "$1.00"],
        ["ben", "app", "1", "1,000", "400", "100", "unknown", "$0.25"],
        ["ci", "infra", "1", "1,000", "400", "100", "$0"],
        ["total", "4", "4,000", "1,600", "400", "$1.00", "+", "unknown", "$0.25"],
        "1 call has no known price: set [models.NAME.facts.prices].".split(),
    ]


@pytest.mark.usefixtures("ledger")
def test_json_has_all_digits_and_null_for_what_is_unknown(run: Any) -> None:
    code, out, _ = run("--by", "model", "--json")
    found = json.loads(out, parse_float=Decimal)
    assert code == 0
    assert {one["model"]: one["cost_usd"] for one in found["rows"]} == {
        "claude-sonnet-5-5": Decimal("1.004500000001"),
        "=cmd()": None,
        "local": 0,
    }
    assert found["total"]["cost_usd"] == Decimal("1.004500000001")
    assert (found["total"]["calls"], found["total"]["unpriced_calls"]) == (4, 1)
    assert found["total"]["reported_cost_usd"] == Decimal("0.25")


@pytest.mark.usefixtures("ledger")
def test_csv_is_safe_for_spreadsheets(run: Any) -> None:
    code, out, _ = run("--by", "model", "--csv")
    assert code == 0
    found = {one["model"]: one for one in csv.DictReader(io.StringIO(out))}
    assert found["'=cmd()"]["cost_usd"] == ""
    assert found["claude-sonnet-5-5"]["cost_usd"] == "1.004500000001"
    assert found["local"]["cost_usd"] == "0"


@pytest.mark.usefixtures("ledger")
@pytest.mark.parametrize(
    ("words", "calls"),
    [
        (["--since", "24h"], 3),
        (["--since", "8w"], 5),
        (["--since", "8w", "--until", "30d"], 1),
        (["--since", "2020-01-01"], 5),
        (["--since", "8w", "--only", "team=infra"], 2),
        (["--only", "session=t"], 1),
        (["--only", "key=ana", "--only", "session=s"], 1),
        (["--only", "key=nobody"], 0),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_times_and_filters(run: Any, words: list[str], calls: int) -> None:
    code, out, _ = run(*words, "--by", "", "--json")
    assert code == 0
    assert json.loads(out)["total"]["calls"] == calls


@pytest.mark.usefixtures("ledger")
def test_times_are_in_their_order(run: Any) -> None:
    _, out, _ = run("--since", "8w", "--by", "day", "--csv")
    days = [line.partition(",")[0] for line in out.splitlines()[1:]]
    assert days == sorted(days)
    assert len(days) == 3


def test_an_empty_ledger(run: Any) -> None:
    assert run() == (0, "", "no calls to providers in this time\n")


@pytest.mark.parametrize(
    ("words", "problem", "hint"),
    [
        (["--by", "modle"], "cannot show costs by `modle`", "did you mean `model`?"),
        (["--since", "soon"], "--since `soon` is not a time", "write `24h`"),
        (["--since", "1h", "--until", "2h"], "--since is not before --until", "earlier"),
        (["--only", "teem=x"], "--only: unknown name `teem`", "did you mean `team`?"),
        (["--only", "team"], "--only `team` has no value", "such as --only team=app"),
        (["--json", "--csv"], "--csv and --json exclude each other", "see `toolwire costs --help`"),
    ],
)
def test_what_is_not_possible(run: Any, words: list[str], problem: str, hint: str) -> None:
    code, out, err = run(*words)
    assert (code, out) == (2, "")
    assert problem in err
    assert hint in err


def test_costs_that_are_switched_off(run: Any, tmp_path: Path) -> None:
    (tmp_path / "toolwire.toml").write_text("[costs]\nenabled = false\n")
    code, _, err = run()
    assert code == 0
    assert "costs are not recorded now: `enabled` in [costs] is false" in err


def test_without_a_store(run: Any, tmp_path: Path) -> None:
    (tmp_path / "toolwire.toml").write_text('[store]\nurl = "none"\n')
    code, _, err = run()
    assert code == 2
    assert "there is no ledger" in err


def test_a_store_that_is_down(run: Any, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "toolwire.toml").write_text(f'[store]\nurl = "sqlite://{tmp_path}/file/store.db"\n')
    code, _, err = run()
    assert code == 1
    assert "cannot be used" in err
