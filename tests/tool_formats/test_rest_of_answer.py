"""`tool_format = "eager"`: the rest of an answer is one call, in a fence or bare. What stands before it is judged as
before every other frame, and by default nothing of this is a call."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tool_formats.mentioned_calls import INTRODUCTIONS, MEANT, MENTIONS, MORE_MENTIONS
from tool_formats.reading import every_split, read_pieces, split_randomly
from tool_formats.test_innocent_text import CALL, INNOCENT
from tool_formats.tools import TOOLS
from toolwire import Stream, translate
from toolwire.tool_formats.frame import TextCall

FORMS = {
    "fence with a language": f"```json\n{CALL}\n```",
    "fence": f"```\n{CALL}\n```\n",
    "marked call in a fence": f"```xml\n<tool_call>{CALL}</tool_call>\n```",
    "bare": CALL,
    "bare over lines": json.dumps(json.loads(CALL), indent=2),
    "bare with an end token": f"{CALL}<|im_end|>",
}


def _on_a_line(shapes: list[str]) -> list[str]:
    """The shapes that end with one call on a line of its own, behind some prose."""
    return [one for one in shapes if one.count("CALL") == 1 and one.endswith("\nCALL")]


MENTIONED = _on_a_line([*(shape for shapes in MENTIONS.values() for shape in shapes), *MORE_MENTIONS])
INTRODUCED = [*_on_a_line(MEANT), *(f"{words}\nCALL" for words in INTRODUCTIONS)]


def _list_calls(text: str, chunks: list[str], tool_format: str = "eager", **facts: bool) -> list[tuple[str, Any]]:
    pieces = read_pieces(text, TOOLS, chunks, tool_format, **facts)
    calls = [(one.name, json.loads(one.arguments)) for one in pieces if isinstance(one, TextCall)]
    assert calls or "".join(map(str, pieces)) == text
    return calls


@pytest.mark.parametrize("form", FORMS)
def test_the_rest_of_the_answer_is_a_call(form: str) -> None:
    """As many as docs/guides/open-models.md says."""
    for shape in INTRODUCED:
        text = shape.replace("CALL", FORMS[form])
        assert _list_calls(text, split_randomly(text, len(text))) == [("look_up", {"word": "gate"})], shape


@pytest.mark.parametrize("form", FORMS)
def test_what_is_mentioned_stays_text(form: str) -> None:
    for shape in MENTIONED:
        text = shape.replace("CALL", FORMS[form])
        assert not _list_calls(text, split_randomly(text, len(text))), shape


def test_there_are_many_of_both() -> None:
    assert len(MENTIONED) > 600
    assert len(INTRODUCED) > 150


@pytest.mark.parametrize("form", [form for form in FORMS if not form.startswith("marked")])
def test_by_default_it_is_text(form: str) -> None:
    text = f"Let me look that up.\n\n{FORMS[form].removesuffix('<|im_end|>')}"
    for chunks in every_split(text):
        assert not _list_calls(text, chunks, "auto")


@pytest.mark.parametrize(
    "rest",
    [
        f"```json\n{CALL}\n```\nIt looks up the word.",
        f"{CALL}\nIt looks up the word.",
        f"{CALL}\n{CALL}",
        f"```json\n{CALL}\n```\n\n```json\n{CALL}\n```",
        f"```json\n[{CALL}, {CALL}]\n```",
        f"```json\n{CALL}\n```\nThen I'll look again.\n```json\n{CALL}\n```",
        f"{CALL}\nThen I'll look again, and this goes on for a while. {'I look. ' * 40}\n{CALL}",
        f"`<tool_call>{CALL}</tool_call>`\nLet me look again.\n{CALL}",
        f"```python\n{CALL}\n```",
        f"    {CALL}",
        f"So: {CALL}",
        '```json\n{"name": "fly", "arguments": {}}\n```',
        '```json\n{"name": "look_up", "arguments": {}}\n```',
        '{"name": "move", "arguments": {"x": "far"}}',
        '{"name": "look_up"}',
        '{"word": "gate"}',
    ],
)
def test_only_one_call_that_can_run_and_nothing_else(rest: str) -> None:
    text = f"Let me look that up.\n\n{rest}"
    for chunks in every_split(text):
        assert not _list_calls(text, chunks)


@pytest.mark.parametrize("text", [text for text in INNOCENT if not text.startswith("First:")])
def test_innocent_text_stays(text: str) -> None:
    assert not _list_calls(text, list(text))


def test_an_answer_that_was_cut_or_asked_for_as_json_is_text() -> None:
    text = f"Let me look that up.\n\n{CALL[:-1]}"
    assert not _list_calls(text, [text], was_cut=True)
    text = f"Let me look that up.\n\n```json\n{CALL}\n```"
    assert not _list_calls(text, [text], expects_json=True)


def test_a_call_with_marks_before_it_counts_alone() -> None:
    """What follows a call is text, with and without the setting: the pending call is judged by it."""
    text = f"<tool_call>{CALL}</tool_call>\n```json\n{CALL}\n```"
    for chunks in every_split(text):
        assert _list_calls(text, chunks) == _list_calls(text, chunks, "auto")


def test_long_text_behind_a_call_is_not_held_back() -> None:
    for form in (FORMS["fence"], CALL + "\n"):
        start = f"Let me look that up.\n{form}" + "It finds the word. " * 20
        stream = Stream(source="openai-chat", target="openai-chat", request=REQUEST, tool_format="eager")
        assert b"finds the word" in stream.feed(_chunk({"content": start}))


REQUEST: dict[str, Any] = {
    "model": "qwen3:8b",
    "messages": [{"role": "user", "content": "Hi"}],
    "tools": [
        {
            "type": "function",
            "function": {
                "name": "look_up",
                "parameters": {"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]},
            },
        }
    ],
}


def _chunk(delta: dict[str, Any]) -> bytes:
    body = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    choices = [{"index": 0, "delta": delta, "finish_reason": None}]
    return b"data: " + json.dumps(body | {"choices": choices}).encode() + b"\n\n"


def test_the_repair_is_reported() -> None:
    text = f"Let me look that up.\n\n```json\n{CALL}\n```"
    choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}
    body = {"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}
    options = {"source": "openai-chat", "target": "openai-chat", "request": REQUEST}
    got = translate(body, "response", **options, tool_format="eager")  # type: ignore[arg-type]
    [answer] = got.json()["choices"]
    assert answer["finish_reason"] == "tool_calls"
    assert answer["message"]["content"].strip() == "Let me look that up."
    assert [one["function"]["name"] for one in answer["message"]["tool_calls"]] == ["look_up"]
    assert "call-in-text" in [loss.code for loss in got.losses]
