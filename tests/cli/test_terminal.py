"""What a user sees on a terminal, as golden text."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.terminal_golden import check_fits, check_golden, normalise_output, run_on_terminal


def test_version(folder: Path) -> None:
    check_golden("version", ["--version"], folder)


def test_a_line_that_does_not_fit_is_found() -> None:
    with pytest.raises(AssertionError, match="wider than 3 columns"):
        check_fits("abc\n漢字\n", 3)


def test_ports_times_and_folders_keep_their_width(folder: Path) -> None:
    text = f"12:34:56  http://127.0.0.1:54321/v1  {folder}/x  1234 ms\n"
    assert normalise_output(text, folder) == (
        "00:00:00  http://127.0.0.1:00000/v1  /tmp/toolwire-00000000/x     0 ms\n"
    )


def test_a_terminal_has_the_width_that_was_asked_for(folder: Path) -> None:
    assert run_on_terminal(["--help"], folder, 120).out != run_on_terminal(["--help"], folder, 80).out
