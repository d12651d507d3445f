"""The console shows an exchange as a conversation: both sides, with what changed at its place, and its first words."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from gateway.provider import ScriptedAnswer
from gateway.raw_exchange import CLIENTS, PROVIDERS, RawAnswer, Served, answer, ask, call, play_script, stage
from gateway.test_console import TOOL, find_id, get
from gateway.test_web_tools import play_answer
from toolwire.gateway.surfaces.console import api, conversation

PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(60)).decode()


@pytest.fixture(name="served", scope="module")
def serve_console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with stage(tmp_path_factory.mktemp("conversation")) as staged:
        yield staged


def conversation_of(served: Served, got: RawAnswer) -> api.Conversation:
    served.line(got.id)  # it is finished
    found = get(served, f"exchanges/{find_id(served, got.id)}/conversation")
    assert found.status == 200
    return msgspec.json.decode(found.data, type=api.Conversation)


def row_of(served: Served, got: RawAnswer) -> Any:
    """Of an exchange that is finished."""
    return next(row for row in get(served, "exchanges").json()["exchanges"] if row["request_id"] == got.id)


def list_parts(side: api.ConversationSide | None) -> list[tuple[str, str, str, str]]:
    assert side is not None
    return [(turn.role, part.kind, part.name, part.text) for turn in side.turns for part in turn.parts]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("client", CLIENTS)
def test_both_sides_can_be_read_in_every_protocol(served: Served, client: str, provider: str, stream: bool) -> None:
    says = ScriptedAnswer("Let me look.", (("plain", {"q": "x"}),))
    scene = served.scene(provider, play_answer(provider, says, stream))
    got = call(served, client, scene.model, stream)
    found = conversation_of(served, got)
    for side, protocol in ((found.client, client), (found.provider, provider)):
        assert side is not None
        assert side.protocol == protocol
        rows = list_parts(side)
        assert rows[0][:2] == ("user", "text")
        assert ("assistant", "text", "", "Let me look.") in rows
        [(_, _, name, arguments)] = [row for row in rows if row[1] == "call"]
        assert (name, json.loads(arguments)) == ("plain", {"q": "x"})
        assert [turn.is_answer for turn in side.turns] == [False] * (len(side.turns) - 1) + [True]
        assert [part for turn in side.turns for part in turn.parts if part.is_changed] == []
    row = row_of(served, got)
    assert row["asked"]
    assert row["answered"] == "Let me look."


HISTORY: list[Any] = [
    {"role": "user", "content": [
        {"type": "text", "text": "<system-reminder>Be careful.</system-reminder>"},
        {"type": "text", "text": "What is on\n  this picture?"},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}},
    ]},
    {"role": "assistant", "content": [
        {"type": "thinking", "thinking": "A cat.", "signature": "c2ln"},
        {"type": "tool_use", "id": "toolu_1", "name": "look.up", "input": {"q": 1}},
    ]},
    {"role": "user", "content": [
        {"type": "tool_result", "tool_use_id": "toolu_1", "is_error": True, "content": [{"type": "text", "text": "no"}]},
    ]},
]  # fmt: skip


def test_what_changed_is_marked_at_its_place(served: Served) -> None:
    scene = served.scene("openai-chat", play_script("openai-chat", False, "A cat."))
    got = call(served, "anthropic", scene.model, False, messages=HISTORY, tools=[TOOL], system="Be brief.")
    found = conversation_of(served, got)
    assert list_parts(found.client)[0] == ("system", "text", "", "Be brief.")
    assert list_parts(found.provider)[0] == ("system", "text", "", "Be brief.")
    assert found.client is not None
    parts = {part.place: part for turn in found.client.turns for part in turn.parts if part.place}
    picture, thought, call_, result = (
        parts[place]
        for place in (
            "/messages/0/content/2",
            "/messages/1/content/0",
            "/messages/1/content/1",
            "/messages/2/content/0",
        )
    )
    assert picture.pictures == [f"data:image/png;base64,{PNG}"]
    assert not picture.is_changed
    assert (thought.kind, thought.text, thought.is_changed) == ("reasoning", "A cat.", True)
    assert {loss.severity for loss in thought.losses} == {"lost"}
    assert (call_.name, call_.is_changed) == ("look.up", False)  # by its new name it is there
    assert (result.text, result.is_error, result.call_id) == ("no", True, "toolu_1")
    row = row_of(served, got)
    assert (row["asked"], row["answered"]) == ("What is on this picture?", "A cat.")


@pytest.mark.parametrize(
    "data",
    [
        base64.b64encode(b"<svg onload='alert(1)'/>").decode(),
        base64.b64encode(b"<html>").decode(),
        "not base64",
        "",
        PNG + "A" * conversation.MAX_PICTURES,
    ],
    ids=["svg", "html", "text", "empty", "too large"],
)
def test_only_pictures_are_shown_as_pictures(served: Served, data: str) -> None:
    source = {"type": "base64", "media_type": "image/png", "data": data}
    asked = [{"role": "user", "content": [{"type": "image", "source": source}, {"type": "text", "text": "?"}]}]
    scene = served.scene("anthropic", play_script("anthropic", False))
    found = conversation_of(served, call(served, "anthropic", scene.model, False, messages=asked))
    assert found.client is not None
    assert [part.pictures for turn in found.client.turns for part in turn.parts if part.kind == "media"] == [[]]


def test_a_picture_elsewhere_is_named_and_not_loaded(served: Served) -> None:
    link = "https://pictures.example/cat.png"
    asked = [{"role": "user", "content": [{"type": "image", "source": {"type": "url", "url": link}}]}]
    scene = served.scene("anthropic", play_script("anthropic", False))
    found = conversation_of(served, call(served, "anthropic", scene.model, False, messages=asked))
    assert ("user", "media", "image", link) in list_parts(found.client)
    assert found.client is not None
    assert not any(part.pictures for turn in found.client.turns for part in turn.parts)


def test_a_long_conversation_shows_its_instructions_and_its_end(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conversation, "MAX_TURNS", 3)
    turns = [{"role": "user" if number % 2 == 0 else "assistant", "content": f"turn {number}"} for number in range(9)]
    scene = served.scene("anthropic", play_script("anthropic", False, "The end."))
    got = call(served, "anthropic", scene.model, False, messages=turns, system="Be brief.")
    found = conversation_of(served, got)
    texts = [text for _, _, _, text in list_parts(found.client)]
    assert texts == ["Be brief.", "turn 6", "turn 7", "turn 8", "The end."]
    assert found.client is not None
    assert found.client.hidden_turns == 6


def test_a_failed_exchange_shows_what_was_asked(served: Served) -> None:
    scene = served.scene("openai-chat", answer(400, b'{"error": {"message": "no"}}'))
    got = call(served, "anthropic", scene.model, False)
    found = conversation_of(served, got)
    assert [turn.is_answer for turn in (found.client.turns if found.client else ())] == [False]
    assert found.provider is not None
    assert row_of(served, got)["answered"] == ""


def test_a_request_that_cannot_be_read_has_no_conversation(served: Served) -> None:
    got = ask(served.port, "POST", "/v1/messages", b"{")
    assert got.status == 400
    found = conversation_of(served, got)
    assert (found.client, found.provider) == (None, None)
