"""Judges whether the frame of a call is meant, or whether the text only mentions it.

An invented call can cost a disk, a missed one costs a turn. So a frame is a call only where nothing says that it is a
mention: not the markup around it, not the words before and behind it on its line, not the lines around it. When in
doubt it is text. What models write before real calls was read from the test suites of vLLM, SGLang and llama.cpp and
from recorded answers (November 2026): nothing, or a sentence that says what they do next.
`announcements` knows such sentences.
"""

from __future__ import annotations

import re
from itertools import takewhile
from typing import Final

from msgspec import Struct

from toolwire.tool_formats.announcement_words import find_pronoun, find_telling_above
from toolwire.tool_formats.announcements import (
    COLONS,
    MAX_SENTENCE,
    NO_WORDS,
    QUESTION_MARKS,
    CallWords,
    has_word,
    is_announcement,
    last_sentence,
    list_sentences,
    names_text,
)
from toolwire.tool_formats.mention_words import (
    REFUSALS,
    find_quoting,
    find_title,
    match_filler,
    match_foreign_line,
    match_interjection,
    match_invitation,
    match_name,
    match_outlook,
    match_remark,
    match_state,
)
from toolwire.tool_formats.quoted_text import Place
from toolwire.tool_formats.statements import is_statement

MAX_BEHIND: Final = 1000
"""Characters behind a frame that are looked at."""
_INDENTED: Final = 4
"""Columns from which Markdown reads a line as code."""


class Mention(Struct, frozen=True):
    """Why a frame is no call."""

    reason: str


class Candidate(Struct, frozen=True):
    """A frame that may be a call."""

    place: Place
    is_token: bool
    """Does it begin with a special token, which a tokenizer writes only for a call?"""
    follows_call: bool = False
    """Does another call wait before it?"""
    is_required: bool = False
    """The request demands a call, and this is the JSON of one: only a refusal speaks against it."""
    named: CallWords = NO_WORDS
    """A sentence that announces it may name them."""


_match_list_item = re.compile(
    r"[ \t]*(?:[-*+•‣◦·–—]|\(?(?:\d{1,3}|[a-z]|[ivx]{1,4})[.):])(?:[ \t]+|$)", re.IGNORECASE
).match
_SENTENCE_ENDS: Final = tuple(".!?…。！？।")
_match_decoration = re.compile(r"[ \t\r*_~\u2190-\u21ff\u2600-\u27bf\ufe0f\U0001f000-\U0001faff]*").match
"""Blanks, emphasis and emoji."""
_find_tags = re.compile(r"</?(?:b|i|u|em|strong|span|p|div)>")
_CLOSING_TAGS: Final = re.compile(r"(?:</(?:b|i|u|em|strong|span|p|div)>\s*)+\Z")
_ESCAPES: Final = ("\\n", "\\t", "\\r")
"""Line breaks and the like as a string of a program has them."""
_OPENING_QUOTES: Final = "«„“‹「『《〈【〝‚‘"
_match_joint = re.compile(r"\s*(?:,|;|\+|&|and|then|and then|und|et|y|e|и|和)?\s*").fullmatch
"""What stands between two calls, and says nothing."""


def _strip_decoration(text: str) -> str:
    text = _CLOSING_TAGS.sub("", text)
    decoration = _match_decoration(text[::-1])
    return text[: len(text) - decoration.end()] if decoration else text


# --- before -----------------------------------------------------------------------------------------------------------


def find_mention_before(candidate: Candidate) -> Mention | None:
    """Does what stands before a frame say that it is a mention?"""
    place = candidate.place
    if candidate.is_required:
        words = place.before if place.before.strip() else "".join(place.lines[:1])
        return Mention("the text before it refuses it") if REFUSALS.search(last_sentence(words)) else None
    if place.is_shown:
        return Mention("it stands in text that is shown")
    if place.is_transcript:
        return Mention("it stands in a conversation that is shown")
    before = _match_call_ends.sub("", place.before)
    left_over = sum(1 for _ in takewhile(_match_empty_line, place.lines))
    lines, paragraph = place.lines[left_over:], place.paragraph - left_over
    if before.strip():
        if candidate.follows_call and candidate.is_token:
            return _judge_words(before, lines, candidate.named)
        return _judge_line(before, lines, candidate)
    indent = len(before.expandtabs(_INDENTED))
    is_introduced = (
        lines and _measure_indent(lines[0]) < _INDENTED and is_announcement(last_sentence(lines[0]), candidate.named)
    )
    if indent >= _INDENTED and not (candidate.is_token and is_introduced):
        return Mention("it is indented as code")
    return _judge_lines(lines, paragraph, indent, candidate.named)


_match_call_ends = re.compile(r"^\s*(?:</[\w:]*(?:tool_calls?|function\w*|invoke)>\s*)+")
_match_empty_line = re.compile(
    r"\s*(?:</?[\w:]*(?:tool_calls?|function\w*|invoke|parameter)\b|(?:---|\*\*\*|___)[ \t]*$)"
).match
"""What is left of a call that could not be read, and a rule: they say nothing about the next call."""
_match_other_call = re.compile(
    r"\s*(?:<[|｜]|</?[\w:]*(?:tool_calls?|function\w*|invoke|parameter)\b|\[TOOL_CALLS\]|\[[\w.]+\()"
).match


def _judge_line(before: str, lines: tuple[str, ...], candidate: Candidate) -> Mention | None:
    """Words stand before it on its line: they must be a sentence that ends there."""
    is_token, named = candidate.is_token, candidate.named
    words = _strip_decoration(before)
    is_glued = before[-1:] not in (" ", "\t")
    if not words or not has_word(words) or _match_list_item(before) or match_foreign_line(before):
        return Mention("what stands before it is not a sentence")
    if _has_open_quote(before) or before.endswith(_ESCAPES):
        return Mention("it stands between quotation marks, or in a string")
    if words.endswith(COLONS):
        is_sentence = _is_meant(*_split_last(words, lines), named) or (is_token and is_glued)
    else:
        is_sentence = words.endswith(_SENTENCE_ENDS) or (is_token and words[-1].isalnum() and is_glued)
        is_sentence = is_sentence and (is_glued or not words.endswith(QUESTION_MARKS))
    if not is_sentence:
        return Mention("the sentence before it goes on")
    return _judge_words(words, lines, named)


def _judge_lines(lines: tuple[str, ...], paragraph: int, indent: int, named: CallWords) -> Mention | None:
    """It stands on a line of its own: the lines before must be a sentence, or there must be none."""
    if not lines or _is_behind_announced(lines, named):
        return None
    line = _strip_decoration(lines[0])
    if match_foreign_line(lines[0]) or _match_rule(line):
        return Mention("the line before it is not a sentence")
    if not _is_meant(*_split_last(line, lines[1:]), named):
        if line.endswith(QUESTION_MARKS) or _match_list_item(lines[0]):
            return Mention("the line before it is a question, or of a list")
        if not line.endswith(_SENTENCE_ENDS) and not (
            len(lines) == 1 and match_interjection(f"{line} ") and not line.endswith(COLONS)
        ):
            return Mention("the line before it is not a sentence")
    elif not (line[-1].isalnum() or line[-1] in _AFTER_ANNOUNCEMENT):
        return Mention("the line before it is not a sentence")
    if any(map(match_foreign_line, takewhile(_is_no_fence, lines[1:paragraph]))):
        return Mention("the lines before it are not sentences")
    outer = next((one for one in lines if _measure_indent(one) < indent), "").rstrip()
    if indent and (outer.endswith("::") or outer.lstrip().startswith("..")):
        return Mention("it is indented as code")
    if _has_open_quote("\n".join(reversed(lines[:3]))):
        return Mention("it stands between quotation marks")
    return _judge_words(line, lines[1:], named)


def _is_no_fence(line: str) -> bool:
    return _match_fence_end(line) is None


def _is_behind_announced(lines: tuple[str, ...], named: CallWords) -> bool:
    """Does it follow a list or a code block, and does the line before that say that the model does it now?"""
    items = sum(1 for _ in takewhile(_match_list_item, lines))
    fence = _match_fence_end(lines[0])
    opening = next((n for n, one in enumerate(lines[1:], 2) if one.lstrip().startswith(fence[1])), 0) if fence else 0
    above = lines[items or opening :]
    if not above or len(above) == len(lines) or (items and is_announcement(last_sentence(lines[0]), named)):
        return False
    # what points to the list or the code block does not point to the call
    line = _find_pointer.sub("that", _find_plan.sub("Let me start:", above[0]))
    return _is_meant(*_split_last(line, above[1:]), named)


_match_fence_end = re.compile(r"[ ]{0,3}(`{3,}|~{3,})[ \t]*$").match
_find_pointer = re.compile(r"\b(?:this|these|the following)\b", re.IGNORECASE)
_find_plan = re.compile(r"^.*\b(?:plan|approach|todo)\b\W*$", re.IGNORECASE)
_AFTER_ANNOUNCEMENT: Final = ".!?…。！？।:：)]`>\"”’'%—–-,;"
_match_rule = re.compile(r"[ \t]*([-.=+_*~#/])\1{3,}[ \t]*\Z").match


def _judge_words(words: str, lines: tuple[str, ...], named: CallWords) -> Mention | None:
    """The last sentence must be of the work that the model does now, or say nothing."""
    if any(map(find_title, lines[:5])):
        return Mention("it is one of several examples")
    *earlier, sentence = list_sentences(words) or [words]
    above = (earlier[-1] if earlier else last_sentence("".join(lines[:1])))[-MAX_SENTENCE:]
    if any(map(match_invitation, (*earlier, *lines[:5]))):
        return Mention("the lines before it tell of what could be")
    if above and (find_quoting(above) or find_telling_above(above)):
        return Mention("the sentence before it is quoted")
    if above and not earlier and (_strip_decoration(above).endswith(COLONS) or _is_name(lines[0])):
        return Mention("the sentence before it is of somebody who is named")
    if not above and find_pronoun(sentence):
        return Mention("nothing before it says what is meant")
    if _is_meant(sentence, _join_above(earlier, lines), named):
        return None
    is_meant_above = bool(above) and _is_meant(*_split_above(earlier, lines), named)
    if match_outlook(f"{sentence} ") and is_meant_above:
        return None
    if not _says_nothing(sentence):
        return Mention("the sentence before it does not say that the model does it now")
    if above and not (_says_nothing(above) or is_meant_above):
        return Mention("the text before it may be about it")
    return None


def _split_last(words: str, lines: tuple[str, ...]) -> tuple[str, str]:
    """The last sentence, and the text before it."""
    *earlier, sentence = list_sentences(words) or [words]
    return sentence, _join_above(earlier, lines)


def _split_above(earlier: list[str], lines: tuple[str, ...]) -> tuple[str, str]:
    """The sentence before the last one, and the text before it."""
    return _split_last(" ".join(earlier), lines) if earlier else _split_last(lines[0], lines[1:])


def _join_above(earlier: list[str], lines: tuple[str, ...]) -> str:
    return "\n".join([*reversed(lines), *earlier])


def _is_meant(sentence: str, above: str, named: CallWords) -> bool:
    return is_announcement(sentence, named) or is_statement(sentence, above, named)


def _is_name(line: str) -> bool:
    return match_name(line) is not None and not _says_nothing(line) and not is_announcement(line)


def _says_nothing(sentence: str) -> bool:
    """Is it a few words that go with any call, or the state of the work?"""
    words = f"{_find_tags.sub('', sentence).strip()} "
    state = match_state(words)
    if state:
        return state["wanted"] is None or not names_text(state["wanted"], NO_WORDS)
    return any(match(words) for match in (match_interjection, match_filler))


def _measure_indent(line: str) -> int:
    expanded = line.expandtabs(_INDENTED)
    return len(expanded) - len(expanded.lstrip())


def _has_open_quote(text: str) -> bool:
    """Is a quotation mark open at the end?"""
    text = text.rstrip()
    if text.endswith(("'", '"', "`", *_OPENING_QUOTES)) and (len(text) == 1 or not text[-2].isalnum()):
        return True
    for opening, closings in (
        ("«", "»"),
        ("„", '“”"'),
        ("‹", "›"),
        ("「", "」"),
        ("『", "』"),
        ("《", "》"),
        ("»", "«"),
    ):
        at = text.rfind(opening)
        is_closed = any(closing in text[at + 1 :] for closing in closings) or (opening == "»" and "«" in text[:at])
        if at >= 0 and not is_closed:
            return True
    at = text.rfind("“")
    if at >= 0 and "”" not in text[at:] and "„" not in text[:at] and '"' not in text[at:]:
        return True
    return len(re.findall(r'(?<![\w"\\])"(?=\S)|(?<=\s)"(?=\s*$)', text)) > len(
        re.findall(r'(?<=[^\s"\\])"(?!\w)', text)
    )


# --- behind -----------------------------------------------------------------------------------------------------------


def is_joint(text: str) -> bool:
    """Can this stand between two calls, and say nothing?"""
    return _match_joint(text) is not None


def find_mention_behind(candidate: Candidate, behind: str, *, has_next: bool) -> Mention | None:
    """Does what stands behind a frame say that it is a mention? `has_next`: then the next frame comes."""
    behind = behind[:MAX_BEHIND]
    if candidate.is_required:
        return Mention("the text behind it refuses it") if REFUSALS.search(behind) else None
    line, newline, _ = behind.partition("\n")
    if has_next and not newline and _match_joint(line):
        return None
    words = line.strip()
    if words and not _is_aside(candidate, line):
        return Mention("the sentence goes on behind it")
    text = behind.strip()
    is_other_call = not candidate.place.before.strip() and _match_other_call(behind)
    if not text or is_other_call or (has_next and _is_meant(*_split_last(text, ()), NO_WORDS)):
        return None
    if _is_remark(text) or all(map(_is_remark, list_sentences(text) or [text])):
        return None
    return Mention("text follows it")


def _is_remark(sentence: str) -> bool:
    return any(match(f"{sentence.strip()} ") for match in (match_remark, match_filler, match_outlook))


def _is_aside(candidate: Candidate, line: str) -> bool:
    """Is what follows a frame on its line a sentence of its own?"""
    words, before = line.strip(), candidate.place.before
    is_sentence = words[0].isupper() or (words[0].isalpha() and not words[0].islower())
    if not before.strip():
        return is_sentence or words[0] in "<["
    is_glued = before[-1].isascii() and before[-1].isalnum()
    return candidate.is_token and (is_glued or (before.rstrip().endswith(_SENTENCE_ENDS) and is_sentence))


# --- marks that are no calls ------------------------------------------------------------------------------------------


def is_mark_talked_about(before: str, after: str, is_end: bool) -> bool | None:
    """Is a mark a word of a sentence, as in "the token </s> ends it"? Then it is no mark. `before` and `after` are a
    few characters around it. None: more text must come to tell."""
    line = before.rpartition("\n")[2]
    words = line.rstrip()
    if not words:
        return _is_mark_named(before, after, is_end)
    if line == words and words[-1] not in _BEFORE_SHOWN:
        return False
    if not words.endswith(_SENTENCE_ENDS):
        return True
    if not after and not is_end:
        return None
    return after[:1] in (" ", "\t") or after[:1] in tuple(_PUNCTUATION)


def _is_mark_named(before: str, after: str, is_end: bool) -> bool | None:
    """The mark begins its line: is it introduced, as in "it ends with:", or the subject of a sentence?"""
    if before.rstrip().endswith(COLONS):
        return True
    found = _match_verb(after)
    if found:
        return True
    return None if not is_end and _match_part_of_verb(after) else False


_BEFORE_SHOWN: Final = ":=([{\"'`«„“‹「『"
_PUNCTUATION: Final = ".,;:!?)]}\"'”»`"
_match_verb = re.compile(
    r" (?:is|are|was|were|tags?|tokens?|marks?|means?|opens?|begins?|starts?|ends?|closes?)\b(?!\Z)"
).match
_match_part_of_verb = re.compile(r"(?: [a-z]{0,8})?\Z").match
