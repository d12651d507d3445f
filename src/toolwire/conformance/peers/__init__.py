"""The provider and the client of each protocol, by the protocol's name."""

from __future__ import annotations

from toolwire.conformance.peers.anthropic import AnthropicPeer
from toolwire.conformance.peers.gemini import GeminiPeer
from toolwire.conformance.peers.openai_chat import ChatPeer
from toolwire.conformance.peers.openai_responses import ResponsesPeer
from toolwire.conformance.peers.peer import Peer

PEERS: dict[str, Peer] = {peer.name: peer for peer in (ChatPeer(), ResponsesPeer(), AnthropicPeer(), GeminiPeer())}
