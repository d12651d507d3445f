"""Ids of calls and names of tools: which are legal where, and how another one is made, always the same way."""

from __future__ import annotations

import hashlib
import re

SAFE = re.compile(r"[A-Za-z0-9_-]+")
SAFE_LENGTH = 40
"""Accepted everywhere: some wires allow 64, older ones 40."""


EMPTY_ENVELOPE = "dG9vbHdpcmU6W10"
"""An envelope for seals that holds none: whoever gets it back knows that there is nothing to give to anybody."""


def digest(text: str, length: int = 12) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:length]


def legal(id: str, pattern: re.Pattern[str] = SAFE, limit: int = SAFE_LENGTH) -> bool:
    return 0 < len(id) <= limit and pattern.fullmatch(id) is not None


def rewritten(text: str, pattern: re.Pattern[str] = SAFE, limit: int = SAFE_LENGTH, salt: str = "") -> str:
    """A legal form of any text: its readable part, and a hash that keeps two different texts apart. Where there is no
    room for both it is a hash alone, as long as it may be."""
    suffix = f"_{digest(text + salt)}"
    room = limit - len(suffix)
    if room < 1:
        return digest(text + salt, limit)
    readable = "".join(character if pattern.fullmatch(f"a{character}") else "_" for character in text[:limit])
    head = readable[:room].strip("_-.:")
    if not head or not pattern.fullmatch(head):
        head = f"x{head}"[:room]
    return head + suffix


def made(prefix: str, *seed: object) -> str:
    """An id made of what stands around it; the same surroundings give the same id."""
    return f"{prefix}{digest('|'.join(map(str, seed)), 24)}"


def flat(namespace: str, name: str) -> str:
    """A namespaced name as one word."""
    return f"{namespace}{name}" if namespace.endswith("_") else f"{namespace}__{name}"
