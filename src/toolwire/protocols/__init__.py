"""The registry of rooms: one line each, and this is the only place that knows them all.

A room is imported when it is first asked for, so that nobody pays for, or stumbles over, one that is not used.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module

from toolwire.core.codec import Codec

PACKAGES = (
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
        super().__init__(f"no protocol is called {name!r}; known are {', '.join(CODECS)}")


class _LazyCodecs(Mapping[str, Codec]):
    """Rooms by their names, which are the folders' with hyphens."""

    def __init__(self, packages: tuple[str, ...]) -> None:
        self._packages = {folder.replace("_", "-"): folder for folder in packages}
        self._loaded: dict[str, Codec] = {}

    def __getitem__(self, name: str) -> Codec:
        if name not in self._loaded:
            found: Codec = import_module(f"{__name__}.{self._packages[name]}").CODEC
            self._loaded[name] = found
        return self._loaded[name]

    def __contains__(self, name: object) -> bool:
        return name in self._packages

    def __iter__(self) -> Iterator[str]:
        return iter(self._packages)

    def __len__(self) -> int:
        return len(self._packages)


CODECS: Mapping[str, Codec] = _LazyCodecs(PACKAGES)


def find_codec(name: str) -> Codec:
    """The room of a protocol; underscores are accepted for hyphens."""
    spelled = name.replace("_", "-")
    if spelled not in CODECS:
        raise UnknownProtocol(name)
    return CODECS[spelled]
