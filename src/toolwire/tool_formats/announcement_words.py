"""The English words of an announcement: who works, and what says that words are shown instead.

The nouns and verbs that speak against work are lists; any other verb and any other noun may be of a call.
"""

from __future__ import annotations

import re
from functools import partial
from typing import Final

_NOT_DOING: Final = (
    r"(?:\w*th|warn|mean|accord|regard|follow|list(?=ing \d)|str|dur|morn|even|quot|cit|show|illustrat"
    r"|demonstrat|explain|describ|imagin|suppos|assum|consider|speak|be|hav|depend|includ|concern|repeat|past|copy"
    r"|ignor|skip|refus|avoid|declin|head|train|interest|amaz|pric|encod|formatt|spell|word|talk)ing\b"
)
"""Words in -ing that name no work, or that of showing."""
_HASTE: Final = (
    r"(?: (?:now|first|then|next|also|just|still|quickly|briefly|go ahead and|start by|begin by|try to|need to"
    r"|have to|actually|simply|immediately|finally|directly|only|quick|really))*"
)
_OPENERS: Final = (
    r"(?:now|next|first|then|finally|also|okay|ok|sure|perfect|great|good|got it|done|right|alright|all right|yes"
    r"|no problem|confirmed|understood|again|so|absolutely|of course|step \d+)"
)
find_own_clauses = re.compile(
    r"\b(?:i|we) [^.,;:]{3,40} and will |\b(?:let(?:['’]s| me| us)|(?:i|we)(?:['’]ll| will| need to| have to| should"
    r"| must| want to"
    r"|['’]m(?: now)? going to"
    r"| am(?: now)? going to|['’]re going to|(?:['’]d| would) like to (?=see|know|check|look|understand|find)"
    r"|['’]d (?:rather|better)(?! not| ask))"
    r"|(?:the|my|our) (?:next|last|first|final|second|third) (?:step|task|thing)(?: (?:is|will be))?(?: now)? to"
    r"|(?:i|we) (?:also|first|still|now|just|then|only|really) (?:need|want|have) to|now (?:i|we) can|(?:i"
    r"|we) can now|but (?:i|we) can(?= (?:look|search|check|find|get|fetch))"
    rf"|time to|now to|(?:moment|second|sec|minute),?(?: please)?,? while i|^\W*(?:(?:okay|ok|good),? )?now(?= (?:run"
    rf"|apply|test|check|fix|do|verify) (?:it|them|that)\b)"
    rf"|^\W*(?:now )?(?:i|we)(?: now| first| then| also)?(?= (?:make|do|run|write|create|test|fix|update|add"
    r"|delete|remove|install|build|start|edit|change|move|clean|verify|look|check|search|read|fetch|open|try) (?:at"
    rf"|for|up|in|it|them|that|so|both|the)\b| (?:look|check|search)\W*$)){_HASTE} "
    r"|\b(?:i|we)(?:['’]m| am|['’]re| are)(?: (?:now|just|also|then|first|already|only))* (?=\w+ing\b)"
    rf"|(?:^\W*(?:{_OPENERS}\b\W+)*|[,;:—–-]+ (?:so |now |then )*(?=\w+ing \w))(?=(?P<progress>"
    rf"(?!{_NOT_DOING})[\w-]{{2,}}ing)(?:[ :.…!]|$))",
    re.IGNORECASE,
).finditer
"""Where it may say what the model does now; what follows begins with the verb. `progress`: nobody says who does it."""
match_telling = re.compile(
    r"(?!rename)(?:re-?)?(?:show|tell|giv(?:e|ing) (?!(?:it|that|the \w+) a (?:try|go|shot|run))|explain|describ"
    r"|demonstrat|illustrat|quot|cit(?:e|ing)\b|repeat (?!the (?:test|run|search|request|command))|phras|paraphras"
    r"|spell|sketch|outlin|introduc|mention|note\b|point out|discuss|clarif|warn|remind|imagin|pretend|suppos|assum"
    r"|consider|say|sing\b|recap|summari[sz]|echo|answer|reply|respond|comment(?! out)|walk|talk|teach|skip|avoid"
    r"|refus|declin|ignor|leav|omit|dissect|word\b|admit|confess|argu|claim|guess|wonder|hop(?:e|ing)|hesitat|thank"
    r"|apolog|elaborat|mean\b|name\b|propos|suggest|recommend|offer|grad(?:e|ing)\b|be\b(?! (?:sure|certain) (?:that"
    r"|there|the|it|nothing|no|whether))"
    r"|play (?:devil|the (?:role|part))|shorten|present|point|lay"
    r"|ask(?:ing)? (?:you|for|before|first|whether|my|a\b)|wait(?:ing)?(?: (?:for you|until|here)|\W*$)|not\b|never\b"
    r"|know (?:whether|if) (?:you|this|that|i|we)\b|read(?:ing)? (?:you|out|aloud)|help you (?:read|understand|see)"
    r"|think|past(?:e|ing)\b"
    r"|draft(?! the| a)|transcri|type (?:it|this|out)|dictat|typeset|pass\b|finish\b|move on"
    r"|stop(?: (?:here|there|now|at)|\W*$)|call (?:it|this) (?:an?|the)\b|return\b"
    r"|keep (?:it|this|that|in mind|quiet|silent|short)|put (?:it|this"
    r"|that) (?!(?:in(?:to)?|on|to) (?:an?|the|your) \w)|write (?:it|this|that|one|out)(?! so\b)|add that"
    r"|make (?:a|my|one) point|make it (?:concrete|clear)|get to the point|build up|see (?:to it|that)"
    r"|have (?!an? look|another look)|swap (?!the|out|in)|weigh|veto|oppos|contest|prevent|postpon|delay|abandon"
    r"|list(?:ing)? (?:the|your|my|some) options|(?:correct|set) the record|justif|motivat|hold(?:ing)? (?:it|this"
    r"|that|back|off)\b|writ(?:e|ing) (?:it |this |that |them )?down|preface"
    r"|parrot|impersonat|spare|caption|stress\b|draw)\w*",
    re.IGNORECASE,
).match
"""Verbs that words can be the result of, those that say nothing, and those of refusals."""
TEXT_NOUNS: Final = frozenset(
    """anecdote appendix caption chatml citation counterexample demo demonstration dialogue example excerpt
    exercise footnote haiku illustration invocation jailbreak joke llm markup metaphor notation novel paragraph
    paraphrase parenthesis payload phrase placeholder poem proverb quiz quotation reader riddle sample scenario
    sentence snippet story syntax tale transcript transcription tutorial verse wording""".split()
)
"""Nouns for texts. A sentence about one announces no call."""
MAYBE_TEXT_NOUNS: Final = frozenset(
    """abbreviation acronym agent ambiguity analogy angle answer argument armchair assistant attack blame block bot
    brace bracket call caveat character chase chest clause coat command completion compromise conclusion confusion
    conversation court crime danger dialog dice dignity disaster disclaimer dot doubt drama elephant emphasis
    envelope essay ethic evil explanation exploit expression fault fiction format formatting frame gear grammar
    grievance ground hair hermes hint horizon idea illusion injection input instance instruction joke json jsonl
    latex letter line literal llama lyric malware markdown mask meaning message mind mistake mistral
    misunderstanding model mouth movie myth note objection opinion outline parody passage patience philosophy poetry
    popcorn post privilege prompt proposal prose protocol question quote qwen recap remark rendering reply
    representation request response rule rumour saying scene sequence shape sketch sonnet soul speech spelling stage
    statement story style suspense tag talk template temptation tension text theorem theory thought threat token
    tone tool translation trust truth turn utterance variant villain warning wire word xml yaml""".split()
)
"""Those that may be worked on, too, if the call names them, and those that no tool works on."""
LINKS: Final = frozenset(
    """about above across after against and around as at because before behind below between by correctly for
    from has have here if in into is it like next now of off on onto or out over right so than that the their
    them then there these they this those through to together too under until up using was we were when where
    which while who with within without you""".split()
)
"""Words behind a noun: it is the last of its phrase."""
drop_compounds = partial(
    re.compile(
        r"\b(?:who|which|that|it|really|actually|also|only) (?:call|answer|request|format|prompt|question|model)s\b"
        r"|`[^`]*`(?: (?:blocks?|lines?|statements?|calls?|messages?|options?|tags?)\b)?|\"[^\"\s]*\""
        r"|[\w./~-]*\w\.[a-z]\w{0,4}\b|(?<![\w/])[.~]{0,2}/[\w./-]+|\b\w+_\w+"
        r"|\b(?:(?:mak(?:e|ing)|do(?:ing)?|start(?:ing)?) (?:the|another|a|both|these|two)(?: \w+)? calls?"
        r"|(?:phone|video|vendor|sales|conference|dentist|api|deprecated|old|new) calls?|calls? (?:notes?|sites?|stack"
        r"|graph)|usage examples?"
        r"|example (?:app|code|config|data|files?|project)|(?-i:[A-Z])\w+['’]s (?:message|comment|question|post|note"
        r"|reply)s?|full text|(?:single|double) quotes|(?:log|surrounding|adjacent|missing) lines?|lines? \d[\d–-]*"
        r"|lines"
        r"|(?:sub-?|human |review )agents?|(?:launch|spawn|start|us)(?:e|ing)? (?:an?|another|the)(?: \w+)? agents?"
        r"|(?:us(?:e|ing)|load|find|found|call(?:ing)?|invok(?:e|ing)|through|with) [\w' `-]{0,40}\btools?"
        r"|(?:commit|error|status|debug|log|descriptive|clear|unread|new|recent|last) messages?|(?:type|doc) hints?"
        r"|(?:following|exact|same|right|next|failing|build|test|shell|git) commands?"
        r"|(?:run|execut\w+) (?:the|an?|that|this|another) commands?"
        r"|(?:linter?|compiler|deprecation|type|build) warnings?|(?:html|css|email|page) templates?"
        r"|(?:empty|user|invalid|standard|null) inputs?|(?:financial|bank|account|import|sql|select|return|print"
        r"|log) statements?|(?:right|correct|proper|different|same|required|missing) (?:arguments?|parameters?)"
        r"|(?:top|latest|news) stories|command line|(?:pull|merge) requests?|data models?)\b",
        re.IGNORECASE,
    ).sub,
    " file ",
)
"""Words of work that are made of words for texts."""
find_pointing = re.compile(
    r"\b(?:like (?:this|that|so)|as follows|side by side|hypothetical\w*|literally|aloud|pretend\w*|imagin\w+"
    r"|fake|dummy"
    r"|fictional|for (?:example|instance|reference|the record|illustration)|e\.g|i\.e|such as|he|she|would|could"
    r"|might|(?<!in )may|unless|until you|never|namely|only if)\b|[“”„«»]"
    r"|\bfollowing\b(?! (?:content|command|change|quer|code|file|step|param|arg|edit|tool))"
    r"|\b(?:here|below|above)\W*$|\bfrom the (?:log|transcript|manual)\b|\bgoing by\b|\braw (?:output|text|form)\b"
    r"|^(?!fix|commit"
    r"|finish|do\b"
    r"|handl|resolv|address|bisect|investigat|debug|refactor|clean|automat"
    r"|reproduc|confirm|verif)\S+(?: to \w+)? (?:this|these|so)\W*$|\b(?:with|by|is|was) (?:this|these)\W*$"
    r"|\b(?:this|these) (?:in|from|on|at) .*[:：]\W*$|\bone by hand\b|\b(?:this|that) one\W*$"
    r"|(?<!fix )(?<!do )\b(?:this|these|so)\W*[:：]\W*$|\b(?:under|in|as) \"[^\"]*\"\W*$|\bhere(?:['’]s| is| are)\b"
    r"|\bas (?:test data|an? (?:example|sample|test|string|text|answer|memory)|art|wrong)\b|\bthought experiment\b"
    r"|\bin (?:my|your) head\b|\bthe one for\b|\bas the \w+ one\b|\b(?:for|in) (?:the|a) test case\b"
    r"|\binto (?:the|a) table\b|^\S+ (?:no|neither|nothing|none|nobody)\b|\bit (?:if|when)\b",
    re.IGNORECASE,
).search
"""What points to a text, or says that it is not so, or not now."""
find_pronoun = re.compile(
    r"^\W*(?:let me|i['’]ll|i will|(?:i|we) \w+ to|let['’]s)(?: (?!the\b)[\w-]+){1,4} one\b(?! by)"
    r"|\bwith an? \w+ one\b|\bone (?:more|of them)\b"
    r"|\b(?:few|two|three|all|both) of them\b|\b(?:them all|the two|in (?:it|them))\W*$|\b(?:that|this) one\b",
    re.IGNORECASE,
).search
"""What only a sentence before can tell: "I'll create one".

But for that, it may be a call that is shown."""
find_to_you = re.compile(
    r"\b(?:with|by|past) (?:you|the team|my (?!own)\w+|the lawyers)\b|\b(?:to|for) you to\b"
    r"|\b(?:if|once|when|after|until|unless|before|as soon as) you\b"
    r"|\byour (?:approval|okay|ok|confirmation|permission|consent|go-ahead|vision|knowledge|memory|identity"
    r"|attention|patience|expectations|assumptions|concern|version|paste|leg|eyes|priors)\b"
    r"|\b(?:need|want|whether|if) you\b|\byou (?:have to|would|on this|what|the trouble|correctly|should)\b"
    r"|\bgot you right\b|\b(?:to|understand|at) you\W*$",
    re.IGNORECASE,
).search
"""What the user is to do or to say first, and what is only for him to read."""
find_said = re.compile(
    r"\b(?:you|users?|chatgpt|claude|gpt\S*|qwen|llama|mistral|models?|bots?|agents?|assistants?|paper|page|e?-?mail"
    r"|manual|docs|others|it(?! (?:\w+ )?answers)|he|she|they)(?: \w+)? (?:would|said|says|asks(?: for)?|answer(?:s"
    r"|ed)|wrote|written"
    r"|writes?|emitted|pasted|posted|replied|wants?|called|quoted|suspected|meant|means|intended|leaves? out|did)\b"
    r"|\b(?:is|was) (?:written|quoted|said)\b|\b(?:attackers?|qwen|llama|mistral|chatgpt|he|she)\b"
    r"|\b(?:if|when) i (?:write|say|type)\b|\b(?:this|these|such(?: an?)?) (?:text|call|line|string|thing|input"
    r"|frame|message|output|answer|prompt|snippet)s?\b|\bas the (?:tutorial|docs|book|paper)\b"
    r"|\bi (?:sent|quoted|wrote|said|was)\b|[\"”»,*]\W*(?:\w+ ){0,2}(?:said|says|wrote|replied|typed|thought)\b"
    r"|\b(?:so to speak|or rather|rather not|not allowed|here(?:['’]s| is) (?:how|why|what))\b",
    re.IGNORECASE,
).search
"""That somebody has said something."""
find_other_time = re.compile(
    r"\b(?:yesterday(?!['’])|(?<!for )tomorrow(?!['’])|earlier|ago|later|someday|soon|eventually|tonight|overnight"
    r"|previously|whenever|(?<!at )once(?! more| again)|last (?:time|week|month|year|night)"
    r"|(?<!for )next (?:time|week|month|year)"
    r"|on (?:mon|tues|wednes|thurs|fri|satur|sun)day|at (?:noon|midnight)|after (?:lunch|that|you)|during the)\b",
    re.IGNORECASE,
).search
"""That it is done another time."""
find_finite = re.compile(
    r"\b(?:is|are|was|were)(?:n['’]t)?\b|\b(?:will|would|can|could|should|must|means?|makes?|gives?|looks?|seems?|has"
    r"|have|had|does|did"
    r"|yields?|returns?|prints?|helps?|works?|fails?|needs?|takes?|costs?|requires?|deletes?|removes?|shows?|wipes?"
    r"|breaks?)\b|, (?:it|this|that|you|they|we|i|the)\b",
    re.IGNORECASE,
).search
"""What makes of "Checking the port" the subject of a sentence."""
find_asked = re.compile(
    r"\b(?:why|how|what|which|where|who|whether)\b|^\S+ (?:(?:and|to) see )?(?:if|when)\b"
    r"|^\S+ that (?=the |it |all |everything |nothing )"
).search
"""The question that the work answers: what is not, or may be, is part of it."""
find_reason = re.compile(
    r",? (?:before|because|since|so that|so|while|in case|instead of|rather than|to be sure|to make sure)\b"
    r"|,? (?:which|who) | that (?:\w*[^s\W]s|are|were|have|had|can|will|would|need|do|don['’]t)\b|, (?:as|this|it"
    r"|that"
    r"|and|but)\b| as it |;| [—–] | to (?:find|get|see|check|answer|help|avoid|give|make|be|prove|keep|understand"
    r"|know|complete|confirm|verify)\b|(?<=\w) (?:i|we|you)(?:['’]\w+| have| had| just)? (?:\w+ed|sent|gave|made"
    r"|wrote|care|found|saw)\b",
    re.IGNORECASE,
).search
"""Why, and which: it may be about anything."""
match_next = re.compile(
    r"(?!.*\b(?:wrong|bad|worst|naive|broken|same in) )\W*(?:(?:and|so|okay|ok|good|great|cool)\W+)*(?:now"
    r"|next(?: up)?|finally|lastly|first|then|second"
    r"|third)\b[:,]? (?:for |on to )?(?:the|another|its|your|our|`)"
    r"|next: [\w`]",
    re.IGNORECASE,
).match
"""The next of several things, without who does it: "Now the config"."""
find_telling_above = re.compile(
    r"\b(?:he|she)\b|\b(?:story|tale|once upon|transcript|demo|few-shot|fiction|film|novel|chapter|simulation"
    r"|role-?play\w*|made that up|recorded|script of|thought experiment|training set|act as|repeat after"
    r"|(?:i|you|it|they) wrote|i once|in my last turn)\b|\b(?:shall|should|may|can) i\b.*\?"
    r"|\b(?:do|would|could|can|will) you\b.*\?|\b(?:tell|ask) me (?:whether|if)\b|\bplease confirm\b"
    r"|\b(?:has|have|had|find|found|shows?|in|like|see|reads?|says?|with|is|was) (?:this|these|so)\W*$|\bi would\b"
    r"|\ban? (?:\w+ )?sample\W*$|\b(?:below|above)\W*$|\bi['’]?(?: a)?m the\b|\bwant to see\b|\bi['’]d (?:answer"
    r"|reply|say|write|send|call|run)\b"
    r"|^\W*(?:quote|output|variant|prompt|example|sample)\b"
    r"|\b(?:the|an?|this|these|two|its|his|typical|next|fake|wrong) (?:[\w-]+ )?(?:calls?|prompts?|turns?|lines"
    r"|answers?|agents?|bots?|assistants?|input)\W*$|^\W*(?:wrong answer|an exchange)\b"
    r"|\bhow the conversation\b|\b(?:robot|roboter)\b|^\W*once (?:i|there|upon|a)\b|\bagent at\b|\bconfirmez\b"
    r"|\bsoll ich\b",
    re.IGNORECASE,
).search
"""Before an announcement: that somebody else says it, or that the user is asked first."""
