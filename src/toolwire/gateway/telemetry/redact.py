"""What peers wrote, as it may be shown: no line can be forged with it, and no credential is seen in it."""

from __future__ import annotations

import re

MAX_BODY = 65536
"""Characters of a body that are logged where bodies are asked for."""
MAX_NAME = 120
"""Characters of a name or an id that are shown."""
_REDACTION_MARGIN = 4096
"""Read beyond the limit, so that a key that lies across it is seen as one."""
MIN_SECRET_LENGTH = 12
"""Shorter ones are placeholders such as `ollama`, and hiding them would hide names."""
REDACTED = "[hidden]"

_KEY_PATTERN = re.compile(
    r"""(?ix)
    \b(?: sk | pk | rk | gsk | xai | pplx | hf | ghp | gho | github_pat | xox[abp] | AKIA | AIza | ya29 )
        (?: [-_.] | (?<=AKIA) | (?<=AIza) ) [\w\-.]{12,}
    | (?<=bearer\s) [\w\-.~+/=]{8,}
    | -----BEGIN[ ][A-Z ]*PRIVATE[ ]KEY-----.*?(?:-----END[ ][A-Z ]*PRIVATE[ ]KEY-----|\Z)
    """,
    re.DOTALL,
)
_SECRET_FIELD_PATTERN = re.compile(
    r"""(?ix)
    ( \\*" (?: (?:[\w-]*[-_])? api[-_]?key | authorization(?:_token)? | password | client_secret | private_key
        | (?:access|refresh)_token ) \\*" \s*:\s* \\*" ) [^"\\]*
    """
)


def redact(text: str) -> str:
    """The text without what looks like a credential: known shapes of keys, and fields that hold one by their name."""
    return _KEY_PATTERN.sub(REDACTED, _SECRET_FIELD_PATTERN.sub(rf"\g<1>{REDACTED}", text))


def printable_text(text: str, limit: int = MAX_NAME) -> str:
    """A string of a peer's as it may stand in a line: printable and short, everything else escaped."""
    if len(text) > limit:
        text = text[: limit - 1] + "…"
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def shorten_agent(agent: str) -> str:
    return printable_text(agent.partition(" (")[0], 40)


def redact_body(body: bytes) -> str:
    """What is shown of a body: its start, without credentials."""
    text = redact(body[: 4 * (MAX_BODY + _REDACTION_MARGIN)].decode(errors="replace")[: MAX_BODY + _REDACTION_MARGIN])
    return text if len(text) <= MAX_BODY else f"{text[:MAX_BODY]}… ({len(body)} bytes)"
