"""The tools of MCP servers as models see them, their results, and the states of their servers: nothing of the SDK."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from typing import Literal, TypeAlias

from msgspec import Struct

from toolwire.core.ir import Call, Part, Result, Text, Tool
from toolwire.core.json_values import Json

ServerState: TypeAlias = Literal["idle", "connecting", "up", "down", "closed"]
StateCallback: TypeAlias = Callable[[str, ServerState, str], None]
"""Called with a server's name, its state and its error, whenever these or its tools change."""
MAX_NAME_LENGTH = 63
"""OpenAI and Anthropic allow 64 characters; no provider allows fewer."""
SEPARATOR = "__"
_ILLEGAL_CHARACTER = re.compile(r"[^A-Za-z0-9_-]")
_HASH_LENGTH = 8
_HASH_SUFFIX = re.compile(rf"_[0-9a-f]{{{_HASH_LENGTH}}}")


def exposed_tool_name(server: str, tool: str) -> str:
    """`server__tool`: depends on these two only, so that it never changes. A name that had to be changed or shortened
    ends with a hash of the original, and so does a name that looks as if it did, so that it never equals the unchanged
    name of another tool."""
    name = f"{server}{SEPARATOR}{tool}"
    plain = f"{server}{SEPARATOR}{_ILLEGAL_CHARACTER.sub('_', tool)}"
    looks_hashed = _HASH_SUFFIX.match(tool[-_HASH_LENGTH - 1 :])
    if plain == name and tool and len(plain) <= MAX_NAME_LENGTH and not looks_hashed:
        return plain
    digest = hashlib.sha256(f"{server}\0{tool}".encode("utf-8", "surrogatepass")).hexdigest()
    return f"{plain[: MAX_NAME_LENGTH - _HASH_LENGTH - 1]}_{digest[:_HASH_LENGTH]}"


class ToolOutcome(Struct, frozen=True):
    """The content of a tool result."""

    content: tuple[Part, ...]
    error: bool | None = None
    value: Json = None

    def to_result(self, call: Call) -> Result:
        return Result(
            call.id, self.content, error=self.error, name=call.name, kind=call.kind, namespace=call.namespace,
            value=self.value,
        )  # fmt: skip


def failed_outcome(reason: str) -> ToolOutcome:
    """An error result, from which the model learns what happened."""
    return ToolOutcome((Text(reason),), error=True)


class OfferedTool(Struct, frozen=True):
    name: str
    """Its name at the server."""
    tool: Tool
    """The tool as the model sees it."""


class ConnectionTiming(Struct, frozen=True, kw_only=True):
    """All in seconds."""

    first_retry_delay: float = 1.0
    max_retry_delay: float = 60.0
    """The delay doubles with every failure, up to this value."""
    stable_after: float = 10.0
    """A connection that lasted this long is made again at once when it is lost; a shorter one counts as a failure."""
    keep_lost_tools: float = 300.0
    """The tools of a lost server are offered for this time, because a changing list breaks prompt caches."""
    relist_interval: float = 300.0
    """Tools are listed again after this time, even without a notification."""
    min_list_interval: float = 1.0
    """The minimum time between two lists."""
