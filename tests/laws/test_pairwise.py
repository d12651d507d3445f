"""The thinning of crossed parameters leaves no pair out: tests/README.md lists where it is used."""

from __future__ import annotations

from itertools import combinations, product
from math import prod
from typing import Any

import pytest

from material import pairwise, parametrize_pairwise

SIZES = [(1,), (7,), (3, 2), (1, 4, 1), (5, 4, 2), (5, 4, 8, 2), (2, 2, 2, 2, 2), (6, 5, 4, 3, 2), (3, 3, 3, 3)]


def axes_of(sizes: tuple[int, ...]) -> list[list[str]]:
    return [[f"{name}{number}" for number in range(size)] for name, size in zip("abcdefg", sizes, strict=False)]


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_every_pair_of_values_occurs(sizes: tuple[int, ...]) -> None:
    axes = axes_of(sizes)
    rows = pairwise(*axes)
    met = {pair for row in rows for pair in combinations(row, 2)}
    assert met == {pair for one, other in combinations(axes, 2) for pair in product(one, other)}


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_every_row_is_a_combination_and_none_occurs_twice(sizes: tuple[int, ...]) -> None:
    axes = axes_of(sizes)
    rows = pairwise(*axes)
    assert set(rows) <= set(product(*axes))
    assert len(set(rows)) == len(rows)
    assert rows == pairwise(*axes)


@pytest.mark.parametrize("sizes", [(7,), (3, 2)], ids=str)
def test_one_or_two_axes_are_crossed_in_full(sizes: tuple[int, ...]) -> None:
    axes = axes_of(sizes)
    assert pairwise(*axes) == list(product(*axes))


def test_few_rows_are_enough() -> None:
    """At least as many as the two longest axes crossed; not many more."""
    for sizes in [(5, 4, 2), (5, 4, 8, 2), (5, 4, 6, 2)]:
        longest = sorted(sizes)[-2:]
        assert prod(longest) <= len(pairwise(*axes_of(sizes))) <= prod(longest) * 1.2


def test_values_that_are_equal_are_kept_apart() -> None:
    assert pairwise([True, 1], ["a"]) == [(True, "a"), (1, "a")]


def test_a_mapping_names_its_values_and_tuples_are_one_axis() -> None:
    mark: Any = parametrize_pairwise({"client": ["x"], "first,second": [("a", "b"), ("b", "a")], "stream": {"s": True}})
    names, rows = mark.mark.args
    assert names == ["client", "first", "second", "stream"]
    assert [(row.values, row.id) for row in rows] == [
        (("x", "a", "b", True), "x-a-b-s"),
        (("x", "b", "a", True), "x-b-a-s"),
    ]
