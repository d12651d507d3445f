"""google-genai, which asks under `/v1`, for what is only forwarded: embeddings, batches and files."""

from __future__ import annotations

import asyncio
import http.client
import io
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from google import genai
from google.genai import types

from gateway.raw_exchange import PROVIDER_KEY
from security.recorded_provider import KEY_SETTINGS, KEYS, Guarded, send_raw, serve_guarded
from waits import PATIENCE


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Guarded]:
    with serve_guarded(tmp_path, KEY_SETTINGS, f'[store]\nurl = "sqlite:///{tmp_path}/store.db"\n') as made:
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
    with serve_guarded(tmp_path) as made:
        upload = make_uploadable(made, version)
        google = client(made, "ann", version)
        file = google.files.upload(file=io.BytesIO(b"hello"), config={"mime_type": "text/plain"})
        assert file.name == "files/mine"
        first, second = made.take_arrived()
        assert first.headers["x-goog-upload-protocol"] == "resumable"
        assert (second.target, second.body) == (f"{upload}?upload_id=u1&upload_protocol=resumable", b"hello")


def start_upload(gate: Guarded, key: str, version: str = "v1beta", **headers: str) -> tuple[str, dict[str, str]]:
    """Start an upload as google-genai does; the target of the URL that came back, and all headers of the response."""
    sent = {"x-goog-api-key": KEYS[key], "x-goog-upload-protocol": "resumable", "x-goog-upload-command": "start"}
    with closing(http.client.HTTPConnection("127.0.0.1", gate.port, timeout=PATIENCE)) as asking:
        asking.request("POST", f"/upload/{version}/files", b"{}", {**sent, **headers})
        got = asking.getresponse()
        assert got.status == 200, got.read()
        returned = {name.lower(): value for name, value in got.getheaders()}
    url = urlsplit(returned["x-goog-upload-url"])
    assert url.netloc == f"127.0.0.1:{gate.port}"
    return f"{url.path}?{url.query}", returned


@pytest.mark.parametrize("version", ["v1", "v1beta"])
@pytest.mark.parametrize("shared", ["", "shared_objects = true\n"])
def test_with_keys_a_file_is_uploaded_and_belongs_to_its_key(tmp_path: Path, version: str, shared: str) -> None:
    """The SDK sends no key with the second request: the URL that it got says whose upload it is."""
    with serve_guarded(tmp_path, shared + KEY_SETTINGS, f'[store]\nurl = "sqlite:///{tmp_path}/store.db"\n') as gate:
        upload = make_uploadable(gate, version)
        ann, bob = client(gate, "ann", version), client(gate, "bob", version)
        file = ann.files.upload(file=io.BytesIO(b"hello"), config={"mime_type": "text/plain"})
        assert file.name == "files/mine"
        first, second = gate.take_arrived()
        assert first.headers["x-goog-upload-protocol"] == "resumable"
        assert (second.target, second.body) == (f"{upload}?upload_id=u1&upload_protocol=resumable", b"hello")
        assert second.headers["x-goog-api-key"] == PROVIDER_KEY
        gate.provider.replies[f"/{version}/files/mine"] = (200, {"name": "files/mine"})
        assert ann.files.get(name="files/mine").name == "files/mine"
        if not shared:
            with pytest.raises(genai.errors.ClientError) as raised:
                bob.files.get(name="files/mine")
            assert raised.value.code == 404


def test_with_keys_the_asynchronous_client_uploads_too(gate: Guarded) -> None:
    make_uploadable(gate, "v1beta")

    async def upload() -> types.File:
        google = client(gate, "ann", "v1beta")
        file = await google.aio.files.upload(file=io.BytesIO(b"hello"), config={"mime_type": "text/plain"})
        await google.aio.aclose()
        return file

    assert asyncio.run(upload()).name == "files/mine"


def test_the_url_of_an_upload_tells_nothing_and_opens_nothing_else(gate: Guarded) -> None:
    upload = make_uploadable(gate, "v1beta")
    gate.provider.headers[upload] |= {
        "x-goog-upload-url": f"https://google.example{upload}?key={PROVIDER_KEY}&upload_id=u1",
        "x-goog-upload-control-url": f"https://google.example{upload}?upload_id=u1",
        "location": f"https://google.example{upload}?upload_id=u1",
        "x-goog-upload-status": "active",
    }
    target, returned = start_upload(gate, "ann")
    told = " ".join(returned.values())
    assert "u1" not in told
    assert PROVIDER_KEY not in told
    assert "google.example" not in told
    gate.take_arrived()
    ticket = target.partition("upload_id=")[2].partition("&")[0]
    others = [
        ("POST", target.replace("files", "fileSearchStores/x:uploadToFileSearchStore", 1), {}),
        ("GET", f"/v1beta/files/mine?upload_id={ticket}", {}),
        ("POST", f"/v1beta/models/gemini-x:generateContent?upload_id={ticket}", {}),
        ("POST", f"/v1beta/models/embed-small:embedContent?upload_id={ticket}", {}),
        ("POST", f"/upload/v1/files?upload_id={ticket}", {}),  # not the path that it was started with
        ("POST", "/upload/v1beta/files", {}),
        ("POST", f"/upload/v1beta/files?upload_id={ticket}&upload_id={ticket}", {}),
        ("POST", f"/upload/v1beta/files?upload_id={ticket[:-1]}{'1' if ticket[-1] == '0' else '0'}", {}),
        ("POST", f"/upload/v1beta/files?upload_id=tw_{'0' * 96}", {}),
        ("POST", "/upload/v1beta/files?upload_id=u1", {}),
        ("POST", "/metrics?upload_id=" + ticket, {}),
        ("POST", target, {"x-goog-api-key": "unknown"}),
        ("POST", target, {"x-goog-api-key": KEYS["bob"]}),
        ("POST", target, {"x-toolwire-key": KEYS["bob"]}),
        ("POST", target, {"x-toolwire-key": ""}),
        # Nobody but the gateway knows the provider's own id, so nobody with a key can name it.
        ("POST", "/upload/v1beta/files?upload_id=u1", {"x-goog-api-key": KEYS["ann"]}),
        ("POST", "/upload/v1beta/files?upload%5Fid=u1", {"x-goog-api-key": KEYS["ann"]}),
        ("POST", "/upload/v1beta/files?uploadId=u1", {"x-goog-api-key": KEYS["ann"]}),
        ("POST", "/upload/v1beta/files?upload_id=", {"x-goog-api-key": KEYS["ann"]}),
    ]
    for method, other, headers in others:
        got = send_raw(gate.port, method, other, b"x", headers)
        assert got.status in (401, 404), (method, other, headers, got)
        assert gate.take_arrived() == [], (method, other)
    got = send_raw(gate.port, "POST", target, b"x", {"x-goog-upload-command": "upload"})
    assert got.status == 200
    assert [one.target for one in gate.take_arrived()] == [f"{upload}?upload_id=u1"]


def test_a_finished_upload_has_ended_for_its_url_too(gate: Guarded) -> None:
    make_uploadable(gate, "v1beta")
    target, _ = start_upload(gate, "ann")
    gate.take_arrived()
    assert send_raw(gate.port, "POST", target, b"x").status == 200  # `final`
    assert send_raw(gate.port, "POST", target, b"x").status == 404
    assert len(gate.take_arrived()) == 1


def test_a_key_that_was_removed_ends_its_uploads(tmp_path: Path) -> None:
    more = f'[store]\nurl = "sqlite:///{tmp_path}/store.db"\n'
    with serve_guarded(tmp_path, KEY_SETTINGS, more) as gate:
        make_uploadable(gate, "v1beta")
        target, _ = start_upload(gate, "ann")
    only_bob = "[[server.keys]]" + KEY_SETTINGS.split("[[server.keys]]")[2]
    with serve_guarded(tmp_path, only_bob, more) as gate:
        assert send_raw(gate.port, "POST", target, b"x").status == 401
        assert gate.take_arrived() == []
    with serve_guarded(tmp_path, KEY_SETTINGS, more) as gate:  # a restart does not end it
        assert send_raw(gate.port, "POST", target, b"x").status == 200


@pytest.mark.parametrize(
    "url", ["http://[", "https://g/v1beta/files?upload_id=u", "https://g/", "x y", "https://g/upload/a b"]
)
def test_an_upload_url_that_cannot_be_used_is_the_providers_fault(gate: Guarded, url: str) -> None:
    gate.provider.headers[make_uploadable(gate, "v1beta")]["x-goog-upload-url"] = url
    got = send_raw(gate.port, "POST", "/upload/v1beta/files", b"{}", {"x-goog-api-key": KEYS["ann"]})
    assert got.status == 502


def test_without_keys_the_providers_key_is_not_in_the_url(tmp_path: Path) -> None:
    with serve_guarded(tmp_path) as gate:
        upload = make_uploadable(gate, "v1beta")
        url = f"https://google.example{upload}?key={PROVIDER_KEY}&upload_id=u1"
        gate.provider.headers[upload]["x-goog-upload-url"] = url
        target, returned = start_upload(gate, "ann")
        assert target == f"{upload}?upload_id=u1"
        assert PROVIDER_KEY not in " ".join(returned.values())


def test_batches_without_keys(tmp_path: Path) -> None:
    with serve_guarded(tmp_path) as made:
        made.provider.replies["/v1/batches/b1"] = (
            200,
            {"name": "batches/b1", "metadata": {"state": "BATCH_STATE_RUNNING"}},
        )
        options = types.HttpOptions(base_url=f"http://127.0.0.1:{made.port}")
        google = genai.Client(api_key="k", http_options=options)
        found = google.batches.get(name="batches/b1")
        assert found.name == "batches/b1"
        assert [one.target for one in made.take_arrived()] == ["/v1/batches/b1"]
