"""What came of a call, and what is said when nothing did."""

from __future__ import annotations

from msgspec import Struct

from toolwire.ir import Call, Part, Result, Text
from toolwire.wire import Json


class Said(Struct, frozen=True):
    """The content of a result."""

    content: tuple[Part, ...]
    error: bool | None = None
    value: Json = None

    def to(self, call: Call) -> Result:
        """As the answer to a call."""
        return Result(
            call.id,
            self.content,
            error=self.error,
            name=call.name,
            kind=call.kind,
            namespace=call.namespace,
            value=self.value,
        )


def failed(why: str) -> Said:
    """An error result: the model learns what happened and can do something else."""
    return Said((Text(why),), error=True)
