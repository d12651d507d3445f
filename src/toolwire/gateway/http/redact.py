"""Removes secrets from what is logged, and makes text from clients and providers safe to print."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import quote

import msgspec

from toolwire.core.json_values import Json
from toolwire.terminal.text import escape_controls

MAX_BODY = 65536
"""Characters of a body that are logged."""
MAX_NAME = 120
"""Characters of a name or an id that are logged."""
_REDACTION_MARGIN = 4096
"""Read beyond the limit, so that a key that crosses it is recognised."""
MIN_SECRET_LENGTH = 12
"""Shorter keys are placeholders such as `ollama`; replacing them would garble names."""
REDACTED = "[hidden]"

# --- where a secret may be ---

_SLICE = 16 * 1024
"""Characters that one call of C looks at, at most. Other threads run between two calls: the console cleans megabytes
while requests are served."""
_KEY_KINDS = (
    "api", "access", "private", "signing", "encryption", "client", "toolwire", "subscription", "functions", "account",
    "shared", "master", "license",
)  # fmt: skip
_OTHER_SECRET_WORDS = r"""
    secret | passw(?:or)?d | passphrase | credential | authori[sz]ation | cookie | bearer | \bjwt | \bpwd
    | \b(?:pass|auth)(?=["'\\\s:=])
    | (?<!max)(?<!max[-_])(?<!num[-_])(?<!per[-_])
        token (?!s | [-_.]? (?: count | limit | budget | usage | id\b | type | ize ) )
"""
_SECRET_WORD = rf"(?: (?:{'|'.join(_KEY_KINDS)}) [-_.]? keys? | {_OTHER_SECRET_WORDS} )"
"""Words in a name that say that its value is a secret. `max_tokens` and the like are numbers of tokens."""
_SECRET_NAME = rf"[\w.-]{{0,64}}? {_SECRET_WORD} [\w.-]{{0,64}}"
_LONGEST_KIND = max(map(len, _KEY_KINDS)) + 1


class _Marks(NamedTuple):
    """Short texts of which one is in every match of a rule: searching for them is much faster than the rule is."""

    literals: tuple[str, ...]
    """In lower case."""
    pattern: re.Pattern[str] | None = None
    """What must be at its place, if that says more."""


_SECRET_WORDS = _Marks(
    ("key", "secret", "pass", "credential", "auth", "cookie", "bearer", "jwt", "pwd", "token"),
    re.compile(
        rf"(?ix) (?: {'|'.join(f'(?<={kind})|(?<={kind}[-_.])' for kind in _KEY_KINDS)} ) key | {_OTHER_SECRET_WORDS}"
    ),
)
_URL_STARTS = _Marks(("://", ":\\/", ":/\\/"))
_KEY_STARTS = _Marks(
    (
        *(kind + end for kind in ("sk", "pk", "rk", "hf") for end in "-_."),
        *("xai", "pplx", "ghp", "gho", "ghu", "ghs", "ghr", "github_pat", "glpat", "npm", "xox", "akia", "asia"),
        *("aiza", "ya29", "tw-", "bearer", "eyj", "-----begin", "bedrock-api-key", "signature="),
    )
)
_LONGEST_MARK = max(map(len, _KEY_STARTS.literals))
_OTHER_CASES = (("İ", "i"), ("ı", "i"), ("ſ", "s"))
"""Letters that a pattern takes for an ASCII letter, though their lower case is another."""


def _find_marks(text: str, marks: _Marks) -> list[int]:
    literals, pattern = marks
    places: list[int] = []
    for begin in range(0, len(text), _SLICE):
        piece = text[begin : begin + _SLICE + _LONGEST_MARK - 1]
        if not piece.isascii():
            for letter, plain in _OTHER_CASES:
                piece = piece.replace(letter, plain)
        piece = piece.lower()
        found: set[int] = set()
        for literal in literals:
            at = piece.find(literal)
            while 0 <= at < _SLICE:
                if pattern is None or pattern.match(text, begin + at) is not None:
                    found.add(begin + at)
                at = piece.find(literal, at + 1)
        places += sorted(found)
    return places


# --- where a value ends ---


class _ValueEnds:
    """Finds the ends of values in a text, in slices. It remembers what the next value of the same line or word would
    search for again."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._line_end = self._word_end = -1

    def end_of(self, found: re.Match[str]) -> int:
        """Where the value ends that begins in a match; -1 if it is none after all. The last group of the match says of
        which kind it is."""
        kind, at = found.lastgroup or "", found.end()
        if kind == "quoted":
            return self._end_quoted(found["quote"], at)
        if kind == "jwt":
            return self._end_jwt(at)
        if kind == "pem":
            return self._end_pem(at)
        run, closing = _RUNS.get(kind, (None, ""))
        end = self._end_run(run, at) if run is not None else at
        closing = found["quote"] if kind == "mention" else closing
        return end + len(closing) if closing and self._text.startswith(closing, end) else end

    def _end_run(self, run: re.Pattern[str], at: int) -> int:
        while True:
            found = run.match(self._text, at, at + _SLICE)
            end = found.end() if found is not None else at
            if end < at + _SLICE:
                return end
            at = end

    def _end_quoted(self, quote: str, at: int) -> int:
        """Behind the next quotation mark of the same kind, or at the end of the line."""
        text = self._text
        if self._line_end < at:
            end = text.find("\n", at)
            self._line_end = end if end >= 0 else len(text)
        while (at := text.find(quote, at, self._line_end)) >= 0:
            if text[at - 1] != "\\":
                return at + len(quote)
            at += 1
        return self._line_end

    def _end_jwt(self, at: int) -> int:
        if self._word_end < at:
            self._word_end = self._end_run(_JWT_RUN, at)
        payload = _JWT_PAYLOAD.match(self._text, self._word_end)
        if payload is None:
            return -1
        end = self._end_run(_JWT_RUN, payload.end())
        return self._end_run(_JWT_RUN, end + 1) if self._text.startswith(".", end) else end

    def _end_pem(self, at: int) -> int:
        while at < len(self._text):
            found = _PEM_END.search(self._text, at, at + _SLICE + _LONGEST_PEM_END)
            if found is not None:
                return found.end()
            at += _SLICE
        return len(self._text)


_JWT_RUN = re.compile(r"[\w-]*")
_JWT_PAYLOAD = re.compile(r"\.[\w-]{4}")
_PEM_END = re.compile(r"(?i)-----END [A-Z ]{0,40}PRIVATE KEY-----")
_LONGEST_PEM_END = len("-----END PRIVATE KEY-----") + 40
_RUNS: Mapping[str, tuple[re.Pattern[str], str]] = {
    "list": (re.compile(r"[^\]\n]*"), "]"),
    "bare": (re.compile(r"""[^\s,;}\]"'\\]*"""), ""),
    "double": (re.compile(r'[^"\n]*'), '"'),
    "single": (re.compile(r"[^'\n]*"), "'"),
    "plain": (re.compile(r"""[^\s"'&,;<>()\[\]{}\\]*"""), ""),
    "line": (re.compile(r"""[^\n"'<>]*"""), ""),
    "mention": (re.compile(r"""[^"'`\n]*"""), ""),
    "argument": (re.compile(r"""[^\s"']*"""), ""),
    "key": (re.compile(r"[\w\-.]*"), ""),
    "bearer": (re.compile(r"[\w\-.~+/=]*"), ""),
}
"""How a value goes on, by the kind of its start, and what may close it."""


# --- the rules ---


class _Rule(NamedTuple):
    marks: _Marks
    before: int
    """The most characters of a match before its mark."""
    begin: re.Pattern[str]
    head: re.Pattern[str]
    """A match up to the start of its value. Its length is limited."""


_QUOTED_FIELD = _Rule(
    _SECRET_WORDS,
    before=15 + 1 + 64 + _LONGEST_KIND,
    begin=re.compile(r"""\\{0,15}["']"""),
    head=re.compile(
        rf"""(?ix)
        (?P<start> \\{{0,15}}["'] {_SECRET_NAME} \\{{0,15}}["'] \s{{0,64}} [:=,]>? \s{{0,64}} (?:[bru](?=["']))? )
        (?: (?P<quote> \\{{0,15}}["'] )
            (?! [^"'\\\n]{{0,64}} \\{{0,15}}["'] \s{{0,9}} , \s{{0,9}} \\{{0,15}}["'] (?:logprob | bytes)\b )
            (?P<quoted>)
          | (?P<list> \[ ) (?!\s{{0,256}}\])
          | (?! null\b | true\b | false\b | [\[{{"'\\] ) (?P<bare> [^\s,;}}\]"'\\] ) )
        """
    ),
)
"""A field of JSON or of a Python dict, also of JSON within JSON: up to 15 backslashes before each quotation mark. In
lists of tokens with their `logprob`, `token` is part of the answer."""
_FIELD = _Rule(
    _SECRET_WORDS,
    before=64 + _LONGEST_KIND,
    begin=re.compile(r"(?<![\w.-])"),
    head=re.compile(
        rf"""(?ix)
        (?P<start> (?<![\w.-]) {_SECRET_NAME} \s{{0,9}} (?: [:=]>? | %3[ad] ) \s{{0,9}}
            (?: (?: bearer | basic | digest | token | negotiate | apikey ) (?: \s{{1,9}} | %20 ) )? )
        (?! null\b | none\b | true\b | false\b | bearer\b | {re.escape(REDACTED)} )
        (?: (?P<double> ") | (?P<single> ') | (?P<plain> [^\s"'&,;<>()\[\]{{}}\\]{{3}} ) )
        """
    ),
)
"""A field of a header, a query or a command line: `password=…`, `X-Auth-Token: …`."""
_WHOLE_LINE = _Rule(
    _SECRET_WORDS,
    before=len("set-"),
    begin=re.compile(r"\b"),
    head=re.compile(
        r"""(?ix)
        (?P<start>
            (?: \b(?:set-)?cookie \s{0,9} : | \bauthorization \s{0,9} : \s{0,9} (?:digest|aws4|oauth|signature)\b )
            \s{0,9}
        )
        (?P<line> [^\n"'<>] )
        """
    ),
)
"""Headers with several values."""
_MENTION = _Rule(
    _SECRET_WORDS,
    before=_LONGEST_KIND,
    begin=re.compile("(?i)(?=[abcefjlmpst])"),
    head=re.compile(
        rf"""(?ix)
        (?P<start> {_SECRET_WORD} \s{{1,9}} (?:(?:is|was|of)\s{{1,9}})? ) (?P<quote> ["'`] )
        (?P<mention> [^"'`\n]{{4}} )
        """
    ),
)
"""A sentence with a value in quotation marks: `the password "…" is wrong`."""
_ARGUMENT = _Rule(
    _SECRET_WORDS,
    before=2 + 64 + _LONGEST_KIND,
    begin=re.compile(r"(?<![\w-])-"),
    head=re.compile(rf"(?ix) (?P<start> (?<![\w-]) --? {_SECRET_NAME} \s{{1,9}} ) (?![-…]) (?P<argument> [^\s\"'] )"),
)
_KEY = _Rule(
    _KEY_STARTS,
    before=len("g"),  # `gsk` is found as `sk`
    begin=re.compile(r"\b|(?=-)"),
    head=re.compile(
        r"""(?ix)
        \b(?: (?: sk | pk | rk | gsk | xai | pplx | hf | gh[pousr] | github_pat | glpat | npm | xox[abeoprs] | AKIA
                | ASIA | AIza | ya29 | bedrock-api-key ) (?: [-_.] | (?<=AKIA) | (?<=ASIA) | (?<=AIza) )
            | tw- (?= [\w-]{40} ) ) (?P<key> [\w\-.]{12} )
        | \b(?P<start> bearer (?: \s{1,9} | %20 ) | signature= (?=[0-9a-f]{40}) )
            (?P<bearer> [\w\-.~+/=]{8} | (?=[\w\-.~+/=]{0,7}\d) [\w\-.~+/=]{4} )
        | \b(?P<jwt> eyJ[\w-]{8} )
        | (?P<pem> -----BEGIN[ ][A-Z ]{0,40}PRIVATE[ ]KEY----- )
        """
    ),
)
"""Keys that are known by their form, wherever they are."""
_URL_PASSWORD = _Rule(
    _URL_STARTS,
    before=0,
    begin=re.compile(":"),
    head=re.compile(
        r"""(?x)
        (?P<start> :(?:\\?/){2} [^\s/?#:@"'<>\\]{0,128} : )
        (?! \d{1,5} (?: [/?#\s"'<>\\] | \Z ) ) (?P<password> [^\s"'<>]{1,256} (?=@) )
        """
    ),
)
"""The password in `https://user:password@host`, also if it has a `/` or `@`; not a port."""
_RULES = (
    _URL_PASSWORD,  # first, because a user of a URL may have a name such as `token`
    _QUOTED_FIELD,
    _WHOLE_LINE,
    _FIELD,
    _MENTION,
    _ARGUMENT,
    _KEY,
)


def redact(text: str) -> str:
    """Replace what looks like a credential: the values of fields with names such as `api_key` or `token`, passwords in
    URLs, and keys of a known form. Takes time in proportion to the text, and lets other threads run meanwhile."""
    places: dict[tuple[str, ...], list[int]] = {}
    for rule in _RULES:
        literals = rule.marks.literals
        if literals not in places:
            places[literals] = _find_marks(text, rule.marks)
        if places[literals]:
            cleaned = _apply_rule(rule, text, places[literals])
            if cleaned is not text:
                text = cleaned
                places.clear()
    return text


def _apply_rule(rule: _Rule, text: str, places: Sequence[int]) -> str:
    """The same as to replace all matches of head and value, from left to right; but only around the marks."""
    ends = _ValueEnds(text)
    pieces: list[str] = []
    done = tried = 0
    for place in places:
        if place < tried:
            continue
        for begin in rule.begin.finditer(text, max(tried, place - rule.before), place + 1):
            at = begin.start()
            if at < tried:
                continue
            tried = at + 1
            found = rule.head.match(text, at)
            end = ends.end_of(found) if found is not None else -1
            if found is not None and end >= 0:
                pieces += (text[done:at], _hide_value(found, text[found.start() : end]))
                done = tried = end
    return "".join((*pieces, text[done:])) if pieces else text


def _hide_value(found: re.Match[str], whole: str) -> str:
    groups = found.groupdict()
    start, quote = groups.get("start") or "", groups.get("quote") or ""
    is_closed = quote and len(whole) > len(start) + len(quote) and whole.endswith(quote)
    return f"{start}{quote}{REDACTED}{quote if is_closed else ''}"


def redact_start(text: str) -> str:
    """The start of a text from a peer, without credentials: long enough for everything that is logged of it."""
    return redact(text[:_REDACTION_MARGIN])


def printable_text(text: str, limit: int = MAX_NAME) -> str:
    """Shorten a text and escape control characters, so that it cannot forge a log line."""
    return escape_controls(text if len(text) <= limit else text[: limit - 1] + "…")


def safe_name(text: str) -> str:
    """A name that a client chose, for instance of a model, as `printable_text` and without credentials."""
    return _safe_short_name(text) if len(text) <= MAX_NAME else printable_text(redact_start(text))


@lru_cache(1024)
def _safe_short_name(text: str) -> str:
    return printable_text(redact(text))


def shorten_agent(agent: str) -> str:
    return printable_text(safe_name(agent.partition(" (")[0]), 40)


def redact_body(body: bytes) -> str:
    text = redact(body[: 4 * (MAX_BODY + _REDACTION_MARGIN)].decode(errors="replace")[: MAX_BODY + _REDACTION_MARGIN])
    return text if len(text) <= MAX_BODY else f"{text[:MAX_BODY]}… ({len(body)} bytes)"


_NAMES_SECRET = re.compile(rf"(?ix) {_SECRET_WORD}")


def find_secrets(value: Json) -> Iterator[str]:
    """The values of members whose names say that they are secret, such as the `authorization` of an MCP server."""
    items = (
        value.items() if isinstance(value, dict) else [("", item) for item in value] if isinstance(value, list) else ()
    )
    for name, item in items:
        if not isinstance(item, str):
            yield from find_secrets(item)
        elif _NAMES_SECRET.search(name) is not None:
            yield item.rpartition(" ")[2]


# --- secrets whose values are known ---


def list_forms(secret: str) -> tuple[str, ...]:
    """How a secret may be written: as it is, escaped for JSON (also twice, or with `\\/`) or for a URL, and in base64,
    where what stands before it decides which of three forms it has."""
    escaped = msgspec.json.encode(secret).decode()[1:-1]
    escaped_twice = msgspec.json.encode(escaped).decode()[1:-1]
    data = secret.encode("utf-8", "surrogateescape")
    encoded = [
        b64encode(bytes(before) + data).decode()[skipped : 8 * (before + len(data)) // 6]
        for before, skipped in ((0, 0), (1, 2), (2, 3))
    ]
    url_safe = [form.replace("+", "-").replace("/", "_") for form in encoded]
    forms = (secret, escaped, escaped_twice, secret.replace("/", "\\/"), quote(secret, safe=""), *encoded, *url_safe)
    return tuple(sorted(dict.fromkeys(forms), key=len, reverse=True))


class SecretFilter:
    """Removes known secrets from texts for operators: the configured ones, and those of an exchange."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._secrets = tuple(secrets)
        self._forms = _collect_forms(self._secrets)

    def clean(self, text: str, more: tuple[str, ...] = ()) -> str:
        """The text without the secrets, and without `more` of them. One that was shortened is found by its start."""
        forms = (*self._forms, *_collect_forms(more)) if more else self._forms
        for form in forms:
            if form in text:
                text = text.replace(form, REDACTED)
        if forms and ("%" in text or "\\u00" in text):
            text = _hide_escaped(text, (*self._secrets, *more))
        return _hide_shortened(text, forms) if "…" in text else text


def hide_secrets(text: str, secrets: tuple[str, ...]) -> str:
    return _NO_SECRETS.clean(text, secrets)


@lru_cache(1024)
def _collect_forms(secrets: tuple[str, ...]) -> tuple[str, ...]:
    known = [secret for secret in secrets if len(secret) >= MIN_SECRET_LENGTH]
    found = {form for secret in known for form in (*list_forms(secret), secret.lower())}  # as names of agents are
    return tuple(sorted(found, key=len, reverse=True))


_ESCAPES = r"(?:%|\\{1,15}u00)"
_ESCAPED_LETTER = re.compile(rf"{_ESCAPES}([0-9a-fA-F]{{2}})")


def _hide_escaped(text: str, secrets: tuple[str, ...]) -> str:
    """The text without secrets of which some letters are escaped that need not be: pages show what they mean."""
    plain = _ESCAPED_LETTER.sub(lambda escaped: chr(int(escaped[1], 16)), text).replace("\\", "")
    for secret in secrets:
        if len(secret) >= MIN_SECRET_LENGTH and secret.replace("\\", "") in plain:
            text = re.sub(_escaped_pattern(secret, _ESCAPES), REDACTED, text)
    return text


_NO_SECRETS = SecretFilter()
_SHORTEST_START = 6
"""Characters of a secret that are hidden where the rest was cut off."""


def _hide_shortened(text: str, forms: Iterable[str]) -> str:
    for form in forms:
        pieces: list[str] = []
        done = at = 0
        while (at := text.find(form[:_SHORTEST_START], at)) >= 0:
            end = text.find("…", at, at + len(form))
            if end > at and form.startswith(text[at:end]):
                pieces += (text[done:at], REDACTED)
                done = at = end
            else:
                at += 1
        text = "".join((*pieces, text[done:])) if pieces else text
    return text


HIDDEN_KEY = b"[key]"


def _is_hidden_key(key: str, is_error: bool) -> bool:
    """Is it certain enough that no answer has this text by itself? Keys of local servers are often words, such as
    `lm-studio` or `not-needed`, which only errors repeat as keys."""
    return len(key) >= 20 or (len(key) >= 8 and (is_error or any(map(str.isdecimal, key))))


class KeyFilter:
    """Removes a provider's own keys from what it sends: some servers repeat them. `AnswerKeys` also finds those that
    several events of a stream spell."""

    def __init__(self, keys: Iterable[str], is_error: bool = False) -> None:
        known = sorted((key for key in keys if _is_hidden_key(key, is_error)), key=len, reverse=True)
        self._keys = tuple(key.encode("utf-8", "surrogateescape") for key in known)
        found = {form.encode("utf-8", "surrogateescape") for key in known for form in list_forms(key)}
        self._forms = tuple(sorted(found, key=len, reverse=True))
        self._escaped = re.compile(
            "|".join([_escaped_pattern(key, _NESTED_ESCAPES) for key in known]).encode("utf-8", "surrogateescape")
        )
        self._starts = tuple({form[:size] for form in self._forms for size in range(1, len(form))})
        self._last_bytes = frozenset(b"".join(self._forms)) | frozenset(b"0123456789abcdefABCDEF\\u")
        self._longest = max((len("\\\\\\\\u0000") * len(key) for key in self._keys), default=0)
        ends = sorted({key[:size] for key in self._keys for size in range(1, _SPELLED_START)})
        self._ends_like_key = re.compile(
            rb'"(?:%b)(?!\s*:)' % b"|".join(rb'(?<=%b")' % re.escape(end) for end in ends)
        ).search
        """Ends a string, and not the name of a member, with the first letters of a key?"""
        starts = [key[:_SPELLED_START] for key in self._keys]
        marks = [*dict.fromkeys((*starts, *(form for form in self._forms if form not in self._keys), _ESCAPE))]
        # Most keys need six searches: for their start, also at the end of a string, for three forms of base64, and for
        # escapes. Every event of a stream is searched.
        self._first, self._second, self._third, self._fourth, self._fifth = (*marks, *[_ESCAPE] * 5)[:5]
        self._others = marks[5:]

    def __bool__(self) -> bool:
        return bool(self._keys)

    def is_clean(self, data: bytes) -> bool:
        """Is there no key and no part of one? A quick search, for nearly everything."""
        find = data.find  # `in` is slower
        if find(self._first) >= 0 or find(self._second) >= 0 or find(self._third) >= 0 or find(self._fourth) >= 0:
            return False
        if find(self._fifth) >= 0 or self._ends_like_key(data) is not None:
            return False
        return not (self._others and any(find(mark) >= 0 for mark in self._others))

    def clean(self, data: bytes) -> bytes:
        if self.is_clean(data):
            return data
        for form in self._forms:
            data = data.replace(form, HIDDEN_KEY)
        if data.find(_ESCAPE) >= 0:
            data = self._escaped.sub(HIDDEN_KEY, data)
        return data

    def clean_headers(self, headers: dict[str, str]) -> dict[str, str]:
        if self.is_clean("\n".join(headers.values()).encode("latin-1", "replace")):
            return headers
        cleaned = {name: self.clean(value.encode("latin-1", "replace")) for name, value in headers.items()}
        return {name: value.decode("latin-1") for name, value in cleaned.items()}

    def count_open(self, data: bytes) -> int:
        """How many bytes at the end of a cleaned piece must wait for the next one, because a key may go on there."""
        if data[-1] not in self._last_bytes:
            return 0
        end = data[-self._longest :]
        end = end[end.rfind(b"\n") + 1 :]  # no key is longer than its line
        if end.find(b"\\") >= 0:
            return len(end)
        if not end.endswith(self._starts):
            return 0
        return max(len(start) for start in self._starts if end.endswith(start))

    def find_key(self, letters: bytes) -> tuple[int, int] | None:
        found = [(at, at + len(key)) for key in self._keys if (at := letters.find(key)) >= 0]
        return min(found, default=None)

    def goes_on(self, start: bytes, letters: bytes) -> bool:
        """Does a key go on with these letters after its start?"""
        text = start + letters
        return any(key.startswith(text[: len(key)]) for key in self._keys)

    def find_start(self, letters: bytes) -> int:
        """Where the start of a key begins with which the letters end; their length if there is none."""
        begin = len(letters)
        for key in self._keys:
            at = letters.find(key[:1], max(0, len(letters) - len(key) + 1))
            while 0 <= at < begin:
                if key.startswith(letters[at:]):
                    begin = at
                at = letters.find(key[:1], at + 1)
        return begin


_ESCAPE = b"\\u00"
_NESTED_ESCAPES = r"\\{1,4}u00"
"""Arguments are JSON within JSON: their letters may be escaped twice."""
_SPELLED_START = 3
"""Bytes of a key that are searched for in every answer; of less, only those with which a string ends."""


def _escaped_pattern(key: str, escapes: str) -> str:
    """Matches a key in which any of the letters are escaped."""
    return "".join(rf"(?:\\?{re.escape(one)}|{escapes}(?i:{ord(one):02x}))" for one in key)


@lru_cache(256)
def make_key_filter(keys: tuple[str, ...], is_error: bool = False) -> KeyFilter | None:
    """A filter for these keys; None if there is nothing to hide."""
    return KeyFilter(keys, is_error) or None
