"""A judge of the closed subset that shares no code with the conversion, and a way back into plain JSON Schema."""

from __future__ import annotations

import re
from typing import Any

from jsonschema import Draft202012Validator

META_SCHEMA = Draft202012Validator(Draft202012Validator.META_SCHEMA, format_checker=Draft202012Validator.FORMAT_CHECKER)
"""What `check_schema` asks, made once."""

WORDS = {"type", "title", "description", "nullable", "default", "example"}
KEYWORDS: dict[str, set[str]] = {
    "STRING": {"format", "enum", "minLength", "maxLength", "pattern"},
    "NUMBER": {"format", "minimum", "maximum"},
    "INTEGER": {"format", "minimum", "maximum"},
    "BOOLEAN": set(),
    "NULL": set(),
    "ARRAY": {"items", "minItems", "maxItems"},
    "OBJECT": {"properties", "required", "minProperties", "maxProperties", "propertyOrdering"},
}


def subset_faults(node: Any, path: str = "") -> list[str]:
    """What the server would refuse."""
    if not isinstance(node, dict):
        return [f"{path}: no object"]
    if "anyOf" in node:
        faults = [f"{path}: more than anyOf"] if len(node) > 1 else []
        return faults + [
            fault for number, branch in enumerate(node["anyOf"]) for fault in subset_faults(branch, f"{path}/{number}")
        ]
    kind = node.get("type")
    if kind not in KEYWORDS:
        return [f"{path}: type {kind!r}"]
    faults = [f"{path}: {key}" for key in node.keys() - KEYWORDS[kind] - WORDS]
    faults += [f"{path}: enum" for value in node.get("enum", ["x"]) if not isinstance(value, str) or not value]
    if "enum" in node and not node["enum"]:
        faults.append(f"{path}: empty enum")
    if kind == "ARRAY":
        faults += subset_faults(node.get("items"), f"{path}/items")
    properties = node.get("properties", {})
    for name, child in properties.items():
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,63}", name):
            faults.append(f"{path}: name {name!r}")
        faults += subset_faults(child, f"{path}/{name}")
    for key in ("required", "propertyOrdering"):
        faults += [f"{path}: {key} {name!r}" for name in node.get(key, ()) if name not in properties]
    return faults


def with_plain_types(node: Any) -> Any:
    """A schema of the subset as a validator of JSON Schema reads it."""
    if "anyOf" in node:
        return {"anyOf": [with_plain_types(branch) for branch in node["anyOf"]]}
    out = {key: value for key, value in node.items() if key not in ("nullable", "example", "propertyOrdering")}
    out["type"] = node["type"].lower()
    if "items" in out:
        out["items"] = with_plain_types(out["items"])
    if "properties" in out:
        out["properties"] = {name: with_plain_types(child) for name, child in out["properties"].items()}
    return {"anyOf": [out, {"type": "null"}]} if node.get("nullable") else out
