"""Files in messages and results: OpenAI's ids hold in both of its protocols, and text files go to Chat as text."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from toolwire import translate
from toolwire_conformance.peers import find_violations

TEXT = "Grüße,\nfirst line"
DATA = base64.b64encode(TEXT.encode()).decode()
MIMES = ["text/plain", "text/markdown", "text/csv; charset=utf-8", "application/json", "application/xml"]


def asking(source: str, mime: str) -> Any:
    """A request with one text file, in each protocol that has such files."""
    if source == "gemini":
        return {"contents": [{"role": "user", "parts": [{"inlineData": {"mimeType": mime, "data": DATA}}]}]}
    if source == "openai-responses":
        file = {"type": "input_file", "filename": "notes.md", "file_data": f"data:{mime};base64,{DATA}"}
        return {"model": "m", "input": [{"role": "user", "content": [file]}]}
    held = {"type": "text", "media_type": "text/plain", "data": TEXT}
    document = {"type": "document", "source": held, "title": "notes.md", "cache_control": {"type": "ephemeral"}}
    return {"model": "m", "max_tokens": 99, "messages": [{"role": "user", "content": [document]}]}


@pytest.mark.parametrize("source", ["anthropic", "gemini", "openai-responses"])
@pytest.mark.parametrize("mime", MIMES)
def test_a_text_file_goes_to_chat_as_text(source: str, mime: str) -> None:
    sent = translate(asking(source, mime), "request", source=source, target="openai-chat", model="gpt-5.5")
    (part,) = sent.json()["messages"][0]["content"]
    assert part["type"] == "text"
    assert part["text"].endswith(TEXT)
    assert "media-as-text" in [loss.code for loss in sent.losses]
    assert ("notes.md" in part["text"]) == (source != "gemini")


def test_a_text_file_in_a_result_stays_in_it() -> None:
    call = {"type": "tool_use", "id": "t1", "name": "f", "input": {}}
    document = asking("anthropic", "")["messages"][0]["content"][0]
    result = {"type": "tool_result", "tool_use_id": "t1", "content": [document, {"type": "text", "text": "see above"}]}
    turns = [("user", "q"), ("assistant", [call]), ("user", [result])]
    body = {"model": "m", "max_tokens": 99, "messages": [{"role": role, "content": c} for role, c in turns]}
    sent = translate(body, "request", source="anthropic", target="openai-chat", model="gpt-5.5")
    messages = sent.json()["messages"]
    assert [message["role"] for message in messages] == ["user", "assistant", "tool"]
    assert "first line" in json.dumps(messages[-1])
    assert find_violations("openai-chat", sent.json(), "gpt-5.5") == []


@pytest.mark.parametrize(
    ("mime", "data"),
    [("application/pdf", "JVBERi0="), ("text/plain", "/////w=="), ("application/zip", "UEsDBA==")],
    ids=["a PDF", "not UTF-8", "an archive"],
)
def test_other_files_stay_files(mime: str, data: str) -> None:
    body = {"contents": [{"role": "user", "parts": [{"inlineData": {"mimeType": mime, "data": data}}]}]}
    sent = translate(body, "request", source="gemini", target="openai-chat", model="gpt-5.5")
    assert sent.json()["messages"][0]["content"][0]["type"] == "file"


def test_a_chat_file_of_a_chat_client_passes_as_it_is() -> None:
    file = {"type": "file", "file": {"filename": "a.txt", "file_data": f"data:text/plain;base64,{DATA}"}}
    body = {"model": "gpt-5.5", "messages": [{"role": "user", "content": [file]}]}
    assert (
        translate(body, "request", source="openai-chat", target="openai-chat", model="m").json()["messages"]
        == (body["messages"])
    )


@pytest.mark.parametrize(
    ("source", "target"), [("openai-chat", "openai-responses"), ("openai-responses", "openai-chat")]
)
def test_openais_file_ids_hold_in_both_of_its_protocols(source: str, target: str) -> None:
    chat = {"model": "m", "messages": [{"role": "user", "content": [{"type": "file", "file": {"file_id": "file-a1"}}]}]}
    item = {"role": "user", "content": [{"type": "input_file", "file_id": "file-a1"}]}
    body = chat if source == "openai-chat" else {"model": "m", "input": [item]}
    sent = translate(body, "request", source=source, target=target, model="gpt-5.5")
    assert b'"file-a1"' in sent.body
    assert "media-dropped" not in [loss.code for loss in sent.losses]


@pytest.mark.parametrize("target", ["openai-chat", "openai-responses"])
def test_ids_of_other_providers_files_are_dropped_and_told(target: str) -> None:
    document = {"type": "document", "source": {"type": "file", "file_id": "file_011CNha"}}
    content = [document, {"type": "text", "text": "q"}]
    body = {"model": "m", "max_tokens": 99, "messages": [{"role": "user", "content": content}]}
    sent = translate(body, "request", source="anthropic", target=target, model="gpt-5.5")
    assert b"file_011CNha" not in sent.body
    assert "media-dropped" in [loss.code for loss in sent.losses]
