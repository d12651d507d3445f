"""Request bodies without their content encodings."""

from __future__ import annotations

import sys
import zlib
from collections.abc import Callable, Mapping

from toolwire.core.ir import Failure

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

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
