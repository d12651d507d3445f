"""Judges whether a sentence says that the model works now: then the call behind it is meant.

Such a sentence is known by what it consists of, not by what it lacks: the model itself, a verb of work, and things. A
sentence of words that are not known may announce a text that is shown, so it leaves the frame text. One thing that is
known is enough, and behind a report of what was found "it" is. With a word of the call, any verb and any thing do that
are not for texts.
"""

from __future__ import annotations

import re
from typing import Final

from msgspec import Struct

from toolwire.tool_formats.mention_words import (
    ANNOUNCEMENTS,
    CONDITIONS,
    OTHER_ANNOUNCEMENTS,
    OTHER_CONDITIONS,
    OTHER_UNMEANT,
    REFUSALS,
    STEPS,
    THINGS,
    UNMEANT,
    drop_other_loose,
    drop_purpose,
    find_other_run,
    find_other_thing,
    find_other_work,
    match_reported,
    match_work,
)
from toolwire.tool_formats.shown_words import (
    EVERYDAY,
    SHOWN,
    TECHNICAL,
    drop_compounds,
    find_finite,
    find_pointed,
    find_shown,
    find_subjects,
    find_unsure,
    match_any_work,
    match_open_work,
    match_progress,
    match_subject,
    match_telling,
    match_work_on_it,
)

MAX_SENTENCE: Final = 400
"""Characters of a sentence that can announce a call."""
QUESTION_MARKS: Final = tuple("?？؟")
COLONS: Final = tuple(":：")
_find_sentences = re.compile(r"(?<=[.!?…])[\"')\]*_]*\s+|(?<=[。！？])").split
has_word = re.compile(r"\w").search


class CallWords(Struct, frozen=True):
    """The words of a call."""

    tool: str
    known: frozenset[str]
    """Of the tool's name, and of the values."""
    stems: frozenset[str]
    """How these begin, and those that say what the tool is for."""


NO_WORDS: Final = CallWords("", frozenset(), frozenset())


def _find_announcement(sentence: str) -> str:
    """The last clause that says what is done next, to the end of the sentence; "" if there is none. What stands before
    it does not count: "That did not work, so I'll try again"."""
    found = [one.start() for one in ANNOUNCEMENTS.finditer(sentence) if not match_reported(sentence, 0, one.start())]
    return sentence[found[-1] :].lstrip(" ,;—–") if found else ""


def is_announcement(sentence: str, named: CallWords = NO_WORDS) -> bool:
    """Does it say that work is done next? `named`: the words of the call."""
    if len(sentence) > MAX_SENTENCE:
        return False
    if is_clear(sentence, named):
        return not CONDITIONS.search(sentence)
    clause = _find_announcement(sentence)
    work = match_work(clause)
    if work:
        is_named = names_things(
            clause[work.end() :], named, is_action=work["action"] is not None, is_alone=work["alone"] is not None
        )
        if is_named and not UNMEANT.search(clause):
            return not CONDITIONS.search(sentence)
    if _is_named_work(clause, named) or any(
        _is_about_call(sentence[one.start() :], named)
        for one in find_subjects(sentence)
        if not match_reported(sentence, 0, one.start())
    ):
        return not CONDITIONS.search(sentence)
    if STEPS.search(sentence):
        return not any(kind.search(sentence) for kind in (UNMEANT, CONDITIONS, REFUSALS))
    if clause or sentence.rstrip().endswith(QUESTION_MARKS):
        return False
    return _is_other_announcement(sentence, named)


def _is_named_work(clause: str, named: CallWords) -> bool:
    """Does the model need what the call is about?"""
    need = _match_need(clause)
    return (
        need is not None
        and _shares_word(clause, named)
        and _is_object(clause[need.end() :], is_action=True, is_open=True)
    )


def _is_about_call(clause: str, named: CallWords) -> bool:
    """Does the model say that it works now, in words of the call? Then its verb and its things need not be known, as
    long as none of them is for a text."""
    subject = match_subject(clause)
    if subject is None:
        return False
    body = clause[subject.end() :]
    work = match_work(body)
    is_named = _shares_word(body[work.end() :] if work else body, named) or body.partition(" ")[0] == named.tool
    if not is_named or match_telling(body) or find_pointed(body):
        return False
    if UNMEANT.search(body) or REFUSALS.search(_cut_asked(body)):
        return False
    return TEXTS.isdisjoint(map(to_singular, find_words(drop_compounds(body).lower())))


def is_clear(sentence: str, named: CallWords = NO_WORDS, has_report: bool = False) -> bool:
    """Does it say that the model itself works now on something, and nothing of words?
    `named`: the words of the call. `has_report`: what was found stands before it, so "it" is enough."""
    if len(sentence) > MAX_SENTENCE:
        return False
    found = [one.start() for one in find_subjects(sentence) if not match_reported(sentence, 0, one.start())]
    return any(_is_clear_clause(sentence[at:], named, has_report=has_report) for at in found[-3:]) or (
        not found and _is_progress(sentence)
    )


def _is_progress(sentence: str) -> bool:
    """Does it say what is being done, without who does it: "Checking the port"?"""
    start = match_progress(sentence)
    clause = drop_compounds(find_code.sub(" `file` ", sentence[start.end() :])) if start else ""
    work = match_work(clause)
    if work is None or work["action"] is None or UNMEANT.search(clause) or CONDITIONS.search(clause):
        return False
    return _is_object(clause[work.end() :], is_action=True) and not find_finite(_cut_asked(clause))


def _is_clear_clause(clause: str, named: CallWords, *, has_report: bool) -> bool:
    clause = drop_compounds(find_code.sub(" `file` ", clause))
    subject = match_subject(clause)
    if subject is None or any(kind.search(clause) for kind in (UNMEANT, CONDITIONS)):
        return False
    clause = clause[subject.end() :]
    work = match_work(clause)
    is_action = work is not None and work["action"] is not None
    if work is not None and (is_action or _match_doing(work["verb"])):
        rest = clause[work.end() :]
    elif match_any_work(clause) or (has_report and match_work_on_it(clause)):
        rest = clause.partition(" ")[2]
    else:
        return False
    is_open = match_open_work(clause) is not None and _shares_word(rest, named)
    may_ask = work is not None and work["alone"] is not None
    return _is_object(
        rest, is_action=work is None or is_action, needs_noun=not has_report, is_open=is_open, may_ask=may_ask
    )


def _cut_asked(rest: str) -> str:
    """Without the question that the work answers: what is not, or may be, is part of it."""
    asked = _find_asked(rest)
    return rest[: asked.start()] if asked else rest


def _is_object(
    rest: str, *, is_action: bool, needs_noun: bool = True, is_open: bool = False, may_ask: bool = False
) -> bool:
    """Can it be what is worked on, now? `rest`: what stands behind it. `is_open`: behind a verb for any
    thing. `may_ask`: behind one for questions, such as "see what fails"."""
    surely = _cut_asked(rest)
    if find_shown(rest) or find_unsure(surely) or REFUSALS.search(surely):
        return False
    words = [to_singular(one) for one in find_words(rest.lower())]
    if not SHOWN.isdisjoint(words) or (not is_action and any(map(_is_of_call, words))):
        return False
    if not needs_noun and all(one in _EMPTY for one in words):
        return True
    if may_ask and not surely.strip() and any(one in THINGS or one in TECHNICAL for one in words):
        return True
    return names_things(rest, _WORK_WORDS, is_action=is_action, is_open=is_open)


def names_things(
    rest: str, named: CallWords, *, is_action: bool, is_alone: bool = False, is_open: bool = False
) -> bool:
    """Are the objects of a verb things, and no words? `rest`: what stands behind the verb. The last word of every
    phrase in it must be known; behind a verb of work that of one phrase, if the others have no word for a text."""
    rest = _find_ordinal.sub("it", rest)
    rest = _find_portion.sub("file", find_code.sub(" file ", _find_beneficiary.sub(r"\1", drop_purpose(rest))))
    phrase: list[str] = []
    has_pronoun = has_thing = is_part = False
    for token in [*find_words(rest), "."]:
        word = token.lower()
        if word in _DOUBTS or (word in _CONDITIONS and (phrase or has_thing or has_pronoun)):
            return False
        if word in _LINKS or not word[0].isalnum():
            is_known = not phrase or (_is_known(phrase, named) and (is_action or not _is_of_call(phrase[-1])))
            if not is_known and not (_is_harmless(phrase) and (is_action or word == "of")):
                return False
            is_known = is_known or (is_open and _is_harmless(phrase))
            has_thing = has_thing or (is_known and bool(phrase))
            is_part = not is_known or (is_part and not phrase)
            phrase = []
        elif phrase or not (word in _LOOSE or word.endswith("ly")):
            phrase.append(token)
        has_pronoun = has_pronoun or word in _PRONOUNS
    return not is_part and (has_thing or (is_action and (has_pronoun or is_alone)))


def _is_harmless(phrase: list[str]) -> bool:
    """Can it be no text?"""
    words = [to_singular(one.lower()) for one in phrase]
    return words[-1] != "one" and SHOWN.isdisjoint(words)


def _shares_word(rest: str, named: CallWords) -> bool:
    """Does it name something that is in the call, but for the tool itself?"""
    words = find_words(rest.lower())
    return any(len(one) >= _STEM and one[:_STEM] in named.stems and one != named.tool for one in words)


def _is_of_call(noun: str) -> bool:
    """Can it be what a call consists of? Then to write or to list it may be to show the call."""
    return to_singular(noun.lower()) in _CALL_NOUNS


def _is_known(phrase: list[str], named: CallWords) -> bool:
    words = [to_singular(one.lower()) for one in phrase]
    if (
        words[-1] in THINGS
        or words[-1].replace("-", "") in THINGS
        or " ".join(words[-2:]) in THINGS
        or not (named.known.isdisjoint(words) or TEXTS.intersection(words) - named.known)
    ):
        return True
    return phrase[-1].isdigit() or (phrase[-1][0].isupper() and phrase[-1].lower() not in _TONGUES)


def to_singular(word: str) -> str:
    if word in THINGS:
        return word
    for ending, instead in (("'s", ""), ("’s", ""), ("ies", "y"), ("sses", "ss"), ("ches", "ch"), ("s", "")):
        if word.endswith(ending) and len(word) > len(ending) + 2 and not word.endswith(("ss", "is", "us")):
            return word.removesuffix(ending) + instead
    return word


def list_words(name: str, arguments: str, description: str) -> CallWords:
    """The words of a call that the sentence before it may name."""
    values = _find_keys.sub(" ", arguments[:_MAX_VALUES])
    known = frozenset(to_singular(one.lower()) for one in _find_parts(f"{name} {values}"))
    purpose = map(to_singular, _find_parts(description[:_MAX_PURPOSE].partition(".")[0].lower()))
    about = {*known, *(one for one in purpose if one not in SHOWN and not _is_of_call(one))}
    return CallWords(name.lower(), known, frozenset(one[:_STEM] for one in about if len(one) >= _STEM))


def _is_other_announcement(sentence: str, named: CallWords) -> bool:
    found = OTHER_ANNOUNCEMENTS.search(sentence)
    if found is None or not find_other_work(sentence) or any(one in sentence[: found.start()] for one in COLONS):
        return False
    if any(kind.search(sentence) for kind in (REFUSALS, OTHER_UNMEANT, OTHER_CONDITIONS)):
        return False
    is_named = bool(find_other_thing(sentence) or find_other_run(sentence)) or not named.known.isdisjoint(
        find_words(sentence.lower())
    )
    return is_named or not has_word(drop_other_loose(sentence))


_match_need = re.compile(r"\W*i (?:now |first |also )?need(?: to know)?(?= the\b)", re.IGNORECASE).match
_WORK_WORDS: Final = CallWords("", TECHNICAL, frozenset())
TEXTS: Final = SHOWN - EVERYDAY
_STEM: Final = 4
"""Letters at the beginning of a word that it has in all its forms."""
_MAX_VALUES: Final = 400
"""Characters of the arguments that are looked at. A long text has all words."""
_MAX_PURPOSE: Final = 160
_find_keys = re.compile(r"\"\w+\"\s*:")
_find_asked = re.compile(
    r"\b(?:why|how|what|which|where|who|whether)\b|^ (?:(?:and|to) see )?(?:if|when)\b"
    r"|^ that (?=the |it |all |everything |nothing )"
).search
_match_doing = re.compile(r"book|list|extract|reproduc|reduc|increas|hook|wire|us(?:e|ing)\b").match
find_code = re.compile(
    r"`[^`]*`|\"[^\"]*\"|[\w./~-]*\w\.[a-z]\w{0,4}\b|(?<![\w/])[.~]{0,2}/[\w./-]+|\b\w+_\w+|\b\w*[a-z][A-Z]\w*"
    r"|\B--?\w[\w-]*|\b\w+-\d+\b"
)
"""The name of a file, a function, or the like."""
_find_ordinal = re.compile(
    r"\bthe (?:first|second|third|last|next|other|new|right|correct) ones?\b(?! of\b)", re.IGNORECASE
)
"""One of several things that were found: "the first one"."""
_find_portion = re.compile(
    r"\b(?:first|last|next|top|remaining|other)(?: (?:few|couple of|\w+))? (?:lines|rows|bytes|characters|pages)\b"
    r"|\b(?:rest|(?:first|second|last|other|bigger|relevant)? ?(?:part|half|portion|section)s?) of"
    r"(?= (?:it|them|the|this)\b)|\bdefinitions? of(?=\s+(?:file|(?:the|this) (?:class|function|method|type"
    r"|variable))\b)",
    re.IGNORECASE,
)
"""A part of what is looked at."""
find_words = re.compile(r"[\w'’-]+|[,;:：()—–]").findall
_find_parts = re.compile(r"[A-Z]?[a-z]{2,}|[^\W\d_]{3,}").findall
_find_beneficiary = re.compile(
    r"\b(?:for|near|around) (?:you|us|me)\b(?! to\b)|\bat once\b|\b(it|this|that|them) out\b", re.IGNORECASE
)
_DOUBTS: Final = frozenset(
    "as but here like neither never no none not than though although unless until you yet".split()
)
"""Words that make it doubtful that it is done, or that it is done now."""
_CALL_NOUNS: Final = frozenset("argument code command field json operation parameter query request tool value".split())
_CONDITIONS: Final = frozenset("if once when whenever".split())
_PRONOUNS: Final = frozenset(
    "both everything first it last next other others second so that them these third this those".split()
)
_TONGUES: Final = frozenset(
    """chinese english french friday german hermes japanese json latin llama markdown mistral monday python qwen
    saturday spanish sunday thursday tuesday wednesday xml yaml""".split()
)
"""Names of what words can be written in."""
_LOOSE: Final = frozenset(
    """a again all also an and another around at away back both by carefully closer current currently deeper
    different directly down each every everything exactly existing few first for from full further how if in
    into it its last latest my new next now of off on other our own parallel please properly quickly recent
    relevant right second some step that the their them then these third this those through to today
    together tomorrow too two under up using way what what's where whether which why with your""".split()
)
"""Words before the noun that say nothing about it."""
_EMPTY: Final = _LOOSE | _PRONOUNS | frozenset("actual one ones few two three more thing".split())
_LINKS: Final = frozenset(
    """about accordingly after again also and are as at because before below by can closely could created directly
    do does earlier elsewhere exactly first for from has have here i if in instead into is it itself more myself
    near nearby next now of on online or please properly right should simultaneously so that then there they
    this to too under until using was we were when where which while who why with would""".split()
)
"""Words behind a noun."""


def list_sentences(text: str) -> list[str]:
    return [one for one in _find_sentences(text.strip()) if one and has_word(one)]


def last_sentence(text: str) -> str:
    return (list_sentences(text) or [text])[-1]
