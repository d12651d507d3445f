"""The usual chunk of a stream, as types: more of one text in one part, and no key that we do not know.

Whatever is otherwise (a wrong type, another key, a second part) does not fit, and goes the careful way.
"""

from __future__ import annotations

from msgspec import Struct

from toolwire.wire import Json


class _Part(Struct, forbid_unknown_fields=True, gc=False):
    text: str
    thought: bool = False


class _Content(Struct, forbid_unknown_fields=True, gc=False):
    parts: tuple[_Part]
    role: Json = None


class _Candidate(Struct, forbid_unknown_fields=True, gc=False):
    content: _Content
    index: int = 0


class More(Struct, forbid_unknown_fields=True, gc=False):
    candidates: tuple[_Candidate]
    usageMetadata: Json = None
    promptFeedback: Json = None
    modelVersion: Json = None
    responseId: Json = None
    createTime: Json = None
