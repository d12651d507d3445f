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
    r"|ignor|skip|refus|avoid|declin|head|train|interest|amaz|pric|encod|formatt|spell|word|talk|mean)ing\b"
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
    r"\b(?:let(?:['’]s| me| us)|(?:i|we)(?:['’]ll| will| need to| have to| should| must| want to"
    r"|['’]m(?: now)? going to"
    r"| am(?: now)? going to|['’]re going to|(?:['’]d| would) like to (?=see|know|check|look|understand|find))"
    r"|(?:the|my|our) (?:next|last|first|final|second|third) (?:step|task|thing)(?: (?:is|will be))?(?: now)? to"
    r"|(?:i|we) (?:also|first|still|now|just|then|only|really) (?:need|want|have) to|now (?:i|we) can|(?:i"
    r"|we) can now|but (?:i|we) can(?= (?:look|search|check|find|get|fetch))"
    rf"|time to|now to|^\W*(?:(?:okay|ok|good),? )?now(?= (?:run|apply|test|check|fix|do|verify) (?:it|them|that)\b)"
    rf"|^\W*(?:now )?(?:i|we)(?: now| first| then| also)?(?= (?:make|do|run|write|create|test|fix|update|add"
    r"|delete|remove|install|build|start|edit|change|move|clean|verify|look|check|search|read|fetch|open|try) (?:at"
    rf"|for|up|in|it|them|that|so|both|the)\b| (?:look|check|search)\W*$)){_HASTE} "
    r"|\b(?:i|we)(?:['’]m| am|['’]re| are)(?: (?:now|just|also|then|first|already))* (?=\w+ing\b)"
    rf"|(?:^\W*(?:{_OPENERS}\b\W+)*|[,;:—–-]+ (?:so |now |then )*(?=\w+ing \w))(?=(?P<progress>"
    rf"(?!{_NOT_DOING})[\w-]{{2,}}ing)(?:[ :.…!]|$))",
    re.IGNORECASE,
).finditer
"""Where it may say what the model does now; what follows begins with the verb. `progress`: nobody says who does it."""
match_telling = re.compile(
    r"(?!rename|replay|reprint)(?:re-?)?(?:show|tell|giv(?:e|ing) (?!(?:it|that|the \w+) a (?:try|go|shot|run))"
    r"|explain|describ|demonstrat"
    r"|illustrat|quot|cit(?:e|ing)\b|recit|repeat (?!the (?:test|run|search|request|command))|phras|paraphras|spell"
    r"|sketch|outlin|introduc|mention|note\b|point out|discuss|clarif|warn|remind|imagin|pretend|suppos|assum|consider"
    r"|say|sing\b|recap|summari[sz]|echo|answer|reply|respond|comment(?! out)|walk|talk|teach|hid(?:e|ing)|skip|avoid"
    r"|refus|declin|ignor|leav|omit|dissect|word\b|tokeni|serializ|encod|annotat|render|admit|confess|argu|claim|guess"
    r"|wonder|hop(?:e|ing)|hesitat|thank|apolog|elaborat|mean\b|name\b|propos|suggest|recommend|offer|judg"
    r"|grad(?:e|ing)\b|rat(?:e|ing)\b|like\b|be\b|play (?:devil|the (?:role|part))|shorten|print|present|point|lay"
    r"|prepar|ask(?:ing)? (?:you|for|before"
    r"|first|whether|my|a\b)|wait(?: (?:for you|until|here)|\W*$)|not\b|never\b|know (?:whether|if)"
    r"|read(?:ing)? (?:you|out|aloud)|help"
    r" you (?:read|understand|see)|think|past(?:e|ing)\b|draft(?! the| a)|transcri|type (?:it|this|out)|dictat|typeset"
    r"|pass\b|finish\b|move on|stop(?: (?:here|there|now|at)|\W*$)|call (?:it|this) (?:an?|the)\b|return\b"
    r"|keep (?:it|this|that"
    r"|in mind|quiet|silent|short)|put (?:it|this|that)"
    r" (?!(?:in(?:to)?|on|to) (?:an?|the|your) \w)|write (?:it|this|that|one|out)|add that|make (?:a|my|one) point"
    r"|make it (?:concrete|clear)|get to the point|build up|see (?:to it|that)|have (?!an? look|another look)"
    r"|swap (?!the|out|in)|take the (?:\w+ )?(?:tool|call)|close with"
    r"|end with|shout|whisper|weigh|veto|oppos|contest|prevent|postpon|delay|abandon|justif|motivat|preface|parrot"
    r"|impersonat|spare|simulat|caption|stress\b|draw|enter|mock (?:it|this|up))\w*",
    re.IGNORECASE,
).match
"""Verbs that words can be the result of, those that say nothing, and those of refusals."""
TEXT_NOUNS: Final = frozenset(
    """adage anecdote appendix attacker caption chatml citation chatbot counterexample demo demonstration dialogue
    example excerpt exercise footnote haiku hermes illustration invocation jailbreak joke llm markup metaphor
    narrator notation novel paragraph paraphrase parenthesis payload phrase placeholder poem proverb quiz quotation
    reader riddle sample scenario sentence snippet specimen story syntax tale transcript transcription tutorial verse
    verbatim wording hypothetical fictional""".split()
)
"""Nouns for texts. A sentence about one announces no call."""
MAYBE_TEXT_NOUNS: Final = frozenset(
    """abbreviation acronym actor advice advocate agent ambiguity analogy anatomy angle answer argument armchair
    assistant attack attention basics bias blame block boss bot brace bracket bush call caveat character chase chest
    chorus claim clause coat command completion compromise concept conclusion confusion cons consequence
    conversation court courtesy crime curse danger debate dialog dice dignity dinner disaster disclaimer dot doubt
    drama dream echo elephant emitted emphasis envelope essay ethic eventually evil exchange expectation explanation
    exploit expression fallacy fault feeling fiction film format formatting formula fortune frame gear grammar
    grievance ground guess hair happiness harm herme hero hint honest hope horizon idea illusion injection input
    instance instruction joke json jsonl knowledge latex lawyer leg lens letter line lingo literal llama luck lunch
    lyric magic malware markdown mask meaning meant message mind mistake mistral misunderstanding model motive mouth
    movie myth news note notes objection odds opinion option outline parenthese parenthesi parody passage patience
    philosophy poetry poison popcorn position possibility post prank privilege progress- prompt proposal pros prose
    protocol question quote quoted qwen recap record remark rendering reply representation request response risk
    ritual rule rumor rumour saying scene sens sent sequence shape sketch someday sometime sonnet soul
    species speech spell spelling stage statement story style supervisor supper suspense tag talk tea template
    temptation tension text theorem theory thing thought threat token tone tool tradition translation trick trust
    truth turn utterance variant villain vision warning waters wire word worst wrote xml yaml yourself""".split()
)
"""Those that may be worked on, too, if the call names them, and those that no tool works on."""
LINKS: Final = frozenset(
    """about above across after against and around as at because before behind below between by correctly for from has
    have here if in into is it like next now of off on onto or out over right so than that the their them then there
    these they this those through to together too under until up using was we were when where which while who with
    within without wrong""".split()
)
"""Words behind a noun: it is the last of its phrase."""
drop_compounds = partial(
    re.compile(
        r"`[^`]*`|\"[^\"\s]*\"|[\w./~-]*\w\.[a-z]\w{0,4}\b|(?<![\w/])[.~]{0,2}/[\w./-]+|\b\w+_\w+"
        r"|\b(?:(?:mak(?:e|ing)|do(?:ing)?|start(?:ing)?) (?:the|another|a|both|these|two)(?: \w+)? calls?"
        r"|(?:phone|video|sales|conference|dentist|api) calls?|full text|(?:single|double) quotes|lines? \d[\d–-]*"
        r"|lines|(?:sub-?|human |review )agents?|(?:launch|spawn|start|us)(?:e|ing)? (?:an?|another"
        r"|the)(?: \w+)? agents?"
        r"|(?:us(?:e|ing)|load|find|found|call(?:ing)?|invok(?:e|ing)|through|with) [\w' `-]{0,40}\btools?"
        r"|(?:commit|error|status|debug|log|descriptive|clear|unread|new|recent|last) messages?"
        r"|(?:test|command|console|terminal|build|compiler|linter|verbose|debug) output|(?:type|doc) hints?"
        r"|(?:following|exact|same|right|next|failing|build|test|shell|git) commands?|(?:run|execut\w+) (?:the|an?"
        r"|that|this|another) commands?"
        r"|(?:linter?|compiler|deprecation|type|build|eslint|mypy) warnings?|(?:html|css|email|page|jinja2?) templates?"
        r"|(?:empty|user|invalid|standard|null) inputs?|(?:financial|bank|account|import|sql|select|return|print"
        r"|log) statements?|(?:sales|revenue) figures"
        r"|(?:right|correct|proper|different|same|required|missing) (?:arguments?|parameters?)|(?:top|latest"
        r"|news) stories|edge cases?|command line|exchange rates?|(?:pull|merge) requests?|data models?"
        r"|turn(?:ing)? (?:on|off|up|down|into)|(?:check|see|inspect|verify) the output|take care of|nothing else"
        r"|one by one|one at a time|at once|(?:the"
        r"|its|their) (?:\w+ )?ones?|in (?:one|a) go"
        r"|one last time|one more time)\b",
        re.IGNORECASE,
    ).sub,
    " file ",
)
"""Words of work that are made of words for texts."""
find_pointing = re.compile(
    r"\b(?:like (?:this|that|so)|as follows|hypothetical\w*|literally|aloud|pretend\w*|imagin\w+|fake|dummy|fictional"
    r"|for (?:example|instance|reference|the record|illustration)|e\.g\.|i\.e\.|such as|so to speak|he|she"
    r"|would"
    r"|could|might|(?<!in )may|unless|until you|never|namely|only if)\b|[“”„«»]"
    r"|\bfollowing\b(?! (?:content|command|change|quer|code|file|step|param|arg|edit|tool))|\b(?:here|below|above)\W*$"
    r"|^(?!fix|do\b|handl|resolv|address|bisect|investigat|debug|refactor|clean|automat|reproduc|confirm|verif)\S+"
    r"(?: to \w+)? (?:this|these|so)\W*$|\b(?:with|by|is|was) (?:this|these)\W*$|\b(?:this|these) (?:in|from|on"
    r"|at) .*[:：]\W*$"
    r"|\bone by hand\b"
    r"|\b(?:this|that) one\W*$|(?<!fix )(?<!do )\b(?:this|these|so)\W*[:：]\W*$|\b(?:under|in|as) \"[^\"]*\"\W*$"
    r"|\bhere(?:['’]s| is| are)\b|\bas (?:test data|an? (?:example|sample|test|string|text|answer|joke|yes|memory)"
    r"|art|wrong|correct|right)\b|\bthought experiment\b|\bin (?:my|your) head\b|\bthe one for\b|\bas the \w+ one\b"
    r"|\b(?:for|in) (?:the"
    r"|a) test case\b"
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
    r"\b(?:with|by|past) (?:you|the team|my \w+|the lawyers)\b|\b(?:to|for) you to\b|\b(?:if|once|when|after|until"
    r"|unless|before"
    r"|as soon as) you\b|\byour (?:approval|okay|ok|confirmation|permission|consent|go-ahead|vision|knowledge|memory"
    r"|identity|attention|patience|expectations|assumptions|concern|trouble|version|paste|leg|eyes|priors)\b"
    r"|\b(?:need|want|whether|if) you\b|\byou (?:have to|would|on this|what|the trouble|notice|filter|correctly"
    r"|should|are paying)\b|\bgot you right\b|\b(?:to|understand|got|at) you\W*$",
    re.IGNORECASE,
).search
"""What the user is to do or to say first, and what is only for him to read."""
find_said = re.compile(
    r"\b(?:you|users?|chatgpt|claude|gpt\S*|qwen|llama|mistral|models?|bots?|agents?|assistants?|paper|page"
    r"|e?-?mail|blog|manual|docs"
    r"|others|it|he|she|they|robot)(?: \w+)? (?:would|said|says|asks(?: for)?|answer(?:s|ed)|wrote|written|writes?"
    r"|emitted|pasted|posted"
    r"|replied|wants?|called it|called|quoted|suspected|meant|means|intended|leaves? out|did)\b|\b(?:is"
    r"|was) (?:written|quoted|said)\b"
    r"|\b(?:attackers?|qwen|llama|mistral|chatgpt|he|she)\b|\b(?:if|when) i (?:write|say|type)\b"
    r"|\b(?:this|these|such(?: an?)?) (?:text|call|line|string|thing|input|frame|message|output|answer|prompt"
    r"|snippet)s?\b"
    r"|\bas the (?:tutorial|docs|book|paper)\b|\bi (?:sent|quoted|wrote|said|was)\b|[\"”»,*]\W*(?:\w+ ){0,2}(?:said"
    r"|says|wrote|replied|typed|thought|cried)\b"
    r"|\b(?:so to speak|or rather|rather not|not allowed|here(?:['’]s| is) (?:how|why|what))\b",
    re.IGNORECASE,
).search
"""That somebody has said something."""
find_other_time = re.compile(
    r"\b(?:yesterday(?!['’])|(?<!for )tomorrow(?!['’])|earlier|ago|later|someday|soon|eventually|tonight|overnight"
    r"|previous(?:ly)?|whenever|(?<!at )once(?! more| again)|last (?:time|week|month|year|night)"
    r"|(?<!for )next (?:time|week|month|year)"
    r"|on (?:mon|tues|wednes|thurs|fri|satur|sun)day|at (?:noon|midnight)|after (?:lunch|that|you)|during the)\b",
    re.IGNORECASE,
).search
"""That it is done another time."""
find_finite = re.compile(
    r"\b(?:is|are|was|were|will|would|can|could|should|must|means?|makes?|gives?|looks?|seems?|has|have|had|does|did"
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
    r"\W*(?:(?:and|so|okay|ok|good|great|cool)\W+)*(?:now|next(?: up)?|finally|lastly|first|then|second"
    r"|third)\b[:,]? (?:the|another|its|your|`)"
    r"|.{1,60} (?:first|next)\b\W*$",
    re.IGNORECASE,
).match
"""The next of several things, without who does it: "Now the config"."""
find_somebody = re.compile(
    r"\b(?:he|she|they|his|her|their|you(?! mentioned| asked)|yours?|somebody|someone|anybody|people|users?|attackers?"
    r"|intruders?|model|assistant|agent|bot|robot|human|colleague|says?|said|writes?|wrote|prints?|printed|emits?"
    r"|emitted"
    r"|answers?|answered|repl(?:y|ies|ied)|responds?|responded|types|typed|shows?|shown|looks? like|wants?|means?"
    r"|reads|will|can)\b",
    re.IGNORECASE,
).search
"""Somebody who is not the model: then a statement may be of his work."""
find_own_past = re.compile(
    r"\b(?:i|we)(?:['’]ve| have| had|['’]d)? (?:just |already |then |once |also )*(?:called|ran|used|sent|issued"
    r"|executed"
    r"|invoked|tried|made|wrote|written|emitted|answered|did|done|got|run|drafted|prepared|like)\b"
    r"|\b(?:was|were|been|being|is|are|gets?|got) (?:\w+ )?(?:called|run|executed|issued|invoked|emitted|blocked"
    r"|rejected|refused|forbidden|allowed|sent|deleted|wiped|asked)\b",
    re.IGNORECASE,
).search
"""What was done before."""
match_question = re.compile(
    r"(?!.*\b(?:you|your|i|we|shall|should|may|can|could|would|is (?:this|it|that)(?! in)|does (?:this|it|that)"
    r"|(?:do|mean|say)(?:es)? this)\b)"
    r".*\b(?:what|which|where|who|how|is|are|does|did|has|why)\b",
    re.IGNORECASE,
).match
"""A question that the model asks itself."""
find_telling_above = re.compile(
    r"\b(?:he|she)\b|\b(?:story|tale|once upon|transcript|demo|few-shot|fiction|film|novel|chapter|simulation"
    r"|role-?play\w*"
    r"|made that up|recorded|script of|thought experiment|training set|act as|repeat after|(?:i|you|it|they) wrote"
    r"|i once"
    r"|in my last turn)\b"
    r"|\b(?:shall|should|may|can) i\b.*\?|\b(?:do|would|could|can|will) you\b.*\?|\b(?:tell|ask) me (?:whether|if)\b"
    r"|\bplease confirm\b|\b(?:has|have|had|find|found|shows?|in|like|see|reads?|says?|with|is|was) (?:this|these"
    r"|so)\W*$"
    r"|\bi would\b|\bi['’]?(?: a)?m the\b|\bwant to see\b|\bi['’]d (?:answer|reply|say|write|send|call|run)\b"
    r"|^\W*(?:quote|output|variant|prompt|example|sample)\b"
    r"|\b(?:the|an?|this|these|two|its|his|typical|next|fake|wrong) (?:[\w-]+ )?(?:calls?|prompts?|turns?|lines"
    r"|answers?|agents?|bots?|assistants?|input|samples?)\W*$|^\W*(?:wrong answer|an exchange)\b"
    r"|\bhow the conversation\b|\b(?:robot|roboter)\b|^\W*once (?:i|there|upon|a)\b|\bagent at\b|\bconfirmez\b"
    r"|\bsoll ich\b|\?.*\baccord\b",
    re.IGNORECASE,
).search
"""Before an announcement: that somebody else says it, or that the user is asked first."""
