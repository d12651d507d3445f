"""Paths that are only forwarded, at clouds: where Azure has them, and a clear answer where a cloud has none."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gateway.conftest import serve_config
from gateway.fake_clouds import Answer, Seen, serve_cloud
from gateway.raw_exchange import RawAnswer, ask

SECRET = "a-secret-of-the-cloud-1"
PLACES = {
    "azure": "",
    "azure-version": 'kind = "azure"\napi_version = "2025-04-01-preview"\n',
    "bedrock": 'region = "eu-west-1"\n',
    "vertex": 'region = "global"\nproject = "our-project"\n',
}
GOOGLE = "/v1beta1/projects/our-project/locations/global/publishers/google/models"
FORWARDED = [
    ("azure", "POST", "/v1/embeddings", "/openai/v1/embeddings"),
    ("azure-version", "POST", "/v1/embeddings", "/openai/deployments/m/embeddings?api-version=2025-04-01-preview"),
    (
        "azure-version",
        "POST",
        "/v1/images/generations",
        "/openai/deployments/m/images/generations?api-version=2025-04-01-preview",
    ),
    ("azure-version", "GET", "/v1/files", "/openai/files?api-version=2025-04-01-preview"),
    ("vertex", "POST", "/v1beta/models/vertex/m:embedContent", f"{GOOGLE}/m:embedContent"),
]
MISSING = [
    ("bedrock", "/v1/embeddings", "/v1/chat/completions"),
    ("bedrock", "/v1/images/generations", "/v1/chat/completions"),
    ("bedrock", "/v1/messages/batches", "no endpoint"),
    ("azure", "/v1/messages/batches", "no endpoint"),
    ("vertex", "/v1beta/files", "no endpoint"),
]


def exchange(folder: Path, name: str, method: str, path: str) -> tuple[RawAnswer, list[Seen]]:
    file = folder / "toolwire.toml"
    asked = {} if "/models/" in path else {"model": f"{name}/m", "input": "hi"}
    body = json.dumps(asked).encode() if method == "POST" else b""
    with serve_cloud(lambda seen: Answer(200, {"ok": True})) as server:
        keyed = f'[providers.{name}]\nbase_url = "{server.url}"\napi_key = "{SECRET}"\n{PLACES[name]}'
        file.write_text(f"[server]\nloopback = false\n{keyed}")
        with serve_config(file) as url:
            return ask(int(url.rpartition(":")[2]), method, path, body), server.seen


@pytest.mark.parametrize(("name", "method", "path", "sent"), FORWARDED)
def test_a_path_of_a_cloud(tmp_path: Path, name: str, method: str, path: str, sent: str) -> None:
    answer, [seen] = exchange(tmp_path, name, method, path)
    assert answer.status == 200, answer.data
    assert seen.path == sent


@pytest.mark.parametrize(("name", "path", "told"), MISSING)
def test_what_a_cloud_does_not_have_is_not_sent(tmp_path: Path, name: str, path: str, told: str) -> None:
    answer, seen = exchange(tmp_path, name, "POST", path)
    assert answer.status == 404
    assert told in answer.data.decode()
    assert seen == []
