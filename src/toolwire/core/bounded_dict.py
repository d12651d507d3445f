"""A table whose keys others choose: clients, providers, servers."""

from __future__ import annotations

from typing import TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")


class BoundedDict(dict[Key, Value]):
    """Is emptied when it has this many entries and gets another one: what is in it can be found out again."""

    __slots__ = ("_limit",)

    def __init__(self, limit: int) -> None:
        super().__init__()
        self._limit = limit

    def __setitem__(self, key: Key, value: Value) -> None:
        if len(self) >= self._limit:
            self.clear()
        super().__setitem__(key, value)
