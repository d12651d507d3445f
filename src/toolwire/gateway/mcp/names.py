"""Under which name a model knows a tool of an MCP server.

A name depends on nothing but the server and the tool: whatever else there is, it is the same every time. Server names
hold no `__` and end with no `_` (the configuration is refused otherwise), so what stands before the first `__` of a
name is the server, and no two servers can meet in a name.
"""

from __future__ import annotations

import hashlib
import re

LONGEST = 63
"""The shortest limit of all providers is 64."""
SEPARATOR = "__"
SERVER = re.compile(r"[A-Za-z](?!.*__)[A-Za-z0-9_-]{0,30}(?<!_)")
"""What a server can be called: short enough that the mark of a cut name always fits behind it."""
_ILLEGAL = re.compile(r"[^A-Za-z0-9_-]")
_MARK = 8
_MARKED = re.compile(rf"_[0-9a-f]{{{_MARK}}}")


def exposed(server: str, tool: str) -> str:
    """`server__tool`. What had to be replaced or cut is marked with a hash of the true name, and so is what looks as if
    it were, so that a marked name is never the plain one of another tool."""
    plain = f"{server}{SEPARATOR}{_ILLEGAL.sub('_', tool)}"
    if (
        plain == f"{server}{SEPARATOR}{tool}"
        and tool
        and len(plain) <= LONGEST
        and not _MARKED.match(tool[-_MARK - 1 :])
    ):
        return plain
    digest = hashlib.sha256(f"{server}\0{tool}".encode("utf-8", "surrogatepass")).hexdigest()
    return f"{plain[: LONGEST - _MARK - 1]}_{digest[:_MARK]}"
