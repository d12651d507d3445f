"""The words of an announcement of work, beside those of `mention_words`: who works, what at, what speaks against it.

The verbs and the things are lists. Any noun at all, even behind verbs of work only, lets figures of speech announce a
call ("find common ground", "check my privilege"): so it was measured with texts that were never tried.
"""

from __future__ import annotations

import re
from functools import partial
from typing import Final

SHOWN: Final = frozenset(
    """actor actual advice advocate afterwards agent ambiguity analogy anatomy anecdote answer anything appendix
    argument assistant attack attacker attention best bias bit boss bot brace bracket call care caveat character
    chatbot chatml chinese chorus citation claim clause clear command comment completion concept concern
    conclusion concrete confusion cons consequence context convention conversation counterexample courtesy
    culprit curse danger definition demo demonstration detail dialog dialogue dice dinner disaster disclaimer
    discussion doubt drama dream echo emitted english essay ethic eventually evil example excerpt exchange
    exercise explanation exploit expression fallacy fiction figure film footnote form format formatting formula
    fortune frame french friday game german grammar guess haiku happiness harm herme hermes hero hint holiday
    honest hope idea illusion illustration injection input instance instruction invocation itself japanese job
    joke json jsonl knowledge language latex latin lawyer leg letter line lingo literal llama llm luck lunch
    lyric magic malware markdown markup mean meaning meant message metaphor mind mistake mistral
    misunderstanding model monday motive movie myself name narrator news notation note novel objection opinion
    option order outline output paragraph paraphrase parenthese parenthesi parenthesis parody part passage
    patience payload permission phrase piece play poem poetry point poison possibility post prank prompt proof
    proposal pros prose protocol proverb question quotation quote quoted qwen reader recap record remark
    rendering reply report representation response riddle risk ritual role room row rule rumor rumour sample
    saturday saying scenario scene self sens sent sentence sequence shape shell short side sketch snippet
    someday somethin something sometime sonnet soon spanish speech spell spelling statement story straight
    string style summary sunday supervisor supper suspense syntax tag tale talk team template temptation tension
    term text theory thing thought threat thursday tip token tone transcript transcription translation trick
    trouble trust truth tuesday tutorial understanding user utterance variant verse warning water wednesday
    weekend wire word wording wrote xml yaml yourself""".split()
)
"""Nouns, and what is as good as one. An announcement with one of them stays a mention, unless its nouns are known."""
EVERYDAY: Final = frozenset(
    """advice advocate afterwards agent anything attention best bias bit boss bot care clear comment concern
    concrete confusion consequence culprit danger detail dice dinner disaster discussion doubt english
    eventually exercise film form french friday game german happiness holiday idea itself japanese job knowledge
    language latin lawyer leg letter luck lunch lyric magic message monday motive movie name news note objection
    option order output patience piece play point possibility post proof pros question record report risk role
    room row rule saturday self sent shell short side someday something sometime soon spanish spell style
    summary sunday supervisor supper talk team term theory thing thursday tip trouble trust tuesday user warning
    water wednesday weekend wire yourself""".split()
)
"""Those that are things, too: a sentence with a word of the call may have them."""
match_telling = re.compile(
    r"(?:re-?)?(?:show|tell|giv|explain|describ|demonstrat|illustrat|quot|cit|recit|past|copy|repeat|phras|paraphras"
    r"|write|print|typ|spell|sketch|outlin|present|introduc|list|mention|not|point|shar|walk|talk|discuss|clarif|warn"
    r"|remind|refer|imagin|pretend|suppos|assum|consider|put|say|sing|recap|summar|reproduc|format|echo|return|answer"
    r"|reply|respond|comment|lay|draw|propos|suggest|recommend|offer|teach|hid|skip|avoid|refus|declin|ignor|leav|omit"
    r"|stop|dissect|shorten|swap|dump|log|embed|insert|document|mock|grad|judg|rat(?:e|ing)\b|enter|tak(?:e"
    r"|ing)\b|read (?:you|out)|prepar"
    r"|tokeni|serializ|encod|annotat|render|admit|confess|argu|claim|guess|wonder|hope|like|dislike|thank"
    r"|apolog|elaborat|expand|break (?!the|a)|go"
    r"|mean|call|name|be\b|have|keep|sum|hold|bet|be)\w*",
    re.IGNORECASE,
).match
"""Verbs that words can be the result of, and those that say nothing."""
find_pointed = re.compile(
    r"\b(?:this|these|here|below|above|so|such|like)\W*$|\b(?:the|an?) (?:\w+ )?ones?\b|\b(?:following|such"
    r"|hypothetical\w*|verbatim|literally|aloud"
    r"|pretend\w*|imagin\w+|suppos\w+|fake|fictional|malicious|dangerous|he|she|his|her|they|said|says|would|could"
    r"|might|may|if|unless|until|as|tomorrow(?!['’])|yesterday(?!['’]))\b|[?？“”„«»]",
    re.IGNORECASE,
).search
"""What points to a text, or says that somebody else works, or at another time."""
match_open_work = re.compile(
    r"(?:re-?)?(?:check|double[- ]check|verif|confirm|look|search|find|read|open|fetch|download|retriev|get|inspect"
    r"|examin|view|test|investigat|fix|edit|updat|remov|delet|renam|replac|install|creat|add(?! that)|see)\w*"
    r"(?: (?:up|at|for|into|through|over))*(?= )",
    re.IGNORECASE,
).match
"""Verbs of work on anything."""
find_shown = re.compile(
    r"\b(?:this|these|those)(?: (?:(?:one|two|three|few|\d+)\W*$|(?:to|in|on|out|for|with|as|at|number|is|are"
    r"|was|were"
    r"|by|from|up|down|and|looks?|reads?|sounds?)\b)|\W*$)|\b(?:this|these|those)\b[^.!]*[:：]\W*$|\b(?:that"
    r"|this) ones?\b"
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
        r"|exchange rates?|(?:descriptive|clear) message|side by side|test cases?|one more time|one by one"
        r"|one at a time"
        r"|TODO comments?"
        r"|(?:pull|merge) requests?"
        r"|verbose output|type hints?|try/(?:except|catch)|(?:sales|revenue) figures|something (?:else"
        r"|different)|(?<=if )anything else"
        r"|(?<=whether )anything else|(?:who|what|which|that) calls (?:it|this|the|that)(?: (?:method|function"
        r"|class|endpoint))?|(?:financial|bank|account|import|sql|select|return|print|log) statements?"
        r"|to (?:find|get) the answer|as (?:well|requested|complete[d]?|done|fixed|finished|in progress"
        r"|soon as possible)|(?:right|correct|proper|different|same|required|missing) (?:arguments?|parameters?)"
        r"|(?:html|css|email|page|component|jinja2?|django) templates?|(?:top|latest|news) stories"
        r"|(?<=fill in )the (?:\w+ )?form|(?<=fill out )the (?:\w+ )?form|(?<=submit )the (?:\w+ )?form"
        r"|(?:shopping|grocery|to-?do|task|waiting|mailing|contact|wish) list|(?:my|your|the|their|this|that"
        r"|an?|each|every|open|new|recent) orders?(?! of\b)"
        r"|(?<=ask )the user|(?:file|link|document|image|url|page|pdf|spreadsheet"
        r"|website) (?:that )?you (?:have )?(?:sent|shared"
        r"|provided|mentioned|uploaded|attached|linked)|(?<=use )python|(?<=using )python|(?<=with )python"
        r"|for (?:mon|tues|wednes|thurs|fri|satur|sun)day|(?:at )?\d{1,2}(?::\d\d)? ?(?:am|pm|o['’]clock)\b"
        r"|at \d{1,2}(?::\d\d)?"
        r"|how (?:[\w-]+ ){1,4}(?:handles?|implements?) (?:this|that|it)"
        r"|(?:final|bug) reports?|(?:for|near|around) (?:you|us"
        r"|me)(?! to\b)|so (?:you|we|i)\b|as well)\b(?!\W*:)",
        re.IGNORECASE,
    ).sub,
    "file",
)
"""Words of work that are made of words for texts."""
drop_sources = partial(
    re.compile(
        r"\b(?:docs|readme|documentation|errors?|logs?|spec|config\w*|traceback|schema|changelog|tests?)\b"
        r"(?: (?:message|file|page|output))? (?:says?|mentions?|shows?)\b",
        re.IGNORECASE,
    ).sub,
    "file has",
)
"""What things say is no talk."""
match_subject = re.compile(
    r"\W*(?:let(?:['’]s| me| us)|(?:i|we)(?:['’]ll| will| need to| have to| should| must|['’]m (?:now )?going to"
    r"|['’]re going to| am (?:now )?going to| want to)(?: (?:also|first|now|just) (?:need|want|have) to| (?:need"
    r"|have) to)?"
    r"|(?:the|my|our) (?:next|last|first|final|second|third) (?:step|task|thing)(?: (?:is|will be)"
    r"| for me is)(?: now)? to|i (?:also|first|still|now|just|then) (?:need|want|have) to)(?: (?:now|first|then"
    r"|next|also|just|quickly|briefly|go ahead and|start by"
    r"|begin by|try to|try(?= \w+ing\b)|need to|actually|simply|immediately|finally))*(?: |$)",
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
    r"|bump|bundle|cap|cast|chmod|clamp|crop|dim|divide|multiply|subtract|transcribe|invite|compress"
    r"|containerize|crawl|curl|decompress|decouple|decrypt|dedent|dedupe"
    r"|deduplicate"
    r"|deserialize|detach|dockerize|downgrade|drain|dump|encrypt|evict|expand|export|filter|flatten|flush|format|grep"
    r"|guard|hash|hoist|indent|index|ingest|inject|inline|instantiate|instrument|invalidate|isolate|kick off"
    r"|launch"
    r"|lock|map|memoize|migrate|minify|mock|modulari[sz]e|mutate|nest|normali[sz]e|nudge|optimi[sz]e|order"
    r"|pack|paginate|parallelize|parameteri[sz]e|parse|partition|patch|pause|peek at|pin|ping|pipe|plot|populate|port"
    r"|power|precompute|prepend|preload|prefetch|promote|provision|prune|purge|rebase|rebuild|reboot|recompile"
    r"|reconnect|recreate|recompute|refresh|regenerate|register|reinstall|release|relocate|reload|reorder"
    r"|replay"
    r"|reset|resize|restructure|retrieve|return|revert|rewire|roll back|rollback|rotate|round|route|sanitize|scaffold"
    r"|scale|scrape|seed|serialize|shrink|shuffle|shut down|sideload|slice|snapshot|snooze|squash|stage|stash"
    r"|strip|stub|stub out|subscribe|suspend|swap|sync|synchroni[sz]e|tail|terminate|throttle|toggle|trim|truncate"
    r"|tune|tweak|type-check|unblock|uncomment|undeploy|uninstall|unlock|unmount|unpack|unpin|unregister|unsubscribe"
    r"|unzip|upload|vacuum|vendor|warm up|whitelist|wrap|zip|zoom in on)"
)
match_any_work = re.compile(
    rf"{_ANY_WORK}(?: (?:out|up|in|off|on|down|back|through|into|over|onto|against|for|at))?"
    r" (?:the|an?|that(?!\W*$)|these(?= \w)|all|each|every|both|my|our|its|their|some|two|three|four|five|\d+"
    r"|`[^`]+`)(?: |$)",
    re.IGNORECASE,
).match
"""Verbs of work that `mention_words` has no need of elsewhere, and what is worked on."""
match_work_on_it = re.compile(
    rf"(?:(?!format|pars|wrap|indent|annot|stage|order){_ANY_WORK}|correct|define|declare) (?:it|them"
    rf"|that)(?: (?:back|now|again|first"
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
TECHNICAL: Final = frozenset(
    """accessor account acl adapter addon admin airline algorithm alias allocator allowlist amplifier analytics
    android annotation apartment appointment aquarium arena artifact ast atlas atomic attribute auction audit
    auth autocomplete availability avatar average axios axis babel badge bandwidth banner basket battery
    benchmark bicycle billing bin binding bitmap blob blocklist blog bookmark bottleneck breakpoint broker
    bucket budget bus buyer cable calculator callback callsite camera campaign canvas capability card carousel
    carrier casing catalog catalogue celery cell census certificate chain changeset channel charger chart
    chassis checkbox checklist checkpoint checksum chip chunk cipher clinic clip clipboard closure coin
    collation collection collector color colour combobox commandline compose compressor concert concurrency
    conda conductor connector constant controls conversion converter coordinate copyright corpus cors count
    counter coupon cpu credential crontab crop csv cube cursor curve dag datacenter datagram dataloader dataset
    daypart deadline deadlock debounce debouncer debugger decimal decoder decorator decoupler delegate delivery
    demultiplexer density deploy derivative deserializer deviation devtools diagnosis dictionary dimmer discount
    dispatcher display distro divisor doctor domain dose dotfile download downtime driver dropdown dump duration
    edge elevator emitter emulator encoder encoding encryption engine enhancer entry enumerator epoch equation
    estimator etag evaluator experiment expiry exporter extension extractor factory fallback faq favicon feed
    festival fiber figma filename filesize financials fingerprint firewall firmware flamegraph flask flow fold
    footer foreground formatter fps frequency fridge gallery garage gateway gigabyte git glob globals gpu
    gradient graph graphics graphql grid group gui guide gym handlebar hardware hashmap hashtag haystack header
    heading headline heap heartbeat heater helm helper hierarchy highlighter histogram hoist hook hospital
    hotfix hotspot hydration hyperparameter hypervisor hypothesis icon identifier iframe imap inbox indentation
    indexer indicator initializer inode installation installer integral interceptor interface interpreter
    interval invoice ios isbn item iterator itinerary jacket jar javadoc javascript jvm kafka kernel key
    keyboard keychain keyframe keymap keyspace kiosk kubeconfig kubectl label lambda laptop latency latitude
    leaderboard ledger level lexer lifecycle lifetime lighting linter linux listener locale localization lodash
    longitude lookup luggage mailbox mailer mailing mainframe makefile manager mapper mapping marker matcher
    matrix maximum mechanism median megabyte melting merge mesh messenger metaclass microphone microservice
    milestone minimum mixin modal monorepo mount mouse museum mutation mutex nameserver namespace navbar
    navigation neighborhood netstat neuron newline newsletter nextjs nonce notebook nuget null numbering numpy
    oauth observable observer occupancy offset ollama omega onboarding opcode opensearch optimizer orchestrator
    ordering organization origin orm orphan outage outlet outlier overflow overhead overlay overload overview
    package padding pager pagination palette panel parcel parking partition passport password patch paycheck
    payroll pdf peer percentage performance pharmacy pinpoint pipe pixel plot plug pod polyfill polygon pool
    popup portal predicate preference prefix preprocessor preset pricing primary printer probe processor
    profiler projection promotion proof-of-concept propagation props protobuf provisioner pub pump quantity
    radiator radio raid ratio receipt receiver recipient reconciler recording reducer redux refactor region
    registrar registration relay reload reminder renderer repl replica replication repository resizer resolver
    responder restart retries retry revenue rollback rollout router routing rpm rsync ruby ruleset runner
    runtime salary sampler scaffold scaler scanner scheduler scraper screen scrollbar sector security selector
    semaphore semver sender sensor serialization serializer serverless service settings shader shard shipment
    shipping sidebar signature singleton size slider smtp snapshot socket spa spec specification spider spinner
    spreadsheet sprite sql ssh ssl staging standup startup stat statistic stats stdin stepper store stub stubs
    stylesheet subclass subdomain subscriber subscription subsystem subtitle subtree subtype suffix supplier svg
    swift symbol symlink symptom sync synchronization sysctl tablet tabs tailwind taskbar taxi telemetry tenant
    tensor terminal terraform testbed tester tests textarea texture thermostat threshold throttle throughput
    thumbnail ticket tier tile timeline timestamp timing toggle toolbar tooltip topology tracing tracker trait
    transfer transformation transformer traversal trigger truck ts tsconfig tunnel tuple tv typescript typings
    typo ui upgrade uptime uri urls usb username utils uuid vendor vertex viewmodel viewport virtualization vlan
    volume vpc vpn vue wallet warehouse watchlist webhook webserver websocket whitelist whitespace width wifi
    wildcard windows workbook workload workpiece worksheet wrapper xpath xss zookeeper""".split()
)
"""Things that only work is about: where the model itself works now, one of them in a phrase is enough."""
find_verdict = re.compile(
    r"`|\b(?:(?:is|are|was) wrong|ha(?:s|ve) no|lacks?|typos?|misspell\w*|fail\w*|miss(?:es|ing)|broken|stale"
    r"|crash\w*|leak\w*"
    r"|throws?|threw|swallow\w*|strip(?:s|ped)|shadow\w*"
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
