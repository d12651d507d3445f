"""HTTP headers: those sent to providers (`Authorization` and the like come from `fixed_headers`), those returned to
clients (`x-toolwire-provider`, `x-toolwire-losses`), and the coding agent that a user agent names (`agents.toml`)."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping
from functools import cache, lru_cache
from importlib.resources import files
from typing import TYPE_CHECKING, TypeAlias
from urllib.parse import quote

from toolwire import __version__
from toolwire.core.codec import Codec
from toolwire.gateway.config.config import Provider
from toolwire.policy.rules import matches_globs

if TYPE_CHECKING:
    from toolwire.gateway.pipeline.gateway_request import GatewayRequest, Upstream

Headers: TypeAlias = tuple[tuple[str, str], ...]
PROVIDER_HEADER = "x-toolwire-provider"
_ASCII_PUNCTUATION = "!\"#$&'()*+,-./:;<=>?@[\\]^_`{|}~"


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


REQUEST_ID_HEADER = "x-request-id"
HOPS_HEADER = "x-toolwire-hops"
"""The gateways that a request came through. A gateway that finds itself in it is its own provider."""
LOSSES_HEADER = "x-toolwire-losses"
ATTEMPTS_HEADER = "x-toolwire-attempts"
COST_HEADER = "x-toolwire-cost"
"""What a whole answer costs in USD; only with `[costs] header`."""
_MAX_CACHED_UPSTREAMS = 16
_MAX_CACHED_NAME_SETS, _MAX_CACHED_NAME_LENGTH = 256, 2048
"""Sets of header names that a table caches, and the letters in one of them."""
_NO_HEADERS: Mapping[str, str] = {}
_ACCOUNT_HEADER = re.compile(
    r"(?:^|[-_])(?:org|organi[sz]ation|project|workspace|account|tenant|billing|actor|user[-_]?(?:id|profile|project)"
    r"|idempotency|authorization|api[-_]?key|cookie)(?:[-_]|$)|^x-goog-request-params$"
)
"""Headers that say for which account, organisation or project a request is, or which earlier request it repeats (two
clients could choose the same `idempotency-key`). They go only with the client's own credential: with the gateway's key
a client would choose among the operator's projects. The operator can set them with `headers` of the provider."""


def fixed_headers(provider: Provider, codec: Codec) -> dict[str, str]:
    """The headers of every request to a provider: its key (`Provider.credential`: `Authorization: Bearer`, or what
    `write_credential` of the protocol's `Http` says), then the operator's own headers, which win."""
    headers = {"content-type": "application/json", "user-agent": f"toolwire/{__version__}"}
    if (credential := provider.credential(codec.http)) is not None:
        headers[credential[0]] = credential[1]
    return headers | {name.lower(): value for name, value in provider.headers.items()}


def upstream_request_headers(call: GatewayRequest, upstream: Upstream, body: bytes) -> Headers:
    """The headers of a request to a provider, except those that are new in every request. Of the client's own headers
    only those that its protocol defines are forwarded."""
    codec, runtime = upstream.codec, call.runtime
    same_protocol = codec.name == call.client_codec.name
    needed = codec.http.extra_headers(upstream.model, body, call.headers if same_protocol else _NO_HEADERS)
    cached = call.upstream_headers.get(upstream)
    if cached is not None and cached[0] == needed:
        return cached[1]
    if len(call.upstream_headers) >= _MAX_CACHED_UPSTREAMS:
        call.upstream_headers.clear()
    tables = runtime.own_account_headers if upstream.provider.forward_auth else runtime.forwarded_headers
    headers = tables[codec.name].select(call.headers) if same_protocol else {}
    headers |= {**dict(needed), **upstream.headers}
    if upstream.provider.forward_auth:
        name, value = codec.http.write_credential(call.caller.provider_credential)
        headers[name] = value
    hops = call.headers.get(HOPS_HEADER)
    headers[HOPS_HEADER] = f"{hops},{runtime.gateway_id}" if hops else runtime.gateway_id
    headers.pop(REQUEST_ID_HEADER, None)
    call.upstream_headers[upstream] = (needed, tuple(headers.items()))
    return call.upstream_headers[upstream][1]


def client_response_headers(
    call: GatewayRequest, upstream: Upstream, upstream_headers: Mapping[str, str], loss_codes: tuple[str, ...]
) -> Mapping[str, str]:
    """The provider's headers that a client gets, its name, and the losses of the translation."""
    codec, client = upstream.codec, call.client_codec
    if codec.name == client.name:
        headers: Mapping[str, str] = call.runtime.returned_headers[codec.name].select(upstream_headers)
    else:
        limits = codec.http.read_rate_limits(upstream_headers, call.now)
        headers = client.http.write_rate_limits(limits, call.now) if limits else _NO_HEADERS
    if loss_codes:
        headers = {**headers, LOSSES_HEADER: _write_losses_header(loss_codes)}
    # The gateway's own come last: another Toolwire as provider names its provider.
    return {**headers, **upstream.reply_headers} if headers else upstream.reply_headers


@lru_cache(maxsize=128)
def _write_losses_header(loss_codes: tuple[str, ...]) -> str:
    return f"{len(loss_codes)}; codes={','.join(dict.fromkeys(loss_codes))}"


def attempts_header(attempts: list[tuple[str, str, float]]) -> Mapping[str, str]:
    if len(attempts) < 2:
        return _NO_HEADERS
    return {ATTEMPTS_HEADER: ", ".join(f"{provider}={outcome}" for provider, outcome, _ in attempts)}


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
        self._matched_sets: dict[tuple[str, ...], tuple[str, ...]] = {}

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
                if len(self._matched_sets) >= _MAX_CACHED_NAME_SETS:
                    self._matched_sets.clear()
                self._matched_sets[names] = matched
        selected: dict[str, str] = {}
        for name in matched:  # a comprehension would be a call of its own
            selected[name] = headers[name]
        return selected


@cache
def load_agents() -> dict[str, tuple[str, ...]]:
    """The known agents, with patterns for the first product in their user agents."""
    text = files("toolwire.gateway.pipeline").joinpath("agents.toml").read_text("utf-8")
    return {name: tuple(globs) for name, globs in tomllib.loads(text).items()}


@lru_cache(maxsize=1024)
def recognise_agent(user_agent: str) -> tuple[str, str]:
    """The agent's name, "" for an unknown one; and the first product of the user agent, without its version."""
    product = user_agent.strip().partition(" ")[0].partition("/")[0].lower()
    name = next((name for name, globs in load_agents().items() if matches_globs(product, globs)), "") if product else ""
    return name, product
