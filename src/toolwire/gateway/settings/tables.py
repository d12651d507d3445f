"""Tables of the file turned into values, with every mistake gathered instead of the first one raised."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any, Literal, get_args, get_origin

import msgspec
from msgspec import NODEFAULT, Struct
from msgspec.structs import fields

from toolwire.gateway.settings.problems import Problem, meant
from toolwire.gateway.settings.toml_lines import Lines, Place

Table = Mapping[str, object]

_WORDS = {
    "int": "a whole number",
    "float": "a number",
    "str": "text in quotes",
    "bool": "true or false",
    "array": "a list",
    "object": "a table",
}
_AT = re.compile(r" - at `\$(.*)`$")
_STEP = re.compile(r"\[(\d+)\]")


class Findings:
    """The problems of one reading, each with the line of its place."""

    def __init__(self, lines: Lines | None) -> None:
        self._lines = lines
        self.all: list[Problem] = []

    def add(self, place: Place, what: str, hint: str = "", severity: Literal["error", "warning"] = "error") -> None:
        """A problem at a place of the file, or with a variable, which stands on no line."""
        line = self._lines.of(place) if self._lines is not None else 0
        self.all.append(Problem(where=dotted(place), what=what, hint=hint, line=line, severity=severity))

    @property
    def refused(self) -> bool:
        return any(problem.severity == "error" for problem in self.all)

    def table(self, value: object, place: Place) -> Table:
        """A value that must be a table; an empty one when it is not."""
        if isinstance(value, dict):
            return value
        self.add(place, f"`{dotted(place)}` is a table", f"write `[{dotted(place)}]` above its keys")
        return {}

    def shaped(
        self, table: Table, shape: type[Struct], place: Place, apart: Collection[str] = ()
    ) -> dict[str, Any] | None:
        """The fields of a shape that a table gives, each checked; None when one that is needed is missing or wrong.
        Keys in `apart` are read elsewhere."""
        known = {field.name: field for field in fields(shape) if field.name not in apart}
        values: dict[str, Any] = {}
        whole = True
        for key, value in table.items():
            if key in apart:
                continue
            if key not in known:
                self.add((*place, key), f"unknown key `{key}`", meant(key, known))
                continue
            try:
                values[key] = msgspec.convert(value, known[key].type)
            except msgspec.ValidationError as error:
                whole &= known[key].default is not NODEFAULT
                self._mistyped((*place, key), value, known[key].type, str(error))
        for name, field in known.items():
            needed = field.default is NODEFAULT and field.default_factory is NODEFAULT
            if needed and name not in table:
                self.add(place, f"`{name}` is missing", f"add `{name} = …`")
                whole = False
        return values if whole else None

    def _mistyped(self, place: Place, value: object, kind: object, error: str) -> None:
        within = _AT.search(error)
        error = _AT.sub("", error).replace(" | null", "")  # nobody can write one here
        steps = tuple(int(number) for number in _STEP.findall(within[1])) if within else ()
        said = re.sub(r"`(\w+)`", lambda word: _WORDS.get(word[1], word[0]), error)
        choices = _choices(kind)
        if choices and isinstance(value, str):
            near = meant(value, choices)
            hint = near if near.startswith("there is") else f"{near} There is: {', '.join(choices)}"
            self.add(place, f"`{place[-1]}` is none of its choices", hint)
            return
        self.add((*place, *steps), f"`{place[-1]}`: {said[:1].lower()}{said[1:]}")


def _choices(kind: object) -> tuple[str, ...]:
    return get_args(kind) if get_origin(kind) is Literal else ()


_BARE = re.compile(r"[A-Za-z0-9_-]+")


def dotted(place: Place) -> str:
    """A place as one would write it in the file."""
    parts = [str(step) if isinstance(step, int) or _BARE.fullmatch(step) else f'"{step}"' for step in place]
    return ".".join(parts)
