"""Finds calls and reasoning in the text of an answer, whole or in pieces.

The text flows on at once. Held back is only what may begin a mark, a frame that has begun, and calls until it is clear
that no structured call follows. The readers of the formats decide what a frame says; this module decides where one may
be, and when to ask. Any split of the text gives the same result.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import groupby
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from toolwire.call_repair.offered_tools import OfferedTools
from toolwire.tool_formats.frame import Frame, Piece, ReasoningText, Situation, TextCall, ToolFormat, Waiting
from toolwire.tool_formats.quoted_text import QuotedText
from toolwire.tool_formats.reasoning_marks import (
    ANSWER_MARKS,
    ANSWER_TOKENS,
    OPENED,
    PREFILLED,
    REASONING_MARKS,
    STRAY_CLOSINGS,
    ReasoningMark,
    match_call_ends,
    match_end_tokens,
)
from toolwire.tool_formats.vocabulary import FENCE, Opening, make_vocabulary
from toolwire.tool_formats.whole_fence import read_fence

MAX_HELD: Final = 1_000_000
"""Characters that are held back at most; then they are text."""
_PORTION: Final = 512
"""Characters of a long text that are added in the first step. Readers look at all the text that is there: in steps,
they need not look at what follows a short frame."""
_FREE_ASKS: Final = 16
"""After so many questions about one frame, the next comes only when its text has doubled."""
_WORK_FACTOR: Final = 16
_FREE_WORK: Final = 4 * MAX_HELD
"""The readers may look at each character `_WORK_FACTOR` times, and at `_FREE_WORK` more. Then everything is text. Only
a text that is made to take long gets there."""

_MAX_END_TOKENS: Final = 1000
"""Characters of end tokens that are held back."""

_find_word = re.compile(r"\S").search
_match_token = re.compile(r"<[|｜]|\]<\]").match
"""Special tokens of a tokenizer: nobody writes them by chance, so indentation does not make them an example."""


class _Wait(Struct):
    """Text is held back: a frame that may have begun, or a call in open reasoning, which may be a draft."""

    openings: list[Opening]
    """The formats that can still be meant, in the order in which they are asked; none for a draft."""
    marks: tuple[str, ...] = ()
    tail: str = ""
    """The end of the text, in which a mark may have begun."""
    has_mark: bool = False
    """Has a mark come since the last question?"""
    asks: int = 0
    next_length: int = 0
    """Characters of the frame before the next question."""

    def watch(self, text: str, marks: tuple[str, ...], asked_length: int) -> None:
        """Wait for these marks behind the text."""
        self.marks = marks
        self.tail = self.cut_tail(text)
        self.has_mark = False
        self.asks += 1
        self.next_length = 2 * asked_length if self.asks > _FREE_ASKS else 0

    def see(self, text: str) -> None:
        """More text has come."""
        window = self.tail + text
        self.has_mark = self.has_mark or any(mark in window for mark in self.marks)
        self.tail = self.cut_tail(window)

    def cut_tail(self, text: str) -> str:
        length = max(map(len, self.marks), default=0) - 1
        return text[-length:] if length > 0 else ""


class TextReader:
    """Reads the text of one choice of an answer."""

    def __init__(
        self,
        tools: OfferedTools,
        formats: Sequence[ToolFormat],
        *,
        is_call_required: bool = False,
        expects_json: bool = False,
        is_reasoning_open: bool = False,
        is_nested: bool = False,
    ) -> None:
        """`is_call_required`: the request demands a call. `expects_json`: its `response_format` asks for JSON, so bare
        JSON is the answer. `is_reasoning_open`: the opening mark was in the prompt. `is_nested`: the text is the
        content of a fence."""
        self._formats = tuple(
            one
            for one in formats
            if not (expects_json and one.is_bare_json)
            and not (is_nested and one.is_code_in_fence)
            and (is_call_required or not one.needs_required_call)
        )
        self._vocabulary = make_vocabulary(self._formats, has_fences=not is_nested and not expects_json)
        self._situation = Situation(tools, is_call_required=is_call_required)
        self._text = ""
        """What is not sent yet. It begins at `_at`, and no mark begins before `_scanned`."""
        self._at = 0
        self._scanned = 0
        self._find_special = self._vocabulary.find_special
        self._is_idle = False
        """Is nothing held, and does no text without special characters begin anything?"""
        self._plain_text = "", ""
        """The last two texts that were passed on as they were, since the last one that was looked at."""
        self._late: list[str] = []
        """More text that is held back, and nobody has looked at yet. It is joined when somebody must."""
        self._held = 0
        """Characters of all of that."""
        self._quotes = QuotedText()
        self._out: list[Piece] = []
        self._pending: list[Piece] = []
        """Calls, and what is said between them. Their source is `_pending_texts`."""
        self._pending_texts: list[str] = []
        self._wait: _Wait | None = None
        self._reasoning: ReasoningMark | None = PREFILLED if is_reasoning_open else None
        self._was_reasoning_closed = False
        self._shown_closings: list[str] = []
        """The closings of marks that the answer shows within its text: they end no reasoning."""
        self._is_after_reasoning = False
        """Only blanks since reasoning was closed."""
        self._answer_closing = ""
        self._has_begun = False
        """Has anything but blanks and reasoning come?"""
        self._is_fresh = True
        """Only blanks since the beginning, or since reasoning or a call."""
        self._needs_break = False
        """Was a mark dropped behind a word? Then a line break stands for it, so that words do not run together."""
        self._last_thought = ""
        """The last character of the reasoning that was sent."""
        self._needs_thought_break = False
        """Did a block of reasoning end with a word?"""
        self._is_looking = bool(self._formats)
        self._fed = 0
        self._work = 0

    def feed(self, text: str) -> list[Piece]:
        """More text: what can be sent now."""
        if self.take_plain_text(text) is not None:
            return [text] if text else []
        self._end_plain_text()
        at = 0
        while at < len(text):
            portion = text[at : at + min(max(_PORTION, self._held), MAX_HELD - self._held)]
            at += len(portion)
            self._fed += len(portion)
            self._held += len(portion)
            self._late.append(portion)
            if self._must_look(portion):
                self._advance(self._situation)
            if self._held >= MAX_HELD:
                self._give_up()
        return self._take_out()

    def close(self, was_cut: bool) -> list[Piece]:
        """The end of the choice: what is left. `was_cut`: it ended at a limit, or the stream broke."""
        self._end_plain_text()
        self._advance(replace(self._situation, is_end=True, was_cut=was_cut))
        self._flush()
        return self._take_out()

    def discard_calls(self) -> list[Piece]:
        """A structured call came, so calls in text are stale drafts. Those that are pending become text again, and no
        more are looked for."""
        self._end_plain_text()
        self._is_looking = False
        self._wait = None
        self._drop_pending()
        self._advance(self._situation)
        return self._take_out()

    def take_plain_text(self, text: str) -> str | None:
        """Take a text that can be sent as it is, and give it back. Nearly all texts of a stream can, so this is tried
        first. None: it was not taken."""
        if self._is_idle and self._find_special(text) is None:
            self._plain_text = self._plain_text[1], text
            return text
        if self._held or self._is_fresh or self._reasoning is not None or not text:
            return None
        vocabulary = self._vocabulary
        if vocabulary.find_place(text) or (self._quotes.is_line_start and vocabulary.match_line_place(text)):
            return None
        self._end_plain_text()
        self._quotes.pass_text(text)
        self._is_idle = self._quotes.is_settled
        return text

    def _end_plain_text(self) -> None:
        self._quotes.pass_text("".join(self._plain_text)[-2:])  # only its end matters to what follows
        self._plain_text = ("", "")

    # --- what is sent ---

    def _take_out(self) -> list[Piece]:
        """What was sent, with texts that follow each other as one."""
        out, self._out = self._out, []
        self._is_idle = not self._held and not self._is_fresh and self._reasoning is None and self._quotes.is_settled
        joined: list[Piece] = []
        for kind, pieces in groupby(out, type):
            if kind is str:
                joined.append("".join(map(str, pieces)))
            elif kind is ReasoningText:
                joined.append(ReasoningText("".join(one.text for one in pieces if isinstance(one, ReasoningText))))
            else:
                joined += pieces
        return joined

    def _release(self, end: int) -> None:
        """Send the text until here."""
        text = self._text[self._at : end]
        self._skip(end)
        if not text:
            return
        if self._reasoning is not None:
            self._put_reasoning(text)
            return
        self._quotes.pass_text(text)
        if text.isspace():
            if self._pending:
                self._pending_texts.append(text)
                return
            if self._is_after_reasoning:
                return
        else:
            text = text.lstrip() if self._is_after_reasoning else text
            blanks = self._find_pending_blanks()
            self._flush()
            text = blanks + text
            self._has_begun = True
            self._is_after_reasoning = self._is_fresh = False
        self._put_text(text)

    def _break_text(self) -> None:
        """A mark ends here that is not sent."""
        self._needs_break = self._needs_break or self._quotes.is_after_word
        self._needs_thought_break = bool(self._last_thought.strip())
        self._is_fresh = True

    def _skip(self, end: int) -> None:
        self._at = end
        self._scanned = max(self._scanned, end)

    def _put_text(self, text: str) -> None:
        text = f"\n{text}" if self._needs_break and not text[0].isspace() else text
        self._needs_break = False
        self._out.append(text)

    def _put_reasoning(self, text: str) -> None:
        self._flush()
        text = f"\n{text}" if self._needs_thought_break and not text[0].isspace() else text
        self._needs_thought_break = False
        self._last_thought = text[-1]
        self._out.append(ReasoningText(text))

    def _flush(self) -> None:
        """The pending calls are calls."""
        self._out += self._pending
        self._pending = []
        self._pending_texts = []

    def _find_pending_blanks(self) -> str:
        """The blanks behind the pending calls."""
        blanks = ""
        for text in reversed(self._pending_texts):
            words = text.rstrip()
            blanks = text[len(words) :] + blanks
            if words:
                break
        return blanks

    def _drop_pending(self) -> None:
        """The pending calls are text."""
        text, self._pending_texts, self._pending = "".join(self._pending_texts), [], []
        if text:
            self._quotes.pass_text(text)
            self._put_text(text)
            self._is_fresh = False

    def _must_look(self, text: str) -> bool:
        """Can this text change anything about what is held back?"""
        if self._wait is None:
            return True
        self._wait.see(text)
        return self._wait.has_mark and self._held >= self._wait.next_length

    def _give_up(self) -> None:
        """Too much is held."""
        self._join_late()
        self._wait = None
        self._release(len(self._text))
        self._forget_sent()

    # --- the loop ---

    def _advance(self, situation: Situation) -> None:
        """Go on as far as the text is clear."""
        self._join_late()
        while self._at < len(self._text) and self._step(situation):
            pass
        self._forget_sent()

    def _join_late(self) -> None:
        self._text += "".join(self._late)
        self._late = []

    def _forget_sent(self) -> None:
        self._text = self._text[self._at :]
        self._scanned -= self._at
        self._at = 0
        self._held = len(self._text)

    def _step(self, situation: Situation) -> bool:
        """One mark, or the text until one. False: nothing more can be done with this text."""
        if self._reasoning is not None:
            return self._step_in_reasoning(self._reasoning, situation)
        if self._wait is not None:
            return self._ask(self._wait, situation)
        place = self._find_place()
        self._release(len(self._text) if place is None else place)
        return place is not None and self._read_place(situation)

    def _find_place(self) -> int | None:
        """The next place where something may begin."""
        is_unseen = self._scanned == self._at
        if is_unseen and not self._has_begun:
            found = _find_word(self._text, self._at)
            return found.start() if found else None
        if is_unseen and self._quotes.is_line_start:
            found = self._vocabulary.match_line_place(self._text, self._at)
            if found:
                return found.end() - 1
        found = self._vocabulary.find_place(self._text, self._scanned)
        return found.end() - 1 if found else None

    def _read_place(self, situation: Situation) -> bool:
        """What begins here: a mark, a frame, or text."""
        is_shown = self._quotes.is_quoted(ignores_indent=True)
        if not is_shown:
            if not situation.is_end and self._vocabulary.is_prefix(self._text, self._at):
                return False
            is_shown = not _match_token(self._text, self._at) and self._quotes.is_quoted()
        if not is_shown:
            for read in (self._read_mark, self._read_end_tokens, self._read_opening):
                goes_on = read(situation)
                if goes_on is not None:
                    return goes_on
        self._scanned = self._at + 1
        return True

    # --- marks around reasoning and answers ---

    def _read_mark(self, situation: Situation) -> bool | None:
        """Pass a mark that begins here; None if there is none."""
        text, at = self._text, self._at
        if not self._vocabulary.match_mark(text, at):
            return None
        may_think = self._is_fresh or (self._was_reasoning_closed and self._quotes.is_line_start)
        for mark in REASONING_MARKS:
            if text.startswith(mark.opening, at) and (may_think or mark.place == "anywhere"):
                self._skip(at + len(mark.opening))
                self._reasoning = mark
                return True
            if text.startswith(mark.opening, at):
                self._shown_closings += mark.closings
        for opening, closing in ANSWER_MARKS.items():
            if self._is_after_reasoning and text.startswith(opening, at):
                self._answer_closing = closing
                self._skip(at + len(opening))
                return True
        for token in (*ANSWER_TOKENS, self._answer_closing):
            if token and text.startswith(token, at):
                self._skip(at + len(token))
                return True
        return None if self._was_reasoning_closed else self._read_stray_closing(situation)

    def _read_stray_closing(self, situation: Situation) -> bool | None:
        """The end of reasoning whose opening was in the prompt. What was sent before it cannot be taken back."""
        closing = next((one for one in STRAY_CLOSINGS if self._text.startswith(one, self._at)), None)
        if closing is None:
            return None
        if closing in self._shown_closings:
            self._shown_closings.remove(closing)
            return None
        end = self._at + len(closing)
        if end == len(self._text) and not situation.is_end:
            return False
        if self._quotes.is_after_blank and self._text[end : end + 1] in (" ", "\t"):
            return None  # "the </think> tag": the text is about it
        self._drop_pending()
        self._skip(end)
        self._end_reasoning()
        self._has_begun = False
        return True

    def _end_reasoning(self) -> None:
        self._break_text()
        self._reasoning = None
        self._was_reasoning_closed = self._is_after_reasoning = self._is_fresh = True
        self._quotes = QuotedText()

    def _read_end_tokens(self, situation: Situation) -> bool | None:
        """Drop tokens that end the answer, or follow a call."""
        found = match_end_tokens(self._text, self._at)
        if found is None and self._pending:
            found = match_call_ends(self._text, self._at)
        if found is None:
            return None
        if self._pending:
            self._pending_texts.append(found[0])
            self._skip(found.end())
            return True
        if found.end() - self._at > _MAX_END_TOKENS:
            return None
        if found.end() == len(self._text):
            if situation.is_end:
                self._skip(found.end())
            return situation.is_end
        is_prefix = not situation.is_end and self._vocabulary.is_prefix(self._text, found.end())
        return False if is_prefix else None

    # --- reasoning ---

    def _step_in_reasoning(self, mark: ReasoningMark, situation: Situation) -> bool:
        """In open reasoning: go on to its end, or to a call, which may be a draft."""
        if mark is PREFILLED:
            return self._begin_prefilled(situation)
        if self._wait is not None:
            return self._step_in_draft(self._wait, mark, situation)
        found = self._vocabulary.find_place_in_reasoning(self._text, self._scanned)
        self._release(found.start() if found else len(self._text))
        if found is None:
            return False
        if self._close_reasoning(mark):
            return True
        if not situation.is_end and self._vocabulary.is_prefix(self._text, self._at):
            return False
        if self._is_looking and self._find_strong_openings(self._at):
            self._wait = _Wait([])
            return self._step_in_draft(self._wait, mark, situation)
        self._scanned = self._at + 1
        return True

    def _begin_prefilled(self, situation: Situation) -> bool:
        """Pass the opening mark if the model writes it although it was in the prompt."""
        found = _find_word(self._text, self._at)
        if found is None:
            return False
        if not situation.is_end and self._vocabulary.is_prefix(self._text, found.start()):
            return False
        self._reasoning = OPENED
        for mark in REASONING_MARKS:
            if self._text.startswith(mark.opening, found.start()):
                self._skip(found.start() + len(mark.opening))
                self._reasoning = mark
        return True

    def _close_reasoning(self, mark: ReasoningMark) -> bool:
        """Pass a closing mark that begins here."""
        for closing in mark.closings:
            if self._text.startswith(closing, self._at):
                self._skip(self._at + len(closing))
                self._end_reasoning()
                return True
        return False

    def _step_in_draft(self, wait: _Wait, mark: ReasoningMark, situation: Situation) -> bool:
        """A call in reasoning that is closed later is a draft; in reasoning that is never closed it is meant."""
        ends = [end for closing in mark.closings if (end := self._text.find(closing, self._scanned)) >= 0]
        if not ends and not situation.is_end:
            self._scanned = max(self._at, len(self._text) - self._vocabulary.max_length)
            wait.watch(self._text, mark.closings, 0)
            return False
        self._wait = None
        if ends:
            self._release(min(ends))
            return self._close_reasoning(mark)
        place = self._at
        while found := self._vocabulary.find_place_in_reasoning(self._text, place):
            place = found.start()
            for opening in self._find_strong_openings(place):
                frame = self._read_frame(opening, place, situation)
                if isinstance(frame, Frame) and _has_call(frame):
                    self._release(place)
                    self._end_reasoning()
                    self._accept_frame(frame, opening)
                    return True
            place += 1
        self._release(len(self._text))
        return False

    def _find_strong_openings(self, place: int) -> list[Opening]:
        if self._text[place - 1 : place] in ("`", '"', "'"):
            return []
        return [one for one in self._vocabulary.openings_at(self._text, place) if one.is_mark]

    # --- frames ---

    def _read_opening(self, situation: Situation) -> bool | None:
        """Ask the formats whose opening is here; None if there is none, or it is quoted."""
        openings = [
            one
            for one in self._vocabulary.openings_at(self._text, self._at)
            if one.format.place == "anywhere"
            or (one.format.place == "line" and self._quotes.is_line_start)
            or not self._has_begun
            if not (one.format.is_list and self._quotes.is_in_expression)
        ]
        if not openings or not self._is_looking or self._quotes.opens_quotation():
            return None
        self._wait = _Wait(openings)
        return self._ask(self._wait, situation)

    def _ask(self, wait: _Wait, situation: Situation) -> bool:
        """Ask the formats in their order. The first that does not refuse decides."""
        while wait.openings:
            verdict = self._read_frame(wait.openings[0], self._at, situation)
            if isinstance(verdict, Frame):
                self._wait = None
                self._accept_frame(verdict, wait.openings[0])
                return True
            if verdict is not None and not situation.is_end:
                wait.watch(self._text, verdict.marks, len(self._text) - self._at)
                return False
            del wait.openings[0]
        self._wait = None
        self._scanned = self._at + 1
        return True

    def _read_frame(self, opening: Opening, start: int, situation: Situation) -> Frame | Waiting | None:
        self._work += len(self._text) - start
        if self._work > _WORK_FACTOR * self._fed + _FREE_WORK:
            self._is_looking = False
        if not self._is_looking:
            return None
        if opening.format is not FENCE:
            return opening.format.read_frame(self._text, start, situation)
        inner = TextReader(situation.tools, self._formats, is_call_required=situation.is_call_required, is_nested=True)
        return read_fence(self._text, start, situation, inner)

    def _accept_frame(self, frame: Frame, opening: Opening) -> None:
        source = self._text[self._at : frame.end]
        if frame.pieces == (source,):
            self._release(frame.end)
            return
        self._skip(frame.end)
        name = opening.format.name
        pieces = [replace(one, format=one.format or name) if isinstance(one, TextCall) else one for one in frame.pieces]
        if _has_call(frame):
            self._pending += pieces
            self._pending_texts.append(source)
            self._has_begun = self._is_fresh = True
            self._is_after_reasoning = False
            return
        self._break_text()
        for piece in pieces:
            if isinstance(piece, ReasoningText):
                if piece.text:
                    self._put_reasoning(piece.text)
            elif isinstance(piece, str) and piece:
                self._flush()
                self._quotes.pass_text(piece)
                self._put_text(piece)
                self._has_begun = self._has_begun or not piece.isspace()
                self._is_fresh = False


def _has_call(frame: Frame) -> bool:
    return any(isinstance(piece, TextCall) for piece in frame.pieces)
