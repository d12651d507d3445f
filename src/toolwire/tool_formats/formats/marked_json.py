"""Formats whose calls are JSON between marks: Hermes and Qwen, Granite, Phi, Cohere, InternLM, Jamba and others."""

from __future__ import annotations

import re
from typing import Final, Literal

from msgspec import Struct
from msgspec.structs import replace

from toolwire.tool_formats.found_calls import make_json_call
from toolwire.tool_formats.frame import Frame, Piece, Situation, TextCall, ToolFormat, Waiting
from toolwire.tool_formats.json_calls import read_calls
from toolwire.tool_formats.json_text import ANY_TEXT, find_mark_outside, find_value_end, skip_blanks
from toolwire.tool_formats.reasoning_marks import strip_end_tokens

_match_fence = re.compile(r"```\w*\s*").match
_match_part_of_fence = re.compile(r"`{1,2}\Z|```\w*\s*\Z").match


class MarkedJson(Struct, frozen=True):
    """Reads frames of one format."""

    openings: tuple[str, ...]
    closing: str
    firsts: str = "{["
    """What the JSON may begin with."""
    needs_closing: bool = True
    """False: the frame ends where its JSON ends, and the closing mark may follow."""
    are_keys_names: bool = False
    may_be_empty: bool = True
    """Is `[]` a list of no calls? Else it is text."""
    separator: str = ""
    """Between several values without marks around each (Llama 3)."""

    def read_frame(self, text: str, start: int, situation: Situation) -> Frame | Waiting | None:
        opening = next(one for one in self.openings if text.startswith(one, start))
        at = skip_blanks(text, start + len(opening))
        if text.startswith(opening, at):  # some models write it twice
            at = skip_blanks(text, at + len(opening))
        if not situation.is_end and (opening.startswith(text[at:]) or _match_part_of_fence(text, at)):
            return Waiting(ANY_TEXT)
        fence = _match_fence(text, at)
        at = fence.end() if fence else at
        if at == len(text):
            return None
        if text[at] not in self.firsts:
            return None
        return self.read_closed(text, at, situation) if self.needs_closing else self.read_open(text, at, situation)

    def read_closed(self, text: str, at: int, situation: Situation) -> Frame | Waiting | None:
        stop = find_mark_outside(text, at, (self.closing, *self.openings))
        if stop is not None:
            is_closed = stop[0] == self.closing
            if not is_closed and not text[stop.end() :].strip():  # perhaps it stands for the closing mark
                return Waiting(ANY_TEXT) if not situation.is_end else self.read_last(text, at, stop.start(), situation)
            pieces = self.read_body(text[at : stop.start()], situation)
            if pieces is None:
                return None
            return Frame(stop.end() if is_closed else stop.start(), pieces if is_closed else self.note_missing(pieces))
        if not situation.is_end:
            return Waiting((self.closing, *self.openings))
        return self.read_broken(text, at, situation)

    def read_last(self, text: str, at: int, end: int, situation: Situation) -> Frame | None:
        """The calls before a mark that ends the answer, and opens nothing."""
        pieces = None if situation.was_cut else self.read_body(text[at:end], situation)
        return Frame(len(text), self.note_missing(pieces)) if pieces else None

    def read_broken(self, text: str, at: int, situation: Situation) -> Frame | None:
        """At the end: the closing mark is missing, or quotes are so wrong that it seems to be in a string."""
        end = text.find(self.closing, at) if self.closing else -1
        if end >= 0:
            pieces = self.read_body(text[at:end], situation)
            return None if pieces is None else Frame(end + len(self.closing), pieces)
        if situation.was_cut:
            return None
        pieces = self.read_body(strip_end_tokens(text[at:]), situation)
        is_call = pieces is not None and all(isinstance(piece, TextCall) for piece in pieces)
        return Frame(len(text), self.note_missing(pieces)) if pieces and is_call else None

    def read_open(self, text: str, at: int, situation: Situation) -> Frame | Waiting | None:
        end = self.find_end(text, at, situation)
        if isinstance(end, Waiting):
            return end
        if end < 0:
            return None if situation.was_cut else self.read_broken(text, at, situation)
        pieces = self.read_body(text[at:end], situation)
        if pieces is None:
            return None
        after = skip_blanks(text, end)
        if self.closing and text.startswith(self.closing, after):
            return Frame(after + len(self.closing), pieces)
        if not situation.is_end and self.closing.startswith(text[after:]):
            return Waiting(ANY_TEXT)
        return Frame(end, pieces)

    def find_end(self, text: str, at: int, situation: Situation) -> int | Waiting:
        """Where the last value ends; -1 at the end of a text in which one does not."""
        while True:
            end = find_value_end(text, at)
            if end < 0:
                return -1 if situation.is_end else Waiting(("}" if text[at] == "{" else "]",))
            if not self.separator:
                return end
            after = skip_blanks(text, end)
            at = skip_blanks(text, after + 1)
            if at >= len(text) and not situation.is_end and (after == len(text) or text[after] == self.separator):
                return Waiting(ANY_TEXT)
            if text[after : after + 1] != self.separator or text[at : at + 1] not in ("{", "["):
                return end

    def read_body(self, body: str, situation: Situation) -> tuple[Piece, ...] | None:
        body = body.strip().removesuffix("```")
        pieces = read_calls(body, situation, are_keys_names=self.are_keys_names)
        return pieces if pieces or self.may_be_empty else None

    def note_missing(self, pieces: tuple[Piece, ...]) -> tuple[Piece, ...]:
        if not self.closing:
            return pieces
        said = f"the closing `{self.closing}` was missing"
        return tuple(replace(one, repairs=(said, *one.repairs)) if isinstance(one, TextCall) else one for one in pieces)


def _make_format(name: str, reader: MarkedJson, place: Literal["anywhere", "line", "start"] = "anywhere") -> ToolFormat:
    return ToolFormat(name, reader.openings, reader.read_frame, place)


_END_OF_REQUEST: Final = "[END_TOOL_REQUEST]"
_NAME: Final = r"[^\W\d][\w.:/-]{0,199}"
_match_bracketed_name = re.compile(rf"\[({_NAME})\]\s*(?=\{{)").match


def read_bracketed_name(text: str, start: int, situation: Situation) -> Frame | Waiting | None:
    """`[NAME]{…}[END_TOOL_REQUEST]`: what models make of LM Studio's `[TOOL_REQUEST]`."""
    head = _match_bracketed_name(text, start)
    if head is None or situation.tools.find_tool(head[1]) != head[1]:
        return None
    end = find_value_end(text, head.end())
    if end < 0:
        return None if situation.is_end else Waiting(("}",))
    after = skip_blanks(text, end)
    if not text.startswith(_END_OF_REQUEST, after):
        return Waiting(ANY_TEXT) if not situation.is_end and _END_OF_REQUEST.startswith(text[after:]) else None
    said = "the name of the tool stood for `[TOOL_REQUEST]`"
    call = make_json_call(situation, head[1], text[head.end() : end], (said,))
    return None if call is None else Frame(after + len(_END_OF_REQUEST), (call,))


_WRONG_TAGS: Final = ("tools", "tool", "tool_use", "response", "json", "JSON", "xml")
"""What Hermes and Qwen models write for `<tool_call>`."""


FORMATS: Final = (
    _make_format("hermes", MarkedJson(("<tool_call>",), "</tool_call>", are_keys_names=True)),
    *(_make_format("hermes", MarkedJson((f"<{tag}>",), f"</{tag}>")) for tag in _WRONG_TAGS),
    _make_format("longcat", MarkedJson(("<longcat_tool_call>",), "</longcat_tool_call>")),
    _make_format("granite3", MarkedJson(("<|tool_call|>",), "<|/tool_call|>", needs_closing=False)),
    _make_format("granite_20b", MarkedJson(("<function_call>",), "</function_call>", needs_closing=False)),
    _make_format("functools", MarkedJson(("functools",), "", "[", needs_closing=False, may_be_empty=False), "line"),
    _make_format("cohere", MarkedJson(("<|START_ACTION|>",), "<|END_ACTION|>")),
    _make_format(
        "internlm2",
        MarkedJson(("<|action_start|><|plugin|>", "<|action_start|> <|plugin|>"), "<|action_end|>"),
    ),
    _make_format("jamba", MarkedJson(("<tool_calls>",), "</tool_calls>")),
    _make_format("nemotron_toolcall", MarkedJson(("<TOOLCALL>",), "</TOOLCALL>")),
    _make_format("lmstudio_bracket", MarkedJson(("[TOOL_REQUEST]",), _END_OF_REQUEST)),
    ToolFormat(
        "lmstudio_bracket",
        (),
        read_bracketed_name,
        "line",
        opening_pattern=rf"\[(?={_NAME}\]\s*\{{)",
        unfinished_opening=rf"\[(?={_NAME}(?:\]\s*)?\Z)",
    ),
    _make_format("apertus", MarkedJson(("<|tools_prefix|>",), "<|tools_suffix|>", are_keys_names=True)),
    _make_format(
        "gigachat3",
        MarkedJson(
            ("<|message_sep|>\n\nfunction call<|role_sep|>", "function call<|role_sep|>", "<|function_call|>"),
            "",
            "{",
            needs_closing=False,
        ),
    ),
    # GigaChat behind a server that drops special tokens.
    _make_format("gigachat3", MarkedJson(("function call",), "", "{", needs_closing=False), "start"),
)
