"""Reads calls whose name and JSON arguments stand between special tokens (DeepSeek V3 and V3.1, Kimi K2, Inkling)."""

from __future__ import annotations

import re
from collections.abc import Callable

from msgspec import Struct
from msgspec.structs import replace

from toolwire.tool_formats.frame import Frame, FrameReader, Piece, Situation, TextCall
from toolwire.tool_formats.json_bodies import BodyEnds, read_json_body
from toolwire.tool_formats.json_text import skip_blanks
from toolwire.tool_formats.tag_text import need_whole_match, reads_on


class CallTokens(Struct, frozen=True):
    """The tokens of a format."""

    section: re.Pattern[str] | None
    """None: calls stand alone (Inkling)."""
    section_end: re.Pattern[str]
    head: re.Pattern[str]
    """Everything before the arguments, with the group `name`."""
    open_head: re.Pattern[str]
    """A head, or a closing token, that is not finished at the end of the text."""
    call_end: re.Pattern[str]
    ends: BodyEnds
    """What may follow the arguments: the end of the call, or what comes after it if that is missing."""
    make_call: Callable[[Situation, str, str], TextCall | None]
    """The call of a name and the text of its arguments."""
    drops_empty: bool = False
    """A section without a call says nothing (Kimi K2)."""


class TokenReader:
    """Reads the frames of one format."""

    def __init__(self, tokens: CallTokens) -> None:
        self.tokens = tokens
        self.read_frame: FrameReader = reads_on(self._read_frame)

    def _read_frame(self, text: str, start: int, situation: Situation) -> Frame | None:
        """The section, or the call without a section, that begins here. A bad call among good ones stays text."""
        tokens = self.tokens
        section = tokens.section.match(text, start) if tokens.section else None
        end = at = section.end() if section else start
        pieces: list[Piece] = []
        while True:
            at = skip_blanks(text, at)
            closing = tokens.section_end.match(text, at)
            if closing:
                return self._make_frame(closing.end(), pieces, is_marked=section is not None)
            head = tokens.head.match(text, at)
            if head is None:
                need_whole_match(tokens.open_head, text, at, situation)
                return self._make_frame(end, _until_last_call(pieces), is_marked=False)
            call, at = self._read_call(text, head, situation)
            if call is None and section is None and not pieces:
                return None
            pieces.append(call or text[head.start() : at])
            end = at if call else end

    def _make_frame(self, end: int, pieces: list[Piece], *, is_marked: bool) -> Frame | None:
        """`is_marked`: both marks around the calls are there."""
        if is_marked and not pieces and self.tokens.drops_empty:
            return Frame(end, ())
        if not any(isinstance(piece, TextCall) for piece in pieces):
            return None
        first = pieces[0]
        if self.tokens.section and not is_marked and isinstance(first, TextCall):
            pieces[0] = replace(first, repairs=("the marks around the calls were missing", *first.repairs))
        return Frame(end, tuple(pieces))

    def _read_call(self, text: str, head: re.Match[str], situation: Situation) -> tuple[TextCall | None, int]:
        """The call that begins here, and where the text goes on; no call if it is broken or not offered."""
        tokens = self.tokens
        body = read_json_body(text, head.end(), tokens.ends, situation)
        call = None
        if body and not body.is_cut:
            call = tokens.make_call(situation, head["name"].strip(), body.text)
        if body is None or call is None:
            return None, self._end_of_broken(text, head)
        closing = tokens.call_end.match(text, skip_blanks(text, body.end))
        if closing is None:
            call = replace(call, repairs=("the end of the call was missing", *call.repairs))
        return call, closing.end() if closing else body.end

    def _end_of_broken(self, text: str, head: re.Match[str]) -> int:
        """Where the text of a broken call ends: with its closing token, or before the next token."""
        found = self.tokens.ends.pattern.search(text, head.end())
        if found is None:
            return len(text)
        closing = self.tokens.call_end.match(text, found.start())
        return closing.end() if closing else found.start()


def _until_last_call(pieces: list[Piece]) -> list[Piece]:
    """Text after the last call goes on as text of the answer."""
    while pieces and not isinstance(pieces[-1], TextCall):
        pieces.pop()
    return pieces
