"""Expectations: what meets them, and what does not."""

from __future__ import annotations

from typing import Any

import pytest

from toolwire_conformance.expectations import MISSING, MissingValue, fill_template, find_differences, meets_expectation

MET: list[tuple[Any, Any]] = [
    ({"a": 1}, {"a": 1, "b": 2}),
    ({"a": {"b": []}}, {"a": {"b": [], "c": 1}}),
    ([1, {"a": 2}], [1, {"a": 2, "b": 3}]),
    (3, 3.0),
    ({"a": "$absent"}, {}),
    ({"a": "$absent"}, {"a": None}),
    ({"a": "$any"}, {"a": False}),
    ({"$is": "$any"}, "$any"),
    ({"$is": {"a": 1}}, {"a": 1}),
    ({"$contains": "ell"}, "hello"),
    ({"$contains": [1, 3]}, [1, 2, 3]),
    ({"$exact": [1, "$any"]}, [1, 2]),
    ({"$count": {"of": {"t": 1}, "is": 2}}, [{"t": 1}, {"t": 2}, {"t": 1, "u": 0}]),
    ({"$matches": "^a+$"}, "aaa"),
    ({"$length": 2}, [1, 2]),
    ({"$length": {"$at_most": 3}}, "abc"),
    ({"$at_least": 2, "$at_most": 4}, 3),
    ({"$not": "$any"}, None),
    ({"$not": {"a": 1}}, {"a": 2}),
    ({"$json": {"a": 1}}, '{"a":1,"b":2}'),
    ({"$all": {"a": "$any"}}, [{"a": 1}, {"a": 2}]),
    ({"$either": [1, 2]}, 2),
    ({"$type": "string"}, ""),
    ({"$type": "number"}, 1.5),
    ({"$text": "ab"}, "ab"),
    ({"$text": "ab"}, [{"type": "text", "text": "a"}, {"type": "image"}, {"type": "text", "text": "b"}]),
    ({"type": "x", "$not": {"b": 1}}, {"type": "x", "b": 2}),
    (["$same:one", "$same:one"], [5, 5]),
    ([{"$same": "one", "$matches": "^c"}, {"$not": "$same:one"}], ["c1", "c2"]),
]

NOT_MET: list[tuple[Any, Any]] = [
    ({"a": 1}, {"b": 1}),
    ({"a": 1}, [1]),
    ([1], [1, 2]),
    ([1], "1"),
    (1, True),
    (0, False),
    ({"a": "$any"}, {"a": None}),
    ({"a": "$any"}, {}),
    ({"a": "$absent"}, {"a": 0}),
    ({"$is": {"a": 1}}, {"a": 1, "b": 2}),
    ({"$contains": "x"}, "hello"),
    ({"$contains": [3, 1]}, [1, 2, 3]),
    ({"$exact": [1]}, [1, 2]),
    ({"$count": {"of": 1, "is": 1}}, [1, 1]),
    ({"$matches": "^a"}, 5),
    ({"$length": 2}, 2),
    ({"$at_most": 1}, 2),
    ({"$at_least": 1}, "2"),
    ({"$not": {"a": 1}}, {"a": 1, "b": 1}),
    ({"$json": {}}, "{"),
    ({"$json": {}}, {}),
    ({"$all": 1}, [1, 2]),
    ({"$either": [1, 2]}, 3),
    ({"$type": "object"}, []),
    ({"$text": "a"}, []),
    (["$same:one", "$same:one"], [5, 6]),
    ([{"$same": "one"}, {"$not": "$same:one"}], ["c1", "c1"]),
    ({"a": "$same:one"}, {}),
]


@pytest.mark.parametrize(("expected", "actual"), MET)
def test_met(expected: Any, actual: Any) -> None:
    assert find_differences(expected, actual, {}) == []


@pytest.mark.parametrize(("expected", "actual"), NOT_MET)
def test_not_met(expected: Any, actual: Any) -> None:
    assert find_differences(expected, actual, {})


def test_difference_names_its_path() -> None:
    assert find_differences({"a": [{"b": 1}]}, {"a": [{"b": 2}]}, {}) == ["/a/0/b: expected 1, got 2"]
    assert find_differences({"a": 1}, {}, {}) == ["/a: expected 1, got nothing"]


def test_names_are_bound_only_on_a_match() -> None:
    bound: dict[str, Any] = {}
    assert not meets_expectation(["$same:one", 2], [1, 3], bound)
    assert bound == {}
    assert meets_expectation(
        {"$contains": [{"k": 2, "v": "$same:one"}]}, [{"k": 1, "v": "a"}, {"k": 2, "v": "b"}], bound
    )
    assert bound == {"one": "b"}


@pytest.mark.parametrize(("actual", "met"), [(4, True), (3, False), ("4", False), (None, False)])
def test_more_than(actual: Any, met: bool) -> None:
    assert meets_expectation({"$more_than": "bare"}, actual, {"bare": 3}) is met
    assert not meets_expectation({"$more_than": "other"}, actual, {"bare": 3})


@pytest.mark.parametrize("expected", ["$nothing", {"$nothing": 1}])
def test_unknown_operator(expected: Any) -> None:
    with pytest.raises(ValueError, match="not an operator"):
        find_differences(expected, MISSING, {})


def test_fill_template() -> None:
    template = {
        "id": "$same:id",
        "list": [0, {"$echo": 1}, {"$repeat": 2, "of": {"name": "t{n}"}}],
        "raw": {"$is": "$x"},
    }
    got = fill_template(template, {"id": 7}, lambda number, texts: [f"turn {number}", "more"])
    assert got == {"id": 7, "list": [0, "turn 1", "more", {"name": "t0"}, {"name": "t1"}], "raw": "$x"}
    with pytest.raises(MissingValue, match="id"):
        fill_template("$same:id", {}, lambda number, texts: [])
