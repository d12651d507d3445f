"""The provider and the client of each protocol, by the protocol's name."""

from __future__ import annotations

from toolwire.conformance.peers import anthropic, gemini, openai_chat, openai_responses
from toolwire.conformance.peers.peer import Peer

PEERS: dict[str, Peer] = {
    module.PEER.name: module.PEER for module in (openai_chat, openai_responses, anthropic, gemini)
}
