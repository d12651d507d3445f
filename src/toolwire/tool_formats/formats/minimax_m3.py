"""MiniMax M3: the token `]<]minimax[>[` stands before every tag. Arguments are nested tags: `<item>` for the entries of
an array, and the names of the properties for an object."""

from __future__ import annotations

import re
from typing import Final

from msgspec import Struct

from toolwire.call_repair.shapes import Shape, ShapeReader
from toolwire.call_repair.typed_text import read_text_of_shape
from toolwire.core.json_values import Json, Object
from toolwire.tool_formats.found_calls import make_call, make_closed_frame, make_open_frame
from toolwire.tool_formats.frame import Frame, Piece, Situation, TextCall, ToolFormat, Waiting
from toolwire.tool_formats.json_text import ANY_TEXT
from toolwire.tool_formats.tag_text import MAX_TAG_LENGTH

_TOKEN: Final = "]<]minimax[>["
_MAX_DEPTH: Final = 32

# Names of parameters are not always XML names (`-A`); `<parameter name="k">` comes from MiniMax M2.
_find_tags = re.compile(
    re.escape(_TOKEN) + r"<(?P<closes>/)?(?:parameter\s+name=\"(?P<key>[^\"]+)\"|invoke\s+name=\"(?P<call>[^\"]+)\""
    r"|(?P<tag>[^<>\n]+))\s*>"
).finditer


class _Tag(Struct, frozen=True):
    """A tag, and the text until the next one."""

    name: str
    closes: bool
    is_call: bool
    start: int
    end: int
    text: str


class _Element(Struct):
    """A tag with what it holds: text, or other elements."""

    name: str
    text: str
    children: list[_Element]


class _UnreadableError(Exception):
    """The tags do not fit into each other."""


def _list_tags(text: str, start: int) -> list[_Tag]:
    found = list(_find_tags(text, start))
    ends = [tag.start() for tag in found] + [len(text)]
    return [
        _Tag(
            tag["key"] or tag["call"] or tag["tag"].strip(),
            bool(tag["closes"]),
            bool(tag["call"]),
            tag.start(),
            tag.end(),
            text[tag.end() : end],
        )
        for tag, end in zip(found, ends[1:], strict=True)
    ]


def _read_frame(text: str, start: int, situation: Situation) -> Frame | Waiting | None:
    """The calls that begin here. A bad call among good ones stays text."""
    tags = _list_tags(text, start)
    if not tags or tags[0].start != start:
        is_open = not situation.is_end and len(text) - start < MAX_TAG_LENGTH and ">" not in text[start + len(_TOKEN) :]
        return Waiting(ANY_TEXT) if is_open else None
    if tags[0].name != "tool_call" and not tags[0].is_call:
        return None
    pieces: list[Piece] = []
    end = start
    opening: _Tag | None = None
    for index, tag in enumerate(tags):
        if tag.is_call and not tag.closes:
            opening, first = tag, index + 1
        elif tag.closes and tag.name == "invoke" and opening:
            call = _read_call(opening, tags[first:index], situation)
            pieces.append(call or text[opening.start : tag.end])
            end = tag.end if call else end
            opening = None
        elif tag.closes and tag.name == "tool_call" and opening is None:
            return make_closed_frame(tag.end, pieces)
    if not situation.is_end:
        return Waiting((f"{_TOKEN}</invoke>", f"{_TOKEN}</tool_call>"))
    return make_open_frame(end, pieces)


def _read_call(opening: _Tag, tags: list[_Tag], situation: Situation) -> TextCall | None:
    tool = situation.tools.find_tool(opening.name)
    if tool is None or opening.text.strip():
        return None
    shapes = ShapeReader(situation.tools.parameters(tool))
    try:
        arguments = _make_object(_read_elements(tags), shapes.read_shape(situation.tools.parameters(tool)), shapes)
    except _UnreadableError:
        return None
    return make_call(situation, opening.name, arguments)


# --- arguments ------------------------------------------------------------------------------------------------------


def _read_elements(tags: list[_Tag]) -> list[_Element]:
    """The tree of the tags between the tags of a call."""
    root = _Element("", "", [])
    open_elements = [root]
    for tag in tags:
        if not tag.closes:
            element = _Element(tag.name, tag.text, [])
            open_elements[-1].children.append(element)
            open_elements.append(element)
        elif len(open_elements) > 1 and tag.name in (open_elements[-1].name, "parameter"):
            closed = open_elements.pop()
            if tag.text.strip() or (closed.children and closed.text.strip()):
                raise _UnreadableError
        else:
            raise _UnreadableError
        if len(open_elements) > _MAX_DEPTH:
            raise _UnreadableError
    if len(open_elements) > 1:
        raise _UnreadableError
    return root.children


def _make_value(element: _Element, schema: Json, shapes: ShapeReader) -> Json:
    shape = shapes.read_shape(schema)
    if not element.children:
        if not element.text.strip() and shape.types in ({"array"}, {"object"}):
            return [] if "array" in shape.types else {}
        return read_text_of_shape(element.text, shape)
    if all(child.name == "item" for child in element.children) and "item" not in shape.properties:
        return [_make_value(child, shape.items, shapes) for child in element.children]
    return _make_object(element.children, shape, shapes)


def _make_object(elements: list[_Element], shape: Shape, shapes: ShapeReader) -> Object:
    """Names that are repeated become an array."""
    by_name: dict[str, list[_Element]] = {}
    for element in elements:
        by_name.setdefault(element.name, []).append(element)
    made: Object = {}
    for name, named in by_name.items():
        schema = shape.properties.get(name)
        items = shapes.read_shape(schema).items
        values = [_make_value(one, items if len(named) > 1 else schema, shapes) for one in named]
        made[name] = values if len(named) > 1 else values[0]
    return made


FORMATS: Final = (ToolFormat("minimax_m3", (_TOKEN,), _read_frame),)
