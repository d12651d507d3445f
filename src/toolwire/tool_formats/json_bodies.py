"""Reads the JSON arguments of a call that stand between marks (DeepSeek, Kimi K2, gpt-oss)."""

from __future__ import annotations

import json
import re
from itertools import islice
from typing import Final

from msgspec import Struct

from toolwire.call_repair.near_json import read_arguments
from toolwire.tool_formats.frame import Situation
from toolwire.tool_formats.json_text import skip_blanks
from toolwire.tool_formats.tag_text import NeedsTextError, end_of_match, is_cut_here, require_whole_tag

_MAX_ENDS: Final = 20
"""Closing marks that are tried inside of one body: more are no accident."""
_MAX_MENDED: Final = 100_000
"""Characters of a broken body that are still mended: every closing mark costs a reading."""

_decoder: Final = json.JSONDecoder(strict=False)
_FENCE: Final = re.compile(r"```[a-z]*\s*")
_OPEN_FENCE: Final = re.compile(r"`{1,2}\Z|```[a-z]*\s*\Z")
_CLOSING_FENCE: Final = re.compile(r"\s*```")
_TAIL: Final = re.compile(r"[\s}\]`]*+")
_remove_strings = re.compile(r'"(?:[^"\\]++|\\.)*+"', re.DOTALL).sub


class BodyEnds(Struct, frozen=True):
    """What may follow a body."""

    pattern: re.Pattern[str]
    marks: tuple[str, ...]
    """What to wait for: the texts of the marks, or how they end."""
    tag_end: str = ">"
    """The last characters of every mark."""


class JsonBody(Struct, frozen=True):
    """The text of a call's arguments."""

    text: str
    end: int
    """Behind it, and behind the fence around it."""
    is_closed: bool
    """A closing mark follows."""
    is_cut: bool = False
    """The answer was cut off behind it."""


def read_json_body(text: str, start: int, ends: BodyEnds, situation: Situation) -> JsonBody | None:
    """The body that begins here, bare or in a fence; None if it cannot be read.

    A mark inside of a string of the JSON is no end: the object that decodes comes first, then the first mark that
    leaves arguments that can be read."""
    begin = skip_blanks(text, start)
    if not situation.is_end and (begin == len(text) or _OPEN_FENCE.match(text, begin)):
        raise NeedsTextError
    begin = end_of_match(_FENCE, text, begin)
    end = end_of_object(text, begin)
    return (
        _find_mended_body(text, begin, ends, situation) if end is None else _end_body(text, begin, end, ends, situation)
    )


def end_of_object(text: str, at: int) -> int | None:
    """Where the JSON object that begins here ends; None if it does not decode."""
    if not text.startswith("{", at):
        return None
    try:
        return _decoder.raw_decode(text, at)[1]
    except (ValueError, RecursionError):
        return None


def _end_body(text: str, begin: int, end: int, ends: BodyEnds, situation: Situation) -> JsonBody:
    """Looks at what follows an object that decodes: a bracket too many belongs to it if a closing mark comes next."""
    after = end_of_match(_TAIL, text, end)
    if ends.pattern.match(text, after):
        return JsonBody(_strip_fence(text[begin:after]), after, True)
    require_whole_tag(text, after, situation, ends.tag_end)
    is_cut = is_cut_here(text, after, situation, ends.tag_end)
    return JsonBody(text[begin:end], end_of_match(_CLOSING_FENCE, text, end), False, is_cut)


def _find_mended_body(text: str, begin: int, ends: BodyEnds, situation: Situation) -> JsonBody | None:
    places = [found.start() for found in islice(ends.pattern.finditer(text, begin), _MAX_ENDS)]
    for place in places:
        body = _strip_fence(text[begin:place])
        # The text until here may be the first half of a string that holds the mark: wait for the rest of it.
        may_go_on = not situation.is_end and '"' in _remove_strings("", body)
        if not may_go_on and _is_readable(body):
            return JsonBody(body, place, True)
    if not situation.is_end:
        raise NeedsTextError(ends.marks)
    for place in places:
        body = _strip_fence(text[begin:place])
        if body.startswith("{") and body.endswith("}"):  # perhaps the schema helps
            return JsonBody(body, place, True)
    rest = _strip_fence(text[begin:])
    if places or situation.was_cut or not _is_readable(rest):
        return None
    return JsonBody(rest, len(text), False)


def _is_readable(body: str) -> bool:
    return len(body) <= _MAX_MENDED and read_arguments(body) is not None


def _strip_fence(body: str) -> str:
    return body.strip().removesuffix("```").strip()
