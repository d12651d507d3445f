"""Writes what follows from the types of the console's API (`gateway/surfaces/console/api.py`): its TypeScript types,
and its JSON Schema for the documentation. With `--check` it only says whether both are up to date.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import msgspec

from toolwire.gateway.surfaces.console.api import API_PATH, API_TYPES, CONSOLE_HEADER

ROOT = Path(__file__).parent.parent
SOURCE = "src/toolwire/gateway/surfaces/console/api.py"
TYPESCRIPT = ROOT / "console" / "src" / "api.ts"
SCHEMA = ROOT / "docs" / "reference" / "console-api.json"
OPTIONAL_MEMBERS = frozenset({"Tokens", "TranslateQuestion"})
"""Types whose members with a default may be absent: `Tokens` leaves out what is unknown, and the page sends a question.
In all others the gateway sends every member."""
SIMPLE_TYPES = {"string": "string", "integer": "number", "number": "number", "boolean": "boolean", "null": "null"}

Schema = dict[str, Any]


def api_components(ref_template: str) -> dict[str, Schema]:
    _, components = msgspec.json.schema_components(API_TYPES, ref_template=ref_template)
    return {name: _write_numbers(schema) for name, schema in sorted(components.items())}


def _write_numbers(schema: Any) -> Any:
    """A Decimal is a string for msgspec, but `encode_message` writes it as a number."""
    if isinstance(schema, dict):
        is_amount = schema.get("format") == "decimal"
        return {"type": "number"} if is_amount else {name: _write_numbers(value) for name, value in schema.items()}
    return [_write_numbers(value) for value in schema] if isinstance(schema, list) else schema


def write_schema() -> str:
    whole = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "The JSON API of Toolwire's console",
        "description": f"Version 1, below {API_PATH}. Made from {SOURCE} by `make console`.",
        "$defs": api_components("#/$defs/{name}"),
    }
    return json.dumps(whole, indent=2, ensure_ascii=False) + "\n"


def write_typescript() -> str:
    lines = [
        "// Made from src/toolwire/gateway/surfaces/console/api.py by `make console`; do not edit.",
        "",
        f"export const API_PATH = {json.dumps(API_PATH)};",
        f"export const CONSOLE_HEADER = {json.dumps(CONSOLE_HEADER)};",
    ]
    for name, schema in api_components("{name}").items():
        lines += ["", f"/** {' '.join(schema['description'].split())} */"] if "description" in schema else [""]
        lines.append(f"export interface {name} {{")
        required = set(schema.get("required", ()))
        for member, inner in schema["properties"].items():
            is_optional = member not in required and name in OPTIONAL_MEMBERS
            lines.append(f"  {member}{'?' if is_optional else ''}: {_type_of(inner)};")
        lines.append("}")
    return "\n".join(lines) + "\n"


def _type_of(schema: Schema) -> str:
    if "$ref" in schema:
        return str(schema["$ref"])
    if "anyOf" in schema:
        return " | ".join(dict.fromkeys(map(_type_of, schema["anyOf"])))
    if "enum" in schema:
        return " | ".join(json.dumps(value) for value in schema["enum"])
    if schema.get("type") == "array":
        inner = _type_of(schema["items"])
        return f"readonly ({inner})[]" if " " in inner else f"readonly {inner}[]"
    return SIMPLE_TYPES[schema["type"]]


def main() -> int:
    files = {TYPESCRIPT: write_typescript(), SCHEMA: write_schema()}
    old = [path for path, text in files.items() if not path.exists() or path.read_text("utf-8") != text]
    if "--check" in sys.argv[1:]:
        for path in old:
            sys.stderr.write(f"{path.relative_to(ROOT)} is not up to date: run `make console`\n")
        return 1 if old else 0
    for path in old:
        path.write_text(files[path], "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
