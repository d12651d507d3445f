"""Adds the tools of MCP servers to requests."""

from __future__ import annotations

from msgspec.structs import replace

from toolwire.gateway.exchange.gateway_request import AttemptFailed, GatewayRequest
from toolwire.gateway.exchange.stages import ExtendedRequest, RequestRunner, Stage
from toolwire.gateway.features.mcp.servers import McpClient, McpServers
from toolwire.gateway.settings.router import Target
from toolwire.gateway.telemetry.agents import recognise_agent


class McpStage(Stage):
    def __init__(self, servers: McpServers) -> None:
        self._servers = servers

    async def extend(
        self, request: GatewayRequest, targets: tuple[Target, ...], runner: RequestRunner
    ) -> ExtendedRequest:
        return await self.extend_count(request, targets)

    async def extend_count(
        self, request: GatewayRequest, targets: tuple[Target, ...]
    ) -> GatewayRequest | AttemptFailed:
        key = request.caller.key
        agents = recognise_agent(request.headers.get("user-agent", ""))
        models, protocol = (request.model, targets[0].model), request.client_codec.name
        client = McpClient(models, protocol, agents=agents)
        if key is not None:
            client = McpClient(models, protocol, key.name, agents, key.team, key.may_use_mcp_server)
        await self._servers.start_servers(client)
        has_provider_tools = request.body.may_have(request.client_codec.http.provider_tool_markers)
        wanted = request.runtime.config.translate.substitutes if has_provider_tools else {}
        substitutes = await self._servers.find_substitutes(wanted, client)
        return replace(request, gateway_tools=self._servers.make_interceptor(client, substitutes))
