"""Finds calls and reasoning in the text of an answer, whole or in pieces.

The text flows on at once. Held back is only what may begin a mark, a frame that has begun, and calls with what follows
them, until it is clear that they are meant and that no structured call follows. The readers of the formats decide what
a frame says, `mentions` decides whether it is meant; this module decides where one may be, and when to ask. Any split
of the text gives the same result.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from toolwire.call_repair.offered_tools import OfferedTools
from toolwire.tool_formats.announcements import list_words
from toolwire.tool_formats.frame import Frame, Piece, ReasoningText, Situation, TextCall, ToolFormat, Waiting
from toolwire.tool_formats.json_text import ANY_TEXT
from toolwire.tool_formats.mentions import (
    MAX_BEHIND,
    Candidate,
    find_mention_before,
    find_mention_behind,
    is_joint,
    is_mark_talked_about,
)
from toolwire.tool_formats.pending_calls import PendingCalls
from toolwire.tool_formats.quoted_text import MAX_BEFORE, Place, QuotedText
from toolwire.tool_formats.reader_states import (
    IN_TEXT,
    MAX_HELD,
    MAX_REFUSALS,
    InDraft,
    InFrame,
    InReasoning,
    SeenMarks,
    State,
    Watch,
    WorkBudget,
)
from toolwire.tool_formats.reasoning_marks import (
    ANSWER_MARKS,
    ANSWER_TOKENS,
    CALL_ENDS,
    END_TOKENS,
    OPENED,
    OPENING_MARKS,
    PREFILLED,
    REASONING_MARKS,
    STRAY_CLOSINGS,
    ReasoningMark,
    match_call_ends,
    match_end_tokens,
)
from toolwire.tool_formats.rest_of_answer import LAST_FENCE, read_last_fence
from toolwire.tool_formats.text_output import TextOutput
from toolwire.tool_formats.vocabulary import FENCE, NO_MARKS, Opening, make_vocabulary
from toolwire.tool_formats.whole_fence import read_fence

_PORTION: Final = 512
"""Characters of a long text that are added in the first step. Readers look at all the text that is there: in steps,
they need not look at what follows a short frame."""

_MAX_END_TOKENS: Final = 1000
"""Characters of end tokens that are held back."""
_MAX_AFTER_CALL: Final = 20_000
"""Characters behind a call that are held back as long as they may still turn out to be reasoning."""
_MAX_SHOWN: Final = 4000
"""Characters of a frame in quoted text that are held back. It is text in any case, and only reported."""

_AFTER_MARK: Final = 16
"""Characters behind a mark that tell whether the text is about it."""

_find_word = re.compile(r"\S").search
_match_token = re.compile(r"<[|｜]|\]<\]|\[TOOL_CALLS\]|<start_function_call>").match
"""Special tokens of a tokenizer: nobody writes them by chance, so indentation does not make them an example."""


_IN_THOUGHT: Final = Candidate(Place("", (), 0, is_shown=False, is_transcript=False), is_token=True)
"""A call in reasoning, which was judged there."""


class TextReader:
    """Reads the text of one choice of an answer. `reader_states` shows where it can be in it."""

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
            and not (is_nested and (one.is_code_in_fence or one.is_last))
            and (is_call_required or not one.needs_required_call)
        )
        self._vocabulary = make_vocabulary(self._formats, has_fences=not is_nested and not expects_json)
        self._situation = Situation(tools, is_call_required=is_call_required)
        self._text = ""
        """What is not sent yet. It begins at `_at`, and no mark begins before `_scanned`."""
        self._at = self._scanned = 0
        self._find_special = self._vocabulary.find_special
        self._is_idle = False
        """Is nothing held, and does no text without special characters begin anything?"""
        self._plain_texts: deque[str] = deque(maxlen=MAX_BEFORE)
        """The last texts that were passed on as they were, since the last one that was looked at."""
        self._late: list[str] = []
        """More text that is held back, and nobody has looked at yet. It is joined when somebody must."""
        self._held = 0
        """Characters of all of that."""
        self._quotes = QuotedText()
        self._output = TextOutput()
        self._pending = PendingCalls()
        self.has_mention = self._is_about_calls = False
        """Was a call found that is only mentioned? Is the text about it? Then those that follow are mentions, too."""
        self._is_nested = is_nested
        self._state: State = InReasoning(PREFILLED) if is_reasoning_open else IN_TEXT
        self._seen = SeenMarks()
        self._is_after_reasoning = False
        """Only blanks since reasoning was closed."""
        self._has_begun = False
        """Has anything but blanks and reasoning come?"""
        self._is_fresh = True
        """Only blanks since the beginning, or since reasoning or a call."""
        self._is_looking = bool(self._formats)
        self._budget = WorkBudget()
        self._refusals = 0
        """Places where a mark or a frame might have begun, and did not."""

    def feed(self, text: str) -> list[Piece]:
        """More text: what can be sent now."""
        if self.take_plain_text(text) is not None:
            return [text] if text else []
        self._end_plain_text()
        at = 0
        while at < len(text):
            portion = text[at : at + min(max(_PORTION, self._held), MAX_HELD - self._held)]
            at += len(portion)
            self._budget.fed += len(portion)
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
        self._judge_pending()
        return self._take_out()

    def discard_calls(self) -> list[Piece]:
        """A structured call came, so calls in text are stale drafts. Those that are pending become text again, and no
        more are looked for."""
        self._end_plain_text()
        self._is_looking = False
        self._stop_waiting()
        self._drop_pending()
        self._advance(self._situation)
        return self._take_out()

    def take_plain_text(self, text: str) -> str | None:
        """Take a text that can be sent as it is, and give it back. Nearly all texts of a stream can, so this is tried
        first. None: it was not taken."""
        if self._is_idle and self._find_special(text) is None:
            self._plain_texts.append(text[-MAX_BEFORE:])
            return text
        if self._held or self._is_fresh or self._pending.candidate or self._state is not IN_TEXT or not text:
            return None
        vocabulary = self._vocabulary
        if vocabulary.find_place(text) or (self._quotes.is_line_start and vocabulary.match_line_place(text)):
            return None
        self._end_plain_text()
        self._quotes.pass_text(text)
        self._is_idle = self._quotes.is_settled
        return text

    def _end_plain_text(self) -> None:
        if self._plain_texts:
            self._quotes.pass_text("".join(self._plain_texts)[-MAX_BEFORE:])
            self._plain_texts.clear()

    # --- what is sent ---

    def _take_out(self) -> list[Piece]:
        is_free = not self._held and not self._is_fresh and not self._pending.candidate and self._state is IN_TEXT
        self._is_idle = is_free and self._quotes.is_settled
        return self._output.take()

    def _release(self, end: int) -> None:
        """Send the text until here."""
        text = self._text[self._at : end]
        self._skip(end)
        if not text:
            return
        if isinstance(self._state, (InReasoning, InDraft)):
            self._put_reasoning(text)
            return
        self._quotes.pass_text(text)
        if self._pending.candidate:
            self._add_behind(text)
            return
        if text.isspace():
            if self._is_after_reasoning:
                return
        else:
            text = text.lstrip() if self._is_after_reasoning else text
            self._has_begun = True
            self._is_after_reasoning = self._is_fresh = False
        self._output.put_text(text)

    def _add_behind(self, text: str) -> None:
        """Text behind a pending call waits, too: it may say that the call is not meant."""
        pending = self._pending
        pending.behind.append(text)
        pending.behind_size += len(text)
        pending.size += len(text)
        if not text.isspace():
            pending.pieces.append(self._output.break_line(pending.find_blanks() + text))
            pending.words_end = len(pending.texts) + 1
            self._has_begun = True
            self._is_after_reasoning = self._is_fresh = False
        pending.texts.append(text)
        limit = MAX_BEHIND if self._seen.was_reasoning_closed else _MAX_AFTER_CALL
        if pending.behind_size > limit or pending.size > MAX_HELD:
            self._judge_pending()

    def _break_text(self) -> None:
        """A mark ends here that is not sent."""
        self._output.drop_mark(self._quotes.is_after_word)
        self._is_fresh = True

    def _skip(self, end: int) -> None:
        self._at = end
        self._scanned = max(self._scanned, end)

    def _put_reasoning(self, text: str) -> None:
        self._judge_pending()
        self._output.put_reasoning(text)

    def _judge_pending(self, *, has_next: bool = False) -> None:
        """The pending calls are calls, unless what follows the last one says that it is not meant. `has_next`: another
        call follows; it will tell."""
        pending = self._pending
        if pending.candidate is None:
            return
        if find_mention_behind(pending.candidate, "".join(pending.behind), has_next=has_next):
            self._note_mention()
        elif not has_next:
            pending.keep_blanks()
            self._output.put_pieces(pending.pieces)
            self._pending = PendingCalls()

    def _note_mention(self) -> None:
        """A call is only mentioned. Then the text is about calls: those that wait and those that follow are no calls
        either."""
        self.has_mention = self._is_about_calls = True
        self._drop_pending()

    def _drop_pending(self) -> None:
        """The pending calls are text."""
        text, self._pending = "".join(self._pending.texts), PendingCalls()
        if text:
            self._quotes.begin_text()
            self._quotes.pass_text(text)
            self._output.put_text(text)
            self._is_fresh = False

    def _must_look(self, text: str) -> bool:
        """Can this text change anything about what is held back?"""
        state = self._state
        if not isinstance(state, Watch):
            return True
        state.see(text)
        return state.has_mark and self._held >= state.next_length

    def _stop_waiting(self) -> None:
        """What is held back is no frame, or not looked at."""
        if isinstance(self._state, InFrame):
            self._state = IN_TEXT
        elif isinstance(self._state, InDraft):
            self._state = InReasoning(self._state.mark)

    def _give_up(self) -> None:
        """Too much is held."""
        self._join_late()
        self._stop_waiting()
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
        match self._state:
            case InFrame() as frame:
                return self._ask(frame, situation)
            case InReasoning(mark):
                return self._step_in_reasoning(mark, situation)
            case InDraft() as draft:
                return self._step_in_draft(draft, situation)
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
        if is_shown and self.has_mention:
            self._refuse_place()
            return True
        if not situation.is_end and self._vocabulary.is_prefix(self._text, self._at):
            return False
        goes_on = self._read_shown(situation) if is_shown else self._read_mark(situation)
        if goes_on is None and not is_shown:
            goes_on = self._read_opening(situation)
        if goes_on is None:
            self._refuse_place()
        return goes_on is not False

    def _refuse_place(self) -> None:
        """Nothing begins here. After many such places the answer is about marks, or repeats one: it is text."""
        self._scanned = self._at + 1
        self._refusals += 1
        if self._refusals >= MAX_REFUSALS:
            self._is_looking = False
            self._vocabulary = NO_MARKS
            self._find_special = NO_MARKS.find_special

    def _read_shown(self, situation: Situation) -> bool | None:
        """Look whether a call is shown here, for the report."""
        openings = [one for one in self._vocabulary.openings_at(self._text, self._at) if one.is_mark]
        if not openings or not self._is_looking or self.has_mention:
            return None
        return self._ask(InFrame(openings, is_shown=True), situation)

    # --- marks around reasoning and answers ---

    def _read_mark(self, situation: Situation) -> bool | None:
        """Pass a mark that begins here; None if there is none."""
        found = self._vocabulary.match_mark(self._text, self._at)
        if found is None:
            return None
        if not _match_token(self._text, self._at) and self._quotes.is_quoted():
            return None  # in indented text a mark is an example; of a call, `mentions` says it
        mark, passed = found[0], None
        if mark in OPENING_MARKS:
            passed = self._open_reasoning(OPENING_MARKS[mark], situation)
        elif mark in ANSWER_MARKS or mark in ANSWER_TOKENS or mark == self._seen.answer_closing:
            passed = self._read_answer_mark(mark, situation)
        elif mark in STRAY_CLOSINGS and not self._seen.was_reasoning_closed:
            passed = self._read_stray_closing(mark, situation)
        elif mark in END_TOKENS or mark in CALL_ENDS:
            passed = self._read_end_tokens(situation)
        return passed

    def _open_reasoning(self, mark: ReasoningMark, situation: Situation) -> bool | None:
        end = self._at + len(mark.opening)
        is_talk = self._is_talked_about(end, situation)
        if is_talk is None:
            return False
        may_think = self._is_fresh or (self._seen.was_reasoning_closed and self._quotes.is_line_start)
        if not is_talk and (may_think or mark.place == "anywhere"):
            self._skip(end)
            self._state = InReasoning(mark)
            return True
        self._seen.shown_closings += mark.closings
        return None

    def _read_answer_mark(self, mark: str, situation: Situation) -> bool | None:
        end = self._at + len(mark)
        if mark in ANSWER_MARKS:
            if not self._is_after_reasoning:
                return None
            self._seen.answer_closing = ANSWER_MARKS[mark]
            self._skip(end)
            return True
        is_talk = self._is_talked_about(end, situation)
        if is_talk is False:
            self._skip(end)
        return None if is_talk else is_talk is False

    def _is_talked_about(self, end: int, situation: Situation) -> bool | None:
        """Is the mark from here to there a word of a sentence? None: more text must tell."""
        if self._is_about_calls:
            return True
        return is_mark_talked_about(self._quotes.line_end, self._text[end : end + _AFTER_MARK], situation.is_end)

    def _read_stray_closing(self, closing: str, situation: Situation) -> bool | None:
        """The end of reasoning whose opening was in the prompt. What was sent before it cannot be taken back."""
        if closing in self._seen.shown_closings:
            self._seen.shown_closings.remove(closing)
            return None
        end = self._at + len(closing)
        is_talk = self._is_talked_about(end, situation)
        if is_talk is not False:
            return False if is_talk is None else None
        self._drop_pending()
        self._skip(end)
        self._end_reasoning()
        self._has_begun = False
        return True

    def _end_reasoning(self) -> None:
        self._break_text()
        self._state = IN_TEXT
        self._seen.was_reasoning_closed = self._is_after_reasoning = self._is_fresh = True
        self._quotes = QuotedText()

    def _read_end_tokens(self, situation: Situation) -> bool | None:
        """Drop tokens that end the answer, or follow a call."""
        text, at = self._text, self._at
        if self._pending.candidate:
            found = match_end_tokens(text, at) or match_call_ends(text, at)
            if found is None:
                return None
            self._pending.texts.append(found[0])
            self._pending.behind.append("".join(filter(str.isspace, found[0])))
            self._skip(found.end())
            return True
        found = match_end_tokens(text, at, at + _MAX_END_TOKENS + self._vocabulary.max_length)
        if found is None:
            return None
        if found.end() - at > _MAX_END_TOKENS:
            return None
        if found.end() < len(text):
            is_prefix = not situation.is_end and self._vocabulary.is_prefix(text, found.end())
            return False if is_prefix else None
        if not situation.is_end:
            return False
        is_html = found[0].lstrip().startswith("</s>") and "<s>" in self._quotes.line_end.rpartition("</s>")[2]
        if is_html or self._is_talked_about(found.end(), situation) or self._quotes.describe_place().is_transcript:
            return None
        self._skip(found.end())
        return True

    # --- reasoning ---

    def _step_in_reasoning(self, mark: ReasoningMark, situation: Situation) -> bool:
        """In open reasoning: go on to its end, or to a call, which may be a draft."""
        if mark is PREFILLED:
            return self._begin_prefilled(situation)
        found = self._vocabulary.find_place_in_reasoning(self._text, self._scanned)
        self._release(found.start() if found else len(self._text))
        if found is None:
            return False
        if self._close_reasoning(mark):
            return True
        if not situation.is_end and self._vocabulary.is_prefix(self._text, self._at):
            return False
        if self._is_looking and self._find_strong_openings(self._at):
            self._state = draft = InDraft(mark)
            return self._step_in_draft(draft, situation)
        self._refuse_place()
        return True

    def _begin_prefilled(self, situation: Situation) -> bool:
        """Pass the opening mark if the model writes it although it was in the prompt."""
        found = _find_word(self._text, self._at)
        if found is None:
            return False
        if not situation.is_end and self._vocabulary.is_prefix(self._text, found.start()):
            return False
        self._state = InReasoning(OPENED)
        for mark in REASONING_MARKS:
            if self._text.startswith(mark.opening, found.start()):
                self._skip(found.start() + len(mark.opening))
                self._state = InReasoning(mark)
        return True

    def _close_reasoning(self, mark: ReasoningMark) -> bool:
        """Pass a closing mark that begins here."""
        for closing in mark.closings:
            if self._text.startswith(closing, self._at):
                self._skip(self._at + len(closing))
                self._end_reasoning()
                return True
        return False

    def _step_in_draft(self, draft: InDraft, situation: Situation) -> bool:
        """A call in reasoning that is closed later is a draft; in reasoning that is never closed it is meant."""
        mark = draft.mark
        ends = [end for closing in mark.closings if (end := self._text.find(closing, self._scanned)) >= 0]
        if not ends and not situation.is_end:
            self._scanned = max(self._at, len(self._text) - self._vocabulary.max_length)
            draft.watch(self._text, mark.closings, 0)
            return False
        self._state = InReasoning(mark)
        if ends:
            self._release(min(ends))
            return self._close_reasoning(mark)
        place = self._at
        while found := self._vocabulary.find_place_in_reasoning(self._text, place):
            place = found.start()
            for opening in self._find_strong_openings(place):
                frame = self._read_frame(opening, place, situation)
                if (
                    isinstance(frame, Frame)
                    and _has_call(frame)
                    and not self._is_mentioned_in_thought(place, frame.end)
                ):
                    self._release(place)
                    self._end_reasoning()
                    self._accept_frame(frame, opening)
                    return True
            self._refuse_place()
            place += 1
        self._release(len(self._text))
        return False

    def _is_mentioned_in_thought(self, start: int, end: int) -> bool:
        thoughts = QuotedText()
        thoughts.pass_text(self._output.last_thoughts + self._text[self._at : start])
        candidate = Candidate(thoughts.describe_place(), _match_token(self._text, start) is not None)
        behind = self._text[end : end + MAX_BEHIND]
        return bool(find_mention_before(candidate) or find_mention_behind(candidate, behind, has_next=False))

    def _find_strong_openings(self, place: int) -> list[Opening]:
        return [one for one in self._vocabulary.openings_at(self._text, place) if one.is_mark]

    # --- frames ---

    def _read_opening(self, situation: Situation) -> bool | None:
        """Ask the formats whose opening is here; None if there is none, or it is quoted."""
        begun = [] if self._has_begun else self._vocabulary.everywhere
        openings = [
            one
            for one in self._vocabulary.openings_at(self._text, self._at) + begun
            if one.format.place == "anywhere"
            or (one.format.place == "line" and self._quotes.is_line_start)
            or not self._has_begun
            if not (one.format.is_list and self._quotes.is_in_expression)
            if not (one.format.is_last and (self._pending.candidate or self.has_mention))
        ]
        if not openings or not self._is_looking:
            return None
        return self._ask(InFrame(openings), situation)

    def _ask(self, wait: InFrame, situation: Situation) -> bool:
        """Ask the formats in their order. The first that does not refuse decides."""
        self._state = wait
        while wait.openings:
            verdict = self._read_frame(wait.openings[0], self._at, situation)
            if isinstance(verdict, Frame) and (_has_call(verdict) or not wait.is_shown):
                is_accepted = self._take_frame(verdict, wait, situation)
                self._state = IN_TEXT if is_accepted else wait
                return is_accepted
            is_open = verdict is not None and not isinstance(verdict, Frame) and not situation.is_end
            if is_open and not (wait.is_shown and len(self._text) - self._at > _MAX_SHOWN):
                assert isinstance(verdict, Waiting)
                wait.watch(self._text, verdict.marks, len(self._text) - self._at)
                return False
            del wait.openings[0]
        self._state = IN_TEXT
        self._refuse_place()
        return True

    def _read_frame(self, opening: Opening, start: int, situation: Situation) -> Frame | Waiting | None:
        if not self._budget.spend(len(self._text) - start):
            self._is_looking = False
        if not self._is_looking:
            return None
        form = opening.format
        if form is not FENCE and form is not LAST_FENCE:
            return form.read_frame(self._text, start, situation)
        inner = TextReader(situation.tools, self._formats, is_call_required=situation.is_call_required, is_nested=True)
        read = read_fence if form is FENCE else read_last_fence
        return read(self._text, start, situation, inner)

    def _take_frame(self, frame: Frame, wait: InFrame, situation: Situation) -> bool:
        """Accept a frame, or leave it as text where it is only mentioned. False: more text must tell."""
        source = self._text[self._at : frame.end]
        if wait.is_shown:
            self.has_mention = True
            self._scanned = self._at + 1
            return True
        if not _has_call(frame):
            self.has_mention = self.has_mention or wait.openings[0].format.is_last
            is_talk = self._is_talked_about(frame.end, situation)
            if is_talk or frame.pieces == (source,):
                self._release(frame.end)
            elif is_talk is not None:
                self._accept_frame(frame, wait.openings[0])
            else:
                wait.watch(self._text, ANY_TEXT, 0)
            return is_talk is not None or frame.pieces == (source,)
        self._judge_pending(has_next=True)
        candidate = None if self._is_about_calls else self._describe_candidate(wait.openings[0], frame, situation)
        if candidate is None or find_mention_before(candidate):
            self._note_mention()
            self._release(frame.end)
            return True
        self._quotes.begin_text()
        self._accept_frame(frame, wait.openings[0], candidate)
        return True

    def _describe_candidate(self, opening: Opening, frame: Frame, situation: Situation) -> Candidate:
        place, has_call = self._quotes.describe_place(), self._pending.candidate is not None
        if self._is_nested or (has_call and is_joint(place.before)):
            place = replace(place, before="")
        is_token = _match_token(self._text, self._at) is not None
        call = next(one for one in frame.pieces if isinstance(one, TextCall))
        named = list_words(call.name, call.arguments, situation.tools.describe(call.name))
        return Candidate(place, is_token, has_call, opening.format.needs_required_call, named)

    def _accept_frame(self, frame: Frame, opening: Opening, candidate: Candidate = _IN_THOUGHT) -> None:
        source = self._text[self._at : frame.end]
        self._skip(frame.end)
        name = opening.format.name
        pieces = [replace(one, format=one.format or name) if isinstance(one, TextCall) else one for one in frame.pieces]
        if _has_call(frame):
            self._pending.add_frame(pieces, source, candidate)
            self._has_begun = self._is_fresh = True
            self._is_after_reasoning = False
            return
        self._break_text()
        for piece in pieces:
            if isinstance(piece, ReasoningText):
                if piece.text:
                    self._put_reasoning(piece.text)
            elif isinstance(piece, str) and piece:
                self._judge_pending()
                self._quotes.pass_text(piece)
                self._output.put_text(piece)
                self._has_begun = self._has_begun or not piece.isspace()
                self._is_fresh = False


def _has_call(frame: Frame) -> bool:
    return any(isinstance(piece, TextCall) for piece in frame.pieces)
