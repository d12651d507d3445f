"""Descriptions of properties: which are missing, and how one is made of the property's name."""

from __future__ import annotations

import re

from toolwire.schema.words import Converted, Notes, below, everywhere, mapped, refuse_depth
from toolwire.wire import Json, Object, Path, pointer

_BORDER = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|(?<=[a-zA-Z])(?=[0-9])")
_WORD = re.compile(r"[^\W_]+")


def missing_descriptions(schema: Json) -> list[str]:
    """The places of all properties that no description stands at, as JSON Pointers into the schema."""
    if everywhere(schema, _has_described_properties):
        return []
    refuse_depth(schema)
    missing = []
    todo: list[tuple[Json, Path]] = [(schema, None)]
    while todo:
        node, path = todo.pop()
        if isinstance(node, dict):
            properties = node.get("properties")
            if isinstance(properties, dict):
                place = (path, "properties")
                missing += [pointer((place, name)) for name, child in properties.items() if not _is_described(child)]
            todo.extend(reversed(list(below(node, path))))
    return missing


def describe(schema: Json) -> Converted:
    """The schema with a description at every property: a missing one is made of the name."""
    if everywhere(schema, _has_described_properties):
        return Converted(schema)
    refuse_depth(schema)
    notes = Notes()

    def convert(node: Json, path: Path) -> Json:
        return _with_descriptions(mapped(node, path, convert), path, notes) if isinstance(node, dict) else node

    return Converted(convert(schema, None), notes.all())


def sentence_of(name: str) -> str:
    """`file_path` → "The file path." """
    found = _WORD.findall(_BORDER.sub(" ", name))
    words = " ".join(word if word.isupper() and len(word) > 1 else word.lower() for word in found)
    return f"The {words or 'value'}."


def _is_described(child: Json) -> bool:
    if child.__class__ is not dict:
        return child is not True  # nothing can be said of what is forbidden, or no schema
    text = child.get("description")
    return text.__class__ is str and bool(text) and not text.isspace()


def _has_described_properties(node: Object) -> bool:
    properties = node.get("properties")
    return properties.__class__ is not dict or all(map(_is_described, properties.values()))


def _with_descriptions(node: Object, path: Path, notes: Notes) -> Object:
    if _has_described_properties(node):
        return node
    properties: Object = {}
    for name, child in node["properties"].items():
        properties[name] = child
        if not _is_described(child) and (child is True or isinstance(child, dict)):
            text = sentence_of(name)
            properties[name] = {**({} if child is True else child), "description": text}
            notes.add((((path, "properties"), name)), f"the description `{text}` was made of the name")
    return {**node, "properties": properties}
