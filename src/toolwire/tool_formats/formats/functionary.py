"""Functionary: `<function=NAME>{…}</function>` (3.1), and `>>>NAME⏎{…}` (3.2), whose first `>>>` is in the prompt."""

from __future__ import annotations

import re
from typing import Final

from toolwire.tool_formats.code_tools import CODE_TOOLS, make_code_call
from toolwire.tool_formats.first_name import find_first_name
from toolwire.tool_formats.found_calls import make_json_call, read_json_frame
from toolwire.tool_formats.frame import Frame, Situation, ToolFormat, Waiting
from toolwire.tool_formats.json_text import ANY_TEXT, find_mark_outside, skip_blanks
from toolwire.tool_formats.reasoning_marks import strip_end_tokens

_OPENINGS: Final = ("<function=", "<function name=")
"""The second is how some fine-tunes write it."""
_CLOSING: Final = "</function>"
_RECIPIENT: Final = ">>>"
_MAX_HEAD: Final = 200
_match_function = re.compile(r"<function(?:=| name=)\s*+[\"']?+([^\s>\"']++)[\"']?+\s*+>\s*+").match
_match_recipient = re.compile(r">>>([^\W\d][\w.-]*+)(\n)?").match


def read_function(text: str, start: int, situation: Situation) -> Frame | Waiting | None:
    head = _match_function(text, start)
    if head is None or head.end() == len(text):
        is_open = not situation.is_end and "\n" not in text[start:] and len(text) - start < _MAX_HEAD
        return Waiting(ANY_TEXT) if is_open or (head and not situation.is_end) else None
    if text[head.end()] != "{" or situation.tools.find_tool(head[1]) is None:
        return None
    stop = find_mark_outside(text, head.end(), (_CLOSING, *_OPENINGS))
    if stop is None and not situation.is_end:
        return Waiting((_CLOSING, *_OPENINGS))
    if stop is None and situation.was_cut:
        return None
    body = strip_end_tokens(text[head.end() : stop.start() if stop else len(text)])
    said = () if stop and stop[0] == _CLOSING else (f"the closing `{_CLOSING}` was missing",)
    call = make_json_call(situation, head[1], body, said)
    if call is None:
        return None
    return Frame(len(text) if stop is None else stop.start() if said else stop.end(), (call,))


def read_recipient(text: str, start: int, situation: Situation) -> Frame | Waiting | None:
    """`>>>NAME` on a line, or `>>>all` before text."""
    head = _match_recipient(text, start)
    if head is None or head[2] is None:
        touches_end = len(text) == (head.end() if head else start + len(_RECIPIENT))
        is_open = touches_end and len(text) - start < _MAX_HEAD and not situation.is_end
        return Waiting(ANY_TEXT) if is_open else None
    if head[1] == "all":
        return Frame(head.end(), ())
    return None if situation.tools.find_tool(head[1]) is None else _read_body(text, head, head[1], situation)


def _read_body(text: str, head: re.Match[str], name: str, situation: Situation) -> Frame | Waiting | None:
    """The JSON or code behind the line with the name."""
    at = skip_blanks(text, head.end())
    if at == len(text):
        return None if situation.is_end else Waiting(ANY_TEXT)
    if text[at] == "{":
        return read_json_frame(text, at, name, situation)
    if name not in CODE_TOOLS:
        return None
    end = text.find(_RECIPIENT, at)
    if end < 0 and not situation.is_end:
        return Waiting((_RECIPIENT,))
    if end < 0 and situation.was_cut:
        return None
    call = make_code_call(strip_end_tokens(text[at : end if end >= 0 else len(text)]), situation, name)
    return None if call is None else Frame(end if end >= 0 else len(text), (call,))


_match_line = re.compile(r"[^\W\d][\w.-]*+\n").match
_ALL: Final = "all\n"
_MAX_ANSWER: Final = 20_000
"""Characters of an answer before a call that are held back."""


def read_answer_first(text: str, start: int, situation: Situation) -> Frame | Waiting | None:
    """The first line is the recipient `all`, before text for the user. Other models begin with this word, too, so a
    call must follow."""
    at = text.find(_RECIPIENT, start)
    while at >= 0:
        head = _match_recipient(text, at)
        if head and head[2] and situation.tools.find_tool(head[1]):
            return Frame(start + len(_ALL), ())
        at = text.find(_RECIPIENT, at + 1)
    return None if situation.is_end or len(text) - start > _MAX_ANSWER else Waiting(("\n",))


def read_known_answer(text: str, start: int, situation: Situation) -> Frame | Waiting | None:
    """The same, of a model that is known for it."""
    return Frame(start + len(_ALL), ())


def read_first_line(text: str, start: int, situation: Situation) -> Frame | Waiting | None:
    """The first line is a tool whose arguments are the rest of the answer."""
    name = find_first_name(text, start, situation)
    head = _match_line(text, start)
    if not isinstance(name, str):
        return name
    return _read_body(text, head, name, situation) if head else None


FORMATS: Final = (
    ToolFormat("functionary_v31", _OPENINGS, read_function),
    # A name must follow, so that a text of nothing but `>` is not looked at character by character.
    ToolFormat(
        "functionary_v32",
        (),
        read_recipient,
        opening_pattern=r">(?=>>(?:[^\W\d]|\Z))",
        unfinished_opening=r">(?=>?\Z)",
    ),
    ToolFormat("functionary_v32", (_ALL,), read_known_answer, "start", needs_known_model=True),
    ToolFormat("functionary_v32", (_ALL,), read_answer_first, "start"),
    ToolFormat("functionary_v32", ("",), read_first_line, "start"),
)
