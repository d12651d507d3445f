"""Names and patterns of rules, limits and routes."""

from __future__ import annotations

import pytest

from toolwire.policy.rules import matches_globs


@pytest.mark.parametrize(
    ("name", "glob", "expected"),
    [
        ("read_file", "read_file", True),
        ("read_file", "read_*", True),
        ("read_file", "read_fil?", True),
        ("read_file", "read_?", False),
        ("Read", "read", False),
        ("claude-opus[1m]", "claude-*[1m]", True),
        ("claude-opus1", "claude-*[1m]", False),
        ("two\nlines", "two*", True),
        ("two\n", "two", False),
        ("", "*", True),
    ],
)
def test_only_stars_and_question_marks_stand_for_others(name: str, glob: str, expected: bool) -> None:
    assert matches_globs(name, (glob,)) is expected


def test_many_stars_do_not_try_every_place() -> None:
    """Clients choose the names: this one would take years."""
    assert not matches_globs("a" * 4096, ("*a" * 12 + "*b",))
