"""Every conversion of a parameter: to the model and back, and values of other forms unchanged."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolwire.policy.effects import CONVERSIONS, ParameterShape

LINE = (
    st.text(st.characters(codec="utf-8", exclude_characters="\n,"), min_size=1, max_size=8).map(str.strip).filter(bool)
)
PLAIN = {
    "shell-text": LINE.map(lambda text: ["bash", "-lc", text]),
    "text-shell": LINE,
    "list-text": st.lists(LINE, min_size=1, max_size=3),
    "text-list": LINE,
    "csv": st.lists(LINE, min_size=1, max_size=3),
    "list-one": st.lists(st.integers(), min_size=1, max_size=1),
    "one-list": st.integers() | st.text(),
    "json-text": st.dictionaries(st.text(), st.integers()),
    "seconds-milliseconds": st.integers(-(10**9), 10**9),
    "milliseconds-seconds": st.integers(-(10**6), 10**6).map(lambda number: number * 1000),
}
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=6,
)


@pytest.mark.parametrize("name", PLAIN)
@given(data=st.data())
def test_what_goes_out_comes_back(name: str, data: st.DataObject) -> None:
    value = data.draw(PLAIN[name])
    assert CONVERSIONS[name].to_client(CONVERSIONS[name].to_model(value)) == value


@given(value=ANYTHING)
def test_nothing_that_a_model_writes_is_too_strange(value: Any) -> None:
    for conversion in CONVERSIONS.values():
        if not conversion.joined_parameter and not conversion.split_parameter:
            conversion.to_client(value)
            conversion.to_model(value)


@pytest.mark.parametrize(
    ("value", "made"),
    [
        (["bash", "-lc", "ls | wc"], "ls | wc"),
        (["git", "commit", "-m", "a b"], "git commit -m 'a b'"),
        ("ls", "ls"),
        ([], []),
    ],
)
def test_an_argument_vector_becomes_what_a_shell_would_read(value: Any, made: Any) -> None:
    assert CONVERSIONS["shell-text"].to_model(value) == made


def test_a_model_that_uses_the_clients_own_name_is_understood() -> None:
    shape = ParameterShape({"command": "cmd"}, {"command": CONVERSIONS["shell-text"]}, ("secret",), {"cwd": "."})
    assert shape.to_client({"command": ["ls"], "secret": 1, "more": 2}) == {"command": ["ls"], "more": 2, "cwd": "."}
    assert shape.to_model({"command": ["ls"], "secret": 1, "cwd": "x"}) == {"cmd": "ls", "cwd": "x"}
