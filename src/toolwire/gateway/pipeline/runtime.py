"""Lines to providers: all about a call that is the same every time, worked out once for each configuration."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping

from msgspec import Struct
from msgspec.structs import replace

from toolwire import __version__
from toolwire.core import ids
from toolwire.core.codec import Codec
from toolwire.gateway.config.config import Config, Provider
from toolwire.gateway.pipeline.route import Router, Target, choose_codecs
from toolwire.gateway.server.access import AccessControl
from toolwire.gateway.upstream.client import Address
from toolwire.policy.rules import Policy
from toolwire.protocols import CODECS
from toolwire.translation.options import Options

Headers = tuple[tuple[str, str], ...]
_MAX_CACHED = 2048
_MAX_NAME_SETS = 256
"""Sets of header names that are remembered, each of no more letters than `_REMEMBERED`."""


class Upstream(Struct, frozen=True, eq=False):
    """One way to ask one provider for one model in one protocol."""

    provider: Provider
    codec: Codec
    model: str
    stream: bool
    max_output_tokens: int | None
    allows_passthrough: bool
    """May a request of its protocol pass as it is? Not where there are quirks, or a limit to put in."""
    address: Address | None
    """None for the embedded model."""
    address_label: str
    """Host and port, for the log."""
    path: str
    headers: Mapping[str, str]
    seal_maker: str
    needs_seal_stamps: bool
    """Do several accounts make seals of this protocol, so that each must bear its maker's name?"""
    options: Options = Options()
    """Those of its translations, as far as they are the same for every call."""
    state_options: Options = Options()
    """The same for calls for which something may be kept."""
    needs_credential_check: bool = False
    """Is a key missing, or wanted from the client?"""


class HeaderTable:
    """A table of header names in which some stand for all that begin so. A peer sends the same ones again and again,
    so sets of them that were met are remembered."""

    __slots__ = ("_exact_names", "_matched_sets", "_prefixes")

    def __init__(self, names: Iterable[str]) -> None:
        listed = list(names)
        self._exact_names = frozenset(name for name in listed if not name.endswith("*"))
        self._prefixes = tuple(name[:-1] for name in listed if name.endswith("*"))
        self._matched_sets: dict[tuple[str, ...], tuple[str, ...]] = {}

    def contains(self, name: str) -> bool:
        return name in self._exact_names or name.startswith(self._prefixes)

    def select(self, headers: Mapping[str, str]) -> dict[str, str]:
        """Those of the headers that the table names."""
        names = tuple(headers)
        found = self._matched_sets.get(names)
        if found is None:
            found = self._match_names(names)
        some: dict[str, str] = {}
        for name in found:  # a comprehension would be a call of its own
            some[name] = headers[name]
        return some

    def _match_names(self, names: tuple[str, ...]) -> tuple[str, ...]:
        found = tuple(filter(self.contains, names))
        if sum(map(len, names)) <= _MAX_CACHED:
            if len(self._matched_sets) >= _MAX_NAME_SETS:
                self._matched_sets.clear()
            self._matched_sets[names] = found
        return found


class Runtime:
    """A configuration at work. A new one gets a new state; exchanges under way keep theirs."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.cancels_on_disconnect = config.server.on_disconnect == "cancel"
        """Does a client that leaves cancel what is done for it?"""
        self.router = Router(config)
        self.access = AccessControl(config.server)
        self.policy = Policy(config.policy)
        self.forwarded_headers = {room.name: HeaderTable(room.http.forwarded_headers) for room in CODECS.values()}
        self.returned_headers = {room.name: HeaderTable(room.http.returned_headers) for room in CODECS.values()}
        self._stamped_protocols = _protocols_needing_stamps(config)
        self._upstreams: dict[tuple[Provider, str, Codec, bool, int | None], Upstream] = {}
        self._upstream_pairs: dict[tuple[Codec, Target, bool], tuple[Upstream, Upstream]] = {}
        self._addresses: dict[tuple[Provider, str], Address] = {}

    def choose_upstream(
        self, client_codec: Codec, target: Target, stream: bool, has_tools: Callable[[], bool]
    ) -> Upstream:
        """The line for a client's call."""
        key = (client_codec, target, stream)
        found = self._upstream_pairs.get(key)
        if found is None:
            if len(self._upstream_pairs) >= _MAX_CACHED:
                self._upstream_pairs.clear()
            with_tools, without = choose_codecs(target, client_codec)
            found = self.upstream_for(target, with_tools, stream), self.upstream_for(target, without, stream)
            self._upstream_pairs[key] = found
        # Most bodies need not be looked into.
        return found[0] if found[0] is found[1] or has_tools() else found[1]

    def upstream_for(self, target: Target, codec: Codec, stream: bool) -> Upstream:
        key = (target.provider, target.model, codec, stream, target.max_output_tokens)
        found = self._upstreams.get(key)
        if found is None:
            if len(self._upstreams) >= _MAX_CACHED:
                self._upstreams.clear()
            found = self._upstreams[key] = self._build_upstream(target, codec, stream)
        return found

    def _build_upstream(self, target: Target, codec: Codec, stream: bool) -> Upstream:
        provider, model = target.provider, target.model
        limit = target.max_output_tokens
        passes = CODECS[codec.name] is codec and limit is None
        maker = f"{codec.name}/{provider.name}/{ids.hex_digest(provider.api_key.reveal(), 8)}"
        stamps = codec.name in self._stamped_protocols and not provider.embedded
        options = self._translation_options(model, stream, limit, maker, stamps)
        guarded = provider.is_key_missing or provider.forward_auth
        if provider.embedded:
            address, peer, path, fixed = None, "", "", {}
        else:
            address = self.provider_address(provider, codec.name)
            peer, path, fixed = (
                address.label,
                codec.http.request_path(model, stream),
                self.fixed_headers(provider, codec),
            )
        return Upstream(
            provider, codec, model, stream, limit, passes, address, peer, path, fixed, maker, stamps, *options, guarded
        )

    def _translation_options(
        self, model: str, stream: bool, limit: int | None, seal_maker: str, needs_seal_stamps: bool
    ) -> tuple[Options, Options]:
        """Without and with something kept."""
        translate = self.config.translate
        options = Options(
            model=model,
            stream=stream,
            binary_results=translate.binary_results,
            cache_breakpoints=translate.cache_breakpoints,
            max_output_tokens=limit,
            max_bytes=self.config.server.max_body,
            maker=seal_maker,
            stamp_seals=needs_seal_stamps,
        )
        return options, replace(options, has_memory=True)

    def provider_address(self, provider: Provider, protocol: str) -> Address:
        key = (provider, protocol)
        found = self._addresses.get(key)
        if found is None:
            url, proxy = provider.base_urls[protocol], provider.proxies.get(protocol, "")
            found = self._addresses[key] = Address.parse(url, proxy, provider.ca_file)
        return found

    @staticmethod
    def fixed_headers(provider: Provider, codec: Codec) -> dict[str, str]:
        """Headers that every call bears; what the operator sets comes last and wins."""
        headers = {"content-type": "application/json", "user-agent": f"toolwire/{__version__}"}
        credential = provider.credential(codec.http)
        if credential is not None:
            headers[credential[0]] = credential[1]
        headers.update({name.lower(): value for name, value in provider.headers.items()})
        return headers


def _protocols_needing_stamps(config: Config) -> frozenset[str]:
    """The protocols whose seals more than one account makes."""
    speakers = Counter(
        protocol
        for provider in config.providers.values()
        if not provider.embedded and not provider.is_key_missing
        for protocol in provider.protocols
    )
    return frozenset(name for name, count in speakers.items() if count > 1 and CODECS[name].constraints.seal_slots)
