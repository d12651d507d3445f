"""A part of an answer that is under way."""

from __future__ import annotations

from typing import Any

from toolwire.ir import Seal
from toolwire.schema import Converted


class Growing:
    """What is known of it so far, and how it goes on to the client."""

    __slots__ = ("choice", "freeform", "held", "index", "mute", "part", "pieces", "ruled", "seal", "shape")

    def __init__(self, part: Any, index: int, choice: int) -> None:
        self.part = part
        self.index = index
        self.choice = choice
        self.pieces: list[str] = []
        self.seal: Seal | None = None
        self.held = False
        self.freeform = False
        self.mute = False
        self.ruled = False
        """Must the rules see it whole?"""
        self.shape: Converted | None = None
