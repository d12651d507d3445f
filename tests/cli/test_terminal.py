"""What a user sees on a terminal, as golden text."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from cli.terminal_golden import check_fits, check_golden, normalise_output, run_in_pipe, run_on_terminal
from toolwire import translate
from toolwire.terminal import format_table


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


BODY = {
    "model": "gpt-4o",
    "messages": [{"role": "user", "content": 'Grüße 天気 "a": 1\x1b[31m'}],
    "temperature": 0.5,
    "stream": True,
    "logit_bias": {"1": 2},
}
TO_ANTHROPIC = ["translate", "request", "--from", "openai-chat", "--to", "anthropic", "body.json"]


def test_json_is_pretty_on_a_terminal_and_exact_in_a_pipe(folder: Path) -> None:
    (folder / "body.json").write_text(json.dumps(BODY))
    check_golden("translate", TO_ANTHROPIC, folder)
    body = translate(BODY, "request", source="openai-chat", target="anthropic").body
    assert run_in_pipe(TO_ANTHROPIC, folder).out.encode() == body + b"\n"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("tools", ["tools"]),
        ("tools-shell", ["tools", "shell"]),
        ("presets", ["policy", "presets"]),
        ("doctor-config", ["doctor", "config"]),
        ("matrix", ["demo", "matrix", "read_file"]),
    ],
)
def test_pages(name: str, words: list[str], folder: Path) -> None:
    check_golden(name, words, folder)


@pytest.mark.parametrize("columns", [12, 20, 33, 47, 60, 100])
def test_tables_fit_every_width(columns: int, folder: Path) -> None:
    for words in (["tools"], ["policy", "presets"], ["doctor", "config"]):
        check_fits(run_on_terminal(words, folder, columns).out, columns)


@pytest.mark.parametrize("columns", [10, 20, 30, 60])
def test_wide_characters_and_escapes_do_not_break_a_table(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("NO_COLOR", "1")
    rows = [("  天気", "get_weather", "🔧 tells the weather\x1b[2J"), ("  e\u0301", "x", "👩‍👩‍👧 a\tb\nc")]
    table = format_table(rows, ["ok"], Terminal())
    check_fits(table, columns)
    assert "\x1b" not in table
    assert table.isprintable() or set(table) - {"\n", "\u200d"} == set(filter(str.isprintable, table))
