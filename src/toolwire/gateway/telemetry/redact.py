"""Removes secrets from what is logged, and makes text from clients and providers safe to print."""

from __future__ import annotations

import re
from collections.abc import Iterable

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
    """Replace what looks like a credential: known forms of keys, and JSON fields with names such as `api_key`."""
    return _KEY_PATTERN.sub(REDACTED, _SECRET_FIELD_PATTERN.sub(rf"\g<1>{REDACTED}", text))


def printable_text(text: str, limit: int = MAX_NAME) -> str:
    """Shorten a text and escape control characters, so that it cannot forge a log line."""
    if len(text) > limit:
        text = text[: limit - 1] + "…"
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def shorten_agent(agent: str) -> str:
    return printable_text(agent.partition(" (")[0], 40)


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
