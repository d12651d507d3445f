"""Cells of a terminal: what is shortened fits, and what is padded stands in its column."""

from __future__ import annotations

import pytest

from toolwire.terminal.text import add_colour, pad_text, remove_colours, shorten_text, text_width, wrap_text


@pytest.mark.parametrize(
    ("text", "width"),
    [
        ("", 0),
        ("claude", 6),
        ("→ …", 3),
        ("天気", 4),
        ("🔧 tool", 7),
        ("e\u0301", 1),
        ("❤️ x", 4),
        ("👩‍👩‍👧!", 3),
        ("👍🏽", 2),
        ("🇩🇪", 2),
        (add_colour("lost", "lost"), 4),
    ],
)
def test_the_cells_of_a_text(text: str, width: int) -> None:
    assert text_width(text) == width
    assert text_width(pad_text(text, 10)) == 10


@pytest.mark.parametrize("text", ["get_weather", "天気を調べる", "a天b気c", "🔧🔧🔧", "👩‍👩‍👧👍🏽❤️", "e\u0301" * 9])
@pytest.mark.parametrize("width", range(15))
def test_a_shortened_text_fits_and_says_that_it_is_shortened(text: str, width: int) -> None:
    short = shorten_text(text, width)
    assert text_width(short) <= width
    assert short == text or width == 0 or (short.endswith("…") and text.startswith(short[:-1]))


def test_colours_are_added_and_removed() -> None:
    assert add_colour("x", "") == "x"
    assert add_colour("", "lost") == ""
    assert add_colour("x", "ok") == "\x1b[32mx\x1b[0m"
    assert remove_colours(add_colour("x", "ok") + "y") == "xy"


@pytest.mark.parametrize("text", ["  get_weather of a 天気を調べる tool", "👩‍👩‍👧👍🏽❤️ " * 4, "x" * 30, "  a", ""])
@pytest.mark.parametrize("width", range(2, 40))
def test_a_wrapped_text_fits_and_is_whole(text: str, width: int) -> None:
    lines = wrap_text(text, width)
    assert all(text_width(line) <= width for line in lines)
    assert "".join("".join(lines).split()) == "".join(text.split())
