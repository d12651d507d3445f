"""Envelopes: seals of one provider that travel through a client of another protocol, with the name of their maker.

An envelope is URL-safe base64, because Gemini's `thoughtSignature` is a field of bytes, which its clients decode and
encode again. `translation/seals.py` opens the envelopes of a request.
"""

from __future__ import annotations

import base64
import binascii
from typing import Literal

import msgspec

_MAGIC = b"toolwire:"
TOOLWIRE_MAKER = "toolwire"
"""The maker of an entry that Toolwire made itself."""
ENVELOPE_PREFIX = base64.urlsafe_b64encode(_MAGIC).decode()
"""The first characters of every envelope."""
EMPTY_ENVELOPE = "dG9vbHdpcmU6W10"
"""An envelope without entries: a valid signature for the client, and nothing to send to any provider."""


class EnvelopeEntry(msgspec.Struct, frozen=True, array_like=True):
    """One seal, or one summary that Toolwire wrote, which has a text and no seal."""

    position: Literal["reasoning", "next", "before", "summary"]
    """What the seal belongs to: the reasoning in this entry, the part after the envelope, or the text before it."""
    maker: str
    value: str
    """The seal."""
    text: str = ""
    """The text of the reasoning or summary, where the client's protocol has no place for it."""
    form: Literal["", "summary", "raw"] = ""
    hidden: bool = False
    id: str = ""


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(list[EnvelopeEntry]).decode


def write_envelope(entries: list[EnvelopeEntry]) -> str:
    return base64.urlsafe_b64encode(_MAGIC + _encode(entries)).decode().rstrip("=")


def read_envelope(value: str) -> list[EnvelopeEntry] | None:
    """The entries of an envelope; None when the value is not one."""
    if not value.startswith(ENVELOPE_PREFIX):
        return None
    text = value.replace("+", "-").replace("/", "_").rstrip("=")
    try:
        data = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
        return _decode(data[len(_MAGIC) :])
    except (binascii.Error, msgspec.DecodeError, UnicodeError):
        return None
