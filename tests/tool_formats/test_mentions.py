"""A frame is a call only where nothing says that it is a mention. What is mentioned stays text, byte for byte."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tool_formats.mentioned_calls import (
    INTRODUCTIONS,
    MEANT,
    MENTIONS,
    MORE_MENTIONS,
    NAMED_CALLS,
    NAMED_MENTIONS,
    OTHER_FRAMES,
    WHOLE_OR_LINE,
)
from tool_formats.reading import every_split, offer_tools, read_pieces, split_randomly
from tool_formats.tools import TOOLS
from tool_formats.written_calls import WRITERS
from toolwire import Stream, translate
from toolwire.tool_formats.frame import TextCall

FRAMES = {**{name: write([("look_up", {"word": "gate"})]) for name, write in WRITERS.items()}, **OTHER_FRAMES}
HERMES = FRAMES["hermes on a line"]
SHAPES = [shape for shapes in MENTIONS.values() for shape in shapes]
EVERY_FORMAT = [
    "I will not run CALL because it would delete everything.",
    "Never do this:\n\nCALL\n\nIt deletes everything.",
    "<pre>\nCALL\n</pre>",
    "« CALL »",
    "User: Hi\nAssistant: Let me see.\nCALL",
    "```\nCALL\n```\nThat was it.",
    "> CALL",
    "- CALL\n- CALL",
]


def _assert_text(text: str) -> None:
    for chunks in ([text], list(text), split_randomly(text, len(text))):
        pieces = read_pieces(text, TOOLS, chunks)
        assert "".join(map(str, pieces)) == text


def test_there_are_many_texts_of_all_shapes() -> None:
    every = [*SHAPES, *MORE_MENTIONS]
    assert len({*every}) == len(every) > 300


@pytest.mark.parametrize("number", range(len(SHAPES)), ids=SHAPES)
def test_a_mentioned_call_stays_text(number: int) -> None:
    """With Hermes and two other formats, so that each format meets many shapes."""
    names = [*FRAMES]
    for name in ("hermes on a line", names[2 * number % len(names)], names[(2 * number + 1) % len(names)]):
        _assert_text(SHAPES[number].replace("CALL", FRAMES[name]))


@pytest.mark.parametrize("first", range(0, len(MORE_MENTIONS), 20))
def test_more_mentioned_calls_stay_text(first: int) -> None:
    names = [name for name in FRAMES if name not in WHOLE_OR_LINE]
    for number, shape in enumerate(MORE_MENTIONS[first : first + 20], first):
        _assert_text(shape.replace("CALL", FRAMES[names[number % len(names)]]))


@pytest.mark.parametrize("name", FRAMES)
def test_mentions_in_every_format(name: str) -> None:
    for shape in EVERY_FORMAT:
        _assert_text(shape.replace("CALL", FRAMES[name]))


@pytest.mark.parametrize("shape", MEANT)
def test_a_call_that_is_meant_is_made(shape: str) -> None:
    """The rule must not become "never"."""
    drafts = shape.partition("</think>")[0].count("CALL") if "</think>" in shape else 0
    for number, name in enumerate(FRAMES):
        if name in WHOLE_OR_LINE:
            continue
        text = shape.replace("CALL", FRAMES[name])
        for chunks in ([text], list(text)) if number % 6 == 0 else ([text],):
            calls = [one for one in read_pieces(text, TOOLS, chunks) if isinstance(one, TextCall)]
            assert [(one.name, json.loads(one.arguments)) for one in calls] == [("look_up", {"word": "gate"})] * (
                shape.count("CALL") - drafts
            ), name


def test_calls_behind_what_models_say_before_them() -> None:
    names = [name for name in FRAMES if name not in WHOLE_OR_LINE]
    for number, words in enumerate(INTRODUCTIONS):
        text = f"{words}\n{FRAMES[names[number % len(names)]]}"
        assert [type(one) for one in read_pieces(text, TOOLS, [text])] == [str, TextCall], words


def test_a_sentence_may_name_the_words_of_the_call() -> None:
    """Of the tool's name and the values, not of the parameters: those name texts."""
    for words, is_call in (("Let me convert the gates.", True), ("Let me convert the word.", False)):
        text = f"{words}\n{HERMES}"
        assert any(isinstance(one, TextCall) for one in read_pieces(text, TOOLS, [text])) == is_call


@pytest.mark.parametrize(
    ("rows", "is_meant"), [(NAMED_CALLS, True), (NAMED_MENTIONS, False)], ids=["meant", "mentioned"]
)
def test_sentences_with_the_words_of_the_call(rows: list[tuple[str, str, dict[str, Any]]], is_meant: bool) -> None:
    """They announce the call with any verb and any things, but not if one of them is for a text."""
    names = [name for name in WRITERS if name not in WHOLE_OR_LINE]
    for number, (words, name, arguments) in enumerate(rows):
        properties = {key: {} for key in arguments}
        tools = offer_tools([{"function": {"name": name, "parameters": {"type": "object", "properties": properties}}}])
        text = f"{words}\n{WRITERS[names[number % len(names)]]([(name, arguments)])}"
        assert any(isinstance(one, TextCall) for one in read_pieces(text, tools, [text])) == is_meant, words


def test_what_a_tool_is_for_is_a_word_of_the_call() -> None:
    tool = {"name": "derive", "description": "Computes the derivative of a term. Quotes are free.", "parameters": {}}
    tools = offer_tools([{"function": tool}])
    frame = '<tool_call>{"name": "derive", "arguments": {"of": "x"}}</tool_call>'
    for words, is_call in (("Let me work out the derivative.", True), ("Let me work out the quotes.", False)):
        text = f"{words}\n{frame}"
        assert any(isinstance(one, TextCall) for one in read_pieces(text, tools, [text])) == is_call


def test_a_long_sentence_announces_nothing() -> None:
    """To judge one takes more than linear time."""
    for words in (
        f"{'I think that ' * 40}I'll check the file.",
        f"The parser returns `None`. {'I think that ' * 40}I'll check the file.",
        f"{'let me ' * 80}check the file.",
    ):
        _assert_text(f"{words}\n{HERMES}")


def test_what_was_found_says_what_it_is() -> None:
    """Behind what was found "one" is enough, but not alone, and not behind a text that is shown."""
    for words, is_call in (
        ("The parser returns `None`. I'll export it.", True),
        ("The table has no index. I'll add one.", True),
        ("I'll add one.", False),
        ("The answer of the model was empty. It wrote this. I'll export it.", False),
    ):
        text = f"{words}\n{HERMES}"
        assert any(isinstance(one, TextCall) for one in read_pieces(text, TOOLS, [text])) == is_call, words


@pytest.mark.parametrize("name", sorted(WHOLE_OR_LINE))
def test_formats_that_may_not_stand_anywhere(name: str) -> None:
    for text in (FRAMES[name], f"\n{FRAMES[name]}\n"):
        for chunks in every_split(text):
            calls = [one for one in read_pieces(text, TOOLS, chunks) if isinstance(one, TextCall)]
            assert [(one.name, json.loads(one.arguments)) for one in calls] == [("look_up", {"word": "gate"})]


@pytest.mark.parametrize(
    "text",
    [
        '{"response": "Hello"}',
        '{"response": "Hello", "status": 200}',
        "Here are my reasoning steps:\n1. I look.\n2. I see.",
        "all\nof them",
        "all\nof them\n>>> import this\n",
        "The token is `</s>`",
        "It ends with </s>",
        "The end token of Qwen is <|im_end|>",
        "It ends with:\n</s>",
        "This was <s>wrong</s>",
        "<p>The price is <s>10</s> 8</p>",
        'The last token is "</s>',
        "The mark </think> ends it.",
        "They think until </think>, then they answer.",
        "Reasoning ends with </think>",
        "<think> is the tag that opens it.",
        "The token <|START_THINKING|> opens it.",
        "Write <mm:think> first.",
        "The token <|eot|> ends a turn.",
        "The mark [END FINAL RESPONSE] is from Apriel.",
        "A head is <|start|>assistant<|channel|>final<|message|> and then the text.",
        "The tokens <|tool_calls_section_begin|><|tool_calls_section_end|> are an empty section.",
        "A channel begins with <|open|>response<|sep|> there.",
        f"    {HERMES}",
        f"\t{HERMES}",
        'See to=functions.look_up {"word": "gate"}',
        'to=functions.look_up {"word": "gate"} is what is left.',
        'to=functions.fly {"word": "gate"}',
        f"{HERMES[:-12]}</tool_call> and so on",
    ],
)
def test_text_without_a_call_is_not_changed(text: str) -> None:
    for chunks in every_split(text):
        assert "".join(map(str, read_pieces(text, TOOLS, chunks))) == text


@pytest.mark.parametrize(
    ("text", "content"),
    [
        ("Hello.</s>", "Hello."),
        ("Hello\n<|im_end|>", "Hello\n"),
        ("Hello. </s>", "Hello. "),
        ("Hm.</think>Yes.", "Hm.\nYes."),
        (f"{HERMES}\nHm, wait. I look again.</think>Yes.", f"{HERMES}\nHm, wait. I look again.\nYes."),
    ],
)
def test_marks_that_servers_let_through_are_dropped(text: str, content: str) -> None:
    for chunks in every_split(text):
        assert "".join(map(str, read_pieces(text, TOOLS, chunks))) == content


def test_a_repeated_interjection_is_judged_in_time() -> None:
    """Each of these words had two readings, so that a minute was not enough for thirty of them."""
    text = f"{'One moment to look ' * 100}/x\n{HERMES}"
    assert "".join(map(str, read_pieces(text, TOOLS, [text]))) == text


def test_the_recipient_all_is_dropped_where_it_is_one() -> None:
    for chunks in every_split("all\nHello."):
        assert "".join(map(str, read_pieces("all\nHello.", TOOLS, chunks, tool_format="functionary_v32"))) == "Hello."
    text = 'all\nHello.\n>>>look_up\n{"word": "gate"}'
    for chunks in every_split(text):
        hello, call = read_pieces(text, TOOLS, chunks)[-2:]
        assert str(hello).endswith("Hello.\n")
        assert isinstance(call, TextCall)


@pytest.mark.parametrize(
    ("body", "value"), [("a\nb\n", "a\nb\n"), ("\na\nb\n", "a\nb"), ("\na\n\n", "a\n"), ("a", "a"), ("\n\n", "")]
)
def test_a_line_break_that_the_model_wrote_is_kept(body: str, value: str) -> None:
    text = f"<tool_call>\n<function=look_up>\n<parameter=word>{body}</parameter>\n</function>\n</tool_call>"
    for chunks in every_split(text):
        (call,) = read_pieces(text, TOOLS, chunks)
        assert isinstance(call, TextCall)
        assert json.loads(call.arguments) == {"word": value}


# --- the report ---

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


@pytest.mark.parametrize(
    "text",
    [
        f"I will not run {HERMES} because it would delete everything.",
        f"So:\n```\n{HERMES}\n```\nThat was it, and `{HERMES}` too.",
        f"{HERMES}\n\nThis is an example. {HERMES}",
    ],
)
def test_a_mention_is_reported_once(text: str) -> None:
    choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}
    body = {"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}
    whole = translate(body, "response", source="openai-chat", target="openai-chat", request=REQUEST, tool_format="auto")
    assert whole.json() == body
    assert [loss.code for loss in whole.losses] == ["call-mentioned"]
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}, *({"content": one} for one in text)]
    chunks = [{"index": 0, "delta": delta, "finish_reason": None} for delta in deltas]
    chunks.append({"index": 0, "delta": {}, "finish_reason": "stop"})
    same = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    sent = b"".join(b"data: " + json.dumps({**same, "choices": [one]}).encode() + b"\n\n" for one in chunks)
    stream = Stream(source="openai-chat", target="openai-chat", request=REQUEST, tool_format="auto")
    written = stream.feed(sent + b"data: [DONE]\n\n") + stream.close()
    assert [json.loads(frame) for frame in written.split(b"data: ")[1:-1]] == [
        {**same, "choices": [one]} for one in chunks
    ]
    assert [loss.code for loss in stream.losses] == ["call-mentioned"]
