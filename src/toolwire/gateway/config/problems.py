"""On which line of a TOML text a key stands. The standard reader tells values, but not where they were.

The text has been read by then, so it is known to be right: this only follows tables, keys and values, and skips what
stands in strings and comments.
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
    """Lines by the path of keys (`providers`, `work`, `base_url`) and numbers (`server`, `keys`, 0)."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._position = 0
        self._line_numbers: dict[KeyPath, int] = {}
        self._table_counts: dict[KeyPath, int] = {}
        self._current_table: KeyPath = ()
        while self._skip_blanks():
            self._read_statement()

    def line_of(self, path: KeyPath) -> int:
        """The line of a place, or of the nearest that holds it; 0 when nothing does."""
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
        """Where keys lead: through a list of tables into its last one."""
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
                raise ValueError(f"no key on line {self._current_line()}")
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
        """Past white space and comments; is there anything left?"""
        found = _BLANKS.match(self._text, self._position)
        self._position = found.end() if found else self._position
        return self._position < len(self._text)

    def _current_line(self) -> int:
        return self._text.count("\n", 0, self._position) + 1


def _unquote_key(key: str) -> str:
    """A quoted key as it is meant; escapes other than of quotes are rare enough to be looked up as they stand."""
    inner = key[1:-1]
    return inner.replace('\\"', '"').replace("\\\\", "\\") if key[0] == '"' else inner


# --- What is wrong with a configuration: the line, what stands there, and what would be right ---


class Problem(Struct, frozen=True, kw_only=True):
    """One mistake (the file is refused) or one warning (it is not)."""

    location: str
    """The place: a dotted path in the file, or the name of a variable of the environment."""
    message: str
    hint: str = ""
    line: int = 0
    """The line in the file; 0 when it stands in none."""
    severity: Literal["error", "warning"] = "error"


class ConfigError(Exception):
    """A configuration that is refused, with everything that is wrong with it."""

    def __init__(self, problems: Sequence[Problem], file: str = "") -> None:
        self.problems = tuple(sorted(problems, key=lambda problem: problem.line))
        self.file = file
        super().__init__("; ".join(f"{format_problem(problem, file)}" for problem in self.problems))

    @property
    def message_and_hint(self) -> tuple[str, str]:
        """All of them, a line each, and what to do about the first that has a hint."""
        lines = [format_problem(problem, self.file) for problem in self.problems]
        hints = [problem.hint for problem in self.problems if problem.hint]
        return "\n       ".join(lines), hints[0] if hints else "run `toolwire check-config` for details"


def format_problem(problem: Problem, file: str) -> str:
    """`file:line: what`, as compilers say it; the place instead where there is no line."""
    place = f"{file}:{problem.line}" if problem.line and file else problem.location
    return f"{place}: {problem.message}"


def nearest_name(word: str, known: Iterable[str]) -> str:
    """The known word that was probably meant, or nothing."""
    names = list(known)
    folded = {name.lower().replace("_", "-"): name for name in names}
    found = get_close_matches(word.lower().replace("_", "-"), folded, 1, 0.6)
    return folded[found[0]] if found else ""


def suggest_name(word: str, known: Iterable[str]) -> str:
    """A hint for a word that nobody knows."""
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
    """The problems of one reading, each with the line of its place."""

    def __init__(self, lines: TomlLines | None) -> None:
        self._lines = lines
        self.problems: list[Problem] = []

    def add(self, path: KeyPath, message: str, hint: str = "", severity: Literal["error", "warning"] = "error") -> None:
        """A problem at a place of the file, or with a variable, which stands on no line."""
        line = self._lines.line_of(path) if self._lines is not None else 0
        self.problems.append(
            Problem(location=write_key_path(path), message=message, hint=hint, line=line, severity=severity)
        )

    @property
    def has_errors(self) -> bool:
        return any(problem.severity == "error" for problem in self.problems)

    def expect_table(self, value: object, path: KeyPath) -> TomlTable:
        """A value that must be a table; an empty one when it is not."""
        if isinstance(value, dict):
            return value
        self.add(path, f"`{write_key_path(path)}` must be a table", f"write `[{write_key_path(path)}]` above its keys")
        return {}

    def read_fields(
        self, table: TomlTable, struct_type: type[Struct], path: KeyPath, excluded: Collection[str] = ()
    ) -> dict[str, Any] | None:
        """The fields of a shape that a table gives, each checked; None when one that is needed is missing or wrong.
        Keys in `apart` are read elsewhere."""
        known = {field.name: field for field in fields(struct_type) if field.name not in excluded}
        values: dict[str, Any] = {}
        whole = True
        for key, value in table.items():
            if key in excluded:
                continue
            if key not in known:
                self.add((*path, key), f"unknown key `{key}`", suggest_name(key, known))
                continue
            try:
                values[key] = msgspec.convert(value, known[key].type)
            except msgspec.ValidationError as error:
                whole &= known[key].default is not NODEFAULT
                self._add_type_problem((*path, key), value, known[key].type, str(error))
        for name, field in known.items():
            needed = field.default is NODEFAULT and field.default_factory is NODEFAULT
            if needed and name not in table:
                self.add(path, f"`{name}` is missing", f"add `{name} = …`")
                whole = False
        return values if whole else None

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
        within = _ERROR_PATH.search(error)
        error = _ERROR_PATH.sub("", error).replace(" | null", "")  # nobody can write one here
        steps = tuple(int(number) for number in _INDEX_STEP.findall(within[1])) if within else ()
        said = re.sub(r"`(\w+)`", lambda word: _TYPE_NAMES.get(word[1], word[0]), error)
        choices = _literal_choices(expected)
        if choices and isinstance(value, str):
            near = suggest_name(value, choices)
            hint = near if near.startswith("choose") else f"{near} Choose from: {', '.join(choices)}"
            self.add(path, f"`{path[-1]}` has an invalid value", hint)
            return
        self.add((*path, *steps), f"`{path[-1]}`: {said[:1].lower()}{said[1:]}")


def _matches_key_path(path: KeyPath, pattern: KeyPath) -> bool:
    return len(path) == len(pattern) and all(step in ("*", key) for key, step in zip(path, pattern, strict=True))


def _literal_choices(annotation: object) -> tuple[str, ...]:
    return get_args(annotation) if get_origin(annotation) is Literal else ()


_UNQUOTED_KEY = re.compile(r"[A-Za-z0-9_-]+")


def write_key_path(path: KeyPath) -> str:
    """A place as one would write it in the file."""
    parts = [str(step) if isinstance(step, int) or _UNQUOTED_KEY.fullmatch(step) else f'"{step}"' for step in path]
    return ".".join(parts)
