"""Envelopes: what must come back, in text that names its maker.

An envelope is text of the URL-safe base64 alphabet, because one of the slots it travels in is a field of bytes, whose
clients decode and encode it again. Opening one gives the entries back exactly.
"""

from __future__ import annotations

import base64
import binascii
from typing import Literal

import msgspec

_MAGIC = b"toolwire:"
TOOLWIRE_MAKER = "toolwire"
"""The maker of what we made ourselves."""
ENVELOPE_PREFIX = base64.urlsafe_b64encode(_MAGIC).decode()
"""How every envelope begins."""


class EnvelopeEntry(msgspec.Struct, frozen=True, array_like=True):
    """One seal: of the reasoning it stands for, of the part after it, or of the part before it. Or a summary of ours,
    which has no seal but its text."""

    position: Literal["reasoning", "next", "before", "summary"]
    maker: str
    value: str
    text: str = ""
    form: Literal["", "summary", "raw"] = ""
    hidden: bool = False
    id: str = ""


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(list[EnvelopeEntry]).decode


def write_envelope(entries: list[EnvelopeEntry]) -> str:
    return base64.urlsafe_b64encode(_MAGIC + _encode(entries)).decode().rstrip("=")


def read_envelope(value: str) -> list[EnvelopeEntry] | None:
    """The entries of an envelope; None when the value is something else."""
    if not value.startswith(ENVELOPE_PREFIX):
        return None
    text = value.replace("+", "-").replace("/", "_").rstrip("=")
    try:
        data = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
        return _decode(data[len(_MAGIC) :])
    except (binascii.Error, msgspec.DecodeError, UnicodeError):
        return None
