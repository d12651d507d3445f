"""Writing TOML: the tables of a configuration file."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

Toml = str | int | float | bool | list["Toml"] | dict[str, "Toml"]
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


def write_table(path: tuple[str, ...], table: Mapping[str, Toml]) -> str:
    """A table, and after its values the tables below it."""
    heading = ".".join(_write_key(key) for key in path)
    inner = {key: value for key, value in table.items() if isinstance(value, dict)}
    values = {key: value for key, value in table.items() if key not in inner}
    text = f"[{heading}]\n{write_values(values)}" if values or not inner else ""
    return "".join([text, *(write_table((*path, key), value) for key, value in inner.items())])


def write_values(table: Mapping[str, Toml]) -> str:
    return "".join(f"{_write_key(key)} = {_write_value(value)}\n" for key, value in table.items())


def _write_key(key: str) -> str:
    return key if _BARE_KEY.fullmatch(key) else _write_value(key)


def _write_value(value: Toml) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_write_value, value))}]"
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{_write_key(key)} = {_write_value(inner)}' for key, inner in value.items())} }}"
    # A JSON string is a TOML string, except for one control character.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
