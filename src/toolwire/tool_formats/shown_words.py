"""What an announcement of work consists of besides its noun, and the words that say that it is about words.

A model may work on anything, so what it works on is no closed list. What can be shown is nearly one: texts, parts of
texts, forms of calls, and those who speak. The verbs stay a list: an unknown verb may announce anything.
"""

from __future__ import annotations

import re
from functools import partial
from typing import Final

SHOWN: Final = frozenset(
    """actor actual advice advocate afterwards ambiguity analogy anecdote answer anything appendix argument
    assistant attack attacker attention best bit boss bot brace bracket call care character chatbot chatml
    chinese chorus citation claim clause clear command comment completion concept concern conclusion concrete
    confusion consequence convention conversation counterexample culprit curse danger definition demo
    demonstration detail dialog dialogue dice dinner disaster discussion doubt drama dream echo emitted english
    essay eventually evil example excerpt exchange exercise explanation exploit expression fiction figure film
    footnote form format formula frame french friday game german grammar guess haiku harm herme hermes hero hint
    holiday honest idea illustration injection input instance instruction invocation itself japanese joke json
    jsonl knowledge language latex latin letter line lingo literal llama llm lunch lyric magic malware markdown
    markup mean meaning meant message metaphor mind mistake mistral model monday myself name narrator notation
    note novel objection opinion option order outline output paragraph paraphrase parenthese parenthesi
    parenthesis parody part passage payload permission phrase piece play poem poetry point poison post prank
    prompt proof proposal prose protocol proverb question quotation quote quoted qwen reader recap record remark
    rendering reply report representation response riddle risk ritual role room row rule sample saturday saying
    scenario scene self sens sent sentence sequence shape shell short side sketch snippet someday somethin
    something sometime sonnet soon spanish speech spell spelling statement story straight string style summary
    sunday supervisor supper syntax tag tale talk team template term text theory thing thought thursday tip
    token transcript transcription translation trick trouble tuesday tutorial understanding user utterance
    variant verse warning water wednesday weekend wire word wording wrote xml yaml yourself""".split()
)
"""Nouns, and what is as good as one. An announcement with one of them stays a mention, unless its nouns are known."""
find_shown = re.compile(
    r"\b(?:this|these|those)(?: (?:(?:one|two|three|few|\d+)\W*$|(?:to|in|on|out|for|with|as|at|number|is|are"
    r"|was|were"
    r"|by|from|up|down|and)\b)|\W*$)|\b(?:this|these|those)\b[^.!]*[:：]\W*$|\b(?:that|this) ones?\b"
    r"|\b(?:in|to) (?:it|you)\W*$|\b(?:following|below|above|such|said|says?|you|yours"
    r"|your (?:version|call|text|words?|prompt|message|question|input|output|example|attention)|he|she|they|his|her"
    r"|somebody|someone|people|aloud|hypothetical\w*|verbatim|literally|pretend\w*|imagin\w+|suppos\w+|fake|fictional"
    r"|malicious|dangerous|tomorrow|yesterday|someday)\b|[?？“”„«»]",
    re.IGNORECASE,
).search
"""What points to a text, or says that somebody else works, or at another time."""
find_unsure = re.compile(
    r"\b(?:here|like|as|would|could|might|may|not|never|nothing|neither|nor|no|without|instead|rather|unless|if|when"
    r"|once|after|until|till|whenever|only|so to speak|later)\b|n['’]t\b|[\"]",
    re.IGNORECASE,
).search
"""Behind the verb: that it is not done, or not now."""
drop_compounds = partial(
    re.compile(
        r"\b(?:edge cases?|(?:type|tool|function|class|interface) definitions?|commit messages?|(?:debug|log"
        r"|build|test|compiler"
        r"|linter|command|console|terminal) (?:output|warnings?|messages?)|command line|input (?:field|file|data)s?"
        r"|output (?:folder|director(?:y|ies)|file|path)s?|line \d[\d–-]*|(?:first|last|next) \d+ lines|data models?"
        r"|make sure|in turn|nothing else|no (?:one|other \w+) else|model (?:class|file)(?:es|s)?|form (?:field"
        r"|component)s?"
        r"|exchange rates?|(?:descriptive|clear) message|(?:final|bug) reports?|(?:for|near|around) (?:you|us"
        r"|me)(?! to\b)|so (?:you|we|i)\b|as well)\b(?!\W*:)",
        re.IGNORECASE,
    ).sub,
    "file",
)
"""Words of work that are made of words for texts."""
match_subject = re.compile(
    r"\W*(?:let(?:['’]s| me| us)|(?:i|we)(?:['’]ll| will| need to| have to| should| must|['’]m (?:now )?going to"
    r"|['’]re going to| am (?:now )?going to| want to)(?: (?:also|first|now|just) (?:need|want|have) to| (?:need"
    r"|have) to)?"
    r"|(?:the|my|our) (?:next|last|first|final|second|third) (?:step|task|thing)(?: (?:is|will be)"
    r"| for me is)(?: now)? to|i (?:also|first|still|now|just|then) (?:need|want|have) to)(?: (?:now|first|then"
    r"|next|also|just|quickly|briefly|go ahead and|start by"
    r"|begin by|try to|try|need to|actually|simply|immediately|finally))*(?: |$)",
    re.IGNORECASE,
).match
"""Who works: the model itself, now."""
find_subjects = re.compile(
    r"\b(?:let(?:['’]s| me| us)|(?:i|we)(?:['’]ll| will| need| have| should| must|['’]m|['’]re| am| want"
    r"| (?:also|first|still|now|just|then) (?:need|want|have))|^\W*(?:the|my|our) (?:next|last|first|final"
    r"|second|third) (?:step|task|thing))\b",
    re.IGNORECASE,
).finditer
"""Where that may begin."""
_ANY_WORK: Final = (
    r"(?:re-?)?(?:annotate|append|archive|attach|authenticate|authorize|automate|backport|benchmark|bisect|boot"
    r"|bootstrap"
    r"|bump|bundle|cap|chmod|clamp|compress|containerize|crawl|curl|decompress|decouple|decrypt|dedent|dedupe"
    r"|deduplicate"
    r"|deserialize|detach|dockerize|downgrade|drain|dump|encrypt|evict|expand|export|filter|flatten|flush|format|grep"
    r"|guard|hash|hit|hoist|indent|index|ingest|inject|inline|instantiate|instrument|invalidate|isolate|kick off"
    r"|launch"
    r"|link|lock|map|memoize|migrate|minify|mock|modulari[sz]e|mutate|nest|normali[sz]e|nudge|optimi[sz]e|order"
    r"|pack|paginate|parallelize|parameteri[sz]e|parse|partition|patch|pause|peek at|pin|ping|pipe|plot|populate|port"
    r"|power|precompute|prepend|preload|prefetch|promote|provision|prune|purge|rebase|rebuild|reboot|recompile"
    r"|reconnect|recreate|recompute|refresh|regenerate|register|reinstall|relax|release|relocate|reload|reorder"
    r"|replay"
    r"|reset|resize|restructure|retrieve|return|revert|rewire|roll back|rollback|rotate|round|route|sanitize|scaffold"
    r"|scale|scrape|seed|serialize|shrink|shuffle|shut down|sideload|skim|slice|snapshot|snooze|squash|stage|stash"
    r"|strip|stub|stub out|subscribe|suspend|swap|sync|synchroni[sz]e|tail|terminate|throttle|toggle|trim|truncate"
    r"|tune|tweak|type-check|unblock|uncomment|undeploy|uninstall|unlock|unmount|unpack|unpin|unregister|unsubscribe"
    r"|unzip|upload|vacuum|vendor|warm up|watch|weigh|whitelist|wrap|zip|zoom in on)"
)
match_any_work = re.compile(
    rf"{_ANY_WORK}(?: (?:out|up|in|off|on|down|back|through|into|over|onto|against|for|at))?"
    r" (?:the|an?|all|each|every|both|my|our|its|their|some|two|three|four|five|\d+|`[^`]+`)(?: |$)",
    re.IGNORECASE,
).match
"""Verbs of work that `mention_words` has no need of elsewhere, and what is worked on."""
match_work_on_it = re.compile(
    rf"(?!format|pars|wrap|indent|annot|stage|order){_ANY_WORK} (?:it|them|that)(?: (?:back|now|again|first"
    rf"|up))*\W*$",
    re.IGNORECASE,
).match
"""The same of what was found before."""
match_progress = re.compile(
    r"\W*(?:(?:now|next|first|then|so|okay|finally)\W+)?(?=[a-z]+ing\b(?: (?:on|for|at|in|into|to|up|out))?"
    r" (?:the|an?|all|each|every|both|my|our|its|whether|if|`))",
    re.IGNORECASE,
).match
"""Work without who does it: "Checking the port"."""
find_finite = re.compile(
    r"[,:：;](?=.*\w)|\b(?:is|are|was|were|will|would|can|could|should|must|means?|makes?|gives?|looks?|seems?"
    r"|has|have|had|does|did"
    r"|yields?|returns?|prints?|helps?|works?|fails?|needs?|takes?|costs?|requires?|deletes?|removes?|shows?|i|we)\b",
    re.IGNORECASE,
).search
"""What makes of it the subject of a sentence, or a clause before one."""
match_own_work = re.compile(
    r"\W*(?:so |okay,? |good,? )?(?:i|we)(?:['’]ve| have)?(?: (?:just|now|already|also))* (?!imagin|pretend"
    r"|invent|dream|play|quot|ask"
    r"|jok|lied|mention|answer|explain|describ|promis|refus|learn)(?:wrote|written|built|ran|set|rewrote|split|\w+ed)"
    r" (?:the|an?|all|both|two|three|`|\d)",
    re.IGNORECASE,
).match
"""What the model did: "I've updated the handler"."""
find_verdict = re.compile(
    r"`|\b(?:fail\w*|miss(?:es|ing)|broken|stale|crash\w*|leak\w*|throws?|threw|swallow\w*|strip(?:s|ped)|shadow\w*"
    r"|duplicat\w*|expire[sd]?|timed out|circular|null|none|undefined|empty|nested|imports?|exports?|imported"
    r"|exported"
    r"|overwrit\w*|overflow\w*|deadlock\w*|race|registered|initiali[sz]ed|uninitiali[sz]ed|configured|deprecated"
    r"|cached"
    r"|hard-?coded|disabled|enabled|installed|outdated|unused|invalid|mismatch\w*|greedy|returns|returned"
    r"|request(?:s|ed)?"
    r"|retried|retries|blocks|queries|queried|parses|parsed|compiles?|compiled|renders?|rendered|re-renders"
    r"|blurry|nullable"
    r"|async|mutex|grep|heap|cursor|merge|merged|flushed|invalidated|truncated|exhausted|indentation|mb|kb|ms)\b",
    re.IGNORECASE,
).search
"""What is found of software: no story tells it."""
find_other_shown = re.compile(
    r"分析|解析|분석|\banali[zs]|\banalys|\battaque|\bataque|\b(?:sie|du|vous|tu|usted|voc[eê])\b|给你|用户|あなた"
    r"|\b(?:aufruf|text|wort|wörter|satz|sätze|format|syntax|antwort|ausgabe|nachricht|vorlage|prompt|modell"
    r"|assistent"
    r"|zitat|gedicht|geschichte|lied|wortlaut|schreibweise|muster|anleitung|schreib|formulier|sag|nenn"
    r"|les\w* vor|vorles"
    r"|übersetz|wiederhol|gib)\w*"
    r"|\b(?:appel|texte|mot|phrase|format|syntaxe|réponse|sortie|message|modèle|assistant|citation|poème|histoire"
    r"|chanson|écri|dire|dis\b|traduir|répét|formul|présent|reprodui|donn)\w*"
    r"|\b(?:llamada|texto|palabra|frase|formato|sintaxis|respuesta|salida|mensaje|modelo|asistente|cita|poema"
    r"|historia"
    r"|canción|escrib|decir|digo|traduc|repet|repit|formul|present|enseñ|reproduc|contar|cuent|chamada|palavra"
    r"|sintaxe"
    r"|resposta|saída|mensagem|diz|escrev|apresent|testo|parola|formato|sintassi|risposta|messaggio|modello|chiamata"
    r"|scriv|dir[eò]|ripet|present|raccont)\w*"
    r"|(?:вызов|текст|слов|фраз|формат|синтаксис|ответ|вывод|сообщени|модел|шаблон|цитат|стих|истори|напиш|скаж"
    r"|перевед"
    r"|повтор|расска|представ)\w*"
    r"|文本|单词|句|语法|語法|回复|回答|输出|輸出|消息|模型|提示|故事|诗|歌|复述|翻译|写|寫|说|說|讲|講|标签|字符串|调用"
    r"|テキスト|言葉|文章|形式|構文|返事|出力|メッセージ|モデル|プロンプト|話|詩|歌|書|言|述べ|呼び出し"
    r"|텍스트|단어|문장|형식|구문|답변|출력|메시지|모델|프롬프트|이야기|시를|노래|쓰|말하|적",
    re.IGNORECASE,
).search
"""Words for texts in other languages, and the verbs that make them."""
