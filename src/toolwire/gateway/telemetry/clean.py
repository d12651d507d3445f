"""What peers wrote, as it may be shown: no line can be forged with it, and no credential is seen in it."""

from __future__ import annotations

import re

BODY_LIMIT = 65536
"""Characters of a body that are logged where bodies are asked for."""
LIMIT = 120
"""Characters of a name or an id that are shown."""
_BESIDE = 4096
"""Read beyond the limit, so that a key that lies across it is seen as one."""
SHORTEST_SECRET = 12
"""Shorter ones are placeholders such as `ollama`, and hiding them would hide names."""
HIDDEN = "[hidden]"

_KEYS = re.compile(
    r"""(?ix)
    \b(?: sk | pk | rk | gsk | xai | pplx | hf | ghp | gho | github_pat | xox[abp] | AKIA | AIza | ya29 )
        (?: [-_.] | (?<=AKIA) | (?<=AIza) ) [\w\-.]{12,}
    | (?<=bearer\s) [\w\-.~+/=]{8,}
    | -----BEGIN[ ][A-Z ]*PRIVATE[ ]KEY-----.*?(?:-----END[ ][A-Z ]*PRIVATE[ ]KEY-----|\Z)
    """,
    re.DOTALL,
)
_FIELDS = re.compile(
    r"""(?ix)
    ( \\*" (?: (?:[\w-]*[-_])? api[-_]?key | authorization(?:_token)? | password | client_secret | private_key
        | (?:access|refresh)_token ) \\*" \s*:\s* \\*" ) [^"\\]*
    """
)


def redact(text: str) -> str:
    """The text without what looks like a credential: known shapes of keys, and fields that hold one by their name."""
    return _KEYS.sub(HIDDEN, _FIELDS.sub(rf"\g<1>{HIDDEN}", text))


def clean(text: str, limit: int = LIMIT) -> str:
    """A string of a peer's as it may stand in a line: printable and short, everything else escaped."""
    if len(text) > limit:
        text = text[: limit - 1] + "…"
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def short_agent(agent: str) -> str:
    return clean(agent.partition(" (")[0], 40)


def clean_body(body: bytes) -> str:
    """What is shown of a body: its start, without credentials."""
    text = redact(body[: 4 * (BODY_LIMIT + _BESIDE)].decode(errors="replace")[: BODY_LIMIT + _BESIDE])
    return text if len(text) <= BODY_LIMIT else f"{text[:BODY_LIMIT]}… ({len(body)} bytes)"
