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
    r"|client|port|database|tables?|quer(?:y|ies)|columns?|pages?|results?|weather|disk|process|script|branch|commits?"
    r"|cache|versions?|paths?|endpoints?|routes?|loops?|fix|crash|fixtures?|loader|linter|compiler)"
)
STATUS: Final = _words(
    r"`[^`\n]+`|\b[\w-]+\.(?:py|js|ts|tsx|rs|go|c|h|cpp|java|rb|md|txt|json|ya?ml|toml|cfg|ini|sh|sql|html|css)\b",
    rf"\b(?:{_THING}|user (?:wants|needs|is asking|asks (?:for|about)))\b",
)
"""What a statement before a call is about: the work. A story, a label or a remark is not."""
STEPS: Final = _words(
    r"^\W*(?:now|next|first|then|finally|second|third|lastly|and|also)\b,? (?:for |on to )?(?:the|another|your|our)"
    rf" (?:(?!bad|wrong|worst|naive|last)[\w'’.-]+ ){{0,3}}?(?:{_THING}|handlers?|views?|models?|frontend|backend"
    rf"|docs|readme"
    r"|changelog|code|parser|controller|components?|schema|types?|migrations?|api|forecast|`[^`]+`)\W*$",
    r"^\W*(?:now|next|then),? (?:another|the) (?:(?!bad|wrong|old|new|same|correct|first|second)\w+ ){1,2}call\W*$",
    r"^\W*(?:next(?: step| file| test)?|fix)\W*$|^\W*step \d+[^\w:：]*$|^\W*(?:one more"
    r"|final) (?:check|file|fix|test)\b"
    r"|\bhere we go\b|^\W*here goes\b|^\W*(?:on it|will do)\b",
    r"\bhere(?:['’]s| is) what i(?:['’]ll| will) do\b|\bhere(?:['’]s| is) (?:the|a|my) (?:fix|patch|edit|change"
    r"|(?:updated|new|corrected|fixed) (?!examples?|formats?|syntax|frames?|calls?)\w+)\b"
    r"(?!.* (?:examples?|samples?|calls?|frames?)\W*$)",
    r"\bhere(?:['’]s| is| goes| comes) (?:the|a|my|our) (?:(?!example|sample)\w+ ){0,2}calls?\W*$",
)
"""The same without saying who does it: the next of several steps."""
OTHER_ANNOUNCEMENTS: Final = _words(
    r"\bich (?:werde|rufe|prüfe|schaue|sehe|suche|lese|hole|führe|starte|frage|öffne|behebe|korrigiere|ändere|erstelle"
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
    r"|(?:接下来|接下來|首先|现在|現在|^先|下面)[^。：:]{0,6}(?:读取|讀取|运行|執行|执行|查看|检查|檢查|修改|搜索|打开|更新|创建|安装|测试|修复)",
    r"ます(?:ね)?[。.:：]?\s*$|ましょう|みます",
    r"겠습니다|할게요|볼게요",
)
"""The same in other languages."""
match_interjection = re.compile(
    r"\W*(?:(?:ok(?:ay)?|sure(?: thing)?|yes|yep|great|perfect|good(?: morning)?|nice|excellent|done|al(?:l )?right"
    r"|understood|got it|found (?:it|them)|of course|certainly|absolutely|hello|hi|hm+|interesting|oops|on it|will do"
    r"|(?:just )?(?:one|a) (?:moment|second|sec)|please|thanks?(?: you)?|looks? good|that worked|still failing"
    r"|no problem|all (?:green|good)|almost there|i can (?:help with|do) that|court)\W+)+",
    re.IGNORECASE,
).fullmatch
"""A few words that say nothing of the call. "court" is a token that some models write before `<invoke>`."""
_TELL: Final = (
    r"(?:show|sketch|outline|introduc|defin|summari[sz]|report|highlight|rephras|reword|dissect|break|walk|recount"
    r"|restat"
    r"|reproduc|exemplif|describ|explain|present|giv|point|nam|list|includ|document)(?:e|ing|y)?(?: down| out| to)?"
)
_HEAD: Final = r"(?=\W*$| (?:of|for|that|which|to|into|as|by|here|below|from|with|used|itself|has|have|had|i|sent)\b)"
"""Behind a noun that is the last of its phrase: "the call", but not "the call sites"."""
_SHOWN: Final = (
    r"(?:prompts?|turns?|variants?|(?:counter-?)?examples?|samples?|specimens?|calls?|payloads?|notations?|grammar"
    r"|formats?|syntax|injections?"
    r"|attacks?|attackers?|transcripts?|snippets?|frames?)"
)
_TOLD: Final = (
    rf"(?:{_SHOWN}|protocol|shapes?|strings?|pattern|repl(?:y|ies)|outputs?|answers?|texts?|instructions?){_HEAD}"
)
_WORK: Final = (
    r"(?:re-?)?(?:make|making|issu|send|run|execut|tr(?:y|ies)|do|place|perform|retry|repeat|invok|start (?:the|a)"
    r"|continu|finish|check|look|find|search|grep|see|read|open|load|fetch|get|download|inspect|examin|view|verif"
    r"|validat"
    r"|confirm|test|debug|trac|investigat|analy[sz]|explor|stud|fix|mend|correct|repair|updat|edit|chang|modif|adjust"
    r"|adapt|refactor|rewrit|replac|renam|remov|delet|clean|add|creat|generat|build|compil|install|implement|mov|copy"
    r"|sav|stor|appl|us(?:e|ing) (?:the|a)\b(?! following)|follow|work|switch|clon|commit|format|lint|pars|extract"
    r"|count|compar|simplif|extend|complet|prepar|set|put|determin|figure|locat|identif|understand|review"
    r"|decod|encod|wrap|handl|plot|log|insert|patch|sort|refin|merg|import|dump|print|filter|split|begin(?! by)"
    r"|start(?! by)|proceed"
    r"|dig|div(?:e|ing)|help|gather|collect|retriev|query|research|call(?:ing)?\b|writ|calculat|comput|measur|monitor"
    r"|track|scan|brows|visit|navigat|click|convert|reproduc|diagnos|profil|deploy|restart|stop|kill|resolv|solv|upgrad"
    r"|enabl|disabl|configur|initiali[sz]|us(?:e|ing)\b|keep|learn|know|think|answer (?:him|her|them)|wir|hook|connect"
    r"|spawn|roll|play|book|schedul|pull|push|fork|mount|process|poll|tackl|address|reduc|increas|narrow|expand|redo"
    r"|undo|restor|back up|rerun|take (?:a|another|care)|turn|list|need (?:the|its)|queri|grab|bring|pass|expos"
    r"|delegat|hand)\w*"
)
_OPENING: Final = (
    r"(?:let(?:['’]s| me| us)?|(?:i|we)(?:['’]\w+)?|will|am|would|like|need|should|must|want|have|can|going|to|now"
    r"|also|first|just|then|next|go|ahead|and|(?:start|begin)(?:ing)? by|by|\w+ly|step|\d+|time|try to)"
)
"""What stands before the verb of an announcement, and the verbs of work on things that are there already."""
match_work = re.compile(
    rf"\W*(?:{_OPENING}[\s,:*]+)*(?:{_WORK}\b|show (?:you )?the (?:contents?|files?|current|latest)\b)", re.IGNORECASE
).match
"""An announcement that names work. Before a colon, and where nobody says who does it, an unknown verb is none."""
match_telling = re.compile(
    rf"\W*(?:{_OPENING}[\s,:*]+)*(?:{_TELL}|quot\w+|demonstrat\w+|illustrat\w+|offer|suggest|propose|hold|leav\w+|ask"
    r"|warn\w*|mention\w*|reconstruct|stop|your|take the)\b|\W*(?:now|next|first|then|finally|lastly|also|step|time)\b",
    re.IGNORECASE,
).match
"""An announcement that something is told, or one without a verb of the model."""
match_reported = re.compile(
    r".*\b(?:that|whether|if|says?|said|told (?:me|us)|thinks?|claims?|why|what|how|when|where|which|asked"
    r"|wrote)\s+$|.*\b(?:said|says?|wrote|replie[sd]|outputs?|answer(?:s|ed)?|announce[sd]?|model|assistant|agent|bot)"
    r"\W*[:：]\W*$",
    re.IGNORECASE | re.DOTALL,
).match
"""Before words that somebody else has said: "he said I should run it"."""
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
    r"^let\S*(?: us| me)? (?:imagine|suppose|say|assume|pretend|discuss|consider|not)\b|\bwrite (?:it(?! (?:in)?to )"
    r"|this|that"
    r"|the call)\b",
    r"\bknow (?:if|whether|when|what)\b|\bask (?:you|first|for|before|whether)\b|\bwait for (?:your|you)\b"
    r"|\btomorrow\b|\blater\b|\bonly if\b",
    r"\bbe (?:clear|honest|careful)\b|\bfor (?:your|a) review\b|\bso that you\b|\b(?:for example|for instance"
    r"|e\.g\.|such as|like this|like so|as follows)\W*$",
    r"\b(?:was|were|had) (?:going|planned|about)\b|\bshould have\b|\b(?:ignore|skip|leave)\b (?:it|this|that"
    r"|the)\b|\b(?:tag|token|syntax|format|frame)s?\W*$",
    r"\b(?:quot(?:e|ing)|cit(?:e|ing)|past(?:e|ing)|repeat(?:ing)?|recit\w+|illustrat\w+|transcrib\w+|reproduc(?:e"
    r"|ing)|recap\w*|paraphras\w+|mention(?:ing)?|point out|spell (?:it|this|out)|warn you"
    r"|tell you)\b(?! (?:the )?(?:bug|issue|error|failure|problem|test)s?\b| \w+ locally)",
    r"\bthis was \w+|\bwhat (?:i|it|you|they|we) (?:would|could|looked)\b|\btwice\W*$|\bforms? of an?\b"
    r"|\bformat (?:it|this|that)\b",
    rf"\b(?:your|this|that|these|those) (?:[\w-]+ ){{0,2}}?{_SHOWN}{_HEAD}",
    r"(?<!in )\b(?:this|these|the following) (?!command|quer|change|edit|fix|approach|way)\w+[:：]\W*$",
    r"\b(?:show|explain|describe|demonstrate|clarify)\w*\b.{0,40}\b(?:an?|this|the following|one"
    r"|some) (?:\w+ )?examples?\b",
    r"\b(?:show|showing|explain|explaining|describe|describing)\b (?:you )?(?:something|what|how|why|where)\b",
    r"\b(?:write|type|print|put|note|mark)\b (?:it(?! (?:in)?to )|this|that|out|down|up|the (?:frame|call|string|tag"
    r"|raw \w+))\b",
    r"\b(?:i|we|you) (?:can )?see\W*$|\b(?:it|he|she|they|which) (?:says?|said|reads?|prints?|printed|wrote|writes"
    r"|answer\w*|contain\w*|show\w*|return\w*)\W*$",
    r"\bfrom (?:the|a|an|my|your|his|their) (?:\w+ )?(?:logs?|transcripts?|docs|documentation|manual|conversation|chat"
    r"|history|page|email|ticket)\W*$",
    r"\bthe (?:transcript|raw \w+|following \w+)\W*$|\banswer with\b|\bwhat not to\b",
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
    rf".*?\b(?:an?|the|this|that|these|another|some|my|your|two|three|few)"
    rf"(?: [\w-]+){{0,2}}? {_SHOWN}{_HEAD}",
    r"^\w+ing\b(?!.*\b(?:what|how|if|whether|why|where|that|which)\b).*(?:, \w+ \w+|\b(?:is|are|was|were|will|would"
    r"|can|could|should|must|means?|makes?)\b)|^\w+ing\b(?!.*\b(?:what|how|if|whether|why|where)\b).*\b(?:gives?|gave"
    r"|yield(?:s|ed)?|return(?:s|ed)|produce[sd]"
    r"|print(?:s|ed))(?: (?:this|that|the following))?\W*$|\bignoring (?:it|this|that|them|the)\b",
    rf"\b{_TELL}\b(?: (?!and\b|in\b)[\w-]+){{1,5}}? {_TOLD}",
    r"\b(?:stress|emphasi[sz]e|warn|note|state|admit|alert|caution)\b (?:that|about|against|you)\b|\bremind you\b",
    r"\b(?:models?|attackers?|assistants?|llms?|bots?) (?:wrote|writes?|sent|sends?|said|says?|emit(?:s|ted)?|prints?"
    r"|printed|tried|answer(?:s|ed)|repli(?:es|ed))\b",
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
    r"|\bdies\w* (?:aufruf|text|zeile|ausgabe|antwort)\W*$",
    r"\b(?:expliquer|citer|décrire|illustrer|(?:te|vous) (?:montrer|présenter|rappeler))\b"
    r"|\b(?:montrer|présenter)\b.{0,40}\b(?:format|appels?|syntaxe)\b",
    r"\b(?:explicar|citar|ilustrar|(?:describir|presentar|recordar|mostrar|explicar|citar)(?:te|les?|os))\b"
    r"|\b(?:mostrar|describir|descrever)\b.{0,40}\b(?:formato|llamadas?|chamadas?|sintaxis|sintaxe)\b"
    r"|\bc[oó]mo se escrib\w+|\b(?:te|lhe) mostrar\b",
    r"\b(?:spieg|descriv|illustr)\w*|\bcitare\b|\bmostrar(?:ti|vi|le)\b"
    r"|\bmostrare\b.{0,40}\b(?:formato|chiamat\w|sintassi)\b",
    r"\b(?:uitleg\w*|citeren|beschrijven|toelichten|laten zien)\b",
    r"\b(?:покажу|показать|объясн|поясн|процитир|опиш|опис(?:ать|ыва)|приведу|привести)\w*",
    r"(?:让|讓|我|来|來|将|將|先|会|會|要|再)(?:给你|給你|为你|為你|向你|您)?(?:展示|解释|解釋|说明|說明|介绍|介紹|引用|演示|描述|举|舉|复述|複述|转述|轉述)"
    r"|(?:给|給)(?:你|您)看|写法|寫法|示范|示範|贴在|貼在|(?:这|這)[种種]格式"
    r"|(?:这|這)段(?:文|话|話|内容|內容)|(?:这里|這裡|这儿)[:：。]?\s*$",
    r"(?:説明|引用|紹介|提示|例示|解説|記載)(?:し|いたし)|(?<!表)示し|見せ|書き方|貼り付け|載せ",
    r"붙여\s?넣|예제를 들|(?:설명|인용|소개|예시)(?:을|를)?\s?(?:하|해|드리)|보여\s?(?:드리|줄|주겠)",
)
"""The same in the other languages: that something is told, or shown to somebody."""
CONDITIONS: Final = _words(
    r"\b(?:if|once|when|after|unless|until|as soon as|provided) you\b|\bwith your (?:permission|approval)\b"
    r"|\bif (?:it is|that is|it['’]s|that['’]s) ok",
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
    r"不(?:会|會|要|能|应|應|可|该|該|想|得|许|許|执|執|运|運|调|調|使|建|是|行|做|再)|别|別|勿|拒绝|拒絕|禁止|绝不|絕不|从不|危险|危險|没有(?:执行|运行|调用)",
    r"ない|ません|なかった|禁止|拒否|危険|않|말(?:아|고|것)|마세요|금지|거부|못\s?(?:합|하)|안\s?(?:됩|돼|하)|위험",
    r"لا |لن |ليس|ممنوع|नहीं|मत |ไม่|อย่า|לא |אל ת",
)
"""That it is not done, or must not be."""

SHOWING: Final = _words(
    r"\b(?:show|explain|describe|demonstrate|illustrate|quote|cite|document|teach|walk you through|clarify|discuss"
    r"|mention"
    r"|analy[sz]e|translate|rewrite|paraphrase|summari[sz]e|review|point out|recall|imagine|suppose|assume|pretend"
    r"|consider)"
    r"(?:s|d|ed|ing|n)?\b(?! (?:the )?(?:files?|weather|results?|tests?|logs?|code|repo\w*|data|folder|director\w+))",
    r"\bgive (?:you )?an?\b|\bwould (?:look|be|read|write|say|run|call|do|mean|delete|use|have|then|list|print"
    r"|give|cause|work)\b",
    r"\b(?:paste|copy|repeat|skip|ignore|leave|omit|include|enclose|attach)\b (?:it|this|that|these|the (?:frame"
    r"|log|call|text|tag|line))\b",
    r"\blet (?:me|us) know\b|\bask (?:you|first|for|before|whether)\b|\bwait for (?:your|you)\b|\btomorrow\b"
    r"|\blater\b|\bonce you\b|\bonly if\b",
    r"\b(?:this|that|the|an?) (?:\w+ )?(?:frames?|tags?|syntax|snippets?|quotes?|transcripts?|markup)\b"
    r"|\bfor (?:your|a) review\b",
    r"\bfor (?:example|instance)\b|\be\.\s?g\.|\bi\.\s?e\.|\bsuch as\b|\b(?:looks?|looking) like\b|\blike (?:this"
    r"|so|that|these)\b",
    r"\bas (?:follows|in|shown|seen|below|above)\b|\bthe following\b|\bbelow\b(?=\W*$)|\bnamely\b|\bso[- ]called\b",
    r"\b(?:this|that|here|it)(?:['’]s| is| was)(?: just| only| merely| simply| exactly| basically)?"
    r" (?:how|what(?! i(?:['’]ll| will)\b)|where|why)\b",
    r"\b(?:an?|one|another|each|every|first|second|third|last|next|this|that|these|following|sample|simple"
    r"|possible|typical|valid|invalid|malformed|correct|wrong) (?:\w+ ){0,2}(?:example|sample|snippet|excerpt"
    r"|illustration|template|placeholder|line|string|message|block|fragment)s?\b",
    r"\bhypothetical\w*|\btheoretical\w*|\bin theory\b|\bin principle\b|\bpurely\b|\bimagine\b|\bsuppose\b"
    r"|\bwhat if\b",
    r"\bif (?:i|you|we|one|they|someone|the (?:model|user|agent|assistant)) (?:were|was|had|wanted?|call\w*|r[au]n"
    r"|did|do|use\w*|write|wrote|say|said|type|send|sent|need\w*)\b",
    rf"\b{_WHO} (?:could|might|may|would)\b(?! like)",
    r"\b(?:you|one|people|users?|they|models?|agents?|assistants?|attackers?) (?:can|should|must|need|have to"
    r"|will|want to|then|types?|writes?|runs?|calls?|uses?|sends?|sees?|gets?|ha(?:s|ve)|do|does|put|return|emit"
    r"|produce)\b",
    r"\b(?:means?|meaning|stands for|represents?|denotes?|indicates?|corresponds?|consists?|begins with"
    r"|starts with|ends with|wrap\w*|enclos\w+|surround\w*)\b",
    r"\bbeispiel\w*|\bz\. ?b\.|\bwürde\w*|\bkönnte\w*|\bsieht so aus\b|\bwie folgt\b|\bso aus\b",
    r"\bexemples?\b|\bcomme (?:ceci|suit|ça)\b|\bpourrai\w+|\bserait\b|\bpar ex\b|\bejemplos?\b|\bpodría\w*"
    r"|\bsería\b|\bcomo (?:este|esto|sigue)\b",
    r"\besempi\w?\b|\bpotre\w+|\bsarebbe\b|\bcome (?:questo|segue)\b|\bexemplos?\b|\bpoderia\w*|\bseria\b"
    r"|\bcomo (?:este|segue)\b",
    r"\bvoorbeeld\w*|\bbijvoorbeeld\b|\bzou(?:den)?\b|\bexempel\w*|\bt\.ex\.|\beksempel\w*|\bprzykład\w*|\bnp\."
    r"|\bpříklad\w*|\bpéld\w+|\bexemplu\b",
    r"\bнапример\b|\bпример\w*|\bнаприклад\b|\bприклад\w*|\bπαράδειγμα\b|\börne[kğ]\w*|\besimerk\w+|\bví dụ\b"
    r"|\bcontoh\w*|\bmisal\w*",
    r"例如|比如|譬如|例子|示例|範例|范例|样例|樣例|举例|舉例|如下|这样|這樣|例えば|たとえば|例[:：]|このよう|次のよう|예를|예시|예[:：]|다음과|مثال|उदाहरण|ตัวอย่าง|לדוגמ",
)
"""That something is shown, explained or imagined."""

REPORTS: Final = _words(
    r"\b(?:previously|earlier|yesterday|formerly|once upon|last (?:time|week|night|turn|round|month|year|session)"
    r"|(?:days?|weeks?|minutes?|hours?|turns?) ago|back then|in the past|used to|already (?:ran|run|called|done"
    r"|executed|did))\b",
    r"\bi (?:\w+ )?(?:ran|called|executed|issued|sent|invoked|typed|wrote|did)\b|\bi(?:['’]ve| have"
    r"| had)(?: \w+)? (?:run|called|executed|issued|sent|invoked|made|done)\b",
    r"\b(?:was|were|been|got|is|are|be|being) (?:\w+ )?(?:run|called|executed|issued|sent|invoked|made|emitted"
    r"|produced|generated|printed|logged|written|returned|recorded|captured|copied|pasted|quoted|escaped|parsed"
    r"|rejected|ignored|blocked|stripped)\b",
    r"\b(?:did|does) (?:this|that|it|the following|so)\b",
    r"\b(?:asks?|tells?|says?|asked|told|wanted|instructed|requested|ordered|begged|urged|tricked"
    r"|tried)\b.{0,40}\bto\b(?:\W+\w+){0,2}?\W+" + _DO + r"\b",
    r"\b(?:says|said|wrote|writes|prints|printed|contains|contained|shows|showed|shown|reads|outputs?|emitted"
    r"|emits|produced|produces|generated|generates|replied|replies|answered|answers|responded|responds|logged|logs"
    r"|posted|pasted|typed|returned|returns|included|includes|has|had|got|saw|found|received|gave|gives|suggested"
    r"|suggests|recommends?|proposed|injected)\W*(?:(?:me|us|him|her|them|back|out|just|only|exactly"
    r"|literally)\W+)*(?:(?:this|that|these|the following|it"
    r"|as follows|something like this)(?: \w+){0,2})?\W*$",
    r"\b(?:hat|habe|hatte|wurde|wurden) .{0,60}\b(?:ausgeführt|aufgerufen|geschrieben|gebeten|gesagt)\b"
    r"|\bschrieb\b|\bfrüher\b|\bgestern\b",
    r"\ba (?:demandé|écrit|dit|répondu|exécuté)\b|\bhier\b(?= j)|\b(?:pidió|escribió|dijo|respondió|ejecutó"
    r"|ejecuté|ayer)\b|\b(?:ha (?:chiesto|scritto|detto|risposto)|ieri)\b|\b(?:pediu|escreveu|disse|respondeu"
    r"|ontem)\b",
    r"\b(?:просил|попросил|написал|сказал|ответил|вчера|ранее)\w*|之前|昨天|曾经|曾經|用户(?:要求|让|请求|说)|写道|说[:：]|回答[:：]|以前"
    r"|昨日|前回|어제|이전에",
)
"""That somebody else did it, or that it was done before."""

PERMISSIONS: Final = _words(
    r"\b(?:should|shall|may|can|could|do you want|would you like|want|are you sure|is it ok\w*"
    r"|ok if)(?: \w+){0,2} (?:i|me|we|us)\b.*\?",
    r"\b(?:is|does|did|was|are|why|how|what|which|where|who|could|would|can|should)\b.*\b(?:this|that|these|those"
    r"|it|the (?:call|command|model|frame|tag|line|output))\b.*\?",
    r"\b(?:confirm|approve|approval|permission|go ahead|sure\?|okay\?|ok\?|right\?|correct\?|agree)\b",
)
"""That it is asked first."""

SUBJECTS: Final = _words(
    r"\b(?:tool|function)[- ]?call(?:s|ing)?\b|\btags?\b|\b(?:special |control )?tokens?\b|\bframes?\b|\bpars(?:er"
    r"|ers|e|es|ed|ing)\b|\bmark-?up\b",
    r"\bprompts?\b|\bmodels?\b|\bllms?\b|\bthe assistant\b|\bdelimit\w+|\bmarkers?\b|\bsyntax\b|\bformats?\b"
    r"|\bschema\b|\bplaceholders?\b|\btranscripts?\b",
    r"\bexamples?\b|\bdocumentation\b|\bdocs\b|\bspec(?:ification)?s?\b|\btemplates?\b|\bsnippets?\b|\bchatml\b"
    r"|\bjson\b|\bxml\b|\byaml\b|\bmarkdown\b|\bgateway\b|\bregex\w*",
    r"\b(?:qwen|llama|mistral|deepseek|hermes|kimi|glm|granite|gemma|minimax|gpt-oss|harmony|anthropic|claude"
    r"|openai|vllm|sglang|ollama|react)\b",
    r"</?(?:tools?|tool_\w+|functions?|function_\w+|invoke|param\w*|arg_\w+|think|[|｜]|\w+:)|\[/?[A-Z_]{4,}\]",
    r"\bformato\b|\bformaat\b|\bформат\w*|\bsintax\w+|\bsyntaxe\b|\bsintassi\b|\bсинтаксис\w*|\bmodell\b"
    r"|\bmodèle\b|\bmodelo\b|\bmodello\b|\bмодель\b|格式|模型|语法|語法|标签|標籤|形式|モデル|タグ|構文|형식|모델|태그|구문",
)
"""That the text is about calls, formats and models."""

ABOUT: Final = _words(
    r"\b(?:(?<!in )this|that|these|those|it|its|one(?! moment)|ones|here(?! (?:is|are|you|it|comes?|goes)\b)|below"
    r"|above|such"
    r"|following|thus|something|similar)\b",
    r"\bcall(?:s|ed)?\b|(?<!some )(?<!prefix )(?<!suffix )\btexts?\b|\bstrings?\b|\blines?\b(?! \d)|\blogs?\b|\bbots?\b"
    r"|\bagents?\b|(?<!final )\banswers?\b"
    r"|\brepl(?:y|ies)\b",
    r"\bresponses?\b|\boutputs?\b|\bforms?\b|\bkind\b|\bcommands?\b|\bdrafts?\b|\bpropos\w+|\bsuggest\w+"
    r"|\brecommend\w+|\badvice\b",
    r"\bsolutions?\b|\bexercises?\b|\bquiz\b|\bideas?\b|\bkidding\b|\btest(?:ing)? (?:only|purposes|case)\b"
    r"|\bfor testing\b|\brecord\b",
    r"\billustrat\w+|\bpurposes?\b|\bcode\b|\bin (?:short|other words|theory|practice)\b|\bprecisely\b|\bcareful\b"
    r"|\bcaution\b|\battention\b",
    r"\bwarning\b|\bstop\b(?!\()|\bdon['’]t\b|\bdo not\b|^\W*not\b|\bcancel\w*|\babort\w*|\bdenied\b|\bpending\b"
    r"|\bsimulat\w*|\binject\w+|\battack\w*|\bharm\w*|\bfake\b|\bmock\b|\bdry run\b|\breject\w*|\bblocked\b"
    r"|\bskipped\b|\bdemo\w*|\bwait, no\b|\bnever mind\b|\bignor\w+"
    r"|\bmistakes?\b"
    r"|\bspot the\b|\binstead\b",
    r"\bnames?\b|\barguments?\b|\bparts?\b|\bexplanations?\b|\bbreakdown\b|\betc\b|\bso on\b|\bsecond thought\b"
    r"|\bask\b|\bdeletes?\b",
    r"\bquot\w+|\braw\b|\bwonder\w*|\bwas (?:about|going)\b|\bhad planned\b|\bthought about\b|\bbefore running\b"
    r"|\bmanual\b|\bsource\b",
)
"""Words of a text that is about something that it shows. A model that says what it does next needs none of them."""

APOLOGIES: Final = _words(
    r"^\W*(?:no|nope|nein|non|нет|不|いいえ|아니요)\s*[,.!:;。，！—–-]",
    r"\bsorry\b|\bunfortunately\b|\bi['’]m afraid\b|\bleider\b|\bdésolé\w*|\blo siento\b",
)
"""That it is refused, if nothing else follows."""

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
