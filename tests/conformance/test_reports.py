"""Saved results: they can be read back, without values that change from run to run, and the page shows them."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from toolwire_conformance import reports
from toolwire_conformance.case import load_all_cases
from toolwire_conformance.player import PlayResult, Verdict
from toolwire_conformance.reports import (
    GatewayInfo,
    RunResult,
    case_mark,
    compare_plays,
    grid_rows,
    normalise_play,
    pass_share,
    write_comparison_page,
)
from toolwire_conformance.targets import TARGETS

DOCS = Path(__file__).parents[2] / "docs"


def make_play(id: str, verdict: Verdict, *differences: str) -> PlayResult:
    return PlayResult(
        id=id, title="T", client="chat", provider="gemini", stream=False, verdict=verdict, differences=differences
    )


def test_page_matches_the_results() -> None:
    """If not, run `toolwire conformance --compare docs/conformance/*.json --markdown docs/conformance.md`."""
    files = sorted((DOCS / "conformance").iterdir())
    assert {file.stem for file in files} <= TARGETS.keys()
    assert (DOCS / "conformance.md").read_text() == write_comparison_page([reports.read_result(file) for file in files])


def test_every_case_is_played_or_says_why_not() -> None:
    """If not, run `toolwire conformance --target toolwire --json docs/conformance/toolwire.json`, and the line above."""
    plays = reports.read_result(DOCS / "conformance" / "toolwire.json").plays
    assert [play.id for play in plays] == [case.id for case in load_all_cases()]
    assert {play.id for play in plays if play.verdict != "pass"} == {"134", "135"}
    assert all(play.why for play in plays if play.verdict == "not played")


def test_write_and_read(tmp_path: Path) -> None:
    plays = (make_play("001", "wrong", "a", "b"), make_play("002", "pass"))
    result = RunResult(gateway=GatewayInfo("x", "X", "1"), suite="0", command="c", plays=plays)
    file = tmp_path / "x.json"
    file.write_bytes(reports.write_result(result))
    assert reports.read_result(file) == result
    file.write_text("{")
    with pytest.raises(reports.UnreadableResult):
        reports.read_result(file)


@pytest.mark.parametrize(
    ("line", "kept"),
    [
        ('got "chatcmpl-0a1b2c3d-0000-4000-8000-0a1b2c3d4e5f"', 'got "chatcmpl-UUID"'),
        ("http://127.0.0.1:40123/v1", "http://127.0.0.1:PORT/v1"),
        ('"created": 1794765600, "x": 1767', '"created": NOW, "x": 1767'),
        ('"call_a8F3kq0ZmP12Lx9QwErT"', '"call_MADE"'),
        ('"call_Kq3Vx0", "toolu_01Rz5Np0"', '"call_Kq3Vx0", "toolu_01Rz5Np0"'),
    ],
)
def test_run_specific_values_are_normalised(line: str, kept: str) -> None:
    assert normalise_play(make_play("001", "wrong", line)).differences == (kept,)


def test_compare_plays() -> None:
    before = [
        make_play("1", "pass"),
        make_play("2", "wrong"),
        make_play("3", "unsupported"),
        make_play("4", "pass"),
        make_play("5", "pass"),
    ]
    now = [
        make_play("1", "wrong"),
        make_play("2", "pass"),
        make_play("3", "pass"),
        make_play("4", "pass"),
        make_play("6", "wrong"),
    ]
    worse, better = compare_plays(before, now)
    assert [one.id for one in worse] == ["1"]
    assert [one.id for one in better] == ["2", "3"]


SHARES: list[tuple[list[Verdict], str, str]] = [
    (["pass", "pass"], "2/2", "✓"),
    (["pass", "not played"], "1/1", "✓"),
    (["pass", "wrong", "unsupported"], "1/3", "1/3"),
    (["wrong", "unsupported"], "0/2", "✗"),
    (["unsupported", "not played"], "–", "–"),
    (["not played"], "·", "·"),
    ([], "·", "·"),
]


@pytest.mark.parametrize(("verdicts", "share", "mark"), SHARES)
def test_shares_and_marks(verdicts: list[Verdict], share: str, mark: str) -> None:
    plays = [make_play("001", verdict) for verdict in verdicts]
    assert pass_share(plays) == share
    assert case_mark(plays) == mark


def test_grid_rows() -> None:
    rows = grid_rows(
        [
            make_play("grid:chat>gemini:text", "pass"),
            make_play("grid:chat>gemini:call", "wrong"),
            make_play("001", "pass"),
        ]
    )
    assert rows[0] == ["client \\ provider", "chat", "responses", "anthropic", "gemini"]
    assert rows[1] == ["chat", "·", "·", "·", "1/2"]


def test_protocols_that_were_not_compared_are_in_the_grid_if_they_were_played() -> None:
    rows = grid_rows([replace(make_play("grid:converse>gemini:text", "pass"), client="converse")])
    assert rows[0][-1] == "converse"
    assert rows[-1] == ["converse", "·", "·", "·", "1/1", "·"]
