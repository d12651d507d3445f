"""The MCP servers of a process: their connections outlive a configuration."""

from __future__ import annotations

from toolwire.gateway.exchange.feature import Feature, Process
from toolwire.gateway.exchange.gateway_request import Runtime
from toolwire.gateway.features.mcp.servers import McpServers
from toolwire.gateway.features.mcp.stage import McpStage


class McpFeature(Feature):
    def __init__(self, process: Process) -> None:
        self._telemetry = process.telemetry
        self._servers = McpServers(self._on_state_changed)

    def configure(self, runtime: Runtime) -> McpStage | None:
        """None if no server is configured."""
        self._servers.apply_config(runtime.config)
        return McpStage(self._servers) if self._servers else None

    def _on_state_changed(self, server: str, state: str, what: str) -> None:
        level = "warn" if what else "info"
        self._telemetry.log_event("mcp_server", level=level, server=server, state=state, message=what)

    async def close(self) -> None:
        await self._servers.close()
