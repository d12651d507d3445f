"""Envelopes: seals of one provider that travel through a client of another protocol, with the name of their maker.

An envelope is URL-safe base64, because Gemini's `thoughtSignature` is a field of bytes, which its clients decode and
encode again. `translation/seals.py` opens the envelopes of a request.

A gateway signs its envelopes with a key of its own (HMAC-SHA256), for the client that gets them, so that no client can
make one up or use that of another. Without a key, as in the library alone, envelopes are not signed and all are opened.
"""

from __future__ import annotations

import base64
import binascii
import hmac
from typing import Literal

import msgspec

_MAGIC = b"toolwire:"
_SIGNED = b"\x02"
"""After the magic word of a signed envelope: the signature and the entries follow. JSON cannot begin so."""
_SIGNATURE_LENGTH = 16
"""Bytes; 128 bits of HMAC-SHA256."""
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


class EnvelopeKeys(msgspec.Struct, frozen=True):
    """The keys that sign envelopes, and whom for."""

    keys: tuple[bytes, ...]
    """The first signs; all are accepted."""
    owner: str = ""
    """The client whose envelopes these are."""

    def sign(self, key: bytes, data: bytes) -> bytes:
        return hmac.digest(key, self.owner.encode() + b"\0" + data, "sha256")[:_SIGNATURE_LENGTH]

    def is_signed(self, data: bytes, signature: bytes) -> bool:
        return any(hmac.compare_digest(self.sign(key, data), signature) for key in self.keys)

    def __repr__(self) -> str:
        return f"EnvelopeKeys(owner={self.owner!r})"


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(list[EnvelopeEntry]).decode


def write_envelope(entries: list[EnvelopeEntry], keys: EnvelopeKeys | None = None) -> str:
    data = _encode(entries)
    if keys is not None and entries:
        data = _SIGNED + keys.sign(keys.keys[0], data) + data
    return base64.urlsafe_b64encode(_MAGIC + data).decode().rstrip("=")


def read_envelope(value: str, keys: EnvelopeKeys | None = None) -> list[EnvelopeEntry] | None:
    """The entries of an envelope; None when the value is not one, or was not made with these keys for this client."""
    if not value.startswith(ENVELOPE_PREFIX):
        return None
    text = value.replace("+", "-").replace("/", "_").rstrip("=")
    try:
        data = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
        data = data[len(_MAGIC) :]
        signature, content = (
            (data[1 : _SIGNATURE_LENGTH + 1], data[_SIGNATURE_LENGTH + 1 :]) if data[:1] == _SIGNED else (b"", data)
        )
        entries = _decode(content)
    except (binascii.Error, msgspec.DecodeError, UnicodeError):
        return None
    if keys is None or (signature and keys.is_signed(content, signature)):
        return entries
    # Without a seal and a text, there is nothing to gain: see `make_placeholder_seal`.
    is_harmless = not signature and not any(entry.value or entry.text for entry in entries)
    return entries if is_harmless else None
