"""Problems in a configuration file, each with its line, and reading tables while collecting them.

`tomllib` does not report the lines of keys. `TomlLines` finds them in a text that `tomllib` has already accepted.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from difflib import get_close_matches
from functools import cache
from itertools import islice
from typing import Any, Literal, NamedTuple, get_args, get_origin

import msgspec
from msgspec import NODEFAULT, Struct
from msgspec.structs import FieldInfo, fields

from toolwire.terminal.text import escape_controls

KeyPath = tuple[str | int, ...]
MAX_SUGGESTIONS = 100
"""Names that a hint searches. Comparing every wrong name with thousands would take minutes."""

MAX_SHOWN = 30
"""Names that a hint lists if none is near. A longer list is not read."""

MAX_MEANT_NAMES = 3

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_BLANKS = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_STRING = re.compile(
    r'"""(?:[^"\\]|\\.|"(?!""))*"{3,5}' + r"|'''(?:[^']|'(?!''))*'{3,5}" + r'|"(?:[^"\\\n]|\\.)*"' + r"|'[^'\n]*'",
    re.DOTALL,
)
_BARE_VALUE = re.compile(r"[^,\]}\n#]*")


class TomlLines:
    """The line of each key, by its path of names and list indexes, such as ("server", "keys", 0)."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._position = 0
        self._line, self._line_counted_to = 1, 0
        self.line_numbers: dict[KeyPath, int] = {}
        self._old_paths: dict[KeyPath, KeyPath] = {}
        self._table_counts: dict[KeyPath, int] = {}
        self._current_table: KeyPath = ()

    def find_keys(self) -> None:
        """Find the lines of all keys. They are needed only if there is a problem."""
        while self._skip_blanks():
            if self._text[self._position] == "[":
                self._read_table_header(2 if self._text.startswith("[[", self._position) else 1)
            else:
                self._read_pair(self._current_table)

    def line_of(self, path: KeyPath) -> int:
        """The line of a key, or of the nearest table around it; 0 if there is none."""
        if not self.line_numbers:
            with suppress(ValueError, IndexError):  # without the lines, the problem itself is still reported
                self.find_keys()
        for length in range(1, len(path) + 1 if self._old_paths else 1):
            path = (*self._old_paths.get(path[:length], path[:length]), *path[length:])
        nearest = (path[:length] for length in range(len(path), 0, -1))
        return next((self.line_numbers[place] for place in nearest if place in self.line_numbers), 0)

    def rename_key(self, old: KeyPath, new: KeyPath) -> None:
        """Give a renamed key, and everything below it, the lines of its old name."""
        self._old_paths[new] = old

    def _read_table_header(self, brackets: int) -> None:
        line = self._current_line()
        self._position += brackets
        keys = self._read_keys()
        self._skip_blanks()
        self._position += brackets
        place: KeyPath = ()
        for number, key in enumerate(keys, 1):
            place = (*place, key)
            self.line_numbers.setdefault(place, line)
            if brackets == 2 and number == len(keys):
                self._table_counts[place] = self._table_counts.get(place, 0) + 1
            if place in self._table_counts:  # of a list of tables, the last one
                place = (*place, self._table_counts[place] - 1)
                self.line_numbers.setdefault(place, line)
        self._current_table = place

    def _read_pair(self, path: KeyPath) -> None:
        line = self._current_line()
        for key in self._read_keys():
            path = (*path, key)
            self.line_numbers.setdefault(path, line)
        self._skip_blanks()
        self._position += 1  # the equals sign
        self._read_value(path)

    def _read_keys(self) -> list[str]:
        keys: list[str] = []
        while True:
            self._skip_blanks()
            quoted = _STRING.match(self._text, self._position)
            word = quoted or _BARE_KEY.match(self._text, self._position)
            if word is None:
                raise ValueError(f"line {self._current_line()} has no key")
            key = word[0][1:-1] if quoted else word[0]
            if word[0][0] == '"':  # other escapes are rare and left as they are
                key = key.replace('\\"', '"').replace("\\\\", "\\")
            keys.append(key)
            self._position = word.end()
            self._skip_blanks()
            if not self._text.startswith(".", self._position):
                return keys
            self._position += 1

    def _read_value(self, path: KeyPath) -> None:
        self._skip_blanks()
        opening = self._text[self._position]
        if opening in "[{":
            self._read_items(path, "]" if opening == "[" else "}")
        else:
            shape = _STRING if opening in "\"'" else _BARE_VALUE
            found = shape.match(self._text, self._position)
            self._position = found.end() if found else len(self._text)

    def _read_items(self, path: KeyPath, closing: str) -> None:
        """The items of a list or the pairs of an inline table."""
        self._position += 1
        number = 0
        while self._skip_blanks() and self._text[self._position] != closing:
            if self._text[self._position] == ",":
                self._position += 1
            elif closing == "}":
                self._read_pair(path)
            else:
                self.line_numbers.setdefault((*path, number), self._current_line())
                self._read_value((*path, number))
                number += 1
        self._position += 1

    def _skip_blanks(self) -> bool:
        """Skip white space and comments; False at the end of the text."""
        found = _BLANKS.match(self._text, self._position)
        self._position = found.end() if found else self._position
        return self._position < len(self._text)

    def _current_line(self) -> int:
        self._line += self._text.count("\n", self._line_counted_to, self._position)
        self._line_counted_to = self._position
        return self._line


# --- problems ---------------------------------------------------------------------------------------------------------


class Problem(Struct, frozen=True, kw_only=True):
    """An error (the file is refused) or a warning."""

    location: str
    """The path of the key, or the name of an environment variable."""
    message: str
    hint: str = ""
    line: int = 0
    """The line in the file; 0 if it is not in the file."""
    severity: Literal["error", "warning"] = "error"


class ConfigError(Exception):
    """A refused configuration, with all its problems, in the order of the file."""

    def __init__(self, problems: Sequence[Problem], file: str = "") -> None:
        self.problems = tuple(problems)
        self.file = file
        lines = report_problems(problems, file)
        super().__init__("; ".join(map(str, lines)))
        for line in lines:  # for programs: a traceback has the notes
            if line.hint:
                self.add_note(f"hint: {line.place}: {line.hint}")


class ReportLine(NamedTuple):
    """One problem as people read it."""

    severity: Literal["error", "warning"]
    place: str
    """`FILE:LINE`; without a line, the key or the environment variable."""
    message: str
    hint: str

    def __str__(self) -> str:
        return f"{self.place}: {self.message}"


def report_problems(problems: Iterable[Problem], file: str) -> list[ReportLine]:
    """`doctor`, `doctor config`, `serve`, `run` and the log of a gateway all show these lines, so that a problem reads
    the same everywhere. What they quote of the file may be a stranger's."""
    return [
        ReportLine(
            problem.severity,
            escape_controls(f"{file}:{problem.line}" if problem.line and file else problem.location),
            escape_controls(problem.message),
            escape_controls(problem.hint),
        )
        for problem in problems
    ]


def nearest_name(word: str, known: Iterable[str]) -> str:
    """The known name that was probably meant, or ""."""
    folded = {name.lower().replace("_", "-"): name for name in islice(known, MAX_SUGGESTIONS)}
    found = get_close_matches(word.lower().replace("_", "-"), folded, 1, 0.6)
    return folded[found[0]] if found else ""


def suggest_name(word: str, known: Iterable[str]) -> str:
    """A hint for an unknown name."""
    names = [*islice(known, MAX_SUGGESTIONS)]
    near = " or ".join(f"`{name}`" for name in _meant_names(word, names))
    if near or not names:
        return f"did you mean {near}?" if near else ""
    more = f" and {len(names) - MAX_SHOWN} more" if len(names) > MAX_SHOWN else ""
    return f"choose from: {', '.join(names[:MAX_SHOWN])}{more}"


def _meant_names(word: str, names: Sequence[str]) -> list[str]:
    """The names that were probably meant: some that have the word as a part, as `openai-chat` has `openai`, or the
    nearest one."""
    if not word or len(word) > MAX_SUGGESTIONS:
        return []
    folded = word.lower().replace("_", "-")
    parts = [name for name in names if folded in name.lower().replace("_", "-").split("-")]
    near = nearest_name(word, names)
    return parts if 0 < len(parts) <= MAX_MEANT_NAMES else [near] if near else []


TomlTable = Mapping[str, object]

_TYPE_NAMES = {
    "int": "a whole number",
    "float": "a number",
    "str": "a string",
    "bool": "true or false",
    "array": "a list",
    "object": "a table",
}
_ERROR_PATH = re.compile(r" - at `\$(.*)`$")
_INDEX_STEP = re.compile(r"\[(\d+)\]")


class ProblemCollector:
    """Collects the problems of one file, so that all are reported at once. Each has a place: `at` leads to it."""

    def __init__(self, lines: TomlLines | None, path: KeyPath = (), problems: list[Problem] | None = None) -> None:
        self._lines, self._path = lines, path
        self.problems: list[Problem] = [] if problems is None else problems

    def at(self, *keys: str | int) -> ProblemCollector:
        """The same collector for a key below this place."""
        return ProblemCollector(self._lines, (*self._path, *keys), self.problems)

    def add(self, message: str, hint: str = "", severity: Literal["error", "warning"] = "error") -> None:
        """Add a problem with the key of this place, or with an environment variable."""
        line = self._lines.line_of(self._path) if self._lines is not None else 0
        self.problems.append(Problem(location=self.location, message=message, hint=hint, line=line, severity=severity))

    @property
    def location(self) -> str:
        """The path as it is written in the file."""
        return ".".join(
            str(step) if isinstance(step, int) or _BARE_KEY.fullmatch(step) else f'"{step}"' for step in self._path
        )

    @property
    def has_errors(self) -> bool:
        return any(problem.severity == "error" for problem in self.problems)

    def expect_table(self, value: object) -> TomlTable:
        """The value if it is a table; otherwise add a problem and return an empty table."""
        if isinstance(value, dict):
            return value
        self.add(f"`{self.location}` must be a table", f"write `[{self.location}]` above its keys")
        return {}

    def read_fields(
        self, value: object, struct_type: type[Struct], excluded: Collection[str] = ()
    ) -> dict[str, Any] | None:
        """The values of a table, checked against the fields of a Struct; None if a required one is missing or wrong.
        Keys in `excluded` are read elsewhere."""
        table = self.expect_table(value)
        known = {name: field for name, field in _fields_by_name(struct_type).items() if name not in excluded}
        values: dict[str, Any] = {}
        is_complete = True
        for key, given in table.items():
            if key in known:
                try:
                    values[known[key].name] = msgspec.convert(given, known[key].type)
                except (msgspec.ValidationError, OverflowError) as error:  # an integer too large for a float overflows
                    is_complete &= known[key].default is not NODEFAULT
                    self.at(key)._add_type_problem(given, known[key].type, str(error))
            elif key not in excluded:
                self.at(key).add(f"unknown key `{key}`", suggest_name(key, known))
        for name, field in known.items():
            if name not in table and field.default is NODEFAULT and field.default_factory is NODEFAULT:
                self.add(f"`{name}` is missing", f"add `{name} = …`")
                is_complete = False
        return values if is_complete else None

    def replace_old_keys(
        self, table: dict[str, Any], renamed: Mapping[KeyPath, str], removed: Mapping[KeyPath, str]
    ) -> None:
        """Move the values of keys in `renamed` to their new names, and drop those in `removed`, in place, each with a
        warning."""
        for key in [*table]:
            old = (*self._path, key)
            if (instead := _find_by_path(old, removed)) is not None:
                place = self.at(key)
                place.add(f"`{place.location}` has no effect any more; remove it", instead, "warning")
                del table[key]
                continue
            name = _find_by_path(old, renamed) or key
            if name != key and name in table:
                self.at(key).add(f"`{key}` is the old name of `{name}`, and both are set", f"remove `{key}`")
                del table[key]
                continue
            if name != key:
                self.at(key).add(f"`{key}` has been renamed", f"write `{name}` instead of `{key}`", "warning")
                table[name] = table.pop(key)
                if self._lines is not None:
                    self._lines.rename_key(old, (*self._path, name))
            if isinstance(table[name], dict):
                self.at(name).replace_old_keys(table[name], renamed, removed)

    def _add_type_problem(self, value: object, expected: object, error: str) -> None:
        choices = get_args(expected) if get_origin(expected) is Literal else ()
        if choices and isinstance(value, str):
            near = suggest_name(value, choices)
            hint = near if near.startswith("choose") else f"{near} Choose from: {', '.join(choices)}"
            self.add(f"`{self._path[-1]}` has an invalid value", hint)
            return
        inner_path = _ERROR_PATH.search(error)
        error = _ERROR_PATH.sub("", error).replace(" | null", "")  # TOML has no null
        steps = map(int, _INDEX_STEP.findall(inner_path[1])) if inner_path else ()
        text = re.sub(r"`(\w+)`", lambda word: _TYPE_NAMES.get(word[1], word[0]), error)
        if isinstance(value, float):  # "a number" alone does not say why it is wrong
            text = text.removesuffix("a number") + f"{value:g}" if text.endswith("got a number") else text
        self.at(*steps).add(f"`{self._path[-1]}`: {text[:1].lower()}{text[1:]}")


@cache
def _fields_by_name(struct_type: type[Struct]) -> Mapping[str, FieldInfo]:
    return {field.encode_name: field for field in fields(struct_type)}


def _find_by_path(path: KeyPath, table: Mapping[KeyPath, str]) -> str | None:
    """What a table has for a key; `*` in its paths is any name."""
    for pattern, found in table.items():
        if len(pattern) == len(path) and all(step in ("*", key) for key, step in zip(path, pattern, strict=True)):
            return found
    return None
