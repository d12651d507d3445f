"""Reads calls whose name and JSON arguments stand between special tokens (DeepSeek V3 and V3.1, Kimi K2, Inkling)."""

from __future__ import annotations

import re
from collections.abc import Callable

from msgspec import Struct

from toolwire.tool_formats.found_calls import add_repair, make_closed_frame, make_open_frame
from toolwire.tool_formats.frame import Frame, FrameReader, Piece, Situation, TextCall
from toolwire.tool_formats.json_bodies import BodyEnds, read_json_body
from toolwire.tool_formats.json_text import skip_blanks
from toolwire.tool_formats.tag_text import frame_reader, require_whole_match


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
        self.read_frame: FrameReader = frame_reader(self._read_frame)

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
                is_empty = section is not None and not pieces and tokens.drops_empty
                return Frame(closing.end(), ()) if is_empty else make_closed_frame(closing.end(), pieces)
            head = tokens.head.match(text, at)
            if head is None:
                require_whole_match(tokens.open_head, text, at, situation)
                return make_open_frame(end, pieces, "the marks around the calls were missing" if tokens.section else "")
            call, at = self._read_call(text, head, situation)
            if call is None and section is None and not pieces:
                return None
            pieces.append(call or text[head.start() : at])
            end = at if call else end

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
            call = add_repair(call, "the end of the call was missing")
        return call, closing.end() if closing else body.end

    def _end_of_broken(self, text: str, head: re.Match[str]) -> int:
        """Where the text of a broken call ends: with its closing token, or before the next token."""
        found = self.tokens.ends.pattern.search(text, head.end())
        if found is None:
            return len(text)
        closing = self.tokens.call_end.match(text, found.start())
        return closing.end() if closing else found.start()
