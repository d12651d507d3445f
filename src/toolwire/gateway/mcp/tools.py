"""Under which name a model knows a tool of an MCP server.

A name depends on nothing but the server and the tool: whatever else there is, it is the same every time. Server names
hold no `__` and end with no `_` (the configuration is refused otherwise), so what stands before the first `__` of a
name is the server, and no two servers can meet in a name.
"""

from __future__ import annotations

import hashlib
import re

from msgspec import Struct

from toolwire.core.ir import Call, Part, Result, Text
from toolwire.core.json_values import Json

MAX_NAME_LENGTH = 63
"""The shortest limit of all providers is 64."""
SEPARATOR = "__"
SERVER_NAME = re.compile(r"[A-Za-z](?!.*__)[A-Za-z0-9_-]{0,30}(?<!_)")
"""What a server can be called: short enough that the mark of a cut name always fits behind it."""
_ILLEGAL_CHARACTER = re.compile(r"[^A-Za-z0-9_-]")
_HASH_LENGTH = 8
_HASH_SUFFIX = re.compile(rf"_[0-9a-f]{{{_HASH_LENGTH}}}")


def exposed_tool_name(server: str, tool: str) -> str:
    """`server__tool`. What had to be replaced or cut is marked with a hash of the true name, and so is what looks as if
    it were, so that a marked name is never the plain one of another tool."""
    plain = f"{server}{SEPARATOR}{_ILLEGAL_CHARACTER.sub('_', tool)}"
    if (
        plain == f"{server}{SEPARATOR}{tool}"
        and tool
        and len(plain) <= MAX_NAME_LENGTH
        and not _HASH_SUFFIX.match(tool[-_HASH_LENGTH - 1 :])
    ):
        return plain
    digest = hashlib.sha256(f"{server}\0{tool}".encode("utf-8", "surrogatepass")).hexdigest()
    return f"{plain[: MAX_NAME_LENGTH - _HASH_LENGTH - 1]}_{digest[:_HASH_LENGTH]}"


# --- What came of a call, and what is said when nothing did ---


class ToolOutcome(Struct, frozen=True):
    """The content of a result."""

    content: tuple[Part, ...]
    error: bool | None = None
    value: Json = None

    def to_result(self, call: Call) -> Result:
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


def failed_outcome(why: str) -> ToolOutcome:
    """An error result: the model learns what happened and can do something else."""
    return ToolOutcome((Text(why),), error=True)
