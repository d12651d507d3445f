"""The seed's matrix of binary results, configured: a line of text for three providers, the bytes for Gemini."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from gateway.raw_exchange import PROVIDERS, Served, ask, call, path_of, play_script, request_of, stage, whole_answer
from seeds.test_shapes import PICTURE, SUMMARY
from toolwire import translate

BYTES = "iVBORw0KGgo="
MATRIX = """
[providers.google]
protocols = ["gemini"]
base_url = "{plain}"
api_key = "key"
binary_results = "native"

[translate]
binary_results = "summary"
on_loss = "refuse"
"""
CLIENTS = ("anthropic", "openai-responses", "gemini", "unified")
"""Those whose results hold images."""


@pytest.fixture(scope="module", name="served")
def serve_gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with stage(tmp_path_factory.mktemp("matrix"), more=MATRIX) as staged:
        yield staged


def send(served: Served, client: str, target: str, provider: str = "") -> tuple[str, str]:
    """What the provider got, and the header with the losses."""
    scene = served.scene(target, whole_answer(target))
    model = f"{provider}/{scene.name}" if provider else scene.model
    body = translate(PICTURE, "request", source="anthropic", target=client, model=model).json()
    if client != "gemini":
        body["model"] = model
    got = ask(served.port, "POST", path_of(client, model, False), json.dumps(body).encode())
    assert got.status == 200, got.data
    [asked] = scene.asked
    return asked.body.decode(), got.headers.get("x-toolwire-losses", "")


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("target", PROVIDERS)
def test_a_summary_for_every_provider(served: Served, client: str, target: str) -> None:
    sent, losses = send(served, client, target)
    assert SUMMARY in sent
    assert BYTES not in sent
    assert "media-summarised" in losses


@pytest.mark.parametrize("client", CLIENTS)
def test_the_bytes_for_the_provider_that_takes_them(served: Served, client: str) -> None:
    sent, losses = send(served, client, "gemini", "google")
    assert BYTES in sent
    assert SUMMARY in sent
    assert "media-summarised" not in losses


# --- unified ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with stage(tmp_path_factory.mktemp("plain")) as staged:
        yield staged


TOOL = {"name": "f", "description": "Does it.", "parameters": {"type": "object", "properties": {}}}


@pytest.mark.parametrize("is_stream", [False, True])
@pytest.mark.parametrize("target", PROVIDERS)
def test_a_unified_answer_has_the_losses_of_its_request(plain: Served, target: str, is_stream: bool) -> None:
    scene = plain.scene(target, play_script(target, is_stream))
    asked = {"tools": [TOOL], "verbosity": "low", "top_k": 5, "cache_key": "k"}
    got = call(plain, "unified", scene.model, is_stream, **asked)
    last = json.loads(got.data.decode().rpartition("data: ")[2]) if is_stream else json.loads(got.data)
    losses = last["response"]["losses"] if is_stream else last["losses"]
    lost = translate(
        {**request_of("unified", "m", is_stream), **asked}, "request", source="unified", target=target
    ).losses
    expected = [(loss.code, loss.what) for loss in lost if "max_tokens" not in loss.what]
    assert expected, "each protocol lacks one of these settings"
    assert [pair for pair in expected if pair not in [(loss["code"], loss["what"]) for loss in losses]] == []


def test_ids_of_items_are_no_losses_of_an_answer() -> None:
    call = {
        "type": "function_call",
        "id": "fc_1",
        "call_id": "call_1",
        "name": "f",
        "arguments": "{}",
        "status": "completed",
    }
    answer = {"id": "resp_1", "object": "response", "created_at": 1, "status": "completed", "model": "m"}
    body = {**answer, "output": [{"type": "reasoning", "id": "rs_1", "summary": []}, call]}
    for target in ("unified", "openai-chat", "anthropic", "gemini"):
        losses = translate(body, "response", source="openai-responses", target=target).losses
        assert {loss.code for loss in losses} <= {"request-missing", "default-added"}, target
