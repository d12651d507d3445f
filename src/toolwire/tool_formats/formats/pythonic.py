"""Formats whose calls are Python: Llama 3.2 and 4, LFM2, Olmo 3, Gemma 3."""

from __future__ import annotations

import re
from typing import Final

from toolwire.tool_formats.found_calls import add_repair, make_call
from toolwire.tool_formats.frame import Frame, Piece, Situation, TextCall, ToolFormat, Waiting
from toolwire.tool_formats.json_calls import read_calls
from toolwire.tool_formats.json_text import ANY_TEXT, skip_blanks
from toolwire.tool_formats.python_calls import PythonCall, PythonCalls, Unread, read_python_calls
from toolwire.tool_formats.reasoning_marks import strip_end_tokens

_match_list = re.compile(r"\[\s*+([^\W\d][\w.:/-]*+)\s*+(\()?").match
_match_part_of_list = re.compile(r"\[\s*+\Z").match
_match_call = re.compile(r"([^\W\d][\w.:/-]*+)\s*+(\()?").match
_MAX_NAME: Final = 200
_MAX_ENDS: Final = 20
"""Closing marks that are tried in one frame: a string can hold some."""
_MAX_BROKEN: Final = 100_000
"""Characters that are still mended."""
LIST_ENDS: Final = ("<|python_end|>", "<|tool_call_end|>")
"""They may follow a list whose opening mark is missing: servers drop special tokens."""
_is_empty_list = re.compile(r"\[\s*\]").fullmatch
_remove_prints = re.compile(r"^[ \t]*print\((.*)\)[ \t]*$", re.MULTILINE).sub
_remove_print = re.compile(r"\Aprint\((.*)\)\Z", re.DOTALL).sub


def read_list(text: str, start: int, situation: Situation) -> Frame | Waiting | None:
    """A list without marks: all of it must be calls of offered tools."""
    found = _match_list(text, start)
    if found is None:
        return Waiting(ANY_TEXT) if not situation.is_end and _match_part_of_list(text, start) else None
    if found[2] is None:
        is_open = found.end() == len(text) and len(found[1]) < _MAX_NAME and not situation.is_end
        return Waiting(ANY_TEXT) if is_open else None
    if situation.tools.find_tool(found[1]) is None:
        return None
    read = read_python_calls(text, start)
    if isinstance(read, PythonCalls):
        return _end_list(text, read, situation)
    if read.reason == "broken":
        return None
    if not situation.is_end:
        return Waiting(("]",) if read.reason == "cut" else ())
    return None if situation.was_cut else _read_broken_list(text, start, read, situation)


def _end_list(text: str, read: PythonCalls, situation: Situation) -> Frame | Waiting | None:
    pieces = _make_pieces(read.calls, text, situation, all_offered=True)
    if pieces is None:
        return None
    for mark in LIST_ENDS:
        if text.startswith(mark, read.end):
            return Frame(read.end + len(mark), pieces)
        if not situation.is_end and mark.startswith(text[read.end :]):
            return Waiting(ANY_TEXT)
    return Frame(read.end, pieces)


def _read_broken_list(text: str, start: int, read: Unread, situation: Situation) -> Frame | None:
    """At the end: the closing `]` is missing, or quotes in a string are not escaped."""
    if len(text) - start > _MAX_BROKEN:
        return None
    body = strip_end_tokens(text[start:])
    for mark in LIST_ENDS:
        body = body.removesuffix(mark)
    for repaired, is_loose in ((f"{body}]", False), (body, True)):
        mended = read_python_calls(repaired, 0, is_loose=is_loose)
        if isinstance(mended, PythonCalls) and mended.end == len(repaired):
            said = () if is_loose else ("the closing `]` was missing",)
            pieces = _make_pieces(mended.calls, repaired, situation, all_offered=True, repairs=said)
            return None if pieces is None else Frame(len(text), pieces)
    return None


def _make_pieces(
    calls: tuple[PythonCall, ...],
    text: str,
    situation: Situation,
    *,
    all_offered: bool = False,
    repairs: tuple[str, ...] = (),
) -> tuple[Piece, ...] | None:
    """The calls; one whose tool is not offered stays text. None if there is none, or `all_offered` and one is not."""
    pieces: list[Piece] = []
    for call in calls:
        made = make_call(situation, call.name, call.arguments, (*repairs, *call.repairs))
        if made is None and all_offered:
            return None
        pieces.append(text[call.start : call.end] if made is None else made)
    return tuple(pieces) if any(isinstance(piece, TextCall) for piece in pieces) else None


# --- between marks ---


def _read_marked(text: str, start: int, situation: Situation, opening: str, closing: str) -> Frame | Waiting | None:
    """Calls between marks, as a list, without its brackets, or as JSON."""
    at = skip_blanks(text, start + len(opening))
    if at == len(text):
        return None if situation.is_end else Waiting(ANY_TEXT)
    if text[at] not in "[{":
        name = _match_call(text, at)
        if name is None or (name[2] is None and (name.end() < len(text) or situation.is_end)):
            return None
        if name[2] is None:
            return Waiting(ANY_TEXT)
    return _read_until(text, at, closing, situation)


def _read_until(text: str, at: int, closing: str, situation: Situation) -> Frame | Waiting | None:
    """The calls before the closing mark, which may also be in a string."""
    end = at
    for _ in range(_MAX_ENDS):
        end = text.find(closing, end)
        if end < 0:
            break
        pieces = _read_body(text[at:end], situation)
        if pieces is not None:
            return _end_frame(text, text[at:end] + closing, end + len(closing), pieces, situation)
        end += 1
    if end >= 0:
        return None
    if not situation.is_end:
        return Waiting((closing,))
    if situation.was_cut or closing in text[at:] or len(text) - at > _MAX_BROKEN:
        return None
    body = strip_end_tokens(text[at:])
    pieces = _read_body(body, situation)
    if pieces is None and body.startswith("["):
        pieces = _read_body(f"{body}]", situation)
    said = f"the closing `{closing}` was missing"
    noted = [add_repair(one, said) if isinstance(one, TextCall) else one for one in pieces or ()]
    return Frame(len(text), tuple(noted)) if noted else None


def _end_frame(text: str, echo: str, end: int, pieces: tuple[Piece, ...], situation: Situation) -> Frame | Waiting:
    """LFM2 sometimes writes all but the opening mark once more: that is no second call."""
    if text.startswith(echo, end):
        return Frame(end + len(echo), pieces)
    may_follow = not situation.is_end and echo.startswith(text[end:])
    return Waiting(ANY_TEXT) if may_follow else Frame(end, pieces)


def _read_body(body: str, situation: Situation) -> tuple[Piece, ...] | None:
    """None: it cannot be read. An empty list of calls says nothing."""
    body = body.strip()
    if not body or _is_empty_list(body):
        return ()
    if body[0] == "{" or re.match(r"\[\s*\{", body):
        return read_calls(body, situation)
    in_list = body[0] == "["
    for is_loose in (False, True):
        read = read_python_calls(body, 0, in_list=in_list, is_loose=is_loose)
        if isinstance(read, PythonCalls) and read.end == len(body):
            return _make_pieces(read.calls, body, situation)
        if len(body) > _MAX_BROKEN:
            return None
    return None


def _make_format(name: str, opening: str, closing: str, other_beginnings: tuple[str, ...] = ()) -> ToolFormat:
    """Python between marks. What begins otherwise is for another format with the same marks."""

    def read(text: str, start: int, situation: Situation) -> Frame | Waiting | None:
        if text.startswith(other_beginnings, skip_blanks(text, start + len(opening))):
            return None
        return _read_marked(text, start, situation, opening, closing)

    return ToolFormat(name, (opening,), read)


def read_python_marks(text: str, start: int, situation: Situation) -> Frame | Waiting | None:
    """Llama 4: the closing mark may be missing, then it ends where the list ends."""
    at = skip_blanks(text, start + len("<|python_start|>"))
    if at < len(text) and text[at] == "[":
        return read_list(text, at, situation)
    return _read_marked(text, start, situation, "<|python_start|>", "<|python_end|>")


def read_tool_code(text: str, start: int, situation: Situation) -> Frame | Waiting | None:
    """Gemma 3: a fence whose language is `tool_code`."""
    begin = text.find("\n", start)
    end = text.find("\n```", begin) if begin >= 0 else -1
    if end < 0:
        return None if situation.is_end else Waiting(("\n```",))
    body = text[begin:end].strip()
    pieces = _read_body(_remove_prints(r"\1", body), situation) or _read_body(_remove_print(r"\1", body), situation)
    return Frame(end + len("\n```"), pieces) if pieces else None


FORMATS: Final = (
    _make_format("lfm2", "<|tool_call_start|>", "<|tool_call_end|>"),
    _make_format("olmo3", "<function_calls>", "</function_calls>", ("<",)),
    _make_format("pythonic", "<tool_call>", "</tool_call>", ("{", "[")),
    ToolFormat("gemma_tool_code", ("```tool_code",), read_tool_code, "line"),
    ToolFormat("pythonic", ("<|python_start|>",), read_python_marks),
    # A name and `(` must follow, so that a text of nothing but brackets is not looked at bracket by bracket.
    ToolFormat(
        "pythonic",
        (),
        read_list,
        is_list=True,
        opening_pattern=r"\[(?=\s*+[^\W\d][\w.:/-]*+\s*+(?:\(|\Z))",
        unfinished_opening=r"\[(?=\s*\Z)",
    ),
)
