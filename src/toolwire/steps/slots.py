"""Where seals of a provider's answer go in the client's protocol."""

from __future__ import annotations

from functools import lru_cache

from msgspec import Struct

from toolwire.room import Room


class Slots(Struct, frozen=True):
    """What is the same for all answers between two rooms."""

    crossing: bool = False
    """Are they of different protocols? Within one, seals stay where they are."""
    no_slot: bool = False
    """There is none."""
    beside: bool = False
    """Only thinking has one: what seals a call or a text goes into thinking beside it."""
    on_next: bool = False
    """Calls have one: what seals thinking goes on the next part that has one too."""
    hold_calls: bool = False
    """Must a call wait until its seal is known, which goes before it?"""


WITHIN = Slots()


@lru_cache(maxsize=256)
def slots_between(client: Room, provider: Room) -> Slots:
    if client.name == provider.name:
        return WITHIN
    seals = client.rules.seals
    beside = "reasoning" in seals and "call" not in seals
    return Slots(True, not seals, beside, "call" in seals, beside and "call" in provider.rules.seals)
