"""Call ids and tool names that a protocol accepts: checked, escaped, shortened or derived.

The same input always gives the same new id, because providers cache prompts by prefix.
"""

from __future__ import annotations

import re
from functools import lru_cache
from hashlib import blake2s, sha256

SAFE_ID_PATTERN = re.compile(r"[A-Za-z0-9_-]+")
MAX_SAFE_ID_LENGTH = 40
"""Accepted everywhere. OpenAI truncates ids at 64 characters; older Azure deployments at 40."""
_UNICODE_ERRORS = "surrogatepass"
_DIGEST_LENGTH = 12
_find_digest = re.compile(rf"_[0-9a-f]{{{_DIGEST_LENGTH}}}\Z").search


def hex_digest(text: str, length: int = _DIGEST_LENGTH) -> str:
    """The first hex digits of the SHA-256 hash."""
    return sha256(text.encode("utf-8", _UNICODE_ERRORS)).hexdigest()[:length]


def is_legal_id(id: str, pattern: re.Pattern[str] = SAFE_ID_PATTERN, limit: int = MAX_SAFE_ID_LENGTH) -> bool:
    return 0 < len(id) <= limit and pattern.fullmatch(id) is not None


def ends_with_digest(id: str) -> bool:
    """May `make_legal_id` have made it?"""
    return _find_digest(id) is not None


def make_legal_id(
    text: str, pattern: re.Pattern[str] = SAFE_ID_PATTERN, limit: int = MAX_SAFE_ID_LENGTH, salt: str = ""
) -> str:
    """A legal id or name for any text: a readable prefix, and a hash (alone where the limit is too short for both)."""
    suffix = f"_{hex_digest(text + salt)}"
    prefix_length = limit - len(suffix)
    if prefix_length < 1:
        return hex_digest(text + salt, limit)
    readable = "".join([_legal_character(pattern, character) for character in text[:limit]])
    prefix = readable[:prefix_length].strip("_-.:")
    if not prefix or not pattern.fullmatch(prefix):
        prefix = f"x{prefix}"[:prefix_length]
    return prefix + suffix


@lru_cache(2048)
def _legal_character(pattern: re.Pattern[str], character: str) -> str:
    return character if pattern.fullmatch(f"a{character}") else "_"


ESCAPE_PREFIX = "tw-"
_UNESCAPED_CHARACTER = re.compile(r"[A-Za-z0-9_]")
_ESCAPED_ID = re.compile(r"tw-(?:[A-Za-z0-9_]|-[0-9a-f]{2})+")
_ESCAPE_RUN = re.compile(r"(?:-[0-9a-f]{2})+")


def escape_id(id: str, pattern: re.Pattern[str], limit: int) -> str:
    """An id with unsafe characters written so that `unescape_id` can restore it for the provider that made it: `a:b` is
    `tw-a-3ab`. "" where all characters are safe, or where the escaped id would be too long."""
    if SAFE_ID_PATTERN.fullmatch(id):
        return ""
    characters = (
        character
        if _UNESCAPED_CHARACTER.fullmatch(character)
        else "".join(f"-{byte:02x}" for byte in character.encode("utf-8", _UNICODE_ERRORS))
        for character in id
    )
    escaped = ESCAPE_PREFIX + "".join(characters)
    return escaped if is_legal_id(escaped, pattern, limit) else ""


def unescape_id(id: str) -> str:
    """The id that `escape_id` wrote like this; "" for any other id."""
    if not id.startswith(ESCAPE_PREFIX) or not _ESCAPED_ID.fullmatch(id):
        return ""
    try:
        original = _ESCAPE_RUN.sub(
            lambda run: bytes.fromhex(run[0].replace("-", "")).decode("utf-8", _UNICODE_ERRORS),
            id[len(ESCAPE_PREFIX) :],
        )
    except UnicodeDecodeError:
        return ""
    return original if escape_id(original, SAFE_ID_PATTERN, len(id)) == id else ""


_EMPTY_HASH = blake2s(digest_size=12)
"""The fastest digest for a short text. Copying it avoids OpenSSL's set-up for each id."""


def derive_id(prefix: str, seed: object, *more: object) -> str:
    """An id that depends only on the arguments. A caller that needs a new id each time passes a random seed."""
    digest = _EMPTY_HASH.copy()
    digest.update("|".join(map(str, (seed, *more))).encode("utf-8", _UNICODE_ERRORS))
    return prefix + digest.hexdigest()


def flatten_tool_name(namespace: str, name: str) -> str:
    """The name of a tool for protocols without namespaces: `files` and `read` give `files__read`."""
    return f"{namespace}{name}" if namespace.endswith("_") else f"{namespace}__{name}"
