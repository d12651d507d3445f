"""The seed's matrix of binary results, configured: a line of text for three providers, the bytes for Gemini."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from gateway.raw_exchange import PROVIDERS, Served, ask, path_of, stage, whole_answer
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


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
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
