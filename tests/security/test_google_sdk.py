"""google-genai, which asks under `/v1`, for what is only forwarded: embeddings, batches and files."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

import pytest
from google import genai
from google.genai import types

from security.recorded_provider import KEY_SETTINGS, KEYS, Guarded, guarded


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Guarded]:
    with guarded(tmp_path, KEY_SETTINGS, f'[store]\nurl = "sqlite:///{tmp_path}/store.db"\n') as made:
        yield made


def client(gate: Guarded, key: str, version: str) -> genai.Client:
    options = types.HttpOptions(base_url=f"http://127.0.0.1:{gate.port}", api_version=version)
    return genai.Client(api_key=KEYS[key], http_options=options)


@pytest.mark.parametrize("version", ["v1", "v1beta"])
def test_embeddings(gate: Guarded, version: str) -> None:
    path = f"/{version}/models/embed-small:batchEmbedContents"
    gate.provider.replies[path] = (200, {"embeddings": [{"values": [0.5]}]})
    narrow = client(gate, "narrow", version)
    found = narrow.models.embed_content(model="gemini/embed-small", contents=["a"])
    assert found.embeddings is not None
    assert found.embeddings[0].values == [0.5]
    asked = gate.take_arrived()[0]
    assert asked.path == path
    assert b"gemini/embed" not in asked.body
    with pytest.raises(genai.errors.ClientError) as raised:
        narrow.models.embed_content(model="gemini/embed-large", contents=["a"])
    assert raised.value.code == 403
    assert gate.take_arrived() == []


def make_uploadable(gate: Guarded, version: str) -> str:
    upload = f"/upload/{version}/files"
    gate.provider.replies[upload] = (200, {"file": {"name": "files/mine", "uri": "https://g/files/mine"}})
    gate.provider.headers[upload] = {
        "x-goog-upload-url": f"https://google.example{upload}?upload_id=u1&upload_protocol=resumable",
        "x-goog-upload-status": "final",
    }
    return upload


@pytest.mark.parametrize("version", ["v1", "v1beta"])
def test_a_file_is_uploaded_through_the_gateway(tmp_path: Path, version: str) -> None:
    with guarded(tmp_path) as made:
        upload = make_uploadable(made, version)
        google = client(made, "ann", version)
        file = google.files.upload(file=io.BytesIO(b"hello"), config={"mime_type": "text/plain"})
        assert file.name == "files/mine"
        first, second = made.take_arrived()
        assert first.headers["x-goog-upload-protocol"] == "resumable"
        assert (second.target, second.body) == (f"{upload}?upload_id=u1&upload_protocol=resumable", b"hello")


def test_with_keys_the_rest_of_an_upload_needs_a_key_too(gate: Guarded) -> None:
    """The SDK sends none with it: the URL alone must not be a right."""
    make_uploadable(gate, "v1")
    google = client(gate, "ann", "v1")
    with pytest.raises(genai.errors.ClientError) as raised:
        google.files.upload(file=io.BytesIO(b"hello"), config={"mime_type": "text/plain"})
    assert raised.value.code == 401
    assert len(gate.take_arrived()) == 1


def test_batches_without_keys(tmp_path: Path) -> None:
    with guarded(tmp_path) as made:
        made.provider.replies["/v1/batches/b1"] = (
            200,
            {"name": "batches/b1", "metadata": {"state": "BATCH_STATE_RUNNING"}},
        )
        options = types.HttpOptions(base_url=f"http://127.0.0.1:{made.port}")
        google = genai.Client(api_key="k", http_options=options)
        found = google.batches.get(name="batches/b1")
        assert found.name == "batches/b1"
        assert [one.target for one in made.take_arrived()] == ["/v1/batches/b1"]
