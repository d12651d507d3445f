"""What the steps of the pipeline work on: `Runtime`, which one configuration gives to every request, and the values
that they hand to each other: the client's request, the prepared request for a provider, and the answer."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import ClassVar, Protocol, TypeAlias, final
from weakref import WeakKeyDictionary

from msgspec import Struct, field
from msgspec.structs import replace

from toolwire.core import ids
from toolwire.core.codec import NO_FACTS, Codec, EndpointMatch, ModelFacts, PassthroughEndpoint
from toolwire.core.envelopes import EnvelopeKeys
from toolwire.core.ir import EMPTY_MAPPING, Failure, Media, Result
from toolwire.core.losses import Ledger
from toolwire.gateway.exchange.caller import Caller
from toolwire.gateway.exchange.client_body import NO_BODY, ClientBody, read_client_body
from toolwire.gateway.exchange.hooks import (
    AnswerRecorder,
    GatewayTools,
    SignatureStore,
)
from toolwire.gateway.exchange.method_cache import cache_method
from toolwire.gateway.exchange.passthrough_stream import PassthroughStream
from toolwire.gateway.exchange.provider_health import ProviderHealth
from toolwire.gateway.http.admission import Admission, Ticket
from toolwire.gateway.http.headers import (
    Headers,
    SharedHeaders,
    fixed_headers,
    provider_headers,
)
from toolwire.gateway.http.messages import HeadKey, Reply, RequestSender, UpstreamResponse
from toolwire.gateway.http.senders import ProviderSenders
from toolwire.gateway.models.facts import FactFinder
from toolwire.gateway.settings.address import Address
from toolwire.gateway.settings.config import ClientKey, Config, ModelRule, Provider
from toolwire.gateway.settings.router import Router, Target, choose_codecs
from toolwire.gateway.telemetry.record import Client, ExchangeRecord, UpstreamNames
from toolwire.gateway.telemetry.running import RunningExchange
from toolwire.gateway.telemetry.telemetry import Telemetry
from toolwire.policy.rules import Policy
from toolwire.protocols import CODECS
from toolwire.tool_formats.families import AUTO, OFF, expected_formats
from toolwire.tool_formats.prompt_table import PROMPTS
from toolwire.translation.exchange import Exchange
from toolwire.translation.options import DEFAULT_DIRECT_TOOLS, Options
from toolwire.translation.request_steps.images import ImageDescription
from toolwire.translation.streaming import StreamTranslation

_MAX_CACHED = 2048


class Upstream(Struct, frozen=True, eq=False):
    """One provider, for one model, in one protocol: its address, credentials and options."""

    provider: Provider
    codec: Codec
    model: str
    stream: bool
    passing_codec: Codec | None
    """That of clients whose requests may pass through. None with an output limit to fill in, and with quirks, unless
    bytes tell which bodies these change (`Codec.rewritten_markers`)."""
    address: Address | None
    """None for the embedded model."""
    sender: RequestSender
    """Sends the requests: the client of the gateway, or one that authorizes them."""
    names: UpstreamNames
    """As it is recorded, with the host and port for errors and the log."""
    path: str
    headers: Mapping[str, str]
    reply_headers: SharedHeaders
    """The headers of every reply to a client that is about it."""
    options: Options
    """The options of its translations that are the same for every request."""
    state_options: Options
    """The same for requests with a signature store."""
    needs_credential_check: bool
    """The key is missing, or comes from the client."""
    hidden_keys: tuple[str, ...]
    """Its own keys, which are removed from what it sends. Those of a provider with credentials of a cloud change, and
    its sender removes them."""
    max_tools: int | None
    """How many tools the model takes; None for any number."""
    judged_members: frozenset[str]
    """See `Constraints.judged_members`."""
    may_pass_unread: bool
    """May the client's bytes be sent without reading them, as far as the configuration says? Not if seals are stamped,
    tools go into the prompt, or all answers are searched for calls."""
    reads_tools: bool
    """Must a request with tools be read: they are searched by the gateway, or its answer for calls?"""
    repairs_only_calls: bool
    """Are answers repaired only if the request offers tools? So it is unless the operator has chosen a format."""
    prompt_if_refused: str
    """If the provider refuses tools: how they are written into the prompt, as `Options.tool_prompt`; "" for not."""
    image_model: str
    """The model that describes images to this one; "" where images are sent."""
    set_facts: ModelFacts
    """What the operator has set of the model's facts."""
    known_output_limit: int | None
    """The most output tokens of the model, as far as anything but the provider's list knows them."""


class Services(Struct, frozen=True, kw_only=True):
    """What requests use of the process, under every configuration."""

    gateway_id: str
    client: RequestSender
    health: ProviderHealth
    telemetry: Telemetry
    admission: Admission
    find_listed_facts: Callable[[str, str], ModelFacts] = lambda provider, model: NO_FACTS
    """What the list of a provider says about a model, if the list is there."""
    refuse_running: Callable[[ClientKey, float], Failure | None] = lambda key, now: None
    """Why a request that began with this key may not go on, by the newest configuration; None if it may."""


class Runtime:
    """What requests need of one configuration, and of the process. A new configuration gets a new runtime; requests
    that have started keep theirs."""

    def __init__(
        self,
        config: Config,
        services: Services,
        accounts: AccountChooser | None = None,
        may_hide_calls: bool = False,
        own_senders: Mapping[Provider, RequestSender] | None = None,
    ) -> None:
        """`accounts` chooses among the accounts of a provider; None if no provider has several. `may_hide_calls`: may
        answers have tool calls that their client does not see? `own_senders` are those of providers whose requests
        are authorized as they are sent."""
        self.config, self.accounts, self.may_hide_calls = config, accounts, may_hide_calls
        self.gateway_id, self.admission = services.gateway_id, services.admission
        self.health, self.telemetry = services.health, services.telemetry
        self.senders = ProviderSenders(services.client, own_senders or {})
        self.find_listed_facts, self.refuse_running = services.find_listed_facts, services.refuse_running
        self.image_describer: ImageDescriber | None = None
        """Describes images for models that cannot see; None where they are sent as they are. It asks the pipeline,
        so it is added last."""
        self.cancels_on_disconnect = config.server.on_disconnect == "cancel"
        self.router = Router(config)
        self._facts = FactFinder(self.router)
        self.policy = Policy(config.policy)
        speakers = Counter(
            protocol
            for provider in config.providers.values()
            for account in provider.each_account
            if not provider.embedded and not account.is_key_missing
            for protocol in provider.protocols
        )
        self._stamped_protocols = frozenset(
            name for name, count in speakers.items() if count > 1 and CODECS[name].constraints.seal_slots
        )
        """Protocols that more than one account speaks: a seal is valid only for its maker, so it must name it."""
        self.set_envelope_keys(None)
        self.upstream_for = cache_method(self._build_upstream, _MAX_CACHED)
        self._upstream_pair = cache_method(self._build_upstream_pair, _MAX_CACHED)
        self.resolved_heads: WeakKeyDictionary[HeadKey, ResolvedHead] = WeakKeyDictionary()
        """What the heads of open connections say. It is here, because an idle connection may outlive a configuration,
        and must not keep it alive."""

    def set_envelope_keys(self, keys: EnvelopeKeys | None) -> None:
        """Those that sign what clients carry. A key in a store that several gateways share is loaded later."""
        self._envelope_keys = keys
        self._envelope_keys_by_owner = {"": keys}

    def envelope_keys_of(self, key: ClientKey | None) -> EnvelopeKeys | None:
        owner = key.name if key is not None else ""
        if owner not in self._envelope_keys_by_owner and self._envelope_keys is not None:
            self._envelope_keys_by_owner[owner] = replace(self._envelope_keys, owner=owner)
        return self._envelope_keys_by_owner.get(owner)

    def find_output_limit(self, upstream: Upstream) -> int | None:
        if upstream.set_facts.max_output_tokens is not None:
            return upstream.set_facts.max_output_tokens
        listed = self.find_listed_facts(upstream.provider.name, upstream.model)
        return listed.max_output_tokens or upstream.known_output_limit

    def choose_upstream(
        self, client_codec: Codec, target: Target, stream: bool, has_tools: Callable[[], bool]
    ) -> Upstream:
        """The upstream for a request. Some providers want another protocol for requests with tools."""
        with_tools, without = self._upstream_pair(client_codec, target, stream)
        # Mostly it is the same one, and the body need not be searched for tools.
        return with_tools if with_tools is without or has_tools() else without

    def _build_upstream_pair(self, client_codec: Codec, target: Target, stream: bool) -> tuple[Upstream, Upstream]:
        target = self.health.add_shown_quirks(target)
        with_tools, without = choose_codecs(target, client_codec)
        return self.upstream_for(target, with_tools, stream), self.upstream_for(target, without, stream)

    def record_shown_quirks(self, target: Target) -> None:
        """What a provider has refused is known to the requests that follow."""
        self.health.shown_quirks[target.provider.name, target.model] = target.shown_quirks
        self._upstream_pair = cache_method(self._build_upstream_pair, _MAX_CACHED)

    def _build_options(self, target: Target, codec: Codec, stream: bool) -> Options:
        provider, calls = target.provider, target.merged_calls
        tool_format = calls.tool_format or provider.default_tool_format
        tool_format = tool_format or (AUTO if expected_formats(target.model) else OFF)
        return Options(
            model=target.model,
            stream=stream,
            binary_results=calls.binary_results or self.config.translate.binary_results,
            cache_breakpoints=self.config.translate.cache_breakpoints,
            max_output_tokens=target.max_output_tokens,
            max_bytes=self.config.server.max_body,
            maker=f"{codec.name}/{provider.name}/{ids.hex_digest(provider.api_key.reveal(), 8)}",
            stamp_seals=codec.name in self._stamped_protocols and not provider.embedded,
            tool_search=calls.tool_search or "off",
            direct_tools=DEFAULT_DIRECT_TOOLS if calls.direct_tools is None else calls.direct_tools,
            tool_format=tool_format,
            repair_calls=tool_format != OFF if calls.repair_calls is None else calls.repair_calls,
            on_bad_call=calls.on_bad_call or "keep",
            tool_prompt=_choose_tool_prompt(tool_format) if calls.tools == "prompted" else "",
        )

    def _build_upstream(self, target: Target, codec: Codec, stream: bool) -> Upstream:
        provider, model, calls = target.provider, target.model, target.merged_calls
        name = target.calls.name if isinstance(target.calls, ModelRule) else model
        options = self._build_options(target, codec, stream)
        has_chosen_format = calls.tool_format is not None
        if provider.embedded:
            address, label, path, headers = None, "", "", {}
        else:
            proxy = provider.proxies.get(codec.name, "")
            address = Address.parse(provider.base_urls[codec.name], proxy, provider.ca_file)
            label, path = address.label, codec.http.request_path(model, stream)
            headers = fixed_headers(provider, codec)
        can_pass = codec.rewritten_markers is not None and target.max_output_tokens is None
        return Upstream(
            provider=provider,
            codec=codec,
            model=model,
            stream=stream,
            passing_codec=CODECS[codec.name] if can_pass else None,
            address=address,
            sender=self.senders.find(provider, codec),
            names=UpstreamNames(provider.name, provider.account, codec.name, model, label),
            path=path,
            headers=headers,
            reply_headers=provider_headers(provider),
            options=options,
            state_options=replace(options, has_memory=True, expect_hidden_calls=self.may_hide_calls),
            needs_credential_check=provider.is_key_missing or provider.forward_auth,
            hidden_keys=() if provider.access.method else provider.secrets,
            max_tools=codec.constraints.max_tools(model),
            judged_members=codec.constraints.judged_members(model),
            may_pass_unread=not options.stamp_seals
            and not options.tool_prompt
            and not (options.repairs_answers and has_chosen_format),
            reads_tools=options.tool_search != "off" or options.repairs_answers,
            repairs_only_calls=not has_chosen_format,
            prompt_if_refused=_choose_tool_prompt(options.tool_format) if calls.tools in (None, "auto") else "",
            image_model="" if calls.describe_images == "off" else calls.describe_images or "",
            set_facts=self._facts.find_set_facts(name, target),
            known_output_limit=self._facts.find_target_facts(name, target, NO_FACTS).max_output_tokens,
        )


def _choose_tool_prompt(tool_format: str) -> str:
    return tool_format if tool_format in PROMPTS else AUTO


# --- the values that the steps hand to each other ---


UpstreamHeaders: TypeAlias = dict[Upstream, tuple[Headers, Headers]]


class PassthroughMatch(Struct, frozen=True):
    """An endpoint that is only forwarded, as a path names it."""

    endpoint: PassthroughEndpoint
    path: str
    ids: tuple[str, ...] = ()
    model_span: tuple[int, int] = (0, 0)

    @property
    def model(self) -> str:
        start, end = self.model_span
        return self.path[start:end]


class Alias(Struct, frozen=True):
    """What the path of a request to a cloud stands for."""

    path: str
    """The protocol's own path."""
    query: str
    deployment: str
    """The model that the cloud's path names; "" if it names none."""


class ResolvedHead(Struct, frozen=True, eq=False):
    """What the head of a request says under one configuration. Equal heads on one connection share it."""

    codec: Codec
    endpoint: EndpointMatch | None
    """None for a path that is not an endpoint of a protocol."""
    alias: Alias | None
    """Set for a cloud's path."""
    passthrough: PassthroughMatch | None
    """Set for a path that is only forwarded."""
    caller: Caller | Failure
    valid_until: float
    """Unix time from which on the client's key must be checked again."""
    client: Client
    """As it is recorded."""
    request_id: str
    """The client's own id of the request, if it sent a usable one."""
    upstream_headers: UpstreamHeaders
    """The headers that upstreams got for it: those that depend on the body, and all."""
    named_session: str
    """The session that a header names; "" if none does."""


@final
class GatewayRequest(Struct, frozen=True, eq=False):
    """A client's HTTP request, as all steps of the pipeline see it. Variables of this type are called `call`, because
    `request` is the request in the internal form or on the connection. What is true of one try only is in `Attempt`."""

    runtime: Runtime
    client_codec: Codec
    caller: Caller
    running: RunningExchange
    record: ExchangeRecord
    headers: Mapping[str, str]
    """The client's headers, in lower case."""
    clock: Callable[[], float]
    upstream_headers: UpstreamHeaders
    now: float
    """Unix time of the start."""
    ticket: Ticket | None = None
    """Its share of the memory budget."""
    named_session: str = ""
    body: ClientBody = field(default_factory=lambda: NO_BODY)
    model: str = ""
    stream: bool = False
    framing: str = ""
    id_seed: str = ""
    """The seed for ids in its answer; "" for its request id."""
    recorder: AnswerRecorder | None = None
    signature_store: SignatureStore | None = None
    gateway_tools: GatewayTools | None = None
    watch_objects: Callable[[Upstream, UpstreamResponse], UpstreamResponse] | None = None
    """Notes the objects that its answer creates at the provider."""
    pinned_accounts: Mapping[str, str] = EMPTY_MAPPING
    """By provider: the account that has the objects which the request uses."""

    def with_body(self, data: bytes) -> GatewayRequest | Failure:
        """The same request with another body; a failure if it cannot be read."""
        body = read_client_body(self.client_codec, data)
        if isinstance(body, Failure):
            return body
        self.record.asked.model = body.peek.model
        return replace(self, body=body, model=body.peek.model, stream=bool(body.peek.stream))

    def choose_account(self, target: Target) -> Target:
        """The target with the account for a request that is sent only once."""
        accounts = self.runtime.accounts
        if accounts is None:
            return target
        chosen = accounts.choose_account(target.provider, self.record.asked.session, target.model, self.clock())
        return target if chosen is target.provider else replace(target, provider=chosen)

    def refuse_ended_key(self) -> Failure | None:
        """Why nothing more may be sent for this request: its key was disabled, removed or has expired since it began.
        None if it may."""
        key = self.caller.key
        return self.runtime.refuse_running(key, time.time()) if key is not None else None


class AccountChooser(Protocol):
    """Chooses one of several accounts of a provider."""

    def choose_account(self, provider: Provider, session: str, model: str, now: float) -> Provider:
        """The account for a request that is sent only once; the provider itself if it has no others."""

    def choose_targets(self, request: GatewayRequest, targets: tuple[Target, ...], now: float) -> tuple[Target, ...]:
        """The targets to be asked, in their order, with the accounts of their providers."""

    def find_home(self, provider: Provider, session: str) -> Provider:
        """The account that a session belongs to, whether it rests or not."""

    def note_rate_limits(self, request: GatewayRequest, upstream: Upstream, headers: Mapping[str, str]) -> None:
        """Keep what an account's provider says of its limits."""


class ImageDescriber(Protocol):
    """Describes images for models that cannot see."""

    async def describe_images(
        self, request: GatewayRequest, model: str, images: Sequence[Media]
    ) -> Mapping[str, ImageDescription]: ...

    async def describe_results(
        self, request: GatewayRequest, model: str, results: tuple[Result, ...]
    ) -> tuple[Result, ...]: ...


class Attempt(Struct, eq=False):
    """One try to get an answer from one upstream. It is made for each, and thrown away."""

    upstream: Upstream
    max_seconds: float = math.inf
    """How long it may wait for the first byte, because another provider can be asked."""
    output_limit: int | None = None
    """The most output tokens that the model can give, where its provider has said so."""
    prompts_tools: bool = False
    """Write the tools into the prompt: the provider has refused them."""
    strips_seals: bool = False
    """Leave the seals out: the provider has refused one."""
    drops_usage: bool = False
    """The gateway has asked for token counts in the stream, and the client has not: it does not get them."""


@final
class AttemptFailed(Struct, frozen=True):
    """An attempt without an answer: why, what the client gets if it is the last one, and whether to go on."""

    failure: Failure
    reply: Reply
    can_retry: bool = False
    """The same provider may answer in a moment."""
    can_fall_back: bool = False
    prompted_tools: bool = False
    """Were the tools in the prompt already?"""
    was_asked: bool = True
    """Was the provider asked, also for the last round of its answer? If not, it is not its fault."""


AnswerStream: TypeAlias = StreamTranslation | PassthroughStream


@final
class TranslatedRequest(Struct, eq=False):
    """A request as a provider gets it, with the translation that its response needs."""

    attempt: Attempt
    upstream: Upstream
    body: bytes
    exchange: Exchange
    ledger: Ledger | None
    loss_codes: tuple[str, ...]
    is_passthrough: ClassVar[bool] = False
    """The client's own bytes, and the response passes through, too."""


@final
class PassthroughRequest(Struct, eq=False):
    attempt: Attempt
    upstream: Upstream
    body: bytes
    request: GatewayRequest
    make_exchange: Callable[[GatewayRequest, Attempt], Exchange]
    cached_exchange: Exchange | None = None
    is_passthrough: ClassVar[bool] = True
    ledger: ClassVar[Ledger | None] = None
    loss_codes: ClassVar[tuple[str, ...]] = ()

    @property
    def exchange(self) -> Exchange:
        """Needed only for errors, and for a response that is a stream where none was asked for, or the other way."""
        if self.cached_exchange is None:
            self.cached_exchange = self.make_exchange(self.request, self.attempt)
        return self.cached_exchange


PreparedRequest: TypeAlias = TranslatedRequest | PassthroughRequest


class StartedStream(Struct, eq=False):
    """A stream that has begun: the output so far, and the response that the rest comes from."""

    request: PreparedRequest
    response: UpstreamResponse
    stream: AnswerStream
    headers: Mapping[str, str]
    pending_output: list[bytes] = []
    response_ended: bool = False
    silent_size: int = 0
    """Bytes of the provider since something last came of them: the start of a long event, or text that waits."""


AttemptAnswer: TypeAlias = Reply | StartedStream | AttemptFailed


class StreamReplay(Struct, frozen=True):
    """The stream of a response that is stored, or made in the background."""

    frames: AsyncIterator[bytes]


class StreamInterrupted(Exception):
    """A replayed stream cannot go on now. Its reader must see that it is incomplete, and may come back."""
