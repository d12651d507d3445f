"""Judges whether the sentence before a frame is of the work, where it does not say that the model makes the call now.

In the middle of a task a model says what it has found, and calls: "The constant is 4096 here, but the docs say 8192."
"Who sets it?" A whole English sentence is of the work where it is linked to the call by a word, or long enough to say
something, and nothing speaks against it: neither it nor the text above speaks of texts, of others, of the past or of
the user's turn, or says that something is not done, and it does not point to the frame. Of other languages the words
that speak against it are not known well enough, so there such a sentence needs a word of the call.

The lists were made from texts of authors who had not seen them (November 2026, tests/tool_formats/blind).
"""

from __future__ import annotations

import re
from typing import Final

from toolwire.tool_formats.announcement_words import TEXT_NOUNS, drop_compounds, find_own_clauses, match_next
from toolwire.tool_formats.announcements import MAX_SENTENCE, CallWords, has_head, is_shown, shares_word


def _find(*patterns: str) -> re.Pattern[str]:
    return re.compile("|".join(patterns), re.IGNORECASE)


_split = re.compile(r",\s+").split


def _words(listed: str) -> str:
    """Any of these, separated by commas: patterns of whole words."""
    return rf"\b(?:{'|'.join(_split(listed.strip()))})\b"


# --- what speaks against it, also in the text above -------------------------------------------------------------------

_DONE: Final = (
    r"(?:run|call|execut(?:e|ing)|invok|issu|emit|sen[dt]|perform|allow|do(?:ne|ing)?\b|permit|imitat|cop(?:y|ied)"
    r"|tr(?:y|ied)|follow|touch|happen|go out)"
)
_SEEN: Final = (
    r"(?:see|know|find|have|understand|think|recogni[sz]e|remember|sure|found|seen|looked?|checked?|guess|spot)"
)
"""What the model does not see or know is of the work."""
_NOT_DONE: Final = _find(
    r"\b(?:i|we)(?: (?:really|simply|certainly|definitely|therefore|also))?(?:['’]m| am|['’]ll| will|['’]re| are| can"
    r"| would| should| must| could| wo| ca)?(?:n['’]t|not| not| never)\b(?! (?:yet |really |even |actually )*"
    rf"{_SEEN})",
    r"\b(?:do|does|did|is|are|was|were|be|must|should|will|would|can|could|may|have|had|has)(?:n['’]t|not| not| never)"
    rf"(?: been| be)? {_DONE}",
    r"\brefus\w+|\bnothing (?:left|more|else) (?:for me )?to (?:run|do|call|send)\b",
    r"\bno longer (?:can|able|allowed|may)\b|\b(?:against|waiting for) (?:it|your|the user)\b|\b\w+-only mode\b",
    _words(
        r"""
        declin(?:e|es|ed|ing), beware, no circumstances, no need, decided against, out of budget, owe you,
        (?:step|call|token|turn) limit, never (?:right|safe|okay|acceptable), held back, i['’]m holding, i am holding,
        i almost, i considered, tempted, kidding, careful, attention, wonder (?:what|why|how) (?:this|it|that),
        only guess, forbid(?:s|den)?, prohibited, disallowed, dangerous, unsafe, harmful, destructive, malicious,
        irreversible, abusive, illegal, unethical, without (?:run|call|send|execut|ask)ing,
        (?:instead of|rather than) (?:run|call|send|execut|delet)ing,
        (?:nothing|none of (?:it|this|them)) (?:was|is|has been|gets?|goes|will be|went)
        """
    ),
    r"(?:^\W*|\b(?:i|we)(?:['’]\w+| \w+){0,2} |\b(?:it|this|that|which)(?: was| is| got| were|['’]s) )(?:stopped"
    r"|stopping|skipped|skipping|cancelled"
    r"|canceled|aborted|abandoned|withheld|rejected|blocked|quarantined)\b",
    r"^\W*(?:no|nope|not|don['’]t|do not|never|stop|nothing|nobody|none|hard pass|absolutely not|certainly not)\b"
    r"(?! (?:\w+ )?(?:match|hit|result|duplicate|conflict|error|sign|trace|such|other|luck|open|new|problem|issue|usage"
    r"|reference|test|more|one has|bad|quite|there|in|only|yet|the|suspicious|obvious|output|entry|entries|record|file"
    r"|change|config|mention of|free|slot|flight|fee|further))",
)
"""That something is not done, or must not be."""
_IS_ASKED: Final = _find(
    r"\byou(?:['’](?:d|ll))? (?:\w+ly )?(?:asked|sent|quoted|want(?:s|ed)?|type|can|could|may|might|should|need|must"
    r"|have to|would|will|confirm|approve|agree|say|like|see|mean|know|think|read|run|gave|get|copy)\b",
    r"(?<!so )(?<!that )(?<!before )\b(?:i|we) (?:might|could|would|may|can(?! (?:now|see|confirm|tell|read|reproduce"
    r"|compute)))\b|\bi['’]d\b(?! (?:rather|better|like (?:to (?:see|know|check|look|understand)|the|an?|every|all"
    r"|more)))",
    r"\bplease\b(?!\W*$| (?:wait|hold|bear|stand by))|^\W*otherwise\b",
    _words(
        r"""
        what (?:this|it) means, you['’](?:d|ll), if (?:i|we) (?:were|was|had|did), (?:shall|should) i, yours, yourself,
        approv(?:e|al), (?:your|without|for) permission, permission to, (?:your|my) consent, go-ahead,
        confirmation(?! (?:page|mail|e-mail|number|code|screen)), suggestion, recommend\w*, propos\w+, suppos\w+,
        theoretical\w*, hypothetic\w*, imagin\w+, pretend\w*, tip, hint,
        (?:whenever|once|if|unless|until|when|as soon as|after|before) you, for you (?:is )?to,
        your (?:approval|ok\w*|call|choice|decision|move|turn|next|system|prompt|client|own|screenshot|message),
        your (?:homework|answer|patience)
        """
    ),
    r"^\W*(?:spot|find|label|look at|note|observe|compare|imagine|remember|read on|see|paste|fill|say)\b",
)
"""What the user is to do or to say first, and what only could be."""
_OTHERS: Final = _find(
    _words(
        r"""
        attackers?, intruders?, hackers?, interns?, bots?, chatbots?, assistants?, agents?, llms?, ai, robots?, qwen,
        llama, mistral, deepseek, hermes, claude, gpt\S*, chatgpt, kimi, glm, gemini, malware, injection, phish\w+,
        scam\w*, he, she, (?:somebody|someone)(?! (?:has|may|might)), people, everybody, everyone, visitors?, readers?,
        trainees?, villain, hero(?:ine)?, they (?:are|were) \w+ing, typed, wrote, emitted, emits, pasted, posted, cited,
        spoke, said, asked, my (?:client|boss|student|friend), model['’]s, (?:you|one) calls?,
        the (?!same|right|wrong)\w+ tool, sees? how, will be (?:carried out|done|run|executed|sent),
        users? (?:\w+ )?(?:asks?|writes?|types?|sent|wants? me|wanted|will|would)
        """
    ),
    r"\b(?:customers?|clients?|they|author|manual|handbook|spec|tutorial|page|site|e?-?mail|message|ticket|comment"
    r"|letter|note|server|log|trace|history) (?:\w+ )?(?:asks?|wants?|wanted|writes?|type|tells?|told|prints?|printed"
    r"|demands?|demanded|requests|requested|instruct\w*|defines?|describes?|ends|begins)\b",
    rf"\b(?:they['’]ll|(?!(?:that|this|it|which)\b)\w+ will) (?:{_DONE}|look)\w*",
)
"""Somebody else who acts, and what was said."""
_TALK: Final = _find(
    _words(
        r"""
        examples?, illustrations?, footnotes?, recording, preference pair, poe(?:t|ms?|try), sonnet, couplet, examiner,
        annotat\w+, rubric, fuzz\w*, tokeni[sz]ers?, specimens?, exercises?, quiz(?:zes)?, lessons?, excerpts?,
        (?:i|only|just) quote, quot(?:ed|ation\w*|ing), transcripts?, prompts?, syntax, notation, tags?, frames?,
        jailbreaks?, red-?team\w*, postmortem, story, stories, tale, novel, chapter, appendix, lecture, homework,
        riddle, joke, demo, anatomy, few-shot, tutorial, wording, tool[ -]call, calls? (?:look|format|syntax|in),
        test case, review comment, bug report, role-?play\w*, simulat\w+, dialog(?:ue)?s?, conversation, severity,
        scenes?, (?:an?|one|the|this|small|short|typical) samples?(?! size), figure \d, page \d+, training, guidelines?,
        handbook, (?:the|a) parser (?:is|sees?|reads?|returns?|expects?)
        """
    ),
    r"(?m:^[^\w\n]*(?:expected|actual):)",
)
"""Texts, and what they are shown for."""
_PAST: Final = _find(
    r"\b(?:i|we)(?:['’]ve| have| had|['’]d)? (?:just |already |then |once |also |almost |only )*(?:called|ran|used|sent"
    r"|issued|executed|invoked|tried|written|answered|did|done|run|drafted|prepared|showed|quoted|looked)\b",
    r"\b(?:was|were|been|gets?|got) (?:\w+ )?(?:called|run|executed|issued|invoked|forbidden|sent|wiped|deleted"
    r"|gone)\b",
    _words(
        r"""
        what it tried, yesterday, earlier today, a minute ago, last (?:turn|time), next morning, once upon,
        previous (?:turn|answer|reply), (?:i|we|that) (?:would|could|might|may) have
        """
    ),
)
"""What was done before."""
_AGAINST: Final = (_NOT_DONE, _IS_ASKED, _OTHERS, _TALK, _PAST)
_find_talk_with_user = _find(
    r"\byour?\b", r"\A\W*(?:that|this|the) (?:string|text|line|call|frame|record|entry|request)\b"
).search
"""Above the sentence: an explanation for the user, or of the frame."""

# --- what points to the frame -----------------------------------------------------------------------------------------

_SHOWN_THING: Final = (
    r"(?:line|string|entry|text|call|frame|turn|action|output|reply|answer|response|payload|snippet|input|version"
    r"|variant"
    r"|wording|sentence|row|block)s?"
)
_find_pointer = _find(
    _words(
        r"""
        below(?! (?:the\b|an?\b|\d)), follows?(?!-| (?:the|an?|up|from)), following, like (?:this|that|so),
        along (?:these|those) lines, as such, verbatim, redacted, escaped, raw (?:form|text|output), so to speak,
        of this kind, similar, in (?:short|code|other words), more precisely, spoiler, pseudo\W?code, unsent,
        fine print, for (?:example|instance|reference|illustration|testing|the record), fictional, fake, dummy,
        made-?up, staged, mock-?up, aloud, underneath, illustrative, offending, discarded, duplicate, invented,
        kept here, that very, (?:is|are|was|were) (?:\w+ )?(?:shown|sketched|attached|quoted|listed|reproduced),
        i (?:have )?copied, last words, (?:cite|quote|show|reproduce|paste|copy|print|list)[sd]? (?:it |them )?here,
        in the (?:\w+ )?(?:log|history|transcript|trace|replay) and,
        according to (?:the|my|your) (?:log|transcript|history),
        the (?:one|only|single|exact) (?:command|call|line|request|query|move) (?:that|which|i),
        as (?:printed|shown|written|given|quoted), (?:in|had|has|of) this (?:form|format|way|shape),
        (?:this|such an?) (?:command|call|line|text|string), here(?: is|['’]s) (?:the|my|its) (?:raw|exact|full),
        (?:see|found|find|show you) (?:this|it|that|these|one|some) in
        """
    ),
    r"\b(?:above|draft|e\.g|i\.e|(?:see|found|find|show you) (?:this|it|that|these|one|some))\W*$",
    r"(?<!fix )(?<!fixes )(?<!do )(?<!close )(?<!solve )(?<!solves )(?<!explains )(?<!explain )(?<!confirm )"
    r"\b(?:this|these|so|the one|that one|this one|the (?:two|four|five|three))\W*$",
    rf"\b(?:this|that|these|one|such an?)(?: \w+)? {_SHOWN_THING}\W*$",
    r"^\W*(?:attached|see attach|(?:from|quoting|pasting|copying|store|escape|remove)\b)",
    r"^\W*(?:this|that|it|these|those)(?:['’]s| is| are| was| were)? (?:it|what|how|bad|wrong|why|the (?:one|way|kind"
    r"|sort|line|call|string|raw))\b",
).search
"""What points to the frame, or says what it is."""
_NOUNS: Final = TEXT_NOUNS | frozenset("call format jsonl model response turn xml".split())

# --- what it is -------------------------------------------------------------------------------------------------------

_find_quiz = _find(
    _words(
        r"""
        you, your, i, we, us, me, these, shall, wrong, mistakes? (?:in|here|is), missing, parameters?, arguments?,
        keys?, quotes?, valid, correct, right, ok(?:ay)?, mean, means, sure,
        this(?= (?:call|text|reply|answer|output|message|line|frame|one|is|do|request|json|command|work|look)\b|\W*$)
        """
    )
).search
"""A question to the user, or to a reader."""
_find_asking = _find(_words("what, which, where, who, why")).search
_find_english = _find(
    _words(
        r"""
        the, it, its, that, this, there, and, with, from, which, has, have, are, been, now, still, only, i['’]m, to, be,
        of, on, by, not, were, than, more, we, one, all, both, too, just, for, in, at, as, so, but, off, is, was, why,
        no
        """
    )
).search
_find_foreign = re.compile(
    r"\b[a-z]*[^\W\d_A-Za-z]|(?i:\b(?:ich|sie|und|der|das|den|ist|nicht|wir|je|le|la|les|et|est|une?|el|los|las|que|con"
    r"|para|por|il|gli|che|di|uma?|os|het|een|ik|jest|nie|och|att|det|zum|auf|mit|aus|du|si|su|mi|al|del)\b)"
).search
_find_verb = _find(
    _words(
        r"""
        is, are, was, were, has, have, had, does, did, do, can, will, should, must, may, might, could, would, needs?,
        pass, fail, exist, compile, remain, say, ran, got, came, went, took, gave, made, found, kept, left, lost, hit,
        broke, set, fell, grew, rose, saw, hung, shut, split, cut
        """
    ),
    r"n['’]t\b|['’](?:s|re|ve|ll)\b|\b\w{2,}(?:[^s\W]s\b(?=\W+\w)|ed\b)",
).search
_match_heading = _find(r"(?:#+ |\*\*)?(?:step|task|phase|part) \d+(?:/\d+)?\W+\w").match
_match_first = _find(r".{1,60} (?:first|next)\b\W*$").match
_match_need = _find(
    r"\W*(?:first|now|next|then|to \w+.*),? (?:i|we)(?: first)? need\b",
    r".*\b(?:i|we) (?:(?:only|also|still|first) need\b|need more\b)",
).match
_count_words = re.compile(r"\w+").findall
_ENDS: Final = (".", "!", "…", "?")
_FEWEST_WORDS: Final = 3
_ENOUGH_WORDS: Final = 10
"""A sentence with as many says enough to be of the work, although it has no word of the call."""


def is_statement(sentence: str, above: str, named: CallWords) -> bool:
    """Is it of the work that the call does: what was found, what is needed, what comes next, or a question that nobody
    is asked? `above`: the text before the sentence."""
    if len(sentence) > MAX_SENTENCE:
        return False
    end = sentence.rstrip(" *_`)\"'")
    is_linked = shares_word(sentence.replace(named.tool, ""), named)
    is_next = match_next(sentence) is not None or (is_linked and _match_first(sentence) is not None)
    is_heading = _match_heading(sentence) is not None
    if not (is_next or is_heading or end.endswith(_ENDS)):
        return False
    if any(own["progress"] is None for own in find_own_clauses(sentence)) or speaks_against(sentence, above, named):
        return False
    if is_next or (is_heading and not sentence[0].isalpha()):
        return not is_shown(sentence, named)
    is_asking = end.endswith("?") and _find_asking(sentence) is not None
    if _find_foreign(drop_compounds(sentence)) or not (is_asking or _find_english(sentence)):
        return is_linked and not (end.endswith("?") or is_shown(sentence, named))
    if end.endswith("?"):
        return (is_asking or is_linked) and not _find_quiz(sentence)
    return is_linked or (end.endswith(_ENDS) and _is_whole(sentence, above, named))


def _is_whole(sentence: str, above: str, named: CallWords) -> bool:
    """Is it a whole sentence that says enough?"""
    words = len(_count_words(sentence))
    if not _find_verb(sentence) or words < _FEWEST_WORDS:
        return False
    return words >= _ENOUGH_WORDS or _match_need(sentence) is not None or shares_word(above[-MAX_SENTENCE:], named)


def speaks_against(sentence: str, above: str, named: CallWords) -> bool:
    """Does anything say that the frame behind the sentence is shown, or not meant?"""
    words, above = drop_compounds(sentence), drop_compounds(above)
    return (
        ("_" in named.tool and named.tool in sentence.lower())
        or _find_pointer(sentence) is not None
        or _find_talk_with_user(above) is not None
        or any(pattern.search(words) or pattern.search(above) for pattern in _AGAINST)
        or has_head(f" {words}", _NOUNS, named.stems)
    )
