"""`Runtime`: what one configuration gives to every request, computed once: routes, upstreams, policy, headers,
health."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

from msgspec import Struct
from msgspec.structs import replace

from toolwire.core import ids
from toolwire.core.codec import Codec
from toolwire.gateway.config.config import Config, Provider
from toolwire.gateway.pipeline.headers import HeaderTable, fixed_headers
from toolwire.gateway.pipeline.route import Router, Target, choose_codecs
from toolwire.gateway.server.access import AccessControl
from toolwire.gateway.telemetry.telemetry import Telemetry
from toolwire.gateway.upstream.client import Address, UpstreamClient
from toolwire.policy.rules import Policy
from toolwire.protocols import CODECS
from toolwire.translation.options import Options

_MAX_CACHED = 2048


class Upstream(Struct, frozen=True, eq=False):
    """One provider, for one model, in one protocol: its address, credentials and options."""

    provider: Provider
    codec: Codec
    model: str
    stream: bool
    max_output_tokens: int | None
    allows_passthrough: bool
    """May a request of its protocol pass through? Not with quirks, or an output limit to fill in."""
    address: Address | None
    """None for the embedded model."""
    address_label: str
    """Host and port, for the log."""
    path: str
    headers: Mapping[str, str]
    seal_maker: str
    needs_seal_stamps: bool
    """Several accounts make seals of this protocol, so that each seal must name its maker."""
    options: Options = Options()
    """The options of its translations that are the same for every request."""
    state_options: Options = Options()
    """The same for requests with a signature store."""
    needs_credential_check: bool = False
    """The key is missing, or comes from the client."""


class Runtime:
    """What requests need of one configuration, and of the process. A new configuration gets a new runtime; requests
    that have started keep theirs."""

    def __init__(
        self, config: Config, client: UpstreamClient, health: ProviderHealth, telemetry: Telemetry, gateway_id: str
    ) -> None:
        self.config = config
        self.client = client
        self.health = health
        self.telemetry = telemetry
        self.gateway_id = gateway_id
        self.cancels_on_disconnect = config.server.on_disconnect == "cancel"
        """Is a request cancelled when its client disconnects?"""
        self.router = Router(config)
        self.access = AccessControl(config.server)
        self.policy = Policy(config.policy)
        self.forwarded_headers = {codec.name: HeaderTable(codec.http.forwarded_headers) for codec in CODECS.values()}
        self.returned_headers = {codec.name: HeaderTable(codec.http.returned_headers) for codec in CODECS.values()}
        self._stamped_protocols = _protocols_needing_stamps(config)
        self._upstreams: dict[tuple[Provider, str, Codec, bool, int | None], Upstream] = {}
        self._upstream_pairs: dict[tuple[Codec, Target, bool], tuple[Upstream, Upstream]] = {}
        self._addresses: dict[tuple[Provider, str], Address] = {}

    def choose_upstream(
        self, client_codec: Codec, target: Target, stream: bool, has_tools: Callable[[], bool]
    ) -> Upstream:
        """The upstream for a request. Some providers want another protocol for requests with tools."""
        key = (client_codec, target, stream)
        found = self._upstream_pairs.get(key)
        if found is None:
            if len(self._upstream_pairs) >= _MAX_CACHED:
                self._upstream_pairs.clear()
            with_tools, without = choose_codecs(target, client_codec)
            found = self.upstream_for(target, with_tools, stream), self.upstream_for(target, without, stream)
            self._upstream_pairs[key] = found
        # Mostly it is the same one, and the body need not be searched for tools.
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
        can_pass = CODECS[codec.name] is codec and limit is None
        maker = f"{codec.name}/{provider.name}/{ids.hex_digest(provider.api_key.reveal(), 8)}"
        stamps = codec.name in self._stamped_protocols and not provider.embedded
        translate = self.config.translate
        options = Options(
            model=model,
            stream=stream,
            binary_results=translate.binary_results,
            cache_breakpoints=translate.cache_breakpoints,
            max_output_tokens=limit,
            max_bytes=self.config.server.max_body,
            maker=maker,
            stamp_seals=stamps,
        )
        if provider.embedded:
            address, label, path, headers = None, "", "", {}
        else:
            address = self.provider_address(provider, codec.name)
            label, path = address.label, codec.http.request_path(model, stream)
            headers = fixed_headers(provider, codec)
        return Upstream(
            provider=provider,
            codec=codec,
            model=model,
            stream=stream,
            max_output_tokens=limit,
            allows_passthrough=can_pass,
            address=address,
            address_label=label,
            path=path,
            headers=headers,
            seal_maker=maker,
            needs_seal_stamps=stamps,
            options=options,
            state_options=replace(options, has_memory=True),
            needs_credential_check=provider.is_key_missing or provider.forward_auth,
        )

    def provider_address(self, provider: Provider, protocol: str) -> Address:
        key = (provider, protocol)
        found = self._addresses.get(key)
        if found is None:
            url, proxy = provider.base_urls[protocol], provider.proxies.get(protocol, "")
            found = self._addresses[key] = Address.parse(url, proxy, provider.ca_file)
        return found


def _protocols_needing_stamps(config: Config) -> frozenset[str]:
    """Protocols that more than one account speaks: a seal is valid only for the account that made it."""
    speakers = Counter(
        protocol
        for provider in config.providers.values()
        if not provider.embedded and not provider.is_key_missing
        for protocol in provider.protocols
    )
    return frozenset(name for name, count in speakers.items() if count > 1 and CODECS[name].constraints.seal_slots)


# --- Cooldown of providers that keep failing, and limits that providers have reported ---


MAX_TRACKED_MODELS = 1024
"""Clients choose model names, so their number has to be limited."""


class ProviderHealth:
    """Counts consecutive failures of each provider and model. Callers pass the time in."""

    def __init__(self, on_change: Callable[[str, bool, float], None]) -> None:
        self._failures: dict[tuple[str, str], int] = {}
        self._cooldown_until: dict[tuple[str, str], float] = {}
        self.token_limits: dict[tuple[str, str], int] = {}
        """The most output tokens that a provider accepts for a model, as it said in an error."""
        self._on_change = on_change

    def is_cooling_down(self, provider: str, model: str, now: float) -> bool:
        until = self._cooldown_until.get((provider, model))
        if until is None:
            return False
        if now < until:
            return True
        del self._cooldown_until[provider, model]
        self._on_change(provider, False, 0.0)
        return False

    def record_success(self, provider: str, model: str) -> None:
        if self._failures:
            self._failures.pop((provider, model), None)
        if self._cooldown_until and self._cooldown_until.pop((provider, model), None) is not None:
            self._on_change(provider, False, 0.0)

    def record_token_limit(self, provider: str, model: str, token_limit: int) -> None:
        if len(self.token_limits) >= MAX_TRACKED_MODELS:
            self.token_limits.clear()
        self.token_limits[provider, model] = token_limit

    def record_failure(self, provider: str, model: str, now: float, failure_limit: int, cooldown: float) -> None:
        """Count a failure; the `failure_limit`th in a row starts the cooldown."""
        if len(self._failures) >= MAX_TRACKED_MODELS:
            self._failures.clear()
        failures = self._failures.get((provider, model), 0) + 1
        self._failures[provider, model] = failures
        if failures >= failure_limit and cooldown:
            is_new = (provider, model) not in self._cooldown_until
            self._cooldown_until[provider, model] = now + cooldown
            if is_new:
                self._on_change(provider, True, cooldown)
