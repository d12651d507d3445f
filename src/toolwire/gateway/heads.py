"""A head that is like the one before on its connection but for the length of the body.

An SDK sends the same lines with every request. What the parser made of them once need not be made again, and what is
the same to the byte cannot be understood in another way.
"""

from __future__ import annotations

import msgspec

from toolwire.gateway.known import Memory
from toolwire.gateway.request import Opening, Request

LONGEST = 8 * 1024
"""Of a head that is remembered."""
_LENGTH = b"\r\ncontent-length:"
_OTHERWISE = frozenset({"transfer-encoding", "upgrade", "expect"})
"""With these the body, or what follows it, is not simply what the length says."""


class Head(msgspec.Struct, frozen=True):
    """Of a request that came whole, alone and in one piece."""

    before: bytes
    """All up to the length of the body."""
    after: bytes
    """All from there to the end of the head."""
    size: int
    """Of both."""
    digits: int
    """Of the length, the last time."""
    opening: Opening
    headers: dict[str, str]
    memory: Memory

    def length(self, data: bytes) -> str:
        """That of the body as it is told, if this is exactly one whole request with such a head; else ""."""
        rest, digits = len(data) - self.size, self.digits
        told = str(rest - digits)
        if len(told) != digits:
            digits = len(told)
            told = str(rest - digits)
        known = len(told) == digits and data.startswith(self.before + told.encode() + self.after)
        return told if known else ""


def remembered(request: Request, data: bytes) -> Head | None:
    """The head of a request that the parser found in `data`, if it can be known again."""
    end = data.find(b"\r\n\r\n") + 4
    headers = request.headers
    length = str(len(data) - end)
    if not 4 <= end <= LONGEST or headers.get("content-length") != length:
        return None  # not alone, or not whole
    head = data[:end]
    if not request.keep or not _OTHERWISE.isdisjoint(headers) or not head.partition(b"\r\n")[0].endswith(b" HTTP/1.1"):
        return None
    start = head.find(length.encode(), head.lower().find(_LENGTH) + len(_LENGTH))
    before, after = head[:start], head[start + len(length) :]
    opening = Opening(request.method, request.path, request.query, keep=True, old=False)
    return Head(before, after, end - len(length), len(length), opening, headers.copy(), request.memory)
