"""Llama 3 with `<|python_tag|>`: JSON, `NAME.call(k="v")` for built-in tools, or code for the code tool."""

from __future__ import annotations

import re
from typing import Final

from toolwire.tool_formats.code_tools import make_code_call
from toolwire.tool_formats.first_name import find_first_name
from toolwire.tool_formats.formats.marked_json import MarkedJson
from toolwire.tool_formats.formats.pythonic import LIST_ENDS
from toolwire.tool_formats.found_calls import make_call
from toolwire.tool_formats.frame import Frame, Situation, ToolFormat, Waiting
from toolwire.tool_formats.json_text import ANY_TEXT, skip_blanks
from toolwire.tool_formats.python_calls import PythonCall, Unread, read_python_calls
from toolwire.tool_formats.reasoning_marks import strip_end_tokens

_TAG: Final = "<|python_tag|>"
_SUFFIX: Final = ".call"
_match_head = re.compile(r"([^\W\d][\w.:/-]*+)(\()?").match
_objects = MarkedJson((_TAG,), "", needs_closing=False, separator=";")


def read_tag(text: str, start: int, situation: Situation) -> Frame | Waiting | None:
    """JSON or a call behind the tag."""
    at = skip_blanks(text, start + len(_TAG))
    if at == len(text):
        return None if situation.is_end else Waiting(ANY_TEXT)
    if text[at] in "{[":
        return _objects.read_open(text, at, situation)
    return _read_python_call(text, at, situation)


def _read_python_call(text: str, at: int, situation: Situation) -> Frame | Waiting | None:
    """`NAME.call(…)` or `NAME(…)`."""
    head = _match_head(text, at)
    if head is None or (head[2] is None and (head.end() < len(text) or situation.is_end)):
        return None
    if head[2] is None:
        return Waiting(ANY_TEXT)
    if situation.tools.find_tool(head[1].removesuffix(_SUFFIX)) is None:
        return None
    read = read_one_call(text, at)
    if isinstance(read, Unread):
        return Waiting((")",)) if read.reason == "cut" and not situation.is_end else None
    call = make_call(situation, read.name.removesuffix(_SUFFIX), read.arguments, read.repairs)
    return None if call is None else Frame(read.end, (call,))


def read_one_call(text: str, at: int) -> PythonCall | Unread:
    """The Python call that begins here, with anything behind it."""
    read = read_python_calls(text, at, in_list=False, is_single=True)
    return read if isinstance(read, Unread) else read.calls[0]


def read_code(text: str, start: int, situation: Situation) -> Frame | Waiting | None:
    """Code behind the tag: all of the answer is for the code tool."""
    if not situation.is_end:
        return Waiting()
    if situation.was_cut:
        return None
    call = make_code_call(strip_end_tokens(text[start + len(_TAG) :]).strip(), situation)
    return None if call is None else Frame(len(text), (call,))


def read_bare_call(text: str, start: int, situation: Situation) -> Frame | Waiting | None:
    """The whole answer is `NAME.call(…)`, or calls of Python: the server dropped the marks."""
    suffix = _SUFFIX if find_first_name(text, start, situation) is None else ""
    name = find_first_name(text, start, situation, suffix)
    if not isinstance(name, str):
        return name
    if not text.startswith("(", start + len(name) + len(suffix)):
        return None
    body = _strip_list_end(strip_end_tokens(text[start:]), situation)
    read = read_python_calls(body, 0, in_list=False)
    if isinstance(read, Unread) and (read.reason != "cut" or situation.is_end):
        return None
    if not situation.is_end:
        return Waiting((")",))
    assert not isinstance(read, Unread)
    calls = [
        make_call(situation, one.name.removesuffix(suffix), one.arguments, ("the marks around it were missing",))
        for one in read.calls
    ]
    return None if None in calls else Frame(len(text), tuple(one for one in calls if one is not None))


def _strip_list_end(body: str, situation: Situation) -> str:
    """Without what ends a list of calls (LFM2, Llama 4): all that is left of the marks around it."""
    token = body.rfind("<")
    last = body[token:] if token >= 0 else ""
    if last and any(mark == last or (mark.startswith(last) and not situation.is_end) for mark in LIST_ENDS):
        body = body[:token]
    return body.rstrip().removesuffix("]")


FORMATS: Final = (
    ToolFormat("llama3_python_tag", (_TAG,), read_tag),
    ToolFormat("llama3_python_tag", (_TAG,), read_code, "start"),
    ToolFormat("llama3_python_tag", ("",), read_bare_call, "start", is_code_in_fence=True),
)
