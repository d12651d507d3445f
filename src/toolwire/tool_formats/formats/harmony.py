"""gpt-oss (harmony): messages `<|start|>assistant to=RECIPIENT<|channel|>CHANNEL <|constrain|>json<|message|>…<|end|>`.

The channel analysis is reasoning; commentary and final are for the user; a message to a function is a call. The first
`<|start|>assistant` is in the prompt. A server that drops special tokens leaves `analysis…assistantfinal…` and
`assistantcommentary to=functions.NAME json{…}`.
"""

from __future__ import annotations

import re
from typing import Final

from toolwire.tool_formats.found_calls import make_json_call
from toolwire.tool_formats.frame import Frame, Piece, ReasoningText, Situation, TextCall, ToolFormat
from toolwire.tool_formats.json_bodies import BodyEnds, end_of_object, read_json_body
from toolwire.tool_formats.json_text import skip_blanks
from toolwire.tool_formats.tag_text import (
    NeedsTextError,
    end_of_match,
    frame_reader,
    require_whole_match,
    require_whole_tag,
    require_whole_word,
)

_WORD: Final = r"[\w .=:/-]"
"""A character of a message's head: prose beside a token has others soon."""
_HEAD: Final = re.compile(rf"(?:<\|start\|>)?(?:{_WORD}|<\|(?:channel|constrain)\|>){{0,200}}?<\|message\|>")
_OPEN_HEAD: Final = re.compile(rf"(?:<\|start\|>)?(?:{_WORD}|<\|(?:channel|constrain)\|>){{0,200}}(?:<[|\w]*)?\Z")
_RECIPIENT: Final = re.compile(r"\bto=(?P<name>[^\s<>|]+)")
_CHANNEL: Final = re.compile(r"<\|channel\|>\s*(?P<name>\w+)")
_ENDS: Final = BodyEnds(
    re.compile(r"<\|(?:call|end|return|start|channel)\|>"),
    ("<|call|>", "<|end|>", "<|return|>", "<|start|>", "<|channel|>"),
)
_END: Final = re.compile(r"<\|(?:call|end|return)\|>")
_FILLER: Final = re.compile(r"\s*(?:commentary\Z|(?:commentary|assistant)\s*(?=<\|channel\|>))")
"""gpt-oss repeats the word `commentary` behind calls, and leaves out `<|start|>` before `assistant`."""


@frame_reader
def _read_frame(text: str, start: int, situation: Situation) -> Frame | None:
    """One message, or only its head where text for the user begins."""
    if text.startswith("<|end|>", start):
        return _drop_end(text, start + len("<|end|>"), situation)
    head = _HEAD.match(text, start)
    if head is None:
        require_whole_match(_OPEN_HEAD, text, start, situation)
        return None
    channel = _CHANNEL.search(head[0])
    recipient = _RECIPIENT.search(head[0])
    if recipient is None:
        return _read_channel(text, head.end(), channel["name"], situation) if channel else None
    if channel is None and not recipient["name"].startswith("functions."):
        return None  # Muse Glimmer
    if recipient["name"] == "assistant":
        # The model plays the tool's part: it is no answer.
        return Frame(end_of_match(_END, text, _find_end(text, head.end(), situation)), ())
    name = recipient["name"].removeprefix("functions.")
    if situation.tools.find_tool(name) is None:
        return Frame(head.end(), ())  # a built-in tool of gpt-oss: what it was told stays as text
    return _read_call(text, head.end(), name, situation)


def _drop_end(text: str, at: int, situation: Situation) -> Frame | None:
    """The end of a message says nothing if another one follows."""
    after = skip_blanks(text, at)
    require_whole_tag(text, after, situation)
    return Frame(at, ()) if text.startswith(("<|start|>", "<|channel|>"), after) else None


def _read_channel(text: str, at: int, channel: str, situation: Situation) -> Frame:
    """Reasoning as a whole; of text for the user only the head, so that it flows."""
    if channel != "analysis":
        return Frame(at, ())
    end = _find_end(text, at, situation)
    return Frame(_pass_filler(text, end_of_match(_END, text, end), situation), (ReasoningText(text[at:end]),))


def _find_end(text: str, at: int, situation: Situation) -> int:
    found = _ENDS.pattern.search(text, at)
    if found is None and not situation.is_end:
        raise NeedsTextError(_ENDS.marks)
    return found.start() if found else len(text)


def _read_call(text: str, at: int, name: str, situation: Situation) -> Frame | None:
    body = read_json_body(text, at, _ENDS, situation)
    if body is None or body.is_cut:
        return None
    call = make_json_call(situation, name, body.text)
    if call is None:
        return None
    end = end_of_match(_END, text, skip_blanks(text, body.end)) if body.is_closed else body.end
    return Frame(_pass_filler(text, end, situation), (call,))


def _pass_filler(text: str, at: int, situation: Situation) -> int:
    require_whole_word(("commentary<|channel|>", "assistant<|channel|>"), text, skip_blanks(text, at), situation)
    return end_of_match(_FILLER, text, at)


# --- without special tokens ---

_BARE_HEAD: Final = re.compile(
    r"(?:assistant\s?)?(?:(?P<channel>analysis|commentary|final)|(?=to=functions\.))"
    r"(?:\s*to=(?P<name>[\w.-]+?)\s*(?:commentary|analysis)?\s*(?:<\|constrain\|>)?(?:json|code)?\s*(?:<\|message\|>)?"
    r"\s*(?=\{))?"
)
_OPEN_BARE_CALL: Final = re.compile(
    r"(?:assistant\s?)?(?:analysis|commentary)?\s*"
    r"(?:t|to|to=[\w.-]*\s*[a-z]*\s*(?:<\|(?:c\w*\|?)?>?)?[a-z]*\s*(?:<\|?(?:m\w*\|?)?>?)?\s*)?\Z"
)
_BARE_HEADS: Final = (
    *("assistantfinal", "assistantcommentary", "assistantanalysis", "assistantto=functions."),
    *("assistant final", "assistant commentary", "assistant analysis", "assistant to=functions."),
)
_find_bare_head = re.compile(r"assistant\s?(?:analysis|commentary|final|to=functions\.)").search
_LINE_END: Final = re.compile(r"[ \t]*(?:\n|\Z|<\||(?:assistant|commentary|to=functions\.))")
_BARE_ENDS: Final = BodyEnds(re.compile(r"assistant\s?(?:analysis|commentary|final|to=functions\.)|<\|"), _BARE_HEADS)


@frame_reader
def _read_bare_frame(text: str, start: int, situation: Situation) -> Frame | None:
    """A whole answer of which only the words of the heads are left. Text after the head `final` goes on as it is."""
    at = start
    pieces: list[Piece] = []
    while at < len(text):
        require_whole_match(_OPEN_BARE_CALL, text, at, situation)
        require_whole_word(_BARE_HEADS, text, at, situation)
        head = _BARE_HEAD.match(text, at)
        if head is None:
            break
        if head["channel"] == "final":
            return Frame(head.end(), tuple(pieces)) if pieces or _is_glued(text, head.end(), situation) else None
        piece, at = _read_bare_message(text, head, situation)
        if piece is None:
            break
        if piece:
            pieces.append(piece)
    return Frame(at, tuple(pieces)) if any(isinstance(piece, TextCall) for piece in pieces) else None


def _is_glued(text: str, at: int, situation: Situation) -> bool:
    """Does the answer follow at once? A blank after `assistantfinal` is a text about the word."""
    if at == len(text) and not situation.is_end:
        raise NeedsTextError
    return not text[at : at + 1].isspace()


def _read_bare_message(text: str, head: re.Match[str], situation: Situation) -> tuple[Piece | None, int]:
    """A call, reasoning, or words for the user; None if nothing says where it ends."""
    if head["name"]:
        body = read_json_body(text, head.end(), _BARE_ENDS, situation)
        if body is None or body.is_cut:
            return None, head.start()
        name = head["name"].removeprefix("functions.")
        call = make_json_call(situation, name, body.text, ("the special tokens were missing",))
        after = skip_blanks(text, body.end)
        if after == len(text) and not situation.is_end:
            raise NeedsTextError
        return call, after
    following = _find_bare_head(text, head.end())
    if following is None:
        if situation.is_end:
            return (None, head.start()) if text[head.end() :].strip() else ("", len(text))
        raise NeedsTextError(_BARE_HEADS)
    said = text[head.end() : following.start()]
    return ReasoningText(said) if head["channel"] == "analysis" else said, following.start()


@frame_reader
def _read_bare_call(text: str, start: int, situation: Situation) -> Frame | None:
    """One call of which only `to=functions.NAME {…}` is left. Nothing else may be on its line."""
    require_whole_match(_OPEN_BARE_CALL, text, start, situation)
    head = _BARE_HEAD.match(text, start)
    end = end_of_object(text, head.end()) if head and head["name"] else None
    if head is None or end is None:
        if head and head["name"] and text.startswith("{", head.end()) and not situation.is_end:
            raise NeedsTextError(("}",))
        return None
    if end == len(text) and not situation.is_end:
        raise NeedsTextError
    if not _LINE_END.match(text, end) or (situation.was_cut and not text[end:]):
        return None
    name = head["name"].removeprefix("functions.")
    call = make_json_call(situation, name, text[head.end() : end], ("the special tokens were missing",))
    return None if call is None else Frame(end, (call,))


FORMATS: Final = (
    ToolFormat("harmony", ("<|start|>", "<|channel|>", "<|end|>"), _read_frame),
    ToolFormat("harmony", ("to=",), _read_frame, "start"),
    ToolFormat(
        "harmony",
        ("analysis", "commentary", "assistantanalysis", "assistantcommentary", "assistantfinal"),
        _read_bare_frame,
        "start",
    ),
    ToolFormat("harmony", ("to=functions.",), _read_bare_call, "line"),
)
