"""`Runtime`: what one configuration gives to every request, computed once: routes, upstreams, policy, headers,
health."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from functools import lru_cache

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
        speakers = Counter(
            protocol
            for provider in config.providers.values()
            if not provider.embedded and not provider.is_key_missing
            for protocol in provider.protocols
        )
        self._stamped_protocols = frozenset(
            name for name, count in speakers.items() if count > 1 and CODECS[name].constraints.seal_slots
        )
        """Protocols that more than one account speaks: a seal is valid only for the account that made it."""
        self.upstream_for = lru_cache(_MAX_CACHED)(self._build_upstream)
        self._upstream_pair = lru_cache(_MAX_CACHED)(self._build_upstream_pair)

    def choose_upstream(
        self, client_codec: Codec, target: Target, stream: bool, has_tools: Callable[[], bool]
    ) -> Upstream:
        """The upstream for a request. Some providers want another protocol for requests with tools."""
        with_tools, without = self._upstream_pair(client_codec, target, stream)
        # Mostly it is the same one, and the body need not be searched for tools.
        return with_tools if with_tools is without or has_tools() else without

    def _build_upstream_pair(self, client_codec: Codec, target: Target, stream: bool) -> tuple[Upstream, Upstream]:
        with_tools, without = choose_codecs(target, client_codec)
        return self.upstream_for(target, with_tools, stream), self.upstream_for(target, without, stream)

    def _build_upstream(self, target: Target, codec: Codec, stream: bool) -> Upstream:
        provider, model = target.provider, target.model
        limit = target.max_output_tokens
        maker = f"{codec.name}/{provider.name}/{ids.hex_digest(provider.api_key.reveal(), 8)}"
        stamps = codec.name in self._stamped_protocols and not provider.embedded
        options = Options(
            model=model,
            stream=stream,
            binary_results=self.config.translate.binary_results,
            cache_breakpoints=self.config.translate.cache_breakpoints,
            max_output_tokens=limit,
            max_bytes=self.config.server.max_body,
            maker=maker,
            stamp_seals=stamps,
        )
        if provider.embedded:
            address, label, path, headers = None, "", "", {}
        else:
            proxy = provider.proxies.get(codec.name, "")
            address = Address.parse(provider.base_urls[codec.name], proxy, provider.ca_file)
            label, path = address.label, codec.http.request_path(model, stream)
            headers = fixed_headers(provider, codec)
        return Upstream(
            provider=provider,
            codec=codec,
            model=model,
            stream=stream,
            max_output_tokens=limit,
            allows_passthrough=CODECS[codec.name] is codec and limit is None,
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


MAX_TRACKED_MODELS = 1024
"""Clients choose model names, so their number has to be limited."""


class ProviderHealth:
    """Cooldown of providers that keep failing, counted for each model, and limits that they have reported. Callers pass
    the time in."""

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
