"""Compares a value with an expectation; the result is a list of differences. Also fills in request templates.

An expectation is JSON. An object matches any object that has at least its keys; an array matches an array of the same
length, element by element; anything else matches an equal value. Objects whose keys begin with `$` and strings such as
`"$any"` are operators, all listed in README.md.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, Final, TypeAlias

from toolwire_conformance import Json

Bindings: TypeAlias = dict[str, Json]
"""The values of the `$same` names so far."""


class _Missing:
    def __repr__(self) -> str:
        return "nothing"


MISSING: Final = _Missing()
SAME_PREFIX = "$same:"


def find_differences(expected: Json, actual: Json, bindings: Bindings, path: str = "") -> list[str]:
    """Where `actual` does not meet `expected`; new names are added to `bindings`."""
    if isinstance(expected, str) and expected.startswith("$"):
        return _check_word(expected, actual, bindings, path)
    if isinstance(expected, dict):
        if any(key.startswith("$") for key in expected):
            return _check_operators(expected, actual, bindings, path)
        return _check_object(expected, actual, bindings, path)
    if isinstance(expected, list):
        return _check_array(expected, actual, bindings, path)
    return [] if _is_equal(expected, actual) else [_mismatch_text(path, show_value(expected), actual)]


def meets_expectation(expected: Json, actual: Json, bindings: Bindings) -> bool:
    """Does `actual` meet `expected`? New names are added to `bindings` only if it does."""
    trial = dict(bindings)
    if find_differences(expected, actual, trial):
        return False
    bindings.update(trial)
    return True


def show_value(value: Json, limit: int = 200) -> str:
    text = repr(value) if isinstance(value, _Missing) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= limit else f"{text[:limit]}… ({len(text)} characters)"


def content_text(value: Json) -> Json:
    """The text of a content, which may be a string or a list of parts; other values are unchanged."""
    if isinstance(value, list):
        return "".join(part["text"] for part in value if isinstance(part, dict) and isinstance(part.get("text"), str))
    return value


def _mismatch_text(path: str, wanted: str, actual: Json) -> str:
    return f"{path or '/'}: expected {wanted}, got {show_value(actual)}"


def _is_equal(one: Json, other: Json) -> bool:
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_is_equal(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_is_equal, one, other))
    return bool(one == other)


def _check_word(expected: str, actual: Json, bindings: Bindings, path: str) -> list[str]:
    if expected == "$any":
        return [] if actual not in (MISSING, None) else [_mismatch_text(path, "any value", actual)]
    if expected == "$absent":
        return [] if actual in (MISSING, None) else [_mismatch_text(path, "nothing", actual)]
    if expected.startswith(SAME_PREFIX):
        return _check_same(expected[len(SAME_PREFIX) :], actual, bindings, path)
    raise ValueError(f'{path or "/"}: {expected!r} is not an operator; write a text that begins with $ as {{"$is": …}}')


def _check_same(name: str, actual: Json, bindings: Bindings, path: str) -> list[str]:
    if actual is MISSING:
        return [_mismatch_text(path, f"a value for `{name}`", actual)]
    if name not in bindings:
        bindings[name] = actual
        return []
    if _is_equal(bindings[name], actual):
        return []
    return [_mismatch_text(path, f"{show_value(bindings[name])} as before (`{name}`)", actual)]


def _check_object(expected: dict[str, Json], actual: Json, bindings: Bindings, path: str) -> list[str]:
    if not isinstance(actual, dict):
        return [_mismatch_text(path, "an object", actual)]
    return [
        line
        for key, wanted in expected.items()
        for line in find_differences(wanted, actual.get(key, MISSING), bindings, f"{path}/{key}")
    ]


def _check_array(expected: list[Json], actual: Json, bindings: Bindings, path: str) -> list[str]:
    if not isinstance(actual, list):
        return [_mismatch_text(path, "an array", actual)]
    if len(expected) != len(actual):
        return [f"{path or '/'}: expected {len(expected)} elements, got {len(actual)}: {show_value(actual, 600)}"]
    return [
        line
        for index, (wanted, element) in enumerate(zip(expected, actual, strict=True))
        for line in find_differences(wanted, element, bindings, f"{path}/{index}")
    ]


# --- operators ------------------------------------------------------------------------------------------------------


def _check_operators(expected: dict[str, Json], actual: Json, bindings: Bindings, path: str) -> list[str]:
    """All operators of an object must match, and its other keys too."""
    plain_keys = {key: value for key, value in expected.items() if not key.startswith("$")}
    found = _check_object(plain_keys, actual, bindings, path) if plain_keys else []
    for name, argument in expected.items():
        if name in OPERATORS:
            found += OPERATORS[name](argument, actual, bindings, path)
        elif name in SIMPLE_OPERATORS:
            is_met, describe = SIMPLE_OPERATORS[name]
            found += [] if is_met(argument, actual) else [_mismatch_text(path, describe(argument), actual)]
        elif name.startswith("$"):
            raise ValueError(f"{path or '/'}: {name} is not an operator")
    return found


def _check_contains(argument: Json, actual: Json, bindings: Bindings, path: str) -> list[str]:
    """Part of a text; or elements of an array in this order, possibly with others between them."""
    if isinstance(argument, str):
        met = isinstance(actual, str) and argument in actual
        return [] if met else [_mismatch_text(path, f"… {argument} …", actual)]
    if not isinstance(actual, list):
        return [_mismatch_text(path, "an array", actual)]
    start = 0
    for number, wanted in enumerate(argument):
        for index in range(start, len(actual)):
            if meets_expectation(wanted, actual[index], bindings):
                start = index + 1
                break
        else:
            return [_missing_element_text(wanted, number, actual, start, bindings, path)]
    return []


def _mismatch_distance(found: list[str]) -> tuple[int, int]:
    """How far a value is from the expectation: differences deeper in it, and fewer of them, are nearer."""
    return -found[0].partition(":")[0].count("/"), len(found)


def _missing_element_text(
    wanted: Json, number: int, actual: list[Json], start: int, bindings: Bindings, path: str
) -> str:
    """The difference to the nearest element, and then all elements."""
    missing = f"element {number} of $contains, {show_value(wanted)}, is not among {show_value(actual[start:], 1500)}"
    rest = enumerate(actual[start:], start)
    tried = [find_differences(wanted, element, dict(bindings), f"{path}/{index}") for index, element in rest]
    near = min(tried, key=_mismatch_distance, default=[])
    return f"{near[0]} (the nearest: {missing})" if near else f"{path or '/'}: {missing}"


def _check_count(argument: Json, actual: Json, bindings: Bindings, path: str) -> list[str]:
    """`{"of": expectation, "is": expectation}`: how many elements meet the first."""
    if not isinstance(actual, list):
        return [_mismatch_text(path, "an array", actual)]
    count = sum(meets_expectation(argument["of"], element, dict(bindings)) for element in actual)
    found = find_differences(argument["is"], count, bindings, f"{path}/$count")
    return [f"{line} of {show_value(argument['of'])}" for line in found]


def _check_length(argument: Json, actual: Json, bindings: Bindings, path: str) -> list[str]:
    size = len(actual) if isinstance(actual, (str, list, dict)) else MISSING
    return find_differences(argument, size, bindings, f"{path}/$length")


def _check_more_than(argument: str, actual: Json, bindings: Bindings, path: str) -> list[str]:
    met = isinstance(actual, (int, float)) and argument in bindings and actual > bindings[argument]
    return [] if met else [_mismatch_text(path, f"more than {bindings.get(argument)} (`{argument}`)", actual)]


def _check_not(argument: Json, actual: Json, bindings: Bindings, path: str) -> list[str]:
    met = meets_expectation(argument, actual, dict(bindings))
    return [_mismatch_text(path, f"anything but {show_value(argument)}", actual)] if met else []


def _check_json(argument: Json, actual: Json, bindings: Bindings, path: str) -> list[str]:
    if not isinstance(actual, str):
        return [_mismatch_text(path, "a text that holds JSON", actual)]
    try:
        value = json.loads(actual)
    except ValueError as error:
        return [f"{path or '/'}: not JSON ({error}): {show_value(actual)}"]
    return find_differences(argument, value, bindings, f"{path}/$json")


def _check_all(argument: Json, actual: Json, bindings: Bindings, path: str) -> list[str]:
    return _check_array([argument] * len(actual) if isinstance(actual, list) else [], actual, bindings, path)


def _check_either(argument: list[Json], actual: Json, bindings: Bindings, path: str) -> list[str]:
    if any(meets_expectation(wanted, actual, bindings) for wanted in argument):
        return []
    tried = [find_differences(wanted, actual, dict(bindings), path) for wanted in argument]
    near, *others = sorted(tried, key=_mismatch_distance)
    rest = f" (no alternative matches either: {' | '.join(lines[0] for lines in others)})" if others else ""
    return [near[0] + rest]


def json_type_name(value: Json) -> str:
    """The JSON name of a value's type."""
    names = {str: "string", dict: "object", list: "array", bool: "boolean", type(None): "null", _Missing: "missing"}
    return names.get(type(value), "number")


SIMPLE_OPERATORS: Final[dict[str, tuple[Callable[[Any, Json], bool], Callable[[Any], str]]]] = {
    "$is": (_is_equal, lambda argument: f"exactly {show_value(argument)}"),
    "$within": (
        lambda argument, actual: actual is not MISSING and argument in json.dumps(actual, ensure_ascii=False),
        "… {} … anywhere".format,
    ),
    "$matches": (
        lambda argument, actual: isinstance(actual, str) and re.search(argument, actual) is not None,
        "a text like /{}/".format,
    ),
    "$at_most": (lambda limit, actual: isinstance(actual, (int, float)) and actual <= limit, "at most {}".format),
    "$at_least": (lambda limit, actual: isinstance(actual, (int, float)) and actual >= limit, "at least {}".format),
    "$type": (lambda argument, actual: json_type_name(actual) == argument, "a value of type {}".format),
}
"""Operators without bindings: a predicate, and the expectation in words."""
OPERATORS: Final[dict[str, Callable[[Any, Json, Bindings, str], list[str]]]] = {
    "$exact": _check_array,
    "$contains": _check_contains,
    "$count": _check_count,
    "$length": _check_length,
    "$more_than": _check_more_than,
    "$not": _check_not,
    "$json": _check_json,
    "$all": _check_all,
    "$either": _check_either,
    "$text": lambda argument, actual, bindings, path: find_differences(argument, content_text(actual), bindings, path),
    "$same": _check_same,
}


EchoTurns: TypeAlias = Callable[[int, list[str] | None], list[Json]]
"""The turns that a client appends to its history after answer N; or, given texts, the results of its calls."""
CLIPPED_PREFIX = "$clipped:"


class MissingValue(Exception):
    """A request uses a value that no earlier turn contained."""


def fill_template(template: Json, bindings: Bindings, echo: EchoTurns) -> Json:
    """A copy of the template with all its placeholders filled in."""
    if isinstance(template, str) and template.startswith((SAME_PREFIX, CLIPPED_PREFIX)):
        word, _, name = template.partition(":")
        if name not in bindings:
            raise MissingValue(f"no earlier turn contains a value for `{name}`")
        return bindings[name] if f"{word}:" == SAME_PREFIX else bindings[name][:-1]
    if isinstance(template, dict):
        if template.keys() == {"$is"}:
            return template["$is"]
        return {key: fill_template(value, bindings, echo) for key, value in template.items()}
    if isinstance(template, list):
        return [element for item in template for element in _fill_element(item, bindings, echo)]
    return template


def _fill_element(item: Json, bindings: Bindings, echo: EchoTurns) -> list[Json]:
    """The elements that one element of an array expands to."""
    if isinstance(item, dict) and "$echo" in item:
        return echo(item["$echo"], None)
    if isinstance(item, dict) and "$results" in item:
        return echo(item["$results"], item["of"])
    if isinstance(item, dict) and "$repeat" in item:
        element = json.dumps(item["of"])
        numbered = [json.loads(element.replace("{n}", str(number))) for number in range(item["$repeat"])]
        return [fill_template(template, bindings, echo) for template in numbered]
    return [fill_template(item, bindings, echo)]
