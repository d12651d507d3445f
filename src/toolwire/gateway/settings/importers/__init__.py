"""Converts the configuration files of other gateways to `toolwire.toml`: `toolwire import`.

Pure: text in, text and notes out. Each gateway has a module with `TITLE`, `MARKS` and `convert`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from toolwire.core.ir import EMPTY_MAPPING
from toolwire.gateway.settings.importers import claude_code_router, litellm
from toolwire.gateway.settings.importers.draft import Draft, InputTable, Note

IMPORTERS = MappingProxyType({"litellm": litellm, "claude-code-router": claude_code_router})
_JSON5 = re.compile(r'("(?:[^"\\\n]|\\.)*")|//[^\n]*|/\*.*?\*/|,(?=\s*[}\]])', re.DOTALL)


class ImportProblem(Exception):
    """The file cannot be converted at all; the message says why, without any value of the file."""


class Imported(NamedTuple):
    source: str
    """The gateway whose configuration it was, for people."""
    toml: str
    notes: tuple[Note, ...]
    providers: int
    models: int


def parse_json(text: str) -> object:
    """JSON, also with comments and trailing commas. Raises ImportProblem."""
    plain = _JSON5.sub(lambda found: found[1] or " ", text)
    try:
        return json.loads(plain)
    except json.JSONDecodeError as error:
        raise ImportProblem(f"invalid JSON at line {error.lineno}, column {error.colno}: {error.msg}") from None
    except RecursionError:
        raise ImportProblem("the values are nested too deeply") from None


def find_importer(value: object) -> str:
    """The name of the importer for a file, or "" if nothing in it is known."""
    keys = value.keys() if isinstance(value, Mapping) else ()
    return next((name for name, module in IMPORTERS.items() if any(mark in keys for mark in module.MARKS)), "")


def convert_config(value: object, importer: str, file: str, environ: Mapping[str, str] = EMPTY_MAPPING) -> Imported:
    """Convert a parsed file. Raises ImportProblem. From the environment, only addresses are read."""
    if not isinstance(value, dict):
        raise ImportProblem("the file is not a table of settings")
    module, draft = IMPORTERS[importer], Draft(environ)
    try:
        module.convert(InputTable(value, "", draft), draft)
        draft.finish()
    except RecursionError:
        raise ImportProblem("the values are nested too deeply") from None
    title = f"Converted from {module.TITLE}'s {file} by `toolwire import`."
    return Imported(module.TITLE, draft.to_toml(title), tuple(draft.notes), len(draft.providers), len(draft.models))
