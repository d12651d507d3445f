"""Unknown keys of a stream, each reported once, so that no stream can fill the memory with them."""

from __future__ import annotations

from toolwire.ir import Stray
from toolwire.protocols.openai_chat.names import KNOWN_CALL, KNOWN_CHUNK, KNOWN_DELTA, PLAIN_CHUNK_CHOICE
from toolwire.reading import says_something
from toolwire.wire import Object, Path

_MOST = 1024
"""More unknown keys than any lawful stream has."""


class Strays:
    __slots__ = ("_found", "known")

    def __init__(self) -> None:
        self._found: dict[tuple[str, str], Stray] = {}
        self.known = {
            "chunk": set(KNOWN_CHUNK),
            "choice": set(PLAIN_CHUNK_CHOICE - {"logprobs"}),
            "delta": set(KNOWN_DELTA),
            "call": set(KNOWN_CALL),
        }

    def note(self, kind: str, node: Object, path: Path) -> None:
        """Unknown keys of a node: what was reported is known from then on."""
        known = self.known[kind]
        if known.issuperset(node):
            return
        for key, value in node.items():
            if value is not None and key not in known and len(known) < _MOST and says_something(value):
                known.add(key)
                self._found[kind, key] = Stray(path, key)

    def once(self, kind: str, stray: Stray, key: str | None = None) -> None:
        """A stray that a reader found; the first of its kind and key stays."""
        self._found.setdefault((kind, stray.key if key is None else key), stray)

    def all(self) -> tuple[Stray, ...]:
        return tuple(self._found.values())
