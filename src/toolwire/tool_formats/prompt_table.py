"""How tools are written into a prompt, one row for each format, as close to the chat templates of the models as a
system prompt and user turns allow.

Models of a family without a row get `GENERIC`. It is the format of Hermes and Qwen, which says in plain words what to
write, and which most open models have seen.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from toolwire.tool_formats.prompt_writers import (
    CallWriter,
    ResultFrames,
    ToolLister,
    fence_results,
    fill_call_template,
    frame_results,
    join_json_calls,
    join_python_calls,
    join_tagged_calls,
    kimi_id,
    list_as_array,
    list_as_lines,
    list_as_sections,
    list_in_tags,
)

GENERIC = "hermes"


_TOOL_RESPONSE = ("<tool_response>", "</tool_response>")


class ToolPrompt(Struct, frozen=True, kw_only=True):
    """A row of the table. Its name is that of the format, as in `formats.FORMATS`. The defaults are those of Hermes."""

    name: str
    instruction: str
    """The section of the system prompt. `$tools` is the list of the tools."""
    write_calls: CallWriter
    list_tools: ToolLister = list_as_lines("</tools>", "<tool_call>")
    results: ResultFrames = frame_results("<tool_response>\n$text\n</tool_response>", *_TOOL_RESPONSE)


_CALLS = "You may call one or more functions to assist with the user query."
_SIGNATURES = f"""\
# Tools

{_CALLS}

You are provided with function signatures within <tools></tools> XML tags:
<tools>
$tools
</tools>

"""
_HERMES_FORM = """\
For each function call, return a json object with function name and arguments within <tool_call></tool_call> XML tags:
<tool_call>
{"name": <function-name>, "arguments": <args-json-object>}
</tool_call>"""

_DEEPSEEK_RULES = """\
Where:
- `tool_call_name` must be an exact match to one of the available tools
- `tool_call_arguments` must be valid JSON that strictly follows the tool's Parameters Schema
- For multiple tool calls, chain them directly without separators or spaces"""
_DEEPSEEK_MARKS = tuple(
    f"<｜tool▁{word}｜>"
    for word in (
        "calls▁begin", "calls▁end", "call▁begin", "call▁end", "sep",
        "outputs▁begin", "outputs▁end", "output▁begin", "output▁end",
    )
)  # fmt: skip
_OUTPUTS = frame_results('[Output of $name]\n{"output": $json}', "[Output of ")
_DEEPSEEK_RESULTS = frame_results(
    "<｜tool▁output▁begin｜>$text<｜tool▁output▁end｜>",
    *_DEEPSEEK_MARKS,
    around=("<｜tool▁outputs▁begin｜>", "<｜tool▁outputs▁end｜>"),
)

_MISTRAL_MARKS = (
    "[TOOL_CALLS]", "[ARGS]", "[CALL_ID]", "[TOOL_RESULTS]", "[/TOOL_RESULTS]", "[TOOL_CONTENT]",
    "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]",
)  # fmt: skip
_KIMI_MARKS = tuple(
    f"<|{word}|>"
    for word in (
        "tool_calls_section_begin", "tool_calls_section_end", "tool_call_begin", "tool_call_argument_begin",
        "tool_call_end",
    )
)  # fmt: skip
_LFM2_MARKS = tuple(f"<|tool_{kind}_{side}|>" for kind in ("list", "call", "response") for side in ("start", "end"))
_TOOL_CALL = ("<tool_call>\n", "\n</tool_call>\n<tool_call>\n", "\n</tool_call>")
"""What is before, between and after the calls, each in its own tag."""
_FUNCTION = ("<function=$name>", "</function>")
_FUNCTION_RESULTS = ("<function_results>", "</function_results>")
_AROUND_FUNCTION_RESULTS = ("<function_results>\n", "\n</function_results>")
_INVOKE = ('<invoke name="$name">', "</invoke>")
_INVOKE_PARAMETER = '<parameter name="$key">$value</parameter>'

_ROWS = (
    ToolPrompt(
        name=GENERIC,
        instruction=_SIGNATURES + _HERMES_FORM,
        write_calls=join_json_calls(*_TOOL_CALL, "<tool_call>", "</tool_call>"),
    ),
    ToolPrompt(
        name="qwen3_coder",
        instruction="""\
# Tools

You have access to the following functions:

<tools>
$tools
</tools>

If you choose to call a function ONLY reply in the following format with NO suffix:

<tool_call>
<function=example_function_name>
<parameter=example_parameter_1>
value_1
</parameter>
<parameter=example_parameter_2>
This is the value for the second parameter
that can span
multiple lines
</parameter>
</function>
</tool_call>

Reminder:
- Function calls MUST follow the specified format: an inner <function=...></function> block must be nested within \
<tool_call></tool_call> XML tags
- Required parameters MUST be specified
- You may provide optional reasoning for your function call in natural language BEFORE the function call, but NOT after
- If there is no function call available, answer the question like normal with your current knowledge""",
        write_calls=join_tagged_calls(*_TOOL_CALL, _FUNCTION, "<parameter=$key>\n$value\n</parameter>"),
    ),
    ToolPrompt(
        name="glm",
        instruction=_SIGNATURES
        + """\
For each function call, output the function name and arguments within the following XML format:
<tool_call>{function-name}
<arg_key>{arg-key-1}</arg_key>
<arg_value>{arg-value-1}</arg_value>
<arg_key>{arg-key-2}</arg_key>
<arg_value>{arg-value-2}</arg_value>
...
</tool_call>""",
        write_calls=join_tagged_calls(
            "",
            "\n",
            "",
            ("<tool_call>$name", "</tool_call>"),
            "<arg_key>$key</arg_key>\n<arg_value>$value</arg_value>",
        ),
    ),
    ToolPrompt(
        name="llama3_json",
        instruction="""\
You have access to the following functions. To call a function, please respond with JSON for a function call, and with \
nothing else.
Respond in the format {"name": function name, "parameters": dictionary of argument name and its value}. Do not use \
variables. Separate several calls by `; `.

$tools""",
        list_tools=list_as_lines(),
        write_calls=join_json_calls("", "; ", "", keys=("name", "parameters")),
        results=_OUTPUTS,
    ),
    ToolPrompt(
        name="pythonic",
        instruction="""\
You have access to the following functions:

$tools

If you decide to invoke any of the functions, you MUST put it in the format of \
[func_name1(params_name1=params_value1, params_name2=params_value2...), func_name2(params)]
You SHOULD NOT include any other text in the response then. If none of the functions can be used, answer normally.""",
        list_tools=list_as_array(is_bare=True),
        write_calls=join_python_calls("[", ", ", "]"),
        results=_OUTPUTS,
    ),
    ToolPrompt(
        name="mistral_json",
        instruction="""\
[AVAILABLE_TOOLS] $tools[/AVAILABLE_TOOLS]
To call tools, write [TOOL_CALLS] and a JSON array of the calls, and nothing after it:
[TOOL_CALLS] [{"name": "tool name", "arguments": {"parameter": "value"}, "id": "nine letters or digits"}]""",
        list_tools=list_as_array(*_MISTRAL_MARKS),
        write_calls=join_json_calls("[TOOL_CALLS] [", ", ", "]", *_MISTRAL_MARKS, id_key="id"),
        results=frame_results(
            '[TOOL_RESULTS] {"content": $json, "call_id": "$nine_letters"}[/TOOL_RESULTS]', *_MISTRAL_MARKS
        ),
    ),
    ToolPrompt(
        name="mistral_args",
        instruction="""\
[AVAILABLE_TOOLS]$tools[/AVAILABLE_TOOLS]
To call a tool, write its name and a JSON object of its arguments between these marks, and nothing after it. Repeat \
all of it for each further call:
[TOOL_CALLS]tool_name[ARGS]{"parameter": "value"}""",
        list_tools=list_as_array(*_MISTRAL_MARKS),
        write_calls=fill_call_template("", "[TOOL_CALLS]$name[CALL_ID]$id[ARGS]$arguments", "", *_MISTRAL_MARKS),
        results=frame_results("[TOOL_RESULTS]$nine_letters[TOOL_CONTENT]$text[/TOOL_RESULTS]", *_MISTRAL_MARKS),
    ),
    ToolPrompt(
        name="deepseek_v3",
        instruction=f"""\
## Tools
You have access to the following tools:

$tools
IMPORTANT: ALWAYS adhere to this exact format for tool use:
<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>tool_call_name
```json
tool_call_arguments
```<｜tool▁call▁end｜>{{additional_tool_calls}}<｜tool▁calls▁end｜>

{_DEEPSEEK_RULES}""",
        list_tools=list_as_sections(*_DEEPSEEK_MARKS),
        write_calls=fill_call_template(
            "<｜tool▁calls▁begin｜>",
            "<｜tool▁call▁begin｜>function<｜tool▁sep｜>$name\n```json\n$arguments\n```<｜tool▁call▁end｜>",
            "<｜tool▁calls▁end｜>",
            "```",
            *_DEEPSEEK_MARKS,
        ),
        results=_DEEPSEEK_RESULTS,
    ),
    ToolPrompt(
        name="deepseek_v31",
        instruction=f"""\
## Tools
You have access to the following tools:

$tools
IMPORTANT: ALWAYS adhere to this exact format for tool use:
<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>tool_call_name<｜tool▁sep｜>tool_call_arguments<｜tool▁call▁end｜>\
{{additional_tool_calls}}<｜tool▁calls▁end｜>

{_DEEPSEEK_RULES}""",
        list_tools=list_as_sections(*_DEEPSEEK_MARKS),
        write_calls=fill_call_template(
            "<｜tool▁calls▁begin｜>",
            "<｜tool▁call▁begin｜>$name<｜tool▁sep｜>$arguments<｜tool▁call▁end｜>",
            "<｜tool▁calls▁end｜>",
            *_DEEPSEEK_MARKS,
        ),
        results=_DEEPSEEK_RESULTS,
    ),
    ToolPrompt(
        name="deepseek_dsml",
        instruction="""\
## Tools

You have access to a set of tools you can use to answer the user's question.
You can invoke functions by writing a "<｜DSML｜function_calls>" block like the following as part of your reply to the \
user:
<｜DSML｜function_calls>
<｜DSML｜invoke name="$FUNCTION_NAME">
<｜DSML｜parameter name="$PARAMETER_NAME" string="true|false">$PARAMETER_VALUE</｜DSML｜parameter>
...
</｜DSML｜invoke>
<｜DSML｜invoke name="$FUNCTION_NAME2">
...
</｜DSML｜invoke>
</｜DSML｜function_calls>

String and scalar parameters should be specified as is without any escaping or quotes, while lists and objects should \
use JSON format. The "string" attribute should be set to "true" for string type parameters and "false" for other types \
(numbers, booleans, arrays, objects).

Here are the functions available in JSONSchema format:
<functions>
$tools
</functions>""",
        list_tools=list_as_lines("</functions>", "<｜DSML｜"),
        write_calls=join_tagged_calls(
            "<｜DSML｜function_calls>\n",
            "\n",
            "\n</｜DSML｜function_calls>",
            ('<｜DSML｜invoke name="$name">', "</｜DSML｜invoke>"),
            '<｜DSML｜parameter name="$key" string="$is_text">$value</｜DSML｜parameter>',
        ),
        results=frame_results(
            "<result>$text</result>", "<result>", "</result>", *_FUNCTION_RESULTS, around=_AROUND_FUNCTION_RESULTS
        ),
    ),
    ToolPrompt(
        name="kimi_k2",
        instruction="""\
## Tools
You have access to the following tools:

$tools

To call tools, write a section like this one, and nothing after it. Count the calls over the whole conversation, from 0:
<|tool_calls_section_begin|><|tool_call_begin|>functions.tool_name:0<|tool_call_argument_begin|>{"parameter": "value"}\
<|tool_call_end|><|tool_calls_section_end|>""",
        list_tools=list_as_array(*_KIMI_MARKS),
        write_calls=fill_call_template(
            "<|tool_calls_section_begin|>",
            "<|tool_call_begin|>$id<|tool_call_argument_begin|>$arguments<|tool_call_end|>",
            "<|tool_calls_section_end|>",
            *_KIMI_MARKS,
            write_id=kimi_id,
        ),
        results=frame_results("## Return of $kimi_id\n$text", "## Return of ", between="\n\n"),
    ),
    ToolPrompt(
        name="granite3",
        instruction="""\
You are a helpful AI assistant with access to the following tools. When a tool is required to answer the user's query, \
respond with <|tool_call|> followed by a JSON list of tools used. If a tool does not exist in the provided list of \
tools, notify the user that you do not have the ability to fulfill the request.
<|tool_call|>[{"name": "tool name", "arguments": {"parameter": "value"}}]

Available tools:
$tools""",
        list_tools=list_as_array("<|tool_call|>"),
        write_calls=join_json_calls("<|tool_call|>[", ", ", "]", "<|tool_call|>"),
    ),
    ToolPrompt(
        name="functools",
        instruction="""\
In addition to plain text responses, you can choose to call one or more of the provided functions.

Use the following rule to decide when to call a function:
  * if the response can be generated from your internal knowledge, do so
  * if you need external information that can be obtained by calling one or more of the provided functions, generate \
function calls

If you decide to call functions:
  * prefix function calls with the functools marker (no closing marker required)
  * all function calls should be generated in a single JSON list formatted as \
functools[{"name": [function name], "arguments": [function arguments as JSON]}, ...]
  * follow the provided JSON schema. Do not hallucinate arguments or values

Here are the functions:
$tools""",
        list_tools=list_as_array("functools["),
        write_calls=join_json_calls("functools[", ", ", "]", "functools["),
        results=frame_results("<|tool_response|>$text<|/tool_response|>", "<|tool_response|>", "<|/tool_response|>"),
    ),
    ToolPrompt(
        name="gemma_tool_code",
        instruction="""\
At each turn, if you decide to invoke any of the functions, it should be wrapped with ```tool_code```, one call a \
line, and nothing should follow it:
```tool_code
function_name(parameter="value")
```
The functions described below are imported and available, you can only use these. The response to a function will be \
wrapped in ```tool_output```; use it to call more functions or to generate a helpful, friendly response.

The following functions are available:
$tools""",
        list_tools=list_as_lines("```"),
        write_calls=join_python_calls("```tool_code\n", "\n", "\n```", "```"),
        results=ResultFrames(fence_results, "```tool_output"),
    ),
    ToolPrompt(
        name="olmo3",
        instruction="""\
You are a helpful function-calling AI assistant. You can call these functions: <functions>$tools</functions>
To call functions, write one call a line like this, and nothing after it:
<function_calls>function_name(parameter="value")</function_calls>""",
        list_tools=list_as_array("</functions>", "<function_calls>", is_bare=True),
        write_calls=join_python_calls(
            "<function_calls>", "\n", "</function_calls>", "<function_calls>", "</function_calls>"
        ),
        results=frame_results(
            "<function_output>\n$text\n</function_output>", "<function_output>", "</function_output>"
        ),
    ),
    ToolPrompt(
        name="lfm2",
        instruction="""\
List of tools: <|tool_list_start|>$tools<|tool_list_end|>
To call tools, write a list of the calls like this, and nothing after it:
<|tool_call_start|>[function_name(parameter="value")]<|tool_call_end|>""",
        list_tools=list_as_array(*_LFM2_MARKS, is_bare=True),
        write_calls=join_python_calls("<|tool_call_start|>[", ", ", "]<|tool_call_end|>", *_LFM2_MARKS),
        results=frame_results("<|tool_response_start|>$text<|tool_response_end|>", *_LFM2_MARKS),
    ),
    ToolPrompt(
        name="nemotron_toolcall",
        instruction="""\
You can use the following tools to assist the user if required:
<AVAILABLE_TOOLS>$tools</AVAILABLE_TOOLS>

If you decide to call any tool(s), use the following format:
<TOOLCALL>[{"name": "tool_name1", "arguments": "tool_args1"}, {"name": "tool_name2", "arguments": "tool_args2"}]\
</TOOLCALL>

The user will execute tool-calls and return responses from tool(s) in this format:
<TOOL_RESPONSE>["tool_response1", "tool_response2"]</TOOL_RESPONSE>

Based on the tool responses, you can call additional tools if needed, correct tool calls if any errors are found, or \
just respond to the user.""",
        list_tools=list_as_array("</AVAILABLE_TOOLS>", "<TOOLCALL>"),
        write_calls=join_json_calls("<TOOLCALL>[", ", ", "]</TOOLCALL>", "<TOOLCALL>", "</TOOLCALL>"),
        results=frame_results(
            "$json",
            "<TOOL_RESPONSE>",
            "</TOOL_RESPONSE>",
            around=("<TOOL_RESPONSE>[", "]</TOOL_RESPONSE>"),
            between=", ",
        ),
    ),
    ToolPrompt(
        name="anthropic_xml",
        instruction="""\
In this environment you have access to a set of tools you can use to answer the user's question.
You can invoke functions by writing a "<function_calls>" block like the following as part of your reply to the user:
<function_calls>
<invoke name="$FUNCTION_NAME">
<parameter name="$PARAMETER_NAME">$PARAMETER_VALUE</parameter>
...
</invoke>
<invoke name="$FUNCTION_NAME2">
...
</invoke>
</function_calls>

String and scalar parameters should be specified as is, while lists and objects should use JSON format.

Here are the functions available in JSONSchema format:
<functions>
$tools
</functions>""",
        list_tools=list_in_tags("function", "</functions>", "<function_calls>"),
        write_calls=join_tagged_calls("<function_calls>\n", "\n", "\n</function_calls>", _INVOKE, _INVOKE_PARAMETER),
        results=frame_results(
            "<result>\n<tool_name>$name</tool_name>\n<stdout>\n$text\n</stdout>\n</result>",
            "</stdout>",
            "</result>",
            *_FUNCTION_RESULTS,
            around=_AROUND_FUNCTION_RESULTS,
        ),
    ),
    ToolPrompt(
        name="minimax_m2",
        instruction="""\
# Tools
You may call one or more tools to assist with the user query.
Here are the tools available in JSONSchema format:

<tools>
$tools
</tools>

When making tool calls, use XML format to invoke tools and pass parameters:

<minimax:tool_call>
<invoke name="tool-name-1">
<parameter name="param-key-1">param-value-1</parameter>
<parameter name="param-key-2">param-value-2</parameter>
...
</invoke>
</minimax:tool_call>""",
        list_tools=list_in_tags("tool", "</tools>", "<minimax:tool_call>"),
        write_calls=join_tagged_calls(
            "<minimax:tool_call>\n", "\n", "\n</minimax:tool_call>", _INVOKE, _INVOKE_PARAMETER
        ),
        results=frame_results("<response>$text</response>", "<response>", "</response>"),
    ),
    ToolPrompt(
        name="seed_oss",
        instruction="""\
You can use these functions:

$tools

To call a function, write it like this, and nothing after it. Repeat the whole block for each further call:
<seed:tool_call>
<function=function_name>
<parameter=parameter_1>value_1</parameter>
<parameter=parameter_2>value_2</parameter>
</function>
</seed:tool_call>""",
        list_tools=list_as_lines("<seed:tool_call>"),
        write_calls=join_tagged_calls(
            "<seed:tool_call>\n",
            "\n</seed:tool_call>\n<seed:tool_call>\n",
            "\n</seed:tool_call>",
            _FUNCTION,
            "<parameter=$key>$value</parameter>",
            trims_newlines=True,
        ),
    ),
    ToolPrompt(
        name="cohere",
        instruction="""\
You have these tools:
$tools

To call tools, write a JSON list of the calls like this, and nothing after it. `tool_call_id` counts the calls of the \
conversation, from 0:
<|START_ACTION|>[
    {"tool_call_id": "0", "tool_name": "tool name", "parameters": {"parameter": "value"}}
]<|END_ACTION|>""",
        list_tools=list_as_array("<|START_ACTION|>", is_bare=True),
        write_calls=join_json_calls(
            "<|START_ACTION|>[\n    ",
            ",\n    ",
            "\n]<|END_ACTION|>",
            "<|START_ACTION|>",
            "<|END_ACTION|>",
            keys=("tool_name", "parameters"),
            id_key="tool_call_id",
            write_id=lambda call: str(call.number),
            id_first=True,
        ),
        results=frame_results(
            '{"tool_call_id": "$number", "results": {"0": $json}}',
            "<|START_TOOL_RESULT|>",
            "<|END_TOOL_RESULT|>",
            around=("<|START_TOOL_RESULT|>[\n    ", "\n]<|END_TOOL_RESULT|>"),
            between=",\n    ",
        ),
    ),
)

PROMPTS: Mapping[str, ToolPrompt] = {row.name: row for row in _ROWS}
