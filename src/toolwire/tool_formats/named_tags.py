"""Reads arguments that are tags with the names of the parameters: `<path>a.txt</path><content>…</content>`."""

from __future__ import annotations

import re
from typing import Final

from msgspec import Struct

from toolwire.call_repair.typed_text import read_typed_text
from toolwire.core.json_values import Object
from toolwire.schema.keywords import object_or_empty
from toolwire.tool_formats.frame import Situation
from toolwire.tool_formats.json_text import skip_blanks
from toolwire.tool_formats.tag_text import NeedsTextError, require_whole_tag

_MAX_ENDS: Final = 50
"""Closing tags of a parameter that may stand in its value."""
_TAG: Final = re.compile(r"<(?P<key>[^\s<>/]{1,64})>")


class NamedValues(Struct, frozen=True):
    """The arguments, and where the closing tag of the call begins."""

    values: Object
    end: int


def read_named_tags(
    text: str, at: int, schemas: Object, closing: re.Pattern[str], situation: Situation
) -> NamedValues | None:
    """The tags that begin here, until the closing tag of the call. None: they are not tags of these parameters."""
    values: Object = {}
    while True:
        at = skip_blanks(text, at)
        if closing.match(text, at):
            return NamedValues(values, at) if values else None
        require_whole_tag(text, at, situation)
        tag = _TAG.match(text, at)
        if tag is None or (key := tag["key"]) not in schemas or key in values:
            return None
        end = _find_value_end(text, tag, schemas.keys() - values.keys(), closing, situation)
        if end is None:
            return None
        raw = text[tag.end() : end]
        raw = raw[1:-1] if len(raw) > 1 and raw[0] == raw[-1] == "\n" else raw
        values[key] = read_typed_text(raw, object_or_empty(schemas[key]))
        at = end + len(f"</{key}>")


def _find_value_end(
    text: str, tag: re.Match[str], open_keys: set[str], closing: re.Pattern[str], situation: Situation
) -> int | None:
    """The first closing tag with something after it that the grammar allows."""
    mark = f"</{tag['key']}>"
    end = tag.end() - 1
    for _ in range(_MAX_ENDS):
        end = text.find(mark, end + 1)
        if end < 0:
            if situation.is_end:
                return None
            raise NeedsTextError((mark,))
        after = skip_blanks(text, end + len(mark))
        following = _TAG.match(text, after)
        if closing.match(text, after) or (following and following["key"] in open_keys):
            return end
        require_whole_tag(text, after, situation)
    return None
