"""Removes secrets from what is logged, and makes text from clients and providers safe to print."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

import msgspec

MAX_BODY = 65536
"""Characters of a body that are logged."""
MAX_NAME = 120
"""Characters of a name or an id that are logged."""
_REDACTION_MARGIN = 4096
"""Read beyond the limit, so that a key that crosses it is recognised."""
MIN_SECRET_LENGTH = 12
"""Shorter keys are placeholders such as `ollama`; replacing them would garble names."""
REDACTED = "[hidden]"

_SECRET_WORD = r"""(?:
    (?: api | access | private | signing | encryption | client | toolwire | subscription | functions | account | shared
        | master | license ) [-_.]? keys?
    | secret | passw(?:or)?d | passphrase | credential | authori[sz]ation | cookie | bearer | \bjwt | \bpwd
    | \b(?:pass|auth)(?=["'\\\s:=])
    | (?<!max)(?<!max[-_])(?<!num[-_])(?<!per[-_])
        token (?!s | [-_.]? (?: count | limit | budget | usage | id\b | type | ize ) )
)"""
"""Words in a name that say that its value is a secret. `max_tokens` and the like are numbers of tokens."""
_SECRET_NAME = rf"[\w.-]{{0,64}}? {_SECRET_WORD} [\w.-]{{0,64}}"
_QUOTED_FIELD_PATTERN = re.compile(
    rf"""(?ix)
    (?P<start> \\{{0,15}}["'] {_SECRET_NAME} \\{{0,15}}["'] \s{{0,64}} [:=,]>? \s{{0,64}} (?:[bru](?=["']))? )
    (?: (?P<quote> \\{{0,15}}["'] )
        (?! [^"'\\\n]{{0,64}} \\{{0,15}}["'] \s{{0,9}} , \s{{0,9}} \\{{0,15}}["'] (?:logprob | bytes)\b )
        (?: .*? (?<!\\) (?P=quote) | .* )
      | \[ (?!\s*\]) [^\]\n]* \]?
      | (?! null\b | true\b | false\b | [\[{{"'\\] ) [^\s,;}}\]"'\\]+ )
    """
)
"""A field of JSON or of a Python dict, also of JSON within JSON: up to 15 backslashes before each quotation mark. In
lists of tokens with their `logprob`, `token` is part of the answer."""
_FIELD_PATTERN = re.compile(
    rf"""(?ix)
    (?P<start> (?<![\w.-]) {_SECRET_NAME} \s{{0,9}} (?: [:=]>? | %3[ad] ) \s{{0,9}}
        (?: (?: bearer | basic | digest | token | negotiate | apikey ) (?: \s{{1,9}} | %20 ) )? )
    (?! null\b | none\b | true\b | false\b | bearer\b | {re.escape(REDACTED)} )
    (?: "[^"\n]*"? | '[^'\n]*'? | [^\s"'&,;<>()\[\]{{}}\\]{{3,}} )
    """
)
"""A field of a header, a query or a command line: `password=…`, `X-Auth-Token: …`."""
_WHOLE_LINE_PATTERN = re.compile(
    r"""(?ix)
    (?P<start>
        (?: \b(?:set-)?cookie \s{0,9} : | \bauthorization \s{0,9} : \s{0,9} (?:digest|aws4|oauth|signature)\b ) \s{0,9}
    )
    [^\n"'<>]+
    """
)
"""Headers with several values."""
_MENTION_PATTERN = re.compile(
    rf"""(?ix)
    (?P<start> {_SECRET_WORD} \s{{1,9}} (?:(?:is|was|of)\s{{1,9}})? ) (?P<quote> ["'`] ) [^"'`\n]{{4,}} (?P=quote)?
    """
)
"""A sentence with a value in quotation marks: `the password "…" is wrong`."""
_ARGUMENT_PATTERN = re.compile(rf"(?ix) (?P<start> (?<![\w-]) --? {_SECRET_NAME} \s{{1,9}} ) (?![-…]) [^\s\"']+")
_KEY_PATTERN = re.compile(
    r"""(?ix)
    \b(?: sk | pk | rk | gsk | xai | pplx | hf | gh[pousr] | github_pat | glpat | npm | xox[abeoprs] | AKIA | ASIA
        | AIza | ya29 )
        (?: [-_.] | (?<=AKIA) | (?<=ASIA) | (?<=AIza) ) [\w\-.]{12,}
    | \b(?P<start> bearer (?: \s{1,9} | %20 ) )
        (?: [\w\-.~+/=]{8,} | (?=[\w\-.~+/=]{0,7}\d) [\w\-.~+/=]{4,} )
    | \beyJ[\w-]{8,}\.[\w-]{4,}(?:\.[\w-]*)?
    | -----BEGIN[ ][A-Z ]{0,40}PRIVATE[ ]KEY-----.*?(?:-----END[ ][A-Z ]{0,40}PRIVATE[ ]KEY-----|\Z)
    """,
    re.DOTALL,
)
"""Keys that are known by their form, wherever they are."""
_URL_PASSWORD_PATTERN = re.compile(
    r"""(?x)
    (?P<start> :(?:\\?/){2} [^\s/?#:@"'<>\\]{0,128} : )
    (?! \d{1,5} (?: [/?#\s"'<>\\] | \Z ) ) [^\s"'<>]{1,256} (?=@)
    """
)
"""The password in `https://user:password@host`, also if it has a `/` or `@`; not a port."""
_PATTERNS = (
    _URL_PASSWORD_PATTERN,  # first, because a user of a URL may have a name such as `token`
    _QUOTED_FIELD_PATTERN,
    _WHOLE_LINE_PATTERN,
    _FIELD_PATTERN,
    _MENTION_PATTERN,
    _ARGUMENT_PATTERN,
    _KEY_PATTERN,
)


def redact(text: str) -> str:
    """Replace what looks like a credential: the values of fields with names such as `api_key` or `token`, passwords in
    URLs, and keys of a known form."""
    for pattern in _PATTERNS:
        text = pattern.sub(_hide_value, text)
    return text


def _hide_value(found: re.Match[str]) -> str:
    start = found["start"] or ""
    quote = found.groupdict().get("quote") or ""
    is_closed = quote and len(found[0]) > len(start) + len(quote) and found[0].endswith(quote)
    return f"{start}{quote}{REDACTED}{quote if is_closed else ''}"


def redact_start(text: str) -> str:
    """The start of a text from a peer, without credentials: long enough for everything that is logged of it."""
    return redact(text[:_REDACTION_MARGIN])


def printable_text(text: str, limit: int = MAX_NAME) -> str:
    """Shorten a text and escape control characters, so that it cannot forge a log line."""
    if len(text) > limit:
        text = text[: limit - 1] + "…"
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def safe_name(text: str) -> str:
    """A name that a client chose, for instance of a model, as `printable_text` and without credentials."""
    return _safe_short_name(text) if len(text) <= MAX_NAME else printable_text(redact_start(text))


@lru_cache(1024)
def _safe_short_name(text: str) -> str:
    return printable_text(redact(text))


def shorten_agent(agent: str) -> str:
    return printable_text(safe_name(agent.partition(" (")[0]), 40)


def redact_body(body: bytes) -> str:
    """The start of a body, without credentials."""
    text = redact(body[: 4 * (MAX_BODY + _REDACTION_MARGIN)].decode(errors="replace")[: MAX_BODY + _REDACTION_MARGIN])
    return text if len(text) <= MAX_BODY else f"{text[:MAX_BODY]}… ({len(body)} bytes)"


class SecretFilter:
    """Replaces the configured secrets in a log line, as they are and as JSON escapes them."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        exact = {secret for secret in secrets if len(secret) >= MIN_SECRET_LENGTH}
        escaped = {msgspec.json.encode(secret).decode()[1:-1] for secret in exact}
        self._secrets = tuple(sorted(exact | escaped, key=len, reverse=True))

    def clean(self, line: str) -> str:
        for secret in self._secrets:
            if secret in line:
                line = line.replace(secret, REDACTED)
        return line
