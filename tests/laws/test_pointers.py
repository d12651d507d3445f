"""Places in the input are written as JSON Pointers; the cache of them is bounded."""

from __future__ import annotations

import pytest

from toolwire.core import json_values
from toolwire.core.json_values import Path, json_pointer


def place(*keys: str | int) -> Path:
    path: Path = None
    for key in keys:
        path = (path, key)
    return path


POINTERS: tuple[tuple[Path, str], ...] = (
    (place(), ""),
    (place("messages", 0, "content"), "/messages/0/content"),
    (place("messages", "0", "content"), "/messages/0/content"),
    (place("a/b", "~"), "/a~1b/~0"),
    (place("event", 3, "delta"), "event/3/delta"),
    (place("events", 3), "/events/3"),
    (place("x" * 1000, 1), f"/{'x' * 1000}/1"),
)


@pytest.mark.parametrize(("path", "text"), POINTERS, ids=range(len(POINTERS)))
def test_a_path_gives_the_same_pointer_every_time(path: Path, text: str) -> None:
    assert [json_pointer(path), json_pointer(path)] == [text, text]


def test_the_cache_of_pointers_is_bounded_and_keeps_no_long_keys() -> None:
    cached = json_values._cached_pointer.cache_info
    for number in range(5000):
        assert json_pointer(place("input", number)) == f"/input/{number}"
    size = cached().currsize
    assert size == cached().maxsize == 2048
    misses = cached().misses
    json_pointer(place("x" * 1000))
    assert cached().misses == misses
