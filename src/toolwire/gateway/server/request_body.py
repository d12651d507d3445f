"""Request bodies: decompressed, read as far as routing needs it, and with the model replaced."""

from __future__ import annotations

import re
import sys
import zlib
from collections.abc import Callable, Mapping

import msgspec
from msgspec import Raw, Struct

from toolwire.core.ir import Failure

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

_NO_VALUE = Raw(b"")


class Peek(Struct, frozen=True, gc=False):
    """The few keys of a request that routing needs; the rest is skipped, not decoded."""

    model: str = ""
    stream: bool | None = None
    tools: Raw = _NO_VALUE


_decode_peek = msgspec.json.Decoder(Peek).decode
_decode_fields = msgspec.json.Decoder(dict[str, Raw]).decode
_encode = msgspec.json.Encoder().encode
_MODEL_KEY = b'"model"'
_MODEL_PATTERN = re.compile(rb'"model"(?=[ \t\r\n]*:[ \t\r\n]*")')
_MAX_PLACES = 16
"""The model is not replaced in place if the key occurs more often."""


def peek_body(body: bytes) -> Peek | None:
    """The keys that routing needs. None if the body has not such keys: the codec's reader says what is wrong."""
    try:
        return _decode_peek(body)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None


def declares_tools(peek: Peek, body: bytes) -> bool:
    """Does the request declare tools, among its keys or in the middle of the conversation?"""
    declared = bytes(peek.tools)
    return (bool(declared) and declared not in (b"[]", b"null")) or body.find(b'"additional_tools"') >= 0


def replace_model(body: bytes, model: str) -> bytes:
    """The same bytes with another model. The body is one that `peek_body` can read."""
    name = _encode(model)
    at = body.find(_MODEL_KEY)
    if at >= 0 and body.find(_MODEL_KEY, at + 1) < 0:
        spliced = _splice_model(body, at, name)
        found = peek_body(spliced)
        if found is not None and found.model == model:
            return spliced
    elif at >= 0 and (outer := _splice_outer_model(body, model, name)):
        return outer
    # The key occurs twice, or with escapes: write the outermost keys again, each once.
    fields = _decode_fields(body)
    fields["model"] = Raw(name)
    return _encode(fields)


def _splice_model(body: bytes, at: int, name: bytes) -> bytes:
    start = at + len(_MODEL_KEY)
    while body[start : start + 1] in (b" ", b"\t", b"\r", b"\n", b":"):
        start += 1
    return body[:start] + name + body[body.find(b'"', start + 1) + 1 :]


def _splice_outer_model(body: bytes, model: str, name: bytes) -> bytes | None:
    """Where `"model"` occurs several times, such as in the parameters of a tool: replace the outermost one, if there is
    only one."""
    current = peek_body(body)
    places = [found.start() for found in _MODEL_PATTERN.finditer(body)]
    if current is None or current.model == model or len(places) > _MAX_PLACES:
        return None
    for at in reversed(places):
        spliced = _splice_model(body, at, name)
        found = peek_body(spliced)
        if found is not None and found.model == model:
            without = peek_body(body[:at] + b'""' + body[at + len(_MODEL_KEY) :])
            return spliced if without is not None and not without.model else None
    return None


def has_ambiguous_model(body: bytes) -> bool:
    """Could another parser find another model in it?"""
    at = body.find(_MODEL_KEY)
    return at < 0 or body.find(_MODEL_KEY, at + 1) >= 0


# --- how much there is to read ---

MAX_VALUES = 250_000
"""JSON values in a request. The longest conversations of agents have some ten thousand; decoding more than this would
stop the event loop for too long, because Python does nothing else meanwhile."""
_OTHER_BYTES = bytes(set(range(256)) - set(b"{[,"))


def has_too_many_values(body: bytes, limit: int = MAX_VALUES) -> bool:
    """Are there more values than the limit? Mostly decided by counting bytes that begin or separate values."""
    if len(body) < 2 * limit or len(body.translate(None, _OTHER_BYTES)) <= limit:
        return False
    if body.count(b'"') - body.count(b'\\"') > 4 * limit:
        return True  # each value has at most a key and a string, with two quotes each
    # Text may contain many such bytes, for instance a table with commas: count only what is outside of strings.
    outside = b"".join(body.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')[::2])
    return len(outside.translate(None, _OTHER_BYTES)) > limit


# --- decompression ---

_MAX_ENCODINGS = 2
_MAX_MEMBERS = 16
"""Compressed parts one after another, which gzip and zstd allow. Each costs a copy of the rest of the body."""


_DECOMPRESSORS: Mapping[str, Callable[[], zlib._Decompress | zstd.ZstdDecompressor]] = {
    "gzip": lambda: zlib.decompressobj(31),
    "x-gzip": lambda: zlib.decompressobj(31),
    "deflate": lambda: zlib.decompressobj(15),
    "zstd": zstd.ZstdDecompressor,
}


def decompress_body(body: bytes, encoding: str, limit: int) -> bytes | Failure:
    """The body without its content encodings, the last applied first; never more than `limit` bytes."""
    named = [name for word in encoding.split(",", 64) if (name := word.strip().lower()) not in ("", "identity")]
    if len(named) > _MAX_ENCODINGS:
        return Failure("invalid", f"the body has {len(named)} content encodings; use at most {_MAX_ENCODINGS}", 415)
    for name in reversed(named):
        make_decompressor = _DECOMPRESSORS.get(name)
        if make_decompressor is None:
            message = f"unknown content-encoding `{name[:40]}`; use gzip, deflate, zstd or none"
            return Failure("invalid", message, 415)
        out = bytearray()
        members = 0
        try:
            while body:
                members += 1
                if members > _MAX_MEMBERS:
                    raise zlib.error(f"it has more than {_MAX_MEMBERS} parts")
                decompressor = make_decompressor()
                out += decompressor.decompress(body, limit + 1 - len(out))
                if len(out) > limit:
                    return body_too_large(limit)
                if not decompressor.eof:
                    raise zlib.error("it is truncated")
                body = decompressor.unused_data
        except (zlib.error, zstd.ZstdError) as error:
            return Failure("invalid", f"the body is not valid {name}, as its content-encoding says: {error}", 400)
        body = bytes(out)
    return body


def body_too_large(limit: int) -> Failure:
    what = f"the request is larger than {limit:,} bytes, the limit of this gateway"
    return Failure("too_large", f"{what}; send less, or raise server.max_body", 413)
