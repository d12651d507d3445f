"""Whose stamp a node or a seal bears."""

from __future__ import annotations

from toolwire.ir import Origin, Seal
from toolwire.protocols.anthropic.names import NAME


def is_own(origin: Origin | None) -> bool:
    """Was it read from this wire, changed or not?"""
    return origin is not None and origin.protocol == NAME


def is_foreign(origin: Origin | None) -> bool:
    """Was it read from another wire? What has no origin was made here and belongs to nobody."""
    return origin is not None and origin.protocol != NAME


def own_seal(seal: Seal | None) -> str | None:
    """The value of a seal that this wire's provider made."""
    if seal is None or not (seal.maker == NAME or seal.maker.startswith(f"{NAME}/")):
        return None
    return seal.value
