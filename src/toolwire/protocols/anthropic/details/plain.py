"""The short way: an answer of the ordinary shape, which nearly all have, is written at one go."""

from __future__ import annotations

from toolwire.ir import Call, Part, Text
from toolwire.protocols.anthropic.names import NAME
from toolwire.wire import Object, embedded


def write_plain_answer(parts: tuple[Part, ...]) -> list[Object] | None:
    """The blocks of an answer that another protocol's provider gave, where they are text and calls with nothing to
    them. None stands for every other shape: it goes the full way, which says the same of what both can take."""
    blocks: list[Object] = []
    for part in parts:
        origin = part.origin
        if origin is not None and origin.protocol == NAME:
            return None
        if type(part) is Text:
            if part.citations or part.cache is not None or part.seal is not None:
                return None
            if part.text:
                blocks.append({"type": "text", "text": part.text})
        elif type(part) is Call:
            if part.kind == "custom" or part.item or part.cache is not None or part.seal is not None:
                return None
            given = embedded(part.arguments)
            if given is None:
                return None
            blocks.append({"type": "tool_use", "id": part.id, "name": part.name, "input": given})
        else:
            return None
    return blocks
