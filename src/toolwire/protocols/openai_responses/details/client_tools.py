"""Tools that a client runs and that have no schema on this wire, described so that any model can call them."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from toolwire.wire import Object

_TEXT: Object = {"type": "string"}
_NUMBER: Object = {"type": "integer"}
_WORDS: Object = {"type": "array", "items": {"type": "string"}}

DESCRIPTIONS: Mapping[str, str] = MappingProxyType(
    {
        "local_shell": "Runs one command on the user's machine and returns its output.",
        "shell": "Runs shell commands, one after another, and returns stdout, stderr and exit code of each.",
        "apply_patch": "Creates, updates or deletes one file. For updates and new files `diff` is a V4A diff.",
        "computer": "Acts on the user's screen (click, type, scroll, …) and returns a screenshot.",
    }
)

SCHEMAS: Mapping[str, Object] = MappingProxyType(
    {
        "local_shell": {
            "type": "object",
            "properties": {
                "type": {"type": "string", "enum": ["exec"]},
                "command": {**_WORDS, "description": "The program and its arguments."},
                "env": {"type": "object", "additionalProperties": {"type": "string"}},
                "working_directory": _TEXT,
                "timeout_ms": _NUMBER,
                "user": _TEXT,
            },
            "required": ["type", "command", "env"],
        },
        "shell": {
            "type": "object",
            "properties": {
                "commands": {**_WORDS, "description": "Shell commands, run in this order."},
                "timeout_ms": _NUMBER,
                "max_output_length": _NUMBER,
            },
            "required": ["commands"],
        },
        "apply_patch": {
            "type": "object",
            "properties": {
                "type": {"type": "string", "enum": ["create_file", "update_file", "delete_file"]},
                "path": _TEXT,
                "diff": {"type": "string", "description": "The diff; not for delete_file."},
            },
            "required": ["type", "path"],
        },
        "computer": {
            "type": "object",
            "properties": {
                "type": {
                    "type": "string",
                    "enum": [
                        "click",
                        "double_click",
                        "drag",
                        "keypress",
                        "move",
                        "screenshot",
                        "scroll",
                        "type",
                        "wait",
                    ],
                },
                "x": _NUMBER,
                "y": _NUMBER,
                "button": {"type": "string", "enum": ["left", "right", "wheel", "back", "forward"]},
                "scroll_x": _NUMBER,
                "scroll_y": _NUMBER,
                "text": {"type": "string", "description": "What to type."},
                "keys": _WORDS,
                "path": {
                    "type": "array",
                    "items": {"type": "object", "properties": {"x": _NUMBER, "y": _NUMBER}, "required": ["x", "y"]},
                },
            },
            "required": ["type"],
        },
    }
)
