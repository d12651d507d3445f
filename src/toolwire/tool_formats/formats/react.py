"""ReAct (`Thought:`, `Action:`, `Action Input:`), and Command R, which writes JSON in a fence behind `Action:`."""

from __future__ import annotations

import re
from typing import Final

from toolwire.tool_formats.code_tools import find_only_text_parameter
from toolwire.tool_formats.found_calls import make_call, make_json_call
from toolwire.tool_formats.frame import Frame, Piece, ReasoningText, Situation, TextCall, ToolFormat, Waiting
from toolwire.tool_formats.json_calls import read_calls
from toolwire.tool_formats.json_text import ANY_TEXT, find_value_end
from toolwire.tool_formats.reasoning_marks import strip_end_tokens

_MAX_THOUGHT: Final = 4000
"""Characters of a thought before its action; longer text is not held back."""
_DECORATION: Final = "`*[]\"' \t"

_find_action = re.compile(r"^[ \t]*Action:", re.MULTILINE).search
_match_action = re.compile(
    r"\s*(?:Thought:(?P<thought>.*?)\n\s*)?Action:[ \t]*(?P<name>[^\n]+)\n+[ \t]*Action Input:(?P<input>.*)", re.DOTALL
).match
_match_name = re.compile(r"[ \t]*Action:([^\n]*)\n").match
_find_next_part = re.compile(r"^[ \t]*(?:Observation|Final Answer|Thought|Action):", re.MULTILINE).search
_match_open_observation = re.compile(r"[ \t]*Observation:\s*\Z").match
_find_blank_line = re.compile(r"\n[ \t]*\n").search
_match_fenced = re.compile(r"```\w*\s*(.*?)\s*```\s*\Z", re.DOTALL).match


def read_react(text: str, start: int, situation: Situation) -> Frame | Waiting | None:
    """An action that waits for its observation, as the end of the answer."""
    action = _find_action(text, start)
    if action is None:
        is_open = not situation.is_end and len(text) - start < _MAX_THOUGHT
        return Waiting(("Action:",)) if is_open else None
    if action.start() - start > _MAX_THOUGHT:
        return None
    name = _match_name(text, action.start())
    if name is None and not situation.is_end:
        return Waiting(("\n",))
    if name is None or situation.tools.find_tool(name[1].strip(_DECORATION)) is None:
        return None
    if not situation.is_end:
        return Waiting()
    found = _match_action(text, start)
    return None if found is None or situation.was_cut else _make_frame(text, found, situation)


def _make_frame(text: str, found: re.Match[str], situation: Situation) -> Frame | None:
    given = strip_end_tokens(found["input"])
    following = _find_next_part(given)
    if following:  # "Observation:" alone is where the model stopped; more means that it played both parts
        if not _match_open_observation(given, following.start()):
            return None
        given = given[: following.start()]
    call = _make_call(found["name"].strip(_DECORATION), given.strip(), situation)
    if call is None:
        return None
    thought = (found["thought"] or "").strip()
    return Frame(len(text), (ReasoningText(thought), call) if thought else (call,))


def _make_call(name: str, given: str, situation: Situation) -> TextCall | None:
    fenced = _match_fenced(given)
    given = fenced[1] if fenced else given
    if given.startswith("{"):
        end = find_value_end(given, 0)
        return None if end >= 0 and given[end:].strip("} \t\r\n") else make_json_call(situation, name, given)
    if _find_blank_line(given):
        return None  # what follows is text about it
    tool = situation.tools.find_tool(name)
    parameter = find_only_text_parameter(situation, tool) if tool is not None else None
    if parameter is None or not given:
        return make_json_call(situation, name, "{}") if given in ("", "None", "null") else None
    return make_call(situation, name, {parameter: given.strip('"')}, ("the text was given to the only parameter",))


# --- Command R ---

_NO_CALL: Final = re.compile(r"\"tool_name\"\s*:\s*\"directly[-_]answer\"")
_match_fence = re.compile(r"Action:\s*(?:```(?:json)?\s*)?(?=\[\s*\{)").match
_match_part_of_fence = re.compile(r"Action:\s*(?:`{0,3}|```[a-z]{0,4}\s*)(?:\[\s*)?\Z").match
_match_closing_fence = re.compile(r"\s*```").match
_match_part_of_closing = re.compile(r"\s*`{0,2}\Z").match


def read_command_r(text: str, start: int, situation: Situation) -> Frame | Waiting | None:
    """`Action:` and a JSON array in a fence. The tool `directly_answer` means that nothing is called."""
    fence = _match_fence(text, start)
    if fence is None:
        return Waiting(ANY_TEXT) if not situation.is_end and _match_part_of_fence(text, start) else None
    end = find_value_end(text, fence.end())
    if end < 0:
        return None if situation.is_end else Waiting(("]",))
    body = text[fence.end() : end]
    closing = _match_closing_fence(text, end)
    if closing is None and not situation.is_end and _match_part_of_closing(text, end):
        return Waiting(ANY_TEXT)
    pieces: tuple[Piece, ...] | None = read_calls(body, situation)
    if pieces is None and _NO_CALL.search(body):
        pieces = ()
    elif pieces is not None:
        pieces = tuple(one for one in pieces if isinstance(one, TextCall) or not _NO_CALL.search(str(one)))
    return None if pieces is None else Frame(closing.end() if closing else end, pieces)


FORMATS: Final = (
    ToolFormat("cohere_action", ("Action:",), read_command_r, "line"),
    ToolFormat("react", ("Thought:", "Action:"), read_react, "line"),
)
