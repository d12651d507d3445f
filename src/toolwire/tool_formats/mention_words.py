"""The words that say that the call behind or before them is only mentioned, or that it is meant.

They are English, and the most common ones of other languages. `mentions` looks for them in the sentences around a call.
"""

from __future__ import annotations

import re
from typing import Final


def _join_patterns(*patterns: str) -> re.Pattern[str]:
    return re.compile("|".join(patterns), re.IGNORECASE)


_DO: Final = (
    r"(?:run|call|execute|use|invoke|do|make|issue|emit|send|delete|perform|proceed|comply|be|try|ask|touch|write"
    r"|trigger"
    r"|follow|carry|allow|include|copy|type|paste|start)"
)

_THING: Final = (
    r"(?:files?|folders?|director(?:y|ies)|repo(?:sitory)?|project|code(?:base)?|tests?|suite|builds?|bugs?|errors?"
    r"|issues?|problems?|imports?|functions?|methods?|class(?:es)?|variables?|modules?|packages?|dependenc(?:y|ies)"
    r"|config\w*|settings?|servers?|clients?|ports?|databases?|tables?|quer(?:y|ies)|columns?|pages?|results?|weather"
    r"|disk|process|scripts?|branch(?:es)?|commits?|cache|versions?|paths?|endpoints?|routes?|loops?|fix(?:es)?|crash"
    r"|fixtures?|loader|linter|compiler|parser|docs|documentation|readme|changelog|steps?|tasks?|backups?|information"
    r"|refactoring|changes|edits?|checks?|apis?|ui|handlers?|components?|containers?|services?|environment|setup"
    r"|timeouts?"
    r"|limits?|flags?|requests?|tools?|app(?:lication|s)?|date|schemas?|migrations?|deployments?|data|sites|usages"
    r"|references|regex|logs?|models)"
)
_SPEAKER: Final = (
    r"(?:models?|attackers?|assistants?|agents?|llms?|bots?|qwen|llama|mistral|deepseek|hermes|kimi|glm|granite|gemma"
    r"|claude|gpt)"
)
STEPS: Final = _join_patterns(
    r"^\W*(?:now|next|then),? (?:another|the) (?:(?!bad|wrong|old|new|same|correct|first|second)\w+ ){1,2}call\W*$",
    r"\bhere(?:['’]s| is| goes| comes) (?:the|a|my|our) (?:(?!example|sample)\w+ ){0,2}calls?\W*$",
    r"\bhere(?:['’]s| is) (?:the|a|my) (?:fix|patch|edit|change)\b(?!.* (?:examples?|samples?|calls?|frames?)\W*$)",
    r"\bhere(?:['’]s| is) what i(?:['’]ll| will) do\b|\bhere we go\b|^\W*(?:i['’]m )?on it\b|^\W*will do\b",
    r"^\W*(?:an? )?(?:easy|quick|simple|obvious|small|one-line) fix[.:!]\W*$",
    r"^\W*action\W*:\W*$",
    r"^\W*(?:next|fix)(?: step| file| test)?\W*$|^\W*step \d+[^\w:：]*$",
    r"^\W*(?:one (?:more|last)|a final|final)(?: [\w-]+)? (?:check|file|fix|test|run)\b",
    r"\b(?:keep|continue) (?:going|looking|searching|working|trying|digging|exploring|reading)\W*$",
)
"""The next of several steps, without who does it."""
_NOT_FIRST_PERSON: Final = (
    "ejemplo|como|cuando|pero|esto|eso|quando|esempio|exemplo|isto|isso|cito|muestro|explico|copio|propongo|dejo|modelo"
    "|formato|no|primero|luego|ahora|nuevo|último|resultado|registro|código|texto|contenido|archivo|documento|estado|caso"
    "|paso|intento|extracto|fragmento|risultato|testo|contenuto|passo|ultimo|primo|segundo|secondo|questo|quello|todo"
    "|tutto|medio|titolo|título"
)
"""Words in -o at the beginning of a sentence that are no verbs of work."""
OTHER_ANNOUNCEMENTS: Final = _join_patterns(
    r"\b(?:ich|wir) (?!würde|könnte|möchte|sollte|hätte|habe|war|bin|denke|glaube|zeige|erkläre|zitiere|beschreibe"
    r"|empfehle|kopiere|lasse|warte|rate\b|schlage)\w+e\b"
    r"|(?:^|, |\b(?:dann|jetzt|nun|zuerst|zunächst|gleich|dazu|als nächstes) )(?!würde|könnte|hätte|habe|zeige"
    r"|erkläre)\w+en? (?:ich|wir)\b|\blass(?:en sie)? mich\b|^\W*(?:jetzt|nun|dann) (?:noch )?(?:die|der|das|den)\b"
    r"|\bich muss\b|\bmuss ich\b",
    r"\bje (?!(?:ne|n|pourrais|voudrais|dirais|suis|crois|pense|montre|cite|explique|propose|recommande|préfère"
    r"|conseille"
    r"|suggère|copie|rappelle|vous|te)\b)\w+[esx]\b|\bje (?:vous|te) (?:cherche|trouve|réserve|envoie|prépare)\b"
    r"|\bj['’](?!ai\b|avais|aurais|étais|explique|illustre)\w+|\bc['’]est parti\b|\blaisse(?:z-|-)moi\b"
    r"|\bpermett?e?[zs]-moi\b"
    r"|\b(?:commen[çc]ons|voyons|regardons|vérifions|lan[çc]ons|examinons|testons|cherchons|ouvrons|lisons"
    r"|exécutons)\b",
    # the first person of Spanish, Italian and Portuguese, before its object
    rf"(?:^|[,;.!¡:] ?)(?:listo |claro |ahora |primero |ya |hecho |lo |la |los )*(?!(?:{_NOT_FIRST_PERSON})\b)"
    r"[^\W\d]{3,}o(?= (?:ahora|subito|lo|la|los|las|el|un|una|tu|su|le|gli|i|il|seu|con|en|a|de|se|si)\b|[.!]?$)",
    r"\b(?:voy a|vamos \w+r|vamos a|d[eé]ja(?:me|dme)|d[eé]jeme|perm[ií]t[ae]me|consultar[eé]|buscar[eé]|ahora \w+o)\b",
    r"\b(?:vado a|sto per|fammi|adesso \w+o|ora \w+o|vou \w+|deixe-me|deixa eu|agora \w+o|tengo que|necesito"
    r"|preciso|devo|je dois)\b|\b(?:estou|estoy|sto) \w+ndo\b|\b(?:te|le|vi|ti) (?:ayudo|aiuto) con\b"
    r"|(?:^|[.!] )(?!quando\b)[^\W\d]{3,}(?:ando|endo|indo) (?:o|a|os|as|um|uma|seu|sua)\b",
    r"\bik (?:zal|ga|moet|kijk|zoek|controleer)\b|\blaat me\b|\bl[åa]t mig\b|\bjag (?:ska|kollar|tittar)\b"
    r"|\blad mig\b|\bla meg\b|\bsprawdz(?:ę|am|my)\b|\bzobacz(?:ę|my)\b|\bpozwól\b",
    r"(?:^|[.!¡,;] ?¡?)\W*(?:busco|consulto|reviso|verifico|compruebo|calculo|abro|envío|leo|ejecuto|reservo|añado"
    r"|actualizo|cerco|controllo|apro|leggo|prenoto|invio|aggiungo|procuro|verifico) (?!que\b|che\b)\w",
    # the first person of Russian, where no noun stands: at the beginning of a clause
    r"\b(?:теперь|сейчас|давай) \w+[еи]м\b|(?:^|[.,!—] ?|\b(?:сейчас|теперь|сначала|я|затем|поэтому|и) )"
    r"(?:(?!котор)[а-я]{2,}ю(?:сь)?|найду|(?:по)?ищу|вижу|пишу|запишу|напишу)\b|\bдавайте\b|\bпозвольте\b"
    r"|\bмне нужно\b",
    r"让我|讓我|我(?!们|們|不|没|沒|无|無|的|已|刚|剛|曾|想|觉|覺|认|認|是|只|可以|能|建议|建議|引用|推荐|把日志)"
    r"|(?:^|[，,。！!、我现在])\s*正在|马上|立即|立刻"
    r"|^需要|(?:^|[，,。！!、])\s*(?:先|再|接下来|接下來|下面|现在|現在|首先)(?!生|是|的)",
    r"(?<!され)(?<!なり)(?<!あり)(?<!でき)(?<!られ)ます(?:ね|ので)?(?:[。.:：、,!！]|\s*$)|ましょう|겠습니다|할게요|볼게요",
    r"\b(?:bakayım|\w+(?:ay[ıi]m|eyim)|bakalım|kontrol ed\w+|bakıyorum)\b|\bbiarkan saya\b|\bsaya akan\b"
    r"|\bđể tôi\b|\btôi sẽ\b|دعني|سأ|देख(?:ता|ती|ते|ने)|करता हूँ|แป๊บ|ขอ(?:ดู|ตรวจ)",
)
"""What a model says before a call in other languages: what it does itself."""
_SEEK: Final = (
    r"(?:v[eé]ri?fi\w*|comprob\w*|comprueb\w*|controll\w*|ver|voir|veo|vedo|vedere|regard\w*|mir\w*|savoir|saber)"
)
match_interjection = re.compile(
    r"\W*(?>(?:(?:give me )?(?:one|a|just a) (?:moment|second|sec|minute),? (?:while i|to) \w+(?: [\w'’-]+){1,8}"
    r"|ok(?:ay)?|sure(?: thing)?|yes|yep|great|perfect|good(?: morning)?|nice|excellent|done|al(?:l )?right"
    r"|understood|got it|found (?:it|them)|of course|certainly|absolutely|hello|hi|hm+|interesting|oops|on it|will do"
    r"|(?:(?:just|give me) )?(?:one|a) (?:moment|second|sec)(?: to (?:look|check))?"
    r"|please|noted|thanks?(?: you)?|(?:einen|un|um|один) (?:kleinen |petit )?(?:moment(?:o|ito)?|augenblick|instante?)"
    r"(?:,? (?:bitte|s['’]il (?:vous|te) plaît|por favor))?"
    r"|请稍等|稍等|少々お待ちください|잠시만요|looks? good|that worked|still failing"
    r"|happy to (?:check|look|help)|prima|super|gut|sofort|gleich|alles klar|in ordnung|perfekt|parfait|très bien"
    r"|d['’]accord|perfecto|muy bien|de acuerdo|bien"
    r"|perfeito|certo|perfetto|va bene|хорошо|отлично|好的?|明白了?|はい|わかりました|네|nun|maintenant"
    r"|right away|so far,? so good|(?:that['’]s |what )?an? (?:great|good|excellent|interesting) question"
    r"|(?:(?:i['’]ll|i will|i can|i['’]d be|i['’]m|i would be|let me)(?: be)? )?(?:(?:happy|glad) to )?help(?: you)?"
    r"(?: out)?(?: with (?:that|this))?"
    r"|right|no (?:problem|worries|matches|results|luck)(?: found)?|all (?:green|good)|almost (?:there|done)"
    r"|i can (?:help with|do) that|what['’]s up"
    r"|now|first|then|so|wait|i see|court)\W+)+",
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
    r"|(?:is|are|was|were)(?: still| now| all| also| not)? (?:missing|wrong|broken|empty|green|red|fine|correct|ready"
    r"|failing|passing"
    r"|running|there|here|invalid|outdated|installed))(?: (?:now|again|already))?"
    r"|(?:the )?user (?:wants|needs|would like) to (?:know|get|find|check)(?P<wanted> (?:the|a"
    r"|about) (?:[\w'’-]+ ?){1,6}))\W*",
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
match_outlook = re.compile(
    r"(?!.*\b(?:calls?|prompts?|formats?|tags?|syntax|examples?|pars\w+|explain\w*|show\w*|not|you (?:can|should"
    r"|could|need))\b)\W*"
    r"(?:(?:then|next|after(?:wards| that)|in this way|with (?:that|the results?)|(?:once|when|as soon as|after"
    r"|while|if)"
    r" (?:i|we|that|this|it|they|the \w+)(?:['’]\w+)?(?: [\w'’-]+){1,6}),? (?:i|we|the|it)(?:['’]ll| will| can|['’]ve)?"
    r"|(?:i|we)(?:['’]ll| will)(?: then| now)? (?:go on|continue|proceed|confirm|report|let you know|tell you"
    r"|get back|check back"
    r"|wait for (?:the|its) (?:results?|output|response)|(?:summari[sz]e|use|report) (?:it|them|the results?))"
    r"|this (?:may|might|could|should|will) (?:take|need|produce|cause|require))"
    r"\b[^?:]{0,120}",
    re.IGNORECASE,
).fullmatch
"""What it does with the result."""
match_reported = re.compile(
    r".*\b(?:that|is(?:n['’]t| not) (?:something|anything)|whether|if|before|until|says?|said|told (?:me|us)|thinks?"
    r"|claims?|why"
    r"|what|how|when|where"
    r"|(?<!, )which"
    r"|asked"
    r"|wrote)\s+$|.*\b(?:said|says?|wrote|replie[sd]|outputs?|answer(?:s|ed)?|announce[sd]?)\W*[:：]\W*$"
    r"|.*\b(?:model|assistant|agent|bot)[^\w,;]+$|.*[→⇒|>]\W*$"
    r"|\W*+(?!(?:(?:so|and|but|the|here['’]s|here is|my|our) )*(?:one last thing|step|plan|next|now|sure"
    r"|ok(?:ay)?|first|then|note"
    r"|thought"
    r"|results?|also|action|task|goal|problem|fix|update|issue|bug|cause|reason)\b)(?!.*\b(?:i|my|we"
    r"|our)\b).*[:：]\W*$",
    re.IGNORECASE | re.DOTALL,
).match
"""Before words that somebody else has said: "he said I should run it"."""
find_quoting = re.compile(
    rf"\b{_SPEAKER}\b.*\b(?:answer|repl(?:y|ie)|respond|sa(?:y|id)|writ|wrote|emit|produc|output|send|sent|print"
    r"|typ)\w*"
    r"|\b(?:speaks?|spoke|says?|said|(?<!the )writes?|wrote|answer(?:s|ed)|repli(?:es|ed)|respond(?:s|ed)|prints?"
    r"|printed"
    r"|(?:you|they|users?|he|she|it|i|we|who|and|then) types?|typed"
    r"|the following|as follows|like this)\W*$",
    re.IGNORECASE,
).search
"""Before words of somebody else: "The agent answers like this. I'll list the files."."""
match_invitation = re.compile(
    r"\W*(?:now |so |just |please )*(?:suppose|assume|consider|picture|imagine|pretend|observe|compare"
    r"|think of|say)\b(?!\W*$)",
    re.IGNORECASE,
).match
"""The reader is to think of something: what follows is not done."""
match_name = re.compile(
    r"(?!\W*(?:step|plan|next|now|todo|task|goal|problem|cause|status"
    r"|progress)\b)\s*(?:[^\W\d][^\n.!?…。！？:：]{0,60}(?<![\s,;])"
    r"|[\w./-]*\w\.\w{1,5}|[^\W\d][\w -]{0,30}[:：][ \t]*[^\n!?…。！？]{1,30}(?<![.\s]))\s*",
    re.IGNORECASE,
).fullmatch
"""A line that may name who speaks, as in a play, or what is shown: a name, a file, or a label with its value."""
OTHER_UNMEANT: Final = _join_patterns(
    r"\b(?:racconto|romanzo|poesia|frase|l['’]acte|scène|roman|poème|formaat|befehl (?:auf\W*$|melden|verweigern)"
    r"|vorstellen|meinen|anfrage ab|unterschied|antwort|wort(?:en|e)?"
    r"|missverständnis|aussage|diskussion|angriff|erlaubnis|zustimmung|abbrechen)\b",
    r"\b(?:réponse|mots|vérité|débat|attaque|différence|(?:votre|ton|sans) accord|bloquer|signaler|(?:je )?(?:vous"
    r"|te) laisse|(?:votre|ton) côté|respuesta|verdad"
    r"|debate"
    r"|ataque|palabras|bloquear|escena|sintaxis|resposta|sintaxe)\b",
    # who writes calls, and what they consist of
    r"\b(?:modell|agent|parser|assistent)(?:s|en)?\b|\baufrufe?n?\b|\bmod[eè]l[eo]s?\b|\bl['’]agent\b|\bagentes?\b"
    r"|\bllamadas?\b|\bchiamat[ae]\b|\bмодел\w+|\bагент\w*|\bпарсер\w*|\bвызов\w*|助手|解析器|智能体"
    r"|模型(?:会|将|正在|输出|写|说|回答|生成)|(?<!其)[他她](?!们的)|モデル|エージェント|パーサ|文字列|出力し|テキスト|挙げ|모델|에이전트|출력",
    r"记录|用户让|输出了|写道|真相|话题|話題|攻击|攻撃|공격|阻止|许可|許可|以下|如下|下面的|下面(?:只)?是|只是|供[您你]|要求我|下記|아래|呼び出し|コードを表示|コマンドを書|書いてみ|응답"
    r"|شرح|дискусси|следующ|ниже",
    r"\b(?:comme|como(?! (?:o|a|os|as|el|la|los|las|se|est[áa])\b)|als(?! nächstes| erstes))\b|\bvor\W*$"
    r"|\b(?:vorlage|muster)\b|\b(?:hier|ici|aquí|aqui|сюда"
    r"|здесь)(?: \w+)?\W*$",
    r"\b(?:beispiel|exempl?[eou]|ejemplo|esempi|voorbeeld|bijvoorbeeld|exempel|eksempel|przykład|příklad|пример"
    r"|приклад|например"
    r"|örne[kğ]|esimerk|contoh|péld|παράδειγμα)\w*|\bví dụ\b|例|范例|مثال|उदाहरण|ตัวอย่าง|לדוגמ|예를|예시",
    r"\b(?:erklär|erläuter|zitier|beschreib|zeig|expliq|explic|montr(?:e[rz]?|ons)\b|mostr|spieg|descri|uitleg"
    r"|citer|объясн|покаж"
    r"|показ)\w*"
    r"|展示|解释|解釋|说明|說明|介绍|介紹|引用(?!：|:|。|$)|演示|描述|格式|写法|寫法|这样|這樣|説明|紹介|書き方|見せ|설명|보여",
    r"\b(?:würde|könnte|pourrai|podría|potre|poderia|zou)\w*|\b(?:gestern|hier soir|ayer|ieri|ontem|вчера)\b"
    r"|昨天|昨日|어제",
)
"""The same in other languages."""
OTHER_CONDITIONS: Final = _join_patterns(
    r"\b(?:wenn|falls|sofern|sobald|solange|bevor|nachdem|morgen|übermorgen|später|vielleicht"
    r"|erst (?:dann|nach|ab|am|im))\b",
    r"\b(?:dès|lorsque?|quand|avant|après|à condition|pourvu|demain|plus tard|peut-être)\b|\bs['’]ils?\b",
    # behind a verb of looking it is "whether": "vérifier si", "ver si"
    rf"(?:^|[,;])\W*s[ie]\b|(?<![\w'’-])(?!{_SEEK}\s)[\w'’-]+ si\b",
    r"\b(?:cuando|en cuanto|siempre que|antes de|después|luego de|(?<!para )mañana|más tarde|quizás?|tal vez)\b",
    r"\b(?:quando|appena|purché|prima di|dopo|domani|più tardi|forse)\b",
    r"\b(?:assim que|desde que|depois|amanhã|mais tarde|talvez)\b|\b(?:als je|als u|zodra|nadat|morgen|misschien)\b",
    r"\b(?:если|когда|после|прежде|(?<!на )завтра|позже|потом|может быть)\b",
    r"\b(?:om du|när|imorgon|hvis|når|jeśli|gdy|jutro)\b",
    r"\b(?:kalau|jika|setelah|besok|nếu|khi|ngày mai|eğer|yarın)\b",
    r"如果|假如|要是|若|等(?:你|您|我|到)|之后|之後|以后|以後|明天(?!的)|稍后|稍後|也许|也許|たら|れば|なら|明日(?!の)|後で|(?:하|으|시|되)면|내일|나중에|إذا|غد|अगर"
    r"|यदि|कल",
)
"""That it depends, or is done another time: the conjunctions and adverbs that say so."""
CONDITIONS: Final = _join_patterns(
    r"\b(?:tell|give|say|send) (?:me|us|the word)\b.*(?:,| and) (?:then )?(?:i|we)(?:['’]ll| will)\b",
    r"\bplease (?!(?:hold|wait|bear|give me)\b)\w+.*\b(?:i|we)(?:['’]ll| will)\b",
    r"\b(?:if|once|when|after|unless|until|as soon as|provided) you\b|\byour (?:permission|approval|ok(?:ay)?"
    r"|consent|confirmation|go-ahead)\b"
    r"|\bif (?:it is|that is|it['’]s|that['’]s) ok",
    r"^\W*(?:if|once|when|after|unless|until|as soon as|tomorrow|later|next (?:week|time|month|year))\b(?! that\b,)",
    r"\bin (?:the|my|our|an?) (?:next|later|future|separate|other) (?!steps?\b|calls?\b)\w+\W*$",
    r"\b(?:tell|ask|give|answer|reply|confirm|approve|say|click|press|type)\b(?! (?:me"
    r"|us) what).{0,40}\band (?:then )?(?:i|we)\b",
    r"\b(?:overnight|someday|at (?:noon|midnight)|provided|assuming|manually|by typing|next (?:spring|summer"
    r"|autumn|winter))\b"
    r"|\bin (?:an?|two|three|a few|\d+) (?:minutes?|hours?|days?|weeks?|months?|years?)\b(?!['’])"
    r"|\bthe (?:wrong )?way\b(?! (?:to|in)\b)"
    r"|^\W*we can(?! now)\b",
    r"\bonly (?:if|when|after|once|then)\b|\bif i (?:were|was|had|did|wanted)\b|\bmaybe\b|\bperhaps\b"
    r"|\bhypothetical\w*|\bin theory\b",
)

REFUSALS: Final = _join_patterns(
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
    r"\bnon\b (?:\w+ ){0,2}\w+|\bmai (?:più|e poi)\b|\brifiut\w+|\bpericolos\w+",
    r"\bnão\b|\brecus\w+|\bperigos\w+|\bniet\b|\bgeen\b|\bnooit\b|\bweiger\b|\binte\b|\baldrig\b|\bikke\b"
    r"|\baldri\b|\bekki\b",
    r"\bnigdy\b|\bnie (?:wolno|uruchom\w*|wykon\w*|wywoł\w*|będę|zrobię|rób|używ\w*)|\bnikdy\b|\bne(?:spust|vol"
    r"|děl|provád|budu|smí)\w*",
    r"\bне\b|\bнельзя\b|\bникогда\b|\bотказ\w+|\bніколи\b|\bне можна\b",
    r"\bδεν\b|\bμην?\b|\bποτέ\b|\bdeğil\b|\basla\b|m[ae]y[ae]ca[ğg]\w+|\bolmaz\b|\bälä\b|\bei saa\b|\ben (?:aja"
    r"|suorita|tee|kutsu)\b",
    r"\bkhông\b|\bđừng\b|\btidak\b|\bjangan\b|\bnem\b|\bsoha\b|\btilos\b|\bnu (?:voi|rula|execut\w*|trebuie)\b"
    r"|\bniciodată\b",
    r"不(?:会|會|要|能|应|應|可|该|該|想|得|许|許|执|執|运|運|调|調|使|建|是|行|做|再)|(?<![月级類类特区區差性])[别別](?![名的人处處])|勿|拒绝|拒絕|禁止|绝不"
    r"|絕不|从不|危险|危險|没有(?:执行|运行|调用)",
    r"ない|ません|なかった|禁止|拒否|危険|않|말(?:아|고|것)|마세요|금지|거부|못\s?(?:합|하)|안\s?(?:됩|돼|하)|위험",
    r"لا |لن |ليس|ممنوع|नहीं|मत |ไม่|อย่า|לא |אל ת",
)
"""That it is not done, or must not be."""

_SHOWN: Final = (
    rf"(?:examples?|samples?|shots?|cases?|scenarios?|variants?|versions?|drafts?|options?|outputs?|{_SPEAKER}|training"
    r"|responses?|answers?|repl(?:y|ies)|completions?|turns?|transcripts?|conversations?|dialog(?:ue)?s?|sessions?"
    r"|logs?"
    r"|formats?|messages?|translations?|rewrites?|reproduce)\b"
)
find_title = re.compile(
    rf"\b{_SHOWN}[^.!?\n]{{0,40}}[:：]\s*\Z"
    rf"|^\W*(?:[\w'’-]+ ){{0,3}}?{_SHOWN}(?:[^\w\n]{{0,3}}(?:\d+|\w))?[^\w.!?…。！？]*\Z"
    r"|^\W*(?:examples?|samples?|test cases?|scenario|few-shot)\b[ \t]*#?\w{0,3}[ \t]*[:：]",
    re.IGNORECASE,
).search
"""A title of what is shown below it: one of several examples, the answer of a model."""

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
    r"role\s*[:=]|[\[(](?:assistant|user|human|ai|bot|system|tool)[\])]|<\|im_start\|>|<\|start_header_id\|>"
    r"|\[INST\]",
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
    r"\\(?:begin|verb|texttt|lstinline|item|end)|(?:bc|bq|pre|notextile)\.{1,2}[ \t]|.*[^\s*]\s*\bThought:",
    r"</?(?:pre|code|samp|kbd|tt|example|blockquote|details|summary|li|td|th|tr|p|div|span)\b",
)
match_foreign_line = re.compile(rf"[ \t]*+(?:{'|'.join(_FOREIGN_LINES)})", re.IGNORECASE).match
"""A line that no model writes before a call."""
