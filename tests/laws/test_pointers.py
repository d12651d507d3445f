"""Places in the input are spelled as JSON Pointers, the second time from memory, which has an end."""

from __future__ import annotations

import pytest

from toolwire.core import json_values
from toolwire.core.json_values import Path, json_pointer


def place(*keys: str | int) -> Path:
    path: Path = None
    for key in keys:
        path = (path, key)
    return path


SPELLED: tuple[tuple[Path, str], ...] = (
    (place(), ""),
    (place("messages", 0, "content"), "/messages/0/content"),
    (place("messages", "0", "content"), "/messages/0/content"),
    (place("a/b", "~"), "/a~1b/~0"),
    (place("event", 3, "delta"), "event/3/delta"),
    (place("events", 3), "/events/3"),
    (place("x" * 1000, 1), f"/{'x' * 1000}/1"),
)


@pytest.mark.parametrize(("path", "text"), SPELLED, ids=range(len(SPELLED)))
def test_a_place_is_spelled_alike_every_time(path: Path, text: str) -> None:
    assert [json_pointer(path), json_pointer(path)] == [text, text]


def test_what_is_remembered_of_places_is_bounded() -> None:
    for number in range(5000):
        assert json_pointer(place("input", number)) == f"/input/{number}"
    json_pointer(place("x" * 1000))
    assert len(json_values._POINTER_CACHE) <= json_values._MAX_CACHED_POINTERS
    assert max(map(len, json_values._POINTER_CACHE.values())) <= json_values._MAX_CACHED_POINTER_LENGTH
