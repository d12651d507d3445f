"""The phases of a request at which features are called. The pipeline knows these, and no feature.

A feature has a `Stage`, built for one configuration, and overrides the hooks that it needs. `Stages` lists them by
hook, in the order of `features/__init__.py`: a feature that is not configured is not in any list, and a hook that no
feature has is an empty tuple.

    admit ─ extend ─┬─ admit_target ─ plan ─ (prepare) ─ check_written ─ (attempt) ─ after ─┬─ (relay)
                    └───────────────── the next target, or the same again ─────────────────┘

    find_earlier ─ find_account ─ admit_forwarded ─ (send) ─ reads_forwarded ─ after_forwarded

The second row is for requests that are only forwarded.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import ParamSpec, Protocol, TypeAlias, TypeVar

from msgspec import Struct

from toolwire.core.codec import Codec
from toolwire.gateway.exchange.client_body import ClientBody
from toolwire.gateway.exchange.gateway_request import (
    Attempt,
    AttemptAnswer,
    AttemptFailed,
    GatewayRequest,
    PassthroughMatch,
    PreparedRequest,
    StartedStream,
    StreamReplay,
    Upstream,
)
from toolwire.gateway.exchange.hooks import StreamOutput
from toolwire.gateway.http.messages import Reply
from toolwire.gateway.settings.config import Provider
from toolwire.gateway.settings.router import Target
from toolwire.protocols import CODECS

ExtendedRequest: TypeAlias = GatewayRequest | Reply | AttemptFailed | StreamReplay
"""A request that goes on, or its answer already."""


class EarlierRequest(Struct, frozen=True):
    """A request that another one goes on with, such as the start of an upload."""

    id: str
    provider: str
    target: str
    """The path and the query at the provider, where the other one goes."""
    account: str = ""
    """The account that it was sent to, if the provider has several."""


class ForwardedRequest(Struct, frozen=True):
    """A request to an endpoint that is only forwarded."""

    match: PassthroughMatch
    target: Target
    body: ClientBody
    content_type: str
    """As the client has sent it."""
    earlier: EarlierRequest | None


class ForwardedAnswer(Struct, frozen=True):
    """The answer to such a request."""

    upstream: Upstream
    status: int
    headers: Mapping[str, str]
    """Those that the client gets."""
    data: bytes | None
    """The whole body, if it was read first; else None."""


class RequestRunner(Protocol):
    """The pipeline, for features that send requests of their own."""

    def route_request(self, request: GatewayRequest) -> tuple[Target, ...] | AttemptFailed: ...
    async def admit(self, request: GatewayRequest, targets: tuple[Target, ...]) -> GatewayRequest | AttemptFailed: ...
    async def request_answer(self, request: GatewayRequest, targets: tuple[Target, ...]) -> AttemptAnswer: ...
    async def relay_stream(self, request: GatewayRequest, started: StartedStream, output: StreamOutput) -> None: ...
    async def forward_native(self, request: GatewayRequest, target: Target, path: str) -> Reply | None: ...


class Stage:
    """What a feature does for the requests of one configuration."""

    def serves(self, codec: Codec) -> bool:
        """Does it have anything to do with clients of this protocol? Its `extend` is not called for others."""
        return True

    async def admit(self, request: GatewayRequest, targets: tuple[Target, ...]) -> GatewayRequest | AttemptFailed:
        """Before anything is done for a request: refuse it, or reserve what it will use."""
        return request

    async def find_earlier(
        self, request: GatewayRequest, match: PassthroughMatch, query: str
    ) -> EarlierRequest | AttemptFailed | None:
        """A request that is only forwarded: does it go on with an earlier one?"""

    async def find_account(self, gateway_request: GatewayRequest, request: ForwardedRequest) -> Provider | None:
        """The account for a request that is only forwarded, if its provider has several."""

    async def admit_forwarded(self, gateway_request: GatewayRequest, request: ForwardedRequest) -> AttemptFailed | None:
        """`admit` for a request that is only forwarded."""

    def reads_forwarded(self, request: ForwardedRequest) -> bool:
        """Must its answer be read before the client gets it?"""
        return False

    async def after_forwarded(
        self, gateway_request: GatewayRequest, request: ForwardedRequest, answer: ForwardedAnswer
    ) -> ForwardedAnswer | AttemptFailed:
        """Its answer has come: change its headers, and note what it has done."""
        return answer

    async def extend(
        self, request: GatewayRequest, targets: tuple[Target, ...], runner: RequestRunner
    ) -> ExtendedRequest:
        """Add what the request refers to, tools, and what keeps its answer."""
        return request

    async def extend_count(
        self, request: GatewayRequest, targets: tuple[Target, ...]
    ) -> GatewayRequest | AttemptFailed:
        """The same for a request for a token count, without keeping anything."""
        return request

    async def admit_target(self, request: GatewayRequest, target: Target) -> AttemptFailed | None:
        """Before another target is asked."""

    async def plan(self, request: GatewayRequest, attempt: Attempt) -> AttemptFailed | None:
        """Before a request is prepared for an upstream."""

    async def check_written(self, request: GatewayRequest, prepared: PreparedRequest) -> AttemptFailed | None:
        """The request as its provider gets it."""

    def after(self, request: GatewayRequest, target: Target, answer: AttemptAnswer, now: float) -> bool:
        """An attempt has ended. True if the feature has dealt with its failure, so that the provider does not rest for
        it."""
        return False


class Stages:
    """The stages of a configuration, by the hooks that they have; `extend` by the client's protocol."""

    def __init__(self, stages: Sequence[Stage] = ()) -> None:
        self.admit = _list_hooks(stages, lambda one: one.admit)
        self.find_earlier = _list_hooks(stages, lambda one: one.find_earlier)
        self.find_account = _list_hooks(stages, lambda one: one.find_account)
        self.admit_forwarded = _list_hooks(stages, lambda one: one.admit_forwarded)
        self.reads_forwarded = _list_hooks(stages, lambda one: one.reads_forwarded)
        self.after_forwarded = _list_hooks(stages, lambda one: one.after_forwarded)
        serving = {codec.name: [one for one in stages if one.serves(codec)] for codec in CODECS.values()}
        self.extend = {name: _list_hooks(some, lambda one: one.extend) for name, some in serving.items()}
        self.extend_count = _list_hooks(stages, lambda one: one.extend_count)
        self.admit_target = _list_hooks(stages, lambda one: one.admit_target)
        self.plan = _list_hooks(stages, lambda one: one.plan)
        self.check_written = _list_hooks(stages, lambda one: one.check_written)
        self.after = _list_hooks(stages, lambda one: one.after)


Given = ParamSpec("Given")
Found = TypeVar("Found")


async def ask_hooks(
    hooks: Sequence[Callable[Given, Awaitable[Found | None]]], *given: Given.args, **named: Given.kwargs
) -> Found | None:
    """What the first of them gives that gives anything."""
    for hook in hooks:
        found = await hook(*given, **named)
        if found is not None:
            return found
    return None


Hook = TypeVar("Hook")
_UNUSED = Stage()


def _list_hooks(stages: Sequence[Stage], choose: Callable[[Stage], Hook]) -> tuple[Hook, ...]:
    """The hooks that features have overridden."""
    unused = getattr(choose(_UNUSED), "__func__", None)
    found = [choose(stage) for stage in stages]
    return tuple(hook for hook in found if getattr(hook, "__func__", None) is not unused)
