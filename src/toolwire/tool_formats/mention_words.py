"""The words that say that the call behind or before them is only mentioned, or that it is meant.

They are English, and the most common ones of other languages. `mentions` looks for them in the sentences around a call.
"""

from __future__ import annotations

import re
from functools import partial
from typing import Final


def _words(*patterns: str) -> re.Pattern[str]:
    return re.compile("|".join(patterns), re.IGNORECASE)


_DO: Final = (
    r"(?:run|call|execute|use|invoke|do|make|issue|emit|send|delete|perform|proceed|comply|be|try|ask|touch|write"
    r"|trigger"
    r"|follow|carry|allow|include|copy|type|paste|start)"
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
    r"| can\b(?!['’]t)|(?:['’]d| would) like to (?=see|know|check|look|understand|find))",
    r"\bi(?:['’]m| am)(?: now)? \w+ing\b|^\W*now (?=i\b)|^\W*i (?:look|check|search|read|fetch|open|try)\b"
    r"|\bwe (?:need|should|must|can) (?:to )?(?!not|see|never)\w+\b",
    r"^\W*(?:i|we)(?: now| first| then| also)? (?:make|do|run|write|create|test|fix|update|add|delete|remove|install"
    r"|build|start|edit|change|move|clean|verify) (?:it|them|that|so|both)(?: now| first| again)?[.!…]\W*$",
    rf"(?:^\W*(?:(?:now|next|first|then|finally|also|step \d+)\W+)?|[,;—–] (?:so |now "
    rf"|then )?)(?!{_NOT_DOING})[a-z]{{2,}}ing\b",
    r"^\W*time to\b",
)
"""What a model says before it calls a tool: what it does itself."""
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
STEPS: Final = _words(
    r"^\W*(?:(?:good|great|okay|ok|perfect),? )?(?:now|next|first|then|finally|second|third|lastly|and"
    r"|also)\b,? (?:for |on to )?(?:the|another|your|our)"
    rf" (?:(?!bad|wrong|worst|naive|\w+['’]s own|(?:{_SPEAKER}|tool)['’]s)[\w'’.-]+ ){{0,2}}?(?:{_THING}|handlers?"
    rf"|views?|models|frontend|backend"
    r"|docs|readme"
    r"|changelog|code|parser|controller|components?|schema|types?|migrations?|api|forecast|`[^`]+`)\W*$",
    r"^\W*(?:now|next|then),? (?:another|the) (?:(?!bad|wrong|old|new|same|correct|first|second)\w+ ){1,2}call\W*$",
    r"^\W*(?:next(?: step| file| test)?|fix)\W*$|^\W*step \d+[^\w:：]*$|^\W*(?:one (?:more|last)"
    r"|final) (?:check|file|fix|test)\b"
    r"|^\W*(?:(?:now|so|okay|ok|first)\W+)?(?:let me|i['’]ll)(?: now| first| just)? (?:see|check"
    r"|find out) (?:what|where|if|how|whether)"
    r"(?:['’]s| (?:it|that|they|we|i|can|helps?|comes?|from|going|on|find|works?|worked|is|are|went|wrong|there"
    r"|available"
    r"|missing|happened|happening|needed|used|defined|now|still))+\W*$"
    r"|^\W*(?:let me|i['’]ll)(?: now)? (?:try|check|look|run it|read it|search) (?:it )?(?:once|one) more(?: time)?\W*$"
    r"|^\W*(?:let me|i['’]ll)(?: now)? mark (?:this|that|the|it|all)(?: [\w-]+){0,3} as (?:completed?|done"
    r"|finished|in progress)\b"
    r"|^\W*(?:let me|i['’]ll)(?: now)? (?:check|see|inspect|verify) the outputs?\W*$"
    r"|\b(?:keep|continue) (?:going|looking|searching|working|trying|digging|exploring|reading)\W*$"
    r"|\bhere we go\b|^\W*here goes\b|^\W*(?:i['’]m )?on it\b|^\W*will do\b",
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
    r"\b(?:jetzt|nun|zuerst|zunächst|dann|als nächstes) \w+e (?:ich|wir)\b|^\W*(?:schauen|sehen|prüfen|suchen"
    r"|starten|öffnen|führen"
    r"|lesen|testen) wir\b",
    r"\b(?:commen[çc]ons|regardons|vérifions|lan[çc]ons|examinons|testons|cherchons|ouvrons|lisons|exécutons)\b",
    r"\bl[oa]s? (?:corrijo|arreglo|reviso|ejecuto|compruebo|actualizo|cambio|busco|abro|leo) ?(?:ahora)?\W*$"
    r"|\bvamos \w+r\b",
    r"\bje (?:vais|vérifie|cherche|lis|lance|regarde|consulte|corrige|crée|modifie|teste|commence)\b|\bj['’](?:ouvre"
    r"|exécute|ajoute|analyse|installe)\b|\blaisse(?:z-|-)moi\b|\bpermett?e?[zs]-moi\b",
    r"\bvoy a\b|\bahora (?:ejecuto|reviso|compruebo|leo|busco|abro|miro|verifico)\b|\bvamos a\b|\bd[eé]ja(?:me"
    r"|dme)\b|\bd[eé]jeme\b|\bperm[ií]t[ae]me\b|\bconsultar[eé]\b|\bbuscar[eé]\b",
    r"\b(?:leggo|apro|eseguo|aggiorno|correggo|avvio|leio|abro|executo|verifico|reviso|busco|ejecuto)\b"
    r"|\bvado a\b|\bsto per\b|\bfammi\b|\bcontrollo\b|\bcerco\b|\bverifico\b",
    r"\bvou \w+|\bdeixe-me\b|\bdeixa eu\b",
    r"\bmaintenant,? je \w+|\badesso \w+o\b|\bora (?:controllo|eseguo|leggo|cerco)\b|\bagora (?:vou|executo"
    r"|verifico|leio)\b|\bik (?:zal|ga|kijk|zoek|controleer)\b|\blaat me\b",
    r"\b(?:запускаю|читаю|проверяю|смотрю|ищу|открываю|создаю|исправляю|обновляю|выполняю|проверю|посмотрю"
    r"|сделаю|вызову|запущу|найду|прочитаю|открою|поищу)\b|\bдавайте\b|\bпозвольте\b",
    r"让我|讓我|我(?:查|看|搜|试|找|读|来|來|将|將|会|會|需要|先|现在|現在|去|正在|要)|正在"
    r"|(?:接下来|接下來|首先|现在|現在|^先|下面)[^。：:]{0,6}(?:读取|讀取|运行|執行|执行|查看|检查|檢查|修改|搜索"
    r"|打开|更新|创建|安装|测试|修复)",
    r"ます(?:ね)?[。.:：]?\s*$|ましょう|みます",
    r"겠습니다|할게요|볼게요",
    r"\bvoyons\b|\bl[åa]t mig\b|\bjag (?:ska|kollar|tittar)\b|\blad mig\b|\bla meg\b|\bsprawdz(?:ę|am|my)\b"
    r"|\bzobacz(?:ę|my)\b|\bpozwól\b",
    r"\b(?:bakayım|\w+(?:ay[ıi]m|eyim)|bakalım|kontrol ed\w+|bakıyorum)\b|\bbiarkan saya\b|\bsaya akan\b"
    r"|\bđể tôi\b|\btôi sẽ\b|دعني|سأ"
    r"|देख(?:ता|ती|ते|ने)|करता हूँ|แป๊บ|ขอ(?:ดู|ตรวจ)",
    r"\b(?:ich muss|muss ich|je dois|necesito|tengo que|preciso|devo|ik moet|мне нужно)\b",
)
"""The same in other languages."""
_OTHER_SEEK: Final = (
    r"\b(?:(?:nach|über|durch|ab|an|auf|aus)?(?:ge|zu)?(?:prüf|schau|seh|ruf|such|les|hol|führ|start|öffn|frag"
    r"|install"
    r"|analysier|untersuch|teste|fang|beginn))\w*\b"
    r"|\b(?:vérifi|cherch|recherch|lis\b|lire|lanc|regard|voir|consult|exécut|ouvr|analys|install|examin|récupér"
    r"|appel"
    r"|test|commenc|voyons|explor)\w*"
    r"|\b(?:revis|comprob|verific|comproba|busc|leer|leo\b|abr|mir|ejecut|execut|consult|ver\b|veo\b|examin|explor"
    r"|inspeccion"
    r"|instal|llam|analiz|empez|obten)\w*"
    r"|\b(?:controll|verific|cerc|vedere|guard|legg|esegu|apr|analizz|cham|olhar|ler\b|leio|procur|rod|chec"
    r"|checar)\w*"
    r"|\b(?:kijk|zoek|controle|uitvoer|lees|lezen|bekijk|bekijken|start|open|voer|nakijk)\w*"
    r"|(?:провер|посмотр|запу|выполн|найд|найти|прочит|откро|откры|поищ|поиск|искать|вызо|вызв|получ|изуч|узна)\w*"
    r"|查|看|搜索?|找|运行|運行|执行|執行|读|讀|打开|打開|获取|獲取|调用|調用|呼叫|测试|測試|了解|分析|试|試|安装|安裝|启动|使用|确认|確認|列出|浏览|下载|开始"
    r"|確認|調べ|実行|検索|読|開|見|テスト|取得|探|インストール|試|チェック|呼び出|起動|分析|始め|進め"
    r"|확인|살펴|실행|검색|읽|찾|테스트|조회|설치|시작|분석|열어|알아|볼게|보겠|가져|호출"
    r"|\b(?:sprawdz|zobacz|uruchom|przeczyt|poszuk|otw|koll|titt|läs|kör|sök|se\b|kig|tjek|sjekk|kontrol|bak"
    r"|çalıştır|oku"
    r"|incele|periksa|cek|cari|baca|jalankan|lihat|buka|kiểm tra|xem|tìm|đọc|chạy|mở)\w*"
    r"|تحقق|بحث|قر|شغ|نفذ|فتح|ستخدم|نظر|فحص|جلب|رى|طلع|देख|जाँच|जांच|खोज|पढ़|चला|แป๊บ|ดู|ตรวจ"
)
_OTHER_MAKE: Final = (
    r"\b(?:beheb|korrigier|änder|erstell|anleg|leg|schreib|aktualisier|lösch|entfern|ergänz|füg|hinzufüg|bau"
    r"|bereinig|mach)\w*"
    r"|\b(?:corri[gj]|cré|modifi|ajout|écri|supprim|met|fai)\w*"
    r"|\b(?:crear?|creo\b|modific|actualiz|añad|escrib|elimin|borr|arregl|hac)\w*"
    r"|\b(?:cria|criar|atualiz|adicion|escrev|remov|corregg|aggiorn|aggiung|scriv|rimuov|fazer|faço|fare|faccio)\w*"
    r"|\b(?:maak|maken|wijzig|pas|schrijf|verwijder|voeg)\w*|(?:исправ|созда|обнов|добав|удал|напи|установ|сдела)\w*"
    r"|修|改|创建|創建|建立|更新|添加|增加|删除|刪除|写|寫|编辑|处理|作成|追加|削除|編集|変更|直し|書き|수정|생성|만들|업데이트|추가|삭제|작성|변경"
    r"|\b(?:düzelt|oluştur|güncelle|ekle|sil|perbaiki|buat|perbarui|sửa|tạo|cập nhật)\w*|عدل|صلح|نش|ضيف|حذف"
)
_OTHER_THING: Final = (
    r"`|\b[\w-]+\.\w{1,5}\b|\w_\w|(?:datei|ordner|verzeichnis|test|fehler|code|konfig|skript|import|funktion|klasse"
    r"|server|paket|projekt|tabelle|datenbank|branch|commit|cache|log|wetter|nachricht|information|info\b|daten"
    r"|ergebnis|version|seite|webseite|internet|kalender|preis|kurs|flug|flüge"
    r"|hotel|restaurant|adresse|termin|konto|bestellung|dokument|abhängigkeit|komponente|modul|liste\W*$"
    r"|struktur|quelle|muster in|syntax\W*$)\w*"
    r"|\b(?:fichier|dossier|répertoire|erreur|bogue|bug|script|fonction|classe|serveur|paquet|projet|test|journa(?:l"
    r"|ux)|météo|code|structure|format\W*$|information|base de données|nouvelle|actualité|donnée|résultat"
    r"|version|page|site"
    r"|calendrier|prix|cours|vol|hôtel|restaurant|adresse|compte|commande|document|dépendance|composant|module"
    r"|recette)s?\b"
    r"|\b(?:archivo|arquivo|carpeta|pasta|error|erro|prueba|teste|código|función|função|clase|classe|servidor|paquete"
    r"|pacote|proyecto|projeto|registro|log|estructura|estrutura|tiempo|clima|tempo|configur\w+|informaci[oó]n"
    r"|informaç[aã]o|noticia|notícia|datos?|dados?|resultado|versi[oó]n|versão"
    r"|p[aá]gina|sitio|site|calendario|calendário|precio|preço|vuelo|voo|hotel|restaurante|direcci[oó]n|endereço|cuenta"
    r"|conta|pedido|documento|dependencia|componente|m[oó]dulo|receta|receita)(?:e?s)?\b|\binformac(?:iones"
    r"|ões)\b|\b(?:file"
    r"|cartella|errore|errori|codice|funzione|progetto|test|log|meteo|informazion[ie]|notizi[ae]|dati|risultati"
    r"|versione|pagina|sito|prezz[oi]|vol[oi]|documento)\b"
    r"|\b(?:bestand\w*|map|fout\w*|tests?|logs?|code|functie|pakket)\b|(?:файл|папк|ошибк|тест|код|конфиг|скрипт"
    r"|функци|сервер|пакет|проект|лог|погод|данн|структур|информац|новост|результат|верси|страниц|сайт|календар"
    r"|цен[уы]|курс|рейс|отел|ресторан|адрес|заказ"
    r"|документ|зависимост|модул|рецепт)\w*"
    r"|文件|目录|目錄|错误|錯誤|问题|問題|代码|代碼|脚本|函数|函式|配置|测试|項目|项目|服务器|檔案|程式|天气|天氣|日志|日誌|结构|結構|数据|工具|引用|信息|資訊|资讯|新闻|新聞|资料"
    r"|資料|内容\W*$|版本|网页|網頁|网站|網站|页面|日历|价格|價格|股价|航班|酒店|餐厅|地址|订单"
    r"|文档|文檔|依赖|模块|组件|最新"
    r"|ファイル|フォルダ|ディレクトリ|エラー|バグ|コード|スクリプト|関数|設定|テスト|サーバ|パッケージ|天気|構造|ログ|データ|プロジェクト|情報|ニュース|結果|バージョン|ページ|サイト|カレンダー"
    r"|価格|株価|便|ホテル|レストラン|住所|注文|ドキュメント|最新"
    r"|파일|폴더|디렉|오류|버그|코드|스크립트|함수|설정|테스트|서버|패키지|날씨|구조|로그|데이터|프로젝트|정보|뉴스|결과|버전|페이지|사이트|일정|가격|주가|항공편|호텔|식당|주소|주문"
    r"|문서|최신|dosya|klasör|hata|hava|pogod|plik|folder|berkas|tệp|lỗi|ملف"
    r"|خطأ|फ़ाइल|फाइल|दस्तावेज"
)
_OTHER_LOOSE: Final = (
    r"\b(?:ich|werde|jetzt|das|es|dies|mal|kurz|einen|moment|augenblick|zuerst|nun|gleich|sofort|noch|einmal"
    r"|erneut|für|dich|sie|ihnen|dir"
    r"|mir|nach"
    r"|an|auf|aus|ab|zu|gern|gerne|klar|okay|ok|lass|lassen|mich|muss|beides|alles|danach|dann"
    r"|je|j|vais|le|la|les|l|ça|cela|ceci|maintenant|d|abord|laisse|laissez|moi|vous|pour|tout|de|suite|accord|bien"
    r"|sûr|dois|y|à"
    r"|voy|a|lo|las?|los|eso|esto|ahora|primero|déjame|dejame|claro|por|favor|para|ti|voy|vamos|vou|agora|isso|deixe"
    r"|me|um|uma"
    r"|un|una|ora|subito|adesso|fammi|vado|sto|per|ik|ga|zal|het|dat|even|nu|laat|me|eerst|naar"
    r"|я|сейчас|это|давайте|давай|сначала|мне|нужно|позвольте|jag|ska|det|nu|mig|låt|to|tego|ten"
    r"|saya|akan|ini|itu|biarkan|tôi|sẽ|để|này|bunu|şimdi|hemen)\b"
    r"|让我|讓我|我|来|來|将|將|会|會|先|现在|現在|去|正在|要|一下|吧|好的|好|这个|這個|这|它|帮你|帮您|为你|为您|你|您|了|再|下|需要|首先|接下来"
    r"|まず|はい|すぐに|今|それ|これ|を|は|て|で|み|ます|ましょう|し|いたし|ね|べ|てみ|해|보|겠습니다|습니다|볼게요|할게요|하|을|를|먼저|지금|네|드리|한번"
    r"|دعني|سأ|ذلك|الآن|من|أ|हूँ|ता|ती|मैं|यह|इसे"
)
"""Words that go with any of them."""
find_other_work = re.compile(rf"{_OTHER_SEEK}|{_OTHER_MAKE}", re.IGNORECASE).search
find_other_thing = re.compile(_OTHER_THING, re.IGNORECASE).search
find_other_run = re.compile(
    r"(?:ausführ|führe|exécut|lanc|ejecut|execut|esegu|uitvoer|выполн|запу|运行|運行|执行|執行|実行|실행).*(?:befehl|commande"
    r"|comando|opdracht"
    r"|команд|命令|コマンド|명령)|(?:befehl|opdracht|命令|コマンド|명령).*(?:ausführ|aus\b|uitvoer|実行|실행)",
    re.IGNORECASE,
).search
drop_other_loose = partial(
    re.compile(rf"{_OTHER_SEEK}|{_OTHER_LOOSE}|{OTHER_ANNOUNCEMENTS.pattern}", re.IGNORECASE).sub, ""
)
"""The same in other languages: verbs of work, things, and the words that go with any of them."""
match_interjection = re.compile(
    r"\W*(?:(?:ok(?:ay)?|sure(?: thing)?|yes|yep|great|perfect|good(?: morning)?|nice|excellent|done|al(?:l )?right"
    r"|understood|got it|found (?:it|them)|of course|certainly|absolutely|hello|hi|hm+|interesting|oops|on it|will do"
    r"|(?:(?:just|give me) )?(?:one|a) (?:moment|second|sec)(?: to (?:look|check)(?: (?:at|into))?(?: (?:it|that"
    r"|this))?)?"
    r"|please|thanks?(?: you)?|(?:einen|un|um|один) (?:kleinen |petit )?(?:moment(?:o|ito)?|augenblick"
    r"|instante?)(?:,? (?:bitte"
    r"|s['’]il (?:vous|te) plaît|por favor))?"
    r"|请稍等|稍等|少々お待ちください|잠시만요|looks? good|that worked|still failing"
    r"|prima|super|gut|alles klar|in ordnung|perfekt|parfait|très bien|d['’]accord|perfecto|muy bien|de acuerdo|bien"
    r"|perfeito|certo|perfetto|va bene|хорошо|отлично|好的?|明白了?|はい|わかりました|네|nun|maintenant"
    r"|right away|so far,? so good|(?:that['’]s |what )?an? (?:great|good|excellent|interesting) question"
    r"|(?:one|a|just a) (?:moment|second|sec|minute),? while i (?:look|check|search|find|fetch|get)(?: [\w'’-]+){1,8}"
    r"|(?:(?:i['’]ll|i will|i can|i['’]d be|i['’]m|i would be|let me)(?: be)? )?(?:(?:happy"
    r"|glad) to )?help(?: you)?(?: out)?"
    r"(?: with (?:that|this))?"
    r"|right|no (?:problem|worries|matches|results|luck)(?: found)?|all (?:green|good)|almost (?:there|done)"
    r"|i can (?:help with|do) that|what['’]s up"
    r"|now|first|then|so|wait|i see|court)\W+)+",
    re.IGNORECASE,
).fullmatch
"""A few words that say nothing of the call. "court" is a token that some models write before `<invoke>`."""
match_feeling = re.compile(
    r"\W*(?:(?:i['’]m |i am )?(?:happy|glad) to (?:help|assist)|my (?:mistake|bad)|(?:that['’]s |how )?(?:strange|odd"
    r"|weird)|(?:the|an?) (?:response|reply|output|answer) (?:is|was) (?:empty|incomplete|truncated))\W+",
    re.IGNORECASE,
).fullmatch
"""What a model says before it announces its work."""
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
_HEAD: Final = r"(?=\W*$| (?:of|for|that|which|to|into|as|by|here|below|from|with|used|itself|has|have|had|i|sent)\b)"
"""Behind a noun that is the last of its phrase: "the call", but not "the call sites"."""
_OPENING: Final = (
    r"(?:let(?:['’]s| me| us)?|(?:i|we)(?:['’]\w+)?|will|am|would|like|need|should|must|want|have|can|going|to|now"
    r"|also|first|just|then|next|go|ahead|and|(?:start|begin)(?:ing)? by|by|\w+ly|step|\d+|time|try to"
    r"|help you(?: to)?(?! (?:read|understand|see))"
    r"|us(?:e|ing) (?:it|this|that|[\w`-]+)(?: tool)? to)"
)
"""What stands before the verb of an announcement."""
_ACTION: Final = (
    r"(?:re-?(?!view))?(?:issu|send|run|execut|tr(?:y|ies)|perform|retry|invok|double[- ]check|check|look|find|search"
    r"|grep|see(?!n)"
    r"|read|open|load|fetch|download|inspect|examin|view|verif|validat|confirm|initiat|test|debug|trac"
    r"|investigat|explor"
    r"|install"
    r"|locat|dig|div(?:e|ing)|gather|collect|retriev|query|queri|research|call(?:ing)?\b|measur|monitor|scan|brows"
    r"|visit"
    r"|navigat|click|deploy|restart|kill|connect|spawn|pull|push|clon|commit|lint|poll|(?:take|have) (?:a"
    r"|another)\b.*? look"
    r"|grab|stop|revert|go(?:ing)? through(?= (?:the|all|each|every))|wait(?:ing)? for|set(?:ting)? up|ask"
    r"|jump(?:ing)? to(?= (?:the|line|file))|submit"
    r"|fill(?:ing)? (?:in|out)|proceed|scroll|go to"
    r"|analy[sz]|understand|diagnos|profil|figure out|track|fix|mend|repair|updat"
    r"|edit|chang|modif|adjust|adapt|refactor|replac|renam|remov|delet|clean|add|creat|build(?! up)|implement|mov"
    r"|sav|stor|appl"
    r"|switch|determin|identif|handl|insert|patch|sort|merg|import|filter|split|calculat|comput|resolv|solv|upgrad"
    r"|enabl|disabl|configur|initiali[sz]|schedul|fork|mount|tackl|redo|undo|restor|back up|delegat|do(?:ing)?\b"
    r"|boot|compil|(?:spin|spinning|fir(?:e|ing)|wrap|wrapping|clear|clos(?:e|ing)) up|tak(?:e|ing) care of"
    r"|start(?:ing)?\b|begin(?:ning)?\b|continu(?:e|ing)\b|go on\b|get (?:started|going)|finish(?:ing)?\b"
    r"|mak(?:e|ing) (?:sure|(?:the|another) (?:\w+ )?call)\b)\w*"
)
"""Verbs of work. Alone, or with "it", they say that the model does it now."""
_PRODUCTION: Final = (
    r"(?:re-?)?(?:correct|repeat|rewrit|generat|copy|format|pars|extract|count|compar|simplif|extend|prepar"
    r"|review"
    r"|log|refin|writ|convert|reproduc|list|pick|choos|select|stud|remember|translat|play|book|type|turn|mak(?:e"
    r"|ing)\b|get|set"
    r"|put|us(?:e|ing)\b|keep|complet|tak(?:e|ing)\b|work|follow|help(?: you)?|process|address|place|narrow|reduc"
    r"|increas|wire|hook"
    r"|know|roll|bring)\w*"
)
"""Verbs that words can be the result of, or that say nothing alone: they need a thing."""
_ALONE: Final = (
    r"(?:double[- ]check|check|look|search|see|verif|start|begin|proceed|continu|go on|get (?:started|going)|tr(?:y"
    r"|ies)|retry"
    r"|investigat|find out|figure (?:it |this |that )?out|sort (?:it|this|that) out|clean(?:ing)? up"
    r"|set(?:ting)? (?:it|this|everything) up|narrow(?:ing)? (?:it|things) down|find|dig"
    r"|explor|debug|scroll|us(?:e|ing) (?:the|an?|my|your|one of the"
    r"|available)(?: [\w`-]+){0,3}? `?(?:tools?|functions?)\b(?: to\b.*)?|mak(?:e|ing) (?:the|another) (?:\w+ )?call"
    r"|commit|execut|research|(?:take|have) (?:a|another)\b.*? look|fetch|retriev)\w*"
)
"""Those that need no "it"."""
match_work = re.compile(
    rf"\W*(?:{_OPENING}[\s,:*]+)*(?P<verb>(?P<action>(?P<alone>{_ALONE})|{_ACTION})|{_PRODUCTION})(?![\w-])",
    re.IGNORECASE,
).match
drop_purpose = partial(
    re.compile(
        rf"(?<=\w)(?:,? so(?: that)? (?:i|we|you)\b| before (?:i|we|finishing|proceeding|continuing"
        rf"|moving on)\b|(?: in order)? to (?:{_ACTION}|{_PRODUCTION}"
        rf"|give|assist|answer"
        rf"|provide)(?![\w-])|,? and(?: then)? (?:i|we|i['’]ll|let me|{_ACTION}|{_PRODUCTION})(?![\w-])|, then\b"
        rf"| as (?:you )?(?:requested|asked|wanted)\b).*",
        re.IGNORECASE | re.DOTALL,
    ).sub,
    "",
)
"""An announcement that names work: an unknown verb may announce anything."""
THINGS: Final = frozenset(
    """access account address airport alarm album am amount api app application approach archive array article
    artist asset attachment attempt audio authentication author availability available backend
    background backup balance bank basket batch binary book booking booklet branch broken browser buffer
    bug build bundle button byte cache calculation calendar caller car card cargo cart category cause celsius
    certificate change changelog channel chart check checkout city class cli client clock cloud cluster
    code codebase column command commit company compile compiler component computer condition config
    configuration conflict connection console constant contact container content contents controller
    cookie cost country coverage crash crate cron cronjob css currency customer daemon dashboard data
    database dataframe date datetime day declared defined degree dependency deployment desktop
    destination detail device dialog diff difference directory disk distance dns docker dockerfile docs
    documentation dollar domain done door drive driver edit editor element elevation email endpoint
    engine entity enum environment equation error eslint euro event exception executable exist export
    fact factorial fail failure fare feature field file filesystem filter finding firewall fix fixture
    flag flight folder forecast frontend function gateway gem git github gradle gram grep handled handler
    happened hash header history home hook host hostname hotel hour html humidity icon id image
    implementation implemented import index info information infrastructure inode installed inventory
    invoice ip issue item jest job kernel kilogram kilometer kilometre kitchen kubernetes lamp layer
    layout lib library license light limit link lint linter loader located location lock lockfile log
    logged logger logic loop machine mail makefile manifest map market match math maven measurement media meeting
    member memory menu metadata meter method metre metric middleware migration mile minute missing
    module monitor month movie music mutex mypy mysql namespace network news nginx node notebook
    notification npm number object occurrence operation operator owner package page parameter parser
    pass password patch path payment percent permission person phone photo picture pip pipeline place
    plan player playlist plugin pm pnpm policy pool population port post postgres postgresql pound price
    problem procedure process product profile program project property provider proxy purchase pytest query queue rate
    readme recipe redirect redis refactor refactoring reference refund regex registry regression release
    reminder repo repository request requirement research reservation resource rest restaurant result
    road role root route router row ruff running runtime sale sandbox schedule schema score screenshot
    script sdk search second sensor server service session setting setup shell site size socket software
    solution song source space spec speed sqlite stack stacktrace stat state station status stderr
    stdout step stock storage store stored structure subagent subdirectory submodule subnet sudo suite
    sum system systemd tab table tarball target task temperature terminal terraform test theme
    thermostat thread ticket time timeout timer timezone today todo tool toolchain trace traceback track
    traffic train tree trip type ui unit update upload url usage use used user utility validation
    validator value variable vector venv version video view virtualenv volume vulnerability weather web
    webpack webpage website week wheel widget wiki window work worker workflow workspace wrong yarn year
    zip zone""".split()
) | {"call site", "code base", "directory listing", "error message", "file name", "function name", "stack trace"}
"""What a model works on, and what it may be: "what is wrong". No words, texts or forms: those may be what it shows."""
match_reported = re.compile(
    r".*\b(?:that|whether|if|before|until|says?|said|told (?:me|us)|thinks?|claims?|why|what|how|when|where|which"
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
    r"|\b(?:speaks?|spoke|says?|said|writes?|wrote|answer(?:s|ed)|repli(?:es|ed)|respond(?:s|ed)|prints?|printed"
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
find_pointing = re.compile(r"\b(?:this|these)(?: \w+){1,2}\W*$|\b(?:the )?following\b", re.IGNORECASE).search
"""At the end of a sentence that introduces a text: "The training set has this row."."""
find_own_words = re.compile(
    r"\b(?:let me|let['’]s|we|i)\b(?:['’]\w+)?(?: (?:now|can|also|already|just))* (?:see|understand|found|find|have"
    r"|expected|thought|forgot|missed|fixed|added|removed|created|updated|changed|ran|checked|installed"
    r"|need|want|know|get|got|notice"
    r"|think|believe|expect|help|apologi[sz]e|will|should|must|can|do|made a mistake|read|check|look|try|start)\b"
    r"|\bi(?:['’]ve|['’]ll|['’]d| don['’]t| can['’]t| cannot|['’]m (?:not|sorry|happy|glad|going))\b|\bmy apolog\w+"
    r"|\byou(?:['’]re| are)(?: absolutely| totally| completely| quite)? right\b|\byou (?:want|asked|need"
    r"|mentioned)\b|\bthe user\b|\bhelp you\b"
    r"|\bcalls? (?:failed|worked|timed out)\b|^\W*(?:hm+\W+)?(?:it|that|this)(?: \w+)? (?:did|does|do|didn['’]t"
    r"|doesn['’]t|work|works|worked|failed|seems?|looks?|isn['’]t|is not)\b|^\W*(?:hm+\W+)?(?:it"
    r"|that)['’]s (?:not|still"
    r"|now|already|missing|empty)\b"
    r"|\b(?:ich|wir|mein\w*|je|j['’]|nous|yo|nosotros|ho|sono|eu|ik|wij?|я|мы|мне)\b|我|私|저는|제가"
    r"|^\W*(?:good|great|nice|sounds|sorry|gern\w*|klar|natürlich|alles|gut|bien|d['’]accord|très|claro|vale"
    r"|por supuesto|certo"
    r"|va bene|goed|хорошо|конечно)(?:\W+\w+){0,2}\W*$|^\W*(?:好|当然|當然|没问题|はい|承知|了解|네|알겠)",
    re.IGNORECASE,
).search
find_other_person = re.compile(
    r"\b(?:he|she|his|her|him|er sagte|il dit|elle)\b|^\W*(?:this|that|it|here|below|above)(?: is|['’]s| are"
    r"| was) (?:(?:only|just)"
    r" )?(?:an?|the|how|what|where)\b",
    re.IGNORECASE,
).search
find_talk = re.compile(
    r"\b(?:turns?|prompts?|says?|said|wrote|writes?|demo|session|quot\w+|agent|assistant|would|few-shot|below"
    r"|above|story|tale|next input"
    r"|fake|bots?|once|imagine)\b"
    r"|\bi['’]d\b(?! (?:be|love|like|need))|\b(?:lines|examples?|samples?|quotes?|quotations?|snippets?|syntax)\W*$"
    r"|\w answer\W*$|(?<!about )\b(?:this|these|so|an? call)\W*$",
    re.IGNORECASE,
).search
"""Of whom a sentence is: of the model and its work, or of somebody else, as in a story."""
match_name = re.compile(
    r"(?!\W*(?:step|plan|next|now|todo|task|goal|problem|cause|status"
    r"|progress)\b)\s*(?:[^\W\d][^\n.!?…。！？:：]{0,60}(?<![\s,;])"
    r"|[\w./-]*\w\.\w{1,5}|[^\W\d][\w -]{0,30}[:：][ \t]*[^\n!?…。！？]{1,30}(?<![.\s]))\s*",
    re.IGNORECASE,
).fullmatch
"""A line that may name who speaks, as in a play, or what is shown: a name, a file, or a label with its value."""
UNMEANT: Final = _words(
    r"^(?:i|let|we)\S*(?: \w+){0,2} (?:not|never|refuse|decline|skip|ignore|omit|leave|avoid)\b|^i can(?:not"
    r"|['’]t)\b",
    r"\b(?:without|instead of|before) (?:running|executing|calling|making|sending)\b|\bshould have\b|\bpermission\b",
    r"\b(?:(?:show|explain|recit|transcrib|reproduc|paraphras|demonstrat|illustrat|quot|cit|past|describ|repeat"
    r"|mention)(?:e|s|es|ing)?"
    r"|recap\w*|point out|spell (?:it|this|out)|warn you|tell you)\b(?! (?:the )?(?:bug|crash|issue|error"
    r"|failure|problem"
    r"|test)s?\b"
    r"| \w+ locally)",
    r"\b(?:for example|for instance|e\.g\.|such as|like this|like so|as follows|the following|here|by hand)\W*$"
    r"|\baloud\b",
    r"\b(?:examples?|samples?|snippets?|transcripts?|templates?|syntax|verbatim|literal\w*|fake|dummy"
    r"|placeholders?)\b"
    r"(?! (?:files?|folder|director\w+|project|code|app|data|config))",
    r"\bask (?:you|first|for|before|whether)\b|(?<!for )\btomorrow\b(?!['’])|\blater\b|\byesterday\b"
    r"|\blast (?:time|week"
    r"|night|month|year)\b",
    r"\b(?:write|type|print|put|note|mark)\b (?:(?:it|this|that)(?! (?:in )?(?:in)?(?:to|a|the) "
    r"| (?:\w+ ){0,3}as )|out|down|up"
    r"|the (?:frame|call|tag))\b",
    r"\b(?:below|above)\W*$|\bmy facts\b|\blook(?:ing)? (?:back (?:at|on)|away)\b|\bbig picture\b"
    r"|\bfalls? for (?:it|this|that)\b"
    r"|\bwhat \w+ (?:said|answered|wrote)\b|\bwhat\b.*\b(?:asks?|wants?|demands?)\b|\b(?:is|are|was"
    r"|were) (?:written|spelled|spelt|phrased|worded)\b"
    r"|\b(?:page|e?-?mail|text|letter|site) wants?\b",
    r"\breturn the following\b|\byour (?:request|prompt|wording|patience)\b|\bapply for\b|\banatomy of\b"
    r"|\bminutes of\b|\bof your\b",
    r"\b(?:says?|said|sends?|sent|writes?|with|by|like|in|from|of|was|is) this\W*$|\bit together\b|\bcall (?:it"
    r"|this) (?:an?|the)\b",
    r"\b(?:subject|right words|between the lines|my memory|angle)\W*$|\bi can (?:only |already |also )?(?:see"
    r"|guess)\b|^i can (?:\w+\W*$|(?!look|check|search|find|do|see|help|try|get|use|read|run|fetch|fix|start"
    r"|continue|update|implement|proceed)\w)",
    r"[\"”»,*]\W*(?:\w+ ){0,2}(?:said|says|wrote|replied|typed|thought|whispered|cried)\b",
    r"\bfor (?:reference|documentation|illustration|completeness|the record)\W*$",
    # "Running it would be wrong" is no announcement of running it
    r"^\w+ing (?!(?:(?:(?:in|on|at|for|into|with|up) )?(?:the|another|my|your|a new)|it|them|again|now|that|if"
    r"|whether)\b|`)"
    r"[^:：.!…]*[:：]?$",
    r"^\w+ing\b(?:(?!\b(?:what|how|if|whether|why|where|(?<!like )that|which)\b).)*(?:, \w+ \w+|\b(?:is|are|was|were"
    r"|will|would"
    r"|can|could|should|must|means?|makes?|looks?|seems?)\b)",
    r"^\w+ing\b.*\b(?:helps?|works?|fails?|needs?|takes?|costs?|requires?|deletes?|removes?)\W*$",
)
"""What makes of such words an announcement of something that is shown, or a refusal."""
OTHER_UNMEANT: Final = _words(
    r"\b(?:comme|como|als(?! nächstes| erstes))\b|\bvor\W*$|\b(?:vorlage|muster)\b|\b(?:hier|ici|aquí|aqui|сюда"
    r"|здесь)(?: \w+)?\W*$",
    r"\b(?:beispiel|exempl?[eou]|ejemplo|esempi|voorbeeld|bijvoorbeeld|exempel|eksempel|przykład|příklad|пример"
    r"|приклад|например"
    r"|örne[kğ]|esimerk|contoh|péld|παράδειγμα)\w*|\bví dụ\b|例|范例|مثال|उदाहरण|ตัวอย่าง|לדוגמ|예를|예시",
    r"\b(?:erklär|erläuter|zitier|beschreib|zeig|expliq|explic|montr|mostr|spieg|descri|uitleg|citer|объясн|покаж"
    r"|показ)\w*"
    r"|展示|解释|解釋|说明|說明|介绍|介紹|引用(?!：|:|。|$)|演示|描述|格式|写法|寫法|这样|這樣|説明|紹介|書き方|見せ|설명|보여",
    r"\b(?:würde|könnte|pourrai|podría|potre|poderia|zou)\w*|\b(?:gestern|hier soir|ayer|ieri|ontem|вчера)\b"
    r"|昨天|昨日|어제",
)
"""The same in other languages."""
OTHER_CONDITIONS: Final = _words(
    r"\b(?:wenn|falls|sofern|sobald|solange|bevor|nachdem|morgen|übermorgen|später|vielleicht"
    r"|erst (?:dann|nach|ab|am|im))\b",
    r"\b(?:dès|lorsque?|quand|avant|après|à condition|pourvu|demain|plus tard|peut-être)\b|\bs['’]ils?\b",
    # behind a verb of looking it is "whether": "vérifier si", "ver si"
    rf"(?:^|[,;])\W*s[ie]\b|(?<![\w'’-])(?!(?:{_OTHER_SEEK})\s)[\w'’-]+ si\b",
    r"\b(?:cuando|en cuanto|siempre que|antes de|después|luego de|mañana|más tarde|quizás?|tal vez)\b",
    r"\b(?:quando|appena|purché|prima di|dopo|domani|più tardi|forse)\b",
    r"\b(?:assim que|desde que|depois|amanhã|mais tarde|talvez)\b|\b(?:als je|als u|zodra|nadat|morgen|misschien)\b",
    r"\b(?:если|когда|после|прежде|завтра|позже|потом|может быть)\b",
    r"\b(?:om du|när|imorgon|hvis|når|jeśli|gdy|jutro)\b",
    r"\b(?:kalau|jika|setelah|besok|nếu|khi|ngày mai|eğer|yarın)\b",
    r"如果|假如|要是|若|等(?:你|您|我|到)|之后|之後|以后|以後|明天|稍后|稍後|也许|也許|たら|れば|なら|明日|後で|(?:하|으|시|되)면|내일|나중에|إذا|غد|अगर|यदि|कल",
)
"""That it depends, or is done another time: the conjunctions and adverbs that say so."""
CONDITIONS: Final = _words(
    r"\b(?:if|once|when|after|unless|until|as soon as|provided) you\b|\byour (?:permission|approval|ok(?:ay)?"
    r"|consent|confirmation|go-ahead)\b"
    r"|\bif (?:it is|that is|it['’]s|that['’]s) ok",
    r"^\W*(?:if|once|when|after|unless|until|as soon as|tomorrow|later|next (?:week|time|month|year))\b(?! that\b,)"
    r"|\bnext (?:week|month|year)\b",
    r"\bin (?:the|my|our|an?) (?:next|later|future|separate|other) (?!steps?\b|calls?\b)\w+\W*$",
    r"\b(?:tell|ask|give|answer|reply|confirm|approve|say|click|press|type)\b(?! (?:me"
    r"|us) what).{0,40}\band (?:then )?(?:i|we)\b",
    r"\b(?:overnight|someday|at (?:noon|midnight)|provided|assuming|manually|by typing|next (?:spring|summer"
    r"|autumn|winter))\b"
    r"|\bin (?:an?|two|three|a few|\d+) (?:minutes?|hours?|days?|weeks?|months?|years?)\b(?!['’])"
    r"|\bthe (?:wrong )?way\b(?! (?:to|in)\b)"
    r"|^\W*we can(?! now)\b",
    r"\bonly (?:if|when|after|once)\b|\bif i (?:were|was|had|did|wanted)\b|\bmaybe\b|\bperhaps\b"
    r"|\bhypothetical\w*|\bin theory\b",
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
    r"\\(?:begin|verb|texttt|lstinline|item|end)|(?:bc|bq|pre|notextile)\.{1,2}[ \t]|.*\bThought:",
    r"</?(?:pre|code|samp|kbd|tt|example|blockquote|details|summary|li|td|th|tr|p|div|span)\b",
)
match_foreign_line = re.compile(rf"[ \t]*(?:{'|'.join(_FOREIGN_LINES)})", re.IGNORECASE).match
"""A line that no model writes before a call."""
