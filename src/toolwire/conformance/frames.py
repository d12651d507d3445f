"""Streams as a peer sees them: the frames of a text, written down for checking, and frames made into text.

This reader is apart from the library's own on purpose: it keeps what the library passes over, such as comments.
"""

from __future__ import annotations

import json
from typing import Any, TypeAlias

from msgspec import Struct

Json: TypeAlias = Any


class Frame(Struct, frozen=True):
    """One event. `data` is parsed where it is JSON; `lines` are those that are neither event nor data."""

    event: str | None
    text: str
    data: Json
    lines: tuple[str, ...] = ()


def frames_of(text: str) -> list[Frame]:
    """Cut a whole stream into its frames; what stands after the last blank line is a frame too."""
    blocks = text.replace("\r\n", "\n").replace("\r", "\n").split("\n\n")
    return [frame for block in blocks if (frame := _frame(block)) is not None]


def _frame(block: str) -> Frame | None:
    event: str | None = None
    data: list[str] = []
    others: list[str] = []
    for line in block.split("\n"):
        if line.startswith("data:"):
            data.append(line[5:].removeprefix(" "))
        elif line.startswith("event:"):
            event = line[6:].strip()
        elif line:
            others.append(line)
    if not (data or others or event):
        return None
    text = "\n".join(data)
    return Frame(event, text, _parsed(text), tuple(others))


def _parsed(text: str) -> Json:
    try:
        return json.loads(text)
    except ValueError:
        return text


def compact(value: Json) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def frame_text(event: str | None, data: Json) -> str:
    """A frame as it stands on the wire; data that is a text is written as it is."""
    body = data if isinstance(data, str) else compact(data)
    return f"event: {event}\ndata: {body}\n\n" if event else f"data: {body}\n\n"
