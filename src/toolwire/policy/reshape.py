"""Parameters in another form: each way is a pair of functions that undo each other, and what it makes of the schema.

A name says the client's form first and the model's second: with `shell-text` the client takes `["bash", "-lc", "ls"]`
and the model writes `ls`. A value that has another form than expected goes on as it is.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping
from itertools import permutations
from types import MappingProxyType

from msgspec import Struct

from toolwire.wire import Json, Malformed, Object, decode, encode_text

SHELL = ("bash", "-lc")
_SHELLS = frozenset({"bash", "sh", "zsh", "/bin/bash", "/bin/sh", "/bin/zsh", "/usr/bin/bash", "/usr/bin/zsh"})


class Way(Struct, frozen=True):
    """One way to reshape a value. `out` makes the model's form of the client's, `back` the client's of the model's."""

    out: Callable[[Json], Json]
    back: Callable[[Json], Json]
    schema: Object
    """What the model's form is; the description stays the parameter's own."""
    says: str
    """What it does, for people."""
    joins: str = ""
    """A second parameter of the client that goes into the model's one: `out` takes both, `back` gives both."""
    splits: str = ""
    """A second parameter that the model has for the client's one: `out` gives both, `back` takes both."""


def _texts(value: Json) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _argv_text(value: Json) -> Json:
    """The command that an argument vector runs in a shell, or its words as a shell would take them."""
    if not _texts(value) or not value:
        return value
    if len(value) == 3 and value[0] in _SHELLS and value[1] in ("-lc", "-c"):
        return value[2]
    return shlex.join(value)


def _text_argv(value: Json) -> Json:
    return [*SHELL, value] if isinstance(value, str) else value


def _joined(mark: str) -> Callable[[Json], Json]:
    return lambda value: mark.join(value) if _texts(value) else value


def _split(mark: str) -> Callable[[Json], Json]:
    def split(value: Json) -> Json:
        if not isinstance(value, str):
            return value
        return [item.strip() if mark == "," else item for item in value.split(mark)] if value else []

    return split


def _listed(value: Json) -> Json:
    return value if isinstance(value, list) else [value]


def _alone(value: Json) -> Json:
    return value[0] if isinstance(value, list) and len(value) == 1 else value


def _spelled(value: Json) -> Json:
    return encode_text(value)


def _parsed(value: Json) -> Json:
    if not isinstance(value, str):
        return value
    try:
        return decode(value)
    except Malformed:
        return value


def _times(factor: int) -> Callable[[Json], Json]:
    def times(value: Json) -> Json:
        return value if isinstance(value, bool) or not isinstance(value, (int, float)) else value * factor

    return times


def _over(factor: int) -> Callable[[Json], Json]:
    def over(value: Json) -> Json:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            return value
        return value // factor if isinstance(value, int) and value % factor == 0 else value / factor

    return over


_ADDRESS = re.compile(r"https?://[^\s<>\"'`]+")
PAGE = "url"
_APART = "\n\n"


def _addressed(value: Json) -> Json:
    """A request for a page, and the address that stands in it."""
    found = _ADDRESS.search(value) if isinstance(value, str) else None
    if found is None:
        return [value, None]
    address = found[0].rstrip(".,;:!?)]}")
    return [value.removesuffix(f"{_APART}{address}"), address]


def _requested(pair: Json) -> Json:
    """A question and an address as one request."""
    question, address = pair
    if not isinstance(address, str) or (isinstance(question, str) and address in question):
        return question
    return f"{question}{_APART}{address}" if isinstance(question, str) and question else address


_STATES = ["pending", "in_progress", "completed"]
_DONE, _DOING = "content", "activeForm"
"""One agent wants the words of a step twice, the second time as what is being done."""
_TEXT: Object = {"type": "string"}


def _plan(own: str, seen: str) -> Way:
    """A list of steps, each with its words and its state; `own` and `seen` are what client and model call the words."""
    step: Object = {"type": "object", "properties": {seen: _TEXT, "status": {"type": "string", "enum": _STATES}}}
    step["properties"] |= {_DOING: _TEXT} if seen == _DONE else {}
    step["required"] = [*step["properties"]]
    says = f"the client has a plan whose steps have `{own}`, the model one whose steps have `{seen}`"
    return Way(_steps(own, seen), _steps(seen, own), {"type": "array", "items": step}, says)


def _steps(old: str, new: str) -> Callable[[Json], Json]:
    def step(item: Json) -> Json:
        if not isinstance(item, dict) or old not in item:
            return item
        said = {new: item[old], **({"status": item["status"]} if "status" in item else {})}
        return {**said, _DOING: item[old]} if new == _DONE else said

    return lambda value: [step(item) for item in value] if isinstance(value, list) else value


_LIST: Object = {"type": "array", "items": {"type": "string"}}
_NUMBER: Object = {"type": "number"}
_ANY: Object = {}

WAYS: Mapping[str, Way] = MappingProxyType(
    {
        "shell-text": Way(_argv_text, _text_argv, _TEXT, 'the client has ["bash", "-lc", COMMAND], the model COMMAND'),
        "text-shell": Way(_text_argv, _argv_text, _LIST, 'the client has COMMAND, the model ["bash", "-lc", COMMAND]'),
        "list-text": Way(_joined("\n"), _split("\n"), _TEXT, "the client has a list of texts, the model its lines"),
        "text-list": Way(_split("\n"), _joined("\n"), _LIST, "the client has lines, the model a list of texts"),
        "csv": Way(_joined(","), _split(","), _TEXT, "the client has a list of texts, the model them with commas"),
        "list-one": Way(_alone, _listed, _ANY, "the client has a list, the model its only item"),
        "one-list": Way(_listed, _alone, {"type": "array"}, "the client has one value, the model a list of it"),
        "json-text": Way(_spelled, _parsed, _TEXT, "the client has a value, the model its JSON as text"),
        **{f"{own}-{seen}": _plan(own, seen) for own, seen in permutations(("step", "content", "description"), 2)},
        "request-page": Way(
            _addressed, _requested, _TEXT, "the client has one request, the model a question and a `url`", splits=PAGE
        ),
        "page-request": Way(
            _requested, _addressed, _TEXT, "the client has a question and a `url`, the model one request", joins=PAGE
        ),
        "seconds-milliseconds": Way(
            _times(1000), _over(1000), _NUMBER, "the client has seconds, the model milliseconds"
        ),
        "milliseconds-seconds": Way(
            _over(1000), _times(1000), _NUMBER, "the client has milliseconds, the model seconds"
        ),
    }
)


def shown(old: Json, way: Way) -> Json:
    """The schema of a parameter as the model sees it."""
    if not isinstance(old, dict):
        return dict(way.schema)
    said = {key: old[key] for key in ("title", "description") if key in old}
    if way.schema is _ANY:
        inner = old.get("items")
        return {**inner, **said} if isinstance(inner, dict) else said
    if way.schema.keys() == {"type"} and way.schema["type"] == "array":
        inner = {key: value for key, value in old.items() if key not in said}
        return {"type": "array", "items": inner, **said}
    return {**way.schema, **said}
