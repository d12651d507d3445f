"""A cache of parsed request heads, one per connection.

An SDK sends the same head with every request, except for the content length. If all other bytes are equal, the result
of parsing is equal too, so the parser is skipped."""

from __future__ import annotations

import msgspec

from toolwire.gateway.http.client_request import HttpRequest, RequestLine
from toolwire.gateway.http.messages import HeadKey
from toolwire.gateway.http.request_target import RequestTarget

MAX_CACHED_HEAD = 8 * 1024
_CONTENT_LENGTH = b"\r\ncontent-length:"
_UNCACHEABLE_HEADERS = frozenset({"transfer-encoding", "upgrade", "expect"})
"""With these, the body is not simply what the content length says."""


class CachedHead(msgspec.Struct, frozen=True):
    """The head of a request that came complete, alone and in one piece."""

    before_length: bytes
    """All bytes before the value of the content length."""
    after_length: bytes
    """All bytes after it, to the end of the head."""
    fixed_size: int
    """The size of both."""
    length_digits: int
    """Digits of the last content length."""
    request_line: RequestLine
    headers: dict[str, str]
    head_key: HeadKey

    def match_length(self, data: bytes) -> str:
        """The content length, if the data is exactly one request with such a head; else ""."""
        variable_size, digits = len(data) - self.fixed_size, self.length_digits
        length = str(variable_size - digits)
        if len(length) != digits:
            digits = len(length)
            length = str(variable_size - digits)
        matches = len(length) == digits and data.startswith(self.before_length + length.encode() + self.after_length)
        return length if matches else ""


def cache_head(request: HttpRequest, data: bytes) -> CachedHead | None:
    """The head of a request that the parser found in `data`, if it can be cached."""
    end = data.find(b"\r\n\r\n") + 4
    headers = request.headers
    length = str(len(data) - end)
    if not 4 <= end <= MAX_CACHED_HEAD or headers.get("content-length") != length:
        return None  # not alone, or not complete
    head = data[:end]
    is_http_1_1 = head.partition(b"\r\n")[0].endswith(b" HTTP/1.1")
    if not request.keep_alive or not is_http_1_1 or not _UNCACHEABLE_HEADERS.isdisjoint(headers):
        return None
    start = head.find(length.encode(), head.lower().find(_CONTENT_LENGTH) + len(_CONTENT_LENGTH))
    before, after = head[:start], head[start + len(length) :]
    target = RequestTarget(request.path, request.query, request.target_problem)
    line = RequestLine(request.method, target, keep_alive=True, is_http_1_0=False)
    return CachedHead(before, after, end - len(length), len(length), line, headers.copy(), request.head_key)
