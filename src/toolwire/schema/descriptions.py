"""Descriptions: which properties lack one, one made from the name, and constraints expressed as sentences."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from toolwire.core.json_values import Json, Object, Path, json_pointer
from toolwire.schema.keywords import (
    KEYWORDS_BY_TYPE,
    ChangeLog,
    ConvertedSchema,
    all_schemas_pass,
    convert_inner_schemas,
    inner_schemas,
    is_number,
    listed_values,
    refuse_deep_nesting,
    short_json,
)

_WORD_BOUNDARY = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|(?<=[a-zA-Z])(?=[0-9])")
_WORD = re.compile(r"[^\W_]+")


def missing_descriptions(schema: Json) -> list[str]:
    """JSON Pointers of all properties without a description."""
    if all_schemas_pass(schema, _has_described_properties):
        return []
    refuse_deep_nesting(schema)
    missing = []
    todo: list[tuple[Json, Path]] = [(schema, None)]
    while todo:
        node, path = todo.pop()
        if isinstance(node, dict):
            properties = node.get("properties")
            if isinstance(properties, dict):
                place = (path, "properties")
                missing += [
                    json_pointer((place, name)) for name, child in properties.items() if not _is_described(child)
                ]
            todo.extend(reversed(list(inner_schemas(node, path))))
    return missing


def add_descriptions(schema: Json) -> ConvertedSchema:
    """The schema with a description for every property; a missing one is made from the name."""
    if all_schemas_pass(schema, _has_described_properties):
        return ConvertedSchema(schema)
    refuse_deep_nesting(schema)
    notes = ChangeLog()

    def convert(node: Json, path: Path) -> Json:
        if not isinstance(node, dict):
            return node
        return _add_missing_descriptions(convert_inner_schemas(node, path, convert), path, notes)

    return ConvertedSchema(convert(schema, None), notes.changes())


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


def _add_missing_descriptions(node: Object, path: Path, notes: ChangeLog) -> Object:
    if _has_described_properties(node):
        return node
    properties: Object = {}
    for name, child in node["properties"].items():
        properties[name] = child
        if not _is_described(child) and (child is True or isinstance(child, dict)):
            text = describe_name(name)
            properties[name] = {**({} if child is True else child), "description": text}
            notes.add((((path, "properties"), name)), f"the description `{text}` was made from the name")
    return {**node, "properties": properties}


# --- constraints as sentences ---


def _object_sentence(form: str) -> Callable[[Json], str]:
    return lambda value: form.format(short_json(value)) if isinstance(value, dict) and value else ""


_SENTENCES: Final[Mapping[str, Callable[[Json], str]]] = {
    "exclusiveMinimum": lambda value: f"Greater than {short_json(value)}." if is_number(value) else "",
    "exclusiveMaximum": lambda value: f"Less than {short_json(value)}." if is_number(value) else "",
    "multipleOf": lambda value: f"A multiple of {short_json(value)}." if is_number(value) else "",
    "uniqueItems": lambda value: "All items are different." if value is True else "",
    "contentEncoding": lambda value: f"Encoded as {value}." if isinstance(value, str) else "",
    "contentMediaType": lambda value: f"Of media type {value}." if isinstance(value, str) else "",
    "additionalProperties": _object_sentence("Other keys are free; each of their values matches {}."),
    "patternProperties": _object_sentence("Keys that match a pattern have these values: {}."),
    "propertyNames": _object_sentence("Keys match {}."),
    "dependentRequired": _object_sentence("Keys that demand others: {}."),
    "not": _object_sentence("Must not match {}."),
    "deprecated": lambda value: "Deprecated." if value is True else "",
}
_BOUND_SENTENCES: Final[Mapping[str, str]] = {
    "minimum": "At least {}.",
    "maximum": "At most {}.",
    "minLength": "At least {} characters.",
    "maxLength": "At most {} characters.",
    "minItems": "At least {} items.",
    "maxItems": "At most {} items.",
    "minProperties": "At least {} keys.",
    "maxProperties": "At most {} keys.",
    "pattern": "Matches the pattern {}.",
    "format": "In the format {}.",
}
_TYPELESS_KEYWORDS: Final = frozenset({"not", "deprecated"})


def keyword_sentence(key: str, value: Json) -> str:
    """The constraint of one keyword as a sentence; "" if there is none."""
    say = _SENTENCES.get(key)
    if say is not None:
        return say(value)
    form = _BOUND_SENTENCES.get(key)
    if form is None or not (is_number(value) or isinstance(value, str)):
        return ""
    return form.format(value if isinstance(value, str) else short_json(value))


def keyword_sentences(flat: Object, kind: str) -> Iterator[tuple[str, str]]:
    """The keywords of a node that concern this type and that Gemini's subset lacks, each with its sentence."""
    if _SENTENCES.keys().isdisjoint(flat):
        return
    family = KEYWORDS_BY_TYPE.get("number" if kind == "integer" else kind, frozenset())
    for key, say in _SENTENCES.items():
        if key in flat and (key in family or key in _TYPELESS_KEYWORDS):
            value = flat[key]
            whole = kind == "integer" and isinstance(value, int) and key.startswith("exclusive")
            text = "" if whole and not isinstance(value, bool) else say(value)
            if text:
                yield key, text


def allowed_value_sentences(flat: Object, kind: str) -> Iterator[tuple[str, str]]:
    """An `enum` that Gemini's subset does not allow, as a sentence: numbers, booleans, or with an empty string."""
    key = "enum" if "enum" in flat else "const"
    values = listed_values(flat)
    if values is None or kind in ("", "null"):
        return
    fitting = [one for one in values if _is_of_type(kind, one)] or [one for one in values if one is not None]
    every_flag = kind == "boolean" and len({value for value in values if isinstance(value, bool)}) == 2
    if not fitting or every_flag or (kind == "string" and "" not in fitting):
        return
    listed = ", ".join(short_json(value, 100) for value in fitting[:100]) + (", …" if len(fitting) > 100 else "")
    yield key, f"Always {listed}." if len(fitting) == 1 else f"One of: {listed}."


def _is_of_type(kind: str, value: Json) -> bool:
    if kind == "string":
        return isinstance(value, str)
    if kind == "boolean":
        return isinstance(value, bool)
    if kind in ("number", "integer"):
        return is_number(value)
    return isinstance(value, dict if kind == "object" else list)


def append_sentences(description: str, added: list[str]) -> str:
    """A description with sentences added at its end."""
    text = description.rstrip()
    if text and text[-1] not in ".!?:;":
        text += "."
    return " ".join(([text] if text else []) + added)
