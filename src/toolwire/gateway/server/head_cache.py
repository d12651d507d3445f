"""A head that is like the one before on its connection but for the length of the body.

An SDK sends the same lines with every request. What the parser made of them once need not be made again, and what is
the same to the byte cannot be understood in another way.
"""

from __future__ import annotations

import msgspec

from toolwire.gateway.pipeline.call import ResolvedHeads
from toolwire.gateway.server.request import HttpRequest, RequestLine

MAX_CACHED_HEAD = 8 * 1024
"""Of a head that is remembered."""
_CONTENT_LENGTH = b"\r\ncontent-length:"
_UNCACHEABLE_HEADERS = frozenset({"transfer-encoding", "upgrade", "expect"})
"""With these the body, or what follows it, is not simply what the length says."""


class CachedHead(msgspec.Struct, frozen=True):
    """Of a request that came whole, alone and in one piece."""

    before_length: bytes
    """All up to the length of the body."""
    after_length: bytes
    """All from there to the end of the head."""
    fixed_size: int
    """Of both."""
    length_digits: int
    """Of the length, the last time."""
    request_line: RequestLine
    headers: dict[str, str]
    resolved_heads: ResolvedHeads

    def match_length(self, data: bytes) -> str:
        """That of the body as it is told, if this is exactly one whole request with such a head; else ""."""
        rest, digits = len(data) - self.fixed_size, self.length_digits
        told = str(rest - digits)
        if len(told) != digits:
            digits = len(told)
            told = str(rest - digits)
        known = len(told) == digits and data.startswith(self.before_length + told.encode() + self.after_length)
        return told if known else ""


def cache_head(request: HttpRequest, data: bytes) -> CachedHead | None:
    """The head of a request that the parser found in `data`, if it can be known again."""
    end = data.find(b"\r\n\r\n") + 4
    headers = request.headers
    length = str(len(data) - end)
    if not 4 <= end <= MAX_CACHED_HEAD or headers.get("content-length") != length:
        return None  # not alone, or not whole
    head = data[:end]
    if (
        not request.keep_alive
        or not _UNCACHEABLE_HEADERS.isdisjoint(headers)
        or not head.partition(b"\r\n")[0].endswith(b" HTTP/1.1")
    ):
        return None
    start = head.find(length.encode(), head.lower().find(_CONTENT_LENGTH) + len(_CONTENT_LENGTH))
    before, after = head[:start], head[start + len(length) :]
    opening = RequestLine(request.method, request.path, request.query, keep_alive=True, is_http_1_0=False)
    return CachedHead(before, after, end - len(length), len(length), opening, headers.copy(), request.resolved_heads)
