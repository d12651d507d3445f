"""Ids of calls and names of tools: which are legal where, and how another one is made, always the same way."""

from __future__ import annotations

import re
from hashlib import blake2s, sha256

SAFE_ID_PATTERN = re.compile(r"[A-Za-z0-9_-]+")
MAX_SAFE_ID_LENGTH = 40
"""Accepted everywhere: some wires allow 64, older ones 40."""


EMPTY_ENVELOPE = "dG9vbHdpcmU6W10"
"""An envelope for seals that holds none: whoever gets it back knows that there is nothing to give to anybody."""


_UNICODE_ERRORS = "surrogatepass"


def hex_digest(text: str, length: int = 12) -> str:
    return sha256(text.encode("utf-8", _UNICODE_ERRORS)).hexdigest()[:length]


def is_legal_id(id: str, pattern: re.Pattern[str] = SAFE_ID_PATTERN, limit: int = MAX_SAFE_ID_LENGTH) -> bool:
    return 0 < len(id) <= limit and pattern.fullmatch(id) is not None


def make_legal_id(
    text: str, pattern: re.Pattern[str] = SAFE_ID_PATTERN, limit: int = MAX_SAFE_ID_LENGTH, salt: str = ""
) -> str:
    """A legal form of any text: its readable part, and a hash that keeps two different texts apart. Where there is no
    room for both it is a hash alone, as long as it may be."""
    suffix = f"_{hex_digest(text + salt)}"
    room = limit - len(suffix)
    if room < 1:
        return hex_digest(text + salt, limit)
    readable = "".join(character if pattern.fullmatch(f"a{character}") else "_" for character in text[:limit])
    head = readable[:room].strip("_-.:")
    if not head or not pattern.fullmatch(head):
        head = f"x{head}"[:room]
    return head + suffix


ESCAPE_PREFIX = "tw-"
_UNESCAPED_CHARACTER = re.compile(r"[A-Za-z0-9_]")
_ESCAPED_ID = re.compile(r"tw-(?:[A-Za-z0-9_]|-[0-9a-f]{2})+")
_ESCAPE_RUN = re.compile(r"(?:-[0-9a-f]{2})+")


def escape_id(id: str, pattern: re.Pattern[str], limit: int) -> str:
    """An unusual id in usual letters, from which it can be read again: whoever made it may want it back. Nothing where
    its letters are usual, or where this would be illegal all the same."""
    if SAFE_ID_PATTERN.fullmatch(id):
        return ""
    letters = (
        letter
        if _UNESCAPED_CHARACTER.fullmatch(letter)
        else "".join(f"-{byte:02x}" for byte in letter.encode("utf-8", _UNICODE_ERRORS))
        for letter in id
    )
    spelling = ESCAPE_PREFIX + "".join(letters)
    return spelling if is_legal_id(spelling, pattern, limit) else ""


def unescape_id(id: str) -> str:
    """The id that was spelled like this; nothing where it is none of those."""
    if not id.startswith(ESCAPE_PREFIX) or not _ESCAPED_ID.fullmatch(id):
        return ""
    try:
        own = _ESCAPE_RUN.sub(lambda run: _decode_escapes(run[0]), id[len(ESCAPE_PREFIX) :])
    except UnicodeDecodeError:
        return ""
    return own if escape_id(own, SAFE_ID_PATTERN, len(id)) == id else ""


def _decode_escapes(run: str) -> str:
    return bytes.fromhex(run.replace("-", "")).decode("utf-8", _UNICODE_ERRORS)


_EMPTY_HASH = blake2s(digest_size=12)
"""The cheapest digest for a short text: it is no secret, and goes through no library but the interpreter's own."""


def derive_id(prefix: str, seed: object, *more: object) -> str:
    """An id made of what stands around it; the same surroundings give the same id."""
    text = f"{seed}"
    for one in more:
        text = f"{text}|{one}"
    spread = _EMPTY_HASH.copy()
    spread.update(text.encode("utf-8", _UNICODE_ERRORS))
    return prefix + spread.hexdigest()


def flatten_tool_name(namespace: str, name: str) -> str:
    """A namespaced name as one word."""
    return f"{namespace}{name}" if namespace.endswith("_") else f"{namespace}__{name}"
