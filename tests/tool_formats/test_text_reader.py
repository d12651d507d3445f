"""The laws of the reader of text: any split gives the same, no text is lost, and the work is linear."""

from __future__ import annotations

import json
from itertools import groupby
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from step_count import count_steps
from tool_formats.reading import every_split, offer_tools, read_pieces, split_randomly, sum_up
from tool_formats.tools import TOOLS
from tool_formats.written_calls import WRITERS
from toolwire.call_repair.offered_tools import OfferedTools
from toolwire.tool_formats import quoted_text, reader_states, reasoning_marks, text_reader
from toolwire.tool_formats.formats import FORMATS
from toolwire.tool_formats.frame import Frame, Piece, ReasoningText, Situation, TextCall, ToolFormat, Waiting
from toolwire.tool_formats.mentions import MAX_BEHIND
from toolwire.tool_formats.text_reader import TextReader

NAMES = {row.name for row in FORMATS}
LOOK = json.dumps({"name": "look_up", "arguments": {"word": "gate"}})
MARKED = f"<tool_call>{LOOK}</tool_call>"

# --- streams ---


def feed_all(reader: TextReader, *texts: str) -> list[list[Piece]]:
    return [reader.feed(text) for text in texts]


def test_text_flows_at_once_and_only_a_possible_mark_is_held() -> None:
    reader = TextReader(TOOLS, FORMATS)
    assert feed_all(reader, "Hello", " you", " <", "b ", "and <tool_", "x y") == [
        [], ["Hello you"], [" "], ["<b "], ["and "], ["<tool_x y"],
    ]  # fmt: skip


def test_a_call_waits_for_what_follows_it() -> None:
    """It may say that the call is not meant, or end reasoning in which the call is a draft. But not for ever."""
    reader = TextReader(TOOLS, FORMATS)
    assert reader.feed(f"Hm. {MARKED}\n") == ["Hm. "]
    assert reader.feed("Done.") == []
    call, text = reader.close(False)
    assert isinstance(call, TextCall)
    assert (call.name, call.format, text) == ("look_up", "hermes", "\nDone.")


@pytest.mark.parametrize(("thought", "limit"), [("", text_reader._MAX_AFTER_CALL), ("<think>Hm.</think>", MAX_BEHIND)])
def test_text_behind_a_call_waits_until_a_limit(thought: str, limit: int) -> None:
    reader = TextReader(TOOLS, FORMATS)
    reader.feed(f"{thought}Okay. {MARKED}\n")
    assert reader.feed("Yes. " * (limit // 5 - 1)) == []
    call, text = reader.feed("Yes. " * 2)
    assert isinstance(call, TextCall)
    assert text == "\n" + "Yes. " * (limit // 5 + 1)
    assert reader.feed("Yes. ") == ["Yes. "]


def test_calls_that_wait_become_text_when_a_structured_call_comes() -> None:
    reader = TextReader(TOOLS, FORMATS)
    assert reader.feed(f"Hm. {MARKED}\n<tool_ca") == ["Hm. "]
    assert reader.discard_calls() == [f"{MARKED}\n"]
    assert join_texts(reader.feed(f"ll> {MARKED}") + reader.close(False)) == [f"<tool_call> {MARKED}"]


@pytest.mark.parametrize(
    ("text", "facts", "expected"),
    [
        ("<think>a\nb</think>\n\nc", {}, [ReasoningText("a\nb"), "c"]),
        ("<think></think>c", {}, ["c"]),
        ("a</think>c", {"is_reasoning_open": True}, [ReasoningText("a"), "c"]),
        ("<think>a</think>c", {"is_reasoning_open": True}, [ReasoningText("a"), "c"]),
        ("a</think>c", {}, ["a\nc"]),
        ("[THINK]a[/THINK]c", {}, [ReasoningText("a"), "c"]),
        ("<think>a</think><response>c</response>", {}, [ReasoningText("a"), "c"]),
        ("<think>a", {}, [ReasoningText("a")]),
        ("c<|im_end|>", {}, ["c"]),
        ("<think>a <tool_call>b</tool_call>", {}, [ReasoningText("a <tool_call>b</tool_call>")]),
        (f"<think>a {MARKED}</think>c", {}, [ReasoningText(f"a {MARKED}"), "c"]),
    ],
)
def test_reasoning(text: str, facts: dict[str, bool], expected: list[Piece]) -> None:
    for chunks in every_split(text):
        assert join_texts(read_pieces(text, TOOLS, chunks, **facts)) == expected


@pytest.mark.parametrize(
    ("text", "content", "reasoning"),
    [
        ("Hm.</think>Yes.", "Hm.\nYes.", ""),
        ("Hm.\n</think>\n\nYes.", "Hm.\nYes.", ""),
        ("<thinking>Hm.</thinking>Yes.", "Yes.", "Hm."),
        ("<|channel|>analysis<|message|>A<|end|><|channel|>analysis<|message|>B<|end|><|channel|>final<|message|>C", "C", "A\nB"),
        ("<|channel|>commentary<|message|>A<|end|><|channel|>final<|message|>B", "A\nB", ""),
    ],
)  # fmt: skip
def test_words_around_a_dropped_mark_do_not_run_together(text: str, content: str, reasoning: str) -> None:
    for chunks in every_split(text):
        pieces = read_pieces(text, TOOLS, chunks)
        assert "".join(one for one in pieces if isinstance(one, str)) == content
        assert "".join(one.text for one in pieces if isinstance(one, ReasoningText)) == reasoning


def test_a_call_ends_reasoning_that_is_never_closed() -> None:
    text = f"<think>I look it up. {MARKED}"
    for chunks in every_split(text):
        reasoning, call = join_texts(read_pieces(text, TOOLS, chunks))
        assert reasoning == ReasoningText("I look it up. ")
        assert isinstance(call, TextCall)


def test_reasoning_flows() -> None:
    reader = TextReader(TOOLS, FORMATS)
    assert feed_all(reader, "<think>", "a", "b</th", "ink>") == [[], [ReasoningText("a")], [ReasoningText("b")], []]


def join_texts(pieces: list[Piece]) -> list[Piece]:
    """Texts that follow each other as one."""
    joined: list[Piece] = []
    for piece in pieces:
        last = joined[-1] if joined else None
        if isinstance(piece, str) and isinstance(last, str):
            joined[-1] = last + piece
        elif isinstance(piece, ReasoningText) and isinstance(last, ReasoningText):
            joined[-1] = ReasoningText(last.text + piece.text)
        else:
            joined.append(piece)
    return joined


# --- generated calls ---

TYPES = {
    "text": "string", "other": "string", "count": "integer", "ratio": "number", "flag": "boolean", "items": "array",
    "options": "object",
}  # fmt: skip
GENERATED_TOOLS = [
    {"function": {"name": name, "parameters": {"type": "object", "properties": {k: {"type": t} for k, t in TYPES.items()}}}}
    for name in ("alpha", "beta_two", "gamma")
]  # fmt: skip

words = st.text(st.sampled_from("abc \n\t\"'\\{}[]():,;=/`|é雪🙂#&"), max_size=12)
plain_words = st.text(st.sampled_from("abc é雪"), min_size=1, max_size=8).map(lambda text: f"x{text}x")
"""Tag formats have no escapes, so their values can hold nothing that looks like their marks."""
numbers = st.integers(-(10**6), 10**6)
ratios = st.floats(-100, 100).map(lambda value: round(value, 2) + 0.005)


def arguments(texts: st.SearchStrategy[str]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(
        {},
        optional={
            "text": texts, "other": texts, "count": numbers, "ratio": ratios, "flag": st.booleans(),
            "items": st.lists(numbers | texts, max_size=3), "options": st.dictionaries(st.sampled_from(["k", "l"]), texts),
        },
    )  # fmt: skip


TAGS = {
    "qwen3_coder", "seed_oss", "glm", "hy3", "minimax_m2", "deepseek_dsml", "anthropic_xml", "gemma4", "functiongemma",
}  # fmt: skip
WHOLE_ANSWER = {"llama3_json", "json"}
"""Text beside the call makes it an example."""


@pytest.mark.slow
@pytest.mark.parametrize("format", sorted(WRITERS))
@settings(deadline=None, max_examples=8)
@given(data=st.data())
def test_written_calls_are_read(format: str, data: st.DataObject) -> None:
    texts = plain_words if format in TAGS else words
    tools = offer_tools(GENERATED_TOOLS)
    calls = data.draw(
        st.lists(st.tuples(st.sampled_from(["alpha", "beta_two", "gamma"]), arguments(texts)), min_size=1, max_size=3)
    )
    is_alone = format in WHOLE_ANSWER
    before = (
        ""
        if is_alone
        else data.draw(st.sampled_from(["", "Let me see.\n", "I see `5`. Let me check.\n\n", "<b>Now.</b>\n"]))
    )
    after = "" if is_alone else data.draw(st.sampled_from(["", "\n", "\n\nDone."]))
    thought = data.draw(st.sampled_from(["", "<think>hm</think>"]))
    text = thought + before + WRITERS[format](calls) + after
    whole = sum_up(read_pieces(text, tools, [text]))
    assert [(name, found) for name, found, _ in whole.calls] == calls
    assert whole.content == " ".join((before + after).split())
    for chunks in (list(text), split_randomly(text, data.draw(st.integers(0, 99)))):
        assert sum_up(read_pieces(text, tools, chunks)) == whole


# --- a fuzz of marks ---

NO_FRAME = {"kimi_k3", "muse_glimmer", "harmony", "lfm2", "cohere_action", "functionary_v32"}
"""Formats with marks that are dropped without a call."""
OPENINGS = sorted({text for row in FORMATS for text in row.openings if row.name not in NO_FRAME} - {""})
FRAGMENTS = [
    *OPENINGS, "</tool_call>", "</function>", "[ARGS]", "[CALL_ID]", "look_up", "stop", "fly", LOOK, '{"name": "', '"', "'",
    "{", "}", "]", "(", ")", "word='a'", ": ", ", ", "\n", "\n\n", "    ", "> ", "`", "```", "```json\n", "~~~\n", " ", "x", "\\",
    "é", "Action Input: ", "Observation:", "<", "<|", "</", "parameter=word>", "<parameter=word>", "</parameter>",
]  # fmt: skip


@pytest.mark.slow
@settings(deadline=None, max_examples=120)
@given(st.lists(st.sampled_from(FRAGMENTS), max_size=14).map("".join), st.booleans(), st.integers(0, 99))
def test_no_text_is_lost_without_offered_tools(text: str, was_cut: bool, seed: int) -> None:
    formats = [row for row in FORMATS if row.name not in NO_FRAME]
    for chunks in ([text], list(text), split_randomly(text, seed)):
        reader = TextReader(OfferedTools([]), formats)
        pieces = [piece for chunk in chunks for piece in reader.feed(chunk)] + reader.close(was_cut)
        assert "".join(map(str, pieces)) == text or "[]" in text


@pytest.mark.slow
@settings(deadline=None, max_examples=120)
@given(
    st.lists(st.sampled_from([*FRAGMENTS, "<think>", "</think>", "</s>", "<|call|>"]), max_size=14).map("".join),
    st.booleans(), st.integers(0, 99),
)  # fmt: skip
def test_any_split_gives_the_same(text: str, was_cut: bool, seed: int) -> None:
    whole = sum_up(read_pieces(text, TOOLS, [text], was_cut=was_cut))
    for chunks in (list(text), split_randomly(text, seed)):
        assert sum_up(read_pieces(text, TOOLS, chunks, was_cut=was_cut)) == whole


@pytest.mark.parametrize(
    "text",
    [
        "CALL\nDone.\n",
        "CALL\nLet me also check the weather. \n\nCALL\n",
        "CALL  \n\n  CALL\n \n",
        "CALL \n Okay. \n Done.\n",
    ],
)
def test_blanks_behind_words_stay_in_every_split(text: str) -> None:
    text = text.replace("CALL", '<tool_call>{"name": "stop", "arguments": {}}</tool_call>')
    whole = read_pieces(text, TOOLS, [text])
    for chunks in every_split(text):
        kinds = groupby(read_pieces(text, TOOLS, chunks), lambda one: isinstance(one, str))
        assert [
            piece for is_text, group in kinds for piece in (["".join(map(str, group))] if is_text else group)
        ] == whole


# --- bounds ---

MOST_STEPS = 300
"""For a mark that is repeated, and for a piece of a stream."""


class _Counter:
    """Counts the characters that readers were asked about."""

    def __init__(self) -> None:
        self.characters = 0

    def wrap(self, row: ToolFormat) -> ToolFormat:
        def read_frame(text: str, start: int, situation: Situation) -> Frame | Waiting | None:
            self.characters += len(text) - start
            return row.read_frame(text, start, situation)

        return ToolFormat(
            row.name, row.openings, read_frame, row.place, is_bare_json=row.is_bare_json,
            needs_required_call=row.needs_required_call,
        )  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    "part", [*OPENINGS, '<tool_call>{"', "[look_up(word='", "[TOOL_CALLS]look_up{", "</tool_call>", LOOK]
)
@pytest.mark.parametrize("size", [7, 10**6])
def test_readers_are_asked_about_a_bounded_number_of_characters(
    part: str, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text_reader, "MAX_HELD", 2500)
    monkeypatch.setattr(reader_states, "FREE_WORK", 10_000)
    text = part * (10_000 // len(part))
    counter = _Counter()
    reader = TextReader(TOOLS, [counter.wrap(row) for row in FORMATS])
    for at in range(0, len(text), size):
        reader.feed(text[at : at + size])
        assert reader._held < 2500
    reader.close(False)
    assert counter.characters <= 8 * len(text) + 15_000


def test_what_is_too_long_becomes_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_reader, "MAX_HELD", 200)
    text = f'<tool_call>{{"name": "look_up", "arguments": {{"word": "{"x" * 300}"}}}}</tool_call>\n{MARKED}'
    outcomes = [sum_up(read_pieces(text, TOOLS, chunks)) for chunks in every_split(text)]
    assert all(one == outcomes[0] for one in outcomes)
    assert outcomes[0].calls == [("look_up", {"word": "gate"}, "")]


@pytest.mark.parametrize("piece", ["[", "[[", "[{", " [", "[1, "])
def test_brackets_that_begin_no_call_are_passed_together(piece: str) -> None:
    """An answer of 120,000 brackets was looked at bracket by bracket, which took a second."""

    def read(count: int) -> None:
        text = "Hello " + piece * count
        reader = TextReader(TOOLS, FORMATS)
        assert "".join(map(str, reader.feed(text) + reader.close(False))) == text

    small, large = (count_steps(lambda count=count: read(count)) for count in (1000, 3000))
    assert large - small < 2000


def test_a_long_line_in_pieces_is_searched_at_its_end() -> None:
    """A line of 3 MB took a second when the answer ended: all of it was searched for blocks of markup."""

    def end_line(count: int) -> int:
        reader = TextReader(TOOLS, FORMATS)
        for piece in ["Hello ", *["'" * 100] * count]:
            assert reader.feed(piece) == [piece]
        return count_steps(lambda: reader.close(False))

    assert end_line(1000) == end_line(100)


@pytest.mark.parametrize("line", ["[code=" * 100_000, "{code:" * 100_000], ids=["bbcode", "jira"])
def test_openings_of_blocks_that_do_not_end_are_not_searched_to_the_end_of_the_line(line: str) -> None:
    """Each was: 16 kB stopped the event loop for a quarter of a second, and this would take minutes."""
    block = quoted_text._OpenBlock()
    block.pass_lines(line)
    assert not block.kind


@pytest.mark.parametrize("inside", ["<table>", "/* x ", '"""', "{{{", "[code]"])
def test_long_inline_code_opens_no_block(inside: str) -> None:
    """What stands in it is no markup, or each call behind it would be taken for a part of that."""
    block = quoted_text._OpenBlock()
    block.pass_lines(f"The page is ``{'a `word` ' * 500}{inside} x`` as it was.\n")
    assert not block.kind
    block.pass_lines(f"It is `` {inside}\n")
    assert block.kind


MARKS = sorted({
    *OPENINGS, *reasoning_marks.END_TOKENS, *reasoning_marks.CALL_ENDS, *reasoning_marks.STRAY_CLOSINGS,
    *reasoning_marks.ANSWER_MARKS, *reasoning_marks.ANSWER_TOKENS, *reasoning_marks.OPENING_MARKS,
    ">", "|>", "<", "</s>\n", "\n<x>", "[f(", "[look_up(", '{"name":', "<function=", "<|channel|>", "Thought: x\n",
    "[TOOL_CALLS]look_up[ARGS]{", "<tool_call></think>", "<|channel|><|end|>[f(", "<think><tool_call></think>",
} - {""})  # fmt: skip


@pytest.mark.parametrize("piece", MARKS)
@pytest.mark.parametrize("before", ["", "Hello ", "<think>"])
def test_an_answer_of_one_mark_takes_few_steps(before: str, piece: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A piece of a stream can be 64 kB of them, and other streams wait for it."""
    monkeypatch.setattr(text_reader, "MAX_REFUSALS", 20)
    monkeypatch.setattr(reader_states, "FREE_WORK", 10_000)

    def read(count: int, size: int) -> None:
        text = before + piece * count + " x"
        reader = TextReader(TOOLS, FORMATS)
        for at in range(0, len(text), size):
            reader.feed(text[at : at + size])
        reader.close(False)

    for size in (10**6, 7):
        read(10, size)
        small, large = (count_steps(lambda count=count, size=size: read(count, size)) for count in (200, 400))
        assert large - small < 200 * MOST_STEPS + (len(piece) * 200 // size) * MOST_STEPS
