"""The target of a request in one spelling. Everything is decided by this spelling, and providers get it too.

A path that a provider could read differently from the gateway is refused: it could pass as one endpoint here and be
another one there."""

from __future__ import annotations

import re
from urllib.parse import unquote_plus, urlsplit

from msgspec import Struct

MAX_PATH = 1024
_SEGMENT_CHARACTERS = r"A-Za-z0-9._~:@+=,\[\]-"
_is_canonical_path = re.compile(rf"/|(?:/(?!\.{{1,2}}(?:/|\Z))[{_SEGMENT_CHARACTERS}]+)+").fullmatch
_is_segment_character = re.compile(rf"[{_SEGMENT_CHARACTERS}]").fullmatch
_is_plain_query = re.compile(r'[!"$-~]*').fullmatch
_ESCAPE = re.compile(r"%[0-9A-Fa-f]{2}")
_ESCAPED_SLASH = re.compile(r"%2[Ff]")
_MODEL_PREFIX = re.compile(r"/(?:[^/]+/)+?(?:models|tunedModels)/|/model/")
"""What comes before the name of a model, which may have slashes, also escaped."""

_STEERING_QUERY_KEYS = frozenset(
    "accesstoken oauthtoken apikey model httpmethod httpheaders method xhttpmethodoverride".split()
)
"""Keys of a query, without case and punctuation, that choose another credential, model or method at some providers
(Google: `access_token`, `$httpMethod`)."""


class RequestTarget(Struct, frozen=True):
    path: str
    """In the one spelling; as it came if there is a problem."""
    query: str
    problem: str = ""
    """Why the request has to be refused with 400; "" if it does not."""


def read_target(target: str, host: str) -> RequestTarget:
    if "#" in target:
        return RequestTarget(target, "", "it has a fragment (#)")
    path, _, query = target.partition("?")
    if not path.startswith("/"):
        try:
            parts = urlsplit(path)
        except ValueError:
            return RequestTarget(path, query, "it is neither a path nor a URL")
        if parts.scheme not in ("http", "https") or parts.netloc.lower() != host.lower():
            return RequestTarget(path, query, "it is neither a path nor a URL of the host that the Host header names")
        path = parts.path or "/"
    return read_path(path, query)


def read_path(path: str, query: str) -> RequestTarget:
    """The path in its one spelling: escapes decoded once, and without a slash at the end."""
    canonical = path
    if "%" in path:
        canonical = _ESCAPE.sub(_decode_escape, path)
        before_name = _MODEL_PREFIX.match(canonical)
        if before_name is not None:
            canonical = before_name[0] + _ESCAPED_SLASH.sub("/", canonical[before_name.end() :])
    if canonical.endswith("/") and len(canonical) > 1:
        canonical = canonical[:-1]
    problem = ""
    if len(canonical) > MAX_PATH:
        problem = f"its path is longer than {MAX_PATH} characters"
    elif _is_canonical_path(canonical) is None:
        problem = "its path has segments, characters or escapes that a provider may read differently"
    elif _is_plain_query(query) is None:
        problem = "its query has characters that need an escape"
    return RequestTarget(path if problem else canonical, query, problem)


def _decode_escape(escape: re.Match[str]) -> str:
    """The character, or the escape itself if the path would mean something else with the character in it."""
    character = chr(int(escape[0][1:], 16))
    return character if _is_segment_character(character) else escape[0]


def find_steering_key(query: str) -> str:
    """A key of the query that would choose another credential, model or method at a provider; "" if there is none."""
    for pair in query.split("&"):
        name = unquote_plus(pair.partition("=")[0])
        if "".join(filter(str.isalnum, name)).lower() in _STEERING_QUERY_KEYS:
            return name
    return ""
