"""Streams as a peer sees them: the frames of a text, written down for checking, and frames made into text.

This reader is apart from the library's own on purpose: it keeps what the library passes over, such as comments.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from typing import Any, TypeAlias

from msgspec import Struct

Json: TypeAlias = Any


class SseFrame(Struct, frozen=True):
    """One event. `data` is parsed where it is JSON; `lines` are those that are neither event nor data."""

    event: str | None
    text: str
    data: Json
    other_lines: tuple[str, ...] = ()


def read_frames(text: str) -> list[SseFrame]:
    """Cut a whole stream into its frames; what stands after the last blank line is a frame too."""
    blocks = text.replace("\r\n", "\n").replace("\r", "\n").split("\n\n")
    return [frame for block in blocks if (frame := _read_frame(block)) is not None]


def _read_frame(block: str) -> SseFrame | None:
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
    return SseFrame(event, text, _parse_json(text), tuple(others))


def _parse_json(text: str) -> Json:
    try:
        return json.loads(text)
    except ValueError:
        return text


def encode_json(value: Json) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def write_frame(event: str | None, data: Json) -> str:
    """A frame as it stands on the wire; data that is a text is written as it is."""
    body = data if isinstance(data, str) else encode_json(data)
    return f"event: {event}\ndata: {body}\n\n" if event else f"data: {body}\n\n"


COMPRESSORS: dict[str, Callable[[bytes], bytes]] = {"": bytes, "gzip": gzip.compress}

for _name in ("backports.zstd", "compression.zstd"):  # the second is in the standard library since Python 3.14
    with suppress(ImportError):
        COMPRESSORS["zstd"] = import_module(_name).compress
