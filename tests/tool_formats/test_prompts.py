"""Calls and results as text of a prompt: the table of formats, and the law that each reader reads what is written."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolwire.call_repair.offered_tools import OfferedTools
from toolwire.core.ir import Tool
from toolwire.tool_formats.families import formats_for_model
from toolwire.tool_formats.frame import TextCall
from toolwire.tool_formats.prompt_table import GENERIC, PROMPTS
from toolwire.tool_formats.prompt_writers import PromptCall, PromptResult
from toolwire.tool_formats.prompts import declare_tools, write_calls
from toolwire.tool_formats.text_reader import TextReader

Object = dict[str, Any]
PROPERTIES: Object = {
    "text": {"type": "string"},
    "from": {"type": "string"},
    "count": {"type": "integer"},
    "deep": {"type": "boolean"},
    "ratio": {"type": "number"},
    "names": {"type": "array", "items": {"type": "string"}},
    "more": {"type": "object"},
}
TOOLS = [
    Tool("get_weather", "The weather", {"type": "object", "properties": PROPERTIES}),
    Tool("read-file", "Reads a file", {"type": "object", "properties": PROPERTIES}),
    Tool("stop", None, None),
]
every_format = pytest.mark.parametrize("name", PROMPTS)

# --- the table --------------------------------------------------------------------------------------------------------

TWO = [
    PromptCall("get_weather", '{"text": "Paris", "count": 3}', "abcdefghi", 4),
    PromptCall("stop", "{}", "call_2", 5),
]
CALLS = {
    "hermes": (
        '<tool_call>\n{"name": "get_weather", "arguments": {"text": "Paris", "count": 3}}\n</tool_call>\n'
        '<tool_call>\n{"name": "stop", "arguments": {}}\n</tool_call>'
    ),
    "qwen3_coder": (
        "<tool_call>\n<function=get_weather>\n<parameter=text>\nParis\n</parameter>\n<parameter=count>\n3\n</parameter>\n"
        "</function>\n</tool_call>\n<tool_call>\n<function=stop>\n</function>\n</tool_call>"
    ),
    "glm": (
        "<tool_call>get_weather\n<arg_key>text</arg_key>\n<arg_value>Paris</arg_value>\n<arg_key>count</arg_key>\n"
        "<arg_value>3</arg_value>\n</tool_call>\n<tool_call>stop\n</tool_call>"
    ),
    "llama3_json": (
        '{"name": "get_weather", "parameters": {"text": "Paris", "count": 3}}; {"name": "stop", "parameters": {}}'
    ),
    "pythonic": '[get_weather(text="Paris", count=3), stop()]',
    "mistral_json": (
        '[TOOL_CALLS] [{"name": "get_weather", "arguments": {"text": "Paris", "count": 3}, "id": "abcdefghi"}, '
        '{"name": "stop", "arguments": {}, "id": "1b68f83fa"}]'
    ),
    "mistral_args": (
        '[TOOL_CALLS]get_weather[CALL_ID]abcdefghi[ARGS]{"text": "Paris", "count": 3}'
        "[TOOL_CALLS]stop[CALL_ID]1b68f83fa[ARGS]{}"
    ),
    "deepseek_v3": (
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n```json\n"
        '{"text": "Paris", "count": 3}\n```<｜tool▁call▁end｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>stop\n```json\n{}\n'
        "```<｜tool▁call▁end｜><｜tool▁calls▁end｜>"
    ),
    "deepseek_v31": (
        '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>{"text": "Paris", "count": 3}<｜tool▁call▁end｜>'
        "<｜tool▁call▁begin｜>stop<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>"
    ),
    "deepseek_dsml": (
        '<｜DSML｜function_calls>\n<｜DSML｜invoke name="get_weather">\n'
        '<｜DSML｜parameter name="text" string="true">Paris</｜DSML｜parameter>\n'
        '<｜DSML｜parameter name="count" string="false">3</｜DSML｜parameter>\n</｜DSML｜invoke>\n'
        '<｜DSML｜invoke name="stop">\n</｜DSML｜invoke>\n</｜DSML｜function_calls>'
    ),
    "kimi_k2": (
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:4<|tool_call_argument_begin|>"
        '{"text": "Paris", "count": 3}<|tool_call_end|><|tool_call_begin|>functions.stop:5<|tool_call_argument_begin|>{}'
        "<|tool_call_end|><|tool_calls_section_end|>"
    ),
    "granite3": (
        '<|tool_call|>[{"name": "get_weather", "arguments": {"text": "Paris", "count": 3}}, '
        '{"name": "stop", "arguments": {}}]'
    ),
    "functools": (
        'functools[{"name": "get_weather", "arguments": {"text": "Paris", "count": 3}}, {"name": "stop", "arguments": {}}]'
    ),
    "gemma_tool_code": '```tool_code\nget_weather(text="Paris", count=3)\nstop()\n```',
    "olmo3": '<function_calls>get_weather(text="Paris", count=3)\nstop()</function_calls>',
    "lfm2": '<|tool_call_start|>[get_weather(text="Paris", count=3), stop()]<|tool_call_end|>',
    "nemotron_toolcall": (
        '<TOOLCALL>[{"name": "get_weather", "arguments": {"text": "Paris", "count": 3}}, '
        '{"name": "stop", "arguments": {}}]</TOOLCALL>'
    ),
    "anthropic_xml": (
        '<function_calls>\n<invoke name="get_weather">\n<parameter name="text">Paris</parameter>\n'
        '<parameter name="count">3</parameter>\n</invoke>\n<invoke name="stop">\n</invoke>\n</function_calls>'
    ),
    "minimax_m2": (
        '<minimax:tool_call>\n<invoke name="get_weather">\n<parameter name="text">Paris</parameter>\n'
        '<parameter name="count">3</parameter>\n</invoke>\n<invoke name="stop">\n</invoke>\n</minimax:tool_call>'
    ),
    "seed_oss": (
        "<seed:tool_call>\n<function=get_weather>\n<parameter=text>Paris</parameter>\n<parameter=count>3</parameter>\n"
        "</function>\n</seed:tool_call>\n<seed:tool_call>\n<function=stop>\n</function>\n</seed:tool_call>"
    ),
    "cohere": (
        '<|START_ACTION|>[\n    {"tool_call_id": "4", "tool_name": "get_weather", "parameters": '
        '{"text": "Paris", "count": 3}},\n    {"tool_call_id": "5", "tool_name": "stop", "parameters": {}}\n]<|END_ACTION|>'
    ),
}
RESULTS = {
    "llama3_json": '[Output of get_weather]\n{"output": "15 °C"}\n[Output of stop]\n{"output": "ok"}',
    "mistral_json": (
        '[TOOL_RESULTS] {"content": "15 °C", "call_id": "abcdefghi"}[/TOOL_RESULTS]\n'
        '[TOOL_RESULTS] {"content": "ok", "call_id": "1b68f83fa"}[/TOOL_RESULTS]'
    ),
    "mistral_args": (
        "[TOOL_RESULTS]abcdefghi[TOOL_CONTENT]15 °C[/TOOL_RESULTS]\n[TOOL_RESULTS]1b68f83fa[TOOL_CONTENT]ok[/TOOL_RESULTS]"
    ),
    "kimi_k2": "## Return of functions.get_weather:4\n15 °C\n\n## Return of functions.stop:5\nok",
    "nemotron_toolcall": '<TOOL_RESPONSE>["15 °C", "ok"]</TOOL_RESPONSE>',
    "gemma_tool_code": "```tool_output\n15 °C\n```\n```tool_output\nok\n```",
    "deepseek_v31": (
        "<｜tool▁outputs▁begin｜><｜tool▁output▁begin｜>15 °C<｜tool▁output▁end｜>\n"
        "<｜tool▁output▁begin｜>ok<｜tool▁output▁end｜><｜tool▁outputs▁end｜>"
    ),
}


@every_format
def test_calls_are_written_as_models_write_them(name: str) -> None:
    assert write_calls(PROMPTS[name], TWO, TOOLS) == CALLS[name]


@pytest.mark.parametrize("name", RESULTS)
def test_results_name_their_calls_as_the_format_does(name: str) -> None:
    results = [PromptResult("15 °C", "get_weather", "abcdefghi", 4), PromptResult("ok", "stop", "call_2", 5)]
    assert PROMPTS[name].results.write(results) == RESULTS[name]


@every_format
def test_every_format_declares_all_tools_and_stops_before_results(name: str) -> None:
    prompt = PROMPTS[name]
    text = declare_tools(prompt, TOOLS)
    assert "$tools" not in text
    assert all(tool.name in text for tool in TOOLS)
    assert json.dumps(PROPERTIES) in text
    assert prompt.results.write([PromptResult("ok", "stop")]).startswith(prompt.results.start)


# --- the law ----------------------------------------------------------------------------------------------------------

MARKS = sorted(
    {
        "</parameter>",
        "</tool_call>",
        "</arg_value>",
        "</function>",
        "<tool_call>",
        "[ARGS]",
        "[TOOL_CALLS]",
        "```",
        '"',
        "'",
    }
    | {
        "\\",
        "\n",
        "</invoke>",
        "<|tool_call_end|>",
        "<｜tool▁call▁end｜>",
        "</think>",
        "<think>",
        "; ",
        "]",
        "}",
        ")",
        "functools[",
    }
    | {
        "<parameter=x>\n",
        "</｜DSML｜parameter>",
        "<|END_ACTION|>",
        "</TOOLCALL>",
        "</function_calls>",
        "&amp;",
        "\u2028",
        "🙂",
    }
)
texts = st.lists(st.one_of(st.sampled_from(MARKS), st.text(max_size=8)), max_size=5).map("".join)
numbers = st.integers(-(2**53), 2**53)
values = st.one_of(st.none(), st.booleans(), numbers, texts, st.lists(texts, max_size=2))
arguments = st.fixed_dictionaries(
    {},
    optional={
        "text": texts,
        "from": texts,
        "count": numbers,
        "deep": st.booleans(),
        "ratio": st.floats(allow_nan=False, allow_infinity=False, width=32),
        "names": st.lists(texts, max_size=3),
        "more": st.dictionaries(texts, values, max_size=3),
    },
)
calls = st.lists(st.tuples(st.sampled_from([tool.name for tool in TOOLS[:2]]), arguments), min_size=1, max_size=3)


def read(text: str, formats: tuple[str, ...]) -> list[tuple[str, Object] | str]:
    rows = tuple(row for name in formats for row in formats_for_model("", name))
    reader = TextReader(OfferedTools(TOOLS), rows, is_call_required=True)
    pieces = [*reader.feed(text), *reader.close(False)]
    return [
        (piece.name, json.loads(piece.arguments)) if isinstance(piece, TextCall) else str(piece)
        for piece in pieces
        if not isinstance(piece, str) or piece.strip()
    ]


@pytest.mark.slow
@every_format
@settings(deadline=None, max_examples=30)
@given(calls)
def test_what_is_written_is_read_back(name: str, calls: list[tuple[str, Object]]) -> None:
    written = [
        PromptCall(tool, json.dumps(given, ensure_ascii=False), f"call_{number}", number)
        for number, (tool, given) in enumerate(calls)
    ]
    assert read(write_calls(PROMPTS[name], written, TOOLS), tuple(dict.fromkeys((name, GENERIC)))) == calls


@every_format
def test_a_call_with_marks_of_every_format(name: str) -> None:
    given = {"text": "".join(MARKS)}
    text = write_calls(PROMPTS[name], [PromptCall("get_weather", json.dumps(given))], TOOLS)
    assert read(text, tuple(dict.fromkeys((name, GENERIC)))) == [("get_weather", given)]


FILES = [
    {"text": "def f(x):\n    if x < 3 and x > 1:\n        return \"it's\"\n\n\nprint(f'{f(2)}')\n"},
    {"text": '<html>\n<body class="x">&amp; </body>\n</html>\n'},
    {"text": "\n  blanks around  \n\n"},
    {"text": "```sh\nls\n```\n"},
    {"text": "C:\\new \\d+ \\u0041\r\n"},
    {"text": "5", "count": 5, "names": ["true", "null"]},
]


@every_format
@pytest.mark.parametrize("given", FILES)
def test_what_agents_write_stays_in_the_models_own_format(name: str, given: Object) -> None:
    calls = [PromptCall("get_weather", json.dumps(given), "call_1")]
    assert write_calls(PROMPTS[name], calls, TOOLS) == PROMPTS[name].write_calls(calls)
