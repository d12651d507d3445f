"""A part of an answer that is under way."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from toolwire.ir import Seal
from toolwire.schema import Converted, restored
from toolwire.steps.naming import FREEFORM, reshaped, unwrapped
from toolwire.wire import is_object_text


class Growing(Struct, eq=False):
    """What is known of it so far, and how it goes on to the client."""

    part: Any
    index: int
    choice: int
    pieces: list[str] = []
    seal: Seal | None = None
    held: bool = False
    freeform: bool = False
    mute: bool = False
    ruled: bool = False
    """Must the rules see it whole?"""
    shape: Converted | None = None

    def unwrap(self) -> None:
        """The arguments of a whole call as the client's tool has them."""
        if self.freeform:
            self.pieces = [unwrapped("".join(self.pieces))]
        elif self.shape is not None:
            self.pieces = [reshaped("".join(self.pieces), self.shape, restored)]

    @property
    def broken(self) -> bool:
        """Are the arguments of a call that ended no JSON object?"""
        text = "".join(self.pieces)
        return self.part.kind != FREEFORM and bool(text.strip()) and not is_object_text(text)
