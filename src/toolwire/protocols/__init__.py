"""The registry of rooms: one line each, and this is the only place that knows them all.

A room is imported when it is first asked for, so that nobody pays for, or stumbles over, one that is not used.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module

from toolwire.room import Room

FOLDERS = (
    "openai_chat",
    "openai_responses",
    "anthropic",
    "gemini",
    "unified",
)
"""Folders beside this file, in the order in which lists and tables show them."""


class UnknownProtocol(ValueError):
    """No room bears this name."""

    def __init__(self, name: str) -> None:
        super().__init__(f"no protocol is called {name!r}; known are {', '.join(ROOMS)}")


class _Rooms(Mapping[str, Room]):
    """Rooms by their names, which are the folders' with hyphens."""

    def __init__(self, folders: tuple[str, ...]) -> None:
        self._folders = {folder.replace("_", "-"): folder for folder in folders}
        self._rooms: dict[str, Room] = {}

    def __getitem__(self, name: str) -> Room:
        if name not in self._rooms:
            found: Room = import_module(f"{__name__}.{self._folders[name]}").ROOM
            self._rooms[name] = found
        return self._rooms[name]

    def __contains__(self, name: object) -> bool:
        return name in self._folders

    def __iter__(self) -> Iterator[str]:
        return iter(self._folders)

    def __len__(self) -> int:
        return len(self._folders)


ROOMS: Mapping[str, Room] = _Rooms(FOLDERS)


def room(name: str) -> Room:
    """The room of a protocol; underscores are accepted for hyphens."""
    spelled = name.replace("_", "-")
    if spelled not in ROOMS:
        raise UnknownProtocol(name)
    return ROOMS[spelled]
