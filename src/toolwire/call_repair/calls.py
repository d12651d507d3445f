"""Repairs the arguments of a structured call by the tool's schema."""

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


def repair_call(name: str, arguments: str, tools: OfferedTools, is_cut: bool = False) -> RepairedArguments:
    """The arguments of a call of an offered tool. `is_cut`: the answer ended at a limit, or the stream broke."""
    return repair_arguments(arguments, tools.parameters(name), is_cut=is_cut)


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
    problem = next(iter(value_problems(value, schema)), "")
    problem = problem if len(problem) <= _MAX_PROBLEM else f"{problem[:_MAX_PROBLEM]}…"
    return f"The arguments do not match the schema: {problem}." if problem else ""


def _describe_unreadable(text: str, is_cut: bool) -> str:
    if is_cut:
        return "The arguments were cut off before their end."
    try:
        value: Json = decode(text)
    except Malformed as error:
        return f"The arguments are {error.problem}."
    return f"The arguments must be a JSON object, not {describe_json_type(value)}."
