"""One to three calls of our own in each format, with the damage that models do to it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tool_formats.reading import every_split, read_pieces, sum_up
from tool_formats.tools import TOOLS
from toolwire.tool_formats.families import ALIASES, expected_formats, formats_for_model
from toolwire.tool_formats.formats import FORMATS
from toolwire.tool_formats.frame import TextCall

Call = tuple[str, dict[str, Any]]

LOOK: Call = ("look_up", {"word": "gate"})
MOVE: Call = ("move", {"x": 1, "fast": True})
STOP: Call = ("stop", {})
RUN: Call = ("python", {"code": "print(6 * 7)"})
OTHER: Call = ("fly", {"x": 1})


def write_call(call: Call, key: str = "arguments") -> str:
    return json.dumps({"name": call[0], key: call[1]})


FOUND: list[tuple[str, str, list[Call], str]] = [
    # format, text, calls, what is left for the user
    ("hermes", f"Wait.\n<tool_call>\n{write_call(LOOK)}\n</tool_call>", [LOOK], "Wait."),
    ("hermes", f"<tool_call>{write_call(LOOK)}</tool_call> and <tool_call>{write_call(MOVE)}</tool_call>", [LOOK, MOVE], "and"),
    ("hermes", f"<tool_call>{write_call(LOOK)}", [LOOK], ""),
    ("hermes", f"<tool_call>{write_call(LOOK)[:-1]}", [LOOK], ""),
    ("hermes", f"<tool_call>{write_call(LOOK)}\n<tool_call>{write_call(MOVE)}</tool_call>", [LOOK, MOVE], ""),
    ("hermes", f"<tool_call>[{write_call(LOOK)}, {write_call(MOVE)}]</tool_call>", [LOOK, MOVE], ""),
    ("hermes", f"<tools>{write_call(STOP)}</tools>", [STOP], ""),
    ("hermes", '<tool_call>{"name": "look_up", "arguments": {"word": "</tool_call>"}}</tool_call>', [("look_up", {"word": "</tool_call>"})], ""),
    ("hermes", "<tool_call>{'name': 'look_up', 'arguments': {'word': 'gate',}}</tool_call>", [LOOK], ""),
    ("hermes", f"<tool_call>\n<tool_call>{write_call(LOOK)}</tool_call></tool_call>\n</tool_call> Ok.", [LOOK], "Ok."),
    ("hermes", f"<JSON>\n  {write_call(LOOK)}\n</JSON>", [LOOK], ""),
    ("hermes", '<tool_call>{"name": "stop"}</tool_call>', [STOP], ""),
    ("hermes", f"<tool_call>\n```json\n{write_call(LOOK)}\n```\n</tool_call>", [LOOK], ""),
    ("hermes", '<tool_call>{"look_up": {"word": "gate"}}</tool_call>', [LOOK], ""),
    ("hermes", f"<tool_call>{write_call(LOOK)}\n<tool_call>\n", [LOOK], ""),
    ("hermes", f"<tool_use>{write_call(LOOK)}</tool_use>", [LOOK], ""),
    ("glm", '<tool_call>look_up\n{"word": "gate"}\n</tool_call> Ok.', [LOOK], "Ok."),
    ("pythonic", "<tool_call>look_up(word='gate')</tool_call> Ok.", [LOOK], "Ok."),
    ("named_tool_call", 'Hm.\n<tool_call name="look_up">{"word": "gate"}</tool_call>', [LOOK], "Hm."),
    ("named_tool_call", "<tool_call id='1' name='look_up'>\n{'word': 'gate',}\n</tool_call> Ok.", [LOOK], "Ok."),
    ("named_tool_call", '<tool_call name="look_up"><parameter name="word">gate</parameter></tool_call>', [LOOK], ""),
    ("named_tool_call", '<tool_call name="look_up">\n<word>gate</word>\n</tool_call>', [LOOK], ""),
    ("named_tool_call", '<tool_call name="stop"/>', [STOP], ""),
    ("named_tool_call", '<tool_call id="1" type="function" name="stop"/>', [STOP], ""),
    ("named_tool_call", '<tool_calls>\n<tool_call name="stop">{}</tool_call>\n<tool_call name="look_up">{"word": "gate"}</tool_call>\n</tool_calls>', [STOP, LOOK], ""),
    ("named_tool_call", '<tool_call name="look_up">{"word": "</tool_call>"}</tool_call>', [("look_up", {"word": "</tool_call>"})], ""),
    ("longcat", f"<longcat_tool_call>{write_call(LOOK)}</longcat_tool_call> Ok.", [LOOK], "Ok."),
    ("granite3", f"<|tool_call|> [{write_call(LOOK)}]", [LOOK], ""),
    ("granite3", f"<|tool_call|>[{write_call(LOOK)}]<|/tool_call|> Ok.", [LOOK], "Ok."),
    ("granite_20b", f"<function_call> {write_call(LOOK)}<function_call> {write_call(STOP)}", [LOOK, STOP], ""),
    ("functools", f"Now I look.\nfunctools[{write_call(LOOK)}]\nDone", [LOOK], "Now I look. Done"),
    ("cohere", '<|START_ACTION|>[{"tool_call_id": "4", "tool_name": "stop", "parameters": {}}]<|END_ACTION|>', [STOP], ""),
    ("cohere_action", 'I will look.\nAction: ```json\n[{"tool_name": "stop", "parameters": {}}]\n```', [STOP], "I will look."),
    ("internlm2", f"Hm.<|action_start|> <|plugin|>\n{write_call(MOVE, 'parameters')}<|action_end|>", [MOVE], "Hm."),
    ("jamba", f"<tool_calls>\n{write_call(LOOK)}\n{write_call(STOP)}\n</tool_calls>", [LOOK, STOP], ""),
    ("jamba", f'<tool_calls>\n{write_call(LOOK)}\n{{"name": "stop", "argum\n</tool_calls>', [LOOK], '{"name": "stop", "argum'),
    ("jamba", f"<tool_calls>[{write_call(LOOK)}, {write_call(OTHER)}]</tool_calls>", [LOOK], write_call(OTHER)),
    ("nemotron_toolcall", f"<TOOLCALL>[{write_call(LOOK)}]</TOOLCALL>", [LOOK], ""),
    ("lmstudio_bracket", f"[TOOL_REQUEST]\n{write_call(STOP)}\n[END_TOOL_REQUEST]", [STOP], ""),
    ("lmstudio_bracket", 'Hm.\n[look_up]\n{"word": "gate"}\n[END_TOOL_REQUEST] Ok.', [LOOK], "Hm. Ok."),
    ("apertus", '<|tools_prefix|>[{"stop": {}}, {"look_up": {"word": "gate"}}]<|tools_suffix|>', [STOP, LOOK], ""),
    ("gigachat3", f"Hm.<|function_call|>{write_call(LOOK)}", [LOOK], "Hm."),
    ("gigachat3", f"function call<|role_sep|>\n{write_call(LOOK)}", [LOOK], ""),
    ("gigachat3", f"function call{write_call(LOOK)}", [LOOK], ""),
    ("mistral_json", f"[TOOL_CALLS] [{write_call(LOOK)}, {write_call(STOP)}]", [LOOK, STOP], ""),
    ("mistral_json", f"[TOOL_CALLS][TOOL_CALLS] [{write_call(LOOK)}] Ok.", [LOOK], "Ok."),
    ("mistral_args", 'Hm[TOOL_CALLS]stop[ARGS]{}[TOOL_CALLS]look_up{"word": "gate"}', [STOP, LOOK], "Hm"),
    ("mistral_args", "[TOOL_CALLS]stop", [STOP], ""),
    ("mistral_args", 'look_up[TOOL_CALLS]{"word": "gate"}', [LOOK], ""),
    ("mistral_args", 'look_up{"word": "gate"}', [LOOK], ""),
    ("mistral_args", 'look_up{"word": "gate"}stop{}</s>', [LOOK, STOP], ""),
    ("llama3_python_tag", f"<|python_tag|>{write_call(LOOK, 'parameters')}; {write_call(STOP)}<|eom_id|>", [LOOK, STOP], ""),
    ("llama3_python_tag", 'Hm.<|python_tag|>look_up.call(word="gate")', [LOOK], "Hm."),
    ("llama3_python_tag", "<|python_tag|>print(6 * 7)", [RUN], ""),
    ("llama3_python_tag", 'look_up.call(word="gate")', [LOOK], ""),
    ("pythonic", "I see. [look_up(word='gate'), move(x=1, fast=True)]", [LOOK, MOVE], "I see."),
    ("pythonic", "<|python_start|>[stop()]<|python_end|> Ok.", [STOP], "Ok."),
    ("pythonic", "[look_up(word='gate')", [LOOK], ""),
    ("pythonic", "[look_up(word='it's'), stop()]", [("look_up", {"word": "it's"}), STOP], ""),
    ("lfm2", "<|tool_call_start|>[move(x=01, fast=true)]<|tool_call_end|>", [MOVE], ""),
    ("lfm2", "<|tool_call_start|>stop()<|tool_call_end|>", [STOP], ""),
    ("lfm2", f"<|tool_call_start|>[{write_call(LOOK)}]<|tool_call_end|>", [LOOK], ""),
    ("lfm2", "<|tool_call_start|>[ ]<|tool_call_end|>", [], ""),
    ("lfm2", "<|tool_call_start|>[look_up(word='gate'), stop()", [LOOK, STOP], ""),
    ("lfm2", "<|tool_call_start|>[stop()]<|tool_call_end|>[stop()]<|tool_call_end|> Ok.", [STOP], "Ok."),
    ("lfm2", "<|tool_call_start|>[stop()]<|tool_call_end|>[stop(", [STOP], "[stop("),
    ("llama3_python_tag", "look_up(word='gate')\nstop()]<|tool_call_end|>", [LOOK, STOP], ""),
    ("olmo3", "<function_calls>[look_up(word='\\ud83d\\ude00'), stop()]</function_calls>", [("look_up", {"word": "😀"}), STOP], ""),
    ("olmo3", "<function_calls>look_up(word='\\ud83d!', )</function_calls>", [("look_up", {"word": "\\ud83d!"})], ""),
    ("olmo3", "<function_calls>look_up(word=1e999)</function_calls>", [("look_up", {"word": "1e999"})], ""),
    ("olmo3", "<function_calls>look_up(word=\"gate\")\nstop()</function_calls>", [LOOK, STOP], ""),
    ("gemma_tool_code", "Hm.\n```tool_code\nprint(default_api.look_up(word='gate'))\n```", [LOOK], "Hm."),
    ("gemma_tool_code", "```tool_code\nprint(look_up(word='gate'))\nstop()\n```", [LOOK, STOP], ""),
    ("functionary_v31", '<function=look_up>{"word": "gate"}</function><function=stop>{}</function>', [LOOK, STOP], ""),
    ("functionary_v32", 'all\nHm.>>>look_up\n{"word": "gate"}\n>>>stop\n{}', [LOOK, STOP], "Hm."),
    ("functionary_v32", "python\nprint(6 * 7)", [RUN], ""),
    ("qwen1", '✿FUNCTION✿: look_up\n✿ARGS✿: {"word": "gate"}\n✿RESULT✿', [LOOK], ""),
    ("react", 'Thought: hm\nAction: look_up\nAction Input: {"word": "gate"}\nObservation:', [LOOK], ""),
    ("react", "Action: look_up\nAction Input: gate", [LOOK], ""),
    ("json", write_call(LOOK), [LOOK], ""),
    ("json", f"{write_call(LOOK)}\n{write_call(STOP)}", [LOOK, STOP], ""),
    ("json", f'{{"tool_calls": [{write_call(MOVE)}]}}', [MOVE], ""),
    ("json", '{"function": {"name": "look_up", "arguments": "{\\"word\\": \\"gate\\"}"}}', [LOOK], ""),
    ("json", f'{{"function_call": {write_call(MOVE)}}}', [MOVE], ""),
    ("json", '{"action": "look_up", "action_input": {"word": "gate"}}', [LOOK], ""),
    ("json", f"```json\n{write_call(LOOK)}\n```", [LOOK], ""),
    ("hermes", f"```xml\n<tool_call>{write_call(LOOK)}</tool_call>\n```", [LOOK], ""),
    ("qwen3_coder", "<tool_call>\n<function=look_up>\n<parameter=word>\na </function>\n</tool_call> b\n</parameter>\n</function>\n</tool_call>", [("look_up", {"word": "a </function>\n</tool_call> b"})], ""),
    ("harmony", 'analysisHm.assistantcommentary to=functions.look_up json{"word": "gate"}commentary', [LOOK], ""),
    ("harmony", '<|channel|>commentary to=functions.look_up<|message|>{"word": "gate"}<|call|>commentary', [LOOK], ""),
    ("harmony", 'commentary to=functions.look_up <|constrain|>json<|message|>{"word": "gate"}', [LOOK], ""),
    ("harmony", '<|channel|>commentary to=functions.look_up<|message|>{"word": "a "gate" b"}<|call|>', [("look_up", {"word": 'a "gate" b'})], ""),
    ("harmony", '<|channel|>analysis<|message|>Hm.<|end|>assistant<|channel|>commentary to=functions.stop<|message|>{}', [STOP], ""),
    ("gemma4", '<|tool_call>call: look_up{word:<|"|>gate<|"|>}}\n<tool_call|> Ok.', [LOOK], "Ok."),
    ("gemma4", '<|tool_call>call:look_up(word="gate")<tool_call|>', [LOOK], ""),
    ("qwen3_coder", "<tool_call>\n<function = look_up>\n<parameter = word>\ngate\n</parameter>\n</function>\n</tool_call>", [LOOK], ""),
    ("inkling", '<|content_thinking|>Hm.<|end_message|><|message_model|><|content_text|>So.<|end_message|>'
     '<|message_model|>stop<|content_invoke_tool_json|>{"name":"stop"}<|end_message|>'
     "<|message_model|><|content_text|>Yes.<|end_message|>", [STOP], "So. Yes."),
    ("inkling", 'look_up<|content_invoke_tool_json|>{"name": "look_up", "args": {"word": "gate"}}<|end_message|>', [LOOK], ""),
    ("gemma4", "<|tool_call>call:move{x:1,y:2.,fast:true}<tool_call|><turn|>", [("move", {"x": 1, "y": 2.0, "fast": True})], ""),
    ("step3", "<｜tool_calls_begin｜><｜tool_call_begin｜>function<｜tool_sep｜>look_up\n<steptml:invoke name=\"look_up\">"
     '<steptml:parameter name="word">gate</steptml:parameter></steptml:invoke><｜tool_call_end｜><｜tool_calls_end｜>', [LOOK], ""),
    ("step3", '<｜tool_call_begin｜><steptml:invoke name="stop"></steptml:invoke><｜tool_call_end｜> Ok.', [STOP], "Ok."),
    ("minicpm5", '<functionĠname="look_up"><paramĠname="word">gate</param></function>', [LOOK], ""),
    ("kimi_k3", '<|open|>tools<|sep|><|open|>call tool="look&#95;up" index="1"<|sep|><|open|>argument key="word" type="string"'
     "<|sep|>a &amp; b<|close|>argument<|sep|><|close|>call<|sep|><|close|>tools<|sep|>", [("look_up", {"word": "a &amp; b"})], ""),
    ("glm", "<think>Hm.</think>First.\n<think>Hm, hm.</think>Then.\n<tool_call>stop</tool_call><|observation|>", [STOP], "First. Then."),
]  # fmt: skip
IDS = [f"{row[0]}-{number}" for number, row in enumerate(FOUND)]


@pytest.mark.parametrize(("format", "text", "calls", "content"), FOUND, ids=IDS)
def test_calls_are_found(format: str, text: str, calls: list[Call], content: str) -> None:
    outcomes = [read_pieces(text, TOOLS, chunks) for chunks in every_split(text)]
    for pieces in outcomes:
        outcome = sum_up(pieces)
        assert [(name, arguments) for name, arguments, _ in outcome.calls] == calls
        assert outcome.content == content
        assert {piece.format for piece in pieces if isinstance(piece, TextCall)} <= {format}


@pytest.mark.parametrize(("format", "text", "calls", "content"), FOUND, ids=IDS)
def test_a_format_can_be_chosen_alone(format: str, text: str, calls: list[Call], content: str) -> None:
    found = sum_up(read_pieces(text, TOOLS, [text], tool_format=format))
    assert [(name, arguments) for name, arguments, _ in found.calls] == calls


def test_an_unknown_format_is_answered_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"unknown tool format 'telex'; known are .*hermes"):
        formats_for_model("", "telex")


@pytest.mark.parametrize(
    ("model", "format"),
    [
        ("Qwen/Qwen3-Coder-30B-A3B-Instruct", "qwen3_coder"),
        ("qwen2.5:7b", "hermes"),
        ("meta-llama/Llama-3.3-70B-Instruct", "json"),
        ("mistralai/Devstral-Small-2507", "mistral_args"),
        ("mistral:7b", "mistral_json"),
        ("ibm-granite/granite-3.3-8b-instruct", "granite3"),
        ("command-r7b", "cohere"),
        ("nvidia/Llama-3.1-Nemotron-Nano-8B-v1", "nemotron_toolcall"),
        ("deepseek-ai/DeepSeek-V3.2-Exp", "deepseek_v31"),
        ("deepseek-v3.2", "deepseek_dsml"),
    ],
)
def test_the_format_of_a_model_is_tried_first(model: str, format: str) -> None:
    assert ALIASES.get(expected_formats(model)[0], expected_formats(model)[0]) == format
    assert formats_for_model(model, "auto")[0].name == format or format not in {row.name for row in FORMATS}
    assert set(formats_for_model(model, "auto")) >= set(formats_for_model("", "auto"))


def test_what_was_mended_is_said() -> None:
    text = f"<tool_call>{write_call(LOOK)[:-1]}"
    (call,) = read_pieces(text, TOOLS, [text])
    assert isinstance(call, TextCall)
    assert call.repairs == ("the closing `</tool_call>` was missing", "closing brackets were missing at the end")


def test_ids_of_the_text_are_kept() -> None:
    text = f'[TOOL_CALLS]stop[CALL_ID]abcdefghi[ARGS]{{}}[TOOL_CALLS] [{write_call(LOOK)[:-1]}, "id": "123456789"}}]'
    assert [id for _, _, id in sum_up(read_pieces(text, TOOLS, [text])).calls] == ["abcdefghi", "123456789"]


def test_json_keeps_its_spelling() -> None:
    text = '<tool_call>{"name": "move", "arguments": {"x":1,  "y": 1e2}}</tool_call>'
    (call,) = read_pieces(text, TOOLS, [text])
    assert isinstance(call, TextCall)
    assert call.arguments == '{"x":1,  "y": 1e2}'
