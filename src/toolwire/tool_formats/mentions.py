"""Judges whether the frame of a call is meant, or whether the text only mentions it.

An invented call can cost a disk, a missed one costs a turn. So a frame is a call only where nothing says that it is a
mention: not the markup around it, not the words before and behind it on its line, not the lines around it. When in
doubt it is text. What models write before real calls was read from the test suites of vLLM, SGLang and llama.cpp
(November 2026): nothing, or a sentence that says what they do next.
"""

from __future__ import annotations

import re
from itertools import takewhile
from typing import Final

from msgspec import Struct

from toolwire.tool_formats.mention_words import (
    ABOUT,
    ANNOUNCEMENTS,
    APOLOGIES,
    CONDITIONS,
    OTHER_ANNOUNCEMENTS,
    OTHER_UNMEANT,
    PERMISSIONS,
    REFUSALS,
    REPORTS,
    SHOWING,
    STATUS,
    STEPS,
    SUBJECTS,
    UNMEANT,
    find_example_label,
    find_title,
    match_foreign_line,
    match_interjection,
    match_reported,
    match_telling,
    match_work,
)
from toolwire.tool_formats.quoted_text import Place

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


_match_list_item = re.compile(
    r"[ \t]*(?:[-*+•‣◦·–—]|\(?(?:\d{1,3}|[a-z]|[ivx]{1,4})[.):])(?:[ \t]+|$)", re.IGNORECASE
).match
_LIST_MARK: Final = re.compile(r"[ \t]*(?:[-*+•‣◦·–—]|\(?(?:\d{1,3}|[a-z]|[ivx]{1,4})[.):])[ \t]*", re.IGNORECASE)
_SENTENCE_ENDS: Final = tuple(".!?…。！？")
_QUESTION_MARKS: Final = tuple("?？؟")
_COLONS: Final = tuple(":：")
_find_abbreviation = re.compile(
    r"(?:^|[\s(])(?:cf|viz|i\.e|e\.g|p\.\s?s|ps|n\.b|nb|ex|resp|approx|ca|fig|figs|eq|sec|vs|al|ibid|z\.\s?b"
    r"|d\.\s?h|bzw|bspw|vgl"
    r"|p|pp|ed|vol|ch|art|par|dr|mr|mrs|st|e\.x|np|t\.ex|bv|m\.a\.w)\.$",
    re.IGNORECASE,
).search
_DECORATION: Final = re.compile(r"[ \t\r*_~\u2190-\u21ff\u2600-\u27bf\ufe0f\U0001f000-\U0001faff]+\Z")
"""Blanks, emphasis and emoji."""
_CLOSING_TAGS: Final = re.compile(r"(?:</(?:b|i|u|em|strong|span|p|div)>\s*)+\Z")
_find_sentences = re.compile(r"(?<=[.!?…])[\"')\]*_]*\s+|(?<=[。！？])").split
_OPENING_QUOTES: Final = "«„“‹「『《〈【〝‚‘"
_CLOSING_QUOTES: Final = "»”“›」』》〉】〞’"
_has_word = re.compile(r"\w").search
_match_joint = re.compile(r"\s*(?:,|;|\+|&|and|then|and then|und|et|y|e|и|和)?\s*").fullmatch
"""What stands between two calls, and says nothing."""


def _strip_decoration(text: str) -> str:
    return _DECORATION.sub("", _CLOSING_TAGS.sub("", text))


def _find_announcement(sentence: str) -> str:
    """The last clause that says what is done next, to the end of the sentence; "" if there is none. What stands before
    it does not count: "That did not work, so I'll try again"."""
    found = [one.start() for one in ANNOUNCEMENTS.finditer(sentence) if not match_reported(sentence, 0, one.start())]
    return sentence[found[-1] :].lstrip(" ,;—–") if found else ""


def _is_announcement(sentence: str) -> bool:
    """Does it say that work is done next?"""
    clause = _find_announcement(sentence)
    is_open = not sentence.rstrip().endswith(_COLONS) and not match_telling(clause)
    if clause and (is_open or match_work(clause)):
        return not UNMEANT.search(clause) and not CONDITIONS.search(sentence)
    if STEPS.search(sentence):
        return not any(kind.search(sentence) for kind in (UNMEANT, CONDITIONS, REFUSALS, SHOWING, REPORTS))
    if clause or not OTHER_ANNOUNCEMENTS.search(sentence) or sentence.rstrip().endswith(_QUESTION_MARKS):
        return False
    return not any(kind.search(sentence) for kind in (REFUSALS, SHOWING, REPORTS, OTHER_UNMEANT))


def _last_sentence(text: str) -> str:
    return next((one for one in reversed(_find_sentences(text.strip())) if one and _has_word(one)), text)


# --- before -----------------------------------------------------------------------------------------------------------


def find_mention_before(candidate: Candidate) -> Mention | None:
    """Does what stands before a frame say that it is a mention?"""
    place = candidate.place
    if candidate.is_required:
        words = place.before if place.before.strip() else "".join(place.lines[:1])
        return Mention("the text before it refuses it") if REFUSALS.search(_last_sentence(words)) else None
    if place.is_shown:
        return Mention("it stands in text that is shown")
    if place.is_transcript:
        return Mention("it stands in a conversation that is shown")
    before = _match_call_ends.sub("", place.before)
    left_over = sum(1 for _ in takewhile(_match_empty_line, place.lines))
    lines, paragraph = place.lines[left_over:], place.paragraph - left_over
    if before.strip():
        if candidate.follows_call and candidate.is_token:
            return _judge_words(before, lines)
        return _judge_line(before, lines, candidate.is_token)
    indent = len(before.expandtabs(_INDENTED))
    if indent >= _INDENTED and not (candidate.is_token and lines and _is_announcement(_last_sentence(lines[0]))):
        return Mention("it is indented as code")
    return _judge_lines(lines, paragraph, indent)


_match_call_ends = re.compile(r"^\s*(?:</[\w:]*(?:tool_calls?|function\w*|invoke)>\s*)+")
_match_empty_line = re.compile(
    r"\s*(?:</?[\w:]*(?:tool_calls?|function\w*|invoke|parameter)\b|(?:---|\*\*\*|___)[ \t]*$)"
).match
"""What is left of a call that could not be read, and a rule: they say nothing about the next call."""
_match_other_call = re.compile(
    r"\s*(?:<[|｜]|</?[\w:]*(?:tool_calls?|function\w*|invoke|parameter)\b|\[TOOL_CALLS\])"
).match


def _judge_line(before: str, lines: tuple[str, ...], is_token: bool) -> Mention | None:
    """Words stand before it on its line: they must be a sentence that ends there."""
    words = _strip_decoration(before)
    is_glued = before[-1:] not in (" ", "\t")
    if not words or not _has_word(words) or _LIST_MARK.fullmatch(before) or match_foreign_line(before):
        return Mention("what stands before it is not a sentence")
    if _has_open_quote(before):
        return Mention("it stands between quotation marks")
    if words.endswith(_COLONS):
        is_sentence = _is_announcement(_last_sentence(words)) or (is_token and is_glued)
    else:
        is_sentence = words.endswith(_SENTENCE_ENDS) and not _find_abbreviation(words)
        is_sentence = is_sentence or (is_token and words[-1].isalnum() and (is_glued or _is_announcement(words)))
        is_sentence = is_sentence and (is_glued or not words.endswith(_QUESTION_MARKS))
    if not is_sentence:
        return Mention("the sentence before it goes on")
    return _judge_words(words, lines, is_glued=is_glued)


def _judge_lines(lines: tuple[str, ...], paragraph: int, indent: int) -> Mention | None:
    """It stands on a line of its own: the lines before must be a sentence, or there must be none."""
    if not lines or _is_behind_announced(lines):
        return None
    line = _strip_decoration(lines[0])
    if match_foreign_line(lines[0]) or _match_rule(line):
        return Mention("the line before it is not a sentence")
    if not _is_announcement(_last_sentence(line)):
        if line.endswith(_QUESTION_MARKS) or _match_list_item(lines[0]):
            return Mention("the line before it is a question, or of a list")
        if not line.endswith(_SENTENCE_ENDS) and not (len(lines) == 1 and match_interjection(f"{line} ")):
            return Mention("the line before it is not a sentence")
        if any(map(match_foreign_line, lines[1:paragraph])):
            return Mention("the lines before it are not sentences")
    elif not (line[-1].isalnum() or line[-1] in _AFTER_ANNOUNCEMENT):
        return Mention("the line before it is not a sentence")
    outer = next((one for one in lines if _measure_indent(one) < indent), "").rstrip()
    if indent and (outer.endswith("::") or outer.lstrip().startswith("..")):
        return Mention("it is indented as code")
    if _has_open_quote("\n".join(reversed(lines[:3]))):
        return Mention("it stands between quotation marks")
    return _judge_words(line, lines[1:])


def _is_behind_announced(lines: tuple[str, ...]) -> bool:
    """Does it follow a list or a code block, and does the line before that say that the model does it now?"""
    items = sum(1 for _ in takewhile(_match_list_item, lines))
    fence = _match_fence_end(lines[0])
    opening = next((n for n, one in enumerate(lines[1:], 2) if one.lstrip().startswith(fence[1])), 0) if fence else 0
    above = lines[items or opening :]
    if not above or len(above) == len(lines) or (items and _is_announcement(_last_sentence(lines[0]))):
        return False
    # what points to the list or the code block does not point to the call
    line = _find_pointer.sub("the", _find_plan.sub("Let me start:", above[0]))
    return _is_announcement(_last_sentence(line))


_match_fence_end = re.compile(r"[ ]{0,3}(`{3,}|~{3,})[ \t]*$").match
_find_pointer = re.compile(r"\b(?:this|these|the following)\b", re.IGNORECASE)
_find_plan = re.compile(r"^.*\b(?:plan|approach|todo)\b\W*$", re.IGNORECASE)
_AFTER_ANNOUNCEMENT: Final = ".!?…。！？:：)]`>\"”’'%—–-,;"
_match_rule = re.compile(r"[ \t]*([-.=+_*~#/])\1{3,}[ \t]*\Z").match


def _judge_words(words: str, lines: tuple[str, ...], *, is_glued: bool = False) -> Mention | None:
    """What the last sentence says, and the sentences before it. `is_glued`: no blank stands behind it, as in no text
    that is about a call."""
    sentence = _last_sentence(words)
    if any(_is_title(line) for line in lines[:5]):
        return Mention("it is one of several examples")
    if _is_announcement(sentence):
        return None
    if _find_announcement(sentence):
        return Mention("the sentence before it announces that something is shown, or not done")
    if _is_title(words):
        return Mention("it is one of several examples")
    return _judge_statement(words, lines, is_glued)


def _judge_statement(words: str, lines: tuple[str, ...], is_glued: bool) -> Mention | None:
    """The last sentence announces nothing: it must be about the work, or say nothing."""
    sentence = _last_sentence(words)
    if any(kind.search(words) for kind in (REFUSALS, APOLOGIES)):
        return Mention("the text before it refuses it")
    if any(kind.search(sentence) for kind in (SHOWING, REPORTS, PERMISSIONS, SUBJECTS)):
        return Mention("the sentence before it talks about it")
    if any(kind.search(line) for line in lines[:2] for kind in (SHOWING, SUBJECTS)):
        return Mention("the text before it is about calls")
    if is_glued or match_interjection(f"{sentence} "):
        return Mention("what it says is not known") if _is_unknown_language(sentence) else None
    is_work = not ABOUT.search(sentence) and (STATUS.search(sentence) or len(_find_words(words)) <= _MAX_UNKNOWN)
    if is_work and not _is_unknown_language(sentence):
        return None
    return Mention("the sentence before it says nothing of the work")


def _is_title(line: str) -> bool:
    """Does a line say that what follows is one of several examples, the output of something, or the like?"""
    label = find_example_label(line)
    is_whole = label is not None and not _has_word(line[label.end() :])
    return is_whole or find_title(line) is not None or _match_example(line) is not None


_match_example = re.compile(
    r"\W*(?:examples?|samples?|test cases?|scenario|few-shot)\b[ \t]*#?\w{0,3}[ \t]*[:：]", re.IGNORECASE
).match


_find_words = re.compile(r"[^\W\d_]+").findall
_ENGLISH: Final = frozenset(
    "a about after all also am an and are as at be because before but by can content could data do does done extra"
    " first for found from get good got great had has have he hello here hi how i if in into is it its just left me"
    " more my need next no not now of ok okay on one or our out please right see she so some still sure text thanks"
    " that the their then there these they thing this time to two up us was we well what when where which who will"
    " with wrong yes you your".split()
)
"""Words of which every English sentence of some length has one."""
_MAX_UNKNOWN: Final = 2


def _is_unknown_language(sentence: str) -> bool:
    """Is it a sentence of a language whose words are not known here? Two words are none."""
    words = [word.lower() for word in _find_words(sentence)]
    has_letters = any(not word.isascii() and len(word) > _MAX_UNKNOWN for word in words)
    return (len(words) > _MAX_UNKNOWN or has_letters) and _ENGLISH.isdisjoint(words)


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
    line, newline, rest = behind.partition("\n")
    if has_next and not newline and _match_joint(line):
        return None
    words = line.strip()
    if words and not _is_aside(candidate, line):
        return Mention("the sentence goes on behind it")
    paragraph = re.split(r"\n[ \t]*\n", f"{words}\n{rest}".strip(), maxsplit=1)[0]
    is_other_call = not candidate.place.before.strip() and _match_other_call(behind)
    if not paragraph or is_other_call or (has_next and _is_announcement(_last_sentence(paragraph))):
        return None
    is_remark = len(_find_words(behind)) <= _MAX_REMARK and not behind.lstrip(" \t\r").startswith("\n\n")
    is_remark = is_remark or match_interjection(f"{behind} ") is not None
    if not (has_next or is_remark or _find_offer(behind)):
        return Mention("text follows it")
    return _judge_paragraph(paragraph, candidate.is_token, is_new_line=not words)


def _judge_paragraph(paragraph: str, is_token: bool, is_new_line: bool) -> Mention | None:
    """What the text behind a frame says."""
    first = paragraph.partition("\n")[0] if is_new_line else ""
    is_letter = paragraph[0].isalnum() or paragraph[0] in "<[(*" or _DECORATION.match(paragraph[0])
    if not is_letter or not _has_word(paragraph) or _match_rule(first):
        return Mention("the line behind it is not a sentence")
    if first and (match_foreign_line(first) or _match_list_item(first) or find_example_label(first)):
        return Mention("the line behind it is not a sentence")
    is_continued = is_new_line and paragraph[0].islower() and (not is_token or _match_continuation(paragraph))
    if is_continued or _match_reference(paragraph) or APOLOGIES.search(paragraph) or find_title(first):
        return Mention("the text behind it talks about it")
    kinds = (REFUSALS, SHOWING, REPORTS, PERMISSIONS, SUBJECTS, ABOUT)
    if any(kind.search(paragraph) for kind in kinds) or _is_unknown_language(paragraph):
        return Mention("the text behind it talks about it")
    if _find_title_end(paragraph) or (paragraph.endswith(_QUESTION_MARKS) and not _find_offer(paragraph)):
        return Mention("the text behind it talks about it")
    return None


_find_title_end = re.compile(r"[:：][ \t*_]*$", re.MULTILINE).search
_find_offer = re.compile(
    r"\b(?:would you like to know|anything else|else can i|can i help|help you|here (?:is|are) the results?"
    r"|(?:i|we)(?:['’]ll| will|['’]m)|let me)\b",
    re.IGNORECASE,
).search
"""What a model says or asks behind a call: what it will do with the result."""
_MAX_REMARK: Final = 3
"""So many words straight behind a call are a remark. Models stop after a call: any other text is about it."""


_match_reference = re.compile(
    r"\W*(?:this|that|these|those|the above|above|which|where|replace|change|adapt|adjust|substitute|copy|paste"
    r"|try|note|remember|make sure|ensure"
    r"|notice|observe|insert|edit|fill|type|enter|simply|just|say the|tell me|let me know (?:if|whether|when"
    r"|and)? ?(?:i|you want|that|this|it|to)|as you can see|as (?:shown|seen)|dies|das (?:ist|war"
    r"|würde)|ceci|cela|c['’]est|esto|eso|questo|это|这|這|これ|それ|이것)\b",
    re.IGNORECASE,
).match


_match_continuation = re.compile(
    r"(?:is|was|are|were|would|will|where|which|and|or|but|means?|to|in|with|for|by|as|of|that|if|should|can|could"
    r"|does|did|has|had"
    r"|vs|versus|nor|not|then|when|while|because|so|instead|whose|here|there)\b"
).match


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
    if before.rstrip().endswith(_COLONS):
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
