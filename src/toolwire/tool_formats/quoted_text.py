"""Follows the text of an answer, and knows where it only shows a call: in code fences, inline code, quotes."""

from __future__ import annotations

import re
from copy import copy
from typing import Final

QUOTING: Final = "\n`~>"
"""The characters that begin or end quoted text."""
_find_special = re.compile(f"[{QUOTING}]").search
_find_tokens = re.compile(r"\n|`+|~+|>|[^\n`~>]+").finditer
_INDENTED: Final = 4
"""Columns from which Markdown reads a line as code."""
_MIN_FENCE: Final = 3
_MAX_RUN: Final = 64
"""Backticks or tildes that are told apart."""
_QUOTATION_MARKS: Final = frozenset("\"'“‘«„")
_BEFORE_QUOTATION: Final = frozenset(" \t\n([{")


class QuotedText:
    """The place behind the text that was passed so far. Marks can be split over several texts."""

    def __init__(self) -> None:
        self._fence = ""
        """The run of backticks or tildes that opened the present fence."""
        self._fence_line = ""
        """On the line of a fence: the run that opens it, before anything that makes it inline code."""
        self._run = ""
        """Backticks or tildes at the very end: more may follow."""
        self._run_at_line_start = False
        self._span = ""
        """The backticks that opened the present inline code."""
        self._span_begins_mark = False
        """Does the inline code begin with `<`, `[` or `{`? Then it may go on over lines."""
        self._is_fresh_span = False
        self._indent = 0
        self._is_quoted_line = False
        self._in_quotation = False
        self._last = "\n"
        self._before_last = "\n"
        self.is_line_start = True
        """Only blanks since the last line break."""
        self.has_text = False
        """Anything but blanks."""

    def pass_text(self, text: str) -> None:
        """Go on behind this text."""
        if not text:
            return
        if self._run or self._is_fresh_span or self.is_line_start or _find_special(text):
            for token in _find_tokens(text):
                self._pass_token(token[0])
        self._before_last = text[-2] if len(text) > 1 else self._last
        self._last = text[-1]

    @property
    def is_settled(self) -> bool:
        """Can text without special characters only go on with what is here?"""
        return not (self._run or self._is_fresh_span or self.is_line_start)

    def is_quoted(self, *, ignores_indent: bool = False) -> bool:
        """Is what begins at this place only shown? `ignores_indent`: indentation does not make it code."""
        place = self
        if self._run:  # as if it ended here; but asking must not change anything
            place = copy(self)
            place._end_run()
        if place._fence or place._span or self._is_quoted_line or self._in_quotation:
            return True
        return self.is_line_start and self._indent >= _INDENTED and self.has_text and not ignores_indent

    def opens_quotation(self) -> bool:
        """Does a quotation begin at this place, as in `he wrote "<tool_call>…"`? It goes on to the paragraph's end."""
        if self._last in _QUOTATION_MARKS and self._before_last in _BEFORE_QUOTATION:
            self._in_quotation = True
        return self._in_quotation

    @property
    def is_in_expression(self) -> bool:
        """Would a list that begins here be code: a subscript `x[…]`, or the value in `x = […]`?"""
        last_mark = self._before_last if self._last in " \t" else self._last
        return last_mark == "=" or self._last.isalnum() or self._last in "_)]"

    @property
    def is_after_blank(self) -> bool:
        return self._last in " \t"

    @property
    def is_after_word(self) -> bool:
        return not self._last.isspace()

    def _pass_token(self, token: str) -> None:
        if self._run and token[0] != self._run[0]:
            self._end_run(token)
        if token == "\n":
            self._end_line()
        elif token[0] in "`~":
            self._pass_run(token)
        else:
            self._pass_words(token)

    def _pass_run(self, token: str) -> None:
        if not self._run:
            self._run_at_line_start = self.is_line_start
        self._run += token[: _MAX_RUN - len(self._run)]
        self.is_line_start = False
        self.has_text = True

    def _pass_words(self, token: str) -> None:
        if self._is_fresh_span:
            self._is_fresh_span = False
            self._span_begins_mark = token[0] in "<[{"
        if self.is_line_start:
            words = token.lstrip(" \t\r\f\v")
            self._indent += len(token[: len(token) - len(words)].expandtabs(_INDENTED))
            if not words:
                return
            self.is_line_start = False
            self.has_text = True
            if words[0] == ">" and self._indent < _INDENTED:
                self._is_quoted_line = True

    def _end_line(self) -> None:
        if self.is_line_start:  # a blank line ends the paragraph, and what was not closed in it
            self._span = ""
            self._in_quotation = False
        if not self._span_begins_mark:
            self._span = ""
        self._fence_line = ""
        self._is_fresh_span = False
        self._is_quoted_line = False
        self._indent = 0
        self.is_line_start = True

    def _closes_fence(self, run: str) -> bool:
        return bool(run and self._run_at_line_start and self._fence and run.startswith(self._fence))

    def _end_run(self, following: str = "") -> None:
        """A run of backticks or tildes is complete: a fence, or inline code. `following` is the text behind it."""
        run, self._run = self._run, ""
        if not run:
            return
        if self._fence and not self._fence_line:
            if self._closes_fence(run) and (not following or not following.strip(" \t\r\n")):
                self._fence = ""
            return
        if self._fence_line and run[0] == "`" == self._fence_line[0]:  # "```x``` …" is inline code
            self._span, self._fence, self._fence_line = self._fence_line, "", ""
        if not self._span and self._run_at_line_start and len(run) >= _MIN_FENCE:
            self._fence = self._fence_line = run
        elif run[0] == "`" and self._span:
            self._span = "" if run == self._span else self._span
        elif run[0] == "`":
            self._span, self._is_fresh_span, self._span_begins_mark = run, True, False
