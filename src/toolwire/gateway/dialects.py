"""Which protocol a client speaks, from the path it asks for and what it sends with it."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches

from toolwire.protocols import ROOMS
from toolwire.room import Asked, Room


class Dialects:
    """All endpoints of all rooms, in tables that are made once."""

    def __init__(self) -> None:
        self.rooms = tuple(ROOMS.values())
        self.posts: dict[str, tuple[Room, Asked]] = {}
        for room in self.rooms:
            for path, asked in room.http.posts.items():
                self.posts.setdefault(path, (room, asked))
        self._asking = [(room, room.http.asked) for room in self.rooms if room.http.asked is not None]
        self._lists = {path for room in self.rooms for path in room.http.lists}

    def asked(self, path: str, query: str) -> tuple[Room, Asked] | None:
        """What a POST to this path asks for, and in whose protocol."""
        found = self.posts.get(path)
        if found is not None:
            return found
        for room, ask in self._asking:
            dynamic = ask(path, query)
            if dynamic is not None:
                return room, dynamic
        return None

    def listed(self, path: str) -> str | None:
        """Is this a list of models ("") or one of them (its name)?"""
        for start in self._lists:
            if path.rstrip("/") == start:
                return ""
            if path.startswith(f"{start}/"):
                return path[len(start) + 1 :]
        return None

    def nearest(self, path: str, query: str, headers: Mapping[str, str]) -> Room:
        """The room whose clients send such things; the first one where nothing tells."""
        keys = {pair.partition("=")[0] for pair in query.split("&")} if query else set()
        return max(self.rooms, key=lambda room: self._likeness(room, path, headers, keys))

    @staticmethod
    def _likeness(room: Room, path: str, headers: Mapping[str, str], keys: set[str]) -> tuple[bool, int]:
        signs = room.http.signs
        signed = not signs.isdisjoint(headers) or not signs.isdisjoint(keys)
        return signed, max((len(family) for family in room.http.families if path.startswith(family)), default=0)

    def near(self, path: str) -> str:
        """The endpoint that was probably meant."""
        found = get_close_matches(path, self.posts, 1, 0.5)
        return found[0] if found else ""
