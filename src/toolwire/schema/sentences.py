"""What a keyword demands, as a sentence, for dialects that lack the keyword."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from toolwire.schema.words import KEYWORDS_OF, is_number, spelled
from toolwire.wire import Json, Object

_SENTENCES: Final[Mapping[str, Callable[[Json], str]]] = {
    "exclusiveMinimum": lambda value: f"Greater than {spelled(value)}." if is_number(value) else "",
    "exclusiveMaximum": lambda value: f"Less than {spelled(value)}." if is_number(value) else "",
    "multipleOf": lambda value: f"A multiple of {spelled(value)}." if is_number(value) else "",
    "uniqueItems": lambda value: "All items are different." if value is True else "",
    "contentEncoding": lambda value: f"Encoded as {value}." if isinstance(value, str) else "",
    "contentMediaType": lambda value: f"Of media type {value}." if isinstance(value, str) else "",
    "additionalProperties": lambda value: (
        f"Other keys are free; each of their values matches {spelled(value)}."
        if isinstance(value, dict) and value
        else ""
    ),
    "patternProperties": lambda value: (
        f"Keys that match a pattern have these values: {spelled(value)}." if isinstance(value, dict) and value else ""
    ),
    "propertyNames": lambda value: f"Keys match {spelled(value)}." if isinstance(value, dict) and value else "",
    "dependentRequired": lambda value: (
        f"Keys that demand others: {spelled(value)}." if isinstance(value, dict) and value else ""
    ),
    "not": lambda value: f"Must not match {spelled(value)}." if isinstance(value, dict) and value else "",
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
_GENERAL: Final = frozenset({"not", "deprecated"})


def sentence(key: str, value: Json) -> str:
    """What one keyword demands; "" when there are no short words for it."""
    say = _SENTENCES.get(key)
    if say is not None:
        return say(value)
    form = _BOUND_SENTENCES.get(key)
    if form is None or not (is_number(value) or isinstance(value, str)):
        return ""
    return form.format(value if isinstance(value, str) else spelled(value))


def sentences(flat: Object, kind: str) -> Iterator[tuple[str, str]]:
    """The keywords of a node that speak of this type and that only words can say, each with its sentence."""
    if _SENTENCES.keys().isdisjoint(flat):
        return
    family = KEYWORDS_OF.get("number" if kind == "integer" else kind, frozenset())
    for key, say in _SENTENCES.items():
        if key in flat and (key in family or key in _GENERAL):
            value = flat[key]
            whole = kind == "integer" and isinstance(value, int) and key.startswith("exclusive")
            text = "" if whole and not isinstance(value, bool) else say(value)
            if text:
                yield key, text


def allowed_values(flat: Object, kind: str) -> Iterator[tuple[str, str]]:
    """The values of an `enum` that can only be told: numbers, flags, and the empty string among strings."""
    key = "enum" if "enum" in flat else "const"
    values = flat.get("enum") if "enum" in flat else [flat["const"]] if "const" in flat else None
    if not isinstance(values, list) or kind in ("", "null"):
        return
    fitting = [value for value in values if _is_of(kind, value)] or [value for value in values if value is not None]
    every_flag = kind == "boolean" and len({value for value in values if isinstance(value, bool)}) == 2
    if not fitting or every_flag or (kind == "string" and "" not in fitting):
        return
    listed = ", ".join(spelled(value, 100) for value in fitting[:100]) + (", …" if len(fitting) > 100 else "")
    yield key, f"Always {listed}." if len(fitting) == 1 else f"One of: {listed}."


def _is_of(kind: str, value: Json) -> bool:
    if kind == "string":
        return isinstance(value, str)
    if kind == "boolean":
        return isinstance(value, bool)
    if kind in ("number", "integer"):
        return is_number(value)
    return isinstance(value, dict if kind == "object" else list)


def grown(description: str, added: list[str]) -> str:
    """A description with sentences behind it."""
    text = description.rstrip()
    if text and text[-1] not in ".!?:;":
        text += "."
    return " ".join(([text] if text else []) + added)
