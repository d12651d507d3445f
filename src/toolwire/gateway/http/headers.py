"""HTTP headers that need no request: those of every request to a provider (`Authorization` and the like come from
`fixed_headers`), those of replies, and tables of the headers that are passed on."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TypeAlias
from urllib.parse import quote

from toolwire.core.bounded_dict import BoundedDict
from toolwire.core.codec import Codec
from toolwire.core.version import VERSION
from toolwire.gateway.settings.config import Provider

Headers: TypeAlias = tuple[tuple[str, str], ...]
PROVIDER_HEADER = "x-toolwire-provider"
_ASCII_PUNCTUATION = "!\"#$&'()*+,-./:;<=>?@[\\]^_`{|}~"
REQUEST_ID_HEADER = "x-request-id"
HOPS_HEADER = "x-toolwire-hops"
"""The gateways that a request came through. A gateway that finds itself in it is its own provider."""
_MAX_CACHED_NAME_SETS, _MAX_CACHED_NAME_LENGTH = 256, 2048
"""Sets of header names that a table caches, and the letters in one of them."""
_ACCOUNT_HEADER = re.compile(
    r"(?:^|[-_])(?:org|organi[sz]ation|project|workspace|account|tenant|billing|actor|user[-_]?(?:id|profile|project)"
    r"|idempotency|authorization|api[-_]?key|cookie)(?:[-_]|$)|^x-goog-request-params$"
)
"""Headers that say for which account, organisation or project a request is, or which earlier request it repeats (two
clients could choose the same `idempotency-key`). They go only with the client's own credential: with the gateway's key
a client would choose among the operator's projects. The operator can set them with `headers` of the provider."""


class SharedHeaders(dict[str, str]):
    """Headers that many replies have without further ones, with their lines as they are sent. They never change."""

    __slots__ = ("lines",)

    def __init__(self, headers: Mapping[str, str]) -> None:
        super().__init__(headers)
        self.lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())


JSON_HEADERS = SharedHeaders({"content-type": "application/json"})


def provider_headers(provider: Provider) -> SharedHeaders:
    """The headers of every answer that is from a provider, and of every error about it. Characters of its name that a
    header cannot have are percent-encoded."""
    return SharedHeaders({**JSON_HEADERS, PROVIDER_HEADER: quote(provider.name, safe=_ASCII_PUNCTUATION)})


def fixed_headers(provider: Provider, codec: Codec) -> dict[str, str]:
    """The headers of every request to a provider: its key (`Provider.credential`: `Authorization: Bearer`, or what
    `write_credential` of the protocol's `Http` says), then the operator's own headers, which win."""
    headers = {"content-type": "application/json", "user-agent": f"toolwire/{VERSION}"}
    if (credential := provider.credential(codec)) is not None:
        headers[credential[0]] = credential[1]
    return headers | {name.lower(): value for name, value in provider.headers.items()}


def request_id_headers(codec: Codec, request_id: str) -> dict[str, str]:
    """The id of the request, under the usual name and under the one that this protocol's clients look for."""
    return {REQUEST_ID_HEADER: request_id, codec.http.request_id_header: request_id}


class HeaderTable:
    """Header names, of which some end in `*` and match every name that begins so. Peers send the same names again and
    again, so the matches of a set of names are cached."""

    __slots__ = ("_exact_names", "_has_account_headers", "_matched_sets", "_prefixes")

    def __init__(self, names: Iterable[str], has_account_headers: bool = True) -> None:
        """Without `has_account_headers`, headers that choose an account do not match."""
        listed = list(names)
        self._has_account_headers = has_account_headers
        self._exact_names = frozenset(name for name in listed if not name.endswith("*"))
        self._prefixes = tuple(name[:-1] for name in listed if name.endswith("*"))
        self._matched_sets: dict[tuple[str, ...], tuple[str, ...]] = BoundedDict(_MAX_CACHED_NAME_SETS)

    def contains(self, name: str) -> bool:
        if not self._has_account_headers and _ACCOUNT_HEADER.search(name):
            return False
        return name in self._exact_names or name.startswith(self._prefixes)

    def select(self, headers: Mapping[str, str]) -> dict[str, str]:
        names = tuple(headers)
        matched = self._matched_sets.get(names)
        if matched is None:
            matched = tuple(filter(self.contains, names))
            if sum(map(len, names)) <= _MAX_CACHED_NAME_LENGTH:
                self._matched_sets[names] = matched
        selected: dict[str, str] = {}
        for name in matched:  # a comprehension would be a call of its own
            selected[name] = headers[name]
        return selected
