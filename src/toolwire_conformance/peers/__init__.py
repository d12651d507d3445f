"""The provider and the client of each protocol, by the protocol's name."""

from __future__ import annotations

from toolwire_conformance import Json
from toolwire_conformance.peers.anthropic import AnthropicPeer
from toolwire_conformance.peers.bedrock_converse import ConversePeer
from toolwire_conformance.peers.gemini import GeminiPeer
from toolwire_conformance.peers.openai_chat import ChatPeer
from toolwire_conformance.peers.openai_responses import ResponsesPeer
from toolwire_conformance.peers.peer import Peer

PEERS: dict[str, Peer] = {
    peer.name: peer for peer in (ChatPeer(), ResponsesPeer(), AnthropicPeer(), GeminiPeer(), ConversePeer())
}


def find_violations(protocol: str, body: Json, model: str = "") -> list[str]:
    """What the real provider would refuse with status 400; empty if it would accept the request.

    `model` is for bodies that do not contain it (Gemini). Nothing is known about a protocol without a peer.
    """
    if not isinstance(body, dict):
        return ["the body is not a JSON object"]
    peer = PEERS.get(protocol.replace("_", "-"))
    if peer is None:
        return []
    request, model = peer.normalise_body(body), model or str(body.get("model") or "")
    return list(dict.fromkeys(violation for check in peer.checks for violation in check(request, model)))
