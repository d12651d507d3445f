"""What the gateway can do beside translating: one folder each. Features do not know each other.

`build_stages` is their one list: its order is the order of calls, and what a configuration does not ask for is not in
it."""

from __future__ import annotations

from msgspec import Struct

from toolwire.gateway.exchange.gateway_request import Runtime
from toolwire.gateway.exchange.stages import Stages
from toolwire.gateway.features.accounts import stage as accounts
from toolwire.gateway.features.context_window.stage import ContextWindowStage
from toolwire.gateway.features.limits.limits import Limits
from toolwire.gateway.features.limits.stage import LimitStage
from toolwire.gateway.features.mcp import stage as mcp
from toolwire.gateway.features.mcp.servers import McpServers
from toolwire.gateway.features.provider_objects import stage as provider_objects
from toolwire.gateway.features.provider_objects.provider_objects import ProviderObjects
from toolwire.gateway.features.responses.service import ResponsesService
from toolwire.gateway.features.responses.stage import ResponsesStage
from toolwire.gateway.features.signatures import stage as signatures
from toolwire.gateway.features.signatures.signatures import SignatureRepository


class FeatureParts(Struct, frozen=True):
    """What features keep beyond one configuration, and what they are built from."""

    limits: Limits | None
    """None if there are none."""
    objects: ProviderObjects
    signatures: SignatureRepository
    mcp_servers: McpServers
    responses: ResponsesService


def build_stages(runtime: Runtime, parts: FeatureParts) -> Stages:
    runtime.may_hide_calls = bool(parts.mcp_servers) or bool(runtime.policy) or runtime.config.searches_tools
    runtime.accounts = account_stage = accounts.build_stage(runtime)
    stages = (
        provider_objects.build_stage(runtime, parts.objects),
        LimitStage(parts.limits) if parts.limits is not None else None,
        signatures.build_stage(runtime, parts.signatures),
        mcp.build_stage(parts.mcp_servers),
        ResponsesStage(parts.responses),
        ContextWindowStage(),
        account_stage,
    )
    return Stages([stage for stage in stages if stage is not None])
