"""What is known of an answer before it comes."""

from __future__ import annotations

from msgspec import Struct

from toolwire.policy.back import UNDONE, Undo
from toolwire.room import Room
from toolwire.steps.naming import Plan


class Way(Struct, frozen=True):
    """What the way back needs to know."""

    client: Room
    provider: Room
    plan: Plan
    taken: frozenset[str]
    """Call ids that the conversation already has."""
    seed: str = ""
    maker: str = ""
    known_request: bool = True
    keeps: bool = False
    """Is what the client has no slot for kept, by the id of a call?"""
    stamps: bool = False
    """Must seals name their maker even where the client speaks the provider's protocol?"""
    undo: Undo = UNDONE
    """What an operator's rules did to the tools."""
