"""Follows the text of an answer, and knows where it only shows something: in code fences, inline code, quotes, and the
blocks of other markup. `mentions` judges from it whether a call is meant."""

from __future__ import annotations

import re
from copy import copy
from itertools import dropwhile, takewhile
from typing import Final

from msgspec import Struct

QUOTING: Final = "\n`~>\\"
"""The characters that begin or end quoted text."""
_find_special = re.compile("[\n`~>]").search
_find_tokens = re.compile(r"\n|`+|~+|>[^\n`~]*|[^\n`~>]+").finditer
_INDENTED: Final = 4
"""Columns from which Markdown reads a line as code."""
_MIN_FENCE: Final = 3
_MAX_RUN: Final = 64
"""Backticks or tildes that are told apart."""
MAX_BEFORE: Final = 2000
"""Characters before a place that are known."""
_MAX_LINES: Final = 40
_LINE_END: Final = 100
"""Characters before a mark that tell whether the text is about it."""
_SCAN_SIZE: Final = 4096
"""Characters after which text is searched for blocks."""
_MAX_LINE: Final = 16_384
"""Characters of a line that are searched at once."""

# --- blocks of other markup ---


class _Block(Struct, frozen=True):
    """A kind of markup that shows what is in it."""

    opening: str
    """A regular expression, within one line. Its group with the name of the kind and `_name` must come again at the
    end."""
    find_closing: re.Pattern[str] | None
    """None: it opens nothing. With the group `name`; the group `slash` where it also finds openings."""


def _closing(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.MULTILINE | re.IGNORECASE)


_SHOWING_TAGS: Final = (
    "pre|code|samp|kbd|tt|var|xmp|listing|plaintext|blockquote|q|cite|details|summary|examples?|samples?|textarea|script"
    "|style|template|nowiki|source|syntaxhighlight|quote|transcript|conversation|documentation|document|docs?|logs?"
    "|output|stdout|stderr|input|prompt|snippet|excerpt|note|aside|figure|figcaption|table|td|th|li|dd"
)
"""Tags of HTML and of prompts around text that is shown."""
_OTHER_TAGS: Final = (
    r"(?:tools?|tool_\w+|function\w*|parameters?|params?|invoke|json|xml|response|answer|think\w*|thought|reason\w*"
    r"|reflection|TOOLCALL|br|hr|img|p)\b"
)
"""Tags that show nothing: those of calls and thinking, which the reader knows, and those that HTML need not close."""
_TAG_END: Final = _closing(r"<(?P<slash>/)?(?P<name>[A-Za-z][\w.-]*)(?:\s[^<>\n]*)?(?<!/)>")

# What may stand within an opening is bounded, or many of them in one line would each be searched to its end. Inline
# code is as long as it is: what is in it opens nothing. It is read by runs, not by letters.
_BLOCKS: Final[dict[str, _Block]] = {
    "span": _Block(r"(?<!`)(?P<span_ticks>`++)(?:[^`\n]++|(?!(?P=span_ticks))`++)*+(?P=span_ticks)", None),
    "fence": _Block(
        r"^[ ]{0,3}(?P<fence_name>`{3,}|~{3,})[^`\n]*$", _closing(r"^[ ]{0,3}(?P<name>`{3,}|~{3,})[ \t]*$")
    ),
    "comment": _Block("<!--", _closing("-->")),
    "cdata": _Block(r"<!\[CDATA\[", _closing(r"\]\]>")),
    "tag": _Block(rf"<(?P<tag_name>{_SHOWING_TAGS})\b(?:\s[^<>\n]*)?(?<!/)>", _TAG_END),
    "other_tag": _Block(
        rf"^[ \t]*<(?!{_OTHER_TAGS})(?P<other_tag_name>[A-Za-z][\w.-]*)(?:\s[^<>\n]*)?(?<!/)>", _TAG_END
    ),
    "latex": _Block(r"\\begin\{(?P<latex_name>\w+\*?)\}", _closing(r"\\end\{(?P<name>\w+\*?)\}")),
    "org": _Block(r"^[ \t]*#\+begin_(?P<org_name>\w+)", _closing(r"^[ \t]*#\+end_(?P<name>\w+)")),
    # AsciiDoc: listings (----, ....), examples (====), quotes (____). Not the line below a heading, nor a rule.
    "asciidoc": _Block(
        r"(?<![^\n:\]]\n)^(?P<asciidoc_name>(?P<delimiter>[-.=+_*/])(?P=delimiter){3,})[ \t]*$(?!\n[ \t]*\n)",
        _closing(r"^(?P<name>([-.=+_*/])\2{3,})[ \t]*$"),
    ),
    "bbcode": _Block(
        r"\[(?P<bbcode_name>code|quote|noparse|pre)(?:=[^\]\n]{0,200})?\]",
        _closing(r"\[/(?P<name>code|quote|noparse|pre)\]"),
    ),
    "jira": _Block(
        r"\{(?P<jira_name>code|noformat|quote)(?::[^}\n]{0,200})?\}", _closing(r"\{(?P<name>code|noformat|quote)\}")
    ),
    "wiki": _Block(r"\{\{\{", _closing(r"\}\}\}")),
    "raw": _Block(r"\{%-?\s*raw\s*-?%\}", _closing(r"\{%-?\s*endraw")),
    "text": _Block(r"(?P<text_name>\"\"\"|''')", _closing(r"(?P<name>\"\"\"|''')")),
    "heredoc": _Block(
        r"<<[-~]?[ \t]*['\"]?(?P<heredoc_name>[A-Z_][A-Z_0-9]+)\b",
        _closing(r"^[ \t]*(?P<name>[A-Z_][A-Z_0-9]+)[ \t]*$"),
    ),
    "ruby_comment": _Block(r"^=begin\b", _closing(r"^=end\b")),
    "c_comment": _Block(r"(?:^|(?<=\s))/\*(?=[\s*]|$)", _closing(r"\*/")),
}
_find_block = re.compile(
    "|".join(f"(?P<{name}>{block.opening})" for name, block in _BLOCKS.items()), re.MULTILINE | re.IGNORECASE
).search
_BLOCK_STARTS: Final = (
    "<", "`", "~~~", "\\begin", "#+", "{", "[code", "[quote", "[noparse", "[pre", '"""', "'''", "/*", "=begin", "----",
    "....", "====", "++++", "____", "****", "////", "\\BEGIN", "[CODE", "[QUOTE",
)  # fmt: skip
"""Every opening holds one of these: most text has none, and to look for them takes no time."""
_SPEAKER_MARKS: Final = (":", "：", "<|", "[INST]", "#", "**")
_find_speaker = re.compile(
    r"^[^\w\n]{0,20}+(?:user|human|customer|you|alice|bob|utilisateur|benutzer|nutzer|usuario|utente|пользователь|用户"
    r"|使用者|ユーザー|사용자)[^\w\n]{0,3}(?:\([^)\n]{0,40}\)[^\w\n]{0,3})?[:：]|<\|im_start\|>|<\|start_header_id\|>user"
    r"|^[ \t]*\[INST\]|^(?:#{1,6} ?|\*\*)(?:user|human)\b\W{0,20}$",
    re.MULTILINE | re.IGNORECASE,
).search
"""A line of another person in a conversation that is shown."""


class _OpenBlock(Struct):
    """The block of markup that is open behind the text that was passed. Within one, others are not looked for."""

    kind: str = ""
    name: str = ""
    depth: int = 0
    is_transcript: bool = False
    """Has another person spoken, outside of blocks?"""

    def pass_lines(self, text: str, at: int = 0) -> None:
        """Go on behind whole lines. `at`: where they begin; before that is what was passed already."""
        has_openings = any(text.find(one, at) >= 0 for one in _BLOCK_STARTS)
        has_speakers = not self.is_transcript and any(text.find(one, at) >= 0 for one in _SPEAKER_MARKS)
        while True:
            found = self._find_end(text, at) if self.kind else _find_block(text, at) if has_openings else None
            if has_speakers and not self.kind and not self.is_transcript:
                end = found.start() if found else len(text)
                self.is_transcript = _find_speaker(text, at, end) is not None
            if found is None:
                return
            if self.kind:
                self.depth += -1 if found.groupdict().get("slash", "/") else 1
                self.kind = self.kind if self.depth else ""
            elif _BLOCKS[found.lastgroup or ""].find_closing:
                self.kind, self.depth = found.lastgroup or "", 1
                self.name = (found.groupdict().get(f"{self.kind}_name") or "").lower()
            at = max(found.end(), at)

    def _find_end(self, text: str, at: int) -> re.Match[str] | None:
        closing = _BLOCKS[self.kind].find_closing
        assert closing is not None
        for found in closing.finditer(text, at):
            name = (found.groupdict().get("name") or "").lower()
            if name == self.name or (self.kind == "fence" and name.startswith(self.name)):
                return found
        return None


class Place(Struct, frozen=True):
    """A place in the text, and what stands before it."""

    before: str
    """On the same line."""
    lines: tuple[str, ...]
    """The nearest lines before that are not blank, the nearest first."""
    paragraph: int
    """How many of them follow each other without a blank line."""
    is_shown: bool
    """Is it in a block of markup, in inline code, or in a quotation?"""
    is_transcript: bool
    """Does the text show a conversation of others?"""


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
        self._last = "\n"
        self._before_last = "\n"
        self._block = _OpenBlock()
        """As it was behind `_passed`."""
        self._passed = ""
        """The end of the text that was searched for blocks."""
        self._unsearched: list[str] = []
        self._unsearched_size = 0
        self._next_search = _SCAN_SIZE
        self.is_line_start = True
        """Only blanks since the last line break."""
        self.has_text = False
        """Anything but blanks."""

    def pass_text(self, text: str) -> None:
        """Go on behind this text."""
        if not text:
            return
        self._unsearched.append(text)
        self._unsearched_size += len(text)
        if self._unsearched_size > self._next_search:
            self._search_blocks()
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
        if place._fence or place._span or self._is_quoted_line:
            return True
        return self.is_line_start and self._indent >= _INDENTED and not ignores_indent

    def describe_place(self) -> Place:
        """What `mentions` wants to know about this place."""
        text = self._passed + "".join(self._unsearched)
        block = copy(self._block)
        block.pass_lines(text, len(self._passed))
        lines = text[-MAX_BEFORE:].split("\n")
        nearest = lines[-2::-1]
        filled = [line for line in nearest if line.strip()][:_MAX_LINES]
        paragraph = sum(1 for _ in takewhile(str.strip, dropwhile(lambda line: not line.strip(), nearest)))
        is_shown = bool(block.kind) or self.is_quoted(ignores_indent=True)
        return Place(lines[-1], tuple(filled), min(paragraph, _MAX_LINES), is_shown, block.is_transcript)

    def begin_text(self) -> None:
        """A call ends here: what stands before it says nothing about the next one."""
        self._search_blocks(is_all=True)
        self._passed = ""

    def _search_blocks(self, *, is_all: bool = False) -> None:
        """Search for blocks as far as lines are complete."""
        text = self._passed + "".join(self._unsearched)
        start = len(self._passed)
        end = len(text)
        if not is_all:  # without the last line, which tells what the line before it is
            end = max(text.rfind("\n", start, max(text.rfind("\n", start), start)) + 1, start)
            while len(text) - end > _MAX_LINE:
                end += _MAX_LINE // 2
        if end > start:
            self._block.pass_lines(text[:end], start)
            self._passed = text[max(end - MAX_BEFORE, 0) : end]
        self._unsearched = [text[end:]]
        self._unsearched_size = len(text) - end
        self._next_search = self._unsearched_size + _SCAN_SIZE

    @property
    def is_in_expression(self) -> bool:
        """Would a list that begins here be code: a subscript `x[…]`, or the value in `x = […]`?"""
        last_mark = self._before_last if self._last in " \t" else self._last
        return last_mark == "=" or self._last.isalnum() or self._last in "_)]"

    @property
    def line_end(self) -> str:
        """The end of the text before this place, the line before included if nothing else is on the line."""
        return (self._passed[-_LINE_END:] + "".join(self._unsearched[-_LINE_END:]))[-_LINE_END:]

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
