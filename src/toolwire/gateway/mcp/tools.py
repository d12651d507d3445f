"""The names of MCP tools as models see them, and the outcome of a call.

A name depends on the server and the tool only, so that it never changes. Server names contain no `__` and do not end
with `_` (the configuration is refused otherwise). So the part before the first `__` is the server, and the names of two
servers never clash.
"""

from __future__ import annotations

import hashlib
import re

from msgspec import Struct

from toolwire.core.ir import Call, Part, Result, Text
from toolwire.core.json_values import Json

MAX_NAME_LENGTH = 63
"""OpenAI and Anthropic allow 64 characters; no provider allows fewer."""
SEPARATOR = "__"
SERVER_NAME = re.compile(r"[A-Za-z](?!.*__)[A-Za-z0-9_-]{0,30}(?<!_)")
"""The name of a server: short enough that the hash of a shortened name fits after it."""
_ILLEGAL_CHARACTER = re.compile(r"[^A-Za-z0-9_-]")
_HASH_LENGTH = 8
_HASH_SUFFIX = re.compile(rf"_[0-9a-f]{{{_HASH_LENGTH}}}")


def exposed_tool_name(server: str, tool: str) -> str:
    """`server__tool`. A name that had to be changed or shortened ends with a hash of the original, and so does a name
    that looks as if it did, so that it never equals the unchanged name of another tool."""
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


class ToolOutcome(Struct, frozen=True):
    """The content of a tool result."""

    content: tuple[Part, ...]
    error: bool | None = None
    value: Json = None

    def to_result(self, call: Call) -> Result:
        """The result of this call."""
        return Result(
            call.id,
            self.content,
            error=self.error,
            name=call.name,
            kind=call.kind,
            namespace=call.namespace,
            value=self.value,
        )


def failed_outcome(reason: str) -> ToolOutcome:
    """An error result, from which the model learns what happened."""
    return ToolOutcome((Text(reason),), error=True)
