"""The registry of codecs, one for each protocol. This is the only module that lists them all.

A codec is imported when it is first used, so that a command does not load protocols that it does not need.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module

from toolwire.core.codec import Codec

PACKAGES = ("openai_chat", "openai_responses", "anthropic", "gemini", "bedrock_converse", "unified")
"""The packages beside this file, in the order of lists and tables."""


class UnknownProtocol(ValueError):
    """There is no protocol of this name."""

    def __init__(self, name: str) -> None:
        super().__init__(f"unknown protocol {name!r}; known: {', '.join(CODECS)}")


class _LazyCodecs(Mapping[str, Codec]):
    """Codecs by the name of their protocol: the name of the folder, with hyphens."""

    def __init__(self, packages: tuple[str, ...]) -> None:
        self._packages = {folder.replace("_", "-"): folder for folder in packages}
        self._loaded: dict[str, Codec] = {}

    def __getitem__(self, name: str) -> Codec:
        if name not in self._loaded:
            self._loaded[name] = import_module(f"{__name__}.{self._packages[name]}").CODEC
        return self._loaded[name]

    def __contains__(self, name: object) -> bool:
        return name in self._packages

    def __iter__(self) -> Iterator[str]:
        return iter(self._packages)

    def __len__(self) -> int:
        return len(self._packages)


CODECS: Mapping[str, Codec] = _LazyCodecs(PACKAGES)


def find_codec(name: str) -> Codec:
    """The codec of a protocol; underscores are accepted for hyphens."""
    hyphenated = name.replace("_", "-")
    if hyphenated not in CODECS:
        raise UnknownProtocol(name)
    return CODECS[hyphenated]
