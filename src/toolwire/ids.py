"""Ids of calls and names of tools: which are legal where, and how another one is made, always the same way."""

from __future__ import annotations

import re
from hashlib import blake2s, sha256

SAFE = re.compile(r"[A-Za-z0-9_-]+")
SAFE_LENGTH = 40
"""Accepted everywhere: some wires allow 64, older ones 40."""


EMPTY_ENVELOPE = "dG9vbHdpcmU6W10"
"""An envelope for seals that holds none: whoever gets it back knows that there is nothing to give to anybody."""


_AS_IT_IS = "surrogatepass"


def digest(text: str, length: int = 12) -> str:
    return sha256(text.encode("utf-8", _AS_IT_IS)).hexdigest()[:length]


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


SPELLED = "tw-"
_PLAIN = re.compile(r"[A-Za-z0-9_]")
_SPELLING = re.compile(r"tw-(?:[A-Za-z0-9_]|-[0-9a-f]{2})+")
_RUN = re.compile(r"(?:-[0-9a-f]{2})+")


def spelled(id: str, pattern: re.Pattern[str], limit: int) -> str:
    """An unusual id in usual letters, from which it can be read again: whoever made it may want it back. Nothing where
    its letters are usual, or where this would be illegal all the same."""
    if SAFE.fullmatch(id):
        return ""
    letters = (
        letter if _PLAIN.fullmatch(letter) else "".join(f"-{byte:02x}" for byte in letter.encode("utf-8", _AS_IT_IS))
        for letter in id
    )
    spelling = SPELLED + "".join(letters)
    return spelling if legal(spelling, pattern, limit) else ""


def unspelled(id: str) -> str:
    """The id that was spelled like this; nothing where it is none of those."""
    if not id.startswith(SPELLED) or not _SPELLING.fullmatch(id):
        return ""
    try:
        own = _RUN.sub(lambda run: _read(run[0]), id[len(SPELLED) :])
    except UnicodeDecodeError:
        return ""
    return own if spelled(own, SAFE, len(id)) == id else ""


def _read(run: str) -> str:
    return bytes.fromhex(run.replace("-", "")).decode("utf-8", _AS_IT_IS)


_BLANK = blake2s(digest_size=12)
"""The cheapest digest for a short text: it is no secret, and goes through no library but the interpreter's own."""


def made(prefix: str, seed: object, *more: object) -> str:
    """An id made of what stands around it; the same surroundings give the same id."""
    text = f"{seed}"
    for one in more:
        text = f"{text}|{one}"
    spread = _BLANK.copy()
    spread.update(text.encode("utf-8", _AS_IT_IS))
    return prefix + spread.hexdigest()


def flat(namespace: str, name: str) -> str:
    """A namespaced name as one word."""
    return f"{namespace}{name}" if namespace.endswith("_") else f"{namespace}__{name}"
