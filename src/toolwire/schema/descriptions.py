"""Descriptions of properties: which lack one, and one made from the name.

A property has also the description of the definition that it refers to, and that of its alternatives, if each has one:
pydantic, for instance, writes an optional model as `{"anyOf": [{"$ref": …}, {"type": "null"}]}`.
"""

from __future__ import annotations

import re
from typing import Final

from toolwire.core.converted_schema import ConvertedSchema
from toolwire.core.json_values import Json, Object, Path, json_pointer
from toolwire.schema.combine import ReferenceLookup
from toolwire.schema.keywords import ChangeLog, all_schemas_pass, convert_schemas, refuse_deep_nesting, walk_schemas

_WORD_BOUNDARY = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|(?<=[a-zA-Z])(?=[0-9])")
_WORD = re.compile(r"[^\W_]+")
_ALTERNATIVES: Final = ("anyOf", "oneOf", "allOf")
_NULL: Final = {"type": "null"}
_MAX_STEPS = 8
"""How many references and alternatives are followed, one inside of the other."""


def missing_descriptions(schema: Json) -> list[str]:
    """JSON Pointers of all properties without a description."""
    if all_schemas_pass(schema, _has_described_properties):
        return []
    refuse_deep_nesting(schema)
    inner = _InnerDescriptions(schema)
    return [
        json_pointer(((path, "properties"), name))
        for node, path in walk_schemas(schema)
        if isinstance(node.get("properties"), dict)
        for name, child in node["properties"].items()
        if not _is_described(child) and not inner.has_one(child)
    ]


def add_descriptions(schema: Json) -> ConvertedSchema:
    """The schema with a description for every property; a missing one is made from the name."""
    if all_schemas_pass(schema, _has_described_properties):
        return ConvertedSchema(schema)
    refuse_deep_nesting(schema)
    notes, inner = ChangeLog(), _InnerDescriptions(schema)

    def describe_properties(node: Object, path: Path) -> Object:
        if _has_described_properties(node):
            return node
        properties: Object = dict(node["properties"])
        for name, child in node["properties"].items():
            if _is_described(child) or inner.has_one(child):
                continue
            if child is True or isinstance(child, dict):
                text = describe_name(name)
                properties[name] = {**({} if child is True else child), "description": text}
                notes.add((((path, "properties"), name)), f"the description `{text}` was made from the name")
        return {**node, "properties": properties}

    described, changes = convert_schemas(schema, describe_properties), notes.changes()
    return ConvertedSchema(described, changes) if changes else ConvertedSchema(schema)


def describe_name(name: str) -> str:
    """`file_path` → "The file path." """
    found = _WORD.findall(_WORD_BOUNDARY.sub(" ", name))
    words = " ".join(word if word.isupper() and len(word) > 1 else word.lower() for word in found)
    return f"The {words or 'value'}."


def _is_described(child: Json) -> bool:
    if child.__class__ is not dict:
        return child is not True  # `false` and invalid schemas need no description
    text = child.get("description")
    return text.__class__ is str and bool(text) and not text.isspace()


def _has_described_properties(node: Object) -> bool:
    properties = node.get("properties")
    return properties.__class__ is not dict or all(map(_is_described, properties.values()))


class _InnerDescriptions:
    """Finds descriptions where properties refer to, and in their alternatives. Each schema is searched once."""

    def __init__(self, root: Json) -> None:
        self._lookup = ReferenceLookup(root)
        self._found: dict[int, tuple[Json, bool]] = {}
        """By the identity of a schema, which is kept with it: another one could get the same."""

    def has_one(self, child: Json, steps: int = _MAX_STEPS) -> bool:
        if not isinstance(child, dict) or not steps:
            return False
        if id(child) not in self._found:
            self._found[id(child)] = child, False  # what refers to itself says nothing
            self._found[id(child)] = child, self._search(child, steps - 1)
        return self._found[id(child)][1]

    def _search(self, child: Object, steps: int) -> bool:
        def is_described(node: Json) -> bool:
            return isinstance(node, dict) and (_is_described(node) or self.has_one(node, steps))

        target = self._lookup.find_target(child["$ref"]) if "$ref" in child else None
        if target is not None and is_described(target[0]):
            return True
        listed = {key: child[key] for key in _ALTERNATIVES if isinstance(child.get(key), list)}
        inner = {key: [node for node in nodes if node != _NULL] for key, nodes in listed.items()}
        return any(nodes and (any if key == "allOf" else all)(map(is_described, nodes)) for key, nodes in inner.items())
