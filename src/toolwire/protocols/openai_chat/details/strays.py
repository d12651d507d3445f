"""Unknown keys of a stream, each reported once, so that no stream can fill the memory with them."""

from __future__ import annotations

from toolwire.ir import Stray
from toolwire.protocols.openai_chat.names import KNOWN_CALL, KNOWN_CHUNK, KNOWN_DELTA, PLAIN_CHUNK_CHOICE
from toolwire.reading import says_something
from toolwire.wire import Object, Path

_MOST = 1024
"""More unknown keys than any lawful stream has."""
_Keys = set[str] | frozenset[str]
_CHOICE = PLAIN_CHUNK_CHOICE - {"logprobs"}


class Strays:
    """The keys that are known of each kind of node, and those that were found besides."""

    __slots__ = ("_found", "call", "choice", "chunk", "delta")

    def __init__(self) -> None:
        self._found: dict[tuple[str, str], Stray] = {}
        self.chunk: _Keys = KNOWN_CHUNK
        self.choice: _Keys = _CHOICE
        self.delta: _Keys = KNOWN_DELTA
        self.call: _Keys = KNOWN_CALL

    def note(self, kind: str, node: Object, path: Path) -> None:
        """Unknown keys of a node: what was reported is known from then on."""
        known: _Keys = getattr(self, kind)
        for key, value in node.items():
            if value is not None and key not in known and len(known) < _MOST and says_something(value):
                if isinstance(known, frozenset):
                    known = set(known)
                    setattr(self, kind, known)
                known.add(key)
                self._found[kind, key] = Stray(path, key)

    def once(self, kind: str, stray: Stray, key: str | None = None) -> None:
        """A stray that a reader found; the first of its kind and key stays."""
        self._found.setdefault((kind, stray.key if key is None else key), stray)

    def all(self) -> tuple[Stray, ...]:
        return tuple(self._found.values())
