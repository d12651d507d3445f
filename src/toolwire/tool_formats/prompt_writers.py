"""Writes calls and results as the text that models of a format were trained on: the counterpart of the readers.

Each function here makes a writer for a row of `prompt_table.PROMPTS`. What a writer writes, its reader reads
back. Marks of the format inside a value would end the call early: in JSON and in Python literals they are written with
an escape. The formats with raw values have none, so a call that would not be read back is written in another format
(`prompts.write_calls`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from msgspec import Struct

from toolwire.core import ids
from toolwire.core.ir import Tool
from toolwire.core.json_values import Json, Object, decode_object_or_none, encode_text


class PromptCall(Struct, frozen=True):
    """An earlier call, as a writer gets it."""

    name: str
    arguments: str
    """The text of a JSON object."""
    id: str = ""
    number: int = 0
    """Which call of the conversation it is. Kimi and Cohere count their calls."""


class PromptResult(Struct, frozen=True):
    """The result of an earlier call. `name`, `id` and `number` are those of the call."""

    text: str
    name: str = ""
    id: str = ""
    number: int = 0


Marks: TypeAlias = tuple[str, ...]
CallWriter: TypeAlias = Callable[[Sequence[PromptCall]], str]
ResultWriter: TypeAlias = Callable[[Sequence[PromptResult]], str]
ToolLister: TypeAlias = Callable[[Sequence[Tool]], str]


def write_json(value: Json, marks: Marks = ()) -> str:
    """JSON with a blank after `,` and `:`, as the chat templates of these models write it."""
    return escape_marks(_write_literal(value, encode_text), marks)


def _write_literal(value: Json, write_scalar: Callable[[Json], str]) -> str:
    if isinstance(value, dict):
        pairs = (f"{encode_text(key)}: {_write_literal(one, write_scalar)}" for key, one in value.items())
        return "{" + ", ".join(pairs) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(_write_literal(one, write_scalar) for one in value) + "]"
    return write_scalar(value)


def escape_marks(text: str, marks: Marks) -> str:
    """JSON, or a Python literal, in which no mark can be seen. Marks can only be in its strings."""
    for mark in marks:
        if mark in text:
            text = text.replace(mark, f"\\u{ord(mark[0]):04x}{mark[1:]}")
    return text


def break_marks(text: str, marks: Marks) -> str:
    """Raw text in which a backslash breaks the marks, so that a result cannot end its own frame, or begin another."""
    for mark in marks:
        if mark in text:
            text = text.replace(mark, f"{mark[0]}\\{mark[1:]}")
    return text


def fill_template(template: str, values: Mapping[str, str]) -> str:
    """The template with `$key` replaced by the value of this key."""
    return re.sub(r"\$([a-z_]+)", lambda found: values[found[1]], template)


# --- declarations -----------------------------------------------------------------------------------------------------


def _declaration(tool: Tool) -> Object:
    schema = tool.parameters if isinstance(tool.parameters, dict) else {"type": "object", "properties": {}}
    return {"name": tool.name, "description": tool.description or "", "parameters": schema}


def list_as_lines(*marks: str) -> ToolLister:
    """One declaration a line, as in OpenAI's `tools`."""

    def list_tools(tools: Sequence[Tool]) -> str:
        return "\n".join(write_json({"type": "function", "function": _declaration(tool)}, marks) for tool in tools)

    return list_tools


def list_as_array(*marks: str, is_bare: bool = False) -> ToolLister:
    """One JSON array, of the functions alone where `is_bare`."""

    def list_tools(tools: Sequence[Tool]) -> str:
        rows = map(_declaration, tools)
        return write_json([row if is_bare else {"type": "function", "function": row} for row in rows], marks)

    return list_tools


def list_as_sections(*marks: str) -> ToolLister:
    """A heading, the description and the parameters of each tool (DeepSeek)."""

    def write_section(tool: Tool) -> str:
        row = _declaration(tool)
        return (
            f"### {tool.name}\nDescription: {break_marks(str(row['description']), marks)}\n\n"
            f"Parameters: {write_json(row['parameters'], marks)}\n"
        )

    return lambda tools: "\n".join(map(write_section, tools))


def list_in_tags(tag: str, *marks: str) -> ToolLister:
    """One declaration in each tag (MiniMax, Claude)."""

    def list_tools(tools: Sequence[Tool]) -> str:
        return "\n".join(f"<{tag}>{write_json(_declaration(tool), (f'</{tag}>', *marks))}</{tag}>" for tool in tools)

    return list_tools


# --- calls with JSON --------------------------------------------------------------------------------------------------


def nine_letter_id(call: PromptCall | PromptResult) -> str:
    """Mistral's models know ids of nine letters and digits only."""
    return call.id if re.fullmatch("[A-Za-z0-9]{9}", call.id) else ids.hex_digest(call.id, 9)


def join_json_calls(
    before: str,
    between: str,
    after: str,
    *marks: str,
    keys: tuple[str, str] = ("name", "arguments"),
    id_key: str = "",
    write_id: Callable[[PromptCall], str] = nine_letter_id,
    id_first: bool = False,
) -> CallWriter:
    """An object for each call."""

    def write_call(call: PromptCall) -> str:
        fields = [f'"{keys[0]}": {write_json(call.name)}', f'"{keys[1]}": {escape_marks(call.arguments, marks)}']
        if id_key:
            fields.insert(0 if id_first else 2, f'"{id_key}": "{write_id(call)}"')
        return f"{{{', '.join(fields)}}}"

    return lambda calls: before + between.join(map(write_call, calls)) + after


def fill_call_template(
    before: str, template: str, after: str, *marks: str, write_id: Callable[[PromptCall], str] = nine_letter_id
) -> CallWriter:
    """`$name`, `$id` and `$arguments` of the template are those of each call."""

    def write_call(call: PromptCall) -> str:
        arguments = escape_marks(call.arguments, marks)
        return fill_template(template, {"name": call.name, "id": write_id(call), "arguments": arguments})

    return lambda calls: before + "".join(map(write_call, calls)) + after


def kimi_id(call: PromptCall | PromptResult) -> str:
    """Kimi's models count their calls over the whole conversation, and know them by these ids."""
    return f"functions.{call.name}:{call.number}"


# --- calls with tags and raw values -----------------------------------------------------------------------------------


def write_raw_value(value: Json) -> str:
    return value if isinstance(value, str) else write_json(value)


def join_tagged_calls(
    before: str, between: str, after: str, call: tuple[str, str], parameter: str, *, trims_newlines: bool = False
) -> CallWriter:
    """`call` is what opens a call of `$name`, and what closes it; `$key` and `$value` of `parameter` are those of each
    argument, `$is_text` is `true` if it is a string (DeepSeek). `trims_newlines`: the reader takes one newline at each
    end of a value for a part of the markup, though the model writes none."""
    opening, closing = call

    def write_parameter(key: str, value: Json) -> str:
        text, is_text = write_raw_value(value), "true" if isinstance(value, str) else "false"
        if trims_newlines and (text.startswith("\n") or text.endswith("\n")):
            text = f"\n{text}\n"
        return fill_template(parameter, {"key": key, "value": text, "is_text": is_text})

    def write_call(call: PromptCall) -> str:
        arguments = decode_object_or_none(call.arguments) or {}
        lines = [fill_template(opening, {"name": call.name}), *map(write_parameter, arguments, arguments.values())]
        return "\n".join((*lines, closing))

    return lambda calls: before + between.join(map(write_call, calls)) + after


# --- calls as Python --------------------------------------------------------------------------------------------------


def write_python(value: Json) -> str:
    """A Python literal. Strings and numbers are written as in JSON, which Python reads alike."""
    return _write_literal(value, lambda one: str(one) if one is None or isinstance(one, bool) else encode_text(one))


def join_python_calls(before: str, between: str, after: str, *marks: str) -> CallWriter:
    """`NAME(key="value")` for each call."""

    def write_call(call: PromptCall) -> str:
        arguments = decode_object_or_none(call.arguments) or {}
        pairs = (f"{key}={escape_marks(write_python(value), marks)}" for key, value in arguments.items())
        return f"{call.name}({', '.join(pairs)})"

    return lambda calls: before + between.join(map(write_call, calls)) + after


# --- results ----------------------------------------------------------------------------------------------------------


class ResultFrames(Struct, frozen=True):
    """How results are written, and how they begin: a model that goes on after its calls would make up their results, so
    this is a stop sequence."""

    write: ResultWriter
    start: str


def frame_results(template: str, *marks: str, around: tuple[str, str] = ("", ""), between: str = "\n") -> ResultFrames:
    """`$name`, `$number`, `$text` and the ids of the template are those of each result; `$json` is its text as a JSON
    string."""
    before, after = around

    def write_result(result: PromptResult) -> str:
        values = {
            "name": result.name,
            "number": str(result.number),
            "nine_letters": nine_letter_id(result),
            "kimi_id": kimi_id(result),
            "text": break_marks(result.text, marks),
            "json": write_json(result.text, marks),
        }
        return fill_template(template, values)

    start = next(mark for mark in marks if (before + template).startswith(mark))
    return ResultFrames(lambda results: before + between.join(map(write_result, results)) + after, start)


def fence_results(results: Sequence[PromptResult]) -> str:
    """Each result in a fence that is longer than those in its text (Gemma)."""
    blocks: list[str] = []
    for result in results:
        longest = max(map(len, re.findall("`{3,}", result.text)), default=2)
        fence = "`" * (longest + 1)
        blocks.append(f"{fence}tool_output\n{result.text}\n{fence}")
    return "\n".join(blocks)
