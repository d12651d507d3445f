"""What agents of one client tell each other. The service seals it; behind any other model it is plain text."""

from __future__ import annotations

import re

from toolwire.ir import Origin, Part, Text, Turn
from toolwire.protocols.openai_responses.names import NAME
from toolwire.protocols.openai_responses.parts import read_part, stamped
from toolwire.reading import Reading, numbered
from toolwire.wire import Object, Path, as_object, take_list

_KEYS = frozenset({"type", "id", "author", "recipient", "content", "agent"})
_SEALED = re.compile(r"gAAAA[A-Za-z0-9_-]{95,}={0,2}")
"""What the service has sealed; it is never shorter."""


def read_agent_message(node: Object, path: Path, reading: Reading) -> Turn:
    """Told to the model as if by its user: sender and task stand in the text."""
    content = numbered(take_list(node, "content", path) or [], (path, "content"))
    parts = tuple([_read_part(as_object(part, at), at, reading) for part, at in content])
    return Turn("user", parts, origin=stamped(reading, node, path, _KEYS))


def _read_part(node: Object, path: Path, reading: Reading) -> Part:
    """The client repeats the argument of a call as sealed, because it was declared so: of a model that seals nothing,
    it is the text itself."""
    text = node.get("encrypted_content")
    if node.get("type") == "encrypted_content" and isinstance(text, str) and not _SEALED.fullmatch(text):
        return Text(text, origin=Origin(NAME, path, None, intact=False))
    return read_part(node, path, reading)
