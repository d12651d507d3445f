"""What a talk with tools looks like in a protocol, for both of its sides: what a client sends and must see, what a
provider answers and must have been sent. The demands are those that any user has, no one gateway's choices."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import Struct

from toolwire.conformance.dialects.dialect import Json, Object


class Tool(Struct, frozen=True):
    name: str
    description: str
    parameters: Object


class Says(Struct, frozen=True):
    """What the model says, in no protocol yet."""

    text: str = ""
    calls: tuple[tuple[str, Object], ...] = ()
    """Names and arguments."""
    sealed: bool = False
    """Did it think before, and seal its thoughts?"""


class Talk(Struct, frozen=True, kw_only=True):
    short: str
    """The protocol's name in the names of plays."""
    model: str
    thinker: str
    """The model that seals its thoughts."""
    turns: str
    """The key that holds the conversation."""
    seals: bool
    """Can its provider seal thoughts, and does it want them back?"""
    slot: bool
    """Do its clients have a place for seals?"""
    ask: Callable[[str, Sequence[Tool]], Object]
    """A client's first request."""
    answer: Callable[[Says], Object]
    """The provider's whole answer."""
    results: Callable[[Object, Sequence[str]], list[Json]]
    """What a client appends to its history for the results of an answer's calls."""
    sees: Callable[[Says], Json]
    """What a client must see of an answer."""
    hears: Callable[[str, Sequence[Tool]], Json]
    """What the provider must hear of a first request."""
    recalls: Callable[[str, Says, Sequence[str]], Json]
    """What it must hear of a later one: the question, the model's own turn, the results of its calls."""


def counted(expected: list[Json], kind: Json) -> Json:
    """These elements in this order among others, and no more of their kind."""
    return {"$contains": expected, "$count": {"of": kind, "is": len(expected)}}


def other_than(name: str, before: Sequence[str]) -> Json:
    """An id that is there, and that no call before has."""
    taken: Json = {"$not": {"$either": [f"$same:{one}" for one in before]}} if before else {}
    return {"$matches": ".", "$same": name, **taken}


def ways_to_give(things: list[Json]) -> list[list[list[Json]]]:
    """All at once, or one after the other. Whether a provider takes the second is for the strict checks to say."""
    return [[things], [[thing] for thing in things]]


def ids(calls: Sequence[object], letter: str) -> list[tuple[str, Json]]:
    """For each call the name of its id, and what is expected of the id where it is met first."""
    names = [f"{letter}{number}" for number, _ in enumerate(calls)]
    return [(name, other_than(name, names[:number])) for number, name in enumerate(names)]
