"""Does a value meet an expectation? The answer is a list of differences, empty when it does.

An expectation is JSON. An object is met by any object that has at least its keys; an array by an array of the same
length, element by element; anything else by an equal value. Objects whose keys begin with `$` and strings such as
`"$any"` are operators, all listed in README.md.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, Final, TypeAlias

Json: TypeAlias = Any
Bound: TypeAlias = dict[str, Json]
"""What each `$same` name stands for, so far."""


class _Missing:
    def __repr__(self) -> str:
        return "nothing"


MISSING: Final = _Missing()
SAME = "$same:"


def differences(expected: Json, actual: Json, bound: Bound, at: str = "") -> list[str]:
    """Where `actual` does not meet `expected`; names met for the first time are written into `bound`."""
    if isinstance(expected, str) and expected.startswith("$"):
        return _word(expected, actual, bound, at)
    if isinstance(expected, dict):
        if any(key.startswith("$") for key in expected):
            return _operators(expected, actual, bound, at)
        return _object(expected, actual, bound, at)
    if isinstance(expected, list):
        return _array(expected, actual, bound, at)
    return [] if _equal(expected, actual) else [_instead(at, shown(expected), actual)]


def meets(expected: Json, actual: Json, bound: Bound) -> bool:
    """The same as a yes or no; `bound` is written only on a yes."""
    trial = dict(bound)
    if differences(expected, actual, trial):
        return False
    bound.update(trial)
    return True


def shown(value: Json, limit: int = 200) -> str:
    text = repr(value) if isinstance(value, _Missing) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= limit else f"{text[:limit]}… ({len(text)} characters)"


def plain(value: Json) -> Json:
    """The text of a content, whether it stands as a string or as text parts; other values as they are."""
    if isinstance(value, list):
        return "".join(part["text"] for part in value if isinstance(part, dict) and isinstance(part.get("text"), str))
    return value


def _instead(at: str, wanted: str, actual: Json) -> str:
    return f"{at or '/'}: expected {wanted}, got {shown(actual)}"


def _equal(one: Json, other: Json) -> bool:
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_equal(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_equal, one, other))
    return bool(one == other)


def _word(expected: str, actual: Json, bound: Bound, at: str) -> list[str]:
    if expected == "$any":
        return [] if actual not in (MISSING, None) else [_instead(at, "any value", actual)]
    if expected == "$absent":
        return [] if actual in (MISSING, None) else [_instead(at, "nothing", actual)]
    if expected.startswith(SAME):
        return _same(expected[len(SAME) :], actual, bound, at)
    raise ValueError(f'{at or "/"}: {expected!r} is no operator; a text that begins with $ is written {{"$is": …}}')


def _same(name: str, actual: Json, bound: Bound, at: str) -> list[str]:
    if actual is MISSING:
        return [_instead(at, f"a value for `{name}`", actual)]
    if name not in bound:
        bound[name] = actual
        return []
    return [] if _equal(bound[name], actual) else [_instead(at, f"{shown(bound[name])} as before (`{name}`)", actual)]


def _object(expected: dict[str, Json], actual: Json, bound: Bound, at: str) -> list[str]:
    if not isinstance(actual, dict):
        return [_instead(at, "an object", actual)]
    found: list[str] = []
    for key, wanted in expected.items():
        found += differences(wanted, actual.get(key, MISSING), bound, f"{at}/{key}")
    return found


def _array(expected: list[Json], actual: Json, bound: Bound, at: str) -> list[str]:
    if not isinstance(actual, list):
        return [_instead(at, "an array", actual)]
    if len(expected) != len(actual):
        return [f"{at or '/'}: expected {len(expected)} elements, got {len(actual)}: {shown(actual, 600)}"]
    found: list[str] = []
    for index, (wanted, element) in enumerate(zip(expected, actual, strict=True)):
        found += differences(wanted, element, bound, f"{at}/{index}")
    return found


# --- operators ------------------------------------------------------------------------------------------------------


def _operators(expected: dict[str, Json], actual: Json, bound: Bound, at: str) -> list[str]:
    """Several operators in one object are all demanded; plain keys beside them are demanded of the object itself."""
    found: list[str] = []
    plain_keys = {key: value for key, value in expected.items() if not key.startswith("$")}
    if plain_keys:
        found += _object(plain_keys, actual, bound, at)
    for key, argument in expected.items():
        if key.startswith("$"):
            if key not in OPERATORS:
                raise ValueError(f"{at or '/'}: {key} is no operator")
            found += OPERATORS[key](argument, actual, bound, at)
    return found


def _is(argument: Json, actual: Json, bound: Bound, at: str) -> list[str]:
    return [] if _equal(argument, actual) else [_instead(at, f"exactly {shown(argument)}", actual)]


def _contains(argument: Json, actual: Json, bound: Bound, at: str) -> list[str]:
    """A piece of a text; or elements of an array in this order, with others between them."""
    if isinstance(argument, str):
        return [] if isinstance(actual, str) and argument in actual else [_instead(at, f"… {argument} …", actual)]
    if not isinstance(actual, list):
        return [_instead(at, "an array", actual)]
    start = 0
    for number, wanted in enumerate(argument):
        for index in range(start, len(actual)):
            if meets(wanted, actual[index], bound):
                start = index + 1
                break
        else:
            return [_not_among(wanted, number, actual, start, bound, at)]
    return []


def _distance(found: list[str]) -> tuple[int, int]:
    """How far an element is from what was wanted: one of another kind fails at its first key, and at many."""
    return -found[0].partition(":")[0].count("/"), len(found)


def _not_among(wanted: Json, number: int, actual: list[Json], start: int, bound: Bound, at: str) -> str:
    """What the nearest of the elements lacks, and then all that there is."""
    said = f"element {number} of $contains, {shown(wanted)}, is not among {shown(actual[start:], 1500)}"
    tried = [differences(wanted, actual[index], dict(bound), f"{at}/{index}") for index in range(start, len(actual))]
    near = min(tried, key=_distance, default=[])
    return f"{near[0]} (the nearest: {said})" if near else f"{at or '/'}: {said}"


def _within(argument: str, actual: Json, bound: Bound, at: str) -> list[str]:
    """Somewhere in a value, in whatever wrapping."""
    met = actual is not MISSING and argument in json.dumps(actual, ensure_ascii=False)
    return [] if met else [_instead(at, f"… {argument} … anywhere", actual)]


def _exact(argument: list[Json], actual: Json, bound: Bound, at: str) -> list[str]:
    return _array(argument, actual, bound, at)


def _count(argument: Json, actual: Json, bound: Bound, at: str) -> list[str]:
    """`{"of": expectation, "is": expectation}`: how many elements meet the first."""
    if not isinstance(actual, list):
        return [_instead(at, "an array", actual)]
    count = sum(meets(argument["of"], element, dict(bound)) for element in actual)
    found = differences(argument["is"], count, bound, f"{at}/$count")
    return [f"{line} of {shown(argument['of'])}" for line in found]


def _matches(argument: str, actual: Json, bound: Bound, at: str) -> list[str]:
    met = isinstance(actual, str) and re.search(argument, actual)
    return [] if met else [_instead(at, f"a text like /{argument}/", actual)]


def _length(argument: Json, actual: Json, bound: Bound, at: str) -> list[str]:
    size = len(actual) if isinstance(actual, (str, list, dict)) else MISSING
    return differences(argument, size, bound, f"{at}/$length")


def _at_most(argument: float, actual: Json, bound: Bound, at: str) -> list[str]:
    met = isinstance(actual, (int, float)) and actual <= argument
    return [] if met else [_instead(at, f"at most {argument}", actual)]


def _at_least(argument: float, actual: Json, bound: Bound, at: str) -> list[str]:
    met = isinstance(actual, (int, float)) and actual >= argument
    return [] if met else [_instead(at, f"at least {argument}", actual)]


def _more_than(argument: str, actual: Json, bound: Bound, at: str) -> list[str]:
    met = isinstance(actual, (int, float)) and argument in bound and actual > bound[argument]
    return [] if met else [_instead(at, f"more than {bound.get(argument)} (`{argument}`)", actual)]


def _not(argument: Json, actual: Json, bound: Bound, at: str) -> list[str]:
    met = meets(argument, actual, dict(bound))
    return [_instead(at, f"anything but {shown(argument)}", actual)] if met else []


def _json(argument: Json, actual: Json, bound: Bound, at: str) -> list[str]:
    if not isinstance(actual, str):
        return [_instead(at, "a text that holds JSON", actual)]
    try:
        value = json.loads(actual)
    except ValueError as error:
        return [f"{at or '/'}: not JSON ({error}): {shown(actual)}"]
    return differences(argument, value, bound, f"{at}/$json")


def _all(argument: Json, actual: Json, bound: Bound, at: str) -> list[str]:
    if not isinstance(actual, list):
        return [_instead(at, "an array", actual)]
    return [
        line for index, element in enumerate(actual) for line in differences(argument, element, bound, f"{at}/{index}")
    ]


def _either(argument: list[Json], actual: Json, bound: Bound, at: str) -> list[str]:
    if any(meets(wanted, actual, bound) for wanted in argument):
        return []
    tried = [differences(wanted, actual, dict(bound), at) for wanted in argument]
    near, *others = sorted(tried, key=_distance)
    rest = f" (nor is any other way met: {' | '.join(lines[0] for lines in others)})" if others else ""
    return [near[0] + rest]


def _type(argument: str, actual: Json, bound: Bound, at: str) -> list[str]:
    return [] if type_name(actual) == argument else [_instead(at, f"a value of type {argument}", actual)]


def type_name(value: Json) -> str:
    """The JSON name of a value's type."""
    names: dict[type, str] = {str: "string", dict: "object", list: "array", bool: "boolean", type(None): "null"}
    return names.get(type(value), "missing" if value is MISSING else "number")


def _text(argument: Json, actual: Json, bound: Bound, at: str) -> list[str]:
    return differences(argument, plain(actual), bound, at)


def _bound(argument: str, actual: Json, bound: Bound, at: str) -> list[str]:
    return _same(argument, actual, bound, at)


OPERATORS: Final[dict[str, Callable[[Any, Json, Bound, str], list[str]]]] = {
    "$is": _is,
    "$exact": _exact,
    "$contains": _contains,
    "$within": _within,
    "$count": _count,
    "$matches": _matches,
    "$length": _length,
    "$at_most": _at_most,
    "$at_least": _at_least,
    "$more_than": _more_than,
    "$not": _not,
    "$json": _json,
    "$all": _all,
    "$either": _either,
    "$type": _type,
    "$text": _text,
    "$same": _bound,
}
