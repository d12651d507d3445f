"""Texts that only look like calls: they reach the user as they are."""

from __future__ import annotations

import json

import pytest

from tool_formats.reading import every_split, read_pieces
from tool_formats.tools import TOOLS

CALL = json.dumps({"name": "look_up", "arguments": {"word": "gate"}})
MARKED = f"<tool_call>{CALL}</tool_call>"

INNOCENT = [
    "Hello.",
    "x < y, y > z, a[i] and {b}",
    "functools[]",
    "assistantfinal is a word that leaks.",
    "Map<String, List<tool_call>> is a type.",
    f"Use this:\n\n```xml\n{MARKED}\n```\n\nThat is all.",
    f"Use this:\n\n~~~\n{MARKED}\n~~~\n",
    f"````markdown\n```\n{MARKED}\n```\n{MARKED}\n````\nSo it is.",
    f"```\n{MARKED}\n```python\n{MARKED}\n```\n",
    f"```json\n{CALL}\n```\nThis is an example.",
    f"First:\n```json\n{CALL}\n```",
    f"It begins with `{MARKED}`.",
    f"It begins with ``{MARKED}``, not with a tag.",
    f"`<tool_call>\n{CALL}\n</tool_call>` on three lines.",
    f"> {MARKED}\n\nwas the answer.",
    f"Example:\n\n    {MARKED}\n\nEnd.",
    f'He wrote "{MARKED}" to me.',
    "<tool_call>not JSON</tool_call>",
    '<tool_call>{"name": "fly", "arguments": {}}</tool_call>',
    '<tool_call name="fly">{"x": 1}</tool_call>',
    '<tool_call name="look_up">gate</tool_call>',
    '<tool_call name="look_up">{"word": "gate"}',
    """<tool_call name="look_up" arguments='{"word": "gate"}'/>""",
    '<tool_call name="look_up" word="gate"></tool_call>',
    '<tool_call name="stop" now="yes"/>',
    '<invoke name="look_up" word="gate"/>',
    '<function name="look_up" word="gate"></function>',
    f"The tag <tool_call> is followed by {CALL}",
    f"<tool_call>{CALL} and so on",
    '<tool_call>{"name": "look_up", "arguments": {"word": "ga',
    f"This is JSON: {CALL}",
    f"{CALL} is JSON.",
    '{"name": "Ada Lovelace", "born": 1815}',
    '{"name": "look_up", "age": 3}',
    '{"name": "look_up"}',
    '[{"name": "look_up"}, {"name": "stop"}]',
    '<tools>{"type": "function", "function": {"name": "stop", "parameters": {"type": "object", "properties": {}}}}</tools>',
    "See [look_up](http://example.org) and [1], [stop].",
    "[look_up(word)](http://example.org)",
    "Lists: [1, 2], [look_up, stop], [look_up(1)].",
    "[fly(x=1)]",
    "Call look_up(word='gate') to look it up.",
    "look_up is a tool.",
    "python\nis a language.",
    "functools is a module.\nfunctools.reduce(f, [1])",
    "The token <|python_tag|> starts a call.",
    "[TOOL_CALLS] marks calls.",
    "[TOOL_CALLS]fly[ARGS]{}",
    ">>> look_up\nNameError",
    "Our plan.\nThought: none\nAction: none\nAction Input: none",
    "Action: look_up\nAction Input: gate\nObservation: a gate\nFinal Answer: gate",
    "Thought: I know.\nFinal Answer: 3",
    "The </think> tag ends it, and <think> begins it.",
    "Use </s> to end.",
    "<|START_ACTION|>[]",
    "```tool_code\nfly(x=1)\n```",
    "```python\nlook_up(word='gate')\n```",
    "```html\n<look_up>gate</look_up>\n```",
    '<tool_call>{"name": "look_up"}</tool_call>',
    '<|tool_call|>[{"name": "look_up"',
    "The </tool_call> tag ends it.",
    '[look_up]\n{"word": "gate"}\n[END]',
    '[fly]\n{"x": 1}\n[END_TOOL_REQUEST]',
    "[look_up] and [stop]\n[stop]",
    "x = [look_up(word='gate')]",
    "x[look_up(word='gate')] += f(x)[stop()]",
    "Here <think>it</think> is shown.",
    "Above.\n<think>\nthis\n</think>\nBelow.",
    "<look_up>\n</look_up>",
    "Now <think> is a tag.\n<think> opens reasoning.",
    '{"action": "Final Answer", "action_input": "gate"}',
    'A.<|message_model|>fly<|content_invoke_tool_json|>{"name": "fly", "args": {}}<|end_message|>',
]


@pytest.mark.parametrize("text", INNOCENT)
def test_innocent_text_stays(text: str) -> None:
    for chunks in every_split(text):
        pieces = read_pieces(text, TOOLS, chunks)
        assert "".join(map(str, pieces)) == text


@pytest.mark.parametrize(
    "text",
    [
        f"<tool_call>{CALL}",
        f"<tool_call>{CALL[:-1]}",
        "[TOOL_CALLS]stop",
        '[TOOL_CALLS]look_up[ARGS]{"word": "ga',
        "[look_up(word='ga",
        "<|tool_call_start|>[stop(",
        CALL[:-1],
        "Action: look_up\nAction Input: ga",
    ],
)
def test_what_was_cut_off_is_no_call(text: str) -> None:
    for chunks in every_split(text):
        assert "".join(map(str, read_pieces(text, TOOLS, chunks, was_cut=True))) == text


def test_json_is_the_answer_where_the_request_asks_for_it() -> None:
    for text in (CALL, f"[{CALL}]", f"```json\n{CALL}\n```"):
        assert "".join(map(str, read_pieces(text, TOOLS, [text], expects_json=True))) == text


@pytest.mark.parametrize("text", [f"So: {CALL}", f"So:\n```json\n{CALL}\n```\nDone.", f"{CALL} done"])
def test_json_anywhere_is_a_call_where_one_is_required(text: str) -> None:
    for chunks in every_split(text):
        pieces = read_pieces(text, TOOLS, chunks, is_call_required=True)
        assert [getattr(piece, "name", None) for piece in pieces if not isinstance(piece, str)] == ["look_up"]
