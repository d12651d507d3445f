"""Tools as a part of the prompt, for models and servers without tools.

`translation.request_steps.prompted_tools` writes a request with these functions; the answer is read by `text_reader`,
like any text of such a model.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from toolwire.call_repair.arguments import mend_arguments
from toolwire.call_repair.offered_tools import OfferedTools
from toolwire.core.ir import Tool
from toolwire.core.json_values import decode_object_or_none, encode
from toolwire.tool_formats.families import AUTO, expected_formats, formats_for_model
from toolwire.tool_formats.frame import TextCall
from toolwire.tool_formats.prompt_table import GENERIC, PROMPTS, ToolPrompt
from toolwire.tool_formats.prompt_writers import PromptCall
from toolwire.tool_formats.text_reader import TextReader


def find_prompt(name: str, model: str) -> ToolPrompt:
    """The row of this name; `auto` is that of the model's family, or the generic one."""
    if name == AUTO:
        return next((PROMPTS[each] for each in expected_formats(model) if each in PROMPTS), PROMPTS[GENERIC])
    if name not in PROMPTS:
        raise ValueError(f"`{name}` is not a format for prompts; known are {', '.join((AUTO, *PROMPTS))}")
    return PROMPTS[name]


def declare_tools(prompt: ToolPrompt, tools: Sequence[Tool]) -> str:
    """The section of the system prompt."""
    return prompt.instruction.replace("$tools", prompt.list_tools(tools))


def write_calls(prompt: ToolPrompt, calls: Sequence[PromptCall], tools: Iterable[Tool]) -> str:
    """The calls as text. Raw values may hold marks of the format, which its reader would take for the end of a value:
    such calls are written in the generic format, whose JSON has escapes."""
    text = prompt.write_calls(calls)
    if prompt.name == GENERIC or _is_read_back(prompt, text, calls, tools):
        return text
    return PROMPTS[GENERIC].write_calls(calls)


def _is_read_back(prompt: ToolPrompt, text: str, calls: Sequence[PromptCall], tools: Iterable[Tool]) -> bool:
    declared = {tool.name: tool for tool in tools}
    offered = OfferedTools([declared.get(call.name) or Tool(call.name) for call in calls])
    reader = TextReader(offered, formats_for_model("", prompt.name), is_call_required=True)
    pieces = [*reader.feed(text), *reader.close(False)]
    found = [(piece.name, _meaning(piece, offered)) for piece in pieces if isinstance(piece, TextCall)]
    rest = "".join(piece for piece in pieces if isinstance(piece, str))
    return not rest.strip() and found == [(call.name, _meaning(call, offered)) for call in calls]


def _meaning(call: PromptCall | TextCall, tools: OfferedTools) -> bytes:
    """The arguments as the reader gives them. It mends those of the model, and may so change those of the history."""
    arguments = decode_object_or_none(call.arguments) or {}
    return encode(mend_arguments(arguments, tools.parameters(call.name)).value)
