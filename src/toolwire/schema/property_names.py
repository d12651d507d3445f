"""Property names that a dialect does not take are written under another name, and arguments are carried back.

A new name depends on the old one alone and ends in a piece of its hash, so that it is the same in every tool and turn,
and no free-form value holds it by chance: the way back needs no schema.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from toolwire.core.ids import hex_digest
from toolwire.core.json_values import Json
from toolwire.schema.keywords import ConvertedSchema

MAX_NAME_LENGTH = 64
DOTTED_NAME = re.compile(r"[a-zA-Z0-9_.-]{1,64}")
IDENTIFIER = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]{0,63}")
_ILLEGAL = re.compile(r"[^a-zA-Z0-9_]+")


def make_property_name(name: str, taken: Collection[str]) -> str:
    """A name that every dialect takes: the readable part of the old one, and a piece of its hash."""
    readable = _ILLEGAL.sub("_", name).strip("_")
    if not readable or readable[0].isdigit():
        readable = f"p_{readable}".rstrip("_")
    salt = ""
    while True:
        mark = hex_digest(name + salt, 6)
        made = f"{readable[: MAX_NAME_LENGTH - 7].rstrip('_')}_{mark}"
        if made not in taken:
            return made
        salt += "+"


def replace_keys(value: Json, names: Mapping[str, str]) -> Json:
    """A value with keys replaced at every depth; the same object when none is there. Answers pass here, so no depth of
    theirs may end in an exception: no recursion."""
    if not _has_any_key(value, names):
        return value
    top: list[Json] = [value]
    todo: list[tuple[Json, Json, Json]] = [(value, top, 0)]
    while todo:
        old, holder, key = todo.pop()
        new: Json = {names.get(name, name): item for name, item in old.items()} if isinstance(old, dict) else list(old)
        holder[key] = new
        for step, item in new.items() if isinstance(new, dict) else enumerate(new):
            if isinstance(item, (dict, list)):
                todo.append((item, new, step))
    return top[0]


def _has_any_key(value: Json, names: Mapping[str, str]) -> bool:
    todo = [value]
    while todo:
        node = todo.pop()
        if isinstance(node, dict):
            if not names.keys().isdisjoint(node):
                return True
            todo.extend(node.values())
        elif isinstance(node, list):
            todo.extend(node)
    return False


def restore_arguments(arguments: Json, converted: ConvertedSchema) -> Json:
    """Arguments made for a converted schema, as the schema that was given has them."""
    if converted.renames:
        arguments = replace_keys(arguments, converted.renames)
    if converted.wrapper_property and isinstance(arguments, dict) and set(arguments) == {converted.wrapper_property}:
        return arguments[converted.wrapper_property]
    return arguments


def convert_arguments(arguments: Json, converted: ConvertedSchema) -> Json:
    """Arguments of the schema that was given, as the converted schema has them: the other way of `restored`."""
    if converted.wrapper_property:
        arguments = {converted.wrapper_property: arguments}
    if converted.renames:
        arguments = replace_keys(arguments, {old: new for new, old in converted.renames.items()})
    return arguments
