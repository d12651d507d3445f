"""The words that say that the call behind or before them is only mentioned, or that it is meant.

They are English, and the most common ones of other languages. `mentions` looks for them in the sentences around a call.
"""

from __future__ import annotations

import re
from typing import Final


def _words(*patterns: str) -> re.Pattern[str]:
    return re.compile("|".join(patterns), re.IGNORECASE)


_DO: Final = (
    r"(?:run|call|execute|use|invoke|do|make|issue|emit|send|delete|perform|proceed|comply|be|try|ask|touch|write"
    r"|trigger"
    r"|follow|carry|allow|include|copy|type|paste|start)"
)
_WHO: Final = (
    r"(?:you|one|we|they|he|she|it|i|people|anyone|someone|somebody|nobody|users?|models?|agents?|assistants?"
    r"|attackers?"
    r"|clients?|servers?)"
)

_NOT_DOING: Final = (
    r"(?:\w*thing|warning|meaning|according|regarding|following|listing|string|during|morning|evening|quoting"
    r"|citing|showing"
    r"|illustrating|demonstrating|explaining|describing|imagining|supposing|assuming|considering|speaking|being"
    r"|having"
    r"|depending|including|concerning|repeating|pasting|copying|ignoring|skipping|refusing|avoiding|declining|heading"
    r"|training|interesting|amazing|testing|pricing|encoding|formatting|calling\s+\S+\s+(?:is|would|looks))\b"
)
ANNOUNCEMENTS: Final = _words(
    r"\blet(?:['’]s| me| us)\b",
    r"\bi(?:['’]ll| will|['’]m (?:now )?going to| am (?:now )?going to| need| should| must| want to| have to"
    r"| can\b(?!['’]t)|['’]d like to| would like to)",
    r"\bi(?:['’]m| am)(?: now)? \w+ing\b|^\W*now (?=i\b)|^\W*i (?:look|check|search|read|fetch|open|try)\b"
    r"|\bwe (?:need|should|must|can) (?:to )?(?!not|see|never)\w+\b",
    r"^\W*(?:i|we)(?: now| first| then| also)? (?:make|do|run|write|create|test|fix|update|add|delete|remove|install"
    r"|build|start|edit|change|move|clean|verify) (?:it|them|that|so|both)(?: now| first| again)?[.!…]\W*$",
    rf"(?:^\W*|[,;—–] (?:so |now |then )?)(?!{_NOT_DOING})[a-z]{{2,}}ing\b",
    r"^\W*(?:now|next|first|then|finally|lastly|also|step \d+)\b\W+(?=\w)|^\W*time to\b",
)
"""What a model says before it calls a tool: what it does itself."""
_THING: Final = (
    r"(?:files?|folders?|director(?:y|ies)|repo(?:sitory)?|tests?|builds?|bugs?|errors?|issues?|problems?|imports?"
    r"|functions?|methods?|class(?:es)?|variables?|modules?|packages?|dependenc(?:y|ies)|config\w*|settings?|server"
    r"|client|port|database|tables?|quer(?:y|ies)|columns?|pages?|results?|weather|disk|process|script|branch"
    r"|commits?"
    r"|cache|versions?|paths?|endpoints?|routes?|loops?|fix|crash|fixtures?|loader|linter|compiler)"
)
STEPS: Final = _words(
    r"^\W*(?:now|next|first|then|finally|second|third|lastly|and|also)\b,? (?:for |on to )?(?:the|another|your|our)"
    rf" (?:(?!bad|wrong|worst|naive|last)[\w'’.-]+ ){{0,2}}?(?:{_THING}|handlers?|views?|models|frontend|backend"
    r"|docs|readme"
    r"|changelog|code|parser|controller|components?|schema|types?|migrations?|api|forecast|`[^`]+`)\W*$",
    r"^\W*(?:now|next|then),? (?:another|the) (?:(?!bad|wrong|old|new|same|correct|first|second)\w+ ){1,2}call\W*$",
    r"^\W*(?:next(?: step| file| test)?|fix)\W*$|^\W*step \d+[^\w:：]*$|^\W*(?:one (?:more|last)"
    r"|final) (?:check|file|fix|test)\b"
    r"|\bhere we go\b|^\W*here goes\b|^\W*(?:on it|will do)\b",
    r"\bhere(?:['’]s| is) what i(?:['’]ll| will) do\b|\bhere(?:['’]s| is) (?:the|a|my) (?:fix|patch|edit|change"
    r"|(?:updated|new|corrected|fixed) (?!examples?|formats?|syntax|frames?|calls?)\w+)\b"
    r"(?!.* (?:examples?|samples?|calls?|frames?)\W*$)",
    r"\bhere(?:['’]s| is| goes| comes) (?:the|a|my|our) (?:(?!example|sample)\w+ ){0,2}calls?\W*$",
)
"""The same without saying who does it: the next of several steps."""
OTHER_ANNOUNCEMENTS: Final = _words(
    r"\bich (?:werde|rufe|prüfe|schaue|sehe|suche|lese|hole|führe|starte|frage|öffne|behebe|korrigiere|ändere"
    r"|erstelle"
    r"|schreibe|aktualisiere|installiere|teste|lösche|ergänze|beginne|analysiere|untersuche|durchsuche)\b"
    r"|\b(?:werde|rufe|prüfe|schaue|suche|lese|hole|führe|starte|öffne|behebe|korrigiere|ändere|erstelle|schreibe"
    r"|teste|lösche|untersuche|durchsuche) ich\b|\blass(?:en sie)? mich\b",
    r"\bje (?:vais|vérifie|cherche|lis|lance|regarde|consulte|corrige|crée|modifie|teste|commence)\b|\bj['’](?:ouvre"
    r"|exécute|ajoute|analyse|installe)\b|\blaisse(?:z-|-)moi\b|\bpermett?e?[zs]-moi\b",
    r"\bvoy a\b|\bahora (?:ejecuto|reviso|compruebo|leo|busco|abro|miro|verifico)\b|\bvamos a\b|\bd[eé]ja(?:me"
    r"|dme)\b|\bd[eé]jeme\b|\bperm[ií]t[ae]me\b|\bconsultar[eé]\b|\bbuscar[eé]\b",
    r"\bvado a\b|\bsto per\b|\bfammi\b|\bcontrollo\b|\bcerco\b|\bverifico\b",
    r"\bvou \w+|\bdeixe-me\b|\bdeixa eu\b",
    r"\bmaintenant,? je \w+|\badesso \w+o\b|\bora (?:controllo|eseguo|leggo|cerco)\b|\bagora (?:vou|executo"
    r"|verifico|leio)\b|\bik (?:zal|ga|kijk|zoek|controleer)\b|\blaat me\b",
    r"\b(?:проверю|посмотрю|сделаю|вызову|запущу|найду|прочитаю|открою|поищу)\b|\bдавайте\b|\bпозвольте\b",
    r"让我|讓我|我(?:来|來|将|將|会|會|需要|先|现在|現在|去|正在|要)|正在"
    r"|(?:接下来|接下來|首先|现在|現在|^先|下面)[^。：:]{0,6}(?:读取|讀取|运行|執行|执行|查看|检查|檢查|修改|搜索"
    r"|打开|更新|创建|安装|测试|修复)",
    r"ます(?:ね)?[。.:：]?\s*$|ましょう|みます",
    r"겠습니다|할게요|볼게요",
    r"\bvoyons\b|\bl[åa]t mig\b|\bjag (?:ska|kollar|tittar)\b|\blad mig\b|\bla meg\b|\bsprawdz(?:ę|am|my)\b"
    r"|\bzobacz(?:ę|my)\b|\bpozwól\b",
    r"\b(?:bakayım|bakalım|kontrol ed\w+|bakıyorum)\b|\bbiarkan saya\b|\bsaya akan\b|\bđể tôi\b|\btôi sẽ\b|دعني|سأ"
    r"|देख(?:ता|ती|ते|ने)|करता हूँ|แป๊บ|ขอ(?:ดู|ตรวจ)",
)
"""The same in other languages."""
match_interjection = re.compile(
    r"\W*(?:(?:ok(?:ay)?|sure(?: thing)?|yes|yep|great|perfect|good(?: morning)?|nice|excellent|done|al(?:l )?right"
    r"|understood|got it|found (?:it|them)|of course|certainly|absolutely|hello|hi|hm+|interesting|oops|on it|will do"
    r"|(?:just )?(?:one|a) (?:moment|second|sec)|please|thanks?(?: you)?|looks? good|that worked|still failing"
    r"|no problem|all (?:green|good)|almost (?:there|done)|i can (?:help with|do) that|what['’]s up|now|first|then"
    r"|so|wait|i see|court)\W+)+",
    re.IGNORECASE,
).fullmatch
"""A few words that say nothing of the call. "court" is a token that some models write before `<invoke>`."""
match_filler = re.compile(
    r"\W*(?:this is a content\W+|(?:(?:hello|world|nono|some|no(?= prefix)|more|extra|prefix|suffix|intro|outro"
    r"|before"
    r"|after|trailing|leading|final|tools?|text|content|data|answer|help|div)[^\w:：]+){1,4})",
    re.IGNORECASE,
).fullmatch
"""What the test suites of servers write around a call."""
match_state = re.compile(
    r"\W*(?:(?:so|but|now|okay|good|great|hm+)\W+)?(?:(?:the|all|both|some|two|three|your"
    rf"|our)(?: [\w'’-]+){{0,2}}? {_THING}"
    r"(?: (?:still|now|already|also|all|both))?"
    r" (?:fails?|failed|pass(?:es|ed)?|works?|exists?|compiles?|(?:do|does|did)(?:n['’]t| not) (?:exist|work"
    r"|compile|pass|match|start)"
    r"|(?:is|are)(?: still| now| all| also| not)? (?:missing|wrong|broken|empty|green|red|fine|correct|ready"
    r"|failing|passing"
    r"|running|there|here|invalid|outdated|installed))(?: (?:now|again|already))?"
    r"|(?:the )?user (?:wants|needs|would like) to (?:know|get|find|check) (?:the|a|about) (?:[\w'’-]+ ?){1,6})\W*",
    re.IGNORECASE,
).fullmatch
"""A statement about the work: a thing of it, and its state."""
match_remark = re.compile(
    r"\W*(?:(?:ok(?:ay)?|yes|done|please|thanks?(?: you)?|(?:just )?(?:one|a) (?:moment|second|sec)"
    r"|here (?:is|are) the results?)[^\w?？]+|(?:would you like to know more|anything else"
    r"|see\? i['’]m a helpful assistant)\W+)+",
    re.IGNORECASE,
).fullmatch
"""What a model adds to a call."""
_AFTER: Final = (
    r"(?:then|next|after(?:wards| that)|in this way|with (?:that|the results?)"
    r"|(?:once|when|as soon as|after) (?:i|we|that|it|the \w+)(?: \w+){1,6}),? "
)
match_outlook = re.compile(
    r"(?!.*\b(?:calls?|prompts?|formats?|tags?|syntax|examples?|pars\w+|explain\w*|show\w*|not)\b)\W*"
    rf"(?:{_AFTER}(?:i|we)(?:['’]ll| will)|(?:i|we)(?:['’]ll| will)(?: then| now)? (?:go on|continue|proceed"
    r"|let you know|wait for (?:the|its) (?:results?|output|response)|(?:summari[sz]e|use|report) (?:it|them"
    r"|the results?)))"
    r"\b[^?:]{0,80}",
    re.IGNORECASE,
).fullmatch
"""What it does with the result."""
_TELL: Final = (
    r"(?:show|sketch|outline|introduc|defin|summari[sz]|report|highlight|rephras|reword|dissect|break|walk|recount"
    r"|restat"
    r"|reproduc|exemplif|describ|explain|present|giv|point|nam|list|includ|document)(?:e|ing|y)?(?: down| out| to)?"
)
_HEAD: Final = r"(?=\W*$| (?:of|for|that|which|to|into|as|by|here|below|from|with|used|itself|has|have|had|i|sent)\b)"
"""Behind a noun that is the last of its phrase: "the call", but not "the call sites"."""
_SPEAKER: Final = (
    r"(?:models?|attackers?|assistants?|agents?|llms?|bots?|qwen|llama|mistral|deepseek|hermes|kimi|glm|granite|gemma"
    r"|claude|gpt)"
)
_SHOWN: Final = (
    r"(?:prompts?|turns?|variants?|(?:counter-?)?examples?|samples?|specimens?|calls?|payloads?|notations?|grammar"
    r"|formats?|syntax|injections?"
    r"|attacks?|attackers?|transcripts?|snippets?|frames?)"
)
_TOLD: Final = (
    rf"(?:{_SHOWN}|protocol|shapes?|strings?|pattern|repl(?:y|ies)|outputs?|answers?|texts?|instructions?){_HEAD}"
)
_WORK: Final = (
    r"(?:re-?)?(?:issu|send|run|execut|tr(?:y|ies)|perform|retry|repeat|invok|double-check|check|look|find|search"
    r"|grep|see(?!n)"
    r"|read"
    r"|open|load|fetch|download|inspect|examin|view|verif|validat|confirm|test|debug|trac|investigat|analy[sz]|explor"
    r"|stud|fix|mend|correct|repair|updat|edit|chang|modif|adjust|adapt|refactor|rewrit|replac|renam|remov|delet"
    r"|clean"
    r"|add|creat|generat|build|compil|install|implement|mov|copy|sav|stor|appl|switch|clon|commit|format|lint|pars"
    r"|extract|count|compar|simplif|extend|prepar|determin|figure|locat|identif|understand|review|handl|log|insert"
    r"|patch|sort|refin|merg|import|filter|split|dig|div(?:e|ing)|gather|collect|retriev|query|queri|research"
    r"|call(?:ing)?\b|writ|calculat|comput|measur|monitor|track|scan|brows|visit|navigat|click|convert|reproduc"
    r"|diagnos"
    r"|profil|deploy|restart|kill|resolv|solv|upgrad|enabl|disabl|configur|initiali[sz]|connect|spawn|schedul|pull"
    r"|push"
    r"|fork|mount|poll|tackl|redo|undo|restor|back up|(?:take|have) (?:a|another)\b.*? look|list|grab|delegat|pick"
    r"|choos"
    r"|select|ask the|proceed|play|book|scroll|type the|remember|go to|get (?:the|your|some|more)"
    r"|turn(?:ing)? (?:on|off)|set (?:an?|the|your)(?! scene| stage| tone)|take a (?:screenshot|photo|picture))\w*"
)
_LIGHT: Final = (
    r"(?:mak(?:e|ing)|do(?:ing)?|get(?:ting)?|set(?:ting)?|put(?:ting)?|us(?:e|ing)|keep(?:ing)?|start(?:ing)?"
    r"|begin(?:ning)?|continu(?:e|ing)|finish(?:ing)?|complet(?:e|ing)|turn(?:ing)?|take|work(?:ing)?|follow(?:ing)?"
    r"|help|think|know|learn|answer|bring|pass|process|address|place|narrow|reduce|increase|play|book|wire|hook"
    r"|need|roll"
    r"|stop|hand)"
)
"""Verbs that say nothing without the thing that they are about: "I'll keep it short"."""
_LIGHT_OBJECT: Final = (
    rf"(?:.*\b(?:{_THING}|backups?|timeouts?|limits?|flags?|values? (?:to|of)|refactor\w*|parser|migrations?"
    r"|deployments?|setup|environment|containers?|services?|api|ui|docs|readme|handlers?|components?|overview"
    r"|requests?|tools?|functions?|app\w*|project|step|task|work|changes?|edits?|search|calls?|code|list"
    r"|second"
    r"|other|information|forecast|looking|care|sure|one (?:instead|now)|details?|users?|weather|date|time"
    rf"|[\w-]+ instead)\b|.*`|.*\b[\w-]+\.\w{{1,4}}\b|.*(?:by|and|to) {_WORK}"
    r"|(?: (?:it|that|so|this|these|in parallel|them|both|him|her|you|everything|the rest|started|going|on|out|off"
    r"|up|down|now|first"
    r"|again"
    r"|then|next|right away|right now|please|too|quickly|about|with|together|for you|that way|step by step))*[^\w]*$)"
)
_OPENING: Final = (
    r"(?:let(?:['’]s| me| us)?|(?:i|we)(?:['’]\w+)?|will|am|would|like|need|should|must|want|have|can|going|to|now"
    r"|also|first|just|then|next|go|ahead|and|(?:start|begin)(?:ing)? by|by|\w+ly|step|\d+|time|try to)"
)
"""What stands before the verb of an announcement, and the verbs of work on things that are there already."""
match_work = re.compile(
    rf"\W*(?:{_OPENING}[\s,:*]+)*(?:{_WORK}\b|{_LIGHT}\b{_LIGHT_OBJECT}"
    r"|show (?:you )?the (?:contents?|files?|current|latest)\b)",
    re.IGNORECASE,
).match
"""An announcement that names work: an unknown verb may announce anything."""
match_reported = re.compile(
    r".*\b(?:that|whether|if|before|until|says?|said|told (?:me|us)|thinks?|claims?|why|what|how|when|where|which"
    r"|asked"
    r"|wrote)\s+$|.*\b(?:said|says?|wrote|replie[sd]|outputs?|answer(?:s|ed)?|announce[sd]?|model|assistant|agent"
    r"|bot)"
    r"\W*[:：]\W*$"
    r"|\W*(?!step|plan|next|now|sure|okay|first|then|note|thought|results?|also|action|task|goal|problem|fix|update)"
    r"(?-i:[A-Z])\w+(?: \([^)\n]*\))?[:：]\W*$",
    re.IGNORECASE | re.DOTALL,
).match
"""Before words that somebody else has said: "he said I should run it"."""
find_quoting = re.compile(
    rf"\b{_SPEAKER}\b.*\b(?:answer|repl(?:y|ie)|respond|sa(?:y|id)|writ|wrote|emit|produc|output|send|sent|print"
    r"|typ)\w*"
    r"|\b(?:speaks?|spoke|says?|said|writes?|wrote|answer(?:s|ed)|repli(?:es|ed)|respond(?:s|ed)|prints?|printed"
    r"|types?|typed"
    r"|the following|as follows|like this)\W*$",
    re.IGNORECASE,
).search
"""Before words of somebody else: "The agent answers like this. I'll list the files."."""
UNMEANT: Final = _words(
    r"^(?:i|let|we)\S*(?: \w+){0,2} (?:not|never|refuse|decline|skip|ignore|omit|leave|avoid)\b|^i can(?:not"
    r"|['’]t)\b",
    r"\bwithout (?:running|executing|calling|making|sending)\b|\bbut (?:i )?(?:won['’]t|will not|cannot|can['’]t"
    r"|do not|don['’]t|not)\b",
    r"\b(?:show|explain|describe|demonstrate|illustrate|quote|cite|paste|repeat|copy|recall|discuss|clarify"
    r"|present|include|give|consider|analy[sz]e|review|translate|imagine|suppose|assume|pretend|say)\b(?: (?:you"
    r"|down|out|here|again|first|only|just))*"
    r"(?:\W*$| (?:it|this|that|these|those|one|how|what)\b| (?:an?|the|another|some|my|your|his"
    r"|our)\b(?:\W+[\w-]+){0,3}?\W+(?:examples?|formats?|syntax|frames?|calls?|tags?|templates?|logs? (?:here"
    r"|line)|page|answers?|structure|transcripts?|snippets?|messages?|quotes?|strings?|command)\b)",
    r"\b(?:look at|see|take|use|start with|try)\b.{0,12}\b(?:an?|this|that|the following) (?:\w+ )?(?:examples?"
    r"|frames?|calls?|snippets?|tags?)\b"
    r"(?! (?:files?|folder|director\w+|project|code|app|script|config|test|in|from))",
    r"\bwrite (?:it(?! (?:in)?to )"
    r"|this|that"
    r"|the call)\b",
    r"\bknow (?:if|whether|when|what)\b|\bask (?:you|first|for|before|whether)\b|\bwait for (?:your|you)\b"
    r"|\btomorrow\b|\blater\b|\bonly if\b",
    r"\bfor (?:your|a) review\b|\bso that you\b|\b(?:for example|for instance"
    r"|e\.g\.|such as|like this|like so|as follows)\W*$",
    r"\b(?:was|were|had) (?:going|planned|about)\b|\bshould have\b|\b(?:ignore|skip|leave)\b (?:it|this|that"
    r"|the)\b|\b(?:tag|token|syntax|format|frame)s?\W*$",
    r"\b(?:quot(?:e|ing)|cit(?:e|ing)|past(?:e|ing)|repeat(?:ing)?|recit\w+|illustrat\w+|transcrib\w+|reproduc(?:e"
    r"|ing)|recap\w*|paraphras\w+|mention(?:ing)?|point out|spell (?:it|this|out)|warn you"
    r"|tell you)\b(?! (?:the )?(?:bug|issue|error|failure|problem|test)s?\b| \w+ locally)",
    r"\bthis was \w+|\bwhat (?:i|it|you|they|we) (?:would|could|looked)\b|\btwice\W*$|\bforms? of an?\b"
    r"|\bformat (?:it|this|that)\b",
    rf"\b(?:your|this|that|these|those|such an?) (?:[\w-]+ ){{0,2}}?(?:{_SHOWN}|answers?|repl(?:y|ies)|inputs?"
    r"|outputs?"
    rf"|responses?){_HEAD}|\ban? (?:[\w-]+ )?(?:template|definition|dataset|input|answer|reply){_HEAD}",
    r"\b(?:answers?|outputs?|responses?|messages?) (?:of|from|by)\b|\brepl(?:y|ies)\b|\bwith the definition\b"
    r"|\bsuch\b|\bthe wire\b|\b(?:send|write|understand|test) you\b|\bbefore (?:running|executing|calling"
    r"|sending) (?:it|this)\b|\badd (?:that|an? (?:warning|remark|note|word"
    r"|caveat))\b|\b(?:here|the subject|right words|between the lines|my memory|angle)\W*$|\b(?:dangerous|harmful"
    r"|destructive|unsafe|malicious|poem|joke)\b|\byour (?:\w+ )?(?:message|text|sentence|question)\b|\bdataset\b"
    r"|\bone line\b"
    r"|\byesterday\b|\blast (?:time|week|night|month|year)\b|\bit together\b|\b(?:with|by|past|read|whether) you\b"
    r"|\baloud\b|\b(?:piece by piece|by hand|for readability)\b|\b(?:fake|dummy|placeholders?)\b"
    r"|[\"”»]\W*(?:\w+ ){0,2}(?:said|says|replied|typed|thought|whispered|cried)\b|\bin (?:xml|json|hermes|qwen"
    r"|mistral|llama)\W*$|\bforms?\W*$|\bwriting it\b|\bonly (?:after|when|once)\b"
    r"|\btrying to .*\b(?:this|that|it)\b",
    r"(?<!in )\b(?:this|these|the following) (?!command|quer|change|edit|fix|approach|way|content)\w+[:：]\W*$",
    r"\b(?:show|explain|describe|demonstrate|clarify)\w*\b.{0,40}\b(?:an?|this|the following|one"
    r"|some) (?:\w+ )?examples?\b",
    r"\b(?:show|showing|explain|explaining|describe|describing)\b (?:you )?(?:something|what|how|why|where)\b",
    r"\b(?:write|type|print|put|note|mark)\b (?:(?:it|this|that)(?! (?:in )?(?:in)?(?:to|a|the) )|out|down|up"
    r"|the (?:frame|call|string|tag"
    r"|test input|raw \w+))\b",
    r"\b(?:i|we|you) (?:can )?see\W*$|\b(?:it|he|she|they|which) (?:says?|said|reads?|prints?|printed|wrote|writes"
    r"|answer\w*|contain\w*|show\w*|return\w*)\W*$",
    r"\bfrom (?:the|a|an|my|your|his|their) (?:\w+ )?(?:logs?|transcripts?|docs|documentation|manual|conversation"
    r"|chat"
    r"|history|page|email|ticket)\W*$",
    r"\bthe (?:transcript|raw \w+|following (?!content|command|change)\w+)\W*$|\banswer with\b|\bwhat not to\b",
    r"\b(?:permission|approval|confirmation|consent|whether to|refus\w+|exact|verbatim|literal\w*|by example"
    r"|word for word)\b|\b(?:wait|stop)\b(?!\w| the (?:server|process|container))",
    r"^\w+ing (?!(?:(?:(?:in|on|at|for|into|with|up) )?(?:the|another|my|your|a new)|it|them|again|now|that|if"
    r"|whether)\b|`)"
    r"[^:：.!…]*[:：]?$"
    r"|^(?:writing|parsing|understanding|emitting|wrapping|formatting)\b(?! (?:the|it|some)\b)",
    r"^(?:now|next|first|then|finally|lastly)\b,? (?:(?:for|the|an?|another) )+(?:\w+ )?(?:examples?|syntax"
    r"|formats?|frames?|tags?)\b",
    rf"^(?:now|next|first|then|finally|lastly)\b,? (?:for )?(?:the|an?|another) (?:\w+ )?(?!calls?\b){_TOLD}",
    r"^step \d+\W+the \w+ \w+s\W*$",
    rf"^(?!here\b|\w+,? (?:the|an?|another) (?:\w+ ){{0,2}}calls?\W*$|(?:{_OPENING}[\s,:*]+)*"
    r"(?:re-?)?(?:run|execut|mak|issu|send|perform|do\b|try|repeat|trac|call\b)\w*)"
    r".*?\b(?:an?|the|this|that|these|another|some|my|your|two|three|few)"
    rf"(?: [\w-]+){{0,2}}? {_SHOWN}{_HEAD}",
    r"^\w+ing\b(?:(?!\b(?:what|how|if|whether|why|where|(?<!like )that|which)\b).)*(?:, \w+ \w+|\b(?:is|are|was"
    r"|were|will"
    r"|would|can|could|should|must|means?|makes?|looks?|seems?)\b)|^\w+ing\b(?!.*\b(?:what|how|if|whether|why"
    r"|where)\b).*\b(?:gives?|gave"
    r"|shows?|reveals?|yield(?:s|ed)?|return(?:s|ed)|produce[sd]"
    r"|print(?:s|ed))\b|\bignoring (?:it|this|that|them|the)\b",
    rf"\b{_TELL}\b(?: (?!and\b|in\b)[\w-]+){{1,5}}? {_TOLD}",
    r"\b(?:stress|emphasi[sz]e|warn|note|state|admit|alert|caution)\b (?:that|about|against|you)\b|\bremind you\b",
    rf"\b{_SPEAKER}(?:['’]s)? (?:wrote|writes?|sent|sends?|said|says?|emit(?:s|ted)?|prints?|printed|produce[sd]?"
    r"|gave|gives?"
    r"|did|does|tried|answer(?:s|ed)?|repl(?:y|ies|ied)|response|respond(?:s|ed)?|outputs?|turn|message|call)\b",
    r"\bcompare (?:it|this|that|them) (?:with|to)\b|\bi can (?:only |already |also )?(?:see|guess)\b|\blearning\b"
    r"|\b(?:says?|said|sends?|sent|writes?|with|by|like) this\b|\bhave a (?:problem|question)\b",
    r"\b(?:record|report|repeat|tell|show|summari[sz]e)\b.{0,20}\bwhat (?:was|were|has been) \w+",
    r"^i(?:['’]m| am)(?: now| still)? (?:seeing|hearing|looking|reading|using|(?:getting|receiving) this|wondering"
    r"|asking|thinking|talking)\b"
    r"|^(?:i|we)(?:['’]ll| will) have \w+(?:ed|en)\b|\bask about\b"
    r"|\b(?:holds?|contains?|includes?) (?:this|that|these|the following)\W*$",
    r"\bfor (?:reference|documentation|illustration|completeness|the record)\W*$"
    r"|\b(?:in the style of|answer in)\b|^i (?:need|want) you\b|\bi (?:find|read|notice|spot)\W*$",
)
"""What makes of such words an announcement of something that is shown, or a refusal."""
OTHER_UNMEANT: Final = _words(
    r"^(?!.*(?:prüf|schau|les|such|führ|vérifi|regard|cherch|lis|lanc|corrig|revis|comprob|verific|ejecut|execut|busc"
    r"|control|cerc|провер|посмотр|запу|kijk|zoek)).*\b(?:syntaxe?|syntaxis|sintaxis|sintaxe|sintassi|format[eo]?"
    r"|formaat"
    r"|aufruf|appel|llamada|chamada|chiamata|aanroep|формат|синтаксис|вызов|modells|modèle|modelo|modello|модели)"
    r"(?: \w+)?\W*$",
    r"\b(?:erklär|erläuter|zitier|beschreib|veranschaulich|schilder)e?n?\b|\bin erinnerung\b"
    r"|\b(?:hier|ici|aquí|aqui|сюда|здесь)(?: \w+)?\W*$|\bein muster\b"
    r"|\b(?:dir|ihnen|euch|format|syntax|aufruf)\b.{0,40}\bzeigen\b|\bfolgende[sn]?\W*$"
    r"|\bdies\w* (?:aufruf|text|zeile|ausgabe|antwort)\b",
    r"\b(?:expliquer|citer|décrire|illustrer|(?:te|vous) (?:montrer|présenter|rappeler))\b"
    r"|\b(?:montrer|présenter)\b.{0,40}\b(?:format|appels?|syntaxe)\b",
    r"\b(?:explicar|citar|ilustrar|(?:describir|presentar|recordar|mostrar|explicar|citar)(?:te|les?|os))\b"
    r"|\b(?:mostrar|describir|descrever)\b.{0,40}\b(?:formato|llamadas?|chamadas?|sintaxis|sintaxe)\b"
    r"|\bc[oó]mo se escrib\w+|\b(?:te|lhe) mostrar\b",
    r"\b(?:spieg|descriv|illustr)\w*|\bcitare\b|\bmostrar(?:ti|vi|le)\b"
    r"|\bmostrare\b.{0,40}\b(?:formato|chiamat\w|sintassi)\b",
    r"\b(?:uitleg\w*|citeren|beschrijven|toelichten|laten zien)\b",
    r"\b(?:покажу|показать|объясн|поясн|процитир|опиш|опис(?:ать|ыва)|приведу|привести)\w*",
    r"(?:让|讓|我|来|來|将|將|先|会|會|要|再)(?:给你|給你|为你|為你|向你|您)?(?:展示|解释|解釋|说明|說明|介绍|介紹"
    r"|引用|演示|描述|举|舉|复述|複述|转述|轉述)"
    r"|(?:给|給)(?:你|您)看|写法|寫法|示范|示範|贴在|貼在|(?:这|這)[种種]格式"
    r"|(?:这|這)段(?:文|话|話|内容|內容)|(?:这里|這裡|这儿)[:：。]?\s*$",
    r"(?:説明|引用|紹介|提示|例示|解説|記載)(?:し|いたし)|(?<!表)示し|見せ|書き方|貼り付け|載せ",
    r"\b(?:beispiel|exempl?[eou]|ejemplo|esempi|voorbeeld|bijvoorbeeld|exempel|eksempel|przykład|příklad|пример"
    r"|приклад|например|örne[kğ]"
    r"|esimerk|contoh|péld|παράδειγμα)\w*|\bví dụ\b|例|范例|مثال|उदाहरण|ตัวอย่าง|לדוגמ|예를|예시",
    r"\b(?:würde|könnte|pourrai|podría|potre|poderia|zou)\w*|\b(?:serait|sería|sarebbe|seria)\b|\b(?:wie folgt"
    r"|so aus)\b"
    r"|\bcom[eo] (?:ceci|suit|ça|est[eo]|sigue|questo|segue)\b|如下|这样|這樣|このよう|次のよう|다음과",
    r"\b(?:schrieb|gestern|dijo|escribió|ayer|ieri|disse|ontem|вчера)\b|\b(?:написал|сказал|ответил)\w*|之前|昨天"
    r"|昨日|前回|어제"
    r"|用户(?:要求|让|请求|说)|模型|モデル|모델",
    r"붙여\s?넣|예제를 들|(?:설명|인용|소개|예시)(?:을|를)?\s?(?:하|해|드리)|보여\s?(?:드리|줄|주겠)",
)
"""The same in the other languages: that something is told, or shown to somebody."""
CONDITIONS: Final = _words(
    r"\b(?:if|once|when|after|unless|until|as soon as|provided) you\b|\bwith your (?:permission|approval)\b"
    r"|\bif (?:it is|that is|it['’]s|that['’]s) ok",
    r"^\W*(?:if|once|when|after|unless|until|as soon as|tomorrow|later|next (?:week|time|month|year))\b(?! that\b,)",
    r"\bif i (?:were|was|had|did|wanted)\b|\bmaybe\b|\bperhaps\b|\bhypothetical\w*|\bin theory\b",
)

REFUSALS: Final = _words(
    rf"\b{_DO}(?:s|d|ning|ing)? (?:nothing|none|no)\b",
    rf"(?:\bnot|n['’]t|\bnever|\bcannot|\bwithout|\bno one|\bnobody)\b(?:\W+\w+){{0,3}}?\W+{_DO}(?:s|ed|ning|ing)?\b",
    r"\b(?:will|would|should|must|shall|may|might|could|am|are)(?: not|n['’]t)\b|\bwon['’]t\b|\bshan['’]t\b"
    r"|\bcannot\b",
    r"\bnever\b|\brefus\w+|\bdeclin(?:e|es|ed|ing)\b|\brather not\b|\binstead of\b|\brather than\b|\bavoid\w*"
    r"|\bbeware\b",
    r"\b(?:forbidden|prohibited|disallowed|dangerous|unsafe|harmful|destructive|malicious|irreversible)\b",
    r"\bunable\b|\bnot able\b|\bno circumstances\b|\bno way\b|\b(?:should|could|might|would|must) have\b",
    r"\bagainst (?:my|the|our)\b|\bnot (?:a|an|the|what|how|to|something|allowed|permitted|safe|going)\b",
    r"\bnicht\b|\bkein\w{0,2}\b|\bnie(?:mals)?\b|\bweiger\w+|\bverboten\b|\bgefährlich",
    r"\bne\b.{1,40}\b(?:pas|jamais|plus)\b|\bn['’]\w+.{0,30}\b(?:pas|jamais)\b|\bjamais\b|\brefuse\b|\binterdit",
    r"\bno (?:voy|vamos|debo|debes?|debe|puedo|puedes?|ejecut\w*|lo|la|uses?|use|hagas?|haga|corras?|llam\w*"
    r"|quiero|har[eé]|se)\b",
    r"\bno \w+r[éáe]\b|\bnunca\b|\bjamás\b|\brechaz\w+|\bpeligros\w+",
    r"\bnon\b (?:\w+ ){0,2}\w+|\bmai\b|\brifiut\w+|\bpericolos\w+",
    r"\bnão\b|\brecus\w+|\bperigos\w+|\bniet\b|\bgeen\b|\bnooit\b|\bweiger\b|\binte\b|\baldrig\b|\bikke\b"
    r"|\baldri\b|\bekki\b",
    r"\bnigdy\b|\bnie (?:wolno|uruchom\w*|wykon\w*|wywoł\w*|będę|zrobię|rób|używ\w*)|\bnikdy\b|\bne(?:spust|vol"
    r"|děl|provád|budu|smí)\w*",
    r"\bне\b|\bнельзя\b|\bникогда\b|\bотказ\w+|\bніколи\b|\bне можна\b",
    r"\bδεν\b|\bμην?\b|\bποτέ\b|\bdeğil\b|\basla\b|m[ae]y[ae]ca[ğg]\w+|\bolmaz\b|\bälä\b|\bei saa\b|\ben (?:aja"
    r"|suorita|tee|kutsu)\b",
    r"\bkhông\b|\bđừng\b|\btidak\b|\bjangan\b|\bnem\b|\bsoha\b|\btilos\b|\bnu (?:voi|rula|execut\w*|trebuie)\b"
    r"|\bniciodată\b",
    r"不(?:会|會|要|能|应|應|可|该|該|想|得|许|許|执|執|运|運|调|調|使|建|是|行|做|再)|别|別|勿|拒绝|拒絕|禁止|绝不"
    r"|絕不|从不|危险|危險|没有(?:执行|运行|调用)",
    r"ない|ません|なかった|禁止|拒否|危険|않|말(?:아|고|것)|마세요|금지|거부|못\s?(?:합|하)|안\s?(?:됩|돼|하)|위험",
    r"لا |لن |ليس|ممنوع|नहीं|मत |ไม่|อย่า|לא |אל ת",
)
"""That it is not done, or must not be."""

find_example_label = re.compile(
    r"^[^\w\n]{0,8}(?:(?:counter-?)?examples?|samples?|cases?|scenarios?|illustrations?|demo\w*|inputs?|outputs?"
    r"|expected|actual|before|after|wrong|right|correct"
    r"|incorrect|good|bad|invalid|valid|do|don['’]t|prompts?|responses?|completions?|results?|notes?|warnings?"
    r"|caution|tips?|figures?|listings?"
    r"|snippets?|logs?|errors?|traces?|quotes?|sources?|usage|format|syntax|templates?|transcripts?|options?"
    r"|variants?|versions?|attempts?|tests?|test cases?|beispiele?|exemples?|ejemplos?|esempi[oe]?"
    r"|exemplos?|voorbeeld|przykład|пример\w*|приклад|例子?|示例|範例|예시?)\b(?:[ \t]*[#№(]?[ \t]*\d+|[ \t]+(?:[a-z]"
    r"|[ivx]+|one|two|three|first|second)\b)?[ \t]*(?:\([^)\n]*\)|of\b[^:\n]*)?[ \t]*(?:[:：)*_—–-]|(?<=\d)\.|$)",
    re.IGNORECASE,
).search
"""A line that says what follows is one of several examples, the output of something, or the like."""
find_title = re.compile(
    r"\b(?:examples?|samples?|shots?|transcripts?|conversations?|dialog(?:ue)?s?|sessions?|logs?|history|outputs?"
    r"|responses?|formats?"
    r"|reproduce|cases?|scenarios?)\b[^.!?\n]{0,40}[:：]\s*$"
    r"|^\W*(?:turn|round|message|request|reply|table|appendix|section|chapter|exhibit|entry|record|page|slide"
    r"|scene|act|part)"
    r"\s*#?(?:\d+|[a-z]|[ivx]+)\W*$|^\W*end of\b",
    re.IGNORECASE,
).search
"""The title of such lines."""

_FOREIGN_LINES: Final = (
    # logs
    r"[\[(<]?\d{4}[-/.]\d\d[-/.]\d\d|[\[(<]?\d{1,2}:\d\d(?::\d\d)?\b|[A-Z][a-z]{2} [ \d]\d \d\d:\d\d|\d{10,13}[ \t.]",
    r"(?-i:\[?(?:TRACE|DEBUG|INFO|NOTICE|WARN(?:ING)?|ERROR|CRITICAL|FATAL)\b)|(?-i:\w+:\w+:)",
    # diffs, and the output of grep
    r"@@ |diff --git |index [0-9a-f]{7}|--- \S|\+\+\+ \S|[+-](?=[^\s\d+-])|[+-]$",
    r"[\w./\\-]+\.\w{1,5}:(?!//)|[\w./\\-]+\.\w+[:(]\d+[:)]|[\w./-]+:\d+[:-]",
    # shells
    r"(?:\w+@[\w.-]+[^\n]{0,40}|\(\w+\) |[~/][\w./~-]{0,40} ?)?[$%#❯➜»]\s+\S|PS [A-Z]:[^\n]*>|>>> |\.\.\. "
    r"|In \[\d+\]",
    r"Out\[\d+\]|C:\\",
    # tables, quotations, comments
    r"\|.*\||\|[ \t]*$|[|+][-=+:| ]{3,}",
    r">|//|/\*|\*/|<!--|-->|%%? |;|\^|[↑←↓→]|REM |\* \S.*\*/",
    # people who talk
    r"[\[(*_]{0,3}(?:assistant|ai|bot|chatbot|model|agent|system|tool|function|user|human|question|q|a|answer|gpt"
    r"|claude|qwen"
    r"|llama|assistent|asistente|assistente|ассистент|助手|アシスタント|어시스턴트)[\])*_]{0,3}"
    r"(?: \([^)\n]*\))?\W{0,3}[:：](?!\S*//)",
    r"[\[(](?:assistant|user|human|ai|bot|system|tool)[\])]|<\|im_start\|>|<\|start_header_id\|>|\[INST\]",
    r"#{1,6} *(?:assistant|user|system|instruction|response|input|output)\b",
    # programs, JSON and YAML
    r"(?-i:(?:def|class|fn|func|const|let|var|import|from|public|private|static|function)\s+[\w.*{]+\s*(?:[=({:;<]"
    r"|import\b))",
    r"(?-i:(?:print|printf|echo|assert|throw|raise|console\.log|curl|grep|sed|awk|cat|SELECT"
    r"|INSERT)\b[ (]\S*[^.!?]*$)",
    r"[\w.\[\]\"'-]+\s*(?:=|\+=|:=|=>|<-)\s*\S?|[\"'][\w -]+[\"']\s*:|[{}\[\](),;\"'`]+[ \t]*$|- ?[\w-]+: *(?![A-Z])",
    r"[\w-]+:\s*[|>][-+]?\s*$",
    # other markup
    r"\.\. |::|[.=*_+~-]{4,}[ \t]*$|\[(?:source|listing|quote|verse|example|literal|,)[^\]]*\]|#\+|:[ \t]",
    r"\\(?:begin|verb|texttt|lstinline|item|end)|(?:bc|bq|pre|notextile)\.{1,2}[ \t]|.*\bThought:",
    r"</?(?:pre|code|samp|kbd|tt|example|blockquote|details|summary|li|td|th|tr|p|div|span)\b",
)
match_foreign_line = re.compile(rf"[ \t]*(?:{'|'.join(_FOREIGN_LINES)})", re.IGNORECASE).match
"""A line that no model writes before a call."""
