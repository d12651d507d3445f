"""How a provider and a strict client of each protocol behave, and a tool conversation in it, by the protocol's name."""

from __future__ import annotations

from toolwire.conformance.peers import anthropic, gemini, openai_chat, openai_responses
from toolwire.conformance.peers.peer import ModelAnswer, ProtocolPeer, ScenarioTool, ToolScenario

__all__ = ["PEERS", "TOOL_SCENARIOS", "ModelAnswer", "ProtocolPeer", "ScenarioTool", "ToolScenario"]

PEERS: dict[str, ProtocolPeer] = {
    module.PEER.name: module.PEER for module in (openai_chat, openai_responses, anthropic, gemini)
}


TOOL_SCENARIOS: dict[str, ToolScenario] = {
    "openai-chat": openai_chat.TOOL_SCENARIO,
    "openai-responses": openai_responses.TOOL_SCENARIO,
    "anthropic": anthropic.TOOL_SCENARIO,
    "gemini": gemini.TOOL_SCENARIO,
}
