"""Calls of the code tool, whose body is code and not JSON (Llama 3, Functionary)."""

from __future__ import annotations

import ast
from typing import Final

from toolwire.schema.combine import string_items, type_names
from toolwire.tool_formats.found_calls import make_call, parameter_schemas
from toolwire.tool_formats.frame import Situation, TextCall

CODE_TOOLS: Final = ("python", "code_interpreter", "ipython")
_MAX_CODE: Final = 100_000


def make_code_call(code: str, situation: Situation, name: str = "") -> TextCall | None:
    """The call of the offered code tool with this code; None if there is no such tool, or it is not Python."""
    offered = [one for one in CODE_TOOLS if situation.tools.find_tool(one) == one and name in ("", one)]
    if len(offered) != 1 or not is_python(code):
        return None
    parameter = find_only_text_parameter(situation, offered[0])
    return None if parameter is None else make_call(situation, offered[0], {parameter: code})


def find_only_text_parameter(situation: Situation, tool: str) -> str | None:
    """The parameter that a bare text can mean: the only required one, or the only one, if it is a string."""
    schemas = parameter_schemas(situation, tool)
    names = string_items(situation.tools.parameters(tool).get("required")) or [*schemas]
    found = schemas.get(names[0]) if len(names) == 1 else None
    return names[0] if isinstance(found, dict) and type_names(found.get("type")) == ["string"] else None


def is_python(code: str) -> bool:
    if not code or len(code) > _MAX_CODE:
        return False
    try:
        ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True
