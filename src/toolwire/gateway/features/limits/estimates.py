"""How many tokens a request will probably use, before it is sent."""

from __future__ import annotations

import math
from functools import lru_cache

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from toolwire.core.codec import Codec
from toolwire.core.ir import Usage
from toolwire.core.request_members import letters_of
from toolwire.core.tokens import estimate_input
from toolwire.gateway.exchange.client_body import ClientBody, list_members

MAX_RESERVED_OUTPUT = 4096
"""Output tokens that a request reserves at most. Clients ask for as many as the model can give, and few use them."""
DEFAULT_RESERVED_OUTPUT = 1024
"""For requests that set no limit."""
_MAX_NUMBER_LENGTH = 64
"""Bytes of a number in a request. No server takes a longer one."""
_decode_items = msgspec.json.Decoder(list[Raw]).decode
MAX_COUNTED = 2**48
"""Providers can count nonsense, and clients ask for it; counters have an end."""
_MAX_CACHED = 4096


def estimate_usage(body: ClientBody, max_output: int | None) -> Usage:
    """The tokens that a request sends, and those that it will probably get."""
    sent = estimate_input(body.codec, body.data, body.read_request)
    return replace(sent, output=estimate_output(body, max_output))


class _OutputKeys(Struct, frozen=True):
    """Keys of a protocol, by their letters: some servers take them in any case."""

    exact_limits: frozenset[str]
    """As every server takes them. Others may be ignored: they make a reservation larger, and never smaller."""
    limits: frozenset[str]
    counts: frozenset[str]
    settings: frozenset[str]
    others: frozenset[str]
    """Usual keys that are none of them."""


@lru_cache(_MAX_CACHED)
def _find_output_keys(codec: Codec) -> _OutputKeys:
    http = codec.http
    exact = frozenset(http.output_limit_keys)
    names = (exact | frozenset(http.lenient_output_limit_keys), http.answer_count_keys, http.settings_keys)
    limits, counts, settings = (frozenset(map(letters_of, row)) for row in names)
    known = codec.request_members.outermost | codec.request_members.forwarded
    others = frozenset(name for name in known if letters_of(name) not in limits | counts | settings)
    return _OutputKeys(exact, limits, counts, settings, others)


def estimate_output(body: ClientBody, max_output: int | None = None) -> int:
    """How many output tokens a request will probably get: in each of its answers as many as it allows itself, and the
    operator allows it. Where it says that in two ways the higher one counts, because servers differ in which they
    take."""
    keys = _find_output_keys(body.codec)
    limit, lenient_limit, answers = 0.0, 0.0, 1
    for name, value in _list_settings(body, keys):
        letters = letters_of(name)
        if name not in keys.exact_limits and letters in keys.limits:
            lenient_limit = max(lenient_limit, _read_limit(value))
        elif letters in keys.limits:
            limit = max(limit, _read_limit(value))
        elif letters in keys.counts:
            answers *= _count_answers(value)
    limit = max(limit or (DEFAULT_RESERVED_OUTPUT if max_output is None else max_output), lenient_limit)
    each = math.ceil(min(limit, MAX_RESERVED_OUTPUT, math.inf if max_output is None else max_output))
    return int(min(each * answers, MAX_COUNTED))


def _list_settings(body: ClientBody, keys: _OutputKeys) -> list[tuple[str, Raw]]:
    """The members of a request that may be such keys."""
    members = body.members
    found = [(name, members[name]) for name in members.keys() - keys.others]
    if not keys.settings:
        return found
    try:
        settings = _list_inner(found, keys)
        return settings + _list_inner(settings, keys)  # those of Nova have some of their own
    except (msgspec.DecodeError, UnicodeError):
        return []


def _list_inner(members: list[tuple[str, Raw]], keys: _OutputKeys) -> list[tuple[str, Raw]]:
    holders = [value for name, value in members if letters_of(name) in keys.settings and bytes(value) != b"null"]
    return [member for value in holders for member in list_members(value)]


def _read_limit(value: Raw) -> float:
    """A limit as the most lenient server may read it: 0 for null, and infinity for what does not limit anything."""
    number = _read_number(value)
    if number is None:
        return 0.0
    return number if number > 0 else math.inf


def _count_answers(value: Raw) -> int:
    """The answers that a number asks for, or a list of prompts. Whatever else it is, every provider refuses it."""
    if bytes(value).startswith(b"["):
        return max(1, sum(bytes(item).startswith((b'"', b"[")) for item in _decode_items(value)))
    number = _read_number(value)
    return math.ceil(number) if number is not None and 1 <= number < math.inf else 1


def _read_number(value: Raw) -> float | None:
    """A number, also if it is written as a text; None for null, NaN for anything else."""
    text = bytes(value)
    try:
        number = msgspec.json.decode(text) if len(text) <= _MAX_NUMBER_LENGTH else math.nan
        number = float(number) if isinstance(number, str) else number
    except ValueError:  # also those of msgspec
        return math.nan
    if number is None:
        return None
    return float(number) if isinstance(number, int | float) and not isinstance(number, bool) else math.nan
