"""Formats whose calls are tags or special tokens: calls of every format, the damage that is seen in the wild, and texts
that are no calls. Each text is read whole and cut at every character."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterable

import pytest

from toolwire.call_repair.offered_tools import OfferedTools
from toolwire.core.ir import Tool
from toolwire.tool_formats.formats import FORMATS
from toolwire.tool_formats.frame import Piece, ReasoningText, TextCall
from toolwire.tool_formats.text_reader import TextReader


def _tool(name: str, required: tuple[str, ...] = (), **types: object) -> Tool:
    properties = {key: {"type": one} if isinstance(one, str | list) else one for key, one in types.items()}
    return Tool(name=name, parameters={"type": "object", "properties": properties, "required": list(required)})


TOOLS = (
    _tool("bash", ("command",), command="string", timeout="integer", background="boolean"),
    _tool("write_file", ("path", "content"), path="string", content="string", mode="integer"),
    _tool("get_time"),
    _tool(
        "plan",
        (),
        steps={"type": "array", "items": {"type": "object", "properties": {"n": {"type": "integer"}}}},
        tags={"type": "array", "items": {"type": "string"}},
        options={"type": "object", "properties": {"depth": {"type": "integer"}, "note": {"type": "string"}}},
    ),
)

LS = ("bash", {"command": "ls"})
PWD = ("bash", {"command": "pwd"})
TIME = ("get_time", {})
FILE = ("write_file", {"path": "a.txt", "content": "one\n  two\n"})

M3 = "]<]minimax[>["
FENCE = "```"


def dsml(mark: str, section: str = "tool_calls") -> str:
    return (
        f'<{mark}{section}>\n<{mark}invoke name="bash">\n<{mark}parameter name="command" string="true">ls</{mark}parameter>\n'
        f'<{mark}parameter name="timeout" string="false">5</{mark}parameter>\n</{mark}invoke>\n</{mark}{section}>'
    )


def section(tag: str, prefix: str = "") -> str:
    return (
        f'<{tag}>\n<{prefix}invoke name="bash">\n<{prefix}parameter name="command">ls</{prefix}parameter>\n'
        f'</{prefix}invoke>\n<{prefix}invoke name="get_time">\n</{prefix}invoke>\n</{tag}>'
    )


K3_TOOLS = "<|open|>tools<|sep|>"
K3_CALL = (
    '<|open|>call tool="bash" index="1"<|sep|><|open|>argument key="command" type="string"<|sep|>ls<|close|>argument<|sep|>'
    "<|close|>call<|sep|>"
)

CALLS: dict[str, tuple[str, list[object]]] = {
    # --- Qwen3-Coder and Seed ---
    "qwen": (
        "On it.\n<tool_call>\n<function=write_file>\n<parameter=path>\na.txt\n</parameter>\n<parameter=content>\none\n  two\n\n"
        "</parameter>\n</function>\n</tool_call>",
        ["On it.", FILE],
    ),
    "qwen: no newlines, two calls, text after": (
        "<tool_call><function=bash><parameter=command>ls</parameter><parameter=timeout>5</parameter></function></tool_call>"
        "<tool_call><function=get_time></function></tool_call>Done.",
        [("bash", {"command": "ls", "timeout": 5}), TIME, "Done."],
    ),
    "qwen: the end of a call, and a whole one, copied into the value": (
        "<tool_call>\n<function=write_file>\n<parameter=path>\na.md\n</parameter>\n<parameter=content>\nReport:\n</parameter>\n"
        "</function>\n</tool_call>\n\n<tool_call>\n<function=bash>\n<parameter=command>\nls\n</parameter>\n</function>\n"
        "</tool_call>\n</parameter>\n</function>\n</tool_call>\n<tool_call>\n<function=get_time>\n</function>\n</tool_call>",
        [
            (
                "write_file",
                {
                    "path": "a.md",
                    "content": "Report:\n</parameter>\n</function>\n</tool_call>\n\n<tool_call>\n<function=bash>\n"
                    "<parameter=command>\nls\n</parameter>\n</function>\n</tool_call>",
                },
            ),
            TIME,
        ],
    ),
    "qwen: tags in the value": (
        "<tool_call>\n<function=write_file>\n<parameter=path>\nx.py\n</parameter>\n<parameter=content>\n"
        'end = "</parameter>" + "</function>" + "</tool_call>"\nopen = "<parameter=x>"\n'
        "</parameter>\n</function>\n</tool_call>",
        [
            (
                "write_file",
                {
                    "path": "x.py",
                    "content": 'end = "</parameter>" + "</function>" + "</tool_call>"\nopen = "<parameter=x>"',
                },
            )
        ],
    ),
    "qwen: a whole call in the value": (
        "<tool_call>\n<function=write_file>\n<parameter=path>\nx.md\n</parameter>\n<parameter=content>\n"
        "<tool_call>\n<function=bash>\n<parameter=command>\nls\n</parameter>\n</function>\n</tool_call>\n"
        "</parameter>\n</function>\n</tool_call>",
        [
            (
                "write_file",
                {
                    "path": "x.md",
                    "content": "<tool_call>\n<function=bash>\n<parameter=command>\nls\n</parameter>\n</function>\n</tool_call>",
                },
            )
        ],
    ),
    "seed": (
        "<seed:tool_call>\n<function=bash>\n<parameter=command>ls</parameter>\n</function>\n</seed:tool_call>",
        [LS],
    ),
    # --- GLM and Hy3 ---
    "glm 4.5": ("<tool_call>bash\n<arg_key>command</arg_key>\n<arg_value>ls</arg_value>\n</tool_call>", [LS]),
    "glm 4.7": (
        "<tool_call>bash<arg_key>command</arg_key><arg_value> ls </arg_value><arg_key>timeout</arg_key><arg_value>5</arg_value>"
        "</tool_call>\n<tool_call>get_time</tool_call>",
        [("bash", {"command": " ls ", "timeout": 5}), TIME],
    ),
    "glm: tags in the value": (
        "<tool_call>bash<arg_key>command</arg_key><arg_value>grep '</arg_value>' x | grep '</tool_call>'</arg_value></tool_call>",
        [("bash", {"command": "grep '</arg_value>' x | grep '</tool_call>'"})],
    ),
    "hy3": (
        "<tool_calls>\n<tool_call>bash<tool_sep>\n<arg_key>command</arg_key>\n<arg_value>ls</arg_value>\n</tool_call>\n"
        "<tool_call>get_time<tool_sep>\n</tool_call>\n</tool_calls>",
        [LS, TIME],
    ),
    # --- invoke and parameter ---
    "minimax m2": (section("minimax:tool_call"), [LS, TIME]),
    "anthropic": (section("function_calls"), [LS, TIME]),
    "anthropic: its namespace": (section("antml:function_calls", "antml:"), [LS, TIME]),
    "anthropic: another namespace": ("Hm. " + section("xyz:function_calls", "xyz:"), ["Hm.", LS, TIME]),
    "anthropic: entities stay as they are": (
        '<function_calls><invoke name="bash"><parameter name="command">a &amp;&amp; b < c</parameter></invoke></function_calls>',
        [("bash", {"command": "a &amp;&amp; b < c"})],
    ),
    "dsml v3.2": (dsml("｜DSML｜", "function_calls"), [("bash", {"command": "ls", "timeout": 5})]),
    "dsml v4": (dsml("｜DSML｜"), [("bash", {"command": "ls", "timeout": 5})]),
    "dsml: the tag types an unknown parameter": (
        '<｜DSML｜tool_calls><｜DSML｜invoke name="get_time"><｜DSML｜parameter name="n" string="false">5</｜DSML｜parameter>'
        '<｜DSML｜parameter name="s" string="true">5</｜DSML｜parameter></｜DSML｜invoke></｜DSML｜tool_calls>',
        [("get_time", {"n": 5, "s": "5"})],
    ),
    "step3": (
        '<｜tool_calls_begin｜><｜tool_call_begin｜>function<｜tool_sep｜><steptml:invoke name="bash"><steptml:parameter name="command">'
        "ls</steptml:parameter></steptml:invoke><｜tool_call_end｜><｜tool_call_begin｜>function<｜tool_sep｜>"
        '<steptml:invoke name="get_time"></steptml:invoke><｜tool_call_end｜><｜tool_calls_end｜>',
        [LS, TIME],
    ),
    "dots": (section("dots_function_call"), [LS, TIME]),
    "dots: JSON": (
        '<dots_function_call>\n{"name": "bash", "arguments": {"command": "ls"}}\n</dots_function_call>',
        [LS],
    ),
    "minicpm5": (
        '<function name="bash"><param name="command"><![CDATA[ls]]></param></function>\n<function name="get_time"></function>',
        [LS, TIME],
    ),
    "muse": (
        " to=self<|message|>think<|eom|><|start|>assistant to=user<|message|>Hi.<|eom|><|start|>assistant to=bash<|message|>"
        + section("atem:function_calls", "atem:")
        + "<|eot|>",
        [ReasoningText("think"), "Hi.", LS, TIME],
    ),
    # --- MiniMax M3 ---
    "minimax m3": (
        f'{M3}<tool_call>\n{M3}<invoke name="bash">{M3}<command>ls < x{M3}</command>{M3}<timeout>5{M3}</timeout>{M3}</invoke>\n'
        f'{M3}<invoke name="get_time">{M3}</invoke>{M3}</tool_call>',
        [("bash", {"command": "ls < x", "timeout": 5}), TIME],
    ),
    "minimax m3: nested": (
        f'{M3}<tool_call>{M3}<invoke name="plan">{M3}<steps>{M3}<item>{M3}<n>1{M3}</n>{M3}</item>{M3}</steps>'
        f"{M3}<tags>a{M3}</tags>{M3}<tags>b{M3}</tags>{M3}<options>{M3}<depth>2{M3}</depth>{M3}</options>{M3}</invoke>{M3}</tool_call>",
        [("plan", {"steps": [{"n": 1}], "tags": ["a", "b"], "options": {"depth": 2}})],
    ),
    # --- special tokens around JSON ---
    "deepseek v3": (
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>bash\n"
        + FENCE
        + 'json\n{"command": "ls"}\n'
        + FENCE
        + "<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>get_time\n"
        + FENCE
        + "json\n{}\n"
        + FENCE
        + "<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        [LS, TIME],
    ),
    "deepseek v3.1": (
        '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>bash<｜tool▁sep｜>{"command": "ls"}<｜tool▁call▁end｜><｜tool▁call▁begin｜>get_time'
        "<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        [LS, TIME],
    ),
    "deepseek: the mark in the arguments": (
        '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>bash<｜tool▁sep｜>{"command": "echo <｜tool▁call▁end｜>", "timeout": 1}'
        "<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        [("bash", {"command": "echo <｜tool▁call▁end｜>", "timeout": 1})],
    ),
    "kimi k2": (
        '<|tool_calls_section_begin|><|tool_call_begin|>functions.bash:3<|tool_call_argument_begin|>{"command": "ls"}<|tool_call_end|>'
        "<|tool_call_begin|> functions.get_time:4 <|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|>",
        [LS, TIME],
    ),
    "kimi k3": (
        f"On it.<|close|>response<|sep|>{K3_TOOLS}{K3_CALL}{K3_CALL}<|close|>tools<|sep|><|close|>message<|sep|>",
        ["On it.", LS, LS],
    ),
    "kimi k3: JSON": (
        f'{K3_TOOLS}<|open|>call tool="bash" index="1"<|sep|><|open|>json type="object"<|sep|>{{"command": "ls"}}<|close|>json<|sep|>'
        "<|close|>call<|sep|><|close|>tools<|sep|>",
        [LS],
    ),
    "kimi k3: blanks between the tokens": (
        '<|open|> tools <|sep|> <|open|> call tool="bash" index="1" <|sep|> <|open|> argument key="command" type="string" <|sep|>ls'
        "<|close|> argument <|sep|> <|close|> call <|sep|> <|close|> tools <|sep|>",
        [LS],
    ),
    "inkling": (
        'Sure.<|message_model|>bash<|content_invoke_tool_json|>{"name": "bash", "args": {"command": "ls"}}<|end_message|>'
        '<|message_model|>get_time<|content_invoke_tool_json|>{"name": "get_time", "args": {}}<|end_message|>',
        ["Sure.", LS, TIME],
    ),
    # --- gpt-oss ---
    "harmony": (
        "<|channel|>analysis<|message|>think<|end|><|start|>assistant<|channel|>commentary<|message|>I look.<|end|>"
        '<|start|>assistant<|channel|>commentary to=functions.bash <|constrain|>json<|message|>{"command": "ls"}<|call|>',
        [ReasoningText("think"), "I look.", LS],
    ),
    "harmony: the recipient first": (
        ' to=functions.bash<|channel|>commentary json<|message|>{"command": "ls"}<|call|><|start|>assistant to=functions.get_time'
        "<|channel|>commentary<|message|>{}<|call|>",
        [LS, TIME],
    ),
    "harmony: no prefix, analysis channel": ('<|channel|>analysis to=bash<|message|>{"command": "ls"}', [LS]),
    "harmony: an answer": (
        "<|channel|>analysis<|message|>think<|end|><|start|>assistant<|channel|>final<|message|>Hi.<|return|>",
        [ReasoningText("think"), "Hi."],
    ),
    # --- Gemma ---
    "gemma4": (
        'I look. <|tool_call>call:bash{command:<|"|>ls "x" \\d ] }<|"|>,timeout:5,background:true}<tool_call|>'
        "<|tool_call>call:get_time{}<tool_call|>",
        ["I look.", ("bash", {"command": 'ls "x" \\d ] }', "timeout": 5, "background": True}), TIME],
    ),
    "gemma4: nested": (
        '<|tool_call>call:plan{steps:[{n:1},{n:2}],tags:[<|"|>a<|"|>],options:{depth:2,note:<|"|>x,y:z<|"|>}}<tool_call|>',
        [("plan", {"steps": [{"n": 1}, {"n": 2}], "tags": ["a"], "options": {"depth": 2, "note": "x,y:z"}})],
    ),
    "functiongemma": (
        "<start_function_call>call:bash{command:<escape>ls<escape>,timeout:<escape>5<escape>}<end_function_call>"
        "<start_function_call>call:bash{command:<escape>pwd<escape>,timeout:6}<end_function_call>",
        [("bash", {"command": "ls", "timeout": 5}), ("bash", {"command": "pwd", "timeout": 6})],
    ),
}

REPAIRS: dict[str, tuple[str, list[object]]] = {
    # --- Qwen3-Coder and Seed ---
    "qwen: opening tag missing": (
        "I look.\n<function=bash>\n<parameter=command>\nls\n</parameter>\n</function>\n</tool_call>",
        ["I look.", LS],
    ),
    "qwen: outer tags missing, text after": (
        "<function=bash>\n<parameter=command>\nls\n</parameter>\n</function>\nDone.",
        [LS, "Done."],
    ),
    "qwen: end of a parameter missing": (
        "<tool_call>\n<function=bash>\n<parameter=command>\nls\n<parameter=timeout>\n5\n</function>\n</tool_call>",
        [("bash", {"command": "ls", "timeout": 5})],
    ),
    "qwen: end of the call missing between two": (
        "<tool_call>\n<function=bash>\n<parameter=command>ls</parameter>\n</function>\n<tool_call>\n<function=get_time>\n</function>\n"
        "</tool_call>",
        [LS, TIME],
    ),
    "qwen: end of the function missing": (
        "<tool_call>\n<function=bash>\n<parameter=command>ls</parameter>\n</tool_call>",
        [LS],
    ),
    "qwen: all ends missing at a natural end": (
        "<tool_call>\n<function=bash>\n<parameter=command>ls</parameter>",
        [LS],
    ),
    "qwen: words in the section": (
        "<tool_call>\nNow the list.\n<function=bash>\n<parameter=command>ls</parameter>\n</function>\nThat is all.\n</tool_call>",
        ["Now the list.", LS, "That is all."],
    ),
    "qwen: no > after the name": (
        "<tool_call>\n<function=bash\n<parameter=command>\nls\n</parameter>\n</function>\n</tool_call>",
        [LS],
    ),
    "qwen: quotes around names": (
        "<tool_call>\n<function=\"bash\">\n<parameter='command'>\nls\n</parameter>\n</function>\n</tool_call>",
        [LS],
    ),
    "qwen: JSON in the function tag": (
        '<tool_call>\n<function=bash>\n{"command": "ls"}\n</function>\n</tool_call>',
        [LS],
    ),
    "qwen: a bad sibling stays text": (
        "<tool_call>\n<function=rm></function>\n</tool_call>\n<tool_call>\n<function=get_time></function>\n</tool_call>",
        ["<tool_call>\n<function=rm></function>\n</tool_call>", TIME],
    ),
    "qwen: the opening tag twice": (
        "<tool_call>\n<tool_call>\n<function=get_time>\n</function>\n</tool_call>",
        [TIME],
    ),
    "qwen: an end token for the ends": (
        "<tool_call>\n<function=bash>\n<parameter=command>\nls\n</parameter>\n<|im_end|>",
        [LS],
    ),
    # --- GLM and Hy3 ---
    "glm: <arg_value> missing": ("<tool_call>bash<arg_key>command</arg_key>ls</arg_value></tool_call>", [LS]),
    "glm: <arg_key> missing": ("<tool_call>bashcommand</arg_key><arg_value>ls</arg_value></tool_call>", [LS]),
    "glm: <arg_key> missing on a line of its own": (
        "<tool_call>bash\ncommand</arg_key>\n<arg_value>ls</arg_value>\n</tool_call>",
        [LS],
    ),
    "glm: second <arg_key> missing": (
        "<tool_call>bash<arg_key>command</arg_key><arg_value>ls</arg_value>timeout</arg_key><arg_value>5</arg_value></tool_call>",
        [("bash", {"command": "ls", "timeout": 5})],
    ),
    "glm: </arg_value> missing": (
        "<tool_call>bash\n<arg_key>command</arg_key>\n<arg_value>ls\n<arg_key>timeout</arg_key>\n<arg_value>5\n</tool_call>\n"
        "<tool_call>get_time</tool_call>",
        [("bash", {"command": "ls", "timeout": 5}), TIME],
    ),
    "glm: </arg_value> missing, text after": (
        "<tool_call>bash<arg_key>command</arg_key><arg_value>ls</tool_call> Done.",
        [LS, "Done."],
    ),
    "glm: doubled tags": (
        "<tool_call>bash<arg_key><arg_key>command</arg_key></arg_key><arg_value><arg_value>ls</arg_value></arg_value></tool_call>",
        [LS],
    ),
    "glm: <tool_call> for <arg_key>": (
        "<tool_call>bash<tool_call>command</arg_key><arg_value>ls</arg_value></tool_call>",
        [LS],
    ),
    "glm: a key without a value": (
        "<tool_call>bash<arg_key>timeout</arg_key><arg_key>command</arg_key><arg_value>ls</arg_value></tool_call>",
        [LS],
    ),
    "glm: escaped": (
        '<tool_call>plan\\n<arg_key>tags</arg_key>\\n<arg_value>[\\"a\\", \\"b\\"]</arg_value>\\n</tool_call>',
        [("plan", {"tags": ["a", "b"]})],
    ),
    "glm: no end": ("<tool_call>bash<arg_key>command</arg_key><arg_value>ls</arg_value>", [LS]),
    "hy3: a bad sibling stays text": (
        "<tool_calls><tool_call>rm<tool_sep></tool_call><tool_call>get_time<tool_sep></tool_call></tool_calls>",
        ["<tool_call>rm<tool_sep></tool_call>", TIME],
    ),
    # --- invoke and parameter ---
    "invoke: bare": ('court\n<invoke name="bash">\n<parameter name="command">ls</parameter>\n</invoke>', ["court", LS]),
    "invoke: bare, in a namespace": (
        '<ns:invoke name="bash"><ns:parameter name="command">ls</ns:parameter></ns:invoke> Done.',
        [LS, "Done."],
    ),
    "invoke: end of the section missing": (
        '<function_calls><invoke name="bash"><parameter name="command">ls</parameter></invoke>',
        [LS],
    ),
    "invoke: ends of the call and of a parameter missing": (
        '<minimax:tool_call><invoke name="bash"><parameter name="timeout">5<parameter name="command">ls</parameter>'
        '<invoke name="get_time"></invoke></minimax:tool_call>',
        [("bash", {"command": "ls", "timeout": 5}), TIME],
    ),
    "invoke: the closing tag in the value": (
        '<minimax:tool_call><invoke name="bash"><parameter name="command">grep "</parameter>" x</parameter></invoke>'
        "</minimax:tool_call>",
        [("bash", {"command": 'grep "</parameter>" x'})],
    ),
    "invoke: an unknown sibling stays text": (
        '<minimax:tool_call><invoke name="rm"><parameter name="x">1</parameter></invoke><invoke name="get_time"></invoke>'
        "</minimax:tool_call>",
        ['<invoke name="rm"><parameter name="x">1</parameter></invoke>', TIME],
    ),
    "invoke: in <tool_call>": (section("tool_call"), [LS, TIME]),
    "invoke: parameters as tags with their names": (
        '<tool_call>\n<invoke name="bash"><command>ls</command><timeout>5</timeout></invoke>\n</tool_call>',
        [("bash", {"command": "ls", "timeout": 5})],
    ),
    "dsml: ASCII bars": (dsml("|DSML|"), [("bash", {"command": "ls", "timeout": 5})]),
    "dsml: doubled bars": (dsml("||DSML||"), [("bash", {"command": "ls", "timeout": 5})]),
    "dsml: blanks around the bars": (dsml(" | DSML | ", "tool_use"), [("bash", {"command": "ls", "timeout": 5})]),
    "dsml: self-closing": (
        '<｜DSML｜tool_calls>\n<｜DSML｜invoke name="get_time"/>\n</｜DSML｜tool_calls>',
        [TIME],
    ),
    "dsml: no section": (
        'Now.\n<｜DSML｜invoke name="bash">\n<｜DSML｜parameter name="command" string="true">ls</｜DSML｜parameter>\n</｜DSML｜invoke>',
        ["Now.", LS],
    ),
    "dsml: JSON body": (
        '<｜DSML｜tool_calls><｜DSML｜invoke name="bash">{"command": "ls"}</｜DSML｜invoke></｜DSML｜tool_calls>',
        [LS],
    ),
    "dsml: attributes in another order": (
        '<｜DSML｜invoke id="1" name="get_time"><｜DSML｜parameter string="false" name="n">5</｜DSML｜parameter></｜DSML｜invoke>',
        [("get_time", {"n": 5})],
    ),
    "dsml: wrapped in arguments": (
        '<｜DSML｜tool_calls><｜DSML｜invoke name="bash"><｜DSML｜parameter name="arguments" string="false">{"command": "ls"}'
        "</｜DSML｜parameter></｜DSML｜invoke></｜DSML｜tool_calls>",
        [LS],
    ),
    "minicpm5: blanks lost": ('<functionname="bash"><paramname="command">ls</param></function>', [LS]),
    "tool as a tag: text": ("I look.\n<bash>\nls\n</bash>", ["I look.", LS]),
    "tool as a tag: JSON": (
        '<bash>{"command": "ls", "timeout": 5}</bash>',
        [("bash", {"command": "ls", "timeout": 5})],
    ),
    "tool as a tag: parameters": (
        "<write_file>\n<path>a.txt</path>\n<content>\none </content> two\n</content>\n</write_file>",
        [("write_file", {"path": "a.txt", "content": "one </content> two"})],
    ),
    # --- MiniMax M3 ---
    "minimax m3: a name that is no XML name, and M2's tag": (
        f'{M3}<tool_call>{M3}<invoke name="bash">{M3}<parameter name="command">ls{M3}</parameter>{M3}<-A>5{M3}</-A>{M3}</invoke>'
        f"{M3}</tool_call>",
        [("bash", {"command": "ls", "-A": "5"})],
    ),
    "minimax m3: end of the section missing": (
        f'{M3}<tool_call>{M3}<invoke name="bash">{M3}<command>ls{M3}</command>{M3}</invoke>',
        [LS],
    ),
    # --- special tokens around JSON ---
    "deepseek: ASCII bars": (
        '<|tool▁calls▁begin|><|tool▁call▁begin|>bash<|tool▁sep|>{"command": "ls"}<|tool▁call▁end|><|tool▁calls▁end|>',
        [LS],
    ),
    "deepseek: wrong opening": (
        "<｜tool▁calls｜>function<｜tool▁sep｜>bash\n"
        + FENCE
        + 'json\n{"command": "ls"}\n'
        + FENCE
        + "<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        [LS],
    ),
    "deepseek: brace and ends missing": (
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>bash\n"
        + FENCE
        + 'json\n{"command": "ls"\n'
        + FENCE,
        [LS],
    ),
    "deepseek: end of the first call missing": (
        '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>bash<｜tool▁sep｜>{"command": "ls"}<｜tool▁call▁begin｜>get_time<｜tool▁sep｜>{}'
        "<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        [LS, TIME],
    ),
    "deepseek: no section": ('<｜tool▁call▁begin｜>bash<｜tool▁sep｜>{"command": "ls"}<｜tool▁call▁end｜>', [LS]),
    "kimi k2: no section": (
        '<|tool_call_begin|>functions.bash:0<|tool_call_argument_begin|>{"command": "ls"}<|tool_call_end|>',
        [LS],
    ),
    "kimi k2: a mark where the end belongs": (
        '<|tool_calls_section_begin|><|tool_call_begin|>functions.bash:0<|tool_call_argument_begin|>{"command": "ls"}<|tool_call_begin|>'
        "functions.get_time:1<|tool_call_argument_begin|>{}<|tool_calls_section_end|>",
        [LS, TIME],
    ),
    "kimi k2: sanitised ids": (
        '<|tool_calls_section_begin|><|tool_call_begin|>functions_bash_0<|tool_call_argument_begin|>{"command": "ls"}<|tool_call_end|>'
        "<|tool_call_begin|>functions.get_time.1<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|>",
        [LS, TIME],
    ),
    "kimi k2: a bare counter": (
        '<|tool_calls_section_begin|><|tool_call_begin|>0<|tool_call_argument_begin|>{"path": "a.txt", "content": "one\\n  two\\n"}'
        "<|tool_call_end|><|tool_calls_section_end|>",
        [FILE],
    ),
    "kimi k3: ends missing": (f"<|open|>response<|sep|>Hi{K3_TOOLS}{K3_CALL}", ["Hi", LS]),
    "inkling: a bad sibling stays text": (
        '<|message_model|>bash<|content_invoke_tool_json|>{"name": "bash", "args": {"command": "ls"}}<|end_message|>'
        '<|message_model|>rm<|content_invoke_tool_json|>{"name": "rm", "args": {}}<|end_message|>',
        [LS, '<|message_model|>rm<|content_invoke_tool_json|>{"name": "rm", "args": {}}<|end_message|>'],
    ),
    # --- gpt-oss ---
    "harmony: the word commentary between calls": (
        '<|channel|>commentary to=functions.bash<|message|>{"command": "ls"}<|call|>commentary<|channel|>commentary to=functions.get_time'
        "<|message|>{}<|call|>",
        [LS, TIME],
    ),
    "harmony: empty body": ("<|channel|>commentary to=functions.get_time <|constrain|>json<|message|><|call|>", [TIME]),
    "harmony: tokens stripped": (
        'analysisI need a list.assistantcommentary to=functions.bash json{"command": "ls"}',
        [ReasoningText("I need a list."), LS],
    ),
    "harmony: tokens stripped, no reasoning, two calls": (
        'commentary to=functions.bash json{"command": "ls"}assistantcommentary to=functions.get_time json{}',
        [LS, TIME],
    ),
    "harmony: tokens stripped, an answer": (
        "analysisHe greets.assistantfinalHi there.",
        [ReasoningText("He greets."), "Hi there."],
    ),
    # --- Gemma ---
    "gemma4: the word call missing": ('<|tool_call>:bash{command:<|"|>ls<|"|>}<tool_call|>', [LS]),
    "gemma4: quoted keys": ('<|tool_call>call:bash{<|"|>command<|"|>:<|"|>ls<|"|>}<tool_call|>', [LS]),
    "gemma4: JSON": ('<|tool_call>call:bash { "command": "ls" }<tool_call|>', [LS]),
    "gemma4: round brackets": ('<|tool_call>call:bash(command: "ls")<tool_call|>', [LS]),
    "gemma4: a namespace": ('<|tool_call>call:google:mcp:bash{command:<|"|>ls<|"|>}<tool_call|>', [LS]),
    "gemma4: no end": ('<|tool_call>call:bash{command:<|"|>ls<|"|>}', [LS]),
    "gemma4: tokens stripped": (
        "I'll write the file.\ncall:write_file{content:one, two: {x},path:a.txt}\nDone.",
        ["I'll write the file.", ("write_file", {"content": "one, two: {x}", "path": "a.txt"}), "Done."],
    ),
}

CUT = {
    "qwen": "<tool_call>\n<function=bash>\n<parameter=command>ls</parameter>",
    "qwen, in a value": "<tool_call>\n<function=bash>\n<parameter=command>rm -rf /tmp/bui",
    "glm": "<tool_call>bash<arg_key>command</arg_key><arg_value>ls</arg_value>",
    "invoke": '<function_calls><invoke name="bash"><parameter name="command">ls</parameter>',
    "dsml": '<｜DSML｜tool_calls><｜DSML｜invoke name="bash"><｜DSML｜parameter name="command" string="true">ls',
    "minimax m3": f'{M3}<tool_call>{M3}<invoke name="bash">{M3}<command>ls{M3}</command>',
    "deepseek": '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>bash<｜tool▁sep｜>{"command": "ls"',
    "kimi k2": '<|tool_calls_section_begin|><|tool_call_begin|>functions.bash:0<|tool_call_argument_begin|>{"command": "l',
    "kimi k3": K3_TOOLS + K3_CALL.removesuffix("<|close|>call<|sep|>"),
    "harmony": '<|channel|>commentary to=functions.bash<|message|>{"command": "rm',
    "gemma4": '<|tool_call>call:bash{command:<|"|>l',
    "inkling": '<|message_model|>bash<|content_invoke_tool_json|>{"name": "bash", "args": {"comm',
}
"""Calls that the limit of tokens cut off: they stay text."""

CUT_VALUES = {
    "qwen": "<tool_call>\n<function=bash>\n<parameter=command>rm -rf /tmp/bui",
    "glm": "<tool_call>bash<arg_key>command</arg_key><arg_value>rm -rf /tmp/bui",
    "invoke": '<function_calls><invoke name="bash"><parameter name="command">rm -rf /tmp/bui',
    "minimax m3": f'{M3}<tool_call>{M3}<invoke name="bash">{M3}<command>rm -rf /tmp/bui',
    "deepseek": '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>bash<｜tool▁sep｜>{"command": "rm -rf /tmp/bui',
    "kimi k3": f'{K3_TOOLS}<|open|>call tool="bash" index="1"<|sep|><|open|>argument key="command" type="string"<|sep|>rm -rf /tmp/b',
    "gemma4": '<|tool_call>call:bash{command:<|"|>rm -rf /tmp/bui',
    "gemma4, tokens stripped": "call:bash{command:rm -rf /tmp/bui",
}
"""Values that do not end, although the finish reason says stop: routers rewrite it."""

INNOCENT = {
    "prose about the tags": "A call begins with <tool_call> and then <function=NAME>, with <parameter=KEY> inside; </tool_call> ends it.",
    "prose about tokens": "It starts with <｜tool▁calls▁begin｜> and every call has <｜tool▁call▁begin｜> before it.",
    "prose about <invoke>": 'Claude writes <invoke name="bash"> and <parameter name="command"> in such cases.',
    "a generic type": "Map<String, List<tool_call>> and x<y, bash<T>.",
    "qwen: a tool that is not offered": "<tool_call>\n<function=rm>\n<parameter=x>\n1\n</parameter>\n</function>\n</tool_call>",
    "glm: a tool that is not offered": "<tool_call>rm<arg_key>x</arg_key><arg_value>1</arg_value></tool_call>",
    "glm: a name and prose": "<tool_call>bash is a shell</tool_call>",
    "invoke: a tool that is not offered": section("minimax:tool_call")
    .replace("bash", "sh2")
    .replace("get_time", "date2"),
    "dsml: a tool that is not offered": dsml("｜DSML｜").replace("bash", "sh2"),
    "dsml: only its beginning": "<｜DSM is how it begins",
    "kimi k2: a tool that is not offered": "<|tool_calls_section_begin|><|tool_call_begin|>functions.rm:0<|tool_call_argument_begin|>{}"
    "<|tool_call_end|><|tool_calls_section_end|>",
    "kimi k2: a counter that fits no tool": '<|tool_call_begin|>0<|tool_call_argument_begin|>{"x": 1}<|tool_call_end|>',
    "gemma4: a tool that is not offered": '<|tool_call>call:rm{x:<|"|>1<|"|>}<tool_call|>',
    "gemma4: a word and a colon": "call: me tomorrow\ncall:bash is the name\ncall:bash{}x",
    "harmony: words": "analysis of the data shows a commentary to=functions.bash by the assistant.",
    "tool as a tag: not alone on its line": "Use <bash>ls</bash> for it, or\n<bash>ls</bash> like this.",
    "tool as a tag: no end": "<bash>\nls",
    "tool as a tag: a required parameter is missing": "<write_file>\n<path>a.txt</path>\n</write_file>",
    "HTML": "<div>\n<code>x</code>\n</div>",
    "a fence": f"Like this:\n\n{FENCE}xml\n" + section("function_calls") + f"\n{FENCE}\n\nYou see.",
    "inline code": 'It wrote `<invoke name="bash"><parameter name="command">ls</parameter></invoke>` there.',
    "minimax m3: only its token": "The token ]<]minimax[>[ stands before every tag, ]<] is its half.",
}


def _describe(pieces: Iterable[Piece]) -> list[object]:
    """Calls with their arguments; texts that follow each other are joined, and blanks at their ends do not count."""
    described: list[object] = []
    for piece in pieces:
        last = described[-1] if described else None
        if isinstance(piece, TextCall):
            described.append((piece.name, json.loads(piece.arguments)))
        elif isinstance(piece, ReasoningText) and isinstance(last, ReasoningText):
            described[-1] = ReasoningText(last.text + piece.text)
        elif isinstance(piece, str) and isinstance(last, str):
            described[-1] = last + piece
        else:
            described.append(piece)
    stripped = [one.strip() if isinstance(one, str) else one for one in described]
    return [one for one in stripped if one != ""]


def _read(text: str, chunks: Iterable[str], was_cut: bool = False) -> list[Piece]:
    reader = TextReader(OfferedTools(TOOLS), FORMATS)
    return [*(piece for chunk in chunks for piece in reader.feed(chunk)), *reader.close(was_cut)]


def _read_every_way(text: str, was_cut: bool = False) -> list[Piece]:
    """The pieces of the whole text; every split gives the same."""
    whole = _read(text, [text], was_cut)
    described = _describe(whole)
    assert _describe(_read(text, text, was_cut)) == described
    for size in (2, 3, 7, 20):
        chunks = [text[at : at + size] for at in range(0, len(text), size)]
        assert _describe(_read(text, chunks, was_cut)) == described
    return whole


@pytest.mark.parametrize("case", CALLS)
def test_call(case: str) -> None:
    text, expected = CALLS[case]
    pieces = _read_every_way(text)
    assert _describe(pieces) == expected
    assert [one.repairs for one in pieces if isinstance(one, TextCall) and one.repairs] == []


@pytest.mark.parametrize("case", REPAIRS)
def test_damage(case: str) -> None:
    text, expected = REPAIRS[case]
    pieces = _read_every_way(text)
    assert _describe(pieces) == expected


@pytest.mark.parametrize("case", CUT)
def test_cut_call_is_text(case: str) -> None:
    assert _describe(_read_every_way(CUT[case], was_cut=True)) == [CUT[case]]


@pytest.mark.parametrize("case", CUT_VALUES)
def test_unfinished_value_is_text(case: str) -> None:
    assert _describe(_read_every_way(CUT_VALUES[case])) == [CUT_VALUES[case]]


@pytest.mark.parametrize("case", INNOCENT)
def test_innocent_text(case: str) -> None:
    assert _describe(_read_every_way(INNOCENT[case])) == [INNOCENT[case]]


_find_tokens = re.compile(r"<[^<>]{0,60}>|```|\s+|[^\s<>]+|.").findall


def _mutate(texts: list[str], chance: random.Random) -> str:
    """One of the texts, with some of its tags and words lost, doubled, or taken from another text."""
    tokens = _find_tokens(chance.choice(texts))
    for _ in range(chance.choice((1, 1, 2, 3))):
        at = chance.randrange(len(tokens) + 1)
        other = _find_tokens(chance.choice(texts))
        tokens = chance.choice(
            (
                [*tokens[:at], *tokens[at + 1 :]],
                [*tokens[: at + 1], *tokens[at:]],
                [*tokens[:at], chance.choice(other), *tokens[at:]],
                [*tokens[:at], *other, *tokens[at:]],
                tokens[:at] or other,
            )
        )
    return "".join(tokens)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_every_split_of_broken_calls_is_equal(seed: int) -> None:
    chance = random.Random(seed)
    texts = [*(text for text, _ in (CALLS | REPAIRS).values()), *CUT.values(), *INNOCENT.values()]
    for _ in range(40):
        _read_every_way(_mutate(texts, chance), was_cut=chance.random() < 0.2)


def test_kimi_ids() -> None:
    """Kimi K2 finds its calls again by their ids."""
    calls = [
        one
        for case in (CALLS["kimi k2"], REPAIRS["kimi k2: sanitised ids"], REPAIRS["kimi k2: a bare counter"])
        for one in _read(case[0], [case[0]])
        if isinstance(one, TextCall)
    ]
    assert [one.id for one in calls] == [
        "functions.bash:3", "functions.get_time:4", "functions.bash:0", "functions.get_time:1", "functions.write_file:0",
    ]  # fmt: skip
