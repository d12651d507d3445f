"""Repairs a structured call: its name by the tools that were offered, its arguments by the tool's schema."""

from __future__ import annotations

import json
from typing import Final

from msgspec import Struct

from toolwire.call_repair.arguments import ArgumentRepair
from toolwire.call_repair.inner_quotes import read_inner_quotes
from toolwire.call_repair.near_json import read_arguments, read_value
from toolwire.call_repair.offered_tools import OfferedTools
from toolwire.core.json_values import Json, Malformed, Object, decode, describe_json_type, encode_text
from toolwire.schema.validate import value_problems

_MAX_LISTED_TOOLS: Final = 20
_MAX_NAME: Final = 100
_MAX_PROBLEM: Final = 500


class RepairedArguments(Struct, frozen=True):
    """The arguments of a call as they go on."""

    text: str
    """As they came, where nothing was mended."""
    value: Object | None = None
    """None: they could not be read."""
    repairs: tuple[str, ...] = ()
    """What was mended, each as a sentence without its full stop."""
    problem: str = ""
    """What is still wrong, as a sentence for the model."""


class RepairedCall(Struct, frozen=True):
    """A call as it goes on."""

    name: str
    arguments: str
    repairs: tuple[str, ...] = ()
    problem: str = ""


def repair_call(name: str, arguments: str, tools: OfferedTools, is_cut: bool = False) -> RepairedCall:
    """The call with a name that was offered and arguments that match the schema, as far as that is sure; what is not
    stays as it came. `is_cut`: the answer ended at a limit, or the stream broke."""
    found = tools.find_tool(name)
    if found is None:
        return RepairedCall(name, arguments, (), describe_unknown_tool(name, tools))
    said = () if found == name else (describe_rename(name, found),)
    repaired = repair_arguments(arguments, tools.parameters(found), is_cut=is_cut)
    return RepairedCall(found, repaired.text, (*said, *repaired.repairs), repaired.problem)


def describe_rename(name: str, found: str) -> str:
    return f"the tool `{_shorten(name, _MAX_NAME)}` was taken as `{found}`"


def describe_unknown_tool(name: str, tools: OfferedTools) -> str:
    names, name = tools.names, _shorten(name, _MAX_NAME)
    if not names:
        return f"There is no tool `{name}`: no tools are offered."
    listed = ", ".join(f"`{one}`" for one in names[:_MAX_LISTED_TOOLS])
    return f"There is no tool `{name}`. The tools are {listed}{', …' if len(names) > _MAX_LISTED_TOOLS else ''}."


def repair_arguments(text: str, schema: Object, *, is_cut: bool = False) -> RepairedArguments:
    """The arguments of a call of a tool with this schema."""
    repair = ArgumentRepair(schema)
    read = read_arguments(text, is_cut=is_cut)
    if read is None and not is_cut:
        read = read_inner_quotes(text, schema)
    if read is None:
        return _repair_bare_value(text, repair, is_cut)
    value = repair.mend_root(read.value)
    problem = _describe_mismatch(value, schema)
    if read.is_loose and (problem or not repair.root.properties.keys() >= value.keys()):
        return RepairedArguments(text, problem=problem or _describe_unreadable(text, is_cut))
    if repair.repairs and not read.repairs and _repeats_key(text):
        return RepairedArguments(text, problem="The arguments have a key twice.")
    said = (*read.repairs, *repair.report)
    return RepairedArguments(encode_text(value) if repair.repairs else read.text, value, said, problem)


def _repair_bare_value(text: str, repair: ArgumentRepair, is_cut: bool) -> RepairedArguments:
    """The arguments, if the model wrote only the value of one, or a list around them."""
    found = None if text.lstrip().startswith("{") else read_value(text, is_cut=is_cut)
    value = None if found is None or found.is_loose else repair.name_bare_value(found.value)
    if found is None or value is None:
        return RepairedArguments(text, problem=_describe_unreadable(text, is_cut))
    return RepairedArguments(encode_text(value), value, (*found.repairs, *repair.report))


def _repeats_key(text: str) -> bool:
    """Does an object have a key twice? Then it is not sure which value is meant."""
    repeated: list[bool] = []

    def check_members(members: list[tuple[str, Json]]) -> None:
        if len(dict(members)) < len(members):
            repeated.append(True)

    try:
        json.loads(text, object_pairs_hook=check_members)
    except (ValueError, RecursionError):  # limits that msgspec does not have
        return True
    return bool(repeated)


def _describe_mismatch(value: Object, schema: Object) -> str:
    problems = value_problems(value, schema)
    return f"The arguments do not match the schema: {_shorten(problems[0], _MAX_PROBLEM)}." if problems else ""


def _describe_unreadable(text: str, is_cut: bool) -> str:
    if is_cut:
        return "The arguments were cut off before their end."
    try:
        value: Json = decode(text)
    except Malformed as error:
        return f"The arguments are {error.problem}."
    return f"The arguments must be a JSON object, not {describe_json_type(value)}."


def _shorten(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[:limit]}…"
