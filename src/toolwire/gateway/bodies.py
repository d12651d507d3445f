"""Bodies of requests: unpacked, looked into for what routing needs, and given another model's name."""

from __future__ import annotations

import re
import sys
import zlib
from collections.abc import Callable, Mapping

import msgspec
from msgspec import Raw

from toolwire.ir import Failure
from toolwire.keeping import Peek

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

_peek = msgspec.json.Decoder(Peek).decode
_fields = msgspec.json.Decoder(dict[str, Raw]).decode
_encode = msgspec.json.Encoder().encode
_KEY = b'"model"'
_WORD = re.compile(rb'"model"(?=[ \t\r\n]*:[ \t\r\n]*")')
_PLACES = 16
"""In more places than these the name is not looked for."""


def peeked(body: bytes) -> Peek | None:
    """None when this is no JSON object with keys of these types: then a room's reader knows better what is wrong."""
    try:
        return _peek(body)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None


def has_tools(peek: Peek, body: bytes) -> bool:
    """Does the request declare tools, among its keys or in the middle of the conversation?"""
    declared = bytes(peek.tools)
    return (bool(declared) and declared not in (b"[]", b"null")) or body.find(b'"additional_tools"') >= 0


def with_model(body: bytes, model: str) -> bytes:
    """The same bytes but for the model's name. The body is one that `peeked` could read."""
    name = _encode(model)
    at = body.find(_KEY)
    if at >= 0 and body.find(_KEY, at + 1) < 0:
        spliced = _spliced(body, at, name)
        found = peeked(spliced)
        if found is not None and found.model == model:
            return spliced
    elif at >= 0:
        among = _among(body, model, name)
        if among is not None:
            return among
    # The name stands twice, or strangely: only the outermost keys are written anew, each once.
    fields = _fields(body)
    fields["model"] = Raw(name)
    return _encode(fields)


def _spliced(body: bytes, at: int, name: bytes) -> bytes:
    start = _after_colon(body, at + len(_KEY))
    return body[:start] + name + body[body.find(b'"', start + 1) + 1 :]


def _among(body: bytes, model: str, name: bytes) -> bytes | None:
    """Where the word stands in several places, such as the parameters of a tool: the one that routing reads, if it is
    the only one out there."""
    now = peeked(body)
    places = [found.start() for found in _WORD.finditer(body)]
    if now is None or now.model == model or len(places) > _PLACES:
        return None
    for at in reversed(places):
        spliced = _spliced(body, at, name)
        found = peeked(spliced)
        if found is not None and found.model == model:
            without = peeked(body[:at] + b'""' + body[at + len(_KEY) :])
            return spliced if without is not None and not without.model else None
    return None


def ambiguous(body: bytes) -> bool:
    """Could another reader find another model's name in it?"""
    at = body.find(_KEY)
    return at < 0 or body.find(_KEY, at + 1) >= 0


def _after_colon(body: bytes, at: int) -> int:
    while at < len(body) and body[at : at + 1] in b" \t\r\n:":
        at += 1
    return at


# --- unpacking ------------------------------------------------------------------------------------------------------


class _TooMuch(Exception):
    """The unpacked bytes are more than allowed."""


def _gunzipped(data: bytes, limit: int, wbits: int = 31) -> bytes:
    out = bytearray()
    while data:
        unpacker = zlib.decompressobj(wbits)
        out += unpacker.decompress(data, limit + 1 - len(out))
        if len(out) > limit:
            raise _TooMuch
        if not unpacker.eof:
            raise zlib.error("it ends early")
        data = unpacker.unused_data
    return bytes(out)


def _inflated(data: bytes, limit: int) -> bytes:
    return _gunzipped(data, limit, 15)


def _unzstd(data: bytes, limit: int) -> bytes:
    out = bytearray()
    while data:
        unpacker = zstd.ZstdDecompressor()
        out += unpacker.decompress(data, limit + 1 - len(out))
        if len(out) > limit:
            raise _TooMuch
        if not unpacker.eof:
            raise zstd.ZstdError("it ends early")
        data = unpacker.unused_data
    return bytes(out)


UNPACKERS: Mapping[str, Callable[[bytes, int], bytes]] = {
    "gzip": _gunzipped,
    "x-gzip": _gunzipped,
    "deflate": _inflated,
    "zstd": _unzstd,
}


def unpacked(body: bytes, encoding: str, limit: int) -> bytes | Failure:
    """The body without its content encodings, the last applied first; never more than `limit` bytes."""
    for name in reversed([word.strip().lower() for word in encoding.split(",")]):
        if name in ("", "identity"):
            continue
        unpack = UNPACKERS.get(name)
        if unpack is None:
            known = "gzip, deflate, zstd"
            return Failure("invalid", f"the content-encoding `{name[:40]}` is not known; use {known} or none", 415)
        try:
            body = unpack(body, limit)
        except _TooMuch:
            return too_large(limit)
        except (zlib.error, zstd.ZstdError) as error:
            return Failure("invalid", f"the body is not what its content-encoding `{name}` says: {error}", 400)
    return body


def too_large(limit: int) -> Failure:
    what = f"the request is larger than {limit:,} bytes, the limit of this gateway"
    return Failure("too_large", f"{what}; send less, or raise server.max_body", 413)
