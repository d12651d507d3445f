"""Problems in a configuration file, each with its line, and reading tables while collecting them.

`tomllib` does not report the lines of keys. `TomlLines` finds them in a text that `tomllib` has already accepted.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, Literal, get_args, get_origin

import msgspec
from msgspec import NODEFAULT, Struct
from msgspec.structs import fields

KeyPath = tuple[str | int, ...]

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
        self._line_numbers: dict[KeyPath, int] = {}
        self._table_counts: dict[KeyPath, int] = {}
        self._current_table: KeyPath = ()
        while self._skip_blanks():
            self._read_statement()

    def line_of(self, path: KeyPath) -> int:
        """The line of a key, or of the nearest table around it; 0 if there is none."""
        for length in range(len(path), 0, -1):
            if path[:length] in self._line_numbers:
                return self._line_numbers[path[:length]]
        return 0

    def copy_lines(self, old: KeyPath, new: KeyPath) -> None:
        """Give a renamed key, and everything below it, the lines of its old name."""
        size = len(old)
        for path in [path for path in self._line_numbers if path[:size] == old]:
            self._line_numbers[(*new, *path[size:])] = self._line_numbers[path]

    @property
    def line_numbers(self) -> Mapping[KeyPath, int]:
        return self._line_numbers

    # --- statements ---

    def _read_statement(self) -> None:
        if self._text.startswith("[[", self._position):
            self._read_table_header(2)
        elif self._text[self._position] == "[":
            self._read_table_header(1)
        else:
            self._read_pair(self._current_table)

    def _read_table_header(self, brackets: int) -> None:
        line = self._current_line()
        self._position += brackets
        keys = self._read_keys()
        self._skip_blanks()
        self._position += brackets
        place = self._resolve_keys(keys[:-1], line)
        if brackets == 1:
            place = (*place, keys[-1])
        else:
            listed = (*place, keys[-1])
            place = (*listed, self._table_counts.get(listed, 0))
            self._table_counts[listed] = self._table_counts.get(listed, 0) + 1
            self._line_numbers.setdefault(listed, line)
        self._line_numbers.setdefault(place, line)
        self._current_table = place

    def _resolve_keys(self, keys: list[str], line: int) -> KeyPath:
        """The path of a table header's keys: in a list of tables, its last table."""
        place: KeyPath = ()
        for key in keys:
            place = (*place, key)
            self._line_numbers.setdefault(place, line)
            if place in self._table_counts:
                place = (*place, self._table_counts[place] - 1)
        return place

    def _read_pair(self, path: KeyPath) -> None:
        line = self._current_line()
        place = path
        for key in self._read_keys():
            place = (*place, key)
            self._line_numbers.setdefault(place, line)
        self._skip_blanks()
        self._position += 1  # the equals sign
        self._read_value(place)

    def _read_keys(self) -> list[str]:
        keys: list[str] = []
        while True:
            self._skip_blanks()
            quoted = _STRING.match(self._text, self._position)
            word = quoted or _BARE_KEY.match(self._text, self._position)
            if word is None:
                raise ValueError(f"line {self._current_line()} has no key")
            keys.append(_unquote_key(word[0]) if quoted else word[0])
            self._position = word.end()
            self._skip_blanks()
            if not self._text.startswith(".", self._position):
                return keys
            self._position += 1

    # --- values ---

    def _read_value(self, path: KeyPath) -> None:
        self._skip_blanks()
        opening = self._text[self._position]
        if opening == "[":
            self._read_array(path)
        elif opening == "{":
            self._read_inline_table(path)
        else:
            shape = _STRING if opening in "\"'" else _BARE_VALUE
            found = shape.match(self._text, self._position)
            self._position = found.end() if found else len(self._text)

    def _read_array(self, path: KeyPath) -> None:
        self._position += 1
        number = 0
        while self._skip_blanks() and self._text[self._position] != "]":
            if self._text[self._position] == ",":
                self._position += 1
                continue
            self._line_numbers.setdefault((*path, number), self._current_line())
            self._read_value((*path, number))
            number += 1
        self._position += 1

    def _read_inline_table(self, path: KeyPath) -> None:
        self._position += 1
        while self._skip_blanks() and self._text[self._position] != "}":
            if self._text[self._position] == ",":
                self._position += 1
                continue
            self._read_pair(path)
        self._position += 1

    # --- characters ---

    def _skip_blanks(self) -> bool:
        """Skip white space and comments; False at the end of the text."""
        found = _BLANKS.match(self._text, self._position)
        self._position = found.end() if found else self._position
        return self._position < len(self._text)

    def _current_line(self) -> int:
        return self._text.count("\n", 0, self._position) + 1


def _unquote_key(key: str) -> str:
    """The text of a quoted key. Escapes other than of quotes and backslashes are rare and left as they are."""
    inner = key[1:-1]
    return inner.replace('\\"', '"').replace("\\\\", "\\") if key[0] == '"' else inner


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
    """A refused configuration, with all its problems."""

    def __init__(self, problems: Sequence[Problem], file: str = "") -> None:
        self.problems = tuple(sorted(problems, key=lambda problem: problem.line))
        self.file = file
        super().__init__("; ".join(format_problem(problem, file) for problem in self.problems))

    @property
    def message_and_hint(self) -> tuple[str, str]:
        """All problems, one per line, and the first hint."""
        lines = [format_problem(problem, self.file) for problem in self.problems]
        hints = [problem.hint for problem in self.problems if problem.hint]
        return "\n       ".join(lines), hints[0] if hints else "run `toolwire check-config` for details"


def format_problem(problem: Problem, file: str) -> str:
    """`file:line: message`; without a line, the location instead."""
    place = f"{file}:{problem.line}" if problem.line and file else problem.location
    return f"{place}: {problem.message}"


def nearest_name(word: str, known: Iterable[str]) -> str:
    """The known name that was probably meant, or ""."""
    names = list(known)
    folded = {name.lower().replace("_", "-"): name for name in names}
    found = get_close_matches(word.lower().replace("_", "-"), folded, 1, 0.6)
    return folded[found[0]] if found else ""


def suggest_name(word: str, known: Iterable[str]) -> str:
    """A hint for an unknown name."""
    names = list(known)
    near = nearest_name(word, names)
    return f"did you mean `{near}`?" if near else f"choose from: {', '.join(names)}" if names else ""


TomlTable = Mapping[str, object]

_TYPE_NAMES = {
    "int": "an integer",
    "float": "a number",
    "str": "a string",
    "bool": "true or false",
    "array": "a list",
    "object": "a table",
}
_ERROR_PATH = re.compile(r" - at `\$(.*)`$")
_INDEX_STEP = re.compile(r"\[(\d+)\]")


class ProblemCollector:
    """Collects the problems of one file, so that all are reported at once."""

    def __init__(self, lines: TomlLines | None) -> None:
        self._lines = lines
        self.problems: list[Problem] = []

    def add(self, path: KeyPath, message: str, hint: str = "", severity: Literal["error", "warning"] = "error") -> None:
        """Add a problem with a key of the file, or with an environment variable."""
        line = self._lines.line_of(path) if self._lines is not None else 0
        self.problems.append(
            Problem(location=write_key_path(path), message=message, hint=hint, line=line, severity=severity)
        )

    @property
    def has_errors(self) -> bool:
        return any(problem.severity == "error" for problem in self.problems)

    def expect_table(self, value: object, path: KeyPath) -> TomlTable:
        """The value if it is a table; otherwise add a problem and return an empty table."""
        if isinstance(value, dict):
            return value
        self.add(path, f"`{write_key_path(path)}` must be a table", f"write `[{write_key_path(path)}]` above its keys")
        return {}

    def expect_section(self, tables: TomlTable, name: str) -> TomlTable:
        return self.expect_table(tables.get(name, {}), (name,))

    def read_fields(
        self, table: TomlTable, struct_type: type[Struct], path: KeyPath, excluded: Collection[str] = ()
    ) -> dict[str, Any] | None:
        """The values of a table, checked against the fields of a Struct; None if a required one is missing or wrong.
        Keys in `excluded` are read elsewhere."""
        known = {field.encode_name: field for field in fields(struct_type) if field.encode_name not in excluded}
        values: dict[str, Any] = {}
        is_complete = True
        for key, value in table.items():
            if key in excluded:
                continue
            if key not in known:
                self.add((*path, key), f"unknown key `{key}`", suggest_name(key, known))
                continue
            try:
                values[known[key].name] = msgspec.convert(value, known[key].type)
            except msgspec.ValidationError as error:
                is_complete &= known[key].default is not NODEFAULT
                self._add_type_problem((*path, key), value, known[key].type, str(error))
        for name, field in known.items():
            needed = field.default is NODEFAULT and field.default_factory is NODEFAULT
            if needed and name not in table:
                self.add(path, f"`{name}` is missing", f"add `{name} = …`")
                is_complete = False
        return values if is_complete else None

    def rename_old_keys(self, table: dict[str, Any], renamed: Mapping[KeyPath, str], path: KeyPath = ()) -> None:
        """Move the values of keys in `renamed` to their new names, in place, each with a warning."""
        for key in [*table]:
            old = (*path, key)
            name = next((renamed[pattern] for pattern in renamed if _matches_key_path(old, pattern)), key)
            new = (*path, name)
            if name != key and name in table:
                self.add(old, f"`{key}` is the old name of `{name}`, and both are set", f"remove `{key}`")
                del table[key]
                continue
            if name != key:
                self.add(old, f"`{key}` has been renamed", f"write `{name}` instead of `{key}`", "warning")
                table[name] = table.pop(key)
                if self._lines is not None:
                    self._lines.copy_lines(old, new)
            if isinstance(table[name], dict):
                self.rename_old_keys(table[name], renamed, new)

    def _add_type_problem(self, path: KeyPath, value: object, expected: object, error: str) -> None:
        inner_path = _ERROR_PATH.search(error)
        error = _ERROR_PATH.sub("", error).replace(" | null", "")  # TOML has no null
        steps = tuple(int(number) for number in _INDEX_STEP.findall(inner_path[1])) if inner_path else ()
        text = re.sub(r"`(\w+)`", lambda word: _TYPE_NAMES.get(word[1], word[0]), error)
        choices = _literal_choices(expected)
        if choices and isinstance(value, str):
            near = suggest_name(value, choices)
            hint = near if near.startswith("choose") else f"{near} Choose from: {', '.join(choices)}"
            self.add(path, f"`{path[-1]}` has an invalid value", hint)
            return
        self.add((*path, *steps), f"`{path[-1]}`: {text[:1].lower()}{text[1:]}")


def _matches_key_path(path: KeyPath, pattern: KeyPath) -> bool:
    return len(path) == len(pattern) and all(step in ("*", key) for key, step in zip(path, pattern, strict=True))


def _literal_choices(annotation: object) -> tuple[str, ...]:
    return get_args(annotation) if get_origin(annotation) is Literal else ()


def write_key_path(path: KeyPath) -> str:
    """A path as it is written in the file."""
    parts = [str(step) if isinstance(step, int) or _BARE_KEY.fullmatch(step) else f'"{step}"' for step in path]
    return ".".join(parts)
