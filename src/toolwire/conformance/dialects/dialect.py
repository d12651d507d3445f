"""What the player must know of a protocol: how its provider answers, and how its own client reads that answer.

The clients here add up streams as the official SDKs and the real agents do, and complain where those would fail.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from msgspec import Struct

from toolwire.conformance.frames import Frame

Json: TypeAlias = Any
Object: TypeAlias = dict[str, Any]


class Folded(Struct, frozen=True):
    """What a stream adds up to, in the shape of a whole answer, and what its client would stumble over."""

    body: Object
    complaints: tuple[str, ...]
    formalities: tuple[str, ...] = ()
    """Those complaints that only the protocol's letter has: the SDKs and agents that were tried read over it."""


class Wire(Struct, frozen=True, kw_only=True):
    """How a call looks from outside: what an SDK sends, and what a server of this protocol listens to."""

    base: str = ""
    """What stands behind the host in an SDK's base URL."""
    path: str
    """Where the SDK posts to; `{model}` is the model's name where it stands in the path."""
    stream_path: str = ""
    """The same for a stream, where that is another."""
    listens: re.Pattern[str]
    """The end of a path at which the provider generates, with the group `model` where it stands there, and `stream`."""
    frames_query: str = ""
    """What the query must hold for a stream of frames; without it a stream is one array, element by element."""
    asks: Mapping[str, str] = {}
    """Where the SDK asks for something else than an answer, by what it is."""
    counts: str = ""
    """The end of a path at which it counts tokens."""
    credential: tuple[str, str] = ("authorization", "Bearer {key}")
    headers: Mapping[str, str] = {}

    @property
    def in_body(self) -> bool:
        """Do the model and the wish for a stream stand in the body?"""
        return "{model}" not in self.path


class Dialect(Struct, frozen=True):
    name: str
    wire: Wire
    complete: Callable[[Object, str], Object]
    """A whole answer with the dull fields filled in, for a model."""
    stream: Callable[[Object], list[str]]
    """A whole answer as the frames of a stream."""
    complete_frames: Callable[[list[Json], str], list[str]]
    """Frames as a case has them, with the dull fields filled in."""
    fold: Callable[[list[Frame]], Folded]
    history: Callable[[Object], list[Json]]
    """What the client appends to its history after this answer."""
    typed: bool = False
    """Do clients go by the type in the data of a frame, whether or not a line before it says the same?"""


def pieces(text: str, count: int = 3) -> list[str]:
    """A text in a few pieces, as a stream brings it."""
    size = max(1, -(-len(text) // count))
    return [text[at : at + size] for at in range(0, len(text), size)]
