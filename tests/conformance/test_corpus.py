"""Recorded traffic through every pair: the provider would take each request, the client stumbles over no stream."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from itertools import permutations
from typing import Any

import pytest

from material import CORPUS, needs_corpus
from toolwire import Malformed, Stream, translate
from toolwire_conformance.peers import PEERS, find_violations
from toolwire_conformance.peers.peer import encode_json, read_frames

PAIRS = list(permutations(PEERS, 2))
MODELS = {
    "bedrock-converse": PEERS["bedrock-converse"].model,
    "openai-chat": "gpt-4.1",
    "openai-responses": "gpt-5.5",
    "anthropic": "claude-opus-5-5",
    "gemini": "gemini-3.8-flash",
}
NOT_OURS = {
    "at least one message": "the prompt is stored at the provider",
    "contents is not specified": "the prompt is stored at the provider",
    "'additionalProperties' is required": "the client's own schema says strict and is not",
}

pytestmark = needs_corpus


@cache
def load_recordings(protocol: str) -> list[tuple[str, dict[str, Any]]]:
    folder = CORPUS / protocol.replace("-", "_")
    return [(file.stem, json.loads(file.read_text("utf-8"))) for file in sorted(folder.glob("*.json"))]


def translate_requests(source: str, target: str) -> Iterator[tuple[str, bytes]]:
    for name, exchange in load_recordings(source):
        if exchange.get("request") and exchange.get("status") == 200:
            body = encode_json(exchange["request"])
            yield name, translate(body, "request", source=source, target=target, model=MODELS[target]).body


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_requests_are_accepted(source: str, target: str) -> None:
    violations = {}
    for name, body in translate_requests(source, target):
        lines = find_violations(target, json.loads(body), MODELS[target])
        if lines := [line for line in lines if not any(piece in line for piece in NOT_OURS)]:
            violations[name] = lines
    assert violations == {}


def client_request(exchange: dict[str, Any], source: str, target: str) -> bytes | None:
    """The request as a client of the target protocol would have sent it."""
    if not exchange.get("request"):
        return None
    try:
        model = exchange.get("model") or "model"
        return translate(encode_json(exchange["request"]), "request", source=source, target=target, model=model).body
    except Malformed:
        return None


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_streams_are_readable(source: str, target: str) -> None:
    violations = {}
    for name, exchange in load_recordings(source):
        if not exchange.get("sse") or exchange.get("status", 200) != 200:
            continue
        model = exchange.get("model") or "model"
        request = client_request(exchange, source, target)
        stream = Stream(source=source, target=target, request=request, model=model, stream=True)
        text = PEERS[target].http.framing.make_decoder().decode(stream.feed(exchange["sse"].encode()) + stream.close())
        if lines := PEERS[target].fold_stream(read_frames(text)).violations:
            violations[name] = lines
    assert violations == {}
