"""Judges whether the sentence before a frame says that the model makes the call now.

A sentence that says what the model itself does now announces the call, whatever it is about, unless something in it
says that the frame is shown: a verb of telling, a noun for a text, a word that points, a condition, a refusal, somebody
else who acts, another time. `statements` knows the sentences that do not say it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import pairwise
from typing import Final

from msgspec import Struct

from toolwire.tool_formats.announcement_words import (
    LINKS,
    MAYBE_TEXT_NOUNS,
    TEXT_NOUNS,
    drop_compounds,
    find_asked,
    find_finite,
    find_other_time,
    find_own_clauses,
    find_pointing,
    find_reason,
    find_said,
    find_to_you,
    match_telling,
)
from toolwire.tool_formats.mention_words import (
    CONDITIONS,
    OTHER_ANNOUNCEMENTS,
    OTHER_CONDITIONS,
    OTHER_UNMEANT,
    REFUSALS,
    STEPS,
    match_reported,
)

MAX_SENTENCE: Final = 400
"""Characters of a sentence that can announce a call."""
QUESTION_MARKS: Final = tuple("?？؟")
COLONS: Final = tuple(":：")
has_word = re.compile(r"\w").search


class CallWords(Struct, frozen=True):
    """The words of a call."""

    tool: str
    stems: frozenset[str]
    """How the words of its name and its values begin, and those that say what the tool is for."""


NO_WORDS: Final = CallWords("", frozenset())


def list_words(name: str, arguments: str, description: str) -> CallWords:
    """The words of a call that the sentence before it may name."""
    values = _find_keys.sub(" ", arguments[:_MAX_VALUES])
    purpose = description[:_MAX_PURPOSE].partition(".")[0]
    return CallWords(name.lower(), frozenset(_list_stems(f"{name} {values} {purpose}")))


def _list_stems(text: str) -> list[str]:
    words = (one.lower() for one in _find_parts(text))
    return [one[:_STEM] for one in words if one not in _ANY_CALL and to_singular(one) not in TEXT_NOUNS]


def is_announcement(sentence: str, named: CallWords = NO_WORDS) -> bool:
    """Does it say that the model works now? `named`: the words of the call."""
    if len(sentence) > MAX_SENTENCE:
        return False
    starts = [*find_own_clauses(sentence)]
    if any(_is_own_work(sentence, start, named) for start in starts):
        return True
    if STEPS.search(sentence):
        return not (CONDITIONS.search(sentence) or REFUSALS.search(sentence))
    return _is_other_announcement(sentence)


def _is_own_work(sentence: str, start: re.Match[str], named: CallWords) -> bool:
    before, clause = sentence[: start.start()], sentence[start.end() :]
    if before.count('"') % 2 or match_reported(sentence, 0, start.start()):
        return False
    if find_to_you(clause) or find_said(clause) or CONDITIONS.search(sentence):
        return False
    is_of_tool = shares_word(clause.partition(" ")[0], named)
    if match_telling(clause) and not is_of_tool:
        return False
    if start["progress"] is not None and (
        find_finite(_cut(clause, find_asked))
        or (clause.rstrip().endswith(COLONS) and not (shares_word(clause, named) or _match_object(clause)))
    ):
        return False
    work = _cut(clause, find_reason)
    surely = _cut(work, find_asked)
    if find_other_time(surely) and not shares_word(clause, named):
        return False
    return not (find_pointing(surely) or (names_text(work, named) and not is_of_tool))


def is_shown(sentence: str, named: CallWords) -> bool:
    """Does it point to a text, or say that something is not done, or not now?"""
    kinds = (find_pointing, _find_last_pointer, REFUSALS.search, CONDITIONS.search, OTHER_UNMEANT.search)
    return any(find(sentence) for find in kinds) or names_text(f" {sentence}", named)


def names_text(clause: str, named: CallWords) -> bool:
    """Is it about a text, or about the tool itself? The first word is its verb."""
    if "_" in named.tool and named.tool in clause.lower():
        return not _match_use(clause)
    clause = drop_compounds(clause)
    return has_head(clause, TEXT_NOUNS) or has_head(clause, MAYBE_TEXT_NOUNS, named.stems)


def has_head(clause: str, nouns: frozenset[str], but: frozenset[str] = frozenset()) -> bool:
    """Is one of the nouns the last word of a phrase? Before another noun it says what kind of thing that is."""
    words = _find_words(clause.lower().partition(" ")[2])
    return any(
        noun in nouns and noun[:_STEM] not in but
        for word, behind in pairwise([*words, "."])
        if not behind[0].isalpha() or behind in LINKS or behind.endswith(("ed", "ing"))
        if (noun := to_singular(word))
    )


def shares_word(text: str, named: CallWords) -> bool:
    """Does it name something that is in the call?"""
    return any(one in named.stems for one in _list_stems(text))


def to_singular(word: str) -> str:
    for ending, instead in (("'s", ""), ("’s", ""), ("ies", "y"), ("sses", "ss"), ("ches", "ch"), ("s", "")):
        if word.endswith(ending) and len(word) > len(ending) + 2 and not word.endswith(("ss", "is", "us", "hermes")):
            return word.removesuffix(ending) + instead
    return word


def _is_other_announcement(sentence: str) -> bool:
    """The same in other languages."""
    found = OTHER_ANNOUNCEMENTS.search(sentence)
    if found is None or sentence.rstrip().endswith(QUESTION_MARKS):
        return False
    if any(one in sentence[: found.start()] for one in COLONS):
        return False
    if sentence[: found.start()].count('"') % 2:
        return False
    clause = sentence[max(0, found.start() - _BEFORE_VERB) :]
    return not (REFUSALS.search(clause) or OTHER_UNMEANT.search(sentence) or OTHER_CONDITIONS.search(sentence))


def _cut(text: str, find: Callable[[str], re.Match[str] | None]) -> str:
    """What stands before it."""
    found = find(text)
    return text[: found.start()] if found else text


_ANY_CALL: Final = frozenset(
    """look find search get read check run open list make write edit update create show send set use call file tool
    with from that this into your what when then they have only just more some code name text data and for the are
    not""".split()
)
"""Words that any call may share with any sentence."""
_STEM: Final = 4
"""Letters at the beginning of a word that it has in all its forms."""
_MAX_VALUES: Final = 400
"""Characters of the arguments that are looked at. A long text has all words."""
_MAX_PURPOSE: Final = 160
_BEFORE_VERB: Final = 12
"""Characters before the verb in which a "not" may stand."""
_match_object = re.compile(
    r"\S+ (?:the|an?|my|our|your|all|each|both|what|how|which|whether|if|with|for)\b|\w+(?: (?:it|them))?(?: now)?:$"
    r"|(?:\S+ ){3}"
).match
_find_last_pointer = re.compile(r"\b(?:this|these)\W*\Z", re.IGNORECASE).search
_match_use = re.compile(r"(?:us|call|invok|run|try)(?:e|ing)?\b", re.IGNORECASE).match
_find_keys = re.compile(r"\"\w+\"\s*:")
_find_words = re.compile(r"[\w'’-]+|[,;:：()—–.!?]").findall
_find_parts = re.compile(r"[A-Z]?[a-z]{2,}|[^\W\d_]{3,}|\d{2,}").findall
_find_sentences = re.compile(
    r"(?<=[.!?…])(?<!\bDr\.)(?<!\bMr\.)(?<!\bMrs\.)(?<!\be\.g\.)(?<!\bi\.e\.)"
    r"(?<!\bam \d\.)(?<!\bam \d\d\.)[\"')\]*_]*\s+|(?<=[。！？])"
).split


def list_sentences(text: str) -> list[str]:
    return [one for one in _find_sentences(text.strip()) if one and has_word(one)]


def last_sentence(text: str) -> str:
    return (list_sentences(text) or [text])[-1]
