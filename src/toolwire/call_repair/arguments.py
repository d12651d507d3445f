"""Mends arguments where the tool's schema says how.

Each repair changes one value, and is made only if the value then matches its schema. What matches already is never
touched, with two exceptions that a schema rarely forbids: a key that differs from a property by case or separators, and
an object that wraps the arguments.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from typing import Final

from msgspec import Raw, Struct

from toolwire.call_repair.names import fold_name
from toolwire.call_repair.near_json import read_value
from toolwire.call_repair.shapes import ALL_TYPES, Shape, ShapeReader
from toolwire.call_repair.typed_text import read_text_of_shape
from toolwire.core.json_values import Json, Object, Path, encode_text, is_number, json_pointer
from toolwire.schema.validate import ValueValidator

WRAPPER_KEYS: Final = frozenset(
    {"arguments", "args", "input", "kwargs", "parameters", "params", "properties", "tool_input"}
)
"""Keys under which models put all arguments once more."""
_CALL_KEYS: Final = frozenset({"name", "tool_name", "tool", "function", "type", "id"})
"""Keys beside them, if a model writes the whole call as its arguments."""
_drop_tags = re.compile(r"</?(?:\w+_)?arg_(?:key|value)>").sub
"""Tags of GLM and LongCat, which some servers leave in keys."""
_MAX_WRAPPERS: Final = 3
_MAX_NESTING: Final = 32
_MAX_CONVERSIONS: Final = 2000
"""Values of a wrong type in one call; with more of them, all stay as they are. About a tenth of a second."""

_MAX_REPORTED: Final = 20
"""Repairs of one call that are reported one by one."""
_MAX_PLACE: Final = 100
_find_letter = re.compile(r"[^\W\d_]").search
_join_words = re.compile(r"(?<=[^\W_])[-_\s]+(?=[^\W_])").sub
"""Separators at the beginning mean something: `-name` may be a descending order."""


class MendedArguments(Struct, frozen=True):
    """Arguments, and what was changed in them."""

    value: Object
    repairs: tuple[str, ...] = ()
    """Each as a sentence without its full stop."""


def mend_arguments(value: Object, schema: Object) -> MendedArguments:
    """The arguments with every value that a safe repair makes match the schema; unchanged where none does."""
    mender = ArgumentRepair(schema)
    mended = mender.mend_root(value)
    return MendedArguments(mended, mender.report)


class ArgumentRepair:
    """Mends the arguments of one call, as a whole or member by member."""

    def __init__(self, schema: Object) -> None:
        self.schema = schema
        self.shapes = ShapeReader(schema)
        self.root = self.shapes.read_shape(schema)
        self.repairs: list[str] = []
        self._validator = ValueValidator(schema)
        self._conversions_left = _MAX_CONVERSIONS

    @property
    def report(self) -> tuple[str, ...]:
        """What was repaired, in a bounded number of sentences."""
        more = len(self.repairs) - _MAX_REPORTED
        return (*self.repairs[:_MAX_REPORTED], *([f"{more} more values were mended"] if more > 0 else []))

    def matches(self, value: Json, schema: Json) -> bool:
        return self._validator.matches(value, schema)

    # --- the whole ---

    def mend_root(self, value: Object) -> Object:
        """An object without the wrapper around it, and with all members mended."""
        before = len(self.repairs)
        mended = self._unwrap(value, _MAX_WRAPPERS)
        if self._conversions_left:
            return mended
        del self.repairs[before:]
        return value

    def _find_wrapper(self, value: Object) -> str | None:
        """The key that all arguments are in: alone, or beside the name of the tool, as in a whole call."""
        known = self.root.properties
        keys = [key for key in value if not (key in _CALL_KEYS and key not in known and isinstance(value[key], str))]
        is_wrapped = len(keys) == 1 and keys[0] in WRAPPER_KEYS and bool(known) and keys[0] not in known
        return keys[0] if is_wrapped else None

    def _unwrap(self, value: Object, wrappers_left: int) -> Object:
        """The members, mended: those inside of a wrapper, if they are what the tool takes."""
        key = self._find_wrapper(value) if wrappers_left else None
        if key is not None:
            found = read_value(value[key]) if isinstance(value[key], str) else None
            inner = value[key] if found is None else found.value
            before = len(self.repairs)
            self.repairs.append(f"the arguments were taken out of `{key}`")
            if isinstance(inner, dict):
                inner = self._unwrap(inner, wrappers_left - 1)
                if self.root.properties.keys() >= inner.keys() and self.matches(inner, self.schema):
                    return inner
            del self.repairs[before:]
        return self._mend_object(value, self.root, None, 0)

    def name_bare_value(self, value: Json) -> Object | None:
        """Arguments of which only a value is there: the only object of a list, or the value of the only parameter."""
        before = len(self.repairs)
        if isinstance(value, list) and len(value) == 1 and isinstance(value[0], dict):
            self.repairs.append("the arguments were taken out of a list")
            mended = self.mend_root(value[0])
            if self.root.properties.keys() >= mended.keys() and self.matches(mended, self.schema):
                return mended
            del self.repairs[before:]
        names = self.root.required or self.root.properties.keys()
        if value == [] and len(names) != 1 and self.matches({}, self.schema):  # PHP writes an empty object so
            self.repairs.append("the arguments were an empty list")
            return {}
        if len(names) != 1 or isinstance(value, dict) or value is None:
            return None
        (name,) = names
        self.repairs.append(f"the value without a name was taken as `{name}`")
        mended = {name: self.mend_member(name, value)}
        if name in self.root.properties and self.matches(mended, self.schema):
            return mended
        del self.repairs[before:]
        return None

    def mend_member(self, key: str, value: Json) -> Json:
        """The value of one argument."""
        return self._mend_value(value, self.root.properties.get(key, self.root.additional), (None, key), 1)

    def is_right(self, key: str, value: Json) -> bool:
        """Does the value of this argument need no repair?"""
        if value is None and key in self.root.properties and self._is_absent(key, self.root):
            return False
        before = len(self.repairs)
        mended = self.mend_member(key, value)
        del self.repairs[before:]
        return mended is value

    def takes_any_text(self, key: str) -> bool:
        """Is every string right for this argument?"""
        shape = self.shapes.read_shape(self.root.properties.get(key, self.root.additional))
        return "string" in shape.types and shape.texts is None

    def _is_absent(self, key: str, shape: Shape) -> bool:
        """Does null mean that this property is absent?"""
        types = self.shapes.read_shape(shape.properties[key]).types
        return key not in shape.required and bool(types) and "null" not in types

    # --- values ---

    def _mend_object(self, value: Object, shape: Shape, path: Path, depth: int) -> Object:
        meant_keys = _find_meant_keys(value, shape)
        made: Object = {}
        for key, item in value.items():
            place: Path = (path, key)
            name = meant_keys.get(key)
            if name is None:
                schema = shape.properties.get(key, shape.additional)
                made[key] = self._mend_value(item, schema, place, depth + 1)
            elif item is None and self._is_absent(name, shape):
                self._note(place, "null was left out")
            else:
                self._mend_property(made, key, name, item, shape.properties[name], place, depth)
        return value if _is_unchanged(made, value) else made

    def _mend_property(
        self, made: Object, key: str, name: str, item: Json, schema: Json, place: Path, depth: int
    ) -> None:
        before = len(self.repairs)
        mended = self._mend_value(item, schema, place, depth + 1)
        if key == name:
            made[key] = mended
        elif self.matches(mended, schema):
            made[name] = mended
            self.repairs.insert(before, f"{_name_place(place)} was renamed to `{name}`")
        else:
            del self.repairs[before:]
            made[key] = item

    def _mend_value(self, value: Json, schema: Json, path: Path, depth: int) -> Json:
        if depth > _MAX_NESTING or not isinstance(schema, dict):
            return value
        shape = self.shapes.read_shape(schema)
        if isinstance(value, dict) and "object" in shape.types:
            return self._mend_object(value, shape, path, depth)
        if isinstance(value, list) and "array" in shape.types:
            made = [
                self._mend_value(item, shape.item_schema(at), (path, at), depth + 1) for at, item in enumerate(value)
            ]
            return value if all(new is old for new, old in zip(made, value, strict=True)) else made
        if isinstance(value, (float, Raw)) and "integer" in shape.types and "number" not in shape.types:
            whole = read_text_of_shape(encode_text(value), shape)
            if isinstance(whole, int):
                self._note(path, "a whole number was written without its fraction")
                return whole
        if _has_type(value, shape):
            return value
        return self._convert(value, schema, shape, path, depth)

    def _convert(self, value: Json, schema: Json, shape: Shape, path: Path, depth: int) -> Json:
        if not self._conversions_left:
            return value
        self._conversions_left -= 1
        before = len(self.repairs)
        for make, said in _CONVERSIONS:
            made = make(value, shape)
            if made is None or (make is _put_into_list and not self._is_typed(shape.items)):
                continue
            (converted,) = made
            self._note(path, said)
            if make is _read_text:
                converted = self._mend_value(converted, schema, path, depth + 1)
            if self.matches(converted, schema):
                return converted
            del self.repairs[before:]
        return value

    def _is_typed(self, schema: Json) -> bool:
        return self.shapes.read_shape(schema).types != ALL_TYPES

    def _note(self, path: Path, said: str) -> None:
        self.repairs.append(f"{_name_place(path)}: {said}")


def _name_place(path: Path) -> str:
    """A place for a report: a model can write keys of any length."""
    pointer = json_pointer(path)
    return f"`{pointer if len(pointer) <= _MAX_PLACE else pointer[:_MAX_PLACE] + '…'}`"


def _find_meant_keys(value: Object, shape: Shape) -> dict[str, str]:
    """The property that each key means, where that is sure: no other key, and no other property, differs from it by
    case and separators only."""
    if shape.properties.keys() >= value.keys() and None not in value.values():
        return {key: key for key in value}
    folded = {key: fold_name(_drop_tags("", key)) for key in value}
    rivals = Counter(folded.values())
    names: dict[str, list[str]] = {}
    if not isinstance(shape.additional, dict):  # else keys are the model's to choose
        for name in shape.properties:
            names.setdefault(fold_name(name), []).append(name)
    sure: dict[str, str] = {}
    for key, fold in folded.items():
        if rivals[fold] == 1 or not fold:
            found = [key] if key in shape.properties else names.get(fold, []) if fold else []
            if len(found) == 1:
                sure[key] = found[0]
    return sure


def _is_unchanged(made: Object, value: Object) -> bool:
    return len(made) == len(value) and all(key in made and made[key] is item for key, item in value.items())


def _has_type(value: Json, shape: Shape) -> bool:
    """Is the value of a type that is allowed, and, if the strings are listed, one of them?"""
    if isinstance(value, str):
        return "string" in shape.types and (shape.texts is None or value in shape.texts)
    if is_number(value):
        return "number" in shape.types or "integer" in shape.types
    return _TYPE_OF[type(value)] in shape.types


_TYPE_OF: Final = {bool: "boolean", list: "array", dict: "object", type(None): "null"}

# --- conversions of one value: a tuple with the new value, or None -------------------------------------------------

_Made = tuple[Json] | None


def _choose_listed_text(value: Json, shape: Shape) -> _Made:
    """The only allowed string that differs by case, or by the separators between its words, only."""
    if not isinstance(value, str) or not shape.texts or "string" not in shape.types or not _find_letter(value):
        return None
    for fold in (str.strip, lambda text: text.strip().lower(), lambda text: _join_words("_", text.strip()).lower()):
        folded = fold(value)
        found = [text for text in dict.fromkeys(shape.texts) if fold(text) == folded]
        if found:
            return (found[0],) if len(found) == 1 else None
    return None


def _read_text(value: Json, shape: Shape) -> _Made:
    """What is in a string, where no string is allowed."""
    if not isinstance(value, str) or "string" in shape.types:
        return None
    made = read_text_of_shape(value, shape)
    return None if isinstance(made, str) else (made,)


def _write_scalar(value: Json, shape: Shape) -> _Made:
    """A number as it was spelled, where a string is wanted; a boolean only if the strings are listed."""
    if is_number(value) or (isinstance(value, bool) and shape.texts):
        return (encode_text(value),) if "string" in shape.types else None
    return None


def _put_into_list(value: Json, shape: Shape) -> _Made:
    """A single value as the only item. Text with a comma or a line break may itself be a list, and is left alone."""
    if "array" not in shape.types or shape.first_items or value is None:
        return None
    if isinstance(value, str) and ("," in value or "\n" in value or value.lstrip()[:1] in ("{", "[")):
        return None
    return ([value],)


_CONVERSIONS: Final[tuple[tuple[Callable[[Json, Shape], _Made], str], ...]] = (
    (_choose_listed_text, "the spelling of an allowed value was corrected"),
    (_read_text, "a value was taken out of a string"),
    (_write_scalar, "a number was written as a string"),
    (_put_into_list, "a single value was put into a list"),
)
"""In the order in which they are tried, with what is reported."""
