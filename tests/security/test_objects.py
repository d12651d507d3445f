"""Objects at a provider belong to the key that created them: nobody else reads, changes, deletes, lists or uses them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.raw_exchange import path_of, request_of
from security.recorded_provider import KEY_SETTINGS, POLICY, Guarded, as_key, send_raw, serve_guarded
from toolwire.gateway.features.provider_objects.provider_objects import References, read_references
from toolwire.protocols import CODECS

GOOGLE = {"x_goog_api_client": "sdk"}
CLAUDE = {"anthropic_version": "2023-06-01"}
FORM = "multipart/form-data; boundary=XX"
FILE_FORM = b'--XX\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\nhello\r\n--XX--\r\n'


def store(folder: Path) -> str:
    return f'[store]\nurl = "sqlite:///{folder}/store.db"\n'


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Guarded]:
    with serve_guarded(tmp_path, KEY_SETTINGS, store(tmp_path)) as made:
        yield made


def create(gate: Guarded, key: str, path: str, answer: Any, body: bytes = b"{}", **headers: str) -> None:
    gate.provider.replies[path] = (200, answer)
    got = send_raw(gate.port, "POST", path, body, as_key(key, **headers))
    assert got.status == 200, got
    assert got.json() == answer
    gate.take_arrived()


# --- one object: created by one key, out of reach for the others ---

OBJECTS: dict[str, tuple[str, Any, dict[str, str], list[str]]] = {
    "a file": ("/v1/files", {"id": "file-A1"}, {}, ["GET /v1/files/file-A1", "GET /v1/files/file-A1/content", "DELETE /v1/files/file-A1"]),
    "a vector store": (
        "/v1/vector_stores", {"id": "vs_A"}, {},
        ["GET /v1/vector_stores/vs_A", "POST /v1/vector_stores/vs_A/search", "GET /v1/vector_stores/vs_A/files/f/content",
         "POST /v1/vector_stores/vs_A", "DELETE /v1/vector_stores/vs_A"],
    ),
    "a thread": (
        "/v1/threads", {"id": "thread_A"}, {},
        ["GET /v1/threads/thread_A", "POST /v1/threads/thread_A/messages", "GET /v1/threads/thread_A/runs/r/steps",
         "POST /v1/threads/thread_A/runs", "DELETE /v1/threads/thread_A"],
    ),
    "a container": ("/v1/containers", {"id": "cntr_A"}, {}, ["GET /v1/containers/cntr_A/files/f/content", "DELETE /v1/containers/cntr_A"]),
    "a file at Anthropic": ("/v1/files", {"id": "file_A"}, CLAUDE, ["GET /v1/files/file_A/content", "DELETE /v1/files/file_A"]),
    "a batch at Anthropic": (
        "/v1/messages/batches", {"id": "msgbatch_A"}, CLAUDE,
        ["GET /v1/messages/batches/msgbatch_A", "GET /v1/messages/batches/msgbatch_A/results",
         "POST /v1/messages/batches/msgbatch_A/cancel", "DELETE /v1/messages/batches/msgbatch_A"],
    ),
    "a file at Google": (
        "/upload/v1beta/files", {"file": {"name": "files/aaa", "uri": "https://g/v1beta/files/aaa"}}, GOOGLE,
        ["GET /v1beta/files/aaa", "GET /v1/files/aaa:download", "DELETE /v1beta/files/aaa"],
    ),
    "a cache at Google": (
        "/v1beta/cachedContents", {"name": "cachedContents/ccc"}, GOOGLE,
        ["GET /v1beta/cachedContents/ccc", "PATCH /v1/cachedContents/ccc", "DELETE /v1beta/cachedContents/ccc"],
    ),
    "a video at Google": (
        "/v1beta/models/veo:predictLongRunning", {"name": "models/veo/operations/ooo"}, GOOGLE,
        ["GET /v1beta/models/veo/operations/ooo", "GET /v1/models/veo/operations/ooo"],
    ),
    "a store at Google": (
        "/v1beta/fileSearchStores", {"name": "fileSearchStores/sss"}, GOOGLE,
        ["GET /v1beta/fileSearchStores/sss", "GET /v1beta/fileSearchStores/sss/documents", "DELETE /v1beta/fileSearchStores/sss/documents/d"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", OBJECTS)
def test_only_the_key_that_created_an_object_reaches_it(gate: Guarded, what: str) -> None:
    path, answer, headers, uses = OBJECTS[what]
    is_upload = path.endswith("/files")
    more = {**headers, "content_type": FORM} if is_upload else headers
    create(gate, "ann", path, answer, FILE_FORM if is_upload else b"{}", **more)
    for use in uses:
        method, _, target = use.partition(" ")
        body = b"{}" if method in ("POST", "PATCH") else b""
        for key in ("bob", "narrow"):
            got = send_raw(gate.port, method, target, body, as_key(key, **headers))
            assert got.status in (403, 404), (use, got)
            assert gate.take_arrived() == []
        got = send_raw(gate.port, method, target, body, as_key("ann", **headers))
        assert got.status == 200, (use, got)
        assert [(one.method, one.target) for one in gate.take_arrived()] == [(method, target)]


def test_what_nobody_created_here_is_out_of_reach(gate: Guarded) -> None:
    for target in ("/v1/files/file-X", "/v1/batches/b", "/v1/chat/completions/chatcmpl-1", "/v1/assistants/asst_1"):
        assert send_raw(gate.port, "GET", target, b"", as_key("ann")).status == 404
    assert gate.take_arrived() == []


LISTS = [
    ("/v1/files", {}), ("/v1/files", CLAUDE), ("/v1/files", GOOGLE), ("/v1beta/files", GOOGLE), ("/v1/batches", {}),
    ("/v1/batches", GOOGLE), ("/v1/vector_stores", {}), ("/v1/containers", {}), ("/v1/assistants", {}),
    ("/v1/fine_tuning/jobs", {}), ("/v1/evals", {}), ("/v1/messages/batches", {}), ("/v1/skills", CLAUDE),
    ("/v1beta/cachedContents", GOOGLE), ("/v1beta/tunedModels", GOOGLE), ("/v1/videos", {}),
]  # fmt: skip


@pytest.mark.parametrize(("path", "headers"), LISTS)
def test_lists_are_closed_with_keys_and_say_why(gate: Guarded, path: str, headers: dict[str, str]) -> None:
    got = send_raw(gate.port, "GET", path, b"", as_key("ann", **headers))
    assert got.status == 403, got
    assert "shared_objects" in got.body.decode()
    assert gate.take_arrived() == []


@pytest.mark.parametrize("path", ["/v1/batches", "/v1/evals"])
def test_requests_from_files_are_closed_with_keys(gate: Guarded, path: str) -> None:
    got = send_raw(gate.port, "POST", path, b'{"input_file_id":"file-1"}', as_key("ann"))
    assert (got.status, gate.take_arrived()) == (403, [])


def test_a_deleted_name_can_be_created_by_another_key(gate: Guarded) -> None:
    created = {"file": {"name": "files/same"}}
    create(gate, "ann", "/upload/v1beta/files", created, b"x", **GOOGLE, content_type="text/plain")
    assert send_raw(gate.port, "DELETE", "/v1beta/files/same", b"", as_key("ann", **GOOGLE)).status == 200
    create(gate, "bob", "/upload/v1beta/files", created, b"x", **GOOGLE, content_type="text/plain")
    assert send_raw(gate.port, "GET", "/v1beta/files/same", b"", as_key("bob", **GOOGLE)).status == 200
    assert send_raw(gate.port, "GET", "/v1beta/files/same", b"", as_key("ann", **GOOGLE)).status == 404


def test_what_has_an_owner_keeps_it(gate: Guarded) -> None:
    """Also if a provider names the same object in two answers."""
    create(gate, "ann", "/v1/files", {"id": "file-A"}, FILE_FORM, content_type=FORM)
    create(gate, "bob", "/v1/files", {"id": "file-A"}, FILE_FORM, content_type=FORM)
    assert send_raw(gate.port, "GET", "/v1/files/file-A", b"", as_key("bob")).status == 404
    assert send_raw(gate.port, "GET", "/v1/files/file-A", b"", as_key("ann")).status == 200


def test_the_content_of_a_file_gives_no_rights(gate: Guarded) -> None:
    """It is what the client wrote into it."""
    create(gate, "ann", "/v1/files", {"id": "file-victim"}, FILE_FORM, content_type=FORM)
    create(gate, "bob", "/v1/files", {"id": "file-B", "filename": "x"}, FILE_FORM, content_type=FORM)
    gate.provider.replies["/v1/files/file-B/content"] = (200, {"id": "file-victim", "output_file_id": "file-victim"})
    assert send_raw(gate.port, "GET", "/v1/files/file-B/content", b"", as_key("bob")).status == 200
    assert send_raw(gate.port, "GET", "/v1/files/file-victim", b"", as_key("bob")).status == 404


def test_the_parts_of_an_upload_become_a_file_of_its_key(gate: Guarded) -> None:
    create(gate, "ann", "/v1/uploads", {"id": "upload_A"})
    create(gate, "ann", "/v1/uploads/upload_A/complete", {"id": "upload_A", "file": {"id": "file-up"}})
    assert send_raw(gate.port, "GET", "/v1/files/file-up", b"", as_key("ann")).status == 200
    assert send_raw(gate.port, "GET", "/v1/files/file-up", b"", as_key("bob")).status == 404


def test_spellings_of_an_id(gate: Guarded) -> None:
    create(gate, "ann", "/v1/files", {"id": "file-A"}, FILE_FORM, content_type=FORM)
    create(gate, "bob", "/v1/files", {"id": "file-B"}, FILE_FORM, content_type=FORM)
    for spelling in ("file-%41", "file-A/", "./file-A", "file-B/../file-A", "file-B%2f..%2ffile-A", "file-A%00", "FILE-A",
                     "file-A?x", "file-B;/../file-A", "file-B%2Fcontent/../../file-A"):  # fmt: skip
        got = send_raw(gate.port, "GET", f"/v1/files/{spelling}", b"", as_key("bob"))
        assert got.status in (400, 404), (spelling, got)
    assert gate.take_arrived() == []


# --- objects that requests use ---

USES: list[tuple[str, dict[str, Any]]] = [
    ("openai-chat", {"messages": [{"role": "user", "content": [{"type": "file", "file": {"file_id": "file-A"}}]}]}),
    ("openai-responses", {"input": [{"role": "user", "content": [{"type": "input_file", "file_id": "file-A"}]}]}),
    ("openai-responses", {"input": [{"role": "user", "content": [{"type": "input_image", "file_id": "file-A"}]}]}),
    ("openai-responses", {"tools": [{"type": "file_search", "vector_store_ids": ["vs_A"]}]}),
    ("openai-responses", {"tools": [{"type": "code_interpreter", "container": {"type": "auto", "file_ids": ["file-A"]}}]}),
    ("openai-responses", {"tools": [{"type": "code_interpreter", "container": "cntr_A"}]}),
    ("anthropic", {"messages": [{"role": "user", "content": [{"type": "document", "source": {"type": "file", "file_id": "file-A"}}]}]}),
    ("anthropic", {"messages": [{"role": "user", "content": [{"type": "container_upload", "file_id": "file-A"}]}]}),
    ("anthropic", {"container": "cntr_A"}),
    ("anthropic", {"container": {"id": "cntr_A"}}),
    ("gemini", {"contents": [{"role": "user", "parts": [{"fileData": {"fileUri": "https://generativelanguage.googleapis.com/v1beta/files/aaa"}}]}]}),
    ("gemini", {"contents": [{"role": "user", "parts": [{"file_data": {"file_uri": "files/aaa"}}]}]}),
    ("gemini", {"cachedContent": "cachedContents/ccc"}),
    ("gemini", {"cached_content": "cachedContents/ccc"}),
    ("unified", {"messages": [{"role": "user", "content": [{"type": "file", "file_id": "file-A"}]}]}),
]  # fmt: skip
SPEECH = {"role": "assistant", "audio": {"id": "audio_A"}}


def gemini_file(uri: str) -> dict[str, Any]:
    return {"contents": [{"role": "user", "parts": [{"fileData": {"fileUri": uri}}]}]}


OTHER_USES: list[tuple[str, dict[str, Any]]] = [
    ("openai-chat", {"messages": [{"role": "user", "content": "a"}, SPEECH, {"role": "user", "content": "b"}]}),
    ("openai-chat", {"audio": {"voice": {"id": "voice_A"}, "format": "wav"}}),
    ("openai-chat", {"vector_store_ids": ["vs_A"]}),
    ("openai-chat", {"google": {"cached_content": "cachedContents/ccc"}}),
    ("openai-responses", {"prompt": {"id": "pmpt_A"}}),
    ("openai-responses", {"tools": [{"type": "image_generation", "input_image_mask": {"file_id": "file-A"}}]}),
    ("openai-responses", {"input": [{"type": "computer_call_output", "call_id": "c", "output": {"type": "computer_screenshot", "file_id": "file-A"}}]}),
    ("openai-responses", {"input": [{"type": "image_generation_call", "id": "ig_A"}, {"role": "user", "content": "again"}]}),
    ("gemini", {"tools": [{"fileSearch": {"fileSearchStoreNames": ["fileSearchStores/fs"]}}]}),
    ("gemini", {"tools": {"file_search": {"file_search_store_names": "fileSearchStores/fs"}}}),
    ("gemini", {"tools": [{"retrieval": {"vertexAiSearch": {"datastore": "projects/p/dataStores/d"}}}]}),
    ("gemini", {"tools": [{"retrieval": {"vertexRagStore": {"ragResources": [{"ragCorpus": "projects/p/ragCorpora/c"}]}}}]}),
    ("gemini", gemini_file("HTTPS://GenerativeLanguage.GoogleAPIs.com/v1beta/files/aaa")),
    ("gemini", gemini_file(" https://generativelanguage.googleapis.com/v1beta/files/aaa")),
    ("gemini", gemini_file("https://generativelanguage.googleapis.com/v1beta/%66iles/aaa")),
    ("gemini", gemini_file("https://generativelanguage.googleapis.com/v1beta/files%2Faaa/")),
    ("gemini", gemini_file("gs://bucket/of-the-account")),
]  # fmt: skip
MODELS = {
    "openai-chat": "chat/gpt-small", "openai-responses": "responses/gpt-small", "anthropic": "anthropic/claude-small",
    "gemini": "gemini/embed-small", "unified": "chat/gpt-small",
}  # fmt: skip
OWNED = ("file-A", "vs_A", "cntr_A")


def own_all(gate: Guarded) -> None:
    """The same ids at every provider, created by one key."""
    for path, name in (("/v1/files", "file-A"), ("/v1/vector_stores", "vs_A"), ("/v1/containers", "cntr_A")):
        form = {"content_type": FORM} if path == "/v1/files" else {}
        create(gate, "ann", path, {"id": name}, FILE_FORM if form else b"{}", **form)
    create(gate, "ann", "/v1/files", {"id": "file-A"}, FILE_FORM, content_type=FORM, **CLAUDE)
    create(gate, "ann", "/v1/skills", {"id": "cntr_A"}, FILE_FORM, content_type=FORM, **CLAUDE)
    create(
        gate, "ann", "/upload/v1beta/files", {"file": {"name": "files/aaa"}}, b"x", content_type="text/plain", **GOOGLE
    )
    create(gate, "ann", "/v1beta/cachedContents", {"name": "cachedContents/ccc"}, **GOOGLE)


@pytest.fixture(scope="module", name="owned")
def serve_owners(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    folder = tmp_path_factory.mktemp("owned")
    with serve_guarded(folder, KEY_SETTINGS, store(folder)) as made:
        own_all(made)
        yield made


@pytest.mark.parametrize(("client", "change"), [*USES, *OTHER_USES])
@pytest.mark.parametrize("escaped", [False, True], ids=["plain", "escaped"])
def test_a_request_cannot_use_an_object_of_another_key(
    owned: Guarded, client: str, change: dict[str, Any], escaped: bool
) -> None:
    body = json.dumps({**request_of(client, MODELS[client], False), **change})
    if escaped:
        for key in ("file_id", "vector_store_ids", "file_ids", "container", "fileUri", "file_uri", "cachedContent",
                    "prompt", "audio", "id", "fileSearchStoreNames", "file_search_store_names", "datastore"):  # fmt: skip
            body = body.replace(f'"{key}"', f'"\\u{ord(key[0]):04x}{key[1:]}"')
    path = path_of(client, MODELS[client], False)
    got = send_raw(owned.port, "POST", path, body.encode(), as_key("bob"))
    arrived = owned.take_arrived()
    assert got.status == 403, got
    assert arrived == []


@pytest.mark.parametrize(("client", "change"), [row for row in USES if row[0] != "openai-responses"])
def test_a_key_uses_its_own_objects(owned: Guarded, client: str, change: dict[str, Any]) -> None:
    body = json.dumps({**request_of(client, MODELS[client], False), **change}).encode()
    got = send_raw(owned.port, "POST", path_of(client, MODELS[client], False), body, as_key("ann"))
    assert got.status == 200, got
    assert len(owned.take_arrived()) == 1


GOOGLE_URLS = [
    "https://generativelanguage.googleapis.com/v1beta/files/aaa", "files/aaa", "gs://bucket/a",
    "https://GENERATIVELANGUAGE.googleapis.com/v1beta/f%69les/aaa",
]  # fmt: skip
TRANSLATED_USES: dict[str, tuple[str, Any]] = {
    "Chat": ("openai-chat", lambda url: {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}]}),
    "Responses, an image": ("openai-responses", lambda url: {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": url}]}]}),
    "Responses, a file": ("openai-responses", lambda url: {"input": [{"role": "user", "content": [{"type": "input_file", "file_url": url}]}]}),
    "Anthropic": ("anthropic", lambda url: {"messages": [{"role": "user", "content": [{"type": "image", "source": {"type": "url", "url": url}}]}]}),
}  # fmt: skip


@pytest.mark.parametrize("use", TRANSLATED_USES)
@pytest.mark.parametrize("url", GOOGLE_URLS)
def test_a_url_does_not_become_a_file_of_another_key(owned: Guarded, use: str, url: str) -> None:
    """Gemini has one field for URLs and for names of files."""
    client, change = TRANSLATED_USES[use]
    body = json.dumps({**request_of(client, "gemini/embed-small", False), **change(url)}).replace("/", "\\/").encode()
    got = send_raw(owned.port, "POST", path_of(client, "gemini/embed-small", False), body, as_key("bob"))
    arrived = owned.take_arrived()
    assert (got.status, arrived) == (403, []) or not [one for one in arrived if b"fileUri" in one.body], got


@pytest.mark.parametrize("use", TRANSLATED_USES)
def test_urls_of_the_web_pass(owned: Guarded, use: str) -> None:
    client, change = TRANSLATED_USES[use]
    url = "https://example.com/files/report.pdf"
    body = json.dumps({**request_of(client, "gemini/embed-small", False), **change(url)}).encode()
    got = send_raw(owned.port, "POST", path_of(client, "gemini/embed-small", False), body, as_key("bob"))
    assert (got.status, len(owned.take_arrived())) == (200, 1), got


ANSWERED_OBJECTS: list[tuple[str, dict[str, Any], Any, dict[str, Any], int]] = [
    (
        "openai-chat", {"modalities": ["text", "audio"], "audio": {"voice": "alloy", "format": "wav"}},
        {"id": "c", "object": "chat.completion", "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": None, "audio": {"id": "audio_B", "data": "", "transcript": "Hi", "expires_at": 1}}}]},
        {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "audio": {"id": "audio_B"}}, {"role": "user", "content": "b"}]}, 403,
    ),
    (
        "openai-responses", {"tools": [{"type": "image_generation"}]},
        {"id": "resp_1", "object": "response", "status": "completed", "output": [{"type": "image_generation_call", "id": "ig_B", "status": "completed", "result": "aGk="}]},
        {"input": [{"type": "image_generation_call", "id": "ig_B"}, {"role": "user", "content": "again"}]}, 403,
    ),
    (
        "anthropic", {"thread": {"type": "create"}},
        {"id": "msg_B", "type": "message", "role": "assistant", "model": "claude-small", "content": [{"type": "text", "text": "Hi"}], "stop_reason": "end_turn", "stop_sequence": None, "usage": {"input_tokens": 1, "output_tokens": 1}},
        {"thread": {"type": "continue", "previous_message_id": "msg_B"}}, 404,
    ),
]  # fmt: skip


@pytest.mark.parametrize(("client", "first", "answer", "change", "refused"), ANSWERED_OBJECTS)
def test_what_a_provider_keeps_of_an_answer_belongs_to_the_key_that_got_it(
    gate: Guarded, client: str, first: dict[str, Any], answer: Any, change: dict[str, Any], refused: int
) -> None:
    path = path_of(client, MODELS[client], False)
    plain = request_of(client, MODELS[client], False)

    def send(key: str, more: dict[str, Any]) -> int:
        return send_raw(gate.port, "POST", path, json.dumps({**plain, **more}).encode(), as_key(key)).status

    assert send("ann", change) == refused  # nobody got it yet
    gate.provider.replies[path] = (200, answer)
    assert send("ann", first) == 200
    gate.take_arrived()
    assert (send("bob", change), gate.take_arrived()) == (refused, [])
    assert (send("ann", change), len(gate.take_arrived())) == (200, 1)


def test_a_repeated_key_does_not_hide_an_object(owned: Guarded) -> None:
    part = '{"type":"file","file":{"file_id":"file-A"},"file":{"file_data":"x"}}'
    body = f'{{"model":"chat/gpt-small","messages":[{{"role":"user","content":[{part}]}}]}}'
    got = send_raw(owned.port, "POST", "/v1/chat/completions", body.encode(), as_key("bob"))
    assert got.status == 200
    assert b"file-A" not in owned.take_arrived()[0].body  # what was judged is what is sent


FORWARDED_USES: list[tuple[str, bytes, dict[str, str], tuple[int, ...]]] = [
    ("/v1/vector_stores", b'{"file_ids":["file-A"]}', {}, (403,)),
    ("/v1/vector_stores", b'{"file_ids":[],"file_ids":["file-A"]}', {}, (400,)),
    ("/v1/vector_stores", b'\xef\xbb\xbf{"file_ids":["file-A"]}', {}, (400,)),
    ("/v1/fine_tuning/jobs", b'{"model":"chat/gpt-small","training_file":"file-A"}', {}, (403,)),
    ("/v1/threads", b'{"messages":[{"role":"user","content":"x","attachments":[{"file_id":"file-A"}]}]}', {}, (403,)),
    ("/v1/threads", b'{"tool_resources":{"file_search":{"vector_store_ids":["vs_A"]}}}', {}, (403,)),
    ("/v1/messages/batches", b'{"requests":[{"params":{"messages":[{"content":[{"source":{"type":"file","file_id":"file-A"}}]}]}}]}', CLAUDE, (403,)),
    ("/v1beta/cachedContents", b'{"contents":[{"parts":[{"fileData":{"fileUri":"files/aaa"}}]}]}', GOOGLE, (403,)),
    ("/v1/containers", b'--XX\r\nContent-Disposition: form-data; name="file_ids[]"\r\n\r\nfile-A\r\n--XX--\r\n', {"content_type": FORM}, (400,)),
    ("/v1/vector_stores", b'{"File_Ids":["file-A"]}', {}, (403,)),
    ("/v1/videos", b'{"model":"chat/gpt-small","prompt":"x","characters":[{"id":"char_A"}]}', {}, (403,)),
    ("/v1/audio/speech", b'{"model":"chat/gpt-small","input":"x","voice":{"id":"voice_A"}}', {}, (403,)),
    ("/v1beta/interactions", b'{"model":"gemini/x","input":"x","previousInteractionId":"int_A"}', GOOGLE, (403,)),
    ("/v1beta/interactions", b'{"model":"gemini/x","input":[{"type":"image","uri":"files/aaa"}]}', GOOGLE, (403,)),
    ("/v1beta/interactions", b'{"model":"gemini/x","input":"x","tools":[{"type":"file_search","file_search_store_names":["fileSearchStores/fs"]}]}', GOOGLE, (403,)),
    ("/v1beta/models/gemini/veo:predictLongRunning", b'{"instances":[{"video":{"uri":"https://generativelanguage.googleapis.com/v1beta/files/aaa:download"}}]}', GOOGLE, (403,)),
    ("/v1beta/models/gemini/veo:predictLongRunning", b'{"instances":[{"prompt":"x"}],"parameters":{"storageUri":"gs://bucket"}}', GOOGLE, (403,)),
    ("/v1/images/edits", b'--XX\r\nContent-Disposition: form-data; name="model"\r\n\r\nchat/gpt-small\r\n--XX\r\nContent-Disposition: form-data; name="image[0][file_id]"\r\n\r\nfile-A\r\n--XX--\r\n', {"content_type": FORM}, (400,)),
    ("/v1/containers", b"file_ids=file-A", {"content_type": "application/x-www-form-urlencoded"}, (400,)),
    ("/v1/containers", '{"file_ids":["file-A"]}'.encode("utf-16"), {"content_type": "application/json; charset=utf-16"}, (400,)),
]  # fmt: skip


@pytest.mark.parametrize(("path", "body", "headers", "statuses"), FORWARDED_USES)
def test_a_forwarded_request_cannot_use_an_object_of_another_key(
    owned: Guarded, path: str, body: bytes, headers: dict[str, str], statuses: tuple[int, ...]
) -> None:
    got = send_raw(owned.port, "POST", path, body, as_key("bob", **headers))
    assert got.status in statuses, got
    assert owned.take_arrived() == []


def test_arguments_of_a_users_own_tools_are_not_taken_for_objects() -> None:
    body = {
        "messages": [
            {"role": "assistant", "content": [{"type": "tool_use", "name": "read", "input": {"type": "file", "file_id": "7"}}]},
            {"role": "user", "content": [{"type": "text", "text": '"file_id"'}]},
        ],
        "tools": [{"name": "read", "input_schema": {"properties": {"file_id": {"type": "string"}}}}],
    }  # fmt: skip
    cited = {"input": [{"type": "message", "content": [{"annotations": [{"type": "file_citation", "file_id": "f"}]}]}]}
    gemini = {
        "contents": [
            {
                "parts": [
                    {"functionCall": {"args": {"fileUri": "files/a"}}},
                    {"fileData": {"fileUri": "https://youtu.be/x"}},
                ]
            }
        ]
    }
    for protocol, one in (("anthropic", body), ("openai-responses", cited), ("gemini", gemini)):
        assert read_references(CODECS[protocol].request_members, lambda one=one: one) == References()


# --- other ways to run a gateway ---


def test_without_a_store_everything_is_closed(tmp_path: Path) -> None:
    with serve_guarded(tmp_path, KEY_SETTINGS, '[store]\nurl = "none"\n') as made:
        for method, path in (
            ("POST", "/v1/files"),
            ("GET", "/v1/files"),
            ("GET", "/v1/files/f"),
            ("DELETE", "/v1/files/f"),
        ):
            got = send_raw(
                made.port, method, path, FILE_FORM if method == "POST" else b"", as_key("ann", content_type=FORM)
            )
            assert got.status == 403, got
            assert "shared_objects" in got.body.decode()
        assert made.take_arrived() == []


def test_a_team_can_share_all_objects(tmp_path: Path) -> None:
    with serve_guarded(tmp_path, f"shared_objects = true\n{KEY_SETTINGS}", store(tmp_path)) as made:
        for target in ("/v1/files", "/v1/files/f", "/v1/batches"):
            assert send_raw(made.port, "GET", target, b"", as_key("bob")).status == 200
        assert len(made.take_arrived()) == 3
        # Rights to models stay: nobody reads what a batch runs.
        assert send_raw(made.port, "POST", "/v1/batches", b"{}", as_key("narrow")).status == 403
        assert send_raw(made.port, "GET", "/v1/organization/users", b"", as_key("bob")).status == 404
        assert made.take_arrived() == []


def test_rules_for_tools_close_what_they_cannot_read(tmp_path: Path) -> None:
    with serve_guarded(tmp_path, "", POLICY) as made:
        for path in ("/v1/batches", "/v1/messages/batches", "/v1/threads/t/runs", "/v1beta/cachedContents"):
            assert send_raw(made.port, "POST", path, b"{}").status == 403
        assert made.take_arrived() == []


def test_owners_are_known_after_a_restart_and_to_every_gateway(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    with serve_guarded(tmp_path / "one", KEY_SETTINGS, store(tmp_path)) as one:
        create(one, "ann", "/v1/files", {"id": "file-A"}, FILE_FORM, content_type=FORM)
        with serve_guarded(tmp_path / "two", KEY_SETTINGS, store(tmp_path)) as two:
            assert send_raw(two.port, "GET", "/v1/files/file-A", b"", as_key("ann")).status == 200
            assert send_raw(two.port, "GET", "/v1/files/file-A", b"", as_key("bob")).status == 404


# --- a law ---


@given(
    st.recursive(
        st.sampled_from(["x", 1, None]),
        lambda one: (
            st.lists(one, max_size=3)
            | st.dictionaries(st.sampled_from(["a", "content", "parts", "source"]), one, max_size=3)
        ),
        max_leaves=8,
    ),
    st.integers(0, 3),
)
def test_a_file_is_found_at_any_depth(around: Any, depth: int) -> None:
    node: Any = {"type": "input_file", "file_id": "file-A"}
    for _ in range(depth):
        node = {"content": [around, node]}
    members = CODECS["openai-responses"].request_members
    assert "file-A" in read_references(members, lambda: {"input": [around, node]}).objects  # type: ignore[union-attr]
