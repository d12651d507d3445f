"""The rules of `gateway/http/redact.py` in their plainest form: one regular expression each, over the whole text. They
say what is hidden; the gateway finds the same in slices, and only near words that a secret needs."""

from __future__ import annotations

import re

from toolwire.gateway.http.redact import REDACTED

SECRET_WORD = r"""(?:
    (?: api | access | private | signing | encryption | client | toolwire | subscription | functions | account | shared
        | master | license ) [-_.]? keys?
    | secret | passw(?:or)?d | passphrase | credential | authori[sz]ation | cookie | bearer | \bjwt | \bpwd
    | \b(?:pass|auth)(?=["'\\\s:=])
    | (?<!max)(?<!max[-_])(?<!num[-_])(?<!per[-_])
        token (?!s | [-_.]? (?: count | limit | budget | usage | id\b | type | ize ) )
)"""
SECRET_NAME = rf"[\w.-]{{0,64}}? {SECRET_WORD} [\w.-]{{0,64}}"
QUOTED_FIELD = re.compile(
    rf"""(?ix)
    (?P<start> \\{{0,15}}["'] {SECRET_NAME} \\{{0,15}}["'] \s{{0,64}} [:=,]>? \s{{0,64}} (?:[bru](?=["']))? )
    (?: (?P<quote> \\{{0,15}}["'] )
        (?! [^"'\\\n]{{0,64}} \\{{0,15}}["'] \s{{0,9}} , \s{{0,9}} \\{{0,15}}["'] (?:logprob | bytes)\b )
        (?: .*? (?<!\\) (?P=quote) | .* )
      | \[ (?!\s{{0,256}}\]) [^\]\n]* \]?
      | (?! null\b | true\b | false\b | [\[{{"'\\] ) [^\s,;}}\]"'\\]+ )
    """
)
FIELD = re.compile(
    rf"""(?ix)
    (?P<start> (?<![\w.-]) {SECRET_NAME} \s{{0,9}} (?: [:=]>? | %3[ad] ) \s{{0,9}}
        (?: (?: bearer | basic | digest | token | negotiate | apikey ) (?: \s{{1,9}} | %20 ) )? )
    (?! null\b | none\b | true\b | false\b | bearer\b | {re.escape(REDACTED)} )
    (?: "[^"\n]*"? | '[^'\n]*'? | [^\s"'&,;<>()\[\]{{}}\\]{{3,}} )
    """
)
WHOLE_LINE = re.compile(
    r"""(?ix)
    (?P<start>
        (?: \b(?:set-)?cookie \s{0,9} : | \bauthorization \s{0,9} : \s{0,9} (?:digest|aws4|oauth|signature)\b ) \s{0,9}
    )
    [^\n"'<>]+
    """
)
MENTION = re.compile(
    rf"""(?ix)
    (?P<start> {SECRET_WORD} \s{{1,9}} (?:(?:is|was|of)\s{{1,9}})? ) (?P<quote> ["'`] ) [^"'`\n]{{4,}} (?P=quote)?
    """
)
ARGUMENT = re.compile(rf"(?ix) (?P<start> (?<![\w-]) --? {SECRET_NAME} \s{{1,9}} ) (?![-…]) [^\s\"']+")
KEY = re.compile(
    r"""(?ix)
    \b(?: sk | pk | rk | gsk | xai | pplx | hf | gh[pousr] | github_pat | glpat | npm | xox[abeoprs] | AKIA | ASIA
        | AIza | ya29 | bedrock-api-key )
        (?: [-_.] | (?<=AKIA) | (?<=ASIA) | (?<=AIza) ) [\w\-.]{12,}
    | \b(?P<start> bearer (?: \s{1,9} | %20 ) | signature= (?=[0-9a-f]{40}) )
        (?: [\w\-.~+/=]{8,} | (?=[\w\-.~+/=]{0,7}\d) [\w\-.~+/=]{4,} )
    | \beyJ[\w-]{8,}\.[\w-]{4,}(?:\.[\w-]*)?
    | -----BEGIN[ ][A-Z ]{0,40}PRIVATE[ ]KEY-----.*?(?:-----END[ ][A-Z ]{0,40}PRIVATE[ ]KEY-----|\Z)
    """,
    re.DOTALL,
)
URL_PASSWORD = re.compile(
    r"""(?x)
    (?P<start> :(?:\\?/){2} [^\s/?#:@"'<>\\]{0,128} : )
    (?! \d{1,5} (?: [/?#\s"'<>\\] | \Z ) ) [^\s"'<>]{1,256} (?=@)
    """
)
"""The password in `https://user:password@host`, also if it has a `/` or `@`; not a port."""

PATTERNS = (URL_PASSWORD, QUOTED_FIELD, WHOLE_LINE, FIELD, MENTION, ARGUMENT, KEY)


def redact_plainly(text: str) -> str:
    for pattern in PATTERNS:
        text = pattern.sub(hide_value, text)
    return text


def hide_value(found: re.Match[str]) -> str:
    start = found["start"] or ""
    quote = found.groupdict().get("quote") or ""
    is_closed = quote and len(found[0]) > len(start) + len(quote) and found[0].endswith(quote)
    return f"{start}{quote}{REDACTED}{quote if is_closed else ''}"
